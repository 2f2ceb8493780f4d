"""Nothing reaches a pickle that the other end did not write."""

from __future__ import annotations

import io
import os
from collections.abc import Callable

import pytest

from gnnsample_lab.distributed.ranks.wire import KEY_BYTES, Wire, WireError

KEY = bytes(range(KEY_BYTES))


def recorded(*messages: bytes, key: bytes = KEY) -> bytes:
    """What a parent writes for ``messages``."""
    file = io.BytesIO()
    wire = Wire(io.BytesIO(), file, key, is_parent=True)
    for body in messages:
        wire.send("run", body, number=3)
    return file.getvalue()


def reader(data: bytes, *, is_parent: bool = False) -> Wire:
    return Wire(io.BytesIO(data), io.BytesIO(), KEY, is_parent=is_parent)


def test_messages_arrive_in_order_and_whole() -> None:
    big = os.urandom(300_000)
    wire = reader(recorded(b"", big))
    assert wire.receive() == ({"kind": "run", "number": 3}, b"")
    assert wire.receive() == ({"kind": "run", "number": 3}, big)
    with pytest.raises(EOFError):
        wire.receive()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),  # the body
        lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],  # its HMAC
        lambda data: b"hello\n" * 20 + data,  # a stray print
        lambda data: recorded(b"body", key=bytes(KEY_BYTES)),  # another key
    ],
)
def test_what_the_other_end_did_not_write_is_refused(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(WireError):
        reader(spoil(recorded(b"body"))).receive()


def test_a_message_counts_once_and_in_one_direction() -> None:
    data = recorded(b"body")
    wire = reader(data + data)
    wire.receive()
    with pytest.raises(WireError):
        wire.receive()
    with pytest.raises(WireError):
        reader(data, is_parent=True).receive()
