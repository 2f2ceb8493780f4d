"""The base of the explorers: state, runs, errors, coalescing, what is handed over."""

from __future__ import annotations

import base64
import threading
import time
from typing import Any

import pytest
import traitlets
from gnnsample_widgets import (
    AggregationExplorer,
    Explorer,
    IdMapExplorer,
    KernelExplorer,
    MatchExplorer,
    SampleExplorer,
    SecondOrderExplorer,
    WorkloadExplorer,
)
from gnnsample_widgets.shell import still

import gnnsample_lab as lab
from gnnsample_lab.device.runtime import lock
from tests.widgets.checks import check_code
from tests.widgets.toy import Toy, tiny_graph


@pytest.fixture
def toy() -> Toy:
    return Toy(tiny_graph())


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return lab.load("arxiv-like", scale=0.02, use_cache=False)


def test_a_run_follows_every_way_of_changing_the_state(toy: Toy) -> None:
    assert toy.run_count == 1
    toy.controls["count"].value = 7
    assert len(toy.figures["bar"].data[0].y) == 7
    toy.size = 128
    assert toy.controls["size"].value == 128
    assert toy.figures["bar"].data[0].y[-1] == 6 * 128
    toy.controls["flip"].value = True
    assert toy.figures["bar"].data[0].y[0] == 6 * 128
    assert toy.run_count == 4
    assert toy.seen[-1] == {"count": 7, "size": 128, "kind": "bar", "flip": True} == toy.state


def test_setting_the_same_value_runs_nothing(toy: Toy) -> None:
    toy.count = 5
    toy.controls["kind"].value = "bar"
    assert toy.run_count == 1


def test_several_values_at_once_run_once(toy: Toy) -> None:
    toy.set(count=9, size=32, flip=True)
    assert toy.run_count == 2
    with toy.hold():
        for n in range(20, 30):
            toy.count = n
    assert toy.run_count == 3
    assert toy.seen[-1]["count"] == 29


def test_panels_come_and_go_with_the_figures(toy: Toy) -> None:
    toy.kind = "both"
    assert list(toy.figures) == ["bar", "line"]
    first = toy.panels["bar"]
    toy.kind = "line"
    assert list(toy.figures) == ["line"]
    toy.kind = "bar"
    assert list(toy.figures) == ["bar"]
    assert toy.panels["bar"] is first, "a panel must be reused, or the page would load it anew"


def test_an_exception_is_shown_and_the_last_figures_stay(toy: Toy) -> None:
    before = toy.figures["bar"]
    toy.count = 13
    assert toy.error == "ValueError: thirteen <things> are not allowed"
    assert "thirteen &lt;things&gt; are not allowed" in toy.error_panel.value
    assert toy.error_panel.layout.display == "block"
    assert toy.figures["bar"] is before
    assert not toy.busy and 'data-busy="0"' in toy._status.value
    toy.count = 14
    assert toy.error == "" and toy.error_panel.value == "" and toy.error_panel.layout.display == "none"
    assert len(toy.figures["bar"].data[0].y) == 14


def test_errors_can_be_raised_for_scripts() -> None:
    toy = Toy(tiny_graph(), raise_errors=True)
    with pytest.raises(ValueError, match="thirteen"):
        toy.count = 13
    toy.count = 12
    assert toy.error == "" and toy.run_count == 3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", 51, r"How many \(count\) must be from 1 to 50 \(got 51\)"),
        ("size", 33, r"How large \(size\) must be one of \[32, 64, 128\] \(got 33\)"),
        ("kind", "pie", r"Drawn as \(kind\) must be one of .* \(got 'pie'\)"),
    ],
)
def test_a_value_off_the_scale_is_refused_and_changes_nothing(
    toy: Toy, name: str, value: Any, message: str
) -> None:
    before = toy.state
    with pytest.raises(traitlets.TraitError, match=message):
        setattr(toy, name, value)
    with pytest.raises(traitlets.TraitError, match=message):
        toy.controls[name].value = value
    assert toy.state == before
    assert toy.controls[name].value == before[name]
    assert toy.run_count == 1
    toy.count = 6
    assert toy.run_count == 2, "the trait must still be observed"


