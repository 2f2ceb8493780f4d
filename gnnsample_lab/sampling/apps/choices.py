"""What several applications share: drawing an edge, choosing roots, checking arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab.checks import numbers, real, whole
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.sampling.engine.language.app import NULL, uniform_roots
from gnnsample_lab.sampling.engine.shape import MAX_STEPS

MAX_SIZE = 2**31 - 1
"""Largest number of slots or roots that an argument may ask for."""
TRIALS = 64
"""Rejected edges after which :func:`weighted_edge` reads the whole list."""
_TOTAL = 2.0**62


# ---- for `next`: compiled with the application ------------------------------------------------------------


def uniform_edge(transits: Any, src_edges: Any, rng: Any) -> Any:
    """Position of an edge of the transit, each alike; ``NULL`` where there is none."""
    return rng.below(len(src_edges)) if len(src_edges) > 0 else NULL


def weighted_edge(transits: Any, src_edges: Any, rng: Any) -> Any:
    """Position of an edge of the transit, in proportion to its weight; ``NULL`` where no edge has any.

    Rejection as in KnightKing (Yang et al., SOSP'19): take any edge, keep it with probability weight / heaviest. That
    reads two numbers where weights are alike. Where they are not, one weight may outdo a hub's other thousands and
    trials would go on for as long, so after a few the edge is found by adding weights up, which reads the whole list;
    a search in prefix sums (:func:`weighted_neighbor`) would not, but a graph that is streamed brings twice as many
    bytes for those. Either way the edges' shares are the same: what was rejected says nothing about what comes next.
    """
    heaviest = transits[0].max_edge_weight()
    if heaviest == 0:
        return NULL
    for _ in range(TRIALS):
        edge = rng.below(len(src_edges))
        if rng.below(heaviest) < src_edges.weight(edge):
            return edge
    total = 0
    for i in range(len(src_edges)):
        total += src_edges.weight(i)
    left = rng.below(total)
    for i in range(len(src_edges)):
        left -= src_edges.weight(i)
        if left < 0:
            return i
    return NULL


def uniform_neighbor(v: Any, rng: Any) -> Any:
    """An in-neighbour of ``v``, which has some, each edge alike."""
    edges = v.edges()
    return edges[rng.below(len(edges))]


def weighted_neighbor(v: Any, rng: Any) -> Any:
    """An in-neighbour of ``v``, which has some, in proportion to its edges' weights: a search in their prefix sums."""
    edges = v.edges()
    return edges[edges.search(rng.below(edges.prefix(len(edges))))]


# ---- for the host -----------------------------------------------------------------------------------------


Prepare = Callable[[Any, Any], None]


def once_per_graph(
    read: Callable[[Any, Any], tuple[Any, ...]] = lambda app, graph: (),
) -> Callable[[Prepare], Prepare]:
    """Decorator of ``prepare``: the graph of the last time is prepared already, and so are its copies elsewhere.

    Args:
        read: ``(app, graph)`` -> what ``prepare`` reads of the application: where that has changed, it prepares anew.
    """

    def decorate(prepare: Prepare) -> Prepare:
        @functools.wraps(prepare)
        def prepare_new(app: Any, graph: Any) -> None:
            now = read(app, graph)
            same = getattr(app, "_prepared", None) is graph._identity
            if not (same and all(map(_alike, app._read, now))):
                prepare(app, graph)
                app._prepared = graph._identity
                app._read = tuple(np.array(to_host(x)) if hasattr(x, "shape") else x for x in now)

        return prepare_new

    return decorate


def own_weights(app: Any, graph: Any) -> tuple[Any]:
    """What an application has in place of the graph's weights, None where it takes those (which stay as they are)."""
    found = app.edge_weights(graph)
    if found is graph.edge_weight:
        return (None,)
    return (np.zeros(0) if found is None else np.asarray(to_host(found)),)


def _alike(before: Any, now: Any) -> bool:
    """Whether an argument still holds what it held: arrays are compared by what is in them."""
    if hasattr(before, "shape") and hasattr(now, "shape"):
        return np.array_equal(before, to_host(now))
    return type(before) is type(now) and bool(before == now)


def shares(name: str, value: Any) -> np.ndarray:
    """Shares of a whole, ``float64[n]`` in host memory.

    Raises:
        TypeError, ValueError: not a vector of finite numbers, or a negative one, or none above 0; the message says
            which, and where it stands.
    """
    found = to_host(numbers(name, value)).astype(np.float64)
    if found.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional (got shape {tuple(found.shape)})")
    bad = ~(np.isfinite(found) & (found >= 0))
    if bad.any():
        position = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"{name} must be finite and not negative (got {float(found[position])} at position {position})"
        )
    if not found.any():
        got = f"0 at all {found.size} positions" if found.size else "none"
        raise ValueError(f"{name} must have a number above 0 (got {got})")
    return found


def prefix_sums(share: Any) -> np.ndarray:
    """Whole numbers to draw by: exclusive prefix sums, ``int64[n + 1]``, in proportion to ``share``, ``float[n]``.

    ``prefix.search(rng.below(total))`` is then ``i`` with probability ``share[i] / sum(share)``, to 2**-53 of itself
    or 2**-62 of the total, whichever is more. All on the host, so that every device draws by the same numbers.

    Raises:
        ValueError: a share is negative or not finite, or none is positive.
    """
    share = shares("probabilities", share)
    # Beside 1 neither their sum nor what they are multiplied by leaves the range of numbers. Powers of two are exact.
    share = np.ldexp(share, -int(np.frexp(share.max())[1]))
    prefix = np.zeros(share.size + 1, dtype=np.int64)
    np.cumsum(np.floor(share * ((_TOTAL - share.size) / share.sum())).astype(np.int64), out=prefix[1:])
    return prefix


def distinct_roots(num_samples: int, batch_size: int, num_nodes: int, seed: int) -> np.ndarray:
    """A mini-batch per sample: vertices drawn without replacement, ``int64[num_samples, batch_size]``.

    Floyd's algorithm (Bentley and Floyd, CACM 1987), all samples at a time. The set is uniform, the order is not.

    Raises:
        ValueError: more than there are vertices.
    """
    if batch_size > num_nodes:
        raise ValueError(f"batch_size must be at most the number of vertices, {num_nodes} (got {batch_size})")
    bits = uniform_roots(num_samples, batch_size, 2**62, seed)
    roots = np.empty_like(bits)
    for j in range(batch_size):
        last = num_nodes - batch_size + j
        drawn = bits[:, j] % (last + 1)
        taken = (roots[:, :j] == drawn[:, None]).any(axis=1)
        roots[:, j] = np.where(taken, last, drawn)
    return roots


def length(name: str, value: Any) -> int:
    """A positive number of steps.

    Raises:
        TypeError, ValueError: not an integer, below 1, or more than an application may have; the message names it.
    """
    return whole(name, value, 1, MAX_STEPS)


def size(name: str, value: Any) -> int:
    """A positive number of things.

    Raises:
        TypeError, ValueError: not an integer, or below 1; the message names it.
    """
    return whole(name, value, 1, MAX_SIZE)


def number(name: str, value: Any, low: float, high: float) -> float:
    """A number in ``[low, high]``.

    Raises:
        TypeError, ValueError: not a number, or outside; the message names it.
    """
    return real(name, value, low, high)
