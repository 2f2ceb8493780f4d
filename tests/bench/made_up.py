"""A session whose timers are made up: ratios, records and tables can be tested without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab import Graph
from gnnsample_lab.bench import session
from gnnsample_lab.bench.floors import bound, floor
from gnnsample_lab.bench.record import graph_facts
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import PUBLISHED_QUEUE

MADE_UP_US = {
    "block-bsp": 600.0, "edge-bsp": 500.0, "turbo-bsp": 400.0, "fused-static": 900.0, "persistent": 300.0,
    "persistent-tile": 100.0, "captured": 50.0, "grid-barrier": 60.0, "bsp": 50.0,
    PUBLISHED_QUEUE: 480.0,
}  # fmt: skip


class MadeUpSession(Session):
    """Everything that needs a GPU replaced; ``times`` holds microseconds per strategy."""

    def __init__(self, quick: bool = True, graphs: Sequence[str] | None = None) -> None:
        super().__init__(quick, graphs)
        self.times = dict(MADE_UP_US)
        self.picks = 2_000_000
        self.asked: list[tuple[str, int, tuple[int, ...], str, str]] = []
        rng = np.random.default_rng(0)
        self.toy = Graph.from_edges(rng.integers(0, 50, 400), rng.integers(0, 50, 400), 50, name="toy")

    def require_gpu(self, suite: str) -> None:
        return None

    def graph(self, name: str, device: str = "cuda") -> Any:
        return self.toy

    def batches(self, name: str, batch_size: int, count: int) -> list[Any]:
        return [np.arange(i, i + 4) for i in range(count)]

    def recorded(
        self, name: str, batch_size: int, fanouts: Sequence[int], pick: str, least: int = 8
    ) -> floor.Recordings:
        rows = [np.zeros(batch_size * 2**hop, np.int32) for hop in range(len(fanouts))]
        touched = bound.Touched((500,) * len(fanouts), 1000, 8000)
        one = floor.Recorded(rows, [], tuple(fanouts), self.picks, touched)
        return floor.Recordings([one] * least, [1000 * (i + 1) for i in range(least)])

    def l2_bytes(self) -> int:
        return 1000

    def l2_state(
        self, name: str, batch_size: int, fanouts: Sequence[int], pick: str, count: int | None = None
    ) -> str:
        union = self.recorded(name, batch_size, fanouts, pick).union
        return session.l2_state(32 * union[min(count or len(union), len(union)) - 1], self.l2_bytes())

    def verify(
        self, names: Sequence[str], strategies: Sequence[str], *rest: Any, **more: Any
    ) -> dict[str, Any]:
        return {"samples_equal_to_cpu_twin": 1, "strategies": list(strategies)}

    def kernel_us(
        self,
        name: str,
        batch_size: int,
        fanouts: Sequence[int],
        strategy: str,
        pick: str,
        chained: bool = False,
    ) -> dict[str, Any]:
        self.asked.append((name, batch_size, tuple(fanouts), strategy, pick))
        us = self.times[strategy]
        sweep = {"knob=1": 2 * us, "knob=2": us, "block_threads=128": 1.5 * us}
        return {
            "us": us,
            "p10_us": 0.9 * us,
            "p90_us": 1.2 * us,
            "passes": 7,
            "best": "knob=2",
            "sweep": sweep,
        }

    def together_us(
        self,
        name: str,
        batch_size: int,
        fanouts: Sequence[int],
        strategy: str,
        pick: str,
        sizes: Sequence[int],
    ) -> dict[str, Any]:
        us = self.times[strategy] / 2
        return {"us": us, "p10_us": us, "p90_us": us, "passes": 7, "best": "8 in a launch", "sweep": {}}

    def facts(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: {**graph_facts(self.toy), "title": f"{name} (synthetic)"} for name in names}
