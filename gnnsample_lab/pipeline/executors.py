"""How the stages of consecutive mini-batches overlap: not at all, by threads, or by streams alone.

Each executor is a generator of :class:`Ready` mini-batches for the training loop, and is told through
``Ready.finish`` when the device has finished with one. All take the same steps in the same order, so the losses do not
depend on the executor.

Memory is the trap: CuPy's and PyTorch's pools hand a freed block on to the next user *of the same stream*, in the
belief that this stream's order protects it (:mod:`gnnsample_lab.device.streams`). A mini-batch that is dropped while
the training stream is current would make its own stream wait for everything enqueued there. :class:`Held` keeps it
until the step that read it is known to be behind, so that the streams go on overlapping.
"""

from __future__ import annotations

import functools
import itertools
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gnnsample_lab.device.polling import beside_others
from gnnsample_lab.device.streams import (
    DONE,
    current_torch_stream,
    leasing,
    order,
    own_torch_stream,
    torch_stream,
)

from .batches import Order, to_gpu
from .clock import StageClock
from .parked import Parked, Parking, fetched
from .plan import EpochPlan, NoBatch
from .queues import StageQueue, Stopped, worker_name

EXECUTORS = ("serial", "thread", "streams", "overlapped", "factored")
ON_CPU = ("serial", "overlapped", "factored")
"""Executors that a CPU has, which has no streams."""
SWITCH_S = 0.0005
STUCK_S = 5.0
"""Seconds that a failed run gives a worker that waits for other ranks; several of a kind share them."""
WAIT_S = 0.1
"""Seconds between a waiting thread's checks whether the other thread has stopped."""


class Sampled(NamedTuple):
    """A mini-batch, where its cached rows are, and its place in the order of training."""

    batch: Any
    marks: Any
    place: int


class _Ids(NamedTuple):
    """What match degrees need of a mini-batch."""

    node_ids: Any


@dataclass(eq=False)
class Ready:
    """A mini-batch with its features: ``x`` is a tensor ``[len(batch.node_ids), F]``; None for an empty slice.

    ``arrived`` is an event that the training stream has to wait for, or None; then ``done``, which the training loop
    records, is an event behind the last kernel that reads ``x`` or ``batch``.
    """

    batch: Any
    x: Any
    stats: Any
    arrived: Any = None
    done: Any = None

    def order(self) -> None:
        """The current stream waits until the mini-batch and its features are there."""
        if self.arrived is not None:
            current_torch_stream().wait_event(self.arrived)

    def finish(self) -> None:
        """What reads the mini-batch has been enqueued on the current stream."""
        if self.arrived is not None:
            import torch

            self.done = torch.cuda.Event()
            self.done.record(current_torch_stream())


