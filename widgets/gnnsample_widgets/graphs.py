"""From an explorer's ``graph`` argument to a graph and the Python that loads the same one."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import to_host


def resolve_graph(graph: Any) -> tuple[Any, list[str]]:
    """The graph to explore and the lines of code that make it ``g``.

    Args:
        graph: a Graph, a name for ``lab.load``, or None for the default graph.

    Raises:
        TypeError: not a graph, a name or None.
        ValueError: a graph without vertices.
        LookupError, ValueError, OSError: as ``lab.load``.
    """
    found, code = _resolved(graph)
    if found.num_nodes < 1:
        raise ValueError(f"graph must have at least one vertex (got {found.num_nodes} in {found.title!r})")
    return found, code


def _resolved(graph: Any) -> tuple[Any, list[str]]:
    import gnnsample_lab as lab

    if graph is None:
        return lab.load_default(), ["g = lab.load_default()"]
    if isinstance(graph, str):
        return lab.load(graph), [f"g = lab.load({graph!r})"]
    if not all(hasattr(graph, name) for name in ("indptr", "indices", "num_nodes")):
        raise TypeError(f"graph must be a Graph, a dataset name or None (got {type(graph).__name__})")
    # A name may come from a file: as a literal it cannot end the comment, whatever it holds.
    return graph, [f"# g is the graph that the explorer was given: {graph.title!r}"]


def to_device(graph: Any, device: str) -> Any:
    """The topology on ``device`` ("cpu" or "cuda"); features stay where they are."""
    return graph if graph.device == device else graph.to(device, features=False)


def sampled_on(device: str) -> str:
    """Where a sample was drawn, for labels."""
    return f"sampled on the {'GPU' if device == 'cuda' else 'CPU'}"


def seed_pool(graph: Any) -> np.ndarray:
    """Vertices that batches are drawn from, int64 global ids: the training split, else all vertices."""
    train = graph.splits.get("train")
    if train is None or len(train) == 0:
        return np.arange(graph.num_nodes)
    return to_host(train)


def draw_seeds(host: Any, batch_size: int, seed: int) -> np.ndarray:
    """``batch_size`` distinct vertices of the graph's seed pool, int64; the same ones for the same seed."""
    return np.random.default_rng(seed).choice(seed_pool(host), batch_size, replace=False)


def batch_options(graph: Any, largest: int, smallest: int = 1) -> list[int]:
    """Powers of two from ``smallest`` to ``largest``, as far as the graph has vertices to draw from."""
    room = min(largest, len(seed_pool(graph)))
    sizes = [1 << k for k in range(room.bit_length()) if smallest <= 1 << k <= room]
    return sizes or [room]
