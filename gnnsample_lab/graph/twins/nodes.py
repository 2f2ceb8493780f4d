"""What lies on the vertices of a twin: classes along communities, splits, features. NumPy and CuPy alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.graph.csc import rows_of
from gnnsample_lab.graph.twins.plan import ONE, Plan, octave_of
from gnnsample_lab.graph.twins.words import bits

_PURE, _CLASS, _TRAIN, _ORDER, _PLACE, _STEP = 910, 911, 912, 913, 914, 915
_CIRCLE = 32
"""Bits of the circle on which classes lie, each an arc as long as the class is large."""
_NEAR = 4
"""Classes that one is confused with lie within 2**-_NEAR of the circle on either side."""


def community_classes(plan: Plan, sizes: np.ndarray) -> np.ndarray:
    """int64[S]: the class of each small community, so that classes have about their sizes.

    A community takes the class of the one before in its large community while that class has room, which keeps the
    classes together; else the class that lacks most vertices. Large communities come one after another: taken in
    turns, they would share their classes, and links within them would join different ones.
    """
    room = [int(x) * plan.num_nodes // int(sizes.sum()) for x in sizes]
    whole = np.bincount(plan.large, plan.size)[plan.large]
    out = np.zeros(len(plan.size), dtype=np.int64)
    last: dict[int, int] = {}
    for c in np.lexsort((-plan.size, plan.large, -whole)).tolist():
        size, large = int(plan.size[c]), int(plan.large[c])
        known = last.get(large)
        if known is None or 2 * room[known] < size:
            known = max(range(len(room)), key=room.__getitem__)
        out[c] = last[large] = known
        room[known] -= size
    return out


def labels(
    plan: Plan, small: Any, ids: Any, sizes: np.ndarray, purity: int | Sequence[int], xp: Any, chunk: int
) -> Any:
    """int64[N] by vertex id: its community's class with probability ``purity``, else another.

    Args:
        purity: of all vertices, and others have any class by size; or by octave of degree, and others have one of the
            few that theirs is confused with (:func:`confused`).
    """
    of_small = xp.asarray(community_classes(plan, sizes))
    even = isinstance(purity, int)
    ends = xp.asarray(_ends(sizes))
    out = xp.empty(plan.num_nodes, dtype=np.int64)
    pure = xp.asarray(np.full(1, purity) if even else np.array(purity)[octave_of(plan.degrees)])
    offsets = xp.asarray(np.concatenate([[0], np.cumsum(plan.counts)]))
    for start in range(0, plan.num_nodes, chunk):
        stop = min(start + chunk, plan.num_nodes)
        own = of_small[small[start:stop]]
        if even:
            drawn = xp.searchsorted(ends, bits(xp, plan.seed, _CLASS, start, stop, _CIRCLE), side="right")
            other, chance = xp.minimum(drawn, len(sizes) - 1), pure
        else:
            place = bits(xp, plan.seed, _PLACE, start, stop, 30)
            other = confused(own, sizes, place, bits(xp, plan.seed, _STEP, start, stop, 31), xp)
            chance = pure[rows_of(offsets, start, stop)]
        out[ids[start:stop]] = xp.where(bits(xp, plan.seed, _PURE, start, stop, 16) < chance, own, other)
    return out


def looks(plan: Plan, small: Any, ids: Any, sizes: np.ndarray, xp: Any, chunk: int) -> Any:
    """int64[N] by vertex id: the class of its community, which its features follow whatever its label."""
    of_small = xp.asarray(community_classes(plan, sizes))
    out = xp.empty(plan.num_nodes, dtype=np.int64)
    for start in range(0, plan.num_nodes, chunk):
        out[ids[start : start + chunk]] = of_small[small[start : start + chunk]]
    return out


def confused(own: Any, sizes: np.ndarray, place: Any, step: Any, xp: Any) -> Any:
    """int64: a class that each class ``own`` is confused with.

    Classes are arcs of a circle. A place in the own arc (``place``, 30 bits) is moved, either way, by a step (``step``,
    31 bits) that leaves every arc, and the step's length varies little: so few classes are reached. A step that does
    not depend on the place keeps the sizes of the classes. A class of almost half the vertices cannot be left so; then
    the step has any length, and the class drawn may be the own one.
    """
    length, away, width = _step(sizes)
    ends = _ends(sizes)
    first, arc = xp.asarray(ends - length), xp.asarray(length)
    at = first[own] + (place * arc[own] >> 30)
    far = away + ((step >> 1) * width >> 30)
    at = xp.where(step & 1 == 1, at + far, at - far) & ((1 << _CIRCLE) - 1)
    return xp.minimum(xp.searchsorted(xp.asarray(ends), at, side="right"), len(sizes) - 1)


def mistaken(sizes: np.ndarray) -> float:
    """The chance that the class drawn by :func:`confused` is the own one all the same."""
    length, away, _width = _step(sizes)
    return 0.0 if away else float(((length / 2.0**_CIRCLE) ** 2).sum())


def _ends(sizes: np.ndarray) -> np.ndarray:
    """int64[C]: where the arc of each class ends."""
    ends = np.cumsum(sizes)
    return np.array([int(e) * (1 << _CIRCLE) // int(ends[-1]) for e in ends], dtype=np.int64)


def _step(sizes: np.ndarray) -> tuple[np.ndarray, int, int]:
    """``(length of the arcs, shortest step, by how much it may be longer)``."""
    length = np.diff(_ends(sizes), prepend=np.int64(0))
    most, width = int(length.max()), 1 << _CIRCLE - _NEAR
    return (length, most, width) if 2 * most + width <= 1 << _CIRCLE else (length, 0, 1 << _CIRCLE)


def splits(
    plan: Plan,
    small: Any,
    ids: Any,
    training: Mapping[str, Any],
    kept: np.ndarray,
    total: int,
    xp: Any,
    chunk: int,
) -> dict[str, Any]:
    """Vertex ids, ascending, of the training, validation and test set.

    Args:
        training: of :mod:`.statistics`, for a graph of ``total`` vertices.
        kept: communities of the statistics that the plan has kept.
    """
    n = plan.num_nodes
    wanted = {}
    for name in ("train", "valid", "test"):
        count = int(training[name])
        # Halves are rounded up, and a split that the original has is never empty.
        wanted[name] = min(max(1, (2 * count * n + total) // (2 * total)), n) if count else 0
    by_community, by_degree = training.get("by_community"), training.get("by_degree")
    of_community = np.full(len(plan.size), ONE) if by_community is None else np.array(by_community)[kept]
    groups = octave_of(plan.degrees)
    of_degree = np.full(len(groups), ONE) if by_degree is None else np.array(by_degree)[groups]
    of_community, of_degree = xp.asarray(of_community), xp.asarray(of_degree)
    offsets = xp.asarray(np.concatenate([[0], np.cumsum(plan.counts)]))
    keys = xp.empty(n, dtype=np.int64)
    order = min(20, 62 - 17 - plan.bits)
    for start in range(0, n, chunk):
        stop = min(start + chunk, n)
        chance = xp.minimum(
            of_community[small[start:stop]] * of_degree[rows_of(offsets, start, stop)] // ONE, ONE
        )
        u = bits(xp, plan.seed, _TRAIN, start, stop, order)
        late = xp.where(chance > 0, (u << 16) // xp.maximum(chance, 1), (2 << (order + 16)) - 1)
        keys[start:stop] = late << plan.bits | xp.arange(start, stop)
    keys.sort()
    keys &= (1 << plan.bits) - 1
    result = {}
    if wanted["train"]:
        result["train"] = xp.sort(ids[keys[: wanted["train"]]].astype(np.int64))
    rest = keys[wanted["train"] :]
    if training.get("ranked") and wanted["valid"]:
        # Validation vertices follow the training vertices in the order that chose these.
        result["valid"] = xp.sort(ids[rest[: wanted["valid"]]].astype(np.int64))
        rest = rest[len(result["valid"]) :]
    u = bits(xp, plan.seed, _ORDER, 0, len(rest), 62 - plan.bits)
    rest = u << plan.bits | rest
    rest.sort()
    rest &= (1 << plan.bits) - 1
    at = 0
    for name in [name for name in ("valid", "test") if name not in result]:
        part = rest[at : at + wanted[name]]
        at += len(part)
        if len(part):
            result[name] = xp.sort(ids[part].astype(np.int64))
    return result


def quantile_weights(keys: Any, quantiles: Any, xp: Any) -> Any:
    """float32: weights whose quantiles are the given ones, by 32-bit ``keys`` (int64)."""
    at, rest = keys >> 26, (keys & ((1 << 26) - 1)).astype(np.float32)
    table = xp.asarray(np.array(quantiles, dtype=np.float32))
    low, high = table[at], table[at + 1]
    step = high - low
    rest *= np.float32(2.0**-26)
    step *= rest
    step += low
    return xp.minimum(step, high)
