"""Walks and layers that read lists where they lie (``method="direct"``): each rank for itself, no exchange.

A walk is one rank's alone, who follows it wherever its lists are. A layer is drawn for the whole batch; it is small and
draws are keyed, so that every rank draws all of it and keeps what falls on its own vertices.

:class:`HostLists` counts what a GPU reads of its peers' memory, in sectors as of :mod:`.sectors`. Kernels keep no
account, so that on a GPU it draws the sample once more where somebody asks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.distributed.parts.part import Part
from gnnsample_lab.sampling.engine.shape import UNBOUNDED_STEPS

from .layout import Layout
from .sectors import search_sectors, total_sectors
from .traffic import NO_NVLINK
from .words import UNCOUNTED, UNIFORM, WEIGHTED, find_weights, layer_draws, move, restarts

APP_METHODS = ("csp", "direct")
"""How walks and layers reach lists of other parts."""
STEPS_AT_ONCE = 64
"""Steps of walks without a bound between two looks whether any goes on."""


class WalkRule(NamedTuple):
    """How walks go on.

    Attributes:
        per_sample: walks of a sample.
        weighted: by weight, else each edge alike.
        termination: probability with which a walk ends before its step; negative where it is not asked.
        restart: probability with which a walk, ended or not, sets out from its root again.
        limit: most steps.
        key: of the draws, as ``int64``.
    """

    per_sample: int
    weighted: bool
    termination: float
    restart: float
    limit: int
    key: Any


class DrawnLayer(NamedTuple):
    """What a rank has of a layer: ``slots``, ascending, ``int64[n]``, their ``vertices``, ids, and ``transits``, the
    places in the last layer from whose lists they are, ``int64[n]``."""

    slots: Any
    vertices: Any
    transits: Any


class Lists(Protocol):
    """Lists of all parts; arrays are of ``xp``, NumPy or CuPy."""

    xp: Any

    def layers(
        self, seeds: np.ndarray, whose: np.ndarray, mine: int, app: Any, batch_id: int
    ) -> list[DrawnLayer]:
        """What a rank has of the layers of a batch, of which it draws all.

        ``seeds``: of the batch, ids ``[n]``; ``whose``: the rank of each, ``int64[n]``; ``mine``: the rank. ``app``: a
        :class:`~gnnsample_lab.sampling.apps.layer.Layer`. RuntimeError: no end after 10,000 layers.
        """
        ...

    def walk(
        self, roots: Any, samples: Any, at: Any, attempted: Any, begin: int, steps: int, rule: WalkRule
    ) -> Any:
        """``steps`` steps of walks from step ``begin`` on: where each came to, ids ``[steps, walks]``, -1 for nowhere.

        ``roots``, ``samples``: of each sample, ids and ``int64[S]``. ``at``: where walks stand, ids ``[walks]``, -1 for
        those that have ended; ``attempted``: steps so far, ``int32[walks]``; both are written.
        """
        ...

    def close(self) -> None:
        """Give back what others may read; all ranks call it together."""
        ...


def lists_of(layout: Layout, weighted: bool, key: Any) -> Lists:
    """Lists of all parts for the device of the layout's rank; all ranks make them together."""
    if layout.rank.device == "cpu":
        return HostLists(layout, weighted, key)
    from .gpu.apps import device_lists

    return device_lists(layout, weighted, key)


def twin_of(lists: Lists, layout: Layout, weighted: bool, key: Any, asked: bool) -> HostLists | None:
    """What draws samples once more to count what was read; None where nobody asks, or the lists count themselves.

    Args:
        lists: of :func:`lists_of`, which has the other arguments.
        layout, weighted, key: as there.
        asked: whether a GPU's reads are counted.
    """
    return HostLists(layout, weighted, key) if asked and not isinstance(lists, HostLists) else None


def label_of(lists: Lists, twin: HostLists | None) -> str:
    """What a traffic has to say of reads."""
    if isinstance(lists, HostLists):
        return NO_NVLINK
    return "" if twin else "reads were not counted: count_reads=False"


def walked(lists: Lists, roots: Any, samples: Any, rule: WalkRule) -> tuple[Any, int, bool]:
    """Paths from ``roots``, ids ``[steps, walks]``; steps of the longest; whether any had not ended at the last.

    Args:
        lists: of all parts.
        roots, samples: of each sample: original id, and id in the draws, ``int64[S]``.
        rule: how they go on.
    """
    xp = lists.xp
    at = xp.repeat(roots, rule.per_sample)
    attempted = xp.zeros(at.size, np.int32)
    if rule.termination < 0:
        return lists.walk(roots, samples, at, attempted, 0, rule.limit, rule), rule.limit, False
    paths = []
    for begin in range(0, rule.limit, STEPS_AT_ONCE):
        if not at.size or not bool((at >= 0).any()):
            break
        steps = min(STEPS_AT_ONCE, rule.limit - begin)
        paths.append(lists.walk(roots, samples, at, attempted, begin, steps, rule))
    longest = int(attempted.max()) if at.size else 0
    found = xp.concatenate(paths)[:longest] if paths else xp.empty((0, at.size), at.dtype)
    return found, longest, bool((at >= 0).any())


