"""Our sampler and feature cache inside PyTorch Geometric's loaders."""

from __future__ import annotations

import copy
import inspect
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric.data import Batch, Data  # noqa: E402
from torch_geometric.loader import NeighborLoader as PygLoader  # noqa: E402
from torch_geometric.loader import NodeLoader  # noqa: E402
from torch_geometric.nn import GraphSAGE  # noqa: E402
from torch_geometric.sampler import NodeSamplerInput  # noqa: E402
from torch_geometric.sampler.base import SubgraphType  # noqa: E402

from gnnsample_lab import pyg  # noqa: E402
from gnnsample_lab.pyg import CachedFeatures, GPUSampler, NeighborLoader  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def data() -> Any:
    """An unsorted edge list with features, labels, an edge attribute and a mask."""
    rng = np.random.default_rng(5)
    n, m = 400, 3000
    label = rng.integers(0, 3, n)
    mask = np.zeros(n, dtype=bool)
    mask[rng.permutation(n)[:150]] = True
    return Data(
        edge_index=torch.from_numpy(np.stack([rng.integers(0, n, m), rng.integers(0, n - 20, m)])),
        edge_attr=torch.from_numpy(rng.standard_normal((m, 2)).astype(np.float32)),
        edge_weight=torch.from_numpy((rng.random(m) < 0.5).astype(np.float32)),
        x=torch.from_numpy((rng.standard_normal((n, 6)) + 2 * label[:, None]).astype(np.float32)),
        y=torch.from_numpy(label), train_mask=torch.from_numpy(mask),
    )  # fmt: skip


def check_batch(batch: Any, data: Any, num_neighbors: list[int]) -> None:
    """What holds of every mini-batch of PyG's NeighborLoader."""
    n_id, e_id, edge_index = batch.n_id.cpu(), batch.e_id.cpu(), batch.edge_index.cpu()
    assert n_id.unique().numel() == n_id.numel() == batch.num_nodes
    assert torch.equal(data.edge_index[:, e_id], n_id[edge_index])
    assert e_id.unique().numel() == e_id.numel()
    assert torch.equal(batch.x.cpu(), data.x[n_id])
    assert torch.equal(batch.y.cpu(), data.y[n_id])
    assert sum(batch.num_sampled_nodes) == n_id.numel()
    assert sum(batch.num_sampled_edges) == e_id.numel()
    assert batch.num_sampled_nodes[0] == batch.batch_size
    degrees = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    reached, taken = 0, 0
    for hop, fanout in enumerate(num_neighbors):
        rows = range(reached, reached + batch.num_sampled_nodes[hop])
        picks = edge_index[1, taken : taken + batch.num_sampled_edges[hop]]
        counts = torch.bincount(picks, minlength=n_id.numel())[rows.start : rows.stop]
        whole = degrees[n_id[rows.start : rows.stop]]
        assert torch.equal(counts, whole if fanout < 0 else whole.clamp(max=fanout))
        reached, taken = rows.stop, taken + batch.num_sampled_edges[hop]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_neighbors", [[4, 3], [-1, 2]])
def test_node_loader_yields_neighbour_samples(data, num_neighbors, device):
    sampler = GPUSampler(data, num_neighbors, device=device)
    loader = NodeLoader(data, sampler, data.train_mask, batch_size=64, shuffle=True)
    seeds = []
    for batch in loader:
        check_batch(batch, data, num_neighbors)
        assert torch.equal(batch.edge_attr.cpu(), data.edge_attr[batch.e_id.cpu()])
        seeds += batch.n_id[: batch.batch_size].tolist()
    assert sorted(seeds) == data.train_mask.nonzero().flatten().tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cache", [{}, {"cache_ratio": 0.3}, {"cache_ratio": 0.0}, {"capacity_bytes": 4000}])
def test_the_exchanged_loader_yields_the_same_fields(data, cache, device):
    loader = NeighborLoader(
        data, num_neighbors=[4, 3], input_nodes=data.train_mask, batch_size=64, device=device, **cache
    )
    before = set(data.keys())
    for batch in loader:
        check_batch(batch, data, [4, 3])
        assert {batch.x.device.type, batch.y.device.type, batch.edge_index.device.type} == {device}
        assert torch.equal(batch.edge_attr.cpu(), data.edge_attr[batch.e_id.cpu()])
    if cache:
        stats = loader.features.stats
        assert stats.rows == batch.num_nodes
        assert (stats.hits > 0) == (cache != {"cache_ratio": 0.0})
    assert set(data.keys()) == before and data.edge_index.shape == (2, 3000), "the caller's data was changed"


def test_the_loader_keeps_no_edges_of_its_own_where_none_are_asked_for(data):
    bare = Data(edge_index=data.edge_index, x=data.x, y=data.y)
    loader = NeighborLoader(bare, [4, 3], torch.arange(50), batch_size=25, device="cpu")
    assert loader._slim.edge_index.shape == (2, 0)
    for batch in loader:
        check_batch(batch, data, [4, 3])


