"""The recorded pictures in the notebooks: every explorer at its default setting, drawn by Chromium into a small PNG.

The notebooks say which explorers there are. A picture stands at the end of the Markdown cell before its explorer's
cell, with a caption that names the setting, the graph and the device; both are written here and nowhere else. A picture
holds the words that it shows, so that one that is out of date can be told without drawing it.
"""

from __future__ import annotations

import argparse
import ast
import html
import importlib
import re
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnsample_lab.doctor import find_chromium

WIDTH = 1200
"""Pixels of a picture; one or two panels side by side."""
MOST_BYTES = 300_000
_TIMEOUT_S = 120
_EMBEDDED = re.compile(r"(?:\n+|\A)!\[[^\]]*\]\(images/[^)]*\)\n\n\*recorded: [^*]*\*\Z")


@dataclass(frozen=True)
class Picture:
    """An explorer of a notebook.

    Attributes:
        notebook: the file. cell: id of the code cell that opens the explorer. kind: name of its class.
        state: what the cell sets, by name. name: of the PNG, without its folder.
    """

    notebook: Path
    cell: str
    kind: str
    state: dict[str, Any] = field(default_factory=dict)
    name: str = ""


def _call(source: str) -> tuple[str, dict[str, Any]] | None:
    """Class and literal arguments of the explorer that a cell opens; None where it opens none."""
    for line in ast.parse(source).body:
        call = line.value if isinstance(line, (ast.Expr, ast.Assign)) else None
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id.endswith("Explorer")
        ):
            given = {
                k.arg: k.value.value for k in call.keywords if k.arg and isinstance(k.value, ast.Constant)
            }
            return call.func.id, given
    return None


def listed(folder: Path) -> list[Picture]:
    """The pictures of all notebooks of a folder, in the order of their files."""
    import nbformat

    found: list[Picture] = []
    for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            call = _call(cell.source) if cell.cell_type == "code" and "Explorer(" in cell.source else None
            if call:
                name = re.sub(r"(?<!^)(?=[A-Z])", "_", call[0]).lower()
                if any(picture.name == f"{name}.png" for picture in found):
                    name += f"_{path.name[:2]}"
                found.append(Picture(path, cell.id, *call, name=f"{name}.png"))
    return found


def caption(explorer: Any) -> str:
    """What a picture shows of an explorer: setting, graph, device."""
    graph = explorer.graph.title if explorer.on_graph else "no graph"
    device = "CPU" if explorer.device == "cpu" else "GPU"
    return f"recorded: default setting, {graph}, {device}"


