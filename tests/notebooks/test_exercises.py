"""Each exercise checker: right answers, wrong ones that get a hint of their own, blanks and nonsense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import CacheExplorer, IndexExplorer, exercises

import gnnsample_lab as lab
from gnnsample_lab.compute.aggregation.bound import RTX_3090, aggregation_bound_us
from gnnsample_lab.features.ranking.footprint import Footprint
from gnnsample_lab.sampling.explain import reads, threads
from tests.notebooks import mistakes, solved, test_exercises_04
from tests.notebooks.answers import At, at, check_answers, given, small_twin

CHECKERS = {checker.__name__: checker for checkers in exercises.ALL.values() for checker in checkers}
COMPILED = {case[0].__name__: (case[1], case[2]) for case in test_exercises_04.CASES}
TABLE = {**mistakes.TABLE, **COMPILED}


def test_there_are_forty_exercises_or_more() -> None:
    assert len(CHECKERS) >= 40 and all(len(checkers) >= 4 for checkers in exercises.ALL.values())


def test_every_exercise_has_right_wrong_and_blank_answers() -> None:
    """Blanks are in :func:`check_answers`, for every checker of the table; right answers are the worked solutions."""
    assert set(TABLE) == set(CHECKERS)
    assert not set(mistakes.TABLE) & set(COMPILED)
    solutions = {one.checker for number in exercises.ALL for one in solved.solutions(number)}
    assert solutions == set(CHECKERS)
    for name, (_, wrong) in TABLE.items():
        assert len(wrong) >= 2, f"{name} has no wrong answers"


def ready(answer: Any) -> Any:
    """Vertices that the table names by how many neighbours they have, found on the graph."""
    if isinstance(answer, At) and isinstance(answer.moved.get("seed_vertex"), str):
        wanted = {"one neighbour": 1, "three neighbours": 3, "six neighbours": 6}[answer.moved["seed_vertex"]]
        vertex = int(np.flatnonzero(np.asarray(small_twin().in_degrees()) == wanted)[0])
        return At(answer.kind, {**answer.moved, "seed_vertex": vertex})
    return answer


@pytest.mark.parametrize("name", mistakes.TABLE)
def test_answers(name: str) -> None:
    right, wrong = mistakes.TABLE[name]
    check_answers(CHECKERS[name], right, [(ready(answer), hint) for answer, hint in wrong])


FUNCTIONS = [
    name
    for name, (_, wrong) in mistakes.TABLE.items()
    if mistakes.ASK_FOR_THE_FUNCTION in [hint for _, hint in wrong]
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_empty_function_counts_as_blank(name: str) -> None:
    for nothing in (lambda *_: ..., lambda *_: None):
        assert CHECKERS[name](nothing).state == "blank"


def test_feedback_escapes_what_the_learner_wrote() -> None:
    reply = exercises.same_sample({"<b>"})
    assert "&lt;b&gt;" in reply._repr_html_() and "<b>" in repr(reply)
    assert not exercises.race(...) and "Not answered yet" in exercises.race(...)._repr_html_()


# ---- the reason of a praise is that of the state --------------------------------------------------------------------

ONE_GPU = {"gpus": 1, "host_percent": 0, "extract_percent": 100}
REASONS: list[tuple[str, At, str, str]] = [
    (
        "rule_is_beaten",
        at("PipelineExplorer", gpus=8, k_tenths=15, host_percent=0),
        "rounding 3.20 up takes a trainer too many away",
        "the link",
    ),
    (
        "rule_is_beaten",
        at("PipelineExplorer", gpus=8, k_tenths=20, extract_percent=100, host_percent=30, capacity=64),
        "the trainers share the link to the host, so that a trainer more gains less",
        "rounding",
    ),
    (
        "rule_is_beaten",
        at("PipelineExplorer", gpus=6, k_tenths=5, extract_percent=70, spread_percent=130, host_percent=0,
           synchronous=True),
        "Here they vary",
        "rounding",
    ),
    (
        "overlap_gains",
        at("PipelineExplorer", **ONE_GPU, k_tenths=2, beside_tenths=50, demand_percent=0),
        "the longest, 10 ms, run the two others, 2 and 10 ms: no less in all, and there is room",
        "three stages",
    ),
    (
        "overlap_gains",
        at("PipelineExplorer", **ONE_GPU, k_tenths=10, beside_tenths=10, demand_percent=60),
        "although sampling and training slow each other down",
        "there is room",
    ),
    (
        "overlap_gains",
        at("PipelineExplorer", gpus=6, k_tenths=7, extract_percent=15, beside_tenths=20, spread_percent=100,
           demand_percent=30, host_percent=10, capacity=2, synchronous=True),
        "It is more than that",
        "no less in all",
    ),
    (
        "nothing_to_share",
        at("ThreadsExplorer", app="DeepWalk", where="the loaded one", step=1),
        "one draw a list",
        "but sorting",
    ),
    ("nothing_to_share", at("ThreadsExplorer", width=4), "512 draws read 39 lists, but sorting", "one draw a list"),
    (
        "every_neighbour",
        at("SampleExplorer", seed_vertex="three neighbours", fanout_1=6),
        "whatever the random seed",
        "by luck",
    ),
    (
        "every_neighbour",
        at("SampleExplorer", seed_vertex="three neighbours", fanout_1=6, replace=True, seed=1),
        "but by luck",
        "whatever the random seed",
    ),
    (
        "nearer_and_dearer",
        at("MatchExplorer", grouping="by degree", batch_size=64, seed=69, cache_percent=30),
        "Without the cache, reordering would not copy more",
        "smaller batch",
    ),
    (
        "nearer_and_dearer",
        at("MatchExplorer", grouping="by degree", batch_size=32, seed=7),
        "divides by the smaller batch",
        "cache",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer", "reason", "other"), REASONS)
def test_a_right_answer_is_given_the_reason_of_its_state(
    name: str, answer: At, reason: str, other: str
) -> None:
    reply = CHECKERS[name](given(ready(answer)))
    assert reply.state == "right" and reason in reply.text and other not in reply.text, reply


@pytest.mark.parametrize(
    ("batch", "fanout_2", "reason"),
    [(256, 10, "go for counters"), (4096, 1, "go for passes"), (4096, 2, "both together")],
)
def test_the_part_of_a_sort_that_is_named_outweighs_sampling(batch: int, fanout_2: int, reason: str) -> None:
    """Counters where pairs are few for the graph, passes where draws are few for the pairs."""
    ends = np.arange(70_000)
    sources = np.concatenate([(ends + k) % len(ends) for k in range(1, 9)])
    graph = lab.Graph.from_edges(sources, np.tile(ends, 8))
    explorer = IndexExplorer(graph, device="cpu", raise_errors=True)
    explorer.set(batch=batch, fanout_1=8, fanout_2=fanout_2)
    reply = exercises.sorting_costs_more(explorer)
    assert reply and reason in reply.text, reply


def test_a_pipeline_that_nothing_slows_down_is_short() -> None:
    few = at("PipelineExplorer", gpus=5, k_tenths=30, extract_percent=85, beside_tenths=15, demand_percent=40,
             host_percent=10, capacity=2)  # fmt: skip
    reply = exercises.overlap_gains(given(few))
    assert reply.state == "wrong" and "no stage slows another down" in reply.text, reply


def test_a_share_is_not_called_more_than_it_is() -> None:
    trace = (
        lab.NeighborSampler(small_twin(), [10, 5], strategy="persistent", device="cpu", trace=True)
        .sample(np.arange(1024))
        .trace
    )
    share = trace.hops.preprocess_us[0] / (trace.hops.preprocess_us[0] + trace.hops.kernel_us[0])
    reply = exercises.preprocessing_share(float(share), trace)
    assert reply and share < 0.8 and "nearly all" not in reply.text, reply


def test_a_batch_at_the_bound_is_not_explained() -> None:
    batch = lab.NeighborSampler(small_twin(), [5], device="cpu").sample(np.arange(4))
    reply = exercises.largest_frontiers(lambda b, f, n: mistakes.bounds(b, f, n), batch)
    assert reply.text.endswith("Your batch has [4] of at most [4]."), reply


def test_the_smallest_cache_has_no_smaller_one() -> None:
    hub = lab.Graph.from_edges(np.zeros(70_000, dtype=np.int64), np.arange(70_000))  # all read vertex 0
    explorer = CacheExplorer(hub, device="cpu", raise_errors=True, ratio_percent=1, num_train=512)
    reply = exercises.half_of_the_reads(explorer)
    assert reply and "next smaller" not in reply.text, reply


@pytest.mark.parametrize(
    ("name", "answer", "fraction"),
    [
        ("taken_for_new", {1.7, 31.7, 32.7}, ""),
        ("lost_with_the_ticket", [14.2, 23, 33], "14.2"),
        ("claiming_lanes", np.array([9.5, 11, 15, 23]), "9.5"),
        ("long_way", [6.5, 13, 20, 0], "6.5"),
        ("right_by_luck", [1.5, 2, 3, 1, 2, 3], "1.5"),
        ("race", (1.1, 1, 0, 2, 2, 0), "1.1"),
        ("relabelled", lambda ids: [v + 0.5 for v in mistakes.first_come(ids)], "0.5"),
        ("scheduled", lambda pairs: [(s, v + 0.5) for s, v in mistakes.by_transit(pairs)], "1.5"),
        ("second_frontier", lambda frontier, picks: np.union1d(frontier, picks) + 0.5, "0.5"),
        ("mended", lambda degrees: lab.reorder(degrees) + 0.5, "0.5"),
    ],
)
def test_fractions_are_no_ids(name: str, answer: Any, fraction: str) -> None:
    reply = CHECKERS[name](answer)
    assert reply.state == "wrong" and f"{fraction} is no whole number" in reply.text, reply


# ---- the answers agree with the library -----------------------------------------------------------------------------


def test_probabilities_are_those_of_the_sampler() -> None:
    star = lab.Graph.from_edges(range(1, 41), [0] * 40)
    sampler = lab.NeighborSampler(star, [10], device="cpu")
    hits = np.mean([1 in sampler.sample([0], batch_id=i).picks[0].neighbors for i in range(2000)])
    assert abs(hits - 0.25) < 0.04
    batch = lab.NeighborSampler(small_twin(), [10, 10], device="cpu").sample(np.arange(256))
    reply = exercises.pick_probability(lambda degree, fanout: min(1, fanout / degree), batch)
    assert f"{batch.picks[0].num_picks:,} picks; the batch has {batch.picks[0].num_picks:,}" in reply.text


def test_frontiers_keep_below_the_bound() -> None:
    full = lab.Graph.from_edges(*np.divmod(np.arange(400 * 400), 400))
    batch = lab.NeighborSampler(full, [2, 2, 2], device="cpu").sample(range(4))
    assert all(p.frontier.size <= most for p, most in zip(batch.picks, mistakes.bounds(4, [2, 2, 2], 400)))


def test_the_share_is_that_of_the_trace() -> None:
    sampler = lab.NeighborSampler(small_twin(), [5, 5], strategy="block-bsp", device="cpu", trace=True)
    trace = sampler.sample(np.arange(64)).trace
    share = trace.hops.preprocess_us[0] / (trace.hops.preprocess_us[0] + trace.hops.kernel_us[0])
    assert exercises.preprocessing_share(round(float(share), 2), trace)
    assert "kernel's share" in exercises.preprocessing_share(float(1 - share), trace).text


@pytest.mark.parametrize("draws", [99, 100, 101])
def test_staging_counts_sectors_as_the_library_does(draws: int) -> None:
    star = lab.Graph.from_edges(np.arange(800), np.full(800, 800), 801)
    calls = reads.follow(lab.run_app(star, lab.apps.KHop((1,)), np.full(draws, 800), device="cpu"), 0)
    copied = threads.staged_sectors(calls, threads.lay_out(calls, "transit"))
    assert exercises.staging(lambda n, d: d > -(-4 * n // 32)) and copied == -(-4 * 800 // 32)


def test_the_library_passes_its_own_exercises() -> None:
    graph = small_twin()

    def by_relabel(ids: list[int]) -> Any:
        # A seed that no pick is, and its local id taken off again.
        return lab.relabel([99], [ids], 100, device="cpu").local[0] - 1

    assert exercises.relabelled(by_relabel)

    def epochs_alike(f_i: np.ndarray, f_j: np.ndarray, share: float) -> float:
        return lab.epoch_similarity(*(Footprint(f, int(f.max()), int(f.sum())) for f in (f_i, f_j)), share)

    assert exercises.similarity(epochs_alike)

    def hits(score: np.ndarray, visits: np.ndarray, rows: int) -> float:
        return lab.hit_rate(
            score, Footprint(visits, int(visits.max()), int(visits.sum())), rows / len(visits)
        )

    read = lab.footprint(lab.NeighborSampler(graph, [5, 5], device="cpu"), np.arange(512), 64)
    assert exercises.degree_hit_rate(hits, read)
    batches = lab.NeighborSampler(graph, [5, 5], device="cpu").sample_many([np.arange(64), np.arange(32, 99)])
    assert exercises.match_degree(lambda a, b: lab.match_degrees([sorted(a), sorted(b)])[0, 1], batches)

    def by_plans(sets: list[set[int]]) -> int:
        ids = [sorted(batch) for batch in sets]
        return sum(lab.match(a, b).num_loaded for a, b in zip([[], *ids], ids))

    assert exercises.rows_loaded(by_plans)
    assert exercises.mended(lambda degrees: lab.reorder(degrees), lab.match_degrees(batches))

    def least_us(block: Any, features: int, speeds: Any) -> float:
        shape = len(np.unique(block.indices)), block.num_dst, block.num_edges
        return aggregation_bound_us(*shape, features, speeds.dram_gbps, speeds.l2_gbps)

    assert exercises.bound(least_us, batches[0].blocks[0])
    assert exercises.list_score(lambda v, d, f, b: lab.distributed.hottest_lists(v, d, f, b).ids, graph)
    random = lab.distributed.partition(graph, 4, "random", tolerance=4.0)
    assert abs(random.cut_share - 0.75) < 0.02
    assert mistakes.cut(graph, np.asarray(random.owner)) == pytest.approx(random.cut_share)


def test_the_cost_model_counts_as_the_equations_do() -> None:
    star = lab.Graph.from_edges(range(1, 11), [0] * 10)
    block = lab.NeighborSampler(star, [-1], device="cpu").sample([0]).blocks[0]
    naive, aware = (lab.aggregation_cost(block, 256, name) for name in ("naive", "memory-aware"))
    # The equations leave out the result.
    times = [
        c.global_bytes / RTX_3090.dram_gbps + c.shared_bytes / RTX_3090.shared_gbps for c in (naive, aware)
    ]
    assert times[0] / times[1] == pytest.approx(mistakes.speedup(10, 256, 938.0, 12_000.0), rel=0.02)


def test_stage_times_are_those_of_the_table() -> None:
    from gnnsample_widgets.exercises import pipelines

    times = lab.schedule.gnnlab_times("GCN", "UK")
    assert [times.mean(s) * 125 for s in ("sample", "extract", "train")] == pytest.approx(
        pipelines.UK, abs=1e-3
    )


def test_the_printed_walk_is_the_one_that_the_answer_names() -> None:
    """NextDoor's p, 1/q, 1 with p = 2 and q = 0.5 against the explorer's rule with p = 1 and q = 2."""
    from gnnsample_widgets import second_order

    graph = second_order.small_graph(second_order.KARATE, None)
    weight = {"return": 2.0, "triangle": 1 / 0.5, "away": 1.0}
    assert exercises.same_walk(lambda p, q: (1 / (p * q), 1 / q))
    for before, now in ((0, 1), (33, 32), (16, 5)):
        found = second_order.choices(graph, before, now, 1, 2)
        total = sum(weight[kind] for kind, _ in found.values())
        for kind, share in found.values():
            assert share == pytest.approx(weight[kind] / total)
