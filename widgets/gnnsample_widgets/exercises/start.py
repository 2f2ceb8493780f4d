"""Exercises of notebook 00: neighbours, what a sample depends on, blocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import gnnsample_lab as lab

from ..lesson.feedback import Feedback, exercise, right, wrong
from .trying import ids_agree, results_of, tried

EDGES = ((0, 2), (1, 2), (3, 2), (2, 0), (3, 1))
"""Edges (source, destination) of a small graph."""


def small_graph() -> Any:
    """The graph of ``EDGES``."""
    return lab.Graph.from_edges(*zip(*EDGES, strict=True), name="five edges")


def _sources(graph: Any, v: int) -> Any:
    return graph.indices[graph.indptr[v] : graph.indptr[v + 1]]


def _targets(graph: Any, v: int) -> Any:
    ends = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return ends[graph.indices == v]


def _some_vertices(graph: Any) -> list[int]:
    """A vertex of few neighbours, one of a middling number, one of many."""
    order = np.argsort(np.asarray(graph.in_degrees()), kind="stable")
    return [int(order[len(order) * part // 100]) for part in (5, 50, 99)]


@exercise("Write a function of a graph and a vertex that returns vertices, and give me the function.")
def in_neighbours(answer: Any, graph: Any = None) -> Feedback:
    """A function (graph, v) -> the vertices that a sampler may pick for v; tried on ``EDGES`` and on ``graph``."""
    small = small_graph()
    cases = [(f"For vertex {v} of the edges {EDGES}", (small, v)) for v in (2, 1, 0, 3)]
    if graph is not None:
        host = graph.to("cpu", features=False)
        cases += [(f"For vertex {v:,} of {host.title}", (host, v)) for v in _some_vertices(host)]
    return tried(
        answer,
        "in_neighbours",
        cases,
        lambda g, v: set(_sources(g, v).tolist()),
        [
            (
                lambda g, v: set(_targets(g, v).tolist()),
                "that is where the edges of the vertex lead to. A vertex gathers what flows in.",
            ),
            (
                lambda g, v: {*_sources(g, v).tolist(), *_targets(g, v).tolist()},
                "those are all vertices that share an edge with it. Only those whose edge ends at it count.",
            ),
            (
                lambda g, v: {*_sources(g, v).tolist(), v},
                "a vertex is not its own neighbour unless there is a self-loop.",
            ),
        ],
        "Messages flow along the edges, so a vertex gathers from the sources of the edges that end at it: the "
        "slice of indices that indptr marks.",
        ids_agree,
    )


_ALTERED: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1},
    "strategy": {"strategy": "persistent"},
    "batch_id": {"batch_id": 1},
    "fanouts": {"fanouts": [4, 3]},
    "pick": {"pick": "reservoir"},
    "replace": {"replace": True},
    "trace": {"trace": True},
}
"""The arguments of the question, each with another value than the sampler's own."""
_DECISIVE = {
    "seed": "The seed is the key of the random generator: another seed, other picks.",
    "batch_id": "The batch id is part of the generator's counter, so that no two batches of a training "
    "run share their draws.",
    "fanouts": "The fanouts say how many neighbours are picked.",
    "pick": "Floyd's rule and the reservoir turn the same random numbers into different picks.",
    "replace": "With replacement a neighbour may come twice.",
}


def _drawn(graph: Any, fanouts: Any = (5, 3), batch_id: int = 0, **options: Any) -> Any:
    given: dict[str, Any] = {"seed": 0, "pick": "floyd", "device": "cpu", **options}
    seeds = np.argsort(-np.asarray(graph.in_degrees()), kind="stable")[:16]
    return lab.NeighborSampler(graph, list(fanouts), **given).sample(seeds, batch_id=batch_id).canonical()


