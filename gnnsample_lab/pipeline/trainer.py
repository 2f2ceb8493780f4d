"""The training loop of one rank: sample, order, extract, train; times, losses, accuracy."""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, flag, is_cuda_array, real, whole
from gnnsample_lab.compute.fused.sampler import counted_edges
from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.device.capturing import wait_for_device
from gnnsample_lab.device.pools import GivenBack
from gnnsample_lab.graph.checks import check_distinct
from gnnsample_lab.graph.errors import CorruptDataError
from gnnsample_lab.graph.graph import check_graph
from gnnsample_lab.minibatch.export import tensor

from . import checkpoint, executors
from .batches import Order, match_order, to_gpu
from .captured import STEPS_TO_CAPTURE, CapturedStep
from .clock import StageClock
from .exchange import SliceExchange
from .factored.slots import OwnSlots
from .features import CachedSource, FusedSource, MatchedSource, sources_of, summed_picks, totals
from .memory import NOTHING, Held, held
from .parked import Parking
from .plan import EpochPlan, NoBatch, copies_of, equal_slice, labelled
from .records import EpochRecord
from .step import Step

EVALUATION_BATCHES = 2**31
"""First batch id of evaluation: training counts up from 0, so the two never draw the same."""
SEEDS_AHEAD = 32_768
"""Seeds that are sampled together: enough to fill a GPU, few enough not to delay the first step of an epoch."""


TOLD_S = 0.1
"""Seconds between two reports of how training goes."""