PYGS_WAY = {"transform_sampler_output": lambda output: output}
"""Mini-batches with these options are made one by one, by ``filter_fn``."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, {"cache_ratio": 0.5}, PYGS_WAY], ids=["ahead", "cached", "pyg"])
def test_the_loaders_data_are_the_callers(data, options, device):
    """A full batch over ``loader.data`` has all edges, in a transform too, and ids under their own names."""
    given = Data(
        edge_index=data.edge_index, x=data.x, y=data.y, n_id=torch.arange(400), e_id=torch.arange(3000)
    )
    before, seen = given.to_dict(), []

    def look(batch: Any) -> Any:
        seen.append(loader.data)
        return batch

    for mine in (given, Data(edge_index=data.edge_index, x=data.x)):
        loader = NeighborLoader(mine, [4, 3], batch_size=200, device=device, transform=look, **options)
        assert loader.data is mine and loader.transform is look
        assert len(list(loader)) == 2 and all(found is mine for found in seen)
        seen.clear()
    now = given.to_dict()
    assert now.keys() == before.keys() and all(now[name] is before[name] for name in now)


def test_every_call_draws_afresh_and_the_seed_repeats_it(data):
    index = NodeSamplerInput(input_id=None, node=torch.arange(40))
    one, two = GPUSampler(data, [2, 2], device="cpu", seed=4), GPUSampler(data, [2, 2], device="cpu", seed=4)
    first, second = one.sample_from_nodes(index), one.sample_from_nodes(index)
    assert not torch.equal(first.edge[:60], second.edge[:60])
    for a in (first, second):
        b = two.sample_from_nodes(index)
        assert torch.equal(a.node, b.node) and torch.equal(a.edge, b.edge)
    other = GPUSampler(data, [2, 2], device="cpu", seed=5).sample_from_nodes(index)
    assert not torch.equal(first.edge[:60], other.edge[:60])


def test_weights_decide_what_is_drawn(data):
    loader = NeighborLoader(
        data, [3, 3], data.train_mask, batch_size=150, device="cpu", weight_attr="edge_weight"
    )
    for batch in loader:
        assert batch.edge_index.shape[1] > 50
        assert (data.edge_weight[batch.e_id] == 1).all()


def test_bad_weights_and_no_batch_size_are_named_as_the_caller_has_them(data):
    bad = Data(num_nodes=3, edge_index=torch.tensor([[1], [0]]), strength=torch.tensor([-1.0]))
    with pytest.raises(ValueError, match="^weight_attr 'strength' must be finite and not negative"):
        NeighborLoader(bad, [2], weight_attr="strength", batch_size=2, device="cpu")
    with pytest.raises(ValueError, match="batch_size must be an int where there is no batch_sampler"):
        NeighborLoader(data, [2], batch_size=None, device="cpu")


def test_a_graph_samples_as_its_pyg_data_does(data):
    g = lab.Graph.from_pyg(data)
    index = NodeSamplerInput(input_id=None, node=torch.arange(40))
    from_graph = GPUSampler(g, [3, 2], device="cpu").sample_from_nodes(index)
    from_data = GPUSampler(data, [3, 2], device="cpu").sample_from_nodes(index)
    assert torch.equal(from_graph.edge, from_data.edge)


def test_the_transform_fills_x(data):
    features = CachedFeatures(lab.FeatureCache(data.x, np.arange(400.0), ratio=0.5, device="cpu"))
    ids = torch.tensor([3, 399, 3, 0])
    found = features(Data(n_id=ids))
    assert torch.equal(found.x, data.x[ids])
    assert (features.stats.hits, features.stats.misses) == (1, 3)


def test_misuse_is_named(data):
    sampler = GPUSampler(data, [2], device="cpu")
    with pytest.raises(ValueError, match="by time"):
        sampler.sample_from_nodes(
            NodeSamplerInput(input_id=None, node=torch.tensor([1]), time=torch.tensor([0]))
        )
    with pytest.raises(ValueError, match=r"num_workers must be 0.*got 2"):
        NeighborLoader(data, [2], device="cpu", num_workers=2)
    with pytest.raises(ValueError, match=r"weight_attr must name an edge attribute \(got 'w'\)"):
        GPUSampler(data, [2], device="cpu", weight_attr="w")
    with pytest.raises(TypeError, match=r"cache must be a FeatureCache \(got 'cache'\)"):
        CachedFeatures("cache")
    with pytest.raises(ValueError, match="n_id"):
        CachedFeatures(lab.FeatureCache(data.x, ratio=0.0, device="cpu"))(Data(x=data.x))
    with pytest.raises(NotImplementedError):
        sampler.sample_from_edges(None)


def test_worker_processes_are_refused(data):
    loader = NodeLoader(
        data, GPUSampler(data, [2], device="cpu"), torch.arange(8), batch_size=4, num_workers=1
    )
    with pytest.raises(RuntimeError, match="num_workers=0"):
        next(iter(loader))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seeds", [[7, 3, 7, 9, 3, 7], [5, 5], [1, 2, 2], [8, 4, 6]], ids=str)
def test_a_repeated_seed_has_a_row_and_edges_of_its_own(data, seeds, device):
    """As PyG's loader yields it; the rows of one vertex have the same neighbours here."""
    sampler = GPUSampler(data, [3, 2], device=device, seed=9)
    found = sampler.sample_from_nodes(
        NodeSamplerInput(input_id=torch.arange(len(seeds)), node=torch.tensor(seeds))
    )
    plain = GPUSampler(data, [3, 2], device=device, seed=9)
    distinct = list(dict.fromkeys(seeds))
    expected = plain.sample_from_nodes(NodeSamplerInput(input_id=None, node=torch.tensor(distinct)))

    # Within a hop a GPU lists new vertices and edges in any order, so edges are compared as sets, by vertex ids.
    def edges(output, hop):
        begin = sum(output.num_sampled_edges[:hop])
        return [
            part[begin : begin + output.num_sampled_edges[hop]].tolist()
            for part in (output.row, output.col, output.edge)
        ]

    reached, nodes = expected.node.tolist(), found.node.tolist()
    assert nodes[: len(seeds)] == seeds
    assert sorted(nodes[len(seeds) :]) == sorted(reached[len(distinct) :])
    source, target, position = edges(expected, 0)
    first = [
        (reached[row], own, e)
        for own, v in enumerate(seeds)
        for row, col, e in zip(source, target, position, strict=True)
        if reached[col] == v
    ]
    source, target, position = edges(found, 0)
    assert sorted((nodes[r], c, e) for r, c, e in zip(source, target, position, strict=True)) == sorted(first)
    source, target, position = edges(expected, 1)
    later = sorted((reached[r], reached[c], e) for r, c, e in zip(source, target, position, strict=True))
    source, target, position = edges(found, 1)
    assert sorted((nodes[r], nodes[c], e) for r, c, e in zip(source, target, position, strict=True)) == later
    # A repeated seed is reached, and expanded further, as the first of its rows.
    assert all(nodes.index(nodes[i]) == i for i in (*found.row.tolist(), *target))
    assert found.num_sampled_nodes == [len(seeds), *expected.num_sampled_nodes[1:]]
    assert found.num_sampled_edges == [len(first), len(later)]
    assert torch.equal(
        data.edge_index[:, found.edge.cpu()], found.node.cpu()[torch.stack([found.row, found.col]).cpu()]
    )


