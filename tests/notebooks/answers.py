"""What holds of every checker of an exercise."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gnnsample_widgets as widgets
from gnnsample_widgets.lesson.feedback import Feedback

import gnnsample_lab as lab


@functools.cache
def small_twin() -> Any:
    """A graph that explorers are quick on."""
    return lab.load("arxiv-like", scale=0.05, use_cache=False)


@functools.cache
def _opened(kind: str) -> tuple[Any, dict[str, Any]]:
    graph = () if kind == "PipelineExplorer" else (small_twin(),)
    explorer = getattr(widgets, kind)(*graph, device="cpu", raise_errors=True)
    return explorer, explorer.state


@dataclass
class At:
    """An answer that is an explorer: the one of this kind, moved from its opening state."""

    kind: str
    moved: dict[str, Any] = field(default_factory=dict)


def at(kind: str, **moved: Any) -> At:
    return At(kind, moved)


def given(answer: Any) -> Any:
    """The answer itself; of an ``At`` the explorer, set there."""
    if not isinstance(answer, At):
        return answer
    explorer, start = _opened(answer.kind)
    explorer.set(**{**start, **answer.moved})
    return explorer


def check_answers(
    checker: Callable[..., Feedback], answers: list[Any], mistakes: list[tuple[Any, str]]
) -> None:
    """Right answers are praised with a reason, mistakes met with their hint, blanks reported; nothing raises."""
    for answer in answers:
        reply = checker(given(answer))
        assert reply.state == "right" and len(reply.text) > 20, f"{answer!r}: {reply}"
    hints = set()
    for answer, hint in mistakes:
        reply = checker(given(answer))
        assert reply.state == "wrong" and hint in reply.text, f"{answer!r}: {reply}"
        hints.add(reply.text)
    assert len(hints) >= 2, "different mistakes need different hints"
    for blank in (..., None, "", [], set()):
        assert checker(blank).state == "blank"
    for nonsense in (object(), "?!", -1, {"a": 1}, float("nan"), lambda: 3):
        assert checker(nonsense).state == "wrong", nonsense
