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
from gnnsample_lab.graph.twins import nodes
from gnnsample_lab.graph.twins.pairs import cliques_alone
from gnnsample_lab.graph.twins.pairs import skeleton as make_skeleton
from gnnsample_lab.graph.twins.plan import BINS, ONE, ROLES, bin_of, octave_of, role_of
from gnnsample_lab.graph.twins.statistics import FORMAT, QUANTILES, WEIGHT_QUANTILES, plan_of
from gnnsample_lab.graph.twins.words import bits

MAX_COMMUNITIES = 4096
CLIQUE_SHARE = ONE // 2
FIT_TURNS = 8
FIT_PAIRS = 1_500_000
"""A larger graph is fitted on a smaller one of the same statistics."""
_SEPARABLE = 4096
"""Vertices that the difficulty of features is measured on."""
LABEL_TURNS = 5
STEEPEST = 3.0
"""Natural logarithm of the odds of purity that an octave of degree gains or loses, at most."""


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
    the homophily, the share of labels that are told, and the accuracy that they state. Nothing is sampled."""
    made = {**statistics, "sources": dict(statistics.get("sources", {}))}
    made["cliques"] = [round(ONE * c) for c in made["clustering"]]
    scale = _fit_scale(made, FIT_PAIRS)
    made["cliques"], seen = _fit_cliques(made, scale)
    made["sources"]["cliques"] = "fitted to clustering, by generating"
    return _with_classes(made, scale, seen, by_neighbours=True)


def fit_classes(statistics: Mapping[str, Any], pairs: int) -> dict[str, Any]:
    """The statistics, whose cliques are known, with ``labels.purity`` and ``features.signal`` fitted.

    Here ``labels.told`` is of the vertices of the test set, and told is what their communities tell.

    Args:
        pairs: a larger graph is fitted on a smaller one with so many links. In it communities are smaller, and fewer
            of the links stay inside.
    """
    made = {**statistics, "sources": dict(statistics.get("sources", {}))}
    scale = _fit_scale(made, pairs)
    plan, _ = plan_of(made, scale)
    seen = make_skeleton(plan, np, chunk=1 << 22) if made.get("labels") else None
    return _with_classes(made, scale, seen, by_neighbours=False)


def _fit_scale(statistics: Mapping[str, Any], pairs: int) -> float:
    return min(1.0, pairs / max(sum(d * c for d, c in statistics["degrees"]) // 2, 1))


def _with_classes(made: dict[str, Any], scale: float, seen: Any, *, by_neighbours: bool) -> dict[str, Any]:
    if made.get("labels"):
        if made["labels"].get("told") is None:
            purity: Any = _fit_purity(made, scale, seen)
            source = "fitted to labels.homophily, by generating"
        else:
            purity = _Purities(made, scale, seen, by_neighbours=by_neighbours).fitted()
            source = "fitted to labels.homophily and labels.told, by generating"
        made["labels"] = {**made["labels"], "purity": purity}
        made["sources"]["labels.purity"] = source
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
    told = _told_by_neighbours(dst[known], label[links.indices][known], label)
    return {"sizes": sizes.tolist(), "homophily": round(homophily, 6), "told": round(told, 6)}


def _told_by_neighbours(dst: np.ndarray, theirs: np.ndarray, label: np.ndarray) -> float:
    """Share of the vertices with neighbours whose label most of these have, in part where several labels lead.

    Args:
        dst, theirs: for each neighbour, the vertex that has it, and its label.
    """
    if not len(dst):
        return 1.0
    classes = int(label.max()) + 1
    keys, counts = np.unique(dst * classes + theirs, return_counts=True)
    vertex = keys // classes
    most = np.zeros(len(label), dtype=np.int64)
    np.maximum.at(most, vertex, counts)
    leads = counts == most[vertex]
    leaders = np.bincount(vertex[leads], minlength=len(label))
    own = vertex[leads & (keys % classes == label[vertex])]
    return float((1 / leaders[own]).sum() / np.count_nonzero(most))


def _features(graph: Graph) -> dict[str, Any] | None:
    if graph.feat is None or graph.num_features == 0:
        return None
    label = None if graph.label is None else to_host(graph.label)
    found: dict[str, Any] = {"count": graph.num_features, "accuracy": None}
    if label is not None and label.ndim == 1 and (label >= 0).any():
        known = np.flatnonzero(label >= 0)
        some = known[:: max(1, len(known) // (4 * _SEPARABLE))]
        rows = to_host(graph.feat[some])
        finite = np.isfinite(rows).all(axis=1)  # one NaN would make a whole class's centroid NaN
        if finite.any():
            found["accuracy"] = round(_centroid_accuracy(rows[finite], label[some][finite]), 6)
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
        plan, kept = plan_of({**statistics, "cliques": tried}, scale)
        made = make_skeleton(plan, np, chunk=1 << 20)
        links = _as_skeleton(made.pairs, plan.num_nodes, plan.bits)
        bins = bin_of(links.degrees)
        weight = np.bincount(bins, minlength=BINS)
        local = clustering(links)
        if scale < 1:
            local = _at_full_size(local, links.degrees, plan, made, statistics["communities"]["size"], kept)
        got = _by_bin(links.degrees, local)
        off = float((weight * np.abs(got - aim)).sum() + abs((weight * (got - aim)).sum()))
        if best is None or off < best[0]:
            best = off, tried, made
        asked = np.where(got > 0, asked * np.clip((aim + 1e-4) / (got + 1e-4), 0.3, 3), aim)
        asked = np.clip(asked, 0, 1)
    assert best is not None
    return best[1], best[2]


def _at_full_size(
    local: np.ndarray, degrees: np.ndarray, plan: Any, made: Any, size: Any, kept: np.ndarray
) -> np.ndarray:
    """Clustering of a scaled twin's vertices, as it would be in the whole one.

    Cliques are as large there. Other links close triangles by chance, as often as a community of as many links is
    small: less often where communities had to shrink.
    """
    alone = _as_skeleton(cliques_alone(plan, np, chunk=1 << 20), plan.num_nodes, plan.bits)
    corners = alone.degrees * (alone.degrees - 1.0)
    of_cliques = clustering(alone) * corners / np.maximum(degrees * (degrees - 1.0), 1)
    shrunk = np.minimum(plan.size / np.maximum(np.array(size)[kept], 1), 1.0)[made.small]
    return of_cliques + np.maximum(local - of_cliques, 0) * shrunk  # type: ignore[no-any-return]


def _as_skeleton(pairs: np.ndarray, n: int, bits: int) -> Skeleton:
    low, high = pairs >> bits, pairs & ((1 << bits) - 1)
    keys = np.concatenate([low << bits | high, high << bits | low])
    keys.sort()
    return Skeleton(indptr_of(keys >> bits, n), keys & ((1 << bits) - 1))


def _fit_purity(statistics: Mapping[str, Any], scale: float, made: Any) -> int:
    """A link is within a class if both ends follow their communities and these agree, or by chance."""
    plan, _ = plan_of(statistics, scale)
    sizes = np.array(statistics["labels"]["sizes"], dtype=np.int64)
    of_vertex = nodes.community_classes(plan, sizes)[made.small]
    low, high = made.pairs >> plan.bits, made.pairs & ((1 << plan.bits) - 1)
    agree = float((of_vertex[low] == of_vertex[high]).mean()) if len(low) else 0.0
    chance = float(((sizes / sizes.sum()) ** 2).sum())
    if agree <= chance:
        return ONE
    share = (statistics["labels"]["homophily"] - chance) / (agree - chance)
    return round(ONE * min(max(share, 0.0), 1.0) ** 0.5)


class _Purities:
    """Purity by octave of degree such that a twin has the homophily and the share of told labels asked for.

    Vertices that do not follow their communities take links out of classes, the more the higher their degrees. So two
    numbers are free: how many there are, which ``told`` decides, and how much rarer they are among high degrees, which
    the homophily decides. The odds of purity change by the same factor from octave to octave.

    Args:
        statistics: with the homophily and the share that is told.
        scale: at which ``made``, the skeleton, was generated.
        by_neighbours: told is what most neighbours say, over all vertices; else what the community says, over the
            vertices of the test set.
    """

    def __init__(
        self, statistics: Mapping[str, Any], scale: float, made: Any, *, by_neighbours: bool
    ) -> None:
        self.by_neighbours = by_neighbours
        self.homophily, self.told = (float(statistics["labels"][key]) for key in ("homophily", "told"))
        self.sizes = np.array(statistics["labels"]["sizes"], dtype=np.int64)
        self.octaves = len(statistics["mixing"])
        self.plan, kept = plan_of(statistics, scale)
        self.ids = np.arange(self.plan.num_nodes)  # the label of a rank does not depend on its id
        self.small = made.small
        self.low, self.high = made.pairs >> self.plan.bits, made.pairs & ((1 << self.plan.bits) - 1)
        self.look = nodes.community_classes(self.plan, self.sizes)[self.small]
        octave = np.repeat(octave_of(self.plan.degrees), self.plan.counts)
        agree = self.look[self.low] == self.look[self.high]
        place = octave[self.low] * self.octaves + octave[self.high]
        shape = self.octaves, self.octaves
        self.linked = np.bincount(place, minlength=self.octaves**2).reshape(shape)
        self.agreeing = np.bincount(place[agree], minlength=self.octaves**2).reshape(shape)
        self.asked = np.arange(self.plan.num_nodes)
        training = statistics.get("training")
        if by_neighbours:
            self.asked = np.unique(np.concatenate([self.low, self.high]))
        elif training and training["test"]:
            total = int(statistics["num_nodes"])
            self.asked = nodes.splits(
                self.plan, self.small, self.ids, training, kept, total, np, chunk=1 << 22
            )["test"]
        self.counts = np.bincount(octave[self.asked], minlength=self.octaves)

    def fitted(self) -> list[int]:
        """Purities in 1/ONE. Where the structure leaves no room for both, the share of told labels comes first."""
        told, homophily = self.told, self.homophily
        best: tuple[float, list[int]] | None = None
        for _ in range(LABEL_TURNS):
            found = np.rint(ONE * self._solved(told, homophily)).astype(np.int64).tolist()
            got_told, got_homophily = self._generated(found)
            off = abs(got_told - self.told) + min(abs(got_homophily - self.homophily), 0.2)
            if best is None or off < best[0]:
                best = off, found
            told = min(max(told + self.told - got_told, 0.0), 1.0)
            homophily = min(max(homophily + self.homophily - got_homophily, 0.0), 1.0)
        assert best is not None
        return best[1]

    def _solved(self, told: float, homophily: float) -> np.ndarray:
        """Purities that have both in expectation, with the least change from octave to octave that does it."""
        low, high = -STEEPEST, STEEPEST
        for _ in range(20):
            middle = (low + high) / 2
            pure = self._with_slope(middle, told)
            low, high = (middle, high) if self._expected(pure) < homophily else (low, middle)
        return self._with_slope(high, told)

    def _with_slope(self, slope: float, told: float) -> np.ndarray:
        octaves = np.arange(self.octaves)
        mistaken = nodes.mistaken(self.sizes)
        total = max(int(self.counts.sum()), 1)

        def purity(level: float) -> np.ndarray:
            return 0.5 * (1 + np.tanh((slope * octaves + level) / 2))

        low, high = -60.0 - abs(slope) * self.octaves, 60.0 + abs(slope) * self.octaves
        for _ in range(50):
            level = (low + high) / 2
            pure = purity(level)
            got = float((self.counts * (pure + (1 - pure) * mistaken)).sum()) / total
            low, high = (level, high) if got < told else (low, level)
        return purity(high)

    def _expected(self, pure: np.ndarray) -> float:
        chance = float(((self.sizes / self.sizes.sum()) ** 2).sum())
        both = np.outer(pure, pure)
        expected: float = (self.agreeing * both + self.linked * (1 - both) * chance).sum()
        return expected / max(int(self.linked.sum()), 1)

    def _generated(self, purity: list[int]) -> tuple[float, float]:
        """``(told, homophily)`` of the skeleton with labels of these purities."""
        label = nodes.labels(self.plan, self.small, self.ids, self.sizes, purity, np, chunk=1 << 22)
        same = label[self.low] == label[self.high]
        homophily = float(same.mean()) if len(same) else 1.0
        if not self.by_neighbours:
            told = label[self.asked] == self.look[self.asked]
            return float(told.mean()) if len(told) else 1.0, homophily
        dst, src = np.concatenate([self.low, self.high]), np.concatenate([self.high, self.low])
        return _told_by_neighbours(dst, label[src], label), homophily


def _fit_signal(statistics: Mapping[str, Any]) -> int:
    """The weakest signal, in units of the feature kernel, whose nearest centroid is right as often as asked for."""
    aim = statistics["features"].get("accuracy")
    labels = statistics.get("labels")
    if aim is None or not labels:
        return 0
    sizes = np.array(labels["sizes"], dtype=np.int64)
    # As many vertices of each class as it has by size, in an order without structure.
    ends = np.cumsum(sizes) / sizes.sum()
    # Centroids of few vertices are blurred, which a signal that is too strong would make good.
    count = _SEPARABLE if isinstance(labels["purity"], int) else 4 * _SEPARABLE
    drawn = np.searchsorted(ends, (np.arange(count) * 0.6180339887498949) % 1.0, side="right")
    drawn = np.minimum(drawn, len(sizes) - 1).astype(np.int64)
    label = drawn if isinstance(labels["purity"], int) else _mislabelled(drawn, statistics)
    backend = CpuBackend()
    columns = int(statistics["features"]["count"])
    low, high = 0, 256
    while low < high:
        middle = (low + high) // 2
        rows = backend.features(drawn, len(sizes), columns, 0, signal=middle)
        if _centroid_accuracy(rows, label) >= aim:
            high = middle
        else:
            low = middle + 1
    return low


def _mislabelled(look: np.ndarray, statistics: Mapping[str, Any]) -> np.ndarray:
    """Labels of vertices that look like ``look``, of which as many are others as in the graph."""
    sizes = np.array(statistics["labels"]["sizes"], dtype=np.int64)
    table = np.array(statistics["degrees"], dtype=np.int64)
    pure = np.array(statistics["labels"]["purity"])[octave_of(table[:, 0])]
    share = float((pure * table[:, 1]).sum()) / max(int(table[:, 1].sum()), 1) / ONE
    place, step, chance = (bits(np, 0, stream, 0, len(look), 31) for stream in range(3))
    other = nodes.confused(look, sizes, place >> 1, step, np)
    return np.where(chance < share * 2**31, look, other)
