"""Frontiers of the first seeds, from one sample, are those of samples of these seeds alone."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.minibatch.growth import frontiers_of_first, frontiers_on_average


def graph(n: int = 400, edges: int = 5000) -> lab.Graph:
    rng = np.random.default_rng(3)
    return lab.Graph.from_edges(rng.integers(0, n, edges), (rng.random(edges) ** 3 * n).astype(int), n)


@pytest.mark.parametrize("pick", ["reservoir", "floyd"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_counts_are_those_of_smaller_samples(pick: str, device: str) -> None:
    g = graph()
    sampler = lab.NeighborSampler(g.to(device), [3, 4, 2], pick=pick, seed=7, device=device)
    seeds = np.random.default_rng(1).permutation(g.num_nodes)[:64]
    found = frontiers_of_first(sampler.sample(seeds), [1, 2, 7, 32, 64])
    for size, counts in found.items():
        alone = sampler.sample(seeds[:size])
        assert counts == [*(p.frontier.size for p in alone.picks), alone.num_nodes], size


@pytest.mark.parametrize("size", [1, 3, 16, 40])
def test_means_are_those_of_samples_of_the_parts_alone(size: int) -> None:
    g = graph()
    sampler = lab.NeighborSampler(g, [3, 4, 2], seed=7, device="cpu")
    seeds = np.random.default_rng(1).permutation(g.num_nodes)[:64]
    parts = [seeds[at : at + size] for at in range(0, len(seeds) - size + 1, size)][:5]
    batches = [sampler.sample(part) for part in parts]
    counts = np.array([[*(p.frontier.size for p in b.picks), b.num_nodes] for b in batches])
    found = frontiers_on_average(sampler.sample(seeds), size, 5)
    assert found == pytest.approx(counts.mean(axis=0), abs=0.051)


def test_what_cannot_be_counted_is_named() -> None:
    g = graph()
    batch = lab.NeighborSampler(g, [2, 2], device="cpu").sample(np.arange(8))
    for size in (0, 9):
        with pytest.raises(ValueError, match="sizes"):
            frontiers_of_first(batch, [size])
        with pytest.raises(ValueError, match="size"):
            frontiers_on_average(batch, size, 2)
    new = lab.NeighborSampler(g, [2, 2], expand="new", device="cpu").sample(np.arange(8))
    with pytest.raises(ValueError, match="expand"):
        frontiers_of_first(new, [1])
    with pytest.raises(ValueError, match="expand"):
        frontiers_on_average(new, 1, 2)
