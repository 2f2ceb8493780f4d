"""Collectives of several workers: one order for all ranks passes, each rank's own order deadlocks and is reported."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.run import Ranks

torch = pytest.importorskip("torch")
coordination = lab.distributed.coordination


def test_central_order_passes(four_ranks: Ranks) -> None:
    report = coordination.demo("central", ranks=four_ranks, rounds=5, timeout_s=60)
    assert report.passed
    assert report.cycle() == ()
    assert len(set(report.launched)) == 1  # odd ranks wanted another order
    assert sorted(report.launched[0]) == ["loader"] * 5 + ["sampler"] * 5
    assert report.launched[0][0] == "sampler"  # the leader's choice
    assert str(report).startswith("order='central': all collectives ended")


def test_without_it_ranks_deadlock_and_say_who_waits_for_whom() -> None:
    report = coordination.demo("arrival", ranks=2, timeout_s=2)
    assert not report.passed
    assert report.launched == (("sampler",), ("loader",))
    assert report.waits == (coordination.Wait(0, "sampler", (1,)), coordination.Wait(1, "loader", (0,)))
    assert report.cycle() == (0, 1)
    text = str(report)
    assert "rank 0 waits in the sampler's collective for rank 1" in text
    assert "rank 1 waits in the loader's collective for rank 0" in text
    assert "a deadlock: 0 -> 1 -> 0" in text


def errors_pass_on(rank: Any) -> list[str]:
    thread = coordination.CommunicationThread(rank, ["a", "b"], timeout_s=60)

    def fail(group: Any) -> None:
        raise LookupError("no such buffer")

    said = []
    for future in [thread.submit("a", fail), thread.submit("b", fail)]:
        try:
            future.result(60)
        except LookupError as error:
            said.append(str(error))
    try:
        thread.submit("b", fail).result(60)  # the thread has ended by now
    except LookupError as error:
        said.append(str(error))
    return said


def test_errors_of_a_collective_reach_those_who_asked(four_ranks: Ranks) -> None:
    assert four_ranks.run(errors_pass_on, world=2) == [["no such buffer"] * 3] * 2


def asked_too_late(rank: Any) -> list[str]:
    """What is said after the end: on a rank that closed, and on one that asks after rank 0 has closed."""
    thread, said = coordination.CommunicationThread(rank, ["a"], timeout_s=60), []
    if rank.index:
        rank.barrier()
        thread._thread.join(60)
    future = None
    if rank.index:
        future = thread.submit("a", lambda group: None)
    thread.close()
    if not rank.index:
        rank.barrier()
    for late in (lambda: future.result(60) if future else None, lambda: thread.submit("a", print).result(5)):
        try:
            late()
        except RuntimeError as error:
            said.append(str(error))
    return said


def test_nobody_asks_a_closed_thread_in_vain(four_ranks: Ranks) -> None:
    words = "the communication thread was closed"
    assert four_ranks.run(asked_too_late, world=2) == [[words], [words] * 2]


def a_worker_that_does_not_ask(rank: Any) -> list[str]:
    x, said = torch.ones(1), []
    thread = coordination.CommunicationThread(rank, ["a", "b"], timeout_s=1)
    for name in ["a", "b"] if rank.index == 0 else ["b"]:
        future = thread.submit(
            name, lambda group: torch.distributed.all_reduce(x, group=group, async_op=True)
        )
        try:
            future.result(30)
        except coordination.CollectiveTimeout as error:
            said.append(str(error))
    return said


def test_a_rank_whose_worker_never_asks_says_so() -> None:
    with lab.distributed.Ranks(2, device="cpu", timeout_s=120) as ranks:
        first, second = ranks.run(a_worker_that_does_not_ask)
    assert first == ["the a's collective did not end in 1 s"] * 2
    assert second == ["the a did not ask for its collective in 1 s"]


def a_quiet_while(rank: Any) -> list[str]:
    """Collectives with a pause between them that is longer than any collective may take."""
    rank._groups._timeout = timedelta(seconds=1)
    rank.timeout_s = 1.0
    thread, x = coordination.CommunicationThread(rank, ["a"], timeout_s=60), torch.ones(1)
    for pause_s in (0, 2.5):
        time.sleep(pause_s)
        thread.submit("a", lambda group: torch.distributed.all_reduce(x, group=group, async_op=True)).result(
            30
        )
    thread.close()
    return thread.launched


def test_nobody_need_ask_for_a_while() -> None:
    with lab.distributed.Ranks(2, device="cpu", timeout_s=120) as ranks:
        assert ranks.run(a_quiet_while) == [["a", "a"]] * 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"order": "random"}, "order"),
        ({"order": 3}, "order"),
        ({"ranks": 1}, "ranks"),
        ({"ranks": "two"}, "ranks"),
        ({"device": "tpu"}, "device"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 1.5}, "rounds"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": None}, "timeout_s"),
    ],
)
def test_demo_refuses_bad_arguments(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises((TypeError, ValueError), match=named):
        coordination.demo(**arguments)


@pytest.mark.gpu
@pytest.mark.timeout(60)
@pytest.mark.usefixtures("two_gpus")
def test_the_order_decides_on_gpus_too() -> None:
    assert coordination.demo("central", ranks=2, device="cuda", timeout_s=60).passed
