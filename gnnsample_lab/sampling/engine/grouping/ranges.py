"""Transit-parallel steps by ranges of vertices whose lists fit shared memory (``ranges.cu``, ``transit_ranges.cu``).

This is not NextDoor's method. Pairs are grouped by range alone, in any order within a range, which costs less than a
full index. A block then holds the adjacency lists of a whole range in shared memory, so that no draw reads global
memory at random. The samples are the same.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.sampling.neighbors.plan import as_argument

from .index import pair_type, scratch_array

if TYPE_CHECKING:
    from gnnsample_lab.sampling.engine.gpu import GpuEngine

_THREADS, _ITEMS = 1024, 16
"""Threads of a block of ``range_counts`` and ``range_items``, and the pairs that a thread takes at a time."""
MAX_RANGES = 8192
"""Most ranges: a block keeps three words of shared memory for each."""
MAX_BLOCKS = 8192
"""Most entries of the table that maps blocks of vertices to ranges; an entry takes four bytes of shared memory."""
PAYS_ROW, PAYS_PAIRS, PAYS_BYTES = 64, 3, 160 * 2**20
"""Thresholds of :func:`pays`, measured on an H200 (``data/measured/NOTES.md``).

``PAYS_ROW``: bytes; the results of a pair must be a multiple of this (one burst of memory), or writes out of order are
slow. ``PAYS_PAIRS``: least pairs per vertex; fewer do not pay for copying the lists. ``PAYS_BYTES``: least bytes of all
lists; below that, caches serve most random reads anyway.
"""
_ONE_READ = frozenset(("lab_edge_count", "lab_bits", "lab_below", "lab_uniform", "lab_chance", "lab_fail"))
"""Accessors that a ``next`` may use if it reads no memory except the entry that it returns."""
_STATIC_BYTES = 2560
"""Bytes of shared memory per block that the kernel declares itself or the driver reserves."""
LEAST_BYTES = 16 * 1024
"""Least bytes of a range: with smaller ranges, grouping costs more than it saves."""
MAX_SIZE = 256
"""Most slots per pair for which the kernel is compiled."""

_RANGES = np.dtype([(name, np.int64) for name in (
    "num_nodes", "pairs", "size", "shift", "blocks", "ranges", "per_item", "id_bytes", "indptr", "table", "firsts",
    "counts", "cursors", "begins", "item_begins", "items", "heads", "placed", "out",
)])  # fmt: skip
_WORK = np.dtype([(name, np.int64) for name in (
    "placed", "firsts", "begins", "item_begins", "items", "heads", "per_item", "room", "factor",
)])  # fmt: skip


@dataclass(frozen=True)
class RangeKnobs:
    """How pairs are grouped and served; samples never depend on it.

    Attributes:
        bytes: bytes of the lists and list positions of a range, about; None: 15/16 of ``room``.
        room: bytes of shared memory for a range; the part of a larger range that does not fit is read from global
            memory. None: all that ``blocks_per_sm`` blocks per multiprocessor can have.
        threads, blocks_per_sm: threads per block and blocks per multiprocessor of the sampling kernel.
        item_draws: most neighbours to sample per work item.
        factor: a range is copied where its bytes are at most this many times the draws of the item.
        stage: most results of a thread that go through shared memory at a time.
    """

    bytes: int | None = None
    room: int | None = None
    threads: int = 640
    blocks_per_sm: int = 1
    item_draws: int = 2**20
    factor: int = 32
    stage: int = 16


KNOBS = RangeKnobs()


@dataclass(frozen=True, eq=False)
class Grouped:
    """Pairs grouped by range, CuPy; entries after the counted ones are undefined.

    Attributes:
        placed: transit and index of each pair, grouped by range, ``[P, 2]`` in the wider of both dtypes.
        firsts: ``int64[R + 1]``, first vertex of each range.
        begins, item_begins: ``uint32[R + 1]``, first place and first work item of each range.
        items: ``uint32``, the range of each work item.
        heads: ``uint32[2]``: number of work items, and number of the next one to take.
        per_item: most pairs of a work item.
    """

    placed: Any
    firsts: Any
    begins: Any
    item_begins: Any
    items: Any
    heads: Any
    per_item: int


def block_shift(num_nodes: int) -> int:
    """log2 of the vertices per entry of the table that maps blocks of vertices to ranges."""
    shift = 0
    while (num_nodes - 1) >> shift >= MAX_BLOCKS:
        shift += 1
    return shift


def num_ranges(num_nodes: int, num_edges: int, id_bytes: int, range_bytes: int) -> int:
    """Ranges of about ``range_bytes`` each, at most :data:`MAX_RANGES`, at least one."""
    return min(MAX_RANGES, max(1, -(-(num_edges * id_bytes + 4 * num_nodes) // range_bytes)))


_LASTING = frozenset({"lab_root_replace", "lab_add_edge"})


def serves(engine: GpuEngine, size: int, knobs: RangeKnobs = KNOBS) -> bool:
    """Whether ranges can serve steps of ``size`` slots per pair: the graph is on the GPU and ranges fit shared memory.

    A kernel may call ``next`` twice for one slot (``Context.guesses``), so ``next`` must neither replace a root nor
    record an edge.
    """
    if engine.streamed is not None or size > MAX_SIZE or engine.operator.uses & _LASTING:
        return False
    graph, id_bytes = engine.graph, engine.id_dtype.itemsize
    each = _range_bytes(size, id_bytes, knobs)
    if (knobs.bytes is None and each < LEAST_BYTES) or _room(size, id_bytes, knobs) < 0:
        return False
    if not fits(graph.num_nodes, int(graph.indices.size), id_bytes, each):
        return False
    return _place_threads(MAX_RANGES, MAX_BLOCKS, 8) > 0


def pays(engine: GpuEngine, pairs: int, size: int) -> bool:
    """Whether a step of ``pairs`` with ``size`` slots each takes less time by ranges than sample by sample.

    The thresholds :data:`PAYS_ROW`, :data:`PAYS_PAIRS` and :data:`PAYS_BYTES` decide. False where ``next`` reads more
    than the entry that it returns, because that was not measured.
    """
    graph, id_bytes = engine.graph, engine.id_dtype.itemsize
    return (
        engine.operator.deferred
        and engine.operator.uses <= _ONE_READ
        and size * id_bytes % PAYS_ROW == 0
        and pairs >= PAYS_PAIRS * graph.num_nodes
        and int(graph.indices.size) * id_bytes >= PAYS_BYTES
        and serves(engine, size)
    )


def fits(num_nodes: int, num_edges: int, id_bytes: int, range_bytes: int) -> bool:
    """Whether at most :data:`MAX_RANGES` ranges of ``range_bytes`` hold the graph's lists."""
    ranges = num_ranges(num_nodes, num_edges, id_bytes, range_bytes)
    return num_nodes < 2**32 and num_edges * id_bytes + 4 * num_nodes <= ranges * range_bytes


