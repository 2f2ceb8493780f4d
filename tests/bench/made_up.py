"""A session whose timers are made up: ratios, records and tables can be tested without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab import Graph
from gnnsample_lab.bench.floors import floor
from gnnsample_lab.bench.record import graph_facts
from gnnsample_lab.bench.session import Session

MADE_UP_US = {
    "block-bsp": 600.0, "edge-bsp": 500.0, "turbo-bsp": 400.0, "fused-static": 900.0, "persistent": 300.0,
    "persistent-tile": 100.0, "captured": 50.0, "grid-barrier": 60.0, "bsp": 50.0,
}  # fmt: skip


class MadeUpSession(Session):
    """Everything that needs a GPU replaced; ``times`` holds microseconds per strategy."""

    def __init__(self, quick: bool = True, graphs: Sequence[str] | None = None) -> None:
        super().__init__(quick, graphs)
        self.times = dict(MADE_UP_US)
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
        self, name: str, batch_size: int, fanouts: Sequence[int], pick: str, least: int = 3
    ) -> list[floor.Recorded]:
        rows = [np.zeros(batch_size * 2**hop, np.int32) for hop in range(len(fanouts))]
        return [floor.Recorded(rows, [], tuple(fanouts), sum(r.size for r in rows), 1000, 500)] * least

    def verify(
        self, names: Sequence[str], strategies: Sequence[str], *rest: Any, **more: Any
    ) -> dict[str, Any]:
        return {"samples_equal_to_cpu_twin": 1, "strategies": list(strategies)}

    def kernel_us(
        self, name: str, batch_size: int, fanouts: Sequence[int], strategy: str, pick: str
    ) -> dict[str, Any]:
        self.asked.append((name, batch_size, tuple(fanouts), strategy, pick))
        us = self.times[strategy]
        return {"us": us, "best": "knob=2", "sweep": {"knob=1": 2 * us, "knob=2": us}}

    def facts(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: {**graph_facts(self.toy), "title": f"{name} (synthetic)"} for name in names}
