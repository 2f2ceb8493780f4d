"""What sampling sees of a graph: degrees, clustering, rows a batch, hit rates, match degrees, similarity of epochs.

Every number is counted on samples or on the graph itself; nothing is timed. The same functions measure a real graph and
its twin, with the samplers of either device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gnnsample_lab.device.arrays import array_module, to_host
from gnnsample_lab.features.ranking.footprint import (
    Counter,
    Footprint,
    epoch_similarity,
    hit_rate,
)
from gnnsample_lab.features.ranking.hotness import hotness
from gnnsample_lab.features.reuse.match import match_degrees
from gnnsample_lab.graph import structure
from gnnsample_lab.minibatch.sampler import NeighborSampler

RATIOS = (0.01, 0.02, 0.05, 0.10, 0.20, 0.30)
POLICIES = ("random", "degree", "presample", "presample-shrunk", "reverse-pagerank", "visits", "optimal")
QUANTILES = (10, 25, 50, 75, 90, 99)
SHARE = 0.10
"""Vertices in a training set that is drawn here."""
CORNERS = 3
"""Communities, the largest first, that training sets in a corner begin with; values are means over them."""
EPOCHS = 3
"""Epochs of which samples are counted; similarity is that of neighbouring ones."""
WINDOW = 160
"""Mini-batches of an epoch whose match degrees are taken: the first ones, and the last incomplete one."""
ROOTS = 1 << 16
"""Training vertices whose neighbourhoods the policy "visits" draws, at most."""
LAST = "with the last batch"
REPEATED = "repeated draws"
OF_ALL = "tenth of all"


class Key(NamedTuple):
    """Names a measured number: the quantity, which one of its kind, and the training set."""

    quantity: str
    detail: str = ""
    training: str = ""


Numbers = dict[Key, float]


@dataclass(frozen=True)
class Plan:
    """What is sampled: seeds in a mini-batch, and neighbours per hop, the seeds' hop first."""

    batch_size: int
    fanouts: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.batch_size} x ({', '.join(map(str, self.fanouts))})"


def percent(ratio: float) -> str:
    return f"{100 * ratio:g} %"


# ---- training sets --------------------------------------------------------------------------------------------------


def random_set(num_nodes: int, seed: int = 0, share: float = SHARE) -> np.ndarray:
    """``int64``, sorted: a share of all vertices, each as likely as any other; at least one."""
    count = max(1, round(share * num_nodes))
    return np.sort(np.random.default_rng([17, seed]).choice(num_nodes, count, replace=False)).astype(np.int64)


def corner_sets(
    labels: np.ndarray, seed: int = 0, share: float = SHARE, count: int = CORNERS
) -> list[np.ndarray]:
    """Training sets that lie together: each begins with one of the largest communities.

    A community larger than the share is cut at random. A smaller one is filled up with the communities that follow it
    by size, and after the smallest with the largest, the last one cut at random.

    Args:
        labels: community of each vertex, ``int64[N]``.
        seed: which vertices a cut keeps.
        share: of all vertices.
        count: sets, one for each of the largest communities; fewer where there are fewer.

    Returns:
        Sorted vertex ids, ``int64``.
    """
    size = np.bincount(labels)
    order = np.argsort(-size, kind="stable")
    order = order[: np.count_nonzero(size)]
    place = np.empty(len(size), np.int64)
    place[order] = np.arange(len(order))
    wanted = max(1, round(share * len(labels)))
    shuffled = np.random.default_rng([18, seed]).permutation(len(labels))
    sets = []
    for first in range(min(count, len(order))):
        turn = (place[labels[shuffled]] - first) % len(order)
        sets.append(np.sort(shuffled[np.argsort(turn, kind="stable")[:wanted]]).astype(np.int64))
    return sets


# ---- the graph itself -----------------------------------------------------------------------------------------------


