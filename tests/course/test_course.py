"""The notebooks as things to hand out: recorded pictures, static pages, and a server of explorers behind a token."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import nbformat
import pytest

import gnnsample_lab as lab
from gnnsample_lab import cli
from gnnsample_lab.course import export, pictures, serve
from gnnsample_lab.resources import resource_path

REPOSITORY = Path(__file__).resolve().parents[2]
NOTEBOOKS = REPOSITORY / "notebooks"
WIDGETS = "from gnnsample_widgets import SampleExplorer\n\nSampleExplorer(g, device=DEVICE, hops=1)"


@pytest.fixture(scope="module")
def drawn_graph() -> lab.Graph:
    """The graph of the pictures."""
    return lab.load("arxiv-like")


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A notebook with an explorer, and a page in Markdown that it leads to."""
    cells = [
        nbformat.v4.new_markdown_cell(
            "# 00 · A start\n\n[words](glossary.md#warp) [next](01_next.ipynb)", id="title"
        ),
        nbformat.v4.new_code_cell("print(6 * 7)", id="sum"),
        nbformat.v4.new_code_cell(WIDGETS, id="explore"),
    ]
    for name in ("00_start", "01_next"):
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    (tmp_path / "glossary.md").write_text("# Glossary\n\n**warp**: 32 threads\n", encoding="utf-8")
    return tmp_path


# ---- pictures -------------------------------------------------------------------------------------------------------


def test_pictures_are_listed_with_what_their_cells_set(course: Path) -> None:
    one, two = pictures.listed(course)
    assert (one.cell, one.kind, one.state, one.name) == (
        "explore",
        "SampleExplorer",
        {"hops": 1},
        "sample_explorer.png",
    )
    assert two.name == "sample_explorer_01.png", "no two explorers share a file"


def test_a_caption_is_written_once_and_renewed(course: Path) -> None:
    one, _ = pictures.listed(course)
    for words in ("recorded: default setting, toy, CPU", "recorded: default setting, another, GPU"):
        pictures.embed(one, "An alternative text", words)
        notebook = nbformat.read(one.notebook, as_version=4)
        nbformat.validate(notebook)
        index = next(i for i, cell in enumerate(notebook.cells) if cell.id == "explore")
        before = notebook.cells[index - 1]
        assert before.id == "explore-picture", "the cell before is code, so that a new one was put in"
        assert before.source == f"![An alternative text](images/{one.name})\n\n*{words}*"
        assert len(notebook.cells) == 4


@pytest.mark.parametrize("picture", pictures.listed(NOTEBOOKS), ids=lambda picture: picture.name)
def test_every_explorer_has_its_picture_beside_it(picture: pictures.Picture) -> None:
    every = nbformat.read(picture.notebook, as_version=4).cells
    index = next(i for i, cell in enumerate(every) if cell.id == picture.cell)
    found = re.search(r"!\[([^\]]+)\]\(images/([^)]+)\)\n\n\*(recorded: [^*]+)\*\Z", every[index - 1].source)
    assert found, "run: gnnsample-lab pictures"
    assert found[2] == picture.name and len(found[1]) > 20
    graph = "no graph" if picture.kind == "PipelineExplorer" else "arxiv-like (synthetic)"
    assert found[3] == f"recorded: default setting, {graph}, CPU"
    drawn = NOTEBOOKS / "images" / picture.name
    assert drawn.read_bytes().startswith(b"\x89PNG") and drawn.stat().st_size < pictures.MOST_BYTES


@pytest.mark.parametrize("picture", pictures.listed(NOTEBOOKS), ids=lambda picture: picture.name)
def test_a_picture_says_what_its_explorer_says_today(
    picture: pictures.Picture, drawn_graph: lab.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    explorer = pictures.opened(picture, drawn_graph)
    try:
        assert pictures.words_of(NOTEBOOKS / "images" / picture.name) == pictures.words(explorer), (
            "run: gnnsample-lab pictures"
        )
    finally:
        explorer.close()


def test_no_picture_is_left_over() -> None:
    kept = {path.name for path in (NOTEBOOKS / "images").iterdir()}
    assert kept == {picture.name for picture in pictures.listed(NOTEBOOKS)}


def test_an_explorer_is_drawn(course: Path, chromium: str, capsys: pytest.CaptureFixture[str]) -> None:
    graph = lab.Graph.from_edges([1, 2, 3, 0], [0, 0, 0, 1], name="four <vertices>")
    (target,) = pictures.renew(course, graph, only="explorer.png")
    assert target == course / "images" / "sample_explorer.png"
    assert target.read_bytes().startswith(b"\x89PNG") and 5_000 < target.stat().st_size < pictures.MOST_BYTES
    said = pictures.words_of(target)
    assert (
        said.startswith("What is sampled: one seed, hop by hop\nSeed vertex: 0\n")
        and "vertices expanded (tasks)" in said
    )
    text = (course / "00_start.ipynb").read_text(encoding="utf-8")
    assert "recorded: default setting, four <vertices>, " in text


def test_without_chromium_nothing_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "find_chromium", lambda: None)
    with pytest.raises(RuntimeError, match="install chromium"):
        pictures.draw("<p>", tmp_path / "x.png", 300)


