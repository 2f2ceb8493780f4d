"""``lab.distributed.FeatureCache``: the feature rows of a graph in parts, cached in the memory of all ranks."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gnnsample_lab import checks
from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.locks import Lock
from gnnsample_lab.distributed.sampling.exchange import Exchange
from gnnsample_lab.distributed.sampling.layout import Layout, make_layout
from gnnsample_lab.distributed.sampling.traffic import Traffic
from gnnsample_lab.features.caching import sizing
from gnnsample_lab.features.caching.gather import ExtractKnobs, device_ids, library

from . import ranking
from .parts import PartRows
from .placement import KINDS, Placement, check_positions_fit, place_rows, rows_beside_positions
from .setup import POSITIONS, TRANSPORTS, Setup
from .tally import RankStats

FROM_PEERS = ExtractKnobs(rows_per_warp=4)
"""Launch shapes where rows come from peers, whose answers take longer: twice as many loads are under way."""


@dataclass(frozen=True, eq=False)
class RankMarks:
    """Where the rows of one batch are, found while sampling.

    Attributes:
        rows: rows of the batch.
        places: what the position lists say (:class:`~.placement.Placement`), ``int32[rows]``.
        positions: positions read in each part's memory, ``int64[parts]``.
        more: what a GPU has found out besides.
        ready: an event behind the marking.
        ids: the vertices of the batch in host memory, to tell it from another; None on a GPU, where nobody can look at
            them without waiting.
        digest: of the placement: ``places`` are right in a cache of the same one alone. None where nobody else gets the
            marks.
    """

    rows: int
    places: Any
    positions: Any
    more: Any = None
    ready: Any = field(default=streams.DONE, repr=False)
    ids: Any = field(default=None, repr=False)
    digest: int | None = field(default=None, repr=False)


def resolved(layout: Layout, kind: str, transport: str, positions: str) -> tuple[str, str]:
    """``transport`` and ``positions`` of a :class:`FeatureCache` that was given these."""
    if transport == "auto":
        transport = "all-to-all" if layout.spans_hosts else "direct"
    if positions == "auto":
        positions = "owner" if transport != "direct" and kind == "partitioned" else "everywhere"
    return transport, positions


def listed_vertices(layout: Layout, positions: str) -> int:
    """Vertices whose positions a rank keeps, of the rank that keeps most."""
    return layout.num_nodes if positions == "everywhere" else int(layout.partition.vertices.max())


class FeatureCache:
    """Rows of the features of a graph in parts, the hottest in the ranks' memories, the others in the host's (DSP).

    All ranks construct it alike and close it together. Where the transport or the positions are collective they call
    :meth:`extract` together, ranks without rows too. Collectives have a process group of the cache's own, so that one
    worker may load rows while another samples. Used as :class:`gnnsample_lab.FeatureCache` is, in training too.

    Args:
        source: a folder that :func:`save_parts` wrote with features; this rank's :class:`Part`, with ``partition=`` or
            ``folder=``; or the whole graph with ``partition=``, whose parts are then saved once.
        hotness: ``"in-degree"`` (DSP's default) or ``"degree"`` (out-degree), computed from the parts; what
            :func:`presample` or :func:`gnnsample_lab.hotness` returned; or one score per vertex (higher is hotter, ties
            to the lower id), the same on all ranks.
        ratio: each rank caches up to ``round(ratio * N)`` rows, in either kind.
        capacity_bytes: memory of each rank to fill, position lists included; 0 for these alone.
        rank: the :class:`Rank` that ``lab.distributed.run`` gave.
        kind: ``"partitioned"``: each rank caches the hottest rows of the vertices that it owns, all ranks of a host
            together are one cache (DSP). ``"replicated"``: each rank caches the same hottest rows (GNNLab).
        transport: how rows come from peers. ``"all-to-all"`` restores the order (DSP); ``"all-to-all-unordered"``
            leaves rows as they arrive (:meth:`extract_arrived`); ``"direct"`` reads peers' memory. ``"auto"`` is
            ``"direct"`` where the ranks that share a cache are on one host, else ``"all-to-all"``.
        positions: ``"owner"``: each rank has the position list of its own vertices, and positions are fetched first
            (DSP); ``"everywhere"``: each rank has all of it, 4 bytes a vertex. ``"auto"`` is ``"owner"`` for
            all-to-all in a partitioned cache, else ``"everywhere"``.
        partition, folder, hosts: as of :class:`Sampler`. With several hosts each has the hot rows, and the cold rows
            are divided among the hosts (DSP, section 3.2).
        knobs: launch shapes of the kernels (:class:`~gnnsample_lab.features.caching.gather.ExtractKnobs`), by default
            :data:`FROM_PEERS` where kernels read peers' memory.

    Attributes:
        kind, transport, positions: as resolved.
        placement: where each row lies (:class:`~.placement.Placement`).
        cached_ids: vertices of this rank's cache, ``int64``, by row. num_cached: how many. ratio: their share.
        all_cached: whether no row is cold.
        num_nodes, num_features, dtype, row_bytes: of the features.
        nbytes: this rank's memory for rows and positions.
        device: "cpu" or "cuda:<n>". On CPU ranks mapped files stand for peers' memory and for pinned host memory.
        traffic: of the last call (:class:`Traffic`): bytes by peer and kind ("positions", "ids", "rows", "sizes").

    Raises:
        TypeError, ValueError: an argument of the wrong kind or not allowed; the message names it. Ranks that were given
            different ones all raise.
        RuntimeError: peers cannot be reached.
    """

    def __init__(
        self, source: Any, hotness: Any = "in-degree", ratio: float | None = None, capacity_bytes: int | None = None,
        *, rank: Any, kind: str = "partitioned", transport: str = "auto", positions: str = "auto",
        partition: Any = None, folder: Any = None, hosts: Any = None, knobs: ExtractKnobs | None = None,
    ) -> None:  # fmt: skip
        checks.choice("kind", kind, KINDS)
        checks.choice("transport", transport, ("auto", *TRANSPORTS))
        checks.choice("positions", positions, ("auto", *POSITIONS))
        if (ratio is None) == (capacity_bytes is None):
            raise ValueError(
                f"give exactly one of ratio and capacity_bytes (got {'none' if ratio is None else 'both'})"
            )
        sizing.check_sizing(ratio, capacity_bytes, None, None)
        if isinstance(hotness, str):
            checks.choice("hotness", hotness, ranking.DEGREES)
        if knobs is not None:
            checks.instance("knobs", knobs, ExtractKnobs, "ExtractKnobs")
        if kind == "replicated" and positions == "owner":
            raise ValueError(
                "positions must be 'everywhere' for kind='replicated': what oneself has nobody else knows (got 'owner')"
            )
        layout = make_layout(source, rank, partition, folder, hosts, transport, False)
        if transport == "direct" and layout.spans_hosts:
            if kind == "replicated":
                raise ValueError(
                    "transport='direct' works where each host has all parts, and these are spread over several hosts: "
                    "take transport='auto'; no row of a cache with kind='replicated' comes from a peer's cache"
                )
            raise ValueError(
                "transport='direct' reads its peers' memory, which lies on other hosts here: give each host all parts, "
                "or take transport='all-to-all'"
            )
        table = PartRows(layout).own
        transport, positions = resolved(layout, kind, transport, positions)
        self.kind, self.transport, self.positions, self.rank = kind, transport, positions, rank
        self.device, self.num_nodes = rank.device, layout.num_nodes
        self.num_features, self.dtype = int(table.shape[1]), table.dtype
        self.row_bytes = self.num_features * table.itemsize
        rows = self._rows(layout, ratio, capacity_bytes)
        # Before ranks rank vertices together or not, and meet in other groups than their peers.
        layout.check_alike({
            "kind": kind, "transport": transport, "positions": positions,
            "hotness and the size of the caches": (hotness if isinstance(hotness, str) else "scores", rows),
        })  # fmt: skip
        self.placement = self._placed(layout, hotness, rows)
        self._groups: list[Any] = []
        exchange, world = self._exchanges(layout)
        self._setup = Setup(
            layout, self.placement, transport, positions, self.num_features, self.dtype, exchange, world,
            knobs or (FROM_PEERS if self._reads_peers(rank) else ExtractKnobs()),
        )  # fmt: skip
        self._lock = Lock()
        self._engine: Any = self._made()
        self.nbytes = int(self._engine.nbytes)
        self.last: RankStats | None = None

    # ---- construction -----------------------------------------------------------------------------------------

    def _reads_peers(self, rank: Any) -> bool:
        return self.transport == "direct" and self.kind == "partitioned" and rank.world_size > 1

    def _rows(self, layout: Layout, ratio: Any, capacity_bytes: Any) -> int:
        """Rows of a rank's cache."""
        if ratio is not None:
            return sizing.rows_of_ratio(float(ratio), self.num_nodes)
        listed = listed_vertices(layout, self.positions)
        check_positions_fit("capacity_bytes", int(capacity_bytes), listed)
        return rows_beside_positions(int(capacity_bytes), listed, self.num_nodes, self.row_bytes)

    def _placed(self, layout: Layout, hotness: Any, rows: int) -> Placement:
        needed = 0 < rows < self.num_nodes
        if isinstance(hotness, str):
            hotness = ranking.by_degree(layout, hotness) if needed else None
        names = np.unique(layout.hosts)
        of_part = None
        if not layout.replicated and len(names) > 1:
            of_part = np.searchsorted(names, layout.hosts[layout.exchange.members])
        problem: Exception | None = None
        try:
            found = place_rows(self.kind, hotness, rows, layout.partition, len(names), of_part)
            mine = found.digest
        except (TypeError, ValueError) as error:  # told to the others first: they would wait
            problem, mine = error, -1
        lowest = -int(layout.world.max("flags", np.array([-mine]))[0])
        highest = int(layout.world.max("flags", np.array([mine]))[0])
        if problem is not None:
            raise problem
        if lowest != highest:
            raise ValueError(
                "hotness and the size of the caches must be the same on all ranks (got different ones)"
            )
        return found

    def _exchanges(self, layout: Layout) -> tuple[Exchange, Exchange]:
        """Exchanges on groups of this cache's own, where it needs any."""
        rank, hosts = self.rank, layout.hosts
        exchange, world = layout.exchange, layout.world
        everyone = list(range(rank.world_size))
        hot = self.kind == "partitioned" and self.transport != "direct" and exchange.size > 1
        cold = len(self.placement.cold_bounds) > 2 and len(self.placement.cold) > 0
        if (hot and not layout.replicated) or cold:
            world = Exchange(rank, self._own_group(), everyone, hosts)
            exchange = exchange if layout.replicated else world
        if hot and layout.replicated:
            groups = [np.flatnonzero(hosts == h).tolist() for h in np.unique(hosts)]
            exchange = Exchange(rank, self._own_group(groups), exchange.members.tolist(), hosts)
        return exchange, world

    def _own_group(self, parts: Any = None) -> Any:
        self._groups.append(self.rank.another_group(parts=parts))
        return self._groups[-1]

    def _made(self) -> Any:
        if self.device == "cpu":
            from .cpu import CpuEngine

            return CpuEngine(self._setup)
        from .gpu import GpuEngine

        return GpuEngine(self._setup)

    # ---- reading ----------------------------------------------------------------------------------------------

    @property
    def cached_ids(self) -> np.ndarray:
        return self.placement.cached[self._setup.me]

    @property
    def num_cached(self) -> int:
        return len(self.cached_ids)

    @property
    def ratio(self) -> float:
        return self.num_cached / self.num_nodes if self.num_nodes else 1.0

    @property
    def all_cached(self) -> bool:
        return not len(self.placement.cold)

    @property
    def transfer(self) -> str:
        """How cold rows come: "uva" from pinned host memory, on CPU ranks "host"."""
        return "host" if self.device == "cpu" else "uva"

    @property
    def traffic(self) -> Traffic:
        return self._setup.exchange.new_traffic() if self.last is None else self.last.traffic

    @property
    def is_collective(self) -> bool:
        """Whether ranks must extract together."""
        collective = self.kind == "partitioned" and self.transport != "direct"
        return collective or self._setup.asks_hosts

    # ---- use --------------------------------------------------------------------------------------------------

    def mark(self, node_ids: Any) -> RankMarks | None:
        """Find where the rows of a batch are, while sampling; None where positions are fetched from their owners.

        Fetching them is collective and waits for :meth:`extract`, so that one worker alone has collectives.

        Args:
            node_ids: original ids, duplicates allowed. Ids that lie on a GPU are not checked.

        Raises:
            TypeError, ValueError: no integers, not one-dimensional, or host ids out of range.
            RuntimeError: the cache was closed.
        """
        self._check_open()
        ids = self._ids(node_ids)
        if self._asks_owners:
            return None
        with streams.call(self.device != "cpu"), self._lock:
            own = ids.copy() if self.device == "cpu" else None
            return replace(self._marked(ids), ids=own, digest=self.placement.digest)

    def extract(
        self, node_ids: Any, marks: RankMarks | None = None, out: Any = None
    ) -> tuple[Any, RankStats]:
        """Rows of a batch: ``x[i]`` is ``feat[node_ids[i]]``, bit for bit.

        With ``"all-to-all-unordered"`` the rows are put in order afterwards; :meth:`extract_arrived` leaves them.

        Args:
            node_ids: original ids ``[n]``, n may be 0, duplicates allowed; NumPy, CuPy, torch or a list.
            marks: from :meth:`mark` of the same ids, by this cache or one with the same placement. On a GPU the number
                of ids alone is compared.
            out: array ``[n, F]`` of the features' type to write to, row-major, on the rank's device.

        Returns:
            ``(x, stats)``: x is CuPy on a GPU, NumPy on a CPU.

        Raises:
            TypeError, ValueError: ids as in :meth:`mark`, marks of another batch or of a cache with another placement,
                an ``out`` that does not fit.
            RuntimeError: another rank failed or did not come; the cache was closed.
        """
        x, index, stats = self._extract(node_ids, marks, out)
        if index is None and (out is None or x is out):
            return x, stats
        if out is None:
            with streams.results(self.device != "cpu"):
                return x[index], stats
        with streams.call(self.device != "cpu"):
            out[...] = x if index is None else x[index]
        return out, stats

    def extract_arrived(self, node_ids: Any, marks: RankMarks | None = None) -> tuple[Any, Any, RankStats]:
        """Rows of a batch in the order in which they arrive, with where each is.

        Args:
            node_ids, marks: as in :meth:`extract`.

        Returns:
            ``(rows, index, stats)``: ``rows[index[i]]`` is ``feat[node_ids[i]]``; index is ``int32[n]``, or None where
            the transport keeps the order.

        Raises:
            TypeError, ValueError, RuntimeError: as in :meth:`extract`.
        """
        return self._extract(node_ids, marks, None)

    def extract_many(self, node_ids: Iterable[Any]) -> tuple[list[Any], RankStats]:
        """Rows of several samples of one step, each vertex's fetched once (DSP's loader, section 3.2).

        Args:
            node_ids: one array of original ids for each sample.

        Returns:
            ``(xs, stats)``: a matrix for each sample, as :meth:`extract` gives; stats of the merged ids.

        Raises:
            TypeError, ValueError, RuntimeError: as in :meth:`extract`.
        """
        self._check_open()
        given = [self._ids(ids) for ids in checks.items("node_ids", node_ids, "a list of arrays of ids")]
        xp = library("cpu" if self.device == "cpu" else "cuda")
        with streams.results(self.device != "cpu"):
            ids = [a.astype(np.int64, copy=False) for a in given] or [xp.empty(0, np.int64)]
            merged, where = xp.unique(xp.concatenate(ids), return_inverse=True)
        rows, index, stats = self._extract(merged, None, None)
        with streams.results(self.device != "cpu"):
            where = where.reshape(-1) if index is None else index[where.reshape(-1)]
            ends = np.cumsum([a.size for a in given]).tolist()
            return [rows[where[end - a.size : end]] for a, end in zip(given, ends)], stats

    def another(self) -> FeatureCache:
        """This cache for another worker of this rank; all ranks call it alike, and their copies meet each other.

        It has the same rows in the same memory; collectives, which get a process group, and :attr:`traffic` are its
        own. Both may be called at the same time. It is to be closed before this one.

        Raises:
            RuntimeError: the cache was closed.
        """
        self._check_open()
        found, layout = copy.copy(self), self._setup.layout.apart()
        found._groups, found._lock, found.last = layout.own_groups, Lock(), None
        found._setup = replace(self._setup, layout=layout, exchange=layout.exchange, world=layout.world)
        found._engine = self._engine.another(found._setup)
        return found

    def close(self) -> None:
        """Give back what other ranks may read; all ranks call it together. May be called twice."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
            while self._groups:
                self.rank.leave_group(self._groups.pop())

    # ---- inside -----------------------------------------------------------------------------------------------

    @property
    def _asks_owners(self) -> bool:
        """Whether finding positions takes messages."""
        return self.positions == "owner" and self.transport != "direct"

    def _check_open(self) -> None:
        if self._engine is None:
            raise RuntimeError("the cache was closed")

    def _ids(self, node_ids: Any) -> Any:
        if self.device != "cpu" and is_cuda_array(node_ids):
            return device_ids(node_ids)
        given = checks.host_integers("node_ids", node_ids)
        checks.ids_below("node_ids", given, self.num_nodes)
        ids = np.ascontiguousarray(given, dtype=np.int64)
        if self.device == "cpu":
            return ids
        import cupy

        return cupy.asarray(ids)

    def _marked(self, ids: Any) -> RankMarks:
        places, positions, *more = self._engine.find(ids)
        return RankMarks(int(ids.size), places, positions, *more)

    def _extract(self, node_ids: Any, marks: Any, out: Any) -> tuple[Any, Any, RankStats]:
        """Rows, where each is if they are not in order, and stats; ``out`` is written to where they are."""
        self._check_open()
        ordered = self.transport != "all-to-all-unordered"
        on_gpu = self.device != "cpu"
        with streams.call(on_gpu), self._lock:
            ids = self._ids(node_ids)
            if marks is not None:
                self._check_marks(marks, ids)
            if out is not None:
                self._check_output(out, int(ids.size))
            rows = self._output(int(ids.size)) if out is None or not ordered else out
            traffic = self._setup.begin()
            began = time.perf_counter()
            if marks is None:
                marks = self._marked(ids)
            if on_gpu:
                index, count, ready = self._engine.gather(ids, marks, rows, ordered)
            else:
                traffic.label = self._engine.label
                index, found, stages = self._engine.gather(ids, marks.places, marks.positions, rows, ordered)
                time_us, ready = (time.perf_counter() - began) * 1e6, streams.DONE

                def count() -> Any:
                    return found, time_us, stages

            where = runtime.device_name() if on_gpu else "the CPU"
            self.last = RankStats(int(ids.size), self._setup, f"measured on {where}", count, traffic, ready)
            return rows, index, self.last

    def _check_marks(self, marks: Any, ids: Any) -> None:
        checks.instance("marks", marks, RankMarks, "what mark() returned")
        if marks.rows != ids.size:
            raise ValueError(f"marks must be of the same batch, {ids.size} rows (got {marks.rows})")
        if marks.ids is not None and not np.array_equal(marks.ids, ids):
            raise ValueError("marks must be of the same batch (got marks of other vertices)")
        if marks.digest not in (None, self.placement.digest):
            raise ValueError("marks must be of a cache with the same placement (got those of another cache)")

    def _output(self, rows: int) -> Any:
        if self.device == "cpu":
            return np.empty((rows, self.num_features), self.dtype)
        return streams.empty((rows, self.num_features), self.dtype, streams.Ready())

    def _check_output(self, out: Any, rows: int) -> None:
        shape = (rows, self.num_features)
        if is_cuda_array(out) != (self.device != "cpu") or not hasattr(out, "flags"):
            raise TypeError(f"out must be an array on {self.device} (got {checks.shown(out)})")
        if tuple(out.shape) != shape or out.dtype != self.dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be row-major {self.dtype}{list(shape)} (got {out.dtype}{list(out.shape)})"
            )
        if self.device == "cpu" and not out.flags.writeable:
            raise ValueError("out must be an array that can be written to (got a read-only one)")

    def __repr__(self) -> str:
        return (
            f"FeatureCache({self.kind}, {self.transport}: {self.num_cached:,} of {self.num_nodes:,} rows on rank "
            f"{self.rank.index} of {self.rank.world_size}, {len(self.placement.cold):,} cold)"
        )
