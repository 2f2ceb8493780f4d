"""NextDoor's transit-parallel steps as published: ``index="published"`` (``published.cu``).

Pairs are grouped by transit in every step, transits go to the sub-warp, the block or the grid kernel by the number of
neighbours to sample (table 2), lists are cached wherever they fit, and neighbouring lanes write neighbouring slots.
Steps of a walk hand their transits on from index to index. Of a walk without end, the last samples (:attr:`Knobs.tail`)
go on in the kernel of :mod:`.fused`, without an index: to build one would take longer than these walks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.device import runtime
from gnnsample_lab.sampling.engine.grouping import classes
from gnnsample_lab.sampling.engine.grouping.classes import ClassIndex, ClassKnobs
from gnnsample_lab.sampling.engine.grouping.index import null_slots
from gnnsample_lab.sampling.engine.plan import CLEAR
from gnnsample_lab.sampling.neighbors.plan import as_argument
from gnnsample_lab.sampling.neighbors.sizes import power_of_two

from . import fused

if TYPE_CHECKING:
    from gnnsample_lab.sampling.engine.gpu import GpuEngine

SERVED = np.dtype([(name, np.int64) for name in (
    "sorted", "jobs", "count", "factor", "cached", "entries", "counts",
)])  # fmt: skip
"""``Served`` of ``published.cu``."""


@dataclass
class Knobs:
    """Launch shapes and thresholds; samples never depend on them.

    Attributes:
        factor: 0: a list is cached wherever it fits; else where it is at most this many times as long as its draws.
        width: lanes of a sub-warp; None: the least power of two that holds a pair's slots; 0: lanes follow the slots.
        held: entries of a list that each lane of a sub-warp keeps.
        shared_bytes: most dynamic shared memory of a block, for a list.
        threads: threads per block of the three kernels.
        blocks_per_sm: most blocks per multiprocessor of the three kernels, which loop over their work.
        tail: samples of a walk without end from which on no index is built, or an eighth of all, if that is less.
        classes: how transits are cut into classes.
    """

    factor: int = 0
    width: int | None = None
    held: int = 2
    shared_bytes: int = 8 * 1024
    threads: dict[str, int] = field(default_factory=lambda: {"subwarp": 256, "block": 64, "grid": 256})
    blocks_per_sm: dict[str, int] = field(default_factory=lambda: {"subwarp": 32, "block": 16, "grid": 8})
    tail: int = 2**19
    classes: ClassKnobs = classes.KNOBS


KNOBS = Knobs()


def step(engine: GpuEngine, number: int, knobs: Knobs | None = None) -> dict[str, Any]:
    """Run step ``number`` of individual sampling; ``engine.plan`` tells of the step. Nothing waits.

    Returns:
        What was done, for ``r.schedule``: ``kernel``, ``index``, ``pairs``, and ``classes``, which
        :func:`~.transit.settle` turns into counts once the run is over.
    """
    import cupy

    knobs = knobs or KNOBS
    transits, size = engine.transits, engine.shape[number].size
    totals = cupy.zeros((1, classes.TOTALS), np.uint64)
    record = _record(transits.size, totals, 0)
    with engine.timing(record, "index_us"):
        index = ClassIndex(
            engine.graph.num_nodes, int(transits.size), size, engine.id_dtype, engine.scratch, knobs.classes
        )
        classes.build(index, totals.data.ptr, transits)
    with engine.timing(record, "sample_us"):
        null_slots(transits, size, engine.out)
        _Sampling(engine, index, knobs, size, False).launch(totals.data.ptr)
    return record


class Walk:
    """The samples of a walk, one vertex a step, grouped by transit in every step."""

    def __init__(self) -> None:
        self.index: Any = None
        self._before = 0
        self._totals: Any = None

    @staticmethod
    def can(engine: GpuEngine, step: int, steps: int) -> bool:
        """Whether the ``steps`` steps from ``step`` on are a walk's, whose transits are what the last step drew."""
        return (
            engine.operator.transits_source is None
            and "lab_size" not in engine.operator.uses
            and fused.length(engine, step, step + steps) == steps
        )

    def advance(self, engine: GpuEngine, step: int, steps: int, knobs: Knobs | None = None) -> Any:
        """Walk ``steps`` steps from ``step`` on, whose outputs are allocated together; nothing waits.

        Returns:
            The totals of all steps' indexes, ``uint64[steps, 8]``, CuPy.
        """
        import cupy

        knobs = knobs or KNOBS
        totals = self._totals
        self._totals = cupy.zeros((steps, classes.TOTALS), np.uint64)  # the last ones are read once more
        begin = engine.addresses[step + 1]
        num_bytes = engine.addresses[step + steps] - begin + engine.num_samples * engine.id_dtype.itemsize
        cupy.cuda.runtime.memsetAsync(begin, 0xFF, num_bytes, cupy.cuda.get_current_stream().ptr)
        transits = None
        if self.index is None:
            transits = engine.steps[step - 1][:, 0] if step else engine.roots[:, 0]
            transits = cupy.ascontiguousarray(transits)
            self.index = ClassIndex(
                engine.graph.num_nodes, engine.num_samples, 1, engine.id_dtype, engine.scratch, knobs.classes
            )
            self.index.keep_entries()
        sampling = _Sampling(engine, self.index, knobs, 1, True)
        for i in range(steps):
            engine.begin_step(step + i)
            record, here = _record(engine.num_samples, self._totals, i), self._totals.data.ptr + 64 * i
            with engine.timing(record, "index_us"):
                classes.build(self.index, here, transits, self._before)
            with engine.timing(record, "sample_us"):
                sampling.launch(here)
            engine.schedule.append(record)
            self._before, transits = here, None
        del totals
        return self._totals

    def advance_endless(self, engine: GpuEngine, step: int, steps: int) -> tuple[bool, int, int, Any]:
        """Walk up to ``steps`` steps; waits once.

        Returns:
            Whether all walks have ended, how many of the steps any walk took, the status word, and the samples that
            go on where they are few, else None.
        """
        totals = self.advance(engine, step, steps).get()
        status = int(engine.status.get()[0])
        pairs = totals[:, classes.SUBWARP_PAIRS] + totals[:, classes.OTHER_PAIRS]
        ended = np.flatnonzero(pairs == 0)
        taken = int(ended[0]) if ended.size else steps
        few = None
        if not ended.size and status == CLEAR and pairs[-1] <= min(KNOBS.tail, engine.num_samples // 8):
            few = self.index.going(totals[-1])
        return bool(ended.size), taken, status, few


def _record(pairs: int, totals: Any, row: int) -> dict[str, Any]:
    return {"kernel": "transit", "index": "published", "pairs": int(pairs), "classes": (totals, row)}


class _Sampling:
    """The three kernels over an index."""

    def __init__(self, engine: GpuEngine, index: ClassIndex, knobs: Knobs, size: int, walk: bool) -> None:
        self._plan = engine.plan
        few, many, pairs = knobs.classes.few, knobs.classes.many, index.pairs
        width = power_of_two(size, 1) if knobs.width is None else knobs.width
        macros: dict[str, int | str] = {"NEXT": int(walk)}
        subwarp = {**macros, "WIDTH": width if size < few else 0, "HELD": knobs.held}
        cached = knobs.shared_bytes // engine.id_dtype.itemsize
        lanes = size if width == 0 else width
        made = []
        if size < few:
            made.append(("subwarp", subwarp, pairs * lanes, 0, classes.SUBWARP_PAIRS, 0))
        if index.most_blocks:
            threads = index.most_blocks * knobs.threads["block"]
            made.append(("block", macros, threads, index.blocks.data.ptr, classes.BLOCK, cached))
        if index.most_items and pairs * size > many:
            threads = index.most_items * knobs.threads["grid"]
            made.append(("grid", macros, threads, index.items.data.ptr, classes.ITEMS, cached))
        self._launches = []
        for name, chosen, threads, jobs, total, room in made:
            record = np.zeros(1, SERVED)
            record["sorted"], record["jobs"] = index.sorted.data.ptr, jobs
            record["factor"], record["cached"] = knobs.factor, room
            if walk:
                record["entries"], record["counts"] = index.entries.data.ptr, index.counts.data.ptr
            raw = engine.raw_kernel("steps/published.cu", f"published_{name}", chosen)
            shared = room * engine.id_dtype.itemsize
            if shared > 48 * 1024:
                raw.max_dynamic_shared_size_bytes = shared
            block = knobs.threads[name]
            grid = max(1, min(-(-threads // block), runtime.num_sms() * knobs.blocks_per_sm[name]))
            self._launches.append((raw.kernel, grid, block, record, 8 * total, shared))

    def launch(self, totals: int) -> None:
        """Draw for all pairs of the index whose totals lie at the address ``totals``."""
        plan = self._plan.argument()
        for kernel, grid, block, record, place, shared in self._launches:
            record["count"] = totals + place
            kernel((grid,), (block,), (plan, as_argument(record.copy())), shared_mem=shared)
