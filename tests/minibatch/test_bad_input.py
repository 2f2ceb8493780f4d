"""Bad input is a typed error that names the argument, what was got and what is allowed."""

from __future__ import annotations

import numpy as np
import pytest

from gnnsample_lab import Graph, NeighborSampler
from gnnsample_lab.device import runtime


@pytest.fixture
def sampler(graph):
    return NeighborSampler(graph, [3, 2], device="cpu")


BAD_SEEDS = {
    "empty list": ([], ValueError, "seeds must name at least one vertex"),
    "empty array": (np.empty(0, np.int64), ValueError, "seeds must name at least one vertex"),
    "too high": ([0, 120], ValueError, r"seeds must be vertex ids in 0\.\.119 .got 120"),
    "negative": ([3, -1], ValueError, r"seeds must be vertex ids in 0\.\.119 .got -1"),
    "beyond 32 bits": ([2**40], ValueError, f"seeds must be vertex ids .*got {2**40}"),
    "beyond 63 bits": (np.array([2**64 - 1], np.uint64), ValueError, f"seeds must be .*got {2**64 - 1}"),
    "floats": ([1.0, 2.0], TypeError, "seeds must be integers .got dtype float64"),
    "NaN": ([float("nan")], TypeError, "seeds must be integers"),
    "booleans": (np.ones(120, bool), TypeError, "seeds must be integers .got dtype bool"),
    "strings": (["a"], TypeError, "seeds must be integers"),
    "objects": ([None], TypeError, "seeds must be integers"),
    "nothing": (None, TypeError, "seeds must be an array or a list of integers .got None"),
    "a string": ("abc", TypeError, "seeds must be an array or a list of integers .got 'abc'"),
    "a set": ({1, 2}, TypeError, "seeds must be an array or a list of integers"),
    "one number": (5, ValueError, r"seeds must be one-dimensional .got shape \(\)"),
    "a matrix": ([[1, 2], [3, 4]], ValueError, r"seeds must be one-dimensional .got shape \(2, 2\)"),
    "ragged": ([[1, 2], [3]], ValueError, "seeds must be an array"),
}


@pytest.mark.parametrize("case", BAD_SEEDS)
def test_bad_seeds(sampler, case):
    seeds, error, message = BAD_SEEDS[case]
    for call in (sampler.sample, lambda s: sampler.sample_many([[1], s]), lambda s: sampler.epoch(s, 2)):
        with pytest.raises(error, match=message):
            call(seeds)


def test_bad_torch_seeds(sampler):
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="seeds must be integers .got dtype float32"):
        sampler.sample(torch.ones(3))
    with pytest.raises(ValueError, match="seeds must be vertex ids"):
        sampler.sample(torch.tensor([500]))


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["block-bsp", "captured"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_negative_seeds_of_few_bits_on_the_gpu(dtype, strategy):
    """A graph of more vertices than the type has numbers: read without a sign, such ids would be vertices."""
    import cupy

    graph = Graph.from_edges([1, 2], [2, 1], num_nodes=70_000)
    sampler = NeighborSampler(graph, [2], strategy, device="cuda")
    assert sampler.sample(cupy.asarray(np.array([2, 1], dtype))).num_edges == 2
    with pytest.raises(ValueError, match=r"seeds must be vertex ids in 0\.\.69999"):
        sampler.sample(cupy.asarray(np.array([1, -1], dtype)))


def test_no_mini_batches_at_all(sampler):
    with pytest.raises(ValueError, match="seeds must hold at least one mini-batch"):
        sampler.sample_many([])


BAD_BATCH_IDS = [
    (-1, ValueError),
    (2**32, ValueError),
    (1.0, TypeError),
    (True, TypeError),
    ("0", TypeError),
    (None, TypeError),
]


@pytest.mark.parametrize(("batch_id", "error"), BAD_BATCH_IDS, ids=repr)
def test_bad_batch_ids(sampler, batch_id, error):
    with pytest.raises(error, match="^batch_id must be"):
        sampler.sample([1], batch_id)
    with pytest.raises(error, match="^first_batch_id must be"):
        sampler.sample_many([[1]], batch_id)


def test_batch_ids_must_not_run_over(sampler):
    assert sampler.sample_many([[1], [2]], 2**32 - 2)[1].batch_id == 2**32 - 1
    with pytest.raises(ValueError, match=f"first_batch_id must be between 0 and {2**32 - 2} "):
        sampler.sample_many([[1], [2]], 2**32 - 1)


BAD_SAMPLERS = {
    "no fanouts": ({"fanouts": []}, ValueError, "fanouts must name at least one hop"),
    "fanout 0": ({"fanouts": [3, 0]}, ValueError, "fanouts must be .*got 0"),
    "fanout -2": ({"fanouts": [-2]}, ValueError, "fanouts must be .*got -2"),
    "fanout float": ({"fanouts": [2.5]}, TypeError, "fanouts must be integers"),
    "fanouts int": ({"fanouts": 5}, TypeError, "fanouts must be a list"),
    "too many hops": ({"fanouts": [1] * 16}, ValueError, "fanouts may name at most 15 hops"),
    "strategy": ({"strategy": "warp"}, ValueError, "strategy must be one of 'block-bsp'.*got 'warp'"),
    "pick": ({"pick": "first"}, ValueError, "pick must be one of .*got 'first'"),
    "expand": ({"expand": "none"}, ValueError, "expand must be one of .*got 'none'"),
    "completion": ({"completion": "most"}, ValueError, "completion must be one of .*got 'most'"),
    "device": ({"device": "tpu"}, ValueError, "device must be .*got 'tpu'"),
    "seed": ({"seed": -1}, ValueError, "seed must be between"),
    "seed type": ({"seed": 0.5}, TypeError, "seed must be an integer"),
    "fetch_size": ({"fetch_size": 0}, ValueError, "fetch_size must be between 1 and"),
    "fetch_size type": ({"fetch_size": 2.0}, TypeError, "fetch_size must be an integer"),
    "scratch_bytes": ({"scratch_bytes": 0}, ValueError, "scratch_bytes must be between 1 and"),
    "scratch_bytes type": ({"scratch_bytes": "1GB"}, TypeError, "scratch_bytes must be an integer"),
}


@pytest.mark.parametrize("case", BAD_SAMPLERS)
def test_bad_sampler_arguments(graph, case):
    options, error, message = BAD_SAMPLERS[case]
    with pytest.raises(error, match=message):
        NeighborSampler(graph, **{"fanouts": [3], "device": "cpu", **options})


@pytest.mark.parametrize(
    "graph", [None, [(0, 1)], np.zeros((3, 3)), {"indptr": 1}], ids=["None", "list", "array", "dict"]
)
def test_something_else_than_a_graph(graph):
    with pytest.raises(TypeError, match="graph must be a gnnsample_lab.Graph"):
        NeighborSampler(graph, [3], device="cpu")


def test_weights_that_are_not_there(drawn_graphs):
    with pytest.raises(ValueError, match="weighted=True needs a graph with edge_weight"):
        NeighborSampler(drawn_graphs["star"], [3], weighted=True, device="cpu")


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1.0])
def test_weights_that_are_none(weight):
    with pytest.raises(ValueError, match=r"edge_weight must be finite and not negative .*position 1"):
        Graph.from_edges([0, 1], [1, 0], 2, edge_weight=[1.0, weight])


