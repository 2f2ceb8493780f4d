"""The scheduling index of the published rung: pairs grouped by transit, in three classes (``classes.cu``).

It differs from :mod:`.index` in what it hands over: pairs with their transits, those of the sub-warp class one after
another, and jobs for thread blocks. A walk can keep it from step to step, because the kernels that draw the next
transits count them as well.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.sampling.neighbors.plan import as_argument

from .index import FEW, MANY, pair_type, scratch_array

CLASSES = np.dtype([(name, np.int64) for name in (
    "num_nodes", "pairs", "size", "few", "many", "pairs_per_job", "counts", "offsets", "transits", "entries",
    "sorted", "blocks", "items", "totals", "before",
)])  # fmt: skip
"""``Classes`` of ``classes.cuh``."""
TOTALS = 8
SUBWARP_PAIRS, OTHER_PAIRS, SUBWARP, BLOCK, GRID, ITEMS = range(6)
"""Places of an index' totals, ``uint64[8]``."""
_THREADS, _TILE, _AT_ONCE, _BLOCKS_PER_SM = 256, 2048, 4, 8
_JOB_WORDS = 4


@dataclass(frozen=True)
class ClassKnobs:
    """How transits are cut into classes and jobs; samples never depend on it.

    Attributes:
        few, many: bounds of the classes, in neighbours to sample (NextDoor, table 2).
        job_draws: neighbours to sample of a job of the grid class, at most (one pair at least).
    """

    few: int = FEW
    many: int = MANY
    job_draws: int = MANY


KNOBS = ClassKnobs()


class ClassIndex:
    """The arrays of an index of up to ``pairs`` pairs, for one step after another.

    Args:
        num_nodes: vertices of the graph.
        pairs: pairs of sample and transit of a step.
        size: neighbours to sample per pair.
        id_dtype: of the graph.
        scratch: keeps the arrays from index to index.

    Attributes:
        record: what kernels are told, :data:`CLASSES`.
        sorted, entries, counts, blocks, items: as ``Classes`` of ``classes.cuh`` has them, CuPy. An entry is 8
            bytes (16 where ids are 64-bit), a job 16.
        most_blocks, most_items: bounds of the jobs of the block and the grid class.

    Raises:
        ValueError: 2^32 pairs or more.
    """

    def __init__(
        self, num_nodes: int, pairs: int, size: int, id_dtype: Any, scratch: dict[str, Any],
        knobs: ClassKnobs = KNOBS,
    ) -> None:  # fmt: skip
        pair_type(pairs)
        self.pairs, self.size, self.knobs, self._scratch = pairs, size, knobs, scratch
        self._tiles = max(1, -(-num_nodes // _TILE))
        self._wide = np.dtype(id_dtype).itemsize == 8
        words = 4 if self._wide else 2
        self.counts = self._array("counts", self._tiles * _TILE, np.uint32)
        self.counts.data.memset_async(0, self.counts.nbytes)
        self.offsets = self._array("offsets", self._tiles * _TILE, np.uint32)
        self.sorted = self._array("sorted", pairs * words, np.uint32)
        self._words = words
        per_job = max(1, knobs.job_draws // size)
        # Upper bounds: a transit of the block class has `few` draws or more, one of the grid class more than `many`,
        # and only the last job of a transit may be short.
        self.most_blocks = 0 if size > knobs.many else min(num_nodes, pairs * size // knobs.few)
        members = min(num_nodes, pairs * size // (knobs.many + 1))
        self.most_items = pairs // per_job + members if members else 0
        self.blocks = self._array("blocks", self.most_blocks * _JOB_WORDS, np.uint32)
        self.items = self._array("items", self.most_items * _JOB_WORDS, np.uint32)
        self.record = np.zeros(1, CLASSES)
        values = {
            "num_nodes": num_nodes, "pairs": pairs, "size": size, "few": knobs.few, "many": knobs.many,
            "pairs_per_job": per_job, "counts": self.counts.data.ptr, "offsets": self.offsets.data.ptr,
            "sorted": self.sorted.data.ptr, "blocks": self.blocks.data.ptr,
            "items": self.items.data.ptr,
        }  # fmt: skip
        for name, value in values.items():
            self.record[name] = value

    def keep_entries(self) -> Any:
        """Make room for what a walk's kernels draw; returns the array."""
        self.entries = self._array("entries", self.pairs * self._words, np.uint32)
        self.record["entries"] = self.entries.data.ptr
        return self.entries

    def going(self, totals: np.ndarray) -> Any:
        """The pairs that drew a vertex in the step of ``totals`` (on the host), ``uint32[n]``, CuPy; waits."""
        import cupy

        found = self.entries.reshape(self.pairs, self._words)
        front, back = int(totals[SUBWARP_PAIRS]), int(totals[OTHER_PAIRS])
        found = cupy.concatenate([found[:front], found[self.pairs - back :]])
        column = self._words // 2
        return cupy.ascontiguousarray(found[found[:, column - 1].view(np.int32) >= 0, column])

    def _array(self, name: str, size: int, dtype: Any) -> Any:
        return scratch_array(self._scratch, f"classes.{name}", size, dtype)

    def launch(self, name: str, blocks: int) -> None:
        """Launch a kernel of ``classes.cu``."""
        _kernel(name, self._wide)((blocks,), (_THREADS,), (as_argument(self.record.copy()),))

    def loops(self, threads: int) -> int:
        """Blocks of a kernel that loops, ``threads`` pairs each."""
        most = runtime.num_sms() * _BLOCKS_PER_SM
        return max(1, min(-(-threads // (_THREADS * _AT_ONCE)), most))

    @property
    def tiles(self) -> int:
        return self._tiles


@functools.lru_cache(maxsize=16)
def _kernel(name: str, wide: bool) -> Any:
    macros: dict[str, int | str] = {"ID_T": "long" if wide else "int"}
    return kernels.load_module("sampling/engine/grouping/classes.cu", macros).get_function(name).kernel


def build(index: ClassIndex, totals: int, transits: Any = None, before: int = 0) -> None:
    """Group the pairs of a step; nothing waits.

    Args:
        index: its arrays; a call overwrites the index of the last call.
        totals: address of ``uint64[8]``, zero before.
        transits: ids ``[pairs]``, CuPy, NULL (negative) is left out; None: what the kernels of the last step drew, and
            counted.
        before: without ``transits`` the totals of the last step.
    """
    index.record["totals"], index.record["before"] = totals, before
    index.record["transits"] = 0 if transits is None else transits.data.ptr
    if transits is not None:
        index.launch("count_pairs", index.loops(index.pairs))
    index.launch("number_classes", index.tiles)
    index.launch("place_pairs", index.loops(index.pairs))
