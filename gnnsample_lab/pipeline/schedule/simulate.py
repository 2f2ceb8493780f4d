"""Training pipelines as discrete events: which stage of which mini-batch runs where and when, on any number of GPUs.

Fed with stage times, the model answers what an executor would do with them, on machines that are not there. It knows
nothing of kernels: what stages cost each other when they overlap has to be told (:class:`~.times.Costs`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab import checks

from .allocation import MAX_COUNT, num_samplers, should_switch, trainer_time
from .engine import Barrier, Clock, Machine, Process, Queue, Signal, Simulator
from .timeline import Event, QueueDepth, Timeline, Wait
from .times import STAGES, Costs, StageTimes

EXECUTORS = {
    "serial": "each GPU runs all stages of its share of the mini-batches, one after the other (DSP-Seq)",
    "thread": "on each GPU one worker samples and extracts, another trains (DGL's loader)",
    "streams": "on each GPU the three stages overlap, one mini-batch between two of them",
    "overlapped": "on each GPU sampler, loader and trainer, with queues between them (DSP, section 5)",
    "timeshared": "all GPUs run all stages, whichever is free takes the next mini-batch (GNNLab, section 3)",
    "factored": "samplers and trainers on GPUs of their own, a global queue between them (GNNLab, sections 4 and 5)",
    "batch-mode": "all GPUs sample the whole epoch, swap the topology for the cache, then train (AGL)",
}
MAX_GPUS = 4096
GLOBAL = "global queue"
_QUEUES = {"thread": 1, "streams": 1, "overlapped": 2}
"""Mini-batches that a queue holds: two in DSP (section 5)."""


class _Run:
    """What all executors share: the clock, the machine, the records."""

    def __init__(
        self,
        times: StageTimes,
        gpus: int,
        costs: Costs,
        staleness: int | None,
        dynamic: bool,
        collective: bool,
    ) -> None:
        self.sim = Simulator()
        self.machine = Machine(self.sim, gpus)
        self.clock = Clock(self.sim, staleness)
        self.barrier = Barrier(self.sim)
        self.times, self.gpus, self.costs, self.collective = times, gpus, costs, collective
        # Plain floats: numbers of NumPy are slower one by one, and print their type.
        self.seconds = {
            stage: getattr(times, f"{stage}_s").tolist() for stage in (*STAGES, "standby_extract")
        }
        self.events: list[Event] = []
        self.waits: list[Wait] = []
        self.queues: dict[str, Queue] = {}
        everything = range(times.batches)
        shared = deque(everything)
        self.shares = [shared if dynamic else deque(everything[g::gpus]) for g in range(gpus)]
        self.roles = ["all stages"] * gpus

    def divide_among(self, samplers: int) -> None:
        """A fixed division of the mini-batches among the first ``samplers`` GPUs."""
        for gpu in range(samplers):
            self.shares[gpu] = deque(range(self.times.batches)[gpu::samplers])

    def queue(
        self, name: str, capacity: int | None, producers: int = 1, order: list[int] | None = None
    ) -> Queue:
        found = self.queues[name] = Queue(self.sim, capacity, producers, name, order)
        return found

    def start(self, gpu: int, worker: str, process: Process) -> None:
        self.sim.start(f"{worker} on GPU {gpu}", process)

    def wait(self, gpu: int, worker: str, reason: str, what: str, signal: Signal) -> Any:
        """Waits for ``signal``, and keeps a record if that takes time."""
        since = self.sim.now
        self.sim.note(what)
        value = yield signal
        if self.sim.now > since:
            self.waits.append(Wait(gpu, worker, reason, since, self.sim.now))
        return value

    def stage(
        self, gpu: int, worker: str, stage: str, batch: int, seconds: float, queue: Queue | None = None
    ) -> Process:
        """Runs a stage. Collective ones begin and end on all GPUs of a step together."""
        step, together = batch // self.gpus, self.collective and stage in ("sample", "extract")
        members = min(self.gpus, self.times.batches - step * self.gpus)
        if together:
            what = f"its peers in {stage} of step {step}"
            yield from self.wait(gpu, worker, "others", what, self.barrier.arrive((stage, step, 0), members))
        start, depth = self.sim.now, -1 if queue is None else len(queue)
        host = self.costs.host_share if stage == "extract" else 0.0
        self.sim.note(f"the end of {stage} of mini-batch {batch}")
        yield self.machine.run(gpu, seconds, self.costs.demand.get(stage, 0.0), host)
        self.events.append(Event(gpu, worker, stage, batch, start, self.sim.now, depth))
        if together:
            yield from self.wait(gpu, worker, "others", what, self.barrier.arrive((stage, step, 1), members))

    # ---- what executors are made of -----------------------------------------------------------------------

    def sample(self, gpu: int, worker: str, batch: int, queue: Queue | None = None) -> Process:
        yield from self.stage(gpu, worker, "sample", batch, self.seconds["sample"][batch], queue)

    def extract(
        self, gpu: int, worker: str, batch: int, queue: Queue | None = None, standby: bool = False
    ) -> Process:
        seconds = self.seconds["standby_extract" if standby else "extract"][batch]
        yield from self.stage(gpu, worker, "extract", batch, seconds, queue)

    def train(self, gpu: int, worker: str, batch: int, queue: Queue | None = None) -> Process:
        """A step of ``worker``, who has joined the clock: training, and the exchange of gradients."""
        name = f"{worker} on GPU {gpu}"
        yield from self.wait(gpu, worker, "others", "slower trainers", self.clock.turn(name))
        yield from self.stage(gpu, worker, "train", batch, self.seconds["train"][batch], queue)
        self.clock.finish(name)
        if self.clock.staleness == 0:  # gradients are exchanged when all have theirs
            yield from self.wait(gpu, worker, "others", "slower trainers", self.clock.turn(name))
        if self.costs.update_s:
            yield from self.stage(gpu, worker, "update", batch, self.costs.update_s)

    def hand_over(self, gpu: int, worker: str, batch: int, queue: Queue) -> Process:
        yield from self.wait(gpu, worker, "room", "room in a queue", queue.put(batch))

    def fetch(self, gpu: int, worker: str, queue: Queue) -> Any:
        """The next mini-batch of ``queue``, or None when there will be none."""
        return (yield from self.wait(gpu, worker, "input", "a mini-batch", queue.get()))

    def all_stages(self, gpu: int) -> Process:
        """One worker for everything."""
        while self.shares[gpu]:
            batch = self.shares[gpu].popleft()
            yield from self.sample(gpu, "worker", batch)
            yield from self.extract(gpu, "worker", batch)
            yield from self.train(gpu, "worker", batch)
        self.clock.leave(f"worker on GPU {gpu}")

    def sampling(self, gpu: int, worker: str, out: Queue, extracts: bool = False) -> Process:
        """Samples what is left of the GPU's share and hands it over; closes ``out`` when nothing is."""
        put_s = self.costs.put_s if out.name == GLOBAL else 0.0  # within a GPU nothing is copied
        while self.shares[gpu]:
            batch = self.shares[gpu].popleft()
            yield from self.sample(gpu, worker, batch, out)
            if extracts:
                yield from self.extract(gpu, worker, batch, out)
            if put_s:
                yield from self.stage(gpu, worker, "put", batch, put_s, out)
            yield from self.hand_over(gpu, worker, batch, out)
        out.close()

    def loading(self, gpu: int, worker: str, source: Queue, out: Queue, standby: bool = False) -> Process:
        """Extracts what comes out of ``source``."""
        while (batch := (yield from self.fetch(gpu, worker, source))) is not None:
            if source.name == GLOBAL and self.costs.get_s:
                yield from self.stage(gpu, worker, "get", batch, self.costs.get_s, source)
            yield from self.extract(gpu, worker, batch, source, standby)
            yield from self.hand_over(gpu, worker, batch, out)
        out.close()

    def training(self, gpu: int, worker: str, source: Queue) -> Process:
        """Trains on what comes out of ``source``."""
        while (batch := (yield from self.fetch(gpu, worker, source))) is not None:
            yield from self.train(gpu, worker, batch, source)
        self.clock.leave(f"{worker} on GPU {gpu}")

    def loading_and_training(self, gpu: int, worker: str, source: Queue, standby: bool = False) -> Process:
        """A trainer without a pipeline of its own."""
        while (batch := (yield from self.fetch(gpu, worker, source))) is not None:
            yield from self.unpipelined(gpu, worker, batch, source, standby)
        self.clock.leave(f"{worker} on GPU {gpu}")

    def unpipelined(self, gpu: int, worker: str, batch: int, source: Queue, standby: bool) -> Process:
        if self.costs.get_s:
            yield from self.stage(gpu, worker, "get", batch, self.costs.get_s, source)
        yield from self.extract(gpu, worker, batch, source, standby)
        yield from self.train(gpu, worker, batch, source)

    def start_trainer(
        self, gpu: int, worker: str, source: Queue, pipelined: bool, standby: bool = False
    ) -> None:
        """A trainer that takes samples from ``source``, with or without a pipeline of its own (GNNLab, section 5.2).

        It has joined the clock: in synchronous steps, others wait for it from the start, even while it is not there.
        """
        if not pipelined:
            self.start(gpu, worker, self.loading_and_training(gpu, worker, source, standby))
            return
        between = self.queue(f"extracted on GPU {gpu}", 1)
        loader = f"{worker}'s loader" if standby else "loader"
        self.start(gpu, loader, self.loading(gpu, loader, source, between, standby))
        self.start(gpu, worker, self.training(gpu, worker, between))


