"""One record of graphs that are profiled in several runs: each is saved when it is done, and joins those before it."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.record import commit_of
from gnnsample_lab.bench.suite import Record

MEASURED = "measured by ncu"
"""Origin of a row that the profiler gave, as it stands in the record."""
_OF_THE_RUN = ("cpu_threads", "graph_seconds", "l2")
"""Settings that may differ between graphs of one record: counters do not depend on them, and older records do not say
that the profiler empties the L2."""
_STATE = ("date", "commit", "modified", "cpu", "cpu_cores")


def told(record: Record, graphs: tuple[str, ...], seconds: float) -> dict[str, Any]:
    """Of each graph: where it was measured, by which source, and how long it took.

    Args:
        record: with ``environment`` and ``source`` as the runner writes them.
        graphs: measured in one run.
        seconds: of that run.
    """
    at = record["environment"]
    where = {key: at.get(key) for key in _STATE}
    where["gpu"] = at["gpu"]["name"] if at.get("gpu") else None
    where["source"] = record.get("source", {}).get("hash", "")
    return {name: {"environment": where, "seconds": seconds / max(1, len(graphs))} for name in graphs}


def _facts(record: Record) -> dict[str, Any]:
    """The same of a record that one run has made; of one that several have joined, as it stands there."""
    found: dict[str, Any] = record.get("compared") or told(record, tuple(record["graphs"]), record["seconds"])
    return found


def _alike(record: Record) -> tuple[Any, dict[str, Any]]:
    """What graphs of one record have in common: the card, and settings."""
    gpu = record["environment"].get("gpu")
    settings = {key: value for key, value in record["settings"].items() if key not in _OF_THE_RUN}
    return (gpu["name"] if gpu else None), settings


def merged(old: Record, new: Record) -> Record:
    """``new`` with the graphs of ``old`` that it has not measured, where card and settings are the same.

    Ratios of two cards, or of walks of other lengths, have no place in one table: what differs is left out, and a note
    names it. Every graph keeps the environment in which it was measured.
    """
    facts = _facts(new)
    again = set(facts)
    missing = [name for name in old["graphs"] if name not in again]
    # Earlier notes speak of graphs that the new record may have.
    notes = list(new.get("notes", []))
    if missing and _alike(old) != _alike(new):
        names = ", ".join(missing)
        notes.append(f"Measured earlier on another card or with other settings, and left out: {names}.")
        missing = []
    rows = [row for row in old["rows"] if row["graph"] in missing]
    facts = {name: _facts(old)[name] for name in missing} | facts
    every = [*rows, *new["rows"]]
    return {
        **new, "rows": every, "compared": facts, "notes": notes,
        "graphs": {name: old["graphs"][name] for name in missing} | new["graphs"],
        "seconds": sum(each["seconds"] for each in facts.values()),
        "verification": {"profiled_runs": profiled(every)},
    }  # fmt: skip


def shown(record: Record) -> list[dict[str, Any]]:
    """The rows, each with the commit that its graph was measured at as ``state``."""
    facts = _facts(record)
    return [row | {"state": commit_of(facts[row["graph"]]["environment"])} for row in record["rows"]]


def profiled(rows: list[dict[str, Any]]) -> int:
    """Rows that the profiler gave."""
    return sum(row["origin"] == MEASURED for row in rows)
