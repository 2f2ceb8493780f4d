from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gnnsample_lab.gpu_model.model import PLANS, get_model, hands_on
from gnnsample_lab.sampling.neighbors.schedule import build_workload, replay
from gnnsample_lab.traces import FUSED_STRATEGIES
from tests.sampling.neighbors.schedule_samples import Toy, random_toy

FANOUTS = (4, 3, 2)
SMALL = dataclasses.replace(get_model("h200"), num_sms=3)


def run(toy: Toy, seeds, fanouts=FANOUTS, *, self_reuse=True, sample_seed=0, **options):
    picks = toy.sample(seeds, fanouts, seed=sample_seed, self_reuse=self_reuse)
    settings = {"strategy": "persistent", "pick": "reservoir", "gpu": SMALL, **options}
    trace, masks = replay(picks, toy.degrees, fanouts=fanouts, num_nodes=toy.num_nodes, **settings)
    return picks, trace, masks


def keys(trace_table) -> set[tuple[int, int]]:
    return set(zip(trace_table.hop.tolist(), trace_table.vertex.tolist(), strict=True))


def task_keys(picks) -> set[tuple[int, int]]:
    return {(h, int(v)) for h, p in enumerate(picks) for v in p.frontier}


@pytest.mark.parametrize("pick", ["floyd", "reservoir"])
@pytest.mark.parametrize("strategy", list(PLANS))
def test_tasks_are_exactly_the_picks(strategy, pick):
    toy = random_toy(1, 400, 3000)
    picks, trace, masks = run(toy, range(0, 400, 9), strategy=strategy, pick=pick)
    assert keys(trace.tasks) == task_keys(picks)
    assert len(trace.tasks) == sum(len(p.frontier) for p in picks)
    assert all(mask.all() for mask in masks)
    assert len(trace.lost) == 0
    assert trace.hops.workload.tolist() == [len(p.frontier) for p in picks]
    assert trace.hops.num_picks.tolist() == [int(p.counts.sum()) for p in picks]
    assert (trace.tasks.degree == toy.degrees(trace.tasks.vertex)).all()


@pytest.mark.parametrize("strategy", list(PLANS))
def test_times_are_in_order_and_add_up(strategy):
    _, trace, _ = run(random_toy(2, 400, 3000), range(0, 400, 7), strategy=strategy)
    tasks = trace.tasks
    assert (tasks.enqueue_us <= tasks.start_us).all()
    assert (tasks.start_us < tasks.end_us).all()
    assert trace.total_us >= tasks.end_us.max() - 1e-9
    assert trace.preprocess_us + trace.kernel_us == pytest.approx(trace.total_us)
    assert (trace.hops.kernel_us > 0).all()


@pytest.mark.parametrize("strategy", [s for s in PLANS if s not in FUSED_STRATEGIES])
def test_a_barrier_separates_hops(strategy):
    _, trace, _ = run(random_toy(2, 400, 3000), range(0, 400, 7), strategy=strategy)
    for hop in (1, 2):
        before, after = trace.tasks.hop == hop - 1, trace.tasks.hop == hop
        assert trace.tasks.start_us[after].min() >= trace.tasks.end_us[before].max()


def test_fused_hops_overlap():
    _, trace, _ = run(random_toy(3, 2000, 30_000), range(0, 2000, 9))
    first = trace.tasks.start_us[trace.tasks.hop == 2].min()
    assert first < trace.tasks.end_us[trace.tasks.hop == 1].max()


@pytest.mark.parametrize("strategy", [s for s in PLANS if s != "edge-bsp"])
def test_no_more_tasks_at_once_than_the_gpu_holds(strategy):
    _, trace, _ = run(random_toy(4, 3000, 40_000), range(0, 3000, 3), strategy=strategy)
    execution = SMALL.execution[strategy]
    per_sm = execution.blocks_per_sm * execution.workers_per_block * SMALL.unit(strategy).rows
    for sm in range(3):
        rows = trace.tasks.sm == sm
        time = np.concatenate([trace.tasks.start_us[rows], trace.tasks.end_us[rows]])
        step = np.repeat([1, -1], rows.sum())
        assert np.cumsum(step[np.lexsort((step, time))]).max() <= per_sm


def test_tasks_of_one_resident_block_do_not_overlap():
    _, trace, _ = run(random_toy(5, 2000, 30_000), range(0, 2000, 5), strategy="persistent")
    tasks = trace.tasks
    order = np.lexsort((tasks.start_us, tasks.block))
    same = np.diff(tasks.block[order]) == 0
    assert same.sum() > 1000
    assert (tasks.start_us[order][1:] >= tasks.end_us[order][:-1])[same].all()


