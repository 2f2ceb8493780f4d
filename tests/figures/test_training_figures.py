"""Training runs as figures, from made-up results."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import figures
from gnnsample_lab.figures import palette
from gnnsample_lab.figures.training import duration, run_names
from gnnsample_lab.pipeline.records import EpochRecord, TrainResult


def made_up(system: str, *, slow: float = 1.0, total_us: float = 100_000.0, **change: Any) -> TrainResult:
    """Two epochs, the first one slower. Stages of the second: 10, 0, 40 and 30 ms times ``slow``."""
    second = EpochRecord(
        10_000 * slow,
        40_000 * slow,
        30_000 * slow,
        total_us * slow,
        bytes_moved=int(2e6 * slow),
        num_batches=2,
        number=1,
    )
    first = EpochRecord(90_000, 90_000, 90_000, 900_000, bytes_moved=9_000_000, num_batches=2)
    given: dict[str, Any] = {
        "model": "gcn",
        "graph": "toy (synthetic)",
        "device": "cuda",
        "origin": "measured on NVIDIA H200",
        "losses": [2.0, 1.5, 1.0, 0.5],
        "batch_ids": [0, 1, 2, 3],
        "accuracy": [0.25, 0.5],
        "accuracy_split": "test",
        "epochs": [first, second],
        **change,
    }
    return TrainResult(system=system, **given)


DGL, LAB = made_up("dgl"), made_up("lab", slow=0.25, losses=[2.0, 1.5, 1.001, 0.5])
ALL = {
    "stage_breakdown": figures.stage_breakdown,
    "loss_curves": figures.loss_curves,
    "accuracy_curves": figures.accuracy_curves,
    "copied_bytes": figures.copied_bytes,
}


def bars(figure: Any) -> dict[str, Any]:
    return {t.name: np.asarray(t.x) for t in figure.data if t.type == "bar"}


@pytest.mark.parametrize("name", ALL)
def test_every_figure_names_graph_model_and_origin_and_survives_json(name):
    figure = ALL[name]([DGL, LAB])
    title = figure.layout.title.text
    assert "toy (synthetic)" in title and "GCN" in title and title.count("measured on NVIDIA H200") == 1
    json.loads(figure.to_json())
    assert len(ALL[name](DGL).data) >= 1, "one result need not be in a list"


@pytest.mark.parametrize("name", ALL)
def test_no_result_is_an_error(name):
    with pytest.raises(ValueError, match="results must hold at least one"):
        ALL[name]([])


def test_stages_of_the_fastest_epoch_are_stacked():
    figure = figures.stage_breakdown([DGL, LAB])
    found = bars(figure)
    assert list(found) == ["sample", "extract", "train", "between the stages"]
    assert found["sample"] == pytest.approx([10, 2.5])
    assert found["extract"] == pytest.approx([40, 10])
    assert found["train"] == pytest.approx([30, 7.5])
    assert found["between the stages"] == pytest.approx([20, 5])
    assert figure.layout.xaxis.title.text == "time per epoch (ms)"
    assert figure.data[0].marker.color == palette.STAGES["sample"]
    assert figure.data[-1].text == ("  100 ms", "  25 ms  (4.0× faster)")


def test_noise_of_a_cpu_is_no_speed_up():
    figure = figures.stage_breakdown([made_up("dgl", device="cpu"), made_up("lab", slow=0.25, device="cpu")])
    assert figure.data[-1].text == ("  100 ms", "  25 ms")
    assert "ratios" not in figure.layout.title.text and "do not compare" in figure.layout.title.text


def test_stages_that_overlap_end_before_their_sum():
    figure = figures.stage_breakdown(made_up("dgl", total_us=50_000))
    assert "between the stages" not in bars(figure)
    wall = next(t for t in figure.data if t.name == "wall clock")
    assert wall.x == pytest.approx([50]) and sum(bars(figure).values()) == pytest.approx([80])


def test_reordering_is_a_stage_of_its_own():
    epoch = EpochRecord(10.0, 20.0, 30.0, 65.0, reorder_us=5.0)
    found = bars(figures.stage_breakdown(made_up("fastgl", epochs=[epoch])))
    assert found["reorder"] == pytest.approx([5]) and "between the stages" not in found


def test_an_empty_run_is_an_error():
    with pytest.raises(ValueError, match="at least one epoch .*from dgl"):
        figures.stage_breakdown(made_up("dgl", epochs=[]))
    with pytest.raises(ValueError, match="must have losses .*from dgl"):
        figures.loss_curves(made_up("dgl", losses=[]))
    with pytest.raises(ValueError, match="evaluated"):
        figures.accuracy_curves(made_up("dgl", accuracy=[]))


def test_losses_lie_over_the_reference():
    figure = figures.loss_curves([DGL, LAB])
    below, above = figure.data
    assert (below.name, above.name) == ("dgl", "lab")
    assert below.line.width > above.line.width
    assert above.x.tolist() == [1, 2, 3, 4]
    assert above.y == pytest.approx(LAB.losses)
    assert "apart by 1.0e-03 at most" in figure.layout.title.text


def test_other_batches_are_not_compared_step_by_step():
    swapped = made_up("fastgl", batch_ids=[1, 0, 2, 3])
    assert "apart" not in figures.loss_curves([DGL, swapped]).layout.title.text
    assert "the same to the bit" in figures.loss_curves([DGL, DGL]).layout.title.text


def test_losses_can_be_smoothed():
    figure = figures.loss_curves(DGL, smooth=2)
    assert figure.data[0].y == pytest.approx([2.0, 1.75, 1.25, 0.75])
    assert "mean of 2 steps" in figure.layout.title.text
    with pytest.raises(ValueError, match="smooth must be at least 1"):
        figures.loss_curves(DGL, smooth=0)


def test_losses_that_are_no_numbers_leave_a_gap_and_no_more():
    losses = [2.0, float("nan"), 1e16, float("inf"), float("nan"), 0.25, 0.5]
    run = made_up("dgl", losses=losses, batch_ids=list(range(7)))
    np.testing.assert_array_equal(figures.loss_curves(run).data[0].y, losses)
    smooth = figures.loss_curves(run, smooth=2)
    np.testing.assert_array_equal(
        smooth.data[0].y, [2.0, 2.0, 1e16, 1e16, float("nan"), 0.25, 0.375], "the mean of the finite losses"
    )
    json.loads(smooth.to_json())
    np.testing.assert_allclose(figures.loss_curves(DGL, smooth=9).data[0].y, [2.0, 1.75, 1.5, 1.25])


def test_distances_of_curves_are_of_numbers():
    nan = float("nan")
    gap, near = (made_up("dgl", losses=[2.0, nan, 1.0, last]) for last in (0.5, 0.75))
    assert "the same to the bit" in figures.loss_curves([gap, gap]).layout.title.text
    assert "apart by 2.5e-01 at most" in figures.loss_curves([gap, near]).layout.title.text
    for other in (DGL, made_up("lab", losses=[2.0, float("inf"), 1.0, 0.5])):
        title = figures.loss_curves([gap, other]).layout.title.text
        assert "apart" not in title and "nan" not in title and "same" not in title


def test_accuracies_are_percentages_per_epoch():
    figure = figures.accuracy_curves([DGL, LAB])
    assert figure.data[1].y == pytest.approx([25, 50]) and figure.data[1].x.tolist() == [1, 2]
    assert "test split" in figure.layout.title.text and "(%)" in figure.layout.yaxis.title.text


def test_copied_bytes_and_what_spared_the_rest():
    epoch = EpochRecord(1.0, 1.0, 1.0, 3.0, bytes_moved=500_000, hit_rate=0.75, reused_rows=30, rows=100)
    figure = figures.copied_bytes([DGL, made_up("lab", epochs=[epoch])])
    assert figure.data[0].x == pytest.approx([5.5, 0.5]), "the mean of the epochs"
    assert figure.data[0].marker.color == (palette.SYSTEMS["dgl"], palette.SYSTEMS["lab"])
    assert figure.data[1].text == ("  5.5 MB", "  0.5 MB  (30\u00a0% reused, cache hits 75\u00a0%)")


def test_figures_of_a_resumed_run_know_its_epochs():
    rest = EpochRecord(
        1.0, 1.0, 1.0, 3.0, bytes_moved=1_000_000, num_batches=1, number=2, hit_rate=0.35, rows=100
    )
    whole = EpochRecord(
        1.0,
        1.0,
        1.0,
        9.0,
        bytes_moved=5_000_000,
        num_batches=5,
        number=3,
        hit_rate=0.75,
        rows=500,
        reused_rows=200,
    )
    run = made_up("lab", epochs=[rest, whole])
    assert figures.accuracy_curves([DGL, run]).data[1].x.tolist() == [3, 4]
    figure = figures.copied_bytes(run)
    assert figure.data[0].x == pytest.approx([5.0]), "the rest of an epoch is no epoch"
    assert "cache hits 65\u00a0%" in figure.data[1].text[0], "(0.35 * 100 + 0.75 * 300) / 400"
    assert figures.copied_bytes(made_up("lab", epochs=[rest])).data[0].x == pytest.approx([1.0])


def test_runs_are_told_apart():
    assert run_names([DGL, LAB]) == ["dgl", "lab"]
    assert run_names([DGL, DGL]) == ["dgl", "dgl (2)"]
    assert run_names([DGL, made_up("dgl", model="gin")]) == ["dgl, gcn", "dgl, gin"]


def test_durations_have_the_digits_that_matter():
    assert [duration(v) for v in (8.4, 12_340, 4_050_000, 123_000)] == [
        "8.4 µs",
        "12.3 ms",
        "4.05 s",
        "123 ms",
    ]


def test_curves_that_still_grow_have_the_axis_of_the_whole_run() -> None:
    part = made_up("dgl", losses=[2.0, 1.5], accuracy=[0.25])
    axis = figures.loss_curves(part, steps=8).layout.xaxis
    assert axis.range[0] < 1 and 8 < axis.range[1] < 9
    axis = figures.accuracy_curves(part, epochs=4).layout.xaxis
    assert axis.range[0] < 1 and 4 < axis.range[1] < 5
