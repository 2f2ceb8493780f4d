"""Traces and picks -> plotly figures; pure functions, nothing else.

Every figure carries its axis units, the graph's title and the origin label ("measured on ..." or "modelled as
...") of what it shows. plotly loads when the first figure is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnsample_lab.lazy import exports

_EXPORTS = {
    "work_per_hop": "hops",
    "frontier_growth": "hops",
    "hop_times": "hops",
    "utilisation": "hops",
    "strategy_comparison": "compare",
    "model_vs_measurement": "compare",
    "summary_table": "compare",
    "gantt": "timeline",
    "sm_activity": "timeline",
    "queue_depth": "activity",
    "running_tasks": "activity",
    "sm_load": "activity",
    "task_cost": "activity",
    "match_heatmap": "matching",
    "match_limits": "matching",
    "match_tour": "matching",
    "feature_rows": "matching",
    "access_counts": "aggregation",
    "aggregation_times": "aggregation",
    "roofline": "aggregation",
    "times_over_features": "aggregation",
    "stage_breakdown": "training",
    "loss_curves": "training",
    "accuracy_curves": "training",
    "copied_bytes": "training",
    "sample_drawing": "drawing",
    "sample_layout": "drawing",
    "hash_table": "id_map",
    "slot_contention": "id_map",
    "probe_lengths": "id_map",
    "probes_by_load": "id_map",
    "id_map_rungs": "id_map",
    "hit_rates": "caching",
    "bytes_per_batch": "caching",
    "hotness_against_visits": "caching",
    "cache_contents": "caching",
    "cached_mask": "caching",
    "epoch_similarities": "caching",
    "device_route": "route",
    "graph_layout": "samples",
    "layer_links": "samples",
    "step_kinds": "samples",
    "visit_shares": "samples",
    "walk_drawing": "samples",
    "walk_lengths": "samples",
    "list_ranks": "transit",
    "thread_map": "transit",
    "warp_totals": "transit",
    "index_share": "transit_kernels",
    "index_work": "transit_kernels",
    "kernel_histogram": "transit_kernels",
    "kernel_shares": "transit_kernels",
    "sharing_by_batch": "transit_kernels",
    "schedule_allocation": "schedule",
    "schedule_epochs": "schedule",
    "schedule_gantt": "schedule",
    "schedule_scaling": "schedule",
    "schedule_splits": "schedule",
    "schedule_switching": "schedule",
    "schedule_one_gpu": "schedule",
    "schedule_pipelining": "schedule",
    "schedule_error": "schedule",
    "partition_drawing": "many_gpus",
    "traffic_matrix": "many_gpus",
    "traffic_kinds": "many_gpus",
    "traffic_curves": "many_gpus",
    "saved_reads": "many_gpus",
    "ladder_speedups": "many_gpus",
    "empty_figure": "style",
    "set_cursor": "style",
    "update_figure": "style",
}

if TYPE_CHECKING:
    from gnnsample_lab.figures.activity import queue_depth, running_tasks, sm_load, task_cost
    from gnnsample_lab.figures.aggregation import (
        access_counts,
        aggregation_times,
        roofline,
        times_over_features,
    )
    from gnnsample_lab.figures.caching import (
        bytes_per_batch,
        cache_contents,
        cached_mask,
        epoch_similarities,
        hit_rates,
        hotness_against_visits,
    )
    from gnnsample_lab.figures.compare import model_vs_measurement, strategy_comparison, summary_table
    from gnnsample_lab.figures.drawing import sample_drawing, sample_layout
    from gnnsample_lab.figures.hops import frontier_growth, hop_times, utilisation, work_per_hop
    from gnnsample_lab.figures.id_map import (
        hash_table,
        id_map_rungs,
        probe_lengths,
        probes_by_load,
        slot_contention,
    )
    from gnnsample_lab.figures.many_gpus import (
        ladder_speedups,
        partition_drawing,
        saved_reads,
        traffic_curves,
        traffic_kinds,
        traffic_matrix,
    )
    from gnnsample_lab.figures.matching import feature_rows, match_heatmap, match_limits, match_tour
    from gnnsample_lab.figures.route import device_route
    from gnnsample_lab.figures.samples import (
        graph_layout,
        layer_links,
        step_kinds,
        visit_shares,
        walk_drawing,
        walk_lengths,
    )
    from gnnsample_lab.figures.schedule import (
        schedule_allocation,
        schedule_epochs,
        schedule_error,
        schedule_gantt,
        schedule_one_gpu,
        schedule_pipelining,
        schedule_scaling,
        schedule_splits,
        schedule_switching,
    )
    from gnnsample_lab.figures.style import empty_figure, set_cursor, update_figure
    from gnnsample_lab.figures.timeline import gantt, sm_activity
    from gnnsample_lab.figures.training import accuracy_curves, copied_bytes, loss_curves, stage_breakdown
    from gnnsample_lab.figures.transit import list_ranks, thread_map, warp_totals
    from gnnsample_lab.figures.transit_kernels import (
        index_share,
        index_work,
        kernel_histogram,
        kernel_shares,
        sharing_by_batch,
    )

__all__ = [
    "access_counts",
    "accuracy_curves",
    "aggregation_times",
    "bytes_per_batch",
    "cache_contents",
    "cached_mask",
    "copied_bytes",
    "device_route",
    "empty_figure",
    "epoch_similarities",
    "feature_rows",
    "frontier_growth",
    "gantt",
    "graph_layout",
    "hash_table",
    "hit_rates",
    "hop_times",
    "hotness_against_visits",
    "id_map_rungs",
    "index_share",
    "index_work",
    "kernel_histogram",
    "kernel_shares",
    "ladder_speedups",
    "layer_links",
    "list_ranks",
    "loss_curves",
    "match_heatmap",
    "match_limits",
    "match_tour",
    "model_vs_measurement",
    "partition_drawing",
    "probe_lengths",
    "probes_by_load",
    "queue_depth",
    "roofline",
    "running_tasks",
    "sample_drawing",
    "sample_layout",
    "saved_reads",
    "schedule_allocation",
    "schedule_epochs",
    "schedule_error",
    "schedule_gantt",
    "schedule_one_gpu",
    "schedule_pipelining",
    "schedule_scaling",
    "schedule_splits",
    "schedule_switching",
    "set_cursor",
    "sharing_by_batch",
    "slot_contention",
    "sm_activity",
    "sm_load",
    "stage_breakdown",
    "step_kinds",
    "strategy_comparison",
    "summary_table",
    "task_cost",
    "thread_map",
    "times_over_features",
    "traffic_curves",
    "traffic_kinds",
    "traffic_matrix",
    "update_figure",
    "utilisation",
    "visit_shares",
    "walk_drawing",
    "walk_lengths",
    "warp_totals",
    "work_per_hop",
]

__getattr__, __dir__ = exports(__name__, _EXPORTS)
