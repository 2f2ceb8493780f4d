"""Which kernel a transit goes to as batches grow, and how much of a step shares its lists."""

from __future__ import annotations

from typing import Any, ClassVar

import traitlets

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.readable import noun, percent
from gnnsample_lab.sampling.explain import threads

from ...graphs import batch_options
from ...shell.controls import Choice, Control, Slider
from ...shell.explorer import Explorer
from ...shell.recipe import Panels, Recipe
from .threads import APPS, KHOP, StepExplorer, draw_roots, drawn_on, make_app

MOST_ROOTS = 4096
LENGTH = 4
"""Steps of a walk here."""


def loads(result: Any, count: int | None = None) -> list[Any]:
    """The transits of every step of the first ``count`` samples, grouped: :func:`threads.transit_load`."""
    return [
        threads.transit_load(result.transits(step)[:count], shape.size)
        for step, shape in enumerate(result.shape)
    ]


def sharing(steps: list[Any]) -> dict[str, list[float]]:
    """Share of the draws whose list several pairs, and several samples, want."""
    return {
        "several pairs": [load.shared_by_pairs for load in steps],
        "several samples": [load.shared_by_samples for load in steps],
    }


def over_batches(result: Any, step: int, sizes: list[int]) -> tuple[list[Any], dict[str, list[float]]]:
    """Draws by kernel, and :func:`sharing`, of the first so many samples."""
    size, transits = result.shape[step].size, result.transits(step)
    found = [threads.transit_load(transits[:count], size) for count in sizes]
    return [load.by_kernel()[1] for load in found], sharing(found)


def run(host: Any, on_device: Any, device: str, app: str, fanouts: list[int], batch: int, seed: int) -> Any:
    """The samples of an application."""
    application = make_app(app, fanouts, LENGTH)
    return lab.run_app(on_device, application, draw_roots(host, batch, seed), device=device, seed=seed)


def describe(host: Any, device: str, app: str, fanouts: list[int], *extra: str) -> str:
    """Graph, settings and origin of the counts, for labels."""
    hops = " " + ", ".join(map(str, fanouts)) if app == KHOP else ""
    return " · ".join([host.title, app + hops, *extra, drawn_on(device)])


class BatchExplorer(Explorer):
    """What explorers of batches share: an application, how many roots, two fanouts."""

    app = traitlets.Unicode(KHOP).tag(state=True)
    batch = traitlets.Int(1024).tag(state=True)
    fanout_1 = traitlets.Int(25).tag(state=True)
    fanout_2 = traitlets.Int(10).tag(state=True)
    seed = traitlets.Int(0).tag(state=True)

    apps: ClassVar[list[str]] = APPS

    def prepare(self, state: dict[str, Any]) -> None:
        self._sizes = batch_options(self.graph, MOST_ROOTS)
        if "batch" not in state:
            self.batch = min(self.batch, self._sizes[-1])

    def batch_controls(self) -> list[Control]:
        return [
            Choice("app", "Application", self.app, self.apps),
            Slider("batch", "Roots", self.batch, options=self._sizes),
            Slider("fanout_1", "Fanout, hop 1", self.fanout_1, min=1, max=25),
            Slider("fanout_2", "Fanout, hop 2", self.fanout_2, min=1, max=25),
            Slider("seed", "Random seed", self.seed, max=99),
        ]

    def adapt(self) -> None:
        for name in ("fanout_1", "fanout_2"):
            self.controls[name].disabled = self.app != KHOP

    def parameters(self, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "fanouts": [state["fanout_1"], state["fanout_2"]], "sizes": self._sizes}


def run_largest(
    host: Any, on_device: Any, device: str, app: str, fanouts: list[int], sizes: list[int], seed: int
) -> Any:
    """The draws of a sample do not depend on how many there are: the largest run holds all the smaller ones."""
    return run(host, on_device, device, app, fanouts, sizes[-1], seed)


def group(result: Any, batch: int) -> list[Any]:
    """The transits of every step of so many samples, grouped."""
    return loads(result, batch)


def draw_histogram(
    host: Any, device: str, app: str, fanouts: list[int], batch: int, steps: list[Any], step: int
) -> Any:
    load, where = steps[step - 1], (f"{batch:,} {noun(batch, 'root')}", f"step {step}")
    label = describe(host, device, app, fanouts, *where)
    return figures.kernel_histogram(load.draws, load.kernel, label=label)


def compare_batches(result: Any, step: int, sizes: list[int]) -> Any:
    """Draws by kernel, and how many of them share their lists, for each batch size."""
    return over_batches(result, step - 1, sizes)


def draw_batches(
    host: Any, device: str, app: str, fanouts: list[int], batch: int, sizes: list[int], over: Any, step: int
) -> Any:
    label = describe(host, device, app, fanouts, f"step {step}")
    return figures.sharing_by_batch(sizes, *over, marked=batch, label=label)


def draw_shares(
    host: Any, device: str, app: str, fanouts: list[int], batch: int, steps: list[Any], step: int
) -> Any:
    label = describe(host, device, app, fanouts, f"{batch:,} {noun(batch, 'root')}")
    counts = [each.by_kernel() for each in steps]
    return figures.kernel_shares(counts, sharing(steps), marked=step - 1, label=label)


class KernelExplorer(StepExplorer, BatchExplorer):
    """Which kernel each transit goes to, and how much of the sample shares its lists, as batches grow.

    State: ``app`` ("k-hop", "DeepWalk", "node2vec"), ``batch`` (roots), ``fanout_1`` and ``fanout_2`` (of k-hop),
    ``step`` (from 1), ``seed``. See :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "Sub-warp, block or grid: which kernel a transit goes to"
    recipe: ClassVar[Recipe] = {
        "result": run_largest,
        "steps": group,
        "over": compare_batches,
        "shown": Panels(histogram=draw_histogram, batches=draw_batches, shares=draw_shares),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "One step": ("histogram", "batches"),
        "All steps": ("shares",),
    }

    walk_steps = LENGTH

    step = traitlets.Int(2).tag(state=True)

    def build_controls(self) -> dict[str, Control]:
        controls = self.batch_controls()
        controls.insert(4, Slider("step", "Step", self.step, min=1, max=max(2, self.step)))
        return {control.name: control for control in controls}

    def summary(self, made: dict[str, Any]) -> str:
        load, at = made["steps"][made["step"] - 1], f"step {made['step']}"
        if not len(load.vertex):
            return "No sample has a transit at this step."
        transits, draws = load.by_kernel()
        big, pairs, lists = transits[1] + transits[2], load.pairs.sum(), len(load.vertex)
        most = load.pairs.max()
        return (
            f"In {at} <b>{pairs:,}</b> {noun(pairs, 'pair')} of sample and transit {noun(pairs, 'wants', 'want')} "
            f"<b>{lists:,}</b> different {noun(lists, 'list')}. Of these, <b>{percent(big / lists, 1)}</b> need "
            f"a block or a grid, and get "
            f"<b>{percent((draws[1] + draws[2]) / draws.sum(), 1)}</b> of the draws. "
            f"<b>{percent(load.shared_by_pairs, 1)}</b> of "
            f"the draws are from a list that several pairs want, <b>{percent(load.shared_by_samples, 1)}</b> "
            f"from one that "
            f"several <i>samples</i> want. The most wanted is vertex <b>{load.vertex[load.pairs.argmax()]}</b>'s, by "
            f"<b>{most:,}</b> {noun(most, 'pair')}."
        )
