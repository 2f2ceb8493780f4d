"""Cold rows in host memory that all ranks of a host share, page-locked for reads by their GPUs."""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

import numpy as np

from gnnsample_lab.device import pinned
from gnnsample_lab.distributed.sampling.exchange import Exchange

from .parts import PartRows
from .setup import Setup


def shared_memory(exchange: Exchange, nbytes: int) -> np.ndarray | None:
    """One piece of memory of all ranks of a host, ``uint8[nbytes]``; None where they cannot share any.

    It has no name in a file system, and ends with the last process that holds it. All ranks call it together.

    Args:
        exchange: among the ranks of the host.
        nbytes: the same on all ranks.

    Raises:
        RuntimeError: not all ranks came in time.
    """
    descriptor, found = -1, None
    try:
        if exchange.index == 0 and hasattr(os, "memfd_create"):
            try:
                descriptor = os.memfd_create("gnnsample_lab cold rows")
                os.ftruncate(descriptor, nbytes)
            except OSError:
                if descriptor >= 0:
                    os.close(descriptor)
                descriptor = -1
        told = [os.getpid(), descriptor] if exchange.index == 0 else [-1, -1]
        process, number = exchange.max("flags", np.array(told)).tolist()
        if number >= 0:
            try:
                with Path(f"/proc/{process}/fd/{number}").open("r+b") as file:
                    found = mmap.mmap(file.fileno(), nbytes)
            except (OSError, ValueError):
                found = None
        if exchange.max("flags", np.array([found is None]))[0]:  # from here on nobody opens it any more
            return None
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    assert found is not None
    return np.frombuffer(found, np.uint8, nbytes)


def cold_rows(setup: Setup, parts: PartRows) -> np.ndarray | None:
    """This host's cold rows, ``[C, F]``, in the order of cold rows, page-locked; None where there are none.

    Ranks of a host fill one table together, each with the rows of its part. Where they cannot share memory each has a
    table of its own, and reads its peers' rows in their files.

    Raises:
        MemoryError: the host refuses so much page-locked memory.
        ValueError: rows of peers are needed, and there is no folder of parts.
    """
    placement, exchange = setup.placement, setup.layout.exchange
    if not len(placement.cold):
        return None
    vertices = placement.cold
    shape = (len(vertices), setup.num_features)
    nbytes = len(vertices) * setup.row_bytes
    memory, is_locked = None, False
    if exchange.size > 1:
        memory = shared_memory(exchange, nbytes)
        if memory is not None:
            with contextlib.suppress(MemoryError):
                pinned.lock(memory)
                is_locked = True
        if exchange.max("flags", np.array([not is_locked]))[0]:
            memory = None  # a rank that could not lock it would have no rows
    if memory is None:
        rows = pinned.empty(nbytes).view(setup.dtype).reshape(shape)
        parts.read(vertices, np.arange(len(vertices)), rows)
        return rows
    rows = memory.view(setup.dtype).reshape(shape)
    mine = np.flatnonzero(setup.layout.partition.owner[vertices] == setup.me)
    parts.read(vertices[mine], mine, rows)
    exchange.max("flags", np.zeros(1))  # all have written theirs
    return rows
