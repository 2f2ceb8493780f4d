"""A closed explorer gives back its graph, its samples and every widget of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import gnnsample_widgets
import pytest
from gnnsample_widgets.shell.panel import runtime
from ipywidgets.widgets import widget

import gnnsample_lab as lab
from tests.widgets.toy import Toy, tiny_graph


@pytest.fixture
def toy() -> Toy:
    return Toy(tiny_graph())


def left_of(make: Callable[[], Any]) -> tuple[int, list[Any]]:
    """Widgets of ``make()`` that are registered after ``close(); del``, and what of it is alive after a collection."""
    runtime()  # shared by all panels, and kept
    gc.collect()
    before = set(widget._instances)
    explorer = make()
    made = [weakref.ref(widget._instances[key]) for key in set(widget._instances) - before]
    assert len(made) > 20
    graphs = [] if explorer.graph is None else [weakref.ref(explorer.graph)]
    parts = [weakref.ref(explorer), *graphs, *made]
    explorer.close()
    assert set(widget._instances) == before
    del explorer
    gc.collect()
    return len(set(widget._instances) - before), [part() for part in parts if part() is not None]


EXPLORERS = sorted(
    name for name in gnnsample_widgets.__all__ if name.endswith("Explorer") and name != "Explorer"
)


def check_freed(name: str) -> None:
    def make() -> Any:
        graph = lab.load("arxiv-like", scale=0.02, use_cache=False)
        short = {"steps": 2, "epochs": 1, "batch_size": 16} if name == "TrainingExplorer" else {}
        explorer = getattr(gnnsample_widgets, name)(graph, device="cpu", raise_errors=True, **short)
        explorer.seed = 3
        return explorer

    assert left_of(make) == (0, [])


# That of ranks is closed in test_ranks_explorer.py, where ranks run already.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXPLORERS if name != "RanksExplorer"])
def test_a_closed_explorer_is_freed(name: str) -> None:
    check_freed(name)


def test_a_closed_toy_is_freed_while_others_live(toy: Toy) -> None:
    def make() -> Toy:
        made = Toy(tiny_graph())
        made.kind = "both"
        made.kind = "line"  # a panel that is not shown
        made.count = 13  # an error whose traceback holds frames
        return made

    assert left_of(make) == (0, [])
    toy.count = 6
    assert toy.error == "" and len(toy.figures["bar"].data[0].y) == 6


def test_closing_twice_and_using_a_closed_explorer_is_harmless(toy: Toy) -> None:
    runs = toy.run_count
    toy.close()
    toy.close()
    toy.count = 9
    toy.set(size=32)
    toy.refresh()
    assert toy.run_count == runs and toy.wait(0) and toy.figures == {}
    assert repr(toy).startswith("Toy(")


@pytest.mark.parametrize("wrong", [{"colour": "red"}, {"graph": 7}, {"device": "abacus"}])
def test_an_explorer_that_was_never_made_leaves_nothing(wrong: dict[str, Any]) -> None:
    runtime()
    gc.collect()
    before = set(widget._instances)
    with pytest.raises((TypeError, ValueError)):
        Toy(**{"graph": tiny_graph(), **wrong})
    assert set(widget._instances) == before
