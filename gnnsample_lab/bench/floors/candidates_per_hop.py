"""The draw kernels of the per-hop baselines alone, on recorded frontiers, to be timed as the latency floor is.

Counts, scans and allocations are done beforehand and not timed: this is what the papers call kernel time, and it
leaves these baselines less work than the strategies that they are compared with, which also deduplicate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.bench.timing import capture_all
from gnnsample_lab.minibatch.gpu.per_hop import PerHopSampler
from gnnsample_lab.sampling.neighbors.launch import Knobs, Launcher
from gnnsample_lab.sampling.neighbors.spec import make_spec

from .floor import Recorded


class PerHopRotation:
    """One per-hop strategy's draw kernels over many recorded batches; batch ``i`` has batch id ``i``.

    Args:
        recorded: samples of the same fanouts and pick, drawn with sampler seed 0.
        strategy: ``"block-bsp"``, ``"edge-bsp"`` or ``"turbo-bsp"``.
        chained: all batches in one CUDA graph, one after another; else a graph for each.

    ``graphs`` holds the CUDA graphs.
    """

    def __init__(
        self, graph: Any, fanouts: Sequence[int], recorded: Sequence[Recorded], strategy: str, pick: str,
        knobs: Knobs | None = None, chained: bool = False,
    ) -> None:  # fmt: skip
        import cupy

        self.graph, self.recorded = graph, recorded
        self.spec = make_spec(list(fanouts), pick, False, False, "frontier", 0)
        self.launcher = Launcher(graph, self.spec, strategy, False, knobs or Knobs())
        self.sampler = PerHopSampler(graph, self.spec, None, self.launcher)
        self.hops = [
            [self.sampler.prepare(rows, hop) for hop, rows in enumerate(one.frontiers)] for one in recorded
        ]
        most = max(1, max(hop.total for batch in self.hops for hop in batch))
        self.neighbors = cupy.empty(most, graph.indices.dtype)
        self.positions = cupy.empty(most, np.int64)
        self.slots = cupy.empty(most, np.int32)
        self.coo_rows = cupy.empty(most, graph.indices.dtype) if strategy == "block-bsp" else None

        def work(batch: int) -> Callable[[], None]:
            def run() -> None:
                for hop in range(self.spec.num_hops):
                    self.draw(batch, hop)

            return run

        works = [work(batch) for batch in range(len(recorded))]

        def all_works() -> None:
            for each in works:
                each()

        self.graphs = capture_all([all_works] if chained else works)

    def draw(self, batch: int, hop: int, coo: bool = False) -> None:
        """Launch one hop's draw kernels, into COO arrays where asked; :meth:`check` compares what they draw."""
        self.sampler.launch_draw(
            self.hops[batch][hop], hop, batch, (self.slots, self.neighbors, self.positions),
            coo_rows=self.coo_rows if coo else None,
        )  # fmt: skip

    def check(self, batch: int = -1) -> str | None:
        """Draw one batch and compare its edge positions with the recorded ones; None, or what differs."""
        import cupy

        batch %= len(self.recorded)
        one = self.recorded[batch]
        for hop, (rows, slots) in enumerate(zip(one.frontiers, one.positions, strict=True)):
            self.draw(batch, hop, coo=self.coo_rows is not None)
            total = self.hops[batch][hop].total
            recorded = (self.graph.indptr[rows][:, None] + slots)[slots >= 0]
            if total != int(recorded.size):
                return f"hop {hop} of batch {batch}: {total} picks, recorded {int(recorded.size)}"
            if not bool((cupy.sort(recorded) == cupy.sort(self.positions[:total])).all()):
                return f"hop {hop} of batch {batch}: other picks than recorded"
            if self.coo_rows is not None:
                counts = self.hops[batch][hop].counts
                if not bool((self.coo_rows[:total] == cupy.repeat(rows, counts.get().tolist())).all()):
                    return f"hop {hop} of batch {batch}: other rows of the COO arrays than those of the picks"
        return None
