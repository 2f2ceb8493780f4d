"""Exercises of notebook 04: a rule translated, and samplers that are run on small graphs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab.readable import percent

from ..lesson.feedback import Feedback, exercise, right, wrong
from .trying import results_of, tried

RING, STRIDES = 9, (1, 2, 4)
"""A ring of nine vertices; the in-neighbours of v are v + 1, v + 2 and v + 4."""

SPOKES = ((1, 1), (2, 2), (3, 5))
"""Neighbours of vertex 0 in the second graph, and how many in-neighbours they have."""

FIRE = ((1, 0), (2, 0), (2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (0, 4))
"""Edges (from, to) of the third graph; fire goes from ``to`` to ``from``, to in-neighbours."""

FANOUTS = ((3, 2, 4), (5,), (2, 2))
_CATCH, _ROUNDS = 0.4, 3


def ring_graph() -> Any:
    """RING vertices with three in-neighbours each."""
    targets = np.repeat(np.arange(RING), len(STRIDES))
    return lab.Graph.from_edges((targets + np.tile(STRIDES, RING)) % RING, targets, RING, name="ring")


def spoke_graph() -> Any:
    """Vertex 0 with three neighbours of in-degree 1, 2 and 5; no dead ends."""
    edges = [(u, 0) for u, _ in SPOKES] + [(0, u) for u, _ in SPOKES]
    edges += [(4 + i, u) for u, degree in SPOKES for i in range(degree - 1)]
    edges += [(0, 4 + i) for i in range(max(degree for _, degree in SPOKES) - 1)]
    return lab.Graph.from_edges(*zip(*edges, strict=True), name="spokes")


def fire_graph() -> Any:
    return lab.Graph.from_edges(*zip(*FIRE, strict=True), name="five vertices")


def _refused(answer: Any, methods: Iterable[str]) -> Feedback | None:
    """Why this is no sampler that can be run, or None."""
    if isinstance(answer, lab.SamplingApp):
        return wrong("Give the class itself, without parentheses behind it.")
    if not (isinstance(answer, type) and issubclass(answer, lab.SamplingApp)):
        return wrong("Give a class derived from lab.SamplingApp.")
    for name in methods:
        function = getattr(answer, name)
        if function is getattr(lab.SamplingApp, name) or Ellipsis in function.__code__.co_consts:
            return Feedback("blank", f"{name} is still to be written.")
    return None


def _samples(app: Any, graph: Any, roots: Any, steps: int | None = None, seed: int = 0) -> np.ndarray:
    result = lab.run_app(graph, app, roots, device="cpu", seed=seed, max_steps=steps)
    return np.asarray(result.samples)


def _listed(shares: Iterable[float]) -> str:
    return ", ".join(f"{share:.2f}" for share in shares)


def _near(found: Any, wanted: Any, by: float = 0.02) -> bool:
    return bool(np.all(np.abs(np.asarray(found) - np.asarray(wanted)) < by))


@exercise("Write a function of p and q that returns a pair, and give me the function.")
def same_walk(answer: Any) -> Feedback:
    """A function (p, q) of NextDoor's printed rule -> p and q of node2vec's own rule for the same walk."""
    cases = [
        (f"For p = {p:g} and q = {q:g} as printed", (p, q))
        for p, q in ((2.0, 0.5), (1.0, 1.0), (0.25, 4.0), (3.0, 2.0))
    ]
    return tried(
        answer,
        "same_walk",
        cases,
        lambda p, q: (1 / (p * q), 1 / q),
        [
            (
                lambda p, q: (p, q),
                "those are the printed letters. In node2vec's own rule they give the weights 1/p, 1, 1/q.",
            ),
            (
                lambda p, q: (1 / p, 1.0),
                "the weight in the middle is 1 in node2vec's rule. Divide all three by the printed middle one first.",
            ),
            (
                lambda p, q: (1 / p, 1 / q),
                "the weight in the middle is 1 in node2vec's rule. Divide all three by the printed middle one first.",
            ),
            (
                lambda p, q: (1 / (p * q), q),
                "1/q is the weight of the last kind. Divided by the middle one it is q: which q' has 1/q' = q?",
            ),
            (
                lambda p, q: (p * q, q),
                "those are the weights themselves, divided by the middle one. 1/p' and 1/q' are to be these.",
            ),
            (lambda p, q: (p * q, 1 / q), "1/p' is the weight of going back, p q: turn it round."),
        ],
        "As printed, with p = 2 and q = 0.5, the weights are 2, 2, 1. Only proportions matter: 1, 1, 1/2, and that "
        "is a walk with p = 1 and q = 2, which keeps near. The rule of Grover and Leskovec with p = 2 and q = 0.5 "
        "has 1/2, 1, 2: a walk that makes off. Same letters and numbers, the opposite walk.",
    )


@exercise("Give a class derived from lab.SamplingApp.")
def lazy_walk(answer: Any) -> Feedback:
    """A walk that stays where it is with probability 1/2 and else moves to an even choice of neighbour."""
    refused = _refused(answer, ("next",))
    if refused is not None:
        return refused
    walks = _samples(answer(), ring_graph(), np.arange(500 * RING) % RING, 10)
    if (walks < 0).any():
        return wrong(
            "Some of your walks end. To stay is to add the same vertex once more, transits[0], not lab.NULL."
        )
    moved = (walks[:, 1:] - walks[:, :-1]) % RING
    strange = ~np.isin(moved, (0, *STRIDES))
    if strange.any():
        row, at = np.argwhere(strange)[0]
        return wrong(
            f"A walk goes from {walks[row, at]} to {walks[row, at + 1]}, which is no in-neighbour of it. Take one "
            "of src_edges."
        )
    stays = moved == 0
    share = float(stays.mean())
    if share == 0:
        return wrong("Your walk never stays.")
    if share == 1:
        return wrong("Your walk never moves.")
    if _near(share, 1 / 4):
        return wrong(
            "It stays in a quarter of the steps. With three neighbours, that is what it does when it counts itself "
            "as a fourth. Throw a coin first: rng.chance(0.5)."
        )
    if not _near(share, 1 / 2):
        return wrong(f"It stays in {percent(share)} of the steps.")
    if not _near(stays.mean(axis=0), 1 / 2, 0.05):
        return wrong(
            "It stays in half of all steps, but not in half of each: it is chance that decides, not the step."
        )
    if not _near(stays.mean(axis=1).std(), 0.5 / np.sqrt(stays.shape[1]), 0.03):
        return wrong(
            "Half of all steps stay, but not half of each walk's: the walks do not throw a coin at each step."
        )
    shares = [float((moved == stride).sum() / (~stays).sum()) for stride in STRIDES]
    if not _near(shares, 1 / 3):
        return wrong(f"Those that move prefer some neighbours: the three have shares {_listed(shares)}.")
    return right(
        "One coin and one choice, from the same stream rng. Laziness is a trick of proofs: a walk on a graph "
        "without odd cycles would be on one side after even steps for ever; the lazy one forgets where it began."
    )


@exercise("Give a class derived from lab.SamplingApp.")
def towards_hubs(answer: Any) -> Feedback:
    """A walk that picks a neighbour in proportion to the neighbour's degree."""
    refused = _refused(answer, ("next",))
    if refused is not None:
        return refused
    firsts = _samples(answer(), spoke_graph(), np.zeros(20_000, dtype=np.int64), 1)[:, 1]
    if (firsts < 0).any():
        return wrong(
            f"{percent((firsts < 0).mean())} of the walks end at once, although every vertex has a neighbour. A "
            "candidate that is turned down calls for another: loop until one is accepted."
        )
    degrees = np.array([degree for _, degree in SPOKES])
    shares = np.array([(firsts == u).mean() for u, _ in SPOKES])
    if not _near(shares.sum(), 1, 1e-9):
        return wrong("Some walks go where there is no edge. Take one of src_edges.")
    if _near(shares, degrees / degrees.sum()):
        return right(
            "Propose evenly, accept with degree / highest degree: what is left is in proportion to the degree, "
            "though nobody has added up the degrees. The price is the candidates turned down, many where hubs are "
            "few. Weights of edges need no loop: src_edges.search(rng.below(src_edges.prefix(len(src_edges))))."
        )
    case = f"Neighbours of degree 1, 2 and 5 are picked with shares {_listed(shares)}"
    if _near(shares, 1 / 3):
        return wrong(f"{case}: evenly. Nothing that you draw depends on u.degree() yet.")
    if _near(shares, (1 / degrees) / (1 / degrees).sum()):
        return wrong(f"{case}: the other way round, hubs least.")
    if _near(shares, degrees**2 / (degrees**2).sum()):
        return wrong(f"{case}: by the square of the degree. Is the degree used twice?")
    if _near(shares, (0, 0, 1), 1e-9):
        return wrong(
            f"{case}: always the largest. In proportion means the small ones have their turn as well."
        )
    return wrong(f"{case}; they should be {_listed(degrees / degrees.sum())}.")


