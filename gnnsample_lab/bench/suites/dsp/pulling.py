"""Figure 11 and section 4.1: tasks pushed to the data against data pulled to the task, with barriers and without.

Three parts. *biased*: the draw of figure 11, for which lists travel with their weights. *stages*: csp with barriers
between its stages and without. *fanout*: one hop with replacement, where pulling moves lists of the mean degree and
pushing moves as many picks as the fanout: they cross where these are equal.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session

from . import crew, running
from .volume import verify

BATCHES = 8
CROSSING = (10, 25, 50, 100, 200)
QUICK_CROSSING = (10, 200)
SEEDS_OF_A_HOP = 8192
BIASED = ("pull", "dsp", "direct", "csp-fixed")
STAGES = ("dsp", "csp-async", "csp-fixed", "direct", "pull")
"""Systems of the two first parts; a quick run leaves the last ones out."""


def pulling(session: Session) -> dict[str, Any]:
    """The suite's function."""
    counted = verify(session)
    names = crew.names(session, "products-like@0.1" if session.quick else "products-like")
    rows: list[dict[str, Any]] = []
    for name in names:
        for world in crew.several(session):
            for point in _points(session.quick, is_last=world == crew.most_ranks()):
                rows += _rows_of(session, name, world, *point)
    checked = sum("error" not in row for row in rows)
    return {
        "settings": {
            "device": crew.device(), "ranks": crew.most_ranks(), "batches": BATCHES,
            "partition": crew.divisions(session, names, crew.most_ranks()),
            "us": "wall time of a mini-batch, one after another, all ranks at once; median of the slowest rank",
            "work": crew.WORK,
            "mb": "bytes of all ranks for a mini-batch of each, as engines count",
        },
        "verification": {**counted, "samples_equal_to_whole_graph": checked},
        "graphs": common.facts(session, names), "rows": rows, "crossings": crossings(rows),
        "notes": crew.notes(),
    }  # fmt: skip


def _rows_of(
    session: Session, name: str, world: int, part: str, systems: tuple[str, ...], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """A row for each system, all on the same mini-batches."""
    found, weighted = common.graph(session, name), options["weighted"]
    size = crew.batch_size(found, options.pop("seeds"))
    # Seeds are any vertices where there is one hop: from one's own vertices it would be local.
    owner = None if part == "fanout" else crew.cut_of(session, name, world).owner
    task = {
        "seconds": crew.seconds(session), "folder": crew.parts(session, name, world, weighted=weighted),
        "seeds": crew.seeds_of(found, world, BATCHES, size, owner), **options,
    }  # fmt: skip
    task["expected"] = running.expected(found, task, common.device())
    rows = []
    for system in systems:
        row = {
            "graph": name, "part": part, "system": system, "ranks": world, "batch_size": size,
            "fanouts": list(options["fanouts"]), "fanout": options["fanouts"][0],
            "draws": "weighted" if weighted else "uniform",
        }  # fmt: skip
        times, problem = running.run(crew.ranks(session), task | {"system": system}, world)
        rows.append(row | (times or {"error": problem}))
        session.say(_line(rows[-1]))
    _against(rows)
    return rows


def _points(quick: bool, is_last: bool) -> list[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """Part, systems and options of each point; one hop on the most ranks alone: the bytes of either way grow alike with
    the remote share, and cross at the same fanout."""
    usual = {"fanouts": crew.FANOUTS, "replace": False, "seeds": crew.BATCH}
    found = [
        ("biased", BIASED[: 3 if quick else None], {**usual, "weighted": True}),
        ("stages", STAGES[: 2 if quick else None], {**usual, "weighted": False}),
    ]  # fmt: skip
    for fanout in () if not is_last else QUICK_CROSSING if quick else CROSSING:
        options = {"fanouts": (fanout,), "replace": True, "weighted": False, "seeds": SEEDS_OF_A_HOP}
        found.append(("fanout", ("pull", "dsp"), options))
    return found


def _against(rows: list[dict[str, Any]]) -> None:
    """Each row's time and bytes over those of csp at the same point."""
    base = next((row for row in rows if row["system"] == "dsp" and "us" in row), None)
    for row in rows:
        if base is not None and "us" in row:
            row["x_time"] = row["us"] / base["us"]
            row["x_bytes"] = row["mb"] / base["mb"] if base["mb"] else None
            row["less_percent"] = 100 * (1 - base["us"] / row["us"])


def crossings(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By graph, the fanout at which pulling and pushing move the same, and take as long: between measured fanouts."""
    found = []
    for name in dict.fromkeys(row["graph"] for row in rows):
        points = [
            r
            for r in rows
            if r["graph"] == name and r["part"] == "fanout" and r["system"] == "pull" and "us" in r
        ]
        if points:
            at = {
                key: crossing([(r["fanout"], r[key]) for r in points if r.get(key)])
                for key in ("x_bytes", "x_time")
            }
            found.append({"graph": name, "bytes": at["x_bytes"], "time": at["x_time"]})
    return found


def crossing(points: list[tuple[float, float]]) -> float | None:
    """Where a ratio that falls with the fanout passes 1, on logarithmic scales; None where it does not."""
    ordered = sorted(points)
    for (low, above), (high, below) in pairwise(ordered):
        if above >= 1 > below:
            share = math.log(above) / (math.log(above) - math.log(below))
            return float(math.exp(math.log(low) + share * (math.log(high) - math.log(low))))
    return None


def _line(row: dict[str, Any]) -> str:
    what = f"{row['graph']}, {row['ranks']} ranks, {row['part']}, {row['fanouts']}, {row['system']}"
    return f"{what}: {row['error']}" if "error" in row else f"{what}: {row['us']:.0f} us, {row['mb']:.2f} MB"
