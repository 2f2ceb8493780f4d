"""How much an application adds at each step."""

from __future__ import annotations

from dataclasses import dataclass

from gnnsample_lab.checks import flag, whole

from .language.app import INF, SamplingApp

MAX_SLOTS = 2**31 - 1
"""Most slots of one sample and step: the draw's counter has no room for more."""
MAX_STEPS = 2**24 - 2
UNBOUNDED_STEPS = 10_000
"""Steps after which an application with an infinite number of steps is refused as one that does not end."""


@dataclass(frozen=True)
class StepShape:
    """Sizes of one step.

    Attributes:
        transits: transits per sample, the paper's t.
        size: calls of ``next`` per transit (individual) or per sample (collective), the paper's m.
        width: slots per sample.
        unique: whether a sample's slots are to hold distinct vertices.
    """

    transits: int
    size: int
    width: int
    unique: bool


class Shape:
    """Sizes of all steps of an application, computed on demand.

    Raises:
        TypeError, ValueError: a function of the application returns something that is not a size; the message names it.
    """

    def __init__(self, app: SamplingApp, num_roots: int, max_steps: int | None = None) -> None:
        steps = app.steps()
        if steps != INF:
            whole("steps()", steps, 0, MAX_STEPS)
        self.endless = steps == INF
        self.bound = UNBOUNDED_STEPS if self.endless else int(steps)
        self.bound_is_error = self.endless and max_steps is None
        if max_steps is not None:
            limit = whole("max_steps", max_steps, 0, MAX_STEPS)
            self.bound = limit if self.endless else min(self.bound, limit)
        whole("max_redraws", app.max_redraws, 0, 63)
        self.num_roots, self._app, self._steps = num_roots, app, list[StepShape]()

    def __getitem__(self, step: int) -> StepShape:
        """Sizes of step ``step``."""
        while len(self._steps) <= step:
            self._steps.append(self._next())
        return self._steps[step]

    def ahead(self, step: int) -> StepShape | None:
        """Sizes of a step that may never come; None where it has none: samples may end before that is an error."""
        try:
            return self[step]
        except ValueError:
            return None

    def span(self, first: int, count: int) -> list[StepShape]:
        """Sizes of ``count`` steps from ``first`` on."""
        if count:
            self[first + count - 1]
        return self._steps[first : first + count]

    def _next(self) -> StepShape:
        step, app = len(self._steps), self._app
        size = whole(f"sample_size({step})", app.sample_size(step), 1, MAX_SLOTS)
        given = app.num_transits(step)
        before = self._steps[-1].width if self._steps else self.num_roots
        transits = before if given is None else whole(f"num_transits({step})", given, 1, MAX_SLOTS)
        width = size if app.is_collective else transits * size
        if width > MAX_SLOTS:
            raise ValueError(
                f"step {step} would add {width} vertices to a sample; at most {MAX_SLOTS} are possible"
            )
        return StepShape(transits, size, width, flag(f"unique({step})", app.unique(step)))
