"""Executors without a GPU: what they wait for before memory is let go of, on streams that only keep books."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gnnsample_lab.pipeline import executors  # noqa: E402
from gnnsample_lab.pipeline.clock import StageClock  # noqa: E402
from gnnsample_lab.pipeline.executors import Ready, Sampled  # noqa: E402

KINDS = ("serial", "thread", "streams", "overlapped", "ahead")
"""All that take mini-batches as they are; the factored one packs real ones, and runs "ahead"."""


class Books:
    """Which training steps the streams have waited for, and what was freed too early."""

    def __init__(self) -> None:
        self.steps = 0
        self.violations: list[str] = []
        self.alive = 0
        self.most_alive: dict[str, int] = {}
        self.here = threading.local()


class FakeStream:
    def __init__(self, name: str) -> None:
        self.name, self.waited_to = name, 0

    def wait_event(self, event: FakeEvent) -> None:
        self.waited_to = max(self.waited_to, event.step)

    def wait_stream(self, other: FakeStream) -> None:
        pass

    def synchronize(self) -> None:
        self.waited_to = 10**9


class FakeEvent:
    """Carries the number of the last training step enqueued when it was recorded."""

    books: Books

    def __init__(self, **_: Any) -> None:
        self.step = 0

    def record(self, stream: Any = None) -> None:
        self.step = self.books.steps


class Memory:
    """What a stream allocated; complains when freed before that stream has waited for its reader."""

    def __init__(self, books: Books, stream: FakeStream, main: FakeStream) -> None:
        self.books, self.stream, self.main, self.read_by = books, stream, main, 0

    def __del__(self) -> None:
        if self.read_by > max(self.stream.waited_to, self.main.waited_to):
            self.books.violations.append(f"{self.stream.name}: freed while step {self.read_by} may read it")


class FakeStages:
    """Ten mini-batches in windows of up to ``ahead``."""

    device, workers, capacity, together, turns, sample_in_order, merged = "cuda", 1, 2, False, None, False, 1

    def __init__(
        self,
        books: Books,
        main: FakeStream,
        count: int = 10,
        ahead: int = 4,
        fail_at: int = -1,
        in_step: bool = False,
    ) -> None:
        self.in_step = in_step
        self.books, self.main, self.left, self.ahead, self.fail_at = (
            books,
            main,
            list(range(count)),
            ahead,
            fail_at,
        )
        self.clock, self.queues = StageClock("cpu"), {}
        self.windows, self.taken = [self.left[i : i + ahead] for i in range(0, count, ahead)], Counter[int]()

    def allocate(self) -> Memory:
        return Memory(self.books, getattr(self.books.here, "stream", self.main), self.main)

    def sample_window(self, sampler: int = 0, samplers: int = 1) -> list[Any]:
        number = sampler + samplers * self.taken[sampler]
        self.taken[sampler] += 1
        window = self.windows[number] if number < len(self.windows) else []
        self.left = [n for n in self.left if n not in window]
        made = []
        for number in window:
            batch = self.allocate()
            batch.number = number  # type: ignore[attr-defined]
            made.append(Sampled(batch, None, number))
        return made

    def start_window(self) -> Any:
        window = self.sample_window()  # a launch has its memory before it has run
        return lambda: window

    def extract(self, marked: Any, loader: int = 0) -> Ready:
        if marked[0].number == self.fail_at:
            raise ArithmeticError("no rows")
        return Ready(marked[0], None if self.in_step else self.allocate(), None)

    def source(self, loader: int) -> Any:
        return SimpleNamespace(together=False)

    def extract_merged(self, group: Any, loader: int = 0) -> list[Ready]:
        return [self.extract(marked, loader) for marked in group]


@pytest.fixture
def world(monkeypatch):
    books, main = Books(), FakeStream("main")
    made = {name: FakeStream(name) for kind in ("sampling", "extraction") for name in (kind, f"{kind} 1")}

    @contextmanager
    def on_stream(stream):
        before = getattr(books.here, "stream", main)
        books.here.stream = stream
        yield
        books.here.stream = before

    FakeEvent.books = books
    monkeypatch.setattr(executors, "on_stream", on_stream)
    monkeypatch.setattr(executors, "side_stream", made.__getitem__)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    return books, main


def consume(name: str, world: Any, stages: FakeStages, stop_after: int | None = None) -> list[int]:
    """The training loop's side of the bargain."""
    books, _ = world
    seen: list[int] = []
    run = executors.run(name, stages)  # type: ignore[arg-type]
    for ready in run:
        books.steps += 1
        ready.batch.read_by = books.steps
        if ready.x is not None:
            ready.x.read_by = books.steps
        if ready.arrived is not None:
            ready.done = FakeEvent()
            ready.done.record()
        seen.append(ready.batch.number)
        if stop_after is not None and len(seen) == stop_after:
            run.close()  # type: ignore[attr-defined]
            break
    return seen


@pytest.mark.parametrize("ahead", [1, 3, 4, 20])
@pytest.mark.parametrize("name", KINDS)
def test_every_batch_arrives_once_and_in_order(name, ahead, world):
    assert consume(name, world, FakeStages(*world, ahead=ahead)) == list(range(10))


@pytest.mark.parametrize("in_step", [False, True])
@pytest.mark.parametrize("stop_after", [None, 1, 5])
@pytest.mark.parametrize("name", ["thread", "streams", "overlapped", "ahead"])
def test_nothing_is_freed_while_a_training_step_may_read_it(name, stop_after, in_step, world):
    consume(name, world, FakeStages(*world, ahead=3, in_step=in_step), stop_after)
    if stop_after is None:  # else the test itself holds the last one
        assert world[0].violations == []


