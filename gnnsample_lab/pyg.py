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
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as replaced
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader as PygLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from gnnsample_lab import checks
from gnnsample_lab.checks import choice, flag, function, instance, num_bytes, optional, share, text
from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import times_changed
from gnnsample_lab.device.streams import torch_stream
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.graph import Graph
from gnnsample_lab.graph.csc import rows_of
from gnnsample_lab.minibatch.epoch import starts
from gnnsample_lab.minibatch.export import filled, pyg_values, tensor
from gnnsample_lab.minibatch.gpu.columns import MAX_BATCHES, MAX_COLUMNS, Columns, holds_edges, is_narrow
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.minibatch.seeds import Unchanged
from gnnsample_lab.sampling.neighbors.spec import checked_fanouts

CACHE_SHARE = 0.5
"""Share of the free GPU memory that :class:`NeighborLoader` fills with features, unless a size is given."""
SEEDS_AHEAD = 16_384
"""Seeds of the mini-batches that :class:`NeighborLoader` samples at a time on a GPU: 2 to 16 mini-batches."""
_COMPARED_EDGES, _COMPARED_RUNS = 1 << 18, 64
"""Edges of a sampler and its data that are compared at a time; how often at most where the two lie apart."""
_compared: weakref.WeakKeyDictionary[Graph, tuple[Any, int]] = weakref.WeakKeyDictionary()
"""The ``edge_index`` that a graph was compared with last, weakly, and how often that had been changed in place."""


class GPUSampler(BaseSampler):
    """A ``torch_geometric.sampler.BaseSampler`` on our sampler, for ``NodeLoader(data, node_sampler=...)``.

    Yields what PyG's own NeighborSampler yields, on the sampler's device: vertices and edges by hop, each vertex
    expanded once. Every call draws afresh; two samplers of the same ``seed`` draw the same in the same order of calls.
    The samples lie on the GPU; PyG then moves them to wherever ``data`` lies, so keep ``data`` there, too
    (:class:`NeighborLoader` does).

    Args:
        graph: a homogeneous ``torch_geometric.data.Data``, or a :class:`~gnnsample_lab.graph.Graph`. Edge ids are then
            its ``edge_ids``: columns of the ``edge_index`` that ``Graph.from_pyg`` was given, which the loader's data
            must have; of a graph without them positions, those of ``graph.to_pyg()``.
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
        optional(text, "weight_attr", weight_attr)
        num_neighbors = checked_fanouts(num_neighbors, "num_neighbors")
        if isinstance(graph, Graph):
            choice("weight_attr", weight_attr, (None, "edge_weight"))
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
    def num_nodes(self) -> int:
        """Vertices of the graph that is sampled from."""
        return int(self.sampler.graph.num_nodes)

    @property
    def num_neighbors(self) -> tuple[int, ...]:
        return self.sampler.fanouts

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        """One mini-batch around ``index.node``.

        Seeds may repeat, as in PyG: each has a row of its own in ``node``, with edges of its own. Here the rows of one
        vertex have the same neighbours; edges that start at such a vertex start at its first row.

        Args:
            index: the seeds, ``int64[n]``, and what PyG hands through with them.
            kwargs: not used.

        Raises:
            TypeError, ValueError: seeds that are no vertices, or that have times: sampling by time is not supported.
            RuntimeError: in a worker process of the loader.
        """
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError(
                "GPUSampler must run in the training process: give the loader num_workers=0 "
                "(the GPU samples; filter_per_worker then has no effect)"
            )
        if index.time is not None:
            raise ValueError(
                "index.time must be None: GPUSampler does not sample by time (got seeds with times)"
            )
        with torch_stream():
            batch = self.sampler.sample(index.node, self.calls)
            self.calls += 1
            data = batch.to_pyg()
            if batch.level_sizes[0] != index.node.numel():
                _repeat_seeds(data, tensor(batch.seed_inverse).long())
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

    Leave ``x`` out of the data that the loader filters, or PyG gathers the rows on the host before this does. The data
    must have no ``n_id`` of its own, a sub-graph's for example, or PyG hands out that (:class:`NeighborLoader` sees to
    it).

    Args:
        cache: a :class:`~gnnsample_lab.features.caching.cache.FeatureCache`, or anything with its ``extract``.

    Attributes:
        stats: ``ExtractStats`` of the last mini-batch, None before the first.

    Raises:
        TypeError: ``cache`` has no ``extract``.
        ValueError: in a call, data without ``n_id``.
    """

    def __init__(self, cache: Any) -> None:
        if not callable(getattr(cache, "extract", None)):
            raise TypeError(f"cache must be a FeatureCache (got {checks.shown(cache)})")
        self.cache = cache
        self.stats: Any = None

    def __call__(self, data: Data) -> Data:
        if getattr(data, "n_id", None) is None:
            raise ValueError(
                "data must have n_id, the global ids of its vertices, as loaders give it (got none)"
            )
        with torch_stream():
            data.x = self.rows(data.n_id)
        return data

    def each(self, ids: Sequence[Any]) -> Iterator[Any]:
        """The rows of several mini-batches, a tensor for each; torch's current stream must be CuPy's at every step.

        Args:
            ids: global ids of each mini-batch, of any library. The cache is a :class:`FeatureCache`.
        """
        return map(self._handed, self.cache.extract_each(ids))

    def _handed(self, extracted: tuple[Any, Any]) -> Any:
        x, self.stats = extracted
        self.stats.ready.order()
        return tensor(x)

    def rows(self, ids: Any) -> Any:
        """The rows of vertices, a tensor; torch's current stream must be CuPy's.

        Args:
            ids: global ids ``[n]``, of any library.
        """
        x, self.stats = self.cache.extract(ids)
        return tensor(x)

    def __repr__(self) -> str:
        return f"CachedFeatures({self.cache!r})"