def test_set_names_what_is_not_there(toy: Toy) -> None:
    with pytest.raises(
        TypeError, match=r"Toy has no state \['nope'\] \(it has \['count', 'flip', 'kind', 'size'\]\)"
    ):
        toy.set(nope=1, count=9)
    with pytest.raises(TypeError, match="heading"):
        toy.set(heading="mine")
    assert toy.count == 5 and toy.run_count == 1 and not hasattr(toy, "nope")


@pytest.mark.parametrize(
    ("name", "value"),
    [("count", 51), ("count", "7"), ("count", 7.5), ("count", True), ("count", None), ("size", 33),
     ("kind", "pie"), ("kind", ""), ("kind", 3), ("flip", "no"), ("flip", 2)],
)  # fmt: skip
def test_set_takes_all_values_or_none(toy: Toy, name: str, value: Any) -> None:
    before = toy.state
    others = {"count": 9, "size": 32, "kind": "line", "flip": True}
    del others[name]
    with pytest.raises(traitlets.TraitError, match=name):
        toy.set(**others, **{name: value})
    assert toy.state == before and toy.run_count == 1
    assert {name: control.value for name, control in toy.controls.items()} == before
    toy.set(**others)
    assert toy.run_count == 2


def test_set_puts_limits_back_that_followed_another_control(graph: lab.Graph) -> None:
    explorer = KernelExplorer(graph, device="cpu")
    before = explorer.state
    with pytest.raises(traitlets.TraitError, match="Step"):
        explorer.set(app="DeepWalk", step=9)
    assert explorer.state == before and explorer.controls["step"].max == 2


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (SecondOrderExplorer, {"length": 80, "shown": 80}),
        (SecondOrderExplorer, {"shape": "grid", "start": 35}),
        (SampleExplorer, {"hops": 3, "hops_shown": 3}),
        (IdMapExplorer, {"count": 20, "step": 20}),
        (IdMapExplorer, {"count": 20, "step": 14}),
        (MatchExplorer, {"num_batches": 24, "batch_b": 20}),
        (AggregationExplorer, {"hops": 2, "layer": 2}),
        (KernelExplorer, {"app": "DeepWalk", "step": 5}),
    ],
)
def test_the_state_of_one_explorer_can_be_set_on_another(
    kind: type[Explorer], state: dict[str, Any], graph: lab.Graph
) -> None:
    """Both ways, though the limits of one control follow another one and move when a run begins."""
    plain, other = kind(graph, device="cpu"), kind(graph, device="cpu", **state)
    before, moved = plain.state, other.state
    runs = plain.run_count
    plain.set(**moved)
    assert plain.state == moved and plain.error == "" and plain.run_count == runs + 1
    other.set(**before)
    assert other.state == before and other.error == ""


def test_a_refused_set_leaves_limits_and_what_is_compared(graph: lab.Graph) -> None:
    walks = SecondOrderExplorer(graph, device="cpu", shown=10)
    before, limits = walks.state, [(c.value, getattr(c, "max", None)) for c in walks.controls.values()]
    with pytest.raises(traitlets.TraitError, match="Steps shown"):
        walks.set(length=80, shape="grid", start=35, shown=81)
    assert walks.state == before and walks.run_count == 1
    assert [(c.value, getattr(c, "max", None)) for c in walks.controls.values()] == limits
    work = WorkloadExplorer(graph, device="cpu")
    with pytest.raises(traitlets.TraitError, match="Fanout of hop 1"):
        work.set(batch_size=64, fanout_1=99)
    assert work.before == {} and work.run_count == 1
    work.batch_size = 64
    assert work.before["batch_size"] == 256, "as if nothing had been tried"


