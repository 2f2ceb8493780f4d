"""What suites compute from times: ratios, crossovers, targets. The times are made up; no GPU is needed."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import NeighborSampler
from gnnsample_lab.bench import profiler, report, runner
from gnnsample_lab.bench.floors import floor, sampling_floor
from gnnsample_lab.bench.suite import PUBLISHED_QUEUE, Unavailable, VerificationError
from gnnsample_lab.bench.suites.pgsampler import kernels as pgsampler
from gnnsample_lab.bench.suites.pgsampler import papers, whole
from gnnsample_lab.device.kernels import PACKAGE_ROOT
from tests.bench.made_up import MADE_UP_US, MadeUpSession


@pytest.fixture
def session() -> MadeUpSession:
    return MadeUpSession()


def target(record: dict[str, Any], words: str) -> dict[str, Any]:
    (found,) = [t for t in record["targets"] if words in t["what"]]
    return found


def test_figure8_divides_the_baseline_by_each_rival_on_the_same_batches(session) -> None:
    record = runner.run("pgsampler-fig8", session=session)
    assert {row["graph"] for row in record["rows"]} == {"rmat", *papers.AVERAGES}
    assert {row["hops"] for row in record["rows"]} == {2, 3}
    for row in record["rows"]:
        assert row["l2"] == "cold" and row["spread"]["persistent"]["passes"] >= 5
        assert row["speedup"]["persistent"] == pytest.approx(600 / 300)
        assert row["speedup"]["persistent-tile"] == pytest.approx(600 / 100)
        assert row["sweep"]["persistent"] == {"knob=1": 600.0, "knob=2": 300.0, "block_threads=128": 450.0}
        assert row["over_dgl_threads"]["persistent"] == pytest.approx(900 / 300), "DGL's 128 threads"
        assert row["speedup"][PUBLISHED_QUEUE] == pytest.approx(600 / 480), "the paper's own form"
    assert {pick for *_, pick in session.asked} == {"reservoir"}, "the same pick for all"
    assert target(record, "persistent-tile over block-bsp, kernels, everywhere, yelp-like")["measured"] == (
        pytest.approx(6.0)
    )
    text = report.text(record)
    assert "600.0 (540.0-720.0)" in text and "300.0 (270.0-360.0)" in text, "p10 and p90 beside each median"


def test_figure8_stands_beside_the_papers_average_of_each_graph_over_both_baselines(session) -> None:
    record = runner.run("pgsampler-fig8", session=session)
    found = {mean["graph"]: mean for mean in record["averages"]}
    assert {graph: mean["paper"] for graph, mean in found.items()} == papers.AVERAGES
    assert papers.AVERAGES["arxiv-like"] == papers.FIGURE8["average"]["ogbn-arxiv"]
    assert sorted(papers.AVERAGES.values()) == sorted(papers.FIGURE8["average"].values())
    assert all(mean["over_swept"] == 2 and mean["over_dgl_threads"] == 3 for mean in found.values())
    assert all(mean["published_over_dgl_threads"] == 900 / 480 for mean in found.values())
    assert "3.00 x over block-bsp of 128 threads, 2.00 x over block-bsp at its best threads" in report.text(
        record
    )
    for form, factor in (("the queue as published", 900 / 480), ("ours, teams of threads,", 3)):
        words = f"{form} over block-bsp of 128 threads, kernels, the paper's average, "
        asked = {t["what"].removeprefix(words): t for t in record["targets"] if words in t["what"]}
        assert set(asked) == set(papers.AVERAGES)
        assert all(t["measured"] == pytest.approx(factor) for t in asked.values())

    rows = [
        {"graph": "arxiv-like@0.5", "batch_size": batch, "fanout": fanout, "hops": 3,
         "speedup": {"persistent": x}, "over_dgl_threads": {"persistent": 2 * x}}
        for batch, fanout, x in ((1024, 10, 99.0), (2048, 5, 99.0), (2048, 10, 1.0), (10240, 20, 2.0))
    ]  # fmt: skip
    (mean,) = pgsampler.averages([*rows, {**rows[0], "graph": "rmat"}])
    assert (mean["settings"], mean["over_swept"], mean["over_dgl_threads"]) == (2, 1.5, 3.0)
    del rows[3]["over_dgl_threads"]  # that point of the sweep failed
    assert pgsampler.averages(rows)[0]["over_dgl_threads"] is None
    assert mean["published_over_swept"] is None, "rows without the published form"


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
    never = [
        t for t in record["targets"] if "persistent over block-bsp, kernels, everywhere, rmat" in t["what"]
    ]
    assert never[0]["met"] and never[0]["measured"] == pytest.approx(600 / 640)
    assert "slower from 10240 seeds" in report.text(record)


def test_a_full_sweep_covers_the_papers_grid() -> None:
    points = pgsampler.grid(quick=False)
    for hops in (2, 3):
        for batch in (2048, 4096, 8192, 10240):
            assert {(batch, (fanout,) * hops) for fanout in (10, 15, 20)} <= set(points)
    assert (8192, (15,) * 3) in pgsampler.grid(quick=True), "the setting of the DGL-like figures"
    averaged = {(b, (f,) * h) for b in (2048, 4096, 8192, 10240) for f in (10, 15, 20) for h in (2, 3)}
    assert set(pgsampler.few(quick=False)) == averaged
    assert {(2048, (10,) * 3), (10240, (20,) * 2)} < set(pgsampler.few(quick=True)) < averaged


def test_table3_sets_each_system_at_its_papers_setting(session) -> None:
    record = runner.run("pgsampler-table3", session=session)
    rows = {(row["graph"], row["system"]): row for row in record["rows"]}
    assert rows["products-like", "TurboGNN"]["batch_size"] == 200_000
    assert rows["reddit-like", "TurboGNN"]["fanout"] == 30
    assert rows["reddit-like", "PGSampler"]["paper_speedup"] == 1.23
    assert rows["reddit-like", "TurboGNN"]["speedup"] == {"turbo-bsp": pytest.approx(600 / 400)}
    assert rows["reddit-like", "PGSampler"]["speedup"]["persistent"] == pytest.approx(2.0)
    assert rows["reddit-like", "PGSampler"]["speedup"][PUBLISHED_QUEUE] == pytest.approx(600 / 480)
    with pytest.raises(Unavailable, match="graph must be one of"):
        runner.run("pgsampler-table3", session=MadeUpSession(graphs=["rmat"]))


def test_figure10_compares_with_the_unbalanced_fusion(session) -> None:
    record = runner.run("pgsampler-fig10", session=session)
    assert record["rows"][0]["speedup"]["persistent"] == pytest.approx(900 / 300)
    assert record["rows"][0]["speedup"][PUBLISHED_QUEUE] == pytest.approx(900 / 480)
    assert record["paper"]["finding"] in report.text(record)


@pytest.fixture
def floors(monkeypatch) -> dict[str, float]:
    """Floors of 40 and 20 us, on a machine that moves 1 GB/s; the host adds 30 us to 50 us of the GPU."""
    us = {"latency": 40.0, "throughput": 20.0}

    def replayed(what: str) -> Any:
        return lambda *rest: {
            "us": us[what], "p10_us": us[what], "p90_us": us[what], "passes": 7, "best": "8x2", "sweep": {},
        }  # fmt: skip

    monkeypatch.setattr(floor, "Replay", lambda graph, recorded: None)
    monkeypatch.setattr(floor, "lead_in", lambda: None)
    for what in us:
        monkeypatch.setattr(floor, f"{what}_floor", replayed(what))
    constants = {
        "dram_latency_ns": 600.0,
        "l2_latency_ns": 200.0,
        "random_sector_gbps": 500.0,
        "read_gbps": 10_000.0,
    }
    monkeypatch.setattr(floor, "machine_constants", lambda: constants)
    monkeypatch.setattr(MadeUpSession, "sampler", lambda self, *_: None)
    monkeypatch.setattr(sampling_floor, "settle", lambda sampler, groups: None)
    monkeypatch.setattr(
        sampling_floor.timing, "wall_times", lambda work, count, passes: [80.0 * len(work.args[1][0])]
    )
    monkeypatch.setattr(sampling_floor.timing, "busy_us", lambda work, count: 50.0 * len(work.args[1][0]))
    return us


def test_the_floor_suite_has_rows_of_its_own_for_latency_throughput_and_the_host(session, floors) -> None:
    record = runner.run("sampling-floor", session=session)
    rows = {row["what"]: row for row in record["rows"] if (row["graph"], row["batch_size"]) == ("rmat", 256)}
    assert list(rows) == ["latency", "throughput", "host, 1 in a call", "host, 32 in a call"]
    assert rows["latency"]["ratios"]["captured"] == rows["latency"]["ratio"] == pytest.approx(50 / 40)
    assert rows["throughput"]["ratio"] == pytest.approx(25 / 20)
    assert rows["latency"]["l2"] == "cold" and rows["latency"]["touched_bytes"] == 32 * 8000
    assert (rows["latency"]["us"], rows["latency"]["p10_us"], rows["latency"]["p90_us"]) == (50, 45, 60)
    for what in ("host, 1 in a call", "host, 32 in a call"):
        assert (rows[what]["us"], rows[what]["gpu_us"], rows[what]["host_us"]) == (80, 50, 30)
    # 8 000 sectors of all batches but what the cache held, and 8 000 bytes that each of the 8 writes, but as many.
    assert rows["throughput"]["bound_us"] == pytest.approx(
        (8000 * 32 - 1000 + 64_000 - 1000) / 1e7 / 8, rel=1e-4
    )
    # The chain of three accesses in each of three hops takes longer than the bytes.
    assert rows["latency"]["bound_us"] == pytest.approx(9 * 0.2)
    text = report.text(record)
    assert "host, 32 in a call" in text and "cold" in text


def test_every_row_has_its_limit_and_every_graph_its_targets(session, floors) -> None:
    session.times["captured"] = session.times["grid-barrier"] = 70.0
    record = runner.run("sampling-floor", session=session)
    limits = {
        (row["what"], row["batch_size"]): (row["target"], row["met"])
        for row in record["rows"]
        if row.get("target")
    }
    assert limits["latency", 256] == limits["latency", 1024] == (2.0, "yes")
    assert limits["latency", 2048] == limits["latency", 10240] == (1.4, "NO")
    assert limits["throughput", 256] == (1.6, "NO"), "35 us over 20"
    found = {t["what"]: t for t in record["targets"]}
    assert len(found) == 6, "latency with two limits and throughput, on each of two graphs"
    words = "best strategy over the latency floor, products-like, met in 0 of 6 rows"
    assert found[words]["measured"] == pytest.approx(70 / 40) and not found[words]["met"]
    session.picks = 1000
    record = runner.run("sampling-floor", session=session)
    assert {row["target"] for row in record["rows"] if row["what"] == "latency"} == {2.0}, "little work"


def test_a_bound_that_a_measurement_undercuts_fails_the_suite(session, floors) -> None:
    floors["throughput"] = 1e-3
    with pytest.raises(
        VerificationError, match="rmat, 256 seeds x 10, throughput: measured 0.00 us, below the bound"
    ):
        runner.run("sampling-floor", session=session)
    floors["throughput"], session.times["persistent"] = 20.0, 1.0
    with pytest.raises(VerificationError, match="latency: measured 0.90 us, below the bound of 1.80 us"):
        runner.run("sampling-floor", session=session)


def test_draws_alone_never_count_as_the_best_strategy(session, floors) -> None:
    session.times["turbo-bsp"] = 2.5
    record = runner.run("sampling-floor", session=session)
    best = {row["best_strategy"] for row in record["rows"]}
    assert best <= set(sampling_floor.LADDER)


def test_whether_the_cache_is_cold_follows_from_what_all_batches_read_together() -> None:
    from gnnsample_lab.bench.session import l2_state

    assert [l2_state(n, 100) for n in (100, 101, 400, 401)] == ["warm", "partly warm", "partly warm", "cold"]


@pytest.fixture
def made_up_walls(monkeypatch) -> None:
    class Sampler:
        scratch_bytes = 1 << 20
        _engine = SimpleNamespace(scratch_limit=1 << 30)

        def __init__(self, us: float) -> None:
            self.us = us

    monkeypatch.setattr(
        MadeUpSession, "sampler",
        lambda self, n, f, strategy, pick, knobs=None: Sampler(self.times[strategy] * (pick == "floyd" or 2)),
    )  # fmt: skip

    def wall_times(work, count, passes):
        held = work.args[0] if hasattr(work, "args") else work.__closure__[0].cell_contents
        return [held.us * share for share in (0.8, 1.0, 1.3)]

    monkeypatch.setattr(whole.timing, "wall_times", wall_times)
    monkeypatch.setattr(whole, "settle", lambda sampler, groups: None)


def test_figure9_and_its_targets(session, made_up_walls) -> None:
    record = runner.run("pgsampler-fig9", session=session)
    row = record["rows"][0]
    assert row["best_strategy"] == "captured"
    assert row["speedup"]["best same pick, floyd"] == pytest.approx(600 / 50)
    assert row["speedup"]["best same pick"] == pytest.approx(1200 / 100)
    assert row["speedup"]["persistent"] == pytest.approx(2.0)
    assert row["speedup"][PUBLISHED_QUEUE] == pytest.approx(2.0), (
        "the sampler of the same strategy, by another knob"
    )
    assert row["speedup"]["best"] == pytest.approx(1200 / 50), "mixed"
    assert row["spread"]["best"] == {"p10_us": pytest.approx(42), "p90_us": pytest.approx(62), "passes": 3}
    assert row["l2"] == "cold"
    assert all(t["met"] for t in record["targets"])
    assert {t["what"].rpartition(", ")[2] for t in record["targets"]} == {"rmat", *papers.AVERAGES}, (
        "all six graphs"
    )
    assert {row["graph"] for row in record["rows"]} == {"rmat", *papers.AVERAGES}
    words = [t["what"] for t in record["targets"] if "rmat" in t["what"]]
    mixed = ["mixed: floyd over reservoir" in what for what in words]
    assert mixed == sorted(mixed) and sum(mixed) == 2, "the same pick on both sides comes first"
    session.times["captured"] = session.times["grid-barrier"] = 70.0
    session.times["persistent-tile"] = 75.0
    record = runner.run("pgsampler-fig9", session=session)
    met = {t["what"]: t["met"] for t in record["targets"]}
    what = "best over block-bsp, whole process, {}, {} 1 024 seeds, rmat"
    assert not met[what.format("both floyd", "up to")] and met[what.format("both floyd", "above")]
    assert met[what.format("mixed: floyd over reservoir", "up to")]
    header = next(line for line in report.text(record).splitlines() if "both floyd" in line)
    assert header.index("x, both floyd") < header.index("x, mixed: floyd over reservoir")


def test_whole_process_compares_the_same_pick_first_and_names_the_mixed_ratio(session, made_up_walls) -> None:
    record = runner.run("whole-process", session=session)
    row = record["rows"][0]
    assert row["speedup"] == {"floyd": 600 / 50, "reservoir": 1200 / 100, "mixed": 1200 / 50}
    assert (row["baseline_us"], row["baseline_floyd_us"], row["alone_reservoir_us"]) == (1200, 600, 100)
    assert set(row["spread"]) == {
        "baseline_us", "baseline_floyd_us", "alone_us", "alone_reservoir_us", "fused32_us"
    }  # fmt: skip
    text = report.text(record)
    header = next(line for line in text.splitlines() if "both floyd" in line)
    assert header.index("x, both floyd") < header.index("x, both reservoir") < header.index("x, mixed")
    assert "600.0 (504.0-744.0)" in text


def test_whole_process_divides_a_fused_call_by_its_batches(session, made_up_walls) -> None:
    record = runner.run("whole-process", session=session)
    row = next(r for r in record["rows"] if (r["graph"], r["batch_size"], r["fanout"]) == ("rmat", 1024, 10))
    assert row["alone_us"] == pytest.approx(50.0)
    assert row["fused32_us"] == pytest.approx(50.0 / 32)
    text = report.text(record)
    assert "5371 us alone, 1103 us each" in text and "measured separately" in text


def test_fusing_compares_what_is_chosen_with_one_by_one(session, monkeypatch) -> None:
    us = {1: 100.0, 2: 70.0, 4: 60.0, 8: 110.0}
    monkeypatch.setattr(MadeUpSession, "sampler", lambda self, *_: SimpleNamespace())
    monkeypatch.setattr(whole, "_launch_sizes", lambda sampler, batch_size: (2, dict.fromkeys(us, "direct")))
    monkeypatch.setattr(whole, "_one_by_one", lambda sampler, groups, passes: [101.0])
    monkeypatch.setattr(whole, "_launches_of", lambda sampler, groups, size, passes: us[size])
    monkeypatch.setattr(whole, "_as_chosen", lambda sampler, groups, passes: ([61.0, 71.0, 59.0], 4))
    record = runner.run("fusing", session=session)
    assert {row["graph"] for row in record["rows"]} == {"rmat", "products-like", "rmat-papers100M"}
    assert {row["in_a_call"] for row in record["rows"]} == {8, 32}
    row = record["rows"][0]
    assert row["launches_of_us"] == {"1": 100.0, "2": 70.0, "4": 60.0, "8": 110.0}
    assert row["ratio"] == pytest.approx(61 / 101, rel=1e-5)
    assert [t["met"] for t in record["targets"]] == [True] * 3, "each graph by itself"
    assert "keeps" in report.text(record) and "61.0 (59.4-69.0)" in report.text(record)
    monkeypatch.setattr(whole, "_as_chosen", lambda sampler, groups, passes: ([150.0], 8))
    assert [t["met"] for t in runner.run("fusing", session=session)["targets"]] == [False] * 3


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


def test_table1_measures_what_the_paper_measures_of_each_hop(session, monkeypatch) -> None:
    monkeypatch.setattr(
        pgsampler, "NeighborSampler",
        lambda graph, fanouts, **options: NeighborSampler(graph, fanouts, **{**options, "device": "cpu"}),
    )  # fmt: skip
    monkeypatch.setattr(pgsampler, "copy_bandwidth_gbps", lambda: 4000.0)
    monkeypatch.setattr(pgsampler, "PerHopRotation", lambda *arguments: arguments[-1])
    monkeypatch.setattr(
        pgsampler, "_cold_times",
        lambda session, knobs, hop, coo: [(knobs.block_threads + coo) * (hop + 1.0)] * 5,
    )  # fmt: skip
    monkeypatch.setattr(pgsampler, "_preprocess_times", lambda *rest: [90.0, 110.0, 100.0])
    asked = []

    def utilisation(graph, frontiers, fanouts, pick, threads):
        asked.append((len(frontiers), fanouts, pick, threads))
        return [
            {"compute_percent": 10.0 * hop, "memory_percent": 5.0} for hop in (1, 2, 3)
        ], "measured by ncu"

    monkeypatch.setattr(pgsampler, "utilisation", utilisation)
    record = runner.run("pgsampler-table1", session=session)
    assert [row["hop"] for row in record["rows"]] == [1, 2, 3]
    assert [row["kernel_us"] for row in record["rows"]] == [32.0, 64.0, 96.0], "the best of the sweep"
    assert [row["coo_us"] for row in record["rows"]] == [33.0, 66.0, 99.0], "with the rows, as published"
    assert record["rows"][0]["best"] == "block_threads=32"
    assert asked == [(3, (10, 10, 10), "reservoir", [32, 32, 32])]
    assert [row["compute_percent"] for row in record["rows"]] == [10, 20, 30]
    assert [row["pre_us"] for row in record["rows"]] == [100] * 3
    assert record["rows"][0]["workload"] == 4
    moved = record["rows"][1]["bytes_moved"]
    assert record["rows"][1]["copy_percent"] == pytest.approx(100 * moved / (64e-6) / 4000e9)
    lines = report.text(record).splitlines()
    assert any("21 633" in line and "92.4" in line for line in lines), "the paper's values stand beside"
    assert any("100.0 (92.0-108.0)" in line and "48.7" in line and "cold" in line for line in lines)


def test_preprocessing_of_a_hop_starts_from_its_vertices_and_ends_with_the_launch(
    monkeypatch, session
) -> None:
    """No seed is checked or merged: the sampler is asked for the hop's counts and its draw, and for nothing else."""
    done: list[tuple[str, int]] = []
    clock = iter(range(1000))

    class Sampler:
        def prepare(self, rows, hop):
            done.append(("prepare", hop))
            return SimpleNamespace(total=3)

        def launch_draw(self, work, hop, batch, out):
            done.append(("launch", hop))
            assert [array.size for array in out] == [3, 3, 3]

    waiting = SimpleNamespace(synchronize=lambda: done.append(("wait", 0)))
    cupy = SimpleNamespace(empty=np.empty, cuda=SimpleNamespace(Device=lambda: waiting))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(pgsampler.time, "perf_counter", lambda: next(clock) * 1e-6)
    rotation = SimpleNamespace(
        sampler=Sampler(), recorded=session.recorded("rmat", 4, (2, 2), "reservoir", 2),
        neighbors=np.zeros(1, np.int32),
    )  # fmt: skip
    found = pgsampler._preprocess_times(session, rotation, 1)
    assert found == pytest.approx([1.0] * session.passes)
    assert done == [("wait", 0), ("prepare", 1), ("launch", 1)] * 2 * (session.passes + 1)


