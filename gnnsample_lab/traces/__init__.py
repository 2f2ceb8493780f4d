"""What happened and when: typed records of one sampling run, their analysis, and their files.

A trace is the only thing that figures and analysis read. It is *measured* (recorded inside kernels on a GPU)
or *modelled* (replayed by the discrete-event GPU model on the very same sample), and says which.
"""

from gnnsample_lab.traces.analysis import (
    QueueStats,
    assign_lanes,
    busy_us_per_sm,
    busy_workers,
    compare_traces,
    hop_kernel_times,
    hop_spans,
    hop_utilisation,
    idle_us_per_sm,
    load_imbalance,
    queue_stats,
    resident_workers,
    summarise,
    waiting_tasks,
)
from gnnsample_lab.traces.records import FUSED_STRATEGIES, SampleTrace
from gnnsample_lab.traces.tables import (
    HopTable,
    LostTable,
    QueueSeries,
    SlotTable,
    TaskTable,
    queue_depth_series,
    slots_of,
)

__all__ = [
    "FUSED_STRATEGIES",
    "HopTable",
    "LostTable",
    "QueueSeries",
    "QueueStats",
    "SampleTrace",
    "SlotTable",
    "TaskTable",
    "assign_lanes",
    "busy_us_per_sm",
    "busy_workers",
    "compare_traces",
    "hop_kernel_times",
    "hop_spans",
    "hop_utilisation",
    "idle_us_per_sm",
    "load_imbalance",
    "queue_depth_series",
    "queue_stats",
    "resident_workers",
    "slots_of",
    "summarise",
    "waiting_tasks",
]
