"""What a rank keeps: lists, weights, node data; and that samples from parts are those of the whole graph."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.device.arrays import merge_duplicates
from gnnsample_lab.distributed.parts.part import Part
from gnnsample_lab.sampling.neighbors.cpu import draw_hop
from gnnsample_lab.sampling.neighbors.spec import SampleSpec
from gnnsample_lab.sampling.weights import IntegerWeights, integer_weights
from tests.minibatch.conftest import random_graph, with_wide_ids

SEEDS = np.array([7, 3, 100, 42, 0, 119, 55, 8])


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    n = 120
    rng = np.random.default_rng(0)
    return random_graph(
        1, n, feat=rng.random((n, 3), dtype=np.float32), label=np.arange(n) % 4, splits={"train": SEEDS}
    )


def cut(graph, parts=3, method="random") -> tuple[lab.distributed.Partition, list[Part]]:
    found = lab.distributed.partition(graph, parts, method, tolerance=parts, use_cache=False)
    return found, [lab.distributed.part_of(graph, found, rank) for rank in range(parts)]


@pytest.mark.parametrize("wide", [False, True])
def test_parts_hold_the_lists_of_the_graph(graph, wide):
    graph = with_wide_ids(graph) if wide else graph
    _, parts = cut(graph)
    prefix = np.diff(integer_weights(graph.indptr, graph.edge_weight).prefix)
    seen = []
    for part in parts:
        assert part.indices.dtype == graph.indices.dtype and (np.diff(part.vertices) > 0).all()
        for i, v in enumerate(part.vertices):
            here, there = slice(*part.indptr[i : i + 2]), slice(*graph.indptr[v : v + 2])
            assert (part.indices[here] == graph.indices[there]).all()
            assert (part.edge_weight[here] == graph.edge_weight[there]).all()
            assert (np.diff(part.prefix)[here] == prefix[there]).all()
        assert (part.feat == graph.feat[part.vertices]).all() and (
            part.label == graph.label[part.vertices]
        ).all()
        seen += part.vertices.tolist()
    assert sorted(seen) == list(range(graph.num_nodes))
    assert sum(part.num_edges for part in parts) == graph.num_edges


def test_seeds_live_with_their_part_in_the_order_given(graph):
    found, parts = cut(graph)
    for part in parts:
        assert part.seeds.tolist() == [s for s in SEEDS if found.owner[s] == part.rank]
    assert sum(len(part.seeds) for part in parts) == len(SEEDS)


def test_what_a_graph_lacks_its_parts_lack():
    graph = lab.Graph.from_edges([0, 1, 2], [1, 2, 3], 4)
    _, (part, _) = cut(graph, 2, "range")
    assert (
        part.edge_weight is part.prefix is part.available is part.feat is part.label is part.weights is None
    )
    assert set(part.nbytes) == {"vertices", "indptr", "indices", "seeds"} and part.seeds.size == 0


def test_features_may_stay_behind(graph):
    found, _ = cut(graph)
    assert lab.distributed.part_of(graph, found, 1, features=False).feat is None


def test_the_scale_of_weights_is_the_whole_graphs():
    """Fractional weights are scaled by the largest of all; a part alone would scale by its own and draw differently."""
    graph = lab.Graph.from_edges([1, 2, 3, 0], [0, 0, 2, 3], 4, edge_weight=[0.5, 0.25, 64.5, 1.0])
    found = lab.distributed.partition(graph, 2, "range", tolerance=2, use_cache=False)
    part = lab.distributed.part_of(graph, found, 0)
    assert part.vertices.tolist() == [0, 1] and part.edge_weight.tolist() == [0.5, 0.25]
    all_of_them = np.diff(integer_weights(graph.indptr, graph.edge_weight).prefix)
    assert np.diff(part.prefix).tolist() == all_of_them[:2].tolist()
    assert np.diff(integer_weights(part.indptr, part.edge_weight).prefix)[0] != all_of_them[0]


def spread(part: Part) -> tuple[np.ndarray, np.ndarray, IntegerWeights | None]:
    """The part's lists under original ids: those of other parts are empty."""
    degree = np.zeros(part.num_nodes, np.int64)
    degree[part.vertices] = np.diff(part.indptr)
    weights = None
    if part.weights is not None:
        available = np.zeros(part.num_nodes, np.int32)
        available[part.vertices] = part.available
        weights = IntegerWeights(part.prefix, available)
    return np.concatenate([[0], np.cumsum(degree)]), part.indices, weights


RULES = [
    {},
    {"pick": "reservoir"},
    {"replace": True},
    {"weighted": True},
    {"weighted": True, "replace": True},
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("method", ["metis", "random"])
def test_the_union_of_the_ranks_draws_is_the_sample_of_the_whole_graph(graph, rule, method):
    spec = SampleSpec((4, 3, 2), seed=11, **rule)
    found, parts = cut(graph, 3, method)
    weights = integer_weights(graph.indptr, graph.edge_weight)
    lists = [spread(part) for part in parts]
    frontier = SEEDS.astype(graph.indices.dtype)
    for hop in range(3):
        whole = draw_hop(frontier, graph.indptr, graph.indices, weights, spec, 5, hop)
        owner, _ = found.place(frontier)
        neighbors, counts = np.full(whole.num_picks, -1), np.full(frontier.size, -1)
        for rank, (indptr, indices, own_weights) in enumerate(lists):
            mine = np.flatnonzero(owner == rank)
            picks = draw_hop(frontier[mine], indptr, indices, own_weights, spec, 5, hop)
            counts[mine] = picks.counts
            for row, i in enumerate(mine):
                begin = whole.offsets[i]
                neighbors[begin : begin + picks.counts[row]] = picks.neighbors[
                    slice(*picks.offsets[row : row + 2])
                ]
        assert (counts == whole.counts).all() and (neighbors == whole.neighbors).all()
        assert whole.num_picks > 8
        frontier = merge_duplicates(np.concatenate([frontier, whole.neighbors]))[0]


def test_records_lead_to_every_list(graph):
    found, parts = cut(graph)
    records = lab.distributed.vertex_records(graph, found)
    assert records.dtype == np.int32 and records.shape == (graph.num_nodes, 2)
    for v, (start, degree) in enumerate(records):
        lists = parts[found.owner[v]].indices
        assert (lists[start : start + degree] == graph.indices[slice(*graph.indptr[v : v + 2])]).all()
        assert degree == graph.in_degrees()[v]


def test_a_partition_of_another_graph_is_refused(graph):
    found, _ = cut(graph)
    with pytest.raises(ValueError, match="partition must be of this graph"):
        lab.distributed.part_of(random_graph(2), found, 0)
    with pytest.raises(ValueError, match="rank must be between 0 and 2"):
        lab.distributed.part_of(graph, found, 3)


@pytest.mark.gpu
@pytest.mark.timeout(60)
@pytest.mark.parametrize("method", ["metis", "streaming", "random", "range"])
def test_a_graph_on_the_gpu_has_the_same_parts(graph, method):
    there = graph.to("cuda")
    found, parts = cut(graph, 3, method)
    again, copies = cut(there, 3, method)
    assert again.digest() == found.digest() and (again.traffic == found.traffic).all()
    for part, copy in zip(parts, copies):
        assert part.arrays().keys() == copy.arrays().keys()
        for name, array in part.arrays().items():
            other = getattr(copy, name)
            assert isinstance(other, np.ndarray) and other.dtype == array.dtype and (other == array).all(), (
                name
            )
    records = lab.distributed.vertex_records(there, again)
    assert (records == lab.distributed.vertex_records(graph, found)).all()
