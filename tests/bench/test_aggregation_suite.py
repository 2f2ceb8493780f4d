"""The aggregation suites: what they verify and compute, on made-up times; the kernels run on a GPU only."""

from __future__ import annotations

import ctypes
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.bench import profiler, report, runner, timing
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable, VerificationError
from gnnsample_lab.bench.suites.fastgl import (
    aggregation,
    aggregation_measures,
    aggregation_profile,
    cusparse,
)
from gnnsample_lab.bench.suites.fastgl.targets import aggregation as aggregation_targets
from gnnsample_lab.compute.aggregation.csr import Csr
from gnnsample_lab.device import runtime

US = {
    "naive": 400.0,
    "memory-aware": 200.0,
    "memory-aware-staged": 150.0,
    "grouped": 300.0,
    "gnnadvisor-style": 350.0,
    "library": 250.0,
    "auto": 100.0,
}
SPEEDS = {
    "dram_gbps": 4000.0,
    "l2_gbps": 6000.0,
    "shared_gbps": 30000.0,
    "fp32_gflops": 60000.0,
    "origin": "made up",
}


def toy() -> aggregation_measures.Sums:
    """Three rows: two edges, none, three."""
    indptr, indices = np.array([0, 2, 2, 5]), np.array([0, 3, 1, 1, 2], np.int32)
    return aggregation_measures.Sums(Csr(indptr, indices, 3, 4, 5), np.array([1, 2, 3, 4, 5], np.float32), 4)


def test_rows_are_checked_against_sums_by_hand() -> None:
    sums, x = toy(), np.arange(8, dtype=np.float32).reshape(4, 2)
    out = np.stack([x[0] + 2 * x[3], 0 * x[0], 7 * x[1] + 5 * x[2]])
    aggregation_measures.check_rows(sums, x, out, "toy")
    out[2, 1] += 0.01
    with pytest.raises(VerificationError, match="toy: off by 0.01"):
        aggregation_measures.check_rows(sums, x, out, "toy")


def test_rows_in_another_order_are_the_same_sums() -> None:
    sums = aggregation_measures.in_order(toy(), np.array([2, 1, 0]))
    assert sums.csr.indptr.tolist() == [0, 3, 3, 5] and sums.csr.indices.tolist() == [1, 1, 2, 0, 3]
    assert sums.weight.tolist() == [3, 4, 5, 1, 2] and sums.csr.num_edges == 5 and sums.distinct == 4


def test_the_input_layer_counts_as_sampled_and_in_an_order_of_its_own() -> None:
    row = {"graph": "g", "batch_size": 8, "layer": 0, "direction": "forward", "num_features": 64, "edges": 10**6,
           "share": 0.6, "ordered_share": 0.7}  # fmt: skip
    rows = [
        row,
        row | {"graph": "h", "share": 0.5, "ordered_share": 0.4},
        row | {"layer": 1, "ordered_share": None},
    ]
    met = {
        (target.what.rpartition(", ")[2], "by community" in target.what): (target.measured, target.met)
        for target in aggregation_targets({"rows": rows}) if "input layer" in target.what
    }  # fmt: skip
    assert met == {
        ("g", False): (0.6, False), ("g", True): (0.7, True), ("h", False): (0.5, False), ("h", True): (0.4, False),
    }  # fmt: skip


def test_bytes_and_bound_of_a_block(monkeypatch) -> None:
    sums = toy()
    assert aggregation_measures.least_bytes(sums, 10) == 4 * 10 * (4 + 3) + 8 * 5 + 8 * 4
    monkeypatch.setattr(aggregation_measures, "bandwidths", lambda session: SPEEDS)
    wanted = max((4 + 3) * 10 * 4 + 5 * 8 + 8 * 4, 5 * 10 * 4 * 4000 / 6000) / 4000 / 1e3
    assert aggregation_measures.bound_us(Session(), [sums, sums], 10) == pytest.approx(wanted)
    naive, ours = (aggregation_measures.asked_bytes(sums, 10, kernel) for kernel in ("naive", "auto"))
    assert naive > ours > 0


@pytest.fixture
def made_up(monkeypatch) -> None:
    for module in (aggregation, aggregation_measures):
        monkeypatch.setattr(module, "layer_sums", lambda *_: [toy()])
        monkeypatch.setattr(module, "bandwidths", lambda session: SPEEDS)
        monkeypatch.setattr(
            module, "kernel_times", lambda s, n, layer, d, f, kernel, *size: timing.spread([US[kernel]])
        )
    monkeypatch.setattr(aggregation, "community_times", lambda *_: timing.spread([80.0]))
    monkeypatch.setattr(
        aggregation,
        "cusparse_us",
        lambda *_: {**timing.spread([120.0, 130.0, 140.0]), "best": "csr-alg2", "sweep": {"csr-alg2": 130.0}},
    )
    monkeypatch.setattr(aggregation_measures, "grouping_us", lambda *_: 60.0)
    monkeypatch.setattr(aggregation, "_release", lambda: None)
    monkeypatch.setattr(Session, "require_gpu", lambda self, suite: None)


