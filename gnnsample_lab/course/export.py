"""The course as pages: every notebook in HTML, with its pictures inside, for readers without Python."""

from __future__ import annotations

import argparse
import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnnsample_lab.resources import resource_path

_STYLE = "body{max-width:52rem;margin:2rem auto;padding:0 1rem;font:16px/1.5 sans-serif}"
_SHOWN = ["text/html", "image/svg+xml", "image/png", "text/markdown", "text/latex", "text/plain"]
_LOCAL = re.compile(r'(href="(?!\w+:)[^"#]*)\.(?:ipynb|md)(#[^"]*)?"')


def linked(page: str) -> str:
    """A page whose links to notebooks and Markdown files lead to their pages."""
    return _LOCAL.sub(r'\1.html\2"', page)


def run(notebook: Any, folder: Path) -> Any:
    """The notebook with the outputs of a run, explorers as pictures where kaleido and Chromium are here.

    Args:
        notebook: read with nbformat. folder: where its cells run.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    from nbclient import NotebookClient

    before = os.environ.get("LAB_STATIC_IMAGES")
    os.environ["LAB_STATIC_IMAGES"] = "1"
    try:
        client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}})
        return client.execute()
    finally:
        os.environ.pop("LAB_STATIC_IMAGES")
        if before is not None:
            os.environ["LAB_STATIC_IMAGES"] = before


def export(source: Path, target: Path, *, execute: bool = False) -> Iterator[Path]:
    """Write the course to a folder: a page for each notebook and each Markdown file, and ``index.html``.

    Args:
        source: folder of the notebooks. target: folder of the pages; made if need be.
        execute: run the notebooks, so that pages show what their cells print and draw.

    Yields:
        Each file that was written.

    Raises:
        ImportError: nbconvert is not installed.
        ValueError: ``source`` has no notebooks.
    """
    import nbformat
    from nbconvert import HTMLExporter
    from nbconvert.filters.markdown import markdown2html
    from traitlets.config import Config

    notebooks = sorted(source.glob("[0-9][0-9]_*.ipynb"))
    if not notebooks:
        raise ValueError(f"{source} has no notebooks")
    target.mkdir(parents=True, exist_ok=True)
    # Widgets do not live without a kernel; their pictures and texts do.
    exporter = HTMLExporter(
        config=Config({"NbConvertBase": {"display_data_priority": _SHOWN}}), embed_images=True
    )
    entries = []
    for path in notebooks:
        notebook = nbformat.read(path, as_version=4)
        title = notebook.cells[0].source.splitlines()[0].lstrip("# ")
        if execute:
            notebook = run(notebook, source)
        resources = {"metadata": {"name": title, "path": str(source)}}
        body, _ = exporter.from_notebook_node(notebook, resources=resources)
        page = target / f"{path.stem}.html"
        page.write_text(linked(body), encoding="utf-8")
        entries.append(f'<li><a href="{page.name}">{html.escape(title)}</a></li>')
        yield page
    for path in sorted(source.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        title = html.escape(text.splitlines()[0].lstrip("# "))
        page = target / f"{path.stem}.html"
        page.write_text(linked(_framed(title, markdown2html(text))), encoding="utf-8")
        entries.append(f'<li><a href="{page.name}">{title}</a></li>')
        yield page
    index = target / "index.html"
    title = "GPU graph sampling, a course"
    index.write_text(_framed(title, f"<h1>{title}</h1><ul>{''.join(entries)}</ul>"), encoding="utf-8")
    yield index


def _framed(title: str, body: str) -> str:
    head = (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title><style>{_STYLE}</style>"
    )
    return f"{head}<body>{body}</body></html>"


def main(arguments: list[str]) -> int:
    """The command ``gnnsample-lab export-html``."""
    parser = argparse.ArgumentParser(
        prog="gnnsample-lab export-html", description="The notebooks as a static course in HTML."
    )
    parser.add_argument("folder", type=Path, help="where the pages go")
    parser.add_argument("--notebooks", type=Path, help="folder (default: the ones that are shipped)")
    parser.add_argument(
        "--execute", action="store_true", help="run them first, and show what they print and draw"
    )
    options = parser.parse_args(arguments)
    source = options.notebooks or resource_path("notebooks")
    for path in export(source, options.folder, execute=options.execute):
        print(path)
    return 0