@pytest.mark.parametrize("device", DEVICES)
def test_the_loader_takes_repeated_input_nodes(data, device):
    nodes = torch.tensor([3, 3, 50, 7, 3, 50])
    batch = next(iter(NeighborLoader(data, [4, 3], nodes, batch_size=6, device=device)))
    assert batch.batch_size == 6
    assert batch.input_id.tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.equal(batch.n_id[:6].cpu(), nodes)
    assert torch.equal(batch.x.cpu(), data.x[batch.n_id.cpu()]) and torch.equal(
        batch.y.cpu(), data.y[batch.n_id.cpu()]
    )
    out = GraphSAGE(6, 16, num_layers=2, out_channels=3).to(device).eval()(batch.x, batch.edge_index)
    torch.testing.assert_close(out[0], out[1])
    assert not torch.equal(out[0], out[2])


def test_the_loader_has_the_parameters_of_pygs_in_their_order():
    theirs, ours = (inspect.signature(loader).parameters for loader in (PygLoader, NeighborLoader))
    shared = list(theirs)[:-1]  # but **kwargs
    assert list(ours)[: len(shared)] == shared
    assert [ours[n].default for n in shared] == [theirs[n].default for n in shared]
    assert all(ours[n].kind is theirs[n].kind for n in shared)
    assert all(p.kind is p.KEYWORD_ONLY for n, p in ours.items() if n not in theirs)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("input_time", torch.zeros(10)), ("subgraph_type", "induced"), ("subgraph_type", SubgraphType.bidirectional),
        ("disjoint", True), ("temporal_strategy", "last"), ("time_attr", "time"), ("directed", False),
        ("num_workers", 1), ("neighbor_sampler", "theirs"), ("nonsense", 1),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(data, argument, value):
    with pytest.raises((TypeError, ValueError), match=argument):
        NeighborLoader(data, [2], torch.arange(10), device="cpu", **{argument: value})


def test_pygs_defaults_given_by_hand_change_nothing(data):
    options: dict[str, Any] = {"input_nodes": torch.arange(30), "batch_size": 30, "device": "cpu", "seed": 2}
    plain = next(iter(NeighborLoader(data, [3, 2], **options)))
    given = NeighborLoader(
        data, [3, 2], input_time=None, replace=False, subgraph_type=SubgraphType.directional, disjoint=False,
        temporal_strategy="uniform", time_attr=None, is_sorted=True, filter_per_worker=True, directed=True, **options,
    )  # fmt: skip
    batch = next(iter(given))
    assert torch.equal(batch.n_id, plain.n_id) and torch.equal(batch.edge_index, plain.edge_index)
    assert torch.equal(batch.x, plain.x)


def test_transforms_and_a_sampler_of_ones_own_are_used(data):
    seen = []

    def look(out: Any) -> Any:
        seen.append(out.node.numel())
        return out

    def double(batch: Any) -> Any:
        batch.x = 2 * batch.x
        return batch

    sampler = GPUSampler(data, [2], device="cpu", seed=1)
    loader = NeighborLoader(
        data, [9, 9, 9], torch.arange(10), transform=double, transform_sampler_output=look,
        neighbor_sampler=sampler, batch_size=10, device="cpu",
    )  # fmt: skip
    batch = next(iter(loader))
    assert seen == [batch.num_nodes] and len(batch.num_sampled_edges) == 1
    assert torch.equal(batch.x, 2 * data.x[batch.n_id])


