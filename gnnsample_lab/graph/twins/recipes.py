"""Statistics of the catalogue's twins, from what is published about graphs that are not here.

A :class:`Recipe` states facts, each with its source, and this module makes of them what a real graph would have been
measured for: degrees, clustering, communities, mixing, directions, labels, features, the training region. What nobody
has published is assumed: the middle of five real graphs (Epinions, ogbl-ddi, MUSAE's facebook, git and twitch-DE), in a
form that grows with the graph. Nothing is sampled here. *Knobs* are the numbers of a recipe that may be fitted to
published samples; ``gnnsample_lab.bench.suites.twins.fitting`` does that and stores them beside the statistics.

``python -m gnnsample_lab.graph.twins.recipes [name ...]`` writes ``data/twins/<name>.json``; with ``--labels`` it keeps
the edges that these files give, and fits labels and features anew.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics as standard
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.checks import real, shown
from gnnsample_lab.files import read_json
from gnnsample_lab.graph import catalogue
from gnnsample_lab.graph.twins.facts import RECIPES, Law, Recipe
from gnnsample_lab.graph.twins.families import (
    DegreeTable,
    clustering_by_degree,
    degree_table,
    table_of,
)
from gnnsample_lab.graph.twins.measure import CLIQUE_SHARE, fit, fit_classes
from gnnsample_lab.graph.twins.plan import BINS, ONE, ROLES, octave_of, role_of
from gnnsample_lab.graph.twins.statistics import FORMAT, QUANTILES, check_statistics
from gnnsample_lab.graph.twins.twin import twin_statistics
from gnnsample_lab.resources import resource_path

MEASURED = {"epinions-like": "snap:soc-Epinions1", "ddi-like": "ogbl-ddi"}
"""Twins of graphs that are at hand: their statistics are measured."""

# ---- what five real graphs have in common ------------------------------------------------------------------

SMALL_LEAST, SMALL_MOST = 24, 4096
"""Vertices of a small community on average, at least, as in the five; and how many communities at most."""
LEVEL_SPREAD = 0.12
"""Standard deviation of the communities' mean degree ranks: 0.08 to 0.18 in the five."""
JITTER = 0.1
"""How far the inside shares of communities lie about their mean."""
KNOBS = {"inside_small": 0.55, "inside_large": 0.65, "corner": 1.0, "leak": 0.0}
"""Inside shares are 0.40 to 0.71 and 0.43 to 0.87 in the five."""
CLIQUE_SMALL, CLIQUE_LARGE = 0.07, 0.04
"""How much more of the triangles than of the links lie within communities, in the five on average."""
LABEL_PAIRS = 20_000_000
"""Labels of a larger graph are fitted on a smaller one of so many links."""
_OF_FIVE = "assumed: the middle of five real graphs"