class HostLists:
    """Lists of all parts as memory-mapped files, for CPU ranks; what a GPU would read of peers is counted.

    Args:
        layout: whose parts.
        weighted: whether weights count.
        key: of the draws of layers, as ``int64``.
    """

    xp: Any = np

    def __init__(self, layout: Layout, weighted: bool, key: Any) -> None:
        self._layout, self._weighted, self._key = layout, weighted, key
        self._most = [largest_weights(part) if weighted else np.zeros(1, np.int64) for part in layout.parts]

    def _is_remote(self, p: int) -> bool:
        return p != self._layout.part.rank

    def _count(self, p: int, records: int, entries: int, sums: int) -> None:
        """Add sectors that were read of part ``p``."""
        exchange = self._layout.exchange
        for kind, sectors in (("records", records), ("lists", entries), ("weights", sums)):
            if sectors:
                exchange.traffic.read(kind, exchange.members[p], sectors)

    def _by_part(self, vertices: np.ndarray) -> Any:
        """For each part with some of the vertices: which, and their rows."""
        owner = np.asarray(self._layout.partition.owner)[vertices]
        for p, part in enumerate(self._layout.parts):
            chosen = np.flatnonzero(owner == p)
            if chosen.size:
                yield p, part, chosen, self._layout.rows(vertices[chosen], p)

    def _totals(self, vertices: np.ndarray) -> np.ndarray:
        found = np.zeros(vertices.size, np.int64)
        for p, part, chosen, rows in self._by_part(vertices):
            found[chosen] = total_weights(part, rows, self._weighted)
            if self._is_remote(p):
                sums = total_sectors(*places_of(part, rows)) if self._weighted else 0
                self._count(p, rows.size, 0, sums)
        return found

    def layers(
        self, seeds: np.ndarray, whose: np.ndarray, mine: int, app: Any, batch_id: int
    ) -> list[DrawnLayer]:
        found: list[DrawnLayer] = []
        total, vertices, places = seeds.size, seeds, np.arange(seeds.size)
        while total < app.final_size and vertices.size:
            if len(found) == UNBOUNDED_STEPS:
                raise RuntimeError(f"the sample did not end within {UNBOUNDED_STEPS} layers")
            # NextDoor's rule: a layer is cut where the sample is full.
            starts = offsets_of(self._totals(vertices))
            wanted = min(app.step_size, app.final_size - total) if starts[-1] else 0
            draw = functools.partial(
                self._draw, starts, vertices, whose == mine, batch_id, len(found), app.step_size
            )
            vertex, transit = filled(wanted, vertices.dtype, app, draw)
            slots = np.flatnonzero(vertex >= 0)
            chosen = transit[slots]
            vertices, places, whose = vertex[slots], places[chosen], whose[chosen]
            own = whose == mine
            found.append(DrawnLayer(slots[own], vertices[own], places[own]))
            total, places = total + slots.size, slots
        return found

    def _draw(
        self, starts: np.ndarray, vertices: np.ndarray, is_mine: np.ndarray, batch_id: int, step: int, size: int,
        slots: np.ndarray, attempt: int,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        at, names = np.empty(slots.size, np.int64), np.empty(slots.size, vertices.dtype)
        layer_draws(slots, int(starts[-1]), batch_id, step, size, attempt, self._key, at)
        transit = np.searchsorted(starts, at, side="right") - 1
        inner = at - starts[transit]
        traffic = self._layout.exchange.traffic
        for p, part, chosen, rows in self._by_part(vertices[transit]):
            edges = edges_at(part, rows, inner[chosen], self._weighted)
            names[chosen] = part.indices[edges]
            # A rank draws all of a layer; ideal is what comes from the lists of its own slice, as by exchanges.
            ideal = int(is_mine[transit[chosen]].sum()) * names.itemsize
            traffic.ideal += ideal
            if self._is_remote(p):
                traffic.ideal_remote += ideal
                begins, degrees = places_of(part, rows)
                sums = search_sectors(begins, degrees, edges - begins) if self._weighted else 0
                self._count(p, rows.size, rows.size, sums)
        return names, transit

    def walk(
        self, roots: np.ndarray, samples: np.ndarray, at: np.ndarray, attempted: np.ndarray, begin: int, steps: int,
        rule: WalkRule,
    ) -> np.ndarray:  # fmt: skip
        out = np.full((steps, at.size), -1, at.dtype)
        sample, k = np.repeat(samples, rule.per_sample), np.tile(np.arange(rule.per_sample), samples.size)
        root, again = np.repeat(roots, rule.per_sample), np.empty(at.size, np.bool_)
        traffic = self._layout.exchange.traffic
        for i, came in enumerate(out):
            step = begin + i
            if step and rule.restart > 0:
                restarts(sample, k, step, rule.restart, rule.key, again)
                at[again] = root[again]
            going = np.flatnonzero(at >= 0)
            attempted[going] = step + 1
            for p, part, chosen, rows in self._by_part(at[going]):
                walks = going[chosen]
                to = np.empty(walks.size, at.dtype)
                reads = np.zeros(3, np.int64) if self._is_remote(p) else UNCOUNTED
                prefix = part.prefix if self._weighted else np.zeros(1, np.uint64)
                move(
                    sample[walks], k[walks], rows, part.indptr, part.indices, prefix, self._most[p], step,
                    WEIGHTED if self._weighted else UNIFORM, rule.termination, rule.key, to, reads,
                )  # fmt: skip
                came[walks] = to
                ideal = int((to >= 0).sum()) * to.itemsize
                traffic.ideal += ideal
                if self._is_remote(p):
                    traffic.ideal_remote += ideal
                    self._count(p, *reads.tolist())
            at[:] = came
        return out

    def close(self) -> None:
        """Files need nothing."""


def filled(
    size: int, dtype: Any, app: Any, draw: Callable[[Any, int], tuple[Any, Any]], xp: Any = np
) -> tuple[Any, Any]:
    """The vertex of each slot of a layer, ids ``[size]``, and from which list it is, ``int64[size]``.

    Without replacement repeated vertices are drawn anew, in rounds, as by ``unique`` on one GPU: of equal vertices the
    one of an earlier round stays, else that of the lowest slot; a slot that never got one of its own gets -1.

    Args:
        size: slots; 0 where no list has a weight.
        dtype: of ids.
        app: :class:`~gnnsample_lab.sampling.apps.layer.Layer`.
        draw: of ascending slots and the number of the round: the vertex of each, and from which list it is.
        xp: NumPy or CuPy, whichever the arrays are of.
    """
    vertex, transit = xp.full(size, -1, dtype), xp.zeros(size, np.int64)
    slots, rounds = xp.arange(size), xp.zeros(size, np.int64)
    for attempt in range(1 if app.replace else app.max_redraws + 1):
        if not slots.size:
            break
        rounds[slots] = attempt
        vertex[slots], transit[slots] = draw(slots, attempt)
        if app.replace:
            return vertex, transit
        order = xp.argsort(rounds, kind="stable")
        order = order[xp.argsort(vertex[order], kind="stable")]
        again = vertex[order][1:] == vertex[order][:-1]
        slots = xp.sort(order[1:][again])
    if slots.size:
        vertex[slots] = -1
    return vertex, transit


def total_weights(part: Part, rows: np.ndarray, weighted: bool) -> np.ndarray:
    """Total weight of the lists of ``rows``, ``int64[n]``: their lengths where edges count alike."""
    begins, ends = part.indptr[rows], part.indptr[rows + 1]
    found = part.prefix[ends] - part.prefix[begins] if weighted else ends - begins
    return np.asarray(found.astype(np.int64))


def neighbors_at(part: Part, rows: np.ndarray, inner: np.ndarray, weighted: bool) -> np.ndarray:
    """The neighbour of each list of ``rows`` in whose interval of the list's weight ``inner`` lies, ids ``[n]``."""
    return np.asarray(part.indices[edges_at(part, rows, inner, weighted)])


def edges_at(part: Part, rows: np.ndarray, inner: np.ndarray, weighted: bool) -> np.ndarray:
    """As :func:`neighbors_at`, where each stands among the part's entries, ``int64[n]``."""
    if not weighted:
        return np.asarray(part.indptr[rows] + inner)
    at = np.empty(rows.size, dtype=np.int64)
    find_weights(part.prefix, part.indptr[rows], part.indptr[rows + 1], inner, at)
    return at


def places_of(part: Part, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the lists of ``rows`` begin among the part's entries, and their lengths, ``int64[n]`` both."""
    begins = np.asarray(part.indptr[rows], dtype=np.int64)
    return begins, part.indptr[rows + 1] - begins


def largest_weights(part: Part) -> np.ndarray:
    """The largest integer weight of each list, ``int64[n]``; 0 for an empty one."""
    most = np.zeros(len(part.indptr) - 1, dtype=np.int64)
    filled = np.diff(part.indptr) > 0
    if filled.any():
        amounts = np.diff(part.prefix).astype(np.int64)
        most[filled] = np.maximum.reduceat(amounts, np.asarray(part.indptr)[:-1][filled])
    return most
