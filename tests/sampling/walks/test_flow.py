"""Reservoir walks: the serial rule in plain Python, the distribution, and the GPU's walks."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.device.philox import FLOW
from gnnsample_lab.sampling.walks import flow
from gnnsample_lab.sampling.weights import integer_weights


def philox(counter, key):
    """Philox4x32-10 in plain Python."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c


def serial_walk(graph, weights, root, length, factors, seed, walker):
    """A walk as the paper's sequential reservoir makes it: one edge is kept, each later one may take its place."""
    walk, before = [root], -1
    for step in range(length):
        v, total, kept = walk[-1], 0, -1
        begin, end = int(graph.indptr[v]), int(graph.indptr[v + 1])
        for i, u in enumerate(graph.indices[begin:end].tolist()):
            weight = weights[begin + i]
            if factors:
                near = before < 0 or u in graph.indices[graph.indptr[before] : graph.indptr[before + 1]]
                weight *= factors[0] if u == before else factors[1] if near else factors[2]
            if not weight:
                continue
            total += weight
            words = philox(
                (walker & 0xFFFFFFFF, walker >> 32, step, FLOW << 28 | i >> 1),
                (seed & 0xFFFFFFFF, seed >> 32),
            )
            low, high = words[2 * (i & 1)], words[2 * (i & 1) + 1]
            if (high << 32 | low) * total >> 64 < weight:
                kept = u
        if kept < 0:
            return walk + [-1] * (length - step)
        before = v
        walk.append(kept)
    return walk


def random_graph(weighted, nodes=40, edges=400):
    draw = np.random.default_rng(3)
    weight = draw.integers(0, 4, edges).astype(np.float32) + draw.random(edges).astype(np.float32).round()
    return lab.Graph.from_edges(
        draw.integers(0, nodes, edges), draw.integers(0, nodes - 3, edges), nodes,
        edge_weight=weight if weighted else None,
    )  # fmt: skip


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (4.0, 0.25), (0.5, 2.0)])
def test_walks_are_those_of_the_sequential_reservoir(weighted, p, q):
    graph, seed, first = random_graph(weighted), 2**63 + 5, 2**33
    weights = [1] * graph.num_edges
    if weighted:
        weights = np.diff(integer_weights(graph.indptr, graph.edge_weight).prefix.astype(object)).tolist()
    factors = None
    if (p, q) != (1.0, 1.0):
        top, bits = max(1 / p, 1, 1 / q), 24
        factors = [round(x / top * 2**bits) for x in (1 / p, 1, 1 / q)]
    roots = np.arange(40)
    found = lab.flow_walks(graph, roots, 7, p, q, weighted, "cpu", seed, first_walker=first)
    assert found.dtype == graph.indices.dtype
    for row, root in enumerate(roots.tolist()):
        assert found[row].tolist() == serial_walk(graph, weights, root, 7, factors, seed, first + row)


def test_steps_follow_node2vecs_distribution():
    """A walk 1, 0, u: shares of u against the factors, by a chi-square of three degrees of freedom."""
    src = [1, 2, 3, 4, 2, 5]  # in-neighbours of 0: 1, 2, 3, 4 (weights 1, 2, 3, 4); of 1: 2 and 5
    dst = [0, 0, 0, 0, 1, 1]
    graph = lab.Graph.from_edges(
        [*src, 0], [*dst, 5], 6, edge_weight=np.array([1, 2, 3, 4, 1, 1, 1], np.float32)
    )
    # From 5 a walk goes to 0 (its only in-neighbour), and from there on: 5 is no in-neighbour of 0.
    walks = lab.flow_walks(graph, np.full(40_000, 5), 2, p=2.0, q=0.5, device="cpu", seed=1)
    assert (walks[:, 1] == 0).all()
    # before = 5, whose only in-neighbour is 0: all edges lead away, and shares are those of the weights.
    shares = np.bincount(walks[:, 2], minlength=6)[1:5] / 40_000
    assert np.abs(shares - np.array([1, 2, 3, 4]) / 10).max() < 0.015
    # An in-neighbour of 1 is 2: the walk 1 -> 2 needs in-neighbours of 2, so let 0 follow 1.
    graph = lab.Graph.from_edges(
        [1, 2, 3, 4, 0, 2], [0, 0, 0, 0, 1, 1], 5, edge_weight=np.array([1, 2, 3, 4, 1, 1e-6], np.float32)
    )
    walks = lab.flow_walks(graph, np.full(60_000, 1), 2, p=2.0, q=0.5, device="cpu", seed=2)
    second = walks[walks[:, 1] == 0][:, 2]
    wanted = np.array([1 * 0.5, 2 * 1.0, 3 * 2.0, 4 * 2.0])  # back to 1; 2 is near 1; 3 and 4 lead away
    counts, wanted = np.bincount(second, minlength=5)[1:5], wanted / wanted.sum() * second.size
    assert ((counts - wanted) ** 2 / wanted).sum() < 16.3  # 0.1 % of samples exceed it