def test_utilisation_is_read_from_a_profilers_table_launch_by_launch() -> None:
    from gnnsample_lab.bench.suites.pgsampler import utilisation

    compute, memory = utilisation.METRICS
    text = "\n".join([
        "==PROF== Connected", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"',
        f'"0","draw_blocks_coo(Plan)","{compute}","%","15.5"', f'"0","draw_blocks_coo(Plan)","{memory}","%","6.0"',
        f'"1","something_else","{compute}","%","99"', f'"2","draw_blocks_coo(Plan)","{compute}","%","1,048.7"',
        f'"2","draw_blocks_coo(Plan)","{memory}","%","n/a"',
    ])  # fmt: skip
    assert utilisation.parse(text) == [
        {"compute_percent": 15.5, "memory_percent": 6.0}, {"compute_percent": 1048.7},
    ]  # fmt: skip
    assert utilisation.parse("==ERROR== no permission") == []


def test_throughput_weighs_draws_by_their_time_and_divides_the_queue_by_them() -> None:
    from gnnsample_lab.bench.suites.pgsampler import throughput, utilisation

    compute, memory = utilisation.METRICS
    lines = ['"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for number, (kernel, ns, shares) in enumerate(
        (("draw_blocks", 1000, (10, 20)), ("draw_blocks", 3000, (30, 20)), ("scan", 9, (1, 1)),
         (throughput.KERNELS[1], 2500, (20, 10)), (throughput.KERNELS[2], 2000, (50, 60)))
    ):  # fmt: skip
        for metric, value in ((compute, shares[0]), (memory, shares[1]), (throughput.TIME, ns)):
            lines.append(f'"{number}","{kernel}(Plan)","{metric}","-","{value:,}"')
    metrics = {**utilisation.METRICS, throughput.TIME: "us"}
    found = profiler.launches("\n".join(lines), metrics, throughput.KERNELS)
    (row,) = throughput.by_setting(found, [2], passes=1)
    assert row["compute_percent"] == {"block-bsp": pytest.approx(25), PUBLISHED_QUEUE: 20, "persistent": 50}
    assert row["gain"] == {"compute_percent": pytest.approx(2), "memory_percent": pytest.approx(3)}
    assert row["published_gain"] == {
        "compute_percent": pytest.approx(0.8),
        "memory_percent": pytest.approx(0.5),
    }
    assert row["kernel_us"] == {"block-bsp": 4.0, PUBLISHED_QUEUE: 2.5, "persistent": 2.0}
    with pytest.raises(Unavailable, match="4 of 5"):
        throughput.by_setting(found, [3], passes=1)
    with pytest.raises(Unavailable, match="4 of 8"):
        throughput.by_setting(found, [2], passes=2)
    for kernel in throughput.KERNELS:  # what ncu is asked for has to be what the strategies launch
        for suffix, said in ((".cu", f" {kernel}("), (".py", f'"{kernel}"')):
            files = [
                p for room in ("sampling", "minibatch") for p in (PACKAGE_ROOT / room).rglob(f"*{suffix}")
            ]
            assert any(said in path.read_text(encoding="utf-8") for path in files), kernel


