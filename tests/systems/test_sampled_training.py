"""Training with exchangeable samplers: blocks by hand, the methods' own samplers, equal losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.systems import reference_samplers, sample_blocks
from gnnsample_lab.systems.sampled_training import METHODS, SAMPLERS, train_sampled

METHODS_ON_PAIRS = ("GraphSAGE", "LADIES", "ClusterGCN", "MVS")


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return lab.load("ppi-like", scale=0.005, use_cache=False)


@pytest.fixture(scope="module")
def dense(graph) -> np.ndarray:
    out = np.zeros((graph.num_nodes, graph.num_nodes))
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    np.add.at(out, (rows, graph.indices), 1)
    return out


def matrix(
    indptr: np.ndarray, indices: np.ndarray, columns: int, weight: np.ndarray | None = None
) -> np.ndarray:
    out = np.zeros((len(indptr) - 1, columns))
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    np.add.at(out, (rows, indices), 1.0 if weight is None else weight)
    return out


@pytest.mark.parametrize("method", METHODS_ON_PAIRS)
def test_the_engine_trains_to_the_walkers_losses(graph, method) -> None:
    runs = {
        sampler: train_sampled(
            graph, method, sampler, steps=4, together=2, device="cpu", batch_size=16, hidden=8
        )
        for sampler in SAMPLERS
    }
    np.testing.assert_allclose(runs["engine"].losses, runs["walker"].losses, rtol=1e-4)
    for run in runs.values():
        assert len(run.losses) == run.steps == 4 and np.isfinite(run.losses).all()
        assert run.sample_ms > 0 and run.train_ms > 0
        assert run.sample_percent == pytest.approx(100 * run.sample_ms / run.step_ms)
        assert run.epoch_s == pytest.approx(run.step_ms * run.epoch_steps / 1e3)
    assert len({run.epoch_steps for run in runs.values()}) == 1, "all samplers make the same epoch"


def test_training_lowers_the_loss(graph) -> None:
    run = train_sampled(graph, "ClusterGCN", steps=40, together=8, device="cpu", hidden=16, lr=0.02)
    assert np.mean(run.losses[-5:]) < np.mean(run.losses[:5]) - 0.1


def test_unknown_names_and_missing_features_are_refused(graph) -> None:
    with pytest.raises(ValueError, match="method"):
        train_sampled(graph, "GCN")
    with pytest.raises(ValueError, match="sampler"):
        train_sampled(graph, "LADIES", "gpu")
    with pytest.raises(ValueError, match="features and labels"):
        train_sampled(replace(graph, feat=None), "LADIES")
    assert all(method.form in ("tree", "layers", "induced") for method in METHODS.values())


def test_trees_by_hand() -> None:
    step = sample_blocks.Trees()(np.array([5, 7]), [np.array([[1, -1], [3, 4]]), np.array([8, 9, 6, -1])])
    assert step.node_ids.tolist() == [5, 7, 1, 5, 3, 4, 8, 9, 6, 4], "NULL is the vertex that drew it"
    deep, near = step.blocks
    assert near.src.tolist() == [5, 7, 1, 5, 3, 4] and near.indptr.tolist() == [0, 2, 4]
    assert near.indices.tolist() == [2, 3, 4, 5]
    assert deep.indptr.tolist() == [0, 2, 4, 5, 6, 7, 8]
    assert deep.indices.tolist() == [2, 3, 4, 5, 6, 7, 8, 9]


def test_layers_are_the_graphs_edges_and_their_rows_sum_to_one(graph, dense) -> None:
    result = lab.run_app(
        graph, lab.apps.LADIES(layers=2, batch_size=8, step_size=6), num_samples=3, device="cpu"
    )
    for number, step in enumerate(sample_blocks.layers(result, lambda array: array)):
        assert step.seeds.tolist() == result.roots[number].tolist()
        rows = result.roots[number]
        for block, drawn in zip(step.blocks[::-1], result.steps, strict=True):
            known = drawn[number] >= 0
            found = matrix(block.indptr, block.indices, 6, block.weight)
            wanted = (
                dense[np.maximum(rows, 0)][:, np.maximum(drawn[number], 0)] * known * (rows >= 0)[:, None]
            )
            assert ((found > 0) == (wanted > 0)).all()
            sums = found.sum(axis=1)
            np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-5)
            rows = drawn[number]


def test_induced_blocks_are_the_sub_graphs(graph, dense) -> None:
    result = lab.run_app(graph, lab.apps.MultiRW(10, 5), num_samples=3, device="cpu")
    for number, step in enumerate(sample_blocks.induced(result, 2, lambda array: array)):
        wanted = np.unique(result.samples[number][result.samples[number] >= 0])
        assert step.node_ids.tolist() == wanted.tolist() and len(step.blocks) == 2
        block = step.blocks[0]
        np.testing.assert_array_equal(
            matrix(block.indptr, block.indices, wanted.size), dense[wanted][:, wanted]
        )


def test_own_samplers_follow_the_graph(graph, dense) -> None:
    seeds = np.arange(10)
    first, second = reference_samplers.TreeSampler(graph, (4, 3)).sample(seeds)
    assert first.shape == (10, 4) and second.shape == (10, 12)
    assert (dense[seeds[:, None], first] > 0).all() and (
        dense[first.reshape(-1, 1), second.reshape(-1, 3)] > 0
    ).all()
    for dependent in (False, True):
        rows = seeds
        for vertices, indptr, indices, weight in reference_samplers.LayerSampler(
            graph, 2, 9, dependent
        ).sample(seeds):
            assert np.unique(vertices).size == vertices.size == 9
            found = matrix(indptr, indices, 9, weight)
            assert ((found > 0) == (dense[rows][:, vertices] > 0)).all()
            sums = found.sum(axis=1)
            np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-5)
            assert not dependent or (dense[rows][:, vertices] > 0).any(axis=0).all(), "LADIES stays near"
            rows = vertices
    cluster = np.arange(graph.num_nodes) % 7
    vertices, indptr, indices = reference_samplers.ClusterSampler(graph, cluster, 2).sample()
    assert np.unique(cluster[vertices]).size == 2
    np.testing.assert_array_equal(matrix(indptr, indices, vertices.size), dense[vertices][:, vertices])
    vertices, indptr, indices = reference_samplers.FrontierSampler(graph, 5, 20).sample()
    np.testing.assert_array_equal(matrix(indptr, indices, vertices.size), dense[vertices][:, vertices])