@pytest.mark.parametrize("strategy", sorted(FUSED_STRATEGIES))
def test_a_task_is_queued_once_one_of_its_parents_drew(strategy):
    toy = random_toy(6, 500, 5000)
    picks, trace, _ = run(toy, range(0, 500, 10), strategy=strategy)
    tasks = trace.tasks
    end = dict(zip(zip(tasks.hop.tolist(), tasks.vertex.tolist()), tasks.end_us))
    parents: dict[tuple[int, int], list[float]] = {}
    for hop, p in enumerate(picks[:-1]):
        for v, start, stop in zip(p.frontier.tolist(), p.offsets[:-1], p.offsets[1:]):
            for u in {*p.neighbors[start:stop].tolist(), v}:
                parents.setdefault((hop + 1, u), []).append(end[hop, v])
    for hop, vertex, queued in zip(tasks.hop.tolist(), tasks.vertex.tolist(), tasks.enqueue_us):
        if hop:
            # What a task still does once its neighbours are in the queue.
            assert queued >= min(parents[hop, vertex]) - SMALL.unit(strategy).after_us - 1e-9


@pytest.mark.parametrize("strategy", sorted(FUSED_STRATEGIES))
def test_makespan_is_at_least_the_critical_path_and_the_work_bound(strategy):
    toy = random_toy(7, 500, 6000)
    picks, trace, _ = run(toy, range(0, 500, 10), strategy=strategy)
    unit = SMALL.unit(strategy)
    work = build_workload(
        picks, [toy.degrees(p.frontier) for p in picks], unit, FANOUTS, pick="reservoir", replace=False,
        weighted=False, queued=True, hands_on=[hands_on(strategy, hop, len(picks)) for hop in range(len(picks))],
    )  # fmt: skip
    cost = np.sum(work.features.costs(unit), axis=0)
    # Earliest end of each task with endless workers: the quickest of its parents, then itself.
    earliest = np.full(work.num_tasks, np.inf)
    earliest[: work.hop_ptr[1]] = 0.0
    for task in range(work.num_tasks):
        earliest[task] += cost[task]
        children = work.child[work.child_ptr[task] : work.child_ptr[task + 1]]
        earliest[children] = np.minimum(earliest[children], earliest[task] - unit.after_us)
    kernel = trace.kernel_us
    assert kernel >= earliest.max()
    assert kernel >= cost.sum() / int(trace.meta["resident_workers"])


def test_exact_completion_loses_nothing_on_graphs_with_dead_ends():
    for seed in range(300):
        rng = np.random.default_rng(seed)
        toy = random_toy(seed, 40, int(rng.integers(0, 90)))
        seeds = rng.choice(40, int(rng.integers(1, 9)), replace=False)
        picks, trace, masks = run(
            toy, seeds, sample_seed=seed, num_blocks=int(rng.integers(1, 20)),
            fetch_size=int(rng.integers(1, 8)),
            strategy=("persistent", "persistent-tile", "fused-static")[seed % 3],
        )  # fmt: skip
        assert keys(trace.tasks) == task_keys(picks)
        assert all(mask.all() for mask in masks)


def test_paper_completion_conserves_tasks_and_respects_descent():
    lost_somewhere = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        toy = random_toy(seed, 60, 200)
        seeds = rng.choice(60, 6, replace=False)
        picks, trace, masks = run(
            toy, seeds, sample_seed=seed, completion="paper", num_blocks=int(rng.integers(1, 6)), fetch_size=5
        )
        assert keys(trace.tasks) | keys(trace.lost) == task_keys(picks)
        assert not keys(trace.tasks) & keys(trace.lost)
        lost_somewhere += len(trace.lost) > 0
        for hop, mask in enumerate(masks):
            assert mask.sum() == (trace.tasks.hop == hop).sum()
        for hop in range(len(picks) - 1):
            ran = masks[hop]
            offsets = picks[hop].offsets
            handed_on = set(picks[hop].frontier[ran].tolist())
            for i in np.flatnonzero(ran):
                handed_on |= set(picks[hop].neighbors[offsets[i] : offsets[i + 1]].tolist())
            assert set(picks[hop + 1].frontier[masks[hop + 1]].tolist()) <= handed_on
            # Never queued is exactly what none of the tasks that ran handed on.
            never = trace.lost.vertex[(trace.lost.hop == hop + 1) & ~trace.lost.abandoned].tolist()
            assert set(never) == set(picks[hop + 1].frontier.tolist()) - handed_on
    assert lost_somewhere > 20


