"""Training with exchangeable samplers: blocks by hand, the methods' own samplers, equal losses."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.systems import reference_samplers, sample_blocks, sampled_training
from gnnsample_lab.systems.sampled_training import METHODS, SAMPLERS, train_sampled
from tests.sampling.engine import app_oracle

torch = pytest.importorskip("torch")

METHODS_ON_PAIRS = ("GraphSAGE", "LADIES", "ClusterGCN", "MVS")
RUN: dict[str, Any] = {"steps": 4, "together": 2, "batch_size": 8, "hidden": 8}
LR = 0.05
SMALL = {
    "GraphSAGE": lambda: lab.apps.KHop((4, 3)),
    "LADIES": lambda: lab.apps.LADIES(layers=2, step_size=8),
    "ClusterGCN": lambda: lab.apps.ClusterGCN(clusters_per_sample=3, partition="random"),
    "MVS": lambda: lab.apps.MVS(step_size=5),
}
LAYERS = {"GraphSAGE": 2, "LADIES": 2, "ClusterGCN": 3, "MVS": 1}


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


# ---- training by hand: samples of plain Python, layers as dense matrices -------------------------------------------


def by_levels(model: Any, graph: lab.Graph, levels: list[np.ndarray]) -> Any:
    """GraphSAGE on trees: vertices of a level have as many children each, side by side in the next one."""
    rows = [torch.from_numpy(graph.feat[level]).float() for level in levels]
    for number, layer in enumerate(model.layers):
        rows = [
            layer.own(own) + layer.linear(below.reshape(len(own), -1, own.shape[1]).mean(1))
            for own, below in pairwise(rows)
        ]
        rows = rows if number + 1 == len(model.layers) else [torch.relu(row) for row in rows]
    return rows[0]


def by_layers(model: Any, graph: lab.Graph, dense: np.ndarray, levels: list[np.ndarray]) -> Any:
    """LADIES: from a vertex's neighbours in the next layer, each over the probability to be drawn, rows of sum 1."""
    matrices, linked = [], dense > 0
    for rows, columns in pairwise(levels):
        drawn = rows[rows >= 0]
        squares = (linked[drawn] / np.maximum(linked[drawn].sum(1, keepdims=True), 1)) ** 2
        weight = np.zeros((len(rows), len(columns)))
        for i, v in enumerate(rows):
            for j, u in enumerate(columns):
                if v >= 0 and u >= 0 and linked[v, u]:
                    weight[i, j] = 1 / squares[:, u].sum()
        matrices.append(weight / np.where(weight.any(1), weight.sum(1), 1)[:, None])
    x = torch.from_numpy(graph.feat[levels[-1].clip(0)]).float()
    for number, (linear, matrix_) in enumerate(zip(model.maps, matrices[::-1], strict=True)):
        x = linear(torch.from_numpy(matrix_).float() @ x)
        x = torch.relu(x) if number + 1 < len(matrices) else x
    return x


def by_induced(model: Any, graph: lab.Graph, dense: np.ndarray, vertices: np.ndarray) -> Any:
    """GCN on the edges among the vertices of a sample, the same for every layer."""
    edges = torch.from_numpy(dense[np.ix_(vertices, vertices)]).float()
    x = torch.from_numpy(graph.feat[vertices]).float()
    for number, layer in enumerate(model.layers):
        x = torch.relu(x) if number else x
        x = ((x + edges @ x) / (edges.sum(1, keepdim=True) + 1)) @ layer.linear.weight.t() + layer.bias
    return x