@functools.lru_cache(maxsize=64)
def _room(size: int, id_bytes: int, knobs: RangeKnobs) -> int:
    """Bytes of shared memory for a range, beside the results of a block's threads; not positive: nothing is left."""
    if knobs.room is not None:
        return knobs.room
    properties = runtime.device_properties()
    most = min(
        properties["sharedMemPerMultiprocessor"] // knobs.blocks_per_sm, properties["sharedMemPerBlockOptin"]
    )
    return (
        (int(most) - _STATIC_BYTES - knobs.threads * staged_ids(size, id_bytes, knobs.stage) * id_bytes)
        // 16
        * 16
    )


def _range_bytes(size: int, id_bytes: int, knobs: RangeKnobs) -> int:
    return _room(size, id_bytes, knobs) * 15 // 16 if knobs.bytes is None else knobs.bytes


def _place_bytes(threads: int, ranges: int, blocks: int, word: int) -> int:
    return threads * _ITEMS * 2 * word + 12 * ranges + 4 * blocks


def _place_threads(ranges: int, blocks: int, word: int) -> int:
    """Threads per block of ``range_place``: the most that its shared memory allows, or 0 if not even 64 fit."""
    most = int(runtime.device_properties()["sharedMemPerBlockOptin"]) - _STATIC_BYTES
    for threads in (1024, 512, 256, 128, 64):
        if _place_bytes(threads, ranges, blocks, word) <= most:
            return threads
    return 0


