"""The queue between workers: bounded, ordered, and never in the way of the item that all wait for."""

from __future__ import annotations

import threading
import time

import pytest

from gnnsample_lab.pipeline.queues import StageQueue, Stopped

LONG_S = 30.0


def put_in_thread(queue: StageQueue, *numbers: int) -> threading.Thread:
    def work() -> None:
        for number in numbers:
            queue.put(number, f"item {number}")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def until_depth(queue: StageQueue, depth: int) -> None:
    end = time.monotonic() + LONG_S
    while queue.depths[-1][1] != depth and time.monotonic() < end:
        time.sleep(0.001)
    assert queue.depths[-1][1] == depth


def test_what_is_not_there_need_not_be_waited_for() -> None:
    queue = StageQueue(3)
    assert queue.get(0, wait=False) is None
    for number in (1, 0):
        queue.put(number, f"item {number}")
    assert queue.get(1, wait=False) is None, "its turn to leave has not come"
    assert [queue.get(number, wait=False) for number in (0, 1, 2)] == ["item 0", "item 1", None]
    queue.stop(ValueError("a producer failed"))
    with pytest.raises(ValueError, match="a producer failed"):
        queue.get(2, wait=False)


def test_a_full_queue_holds_its_producer_up() -> None:
    queue = StageQueue(2)
    thread = put_in_thread(queue, 0, 1, 2, 3)
    until_depth(queue, 2)
    thread.join(0.2)
    assert thread.is_alive()
    assert [queue.get() for _ in range(4)] == [f"item {n}" for n in range(4)]
    thread.join(LONG_S)
    assert not thread.is_alive()
    assert max(depth for _, depth in queue.depths) == 2


def test_items_leave_in_order_and_the_next_may_always_come_in() -> None:
    queue = StageQueue(2, producers=2)
    ahead = put_in_thread(queue, 1, 2, 3)
    until_depth(queue, 1)
    ahead.join(0.1)
    assert ahead.is_alive()  # 2 would take the room of 0, which has not come
    late = put_in_thread(queue, 0)
    late.join(LONG_S)
    assert not late.is_alive()
    assert [queue.get() for _ in range(4)] == [f"item {n}" for n in range(4)]
    ahead.join(LONG_S)
    assert max(depth for _, depth in queue.depths) == 2
    queue.close()
    queue.close()
    assert queue.get() is None


def test_who_may_come_in_does_not_depend_on_who_came_first() -> None:
    """Else ranks whose workers are quick in another order would wait for each other."""
    for order in ((1, 2, 3), (3, 2, 1)):
        queue, threads = StageQueue(2, producers=3), {}
        for number in order:
            threads[number] = put_in_thread(queue, number)
            threads[number].join(0.05)
        assert [n for n in order if not threads[n].is_alive()] == [1]
        put_in_thread(queue, 0)
        assert [queue.get() for _ in range(4)] == [f"item {n}" for n in range(4)]


def test_a_worker_gets_its_own_items_in_everybodys_order() -> None:
    queue, seen = StageQueue(None), []

    def take(first: int) -> None:
        number = first
        while (item := queue.get(number)) is not None:
            seen.append(item)
            number += 2

    threads = [threading.Thread(target=take, args=(first,), daemon=True) for first in (1, 0)]
    for thread in threads:
        thread.start()
    put_in_thread(queue, 1, 3, 0, 4, 2).join(LONG_S)
    queue.close()
    for thread in threads:
        thread.join(LONG_S)
    assert sorted(seen) == [f"item {n}" for n in range(5)] and not any(t.is_alive() for t in threads)


def test_the_end_comes_when_all_producers_have_closed() -> None:
    queue = StageQueue(2, producers=2)
    queue.close()
    put_in_thread(queue, 0).join()
    queue.close()
    assert queue.get() == "item 0"
    assert queue.get() is None
    assert queue.get() is None


def test_whoever_waits_goes_home_when_the_pipeline_stops() -> None:
    full, empty, seen = StageQueue(1), StageQueue(1), []
    full.put(0, "item 0")

    def wait(at: StageQueue, put: bool) -> None:
        try:
            at.put(1, "item 1") if put else at.get()
        except (Stopped, ArithmeticError) as error:
            seen.append(type(error))

    threads = [threading.Thread(target=wait, args=a, daemon=True) for a in ((full, True), (empty, False))]
    for thread in threads:
        thread.start()
    full.stop()
    empty.stop(ArithmeticError("no rows"))
    for thread in threads:
        thread.join(LONG_S)
    assert sorted(kind.__name__ for kind in seen) == ["ArithmeticError", "Stopped"]
    with pytest.raises(ArithmeticError):
        empty.get()