def _all_stages(run: _Run, _: dict[str, Any]) -> None:
    for gpu in range(run.gpus):
        run.clock.join(f"worker on GPU {gpu}")
    for gpu in range(run.gpus):
        run.start(gpu, "worker", run.all_stages(gpu))


def _thread(run: _Run, options: dict[str, Any]) -> None:
    for gpu in range(run.gpus):
        run.clock.join(f"trainer on GPU {gpu}")
    for gpu in range(run.gpus):
        ready = run.queue(f"trainer queue of GPU {gpu}", options["capacity"])
        run.start(gpu, "loader", run.sampling(gpu, "loader", ready, extracts=True))
        run.start(gpu, "trainer", run.training(gpu, "trainer", ready))


def _overlapped(run: _Run, options: dict[str, Any]) -> None:
    capacity, workers = options["capacity"], options["workers"]
    for gpu in range(run.gpus):
        run.clock.join(f"trainer on GPU {gpu}")
    for gpu in range(run.gpus):
        # Loaders of all GPUs must meet at the same mini-batch: several samplers may end out of order.
        order = list(run.shares[gpu]) if run.collective else None
        sampled = run.queue(f"loader queue of GPU {gpu}", capacity, workers, order)
        loaded = run.queue(f"trainer queue of GPU {gpu}", capacity, workers, order)
        for number in range(workers):
            suffix = f" {number + 1}" if workers > 1 else ""
            run.start(gpu, f"sampler{suffix}", run.sampling(gpu, f"sampler{suffix}", sampled))
            run.start(gpu, f"loader{suffix}", run.loading(gpu, f"loader{suffix}", sampled, loaded))
        run.start(gpu, "trainer", run.training(gpu, "trainer", loaded))


