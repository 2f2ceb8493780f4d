"""`to_pyg` against what PyTorch Geometric's NeighborLoader yields, written out in plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import Graph, NeighborSampler
from tests.minibatch.reference import rule_of
from tests.sampling.neighbors import pick_oracle

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric.data import Data  # noqa: E402
from torch_geometric.nn import SAGEConv  # noqa: E402
from torch_geometric.utils import k_hop_subgraph, trim_to_layer  # noqa: E402

SEEDS = [3, 50, 7, 99, 3]


@pytest.fixture(scope="module")
def data() -> Any:
    """An unsorted edge list with parallel edges, self-loops, weights, features and labels."""
    rng = np.random.default_rng(3)
    n, m = 100, 600
    edge_index = np.stack([rng.integers(0, n, m), rng.integers(0, n - 10, m)])
    edge_index[:, 100:110] = edge_index[:, :10]
    edge_index[0, 200:205] = edge_index[1, 200:205]
    return Data(
        edge_index=torch.from_numpy(edge_index), num_nodes=n, edge_weight=torch.from_numpy(rng.random(m) + 0.1),
        x=torch.from_numpy(rng.standard_normal((n, 8)).astype(np.float32)),
        y=torch.from_numpy(rng.integers(0, 4, n)),
    )  # fmt: skip


@pytest.fixture(scope="module")
def graph(data) -> Graph:
    return Graph.from_pyg(data)


@dataclass
class Expected:
    """The fields of one mini-batch of NeighborLoader."""

    n_id: list[int]
    e_id: list[int]
    edge_index: list[list[int]]
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]


def neighbor_loader(data: Any, seeds, fanouts, batch_id: int, seed: int, **rule: Any) -> Expected:
    """Expand every vertex once, when it is first reached; edges point from the sampled neighbour to it.

    Works on the columns of ``edge_index``; only which of them are drawn is taken from the pick rules.
    """
    sources, targets = data.edge_index.tolist()
    name = rule_of(**rule)
    into: dict[int, list[int]] = {v: [] for v in range(data.num_nodes)}
    for column, v in enumerate(targets):
        into[v].append(column)
    for columns in into.values():
        columns.sort(key=lambda column: (sources[column], column))
    ordered = [column for v in range(data.num_nodes) for column in into[v]]
    weights = dict(zip(ordered, pick_oracle.integer_weights(data.edge_weight.float()[ordered].tolist())))
    place: dict[int, int] = {}
    for v in seeds:
        place.setdefault(v, len(place))
    layers, e_id, row, col, edges = [list(place)], [], [], [], []
    for hop, fanout in enumerate(fanouts):
        before = len(place)
        for v in layers[-1]:
            of_v = [weights[c] if name.startswith("weighted") else 1 for c in into[v]]
            for at in pick_oracle.pick(name, of_v, fanout, v, batch_id, hop, seed):
                column = into[v][at]
                e_id.append(column)
                row.append(place.setdefault(sources[column], len(place)))
                col.append(place[v])
        layers.append(list(place)[before:])
        edges.append(len(e_id) - sum(edges))
    return Expected(list(place), e_id, [row, col], [len(layer) for layer in layers], edges)


@pytest.mark.parametrize(
    "rule",
    [{}, {"pick": "reservoir"}, {"replace": True}, {"weighted": True}, {"weighted": True, "replace": True}],
    ids=str,
)
@pytest.mark.parametrize("fanouts", [[4], [3, 2], [2, 3, 2], [-1, 2], [-1, -1, -1]], ids=str)
def test_fields_are_those_of_neighbor_loader(data, graph, fanouts, rule):
    sampler = NeighborSampler(graph, fanouts, expand="new", device="cpu", seed=11, **rule)
    found = sampler.sample(SEEDS, 6).to_pyg()
    expected = neighbor_loader(data, SEEDS, fanouts, 6, 11, **rule)
    assert found.n_id.tolist() == expected.n_id
    assert found.e_id.tolist() == expected.e_id
    assert found.edge_index.tolist() == expected.edge_index
    assert found.batch_size == 4
    assert found.num_sampled_nodes == expected.num_sampled_nodes
    assert found.num_sampled_edges == expected.num_sampled_edges
    assert found.num_nodes == len(expected.n_id)
    assert {found.n_id.dtype, found.e_id.dtype, found.edge_index.dtype} == {torch.int64}


def test_ids_refer_to_the_data_that_the_graph_came_from(data, graph):
    found = NeighborSampler(graph, [3, 3], expand="new", device="cpu").sample(SEEDS).to_pyg()
    assert torch.equal(data.edge_index[:, found.e_id], found.n_id[found.edge_index])
    assert torch.equal(found.x, data.x[found.n_id])
    assert torch.equal(found.y, data.y[found.n_id])
    assert torch.equal(found.edge_weight, data.edge_weight.float()[found.e_id])
    # The canonical order is another one, so positions in it would not have done.
    assert not np.array_equal(graph.edge_ids, np.arange(graph.num_edges))


def test_edge_ids_are_the_columns_of_each_edge(data, graph):
    assert graph.edge_ids.dtype == np.int64
    assert sorted(graph.edge_ids.tolist()) == list(range(600))
    src, dst = graph.edges()
    assert np.array_equal(data.edge_index.numpy()[:, graph.edge_ids], np.stack([src, dst]))
    assert graph.edge_weight.tolist() == data.edge_weight.float()[graph.edge_ids].tolist()
    # Parallel edges keep the order in which they were given.
    same = (src[1:] == src[:-1]) & (dst[1:] == dst[:-1])
    assert same.sum() >= 10
    assert (np.diff(graph.edge_ids)[same] > 0).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_edge_ids_change_nothing_else_of_a_graph(data, weighted):
    src, dst = data.edge_index.numpy()
    weight = data.edge_weight.numpy() if weighted else None
    plain = Graph.from_edges(src, dst, 100, edge_weight=weight)
    kept = Graph.from_edges(src, dst, 100, edge_weight=weight, keep_edge_ids=True)
    assert plain.edge_ids is None
    assert kept.digest() == plain.digest()
    assert kept.nbytes == plain.nbytes + 8 * 600
    assert kept.to("cpu").edge_ids is kept.edge_ids
    with pytest.raises(ValueError, match=r"edge_ids must have shape \(600,\)"):
        Graph(plain.indptr, plain.indices, edge_ids=np.arange(5))


def test_without_edge_ids_e_id_is_the_position_in_the_graph(data):
    src, dst = data.edge_index.numpy()
    g = Graph.from_edges(src, dst, 100)
    found = NeighborSampler(g, [3, 3], expand="new", device="cpu").sample(SEEDS).to_pyg()
    # Graph.to_pyg() gives edges in this order, so the ids fit that Data.
    assert torch.equal(g.to_pyg().edge_index[:, found.e_id], found.n_id[found.edge_index])


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_all_neighbours_are_pygs_own_subgraph(data, graph, hops):
    found = NeighborSampler(graph, [-1] * hops, expand="new", device="cpu").sample(SEEDS).to_pyg()
    nodes, _, _, edges = k_hop_subgraph(SEEDS, hops, data.edge_index, num_nodes=100, directed=True)
    assert sorted(found.n_id.tolist()) == nodes.tolist()
    # PyG's function takes an edge again in every hop that reaches its end; the set is the same.
    assert set(found.e_id.tolist()) == set(torch.nonzero(edges).flatten().tolist())


class Sage(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList([SAGEConv(8, 16), SAGEConv(16, 4)])

    def forward(self, x, edge_index, sampled=None):
        for number, layer in enumerate(self.layers):
            if sampled is not None:
                x, edge_index, _ = trim_to_layer(number, *sampled, x, edge_index)
            x = layer(x, edge_index)
            if number == 0:
                x = x.relu()
        return x


def test_a_model_trains_on_it(graph):
    model = Sage()
    batch = NeighborSampler(graph, [5, 5], expand="new", device="cpu").sample(SEEDS).to_pyg()
    out = model(batch.x, batch.edge_index)[: batch.batch_size]
    loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
    loss.backward()
    assert torch.isfinite(loss)
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all() and parameter.grad.abs().sum() > 0, name


def test_with_all_neighbours_seeds_get_the_output_of_the_full_graph(data, graph):
    model = Sage().eval()
    batch = NeighborSampler(graph, [-1, -1], expand="new", device="cpu").sample(SEEDS).to_pyg()
    full = model(data.x, data.edge_index)[batch.n_id[: batch.batch_size]]
    found = model(batch.x, batch.edge_index)[: batch.batch_size]
    torch.testing.assert_close(found, full)


def test_trimming_by_the_sampled_numbers_changes_no_seed(graph):
    """PyG's trim_to_layer relies on the order of vertices and edges by hop, and on the two lists."""
    model = Sage().eval()
    batch = NeighborSampler(graph, [4, 3], expand="new", device="cpu").sample(SEEDS).to_pyg()
    whole = model(batch.x, batch.edge_index)[: batch.batch_size]
    trimmed = model(batch.x, batch.edge_index, (batch.num_sampled_nodes, batch.num_sampled_edges))
    assert len(trimmed) < batch.num_nodes
    torch.testing.assert_close(trimmed[: batch.batch_size], whole)


def test_a_graph_without_data_gives_none():
    g = Graph.from_edges([1, 2], [0, 1], 3)
    batch = NeighborSampler(g, [1, 1], expand="new", device="cpu").sample([0]).to_pyg()
    assert batch.x is None and batch.y is None and "edge_weight" not in batch
    assert batch.n_id.tolist() == [0, 1, 2]


def test_frontier_expansion_is_refused(graph):
    with pytest.raises(ValueError, match=r"to_pyg\(\) needs .*expand='new'.*got expand='frontier'"):
        NeighborSampler(graph, [2], device="cpu").sample([0]).to_pyg()
