from __future__ import annotations

import numpy as np
import pytest

from gnnsample_lab.traces import HopTable, LostTable, QueueSeries, TaskTable, queue_depth_series
from tests.handmade_trace import make_trace


def test_columns_are_coerced_to_their_dtypes():
    tasks = make_trace().tasks
    assert [c.dtype.str[1:] for c in tasks.columns().values()] == [
        "u1",
        "i8",
        "i8",
        "i4",
        "i2",
        "i4",
        "f8",
        "f8",
        "f8",
    ]


def test_unequal_columns_name_the_column():
    columns = make_trace().tasks.columns()
    with pytest.raises(ValueError, match=r"TaskTable\.sm .*got 4, expected 5"):
        TaskTable(**{**columns, "sm": columns["sm"][:4]})


def test_two_dimensional_column_is_refused():
    with pytest.raises(ValueError, match=r"QueueSeries\.time_us must be 1-D"):
        QueueSeries(np.zeros((2, 2)), np.zeros(2))


def test_hops_follow_from_the_tasks():
    hops = make_trace().hops
    assert hops.workload.tolist() == [2, 3]
    assert hops.num_picks.tolist() == [3, 4]
    # 1000 bytes over the kernel time, as a share of 4300 bytes per ns.
    assert hops.copy_share == pytest.approx([1000, 2000] / (hops.kernel_us * 1e3) / 4300)


def test_share_of_an_unknown_bandwidth_is_nan():
    assert np.isnan(make_trace(copy_bandwidth_gbps=float("nan")).hops.copy_share).all()


@pytest.mark.parametrize(
    "origin, text", [("measured", "measured on NVIDIA H200"), ("modelled", "modelled as NVIDIA H200")]
)
def test_label_says_the_origin(origin, text):
    assert make_trace(origin=origin).label == text


def test_title_names_a_synthetic_graph():
    assert make_trace().title == "toy (synthetic)"
    assert make_trace(graph_is_synthetic=False).title == "toy"


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"origin": "guessed"}, "origin must be one of"),
        ({"num_sms": 1}, r"tasks\.sm must lie in 0\.\.0"),
        ({"num_sms": 0}, "num_sms must be between 1 and"),
        ({"fanouts": (2,), "preprocess_us": [1.0], "bytes_moved": [1]}, r"tasks\.hop must be below 1"),
    ],
)
def test_inconsistent_traces_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_trace(**changes)


def test_queue_depth_counts_lost_tasks_to_the_end():
    trace = make_trace()
    # Two in at 0 and out at 1; three in at 4, a lost one at 4.5; two out at 5, one at 6: the lost one stays.
    assert trace.queue.time_us.tolist() == [0.0, 1.0, 4.0, 4.5, 5.0, 6.0]
    assert trace.queue.depth.tolist() == [2, 0, 3, 4, 2, 1]
    assert trace.queue.peak == 4


def test_queue_depth_keeps_the_peak_of_an_instant():
    zero = [0, 0]
    tasks = TaskTable(zero, zero, zero, zero, zero, zero, [1.0, 1.0], [1.0, 1.0], [2.0, 2.0])
    assert queue_depth_series(tasks).depth.tolist() == [2, 0]


def test_strategies_without_a_queue_have_none():
    trace = make_trace("block-bsp")
    assert len(trace.queue) == 0
    assert trace.queue.peak == 0
    assert not trace.is_fused


def test_lost_of_marks_tasks_as_abandoned():
    lost = LostTable.of([1, 2], [7, 8])
    assert lost.untimed.tolist() == [True, True]
    when = LostTable([1, 2], [7, 8], [0, -1], [-1, -1], [4.5, np.nan])
    assert when.untimed.tolist() == [False, False], "one is timed, one was never queued"
    assert lost.abandoned.all()
    assert lost.vertex.tolist() == [7, 8]


def test_tables_compare_by_value():
    assert make_trace().tasks == make_trace().tasks
    assert make_trace().lost == make_trace().lost
    assert make_trace().tasks != make_trace().tasks.take(np.arange(3))
    assert make_trace().hops != HopTable(*([np.zeros(2)] * 6))


def test_frame_has_the_derived_columns():
    frame = make_trace().to_frame()
    assert frame["wait_us"].tolist() == [1.0, 1.0, 1.0, 2.0, 1.0]
    assert frame["duration_us"].sum() == pytest.approx(18.0)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"hop": np.array([256, 0])}, ValueError, "TaskTable.hop .*uint8.*256"),
        ({"num_picks": np.array([2**32 + 1, 0])}, ValueError, "num_picks .*4294967297"),
        ({"vertex": [1.5, 2.0]}, ValueError, "vertex .*1.5"),
        ({"sm": np.array([np.nan, 0])}, ValueError, "sm .*nan"),
        ({"block": ["a", "b"]}, TypeError, "block must hold numbers"),
    ],
)
def test_a_number_that_a_column_cannot_hold_is_refused(changes, error, message):
    columns = {name: [0, 1] for name in ("hop", "vertex", "degree", "num_picks", "sm", "block")}
    times = {name: [0.0, 1.0] for name in ("enqueue_us", "start_us", "end_us")}
    assert len(TaskTable(**columns, **times)) == 2
    with pytest.raises(error, match=message):
        TaskTable(**{**columns, **times, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start_us": [3.0, 0.0], "end_us": [2.0, 1.0]}, "end_us must not be before tasks.start_us .*row 0"),
        ({"enqueue_us": [0.0, 0.5]}, "start_us must not be before tasks.enqueue_us .*row 1"),
        ({"end_us": [1.0, np.nan]}, "end_us must be finite"),
    ],
)
def test_a_task_is_queued_then_started_then_ended(changes, message):
    columns = {name: [0, 0] for name in ("hop", "vertex", "degree", "num_picks", "sm", "block")}
    times = {"enqueue_us": [0.0, 0.0], "start_us": [0.0, 0.0], "end_us": [5.0, 1.0]} | changes
    with pytest.raises(ValueError, match=message):
        make_trace(tasks=TaskTable(**columns, **times))
