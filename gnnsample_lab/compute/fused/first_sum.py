"""Draws a hop's picks and sums their rows at once: kernel and CPU twin."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gnnsample_lab.compute.aggregation.csr import function, pointer, row_stride
from gnnsample_lab.compute.aggregation.register_tile import power_of_two
from gnnsample_lab.device import streams
from gnnsample_lab.device.dependent import launch
from gnnsample_lab.device.jit import njit, prange
from gnnsample_lab.sampling.neighbors import cpu as twin
from gnnsample_lab.sampling.neighbors.plan import NARROW, PLAN, as_argument
from gnnsample_lab.sampling.neighbors.spec import MAX_HOPS, SampleSpec
from gnnsample_lab.sampling.weights import IntegerWeights

_pointer = np.uint64
FIRST = np.dtype(
    [("nodes", _pointer), ("table", _pointer), ("row_of", _pointer), ("host", _pointer), ("own", _pointer),
     ("sums", _pointer), ("counts", _pointer), ("sources", _pointer), ("rows", "u8"), ("host_stride", "u8"),
     ("out_stride", "u8"), ("features", "u4"), ("batch_id", "u4"), ("mean", "u4"), ("per_warp", "u4"),
     ("most", "u4"), ("unused", "u4"), ("ends", "u8", MAX_HOPS), ("fanouts", "i4", MAX_HOPS + 1)], align=True,
)  # fmt: skip
"""``First`` in ``first_sum.cu``."""
_FIRST = np.dtype(("V", FIRST.itemsize))
# One call of ``struct`` is several times faster than setting NumPy fields.
_PACK: Any = struct.Struct(f"=8Q3Q6I{MAX_HOPS}Q{MAX_HOPS + 1}i").pack
_ZEROS = (0,) * MAX_HOPS


class _Shape(NamedTuple):
    """Kernels and launch shape: ``gather`` where the work is split, bytes of dynamic ``shared`` memory a block."""

    kernel: Any
    gather: Any
    per_warp: int
    warps: int
    lanes: int
    shared: int


@dataclass(frozen=True)
class FirstKnobs:
    """Launch shapes; results do not depend on them.

    Attributes:
        way: "one" kernel, or "split": one that draws and leaves the picks in memory, one that sums.
        per_warp: rows that a warp draws for at a time; by default four, and one where rows are wide.
        unroll: rows of features in flight per lane.
        threads: threads per block.
    """

    way: str = "one"
    per_warp: int | None = None
    unroll: int = 4
    threads: int = 128


def ends_of(level_sizes: Sequence[int], expand: str) -> list[int]:
    """For each hop the end of the rows that it expands, in the order of the mini-batch's vertices.

    Args:
        level_sizes: vertices reached before each hop, the last hop included.
        expand: as in :class:`~gnnsample_lab.sampling.neighbors.spec.SampleSpec`; with ``"frontier"`` the last hop
            expands all rows, with ``"new"`` a hop those that the hop before has reached.
    """
    if expand == "new":
        return [int(n) for n in level_sizes]
    return [0] * (len(level_sizes) - 1) + [int(level_sizes[-1])]


class FirstSum:
    """Launches the kernels over one graph and one table of features on the GPU.

    Args:
        graph: on the GPU.
        spec: the draw, all hops.
        weights: where the draw is weighted.
        rows: where rows of features lie (:class:`~gnnsample_lab.features.caching.gather.GpuRows`), float32.
        num_features: their width.
    """

    def __init__(
        self, graph: Any, spec: SampleSpec, weights: IntegerWeights | None, rows: Any, num_features: int,
        knobs: FirstKnobs | None = None,
    ) -> None:  # fmt: skip
        self.spec, self.rows, self.features, self.knobs = spec, rows, num_features, knobs or FirstKnobs()
        self.wide_ids = graph.indices.dtype.itemsize == 8
        self._keep = (graph, weights)
        plan = np.zeros(1, PLAN)
        plan["indptr"], plan["indices"] = graph.indptr.data.ptr, graph.indices.data.ptr
        plan["num_nodes"], plan["seed"], plan["num_hops"] = graph.num_nodes, spec.seed, spec.num_hops
        if weights is not None:
            plan["prefix"], plan["available"] = weights.prefix.data.ptr, weights.available.data.ptr
        self._plan = as_argument(plan)
        self._shapes: dict[int, _Shape] = {}
        asked = spec.fanouts if spec.expand == "new" else spec.fanouts[-1:]
        self.most = max(1, *asked)
        self.narrow = min(asked) > 0 and self.most <= NARROW

    @property
    def from_cache(self) -> bool:
        """Whether a row must be looked up."""
        return self.rows.row_of is not None or self.rows.cache is None

    def macros(self, vec: int) -> tuple[tuple[str, int | str], ...]:
        """Macros of the module for a table that is read with loads of ``vec`` numbers."""
        knobs, vectors = self.knobs, -(-self.features // vec)
        threads = knobs.threads if self.most <= 1024 else 64
        chosen: dict[str, int | str] = {
            "ID_T": "long" if self.wide_ids else "int", "RULE": self.spec.rule, "VEC": vec,
            "LANES": min(32, power_of_two(vectors)), "CHUNKS": 1 if vectors <= 32 else 2,
            "CACHED": int(self.from_cache), "UNROLL": knobs.unroll,
            "THREADS": threads,
        }  # fmt: skip
        if self.narrow:
            chosen["KMAX"] = max(8, power_of_two(self.most))
        return tuple(chosen.items())

    def room_for_sources(self, rows: int, users: Any) -> Any:
        """What :meth:`launch` needs for ``way="split"``, leased to ``users``; else None."""
        if self.knobs.way != "split":
            return None
        ids = np.int64 if self.wide_ids or self.from_cache else np.int32
        return streams.empty(rows * (self.most + 1), ids, users)

    def launch(
        self, nodes: Any, ends: Sequence[int], batch_id: int, own: Any, sums: Any, counts: Any, mean: bool,
        sources: Any = None,
    ) -> None:  # fmt: skip
        """Put the work on CuPy's current stream. Nothing waits.

        Args:
            nodes: vertices, ids as in the graph ``[n]``.
            ends: as :func:`ends_of` gives them.
            batch_id: of the mini-batch.
            own, sums: ``float32[n, F]``, written whole; rows of both as far apart.
            counts: ``float32[n]``, written.
            mean: divide by the number of picks.
            sources: with ``way="split"`` room for ``n * (most + 1)`` ids.
        """
        n = int(ends[-1])
        if n == 0 or self.features == 0:
            return
        stride = row_stride(own)
        shape = self._shape(self._vector(own, sums, stride))
        rows, hops = self.rows, len(ends)
        first = _PACK(
            pointer(nodes), pointer(rows.cache), pointer(rows.row_of), rows.host_address, pointer(own), pointer(sums),
            pointer(counts), pointer(sources), n, rows.host_stride // 4, stride, self.features, batch_id, mean,
            shape.per_warp, self.most, 0, *ends, *_ZEROS[hops:], *self.spec.fanouts, *_ZEROS[hops:], 0,
        )  # fmt: skip
        args = (self._plan, np.frombuffer(bytearray(first), _FIRST))
        blocks = -(-n // (shape.warps * shape.per_warp))
        threads = (shape.warps * 32,)
        if shape.gather is not None:
            launch(shape.kernel, (blocks,), threads, args)
            launch(shape.gather, (-(-n * shape.lanes // threads[0]),), threads, args)
            return
        shape.kernel((blocks,), threads, args, shared_mem=shape.shared)

    def _shape(self, vec: int) -> _Shape:
        """Kernels and launch shape for loads of ``vec`` numbers; made once."""
        if vec not in self._shapes:
            macros, knobs = self.macros(vec), self.knobs
            chosen = dict(macros)
            warps = int(chosen["THREADS"]) // 32
            if not self.narrow:
                kernel = _kernel("first_sum", macros)
                made = _Shape(kernel, None, 1, warps, 32, warps * self.most * 4)
            else:
                usual = 4 if self.features <= 32 * vec else 1
                per_warp = min(knobs.per_warp or usual, 8 if int(chosen["KMAX"]) > 16 else 16)
                split = knobs.way == "split"
                kernel = _kernel("first_draw" if split else "first_sum", macros)
                gather = _kernel("first_gather", macros) if split else None
                made = _Shape(kernel, gather, per_warp, warps, int(chosen["LANES"]), 0)
            self._shapes[vec] = made
        return self._shapes[vec]

    def _vector(self, own: Any, sums: Any, stride: int) -> int:
        beside = (self.rows.cache, own, sums)
        address = int(self.rows.host_address) | self.rows.host_stride
        for array in beside:
            address |= int(pointer(array))
        vec = 4
        while vec > 1 and (self.features % vec or stride % vec or address % (4 * vec)):
            vec //= 2
        return vec


@functools.cache
def _kernel(name: str, macros: tuple[tuple[str, int | str], ...]) -> Any:
    return function("fused/first_sum.cu", name, macros)


@njit(parallel=True, cache=True)
def _sum_rows(  # type: ignore[no-untyped-def]
    nodes, neighbors, offsets, table, mean, own, sums, counts
):  # fmt: skip
    for i in prange(nodes.size):
        begin, end = offsets[i], offsets[i + 1]
        counts[i] = end - begin
        for f in range(table.shape[1]):
            own[i, f] = table[nodes[i], f]
            total = np.float32(0)
            for e in range(begin, end):
                total += table[neighbors[e], f]
            if mean and end - begin > 1:
                total *= np.float32(1) / np.float32(end - begin)
            sums[i, f] = total


def first_sum_cpu(
    graph: Any, spec: SampleSpec, weights: IntegerWeights | None, table: np.ndarray, nodes: np.ndarray,
    ends: Sequence[int], batch_id: int, own: np.ndarray, sums: np.ndarray, counts: np.ndarray, mean: bool,
) -> None:  # fmt: skip
    """The twin: arguments as in :meth:`FirstSum.launch`, in host memory; ``table`` is ``float32[N, F]``."""
    begin = 0
    for hop, end in enumerate(ends):
        if end > begin:
            some = slice(begin, end)
            picks = twin.draw_hop(nodes[some], graph.indptr, graph.indices, weights, spec, batch_id, hop)
            with twin.threads_for(picks.num_picks * table.shape[1]):
                _sum_rows(
                    nodes[some],
                    picks.neighbors,
                    picks.offsets,
                    table,
                    mean,
                    own[some],
                    sums[some],
                    counts[some],
                )
            begin = end
