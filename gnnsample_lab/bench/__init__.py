"""Benchmarks: verify first, then time, then report ratios beside the papers' values."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("list_suites", "main", "run"):
        from . import runner

        return getattr(runner, name)
    if name in ("comparable", "titled", "twins_table"):
        from .suites.twins import claims

        return getattr(claims, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
