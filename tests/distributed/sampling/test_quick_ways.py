"""Ways between ranks without torch's calls: numbers through memory of the host, and NCCL by address."""

from __future__ import annotations

import ctypes
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.distributed.ranks.run import Ranks
from gnnsample_lab.distributed.sampling import mailbox
from gnnsample_lab.distributed.sampling.gpu.csp import _call_nccl
from gnnsample_lab.distributed.sampling.gpu.csp_core import Swap
from gnnsample_lab.distributed.sampling.mailbox import Mailbox
from gnnsample_lab.distributed.sampling.nccl import Nccl

LARGEST = 2**32 - 1


def numbers(rank: int, turn: int, to: int) -> int:
    return (rank * 1_000_003 + turn * 101 + to * 7) % (LARGEST + 1)


def talk(rank: Any) -> Any:
    """Many turns, in which ranks are late by turns; through what :meth:`Exchange.connect` finds."""
    from gnnsample_lab.distributed.sampling.exchange import Exchange

    everyone = list(range(rank.world_size))
    exchange = Exchange(rank, rank.group, everyone, np.zeros(rank.world_size))
    exchange.connect()
    mailbox = exchange.mailbox
    assert mailbox is not None, "this system gives processes no memory without a name"
    assert exchange.nccl is None
    others = [p for p in everyone if p != rank.index]
    for turn in range(400):
        if turn % 40 == 10 * rank.index:
            time.sleep(0.003)  # longer than the others spin
        mailbox.tell([numbers(rank.index, turn, to) for to in everyone])
        for source in others[turn % len(others) :] + others[: turn % len(others)]:
            assert mailbox.hear(source) == numbers(source, turn, rank.index)
    far = Exchange(rank, rank.group, everyone, np.arange(rank.world_size))  # each on a host of its own
    far.connect()
    return far.mailbox is None


def test_ranks_of_a_host_tell_each_other_numbers(four_ranks: Ranks) -> None:
    assert four_ranks.run(talk) == [True] * 4
    assert four_ranks.run(talk, world=2) == [True] * 2


def test_turns_begin_again_and_zero_is_a_number() -> None:
    words = np.zeros(8, np.int64)
    one, other = (Mailbox(words, i, 2, 5.0) for i in (0, 1))
    for turn in (0, 2**31 - 3):
        one._turn = other._turn = turn
        for sent in ([0, 0], [5, LARGEST], [LARGEST, 0], [1, 2]):
            one.tell(sent)
            other.tell(sent[::-1])
            assert (one.hear(1), other.hear(0)) == (sent[1], sent[1])


@pytest.mark.parametrize("turns_ago", [3, 2, 1, 0])
def test_who_is_a_turn_ahead_spoils_nothing_where_turns_begin_again(turns_ago: int) -> None:
    words = np.zeros(8, np.int64)
    quick, slow = (Mailbox(words, i, 2, 0.5) for i in (0, 1))
    quick._turn = slow._turn = mailbox._TURNS - turns_ago
    for turn in range(4):
        quick.tell([0, turn])
        slow.tell([10 + turn, 0])
        assert quick.hear(1) == 10 + turn
        quick.tell([0, 100 + turn])
        assert slow.hear(0) == turn
        slow.tell([110 + turn, 0])
        assert (quick.hear(1), slow.hear(0)) == (110 + turn, 100 + turn)


def test_who_is_not_heard_in_time_is_named() -> None:
    words = np.zeros(8, np.int64)
    late, waiting = (Mailbox(words, i, 2, 0.05) for i in (0, 1))
    waiting.tell([3, 4])
    with pytest.raises(RuntimeError, match="timed out waiting for the sizes of rank 0"):
        waiting.hear(0)
    waiting._timeout_s = 30.0
    thread = threading.Timer(0.05, lambda: late.tell([8, 9]))
    thread.start()
    assert waiting.hear(0) == 9
    thread.join()


# ---- NCCL -------------------------------------------------------------------------------------------------------


class Library:
    """Notes calls as NCCL would get them."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[Any] = []
        for name in ("ncclGroupStart", "ncclGroupEnd", "ncclSend", "ncclRecv"):
            setattr(self, name, self._noting(name, 5 if name == fails else 0))
        self.ncclGetErrorString = self._noting("ncclGetErrorString", b"told why")

    def _noting(self, name: str, answer: Any) -> Any:
        def call(*args: Any) -> Any:
            self.calls.append((name[4:], *args))
            return answer

        return call


def test_messages_are_one_group_in_bytes() -> None:
    library = Library()
    nccl = Nccl(library, 77)
    nccl.exchange([(1, 1000, 24)], [(1, 2000, 8), (2, 3000, 16)], 9)
    assert library.calls == [
        ("GroupStart",), ("Send", 1000, 24, 0, 1, 77, 9), ("Recv", 2000, 8, 0, 1, 77, 9),
        ("Recv", 3000, 16, 0, 2, 77, 9), ("GroupEnd",),
    ]  # fmt: skip
    library.calls.clear()
    nccl.exchange([], [], 9)
    assert not library.calls
    assert library.ncclSend.argtypes[1] is ctypes.c_size_t  # type: ignore[attr-defined]


@pytest.mark.parametrize("fails", ["ncclSend", "ncclGroupEnd"])
def test_an_error_of_nccl_is_raised_and_the_group_ended(fails: str) -> None:
    library = Library(fails)
    with pytest.raises(RuntimeError, match="code 5: told why"):
        Nccl(library, 77).exchange([(0, 1, 1)], [], 0)
    assert ("GroupEnd",) in library.calls


def swap(**options: Any) -> list[Any]:
    posted: list[Any] = []
    exchange = SimpleNamespace(size=3, index=1, post_messages=lambda *args: posted.append(args))
    given = SimpleNamespace(ptr=100, dtype=np.dtype(np.int64))
    out = SimpleNamespace(ptr=500, dtype=np.dtype(np.int64))
    _call_nccl(Swap(given, out, **options), exchange, 4)  # type: ignore[arg-type]
    return list(posted[0])


def test_a_swap_by_address() -> None:
    give, take = [(0, 2), (0, 0), (2, 2)], [(0, 0), (5, 9), (1, 4)]  # empty ones and one's own stay
    assert swap(give=give, take=take) == [[(0, 100, 16)], [(2, 508, 24)], 4]
    assert swap() == [[(0, 100, 8), (2, 116, 8)], [(0, 500, 8), (2, 516, 8)], 4]
    assert swap(give=[(0, 1)] * 3, take=[(0, 1)] * 3, pair=(2, 0)) == [[(2, 100, 8)], [(0, 500, 8)], 4]


def test_no_communicator_is_no_error() -> None:
    assert Nccl.of(object(), 2) is None
    backend = SimpleNamespace(_comm_ptr=lambda: 0)
    assert Nccl.of(SimpleNamespace(_get_backend=lambda _: backend), 2) is None
