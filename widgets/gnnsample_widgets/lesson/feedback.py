"""What an exercise says back: right, wrong and why, or not answered yet."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

_LOOK = {
    "right": ("✓ Right.", "var(--jp-success-color1, #00735c)"),
    "wrong": ("✗ Not yet.", "var(--jp-error-color1, #b3261e)"),
    "blank": ("… Not answered yet.", "var(--jp-ui-font-color2, #5a5a5a)"),
}


@dataclass(frozen=True)
class Feedback:
    """The reply to an answer. Shows itself in a notebook; nothing is ever raised.

    Attributes:
        state: "right", "wrong" or "blank".
        text: why; for a wrong answer, what to think about next.
    """

    state: str
    text: str

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        return f"{_LOOK[self.state][0]} {self.text}"

    def _repr_html_(self) -> str:
        head, color = _LOOK[self.state]
        return (
            f'<div role="status" style="border-left:4px solid {color};padding:6px 12px;margin:2px 0">'
            f'<b style="color:{color}">{head}</b> {html.escape(self.text)}</div>'
        )


def right(text: str) -> Feedback:
    return Feedback("right", text)


def wrong(text: str) -> Feedback:
    return Feedback("wrong", text)


def is_blank(answer: Any) -> bool:
    """Whether nothing has been put in: ``...``, None, or an empty string or collection."""
    if answer is None or answer is Ellipsis:
        return True
    return isinstance(answer, (str, list, tuple, set, frozenset, dict)) and len(answer) == 0


def is_nothing(value: Any) -> bool:
    """Whether a learner's function is still the empty one."""
    return value is None or value is Ellipsis


def exercise(hint: str) -> Callable[[Callable[..., Feedback]], Callable[..., Feedback]]:
    """Make a checker forgiving: a blank answer is answered with ``hint``, and no answer raises.

    What stands behind the answer in a call is what the notebook has at hand (its graph, a mini-batch, a trace): the
    checker works out there what is right.
    """

    def wrap(check: Callable[..., Feedback]) -> Callable[..., Feedback]:
        @functools.wraps(check)
        def checked(answer: Any = ..., *held_against: Any) -> Feedback:
            if is_blank(answer):
                return Feedback("blank", hint)
            try:
                return check(answer, *held_against)
            except Exception as error:  # the learner's own code runs in here
                return wrong(f"Your answer could not be checked ({type(error).__name__}: {error}). {hint}")

        checked.is_exercise = True  # type: ignore[attr-defined]
        return checked

    return wrap


def as_number(answer: Any) -> float:
    """A number from what a learner may type: 3, 3.0, "3", a NumPy scalar."""
    if isinstance(answer, bool):
        raise TypeError("a number is asked for, not True or False")
    return float(answer)


def agrees(given: float, truth: float, digits: int = 2) -> bool:
    """Whether a number is the one asked for, exact or rounded to at least so many significant digits."""
    rounded = [float(f"{truth:.{more}g}") for more in range(digits, digits + 4)]
    return abs(given - truth) <= 0.006 * abs(truth) or any(
        abs(given - one) < 1e-9 * abs(one) for one in rounded
    )


def whole(value: Any) -> int:
    """A whole number, which may be typed as text: ``int`` alone would cut a fraction off.

    Raises:
        ValueError: a fraction.
    """
    number = int(value)
    if not isinstance(value, str) and number != value:
        raise ValueError(f"{value} is no whole number")
    return number


def as_ids(answer: Any) -> set[int]:
    """A set of ids from a set, list, array or single number, which may be typed as text.

    Raises:
        ValueError: a fraction.
    """
    several = np.iterable(answer) and not isinstance(answer, str)
    return {whole(v) for v in (answer if several else [answer])}


def listed(ids: Iterable[int]) -> str:
    """Ids in order, for a sentence."""
    return ", ".join(str(i) for i in sorted(ids)) or "none"
