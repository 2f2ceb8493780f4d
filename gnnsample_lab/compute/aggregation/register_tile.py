"""Launch shapes of the register-tile kernel (``register_tile.cu``) and which one is used when."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnsample_lab.device import runtime

from . import few_rows
from .csr import Csr, dtype_name, function, pointer, row_stride, scalar_type

_MACROS = ("vec", "lanes", "chunks", "unroll", "load", "store", "threads", "min_blocks", "heavy")


FEW_ROWS = 2
"""Rows per group and multiprocessor below which a launch has the shape for few rows (:func:`of_few`)."""


@dataclass(frozen=True)
class Tile:
    """One launch shape; results do not depend on it but for rows longer than ``heavy`` (order of addition).

    Attributes:
        vec: scalars per load; at most 16 bytes.
        lanes: threads per row, up to 32.
        chunks: vectors of each lane: a tile is ``vec * lanes * chunks`` features wide.
        unroll: source rows in flight per lane.
        load: 0 through the L1, 1 past it, 2 and 3 with 128 or 256 bytes fetched into the L2.
        store: 1 marks written lines as the first to leave the L2.
        depth: rows per group, whose edges are read as one stream; at most 16.
        threads: threads per block, a multiple of ``lanes``.
        min_blocks: resident blocks per multiprocessor that the compiler leaves registers for.
        heavy: rows with more edges are shared by the block.
        tile_last: finish a feature tile for all rows before the next tile begins.
    """

    vec: int = 4
    lanes: int = 16
    chunks: int = 1
    unroll: int = 4
    load: int = 0
    store: int = 1
    depth: int = 8
    threads: int = 128
    min_blocks: int = 8
    heavy: int = 64
    tile_last: bool = True

    @property
    def width(self) -> int:
        """Features per tile."""
        return self.vec * self.lanes * self.chunks

    def with_(self, **changes: Any) -> Tile:
        """A copy with some knobs changed."""
        return replace(self, **changes)

    def macros(self) -> dict[str, int | str]:
        return {name.upper(): getattr(self, name) for name in _MACROS}


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n``."""
    return 1 << max(0, n - 1).bit_length()


def vector_width(features: int, head_size: int, *arrays: Any) -> int:
    """Scalars that one load may take: rows, heads and addresses must be multiples of it."""
    itemsize = 4 if dtype_name(arrays[0]) == "float32" else 8
    vec = 16 // itemsize
    while vec > 1 and (
        features % vec or head_size % vec or any(int(pointer(a)) % (vec * itemsize) for a in arrays)
    ):
        vec //= 2
    return vec


