"""Knobs of the catalogue's twins, fitted to at most two published samples a graph.

``python -m gnnsample_lab.bench.suites.twins.fitting [--device cuda] [--scale S] [--knobs FILE] NAME ...`` samples
twins with several values of their knobs, as their publications sampled, and writes ``data/twins/<name>.json`` with
those that come nearest. The search is Broyden's: the same start and steps every time, each step within the knobs'
ranges. With ``--knobs FILE`` the values are put into FILE instead, and ``--apply FILE`` makes statistics of them, for
which no GPU is needed. ``--check`` samples what is stored and tells how far all published numbers are off.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.files import read_json
from gnnsample_lab.graph.twins import recipes
from gnnsample_lab.graph.twins import twin as generator
from gnnsample_lab.graph.twins.families import table_gini
from gnnsample_lab.graph.twins.statistics import check_statistics

from . import beside_published
from .metrics import LAST
from .published import Published, cells_of

TURNS = 7
NEAR = 0.25
"""Of the tolerance: a search that comes so close ends."""


@dataclass(frozen=True)
class Target:
    """A knob, its range, and the published number that it is fitted to.

    Attributes:
        knob: of :mod:`gnnsample_lab.graph.twins.recipes`.
        low, high: what it may be.
        label: of the number, as ``published.labels`` lists it.
        step: first step of the knob, in units of its free scale (see :func:`_free`).
    """

    knob: str
    low: float
    high: float
    label: str
    step: float = 0.4


_15 = "8000 x (15, 10, 5)"
TARGETS: dict[str, tuple[Target, ...]] = {
    "products-like": (
        Target("inside_small", 0.05, 0.95, "rows, 2000 x (15, 10, 5)"),
        Target("gini", 0.45, 0.8, f"similarity, {_15}"),
    ),
    "papers100M-like": (
        Target("spread_out", 0.4, 2.5, f"rows, {_15}"),
        Target("inside_large", 0.4, 0.995, f"hit rate presample 5 %, {_15}"),
    ),
    "twitter-like": (
        Target("spread_in", 0.8, 3.0, f"rows, {_15}"),
        Target("spread_out", 0.8, 3.5, f"hit rate degree 10 %, {_15}"),
    ),
    "uk-like": (
        Target("spread_in", 0.8, 3.5, f"rows, {_15}"),
        Target("spread_out", 0.3, 2.5, f"hit rate degree 10 %, {_15}"),
    ),
    "friendster-like": (Target("inside_small", 0.05, 0.95, "rows, 1000 x (15, 10, 5)"),),
    "reddit-like": (Target("gini", 0.35, 0.85, f"match degree, {_15}"),),
    "mag-like": (Target("spread_out", 0.4, 2.5, f"match degree, {_15}"),),
}
SCALES = {
    "products-like": 1.0, "papers100M-like": 0.1, "twitter-like": 0.1, "uk-like": 0.1, "friendster-like": 0.05,
    "reddit-like": 1.0, "mag-like": 0.25,
}  # fmt: skip
"""At which twins are sampled while knobs are sought on a GPU."""


def _free(value: float, low: float, high: float) -> float:
    """A knob on a scale without ends."""
    share = min(max((value - low) / (high - low), 1e-3), 1 - 1e-3)
    return math.log(share / (1 - share))


def _bound(value: float, low: float, high: float) -> float:
    return low + (high - low) / (1 + math.exp(-value))


class Search:
    """Knobs of one twin and the numbers that they give.

    Args:
        name: of the twin.
        scale: at which it is sampled.
        device: where.
        say: is told what is found.
    """

    def __init__(self, name: str, scale: float, device: str, say: Any = print) -> None:
        self.name, self.scale, self.device, self.say = name, scale, device, say
        self.targets = TARGETS[name]
        cells = {cell.label: cell for cell in cells_of(name)}
        self.cells = [cells[target.label] for target in self.targets]
        self.stored = recipes.stored(name)

    def statistics(self, values: Mapping[str, float]) -> dict[str, Any]:
        """Of a twin with these knobs; cliques, purity and signal are those that are stored."""
        return recipes.build(self.name, self.sourced(values), kept=self.stored)

    def sourced(self, values: Mapping[str, float]) -> dict[str, dict[str, Any]]:
        return {
            target.knob: {"value": round(values[target.knob], 5), "source": f"fitted to {target.label} ({cell.source})"}
            for target, cell in zip(self.targets, self.cells)
        }  # fmt: skip

    def off(self, free: np.ndarray) -> np.ndarray:
        """How far the twin is from the published numbers, in tolerances: rows 10 %, percents 5 points."""
        values = {t.knob: _bound(x, t.low, t.high) for t, x in zip(self.targets, free)}
        began = time.perf_counter()
        found = sampled(self.name, self.statistics(values), self.cells, self.scale, self.device)
        off = np.array([_off(cell, number) for cell, number in zip(self.cells, found)])
        told = ", ".join(f"{t.label} {v:.6g}" for t, v in zip(self.targets, found))
        knobs = ", ".join(f"{key} {value:.4f}" for key, value in values.items())
        self.say(f"{self.name}@{self.scale:g}: {knobs}: {told}; off by {np.round(off, 2).tolist()} tolerances, "
                 f"{time.perf_counter() - began:.0f} s")  # fmt: skip
        return off

    def run(self) -> dict[str, float]:
        """The values that come nearest."""
        knobs = {key: float(value["value"]) for key, value in self.stored["knobs"].items()}
        start = [knobs.get(t.knob, self.first(t)) for t in self.targets]
        x = np.array([_free(v, t.low, t.high) for v, t in zip(start, self.targets)])
        seen = [(x, self.off(x))]
        slopes = np.zeros((len(x), len(x)))
        for k, target in enumerate(self.targets):
            there = x.copy()
            # Towards the middle, where a range has room.
            there[k] += target.step if x[k] < 0 else -target.step
            seen.append((there, self.off(there)))
            slopes[:, k] = (seen[-1][1] - seen[0][1]) / (there[k] - x[k])
        for _ in range(TURNS - len(x)):
            x, off = min(seen, key=lambda pair: float(np.abs(pair[1]).max()))
            if np.abs(off).max() <= NEAR:
                break
            step = -np.linalg.lstsq(slopes, off, rcond=0.02)[0]
            step *= min(1.0, 1.2 / max(float(np.abs(step).max()), 1e-9))
            there = np.clip(x + step, -4, 4)
            moved = there - x
            if np.abs(moved).max() < 1e-3:
                break
            seen.append((there, self.off(there)))
            slopes += np.outer(seen[-1][1] - off - slopes @ moved, moved) / (moved @ moved)
        x, off = min(seen, key=lambda pair: float(np.abs(pair[1]).max()))
        return {t.knob: round(_bound(v, t.low, t.high), 5) for t, v in zip(self.targets, x)}

    def first(self, target: Target) -> float:
        """Where a knob starts that the stored twin does not state."""
        recipe = recipes.RECIPES[self.name]
        if target.knob == "spread_in" and recipe.into:
            return recipe.into.spread
        if target.knob == "spread_out" and recipe.out:
            return recipe.out.spread
        return table_gini(self.stored["degrees"])


def _off(cell: Published, number: float) -> float:
    near = min(max(number, cell.low), cell.high)
    if cell.quantity in ("rows", "frontier"):
        return 10 * math.log(number / near)
    return (number - near) / 5


class _Quiet:
    """A session that says nothing."""

    def say(self, _text: str) -> None:
        pass


def sampled(
    name: str, statistics: Mapping[str, Any], cells: Sequence[Published], scale: float, device: str, seed: int = 0
) -> list[float]:  # fmt: skip
    """The numbers of a twin that stand beside published ones; rows and frontiers as of the whole graph."""
    graph = generator.generate(
        check_statistics(statistics), scale=scale, seed=seed, features=False, device=device, name=name
    )
    found = beside_published.measure(_Quiet(), graph, f"{name}@{scale:g}", cells)  # type: ignore[arg-type]
    del graph
    if device == "cuda":
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
    numbers = []
    for cell in cells:
        key = beside_published.key_of(cell)
        spare = key._replace(detail=key.detail.removesuffix(LAST).removesuffix(", "))
        value = found.get(key, found.get(spare, math.nan))
        numbers.append(value / scale if cell.quantity in ("rows", "frontier") else value)
    return numbers


def check(name: str, scale: float, device: str, say: Any = print) -> None:
    """Every published number of a graph beside the stored twin's, told one a line."""
    statistics, cells = recipes.stored(name), cells_of(name)
    numbers = sampled(name, statistics, cells, scale, device)
    for cell, number in zip(cells, numbers):
        say(f"{name}@{scale:g}: {cell.label}: {number:.6g} for {cell.low:g} to {cell.high:g}, off by "
            f"{_off(cell, number):+.2f} tolerances")  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit the knobs of twins to published samples."""
    parser = argparse.ArgumentParser(prog="fitting", description=main.__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--scale", type=float, help="of the twins that are sampled")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no graph is begun after that long")
    parser.add_argument("--knobs", type=Path, help="write the values here instead of statistics")
    parser.add_argument("--apply", type=Path, help="make statistics of the values in this file")
    parser.add_argument("--check", action="store_true", help="sample the stored twins alone")
    asked = parser.parse_args(arguments)
    began = time.perf_counter()
    if asked.apply:
        for name, knobs in read_json(asked.apply).items():
            print(recipes.write(name, recipes.build(name, knobs)), flush=True)
        return
    kept: dict[str, Any] = {}
    for name in asked.names or TARGETS:
        if time.perf_counter() - began > asked.seconds:
            print(f"{name} is left out: no time", flush=True)
            continue
        scale = asked.scale or SCALES.get(name, 1.0)
        if asked.check:
            check(name, scale, asked.device)
            continue
        search = Search(name, scale, asked.device, lambda text: print(text, flush=True))
        values = search.run()
        print(f"{name}: {values}", flush=True)
        kept[name] = search.sourced(values)
        if asked.knobs:
            asked.knobs.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        else:
            recipes.write(name, recipes.build(name, kept[name]))


if __name__ == "__main__":
    main()
