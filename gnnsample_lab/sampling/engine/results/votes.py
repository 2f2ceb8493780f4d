"""Visit counts: of all samples together, and the vertices that a root's samples visit most (PinSAGE's neighbours)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import flag, is_cuda_array, whole
from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.device.arrays import array_module, merge_duplicates, offsets_of, run_starts
from gnnsample_lab.sampling.neighbors.spec import MAX_FANOUT

_THREADS = 256


@dataclass(frozen=True, eq=False)
class Votes:
    """The vertices that the samples of each root hold most often. NumPy or CuPy.

    Attributes:
        roots: distinct roots in first-seen order, global ids ``[n]``.
        counts: kept vertices of each root, ``int32[n]``.
        neighbors: kept vertices, global ids, root by root: the most visited first, among equals the lower id first.
        visits: number of visits of each of ``neighbors``, ``int32``.
    """

    roots: Any
    counts: Any
    neighbors: Any
    visits: Any

    @property
    def offsets(self) -> Any:
        """Where each root's vertices begin, ``int64[n + 1]``."""
        return offsets_of(self.counts)

    def __repr__(self) -> str:
        return f"Votes({self.roots.size:,} roots, {self.neighbors.size:,} neighbours)"


def visits(result: Any, roots: bool = True) -> Any:
    """How often each vertex occurs in the samples, ``int64[N]``, including their roots unless ``roots`` is False."""
    parts = ([result.roots] if flag("roots", roots) else []) + list(result.steps)
    num_nodes = result.graph.num_nodes
    if not is_cuda_array(result.roots):
        total = np.zeros(num_nodes, dtype=np.int64)
        for part in parts:
            flat = part.reshape(-1)
            total += np.bincount(flat[flat >= 0], minlength=num_nodes)
        return total
    import cupy

    counts = cupy.zeros(num_nodes, dtype=np.int64)
    for part in parts:
        flat = cupy.ascontiguousarray(part).reshape(-1)
        macros: dict[str, int | str] = {"ID_T": "int" if flat.dtype.itemsize == 4 else "long"}
        kernel = kernels.load_module("sampling/engine/results/links.cu", macros)
        grid = max(1, min(-(-flat.size // _THREADS), runtime.num_sms() * 16))
        kernel.get_function("count_vertices")((grid,), (_THREADS,), (flat, np.int64(flat.size), counts))
    return counts


def top(result: Any, k: int) -> Votes:
    """The ``k`` vertices that the samples of each root hold most often (PinSAGE, section 3.1).

    Of equally frequent vertices the one with the lower id counts as more frequent. All samples of a root count
    together; the root itself is never among its vertices.

    Args:
        result: an :class:`~.result.AppResult` of samples with one root each.
        k: 1 to 4096.

    Raises:
        TypeError, ValueError: ``k`` is not such a number, or samples have several roots.
    """
    k = whole("k", k, 1, MAX_FANOUT)
    if result.roots.shape[1] != 1:
        raise ValueError(f"top(k) needs samples of one root each (got {result.roots.shape[1]} roots)")
    xp = array_module(result.roots)
    start = result.roots[:, 0].astype(np.int64)
    live = start >= 0
    roots, group, _ = merge_duplicates(start[live])
    steps = [step[live] for step in result.steps]
    width = sum(step.shape[1] for step in steps)
    ids = result.graph.indices.dtype
    if not width or not roots.size:
        empty = xp.empty(0, ids)
        return Votes(roots.astype(ids), xp.zeros(roots.size, np.int32), empty, xp.empty(0, np.int32))
    seen = xp.concatenate(steps, axis=1).astype(np.int64).reshape(-1)
    of = xp.broadcast_to(group[:, None], (group.size, width)).reshape(-1)
    counted = (seen >= 0) & (seen != roots[of])
    # One run of equal (root, vertex) per candidate; its length is the vote.
    pairs = xp.sort(of[counted] * result.graph.num_nodes + seen[counted])
    first = run_starts(pairs)
    starts = xp.flatnonzero(first)
    votes = xp.diff(xp.concatenate([starts, xp.full(1, pairs.size, starts.dtype)]))
    candidate = pairs[starts]
    row, vertex = candidate // result.graph.num_nodes, candidate % result.graph.num_nodes
    order = xp.lexsort(xp.stack([vertex, -votes, row]))
    row, vertex, votes = row[order], vertex[order], votes[order]
    begins = xp.searchsorted(row, xp.arange(roots.size), side="left")
    kept = xp.arange(row.size) - begins[row] < k
    counts = xp.bincount(row[kept], minlength=roots.size).astype(np.int32)
    return Votes(roots.astype(ids), counts, vertex[kept].astype(ids), votes[kept].astype(np.int32))
