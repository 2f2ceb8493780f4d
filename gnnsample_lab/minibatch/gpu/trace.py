"""Measured traces: the records that kernels write, and events around the phases of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.device import runtime
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.plan import COUNTERS, CTR_ROWS, CTR_TAIL
from gnnsample_lab.sampling.neighbors.strategies import QUEUE_STRATEGIES
from gnnsample_lab.sampling.neighbors.workspace import Workspace

if TYPE_CHECKING:
    from gnnsample_lab.sampling.neighbors.spec import HopPicks

    from .run import GpuEngine

_SECTOR = 32
_OF_HOP = ("prepared", "drawn", "sampled")
"""Marks that a hop's own work leaves."""


class Timing:
    """CUDA events in the order in which they were recorded."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, Any]] = []
        self.buffers: dict[int, Any] = {}
        self.restart()

    def restart(self) -> None:
        """Begin anew: what was recorded is not part of the run."""
        self.events.clear()
        self.buffers.clear()
        self.mark("begin", -1)

    def mark(self, name: str, hop: int) -> None:
        import cupy

        event = cupy.cuda.Event()
        event.record()
        self.events.append((name, hop, event))

    @property
    def has_hops(self) -> bool:
        """Whether each hop has a kernel of its own."""
        return any(name == "drawn" for name, _, _ in self.events)

    def rows(self, hop: int, n: int) -> Any:
        """Record buffer for a hop of ``n`` rows."""
        import cupy

        self.buffers[hop] = cupy.zeros(max(1, n) * 4, np.uint64)
        return self.buffers[hop]

    def between_us(self, name: str, hop: int) -> float:
        """Time from the mark before (name, hop) to it."""
        import cupy

        for (_, _, before), (found, at, event) in zip(self.events, self.events[1:], strict=False):
            if found == name and at == hop:
                return cupy.cuda.get_elapsed_time(before, event) * 1e3
        return 0.0

    def at_us(self, name: str, hop: int) -> float:
        """Time from the beginning to the mark (name, hop); 0 where there is none."""
        return next(
            (self._since_begin(event) for found, at, event in self.events if (found, at) == (name, hop)), 0.0
        )

    def before_us(self, hop: int) -> float:
        """Time from the beginning to the last mark before those of a hop."""
        own = [i for i, (name, at, _) in enumerate(self.events) if at == hop and name in _OF_HOP]
        return self._since_begin(self.events[own[0] - 1][2])

    def total_us(self) -> float:
        return self._since_begin(self.events[-1][2])

    def _since_begin(self, event: Any) -> float:
        import cupy

        return float(cupy.cuda.get_elapsed_time(self.events[0][2], event) * 1e3)


def timed_launch(engine: GpuEngine, ws: Workspace) -> Timing:
    """Do the work of a launch with events between its kernels, therefore never as a captured graph."""
    timing = Timing()
    for phase in engine.phases(ws):
        phase.launch()
        timing.mark(phase.name, phase.hop)
    return timing


def with_trace(engine: GpuEngine, ws: Workspace, batch: MiniBatch, timing: Timing) -> MiniBatch:
    """Build the measured trace of the one mini-batch that ``ws`` holds."""
    import cupy

    queued = engine.launcher.strategy in QUEUE_STRATEGIES
    counters = cupy.asnumpy(ws.counters[:COUNTERS])
    records, hops, vertices, counts = [], [], [], []
    for hop, picks in enumerate(batch.picks):
        rows = int(counters[CTR_ROWS + hop]) if queued else int(picks.frontier.size)
        records.append(cupy.asnumpy(ws.traces[hop][: rows * 4]).reshape(rows, 4))
        entry = ws.plan["hops"][0, hop]
        if queued:
            vertices.append(_read(entry["vertices"], rows, engine.graph.indices.dtype))
        else:
            vertices.append(cupy.asnumpy(picks.frontier))
        counts.append(_read(entry["counts"], rows, np.dtype(np.int32)))
        hops.append(np.full(rows, hop, dtype=np.uint8))
    lost = _lost(ws, counters) if queued and engine.paper else None
    return build_trace(engine, batch, records, hops, vertices, counts, timing, lost)


def with_per_hop_trace(engine: GpuEngine, batch: MiniBatch, timing: Timing) -> MiniBatch:
    """Build the measured trace of a mini-batch that a per-hop baseline sampled."""
    import cupy

    num_hops = engine.spec.num_hops
    records = [cupy.asnumpy(timing.buffers[hop]).reshape(-1, 4) for hop in range(num_hops)]
    vertices = [cupy.asnumpy(p.frontier) for p in batch.picks]
    counts = [cupy.asnumpy(p.counts) for p in batch.picks]
    records = [r[: v.size] for r, v in zip(records, vertices, strict=True)]
    hops = [np.full(v.size, hop, dtype=np.uint8) for hop, v in enumerate(vertices)]
    return build_trace(engine, batch, records, hops, vertices, counts, timing, None)


def build_trace(
    engine: GpuEngine, batch: MiniBatch, records: list[Any], hops: list[Any], vertices: list[Any], counts: list[Any],
    timing: Timing, lost: Any,
) -> MiniBatch:  # fmt: skip
    """``batch`` with its :class:`SampleTrace`."""
    import cupy

    from gnnsample_lab.traces import SampleTrace
    from gnnsample_lab.traces.records import LAUNCH, TIMES_SINCE
    from gnnsample_lab.traces.tables import TaskTable

    from .run import copy_bandwidth_gbps

    flat, hop = np.concatenate(records), np.concatenate(hops)
    vertex = np.concatenate(vertices).astype(np.int64)
    times = _times(flat, hop, timing)
    indptr = engine.graph.indptr
    at = cupy.asarray(vertex)
    degree = cupy.asnumpy(indptr[at + 1] - indptr[at])
    where = flat[:, 3]
    tasks = TaskTable(
        hop=hop, vertex=vertex, degree=degree, num_picks=np.concatenate(counts),
        sm=(where >> np.uint64(32)).astype(np.int16), block=(where & np.uint64(0xFFFFFFFF)).astype(np.int32),
        enqueue_us=times[:, 0], start_us=np.maximum(times[:, 1], times[:, 0]),
        end_us=np.maximum(times[:, 2], times[:, 1]),
    )  # fmt: skip
    before, kernel = _by_hop(tasks, engine.launcher.strategy, engine.spec.num_hops, timing)
    spec, queued = engine.spec, engine.launcher.strategy in QUEUE_STRATEGIES
    fetches = queued and engine.launcher.strategy != "fused-static"
    trace = SampleTrace.from_tasks(
        tasks, origin="measured", device_name=runtime.device_name(), strategy=engine.launcher.strategy,
        graph_name=engine.graph.name, graph_is_synthetic=engine.graph.is_synthetic, num_sms=runtime.num_sms(),
        num_blocks=int(tasks.block.max()) + 1 if len(vertex) else 0, batch_size=batch.level_sizes[0],
        fanouts=spec.fanouts, pick=spec.pick, replace=spec.replace, weighted=spec.weighted, expand=spec.expand,
        seed=spec.seed, batch_id=batch.batch_id, fetch_size=engine.fetch_size if fetches else None,
        completion=("paper" if engine.paper else "exact") if fetches else None, preprocess_us=before,
        kernel_us=kernel, bytes_moved=[_hop_bytes(engine, p) for p in batch.picks], lost=lost,
        total_us=timing.total_us(), copy_bandwidth_gbps=copy_bandwidth_gbps(), meta={TIMES_SINCE: LAUNCH},
    )  # fmt: skip
    return replace(batch, trace=trace)


def _times(records: np.ndarray, hop: np.ndarray, timing: Timing) -> np.ndarray:
    """When each row's task was ready, began and ended, us since the first launch, ``float64[n, 3]``.

    Records have the GPU's clock, which began long ago. A kernel's last task ended before the mark behind the kernel:
    the closest of them says when the first launch was, to within the microsecond or two that a kernel takes to end.
    """
    ran = records[:, 2] > 0  # rows without picks leave no record under edge-bsp
    times = np.zeros((len(records), 3))
    if not ran.any():
        return times
    ns = records[:, :3].astype(np.int64) - int(records[ran, 0].min())
    for h in np.unique(hop[~ran]):
        here, before = ran & (hop == h), ran & (hop < h)
        ns[~ran & (hop == h)] = ns[here, 1].min() if here.any() else ns[before, 2].max(initial=0)
    marks = [("drawn", h, ran & (hop == h)) for h in np.unique(hop[ran]).tolist()]
    closest = min(
        timing.at_us(name, h) * 1e3 - ns[rows, 2].max()
        for name, h, rows in (marks if timing.has_hops else [("sampled", 0, ran)])
    )
    return np.asarray((ns + max(0, round(closest))) / 1e3)


def _by_hop(tasks: Any, strategy: str, num_hops: int, timing: Timing) -> tuple[Any, Any]:
    """``(preprocess_us, kernel_us)`` of each hop, ``float64[num_hops]`` each, by the GPU's clock.

    Events around a short kernel also time the host that launches it, which is part of what comes before the kernel.
    """
    from gnnsample_lab.traces.analysis import hop_kernel_times

    before, kernel = np.zeros(num_hops), hop_kernel_times(tasks, num_hops, strategy in QUEUE_STRATEGIES)
    if strategy == "edge-bsp":  # records are of one of its three kernels
        between = [
            [timing.between_us(name, hop) for hop in range(num_hops)] for name in ("prepared", "drawn")
        ]
        return np.array(between[0]), np.array(between[1])
    for hop in range(num_hops if timing.has_hops else 1):
        rows = tasks.hop == hop if timing.has_hops else slice(None)
        first = tasks.start_us[rows].min(initial=np.inf)
        before[hop] = first - timing.before_us(hop) if first < np.inf else 0.0
    return np.maximum(before, 0.0), kernel


def _hop_bytes(engine: GpuEngine, picks: HopPicks) -> int:
    """Bytes that a hop must move: per row its id, an indptr pair (one sector) and count; per pick a sector of
    ``indices`` and the stored results. The candidates of the reservoir are draws and cost no memory traffic."""
    ids = engine.graph.indices.dtype.itemsize
    rows = int(picks.frontier.size)
    return rows * (ids + _SECTOR + 4) + picks.num_picks * (_SECTOR + ids + 4)


def _read(pointer: Any, count: int, dtype: Any) -> np.ndarray:
    """Copy ``count`` items at a device address to the host."""
    import cupy

    out = np.empty(count, dtype)
    if count:
        cupy.cuda.runtime.memcpy(
            out.ctypes.data, int(pointer), out.nbytes, cupy.cuda.runtime.memcpyDeviceToHost
        )
    return out


def _lost(ws: Workspace, counters: np.ndarray) -> Any:
    """Tasks that were published but never served, read from the queue."""
    import cupy

    from gnnsample_lab.traces.tables import LostTable

    assert ws.queue is not None
    words = cupy.asnumpy(ws.queue[: int(counters[CTR_TAIL])])
    words = words[(words >> np.uint64(63)) == 0]
    hop = (words >> np.uint64(59)) & np.uint64(15)
    return LostTable.of(hop.astype(np.uint8), (words & np.uint64(0xFFFFFFFFFFFF)).astype(np.int64))
