"""Threads that read neighbour lists: one step of one sample, drawn sample-parallel and transit-parallel."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import plotly.graph_objects as go
import traitlets

import gnnsample_lab as lab
from gnnsample_lab import checks, figures
from gnnsample_lab.readable import noun
from gnnsample_lab.sampling.explain import reads, threads

from ...graphs import seed_pool, to_device
from ...shell.controls import Choice, Control, Slider
from ...shell.explorer import Explorer
from ...shell.recipe import Panels, Recipe

KHOP, DEEPWALK, NODE2VEC = "k-hop", "DeepWalk", "node2vec"
APPS = [KHOP, DEEPWALK, NODE2VEC]
SMALL, LOADED = "small, made up", "the loaded one"
WIDTHS = [4, 8, 16, 32]
ROOTS = [4, 8, 16, 32, 64, 128]
SHOWN = 16
"""Warps that are drawn; of more, every n-th."""
WALK = 6
"""Steps of a walk here."""
NAMES = {"sample": "sample-parallel", "transit": "transit-parallel"}


def small_graph() -> lab.Graph:
    """A made-up graph of 48 vertices with a few hubs, on which even a handful of roots share transits."""
    import networkx as nx

    src, dst = np.array(nx.barabasi_albert_graph(48, 4, seed=2).edges()).T
    return lab.Graph.from_edges(src, dst, 48, undirected=True, name="48 vertices", is_synthetic=True)


def make_app(name: str, fanouts: list[int], length: int = WALK) -> Any:
    """The application of that name: ``KHop(fanouts)``, or a walk of ``length`` steps with NextDoor's settings.

    Raises:
        ValueError: another name.
    """
    checks.choice("name", name, APPS)
    if name == KHOP:
        return lab.apps.KHop(fanouts)
    return {DEEPWALK: lab.apps.DeepWalk, NODE2VEC: lab.apps.Node2Vec}[name](length)


def draw_roots(graph: Any, count: int, seed: int) -> np.ndarray:
    """``count`` vertices of the training split (else of all), int64: distinct while there are so many.

    The first of many are those of fewer.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    checks.whole("count", count)
    checks.seed(seed)
    pool = seed_pool(graph)
    rounds = [np.random.default_rng((seed, turn)).permutation(pool) for turn in range(-(-count // len(pool)))]
    return np.concatenate(rounds)[:count]


def laid_out(result: Any, step: int, width: int) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Calls of a step, and by scheme their threads and what the warps read."""
    calls = reads.follow(result, step)
    lanes = {scheme: threads.lay_out(calls, scheme, width) for scheme in threads.SCHEMES}
    return calls, lanes, {scheme: threads.count_warps(calls, lanes[scheme]) for scheme in lanes}


def map_of(scheme: str, calls: Any, lanes: dict[str, Any], counts: dict[str, Any], label: str) -> go.Figure:
    """The threads of one scheme, sixteen warps at most."""
    mine, counted = lanes[scheme], counts[scheme]
    spread = np.linspace(0, len(mine.call) - 1, SHOWN) if len(mine.call) else np.empty(0)
    warps = np.unique(spread.round().astype(np.int64))
    call = mine.call[warps]
    mean = counted.lists.mean() if len(mine.call) else 0.0
    name = NAMES[scheme].capitalize()
    return figures.thread_map(
        np.where(call >= 0, calls.transit[call], -1) if len(calls) else call,
        figures.list_ranks(calls.transit[:: calls.size]),
        {
            "lists": counted.lists[warps],
            "sectors": counted.sectors[warps],
            "at work": [f"{100 * share:.0f} %" for share in counted.busy[warps]],
        },
        scheme=f"{name}: {mean:.1f} lists per warp",
        warps=warps,
        kernels=[threads.KERNELS[k] for k in mine.kernel[warps]] if scheme == "transit" else (),
        label=f"{len(warps)} of {len(mine.call):,} warps · {label}" if len(warps) < len(mine.call) else label,
    )


def sectors_of(calls: Any, lanes: dict[str, Any], counts: dict[str, Any]) -> dict[str, int]:
    """Sectors of the whole step: both schemes, lists copied to shared memory, and the different ones."""
    return {
        **{NAMES[scheme]: int(counted.sectors.sum()) for scheme, counted in counts.items()},
        "lists in shared memory": threads.staged_sectors(calls, lanes["transit"]),
        "unlimited cache": threads.distinct_sectors(calls),
    }


def totals_of(counts: dict[str, Any], sectors: dict[str, int], label: str) -> go.Figure:
    """The whole step under both schemes."""
    room = {scheme: int(c.loads.sum()) * c.width for scheme, c in counts.items()}
    return figures.warp_totals(
        {NAMES[scheme]: float(c.lists.mean()) if len(c.lists) else 0.0 for scheme, c in counts.items()},
        sectors,
        {NAMES[scheme]: int(c.reads.sum()) / max(1, room[scheme]) for scheme, c in counts.items()},
        label=label,
    )


def drawn_on(device: str) -> str:
    """Where the counted sample was drawn, for labels."""
    return f"counted from the sample, drawn on the {'GPU' if device == 'cuda' else 'CPU'}"


def choose_graph(on_device: Any, device: str, where: str) -> Any:
    """The small graph or the loaded one."""
    return to_device(small_graph(), device) if where == SMALL else on_device


def run(graph: Any, device: str, app: str, fanout: int, roots: int, seed: int) -> Any:
    """The samples of an application."""
    application = make_app(app, [fanout] * 2)
    return lab.run_app(graph, application, draw_roots(graph, roots, seed), device=device, seed=seed)


def lay_out(result: Any, step: int, width: int) -> Any:
    """Calls of the step, and by scheme their threads and what the warps read."""
    return laid_out(result, step - 1, width)


def count_sectors(threads_of: Any) -> dict[str, int]:
    """Sectors of the whole step."""
    return sectors_of(*threads_of)


def describe(graph: Any, device: str, app: str, fanout: int, roots: int, step: int) -> str:
    """What was drawn, for labels."""
    hops = f" {fanout}, {fanout}" if app == KHOP else ""
    return f"{graph.title} · {app}{hops}, {roots} roots, step {step} · {drawn_on(device)}"


def draw_samples(threads_of: Any, label: str) -> Any:
    calls, lanes, counts = threads_of
    return map_of("sample", calls, lanes, counts, label)


def draw_transits(threads_of: Any, label: str) -> Any:
    calls, lanes, counts = threads_of
    return map_of("transit", calls, lanes, counts, label)


def draw_totals(threads_of: Any, sectors: dict[str, int], label: str) -> Any:
    return totals_of(threads_of[2], sectors, label)


class StepExplorer(Explorer):
    """An explorer of one step of the application in ``app``: the slider ``step`` goes as far as that does."""

    walk_steps: ClassVar[int] = WALK

    @traitlets.observe("app")
    def _has_other_steps(self, _: Any) -> None:
        # At once, so that set(app=..., step=...) may name any step of the new one.
        if getattr(self, "controls", None):
            with self._holding():
                self.adapt()

    def adapt(self) -> None:
        super().adapt()
        steps = 2 if self.app == KHOP else self.walk_steps
        if self.controls["step"].max != steps:
            self.controls["step"].set_limits(1, steps)


class ThreadsExplorer(StepExplorer):
    """Whose list each thread reads at one step, under both schemes: lists, sectors and lanes at work, warp by warp.

    State: ``app`` ("k-hop", "DeepWalk", "node2vec"), ``where`` (a small made-up graph, or the loaded one), ``roots``,
    ``fanout`` (of both hops of k-hop), ``step`` (from 1), ``width`` (threads of a warp), ``seed``.

    The samples are drawn by :func:`lab.run_app`; what a thread reads is counted from them. See
    :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "Whose neighbours does a thread read?"
    recipe: ClassVar[Recipe] = {
        "graph": choose_graph,
        "result": run,
        "threads_of": lay_out,
        "sectors": count_sectors,
        "label": describe,
        "shown": Panels(sample=draw_samples, transit=draw_transits, totals=draw_totals),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "Thread by thread": ("sample", "transit"),
        "The whole step": ("totals",),
    }

    app = traitlets.Unicode(KHOP).tag(state=True)
    where = traitlets.Unicode(SMALL).tag(state=True)
    roots = traitlets.Int(32).tag(state=True)
    fanout = traitlets.Int(4).tag(state=True)
    step = traitlets.Int(2).tag(state=True)
    width = traitlets.Int(32).tag(state=True)
    seed = traitlets.Int(0).tag(state=True)

    def build_controls(self) -> dict[str, Control]:
        controls: list[Control] = [
            Choice("app", "Application", self.app, APPS),
            Choice("where", "Graph", self.where, [SMALL, LOADED]),
            Slider("roots", "Roots", self.roots, options=ROOTS),
            Slider("fanout", "Fanout of a hop", self.fanout, min=1, max=10),
            Slider("step", "Step", self.step, min=1, max=max(2, self.step)),
            Slider("width", "Threads of a warp", self.width, options=WIDTHS),
            Slider("seed", "Random seed", self.seed, max=99),
        ]
        return {control.name: control for control in controls}

    def adapt(self) -> None:
        super().adapt()
        self.controls["fanout"].disabled = self.app != KHOP

    def summary(self, made: dict[str, Any]) -> str:
        calls, sectors = made["threads_of"][0], made["sectors"]
        called = int((calls.transit >= 0).sum())
        if not called:
            return "No sample has a transit at this step."
        different = len(np.unique(calls.transit[calls.transit >= 0]))
        sample, transit, staged, least = sectors.values()
        compared = "fewer" if staged < transit else "more" if staged > transit else "no fewer and no more"
        return (
            f"<b>{called:,}</b> {noun(called, 'call')} of next, one thread each, on <b>{different:,}</b> different "
            f"{noun(different, 'list')}. {noun(called, 'It touches', 'They touch')} "
            f"<b>{sample:,}</b> {noun(sample, 'sector')} sample-parallel and <b>{transit:,}</b> transit-parallel; "
            f"<b>{least:,}</b> of them {noun(least, 'is', 'are')} different. Copying the lists of block and grid "
            f"transits to shared memory reads <b>{staged:,}</b>, {compared}."
        )
