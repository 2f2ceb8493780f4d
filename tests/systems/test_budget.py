"""``budget_gb`` and ``cache_gb``: what counts, what a cache gets, what is refused, what a label says; on a CPU."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.device import runtime
from gnnsample_lab.features.caching.slots import table_bytes
from gnnsample_lab.pipeline import memory
from gnnsample_lab.pipeline.factored.roles import Split
from gnnsample_lab.pipeline.memory import NOTHING, Held
from gnnsample_lab.systems import budget, factored, features
from gnnsample_lab.systems.features import Sizing, topology_bytes
from gnnsample_lab.systems.table import find

torch = pytest.importorskip("torch")

QUICK = {
    "epochs": 1, "fanouts": (3, 4), "hidden": 8, "batch_size": 64, "evaluate": False, "progress": False,
    "device": "cpu",
}  # fmt: skip


@pytest.mark.parametrize("num_bytes", [960, 1_000_007, 123_456_789, 32 * 10**9 + 1])
def test_bytes_given_as_gigabytes_are_those_bytes(num_bytes):
    """``int`` would lose one of 960."""
    assert budget.cache_bytes(num_bytes / 1e9, None, None) == budget.bytes_of(num_bytes / 1e9) == num_bytes


def test_cache_gb_is_the_cache_alone_its_table_of_places_included(graph):
    rows, row_bytes = graph.num_nodes, graph.feat.shape[1] * graph.feat.itemsize
    wanted = 100 * row_bytes + table_bytes(rows)
    found = lab.train(graph, system="gnnlab", cache_gb=(wanted + 0.5) / 1e9, **QUICK)
    [held] = found.memory
    assert held.cache == wanted and found.cache_ratio == 100 / rows
    one_less = lab.train(graph, system="gnnlab", cache_gb=(wanted - 1) / 1e9, **QUICK)
    assert one_less.cache_ratio == 99 / rows
    all_of_it = lab.train(graph, system="gnnlab", cache_gb=(rows * row_bytes + 1) / 1e9, **QUICK)
    assert all_of_it.cache_ratio == 1.0
    assert lab.train(graph, system="gnnlab", cache_gb=0, **QUICK).cache_ratio == 0.0


def test_labels_say_that_a_capacity_is_no_speed(graph):
    topology = (
        graph.indptr.nbytes
        + graph.indices.nbytes
        + (0 if graph.edge_weight is None else graph.edge_weight.nbytes)
    )
    both = {"cache_gb": 1e-6, "budget_gb": (topology + 5000) / 1e9}
    found = lab.train(graph, system="gnnlab", **both, **QUICK)
    assert (
        found.origin.startswith("measured on the CPU (capacity of ") and "cache of 1e-06 GB" in found.origin
    )
    assert found.origin.endswith("; its speed)") and found.settings["cache_gb"] == 1e-6
    assert lab.train(graph, system="gnnlab", cache_ratio=0.1, **QUICK).origin == "measured on the CPU"


def test_one_way_to_size_a_cache(graph):
    for other in ({"cache_ratio": 0.1}, {"capacity_bytes": 10}):
        with pytest.raises(ValueError, match="give one of cache_ratio, capacity_bytes and cache_gb"):
            lab.train(graph, cache_gb=1.0, **other, **QUICK)
    for wrong in (-1, float("nan"), "1", True):
        with pytest.raises((TypeError, ValueError), match="cache_gb"):
            lab.train(graph, cache_gb=wrong, **QUICK)


def test_a_cache_beyond_the_budget_is_named(graph):
    topology = (
        graph.indptr.nbytes
        + graph.indices.nbytes
        + (0 if graph.edge_weight is None else graph.edge_weight.nbytes)
    )
    rows = table_bytes(graph.num_nodes) + 100 * graph.feat.shape[1] * graph.feat.itemsize
    fits = {"cache_gb": rows / 1e9, "system": "gnnlab"}
    assert lab.train(graph, budget_gb=(topology + rows) / 1e9, **fits, **QUICK).memory[0].cache == rows
    with pytest.raises(MemoryError, match="less than the topology and the cache"):
        lab.train(graph, budget_gb=(topology + rows - 40) / 1e9, **fits, **QUICK)


@pytest.mark.parametrize(
    ("given", "said"),
    [(1e-12, r"1e-09 \(1 byte\)"), (5e-324, r"1e-09 \(1 byte\)"), (1e-6, r"1e-06 \(1 kB\)")],
)
def test_a_budget_that_is_tiny_is_not_printed_as_none(graph, given, said):
    need = r"the topology: 43\.2 kB$"
    with pytest.raises(MemoryError, match=rf"^budget_gb={said} is less than {need}"):
        lab.train(graph, system="gnnlab", budget_gb=given, **QUICK)


def test_what_others_hold_does_not_count():
    assert Held(5, 7, 2).less(Held(3, 9)) == Held(2, 0, 2)  # others gave some back meanwhile
    assert Held(5, 7, 2).total == 14
    sizing = Sizing(budget_bytes=10, others=Held(4))
    assert sizing == Sizing(budget_bytes=10)  # the same size is asked for


def test_the_topology_that_a_run_uses_is_its_own(monkeypatch):
    """A graph of 24 + 40 bytes that lies on the GPU among 100 bytes of others."""
    monkeypatch.setattr(memory, "held", lambda device: Held(164, 30))
    monkeypatch.setattr(memory, "is_cuda_array", lambda array: array.dtype != np.float32)
    taken = []
    monkeypatch.setattr(memory, "take_workspaces", lambda: taken.append("workspaces"))
    graph = SimpleNamespace(
        indptr=np.zeros(3, np.int64), indices=np.zeros(5, np.int64), edge_weight=np.zeros(5, np.float32)
    )
    assert memory.held_by_others(graph, "cuda", trains=False) == Held(100, 30) and not taken
    assert memory.held_by_others(graph, "cuda") == Held(100, 30) and taken == ["workspaces"]


def test_workspaces_of_captures_are_taken_on_the_stream_that_will_capture(monkeypatch):
    """And the stream is idle again afterwards, whatever happens."""
    here, taken = ["current"], []
    lent = SimpleNamespace(synchronize=lambda: taken.append("waited"))
    idle = {0: [lent]}

    @contextlib.contextmanager
    def on(stream: Any) -> Iterator[None]:
        here.append("capturing" if stream is lent else "another")
        yield
        here.pop()

    monkeypatch.setattr("gnnsample_lab.device.streams._idle", idle)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(memory, "held", lambda device: Held(4, 3))
    monkeypatch.setattr(memory, "take_workspaces", lambda: taken.append(here[-1]))
    graph = SimpleNamespace(indptr=np.zeros(3), indices=np.zeros(5), edge_weight=None)
    for captures, expected in ((False, ["current"]), (True, ["current", "capturing", "waited"])):
        taken.clear()
        assert memory.held_by_others(graph, "cuda", captures=captures) == Held(4, 3)
        assert taken == expected and idle == {0: [lent]}


def test_a_peak_beyond_the_budget_names_its_parts():
    budget.peak_within_budget(10**9, Held(6 * 10**8, 4 * 10**8), 2 * 10**8, 3 * 10**8, 10**9)
    with pytest.raises(MemoryError) as error:
        budget.peak_within_budget(10**9 + 1, Held(6 * 10**8, 4 * 10**8), 2 * 10**8, 3 * 10**8, 10**9)
    words = str(error.value)
    for part in ("topology 200 MB", "cache 300 MB", "CuPy's pool 600 MB", "PyTorch's allocator 400 MB"):
        assert part in words
    assert "peers" not in words  # nothing there


def test_an_epoch_beyond_the_budget_ends_the_run(graph, monkeypatch):
    """The check after every epoch, with an account that says two gigabytes."""
    from gnnsample_lab.pipeline import trainer

    monkeypatch.setattr(trainer, "held", lambda device: Held(15 * 10**8, 5 * 10**8))
    assert lab.train(graph, system="gnnlab", budget_gb=2.0, **QUICK).memory[0].peak == 2 * 10**9
    with pytest.raises(MemoryError, match=r"peak of graph, cache and pools \(topology .*CuPy's pool 1.5 GB"):
        lab.train(graph, system="gnnlab", budget_gb=1.99, **QUICK)


@pytest.mark.parametrize(
    ("whole", "working", "of_torch"),
    [
        (476, 0, 148.5),  # nobody knows what mini-batches take: half of the rest
        (476, 190, 56),  # they take 190: of what is then left as much as its margin is of both
        (476, 300, 42),  # more than there is: PyTorch keeps what its trial took
        (4000, 190, 2063),
        (16000, 0, 7910.5),  # of a large card a model beside a cache of a given size has half, too
    ],
)
def test_mini_batches_get_what_their_trial_took(whole, working, of_torch):
    before = Held(cupy=221 * 10**6, torch=42 * 10**6)
    cupy, torch = budget.limits(whole * 10**6, before, working * 10**6)
    assert cupy + torch == whole * 10**6
    assert torch / 1e6 == pytest.approx(of_torch, abs=1.5)


def test_a_cache_leaves_room_for_larger_mini_batches_than_the_trials():
    trial = Held(cupy=154 * 10**6, torch=42 * 10**6)
    beside = budget.cache_beside(540 * 10**6, trial, 144 * 10**6)
    assert beside == pytest.approx((540 - 196 - 42 / 2 - 144 / 4) * 10**6 - (40 << 20), abs=1)
    assert budget.cache_beside(trial.total // 2, trial, 0) == 0
    assert budget.cache_beside(10**10, NOTHING, 0) == 9 * 10**9


@pytest.mark.parametrize(
    ("torch", "working", "took"),
    [
        # Megabytes on an H200, products-like: of the trial, and what epochs then took of CuPy's and PyTorch's pools.
        (700, 500, (500, 520)),  # serial
        (460, 1270, (1070, 650)),  # streams
        (460, 1300, (1520, 580)),  # overlapped
        (2010, 1160, (1090, 2020)),  # serial, 4 096 seeds
        (2010, 3010, (1900, 2040)),  # overlapped, 4 096 seeds
    ],
)
def test_margins_are_as_large_as_what_epochs_took(torch, working, took):
    more_cupy, more_torch = (each / 1e6 for each in budget.margins(torch * 10**6, working * 10**6))
    assert working + more_cupy > took[0] and torch + more_torch > took[1]


def test_a_sampler_leaves_its_memory_to_samples():
    before = Held(cupy=221 * 10**6, torch=2 * 10**6)
    cupy, torch = budget.limits(3 * 10**9, before, 0, trains=False)
    assert cupy + torch == 3 * 10**9 and torch == before.torch + (64 << 20)
    assert budget.limits(230 * 10**6, before, 0, trains=False)[1] == pytest.approx(5.5e6)


def test_memory_of_peers_is_no_pools():
    assert sum(budget.limits(10**9, Held(10**8, 10**8, 3 * 10**8), 0)) == 7 * 10**8


def test_a_cache_of_all_ranks_counts_its_list(graph):
    """Where each vertex' row lies is said for all of them, also where all rows fit."""
    table = graph.feat.nbytes
    row_bytes = table // graph.num_nodes
    for beyond in (0, 4 * graph.num_nodes):
        found = lab.train(graph, system="quiver", cache_gb=(table + beyond) / 1e9, **QUICK)
        assert table + beyond - row_bytes < found.memory[0].cache <= table + beyond
        assert (found.cache_ratio == 1) == bool(beyond)
    topology = lab.train(graph, system="dsp-seq", cache_gb=0, **QUICK).memory[0].topology
    within = lab.train(graph, system="dsp-seq", budget_gb=(topology + table + 600) / 1e9, **QUICK)
    assert 0.5 < within.cache_ratio < 1