def structural(graph: Any, clustering: bool = True) -> Numbers:
    """Degree quantiles, Gini coefficient, share of the top tenth, and average local clustering.

    Degrees are out-degrees, which decide how often a vertex is reached; in-degrees, which decide how much is read, are
    added where the two differ.

    Args:
        graph: on either device.
        clustering: whether to count triangles, which takes long on large graphs.
    """
    found: Numbers = {}
    out, into = (to_host(d).astype(np.int64) for d in (graph.out_degrees(), graph.in_degrees()))
    kinds = {"": out} if np.array_equal(out, into) else {"out, ": out, "in, ": into}
    for kind, degrees in kinds.items():
        for q in QUANTILES:
            found[Key("degree quantile", f"{kind}{q} %")] = float(
                np.percentile(degrees, q, method="inverted_cdf")
            )
        name = kind.rstrip(", ")
        found[Key("gini", name)] = float(structure.gini(degrees))
        found[Key("top share", f"{kind}10 %")] = 100 * float(structure.top_share(degrees, 0.1))
    if clustering:
        found[Key("clustering")] = average_clustering(graph)
    return found


EXACT_EDGES = 20_000_000
"""Triangles of larger graphs are counted at some vertices only."""


def average_clustering(graph: Any) -> float:
    """Mean local clustering of the undirected skeleton over all vertices, estimated on large graphs."""
    if graph.num_edges <= EXACT_EDGES:
        return float(structure.clustering(structure.skeleton(graph)).mean())
    return estimated_clustering(graph)


def estimated_clustering(graph: Any, vertices: int = 1 << 15, pairs: int = 64, seed: int = 0) -> float:
    """:func:`average_clustering` from some vertices and some pairs of their neighbours; its standard error is below
    0.5 / sqrt(vertices), 0.003 as it stands.

    Args:
        graph: on either device; the estimate is made there.
        vertices: drawn with replacement.
        pairs: of distinct neighbours drawn at each, with replacement.
        seed: of both.
    """
    xp = array_module(graph.indices)
    rng = np.random.default_rng([22, seed])
    chosen = np.unique(rng.integers(0, graph.num_nodes, vertices))
    owner, neighbor = _neighbors(graph, xp.asarray(chosen))
    degree = xp.bincount(owner, minlength=len(chosen))
    begin = xp.cumsum(degree) - degree
    # A pair of distinct places: the second one skips the first.
    d = degree[:, None]
    draws = xp.asarray(rng.random((2, len(chosen), pairs)))
    first = xp.minimum((draws[0] * d).astype(np.int64), xp.maximum(d - 1, 0))
    second = xp.minimum((draws[1] * (d - 1)).astype(np.int64), xp.maximum(d - 2, 0))
    second += second >= first
    able = degree >= 2
    u, w = (neighbor[(begin[:, None] + place)[able]] for place in (first, second))
    linked = _has_edge(graph, u, w) | _has_edge(graph, w, u)
    return float(linked.mean(axis=1).sum()) / len(chosen) if int(able.sum()) else 0.0


def _neighbors(graph: Any, chosen: Any) -> tuple[Any, Any]:
    """Neighbours of the ``chosen`` vertices in the undirected skeleton: (place in ``chosen``, vertex), sorted."""
    xp = array_module(chosen)
    place = xp.full(graph.num_nodes, -1, np.int32)
    place[chosen] = xp.arange(len(chosen), dtype=np.int32)
    start, count = graph.indptr[chosen], graph.indptr[chosen + 1] - graph.indptr[chosen]
    owner = xp.repeat(xp.arange(len(chosen)), _counts(count))
    position = xp.arange(int(count.sum())) - (xp.cumsum(count) - count)[owner] + start[owner]
    sides = [(owner, graph.indices[position].astype(np.int64))]
    step = 1 << 27
    for low in range(
        0, graph.num_edges, step
    ):  # who is reached from the chosen: all edges are looked through
        to = place[graph.indices[low : low + step]]
        at = xp.flatnonzero(to >= 0)
        dst = xp.searchsorted(graph.indptr, at + low, side="right") - 1
        sides.append((to[at].astype(np.int64), dst.astype(np.int64)))
    keys = xp.concatenate([a * graph.num_nodes + b for a, b in sides])
    keys = xp.unique(keys)
    owner, neighbor = keys // graph.num_nodes, keys % graph.num_nodes
    other = neighbor != chosen[owner]
    return owner[other], neighbor[other]


