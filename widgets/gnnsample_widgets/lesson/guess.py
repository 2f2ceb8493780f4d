"""A guess that a reader makes before the library has counted: a field, a button that locks it, then both side by side.

The kernel decides what is a guess and when it is locked; the page only asks. The result travels to the page once the
guess is locked, so that it cannot be looked up before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets
import traitlets

from gnnsample_lab import checks, readable

from ..shell.controls import STATIC
from ..shell.store import Stored, close_all


class GuessStore(ipywidgets.Widget):
    """What a guess shows; ``wish`` is what the page asks to be locked."""

    wish = traitlets.Any(None, allow_none=True).tag(sync=True)
    value = traitlets.Any(None, allow_none=True).tag(sync=True)
    locked = traitlets.Bool(False).tag(sync=True)
    result = traitlets.Any(None, allow_none=True).tag(sync=True)
    guessed = traitlets.Unicode("").tag(sync=True)
    found = traitlets.Unicode("").tag(sync=True)
    text = traitlets.Unicode("").tag(sync=True)
    message = traitlets.Unicode("").tag(sync=True)


class Guess(Stored):
    """A question, a field for the reader's guess, and the result beside it.

    Locked, the guess does not change any more. :meth:`reveal` hands in the result, before or after that: guess and
    result are shown side by side as soon as both are there. Without a page: ``guess.value = 10; guess.lock()``.
    A notebook that runs without a guess goes on; it then says that a guess would show the result.

    Args:
        question: what is asked, in a sentence.
        options: the answers to choose from; None for a number.
        unit: what is counted, said behind the number: "times", "%".
        low, high: the smallest and largest number that makes sense; None for no limit.
        name: ``data-name`` of the element in the page; the question's first words when empty.

    Attributes:
        value: the guess: a number, or one of ``options``; None before there is one.
        locked: whether the guess is final.
        result: the result, once the guess is locked and :meth:`reveal` has been called; else None.

    Raises:
        TypeError: an argument of the wrong kind; the message names it.
        ValueError: no question, no or equal options, options with limits, or ``low`` above ``high``.
    """

    _esm = (STATIC / "guess.js").read_text(encoding="utf-8")
    _css = (STATIC / "guess.css").read_text(encoding="utf-8")
    store_type = GuessStore

    question = traitlets.Unicode("").tag(sync=True)
    options = traitlets.List(traitlets.Unicode()).tag(sync=True)
    unit = traitlets.Unicode("").tag(sync=True)
    low = traitlets.Float(None, allow_none=True).tag(sync=True)
    high = traitlets.Float(None, allow_none=True).tag(sync=True)
    name = traitlets.Unicode("").tag(sync=True)

    value = traitlets.Any(None, allow_none=True).tag(live=True)
    locked = traitlets.Bool(False).tag(live=True)
    result = traitlets.Any(None, allow_none=True).tag(live=True)
    guessed = traitlets.Unicode("", help="the guess as it is shown").tag(live=True)
    found = traitlets.Unicode("", help="the result as it is shown").tag(live=True)
    text = traitlets.Unicode("", help="what the result says").tag(live=True)
    message = traitlets.Unicode("", help="what is wrong with the guess, or what is missing").tag(live=True)

    def __init__(
        self,
        question: str,
        *,
        options: Sequence[str] | None = None,
        unit: str = "",
        low: float | None = None,
        high: float | None = None,
        name: str = "",
    ) -> None:
        if not checks.text("question", question).strip():
            raise ValueError("question must say what is asked (got an empty text)")
        choices: list[str] = []
        if options is not None:
            choices = [checks.text("options", one) for one in checks.items("options", options)]
            if len(choices) < 2 or len(set(choices)) != len(choices):
                raise ValueError(f"options must be two or more different answers (got {choices})")
            if low is not None or high is not None:
                raise ValueError("low and high go with a number, not with options")
        low = None if low is None else checks.real("low", low)
        high = None if high is None else checks.real("high", high)
        if low is not None and high is not None and low > high:
            raise ValueError(f"low must not be above high (got {low:g} and {high:g})")
        unit, name = checks.text("unit", unit), checks.text("name", name)
        self._answer: tuple[Any, str] | None = None
        super().__init__(
            question=question,
            options=choices,
            unit=unit,
            low=low,
            high=high,
            name=name or "-".join(question.lower().split()[:4]),
        )
        self.store.observe(self._asked, names="wish")

    @traitlets.validate("value")
    def _sensible(self, proposal: dict[str, Any]) -> Any:
        value = proposal["value"]
        if self.locked:
            if value == self.value:
                return value
            raise traitlets.TraitError(f"the guess is locked at {self.shown(self.value)}")
        return None if value is None else self._checked("value", value)

    @traitlets.validate("locked")
    def _final(self, proposal: dict[str, Any]) -> bool:
        if self.locked and not proposal["value"]:
            raise traitlets.TraitError(f"the guess is locked at {self.shown(self.value)}")
        if proposal["value"] and self.value is None:
            raise traitlets.TraitError("there is no guess yet: set value, then lock")
        return bool(proposal["value"])

    def lock(self) -> None:
        """Make the guess final; a second call changes nothing.

        Raises:
            ValueError: there is no guess yet.
        """
        if self.value is None:
            raise ValueError("there is no guess yet: set value, then lock")
        self.locked = True
        self._show()

    def reveal(self, value: Any, text: str = "") -> Guess:
        """Hand in the result.

        Args:
            value: a number, or one of the options. text: what there is to say about it.

        Returns:
            The guess itself, so that a cell that ends with this call shows it.

        Raises:
            TypeError, ValueError: no finite number, or none of the options.
        """
        self._answer = self._checked("value", value, limits=False), checks.text("text", text)
        self._show()
        return self

    def shown(self, value: Any) -> str:
        """A guess or a result in words: three digits, and the unit."""
        if value is None or isinstance(value, str):
            return value or ""
        space = "" if not self.unit else "\u00a0" if self.unit == "%" else " "
        return f"{readable.number(value)}{space}{self.unit}"

    def close(self) -> None:
        """Give back the widget and its store."""
        close_all(self)

    def __repr__(self) -> str:
        if self.locked and self._answer is not None:
            return f"{self.question} You guessed {self.guessed}; it is {self.found}. {self.text}".rstrip()
        return f"{self.question} {self.message or 'Lock a guess to see the result.'}"

    def _checked(self, name: str, value: Any, limits: bool = True) -> Any:
        if self.options:
            return checks.choice(name, value, self.options)
        low, high = (self.low, self.high) if limits else (None, None)
        return checks.real(name, value, low, high)

    def _asked(self, change: dict[str, Any]) -> None:
        """The page wants a guess locked. Nothing is raised into the kernel's loop: the page says what is wrong."""
        if change["new"] is None or self.locked:
            return
        try:
            self.value = self._checked("Your guess", change["new"])
            self.lock()
        except (TypeError, ValueError, traitlets.TraitError) as error:
            self.message, self.store.wish = str(error), None

    def _show(self) -> None:
        with self.store.hold_sync():
            self.guessed = self.shown(self.value) if self.locked else ""
            if self._answer is None:
                self.message = "Locked. The result comes further down." if self.locked else ""
            elif not self.locked:
                self.message = "Lock a guess to see the result."
            else:
                self.message = ""
                self.found, (self.result, self.text) = self.shown(self._answer[0]), self._answer
