"""Stage times without waiting: CUDA events that are read once at the end of an epoch, or the clock on a CPU."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gnnsample_lab.device.capturing import wait_for_device
from gnnsample_lab.device.streams import current_torch_stream
from gnnsample_lab.distributed.ranks.errors import note_stage

from .records import StageEvent


@dataclass
class Noted:
    """A stage that is being timed; ``batch`` may be set before it ends, where it is not known before."""

    worker: str
    name: str
    batch: int


class StageClock:
    """Notes when named stages ran, each on the stream that is current when it is entered.

    Stages may be entered from several threads. All ranks of a host read the same clock.

    Args:
        device: ``"cuda"`` records a pair of events a stage, ``"cpu"`` reads the clock.
        rank: of the events.

    Attributes:
        begin_s: when the clock was made, in seconds of the host's monotonic clock.
        events: after :meth:`finish`, by start; times in microseconds since ``begin_s``.
    """

    def __init__(self, device: str, rank: int = 0) -> None:
        self.device, self.rank = device, rank
        self.events: list[StageEvent] = []
        self._notes: list[tuple[Noted, Any, Any]] = []
        self._here = threading.local()
        self._origin: Any = None
        if device == "cuda":
            import torch

            self._origin = torch.cuda.Event(enable_timing=True)
            self._origin.record()
            self._origin.synchronize()
        self.begin_s = time.perf_counter()

    def now_us(self) -> float:
        """Microseconds since :attr:`begin_s`."""
        return (time.perf_counter() - self.begin_s) * 1e6

    def work_as(self, worker: str) -> None:
        """From now on the calling thread's stages are those of ``worker``."""
        self._here.worker = worker

    @contextmanager
    def stage(self, name: str, batch: int = -1) -> Iterator[Noted]:
        """Time what the block does (on a GPU: what it enqueues) as stage ``name`` of mini-batch ``batch``."""
        noted = Noted(getattr(self._here, "worker", "worker"), name, batch)
        first = self._mark()
        try:
            yield noted
        except BaseException as error:  # an exit and an interrupt, too
            note_stage(error, name)
            raise
        self._notes.append((noted, first, self._mark()))

    def _mark(self) -> Any:
        if self.device == "cpu":
            return self.now_us()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record(current_torch_stream())
        return event

    def _us(self, mark: Any) -> float:
        return mark if self.device == "cpu" else self._origin.elapsed_time(mark) * 1e3

    def finish(self) -> tuple[dict[str, float], float]:
        """Wait for the device. Returns stage times and the wall time since construction, in microseconds."""
        if self.device == "cuda":
            wait_for_device()
        wall_us = self.now_us()
        spent: defaultdict[str, float] = defaultdict(float)
        for noted, first, last in self._notes:
            start_us, end_us = self._us(first), self._us(last)
            if noted.batch >= 0:
                self.events.append(
                    StageEvent(self.rank, noted.worker, noted.name, noted.batch, start_us, end_us)
                )
            spent[noted.name] += end_us - start_us
        self._notes.clear()
        self.events.sort(key=lambda event: event.start_us)
        return dict(spent), wall_us
