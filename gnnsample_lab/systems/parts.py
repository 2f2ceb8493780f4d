"""Systems that divide the graph among ranks: parts as files, their sampler, and one cache of all ranks."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.checks import num_bytes, optional, shown
from gnnsample_lab.device.arrays import merge_duplicates, to_host
from gnnsample_lab.distributed.features.cache import FeatureCache, listed_vertices, resolved
from gnnsample_lab.distributed.features.ranking import DEGREES, by_degree, presample
from gnnsample_lab.distributed.parts.methods import METHODS as DIVISIONS
from gnnsample_lab.distributed.parts.part import gather_lists
from gnnsample_lab.distributed.parts.partition import TOLERANCES, Partition, check_partition, evenest
from gnnsample_lab.distributed.parts.storage import open_part, open_partition, save_parts
from gnnsample_lab.distributed.sampling.exchange import Exchange
from gnnsample_lab.distributed.sampling.layout import make_layout
from gnnsample_lab.distributed.sampling.methods import SPILLING
from gnnsample_lab.distributed.sampling.sampler import Sampler
from gnnsample_lab.features.ranking.hotness import Hotness, hotness
from gnnsample_lab.files import scratch_folder
from gnnsample_lab.graph import cache, roots
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.minibatch.epoch import EpochIterator
from gnnsample_lab.pipeline.plan import NoBatch
from gnnsample_lab.pipeline.queues import worker_name
from gnnsample_lab.pipeline.trainer import Trainer
from gnnsample_lab.pipeline.turns import Turns

from .table import System

_COLLECTIVE = ("pull", "csp", "csp-async", "csp-fixed")
_IN_TURN = ("pull", "csp", "csp-fixed")
_COMPARED_BYTES = 1 << 26


def checked_parts(parts: Any) -> Any:
    """``parts`` of ``lab.train``: None, a method's name, a Partition or a folder of ``save_parts``.

    Raises:
        TypeError, ValueError: it is none of them.
    """
    if parts is None or isinstance(parts, (Partition, Path)):
        return parts
    if not isinstance(parts, str):
        raise TypeError(
            f"parts must be a method of lab.distributed.partition, a Partition or a pathlib.Path (got {shown(parts)})"
        )
    if parts not in DIVISIONS:
        raise ValueError(f"parts must be one of {', '.join(map(repr, DIVISIONS))} (got {parts!r})")
    return parts


def check_count(parts: Any, count: int) -> None:
    """Raises ValueError where ``parts`` is a Partition, and not of ``count`` parts, as the ranks of a single host need;
    those of several may have one that divides the graph among all of them."""
    if isinstance(parts, Partition) and parts.num_parts != count:
        raise ValueError(f"parts must be as many as ranks, {count} (got {parts.num_parts})")


def check_ranks(graph: Graph, count: int) -> None:
    """Raises ValueError where ``count`` ranks cannot have a part each, which has a vertex at least."""
    if count > graph.num_nodes:
        raise ValueError(
            f"ranks must be at most the {graph.num_nodes} vertices of the graph, which they divide among themselves "
            f"(got {count})"
        )


def spills(system: System) -> bool:
    """Whether lists of its parts may lie in host memory."""
    return system.topology == "parts" and system.method in SPILLING


def checked_spill(system: System, topology_bytes: Any) -> int | None:
    """``topology_bytes`` of ``lab.train``: None, or bytes, for a system whose method spills lists to host memory.

    Raises:
        TypeError, ValueError: no size, or another system; the message names it.
    """
    found = optional(num_bytes, "topology_bytes", topology_bytes)
    if found is None or spills(system):
        return found
    where = {"device": "all lists on each device", "uva": "all lists in host memory"}
    has = where.get(system.topology, f"its lists in parts and method {system.method!r}")
    raise ValueError(
        f"topology_bytes needs a system with parts whose method is one of {', '.join(map(repr, SPILLING))} (got system "
        f"{system.name!r}, which has {has})"
    )


@contextlib.contextmanager
def saved_parts(
    graph: Graph, system: System, count: int, parts: Any = None, weighted: bool = False
) -> Iterator[Path]:
    """The folder of a graph's parts: ``parts`` itself, the cache folder of a cached graph, else one for the while.

    Args:
        graph: the whole graph with features.
        system: says by which method, unless ``parts`` does.
        count: parts.
        parts: as :func:`checked_parts` takes it.
        weighted: whether neighbours will be drawn by the weights of edges, which ranks take from the parts.

    Raises:
        UnevenPartsError: the method divides the graph with one part that has nearly everything.
        ValueError: the parts that are given are not as many, or not of this graph; fewer vertices than ranks.
    """
    if isinstance(parts, Path):
        found = open_partition(parts)
        if found.num_parts != count:
            raise ValueError(
                f"parts must be as many as ranks, {count} (got {found.num_parts} in {str(parts)!r})"
            )
        _check_saved(graph, system, found, parts, weighted)
        yield parts
        return
    if isinstance(parts, Partition):
        divided = check_partition(parts, graph, "parts")
    else:
        check_ranks(graph, count)
        method = system.partition if parts is None else parts
        method = method if count > 1 else "range"
        divided = evenest(graph, count, method)
    with_features = system.placement == "partitioned"
    if cache.folder_of(graph) is not None:
        yield save_parts(graph, divided, features=with_features)
        return
    place = roots.cache_folder(roots.data_root())
    with scratch_folder("lab-parts", place) as folder:
        yield save_parts(graph, divided, folder, features=with_features)


def balance_notes(folder: Path) -> tuple[str, ...]:
    """A note of how uneven the parts in a folder are, where one exceeds what is asked of a division; else nothing."""
    found = open_partition(folder)
    balance = found.balance
    if max(balance.values()) <= TOLERANCES[0]:
        return ()
    largest = ", ".join(f"{ratio:.2f} times the mean of {name}" for name, ratio in balance.items())
    return (
        f"parts by {found.method!r} are uneven: the largest has {largest} (tolerance={found.tolerance:g})",
    )


def _check_saved(graph: Graph, system: System, divided: Partition, folder: Path, weighted: bool) -> None:
    """Parts in files are of this graph: the same topology, and the same features and weights where ranks take them
    from there.

    Raises:
        ValueError: they are not.
    """
    check_partition(divided, graph, "parts")
    if weighted:
        _check_weights(graph, divided, folder)
    if system.placement != "partitioned":
        return
    for rank in range(divided.num_parts):
        part = open_part(folder, rank)
        if part.feat is None:
            raise ValueError(
                f"parts must be saved with features for system {system.name!r} (got {str(folder)!r})"
            )
        step = max(1, _COMPARED_BYTES // max(1, part.feat[:1].nbytes))
        for begin in range(0, len(part.vertices), step):
            rows = part.feat[begin : begin + step]
            own = to_host(graph.feat[part.vertices[begin : begin + step]])
            if rows.shape != own.shape or rows.tobytes() != own.astype(rows.dtype, copy=False).tobytes():
                raise ValueError(f"parts must have the features of the graph (got others in {str(folder)!r})")


def _check_weights(graph: Graph, divided: Partition, folder: Path) -> None:
    """Raises ValueError where edges of parts in files have other weights than those of the graph, or it has none."""
    if graph.edge_weight is None:
        raise ValueError("weighted=True needs a graph with edge_weight")
    whole, weight = to_host(graph.indptr), to_host(graph.edge_weight)
    for rank in range(divided.num_parts):
        part = open_part(folder, rank)
        own = gather_lists(whole[part.vertices], to_host(part.indptr), weight)
        if part.edge_weight is None or not np.array_equal(part.edge_weight, own):
            raise ValueError(f"parts must have the edge weights of the graph (got others in {str(folder)!r})")


class PartsSampler:
    """A :class:`lab.distributed.Sampler` for the training loop: whole mini-batches in, this rank's slices out.

    Attributes:
        device: "cpu" or "cuda". graph: this rank's part. spec, fanouts: of the draw.
        together: whether ranks have to sample together.
        topology_bytes: of the topology on this rank's device.
    """

    def __init__(
        self, folder: Path, system: System, fanouts: Sequence[int], rank: Any, seed: int, weighted: bool = False,
        pick: str | None = None, topology_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self.inner = Sampler(
            folder, fanouts, system.method, rank=rank, pick=pick or system.pick, weighted=weighted, seed=seed,
            topology_bytes=topology_bytes,
        )  # fmt: skip
        self.device = "cpu" if rank.device == "cpu" else "cuda"
        self.graph, self.spec, self._by = self.inner.graph, self.inner.spec, system.seeds
        self.together = _samples_together(system)
        self.topology_bytes = self._on_device()

    @property
    def fanouts(self) -> tuple[int, ...]:
        return self.spec.fanouts

    def _on_device(self) -> int:
        if self.inner.method == "uva":
            return 0
        found = getattr(self.inner.engine, "topology_bytes", None)
        if found:
            return int(sum(found.values()))
        part = self.graph
        weights = part.prefix.nbytes if self.spec.weighted else 0
        return int(part.indptr.nbytes + part.indices.nbytes + weights)

    def sample(self, seeds: Any, batch_id: int = 0) -> Any:
        """A mini-batch whose seeds are all this rank's; where ranks sample together, all call it."""
        return self.inner.sample(to_host(seeds), batch_id)

    def sample_many(self, seeds: Sequence[Any], first_batch_id: int = 0) -> list[Any]:
        """As :meth:`sample`, of consecutive batch ids."""
        return self.inner.sample_many([to_host(some) for some in seeds], first_batch_id)

    def sample_slices(self, seeds: Sequence[Any], first_batch_id: int = 0) -> list[Any]:
        """This rank's slices of whole mini-batches; :class:`NoBatch` for those without seeds."""
        slices = [self.inner.slice(merge_duplicates(to_host(some))[0], self._by) for some in seeds]
        found = self.inner.sample_many(slices, first_batch_id)
        return [
            batch if len(mine) else NoBatch(first_batch_id + i) for i, (mine, batch) in enumerate(zip(slices, found))
        ]  # fmt: skip

    def epoch(self, seeds: Any, batch_size: int, epoch: int = 0) -> EpochIterator:
        """The whole mini-batches of an epoch; sampled through :meth:`sample_slices`."""
        return EpochIterator(self, to_host(seeds), batch_size, epoch, True, False, None, False)

    def another(self) -> PartsSampler:
        """The same draws with collectives of their own, for another worker; this one where a rank is alone."""
        if self.inner.rank.world_size == 1:
            return self
        found = copy.copy(self)
        found.inner = self.inner.another()
        return found

    @property
    def exchange(self) -> Exchange:
        """Its collectives."""
        return self.inner._layout.exchange

    def close(self) -> None:
        """Give back what other ranks may read; all ranks call it together."""
        self.inner.close()


