"""What the prompts beside the five pictures (notebooks 01, 02, 06 and 07) say one will see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import CacheExplorer, QueueExplorer
from gnnsample_widgets.batches import draw_batches, feature_sources, groupings
from gnnsample_widgets.graphs import batch_options, draw_seeds, seed_pool
from gnnsample_widgets.recorded import modelled

import gnnsample_lab as lab
from gnnsample_lab import figures
from tests.notebooks.claims import Opened, claim

pytestmark = pytest.mark.exhaustive  # minutes in all; that every sentence is there is tested each time

# ---- 01 -------------------------------------------------------------------------------------------------------------


def sampled(graph: Any, size: int, fanouts: list[int], pick: str = "reservoir") -> Any:
    return lab.NeighborSampler(graph, fanouts, pick=pick, device="cpu").sample(draw_seeds(graph, size, 0))


def frontiers(batch: Any) -> list[int]:
    return [picks.frontier.size for picks in batch.picks]


@claim(
    "01",
    "Take **Batch size** from one end to the other. When does hop 3 stop growing in proportion, and "
    "why there?",
)
def test_hop_3_stops_growing_in_proportion(graph: Any) -> None:
    largest = max(batch_options(graph, 8192))
    few, many = (frontiers(sampled(graph, size, [10, 10, 10]))[2] for size in (16, largest))
    assert many / few < 0.6 * largest / 16


@claim("01", "Set **Hops** to 1. What share of the time is preprocessing now?")
def test_one_hop_is_mostly_preprocessing(graph: Any) -> None:
    shares = []
    for hops in (1, 3):
        trace = modelled(graph, sampled(graph, 256, [10] * hops), "block-bsp")
        shares.append(trace.preprocess_us / trace.total_us)
    assert shares[0] > shares[1] and shares[0] > 0.9


@claim(
    "01",
    "Put 20, 5, 1 into the fanouts, then 1, 5, 20: the same product. Which order makes less work, "
    "and in which hop?",
)
def test_the_order_of_fanouts_matters(graph: Any) -> None:
    falling, rising = (frontiers(sampled(graph, 256, fanouts)) for fanouts in ([20, 5, 1], [1, 5, 20]))
    assert falling[1] > rising[1] and falling[2] > rising[2] and sum(falling) > 1.5 * sum(rising)


@claim("01", "The picks differ, and the kernels' times change")
@claim("01", "The work stays nearly the same, not quite, since other picks lead to other frontiers.")
def test_another_rule_draws_other_picks(graph: Any) -> None:
    reservoir, floyd = (sampled(graph, 256, [10, 10, 10], pick) for pick in ("reservoir", "floyd"))
    assert frontiers(reservoir)[0] == frontiers(floyd)[0]
    assert abs(frontiers(reservoir)[2] / frontiers(floyd)[2] - 1) < 0.05
    assert frontiers(reservoir) != frontiers(floyd)
    assert not np.array_equal(reservoir.picks[0].neighbors, floyd.picks[0].neighbors)
    times = [modelled(graph, batch, "block-bsp").total_us for batch in (reservoir, floyd)]
    assert times[0] != pytest.approx(times[1], rel=0.005)


@claim("01", "Choose a **Strategy** and a baseline to **set against** it.")
def test_strategies_differ(graph: Any) -> None:
    batch = sampled(graph, 256, [10, 10, 10])
    times = {name: modelled(graph, batch, name).total_us for name in lab.strategies() if name != "auto"}
    assert times["block-bsp"] > 3 * times["persistent"]


# ---- 02 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def queue(graph: Any) -> Opened:
    return Opened(QueueExplorer, graph)


@claim("02", "raise **Fetch size** from 1 to 16. Fewer trips to the queue, coarser portions")
def test_fetching_more_first_helps(queue: Opened) -> None:
    took = [queue(fetch_size=size)["trace"].total_us for size in (1, 4)]
    assert took[1] < took[0]


@claim("02", "take **Thread blocks** down to 4, then up to 2048. Where does adding workers stop helping")
def test_workers_stop_helping(queue: Opened) -> None:
    took = {blocks: queue(num_blocks=blocks)["trace"].total_us for blocks in (4, 64, 1024, 2048)}
    assert took[4] > 2 * took[64] > 2 * took[1024] and took[2048] == pytest.approx(took[1024], rel=0.02)


@claim("02", "set **Strategy** to *block-bsp* and back. The queue disappears; so does the overlap of colours")
def test_under_a_barrier_hops_do_not_overlap(queue: Opened) -> None:
    def overlap(strategy: str) -> bool:
        tasks = queue(strategy=strategy)["trace"].tasks
        ends = tasks.start_us + tasks.duration_us
        return any(tasks.start_us[tasks.hop == h + 1].min() < ends[tasks.hop == h].max() for h in range(2))

    assert overlap("persistent") and not overlap("block-bsp")


@claim("02", "With 4 blocks and the other sliders as they were, none is lost; with 512, most are gone.")
@claim("02", "Nothing but timing has changed.")
def test_the_published_rule_loses_most_with_many_blocks(queue: Opened) -> None:
    few, many = (queue(completion="paper", num_blocks=blocks)["trace"] for blocks in (4, 512))
    assert len(few.lost) == 0 and len(many.lost) > len(many.tasks)
    assert len(queue(num_blocks=512)["trace"].lost) == 0


# ---- 06 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cache(graph: Any) -> Opened:
    return Opened(CacheExplorer, graph)


UNIFORM = "3 hops: 15, 10, 5"


def rates(made: dict[str, Any], ratio: float = 0.1) -> dict[str, float]:
    return {name: float(lab.hit_rate(h, made["read"], ratio)) for name, h in made["hotness"].items()}


@claim("06", "Take **Cache ratio** from 1 to 50 %. Where do the curves lie farthest apart?")
@claim(
    "06",
    "(On ogbl-ddi, with *3 hops: 15, 10, 5* as the **Sampler**, a batch reads most of the graph, and all but "
    "Random's are one.)",
)
def test_where_the_policies_part(cache: Opened, graph: Any) -> None:
    def gaps(made: dict[str, Any]) -> list[float]:
        found = [rates(made, ratio) for ratio in (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)]
        return [rate["optimal"] - rate["degree"] for rate in found]

    assert 0 < int(np.argmax(gaps(cache()))) < 6, "in between"
    if graph.name == "ogbl-ddi":
        made = cache(sampler=UNIFORM)
        assert max(gaps(made)) < 0.01 and rates(made)["degree"] > rates(made)["random"] + 0.01
        assert made["read"].num_rows / made["read"].num_batches > 0.5 * graph.num_nodes


@claim(
    "06",
    "Point at vertices that only PreSC#1 caches, then at some that only Degree caches. How far are they from the "
    "training set?",
)
def test_what_only_presampling_caches_lies_near_the_training_set(cache: Opened, graph: Any) -> None:
    made = cache()
    share = cache.explorer.ratio_percent / 100
    by_policy = {
        name: figures.cached_mask(made["hotness"][name].order, share) for name in ("degree", "presample")
    }
    near = np.isin(made["distance"], ["in the training set", "1 hop from the training set"])
    only = [by_policy["presample"] & ~by_policy["degree"], by_policy["degree"] & ~by_policy["presample"]]
    if graph.name == "ogbl-ddi":
        assert near[only[0]].all() and near[only[1]].all(), "everything is a hop away"
    else:
        assert near[only[0]].mean() > near[only[1]].mean() + 0.2


@claim(
    "06",
    "Set **Where they lie** to *anywhere*, if the graph has classes and so a choice. Which curves "
    "come down, and which one hardly moves?",
)
@claim(
    "06",
    "what lies in Degree's cache that nobody reads? Take **Training vertices** up: when does that "
    "get better?",
)
def test_where_training_vertices_lie(cache: Opened, graph: Any) -> None:
    if graph.label is None:
        assert cache.options("where") == ["anywhere"], "not offered"
        return
    corner, anywhere = rates(cache()), rates(cache(where="anywhere"))
    assert corner["presample"] - anywhere["presample"] > 5 * abs(corner["degree"] - anywhere["degree"])

    def unread(count: int) -> float:
        made = cache(num_train=count)
        hottest = made["hotness"]["degree"].order[: graph.num_nodes // 10]
        return float((made["read"].visits[hottest] == 0).mean())

    assert unread(512) > 0.3 and unread(8192) < 0.5 * unread(2048)


@claim("06", "Set **Sampler** to *3 hops, weighted*. Which policies notice?")
def test_pre_sampling_notices_weights(cache: Opened) -> None:
    plain, weighted = rates(cache(sampler=UNIFORM)), rates(cache(sampler="3 hops, weighted"))
    gained = {name: weighted[name] - plain[name] for name in plain}
    assert gained["presample"] > gained["degree"] + 0.01


@claim("06", "Set it to *PinSAGE walks*, then raise **K**. Why does that help here more than before?")
def test_more_epochs_ahead_help_walks(cache: Opened) -> None:
    def gain(sampler: str) -> float:
        return (
            rates(cache(sampler=sampler, presampled=3))["presample"]
            - rates(cache(sampler=sampler))["presample"]
        )

    assert gain("PinSAGE walks") > gain(UNIFORM)


@claim(
    "06",
    "Set **Policy beside PreSC** to *reverse-pagerank*, which knows the graph and the training set "
    "but not the sampler. How near does it come?",
)
def test_reverse_pagerank_comes_near(cache: Opened) -> None:
    found = rates(cache())
    assert found["degree"] - 0.005 < found["reverse-pagerank"] < found["optimal"] + 0.005


@claim("06", "Take **Features per vertex** up. The hit rates stay")
def test_hit_rates_do_not_depend_on_the_width(cache: Opened) -> None:
    assert rates(cache(num_features=32)) == rates(cache(num_features=1024))


# ---- 07 -------------------------------------------------------------------------------------------------------------


def window(graph: Any, size: int, grouping: str = "shuffled", seed: int = 0) -> tuple[list[Any], Any]:
    sampler = lab.NeighborSampler(graph, [5, 10, 15], seed=seed, device="cpu")
    batches = sampler.sample_many(draw_batches(graph, 16, size, grouping=grouping, seed=seed))
    return [batch.node_ids for batch in batches], lab.match_degrees(batches)


def pairs(degrees: Any) -> Any:
    return degrees[~np.eye(len(degrees), dtype=bool)]


def copied(ids: list[Any], order: Any, cached: Any = None) -> int:
    return feature_sources(ids, {"it": order}, cached)["it"][2]


@claim(
    "07",
    "Take **Batch size** from 8 to its upper end. Why does the match degree of all pairs grow, and "
    "why do the pairs come to differ less?",
)
def test_larger_batches_are_more_alike(graph: Any) -> None:
    largest = max(batch_options(graph, min(4096, len(seed_pool(graph)) // 32)))
    few, many = (pairs(window(graph, size)[1]) for size in (8, largest))
    assert many.min() > few.mean() and np.ptp(many) < 0.5 * np.ptp(few)


@claim(
    "07",
    "Set **Seeds of a batch** to *by label*, where the graph has labels: always four batches come "
    "from neighbouring classes",
)
@claim("07", "and stand anywhere in the window.", "How much does reordering gain now?")
@claim(
    "07",
    "With *by label*, compare a **Batch size** of 256 with 2048. The mean match degree grows, and "
    "reordering saves less",
)
def test_batches_by_label_are_worth_reordering(graph: Any) -> None:
    if graph.label is None:
        assert "by label" not in groupings(graph), "not offered"
        return
    saved, means = {}, {}
    for grouping, size in (("shuffled", 256), ("by label", 256), ("by label", 2048)):
        ids, degrees = window(graph, size, grouping)
        saved[grouping, size] = 1 - copied(ids, lab.reorder(degrees)) / copied(ids, np.arange(16))
        means[grouping, size] = pairs(degrees).mean()
    assert saved["by label", 256] > 5 * saved["shuffled", 256]
    assert means["by label", 2048] > means["by label", 256]
    assert saved["by label", 2048] < saved["by label", 256]
    degrees = window(graph, 256, "by label")[1] * (1 - np.eye(16))
    near = [set(np.argsort(row)[-3:].tolist()) for row in degrees]
    assert any(max(three) - min(three) > 3 for three in near), "not four in a row"


@claim(
    "07",
    "Set it to *by degree*, go through a few **Random seeds**, and read the bytes. Can a tour with "
    "a higher sum of match degrees copy *more*?",
)
def test_a_better_tour_may_copy_more(graph: Any) -> None:
    size = min(256, max(batch_options(graph, min(4096, len(seed_pool(graph)) // 32))))
    lost = []
    for seed in range(8):
        ids, degrees = window(graph, size, "by degree", seed)
        tour = lab.reorder(degrees)
        assert lab.path_score(degrees, tour) > lab.path_score(degrees, np.arange(16))
        lost.append(copied(ids, tour) > copied(ids, np.arange(16)))
    assert any(lost)


@claim("07", "Give the cache 10, then 30 % of the rows. What does Match still add to it?")
def test_match_adds_less_to_a_larger_cache(graph: Any) -> None:
    ids, _ = window(graph, 128)
    order = lab.hotness(graph, "degree").order

    def added(percent: int) -> int:
        cached = np.zeros(graph.num_nodes, dtype=bool)
        cached[order[: graph.num_nodes * percent // 100]] = True
        return copied(ids, None, cached) - copied(ids, np.arange(16), cached)

    assert added(0) > added(10) > added(30) > 0


@claim("07", "Compare the methods of **Reorder**. How far is greedy from the best?")
def test_greedy_is_near_the_best(graph: Any) -> None:
    degrees = window(graph, 128)[1]
    score = {
        name: lab.path_score(degrees, lab.reorder(degrees, method=name))
        for name in ("greedy", "two-opt", "exact")
    }
    assert score["greedy"] <= score["two-opt"] <= score["exact"] + 1e-9
    assert score["greedy"] > 0.9 * score["exact"]
