"""NCCL's messages by address, on the communicator of a torch process group.

torch checks, records and watches each collective, which takes the host some 50 microseconds; a hop of collective
sampling takes the GPU less. NCCL's own calls take a third of that. What torch's watchdog does for a collective, the
process that started the ranks does here: it ends all of them when one has died or does not return.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

_BYTES = 0
"""``ncclInt8``"""
Message = tuple[int, int, int]
"""Peer, device address and bytes."""


class Nccl:
    """Messages between the ranks of one group.

    Args:
        library: NCCL, as ctypes loads it.
        communicator: address of an ``ncclComm_t`` that is connected.
        keep: the owner of the communicator.
    """

    def __init__(self, library: Any, communicator: int, keep: Any = None) -> None:
        address, number = ctypes.c_void_p, ctypes.c_int
        self._start, self._end = library.ncclGroupStart, library.ncclGroupEnd
        self._send, self._receive = library.ncclSend, library.ncclRecv
        for call in (self._start, self._end):
            call.argtypes, call.restype = [], number
        for call in (self._send, self._receive):
            call.argtypes = [address, ctypes.c_size_t, number, number, address, address]
            call.restype = number
        self._text = library.ncclGetErrorString
        self._text.argtypes, self._text.restype = [number], ctypes.c_char_p
        self._communicator, self._keep = communicator, keep

    @staticmethod
    def of(group: Any, size: int) -> Nccl | None:
        """That of a group on which a collective has run; None where torch does not give its communicator away.

        Args:
            group: torch's process group, on NCCL.
            size: ranks of the group.
        """
        import torch

        if os.environ.get("TORCH_NCCL_USE_COMM_NONBLOCKING", "0") not in ("", "0"):
            return None  # calls would return before they are done
        try:
            backend = group._get_backend(torch.device("cuda"))
            communicator = int(backend._comm_ptr())
            # The library that torch uses, which is in memory; another one would not know the communicator.
            library = ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            version, count = ctypes.c_int(), ctypes.c_int()
            library.ncclGetVersion(ctypes.byref(version))
            major, minor, patch = torch.cuda.nccl.version()[:3]  # type: ignore[no-untyped-call]
            if not communicator or version.value != 10_000 * major + 100 * minor + patch:
                return None
            library.ncclCommCount.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
            if library.ncclCommCount(communicator, ctypes.byref(count)) or count.value != size:
                return None
            return Nccl(library, communicator, group)
        except (AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError):
            return None

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], stream: int) -> None:
        """Post messages as one group, in order with the other work of a stream; the host does not wait.

        Args:
            sends, receives: messages that are not empty; each has its counterpart at the peer.
            stream: address of a CUDA stream.

        Raises:
            RuntimeError: NCCL refused.
        """
        if not sends and not receives:
            return
        communicator = self._communicator
        failed = self._start()
        for peer, address, nbytes in sends:
            failed = failed or self._send(address, nbytes, _BYTES, peer, communicator, stream)
        for peer, address, nbytes in receives:
            failed = failed or self._receive(address, nbytes, _BYTES, peer, communicator, stream)
        failed = self._end() or failed
        if failed:
            raise RuntimeError(f"NCCL failed with code {failed}: {self._text(failed).decode()}")