@exercise("Give a class derived from lab.SamplingApp.")
def fanouts(answer: Any) -> Feedback:
    """k-hop neighbourhoods: ``fanouts[i]`` neighbours of each vertex in hop ``i``, with replacement."""
    refused = _refused(answer, ("next", "steps", "sample_size"))
    if refused is not None:
        return refused
    graph = ring_graph()
    for wanted in FANOUTS:
        app = answer(wanted)
        case = f"For the fanouts {wanted}"
        steps = app.steps()
        if steps != len(wanted):
            return wrong(f"{case} there are {len(wanted)} hops; your steps() says {steps}.")
        sizes = tuple(int(app.sample_size(step)) for step in range(steps))
        if sizes != wanted:
            if sizes == tuple(itertools.accumulate(wanted, lambda a, b: a * b)):
                return wrong(
                    f"{case} your sizes are {sizes}. The size is per transit; the engine multiplies."
                )
            if sizes == wanted[::-1]:
                return wrong(
                    f"{case} your sizes are {sizes}: the last hop first. Step 0 starts from the roots."
                )
            return wrong(f"{case} your sizes are {sizes}.")
        result = lab.run_app(graph, app, np.arange(600 * RING) % RING, device="cpu")
        before = result.roots
        for step, (m, after) in enumerate(zip(wanted, result.steps, strict=True)):
            parents = np.repeat(before, m, axis=1)
            if (after < 0).any():
                return wrong(
                    f"{case} step {step} leaves slots empty, although every vertex has three neighbours."
                )
            apart = (after - parents) % RING
            if not np.isin(apart, STRIDES).all():
                return wrong(f"{case} step {step} has vertices that are no in-neighbours of their transit.")
            shares = [float((apart == stride).mean()) for stride in STRIDES]
            if not _near(shares, 1 / 3, 0.04):
                return wrong(
                    f"{case} step {step} takes the three neighbours with shares {_listed(shares)}, not evenly."
                )
            before = after
    alone = lab.run_app(lab.Graph.from_edges([], [], 1), answer((2,)), [0], device="cpu").steps
    if alone and (alone[0] >= 0).any():
        return wrong("A vertex without neighbours has got some.")
    return right(
        "That is GraphSAGE's sampler; in the paper it is figure 4d. The engine does the rest: which vertices are "
        "transits, where each neighbour is written, and who shares a transit with whom."
    )