def _counts(count: Any) -> Any:
    """Repeats as both libraries take them: CuPy wants them on the host."""
    return count if isinstance(count, np.ndarray) else count.get().tolist()


def _has_edge(graph: Any, src: Any, dst: Any) -> Any:
    """Whether each edge src -> dst is there, by binary search in the sorted list of dst."""
    xp = array_module(src)
    low, high = graph.indptr[dst], graph.indptr[dst + 1]
    end = high
    for _ in range(max(1, int(graph.max_in_degree).bit_length())):
        middle = (low + high) // 2
        value = graph.indices[xp.minimum(middle, graph.num_edges - 1)]
        right = (value < src) & (low < high)
        low, high = (
            xp.where(right, middle + 1, low),
            xp.where(right, high, xp.where(low < high, middle, high)),
        )
    return (low < end) & (graph.indices[xp.minimum(low, graph.num_edges - 1)] == src)


# ---- samples --------------------------------------------------------------------------------------------------------


def repeated_draws(
    graph: Any, seeds: np.ndarray, batch_size: int, fanouts: Sequence[int], epoch: int = 0
) -> Iterator[Any]:
    """Distinct vertices of each mini-batch of an epoch, drawn as FastGL's released sampler draws.

    That sampler starts its generator anew in each launch, so that place p of a frontier gets the same random numbers in
    each hop of each mini-batch. It draws with replacement, the number modulo the degree; a vertex with no more
    neighbours than the fanout gives all of them. A frontier holds the seeds first, then the vertices in order of their
    first pick, where FastGL has the order of its hash table.

    Args:
        graph: on either device; the arrays returned lie there.
        seeds: training vertices on the host.
        batch_size, fanouts: as in the samplers.
        epoch: which shuffle.
    """
    xp = array_module(graph.indices)
    order = np.random.default_rng([19, epoch]).permutation(len(seeds))
    for begin in range(0, len(seeds), batch_size):
        frontier = xp.asarray(np.asarray(seeds)[order[begin : begin + batch_size]].astype(np.int64))
        for fanout in fanouts:
            start = graph.indptr[frontier]
            degree = graph.indptr[frontier + 1] - start
            slot = xp.arange(fanout, dtype=np.int64)[None, :]
            place = xp.arange(frontier.size, dtype=np.int64)[:, None]
            drawn = (
                _mixed(xp, place * 128 + slot) % xp.maximum(degree, 1)[:, None].astype(np.uint64)
            ).astype(np.int64)
            offset = xp.where(degree[:, None] <= fanout, slot, drawn)
            kept = slot < xp.minimum(degree, fanout)[:, None]
            picks = graph.indices[(start[:, None] + offset)[kept]].astype(np.int64)
            frontier = _first_seen(xp, xp.concatenate([frontier, picks]))
        yield frontier


def _mixed(xp: Any, x: Any) -> Any:
    """A 32-bit random number for each place, as ``uint64``."""
    x = x.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x >> np.uint64(32)


def _first_seen(xp: Any, ids: Any) -> Any:
    """Distinct ids in the order of their first place."""
    _, first = xp.unique(ids, return_index=True)
    return ids[xp.sort(first)]


@dataclass(frozen=True)
class Epochs:
    """Samples of some epochs, whole mini-batches apart from the last incomplete one.

    Attributes:
        levels: distinct vertices before each hop and after the last one, means over whole mini-batches.
        levels_last: the same with the incomplete ones.
        whole, every: a footprint for each epoch, of whole mini-batches, and of all.
        ids: distinct vertices of each whole mini-batch of the first epoch, at most :data:`WINDOW`.
        last_ids: those of its incomplete mini-batch, None where there is none.
    """

    levels: np.ndarray
    levels_last: np.ndarray
    whole: tuple[Footprint, ...]
    every: tuple[Footprint, ...]
    ids: list[Any]
    last_ids: Any


