"""What holds of every explorer, whatever it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gnnsample_widgets.shell.explorer import Explorer

import gnnsample_lab as lab
from tests.widgets.oracle import difference, values

Oracles = Mapping[str, Callable[[lab.Graph, dict[str, Any]], dict[str, Any]]]


def check_figures(explorer: Explorer, graph: lab.Graph, oracles: Oracles) -> None:
    """The panels show what the oracle computes from graph and state alone."""
    assert explorer.error == ""
    expected = oracles[type(explorer).__name__](graph, explorer.state)
    assert list(explorer.figures) == list(expected)
    for name, figure in expected.items():
        wrong = difference(values(explorer.figures[name]), values(figure))
        assert not wrong, f"panel {name} at {explorer.state}: {wrong}"


def check_controls(explorer: Explorer, moves: dict[str, list[Any]], check: Callable[[], None]) -> None:
    """Each move of each control is one run, sets the trait of its name, and passes ``check``."""
    check()
    for name, wanted in moves.items():
        for value in wanted:
            runs = explorer.run_count
            explorer.controls[name].value = value
            assert explorer.run_count == runs + 1
            assert getattr(explorer, name) == value
            check()


def check_code(explorer: Explorer, graph: lab.Graph) -> None:
    """The code handed over makes the figures that are shown."""
    namespace: dict[str, Any] = {"g": graph}
    exec(compile(explorer.code, "<handed over>", "exec"), namespace)
    assert list(namespace["shown"]) == list(explorer.figures)
    for name, figure in namespace["shown"].items():
        assert values(figure) == values(explorer.figures[name]), name
        assert figure.layout.title.text == explorer.figures[name].layout.title.text
