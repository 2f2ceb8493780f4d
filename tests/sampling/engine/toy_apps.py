"""Applications that between them use every part of the abstraction."""

from __future__ import annotations

import numpy as np

import gnnsample_lab as lab

TEN = 10


def last_of(edges):
    return edges[len(edges) - 1]


class Walk(lab.SamplingApp):
    def __init__(self, length=6):
        self.length = length

    def next(self, s, transits, src_edges, step, rng):
        if len(src_edges) == 0:
            return lab.NULL
        return src_edges[rng.below(len(src_edges))]

    def steps(self):
        return self.length

    def sample_size(self, step):
        return 1


class SecondOrder(Walk):
    """Rejection sampling with a helper, floats and the vertex before."""

    p, q = 2.0, 0.5

    def next(self, s, transits, src_edges, step, rng):
        n = len(src_edges)
        if n == 0:
            return lab.NULL
        before = s.prev_vertex(2, 0)
        their_edges = s.prev_edges(2, 0)
        while True:
            u = src_edges[rng.below(n)]
            if rng.chance(self.bias(u, before, their_edges) / max(1.0, 1 / self.p, 1 / self.q)):
                return u

    def bias(self, u, before, their_edges):
        if u == before:
            return 1 / self.p
        return 1.0 if their_edges.has(u) else 1 / self.q


class Weighted(Walk):
    """Prefix sums, weights and the largest of them."""

    def next(self, s, transits, src_edges, step, rng):
        total = src_edges.prefix(len(src_edges))
        if total == 0:
            return None
        i = src_edges.search(rng.below(total))
        if step % 2 == 1 and src_edges.weight(i) * 2 < transits[0].max_edge_weight():
            i = src_edges.search(rng.below(total))
        return src_edges[i]


class Ending(Walk):
    """Steps without end, and roots that are chosen by degree."""

    def steps(self):
        return lab.INF

    def next(self, s, transits, src_edges, step, rng):
        if len(src_edges) == 0 or rng.chance(0.2):
            return lab.NULL
        return src_edges[rng.below(len(src_edges))]


class Growing(Walk):
    """Each vertex draws so many more, for so many steps."""

    def __init__(self, width, generations):
        self.width, self.generations = width, generations

    def steps(self):
        return lab.INF

    def sample_size(self, step):
        return self.width

    def next(self, s, transits, src_edges, step, rng):
        if step >= self.generations or len(src_edges) == 0:
            return lab.NULL
        return src_edges[rng.below(len(src_edges))]


class Hops(lab.SamplingApp):
    fanouts = (5, 3)

    def next(self, s, transits, src_edges, step, rng):
        return src_edges[rng.below(len(src_edges))] if len(src_edges) else lab.NULL

    def steps(self):
        return len(self.fanouts)

    def sample_size(self, step):
        return self.fanouts[step]


class DistinctHops(Hops):
    max_redraws = 5

    def unique(self, step):
        return True


class Frontier(Walk):
    """Several roots, of which one is replaced at every step."""

    def next(self, s, transits, src_edges, step, rng):
        if len(src_edges) == 0:
            return lab.NULL
        v = src_edges[rng.below(len(src_edges))]
        s.roots.replace(transits[0], v)
        return v

    def num_transits(self, step):
        return 1

    def step_transits(self, step, s, transit_idx, rng):
        total = 0
        for root in s.roots:
            total += root.degree()
        x = rng.below(total + 1)
        for i in range(s.num_roots()):
            x -= s.roots[i].degree()
            if x < 0:
                return s.roots[i]
        return s.roots[0]


class Together(lab.SamplingApp):
    """Collective, by weight, distinct, until the sample is large enough."""

    def sampling_type(self):
        return lab.SamplingType.COLLECTIVE

    def next(self, s, transits, src_edges, step, rng):
        total = src_edges.prefix(len(src_edges))
        if s.size() >= 20 or total == 0:
            return lab.NULL
        return src_edges[src_edges.search(rng.below(total))]

    def steps(self):
        return 4

    def sample_size(self, step):
        return 6

    def unique(self, step):
        return True


class Blend(lab.SamplingApp):
    """Collective, uniform; ``next`` does no more with an edge than return it."""

    def sampling_type(self):
        return lab.SamplingType.COLLECTIVE

    def next(self, s, transits, src_edges, step, rng):
        return src_edges[rng.below(len(src_edges))] if len(src_edges) > 0 else lab.NULL

    def steps(self):
        return 3

    def sample_size(self, step):
        return 5


class Importance(lab.SamplingApp):
    """Collective without edges: vertices of the whole graph by a table; a method of vertices that are not transits."""

    def prepare(self, graph):
        self.sums = np.concatenate([[0], np.cumsum(np.diff(graph.indptr) + 1)])

    def sampling_type(self):
        return lab.SamplingType.COLLECTIVE

    def next(self, s, transits, src_edges, step, rng):
        v = self.sums.search(rng.below(self.sums[len(self.sums) - 1]))
        best = transits[0]
        for t in transits:
            if t.has_edge(v) or t.degree() > best.degree():
                best = t
        return best if best.has_edge(v) else v

    def steps(self):
        return 2

    def sample_size(self, step):
        return 7


class Odds(lab.SamplingApp):
    """Whatever is left: ids, slots, counts, float tables, module constants, plain functions, arithmetic."""

    bias = np.array([0.25, 0.5, 0.75])

    def next(self, s, transits, src_edges, step, rng):
        n = len(src_edges)
        if n == 0 or not rng.chance(self.bias[(s.slot() + s.id()) % 3]):
            return last_of(transits[0].edges()) if transits[0].degree() > 0 else lab.NULL
        x = int(rng.uniform() * n) if s.prev_count(1) > s.transit_index() + 1 else rng.bits() % n
        if src_edges.has((s.id() * TEN) % s.num_nodes()):
            x = n - 1
        elif x // 2 * 2 == x and n > 1:
            x, n = n - 1 - x, 1
        return src_edges[abs(x)]

    def steps(self):
        return 3

    def sample_size(self, step):
        return 2


APPS = {
    "walk": Walk(),
    "second-order": SecondOrder(),
    "weighted": Weighted(),
    "hops": Hops(),
    "distinct-hops": DistinctHops(),
    "frontier": Frontier(),
    "together": Together(),
    "blend": Blend(),
    "importance": Importance(),
    "odds": Odds(),
}
ROOTS_PER_SAMPLE = {"frontier": 5, "together": 3, "blend": 2, "importance": 4}


def toy_graph(weighted=True):
    """40 vertices with hubs, parallel edges, self-loops, isolated vertices and weights of 0."""
    draw = np.random.default_rng(5)
    src = np.minimum(draw.integers(0, 38, 240), draw.integers(0, 38, 240))
    dst = np.minimum(draw.integers(0, 38, 240), draw.integers(0, 38, 240))
    weight = draw.integers(0, 5, 240).astype(np.float32) if weighted else None
    return lab.Graph.from_edges(src, dst, 40, edge_weight=weight)


def toy_roots(name, samples=25):
    count = ROOTS_PER_SAMPLE.get(name, 1)
    return np.random.default_rng(3).integers(0, 40, (samples, count))