def record(sampler: Any, seeds: np.ndarray, batch_size: int, epochs: int = EPOCHS) -> Epochs:
    """Sample ``epochs`` epochs and count.

    Raises:
        ValueError: an epoch has fewer than two whole mini-batches, of which nothing can be compared.
    """
    full, rest = divmod(len(seeds), batch_size)
    if full < 2:
        raise ValueError(
            f"batch_size must leave two whole mini-batches of {len(seeds)} seeds (got {batch_size})"
        )
    num_nodes = sampler.graph.num_nodes
    levels: list[tuple[int, ...]] = []
    lasts: list[tuple[int, ...]] = []
    whole, every, ids, last_ids = [], [], [], None
    ahead = 32 if sampler.device == "cuda" else 2
    for epoch in range(epochs):
        counter, incomplete = Counter(num_nodes), Counter(num_nodes)
        for i, batch in enumerate(sampler.epoch(seeds, batch_size, epoch=epoch, prefetch=ahead)):
            (counter if i < full else incomplete).add(batch.node_ids)
            (levels if i < full else lasts).append(batch.level_sizes)
            if epoch == 0 and i < min(full, WINDOW):
                ids.append(batch.node_ids)
            elif epoch == 0 and i == full:
                last_ids = batch.node_ids
        whole.append(counter.result())
        every.append(whole[-1] + incomplete.result() if rest else whole[-1])
    return Epochs(
        np.mean(levels, axis=0), np.mean([*levels, *lasts], axis=0), tuple(whole), tuple(every), ids, last_ids
    )


def matches(ids: Sequence[Any]) -> tuple[float, float]:
    """Match degree of consecutive mini-batches (mean), and its spread over all pairs (largest minus smallest), percent.

    FastGL, section 4.1 and table 4. A mini-batch is an array of distinct vertices.
    """
    degrees = 100 * np.asarray(match_degrees(list(ids)))
    pairs = degrees[np.triu_indices(len(degrees), 1)]
    return float(np.diag(degrees, 1).mean()), float(pairs.max() - pairs.min())


def similarity_of_all(f_i: Footprint, f_j: Footprint, top: float = 0.1) -> float:
    """:func:`~gnnsample_lab.features.ranking.footprint.epoch_similarity` with T the ``top`` share of all vertices.

    GNNLab's text takes the top tenth of the accessed vertices, its released profiler a tenth of all vertices, which
    printed table 2. Where fewer were accessed, T holds all of them.
    """
    wanted = int(top * len(f_i))
    t_i, t_j = (_hottest(f.visits, wanted) for f in (f_i, f_j))
    inside = np.zeros(len(f_i), dtype=bool)
    inside[t_j] = True
    both = t_i[inside[t_i]]
    total = int(f_i.visits[t_i].sum())
    return float(np.minimum(f_i.visits[both], f_j.visits[both]).sum() / total) if total else float("nan")


def _hottest(visits: np.ndarray, count: int) -> np.ndarray:
    accessed = np.flatnonzero(visits)
    return accessed[np.argsort(-visits[accessed], kind="stable")[:count]]


def rankings(
    sampler: Any, seeds: np.ndarray, batch_size: int, recorded: Footprint, policies: Iterable[str] = POLICIES
) -> Iterator[tuple[str, Any]]:
    """Hotness by policy, one after the other. ``optimal`` knows ``recorded``, the others do not."""
    graph = sampler.graph
    for policy in policies:
        more: dict[str, Any] = {}
        if policy == "optimal":
            more = {"batches": recorded}
        elif policy.startswith("presample"):
            more = {"sampler": sampler, "seeds": seeds, "batch_size": batch_size}
        elif policy == "reverse-pagerank":
            more = {"seeds": seeds}
        elif policy == "visits":
            more = {"walks": _neighbourhoods(graph, seeds, sampler.fanouts, sampler.device)}
        yield policy, hotness(graph, policy, **more)


