"""The configurations on which every strategy has to return the same sample, bit for bit.

A GPU run records the SHA-256 of each canonical sample (``gnnsample-lab bench verify``); the CPU tests recompute
every one of them.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.graph import Graph

GRAPHS = ("dead-ends", "hubs", "multi")
_FANOUTS = ([10, 10, 10], [5, 3], [15, 10, 5], [-1, 4], [40, 3], [3, -1], [2, 2, 2, 2, 2], [32, 1])
_RULES: tuple[dict[str, Any], ...] = (
    {"pick": "floyd"}, {"pick": "reservoir"}, {"replace": True}, {"weighted": True},
    {"weighted": True, "replace": True},
)  # fmt: skip
_BLOCK_RULES: tuple[dict[str, Any], ...] = ({"pick": "fisher-yates"},)
"""Rules that one strategy offers. They come last, so that the others keep their seeds and batch ids."""
_SEEDS = (1, 37, 300)


@dataclass(frozen=True)
class Configuration:
    """One sample: which graph, which settings, which seeds."""

    graph: str
    options: tuple[tuple[str, Any], ...]
    num_seeds: int
    batch_id: int

    @property
    def key(self) -> str:
        options = ",".join(f"{k}={v}" for k, v in self.options)
        return f"{self.graph}|{options}|seeds={self.num_seeds}|batch={self.batch_id}"

    def sampler_options(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in self.options}

    @property
    def for_blocks(self) -> bool:
        """Whether ``block-bsp`` alone offers the rule."""
        return any(self.options[1] == tuple(*rule.items()) for rule in _BLOCK_RULES)

    def seeds(self) -> np.ndarray:
        """Seeds with duplicates, ``int64``."""
        rng = np.random.Generator(np.random.PCG64([self.num_seeds, self.batch_id]))
        return rng.integers(0, test_graph(self.graph).num_nodes, self.num_seeds)


@functools.cache
def test_graph(name: str) -> Graph:
    """A small hand-made graph: with dead ends and isolated vertices, with hubs, or with parallel edges, self-loops
    and zero weights. The same on every machine."""
    rng = np.random.Generator(np.random.PCG64(GRAPHS.index(name)))
    if name == "dead-ends":
        n, m = 900, 1800
        src, dst = rng.integers(0, n, m), rng.integers(0, n // 2, m)  # the upper half has no in-neighbours
    elif name == "hubs":
        n, m = 6000, 60000
        src, dst = rng.integers(0, n, m), (rng.integers(0, n, m) * rng.integers(0, n, m)) // n
        dst[: 2 * n] = 7  # far above what one warp or one round of a block takes
        src[2 * n : 3 * n] = 7
    else:
        n, m = 500, 20000
        src, dst = rng.integers(0, n, m), rng.integers(0, n, m)
        src[: m // 4] = dst[: m // 4]
        src[m // 4 : m // 2] = src[m // 4]
    weight = rng.integers(0, 5, m).astype(np.float32)
    if name == "hubs":
        weight = (weight + rng.random(m)).astype(np.float32)
    return Graph.from_edges(src, dst, num_nodes=n, edge_weight=weight, name=name)


def configurations() -> list[Configuration]:
    """Every graph, fanout list, rule and way of expanding; seeds, keys and batch ids in rotation."""
    found: list[Configuration] = []
    for rules in (_RULES, _BLOCK_RULES):
        for graph, fanouts, rule, expand in itertools.product(GRAPHS, _FANOUTS, rules, ("frontier", "new")):
            i = len(found)
            options = {
                "fanouts": tuple(fanouts),
                **rule,
                "expand": expand,
                "seed": (i * 0x9E3779B97F4A7C15) % 2**64,
            }
            found.append(Configuration(graph, tuple(options.items()), _SEEDS[i % 3], (i * 7919) % 2**32))
    return found
