"""Figures of modelled traces whose times are too far off to be shown: the same pictures without microseconds.

What happens before what, and how much at a time, is the model's statement all the same; how long it takes is none where
recorded runs of the strategy lie farther off than :data:`gnnsample_lab.gpu_model.run_error.ENOUGH`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from gnnsample_lab.gpu_model.run_error import NO_SCALE, has_times

from .sketch import Sketch
from .style import as_list

P = ParamSpec("P")

_NUMBER = r"(?:%\{[^}]*\}|\d[\d,.]*)"
_TIME = re.compile(rf"(?:, | )?(?:\b(?:result complete at|starts at|at|after|waited|runs|ran) )?{_NUMBER} µs")
_UNIT = " (µs)"
_EMPTY_LINES = re.compile(r"^(?:<br>)+|(?:<br>)+(?=<br>|<extra>|$)")
_EMPTY_PARTS = re.compile(r" ·(?=\s*(?:·|</sub>|$))")


def with_times_only_if_known(draw: Callable[P, Any]) -> Callable[P, Any]:
    """A function that sketches a trace or several, of one that writes times: it leaves them out if they are not to be
    shown (:func:`gnnsample_lab.gpu_model.run_error.has_times`) for one of the traces."""

    @functools.wraps(draw)
    def sketch(*args: P.args, **kwargs: P.kwargs) -> Any:
        made: Sketch = draw(*args, **kwargs)
        traces: Any = args[0] if args else next(iter(kwargs.values()))
        if not all(has_times(trace) for trace in as_list(traces)):
            _leave_out(made)
        return made

    return sketch


def words(text: str) -> str:
    """``text`` without times, and without lines of which nothing is left."""
    return _EMPTY_PARTS.sub("", _EMPTY_LINES.sub("", _TIME.sub("", text)))


def _each(text: Any) -> Any:
    """:func:`words` of a text, or of each in an array of them: a heatmap has one for each cell."""
    if isinstance(text, str):
        return words(text)
    if isinstance(text, (list, tuple, np.ndarray)):
        return [_each(part) for part in text]
    return words(str(text))


def _leave_out(made: Sketch) -> None:
    for trace in made.data:
        for key in ("hovertemplate", "name"):
            if isinstance(trace.get(key), str):
                trace[key] = words(trace[key])
        if trace.get("text") is not None:
            trace["text"] = _each(trace["text"])
    for note in made.layout["annotations"]:
        note["text"] = words(note.get("text", ""))
    title = made.layout.get("title", {})
    if "text" in title:
        title["text"] = words(title["text"])
    for key, axis in made.layout.items():
        text = axis.get("title", {}).get("text", "") if key[1:5] == "axis" else ""
        if _UNIT in text:
            what = text.replace(_UNIT, "")
            axis["showticklabels"] = False
            if key[0] == "x" and str(made.layout.get("hovermode", "")).startswith("x"):
                # The label that all traces share would have the time in it.
                made.layout["hovermode"] = "closest"
            axis["title"]["text"] = NO_SCALE if what.startswith("time") else f"{what}, no scale"
