"""Exercises of notebook 10: what travels for one list, what chance cuts, and which lists to copy."""

from __future__ import annotations

from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab.readable import percent

from ..lesson.feedback import Feedback, exercise, is_nothing, right, whole, wrong
from .start import EDGES, small_graph
from .trying import tried

ID_BYTES = 4
"""Bytes of an id and of a length."""


def _degree_cases(graph: Any) -> list[Any]:
    """Lists that lie elsewhere: one by hand, a few, and some of ``graph``'s."""
    cases: list[Any] = [
        ("For one vertex of 40 in-neighbours, fanout 10", (np.array([40]), 10)),
        ("For vertices of 3, 10 and 200 in-neighbours, fanout 10", (np.array([3, 10, 200]), 10)),
    ]
    if graph is not None:
        degrees = np.asarray(graph.to("cpu", features=False).in_degrees()).astype(np.int64)
        some = degrees[np.random.default_rng(0).integers(len(degrees), size=100)]
        cases.append((f"For 100 vertices of {graph.title}, fanout 5", (some, 5)))
    return cases


def _pulled(degrees: Any, fanout: int) -> int:
    return int(ID_BYTES * (2 * len(degrees) + np.sum(degrees)))


def _pushed(degrees: Any, fanout: int) -> int:
    return int(ID_BYTES * (2 * len(degrees) + np.minimum(degrees, fanout).sum()))


@exercise("Write a function of degrees and fanout that returns bytes, and give me the function.")
def pulled_bytes(answer: Any, graph: Any = None) -> Feedback:
    """A function (degrees, fanout) -> bytes both ways by pull: requests, lengths, lists; ids and lengths of 4
    bytes."""
    return tried(
        answer,
        "pulled_bytes",
        _degree_cases(graph),
        _pulled,
        [
            (
                lambda d, f: 4 * d.sum(),
                "those are the lists. Somebody had to ask for them, and to say how long they are.",
            ),
            (
                lambda d, f: 4 * (len(d) + d.sum()),
                "something is missing: the id goes there, the length and the list come back.",
            ),
            (_pushed, "that is csp. With pull the rank that asks draws, so it needs whole lists."),
            (lambda d, f: _pulled(d, f) / 4, "those are numbers. Each takes four bytes."),
            (lambda d, f: 4 * np.minimum(d, f).sum(), "those are the picks. Who draws them, and from what?"),
        ],
        "4 for the id, 4 for the length, 4 for every neighbour: of 40 neighbours 30 are thrown away. The fanout "
        "does not matter at all.",
    )


@exercise("Write a function of degrees and fanout that returns bytes, and give me the function.")
def pushed_bytes(answer: Any, graph: Any = None) -> Feedback:
    """The same by csp: requests, lengths, picks."""
    factor = ""
    if graph is not None:
        degrees, fanout = _degree_cases(graph)[-1][1]
        times = _pulled(degrees, fanout) / _pushed(degrees, fanout)
        factor = f" On {graph.title}, lists move {times:.1f} times as much."
    return tried(
        answer,
        "pushed_bytes",
        _degree_cases(graph),
        _pushed,
        [
            (
                lambda d, f: 4 * np.minimum(d, f).sum(),
                "those are the picks alone, the ideal. Somebody had to ask for them.",
            ),
            (
                lambda d, f: 4 * (len(d) + np.minimum(d, f).sum()),
                "the asker also needs the length of the list, to repeat the draw.",
            ),
            (_pulled, "that is pull. With csp the owner draws, and only what it picked comes back."),
            (
                lambda d, f: 4 * (2 * len(d) + 2 * np.minimum(d, f).sum()),
                "the places of the picks need not be sent: draws are keyed, so the asker can repeat them.",
            ),
            (
                lambda d, f: 4 * (2 * len(d) + f * len(d)),
                "a list that is shorter than the fanout has no more to give.",
            ),
        ],
        "4 for the id, 4 for the length, 4 for each pick. With a degree of the fanout or less, csp and pull move "
        "the same." + factor,
    )


def _cut(graph: Any, owner: Any) -> float:
    ends = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return float((owner[graph.indices] != owner[ends]).mean())