@dataclass(eq=False)
class Stages:
    """What an executor runs: one epoch's mini-batches, and how features are found for them.

    Attributes:
        plan: the epoch's mini-batches.
        features: a :class:`~.features.FeatureSource`.
        clock: notes stage times.
        ahead: mini-batches sampled together.
        window: mini-batches to put in order at a time; with ``order`` None the same as ``ahead``.
        order: order of a window, or None.
        upload: whether the samples are made on the CPU for a model on the GPU.
        device: "cpu" or "cuda".
        workers: samplers, and loaders, of the overlapped executor.
        sources: as ``features``, one for each of its loaders; empty: ``features`` for all.
        sample_in_order: whether its samplers sample one after the other, in the order of windows: where a call holds
            a lock that all of them need, also while it waits for the same sampler of other ranks.
        merged: most mini-batches whose rows one of its loaders fetches by one extraction. Where ranks extract together
            a loader waits for as many, so that all ranks merge alike; elsewhere it takes those that are there.
        capacity: mini-batches that its queues hold; None for a whole epoch.
        together: whether workers meet those of other ranks in collectives, where a failed one may wait for ever.
        turns: the order of these collectives (:class:`.turns.Turns`), or None.
        in_step: whether the training loop extracts, straight to where its step reads; executors then only sample.
        parking: host memory where the mini-batches of a window wait; None: they stay where they were sampled. Of the
            serial executor.
        storage: host memory of the factored executor, where an epoch waits
            (:class:`~.factored.slots.OwnSlots`); None: memory of this epoch alone.
        queues: name -> depth over time, filled in by the executor.
    """

    plan: EpochPlan
    features: Any
    clock: StageClock
    ahead: int
    window: int
    order: Order | None
    upload: bool
    device: str = "cuda"
    workers: int = 1
    merged: int = 1
    capacity: int | None = 2
    together: bool = False
    turns: Any = None
    in_step: bool = False
    parking: Parking | None = None
    storage: Any = None
    sources: Sequence[Any] = ()
    sample_in_order: bool = False
    queues: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def sample_window(self, sampler: int = 0, samplers: int = 1) -> list[Sampled]:
        """The next mini-batches of a sampler in the order to train on; empty at the end of the epoch."""
        places = self.plan.take(self.window if self.order else self.ahead, sampler, samplers)
        if not places:
            return []
        if self.parking is not None:
            return self._parked_window(places, self.parking)
        return self._sampled_window(places, lambda: self.plan.sample(places, sampler))

    def start_window(self) -> Callable[[], list[Sampled]]:
        """Launch as much of :meth:`sample_window` as needs no waiting; the function that is returned does the rest.

        Both run on the same stream. What was launched is let go of if that function is dropped.
        """
        count = self.window if self.order else self.plan.starts(self.ahead) or self.ahead
        places = self.plan.take(count)
        if not places:
            return list
        with self.clock.stage("sample", self.plan.batch_ids[places.start]):
            coming = self.plan.start(places)
        return lambda: self._sampled_window(places, coming)

    def _sampled_window(self, places: range, sample: Callable[[], list[Any]]) -> list[Sampled]:
        with self.clock.stage("sample", self.plan.batch_ids[places.start]):
            window = sample()
            if self.upload:
                window = [to_gpu(batch) if batch.num_edges or len(batch.seeds) else batch for batch in window]
            # Marks are of one mini-batch: rows of several are looked up when they are merged.
            marked = self.merged == 1
            marks = [self.features.mark(b) if marked and not isinstance(b, NoBatch) else None for b in window]
        return self._in_order(window, window, marks, places)

    def _parked_window(self, places: range, parking: Parking) -> list[Sampled]:
        """As :meth:`sample_window`; each mini-batch goes to host memory as soon as it is sampled."""
        window: list[Any] = []
        marks, ids = [], []
        with self.clock.stage("sample", self.plan.batch_ids[places.start]):
            for at, place in enumerate(places):
                (batch,) = self.plan.sample(range(place, place + 1))
                marks.append(self.features.mark(batch))
                order(batch.node_ids)
                with leasing():  # a view would keep all of the mini-batch on the device
                    ids.append(_Ids(batch.node_ids.copy()))
                window.append(parking.park(batch, at))
                del batch
        return self._in_order(window, ids, marks, places)

    def _in_order(
        self, window: list[Any], ids: Sequence[Any], marks: list[Any], places: range
    ) -> list[Sampled]:
        """The window in the order to train on, by the ``node_ids`` of ``ids``, without what has been trained.

        All of the window decides its order, whatever has been trained: a run that is resumed goes on in the order of
        one that was not interrupted.
        """
        order: Any = range(len(window))
        if self.order is not None:
            with self.clock.stage("reorder", window[0].batch_id):
                order = self.order(ids)
        kept = [i for i in order if not self.plan.is_left_out(int(window[i].batch_id))]
        first = places.start - self.plan.left_out_before(places.start)
        return [Sampled(window[i], marks[i], first + at) for at, i in enumerate(kept)]

    def extract(self, marked: Sampled, loader: int = 0) -> Ready:
        batch, marks, _ = marked
        if self.in_step:
            return Ready(batch, None, None)
        features = self.source(loader)
        if isinstance(batch, NoBatch):
            if features.together:  # the other ranks wait for this one
                with self.clock.stage("extract", int(batch.batch_id)):
                    features.extract(batch, None)
            return Ready(batch, None, None)
        with self.clock.stage("extract", int(batch.batch_id)):
            x, stats = features.extract(batch, marks)
        return Ready(batch, x, stats)

    def source(self, loader: int) -> Any:
        """Features of a loader."""
        return self.sources[loader] if self.sources else self.features

    def extract_merged(self, group: Sequence[Sampled], loader: int = 0) -> list[Ready]:
        """Rows of several mini-batches by one extraction, which is timed and counted with the first of them."""
        if len(group) == 1:
            return [self.extract(group[0], loader)]
        features = self.source(loader)
        found = [Ready(marked.batch, None, None) for marked in group]
        asked = [ready for ready in found if not isinstance(ready.batch, NoBatch)]
        if asked or features.together:  # else the other ranks wait for this one
            with self.clock.stage("extract", int(found[0].batch.batch_id)):
                xs, stats = features.extract_many([ready.batch for ready in asked])
            for ready, x in zip(asked, xs, strict=True):
                ready.x, ready.stats, stats = x, stats, None
        return found


