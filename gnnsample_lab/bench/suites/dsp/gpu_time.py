"""GPU time of mini-batches on ranks: CUDA graphs of whole mini-batches, and events around what cannot be captured.

A captured mini-batch is drawn, gets its local ids and is made compact: all kernels of a call of ``sample``. Its record
lies in device memory with stamps of its own, so that no replay waits for the host. One graph on a GPU that holds the
whole graph and one whose kernels read peers are captured alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.sampling.neighbors.launch import capture
from gnnsample_lab.sampling.neighbors.plan import BATCH
from gnnsample_lab.sampling.neighbors.workspace import Workspace

_BUSY_US = 100
"""Longer than the host takes for the first launches."""


class Replays:
    """Mini-batches of an engine as CUDA graphs, to be launched in turn.

    Args:
        engine: of the strategy ``"captured"``.
        seeds: of each mini-batch, CuPy arrays of one size; mini-batch i has batch id i.
    """

    def __init__(self, engine: GpuEngine, seeds: Sequence[Any]) -> None:
        import cupy

        for i, array in enumerate(seeds):  # a mini-batch that overflows has the buffers grow
            engine.sample_many([array], i)
        self._records = cupy.zeros((len(seeds), BATCH.itemsize), np.uint8)
        self._host = np.zeros((len(seeds), 1), BATCH)
        self._kept: list[Any] = [engine, seeds]
        self._graphs = []
        for i, array in enumerate(seeds):
            batch = engine.sample_many([array], i)[0]  # its sizes are known now, and where its arrays are
            ws = self._ws = engine.workspace(1, int(array.size))
            self._kept += [batch, ws]
            self._host[i] = ws.host_batches
            self._graphs.append(self._captured(engine, ws, i))

    def _captured(self, engine: GpuEngine, ws: Workspace, i: int) -> Any:
        def work() -> None:
            for phase in engine.phases(ws):
                phase.launch()
            engine.finisher.emit(ws)

        self._stamp()
        before = ws.plan["host_batches"].copy(), ws.plan["batches"].copy()
        ws.read_batches_at(self._records[i].data.ptr)
        try:
            return capture(work)
        finally:
            ws.plan["host_batches"], ws.plan["batches"] = before

    def _stamp(self) -> None:
        """New stamps for every mini-batch, in stream order."""
        for record in self._host:
            record["base"], record["tag"] = self._ws.stamp()
        self._records.set(self._host.view(np.uint8).reshape(self._records.shape))

    def us(self, rounds: int) -> float:
        """GPU microseconds of a mini-batch: all of them, so many times."""
        total = 0.0
        for _ in range(rounds):
            self._stamp()
            total += between_events(lambda: [graph.launch() for graph in self._graphs])
        return total / rounds / len(self._graphs)


def between_events(work: Callable[[], Any]) -> float:
    """GPU microseconds from the begin of ``work`` to its end; the host launches while the GPU is busy with nothing."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    kernel = kernels.load_module("bench/suites/dsp/busy.cu").get_function("busy")
    kernel((1,), (1,), (np.int32(_BUSY_US),))
    begin.record(stream)
    kept = work()
    end.record(stream)
    end.synchronize()
    del kept
    return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e3


class FixedSpans:
    """Events around the CUDA graph of ``csp-fixed`` and around the kernel that makes its result compact.

    Between both the host reads the sizes, which is not in the sum.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._spans: list[float] = []

    def us(self, work: Callable[[], Any], batches: int) -> float:
        """GPU microseconds of a mini-batch of ``work``, which samples so many."""
        fixed, finisher = self._engine.fixed, self._engine.core.finisher
        self._spans.clear()
        fixed.replay, finisher.collect = self._timed(fixed.replay), self._timed(finisher.collect)
        try:
            work()
        finally:
            del fixed.replay, finisher.collect  # the methods again
        return sum(self._spans) / batches

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            found: list[Any] = []
            self._spans.append(between_events(lambda: found.append(call(*args))))
            return found[0]

        return timed
