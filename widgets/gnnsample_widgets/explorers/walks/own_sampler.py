"""A walk that remembers: node2vec on a small graph, against what its probabilities say exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import traitlets

import gnnsample_lab as lab
from gnnsample_lab import checks, figures, readable
from gnnsample_lab.readable import percent

from ...graphs import sampled_on
from ...shell.controls import Choice, Control, Slider
from ...shell.explorer import Explorer
from ...shell.recipe import Panels, Recipe
from .second_order import (
    GRID,
    KARATE,
    PART,
    VILLAGES,
    Expectation,
    Node2Vec,
    choices,
    count_kinds,
    distances,
    expectation,
    small_graph,
)

PERCENT = [10, 25, 50, 100, 200, 400, 1000]
LENGTHS = [2, 3, 5, 10, 20, 40, 80]
WALKS = [1, 10, 100, 1000, 10000]


def make_graph(host: Any, shape: str) -> Any:
    return small_graph(shape, host)


def walk(
    small: Any, app: Any, device: str, p: float, q: float, start: int, length: int, walks: int, seed: int
) -> np.ndarray:
    """The walks, [walks, vertices], roots first."""
    result = lab.run_app(small, app(p, q, length), np.full(walks, start), device=device, seed=seed)
    return np.asarray(result.to_cpu().samples)


def expect(small: Any, start: int, length: int, p: float, q: float) -> tuple[Expectation, Expectation]:
    """What walks do on average, and what they would do without a memory."""
    return expectation(small, start, length, p, q), expectation(small, start, length, 1, 1)


def place(small: Any) -> Any:
    return figures.graph_layout(small)


def describe(small: Any, device: str, start: int, length: int, walks: int, p: float, q: float) -> str:
    """What was walked, for labels."""
    what = f"p = {p:g}, q = {q:g} · {walks:,} {readable.noun(walks, 'walk')} of {length} steps from {start}"
    return f"{small.title} · {what} · {sampled_on(device)}"


def share_visits(small: Any, walked: np.ndarray) -> np.ndarray:
    """Share of each vertex in what was sampled; roots do not count."""
    counts = np.bincount(walked[:, 1:][walked[:, 1:] >= 0], minlength=small.num_nodes)
    return np.asarray(counts / max(1, counts.sum()))


def kinds_of(small: Any, walked: np.ndarray) -> dict[str, float]:
    """Share of each kind of step."""
    return count_kinds(small, walked)


def draw_walk(
    small: Any,
    walked: np.ndarray,
    visited: Any,
    positions: Any,
    steps: int,
    p: float,
    q: float,
    label: str,
) -> Any:
    """So many steps of the first of the walks ([walks, vertices], roots first), and where the next one may go."""
    first = [int(v) for v in walked[0, : steps + 1] if v >= 0]
    before = first[-2] if len(first) > 1 else -1
    over = steps + 1 >= walked.shape[1]
    return figures.walk_drawing(
        small,
        first,
        {} if over else choices(small, before, first[-1], p, q),
        visited,
        positions=positions,
        title=f"Step {len(first)} of the first walk: where it may go"
        if not over
        else "The first walk, at its end",
        label=label,
    )


def draw_kinds(kinds: dict[str, float], expected: Any, label: str) -> Any:
    exact, even = expected
    return figures.step_kinds(kinds, exact.kinds, even.kinds, label=label)


def draw_visits(small: Any, walked: np.ndarray, visited: np.ndarray, expected: Any, label: str) -> Any:
    exact, even = expected
    far = distances(small, int(walked[0, 0]))
    order = np.lexsort((np.arange(small.num_nodes), far))
    return figures.visit_shares(
        [str(v) for v in order],
        visited[order],
        exact.visits[order],
        even.visits[order],
        distances=far[order],
        axis="vertex, and its distance from the root",
        label=label,
    )


class SecondOrderExplorer(Explorer):
    """node2vec on a graph small enough to be drawn: one walk step by step, and many walks against the expectation.

    State: ``shape`` (which small graph), ``start`` (its root), ``p_percent`` and ``q_percent`` (100 times p and q),
    ``length`` (steps of a walk), ``walks``, ``shown`` (steps shown of the first walk), ``seed``.

    Args:
        app: what makes the application from (p, q, length): :class:`Node2Vec`, or your own class. The expectation is
            that of node2vec, whatever the application does.

    The other arguments are those of :class:`~gnnsample_widgets.Explorer`; the graph is used for "part of the
    loaded graph" alone.
    """

    heading = "A walk that remembers: node2vec"
    recipe: ClassVar[Recipe] = {
        "small": make_graph,
        "walked": walk,
        "expected": expect,
        "positions": place,
        "label": describe,
        "visited": share_visits,
        "kinds": kinds_of,
        "shown": Panels(walk=draw_walk, kinds=draw_kinds, visits=draw_visits),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "The walk": ("walk", "kinds"),
        "Visits": ("visits",),
    }
    shares: ClassVar[dict[str, int]] = {"walk": 5, "kinds": 4}

    shape = traitlets.Unicode(KARATE).tag(state=True)
    start = traitlets.Int(0).tag(state=True)
    p_percent = traitlets.Int(100).tag(state=True)
    q_percent = traitlets.Int(25).tag(state=True)
    length = traitlets.Int(10).tag(state=True)
    walks = traitlets.Int(1000).tag(state=True)
    shown = traitlets.Int(3).tag(state=True)
    seed = traitlets.Int(0).tag(state=True)

    def __init__(
        self, graph: Any = None, *, app: Callable[[float, float, int], Any] = Node2Vec, **rest: Any
    ) -> None:
        self._app = checks.function("app", app)
        super().__init__(graph, **rest)

    def prepare(self, state: dict[str, Any]) -> None:
        self._lasts: dict[str, int] = {}
        if "shown" not in state:
            length = state.get("length", self.length)
            if isinstance(length, int):  # what is none is refused under its own name
                self.shown = min(self.shown, length)

    def build_controls(self) -> dict[str, Control]:
        last = self._last(self.shape)
        controls: list[Control] = [
            Choice("shape", "Small graph", self.shape, [KARATE, VILLAGES, GRID, PART]),
            Slider("start", "Root", self.start, max=max(last, self.start)),
            Slider("p_percent", "p, return", self.p_percent, options=PERCENT, per=100),
            Slider("q_percent", "q, in-out", self.q_percent, options=PERCENT, per=100),
            Slider("length", "Steps of a walk", self.length, options=LENGTHS),
            Slider("walks", "Walks", self.walks, options=WALKS),
            Slider(
                "shown",
                "Steps shown",
                self.shown,
                max=max(self.length, self.shown),
                playable=True,
                interval_ms=1100,
            ),
            Slider("seed", "Random seed", self.seed, max=99),
        ]
        return {control.name: control for control in controls}

    def _last(self, shape: str) -> int:
        # Not by remember(), whose results belong to the run under way: set() may ask beside it.
        if shape not in self._lasts:
            self._lasts[shape] = int(small_graph(shape, self.host_graph).num_nodes) - 1
        return self._lasts[shape]

    def adapt(self) -> None:
        for name, last in (("start", self._last(self.shape)), ("shown", self.length)):
            control = self.controls[name]
            if isinstance(control, Slider) and control.max != last:
                control.set_limits(0, last)

    def parameters(self, state: dict[str, Any]) -> dict[str, Any]:
        # "shown" is what the recipe makes in the end.
        rest = {name: value for name, value in state.items() if name != "shown"}
        p, q = state["p_percent"] / 100, state["q_percent"] / 100
        return {**rest, "app": self._app, "p": p, "q": q, "steps": state["shown"]}

    def summary(self, made: dict[str, Any]) -> str:
        walked, exact = made["walked"], made["expected"][0]
        sampled = made["kinds"]
        if made["length"] < 2:
            return "A first step has no vertex before it: all neighbours are alike."
        weights = (1 / made["p"], 1.0, 1 / made["q"])
        worst = max(weights) / min(weights)
        home = float((walked[:, 1:] == made["start"]).sum() / max(1, (walked[:, 1:] >= 0).sum()))
        return (
            f"<b>{percent(sampled['return'], 1)}</b> of the steps go back, "
            f"<b>{percent(sampled['triangle'], 1)}</b> round a triangle, "
            f"<b>{percent(sampled['away'], 1)}</b> away; the root is <b>{percent(home, 1)}</b> of what is "
            f"sampled. Rejection draws "
            f"<b>{readable.number(exact.tries)}</b> {readable.noun(exact.tries, 'candidate')} for a step, "
            f"and on no vertex more than {worst:g} on average."
        )