def ranked(
    policy: str, graph: Graph, sampler: Any, rank: Any, folder: Any, batch_size: int, seed: int
) -> Hotness:
    """Vertices by a hotness policy, the same on all ranks, which call it together.

    Args:
        policy: "in-degree", or a policy of ``lab.hotness``.
        graph: the whole graph. sampler: of this rank. rank: the rank. folder: of the parts.
        batch_size, seed: of training.
    """
    if isinstance(sampler, PartsSampler):
        if policy == "presample":
            return presample(sampler.inner, to_host(graph.splits["train"]), batch_size, by=sampler._by)
        if policy in DEGREES:
            return by_degree(sampler.inner._layout, policy)
        if policy.startswith("presample"):
            raise ValueError(
                f"policy={policy!r} counts visits of a sampler that has the whole graph; take 'presample'"
            )
        return hotness(graph, policy=policy, seed=seed)
    if policy in DEGREES and folder is not None:
        return by_degree(make_layout(folder, rank, None, None, None, "csp", False), policy)
    if policy == "in-degree":
        began = time.perf_counter()
        score = np.diff(to_host(sampler.graph.indptr)).astype(np.float64)
        order = np.argsort(-score, kind="stable")
        return Hotness(policy, "In-degree", score, order, (time.perf_counter() - began) * 1e6)
    options: dict[str, Any] = {}
    if policy.startswith("presample"):
        options = {"sampler": sampler, "seeds": graph.splits["train"], "batch_size": batch_size}
    return hotness(sampler.graph, policy=policy, seed=seed, **options)