def page(explorer: Any) -> str:
    """An HTML page with the heading, the settings and the open view's panels of an explorer; plotly.js included."""
    import plotly.io

    open_view = [name for name in explorer.figures if name in shown_panels(explorer)]
    width = WIDTH // max(1, len(open_view)) - 24
    panels: list[str] = []
    for name in open_view:
        figure = explorer.figures[name]
        # Title and subtitle wrap above the plot, as in the page, and the legend stands below it.
        title, _, subtitle = (figure.layout.title.text or name).partition("<br>")
        drawn = type(figure)(figure).update_layout(
            width=width, height=explorer.panel_height, autosize=False, title=None, margin={"t": 30}
        )
        if len(open_view) > 1:
            drawn.update_layout(
                legend={"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "yref": "paper"}
            )
        part = plotly.io.to_html(
            drawn, full_html=False, include_plotlyjs=not panels, config={"staticPlot": True}
        )
        panels.append(f"<div style='width:{width}px'><h2>{title}</h2><p>{subtitle}</p>{part}</div>")
    settings = " · ".join(_setting(control) for control in explorer.controls.values())
    return (
        "<!doctype html><meta charset='utf-8'><style>body{margin:12px;font:13px sans-serif;color:#1f2328;"
        "background:#fff}h1{font-size:17px;margin:0 0 6px}h2{font-size:15px;margin:8px 0 2px}"
        "p{margin:0 0 8px}.row{display:flex;gap:12px}</style>"
        f"<h1>{html.escape(explorer.heading)}</h1><p>{settings}</p><div class='row'>{''.join(panels)}</div>"
    )


def shown_panels(explorer: Any) -> tuple[str, ...]:
    """Names of the one or two panels of the view that is open."""
    views = explorer._views_of(list(explorer.figures))
    return tuple(views.get(explorer.view) or list(explorer.figures)[:2])


def _setting(control: Any) -> str:
    value, per = control.value, getattr(control, "per", 1) or 1
    if per != 1 and not isinstance(value, bool):
        value = f"{value / per:g}"
    text = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return html.escape(f"{control.label}: {text}{getattr(control, 'unit', '')}")


def words(explorer: Any) -> str:
    """What a picture of an explorer says, line by line: heading, settings, titles of panels and axes, names of traces
    and notes."""
    lines = [explorer.heading, *(_setting(control) for control in explorer.controls.values())]
    for name in shown_panels(explorer):
        layout, traces = explorer.figures[name].layout, explorer.figures[name].data
        axes = [layout[key].title.text for key in sorted(layout) if key[1:5] == "axis"]
        notes = [note.text for note in layout.annotations]
        lines += [layout.title.text or name, *axes, *(trace.name for trace in traces), *notes]
    plain = (html.unescape(re.sub("<[^>]*>", " ", line)) for line in lines if line)
    return "\n".join(dict.fromkeys(" ".join(line.split()) for line in plain))


def words_of(picture: Path) -> str:
    """The :func:`words` that a PNG of :func:`draw` holds; empty where it holds none."""
    data, at = picture.read_bytes(), 8
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"iTXt" and data[at + 8 :].startswith(_WORDS):
            return data[at + 8 + len(_WORDS) : at + 8 + length].decode()
        at += 12 + length
    return ""


# Keyword, then no compression, no language, no other keyword.
_WORDS = b"Description\0\0\0\0\0"


def _with_words(png: bytes, text: str) -> bytes:
    """A PNG with a chunk of text before its last chunk, which is always 12 bytes."""
    chunk = b"iTXt" + _WORDS + text.encode()
    return (
        png[:-12]
        + struct.pack(">I", len(chunk) - 4)
        + chunk
        + struct.pack(">I", zlib.crc32(chunk))
        + png[-12:]
    )


def draw(source: str, target: Path, height: int, says: str = "") -> None:
    """A page as a PNG.

    Args:
        source: the HTML. target: the file. height: of the picture, in pixels. says: what :func:`words_of` finds there.

    Raises:
        RuntimeError: Chromium is not here, or draws nothing.
    """
    chromium = find_chromium()
    if chromium is None:
        raise RuntimeError("pictures are drawn by Chromium: install chromium, or set LAB_CHROMIUM")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lab-picture-", ignore_cleanup_errors=True) as scratch:
        document = Path(scratch) / "page.html"
        document.write_text(source, encoding="utf-8")
        drawn = Path(scratch) / "page.png"
        command = [
            chromium, "--headless", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={scratch}/profile", f"--window-size={WIDTH},{height}", "--virtual-time-budget=8000",
            f"--screenshot={drawn}", document.as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if not drawn.is_file():
            raise RuntimeError(f"Chromium drew nothing: {done.stderr.strip()[-300:]}")
        target.write_bytes(_with_words(drawn.read_bytes(), says))


def embed(picture: Picture, alt: str, below: str) -> None:
    """Write a picture and its caption to the end of the Markdown cell before the explorer's cell, or to a new one."""
    import nbformat

    notebook = nbformat.read(picture.notebook, as_version=4)
    index = next(i for i, cell in enumerate(notebook.cells) if cell.id == picture.cell)
    if notebook.cells[index - 1].cell_type != "markdown":
        notebook.cells.insert(index, nbformat.v4.new_markdown_cell("", id=f"{picture.cell}-picture"))
        index += 1
    before = notebook.cells[index - 1]
    text = _EMBEDDED.sub("", before.source).rstrip()
    before.source = f"{text}\n\n![{alt}](images/{picture.name})\n\n*{below}*".lstrip()
    picture.notebook.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def opened(picture: Picture, graph: Any) -> Any:
    """The explorer of a picture on ``graph``, at its default setting, on the CPU unless LAB_DEVICE says otherwise."""
    kind = getattr(importlib.import_module("gnnsample_widgets"), picture.kind)
    return kind(*([graph] if kind.on_graph else []), raise_errors=True, **picture.state)


def renew(folder: Path, graph: Any, only: str = "") -> Iterator[Path]:
    """Draw the pictures of all notebooks of ``folder`` anew, and write their captions; the files, one by one.

    Args:
        folder: of the notebooks; pictures go to ``images/`` below it.
        graph: that the explorers open.
        only: names of pictures must contain this.

    Raises:
        RuntimeError: as :func:`draw`.
    """
    for picture in listed(folder):
        if only not in picture.name:
            continue
        explorer = opened(picture, graph)
        target = folder / "images" / picture.name
        draw(page(explorer), target, explorer.panel_height + 190, words(explorer))
        panels = ", ".join(
            re.sub("<[^>]*>", " ", explorer.figures[name].layout.title.text or name).split("  ")[0].strip()
            for name in shown_panels(explorer)
        )
        alt = f"{explorer.heading}: {panels}".replace("[", "(").replace("]", ")")
        embed(picture, " ".join(alt.split()), caption(explorer))
        explorer.close()
        yield target


def main(arguments: list[str]) -> int:
    """The command ``gnnsample-lab pictures``."""
    parser = argparse.ArgumentParser(
        prog="gnnsample-lab pictures", description="Draw the notebooks' recorded pictures anew, in Chromium."
    )
    parser.add_argument("--notebooks", type=Path, help="folder (default: the checkout's own)")
    parser.add_argument("--graph", default="arxiv-like", help="that explorers open (default: arxiv-like)")
    parser.add_argument("--only", default="", metavar="TEXT", help="pictures whose name contains this")
    options = parser.parse_args(arguments)
    from gnnsample_lab import load
    from gnnsample_lab.resources import checkout_root, resource_path

    if options.notebooks is None and checkout_root() is None:
        parser.error("--notebooks is needed: an installed package keeps its notebooks as they are")
    folder = options.notebooks or resource_path("notebooks")
    found = False
    for path in renew(folder, load(options.graph), options.only):
        print(f"{path.name}: {path.stat().st_size / 1e3:,.0f} kB")
        found = True
    if not found:
        raise ValueError(f"{folder} has no notebook with a picture whose name contains {options.only!r}")
    return 0
