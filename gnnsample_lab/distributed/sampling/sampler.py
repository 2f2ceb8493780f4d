"""``lab.distributed.Sampler``: one mini-batch from a graph in parts, each rank its slice."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from gnnsample_lab import checks
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.locks import Lock
from gnnsample_lab.device.philox import MAX_BATCH_ID, MAX_DEGREE
from gnnsample_lab.minibatch.epoch import EpochIterator
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.plan import MAX_SEEDS
from gnnsample_lab.sampling.neighbors.spec import check_pick, make_spec

from .engines import Engine, Setup, make_engine
from .layout import Layout, make_layout
from .methods import METHODS, SPILLING
from .traffic import Traffic

SLICES = ("equal", "owner")
COLLECTIVES = ("auto", "torch")
_TOGETHER = 8
"""Mini-batches of an epoch that a GPU samples in one call, as ``NeighborSampler.epoch`` does."""
CACHE_BYTES = 2**26
"""Default of ``cache_bytes``."""
_CALLS = 64
"""Calls whose traffic is added up together, unless somebody asks earlier."""


class Sampler:
    """k-hop neighbour sampling from a graph whose parts lie on several ranks (DSP, section 4).

    A global batch has one batch id; each rank samples a slice of its seeds, and the slices together are the sample that
    one :class:`~gnnsample_lab.NeighborSampler` draws from the whole graph, bit for bit: draws are keyed by original
    vertex ids, so where a list lies changes no pick. All ranks construct the sampler alike and call it together, those
    with an empty slice too.

    Ids in mini-batches are original. ``positions`` are slots in the destination's list of in-neighbours, from 0 on:
    a rank does not know where a remote list begins in the whole graph. They are ``positions - indptr[dst]`` of the
    whole graph's sample.

    Args:
        source: a folder that :func:`save_parts` wrote; this rank's :class:`Part`, with ``partition=`` or ``folder=``;
            or the whole graph with ``partition=``, whose parts are then saved once.
        fanouts: as of ``NeighborSampler``.
        method: a name of ``lab.distributed.methods()``. It decides how lists are reached, and changes no pick.
        rank: the :class:`Rank` that ``lab.distributed.run`` gave.
        pick, replace, weighted, seed: as of ``NeighborSampler``.
        expand: ``"frontier"``; there is no other, because a rank does not know what others have reached.
        partition: who owns which vertex; a folder knows it.
        folder: where all parts lie, for a Part and a method that reads peers' files.
        hosts: ranks of each host, such as ``[[0, 1], [2, 3]]``; None takes what ``torchrun`` said. With as many parts
            as ranks of a host, each host holds the topology and samples by itself (DSP, section 3.2). With as many
            parts as ranks, parts are spread over the hosts.
        scratch_bytes: bound of the buffers of ``"csp-fixed"`` and of GPU scratch memory.
        cache_bytes: for copies of remote lists (``"direct-cached"``).
        topology_bytes: for lists of this rank's part on its GPU (``"csp"``, ``"csp-fixed"``, ``"direct-cached"``);
            None: all of them. Those that save fewest reads per byte lie in page-locked host memory instead (DSP,
            sections 3.2 and 5), where their owner reads them, or, by ``"direct-cached"``, all ranks of the host. A CPU
            rank counts them as reads of host memory.
        visits: how often each vertex is expanded, finite numbers ``[N]`` from 0 on, for ``"direct-cached"`` and
            ``topology_bytes``: what copies and the lists that stay go by; all ranks give some, or none does, and all
            refuse what one of them cannot take. None counts the visits of eight mini-batches of 1024 seeds that this
            rank samples beforehand, without copies and under batch ids that training does not reach: training vertices
            of its part, or any vertices where the part has none. Ties, and vertices that these do not reach, go by
            out-degree. Where owners alone read lists, ranks add visits up.
        count_reads: on GPUs, count what ``"direct"``, ``"direct-cached"`` and ``"uva"`` read, and what others read of
            lists in host memory. Kernels keep no account of that, so that each sample is gone through once more, on the
            host. On CPU ranks bytes are always counted, and on GPUs those that are sent.
        collectives: on GPUs, ``"torch"`` has every exchange made by a call of ``torch.distributed``; ``"auto"`` calls
            NCCL itself, on torch's communicator, and passes sizes through memory of the host where that is possible.
            The same bytes move, and the same picks are drawn.

    Attributes:
        part: this rank's part.
        method: the method's name.
        spec: the settings of the draw.
        device: of the rank.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or not allowed; the message names it. ``method`` is named
            where it reads memory of other hosts. Ranks that were given different draws or methods all raise.
        RuntimeError: the method does not run on this kind of device.
    """

    def __init__(
        self,
        source: Any,
        fanouts: Sequence[int],
        method: str = "csp",
        *,
        rank: Any,
        pick: str = "floyd",
        replace: bool = False,
        weighted: bool = False,
        expand: str = "frontier",
        seed: int = 0,
        partition: Any = None,
        folder: Any = None,
        hosts: Any = None,
        scratch_bytes: int | None = None,
        cache_bytes: int = CACHE_BYTES,
        topology_bytes: int | None = None,
        visits: Any = None,
        count_reads: bool = False,
        collectives: str = "auto",
    ) -> None:
        checks.choice("method", method, METHODS)
        checks.choice("collectives", collectives, COLLECTIVES)
        spec = make_spec(fanouts, pick, replace, weighted, expand, seed)
        check_pick(spec, method, "method")
        if spec.expand != "frontier":
            raise ValueError(
                f"expand must be 'frontier' for a graph in parts: whether a vertex is new depends on what all ranks "
                f"have reached (got {expand!r})"
            )
        scratch_bytes = checks.optional(checks.num_bytes, "scratch_bytes", scratch_bytes, 1)
        cache_bytes = checks.num_bytes("cache_bytes", cache_bytes)
        topology_bytes = checks.optional(checks.num_bytes, "topology_bytes", topology_bytes)
        if topology_bytes is not None and not METHODS[method].spills:
            raise ValueError(
                f"topology_bytes needs a method that reads lists in host memory too, one of "
                f"{', '.join(map(repr, SPILLING))} (got {method!r})"
            )
        count_reads = checks.flag("count_reads", count_reads)
        layout = make_layout(
            source, rank, partition, folder, hosts, method, not METHODS[method].between_hosts
        )
        layout.check_alike({
            "method": method, **asdict(spec), "collectives": collectives,
            "visits": None if visits is None else "numbers",  # their own on each rank, but all ranks have some
        })  # fmt: skip
        if spec.weighted and layout.part.weights is None:
            raise ValueError("weighted=True needs a graph with edge_weight")
        most = int(np.diff(layout.part.indptr).max(initial=0))
        asked = np.array([most, topology_bytes is not None])
        most, is_bounded = layout.exchange.max("sizes", asked).tolist()  # all ranks refuse alike
        if is_bounded and topology_bytes is None:  # ranks find together whose lists leave their GPUs
            topology_bytes = sys.maxsize
        if most > MAX_DEGREE:
            raise ValueError(f"source has a vertex of in-degree {most}; at most {MAX_DEGREE} works")
        if visits is not None:
            visits = _checked_visits(visits, layout)
        self.method, self.spec, self.rank, self._layout = method, spec, rank, layout
        self.part, self.partition, self.device = layout.part, layout.partition, rank.device
        self._reads_gpu = rank.device != "cpu" and METHODS[method].gpu == "gpu.direct"
        self._counts = count_reads or not self._reads_gpu
        self._begin(
            Setup(
                method, spec, layout, scratch_bytes, cache_bytes, topology_bytes, visits, count_reads, collectives
            )
        )  # fmt: skip

    def _begin(self, setup: Setup) -> None:
        """Make the engine, with nothing counted yet."""
        exchange = setup.exchange
        self._engine: Engine | None = None
        self._setup = setup
        self._engine = make_engine(setup)
        self._total = exchange.new_traffic()
        self._calls: list[Traffic] = []  # of calls that the total does not hold yet
        # Several workers call a sampler that meets nobody. On a GPU they meet at the library's lock, which a caller may
        # hold already. Samplers with collectives have one worker each, and hold no lock while they wait for peers.
        self._counting: Any = contextlib.nullcontext()
        if METHODS[self.method].gpu == "gpu.direct":
            self._counting = runtime.lock if self._reads_gpu else Lock()
        exchange.traffic = exchange.new_traffic()  # of the setup: not a call's
        # Owners draw for others by their own batch id, of which the others would notice nothing.
        self._is_new = METHODS[self.method].gpu == "gpu.csp" and self.method != "pull"

    # What an EpochIterator asks of a sampler's graph is its number of vertices.
    @property
    def graph(self) -> Any:
        return self.part

    @property
    def engine(self) -> Engine:
        """What samples: the method on this kind of device. Those that read memory take seeds in CuPy arrays too.

        Raises:
            RuntimeError: the sampler was closed.
        """
        if self._engine is None:
            raise RuntimeError("the sampler was closed")
        return self._engine

    @property
    def fanouts(self) -> tuple[int, ...]:
        return self.spec.fanouts

    @property
    def traffic(self) -> Traffic:
        """What this rank moved in the last call."""
        with self._counting:
            self._settle()
            return self._layout.exchange.traffic

    @property
    def total(self) -> Traffic:
        """What this rank moved in all calls, of all threads."""
        with self._counting:
            self._settle()
            for traffic in self._calls:
                if not traffic.is_empty or traffic.label != self._total.label:  # a sum takes its time
                    self._total = self._total + traffic
            self._calls = []
            return self._total

    def _settle(self) -> None:
        """Have the engine count: some do so when they are asked, and not while the GPU waits for the host."""
        settle = getattr(self._engine, "settle", None)
        if settle is not None:
            settle()

    def sample(self, seeds: Any, batch_id: int = 0) -> MiniBatch:
        """This rank's slice of a mini-batch; all ranks call it together with one batch id.

        Args:
            seeds: vertices of this rank's slice, original ids; may be empty. Duplicates are merged. Methods that read
                memory take seeds on a GPU from there; for others they are copied to the host.
            batch_id: of the whole batch, 0..2**32 - 1.

        Raises:
            TypeError, ValueError: seeds are not integers, too many, not one-dimensional or out of range.
            ValueError: of methods whose owners draw for others (``"csp"`` and its kin), in the first call: another rank
                gave another batch id. Later calls are not compared: they would wait for one more exchange.
            RuntimeError: another rank failed or did not come; the sampler was closed; the buffers of ``"csp-fixed"``
                exceed ``scratch_bytes``, as every call says from the 8th mini-batch on.
        """
        return self.sample_many([seeds], checks.whole("batch_id", batch_id, 0, MAX_BATCH_ID))[0]

    def sample_many(self, seeds: Iterable[Any], first_batch_id: int = 0) -> list[MiniBatch]:
        """Several mini-batches, each as if sampled alone; all ranks give the same number of slices.

        Args:
            seeds: one slice for each mini-batch.
            first_batch_id: batch id of the first; the others follow on.

        Raises:
            TypeError, ValueError, RuntimeError: as in :meth:`sample`.
        """
        engine = self.engine
        arrays = [self._placed(s) for s in checks.items("seeds", seeds, "a list of slices")]
        first = checks.whole("first_batch_id", first_batch_id, 0, MAX_BATCH_ID - max(len(arrays) - 1, 0))
        exchange = self._layout.exchange
        if self._is_new:
            # As the mini-batch itself: nothing of another thread is captured meanwhile.
            with contextlib.nullcontext() if self.device == "cpu" else runtime.lock:
                self._layout.check_alike({"batch_id": first, "slices of a call": len(arrays)}, exchange)
            self._is_new = False
        with self._counting:  # engines count in the exchange's traffic
            if self._counts:
                exchange.traffic = exchange.new_traffic()
            batches = engine.sample_many(arrays, first)
            traffic = exchange.traffic
            if self._counts or traffic.label != self._total.label:
                self._calls.append(traffic)
            if len(self._calls) >= _CALLS:
                _ = self.total
        return batches

    def slice(self, seeds: Any, by: str = "equal") -> np.ndarray:
        """This rank's share of a global batch's seeds, which all ranks give alike.

        Args:
            seeds: vertices of the whole batch, original ids.
            by: ``"equal"``: consecutive seeds, as many for each rank; ``"owner"``: those that this rank owns (DSP,
                section 3.2), after an equal share for each host where each holds the topology.

        Returns:
            Seeds in the order given, integers ``[n]``, n may be 0.

        Raises:
            TypeError, ValueError: no vertices; an unknown ``by``.
        """
        checks.choice("by", by, SLICES)
        array = self._checked(seeds)
        return array[self._layout.share(array, by)]

    def epoch(
        self, seeds: Any, batch_size: int, epoch: int = 0, shuffle: bool = True, drop_last: bool = False, *, by: str
            = "equal",
    ) -> Epoch:  # fmt: skip
        """This rank's slices of an epoch's global batches: the seeds and batch ids of ``NeighborSampler.epoch``.

        Args:
            seeds: the training vertices, the same on all ranks.
            batch_size: seeds of a global batch.
            epoch: number of the epoch.
            shuffle, drop_last: as of ``NeighborSampler.epoch``.
            by: as in :meth:`slice`.

        Raises:
            TypeError, ValueError: an argument that is not allowed; the message names it.
        """
        checks.choice("by", by, SLICES)
        return Epoch(self, seeds, batch_size, epoch, shuffle, drop_last, by)

    def another(self) -> Sampler:
        """A sampler for another worker of this rank; all ranks call it alike, and what they get meets each other.

        It draws the same and has the same part, on a GPU in the same memory; collectives, which get a process group,
        scratch memory and traffic are its own. Both may be called at the same time on CPU ranks. A GPU's calls hold the
        library's lock while they wait for other ranks: there, all ranks call the samplers in one order.

        Raises:
            ValueError: the method reads other memory by itself: it meets nobody, and one sampler serves all workers.
            RuntimeError: the sampler was closed.
        """
        if METHODS[self.method].gpu != "gpu.csp":
            raise ValueError(
                f"method={self.method!r} has no collectives that another sampler could have of its own: several "
                "workers can call one"
            )
        found, engine = copy.copy(self), self.engine
        found._layout = self._layout.apart()
        found._begin(replace(self._setup, layout=found._layout, beside=engine))
        return found

    def close(self) -> None:
        """Give back what other ranks may read; all ranks call it together. May be called twice."""
        self._settle()
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
            for group in self._layout.own_groups:
                self.rank.leave_group(group)

    def _placed(self, seeds: Any) -> Any:
        """Seeds where the engine takes them; on a GPU its kernels check their range."""
        if not (self._reads_gpu and checks.is_cuda_array(seeds)):
            return self._checked(seeds)
        streams.order(seeds)
        array = checks.integers("seeds", seeds)
        if array.size > MAX_SEEDS:
            raise ValueError(f"seeds of one mini-batch may be at most {MAX_SEEDS} (got {array.size})")
        return array

    def _checked(self, seeds: Any) -> np.ndarray:
        array = checks.host_integers("seeds", checks.ids("seeds", seeds, self.part.num_nodes))
        if array.size > MAX_SEEDS:
            raise ValueError(f"seeds of one mini-batch may be at most {MAX_SEEDS} (got {array.size})")
        return array

    def __repr__(self) -> str:
        return f"Sampler({self.part!r}, fanouts={list(self.fanouts)}, method={self.method!r}, {self.rank!r})"


def _checked_visits(visits: Any, layout: Layout) -> np.ndarray:
    """``visits`` as ``float64[N]``; where those of one rank cannot be taken, all ranks raise. All call it together."""
    found = np.empty(0)
    problem: Exception | None = None
    try:
        found = checks.numbers("visits", checks.host_array("visits", visits)).astype(np.float64)
        if found.shape != (layout.num_nodes,):
            raise ValueError(f"visits must have shape ({layout.num_nodes},) (got {found.shape})")
        wrong = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
        if wrong.size:
            raise ValueError(
                f"visits must be finite numbers from 0 on (got {found[wrong[0]]:g} for vertex {wrong[0]})"
            )
    except (TypeError, ValueError) as error:
        problem = error  # told to the others first: they would wait
    if layout.world.max("flags", np.array([int(problem is not None)]))[0]:
        raise problem or ValueError(
            "visits must be finite numbers from 0 on, one for each vertex, on all ranks (got others on another rank)"
        )
    return found


class Epoch(EpochIterator):
    """One epoch's slices of this rank; batches are sampled when they are asked for, by all ranks in step.

    On GPUs several are sampled in one call.
    """

    def __init__(
        self,
        sampler: Sampler,
        seeds: Any,
        batch_size: int,
        epoch: int,
        shuffle: bool,
        drop_last: bool,
        by: str,
    ) -> None:
        array = checks.host_integers("seeds", seeds)
        super().__init__(sampler, array, batch_size, epoch, shuffle, drop_last, None, False)
        self._by = by

    def __iter__(self) -> Iterator[MiniBatch]:
        together = 1 if self.sampler.device == "cpu" else _TOGETHER
        for begin in range(0, len(self), together):
            group = range(begin, min(begin + together, len(self)))
            slices = [self.sampler.slice(self.batch_seeds(i), self._by) for i in group]
            for batch in self.sampler.sample_many(slices, self.first_batch_id + begin):
                batch.ready.order()  # the consumer may have changed streams since the batch was sampled
                yield batch