def burning(edges: tuple[tuple[int, int], ...], root: int, catch: float, rounds: int) -> np.ndarray:
    """Exact probability of each vertex to burn: every set of edges that carry the fire, and who is reached by it."""
    vertices = 1 + max(max(edge) for edge in edges)
    total = np.zeros(vertices)
    for carrying in itertools.product((False, True), repeat=len(edges)):
        likely = np.prod([catch if one else 1 - catch for one in carrying])
        burnt = newest = {root}
        for _ in range(rounds):
            newest = {u for (u, v), one in zip(edges, carrying, strict=True) if one and v in newest} - burnt
            burnt = burnt | newest
        total[list(burnt)] += likely
    return total


@exercise("Give a class derived from lab.SamplingApp.")
def forest_fire(answer: Any) -> Feedback:
    """Fire: each neighbour of a vertex that began to burn in the last step catches fire by chance, nobody twice."""
    refused = _refused(answer, ("next",))
    if refused is not None:
        return refused
    fires = _samples(answer(_CATCH, _ROUNDS), fire_graph(), np.zeros(20_000, dtype=np.int64))
    num_nodes = 1 + max(max(edge) for edge in FIRE)
    counts = np.stack([(fires == v).sum(axis=1) for v in range(num_nodes)], axis=1)
    if (counts[:, 0] > 1).any() or (counts > 1).any():
        return wrong(
            "A vertex burns twice. Before you return u, look for it in all slots so far: s.prev_vertex(i, pos), "
            "with i from 1 to step + 1 (the roots) and pos below s.prev_count(i)."
        )
    shares, exact = (counts > 0).mean(axis=0), burning(FIRE, 0, _CATCH, _ROUNDS)
    case = f"With catch = {_CATCH}, vertices 1 to 4 burn with shares {_listed(shares[1:])}"
    if _near(shares, exact):
        return right(
            f"{case}, and {_listed(exact[1:])} is exact. Leskovec, Kleinberg and Faloutsos grow graphs with this; "
            "epidemiologists call it an independent cascade. Note what made it fit: slot j looks after neighbour "
            "j, so sample_size is the highest degree, and most calls return lab.NULL."
        )
    if shares[1:].sum() == 0:
        return wrong("Nothing catches fire but the root.")
    if _near(shares[1:3], 1, 1e-9):
        return wrong(f"{case}: neighbours of what burns always burn. Ask rng.chance(self.catch).")
    if _near(shares, burning(FIRE, 0, _CATCH, 1)):
        return wrong(f"{case}: the fire goes out after one step.")
    return wrong(
        f"{case}; they should be {_listed(exact[1:])}. Each neighbour has one chance with each vertex that begins "
        "to burn: let slot j, s.slot(), decide about neighbour j and about no other."
    )


@exercise("Put the explorer in place of the dots, once it stands where you want it.")
def paces_to_and_fro(answer: Any) -> Feedback:
    """The SecondOrderExplorer in a state where the walk is expected to go straight back in six steps of ten at
    least."""
    state, made = results_of(answer, "SecondOrderExplorer")
    expected = made["expected"][0]
    back, tries = expected.kinds["return"], expected.tries
    p, q = state["p_percent"] / 100, state["q_percent"] / 100
    said = f"{percent(back)} of the steps go straight back, with p = {p:g}, q = {q:g}"
    if back >= 0.6:
        return right(
            f"{said}. It costs {tries:.1f} proposals a step: one weight is large, and it belongs to a single "
            "neighbour, which is seldom proposed."
        )
    return wrong(
        f"{said}. Which of the two is the weight of going back, and which one makes the other neighbours unlikely too?"
    )