# ---- static pages ---------------------------------------------------------------------------------------------------


def test_the_course_becomes_pages_that_lead_to_each_other(
    course: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "site"
    assert cli.main(["export-html", str(target), "--notebooks", str(course)]) == 0
    written = [Path(line).name for line in capsys.readouterr().out.splitlines()]
    assert written == ["00_start.html", "01_next.html", "glossary.html", "index.html"]
    page = (target / "00_start.html").read_text(encoding="utf-8")
    assert 'href="01_next.html"' in page and 'href="glossary.html#warp"' in page and ".ipynb" not in page
    index = (target / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'href="([^"]+)"', index) == written[:-1] and "00 · A start" in index
    with pytest.raises(ValueError, match="has no notebooks"):
        list(export.export(target, tmp_path / "again"))


def test_the_shipped_course_is_exported_with_its_pictures(tmp_path: Path) -> None:
    pages = export.export(resource_path("notebooks"), tmp_path)
    last = next(path for path in pages if path.name == "02_workload_fusion.html")  # the others take long
    page = last.read_text(encoding="utf-8")
    assert "data:image/png;base64," in page and "images/queue_explorer.png" not in page


@pytest.mark.slow
def test_a_page_shows_what_its_cells_print(course: Path, tmp_path: Path) -> None:
    (course / "01_next.ipynb").unlink()  # a kernel less
    path = course / "00_start.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = notebook.cells[:2]
    nbformat.write(notebook, path)
    list(export.export(course, tmp_path / "site", execute=True))
    page = (tmp_path / "site" / "00_start.html").read_text(encoding="utf-8")
    assert re.search(r"<pre>42\s*</pre>", page)


# ---- Voila ----------------------------------------------------------------------------------------------------------

HAS_VOILA = importlib.util.find_spec("voila") is not None


def test_the_server_listens_on_loopback_and_asks_for_the_token(tmp_path: Path) -> None:
    arguments = serve.arguments_of(tmp_path, "secret", 8899, browser=False)
    assert "--ServerApp.ip=127.0.0.1" in arguments and "--IdentityProvider.token=secret" in arguments
    assert "--ServerApp.allow_remote_access=False" in arguments and "--ServerApp.port=8899" in arguments
    assert f"--ServerApp.root_dir={tmp_path}" in arguments


@pytest.mark.skipif(HAS_VOILA, reason="Voila is here")
def test_without_voila_one_line_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["voila", "--no-browser"]) == 1
    assert "pip install 'gnnsample-lab[voila]'" in capsys.readouterr().err


def fetched(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=120) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


@pytest.mark.exhaustive
@pytest.mark.skipif(not HAS_VOILA, reason="*** VOILA DID NOT RUN: pip install 'gnnsample-lab[voila]' ***")
def test_voila_serves_explorers_to_who_knows_the_token(tmp_path: Path, chromium: str) -> None:
    """In the browser: an explorer is drawn, a slider moved by the keyboard redraws it, and no code is shown."""
    from playwright.sync_api import sync_playwright

    source = (
        "import gnnsample_lab as lab\nfrom gnnsample_widgets import SampleExplorer\n\n"
        "g = lab.Graph.from_edges([1, 2, 3, 4, 5], [0, 0, 0, 1, 1], name='tree')\nSampleExplorer(g, device='cpu')"
    )
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    cells = [nbformat.v4.new_code_cell(source)]
    nbformat.write(
        nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), tmp_path / "00_tree.ipynb"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "widgets"), os.environ.get("PYTHONPATH", "")])
    command = [
        sys.executable, "-m", "gnnsample_lab.cli", "voila", "--no-browser", "--port", str(port),
        "--notebooks", str(tmp_path),
    ]  # fmt: skip
    env = {**os.environ, "JUPYTER_TOKEN": token, "PYTHONPATH": paths, "LAB_STATIC_IMAGES": "0"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                fetched(f"{url}/api/status?token={token}")
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
                time.sleep(0.2)
        assert fetched(f"{url}/api/status")[0] == 403
        assert "SampleExplorer" not in fetched(f"{url}/voila/render/00_tree.ipynb")[1], "asks for the token"
        with sync_playwright() as play:
            browser = play.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            page: Any = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(120_000)
            page.goto(f"{url}/voila/render/00_tree.ipynb?token={token}")
            status = page.locator(".gs-status")
            status.wait_for()
            page.wait_for_selector(".js-plotly-plot .main-svg")
            assert "from_edges" not in page.inner_text("body")
            before = json.loads(status.get_attribute("data-state"))
            page.locator("input[type=range][name=hops_shown]").focus()
            page.keyboard.press("ArrowLeft")
            page.wait_for_function(
                "(shown) => JSON.parse(document.querySelector('.gs-status').dataset.state).hops_shown !== shown",
                arg=before["hops_shown"],
            )
            browser.close()
    finally:
        process.terminate()
        process.wait(20)