def test_a_mask_of_bytes_is_refused(data):
    """PyG makes ids 0 and 1 of it."""
    with pytest.raises(TypeError, match="input_nodes as a mask must hold booleans .got dtype uint8"):
        NeighborLoader(data, [2], data.train_mask.byte(), device="cpu")
    batch = next(iter(NeighborLoader(data, [2], torch.tensor([1, 0], dtype=torch.uint8), device="cpu")))
    assert batch.n_id[: batch.batch_size].tolist() == [1]


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        (torch.ones(1500, 2), ValueError, r"weight_attr 'w' must have shape \(3000,\) .got \(1500, 2\)"),
        (torch.ones(3000, dtype=torch.bool), TypeError, "weight_attr 'w' must hold numbers .got dtype bool"),
        (["a"] * 3000, TypeError, "weight_attr 'w' must hold numbers"),
    ],
)
def test_weights_that_are_none_are_refused_by_name(data, weight, error, message):
    mine = data.clone()
    mine.w = weight
    with pytest.raises(error, match=message):
        NeighborLoader(mine, [2], weight_attr="w", device="cpu")


def test_a_sampler_of_another_graph_is_refused(data):
    """Its edge ids would be columns of another edge_index."""
    fewer = Data(edge_index=data.edge_index[:, :-1], num_nodes=data.num_nodes)
    graph = lab.Graph.from_pyg(fewer)
    NeighborLoader(data, [2], neighbor_sampler=GPUSampler(graph, [2], device="cpu"))
    for of, on in ((data, fewer), (replace(graph, edge_ids=None), data)):
        with pytest.raises(ValueError, match="neighbor_sampler must sample from data, .* edges .got one"):
            NeighborLoader(on, [2], neighbor_sampler=GPUSampler(of, [2], device="cpu"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("known", [True, False])
def test_a_sampler_of_the_same_edges_in_another_order_is_refused(data, monkeypatch, known, device):
    """Its mini-batches would carry attributes of other edges; wherever the edges lie, and whichever differs."""
    monkeypatch.setattr(pyg, "_COMPARED_EDGES", 700)
    graph = lab.Graph.from_pyg(data)
    own = data if known else replace(graph, edge_ids=None).to_pyg()
    sampler = GPUSampler(graph if known else replace(graph, edge_ids=None), [3], device=device)
    message = (
        r"neighbor_sampler must sample from data: column \d+ of data.edge_index must be its edge \[.*got \["
    )
    for edge_index in (own.edge_index, own.edge_index.int(), own.edge_index.numpy()):
        mine = Data(edge_index=edge_index, num_nodes=data.num_nodes)
        NeighborLoader(mine, [3], neighbor_sampler=sampler)
        for column in (0, 1500, 2999):
            mine.edge_index = copy.deepcopy(edge_index)
            mine.edge_index[0, column] = (mine.edge_index[0, column] + 1) % data.num_nodes
            with pytest.raises(ValueError, match=message):
                NeighborLoader(mine, [3], neighbor_sampler=sampler)
    other = graph.to_pyg() if known else data
    with pytest.raises(ValueError, match=message):
        NeighborLoader(other, [3], neighbor_sampler=sampler)


def test_edges_are_compared_once_for_a_sampler(data, monkeypatch):
    """Loaders for training and for validation share one; edges that were changed since are compared again."""
    mine = data.clone()
    sampler = GPUSampler(lab.Graph.from_pyg(mine), [3], device="cpu")
    runs, compare = [], pyg._check_run
    monkeypatch.setattr(pyg, "_check_run", lambda *args: (runs.append(args), compare(*args)))
    for given in (mine, mine, copy.copy(mine)):
        NeighborLoader(given, [3], neighbor_sampler=sampler)
    assert len(runs) == 1
    mine.edge_index[0, 5] += 1 if mine.edge_index[0, 5] == 0 else -1
    with pytest.raises(ValueError, match="column 5 of data.edge_index must be its edge"):
        NeighborLoader(mine, [3], neighbor_sampler=sampler)


@pytest.mark.parametrize("seeds", [torch.arange(10), list(range(10)), None, "mask"], ids=str)
def test_ids_of_the_seeds_are_one_for_each(data, seeds):
    seeds = data.train_mask if isinstance(seeds, str) else seeds
    count = data.num_nodes if seeds is None else int(seeds.sum()) if seeds is data.train_mask else 10
    for ids in (torch.arange(count - 1), torch.arange(count + 1)):
        message = rf"input_id must have an integer for each of {count} input_nodes \(got {len(ids)}\)"
        with pytest.raises(ValueError, match=message):
            NeighborLoader(data, [2], seeds, input_id=ids, device="cpu")
    for ids, got in ((torch.rand(count), "float32"), (torch.ones(count, dtype=torch.bool), "bool")):
        with pytest.raises(TypeError, match=rf"input_id must be integers \(got dtype {got}\)"):
            NeighborLoader(data, [2], seeds, input_id=ids, device="cpu")
    with pytest.raises(ValueError, match=r"input_id must be one-dimensional"):
        NeighborLoader(data, [2], seeds, input_id=torch.ones(count, 1, dtype=torch.int64), device="cpu")
    mine = np.arange(count) + 1000
    for ids in (torch.from_numpy(mine), mine, mine.tolist(), torch.from_numpy(mine).int()):
        loader = NeighborLoader(data, [2], seeds, input_id=ids, batch_size=4, device="cpu")
        first = 0 if seeds is None else 1000  # without seeds PyG counts vertices itself
        assert next(iter(loader)).input_id.tolist() == [*range(first, first + 4)]


def test_a_list_of_booleans_is_a_mask(data):
    """PyG makes ids 0 and 1 of it."""
    mask = data.train_mask.tolist()
    batch = next(iter(NeighborLoader(data, [2], mask, batch_size=400, device="cpu")))
    assert torch.equal(batch.n_id[: batch.batch_size], data.train_mask.nonzero().flatten())
    assert torch.equal(batch.input_id, batch.n_id[: batch.batch_size])


@pytest.mark.parametrize("device", DEVICES)
def test_a_pyg_model_learns_from_it(data, device):
    torch.manual_seed(0)
    loader = NeighborLoader(data, [4, 4], data.train_mask, batch_size=50, shuffle=True, device=device)
    model = GraphSAGE(6, 16, num_layers=2, out_channels=3).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(12):
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.mean(losses[-3:]) < 0.5 * losses[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "options", [{}, {"cache_ratio": 0.3}, {"cache_ratio": 0.3, "filter_per_worker": True}]
)
def test_models_of_pyg_infer_over_it(data, options, device):
    """Their ``inference`` takes PyG's class of loader alone, and reads ``loader.data.x``."""
    torch.manual_seed(0)
    model = GraphSAGE(6, 16, num_layers=2, out_channels=3).to(device).eval()
    loader = NeighborLoader(data, [-1], batch_size=64, device=device, **options)
    with torch.no_grad():
        found = model.inference(loader, device=device, embedding_device=device)
        expected = model(data.x.to(device), data.edge_index.to(device))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for batch in loader:  # its features come from the cache all the same
        assert torch.equal(batch.x.cpu(), data.x[batch.n_id.cpu()])
    assert not options or loader.features.stats.rows == batch.num_nodes


def test_the_example_script_trains(capsys):
    script = Path(__file__).resolve().parents[1] / "notebooks" / "scripts" / "pyg_example.py"
    accuracy = runpy.run_path(str(script))["main"](epochs=2, scale=0.03)
    assert accuracy > 0.2  # guessing the largest of 40 classes gives less than a tenth
    assert "epoch 1" in capsys.readouterr().out


def by_ids(batch: Any) -> Any:
    """The mini-batch with vertices behind the seeds, and edges of each hop, in order of their ids."""
    batch, seeds = batch.clone(), batch.batch_size
    batch.edge_index = batch.n_id[batch.edge_index]
    nodes = torch.cat([torch.arange(seeds, device=batch.n_id.device), seeds + batch.n_id[seeds:].argsort()])
    # Rows of a seed that is given twice have the same edges.
    edges = torch.argsort(batch.e_id, stable=True)
    n, m = batch.n_id.numel(), batch.e_id.numel()
    for name, value in batch.to_dict().items():
        if name == "edge_index":
            batch.edge_index = value[:, edges]
        elif isinstance(value, torch.Tensor) and value.shape[:1] == (n,) and name != "input_id":
            batch[name] = value[nodes]
        elif isinstance(value, torch.Tensor) and value.shape[:1] == (m,):
            batch[name] = value[edges]
    return batch


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("how", ["shuffled", "in order", "generator", "drop last"])
def test_mini_batches_sampled_ahead_are_those_of_pygs_way(data, device, repeated, how):
    """Attribute by attribute, in the same order, over two epochs, with the same draws of torch's generator."""
    nodes = torch.arange(150).repeat(2) if repeated else data.train_mask
    options: dict[str, Any] = {
        "input_nodes": nodes,
        "batch_size": 32,
        "device": device,
        "shuffle": how != "in order",
    }
    if how == "drop last":
        options["drop_last"] = True
    given = data.clone()
    given.name, given.sizes = "kept as it is", torch.arange(3)

    def batches(loader: Any, way: Any) -> list[Any]:
        torch.manual_seed(3)
        if how == "generator":
            loader.generator.manual_seed(5)
        return [batch for _ in range(2) for batch in way(loader)] + [torch.rand(1)]

    found, expected = (
        batches(
            NeighborLoader(
                given, [4, 3], **options, **({"generator": torch.Generator()} if how == "generator" else {})
            ),
            way,
        )
        for way in (iter, lambda loader: NodeLoader.__iter__(loader))
    )
    assert len(found) == len(expected) > 8
    assert torch.equal(found.pop(), expected.pop()), "the generator has drawn as often"
    for ours, pygs in zip(found, expected, strict=True):
        if device == "cuda":  # where the new vertices of a hop come in any order
            ours, pygs = by_ids(ours), by_ids(pygs)
        ours, pygs = ours.to_dict(), pygs.to_dict()
        assert {k for k, v in ours.items() if v is not None} == {k for k, v in pygs.items() if v is not None}
        for name, value in ours.items():
            if isinstance(value, torch.Tensor):
                assert value.device == pygs[name].device and value.dtype == pygs[name].dtype, name
                assert torch.equal(value, pygs[name]), name
            else:
                assert value == pygs[name], name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("ahead", [True, False])
def test_data_with_ids_of_its_own_keeps_them_and_its_rows(data, device, repeated, ahead):
    """A sub-graph has ``n_id`` and ``e_id``: PyG hands out their rows, and neither says where rows of x lie."""
    given = data.clone()
    given.n_id = torch.arange(1000, 1000 + data.num_nodes)
    given.e_id = torch.arange(data.num_edges) + 5000
    given.batch = torch.zeros(data.num_nodes, dtype=torch.int64)
    loader = NeighborLoader(
        given, [4, 3], input_nodes=torch.arange(90).repeat(1 + repeated), batch_size=32, shuffle=True,
        device=device, cache_ratio=0.3, transform_sampler_output=None if ahead else lambda output: output,
    )  # fmt: skip
    for batch in loader:
        nodes, edges = batch.n_id.cpu() - 1000, batch.e_id.cpu() - 5000
        assert torch.equal(batch.x.cpu(), data.x[nodes])
        assert torch.equal(batch.y.cpu(), data.y[nodes])
        assert torch.equal(data.edge_index[:, edges], nodes[batch.edge_index.cpu()])
        assert batch.batch is None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, {"cache_ratio": 0.5}, PYGS_WAY], ids=["ahead", "cached", "pyg"])
