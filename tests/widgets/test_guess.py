"""A guess is made before the result is shown, and stays what it was."""

from __future__ import annotations

import numpy as np
import pytest
import traitlets
from gnnsample_widgets import Guess
from ipywidgets.widgets import widget


def test_the_result_is_shown_once_both_are_there() -> None:
    guess = Guess("How many times as many bytes?", unit="times", low=1)
    assert guess.reveal(18.43, "csp sends picks.") is guess
    assert guess.message == "Lock a guess to see the result."
    assert (guess.result, guess.found, guess.text) == (None, "", ""), "the page must not know it yet"
    assert "18.4" not in repr(guess)
    guess.value = 10
    guess.lock()
    assert (guess.value, guess.result, guess.guessed, guess.found) == (10, 18.43, "10 times", "18.4 times")
    assert guess.text == "csp sends picks." and guess.message == ""
    assert "You guessed 10 times; it is 18.4 times. csp sends picks." in repr(guess)


def test_or_in_the_other_order() -> None:
    guess = Guess("How many?", unit="%")
    guess.value = 30.0
    guess.lock()
    assert guess.result is None and "further down" in guess.message
    guess.reveal(np.float32(12.5))
    assert (guess.guessed, guess.found, guess.result) == ("30\u00a0%", "12.5\u00a0%", 12.5)
    guess.reveal(40)
    assert (guess.found, guess.guessed) == ("40\u00a0%", "30\u00a0%"), (
        "another graph, another result, the same guess"
    )


def test_what_the_page_holds_is_what_the_kernel_says() -> None:
    guess = Guess("Which one?", options=["first", "second"])
    guess.reveal("second")
    store = guess.store
    assert (store.locked, store.result, store.found) == (False, None, "")
    store.wish = "first"
    assert (guess.value, guess.locked) == ("first", True)
    assert (store.value, store.locked, store.result, store.guessed) == ("first", True, "second", "first")


@pytest.mark.parametrize("wish", [0, "many", True, float("nan"), [1]])
def test_a_bad_wish_of_the_page_is_answered_and_not_locked(wish: object) -> None:
    guess = Guess("How many?", low=1, high=9)
    guess.store.wish = wish
    assert (guess.value, guess.locked, guess.store.wish) == (None, False, None)
    assert "Your guess must be" in guess.store.message
    guess.store.wish = 3
    assert (guess.value, guess.locked) == (3, True)


def test_a_locked_guess_does_not_change() -> None:
    guess = Guess("How many?", unit="tasks")
    guess.value = 4
    guess.lock()
    with pytest.raises(traitlets.TraitError, match="locked at 4 tasks"):
        guess.value = 5
    with pytest.raises(traitlets.TraitError, match="locked at 4 tasks"):
        guess.locked = False
    guess.store.wish = 5
    guess.lock()
    assert (guess.value, guess.locked, guess.store.value) == (4, True, 4)


def test_there_is_nothing_to_lock_before_a_guess() -> None:
    guess = Guess("How many?")
    with pytest.raises(ValueError, match="no guess yet"):
        guess.lock()
    with pytest.raises(traitlets.TraitError, match="no guess yet"):
        guess.locked = True
    assert not guess.locked and "Lock a guess" in repr(guess)


def test_a_guess_keeps_to_its_options_and_limits() -> None:
    choice, number = Guess("Which?", options=["a", "b"]), Guess("How many?", low=0, high=100)
    with pytest.raises(ValueError, match="value"):
        choice.value = "c"
    with pytest.raises(ValueError, match="value"):
        choice.reveal(3)
    for wrong in (-1, 101):
        with pytest.raises(ValueError, match="value"):
            number.value = wrong
    with pytest.raises(TypeError, match="value"):
        number.value = "3"
    number.reveal(250)  # what was counted is true, whatever was thought possible


@pytest.mark.parametrize(
    ("value", "shown"),
    [(3011.44, "3,011"), (999.7, "1,000"), (99.96, "100"), (1.3, "1.3"), (0.0421, "0.0421"), (7, "7")],
)
def test_numbers_are_rounded_for_people(value: float, shown: str) -> None:
    assert Guess("How many?").shown(value) == shown


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        ((3,), {}, "question"),
        (("  ",), {}, "question"),
        (("Q?",), {"options": "ab"}, "options"),
        (("Q?",), {"options": ["a"]}, "options"),
        (("Q?",), {"options": ["a", "a"]}, "options"),
        (("Q?",), {"options": [1, 2]}, "options"),
        (("Q?",), {"options": ["a", "b"], "low": 1}, "low"),
        (("Q?",), {"unit": 3}, "unit"),
        (("Q?",), {"low": "0"}, "low"),
        (("Q?",), {"high": float("nan")}, "high"),
        (("Q?",), {"low": 2, "high": 1}, "low"),
        (("Q?",), {"name": None}, "name"),
    ],
)
def test_a_bad_argument_is_named(
    arguments: tuple[object, ...], options: dict[str, object], name: str
) -> None:
    before = set(widget._instances)
    with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b"):
        Guess(*arguments, **options)  # type: ignore[arg-type]
    assert set(widget._instances) == before, "a refused guess leaves no widget behind"


def test_a_closed_guess_gives_back_its_widgets() -> None:
    before = set(widget._instances)
    guess = Guess("How many?")
    assert len(set(widget._instances) - before) >= 2
    guess.close()
    assert set(widget._instances) == before
