"""What lies on the vertices of a twin: classes along communities, splits, features. NumPy and CuPy alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gnnsample_lab.graph.csc import rows_of
from gnnsample_lab.graph.twins.plan import ONE, Plan, octave_of
from gnnsample_lab.graph.twins.words import bits

_PURE, _CLASS, _TRAIN, _ORDER = 910, 911, 912, 913


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


def labels(plan: Plan, small: Any, ids: Any, sizes: np.ndarray, purity: int, xp: Any, chunk: int) -> Any:
    """int64[N] by vertex id: its community's class with probability ``purity``, else any class by size."""
    of_small = xp.asarray(community_classes(plan, sizes))
    ends = np.cumsum(sizes)
    ends = xp.asarray(np.array([int(e) * (1 << 32) // int(ends[-1]) for e in ends], dtype=np.int64))
    out = xp.empty(plan.num_nodes, dtype=np.int64)
    for start in range(0, plan.num_nodes, chunk):
        stop = min(start + chunk, plan.num_nodes)
        any_class = xp.searchsorted(ends, bits(xp, plan.seed, _CLASS, start, stop, 32), side="right")
        pure = bits(xp, plan.seed, _PURE, start, stop, 16) < purity
        out[ids[start:stop]] = xp.where(
            pure, of_small[small[start:stop]], xp.minimum(any_class, len(sizes) - 1)
        )
    return out


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
    u = bits(xp, plan.seed, _ORDER, 0, len(rest), 62 - plan.bits)
    rest = u << plan.bits | rest
    rest.sort()
    rest &= (1 << plan.bits) - 1
    at = 0
    for name in ("valid", "test"):
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
