"""``NeighborSampler``: seeds in, mini-batches out, on either device, by any strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, flag, num_bytes, whole
from gnnsample_lab.device import runtime
from gnnsample_lab.device.philox import MAX_DEGREE
from gnnsample_lab.graph.graph import check_graph
from gnnsample_lab.sampling.neighbors.spec import COMPLETIONS, QUEUES, check_pick, make_spec
from gnnsample_lab.sampling.neighbors.strategies import PER_HOP_STRATEGIES, QUEUE_STRATEGIES, STRATEGIES
from gnnsample_lab.sampling.weights import integer_weights

from .batched import BatchSampler, Coming
from .cpu import CpuTables, keep_rows, sample_cpu
from .id_map.ladder import ID_MAPS, SAMPLER_DEFAULT
from .types import MiniBatch

CPU_DEFAULT_SCHEDULE = "captured"
"""The schedule that ``strategy="auto"`` replays on a CPU, where nothing is measured: the fastest on measured GPUs."""


class NeighborSampler(BatchSampler):
    """k-hop neighbour sampling with GraphSAGE semantics.

    The sample is a function of ``(graph, fanouts, pick, replace, weighted, expand, seed, seeds, batch_id)``;
    ``strategy`` and ``device`` decide only how it is computed, and change no pick.

    Args:
        graph: a :class:`~gnnsample_lab.graph.Graph`; moved to ``device`` if it is elsewhere.
        fanouts: picks per vertex for each hop; ``fanouts[0]`` is for the seeds. -1 takes all in-neighbours.
        strategy: a name of ``lab.strategies()``. On the CPU it selects the schedule that a trace replays.
        pick: ``"floyd"``, ``"reservoir"`` or, with ``strategy="block-bsp"``, ``"fisher-yates"``, see
            :class:`~gnnsample_lab.sampling.neighbors.spec.SampleSpec`.
        weighted: draw in proportion to ``graph.edge_weight``, rounded to multiples of 2**-31 of the graph's largest
            weight (a warning says so where that is coarse); a positive weight is never rounded to 0.
        replace: draw with replacement.
        expand: ``"frontier"`` (DGL, PGSampler) or ``"new"`` (PyTorch Geometric, cuGraph).
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        seed: 64-bit key of the generator.
        trace: attach a :class:`~gnnsample_lab.traces.SampleTrace` to every mini-batch: measured on a GPU, modelled
            on a CPU.
        scratch_bytes: bound of the GPU scratch memory; default 5 % of the free memory.
        completion: ``"exact"``, or ``"paper"`` for PGSampler's published rule, which can lose tasks
            (``strategy="persistent"`` only).
        fetch_size: tasks that a block takes from the queue at a time (persistent strategies). On a GPU it takes up to
            eight times as many, at most 32, where tasks wait, and fewer where few do; as many as said under
            ``completion="paper"`` and ``queue="blocks"``.
        id_map: how picks get local ids, a name of ``lab.id_maps()``. The per-hop strategies (``"block-bsp"``,
            ``"edge-bsp"``, ``"turbo-bsp"``) take every map but ``"in-sampler"``, by default DGL's
            ``"insert-count-compact"``; all others relabel while they draw: ``"in-sampler"``. It changes no sample,
            only the order of new vertices within a hop; on the CPU one twin serves all.
        queue: who serves the queue of ``strategy="persistent"`` on a GPU: ``"teams"``, the threads of a block share
            several tasks (ours), or ``"blocks"``, a block serves one task at a time, as PGSampler was published
            (section III). Four things are not Algorithm 1's: a test of the end that loses no task, places in the queue
            taken once for all new tasks of a block, a look ahead at the lists of a whole fetch, and duplicates removed
            by stamps, bitmaps or a hash, whichever fits. It changes no sample.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or not allowed; the message names it.
        RuntimeError: ``device="cuda"`` without a usable GPU.
    """

    def __init__(
        self,
        graph: Any,
        fanouts: Sequence[int],
        strategy: str = "auto",
        pick: str = "floyd",
        weighted: bool = False,
        replace: bool = False,
        expand: str = "frontier",
        device: str = "auto",
        seed: int = 0,
        trace: bool = False,
        scratch_bytes: int | None = None,
        completion: str = "exact",
        fetch_size: int = 5,
        id_map: str = "auto",
        queue: str = "teams",
    ) -> None:
        check_graph(graph)
        self.spec = make_spec(fanouts, pick, replace, weighted, expand, seed)
        choice("strategy", strategy, STRATEGIES)
        choice("completion", completion, COMPLETIONS)
        check_pick(self.spec, strategy)
        if expand == "new" and strategy in QUEUE_STRATEGIES:
            raise ValueError(
                f"expand='new' needs hop order, which strategy={strategy!r} does not keep: "
                "use expand='frontier' or a strategy with a barrier between hops"
            )
        if completion == "paper" and strategy != "persistent":
            raise ValueError(
                f"completion='paper' exists for strategy='persistent' only (got strategy={strategy!r})"
            )
        if choice("queue", queue, QUEUES) == "blocks" and strategy != "persistent":
            raise ValueError(
                f"queue='blocks' exists for strategy='persistent' only (got strategy={strategy!r})"
            )
        if self.spec.weighted and graph.edge_weight is None:
            raise ValueError("weighted=True needs a graph with edge_weight")
        if scratch_bytes is not None:
            scratch_bytes = num_bytes("scratch_bytes", scratch_bytes, 1)
        fetch_size, trace = whole("fetch_size", fetch_size, 1, 1024), flag("trace", trace)
        self.id_map = _resolve_id_map(id_map, strategy)
        self.device = runtime.resolve_device(device)
        if trace and queue == "blocks" and self.device == "cpu":
            raise ValueError("queue='blocks' has no model that a CPU could replay: trace it on a GPU")
        self.graph = graph if graph.device == self.device else graph.to(self.device)
        if self.graph.max_in_degree > MAX_DEGREE:
            raise ValueError(
                f"graph has a vertex of in-degree {self.graph.max_in_degree}; at most {MAX_DEGREE} works"
            )
        self.strategy = strategy
        self.completion = completion
        self.fetch_size = fetch_size
        self.queue = queue
        self.trace = trace
        self._weights = integer_weights(self.graph.indptr, self.graph.edge_weight) if weighted else None
        self._engine: Any
        if self.device == "cuda":
            from gnnsample_lab.sampling.neighbors.guide import with_guide
            from gnnsample_lab.sampling.neighbors.launch import Knobs

            from .gpu.run import GpuEngine

            if self._weights is not None:
                self._weights = with_guide(self.graph, self._weights, scratch_bytes)
            self._engine = GpuEngine(
                self.graph, self.spec, self._weights, strategy, self.completion, self.fetch_size, self.trace,
                scratch_bytes, knobs=Knobs(queue_teams=queue == "teams"), id_map=self.id_map,
            )  # fmt: skip
        else:
            self._engine = CpuTables(self.graph.num_nodes)

    @property
    def reason(self) -> str:
        """Why this strategy runs. With ``strategy="auto"`` it gives the strategies' measured times; after calls with
        several mini-batches it also gives the measured times for numbers of mini-batches per launch."""
        if self.device == "cpu":
            schedule = CPU_DEFAULT_SCHEDULE if self.strategy == "auto" else self.strategy
            return f"the CPU twin computes every sample; a trace replays the schedule {schedule!r}"
        shared = [f"up to {seeds} seeds, {w}" for seeds, w in self._engine.waves.items() if w.us]
        return "; ".join([self._engine.reason, *shared])

    def _run(self, arrays: list[Any], first: int) -> list[MiniBatch]:
        if self.device == "cuda":
            batches: list[MiniBatch] = self._engine.sample_many(arrays, first)
            return batches
        return [self._sample_cpu(a, first + i) for i, a in enumerate(arrays)]

    def _start(self, arrays: list[Any], first: int) -> Coming:
        if self.device == "cuda":
            return Coming(self._lock, self._engine.start(arrays, first))
        return super()._start(arrays, first)

    def _starts(self, count: int, most_seeds: int) -> int:
        if self.device == "cpu":
            return 0
        with self._lock:
            return int(self._engine.starts(count, most_seeds))

    def _sample_cpu(self, seeds: np.ndarray, batch_id: int) -> MiniBatch:
        batch = sample_cpu(self.graph, self.spec, self._weights, self._engine, seeds, batch_id)
        if not self.trace and self.completion == "exact":
            return batch
        from gnnsample_lab.sampling.neighbors.schedule import replay

        strategy = CPU_DEFAULT_SCHEDULE if self.strategy == "auto" else self.strategy
        degrees = [np.diff(self.graph.indptr)[p.frontier] for p in batch.picks]
        spec = self.spec
        trace, masks = replay(
            batch.picks, degrees, strategy=strategy, pick=spec.pick, fanouts=spec.fanouts,
            num_nodes=self.graph.num_nodes, fetch_size=self.fetch_size, completion=self.completion,
            graph_name=self.graph.name, graph_is_synthetic=self.graph.is_synthetic, seed=spec.seed,
            batch_id=batch_id, replace=spec.replace, weighted=spec.weighted, expand=spec.expand,
        )  # fmt: skip
        if self.completion == "paper":
            batch = keep_rows(batch, masks, self._engine)
        return replace(batch, trace=trace) if self.trace else batch

    def __repr__(self) -> str:
        return (
            f"NeighborSampler({self.graph.name!r}, fanouts={list(self.fanouts)}, strategy={self.strategy!r}, "
            f"device={self.device!r})"
        )


def _resolve_id_map(id_map: str, strategy: str) -> str:
    """The ID map that ``strategy`` uses; ``"auto"`` until the strategy is chosen."""
    choice("id_map", id_map, ("auto", *ID_MAPS))
    if strategy in PER_HOP_STRATEGIES:
        if id_map == "in-sampler":
            raise ValueError(
                f"id_map='in-sampler' exists for strategies that relabel while they draw, not for "
                f"strategy={strategy!r}: use another of lab.id_maps() (got id_map='in-sampler')"
            )
        return SAMPLER_DEFAULT if id_map == "auto" else id_map
    if id_map not in ("auto", "in-sampler"):
        raise ValueError(
            f"id_map must be 'auto' or 'in-sampler' with strategy={strategy!r}, which relabels while it draws; "
            f"{', '.join(map(repr, PER_HOP_STRATEGIES))} take the others (got id_map={id_map!r})"
        )
    return id_map if strategy == "auto" else "in-sampler"
