"""What suites compute from times: ratios, crossovers, targets. The times are made up; no GPU is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import NeighborSampler
from gnnsample_lab.bench import report, runner
from gnnsample_lab.bench.floors import floor, sampling_floor
from gnnsample_lab.bench.suite import Unavailable
from gnnsample_lab.bench.suites.pgsampler import kernels as pgsampler
from gnnsample_lab.bench.suites.pgsampler import whole
from tests.bench.made_up import MADE_UP_US, MadeUpSession


@pytest.fixture
def session() -> MadeUpSession:
    return MadeUpSession()


def target(record: dict[str, Any], words: str) -> dict[str, Any]:
    (found,) = [t for t in record["targets"] if words in t["what"]]
    return found


def test_figure8_divides_the_baseline_by_each_rival_on_the_same_batches(session) -> None:
    record = runner.run("pgsampler-fig8", session=session)
    assert {row["graph"] for row in record["rows"]} == {"rmat", "products-like"}
    assert {row["hops"] for row in record["rows"]} == {2, 3}
    for row in record["rows"]:
        assert row["speedup"]["persistent"] == pytest.approx(600 / 300)
        assert row["speedup"]["persistent-tile"] == pytest.approx(600 / 100)
        assert row["sweep"]["persistent"] == {"knob=1": 600.0, "knob=2": 300.0}
    assert {pick for *_, pick in session.asked} == {"reservoir"}, "the same pick for all"
    assert target(record, "at its best")["met"]
    assert target(record, "persistent-tile")["measured"] == pytest.approx(6.0)


def test_figure8_says_where_the_queue_becomes_slower() -> None:
    class Fading(MadeUpSession):
        def kernel_us(self, name, batch_size, fanouts, strategy, pick):
            found = super().kernel_us(name, batch_size, fanouts, strategy, pick)
            if strategy == "persistent" and batch_size > 2048:
                found["us"] = 640.0
            return found

    record = runner.run("pgsampler-fig8", session=Fading(graphs=["rmat"]))
    by_shape = {(c["fanout"], c["hops"]): c["slower_from_batch"] for c in record["crossovers"]}
    assert by_shape[10, 3] == 10240
    never = [t for t in record["targets"] if "persistent over block-bsp, kernels, everywhere" in t["what"]]
    assert never[0]["met"] and never[0]["measured"] == pytest.approx(600 / 640)
    assert "slower from 10240 seeds" in report.text(record)


def test_a_full_sweep_covers_the_papers_grid() -> None:
    points = pgsampler.grid(quick=False)
    for hops in (2, 3):
        for batch in (2048, 4096, 8192, 10240):
            assert {(batch, (fanout,) * hops) for fanout in (10, 15, 20)} <= set(points)
    assert (8192, (15,) * 3) in pgsampler.grid(quick=True), "the setting of the DGL-like figures"


def test_table3_sets_each_system_at_its_papers_setting(session) -> None:
    record = runner.run("pgsampler-table3", session=session)
    rows = {(row["graph"], row["system"]): row for row in record["rows"]}
    assert rows["products-like", "TurboGNN"]["batch_size"] == 200_000
    assert rows["reddit-like", "TurboGNN"]["fanout"] == 30
    assert rows["reddit-like", "PGSampler"]["paper_speedup"] == 1.23
    assert rows["reddit-like", "TurboGNN"]["speedup"] == {"turbo-bsp": pytest.approx(600 / 400)}
    assert rows["reddit-like", "PGSampler"]["speedup"]["persistent"] == pytest.approx(2.0)
    with pytest.raises(Unavailable, match="graph must be one of"):
        runner.run("pgsampler-table3", session=MadeUpSession(graphs=["rmat"]))


def test_figure10_compares_with_the_unbalanced_fusion(session) -> None:
    record = runner.run("pgsampler-fig10", session=session)
    assert record["rows"][0]["speedup"]["persistent"] == pytest.approx(900 / 300)
    assert record["paper"]["finding"] in report.text(record)


def test_the_floor_suite_takes_ratios_to_the_floor(session, monkeypatch) -> None:
    replayed = {"us": 40.0, "best": "8x2", "sweep": {"8x2": 40.0}}
    constants = {"dram_latency_ns": 600.0, "l2_latency_ns": 200.0, "random_sector_gbps": 3000.0}
    monkeypatch.setattr(floor, "replay_floor", lambda graph, recorded: replayed)
    monkeypatch.setattr(floor, "machine_constants", lambda: constants)
    record = runner.run("sampling-floor", session=session)
    row = record["rows"][0]
    assert row["ratio"]["captured"] == pytest.approx(50 / 40)
    assert (row["best_strategy"], row["best_ratio"]) == ("captured", pytest.approx(1.25))
    # Three hops of two memory latencies and one of the cache.
    assert row["bound_us"] == pytest.approx(3 * (2 * 600 + 200) / 1e3)
    assert all(t["met"] for t in record["targets"]) and len(record["targets"]) == 3
    session.times["captured"] = session.times["grid-barrier"] = 100.0
    session.times["persistent-tile"] = 110.0
    record = runner.run("sampling-floor", session=session)
    assert [t["met"] for t in record["targets"]] == [False, True, True]


def test_draws_alone_never_count_as_the_best_strategy(session, monkeypatch) -> None:
    monkeypatch.setattr(floor, "replay_floor", lambda *_: {"us": 40.0, "best": "", "sweep": {}})
    session.constants = {"dram_latency_ns": 600.0, "l2_latency_ns": 200.0, "random_sector_gbps": 3000.0}
    session.times["turbo-bsp"] = 1.0
    record = runner.run("sampling-floor", session=session)
    assert {row["best_strategy"] for row in record["rows"]} <= set(sampling_floor.LADDER)


@pytest.fixture
def made_up_walls(monkeypatch) -> None:
    class Sampler:
        scratch_bytes = 1 << 20
        _engine = SimpleNamespace(scratch_limit=1 << 30)

        def __init__(self, us: float) -> None:
            self.us = us

    monkeypatch.setattr(
        MadeUpSession, "sampler", lambda self, n, f, strategy, pick, knobs=None: Sampler(self.times[strategy])
    )

    def wall_us(work, count, passes=5):
        held = work.args[0] if hasattr(work, "args") else work.__closure__[0].cell_contents
        return held.us

    monkeypatch.setattr(whole.timing, "wall_us", wall_us)
    monkeypatch.setattr(whole, "settle", lambda sampler, groups: None)


def test_figure9_and_its_targets(session, made_up_walls) -> None:
    record = runner.run("pgsampler-fig9", session=session)
    row = record["rows"][0]
    assert row["best_strategy"] == "captured"
    assert row["speedup"]["best"] == pytest.approx(600 / 50)
    assert row["speedup"]["persistent"] == pytest.approx(2.0)
    assert all(t["met"] for t in record["targets"])
    session.times["captured"] = session.times["grid-barrier"] = 70.0
    session.times["persistent-tile"] = 75.0
    record = runner.run("pgsampler-fig9", session=session)
    assert [t["met"] for t in record["targets"]] == [False, True]


def test_whole_process_divides_a_fused_call_by_its_batches(session, made_up_walls) -> None:
    record = runner.run("whole-process", session=session)
    row = next(r for r in record["rows"] if (r["graph"], r["batch_size"], r["fanout"]) == ("rmat", 1024, 10))
    assert row["alone_us"] == pytest.approx(50.0)
    assert row["fused32_us"] == pytest.approx(50.0 / 32)
    text = report.text(record)
    assert "7207 us alone, 1138 us each" in text and "measured separately" in text


def test_fusing_compares_what_is_chosen_with_one_by_one(session, monkeypatch) -> None:
    us = {1: 100.0, 2: 70.0, 4: 60.0, 8: 110.0}
    monkeypatch.setattr(MadeUpSession, "sampler", lambda self, *_: SimpleNamespace())
    monkeypatch.setattr(whole, "_launch_sizes", lambda sampler, batch_size: (2, dict.fromkeys(us, "direct")))
    monkeypatch.setattr(whole, "_one_by_one", lambda sampler, groups: 101.0)
    monkeypatch.setattr(whole, "_launches_of", lambda sampler, groups, size: us[size])
    monkeypatch.setattr(whole, "_as_chosen", lambda sampler, groups: (61.0, 4))
    record = runner.run("fusing", session=session)
    assert {row["graph"] for row in record["rows"]} == {"rmat", "products-like", "rmat-papers100M"}
    assert {row["in_a_call"] for row in record["rows"]} == {8, 32}
    row = record["rows"][0]
    assert row["launches_of_us"] == {"1": 100.0, "2": 70.0, "4": 60.0, "8": 110.0}
    assert row["ratio"] == pytest.approx(61 / 101, rel=1e-5)
    assert [t["met"] for t in record["targets"]] == [True]
    assert "keeps" in report.text(record)
    monkeypatch.setattr(whole, "_as_chosen", lambda sampler, groups: (150.0, 8))
    assert [t["met"] for t in runner.run("fusing", session=session)["targets"]] == [False]


def test_timing_waits_until_a_sampler_has_settled() -> None:
    class Waves:
        calls = 0

        def settled(self, count: int) -> int | None:
            return 2 if self.calls >= 7 and count == 3 else None

    waves = Waves()

    class Sampler:
        _engine = SimpleNamespace(waves={64: waves})

        def sample_many(self, seeds: Any, first: int) -> None:
            waves.calls += 1

    whole.settle(Sampler(), [[0, 1, 2], [3, 4, 5]])
    assert waves.calls == 7
    with pytest.raises(RuntimeError, match="has not settled"):
        whole.settle(Sampler(), [[0, 1]])


def test_table1_reads_preprocessing_from_traces_and_kernels_from_cold_draws(session, monkeypatch) -> None:
    monkeypatch.setattr(
        pgsampler, "NeighborSampler",
        lambda graph, fanouts, **options: NeighborSampler(graph, fanouts, **{**options, "device": "cpu"}),
    )  # fmt: skip
    monkeypatch.setattr(pgsampler, "copy_bandwidth_gbps", lambda: 4000.0)
    monkeypatch.setattr(pgsampler, "PerHopRotation", lambda *arguments: arguments[-1])
    monkeypatch.setattr(pgsampler, "_cold_us", lambda knobs, hop: knobs.block_threads * (hop + 1.0))
    record = runner.run("pgsampler-table1", session=session)
    assert [row["hop"] for row in record["rows"]] == [1, 2, 3]
    assert [row["kernel_us"] for row in record["rows"]] == [32.0, 64.0, 96.0], "the best of the sweep"
    assert record["rows"][0]["best"] == "block_threads=32"
    assert record["rows"][0]["workload"] == 4
    moved = record["rows"][1]["bytes_moved"]
    assert record["rows"][1]["copy_percent"] == pytest.approx(100 * moved / (64e-6) / 4000e9)
    lines = report.text(record).splitlines()
    assert any("21 633" in line and "92.4" in line for line in lines), "the paper's values stand beside"


def test_every_rung_that_has_a_knob_is_swept() -> None:
    from gnnsample_lab.bench.session import KNOBS, knob_points
    from gnnsample_lab.sampling.neighbors.strategies import STRATEGIES

    assert set(KNOBS) == set(STRATEGIES) - {"auto"} == set(MADE_UP_US)
    for strategy in KNOBS:
        quick, full = knob_points(strategy, True), knob_points(strategy, False)
        assert 2 <= len(quick) <= len(full)
        assert len({repr(knobs) for knobs in full.values()}) == len(full), "two labels for the same launch"
        assert set(quick) <= set(full)


def test_best_of_keeps_the_whole_sweep_and_says_what_failed() -> None:
    from gnnsample_lab.bench.session import best_of

    def fails() -> float:
        raise MemoryError("too many registers")

    found = best_of({"a": lambda: 3.0, "b": lambda: np.float64(2.0), "c": fails})
    assert (found["us"], found["best"]) == (2.0, "b")
    assert found["sweep"]["c"] == "MemoryError: too many registers"
    with pytest.raises(RuntimeError, match="every point of the sweep failed"):
        best_of({"c": fails})


def test_the_explorers_suite_names_controls_that_exist() -> None:
    import gnnsample_widgets

    from gnnsample_lab.bench.suites.explorers import _EXPLORER_CHANGES

    explorers = {name for name in gnnsample_widgets.__all__ if name.endswith("Explorer")} - {"Explorer"}
    assert set(_EXPLORER_CHANGES) == explorers
    for name, changes in _EXPLORER_CHANGES.items():
        assert set(changes) <= set(getattr(gnnsample_widgets, name).class_trait_names(state=True)), name


def test_the_explorers_suite_sets_values_that_controls_allow(monkeypatch) -> None:
    """On the suite's own graph; nothing is computed, so that every value of every control can be tried."""
    import gnnsample_widgets

    from gnnsample_lab import load
    from gnnsample_lab.bench.suites.explorers import _EXPLORER_CHANGES

    monkeypatch.setattr(gnnsample_widgets.Explorer, "_run", lambda self: self.adapt())
    graph = load("arxiv-like", features=False)
    for name, changes in _EXPLORER_CHANGES.items():
        explorer = getattr(gnnsample_widgets, name)(graph, device="cpu")
        for trait, values in changes.items():
            for value in values:
                setattr(explorer, trait, value)
                assert getattr(explorer, trait) == value, (name, trait)
        explorer.close()


@pytest.mark.exhaustive  # twelve explorers compile what they draw with; their own tests move every control
def test_the_explorers_suite_runs() -> None:
    record = runner.run("explorers", quick=True, graphs=["arxiv-like@0.1"])
    from gnnsample_lab.bench.suites.explorers import _EXPLORER_CHANGES

    assert {(row["explorer"], row["trait"]) for row in record["rows"]} == {
        (name, trait) for name, changes in _EXPLORER_CHANGES.items() for trait in changes
    }
    assert all(row["median_ms"] > 0 for row in record["rows"]) and record["targets"]
