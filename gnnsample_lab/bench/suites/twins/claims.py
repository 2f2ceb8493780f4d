"""What may be said of a figure that is drawn on a twin, by the recorded comparison with its original."""

from __future__ import annotations

import functools
import re
from typing import Any

from gnnsample_lab.bench.suite import Record
from gnnsample_lab.files import read_json, reading
from gnnsample_lab.resources import resource_path

from . import table
from .judge import TOLERANCES

RECORD = "data/measured/twins.json"
NOT_COMPARABLE = "not comparable with the original"
NOTHING = "No comparison of twins with their originals is recorded."
VERSION = 3
"""Generator of the twins that the record is about; those of earlier ones were never accepted."""


@functools.cache
def recorded() -> Record | None:
    """The record that was shipped, None where there is none.

    Raises:
        CorruptDataError: it is damaged.
    """
    try:
        path = resource_path(RECORD)
    except FileNotFoundError:
        return None
    with reading(path, "a benchmark record"):
        record: Record = read_json(path)
        table.verdicts(record)  # whoever reads it later would not know the file
        return record


def comparable(twin: str, quantity: str) -> bool:
    """Whether a figure of ``quantity`` on a twin may be held beside one on its original.

    It may when all cells of the quantity that were compared are inside their tolerance, and at least one was.

    Args:
        twin: name of the twin, such as ``"products-like"``, or of its original.
        quantity: ``"rows"``, ``"frontier"``, ``"hit rate"``, ``"match degree"``, ``"match spread"``, ``"similarity"``,
            ``"degree quantile"``, ``"top share"``, ``"gini"`` or ``"clustering"``.

    Raises:
        ValueError: no such quantity.
    """
    if quantity not in TOLERANCES:
        raise ValueError(f"quantity must be one of {', '.join(TOLERANCES)} (got {quantity!r})")
    return table.is_comparable(recorded(), twin.partition("@")[0], quantity)


def titled(graph: Any, quantity: str) -> str:
    """Title of a graph for a figure of ``quantity``; that of a twin says when the figure is not comparable."""
    return said(graph.title, graph.name, bool(graph.is_synthetic), quantity, getattr(graph, "version", None))


def said(title: str, name: str, is_synthetic: bool, quantity: str, version: int | None) -> str:
    """``title``, with a remark where the graph is a twin whose ``quantity`` is not comparable.

    Args:
        title, name, is_synthetic: of the graph. A generated graph without an original, such as an R-MAT one, stands for
            itself.
        quantity: as in :func:`comparable`.
        version: of the generator; None where a record does not tell.
    """
    if not is_synthetic or not stands_for_another(name, version):
        return title
    if version == VERSION and comparable(name, quantity):
        return title
    return f"{title}, {NOT_COMPARABLE}"


def stands_for_another(name: str, version: int | None = None) -> bool:
    """Whether a generated graph is the twin of some original: by the catalogue, or by its generator's version."""
    from gnnsample_lab.graph.catalogue import entries

    entry = entries().get(name.partition("@")[0])
    return bool(entry.get("twin_of")) if entry else version is not None or name.endswith(table.TWIN)


class TwinsTable:
    """The recorded comparison of twins with their originals; a notebook shows it as a table."""

    def __init__(self, record: Record | None) -> None:
        self.record = record

    def _repr_markdown_(self) -> str:
        return as_shown(table.markdown(self.record)) if self.record else NOTHING

    def __repr__(self) -> str:
        if not self.record:
            return NOTHING
        rows = table.verdicts(self.record)
        return "\n".join(
            f"{row['graph']}: {row['inside']} of {row['cells']} cells inside, {row['reproduced']} of "
            f"{row['predicted']} predicted ones; {'accepted' if row['accepted'] else 'not accepted'}"
            for row in rows
        )


def as_shown(markdown: str) -> str:
    """Markdown for JupyterLab: its narrow columns break a number at each space, and it takes ``twin-like@0.1`` for an
    address of mail."""
    unbroken = re.sub(r"(?<=\d) (?=\d{3}(?!\d))", "\N{NO-BREAK SPACE}", markdown)
    # In the table names are code, where JupyterLab looks for no address and would show the entity as it is written.
    return "\n".join(
        line if line.startswith("|") else line.replace("@", "&#64;") for line in unbroken.splitlines()
    )


def twins_table() -> TwinsTable:
    """Twins beside their originals, as recorded: what is inside its tolerance, what is outside and by how much."""
    return TwinsTable(recorded())
