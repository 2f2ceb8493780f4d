"""One JupyterLab, one Chromium and one page of it for all tests of a process.

Each of them takes longer to start than most tests to run. The page goes from notebook to notebook, and tests of one
notebook that stand in one module share it as it is.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.browser import lab_server
from tests.browser.lab_server import ROOT, Server

DATASET = "arxiv-like"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one notebook come after each other, where the first of them stands."""
    first: dict[Any, int] = {}

    def place(number: int) -> int:
        name = getattr(items[number], "callspec", None) and items[number].callspec.params.get("opened")  # type: ignore[attr-defined]
        return first.setdefault((items[number].path, name), number) if name else number

    items[:] = [items[number] for number in sorted(range(len(items)), key=place)]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """JupyterLab on a copy of the notebooks."""
    folder = tmp_path_factory.mktemp("notebooks")
    shutil.copytree(ROOT / "notebooks", folder, dirs_exist_ok=True)
    settings = {"LAB_DATASET": DATASET, "LAB_DEVICE": "cpu"}
    with lab_server.running_lab(folder, tmp_path_factory.mktemp("jupyter"), settings) as found:
        yield found


@pytest.fixture(scope="session")
def context(chromium: str) -> Iterator[Any]:
    """The browser, for pages that share what it keeps."""
    pytest.importorskip("playwright.sync_api")
    with lab_server.browser_context(chromium) as found:
        yield found


@pytest.fixture(scope="session")
def lab_page(context: Any) -> Any:
    """The page for :func:`.lab_server.open_notebook`; tests set its size."""
    return context.new_page()


@dataclass(frozen=True)
class Opened:
    """A notebook all of whose cells have run, and what went wrong in its page since."""

    name: str
    page: Any
    problems: list[str]


@pytest.fixture(scope="module")
def opened(request: pytest.FixtureRequest, lab_page: Any, server: Server) -> Iterator[Opened]:
    """The notebook that the parameter names."""
    found = Opened(request.param, lab_page, [])

    def listen(error: Any) -> None:
        found.problems.append(str(error))

    lab_page.set_viewport_size({"width": 1500, "height": 1000})
    lab_page.on("pageerror", listen)
    lab_server.open_notebook(lab_page, server, f"{found.name}.ipynb")
    lab_server.run_all(lab_page)
    lab_page.wait_for_function(lab_server.ALL_DRAWN)
    yield found
    lab_page.remove_listener("pageerror", listen)
