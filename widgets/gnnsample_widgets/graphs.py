"""From an explorer's ``graph`` argument to a graph and the Python that loads the same one."""

from __future__ import annotations

from typing import Any

import numpy as np

HEADER = ["import numpy as np", "import gnnsample_lab as lab", "from gnnsample_lab import figures", ""]


def resolve_graph(graph: Any) -> tuple[Any, list[str]]:
    """The graph to explore and the lines of code that make it ``g``.

    Args:
        graph: a Graph, a name for ``lab.load``, or None for the default graph.

    Raises:
        TypeError: not a graph, a name or None.
        LookupError, ValueError, OSError: as ``lab.load``.
    """
    import gnnsample_lab as lab

    if graph is None:
        return lab.load_default(), ["g = lab.load_default()"]
    if isinstance(graph, str):
        return lab.load(graph), [f"g = lab.load({graph!r})"]
    if not all(hasattr(graph, name) for name in ("indptr", "indices", "num_nodes")):
        raise TypeError(f"graph must be a Graph, a dataset name or None (got {type(graph).__name__})")
    return graph, [f"# g is the graph that the explorer was given: {graph.title}"]


def to_device(graph: Any, device: str) -> Any:
    """The topology on ``device`` ("cpu" or "cuda"); features stay where they are."""
    return graph if graph.device == device else graph.to(device, features=False)


def seed_pool(graph: Any) -> np.ndarray:
    """Vertices that batches are drawn from, int64 global ids: the training split, else all vertices."""
    train = graph.splits.get("train")
    if train is None or len(train) == 0:
        return np.arange(graph.num_nodes)
    return np.asarray(train.get() if hasattr(train, "get") else train)


def draw_seeds(pool: np.ndarray, batch_size: int, seed: int) -> np.ndarray:
    """``batch_size`` distinct vertices of ``pool``, int64; the same ones for the same seed."""
    return np.random.default_rng(seed).choice(pool, batch_size, replace=False)


def seed_lines(graph: Any, batch_size: int, seed: int) -> list[str]:
    """Code that defines ``seeds`` as :func:`draw_seeds` does."""
    has_train = len(graph.splits.get("train", ())) > 0
    pool = 'g.splits["train"]' if has_train else "np.arange(g.num_nodes)"
    if has_train and graph.device == "cuda":
        pool += ".get()"
    return [f"seeds = np.random.default_rng({seed}).choice({pool}, {batch_size}, replace=False)"]


def batch_options(graph: Any, largest: int, smallest: int = 1) -> list[int]:
    """Powers of two from ``smallest`` to ``largest``, as far as the graph has vertices to draw from."""
    room = min(largest, len(seed_pool(graph)))
    sizes = [1 << k for k in range(room.bit_length()) if smallest <= 1 << k <= room]
    return sizes or [room]