def _factored(run: _Run, options: dict[str, Any]) -> None:
    samplers, pipelined = options["samplers"], options["pipelined"]
    trainers = run.gpus - samplers
    run.roles = ["sampler"] * samplers + ["trainer"] * trainers
    samples = run.queue(GLOBAL, options["capacity"], samplers)
    mean, get_s = run.times.mean, run.costs.get_s
    step_s = mean("train") + run.costs.update_s  # a trainer exchanges gradients before it trains again
    trainer_s = trainer_time(mean("extract") + get_s, step_s, pipelined)
    standby_s = get_s + mean("standby_extract") + step_s

    def sampler(gpu: int) -> Process:
        yield from run.sampling(gpu, "sampler", samples)
        if not options["switching"]:
            return
        if trainers == 0:  # the profit is infinite for good: a trainer like any other
            run.start_trainer(gpu, "standby", samples, pipelined, standby=True)
            return
        name, joined = f"standby on GPU {gpu}", False
        while len(samples) or not samples.closed:
            if not should_switch(len(samples), trainers, trainer_s, standby_s):
                if samples.closed:
                    break  # fewer samples will wait, never more
                yield from run.wait(gpu, "standby", "input", "samples that wait", samples.watch())
                continue
            batch = yield samples.get()  # one waits
            if not joined:
                run.clock.join(name)
                joined = True
            yield from run.unpipelined(gpu, "standby", batch, samples, standby=True)
        if joined:
            run.clock.leave(name)

    for gpu in range(run.gpus):
        if gpu >= samplers or (trainers == 0 and options["switching"]):
            run.clock.join(f"{'standby' if gpu < samplers else 'trainer'} on GPU {gpu}")
    for gpu in range(samplers):
        run.start(gpu, "sampler", sampler(gpu))
    for gpu in range(samplers, run.gpus):
        run.start_trainer(gpu, "trainer", samples, pipelined)