def _repeat_seeds(data: Data, inverse: Any) -> None:
    """Give every seed as given a row of its own in a sample of distinct seeds, and edges of its own.

    Args:
        data: a mini-batch as ``MiniBatch.to_pyg`` makes it; edges of the first hop come first, by ascending seed.
        inverse: place of each given seed among the distinct ones, ``int64[n]``.
    """
    given, distinct = inverse.numel(), data.num_sampled_nodes[0]
    first = torch.full_like(inverse[:distinct], given).scatter_reduce(
        0, inverse, torch.arange(given, device=inverse.device), "amin"
    )
    place = torch.arange(data.n_id.numel(), device=inverse.device) + (given - distinct)
    place[:distinct] = first
    cut = data.num_sampled_edges[0]
    row, col = data.edge_index
    counts = torch.bincount(col[:cut], minlength=distinct)
    begins, own = counts.cumsum(0) - counts, counts[inverse]
    total = int(own.sum())
    within = torch.arange(total, device=inverse.device) - (own.cumsum(0) - own).repeat_interleave(own)
    taken = begins[inverse].repeat_interleave(own) + within  # edges of the first hop, seed by seed
    seeds = torch.arange(given, device=inverse.device).repeat_interleave(own)
    data.edge_index = torch.stack([
        place[torch.cat([row[:cut][taken], row[cut:]])], torch.cat([seeds, place[col[cut:]]])
    ])  # fmt: skip
    data.e_id = torch.cat([data.e_id[:cut][taken], data.e_id[cut:]])
    data.n_id = torch.cat([data.n_id[:distinct][inverse], data.n_id[distinct:]])
    data.num_sampled_nodes = [given, *data.num_sampled_nodes[1:]]
    data.num_sampled_edges = [total, *data.num_sampled_edges[1:]]


