"""``gnnsample-lab bench``: the list of suites, and how one is run, recorded and printed."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gnnsample_lab.graph import catalogue

from . import environment, papers, report, targets
from .errors import Unavailable


class _Suite(NamedTuple):
    module: str
    function: str
    about: str
    needs_gpu: bool = True


# In the order of `bench all`: what matters most first, what takes most memory last.
_SUITES: dict[str, _Suite] = {
    "sampling-floor": _Suite("floors.sampling_floor", "run", "every strategy's ratio to the replay floor"),
    "whole-process": _Suite(
        "suites.pgsampler.whole", "whole_process", "wall time of a mini-batch, alone and 32 in one call"
    ),
    "pgsampler-table1": _Suite(
        "suites.pgsampler.kernels", "table1", "per hop: workload, preprocessing, kernel time, utilisation"
    ),
    "pgsampler-fig8": _Suite(
        "suites.pgsampler.kernels", "figure8", "kernel speed-up of the persistent queue over block-bsp"
    ),
    "pgsampler-fig9": _Suite(
        "suites.pgsampler.whole", "figure9", "whole-process speed-up over block-bsp with DGL's ID map"
    ),
    "pgsampler-fig10": _Suite(
        "suites.pgsampler.kernels", "figure10", "fusion without balancing against the persistent queue"
    ),
    "pgsampler-table3": _Suite(
        "suites.pgsampler.kernels", "table3", "against TurboGNN's execution, both over block-bsp"
    ),
    "traces": _Suite(
        "suites.pgsampler.recordings", "traces", "records measured traces of every strategy (.npz)"
    ),
    "cpu": _Suite("suites.host", "cpu", "sampled edges per second on two CPU cores; needs no GPU", False),
    "explorers": _Suite(
        "suites.host", "explorers", "trait change to finished figure; needs the widgets, no GPU", False
    ),
    "fastgl-table8": _Suite("suites.fastgl.id_map", "table8", "ID map of the same picks by every rung"),
    "extraction": _Suite(
        "suites.gnnlab.extraction",
        "extraction",
        "bandwidth of missed rows by transfer, against a pinned copy",
    ),
    "aggregation": _Suite(
        "suites.fastgl.aggregation",
        "aggregation",
        "every rung against its bound and the best cuSPARSE algorithm",
    ),
    "fastgl-table3": _Suite(
        "suites.fastgl.aggregation", "table3", "bandwidth of each memory level, measured"
    ),
    "fastgl-table2": _Suite(
        "suites.fastgl.aggregation", "table2", "cache hits and GFLOP/s of the forward aggregation"
    ),
    "fastgl-fig12": _Suite("suites.fastgl.aggregation", "figure12", "roofline of the aggregation kernels"),
    "fastgl-table4": _Suite(
        "suites.fastgl.memory_io", "table4", "match degrees of an epoch's mini-batches; needs no GPU", False
    ),
    "fastgl-table7": _Suite(
        "suites.fastgl.memory_io", "table7", "memory IO with random walks: all rows, Match, reorder"
    ),
    "fastgl-fig10": _Suite(
        "suites.fastgl.memory_io",
        "figure10",
        "memory IO against the cache ratio, Match with and without reorder",
    ),
    "fastgl-fig1": _Suite(
        "suites.fastgl.training", "figure1", "where an epoch's time goes in DGL's and PyG's configuration"
    ),
    "fastgl-fig3": _Suite(
        "suites.fastgl.training", "figure3", "where it goes as FastGL's techniques are added"
    ),
    "fastgl-fig9": _Suite(
        "suites.fastgl.training", "figure9", "epoch time of three models by system, one GPU"
    ),
    "fastgl-fig11": _Suite(
        "suites.fastgl.training", "figure11", "compute time by aggregation kernel, preprocessing included"
    ),
    "fastgl-fig13": _Suite("suites.fastgl.training", "figure13", "time to sample an epoch by system"),
    "fastgl-fig14": _Suite(
        "suites.fastgl.training_scale", "figure14", "over batch size, feature dimension, fanouts and depth"
    ),
    "fastgl-fig15": _Suite("suites.fastgl.training", "figure15", "ablation: the gain of each technique"),
    "fastgl-table1": _Suite(
        "suites.fastgl.training_scale", "table1", "device memory left while DGL's configuration trains"
    ),
    "fastgl-table9": _Suite("suites.fastgl.training_scale", "table9", "device memory in use by system"),
    "fastgl-fig16": _Suite(
        "suites.fastgl.training_curves",
        "figure16",
        "loss and accuracy of the fast path over DGL's, three seeds; needs no GPU",
        False,
    ),
    "gnnlab-table2": _Suite(
        "suites.gnnlab.caching", "table2", "similarity of epochs' footprints; needs no GPU", False
    ),
    "gnnlab-fig4": _Suite(
        "suites.gnnlab.extraction", "figure4", "extract time and hit rate over cache ratio and dimension"
    ),
    "gnnlab-fig5": _Suite(
        "suites.gnnlab.caching",
        "figure5",
        "bytes moved: degree policy against the optimal; needs no GPU",
        False,
    ),
    "gnnlab-fig10": _Suite(
        "suites.gnnlab.caching", "figure10", "hit rates: policies x graphs x samplers; needs no GPU", False
    ),
    "gnnlab-fig11": _Suite(
        "suites.gnnlab.caching",
        "figure11",
        "hit rates over K and ratio, bytes over dimension; needs no GPU",
        False,
    ),
    "gnnlab-fig12": _Suite(
        "suites.gnnlab.extraction", "figure12", "extract time of an epoch by caching policy"
    ),
    "nextdoor-table3": _Suite(
        "suites.nextdoor.tables", "table3", "NextDoor's graphs beside the paper's; needs no GPU", False
    ),
    "nextdoor-fig7": _Suite(
        "suites.nextdoor.tables",
        "figure7",
        "eleven applications: over SP, TP and the CPU walker, one core and all",
    ),
    "nextdoor-fig6": _Suite(
        "suites.nextdoor.tables", "figure6", "share of the scheduling index in the time to sample"
    ),
    "nextdoor-fig9": _Suite(
        "suites.nextdoor.tables", "figure9", "over the frontier and the message-passing formulation"
    ),
    "nextdoor-table2": _Suite(
        "suites.nextdoor.tables", "table2", "each transit kernel's cost by draws per transit"
    ),
    "nextdoor-floor": _Suite(
        "floors.nextdoor_floor",
        "walks",
        "walks over the floor of their reads; next in Python over the same in CUDA",
    ),
    "nextdoor-fig8": _Suite(
        "suites.nextdoor.profile", "figure8", "L2 read transactions relative to sample-parallel"
    ),
    "nextdoor-table4": _Suite(
        "suites.nextdoor.profile", "table4", "store efficiency and multiprocessor activity"
    ),
    "nextdoor-section84": _Suite(
        "suites.nextdoor.memory", "section84", "samples per second with a fraction of the graph on the GPU"
    ),
    "nextdoor-table1": _Suite(
        "suites.nextdoor.training", "table1", "share of sampling in training, six methods"
    ),
    "nextdoor-table5": _Suite("suites.nextdoor.training", "table5", "end to end with CPU samplers over ours"),
    "fusing": _Suite(
        "suites.pgsampler.whole",
        "fusing",
        "several mini-batches in a launch against one by one, and what is chosen",
    ),
    "papers100m-rmat": _Suite(
        "suites.pgsampler.whole", "papers100m", "111 M nodes, 1.6 G edges: scratch memory and wall time"
    ),
    "verify": _Suite(
        "suites.pgsampler.recordings",
        "hashes",
        "every configuration and strategy against the CPU twin; records hashes",
    ),
}
_FILES = {"verify": "sample_hashes.json"}
_TRACES = {False: "traces", True: "traces-quick"}
_SLOW = ("verify",)
"""Left out of ``all --quick``."""


def list_suites() -> dict[str, str]:
    """Every suite with one line on what it measures."""
    return {name: suite.about for name, suite in _SUITES.items()} | {
        "all": "all of the above, one after the other"
    }


def _function(name: str) -> Callable[..., dict[str, Any]]:
    import importlib

    suite = _SUITES[name]
    return getattr(importlib.import_module(f".{suite.module}", __package__), suite.function)


def run(
    name: str,
    *,
    quick: bool = False,
    graphs: Sequence[str] | None = None,
    folder: Path | str | None = None,
    session: Any = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run one suite: verify, time, compute ratios and targets. Writes nothing but the traces of ``traces``.

    Args:
        name: a name of :func:`list_suites`, not ``"all"``.
        quick: fewer configurations, fewer knobs.
        graphs: names for ``lab.load`` in place of the suite's own.
        folder: where ``traces`` puts its files; default ``data/measured/traces`` of the checkout, or
            ``traces-quick`` beside it.
        session: shares graphs and recorded samples with suites that ran before.
        say: takes lines of progress.

    Returns:
        The record: ``suite``, ``environment``, ``settings``, ``verification``, ``graphs``, ``rows``, ``paper``,
        ``targets``, ``seconds``.

    Raises:
        LookupError: no such suite.
        Unavailable (a RuntimeError): the suite needs a GPU or a package that is not there.
        VerificationError: a strategy did not return the CPU twin's sample.
    """
    if name not in _SUITES:
        raise LookupError(f"suite must be one of {', '.join(_SUITES)} (got {name!r})")
    from .session import Session

    session = session or Session(quick, graphs, say)
    if _SUITES[name].needs_gpu:
        session.require_gpu(name)
    began = time.perf_counter()
    arguments = (trace_folder(folder, session.quick),) if name == "traces" else ()
    body = _function(name)(session, *arguments)
    record = {
        "format": environment.FORMAT, "suite": name, "about": _SUITES[name].about, "origin": "measured",
        "environment": environment.environment(), "seconds": time.perf_counter() - began, **body,
    }  # fmt: skip
    record["settings"] = {"quick": session.quick, **record["settings"]}
    record["paper"] = papers.for_suite(name)
    record = environment.plain(record)
    record["targets"] = [target._asdict() for target in targets.of(record)]
    return record


