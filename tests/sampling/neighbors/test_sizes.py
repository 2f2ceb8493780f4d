"""Mini-batches of a launch by memory and cache, on graphs that are only numbers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gnnsample_lab.device import runtime
from gnnsample_lab.sampling.neighbors import sizes
from gnnsample_lab.sampling.neighbors.plan import MANY_SEEDS, MAX_SEEDS
from gnnsample_lab.sampling.neighbors.sizes import MAX_MARGIN, MAX_ROWS, Sizer, seed_capacity, seed_slots
from gnnsample_lab.sampling.neighbors.spec import SampleSpec

L2 = 60 << 20
RMAT, PRODUCTS, PAPERS, SMALL = (
    (2_097_152, 114_000_000),
    (2_449_029, 124_000_000),
    (111_059_956, 1_615_685_872),
    (
        19_717,
        88_648,
    ),
)


def sizer(monkeypatch, graph: tuple[int, int], fanouts: tuple[int, ...], scratch: int, **options) -> Sizer:
    monkeypatch.setattr(runtime, "device_properties", lambda: {"l2CacheSize": L2})
    nodes, edges = graph
    made_up = SimpleNamespace(
        num_nodes=nodes, num_edges=edges, max_in_degree=100_000, indices=np.empty(0, np.int32)
    )
    return Sizer(made_up, SampleSpec(fanouts), scratch, **{"queued": False, "traced": False, **options})


@pytest.mark.parametrize("scratch", [64 << 20, 1 << 30, 6 << 30])
@pytest.mark.parametrize(
    ("graph", "seeds", "fanouts"),
    [(RMAT, 1024, (10,) * 3), (PRODUCTS, 8192, (15,) * 3), (PAPERS, 1024, (10,) * 3), (SMALL, 256, (10, 5))],
)
def test_launches_fit_memory_and_begin_where_one_alone_is_well_off(
    monkeypatch, graph, seeds, fanouts, scratch
):
    s = sizer(monkeypatch, graph, fanouts, scratch)
    cap = seed_capacity(seeds)
    begin, most = s.batches_at_once(cap)
    assert 1 <= begin <= most and begin & (begin - 1) == most & (most - 1) == 0
    alone = s._shape(1, cap, 1.0, scratch // MAX_MARGIN)
    for count in (begin, most):
        if count > 1:
            shape = s.shape(count, cap)
            assert s.num_bytes(shape) <= scratch // MAX_MARGIN
            assert shape.pick_caps == alone.pick_caps  # not cut
    if begin > 1:
        assert s.shape(begin, cap).table == alone.table
        one = s.table_bytes(alone, alone.table)
        assert begin * one <= L2 // 2 or one > L2 // 2


def test_tables_of_a_launch_stay_in_the_cache_to_begin_with(monkeypatch):
    """8 192 x 15^3 on a graph like products: four direct tables fill the cache, and eight no longer are direct."""
    assert sizer(monkeypatch, PRODUCTS, (15,) * 3, 6 << 30).batches_at_once(8192) == (2, 4)
    assert sizer(monkeypatch, SMALL, (10, 5), 6 << 30).batches_at_once(256)[0] >= 64


def test_a_table_that_memory_alone_forbids_is_not_given_up(monkeypatch):
    """papers100M: a direct table is right for one mini-batch; for two, memory would leave a bitmap that is slower."""
    s = sizer(monkeypatch, PAPERS, (10,) * 3, 3 << 30)
    assert s.shape(1, 1024).table == 0
    assert s.shape(2, 1024).table != 0
    assert s.batches_at_once(1024) == (1, 1)
    for scratch in (6 << 30, 60 << 30):
        roomy = sizer(monkeypatch, PAPERS, (10,) * 3, scratch)
        begin, most = roomy.batches_at_once(1024)
        assert begin == most > 1 and roomy.shape(most, 1024).table == 0


def test_no_launch_holds_more_than_is_ever_useful(monkeypatch):
    begin, most = sizer(monkeypatch, (10, 20), (2,), 1 << 40).batches_at_once(64)
    assert begin == most == sizes.MAX_BATCHES


@pytest.mark.parametrize("queued", [False, True])
def test_rows_and_vertices_stay_below_what_32_bits_number(monkeypatch, queued):
    """Fanouts whose product overflows 32 and 64 bits, on a graph of more vertices than that, with memory to spare."""
    s = sizer(monkeypatch, (2**33, 2**36), (4096,) * 12, 2**47, queued=queued)
    shape = s.shape(1, seed_capacity(10_000_000))
    assert shape.node_cap <= MAX_ROWS and shape.row_total <= MAX_ROWS and shape.queue_cap <= MAX_ROWS
    assert all(picks < 2**63 for picks in shape.pick_caps)


@pytest.mark.parametrize("seeds", [2**24 - 1, 2**24, 2**24 + 1, MAX_SEEDS])
def test_the_hash_of_many_seeds_is_never_full(seeds):
    slots = seed_slots(seed_capacity(seeds))
    assert seeds < 0.76 * slots
    assert slots <= 2**31  # a kernel counts its probes in 32 bits


@pytest.mark.parametrize(
    ("limit", "graph", "rows", "repeated", "places"),
    [
        (0, (1000, 500), 9, 0, 0),  # none is to be listed
        (500, (1000, 500), 9, 0, 0),  # none has as many
        (499, (1000, 500), 9, 0, 2),
        (499, (999, 500), 9, 0, 1),
        (1, (1000, 500), 9, 0, 9),
        (1, (2**26, 500), 9, 0, 0),  # more hubs than the word counts
        (2**20, (2**33, 2**30), 9, 2**12, 0),  # more candidates than it counts
        (2**20, (2**33, 2**30), 9, 100, 9),
    ],
)
def test_hubs_that_a_list_holds(limit, graph, rows, repeated, places):
    edges, most = graph
    assert sizes.hub_capacity(limit, edges, most, rows, repeated) == places


def test_memory_for_hubs_is_counted(monkeypatch):
    plain = sizer(monkeypatch, RMAT, (10, 10), 1 << 33).shape(2, 1024)
    s = sizer(monkeypatch, RMAT, (10, 10), 1 << 33, hub_limit=2048)
    shape = s.shape(2, 1024)
    assert (shape.hub_cap, shape.hub_limit) == (min(max(shape.row_caps), 114_000_000 // 2049), 2048)
    assert s.num_bytes(shape) - s.num_bytes(plain) == 2 * 16 * shape.hub_cap


def test_memory_for_counts_of_many_seeds_is_counted(monkeypatch):
    s = sizer(monkeypatch, SMALL, (5,), 1 << 40)
    few, many = (s.shape(1, seed_capacity(n)) for n in (MANY_SEEDS, MANY_SEEDS + 1))
    assert few.seed_cap == MANY_SEEDS and many.seed_cap == MANY_SEEDS + 1024
    per_seed = 4 * 1024 + 16 * (seed_slots(many.seed_cap) - seed_slots(few.seed_cap))
    rest = s.num_bytes(many) - s.num_bytes(few) - per_seed
    assert rest == 4 * (many.seed_cap // 1024)  # the graph has fewer vertices than seeds: nothing else grows