def test_starting_values_are_arguments() -> None:
    toy = Toy(tiny_graph(), count=3, kind="line")
    assert toy.run_count == 1 and toy.controls["count"].value == 3 and list(toy.figures) == ["line"]
    with pytest.raises(TypeError, match=r"Toy has no state \['colour'\]"):
        Toy(tiny_graph(), colour="red")
    with pytest.raises(traitlets.TraitError, match="count"):
        Toy(tiny_graph(), count=99)


def test_the_graph_argument_is_checked() -> None:
    with pytest.raises(TypeError, match="graph must be a Graph, a dataset name or None"):
        Toy(7)
    with pytest.raises(LookupError):
        Toy("no-such-graph")
    with pytest.raises(ValueError, match="device"):
        Toy(tiny_graph(), device="abacus")


@pytest.mark.parametrize("kind", [Toy, SampleExplorer, SecondOrderExplorer, MatchExplorer])
def test_a_graph_without_vertices_is_refused_by_name(kind: type[Explorer]) -> None:
    with pytest.raises(ValueError, match="graph must have at least one vertex"):
        kind(lab.Graph.from_edges([], [], num_nodes=0), device="cpu")


def test_a_drag_during_a_run_costs_one_more_run(toy: Toy) -> None:
    """Twenty steps that arrive while a run is under way are folded into a single run with the last value."""
    toy.gate = threading.Event()
    slow = threading.Thread(target=lambda: setattr(toy, "count", 20))
    slow.start()
    while len(toy.seen) < 2:
        time.sleep(0.001)
    assert toy.busy
    for n in range(21, 41):
        toy.controls["count"].value = n
    assert not toy.wait(0.01)
    toy.gate.set()
    slow.join(20)
    assert toy.wait(20)
    assert [state["count"] for state in toy.seen] == [5, 20, 40]
    assert toy.run_count == 3
    assert len(toy.figures["bar"].data[0].y) == 40


def test_a_run_that_begins_as_another_ends_is_the_only_one(toy: Toy) -> None:
    """The moment in which the gate has just opened, and the thread that ran has not left yet, belongs to who comes."""
    gate, inside = toy._gate, threading.Event()
    threads: list[threading.Thread] = []

    class Gate:
        """Lets a second change in at the end of the first one's run, and waits until its run is under way."""

        def __enter__(self) -> None:
            gate.acquire()

        def __exit__(self, *_: object) -> None:
            ended = len(toy.seen) == 2 and not toy._running and not threads
            gate.release()
            if ended:
                toy.gate = threading.Event()
                threads.append(threading.Thread(target=lambda: setattr(toy, "count", 20)))
                threads[0].start()
                while len(toy.seen) < 3:
                    time.sleep(0.001)

    toy._gate = Gate()  # type: ignore[assignment]
    toy.count = 10
    try:
        assert toy._running and not toy.wait(0)
        third = threading.Thread(target=lambda: (setattr(toy, "count", 30), inside.set()))
        third.start()
        assert inside.wait(20), "it is left to the run under way"
        assert [state["count"] for state in toy.seen] == [5, 10, 20]
    finally:
        assert toy.gate is not None
        toy.gate.set()
        threads[0].join(20)
        third.join(20)
    assert toy.wait(20)
    assert [state["count"] for state in toy.seen] == [5, 10, 20, 30]
    assert len(toy.figures["bar"].data[0].y) == 30


def test_runs_hold_the_process_wide_lock(toy: Toy) -> None:
    """Callbacks may run beside cells: while somebody else samples, an explorer waits."""
    thread = threading.Thread(target=lambda: setattr(toy, "count", 8))
    with lock:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive() and len(toy.seen) == 1
    thread.join(20)
    assert len(toy.seen) == 2


def test_code_is_handed_over_and_can_be_run(toy: Toy) -> None:
    toy.count = 11
    assert toy.code_panel.code == toy.code
    check_code(toy, toy.graph)


