"""Which thread reads whose neighbours: a step's calls of ``next`` laid out sample-parallel and transit-parallel.

Everything here is counted from the samples, nothing is timed or modelled: calls and what they read are the same under
both schemes (:mod:`.reads`), only the threads that make them are not. There is one thread per call, as in section 5 of
NextDoor; this package's kernels give a thread four neighbouring slots of a pair where a step samples more than one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.sampling.engine.grouping.index import FEW, MANY, num_passes

from .reads import Calls

SCHEMES = ("sample", "transit")
WARP, BLOCK = FEW, MANY
"""Threads of a warp and of the largest block: the limits of the sub-warp and of the block kernel."""
SECTOR_BYTES = 32
KERNELS = ("sub-warp", "block", "grid")
"""Kernels of the transit-parallel scheme in the order of their numbers (paper, table 2)."""


def kernel_of(draws: Any, warp: int = WARP) -> np.ndarray:
    """Number in :data:`KERNELS` of the kernel for a transit with so many neighbours to sample (paper, table 2).

    Below ``warp`` (32) sub-warp, to 1024 block, beyond grid.
    """
    draws = np.asarray(draws)
    return (draws >= warp).astype(np.int64) + (draws > BLOCK)


@dataclass(frozen=True, eq=False)
class Load:
    """The distinct transits of a step, ascending, and their work.

    Attributes:
        vertex: ``int64[D]``, global ids.
        pairs: ``int64[D]``, pairs of sample and transit that want the list.
        samples: ``int64[D]``, samples that want it: a sample may come to a vertex more than once.
        draws: ``int64[D]``, neighbours to sample: ``pairs`` times the step's sample size.
        kernel: ``int64[D]``, number in :data:`KERNELS`.
    """

    vertex: np.ndarray
    pairs: np.ndarray
    samples: np.ndarray
    draws: np.ndarray
    kernel: np.ndarray

    @property
    def shared_by_pairs(self) -> float:
        """Share of the draws whose list is wanted by more than one pair, 0..1."""
        return self._share(self.pairs > 1)

    @property
    def shared_by_samples(self) -> float:
        """Share of the draws whose list is wanted by more than one sample, 0..1."""
        return self._share(self.samples > 1)

    def _share(self, chosen: np.ndarray) -> float:
        total = int(self.draws.sum())
        return float(self.draws[chosen].sum() / total) if total else 0.0

    def by_kernel(self) -> tuple[np.ndarray, np.ndarray]:
        """Transits and draws of each kernel, ``int64[3]`` each."""
        transits = np.bincount(self.kernel, minlength=len(KERNELS))
        draws = np.zeros(len(KERNELS), dtype=np.int64)
        np.add.at(draws, self.kernel, self.draws)
        return transits, draws


def transit_load(transits: Any, size: int) -> Load:
    """Group a step's transits: what the scheduling index finds out.

    Args:
        transits: ids ``[S, t]`` (NumPy or CuPy), -1 for NULL. size: draws per pair, m.
    """
    host = to_host(transits).astype(np.int64)
    rows = max(1, len(host))
    wanted = host >= 0
    # Vertex and sample as one integer: ids below 2**40 and fewer than 2**23 samples fit.
    both = (host * rows + np.arange(len(host))[:, None])[wanted]
    vertex, pairs = np.unique(host[wanted], return_counts=True)
    samples = np.unique(np.unique(both) // rows, return_counts=True)[1]
    draws = pairs * int(size)
    return Load(vertex, pairs, samples, draws, kernel_of(draws))


@dataclass(frozen=True, eq=False)
class Lanes:
    """Calls of ``next`` on the threads of a GPU.

    Attributes:
        call: ``int64[W, width]``: the call that each lane of each warp makes, -1 for an idle lane.
        kernel: ``int64[W]``: number in :data:`KERNELS`, -1 in the sample-parallel scheme.
    """

    call: np.ndarray
    kernel: np.ndarray

    @property
    def width(self) -> int:
        return int(self.call.shape[1])


def lay_out(calls: Calls, scheme: str, width: int = WARP) -> Lanes:
    """Give every call its thread.

    ``"sample"`` (section 5.1): consecutive threads for consecutive slots of a pair of sample and transit, pairs in the
    order of the samples. ``"transit"`` (sections 5.2 and 6.1): pairs sorted by transit; a transit with at least
    ``width`` neighbours to sample has blocks of its own and so begins a warp of its own, smaller ones share warps.

    Args:
        calls: of one step. scheme: one of :data:`SCHEMES`. width: threads of a warp; 32 on every GPU so far, fewer to
            draw them. Transits of fewer calls than ``width`` go to the sub-warp kernel.

    Raises:
        ValueError: an unknown scheme, or ``width`` below 1.
    """
    choice("scheme", scheme, SCHEMES)
    if width < 1:
        raise ValueError(f"width must be at least 1 (got {width})")
    if scheme == "sample":
        order = np.where(calls.transit >= 0, np.arange(len(calls)), -1)
        lanes = _rows(order, width)
        return Lanes(lanes, np.full(len(lanes), -1, dtype=np.int64))
    wanted = np.flatnonzero(calls.transit >= 0)
    order = wanted[np.argsort(calls.transit[wanted], kind="stable")]
    _, inverse, draws = np.unique(calls.transit[order], return_inverse=True, return_counts=True)
    kernel = kernel_of(draws, width)
    parts, kinds = [], []
    for number in range(len(KERNELS)):
        chosen = np.flatnonzero(kernel == number)
        if number == 0:
            groups = [order[kernel[inverse] == 0]] if len(chosen) else []
        else:
            ends = np.cumsum(draws)
            groups = [order[ends[d] - draws[d] : ends[d]] for d in chosen]
        for group in groups:
            parts.append(_rows(group, width))
            kinds.append(np.full(len(parts[-1]), number, dtype=np.int64))
    if not parts:
        return Lanes(np.empty((0, width), dtype=np.int64), np.empty(0, dtype=np.int64))
    return Lanes(np.concatenate(parts), np.concatenate(kinds))


def _rows(order: np.ndarray, width: int) -> np.ndarray:
    lanes = np.full((-(-len(order) // width), width), -1, dtype=np.int64)
    lanes.ravel()[: len(order)] = order
    return lanes


@dataclass(frozen=True, eq=False)
class WarpCounts:
    """What each warp does, ``int64[W]`` each.

    Attributes:
        threads: lanes with a call.
        lists: different neighbour lists (transits) among them.
        degrees: different lengths of those lists.
        reads: reads of neighbour lists and weights by all lanes.
        loads: load instructions that the warp goes through: those that at least one lane executes.
        sectors: 32-byte sectors that these touch, each counted once per load instruction.
    """

    threads: np.ndarray
    lists: np.ndarray
    degrees: np.ndarray
    reads: np.ndarray
    loads: np.ndarray
    sectors: np.ndarray
    width: int

    @property
    def busy(self) -> np.ndarray:
        """Share of the lanes that read, over the warp's loads, 0..1: what idle and diverging lanes leave."""
        return self.reads / np.maximum(1, self.loads * self.width)