@exercise("Write a function of a graph and owner that returns a share, and give me the function.")
def random_cut(answer: Any, graph: Any = None) -> Feedback:
    """A function (graph, owner) -> the share of the edges that are cut; tried on ``EDGES`` and, dealt out at random, on
    ``graph``."""
    small = small_graph()
    owners = ([0, 0, 1, 1], [0, 1, 2, 3], [0, 0, 0, 0])
    cases: list[Any] = [
        (f"For the edges {EDGES}, owners {owner}", (small, np.array(owner))) for owner in owners
    ]
    found = ""
    if graph is not None:
        host = graph.to("cpu", features=False)
        dealt = np.random.default_rng(0).integers(4, size=host.num_nodes)
        cases.append((f"For {host.title}, dealt to 4 parts at random", (host, dealt)))
        found = f" Here {percent(_cut(host, dealt), 1)} are."
    return tried(
        answer,
        "random_cut",
        cases,
        _cut,
        [
            (lambda g, o: 1 - _cut(g, o), "that is the share of the edges that stay inside a part."),
            (lambda g, o: _cut(g, o) * g.num_edges, "that is a number of edges. Which share of all is it?"),
            (
                lambda g, o: 1 - float((np.bincount(o) / len(o)) @ (np.bincount(o) / len(o))),
                "that is what chance would cut with parts of these sizes. Count the edges.",
            ),
        ],
        "Dealt to four parts at random, the other end lies in the same part with probability 1/4, so that three "
        f"edges of four are cut, whatever the graph.{found} With 8 parts it is 7/8.",
    )


def _chosen(score: np.ndarray, degree: np.ndarray, budget: int) -> list[int]:
    """Lists from the highest score down; one that no longer fits is passed over."""
    taken, room = [], budget
    for v in np.argsort(-score, kind="stable").tolist():
        if 0 < ID_BYTES * degree[v] <= room:
            taken.append(v)
            room -= int(ID_BYTES * degree[v])
    return taken


@exercise(
    "Write a function of visits, degree, fanout and budget that returns vertices, and give me the function."
)
def list_score(answer: Any, graph: Any = None) -> Feedback:
    """A function (visits, degree, fanout, budget) -> vertices whose lists are copied within ``budget`` bytes, so that
    most reads are saved; as good as the library's choice, by hand and with the degrees of ``graph``."""
    if not callable(answer):
        return wrong("Give the function itself, without calling it: exercises.list_score(my_function).")
    cases: list[Any] = [
        ("For visits [1, 3, 2, 9], degrees [100, 60, 10, 10]", [1, 3, 2, 9], [100, 60, 10, 10], 10, 400),
        (
            "For visits [10, 9, 8, 8, 7], degrees [90, 2, 8, 40, 40]",
            [10, 9, 8, 8, 7],
            [90, 2, 8, 40, 40],
            10,
            392,
        ),
        ("For visits [10, 10, 10], degrees [5, 50, 500]", [10, 10, 10], [5, 50, 500], 10, 2_020),
    ]
    if graph is not None:
        degrees = np.asarray(graph.to("cpu", features=False).in_degrees()).astype(np.int64)[:5_000]
        drawn = np.random.default_rng(0).poisson(0.3 + 0.02 * np.sqrt(degrees))
        cases.append((f"For lists of {graph.title}", drawn, degrees, 10, int(ID_BYTES * degrees.sum() // 10)))
    for case, visits, degree, fanout, budget in cases:
        v, d = np.asarray(visits), np.asarray(degree)
        returned = answer(v.copy(), d.copy(), fanout, budget)
        if is_nothing(returned):
            return Feedback("blank", "The function returns nothing yet.")
        given = [whole(u) for u in returned]
        if len(set(given)) < len(given):
            return wrong(f"{case}: a list is there twice.")
        cost = int(ID_BYTES * d[given].sum())
        if cost > budget:
            return wrong(f"{case}: your lists take {cost:,} bytes, and there is room for {budget:,}.")
        reads = v * np.minimum(d, fanout)
        best = lab.distributed.hottest_lists(v, d, fanout, budget).ids
        if reads[given].sum() >= reads[best].sum() * 0.999:
            continue
        yours, others = int(reads[given].sum()), int(reads[best].sum())
        said = f"{case}: your lists save {yours:,} reads, others would save {others:,}"
        for score, hint in (
            (reads, "You take what saves most reads. What does the copy cost?"),
            (d, "The longest lists are the dearest, and a visit reads no more than the fanout of one."),
            (v, "A visit to a long list saves as much as one to a short one only up to the fanout."),
        ):
            if sorted(given) == sorted(_chosen(np.asarray(score, dtype=float), d, budget)):
                return wrong(f"{said}. {hint}")
        return wrong(f"{said}. What does a byte of each list save?")
    return right(
        "Reads saved over bytes, and what no longer fits is passed over: the greedy rule for a knapsack. It takes "
        "short lists of often visited vertices before the hubs that a ranking by degree would copy."
    )
