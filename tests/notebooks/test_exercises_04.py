"""The checkers of notebook 04 that take samplers: right ones, wrong ones with a hint of their own, blanks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import exercises
from gnnsample_widgets.exercises import own_sampler
from gnnsample_widgets.lesson.feedback import Feedback

import gnnsample_lab as lab
from tests.notebooks.answers import check_answers


class OneStepWalk(lab.SamplingApp):
    def steps(self):
        return 6

    def sample_size(self, step):
        return 1


class Lazy(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        if rng.chance(0.5):
            return transits[0]
        return src_edges[rng.below(len(src_edges))]


class Ending(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        if rng.chance(0.5):
            return lab.NULL
        return src_edges[rng.below(len(src_edges))]


class Restless(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        return src_edges[rng.below(len(src_edges))]


class Stuck(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        return transits[0]


class OneOfFour(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        i = rng.below(len(src_edges) + 1)
        return transits[0] if i == len(src_edges) else src_edges[i]


class EverySecond(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        if step % 2 == 0:
            return transits[0]
        return src_edges[rng.below(len(src_edges))]


class SomeWalks(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        if s.id() % 2 == 0:
            return transits[0]
        return src_edges[rng.below(len(src_edges))]


class Partial(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        if rng.chance(0.5):
            return transits[0]
        return src_edges[rng.below(2)]


class Jumping(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        return rng.below(s.num_nodes())


class Seldom(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        if rng.chance(0.4):
            return transits[0]
        return src_edges[rng.below(len(src_edges))]


class Unwritten(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        return ...


class Beyond(OneStepWalk):
    def next(self, s, transits, src_edges, step, rng):
        return src_edges[len(src_edges)]


class Degrees(OneStepWalk):
    def prepare(self, graph):
        self.most = int(graph.in_degrees().max())


class Hubs(Degrees):
    def next(self, s, transits, src_edges, step, rng):
        while True:
            u = src_edges[rng.below(len(src_edges))]
            if rng.below(self.most) < u.degree():
                return u


class HubsByChance(Degrees):
    def next(self, s, transits, src_edges, step, rng):
        for _ in range(1000):
            u = src_edges[rng.below(len(src_edges))]
            if rng.chance(u.degree() / self.most):
                return u
        return lab.NULL


class OneTrial(Degrees):
    def next(self, s, transits, src_edges, step, rng):
        u = src_edges[rng.below(len(src_edges))]
        return u if rng.chance(u.degree() / self.most) else lab.NULL


class Shy(Degrees):
    def next(self, s, transits, src_edges, step, rng):
        while True:
            u = src_edges[rng.below(len(src_edges))]
            if rng.chance(1 / u.degree()):
                return u


class Squared(Degrees):
    def next(self, s, transits, src_edges, step, rng):
        while True:
            u = src_edges[rng.below(len(src_edges))]
            if rng.chance(u.degree() / self.most) and rng.chance(u.degree() / self.most):
                return u


class Greedy(Degrees):
    def next(self, s, transits, src_edges, step, rng):
        best = src_edges[0]
        for i in range(len(src_edges)):
            if src_edges[i].degree() > best.degree():
                best = src_edges[i]
        return best


class Secondly(Degrees):
    def next(self, s, transits, src_edges, step, rng):
        u = src_edges[rng.below(len(src_edges))]
        return u if rng.chance(u.degree() / self.most) else src_edges[rng.below(len(src_edges))]


class Hops(lab.SamplingApp):
    def __init__(self, fanouts):
        self.fanouts = fanouts

    def next(self, s, transits, src_edges, step, rng):
        if len(src_edges) == 0:
            return lab.NULL
        return src_edges[rng.below(len(src_edges))]

    def steps(self):
        return len(self.fanouts)

    def sample_size(self, step):
        return self.fanouts[step]


class Products(Hops):
    def sample_size(self, step):
        return int(np.prod(self.fanouts[: step + 1]))


class Backwards(Hops):
    def sample_size(self, step):
        return self.fanouts[-1 - step]


class TwoHops(Hops):
    def steps(self):
        return 2


class AlwaysTwo(Hops):
    def sample_size(self, step):
        return 2


class Unsure(Hops):
    def next(self, s, transits, src_edges, step, rng):
        if len(src_edges) == 0 or rng.chance(0.1):
            return lab.NULL
        return src_edges[rng.below(len(src_edges))]


class FirstOnly(Hops):
    def next(self, s, transits, src_edges, step, rng):
        if len(src_edges) == 0:
            return lab.NULL
        return src_edges[0]


class Scattered(Hops):
    def next(self, s, transits, src_edges, step, rng):
        return rng.below(s.num_nodes())


class Careless(Hops):
    def next(self, s, transits, src_edges, step, rng):
        return src_edges[rng.below(len(src_edges))]


class Fire(lab.SamplingApp):
    def __init__(self, catch, rounds):
        self.catch, self.rounds = catch, rounds

    def prepare(self, graph):
        self.most = int(graph.in_degrees().max())

    def next(self, s, transits, src_edges, step, rng):
        if s.slot() >= len(src_edges) or not rng.chance(self.catch):
            return lab.NULL
        u = src_edges[s.slot()]
        for i in range(1, step + 2):
            for pos in range(s.prev_count(i)):
                if s.prev_vertex(i, pos) == u:
                    return lab.NULL
        return u

    def steps(self):
        return self.rounds

    def sample_size(self, step):
        return self.most

    def unique(self, step):
        return True


class Rekindled(Fire):
    def next(self, s, transits, src_edges, step, rng):
        if s.slot() >= len(src_edges) or not rng.chance(self.catch):
            return lab.NULL
        return src_edges[s.slot()]


class Certain(Fire):
    def next(self, s, transits, src_edges, step, rng):
        if s.slot() >= len(src_edges):
            return lab.NULL
        u = src_edges[s.slot()]
        for i in range(1, step + 2):
            for pos in range(s.prev_count(i)):
                if s.prev_vertex(i, pos) == u:
                    return lab.NULL
        return u


class AnyNeighbour(Fire):
    def next(self, s, transits, src_edges, step, rng):
        if len(src_edges) == 0 or not rng.chance(self.catch):
            return lab.NULL
        u = src_edges[rng.below(len(src_edges))]
        for i in range(1, step + 2):
            for pos in range(s.prev_count(i)):
                if s.prev_vertex(i, pos) == u:
                    return lab.NULL
        return u


class Damp(Fire):
    def next(self, s, transits, src_edges, step, rng):
        return lab.NULL


class Short(Fire):
    def steps(self):
        return 1


CASES: list[tuple[Callable[..., Feedback], list[Any], list[tuple[Any, str]]]] = [
    (
        exercises.lazy_walk,
        [Lazy],
        [
            (Lazy(), "without parentheses"),
            (Ending, "transits[0], not lab.NULL"),
            (Restless, "never stays"),
            (Stuck, "never moves"),
            (OneOfFour, "as a fourth"),
            (EverySecond, "not the step"),
            (SomeWalks, "do not throw a coin"),
            (Partial, "prefer some"),
            (Jumping, "no in-neighbour"),
            (Seldom, "stays in 40\u00a0%"),
            (Beyond, "index outside the list of edges"),
            (int, "derived from lab.SamplingApp"),
        ],
    ),
    (
        exercises.towards_hubs,
        [Hubs, HubsByChance],
        [
            (OneTrial, "calls for another"),
            (Restless, "evenly"),
            (Shy, "other way round"),
            (Squared, "used twice"),
            (Greedy, "always the largest"),
            (Secondly, "they should be 0.12, 0.25, 0.62"),
            (Jumping, "no edge"),
        ],
    ),
    (
        exercises.fanouts,
        [Hops],
        [
            (Products, "per transit"),
            (Backwards, "last hop first"),
            (TwoHops, "your steps() says 2"),
            (AlwaysTwo, "your sizes are (2, 2, 2)"),
            (Unsure, "leaves slots empty"),
            (FirstOnly, "not evenly"),
            (Scattered, "no in-neighbours"),
            (Careless, "rng.below() of a number below 1"),
        ],
    ),
    (
        exercises.forest_fire,
        [Fire],
        [
            (Rekindled, "burns twice"),
            (Certain, "always burn"),
            (AnyNeighbour, "let slot j"),
            (Damp, "Nothing catches fire"),
            (Short, "after one step"),
        ],
    ),
]


@pytest.mark.slow  # a compilation for each class
@pytest.mark.parametrize(("checker", "answers", "mistakes"), CASES, ids=[c[0].__name__ for c in CASES])
def test_answers(
    checker: Callable[..., Feedback], answers: list[Any], mistakes: list[tuple[Any, str]]
) -> None:
    check_answers(checker, answers, mistakes)


@pytest.mark.parametrize("checker", [case[0] for case in CASES], ids=[c[0].__name__ for c in CASES])
def test_unwritten_functions_count_as_blank(checker: Callable[..., Feedback]) -> None:
    for unwritten in (Unwritten, OneStepWalk):
        reply = checker(unwritten)
        assert reply.state == "blank" and "next is still to be written" in reply.text


def test_fire_reaches_whom_the_enumeration_says() -> None:
    # 0 - 1 - 2 in a row: 1 burns by one edge, 2 by two.
    assert own_sampler.burning(((1, 0), (2, 1)), 0, 0.4, 3) == pytest.approx([1, 0.4, 0.16])
    assert own_sampler.burning(((1, 0), (2, 1)), 0, 0.4, 1) == pytest.approx([1, 0.4, 0])
    # Two ways to 3.
    square = own_sampler.burning(((1, 0), (2, 0), (3, 1), (3, 2)), 0, 0.5, 2)
    assert square[3] == pytest.approx(1 - (1 - 0.25) ** 2)