class Held:
    """Keeps what a stream allocated until the training stream has done with it."""

    def __init__(self) -> None:
        self._entries: deque[tuple[Ready, Any]] = deque()

    def add(self, ready: Ready, what: Any) -> None:
        self._entries.append((ready, what))

    def release(self, keep: int, stream: Any) -> None:
        """Let go of all but the ``keep`` newest; ``stream`` first waits for the training steps that read them."""
        freed = [self._entries.popleft() for _ in range(len(self._entries) - keep)]
        last = next((ready.done for ready, _ in reversed(freed) if ready.done), None)
        if last is not None:
            stream.wait_event(last)
        for _, what in freed:
            for part in what if isinstance(what, tuple) else (what,):
                getattr(part, "ready", DONE).settle()
        if freed:
            part = what = None
            with on_stream(stream):
                freed.clear()  # only now: what is allocated next on `stream` comes after the wait


def side_stream(name: str) -> Any:
    """A torch stream of this process on torch's current GPU."""
    import torch

    return _side_stream(name, torch.cuda.current_device())


@functools.cache
def _side_stream(name: str, device: int) -> Any:
    """Kept: a memory pool keeps freed blocks for the stream that had them. ``device`` is torch's current one."""
    # Sampling is short and the host waits for it, so its blocks go before those of training.
    return own_torch_stream(priority=-1 if name == "sampling" else 0)


@contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    """PyTorch's and CuPy's current stream is ``stream`` (a torch stream) inside the block."""
    import torch

    before = current_torch_stream()
    torch.cuda.set_stream(stream)
    try:
        with torch_stream():
            yield
    finally:
        torch.cuda.set_stream(before)


def shared_stream(device: str) -> AbstractContextManager[Any]:
    """CuPy follows PyTorch's current stream inside the block; nothing on a CPU."""
    if device == "cpu":
        return ExitStack()
    return torch_stream()


def _on_device(window: list[Sampled]) -> Iterator[Sampled]:
    """The mini-batches of a window; parked ones are copied back, each while the one before it trains."""
    if not isinstance(window[0].batch, Parked):
        yield from window
        return
    loaded = fetched([marked.batch for marked in window], side_stream("topology"), on_stream)
    for marked, batch in zip(window, loaded, strict=True):
        yield marked._replace(batch=batch)


def serial(stages: Stages) -> Iterator[Ready]:
    """One stage after the other, on the stream of the training loop."""
    while window := stages.sample_window():
        for marked in _on_device(window):
            yield stages.extract(marked)
            del marked
        del window  # before the next one is sampled