@pytest.mark.parametrize("name", ["thread", "streams", "overlapped", "ahead"])
def test_the_books_would_show_a_missing_wait(name, world, monkeypatch):
    def careless(self, keep, stream):
        while len(self._entries) > keep:
            self._entries.popleft()

    monkeypatch.setattr(executors.Held, "release", careless)
    consume(name, world, FakeStages(*world, ahead=3))
    assert world[0].violations
    if name == "streams":
        world[0].violations.clear()
        consume(name, world, FakeStages(*world, ahead=3, in_step=True))
        assert world[0].violations


@pytest.mark.parametrize("name", KINDS)
def test_an_error_of_a_stage_reaches_the_training_loop(name, world):
    before = threading.active_count()
    with pytest.raises(ArithmeticError, match="no rows"):
        consume(name, world, FakeStages(*world, fail_at=6))
    assert threading.active_count() == before


class Watched(FakeStages):
    """Two samplers; notes who samples which window, and how many at once."""

    workers = 2

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.inside, self.most, self.order, self.met = 0, 0, [], threading.Barrier(2)

    def sample_window(self, sampler: int = 0, samplers: int = 1) -> list[Any]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if not self.sample_in_order and not self.taken[sampler]:
            self.met.wait(20)  # the other one is here too
        elif not sampler:
            time.sleep(0.002)
        found = super().sample_window(sampler, samplers)
        if found:
            self.order.append((sampler, found[0].place))
        self.inside -= 1
        return found


def test_samplers_that_share_a_lock_sample_in_order(world):
    """On a GPU a call holds the library's lock, also while it waits for the same sampler of other ranks."""
    stages = Watched(*world, ahead=1)
    assert consume("overlapped", world, stages) == list(range(10)) and stages.most == 2
    stages = Watched(*world, ahead=1)
    stages.sample_in_order = True
    assert consume("overlapped", world, stages) == list(range(10))
    assert stages.most == 1 and stages.order == [(place % 2, place) for place in range(10)]
    before = threading.active_count()
    failing = Watched(*world, ahead=1, fail_at=5)
    failing.sample_in_order = True
    with pytest.raises(ArithmeticError, match="no rows"):
        consume("overlapped", world, failing)
    assert threading.active_count() == before


def test_the_thread_stops_when_training_does(world):
    before = threading.active_count()
    assert consume("thread", world, FakeStages(*world, count=1000, ahead=1), stop_after=2) == [0, 1]
    assert threading.active_count() == before


def test_the_thread_prepares_while_training(world):
    stages = FakeStages(*world, ahead=1)
    run = executors.run("thread", stages)  # type: ignore[arg-type]
    next(run)
    deadline = time.monotonic() + 20
    while len(stages.left) > 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(stages.left) <= 8, "the second mini-batch was not prepared while the first was in use"
    run.close()  # type: ignore[attr-defined]


def test_streams_keep_two_feature_arrays_and_two_windows(world):
    books, main = world
    sizes = []
    add = executors.Held.add

    def counted(self, ready, what):
        add(self, ready, what)
        sizes.append(len(self._entries))

    executors.Held.add, kept = counted, add  # type: ignore[method-assign]
    try:
        consume("streams", world, FakeStages(books, main, count=20, ahead=4))
    finally:
        executors.Held.add = kept  # type: ignore[method-assign]
    samples, features = sizes[::2], sizes[1::2]
    assert max(features) == 2
    assert max(samples) == 4  # beside the window that has been started


class Counting(FakeStages):
    """Notes how many mini-batches of earlier windows there are when a window is sampled."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made: weakref.WeakSet[Memory] = weakref.WeakSet()
        self.alive: list[int] = []

    def sample_window(self, sampler: int = 0, samplers: int = 1) -> list[Any]:
        self.alive.append(len(self.made))
        found = super().sample_window(sampler, samplers)
        self.made.update(marked.batch for marked in found)
        return found


@pytest.mark.parametrize(("name", "most"), [("serial", 1), ("thread", 5), ("overlapped", 10), ("ahead", 5)])
def test_a_window_is_gone_when_the_next_one_is_sampled(name, most, world):
    """But for what its executor keeps of it: in queues, in training, and the last one that was trained on."""
    stages = Counting(*world, count=48, ahead=16)
    assert consume(name, world, stages) == list(range(48))
    assert len(stages.alive) == 4 and max(stages.alive) <= most


class Started(FakeStages):
    """Notes when windows are started, and when one that nobody asked for is let go of."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.notes: list[str] = []

    def start_window(self) -> Any:
        window = super().start_window()
        self.notes.append("start")
        return Window(window, self.notes)


class Window:
    def __init__(self, window: Any, notes: list[str]) -> None:
        self.window, self.notes = window, notes

    def __call__(self) -> list[Any]:
        found, self.window = self.window(), None
        self.notes.append("take")
        return found

    def __del__(self) -> None:
        if self.window is not None:
            self.notes.append("let go")


def test_streams_start_a_window_before_they_hand_out_the_one_before(world):
    stages = Started(*world, ahead=4)
    run = executors.run("streams", stages)  # type: ignore[arg-type]
    for ready in run:
        stages.notes.append(str(ready.batch.number))
    assert stages.notes == [
        "start", "take", "start", "0", "1", "2", "3", "take", "start", "4", "5", "6", "7", "take", "start", "8", "9",
        "take",
    ]  # fmt: skip


@pytest.mark.parametrize("fail_at", [-1, 1])
def test_what_streams_have_started_is_let_go_of_when_the_loop_ends_early(world, fail_at):
    stages = Started(*world, ahead=2, fail_at=fail_at)
    if fail_at < 0:
        consume("streams", world, stages, stop_after=1)
    else:
        with pytest.raises(ArithmeticError):
            consume("streams", world, stages)
    assert stages.notes == ["start", "take", "start", "let go"]
