"""The graphs of PGSampler's table II."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites import catalogued

from . import papers


def table2(session: Session) -> dict[str, Any]:
    """The suite's function."""
    return catalogued.table(session, tuple(row["graph"] for row in papers.TABLE2), "gb")
