"""NumPy dtypes of the structures that tell kernels where data lies (``plan.cuh`` and ``minibatch/gpu/finish.cu``)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from .spec import MAX_HOPS

COUNTERS = 256
"""Words in the block of counters of a mini-batch."""
WANTED_EDGES, WANTED_ROWS = 1, 2
"""Bits of what a mini-batch holds besides its usual arrays: ``plan.cuh`` says what."""
STATUS_OVERFLOW, STATUS_BAD_SEED, STATUS_STALLED, STATUS_BROKEN, STATUS_MERGE = 1, 2, 4, 8, 16
"""Bits of the status word: what ``plan.cuh`` says of each."""
CTR_TAIL, CTR_ROWS, CTR_HUBS = 64, 128, 162
"""The words of the counters that the host reads: the queue's next free slot, the rows of each hop, and in tests the
hubs that each hop has listed."""
TABLES = ("direct", "bitmap", "hash")
"""Kinds of vertex tables, in the order of the macro ``TABLE_KIND``."""
NARROW = 32
"""Largest fanout for which a thread draws a row (``KMAX``); for larger ones a warp draws a row."""
SCAN_TILE = 1024
"""Values that a block scans at a time."""
SPLIT = 2048
"""Candidates of a hub that a task of the queue draws from (``queue/team.cu``); hubs have more."""
MAX_TAG = 2047
"""Largest tag of a launch in the slots of the queue."""
ONE_BLOCK_SEEDS = 1024
"""Most seeds that one block merges, in shared memory."""
MANY_SEEDS = 32_768
"""Above this many seeds a separate kernel counts the distinct ones; without it the work grows with their square."""
NUMBER_BLOCK = 1024
"""Seeds per block of the kernels ``begin_count`` and ``begin_number``."""
DISTINCT_BLOCK = 256
"""Seeds per block of the kernel ``begin_distinct``."""
MAX_SEEDS = 2**30
"""Most seeds of a mini-batch: the hash that merges duplicates keeps a seed's index in 30 bits of an entry."""
MAX_NODES = 2**34 - 1
"""Most vertices of a graph that kernels sample from: the hash that merges duplicate seeds has 34 bits for a vertex."""

_pointer = np.uint64
BATCH = np.dtype(
    [("seeds", _pointer), ("num_seeds", "u4"), ("wide_seeds", "u4"), ("batch_id", "u4"), ("base", "u4"),
     ("tag", "u4"), ("wanted", "u4"), ("arena", _pointer), ("room", "u8")], align=True,
)  # fmt: skip
TABLE = np.dtype(
    [("words", _pointer), ("keys", _pointer), ("early", _pointer), ("ranks", _pointer),
     ("order", _pointer), ("stride", "u8"), ("order_stride", "u8")], align=True,
)  # fmt: skip
HOP = np.dtype(
    [("fanout", "i4"), ("stride", "i4"), ("row_cap", "u8"), ("pick_cap", "u8"), ("counts", _pointer),
     ("starts", _pointer), ("offsets", _pointer), ("vertices", _pointer), ("neighbors", _pointer),
     ("slots", _pointer), ("trace", _pointer)], align=True,
)  # fmt: skip
HUB = np.dtype([("begin", "u8"), ("row", "u4"), ("left", "u4")], align=True)
PLAN = np.dtype(
    [("indptr", _pointer), ("indices", _pointer), ("prefix", _pointer), ("available", _pointer),
     ("guide", _pointer),
     ("num_nodes", "u8"), ("seed", "u8"), ("host_batches", _pointer), ("batches", _pointer),
     ("counters", _pointer), ("nodes", _pointer), ("node_cap", "u8"), ("inverse", _pointer),
     ("seed_cap", "u8"), ("seed_hash", _pointer), ("seed_slots", "u8"), ("seed_sums", _pointer), ("queue", _pointer),
     ("queue_cap", "u8"), ("enqueued", _pointer), ("scan_state", _pointer), ("scan_tiles", "u8"),
     ("hubs", _pointer), ("hub_cap", "u8"), ("hub_limit", "u8"),
     ("num_hops", "i4"), ("expand_new", "i4"), ("relabel_last", "i4"), ("fetch_size", "i4"),
     ("delay", "u4"), ("paper", "u4"), ("self_reuse", "u4"), ("sorted_last", "u4"),
     ("table", TABLE), ("reached", TABLE, MAX_HOPS), ("hops", HOP, MAX_HOPS)],
    align=True,
)  # fmt: skip
FINISH = np.dtype(
    [
        ("row_offsets", _pointer),
        ("row_total", "u8"),
        ("row_map", _pointer, MAX_HOPS),
        ("totals", _pointer),
        ("row_bytes", "u8"),
    ],
    align=True,
)
PLACE = np.dtype([("address", _pointer), ("room", "u8")], align=True)
JOB = np.dtype([("plan", PLAN), ("finish", FINISH)], align=True)
"""The one argument of every kernel. Kernels of this folder declare its first member ``plan`` only."""

BATCH_PACK: Any = struct.Struct("=QIIIIIIQQ").pack_into


def point_to_weights(plan: np.ndarray, weights: Any) -> None:
    """Tell kernels where integer weights lie, ``IntegerWeights`` on the GPU; None: nothing is weighted."""
    for name in ("prefix", "available", "guide"):
        array = getattr(weights, name, None)
        plan[name] = 0 if array is None else array.data.ptr


def as_argument(struct_array: np.ndarray) -> np.ndarray:
    """The bytes of a one-element structured array as an opaque kernel argument (shares memory).

    CuPy examines an argument's dtype at every launch; for a structured dtype this takes longer than the launch.
    """
    return struct_array.view(np.dtype(("V", struct_array.dtype.itemsize)))