def test_ids_of_the_data_come_and_go_as_in_pyg(data, options, device):
    """Set and deleted after the loader was made, on the data or on ``loader.data``."""
    mine = Data(edge_index=data.edge_index, x=data.x)
    loader = NeighborLoader(mine, [4, 3], batch_size=200, device=device, **options)
    for holder in (mine, loader.data):
        for nodes, edges in ((1000, 5000), (1000, 0), (0, 5000), (0, 0)):
            for name, first, count in (("n_id", nodes, 400), ("e_id", edges, 3000)):
                if first:
                    holder[name] = torch.arange(first, first + count)
                elif name in holder:
                    del holder[name]
            for batch in (*loader, loader(torch.arange(7))):
                n_id, e_id = batch.n_id.cpu() - nodes, batch.e_id.cpu() - edges
                assert torch.equal(batch.x.cpu(), data.x[n_id])
                assert torch.equal(data.edge_index[:, e_id], n_id[batch.edge_index.cpu()])


def test_an_epoch_under_way_keeps_the_ids_that_it_began_with(data):
    mine = Data(edge_index=data.edge_index, x=data.x)
    loader = NeighborLoader(mine, [3], batch_size=100, device="cpu")
    plain = iter(loader)
    mine.n_id = torch.arange(1000, 1400)
    assert next(iter(loader)).n_id[:2].tolist() == [1000, 1001]
    assert next(plain).n_id[:2].tolist() == [0, 1]


