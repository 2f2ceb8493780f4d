"""Statistics measured on a real graph, and the parameters that are fitted to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.graph.csc import indptr_of, rows_of
from gnnsample_lab.graph.edgewise.backend_cpu import CpuBackend
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.structure import Skeleton, clustering, communities, skeleton, triangle_sides
from gnnsample_lab.graph.twins.nodes import community_classes
from gnnsample_lab.graph.twins.pairs import skeleton as make_skeleton
from gnnsample_lab.graph.twins.plan import BINS, ONE, ROLES, bin_of, octave_of, role_of
from gnnsample_lab.graph.twins.statistics import FORMAT, QUANTILES, WEIGHT_QUANTILES, plan_of

MAX_COMMUNITIES = 4096
CLIQUE_SHARE = ONE // 2
FIT_TURNS = 8
FIT_PAIRS = 1_500_000
"""A larger graph is fitted on a smaller one of the same statistics."""
_SEPARABLE = 4096
"""Vertices that the difficulty of features is measured on."""


def measure(graph: Graph) -> dict[str, Any]:
    """Statistics of ``graph``; see :mod:`.statistics`."""
    links = skeleton(graph)
    degrees = links.degrees
    local = clustering(links)
    groups = octave_of(degrees)
    num_groups = int(groups.max(initial=0)) + 1
    dst, src = rows_of(links.indptr), links.indices
    small, _large, parts = _communities(links, local, dst)
    direction, num_edges = _direction(graph, links, groups, num_groups)
    values, counts = np.unique(degrees, return_counts=True)
    mixing = np.bincount(groups[dst] * num_groups + groups[src], minlength=num_groups**2)
    statistics: dict[str, Any] = {
        "format": FORMAT,
        "name": graph.name,
        "num_nodes": graph.num_nodes,
        "num_edges": num_edges,
        "directed": direction is not None,
        "degrees": np.stack([values, counts], axis=1).tolist(),
        "clustering": [round(float(c), 6) for c in _by_bin(degrees, local)],
        "clique_share": CLIQUE_SHARE,
        "communities": parts,
        "mixing": mixing.reshape(num_groups, num_groups).tolist(),
        "direction": direction,
        "labels": _labels(graph, links, dst),
        "features": _features(graph),
        "weights": _weights(graph),
        "training": _training(graph, small, groups, len(parts["size"]), num_groups),
    }
    measured = [
        k for k, v in statistics.items() if v is not None and k not in ("format", "name", "clique_share")
    ]
    statistics["sources"] = dict.fromkeys(measured, "measured on the graph")
    statistics["sources"]["clique_share"] = "the same for all graphs"
    return fit(statistics)


def fit(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics with ``cliques``, ``labels.purity`` and ``features.signal`` such that a twin has the clustering,
    the homophily and the accuracy that they state. Nothing is sampled."""
    made = {**statistics, "sources": dict(statistics.get("sources", {}))}
    made["cliques"] = [round(ONE * c) for c in made["clustering"]]
    pairs = sum(d * c for d, c in made["degrees"]) // 2
    scale = min(1.0, FIT_PAIRS / max(pairs, 1))
    made["cliques"], seen = _fit_cliques(made, scale)
    made["sources"]["cliques"] = "fitted to clustering, by generating"
    if made.get("labels"):
        made["labels"] = {**made["labels"], "purity": _fit_purity(made, scale, seen)}
        made["sources"]["labels.purity"] = "fitted to labels.homophily, by generating"
    if made.get("features"):
        made["features"] = {**made["features"], "signal": _fit_signal(made)}
        made["sources"]["features.signal"] = "fitted to features.accuracy, by generating"
    return made


# ---- measures ---------------------------------------------------------------------------------------------


def _by_bin(degrees: np.ndarray, values: np.ndarray) -> np.ndarray:
    bins = bin_of(degrees)
    return np.bincount(bins, values, BINS) / np.maximum(np.bincount(bins, minlength=BINS), 1)


def _shares(part: np.ndarray, whole: np.ndarray) -> list[int]:
    return (
        np.rint(ONE * np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0))
        .astype(np.int64)
        .tolist()
    )


