"""Training a few steps with two systems on the same mini-batches: what is learnt, and where the time goes."""

from __future__ import annotations

import contextlib
import dataclasses
import html
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import traitlets

import gnnsample_lab as lab
from gnnsample_lab import checks, figures
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.graph.lacks import PARTS, lacking, what_is_missing
from gnnsample_lab.readable import noun, percent
from gnnsample_lab.systems.table import find

from ...graphs import batch_options, seed_pool
from ...shell.controls import Choice, Control, Slider, Switch
from ...shell.recipe import Each, Panels, Recipe, Where, so_far
from ..fanouts import FanoutExplorer

MODELS = ["gcn", "sage", "gin", "gat"]
MOST_STEPS = 32
_A_SPLIT = {"training split": "a training split"}
PICK = "floyd"
"""One rule of the draw for all systems, so that they train on the same samples."""


def short_run(graph: Any, steps: int, batch_size: int, seed: int = 0, tested: int = 512) -> Any:
    """The same graph with few training vertices, so that an epoch has ``steps`` steps, and as few to test on.

    Args:
        graph: with features, labels and a training split.
        steps: steps of an epoch. batch_size: seeds of a step.
        seed: decides which training vertices remain.
        tested: the most vertices of the validation (or test) split that remain.

    Raises:
        TypeError: a number that is no integer.
        ValueError: the graph lacks features, labels or a training split, or a number is below 1.
    """
    for name, number in {"steps": steps, "batch_size": batch_size, "tested": tested}.items():
        checks.whole(name, number, low=1)
    checks.seed(seed)
    for part in lacking(graph):
        raise ValueError(
            f"graph must have {_A_SPLIT.get(part, part)} to be trained on ({graph.title} has none)"
        )
    kept = np.random.default_rng(seed).permutation(seed_pool(graph))[: steps * batch_size]
    splits = {"train": kept}
    held_out = next(
        (graph.splits[name] for name in ("valid", "test") if len(graph.splits.get(name, ()))), None
    )
    if held_out is not None:
        splits["valid"] = np.random.default_rng(0).permutation(to_host(held_out))[:tested]
    if graph.device == "cuda":
        import cupy

        splits = {name: cupy.asarray(ids) for name, ids in splits.items()}
    return dataclasses.replace(graph, splits=splits, validate=False)


def trainable(graph: Any, *, random_features: bool = False) -> bool:
    """Whether a model can be trained on ``graph``; if not, one printed line says what is missing and who has it.

    Args:
        graph: any Graph.
        random_features: missing features are no obstacle, as random ones take their place.
    """
    line = untrainable(graph, random_features)
    print(line, end="\n" if line else "")
    return not line


def untrainable(graph: Any, random_features: bool = False) -> str:
    """Why no model can be trained on ``graph``, in one line; empty where one can."""
    line = what_is_missing(graph, [part for part in PARTS if part != "features" or not random_features])
    return f"{line} Nothing is trained here; the rest goes on without." if line else ""


@contextlib.contextmanager
def one_thread(device: str) -> Iterator[None]:
    """One thread for PyTorch's operators on the CPU while the block runs.

    The steps are small, and between them the sampler's own threads run: two pools whose idle threads spin take the
    cores from each other, which costs far more than a second thread gains.
    """
    if device != "cpu":
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def shorten(g: Any, steps: int, batch_size: int, seed: int, random_features: bool) -> Any:
    """A part of the graph's training split, of so many steps; with random features if they were asked for."""
    from gnnsample_lab.graph import random_features as with_random_features

    return short_run(with_random_features(g) if random_features else g, steps, batch_size, seed)


def train(
    short: Any,
    device: str,
    model: str,
    epochs: int,
    batch_size: int,
    fanouts: list[int],
    rate: int,
    seed: int,
    system: str,
) -> Any:
    """What a system learns, and where its time goes."""
    with one_thread(device):
        return lab.train(
            short,
            model,
            system,
            epochs=epochs,
            batch_size=batch_size,
            fanouts=fanouts,
            lr=rate / 1e4,
            seed=seed,
            device=device,
            pick=PICK,
            progress=False,
            on_progress=so_far,
        )


def results_of(runs: dict[str, Any]) -> list[Any]:
    """The training runs, the reference first."""
    return list(runs.values())


def tested(results: list[Any]) -> list[Any] | None:
    """The runs where there is something to test on; else None."""
    return results if any(run.accuracy for run in results) else None