@pytest.mark.parametrize("device", DEVICES)
def test_the_data_of_a_loader_are_emptied_as_pygs_example_does(data, device):
    """``examples/reddit.py``: of its mini-batches only ids and edges are read."""
    loader = NeighborLoader(copy.copy(data), [-1], batch_size=100, device=device, cache_ratio=0.5)
    del loader.data.x, loader.data.y
    loader.data.num_nodes = data.num_nodes
    loader.data.n_id = torch.arange(data.num_nodes)
    for batch in loader:
        assert "x" not in batch and "y" not in batch
        edges = batch.n_id[batch.edge_index].cpu()
        assert torch.equal(data.edge_index[:, batch.e_id.cpu()], edges)


def test_a_column_without_rows_is_kept_as_it_is(data):
    given = Data(edge_index=data.edge_index, x=data.x, nothing=torch.empty(0, 3))
    assert all(
        batch.nothing.shape == (0, 3) for batch in NeighborLoader(given, [2], batch_size=200, device="cpu")
    )


@pytest.mark.parametrize("cache", [{}, {"cache_ratio": 0.5}], ids=str)
@pytest.mark.parametrize("name", ["x", "y"])
def test_rows_that_are_not_one_per_vertex_are_refused(data, name, cache):
    """PyG takes them for something of the graph as a whole, and would hand out all of them with each mini-batch."""
    message = rf"data\.{name} must have one row per vertex, 400 \(got 403\)"
    given = data.clone()
    given.num_nodes, given[name] = data.num_nodes, torch.randn(403, 6)
    with pytest.raises(ValueError, match=message):
        NeighborLoader(given, [2], device="cpu", **cache)
    mine = data.clone()
    mine.num_nodes = data.num_nodes
    loader = NeighborLoader(mine, [2], batch_size=200, device="cpu", **cache)
    mine[name] = given[name]
    with pytest.raises(ValueError, match=message):
        next(iter(loader))