def trace_folder(folder: Path | str | None, quick: bool = False) -> Path:
    """Where traces go: never over those of a full run when the run is quick.

    Raises:
        ValueError: no folder was given and there is no checkout.
    """
    if folder is not None:
        return Path(folder)
    measured = environment.measured_folder()
    if measured is None:
        raise ValueError("traces need a folder: this is no checkout, pass --out FOLDER")
    return measured / _TRACES[quick]


def compile_ahead() -> int:
    """Compile the kernels that most suites use, in parallel, into CuPy's disk cache; returns how many."""
    from . import verify

    jobs = []
    for rule in ("0", "1"):
        for trace, buckets in (("0", ("8", "16", "32")), ("1", ("8", "16"))):
            drawn = {"ID_T": "int", "RULE": rule, "TRACE": trace}
            base = {**drawn, "TABLE_KIND": "0"}
            for source in ("hops/hop.cu", "hops/grid_barrier.cu", "queue/tile.cu"):
                jobs += [(f"sampling/neighbors/{source}", {**base, "KMAX": kmax}) for kmax in buckets]
            jobs += [
                ("sampling/neighbors/queue/block.cu", base),
                ("sampling/neighbors/hops/per_hop.cu", drawn),
            ]
    jobs.append(("minibatch/gpu/finish.cu", {"ID_T": "int", "TABLE_KIND": "0"}))
    jobs.append(("minibatch/id_map/insert_count_compact.cu", {"ID_T": "int"}))
    names = {**verify._ANY_KERNEL, "bench/floors/floor.cu": "replay"}
    jobs += [("bench/floors/floor.cu", {"ID_T": "int", "UNROLL": unroll}) for unroll in ("1", "2", "4", "8")]
    work = [(path, tuple(sorted(macros.items())), names[path]) for path, macros in jobs]
    workers = max(1, min(16, os.cpu_count() or 1, len(work)))
    with verify.worker_pool(workers) as pool:
        list(pool.map(verify._compile, work))
    return len(work)


