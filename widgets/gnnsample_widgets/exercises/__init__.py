"""The exercises of the notebooks: one checker each, with instant feedback that explains.

Every checker takes one answer and returns a :class:`~gnnsample_widgets.feedback.Feedback`. A blank answer
(``...``) is reported as such; nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable

from ..feedback import Feedback
from .aggregation import bound, model_limit, model_speedup, roof, shared_bytes, stage_speedup
from .caching import degree_hit_rate, ever_read, fewer_bytes, similarity
from .fusion import fusion_speedup, lost_hop, lost_with_fetch_one, may_leave
from .id_map import fewest_local_ids, landing_slot, probes_when_full, relabelled, sharing_ids
from .khop import largest_frontiers, pick_probability, preprocessing_share, second_frontier
from .matching import greedy_tour, match_degree, printed_third, reorder_bound, rows_loaded
from .own_sampler import fanouts, forest_fire, lazy_walk, same_walk, towards_hubs
from .start import EDGES, block_sources, in_neighbours, same_sample
from .transit import index_pays, kernel, lists_per_warp, scheduled, staging

ALL: dict[str, tuple[Callable[..., Feedback], ...]] = {
    "00": (in_neighbours, same_sample, block_sources),
    "01": (second_frontier, pick_probability, largest_frontiers, preprocessing_share),
    "02": (fusion_speedup, lost_hop, lost_with_fetch_one, may_leave),
    "03": (lists_per_warp, scheduled, kernel, staging, index_pays),
    "04": (same_walk, lazy_walk, towards_hubs, fanouts, forest_fire),
    "05": (landing_slot, sharing_ids, fewest_local_ids, probes_when_full, relabelled),
    "06": (ever_read, degree_hit_rate, fewer_bytes, similarity),
    "07": (match_degree, rows_loaded, greedy_tour, printed_third, reorder_bound),
    "08": (model_speedup, model_limit, shared_bytes, roof, bound, stage_speedup),
}
"""The checkers by notebook."""

__all__ = [
    "ALL",
    "EDGES",
    "block_sources",
    "bound",
    "degree_hit_rate",
    "ever_read",
    "fanouts",
    "fewer_bytes",
    "fewest_local_ids",
    "forest_fire",
    "fusion_speedup",
    "greedy_tour",
    "in_neighbours",
    "index_pays",
    "kernel",
    "landing_slot",
    "largest_frontiers",
    "lazy_walk",
    "lists_per_warp",
    "lost_hop",
    "lost_with_fetch_one",
    "match_degree",
    "may_leave",
    "model_limit",
    "model_speedup",
    "pick_probability",
    "preprocessing_share",
    "printed_third",
    "probes_when_full",
    "relabelled",
    "reorder_bound",
    "roof",
    "rows_loaded",
    "same_sample",
    "same_walk",
    "scheduled",
    "second_frontier",
    "shared_bytes",
    "sharing_ids",
    "similarity",
    "stage_speedup",
    "staging",
    "towards_hubs",
]
