"""Completion of the persistent strategies: the published rule loses tasks, the exact one none."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from gnnsample_lab import Graph, MiniBatch, NeighborSampler
from gnnsample_lab.gpu_model.model import get_model
from gnnsample_lab.gpu_model.run import simulate
from gnnsample_lab.minibatch.cpu import CpuTables, keep_rows
from gnnsample_lab.sampling.neighbors.schedule import build_workload, replay
from gnnsample_lab.sampling.neighbors.spec import HopPicks


def persistent(g, fanouts, **options) -> NeighborSampler:
    return NeighborSampler(g, fanouts, strategy="persistent", device="cpu", **options)


def edges_of(batch: MiniBatch) -> list[set[tuple[int, int]]]:
    """Per hop (edge position, neighbour)."""
    return [set(zip(p.positions.tolist(), p.neighbors.tolist())) for p in batch.picks]


def assert_is_part_of(part: MiniBatch, whole: MiniBatch) -> None:
    assert part.seeds.tolist() == whole.seeds.tolist()
    assert part.seed_inverse.tolist() == whole.seed_inverse.tolist()
    assert set(part.node_ids.tolist()) <= set(whole.node_ids.tolist())
    for hop, (mine, theirs) in enumerate(zip(part.picks, whole.picks, strict=True)):
        drawn = {
            int(v): theirs.positions[a:b].tolist()
            for v, a, b in zip(theirs.frontier, theirs.offsets, theirs.offsets[1:])
        }
        for v, a, b in zip(mine.frontier, mine.offsets, mine.offsets[1:]):
            # A task ran and has all of its picks, or was lost and has none.
            assert mine.positions[a:b].tolist() in ([], drawn[int(v)])
        assert np.array_equal(mine.frontier, part.node_ids[: part.level_sizes[hop]])
        reached = part.node_ids[: part.level_sizes[hop + 1]].tolist()
        assert set(mine.frontier.tolist()) | set(mine.neighbors.tolist()) == set(reached)
    for block in part.blocks:
        assert np.array_equal(block.dst, block.src[: block.num_dst])
        assert np.array_equal(block.src[block.indices], part.graph.indices[block.edge_positions])


def test_the_published_rule_loses_the_third_hop_of_a_path(drawn_graphs):
    path = drawn_graphs["path"]
    whole = persistent(path, [1, 1, 1]).sample([0])
    part = persistent(path, [1, 1, 1], completion="paper", trace=True).sample([0])
    assert [p.num_picks for p in whole.picks] == [1, 2, 3]
    assert [p.num_picks for p in part.picks] == [1, 2, 0]
    assert set(part.trace.lost.hop.tolist()) == {2}
    assert part.canonical() != whole.canonical()
    assert_is_part_of(part, whole)


@pytest.mark.parametrize("seed", range(12))
def test_what_the_published_rule_returns_is_part_of_the_sample(seed):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, 60, 220), (rng.random(220) ** 3 * 60).astype(int)
    g = Graph.from_edges(src, dst, 60)
    seeds = rng.integers(0, 60, 9)
    whole = persistent(g, [4, 3, 2]).sample(seeds, seed)
    part = persistent(g, [4, 3, 2], completion="paper", trace=True, fetch_size=3).sample(seeds, seed)
    assert_is_part_of(part, whole)
    lost = set(zip(part.trace.lost.hop.tolist(), part.trace.lost.vertex.tolist()))
    ran = set(zip(part.trace.tasks.hop.tolist(), part.trace.tasks.vertex.tolist()))
    assert ran | lost == {(h, int(v)) for h, p in enumerate(whole.picks) for v in p.frontier}
    for hop, picks in enumerate(part.picks):
        with_picks = {(hop, int(v)) for v, count in zip(picks.frontier, picks.counts) if count}
        assert with_picks <= ran


def test_the_published_rule_does_lose_something():
    rng = np.random.default_rng(0)
    g = Graph.from_edges(rng.integers(0, 60, 220), (rng.random(220) ** 3 * 60).astype(int), 60)
    sampler = persistent(g, [4, 3, 2], completion="paper", trace=True)
    assert sum(len(sampler.sample([i, i + 1, i + 9], i).trace.lost) > 0 for i in range(20)) >= 5


def test_keeping_all_rows_keeps_the_sample_and_keeping_none_the_seeds(graph):
    whole = NeighborSampler(graph, [4, 3], device="cpu").sample([5, 1, 5, 30], 2)
    tables = CpuTables(graph.num_nodes)
    same = keep_rows(whole, [np.ones(p.frontier.size, bool) for p in whole.picks], tables)
    assert same.canonical() == whole.canonical()
    assert np.array_equal(same.node_ids, whole.node_ids)
    none = keep_rows(whole, [np.zeros(p.frontier.size, bool) for p in whole.picks], tables)
    assert none.node_ids.tolist() == [5, 1, 30] and none.num_edges == 0
    assert_is_part_of(none, whole)


def test_five_of_ten_tasks_are_lost_when_a_short_task_ends_first():
    """Seed 0 has ten neighbours and seed 1 none, on two blocks that do not expand finished vertices again."""
    star = Graph.from_edges(range(2, 12), [0] * 10, 12)
    batch = persistent(star, [10, 10]).sample([0, 1])
    # What the frontier rule adds for finished vertices themselves is left out.
    first = batch.picks[0]
    second = batch.picks[1]
    keep = second.frontier >= 2
    tasks = [
        first,
        HopPicks(second.frontier[keep], second.counts[keep], second.neighbors[:0], second.positions[:0]),
    ]
    _, masks = replay(
        tasks, star.in_degrees().__getitem__, strategy="persistent", pick="floyd", fanouts=[10, 10], num_nodes=12,
        completion="paper", num_blocks=2,
    )  # fmt: skip
    assert masks[0].all()
    assert masks[1].sum() == 5 and (~masks[1]).sum() == 5
    full = np.zeros(second.frontier.size, bool)
    full[np.flatnonzero(keep)[masks[1]]] = True
    assert_is_part_of(keep_rows(batch, [masks[0], full], CpuTables(12)), batch)


GRAPHS, SIZE, PARTS = 10_000, 8, 8
SMALL = dataclasses.replace(get_model("h200"), num_sms=2)


def many_small_graphs() -> Graph:
    """Ten thousand random graphs of eight vertices and 0 to 13 edges, side by side; most have dead ends."""
    rng = np.random.default_rng(2026)
    which = np.repeat(np.arange(GRAPHS), rng.integers(0, 14, GRAPHS))
    src = which * SIZE + rng.integers(0, SIZE, which.size)
    dst = which * SIZE + (rng.random(which.size) ** 2 * SIZE).astype(int)
    return Graph.from_edges(src, dst, GRAPHS * SIZE)


@pytest.fixture(scope="module")
def small_graphs() -> tuple[Graph, list[list[HopPicks]]]:
    """The graphs, and the tasks of each one's sample: drawn together, as no edge joins two of them."""
    g = many_small_graphs()
    rng = np.random.default_rng(7)
    seeds = np.flatnonzero(rng.random(g.num_nodes) < 0.3)
    seeds = np.union1d(seeds, np.arange(GRAPHS) * SIZE)  # at least one in each
    batch = persistent(g, [2, 3, 2]).sample(seeds)
    tasks: list[list[HopPicks]] = [[] for _ in range(GRAPHS)]
    for p in batch.picks:
        order = np.argsort(p.frontier // SIZE, kind="stable")
        bounds = np.searchsorted((p.frontier // SIZE)[order], np.arange(GRAPHS + 1))
        by_row = np.argsort(np.repeat(np.argsort(order), p.counts), kind="stable")
        frontier, counts = p.frontier[order], p.counts[order]
        neighbors, positions = p.neighbors[by_row], p.positions[by_row]
        ends = np.concatenate([[0], np.cumsum(counts)])
        for i in range(GRAPHS):
            a, b = bounds[i], bounds[i + 1]
            edges = slice(ends[a], ends[b])
            tasks[i].append(HopPicks(frontier[a:b], counts[a:b], neighbors[edges], positions[edges]))
    return g, tasks


def degrees_of(g: Graph, picks: HopPicks) -> np.ndarray:
    return g.indptr[picks.frontier + 1] - g.indptr[picks.frontier]


def lost_of(small_graphs, i: int, *, strategy: str, **options) -> int:
    """Tasks of graph ``i`` that a schedule leaves undone: what ``replay`` does, less the trace."""
    g, tasks = small_graphs
    work = build_workload(
        tasks[i], [degrees_of(g, p) for p in tasks[i]], SMALL.unit(strategy), (2, 3, 2), pick="floyd", replace=False,
        weighted=False, queued=True,
    )  # fmt: skip
    timeline = simulate(SMALL, work, strategy, grid_tasks=work.num_tasks, **options)
    assert len(timeline.processed) == work.num_tasks == sum(p.frontier.size for p in tasks[i])
    assert np.array_equal(timeline.processed, ~np.isnan(timeline.end_us))
    return work.num_tasks - int(timeline.processed.sum())


def test_the_small_graphs_are_many_and_have_dead_ends(small_graphs):
    g, tasks = small_graphs
    assert len(tasks) == GRAPHS == g.num_nodes // SIZE
    src, dst = g.edges()
    assert (src // SIZE == dst // SIZE).all()
    assert all(p.frontier.size for hops in tasks for p in hops)
    dead_ends = np.zeros(GRAPHS, bool)
    last = [hops[-1] for hops in tasks]
    for i, p in enumerate(last):
        dead_ends[i] = (p.counts == 0).any()
    assert dead_ends.mean() > 0.7
    for i in (0, 17, 9_999):  # the split is right
        for before, after in zip(tasks[i], tasks[i][1:], strict=False):
            reached = set(before.frontier.tolist()) | set(before.neighbors.tolist())
            assert reached == set(after.frontier.tolist())
            assert (after.frontier // SIZE == i).all()


@pytest.mark.parametrize("part", range(PARTS))
def test_exact_loses_none_on_ten_thousand_graphs(small_graphs, part):
    """One replay for each graph, with strategy, fetch size and number of blocks in rotation."""
    lost = 0
    for i in range(part, GRAPHS, PARTS):
        lost += lost_of(
            small_graphs, i, strategy=("persistent", "persistent-tile", "fused-static")[i // PARTS % 3],
            fetch_size=1 + i // 24 % 7, num_blocks=1 + i // 168 % 5,
        )  # fmt: skip
    assert lost == 0


def test_the_published_rule_loses_tasks_on_most_of_them(small_graphs):
    graphs = range(0, GRAPHS, 40)
    losing = sum(
        lost_of(small_graphs, i, strategy="persistent", completion="paper", num_blocks=1 + i % 5) > 0
        for i in graphs
    )
    assert losing > len(graphs) // 2


def algorithm_1(child_ptr: np.ndarray, child: np.ndarray, num_seeds: int, fetch_size: int) -> set[int]:
    """PGSampler's Algorithm 1 as printed, one block, in plain Python: the tasks that it runs.

    ``child[child_ptr[task]:child_ptr[task + 1]]`` are what TaskGen makes of a task. With one block nothing is up to
    chance: the tail that ends the loop is read after the block's own tasks, and a slot that is fetched empty stays
    unread.
    """
    empty = -1
    queue, task_index, tail = (
        list(range(num_seeds)),
        1,
        num_seeds,
    )  # one block: taskIndex begins behind its first task
    ran: set[int] = set()
    made = set(queue)
    first, shared_index, shared_tail = True, 0, tail
    while shared_index < shared_tail:
        if first:
            fetched = [queue[shared_index]]  # lines 13 and 14
            first = False
        else:
            slots = range(shared_index, shared_index + fetch_size)  # lines 16 to 19: no slot is checked
            fetched = [queue[slot] if slot < len(queue) else empty for slot in slots]
        for task in fetched:
            if task == empty:
                continue
            ran.add(task)
            for new in child[child_ptr[task] : child_ptr[task + 1]].tolist():
                if new not in made:  # Algorithm 2
                    made.add(new)
                    queue.append(new)  # lines 28 and 29
                    tail += 1
        shared_index, task_index = task_index, task_index + fetch_size  # line 35
        shared_tail = tail  # line 36
    return ran


@pytest.mark.parametrize("fetch_size", [1, 2, 5, 9])
def test_one_block_runs_the_tasks_that_algorithm_1_runs(small_graphs, fetch_size):
    g, tasks = small_graphs
    losing = 0
    for i in range(0, GRAPHS, 50):
        degrees = [degrees_of(g, p) for p in tasks[i]]
        work = build_workload(
            tasks[i], degrees, SMALL.unit("persistent"), (2, 3, 2), pick="floyd", replace=False, weighted=False,
            queued=True,
        )  # fmt: skip
        timeline = simulate(
            SMALL, work, "persistent", grid_tasks=work.num_tasks, completion="paper", num_blocks=1,
            fetch_size=fetch_size,
        )  # fmt: skip
        wanted = algorithm_1(work.child_ptr, work.child, tasks[i][0].frontier.size, fetch_size)
        assert set(np.flatnonzero(timeline.processed).tolist()) == wanted, i
        losing += len(wanted) < work.num_tasks
    assert losing or fetch_size == 1


class Block(NamedTuple):
    """A block in the loop of Algorithm 1."""

    slots: frozenset[int] = frozenset()
    """Of its last claim, those that it has yet to read."""
    fetched: frozenset[int] = frozenset()
    """Slots whose tasks it holds and has yet to run."""
    new: tuple[int, ...] = ()
    """Tasks for which it took slots and has yet to write them."""
    at: int = 0
    """The first of these slots."""
    begun: bool = True
    gone: bool = False


class Queue(NamedTuple):
    """What all blocks see, and the blocks."""

    blocks: tuple[Block, ...]
    held: tuple[int, ...]
    """Task by slot, -1 where none is written."""
    tail: int
    task_index: int
    ran: frozenset[int] = frozenset()

    def after(self, number: int, block: Block, **changed: Any) -> Queue:
        return self._replace(blocks=(*self.blocks[:number], block, *self.blocks[number + 1 :]), **changed)


def turns(queue: Queue, number: int, children: list[list[int]], fetch_size: int) -> tuple[list[Queue], bool]:
    """What may be after the next turn of a block, and whether other blocks could notice or prevent it.

    A turn is what a block does at once: look at the tail (lines 9, 36 and 12) and claim (8, 35), read a slot (17; its
    threads read theirs in any order), run a task and take slots for what is new (22 to 28), write these (29).
    """
    block, held = queue.blocks[number], queue.held
    taken = {*held, *(task for each in queue.blocks for task in each.new)}
    if block.slots:
        full = [slot for slot in block.slots if held[slot] >= 0]
        if full:  # as well now as later
            return [
                queue.after(
                    number, block._replace(slots=block.slots - {*full}, fetched=block.fetched | {*full})
                )
            ], False
        return [queue.after(number, block._replace(slots=block.slots - {slot})) for slot in block.slots], True
    if block.new:
        written = (*held[: block.at], *block.new, *held[block.at + len(block.new) :])
        return [queue.after(number, block._replace(new=()), held=written)], True
    if block.fetched:
        slot = min(block.fetched)
        new = tuple(task for task in dict.fromkeys(children[held[slot]]) if task not in taken)
        later = block._replace(fetched=block.fetched - {slot}, new=new, at=queue.tail)
        tail, ran = queue.tail + len(new), queue.ran | {held[slot]}
        return [queue.after(number, later, tail=tail, ran=ran)], bool(new)
    first, size = (queue.task_index, fetch_size) if block.begun else (number, 1)
    slots = frozenset(range(first, min(first + size, len(held)))) if first < queue.tail else frozenset[int]()
    index = queue.task_index + size * block.begun
    return [queue.after(number, Block(slots, gone=first >= queue.tail), task_index=index)], True


def algorithm_1_in_any_order(
    child_ptr: np.ndarray, child: np.ndarray, num_seeds: int, fetch_size: int, num_blocks: int
) -> set[frozenset[int]]:
    """PGSampler's Algorithm 1 as printed, in every order in which blocks can take turns: what has run at the end."""
    children = [child[a:b].tolist() for a, b in itertools.pairwise(child_ptr.tolist())]
    held = (*range(num_seeds), *[-1] * (len(children) - num_seeds))
    states = [Queue((Block(begun=False),) * num_blocks, held, num_seeds, num_blocks)]
    seen, ends = set(states), set()
    while states:
        queue = states.pop()
        going = [n for n, block in enumerate(queue.blocks) if not block.gone]
        next_ones = [turns(queue, n, children, fetch_size) for n in going]
        # A turn that no other block notices or prevents may as well be the next.
        alone = next((found for found, noticed in next_ones if not noticed), None)
        for later in alone or [later for found, _ in next_ones for later in found]:
            if later not in seen:
                seen.add(later)
                states.append(later)
        if not going:
            ends.add(queue.ran)
    return ends


def test_the_orders_of_two_blocks_by_hand():
    """Seed 0 has five neighbours and seed 1 none: the short task's block may claim the other's slots before they are
    written, and then leaves or reads as many as are there."""
    ends = algorithm_1_in_any_order(np.array([0, 5, 5, 5, 5, 5, 5, 5]), np.arange(2, 7), 2, 5, 2)
    assert frozenset({0, 1}) in ends and frozenset(range(7)) in ends
    assert all(each >= {0, 1} for each in ends)
    path = np.array([0, 1, 2, 2]), np.array([1, 2])
    # One block has claimed slot 2 with slot 1 and found it empty.
    assert algorithm_1_in_any_order(*path, 1, 5, 1) == {frozenset({0, 1})}


@pytest.mark.parametrize(("num_blocks", "most_tasks"), [(2, 9), (3, 7)])
@pytest.mark.parametrize("fetch_size", [1, 2, 3])
def test_blocks_run_what_some_order_of_algorithm_1_runs(small_graphs, fetch_size, num_blocks, most_tasks):
    g, tasks = small_graphs
    small = [i for i in range(400) if sum(p.frontier.size for p in tasks[i]) <= most_tasks]
    losing = bound_to_lose = 0
    for i in small[:25]:
        work = build_workload(
            tasks[i], [degrees_of(g, p) for p in tasks[i]], SMALL.unit("persistent"), (2, 3, 2), pick="floyd",
            replace=False, weighted=False, queued=True,
        )  # fmt: skip
        timeline = simulate(
            SMALL, work, "persistent", grid_tasks=work.num_tasks, completion="paper", num_blocks=num_blocks,
            fetch_size=fetch_size,
        )  # fmt: skip
        seeds = tasks[i][0].frontier.size
        ends = algorithm_1_in_any_order(work.child_ptr, work.child, seeds, fetch_size, num_blocks)
        ran = frozenset(np.flatnonzero(timeline.processed).tolist())
        assert ran in ends, i
        losing += len(ran) < work.num_tasks
        bound_to_lose += all(len(end) < work.num_tasks for end in ends)
    assert losing > 5 and (fetch_size < 3 or bound_to_lose > 2)