def streams(stages: Stages) -> Iterator[Ready]:
    """Sampling and extraction on streams of their own, all enqueued by one thread.

    The host runs ahead of the device: while the GPU trains on what has been enqueued, the host launches the extraction
    of the next mini-batch. Sampling of the next window is launched before the mini-batches of this one are handed out,
    so that its sizes are there when the host comes to ask for them. No second thread, so no contention for the
    interpreter's lock.
    """
    import torch

    main = torch.cuda.current_stream()
    sampling, extraction = side_stream("sampling"), side_stream("extraction")
    sampling.wait_stream(main)
    extraction.wait_stream(main)
    samples, features = Held(), Held()
    coming: Callable[[], list[Sampled]] | None = None
    try:
        with on_stream(sampling):
            coming = stages.start_window()
        while True:
            with on_stream(sampling):
                window = coming()
            if not window:
                return
            for marked in window:  # nobody shall wait for what this stream samples next
                for made in marked[:2]:
                    getattr(made, "ready", DONE).note()
            sampled = torch.cuda.Event()
            sampled.record(sampling)
            extraction.wait_event(sampled)
            # Batches of the window before: the training on them is enqueued.
            samples.release(0, sampling)
            with on_stream(sampling):
                coming = stages.start_window()
            for marked in window:
                if stages.in_step:
                    ready = stages.extract(marked)
                    ready.arrived = sampled
                    samples.add(ready, marked)
                    yield ready
                    ready.batch = None
                    continue
                features.release(1, extraction)  # two in flight: one is trained on while the next arrives
                with on_stream(extraction):
                    ready = stages.extract(marked)
                ready.arrived = torch.cuda.Event()
                ready.arrived.record(extraction)
                samples.add(ready, marked)
                features.add(ready, ready.x)
                yield ready
                ready.x = ready.batch = None
    finally:
        main.wait_stream(sampling)
        main.wait_stream(extraction)
        coming = None  # what was started, where the training loop ends early
        for stream, held in ((sampling, samples), (extraction, features)):
            held.release(0, stream)


def thread(stages: Stages, depth: int = 1) -> Iterator[Ready]:
    """A second thread samples and extracts the next mini-batch while this one trains, as DGL's loader does.

    Args:
        depth: finished mini-batches that may wait for the training loop.
    """
    import torch

    main = torch.cuda.current_stream()
    side = side_stream("extraction")
    side.wait_stream(main)
    finished: queue.Queue[Ready | BaseException | None] = queue.Queue(depth)
    trained: queue.SimpleQueue[tuple[Ready, Any]] = queue.SimpleQueue()
    stop = threading.Event()

    def hand_over(item: Ready | BaseException | None) -> None:
        while not stop.is_set():
            try:
                finished.put(item, timeout=WAIT_S)
                return
            except queue.Full:
                continue

    def produce() -> None:
        held = Held()

        def collect() -> None:
            while not trained.empty():
                held.add(*trained.get())

        try:
            with on_stream(side), beside_others():
                while not stop.is_set():
                    collect()
                    held.release(1, side)
                    window = stages.sample_window()
                    if not window:
                        break
                    for marked in window:
                        collect()
                        held.release(1, side)
                        ready = stages.extract(marked)
                        ready.arrived = torch.cuda.Event()
                        ready.arrived.record(side)
                        hand_over(ready)
                        del marked, ready
                        if stop.is_set():
                            return
                    del window  # before the next one is sampled
            hand_over(None)
        except BaseException as error:  # the training loop raises it
            hand_over(error)
        finally:
            collect()
            kept.append(held)

    kept: list[Held] = []  # what the thread held is freed by the training thread, behind a wait
    worker = threading.Thread(target=produce, name="prefetch", daemon=True)
    over = False
    with _switching_often():
        try:
            worker.start()
            while True:
                item = finished.get()
                if item is None:
                    over = True
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
                trained.put((item, (item.x, item.batch)))
                item.x = item.batch = None
        finally:
            stop.set()
            _join(worker, None if over or not stages.together else STUCK_S)
            if not worker.is_alive():  # else it waits for a rank that will not come, as in `_pipeline`
                main.wait_stream(side)
                main.synchronize()
                kept.clear()


_switching = threading.Lock()
_usual_s: list[float] = []
"""For each run that goes on, the interpreter's switch interval before the first of them."""


