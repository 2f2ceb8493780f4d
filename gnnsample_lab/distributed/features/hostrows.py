"""Cold rows in host memory that all ranks of a host share, page-locked for reads by their GPUs."""

from __future__ import annotations

import contextlib

import numpy as np

from gnnsample_lab.device import pinned
from gnnsample_lab.distributed.shared_memory import shared_memory

from .parts import PartRows
from .setup import Setup


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