@pytest.mark.parametrize("options", [{"samplers": 2}, {"samplers": 1, "switching": True}], ids=str)
def test_factored_caches_have_the_size_that_was_asked_for(graph, pair, options):
    given = {**QUICK, "system": "gnnlab", "executor": "factored", "ranks": pair, **options}
    if options["samplers"] == 2:
        for size in (
            {"cache_ratio": 0.5},
            {"cache_gb": (0.5 * graph.feat.nbytes + table_bytes(graph.num_nodes) + 1) / 1e9},
        ):
            held = lab.train(graph, **size, **given).memory
            assert [one.cached for one in held] == pytest.approx([0.5, 0.5], abs=0.01)
    assert [one.cached for one in lab.train(graph, budget_gb=1.0, **given).memory] == [1, 1]
    topology = topology_bytes(graph)
    some = topology + graph.feat.nbytes // 2 + table_bytes(graph.num_nodes)
    held = lab.train(graph, budget_gb=some / 1e9, **given).memory
    assert held[0].cached == pytest.approx(0.5, abs=0.02), "what the topology leaves of the budget"


def test_sizes_and_orders_that_cannot_be_are_named(graph):
    with pytest.raises(ValueError, match=r"window must be at most 16 with reorder='exact' \(got 32\)"):
        lab.train(graph, reorder="exact", **QUICK)
    for policy in ("optimal", "visits"):
        with pytest.raises(ValueError, match="policy must be one of 'random', 'degree'"):
            lab.train(graph, system="gnnlab", policy=policy, **QUICK)


