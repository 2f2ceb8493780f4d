"""``PinSAGESampler``: mini-batches whose edges are chosen by the visits of random walks."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.checks import num_bytes
from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import merge_duplicates
from gnnsample_lab.graph.graph import check_graph
from gnnsample_lab.minibatch.batched import BatchSampler
from gnnsample_lab.minibatch.cpu import Builder, CpuTables
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.walks.pinsage import WalkSpec, make_walk_spec, walk_hop


class PinSAGESampler(BatchSampler):
    """Random-walk neighbourhoods layer by layer (PinSAGE; the third sampling algorithm of GNNLab, section 7).

    In every layer each vertex reached so far starts ``num_walks`` walks along in-neighbours, drawn uniformly. The
    ``num_neighbors`` other vertices that these walks visit most often become its neighbours; of equally visited
    vertices the lower id comes first. ``batch.pick_weights`` and ``block.weight`` are the numbers of visits. The graph
    need not have such an edge, so ``positions`` are -1. The sample is a function of the arguments, the seeds and
    ``batch_id``, the same on both devices.

    Args:
        graph: a :class:`~gnnsample_lab.graph.Graph`; moved to ``device`` if it is elsewhere.
        num_layers: number of hops; every hop expands all vertices reached so far.
        num_neighbors: neighbours kept per vertex.
        num_walks, walk_length: walks per vertex and their steps. A walk ends early where there is no in-neighbour.
        restart: probability that a step leaves from the walk's start instead of the walk's present vertex. GNNLab's
            release walks with 0.5 and ``restart_ends``, as its baseline in DGL does; its paper names no restart.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        seed: 64-bit key of the generator.
        scratch_bytes: bound of the GPU scratch memory, default 5 % of the free memory; it decides how many mini-batches
            share a launch. A single mini-batch is sampled even if it needs more.
        restart_ends: a walk ends where it would restart, as released.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or not allowed; the message names it.
        RuntimeError: ``device="cuda"`` without a usable GPU.
    """

    def __init__(
        self,
        graph: Any,
        num_layers: int = 3,
        num_neighbors: int = 5,
        num_walks: int = 4,
        walk_length: int = 3,
        restart: float = 0.0,
        device: str = "auto",
        seed: int = 0,
        scratch_bytes: int | None = None,
        restart_ends: bool = False,
    ) -> None:
        check_graph(graph)
        self.spec: WalkSpec = make_walk_spec(
            num_layers, num_neighbors, num_walks, walk_length, restart, seed, restart_ends
        )
        if scratch_bytes is not None:
            scratch_bytes = num_bytes("scratch_bytes", scratch_bytes, 1)
        self.device = runtime.resolve_device(device)
        self.graph = graph if graph.device == self.device else graph.to(self.device)
        if self.graph.max_in_degree >= 2**32:
            raise ValueError(
                f"graph has a vertex of in-degree {self.graph.max_in_degree}; walks draw below 2**32"
            )
        self._engine: Any
        if self.device == "cuda":
            from .gpu import WalkEngine

            self._engine = WalkEngine(self.graph, self.spec, scratch_bytes)
        else:
            self._engine = CpuTables(self.graph.num_nodes)

    @property
    def reads_gpu_seeds(self) -> bool:
        """No: they are merged on the host, and kernels read them from page-locked memory."""
        return False

    def _run(self, arrays: list[Any], first: int) -> list[MiniBatch]:
        if self.device == "cuda":
            batches: list[MiniBatch] = self._engine.sample_many(arrays, first)
            return batches
        return [self._sample_cpu(*merge_duplicates(a)[:2], first + i) for i, a in enumerate(arrays)]

    def _sample_cpu(self, seeds: np.ndarray, inverse: np.ndarray, batch_id: int) -> MiniBatch:
        graph, spec = self.graph, self.spec
        batch, weights = Builder(graph, self._engine, seeds), []
        for hop in range(spec.num_hops):
            picks, votes = walk_hop(batch.frontier(False), graph.indptr, graph.indices, spec, batch_id, hop)
            batch.add(picks)
            weights.append(votes)
        return batch.finish(inverse, batch_id, spec, graph, tuple(weights))

    def __repr__(self) -> str:
        s = self.spec
        return (
            f"PinSAGESampler({self.graph.name!r}, num_layers={s.num_hops}, num_neighbors={s.fanouts[0]}, "
            f"num_walks={s.num_walks}, walk_length={s.walk_length}, restart={s.restart}, "
            f"restart_ends={s.restart_ends}, device={self.device!r})"
        )
