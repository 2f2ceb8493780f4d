"""``lab.train``: a system of the table, put together and run on one graph."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gnnsample_lab.checks import choice, flag, instance, num_bytes, optional, real, share, shown, whole
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.compute.aggregation.ladder import KERNELS
from gnnsample_lab.compute.models import MODELS
from gnnsample_lab.device import runtime
from gnnsample_lab.graph.graph import Graph, check_graph
from gnnsample_lab.pipeline.executors import shared_stream
from gnnsample_lab.pipeline.records import TrainResult
from gnnsample_lab.pipeline.trainer import Trainer, reset_pools
from gnnsample_lab.sampling.neighbors.spec import PICKS, checked_fanouts

from .features import Sizing, feature_sources, host_features
from .table import System, find

CPU_NOTE = (
    "on the CPU: the CPU twins sample and mark, PyTorch's operators aggregate, "
    "and the stages run one after the other"
)


@dataclass(frozen=True)
class Prepared:
    """A system ready to train: ``trainer.epoch(i)`` runs it.

    Attributes:
        system: the row of the table.
        trainer: the training loop with sampler, features and model.
        setup_us: wall time of the preparation.
        cache_ratio: share of the vertices whose features the device holds.
        notes: where the run departs from the table.
        settings: the arguments.
    """

    system: System
    trainer: Trainer
    setup_us: float
    cache_ratio: float
    notes: tuple[str, ...]
    settings: dict[str, Any]


def prepare(
    graph: Any,
    model: Any = "gcn",
    system: str | System = "lab",
    *,
    batch_size: int = 1024,
    fanouts: Sequence[int] = (15, 10, 5),
    hidden: int = 64,
    lr: float = 0.003,
    seed: int = 0,
    device: str = "auto",
    cache_ratio: float | None = None,
    capacity_bytes: int | None = None,
    reorder: str | None = None,
    window: int = 32,
    progress: bool = False,
    weighted: bool = False,
    sampler: Any = None,
    pick: str | None = None,
    kernel: str | None = None,
    **model_options: Any,
) -> Prepared:
    """Sampler, cache, model and training loop of a system; see :func:`train` for the arguments."""
    import torch

    chosen, pick = find(system), optional(choice, "pick", pick, PICKS)
    check_graph(graph)
    device = runtime.resolve_device(device)
    _check_data(graph)
    batch_size, window = whole("batch_size", batch_size, 1, 2**31 - 1), whole("window", window, 1, 1024)
    hidden, seed, lr = whole("hidden", hidden, 1, 2**24), checked_seed(seed), real("lr", lr, 0)
    choice("reorder", reorder, (None, "none", "greedy", "two-opt", "exact"))
    weighted, progress = flag("weighted", weighted), flag("progress", progress)
    if cache_ratio is not None:
        cache_ratio = share("cache_ratio", cache_ratio)
    if capacity_bytes is not None:
        capacity_bytes = num_bytes("capacity_bytes", capacity_bytes)
    if isinstance(model, str):
        choice("model", model, tuple(MODELS))
    else:
        instance("model", model, torch.nn.Module, f"a torch.nn.Module or one of {', '.join(MODELS)}")
    if kernel is not None:
        choice("kernel", kernel, tuple(KERNELS))
    if sampler is not None and not (
        callable(getattr(sampler, "epoch", None)) and isinstance(getattr(sampler, "graph", None), Graph)
    ):
        raise TypeError(f"sampler must be a NeighborSampler or PinSAGESampler (got {shown(sampler)})")
    if device == "cuda":
        reset_pools()
    begin = time.perf_counter()
    notes = [CPU_NOTE] if device == "cpu" else []
    name = model if isinstance(model, str) else type(model).__name__
    if sampler is None:
        sampler = make_sampler(graph, name, chosen, fanouts, device, seed, weighted, pick)
    elif weighted or pick:
        raise ValueError(
            "weighted and pick belong to the default sampler: set them on the sampler that is given"
        )
    torch.manual_seed(seed)
    if isinstance(model, str):
        from gnnsample_lab.compute.models import make_model

        kernel = kernel or (chosen.kernel if device == "cuda" else "auto")
        model = make_model(
            model, graph.num_features, hidden, graph.num_classes, num_layers=len(sampler.fanouts), kernel=kernel,
            **model_options,
        )  # fmt: skip
    elif model_options or kernel:
        unknown = ", ".join([*model_options, *(["kernel"] if kernel else [])])
        raise ValueError(f"{unknown} apply to models chosen by name (got a {type(model).__name__})")
    model = model.to(device)

    sizing = Sizing(cache_ratio, capacity_bytes)
    sources = feature_sources(
        chosen, graph, host_features(graph), sampler, model, batch_size, window, sizing, seed, device
    )
    notes += sources.notes
    order = chosen.reorder if sources.matched else None
    if reorder is not None:
        order = None if reorder == "none" else reorder
    trainer = Trainer(
        graph, sampler, sources.training, model, batch_size=batch_size, lr=lr, device=device,
        executor=chosen.executor, reorder=order, window=window, plain_features=sources.plain, progress=progress,
    )  # fmt: skip
    settings = {
        "batch_size": batch_size, "fanouts": tuple(sampler.fanouts), "hidden": hidden, "lr": lr, "seed": seed,
        "reorder": order, "window": window, "match": sources.matched, "kernel": kernel,
        "executor": trainer.executor, "transfer": sources.transfer,
    }  # fmt: skip
    setup_us = (time.perf_counter() - begin) * 1e6
    return Prepared(chosen, trainer, setup_us, sources.ratio, tuple(notes), settings)


def train(
    graph: Any,
    model: Any = "gcn",
    system: str | System = "lab",
    epochs: int = 1,
    batch_size: int = 1024,
    fanouts: Sequence[int] = (15, 10, 5),
    hidden: int = 64,
    lr: float = 0.003,
    seed: int = 0,
    device: str = "auto",
    cache_ratio: float | None = None,
    capacity_bytes: int | None = None,
    reorder: str | None = None,
    window: int = 32,
    evaluate: bool | str = True,
    progress: bool = True,
    weighted: bool = False,
    sampler: Any = None,
    **options: Any,
) -> TrainResult:
    """Train a model by sampling on one device, as one of ``lab.systems()`` does.

    For the same ``seed`` every system trains on the same seeds with the same batch ids from the same initial weights;
    with the same ``pick`` the samples are the same too. Loss curves then differ by floating-point noise only (and, for
    systems that reorder, by the order within a window).

    Args:
        graph: with ``feat``, ``label`` and ``splits["train"]``; the features may stay in host memory.
        model: "gcn", "sage", "gin", "gat", "pinsage", or a ``torch.nn.Module`` with ``model(blocks, x)``.
        system: a name of ``lab.systems()``, or a :class:`~gnnsample_lab.systems.table.System`.
        epochs: passes over the training vertices.
        batch_size: seeds a step.
        fanouts: neighbours a vertex and hop, ``fanouts[0]`` next to the seeds; as many layers.
        hidden: width of the hidden layers.
        lr: learning rate of Adam.
        seed: of samples, shuffles and initial weights. PyTorch's global generator is left as it was.
        device: "auto", "cpu" or "cuda".
        cache_ratio: share of the vertices to keep on the device, for systems with a cache. Default: what a trial
            step leaves of the GPU's memory; a quarter of the vertices on a CPU, where nothing is left over.
        capacity_bytes: size of the cache in bytes, instead of ``cache_ratio``.
        reorder: method of ``lab.reorder``, "none", or None for what the system does.
        window: mini-batches that are reordered together.
        evaluate: accuracy after every epoch: True takes the split "valid", or "test" where there is none; or a name.
        progress: show progress bars.
        weighted: draw neighbours in proportion to ``graph.edge_weight``.
        sampler: a sampler of one's own; its seed and fanouts count then.
        options: ``pick``, ``kernel`` (defaults by system) and what ``lab.make_model`` takes, for example ``dropout``.

    Raises:
        TypeError: an argument of the wrong kind; the message names it.
        ValueError: the graph lacks features, labels or a training split, or an argument is not allowed.
        LookupError: no such system.
        RuntimeError: ``device="cuda"`` without a usable GPU.
    """
    import torch

    check_graph(graph)
    _check_data(graph)
    epochs = whole("epochs", epochs, 1, 2**20)
    split = _evaluation_split(graph, evaluate)
    device = runtime.resolve_device(device)
    generators = range(torch.cuda.device_count()) if device == "cuda" else ()
    with torch.random.fork_rng(devices=generators), shared_stream(device):
        ready = prepare(
            graph, model, system, batch_size=batch_size, fanouts=fanouts, hidden=hidden, lr=lr, seed=seed,
            device=device, cache_ratio=cache_ratio, capacity_bytes=capacity_bytes, reorder=reorder, window=window,
            progress=progress, weighted=weighted, sampler=sampler, **options,
        )  # fmt: skip
        trainer, records, accuracy = ready.trainer, [], []
        torch.manual_seed(seed)  # dropout does not depend on what the preparation drew
        for number in range(epochs):
            records.append(trainer.epoch(number))
            if split:
                accuracy.append(trainer.evaluate(split))
    place = runtime.device_name() if device == "cuda" else "the CPU"
    return TrainResult(
        ready.system.name, model if isinstance(model, str) else type(model).__name__, graph.title, device,
        f"measured on {place}", trainer.losses, trainer.batch_ids, accuracy, split or "", records, ready.setup_us,
        ready.cache_ratio, ready.notes, ready.settings, trainer.model,
    )  # fmt: skip


def make_sampler(
    graph: Any, model: str, system: System, fanouts: Sequence[int], device: str, seed: int, weighted: bool,
    pick: str | None = None,
) -> Any:  # fmt: skip
    """The sampler of a system: random walks for PinSAGE, else neighbours. The features stay where they are."""
    from gnnsample_lab.minibatch.sampler import NeighborSampler

    place = "cpu" if device == "cpu" else system.sample_device
    topology = graph.to(place, features=False) if graph.device != place else graph
    if model == "pinsage":
        from gnnsample_lab.minibatch.walks.sampler import PinSAGESampler

        if weighted:
            raise ValueError("weighted=True does not apply to random walks (model='pinsage')")
        return PinSAGESampler(topology, num_layers=len(checked_fanouts(fanouts)), device=place, seed=seed)
    return NeighborSampler(
        topology, fanouts, strategy=system.strategy, pick=pick or system.pick, weighted=weighted, device=place,
        seed=seed, id_map=system.id_map,
    )  # fmt: skip


def _check_data(graph: Any) -> None:
    for attribute, what in (("feat", "features"), ("label", "labels")):
        if getattr(graph, attribute, None) is None:
            raise ValueError(
                f"graph {graph.name!r} has no {attribute}: training needs {what} of every vertex"
            )
    if len(graph.splits.get("train", ())) == 0:
        raise ValueError(f"graph {graph.name!r} has no vertices in split 'train'")


def _evaluation_split(graph: Any, evaluate: bool | str) -> str | None:
    if isinstance(evaluate, str):
        if len(graph.splits.get(evaluate, ())) == 0:
            raise ValueError(f"evaluate must name a split with vertices (got {evaluate!r})")
        return evaluate
    if not flag("evaluate", evaluate):
        return None
    return next((name for name in ("valid", "test") if len(graph.splits.get(name, ()))), None)
