"""Sampling and relabelling on the GPU: one launch for any number of mini-batches, one wait for their sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.polling import await_word
from gnnsample_lab.minibatch.id_map.ladder import SAMPLER_DEFAULT
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.minibatch.waves import Waves
from gnnsample_lab.sampling.neighbors.launch import Knobs, Launcher, Phase, capture
from gnnsample_lab.sampling.neighbors.plan import (
    MAX_NODES,
    STATUS_BAD_SEED,
    STATUS_BROKEN,
    STATUS_MERGE,
    STATUS_STALLED,
    WANTED_ROWS,
)
from gnnsample_lab.sampling.neighbors.sizes import MAX_MARGIN, Sizer, seed_capacity
from gnnsample_lab.sampling.neighbors.spec import SampleSpec
from gnnsample_lab.sampling.neighbors.strategies import QUEUE_STRATEGIES
from gnnsample_lab.sampling.neighbors.workspace import TOTALS, TOTALS_BYTES, TOTALS_FLAG, Workspace
from gnnsample_lab.sampling.weights import IntegerWeights

from .arena import NO_ARENAS, Arenas, Room, Wishes
from .finish import Finisher
from .per_hop import PER_HOP_STRATEGIES, PerHopSampler
from .rows import RowTable

_AUTO_CANDIDATES = ("captured", "grid-barrier", "bsp")
_AUTO_RESERVOIR = ("persistent", "edge-bsp", "turbo-bsp")
"""Further candidates for ``strategy="auto"`` with the reservoir, whose work grows with the degree and not the fanout:
these strategies share a vertex of high degree among many threads."""
_AUTO_REPEATS = 5


@dataclass(frozen=True, eq=False)
class _Wave:
    """A launch under way, and what it reads and writes (``keep``: arrays that must live until its end)."""

    ws: Workspace
    seeds: Sequence[Any]
    first_batch_id: int
    most_seeds: int
    room: Room
    arenas: Arenas
    keep: list[Any]
    timing: Any
    prepared: Sequence[Any]


class Started:
    """Mini-batches that :meth:`GpuEngine.start` has launched, or has made at once.

    Launched ones are collected on the stream of their launch, whichever is current.

    Args:
        batches: what has been made at once.
        wave: what has been launched; rest: seeds of mini-batches after it, which are launched when it is collected.
    """

    def __init__(
        self,
        engine: GpuEngine,
        batches: list[MiniBatch] | None = None,
        wave: _Wave | None = None,
        rest: Sequence[Any] = (),
    ) -> None:
        import cupy

        self._engine, self._batches, self._wave, self._rest = engine, batches, wave, rest
        self._stream = cupy.cuda.get_current_stream()
        self._error: BaseException | None = None
        self._dropped = False

    def drop(self) -> None:
        """Nobody will ask for the mini-batches: their memory is free behind the launch, on its stream.

        Launches nothing and takes no lock, so that Python's collector may call it at any moment.
        """
        self._dropped, self._batches, self._rest = True, None, ()
        wave = self._wave
        if wave is not None:  # the launch still reads its records and seeds
            self._wave = replace(wave, arenas=NO_ARENAS, prepared=())

    def collect(self) -> None:
        """Wait for the sizes, and draw anew where buffers were too small; what goes wrong is for :meth:`result`."""
        wave, self._wave = self._wave, None
        if wave is None:
            return
        engine = self._engine
        engine.forget_started(self)
        try:
            with self._stream:
                if self._dropped:
                    engine.let_go(wave)
                else:
                    self._batches = engine.landed(wave, self._rest)
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):  # an interrupt is everybody's
                raise

    def result(self) -> list[MiniBatch]:
        """The mini-batches. The host waits for their sizes; the engine's lock must be held.

        Raises:
            ValueError, RuntimeError: as ``sample_many`` does; they were dropped.
        """
        self.collect()
        if self._dropped:
            raise RuntimeError("these mini-batches were dropped")
        if self._error is not None:
            raise self._error
        assert self._batches is not None
        return self._batches


class GpuEngine:
    """Samples on the GPU for one :class:`NeighborSampler`."""

    def __init__(
        self,
        graph: Any,
        spec: SampleSpec,
        weights: IntegerWeights | None,
        strategy: str,
        completion: str,
        fetch_size: int,
        traced: bool,
        scratch_bytes: int | None,
        table: str | None = None,
        knobs: Knobs | None = None,
        id_map: str = "auto",
    ) -> None:

        if graph.num_nodes > MAX_NODES:
            raise ValueError(f"graph has {graph.num_nodes} vertices; at most {MAX_NODES} work on a GPU")
        self.graph, self.spec, self.weights = graph, spec, weights
        self.id_map = id_map
        self.strategy, self.fetch_size, self.traced = strategy, fetch_size, traced
        self.paper = completion == "paper"
        self.knobs = knobs or Knobs()
        self.scratch_limit = runtime.scratch_bytes(scratch_bytes)
        self.table = table
        self.reason = f"strategy={strategy!r} was asked for"
        self._margin = 1.0
        self._merges = False  # until seeds were met that are not distinct
        self._workspaces: dict[tuple[int, int], Workspace] = {}
        self.waves: dict[int, Waves] = {}  # by seed capacity
        self.wishes = Wishes()
        self._rooms: dict[tuple[int, int], Room] = {}  # by seed capacity and what is wanted
        self._table = RowTable.of(graph, self.id_type)
        self._turns = self._new_turns()
        self._started: Started | None = None
        self._chosen = strategy
        if strategy == "auto":
            self._chosen = "captured"
            self.reason = "not measured yet: strategy='auto' measures at the first sample"
            self._undecided = not traced
            if traced:
                self.reason = (
                    "a traced run times kernels one by one, so 'auto' takes 'captured' without measuring"
                )
        else:
            self._undecided = False
        self._set_up()

    @property
    def id_type(self) -> str:
        """The kernels' name of the type of vertex ids."""
        return "int" if self.graph.indices.dtype.itemsize == 4 else "long"

    def _new_turns(self) -> streams.Turns:
        """Of launches, which read these arrays."""
        reads = () if self.weights is None else (self.weights.prefix, self.weights.available)
        features = None if self._table is None else self._table.table
        return streams.Turns(self.graph.indptr, self.graph.indices, features, *reads)

    def brings(self, table: RowTable) -> None:
        """Launches bring the rows of ``table`` instead of the graph's features; before the first one."""
        self._table, self.wishes.sums = table, table.sums
        self._turns = self._new_turns()
        self._set_up()

    def _set_up(self) -> None:
        strategy = self._chosen
        queued = strategy in QUEUE_STRATEGIES
        self.launcher = Launcher(self.graph, self.spec, strategy, self.traced, self.knobs)
        self.sizer = Sizer(
            self.graph, self.spec, self.scratch_limit, queued, self.traced, self.table, self.launcher.hub_limit,
            self.launcher.teams,
        )  # fmt: skip
        self.launcher.sorts_last, self.launcher.merges = strategy in ("bsp", "captured"), self._merges
        self.finisher = Finisher(self.launcher, queued, self._table)
        self.per_hop = None
        if strategy in PER_HOP_STRATEGIES:
            chosen = SAMPLER_DEFAULT if self.id_map == "auto" else self.id_map
            self.per_hop = PerHopSampler(
                self.graph, self.spec, self.weights, self.launcher, chosen, self.scratch_limit
            )
        self._forget()

    def _forget(self) -> None:
        """Free all buffers, and forget the times of launches that used them."""
        self._workspaces.clear()
        self.waves.clear()

    @property
    def scratch_bytes(self) -> int:
        held = self.per_hop.scratch_bytes if self.per_hop is not None else 0
        return held + sum(w.num_bytes for w in self._workspaces.values())

    def sample_many(self, seeds: Sequence[Any], first_batch_id: int) -> list[MiniBatch]:
        """Mini-batches of ``seeds`` with consecutive batch ids; :mod:`..waves` chooses how many share a launch."""
        self._collect_started()
        self._turns.take()
        if self._undecided:
            try:
                self._decide(seeds, first_batch_id)
            except BaseException:  # the measurement is incomplete: the next call repeats it
                self._chosen, self._undecided = "captured", True
                self._set_up()
                raise
        result = self._sample_all(seeds, first_batch_id, timed=True)
        self._turns.leave()
        return result

    def _sample_all(self, seeds: Sequence[Any], first_batch_id: int, timed: bool) -> list[MiniBatch]:
        if self.per_hop is not None:
            return [self._sample_per_hop(s, first_batch_id + i) for i, s in enumerate(seeds)]
        most_seeds = max(int(s.size) for s in seeds)
        result: list[MiniBatch] = []
        for size in self._wave_sizes(len(seeds), most_seeds, timed):
            begin = len(result)
            result += self._sample_wave(seeds[begin : begin + size], first_batch_id + begin, most_seeds)
        return result

    def _wave_sizes(self, count: int, most_seeds: int, timed: bool) -> Iterable[int]:
        """Mini-batches of each launch; all launches of a call have capacity for ``most_seeds`` and share buffers."""
        if count == 1 or self.traced:
            return [1] * count
        waves = self._waves_of(most_seeds)
        return waves.timed(count) if timed else waves.untimed(count)

    def _waves_of(self, most_seeds: int) -> Waves:
        """What is known of launches of mini-batches of up to as many seeds."""
        cap = seed_capacity(most_seeds)
        waves = self.waves.get(cap)
        if waves is None:
            begin, most = self.sizer.batches_at_once(cap)
            waves = self.waves[cap] = Waves(begin, min(most, self.launcher.sms))
        return waves

    def workspace(self, num_batches: int, max_seeds: int) -> Workspace:
        """Buffers for a launch. They are kept as long as all kept buffers fit the scratch bound."""
        key = (num_batches, seed_capacity(max_seeds))
        found = self._workspaces.get(key)
        if found is not None:
            return found
        shape = self.sizer.shape(num_batches, key[1], self._margin)
        need = self.sizer.num_bytes(shape)
        while self._workspaces and self.scratch_bytes + need > self.scratch_limit:
            self._workspaces.pop(next(iter(self._workspaces)))
        with streams.leasing(self._turns):
            made = Workspace(
                self.graph, self.spec, self.weights, shape, self.launcher.strategy in QUEUE_STRATEGIES, self.traced,
                self.fetch_size, self.paper,
            )  # fmt: skip
        made.job["finish"]["row_bytes"] = 0 if self._table is None else self._table.row_bytes
        self._workspaces[key] = made
        return made

    def _sample_wave(self, seeds: Sequence[Any], first_batch_id: int, most_seeds: int) -> list[MiniBatch]:
        return self._landed(self._launch_wave(seeds, first_batch_id, most_seeds))

    def starts(self, count: int, most_seeds: int) -> int:
        """How many of ``count`` mini-batches :meth:`start` launches without waiting; 0: it makes all at once.

        That is as many as share a launch best, once :mod:`..waves` knows it.
        """
        if self._undecided or self.per_hop is not None or self.traced or streams.is_per_thread():
            return 0
        if count == 1:
            return 1
        return min(count, self._waves_of(most_seeds).settled(count) or 0)

    def start(self, seeds: Sequence[Any], first_batch_id: int) -> Started:
        """Launch mini-batches and do not wait for their sizes, as many as share a launch best; others follow later.

        The next call of any kind, of whichever thread, first collects what was started: launches share buffers.
        """
        self._collect_started()  # it may change what is known
        most_seeds = max(int(s.size) for s in seeds)
        size = self.starts(len(seeds), most_seeds)
        if not size:
            return Started(self, self.sample_many(seeds, first_batch_id))
        self._turns.take()
        wave = self._launch_wave(seeds[:size], first_batch_id, most_seeds)
        started = Started(self, wave=wave, rest=seeds[size:])
        self._started = started
        self._turns.leave()
        return started

    def _collect_started(self) -> None:
        """Collect what was started, before a call takes its turn: collecting may launch on another stream."""
        if self._started is not None:
            self._started.collect()

    def forget_started(self, started: Started) -> None:
        if self._started is started:
            self._started = None

    def let_go(self, wave: _Wave) -> None:
        """Wait for a launch whose mini-batches nobody wants."""
        try:
            self._await_totals(wave.ws)
        except BaseException:
            self._abandon()
            raise
        if any(found[0] for found in wave.ws.totals()):
            self._forget()

    def landed(self, wave: _Wave, rest: Sequence[Any] = ()) -> list[MiniBatch]:
        """The mini-batches of a launch, drawn anew if its buffers were too small or its seeds not distinct.

        Args:
            rest: seeds of those after them, which are sampled now.
        """
        self._turns.take()
        batches = self._landed(wave)
        for size in self._wave_sizes(len(rest), wave.most_seeds, timed=False) if rest else ():
            begin = len(batches) - len(wave.seeds)
            batches += self._sample_wave(
                rest[begin : begin + size], wave.first_batch_id + len(batches), wave.most_seeds
            )
        self._turns.leave()
        return batches

    def _landed(self, wave: _Wave) -> list[MiniBatch]:
        merged = self._merges
        batches = self._land(wave)
        if batches is None:
            try:
                batches = self._sample_wave(wave.seeds, wave.first_batch_id, wave.most_seeds)
            except ValueError:
                # Seeds outside the graph look like seeds that come twice; the next ones need no merge.
                if self._merges and not merged:
                    self._merges = self.launcher.merges = False
                    self._forget()
                raise
        return batches

    def _launch_wave(self, seeds: Sequence[Any], first_batch_id: int, most_seeds: int) -> _Wave:
        """Launch mini-batches, and make what can be made before their sizes are known."""
        ws = self.workspace(len(seeds), most_seeds)
        try:
            room = self._room(ws.shape.seed_cap)
            arenas = self._arenas(len(seeds), room, self._room(ws.shape.seed_cap, WANTED_ROWS))
            keep = self.stage(ws, seeds, first_batch_id, arenas)
            timing = self.launch(ws, bool(arenas.memories and arenas.wanted & WANTED_ROWS))
            prepared = (
                self.finisher.prepare(seeds, first_batch_id, self.graph, arenas) if arenas.memories else []
            )
        except BaseException:
            self._abandon()
            raise
        return _Wave(ws, seeds, first_batch_id, most_seeds, room, arenas, keep, timing, prepared)

    def _land(self, wave: _Wave) -> list[MiniBatch] | None:
        """Wait for the sizes; None if the mini-batches have to be drawn anew: the buffers were too small, and larger
        ones have been prepared, or seeds are not distinct, and from now on they are merged."""
        ws = wave.ws
        try:
            self._await_totals(ws)
        except BaseException:
            self._abandon()
            raise
        status, totals = 0, ws.totals()
        for found in totals:
            status |= found[0]
        if not status:
            self._saw(wave, totals)
            batches = self.finisher.collect(
                ws, totals, wave.seeds, wave.first_batch_id, self.graph, wave.arenas, wave.prepared
            )
            if wave.timing is not None:
                from .trace import with_trace

                batches[0] = with_trace(self, ws, batches[0], wave.timing)
            return batches
        if status & STATUS_MERGE:  # nothing else that the status says counts: it may follow from these seeds
            self._merges = self.launcher.merges = True
            self._forget()  # captured graphs, too
            return None
        if status & STATUS_BAD_SEED:
            raise ValueError(f"seeds must be vertex ids in 0..{self.graph.num_nodes - 1} (got one outside)")
        if status & STATUS_STALLED:
            raise RuntimeError(
                f"strategy {self.strategy!r} made no progress and was stopped; no sample was made"
            )
        if status & STATUS_BROKEN:
            self._forget()
            raise RuntimeError(
                f"strategy {self.strategy!r} lost a seed that it had inserted: other work on the GPU has "
                "overwritten its memory; no sample was made"
            )
        self._grow()
        return None

    def _abandon(self) -> None:
        """Forget the workspaces after a failure or an interrupt, whose launch may still be under way."""
        import cupy

        # Stamps and tables may be in an intermediate state, and kernels may still write to pinned memory, which no
        # stream protects after it is freed. Python handles interrupts between bytecodes, so this one call waits to its
        # end.
        try:
            cupy.cuda.get_current_stream().synchronize()
        finally:
            self._forget()

    def _sample_per_hop(self, seeds: Any, batch_id: int) -> MiniBatch:
        assert self.per_hop is not None
        if not self.traced:
            return self.per_hop.sample(seeds, batch_id)
        from .trace import Timing, with_per_hop_trace

        timing = Timing()
        batch = self.per_hop.sample(seeds, batch_id, timing)
        timing.events[-1][2].synchronize()
        return with_per_hop_trace(self, batch, timing)

    def _grow(self) -> None:
        """Prepare larger buffers after an overflow, within the bound; the caller draws the same sample again."""
        self._forget()
        self._margin *= 2
        if self._margin > MAX_MARGIN:
            self._margin = float(MAX_MARGIN)
            raise self.sizer.too_small()

    def _room(self, seed_cap: int, wanted: int | None = None) -> Room:
        """Of the arrays of a mini-batch without rows of features, or with ``WANTED_ROWS`` of these rows alone."""
        key = (seed_cap, self.wishes.bits & ~WANTED_ROWS if wanted is None else wanted)
        if key not in self._rooms:
            self._rooms[key] = Room()
        return self._rooms[key]

    def _saw(self, wave: _Wave, totals: Sequence[list[int]]) -> None:
        """Note the sizes of the mini-batches of a launch."""
        if self._table is None or not self.wishes.bits & WANTED_ROWS:
            for found in totals:
                wave.room.saw(found[TOTALS_BYTES])
            return
        room = self._room(wave.ws.shape.seed_cap, WANTED_ROWS)
        for found in totals:
            rows = self._table.bytes_of(found[1 + self.spec.num_hops])
            room.saw(rows)
            wave.room.saw(found[TOTALS_BYTES] - (rows if wave.arenas.wanted & WANTED_ROWS else 0))

    def _arenas(self, count: int, room: Room, of_rows: Room) -> Arenas:
        """Memory for the arrays of ``count`` mini-batches, by the sizes of those before them."""
        import cupy

        size, wanted = 0 if self.traced else room.bytes(), self.wishes.bits
        if wanted & WANTED_ROWS:
            rows = of_rows.bytes()
            if self._table is None or not (size and rows and self._table.fits(count * rows)):
                wanted &= ~WANTED_ROWS
            else:
                size += rows
        try:
            memories = [cupy.cuda.alloc(size) for _ in range(count)] if size else []
        except cupy.cuda.memory.OutOfMemoryError:  # what the mini-batches really need may still be there
            memories, size = [], 0
            wanted &= ~WANTED_ROWS
        return Arenas(memories, size, wanted, self.wishes)

    def stage(
        self, ws: Workspace, seeds: Sequence[Any], first_batch_id: int, arenas: Arenas = NO_ARENAS
    ) -> list[Any]:
        """Write the records that the launch reads from host memory. Returns arrays that must live until its end."""
        base, tag = ws.stamp()
        keep = []
        for i, given in enumerate(seeds):
            array = given
            if array.dtype != np.int32 and array.dtype != np.int64:
                array = array.astype(np.int64)
            if isinstance(array, np.ndarray) or not array.flags.c_contiguous:
                import cupy

                array = cupy.ascontiguousarray(cupy.asarray(array))
            keep.append(array)
            arena = arenas.memories[i].ptr if arenas.memories else 0
            ws.write_batch(
                i, array.data.ptr, array.size, array.itemsize == 8, first_batch_id + i, base, tag, arenas.wanted, arena,
                arenas.room,
            )  # fmt: skip
        return keep

    def launch(self, ws: Workspace, rows: bool = False) -> Any:
        """Sample, scan and emit; asynchronous, :meth:`_await_totals` waits for the sizes.

        Args:
            rows: with rows of features, where the records of the mini-batches want them.
        """
        import cupy

        stream = cupy.cuda.get_current_stream()
        timing = None
        if self.traced:
            from .trace import timed_launch

            if not ws.warm:  # compile before tracing, so that the trace does not contain the compiler's time
                timed_launch(self, ws)
                stream.synchronize()
                ws.host_batches["base"], ws.host_batches["tag"] = ws.stamp()
                ws.warm = True
            timing = timed_launch(self, ws)
        elif self._chosen == "captured":
            if rows not in ws.graph_execs:
                # Several mini-batches fill the GPU by themselves: kernels that wait inside only take room from others.
                alone = ws.shape.num_batches == 1
                ws.graph_execs[rows] = capture(lambda: self._work(ws, rows), dependent=alone)
                # The first run, before the capture, has used this launch's stamps, so repeat it with new ones.
                stream.synchronize()
                ws.host_batches["base"], ws.host_batches["tag"] = ws.stamp()
            ws.graph_execs[rows].launch(stream)
        else:
            self._work(ws, rows)
        return timing

    def _await_totals(self, ws: Workspace) -> None:
        """Poll the flags that the scan kernel writes first, so that the host allocates while the GPU scans."""
        silence = f"strategy {self.strategy!r} did not report its totals"
        for i in range(ws.shape.num_batches):
            await_word(ws.totals_view, i * TOTALS + TOTALS_FLAG, ws.last_base, silence)

    def phases(self, ws: Workspace) -> Iterator[Phase]:
        """Everything that a launch puts on the stream, in order: the strategy's phases, then the scan."""
        yield from self.launcher.phases(ws)
        yield Phase("scanned", 0, lambda: self.finisher.scan(ws))

    def _work(self, ws: Workspace, rows: bool = False) -> None:
        for phase in self.phases(ws):
            phase.launch()
        self.finisher.emit(ws, rows)

    def _decide(self, seeds: Sequence[Any], first_batch_id: int) -> None:
        """``strategy="auto"``: run the candidates on the given seeds and keep the fastest."""
        import cupy

        self._undecided = False
        best: dict[str, float] = {}
        relabels_itself = self.id_map == "in-sampler"
        candidates: tuple[str, ...] = _AUTO_CANDIDATES
        if self.spec.rule == 1:
            candidates += tuple(
                s
                for s in _AUTO_RESERVOIR
                if (self.spec.expand == "frontier" or s != "persistent")
                and not (relabels_itself and s in PER_HOP_STRATEGIES)
            )
        for name in candidates:
            self._chosen = name
            self._set_up()
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            times = []
            for repeat in range(_AUTO_REPEATS + 2):
                begin.record()
                self._sample_all(seeds, first_batch_id, timed=False)
                end.record()
                end.synchronize()
                if repeat >= 2:
                    times.append(cupy.cuda.get_elapsed_time(begin, end) * 1e3)
            best[name] = min(times)
        self._chosen = min(best, key=best.__getitem__)
        self._set_up()
        listed = ", ".join(
            f"{name} {us:.0f} us" for name, us in sorted(best.items(), key=lambda item: item[1])
        )
        self.reason = (
            f"{self._chosen!r} was the fastest on {runtime.device_name()} for {len(seeds)} x {int(seeds[0].size)} "
            f"seeds and fanouts {list(self.spec.fanouts)}: {listed}"
        )


def copy_bandwidth_gbps() -> float:
    """Device-to-device copy bandwidth of this GPU, bytes read plus written, measured once per process."""
    return _measure_copy() if not _copy_cache else _copy_cache[0]


_copy_cache: list[float] = []


def _measure_copy() -> float:
    import cupy

    source = cupy.zeros(1 << 28, dtype=cupy.uint8)
    target = cupy.empty_like(source)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    fastest = math.inf
    for _ in range(6):
        begin.record()
        target.data.copy_from_device_async(source.data, source.nbytes)
        end.record()
        end.synchronize()
        fastest = min(fastest, cupy.cuda.get_elapsed_time(begin, end))
    _copy_cache.append(2 * source.nbytes / (fastest * 1e-3) / 1e9)
    return _copy_cache[0]
