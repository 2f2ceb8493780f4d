"""``pull`` on a GPU: lists of all lengths go out and come in whole, and the host waits once for where they end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from tests.distributed.sampling.test_csp_gpu import check, in_step, ranks_of, slices, ways_of
from tests.distributed.sampling.test_direct_gpu import PLAIN, RULES, WEIGHTED, replace_indices

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(60)]

STEP, PIECE = 128, 1024
LONG = (STEP - 1, PIECE, PIECE + 1, 70 * PIECE + 37)
"""Lists of as many entries as a warp copies at once, of a piece, and of more than all warps take at a time."""
EMPTY = np.arange(100, 160)


def uneven_graph() -> lab.Graph:
    """Vertices 0 to 3 have long lists, 100 to 159 none, the others a few entries; weights of many are zero.

    Of the lists after the long ones, the first eight: no positive weight, one at the end, then two of them.
    """
    rng = np.random.default_rng(11)
    degrees = rng.integers(0, 9, 700)
    degrees[: len(LONG)] = LONG
    degrees[4:12] = 40
    degrees[EMPTY] = 0
    dst = np.repeat(np.arange(700), degrees)
    src = rng.integers(0, 700, dst.size)
    weight = rng.integers(0, 3, dst.size).astype(np.float32)
    weight[dst == 2] = 1
    begins = np.cumsum(degrees) - degrees
    for v in range(4, 12):
        weight[begins[v] : begins[v] + 40] = 0
    weight[begins[6:12] + 39] = 7
    weight[begins[8:12] + 5] = 2
    return lab.Graph.from_edges(src, dst, num_nodes=700, edge_weight=weight, name="uneven")


SEEDS = np.concatenate([np.arange(12), EMPTY, np.arange(200, 700, 7)])
CASES = [(rule, fanouts, 3, False, 0) for rule in RULES for fanouts in ([6, 40], [-1, 3])]
CASES += [(rule, [5, -1, 2], parts, True, 0) for rule in (PLAIN, WEIGHTED) for parts in (2, 4)]
CASES += [(rule, [6, -1], 3, False, 2) for rule in (PLAIN, WEIGHTED)]
CASES += [(WEIGHTED, [6, 40], 3, True, 2)]


@pytest.mark.parametrize(("rule", "fanouts", "parts", "is_wide", "spills"), CASES, ids=str)
def test_lists_of_every_length(
    rule: dict[str, Any], fanouts: list[int], parts: int, is_wide: bool, spills: int
) -> None:
    """Few rows, then many, then few: buffers grow, and what they had before does no harm."""
    graph = replace_indices(uneven_graph()) if is_wide else uneven_graph()
    sampler = lab.NeighborSampler(graph, fanouts, device="cpu", seed=5, **rule)
    cut, cores = ranks_of(graph, sampler.spec, parts, hosts_tell=not is_wide, spills=spills)
    for core in cores:
        core.sms = 1
    ways = ways_of("pull", cores)
    for batch_id, seeds in enumerate((SEEDS[4:9], SEEDS, SEEDS[::9])):
        given = slices(np.random.default_rng(batch_id).permutation(seeds), parts)
        found = in_step([way(s, batch_id, p) for way, s, p in zip(ways, given, cut)])
        check(graph, sampler, found, given, batch_id)


@pytest.mark.parametrize("rule", [PLAIN, WEIGHTED], ids=str)
@pytest.mark.parametrize("fanout", [4, -1])
def test_ranks_that_ask_nothing_and_lists_of_nothing(rule: dict[str, Any], fanout: int) -> None:
    """No rank asks another, then one alone does, then all of them ask for empty lists; then nobody has seeds."""
    graph = uneven_graph()
    sampler = lab.NeighborSampler(graph, [fanout], device="cpu", seed=5, **rule)
    cut, cores = ranks_of(graph, sampler.spec, 3)
    ways = ways_of("pull", cores)
    own = [part.vertices[:20] for part in cut]
    none = EMPTY[:0]
    empty = np.random.default_rng(0).permutation(EMPTY)
    for batch_id, given in enumerate((own, [none, SEEDS[:30], none], slices(empty, 3), [none] * 3)):
        found = in_step([way(s, batch_id, p) for way, s, p in zip(ways, given, cut)])
        check(graph, sampler, found, given, batch_id)
        lists = sum(int(core.moved.lists_in.sum()) for core in cores)
        assert (lists > 0) == (batch_id == 1)


def test_what_moved_is_what_lists_have() -> None:
    """Entries by rank: those of the lists that each rank asks for, as their owner and it note them."""
    graph = uneven_graph()
    sampler = lab.NeighborSampler(graph, [3, 2], device="cpu", seed=5)
    cut, cores = ranks_of(graph, sampler.spec, 4)
    given = slices(np.random.default_rng(1).permutation(SEEDS), 4)
    found = in_step([way(s, 1, p) for way, s, p in zip(ways_of("pull", cores), given, cut)])
    degrees = np.diff(graph.indptr)
    for r, (core, batch) in enumerate(zip(cores, found)):
        for hop, picks in enumerate(batch.picks):
            frontier = picks.frontier.get()
            for p, other in enumerate(cores):
                wanted = degrees[frontier[np.isin(frontier, cut[p].vertices)]].sum() if p != r else 0
                assert core.moved.lists_in[hop, p] == other.moved.lists_out[hop, r] == wanted


@pytest.mark.parametrize("hosts_tell", [False, True])
def test_the_host_waits_twice_a_hop(hosts_tell: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For how many rows there are, and for where lists end; once more for rows of any length, and for the totals."""
    from gnnsample_lab.distributed.sampling.gpu import csp_core

    waits: list[int] = []
    await_word = csp_core.await_word
    monkeypatch.setattr(csp_core, "await_word", lambda *args: (waits.append(args[2]), await_word(*args)))
    graph = uneven_graph()
    for fanouts, expected in (([3, 2], 5), ([-1, 2], 6)):
        sampler = lab.NeighborSampler(graph, fanouts, device="cpu", seed=5)
        cut, cores = ranks_of(graph, sampler.spec, 1, hosts_tell)
        (way,) = ways_of("pull", cores)
        waits.clear()
        check(graph, sampler, in_step([way(SEEDS, 1, cut[0])]), [SEEDS], 1)
        assert len(waits) == expected


