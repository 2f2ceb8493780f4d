"""On a CPU a strategy selects the trace, and the refusals, alone: the sample is that of the reference in plain Python.

That strategies draw the same sample is a claim about kernels, which ``test_gpu_parity.py`` tests.
"""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.minibatch.sampler import CPU_DEFAULT_SCHEDULE
from gnnsample_lab.sampling.neighbors.strategies import QUEUE_STRATEGIES, STRATEGIES
from gnnsample_lab.traces import FUSED_STRATEGIES
from tests.minibatch.test_samples import RULES, assert_is_reference

NAMES = (
    "block-bsp", "edge-bsp", "turbo-bsp", "bsp", "fused-static", "persistent", "persistent-tile", "grid-barrier",
    "captured", "auto",
)  # fmt: skip


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(0)
    return lab.Graph.from_edges(
        rng.integers(0, 300, 2000), rng.integers(0, 250, 2000), 300, edge_weight=rng.random(2000), name="toy"
    )


def sampler(graph, strategy, **options):
    return lab.NeighborSampler(graph, [4, 3, 2], strategy=strategy, device="cpu", **options)


def test_every_name_of_the_design_has_one_line():
    found = lab.strategies()
    assert "reconstruction" in found["turbo-bsp"], "nobody has its code"
    assert tuple(found) == NAMES
    assert all(text and "\n" not in text for text in found.values())
    assert len(set(found.values())) == len(found)
    found.clear()
    assert tuple(lab.strategies()) == NAMES  # a copy


def test_the_layers_agree_on_who_has_a_queue():
    assert set(QUEUE_STRATEGIES) == FUSED_STRATEGIES < set(STRATEGIES)


@pytest.mark.parametrize("strategy", ["block-bsp", "persistent"])
def test_a_traced_sample_is_the_references(graph, strategy):
    """The exact completion rule of the modelled queue drops nothing of it."""
    seeds = np.arange(0, 300, 11)
    expected = assert_is_reference(graph, seeds.tolist(), [4, 3, 2], 5)
    for trace in (False, True):
        found = sampler(graph, strategy, trace=trace).sample(seeds, 5)
        assert found.canonical() == expected.canonical()
        assert np.array_equal(found.node_ids, expected.node_ids)
        assert (found.trace is not None) == trace


@pytest.mark.parametrize("strategy", NAMES)
def test_a_trace_is_the_schedule_of_that_strategy_on_the_very_picks(graph, strategy):
    batch = sampler(graph, strategy, trace=True, seed=9, fetch_size=3).sample(np.arange(0, 300, 7), 2)
    trace = batch.trace
    assert trace.origin == "modelled" and trace.label.startswith("modelled as ")
    assert trace.strategy == (CPU_DEFAULT_SCHEDULE if strategy == "auto" else strategy)
    assert (trace.graph_name, trace.seed, trace.batch_id, trace.fanouts) == ("toy", 9, 2, (4, 3, 2))
    assert trace.batch_size == len(batch.seeds)
    tasks = set(zip(trace.tasks.hop.tolist(), trace.tasks.vertex.tolist()))
    assert tasks == {(h, int(v)) for h, p in enumerate(batch.picks) for v in p.frontier}
    assert len(trace.tasks) == len(tasks)
    assert trace.hops.num_picks.tolist() == [p.num_picks for p in batch.picks]
    assert len(trace.lost) == 0
    fetches = strategy.startswith("persistent")
    assert (trace.completion, trace.fetch_size) == (("exact", 3) if fetches else (None, None))


def test_strategies_differ_in_their_schedule(graph):
    times = {
        name: sampler(graph, name, trace=True).sample(np.arange(0, 300, 7)).trace.total_us
        for name in NAMES
        if name != "auto"
    }
    assert len(set(times.values())) > 5


@pytest.mark.parametrize("strategy", NAMES)
def test_expand_new_needs_a_barrier(graph, strategy):
    if strategy in QUEUE_STRATEGIES:
        with pytest.raises(ValueError, match=f"expand='new' needs hop order.*strategy='{strategy}'"):
            sampler(graph, strategy, expand="new")
    else:
        batch = sampler(graph, strategy, expand="new", trace=True).sample([0, 1])
        assert batch.trace.expand == "new"


@pytest.mark.parametrize("strategy", NAMES)
def test_fisher_yates_is_drawn_by_a_block_per_vertex_alone(graph, strategy):
    if strategy == "block-bsp":
        batch = sampler(graph, strategy, pick="fisher-yates", trace=True).sample([0, 1])
        assert batch.trace.pick == "fisher-yates"
        return
    with pytest.raises(ValueError, match=f"pick='fisher-yates'.*strategy='block-bsp'.*strategy='{strategy}'"):
        sampler(graph, strategy, pick="fisher-yates")
    assert (
        sampler(graph, strategy, pick="fisher-yates", weighted=True).spec.rule == 3
    )  # `pick` does not apply


@pytest.mark.parametrize("strategy", [name for name in NAMES if name != "persistent"])
def test_the_published_completion_rule_belongs_to_persistent(graph, strategy):
    with pytest.raises(ValueError, match="completion='paper' exists for strategy='persistent' only"):
        sampler(graph, strategy, completion="paper")


@pytest.mark.parametrize("strategy", [name for name in NAMES if name != "persistent"])
def test_the_published_queue_belongs_to_persistent(graph, strategy):
    with pytest.raises(ValueError, match="queue='blocks' exists for strategy='persistent' only"):
        sampler(graph, strategy, queue="blocks")


def test_a_cpu_has_no_model_of_the_published_queue(graph):
    assert "CPU twin" in sampler(graph, "persistent", queue="blocks").reason
    with pytest.raises(ValueError, match="queue='blocks' has no model"):
        sampler(graph, "persistent", queue="blocks", trace=True)


def test_the_reason_says_what_runs(graph):
    assert "CPU twin" in sampler(graph, "bsp").reason and "'bsp'" in sampler(graph, "bsp").reason
    assert CPU_DEFAULT_SCHEDULE in sampler(graph, "auto").reason


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_draws_what_the_reference_draws(graph, rule):
    assert_is_reference(graph, [3, 1, 4], [4, 3, 2], 1, **RULES[rule])