def _batch_mode(run: _Run, options: dict[str, Any]) -> None:
    samples = run.queue(GLOBAL, options["capacity"], run.gpus)

    def both(gpu: int) -> Process:
        if run.costs.load_topology_s:
            yield from run.stage(gpu, "sampler", "load topology", -1, run.costs.load_topology_s)
        yield from run.sampling(gpu, "sampler", samples)
        if run.costs.load_cache_s:
            yield from run.stage(gpu, "sampler", "load cache", -1, run.costs.load_cache_s)
        run.start_trainer(gpu, "trainer", samples, options["pipelined"])

    for gpu in range(run.gpus):
        run.clock.join(f"trainer on GPU {gpu}")
    for gpu in range(run.gpus):
        run.start(gpu, "sampler", both(gpu))


_BUILD: dict[str, Callable[[_Run, dict[str, Any]], None]] = {
    "serial": _all_stages,
    "thread": _thread,
    "streams": _overlapped,
    "overlapped": _overlapped,
    "timeshared": _all_stages,
    "factored": _factored,
    "batch-mode": _batch_mode,
}


def simulate(
    times: StageTimes,
    executor: str = "overlapped",
    *,
    gpus: int = 1,
    samplers: int | None = None,
    capacity: int | None = None,
    workers: int = 1,
    pipelined: bool = True,
    switching: bool | None = None,
    staleness: int | None = 0,
    scheduler: str | None = None,
    collective: bool = False,
    costs: Costs | None = None,
) -> Timeline:
    """An epoch of training as an executor would run it, modelled from stage times.

    A mini-batch is what one GPU trains on in one step. Every mini-batch is trained exactly once.

    Args:
        times: seconds of each stage for each mini-batch, see ``stage_times``.
        executor: ``"serial"``, ``"thread"``, ``"streams"``, ``"overlapped"`` (DSP, section 5), ``"timeshared"``
            (GNNLab's conventional design, section 3), ``"factored"`` (GNNLab, sections 4 and 5) or ``"batch-mode"``
            (AGL, as GNNLab's section 3 has it).
        gpus: number of GPUs.
        samplers: of ``"factored"``: GPUs that sample; None: by ``num_samplers`` from the mean times. All GPUs may be
            samplers where ``switching`` is on: they sample the whole epoch first, as GNNLab does on one GPU (section
            7.9).
        capacity: mini-batches that a queue holds. None: 2 in ``"overlapped"`` (DSP, section 5), 1 in ``"thread"``
            and ``"streams"``, a whole epoch in ``"batch-mode"`` and in ``"factored"`` with switching (GNNLab stores
            it), two a trainer without.
        workers: of ``"overlapped"``: samplers, and loaders, on each GPU; more than 1 is the variant that DSP rejects
            (section 5).
        pipelined: whether trainers of ``"factored"`` and ``"batch-mode"`` extract while they train (GNNLab, section
            5.2). A standby trainer beside other trainers does not: what it takes must end before the others are done.
        switching: of ``"factored"``: whether samplers that are done train while their profit is positive (GNNLab,
            section 5.3). None: where a single GPU or all GPUs sample. With ``staleness=0`` rounds wait for the samplers
            that train, which can lengthen the epoch, see ``profit``.
        staleness: steps that a trainer may be ahead of the slowest; 0: synchronous updates, all wait for each other in
            every step; None: asynchronous without a bound.
        scheduler: ``"dynamic"``: whoever is free samples the next mini-batch (GNNLab, section 5.2); ``"static"``: every
            GPU has its share from the start. None: static for ``"serial"``, ``"thread"``, ``"streams"`` and
            ``"overlapped"``, dynamic for the others.
        collective: of executors where every GPU samples: sampling and extraction of a step begin and end on all GPUs
            together, as all-to-all communication makes them (DSP, section 4). Mini-batches 0 to ``gpus`` - 1 are the
            first step.
        costs: what surrounds the stages, and what they take of the GPU and the host's link; None: nothing.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or value, or one that the executor does not have.
        RuntimeError: the schedule is deadlocked.
    """
    checks.instance("times", times, StageTimes, "stage times (see stage_times)")
    checks.choice("executor", executor, tuple(EXECUTORS))
    gpus = checks.whole("gpus", gpus, 1, MAX_GPUS)
    samplers = checks.optional(checks.whole, "samplers", samplers, 1, gpus)
    capacity = checks.optional(checks.whole, "capacity", capacity, 1, MAX_COUNT)
    workers = checks.whole("workers", workers, 1, 64)
    pipelined = checks.flag("pipelined", pipelined)
    switching = checks.optional(checks.flag, "switching", switching)
    staleness = checks.optional(checks.whole, "staleness", staleness, 0, MAX_COUNT)
    scheduler = checks.choice("scheduler", scheduler, (None, "dynamic", "static"))
    collective = checks.flag("collective", collective)
    costs = Costs() if costs is None else checks.instance("costs", costs, Costs, "costs of schedule.Costs")
    factored = executor == "factored"
    trains_apart = executor in ("factored", "batch-mode")
    has_queue = trains_apart or executor in _QUEUES
    queued = "'thread', 'streams', 'overlapped', 'factored' and 'batch-mode'"
    _only("capacity", capacity is not None and not has_queue, queued, executor)
    _only("pipelined", not pipelined and not trains_apart, "'factored' and 'batch-mode'", executor)
    if not factored:
        _only("samplers", samplers is not None, "'factored'", executor)
        _only("switching", bool(switching), "'factored'", executor)
    _only("workers", workers > 1 and executor != "overlapped", "'overlapped'", executor)
    if collective and (executor in ("factored", "batch-mode", "timeshared") or scheduler == "dynamic"):
        raise ValueError(
            "collective must be False where mini-batches are not divided among the GPUs from the start "
            f"(got True with {executor!r}, scheduler {scheduler!r})"
        )
    samplers, switching = (
        _split(times, gpus, samplers, switching, pipelined, costs) if factored else (gpus, False)
    )
    if capacity is None:
        capacity = _QUEUES.get(executor)
        if factored and not switching:
            capacity = 2 * (gpus - samplers)
    elif capacity < times.batches and (executor == "batch-mode" or (samplers == gpus and factored)):
        raise ValueError(
            f"capacity must hold all {times.batches} mini-batches where sampling ends before training begins "
            f"(got {capacity})"
        )
    dynamic = (
        executor in ("timeshared", "factored", "batch-mode") if scheduler is None else scheduler == "dynamic"
    )
    run = _Run(times, gpus, costs, staleness, dynamic, collective)
    if factored and not dynamic:
        run.divide_among(samplers)
    _BUILD[executor](
        run,
        {
            "samplers": samplers,
            "capacity": capacity,
            "workers": workers,
            "pipelined": pipelined,
            "switching": switching,
        },
    )
    run.sim.run()
    settings = {
        "samplers": samplers if factored else None,
        "capacity": capacity,
        "workers": workers,
        "pipelined": pipelined,
        "switching": switching,
        "staleness": staleness,
        "scheduler": "dynamic" if dynamic else "static",
        "collective": collective,
        "costs": costs,
    }
    return _finished(run, executor, settings)


