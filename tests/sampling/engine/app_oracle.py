"""Sampling applications run by plain Python, without rewriting or compiling anything: slow, and easy to read."""

from __future__ import annotations

import bisect
import copy

import numpy as np

from gnnsample_lab.device import philox
from gnnsample_lab.sampling.weights import integer_weights

NULL = -1


class Stream:
    """The words of one call, straight from the published generator."""

    def __init__(self, sample, step, seed, item, first_item=None, component=0, attempt=0):
        self.place = (sample, step, seed, item, first_item, component, attempt)
        self.drawn = 0

    def bits(self):
        sample, step, seed, item, first_item, component, attempt = self.place
        n, self.drawn = self.drawn, self.drawn + 1
        if first_item is None:  # step_transits
            y, group, part = item, n >> 2, n & 3
        elif n == 0:
            y, group, part = first_item, 0, component
        else:
            y, group, part = item, 1 + ((n - 1) >> 2), (n - 1) & 3
        words = philox.philox4x32(
            sample & 0xFFFFFFFF, y, step | (sample >> 32) << 24, 7 << 28 | attempt << 22 | group,
            seed & 0xFFFFFFFF, seed >> 32,
        )  # fmt: skip
        return int(words[part])

    def below(self, n):
        if n < 1:
            raise ValueError("below")
        if n >= 2**32:
            low, high = self.bits(), self.bits()
            return ((high << 32 | low) * n) >> 64
        for _ in range(64):
            product = self.bits() * n
            if product & 0xFFFFFFFF >= (2**32 - n) % n:
                break
        return product >> 32

    def uniform(self):
        return self.bits() / 2**32

    def chance(self, p):
        word = self.bits()
        return p >= 1 or word < int(p * 2**32)


class Table(np.ndarray):
    """An array on ``self`` with the method that sampling functions have for it."""

    def search(self, x):
        return bisect.bisect_right(self.tolist(), x) - 1

    def __getitem__(self, i):
        return self.tolist()[i]


class World:
    def __init__(self, graph, app):
        self.indptr, self.indices = graph.indptr.tolist(), graph.indices.tolist()
        weight = app.edge_weights(graph)
        prefix = (
            range(len(self.indices) + 1) if weight is None else integer_weights(graph.indptr, weight).prefix
        )
        self.prefix = [int(p) for p in prefix]
        self.num_nodes = graph.num_nodes

    def vertex(self, v):
        return Vertex(int(v), self)

    def list_of(self, v):
        return [] if v < 0 else list(range(self.indptr[v], self.indptr[v + 1]))


class Vertex(int):
    def __new__(cls, value, world):
        self = super().__new__(cls, value)
        self.world = world
        return self

    def edges(self):
        return Edges(self.world, self.world.list_of(self))

    def degree(self):
        return len(self.edges())

    def max_edge_weight(self):
        edges = self.edges()
        return max((edges.weight(i) for i in range(len(edges))), default=0)

    def has_edge(self, u):
        return self.edges().has(u)


class Edges:
    def __init__(self, world, positions):
        self.world, self.positions = world, positions

    def __len__(self):
        return len(self.positions)

    def __getitem__(self, i):
        if i < 0:
            raise IndexError
        return self.world.vertex(self.world.indices[self.positions[i]])

    def weight(self, i):
        p = self.positions[i]
        return self.world.prefix[p + 1] - self.world.prefix[p]

    def prefix(self, i):
        return sum(self.weight(j) for j in range(i))

    def search(self, x):
        sums = np.cumsum([self.weight(j) for j in range(len(self))]).tolist()
        return bisect.bisect_right(sums, x)

    def has(self, v):
        return any(self.world.indices[p] == v for p in self.positions)


class Roots(list):
    def replace(self, old, new):
        self[self.index(old)] = new


class Sample:
    def __init__(self, world, number, roots):
        self.world, self.number = world, number
        self.roots = Roots(world.vertex(v) for v in roots)
        self.layers = [[world.vertex(v) for v in roots]]

    def prev_vertex(self, i, pos):
        at = len(self.layers) - i
        return self.layers[at][pos] if at >= 0 else self.world.vertex(NULL)

    def prev_edges(self, i, pos):
        return self.prev_vertex(i, pos).edges()

    def prev_count(self, i):
        return len(self.layers[-i]) if i <= len(self.layers) else 0

    def num_roots(self):
        return len(self.roots)

    def size(self):
        return sum(v >= 0 for layer in self.layers for v in layer)

    def id(self):
        return self.number

    def slot(self):
        return self.call[1]

    def transit_index(self):
        return self.call[0]

    def num_nodes(self):
        return self.world.num_nodes


def run(graph, app, roots, seed, first_sample=0, steps=None):
    """Steps of every sample as lists ``[step][sample][slot]``."""
    app.prepare(graph)
    app = copy.copy(app)
    for name, value in list(vars(app).items()):
        if isinstance(value, np.ndarray):
            setattr(app, name, value.view(Table))
    world = World(graph, app)
    grown = [Sample(world, first_sample + i, np.atleast_1d(r).tolist()) for i, r in enumerate(roots)]
    count = steps if steps is not None else app.steps()
    result, width = [], len(grown[0].layers[0])
    for step in range(count):
        m = app.sample_size(step)
        t = app.num_transits(step) or width
        for s in grown:
            s.layers.append(_one_step(world, app, s, step, t, m, seed))
        width = m if app.is_collective else t * m
        result.append([[int(v) for v in s.layers[-1]] for s in grown])
    return result


def _one_step(world, app, s, step, t, m, seed):
    transits = []
    for k in range(t):
        s.call = (k, 0)
        transits.append(
            world.vertex(app.step_transits(step, s, k, Stream(s.number, step, seed, 1 << 31 | k)))
        )
    collective = app.is_collective
    values = [NULL] * (m if collective else t * m)
    if all(v < 0 for v in transits):
        return [world.vertex(v) for v in values]

    def draw(slot, attempt):
        k, j = (0, slot) if collective else divmod(slot, m)
        if collective:
            own, edges = transits, Edges(world, [p for v in transits for p in world.list_of(v)])
        else:
            if transits[k] < 0:
                return NULL
            own, edges = [transits[k]], transits[k].edges()
        s.call = (k, j)
        quads = -(-m // 4)
        stream = Stream(s.number, step, seed, k * m + j, k * quads + j // 4, j % 4, attempt)
        found = app.next(s, own, edges, step, stream)
        return NULL if found is None else int(found)

    values = [draw(slot, 0) for slot in range(len(values))]
    if app.unique(step):
        kept, missing = set(), []
        for slot, v in enumerate(values):
            if v >= 0 and v in kept:
                missing.append(slot)
            kept.add(v)
        for attempt in range(1, app.max_redraws + 1):
            still = []
            for slot in missing:
                v = values[slot] = draw(slot, attempt)
                if v >= 0 and v in kept:
                    still.append(slot)
                kept.add(v)
            missing = still
        for slot in missing:
            values[slot] = NULL
    return [world.vertex(v) for v in values]
