"""GPU sampling and cached features inside PyTorch Geometric's own loaders.

``NeighborLoader`` here takes the place of ``torch_geometric.loader.NeighborLoader`` (which needs pyg-lib) in a training
script; :class:`GPUSampler` and :class:`CachedFeatures` are its two halves, for ``NodeLoader``::

    loader = NodeLoader(data, node_sampler=GPUSampler(data, [10, 5]), input_nodes=data.train_mask, batch_size=1024)

Everything runs on torch's current stream, and what loaders yield may be read there. Memory is used again behind that
stream and the one that is current when a tensor is dropped; as everywhere in torch, a tensor that a third stream reads
must be kept until that stream is done.

Importing this module imports torch_geometric.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from gnnsample_lab.device.streams import torch_stream
from gnnsample_lab.features.cache import FeatureCache
from gnnsample_lab.graph import Graph
from gnnsample_lab.minibatch.export import tensor
from gnnsample_lab.minibatch.sampler import NeighborSampler

CACHE_SHARE = 0.5
"""Share of the free GPU memory that :class:`NeighborLoader` fills with features, unless a size is given."""


class GPUSampler(BaseSampler):
    """A ``torch_geometric.sampler.BaseSampler`` on our sampler, for ``NodeLoader(data, node_sampler=...)``.

    Yields what PyG's own NeighborSampler yields, on the sampler's device: vertices and edges by hop, each vertex
    expanded once. Every call draws afresh; two samplers of the same ``seed`` draw the same in the same order of calls.
    The samples lie on the GPU; PyG then moves them to wherever ``data`` lies, so keep ``data`` there, too
    (:class:`NeighborLoader` does).

    Args:
        graph: a homogeneous ``torch_geometric.data.Data``, or a :class:`~gnnsample_lab.graph.Graph`, whose edge
            positions are then the edge ids (those of ``graph.to_pyg()``).
        num_neighbors: neighbours per hop, next to the seeds first; -1 for all.
        replace: draw with replacement.
        weight_attr: name of an edge attribute to draw in proportion to (``edge_weight`` for a ``Graph``).
        strategy: a name of ``lab.strategies()`` that keeps hops apart.
        device: "auto", "cpu" or "cuda".
        seed: of the draws.

    Raises:
        TypeError, ValueError: unsuitable arguments, each named.
        RuntimeError: ``device="cuda"`` without a usable GPU; used from a worker process.
    """

    def __init__(
        self,
        graph: Any,
        num_neighbors: Sequence[int],
        *,
        replace: bool = False,
        weight_attr: str | None = None,
        strategy: str = "auto",
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if isinstance(graph, Graph):
            if weight_attr not in (None, "edge_weight"):
                raise ValueError(f"weight_attr of a Graph is 'edge_weight' (got {weight_attr!r})")
            topology = replaced(graph, feat=None, label=None, splits={}, validate=False)
        else:
            topology = _topology(graph, weight_attr)
        self.sampler = NeighborSampler(
            topology, num_neighbors, strategy=strategy, expand="new", replace=replace, device=device, seed=seed,
            weighted=weight_attr is not None,
        )  # fmt: skip
        self.calls = 0

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda"``."""
        return self.sampler.device

    @property
    def num_neighbors(self) -> tuple[int, ...]:
        return self.sampler.fanouts

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        """One mini-batch around ``index.node``.

        Raises:
            ValueError: repeated seeds, or seeds with times: sampling by time is not supported.
            RuntimeError: in a worker process of the loader.
        """
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError(
                "GPUSampler must run in the training process: give the loader num_workers=0 "
                "(the GPU samples; filter_per_worker then has no effect)"
            )
        if index.time is not None:
            raise ValueError("GPUSampler does not sample by time (got seeds with times)")
        with torch_stream():
            batch = self.sampler.sample(index.node, self.calls)
            self.calls += 1
            if batch.level_sizes[0] != index.node.numel():
                raise ValueError(
                    f"the seeds of a mini-batch must differ (got {index.node.numel()} of "
                    f"{batch.level_sizes[0]} vertices)"
                )
            data = batch.to_pyg()
        row, col = data.edge_index
        return SamplerOutput(
            node=data.n_id, row=row, col=col, edge=data.e_id, batch=None,
            num_sampled_nodes=data.num_sampled_nodes, num_sampled_edges=data.num_sampled_edges,
            metadata=(index.input_id, None),
        )  # fmt: skip

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """Not supported: raises NotImplementedError."""
        raise NotImplementedError("GPUSampler samples around vertices; LinkNeighborLoader cannot use it")

    def __repr__(self) -> str:
        return f"GPUSampler({self.sampler!r})"


