"""Accessors that take notes: the twins of ``cpu_context.py`` in plain Python, for one call of ``next`` at a time.

They keep the address of every read of a neighbour list; see :mod:`.reads`, which runs applications over them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab.device import philox
from gnnsample_lab.device.jit import njit

from .language.accessors import FAILURES
from .language.app import NULL
from .result import AppResult


@njit(cache=True)
def _words(sample, item, step, low, seed):  # type: ignore[no-untyped-def]
    return philox.app_words(sample, item, step, low, seed)


class Call:
    """The context that the accessors below are handed: one call at a time."""

    def __init__(self, result: AppResult, step: int, prefix: np.ndarray | None) -> None:
        graph = result.graph
        self.indptr, self.indices = graph.indptr, graph.indices
        self.id_bytes = int(graph.indices.dtype.itemsize)
        self.prefix = prefix
        self.prefix_at = -(-self.indices.size * self.id_bytes // 256) * 256
        self.num_nodes = int(graph.num_nodes)
        self.history = [result.roots, *result.steps]
        self.step, self.seed, self.first_sample = step, np.uint64(result.seed), result.first_sample
        self.size = result.shape[step].size
        self.for_transits = False

    def start(self, row: int, k: int, j: int, transit: int, for_transits: bool = False) -> None:
        self.row, self.k, self.j, self.transit, self.for_transits = row, k, j, transit, for_transits
        self.begin = int(self.indptr[transit]) if transit >= 0 else 0
        self.count = int(self.indptr[transit + 1]) - self.begin if transit >= 0 else 0
        self.drawn, self.group, self.words = 0, -1, (0, 0, 0, 0)
        self.visits: dict[int, int] = {}
        self.address: list[int] = []
        self.instruction: list[int] = []

    def word(self) -> int:
        n = self.drawn
        self.drawn += 1
        if self.for_transits:
            group, at, item = n >> 2, n & 3, 1 << 31 | self.k
        elif n == 0:
            group, at, item = 0, self.j & 3, self.k * ((self.size + 3) >> 2) + (self.j >> 2)
        else:
            group, at, item = 1 + ((n - 1) >> 2), (n - 1) & 3, self.k * self.size + self.j
        if group != self.group:
            self.words = _words(self.first_sample + self.row, item, self.step, group, self.seed)
            self.group = group
        return int(self.words[at])

    def visit(self, line: int) -> int:
        """First part of an instruction's number: the line, and how often the call has come by."""
        seen = self.visits.get(line, 0)
        self.visits[line] = seen + 1
        return (line << 20 | min(seen, 0xFFFFF)) << 8

    def read_id(self, position: int, instruction: int) -> int:
        self.address.append(position * self.id_bytes)
        self.instruction.append(instruction)
        return int(self.indices[position])

    def read_prefix(self, position: int, instruction: int) -> int:
        if self.prefix is None:
            return position
        self.address.append(self.prefix_at + position * 8)
        self.instruction.append(instruction)
        return int(self.prefix[position])

    def edges_of(self, v: int) -> tuple[int, int]:
        """Position of the list of ``v`` and its length; empty for NULL."""
        if v == NULL:
            return 0, 0
        _check(0 <= v < self.num_nodes, 2)
        begin = int(self.indptr[v])
        return begin, int(self.indptr[v + 1]) - begin


def _check(holds: bool, code: int) -> None:
    if not holds:
        raise RuntimeError(FAILURES[code])


def _item(c: Call, begin: int, count: int, i: int, line: int) -> int:
    _check(0 <= i < count, 1)
    return c.read_id(begin + i, c.visit(line))


def _weight(c: Call, begin: int, count: int, i: int, line: int) -> int:
    _check(0 <= i < count, 1)
    at = c.visit(line)
    return c.read_prefix(begin + i + 1, at) - c.read_prefix(begin + i, at | 1)


def _prefix(c: Call, begin: int, count: int, i: int, line: int) -> int:
    _check(0 <= i <= count, 1)
    at = c.visit(line)
    return c.read_prefix(begin + i, at) - c.read_prefix(begin, at | 1)


def _search(c: Call, begin: int, count: int, x: int, line: int) -> int:
    at = c.visit(line)
    if c.prefix is None:
        _check(0 <= x < count, 1)
        return x
    low, high, probe = -1, count + 1, 1
    base = c.read_prefix(begin, at)
    while high - low > 1:
        middle = (low + high) >> 1
        if c.read_prefix(begin + middle, at | min(probe, 255)) <= x + base:
            low = middle
        else:
            high = middle
        probe += 1
    _check(0 <= low < count, 1)
    return low


