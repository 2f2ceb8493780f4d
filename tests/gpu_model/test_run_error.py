"""The model's error on whole runs: one definition, every strategy, and no order within it."""

from __future__ import annotations

import dataclasses

import pytest

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.gpu_model import run_error as errors
from gnnsample_lab.gpu_model.fit import load_traces
from gnnsample_lab.gpu_model.model import GpuModel, get_model
from gnnsample_lab.resources import resource_path
from gnnsample_lab.sampling.neighbors.schedule import replay
from gnnsample_lab.traces import SampleTrace
from gnnsample_lab.traces.storage import load_trace, save_trace
from tests.handmade_trace import make_trace
from tests.sampling.neighbors.schedule_samples import random_toy


def taking(strategy: str, us: float, origin: str = "modelled", device: str = "NVIDIA H200") -> SampleTrace:
    trace = make_trace(
        strategy, origin=origin, device_name=device, fetch_size=None, completion=None, lost=None
    )
    return dataclasses.replace(trace, total_us=us)


def test_the_preset_keeps_what_the_shipped_runs_give():
    model, shipped = get_model("h200"), load_traces(resource_path("data/measured/traces"))
    if not any(trace.device_name == model.name for trace in shipped):
        pytest.skip(f"no shipped trace is of an {model.name}")
    found = errors.recorded_over_modelled(model, shipped)
    assert found == model.recorded_over_modelled
    # All strategies that a trace can be recorded of; traced runs are never captured.
    assert set(found) == set(lab.strategies()) - {"auto", "captured"}


def test_runs_of_another_gpu_say_nothing_of_the_model():
    model = get_model("h200")
    own, other = (taking("block-bsp", 10, "measured", device) for device in (model.name, "NVIDIA L4"))
    assert errors.recorded_over_modelled(model, [other]) == {}
    found = errors.recorded_over_modelled(model, [own, other])
    assert found == errors.recorded_over_modelled(model, [own]) and len(found["block-bsp"]) == 1


def test_the_error_is_the_largest_factor_either_way():
    assert errors.RunError((0.2, 1.5), own=True).factor == 5
    assert errors.RunError((0.9, 1.5), own=True).factor == 1.5
    ratios = get_model("h200").recorded_over_modelled["persistent"]
    error = errors.run_error(taking("persistent", 10))
    assert error == errors.RunError(tuple(ratios), own=True)


def test_the_interval_lies_on_the_side_where_recorded_runs_lie(monkeypatch):
    ratios = {"slower": [2.5, 4.0], "faster": [0.5, 0.8], "both": [0.9, 1.1]}
    monkeypatch.setattr(errors, "_recorded", lambda: {"NVIDIA H200": ratios})
    found = {name: errors.interval_us(taking(name, 10)) for name in (*ratios, "not recorded")}
    assert found == {"slower": (10, 40), "faster": (5, 10), "both": (9, 11), "not recorded": (5, 40)}
    # Both ran longer than modelled, one of them by a factor of four: the other one's bar is still the longer.
    assert errors.tell_apart(taking("slower", 50), taking("slower", 10))
    assert not errors.tell_apart(taking("slower", 30), taking("slower", 10))


def test_a_strategy_that_was_not_recorded_has_the_largest_error():
    error = errors.run_error(taking("captured", 10))
    assert not error.own
    assert error.factor == max(max(r) for r in get_model("h200").recorded_over_modelled.values())
    assert "captured was not recorded" in errors.in_words(taking("captured", 10))


def test_runs_are_told_apart_beyond_the_error_alone():
    slow, fast = taking("block-bsp", 484), taking("persistent", 34)
    assert errors.tell_apart(slow, fast) and errors.tell_apart(fast, slow)
    assert not errors.tell_apart(slow, taking("edge-bsp", 300))
    assert not errors.tell_apart(fast, taking("persistent-tile", 34))
    assert errors.tell_apart(taking("bsp", 3, "measured"), taking("bsp", 3.1, "measured"))


def test_a_gpu_without_recorded_runs_has_no_known_error():
    one, other = (taking("bsp", us, device="NVIDIA V100") for us in (1, 1000))
    assert errors.run_error(one) is None and not errors.tell_apart(one, other)
    assert errors.in_short([one]) == ""
    assert "not known" in errors.in_words(one)
    assert (
        errors.run_error(taking("bsp", 1, "measured")) is None
        and errors.in_words(taking("bsp", 1, "measured")) == ""
    )


@pytest.mark.parametrize("strategy", ["block-bsp", "persistent"])
def test_words_name_the_runs(strategy):
    words = errors.in_words(taking(strategy, 10))
    ratios = get_model("h200").recorded_over_modelled[strategy]
    assert words.startswith("A recorded run of" if len(ratios) == 1 else "Recorded runs of")
    assert f"{ratios[-1]:.1f} times the modelled time" in words


def replayed(model: GpuModel | str, strategy: str = "block-bsp") -> SampleTrace:
    toy = random_toy(1, 60, 300)
    picks = toy.sample(range(4), (2, 2))
    return replay(
        picks, toy.degrees, strategy=strategy, pick="floyd", fanouts=(2, 2), num_nodes=60, gpu=model
    )[0]


def test_a_preset_with_other_numbers_has_no_recorded_error_unless_it_brings_its_own(tmp_path):
    preset = get_model("h200")
    assert errors.run_error(replayed(preset)) == errors.run_error(taking("block-bsp", 1))
    assert errors.CARRIED not in replayed("h200").meta
    assert errors.run_error(replayed(dataclasses.replace(preset, source="typed in"))) is not None
    for change in ({"launch_us": 50.0}, {"name": "My GPU"}):
        altered = replayed(dataclasses.replace(preset, **change))
        assert errors.run_error(altered) is None
        assert "this model of" in errors.in_words(altered)
    own = dataclasses.replace(
        preset, name="My GPU", recorded_over_modelled={"block-bsp": [1.1, 1.0], "bsp": []}
    )
    trace = replayed(own)
    assert errors.run_error(load_trace(save_trace(trace, tmp_path / "own"))) == errors.RunError(
        (1.0, 1.1), own=True
    )
    assert errors.has_times(trace) and "1.0 to 1.1 times" in errors.in_words(trace)
    assert errors.run_error(replayed(own, "bsp")) == errors.RunError((1.0, 1.1), own=False)


@pytest.mark.parametrize("text", ["", "[]", '{"bsp": [0]}', '{"bsp": 1}'])
def test_ratios_of_a_trace_that_are_no_ratios_are_named(text):
    trace = dataclasses.replace(taking("bsp", 1), meta={errors.CARRIED: text})
    with pytest.raises(ValueError, match="must map strategies to lists of ratios above 0"):
        errors.run_error(trace)
    with pytest.raises(ValueError, match=r"recorded_over_modelled\['bsp'\] must hold ratios above 0"):
        dataclasses.replace(get_model("h200"), recorded_over_modelled={"bsp": [0.0]})


def test_no_factor_is_promised_for_traces_whose_error_is_not_known():
    known, unknown = taking("persistent", 10), taking("persistent", 10, device="Tesla V100")
    factor = f"within a factor of {errors.run_error(known).factor:.1f} of recorded runs"
    assert (
        errors.in_short([known]) == errors.in_short([known, taking("bsp", 1, "measured")]) == f"time {factor}"
    )
    words = f"time of 1 of 2 modelled runs {factor}, error of the rest not known"
    assert errors.in_short([unknown, known]) == words
    assert words in figures.strategy_comparison([known, unknown]).layout.title.text
