"""On a GPU: labels, masks and ids of several mini-batches, taken in one launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gnnsample_lab import NeighborSampler
from gnnsample_lab.bench.configurations import test_graph as graph_named  # pytest collects test_*

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def table(rows: int, *shape: int, dtype: Any) -> Any:
    values = torch.arange(rows * int(np.prod(shape, dtype=np.int64)), device="cuda").reshape(rows, *shape)
    return (values % 2 == 1) if dtype is torch.bool else values.to(dtype)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("count", [1, 5, 16])
def test_rows_are_those_of_index_select(named, count):
    import cupy

    from gnnsample_lab.minibatch.export import pyg_values
    from gnnsample_lab.minibatch.gpu.columns import Columns, holds_edges, is_narrow

    graph = graph_named("hubs").to("cuda")
    n, e = graph.num_nodes, graph.num_edges
    by_node = {
        "y": table(n, dtype=torch.int64), "mask": table(n, dtype=torch.bool), "half": table(n, dtype=torch.float16),
        "pair": table(n, 2, dtype=torch.float32), "four": table(n, 2, 2, dtype=torch.float32),
        "wide": table(n, 2, dtype=torch.int64),
    }  # fmt: skip
    by_edge = {"weight": table(e, dtype=torch.float32), "flag": table(e, 1, dtype=torch.uint8)}
    assert all(map(is_narrow, (*by_node.values(), *by_edge.values())))
    edge_ids = cupy.asarray(np.random.default_rng(1).permutation(e)) if named else None
    columns = Columns(by_node, by_edge, edge_ids)
    sampler = NeighborSampler(graph, [4, 3], device="cuda", expand="new", strategy="captured")
    seeds = [np.random.default_rng(i).permutation(n)[: 1 + 37 * i] for i in range(count)]
    sampler.sample(seeds[0]).to_torch()
    sampler.sample_many(seeds)
    batches = sampler.sample_many(seeds, 9)
    assert all(map(holds_edges, batches))
    for batch, memory in zip(batches, columns.take(batches), strict=True):
        found, values = columns.tensors(batch, memory), pyg_values(batch)
        positions = values["positions"]
        ids = positions if edge_ids is None else torch.from_dlpack(edge_ids)[positions]
        assert ("e_id" in found) == named
        if named:
            assert torch.equal(found["e_id"], ids)
        for given, rows in ((by_node, values["n_id"]), (by_edge, ids)):
            for name, source in given.items():
                assert torch.equal(found[name], source[rows]), name
                assert found[name].dtype == source.dtype


def test_what_is_not_narrow():
    from gnnsample_lab.minibatch.gpu.columns import MAX_COLUMNS, Columns, is_narrow

    for column in (
        table(8, 3, dtype=torch.float32), table(8, 8, dtype=torch.float32), table(8, dtype=torch.int64)[1::2],
        table(4, 2, dtype=torch.int64).t(), table(8, dtype=torch.int64).cpu(), table(0, dtype=torch.int64),
    ):  # fmt: skip
        assert not is_narrow(column)
    crooked = torch.empty(10, dtype=torch.float32, device="cuda")[1:9].view(
        4, 2
    )  # rows of 8 bytes from byte 4 on
    assert not is_narrow(crooked)
    with pytest.raises(ValueError, match="at most 16 columns"):
        Columns({f"c{i}": table(4, dtype=torch.int64) for i in range(MAX_COLUMNS + 1)}, {})
