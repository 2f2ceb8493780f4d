"""NetworkX and PyTorch Geometric: what is taken over, and round trips."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from gnnsample_lab.graph import Graph


def edge_list(g: Graph) -> list[tuple[int, int]]:
    src, dst = g.edges()
    return sorted(zip(src.tolist(), dst.tolist()))


def test_directed_networkx_keeps_direction_and_order_of_nodes():
    given = nx.DiGraph(name="mine")
    given.add_nodes_from("cab")
    given.add_edge("c", "a", w=2.0)
    given.add_edge("b", "c", w=0.5)
    g = Graph.from_networkx(given, weight="w")
    assert edge_list(g) == [(0, 1), (2, 0)] and g.name == "mine"
    assert g.edge_weight.tolist() == [0.5, 2.0]  # into vertex 0, then into vertex 1


def test_undirected_networkx_gives_both_directions_and_one_self_loop():
    given = nx.karate_club_graph()
    given.add_edge(3, 3)
    g = Graph.from_networkx(given)
    assert g.num_edges == 2 * (given.number_of_edges() - 1) + 1
    assert g.in_degrees().tolist() == g.out_degrees().tolist()
    assert edge_list(g).count((3, 3)) == 1


def test_a_multigraph_keeps_parallel_edges():
    given = nx.MultiDiGraph([(0, 1), (0, 1), (1, 0)])
    assert edge_list(Graph.from_networkx(given)) == [(0, 1), (0, 1), (1, 0)]


def test_networkx_node_attributes_become_features_and_labels():
    given = nx.path_graph(3)
    for v in given:
        given.nodes[v].update(x=[v, 2.0 * v], y=v % 2)
    g = Graph.from_networkx(given, feat="x", label="y")
    assert g.feat.tolist() == [[0, 0], [1, 2], [2, 4]] and g.label.tolist() == [0, 1, 0]
    del given.nodes[1]["y"]
    with pytest.raises(ValueError, match="label names an attribute that node 1 lacks"):
        Graph.from_networkx(given, label="y")
    with pytest.raises(ValueError, match="weight names an attribute that edge"):
        Graph.from_networkx(given, weight="w")
    with pytest.raises(TypeError, match="graph must be a NetworkX graph"):
        Graph.from_networkx([(0, 1)])
    empty = Graph.from_networkx(nx.Graph(), weight="w", feat="x", label="y")
    assert empty.num_nodes == 0 and empty.feat is None and empty.label is None


@pytest.mark.parametrize(
    ("attribute", "value", "error", "match"),
    [
        ("weight", "2.5", TypeError, r"weight names an attribute that is no number at .1, 2. .got '2.5'"),
        ("weight", None, TypeError, "weight names an attribute that is no number"),
        (
            "weight",
            [1.0, 2.0],
            ValueError,
            r"weight names an attribute of shape .. at .0, 1. and .2,. at .1, 2",
        ),
        ("weight", float("nan"), ValueError, "edge_weight must be finite"),
        ("label", "cat", TypeError, "label names an attribute that is no number at 1 .got 'cat'"),
        ("label", 1.5, TypeError, "label must be integers"),
        ("feat", [1.0], ValueError, r"feat names an attribute of shape .2,. at 0 and .1,. at 1"),
        ("feat", {"a": 1}, TypeError, "feat names an attribute that is no number at 1"),
    ],
)
def test_networkx_attributes_that_do_not_fit_are_named(attribute, value, error, match):
    given = nx.path_graph(3)
    nx.set_edge_attributes(given, 1.0, "weight")
    nx.set_node_attributes(given, {v: {"feat": [v, 2.0], "label": v} for v in given})
    if attribute == "weight":
        given.edges[1, 2]["weight"] = value
    else:
        given.nodes[1][attribute] = value
    with pytest.raises(error, match=match):
        Graph.from_networkx(given, weight="weight", feat="feat", label="label")


def test_pyg_masks_of_zeros_and_ones_are_refused():
    torch = pytest.importorskip("torch")
    Data = pytest.importorskip("torch_geometric.data").Data
    mask = torch.tensor([1, 0, 1], dtype=torch.uint8)
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3, train_mask=mask)
    with pytest.raises(TypeError, match="train_mask must hold booleans .got dtype torch.uint8"):
        Graph.from_pyg(data)


def test_labels_of_several_tasks_may_be_floats_in_pyg():
    torch = pytest.importorskip("torch")
    Data = pytest.importorskip("torch_geometric.data").Data
    data = Data(
        edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    )
    found = Graph.from_pyg(data)
    assert found.label.tolist() == [[0, 1], [1, 1], [0, 0]] and found.num_classes == 2
    for y in (
        torch.tensor([[0.5, 1.0]] * 3),
        torch.tensor([0.0, 1.0, 1.0]),
        torch.tensor([[float("nan"), 1.0]] * 3),
    ):
        data.y = y
        with pytest.raises(
            TypeError, match="^data.y must hold integers, or 0 and 1 in a column for each task"
        ):
            Graph.from_pyg(data)


def test_what_is_done_to_labels_and_weights_in_pyg_does_not_reach_the_graph():
    pytest.importorskip("torch_geometric")
    g = random_graph()
    label, weight, data = g.label.copy(), g.edge_weight.copy(), g.to_pyg()
    data.y.fill_(7)
    data.edge_weight.zero_()
    assert np.array_equal(g.label, label) and np.array_equal(g.edge_weight, weight)


def random_graph() -> Graph:
    rng = np.random.default_rng(2)
    return Graph.from_edges(
        rng.integers(0, 20, 90), rng.integers(0, 20, 90), 20, edge_weight=rng.random(90),
        feat=rng.random((20, 4)), label=rng.integers(0, 3, 20),
        splits={"train": np.arange(5), "valid": np.arange(5, 9), "test": np.arange(9, 20)},
    )  # fmt: skip


def test_round_trip_through_pyg():
    pytest.importorskip("torch_geometric")
    g = random_graph()
    data = g.to_pyg()
    assert data.num_nodes == 20 and data.edge_index.shape == (2, 90) and data.is_sorted(sort_by_row=False)
    assert Graph.from_pyg(data).digest() == g.digest()


def test_read_only_arrays_reach_torch_as_copies(recwarn):
    pytest.importorskip("torch_geometric")
    g = random_graph()
    for array in (g.indptr, g.indices, g.feat, g.label):
        array.flags.writeable = False
    g.to_pyg().x.zero_()
    assert g.feat.any() and not [w for w in recwarn if "writable" in str(w.message)]


def test_reversed_arrays_reach_torch_as_copies():
    feat, label = np.arange(6, dtype=np.float32).reshape(3, 2)[::-1], np.arange(3)[::-1]
    data = Graph.from_edges([0], [1], 3, feat=feat, label=label).to_pyg()
    assert np.array_equal(data.x.numpy(), feat) and np.array_equal(data.y.numpy(), label)


def test_pyg_edge_attr_of_one_column_is_the_weight_and_others_are_not():
    torch = pytest.importorskip("torch")
    Data = pytest.importorskip("torch_geometric.data").Data
    index = torch.tensor([[0, 1], [1, 0]])
    weighted = Graph.from_pyg(Data(edge_index=index, edge_attr=torch.tensor([[3.0], [4.0]]), num_nodes=2))
    assert weighted.edge_weight.tolist() == [4.0, 3.0]
    assert Graph.from_pyg(Data(edge_index=index, edge_attr=torch.ones(2, 5), num_nodes=2)).edge_weight is None


def test_pyg_edge_attr_of_integers_is_no_weight():
    """Types of edges are numbered: they became weights."""
    torch = pytest.importorskip("torch")
    Data = pytest.importorskip("torch_geometric.data").Data
    index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    for attribute in (
        torch.tensor([1, 2, 3]),
        torch.tensor([[-1], [2], [3]]),
        torch.tensor([True, False, True]),
    ):
        assert Graph.from_pyg(Data(edge_index=index, edge_attr=attribute, num_nodes=3)).edge_weight is None
    given = Graph.from_pyg(Data(edge_index=index, edge_weight=torch.tensor([1, 2, 3]), num_nodes=3))
    assert given.edge_weight.tolist() == [3.0, 1.0, 2.0], "what is called a weight is one"


def test_weights_of_pyg_that_cannot_be_are_named_as_the_data_has_them():
    torch = pytest.importorskip("torch")
    Data = pytest.importorskip("torch_geometric.data").Data
    index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    for name in ("edge_attr", "edge_weight"):
        for values, match in (
            ([-1.0, 2.0, 3.0], r"be finite and not negative .got -1\.0 at position 0"),
            ([1.0, 2.0, float("nan")], r"be finite and not negative .got nan at position 2"),
            ([1.0, 2.0], r"have shape \(3,\), one per edge"),
        ):
            with pytest.raises(ValueError, match=rf"^data\.{name} must {match}"):
                Graph.from_pyg(Data(edge_index=index, num_nodes=3, **{name: torch.tensor(values)}))


def test_unusable_pyg_data_is_an_error():
    torch = pytest.importorskip("torch")
    data_module = pytest.importorskip("torch_geometric.data")
    with pytest.raises(TypeError, match="homogeneous"):
        Graph.from_pyg(data_module.HeteroData())
    with pytest.raises(ValueError, match="edge_index"):
        Graph.from_pyg(data_module.Data(x=torch.ones(3, 1)))
    with pytest.raises(ValueError, match=r"data.edge_index\[1\] must be vertex ids in 0\.\.1"):
        Graph.from_pyg(data_module.Data(edge_index=torch.tensor([[0, 1], [5, 0]]), num_nodes=2))
    with pytest.raises(TypeError, match=r"data.edge_index\[0\] must be integers .got dtype float32"):
        Graph.from_pyg(data_module.Data(edge_index=torch.tensor([[0.0, 1.0], [1.0, 0.0]]), num_nodes=2))


def test_a_class_is_no_graph():
    with pytest.raises(TypeError, match="must be a NetworkX graph .*DiGraph"):
        Graph.from_networkx(nx.DiGraph)