def losses_by_hand(graph: lab.Graph, dense: np.ndarray, method: str, seed: int = 0) -> list[float]:
    """Of :data:`RUN`: roots, samples, layers and losses without the library's samplers, blocks and kernels."""
    spec, size, together = METHODS[method], RUN["batch_size"], RUN["together"]
    app = spec.app()
    if hasattr(app, "batch_size"):
        app.batch_size = size
    app.prepare(graph)
    order = np.random.default_rng(seed).permutation(graph.splits["train"])
    torch.manual_seed(seed)
    model = sampled_training._model(spec, graph.num_features, RUN["hidden"], graph.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    losses = []
    for number in range(RUN["steps"]):
        roots = order[np.arange(number * size, (number + 1) * size) % order.size]
        if method in ("MVS", "ClusterGCN"):  # draw their roots themselves, for mini-batches of a call
            first = number - number % together
            roots = app.initial_samples(graph, together, seed + first)[number - first]
        if method == "GraphSAGE":  # a sample for each root
            drawn = app_oracle.run(graph, app, roots, seed, first_sample=number * size)
        else:
            drawn = app_oracle.run(graph, app, [roots], seed, first_sample=number)
        levels = [roots, *(np.concatenate(step) for step in drawn)]
        if spec.form == "tree":
            for i, (above, level) in enumerate(
                pairwise(levels)
            ):  # who drew nothing stands in for what it drew
                levels[i + 1] = np.where(level >= 0, level, np.repeat(above, level.size // above.size))
            logits = by_levels(model, graph, levels)
        elif spec.form == "layers":
            logits = by_layers(model, graph, dense, levels)
        else:
            every = np.concatenate(levels)
            roots = np.unique(every[every >= 0])
            logits = by_induced(model, graph, dense, roots)
        target = torch.from_numpy(graph.label[roots])
        if target.ndim == 2:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target.float())
        else:
            loss = torch.nn.functional.cross_entropy(logits, target.long(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applications with few draws: plain Python takes its time for each."""
    for method, app in SMALL.items():
        monkeypatch.setitem(METHODS, method, METHODS[method]._replace(app=app, layers=LAYERS[method]))


@pytest.mark.parametrize("method", METHODS_ON_PAIRS)
@pytest.mark.parametrize("sampler", ["walker", "engine"])
def test_the_losses_are_those_of_training_by_hand(graph, dense, small, method, sampler) -> None:
    """On a CPU walker and engine are the same code: comparing them with each other would say nothing."""
    run = train_sampled(graph, method, sampler, device="cpu", lr=LR, warm_up=0, **RUN)
    np.testing.assert_allclose(run.losses, losses_by_hand(graph, dense, method), rtol=1e-4)
    assert max(run.losses) - min(run.losses) > 1e-3, "equal numbers would hide a wrong order"


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS_ON_PAIRS)
@pytest.mark.parametrize("sampler", ["walker", "engine", "published"])
def test_the_losses_on_a_gpu_are_those_of_training_by_hand(graph, dense, small, method, sampler) -> None:
    """There the engine samples by kernels, and the walker's samples are copied from the CPU."""
    run = train_sampled(graph, method, sampler, device="cuda", lr=LR, warm_up=0, **RUN)
    np.testing.assert_allclose(run.losses, losses_by_hand(graph, dense, method), rtol=1e-3)


@pytest.mark.parametrize("method", METHODS_ON_PAIRS)
def test_a_run_says_how_long_what_took(graph, method) -> None:
    runs = {
        sampler: train_sampled(
            graph, method, sampler, steps=4, together=2, device="cpu", batch_size=16, hidden=8
        )
        for sampler in SAMPLERS
    }
    for run in runs.values():
        assert len(run.losses) == run.steps == 4 and np.isfinite(run.losses).all()
        assert run.sample_ms > 0 and run.train_ms > 0
        assert len(run.groups) == 2
        assert np.mean(run.groups, axis=0) == pytest.approx([run.sample_ms, run.train_ms])
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


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("batch_size", 0, ValueError), ("batch_size", 2.5, TypeError), ("warm_up", -1, ValueError),
        ("warm_up", None, TypeError), ("seed", -1, ValueError), ("seed", "1", TypeError), ("lr", -0.1, ValueError),
        ("lr", float("nan"), ValueError), ("lr", "fast", TypeError), ("hidden", 0, ValueError),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(graph, name, value, error) -> None:
    with pytest.raises(error, match=f"{name} must be"):
        train_sampled(graph, "GraphSAGE", steps=1, device="cpu", **{name: value})


def test_the_largest_seed_is_a_seed(graph) -> None:
    run = train_sampled(graph, "MVS", steps=2, together=1, device="cpu", hidden=8, seed=2**64 - 1)
    assert np.isfinite(run.losses).all()


def test_reference_samplers_do_what_they_say(graph):
    """ClusterGCN's clusters come once in an epoch; lists keep so many neighbours for GraphSAGE's trees."""
    cluster = np.arange(graph.num_nodes) % 20
    sampler = reference_samplers.ClusterSampler(graph, cluster, 5)
    for _ in range(2):
        seen = np.concatenate([sampler.sample()[0] for _ in range(4)])
        assert np.array_equal(np.sort(seen), np.arange(graph.num_nodes))
    with pytest.raises(ValueError, match="fanouts must be at most 128"):
        reference_samplers.TreeSampler(graph, (200, 2))
