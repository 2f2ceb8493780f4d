"""Files for Perfetto: valid trace events, nothing that crosses on a track, and the numbers of the trace."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.pipeline.records import EpochRecord, StageEvent, TrainResult
from gnnsample_lab.traces import SampleTrace
from gnnsample_lab.traces.perfetto import lanes_of
from tests.handmade_trace import make_trace

PHASES = {
    "X": {"ph", "pid", "tid", "name", "cat", "ts", "dur", "args"},
    "C": {"ph", "pid", "name", "ts", "args"},
    "i": {"ph", "s", "pid", "tid", "name", "cat", "ts", "args"},
    "M": {"ph", "pid", "name", "args"},
}


def opened(path: Path) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """Events by phase, after a check of what Chrome's format asks for; and what the file says of itself."""
    content = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda word: pytest.fail(word))
    assert set(content) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert content["displayTimeUnit"] in ("ms", "ns")
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    named = {e["pid"] for e in content["traceEvents"] if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]) for e in content["traceEvents"] if e["name"] == "thread_name"}
    for event in content["traceEvents"]:
        keys = PHASES[event["ph"]]
        assert keys <= set(event) <= keys | ({"tid"} if event["ph"] == "M" else set())
        assert type(event["pid"]) is int and event["pid"] in named and event["pid"] > 0
        assert isinstance(event["name"], str) and isinstance(event["args"], dict)
        if event["ph"] in "Xi":
            assert (event["pid"], event["tid"]) in threads
        if event["ph"] in "XCi":
            assert isinstance(event["ts"], (int, float)) and event["ts"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
        found[event["ph"]].append(event)
    tracks = defaultdict(list)
    for event in found["X"]:
        assert event["dur"] >= 0
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        spans.sort()
        assert all(first[1] <= second[0] + 1e-9 for first, second in itertools.pairwise(spans)), (
            "slices cross"
        )
    return found, content["otherData"]


def names_of(found: dict[str, list[dict[str, Any]]]) -> dict[int, str]:
    return {e["pid"]: e["args"]["name"] for e in found["M"] if e["name"] == "process_name"}


def test_a_sampling_trace(tmp_path: Path) -> None:
    trace = make_trace()
    path = trace.to_perfetto(tmp_path / "deeper" / "trace")
    assert path == tmp_path / "deeper" / "trace.json"
    found, about = opened(path)
    names = names_of(found)
    tasks = [e for e in found["X"] if names[e["pid"]].startswith("SM ")]
    rows = {(names[e["pid"]], e["args"]["vertex"], e["ts"], e["ts"] + e["dur"], e["name"]) for e in tasks}
    t = trace.tasks
    expected = zip(t.sm, t.vertex, t.start_us, t.end_us, t.hop)
    assert rows == {(f"SM {sm}", v, start, end, f"hop {h + 1}") for sm, v, start, end, h in expected}
    hops = {e["name"]: (e["ts"], e["dur"]) for e in found["X"] if e["cat"] == "hop"}
    assert hops == {"hop 1": (1.0, 5.0), "hop 2": (5.0, 5.0)}
    depth = [(e["ts"], e["args"]["queue depth"]) for e in found["C"] if e["name"] == "queue depth"]
    assert depth == list(zip(trace.queue.time_us.tolist(), trace.queue.depth.tolist()))
    running = [(e["ts"], e["args"]["running tasks"]) for e in found["C"] if e["name"] == "running tasks"]
    assert running == [(1.0, 2), (4.0, 1), (5.0, 3), (6.0, 3), (7.0, 2), (9.0, 1), (10.0, 0)]
    (lost,) = found["i"]
    assert (lost["args"], lost["ts"], lost["name"]) == ({"vertex": 22, "slot": 4}, 4.5, "lost: hop 2")
    assert about["origin"] == "measured on NVIDIA H200" and about["graph"] == "toy (synthetic)"


def test_a_modelled_trace_of_a_real_sample_and_one_without_a_queue(tmp_path: Path) -> None:
    graph = lab.load("arxiv-like", scale=0.02, use_cache=False)
    for strategy, has_queue in (("persistent", True), ("block-bsp", False)):
        sampler = lab.NeighborSampler(graph, [5, 5], strategy=strategy, device="cpu", trace=True)
        trace: SampleTrace = sampler.sample(np.arange(64)).trace
        found, about = opened(trace.to_perfetto(tmp_path / f"{strategy}.json"))
        assert len([e for e in found["X"] if e["cat"] != "hop"]) == len(trace.tasks)
        assert any(e["name"] == "queue depth" for e in found["C"]) == has_queue
        assert about["origin"].startswith("modelled as")


def test_an_epoch_of_the_schedule_model(tmp_path: Path) -> None:
    times = lab.schedule.stage_times(
        0.010, 0.004, 0.020, batches=12, standby_extract_s=0.016, source="made up"
    )
    run = lab.schedule.simulate(times, "factored", gpus=4, samplers=2, capacity=4, staleness=None)
    found, about = opened(run.to_perfetto(tmp_path / "epoch.json"))
    stages = [e for e in found["X"] if e["cat"] != "wait"]
    assert len(stages) == len(run.events) and len(found["X"]) == len(run.events) + len(run.waits)
    busy = sum(e["dur"] for e in stages if e["cat"] == "train")
    assert busy == pytest.approx(1e6 * sum(run.busy_s["train"]))
    names = names_of(found)
    assert {names[e["pid"]] for e in stages if e["cat"] == "sample"} <= {"GPU 0 · sampler", "GPU 1 · sampler"}
    assert {e["name"] for e in found["C"]} == set(run.queues)
    assert about["origin"] == run.origin and about["executor"] == "factored"


def test_an_epoch_that_ran(tmp_path: Path) -> None:
    events = (
        StageEvent(0, "sampler", "sample", 3, 0.0, 40.0),
        StageEvent(0, "sampler", "sample", 4, 30.0, 60.0),  # two streams at once
        StageEvent(1, "trainer", "train", 3, 45.0, 90.0),
    )
    record = EpochRecord(
        40.0, 0.0, 45.0, 95.0, events=events, queues={"global": [(0.0, 0), (40.0, 1), (45.0, 0)]}
    )
    result = TrainResult(
        "lab", "gcn", "toy", "cpu", "measured on a CPU", [1.0], [3], [], "valid", [record],
        ranks=2, settings={"executor": "factored", "samplers": 1, "capacity": 2},
    )  # fmt: skip
    found, about = opened(result.timeline().to_perfetto(tmp_path / "run.json"))
    assert {(e["name"], round(e["ts"]), round(e["dur"])) for e in found["X"]} == {
        ("sample 3", 0, 40), ("sample 4", 30, 30), ("train 3", 45, 45),
    }  # fmt: skip
    assert [e["args"]["global"] for e in found["C"]] == [0, 1, 0]
    assert about["origin"] == "measured on a CPU"


def test_lanes_do_not_overlap() -> None:
    assert lanes_of([(5, 9), (0, 4), (1, 3), (3, 6)]) == [0, 0, 1, 1]
    assert lanes_of([]) == []


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="path"):
        make_trace().to_perfetto(tmp_path)
    with pytest.raises(TypeError, match="path"):
        make_trace().to_perfetto(3)  # type: ignore[arg-type]