def _neighbourhoods(graph: Any, seeds: np.ndarray, fanouts: Sequence[int], device: str) -> Any:
    """k-hop neighbourhoods of the training vertices by NextDoor's application."""
    from gnnsample_lab.sampling import apps
    from gnnsample_lab.sampling.engine.run import run_app

    roots = seeds
    if len(seeds) > ROOTS:
        roots = np.sort(np.random.default_rng(20).choice(seeds, ROOTS, replace=False))
    return run_app(graph, apps.KHop(tuple(fanouts)), roots, device=device)


def sampled(
    sampler: Any,
    seeds: np.ndarray,
    batch_size: int,
    training: str,
    *,
    policies: Sequence[str] = POLICIES,
    ratios: Sequence[float] = RATIOS,
    epochs: int = EPOCHS,
    repeated: bool = True,
) -> Numbers:
    """Rows, frontiers, hit rates, match degrees and similarity of epochs for one training set.

    Args:
        sampler: a :class:`~gnnsample_lab.NeighborSampler` or a :class:`~gnnsample_lab.PinSAGESampler`.
        seeds: training vertices, distinct, on the host.
        batch_size: seeds in a mini-batch.
        training: the name of the training set in the keys.
        policies, ratios: of which hit rates are taken, over all epochs.
        epochs: sampled; at least two, for the similarity.
        repeated: whether to draw as FastGL's sampler does too.

    Returns:
        Numbers in percent, rows and frontiers in vertices. A detail that ends in ``with the last batch`` counts the
        incomplete mini-batch too.
    """
    seen = record(sampler, seeds, batch_size, epochs)
    found: Numbers = {}

    def put(quantity: str, detail: str, value: Any) -> None:
        found[Key(quantity, detail, training)] = float(value)

    for suffix, levels in (("", seen.levels), (LAST, seen.levels_last)):
        put("rows", suffix, levels[-1])
        for hop, size in enumerate(levels[1:-1], 2):
            put("frontier", joined(f"hop {hop}", suffix), size)
    for detail, ids in _lists(sampler, seeds, batch_size, seen, repeated).items():
        mean, spread = matches(ids)
        put("match degree", detail, mean)
        put("match spread", detail, spread)
    for suffix, prints in (("", seen.whole), (LAST, seen.every)):
        put("similarity", suffix, 100 * np.mean([epoch_similarity(a, b) for a, b in pairwise(prints)]))
        of_all = [similarity_of_all(a, b) for a, b in pairwise(prints)]
        put("similarity", joined(OF_ALL, suffix), 100 * np.mean(of_all))
    whole, every = _sum(seen.whole), _sum(seen.every)
    for policy, hot in rankings(sampler, seeds, batch_size, whole, policies):
        for suffix, footprint in (("", whole), (LAST, every)):
            rates = np.atleast_1d(hit_rate(hot, footprint, np.asarray(ratios, np.float64)))
            for ratio, rate in zip(ratios, rates, strict=True):
                put("hit rate", joined(f"{policy} {percent(ratio)}", suffix), 100 * rate)
    return found


def _lists(
    sampler: Any, seeds: np.ndarray, batch_size: int, seen: Epochs, repeated: bool
) -> dict[str, list[Any]]:
    """Mini-batches whose match degrees are taken: under our draws and FastGL's, without and with the incomplete one."""
    lists = {"": seen.ids}
    if seen.last_ids is not None:
        lists[LAST] = [*seen.ids, seen.last_ids]
    if repeated:
        drawn = list(repeated_draws(sampler.graph, seeds, batch_size, sampler.fanouts))
        full = len(seeds) // batch_size
        lists[REPEATED] = drawn[: min(full, WINDOW)]
        if len(drawn) > full:
            lists[f"{REPEATED}, {LAST}"] = [*lists[REPEATED], drawn[-1]]
    return lists