def group(
    transits: Any, num_nodes: int, indptr: Any, num_edges: int, scratch: dict[str, Any], *, size: int, out: Any,
    knobs: RangeKnobs = KNOBS,
) -> Grouped:  # fmt: skip
    """Group the pairs of ``transits`` by range; nothing waits.

    Args:
        transits: ids ``[P]``, CuPy; NULL (negative) is left out.
        num_nodes, num_edges: of the graph.
        indptr: ``int64[N + 1]`` on the GPU.
        scratch: keeps the arrays from call to call; a call overwrites what the last call with the same dict returned.
        size: neighbours to sample per pair.
        out: ids ``[P, size]``, in which the slots of NULL transits become NULL.
        knobs: how pairs are grouped.

    Raises:
        ValueError: 2^32 pairs or more.
    """
    pairs = int(transits.size)
    keys, id_dtype = transits.ravel(), transits.dtype
    pair_dtype = pair_type(pairs)
    word = max(id_dtype.itemsize, pair_dtype.itemsize)
    each = _range_bytes(size, id_dtype.itemsize, knobs)
    ranges, shift = num_ranges(num_nodes, num_edges, id_dtype.itemsize, each), block_shift(num_nodes)
    blocks = max(1, -(-num_nodes // 2**shift))
    workers = runtime.num_sms() * knobs.blocks_per_sm
    per_item = max(32, min(knobs.item_draws // size, pairs // (8 * workers)))

    def array(name: str, count: int, dtype: Any) -> Any:
        return scratch_array(scratch, f"ranges.{name}", count, dtype)

    counts, cursors = array("counts", ranges, np.uint32), array("cursors", ranges, np.uint32)
    table = array("table", blocks + 1, np.uint16)
    made = Grouped(
        array("placed", 2 * pairs, np.int64 if word == 8 else np.int32).reshape(pairs, 2),
        array("firsts", ranges + 1, np.int64), array("begins", ranges + 1, np.uint32),
        array("item_begins", ranges + 1, np.uint32), array("items", pairs // per_item + ranges, np.uint32),
        array("heads", 2, np.uint32), per_item,
    )  # fmt: skip
    pointers = {
        "indptr": indptr, "table": table, "firsts": made.firsts, "counts": counts, "cursors": cursors,
        "begins": made.begins, "item_begins": made.item_begins, "items": made.items, "heads": made.heads,
        "placed": made.placed, "out": out,
    }  # fmt: skip
    record = np.zeros(1, _RANGES)
    for name, value in (
        ("num_nodes", num_nodes), ("pairs", pairs), ("size", size), ("shift", shift), ("blocks", blocks),
        ("ranges", ranges), ("per_item", per_item), ("id_bytes", id_dtype.itemsize),
    ):  # fmt: skip
        record[name] = value
    for name, held in pointers.items():
        record[name] = held.data.ptr
    argument, wide = as_argument(record), (id_dtype.itemsize == 8, pair_dtype.itemsize == 8)
    threads = _place_threads(ranges, blocks, word)
    tile = threads * _ITEMS
    counted, shared = 8 * ranges + 4 * blocks, _place_bytes(threads, ranges, blocks, word)
    grid = (max(1, min(-(-pairs // tile), 2 * runtime.num_sms())),)
    _kernel("range_table", *wide)((max(blocks, ranges) // 256 + 1,), (256,), (argument,))
    _kernel("range_counts", *wide, counted)(grid, (_THREADS,), (argument, keys), shared_mem=counted)
    _kernel("range_items", *wide)((1,), (_THREADS,), (argument,))
    _kernel("range_place", *wide, shared, threads)(grid, (threads,), (argument, keys), shared_mem=shared)
    return made


def launch(engine: GpuEngine, step: int, record: dict[str, Any], knobs: RangeKnobs = KNOBS) -> dict[str, Any]:
    """Run step ``step`` of individual sampling by ranges; ``record`` gets an account of it. Nothing waits."""
    transits, size, graph = engine.transits, engine.shape[step].size, engine.graph
    nodes, edges = graph.num_nodes, int(graph.indices.size)
    record.update({"kernel": "ranges", "index": "ranges", "pairs": int(transits.size)})
    if transits.size == 0:
        return record
    with engine.timing(record, "index_us"):
        made = group(
            transits, nodes, graph.indptr, edges, engine.scratch, size=size, out=engine.out, knobs=knobs,
        )  # fmt: skip
    with engine.timing(record, "sample_us"):
        _sample(engine, made, size, knobs)
    return record


def _sample(engine: GpuEngine, made: Grouped, size: int, knobs: RangeKnobs) -> None:
    id_bytes = engine.id_dtype.itemsize
    work = np.zeros(1, _WORK)
    for name in ("placed", "firsts", "begins", "item_begins", "items", "heads"):
        work[name] = getattr(made, name).data.ptr
    room = _room(size, id_bytes, knobs)
    work["per_item"], work["room"], work["factor"] = made.per_item, room, knobs.factor
    macros: dict[str, int | str] = {
        "PAIR_T": "int" if made.placed.shape[0] < 2**31 else "long", "SIZE": size,
        "STAGE": knobs.stage, "RANGE_THREADS": knobs.threads, "RANGE_BLOCKS": knobs.blocks_per_sm,
    }  # fmt: skip
    shared = knobs.threads * staged_ids(size, id_bytes, knobs.stage) * id_bytes + room
    kernel = engine.raw_kernel("steps/transit_ranges.cu", "transit_ranges", macros)
    if kernel.max_dynamic_shared_size_bytes < shared:
        kernel.max_dynamic_shared_size_bytes = shared
    blocks = min(runtime.num_sms() * knobs.blocks_per_sm, made.items.size)
    kernel.kernel((blocks,), (knobs.threads,), (engine.plan.argument(), as_argument(work)), shared_mem=shared)


def staged_ids(size: int, id_bytes: int, most: int) -> int:
    """Ids of shared memory that a thread's results take, padding included (``STRIDE`` units, ``transit_ranges.cu``)."""
    parts = -(-size // most)
    part = size if parts == 1 else (size + 4 * parts - 1) // (4 * parts) * 4
    unit = 4 if size % 4 == 0 and id_bytes == 4 else 2 if size % 2 == 0 else 1
    units = -(-part // unit)
    return (units if units in (2, 4, 8) else units | 1) * unit


@functools.lru_cache(maxsize=64)
def _kernel(name: str, wide: bool, long_pairs: bool, shared: int = 0, threads: int = _THREADS) -> Any:
    macros: dict[str, int | str] = {
        "ID_T": "long" if wide else "int", "PAIR_T": "long" if long_pairs else "int", "THREADS": threads,
    }  # fmt: skip
    function = kernels.load_module("sampling/engine/grouping/ranges.cu", macros).get_function(name)
    if shared > function.max_dynamic_shared_size_bytes:
        function.max_dynamic_shared_size_bytes = shared
    return function.kernel
