"""Training with the samplers of NextDoor's tables 1 and 5: one model per method, its sampling exchangeable.

The model, the features and the optimizer are on the device and the same whoever samples. Stages follow each other, as
in the systems of that time: sample some mini-batches, bring them to the device, train on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gnnsample_lab.checks import choice, is_cuda_array, optional, real, whole
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.device.capturing import wait_for_device
from gnnsample_lab.minibatch.export import tensor
from gnnsample_lab.pipeline.executors import shared_stream
from gnnsample_lab.sampling import apps
from gnnsample_lab.sampling.engine.run import run_app

from . import reference_samplers as reference
from . import sample_blocks
from .sample_blocks import Edges, Step

SAMPLERS = {
    "numpy": "the method's own sampler, as its system has it: NumPy, a mini-batch at a time, copied to the device",
    "walker": "the application on the CPU walker, all cores, samples copied to the device",
    "published": "the application by lab.run_app(index='published') on the device of the model: NextDoor's",
    "engine": "the application by lab.run_app as it chooses (index='auto') on the device of the model: ours",
}
TOGETHER = 32
"""Mini-batches that the engine samples in one call."""


class Method(NamedTuple):
    """One method of tables 1 and 5: its application, ``form`` of its samples, layers, roots per step, notes.

    ``form``: "tree" (every pick a vertex of its own, as GraphSAGE trains), "layers" (a matrix between two layers) or
    "induced" (the sub-graph of a sample, for every layer).
    """

    app: Callable[[], Any]
    form: str
    layers: int
    batch_size: int


METHODS: dict[str, Method] = {
    "GraphSAGE": Method(lambda: apps.KHop((25, 10)), "tree", 2, 512),
    "FastGCN": Method(lambda: apps.FastGCN(layers=2), "layers", 2, 64),
    "LADIES": Method(apps.LADIES, "layers", 5, 64),
    "ClusterGCN": Method(lambda: apps.ClusterGCN(partition="random"), "induced", 3, 1),
    "GraphSAINT": Method(apps.MultiRW, "induced", 2, 1),
    "MVS": Method(apps.MVS, "tree", 1, 64),
}


@dataclass
class SampledRun:
    """Times of one training run, and its losses.

    ``sample_ms`` holds everything until samples lie on the device as blocks, ``train_ms`` reading features, forward,
    loss, backward and optimizer; both per step. ``groups`` has both of each group of mini-batches that was sampled
    before it was trained on, per step of that group.
    """

    method: str
    sampler: str
    steps: int
    sample_ms: float
    train_ms: float
    epoch_steps: int
    losses: list[float] = field(repr=False)
    groups: list[tuple[float, float]] = field(default_factory=list, repr=False)

    @property
    def step_ms(self) -> float:
        return self.sample_ms + self.train_ms

    @property
    def epoch_s(self) -> float:
        """Seconds of a whole epoch at this rate."""
        return self.step_ms * self.epoch_steps / 1e3

    @property
    def sample_percent(self) -> float:
        """Share of the time that goes into sampling."""
        return 100 * self.sample_ms / self.step_ms if self.step_ms else 0.0


def train_sampled(
    graph: Any, method: str, sampler: str = "engine", *, steps: int = 64, hidden: int = 64, lr: float = 0.003,
    seed: int = 0, device: str = "auto", batch_size: int | None = None, together: int = TOGETHER, warm_up: int = 1,
    rounds: int = 1,
) -> SampledRun:  # fmt: skip
    """Train ``steps`` mini-batches of a method, and time sampling and training.

    "walker", "published" and "engine" draw the same samples, so their losses are the same up to rounding; "numpy" draws
    its own. On a CPU these three are the same walker.

    Args:
        graph: with ``feat`` and ``label``; roots are ``splits["train"]``, all vertices where there is none.
        method: a key of :data:`METHODS`.
        sampler: a key of :data:`SAMPLERS`.
        steps: mini-batches, after ``warm_up`` groups of ``together`` that are not timed.
        hidden, lr: width of hidden layers, learning rate of Adam.
        seed: of samples, roots and initial weights.
        device: where the model is: "auto", "cpu" or "cuda".
        batch_size: roots of a mini-batch; the method's by default (of no effect where a sample is a mini-batch).
        together: mini-batches sampled before they are trained on.
        rounds: times that each group is trained on. Its training time is a step's, whatever their number: a group of
            few steps takes longer for each, since the device waits for the first launches.

    Raises:
        TypeError: an argument of the wrong kind; the message names it.
        ValueError: no features or labels, or an argument is not allowed.
    """
    import torch

    choice("method", method, tuple(METHODS))
    choice("sampler", sampler, tuple(SAMPLERS))
    steps, together = (
        whole("steps", steps, 1, 2**20),
        whole("together", together, 1, 4096),
    )
    hidden, warm_up = whole("hidden", hidden, 1, 2**24), whole("warm_up", warm_up, 0, 2**20)
    rounds = whole("rounds", rounds, 1, 4096)
    batch_size = optional(whole, "batch_size", batch_size, 1, 2**31 - 1)
    seed, lr = checked_seed(seed), real("lr", lr, 0)
    if graph.feat is None or graph.label is None:
        raise ValueError(f"graph {graph.name!r} needs features and labels to train on")
    device = runtime.resolve_device(device)
    source = _Source(graph, method, sampler, device, seed, batch_size)
    with (
        torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device == "cuda" else ()),
        shared_stream(device),
    ):
        torch.manual_seed(seed)
        x = tensor(graph.feat).to(device).float()
        labels = tensor(graph.label).to(device)
        model = _model(METHODS[method], x.shape[1], hidden, graph.num_classes).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=device == "cuda")
        spent, losses, each = np.zeros(2), list[Any](), list[tuple[float, float]]()
        groups = warm_up + -(-steps // together)
        for group in range(groups):
            timed = group >= warm_up
            count = min(together, steps - (group - warm_up) * together) if timed else together
            times = [_now(device)]
            work = source.take(group * together, count)
            times.append(_now(device))
            for step in work * rounds:
                optimizer.zero_grad(set_to_none=True)
                loss = _loss(
                    model(step.blocks, x[tensor(step.node_ids).long()]), labels[tensor(step.seeds).long()]
                )
                loss.backward()
                optimizer.step()
                if timed:
                    losses.append(loss.detach())
            times.append(_now(device))
            if timed:
                took = np.diff(times) / (1, rounds)
                spent += took
                each.append((float(took[0]) * 1e3 / count, float(took[1]) * 1e3 / count))
        values = torch.stack(losses).tolist()
    sample_ms, train_ms = (float(s) * 1e3 / steps for s in spent)
    return SampledRun(method, sampler, steps, sample_ms, train_ms, source.epoch_steps, values, each)


class _Source:
    """Where the mini-batches of a method come from."""

    def __init__(
        self, graph: Any, method: str, sampler: str, device: str, seed: int, batch_size: int | None
    ) -> None:
        self.method, self.sampler, self.device, self.seed = METHODS[method], sampler, device, seed
        self.host = graph.to("cpu", features=False) if graph.device != "cpu" else graph
        self.size = self.method.batch_size if batch_size is None else batch_size
        self.app = self.method.app()
        if hasattr(self.app, "batch_size"):
            self.app.batch_size = self.size
        train = graph.splits.get("train") if graph.splits else None
        self.train = np.arange(graph.num_nodes) if train is None or not len(train) else to_host(train)
        self.place = "cpu" if sampler == "walker" else device
        self.index = "published" if sampler == "published" else "auto"
        self.app.prepare(self.host)
        self.graph = graph if graph.device == self.place else graph.to(self.place, features=False)
        self.cluster_roots = hasattr(self.app, "clusters_per_sample")
        if self.cluster_roots:
            self.epoch_steps = max(1, len(self.app.begin) // self.app.clusters_per_sample)
        elif self.method.form == "induced":
            self.epoch_steps = max(1, self.train.size // (self.app.num_roots + self.app.length))
        else:
            self.epoch_steps = max(1, -(-self.train.size // self.size))
        self.order = np.random.default_rng(seed).permutation(self.train)
        self.own: Any = self._own(method) if sampler == "numpy" else None
        self.trees = sample_blocks.Trees()

    def _own(self, method: str) -> Any:
        app, host, seed = self.app, self.host, self.seed
        if method == "GraphSAGE":
            return reference.TreeSampler(host, app.fanouts, seed)
        if method == "MVS":
            return reference.TreeSampler(host, (app.step_size,), seed)
        if self.method.form == "layers":
            return reference.LayerSampler(host, app.layers, app.step_size, method == "LADIES", seed)
        if self.cluster_roots:
            return reference.ClusterSampler(host, app.cluster, app.clusters_per_sample, seed)
        return reference.FrontierSampler(host, app.num_roots, app.length, seed)

    def roots(self, first: int, count: int) -> np.ndarray:
        """Roots of ``count`` mini-batches, ``int64[count, B]``: training vertices in random order, again and again."""
        at = np.arange(first * self.size, (first + count) * self.size) % self.order.size
        return self.order[at].reshape(count, self.size)

    def take(self, first: int, count: int) -> list[Step]:
        """Mini-batches ``first`` to ``first + count``, on the device."""
        if self.own is not None:
            return [self._by_hand(row) for row in self.roots(first, count)]
        form, app = self.method.form, self.app
        if form == "tree" and not hasattr(app, "importance"):
            roots = self.roots(first, count)
            result = self._run(roots.reshape(-1), first * self.size)
            return self._trees(result, roots.shape)
        if form == "layers":
            return sample_blocks.layers(self._run(self.roots(first, count), first), self._there)
        chosen = app.initial_samples(self.host, count, (self.seed + first) % 2**64)
        result = self._run(chosen, first)
        if form == "tree":
            return self._trees(result, chosen.shape)
        return sample_blocks.induced(result, self.method.layers, self._there)

    def _run(self, roots: np.ndarray, first_sample: int) -> Any:
        return run_app(
            self.graph, self.app, roots, device=self.place, seed=self.seed, first_sample=first_sample, index=self.index
        )  # fmt: skip

    def _there(self, array: Any, kind: Any = None) -> Any:
        """``array`` on the model's device."""
        if kind is not None:
            array = array.astype(kind, copy=False)
        if self.device == "cuda" and not is_cuda_array(array):
            import cupy

            return cupy.asarray(array)
        return array

    # ---- samples as blocks ----------------------------------------------------------------------------------------

    def _by_hand(self, seeds: np.ndarray) -> Step:
        if self.method.form == "tree":
            if hasattr(self.app, "importance"):
                seeds = self.app.initial_samples(self.host, 1, int(self.own.rng.integers(2**62))).reshape(-1)
            return self.trees(self._there(seeds), [self._there(hop) for hop in self.own.sample(seeds)])
        if self.method.form == "layers":
            layers = self.own.sample(seeds)
            blocks = [Edges(*map(self._there, (v, p, i.astype(np.int32), w))) for v, p, i, w in layers]
            return Step(self._there(seeds), blocks[-1].src, blocks[::-1])
        vertices, indptr, indices = self.own.sample()
        parts = (self._there(vertices), self._there(indptr, np.int64), self._there(indices, np.int32))
        return sample_blocks.subgraph(*parts, self.method.layers)

    def _trees(self, result: Any, shape: Sequence[int]) -> list[Step]:
        """Rows of ``result`` as ``shape[0]`` mini-batches."""
        seeds = self._there(result.roots).reshape(shape)
        hops = [self._there(step).reshape(shape[0], -1) for step in result.steps]
        return [self.trees(seeds[i], [hop[i] for hop in hops]) for i in range(shape[0])]