def positions_listed(folder: Path, system: System, rank: Any) -> int:
    """Vertices whose positions :func:`shared_cache` keeps on a rank: all, or its own where positions are asked for."""
    layout = make_layout(folder, rank, None, None, None, system.transport, False)
    return listed_vertices(layout, resolved(layout, "partitioned", system.transport, "auto")[1])


def shared_cache(
    folder: Path, system: System, hot: Any, rows: int, num_nodes: int, rank: Any
) -> FeatureCache:
    """One cache of all ranks, each with up to ``rows`` rows; communicators are connected before workers use them."""
    ratio = rows / max(1, num_nodes)
    made = FeatureCache(
        folder, "in-degree" if hot is None else hot, ratio=ratio, rank=rank, kind="partitioned",
        transport=system.transport,
    )  # fmt: skip
    made.extract(np.empty(0, np.int64))
    return made


def overlap_problem(
    system: System, given: dict[str, Any], backend: str, several_hosts: bool = False
) -> str | None:
    """Why the workers of several ranks cannot run beside each other as ``lab.train`` was asked to; None where they can.

    On GPUs workers that have collectives need one order of all ranks. Without it rank 0 can have started the loader's
    and rank 1 the sampler's. A kernel that waits for its peers holds up what the driver does for the other workers of
    its GPU meanwhile, so that neither rank starts the collective that would let the other one go on.

    Args:
        system: what ranks train.
        given: the arguments ``executor``, ``workers`` and ``coordinated``.
        backend: of the ranks, "gloo" or "nccl".
        several_hosts: whether the ranks are on more than one.
    """
    if (given["executor"] or system.executor) != "overlapped" or backend != "nccl":
        return None
    if given["workers"] > 1 and system.method == "csp-fixed":
        return (
            "workers must be 1 for method='csp-fixed' on GPUs: each sampler would capture collectives in a CUDA graph, "
            f"while those of others are under way (got {given['workers']})"
        )
    if not has_collectives(system, several_hosts):
        return None
    why = "kernels of collectives that two ranks started in different orders wait for each other for ever"
    if several_hosts:
        return (
            f"executor must be 'serial' for system {system.name!r} on GPUs of several hosts, where rank 0 cannot tell "
            f"the order of collectives: {why} (got 'overlapped')"
        )
    if _samples_together(system) and system.method not in _IN_TURN:
        return (
            f"executor must be 'serial' for method={system.method!r} on GPUs, whose messages have no order: {why} "
            "(got 'overlapped')"
        )
    if given["coordinated"] is False:
        return (
            f"coordinated must be True or None on GPUs for system {system.name!r}, whose samplers or loaders have "
            f"collectives: {why} (got False)"
        )
    return None


