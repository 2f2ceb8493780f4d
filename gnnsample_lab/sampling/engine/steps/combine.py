"""Combined neighbourhoods on the GPU: the concatenated lists of each sample's transits (``combine.cu``).

A scan of the lists' lengths gives the place of every list. The host reads the sum back to reserve memory. If the whole
does not fit, the host reads where all samples begin and processes samples in waves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.sampling.neighbors.plan import as_argument

COMBINE = np.dtype([
    (name, np.int64) for name in (
        "indptr", "indices", "prefix", "transits", "pair_begin", "weight_begin", "out", "sums", "first_row", "rows",
        "num_transits",
    )
])  # fmt: skip
"""``Combine`` of ``combine.cu``."""
_THREADS = 256
_FLAT_TILE, _ENTRY_TILE = 2048, 8192
"""Entries of the result per block, for the grids of ``combine_flat`` and ``combine_tiles``."""
LONG_LISTS = 32
"""Least average length of lists for which an index pays: for shorter lists sorting moves more bytes than it saves."""


@dataclass(frozen=True, eq=False)
class Wave:
    """Samples ``first_row .. first_row + rows - 1``; ``before`` counts the entries of all earlier samples."""

    first_row: int
    rows: int
    before: int
    entries: int


class Combiner:
    """The combined neighbourhoods of one step.

    Args:
        graph: on the GPU.
        prefix: ``uint64[E + 1]`` sums of the integer weights, or None where ``next`` reads none.
        transits: ids ``[S, t]``, -1 for none; CuPy.
        edges: whether the entries themselves are needed, and not only their number.

    Attributes:
        begins: ``int64[S + 1]``, where each sample's entries begin.
        total: entries of all samples; finding it waits for the GPU once.
    """

    def __init__(self, graph: Any, prefix: Any, transits: Any, edges: bool) -> None:
        import cupy

        self.graph, self.prefix, self.edges = graph, prefix, edges
        self.transits = cupy.ascontiguousarray(transits)
        self.num_samples, self.num_transits = transits.shape
        self.id_dtype = transits.dtype
        pairs = self.transits.size
        lengths = cupy.zeros(pairs + 1, np.int64)
        weights = None if prefix is None else cupy.zeros(pairs + 1, np.uint64)
        self._launch(
            "measure",
            pairs,
            graph.indptr,
            _or_null(prefix),
            self.transits,
            np.int64(pairs),
            lengths,
            _or_null(weights),
        )
        self.pair_begin = cupy.cumsum(lengths)
        self.weight_begin = None if weights is None else cupy.cumsum(weights)
        self.begins = cupy.ascontiguousarray(self.pair_begin[:: self.num_transits])
        self.total = int(self.pair_begin[-1]) if edges or prefix is not None else 0

    @property
    def entry_bytes(self) -> int:
        """Bytes per entry of a combined neighbourhood."""
        return self.edges * self.id_dtype.itemsize + (self.prefix is not None) * 8

    def waves(self, budget: int) -> list[Wave]:
        """Cut the samples into waves whose neighbourhoods take at most ``budget`` bytes, at least one sample each."""
        if self.total * self.entry_bytes <= budget:
            return [Wave(0, self.num_samples, 0, self.total)]
        return list(waves_of(self.begins.get(), max(1, budget // self.entry_bytes)))

    def build(self, wave: Wave, method: str, index: Any = None) -> tuple[Any, Any]:
        """Entries of the wave's samples, ids ``[entries]``, and prefix sums, ``uint64[entries + rows]``.

        A result that was not asked for is None.

        Args:
            wave: the samples.
            method: ``"pairs"`` (sorted by transit), ``"tiles"``, ``"frontier"`` or ``"message"``; without ``index`` it
                has no effect.
            index: the scheduling index of the wave's transits; None: a warp per pair, in the pairs' own order.
        """
        import cupy

        out = cupy.empty(max(1, wave.entries), self.id_dtype) if self.edges else None
        sums = None if self.prefix is None else cupy.empty(wave.entries + wave.rows, np.uint64)
        record = np.zeros(1, COMBINE)
        pointers = {
            "indptr": self.graph.indptr, "indices": self.graph.indices, "prefix": self.prefix,
            "transits": self.transits, "pair_begin": self.pair_begin, "weight_begin": self.weight_begin,
            "out": out, "sums": sums,
        }  # fmt: skip
        for name, array in pointers.items():
            record[name] = 0 if array is None else array.data.ptr
        record["first_row"], record["rows"] = wave.first_row, wave.rows
        record["num_transits"] = self.num_transits
        plan, pairs = as_argument(record), wave.rows * self.num_transits
        if sums is not None:
            self._launch("begin_sums", wave.rows, plan)
        if index is None:
            self._launch("combine_pairs", pairs * 32, plan, _NULL, _NULL, _NULL)
            return out, sums
        self._build_sorted(plan, pairs, wave.entries, method, index)
        return out, sums

    def _build_sorted(self, plan: Any, pairs: int, entries: int, method: str, index: Any) -> None:
        import cupy

        order, wide = index.pairs, index.pairs.dtype.itemsize == 8
        if method == "pairs":
            self._launch("combine_pairs", pairs * 32, plan, order, index.begins, index.count, wide=wide)
            return
        if method == "message":
            self._launch("combine_message", pairs, plan, order, index.begins, index.count, wide=wide)
            return
        counts = cupy.zeros((2, pairs + 1), np.int64)
        frontier = method == "frontier"
        self._launch(
            "split_transits", pairs * 32, self.graph.indptr, index.transits, index.begins, index.count, counts[0],
            counts[1], np.int32(frontier),
        )  # fmt: skip
        tiles = cupy.cumsum(counts[0])
        if frontier:
            self._launch(
                "combine_frontier", entries, plan, order, index.begins, index.count, tiles, wide=wide
            )
            return
        blocks = -(-entries // _ENTRY_TILE)
        self._launch(
            "combine_tiles",
            blocks * _THREADS,
            plan,
            order,
            index.transits,
            index.begins,
            index.count,
            tiles,
            wide=wide,
        )
        starts = cupy.cumsum(counts[1])
        blocks = -(-entries // _FLAT_TILE)
        self._launch("combine_flat", blocks * _THREADS, plan, order, starts, np.int64(pairs), wide=wide)

    def _launch(self, name: str, threads: int, *args: Any, wide: bool = True) -> None:
        macros: dict[str, int | str] = {
            "ID_T": "int" if self.id_dtype.itemsize == 4 else "long",
            "PAIR_T": "long" if wide else "int",
        }
        kernel = kernels.load_module("sampling/engine/steps/combine.cu", macros).get_function(name)
        # Kernels loop over their work, so the grid need not exceed the blocks that the GPU holds at once.
        grid = max(1, min(-(-threads // _THREADS), runtime.num_sms() * 8))
        kernel((grid,), (_THREADS,), args)


_NULL = np.uintp(0)


def _or_null(array: Any) -> Any:
    return _NULL if array is None else array


def waves_of(begins: np.ndarray, capacity: int) -> Iterator[Wave]:
    """Cut samples into waves of at most ``capacity`` entries, at least one sample each.

    ``begins``: ``int64[S + 1]``, where each sample's entries begin.
    """
    row, last = 0, len(begins) - 1
    while row < last:
        end = int(np.searchsorted(begins, begins[row] + capacity, side="right")) - 1
        end = min(max(end, row + 1), last)
        yield Wave(row, end - row, int(begins[row]), int(begins[end] - begins[row]))
        row = end


def sharing_pays(pairs: int, entries: int, across_the_bus: bool) -> bool:
    """Whether sorting the pairs by transit is expected to pay (the choice of ``index="auto"``).

    In the GPU's memory it does not, however little of the lists the L2 holds: sorted steps took 1.08 to 1.30 times as
    long on ``orkut-like`` and ``livejournal-like`` (``data/measured/NOTES.md``).

    Args:
        pairs: number of pairs of sample and transit.
        entries: entries of all combined neighbourhoods.
        across_the_bus: whether lists lie in host memory.
    """
    return across_the_bus and entries >= LONG_LISTS * pairs
