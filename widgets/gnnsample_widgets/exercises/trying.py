"""What checkers share: a learner's function tried case by case, and an explorer read as the learner left it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import to_host

from ..lesson.feedback import Feedback, as_ids, is_nothing, right, whole, wrong

Case = tuple[str, tuple[Any, ...]]
"""How a case is called in a sentence, and the arguments of the learner's function."""
Mistake = tuple[Callable[..., Any], str]
"""What somebody writes who makes this mistake, and the hint."""


def numbers_agree(given: Any, wanted: Any) -> bool:
    """Whether numbers, or arrays of them, are the same up to rounding."""
    one, other = np.asarray(given, dtype=float), np.asarray(wanted, dtype=float)
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=2e-3, atol=1e-9))


def ids_agree(given: Any, wanted: Any) -> bool:
    """Whether both name the same vertices, each once."""
    given = to_host(given) if hasattr(given, "dtype") else given
    return len(given) == len(as_ids(given)) and as_ids(given) == as_ids(wanted)


def lists_agree(given: Any, wanted: Any) -> bool:
    """Whether both are the same whole numbers in the same order."""
    return [whole(v) for v in given] == [whole(v) for v in wanted]


def tried(
    answer: Any,
    name: str,
    cases: Iterable[Case],
    wanted: Callable[..., Any],
    mistakes: Sequence[Mistake],
    praise: str,
    same: Callable[[Any, Any], bool] = numbers_agree,
) -> Feedback:
    """Hold a learner's function against the right one, case by case.

    Where they differ, the hint is that of the mistake which explains the answer in all cases, else in this one.

    Args:
        answer: the learner's function.
        name: of the checker, for the hint to those who called their function.
        cases: small ones first; the learner's function gets copies of the arguments.
        wanted: the right function.
        mistakes: what others got wrong before.
        praise: what a right function is told.
        same: whether two results agree.
    """
    if not callable(answer):
        return wrong(f"Give the function itself, without calling it: exercises.{name}(my_function).")
    tries = list(cases)
    for said, arguments in tries:
        returned = answer(*map(_copied, arguments))
        if is_nothing(returned):
            return Feedback("blank", "The function returns nothing yet.")
        right_one = wanted(*arguments)
        if same(returned, right_one):
            continue
        likely = [(made, hint) for made, hint in mistakes if same(returned, made(*arguments))]
        if len(likely) > 1:
            likely = [one for one in likely if _explains(one[0], answer, tries, same)] or likely
        if likely:
            return wrong(f"{said}: {likely[0][1]}")
        return wrong(f"{said}: your function gives {shown(returned)}, and {shown(right_one)} is right.")
    return right(praise)


def _copied(argument: Any) -> Any:
    return argument.copy() if isinstance(argument, np.ndarray) else copy.copy(argument)


def _explains(
    made: Callable[..., Any], answer: Any, cases: Iterable[Case], same: Callable[[Any, Any], bool]
) -> bool:
    """Whether a mistake gives in every case what the learner's function gives."""
    try:
        return all(same(answer(*map(_copied, given)), made(*map(_copied, given))) for _, given in cases)
    except Exception:  # the learner's own code runs in here
        return False


def shown(value: Any) -> str:
    """A result for a sentence, cut short."""
    if isinstance(value, (set, frozenset)):
        value = sorted(value)
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}"
    text = str(value.tolist() if hasattr(value, "tolist") else value)
    return text if len(text) < 120 else text[:110] + " ..."


def results_of(answer: Any, kind: str) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """State of an explorer, and what its recipe makes of it, without the figures.

    Raises:
        TypeError: not an explorer of this kind.
    """
    from ..shell.explorer import Explorer
    from ..shell.recipe import LAST, follow

    if not isinstance(answer, Explorer) or type(answer).__name__ != kind:
        raise TypeError(f"give the {kind} itself")
    state = answer.state
    steps = {name: step for name, step in answer.recipe.items() if name != LAST}
    return state, dict(follow(steps, answer._given(state), answer.remember))