def has_collectives(system: System, several_hosts: bool = False) -> bool:
    """Whether samplers or loaders of a system on ranks meet those of other ranks."""
    shared = system.placement == "partitioned"
    return _samples_together(system) or (shared and (several_hosts or system.transport != "direct"))


def _samples_together(system: System) -> bool:
    return system.topology == "parts" and system.method in _COLLECTIVE


def coordinate(rank: Any, trainer: Trainer) -> bool:
    """Bring the collectives of samplers, loaders and trainer in one order; False where the trainer alone has some.

    Raises:
        ValueError: a method whose messages are not the same on all ranks.
    """
    sampler = trainer.sampler
    if isinstance(sampler, PartsSampler) and sampler.together and sampler.inner.method not in _IN_TURN:
        raise ValueError(
            f"coordinated must be False with method={sampler.inner.method!r}, which does not start its collectives "
            f"one by one on all ranks, as {', '.join(map(repr, _IN_TURN))} do (got True)"
        )
    if not trainer.together:
        return False
    count = len(trainer.samplers)
    turns = Turns(rank, count)
    for number, (one, rows) in enumerate(zip(trainer.samplers, trainer.sources, strict=True)):
        if isinstance(one, PartsSampler) and one.together:
            turns.coordinate(one.exchange, worker_name("sampler", number, count))
        if rows.together:
            setup = rows.cache._setup
            for exchange in {id(e): e for e in (setup.exchange, setup.world)}.values():
                turns.coordinate(exchange, worker_name("loader", number, count))
    trainer.follow(turns)
    return True
