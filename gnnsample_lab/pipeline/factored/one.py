"""The factored design on one device: sample an epoch, then train on it (GNNLab, sections 5.3 and 7.9)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gnnsample_lab.pipeline.executors import Ready, Sampled, Stages, ahead

from .slots import OwnSlots, pack


@dataclass(eq=False)
class _Stored(Stages):
    """Stages of the second half: sampling is fetching what was stored in host memory."""

    slots: OwnSlots = field(default_factory=OwnSlots)
    headers: deque[Any] = field(default_factory=deque)
    depths: list[tuple[float, int]] = field(default_factory=list)
    place: int = 0

    def sample_window(self, sampler: int = 0, samplers: int = 1) -> list[Sampled]:
        if not self.headers:
            return []
        header = self.headers.popleft()
        self.depths.append((self.clock.now_us(), len(self.headers)))
        with self.clock.stage("get", 0) as noted:
            batch, marks = self.slots.read(self.place, header)
            noted.batch = int(batch.batch_id)
        self.place += 1
        return [Sampled(batch, marks, self.place - 1)]


def whole_epoch(stages: Stages) -> Iterator[Ready]:
    """Store all samples of the epoch in host memory, marked; then train, extracting ahead."""
    clock = stages.clock
    clock.work_as("sampler")
    slots = stages.storage or OwnSlots(stages.device)
    headers: deque[Any] = deque()
    depths = [(0.0, 0)]
    while window := stages.sample_window():
        for batch, marks, _ in window:
            with clock.stage("put", int(batch.batch_id)):
                headers.append(slots.write(len(headers), pack(batch, marks)))
            depths.append((clock.now_us(), len(headers)))
        del window, batch, marks
    own = {name: getattr(stages, name) for name in Stages.__dataclass_fields__}
    stages.queues["global queue"] = depths
    yield from ahead(_Stored(**own, slots=slots, headers=headers, depths=depths))
