"""Collective sampling on GPUs gives the CPU twin's sample.

On one GPU the ranks are generators of one process that go in step, and copies stand for the messages: buckets, draws
and merges are those of ranks. Two GPUs run the engines over NCCL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench.configurations import test_graph as drawn_graph
from gnnsample_lab.distributed.parts.part import part_of
from tests.capturing import capture_in_another_thread
from tests.distributed.sampling.test_direct_gpu import (
    PLAIN,
    RULES,
    WEIGHTED,
    edges_of,
    recorded_cases,
    replace_indices,
    with_slots,
)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(60)]

CASES = [(method, rule) for method in ("csp", "pull") for rule in RULES]
"""``csp-async`` launches the kernels of ``csp``."""
CASES += [("csp-async", rule) for rule in (PLAIN, WEIGHTED)]
SCRATCH = 1 << 30


def in_step(steps: list[Iterator[Any]]) -> list[Any]:
    """Run the ranks' steps side by side, and copy where they meet."""
    from gnnsample_lab.distributed.sampling.gpu.csp_core import Reduce, Told

    told: dict[int, Any] = {}
    results: list[Any] = [None] * len(steps)
    while True:
        meetings = []
        for i, rank in enumerate(steps):
            try:
                meetings.append(next(rank))
            except StopIteration as stop:
                results[i] = stop.value
        if not meetings:
            return results
        assert len(meetings) == len(steps)
        if isinstance(meetings[0], Reduce):
            largest = max(int(m.values.array[0]) for m in meetings)
            for m in meetings:
                assert m.entries == 1
                m.values.array[:1] = largest
            continue
        if isinstance(meetings[0], Told):
            told.update((r, m.counts) for r, m in enumerate(meetings) if m.counts is not None)
            for r, m in enumerate(meetings):
                for p in m.sources:
                    m.heard[p] = told[p][r]
            continue
        for r, given in enumerate(meetings):
            for p, taken in enumerate(meetings):
                if given.pair is not None and p != given.pair[0]:
                    continue
                begin, end = (p, p + 1) if given.give is None else given.give[p]
                at, until = (r, r + 1) if taken.take is None else taken.take[r]
                assert end - begin == until - at
                if end > begin:
                    taken.out.array[at:until] = given.given.array[begin:end]


def ranks_of(
    graph: Any, spec: Any, parts: int, hosts_tell: bool = False, spills: int = 0
) -> tuple[list[Any], list[Any]]:
    """Parts and cores; with ``spills`` lists whose rows are its multiples lie in host memory, but for the last rank."""
    from gnnsample_lab.distributed.sampling.gpu.csp_core import Core, DevicePart

    partition = lab.distributed.partition(graph, parts, "random", tolerance=parts, use_cache=False)
    cut = [part_of(graph, partition, p) for p in range(parts)]
    degree = int(np.diff(graph.indptr).max())
    far = [np.arange(len(part.vertices)) % spills == 0 if spills else None for part in cut]
    if parts > 1:
        far[-1] = None
    cores = [
        Core(DevicePart(p, partition, graph.num_edges, degree, spilled, spec.weighted), spec, SCRATCH)
        for p, spilled in zip(cut, far, strict=True)
    ]
    for core in cores:
        core.hosts_tell = hosts_tell
    return cut, cores


def ways_of(method: str, cores: list[Any]) -> list[Callable[..., Any]]:
    """What makes the steps of a mini-batch, by rank."""
    if method == "pull":
        from gnnsample_lab.distributed.sampling.gpu.csp_pull import PullCore

        return [PullCore(core).steps for core in cores]
    return [core.exact if method == "csp" else core.one_by_one for core in cores]