def _model(method: Method, num_features: int, hidden: int, num_classes: int) -> Any:
    if method.form == "layers":
        return _layer_stack(num_features, hidden, num_classes, method.layers)
    from gnnsample_lab.compute.models import make_model

    kind = "sage" if method.form == "tree" else "gcn"
    return make_model(kind, num_features, hidden, num_classes, method.layers)


def _layer_stack(num_features: int, hidden: int, num_classes: int, layers: int) -> Any:
    """``H = relu(P H W)`` with the sampled matrix P of each layer (FastGCN, equation 10; LADIES, equation 5)."""
    import torch

    from gnnsample_lab.compute.aggregation.aggregate import aggregate

    widths = [num_features, *[hidden] * (layers - 1), num_classes]

    class LayerStack(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maps = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairwise(widths))

        def forward(self, blocks: Sequence[Edges], x: Any) -> Any:
            for number, (linear, block) in enumerate(zip(self.maps, blocks, strict=True)):
                x = linear(aggregate(block, x, tensor(block.weight), "sum"))
                x = torch.relu(x) if number + 1 < layers else x
            return x

    return LayerStack()


def _loss(logits: Any, target: Any) -> Any:
    import torch.nn.functional as F

    if target.ndim == 2:
        return F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype))
    return F.cross_entropy(logits, target.long(), ignore_index=-1)


def _now(device: str) -> float:
    if device == "cuda":
        wait_for_device()
    return time.perf_counter()
