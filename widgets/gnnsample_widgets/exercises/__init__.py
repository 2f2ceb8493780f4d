"""The exercises of the notebooks: one checker each, with instant feedback that explains.

Every checker takes one answer and returns a :class:`~gnnsample_widgets.lesson.feedback.Feedback`. A blank
answer (``...``) is reported as such; nothing raises.

A checker is listed where it is defined: by :func:`~gnnsample_widgets.lesson.feedback.exercise`, in the order of the
notebook.
"""

from __future__ import annotations

from collections.abc import Callable

from ..lesson.feedback import Feedback
from . import (
    aggregation,
    caching,
    fusion,
    id_map,
    khop,
    many_gpus,
    matching,
    own_sampler,
    pipelines,
    start,
    transit,
)
from .start import EDGES

ALL: dict[str, tuple[Callable[..., Feedback], ...]] = {
    f"{number:02}": tuple(each for each in vars(module).values() if getattr(each, "is_exercise", False))
    for number, module in enumerate(
        (
            start,
            khop,
            fusion,
            transit,
            own_sampler,
            id_map,
            caching,
            matching,
            aggregation,
            pipelines,
            many_gpus,
        )
    )
}
"""The checkers by notebook."""

_BY_NAME = {checker.__name__: checker for checkers in ALL.values() for checker in checkers}
globals().update(_BY_NAME)

__all__ = ["ALL", "EDGES", *_BY_NAME]