class Trainer:
    """Trains a model on sampled mini-batches of one graph.

    Every executor runs the same stages on the same mini-batches in the same order, so losses agree up to
    floating-point noise; it decides only what overlaps.

    Args:
        graph: the graph with ``label``, anywhere.
        sampler: a ``NeighborSampler`` or ``PinSAGESampler``. On the CPU for a model on the GPU is allowed (the
            samples are copied), the other way round is not. A ``FusedSampler`` is on the device of the model, and its
            mini-batches stay there.
        features: a :class:`~.features.FeatureSource` on the device of the model.
        model: ``model(blocks, x) -> logits`` of the seeds; moved to ``device``.
        seeds: training vertices, global ids; default ``graph.splits["train"]``.
        batch_size: seeds a step.
        lr: learning rate of Adam, when no ``optimizer`` is given.
        optimizer: over the parameters of ``model``; its ``step`` needs no closure.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        executor: ``"serial"``, ``"thread"``, ``"streams"``, ``"overlapped"`` or ``"factored"`` (on one device: an
            epoch is sampled, then trained on), see :mod:`.executors`. On a CPU there are no streams: ``"thread"`` and
            ``"streams"`` are serial. Those with threads are serial where the caller
            holds the lock of a sampler on the GPU (``runtime.lock``).
        reorder: method of ``lab.reorder`` by which a window of mini-batches is put in order, or None.
        window: mini-batches to a window, with ``reorder``.
        ahead: mini-batches sampled together on a GPU; default by batch size. One in serial and thread executors.
        plain_features: source for evaluation where ``features`` depends on the order of batches; default ``features``.
        progress: show a tqdm progress bar an epoch.
        workers: samplers, and loaders, of ``"overlapped"``; 1 where mini-batches are reordered. Where they meet those
            of other ranks, those with the same number do.
        merged: most mini-batches whose rows one of its loaders fetches by one extraction; 1 where ``features`` cannot.
        capacity: mini-batches that each of its queues holds.
        rank: one of several ranks that train together: each samples its slice of every mini-batch and all make the
            same update, that of one device. Nothing is reordered, since ranks would not agree on an order.
        captured: replay steps as CUDA graphs (:mod:`.captured`), on a GPU.
        parked: with ``reorder``, ``"serial"`` and a sampler on the GPU: the mini-batches of a window wait in host
            memory, and each is copied back while the one before it trains (:mod:`.parked`).

    Attributes:
        samplers: of each worker; the first is ``sampler``.
        follows: whether another rank, the first of those with a model, writes the checkpoints.
        parking: that host memory, or None. storage: host memory where the factored executor stores an epoch, or None.
        captured: the step that is replayed, or None.
        losses, batch_ids: of all steps.
        draws: whether the model drew numbers, masks of dropout for example, from PyTorch's generators at the first call
            of :meth:`gradients`, which tells nothing of later ones; None before it.
        settings: what checkpoints are written with, and what :meth:`resume` compares.
        others: device memory that was held before and is none of this run's (:mod:`.memory`).
        working: bytes of CuPy's pool that mini-batches took in the trial by which the cache was sized; 0 without one.
        checkpoint: path to write checkpoints to; None for none.
        checkpoint_steps: mini-batches between two of them; there is also one at the end of each epoch.
        told: called after the first step and then every ``TOLD_S`` seconds at most, with all losses there; or None.

    Raises:
        ValueError: the graph has no labels, or an argument is not allowed; the message names it.
    """

    def __init__(
        self,
        graph: Any,
        sampler: Any,
        features: Any,
        model: Any,
        *,
        seeds: Any = None,
        batch_size: int = 1024,
        lr: float = 0.003,
        optimizer: Any = None,
        device: str = "auto",
        executor: str = "serial",
        reorder: str | None = None,
        window: int = 32,
        ahead: int | None = None,
        plain_features: Any = None,
        progress: bool = False,
        workers: int = 1,
        merged: int = 1,
        capacity: int = 2,
        rank: Any = None,
        captured: bool = False,
        parked: bool = False,
    ) -> None:
        import torch

        if check_graph(graph).label is None:
            raise ValueError(f"graph {graph.name!r} has no label: training needs one per vertex")
        choice("executor", executor, executors.EXECUTORS)
        self.device = runtime.resolve_device(device)
        if self.device == "cpu" and sampler.device == "cuda":
            raise ValueError("sampler must be on the CPU for a model on the CPU (got one on the GPU)")
        is_fused = isinstance(features, FusedSource)
        if is_fused and executor == "factored":
            raise ValueError(
                "executor must not be 'factored' with a FusedSampler: its mini-batches have no edges that could be "
                "stored in host memory (got 'factored')"
            )
        if is_fused and self.device != sampler.device:
            raise ValueError(
                "sampler must be on the GPU for a model there: mini-batches of a FusedSampler have no edges that "
                "could be copied (got one on the CPU)"
            )
        self.graph, self.sampler, self.features = graph, sampler, features
        self.plain_features = plain_features or features
        self.model = model.to(self.device)
        self.executor = executor if self.device == "cuda" or executor in executors.ON_CPU else "serial"
        self.workers = whole("workers", workers, 1, 64)
        self.merged = whole("merged", merged, 1, 64)
        if self.executor != "overlapped" or not hasattr(features, "extract_many"):
            self.merged = 1
        self.capacity = whole("capacity", capacity, 1, 2**31 - 1)
        self.rank = rank if rank is not None and rank.world_size > 1 else None
        if self.rank is not None and getattr(sampler.spec, "expand", "frontier") != "frontier":
            raise ValueError(
                "ranks: slices of a mini-batch need a sampler with expand='frontier' "
                f"(got expand={sampler.spec.expand!r})"
            )
        self.follows = self.rank is not None and self.rank.index > 0
        self.batch_size = whole("batch_size", batch_size, 1, 2**31 - 1)
        self.window = whole("window", window, 1, 1024)
        self.ahead = 1
        if self.executor == "streams" and sampler.device == "cuda":
            self.ahead = max(2, min(16, SEEDS_AHEAD // self.batch_size))
        self.ahead = max(self.ahead, getattr(sampler, "ahead", 1))
        if ahead is not None:
            self.ahead = whole("ahead", ahead, 1, 1024)
        self.together = getattr(sampler, "together", False) or features.together
        self.order: Order | None = None if reorder is None or self.rank is not None else match_order(reorder)
        if self.order is not None or features is not self.plain_features:
            self.workers = 1  # rows of the mini-batch before are reused: one loader, in order
        # Ranks of their own, samples made on the CPU, and other executors do without: see Prepared.notes.
        own = self.device == "cuda" == sampler.device and self.executor == "serial" and self.order is not None
        self.parking = Parking() if flag("parked", parked) and own and not is_fused else None
        self.storage = OwnSlots(self.device) if self.executor == "factored" else None
        count = self.workers if self.executor == "overlapped" else 1
        self.samplers, self._more_sources = copies_of(sampler, count), sources_of(features, count)[1:]
        self.progress, lr = flag("progress", progress), real("lr", lr, 0)
        self.seeds = _split(graph, "train") if seeds is None else seeds
        # One kernel for all parameters instead of a dozen: the step of a small model is launches and nothing else.
        fused = self.device == "cuda"
        self.optimizer = optimizer or torch.optim.Adam(self.model.parameters(), lr=lr, fused=fused)
        self.labels = tensor(graph.label).to(self.device)
        self.multi_label = self.labels.ndim == 2
        self.captured = None
        if flag("captured", captured) and self.device == "cuda":
            self.captured = CapturedStep(
                self.model, self.optimizer, self.labels, None, None, num_classes=graph.num_classes
            )
        self._step = self.captured or Step(
            self.model, self.optimizer, self.labels, num_classes=graph.num_classes
        )
        # Rows that lie on this GPU gain nothing from a stage of their own, and would be copied once more.
        self.loads = (
            self.captured is not None and self.rank is None and self.executor in ("serial", "streams")
            and isinstance(features, (CachedSource, FusedSource)) and features.all_on_gpu
        )  # fmt: skip
        if self.captured is not None and self.loads and isinstance(features, (CachedSource, FusedSource)):
            self.captured.features = features.cache
        self.losses: list[float] = []
        self.batch_ids: list[int] = []
        self.update_sizes: list[int] = []
        self.draws: bool | None = None
        self.resumed = 0
        self.settings: dict[str, Any] = {}
        self.others: Held = NOTHING
        self.working = 0
        self.given_back = GivenBack()
        self.checkpoint: Path | None = None
        self.checkpoint_steps = 0
        self.told: Callable[[], None] | None = None
        self._told_s = -math.inf
        self._exchange = None
        if self.rank is not None:
            # Workers that have collectives at the same time have process groups of their own.
            group = gradient_group(self.rank) if self.together else self.rank.group
            self._exchange = SliceExchange(self.model, self.optimizer, group)
        self._turns: Any = None

    def follow(self, turns: Any) -> None:
        """Workers start collectives in turns (:class:`~.turns.Turns`) from now on; without any when they are ready."""
        self._turns = turns
        if self._exchange is not None:
            self._exchange.turns = turns

    @property
    def sources(self) -> list[Any]:
        """Features for each loader; the first is :attr:`features`."""
        return [self.features, *self._more_sources]

    @property
    def samples_in_order(self) -> bool:
        """Whether several samplers sample one after the other: on a GPU their calls, which wait for those of other
        ranks, hold the library's lock."""
        meets = self.rank is not None and getattr(self.sampler, "together", False)
        return bool(meets and self.sampler.device == "cuda" and len(self.samplers) > 1)

    @property
    def warm_up_steps(self) -> int:
        """Steps until one is like those that follow: kernels are compiled, and steps that are replayed captured."""
        return 1 if self.captured is None else STEPS_TO_CAPTURE

    def step(self, batch: Any, x: Any) -> Any:
        """One optimizer step; returns the loss, a tensor on the device (nothing is waited for)."""
        if self._exchange is not None:
            return self._exchange.step(*self.gradients(batch, x))
        return self._step(batch, x)

    def gradients(self, batch: Any, x: Any) -> tuple[Any, Any]:
        """Leave the gradients of the sum of the seeds' losses in the model, none where there are no seeds.

        Returns:
            ``(sum, seeds with a label)``, tensors on the device.
        """
        import torch

        if isinstance(batch, NoBatch):
            self.optimizer.zero_grad(set_to_none=True)
            zero = next(self.model.parameters()).new_zeros(())
            return zero, zero
        if self.draws is not None:
            return self._step.gradients(batch, x)
        # Dropout may be called anywhere, by any name; what all of it has in common is that a generator goes on. The
        # first step is one of plain launches, so that no capture is under way.
        before = _generators(self.labels.device)
        found = self._step.gradients(batch, x)
        self.draws = not all(map(torch.equal, before, _generators(self.labels.device)))
        return found

    def epoch(self, number: int = 0) -> EpochRecord:
        """Train on every seed once; losses and batch ids are appended to :attr:`losses` and :attr:`batch_ids`.

        Args:
            number: of the epoch: decides the shuffle and the batch ids.
        """
        with executors.shared_stream(self.device):
            return self._epoch(number)

    def _epoch(self, number: int) -> EpochRecord:
        import torch

        self.model.train()
        self.features.reset()
        plan = self.plan(number)
        if self.device == "cuda":
            wait_for_device()  # what was left over from before is not this epoch's time
        if self.rank is not None:
            self.rank.barrier()
        clock = StageClock(self.device, 0 if self.rank is None else self.rank.index)
        upload = self.device == "cuda" and self.sampler.device == "cpu"
        stages = executors.Stages(
            plan, self.features, clock, self.ahead, self.window, self.order, upload, self.device, self.workers,
            self.merged, self.capacity, self.together and self.rank is not None, self._turns, in_step=self.loads,
            parking=self.parking, storage=self.storage, sources=self.sources,
            sample_in_order=self.samples_in_order,
        )  # fmt: skip
        stats, edges, before = [], 0, len(self.batch_ids)
        losses: list[Any] = []
        executor = self.executor
        threaded = executor == "thread" or (executor in ("overlapped", "factored") and self.device == "cuda")
        if threaded and runtime.lock_is_held():
            executor = "serial"  # the thread would wait for the lock that we hold, and we for the thread

        def keep() -> None:
            if losses:
                self.losses += torch.stack(losses).tolist()
                losses.clear()

        with contextlib.closing(executors.run(executor, stages)) as run:  # type: ignore[type-var]
            for ready in self._shown(run, len(plan), number):
                ready.order()
                batch_id = int(ready.batch.batch_id)
                if stages.in_step and self.captured is not None:
                    with clock.stage("extract", batch_id):
                        ready.stats = self.captured.load(ready.batch)
                with clock.stage("train", batch_id), self._rows_kept(ready.x):
                    losses.append(self.step(ready.batch, ready.x))
                ready.finish()
                if ready.stats is not None:
                    stats.append(ready.stats)
                self.batch_ids.append(batch_id)
                edges += counted_edges(ready.batch)
                del ready  # before the next one's features are extracted: they may take the place of these
                if self.checkpoint_steps and len(self.batch_ids) % self.checkpoint_steps == 0:
                    keep()
                    self.save()
                if self.told is not None and time.monotonic() - self._told_s > TOLD_S:
                    keep()
                    self.told()
                    self._told_s = time.monotonic()
        spent, wall_us = clock.finish()
        self.features.reset()  # rows that nobody takes over any more
        keep()
        self.save()
        return EpochRecord(
            sample_us=spent.get("sample", 0.0), extract_us=spent.get("extract", 0.0),
            train_us=spent.get("train", 0.0), reorder_us=spent.get("reorder", 0.0), total_us=wall_us,
            num_edges=edges + summed_picks(stats), num_batches=len(self.batch_ids) - before,
            peak_bytes=self.held().total,
            tasks=len(plan), events=tuple(clock.events), queues=stages.queues, begin_s=clock.begin_s,
            **totals(stats, self.features.cached),
        )  # fmt: skip

    @contextlib.contextmanager
    def _rows_kept(self, x: Any) -> Iterator[None]:
        """Refuse that the model changes rows which the next mini-batch may be taking over at the same time."""
        # One after the other the source itself sees that they were changed, and loads them again.
        shared = isinstance(self.features, MatchedSource) and self.executor != "serial" and x is not None
        version = x._version if shared else 0
        yield
        if shared and x._version != version:
            raise RuntimeError(
                "the model changes x in place, and the next mini-batch takes rows over from it: let the model change "
                f"x.clone(), or set executor='serial' (got executor={self.executor!r})"
            )

    def held(self) -> Held:
        """The most device memory that this run has held, by who holds it."""
        now = held(self.device)
        return now._replace(cupy=max(now.cupy, self.given_back.total_bytes)).less(self.others)

    def plan(self, number: int) -> EpochPlan:
        """The mini-batches of epoch ``number`` that have not been trained on."""
        epoch = self.sampler.epoch(self.seeds, self.batch_size, epoch=number)
        index, count = (0, 1) if self.rank is None else (self.rank.index, self.rank.world_size)
        trained, in_windows = self.batch_ids[: self.resumed], self.order is not None
        return EpochPlan(epoch, self.samplers, index, count, without=trained, in_windows=in_windows)

    def use_sampler(self, sampler: Any) -> None:
        """Sample with another sampler that draws the same."""
        self.sampler, self.samplers = sampler, [sampler]

    def _evaluated(self, seeds: Any) -> Iterator[Any]:
        """This rank's share of the mini-batches of an evaluation: whole ones, or its slice of each."""
        sampler, rank = self.sampler, self.rank
        for number, begin in enumerate(range(0, len(seeds), self.batch_size)):
            batch_id, some = EVALUATION_BATCHES + number, seeds[begin : begin + self.batch_size]
            if rank is None or not self.together:
                if rank is None or number % rank.world_size == rank.index:
                    yield sampler.sample(some, batch_id)
            elif hasattr(sampler, "sample_slices"):
                yield sampler.sample_slices([some], batch_id)[0]
            else:  # features alone are to be extracted together
                mine = equal_slice(some, rank.index, rank.world_size)
                yield sampler.sample(mine, batch_id) if len(mine) else NoBatch(batch_id)

    def _shown(self, run: Any, steps: int, number: int) -> Iterator[Any]:
        """``run`` with a progress bar."""
        if self.rank is not None:
            if self.progress and self.rank.index == 0:
                run = self.rank.progress(run, steps, f"epoch {number}")
            yield from run
            return
        bar = _progress(self.progress, steps, number)
        for ready in run:
            yield ready
            del ready
            bar.update()
        bar.close()

    def sizes_of_updates(self) -> list[int]:
        """Mini-batches of each update so far, one where :attr:`update_sizes` does not say; empty where all are one."""
        alone = len(self.batch_ids) - sum(self.update_sizes)
        return [*self.update_sizes, *([1] * alone)] if self.update_sizes else []

    def without_labels(self) -> int:
        """How many mini-batches of this run had no seed with a label, whose loss is nan.

        Asked for after the run, so that no step waits: the host looks at the labels of those whose loss is nan, which
        may have other reasons.
        """
        steps = zip(self.batch_ids[self.resumed :], self.losses[self.resumed :], strict=True)
        ids = sorted(batch_id for batch_id, loss in steps if math.isnan(loss))
        if not ids:
            return 0
        label, of_epoch, count = to_host(self.graph.label), -(-len(self.seeds) // self.batch_size), 0
        for number, some in groupby(ids, lambda batch_id: batch_id // of_epoch):
            epoch = self.sampler.epoch(self.seeds, self.batch_size, epoch=number)
            count += sum(not labelled(label, epoch.batch_seeds(i - epoch.first_batch_id)) for i in some)
        return count

    def save(self) -> None:
        """Write the checkpoint, if one is asked for; of several ranks the first one does."""
        if self.checkpoint is None or self.follows:
            return
        import torch

        checkpoint.save(self.checkpoint, {
            "settings": self.settings, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "batch_ids": torch.tensor(self.batch_ids, dtype=torch.int64),
            "losses": torch.tensor(self.losses, dtype=torch.float64),
            "update_sizes": torch.tensor(self.sizes_of_updates(), dtype=torch.int64),
            "generator": torch.get_rng_state(),
            "device_generator": torch.cuda.get_rng_state() if self.device == "cuda" else None,
        })  # fmt: skip

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint: mini-batches that it has seen are not trained on again.

        Raises:
            FileNotFoundError, CorruptDataError, ValueError: as :func:`.checkpoint.load`.
        """
        import torch

        state = checkpoint.load(path, self.settings)
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError) as error:  # of PyTorch: a module of that name with other weights
            raise ValueError(f"resume: {path} has not the weights of this model ({error})") from error
        self.batch_ids, self.losses = state["batch_ids"].tolist(), state["losses"].tolist()
        if "update_sizes" in state:  # those of former versions lack it
            self.update_sizes = state["update_sizes"].tolist()
        self.resumed = len(self.batch_ids)
        if self.follows:
            # The checkpoint has the first rank's generators: with these all would draw the same masks of dropout.
            torch.manual_seed((torch.initial_seed() + self.resumed) % 2**64)
            return
        try:
            torch.set_rng_state(state["generator"])
            if self.device == "cuda" and state["device_generator"] is not None:
                torch.cuda.set_rng_state(state["device_generator"])
        except (RuntimeError, TypeError, AttributeError) as error:
            raise CorruptDataError(f"{path} has no state of a generator of this PyTorch ({error})") from error

    def evaluate(self, split: str | Any = "valid") -> float:
        """Share of right classes (multi-label: micro F1) of a split, by sampled inference.

        Fanouts are those of training; batch ids lie apart from it and are the same at every call.

        Args:
            split: name in ``graph.splits``, or distinct vertex ids.

        Raises:
            ValueError: no such split, a vertex that it names twice, or none of its vertices has a label.
        """
        import torch

        seeds = _split(self.graph, split) if isinstance(split, str) else split
        check_distinct(f"split {split!r}" if isinstance(split, str) else "split", seeds)
        self.model.eval()
        scores = torch.zeros(3, dtype=torch.float64, device=self.device)
        with executors.shared_stream(self.device), torch.no_grad():
            for batch in self._evaluated(seeds):
                if isinstance(batch, NoBatch):
                    if self.plain_features.together:  # the other ranks wait for this one
                        self.plain_features.extract(batch, None)
                    continue
                if self.device == "cuda" and self.sampler.device == "cpu":
                    batch = to_gpu(batch)
                x, _ = self.plain_features.extract(batch, self.plain_features.mark(batch))
                target = self.labels[tensor(batch.seeds).long()]
                scores += self._score(self.model(batch.blocks, x), target)
                del batch, x, target  # before the next one is sampled
            if self.rank is not None:
                torch.distributed.all_reduce(scores, group=self.rank.group)
        return self.accuracy_of(scores, split)

    def accuracy_of(self, scores: Any, split: Any) -> float:
        """What :meth:`evaluate` returns, of the sums of :meth:`_score`."""
        right, wrong, labelled = scores.tolist()
        if not labelled:
            raise ValueError(f"split must have labelled vertices (got {split!r} without any)")
        return 2 * right / max(2 * right + wrong, 1) if self.multi_label else right / labelled

    def _score(self, logits: Any, target: Any) -> Any:
        """Counts: right, wrong (multi-label: false positives and negatives), labelled; on the device."""
        import torch

        if self.multi_label:
            guess, truth = logits > 0, target > 0
            counts = ((guess & truth).sum(), (guess ^ truth).sum(), truth.new_ones(()).sum())
        else:
            known = target >= 0
            right = ((logits.argmax(dim=1) == target) & known).sum()
            counts = (right, known.sum() - right, known.sum())
        return torch.stack([c.to(torch.float64) for c in counts])


_groups: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def gradient_group(rank: Any) -> Any:
    """The process group of gradients alone, connected; made once for a rank, by all ranks together."""
    if rank not in _groups:
        import torch
        import torch.distributed as dist

        _groups[rank] = rank.another_group()
        dist.all_reduce(torch.zeros(1, device=rank.device), group=_groups[rank])
    return _groups[rank]


def _generators(device: Any) -> list[Any]:
    """States of the generators from which a model on ``device`` draws where it is given none; nothing is waited for."""
    import torch

    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_gpu]


def _split(graph: Any, name: str) -> Any:
    if name not in graph.splits or len(graph.splits[name]) == 0:
        known = ", ".join(map(repr, graph.splits)) or "none"
        raise ValueError(f"graph {graph.name!r} has no vertices in split {name!r} (it has: {known})")
    ids = graph.splits[name]
    return ids if is_cuda_array(ids) else np.asarray(ids)


def _progress(show: bool, steps: int, number: int) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=steps, desc=f"epoch {number}", unit="batch", disable=not show)