def test_published_rule_loses_the_last_hop_of_a_path():
    path = Toy([1, 2, 3], [0, 1, 2], 4)
    _, trace, masks = run(
        path,
        [0],
        (1, 1, 1),
        self_reuse=False,
        completion="paper",
        num_blocks=1,
        fetch_size=5,
        task_index_start=1,
    )
    assert [mask.tolist() for mask in masks] == [[True], [True], [False]]
    assert keys(trace.lost) == {(2, 2)}
    assert trace.lost.slot.tolist() == [2]
    assert trace.lost.abandoned.all()
    # Queueing a vertex for its own next hop does not help: all of hop 3 is lost then, too.
    _, trace, masks = run(path, [0], (1, 1, 1), completion="paper", num_blocks=1, fetch_size=5)
    assert [bool(mask.all()) for mask in masks] == [True, True, False]
    assert not masks[2].any()


def test_published_rule_loses_five_of_ten_when_a_short_task_ends_first():
    star = Toy(range(2, 12), [0] * 10, 12)
    _, trace, masks = run(
        star, [0, 1], (10, 10), self_reuse=False, completion="paper", num_blocks=2, fetch_size=5
    )
    assert masks[0].tolist() == [True, True]
    assert masks[1].tolist() == [False] * 5 + [True] * 5
    assert trace.lost.slot.tolist() == [2, 3, 4, 5, 6]
    assert trace.lost.block.tolist() == [1] * 5
    assert trace.queue.depth[-1] == 5
    _, trace, _ = run(star, [0, 1], (10, 10), self_reuse=False, num_blocks=2, fetch_size=5)
    assert len(trace.lost) == 0


def test_a_run_ends_when_its_last_slot_is_written_though_nobody_reads_it():
    written_last = 0
    for seed in range(40):
        toy = random_toy(seed, 60, 200)
        _, trace, _ = run(
            toy, range(0, 60, 4), sample_seed=seed, completion="paper", num_blocks=32, fetch_size=5
        )
        ends = trace.queue.time_us.max()
        written_last += ends > trace.tasks.end_us.max()
        assert trace.total_us == max(ends, trace.tasks.end_us.max())
        assert trace.preprocess_us + trace.kernel_us == pytest.approx(trace.total_us)
    assert written_last > 0


@pytest.mark.parametrize("completion", ["exact", "paper"])
@pytest.mark.parametrize("strategy", ["persistent", "persistent-tile", "fused-static"])
def test_slots_tell_when_they_were_claimed_written_and_read(strategy, completion):
    toy = random_toy(3, 60, 200)
    _, trace, _ = run(
        toy, range(0, 60, 9), strategy=strategy, completion=completion, num_blocks=12, fetch_size=5
    )
    slots = trace.slots
    t = trace.tasks
    ran = zip(t.hop, t.vertex, t.enqueue_us, t.end_us, strict=True)
    done = ~slots.lost
    columns = (slots.hop, slots.vertex, slots.write_us, slots.end_us)
    assert sorted(ran) == sorted(zip(*(column[done] for column in columns), strict=True))
    left = trace.lost.abandoned
    assert np.flatnonzero(slots.lost).tolist() == sorted(trace.lost.slot[left].tolist())
    assert dict(zip(trace.lost.slot[left], trace.lost.block[left])) == {
        i: slots.block[i] for i in np.flatnonzero(slots.lost)
    }
    # Slots are claimed in turn, by a block that then begins with them, and not before they are written.
    assert (np.diff(slots.claim_us[12:][np.isfinite(slots.claim_us[12:])]) >= 0).all()
    assert (slots.claim_us[done] <= slots.read_us[done]).all()
    assert (slots.write_us[done] <= slots.read_us[done]).all()
    # What was lost had been claimed while it was empty.
    claimed = slots.lost & np.isfinite(slots.claim_us)
    assert (slots.claim_us[claimed] <= slots.write_us[claimed]).all()
    assert (completion == "paper" and strategy != "fused-static") == bool(slots.lost.any())