def joined(*words: str) -> str:
    """Parts of a detail, the empty ones left out."""
    return ", ".join(word for word in words if word)


def _sum(prints: Sequence[Footprint]) -> Footprint:
    total = prints[0]
    for one in prints[1:]:
        total = total + one
    return total


def mean_of(several: Sequence[Numbers]) -> Numbers:
    """The mean of each number over measurements that have it all."""
    return {
        key: float(np.mean([one[key] for one in several]))
        for key in several[0]
        if all(key in o for o in several)
    }


def metrics(
    graph: Any,
    plan: Plan,
    *,
    split: int = 0,
    training: Sequence[str] = ("random", "corner"),
    device: str = "auto",
    clustering: bool | None = True,
    **more: Any,
) -> Numbers:
    """Everything that sampling sees of a graph, with training sets that are drawn here.

    Args:
        graph: on either device.
        plan: batch size and fanouts.
        split: which training sets: the seed of what is random in them.
        training: of ``"random"`` (a tenth of the vertices) and ``"corner"`` (mean over :data:`CORNERS` sets in
            communities of the graph, see :func:`corner_sets`).
        device: where to sample.
        clustering: whether to count triangles; None leaves out all that :func:`structural` returns.
        more: passed to :func:`sampled`.
    """
    found: Numbers = {} if clustering is None else structural(graph, clustering)
    sampler = NeighborSampler(graph, list(plan.fanouts), device=device)
    for name in training:
        if name == "random":
            sets = [random_set(graph.num_nodes, split)]
        else:
            large, _ = structure.communities(structure.skeleton(graph), seed=split)
            sets = corner_sets(large, split)
        found |= mean_of([sampled(sampler, one, plan.batch_size, name, **more) for one in sets])
    return found


# ---- what to sample -------------------------------------------------------------------------------------------------

FANOUTS = ((15, 10, 5), (10, 5), (5, 3), (3, 2))
LEAST, AIM, MOST = 0.05, 0.12, 0.25
"""Share of all vertices that a mini-batch holds: at least, aimed at, at most. Above, match degrees and hit rates are
saturated; below, samples hardly meet."""
BATCHES = 6
"""Whole mini-batches that an epoch has at least."""
SMALLEST = 8


def choose_plan(graph: Any, device: str = "auto") -> tuple[Plan, float]:
    """Batch size and fanouts for a graph, by the share of its vertices that a mini-batch holds.

    The rule: of :data:`FANOUTS` the first with which some batch size, a power of two from 8 that leaves six whole
    mini-batches of a random tenth of the vertices, holds between 5 and 25 % of the vertices; of such sizes the one
    whose share is nearest to 12 %. The share is measured on the first two mini-batches.

    Returns:
        The plan, and its share in 0..1.

    Raises:
        ValueError: no plan holds such a share.
    """
    seeds = np.random.default_rng(21).permutation(random_set(graph.num_nodes))
    sizes = [1 << k for k in range(SMALLEST.bit_length() - 1, 14) if len(seeds) // (1 << k) >= BATCHES]
    seen: list[float] = []
    for fanouts in FANOUTS:
        sampler = NeighborSampler(graph, list(fanouts), device=device)
        shares = {}
        for size in sizes:
            batches = [
                sampler.sample(seeds[i * size : (i + 1) * size], batch_id=i).num_nodes for i in range(2)
            ]
            shares[size] = float(np.mean(batches)) / graph.num_nodes
            if shares[size] > MOST:
                break
        seen += shares.values()
        fit = {size: share for size, share in shares.items() if LEAST <= share <= MOST}
        if fit:
            size = min(fit, key=lambda one: abs(np.log(fit[one] / AIM)))
            return Plan(size, fanouts), fit[size]
    least = f"{100 * min(seen):.1f}" if seen else "none"
    raise ValueError(
        f"graph {graph.name!r} has no batch of {100 * LEAST:g} to {100 * MOST:g} % of its vertices "
        f"(the smallest: {least} %)"
    )
