"""Each exercise checker: the right answer, wrong ones that get a hint of their own, and a blank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import exercises, recorded
from gnnsample_widgets.feedback import Feedback

import gnnsample_lab as lab


def right_frontiers(batch_size: int, fanouts: list[int]) -> list[int]:
    sizes = [batch_size]
    for fanout in fanouts[:-1]:
        sizes.append(sizes[-1] * (fanout + 1))
    return sizes


def without_self(batch_size: int, fanouts: list[int]) -> list[int]:
    return [batch_size * int(np.prod(fanouts[:h])) for h in range(len(fanouts))]


def one_hop_late(batch_size: int, fanouts: list[int]) -> list[int]:
    return [n * (f + 1) for n, f in zip(right_frontiers(batch_size, fanouts), fanouts)]


# checker, right answers, wrong answers with a word of the hint each
CASES: list[tuple[Callable[..., Feedback], list[Any], list[tuple[Any, str]]]] = [
    (
        exercises.in_neighbours,
        [{0, 1, 3}, [3, 1, 0], np.array([0, 1, 3])],
        [({0}, "lead to"), ({0, 1}, "Missing: 3"), ({0, 1, 2, 3}, "own neighbour"), ({0, 1, 3, 4}, "from 4")],
    ),
    (
        exercises.same_sample,
        [{"strategy", "device"}, ("device", "strategy")],
        [
            ({"strategy"}, "one more"),
            ({"strategy", "seed"}, "key"),
            ({"batch_id"}, "counter"),
            ({"gpu"}, "gpu"),
        ],
    ),
    (exercises.block_sources, [{9, 3}], [({2, 1}, "local ids"), ({1}, "row of vertex 3"), ({7}, "indptr")]),
    (
        exercises.second_frontier,
        [{0, 2, 3, 4}],
        [({0, 2, 3}, "Vertex 4 is missing"), ({2, 3}, "new"), ({0, 4}, "Unite")],
    ),
    (
        exercises.pick_probability,
        [0.25, "0.25", 10 / 40],
        [
            (1 - (39 / 40) ** 10, "with replacement"),
            (1 / 40, "one draw"),
            (25, "at most 1"),
            (0.7, "Ten of forty"),
        ],
    ),
    (
        exercises.largest_frontiers,
        [right_frontiers],
        [
            (without_self, "themselves"),
            (one_hop_late, "seeds alone"),
            (lambda b, f: [b], "is the most"),
            ([256, 2816], "function itself"),
            (lambda b, f: 1 / 0, "could not be checked"),
        ],
    ),
    (
        exercises.preprocessing_share,
        [0.91, 129 / 142.2],
        [(0.33, "all three hops"), (0.09, "kernel's share"), (91, "not percent"), (0.5, "Divide")],
    ),
    (
        exercises.taken_for_new,
        [{1, 31, 32}, [32, 1, 31]],
        [({31}, "not these alone"), ({1, 31, 32, 5}, "one lane alone"), ({7}, "Break a line")],
    ),
    (
        exercises.fusion_speedup,
        [1.28, 1.3, 1151.3 / 896.6],
        [(0.78, "new over old"), (2.97, "768"), (1.5, "Old:"), ("fast", "could not be checked")],
    ),
    (exercises.lost_hop, [3, {3}, "3", [3]], [(2, "already in slot 1"), (1, "slot 0"), ({2, 3}, "Only one")]),
    (exercises.lost_with_fetch_one, [1, 1.0, "1"], [(0, "claim along"), (5, "fetch size 5"), (2, "Play it")]),
    (
        exercises.may_leave,
        [lambda task, tail, outstanding: outstanding == 0],
        [
            (lambda task, tail, outstanding: task >= tail, "published rule"),
            (lambda task, tail, outstanding: False, "must leave"),
            (lambda task, tail, outstanding: True, "has to stay"),
            (lambda task, tail, outstanding: outstanding == 0 and task == tail, "harmless"),
            (True, "function itself"),
        ],
    ),
    (
        exercises.lost_with_the_ticket,
        [{14, 23, 33}, [33, 23, 14]],
        [({14}, "more than these"), ({14, 19, 23, 33}, "is served"), ({2}, "Choose")],
    ),
]


def test_every_exercise_is_tested() -> None:
    # Those of the later notebooks are in the files beside this one.
    assert {case[0] for case in CASES} == {c for number in ("00", "01", "02") for c in exercises.ALL[number]}


@pytest.mark.parametrize(
    ("checker", "answers"), [(c[0], c[1]) for c in CASES], ids=lambda c: getattr(c, "__name__", "")
)
def test_right_answers(checker: Callable[..., Feedback], answers: list[Any]) -> None:
    for answer in answers:
        reply = checker(answer)
        assert reply.state == "right", f"{answer!r}: {reply}"
        assert reply and len(reply.text) > 20


@pytest.mark.parametrize(
    ("checker", "answers"), [(c[0], c[2]) for c in CASES], ids=lambda c: getattr(c, "__name__", "")
)
def test_wrong_answers_are_explained(
    checker: Callable[..., Feedback], answers: list[tuple[Any, str]]
) -> None:
    assert len(answers) >= 2
    for answer, hint in answers:
        reply = checker(answer)
        assert reply.state == "wrong", f"{answer!r}: {reply}"
        assert hint in reply.text, f"{answer!r}: {reply}"
    assert len({checker(answer).text for answer, _ in answers}) >= 2, (
        "different mistakes need different hints"
    )


@pytest.mark.parametrize("checker", [c[0] for c in CASES], ids=lambda c: c.__name__)
def test_a_blank_is_reported(checker: Callable[..., Feedback]) -> None:
    for blank in (..., None, "", [], set()):
        reply = checker(blank)
        assert reply.state == "blank" and not reply, blank
        assert "Not answered yet" in repr(reply) and "Not answered yet" in reply._repr_html_()
    assert checker().state == "blank"


def test_an_empty_function_counts_as_blank() -> None:
    assert exercises.largest_frontiers(lambda batch_size, fanouts: ...).state == "blank"
    assert exercises.may_leave(lambda task, tail, outstanding: None).state == "blank"


@pytest.mark.parametrize("checker", [c[0] for c in CASES], ids=lambda c: c.__name__)
@pytest.mark.parametrize("nonsense", [object(), "?!", -1, {"a": 1}, float("nan"), lambda: 3])
def test_no_answer_raises(checker: Callable[..., Feedback], nonsense: Any) -> None:
    assert checker(nonsense).state == "wrong"


def test_feedback_escapes_what_the_learner_wrote() -> None:
    reply = exercises.same_sample({"<b>"})
    assert "&lt;b&gt;" in reply._repr_html_() and "<b>" in repr(reply)


def test_the_answers_agree_with_the_library() -> None:
    """The checkers know their answers; here the sampler and the model are asked."""
    src, dst = zip(*exercises.EDGES)
    graph = lab.Graph.from_edges(src, dst)
    start, end = graph.indptr[2:4]
    assert exercises.in_neighbours(graph.indices[start:end])

    hub = lab.Graph.from_edges(range(2, 12), [0] * 10, num_nodes=12)
    _, trace = recorded.without_reuse(hub, [0, 1], [10, 10], num_blocks=2, fetch_size=1)
    assert exercises.lost_with_fetch_one(len(trace.lost))

    path = lab.Graph.from_edges([1, 2, 3], [0, 1, 2])
    _, trace = recorded.without_reuse(path, [0], [1, 1, 1], num_blocks=1)
    assert exercises.lost_hop(trace.lost.hop + 1)

    star = lab.Graph.from_edges(range(1, 41), [0] * 40)
    sampler = lab.NeighborSampler(star, [10], device="cpu")
    hits = sum(1 in sampler.sample([0], batch_id=i).picks[0].neighbors for i in range(2000))
    assert exercises.pick_probability(round(hits / 2000 * 20) / 20)

    full = lab.Graph.from_edges(*np.divmod(np.arange(400 * 400), 400))
    batch = lab.NeighborSampler(full, [2, 2, 2], device="cpu").sample(range(4))
    assert [p.frontier.size for p in batch.picks] <= right_frontiers(4, [2, 2, 2])
