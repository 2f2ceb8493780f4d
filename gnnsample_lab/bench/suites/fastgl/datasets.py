"""The graphs of FastGL's table 6."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites import catalogued

from . import papers


def table6(session: Session) -> dict[str, Any]:
    """The suite's function: the data sets, of which FastGL's suites widen the rows of Products to the paper's."""
    return catalogued.table(session, tuple(row["graph"] for row in papers.TABLE6), "gb")
