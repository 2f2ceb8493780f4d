"""Long runs: what there is of a result is shown meanwhile, marked as such, and a drag does not wait for the rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import plotly.graph_objects as go
import pytest
import traitlets
from gnnsample_widgets.shell.controls import Control, Slider
from gnnsample_widgets.shell.explorer import LONG_MS, Explorer
from gnnsample_widgets.shell.recipe import Each, Panels, Recipe, SoFar, follow, so_far

from tests.widgets.toy import tiny_graph

NAMES = ["one", "two", "three"]


class Halls:
    """Where the steps of a test wait, and what they have done."""

    def __init__(self) -> None:
        self.gates: dict[str, threading.Event] = {}
        self.made: list[tuple[str, int]] = []
        self.told: list[Any] = []

    def pass_through(self, name: str) -> None:
        if name in self.gates:
            assert self.gates[name].wait(20)


HALLS = Halls()


def make(size: int, name: str) -> list[int]:
    HALLS.pass_through(name)
    so_far([size])
    if size == 13:
        raise ValueError("thirteen")
    HALLS.made.append((name, size))
    return [size, size]


def gather(entries: dict[str, Any]) -> dict[str, Any]:
    return dict(entries)


def draw_bars(gathered: dict[str, Any]) -> go.Figure:
    return go.Figure(go.Bar(x=list(gathered), y=[sum(y) for y in gathered.values()]))


def draw_other(gathered: dict[str, Any]) -> go.Figure:
    return go.Figure(go.Bar(y=[len(gathered)]))


RECIPE: Recipe = {
    "entries": Each(make, "name", of="names"),
    "gathered": gather,
    "shown": Panels(bars=draw_bars, other=draw_other),
}


def test_whoever_follows_a_recipe_is_told_what_there_is() -> None:
    kept: dict[Any, Any] = {}

    def remember(key: Any, make: Callable[[], Any]) -> Any:
        if key not in kept:
            kept[key] = make()
        return kept[key]

    seen: list[Any] = []

    def told(part: SoFar) -> None:
        seen.append(dict(part["entries"]))
        assert part.figure("bars").data[0].x == tuple(part["entries"])

    made = follow(RECIPE, {"size": 2, "names": NAMES}, remember, told)
    whole = made["gathered"]
    one, two, three = ({name: [2, 2]} for name in NAMES)
    assert seen == [
        {"one": [2]}, one, {**one, "two": [2]}, {**one, **two}, {**one, **two, "three": [2]},
    ]  # fmt: skip
    assert whole == {**one, **two, **three} == made["entries"]
    seen.clear()
    assert follow(RECIPE, {"size": 2, "names": NAMES}, remember, told)["gathered"] == whole
    assert not seen, "what is kept is not told of"
    assert list(kept.values()).count({**one}) == 0, "parts are not kept as if they were the whole"


def test_outside_an_explorer_a_step_may_tell_what_it_likes() -> None:
    so_far("nobody hears it")
    assert follow(RECIPE, {"size": 3, "names": ["one"]}, lambda key, make: make())["gathered"] == {
        "one": [3, 3]
    }


def draw_third(later: dict[str, Any]) -> go.Figure:
    return go.Figure(go.Bar(y=[len(later)]))


class Slow(Explorer):
    recipe: ClassVar[Recipe] = {
        **RECIPE,
        "later": Each(make, "name", of="others"),
        "shown": Panels(bars=draw_bars, other=draw_other, third=draw_third),
    }
    grows = ("bars",)
    views: ClassVar[dict[str, tuple[str, ...]]] = {"Both": ("bars", "other"), "Third": ("third",)}
    size = traitlets.Int(1).tag(state=True)

    def build_controls(self) -> dict[str, Control]:
        return {"size": Slider("size", "Size", self.size, min=1, max=50)}

    def parameters(self, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "names": NAMES, "others": ["four", "five"]}

    def summary(self, made: dict[str, Any]) -> str:
        return f"{len(made['gathered'])} of size {made['size']}"


@pytest.fixture
def slow() -> Iterator[Slow]:
    HALLS.__init__()  # type: ignore[misc]
    found = Slow(tiny_graph())
    found.elapsed_ms = 2 * LONG_MS  # as if the last run had been a long one
    yield found
    for gate in HALLS.gates.values():
        gate.set()
    found.wait(20)
    found.close()


def begin(slow: Slow, **state: Any) -> threading.Thread:
    thread = threading.Thread(target=lambda: slow.set(**state), daemon=True)
    thread.start()
    return thread


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_long_run_shows_what_it_has_and_says_that_there_will_be_more(slow: Slow) -> None:
    HALLS.gates = {"two": threading.Event()}
    other = slow.panels["other"].store.data
    run = begin(slow, size=7)
    until(lambda: slow.panels["bars"].unfinished == "so far")
    assert slow.busy and slow.panels["bars"].kept.data[0].x == ("one",)
    assert slow.panels["other"].store.data == other, "a panel that does not grow waits for the whole"
    HALLS.gates["two"].set()
    run.join(20)
    assert slow.panels["bars"].unfinished == "" and not slow.busy
    assert slow.figures["bars"].data[0].x == tuple(NAMES) and sum(slow.figures["bars"].data[0].y) == 42
    assert "3 of size 7" in slow._summary.value


def test_a_short_run_shows_no_parts(slow: Slow) -> None:
    slow.elapsed_ms = 0.0
    marks: list[str] = []
    slow.panels["bars"].observe(lambda change: marks.append(change["new"]), names="unfinished")
    slow.size = 8
    assert not marks and slow.figures["bars"].data[0].x == tuple(NAMES)


def test_a_drag_does_not_wait_for_the_rest_of_a_long_run(slow: Slow) -> None:
    HALLS.gates = {"two": threading.Event()}
    run = begin(slow, size=7)
    until(lambda: slow.panels["bars"].unfinished == "so far")
    slow.size = 9  # returns at once: the run under way takes it up
    HALLS.gates["two"].set()
    run.join(20)
    assert slow.wait(20) and slow.error == ""
    assert ("three", 7) not in HALLS.made and ("three", 9) in HALLS.made
    assert sum(slow.figures["bars"].data[0].y) == 54 and "of size 9" in slow._summary.value


def test_a_run_that_has_shown_nothing_goes_on_or_a_drag_would_show_nothing(slow: Slow) -> None:
    HALLS.gates = {"one": threading.Event()}
    slow.elapsed_ms = 0.0
    run = begin(slow, size=7)
    until(lambda: slow.busy)
    slow.size = 9
    HALLS.gates["one"].set()
    run.join(20)
    assert ("three", 7) in HALLS.made and sum(slow.figures["bars"].data[0].y) == 54


def test_after_a_failure_all_panels_show_the_last_state_that_worked(slow: Slow) -> None:
    before = {name: slow.panels[name].store.data for name in slow.panels}
    slow.size = 13
    assert "thirteen" in slow.error
    assert {name: slow.panels[name].store.data for name in slow.panels} == before
    assert {panel.unfinished for panel in slow.panels.values()} == {""}
    slow.size = 4
    assert slow.error == "" and sum(slow.figures["bars"].data[0].y) == 24


def kept(slow: Slow) -> dict[str, Any]:
    """What the panels show, those behind tabs too."""
    return {name: panel.kept for name, panel in slow.panels.items()}


def test_a_failure_behind_a_run_that_was_given_up_shows_the_last_state_that_worked(slow: Slow) -> None:
    before = kept(slow)
    HALLS.gates = {"two": threading.Event()}
    run = begin(slow, size=7)
    until(lambda: slow.panels["bars"].unfinished == "so far")
    slow.size = 13  # the run before has shown a part of what nobody will see whole
    HALLS.gates["two"].set()
    run.join(20)
    assert slow.wait(20) and "thirteen" in slow.error
    assert kept(slow) == before
    slow.size = 7
    assert slow.error == "" and sum(slow.figures["bars"].data[0].y) == 42
    after = kept(slow)
    slow.size = 13
    assert kept(slow) == after


def test_a_summary_that_fails_leaves_no_panel_of_its_state(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = kept(slow)
    monkeypatch.setattr(slow, "summary", lambda made: 1 / 0)
    slow.size = 6
    assert "ZeroDivisionError" in slow.error and kept(slow) == before


def test_a_tab_that_takes_long_to_open_marks_nothing_and_is_not_given_up(slow: Slow) -> None:
    slow.run_count += 1
    slow._began_s = 0.0  # long ago
    slow.view = "Third"
    assert slow.error == "" and slow.panels["third"].figure.data[0].y == (2,)
    assert {panel.unfinished for panel in slow.panels.values()} == {""}


def test_until_a_slow_tab_is_open_what_stands_there_says_so(slow: Slow) -> None:
    HALLS.gates = {"five": threading.Event()}
    thread = threading.Thread(target=lambda: setattr(slow, "view", "Third"), daemon=True)
    thread.start()
    until(lambda: slow.panels["other"].unfinished == "opening")
    assert slow.panels["bars"].shown and 'data-busy="1"' in slow._status.value
    HALLS.gates["five"].set()
    thread.join(20)
    assert {panel.unfinished for panel in slow.panels.values()} == {
        ""
    } and 'data-busy="0"' in slow._status.value
    assert slow.panels["third"].shown and not slow.panels["bars"].shown
