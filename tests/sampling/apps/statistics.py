"""What the statistical tests of applications share. Seeds are fixed: a p-value is the same at every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy import stats

from gnnsample_lab import Graph
from gnnsample_lab.sampling.engine.run import run_app

ENOUGH = 1e-3
"""Below this p-value a test fails."""
IMPOSSIBLE = 1e-9
"""Below this p-value it is certain that draws follow another distribution."""


def sample(graph: Graph, app: Any, roots: Any = None, **options: Any) -> Any:
    """Run on the CPU."""
    return run_app(graph, app, roots, device="cpu", **options)


def chi_square(drawn: Iterable[Any], share: Mapping[Any, float]) -> tuple[float, int]:
    """Statistic and degrees of freedom of what was drawn against its shares, which need not sum to 1.

    Something drawn that has no share is an error, not a deviation.
    """
    counts = Counter(drawn)
    possible = {key: value for key, value in share.items() if value > 0}
    assert set(counts) <= set(possible), f"drawn, but impossible: {set(counts) - set(possible)}"
    draws, total = sum(counts.values()), sum(possible.values())
    statistic = 0.0
    for key, value in possible.items():
        expected = value / total * draws
        assert expected >= 5, f"too few draws to judge {key}: {expected:.1f} expected"
        statistic += (counts[key] - expected) ** 2 / expected
    return statistic, len(possible) - 1


def p_value(drawn: Iterable[Any], share: Mapping[Any, float]) -> float:
    """Probability of a sample at least as far from ``share``."""
    statistic, freedom = chi_square(drawn, share)
    return float(stats.chi2.sf(statistic, freedom)) if freedom else 1.0


def p_of_all(parts: Iterable[tuple[float, int]]) -> float:
    """p-value of independent :func:`chi_square` results together."""
    results = list(parts)
    assert results
    return float(stats.chi2.sf(sum(s for s, _ in results), sum(f for _, f in results)))


def dense(graph: Graph, weight: Any = None) -> np.ndarray:
    """A[v, u]: summed weight of the edges u -> v."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    for v in range(graph.num_nodes):
        for e in range(graph.indptr[v], graph.indptr[v + 1]):
            matrix[v, graph.indices[e]] += 1 if weight is None else weight[e]
    return matrix


def tangled_graph(weighted: bool, num_nodes: int = 9) -> Graph:
    """Directed; every vertex has in-edges but the last, which has none; a self-loop, parallel edges, a weight of 0."""
    draw = np.random.default_rng(2)
    n = num_nodes - 1
    src = np.concatenate([np.arange(n), draw.integers(0, n, 3 * n), [0, 1, 1, 1]])
    dst = np.concatenate([(np.arange(n) + 1) % n, draw.integers(0, n, 3 * n), [0, 2, 2, 2]])
    weight = draw.integers(1, 5, src.size).astype(np.float32)
    weight[-1] = 0
    return Graph.from_edges(src, dst, num_nodes, edge_weight=weight if weighted else None)