@pytest.mark.parametrize(
    ("executor", "pipelined", "batches", "kept"),
    [
        ("serial", True, None, (3, 1)), ("streams", True, None, (4, 3)), ("overlapped", True, None, (8, 5)),
        ("factored", True, None, (5, 4)), ("factored", False, None, (3, 1)), ("overlapped", True, 2, (2, 2)),
    ],
)  # fmt: skip
def test_the_trial_of_a_step_has_what_its_executor_keeps(executor, pipelined, batches, kept):
    """Two sampled in a call; without a budget rows of one more, whose block small arrays may have."""
    system = dataclasses.replace(find("gnnlab"), executor=executor)
    for budget_bytes, more in ((10**9, 0), (None, 1)):
        sizing = Sizing(budget_bytes=budget_bytes, batches=batches, pipelined=pipelined)
        assert features._in_memory(system, 2, 8, sizing) == (kept[0], kept[1] + more)


GROWING = "expandable_segments"


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize(
    ("can_grow", "told", "inside", "after"),
    [
        (False, "", ["roundup_power2_divisions:16"], ["roundup_power2_divisions:1", ""]),
        (
            True,
            "max_split_size_mb:200",
            [f"max_split_size_mb:200,roundup_power2_divisions:16,{GROWING}:True"],
            [f"max_split_size_mb:200,roundup_power2_divisions:1,{GROWING}:False", "max_split_size_mb:200"],
        ),
        # What the caller has said holds.
        (False, "roundup_power2_divisions:4", [], []),
        (True, f"{GROWING}:False,roundup_power2_divisions:4", [], []),
        (
            True,
            f"{GROWING}:True",
            [f"{GROWING}:True,roundup_power2_divisions:16"],
            [f"{GROWING}:True,roundup_power2_divisions:1", f"{GROWING}:True"],
        ),
    ],
)
def test_torch_rounds_inside_and_keeps_its_other_settings(monkeypatch, new, can_grow, told, inside, after):
    import torch

    said: list[str] = []
    monkeypatch.setattr("gnnsample_lab.device.runtime.has_virtual_memory", lambda: can_grow)
    for name in ("_accelerator_getAllocatorSettings", "_accelerator_setAllocatorSettings"):
        monkeypatch.delattr(torch._C, name, raising=False)
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    if new:
        monkeypatch.setattr(torch._C, "_accelerator_getAllocatorSettings", lambda: told, raising=False)
        monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", said.append, raising=False)
    else:
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", told)
        monkeypatch.setattr(torch.cuda.memory, "_set_allocator_settings", said.append, raising=False)
    with pytest.raises(KeyError), memory.torch_rounding():
        assert said == inside
        raise KeyError
    assert said == inside + after