def test_what_is_of_edges_or_of_the_whole_graph_is_handed_on_as_pyg_does(data):
    """Labels too: of edges, or of the graph."""
    for y, of_edges in (
        (torch.arange(data.num_edges), True),
        (torch.ones(1, 5), False),
        (torch.tensor(3.0), False),
        ("a name", False),
    ):
        given = Data(
            edge_index=data.edge_index, x=data.x, y=y, more=torch.arange(403), num_nodes=data.num_nodes
        )
        for batch in NeighborLoader(given, [2], batch_size=200, device="cpu"):
            assert torch.equal(batch.more, given.more)
            if of_edges:
                assert torch.equal(batch.y, y[batch.e_id])
            else:
                assert torch.equal(batch.y, y) if torch.is_tensor(y) else batch.y == y


@pytest.mark.parametrize(
    ("name", "value", "got"),
    [
        ("y", [1] * 400, "a list of 400"),
        ("x", [[1.0, 2.0]] * 400, "a list of 400"),
        ("names", ("a",) * 400, "a tuple of 400"),
        ("kinds", ["a"] * 3000, "a list of 3000"),
        ("words", np.array(["a"] * 400), "dtype <U1"),
        ("things", np.array([None] * 3000), "dtype object"),
        ("turned", np.zeros(400, ">f4"), "dtype >f4"),
    ],
)
def test_columns_that_mini_batches_cannot_take_rows_of_are_named(data, name, value, got):
    mine = data.clone()
    mine.num_nodes = data.num_nodes
    message = rf"data\.{name} must be a tensor or an array of numbers: .*\(got {got}\)"
    loader = NeighborLoader(mine, [2], batch_size=200, device="cpu")
    next(iter(loader))
    mine[name] = value
    with pytest.raises(TypeError, match=message):
        NeighborLoader(mine, [2], device="cpu")
    with pytest.raises(TypeError, match=message):
        next(iter(loader))


def test_what_has_no_rows_is_handed_on_whatever_it_is(data):
    others = {
        "title": "a" * 400, "count": 3, "few": [1, 2], "none": [], "classes": ("a", "b"),
        "settings": {"a": 1}, "words": np.array(["a", "b"]),
    }  # fmt: skip
    given = data.clone()
    given.num_nodes, given.numbers, given.more = data.num_nodes, np.arange(400), np.arange(3000.0)
    for name, value in others.items():
        given[name] = value
    for batch in NeighborLoader(given, [2], batch_size=200, device="cpu"):
        assert all(batch[name] is value or batch[name] == value for name, value in others.items())
        assert torch.equal(batch.numbers, batch.n_id) and torch.equal(batch.more, batch.e_id.double())


def test_an_epoch_that_is_left_early_has_used_its_own_draws_only(data):
    loader = NeighborLoader(data, [4, 3], input_nodes=data.train_mask, batch_size=10, device="cpu")
    for i, _ in enumerate(loader):
        if i == 2:
            break
    assert loader.node_sampler.calls == 3


def draws(loader, steps=None):
    return [batch.e_id.tolist() for _, batch in zip(range(steps or len(loader)), loader)]


def test_loaders_side_by_side_never_draw_alike(data):
    """One within the other, as a validation in the middle of an epoch, with one sampler between them."""
    sampler = GPUSampler(data, [2], device="cpu")
    one, other = (
        NeighborLoader(data, [2], [7] * 6, neighbor_sampler=sampler, batch_size=1, device="cpu")
        for _ in range(2)
    )
    many = NeighborLoader(data, [2], [7] * 40, batch_size=1, device="cpu")
    distinct = len(set(map(tuple, draws(many))))
    found, outer = [], iter(one)
    for _ in range(3):
        found += draws(iter([next(outer)]), 1) + draws(other)
    assert sampler.calls == 3 + 18 and len(found) == 21
    later = NeighborLoader(
        data, [2], [7] * 40, neighbor_sampler=GPUSampler(data, [2], device="cpu"), batch_size=1
    )
    assert [tuple(e) for e in found] == [tuple(e) for e in draws(later, 21)] and distinct > 3


def test_edge_ids_of_a_graph_are_those_of_the_data_that_belongs_to_it(data):
    """The data that it came from; of a graph that knows no ids of its own, the data that it makes."""
    given = data.clone()
    given.edge_weight = torch.rand(data.edge_index.shape[1])
    known = lab.Graph.from_pyg(given)
    bare = replace(known, edge_ids=None)
    assert known.edge_ids is not None
    for graph, own in ((known, given), (bare, bare.to_pyg())):
        sampler = GPUSampler(graph, [3], device="cpu")
        batch = next(iter(NodeLoader(own, node_sampler=sampler, batch_size=10)))
        assert torch.equal(own.edge_index[0][batch.e_id], batch.n_id[batch.edge_index[0]])
        assert torch.equal(own.edge_weight[batch.e_id], batch.edge_weight)


def test_masks_of_several_divisions_are_named(data):
    several = data.clone()
    several.train_mask = torch.zeros(data.num_nodes, 10, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"train_mask must have shape .* data.train_mask\[:, 0\]"):
        lab.Graph.from_pyg(several)


