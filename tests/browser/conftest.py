"""One JupyterLab and one Chromium for all tests of a process, and a notebook that tests after each other share.

Each of them takes longer to start than most tests to run, and a browser that is new compiles all of JupyterLab again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.browser import lab_server
from tests.browser.lab_server import ROOT, Server

DATASET = "arxiv-like"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """JupyterLab on a copy of the notebooks."""
    folder = tmp_path_factory.mktemp("notebooks")
    shutil.copytree(ROOT / "notebooks", folder, dirs_exist_ok=True)
    settings = {"LAB_DATASET": DATASET, "LAB_DEVICE": "cpu"}
    with lab_server.running_lab(folder, tmp_path_factory.mktemp("jupyter"), settings) as found:
        yield found


@pytest.fixture(scope="session")
def new_page(chromium: str) -> Iterator[Callable[..., Any]]:
    """Opens a page of the browser, ``width`` by ``height`` pixels; pages share what was loaded before."""
    pytest.importorskip("playwright.sync_api")
    with lab_server.browser_context(chromium) as context:

        def opened(width: int = 1500, height: int = 1000) -> Any:
            page: Any = context.new_page()  # type: ignore[attr-defined]
            page.set_viewport_size({"width": width, "height": height})
            return page

        yield opened


@dataclass(frozen=True)
class Opened:
    """A notebook all of whose cells have run, and what went wrong in its page since."""

    name: str
    page: Any
    problems: list[str]


@pytest.fixture(scope="module")
def opened(request: pytest.FixtureRequest, new_page: Callable[..., Any], server: Server) -> Iterator[Opened]:
    """The notebook that the parameter names; pytest runs a module's tests of one notebook after each other."""
    found = Opened(request.param, new_page(), [])
    found.page.on("pageerror", lambda error: found.problems.append(str(error)))
    lab_server.open_notebook(found.page, server, f"{found.name}.ipynb")
    lab_server.run_all(found.page)
    found.page.wait_for_function(lab_server.ALL_DRAWN)
    yield found
    found.page.close()
    server.end_sessions()