@pytest.mark.parametrize("captured", [False, True])
def test_the_trial_of_a_factored_trainer_is_of_the_steps_that_it_will_make(graph, monkeypatch, captured):
    """A replayed step holds memory of its own beside what it is copied from."""
    tried: list[Any] = []

    def sized(system: Any, table: Any, *rest: Any) -> tuple[int, int]:
        tried.append((system.executor, system.captured, rest[-2].pipelined))
        return len(table) // 2, 7

    monkeypatch.setattr(factored, "_sized", sized)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_, **__: None)
    trainer: Any = SimpleNamespace(index=1, device="cpu", group=None)
    given: Any = dict.fromkeys(("cache_ratio", "capacity_bytes", "cache_gb")) | {
        "budget_gb": 1.0,
        "batch_size": 8,
    }
    split = Split(2, 1, False, pipelined=False)
    found = factored._ratios(
        trainer, find("gnnlab"), graph, graph.feat, None, None, given, "cuda", split, Held(), captured
    )
    assert tried == [("factored", captured, False)] and found == (0.5, 0.5, 7)


def test_torch_takes_these_settings():
    import torch

    if not hasattr(torch._C, "_accelerator_getAllocatorSettings"):
        pytest.skip("this torch does not say what it was told")
    told = torch._C._accelerator_getAllocatorSettings()
    with memory.torch_rounding():
        said = torch._C._accelerator_getAllocatorSettings()
        assert "roundup_power2_divisions:16" in said
        assert ("expandable_segments:True" in said) == runtime.has_virtual_memory()
    assert torch._C._accelerator_getAllocatorSettings() == told