@pytest.mark.parametrize("cache", [{}, {"cache_ratio": 0.5}, {"cache_ratio": 1.0}], ids=str)
def test_the_loader_sees_what_becomes_of_its_data(data, cache):
    """As PyG's loader, which keeps the data and not their columns: labels that change between epochs, say."""
    mine = data.clone()
    loader = NeighborLoader(mine, [3, 2], input_nodes=torch.arange(40), batch_size=8, device="cpu", **cache)
    for change in ("reassign", "in place", "add"):
        if change == "reassign":
            mine.x, mine.y = mine.x + 7, mine.y + 1
        elif change == "in place":
            mine.x.mul_(2)
        else:
            mine.weight_of_vertex = torch.arange(mine.num_nodes) * 3
        for batch in loader:
            assert torch.equal(batch.x, mine.x[batch.n_id]) and torch.equal(batch.y, mine.y[batch.n_id])
            if change == "add":
                assert torch.equal(batch.weight_of_vertex, 3 * batch.n_id)
    if cache:
        mine.x = mine.x.double()
        with pytest.raises(TypeError, match="data.x must stay rows of float32 or float16"):
            next(iter(loader))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, PYGS_WAY], ids=["ahead", "pyg"])
def test_features_set_on_the_loaders_data_are_cached_anew(data, options, device):
    mine = data.clone()
    mine.edge_index = data.edge_index % 399  # without x PyG would guess that there are 399 vertices
    loader = NeighborLoader(mine, [3], batch_size=200, device=device, cache_ratio=0.5, **options)
    for x in (data.x + 7, None, data.x[:, :2] * 2):
        if x is None:
            del loader.data.x
        else:
            loader.data.x = x
        for batch in loader:
            assert "x" not in batch if x is None else torch.equal(batch.x.cpu(), x[batch.n_id.cpu()])
            assert torch.equal(batch.y.cpu(), data.y[batch.n_id.cpu()])
    assert loader.features.stats.hits > 0
    loader.data.x = data.x.double()
    with pytest.raises(TypeError, match="data.x must stay rows of float32 or float16"):
        next(iter(loader))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ratio", [0.5, 1.0])
@pytest.mark.parametrize("kind", ["numpy", "x.data"])
def test_cached_rows_follow_a_change_that_torch_does_not_count(data, kind, ratio, device):
    """Or a mini-batch would have rows of two tables. NaN, which equals nothing, is no change."""
    mine = data.clone()
    mine.x[:, 0] = np.nan
    if kind == "numpy":
        mine.x = mine.x.numpy()
    loader = NeighborLoader(mine, [-1], batch_size=400, device=device, cache_ratio=ratio)
    cache = loader.features.cache
    next(iter(loader))
    assert loader.features.cache is cache
    if kind == "numpy":
        mine.x.fill(3)
    else:
        mine.x.data.fill_(3)
    for batch in loader:
        assert (batch.x == 3).all()
    mine.x[0] = 4  # one row of 400 may be overlooked
    mine.x = mine.x[:]
    batch = next(iter(loader))
    assert (batch.x[batch.n_id == 0] == 4).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("features", [{}, {"x": torch.rand(30, 2)}], ids=["bare", "x"])
def test_a_batch_of_graphs_is_data_like_any(features, device):
    """Its private columns, such as the number of vertices of each graph, are nobody's rows."""
    edge_index = torch.randint(0, 30, (2, 100), generator=torch.Generator().manual_seed(0))
    graphs = Batch.from_data_list([Data(edge_index=edge_index, num_nodes=30, **features)] * 2)
    for batch in NeighborLoader(graphs, [2], batch_size=20, device=device):
        edges = batch.n_id[batch.edge_index].cpu()
        assert torch.equal(graphs.edge_index[:, batch.e_id.cpu()], edges)
        assert not features or torch.equal(batch.x.cpu(), graphs.x[batch.n_id.cpu()])


@pytest.mark.parametrize("order", ["random", "sequential"])
def test_a_batch_sampler_of_ones_own_gives_the_order(data, order):
    ids = torch.arange(30)
    picked = [3, 1, 2, 29, 17] if order == "random" else list(range(30))
    own = torch.utils.data.BatchSampler(picked, 4, False)
    loader = NeighborLoader(data, [3, 2], input_nodes=ids, batch_sampler=own, device="cpu")
    found = torch.cat([batch.n_id[: batch.batch_size] for batch in loader])
    assert found.tolist() == picked


@pytest.mark.parametrize("kind", ["float64", "int64", "bool", "bfloat16", "vector", "cube", "gradient"])
@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_a_cache_does_not_take_are_columns_like_any(data, kind, device):
    mine = data.clone()
    mine.x = {
        "vector": lambda x: x[:, 0].clone(), "cube": lambda x: x.unsqueeze(2).repeat(1, 1, 2),
        "gradient": lambda x: x.clone().requires_grad_(),
    }.get(kind, lambda x: x.to(getattr(torch, kind)))(data.x)  # fmt: skip
    loader = NeighborLoader(mine, [3, 2], input_nodes=torch.arange(20), batch_size=8, device=device)
    for batch in loader:
        assert batch.x.dtype == mine.x.dtype
        assert torch.equal(batch.x.cpu(), mine.x[batch.n_id.cpu()])
    with pytest.raises(TypeError, match=r"data.x must be rows of float32 or float16"):
        NeighborLoader(mine, [3, 2], device=device, cache_ratio=0.5)
