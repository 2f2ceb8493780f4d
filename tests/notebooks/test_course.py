"""The notebooks as a course: one order, one question each, a guess before the answer, the lines that run."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from gnnsample_widgets import Guess
from gnnsample_widgets.lesson import listing

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in sorted(FOLDER.glob("*.ipynb"))}
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(?:#[^)]*)?\)")


def cell(name: str, cell_id: str) -> Any:
    return next(cell for cell in NOTEBOOKS[name].cells if cell.id == cell_id)


def place(name: str, cell_id: str) -> int:
    return [cell.id for cell in NOTEBOOKS[name].cells].index(cell_id)


def title(name: str) -> str:
    return str(cell(name, "title").source.splitlines()[0].removeprefix("# "))


def the_course() -> list[tuple[str, str, int, str]]:
    """The one list: text of the link, notebook, minutes and question, from notebook 00."""
    rows = re.findall(
        r"^\d+\. \[([^\]]+)\]\((\w+)\.ipynb\), (\d+) minutes\. (.+)$",
        cell("00_start_here", "course").source,
        re.M,
    )
    return [(text, name, int(minutes), question) for text, name, minutes, question in rows]


ORDER = [name for _, name, _, _ in the_course()]


def test_the_list_is_the_order_of_the_course() -> None:
    assert [name[:2] for name in ORDER] == ["00", "01", "02", "05", "06", "07", "08", "03", "04", "09", "10"]
    assert sorted(ORDER) == list(NOTEBOOKS)


@pytest.mark.parametrize("name", ORDER)
def test_links_at_top_and_bottom_follow_the_list(name: str) -> None:
    at = ORDER.index(name)
    before, after = ORDER[max(at - 1, 0) : at], ORDER[at + 1 : at + 2]
    top = LINK.findall(cell(name, "title").source)
    bottom = LINK.findall(cell(name, "references").source.splitlines()[-1])
    neighbours = {f"{other}.ipynb" for other in before + after}
    rest = {"00_start_here.ipynb", "glossary.md"}
    for links in (top, bottom):
        assert neighbours <= {target for _, target in links} <= neighbours | rest
    for text, target in top + bottom:
        other = target.removesuffix(".ipynb")
        if other in before:
            assert text in (f"← {title(other)}", title(other), "all notebooks")
        elif other in after:
            assert text in (f"{title(other)} →", title(other))


@pytest.mark.parametrize("row", the_course(), ids=ORDER)
def test_a_notebook_says_what_the_list_says(row: tuple[str, str, int, str]) -> None:
    text, name, minutes, question = row
    assert text == title(name)
    assert cell(name, "title").source.endswith(f"\n\n**{question}**") and question.endswith("?")
    about = cell(name, "about").source
    assert re.findall(r"\*\*Time\*\* (\d+) minutes", about) == [str(minutes)]
    assert "**Afterwards you can**\n\n- " in about and "**You should know**" in about
    lecturers = (FOLDER / "for_lecturers.md").read_text(encoding="utf-8")
    assert re.findall(rf"\]\({name}\.ipynb\) \| (\d+) \|", lecturers) == [str(minutes)]


@pytest.mark.parametrize("name", ORDER)
def test_the_guess_comes_before_anything_is_shown(name: str) -> None:
    cells = NOTEBOOKS[name].cells
    assert [c.id for c in cells[:3]] == ["title", "guess", "about"]
    head = "\n".join(c.source for c in cells[:3])
    assert not re.search(r"!\[|\bshow\(|Explorer\(", head), "no picture of the answer before the guess"
    first_picture = next(i for i, c in enumerate(cells) if "![" in c.source or "show(" in c.source)
    assert first_picture > 2


@pytest.mark.parametrize("name", ORDER)
def test_a_guess_is_asked_for_and_can_be_made(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(cell(name, "guess").source, scope)
    guess = scope["guess"]
    assert isinstance(guess, Guess) and guess.question.endswith("?") and not guess.locked
    guess.value = guess.options[0] if guess.options else 50.0
    guess.lock()
    assert guess.locked
    guess.close()


@pytest.mark.parametrize("name", ORDER)
def test_the_result_is_computed_beside_the_explorer(name: str) -> None:
    at = place(name, "reveal")
    assert "Explorer(" in NOTEBOOKS[name].cells[at - 1].source
    calls = [
        node
        for node in ast.walk(ast.parse(cell(name, "reveal").source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "guess.reveal"
    ]
    assert len(calls) == 1
    assert not isinstance(calls[0].args[0], ast.Constant), "the library says it, on this graph"
    others = [
        c.source for c in NOTEBOOKS[name].cells if c.cell_type == "code" and c.id not in ("guess", "reveal")
    ]
    assert "guess.reveal" not in "".join(others)


@pytest.mark.parametrize("name", ORDER)
def test_the_lines_that_run_are_shown_where_it_says_why(name: str) -> None:
    shown = [
        (place(name, c.id), match)
        for c in NOTEBOOKS[name].cells
        for match in re.findall(r'show_code\("(.+?)"\)', c.source)
    ]
    assert shown and {mechanism for _, mechanism in shown} <= set(listing.MECHANISMS)
    assert all(place(name, "why") < at < place(name, "exercises") for at, _ in shown)


def test_every_mechanism_is_in_the_course() -> None:
    text = "".join(c.source for book in NOTEBOOKS.values() for c in book.cells)
    assert set(re.findall(r'show_code\("(.+?)"\)', text)) == set(listing.MECHANISMS)


@pytest.mark.parametrize("name", ORDER)
def test_which_one_wins_is_said_with_its_record(name: str) -> None:
    text = cell(name, "wins").source
    assert re.match(r"\*\*(Which|None)", text)
    for record in re.findall(r"`(?:data/measured/)?([\w-]+\.json)`", text):
        assert (FOLDER.parent / "data" / "measured" / record).is_file(), record


@pytest.mark.parametrize("path", [*FOLDER.glob("*.ipynb"), *FOLDER.glob("*.md")], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join(c.source for c in NOTEBOOKS[path.stem].cells if c.cell_type == "markdown")
    for _, target in LINK.findall(re.sub(r"`[^`\n]*`|```.*?```", "", text, flags=re.S)):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize(
    "word", ["SM", "warp", "transit", "hotness", "match degree", "thread block", "sector", "ticket"]
)
def test_the_glossary_has_the_word(word: str) -> None:
    entries = re.findall(r"^\| \*\*(.+?)\*\*", (FOLDER / "glossary.md").read_text(encoding="utf-8"), re.M)
    assert any(word in entry.split(", ") for entry in entries)
    assert any(entry == "block" for entry in entries), "block in both senses"
