"""Decisions about a graph larger than GPU memory: how it is cut, and which parts a step copies. Needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_SLOTS = 32
"""Most sub-graphs on the GPU at once: with more, a step can skip smaller parts, but each costs a launch and a copy."""
LEAST_COPY_BYTES = 4 << 20
"""Least bytes of a sub-graph, if lists allow: smaller copies do not reach the bandwidth of the bus."""


def fits(graph: Any, graph_bytes: int, weighted: bool) -> bool:
    """Whether all edges fit ``graph_bytes``, weights and their prefix sums included; then nothing is streamed."""
    return int(graph.num_edges) * (graph.indices.dtype.itemsize + 12 * weighted) <= graph_bytes


def cut(indptr: np.ndarray, most_edges: int) -> np.ndarray:
    """First vertices of sub-graphs of at most ``most_edges`` edges, and the number of vertices, ``int64[G + 1]``.

    No list may be longer than ``most_edges``.
    """
    first, last, starts = 0, indptr.size - 1, []
    while first < last:
        starts.append(first)
        first = int(np.searchsorted(indptr, indptr[first] + most_edges, side="right")) - 1
    return np.array([*starts, last], dtype=np.int64)


@dataclass(frozen=True)
class Layout:
    """How edges are cut and staged: bytes per edge, number of slots on the GPU, and edges that fit one slot."""

    edge_bytes: int
    slots: int
    slot_edges: int


def lay_out(
    graph_bytes: int, num_edges: int, longest: int, edge_bytes: int, extra: int, slots: int | None = None
) -> Layout:
    """Choose how many sub-graphs lie on the GPU at once, and how large they are.

    Args:
        graph_bytes: most bytes of all of them together.
        num_edges, longest: edges of the graph and of its longest list.
        edge_bytes, extra: bytes of a staged edge, and additional bytes per sub-graph (the end of prefix sums).
        slots: overrides the choice; 2 is the least for which a copy overlaps with sampling.

    Raises:
        ValueError: the longest list does not fit.
    """
    longest_bytes = longest * edge_bytes + extra
    if longest_bytes > graph_bytes:
        raise ValueError(
            f"graph_bytes must hold the graph's longest list, {longest} edges in {longest_bytes} bytes "
            f"(got {graph_bytes})"
        )
    if num_edges * edge_bytes + extra <= graph_bytes:
        return Layout(edge_bytes, 1, max(1, num_edges))
    if slots is None:
        slots = min(MAX_SLOTS, graph_bytes // max(longest_bytes, LEAST_COPY_BYTES))
    # At least two slots, if two of the longest lists fit: with one slot, copies would wait for kernels.
    slots = max(min(graph_bytes // max(1, longest_bytes), 2), slots)
    slots = min(slots, graph_bytes // max(1, longest_bytes))
    return Layout(edge_bytes, slots, (graph_bytes // slots - extra) // edge_bytes)


class Places:
    """Which sub-graph lies in which slot. A new one replaces the least recently used one."""

    def __init__(self, slots: int) -> None:
        self._held = dict.fromkeys(
            range(-slots, 0)
        )  # insertion order: least recently used first; negative keys stand for empty slots
        self._slot = {part: -1 - part for part in self._held}

    def __contains__(self, part: int) -> bool:
        return part in self._held

    @property
    def parts(self) -> list[int]:
        """Sub-graphs that lie in a slot."""
        return [part for part in self._held if part >= 0]

    def take(self, part: int) -> tuple[int, bool]:
        """The slot of ``part``, and whether it has to be copied there first."""
        absent = part not in self._held
        if absent:
            oldest = next(iter(self._held))
            del self._held[oldest]
            self._slot[part] = self._slot.pop(oldest)
        else:
            del self._held[part]
        self._held[part] = None
        return self._slot[part], absent


def plan_step(
    bounds: np.ndarray,
    part_bytes: np.ndarray,
    pair_bytes: float | None,
    held: set[int],
    rent: np.ndarray,
    slots: int,
) -> tuple[list[tuple[int, int]], list[int]]:
    """Which sub-graphs a step reads across the bus, and which are staged, in order.

    Staged sub-graphs that already lie on the GPU come first, so that no copy replaces one of them before its turn. If
    every step wants all G sub-graphs and there are K slots, a step copies G - K.

    A sub-graph is staged if this step reads so much of it that the copy costs less, or if this and earlier steps
    together have read so much of it: it will probably be read again, and stays in its slot with a chance of about K /
    G.

    Args:
        bounds: pairs before each sub-graph, ``int64[G + 1]``.
        part_bytes: bytes of each sub-graph, ``int64[G]``.
        pair_bytes: cost of a pair that is read across the bus, in bytes of a copy; None: stage every sub-graph.
        held: sub-graphs that lie on the GPU.
        rent: cost of all reads of each across the bus since it was staged last, in bytes of a copy, ``float64[G]``;
            this function updates it.
        slots: K.

    Returns:
        Runs ``(first, last)`` of sub-graphs read across the bus (neighbours joined, empty ones between them too), and
        numbers of the staged ones.
    """
    pairs = np.diff(bounds)
    lies_there = np.zeros(pairs.size, dtype=bool)
    lies_there[list(held)] = True
    wanted = pairs > 0
    if pair_bytes is None:
        staged = wanted
    else:
        cost = pairs * pair_bytes
        rent += cost
        staged = wanted & (
            lies_there | (cost >= part_bytes) | (rent >= part_bytes * max(1.0, pairs.size / slots))
        )
        rent[staged] = 0
    runs: list[tuple[int, int]] = []
    for part in map(int, np.flatnonzero(wanted & ~staged)):
        if runs and not staged[runs[-1][1] : part].any():
            runs[-1] = (runs[-1][0], part + 1)
        else:
            runs.append((part, part + 1))
    order = [*np.flatnonzero(staged & lies_there), *np.flatnonzero(staged & ~lies_there)]
    return runs, [int(part) for part in order]
