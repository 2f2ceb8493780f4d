"""The stepper: it shows what the recorded steps say, forwards and backwards."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import traitlets
from gnnsample_widgets import Stepper
from gnnsample_widgets.lesson.stepper import SHIPPED

import gnnsample_lab as lab
from gnnsample_lab import steps


@pytest.fixture(params=steps.MECHANISMS)
def stepper(request):
    made = Stepper(request.param)
    yield made
    made.close()


def cells_on_page(page, at):
    cells = {array["name"]: dict(array["first"]) for array in page["arrays"]}
    for step in page["steps"][:at]:
        for name, cell, text in step["c"]:
            cells[name][str(cell)] = text
    return cells


def test_the_page_shows_what_the_steps_say(stepper):
    page, run = json.loads(stepper.data), stepper.run
    assert len(page["steps"]) == len(run.steps)
    lines = [line for each in page["files"] for line in each["lines"]]
    for shown, step in zip(page["steps"], run.steps, strict=True):
        assert lines[shown["l"]][1] == run.source[step.line][1]
        assert shown["a"] == step.active
        assert [each[4] for each in shown["m"]] == [len(each.sectors) for each in step.accesses]
    for at in (0, len(run.steps) // 2, len(run.steps)):
        memory = run.memory(at - 1)
        for name, cells in cells_on_page(page, at).items():
            for cell, text in cells.items():
                assert text == run.arrays[name].show(memory[name][int(cell)])


def test_every_touched_cell_is_on_the_page_in_its_sector(stepper):
    page, run = json.loads(stepper.data), stepper.run
    shown = {array["name"]: array["sectors"] for array in page["arrays"]}
    for step in run.steps:
        for access in step.accesses:
            groups = [set(group) for group in shown[access.array]]
            touched = sum(bool(group & set(access.cells)) for group in groups)
            assert set(access.cells) <= set().union(*groups)
            if access.sectors:
                assert touched == len(access.sectors)


def test_forward_and_back(stepper):
    assert stepper.step is None
    assert stepper.memory == stepper.run.first
    stepper.forward(5)
    there = stepper.memory
    assert stepper.step is stepper.run.steps[4]
    stepper.forward()
    stepper.back()
    assert stepper.memory == there
    stepper.back(10**6)
    assert stepper.at == 0
    stepper.forward(10**6)
    assert stepper.at == len(stepper.run.steps)


def test_breaking_a_line_shows_the_violation_at_its_step(stepper):
    for name in stepper.options:
        stepper.broken = name
        assert stepper.at == 0
        assert "One line is broken" in stepper.verdict()
        found = stepper.run.violation
        assert stepper.to_failure() == bool(found)
        if found:
            assert stepper.at == found[0] + 1
            assert found[1].what[1:] in stepper.verdict()
            stepper.back()
            assert found[1].what[1:] not in stepper.verdict()
        else:
            stepper.forward(10**6)
            assert "right all the same" in stepper.verdict()
            assert "instead of" in stepper.verdict()
    stepper.broken = None
    assert "As shipped" in stepper.verdict()
    assert stepper.choice == SHIPPED


def test_the_page_chooses_and_moves_through_the_store(stepper):
    stepper.store.at = 3
    assert stepper.at == 3
    stepper.store.choice = stepper.options[0]
    assert stepper.broken == stepper.options[0]
    assert (stepper.at, stepper.store.at) == (0, 0)
    assert json.loads(stepper.store.data)["broken"]["name"] == stepper.options[0]


def test_it_says_what_it_shows_without_a_browser():
    made = Stepper("insert into Fused-Map", broken="number all winners alike")
    assert "before the first of" in repr(made)
    made.to_failure()
    text = made.describe()
    assert "A local id stands for one vertex" in text
    bundle = made._repr_mimebundle_()
    assert (bundle[0] if isinstance(bundle, tuple) else bundle)["text/plain"] == text
    made.close()


def test_a_broken_line_that_does_no_harm_here_is_not_called_right():
    ring = lab.Graph.from_edges(range(200), [(v + 1) % 200 for v in range(200)], 200, undirected=True)
    made = Stepper("grow a frontier", broken="mark without an atomic", graph=ring)
    assert not made.to_failure()
    made.forward(10**6)
    assert "On this example no invariant fails" in made.verdict()
    made.close()


def test_a_broken_line_is_compared_on_the_schedule_of_the_shipped_one():
    """A warp that is delayed polls for long, whether the line is whole or not: its sectors are no cost of the line."""
    ones = np.arange(1, 4097)
    star = lab.Graph.from_edges(np.r_[0 * ones, ones], np.r_[ones, 0 * ones], 4097)
    made = Stepper("claim a slot", broken="plain add instead of atomicAdd", graph=star)
    assert not made.to_failure()
    made.forward(10**6)
    said = re.findall(r"(\w+) (\d+) instead of (\d+) sectors", made.verdict())
    # The line reads the tail and writes it; an atomic does both at once.
    assert [(name, int(mine) - int(theirs)) for name, mine, theirs in said] == [("tail", 1)]
    made.close()


def test_positions_outside_the_run_are_refused(stepper):
    for value in (-1, len(stepper.run.steps) + 1):
        with pytest.raises(traitlets.TraitError, match="at must be from 0 to"):
            stepper.at = value
    with pytest.raises(traitlets.TraitError, match="choice must be one of"):
        stepper.choice = "nothing of the kind"
    with pytest.raises(ValueError, match="broken"):
        stepper.broken = "nothing of the kind"
    with pytest.raises(ValueError, match="lines"):
        stepper.forward(-1)
