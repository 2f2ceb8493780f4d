"""The exercises of the notebooks: one checker each, with instant feedback that explains.

Every checker takes one answer and returns a :class:`~gnnsample_widgets.feedback.Feedback`. A blank answer
(``...``) is reported as such; nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable

from ..feedback import Feedback
from .fusion import fusion_speedup, lost_hop, lost_with_fetch_one, may_leave
from .khop import largest_frontiers, pick_probability, preprocessing_share, second_frontier
from .start import EDGES, block_sources, in_neighbours, same_sample

ALL: dict[str, tuple[Callable[..., Feedback], ...]] = {
    "00": (in_neighbours, same_sample, block_sources),
    "01": (second_frontier, pick_probability, largest_frontiers, preprocessing_share),
    "02": (fusion_speedup, lost_hop, lost_with_fetch_one, may_leave),
}
"""The checkers by notebook."""

__all__ = [
    "ALL",
    "EDGES",
    "block_sources",
    "fusion_speedup",
    "in_neighbours",
    "largest_frontiers",
    "lost_hop",
    "lost_with_fetch_one",
    "may_leave",
    "pick_probability",
    "preprocessing_share",
    "same_sample",
    "second_frontier",
]