def test_named_and_default_graphs_are_loaded_by_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_DATASET", "arxiv-like")
    assert "g = lab.load_default()" in Toy().code
    assert "g = lab.load('arxiv-like')" in Toy("arxiv-like").code


def test_a_page_without_widgets_gets_text(toy: Toy) -> None:
    bundle = toy._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"].startswith("Toy(count=5, flip=False, kind='bar', size=64)")
    assert repr(toy) == data["text/plain"]


def test_a_name_of_a_graph_is_no_markup() -> None:
    """It may come from a file: pages show it as it is, and so do the text and what a screen reader says."""
    name = "R&D <b>x</b> a<b, it's"
    graph = lab.Graph.from_edges([1, 2, 3, 0], [0, 0, 1, 2], num_nodes=5, name=name)
    explorer = SampleExplorer(graph, device="cpu")
    for panel in explorer.panels.values():
        title = panel.figure.layout.title.text
        assert "R&amp;D &lt;b&gt;x&lt;/b&gt; a&lt;b, it's" in title and "<b>" not in title
        assert name in panel.alt
    assert name in explorer.describe()


def displayed(explorer: Toy) -> dict[str, Any]:
    bundle = explorer._repr_mimebundle_()
    return bundle[0] if isinstance(bundle, tuple) else bundle


def test_a_picture_is_added_on_request(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(still, "available", lambda: True)
    monkeypatch.setattr(still, "png", lambda figure: b"a picture of " + figure.data[0].type.encode())
    assert "image/png" not in displayed(toy), "outside a notebook only on request"
    monkeypatch.setenv("LAB_STATIC_IMAGES", "1")
    assert base64.b64decode(displayed(toy)["image/png"]) == b"a picture of bar"
    monkeypatch.setenv("LAB_STATIC_IMAGES", "0")
    assert "image/png" not in displayed(toy)


def test_a_display_does_not_wait_for_a_slow_picture(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = threading.Event()
    monkeypatch.delenv("LAB_STATIC_IMAGES", raising=False)
    monkeypatch.setattr(still, "asked", lambda: True)
    monkeypatch.setattr(still, "available", lambda: True)
    monkeypatch.setattr(still, "LIMIT_S", 0.05)
    monkeypatch.setattr(still, "png", lambda figure: arrived.wait(30) and b"late")
    try:
        data = displayed(toy)
    finally:
        arrived.set()
    assert "image/png" not in data and data["text/plain"].startswith("Toy(")


def test_without_chromium_the_text_says_how_to_get_pictures(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(still, "asked", lambda: True)
    monkeypatch.setattr(still, "available", lambda: False)
    data = displayed(toy)
    assert "image/png" not in data and "pip install kaleido" in data["text/plain"]


def test_a_picture_that_fails_is_left_out(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(figure: Any) -> bytes:
        raise OSError("no Chromium")

    monkeypatch.setenv("LAB_STATIC_IMAGES", "1")
    monkeypatch.setattr(still, "available", lambda: True)
    monkeypatch.setattr(still, "png", broken)
    assert "image/png" not in displayed(toy)


@pytest.mark.slow
def test_kaleido_draws_a_picture(toy: Toy, monkeypatch: pytest.MonkeyPatch, chromium: str) -> None:
    monkeypatch.setenv("LAB_STATIC_IMAGES", "1")
    assert base64.b64decode(displayed(toy)["image/png"]).startswith(b"\x89PNG")


def test_an_interrupt_does_not_leave_the_panel_busy(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(state: dict[str, Any]) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(toy, "compute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        toy.count = 6
    assert not toy.busy and toy.wait(0)
    monkeypatch.undo()
    toy.count = 7
    assert len(toy.figures["bar"].data[0].y) == 7


def test_labels_and_help_reach_the_controls(toy: Toy) -> None:
    for name, control in toy.controls.items():
        assert control.name == name
        assert control.label, f"{name} needs a label that can be read out"