class NeighborLoader(PygLoader):
    """``torch_geometric.loader.NeighborLoader`` with sampling, features and labels on the GPU.

    A script changes its import and nothing else; ``batch.to(device)`` in it then has nothing to move. On a CPU it
    works the same way with the CPU sampler, and PyG gathers the features.

    Mini-batches are sampled several at a time, and PyG's lists of Python integers are left out, where the arguments
    allow it: shuffled or in order, without a sampler, a ``batch_sampler`` or a ``transform_sampler_output`` of one's
    own. Mini-batches and their order are those of PyG's way.

    It is a loader of PyG's class, which ``inference`` of PyG's models asks for.

    Args:
        data: a homogeneous ``torch_geometric.data.Data``; it is not changed. ``x`` has a row for each vertex;
            ``y`` too, unless it is of edges or, in a single row, of the graph. As in PyG it is the loader's ``data``;
            columns that are set, deleted or changed in place later are taken when the next iteration begins.
        num_neighbors: as in :class:`GPUSampler`.
        input_nodes: seeds: ids (which may repeat), a mask, or None for all vertices.
        replace, weight_attr: as in :class:`GPUSampler`.
        transform: applied last.
        transform_sampler_output: applied to the ``SamplerOutput``, before features are read.
        is_sorted: a hint of PyG's that changes nothing here.
        filter_per_worker: changes nothing here: there are no workers.
        neighbor_sampler: a :class:`GPUSampler` to use; ``num_neighbors``, ``replace``, ``weight_attr``, ``device`` and
            ``seed`` are then its own. Its edges must be those of ``data``, which is checked: for all, or for 16 million
            spread over the graph where ``edge_index`` lies on another device.
        input_time, time_attr, temporal_strategy, disjoint, subgraph_type, directed: not supported; only PyG's defaults
            are accepted.
        device: "auto", "cpu" or "cuda".
        seed: of the draws.
        cache_ratio, capacity_bytes: how much of ``data.x`` to keep on the GPU, rows of high out-degree first; by
            default what fits into half of its free memory. The rest is read from pinned host memory. A change in place
            that PyTorch does not count, of a NumPy array or through ``x.data``, is found only where it meets one of up
            to 64 cached rows, compared when an iteration begins: ``data.x = data.x[:]`` says that rows have changed.
        kwargs: of ``NodeLoader`` and ``torch.utils.data.DataLoader``: ``batch_size``, ``shuffle`` and so on.

    Raises:
        TypeError, ValueError: an argument that is not supported (``num_workers`` above 0 among them), is not allowed
            or of the wrong kind; the message names it.
        RuntimeError: as :class:`GPUSampler`.
    """

    data: Any

    def __init__(
        self,
        data: Data,
        num_neighbors: Sequence[int],
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable | None = None,
        transform_sampler_output: Callable | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        device: str = "auto",
        seed: int = 0,
        cache_ratio: float | None = None,
        capacity_bytes: int | None = None,
        **kwargs: Any,
    ) -> None:
        _only_default("input_time", input_time, None, "seeds have no times here")
        _only_default("time_attr", time_attr, None, "sampling by time is not supported")
        _only_default("temporal_strategy", temporal_strategy, "uniform", "sampling by time is not supported")
        kind = getattr(subgraph_type, "value", subgraph_type)  # a string, or PyG's enumeration
        _only_default("subgraph_type", kind, "directional", "edges point from the sampled neighbour")
        _only_default("disjoint", disjoint, False, "seeds share one sub-graph")
        _only_default("directed", directed, True, "induced sub-graphs are not supported")
        _only_default(
            "num_workers", kwargs.get("num_workers", 0), 0, "the GPU samples in the training process"
        )
        if kwargs.get("batch_size", 1) is None and kwargs.get("batch_sampler") is None:
            raise ValueError("batch_size must be an int where there is no batch_sampler (got None)")
        flag("is_sorted", is_sorted)
        filter_per_worker = bool(optional(flag, "filter_per_worker", filter_per_worker))
        optional(function, "transform", transform)
        optional(function, "transform_sampler_output", transform_sampler_output)
        optional(share, "cache_ratio", cache_ratio)
        optional(num_bytes, "capacity_bytes", capacity_bytes)
        _check_data("data", data)
        _check_rows(data, data.num_nodes)
        input_nodes = _input_nodes(input_nodes, data.num_nodes)
        kwargs["input_id"] = _input_id(kwargs.get("input_id"), input_nodes, data.num_nodes)
        if neighbor_sampler is None:
            sampler = GPUSampler(
                data, num_neighbors, replace=replace, weight_attr=weight_attr, device=device, seed=seed
            )
        else:
            sampler = instance("neighbor_sampler", neighbor_sampler, GPUSampler, "a GPUSampler")
            if sampler.num_nodes != data.num_nodes:
                raise ValueError(
                    f"neighbor_sampler must sample from data, {data.num_nodes} vertices (got {sampler.num_nodes})"
                )
            _check_edges(sampler.sampler.graph, data.edge_index)
        _check_columns(data)  # after the sampler, which says more of its weights
        self.features: CachedFeatures | None = None
        sized = cache_ratio is not None or capacity_bytes is not None
        self._cache_size = cache_ratio, capacity_bytes
        x = getattr(data, "x", None)
        if sized and x is not None and not _is_cacheable(x):
            raise TypeError(
                "data.x must be rows of float32 or float16 that need no gradient for cache_ratio and capacity_bytes "
                f"(got {checks.shown(x)})"
            )
        if x is not None and (sized or (sampler.device == "cuda" and _is_cacheable(x))):
            self.features = CachedFeatures(_cache(x, sampler, cache_ratio, capacity_bytes))
        super().__init__(
            data, sampler.num_neighbors, neighbor_sampler=sampler, input_nodes=input_nodes, transform=transform,
            transform_sampler_output=transform_sampler_output, filter_per_worker=filter_per_worker, **kwargs,
        )  # fmt: skip
        self._take()

    def _columns(self) -> dict[str, tuple[Any, ...]]:
        """The columns of ``data``, topology apart, each with what tells that it was changed in place."""
        columns: dict[str, tuple[Any, ...]] = {
            name: (value, times_changed(value))
            for name, value in self.data
            if name not in ("edge_index", "num_nodes")
        }
        if self.features is not None and "x" in columns:
            columns["x"] += (_some_rows(self.features.cache),)
        return columns

    def _take(self) -> None:
        """Make of ``data``, as it is now, what mini-batches take rows of, and note what was seen."""
        cached = self.features if "x" in self.data else None
        own = [name for name in _SAMPLED_IDS if name in self.data]
        self._slim = _slim(self.data, self.node_sampler, own, without_x=cached is not None)
        self._own_steps: list[Callable] = [] if cached is None else [cached]
        if own:
            self._own_steps.append(_Restored(own))
        self._seen = self._columns()

    def _steps(self) -> list[Callable]:
        """What is applied to each mini-batch, the caller's transform last."""
        return self._own_steps if self.transform is None else [*self._own_steps, self.transform]

    def _renewed(self) -> None:
        """Take the caller's data as they are now, as PyG's loader does, which keeps them and not their columns."""
        data, now, before = self.data, self._columns(), self._seen
        if now.keys() == before.keys() and all(_is_same(now[name], before[name]) for name in now):
            return
        _check_rows(data, self.node_sampler.num_nodes)
        _check_columns(data)
        if self.features is not None and "x" in data and not _is_same(now["x"], before.get("x")):
            if not _is_cacheable(data.x):
                raise TypeError(
                    f"data.x must stay rows of float32 or float16: they are cached (got {checks.shown(data.x)})"
                )
            self.features.cache = _cache(data.x, self.node_sampler, *self._cache_size)
        self._take()

    def __call__(self, index: Any) -> Any:
        """As PyG's: the mini-batch around the input nodes at ``index``, ``int64[n]`` or a list."""
        self._renewed()
        return super().__call__(index)

    def filter_fn(self, out: Any) -> Any:
        """As PyG's, which would gather features that the cache has."""
        loader = copy.copy(self)  # transforms that read the data of this one see the caller's
        loader.data, loader.transform = self._slim, _Chain(self._steps())
        return super(NeighborLoader, loader).filter_fn(out)

    def __iter__(self) -> Iterator[Any]:
        self._renewed()
        order, fields = _order_of(self.sampler), _fields_of(self._slim)
        usual = (
            type(self.batch_sampler) is torch.utils.data.BatchSampler and type(self.node_sampler) is GPUSampler
            and self.transform_sampler_output is None and not self.filter_per_worker and not self.pin_memory
            and self.input_data.time is None
            and self.batch_size is not None  # else the batch_sampler is the caller's
        )  # fmt: skip
        if not usual or order is None or fields is None:
            return super().__iter__()
        return self._ahead(order, fields, self._steps())

    def _ahead(
        self, order: Callable[[], Iterator[Any]], fields: _Fields, steps: list[Callable]
    ) -> Iterator[Any]:
        torch.empty((), dtype=torch.int64).random_(
            generator=self.generator
        )  # as every iterator of a DataLoader does
        drawn, sampler, size = order(), self.node_sampler, self.batch_size
        index = next(drawn)
        nodes = self.input_data.node[index].to(sampler.device)
        input_id = index if self.input_data.input_id is None else self.input_data.input_id[index]
        count, unused = len(self), deque[int]()
        ahead = max(2, min(MAX_BATCHES, SEEDS_AHEAD // size)) if sampler.device == "cuda" else 1
        columns = None
        if ahead > 1:
            with torch_stream():
                nodes = checks.array("input_nodes", nodes)  # as CuPy's once, and not slice by slice
                columns = fields.columns(sampler.sampler.graph.edge_ids)

        def start(begin: int) -> tuple[list[slice], Callable[[], list[Any]]]:
            # Batch ids are taken when they are used: other loaders, or this one once more, may draw in between.
            group = min(ahead, count - begin)
            with torch_stream():
                group = starts(sampler.sampler, group, size) or group
            places = [slice(i * size, (i + 1) * size) for i in range(begin, begin + group)]
            first, sampler.calls = sampler.calls, sampler.calls + len(places)
            unused.extend(range(first, sampler.calls))
            with torch_stream():
                return places, sampler.sampler.start_many(Unchanged(nodes[place] for place in places), first)

        try:
            coming = start(0) if count else None
            begin = 0
            while begin < count:
                places, finish = coming if coming is not None else start(begin)
                begin += len(places)
                coming = None
                with torch_stream():
                    batches = finish()
                    taken: list[Any] = [None] * len(batches)
                    if columns is not None and all(map(holds_edges, batches)):
                        taken = columns.take(batches)
                # On a GPU the next ones are sampled while these are handed out.
                if ahead > 1 and begin < count:
                    coming = start(begin)
                del finish
                sizes = [min(place.stop, len(input_id)) - place.start for place in places]
                distinct = [batch.level_sizes[0] == size for batch, size in zip(batches, sizes, strict=True)]
                x_of: Iterator[Any] | None = None
                if self.features is not None and steps and steps[0] is self.features:
                    with torch_stream():
                        x_of = self.features.each(
                            [batch.node_ids for batch, plain in zip(batches, distinct, strict=True) if plain]
                        )
                for k, (batch, place, rows) in enumerate(zip(batches, places, taken, strict=True)):
                    unused.popleft()
                    with torch_stream():
                        own = {} if columns is None or rows is None else columns.tensors(batch, rows)
                        data, todo = fields.data(batch, input_id[place], own), steps
                        if x_of is not None and distinct[k]:
                            data.x, todo = next(x_of), steps[1:]
                    for step in todo:
                        data = step(data)
                    yield data
            next(drawn, None)
        finally:
            # Who leaves early has drawn what was handed out, unless somebody has drawn after it.
            if unused and [*unused] == [*range(unused[0], sampler.calls)]:
                sampler.calls = unused[0]


def _only_default(name: str, value: Any, default: Any, why: str) -> None:
    """ValueError unless the argument ``name`` of PyG's, which is not supported, has its default."""
    if type(value) is not type(default) or value != default:
        raise ValueError(f"{name} must be {default!r}: {why} (got {checks.shown(value)})")


def _input_nodes(nodes: Any, num_nodes: int) -> Any:
    """Seeds as a tensor of ids or a mask; PyG would read a list of booleans or floats as ids."""
    if nodes is None:
        return None
    found = checks.array("input_nodes", nodes)
    if found.dtype.kind == "b":
        if found.shape != (num_nodes,):
            raise ValueError(
                f"input_nodes as a mask must have shape ({num_nodes},) (got {tuple(found.shape)})"
            )
        return tensor(found)
    checks.no_mask_of_bytes("input_nodes", found, num_nodes)
    return tensor(checks.ids("input_nodes", nodes, num_nodes)).long()


def _input_id(ids: Any, nodes: Any, num_nodes: int) -> Any:
    """A caller's own numbers of the seeds, a tensor; PyG would only assert their length.

    Args:
        nodes: as :func:`_input_nodes` gives them. For None PyG counts vertices, whatever ``ids`` are.
    """
    if ids is None:
        return None
    found = checks.integers("input_id", ids)
    seeds = num_nodes if nodes is None else int(nodes.sum()) if nodes.dtype == torch.bool else nodes.numel()
    if found.size != seeds:
        raise ValueError(f"input_id must have an integer for each of {seeds} input_nodes (got {found.size})")
    return tensor(found)


def _check_edges(graph: Graph, edge_index: Any) -> None:
    """ValueError where a sampler's edge ids are not columns of the data's ``edge_index`` that hold its edges."""
    ids, num_edges = graph.edge_ids, edge_index.shape[1]
    most = graph.num_edges if ids is None else 1 + int(ids.max()) if len(ids) else 0
    if most > num_edges or (ids is None and most != num_edges):
        raise ValueError(
            f"neighbor_sampler must sample from data, {num_edges} edges (got one of a graph with {most} or more)"
        )
    known, times = _compared.get(graph, (None, 0))
    if known is not None and known() is edge_index and times == times_changed(edge_index):
        return
    columns = edge_index if isinstance(edge_index, torch.Tensor) else tensor(edge_index)
    begins = range(0, graph.num_edges, _COMPARED_EDGES)
    if graph.device != columns.device.type:  # all of them would have to cross the bus
        begins = begins[:: 1 + len(begins) // _COMPARED_RUNS]
    with torch_stream():
        for begin in begins:
            _check_run(graph, slice(begin, min(begin + _COMPARED_EDGES, graph.num_edges)), columns)
    _compared[graph] = weakref.ref(edge_index), times_changed(edge_index)


def _check_run(graph: Graph, run: slice, edge_index: Any) -> None:
    """As :func:`_check_edges`, for the edges at some positions of the graph; torch's current stream is CuPy's."""
    ids = torch.arange(run.start, run.stop) if graph.edge_ids is None else tensor(graph.edge_ids[run])
    ids = ids.to(edge_index.device)
    sources, targets = tensor(graph.indices[run]), tensor(rows_of(graph.indptr, run.start, run.stop))
    edges = torch.stack([sources.long(), targets]).to(edge_index.device)
    found = edge_index[:, ids].long()
    differ = (found != edges).any(0).nonzero()
    if len(differ):
        first = int(differ[0])
        raise ValueError(
            f"neighbor_sampler must sample from data: column {int(ids[first])} of data.edge_index must be its edge "
            f"{edges[:, first].tolist()} (got {found[:, first].tolist()}); make it of data, GPUSampler(data, ...)"
        )


def _check_data(name: str, data: Any) -> None:
    """``data`` is a homogeneous ``Data`` with edges."""
    if not isinstance(data, Data):
        raise TypeError(f"{name} must be a homogeneous torch_geometric Data (got {type(data).__name__})")
    if getattr(data, "edge_index", None) is None:
        raise ValueError(f"{name} must have an edge_index (got none)")


def _check_rows(data: Any, num_nodes: int) -> None:
    """ValueError where features or labels have not one row per vertex: PyG would hand them out whole.

    Labels may also be of edges, a row each, or of the graph, in a single row.
    """
    for name, others in (("x", ()), ("y", (1, data.num_edges))):
        value = getattr(data, name, None)
        if not isinstance(value, (torch.Tensor, np.ndarray)) or value.ndim == 0:
            continue
        axis = data.__cat_dim__(name, value)
        rows = value.shape[axis] if isinstance(axis, int) else 1  # of the graph, says a class of the user's
        if rows != num_nodes and rows not in others:
            raise ValueError(f"data.{name} must have one row per vertex, {num_nodes} (got {rows})")


def _check_columns(data: Any) -> None:
    """TypeError where a column has an entry per vertex or edge and is nothing that PyG takes rows of."""
    for name, value in data:  # to_dict() has private ones, too
        is_list = isinstance(value, (list, tuple))
        if not is_list and (not isinstance(value, np.ndarray) or _is_torchs(value.dtype)):
            continue
        # Others, lists of other lengths among them, PyG hands on as they are.
        if data.is_node_attr(name) or data.is_edge_attr(name):
            got = f"a {type(value).__name__} of {len(value)}" if is_list else f"dtype {value.dtype}"
            raise TypeError(
                f"data.{name} must be a tensor or an array of numbers: mini-batches take rows of it (got {got})"
            )


def _is_torchs(dtype: np.dtype) -> bool:
    """Whether torch takes NumPy's arrays of this type."""
    try:
        torch.from_numpy(np.empty(0, dtype))
    except (TypeError, ValueError):  # not numbers, or bytes in the other order
        return False
    return True


def _order_of(sampler: Any) -> Callable[[], Iterator[Any]] | None:
    """What draws all indices of an epoch at once, as ``sampler`` draws them; None for a sampler that is not known."""
    size = len(sampler.data_source) if hasattr(sampler, "data_source") else 0
    if type(sampler) is torch.utils.data.SequentialSampler:
        return lambda: iter([torch.arange(size)])
    if (
        type(sampler) is not torch.utils.data.RandomSampler
        or sampler.replacement
        or sampler.num_samples != size
    ):
        return None

    def shuffled() -> Iterator[Any]:
        generator = sampler.generator
        if generator is None:
            seed = int(torch.empty((), dtype=torch.int64).random_().item())
            generator = torch.Generator().manual_seed(seed)
        yield torch.randperm(size, generator=generator)
        if sampler.generator is not None:  # torch draws once more at the end of an epoch, for no index
            torch.randperm(size, generator=generator)

    return shuffled


class _Fields:
    """What of a ``Data`` goes into its mini-batches: rows by vertex, rows by edge, and the rest as it is."""

    def __init__(self, by_node: dict[str, Any], by_edge: dict[str, Any], rest: dict[str, Any]) -> None:
        self.by_node, self.by_edge, self.rest = by_node, by_edge, rest

    def data(self, batch: Any, input_id: Any, taken: dict[str, Any]) -> Data:
        """A mini-batch with its rows; seeds that were given several times get rows of their own.

        Args:
            taken: rows that :meth:`columns` has taken already.
        """
        values = pyg_values(batch, taken.get("e_id"))
        del values["positions"]
        if batch.level_sizes[0] != input_id.numel():
            data = filled(Data(), values)
            _repeat_seeds(data, tensor(batch.seed_inverse).long())
            values, taken = {**data.to_dict(), "num_nodes": data.n_id.numel()}, {}
        for rows, ids in ((self.by_node, values["n_id"]), (self.by_edge, values["e_id"])):
            for name, source in rows.items():
                if name not in values:
                    values[name] = taken[name] if name in taken else source.index_select(0, ids)
        return filled(Data(), {**self.rest, **values, "input_id": input_id, "batch_size": input_id.numel()})

    def columns(self, edge_ids: Any) -> Columns | None:
        """What takes the narrow columns of several mini-batches at once; None where there are none.

        Args:
            edge_ids: of the graph that is sampled from, None where positions are the ids.
        """
        room = MAX_COLUMNS - (edge_ids is not None)
        narrow: dict[str, Any] = {}
        for name, source in (*self.by_node.items(), *self.by_edge.items()):
            if name not in _TOPOLOGY and len(narrow) < room and is_narrow(source):
                narrow[name] = source
        by_node, by_edge = (
            {k: v for k, v in narrow.items() if k in rows} for rows in (self.by_node, self.by_edge)
        )
        found = Columns(by_node, by_edge, edge_ids)
        return found if len(found) else None


def _fields_of(data: Any) -> _Fields | None:
    """None for data that only PyG knows how to filter."""
    if type(data) is not Data:
        return None
    by_node: dict[str, Any] = {}
    by_edge: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in data:
        if name in ("edge_index", "num_nodes", "batch", "seed_time"):  # PyG leaves the last two empty
            continue
        rows = by_node if data.is_node_attr(name) else by_edge if data.is_edge_attr(name) else rest
        if rows is not rest and (type(value) is not torch.Tensor or data.__cat_dim__(name, value) != 0):
            return None
        rows[name] = value
    return _Fields(by_node, by_edge, rest)


_TOPOLOGY = (
    "edge_index",
    "num_nodes",
    "n_id",
    "e_id",
    "batch_size",
    "num_sampled_nodes",
    "num_sampled_edges",
)
"""What a mini-batch has of its own, whatever the graph calls its columns."""


class _Chain:
    """Transforms, one after the other."""

    def __init__(self, steps: list[Callable]) -> None:
        self.steps = steps

    def __call__(self, data: Any) -> Any:
        for step in self.steps:
            data = step(data)
        return data


_SAMPLED_IDS = ("n_id", "e_id")
"""Ids of a sample, by which rows are found. Of data that has columns of these names PyG gives their rows instead."""


def _aside(name: str) -> str:
    """What the column ``name`` of the data is called until the ids of the sample have been used."""
    return f"{name} of data"


class _Restored:
    """A transform that gives a mini-batch the data's own ``n_id`` and ``e_id`` in place of the sample's, as PyG does.

    Args:
        names: which of the two the data has.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __call__(self, data: Any) -> Any:
        for name in self.names:
            data[name] = data[_aside(name)]
            del data[_aside(name)]
        return data


def _topology(data: Any, weight_attr: str | None) -> Graph:
    """The graph of a ``Data`` without its features and labels; edge ids are columns of ``edge_index``."""
    _check_data("graph", data)
    bare = Data(edge_index=data.edge_index, num_nodes=data.num_nodes)
    if weight_attr is not None:
        weight = getattr(data, weight_attr, None)
        if weight is None:
            raise ValueError(f"weight_attr must name an edge attribute (got {weight_attr!r})")
        edges = data.edge_index.shape[1]
        weight = checks.numbers(f"weight_attr {weight_attr!r}", weight)
        if weight.shape not in ((edges,), (edges, 1)):
            raise ValueError(
                f"weight_attr {weight_attr!r} must have shape ({edges},) (got {tuple(weight.shape)})"
            )
        bare.edge_weight = weight.reshape(-1)
        try:
            return Graph.from_pyg(bare)
        except ValueError as error:  # weights of this name there
            told = str(error).removeprefix("data.").replace("edge_weight", f"weight_attr {weight_attr!r}", 1)
            raise type(error)(told) from None
    return Graph.from_pyg(bare)


def _is_cacheable(x: Any) -> bool:
    """Whether a :class:`FeatureCache` takes these rows; others are columns of the data like any."""
    name = str(getattr(x, "dtype", "")).removeprefix("torch.")
    return (
        getattr(x, "ndim", 0) == 2
        and name in ("float32", "float16")
        and not getattr(x, "requires_grad", False)
    )


def _is_same(now: tuple[Any, ...], before: tuple[Any, ...] | None) -> bool:
    """Whether a column is the one that was seen before, and unchanged."""
    return before is not None and now[0] is before[0] and now[1:] == before[1:]


def _some_rows(cache: FeatureCache) -> bytes:
    """Up to 64 cached rows, spread over the table, as the host has them now; bytes, since NaN equals nothing."""
    if cache.on_device:  # nothing is kept apart
        return b""
    every = 1 + len(cache.cached_ids) // 64
    return bytes(cache.table[cache.cached_ids[::every]].tobytes())


def _cache(x: Any, sampler: GPUSampler, ratio: float | None, capacity_bytes: int | None) -> FeatureCache:
    if ratio is None and capacity_bytes is None:
        capacity_bytes = int(runtime.gpu_memory()[0] * CACHE_SHARE)
    degrees = sampler.sampler.graph.out_degrees()
    return FeatureCache(x, degrees, ratio=ratio, capacity_bytes=capacity_bytes, device=sampler.device)


def _slim(data: Data, sampler: GPUSampler, own: list[str], without_x: bool) -> Data:
    """``data`` as the loader filters it: on the device, columns ``own`` aside, and without what others provide."""
    slim = copy.copy(data)
    slim.num_nodes = sampler.num_nodes  # which PyG guesses where x was deleted
    if without_x:
        del slim.x
    for name in own:
        slim[_aside(name)] = slim[name]
        del slim[name]
    cut = copy.copy(slim)
    cut.edge_index = data.edge_index[:, :0]
    if {*slim.edge_attrs(), *cut.edge_attrs()} <= {"edge_index"}:
        # PyG replaces it by the sample's, and asks it for its device and for which columns have a row per edge.
        slim = cut
    return slim if sampler.device == "cpu" else slim.to(sampler.device)


__all__ = ["CachedFeatures", "GPUSampler", "NeighborLoader"]
