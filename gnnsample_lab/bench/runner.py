"""``gnnsample-lab bench``: the list of suites, and how one is run, recorded and printed."""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gnnsample_lab.files import read_json, reading, replace_file
from gnnsample_lab.graph import catalogue

from . import record as records
from . import report, schema, source
from . import stale as staleness
from .suite import L2, Unavailable
from .suites import SUITES, targets_of


def list_suites() -> dict[str, str]:
    """Every suite with one line on what it measures."""
    return {name: suite.about for name, suite in SUITES.items()} | {
        "all": "all of the above, one after the other"
    }


def _function(name: str) -> Callable[..., dict[str, Any]]:
    return SUITES[name].function()


def run(
    name: str,
    *,
    quick: bool = False,
    graphs: Sequence[str] | None = None,
    folder: Path | str | None = None,
    session: Any = None,
    say: Callable[[str], None] | None = None,
    pieces: Path | None = None,
) -> dict[str, Any]:
    """Run one suite: verify, time, compute ratios and targets. Writes nothing but the traces of ``traces``, and pieces.

    Args:
        name: a name of :func:`list_suites`, not ``"all"``.
        quick: fewer configurations, fewer knobs.
        graphs: names for ``lab.load`` in place of the suite's own.
        folder: where ``traces`` puts its files; default ``data/measured/traces`` of the checkout, or
            ``traces-quick`` beside it.
        session: shares graphs and recorded samples with suites that ran before.
        say: takes lines of progress.
        pieces: file of the pieces that an earlier run, which was cut off, has done, and for those of this one; the
            caller removes it when the record is kept. None: nothing is resumed.

    Returns:
        The record: ``suite``, ``environment``, ``source`` (hash of what ran), ``settings``, ``verification``,
        ``graphs``, ``rows``, ``paper``, ``targets``, ``seconds``; where pieces were resumed, ``resumed`` (by earlier
        run, its environment and number of pieces).

    Raises:
        LookupError: no such suite.
        ValueError: graphs were given to a suite that takes none.
        Unavailable (a RuntimeError): the suite needs a GPU or a package that is not there.
        VerificationError: a strategy did not return the CPU twin's sample.
    """
    if name not in SUITES:
        raise LookupError(f"suite must be one of {', '.join(SUITES)} (got {name!r})")
    from .host_speed import host_speed
    from .pieces import Pieces
    from .session import Session

    session = session or Session(quick, graphs, say)
    if problem := SUITES[name].problem_with(session.chosen or ()):
        raise ValueError(f"graphs must suit {name!r}: {problem} (got {', '.join(session.chosen or ())})")
    if SUITES[name].needs_gpu:
        session.require_gpu(name)
    records.commit()  # a wrong LAB_COMMIT is said now, not after an hour
    ran = source.of_function(SUITES[name].path)
    session.make_room()
    at = {**records.environment(), "host": host_speed()}
    began = time.perf_counter()
    arguments = (records.trace_folder(folder, session.quick),) if name == "traces" else ()
    kept = session.pieces = Pieces(pieces, _alike(name, session, ran, at), at) if pieces else None
    try:
        body = _function(name)(session, *arguments)
    finally:
        session.pieces = None
    at["host_after"] = host_speed()  # a host that others share changes within minutes
    record = {
        "format": records.FORMAT, "suite": name, "about": SUITES[name].about, "origin": "measured",
        "environment": at, "source": ran, "seconds": time.perf_counter() - began, **body,
    }  # fmt: skip
    if kept is not None and (resumed := kept.earlier()):
        record["resumed"] = resumed
        record["seconds"] += kept.earlier_seconds
    record["settings"] = {"quick": session.quick, **record["settings"]}
    _tell_l2(record)
    record["paper"] = SUITES[name].paper
    record = records.plain(record)
    record["targets"] = [target._asdict() for target in targets_of(record)]
    return record


def _tell_l2(record: dict[str, Any]) -> None:
    """Say in each row that was measured on a GPU how it found the L2, where the suite says it of all."""
    l2 = SUITES[record["suite"]].l2
    if l2 and record["environment"]["gpu"]:
        record["settings"].setdefault("l2", L2[l2])
        for row in record["rows"]:
            if not records.is_modelled(row):
                row.setdefault("l2", l2)