def draw_loss(results: list[Any], short: Any, batch_size: int, epochs: int) -> Any:
    return figures.loss_curves(results, steps=epochs * -(-len(short.splits["train"]) // batch_size))


def draw_accuracy(scored: list[Any], epochs: int) -> Any:
    return figures.accuracy_curves(scored, epochs=epochs)


def draw_stages(results: list[Any]) -> Any:
    return figures.stage_breakdown(results)


def draw_bytes(results: list[Any]) -> Any:
    return figures.copied_bytes(results)


class TrainingExplorer(FanoutExplorer):
    """Loss and accuracy of one system over those of another, on the same batches, and the stages of both.

    State: ``system`` and ``reference`` (names of ``lab.systems()``), ``model``, ``steps`` (of an epoch), ``epochs``,
    ``batch_size``, ``hops``, ``fanout_1`` .. ``fanout_3``, ``rate`` (learning rate times 10 000), ``seed``,
    ``random_features`` (train on random numbers; a control of a graph without features alone).

    On a graph without labels or a training split nothing is trained: one line says what is missing and which graphs
    have it, and the explorer stays alive.

    Every change trains for ``steps`` times ``epochs`` steps, for real, on a part of the training split (fewer where it
    has fewer vertices; the summary says so), and the curves grow step by step; a run that was seen lately is not
    repeated. On the CPU the stages of all systems are computed by the same operators, one after the other: their curves
    and bytes mean something there, their times little. See :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "Training: the same curves, another clock"
    recipe: ClassVar[Recipe] = {
        "short": shorten,
        "runs": Each(train, "system", of="compared"),
        "results": results_of,
        "scored": tested,
        "shown": Panels(
            loss=draw_loss, accuracy=Where(draw_accuracy, "scored"), stages=draw_stages, bytes=draw_bytes
        ),
    }
    grows = ("loss", "accuracy")
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "What is learnt": ("loss", "accuracy"),
        "Time and bytes": ("stages", "bytes"),
    }

    system = traitlets.Unicode("fastgl").tag(state=True)
    reference = traitlets.Unicode("dgl").tag(state=True)
    model = traitlets.Unicode("gcn").tag(state=True)
    steps = traitlets.Int(6).tag(state=True)
    epochs = traitlets.Int(3).tag(state=True)
    batch_size = traitlets.Int(64).tag(state=True)
    hops = traitlets.Int(2).tag(state=True)
    fanout_1 = traitlets.Int(5).tag(state=True)
    fanout_2 = traitlets.Int(5).tag(state=True)
    fanout_3 = traitlets.Int(5).tag(state=True)
    rate = traitlets.Int(100).tag(state=True)
    seed = traitlets.Int(0).tag(state=True)
    random_features = traitlets.Bool(False).tag(state=True)

    def prepare(self, state: dict[str, Any]) -> None:
        self._sizes = batch_options(self.graph, 4096)
        if "batch_size" not in state:
            self.batch_size = min(self.batch_size, self._sizes[-1])

    def build_controls(self) -> dict[str, Control]:
        names = list(lab.systems())
        controls: list[Control] = [
            Choice("system", "System", self.system, names),
            Choice("reference", "Over", self.reference, names),
            Choice("model", "Model", self.model, MODELS),
            Slider("steps", "Steps of an epoch", self.steps, min=2, max=MOST_STEPS),
            Slider("epochs", "Epochs", self.epochs, min=1, max=10),
            Slider("batch_size", "Batch size", self.batch_size, options=self._sizes, unit=" seeds"),
            *self.hop_sliders("Layers"),
            Slider("rate", "Learning rate", self.rate, options=[1, 3, 10, 30, 100, 300], per=10_000),
            Slider("seed", "Random seed", self.seed, max=99),
        ]
        if "features" in lacking(self.graph):
            controls.append(Switch("random_features", "Random features", self.random_features))
        return {control.name: control for control in controls}

    def compute(self, state: dict[str, Any]) -> tuple[Mapping[str, Any], Callable[[], str]]:
        line = html.escape(untrainable(self.graph, state["random_features"]), quote=False)
        if not line:
            return super().compute(state)
        if not untrainable(self.graph, True):
            line += " Or tick <b>Random features</b>."
        return {}, lambda: line

    def parameters(self, state: dict[str, Any]) -> dict[str, Any]:
        compared = list(dict.fromkeys([state["reference"], state["system"]]))
        return {**super().parameters(state), "compared": compared}

    def summary(self, made: dict[str, Any]) -> str:
        results = list(made["runs"].values())
        first, last = results[0], results[-1]
        text = f"<b>{last.system}</b>: {_end(last)}"
        if (ran := last.epochs[-1].num_batches) < self.steps:
            text = f"An epoch has {ran} {noun(ran, 'step')}: there are no more training vertices. {text}"
        if first is last:
            return text + "."
        text += f"; <b>{first.system}</b>: {_end(first)}. "
        if _draws_trees(first) != _draws_trees(last):
            text += (
                f"Same seeds, other samples: {(first if _draws_trees(first) else last).system} draws a tree for each "
                "seed, with replacement. Compare the course, not single steps. "
            )
        elif first.batch_ids == last.batch_ids:
            text += "Same batches, same order, same samples. "
        else:
            text += "Same batches in another order: compare the course, not single steps. "
        moved = [sum(epoch.bytes_moved for epoch in run.epochs) for run in (first, last)]
        share = moved[1] / max(1, moved[0])
        text += f"In an epoch {last.system} copies <b>{percent(share)}</b> of {first.system}'s bytes."
        return text + (" On the CPU the times say little." if self.device == "cpu" else "")


def _draws_trees(run: Any) -> bool:
    """Whether the run's system takes other samples than the rest, of the same seeds."""
    return find(run.system).trees


def _end(run: Any) -> str:
    """How a run ended, in words: mean loss of the last epoch, accuracy after it."""
    loss = float(np.mean(run.losses[-run.epochs[-1].num_batches :]))
    score = f", accuracy <b>{percent(run.accuracy[-1], 1)}</b>" if run.accuracy else ""
    return f"mean loss <b>{loss:.3f}</b> in the last epoch{score}"
