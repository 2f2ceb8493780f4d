"""The worked solutions in ``notebooks/solutions``, read from there and run, so that they cannot rot."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

import gnnsample_lab as lab

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
FOLDER = NOTEBOOKS / "solutions"
HEADING = re.compile(r"^## (\d+) · (\w+) \((\d+) minutes\)$", re.M)


@dataclass(frozen=True)
class Solution:
    """One exercise in a file of solutions.

    Attributes:
        number: of the exercise in its notebook, from 1.
        checker: name of the checker.
        minutes: that it takes.
        text: what stands between its heading and the next, the code included.
        code: the worked solution; its last line asks the checker.
    """

    number: int
    checker: str
    minutes: int
    text: str
    code: str


def path_of(number: str) -> Path:
    """The file of the notebook whose name begins with ``number``."""
    (found,) = FOLDER.glob(f"{number}_*.md")
    return found


@functools.lru_cache
def solutions(number: str) -> tuple[Solution, ...]:
    """The solutions of a notebook, in the order of the file."""
    text = path_of(number).read_text(encoding="utf-8")
    parts = HEADING.split(text)[1:]
    found = []
    for at in range(0, len(parts), 4):
        (code,) = re.findall(r"```python\n(.*?)```", parts[at + 3], flags=re.S)
        found.append(Solution(int(parts[at]), parts[at + 1], int(parts[at + 2]), parts[at + 3], code))
    return tuple(found)


def needed_cells(number: str) -> list[str]:
    """Ids of the notebook's cells that a file of solutions runs after."""
    (line,) = re.findall(r"^Run after .+$", path_of(number).read_text(encoding="utf-8"), flags=re.M)
    return re.findall(r"`([\w-]+)`", line)


def _imports(source: str) -> str:
    """The import lines of the cell that chooses graph and device."""
    lines = [ast.unparse(s) for s in ast.parse(source).body if isinstance(s, (ast.Import, ast.ImportFrom))]
    return "\n".join(lines)


def reader(number: str, graph: Any) -> dict[str, Any]:
    """The names that a reader has who ran the notebook on ``graph``, as far as the solutions need them."""
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}
    names: dict[str, Any] = {"g": graph, "DEVICE": "cpu", "lab": lab, "display": lambda *_: None}
    run(_imports(cells["setup"]), names)
    names["show"] = lambda *_, **__: None  # figures are made, and not drawn
    for name in needed_cells(number):
        run(cells[name], names)
    return names


def run(source: str, names: dict[str, Any]) -> Any:
    """Run code as a cell does; returns the value of a last line that is an expression."""
    import linecache

    # Samplers are compiled from their source, which Python looks up by the name of the file.
    file = f"<solution {abs(hash(source))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    tree = ast.parse(source, file)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, file, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), file, "eval"), names)
