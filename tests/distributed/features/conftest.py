"""A small graph in parts, for caches over ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gnnsample_lab as lab

N = 90


def featured(width: int = 6) -> lab.Graph:
    """A skewed graph of 90 vertices; rows hold every bit pattern, NaN with its payload too."""
    rng = np.random.default_rng(3)
    src, dst = (rng.integers(0, N, 700) * rng.random(700)).astype(int), rng.integers(0, N, 700)
    bits = rng.integers(0, 256, (N, 4 * width), dtype=np.uint8).view(np.float32)
    return lab.Graph.from_edges(src, dst, N, feat=bits, name="featured")


def saved(graph: lab.Graph, parts: int, folder: Path, method: str = "random") -> Path:
    found = lab.distributed.partition(graph, parts, method, tolerance=parts, use_cache=False)
    return lab.distributed.save_parts(graph, found, folder)


@pytest.fixture(scope="session")
def graph() -> lab.Graph:
    return featured()


@pytest.fixture(scope="session")
def folders(graph: lab.Graph, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Saved parts by their number."""
    return {parts: saved(graph, parts, tmp_path_factory.mktemp(f"parts-{parts}")) for parts in (1, 2, 3, 4)}