def test_the_suite_divides_by_the_bound_and_by_cusparse(made_up) -> None:
    record = runner.run("aggregation", quick=True)
    assert {(row["direction"], row["num_features"]) for row in record["rows"]} == {
        (d, f) for d in ("forward", "backward") for f in (64, 256, 1024)
    }
    for row in record["rows"]:
        assert row["over_cusparse"] == pytest.approx(1.3) and row["cusparse_best"] == "csr-alg2"
        assert row["share"] == pytest.approx(row["bound_us"] / 100, rel=1e-3)
        assert ("ordered_us" in row) == (row["direction"] == "forward" and row["layer"] == 0)
        if "ordered_us" in row:
            assert row["ordered_share"] == pytest.approx(row["bound_us"] / 80, rel=1e-3)
    assert record["rows"][0]["aware_over_naive"] == pytest.approx(2)
    assert record["rows"][0]["staged_over_naive"] == pytest.approx(400 / 150, rel=1e-4)
    assert record["targets"] == [], "blocks of five edges do not count"
    text = report.text(record)
    assert "csr-alg2" in text and "over cuSPARSE" in text
    json.dumps(record, allow_nan=False)


def test_the_roofline_places_kernels_under_the_measured_roof(made_up) -> None:
    record = runner.run("fastgl-fig12", quick=True)
    row = next(r for r in record["rows"] if (r["kernel"], r["num_features"]) == ("auto", 64))
    flops, least = 2 * 5 * 64, 4 * 64 * 7 + 8 * 5 + 8 * 4
    assert row["gflops"] == pytest.approx(flops / 100 / 1e3, rel=1e-4)
    assert row["flops_per_byte"] == pytest.approx(flops / least, rel=1e-4)
    assert row["roof_gflops"] == pytest.approx(flops / least * 4000, rel=1e-4)
    assert row["over_library"] == pytest.approx(2.5)
    assert "4.2 x the rate" in report.text(record)


def test_preprocessing_is_counted_for_every_layer_and_direction(made_up) -> None:
    rows = {row["kernel"]: row for row in aggregation_measures.kernel_stage_rows(Session(), "toy")}
    assert rows["grouped"]["preprocess_ms"] == pytest.approx(6 * 0.06)
    assert rows["grouped"]["aggregate_ms"] == pytest.approx(6 * 0.36)
    assert rows["grouped"]["preprocess_percent"] == pytest.approx(100 * 60 / 360)
    assert rows["auto"]["speedup"] == pytest.approx(2.5) and rows["auto"]["preprocess_ms"] == 0


def test_table2_says_whether_its_hits_are_measured(made_up, monkeypatch) -> None:
    monkeypatch.setattr(profiler, "find_ncu", lambda: None)
    rows = runner.run("fastgl-table2", quick=True)["rows"]
    assert {row["hits_origin"] for row in rows} == {"counted only: no ncu here"}
    assert rows[0]["l1_percent"] is None
    assert rows[0]["repeated_percent"] == pytest.approx(100 * (1 - 4 / 5))
    assert rows[0]["gflops"] == pytest.approx(2 * 5 * 128 / 250 / 1e3, rel=1e-3)


def test_memory_levels_must_be_in_order(made_up, monkeypatch) -> None:
    sizes = {"sharedMemPerBlock": 48 << 10, "l2CacheSize": 50 << 20, "totalGlobalMem": 139 << 30}
    monkeypatch.setattr(runtime, "device_properties", lambda: sizes)
    record = runner.run("fastgl-table3", quick=True)
    assert [row["gbps"] for row in record["rows"]] == [30000, 6000, 4000]
    assert "3000 to 5000" in report.text(record), "the paper's range, as it gives it"
    monkeypatch.setattr(aggregation, "bandwidths", lambda session: {**SPEEDS, "l2_gbps": 100.0})
    with pytest.raises(VerificationError, match="must grow"):
        runner.run("fastgl-table3", quick=True)


NCU = """==PROF== Connected to process 1
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1","small","gpu__time_duration.sum","us","1.5"
"0","1","small","l1tex__t_sector_hit_rate.pct","%","99.0"
"0","1","small","lts__t_sector_hit_rate.pct","%","98.0"
"1","1","main","gpu__time_duration.sum","us","1,250.5"
"1","1","main","l1tex__t_sector_hit_rate.pct","%","4.41"
"1","1","main","lts__t_sector_hit_rate.pct","%","19.60"
"""


