"""Messages between the parent and a rank, over a pair of pipes that nobody else has.

A message is a small header in JSON and a body of bytes. Each frame carries an HMAC of its direction, number and content
under the key of the start, so that a stray write into the pipe is an error and never reaches a pickle.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import struct
import threading
from typing import Any, BinaryIO

KEY_BYTES = 32
_MAC_BYTES = 32
_LENGTHS = struct.Struct("<QQ")


def end_mark(key: bytes) -> bytes:
    """What a rank writes behind the output of each call; nobody else knows it."""
    return b"\0end " + hmac.digest(key, b"end of output", "sha256").hex().encode()


class WireError(ConnectionError):
    """What came over the pipe was not written by the other end."""


class Wire:
    """One end of the two pipes between the parent and a rank.

    Args:
        read, write: binary files of the two pipes.
        key: the secret of this start.
        is_parent: which of the two ends this is.
    """

    def __init__(self, read: BinaryIO, write: BinaryIO, key: bytes, *, is_parent: bool) -> None:
        self._read, self._write, self._key = read, write, key
        self._out, self._in = (b"down", b"up") if is_parent else (b"up", b"down")
        self._sent = self._received = 0
        self._writing = threading.Lock()

    def send(self, kind: str, body: bytes = b"", **header: Any) -> None:
        """Write one message; threads take turns.

        Raises:
            OSError: the other end has gone.
        """
        head = json.dumps({"kind": kind, **header}).encode()
        lengths = _LENGTHS.pack(len(head), len(body))
        with self._writing:
            self._write.write(lengths + self._mac(self._out, self._sent, lengths, head, body) + head)
            self._write.write(body)
            self._write.flush()
            self._sent += 1

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message, ``(header, body)``.

        Raises:
            EOFError: the other end has closed its pipe.
            WireError: the bytes are not a message of the other end.
        """
        lengths = self._exactly(_LENGTHS.size)
        mac = self._exactly(_MAC_BYTES)
        head_bytes, body_bytes = _LENGTHS.unpack(lengths)
        if head_bytes > 2**24 or body_bytes > 2**40:
            raise WireError("something else was written into the pipe of messages")
        head, body = self._exactly(head_bytes), self._exactly(body_bytes)
        if not hmac.compare_digest(mac, self._mac(self._in, self._received, lengths, head, body)):
            raise WireError("something else was written into the pipe of messages")
        self._received += 1
        return json.loads(head), body

    def close(self) -> None:
        """Close the writing end: the other end reads its end of file."""
        with contextlib.suppress(OSError):  # what was buffered has no reader any more
            self._write.close()

    def _exactly(self, size: int) -> bytes:
        data = self._read.read(size)
        if len(data) < size:
            raise EOFError("the other end has closed the pipe")
        return data

    def _mac(self, direction: bytes, number: int, *parts: bytes) -> bytes:
        digest = hmac.new(self._key, direction + struct.pack("<Q", number), hashlib.sha256)
        for part in parts:
            digest.update(part)
        return digest.digest()