@contextmanager
def _switching_often() -> Iterator[None]:
    """Threads yield to one another after :data:`SWITCH_S`, until the last run in such a block ends.

    Threads of a run do little but launch kernels: the usual 5 ms before one yields to another are a whole mini-batch.
    """
    with _switching:
        _usual_s.append(_usual_s[0] if _usual_s else sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        with _switching:
            usual_s = _usual_s.pop()
            if not _usual_s:
                sys.setswitchinterval(usual_s)


def _join(thread: threading.Thread, timeout_s: float | None) -> None:
    """Wait for a thread that may not have been started: an interrupt may come while threads are."""
    while not thread.is_alive() and thread in threading.enumerate():  # it is about to begin
        time.sleep(1e-3)
    if thread.ident is not None:
        thread.join(timeout_s)


class _Worker:
    """A worker of one stage: a thread, on a GPU with a stream of its own, and what it has to keep until it was read."""

    def __init__(self, name: str, device: str) -> None:
        self.name = name
        self.stream: Any = side_stream(name) if device == "cuda" else None
        self.trained: queue.SimpleQueue[tuple[Ready, Any]] = queue.SimpleQueue()
        self._held = Held()

    def place(self) -> AbstractContextManager[Any]:
        return ExitStack() if self.stream is None else on_stream(self.stream)

    def release(self, keep: int) -> None:
        """Let go of what training has read, but for the ``keep`` newest."""
        while not self.trained.empty():
            self._held.add(*self.trained.get())
        if self.stream is not None:
            self._held.release(keep, self.stream)
        else:
            self._held = Held()

    def arrived(self) -> Any:
        """An event behind what the worker's stream has been given; None on a CPU."""
        if self.stream is None:
            return None
        import torch

        event = torch.cuda.Event()
        event.record(self.stream)
        return event


def overlapped(stages: Stages) -> Iterator[Ready]:
    """A worker a stage with queues between them (DSP, section 5): sampler, loader, and the training loop.

    With several ``workers`` there are as many samplers and loaders, the variant that DSP rejects: more mini-batches in
    memory, and more that compete for it. Mini-batches are trained in the same order whoever prepares them. Each worker
    has mini-batches of its own, every ``workers``-th, so that workers with the same number meet those of other ranks;
    :mod:`.turns` says why nobody waits for ever.

    A loader that merges the rows of several takes them from the queue first. Those it waits for come: what is before
    them in the queue belongs to loaders that take it as soon as it is there, or that have given all that is earlier to
    the training loop.
    """
    count, now_us = stages.workers, stages.clock.now_us
    sampled, loaded = (StageQueue(stages.capacity, count, now_us) for _ in range(2))
    in_order = StageQueue(1) if stages.sample_in_order and count > 1 else None  # who has its number samples
    if in_order is not None:
        in_order.put(0, "go")

    def sample(worker: _Worker, number: int) -> None:
        for turn in itertools.count(number, count):
            worker.release(1)
            if in_order is not None:
                in_order.get(turn)
            window = stages.sample_window(number, count)
            if in_order is not None:
                in_order.put(turn + 1, "go")
            if not window:
                break
            event = worker.arrived()
            for marked in window:
                sampled.put(marked.place, (marked, event, worker))
                del marked
            del window  # before the next one is sampled
        sampled.close()

    def load(worker: _Worker, number: int) -> None:
        together, place = stages.source(number).together, number
        while group := waiting(place, together):
            worker.release(1)
            for _, event, _ in group:
                if event is not None:
                    worker.stream.wait_event(event)
            for ready in stages.extract_merged([marked for marked, _, _ in group], number):
                marked, _, sampler = group.pop(0)
                ready.arrived = worker.arrived()
                loaded.put(place, (ready, marked, sampler, worker))
                place += count
                del marked, ready
        loaded.close()

    def waiting(place: int, together: bool) -> list[Any]:
        """A loader's next mini-batches, the first of which is waited for; none at the end of the epoch."""
        group: list[Any] = []
        while len(group) < stages.merged:
            item = sampled.get(place + count * len(group), wait=together or not group)
            if item is None:
                break
            group.append(item)
        return group

    queues = {"loader queue": sampled, "trainer queue": loaded}
    return _pipeline(stages, queues, {"sampler": sample, "loader": load}, count, in_order)


def ahead(stages: Stages) -> Iterator[Ready]:
    """One worker prepares mini-batches while the training loop is at work; one that is ready may wait.

    A trainer of the factored design: its worker fetches samples from the global queue and extracts (GNNLab, section
    5.2).
    """
    loaded = StageQueue(1, 1, stages.clock.now_us)

    def load(worker: _Worker, _: int) -> None:
        while window := stages.sample_window():
            for marked in window:
                worker.release(1)
                ready = stages.extract(marked)
                ready.arrived = worker.arrived()
                loaded.put(marked.place, (ready, marked, worker, worker))
                del marked, ready
            del window
        loaded.close()

    return _pipeline(stages, {"trainer queue": loaded}, {"loader": load}, 1)


def _pipeline(
    stages: Stages, queues: dict[str, StageQueue], work: dict[str, Callable[[_Worker, int], None]], count: int,
    in_order: StageQueue | None = None,
) -> Iterator[Ready]:  # fmt: skip
    """Run ``count`` workers of each kind in threads; yields what the last queue has.

    ``in_order``: a queue of which there is no record, where workers wait too.
    """
    crew = [
        (_Worker(f"{_STREAMS[kind]} {i}" if i else _STREAMS[kind], stages.device), kind, i)
        for kind in work
        for i in range(count)
    ]
    loaded = list(queues.values())[-1]
    waited = [between for between in (in_order, *queues.values()) if between is not None]

    def run_worker(worker: _Worker, kind: str, number: int) -> None:
        stages.clock.work_as(worker_name(kind, number, count))
        try:
            with worker.place(), beside_others():
                work[kind](worker, number)
        except Stopped:
            pass
        except BaseException as error:  # the training loop raises it
            for between in reversed(waited):
                between.stop(error)
            if stages.turns is not None:  # the training loop may be waiting for a turn that cannot come
                stages.turns.stop(error)

    main = None
    if stages.device == "cuda":
        import torch

        main = torch.cuda.current_stream()
        for worker, _, _ in crew:
            worker.stream.wait_stream(main)
    threads = [
        threading.Thread(target=run_worker, args=member, name=f"{member[1]} {member[2]}", daemon=True)
        for member in crew
    ]
    stages.clock.work_as("trainer")
    over = False
    with _switching_often():
        try:
            for worker_thread in threads:
                worker_thread.start()
            while (item := loaded.get()) is not None:
                ready, marked, sampler, loader = item
                del item
                yield ready
                sampler.trained.put((ready, marked))
                loader.trained.put((ready, ready.x))
                ready.x = ready.batch = None
                del ready, marked
            over = True
        finally:
            for between in waited:
                between.stop()
            if stages.turns is not None and not over:
                stages.turns.stop()
            for worker_thread in threads:
                _join(worker_thread, None if over or not stages.together else STUCK_S / count)
            # One that is still alive waits for a rank that will not come: its memory is in use until the process ends.
            if not any(worker_thread.is_alive() for worker_thread in threads):
                stages.queues.update({name: between.depths for name, between in queues.items()})
                if main is not None:
                    for worker, _, _ in crew:
                        main.wait_stream(worker.stream)
                    main.synchronize()  # what is dropped now is read by nobody
                for between in queues.values():
                    between.clear()
                for worker, _, _ in crew:
                    worker.release(0)


_STREAMS = {"sampler": "sampling", "loader": "extraction"}


def run(executor: str, stages: Stages) -> Iterator[Ready]:
    """The mini-batches of an epoch by one of :data:`EXECUTORS`, or by :func:`ahead`."""
    if executor == "factored":
        from .factored.one import whole_epoch

        return whole_epoch(stages)
    known = {"serial": serial, "thread": thread, "streams": streams, "overlapped": overlapped, "ahead": ahead}
    return known[executor](stages)
