"""Controls with an accessible name: native range, select and checkbox elements in one small anywidget.

The handles of ipywidgets' own sliders carry no name that a screen reader could say, and forward every step of
a drag to the kernel. These send the first step at once and then at most one every ``wait_ms``; the last one
always arrives.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import traitlets

from .store import CodeStore, ControlStore, Stored

STATIC = pathlib.Path(__file__).parents[1] / "static"


class Control(Stored):
    """What all controls share. ``name`` is the explorer trait that the control sets."""

    # As text: anywidget follows a file, and keeps every widget that was made with it.
    _esm = (STATIC / "control.js").read_text(encoding="utf-8")
    _css = (STATIC / "explorer.css").read_text(encoding="utf-8")
    store_type = ControlStore

    kind = traitlets.Unicode("").tag(sync=True)
    name = traitlets.Unicode("").tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)
    help = traitlets.Unicode("").tag(sync=True)
    disabled = traitlets.Bool(False).tag(live=True)
    instead = traitlets.Any(
        None, allow_none=True, help="what a control out of use shows in place of its value, which it keeps"
    ).tag(live=True)
    wait_ms = traitlets.Int(120).tag(sync=True)


class Slider(Control):
    """An integer on a scale, either ``min..max`` by ``step`` or one of ``options``.

    Args:
        name: the explorer trait it sets; also the ``name`` of the HTML input.
        label: what is said and shown; ``unit`` is appended to the value.
        value: the starting value.
        min, max, step: the scale; ignored where ``options`` is given.
        options: the allowed values in order, for scales that are not linear.
        per: the value is shown divided by this: tenths or percent of what the label names.
        typed: show a number box instead of a read-only value, for long scales.
        playable: add a play button that walks the scale every ``interval_ms``.

    Raises:
        traitlets.TraitError: the value is off the scale; the message names the label and the allowed values.
    """

    value = traitlets.Int(0).tag(live=True)
    min = traitlets.Int(0).tag(live=True)
    max = traitlets.Int(100).tag(live=True)
    step = traitlets.Int(1).tag(sync=True)
    options = traitlets.List(traitlets.Int()).tag(live=True)
    unit = traitlets.Unicode("").tag(sync=True)
    per = traitlets.Int(1, help="what is shown is the value divided by this").tag(sync=True)
    typed = traitlets.Bool(False).tag(sync=True)
    playable = traitlets.Bool(False).tag(sync=True)
    interval_ms = traitlets.Int(150).tag(sync=True)

    def __init__(
        self, name: str, label: str, value: int, *, options: Sequence[int] = (), **kwargs: Any
    ) -> None:
        if options:
            kwargs |= {"min": min(options), "max": max(options)}
        # The value goes in with the rest: the page must never see the control with another one.
        super().__init__(kind="range", name=name, label=label, value=value, options=list(options), **kwargs)

    @traitlets.validate("value")
    def _on_scale(self, proposal: dict[str, Any]) -> int:
        value = proposal["value"]
        if isinstance(value, bool):
            raise traitlets.TraitError(f"{self.label} ({self.name}) must be a number (got {value})")
        if self.options and value not in self.options:
            raise traitlets.TraitError(
                f"{self.label} ({self.name}) must be one of {self.options} (got {value})"
            )
        if not self.options and not self.min <= value <= self.max:
            raise traitlets.TraitError(
                f"{self.label} ({self.name}) must be from {self.min} to {self.max} (got {value})"
            )
        return value

    def set_limits(self, low: int, high: int) -> None:
        """Change the ends of a linear scale; a value outside them moves to the nearer end."""
        self.min, self.max = min(low, self.min), max(high, self.max)
        self.value = min(max(self.value, low), high)
        self.min, self.max = low, high


class Choice(Control):
    """One of several named things, as a drop-down list."""

    value = traitlets.Unicode("").tag(live=True)
    options = traitlets.List(traitlets.Unicode()).tag(live=True)

    def __init__(self, name: str, label: str, value: str, options: Sequence[str], **kwargs: Any) -> None:
        super().__init__(kind="select", name=name, label=label, value=value, options=list(options), **kwargs)

    @traitlets.validate("value")
    def _known(self, proposal: dict[str, Any]) -> str:
        if proposal["value"] not in self.options:
            raise traitlets.TraitError(
                f"{self.label} ({self.name}) must be one of {self.options} (got {proposal['value']!r})"
            )
        return proposal["value"]


class Switch(Control):
    """On or off."""

    value = traitlets.Bool(False).tag(live=True)

    def __init__(self, name: str, label: str, value: bool, **kwargs: Any) -> None:
        super().__init__(kind="checkbox", name=name, label=label, value=value, **kwargs)


class Tabs(Control):
    """The titles of an explorer's views, of which one is open; for the keyboard a list of tabs as browsers know it.

    Hidden while there is one view alone. ``options`` changes with what there is to show.
    """

    value = traitlets.Unicode("").tag(live=True)
    options = traitlets.List(traitlets.Unicode()).tag(live=True)

    def __init__(self, label: str) -> None:
        super().__init__(kind="tabs", name="view", label=label)


class CodePanel(Stored):
    """A button that shows the code reproducing an explorer's present state, and one that copies it."""

    _esm = (STATIC / "code.js").read_text(encoding="utf-8")
    store_type = CodeStore

    code = traitlets.Unicode("").tag(live=True)
    shown = traitlets.Bool(False).tag(live=True)
