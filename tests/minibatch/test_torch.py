"""`to_torch`: tensors that a layer takes as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnsample_lab import Graph, NeighborSampler

torch = pytest.importorskip("torch")

SEEDS = [3, 50, 7, 99, 3]


@pytest.mark.parametrize("expand", ["frontier", "new"])
def test_tensors_hold_the_arrays_of_the_batch(graph, expand):
    batch = NeighborSampler(graph, [4, 3], expand=expand, device="cpu").sample(SEEDS, 8)
    found = batch.to_torch()
    assert found.batch_id == 8 and (found.x is None) == (batch.graph.feat is None)
    assert found.node_ids.tolist() == batch.node_ids.tolist()
    assert found.seeds.tolist() == [3, 50, 7, 99]
    assert found.seeds[found.seed_inverse].tolist() == SEEDS
    assert {found.node_ids.dtype, found.seeds.dtype, found.seed_inverse.dtype} == {torch.int64}
    for tensors, block in zip(found.blocks, batch.blocks, strict=True):
        assert tensors.size == (block.num_src, block.num_dst)
        for name in ("src", "dst", "indptr", "indices", "edge_positions"):
            assert getattr(tensors, name).tolist() == getattr(block, name).tolist()
        source, target = tensors.edge_index
        assert tensors.edge_index.dtype == torch.int64
        assert source.tolist() == block.indices.tolist()
        assert target.tolist() == np.repeat(np.arange(block.num_dst), np.diff(block.indptr)).tolist()


def test_memory_is_shared(graph):
    batch = NeighborSampler(graph, [4], device="cpu").sample(SEEDS)
    found = batch.to_torch()
    assert found.blocks[0].indices.data_ptr() == batch.blocks[0].indices.ctypes.data


def test_read_only_arrays_are_copied(graph, recwarn):
    batch = NeighborSampler(graph, [4], device="cpu").sample(SEEDS)
    batch.local_neighbors[0].flags.writeable = False
    before = batch.local_neighbors[0].tolist()
    found = batch.to_torch()
    found.blocks[0].indices.zero_()
    assert batch.local_neighbors[0].tolist() == before
    assert not [w for w in recwarn if "writable" in str(w.message)]


def test_blocks_without_edges(drawn_graphs):
    batch = NeighborSampler(drawn_graphs["star"], [3, 3], device="cpu").sample([4]).to_torch()
    assert [block.edge_index.shape for block in batch.blocks] == [(2, 0), (2, 0)]
    assert [block.size for block in batch.blocks] == [(1, 1), (1, 1)]


@pytest.mark.parametrize("expand", ["frontier", "new"])
def test_bipartite_layers_over_the_blocks_give_the_output_of_the_full_graph(expand):
    """With all neighbours taken, ``for layer, block in zip(layers, blocks)`` computes what the whole graph gives."""
    SAGEConv = pytest.importorskip("torch_geometric.nn").SAGEConv
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 80, 400), rng.integers(0, 70, 400)
    g = Graph.from_edges(src, dst, 80)
    x = torch.from_numpy(rng.standard_normal((80, 6)).astype(np.float32))
    torch.manual_seed(0)
    layers = [SAGEConv(6, 5), SAGEConv(5, 5), SAGEConv(5, 2)]
    full = x
    for layer in layers:
        full = layer(full, torch.from_numpy(np.stack([src, dst])))
    batch = NeighborSampler(g, [-1, -1, -1], expand=expand, device="cpu").sample(SEEDS[:3]).to_torch()
    hidden = x[batch.node_ids]
    for layer, block in zip(layers, batch.blocks, strict=True):
        assert len(hidden) == block.size[0]
        hidden = layer((hidden, hidden[: block.size[1]]), block.edge_index, size=block.size)
    torch.testing.assert_close(hidden, full[batch.seeds])
    hidden.sum().backward()
    assert all(p.grad.abs().sum() > 0 for layer in layers for p in layer.parameters() if p.dim() == 2)


def test_features_are_those_of_the_vertices(graph):
    feat = np.random.default_rng(0).standard_normal((graph.num_nodes, 7)).astype(np.float32)
    batch = NeighborSampler(replace(graph, feat=feat), [4, 3], device="cpu").sample(SEEDS)
    found = batch.to_torch()
    assert np.array_equal(found.x.numpy(), feat[batch.node_ids])
    assert found.x is found.x
    assert NeighborSampler(replace(graph, feat=None), [2], device="cpu").sample(SEEDS).to_torch().x is None


def test_features_first_read_in_inference_mode_can_be_trained_on():
    edges = np.random.default_rng(1).integers(0, 30, (2, 90))
    graph = Graph.from_edges(*edges, num_nodes=30, feat=np.ones((30, 4), np.float32))
    found = NeighborSampler(graph, [2], device="cpu").sample([1, 2]).to_torch()
    with torch.inference_mode():
        assert found.x.sum() == 4 * len(found.node_ids)
    layer = torch.nn.Linear(4, 2)
    layer(found.x).sum().backward()
    assert layer.weight.grad is not None
