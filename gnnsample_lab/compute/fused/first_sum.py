"""Draws a hop's picks and sums their rows at once: kernel and CPU twin."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gnnsample_lab.compute.aggregation.csr import address, function, row_stride
from gnnsample_lab.compute.aggregation.register_tile import power_of_two
from gnnsample_lab.device import runtime
from gnnsample_lab.device.dependent import launch
from gnnsample_lab.device.jit import njit, prange
from gnnsample_lab.device.locks import Lock
from gnnsample_lab.minibatch.gpu.rows import RowTable
from gnnsample_lab.sampling.neighbors import cpu as twin
from gnnsample_lab.sampling.neighbors.launch import occupancy
from gnnsample_lab.sampling.neighbors.plan import NARROW, PLAN, as_argument, point_to_weights
from gnnsample_lab.sampling.neighbors.spec import MAX_HOPS, SampleSpec
from gnnsample_lab.sampling.neighbors.workspace import Workspace
from gnnsample_lab.sampling.weights import IntegerWeights

_pointer = np.uint64
FIRST = np.dtype(
    [("nodes", _pointer), ("table", _pointer), ("slots", _pointer), ("host", _pointer), ("own", _pointer),
     ("sums", _pointer), ("counts", _pointer), ("counted", _pointer), ("rows", "u8"), ("host_stride", "u8"),
     ("out_stride", "u8"), ("features", "u4"), ("batch_id", "u4"), ("mean", "u4"), ("per_warp", "u4"),
     ("most", "u4"), ("warps_wanted", "u4"), ("ends", "u8", MAX_HOPS), ("fanouts", "i4", MAX_HOPS + 1)], align=True,
)  # fmt: skip
"""``First`` in ``first_sum.cu``."""
_FIRST = np.dtype(("V", FIRST.itemsize))
# One call of ``struct`` is several times faster than setting NumPy fields.
_PACK: Any = struct.Struct(f"=8Q3Q6I{MAX_HOPS}Q{MAX_HOPS + 1}i").pack
_ZEROS = (0,) * MAX_HOPS


MOST_ROWS = 8
"""Most rows of a warp (``ROWS`` in the kernel)."""
WARPS_WANTED = 24
"""Warps for each multiprocessor below which a warp takes fewer rows."""


COUNTERS = 16
"""Pairs of counters of a launch (``COUNTERS`` in the kernel)."""
_LAUNCHES = 4096
"""Launches that share one array of counters."""


class Counters:
    """Counts the picks that launches read, and the rows that came from the host, without a launch of its own."""

    def __init__(self) -> None:
        self._lock, self._used = Lock(), _LAUNCHES
        self._array: Any = None
        self._before: Any = None

    def take(self) -> tuple[int, Callable[[], tuple[int, int]]]:
        """Counters for a launch: their address, and what reads ``(picks, misses)`` once the launch is complete."""
        import cupy

        with self._lock:
            if self._used == _LAUNCHES:
                # Launches to come find zeros, on whatever stream. To wait for the whole device would fail while
                # another thread captures, so launches under way keep their array: no stream holds as many.
                made = cupy.zeros((_LAUNCHES, COUNTERS, 2), np.uint64)
                cupy.cuda.get_current_stream().synchronize()
                self._before, self._array, self._used = self._array, made, 0
            array, place = self._array, self._used
            self._used += 1

        def read() -> tuple[int, int]:
            picks, misses = array[place].get().sum(0).tolist()
            return picks, misses

        return int(array.data.ptr) + place * COUNTERS * 16, read


class _Shape(NamedTuple):
    """A kernel, the most rows of a warp, warps of a block, bytes of its dynamic shared memory, warps wanted."""

    kernel: Any
    most_rows: int
    warps: int
    shared: int
    warps_wanted: int


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
        self, graph: Any, spec: SampleSpec, weights: IntegerWeights | None, rows: Any, num_features: int
    ) -> None:
        self.spec, self.rows, self.features = spec, rows, num_features
        self.wide_ids = graph.indices.dtype.itemsize == 8
        self._keep = (graph, weights)
        plan = np.zeros(1, PLAN)
        plan["indptr"], plan["indices"] = graph.indptr.data.ptr, graph.indices.data.ptr
        plan["num_nodes"], plan["seed"], plan["num_hops"] = graph.num_nodes, spec.seed, spec.num_hops
        point_to_weights(plan, weights)
        self._plan = as_argument(plan)
        self._shapes: dict[tuple[int, str], _Shape] = {}
        asked = spec.fanouts if spec.expand == "new" else spec.fanouts[-1:]
        self.most = max(1, *asked)
        self.narrow = min(asked) > 0 and self.most <= NARROW

    def macros(self, vec: int) -> tuple[tuple[str, int | str], ...]:
        """Macros of the module for a table that is read with loads of ``vec`` numbers."""
        vectors = -(-self.features // vec)
        chosen: dict[str, int | str] = {
            "ID_T": "long" if self.wide_ids else "int", "RULE": self.spec.rule, "VEC": vec,
            "LANES": min(32, power_of_two(vectors)), "CHUNKS": 1 if vectors <= 32 else 2,
            "CACHED": int(self.rows.slots is not None or self.rows.cache is None),
            "THREADS": 128 if self.most <= 1024 else 64,
        }  # fmt: skip
        if self.narrow:
            chosen["KMAX"] = max(8, power_of_two(self.most))
        return tuple(chosen.items())

    def launch(
        self, nodes: Any, ends: Sequence[int], batch_id: int, table: Any, counts: Any, mean: bool, counted: int = 0
    ) -> None:  # fmt: skip
        """Put the work on CuPy's current stream. Nothing waits.

        Args:
            nodes: vertices, ids as in the graph ``[n]``.
            ends: as :func:`ends_of` gives them.
            batch_id: of the mini-batch.
            table: ``float32[n, 2 F]``, written whole: own rows, and beside them sums or means.
            counts: ``float32[n]``, written.
            mean: divide by the number of picks.
            counted: address from :class:`Counters`; 0 to count nothing.
        """
        n = int(ends[-1])
        if n == 0 or self.features == 0:
            return
        stride, own = row_stride(table), address(table)
        sums = own + 4 * self.features
        shape = self._shape(self._vector(stride, own | sums))
        rows, hops, per_warp = self.rows, len(ends), shape.most_rows
        while per_warp > 1 and n < per_warp * shape.warps_wanted:
            per_warp //= 2
        first = _PACK(
            address(nodes), address(rows.cache), address(rows.slots), rows.host_address, own, sums, address(counts),
            counted, n, rows.host_stride // 4, stride, self.features, batch_id, mean, per_warp, self.most, 0, *ends,
            *_ZEROS[hops:], *self.spec.fanouts, *_ZEROS[hops:], 0,
        )  # fmt: skip
        args = (self._plan, np.frombuffer(bytearray(first), _FIRST))
        blocks = -(-n // (shape.warps * per_warp))
        shape.kernel((blocks,), (shape.warps * 32,), args, shared_mem=shape.shared)

    def _shape(self, vec: int, name: str = "first_sum") -> _Shape:
        """Kernel and launch shape for loads of ``vec`` numbers; made once."""
        if (vec, name) not in self._shapes:
            macros = self.macros(vec)
            if name != "first_sum":
                macros += (("ALONG", 1),)
            warps, vectors = int(dict(macros)["THREADS"]) // 32, -(-self.features // vec)
            # A warp that draws for several rows has its lanes busy; wide rows keep it busy anyway.
            most = 1 if not self.narrow or vectors > 64 else 2 if vectors > 32 else MOST_ROWS
            shared = 0 if self.narrow else warps * self.most * 4
            wanted = WARPS_WANTED * runtime.num_sms()
            self._shapes[vec, name] = _Shape(_kernel(name, macros), most, warps, shared, wanted)
        return self._shapes[vec, name]

    def _vector(self, stride: int, written: int = 0) -> int:
        """Numbers of a load, so that all addresses are multiples of it; ``written``: the bits of some."""
        rows = self.rows
        bits = rows.host_address | rows.host_stride | address(rows.cache) | written
        vec = 4
        while vec > 1 and (self.features % vec or stride % vec or bits % (4 * vec)):
            vec //= 2
        return vec


class SumsAlong(RowTable):
    """Draws and sums the last hop as a part of the launch that samples the hops before.

    By a call of its own this costs the host several times what the GPU needs, and begins when the host knows the sizes.

    Args:
        first: of a table that lies on the GPU as a whole, in the order of the vertices.
        mean: divide by the number of picks.
        id_type: the kernels' name of the type of vertex ids.
    """

    sums = True

    def __init__(self, first: FirstSum, mean: bool, id_type: str) -> None:
        super().__init__(first.rows.cache, id_type)
        self._first, self._mean = first, mean
        self._resident: dict[str, int] = {}
        self.row_bytes = 4 * (2 * first.features + 1)

    @staticmethod
    def of_table(first: FirstSum, mean: bool, id_type: str) -> SumsAlong | None:
        """None where rows come from elsewhere, too, or there are none."""
        rows = first.rows
        if rows.cache is None or rows.slots is not None or first.features == 0:
            return None
        return SumsAlong(first, mean, id_type)

    def bring(self, ws: Workspace, blocks: int) -> None:
        name = "first_sum_along"
        shape, args = self._shaped(name)
        grid = self._blocks(ws, shape, name)
        launch(shape.kernel, grid, (shape.warps * 32,), (ws.args, *args), shape.shared)

    def bring_at(self, ws: Workspace, blocks: int, places: Sequence[Any]) -> None:
        name = "first_sum_at"
        shape, args = self._shaped(name)
        grid = self._blocks(ws, shape, name)
        shape.kernel(grid, (shape.warps * 32,), (ws.args, *args, *places), shared_mem=shape.shared)

    def _shaped(self, name: str) -> tuple[_Shape, tuple[Any, ...]]:
        first = self._first
        shape = first._shape(first._vector(2 * first.features), name)
        packed = _PACK(
            0, address(self.table), 0, 0, 0, 0, 0, 0, 0, 0, 0,
            first.features, 0, self._mean, shape.most_rows, first.most, shape.warps_wanted,
            *_ZEROS, *first.spec.fanouts, *_ZEROS[len(first.spec.fanouts) :], 0,
        )  # fmt: skip
        return shape, (np.frombuffer(bytearray(packed), _FIRST),)

    def _blocks(self, ws: Workspace, shape: _Shape, name: str) -> tuple[int, int]:
        """As many as are resident at once, for all mini-batches together."""
        if name not in self._resident:
            threads = shape.warps * 32
            self._resident[name] = occupancy(shape.kernel, threads, shape.shared) * runtime.num_sms()
        batches = ws.shape.num_batches
        return max(1, min(self._resident[name] // batches, -(-ws.shape.node_cap // shape.warps))), batches


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
) -> list[np.ndarray]:  # fmt: skip
    """The twin: arguments as in :meth:`FirstSum.launch`, in host memory; ``table`` is ``float32[N, F]``.

    Returns:
        The picked vertices, hop by hop.
    """
    begin, picked = 0, []
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
            picked.append(picks.neighbors)
            begin = end
    return picked
