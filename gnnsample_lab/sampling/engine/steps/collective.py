"""One step of collective sampling on the GPU: build combined neighbourhoods in waves, and call ``next`` over them.

``engine.parallelism`` decides how neighbourhoods are built; transit-parallel, a shared list is read once. The calls of
``next`` are always sample-parallel, since samples hardly ever share a whole neighbourhood (NextDoor, section 6.2).
Nothing is built for an application whose ``next`` does not read ``src_edges``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.device import runtime
from gnnsample_lab.sampling.engine.grouping import index

from . import unique
from .combine import Combiner, Wave, sharing_pays

if TYPE_CHECKING:
    from gnnsample_lab.sampling.engine.gpu import GpuEngine

READS_ENTRIES = frozenset({"lab_edge"})
READS_WEIGHTS = frozenset({"lab_edge_weight", "lab_edge_prefix", "lab_edge_search"})
READS_SIZES = READS_ENTRIES | READS_WEIGHTS | {"lab_edge_count"}
"""``v in src_edges`` needs no combined neighbourhood: the transits' own lists are sorted and can be searched."""
_THREADS = 256


def step(engine: GpuEngine, number: int) -> dict[str, Any]:
    """Run step ``number`` of a collective application, redraws of ``unique`` included.

    ``engine.transits`` (ids ``[S, t]``) holds the step's transits. The host waits for one number where a
    neighbourhood is built, and once more for all samples' sizes where the whole exceeds ``engine.scratch_bytes``.

    Returns:
        What was done, for ``r.schedule``: ``entries`` (of all neighbourhoods), ``waves``, ``combined`` (how they were
        built; None where there was nothing to build), ``index`` (how pairs were grouped, where they were).
    """
    operator, samples = engine.operator, engine.num_samples
    entries_read = operator.deferred or bool(operator.uses & READS_ENTRIES)
    weights_read = engine.prefix is not None and bool(operator.uses & READS_WEIGHTS)
    if not (entries_read or operator.uses & READS_SIZES):
        _call_next(engine, number, Wave(0, samples, 0, 0))
        return {"entries": 0, "waves": 1, "combined": None}
    combiner = Combiner(engine.graph, engine.prefix if weights_read else None, engine.transits, entries_read)
    if not combiner.entry_bytes:
        engine.plan.read_combined(combiner.begins)
        _call_next(engine, number, Wave(0, samples, 0, 0))
        engine.plan.forget_combined()
        return {"entries": 0, "waves": 1, "combined": None}
    waves, method, kind = combiner.waves(engine.scratch_bytes), "none", None
    for wave in waves:
        method, grouped = _choose(engine, combiner, wave)
        kind = kind if grouped is None else grouped.kind
        out, sums = combiner.build(wave, method, grouped)
        engine.plan.read_combined(combiner.begins, out, sums, row=wave.first_row, before=wave.before)
        _call_next(engine, number, wave)
    engine.plan.forget_combined()
    return {"index": kind, "entries": combiner.total, "waves": len(waves), "combined": method}


def _choose(engine: GpuEngine, combiner: Combiner, wave: Wave) -> tuple[str, Any]:
    """How to build the wave's neighbourhoods, and the index of its transits, or None if that needs no index."""
    pairs, kind = wave.rows * combiner.num_transits, engine.index
    way = engine.parallelism
    unshared = kind == "auto" and not sharing_pays(pairs, wave.entries, engine.streamed is not None)
    if way == "sample" or (way == "transit" and unshared):
        return "pairs", None
    transits = combiner.transits[wave.first_row : wave.first_row + wave.rows].reshape(-1)
    built = index.build(transits, engine.graph.num_nodes, kind, engine.scratch)
    return {"transit": "tiles", "transit-vanilla": "pairs"}.get(way, way), built


def _call_next(engine: GpuEngine, number: int, wave: Wave) -> None:
    shape = engine.shape[number]
    kernel = engine.kernel("steps/collective.cu", "collective_next", {})
    threads = wave.rows * -(-shape.size // 4)
    grid = max(1, min(-(-threads // _THREADS), runtime.num_sms() * 8))
    kernel((grid,), (_THREADS,), (engine.plan.argument(), np.int64(wave.first_row), np.int64(wave.rows)))
    if shape.unique:
        unique.redraw(engine, number, wave.first_row, wave.rows)
