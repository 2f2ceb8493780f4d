"""Pieces of a suite that are done, kept on the disk: ``bench --resume`` goes on where a run was cut off.

A piece is all that a suite compares with one another: a graph, or an application on it. So no ratio is of two runs.
Pieces are of one source, one kind of card and its software, and one choice of graphs; a file of others is begun anew.
"""

from __future__ import annotations

import copy
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnnsample_lab.files import replace_file

from .record import plain

_ABOUT = ("date", "commit", "modified", "cpu", "cpu_cores", "host")
"""Of an environment what may differ between the pieces of one record."""


class Pieces:
    """The pieces of one run of a suite.

    Args:
        file: where they are kept, one JSON text a line: what they are of, then each piece.
        of: what must be the same for pieces to belong together.
        environment: of this run, as a record has it.
    """

    def __init__(self, file: Path, of: dict[str, Any], environment: dict[str, Any]) -> None:
        self.file, self.environment = file, {name: environment.get(name) for name in _ABOUT}
        self._found: dict[str, dict[str, Any]] = {}
        self._earlier: set[str] = set()
        head, *lines = _whole_lines(file) or [None]
        kept = [json.dumps({"of": plain(of)})]
        if head == json.loads(kept[0]):
            whole = itertools.takewhile(_is_piece, lines)
            self._found = {json.dumps(line["key"]): line for line in whole}
            self._earlier = set(self._found)
            kept += [json.dumps(line) for line in self._found.values()]
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, "".join(f"{line}\n" for line in kept).encode())

    def get(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What an earlier run found for ``key``, else ``make()``, which is kept; as JSON has it."""
        name = json.dumps(plain(key))
        if name not in self._found:
            began = time.perf_counter()
            found = plain(make())
            piece = {
                "key": plain(key), "found": found, "seconds": time.perf_counter() - began,
                "environment": plain(self.environment),
            }  # fmt: skip
            with self.file.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(piece, allow_nan=False)}\n")
            self._found[name] = piece
        # A caller may add to what it gets: ratios of a row, say.
        return copy.deepcopy(self._found[name]["found"])

    @property
    def earlier_seconds(self) -> float:
        """That earlier runs took for the pieces that this one did not measure."""
        return sum(float(self._found[name]["seconds"]) for name in self._earlier)

    def earlier(self) -> list[dict[str, Any]]:
        """Of each earlier run, in the order of time: its ``environment``, and of how many ``pieces`` it is."""
        runs: dict[str, dict[str, Any]] = {}
        for name in self._earlier:
            at = self._found[name]["environment"]
            runs.setdefault(at["date"], {"environment": at, "pieces": 0})["pieces"] += 1
        return [runs[date] for date in sorted(runs)]


def _is_piece(line: Any) -> bool:
    """Whether a line is one of :meth:`Pieces.get`: a file may have been edited."""
    return (
        isinstance(line, dict)
        and {"key", "found", "seconds", "environment"} <= set(line)
        and isinstance(line["seconds"], float)
        and isinstance(line["environment"], dict)
        and "date" in line["environment"]
    )


def _whole_lines(file: Path) -> list[Any]:
    """The file's lines up to the first that was not written to its end; none where there is no file."""
    found: list[Any] = []
    if file.exists():
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                break
    return found
