"""ClusterGCN: a sample is the union of its clusters."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gnnsample_lab import Graph, run_app
from gnnsample_lab.sampling import apps
from gnnsample_lab.sampling.apps.clusters import assign
from tests.sampling.apps.statistics import ENOUGH, p_value, sample, tangled_graph

LABELS = [5, 5, -3, 8, 8, 8, 5, -3, 99]


@pytest.mark.slow
def test_a_sample_is_all_members_of_its_clusters():
    graph = tangled_graph(False)
    result = sample(graph, apps.ClusterGCN(2, partition=LABELS), num_samples=50, seed=1)
    assert result.roots.shape == (50, 2)
    for row in result.samples.tolist():
        found = [v for v in row if v >= 0]
        clusters = {LABELS[v] for v in row[:2]}
        assert len(clusters) == 2
        assert sorted(found) == [v for v in range(9) if LABELS[v] in clusters]


def test_any_member_stands_for_its_cluster():
    graph = tangled_graph(False)
    result = sample(graph, apps.ClusterGCN(partition=LABELS), [[4], [8], [6]])
    assert result.steps[0].tolist() == [[3, -1, 5], [-1, -1, -1], [0, 1, -1]]


def test_clusters_are_chosen_alike():
    graph = tangled_graph(False)
    roots = sample(graph, apps.ClusterGCN(1, partition=LABELS), num_samples=2000, seed=1).roots
    drawn = [LABELS[v] for v in roots.ravel().tolist()]
    assert p_value(drawn, dict.fromkeys([5, -3, 8, 99], 1)) > ENOUGH


def test_random_clusters_are_balanced():
    graph = tangled_graph(False, 103)
    app = apps.ClusterGCN(4, 20, "random", seed=3)
    result = sample(graph, app, num_samples=10)
    sizes = np.bincount(app.cluster)
    assert len(sizes) == 20 and set(sizes.tolist()) == {5, 6}
    assert (app.cluster != assign(graph, "random", 20, 4)).any()
    assert all(20 <= n <= 24 for n in result.lengths.tolist())
    assert sample(graph, apps.ClusterGCN(4, 20, "random", seed=3), num_samples=10) == result


def test_metis_cuts_where_few_edges_are():
    pytest.importorskip("pymetis")
    blocks = [np.arange(20 * b, 20 * (b + 1)) for b in range(3)]
    draw = np.random.default_rng(1)
    src = np.concatenate([draw.choice(b, 150) for b in blocks] + [[0, 20, 40, 3, 3]])
    dst = np.concatenate([draw.choice(b, 150) for b in blocks] + [[20, 40, 0, 3, 3]])
    order = draw.permutation(60)  # ids say nothing about blocks
    graph = Graph.from_edges(order[src], order[dst], 60)
    cluster = assign(graph, "metis", 3, 0)
    assert sorted(np.bincount(cluster).tolist()) == [20, 20, 20]
    assert all(len(set(cluster[order[b]].tolist())) == 1 for b in blocks)
    assert sample(graph, apps.ClusterGCN(1, 3), num_samples=9).lengths.tolist() == [20] * 9


def test_without_pymetis_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match="pip install pymetis"):
        sample(tangled_graph(False), apps.ClusterGCN(2, 3), num_samples=1)


def test_a_graph_is_cut_once():
    graph, app = tangled_graph(False), apps.ClusterGCN(2, 4, "random")
    sample(graph, app, num_samples=1)
    cluster = app.cluster
    sample(graph, app, num_samples=1)
    assert app.cluster is cluster
    sample(tangled_graph(True), app, num_samples=1)
    assert app.cluster is not cluster


def test_another_partition_is_another_cut():
    graph, app = tangled_graph(False), apps.ClusterGCN(1, partition=[0] * 8 + [1])
    assert sample(graph, app, [0]).lengths.tolist() == [8]
    cluster = app.cluster
    app.partition = app.partition.copy()
    sample(graph, app, [0])
    assert app.cluster is cluster
    app.partition[1:8] = 1
    assert sample(graph, app, [0]).lengths.tolist() == [1]
    app.partition, app.num_clusters = "random", 3
    sample(graph, app, [0])
    assert app.cluster.max() == 2
    before, app.seed = app.cluster, 5
    sample(graph, app, [0])
    assert app.cluster is not before


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"num_clusters": 10}, ValueError, "num_clusters must be at most"),
        ({"partition": "louvain"}, ValueError, "partition must be"),
        ({"partition": [1, 2]}, ValueError, "partition must have shape"),
        ({"partition": np.ones(9)}, TypeError, "partition must be integers"),
        (
            {"partition": LABELS, "clusters_per_sample": 5},
            ValueError,
            "clusters with vertices, 4",
        ),
        ({"clusters_per_sample": 0}, ValueError, "clusters_per_sample must be"),
    ],
)
def test_arguments_are_checked(options, kind, words):
    with pytest.raises(kind, match=words):
        sample(tangled_graph(False), apps.ClusterGCN(**{"partition": "random", **options}), num_samples=1)


def test_how_many_clusters_by_default():
    def count(n):
        return apps.clusters.assign(Graph.from_edges([], [], n), "random", None, 0).max() + 1

    assert [count(n) for n in (7, 2_000, 9_000, 400_000)] == [7, 20, 60, 1500]
    with pytest.raises(ValueError, match="no vertices"):
        assign(Graph.from_edges([], [], 0), "random", None, 0)


def test_fewer_clusters_than_a_sample_has_are_named():
    """METIS leaves parts of a small graph empty."""
    message = r"clusters_per_sample must be at most the number of clusters with vertices, 2 \(got 20\)"
    with pytest.raises(ValueError, match=message):
        run_app(
            Graph.from_edges([0, 1], [1, 0], 4), apps.ClusterGCN(20, partition=[0, 0, 1, 1]), num_samples=1
        )
