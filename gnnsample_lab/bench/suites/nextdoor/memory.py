"""NextDoor's section 8.4: samples per second of graphs that exceed what the GPU may hold of them.

As published (``index="published"``: each step copies every sub-graph that holds a transit) and beside it ours
(``"auto"``: what lies there stays, and what is hardly read is read across the bus).
"""

from __future__ import annotations

import functools
import time
from typing import Any

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.sampling.engine.results.result import AppResult
from gnnsample_lab.sampling.engine.run import run_app

from . import cases as settings
from . import runs

FRACTIONS = (0.5, 0.25, 0.1)
"""How much of the neighbour lists may lie on the GPU."""
CASES = ("k-hop", "Layer", "DeepWalk", "PPR", "node2vec")
_SAMPLES = {"Layer": 1024}
_MOST = 1 << 20
_MOST_S = 6.0
"""Time for the passes of one measurement."""
INDEXES = ("published", "auto")
PUBLISHED_FRACTION = 0.25
"""As published, about as much is copied whatever lies on the GPU: one fraction tells."""
_MOST_COPIED = 1.2e12
"""Most bytes that a call may copy, half a minute over PCIe 5: a walk as published copies all lists at every step."""


def streamed_bytes(schedule: list[dict[str, Any]]) -> int:
    """Bytes of neighbour lists that were copied to the GPU in all steps; reads across the bus are not among them."""
    return sum(int(step.get("copied_bytes", 0)) for step in schedule)


def list_bytes(graph: Any, uses: frozenset[str]) -> int:
    """Bytes of what an application reads of all edges: neighbours, and weights or their prefix sums."""
    weighed = graph.edge_weight is not None
    weight = 4 if weighed and uses & {"lab_edge_weight", "lab_neighbor_weight"} else 0
    prefix = any(name.endswith(("_prefix", "_search")) and name != "lab_table_search" for name in uses)
    return int(graph.num_edges) * (graph.indices.dtype.itemsize + weight + (8 if weighed and prefix else 0))


def _timed(
    study: runs.Study, graph: Any, graph_bytes: int | None, passes: int, index: str
) -> tuple[dict[str, float], AppResult]:
    """The spread of wall seconds of ``run_app``, transfers of the graph's parts included, and a result.

    A walk streams its graph at every step, which takes seconds: fewer passes are then timed, at least one after a warm
    one.
    """
    times, roots, start = list[float](), study.roots, time.perf_counter()
    while len(times) <= passes and (len(times) < 2 or time.perf_counter() - start < _MOST_S):
        timing.synchronize()
        began = time.perf_counter()
        found = run_app(
            graph, study.app, roots, "transit", common.device(), 0, graph_bytes=graph_bytes, index=index
        )
        timing.synchronize()
        times.append(time.perf_counter() - began)
    return timing.spread(times[1:], "s"), found


def _fractions(study: runs.Study, index: str, steps: int, whole: int) -> tuple[tuple[float, ...], str]:
    """The fractions below 1 to measure, and why there are none."""
    if index != "published":
        return (FRACTIONS[1:2] if study.session.quick else FRACTIONS), ""
    if study.app.is_collective:
        return (), "collective steps read lists across the bus, where NextDoor copies sub-graphs"
    if steps * whole > _MOST_COPIED:
        return (), f"{steps} steps would copy {steps * whole / 1e12:.1f} TB"
    return (PUBLISHED_FRACTION,), ""


def section84(session: Session) -> dict[str, Any]:
    """Throughput with a fraction of the graph on the GPU, against all of it there and against the CPU walker."""
    wanted = settings.names(session, ("orkut-like", "friendster-like@0.25"), ("ppi-like",))
    rows, notes, equal = list[dict[str, Any]](), list[str](), 0
    for name in wanted:
        for case in (c for c in CASES if not session.quick or c in settings.QUICK_CASES):
            found = session.piece((name, case), functools.partial(_of_case, session, name, case))
            rows += found["rows"]
            notes += found["notes"]
            equal += found["equal"]
    return runs.record(
        session, wanted, rows, {"samples_equal_to_cpu_walker": equal, "results_equal_to_in_memory": len(rows)},
        notes=notes, index="published: NextDoor's, each step copies all sub-graphs that hold a transit; auto: ours",
        seconds="wall time of run_app: preparation of the application and all transfers of the graph's parts included; "
        "where all of the graph fits it is on the GPU before",
        cpu_samples_per_s="CPU walker on all cores, in host memory",
    )  # fmt: skip


def _of_case(session: Session, name: str, case: str) -> dict[str, Any]:
    """``rows`` of an application on a graph, each of a result that is the same as in memory; how many samples were
    ``equal`` to the CPU walker's; ``notes``."""
    rows, notes = list[dict[str, Any]](), list[str]()
    host = settings.graph(session, name, "cpu")
    most = min(_SAMPLES.get(case, _MOST), host.num_nodes)
    study = runs.Study(session, name, case, None, most)
    # Verified against the CPU walker, in memory.
    before = {index: study.measure("transit", index)["ms"] for index in INDEXES}
    reference = study.ready("transit")()
    cpu = study.cpu_walker(runs.all_threads())
    whole = list_bytes(host, study.prepared[1].uses)
    asked = []
    for index in INDEXES:
        fractions, why = _fractions(study, index, reference.num_steps, whole)
        if why:
            notes.append(f"{case} on {name}, index {index}, is not streamed: {why}.")
        asked += [(index, fraction) for fraction in (1.0, *fractions)]
    for index, fraction in asked:
        limit = None if fraction == 1 else max(int(whole * fraction), 16 * host.max_in_degree + 64)
        passes = 1 if session.quick or (limit and index == "published") else 5
        wall, found = _timed(study, study.graph if limit is None else host, limit, passes, index)
        seconds = wall["s"]
        if not reference == found:
            raise VerificationError(
                f"{case} on {name}, {fraction:g} of the graph, index {index}: other samples; nothing counts"
            )
        moved = streamed_bytes(found.schedule) if limit else 0
        rows.append({
            **study.row(), "index": index, "fraction": fraction, "graph_bytes": limit, "list_bytes": whole,
            "seconds": seconds, "spread": {"seconds": timing.around(wall)},
            "samples_per_s": study.num_samples / seconds, "sampling_ms": before[index],
            "streamed_mb": moved / 1e6, "streamed_gbps": moved / seconds / 1e9,
            "cpu_samples_per_s": cpu["samples_per_s"],
            "over_cpu": study.num_samples / seconds / cpu["samples_per_s"],
        })  # fmt: skip
        in_memory = next(
            r["samples_per_s"] for r in rows if (r["index"], r["fraction"]) == (index, 1.0)
        )  # fmt: skip
        rows[-1]["of_in_memory"] = rows[-1]["samples_per_s"] / in_memory
        session.say(
            f"{name}, {case}, {fraction:g} of it, index {index}: {rows[-1]['samples_per_s']:,.0f} samples/s"
        )
    del reference, found
    study.free()
    return {"rows": rows, "notes": notes, "equal": study.checked}