def choose(csr: Csr, features: int, vec: int) -> Tile:
    """The launch shape for sums over ``csr`` of rows of ``features`` scalars: what was fastest in the recorded sweeps.

    If there are more rows than sources (backward), writes cost more than reads and tiles of whole rows are best;
    otherwise narrower tiles keep more of the sources in the L2, unless the last tile would have idle lanes.
    """
    vectors = -(-features // vec)
    if csr.num_rows <= csr.num_sources:
        return _lanes(Tile(vec, 16), vectors if vectors < 32 else 16)
    if vectors <= 32:
        # Long rows are often neighbours: with many edges per row, a group that takes many rows ends last.
        edges_per_row = max(1.0, csr.num_edges / csr.num_rows)
        depth = min(16, max(2, power_of_two(int(16 / edges_per_row) + 1) // 2))
        return _lanes(Tile(vec, depth=depth), vectors)
    return Tile(vec, 32, 2, depth=4, min_blocks=6)


def of_few(tile: Tile, rows: int, features: int, sms: int) -> Tile:
    """``tile`` where rows are so few that no multiprocessor has many groups: a row's edges are then what takes time.

    More of its source rows are in flight, and smaller blocks spread the rows over more multiprocessors. Most such
    launches have a kernel of their own (:mod:`.few_rows`), which has no coefficients per head and no ``direct`` edges.
    """
    tiles, groups = -(-features // tile.width), tile.threads // tile.lanes
    if tile.chunks > 1 or rows * tiles >= FEW_ROWS * groups * sms:
        return tile
    return tile.with_(unroll=16, threads=64 // tile.lanes * tile.lanes, min_blocks=4)


def _lanes(tile: Tile, vectors: int) -> Tile:
    """``tile`` with a lane for each of a row's vectors, or a few more where that is faster.

    Groups of a power of two never lie in two warps, and a few idle lanes cost less than groups that do; from a fifth
    of them on they cost more: 25 lanes took 0.74 to 0.96 of the time of 32 for rows of 100 numbers. Fewer than 9 were
    not measured.
    """
    rounded = power_of_two(vectors)
    if rounded <= 8 or rounded == vectors or (rounded == 16 and 5 * (rounded - vectors) <= rounded):
        return tile.with_(lanes=rounded)
    return tile.with_(lanes=vectors, threads=tile.threads // vectors * vectors)


@functools.cache
def _kernel(tile: Tile, scalar: str, coef: int, direct: bool, own: bool) -> Any:
    macros = {**tile.macros(), "SCALAR": scalar, "COEF": coef, "DIRECT": int(direct)}
    if own:
        macros["OWN"] = 1
    return function("aggregation/register_tile.cu", "register_tile", tuple(macros.items()))


def launch(
    csr: Csr,
    x: Any,
    out: Any,
    coef: Any = None,
    mean: bool = False,
    tile: Tile | None = None,
    head_size: int | None = None,
    direct: bool = False,
    fold: Any = None,
) -> None:
    """Put one sum over the rows of ``csr`` on CuPy's current stream. Allocates nothing and does not wait.

    Args:
        csr: rows, on the GPU.
        x: ``[csr.num_sources, F]`` (``[num_edges, F]`` when ``direct``), dense, ``float32`` or ``float64``.
        out: ``[csr.num_rows, F]``, written whole; its rows may lie apart.
        coef: per edge ``[num_edges]``, or per edge and head ``[num_edges, F // head_size]``, or None.
        mean: divide by the row's number of edges.
        tile: launch shape; None chooses, and takes the kernel for few rows (:mod:`.few_rows`) where it is faster.
        head_size: features per head when ``coef`` is per head.
        direct: edge ``e`` reads row ``e`` of ``x``.
        fold: what happens to a row before it is written (:class:`~gnnsample_lab.compute.layers.Fold`), or None; its
            ``loop`` is in place of ``mean``.
    """
    sizes = out.shape
    rows, features = int(sizes[0]), int(sizes[1]) if len(sizes) == 2 else math.prod(map(int, sizes[1:]))
    if rows == 0 or features == 0:
        return
    from_x, to_out = pointer(x), pointer(out)
    address, mode = int(from_x) | int(to_out), int(mean)
    own: tuple[Any, ...] = ()
    if fold is not None:
        own = pointer(fold.own), pointer(fold.bias), np.uint32(fold.relu), pointer(fold.more)
        address |= int(own[0]) | int(own[1])
        mode = 2 if fold.loop else mode
    kernel, grid, block, numbers = _planned(
        rows, csr.num_sources, csr.num_edges, features, row_stride(out), head_size or features, scalar_type(x),
        address & 15, 0 if coef is None else 1 if head_size is None else 2, direct, fold is not None, mode, tile,
    )  # fmt: skip
    kernel(
        grid,
        block,
        (pointer(csr.indptr), pointer(csr.indices), pointer(coef), from_x, to_out, *numbers, *own),
    )


@functools.lru_cache(maxsize=1024)
def _planned(
    rows: int, sources: int, edges: int, features: int, stride: int, head: int, scalar: str, address: int,
    per_edge: int, direct: bool, own: bool, mode: int, tile: Tile | None,
) -> tuple[Any, tuple[int, ...], tuple[int], tuple[Any, ...]]:  # fmt: skip
    """Kernel, grid, block and the numbers among its arguments. Captured steps and benchmarks ask for the same again."""
    itemsize = 4 if scalar == "float" else 8
    widest = 16 // itemsize
    while widest > 1 and (
        features % widest or stride % widest or head % widest or address % (widest * itemsize)
    ):
        widest //= 2
    if tile is None:
        tile = choose(Csr(None, None, rows, sources, edges), features, widest)
        tile = of_few(tile, rows, features, runtime.num_sms())
        shape = few_rows.shape_for(rows, features, widest, runtime.num_sms())
        if shape is not None and per_edge < 2 and not direct:
            # Parts of a long row: as many as here, so that bits do not depend on which kernel it is.
            kernel = few_rows.kernel(shape, scalar, per_edge, own, tile.heavy, tile.threads // tile.lanes)
            sizes = np.uint64(rows), np.uint32(features), np.uint32(mode), np.uint64(stride)
            return kernel, few_rows.grid_for(shape, rows), (few_rows.WARP * few_rows.BLOCK_WARPS,), sizes
    if tile.vec > widest:
        tile = tile.with_(vec=widest)
    groups, tiles = tile.threads // tile.lanes, -(-features // tile.width)
    depth = tile.depth
    while depth > 1 and rows * tiles < groups * depth * runtime.num_sms() * 4:
        depth //= 2  # too few rows to keep the GPU busy with long-lived groups
    row_blocks = -(-rows // (groups * depth))
    if row_blocks * tiles >= 1 << 31:
        raise ValueError(f"block is too large for one launch (got {rows} rows in {tiles} tiles)")
    numbers = (
        np.uint64(rows), *map(np.uint32, (features, head, tiles, row_blocks, depth, mode, tile.tile_last)),
        np.uint64(stride),
    )  # fmt: skip
    kernel = _kernel(tile, scalar, per_edge, direct, own)
    return kernel, (row_blocks * tiles,), (tile.threads,), numbers
