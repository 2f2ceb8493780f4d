"""What a graph comes without (features, labels, a training split), in the words of one line, and who has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnnsample_lab.checks import choice, whole
from gnnsample_lab.graph import catalogue

PARTS = ("features", "labels", "training split")
_COLUMNS = {"features": "num_features", "labels": "num_classes", "training split": "num_train"}
_FIRST = ("arxiv-like", "musae-facebook", "ogbn-arxiv")
"""Named before others: generated anywhere, small, the default of the notebooks."""
_NAMED = 3


def lacking(graph: Any, parts: Sequence[str] = PARTS) -> list[str]:
    """Those of ``parts`` that ``graph`` has not.

    Args:
        graph: a Graph.
        parts: of "features", "labels" and "training split".

    Raises:
        ValueError: an unknown part.
    """
    for part in parts:
        choice("parts", part, PARTS)
    has = {
        "features": graph.feat is not None,
        "labels": graph.label is not None,
        "training split": len(graph.splits.get("train", ())) > 0,
    }
    return [part for part in parts if not has[part]]


def graphs_with(parts: Sequence[str]) -> list[str]:
    """Names of the catalogue's graphs that have all ``parts``; those that are quickest to have first."""
    for part in parts:
        choice("parts", part, PARTS)
    found = [
        name
        for name, entry in catalogue.entries().items()
        if all(entry.get(_COLUMNS[part]) for part in parts)
    ]
    return sorted(found, key=lambda name: (_FIRST + (name,)).index(name))


def what_is_missing(graph: Any, parts: Sequence[str] = PARTS) -> str:
    """One line: which of ``parts`` the graph lacks, and which graphs have them. Empty where it lacks none."""
    lacks = lacking(graph, parts)
    if not lacks:
        return ""
    listed = " and no ".join(", no ".join(lacks).rsplit(", no ", 1))
    having = graphs_with(lacks)
    rest = f" and {len(having) - _NAMED} more of lab.datasets()" if len(having) > _NAMED else ""
    return f"{graph.title} has no {listed}. Graphs with them: {', '.join(having[:_NAMED])}{rest}."


def seed_source(graph: Any) -> str:
    """Where seeds of mini-batches come from, in a word or two: "training vertices", or "vertices" where none are."""
    return "vertices" if lacking(graph, ["training split"]) else "training vertices"


def random_features(graph: Any, columns: int = 128, seed: int = 0) -> Any:
    """The same graph with standard normal numbers as features, and with "random features" in its name.

    Nothing of the library calls this by itself: whoever wants to see bytes move on a graph without features asks.

    Args:
        graph: on any device; its features, if it has some, are replaced.
        columns: numbers per vertex.
        seed: of the numbers.

    Returns:
        A Graph; ``feat`` is float32[N, columns] in host memory.

    Raises:
        TypeError, ValueError: ``columns`` or ``seed`` is no whole number in range.
    """
    import dataclasses

    import numpy as np

    columns = whole("columns", columns, low=1)
    rng = np.random.default_rng(whole("seed", seed, low=0))
    feat = rng.standard_normal((graph.num_nodes, columns), dtype=np.float32)
    return dataclasses.replace(graph, feat=feat, name=f"{graph.name}, random features", validate=False)
