"""The replay floors: how fast any sampler could return given samples on this GPU, alone in turn and all together."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.bench import timing
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.device.arrays import array_module, to_host
from gnnsample_lab.sampling.neighbors.launch import occupancy

from . import bound

BLOCKS_PER_SM = (2, 4, 8, 16, 0)
"""The committed sweep of the floors' grids: blocks per multiprocessor; 0 for as many as there are rows."""
UNROLLS = (1, 2, 4, 8)
RESIDENT = (1, 2, 4)
"""Blocks per multiprocessor where all hops share a launch, whose blocks must all be resident."""
_LEAST_THREADS, _MOST_THREADS = 192, 1024
_LEAD_IN_BYTES = 1 << 30
_HOP = np.dtype(
    [("frontier", "u8"), ("recorded", "u8"), ("neighbors", "u8"), ("positions", "u8"), ("counts", "u8"),
     ("rows", "u4"), ("k", "u4")], align=True,
)  # fmt: skip
_POISON = -7


class Sectors:
    """Which sectors of a graph's ``indptr`` and ``indices`` have been read, from however many samples."""

    def __init__(self, graph: Any) -> None:
        self._xp = array_module(graph.indptr)
        self._id_bytes = graph.indices.dtype.itemsize
        self._pointers = -(-graph.indptr.nbytes // bound.SECTOR)
        self._seen = self._xp.zeros(self._pointers - (-graph.indices.nbytes // bound.SECTOR), bool)

    def add(self, rows: Any, positions: Any) -> None:
        """Rows read the bounds of their lists, picks an entry of ``indices`` each.

        Args:
            rows: vertices, global ids ``[n]``.
            positions: edge positions of the picks, ``int64[m]``.
        """
        first = rows.astype(np.int64) * 8
        for at in (first, first + 8):
            self._seen[at // bound.SECTOR] = True
        self._seen[self._pointers + positions * self._id_bytes // bound.SECTOR] = True

    @property
    def count(self) -> int:
        return int(self._xp.count_nonzero(self._seen))

    @property
    def all(self) -> int:
        """Sectors of the whole graph."""
        return int(self._seen.size)


@dataclass(frozen=True)
class Recorded:
    """One mini-batch's sample as the floors replay it.

    Attributes:
        frontiers: per hop the expanded vertices, global ids ``[n]``.
        positions: per hop the picks' positions within their adjacency, ``int32[n, k]``, -1 for none.
        fanouts: most picks of a row, one number a hop.
        num_picks: of all hops.
        touched: what it reads and writes.
    """

    frontiers: list[Any]
    positions: list[Any]
    fanouts: tuple[int, ...]
    num_picks: int
    touched: bound.Touched


class Recordings(list[Recorded]):
    """Samples of several mini-batches.

    Attributes:
        union: distinct sectors of the graph that the first mini-batch reads, the first two together, and so on.
    """

    def __init__(self, recorded: Iterable[Recorded] = (), union: Iterable[int] = ()) -> None:
        super().__init__(recorded)
        self.union = list(union)

    @property
    def touched_bytes(self) -> int:
        """Of the graph, distinct bytes that all mini-batches together read."""
        return self.union[-1] * bound.SECTOR if self.union else 0


def record(
    graph: Any, fanouts: Sequence[int], seeds: Any, batch_id: int, sampler: Any, union: Sectors | None = None
) -> Recorded:
    """Sample once by ``sampler``, whose fanouts are ``fanouts``; keep every hop's frontier and positions.

    Args:
        graph: where the sampler's graph lies, on a GPU or not.
        union: also gets the sectors of this mini-batch.
    """
    xp = array_module(graph.indptr)
    batch = sampler.sample(seeds, batch_id)
    frontiers, positions, sectors = [], [], []
    both = Sectors(graph)
    for picks, k in zip(batch.picks, fanouts, strict=True):
        slots = xp.full((picks.frontier.size, k), -1, np.int32)
        pick = xp.arange(picks.num_picks)
        row = xp.searchsorted(picks.offsets[1:], pick, side="right")
        column = pick - picks.offsets[:-1][row]
        slots[row, column] = (picks.positions - graph.indptr[picks.frontier][row]).astype(np.int32)
        frontiers.append(picks.frontier.copy())
        positions.append(slots)
        hop = Sectors(graph)
        for of in (hop, both) if union is None else (hop, both, union):
            of.add(picks.frontier, picks.positions)
        sectors.append(hop.count)
    rows = sum(int(f.size) for f in frontiers)
    written = batch.num_edges * (graph.indices.dtype.itemsize + 4) + 4 * rows
    touched = bound.Touched(tuple(sectors), both.count, written)
    return Recorded(frontiers, positions, tuple(fanouts), batch.num_edges, touched)


def rows_of_block(k: int) -> int:
    """Rows of a block of ``k`` columns: whole warps where they fit, about :data:`_LEAST_THREADS` threads.

    Raises:
        ValueError: no block has ``k`` columns.
    """
    if not 1 <= k <= _MOST_THREADS:
        raise ValueError(f"the floor serves fanouts of 1 to {_MOST_THREADS} (got {k})")
    whole = 32 // math.gcd(k, 32)
    rows = whole * -(-_LEAST_THREADS // (k * whole))
    return rows if k * rows <= _MOST_THREADS else max(1, 256 // k)


@dataclass
class _Part:
    """Rows of equal fanout, and the buffers that their replay fills."""

    frontier: Any
    positions: Any
    out: tuple[Any, Any, Any]

    @property
    def k(self) -> int:
        return int(self.positions.shape[1])


class Replay:
    """Replays samples: :meth:`in_turn`, :meth:`by_barrier` and :meth:`together` launch, :meth:`check` compares.

    Args:
        graph: on the GPU.
        recorded: samples of the same fanouts.
    """

    def __init__(self, graph: Any, recorded: Sequence[Recorded]) -> None:
        import cupy

        self.graph, self.recorded = graph, recorded
        self._id_type = "int" if graph.indices.dtype.itemsize == 4 else "long"
        fanouts = recorded[0].fanouts

        def buffers(rows: int, k: int) -> tuple[Any, Any, Any]:
            if rows * k >= 2**32:
                raise ValueError(f"the floor replays fewer than 2**32 picks a launch (got {rows * k})")
            ids = cupy.full(rows * k, _POISON, graph.indices.dtype)
            return ids, cupy.full(rows * k, _POISON, np.int32), cupy.full(rows, _POISON, np.int32)

        # In turn, as in a sampler's scratch memory: buffers of a hop serve one mini-batch after the other.
        shared = [
            buffers(max(int(one.frontiers[hop].size) for one in recorded), k) for hop, k in enumerate(fanouts)
        ]
        self.turns = [
            [_Part(*of) for of in zip(one.frontiers, one.positions, shared, strict=True)] for one in recorded
        ]
        # Together: arrays of their own, one launch for all hops of the same fanout.
        self.merged = []
        for k in dict.fromkeys(fanouts):
            parts = [part for parts in self.turns for part in parts if part.k == k]
            frontier = cupy.concatenate([part.frontier for part in parts])
            positions = cupy.concatenate([part.positions for part in parts])
            self.merged.append(_Part(frontier, positions, buffers(int(frontier.size), k)))
        self._hops: Any = None
        self._arrived: Any = None

    def _launch(self, part: _Part, unroll: int, blocks: int) -> None:
        kernel = self._kernel("floor.cu", "replay", unroll)
        rows, side = int(part.frontier.size), rows_of_block(part.k)
        need = -(-rows // (side * unroll))
        grid = min(need, blocks * runtime.num_sms()) if blocks else need
        args = (part.frontier, np.uint32(rows), np.uint32(part.k), self.graph.indptr, self.graph.indices,
                part.positions, *part.out)  # fmt: skip
        if rows:
            kernel((grid,), (part.k, side), args)

    def _kernel(self, source: str, name: str, unroll: int) -> Any:
        macros: dict[str, int | str] = {"ID_T": self._id_type, "UNROLL": unroll}
        return kernels.load_module(f"bench/floors/{source}", macros).get_function(name)

    def in_turn(self, unroll: int, blocks: int) -> None:
        """Mini-batch after mini-batch, a launch for each hop."""
        for parts in self.turns:
            for part in parts:
                self._launch(part, unroll, blocks)

    def by_barrier(self, unroll: int, blocks: int) -> None:
        """Mini-batch after mini-batch, one launch for all hops of each; call :meth:`prepare` before every run."""
        kernel = self._kernel("floor_hops.cu", "replay_hops", unroll)
        hops = len(self.recorded[0].fanouts)
        wide = max(self.recorded[0].fanouts)
        shape = (wide, rows_of_block(wide))
        blocks = max(1, min(blocks, occupancy(kernel, shape[0] * shape[1])))
        if self._hops is None:
            self.prepare()
        for index in range(len(self.turns)):
            where = (self.graph.indptr, self.graph.indices, self._arrived[index])
            args = (self._hops[index], np.int32(hops), *where)
            kernels.launch_cooperative(kernel, (blocks * runtime.num_sms(),), shape, args)

    def prepare(self) -> None:
        """Reset the counters of the barriers."""
        import cupy

        if self._arrived is None:
            table = np.zeros((len(self.turns), len(self.turns[0])), _HOP)
            for index, parts in enumerate(self.turns):
                for hop, part in enumerate(parts):
                    arrays = (part.frontier, part.positions, *part.out)
                    row = (*(array.data.ptr for array in arrays), part.frontier.size, part.k)
                    table[index, hop] = row
            self._hops = cupy.asarray(table.view(np.uint8).reshape(len(self.turns), -1))
            self._arrived = cupy.zeros((len(self.turns), max(1, len(self.turns[0]))), np.uint32)
        self._arrived.fill(0)

    def together(self, unroll: int, blocks: int) -> None:
        """All hops of all mini-batches in one launch (one for each fanout, where fanouts differ)."""
        for part in self.merged:
            self._launch(part, unroll, blocks)

    def forget(self) -> None:
        """Overwrite all results, so that :meth:`check` finds what is not written anew."""
        for part in self._results(None):
            for array in part.out:
                array.fill(_POISON)

    def _results(self, way: str | None) -> Iterator[_Part]:
        if way != "together":
            yield from self.turns[-1]  # buffers hold the last mini-batch
        if way in (None, "together"):
            yield from self.merged

    def check(self, way: str) -> str | None:
        """Compare what was read and written with the recording; None, or what differs.

        Args:
            way: ``"in turn"``, ``"by barrier"`` (both: the last mini-batch) or ``"together"``.
        """
        graph = self.graph
        for index, part in enumerate(self._results(way)):
            rows = int(part.frontier.size)
            size = rows * part.k
            neighbors, positions, counts = part.out[0][:size], part.out[1][:size], part.out[2][:rows]
            valid = (part.positions >= 0).ravel()
            edges = (graph.indptr[part.frontier][:, None] + part.positions).ravel()[valid]
            degrees = graph.indptr[part.frontier + 1] - graph.indptr[part.frontier]
            wrong = {
                "neighbors": (neighbors[valid] != graph.indices[edges]).any(),
                "positions": (positions[valid] != part.positions.ravel()[valid]).any(),
                "counts": (counts != degrees.clip(None, part.k)).any(),
            }  # fmt: skip
            names = [name for name, differs in wrong.items() if bool(differs)]
            if names:
                return f"{', '.join(names)} of part {index}, replayed {way}, differ from the recording"
        return None

    def checksum(self, way: str) -> int:
        """Sum of all neighbours and positions that were written, modulo 2**64."""
        total = 0
        for part in self._results(way):
            size = part.positions.size
            valid = (part.positions >= 0).ravel()
            for array in part.out[:2]:
                total += int(array[:size][valid].astype(np.uint64).sum())
        return total % 2**64


def checksum_of(graph: Any, recorded: Sequence[Recorded]) -> int:
    """What :meth:`Replay.checksum` must find for ``recorded``, computed on the host from the graph's arrays."""
    indptr, indices, total = to_host(graph.indptr), to_host(graph.indices), 0
    for one in recorded:
        for frontier, slots in zip(map(to_host, one.frontiers), map(to_host, one.positions), strict=True):
            for row, places in zip(frontier.tolist(), slots.tolist(), strict=True):
                begin = int(indptr[row])
                total += sum(int(indices[begin + at]) + at for at in places if at >= 0)
    return total % 2**64


def _sweep(
    replay: Replay,
    points: dict[str, tuple[str, Callable[[], None]]],
    lead_in: Callable[[], None],
    passes: int,
) -> dict[str, Any]:
    """Time every point as one CUDA graph. Returns the best, its spread, and the sweep, all per mini-batch."""
    count = len(replay.recorded)
    times: dict[str, list[float]] = {}
    for label, (way, work) in points.items():
        (graph,) = timing.capture_all([work])
        prepare = replay.prepare if way == "by barrier" else None
        taken = timing.replay_times([graph], prepare, passes, lead_in)
        times[label] = [us / count for us in taken]
    medians = {label: float(np.median(taken)) for label, taken in times.items()}
    best = min(medians, key=medians.__getitem__)
    way, work = points[best]
    replay.forget()
    replay.prepare()
    work()
    differs = replay.check(way)
    if differs:
        raise VerificationError(f"the floor is not timed: {differs}")
    return {**timing.spread(times[best]), "best": best, "sweep": medians}


def _points(quick: bool) -> Iterator[tuple[int, int]]:
    for unroll in UNROLLS[::2] if quick else UNROLLS:
        for blocks in BLOCKS_PER_SM[1::2] + BLOCKS_PER_SM[-1:] if quick else BLOCKS_PER_SM:
            yield unroll, blocks


def latency_floor(
    replay: Replay, lead_in: Callable[[], None], passes: int = 7, quick: bool = False
) -> dict[str, Any]:
    """The recorded mini-batches one after another in one CUDA graph, the hops of each in order.

    Returns:
        ``us`` of a mini-batch, at the best point, with ``p10_us``, ``p90_us`` and ``passes``; the label ``best``
        (blocks per multiprocessor x rows of a thread, ``barrier`` where hops share a launch), ``sweep``: label -> us.
    """
    points: dict[str, tuple[str, Callable[[], None]]] = {}
    for unroll, blocks in _points(quick):
        points[f"{blocks}x{unroll}"] = "in turn", functools.partial(replay.in_turn, unroll, blocks)
    for unroll in UNROLLS[:3:2] if quick else UNROLLS[:3]:
        for blocks in RESIDENT[1:] if quick else RESIDENT:
            work = functools.partial(replay.by_barrier, unroll, blocks)
            points[f"{blocks}x{unroll} barrier"] = "by barrier", work
    replay.prepare()
    return _sweep(replay, points, lead_in, passes)


def throughput_floor(
    replay: Replay, lead_in: Callable[[], None], passes: int = 7, quick: bool = False
) -> dict[str, Any]:
    """All hops of all recorded mini-batches in one launch; as :func:`latency_floor`, per mini-batch."""
    points: dict[str, tuple[str, Callable[[], None]]] = {
        f"{blocks}x{unroll}": ("together", functools.partial(replay.together, unroll, blocks))
        for unroll, blocks in _points(quick)
    }
    return _sweep(replay, points, lead_in, passes)


def lead_in() -> Callable[[], None]:
    """Work for the GPU while the host launches what is timed: a read of a gigabyte. It leaves the L2 cold and clean."""
    return reading(_LEAD_IN_BYTES, 8 * runtime.num_sms())


def reading(num_bytes: int, blocks: int) -> Callable[[], None]:
    """One launch of so many blocks that read so many bytes of device memory."""
    import cupy

    data, out = cupy.zeros(num_bytes // 4, np.uint32), cupy.zeros(1, np.uint32)
    kernel = kernels.load_module("bench/floors/floor.cu", {"ID_T": "int", "UNROLL": 4}).get_function("stream")
    return functools.partial(kernel, (blocks,), (256,), (data, np.uint64(num_bytes // 16), out))


def machine_constants() -> dict[str, float]:
    """Latency of dependent accesses and rates of reads, from microbenchmarks on this GPU.

    Returns:
        ``dram_latency_ns``, ``l2_latency_ns``, ``random_sector_gbps`` (32 bytes counted per access), ``read_gbps``
        (sequential, the fastest pass).
    """
    import cupy

    module = kernels.load_module("bench/floors/floor.cu", {"ID_T": "int", "UNROLL": 8})
    out = cupy.zeros(1, np.uint32)

    def latency_ns(num_bytes: int) -> float:
        stride = 64  # words: every step lands in a line of its own
        n = num_bytes // (4 * stride)
        order = np.random.Generator(np.random.PCG64(0)).permutation(n - 1) + 1
        following = np.zeros(n, np.uint32)
        path = np.concatenate([[0], order])
        following[path] = np.roll(path, -1) * stride
        chain = cupy.zeros(n * stride, np.uint32)
        chain[::stride] = cupy.asarray(following)
        out.fill(0)
        steps = 10_000
        graphs = timing.capture_all(
            [lambda: module.get_function("chase")((1,), (1,), (chain, np.uint32(steps), out))]
        )
        return timing.replay_us(graphs, passes=3) * 1e3 / steps

    dram, l2 = latency_ns(1 << 30), latency_ns(1 << 23)
    data = cupy.zeros(1 << 29, np.uint32)  # 2 GiB
    n = 1 << 24
    where = (cupy.random.default_rng(0).integers(0, data.size // 8, n, dtype=np.uint32) * 8).astype(np.uint32)
    grid = 16 * runtime.num_sms()
    graphs = timing.capture_all(
        [lambda: module.get_function("gather")((grid,), (256,), (data, where, np.uint64(n), out))]
    )
    gather_us = timing.replay_us(graphs, passes=5)
    fastest = math.inf
    for blocks in (8, 16, 32):
        args = (data, np.uint64(data.nbytes // 16), out)
        read = functools.partial(module.get_function("stream"), (blocks * runtime.num_sms(),), (256,), args)
        fastest = min(fastest, *timing.replay_times(timing.capture_all([read]), passes=3))
    return {
        "dram_latency_ns": dram, "l2_latency_ns": l2, "random_sector_gbps": n * 32 / gather_us / 1e3,
        "read_gbps": data.nbytes / fastest / 1e3,
    }  # fmt: skip


def bounds_us(recorded: Recordings, constants: dict[str, float], cache: int) -> dict[str, float]:
    """Microseconds of a mini-batch that no kernel can undercut: ``latency`` and ``throughput``, see :mod:`.bound`.

    Args:
        recorded: the mini-batches that are run.
        constants: of :func:`machine_constants`.
        cache: bytes of the L2 cache.
    """
    touched, per_us = [one.touched for one in recorded], constants["read_gbps"] * 1e3
    in_turn = bound.moved_in_order(touched, recorded.union[-1], cache) / per_us / len(recorded)
    together = bound.moved_together(touched, recorded.union[-1], cache) / per_us / len(recorded)
    chain = bound.chain_us(len(recorded[0].fanouts), constants["l2_latency_ns"])
    return {"latency": max(in_turn, chain), "throughput": together}