def _alike(name: str, session: Any, ran: dict[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    """What pieces of one record have in common."""
    return {
        "suite": name, "source": ran["hash"], "quick": session.quick, "graphs": session.chosen,
        **{key: at.get(key) for key in ("gpu", "python", "packages")},
    }  # fmt: skip


def record_file(
    name: str, out: Path | None, graphs: Sequence[str] | None = None, quick: bool = False
) -> Path | None:
    """Where the record of a suite goes; a quick run's record has a name of its own.

    Args:
        name: a name of :func:`list_suites`.
        out: a ``.json`` file, a folder, or None for ``data/measured`` of the checkout.
        graphs: what was measured in place of the suite's own graphs; part of the name, unless graphs share a record.
        quick: the run is a quick one.

    Returns:
        The file, or None where there is neither ``out`` nor a checkout.
    """
    folder = out if out is not None else records.measured_folder()
    if folder is None or folder.suffix == ".json":
        return folder
    shared = SUITES[name].merge is not None
    suffix = "".join("-" + re.sub(r"[^\w.-]+", "_", graph) for graph in graphs or () if not shared)
    return folder / (SUITES[name].file or f"{name}{suffix}{'-quick' if quick else ''}.json")


def _save(
    record: dict[str, Any], out: Path | None, graphs: Sequence[str] | None, pieces: Path | None = None
) -> dict[str, Any]:
    """Write the record, joined with that on the disk where graphs share one, and remove its ``pieces``; returns what
    was written."""
    name = record["suite"]
    if name == "verify" and not record["settings"]["complete"]:
        print("not written: only a complete run of verify records its hashes")
        return record
    target = record_file(name, out, graphs, record["settings"].get("quick", False))
    if target is None:
        print("not written: this is no checkout; pass --out FILE")
        return record
    before, now = _gpu_at(target, asked=out is not None), _gpu_of(record)
    if before and out is None and not now:
        print(f"not written: {target} was recorded on {before}, and this host has no GPU; pass --out FILE")
        return record
    if before and before != now:
        print(f"{target} was recorded on {before}, and is now of {now or 'a CPU'}")
    record = _joined(record, target)
    for problem in schema.problems(record):  # it is written all the same: what was measured is not to be lost
        print(f"the record is not as it should be: {problem}")
    print(f"written: {records.write_json(record, target)}")
    if pieces is not None:
        pieces.unlink(missing_ok=True)
    return record


def _gpu_of(record: dict[str, Any]) -> str:
    """The GPU of the host that made a record; empty where it had none."""
    gpu = record.get("environment", {}).get("gpu")
    return gpu["name"] if gpu else ""


def _gpu_at(target: Path, asked: bool) -> str:
    """The GPU of the record that is at ``target``; empty where there is none.

    Raises:
        CorruptDataError: (a ValueError) the file is no record; not where the user ``asked`` for it to be written.
    """
    if not target.exists():
        return ""
    try:
        with reading(target, "a benchmark record"):
            return _gpu_of(read_json(target))
    except ValueError:
        if asked:
            return ""
        raise


def _joined(record: dict[str, Any], target: Path) -> dict[str, Any]:
    """The record together with the graphs that only the file at ``target`` has."""
    merge = SUITES[record["suite"]].merge
    if merge is None or not target.exists():
        return record
    with reading(target, "a benchmark record"):
        record = records.plain(merge(read_json(target), record))
    record["targets"] = [target._asdict() for target in targets_of(record)]
    return record


def _joining_problem(name: str, target: Path) -> str:
    """Why a record of suite ``name`` cannot be joined with the file at ``target``; empty when it can."""
    if SUITES[name].merge is None or not target.exists():
        return ""
    try:
        with reading(target, "a benchmark record"):
            old = read_json(target)
            report.text(old)
            found = old["suite"]
    except (OSError, ValueError) as error:
        return str(error)
    return "" if found == name else f"{target} holds a record of suite {found!r}"


def _run_and_report(name: str, options: argparse.Namespace, session: Any) -> bool:
    print(f"\n== {name}: {SUITES[name].about}", flush=True)
    graphs = SUITES[name].graphs(session)
    if not graphs:
        return _attempt(name, options, session, "all" in options.suites or options.within is not None)
    # Graph by graph, each saved when it is done: what follows may run out of time or memory.
    chosen, good = session.chosen, []
    for graph in graphs:
        session.chosen = (graph,)
        # The suite's own list has graphs that may not be here; a graph that was asked for has to be.
        good.append(_attempt(name, options, session, chosen is None))
    session.chosen = chosen
    return all(good)


def _pieces_file(name: str, options: argparse.Namespace, session: Any) -> Path | None:
    """Beside the record, of which graph by graph there are several in turn; None where no record is written."""
    target = None if options.no_save else record_file(name, options.out, session.chosen, options.quick)
    return None if target is None else target.with_name(f"{target.stem}.pieces")


def _attempt(name: str, options: argparse.Namespace, session: Any, may_skip: bool) -> bool:
    """Run one suite, print and save its record; False when it failed."""
    out: Path | None = options.out
    pieces = _pieces_file(name, options, session) if options.resume else None
    traces = out / records.TRACES[options.quick] if out is not None and out.suffix != ".json" else None
    try:
        record = run(name, session=session, folder=traces, pieces=pieces)
    except Unavailable as error:
        print(f"{name} {'SKIPPED' if may_skip else 'FAILED'}: {error}", flush=True)
        return may_skip
    except BrokenPipeError:  # nobody reads on: this is the end of the whole command
        raise
    except Exception as error:
        # The suites after this one may still succeed; what failed is said, and the exit code tells.
        if not isinstance(error, (RuntimeError, OSError, ValueError, LookupError, MemoryError)):
            traceback.print_exc()
        print(f"{name} FAILED: {type(error).__name__}: {error}", flush=True)
        return False
    print(report.text(record))
    if not options.no_save:
        _save(record, out, options.graph, pieces)
    print(f"{name}: {record['seconds']:.1f} s", flush=True)
    return True


def _suite(name: str) -> str:
    """The name of a suite, for argparse, which with ``choices`` would refuse that none is named."""
    if name not in (known := [*list_suites(), "report"]):
        raise argparse.ArgumentTypeError(f"invalid choice: {name!r} (choose from {', '.join(known)})")
    return name


def _graph(text: str) -> str:
    """A name that ``lab.load`` knows, with or without a scale."""
    try:
        name, scale = records.scaled(text)
        kind = "snap" if name.startswith("snap:") else catalogue.entry(name)["kind"]
    except (LookupError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < scale < math.inf:
        raise argparse.ArgumentTypeError(f"the scale must be positive (got {text!r})")
    if scale != 1 and kind not in catalogue.GENERATED:
        raise argparse.ArgumentTypeError(
            f"the scale must be 1 for {name!r}, which is not synthetic (got {text!r})"
        )
    return text


def _part(text: str) -> tuple[int, int]:
    """``I/N``, for argparse."""
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    part, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= parts:
        raise argparse.ArgumentTypeError(f"must be I/N with I of 1 to N (got {text!r})")
    return part, parts


def _seconds(text: str) -> float:
    """A number above 0, for argparse; ``inf`` is no limit."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not found > 0:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0 (got {text!r})")
    return found


def _place(text: str) -> Path:
    """A file or a folder, for argparse."""
    if not text:
        raise argparse.ArgumentTypeError("must be a file or a folder (got '')")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:18} {about}" for name, about in list_suites().items())
    parser = argparse.ArgumentParser(
        prog="gnnsample-lab bench", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Verify first, then time, then ratios; JSON and a table, the paper's value beside ours.",
        epilog=f"suites:\n{listed}\n  {'report':18} tables of what is recorded, and which targets are met",
    )  # fmt: skip
    parser.add_argument(
        "suites", nargs="*", type=_suite, metavar="SUITE",
        help="of those below; several share what they load and measure",
    )  # fmt: skip
    parser.add_argument(
        "--graph",
        action="append",
        type=_graph,
        metavar="NAME",
        help="a graph (NAME or NAME@SCALE) in place of the suite's own; repeatable; all leaves out suites that have "
        "no graph to choose",
    )
    parser.add_argument(
        "--out", type=_place, help="a .json file, or a folder (default: data/measured of the checkout)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer configurations, fewer knobs")
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=list(SUITES),
        metavar="SUITE",
        help="with all: leave out; repeatable",
    )
    parser.add_argument(
        "--stale",
        action="store_true",
        help="list the suites, of those named if any are, whose records other source has made than that of this tree, "
        "and run nothing",
    )
    parser.add_argument(
        "--within", type=_seconds, metavar="SECONDS",
        help="with --stale: run them, what nobody knows first, each that by its last record ends in the time left",
    )  # fmt: skip
    parser.add_argument(
        "--part", type=_part, default=(1, 1), metavar="I/N",
        help="with --within: this host's or GPU's share, where N record side by side",
    )  # fmt: skip
    parser.add_argument(
        "--resume", action="store_true",
        help="keep the pieces of a suite that are done in RECORD.pieces, and go on from there where a run was cut off: "
        "of the same source, on the same kind of card",
    )  # fmt: skip
    parser.add_argument("--no-save", action="store_true", help="print only")
    parser.add_argument(
        "--readme",
        type=Path,
        metavar="FILE",
        help="with report: write the tables of results and of twins between their marks in FILE",
    )
    parser.add_argument(
        "--targets",
        type=Path,
        metavar="FILE",
        help="with report: write every target, what was measured for it and whether it is met, as Markdown; FILE is "
        "written, and replaced where it is such a list",
    )
    return parser


def _write_readme(path: Path, loaded: dict[str, dict[str, Any]]) -> int:
    """Renew the tables of a Markdown file, results (where it has their marks) and twins; returns the exit code."""
    from . import measured
    from .suites.twins import table

    if "twins" not in loaded:
        print("nothing is recorded for the suite 'twins' yet")
        return 1
    try:
        text = measured.readme(path.read_text(encoding="utf-8"), loaded)
        text = table.readme(text, loaded["twins"])
    except (OSError, ValueError) as error:
        print(f"{path} is not written: {error}")
        return 1
    print(f"written: {replace_file(path, text.encode())}")
    return 0


def _write_targets(path: Path, loaded: dict[str, dict[str, Any]]) -> int:
    """Write the list of targets, in place of one that was written before and of nothing else; returns the exit code."""
    from . import target_list

    if not loaded:
        print("nothing is recorded yet")
        return 1
    try:
        path.parent.stat()  # a folder that is missing may be misspelt, and is not made
        begin = target_list.BEGIN.encode()
        if path.exists() and path.read_bytes()[: len(begin)] != begin:
            print(
                f"{path} is not written: it is there and is no list of targets; name a file that is not there"
            )
            return 1
        replace_file(path, target_list.markdown(loaded).encode())
    except OSError as error:
        print(f"{path} is not written: {error}")
        return 1
    print(f"written: {path}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``gnnsample-lab bench``; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.graph and (options.stale or options.suites == ["report"]):
        parser.error("--graph goes with suites that are named, or with all")
    if options.stale:
        if alone := next((n for n in options.suites if n in ("all", "report")), None):
            parser.error(f"--stale does not go with {alone}")
        found = staleness.stale(report.load(options.out))
        if options.suites:
            found = [each for each in found if each.suite in options.suites]
        if options.within is None:
            print(staleness.listed(found))
            return 0
        seconds = staleness.expected(staleness.by_need(found))
        options.suites = staleness.share(seconds, *options.part)
        if not options.suites:
            print("nothing to record")
            return 0
    elif options.within is not None:
        parser.error("--within goes with --stale")
    if not options.suites:
        parser.print_help()
        return 0
    chosen = list(dict.fromkeys(options.suites))
    if len(chosen) > 1 and (alone := next((n for n in chosen if n in ("all", "report")), None)):
        parser.error(f"{alone} stands alone (got {' '.join(chosen)})")
    if chosen == ["report"]:
        if options.out is not None and not options.out.is_dir():
            parser.error(f"--out must be a folder of records with report (got {options.out})")
        loaded = report.load(options.out)
        if options.readme is None and options.targets is None:
            print(report.markdown(loaded))
            return 0
        codes = [
            write(path, loaded)
            for path, write in ((options.readme, _write_readme), (options.targets, _write_targets))
            if path is not None
        ]
        return max(codes)
    if options.targets is not None:
        parser.error("--targets goes with report")
    if options.readme is not None:
        parser.error("--readme goes with report")
    if options.skip and chosen != ["all"]:
        parser.error("--skip goes with all")
    if options.part != (1, 1) and options.within is None:
        parser.error("--part goes with --within")
    if (chosen == ["all"] or len(chosen) > 1) and options.out is not None and options.out.suffix == ".json":
        parser.error("--out must be a folder with several suites")
    names = chosen
    if chosen == ["all"]:
        names = [n for n in SUITES if n not in options.skip and not (options.quick and n == "verify")]
    refused: dict[str, list[str]] = {}
    for name in names:
        if problem := SUITES[name].problem_with(options.graph or ()):
            refused.setdefault(problem, []).append(name)
    for problem, fixed in refused.items():
        if chosen != ["all"]:
            given = ", ".join(options.graph)
            parser.error(f"--graph does not go with {', '.join(fixed)}: {problem} (got {given})")
        print(f"left out, {problem}: {', '.join(fixed)}")
        names = [n for n in names if n not in fixed]
    # Before anything is measured: an hour's results must not be lost to a folder that cannot be written.
    for name in [] if options.no_save else names:
        target = record_file(name, options.out, options.graph, options.quick)
        problem = ""
        if target is not None:
            problem = records.writing_problem(target, options.quick) or _joining_problem(name, target)
        if problem and not (name == "verify" and options.quick):
            parser.error(f"--out: {problem}")
    from gnnsample_lab.device import runtime

    from .compiling import compile_ahead
    from .session import Session

    session = Session(options.quick, options.graph, lambda line: print(line, flush=True))
    if runtime.cuda_available() and any(SUITES[n].needs_gpu and n != "verify" for n in names):
        try:
            session.say(f"compiled {compile_ahead()} modules")
        except Exception as error:  # compiled when first used instead, one by one, and any fault shows there
            session.say(f"compiling ahead failed: {type(error).__name__}: {error}")
    good = []
    for name in names:
        left = math.inf if options.within is None else options.within - (time.perf_counter() - session.began)
        if options.within is not None and seconds[name] > left:
            print(
                f"\n== {name}: left for another time, {seconds[name]:.0f} s of {max(left, 0):.0f} s",
                flush=True,
            )
            continue
        good.append(_run_and_report(name, options, session))
    if len(names) > 1:
        print(f"\n{sum(good)} of {len(good)} suites succeeded or were skipped")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
