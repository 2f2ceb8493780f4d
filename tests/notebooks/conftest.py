"""The graphs that claims are checked on."""

from __future__ import annotations

from typing import Any

import pytest

import gnnsample_lab as lab
from tests.notebooks.claims import GRAPHS


@pytest.fixture(
    scope="session",
    params=[GRAPHS[0], *(pytest.param(name, marks=pytest.mark.exhaustive) for name in GRAPHS[1:])],
)
def graph(request: pytest.FixtureRequest) -> Any:
    """The default twin, and the real graph that many of its numbers differ from."""
    if request.param == "ogbl-ddi":
        return lab.load(request.param, request.getfixturevalue("data_root"))
    return lab.load(request.param)
