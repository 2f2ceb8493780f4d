"""Strategies as CUDA graphs over rotating batches, to be timed exactly as the replay floors are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from gnnsample_lab.bench.timing import capture_all
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.sampling.neighbors.launch import Knobs
from gnnsample_lab.sampling.neighbors.plan import BATCH, COUNTERS


class Rotation:
    """One strategy's kernels over many batches, each launch with records of its own in device memory.

    Args:
        batches: seeds of each mini-batch; mini-batch ``i`` has batch id ``i``. Those that do not fill the last launch
            are left out.
        together: mini-batches that share a launch, as in ``sample_many``.
        chained: all launches in one graph, one after another; else a graph for each.

    ``graphs`` are to be launched in turn; :meth:`prepare` gives every launch fresh stamps before a pass. ``covered``
    is the number of mini-batches that they sample.
    """

    def __init__(
        self, graph: Any, fanouts: list[int], batches: list[Any], strategy: str, pick: str = "floyd",
        knobs: Knobs | None = None, together: int = 1, chained: bool = False,
    ) -> None:  # fmt: skip
        import cupy

        knobs = knobs or Knobs()
        knobs.relabel_last = False  # the floor has no local ids either
        sampler = NeighborSampler(graph, fanouts, strategy=strategy, pick=pick, device="cuda")
        self.engine = GpuEngine(graph, sampler.spec, None, strategy, "exact", 5, False, None, None, knobs)
        self.together, launches = together, len(batches) // together
        self.covered = launches * together
        ws = self.ws = self.engine.workspace(together, max(int(batch.size) for batch in batches))
        self.records = cupy.zeros((launches, together * BATCH.itemsize), np.uint8)
        self.host = np.zeros((launches, together), BATCH)
        self.kept: list[Any] = []
        for g in range(launches):
            first = g * together
            self.kept.append(self.engine.stage(ws, batches[first : first + together], first))
            self.host[g] = ws.host_batches
        self.prepare()

        def work(g: int) -> Callable[[], None]:
            def run() -> None:
                ws.read_batches_at(self.records[g].data.ptr)
                for phase in self.engine.phases(ws):
                    if phase.name != "scanned":
                        phase.launch()

            return run

        works = [work(g) for g in range(launches)]

        def all_works() -> None:
            for each in works:
                each()

        self.graphs = capture_all([all_works] if chained else works)

    def prepare(self) -> None:
        """Fresh stamps for every launch; the graphs read them from device memory."""
        stamps = [self.ws.stamp() for _ in self.host]
        if any(after < before for (before, _), (after, _) in pairwise(stamps)):
            # The tables are empty and stamps have begun again, so those drawn before are of no use.
            stamps = [self.ws.stamp() for _ in self.host]
        for g, (base, tag) in enumerate(stamps):
            self.host[g]["base"], self.host[g]["tag"] = base, tag
        self.records.set(self.host.view(np.uint8).reshape(self.records.shape))

    def counters(self) -> np.ndarray:
        """The counters of the mini-batch that ran last, on the host; the status is that of its whole launch."""
        each = self.ws.counters.get().reshape(-1, COUNTERS)
        found: np.ndarray = each[-1].copy()
        found[0] = np.bitwise_or.reduce(each[:, 0])
        return found

    def level_sizes(self) -> list[int]:
        """Level sizes of the mini-batch that ran last, from the counters."""
        counters = self.counters()[:20].tolist()
        sizes = [counters[1]]
        for fresh in counters[2 : 2 + self.engine.spec.num_hops]:
            sizes.append(sizes[-1] + fresh)
        return sizes
