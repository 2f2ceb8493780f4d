"""N_s and P, against brute force and over the simulation."""

from __future__ import annotations

import itertools
import math
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnsample_lab.pipeline.schedule.allocation import num_samplers, profit, should_switch, trainer_time
from gnnsample_lab.pipeline.schedule.simulate import simulate
from gnnsample_lab.pipeline.schedule.timeline import Timeline
from gnnsample_lab.pipeline.schedule.times import stage_times

simulate_module = sys.modules[simulate.__module__]
SECONDS = st.floats(0.001, 10.0)


def bottleneck(samplers: int, gpus: int, sample_s: float, trainer_s: float) -> float:
    """Seconds a mini-batch of a split: the slower side's."""
    if samplers == gpus:
        return math.inf
    return max(sample_s / samplers, trainer_s / (gpus - samplers))


@pytest.mark.parametrize(
    ("gpus", "sample_s", "trainer_s", "expected"),
    [
        (8, 1, 1, 4),
        (8, 1, 3, 2),
        (8, 1, 2.9, 3),
        (8, 1, 7, 1),
        (8, 1, 100, 1),
        (2, 1, 10, 1),
        (1, 1, 1, 1),
        (3, 5, 1, 3),
    ],
)
def test_the_number_of_samplers(gpus: int, sample_s: float, trainer_s: float, expected: int) -> None:
    assert num_samplers(gpus, sample_s, trainer_s) == expected


def test_rounding_of_times_gives_no_sampler_too_many() -> None:
    """0.3 / 0.1 is a little below 3 in floating point, and 8 / (that + 1) a little above 2."""
    assert math.ceil(8 / (0.3 / 0.1 + 1)) == 3
    assert num_samplers(8, 0.1, 0.3) == 2


@pytest.mark.parametrize("sample_s", [0.0, 5e-324, 1e-300, 1.0, 1e300, 1.7e308])
@pytest.mark.parametrize("trainer_s", [0.0, 5e-324, 1e-300, 1.0, 1e300, 1.7e308])
def test_no_times_break_it(sample_s: float, trainer_s: float) -> None:
    assert 1 <= num_samplers(8, sample_s, trainer_s) <= 8
    assert 1 <= num_samplers(8, sample_s, trainer_s, keep_trainer=True) <= 7


@given(st.integers(2, 64), SECONDS, SECONDS)
def test_the_best_split_is_the_floor_or_the_ceiling(gpus: int, sample_s: float, trainer_s: float) -> None:
    """The formula's ceiling is the best split, or one sampler more than it: brute force over all splits."""
    found = num_samplers(gpus, sample_s, trainer_s)
    best = min(bottleneck(n, gpus, sample_s, trainer_s) for n in range(1, gpus))
    near = [bottleneck(n, gpus, sample_s, trainer_s) for n in (found - 1, found) if n >= 1]
    assert min(near) == pytest.approx(best)


def test_without_switching_the_ceiling_is_not_always_best() -> None:
    """GraphSAGE on Twitter in GNNLab's table 5: the formula says 3 samplers, its table 4 has 2, and 2 are faster."""
    assert num_samplers(8, 0.16, 0.43) == 3
    assert bottleneck(2, 8, 0.16, 0.43) < 0.95 * bottleneck(3, 8, 0.16, 0.43)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 8), SECONDS, SECONDS, st.integers(30, 80))
def test_with_switching_the_ceiling_is_near_the_best_split(
    gpus: int, s: float, t: float, batches: int
) -> None:
    """Surplus samplers help, so that preferring them costs a few mini-batches at most, whatever the times."""
    times = stage_times(s, 0.0, t, batches=batches)

    def epoch(samplers: int) -> float:
        return simulate(
            times, "factored", gpus=gpus, samplers=samplers, switching=True, staleness=None
        ).epoch_s

    best = min(epoch(n) for n in range(1, gpus + 1))
    assert epoch(num_samplers(gpus, s, t)) <= best * 1.12 + 4 * (s + t)


def makespan(remaining: int, trainers: int, trainer_s: float, standby_s: float, taken: int) -> float:
    """Seconds until all is trained, where the standby takes ``taken`` of the samples and trainers share the rest."""
    rest = math.ceil((remaining - taken) / trainers) * trainer_s
    return max(rest, taken * standby_s)