def test_ncu_s_output_is_read_for_the_longest_kernel() -> None:
    assert aggregation_profile.parse(NCU) == {"l1_percent": 4.41, "l2_percent": 19.6}
    assert aggregation_profile.parse("==ERROR== no permission") is None
    assert aggregation_profile.parse(NCU.replace("lts__t", "other")) is None


def test_ncu_that_fails_leaves_the_counted_value(monkeypatch) -> None:
    sums = toy()
    arrays = SimpleNamespace(
        csr=SimpleNamespace(
            indptr=_Device(sums.csr.indptr), indices=_Device(sums.csr.indices), num_rows=3, num_sources=4
        ),
        weight=_Device(sums.weight),
    )  # fmt: skip
    monkeypatch.setattr(profiler, "find_ncu", lambda: "/bin/false")
    assert "gave no numbers" in aggregation_profile.cache_hits(arrays, "naive", 8)["hits_origin"]
    monkeypatch.setattr(
        profiler.subprocess,
        "run",
        lambda *_, **__: SimpleNamespace(stdout=NCU, stderr="", returncode=0),
    )
    found = aggregation_profile.cache_hits(arrays, "naive", 8)
    assert found == {"l1_percent": 4.41, "l2_percent": 19.6, "hits_origin": "measured by ncu"}


class _Device:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def get(self) -> np.ndarray:
        return self.array


def test_without_cusparse_it_says_so(monkeypatch) -> None:
    def fails(name: str) -> Any:
        raise OSError(f"{name}: cannot open")

    cusparse.library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", fails)
    with pytest.raises(Unavailable, match="libcusparse was not found"):
        cusparse.library()
    cusparse.library.cache_clear()


def test_the_best_cusparse_algorithm_is_verified_first(monkeypatch) -> None:
    class Fake:
        def __init__(self, *arguments: Any) -> None:
            *_, self.y, self.algorithm = arguments

        def __call__(self) -> None:
            if self.algorithm == "csr-alg3":
                raise RuntimeError("not supported")
            self.y += 1

        def close(self) -> None:
            self.y = None

    times = {"default": [9.0], "csr-alg1": [6.0, 7.0, 9.0], "csr-alg2": [8.0]}
    now: list[str] = []
    monkeypatch.setattr(cusparse, "SpMM", lambda *a: (now.append(a[-1]), Fake(*a))[1])
    matrices = [(0, 0, 0, np.ones(2), np.full(2, 5.0))]

    def check(i: int, y: np.ndarray) -> None:
        if y[0] != 1.0:
            raise VerificationError("wrong")

    found = cusparse.best(matrices, lambda work, count: times[now[-1]], check)
    assert (found["us"], found["best"], found["passes"]) == (7.0, "csr-alg1", 3)
    assert found["sweep"]["csr-alg3"] == "RuntimeError: not supported"

    def refuses(i: int, y: np.ndarray) -> None:
        raise VerificationError("wrong")

    with pytest.raises(VerificationError):
        cusparse.best(matrices, lambda work, count: [1.0], refuses)


@pytest.mark.gpu
def test_every_cusparse_algorithm_multiplies_on_a_gpu() -> None:
    import cupy

    sums, x = toy(), cupy.arange(8, dtype=np.float32).reshape(4, 2)
    wanted = np.stack([x.get()[0] + 2 * x.get()[3], 0 * x.get()[0], 7 * x.get()[1] + 5 * x.get()[2]])
    device = [cupy.asarray(a.astype(np.int32)) for a in (sums.csr.indptr, sums.csr.indices)]
    for algorithm in cusparse.ALGORITHMS:
        y = cupy.zeros((3, 2), np.float32)
        spmm = cusparse.SpMM(*device, cupy.asarray(sums.weight), x, y, algorithm)
        spmm()
        assert np.array_equal(y.get(), wanted), algorithm
        spmm.close()


@pytest.mark.gpu
@pytest.mark.parametrize("suite", ["aggregation", "fastgl-fig12", "fastgl-table2"])
def test_aggregation_suites_run_on_a_gpu(suite: str) -> None:
    record = runner.run(suite, quick=True, graphs=["arxiv-like"])
    assert record["rows"] and record["verification"]["rows_equal_to_double_precision"] > 0
    assert report.text(record)
    json.dumps(record, allow_nan=False)


@pytest.mark.gpu
def test_a_gin_layer_is_timed_on_a_gpu() -> None:
    record = runner.run("gin-layer", quick=True, graphs=["arxiv-like"])
    assert {row["kernel"] for row in record["rows"]} == {"auto", "memory-aware", "library"}
    assert all(row["us"] > 0 and row["edges"] > 0 for row in record["rows"])
    assert [row["released_us"] for row in record["rows"] if "released_us" in row] == [88.0] * 3
    assert report.text(record)
    json.dumps(record, allow_nan=False)
