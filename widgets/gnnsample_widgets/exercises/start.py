"""Exercises of notebook 00: edges, samples, blocks."""

from __future__ import annotations

from typing import Any

from ..feedback import Feedback, as_ids, exercise, listed, right, wrong

EDGES = ((0, 2), (1, 2), (3, 2), (2, 0), (3, 1))
"""Edges (source, destination) of the small graph of notebook 00."""


@exercise("Give a set of vertices, such as {4, 5}: those that a sampler may pick for vertex 2.")
def in_neighbours(answer: Any) -> Feedback:
    """Which vertices may be picked for vertex 2 of the graph with the edges ``EDGES``?"""
    given = as_ids(answer)
    sources = {u for u, v in EDGES if v == 2}
    targets = {v for u, v in EDGES if u == 2}
    if given == sources:
        return right(
            "Messages flow along the edges, so vertex 2 gathers from the sources of its incoming "
            "edges: 0, 1 and 3."
        )
    if given == targets:
        return wrong(
            f"{listed(targets)} is where the edges of vertex 2 lead to. A vertex gathers what flows in: "
            f"look at the edges "
            "that end at 2."
        )
    if given == sources | targets | {2}:
        return wrong(
            "A vertex is not its own neighbour unless there is a self-loop. Look at the edges that end "
            "at 2 only."
        )
    missing, extra = sources - given, given - sources
    return wrong(
        (f"Missing: {listed(missing)} has an edge into 2. " if missing else "")
        + (f"Not right: there is no edge from {listed(extra)} into 2." if extra else "")
    )


_NEUTRAL = {"strategy", "device"}
_DECISIVE = {
    "seed": "The seed is the key of the random generator: another seed, other picks.",
    "batch_id": "The batch id is part of the generator's counter, so that no two batches of a training "
    "run share their draws.",
    "fanouts": "The fanouts say how many neighbours are picked.",
    "pick": "Floyd's rule and the reservoir turn the same random numbers into different picks.",
}


@exercise('Give a set of argument names, such as {"seed", "pick"}.')
def same_sample(answer: Any) -> Feedback:
    """Which of seed, strategy, batch_id, device, fanouts and pick may change without changing the sample?"""
    given = {answer} if isinstance(answer, str) else {str(name) for name in answer}
    unknown = given - _NEUTRAL - set(_DECISIVE)
    if unknown:
        return wrong(f"{', '.join(sorted(unknown))} is not among the six names of the question.")
    harmful = sorted(given & set(_DECISIVE))
    if harmful:
        return wrong(_DECISIVE[harmful[0]])
    if given != _NEUTRAL:
        return wrong("There is one more. Which arguments say only who computes, and in what order?")
    return right("Strategy and device decide how a sample is computed, and never what is in it.")


BLOCK = {"dst": (7, 3), "src": (7, 3, 9, 1), "indptr": (0, 2, 3), "indices": (2, 1, 3)}
"""The block of notebook 00: global ids in dst and src, local ids in indices."""


@exercise("Give a set of global vertex ids, such as {4, 5}.")
def block_sources(answer: Any) -> Feedback:
    """Which vertices (global ids) were picked for vertex 7 of the block ``BLOCK``?"""
    given = as_ids(answer)
    local = BLOCK["indices"][BLOCK["indptr"][0] : BLOCK["indptr"][1]]
    expected = {BLOCK["src"][i] for i in local}
    if given == expected:
        return right("Row 0 holds the local ids 2 and 1, and src turns them into the vertices 9 and 3.")
    if given == set(local):
        return wrong(
            f"{listed(local)} are local ids, positions in src. Which vertices stand at those positions?"
        )
    if given == {BLOCK["src"][i] for i in BLOCK["indices"][BLOCK["indptr"][1] : BLOCK["indptr"][2]]}:
        return wrong("That is the row of vertex 3. Vertex 7 is dst[0]: its row is indptr[0] to indptr[1].")
    return wrong("Vertex 7 is dst[0]. Take indices[indptr[0]:indptr[1]], then look each of them up in src.")
