"""Benchmarks: verify first, then time, then report ratios beside the papers' values."""

from __future__ import annotations

from gnnsample_lab.lazy import exports

_EXPORTS = {
    "list_suites": "runner",
    "main": "runner",
    "run": "runner",
    "comparable": "suites.twins.claims",
    "titled": "suites.twins.claims",
    "twins_table": "suites.twins.claims",
}

__getattr__, __dir__ = exports(__name__, _EXPORTS)