@pytest.mark.parametrize(("completion", "fetch_size"), [("exact", 1), ("exact", 5), ("paper", 1)])
@pytest.mark.parametrize("seed", range(4))
def test_one_block_serves_a_plain_queue(seed, completion, fetch_size):
    """PGSampler's queue as a list: seeds first, a finished task appends its picks and itself for the next hop, each
    once; who comes first is served first. With one block nothing else can happen, under either rule."""
    toy = random_toy(seed, 80, 400)
    picks, trace, _ = run(
        toy, range(0, 80, 11), completion=completion, fetch_size=fetch_size, num_blocks=1, sample_seed=seed
    )
    drawn = {}
    for hop, each in enumerate(picks):
        ends = np.cumsum(each.counts)
        for v, count, end in zip(each.frontier.tolist(), each.counts.tolist(), ends.tolist(), strict=True):
            drawn[hop, v] = each.neighbors[end - count : end].tolist()
    order = np.argsort(trace.tasks.start_us, kind="stable")
    served = list(zip(trace.tasks.hop[order].tolist(), trace.tasks.vertex[order].tolist(), strict=True))
    queue = [(0, v) for v in picks[0].frontier.tolist()]
    known, at = set(queue), len(queue)
    assert served[:at] == queue
    for hop, v in served:
        if hop + 1 < len(picks):
            new = {(hop + 1, u) for u in [v, *drawn[hop, v]]} - known
            assert set(served[at : at + len(new)]) == new, "those of one task may come in any order"
            known |= new
            at += len(new)
    assert at == len(served) == len(drawn) and len(trace.lost) == 0


def test_a_strategy_without_a_queue_has_no_slots():
    _, trace, _ = run(random_toy(3, 60, 200), [0, 9], strategy="block-bsp")
    assert len(trace.slots) == len(trace.queue_slots()) == 0


@pytest.mark.parametrize("completion", ["exact", "paper"])
@pytest.mark.parametrize("strategy", ["persistent", "persistent-tile", "fused-static", "block-bsp"])
def test_replay_is_deterministic(strategy, completion):
    toy = random_toy(8, 500, 5000)
    one, two = (run(toy, range(0, 500, 9), strategy=strategy, completion=completion)[1] for _ in range(2))
    assert one.tasks == two.tasks
    assert one.lost == two.lost


def test_expand_new_has_no_children_outside_the_next_frontier():
    toy = random_toy(9, 200, 1500)
    picks = toy.sample(range(0, 200, 20), (3, 3), self_reuse=False)
    trace, _ = replay(
        picks, toy.degrees, strategy="bsp", pick="floyd", fanouts=(3, 3), num_nodes=200, expand="new"
    )
    assert keys(trace.tasks) == task_keys(picks)


@pytest.mark.parametrize("fanouts", [(-1, -1), (-1, 2)])
def test_all_neighbours(fanouts):
    _, trace, _ = run(random_toy(10, 200, 900), range(0, 200, 17), fanouts, strategy="fused-static")
    assert trace.fanouts == fanouts
    assert len(trace.lost) == 0


def test_no_seeds_and_isolated_seeds():
    toy = Toy([0], [1], 5)
    for strategy in PLANS:
        _, trace, masks = run(toy, [2, 3], (2, 2), strategy=strategy)
        assert trace.hops.workload.tolist() == [2, 2]
        assert trace.hops.num_picks.tolist() == [0, 0]
        empty = toy.sample([], (2, 2))
        trace, masks = replay(
            empty, toy.degrees, strategy=strategy, pick="floyd", fanouts=(2, 2), num_nodes=5, gpu=SMALL
        )
        assert len(trace.tasks) == 0
        assert [len(mask) for mask in masks] == [0, 0]


def test_identity_is_passed_on():
    _, trace, _ = run(
        random_toy(0), [0, 1], graph_name="toy", graph_is_synthetic=True, seed=7, batch_id=3, fetch_size=2
    )
    assert (trace.seed, trace.batch_id, trace.fetch_size, trace.completion) == (7, 3, 2, "exact")
    assert trace.label == "modelled as NVIDIA H200"
    assert trace.title == "toy (synthetic)"
    assert run(random_toy(0), [0, 1], strategy="bsp")[1].fetch_size is None


@pytest.mark.parametrize(
    "options, message",
    [
        ({"strategy": "auto"}, "strategy must be one of block-bsp.*'auto'"),
        ({"gpu": "abacus"}, "gpu must be one of h200.*'abacus'"),
        ({"completion": "hopeful"}, "completion must be 'exact' or 'paper'"),
        ({"expand": "new"}, "expand must be 'frontier' for strategy 'persistent'"),
        ({"fetch_size": 0}, "fetch_size must be at least 1"),
        ({"num_blocks": 0}, "num_blocks must be at least 1"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        run(random_toy(0), [0, 1], **options)


def test_degrees_must_match_the_frontier():
    toy = random_toy(0)
    picks = toy.sample([0, 1], (2, 2))
    with pytest.raises(ValueError, match=r"degrees\[0\] must match the frontier"):
        replay(picks, [np.zeros(1), np.zeros(1)], strategy="bsp", pick="floyd", fanouts=(2, 2), num_nodes=60)
    with pytest.raises(ValueError, match="fanouts must have one entry per hop"):
        replay(picks, toy.degrees, strategy="bsp", pick="floyd", fanouts=(2,), num_nodes=60)
