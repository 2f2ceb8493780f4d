"""What the exercises with the stepper share: runs of its mechanisms, made once."""

from __future__ import annotations

import functools

from gnnsample_lab.steps.base import Recorded
from gnnsample_lab.steps.runs import run

recorded = functools.cache(run)
"""A run as the stepper shows it, on its own small graph."""


def culprits(mechanism: str, broken: str) -> tuple[int, ...]:
    """The vertices or lanes that the first violation names."""
    found = recorded(mechanism, broken).violation
    return found[1].culprits if found else ()


def sectors_of(shown: Recorded, array: str) -> int:
    """Sectors of an array over a whole run."""
    return sum(len(each.sectors) for step in shown.steps for each in step.accesses if each.array == array)