@given(st.integers(1, 40), st.integers(1, 8), SECONDS, SECONDS)
def test_a_positive_profit_never_lengthens_and_a_negative_one_forgoes_less_than_a_round(
    remaining: int, trainers: int, trainer_s: float, standby_s: float
) -> None:
    idle = makespan(remaining, trainers, trainer_s, standby_s, 0)
    best = min(makespan(remaining, trainers, trainer_s, standby_s, k) for k in range(remaining + 1))
    if profit(remaining, trainers, trainer_s, standby_s) > 0:
        assert makespan(remaining, trainers, trainer_s, standby_s, 1) <= idle
    else:
        assert idle - best <= trainer_s * (1 + 1e-9)
        fluid = remaining * trainer_s / trainers
        assert standby_s >= fluid * (1 - 1e-9), "the standby would end after the trainers"


def test_the_gain_that_a_negative_profit_forgoes() -> None:
    assert profit(4, 3, 1.0, 1.5) < 0
    assert makespan(4, 3, 1.0, 1.5, 1) == 1.5 < makespan(4, 3, 1.0, 1.5, 0) == 2.0


def test_profit_by_hand() -> None:
    assert profit(10, 2, 0.5, 1.0) == 1.5
    assert profit(3, 0, 0.5, 1.0) == math.inf
    assert not should_switch(0, 0, 0.5, 1.0), "nothing waits"
    assert should_switch(1, 0, 0.5, 1.0)
    assert not should_switch(2, 1, 0.5, 1.0), "no profit at equality"
    assert trainer_time(0.3, 0.5) == 0.5
    assert trainer_time(0.3, 0.5, pipelined=False) == 0.8


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 40), st.integers(1, 3), st.integers(1, 5),
    st.floats(0.01, 1), st.floats(0, 1), st.floats(0.01, 1), st.floats(0, 5), st.booleans(),
)  # fmt: skip
def test_switching_never_lengthens_an_epoch(
    batches: int, samplers: int, trainers: int, s: float, e: float, t: float, slower: float, pipelined: bool
) -> None:
    times = stage_times(s, e, t, batches=batches, standby_extract_s=e + slower)
    gpus = samplers + trainers

    def epoch(switching: bool) -> Timeline:
        return simulate(
            times, "factored", gpus=gpus, samplers=samplers, capacity=batches, switching=switching, staleness=None,
            pipelined=pipelined,
        )  # fmt: skip

    assert epoch(True).epoch_s <= epoch(False).epoch_s * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_switching_by_profit_against_brute_force_over_the_simulation(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every number of samples that a standby trainer may take is simulated. The rule is never worse than none, and at
    most a round of the trainers worse than the best number."""
    rng = random.Random(seed)
    batches, trainers, s = rng.randint(3, 25), rng.randint(1, 4), rng.uniform(0.01, 0.3)
    e, t, slower = rng.uniform(0.0, 0.5), rng.uniform(0.3, 1.0), rng.uniform(0.0, 2.0)
    times = stage_times(s, e, t, batches=batches, standby_extract_s=e + slower)

    def epoch() -> Timeline:
        return simulate(
            times, "factored", gpus=trainers + 1, samplers=1, switching=True, staleness=None, pipelined=False
        )

    by_rule = epoch()
    forced = {}
    for most in range(batches + 1):
        taken = itertools.count()
        monkeypatch.setattr(
            simulate_module, "should_switch", lambda *_, most=most, taken=taken: next(taken) < most
        )
        found = epoch()
        forced[found.switched] = found.epoch_s
    assert forced[by_rule.switched] == pytest.approx(by_rule.epoch_s), "the rule is one of the forced runs"
    assert min(forced.values()) <= by_rule.epoch_s <= forced[0] * (1 + 1e-9)
    assert by_rule.epoch_s - min(forced.values()) <= (e + t) * (1 + 1e-9)


def test_a_standby_needs_all_its_stages_for_its_first_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the longer stage for T_t' (1.4 s instead of 2.4) P is positive for the last three samples, and the standby
    trainer ends after all others: 3.30 s instead of 3.18."""
    times = stage_times(0.18, 0.0, 1.0, batches=5, standby_extract_s=1.4)

    def epoch() -> Timeline:
        return simulate(
            times, "factored", gpus=3, samplers=1, switching=True, staleness=None, pipelined=False
        )

    assert profit(3, 2, 1.0, 1.4) > 0 > profit(3, 2, 1.0, 2.4)
    assert epoch().switched == 0 and epoch().epoch_s == pytest.approx(3.18)
    monkeypatch.setattr(simulate_module, "should_switch", lambda m, n, t, _: should_switch(m, n, t, 1.4))
    assert epoch().switched == 1 and epoch().epoch_s == pytest.approx(3.30)
