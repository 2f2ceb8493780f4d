"""Launch a strategy's kernels on the current stream. Nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.device.capturing import without_collection
from gnnsample_lab.device.dependent import dependently, launch

from .plan import DISTINCT_BLOCK, NARROW, NUMBER_BLOCK, ONE_BLOCK_SEEDS
from .sizes import power_of_two, seed_blocks
from .spec import SampleSpec
from .strategies import PER_HOP_STRATEGIES, QUEUE_STRATEGIES
from .workspace import Workspace

_FETCHED_BYTES = 32
"""Shared memory of a `persistent` block per ticket of a fetch (``Fetched`` in ``queue/block.cu``)."""

_SHARING = ("block-bsp", "turbo-bsp", "bsp", "captured")
"""Strategies whose hops can share hubs among all multiprocessors."""
_HUB = 1024
"""Default of ``Knobs.hub_limit`` where it is not 0: of 1 024 to 8 192 the best on graphs with many hubs, and the one
that costs least where hubs are few."""


@dataclass
class Knobs:
    """Launch shapes. Results never depend on them; ``bench`` sweeps them and records the sweep.

    Attributes:
        blocks_per_sm: resident blocks per multiprocessor for grids that loop.
        block_threads: threads per row of `block-bsp`.
        queue_threads: threads of a block of `persistent` (64, 128 or 256, by default 128) and of `fused-static` (by
            default 128 where a task's work grows with the degree, under the reservoir, and 64 where it grows with the
            fanout).
        queue_teams: False: a block of `persistent` serves one task at a time, as PGSampler was published (section
            III-C), and not as a team that serves up to 32 together (``queue/team.cu``, ours). The published rule of
            completion always has it so.
        num_blocks: grid of the queue kernels, overriding ``blocks_per_sm``.
        delay_ns: highest random delay that kernels insert, to test schedules (0 for none).
        hub_limit: the reservoir's work is the degree, and vertices of more candidates than this are hubs: warps of all
            multiprocessors share their candidates (``hops/hubs.cuh``). 0: never, a block or a warp draws the vertex. By
            default 1 024 for `bsp` and `captured`, and 0 for `block-bsp` and `turbo-bsp`, which draw as they were
            published. Other strategies have ways of their own.
        relabel_last: also deduplicate the last hop's picks; False measures sampling without the ID map.
        self_reuse: queue strategies expand a finished vertex again at the next hop, as ``expand="frontier"`` demands.
            False serves only to reproduce which tasks the published completion rule loses without it.
    """

    blocks_per_sm: dict[str, int] = field(
        default_factory=lambda: {
            "hop": 4, "grid-barrier": 2, "persistent": 32, "persistent-tile": 4, "emit": 8, "turbo-bsp": 8,
            "edge-bsp": 8, "fused-static": 32, "hubs": 4, "rows": 4,
        }
    )  # fmt: skip
    block_threads: int = 128
    queue_threads: int | None = None
    queue_teams: bool = True
    num_blocks: int | None = None
    delay_ns: int = 0
    hub_limit: int | None = None
    relabel_last: bool = True
    self_reuse: bool = True


class Phase(NamedTuple):
    """A part of a run that a trace times by itself.

    Attributes:
        name: ``"prepared"`` (empty tables, seeds entered), ``"drawn"`` (one hop), ``"sampled"`` (everything, where the
            hops are not apart) or ``"scanned"`` (sizes and offsets).
        hop: the hop of ``"drawn"``, else 0.
        launch: puts the kernels on the current stream.
    """

    name: str
    hop: int
    launch: Callable[[], None]


class Launcher:
    """Compiles and launches the kernels of one strategy for one spec."""

    def __init__(self, graph: Any, spec: SampleSpec, strategy: str, traced: bool, knobs: Knobs) -> None:
        self.spec, self.strategy, self.traced, self.knobs = spec, strategy, traced, knobs
        self.id_type = "int" if graph.indices.dtype.itemsize == 4 else "long"
        self.wide_ids = self.id_type == "long"
        self.lists: int = getattr(graph, "lists", 0)  # a ListsGraph says where its lists lie
        self.sms = runtime.num_sms()
        # False: seeds are taken for distinct vertices, and STATUS_MERGE says where they are not.
        self.merges = True
        self.sorts_last = False  # whether the last hop of `bsp` and `captured` may list its vertices by id
        self.resident_workers = 0  # blocks of the queue kernel that run at once, for traces
        self._occupancy: dict[int, int] = {}
        self._kernels: dict[tuple[str, str, int, int | None], Any] = {}

    @property
    def hub_limit(self) -> int:
        """Candidates above which kernels of a hop share a vertex; 0: they share none."""
        if self.spec.rule != 1 or self.strategy not in _SHARING:
            return 0
        given = self.knobs.hub_limit
        return (0 if self.strategy in PER_HOP_STRATEGIES else _HUB) if given is None else given

    @property
    def teams(self) -> bool:
        """Whether teams of threads serve the queue, which then holds chunks of hubs, too; else one task at a time is
        served, as published, or a lane draws for each."""
        if self.strategy == "persistent-tile":
            return self.spec.rule == 1
        return self.strategy == "persistent" and self.knobs.queue_teams

    def macros(self, table: int, kmax: int | None) -> dict[str, int | str]:
        """Macros of a sampling module; without ``KMAX`` the kernels for wide hops are compiled."""
        chosen: dict[str, int | str] = {
            "ID_T": self.id_type, "RULE": self.spec.rule, "TABLE_KIND": table, "TRACE": int(self.traced),
        }  # fmt: skip
        if kmax is not None:
            chosen["KMAX"] = kmax
        if self.lists:
            chosen["LISTS"] = self.lists
        return chosen

    def kernel(self, source: str, name: str, table: int, kmax: int | None, **more: int) -> Any:
        key = (source, name, table, kmax)
        if key not in self._kernels:
            module = kernels.load_module("sampling/neighbors/" + source, {**self.macros(table, kmax), **more})
            kernel = module.get_function(name)
            # The driver's function launches with half the overhead; a cooperative launch needs CuPy's wrapper.
            self._kernels[key] = kernel if source == "hops/grid_barrier.cu" else kernel.kernel
        return self._kernels[key]

    def kmax(self, ws: Workspace, hop: int | None = None) -> int | None:
        """``KMAX`` for the fanout of ``hop`` (None: of all hops): 8, 16 or 32; None when a hop is wide."""
        strides = ws.shape.strides if hop is None else (ws.shape.strides[hop],)
        if any(s == 0 or s > NARROW for s in strides):
            return None
        return power_of_two(max(strides), 8)

    def phases(self, ws: Workspace) -> Iterator[Phase]:
        """What samples all mini-batches of ``ws``, in order: the kernels write the rows of every hop and the counters.

        Plain, captured and traced runs and benchmarks all launch these phases.
        """
        if self.strategy == "grid-barrier":
            yield Phase("sampled", 0, lambda: self._grid_barrier(ws))
        elif self.strategy in QUEUE_STRATEGIES:
            yield Phase("sampled", 0, lambda: self._queue(ws))
        else:
            yield Phase("prepared", 0, lambda: self._begin(ws))
            for hop in range(self.spec.num_hops):
                yield Phase("drawn", hop, partial(self._hop, ws, hop))

    def _prepare(self, ws: Workspace) -> None:
        """Tell the kernels what the knobs say, and empty the tables."""
        ws.plan["delay"] = self.knobs.delay_ns
        ws.plan["relabel_last"] = self.knobs.relabel_last
        ws.plan["self_reuse"] = self.knobs.self_reuse
        ws.plan["sorted_last"] = self._sorts(ws)
        ws.clear_tables()

    def _sorts(self, ws: Workspace) -> bool:
        """Whether the last hop only marks fresh vertices: one access to memory less for each, and for each look-up."""
        return self.sorts_last and ws.shape.table == 1 and self.knobs.relabel_last

    def _begin(self, ws: Workspace) -> None:
        self._prepare(ws)
        self._enter_seeds(ws)

    def _enter_seeds(self, ws: Workspace) -> None:
        shape, table = ws.shape, ws.shape.table
        if not self.merges:
            distinct = self.kernel("hops/hop.cu", "begin_distinct", table, 8)
            distinct((-(-shape.seed_cap // DISTINCT_BLOCK), shape.num_batches), (DISTINCT_BLOCK,), (ws.args,))
            return
        if shape.seed_cap <= ONE_BLOCK_SEEDS:
            begin = self.kernel("hops/hop.cu", "begin", table, 8)
            threads = min(1024, max(128, power_of_two(shape.seed_cap)))
            begin((1, shape.num_batches), (threads,), (ws.args,), shared_mem=ws.seed_slots * 8)
            return
        names = ["begin_count", "begin_number"] if ws.seed_sums is not None else ["begin_number"]
        insert = self.kernel("hops/hop.cu", "begin_insert", table, 8)
        insert((-(-shape.seed_cap // 256), shape.num_batches), (256,), (ws.args,))
        for name in names:
            kernel = self.kernel("hops/hop.cu", name, table, 8)
            launch(kernel, (seed_blocks(shape.seed_cap), shape.num_batches), (NUMBER_BLOCK,), (ws.args,))

    def _hop(self, ws: Workspace, hop: int) -> None:
        """The kernel of one hop, and the one of its hubs where the graph has any: strategies `bsp` and `captured`."""
        warps = 4 if self.wide_ids else 8
        kmax = self.kmax(ws, hop)
        kernel = self.kernel("hops/hop.cu", "hop", ws.shape.table, kmax)
        most = max(1, self.knobs.blocks_per_sm["hop"] * self.sms // ws.shape.num_batches)
        resident = self._resident("hop", kernel, warps * 32)
        grid = max(1, min(most, resident // ws.shape.num_batches, -(-ws.shape.row_caps[hop] // warps)))
        place = (grid, ws.shape.num_batches), (warps * 32,), (ws.args, np.int32(hop))
        if hop + 1 == self.spec.num_hops and self._sorts(ws):
            ws.keep_early()
            kernel(*place)  # not dependently: a copy is no kernel
        else:
            launch(kernel, *place)
        if ws.shape.hub_cap:
            hubs = self.kernel("hops/hop.cu", "hop_hubs", ws.shape.table, kmax)
            grid = max(1, self._resident("hubs", hubs, warps * 32) // ws.shape.num_batches)
            launch(hubs, (grid, ws.shape.num_batches), (warps * 32,), (ws.args, np.int32(hop)))

    def _grid_barrier(self, ws: Workspace) -> None:
        self._prepare(ws)
        warps = 4 if self.wide_ids else 8
        kernel = self.kernel("hops/grid_barrier.cu", "grid_barrier", ws.shape.table, self.kmax(ws))
        resident = self._resident("grid-barrier", kernel, warps * 32)
        grid = self.knobs.num_blocks or max(1, resident // ws.shape.num_batches)
        ws.arrived.data.memset_async(0, ws.arrived.nbytes)
        begun = ws.shape.seed_cap > ONE_BLOCK_SEEDS
        if begun:
            self._enter_seeds(ws)
        args = (ws.args, ws.arrived, np.int32(begun))
        kernels.launch_cooperative(kernel, (grid, ws.shape.num_batches), (warps * 32,), args)

    def _queue(self, ws: Workspace) -> None:
        self._begin(ws)
        if self._in_teams(ws):
            self._teams(ws)
            return
        name, threads, shared = self.strategy.replace("-", "_"), self.knobs.queue_threads, 0
        if threads is None:
            threads = 128 if self.spec.rule == 1 else 64
        if self.strategy == "persistent-tile":
            kernel = self.kernel("queue/tile.cu", name, ws.shape.table, self.kmax(ws))
            threads = 128
        else:
            kernel = self.kernel("queue/block.cu", name, ws.shape.table, None)
        if self.strategy == "persistent":
            shared = _FETCHED_BYTES * int(ws.plan["fetch_size"][0])
        resident = self._resident(self.strategy, kernel, threads, shared)
        self.resident_workers = resident
        if self.strategy == "fused-static":
            grid = ws.shape.queue_cap  # a block for each task that may exist
        else:
            grid = self.knobs.num_blocks or max(1, resident // ws.shape.num_batches)
        kernel((grid, ws.shape.num_batches), (threads,), (ws.args,), shared_mem=shared)

    def _in_teams(self, ws: Workspace) -> bool:
        """Whether teams serve the queue of this launch: the published completion rule is of blocks."""
        return self.teams and not (self.strategy == "persistent" and int(ws.plan["paper"][0]))

    def _teams(self, ws: Workspace) -> None:
        """The queue, served by teams of threads: by blocks (`persistent`) or by warps (`persistent-tile`)."""
        if self.strategy == "persistent-tile":
            team, threads, most = 1, 128, 32
        else:
            team = max(2, (self.knobs.queue_threads or 128) // 32)
            threads, most = 32 * team, min(32, 8 * ws.fetch_size)
        ws.plan["fetch_size"] = most
        kernel = self.kernel("queue/team.cu", "serve_teams", ws.shape.table, self.kmax(ws), TEAM=team)
        self.resident_workers = self._resident(self.strategy, kernel, threads)
        grid = self.knobs.num_blocks or max(1, self.resident_workers // ws.shape.num_batches)
        launch(kernel, (grid, ws.shape.num_batches), (threads,), (ws.args,))

    def _resident(self, strategy: str, kernel: Any, threads: int, shared: int = 0) -> int:
        """Blocks that the GPU holds at once. Blocks of these kernels wait for one another, so all must be resident."""
        if id(kernel) not in self._occupancy:
            self._occupancy[id(kernel)] = occupancy(kernel, threads, shared)
        per_sm = self._occupancy[id(kernel)]
        return self.sms * max(1, min(per_sm, self.knobs.blocks_per_sm[strategy]))


def occupancy(kernel: Any, threads: int, shared: int = 0) -> int:
    """Blocks of ``threads`` threads that one multiprocessor holds, by the CUDA occupancy calculator."""
    from cupy_backends.cuda.api import driver

    function = getattr(kernel, "kernel", kernel)
    return int(driver.occupancyMaxActiveBlocksPerMultiprocessor(function.ptr, threads, shared))


def capture(work: Callable[[], None], dependent: bool = True) -> Any:
    """Record ``work`` into a CUDA graph. A first run of ``work`` compiles and allocates everything that it needs.

    Args:
        dependent: kernels of this package that can begin while the one before them ends, do.
    """
    import cupy

    work()
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream, without_collection():
        stream.begin_capture()
        try:
            with dependently(dependent):
                work()
        finally:
            graph = stream.end_capture()
    return graph
