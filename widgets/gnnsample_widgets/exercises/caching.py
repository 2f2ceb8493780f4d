"""Exercises of notebook 06: what a policy caches, what it is worth, and how alike two epochs are."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.readable import percent

from ..lesson.feedback import Feedback, exercise, is_nothing, right, wrong
from .start import EDGES, small_graph
from .trying import ids_agree, results_of, tried

OUT_DEGREE = (1, 5, 9, 2, 3)
VISITS = (6, 1, 0, 3, 0)
"""Out-degree and reads in one epoch of vertices 0 to 4; the cache has room for two."""


def _upstream(graph: Any, train: Any, hops: int) -> set[int]:
    """All vertices that can reach one of ``train`` in at most so many hops, these included."""
    reached = np.zeros(graph.num_nodes, dtype=bool)
    reached[np.asarray(train, dtype=np.int64)] = True
    ends = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    for _ in range(hops):
        reached[graph.indices[reached[ends]]] = True
    return set(np.flatnonzero(reached).tolist())


def _downstream(graph: Any, train: Any, hops: int) -> set[int]:
    reached = np.zeros(graph.num_nodes, dtype=bool)
    reached[np.asarray(train, dtype=np.int64)] = True
    ends = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    for _ in range(hops):
        reached[ends[reached[graph.indices]]] = True
    return set(np.flatnonzero(reached).tolist())


@exercise(
    "Write a function of a graph, training vertices and hops that returns vertices; give me the function."
)
def ever_read(answer: Any, graph: Any = None) -> Feedback:
    """A function (graph, train, hops) -> the vertices whose features can be read; tried on ``EDGES`` and on
    ``graph``."""
    small = small_graph()
    cases: list[Any] = [
        (f"For the edges {EDGES}, training vertices {train}, {hops} hops", (small, np.array(train), hops))
        for train, hops in (([1], 2), ([0], 1), ([0], 2), ([2, 1], 0))
    ]
    if graph is not None:
        host = graph.to("cpu", features=False)
        train = np.argsort(np.asarray(host.in_degrees()), kind="stable")[len(host.indptr) // 2 :][:3]
        cases.append((f"For {host.title}, training vertices {train.tolist()}, 2 hops", (host, train, 2)))
    return tried(
        answer,
        "ever_read",
        cases,
        _upstream,
        [
            (
                lambda g, t, h: _upstream(g, t, h) - set(np.asarray(t).tolist()),
                "the seeds' own features are read as well.",
            ),
            (
                _downstream,
                "that goes along the edges. Messages come to the seed, so sampling goes against them.",
            ),
            (
                lambda g, t, h: set(range(g.num_nodes)),
                "those are all vertices. Walk edges backwards from the seeds.",
            ),
            (
                lambda g, t, h: _upstream(g, t, 1),
                "that is one hop. Go on from there, as often as there are hops.",
            ),
            (lambda g, t, h: _upstream(g, t, h + 1), "that is a hop too many."),
        ],
        "What counts is who lies upstream of the training vertices: a hub that is not is never read. A sampler "
        "that takes every neighbour (fanout -1) finds the same.",
        ids_agree,
    )


def _hits(score: Any, visits: Any, rows: int, key: Any = None) -> float:
    order = np.argsort(-np.asarray(score if key is None else key, dtype=float), kind="stable")[:rows]
    return float(np.asarray(visits)[order].sum() / np.asarray(visits).sum())


@exercise("Write a function of score, visits and rows that returns a share, and give me the function.")
def degree_hit_rate(answer: Any, read: Any = None) -> Feedback:
    """A function (score, visits, rows) -> hit rate of a cache of the ``rows`` vertices of highest score; tried on
    OUT_DEGREE with VISITS and on the footprint ``read``."""
    toy = np.array(OUT_DEGREE), np.array(VISITS)
    cases: list[Any] = [
        (f"For scores {OUT_DEGREE}, visits {VISITS}, {rows} rows", (*toy, rows)) for rows in (2, 3, 0)
    ]
    if read is not None:
        score = np.random.default_rng(0).permutation(len(read.visits))
        for share in (0.1, 0.3):
            rows = round(share * len(score))
            cases.append(
                (f"For the footprint above, random scores, {rows:,} rows", (score, read.visits, rows))
            )
    return tried(
        answer,
        "degree_hit_rate",
        cases,
        _hits,
        [
            (
                lambda s, v, r: _hits(s, v, r, key=v),
                "that is the optimal policy, which knows the visits. The cache holds those of the highest score.",
            ),
            (lambda s, v, r: r / len(v), "that is the cache ratio. A hit rate counts reads."),
            (
                lambda s, v, r: _hits(s, s, r),
                "that is the cached share of the score. A hit rate counts reads.",
            ),
            (lambda s, v, r: _hits(s, v > 0, r), "a vertex that is read six times counts six times."),
            (lambda s, v, r: _hits(s, v, r, key=-s), "the highest score is cached first, not the lowest."),
            (lambda s, v, r: 1 - _hits(s, v, r), "that is the share of misses."),
            (
                lambda s, v, r: _hits(s, v, r) * v.sum(),
                "that is the number of hits. Which share of the reads is it?",
            ),
        ],
        "With the out-degree as the score, the toy cache hits one read in ten: Random would do better on average, "
        "0.4. The same three lines are lab.hit_rate.",
    )


@exercise("Put the explorer in place of the dots, once it stands where you want it.")
def half_of_the_reads(answer: Any) -> Feedback:
    """The CacheExplorer at the smallest cache ratio that it offers where the best possible cache serves half
    the reads."""
    state, made = results_of(answer, "CacheExplorer")
    rates = made["rates"][made["hotness"]["optimal"].label]
    offered = sorted(int(ratio) for ratio in answer.controls["ratio_percent"].options)
    enough = [ratio for ratio in offered if rates[ratio] >= 0.5]
    at = state["ratio_percent"]
    if at == enough[0]:
        smaller = "No policy can do it with the next smaller cache; " if at > offered[0] else ""
        return right(
            f"{at} % of the rows serve {percent(rates[at])} of the reads, so that half of the bytes need not "
            f"travel. {smaller}Degree serves "
            f"{percent(made['rates'][made['hotness']['degree'].label][at])} with this one."
        )
    if rates[at] >= 0.5:
        return wrong(
            f"{at} % serve {percent(rates[at])} at best, and half is asked for. A smaller cache will do."
        )
    return wrong(f"At best {at} % serve {percent(rates[at])} of the reads: too few, whatever the policy.")


_SIMILARITY_CASES: tuple[tuple[list[int], list[int], float], ...] = (
    ([9, 1, 0, 5, 2, 0, 0, 0], [7, 0, 1, 6, 3, 0, 0, 0], 0.5),
    ([4, 0, 3, 0, 1, 2, 0, 0], [0, 4, 2, 0, 0, 3, 1, 0], 0.5),
    ([2, 8, 0, 0, 0, 0, 1, 3], [8, 2, 0, 0, 0, 0, 3, 1], 0.25),
    ([5, 4, 3, 2, 1, 0, 0, 0], [5, 4, 3, 2, 1, 0, 0, 0], 0.6),
)


def _top(f: np.ndarray, top: float, *, of_all: bool = False) -> np.ndarray:
    """The share ``top`` of the accessed vertices, most visited first."""
    k = max(1, round(top * (len(f) if of_all else np.count_nonzero(f))))
    return np.argsort(-f, kind="stable")[:k]


def _similarity(
    f_i: np.ndarray,
    f_j: np.ndarray,
    top: float,
    *,
    both: bool = True,
    smaller: bool = True,
    of_all: bool = False,
) -> float:
    t_i, t_j = _top(f_i, top, of_all=of_all), _top(f_j, top, of_all=of_all)
    shared = np.intersect1d(t_i, t_j) if both else t_i
    least = np.minimum(f_i, f_j) if smaller else f_i
    return float(least[shared].sum() / f_i[t_i].sum())


def _over_all(f_i: np.ndarray, f_j: np.ndarray, top: float) -> float:
    shared = np.intersect1d(_top(f_i, top), _top(f_j, top))
    return float(np.minimum(f_i, f_j)[shared].sum() / f_i.sum())


@exercise("Write a function of f_i, f_j and top that returns one number, and give me the function.")
def similarity(answer: Any) -> Feedback:
    """A function (f_i, f_j, top) -> GNNLab's similarity of epoch i to epoch j; f are NumPy arrays of visits."""
    if not callable(answer):
        return wrong("Give the function itself, without calling it: exercises.similarity(my_function).")
    for one, two, top in _SIMILARITY_CASES:
        f_i, f_j = np.array(one), np.array(two)
        returned = answer(f_i.copy(), f_j.copy(), top)
        if is_nothing(returned):
            return Feedback("blank", "The function returns nothing yet.")
        given, expected = float(returned), _similarity(f_i, f_j, top)
        if abs(given - expected) < 1e-9:
            continue
        case = f"For {one}, {two} and top={top} your function gives {given:.3g}"
        if abs(given - _similarity(f_i, f_j, top, smaller=False)) < 1e-9:
            return wrong(
                f"{case}: it counts shared vertices in full. A vertex counts with the smaller of its visits."
            )
        if abs(given - _similarity(f_i, f_j, top, both=False)) < 1e-9:
            return wrong(
                f"{case}: only vertices that are among the hottest in both epochs count above the line."
            )
        if abs(given - _over_all(f_i, f_j, top)) < 1e-9:
            return wrong(
                f"{case}: below the line stand the visits of epoch i's hottest vertices, not all visits."
            )
        if abs(given - _similarity(f_i, f_j, top, of_all=True)) < 1e-9:
            return wrong(
                f"{case}: top is a share of the vertices that the epoch accessed, not of all vertices."
            )
        return wrong(f"{case}, and {expected:.3g} is right.")
    return right(
        "It is not symmetric: epoch i is the yardstick. On the paper's graphs it lies between 64 and 91 %, and "
        "that is why one epoch tells what the next ones read."
    )