@exercise('Give a set of argument names, such as {"seed", "pick"}.')
def same_sample(answer: Any, graph: Any = None) -> Feedback:
    """Which of the arguments in ``_ALTERED`` may change without changing the sample? Drawn on ``graph``."""
    given = {answer} if isinstance(answer, str) else {str(name) for name in answer}
    unknown = given - set(_ALTERED)
    if unknown:
        return wrong(f"{', '.join(sorted(unknown))} is not among the seven names of the question.")
    if graph is None:
        edges = np.divmod(np.arange(40 * 40), 40)
        graph = lab.Graph.from_edges(*edges, name="everybody with everybody")
    host = graph.to("cpu", features=False)
    first = _drawn(host)
    neutral = {name for name, altered in _ALTERED.items() if _drawn(host, **altered) == first}
    harmful = sorted(given - neutral)
    if harmful:
        return wrong(_DECISIVE[harmful[0]])
    if given != neutral:
        return wrong("There is one more. Which arguments say only who computes, or what is written down?")
    return right(
        "A strategy decides how a sample is computed, a trace writes down how it was; neither touches it."
    )


BLOCK = {"dst": (7, 3), "src": (7, 3, 9, 1), "indptr": (0, 2, 3), "indices": (2, 1, 3)}
"""A small block: global ids in dst and src, local ids in indices."""


def _row(block: Any, v: int) -> Any:
    (at,) = np.flatnonzero(np.asarray(block.dst) == v)
    return block.indices[block.indptr[at] : block.indptr[at + 1]]


def _other_row(block: Any, v: int) -> Any:
    (at,) = np.flatnonzero(np.asarray(block.dst) == v)
    other = (at + 1) % len(block.dst)
    return block.src[block.indices[block.indptr[other] : block.indptr[other + 1]]]


@exercise("Write a function of a block and a vertex that returns vertices, and give me the function.")
def block_sources(answer: Any, batch: Any = None) -> Feedback:
    """A function (block, v) -> the global ids picked for destination v; tried on ``BLOCK`` and on ``batch``."""
    toy = SimpleNamespace(**{name: np.array(ids) for name, ids in BLOCK.items()})
    cases: list[Any] = [(f"For vertex {v} of the block with {BLOCK}", (toy, v)) for v in BLOCK["dst"]]
    if batch is not None:
        for number, block in enumerate(batch.to_cpu().blocks):
            counts = np.diff(block.indptr)
            v = int(block.dst[int(counts.argmax())])
            cases.append((f"For vertex {v:,} of block {number} of the batch", (block, v)))
    return tried(
        answer,
        "block_sources",
        cases,
        lambda block, v: {int(u) for u in block.src[_row(block, v)]},
        [
            (
                lambda block, v: {int(u) for u in _row(block, v)},
                "those are local ids, positions in src. Which vertices stand at those positions?",
            ),
            (
                lambda block, v: {int(u) for u in _other_row(block, v)},
                "that is the row of another vertex. Where does the vertex stand in dst?",
            ),
        ],
        "Its position in dst names the row, indptr the row's place in indices, and src turns what stands there "
        "into vertices of the graph.",
        ids_agree,
    )


@exercise("Put the explorer in place of the dots, once it stands where you want it.")
def every_neighbour(answer: Any) -> Feedback:
    """The SampleExplorer in a state where the seed vertex has three neighbours or more, and hop 1 picks them all."""
    state, made = results_of(answer, "SampleExplorer")
    graph, v = answer.host_graph, state["seed_vertex"]
    there, picked = (
        set(_sources(graph, v).tolist()),
        {int(u) for u in made["batch"].to_cpu().picks[0].neighbors},
    )
    if len(there) < 3:
        return wrong(
            f"Vertex {v:,} has {len(there)} neighbours. Find one with three at least: g.in_degrees()."
        )
    if picked == there and (state["replace"] or state["fanout_1"] < len(_sources(graph, v))):
        return right(
            f"Vertex {v:,} has {len(there)} neighbours and hop 1 picks all of them, but by luck: another random seed "
            "may leave some out. What leaves nothing to chance is a fanout no smaller than the degree, without "
            "replacement."
        )
    if picked == there:
        return right(
            f"Vertex {v:,} has {len(there)} neighbours and hop 1 picks all of them: where the fanout is no smaller "
            "than the degree, nothing is left to chance, whatever the random seed."
        )
    if state["replace"] and state["fanout_1"] >= len(there):
        return wrong("With replacement some come twice, and others not at all.")
    return wrong(
        f"Vertex {v:,} has {len(there)} neighbours, and hop 1 picks {len(picked)} of them. Which fanout would do, "
        "and how many neighbours may a vertex have then? The fanout has a limit; g.in_degrees() lists all degrees."
    )
