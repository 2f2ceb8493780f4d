"""Each exercise checker: right answers, wrong ones that get a hint of their own, blanks and nonsense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import exercises

import gnnsample_lab as lab
from gnnsample_lab.compute.aggregation.bound import RTX_3090, aggregation_bound_us
from gnnsample_lab.features.ranking.footprint import Footprint
from gnnsample_lab.sampling.explain import reads, threads
from tests.notebooks import mistakes, solved, test_exercises_04
from tests.notebooks.answers import At, check_answers, small_twin

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
        wanted = {"one neighbour": 1, "six neighbours": 6}[answer.moved["seed_vertex"]]
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