def count_warps(calls: Calls, lanes: Lanes) -> WarpCounts:
    """Count what the warps of a layout read.

    A warp executes one load after the other, each for those of its lanes that come to it, and asks the memory for the
    sectors that those lanes' addresses lie in. Lanes that went round a loop less often wait for the others.
    """
    warps = len(lanes.call)
    warp_of = np.full(len(calls), -1, dtype=np.int64)
    on = lanes.call >= 0
    warp_of[lanes.call[on]] = np.broadcast_to(np.arange(warps)[:, None], lanes.call.shape)[on]
    used = warp_of >= 0
    read_by = np.repeat(warp_of, np.diff(calls.begins))
    kept = read_by >= 0
    read_by, sector, load = read_by[kept], calls.address[kept] // SECTOR_BYTES, calls.instruction[kept]
    return WarpCounts(
        threads=np.bincount(warp_of[used], minlength=warps),
        lists=_distinct(warp_of[used], warps, calls.transit[used]),
        degrees=_distinct(warp_of[used], warps, calls.degree[used]),
        reads=np.bincount(read_by, minlength=warps),
        loads=_distinct(read_by, warps, load),
        sectors=_distinct(read_by, warps, load, sector),
        width=lanes.width,
    )


def _distinct(group: np.ndarray, groups: int, *values: np.ndarray) -> np.ndarray:
    """Different tuples of ``values`` in each group."""
    key, kinds = np.zeros(len(group), dtype=np.int64), 1
    for value in values:
        # Numbered from 0, so that a tuple fits one integer.
        found, number = np.unique(value, return_inverse=True)
        key, kinds = key * len(found) + number, kinds * len(found)
        if kinds > 1 << 40:
            found, key = np.unique(key, return_inverse=True)
            kinds = len(found)
    return np.bincount(np.unique(group * kinds + key) // max(1, kinds), minlength=groups)


def distinct_sectors(calls: Calls) -> int:
    """Different sectors that the step reads: what an unlimited cache would fetch, under either scheme."""
    return len(np.unique(calls.address // SECTOR_BYTES))


def staged_sectors(calls: Calls, lanes: Lanes) -> int:
    """Sectors when block and grid kernels copy their transit's whole list to shared memory, once per 1024 threads.

    Reads of other lists, and those of the sub-warp kernel, cost what :func:`count_warps` says.
    """
    counts = count_warps(calls, lanes)
    total = int(counts.sectors[lanes.kernel < 1].sum())
    staging = lanes.kernel >= 1
    mine = lanes.call[staging]
    mine = mine[mine >= 0]
    if not len(mine):
        return total
    _, first, draws = np.unique(calls.transit[mine], return_index=True, return_counts=True)
    stop = calls.begin + calls.degree * calls.id_bytes
    begin, end = calls.begin[mine[first]], stop[mine[first]]
    length = np.where(end > begin, (end - 1) // SECTOR_BYTES - begin // SECTOR_BYTES + 1, 0)
    total += int((length * -(-draws // BLOCK)).sum())
    # What those calls read besides: the list of the vertex before, for one.
    per_call = np.diff(calls.begins)
    inside = (calls.address >= np.repeat(calls.begin, per_call)) & (calls.address < np.repeat(stop, per_call))
    kept = np.concatenate([[0], np.cumsum(~inside)])[calls.begins]
    others = Calls(
        calls.size, calls.sample, calls.transit, calls.degree, calls.vertex, kept, calls.address[~inside],
        calls.instruction[~inside], calls.begin, calls.id_bytes,
    )  # fmt: skip
    return total + int(count_warps(others, Lanes(lanes.call[staging], lanes.kernel[staging])).sectors.sum())


def sampling_bytes(load: Load, id_bytes: int) -> dict[str, int]:
    """Bytes that drawing a step moves where every draw is one read of a list and no two share a sector.

    Args:
        load: the step's transits. id_bytes: size of a vertex id.
    """
    draws = int(load.draws.sum())
    return {"lists read": SECTOR_BYTES * draws, "vertices written": id_bytes * draws}


def index_bytes(load: Load, num_nodes: int, id_bytes: int, method: str) -> dict[str, int]:
    """Bytes of the arrays that building a step's scheduling index (``index.py``) reads and writes, pass by pass.

    Either way there is a four-byte counter for every vertex of the graph: cleared, read twice, and overwritten with the
    place of the vertex's first pair. A distinct transit is written with that place, and into the list of its kernel.

    Args:
        load: the step's transits. num_nodes: vertices of the graph. id_bytes: size of an id.
        method: ``"radix"``: eight bits of the transit at a time; a pass reads the keys, then reads and writes keys and
            pairs (of four bytes; the first pass knows them). ``"counting"``: every pair raises its transit's counter
            and keeps what it found; then it reads that and the counter to find its place.

    Raises:
        ValueError: an unknown method.
    """
    choice("method", method, ("radix", "counting"))
    pairs, distinct = int(load.pairs.sum()), len(load.vertex)
    counters, found = 16 * num_nodes, (2 * id_bytes + 8) * distinct
    if method == "radix":
        moved = pairs * (num_passes(num_nodes) * (3 * id_bytes + 8) - 4) if pairs else 0
        counters += id_bytes * pairs + 4 * distinct
    else:
        moved = pairs * (2 * id_bytes + 12)
        counters += 12 * pairs
    return {"pairs sorted": moved, "counters": counters, "transits found": found}
