"""What a simulated epoch leaves behind: who did what when, who waited for what, how full the queues were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .times import StageTimes


@dataclass(frozen=True, slots=True)
class Event:
    """A stage of one mini-batch on one GPU.

    Attributes:
        gpu: number of the GPU. worker: role of what ran it: ``"sampler"``, ``"loader"``, ``"trainer"``,
            ``"standby"`` or ``"worker"`` (does all stages); numbered where a GPU has several of the same role.
        stage: ``"sample"``, ``"put"``, ``"get"``, ``"extract"``, ``"train"``, ``"update"``, ``"load topology"`` or
            ``"load cache"``.
        batch: id of the mini-batch; -1 where there is none.
        start_s, end_s: seconds since the epoch began.
        depth: mini-batches in the queue that the stage puts into or took from, as it began; -1 without a queue.
    """

    gpu: int
    worker: str
    stage: str
    batch: int
    start_s: float
    end_s: float
    depth: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Time in which a worker could not go on: ``reason`` is ``"input"`` (nothing to take), ``"room"`` (the queue is
    full) or ``"others"`` (a barrier, or the bound on staleness)."""

    gpu: int
    worker: str
    reason: str
    start_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class QueueDepth:
    """A queue over time: ``depth[i]`` mini-batches wait from ``time_s[i]`` on. ``capacity`` None: no limit.

    ``most``: the largest number that waited; also for no longer than an instant, which ``depth`` leaves out.
    """

    time_s: npt.NDArray[np.float64]
    depth: npt.NDArray[np.int64]
    capacity: int | None
    most: int


@dataclass(frozen=True, eq=False)
class Epoch:
    """Who did what when in an epoch, modelled or measured.

    Attributes:
        executor: name of the executor. gpus: number of GPUs.
        roles: what each GPU is for: ``"sampler"``, ``"trainer"`` or ``"all stages"``.
        events: stages in the order of their start. waits: likewise.
        queues: name -> depth over time.
        epoch_s: seconds to the end of the last event.
        origin: label for figures.
    """

    executor: str
    gpus: int
    roles: tuple[str, ...]
    events: tuple[Event, ...]
    waits: tuple[Wait, ...]
    queues: Mapping[str, QueueDepth]
    epoch_s: float

    if TYPE_CHECKING:

        @property
        def origin(self) -> str: ...

    @property
    def switched(self) -> int:
        """Mini-batches that standby trainers trained on."""
        return sum(e.stage == "train" and e.worker == "standby" for e in self.events)

    def to_perfetto(self, path: str | Path) -> Path:
        """Write the epoch as trace events in JSON, which Perfetto (ui.perfetto.dev) and Chrome's tracing page open.

        A GPU or rank is a process of the file, each of its workers a thread; what waits stands in threads of its own.
        The depth of each queue is a counter. Times are microseconds since the epoch began.

        Args:
            path: of the file; ``.json`` is appended when the name has no suffix.

        Returns:
            The path written.

        Raises:
            TypeError: ``path`` is no path.
            ValueError: ``path`` is a folder, or a time is not finite.
            OSError: the folder cannot be written.
        """
        from gnnsample_lab.traces.perfetto import epoch_events

        about = {"origin": self.origin, "executor": self.executor, "gpus": self.gpus, "epoch_s": self.epoch_s}
        title = f"{self.executor} · {self.gpus} GPU{'s' * (self.gpus > 1)} · {self.origin}"
        events = epoch_events(title, about, self.roles, self.events, self.waits, self.queues)
        return events.write(path)


@dataclass(frozen=True, eq=False)
class Timeline(Epoch):
    """One epoch as the schedule model has it: nothing in it was measured but, perhaps, the stage times.

    Attributes:
        times: the stage times that the model was fed with.
        settings: the arguments that the result depends on.
    """

    times: StageTimes
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Label for figures."""
        return f"modelled from stage times: {self.times.source}"

    @property
    def trained(self) -> list[int]:
        """Ids of the mini-batches in the order in which their training ended."""
        ended = sorted((e.end_s, i, e.batch) for i, e in enumerate(self.events) if e.stage == "train")
        return [batch for _, _, batch in ended]

    @property
    def busy_s(self) -> dict[str, npt.NDArray[np.float64]]:
        """Stage -> float64[gpus]: seconds in which it ran on each GPU."""
        found: dict[str, npt.NDArray[np.float64]] = {}
        for e in self.events:
            found.setdefault(e.stage, np.zeros(self.gpus))[e.gpu] += e.end_s - e.start_s
        return found

    @property
    def wait_s(self) -> dict[str, npt.NDArray[np.float64]]:
        """Reason -> float64[gpus]: seconds in which workers of each GPU waited."""
        found: dict[str, npt.NDArray[np.float64]] = {}
        for w in self.waits:
            found.setdefault(w.reason, np.zeros(self.gpus))[w.gpu] += w.end_s - w.start_s
        return found

    @property
    def utilisation(self) -> npt.NDArray[np.float64]:
        """float64[gpus]: share of the epoch in which something ran on the GPU."""
        busy = np.zeros(self.gpus)
        until = np.zeros(self.gpus)
        for e in self.events:  # in the order of their start
            start = max(e.start_s, until[e.gpu])
            if e.end_s > start:
                busy[e.gpu] += e.end_s - start
                until[e.gpu] = e.end_s
        return busy / self.epoch_s if self.epoch_s > 0 else busy

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row an event."""
        import pandas as pd

        names = Event.__slots__
        return pd.DataFrame([[getattr(e, name) for name in names] for e in self.events], columns=list(names))

    def __str__(self) -> str:
        used = ", ".join(f"{share:.0%}" for share in self.utilisation)
        moved = f", {self.switched} mini-batches on standby trainers" if self.switched else ""
        return (
            f"{self.executor} on {self.gpus} GPU{'s' * (self.gpus > 1)}: epoch {self.epoch_s:.4g} s, "
            f"GPUs busy {used}{moved} ({self.origin})"
        )
