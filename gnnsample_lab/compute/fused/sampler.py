"""``FusedSampler``: mini-batches whose last hop is summed as it is drawn."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, instance
from gnnsample_lab.compute.aggregation.csr import is_tensor
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.features.caching.stats import Counted, ExtractStats
from gnnsample_lab.minibatch.batched import BatchSampler, Coming
from gnnsample_lab.minibatch.export import ArenaTensors, tensor
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.plan import WANTED_ROWS
from gnnsample_lab.sampling.neighbors.spec import SampleSpec, check_pick, make_spec

from .block import SummedBlock
from .first_sum import Counters, FirstSum, SumsAlong, ends_of, first_sum_cpu

REDUCES = ("mean", "sum")


@dataclass(frozen=True, eq=False)
class FusedBatch:
    """A mini-batch whose last hop is drawn and summed when it is asked for, or with the hops before.

    Attributes:
        sample: the hops before the last (:class:`~gnnsample_lab.MiniBatch`).
        spec: settings of the draw, all hops.
        sampler: what made it.
    """

    sample: MiniBatch
    spec: SampleSpec
    sampler: FusedSampler = field(repr=False)

    @property
    def node_ids(self) -> Any:
        """Vertices that the last hop expands, global ids, the seeds first: ``x`` has their rows."""
        return self.sample.node_ids

    @property
    def seeds(self) -> Any:
        """The distinct seeds in first-seen order, global ids."""
        return self.sample.seeds

    @property
    def seed_inverse(self) -> Any:
        """As in :class:`~gnnsample_lab.MiniBatch`."""
        return self.sample.seed_inverse

    @property
    def batch_id(self) -> int:
        return self.sample.batch_id

    @property
    def graph(self) -> Any:
        return self.sample.graph

    @property
    def ready(self) -> Any:
        """An event after the hops before the last."""
        return self.sample.ready

    @property
    def num_edges(self) -> int:
        """Picks of all hops; those of the last one are counted as they are drawn, and reading waits for that."""
        return counted_edges(self) + self.stats.picks

    @cached_property
    def _first(self) -> SummedBlock:
        # Nothing that the block holds refers to this mini-batch: in a cycle memory would wait for Python's collector.
        gather = functools.partial(self.sampler._made, self.sample, self._known)
        return SummedBlock(self.node_ids, gather, self.sampler.reduce, 2 * self.sampler.num_features)

    @cached_property
    def _known(self) -> dict[str, ExtractStats]:
        """``"stats"``, once the last hop's launch was one of its own."""
        return {}

    @property
    def x(self) -> Any:
        """Rows of :attr:`node_ids`, tensor ``float32[n, F]``; read together with the last hop."""
        return self._first.own

    @property
    def stats(self) -> ExtractStats:
        """How rows came: those of :attr:`node_ids`, and those of the last hop's picks, one for each pick."""
        if not self._known:
            lengths = self._first.lengths
            if not self._known:
                self._known["stats"] = self.sampler._stats_of(self.sample, lengths)
        return self._known["stats"]

    @property
    def blocks(self) -> tuple[Any, ...]:
        """A :class:`SummedBlock` of the last hop, and the blocks before: ``model(batch.blocks, batch.x)``."""
        return (self._first, *self.sample.blocks)

    def __repr__(self) -> str:
        sizes = " -> ".join(str(n) for n in self.sample.level_sizes)
        return f"FusedBatch(batch_id={self.batch_id}, nodes per hop {sizes}, then summed)"


