"""A small hand-written trace whose every number can be checked by eye."""

from __future__ import annotations

from gnnsample_lab.traces import LostTable, SampleTrace, TaskTable


def make_trace(
    strategy: str = "persistent", tasks: TaskTable | None = None, **changes: object
) -> SampleTrace:
    """Two seeds (hop 0) and three tasks of hop 1 on two SMs, or other tasks; one further task was lost."""
    tasks = tasks or TaskTable(
        hop=[0, 0, 1, 1, 1],
        vertex=[10, 11, 20, 21, 10],
        degree=[3, 1, 0, 5, 3],
        num_picks=[2, 1, 0, 2, 2],
        sm=[0, 1, 0, 1, 0],
        block=[0, 1, 0, 1, 2],
        enqueue_us=[0.0, 0.0, 4.0, 4.0, 4.0],
        start_us=[1.0, 1.0, 5.0, 6.0, 5.0],
        end_us=[4.0, 6.0, 7.0, 10.0, 9.0],
    )
    settings: dict = {
        "origin": "measured",
        "device_name": "NVIDIA H200",
        "strategy": strategy,
        "graph_name": "toy",
        "graph_is_synthetic": True,
        "num_sms": 2,
        "num_blocks": 3,
        "batch_size": 2,
        "fanouts": (2, 2),
        "pick": "reservoir",
        "fetch_size": 5,
        "completion": "paper",
        "preprocess_us": [1.0, 0.0],
        "bytes_moved": [1000, 2000],
        "lost": LostTable([1, 1], [22, 23], [4, -1], [1, -1], [4.5, float("nan")]),
        "copy_bandwidth_gbps": 4300.0,
        "meta": {"resident_workers": 4, "driver": "13.0"},
    }
    return SampleTrace.from_tasks(tasks, **{**settings, **changes})