ALIKE = """
import torch

from gnnsample_lab.pipeline import memory


def grown():
    memory.reset_pools()
    before = torch.cuda.memory_reserved()
    for size in (97 << 20, 99 << 20):
        torch.empty(size, dtype=torch.int8, device="cuda")  # dropped at once
    return torch.cuda.memory_reserved() - before >> 20


print(grown())
with memory.torch_rounding():
    print(grown())
print(grown())
"""


@pytest.mark.gpu
def test_tensors_of_like_size_share_a_block():
    """Without rounding the second one, a little larger, needs a segment of its own. A process of its own has no block
    of other tests that either fits."""
    done = subprocess.run([sys.executable, "-c", ALIKE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    before, inside, after = map(int, done.stdout.split())
    assert before >= 190
    assert 99 <= inside <= 110
    assert after >= 190  # not for ever


@pytest.mark.parametrize(("callers", "inside"), [(1.0, 0.6), (0.4, 0.4)])
def test_torchs_bound_is_the_callers_again(monkeypatch, callers, inside):
    import torch

    now = [callers]
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share: now.append(share))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda: now[-1], raising=False)
    with pytest.raises(KeyError), budget.torch_kept_to(0.6):
        assert now[-1] == inside
        raise KeyError
    assert now == [callers, inside, callers]
    monkeypatch.delattr(torch.cuda, "get_per_process_memory_fraction")
    with budget.torch_kept_to(0.6):  # a version that cannot tell
        assert now[-1] == 0.6
    assert now[-1] == 1.0


@pytest.mark.parametrize("system", ["dsp", "quiver"])
def test_a_cache_in_parts_is_no_larger_than_asked_for(graph, system):
    listed = 4 * graph.num_nodes
    options: dict[str, Any] = {
        "fanouts": (2,),
        "batch_size": 64,
        "evaluate": False,
        "progress": False,
        "device": "cpu",
    }
    with pytest.raises(ValueError, match=f"hold the {listed} bytes of the position list"):
        lab.train(graph, "gcn", system, capacity_bytes=listed - 1, **options)
    for given in (listed, listed + 1000):
        assert lab.train(graph, "gcn", system, capacity_bytes=given, **options).memory[0].cache <= given
    assert lab.train(graph, "gcn", system, cache_gb=0, **options).cache_ratio == 0
