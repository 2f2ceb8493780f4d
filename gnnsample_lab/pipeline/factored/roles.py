"""What samplers and trainers do in an epoch: sample and hand over, fetch and train, stand by and switch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from gnnsample_lab.distributed.ranks.errors import note_stage
from gnnsample_lab.minibatch.export import tensor
from gnnsample_lab.pipeline import executors
from gnnsample_lab.pipeline.clock import StageClock
from gnnsample_lab.pipeline.exchange import Round, RoundExchange
from gnnsample_lab.pipeline.executors import Ready, Sampled, Stages
from gnnsample_lab.pipeline.features import totals
from gnnsample_lab.pipeline.memory import give_back
from gnnsample_lab.pipeline.plan import EpochPlan
from gnnsample_lab.pipeline.records import EpochRecord
from gnnsample_lab.pipeline.trainer import EVALUATION_BATCHES, Trainer

from .service import Client
from .slots import HostSlots, PeerSlots, pack

IN_HAND = 4
"""Mini-batches that a trainer has at a time: trained on, ready, on its way, and not yet given back."""


@dataclass(frozen=True)
class Split:
    """How ranks are divided and what they agree on.

    Attributes:
        ranks: of them, ranks 0 to ``samplers - 1`` sample.
        switching: samplers that are done train while that pays; with no other trainers, always.
        staleness: rounds that a trainer may be ahead of the slowest; None for no bound.
        pipelined: trainers extract while they train.
        capacity: mini-batches that the global queue holds; None for an epoch.
        handover: ``"host"``: samples go through files of the host; ``"peer"``: they stay in their sampler's device
            memory, where trainers read them.
        swap: samplers, all ranks, give their device memory to the topology first and then to the cache (AGL's batch
            mode, as GNNLab's section 3 describes it).
    """

    ranks: int
    samplers: int
    switching: bool
    staleness: int | None = 0
    pipelined: bool = True
    capacity: int | None = None
    handover: str = "host"
    swap: bool = False

    @property
    def trainers(self) -> int:
        """Ranks that train all the time."""
        return self.ranks - self.samplers

    @property
    def replicas(self) -> list[int]:
        """Ranks with a model: trainers, and samplers that may switch."""
        return list(range(0 if self.switching else self.samplers, self.ranks))

    def queue_capacity(self) -> int | None:
        """Mini-batches that the global queue holds; None for an epoch, which the paper stores where samplers switch."""
        if self.capacity is not None or (self.switching and self.handover == "host"):
            return self.capacity
        return 2 * max(1, self.trainers)

    @property
    def own_slots(self) -> int:
        """Slots in each sampler's own memory: what waits, and what trainers read where it is."""
        waiting = -(-(self.queue_capacity() or 0) // self.samplers)
        return waiting + IN_HAND * len(self.replicas) + 1

    def check_capacity(self, batches: int) -> None:
        """Raises ValueError where all ranks sample first, and the queue does not hold what they sample."""
        if not self.trainers and self.handover == "peer":
            raise ValueError(
                "handover='peer' has a few slots in device memory; where all ranks sample first, an epoch waits in "
                f"host memory: handover='host' (got {self.samplers} samplers of {self.ranks} ranks)"
            )
        if not self.trainers and self.capacity is not None and self.capacity < batches:
            raise ValueError(
                f"capacity must hold all {batches} mini-batches where sampling ends before training begins "
                f"(got {self.capacity})"
            )


@dataclass(eq=False)
class Fetched(Stages):
    """Stages of a trainer: sampling is fetching what samplers have put into the global queue."""

    client: Client | None = None
    slots: HostSlots | None = None
    peers: PeerSlots | None = None
    fetched: int = 0
    read: dict[int, dict[str, Any]] = field(default_factory=dict)
    trained: SimpleQueue[tuple[dict[str, Any], Any]] = field(default_factory=SimpleQueue)

    def sample_window(self, sampler: int = 0, samplers: int = 1) -> list[Sampled]:
        assert self.client is not None
        self.give_back()
        item = self.client.get()
        return [] if item is None else [self.fetch(item)]

    def fetch(self, item: dict[str, Any]) -> Sampled:
        """The mini-batch of a slot. One of the host's is copied to this device, and its slot is free again."""
        assert self.client is not None and self.slots is not None
        slot, owner = item["slot"], item["owner"]
        with self.clock.stage("get", 0) as noted:
            if owner < 0:
                batch, marks = self.slots.read(slot, item["header"])
                self.client.free(slot)
            else:
                assert self.peers is not None
                batch, marks = self.peers.read(owner, slot, item["header"])
                self.read[int(batch.batch_id)] = item
            noted.batch = int(batch.batch_id)
        self.fetched += 1
        return Sampled(batch, marks, self.fetched - 1)

    def finished(self, ready: Ready) -> None:
        """What reads a mini-batch has been enqueued; its slot is given back when that is done."""
        item = self.read.pop(int(ready.batch.batch_id), None)
        if item is None:
            return
        done = ready.done
        if done is None and self.device == "cuda":
            import torch

            done = torch.cuda.Event()
            done.record()
        self.trained.put((item, done))

    def give_back(self) -> None:
        """Free the slots of mini-batches that were trained on."""
        assert self.client is not None
        while not self.trained.empty():
            item, done = self.trained.get()
            if done is not None:
                done.synchronize()
            self.client.free(item["slot"], item["owner"])


@dataclass(eq=False)
class Swaps:
    """Device memory that is the topology's while a rank samples, and the cache's while it trains.

    Attributes:
        make_sampler: puts the topology on the device. make_features: fills the cache.
        numbering: a sampler on the host, which numbers mini-batches while the topology is not on the device.
        bytes_of: of a sampler's topology.
        topology, cache: the most bytes that either took.
    """

    make_sampler: Callable[[], Any]
    make_features: Callable[[], Any]
    numbering: Any
    bytes_of: Callable[[Any], int]
    topology: int = 0
    cache: int = 0

    def load_topology(self, trainer: Trainer) -> None:
        """Drop the cache, and sample from the device from now on."""
        trainer.features = trainer.plain_features = None
        self._give_back(trainer.device)
        trainer.use_sampler(self.make_sampler())
        self.topology = max(self.topology, self.bytes_of(trainer.sampler))

    def load_cache(self, trainer: Trainer) -> None:
        """Drop the topology, and extract from a cache from now on."""
        trainer.use_sampler(self.numbering)
        self._give_back(trainer.device)
        trainer.features = trainer.plain_features = self.make_features()
        self.cache = max(self.cache, int(trainer.plain_features.cache.nbytes))

    @staticmethod
    def _give_back(device: str) -> None:
        if device == "cuda":
            import torch

            give_back()
            torch.cuda.empty_cache()


class Member:
    """One rank of a factored run.

    Args:
        rank: of the run. split: agreed by all.
        trainer: with model, optimiser, cache, and on samplers a sampler with the topology on this rank's device.
        marker: marks rows that the trainers' caches hold; None where nothing is to be marked.
        groups: ``(gradients, control)``: process groups of the ranks with a model.
        address: of the global queue. folder: of the slots.
        peers: slots in the samplers' memory, with ``handover="peer"``.
        swaps: makes topology and cache, with ``swap``.

    Attributes:
        notes: what happened to this rank that a user should know.
    """

    def __init__(
        self, rank: Any, split: Split, trainer: Trainer, marker: Any, groups: tuple[Any, Any],
        address: tuple[Any, bytes], folder: Path, peers: PeerSlots | None = None, swaps: Swaps | None = None,
    ) -> None:  # fmt: skip
        self.rank, self.split, self.trainer, self.marker = rank, split, trainer, marker
        self.samples = rank.index < split.samplers
        self.has_model = rank.index in split.replicas
        self.groups, self.peers, self.swaps = groups, peers, swaps
        self.slots = HostSlots(folder, trainer.device)
        self.notes: list[str] = []
        self._has_failed = False
        self.lines = [Client(address, rank.index) for _ in range(2)]  # one a thread
        self.rounds: list[Round] = []
        self._unsaved = 0

    def close(self) -> None:
        for line in self.lines:
            line.close()
        if self.peers is not None:
            self.peers.close()

    # ---- an epoch -------------------------------------------------------------------------------------------------

    def epoch(self, number: int) -> EpochRecord:
        """Sample and train epoch ``number``, whatever this rank's part in it."""
        trainer = self.trainer
        trainer.model.train()
        plan = trainer.plan(number)
        self._begin(f"epoch {number}", len(plan), self.split.queue_capacity())
        clock = StageClock(trainer.device, self.rank.index)
        if self.swaps is not None:
            with clock.stage("load topology", plan.batch_ids[0]):
                self.swaps.load_topology(trainer)
            plan = trainer.plan(number)
        stages = self._stages(plan, clock)
        stats: list[Any] = []
        counts = {"edges": 0, "tasks": 0}
        exchange: Any = None
        if self.has_model:
            index = self.split.replicas.index(self.rank.index)
            exchange = RoundExchange(
                trainer.model, trainer.optimizer, *self.groups, index, len(self.split.replicas),
                self.split.staleness, self._applied,
            )  # fmt: skip

        def train(ready: Ready) -> None:
            with clock.stage("train", int(ready.batch.batch_id)):
                exchange.step(int(ready.batch.batch_id), *trainer.gradients(ready.batch, ready.x))
            stats.append(ready.stats)
            counts["tasks"] += 1

        if not self.samples:
            self._train_all(stages, train, exchange)
        elif not self.split.switching:
            counts["edges"] = self._sample_all(plan, clock)
        elif not self.split.trainers:  # the profit is infinite, once all is sampled
            counts["edges"] = self._sample_all(plan, clock)
            if self.swaps is not None:
                first = plan.batch_ids[0]
                del plan, stages  # they have the sampler, and with it the topology
                with clock.stage("load cache", first):
                    self.swaps.load_cache(trainer)
                plan = trainer.plan(number)
                stages = self._stages(plan, clock)
            self._train_all(stages, train, exchange)
        else:
            counts["edges"] = self._sample_and_stand_by(plan, clock, stages, train, exchange)
        spent, wall_us = clock.finish()
        self._keep()
        if self._is_first:
            trainer.save()
        return EpochRecord(
            sample_us=spent.get("sample", 0.0), extract_us=spent.get("extract", 0.0),
            train_us=spent.get("train", 0.0), total_us=wall_us, num_edges=counts["edges"],
            num_batches=len(plan) if self._is_first else 0, tasks=counts["tasks"],
            peak_bytes=trainer.held().total, events=tuple(clock.events), queues=stages.queues,
            begin_s=clock.begin_s, **totals(stats, trainer.features.cached),
        )  # fmt: skip

    def _begin(self, phase: str, total: int, capacity: int | None) -> None:
        for line in self.lines:
            line.begin(phase, total, capacity, self.split.trainers)
        self.rank.barrier()

    def _stages(self, plan: EpochPlan, clock: StageClock) -> Fetched:
        return Fetched(
            plan, self.trainer.plain_features, clock, 1, 1, None, False, self.trainer.device,
            client=self.lines[0], slots=self.slots, peers=self.peers,
        )  # fmt: skip

    def _sample_all(self, plan: EpochPlan, clock: StageClock) -> int:
        """Sample what the scheduler gives, and hand it over; returns the number of edges."""
        edges = 0
        clock.work_as("sampler")

        def sample(place: int) -> Any:
            with clock.stage("sample", plan.batch_ids[place]):
                batch = plan.sample(range(place, place + 1))[0]
                return batch, None if self.marker is None else self.marker.mark(batch.node_ids)

        for place, batch, marks in self._sampled(sample):
            with clock.stage("put", plan.batch_ids[place]):
                self._hand_over(place, batch, marks)
            edges += int(batch.num_edges)
        return edges

    def _sampled(self, sample: Callable[[int], tuple[Any, Any]]) -> Iterator[tuple[int, Any, Any]]:
        """``(place, mini-batch, marks)`` of what the scheduler gives this rank.

        A rank whose sampling fails samples no more: other samplers take over what it had. Without others the error is
        raised.
        """
        line = self.lines[0]
        with self.rank.stage("sample"):
            while not self._has_failed and (places := line.task()):
                try:
                    batch, marks = sample(places.start)
                except Exception as error:
                    left, given = line.lost(self.split.samplers)
                    if not left:
                        raise
                    self._has_failed = True
                    self.notes.append(
                        f"rank {self.rank.index} samples no more ({type(error).__name__}: {error}); {left} other "
                        f"samplers took over {given} of its mini-batches"
                    )
                    self.rank.log(self.notes[-1])
                    return
                yield places.start, batch, marks

    def _hand_over(self, place: int, batch: Any, marks: Any) -> None:
        """Write a sample to where trainers read it; waits while the queue is full."""
        line, peers, arrays = self.lines[0], self.peers, pack(batch, marks)
        if peers is not None and peers.fits(arrays):
            slot = line.room(peers.count)
            line.put(place, slot, peers.write(slot, arrays), own=True)
            return
        slot = line.room()
        line.put(place, slot, self.slots.write(slot, arrays))

    def _train_all(self, stages: Fetched, train: Callable[[Ready], None], exchange: Any) -> None:
        """Train on what comes out of the global queue until nothing will."""
        with self.rank.stage("train"):
            for ready in self._prepared(stages):
                train(ready)
                ready.finish()
                stages.finished(ready)
                del ready  # its rows are free before the next ones are extracted
            while not exchange.idle(ended=True):
                pass

    def _prepared(self, stages: Fetched) -> Any:
        """Mini-batches with their features; the current stream may read them."""
        run = executors.run("ahead" if self.split.pipelined else "serial", stages)
        with ExitStack() as stack:
            stack.callback(run.close)  # type: ignore[attr-defined]
            for ready in run:
                ready.order()
                yield ready
                del ready

    def _sample_and_stand_by(
        self,
        plan: EpochPlan,
        clock: StageClock,
        stages: Fetched,
        train: Callable[[Ready], None],
        exchange: Any,
    ) -> int:
        """Sample; beside it the standby trainer takes part in all updates, and in training while that pays.

        Its model must be the trainers' when it begins, hence it joins their rounds from the start, with nothing. It
        begins after the first mini-batch of any sampler, without which there is no round: nothing stands in the way of
        the first one. It may not wait for this rank's first: that may have to wait for room in the queue, hence for
        trainers, who wait for all to join their round.
        """
        sampling, failed = threading.Event(), list[BaseException]()
        sampling.set()
        place = self._place()  # here: a new thread does not know this rank's GPU

        def stand_by() -> None:
            clock.work_as("standby")
            line = self.lines[1]
            mine = replace(stages, client=line)
            try:
                with place:
                    line.begun()
                    while True:
                        item = line.get_if_worth(sampling.is_set())
                        if item:
                            marked = mine.fetch(item)
                            # Its own cache is smaller than the one that the marks are of.
                            ready = mine.extract(marked._replace(marks=None))
                            train(ready)
                            mine.finished(ready)
                            mine.give_back()
                            del marked, ready  # before the next one comes, or the wait for it
                        elif exchange.idle(ended=item is None):
                            return
            except BaseException as error:
                note_stage(error, "standby")  # it is raised within a stage of the sampler
                failed.append(error)

        def look() -> None:
            if failed:
                raise failed[0]

        standby = threading.Thread(target=stand_by, name="standby", daemon=True)
        standby.start()
        # One that failed takes part in no round. The trainers wait for it there, and who waits for room waits for them.
        self.lines[0].look = look
        edges = self._sample_all(plan, clock)
        self.lines[0].look = None
        sampling.clear()
        with self.rank.stage("standby"):
            standby.join()
        look()
        return edges

    def _place(self) -> Any:
        if self.trainer.device == "cpu":
            return ExitStack()
        return executors.on_stream(executors.side_stream("standby"))

    # ---- what was trained -----------------------------------------------------------------------------------------

    @property
    def _is_first(self) -> bool:
        """Whether this is the rank that writes checkpoints and reports losses."""
        return bool(self.rank.index == self.split.replicas[0])

    def _applied(self, update: Round) -> None:
        self.rounds.append(update)
        self._unsaved += len(update.batch_ids)
        steps = self.trainer.checkpoint_steps
        if steps and self._unsaved >= steps and self._is_first:
            self._keep()
            self.trainer.save()

    def _keep(self) -> None:
        """Losses of all mini-batches that were trained, in the order of their updates."""
        trainer = self.trainer
        if self.rounds:  # an earlier part of the run may have been on one device
            trainer.update_sizes += [1] * (len(trainer.batch_ids) - sum(trainer.update_sizes))
        for update in self.rounds:
            trainer.update_sizes.append(len(update.batch_ids))
            for batch_id, (loss_sum, weight) in zip(update.batch_ids, update.sums.tolist(), strict=True):
                trainer.batch_ids.append(batch_id)
                trainer.losses.append(loss_sum / weight if weight else float("nan"))
        self.rounds.clear()
        self._unsaved = 0

    # ---- evaluation -----------------------------------------------------------------------------------------------

    def evaluate(self, split: str, number: int) -> float:
        """As :meth:`~gnnsample_lab.pipeline.trainer.Trainer.evaluate`, on the same way as training."""
        import torch

        trainer = self.trainer
        trainer.model.eval()
        scores = torch.zeros(3, dtype=torch.float64, device=trainer.device)
        clock = StageClock(trainer.device, self.rank.index)
        seeds = trainer.graph.splits[split]
        size = trainer.batch_size
        count = -(-len(seeds) // size)
        self._begin(
            f"evaluation {number}", count, self.split.queue_capacity() if self.split.trainers else None
        )
        if self.samples:
            if self.swaps is not None:
                self.swaps.load_topology(trainer)

            def sample(at: int) -> Any:
                return trainer.sampler.sample(
                    seeds[at * size : (at + 1) * size], EVALUATION_BATCHES + at
                ), None

            for at, batch, marks in self._sampled(sample):
                self._hand_over(at, batch, marks)
                del batch, marks  # they have the sampler's graph, which makes room for the cache
            if self.swaps is not None:
                self.swaps.load_cache(trainer)
        if not self.samples or not self.split.trainers:
            empty: Any = None
            with self.rank.stage("evaluate"), torch.no_grad():
                stages = self._stages(empty, clock)
                for ready in self._prepared(stages):
                    target = trainer.labels[tensor(ready.batch.seeds).long()]
                    scores += trainer._score(trainer.model(ready.batch.blocks, ready.x), target)
                    ready.finish()
                    stages.finished(ready)
        torch.distributed.all_reduce(scores, group=self.rank.group)
        return trainer.accuracy_of(scores, split)