@pytest.mark.parametrize("wide", [False, True])
def test_sums_of_many_tiles(wide: bool) -> None:
    """One pass over several tiles and several passes a block, whose words are zeros again for the next."""
    import cupy

    graph = uneven_graph()
    sampler = lab.NeighborSampler(graph, [2], device="cpu", seed=5, weighted=True)
    cut, cores = ranks_of(graph, sampler.spec, 2)
    for core in cores:
        core.wide_amounts, core.sms = wide, 1
    (way, other) = ways_of("pull", cores)
    in_step([w(s, 0, p) for w, s, p in zip((way, other), slices(SEEDS, 2), cut)])  # makes the modules
    pull = way.__self__
    rng = np.random.default_rng(3)
    for n in (1, 1024, 1025, 20_003, 7):
        values = rng.integers(0, 2**32, n).astype(np.uint64 if wide else np.uint32)
        if wide:
            values *= np.uint64(2**14)
        ends, given, out = [n // 3, n], cupy.asarray(values), cupy.zeros(n + 1, np.int64)
        left, came = pull._add_up(given.data.ptr, values.itemsize, n, out.data.ptr, ends, ends[::-1])
        expected = np.concatenate([[0], np.cumsum(values.astype(np.uint64))])
        assert np.array_equal(out.get(), expected.astype(np.int64))
        assert left == expected[ends].tolist() == came[::-1]
        assert not pull._state.array.get().any()


@pytest.mark.parametrize("rule", [WEIGHTED, RULES[4]], ids=str)
def test_wide_weights(rule: dict[str, Any]) -> None:
    graph = uneven_graph()
    sampler = lab.NeighborSampler(graph, [5, 3], device="cpu", seed=5, **rule)
    cut, cores = ranks_of(graph, sampler.spec, 3)
    for core in cores:
        core.wide_amounts = True
    given = slices(SEEDS, 3)
    found = in_step([way(s, 2, p) for way, s, p in zip(ways_of("pull", cores), given, cut)])
    check(graph, sampler, found, given, 2)