def _only(name: str, given: bool, whose: str, executor: str) -> None:
    if given:
        raise ValueError(f"{name} is an argument of executor {whose} (got executor {executor!r})")


def _split(
    times: StageTimes, gpus: int, samplers: int | None, switching: bool | None, pipelined: bool, costs: Costs
) -> tuple[int, bool]:
    """Samplers of the factored executor, and whether they switch."""
    if samplers is None:
        step_s = times.mean("train") + costs.update_s
        trainer_s = trainer_time(times.mean("extract") + costs.get_s, step_s, pipelined)
        sample_s = times.mean("sample") + costs.put_s
        samplers = num_samplers(gpus, sample_s, trainer_s, keep_trainer=not switching)
    if switching is None:
        switching = samplers == gpus
    if samplers == gpus and not switching:
        raise ValueError(
            f"samplers must be at most {gpus - 1} of {gpus} GPUs where samplers do not switch (got {samplers})"
        )
    return samplers, switching


def _finished(run: _Run, executor: str, settings: dict[str, Any]) -> Timeline:
    events = sorted(run.events, key=lambda e: (e.start_s, e.end_s, e.gpu))
    waits = sorted(run.waits, key=lambda w: (w.start_s, w.end_s, w.gpu))
    queues = {
        name: QueueDepth(np.array(q.times), np.array(q.depths, dtype=np.int64), q.capacity, q.most)
        for name, q in run.queues.items()
    }
    found = Timeline(
        executor=executor,
        gpus=run.gpus,
        roles=tuple(run.roles),
        events=tuple(events),
        waits=tuple(waits),
        queues=queues,
        epoch_s=max((e.end_s for e in events), default=0.0),
        times=run.times,
        settings=settings,
    )
    if sorted(found.trained) != list(range(run.times.batches)):
        raise RuntimeError("the schedule lost or repeated a mini-batch: this is a fault of the model")
    return found
