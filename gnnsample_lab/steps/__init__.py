"""Mechanisms one warp and one line at a time, as twins of the shipped kernels: what the stepper shows."""

from gnnsample_lab.lazy import exports

_EXPORTS = {
    "MECHANISMS": "runs",
    "mutations": "runs",
    "run": "runs",
    "karate_club": "example",
    "Recorded": "base",
    "Step": "base",
    "Access": "base",
    "Mutation": "base",
    "Violation": "base",
}
__all__ = [*_EXPORTS]

__getattr__, __dir__ = exports(__name__, _EXPORTS)
