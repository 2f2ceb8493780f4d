"""Two mini-batches are equal exactly when they hold the same sample."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from gnnsample_lab import MiniBatch, NeighborSampler
from gnnsample_lab.sampling.neighbors.spec import HopPicks


def draw(g, seeds=(1, 2, 3, 40), fanouts=(5, 3), batch_id=7, **options) -> MiniBatch:
    return NeighborSampler(g, list(fanouts), device="cpu", **options).sample(list(seeds), batch_id)


def test_the_same_call_gives_an_equal_sample(graph):
    a, b = draw(graph).canonical(), draw(graph).canonical()
    assert a == b and a is not b
    assert hash(a) == hash(b) and a.sha256() == b.sha256()
    assert (a != b) is False


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"batch_id": 8},
        {"fanouts": (5, 4)},
        {"fanouts": (5,)},
        {"fanouts": (5, 3, 1)},
        {"seeds": (1, 2, 3, 41)},
        {"seeds": (1, 2, 3)},
        {"seeds": (2, 1, 3, 40)},
        {"seeds": (1, 2, 3, 40, 1)},
        {"pick": "reservoir"},
        {"replace": True},
        {"weighted": True},
        {"expand": "new"},
    ],
    ids=str,
)
def test_another_sample_is_different(graph, change):
    a, b = draw(graph).canonical(), draw(graph, **change).canonical()
    assert a != b
    assert a.sha256() != b.sha256()


def test_settings_that_change_no_pick_do_not_count(graph):
    """Where everything is taken, nothing is drawn: rule, seed and batch id leave the sample as it is."""
    first = draw(graph, fanouts=(-1, -1)).canonical()
    assert draw(graph, fanouts=(-1, -1), seed=5, pick="reservoir", batch_id=99).canonical() == first
    assert draw(graph, fanouts=(4000, 4000)).canonical() == first


def rescheduled(batch: MiniBatch, seed: int) -> MiniBatch:
    """The same sample as another schedule might leave it: vertices of each level and picks of each row permuted."""
    rng = np.random.default_rng(seed)
    levels = batch.level_sizes
    order = np.concatenate(
        [np.arange(levels[0])] + [a + rng.permutation(b - a) for a, b in itertools.pairwise(levels)]
    )
    place = np.argsort(order)
    picks, local = [], []
    for hop, (p, ids) in enumerate(zip(batch.picks, batch.local_neighbors, strict=True)):
        begin = levels[hop - 1] if batch.spec.expand == "new" and hop else 0
        rows = order[begin : levels[hop]] - begin
        at = np.concatenate(
            [rng.permutation(np.arange(p.offsets[r], p.offsets[r + 1])) for r in rows] or [np.empty(0, int)]
        ).astype(int)
        picks.append(HopPicks(p.frontier[rows], p.counts[rows], p.neighbors[at], p.positions[at]))
        local.append(place[ids[at]].astype(np.int32))
    return dataclasses.replace(
        batch, node_ids=batch.node_ids[order], picks=tuple(picks), local_neighbors=tuple(local)
    )


@pytest.mark.parametrize("options", [{}, {"expand": "new"}, {"replace": True}], ids=str)
def test_the_order_within_a_level_does_not_count(graph, options):
    batch = draw(graph, **options)
    for seed in range(5):
        other = rescheduled(batch, seed)
        assert not np.array_equal(other.node_ids, batch.node_ids)
        assert other.canonical() == batch.canonical()
        assert other.canonical().sha256() == batch.canonical().sha256()


def test_a_wrong_local_id_shows(graph):
    batch = draw(graph)
    ids = [a.copy() for a in batch.local_neighbors]
    ids[1][3] = (ids[1][3] + 1) % batch.num_nodes
    assert dataclasses.replace(batch, local_neighbors=tuple(ids)).canonical() != batch.canonical()


@pytest.mark.parametrize("field", ["frontier", "counts", "neighbors", "positions"])
def test_every_array_of_the_picks_counts(graph, field):
    batch = draw(graph)
    arrays = {
        name: getattr(batch.picks[1], name).copy()
        for name in ("frontier", "counts", "neighbors", "positions")
    }
    arrays[field][2] += 1
    if field == "counts":
        arrays[field][np.flatnonzero(arrays[field] > 1)[-1]] -= 1
    other = dataclasses.replace(batch, picks=(batch.picks[0], HopPicks(**arrays)))
    assert other.canonical() != batch.canonical()


def test_picks_in_the_row_of_another_vertex_show(graph):
    """The same edges under the wrong destinations, as after an error in the row offsets."""
    batch = draw(graph)
    p = batch.picks[1]
    rows = np.flatnonzero(p.counts == 3)[:2]
    assert len(rows) == 2
    at = np.arange(p.num_picks)
    one, two = (np.arange(p.offsets[r], p.offsets[r + 1]) for r in rows)
    at[one], at[two] = two, one
    picks = HopPicks(p.frontier, p.counts, p.neighbors[at], p.positions[at])
    local = (batch.local_neighbors[0], batch.local_neighbors[1][at])
    other = dataclasses.replace(batch, picks=(batch.picks[0], picks), local_neighbors=local)
    assert other.canonical() != batch.canonical()


def test_a_swapped_neighbour_pair_shows(graph):
    """The same neighbours at exchanged positions are another sample."""
    batch = draw(graph)
    p = batch.picks[1]
    neighbors = p.neighbors.copy()
    i = int(np.flatnonzero(neighbors[1:] != neighbors[:-1])[0])
    neighbors[[i, i + 1]] = neighbors[[i + 1, i]]
    other = dataclasses.replace(
        batch, picks=(batch.picks[0], HopPicks(p.frontier, p.counts, neighbors, p.positions))
    )
    assert other.canonical() != batch.canonical()


def test_other_types_are_not_equal(graph):
    assert draw(graph).canonical() != "sample"


def test_comparing_on_the_host_is_free(graph):
    batch = draw(graph)
    assert batch.to_cpu() is batch
