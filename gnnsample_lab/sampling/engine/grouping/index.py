"""The scheduling index: pairs of sample and transit grouped by transit; the host waits for nothing (``index.cu``).

``"counting"`` counts the pairs of each vertex with one atomic per pair, scans the counts over the vertices and writes
every pair to its place: O(P + N). ``"radix"`` is a stable sort of the pairs by vertex, 8 bits per pass (``radix.cu``).
No sample depends on the order of pairs within a transit.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.sampling.neighbors.plan import as_argument

_THREADS = 256
_COUNT_TILE, _VERTEX_TILE, _SORT_TILE = 4096, 2048, 4096
"""Counters that a block scans, vertices that a block numbers and pairs that a block sorts."""
_DIGITS = 256
"""Values of a digit of the radix sort."""
_ROWS = 5
"""Sums over the vertices: pairs, transits of the three classes and work items."""
_RADIX = ("tile_sums", "scan_tiles", "digit_histogram", "partition", "count_runs")
"""Kernels of ``radix.cu``."""
MAX_PAIRS = 2**32 - 1
"""Most pairs of an index: kernels count them in 32 bits."""
FEW, MANY = 32, 1024
"""Bounds of the classes of transits, in neighbours to sample (pairs * m), as in NextDoor's table 2.

Transits below ``FEW`` are in the sub-warp class, those above ``MANY`` in the grid class, all others in the block class.
"""

_CLASSES = np.dtype([(n, np.int64) for n in ("num_nodes", "tiles", "size", "few", "many", "pairs_per_item")])
_DIGIT = np.dtype([(n, np.int64) for n in ("num_nodes", "pairs", "tiles", "shift")])


@dataclass(frozen=True)
class IndexKnobs:
    """How an index is built and cut into work; samples never depend on it.

    Attributes:
        blocks_per_sm: most blocks per multiprocessor of kernels that loop.
        few, many: bounds of the classes, in neighbours to sample.
        item_draws: neighbours to sample per work item of the grid class, at most (one pair at least).
    """

    blocks_per_sm: int = 8
    few: int = FEW
    many: int = MANY
    item_draws: int = 1024


KNOBS = IndexKnobs()


@dataclass(frozen=True, eq=False)
class Index:
    """Pairs grouped by transit, CuPy. D distinct transits hold ``begins[D]`` pairs; entries after these are undefined.

    Attributes:
        kind: ``"counting"`` or ``"radix"``.
        pairs: index of each pair in the given transits, by ascending transit, ``int32[P]`` (``int64`` if P >= 2^31).
        transits: distinct transits, ascending, ids ``[min(N, P)]``.
        begins: ``int64[min(N, P) + 1]``, first pair of each distinct transit.
        totals: ``int64[5]``: D, members of the three classes, work items.
        lists: ids ``[3, min(N, P)]``: numbers of distinct transits by class (sub-warp, block, grid), ascending.
        item_begins: ``uint32``, first work item of each member of the grid class, then the number of work items.
        items: ``uint32``, number of the member of the grid class that each work item belongs to.
        pairs_per_item: most pairs of a work item.
    """

    kind: str
    pairs: Any
    transits: Any = None
    begins: Any = None
    totals: Any = None
    lists: Any = None
    item_begins: Any = None
    items: Any = None
    pairs_per_item: int = 1

    @property
    def count(self) -> Any:
        """D, ``int64[1]`` on the GPU."""
        return self.totals[:1]

    @property
    def classes(self) -> tuple[tuple[Any, Any], ...]:
        """For sub-warp, block and grid: numbers of distinct transits, and how many there are (``int64[1]``)."""
        return tuple((self.lists[i], self.totals[i + 1 : i + 2]) for i in range(3))


def build(
    transits: Any, num_nodes: int, kind: str = "always", scratch: dict[str, Any] | None = None, *, size: int = 1,
    knobs: IndexKnobs = KNOBS,
) -> Index:  # fmt: skip
    """Group the pairs of ``transits`` by transit; nothing waits.

    Args:
        transits: ids ``[P]``, CuPy; NULL (negative) is left out.
        num_nodes: vertices of the graph.
        kind: ``"radix"`` for the radix sort; any other value of ``run_app``'s ``index`` for counting.
        scratch: keeps the arrays from call to call; a call overwrites the index of the last call with the same dict.
        size: neighbours to sample per pair, for the classes.
        knobs: how the index is built.

    Raises:
        ValueError: 2^32 pairs or more.
    """
    work = _Work(transits, num_nodes, {} if scratch is None else scratch, knobs)
    counts = work.array("counts", num_nodes + 1, np.uint32)
    counts.data.memset_async(0, counts.nbytes)
    if kind == "radix":
        return work.number(counts, size, Index("radix", work.sort(counts)))
    pairs, ranks = (
        work.array("pairs", work.pairs, work.pair_dtype),
        work.array("ranks", work.pairs, np.uint32),
    )
    total, threads = np.int64(work.pairs), -(-work.pairs // 4)
    work.launch("count_transits", threads, work.keys, total, counts, ranks)
    index = work.number(counts, size, Index("counting", pairs))
    work.launch("place_pairs", threads, work.keys, total, counts, ranks, pairs)
    return index


def num_passes(num_nodes: int) -> int:
    """Passes of the radix sort at 8 bits per pass; the largest key is ``num_nodes``, which stands for NULL."""
    return max(1, -(-num_nodes.bit_length() // 8))


def pair_type(pairs: int) -> np.dtype[Any]:
    """The dtype for the index of one of ``pairs`` pairs.

    Raises:
        ValueError: 2^32 pairs or more.
    """
    if pairs > MAX_PAIRS:
        raise ValueError(f"an index holds fewer than 2^32 pairs (got {pairs}): run fewer samples at a time")
    return np.dtype(np.int64 if pairs >= 2**31 else np.int32)


class _Work:
    """The arrays and launches of one index while it is built."""

    def __init__(self, transits: Any, num_nodes: int, scratch: dict[str, Any], knobs: IndexKnobs) -> None:
        self.pairs, self.num_nodes, self.knobs = int(transits.size), num_nodes, knobs
        self.keys = transits.ravel()
        self.id_dtype = transits.dtype
        self.pair_dtype = pair_type(self.pairs)
        self.capacity = max(1, min(num_nodes, self.pairs))
        self.tiles = -(-self.pairs // _SORT_TILE)
        self._scratch = scratch

    def array(self, name: str, size: int, dtype: Any) -> Any:
        return scratch_array(self._scratch, f"index.{name}", size, dtype)

    def launch(self, name: str, threads: int, *args: Any) -> None:
        """Launch a kernel that loops over its work, with a grid for at most ``threads`` threads."""
        if threads:
            blocks = min(-(-threads // _THREADS), runtime.num_sms() * self.knobs.blocks_per_sm)
            self._kernel(name)((blocks,), (_THREADS,), args)

    def _kernel(self, name: str) -> Any:
        wide, long_pairs = self.id_dtype.itemsize == 8, self.pair_dtype.itemsize == 8
        return _kernel(name, wide, long_pairs)

    def sort(self, counts: Any) -> Any:
        """The pairs sorted by transit (stable); writes the pairs of each vertex to ``counts``."""
        keys, ids = self.keys, np.uintp(0)
        for number in range(num_passes(self.num_nodes) if self.pairs else 0):
            keys, ids = self._partition(keys, ids, 8 * number, number & 1)
        if self.pairs:
            nodes = np.int64(self.num_nodes)
            self.launch("count_runs", self.pairs, keys, np.int64(self.pairs), nodes, counts)
        return ids if self.pairs else self.array("pairs", 0, self.pair_dtype)

    def _partition(self, keys: Any, ids: Any, shift: int, into: int) -> tuple[Any, Any]:
        histogram = self.array("histogram", _DIGITS * self.tiles, np.uint32)
        digit = np.zeros(1, _DIGIT)
        digit[0] = (self.num_nodes, self.pairs, self.tiles, shift)
        self.launch("digit_histogram", self.tiles * _THREADS, as_argument(digit), keys, histogram)
        n = histogram.size
        blocks = -(-n // _COUNT_TILE)
        sums = self.array("sums", blocks + 1, np.uint32)
        self._kernel("tile_sums")((blocks,), (_THREADS,), (histogram, np.int64(n), sums))
        self._kernel("scan_rows")((1,), (1024,), (sums, np.int64(blocks)))
        self._kernel("scan_tiles")((blocks,), (_THREADS,), (histogram, np.int64(n), sums))
        keys_out = self.array(f"keys{into}", self.pairs, self.id_dtype)
        ids_out = self.array(f"ids{into}", self.pairs, self.pair_dtype)
        self.launch(
            "partition", self.tiles * _THREADS, as_argument(digit), keys, ids, histogram, keys_out, ids_out
        )
        return keys_out, ids_out

    def number(self, counts: Any, size: int, index: Index) -> Index:
        """``index`` with distinct transits and classes; ``counts[v]`` becomes the place of v's first pair."""
        knobs, tiles = self.knobs, max(1, -(-self.num_nodes // _VERTEX_TILE))
        per_item = max(1, knobs.item_draws // size)
        # Upper bounds: a member of the grid class has more than `many` draws, and only its last item may be short.
        members = min(self.capacity, self.pairs * size // (knobs.many + 1)) + 1
        room = self.pairs // per_item + members
        classes = np.zeros(1, _CLASSES)
        classes[0] = (self.num_nodes, tiles, size, knobs.few, knobs.many, per_item)
        sums = self.array("vertex_sums", _ROWS * (tiles + 1), np.uint32)
        transits = self.array("transits", self.capacity, self.id_dtype)
        begins = self.array("begins", self.capacity + 1, np.int64)
        lists = self.array("lists", 3 * self.capacity, self.id_dtype)
        item_begins = self.array("item_begins", members + 1, np.uint32)
        items = self.array("items", room, np.uint32)
        totals = self.array("totals", _ROWS, np.int64)
        self._kernel("vertex_sums")((tiles,), (_THREADS,), (as_argument(classes), counts, sums))
        self._kernel("scan_rows")((_ROWS,), (1024,), (sums, np.int64(tiles)))
        self._kernel("number_transits")(
            (tiles,), (_THREADS,),
            (as_argument(classes), counts, sums, transits, begins, lists, np.int64(self.capacity), item_begins, totals),
        )  # fmt: skip
        self.launch("expand_items", 32 * members, totals, item_begins, items)
        return replace(
            index, transits=transits, begins=begins, totals=totals, lists=lists.reshape(3, self.capacity),
            item_begins=item_begins, items=items, pairs_per_item=per_item,
        )  # fmt: skip


def null_slots(transits: Any, size: int, out: Any) -> None:
    """Write NULL to the ``size`` slots of every NULL transit in ``out``."""
    work = _Work(transits, 1, {}, KNOBS)
    work.launch("null_slots", work.pairs, work.keys, np.int64(work.pairs), np.int64(size), out)


def frontier_ends(index: Index, indptr: Any, scratch: dict[str, Any]) -> Any:
    """Inclusive sums of list lengths over distinct transits, ``int64[min(N, P)]``; an empty list counts as 1."""
    import cupy

    capacity = index.transits.size
    edges = scratch_array(scratch, "index.edges", capacity, np.int64)
    work = _Work(index.transits, 1, scratch, KNOBS)
    work.launch("frontier_edges", capacity, indptr, index.transits, index.totals, np.int64(capacity), edges)
    return cupy.cumsum(edges, out=edges)


def scratch_array(scratch: dict[str, Any], name: str, size: int, dtype: Any) -> Any:
    """The array ``[size]`` kept under ``name`` in ``scratch``; a new one if that is too small or of another dtype."""
    import cupy

    held = scratch.get(name)
    if held is None or held.size < max(1, size) or held.dtype != dtype:
        scratch.pop(name, None)
        del held
        held = scratch[name] = cupy.empty(max(1, size), dtype)
    return held[:size]


@functools.lru_cache(maxsize=64)
def _kernel(name: str, wide: bool, long_pairs: bool) -> Any:
    macros: dict[str, int | str] = {
        "ID_T": "long" if wide else "int",
        "PAIR_T": "long" if long_pairs else "int",
    }
    source = "radix.cu" if name in _RADIX else "index.cu"
    return kernels.load_module(f"sampling/engine/grouping/{source}", macros).get_function(name).kernel