class FusedSampler(BatchSampler):
    """k-hop neighbour sampling with the last hop, its rows of features and the first layer's sum in one pass.

    The last hop has most of a mini-batch's vertices, and the first layer needs nothing of them but sums over picks. So
    one kernel draws the picks of a vertex, reads their rows of features where these lie, and adds them up: the picks
    get no local ids, and there is no array with a row for each of them. Picks are those of
    :class:`~gnnsample_lab.NeighborSampler` with the same arguments, bit for bit.

    ``model(batch.blocks, batch.x)`` is what models of :func:`~gnnsample_lab.make_model` compute of a plain mini-batch,
    for ``"gcn"``, ``"sage"`` and ``"gin"``; attention needs the rows one by one, so that ``"gat"`` refuses. Features
    get no gradient.

    On a GPU that holds all features, the launch that draws the other hops draws and sums the last one, too, once
    ``x`` or a sum of a mini-batch before has been read: rows are then as they were when the mini-batch was sampled.

    Args:
        graph: a :class:`~gnnsample_lab.Graph`; moved to ``device`` if it is elsewhere.
        fanouts: picks per vertex for each hop, two hops or more.
        features: a :class:`~gnnsample_lab.FeatureCache` of float32 on the same device; rows that it does not hold are
            read from page-locked host memory, once per pick. None: the graph's features, all on the device.
        reduce: what the first layer asks for, ``"mean"`` or ``"sum"``; a layer that asks for the other gets it from the
            number of picks.
        pick, weighted, replace, expand, device, seed: as in :class:`~gnnsample_lab.NeighborSampler`.
        strategy: for the hops before the last, likewise.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or not allowed; the message names it.
        RuntimeError: ``device="cuda"`` without a usable GPU.
    """

    def __init__(
        self,
        graph: Any,
        fanouts: Sequence[int],
        features: Any = None,
        reduce: str = "mean",
        *,
        pick: str = "floyd",
        weighted: bool = False,
        replace: bool = False,
        expand: str = "frontier",
        strategy: str = "auto",
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        from gnnsample_lab.features.caching.cache import FeatureCache

        self.spec = make_spec(fanouts, pick, replace, weighted, expand, seed)
        check_pick(self.spec, "FusedSampler", "sampler")
        if self.spec.num_hops < 2:
            raise ValueError(f"fanouts must name two hops or more (got {list(self.spec.fanouts)})")
        self.reduce = choice("reduce", reduce, REDUCES)
        self.inner = NeighborSampler(
            graph, self.spec.fanouts[:-1], strategy, pick, weighted, replace, expand, device, seed
        )
        self.graph, self.device, self._engine = self.inner.graph, self.inner.device, self.inner._engine
        if features is None:
            if graph.feat is None:
                raise ValueError(f"graph {graph.name!r} has no features: give features")
            features = FeatureCache(graph.feat, ratio=1.0, device=self.device)
        self.features = instance("features", features, FeatureCache, "a FeatureCache")
        if str(features.dtype) != "float32":
            raise TypeError(f"features must be float32 (got {features.dtype})")
        if features.device != self.device or features.num_nodes != self.graph.num_nodes:
            raise ValueError(
                f"features must have a row for each of {self.graph.num_nodes} vertices on device {self.device!r} "
                f"(got {features.num_nodes} on {features.device!r})"
            )
        self.num_features = features.num_features
        self._weights = self.inner._weights
        self._sum: FirstSum | None = None
        self._counters = Counters()
        if self.device == "cuda":
            self._sum = FirstSum(
                self.graph, self.spec, self._weights, features.rows_on_gpu(), self.num_features
            )
            along = SumsAlong.of_table(self._sum, reduce == "mean", self._engine.id_type)
            if along is not None:
                self._engine.brings(along)

    def _run(self, arrays: list[Any], first: int) -> Any:
        return self._fused(self.inner._run(arrays, first))

    def _start(self, arrays: list[Any], first: int) -> Coming:
        return self.inner._start(arrays, first).wrapped(self._fused)

    def _starts(self, count: int, most_seeds: int) -> int:
        return self.inner._starts(count, most_seeds)

    def _fused(self, samples: Sequence[MiniBatch]) -> list[Any]:
        return [FusedBatch(sample, self.spec, self) for sample in samples]

    def _made(
        self, sample: MiniBatch, known: dict[str, ExtractStats], table: Any, lengths: Any
    ) -> tuple[Any, Any]:
        """Own rows beside sums, and picks, as tensors: arguments as of :meth:`_gather`.

        Where the launch that drew the mini-batch has made them, views of its memory, or copies. Whoever wants new
        memory makes later launches do so.

        Args:
            known: gets the ``"stats"`` of a launch of its own.
        """
        arena = getattr(sample, "arena", None)
        if arena is not None and arena.wishes.sums:
            if arena.holds_sums:
                made = ArenaTensors(arena).sums(2 * self.num_features)
                if table is None:
                    return made
                for target, source in zip((table, lengths), made, strict=True):
                    target[: sample.num_nodes].copy_(source)
                return table, lengths
            if table is None:
                arena.wishes.bits |= WANTED_ROWS
        table, lengths, known["stats"] = self._gather(sample, table, lengths)
        return (table, lengths) if is_tensor(table) else (tensor(table), tensor(lengths))

    def _stats_of(self, sample: MiniBatch, lengths: Any) -> ExtractStats:
        """Statistics of sums that came with the launch of the hops before; they do not hold the mini-batch's memory."""
        import torch

        sample.ready.order()
        picks = lengths.sum(dtype=torch.float64)
        with streams.torch_stream():
            ready = streams.Ready()

        def count() -> Counted:
            ready.synchronize()
            return Counted(0, picks=int(picks))

        return self._stats(sample.num_nodes, runtime.device_name(), count, ready)

    def _gather(
        self, sample: MiniBatch, table: Any = None, lengths: Any = None
    ) -> tuple[Any, Any, ExtractStats]:
        """Draw the last hop of a mini-batch and sum its rows.

        Args:
            sample: the hops before the last, drawn by this sampler.
            table: where to write, ``float32[n or more, 2 F]``: the own row of each vertex beside its sum or mean.
            lengths: where to write the picks of each vertex, ``float32[n or more]``.

        Returns:
            ``(table, lengths, stats)``; where none is given, new arrays of NumPy on the CPU and tensors on the GPU.
        """
        cache = self.features
        n, half = sample.num_nodes, self.num_features
        ends, mean = ends_of(sample.level_sizes, self.spec.expand), self.reduce == "mean"
        if self._sum is None:
            made = table is None
            table = np.empty((n, 2 * half), np.float32) if made else table
            lengths = np.empty(n, np.float32) if made else lengths
            rows, counts = (np.asarray(a)[:n] for a in (table, lengths))
            picked = first_sum_cpu(
                self.graph, self.spec, self._weights, cache.table, sample.node_ids, ends, sample.batch_id,
                rows[:, :half], rows[:, half:], counts, mean,
            )  # fmt: skip
            misses = (
                0
                if cache.all_cached
                else sum(cache.mark(ids).num_misses for ids in (sample.node_ids, *picked))
            )
            known = Counted(misses, picks=sum(map(len, picked)))
            return table, lengths, self._stats(n, "the CPU", known, streams.DONE)
        import cupy
        import torch

        before = cupy.cuda.get_current_stream()
        # Memory of torch's: a tensor costs less than an array in leased memory that is exported.
        with streams.torch_stream() as stream:
            if stream.ptr != before.ptr:
                stream.wait_event(before.record())
            sample.ready.order()
            streams.order(self._sum.rows.cache, self._sum.rows.slots)
            if table is None:
                table = torch.empty(n, 2 * half, dtype=torch.float32, device="cuda")
                lengths = torch.empty(n, dtype=torch.float32, device="cuda")
            counted, read = self._counters.take()
            self._sum.launch(sample.node_ids, ends, sample.batch_id, table, lengths, mean, counted)
            ready = streams.Ready()

        def count() -> Counted:
            ready.synchronize()
            picks, misses = read()
            return Counted(misses, picks=picks)

        return table, lengths, self._stats(n, runtime.device_name(), count, ready)

    def _stats(
        self, rows: int, where: str, count: Counted | Callable[[], Counted], ready: Any
    ) -> ExtractStats:
        cache = self.features
        return ExtractStats(rows, cache.row_bytes, cache.transfer, f"measured on {where}", count, ready)

    def __repr__(self) -> str:
        return (
            f"FusedSampler({self.graph.name!r}, fanouts={list(self.fanouts)}, reduce={self.reduce!r}, "
            f"device={self.device!r})"
        )


def counted_edges(batch: Any) -> int:
    """Picks of a mini-batch that its statistics do not have: none of a :class:`FusedBatch` that sums the picks of all
    hops (``expand="new"``), those of the hops before the last of any other, all of a plain one."""
    if not isinstance(batch, FusedBatch):
        return int(batch.num_edges)
    return 0 if batch.spec.expand == "new" else int(batch.sample.num_edges)
