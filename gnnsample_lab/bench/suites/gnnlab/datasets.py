"""The graphs of GNNLab's table 3."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites import catalogued

from . import papers


def table3(session: Session) -> dict[str, Any]:
    """The suite's function."""
    return catalogued.table(session, papers.GRAPHS, "gib")