def test_a_graph_that_is_none():
    with pytest.raises(ValueError, match="indptr"):
        Graph(np.array([0, 2, 1, 2]), np.array([0, 1]))  # decreasing
    with pytest.raises(ValueError, match="indices"):
        Graph(np.array([0, 1, 2]), np.array([0, 7]))  # out of range
    with pytest.raises(ValueError, match="src"):
        Graph.from_edges([0, 5], [1, 1], 2)


def test_a_vertex_with_more_edges_than_the_counter_holds(graph, monkeypatch):
    import gnnsample_lab.minibatch.sampler as module

    monkeypatch.setattr(module, "MAX_DEGREE", graph.max_in_degree - 1)
    with pytest.raises(
        ValueError, match=f"in-degree {graph.max_in_degree}; at most {graph.max_in_degree - 1}"
    ):
        NeighborSampler(graph, [3], device="cpu")
    monkeypatch.setattr(module, "MAX_DEGREE", graph.max_in_degree)
    NeighborSampler(graph, [3], device="cpu")


def test_cuda_without_a_gpu(graph, monkeypatch):
    monkeypatch.setattr(runtime, "cuda_problem", lambda: "CuPy is not installed")
    with pytest.raises(RuntimeError, match="device='cuda' was asked for, but CuPy is not installed"):
        NeighborSampler(graph, [3], device="cuda")


BAD_EPOCHS = {
    "batch_size": ({"batch_size": 0}, ValueError, "batch_size must be between 1"),
    "batch_size type": ({"batch_size": 2.0}, TypeError, "batch_size must be an integer"),
    "epoch": ({"epoch": -1}, ValueError, "epoch must be between 0"),
    "epoch type": ({"epoch": "1"}, TypeError, "epoch must be an integer"),
    "epoch too high": (
        {"epoch": 2**31, "batch_size": 10},
        ValueError,
        "epoch must be between 0 and .*got 2147483648",
    ),
    "prefetch": ({"prefetch": 0}, ValueError, "prefetch must be between 1"),
    "prefetch type": ({"prefetch": 1.5}, TypeError, "prefetch must be an integer"),
}


@pytest.mark.parametrize("case", BAD_EPOCHS)
def test_bad_epoch_arguments_are_named_at_once(sampler, case):
    options, error, message = BAD_EPOCHS[case]
    with pytest.raises(error, match=message):
        sampler.epoch(np.arange(100), **{"batch_size": 20, **options})


def test_a_failed_call_leaves_the_sampler_usable(sampler):
    before = sampler.sample([1, 2], 4).canonical()
    for seeds, error, _ in BAD_SEEDS.values():
        with pytest.raises(error):
            sampler.sample(seeds)
    assert sampler.sample([1, 2], 4).canonical() == before


def test_to_pyg_names_the_expand_that_it_needs(sampler):
    with pytest.raises(ValueError, match="expand='new'.*got expand='frontier'"):
        sampler.sample([1]).to_pyg()


def test_masked_arrays_are_refused():
    """NumPy's comparisons leave out what is masked; kernels would read it."""
    graph = Graph.from_edges([0, 1, 2], [1, 2, 0], 3)
    sampler = NeighborSampler(graph, [2], device="cpu")
    with pytest.raises(TypeError, match="seeds must be an array without a mask"):
        sampler.sample(np.ma.array([1, 200], mask=[0, 1]))
    with pytest.raises(TypeError, match="indices must be an array without a mask"):
        Graph([0, 1, 2, 3], np.ma.array([0, 77, 2], mask=[0, 1, 0]))
    weights = np.ma.array([1.0, np.nan, 1.0], mask=[0, 1, 0])
    with pytest.raises(TypeError, match="edge_weight must be an array without a mask"):
        Graph.from_edges([0, 1, 2], [1, 1, 1], 3, edge_weight=weights)
