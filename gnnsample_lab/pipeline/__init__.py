"""Sample, extract, train: the loop on one device, its records, and how its stages overlap."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "schedule":  # lab.schedule
        return importlib.import_module(".schedule", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
