"""How much of what overlapping can gain a run has gained: serial stage times, their ceiling, and the share reached."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from .records import EpochRecord, TrainResult

STAGES = ("sample", "extract", "train")


@dataclass(frozen=True)
class Overlap:
    """A serial run and one of the same work with a worker a stage; milliseconds of a mini-batch of one rank.

    Attributes:
        stage_ms: by stage, one after the other.
        serial_ms, overlapped_ms: wall time of each run.
    """

    stage_ms: dict[str, float]
    serial_ms: float
    overlapped_ms: float

    @property
    def ceiling(self) -> float:
        """Sum over the longest of the serial stages: no pipeline of these stages gains more."""
        return sum(self.stage_ms.values()) / max(self.stage_ms.values())

    @property
    def gained(self) -> float:
        """Sum of the serial stages over what a mini-batch took when they overlapped."""
        return sum(self.stage_ms.values()) / self.overlapped_ms

    @property
    def share(self) -> float:
        """What was gained of the ceiling: the longest serial stage over what a mini-batch took."""
        return self.gained / self.ceiling


def after_the_first(result: TrainResult) -> list[EpochRecord]:
    """Epochs without the first, which compiles kernels and fills memory pools; all of one."""
    return result.epochs[1:] or result.epochs


def step_ms(result: TrainResult) -> list[float]:
    """Milliseconds of a step of each epoch after the first."""
    return [epoch.total_us / 1e3 / epoch.num_batches for epoch in after_the_first(result)]


def overlap(serial: TrainResult, overlapped: TrainResult) -> Overlap:
    """Compare two runs of the same work; medians over epochs after the first.

    Raises:
        ValueError: the runs trained on other mini-batches.
    """
    if serial.batch_ids != overlapped.batch_ids or serial.ranks != overlapped.ranks:
        raise ValueError("both runs must train on the same mini-batches, with as many ranks")
    stages = {}
    for stage in STAGES:
        each = [epoch.stage_us[stage] / max(epoch.tasks, 1) for epoch in after_the_first(serial)]
        stages[stage] = statistics.median(each) / 1e3
    return Overlap(stages, statistics.median(step_ms(serial)), statistics.median(step_ms(overlapped)))
