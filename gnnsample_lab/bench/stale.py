"""Which records were made by other source than that of this tree: what ``gnnsample-lab bench --stale`` lists."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnsample_lab.resources import checkout_root

from . import source
from .record import card_of, commit_of, output_of, states, statistics_hash
from .suites import SUITES

UNKNOWN = "the record holds no hash of its source"
NEVER = "never recorded"
UNTIMED_S = 60.0
"""Seconds that a suite is taken to need of which there is no record."""
FULL_OVER_QUICK = 5.0
"""A full run is taken to need so many times the seconds of a quick one, unless its suite says how many seconds: of
twelve most needed about as much."""
SAME_KERNELS = "host code alone, no CUDA file differs"
QUICK = "of this source, but a quick run: fewer settings than the full one"


@dataclass(frozen=True)
class Stale:
    """A suite to run again, or for the first time.

    Attributes:
        suite: its name.
        record: name of the file without ending; empty where there is none.
        commit: where it was recorded.
        why: what differs.
        seconds: how long the suite will take by the record that there is, or as it declares where there is none of a
            full run; None where nobody knows.
        card: the GPU that it was recorded on; empty without a record.
        need: 0 without a record, 1 where it is of a quick run, 2 where it does not say what it was made of, 3 where the
            source has changed since, 4 where git says that no kernel has: the lower, the less is known.
    """

    suite: str
    record: str
    commit: str
    why: str
    seconds: float | None = None
    need: int = 3
    card: str = ""


def reason(record: Mapping[str, Any], today: Mapping[str, Any]) -> str:
    """Why a record is stale beside the source of today's tree, as ``source.of_function`` has it; empty if it is not."""
    known = states(record)
    if any(not digest for _, digest in known):
        return UNKNOWN
    refitted = [
        f"the statistics of {name}"
        for name, facts in record.get("graphs", {}).items()
        if facts.get("statistics") not in (None, statistics_hash(name))  # older records have none
    ]
    changed: list[str] = []
    if {digest for _, digest in known} != {today["hash"]}:
        old, new = record.get("source", {}).get("layers", {}), today["layers"]
        changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        changed = changed or ["the source of some of its graphs"]
    return "changed since: " + ", ".join(changed + refitted) if changed or refitted else ""


@functools.cache
def _kernels_since(commit: str) -> frozenset[Path] | None:
    """CUDA sources that are not as they were at a commit, comments aside; None where git does not know it."""
    root = checkout_root()
    if root is None or output_of("git", "cat-file", "-t", commit, folder=root) != "commit":
        return None
    changed = set()
    for name in output_of("git", "diff", "--name-only", commit, "--", "*.cu", "*.cuh", folder=root).split():
        path, before = root / name, output_of("git", "show", f"{commit}:{name}", folder=root)
        if not path.is_file() or source.stripped_cuda(before) != source.stripped_cuda(
            path.read_text("utf-8")
        ):
            changed.add(path)
    return frozenset(changed)


def kernels_changed(record: Mapping[str, Any], files: Iterable[Path]) -> list[str] | None:
    """Names of the suite's CUDA sources that differ from those of the record's commits; None where git does not know,
    or where the record's files were no longer those of its commit.

    Args:
        files: that the suite reaches in this tree.
    """
    of_suite = {path.resolve() for path in files if path.suffix in (".cu", ".cuh")}
    found: set[Path] = set()
    for commit, _ in states(record):
        changed = None if " " in commit else _kernels_since(commit)
        if changed is None:
            return None
        found |= {path.resolve() for path in changed} & of_suite
    return sorted(path.name for path in found)


def stale(records: Mapping[str, Mapping[str, Any]]) -> list[Stale]:
    """Suites to record: those whose records other source has made, quick ones, and those without a record.

    In the order of ``bench all``.
    """
    found = []
    for name, suite in SUITES.items():
        mine = {file: record for file, record in records.items() if record["suite"] == name}
        if not mine:
            found.append(Stale(name, "", "", NEVER, suite.seconds or None, need=0))
            continue
        today = source.of_function(suite.path)
        for file, record in mine.items():
            is_quick = bool(record["settings"].get("quick"))
            why = reason(record, today) or (QUICK if is_quick else "")
            if why:
                took = record.get("seconds")
                if is_quick and suite.seconds:
                    took = suite.seconds
                elif took is not None and is_quick:
                    took *= FULL_OVER_QUICK
                need = 1 if is_quick else 2 if why == UNKNOWN else 3
                kernels = kernels_changed(record, source.files_of(suite.path))
                if kernels is not None:
                    why += f"; kernels that differ: {', '.join(kernels)}" if kernels else f"; {SAME_KERNELS}"
                    need = 4 if need == 3 and not kernels else need
                found.append(
                    Stale(name, file, commit_of(record["environment"]), why, took, need, card_of(record))
                )
    return found


def by_need(found: Iterable[Stale]) -> list[Stale]:
    """Those first whose results nobody knows; a suite of several records stays together, as its neediest wants."""
    rows = list(found)
    needs: dict[str, int] = {}
    for each in rows:
        needs[each.suite] = min(each.need, needs.get(each.suite, each.need))
    return sorted(rows, key=lambda each: needs[each.suite])


def expected(found: Iterable[Stale]) -> dict[str, float]:
    """Suite -> seconds that it will take: as the recorded runs did, all of its graphs together."""
    seconds: dict[str, float] = {}
    for each in found:
        took = UNTIMED_S if each.seconds is None else each.seconds
        seconds[each.suite] = seconds.get(each.suite, 0.0) + took
    return seconds


def share(seconds: Mapping[str, float], part: int, parts: int) -> list[str]:
    """The suites of ``part`` (from 1) where ``parts`` hosts or GPUs record side by side, in the order of ``seconds``.

    Suites of one folder share what they load and measure, and stay together; the longest folders are dealt out first,
    each to the part that has least.
    """
    folders: dict[str, list[str]] = {}
    for name in seconds:
        folders.setdefault(".".join(SUITES[name].path.split(".")[:2]), []).append(name)
    loads, mine = [0.0] * parts, set[str]()
    for names in sorted(folders.values(), key=lambda names: -sum(seconds[n] for n in names)):
        least = loads.index(min(loads))
        loads[least] += sum(seconds[n] for n in names)
        if least == part - 1:
            mine.update(names)
    return [name for name in seconds if name in mine]


def listed(found: Iterable[Stale]) -> str:
    """The list for a terminal, and the command that runs these suites."""
    rows = list(found)
    if not rows:
        return "Every record was made in full by the source of this tree."
    lines = [
        f"{each.suite:20} "
        + (
            f"{each.record}.json, recorded at {each.commit} on {each.card}: {each.why}"
            if each.record
            else each.why
        )
        for each in rows
    ]
    names = " ".join(dict.fromkeys(each.suite for each in rows))
    same = sum(each.need == 4 for each in rows)
    if same:
        lines += [
            "",
            f"Host code alone has changed since {same} of them: no CUDA file of theirs differs from today's.",
        ]
    return "\n".join([*lines, "", f"{len(rows)} to record: gnnsample-lab bench {names}"])