def test_parts_are_the_whole():
    graph = random_graph(True)
    whole = lab.flow_walks(graph, np.arange(30), 5, 2.0, device="cpu", seed=3)
    rest = lab.flow_walks(graph, np.arange(10, 30), 5, 2.0, device="cpu", seed=3, first_walker=10)
    assert np.array_equal(whole[10:], rest)
    assert not np.array_equal(whole, lab.flow_walks(graph, np.arange(30), 5, 2.0, device="cpu", seed=4))


def test_walks_end_where_there_is_no_weight():
    graph = lab.Graph.from_edges([0, 1], [1, 2], 3, edge_weight=np.array([1, 0], np.float32))
    found = lab.flow_walks(graph, [2, 1, -1], 3, device="cpu")
    assert found.tolist() == [[2, -1, -1, -1], [1, 0, -1, -1], [-1, -1, -1, -1]]


def test_arguments():
    graph = random_graph(False)
    with pytest.raises(ValueError, match="roots"):
        lab.flow_walks(graph, np.zeros((3, 2), int), device="cpu")
    with pytest.raises(ValueError, match="p must"):
        lab.flow_walks(graph, [0], p=0.0, device="cpu")
    edges = 1 << 20  # parallel ones, each as heavy as a whole number may be
    heavy = lab.Graph([0, 0, edges], np.zeros(edges, int), np.full(edges, 2.0**32 - 256, np.float32))
    with pytest.raises(ValueError, match="weights of a list"):
        lab.flow_walks(heavy, [1], p=2.0, device="cpu")


def test_walks_that_do_not_fit_into_memory_are_refused_by_name():
    roots = np.zeros(2**16, int)
    with pytest.raises(MemoryError, match=r"^roots x \(length \+ 1\) must .*got 65,536 x 16,777,217, 4,096"):
        lab.flow_walks(random_graph(False), roots, 2**24, device="cpu")


def test_factors_that_a_heavy_list_would_round_away_are_refused():
    edges = 1 << 16
    heavy = lab.Graph([0, 0, edges], np.zeros(edges, int), np.full(edges, 2.0**32 - 256, np.float32))
    with pytest.raises(ValueError, match=r"leave 15 bits .* too few for p=1024 and q=1; .*scale the weights"):
        lab.flow_walks(heavy, [1], 2, p=1024.0, device="cpu")
    assert lab.flow_walks(heavy, [1], 2, p=512.0, device="cpu").tolist() == [[1, 0, -1]]
    light = lab.Graph.from_edges([0, 1], [1, 0], 2)
    assert lab.flow_walks(light, [1], 2, p=2.0**12, q=2.0**-12, device="cpu").tolist() == [[1, 0, 1]]


@pytest.mark.gpu
@pytest.mark.real_gpu
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (4.0, 0.25)])
def test_the_gpu_walks_alike(weighted, p, q):
    draw = np.random.default_rng(5)
    # Lists that a warp reads at once, in turns, and lists for the whole block.
    hub = np.concatenate(
        [np.zeros(5000, int), np.ones(1030, int), np.full(64, 2), draw.integers(3, 900, 6000)]
    )
    src = draw.integers(0, 900, hub.size)
    weight = draw.random(hub.size).astype(np.float32) if weighted else None
    back = slice(6094)  # the hubs' edges the other way round, so that walks come back to hubs
    graph = lab.Graph.from_edges(
        np.concatenate([src, hub[back]]), np.concatenate([hub, src[back]]), 901,
        edge_weight=None if weight is None else np.concatenate([weight, weight[back]]),
    )  # fmt: skip
    roots = draw.integers(-1, 901, 3000)
    wanted = lab.flow_walks(graph, roots, 20, p, q, device="cpu", seed=9, first_walker=2**34)
    found = lab.flow_walks(graph.to("cuda"), roots, 20, p, q, device="cuda", seed=9, first_walker=2**34)
    assert np.array_equal(found.get(), wanted)
    assert flow.FLOW.itemsize == 13 * 8