def _communities(
    links: Skeleton, local: np.ndarray, dst: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    degrees, src = links.degrees, links.indices
    large, small = communities(links)
    small, large_of = _fewer(small, large)
    large = large_of[small]
    num_small, num_large = len(large_of), int(large_of.max(initial=-1)) + 1
    size = np.bincount(small, minlength=num_small)
    # Ranks of degrees in [0, 1], those of equal degree at the middle of theirs.
    _, place, count = np.unique(degrees, return_inverse=True, return_counts=True)
    rank = ((np.cumsum(count) - count / 2) / max(len(degrees), 1))[place]
    level = np.bincount(small, rank, num_small) / np.maximum(size, 1)
    within = float(((rank - level[small]) ** 2).mean()) if len(rank) else 0.0
    ends = np.bincount(small, degrees, num_small)
    in_small, in_large = small[dst] == small[src], large[dst] == large[src]
    triangles = triangle_sides(links, large, small)
    expected = np.bincount(small, _by_bin(degrees, local)[bin_of(degrees)], num_small)
    found = np.bincount(small, local, num_small)
    factor = np.where(expected > 0, np.divide(found, expected, out=np.ones(num_small), where=expected > 0), 1)
    parts = {
        "size": size.tolist(),
        "large": large_of.tolist(),
        "level": np.rint(ONE * level).astype(np.int64).tolist(),
        "inside": _shares(np.bincount(small[dst], in_small, num_small), ends),
        "clustering": np.rint(ONE * np.minimum(factor, 4)).astype(np.int64).tolist(),
        # Ranks about the level are uniform: their width is the root of twelve variances.
        "spread": round(ONE * (12 * within) ** 0.5),
        "inside_large": _shares(
            np.bincount(large[dst], in_large, num_large), np.bincount(large, degrees, num_large)
        ),
        "clique_small": round(ONE * triangles[1] / max(triangles[0], 1)),
        "clique_large": round(ONE * triangles[2] / max(triangles[0] - triangles[1], 1)),
    }
    return small, large, parts


def _fewer(small: np.ndarray, large: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``(small, large_of)``: at most about MAX_COMMUNITIES of each, the smallest of a kind put together."""
    num_large = int(large.max(initial=-1)) + 1
    if num_large > MAX_COMMUNITIES // 2:
        size = np.bincount(large, minlength=num_large)
        order = np.argsort(-size, kind="stable")
        place = np.empty(num_large, dtype=np.int64)
        place[order] = np.arange(num_large)
        # Tiny components beyond the limit share communities: nothing links them either way.
        keep = MAX_COMMUNITIES // 4
        place = np.where(place < keep, place, keep + place % keep)
        large = np.unique(place[large], return_inverse=True)[1].reshape(-1)
    num_small = int(small.max(initial=-1)) + 1
    large_of = np.zeros(num_small, dtype=np.int64)
    large_of[small] = large
    size = np.bincount(small, minlength=num_small)
    order = np.lexsort((-size, large_of))
    least = 0
    while True:
        # Within a large community small ones are put together, in order, until each has at least so many vertices.
        new = np.empty(num_small, dtype=np.int64)
        count, owner, held = -1, -1, 0
        for c in order.tolist():
            if large_of[c] != owner or held >= least:
                count, owner, held = count + 1, int(large_of[c]), 0
            new[c] = count
            held += int(size[c])
        if count + 1 <= MAX_COMMUNITIES:
            break
        least = max(2, 2 * least)
    merged = np.zeros(count + 1, dtype=np.int64)
    merged[new] = large_of
    return new[small], merged


def _direction(
    graph: Graph, links: Skeleton, octaves: np.ndarray, num_octaves: int
) -> tuple[dict[str, Any] | None, int]:
    """Reciprocity and in-shares, None where every edge has its reverse; and the number of distinct edges."""
    dst, src = rows_of(to_host(graph.indptr)), to_host(graph.indices).astype(np.int64)
    n = graph.num_nodes
    keys = np.unique(dst[src != dst] * n + src[src != dst])
    if len(keys) == len(links.indices):
        return None, len(keys)
    dst, src = keys // n, keys % n
    back = src * n + dst
    at = np.minimum(np.searchsorted(keys, back), len(keys) - 1)
    both = keys[at] == back
    pairs = len(links.indices) // 2
    into, out = np.bincount(dst, minlength=n), np.bincount(src, minlength=n)
    links_of, rarer = into + out, np.minimum(into, out)
    share = np.divide(into, links_of, out=np.full(n, 0.5), where=links_of > 0)
    mutual = np.divide(np.bincount(dst[both], minlength=n), rarer, out=np.zeros(n), where=rarer > 0)
    group = octaves * ROLES + role_of(share)
    count = num_octaves * ROLES
    of_dst, of_src = rows_of(links.indptr), links.indices
    mixing = np.bincount(group[of_dst] * count + group[of_src], minlength=count**2)
    towards = np.bincount(group[src[~both]] * count + group[dst[~both]], minlength=count**2)
    mixed_both = np.bincount(group[src[both]] * count + group[dst[both]], minlength=count**2)
    direction = {
        "reciprocity": round(ONE * int(both.sum()) / 2 / pairs),
        "in_share": _quantiles(share, group, count, links_of > 0),
        "mutual": _quantiles(mutual, group, count, rarer > 0),
        "roles": {
            "vertices": np.bincount(group, minlength=count).reshape(num_octaves, ROLES).tolist(),
            "mixing": mixing.reshape(count, count).tolist(),
            "towards": towards.reshape(count, count).tolist(),
            "both": mixed_both.reshape(count, count).tolist(),
        },
    }
    return direction, len(keys)


def _quantiles(values: np.ndarray, group: np.ndarray, count: int, known: np.ndarray) -> list[list[int]]:
    """Of each group's known values; where it has none, of all."""
    at = np.linspace(0, 1, QUANTILES)
    everywhere = np.quantile(values[known], at) if known.any() else np.zeros(QUANTILES)
    order = np.argsort(group[known], kind="stable")
    parts = np.split(values[known][order], np.searchsorted(group[known][order], np.arange(1, count)))
    rows = [np.quantile(own, at) if len(own) else everywhere for own in parts]
    return np.rint(ONE * np.array(rows)).astype(np.int64).tolist()  # type: ignore[no-any-return]


def _labels(graph: Graph, links: Skeleton, dst: np.ndarray) -> dict[str, Any] | None:
    label = None if graph.label is None else to_host(graph.label)
    if label is None or label.ndim != 1 or not (label >= 0).any():
        return None
    sizes = np.bincount(label[label >= 0], minlength=max(graph.num_classes, 1))
    known = (label[dst] >= 0) & (label[links.indices] >= 0)
    same = label[dst] == label[links.indices]
    homophily = float(same[known].mean()) if known.any() else 1 / len(sizes)
    return {"sizes": sizes.tolist(), "homophily": round(homophily, 6)}


def _features(graph: Graph) -> dict[str, Any] | None:
    if graph.feat is None or graph.num_features == 0:
        return None
    label = None if graph.label is None else to_host(graph.label)
    found: dict[str, Any] = {"count": graph.num_features, "accuracy": None}
    if label is not None and label.ndim == 1 and (label >= 0).any():
        known = np.flatnonzero(label >= 0)
        some = known[:: max(1, len(known) // (4 * _SEPARABLE))]
        found["accuracy"] = round(_centroid_accuracy(to_host(graph.feat[some]), label[some]), 6)
    return found


def _weights(graph: Graph) -> list[float] | None:
    if graph.edge_weight is None or not len(graph.edge_weight):
        return None
    quantiles = np.quantile(to_host(graph.edge_weight), np.linspace(0, 1, WEIGHT_QUANTILES))
    return [float(np.float32(q)) for q in quantiles]


def _training(
    graph: Graph, small: np.ndarray, groups: np.ndarray, num_small: int, num_groups: int
) -> dict[str, Any] | None:
    if not graph.splits:
        return None
    found: dict[str, Any] = {k: len(graph.splits.get(k, ())) for k in ("train", "valid", "test")}
    found["by_community"] = found["by_degree"] = None
    if found["train"]:
        ids = to_host(graph.splits["train"])
        found["train"] = len(np.unique(ids))
        chosen = np.zeros(graph.num_nodes)
        chosen[ids] = 1
        found["by_community"] = _shares(
            np.bincount(small, chosen, num_small), np.bincount(small, minlength=num_small)
        )
        share = np.bincount(groups, chosen, num_groups) / np.maximum(
            np.bincount(groups, minlength=num_groups), 1
        )
        found["by_degree"] = (
            np.rint(np.minimum(ONE * share / chosen.mean(), 64 * ONE)).astype(np.int64).tolist()
        )
    return found


def _centroid_accuracy(features: np.ndarray, label: np.ndarray) -> float:
    """Share of every second vertex that the nearest class centroid of the others classifies rightly."""
    features = features.astype(np.float64)
    train, test = features[::2], features[1::2]
    if not len(test):
        return 0.0
    classes, own = np.unique(label[::2], return_inverse=True)
    sums = np.zeros((len(classes), features.shape[1]))
    np.add.at(sums, own, train)
    centroids = sums / np.bincount(own)[:, None]
    nearest = (test @ centroids.T - (centroids**2).sum(axis=1) / 2).argmax(axis=1)
    return float((classes[nearest] == label[1::2]).mean())


# ---- fits -------------------------------------------------------------------------------------------------


def _fit_cliques(statistics: Mapping[str, Any], scale: float) -> tuple[list[int], Any]:
    """What cliques are asked for is scaled by what came out, bin by bin; the best of a few turns is kept."""
    aim = np.array(statistics["clustering"], dtype=np.float64)
    asked = aim.copy()
    best: tuple[float, list[int], Any] | None = None
    for _ in range(FIT_TURNS if aim.any() else 1):
        tried = np.rint(ONE * asked).astype(np.int64).tolist()
        plan, _ = plan_of({**statistics, "cliques": tried}, scale)
        made = make_skeleton(plan, np, chunk=1 << 20)
        links = _as_skeleton(made.pairs, plan.num_nodes, plan.bits)
        bins = bin_of(links.degrees)
        weight = np.bincount(bins, minlength=BINS)
        got = _by_bin(links.degrees, clustering(links))
        off = float((weight * np.abs(got - aim)).sum() + abs((weight * (got - aim)).sum()))
        if best is None or off < best[0]:
            best = off, tried, made
        asked = np.where(got > 0, asked * np.clip((aim + 1e-4) / (got + 1e-4), 0.3, 3), aim)
        asked = np.clip(asked, 0, 1)
    assert best is not None
    return best[1], best[2]


def _as_skeleton(pairs: np.ndarray, n: int, bits: int) -> Skeleton:
    low, high = pairs >> bits, pairs & ((1 << bits) - 1)
    keys = np.concatenate([low << bits | high, high << bits | low])
    keys.sort()
    return Skeleton(indptr_of(keys >> bits, n), keys & ((1 << bits) - 1))


def _fit_purity(statistics: Mapping[str, Any], scale: float, made: Any) -> int:
    """A link is within a class if both ends follow their communities and these agree, or by chance."""
    plan, _ = plan_of(statistics, scale)
    sizes = np.array(statistics["labels"]["sizes"], dtype=np.int64)
    of_vertex = community_classes(plan, sizes)[made.small]
    low, high = made.pairs >> plan.bits, made.pairs & ((1 << plan.bits) - 1)
    agree = float((of_vertex[low] == of_vertex[high]).mean()) if len(low) else 0.0
    chance = float(((sizes / sizes.sum()) ** 2).sum())
    if agree <= chance:
        return ONE
    share = (statistics["labels"]["homophily"] - chance) / (agree - chance)
    return round(ONE * min(max(share, 0.0), 1.0) ** 0.5)


def _fit_signal(statistics: Mapping[str, Any]) -> int:
    """The weakest signal, in units of the feature kernel, whose nearest centroid is right as often as asked for."""
    aim = statistics["features"].get("accuracy")
    labels = statistics.get("labels")
    if aim is None or not labels:
        return 0
    sizes = np.array(labels["sizes"], dtype=np.int64)
    # As many vertices of each class as it has by size, in an order without structure.
    ends = np.cumsum(sizes) / sizes.sum()
    count = _SEPARABLE
    drawn = np.searchsorted(ends, (np.arange(count) * 0.6180339887498949) % 1.0, side="right")
    drawn = np.minimum(drawn, len(sizes) - 1).astype(np.int64)
    backend = CpuBackend()
    columns = int(statistics["features"]["count"])
    low, high = 0, 256
    while low < high:
        middle = (low + high) // 2
        rows = backend.features(drawn, len(sizes), columns, 0, signal=middle)
        if _centroid_accuracy(rows, drawn) >= aim:
            high = middle
        else:
            low = middle + 1
    return low
