"""Time sharing against the factored design: the break-even by hand, and what the sweep says of both sides of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnsample_lab import schedule as S


def test_break_even_of_two_gpus_is_training_less_sampling() -> None:
    # Extraction is hidden: the factored epoch is that of training, time sharing runs half the sum of all stages.
    times = S.stage_times(1.0, 2.0, 4.0, batches=400)
    assert S.break_even(times, gpus=2) == pytest.approx(4.0 - 1.0, rel=0.02)
    # Where sampling takes as long as training both GPUs are busy, and any extraction at all decides.
    assert S.break_even(S.stage_times(4.0, 2.0, 4.0, batches=400), gpus=2) == pytest.approx(0, abs=0.05)


def test_the_best_split_is_the_fastest() -> None:
    times = S.stage_times(1.0, 0.5, 2.7, batches=96)
    best = S.best_split(times, gpus=8)
    assert best.settings["samplers"] == 2, "the rule's ceiling, 3, is slower here"
    others = [S.simulate(times, "factored", gpus=8, samplers=m, switching=False).epoch_s for m in range(1, 8)]
    assert best.epoch_s == min(others)
    assert S.best_split(times, gpus=8, samplers=[3]).settings["samplers"] == 3
    with pytest.raises(ValueError, match="gpus"):
        S.best_split(times, gpus=1)


@pytest.mark.parametrize("gpus", [2, 4, 7])
def test_favours_changes_at_the_break_even(gpus: int) -> None:
    times = S.stage_times(1.0, 0.5, 4.0, batches=24 * gpus)
    even = S.break_even(times, gpus=gpus)
    assert even > 0
    for factor, wanted in ((0.9, "time sharing"), (1.1, "factored")):
        (row,) = S.designs(times, S.stage_times(1.0, factor * even, 4.0, batches=24 * gpus), gpus=[gpus]).rows
        assert row["favours"] == wanted and row["break_even_s"] == pytest.approx(even)
        assert (row["factored_s"] < row["timeshared_s"]) == (wanted == "factored")


@pytest.mark.parametrize("gpus", [2, 8])
def test_the_break_even_counts_the_exchange_of_gradients_on_both_sides(gpus: int) -> None:
    costs = S.Costs(update_s=2.0)
    times = S.stage_times(4.0, 0.5, 8.0, batches=24 * gpus)
    even = S.break_even(times, gpus=gpus, costs=costs, shared_costs=costs)
    assert 0 < even < S.break_even(times, gpus=gpus, costs=costs)
    for factor, wanted in ((0.9, "time sharing"), (1.1, "factored")):
        shared = S.stage_times(4.0, factor * even, 8.0, batches=24 * gpus)
        (row,) = S.designs(times, shared, gpus=[gpus], costs=costs, shared_costs=costs).rows
        assert row["favours"] == wanted and row["break_even_s"] == pytest.approx(even)


@pytest.mark.parametrize(
    ("spread", "shared"),
    [(0.0, S.Costs(host_share=0.5)), (0.4, None), (0.4, S.Costs(host_share=0.4, update_s=0.1))],
)
def test_the_break_even_is_one_where_rounds_do_not_simply_add_up(
    spread: float, shared: S.Costs | None
) -> None:
    """Extractions that share a link, and mini-batches that differ: a round lasts as long as its slowest."""
    times = S.stage_times(0.5, 0.5, 3.0, batches=40, spread=spread)
    even = S.break_even(times, gpus=4, shared_costs=shared)
    best = S.best_split(times, gpus=4)
    others = replace(times, extract_s=np.full(40, even))
    assert even > 0 and S.simulate(others, "timeshared", gpus=4, costs=shared).epoch_s == pytest.approx(
        best.epoch_s
    )


def test_contention_of_either_design_is_told() -> None:
    times = S.stage_times(1.0, 0.5, 4.0, batches=8)
    assert S.designs(times, times, gpus=[2]).notes == ("no contention",)
    for name in ("costs", "shared_costs"):
        notes = S.designs(times, times, gpus=[2], **{name: S.Costs(host_share=0.5)}).notes
        assert notes == ("host link full at 2 extractions",)


def test_updates_of_time_sharing_count() -> None:
    times = S.stage_times(1.0, 0.5, 4.0, batches=48)
    (free,) = S.designs(times, times, gpus=[2]).rows
    (dear,) = S.designs(times, times, gpus=[2], shared_costs=S.Costs(update_s=3.0)).rows
    assert dear["timeshared_s"] == pytest.approx(free["timeshared_s"] + 24 * 3.0)
    assert (free["favours"], dear["favours"]) == ("time sharing", "factored")
    with pytest.raises(ValueError, match="executor"):
        S.designs(times, times, executor="factored")