def build(
    name: str, knobs: Mapping[str, Mapping[str, Any]] | None = None, kept: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Statistics of a catalogue twin.

    Args:
        name: of a synthetic entry of the catalogue.
        knobs: ``{knob: {"value": number, "source": text}}``: values that take the place of the recipe's.
        kept: statistics whose cliques, purity and signal are taken instead of fitted anew, which takes a while.

    Raises:
        ValueError: no twin has this name, or no knob.
    """
    if name in MEASURED:
        return _measured(name)
    if name not in RECIPES:
        raise ValueError(f"name {shown(name)} is no catalogue twin: one of {', '.join(twins())}")
    recipe, entry = RECIPES[name], catalogue.entry(name)
    given = {key: {"value": value, "source": _OF_FIVE} for key, value in KNOBS.items()}
    given |= {k: {"value": v, "source": recipe.sources.get(k, "assumed")} for k, v in recipe.knobs.items()}
    known = {*given, "gini", "spread_in", "spread_out", "together", "told"}
    known |= {"clique_share", "clique_small", "clique_large"}
    for key, value in (knobs or {}).items():
        if key not in known:
            raise ValueError(f"knob {shown(key)} of {name} is none of {', '.join(sorted(known))}")
        given[key] = dict(value)
    made = _made(name, recipe, entry, given)
    if kept is not None:
        made["cliques"] = list(kept["cliques"])
        for part, key in (("labels", "purity"), ("features", "signal")):
            if made[part]:
                made[part] = {**made[part], key: kept[part][key]}
        return made
    if "told" not in given:
        return fit(made)
    bare = fit({**made, "labels": None, "features": None})
    return _with_classes({**bare, "labels": made["labels"], "features": made["features"]})


def relabelled(name: str, told: float | None = None) -> dict[str, Any]:
    """The stored statistics of a twin whose labels and features, and not its edges, are made anew from its recipe.

    Args:
        name: of a twin whose recipe has the knob ``told``.
        told: another value of it. Accuracies rise with it, by nearly as much.

    Raises:
        ValueError: no twin has this name, or its recipe not the knob.
    """
    kept = stored(name)
    if name not in RECIPES or "told" not in RECIPES[name].knobs:
        raise ValueError(f"name {shown(name)} has no knob 'told': its labels follow its homophily alone")
    knobs = _fitted_knobs(kept)
    if told is not None:
        knobs["told"] = {"value": real("told", told, 0, 1), "source": "assumed: chosen"}
    made = build(name, knobs, kept)
    parts = ("labels", "features", "training")
    owned = {k: v for k, v in made["sources"].items() if k.split(".")[0] in parts}
    knobs = {**kept["knobs"], "told": made["knobs"]["told"]}
    return _with_classes({
        **kept, **{key: made[key] for key in parts}, "sources": dict(sorted({**kept["sources"], **owned}.items())),
        "knobs": dict(sorted(knobs.items())),
    })  # fmt: skip


def _with_classes(made: Mapping[str, Any]) -> dict[str, Any]:
    return fit_classes(made, LABEL_PAIRS)


def twins() -> list[str]:
    """Names of the catalogue's twins."""
    return [name for name, entry in catalogue.entries().items() if entry["kind"] == "synthetic"]


def _made(name: str, recipe: Recipe, entry: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    knobs = {key: float(value["value"]) for key, value in given.items()}
    n, edges = int(entry["num_nodes"]), int(entry["num_edges"])
    sources = {k: v for k, v in recipe.sources.items() if k not in knobs and k != "maximum"}
    sources.setdefault("num_nodes", "published: the papers that the catalogue names")
    sources.setdefault("num_edges", sources["num_nodes"])
    mutual = max(edges - recipe.pairs, 0) if entry["directed"] else 0
    reciprocity = mutual / recipe.pairs
    if recipe.into and recipe.out:
        into, out = _with(recipe.into, knobs.get("spread_in")), _with(recipe.out, knobs.get("spread_out"))
        joint = _Joint(
            into, out, knobs.get("together", recipe.together), edges / n, reciprocity, recipe.pairs_alike
        )
        if recipe.maximum is None:
            degrees = joint.table(n, recipe.pairs)
        else:
            degrees = _table(recipe, n, knobs)
    else:
        joint, degrees = None, _table(recipe, n, knobs)
    groups = max(degrees[-1][0], 1).bit_length()
    spectrum = np.zeros(BINS)
    for place, millionths in clustering_by_degree(
        degrees, recipe.average, overall=recipe.overall, flat=recipe.flat
    ):
        spectrum[place] = millionths / 1e6
    parts = communities(n, knobs)
    share = round(ONE * knobs["clique_share"]) if "clique_share" in knobs else CLIQUE_SHARE
    made: dict[str, Any] = {
        "format": FORMAT, "name": name, "num_nodes": n, "num_edges": edges, "directed": bool(entry["directed"]),
        "degrees": degrees, "clustering": [round(float(c), 6) for c in spectrum], "clique_share": share,
        "communities": parts, "mixing": mixing(degrees, recipe.assortativity),
        "direction": None, "labels": None, "features": None, "weights": None, "training": None,
    }  # fmt: skip
    if entry["directed"]:
        assert joint is not None
        made["direction"] = joint.direction(degrees, made["mixing"], reciprocity)
    if entry["num_classes"]:
        made["labels"] = {
            "sizes": class_sizes(n, entry["num_classes"]), "homophily": recipe.homophily,
        }  # fmt: skip
        if "told" in knobs:
            made["labels"]["told"] = knobs["told"]
    if entry["num_features"]:
        made["features"] = {"count": entry["num_features"], "accuracy": recipe.accuracy}
    if entry["num_train"]:
        reads = joint.reads(groups) if recipe.train_reads and joint else None
        made["training"] = {
            "train": entry["num_train"], "valid": entry["num_valid"], "test": entry["num_test"],
            "by_community": region(parts, n, knobs["corner"], knobs["leak"]) if knobs["corner"] < 1 else None,
            "by_degree": reads or training_by_degree(degrees, entry["num_train"], recipe.train_degree),
        }  # fmt: skip
        if recipe.valid_ranked:
            made["training"]["ranked"] = True
    for key, value in given.items():
        sources[_OF_KNOB.get(key, f"communities.{key}")] = value["source"]
    sources.setdefault(
        "communities.size", f"{_OF_FIVE}: sizes that fall with their square, {SMALL_MOST} at most"
    )
    sources.setdefault(
        "communities.level", f"{_OF_FIVE}: mean ranks of degree within {LEVEL_SPREAD} of the middle"
    )
    sources.setdefault(
        "communities.cliques", f"{_OF_FIVE}: triangles lie within communities somewhat more than links"
    )
    sources.setdefault("communities.clustering", "assumed: the same in all communities")
    sources.setdefault(
        "mixing", "assumed: links meet in proportion to degrees, as far as there are pairs of vertices"
    )
    sources.setdefault("clique_share", "assumed: the same for all graphs")
    for key in ("direction", "labels", "features", "training"):
        if made[key] is None:
            for owned in [k for k in sources if k == key or k.startswith(key + ".")]:
                del sources[owned]
    made["sources"] = dict(sorted(sources.items()))
    made["knobs"] = {key: dict(value) for key, value in sorted(given.items())}
    return made


_OF_KNOB = {
    "gini": "degrees", "spread_in": "degrees.in", "spread_out": "degrees.out", "together": "degrees.together",
    "clique_share": "clique_share", "corner": "training.by_community",
    "leak": "training.leak", "told": "labels.told",
}  # fmt: skip


def _with(law: Law, spread: float | None) -> Law:
    return law if spread is None else Law(spread, law.maximum, law.none)


def _table(recipe: Recipe, n: int, knobs: Mapping[str, float]) -> DegreeTable:
    facts = {"gini": knobs["gini"]} if "gini" in knobs else dict(recipe.facts)
    assert recipe.maximum is not None
    return degree_table(
        recipe.family, n, 2 * recipe.pairs / n, recipe.maximum, total=2 * recipe.pairs, **facts
    )


def _measured(name: str) -> dict[str, Any]:
    from gnnsample_lab.graph import load

    found = twin_statistics(load(MEASURED[name]))
    sources = {**found["sources"], "clique_share": "assumed: the same for all graphs"}
    return {**found, "name": name, "sources": sources, "knobs": {}}


# ---- degrees of two directions ------------------------------------------------------------------------------


class _Joint:
    """In- and out-degrees that follow two laws and hang together, on a grid of normal scores.

    Args:
        into, out: the laws.
        together: correlation of the scores, at least; it is raised where vertices' rarer directions have too few links
            for the reciprocity.
        mean: in- and out-degree.
        reciprocity: share of linked pairs that are linked both ways.
        alike: whether these are any pairs; else a share ``mutual``, the same for all vertices, of the links of each
            vertex's rarer direction has its reverse.
    """

    _STEP, _END = 0.01, 6.5
    _MOST_MUTUAL = 0.9

    def __init__(
        self, into: Law, out: Law, together: float, mean: float, reciprocity: float, alike: bool = False
    ) -> None:
        self.alike = alike
        self._draw(into, out, together, mean, reciprocity)
        if alike or self.mutual <= self._MOST_MUTUAL:
            return
        low, high = together, 0.995
        for _ in range(10):
            middle = (low + high) / 2
            self._draw(into, out, middle, mean, reciprocity)
            low, high = (middle, high) if self.mutual > self._MOST_MUTUAL else (low, middle)
        self._draw(into, out, high, mean, reciprocity)

    def _draw(self, into: Law, out: Law, together: float, mean: float, reciprocity: float) -> None:
        z = np.arange(-self._END, self._END + self._STEP / 2, self._STEP)
        weight = np.exp(-z * z / 2)
        weight /= weight.sum()
        one = self._degrees(z, weight, into, mean)
        # The score of the other direction, given this one's, on the same grid: weights of a bivariate normal.
        left = math.sqrt(1 - together**2)
        joint = np.exp(-(((z[None, :] - together * z[:, None]) / left) ** 2) / 2)
        joint *= (weight / joint.sum(axis=1))[:, None]
        two = self._degrees(z, joint.sum(axis=0), out, mean)
        self.weight = joint.ravel()
        self.into, self.out = np.repeat(one, len(z)), np.tile(two, len(z))
        alone = self.into + self.out < 1
        self.out = np.where(alone, 1.0, self.out)  # an edge list names no vertex without links
        links = self.into + self.out
        if self.alike:
            self.degree = np.maximum(links / (1 + reciprocity), 1)
            self.both = reciprocity * self.degree
            self.share = np.clip((self.into - self.both) / np.maximum(self.degree - self.both, 1e-9), 0, 1)
            return
        rarer = np.minimum(self.into, self.out)
        wanted = reciprocity / (1 + reciprocity) * float((self.weight * links).sum())
        self.mutual = wanted / max(float((self.weight * rarer).sum()), 1e-9)
        self.both = min(self.mutual, 1.0) * rarer
        self.degree = np.maximum(links - self.both, 1)
        self.share = self.into / links

    @staticmethod
    def _degrees(z: np.ndarray, weight: np.ndarray, law: Law, mean: float) -> np.ndarray:
        """Degrees of the scores, with the mean asked for; the lowest scores have none."""
        below = np.cumsum(weight) - weight / 2
        some = below >= law.none

        def degrees(location: float) -> np.ndarray:
            raw = np.exp(np.minimum(location + law.spread * z, math.log(law.maximum)))
            return np.where(some, np.maximum(np.floor(raw), law.none > 0), 0)

        low, high = -20.0, 20.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if (weight * degrees(middle)).sum() < mean else (low, middle)
        return degrees(high)

    def table(self, n: int, pairs: int) -> DegreeTable:
        """Degrees of the skeleton; one vertex or more stands at the highest."""
        values, place = np.unique(np.rint(self.degree).astype(np.int64), return_inverse=True)
        expected = n * np.bincount(place.reshape(-1), self.weight)
        return table_of(values.tolist(), expected.tolist(), n, 2 * pairs)

    def direction(self, degrees: DegreeTable, mixed: list[list[int]], reciprocity: float) -> dict[str, Any]:
        """In-shares and roles, as :mod:`.statistics` describes them, for a table of degrees and its mixing of octaves.

        Who points to whom is left to chance: arcs between groups are in proportion to out-links times in-links.
        """
        table = np.array(degrees, dtype=np.int64)
        octaves = len(mixed)
        octave = octave_of(np.rint(self.degree).astype(np.int64))
        if self.alike:
            role = np.minimum((ROLES * self.share).astype(np.int64), ROLES - 1)
            ways = (self.share * self.degree, (1 - self.share) * self.degree)
        else:
            role = role_of(self.share)
            ways = (self.into - self.both, self.out - self.both)
        group, count = octave * ROLES + role, octaves * ROLES
        held = [
            np.bincount(group, self.weight * x, count)[:count].reshape(octaves, ROLES)
            for x in (np.ones_like(self.share), *ways, self.both)
        ]
        for o in range(1, octaves):
            # Degrees beyond those that the laws reach take the roles of the octave below.
            if held[0][o].sum() < 1e-12:
                for part in held:
                    part[o] = part[o - 1]
        vertices, into, out, mutual = held
        wanted = np.bincount(octave_of(table[:, 0]), table[:, 0] * table[:, 1], octaves)
        ends = into + out if self.alike else into + out + mutual
        factor = np.divide(wanted, ends.sum(axis=1), out=np.zeros(octaves), where=ends.sum(axis=1) > 0)[
            :, None
        ]
        into, out, mutual, ends = (
            x.ravel() * np.repeat(factor.ravel(), ROLES) for x in (into, out, mutual, ends)
        )
        towards = np.outer(out, into / max(into.sum(), 1e-9))
        one_way = towards + towards.T
        if self.alike:
            both = np.outer(ends, ends / max(ends.sum(), 1e-9))
            cells = (1 - reciprocity) * one_way + reciprocity * both
        else:
            cells = one_way + np.outer(mutual, mutual / max(mutual.sum(), 1e-9))
        blocks = cells.reshape(octaves, ROLES, octaves, ROLES)
        whole = blocks.sum(axis=(1, 3))
        blocks *= np.divide(np.array(mixed), whole, out=np.zeros_like(whole), where=whole > 0)[
            :, None, :, None
        ]
        cells = np.rint((cells + cells.T) / 2)
        share = np.divide(towards, one_way, out=np.full_like(towards, 0.5), where=one_way > 0)
        counts = np.bincount(octave_of(table[:, 0]), table[:, 1], octaves)[:, None]
        filled = np.maximum(vertices.sum(axis=1, keepdims=True), 1e-300)
        alone = {} if self.alike else {"mutual": [[round(ONE * min(self.mutual, 1.0))] * QUANTILES]}
        return {
            "reciprocity": round(ONE * reciprocity), **alone, "in_share": self._shares(group, count),
            "roles": {
                "vertices": np.rint(vertices / filled * counts).astype(np.int64).tolist(),
                "mixing": cells.astype(np.int64).tolist(),
                # Odds alone count: of a thousand links between two groups, those that point to the second.
                "towards": np.rint(1000 * share).astype(np.int64).tolist(),
            },
        }  # fmt: skip

    def _shares(self, group: np.ndarray, count: int) -> list[list[int]]:
        """Quantiles of the share of in-links, for each group."""
        at = np.linspace(0, 1, QUANTILES)
        rows: list[list[int]] = []
        for g in range(count):
            own = group == g
            if not self.weight[own].sum() > 1e-15:
                inner = 0 if self.alike else 1
                middle = round(ONE * min(max((g % ROLES - inner + 0.5) / (ROLES - 2 * inner), 0), 1))
                rows.append([middle] * QUANTILES)
                continue
            order = np.argsort(self.share[own], kind="stable")
            share, weight = self.share[own][order], self.weight[own][order]
            below = (np.cumsum(weight) - weight / 2) / weight.sum()
            rows.append(np.rint(ONE * np.interp(at, below, share)).astype(np.int64).tolist())
        return rows

    def reads(self, groups: int) -> list[int]:
        """Share of the vertices with in-neighbours, for each octave of the skeleton's degree, in 1/ONE."""
        octave = octave_of(np.rint(self.degree).astype(np.int64))
        some = np.bincount(octave, self.weight * (self.into >= 1), minlength=groups)[:groups]
        every = np.bincount(octave, self.weight, minlength=groups)[:groups]
        share = np.divide(some, every, out=np.ones(groups), where=every > 0)
        return np.rint(ONE * share).astype(np.int64).tolist()


# ---- communities --------------------------------------------------------------------------------------------


def communities(n: int, knobs: Mapping[str, float]) -> dict[str, Any]:
    """Two levels of communities of a graph of ``n`` vertices.

    Sizes of small ones fall with their square, so that every octave of sizes holds as many vertices; sizes of large
    ones fall with their rank. All numbers are spread evenly instead of drawn.
    """
    count = max(8, min(SMALL_MOST, n // SMALL_LEAST))
    size = _sizes(n, count)
    wanted = max(8, min(256, round(2 * n**0.25)))
    weight = 1 / (np.arange(wanted) + 5.0)
    room = (n * weight / weight.sum()).tolist()
    large = np.zeros(count, dtype=np.int64)
    for c, own in enumerate(size.tolist()):
        large[c] = max(range(wanted), key=room.__getitem__)
        room[large[c]] -= own
    normal = standard.NormalDist(0.5, LEVEL_SPREAD)
    level = np.array([normal.inv_cdf(u) for u in _even(count, 0.6180339887498949)])
    level += 0.5 - float((level * size).sum()) / n
    within = max(1 / 12 - float((size * (level - 0.5) ** 2).sum()) / n, 0.01)
    inside = _about(knobs["inside_small"], _even(count, 0.7548776662466927))
    inside_large = _about(knobs["inside_large"], _even(wanted, 0.5698402909980532))
    # Cliques lie within communities as links do, and somewhat more: open cliques would leave no links for the shares.
    clique_small = min(knobs["inside_small"] + CLIQUE_SMALL, 0.98)
    clique_either = min(max(knobs["inside_large"] + CLIQUE_LARGE, clique_small), 0.995)
    clique_large = (clique_either - clique_small) / (1 - clique_small)
    clique_small, clique_large = (
        knobs.get("clique_small", clique_small),
        knobs.get("clique_large", clique_large),
    )
    return {
        "size": size.tolist(), "large": large.tolist(),
        "level": np.rint(ONE * np.clip(level, 0.02, 0.98)).astype(np.int64).tolist(),
        "inside": np.rint(ONE * inside).astype(np.int64).tolist(), "clustering": [ONE] * count,
        "spread": round(ONE * math.sqrt(12 * within)),
        "inside_large": np.rint(ONE * inside_large).astype(np.int64).tolist(),
        "clique_small": round(ONE * clique_small), "clique_large": round(ONE * clique_large),
    }  # fmt: skip


def _even(count: int, ratio: float) -> np.ndarray:
    return (np.arange(1, count + 1) * ratio) % 1.0 * 0.998 + 0.001


def _about(mean: float, u: np.ndarray) -> np.ndarray:
    width = min(JITTER, mean, 1 - mean)
    return mean + width * (2 * u - 1)


def _sizes(n: int, count: int) -> np.ndarray:
    """int64[count], falling, sum ``n``: every octave between the smallest and the largest holds as many vertices."""
    largest = max(n / 40, 2.0 * n / count)
    low, high = 1e-6, n / count
    u = (np.arange(count) + 0.5) / count
    for _ in range(80):
        least = (low + high) / 2
        size = 1 / (1 / least - u * (1 / least - 1 / largest))
        low, high = (least, high) if size.sum() < n else (low, least)
    whole = np.maximum(np.rint(size[::-1]), 2).astype(np.int64)
    off, place = n - int(whole.sum()), 0
    while off:
        # What rounding left over is put, or taken, at the largest ones.
        step = max(-1, min(1, off)) * max(1, abs(off) // count)
        whole[place % count] += step
        off -= step
        place += 1
    return np.sort(whole)[::-1].copy()


def region(parts: Mapping[str, Any], n: int, corner: float, leak: float) -> list[int]:
    """How likely a vertex of each small community trains, in 1/ONE, where training vertices lie in a corner.

    The corner is whole communities, from the largest large one on, up to a share ``corner`` of the vertices; a share
    ``leak`` of the training vertices lies elsewhere.
    """
    size, large = np.array(parts["size"]), np.array(parts["large"])
    chosen = np.zeros(len(size), dtype=bool)
    held = 0
    for c in np.lexsort((size, large)).tolist():
        if held + size[c] <= corner * n:
            chosen[c] = True
            held += int(size[c])
        elif held > 0.9 * corner * n:
            break
    outside = leak / max(1 - leak, 1e-9) * held / max(n - held, 1)
    chance: list[int] = np.where(chosen, ONE, max(round(ONE * outside), int(leak > 0))).tolist()
    return chance


# ---- mixing, classes, training ------------------------------------------------------------------------------


def mixing(degrees: Sequence[Sequence[int]], assortativity: float | None = None) -> list[list[int]]:
    """Edge ends by the octaves of both degrees where links meet in proportion to degrees, and no pair twice.

    Args:
        degrees: table of degrees.
        assortativity: Pearson's correlation of the degrees at both ends to reach; None for what comes by itself.
    """
    table = np.array(degrees, dtype=np.int64)
    groups = max(int(table[-1, 0]), 1).bit_length()
    octave = octave_of(table[:, 0])
    ends = np.bincount(octave, table[:, 0] * table[:, 1], groups)
    mean = np.bincount(octave, table[:, 0] ** 2.0 * table[:, 1], groups) / np.maximum(ends, 1)
    total = ends.sum()
    # Pairs of distinct degrees, at most one link each: expected links of a pair are 1 - exp(-product / total).
    d, count = table[:, 0].astype(np.float64), table[:, 1].astype(np.float64)
    pairs = -np.expm1(-np.outer(d, d) / total) * np.outer(count, count)
    of = np.zeros((groups, len(d)))
    of[octave, np.arange(len(d))] = 1
    neutral = of @ pairs @ of.T
    score = np.log2(np.maximum(mean, 1))
    score = score - (score * ends).sum() / total

    def tilted(strength: float) -> np.ndarray:
        cells = neutral * np.exp(-strength * (score[:, None] - score) ** 2)
        for _ in range(400):
            scale = np.sqrt(np.divide(ends, cells.sum(axis=1), out=np.zeros(groups), where=ends > 0))
            cells = cells * scale * scale[:, None]
        return cells

    def correlation(cells: np.ndarray) -> float:
        share = cells / cells.sum()
        edge = share.sum(axis=1)
        middle = float((edge * mean).sum())
        # Within an octave degrees spread too; their variance is of the whole table.
        variance = float((d**3 * count).sum() / total) - middle**2
        return float(mean @ share @ mean - middle**2) / variance

    cells = tilted(0.0)
    if assortativity is not None:
        low, high = -0.3, 0.6
        for _ in range(40):
            strength = (low + high) / 2
            cells = tilted(strength)
            low, high = (strength, high) if correlation(cells) < assortativity else (low, strength)
    found: list[list[int]] = np.rint(cells).astype(np.int64).tolist()
    for i, j in itertools.combinations(range(groups), 2):
        found[j][i] = found[i][j]
    return found


def class_sizes(n: int, count: int) -> list[int]:
    """Sizes of classes, a few large ones and many small ones: they fall with their rank."""
    weight = 1 / (np.arange(count) + 2.0)
    sizes = np.floor(n * weight / weight.sum()).astype(np.int64)
    sizes[0] += n - int(sizes.sum())
    found: list[int] = sizes.tolist()
    return found


def training_by_degree(degrees: Sequence[Sequence[int]], train: int, ratio: float | None) -> list[int] | None:
    """Chances by octave, in 1/ONE, a power of the degree: training vertices have ``ratio`` times the mean degree."""
    if ratio is None:
        return None
    table = np.array(degrees, dtype=np.int64)
    octave = octave_of(table[:, 0])
    groups = int(octave.max()) + 1
    count = np.bincount(octave, table[:, 1], groups)
    ends = np.bincount(octave, table[:, 0] * table[:, 1], groups)
    mean = np.divide(ends, count, out=np.ones(groups), where=count > 0)

    def chances(power: float) -> np.ndarray:
        return np.maximum((np.maximum(mean, 1) / mean.max()) ** power, 1 / ONE)

    def reached(power: float) -> float:
        chance = chances(power)
        low, high = 0.0, ONE * 1.0
        for _ in range(60):  # Those with the highest chances are all taken, the rest in proportion.
            middle = (low + high) / 2
            low, high = (
                (middle, high) if (count * np.minimum(middle * chance, 1)).sum() < train else (low, middle)
            )
        taken = count * np.minimum(high * chance, 1)
        return float((taken * mean).sum() / taken.sum() / (ends.sum() / count.sum()))

    low, high = 0.0, 3.0
    for _ in range(50):
        power = (low + high) / 2
        low, high = (power, high) if reached(power) < ratio else (low, power)
    found: list[int] = np.rint(ONE * chances(high)).astype(np.int64).tolist()
    return found


# ---- files --------------------------------------------------------------------------------------------------


def stored(name: str) -> dict[str, Any]:
    """The stored statistics of a catalogue twin.

    Raises:
        ValueError: no twin has this name, or its file is no statistics.
        FileNotFoundError: the package was installed without its data.
    """
    if name not in twins():
        raise ValueError(f"name {shown(name)} is no catalogue twin: one of {', '.join(twins())}")
    return check_statistics(read_json(resource_path(f"data/twins/{name}.json")))


def write(name: str, statistics: Mapping[str, Any]) -> Path:
    """Write the statistics of a twin where :func:`stored` finds them."""
    path = resource_path("data/catalogue.json").parent / "twins" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(check_statistics(statistics), separators=(",", ":"), ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def rebuilt(name: str) -> dict[str, Any]:
    """The statistics that the recipe gives with the knobs that are stored, where any were fitted."""
    try:
        fitted = _fitted_knobs(stored(name))
    except (FileNotFoundError, ValueError):
        fitted = {}
    return build(name, fitted)


def _fitted_knobs(kept: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in kept.get("knobs", {}).items() if v["source"].startswith("fitted to ")}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write ``data/twins``; graphs that are measured are read from the data root."""
    parser = argparse.ArgumentParser(prog="recipes", description=main.__doc__)
    parser.add_argument("names", nargs="*", help="twins; all by default")
    parser.add_argument("--labels", action="store_true", help="keep the edges: fit labels and features anew")
    given = parser.parse_args(arguments)
    for name in given.names or twins():
        path = write(name, relabelled(name) if given.labels else rebuilt(name))
        print(f"{path}: {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
