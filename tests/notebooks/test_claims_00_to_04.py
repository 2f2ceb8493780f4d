"""What the prompts of notebooks 00, 01, 03 and 04 say one will see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import (
    IndexExplorer,
    KernelExplorer,
    SampleExplorer,
    SecondOrderExplorer,
    ThreadsExplorer,
    second_order,
)

import gnnsample_lab as lab
from tests.notebooks.claims import Opened, claim

pytestmark = pytest.mark.exhaustive  # minutes in all; that every sentence is there is tested each time

# ---- 00 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample(graph: Any) -> Opened:
    return Opened(SampleExplorer, graph)


def frontiers(batch: Any) -> list[int]:
    return [picks.frontier.size for picks in batch.picks]


@claim("00", "raise **Fanout of hop 1** and watch hop 2 grow with it")
def test_hop_2_grows_with_the_fanout_of_hop_1(sample: Opened) -> None:
    sizes = [frontiers(sample(fanout_1=fanout)["batch"])[1] for fanout in (1, 2, 4, 6)]
    assert sizes == sorted(sizes) and sizes[-1] > sizes[0]


@claim("00", "change the **Random seed**: other neighbours, same sizes wherever a vertex has enough of them")
def test_another_seed_draws_other_neighbours(sample: Opened, graph: Any) -> None:
    one, two = (sample(seed=seed)["batch"].picks[0] for seed in (0, 1))
    assert one.neighbors.size == two.neighbors.size == 4
    assert set(one.neighbors.tolist()) != set(two.neighbors.tolist())


@claim(
    "00",
    "switch on **With replacement** and look for vertices that got fewer distinct neighbours than the fanout",
)
def test_with_replacement_neighbours_come_twice(sample: Opened) -> None:
    found = []
    for seed in range(6):
        for picks in sample(replace=True, seed=seed)["batch"].picks:
            per_task = np.split(picks.neighbors, picks.offsets[1:-1])
            found += [len(set(p.tolist())) < len(p) for p in per_task]
    assert any(found)
    for picks in sample(replace=False)["batch"].picks:
        assert all(len(set(p.tolist())) == len(p) for p in np.split(picks.neighbors, picks.offsets[1:-1]))


@claim("00", "type another **Seed vertex** into the number box, a hub or a leaf")
@claim("00", "Faint dots are neighbours that were there and were not picked.")
def test_a_hub_has_more_neighbours_than_are_picked(sample: Opened, graph: Any) -> None:
    degrees = np.asarray(graph.in_degrees())
    hub = int(degrees.argmax())
    made = sample(seed_vertex=hub)
    assert made["batch"].picks[0].neighbors.size == 4 < degrees[hub]
    leaf = int(degrees.argmin())
    assert sample(seed_vertex=leaf)["batch"].picks[0].neighbors.size == min(4, degrees[leaf])


# ---- 01 -------------------------------------------------------------------------------------------------------------


@claim("01", "Leave **Hops sampled** at 3 and step **Hops shown** from 0 upwards.")
def test_the_drawn_sample_grows(graph: Any) -> None:
    batch = Opened(SampleExplorer, graph, hops=3, fanout_1=3, fanout_2=3, fanout_3=2)()["batch"]
    sizes = frontiers(batch)
    assert sizes == sorted(sizes) and sizes[-1] > sizes[0]


@claim(
    "01",
    "In `block-bsp` the model therefore has *reservoir* below *floyd*, at every degree beyond the fanout.",
)
@claim(
    "01",
    "Where a few lanes share a task, in `persistent-tile`, a hub costs more by reservoir than by "
    "Floyd's rule.",
)
@claim("01", "A block of 128 threads looks at 128 neighbours at a time, and feels only the largest hubs")
def test_who_works_decides_which_rule_is_quicker(graph: Any) -> None:
    cost: dict[tuple[str, str], Any] = {}
    train = graph.splits.get("train", np.arange(graph.num_nodes))
    seeds = np.random.default_rng(0).choice(train, 256, replace=False)
    for strategy in ("block-bsp", "persistent-tile"):
        for pick in ("reservoir", "floyd"):
            draws = {"strategy": strategy, "pick": pick, "device": "cpu", "trace": True}
            tasks = lab.NeighborSampler(graph, [10, 10, 10], **draws).sample(seeds).trace.tasks
            cost[strategy, pick] = tasks.degree, tasks.duration_us

    def beyond(strategy: str, pick: str, least: int, below: int = 10**9) -> Any:
        degree, took_us = cost[strategy, pick]
        chosen = took_us[(degree >= least) & (degree < below)]
        assert chosen.size
        return chosen

    floyd = beyond("block-bsp", "floyd", 11)
    assert beyond("block-bsp", "reservoir", 11).max() < floyd.min()
    assert np.ptp(floyd) < 0.01 * floyd.mean(), "flat beyond the fanout"
    hubs, others = beyond("block-bsp", "reservoir", 1000), beyond("block-bsp", "reservoir", 20, 100)
    assert hubs.mean() > 1.2 * others.mean()
    hubs = [beyond("persistent-tile", pick, 1000).mean() for pick in ("reservoir", "floyd")]
    assert hubs[0] > 1.5 * hubs[1]


# ---- 03 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mapped(graph: Any) -> Opened:
    return Opened(ThreadsExplorer, graph)


def lists(made: dict[str, Any]) -> dict[str, float]:
    return {scheme: float(counts.lists.mean()) for scheme, counts in made["threads_of"][2].items()}


@claim(
    "03", "Start with the graph of 48 vertices. Follow one colour from sample-parallel to transit-parallel."
)
def test_one_colour_comes_together(mapped: Opened) -> None:
    found = lists(mapped())
    assert mapped.start["where"] == "small, made up" and found["transit"] < 0.6 * found["sample"]


@claim("03", "**Roots** from 4 to 128. When do the first transits fill a block of their own?")
@claim("03", "What becomes of the sectors, and of the number of *different* ones?")
def test_more_roots_fill_blocks(mapped: Opened) -> None:
    kernels, different, touched = [], [], []
    for roots in (4, 128):
        made = mapped(roots=roots)
        kernels.append(set(made["threads_of"][1]["transit"].kernel.tolist()))
        different.append(made["sectors"]["unlimited cache"])
        touched.append(made["sectors"]["sample-parallel"])
    assert 1 not in kernels[0] and 1 in kernels[1], "threads.KERNELS[1] is the block"
    assert touched[1] / touched[0] > 3 * different[1] / different[0], "the different ones level off"


@claim("03", "Set **Fanout of a hop** to 1, then to 10. Even sample-parallel a warp reads few lists at 10.")
def test_a_large_fanout_fills_a_warp_with_few_lists(mapped: Opened) -> None:
    assert lists(mapped(fanout=10))["sample"] < 0.5 * lists(mapped(fanout=1))["sample"]


@claim("03", "look at the lanes at work. Does sorting by transit bring them back to work?")
@claim("03", "You have seen the lanes at work stay as they were.")
def test_sorting_brings_no_lane_back_to_work(mapped: Opened) -> None:
    for step in (3, 4):
        counts = mapped(app="node2vec", step=step)["threads_of"][2]
        busy = {scheme: float(c.reads.sum() / (c.loads.sum() * c.width)) for scheme, c in counts.items()}
        assert abs(busy["transit"] - busy["sample"]) < 0.1, busy
        assert busy["sample"] < 0.9, "lanes do wait"


@claim("03", "Set **Graph** to the loaded one. How much of the picture is left?")
def test_on_a_real_graph_less_is_shared(mapped: Opened) -> None:
    small, loaded = lists(mapped()), lists(mapped(where="the loaded one"))
    assert loaded["transit"] / loaded["sample"] > small["transit"] / small["sample"]


@pytest.fixture(scope="module")
def kernels(graph: Any) -> Opened:
    return Opened(KernelExplorer, graph)


@claim(
    "03",
    "Then at the one of several *pairs*, which lies above it in step 2, far above it on a graph of "
    "short lists",
)
def test_pairs_share_more_than_samples(kernels: Opened, graph: Any) -> None:
    loads = [kernels(batch=batch)["steps"][1] for batch in kernels.options("batch")[1:]]
    assert all(load.shared_by_pairs >= load.shared_by_samples for load in loads)
    assert any(load.shared_by_pairs > load.shared_by_samples for load in loads)
    if graph.name == "arxiv-like":  # half of its vertices have two in-neighbours or fewer
        assert all(load.shared_by_pairs > load.shared_by_samples + 0.5 for load in loads)


@claim("03", "In step 1 every root is a transit of one sample.")
def test_nobody_shares_a_root(kernels: Opened) -> None:
    load = kernels()["steps"][0]
    assert (load.pairs == 1).all() and load.shared_by_pairs == load.shared_by_samples == 0


@claim("03", "Take **DeepWalk**. From one step to the next, does sharing become more?")
def test_sharing_of_walks_by_step(kernels: Opened) -> None:
    shared = [load.shared_by_pairs for load in kernels(app="DeepWalk")["steps"]]
    assert shared[0] == 0 and shared[1] > 0


@pytest.fixture(scope="module")
def index(graph: Any) -> Opened:
    return Opened(IndexExplorer, graph)


def total(work: dict[str, Any], name: str) -> float:
    return sum(sum(row.values()) for key, row in work.items() if key.endswith(name))


@claim(
    "03",
    "**Roots** to 16: what remains of the index when there is hardly anything to sort? That part "
    "does not depend on the sample at all.",
)
def test_a_part_of_the_counting_index_does_not_depend_on_the_sample(index: Opened, graph: Any) -> None:
    few = total(index(batch=16)["work"], "counting sort")
    fewer = total(index(batch=min(index.options("batch")))["work"], "counting sort")
    assert fewer > 4 * graph.num_nodes, "a counter for every vertex, at each step"
    assert few < 40 * fewer or few - fewer < fewer


@claim("03", "**Fanout, hop 2** from 25 down to 1. The pairs stay, the draws become fewer")
def test_pairs_stay_and_draws_become_fewer(index: Opened) -> None:
    index_bytes, sampling = zip(
        *(
            (total(index(fanout_2=f)["work"], "radix sort"), total(index(fanout_2=f)["work"], "sampling"))
            for f in (25, 1)
        )
    )
    assert index_bytes[0] == pytest.approx(index_bytes[1], rel=0.01) and sampling[1] < 0.5 * sampling[0]


@claim("03", "Compare counting and radix sort at the largest batch.")
def test_the_two_sorts_differ(index: Opened) -> None:
    work = index(batch=max(index.options("batch")))["work"]
    assert total(work, "counting sort") < total(work, "radix sort")


# ---- 04: the small graphs are the same whatever graph is loaded -----------------------------------------------------


@pytest.fixture(scope="module")
def walks() -> Opened:
    return Opened(SecondOrderExplorer, lab.load("arxiv-like", scale=0.01, use_cache=False))


@claim("04", "Which edges change colour when the walk moves on, although nobody has touched a slider?")
def test_the_same_edge_is_another_choice_a_step_later(walks: Opened) -> None:
    made = walks()
    club, first = made["small"], made["walked"][0].tolist()
    kinds: dict[tuple[int, int], set[float]] = {}
    for before, at in zip([-1, *first], first[:-1]):
        for v, weight in second_order.choices(club, before, at, made["p"], made["q"]).items():
            kinds.setdefault((at, v), set()).add(str(weight))
    assert any(len(found) > 1 for found in kinds.values())


def visits(made: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return made["expected"][0].visits, second_order.distances(made["small"], made["start"])


@claim("04", "**q** down to 0.1: look at the bars far from the root (tab *Visits*). Up to 10: who gains?")
def test_a_small_q_runs_off(walks: Opened) -> None:
    low, far = visits(walks(q_percent=10))
    high, _ = visits(walks(q_percent=1000))
    assert low[far == far.max()].sum() > high[far == far.max()].sum()
    assert high[far <= 1].sum() > low[far <= 1].sum()


@claim(
    "04",
    "**p** down to 0.1, q at 1. Why do the root's visits rise? Set **Steps of a walk** to 80. "
    "Does that last?",
)
def test_a_small_p_comes_home_for_a_while(walks: Opened) -> None:
    even = visits(walks(p_percent=100, q_percent=100))[0][0]
    short = visits(walks(p_percent=10, q_percent=100))[0][0]
    long_even = visits(walks(p_percent=100, q_percent=100, length=80))[0][0]
    long = visits(walks(p_percent=10, q_percent=100, length=80))[0][0]
    assert short > 1.2 * even and long / long_even < short / even


@claim(
    "04",
    "Set **Small graph** to *two villages*. With which p and q do walks get across the road, with "
    "which do they stay at home?",
)
def test_p_and_q_decide_about_the_road(walks: Opened) -> None:
    def away(**state: int) -> float:
        made = walks(shape="two villages", **state)
        shares, far = visits(made)
        return float(shares[far > np.median(far)].sum())

    assert away(p_percent=1000, q_percent=10) > 1.2 * away(p_percent=10, q_percent=1000)


@claim("04", "*grid*: why is there no green, and what is left for q to decide?")
def test_a_grid_has_no_triangle(walks: Opened) -> None:
    made = walks(shape="grid")
    assert second_order.count_kinds(made["small"], made["walked"])["triangle"] == 0
    away = [walks(shape="grid", q_percent=q)["expected"][0].kinds["away"] for q in (10, 1000)]
    assert away[0] > away[1], "away or back"


@claim("04", "Take **Walks** from 1 to 10,000, and watch the bars settle on the black lines.")
def test_many_walks_settle_on_the_expectation(walks: Opened) -> None:
    def off(count: int) -> float:
        made = walks(walks=count)
        exact, steps = made["expected"][0], made["walked"][:, 1:]
        shares = np.bincount(steps[steps >= 0], minlength=made["small"].num_nodes) / (steps >= 0).sum()
        return float(np.abs(shares - exact.visits).max())

    assert off(1) > 5 * off(10_000) and off(10_000) < 0.01


class Spoilt(lab.SamplingApp):
    def __init__(self, p, q, length):
        self.length = length
        self.accept = np.array([1 / p, 1, 1 / q]) / max(1 / p, 1, 1 / q)

    def next(self, s, transits, src_edges, step, rng):
        if len(src_edges) == 0:
            return lab.NULL
        before = s.prev_vertex(2, 0)
        while True:
            u = src_edges[rng.below(len(src_edges))]
            kind = 0 if u == before else 2
            if step == 0 or rng.chance(self.accept[kind]):
                return u

    def steps(self):
        return self.length

    def sample_size(self, step):
        return 1


@claim("04", "Which bars leave their lines, and at which $q$ does nobody notice?")
def test_a_spoilt_rule_is_seen_unless_q_is_one(walks: Opened) -> None:
    def off(q_percent: int) -> float:
        made = spoilt(q_percent=q_percent, walks=10_000)
        found = second_order.count_kinds(made["small"], made["walked"])
        return max(abs(found[kind] - share) for kind, share in made["expected"][0].kinds.items())

    spoilt = Opened(SecondOrderExplorer, walks.explorer.graph, app=Spoilt)
    assert off(25) > 0.02 and off(100) < 0.01


@claim("04", "Drawn anywhere, a vertex of the layer may be a neighbour of nobody")
def test_layers_drawn_anywhere_hang_loose(graph: Any) -> None:
    class Anywhere(lab.SamplingApp):
        def next(self, s, transits, src_edges, step, rng):
            return rng.below(s.num_nodes())

        def steps(self):
            return 3

        def sample_size(self, step):
            return 64

        def sampling_type(self):
            return lab.SamplingType.COLLECTIVE

    batches = np.random.default_rng(1).choice(graph.num_nodes, (20, 64))
    edges = lab.run_app(graph, Anywhere(), batches, device="cpu").adjacency(1)
    joined = len(set(zip(edges.sample.tolist(), edges.column.tolist()))) / (20 * 64)
    assert joined < 1 and (graph.name == "ogbl-ddi" or joined < 0.2), "most, on a large sparse graph"