def record_file(
    name: str, out: Path | None, graphs: Sequence[str] | None = None, quick: bool = False
) -> Path | None:
    """Where the record of a suite goes; a quick run's record has a name of its own.

    Args:
        name: a name of :func:`list_suites`.
        out: a ``.json`` file, a folder, or None for ``data/measured`` of the checkout.
        graphs: what was measured in place of the suite's own graphs; part of the name.
        quick: the run is a quick one.

    Returns:
        The file, or None where there is neither ``out`` nor a checkout.
    """
    folder = out if out is not None else environment.measured_folder()
    if folder is None or folder.suffix == ".json":
        return folder
    suffix = "".join("-" + re.sub(r"[^\w.-]+", "_", graph) for graph in graphs or ())
    return folder / _FILES.get(name, f"{name}{suffix}{'-quick' if quick else ''}.json")


def writing_problem(target: Path, quick: bool) -> str:
    """Why a record cannot be written to ``target``; empty when it can. Changes nothing on the disk."""
    if target.is_dir():
        return f"{target} is a folder"
    above = next(folder for folder in target.absolute().parents if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        return f"{target} cannot be written: {error.strerror or error}"
    if quick and target.exists():
        try:
            settings = json.loads(target.read_text(encoding="utf-8"))["settings"]
            full = not settings.get("quick", False)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return f"{target} exists and is no record of a quick run"
        if full:
            return f"{target} holds the record of a full run, which a quick one must not replace"
    return ""


def _save(record: dict[str, Any], out: Path | None, graphs: Sequence[str] | None) -> None:
    name = record["suite"]
    if name == "verify" and not record["settings"]["complete"]:
        print("not written: only a complete run of verify records its hashes")
        return
    target = record_file(name, out, graphs, record["settings"].get("quick", False))
    if target is None:
        print("not written: this is no checkout; pass --out FILE")
        return
    print(f"written: {environment.write_json(record, target)}")


def _run_and_report(name: str, options: argparse.Namespace, session: Any) -> bool:
    print(f"\n== {name}: {_SUITES[name].about}", flush=True)
    out: Path | None = options.out
    traces = out / _TRACES[options.quick] if out is not None and out.suffix != ".json" else None
    try:
        record = run(name, session=session, folder=traces)
    except Unavailable as error:
        skipped = options.suite == "all"
        print(f"{name} {'SKIPPED' if skipped else 'FAILED'}: {error}", flush=True)
        return skipped
    except BrokenPipeError:  # nobody reads on: this is the end of the whole command
        raise
    except Exception as error:
        # The suites after this one may still succeed; what failed is said, and the exit code tells.
        if not isinstance(error, (RuntimeError, OSError, ValueError, LookupError)):
            traceback.print_exc()
        print(f"{name} FAILED: {type(error).__name__}: {error}", flush=True)
        return False
    print(report.text(record))
    if not options.no_save:
        _save(record, out, options.graph)
    print(f"{name}: {record['seconds']:.1f} s", flush=True)
    return True


def _graph(text: str) -> str:
    """A name that ``lab.load`` knows, with or without a scale."""
    try:
        name, scale = environment.scaled(text)
        if not name.startswith("snap:"):
            catalogue.entry(name)
    except (LookupError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < scale < math.inf:
        raise argparse.ArgumentTypeError(f"the scale must be positive (got {text!r})")
    return text


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:18} {about}" for name, about in list_suites().items())
    parser = argparse.ArgumentParser(
        prog="gnnsample-lab bench", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Verify first, then time, then ratios; JSON and a table, the paper's value beside ours.",
        epilog=f"suites:\n{listed}\n  {'report':18} tables of what is recorded, and which targets are met",
    )  # fmt: skip
    parser.add_argument(
        "suite", nargs="?", choices=[*list_suites(), "report"], metavar="SUITE", help="one of those below"
    )
    parser.add_argument(
        "--graph",
        action="append",
        type=_graph,
        metavar="NAME",
        help="a graph (NAME or NAME@SCALE) in place of the suite's own; repeatable",
    )
    parser.add_argument(
        "--out", type=Path, help="a .json file, or a folder (default: data/measured of the checkout)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer configurations, fewer knobs")
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=list(_SUITES),
        metavar="SUITE",
        help="with all: leave out; repeatable",
    )
    parser.add_argument("--no-save", action="store_true", help="print only")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``gnnsample-lab bench``; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.suite is None:
        parser.print_help()
        return 0
    if options.suite == "report":
        if options.out is not None and not options.out.is_dir():
            parser.error(f"--out must be a folder of records with report (got {options.out})")
        print(report.markdown(report.load(options.out)))
        return 0
    if options.suite == "all" and options.out is not None and options.out.suffix == ".json":
        parser.error("--out must be a folder with all")
    names = [options.suite]
    if options.suite == "all":
        names = [n for n in _SUITES if n not in options.skip and not (options.quick and n in _SLOW)]
    # Before anything is measured: an hour's results must not be lost to a folder that cannot be written.
    for name in [] if options.no_save else names:
        target = record_file(name, options.out, options.graph, options.quick)
        problem = writing_problem(target, options.quick) if target is not None else ""
        if problem and not (name == "verify" and options.quick):
            parser.error(f"--out: {problem}")
    from gnnsample_lab.device import runtime

    from .session import Session

    session = Session(options.quick, options.graph, lambda line: print(line, flush=True))
    if runtime.cuda_available() and any(_SUITES[n].needs_gpu and n != "verify" for n in names):
        try:
            session.say(f"compiled {compile_ahead()} modules")
        except Exception as error:  # compiled when first used instead, one by one, and any fault shows there
            session.say(f"compiling ahead failed: {type(error).__name__}: {error}")
    good = [_run_and_report(name, options, session) for name in names]
    if len(names) > 1:
        print(f"\n{sum(good)} of {len(names)} suites succeeded or were skipped")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
