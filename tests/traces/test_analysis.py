from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gnnsample_lab.traces import (
    SampleTrace,
    TaskTable,
    assign_lanes,
    busy_us_per_sm,
    busy_workers,
    compare_traces,
    hop_spans,
    hop_utilisation,
    idle_us_per_sm,
    load_imbalance,
    queue_stats,
    resident_workers,
    summarise,
)
from tests.handmade_trace import make_trace


def random_trace(seed: int, strategy: str = "persistent") -> SampleTrace:
    rng = np.random.default_rng(seed)
    n = 200
    start = rng.random(n) * 50
    tasks = TaskTable(
        rng.integers(0, 3, n),
        rng.integers(0, 99, n),
        rng.integers(0, 9, n),
        rng.integers(0, 5, n),
        rng.integers(0, 4, n),
        rng.integers(0, 20, n),
        start - rng.random(n),
        start,
        start + rng.random(n) * 6,
    )
    return SampleTrace.from_tasks(
        tasks,
        origin="modelled",
        device_name="X",
        strategy=strategy,
        graph_name="g",
        graph_is_synthetic=False,
        num_sms=4,
        num_blocks=20,
        batch_size=9,
        fanouts=(5, 5, 5),
    )


def test_busy_time_is_the_sum_of_durations():
    assert busy_us_per_sm(make_trace()).tolist() == [3.0 + 2.0 + 4.0, 5.0 + 4.0]
    assert load_imbalance(make_trace()) == 1.0


def test_idle_time_counts_overlapping_tasks_once():
    # SM 0 works in 1..4 and 5..9, SM 1 in 1..10, out of 10 us.
    assert idle_us_per_sm(make_trace()).tolist() == pytest.approx([3.0, 1.0])


def test_idle_time_agrees_with_a_fine_grid():
    trace = random_trace(3)
    grid = np.linspace(0, trace.total_us, 200_001)[:-1]
    for sm, idle in enumerate(idle_us_per_sm(trace)):
        rows = trace.tasks.sm == sm
        change = np.zeros(len(grid) + 1)
        np.add.at(change, np.searchsorted(grid, trace.tasks.start_us[rows]), 1)
        np.add.at(change, np.searchsorted(grid, trace.tasks.end_us[rows]), -1)
        free = (np.cumsum(change)[:-1] == 0).mean() * trace.total_us
        assert idle == pytest.approx(free, abs=0.05)


@pytest.mark.parametrize("bins", [1, 7, 240])
def test_busy_workers_conserve_task_time(bins):
    trace = random_trace(0)
    edges, running = busy_workers(trace, bins=bins)
    assert (running * np.diff(edges)).sum() == pytest.approx(trace.tasks.duration_us.sum())
    by_hop = sum(busy_workers(trace, bins=bins, hop=hop)[1] for hop in range(3))
    assert by_hop == pytest.approx(running)


def test_busy_workers_needs_a_bin():
    with pytest.raises(ValueError, match="bins must be at least 1"):
        busy_workers(make_trace(), bins=0)


def test_kernel_time_of_overlapping_hops_adds_up_to_the_kernel():
    trace = random_trace(1)
    first, last = trace.tasks.start_us.min(), trace.tasks.end_us.max()
    assert trace.hops.kernel_us.sum() == pytest.approx(last - first)


def test_kernel_time_of_separate_hops_is_their_span():
    trace = random_trace(1, "block-bsp")
    spans = hop_spans(trace)
    assert trace.hops.kernel_us == pytest.approx(spans[:, 1] - spans[:, 0])


def test_lanes_of_an_sm_do_not_overlap_and_are_as_few_as_possible():
    trace = random_trace(2)
    lanes, tasks = assign_lanes(trace), trace.tasks
    for sm in range(4):
        rows = tasks.sm == sm
        for lane in range(int(lanes[rows].max()) + 1):
            mine = np.flatnonzero(rows & (lanes == lane))
            mine = mine[np.argsort(tasks.start_us[mine])]
            assert (tasks.start_us[mine][1:] >= tasks.end_us[mine][:-1]).all()
        instants = tasks.start_us[rows]
        most = max(((tasks.start_us[rows] <= t) & (tasks.end_us[rows] > t)).sum() for t in instants)
        assert int(lanes[rows].max()) + 1 == most


def test_utilisation_is_bounded_and_uses_the_known_capacity():
    trace = make_trace()
    busy = np.array([3.0 + 5.0, 2.0 + 4.0 + 4.0])
    assert hop_utilisation(trace) == pytest.approx(busy / (trace.hops.kernel_us * 4))
    assert resident_workers(dataclasses.replace(trace, meta={})) == 3


def test_queue_figures():
    stats = queue_stats(make_trace())
    # The task that was lost at 4.5 is in its slot to the end, but it does not wait for anybody.
    assert make_trace().queue.peak == 4 and (stats.peak, stats.peak_time_us) == (3, 4.0)
    # 2 for 1 us, 0 for 3, 3 for 1, 1 for 1, 0 for 4.
    assert stats.mean_depth == pytest.approx((2 * 1 + 3 * 1 + 1 * 1) / 10)
    assert queue_stats(make_trace("bsp")).peak == 0


def test_comparison_is_relative_to_the_measurement():
    measured = make_trace()
    model = dataclasses.replace(
        measured,
        origin="modelled",
        hops=dataclasses.replace(measured.hops, kernel_us=measured.hops.kernel_us * 1.2),
    )
    assert compare_traces(model, measured)["kernel_time"] == pytest.approx(0.2)
    assert compare_traces(model, measured)["queue_peak"] == 0.0
    assert np.isnan(compare_traces(make_trace("bsp"), make_trace("bsp"))["queue_peak"])


def test_summary_has_one_row_per_trace():
    table = summarise([make_trace(), make_trace("block-bsp")])
    assert table["strategy"].tolist() == ["persistent", "block-bsp"]
    assert table["tasks"].tolist() == [5, 5]
    assert table["lost_tasks"].tolist() == [2, 2]


def test_a_task_that_goes_on_after_the_end_is_busy_until_the_end():
    tasks = TaskTable([0, 0], [0, 1], [1, 1], [1, 1], [0, 1], [0, 1], [0, 0], [0, 20], [5, 30])
    trace = make_trace(tasks=tasks, lost=None, total_us=10.0)
    assert idle_us_per_sm(trace).tolist() == [5.0, 10.0]
