"""PinSAGE's neighbourhoods against a walker in plain Python."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gnnsample_lab.device import philox
from gnnsample_lab.sampling.walks import pinsage as walks
from gnnsample_lab.sampling.walks.pinsage import make_walk_spec, walk_hop
from tests.minibatch.conftest import random_graph, with_wide_ids


def spec_of(neighbors=5, num_walks=4, walk_length=3, restart=0.0, seed=0, ends=False):
    return make_walk_spec(3, neighbors, num_walks, walk_length, restart, seed, ends)


def word(vertex, batch, hop, purpose, index, seed) -> int:
    counter = (vertex & 0xFFFFFFFF, vertex >> 32, batch, purpose << 28 | hop << 24 | index >> 2)
    return int(philox.philox4x32(*counter, seed & 0xFFFFFFFF, seed >> 32)[index & 3])


def walker(graph, v, spec, batch, hop):
    """Visit counts of the walks of ``v``, one dictionary entry a visit. Redraws (1 in 2**32 / degree) are left out."""
    seen = Counter()
    for walk in range(spec.num_walks):
        at = v
        for step in range(spec.walk_length):
            i = walk * spec.walk_length + step
            if spec.restart and word(v, batch, hop, 6, i, spec.seed) < int(spec.restart * 2**32):
                if spec.restart_ends and step:
                    break
                at = v
            row = graph.indices[graph.indptr[at] : graph.indptr[at + 1]]
            if len(row) == 0:
                break
            at = int(row[word(v, batch, hop, 5, i, spec.seed) * len(row) >> 32])
            if at != v:
                seen[at] += 1
    return seen


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("restart", "ends"), [(0.0, False), (0.4, False), (0.5, True)])
@pytest.mark.parametrize(
    ("neighbors", "num_walks", "walk_length"), [(5, 4, 3), (2, 7, 5), (50, 1, 1), (3, 20, 9)]
)
def test_picks_are_the_most_visited(wide, restart, ends, neighbors, num_walks, walk_length):
    graph = random_graph(1)
    if wide:
        graph = with_wide_ids(graph)
    spec = spec_of(neighbors, num_walks, walk_length, restart, seed=2**40 + 3, ends=ends)
    picks, votes = walk_hop(
        np.arange(120, dtype=graph.indices.dtype), graph.indptr, graph.indices, spec, 7, 2
    )
    assert picks.neighbors.dtype == graph.indices.dtype and votes.dtype == np.int32
    assert (picks.positions == -1).all()
    for i in range(120):
        expected = sorted(walker(graph, i, spec, 7, 2).items(), key=lambda item: (-item[1], item[0]))[
            :neighbors
        ]
        row = slice(picks.offsets[i], picks.offsets[i + 1])
        assert list(zip(picks.neighbors[row].tolist(), votes[row].tolist(), strict=True)) == expected


def hop_of(graph, v, **options):
    picks, votes = walk_hop(np.array([v], np.int32), graph.indptr, graph.indices, spec_of(**options), 0, 0)
    return picks.neighbors.tolist(), votes.tolist()


def test_a_dead_end_ends_the_walk(drawn_graphs):
    assert hop_of(drawn_graphs["path"], 0, walk_length=9) == ([1, 2, 3], [4, 4, 4])
    assert hop_of(drawn_graphs["path"], 2, walk_length=9) == ([3], [4])
    assert hop_of(drawn_graphs["path"], 3) == ([], [])
    assert hop_of(drawn_graphs["star"], 1) == ([], [])


def test_nobody_is_its_own_neighbour(drawn_graphs):
    assert hop_of(drawn_graphs["cycle"], 0, walk_length=8) == ([1, 2, 3], [8, 8, 8])
    neighbors, _ = hop_of(drawn_graphs["clumsy"], 0, num_walks=64)
    assert sorted(neighbors) == [1, 2]
    assert hop_of(drawn_graphs["clumsy"], 3) == ([], [])


def test_parallel_edges_weigh_as_many():
    from gnnsample_lab import Graph

    graph = Graph.from_edges([1, 1, 1, 2], [0, 0, 0, 0], 3)
    neighbors, votes = hop_of(graph, 0, num_walks=4000, walk_length=1)
    assert neighbors == [1, 2]
    assert abs(votes[0] - 3000) < 200 and sum(votes) == 4000


def test_first_steps_are_uniform_over_vertices(drawn_graphs):
    neighbors, votes = hop_of(drawn_graphs["star"], 0, neighbors=10, num_walks=4000, walk_length=1)
    assert sorted(neighbors) == list(range(1, 11))
    expected = 400
    assert sum((v - expected) ** 2 / expected for v in votes) < 33.7  # chi square, 9 degrees, p = 1e-4


def test_restarts_stay_near(drawn_graphs):
    _, far = hop_of(drawn_graphs["path"], 0, num_walks=400, walk_length=3)
    neighbors, near = hop_of(drawn_graphs["path"], 0, num_walks=400, walk_length=3, restart=0.9)
    assert far == [400, 400, 400]
    assert neighbors[0] == 1 and near[0] > 1000


def test_draws_depend_on_batch_hop_and_seed_only_where_they_should():
    graph = random_graph(2)
    every = np.arange(120, dtype=np.int32)

    def sample(frontier, batch=0, hop=0, seed=0):
        picks, votes = walk_hop(frontier, graph.indptr, graph.indices, spec_of(seed=seed), batch, hop)
        cuts = picks.offsets[1:-1]
        rows = zip(np.split(picks.neighbors, cuts), np.split(votes, cuts), strict=True)
        return {int(v): (a.tolist(), b.tolist()) for v, (a, b) in zip(frontier, rows, strict=True)}

    first = sample(every)
    assert sample(every[::-1].copy()) == first
    assert sample(every[5:9].copy()) == {v: first[v] for v in range(5, 9)}
    for other in (sample(every, batch=1), sample(every, hop=1), sample(every, seed=1)):
        assert other != first


@pytest.mark.parametrize(("name", "value", "error"), [
    ("num_layers", 0, ValueError), ("num_layers", 16, ValueError), ("num_neighbors", 0, ValueError),
    ("num_neighbors", 2.0, TypeError), ("num_walks", 0, ValueError), ("walk_length", 4097, ValueError),
    ("restart", 1.0, ValueError), ("restart", -0.1, ValueError), ("restart", float("nan"), ValueError),
    ("restart", "half", TypeError), ("restart", True, TypeError), ("seed", -1, ValueError),
])  # fmt: skip
def test_bad_settings_name_the_argument(name, value, error):
    settings = {
        "num_layers": 3,
        "num_neighbors": 5,
        "num_walks": 4,
        "walk_length": 3,
        "restart": 0.0,
        "seed": 0,
    }
    with pytest.raises(error, match=name):
        make_walk_spec(**{**settings, name: value})


def test_too_many_visits():
    make_walk_spec(1, 5, 64, 64, 0, 0)
    with pytest.raises(ValueError, match=r"num_walks \* walk_length .* \(got 65 \* 64\)"):
        make_walk_spec(1, 5, 65, 64, 0, 0)


def test_the_struct_is_that_of_the_kernels():
    from gnnsample_lab.minibatch.walks import gpu as walks_gpu

    source = (Path(walks.__file__).parent / "pinsage.cu").read_text()
    body = re.search(r"struct Walks \{(.*?)\};", source, re.DOTALL).group(1)
    sizes = {"u64": 8, "u32": 4}
    fields = []
    body = re.sub(r"//.*", "", body)
    for line in body.strip().split(";")[:-1]:
        kind, _, names = line.strip().partition(" ")
        if "*" in line:
            fields.append((line.rsplit("*", 1)[1].strip(), 8))
        else:
            fields += [(name.strip(), sizes[kind]) for name in names.split(",")]
    layout = walks_gpu._WALKS
    assert fields == [(name, layout[name].itemsize) for name in layout.names]
    assert f"#define TOTALS {walks_gpu.TOTALS}" in source
    assert f"LAB_PURPOSE_WALK {philox.WALK}u" in (Path(philox.__file__).parent / "philox.cuh").read_text()
    assert (
        f"LAB_PURPOSE_RESTART {philox.RESTART}u" in (Path(philox.__file__).parent / "philox.cuh").read_text()
    )
