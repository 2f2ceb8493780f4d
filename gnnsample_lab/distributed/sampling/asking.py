"""Questions to owners: vertices go to who has their lists, and one answer for each comes back in their order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .cpu.base import by_owner
from .layout import Layout


def ask_owners(
    layout: Layout,
    vertices: np.ndarray,
    columns: list[np.ndarray],
    answer: Callable[..., np.ndarray],
    kind: str,
    dtype: np.dtype,
) -> np.ndarray:
    """Ask the owner of each vertex; all ranks of the exchange call it together.

    Args:
        layout: parts and ranks.
        vertices: original ids ``[n]``.
        columns: further arrays ``[n]`` that the owner needs.
        answer: at the owner: of vertices and the columns, one number each.
        kind: of the answers' traffic.
        dtype: of the answers.
    """
    exchange = layout.exchange
    asked = by_owner(vertices, layout.partition.owner[vertices], exchange.size)
    receive = exchange.sizes(asked.counts)
    found = [exchange.all_to_all("ids", asked.vertices, asked.counts, receive)]
    found += [exchange.all_to_all("ids", c[asked.order], asked.counts, receive) for c in columns]
    replies = answer(*found).astype(dtype, copy=False)
    out = np.empty(vertices.size, dtype=dtype)
    out[asked.order] = exchange.all_to_all(kind, replies, receive, asked.counts)
    return out