def test_throughput_has_medians_of_passes_and_their_spread() -> None:
    from gnnsample_lab.bench.suites.pgsampler import throughput

    def launch(kernel: str, us: float, percent: float) -> dict[str, Any]:
        return {"kernel": kernel, "us": us * 1e3, "compute_percent": percent, "memory_percent": 2 * percent}

    found = [
        launch(kernel, us * factor, percent * factor)
        for factor in (1.0, 2.0, 0.5)
        for hops in (1, 2)
        for kernel, us, percent in (
            *((throughput.DRAWS, 4.0, 10.0),) * hops,
            (throughput.KERNELS[1], 8.0, 5.0), (throughput.KERNELS[2], 2.0, 20.0),
        )
    ]  # fmt: skip
    one, two = throughput.by_setting(found, [1, 2], passes=3)
    assert one["kernel_us"] == {"block-bsp": 4.0, PUBLISHED_QUEUE: 8.0, "persistent": 2.0}
    assert two["kernel_us"]["block-bsp"] == 8.0 and two["gain"] == one["gain"]
    assert one["gain"] == {"compute_percent": 2.0, "memory_percent": 2.0}
    for row in (one, two):
        for field in ("kernel_us", "compute_percent", "memory_percent"):
            for strategy, value in row[field].items():
                unit = field.rpartition("_")[2]
                around = {f"p10_{unit}": 0.6 * value, f"p90_{unit}": 1.8 * value, "passes": 3}
                assert row["spread"][f"{field}.{strategy}"] == pytest.approx(around)
    columns = runner.SUITES["pgsampler-throughput"].columns({"rows": [one]})
    assert columns["block-bsp: compute %"](one) == "10.00 (6.00-18.00)"
    assert columns["persistent: memory %"](one) == "40.0 (24.0-72.0)"


