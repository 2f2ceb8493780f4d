"""The scheduling index: pairs of sample and transit grouped by transit, without a word to the host (``index.cu``).

``"counting"`` counts pairs per vertex with one atomic each, scans the counts over the vertices and puts every pair in
its place: O(P + N). ``"radix"`` sorts pairs by vertex, 8 bits a pass, and is stable. ``"buckets"`` groups only by
ranges of vertices whose lists fit the L2 together, one pass. No sample depends on the order of pairs within a transit.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.sampling.plan import as_argument

_PACKAGE = "gnnsample_lab.sampling.engine"
_THREADS, _SCAN_TILE, _VERTEX_TILE, _SORT_TILE, _DIGITS, _COARSE, _ROWS = 256, 4096, 2048, 4096, 256, 4096, 5
MAX_PAIRS = 2**32 - 1
FEW, MANY = 32, 1024
"""Neighbours to sample of a transit (pairs * m): below the first: sub-warp; above the second: grid (table 2)."""

_CLASSES = np.dtype([(n, np.int64) for n in ("num_nodes", "tiles", "size", "few", "many", "pairs_per_item")])
_DIGIT = np.dtype([(n, np.int64) for n in ("num_nodes", "pairs", "tiles", "shift", "buckets", "indptr")])


@dataclass(frozen=True)
class IndexKnobs:
    """How an index is built and cut into work; samples never depend on it.

    Attributes:
        match: lanes of a warp with the same transit share one atomic (counting).
        presort: counting takes pairs in the order of buckets: atomics and writes then fall close together.
        bucket_bytes: lists of one bucket; what the L2 holds beside what streams through it.
        blocks_per_sm: resident blocks of kernels that loop.
        few, many: bounds of the classes, in neighbours to sample.
        item_draws: neighbours to sample of one work item of the grid class.
    """

    match: bool = False
    presort: bool = False
    bucket_bytes: int = 24 * 2**20
    blocks_per_sm: int = 8
    few: int = FEW
    many: int = MANY
    item_draws: int = 1024


KNOBS = IndexKnobs()


@dataclass(frozen=True, eq=False)
class Index:
    """Pairs grouped by transit, CuPy. D distinct transits hold ``begins[D]`` pairs; what lies behind is undefined.

    Attributes:
        kind: ``"counting"``, ``"radix"`` or ``"buckets"``.
        pairs: place of each pair in the transits given, by ascending transit, ``int32[P]`` (``int64`` from 2^31 on).
        transits: distinct transits, ascending, ids ``[min(N, P)]``; of buckets None, as all that follows but ``keys``.
        begins: ``int64[min(N, P) + 1]``, first pair of each distinct transit.
        totals: ``int64[5]``: D, members of the three classes, work items.
        lists: ids ``[3, min(N, P)]``: numbers of distinct transits by class (sub-warp, block, grid), ascending.
        item_begins: ``uint32``, first work item of each member of the grid class, and their number.
        items: ``uint32``, member of the grid class that each work item belongs to.
        pairs_per_item: pairs of a work item.
        keys, num_keys: buckets: the transit of each pair, and how many pairs there are (``uint32[1]``).
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
    keys: Any = None
    num_keys: Any = None

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
    indptr: Any = None, num_edges: int = 0, knobs: IndexKnobs = KNOBS,
) -> Index:  # fmt: skip
    """Group the pairs of ``transits`` (ids ``[P]``, CuPy; NULL, negative, is left out) by transit; nothing waits.

    Args:
        kind: ``"radix"``, or any other of ``run_app``'s for counting.
        scratch: where arrays are kept from call to call; the index of the last call with it is overwritten.
        size: neighbours to sample per pair, for the classes.
        indptr, num_edges: of the graph, for ``knobs.presort``.

    Raises:
        ValueError: 2^32 pairs or more.
    """
    scratch = {} if scratch is None else scratch
    work = _Work(transits, num_nodes, scratch, knobs)
    radix = kind == "radix"
    counts = work.array("counts", num_nodes + 1, np.uint32)
    counts.data.memset_async(0, counts.nbytes)
    if radix:
        pairs = work.sort(counts)
    else:
        pairs = work.array("pairs", work.pairs, work.pair_dtype)
        keys, ids, given = work.keys, np.uintp(0), np.uintp(0)
        if knobs.presort and indptr is not None and work.pairs:
            keys, ids, given = work.bucket(indptr, num_edges)
        ranks = work.array("ranks", work.pairs, np.uint32)
        total = np.int64(work.pairs)
        work.launch("count_transits", -(-work.pairs // 4), keys, given, total, counts, ranks)
    index = work.number(counts, size, Index("radix" if radix else "counting", pairs))
    if not radix:
        work.launch("place_pairs", -(-work.pairs // 4), keys, ids, given, total, counts, ranks, pairs)
    return index


def build_buckets(
    transits: Any, num_nodes: int, indptr: Any, num_edges: int, scratch: dict[str, Any] | None = None,
    knobs: IndexKnobs = KNOBS,
) -> Index:  # fmt: skip
    """Group the pairs of ``transits`` by buckets of vertices with some ``knobs.bucket_bytes`` of lists; stable.

    Raises:
        ValueError: 2^32 pairs or more.
    """
    work = _Work(transits, num_nodes, {} if scratch is None else scratch, knobs)
    keys, pairs, count = work.bucket(indptr, num_edges)
    return Index("buckets", pairs, keys=keys, num_keys=count)


def num_passes(num_nodes: int) -> int:
    """Passes of the radix sort: vertices and ``num_nodes`` itself, which stands for NULL, at 8 bits a pass."""
    return max(1, -(-num_nodes.bit_length() // 8))


def num_buckets(num_edges: int, id_bytes: int, bucket_bytes: int) -> int:
    """Buckets of the graph's edges; 255 at most, since one digit stands for NULL."""
    return min(_DIGITS - 1, max(1, -(-num_edges * id_bytes // bucket_bytes)))


def coarse_shift(num_nodes: int) -> int:
    """Bits of a vertex that the table of buckets leaves out."""
    return max(0, (num_nodes - 1).bit_length() - (_COARSE.bit_length() - 1))


class _Work:
    """One index in the making."""

    def __init__(self, transits: Any, num_nodes: int, scratch: dict[str, Any], knobs: IndexKnobs) -> None:
        self.pairs, self.num_nodes, self.knobs = int(transits.size), num_nodes, knobs
        if self.pairs > MAX_PAIRS:
            raise ValueError(
                f"an index holds fewer than 2^32 pairs (got {self.pairs}): run fewer samples at a time"
            )
        self.keys = transits.ravel()
        self.id_dtype = transits.dtype
        self.pair_dtype = np.dtype(np.int64 if self.pairs >= 2**31 else np.int32)
        self.capacity = max(1, min(num_nodes, self.pairs))
        self.tiles = -(-self.pairs // _SORT_TILE)
        self._scratch = scratch

    def array(self, name: str, size: int, dtype: Any) -> Any:
        return scratch_array(self._scratch, f"index.{name}", size, dtype)

    def launch(self, name: str, threads: int, *args: Any) -> None:
        """A kernel that loops."""
        if threads:
            blocks = min(-(-threads // _THREADS), runtime.num_sms() * self.knobs.blocks_per_sm)
            self._kernel(name)((blocks,), (_THREADS,), args)

    def _kernel(self, name: str) -> Any:
        wide, long_pairs = self.id_dtype.itemsize == 8, self.pair_dtype.itemsize == 8
        return _kernel(name, wide, long_pairs, self.knobs.match)

    def sort(self, counts: Any) -> Any:
        """Pairs by transit, stable; ``counts[v]`` from the sorted keys."""
        keys, ids = self.keys, np.uintp(0)
        for number in range(num_passes(self.num_nodes) if self.pairs else 0):
            keys, ids = self._partition(keys, ids, 8 * number, 0, None, number & 1)
        if self.pairs:
            nodes = np.int64(self.num_nodes)
            self.launch("count_runs", self.pairs, keys, np.int64(self.pairs), nodes, counts)
        return ids if self.pairs else self.array("pairs", 0, self.pair_dtype)

    def bucket(self, indptr: Any, num_edges: int) -> tuple[Any, Any, Any]:
        """Transits and pairs by bucket, and their number (``uint32[1]``)."""
        buckets = num_buckets(num_edges, self.id_dtype.itemsize, self.knobs.bucket_bytes)
        shift = coarse_shift(self.num_nodes)
        if self.pairs == 0:
            return self.keys, self.array("ids0", 0, self.pair_dtype), _zero(self.array("none", 1, np.uint32))
        keys, ids = self._partition(self.keys, np.uintp(0), shift, buckets, indptr, 0)
        at = buckets * self.tiles
        return keys, ids, self.array("histogram", _DIGITS * self.tiles, np.uint32)[at : at + 1]

    def _partition(
        self, keys: Any, ids: Any, shift: int, buckets: int, indptr: Any, into: int
    ) -> tuple[Any, Any]:
        histogram = self.array("histogram", _DIGITS * self.tiles, np.uint32)
        digit = np.zeros(1, _DIGIT)
        pointer = 0 if indptr is None else indptr.data.ptr
        digit[0] = (self.num_nodes, self.pairs, self.tiles, shift, buckets, pointer)
        self.launch("digit_histogram", self.tiles * _THREADS, as_argument(digit), keys, histogram)
        n = histogram.size
        blocks = -(-n // _SCAN_TILE)
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
        # A member of the grid class has more than `many` draws, and its last item may be short.
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
    """Write NULL to the ``size`` slots in ``out`` of every NULL transit."""
    work = _Work(transits, 1, {}, KNOBS)
    work.launch("null_slots", work.pairs, work.keys, np.int64(work.pairs), np.int64(size), out)


def frontier_ends(index: Index, indptr: Any, scratch: dict[str, Any]) -> Any:
    """Inclusive sums of list lengths, an empty list counting as 1, over distinct transits: ``int64[min(N, P)]``."""
    import cupy

    capacity = index.transits.size
    edges = scratch_array(scratch, "index.edges", capacity, np.int64)
    work = _Work(index.transits, 1, scratch, KNOBS)
    work.launch("frontier_edges", capacity, indptr, index.transits, index.totals, np.int64(capacity), edges)
    return cupy.cumsum(edges, out=edges)


def scratch_array(scratch: dict[str, Any], name: str, size: int, dtype: Any) -> Any:
    """The array kept under ``name``, ``[size]``; made anew where it is too small or of another type."""
    import cupy

    held = scratch.get(name)
    if held is None or held.size < max(1, size) or held.dtype != dtype:
        scratch.pop(name, None)
        del held
        held = scratch[name] = cupy.empty(max(1, size), dtype)
    return held[:size]


def _zero(array: Any) -> Any:
    array.data.memset_async(0, array.nbytes)
    return array


@functools.lru_cache(maxsize=64)
def _kernel(name: str, wide: bool, long_pairs: bool, match: bool) -> Any:
    macros: dict[str, int | str] = {
        "ID_T": "long" if wide else "int", "PAIR_T": "long" if long_pairs else "int", "MATCH": int(match),
    }  # fmt: skip
    return kernels.load_module("index.cu", _PACKAGE, macros).get_function(name).kernel
