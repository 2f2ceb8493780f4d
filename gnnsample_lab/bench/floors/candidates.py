"""Strategies as CUDA graphs over rotating batches, to be timed exactly as the replay floor is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab.bench.timing import capture_all
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.sampling.neighbors.launch import Knobs
from gnnsample_lab.sampling.neighbors.plan import BATCH


class Rotation:
    """One strategy's kernels over many batches, each batch with a record of its own in device memory.

    ``graphs`` are to be launched in turn; :meth:`prepare` gives every batch fresh stamps before a pass.
    """

    def __init__(
        self, graph: Any, fanouts: list[int], batches: list[Any], strategy: str, pick: str = "floyd",
        knobs: Knobs | None = None,
    ) -> None:  # fmt: skip
        import cupy

        knobs = knobs or Knobs()
        knobs.relabel_last = False  # the floor has no local ids either
        sampler = NeighborSampler(graph, fanouts, strategy=strategy, pick=pick, device="cuda")
        self.engine = GpuEngine(graph, sampler.spec, None, strategy, "exact", 5, False, None, None, knobs)
        ws = self.ws = self.engine.workspace(1, max(int(batch.size) for batch in batches))
        self.records = cupy.zeros((len(batches), BATCH.itemsize), np.uint8)
        self.host = np.zeros((len(batches), 1), BATCH)
        self.kept: list[Any] = []
        for g, batch in enumerate(batches):
            self.kept.append(self.engine.stage(ws, [batch], g))
            self.host[g] = ws.host_batches
        self.prepare()

        def work(g: int) -> Callable[[], None]:
            def run() -> None:
                ws.read_batches_at(self.records[g].data.ptr)
                for phase in self.engine.phases(ws):
                    if phase.name != "scanned":
                        phase.launch()

            return run

        self.graphs = capture_all([work(g) for g in range(len(batches))])

    def prepare(self) -> None:
        """Fresh stamps for every batch; the graphs read them from device memory."""
        for g in range(len(self.host)):
            base, tag = self.ws.stamp()
            self.host[g]["base"], self.host[g]["tag"] = base, tag
        self.records.set(self.host.view(np.uint8).reshape(self.records.shape))

    def level_sizes(self) -> list[int]:
        """Level sizes of the batch that ran last, from the counters."""
        counters = self.ws.counters.get()[:20].tolist()
        sizes = [counters[1]]
        for fresh in counters[2 : 2 + self.engine.spec.num_hops]:
            sizes.append(sizes[-1] + fresh)
        return sizes