def test_utilisation_says_why_there_is_none(monkeypatch) -> None:
    from gnnsample_lab.bench.suites.pgsampler import utilisation

    monkeypatch.setattr(profiler, "find_ncu", lambda: None)
    found, why = utilisation.utilisation(None, [1, 2], (10, 10), "reservoir", [32, 64])
    assert found == [{"compute_percent": None, "memory_percent": None}] * 2 and why == "no ncu here"


def test_every_rung_that_has_a_knob_is_swept() -> None:
    from gnnsample_lab.bench.session import KNOBS, knob_points
    from gnnsample_lab.sampling.neighbors.strategies import STRATEGIES

    assert set(KNOBS) == set(STRATEGIES) - {"auto"} == set(MADE_UP_US) - {PUBLISHED_QUEUE}
    for strategy in KNOBS:
        quick, full = knob_points(strategy, True), knob_points(strategy, False)
        assert 2 <= len(quick) <= len(full)
        assert len({repr(knobs) for knobs in full.values()}) == len(full), "two labels for the same launch"
        assert set(quick) <= set(full)


def test_the_published_queue_is_swept_as_ours_and_serves_one_task_at_a_time() -> None:
    from gnnsample_lab.bench.session import executed_by, knob_points

    published, ours = (knob_points(queue, False) for queue in (PUBLISHED_QUEUE, "persistent"))
    assert executed_by(PUBLISHED_QUEUE) == executed_by("persistent") == "persistent"
    assert list(published) == list(ours)
    assert not any(knobs.queue_teams for knobs in published.values())
    assert all(knobs.queue_teams for knobs in ours.values())
    assert all(replace(knobs, queue_teams=True) == ours[label] for label, knobs in published.items())


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


@pytest.mark.gpu
def test_throughput_is_measured_on_a_gpu() -> None:
    """Nsight Compute sees the launches of both strategies; a machine without it says so and records nothing."""
    if profiler.find_ncu() is None:
        with pytest.raises(Unavailable, match="ncu"):
            runner.run("pgsampler-throughput", quick=True, graphs=["arxiv-like@0.2"])
        return
    record = runner.run("pgsampler-throughput", quick=True, graphs=["arxiv-like@0.2"])
    for row in record["rows"]:
        assert all(
            0 < share <= 100 for share in (*row["compute_percent"].values(), *row["memory_percent"].values())
        )
        assert min(row["gain"].values()) > 0 and min(row["kernel_us"].values()) > 1
        assert row["spread"]["kernel_us.persistent"]["passes"] >= 5
