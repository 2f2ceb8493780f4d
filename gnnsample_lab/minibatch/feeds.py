"""Mini-batches from the samples of a sampling application: ``lab.minibatches(lab.run_app(...))``."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from gnnsample_lab.checks import instance, is_cuda_array, whole
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.arrays import array_module, merge_duplicates, offsets_of, run_starts, to_host
from gnnsample_lab.sampling.engine.results import links, votes
from gnnsample_lab.sampling.engine.results.result import AppResult
from gnnsample_lab.sampling.neighbors.spec import MAX_HOPS, HopPicks, SampleSpec

from .types import MiniBatch


def minibatches(result: Any, per_batch: int | None = None) -> list[MiniBatch]:
    """Mini-batches that models train on, one for every ``per_batch`` samples.

    The roots of the samples are the seeds. Hop h has the edges that step h drew: from a transit to each vertex drawn
    for it (individual sampling), or all edges of the graph between the transits and the vertices of the step
    (collective sampling, ``adjacency(step)``). Repeated vertices and edges of a mini-batch are merged, in first-seen
    order. A vertex that was reached before keeps its edges: the block of hop h holds, for each of its destinations,
    the edges that all steps up to h drew for it, just as GraphSAGE uses the same neighbours of a seed in every layer.

    The streams that are current in the call wait for the result and may read the mini-batches; other streams wait for
    the ``ready`` of a mini-batch. The same holds for :func:`induced_batches` and :func:`voted_batch`.

    Args:
        result: an :class:`~gnnsample_lab.sampling.engine.results.result.AppResult` of at most 15 steps, whose
            transits are kept, as those of the step before are; on either device.
        per_batch: samples per mini-batch; by default one where samples have several roots (a sample is a mini-batch),
            else all.

    Returns:
        :class:`~.types.MiniBatch` objects, with ``batch_id`` from 0 on. Of parallel edges ``positions`` has the lowest
        position; it is -1 where an application joins vertices that no edge joins. ``spec.fanouts`` are the step sizes.

    Raises:
        ValueError: more than 15 steps (walks: see :func:`voted_batch`), no steps or no samples, transits that were
            not kept (:meth:`AppResult.transits`), or a mini-batch without a root.
    """
    _check_result(result)
    if not 1 <= result.num_steps <= MAX_HOPS:
        raise ValueError(
            f"result must have 1 to {MAX_HOPS} steps, the hops (got {result.num_steps} steps); "
            "voted_batch(result, k) makes one of the neighbours that walks vote for"
        )
    samples, num_roots = result.roots.shape
    if samples == 0:
        raise ValueError("result has no samples to make mini-batches of")
    if per_batch is None:
        per_batch = 1 if num_roots > 1 else samples
    per_batch = whole("per_batch", per_batch, 1, 2**40)
    with runtime.lock, _made(result) as ready:
        return _Feed(result, per_batch).batches(ready)


def induced_batches(result: Any, layers: int = 2) -> list[MiniBatch]:
    """Mini-batches of whole sub-graphs, one per sample: every vertex is a seed and every layer has all edges.

    ClusterGCN trains in this way: a sample is a few clusters, and messages flow along all edges among their vertices.

    Args:
        result: an :class:`~gnnsample_lab.sampling.engine.results.result.AppResult`, on either device.
        layers: blocks of a mini-batch, 1 to 15, all of the same edges.

    Returns:
        :class:`~.types.MiniBatch` objects, with ``batch_id`` from 0 on and ascending ``node_ids``. All parallel edges
        are included. ``spec.fanouts`` are -1: all in-neighbours in the sample.

    Raises:
        TypeError, ValueError: ``result`` is no AppResult, or ``layers`` is not allowed.
    """
    _check_result(result)
    layers = whole("layers", layers, 1, MAX_HOPS)
    with runtime.lock, _made(result) as ready:
        found = links.induced(result)
        begins, made = to_host(found.begins), []
        xp, bounds = array_module(found.vertices), to_host(found.indptr[found.begins])
        spec = SampleSpec((-1,) * layers, seed=result.seed)
        for sample in range(begins.size - 1):
            own, edges = slice(begins[sample], begins[sample + 1]), slice(bounds[sample], bounds[sample + 1])
            nodes, local = found.vertices[own], found.indices[edges]
            offsets = found.indptr[own.start : own.stop + 1] - bounds[sample]
            counts = xp.diff(offsets).astype(np.int32)
            picks = HopPicks(nodes, counts, nodes[local], found.positions[edges], offsets)
            made.append(MiniBatch(
                nodes, (int(nodes.size),) * (layers + 1), (picks,) * layers, (local,) * layers,
                xp.arange(nodes.size), sample, spec, result.graph, ready=ready,
            ))  # fmt: skip
    return made


def voted_batch(result: Any, k: int) -> MiniBatch:
    """One mini-batch of one hop: each root and the ``k`` vertices that its walks visit most (PinSAGE).

    Args:
        result: an :class:`~gnnsample_lab.sampling.engine.results.result.AppResult` of samples with one root
            each, several of which may share it.
        k: as for :func:`~gnnsample_lab.sampling.engine.results.votes.top`.

    Returns:
        A :class:`~.types.MiniBatch` whose seeds are the distinct roots and whose ``pick_weights`` are the visits. Its
        positions are -1, because a walk joins two vertices that need not be neighbours.

    Raises:
        ValueError: samples have several roots, or none has one.
    """
    _check_result(result)
    with runtime.lock, _made(result) as ready:
        found = votes.top(result, k)
        if not found.roots.size:
            raise ValueError("result has no sample with a root")
        xp, seeds = array_module(found.roots), int(found.roots.size)
        nodes, places, _ = merge_duplicates(xp.concatenate([found.roots, found.neighbors]))
        roots = result.roots.reshape(-1)
        inverse = merge_duplicates(roots[roots >= 0])[1]
        positions = xp.full(found.neighbors.size, -1, np.int64)
        # The offsets are made here, in memory that knows its readers.
        picks = HopPicks(found.roots, found.counts, found.neighbors, positions, found.offsets)
        spec = SampleSpec((int(k),), replace=True, seed=result.seed)
        return MiniBatch(
            nodes, (seeds, int(nodes.size)), (picks,), (places[seeds:].astype(np.int32),), inverse, 0, spec,
            result.graph, pick_weights=(found.visits,), ready=ready,
        )  # fmt: skip


def _made(result: Any) -> AbstractContextManager[Any]:
    """A context for computing from ``result``: orders work after it and leases the memory of what is made."""
    result.ready.order()
    return streams.results(is_cuda_array(result.roots))


class _Feed:
    """Builds all mini-batches of a result at once: keys vertices and edges by group, sorts them, cuts at the end.

    A group is the samples of one mini-batch. A *number* identifies a vertex of a group: numbers count the vertices of
    all groups, group by group, each in order of discovery.
    """

    def __init__(self, result: Any, per_batch: int) -> None:
        self.result, self.graph, self.per_batch = result, result.graph, per_batch
        self.xp = array_module(result.roots)
        self.num_groups = -(-result.num_samples // per_batch)
        self.hops = result.num_steps
        self._number_vertices([result.roots, *result.steps])
        self._merge_edges()

    def _number_vertices(self, layers: list[Any]) -> None:
        xp, num_nodes = self.xp, self.graph.num_nodes
        keys, widths = [], []
        for layer in layers:
            group = xp.arange(layer.shape[0], dtype=np.int64)[:, None] // self.per_batch
            keys.append(xp.where(layer >= 0, group * num_nodes + layer, -1).reshape(-1))
            widths.append(keys[-1].size)
        flat = xp.concatenate(keys)
        live = flat >= 0
        stage = xp.concatenate([xp.full(n, i, np.int64) for i, n in enumerate(widths)])[live]
        distinct, places, at = merge_duplicates(flat[live])
        # First-seen order runs through layers first; now through groups first, and in each through layers.
        order = xp.argsort(distinct // num_nodes, kind="stable")
        number = xp.empty(order.size, dtype=np.int64)
        number[order] = xp.arange(order.size)
        self.vertices = (distinct % num_nodes)[order].astype(self.graph.indices.dtype)
        self.slots = xp.full(flat.size, -1, np.int64)
        self.slots[live] = number[places]
        self.layer_begins = [0, *np.cumsum(widths).tolist()]
        reached = stage[at][order]
        group = distinct[order] // num_nodes
        found = xp.bincount(group * (self.hops + 1) + reached, minlength=self.num_groups * (self.hops + 1))
        found = found.reshape(self.num_groups, self.hops + 1)
        self.levels = to_host(xp.cumsum(found, axis=1))  # one wait for all mini-batches
        self.begins = np.concatenate([[0], np.cumsum(self.levels[:, -1])])
        if not self.levels[:, 0].all():
            raise ValueError(f"mini-batch {int(np.argmin(self.levels[:, 0]))} has no root")

    def _layer(self, i: int) -> Any:
        """Numbers of the vertices in layer ``i`` (0: roots), ``[S, width]``, -1 for NULL."""
        return self.slots[self.layer_begins[i] : self.layer_begins[i + 1]].reshape(
            self.result.num_samples, -1
        )

    def _drawn(self, step: int) -> tuple[Any, Any]:
        """Numbers of destination and source of every edge of a step, in slot order."""
        xp, shape = self.xp, self.result.shape[step]
        if self.result.app.is_collective:
            found = links.adjacency(self.result, step)
            return self._layer(step)[found.sample, found.row], self._layer(step + 1)[
                found.sample, found.column
            ]
        self.result.transits(step)  # raises where transits were drawn
        transits = self._layer(step)
        source = self._layer(step + 1).reshape(transits.shape[0], shape.transits, shape.size)
        known = min(shape.transits, transits.shape[1])
        source = source[:, :known]
        destination = xp.broadcast_to(transits[:, :known, None], source.shape).reshape(-1)
        source = source.reshape(-1)
        live = (source >= 0) & (destination >= 0)
        return destination[live], source[live]

    def _merge_edges(self) -> None:
        xp, total = self.xp, max(1, self.vertices.size)
        drawn = [self._drawn(step) for step in range(self.hops)]
        keys = xp.concatenate([d * total + s for d, s in drawn])
        hop = xp.concatenate([xp.full(d.size, i, np.int64) for i, (d, _) in enumerate(drawn)])
        order = xp.argsort(keys, kind="stable")
        first = xp.sort(order[run_starts(keys[order])])  # in first-seen order, so that hops ascend
        rows = xp.argsort(keys[first] // total, kind="stable")
        first = first[rows]
        self.destination, self.source, self.hop = keys[first] // total, keys[first] % total, hop[first]
        self.positions = links.locate(self.graph, self.vertices[self.destination], self.vertices[self.source])

    def batches(self, ready: Any) -> list[MiniBatch]:
        """Cut into mini-batches, which hold views into common arrays; ``ready`` is the event after those are made."""
        hops = [self._hop(hop) for hop in range(self.hops)]
        spec = SampleSpec(tuple(s.size for s in self.result.shape), replace=True, seed=self.result.seed)
        made = []
        for group in range(self.num_groups):
            begin, end = int(self.begins[group]), int(self.begins[group + 1])
            levels = tuple(int(n) for n in self.levels[group])
            rows = slice(group * self.per_batch, (group + 1) * self.per_batch)
            inverse = self._layer(0)[rows].reshape(-1)
            inverse = inverse[inverse >= 0]  # rows of roots may be filled up with NULL
            nodes, picks, local = self.vertices[begin:end], [], []
            for level, (counts, offsets, bounds, source, positions) in zip(levels, hops):
                edges = slice(int(bounds[group]), int(bounds[group + 1]))
                ids = source[edges] - begin
                own = offsets[begin : begin + level + 1] - int(bounds[group])
                picks.append(
                    HopPicks(nodes[:level], counts[begin : begin + level], nodes[ids], positions[edges], own)
                )
                local.append(ids.astype(np.int32))
            made.append(MiniBatch(
                nodes, levels, tuple(picks), tuple(local), inverse - begin, group, spec, self.graph, ready=ready,
            ))  # fmt: skip
        return made

    def _hop(self, hop: int) -> tuple[Any, Any, np.ndarray, Any, Any]:
        """Edges of hop ``hop``: counts and offsets of all numbers, begins of the groups, sources, positions."""
        xp = self.xp
        kept = self.hop <= hop
        counts = xp.bincount(self.destination[kept], minlength=self.vertices.size)
        offsets = offsets_of(counts)
        bounds = to_host(offsets[xp.asarray(self.begins)])
        return counts.astype(np.int32), offsets, bounds, self.source[kept], self.positions[kept]


def _check_result(result: Any) -> None:
    instance("result", result, AppResult, "what run_app returned, an AppResult")
