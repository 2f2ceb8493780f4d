"""Where the arrays of a mini-batch lie, and how much memory the next one gets."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gnnsample_lab.minibatch.gpu.arena import Arena, ArenaBlock, Arenas, Room, Wishes, lay_out
from gnnsample_lab.minibatch.gpu.finish import Finisher
from gnnsample_lab.sampling.neighbors.plan import WANTED_EDGES
from gnnsample_lab.sampling.neighbors.spec import make_spec
from gnnsample_lab.sampling.neighbors.workspace import TOTALS, TOTALS_BYTES, Workspace

EDGES = [[7, 0, 300], [0], [1, 2, 3, 4, 5]]


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("wanted", [0, WANTED_EDGES])
@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("id_bytes", [4, 8])
def test_arrays_neither_overlap_nor_leave_the_arena(id_bytes, new, wanted, edges):
    rows, nodes, seeds = [3 + h for h in range(len(edges))], 211, 5
    place = lay_out(id_bytes, new, wanted, nodes, rows, edges, seeds)
    arrays = [(place.nodes, nodes * id_bytes), (place.inverse, seeds * 8)]
    if new:  # one offset behind the last row of all hops
        arrays += [
            (at, n * 8 + 8 * (h + 1 == len(rows))) for h, (at, n) in enumerate(zip(place.offsets, rows))
        ]
    else:
        arrays += [(at, n * 8 + 8) for at, n in zip(place.offsets, rows)]
    arrays += [(at, e * 8) for at, e in zip(place.positions, edges)]
    arrays += [(at, e * 4) for at, e in zip(place.locals, edges)]
    if wanted:
        assert place.edges is not None and place.wide_nodes is not None
        assert (place.wide_nodes == place.nodes) == (id_bytes == 8)
        if id_bytes == 4:
            arrays.append((place.wide_nodes, nodes * 8))
        total = sum(edges)
        for at, e in zip(place.edges, edges):
            arrays += [(at, e * 8), (at + 8 * (total if new else e), e * 8)]
    taken = np.zeros(place.end, bool)
    for at, size in arrays:
        assert at + size <= place.end
        assert not taken[at : at + size].any()
        taken[at : at + size] = True
    assert place.end % 256 == 0
    if new:  # arrays of the first hops together are an array
        for places, item in ((place.positions, 8), (place.locals, 4)):
            assert [at - places[0] for at in places] == [item * sum(edges[:h]) for h in range(len(edges))]
        assert [at - place.offsets[0] for at in place.offsets] == [
            8 * sum(rows[:h]) for h in range(len(rows))
        ]


def test_room_follows_the_largest_of_the_last_mini_batches():
    room = Room()
    assert room.bytes() == 0
    room.saw(1000)
    assert 1250 <= room.bytes() < 1250 + 512
    room.saw(100_000)
    for _ in range(62):
        room.saw(10)
    assert 125_000 <= room.bytes() <= 125_000 + 4096, "as far apart as can be: no more than a quarter"
    for _ in range(128):
        room.saw(64_000)
    assert 66_000 <= room.bytes() <= 66_000 + 4096, "a large one is forgotten; all alike: a 32nd"


def test_room_is_a_quarter_until_it_is_known_how_far_mini_batches_lie_apart():
    room = Room()
    for i in range(15):
        room.saw(96_000 + 256 * i)
        assert room.bytes() >= (96_000 + 256 * i) * 5 // 4
    room.saw(102_400)
    assert 108_800 <= room.bytes() <= 108_800 + 4096, "as far as the least and the most"
    for _ in range(64):
        room.saw(102_400)
    assert 108_800 <= room.bytes() <= 108_800 + 4096, "of this window and the one before"


def test_room_grows_seldom_once_it_is_known_how_far_mini_batches_lie_apart():
    """Each time a pool asks the driver for new blocks, of which none is a block that it has."""
    rng, room = np.random.default_rng(0), Room()
    grown, most = 0, 0
    for i in range(2048):
        need = int(rng.normal(80e6, 0.7e6))
        assert i < 16 or need <= room.bytes()
        room.saw(need)
        grown += i >= 16 and room.bytes() > most
        most = max(most, room.bytes()) if i >= 16 else 0
    assert grown <= 3
    assert most < 1.15 * 80e6


@pytest.mark.parametrize("expand", ["frontier", "new"])
def test_tensors_lie_where_the_views_do(expand):
    """In host memory: which bytes each array takes does not depend on the device."""
    torch = pytest.importorskip("torch")
    from gnnsample_lab.device import streams
    from gnnsample_lab.minibatch.export import ArenaTensors, ArenaTorchBlock

    spec = make_spec([3, 2, 2], "floyd", False, False, expand, 0)
    new, levels, edges = expand == "new", [5, 14, 30, 61], [15, 21, 40]
    rows = [5, 9, 16] if new else levels[:3]
    place = lay_out(4, new, WANTED_EDGES, levels[-1], rows, edges, 5)
    memory = np.random.default_rng(0).integers(0, 256, place.end).astype(np.uint8)

    class Held(Arena):
        def view(self, at, size, dtype):
            return memory[at : at + size * np.dtype(dtype).itemsize].view(dtype)

    totals = [0] * 63
    totals[1:5], totals[17:20], totals[62] = levels, edges, place.end
    arena = Held(np.dtype(np.int32), spec, totals, 5, WANTED_EDGES, Wishes(), None, streams.DONE)
    assert arena.place == place
    for hop in range(3):
        block, views = ArenaTorchBlock.at(ArenaTensors(arena), hop), ArenaBlock.at(arena, hop)
        for name in ("src", "dst", "indptr", "indices", "edge_positions"):
            assert torch.equal(getattr(block, name), torch.from_numpy(getattr(views, name))), name
        assert block.size == (block.src.numel(), block.dst.numel())
        other = dataclasses.replace(block, weight=block.indices)
        assert other.size == block.size and torch.equal(other.indptr, block.indptr), "a copy has arrays alone"
        mine = sum(edges[: hop + 1]) if new else edges[hop]
        pairs = memory.view(np.int64)[place.edges[0 if new else hop] // 8 :]
        apart = sum(edges) if new else mine
        assert block.edge_index.tolist() == [pairs[:mine].tolist(), pairs[apart : apart + mine].tolist()]


def test_mini_batches_of_a_launch_learn_what_the_scan_reports():
    words = np.zeros(2 * TOTALS, np.int64)
    for at, levels, edges, size in ((0, (3, 7, 12), (9, 14), 1000), (TOTALS, (2, 2, 5), (0, 4), 1024)):
        words[at + 1 : at + 4], words[at + 17 : at + 19], words[at + TOTALS_BYTES] = levels, edges, size
    ws = Workspace.__new__(Workspace)
    ws.totals_view = memoryview(words)
    totals = ws.totals()
    assert [len(found) for found in totals] == [TOTALS, TOTALS]

    class Made:
        def __init__(self):
            spec = make_spec([4, 3], "floyd", False, False, "frontier", 0)
            self.arena = Arena(np.dtype(np.int32), spec, None, 3, 0, Wishes(), None, None)

    made = [Made(), Made()]
    finisher = Finisher.__new__(Finisher)
    arenas = Arenas((1, 2), 1024, 0, Wishes())
    assert finisher.collect(ws, totals, [None, None], 0, None, arenas, made) == made
    assert [m.arena.levels for m in made] == [(3, 7, 12), (2, 2, 5)]
    assert [m.arena.edges for m in made] == [[9, 14], [0, 4]] and [m.arena.bytes for m in made] == [
        1000,
        1024,
    ]
