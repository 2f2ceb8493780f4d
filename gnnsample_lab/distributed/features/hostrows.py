"""A host's cold rows, in memory that all its ranks share, page-locked for reads by their GPUs."""

from __future__ import annotations

import contextlib

import numpy as np

from gnnsample_lab.device import pinned
from gnnsample_lab.distributed.sampling.exchange import Exchange
from gnnsample_lab.distributed.shared_memory import shared_memory

from .parts import PartRows
from .setup import Setup


def cold_rows(setup: Setup, parts: PartRows) -> np.ndarray | None:
    """The cold rows that this host keeps, ``[C, F]``, in the order of cold rows, page-locked; None where it keeps none.

    Ranks of a host fill one table together, each with the rows of its part. Where they cannot share memory each has a
    table of its own, and reads its peers' rows in their files.

    Raises:
        MemoryError: the host refuses so much page-locked memory.
        ValueError: rows of peers are needed, and there is no folder of parts.
    """
    placement, layout = setup.placement, setup.layout
    if not len(placement.cold):
        return None
    exchange = layout.exchange
    if layout.spans_hosts:  # who holds the parts is on several hosts, and memory is of one
        hosts = layout.hosts
        every = [np.flatnonzero(hosts == host).tolist() for host in np.unique(hosts)]
        exchange = Exchange(layout.rank, layout.rank.split(every), every[setup.host], hosts)
    begin, end = placement.cold_bounds[setup.host : setup.host + 2]
    vertices = placement.cold[begin:end]
    if not len(vertices):
        return None
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