class CachedFeatures:
    """A transform for PyG loaders: ``data.x`` becomes the rows of ``data.n_id`` from a feature cache.

    Leave ``x`` out of the data that the loader filters, or PyG gathers the rows on the host before this does.

    Args:
        cache: a :class:`~gnnsample_lab.features.cache.FeatureCache`, or anything with its ``extract``.

    Attributes:
        stats: ``ExtractStats`` of the last mini-batch, None before the first.
    """

    def __init__(self, cache: Any) -> None:
        if not hasattr(cache, "extract"):
            raise TypeError(f"cache must be a FeatureCache (got {type(cache).__name__})")
        self.cache = cache
        self.stats: Any = None

    def __call__(self, data: Data) -> Data:
        if getattr(data, "n_id", None) is None:
            raise ValueError(
                "data must have n_id, the global ids of its vertices, as loaders give it (got none)"
            )
        with torch_stream():
            x, self.stats = self.cache.extract(data.n_id)
            data.x = tensor(x)
        return data

    def __repr__(self) -> str:
        return f"CachedFeatures({self.cache!r})"


class NeighborLoader(NodeLoader):
    """``torch_geometric.loader.NeighborLoader`` with sampling, features and labels on the GPU.

    A script changes its import and nothing else; ``batch.to(device)`` in it then has nothing to move. On a CPU it
    works the same way with the CPU sampler, and PyG gathers the features.

    Args:
        data: a homogeneous ``torch_geometric.data.Data``; it is not changed.
        num_neighbors: as in :class:`GPUSampler`.
        input_nodes: seeds: ids, a mask, or None for all vertices.
        replace, weight_attr: as in :class:`GPUSampler`.
        transform: applied last.
        device: "auto", "cpu" or "cuda".
        seed: of the draws.
        cache_ratio, capacity_bytes: how much of ``data.x`` to keep on the GPU, rows of high out-degree first; by
            default what fits into half of its free memory. The rest is read from pinned host memory.
        kwargs: of ``NodeLoader`` and ``torch.utils.data.DataLoader``: ``batch_size``, ``shuffle`` and so on.

    Raises:
        ValueError: ``num_workers`` above 0, or as :class:`GPUSampler`.
    """

    def __init__(
        self,
        data: Data,
        num_neighbors: Sequence[int],
        input_nodes: Any = None,
        *,
        replace: bool = False,
        weight_attr: str | None = None,
        transform: Callable | None = None,
        device: str = "auto",
        seed: int = 0,
        cache_ratio: float | None = None,
        capacity_bytes: int | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("num_workers", 0):
            raise ValueError(
                f"num_workers must be 0: the GPU samples in the training process (got {kwargs['num_workers']})"
            )
        sampler = GPUSampler(
            data, num_neighbors, replace=replace, weight_attr=weight_attr, device=device, seed=seed
        )
        steps = [] if transform is None else [transform]
        sized = cache_ratio is not None or capacity_bytes is not None
        if getattr(data, "x", None) is not None and (sized or sampler.device == "cuda"):
            cache = _cache(data.x, sampler, cache_ratio, capacity_bytes)
            self.features = CachedFeatures(cache)
            steps.insert(0, self.features)
        super().__init__(
            _slim(data, sampler.device, without_x=len(steps) > (transform is not None)), node_sampler=sampler,
            input_nodes=input_nodes, transform=_Chain(steps) if steps else None, filter_per_worker=False, **kwargs,
        )  # fmt: skip


class _Chain:
    """Transforms, one after the other."""

    def __init__(self, steps: list[Callable]) -> None:
        self.steps = steps

    def __call__(self, data: Any) -> Any:
        for step in self.steps:
            data = step(data)
        return data


def _topology(data: Any, weight_attr: str | None) -> Graph:
    """The graph of a ``Data`` without its features and labels; edge ids are columns of ``edge_index``."""
    if hasattr(data, "edge_types"):
        raise TypeError("graph must be a homogeneous torch_geometric Data (got heterogeneous data)")
    if getattr(data, "edge_index", None) is None:
        raise ValueError("graph must have an edge_index (got none)")
    bare = Data(edge_index=data.edge_index, num_nodes=data.num_nodes)
    if weight_attr is not None:
        weight = getattr(data, weight_attr, None)
        if weight is None:
            raise ValueError(f"weight_attr must name an edge attribute (got {weight_attr!r})")
        bare.edge_weight = weight.reshape(-1)
    return Graph.from_pyg(bare)


def _cache(x: Any, sampler: GPUSampler, ratio: float | None, capacity_bytes: int | None) -> FeatureCache:
    if ratio is None and capacity_bytes is None:
        from gnnsample_lab.graph.graph import gpu_memory

        capacity_bytes = int(gpu_memory()[0] * CACHE_SHARE)
    degrees = sampler.sampler.graph.out_degrees()
    return FeatureCache(x, degrees, ratio=ratio, capacity_bytes=capacity_bytes, device=sampler.device)


def _slim(data: Data, device: str, without_x: bool) -> Data:
    """``data`` as the loader filters it: on the device, and without what others provide."""
    slim = copy.copy(data)
    slim.num_nodes = data.num_nodes
    if without_x:
        del slim.x
    if [name for name in data.edge_attrs() if name != "edge_index"] == []:
        # PyG replaces it by the sample's, and asks it for nothing but its device.
        slim.edge_index = data.edge_index[:, :0]
    return slim if device == "cpu" else slim.to(device)


__all__ = ["CachedFeatures", "GPUSampler", "NeighborLoader"]