def slices(seeds: np.ndarray, parts: int) -> list[np.ndarray]:
    return [seeds[p * seeds.size // parts : (p + 1) * seeds.size // parts] for p in range(parts)]


def check(graph: Any, sampler: Any, found: list[Any], given: list[np.ndarray], batch_id: int) -> None:
    for seeds, batch in zip(given, found, strict=True):
        if seeds.size:
            assert batch.canonical() == with_slots(sampler.sample(seeds, batch_id), graph.indptr).canonical()
        else:
            assert (batch.num_nodes, batch.num_edges) == (0, 0)


@pytest.mark.parametrize(("method", "rule"), CASES, ids=str)
def test_every_configuration(method: str, rule: dict[str, Any]) -> None:
    """All graphs and fanouts of the recorded samples: dead ends, hubs, parallel edges, wide hops, all neighbours."""
    checked = 0
    for config, graph, sampler in recorded_cases(rule):
        for parts in (1, 3) if method == "csp" else (3,):
            cut, cores = ranks_of(graph, sampler.spec, parts, hosts_tell=checked % 2 == 0)
            given = slices(config.seeds(), parts)
            ways = ways_of(method, cores)
            steps = [way(s, config.batch_id, p) for way, s, p in zip(ways, given, cut)]
            check(graph, sampler, in_step(steps), given, config.batch_id)
        checked += 1
    assert checked == 24


WIDE_CASES = [("csp", rule, fanouts) for rule in RULES for fanouts in ([6, 40, 20], [2, 300])]
WIDE_CASES += [("pull", rule, [6, 40, 20]) for rule in RULES]
WIDE_CASES += [(method, rule, [-1, 2]) for method in ("csp", "pull") for rule in (PLAIN, WEIGHTED)]
WIDE_CASES += [("csp-async", PLAIN, [6, 40, 20]), ("csp-async", WEIGHTED, [-1, 2])]
"""A lane and a warp for a row, rows of any length; the kernels of each rule."""


@pytest.mark.parametrize(("method", "rule", "fanouts"), WIDE_CASES, ids=str)
def test_wide_ids(method: str, rule: dict[str, Any], fanouts: list[int]) -> None:
    wide = replace_indices(drawn_graph("hubs"))
    sampler = lab.NeighborSampler(wide, fanouts, device="cpu", seed=5, **rule)
    cut, cores = ranks_of(wide, sampler.spec, 4, hosts_tell=True)
    ways = ways_of(method, cores)
    for batch_id in (40, 41):
        given = slices(np.arange(batch_id, 6000, 197), 4)
        given[2] = given[2][:0]  # a rank without seeds serves the others
        found = in_step([way(s, batch_id, p) for way, s, p in zip(ways, given, cut)])
        check(wide, sampler, found, given, batch_id)
        assert found[0].node_ids.dtype == np.int64


SPILLED = [(rule, [6, 40, 20], False) for rule in RULES] + [
    (rule, [-1, 2], True) for rule in (PLAIN, WEIGHTED)
]


@pytest.mark.parametrize(("rule", "fanouts", "is_wide"), SPILLED, ids=str)
def test_lists_in_host_memory(rule: dict[str, Any], fanouts: list[int], is_wide: bool) -> None:
    """Some of them, or all, on some ranks: a rank whose lists all fit has no records."""
    graph = replace_indices(drawn_graph("hubs")) if is_wide else drawn_graph("hubs")
    sampler = lab.NeighborSampler(graph, fanouts, device="cpu", seed=5, **rule)
    for parts, spills in ((3, 3), (1, 1)):
        cut, cores = ranks_of(graph, sampler.spec, parts, hosts_tell=True, spills=spills)
        assert [core.part.has_records for core in cores] == [True, True, False] if parts > 1 else [True]
        whole = [p.indices.nbytes + (p.prefix.nbytes if sampler.spec.weighted else 0) for p in cut]
        assert cores[0].part.nbytes < whole[0] + 20 * len(cut[0].vertices)
        for core in cores:
            core.notes_asked = True
        for batch_id in (40, 41):
            given = slices(np.arange(batch_id, 6000, 197), parts)
            found = in_step([c.exact(s, batch_id, p) for c, s, p in zip(cores, given, cut)])
            check(graph, sampler, found, given, batch_id)
            for hop in range(len(fanouts)):  # what owners drew for is what all asked for
                asked = np.concatenate([core.asked(hop) for core in cores])
                wanted = np.concatenate([batch.picks[hop].frontier.get() for batch in found])
                assert np.array_equal(np.sort(asked), np.sort(wanted))


@pytest.mark.parametrize("rule", [PLAIN, WEIGHTED], ids=str)
def test_samplers_of_several_workers_share_a_part(rule: dict[str, Any]) -> None:
    """Their calls come in turn, and each has buffers of its own."""
    from gnnsample_lab.distributed.sampling.gpu.csp_core import Core

    graph = drawn_graph("hubs")
    sampler = lab.NeighborSampler(graph, [6, 4], device="cpu", seed=5, **rule)
    cut, cores = ranks_of(graph, sampler.spec, 3)
    others = [Core(core.part, sampler.spec, SCRATCH) for core in cores]
    for batch_id in range(40, 46):
        given = slices(np.arange(batch_id, graph.num_nodes, 197), 3)
        workers = others if batch_id % 2 else cores
        found = in_step([core.exact(s, batch_id, p) for core, s, p in zip(workers, given, cut)])
        check(graph, sampler, found, given, batch_id)


FIXED_CASES = [(rule, [40, 3], False, 0) for rule in RULES]
FIXED_CASES += [(rule, [6, 5, 4], True, 0) for rule in (PLAIN, WEIGHTED)]
FIXED_CASES += [(PLAIN, [40, 3], False, 2), (WEIGHTED, [6, 5, 4], True, 2)]


@pytest.mark.parametrize(("rule", "fanouts", "is_wide", "spills"), FIXED_CASES, ids=str)
def test_fixed_messages_and_an_overflow_on_one_rank(
    rule: dict[str, Any], fanouts: list[int], is_wide: bool, spills: int
) -> None:
    from gnnsample_lab.distributed.sampling.capacities import WARM_UP
    from gnnsample_lab.distributed.sampling.gpu.csp_fixed import FixedCore

    graph = replace_indices(drawn_graph("hubs")) if is_wide else drawn_graph("hubs")
    sampler = lab.NeighborSampler(graph, fanouts, device="cpu", seed=5, **rule)
    parts = 3
    cut, cores = ranks_of(graph, sampler.spec, parts, spills=spills)
    for core in cores:
        core.notes_asked = bool(spills)
    # What the ranks would reduce: the copy that a rank gets when all have measured.
    told = np.zeros(len(fanouts) * parts * parts, np.int64)
    fixed = [FixedCore(core, SCRATCH, lambda _: told.copy()) for core in cores]

    def exact(given: list[np.ndarray], batch_id: int) -> None:
        found = in_step([c.exact(s, batch_id, p) for c, s, p in zip(cores, given, cut)])
        check(graph, sampler, found, given, batch_id)
        for core in cores:
            rows = told.reshape(-1, parts, parts)[:, core.me]
            np.maximum(rows, core.moved.asked, out=rows)
        for each, core in zip(fixed, cores):
            each.measure(core.moved.asked)

    def fixed_batch(given: list[np.ndarray], batch_id: int) -> bool:
        spaces = [f.prepare(s, batch_id) for f, s in zip(fixed, given)]
        in_step([f.steps(ws) for f, ws in zip(fixed, spaces)])
        found = [f.result(ws, s, batch_id, p) for f, ws, s, p in zip(fixed, spaces, given, cut)]
        if None in found:
            assert found == [None] * parts  # all of them know
            return False
        check(graph, sampler, found, given, batch_id)
        for hop in range(len(fanouts) if spills else 0):
            asked = np.concatenate([core.asked(hop) for core in cores])
            wanted = np.concatenate([batch.picks[hop].frontier.get() for batch in found])
            assert np.array_equal(np.sort(asked), np.sort(wanted))
        return True

    everything = np.arange(0, 6000, 61)
    for batch_id in range(WARM_UP):
        assert fixed[0].capacities is None
        exact(slices(everything + batch_id, parts), batch_id)
    assert fixed[0].capacities is not None
    first = fixed[0].capacities.ids.copy()
    for batch_id in range(20, 24):
        assert fixed_batch(slices(everything, parts), batch_id)
    some = slices(everything, parts)
    assert fixed_batch([some[0], some[1][:0], some[2][:1]], 25)
    cores[1].forced[0] = 1
    assert not fixed_batch(some, 26)
    assert fixed_batch(some, 27)  # it was not for ever
    many = [some[0], np.arange(0, 6000, 2), some[2]]  # more than one rank's buffers have room for
    assert not fixed_batch(many, 28)
    exact(many, 28)
    assert (fixed[0].capacities.ids >= first).all() and (fixed[0].capacities.ids > first).any()
    assert fixed_batch(many, 28)
    assert [f.redone for f in fixed] == [2] * parts


@pytest.mark.parametrize("rule", [PLAIN, WEIGHTED], ids=str)
def test_requests_that_had_no_room_in_an_earlier_hop_have_no_picks(rule: dict[str, Any]) -> None:
    """Their places in a later hop's larger messages are empty; a warp draws each of the rows around them."""
    from gnnsample_lab.distributed.sampling.capacities import WARM_UP
    from gnnsample_lab.distributed.sampling.gpu.csp_fixed import FixedCore

    graph = drawn_graph("hubs")
    sampler = lab.NeighborSampler(graph, [33, 40], device="cpu", seed=5, **rule)
    cut, cores = ranks_of(graph, sampler.spec, 3)
    told = np.repeat([1, 60], 9)  # one vertex is asked for in the first hop, and many in the second
    fixed = [FixedCore(core, SCRATCH, lambda _: told.copy()) for core in cores]
    for each in fixed:
        for _ in range(WARM_UP):
            each.measure(np.zeros((2, 3), np.int64))
    many = slices(np.arange(0, 6000, 61), 3)
    spaces = [f.prepare(seeds, 7) for f, seeds in zip(fixed, many)]
    in_step([f.steps(ws) for f, ws in zip(fixed, spaces)])
    assert all(f.result(ws, seeds, 7, p) is None for f, ws, seeds, p in zip(fixed, spaces, many, cut))
    found = in_step([core.exact(seeds, 7, p) for core, seeds, p in zip(cores, many, cut)])
    check(graph, sampler, found, many, 7)


def test_a_graph_without_edges_has_messages_of_fixed_size() -> None:
    from gnnsample_lab.distributed.sampling.capacities import WARM_UP
    from gnnsample_lab.distributed.sampling.gpu.csp_fixed import FixedCore

    graph = lab.Graph.from_edges([], [], 7)
    sampler = lab.NeighborSampler(graph, [2, -1], device="cpu", seed=5)
    cut, cores = ranks_of(graph, sampler.spec, 3)
    fixed = [FixedCore(core, SCRATCH, lambda _: np.full(18, 7)) for core in cores]
    for each in fixed:
        for _ in range(WARM_UP):
            each.measure(np.full((2, 3), 7))
    given = slices(np.arange(7), 3)
    spaces = [f.prepare(seeds, 7) for f, seeds in zip(fixed, given)]
    in_step([f.steps(ws) for f, ws in zip(fixed, spaces)])
    found = [f.result(ws, seeds, 7, p) for f, ws, seeds, p in zip(fixed, spaces, given, cut)]
    check(graph, sampler, found, given, 7)


@pytest.mark.parametrize("hosts_tell", [False, True])
def test_the_host_reads_what_moved(hosts_tell: bool) -> None:
    """Rows asked for are those served, and picks taken those given."""
    graph = drawn_graph("hubs")
    sampler = lab.NeighborSampler(graph, [6, 5, 4], device="cpu", seed=5)
    cut, cores = ranks_of(graph, sampler.spec, 3, hosts_tell)
    given = slices(np.arange(0, 6000, 61), 3)
    found = in_step([c.exact(s, 1, p) for c, s, p in zip(cores, given, cut)])
    for r, core in enumerate(cores):
        moved = core.moved
        for p, other in enumerate(cores):
            if p != r:
                assert (moved.asked[:, p] == other.moved.served[:, r]).all()
                assert (moved.taken[:, p] == other.moved.given[:, r]).all()
        assert moved.asked.sum(1).tolist() == list(found[r].level_sizes[:-1])
        assert moved.taken.sum(1).tolist() == [p.num_picks for p in found[r].picks]


# ---- ranks ------------------------------------------------------------------------------------------------------

NAMES = ["csp", "csp-async", "csp-fixed", "pull"]
TWO_RANKS = [(method, rule) for method in ("csp", "csp-fixed") for rule in RULES]
TWO_RANKS += [(method, rule) for method in ("csp-async", "pull") for rule in (PLAIN, WEIGHTED)]
Parts = Callable[[int], str]
SEEDS = np.arange(0, 5980, 13)


def drawn_by_rank(rank: Any, folder: str, method: str, options: dict[str, Any], ways: str = "auto") -> Any:
    sampler = lab.distributed.Sampler(
        folder, [10, 5, 3], method, rank=rank, seed=9, collectives=ways, **options
    )
    found: list[Any] = []
    traffic: list[Any] = []
    exchange, tells = sampler.engine.exchange, sampler.engine.core.hosts_tell
    if ways == "torch":  # as between hosts, and where NCCL cannot be called by address
        assert exchange.nccl is None and not tells
    elif rank.world_size > 1:
        assert exchange.nccl is not None and tells
    for i in range(12):  # eight are the warm-up of "csp-fixed"
        if method == "csp-fixed" and i == 10 and rank.index == 0:
            sampler.engine.core.forced[0] = 1  # an overflow on one rank
        batch = sampler.sample(sampler.slice(SEEDS + i, "owner" if i % 2 else "equal"), 7 + i).to_cpu()
        found.append([(p.frontier, p.counts, p.neighbors, p.positions) for p in batch.picks])
        traffic.append((sampler.traffic.by_kind, sampler.traffic.by_peer.tolist(), sampler.traffic.ideal))
    empty = sampler.sample(np.empty(0, np.int64) if rank.index else np.arange(5), 3)
    redone = sampler.engine.fixed.redone if method == "csp-fixed" else 0
    unread = sampler.total.volume  # nobody asks about the next calls one by one
    volumes = []
    for asks in (True, False):
        before = sampler.total.volume
        for i in range(70):
            sampler.sample(sampler.slice(SEEDS[:40] + i % 3), i)
            if asks:
                assert sampler.traffic.ideal > 0
        volumes.append(sampler.total.volume - before)
    assert (unread > 0) == (rank.world_size > 1) and volumes[0] == volumes[1]
    sampler.close()
    return {"found": found, "empty": empty.num_nodes, "traffic": traffic, "redone": redone}


def drawn_beside_a_capture(*args: Any) -> Any:
    with capture_in_another_thread():
        return drawn_by_rank(*args)


def check_ranks(
    world: Any, parts: Parts, ranks: int, method: str, options: dict[str, Any], ways: str = "auto",
    draw: Any = drawn_by_rank,
) -> Any:  # fmt: skip
    graph = drawn_graph("hubs")
    results = world.run(draw, parts(ranks), method, options, ways, world=ranks)
    sampler = lab.NeighborSampler(graph, [10, 5, 3], device="cpu", seed=9, **options)
    for i in range(12):
        whole = with_slots(sampler.sample(SEEDS + i, 7 + i), graph.indptr)
        expected = edges_of([(p.frontier, p.counts, p.neighbors, p.positions) for p in whole.picks])
        union = [edges_of(result["found"][i]) for result in results]
        assert [set().union(*hop) for hop in zip(*union, strict=True)] == expected
    assert results[-1]["empty"] == (0 if ranks > 1 else results[0]["empty"])
    return results


@pytest.mark.parametrize(("method", "rule"), TWO_RANKS, ids=str)
def test_two_ranks_draw_what_one_draws(
    gpu_ranks: Any, hub_parts: Parts, method: str, rule: dict[str, Any]
) -> None:
    results = check_ranks(gpu_ranks, hub_parts, 2, method, rule)
    for rank, result in enumerate(results):
        assert (result["redone"] > 0) == (method == "csp-fixed")
        for _, by_peer, ideal in result["traffic"]:
            assert by_peer[rank] == 0 < by_peer[1 - rank] and ideal > 0


@pytest.mark.parametrize("method", NAMES)
def test_torch_carries_what_nccl_does(gpu_ranks: Any, hub_parts: Parts, method: str) -> None:
    """The ways between hosts: the same picks and the same bytes."""
    quick, slow = (check_ranks(gpu_ranks, hub_parts, 2, method, {}, ways) for ways in ("auto", "torch"))
    assert [r["traffic"] for r in quick] == [r["traffic"] for r in slow]


@pytest.mark.parametrize("method", ["csp", "pull"])
@pytest.mark.parametrize("rule", [{}, {"weighted": True}], ids=str)
def test_gpus_move_the_bytes_that_cpus_move(
    gpu_ranks: Any, four_ranks: Any, hub_parts: Parts, method: str, rule: dict[str, Any]
) -> None:
    """Kind by kind; rows of fixed length add padding on GPUs."""
    gpu = check_ranks(gpu_ranks, hub_parts, 2, method, rule)
    twin = four_ranks.run(bytes_by_rank, hub_parts(2), method, rule, world=2)
    for mine, theirs in zip(gpu, twin, strict=True):
        for (kinds, _, ideal), (expected, expected_ideal) in zip(mine["traffic"], theirs, strict=True):
            assert {k: n for k, n in kinds.items() if k != "padding"} == expected
            assert ideal == expected_ideal


def bytes_by_rank(rank: Any, folder: str, method: str, options: dict[str, Any]) -> Any:
    sampler = lab.distributed.Sampler(folder, [10, 5, 3], method, rank=rank, seed=9, **options)
    found = []
    for i in range(12):
        sampler.sample(sampler.slice(SEEDS + i, "owner" if i % 2 else "equal"), 7 + i)
        found.append((sampler.traffic.by_kind, sampler.traffic.ideal))
    sampler.close()
    return found


def drawn_with_spill(
    rank: Any, folder: str, method: str, options: dict[str, Any], budget: int | None,
    fanouts: tuple[int, ...] = (10, 5, 3), seeds: np.ndarray = SEEDS, batches: int = 12,
) -> Any:  # fmt: skip
    counts = {} if rank.device == "cpu" else {"count_reads": True}
    sampler = lab.distributed.Sampler(
        folder, fanouts, method, rank=rank, seed=9, topology_bytes=budget, **counts, **options
    )
    found, host = [], []
    for i in range(batches):
        batch = sampler.sample(sampler.slice(seeds + i), 7 + i).to_cpu()
        found.append([(p.frontier, p.counts, p.neighbors, p.positions) for p in batch.picks])
        host.append(sampler.traffic.host)
    engine: Any = sampler.engine
    spilled = None if engine.spilled is None else engine.spilled.tolist()
    sampler.close()
    return found, host, spilled


def check_spill(world: Any, twins: Any, folder: str, ranks: int, method: str, rule: dict[str, Any]) -> None:
    """The picks of one GPU, and the host's bytes that CPU ranks count."""
    sampler = lab.NeighborSampler(drawn_graph("hubs"), [10, 5, 3], device="cpu", seed=9, **rule)
    for budget in (10**9, 30_000, 0):
        given = (drawn_with_spill, folder, method, rule, budget)
        results, expected = world.run(*given, world=ranks), twins.run(*given, world=ranks)
        assert [r[1:] for r in results] == [r[1:] for r in expected]
        assert all((spilled is None) == (budget == 10**9) for _, _, spilled in results)
        for i in range(12):
            whole = with_slots(sampler.sample(SEEDS + i, 7 + i), drawn_graph("hubs").indptr)
            union = [edges_of(found[i]) for found, _, _ in results]
            edges = edges_of([(p.frontier, p.counts, p.neighbors, p.positions) for p in whole.picks])
            assert [set().union(*hop) for hop in zip(*union, strict=True)] == edges


SPILLED_RANKS = [("csp", PLAIN), ("csp", WEIGHTED), ("csp-fixed", PLAIN)]


@pytest.mark.parametrize(("method", "rule"), SPILLED_RANKS, ids=str)
def test_one_gpu_reads_its_lists_in_host_memory(
    gpu_world: Any, pair: Any, hub_parts: Parts, method: str, rule: dict[str, Any]
) -> None:
    check_spill(gpu_world, pair, hub_parts(1), 1, method, rule)


@pytest.mark.parametrize(("method", "rule"), SPILLED_RANKS, ids=str)
def test_two_gpus_read_their_lists_in_host_memory(
    gpu_ranks: Any, pair: Any, hub_parts: Parts, method: str, rule: dict[str, Any]
) -> None:
    check_spill(gpu_ranks, pair, hub_parts(2), 2, method, rule)


@pytest.mark.parametrize("method", NAMES)
def test_graphs_are_captured_while_a_trainer_captures(gpu_ranks: Any, hub_parts: Parts, method: str) -> None:
    check_ranks(gpu_ranks, hub_parts, 2, method, {}, draw=drawn_beside_a_capture)


def many_fixed(rank: Any, folder: str) -> int:
    """Samplers one after another, so that graphs of earlier ones are garbage while a later one is captured."""
    import gc

    gc.collect()
    before, found = gc.get_threshold(), 0
    gc.set_threshold(10)
    try:
        for _ in range(6):
            for method in ("csp", "csp-fixed"):
                sampler = lab.distributed.Sampler(folder, [4, 3], method, rank=rank, seed=9)
                for i in range(10):
                    found += sampler.sample(sampler.slice(SEEDS), i).num_nodes
                sampler.close()
                del sampler
    finally:
        gc.set_threshold(*before)
    return found


def test_graphs_of_earlier_samplers_do_not_end_a_capture(gpu_ranks: Any, hub_parts: Parts) -> None:
    assert min(gpu_ranks.run(many_fixed, hub_parts(2), world=2)) > 0


@pytest.mark.parametrize("method", NAMES)
def test_one_rank_alone(gpu_world: Any, hub_parts: Parts, method: str) -> None:
    (result,) = check_ranks(gpu_world, hub_parts, 1, method, {})
    assert all(by_peer == [0] for _, by_peer, _ in result["traffic"])