def _find(c: Call, begin: int, count: int, v: int, line: int) -> int:
    at, probe = c.visit(line), 0
    low, high = begin, begin + count
    while low < high:
        middle = (low + high) >> 1
        if c.read_id(middle, at | min(probe, 255)) < v:
            low = middle + 1
        else:
            high = middle
        probe += 1
    return int(low < begin + count and c.read_id(low, at | min(probe, 255)) == v)


def _below(c: Call, n: int, line: int) -> int:
    _check(n > 0, 3)
    if n >= 1 << 32:
        low = c.word()
        return ((c.word() << 32 | low) * n) >> 64
    product = c.word() * n
    if product & 0xFFFFFFFF < n:
        remainder, tries = ((1 << 32) - n) % n, 1
        while product & 0xFFFFFFFF < remainder and tries < 64:
            product = c.word() * n
            tries += 1
    return product >> 32


def _chance(c: Call, p: float) -> int:
    word = c.word()
    return int(p >= 1.0 or word < int(p * 4294967296.0))


def prev_vertex(c: Call, i: int, pos: int, line: int) -> int:
    at = c.step + 1 - i
    _check(i >= 1 and pos >= 0, 8)
    if at < 0:
        return NULL
    _check(pos < c.history[at].shape[1], 8)
    return int(c.history[at][c.row, pos])


def _size(c: Call) -> int:
    return sum(int((part[c.row] >= 0).sum()) for part in c.history[: c.step + 1])


def _fail(c: Call, line: int, code: int) -> int:
    raise RuntimeError(FAILURES.get(code, f"code {code}"))


def _root_replace(c: Call, old: int, new: int, line: int) -> int:
    raise ValueError(
        "an application that replaces roots cannot be followed: the roots of a step are not kept"
    )


def _own(function: Callable[..., int]) -> Callable[..., int]:
    """An accessor of ``src_edges`` from one of any list."""
    return lambda c, i, line: function(c, c.begin, c.count, i, line)


def _any(function: Callable[..., int]) -> Callable[..., int]:
    """An accessor of the list of a vertex from one of any list."""
    return lambda c, v, i, line: function(c, *c.edges_of(v), i, line)


ACCESSORS: dict[str, Callable[..., Any]] = {
    "lab_edge_count": lambda c: c.count,
    "lab_edge": _own(_item),
    "lab_edge_weight": _own(_weight),
    "lab_edge_prefix": _own(_prefix),
    "lab_edge_search": _own(_search),
    "lab_edge_has": _own(_find),
    "lab_neighbor": _any(_item),
    "lab_neighbor_weight": _any(_weight),
    "lab_neighbor_prefix": _any(_prefix),
    "lab_neighbor_search": _any(_search),
    "lab_has_edge": _any(_find),
    "lab_transit_count": lambda c: 1,
    "lab_transit": lambda c, k, line: c.transit if k == 0 else _fail(c, line, 8),
    "lab_prev_vertex": prev_vertex,
    "lab_prev_count": lambda c, i, line: c.history[c.step + 1 - i].shape[1] if i <= c.step + 1 else 0,
    "lab_root_count": lambda c: c.history[0].shape[1],
    "lab_root": lambda c, i, line: int(c.history[0][c.row, i]),
    "lab_root_replace": _root_replace,
    "lab_size": _size,
    "lab_sample_id": lambda c: c.first_sample + c.row,
    "lab_slot": lambda c: c.j,
    "lab_transit_index": lambda c: c.k,
    "lab_num_nodes": lambda c: c.num_nodes,
    "lab_degree": lambda c, v, line: c.edges_of(v)[1],
    "lab_bits": lambda c: c.word(),
    "lab_below": _below,
    "lab_uniform": lambda c: c.word() * 2.0**-32,
    "lab_chance": _chance,
    "lab_go_on": lambda c, line: 1,
    "lab_fail": _fail,
}


def _max_weight(c: Call, v: int, line: int) -> int:
    begin, count = c.edges_of(v)
    if c.prefix is None or count == 0:
        return min(count, 1)
    return int(np.diff(c.prefix[begin : begin + count + 1]).max())


def table_accessors(tables: tuple[np.ndarray, ...]) -> dict[str, Callable[..., Any]]:
    def item(c: Call, t: int, i: int, line: int) -> Any:
        _check(0 <= i < tables[t].size, 9)
        return tables[t][i].item()

    def search(c: Call, t: int, x: int, line: int) -> int:
        return int(np.searchsorted(tables[t], x, side="right")) - 1

    return {
        "lab_table_int": item,
        "lab_table_float": item,
        "lab_table_search": search,
        "lab_max_weight": _max_weight,
    }
