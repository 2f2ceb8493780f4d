"""The draw kernels of the per-hop baselines alone, on recorded frontiers, to be timed as the replay floor is.

Counts, scans and allocations are done beforehand and not timed: this is what the papers call kernel time, and it
leaves these baselines less work than the strategies that they are compared with, which also deduplicate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.bench.timing import capture_all
from gnnsample_lab.minibatch.gpu.per_hop import PerHopSampler
from gnnsample_lab.sampling.neighbors.launch import Knobs, Launcher
from gnnsample_lab.sampling.neighbors.spec import make_spec

from .floor import Recorded


@dataclass(frozen=True)
class _Hop:
    """What a hop's draw kernels read: made before the clock runs."""

    rows: Any
    offsets: Any
    scanned: Any
    total: int


class PerHopRotation:
    """One per-hop strategy's draw kernels over many recorded batches; batch ``i`` has batch id ``i``.

    Args:
        recorded: samples of the same fanouts and pick, drawn with sampler seed 0.
        strategy: ``"block-bsp"``, ``"edge-bsp"`` or ``"turbo-bsp"``.

    ``graphs`` holds one CUDA graph per batch.
    """

    def __init__(
        self, graph: Any, fanouts: Sequence[int], recorded: Sequence[Recorded], strategy: str, pick: str,
        knobs: Knobs | None = None,
    ) -> None:  # fmt: skip
        import cupy

        self.graph, self.recorded = graph, recorded
        self.spec = make_spec(list(fanouts), pick, False, False, "frontier", 0)
        self.launcher = Launcher(graph, self.spec, strategy, False, knobs or Knobs())
        self.sampler = PerHopSampler(graph, self.spec, None, self.launcher)
        self.hops = [
            [self._prepared(rows, hop) for hop, rows in enumerate(one.frontiers)] for one in recorded
        ]
        most = max(1, max(hop.total for batch in self.hops for hop in batch))
        self.neighbors = cupy.empty(most, graph.indices.dtype)
        self.positions = cupy.empty(most, np.int64)
        self.slots = cupy.empty(most, np.int32)

        def work(batch: int) -> Callable[[], None]:
            def run() -> None:
                for hop in range(self.spec.num_hops):
                    self.draw(batch, hop)

            return run

        self.graphs = capture_all([work(batch) for batch in range(len(recorded))])

    def _prepared(self, rows: Any, hop: int) -> _Hop:
        import cupy

        n = int(rows.size)
        counts = cupy.zeros(n, np.int32)
        work = cupy.zeros(n, np.int64) if self.sampler.strategy != "block-bsp" else None
        args = (
            self.sampler.args, rows, np.uint64(n), np.int32(self.spec.fanouts[hop]), counts,
            np.uint64(0) if work is None else work,
        )  # fmt: skip
        self.sampler.k["count_rows"]((max(1, -(-n // 256)),), (256,), args)
        offsets = cupy.zeros(n + 1, np.int64)
        cupy.cumsum(counts, out=offsets[1:])
        scanned = None
        if work is not None:
            scanned = cupy.zeros(n + 1, np.int64)
            cupy.cumsum(work, out=scanned[1:])
        return _Hop(rows, offsets, scanned, int(offsets[-1]))

    def draw(self, batch: int, hop: int) -> None:
        """Launch one hop's draw kernels, exactly as :meth:`PerHopSampler.draw` does; :meth:`check` compares."""
        at = self.hops[batch][hop]
        n = int(at.rows.size)
        if not n:
            return
        k, sms, knobs = self.sampler.k, self.launcher.sms, self.launcher.knobs
        size, fanout, untraced = np.uint64(n), np.int32(self.spec.fanouts[hop]), np.uint64(0)
        head, ids = (self.sampler.args, at.rows), (np.int32(hop), np.uint32(batch))
        out = (self.slots, self.neighbors, self.positions)
        if self.sampler.strategy == "block-bsp":
            k["draw_blocks"]((n,), (knobs.block_threads,), (*head, fanout, *ids, at.offsets, *out, untraced))
        elif self.sampler.strategy == "turbo-bsp":
            grid = (min(n, knobs.blocks_per_sm["turbo-bsp"] * sms),)
            k["draw_balanced"](
                grid, (128,), (*head, size, fanout, *ids, at.offsets, *out, at.scanned, untraced)
            )
        else:
            grid = (knobs.blocks_per_sm["edge-bsp"] * sms,)
            k["edge_begin"](grid, (256,), (*head, size, fanout, *ids, at.offsets, self.slots))
            k["edge_draw"](grid, (256,), (*head, size, fanout, *ids, at.offsets, self.slots, at.scanned))
            k["edge_gather"](grid, (256,), (*head, size, at.offsets, *out, untraced))

    def check(self, batch: int = -1) -> str | None:
        """Draw one batch and compare its edge positions with the recorded ones; None, or what differs."""
        import cupy

        batch %= len(self.recorded)
        one = self.recorded[batch]
        for hop, (rows, slots) in enumerate(zip(one.frontiers, one.positions, strict=True)):
            self.draw(batch, hop)
            total = self.hops[batch][hop].total
            recorded = (self.graph.indptr[rows][:, None] + slots)[slots >= 0]
            if total != int(recorded.size):
                return f"hop {hop} of batch {batch}: {total} picks, recorded {int(recorded.size)}"
            if not bool((cupy.sort(recorded) == cupy.sort(self.positions[:total])).all()):
                return f"hop {hop} of batch {batch}: other picks than recorded"
        return None
