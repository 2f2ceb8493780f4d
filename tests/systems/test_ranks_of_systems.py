"""Systems whose graph lies in host memory or in parts: the samples and losses of the others, on one rank and on two."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.errors import RankError
from gnnsample_lab.features.caching.slots import table_bytes
from gnnsample_lab.pipeline import trainer as trainers
from gnnsample_lab.pipeline.features import CachedSource, FusedSource
from gnnsample_lab.pipeline.plan import NoBatch
from gnnsample_lab.pipeline.trainer import Trainer
from gnnsample_lab.systems.parts import overlap_problem, saved_parts
from gnnsample_lab.systems.resuming import dropout_note
from gnnsample_lab.systems.table import PLACEMENTS, SYSTEMS, TOPOLOGIES, find
from gnnsample_lab.systems.train import _index_note, _order_notes
from gnnsample_lab.systems.trees import TreeSampler
from tests.distributed.conftest import left_after
from tests.pipeline import ranked

torch = pytest.importorskip("torch")

QUICK: dict[str, Any] = {
    "fanouts": (3, 4), "hidden": 16, "batch_size": 64, "lr": 0.01, "device": "cpu", "progress": False, "epochs": 2,
}  # fmt: skip
IN_PARTS = ("dgl-uva", "quiver", "dsp-seq", "dsp")


@pytest.fixture(scope="module")
def expected(graph):
    return lab.train(graph, system="dgl", pick="floyd", **QUICK)


def test_the_table_says_where_things_lie():
    for name, system in SYSTEMS.items():
        assert system.topology in TOPOLOGIES and system.placement in PLACEMENTS, name
        assert (system.topology == "device") == (system.method == "")
        assert not system.method or system.method in lab.distributed.methods()
    assert {name for name, system in SYSTEMS.items() if system.has_parts} == set(IN_PARTS)


@pytest.mark.parametrize("name", ["quiver", "dsp", "dsp-seq"])
def test_a_cache_in_parts_fills_the_size_it_was_given(graph, pair, name):
    # Quiver's ranks know where every row lies; DSP's ask the owner, and keep the places of their own vertices.
    row = graph.feat.shape[1] * graph.feat.itemsize
    parts = lab.distributed.partition(graph, 2, "range")
    listed = 4 * (graph.num_nodes if name == "quiver" else int(parts.vertices.max()))
    options = QUICK | {"epochs": 1, "evaluate": False, "parts": parts}
    for capacity in (listed + row, listed + 20 * row + row // 2):
        found = lab.train(graph, system=name, ranks=pair, capacity_bytes=capacity, **options)
        assert all(capacity - row - 4 < held.cache <= capacity for held in found.memory)
    with pytest.raises(RankError, match=f"the {listed} bytes of the position list"):
        lab.train(graph, system=name, ranks=pair, capacity_bytes=listed - 1, **options)


@pytest.mark.parametrize("name", ["gnnlab", "pgsampler", *IN_PARTS])
def test_two_ranks_train_as_one_device_does(graph, expected, pair, name):
    found = lab.train(graph, system=name, pick="floyd", ranks=pair, **QUICK)
    assert found.batch_ids == expected.batch_ids and found.system == name and found.ranks == 2
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)
    assert found.accuracy == pytest.approx(expected.accuracy)
    assert {e.rank for e in found.epochs[0].events if e.stage == "sample"} == {0, 1}
    topology = graph.indptr.nbytes + graph.indices.nbytes
    held = [m.topology for m in found.memory]
    if SYSTEMS[name].topology == "uva":
        assert held == [0, 0]
    elif SYSTEMS[name].topology == "parts":
        assert all(0 < h < 0.7 * topology for h in held)
    else:
        assert all(h >= topology for h in held)


def test_one_cache_of_two_ranks_holds_twice_as_many_rows(graph, pair):
    options = {**QUICK, "cache_ratio": 0.2, "pick": "floyd", "evaluate": False}
    own, shared = (lab.train(graph, system=name, ranks=pair, **options) for name in ("tsota", "quiver"))
    assert own.cache_ratio == pytest.approx(0.2) and shared.cache_ratio == pytest.approx(0.4)
    assert [m.cached for m in shared.memory] == pytest.approx([0.2, 0.2])
    assert shared.epochs[0].hit_rate > own.epochs[0].hit_rate
    assert math.isnan(lab.train(graph, system="dgl-uva", ranks=pair, **options).epochs[0].hit_rate)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["quiver", "dsp"])
@pytest.mark.parametrize("policy", ["presample", "degree"])
def test_any_policy_ranks_a_shared_cache(graph, expected, pair, name, policy):
    found = lab.train(graph, system=name, policy=policy, pick="floyd", ranks=pair, **QUICK)
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)
    alone = lab.train(graph, system=name, policy=policy, pick="floyd", **QUICK)
    np.testing.assert_allclose(alone.losses, expected.losses, atol=1e-5)
    assert alone.cache_ratio == pytest.approx(0.25) and 0.4 < found.cache_ratio <= 0.5


MADE = {
    "pull": replace(SYSTEMS["dsp"], method="pull"),
    "csp-async": replace(SYSTEMS["dsp"], method="csp-async", coordinated=False),
    "csp-fixed": replace(SYSTEMS["dsp"], method="csp-fixed", coordinated=False),
    "sampling alone": replace(SYSTEMS["dsp"], placement="replicated", transport="auto"),
    "rows alone": replace(SYSTEMS["dsp"], topology="uva", method="direct"),
    "neither": SYSTEMS["quiver"],
}  # fmt: skip
"""Where workers meet those of other ranks, and how."""


@pytest.mark.parametrize("name", MADE)
def test_several_workers_of_a_rank_train_as_one_device_does(graph, expected, pair, name):
    options = {**QUICK, "pick": "floyd", "parts": "random", "executor": "overlapped", "workers": 2}
    found = lab.train(graph, system=MADE[name], ranks=pair, **options)
    assert found.settings["workers"] == 2 and found.settings["coordinated"] is MADE[name].coordinated
    assert found.batch_ids == expected.batch_ids
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)
    assert found.accuracy == pytest.approx(expected.accuracy)
    names = {(e.rank, e.worker) for e in found.epochs[0].events if e.stage != "train"}
    assert names == {
        (rank, f"{kind} {i}") for rank in (0, 1) for kind in ("sampler", "loader") for i in (1, 2)
    }


SPILLING = {
    "direct-cached": replace(SYSTEMS["dsp"], method="direct-cached", coordinated=False),
    "dsp": SYSTEMS["dsp"],
}  # fmt: skip
"""Systems whose lists may lie in host memory."""


@pytest.mark.parametrize("name", SPILLING)
def test_lists_in_host_memory_change_no_sample(graph, expected, pair, name):
    options = {**QUICK, "system": SPILLING[name], "pick": "floyd", "parts": "random", "evaluate": False}
    whole = lab.train(graph, ranks=pair, **options)
    assert whole.settings["topology_bytes"] is None
    for budget in (2000, 0):
        found = lab.train(graph, ranks=pair, topology_bytes=budget, **options)
        assert found.settings["topology_bytes"] == budget and found.batch_ids == expected.batch_ids
        np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)
        for held, all_of_it in zip(found.memory, whole.memory, strict=True):
            offsets = 8 * (graph.num_nodes // 2)  # of lists, within a tenth: parts are not quite even
            assert 0.9 * offsets < held.topology - budget < 1.1 * offsets < all_of_it.topology - budget
    one = lab.train(graph, topology_bytes=2000, **options)
    np.testing.assert_allclose(one.losses, expected.losses, atol=1e-5)
    assert one.memory[0].topology == pytest.approx(2000 + 8 * (graph.num_nodes + 1), abs=100)


def test_systems_without_lists_in_host_memory_are_named(graph, pair):
    for system, has in (
        ("lab", "'lab', which has all lists on each device"),
        ("quiver", "'quiver', which has all lists in host memory"),
        (MADE["pull"], "'dsp', which has its lists in parts and method 'pull'"),
    ):  # fmt: skip
        for ranks in (1, pair):
            with pytest.raises(
                ValueError, match=rf"topology_bytes needs a system with parts .*\(got system {has}"
            ):
                lab.train(graph, system=system, topology_bytes=100, ranks=ranks, **QUICK)
    with pytest.raises(MemoryError, match="less than the topology .topology_bytes bounds it"):
        lab.train(graph, system=SPILLING["direct-cached"], budget_gb=1e-7, **QUICK)


@pytest.mark.parametrize(("name", "workers"), [("quiver", 1), ("dsp", 1), ("dsp", 2)])
def test_loaders_merge_the_rows_of_mini_batches(graph, expected, pair, name, workers):
    options = {
        **QUICK,
        "system": name,
        "pick": "floyd",
        "executor": "overlapped",
        "evaluate": False,
        "parts": "random",
    }
    options |= {"ranks": pair, "workers": workers, "capacity": 4}
    alone, found = (lab.train(graph, merged=merged, **options) for merged in (1, 3))
    assert (alone.settings["merged"], found.settings["merged"]) == (1, 3)
    assert found.batch_ids == expected.batch_ids
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)
    for one, merged in zip(alone.epochs, found.epochs, strict=True):
        counts = [sum(e.stage == "extract" for e in epoch.events) for epoch in (one, merged)]
        assert counts[0] == one.tasks == merged.tasks
        if name == "dsp":  # ranks extract together, and merge alike: three at a time of each loader's
            each = -(-one.num_batches // workers), one.num_batches // workers
            assert counts[1] == 2 * sum(-(-mine // 3) for mine in each[:workers])
            assert merged.rows < one.rows, "a vertex of several mini-batches counts once"
        else:
            assert counts[1] <= counts[0] and merged.rows <= one.rows


def test_caches_that_do_not_merge_say_so(graph):
    options = {**QUICK, "epochs": 1, "evaluate": False, "merged": 2}
    found = lab.train(graph, system="gnnlab", executor="overlapped", **options)
    assert found.settings["merged"] == 1 and any(
        "a cache of all ranks alone merges" in n for n in found.notes
    )
    assert "not used with executor='serial': merged" in lab.train(graph, system="quiver", **options).notes


@pytest.mark.parametrize(
    ("name", "given", "hosts", "problem"),
    [
        ("csp-fixed", {"workers": 2}, 1, "workers must be 1 for method='csp-fixed' on GPUs"),
        ("dsp", {"coordinated": False}, 1, "coordinated must be True or None on GPUs for system 'dsp'"),
        ("csp-async", {}, 1, "executor must be 'serial' for method='csp-async' on GPUs"),
        ("dsp", {}, 2, "executor must be 'serial' for system 'dsp' on GPUs of several hosts"),
        ("quiver", {"executor": "overlapped"}, 2, "executor must be 'serial' for system 'quiver' on GPUs"),
        ("dsp", {"workers": 2}, 1, None),
        ("csp-fixed", {"executor": "serial", "workers": 2}, 1, None),
        ("dsp-seq", {"coordinated": False}, 2, None),
        ("quiver", {"executor": "overlapped", "coordinated": False}, 1, None),
    ],
)
def test_workers_of_gpus_have_one_order_of_collectives(name, given, hosts, problem):
    system = MADE.get(name, SYSTEMS.get(name))
    given = {"executor": None, "workers": 1, "coordinated": None, **given}
    found = overlap_problem(system, given, "nccl", hosts > 1)
    assert found is None if problem is None else found.startswith(problem)
    assert overlap_problem(system, given, "gloo", hosts > 1) is None


@pytest.mark.parametrize(("executor", "workers"), [("serial", 1), ("overlapped", 1), ("overlapped", 3)])
def test_slices_without_seeds_go_along(graph, pair, executor, workers):
    """Two seeds to a mini-batch, by owner: often a rank has none, and the other one waits for its collectives."""
    few = lab.Graph(
        graph.indptr, graph.indices, feat=graph.feat, label=graph.label, name="few",
        splits={"train": graph.splits["train"][:20], "valid": graph.splits["valid"]},
    )  # fmt: skip
    options = {**QUICK, "batch_size": 2, "pick": "floyd"}
    reference = lab.train(few, system="dgl", **options)
    options |= {"executor": executor, "workers": workers}
    found = lab.train(few, system="dsp", ranks=pair, parts="range", **options)
    np.testing.assert_allclose(found.losses, reference.losses, atol=1e-5)
    assert found.accuracy == pytest.approx(reference.accuracy)


def test_parts_that_are_there_are_taken(graph, expected, pair, tmp_path):
    cut = lab.distributed.partition(graph, 2, "random", tolerance=2)
    folder = lab.distributed.save_parts(graph, cut, tmp_path / "parts")
    for parts in (cut, folder, "random"):
        found = lab.train(
            graph, system="dsp-seq", pick="floyd", ranks=pair, parts=parts, evaluate=False, **QUICK
        )
        np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)
    for parts in (folder, cut):
        with pytest.raises(ValueError, match=r"parts must be as many as ranks, 1 \(got 2"):
            lab.train(graph, system="dsp-seq", parts=parts, **QUICK)
    pids = pair.pids
    with pytest.raises(ValueError, match=r"parts must be as many as ranks, 2 \(got 3"):
        three = lab.distributed.partition(graph, 3, "random", tolerance=2)
        lab.train(graph, system="dsp-seq", ranks=pair, parts=three, **QUICK)
    assert pair.pids == pids, "found before ranks were asked"


@pytest.mark.parametrize(("method", "tolerance"), [("streaming", 1.25), ("random", 2.0), ("metis", None)])
def test_uneven_parts_are_stated(graph, pair, method, tolerance, tmp_path, monkeypatch):
    """A part must not be left without edges or seeds because a method cannot keep to 1.1."""
    monkeypatch.setenv("LAB_DATA_ROOT", str(tmp_path))
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 400, 8000), (rng.random(8000) ** 6 * 400).astype(int)
    hubs = lab.Graph.from_edges(
        src, dst, 400, splits={"train": np.arange(20)}, name="few hubs",
        feat=rng.random((400, 8), dtype=np.float32), label=rng.integers(0, 3, 400),
    )  # fmt: skip
    found = lab.train(
        hubs, system="dsp", ranks=pair, parts=method, **{**QUICK, "batch_size": 10, "epochs": 1}
    )
    said = [note for note in found.notes if "are uneven" in note]
    if tolerance is None:
        assert said == []
        return
    (note,) = said
    assert note.startswith(f"parts by {method!r}") and f"(tolerance={tolerance:g})" in note
    with saved_parts(hubs, SYSTEMS["dsp"], 2, method) as folder:
        cut = lab.distributed.open_partition(folder)
    assert cut.edges.min() > 0 and (method == "random" or max(cut.balance.values()) <= tolerance)
    assert f"{cut.balance['edges']:.2f} times the mean of edges" in note


def test_parts_of_another_graph_are_refused(graph, tmp_path):
    """Of as many vertices and edges: by topology, and by the features that ranks would take from the parts."""
    turned = replace(
        graph, indices=np.append(graph.indices[:-1], graph.indices.dtype.type(graph.num_nodes - 1))
    )
    other = replace(graph, feat=graph.feat + 1)
    for name, strange in (("turned", turned), ("other", other)):
        cut = lab.distributed.partition(strange, 1, "range", use_cache=False)
        folder = lab.distributed.save_parts(strange, cut, tmp_path / name)
        message = "parts must be of this graph" if strange is turned else "parts must have the features"
        with pytest.raises(ValueError, match=message):
            lab.train(graph, system="quiver", parts=folder, **QUICK)
        if strange is turned:
            with pytest.raises(ValueError, match=message):
                lab.train(graph, system="quiver", parts=cut, **QUICK)
    assert lab.train(graph, system="dgl-uva", parts=tmp_path / "other", **QUICK).losses, (
        "it takes no features of parts"
    )
    bare = lab.distributed.save_parts(graph, cut, tmp_path / "bare", features=False)
    with pytest.raises(ValueError, match="saved with features"):
        lab.train(graph, system="quiver", parts=bare, **QUICK)


@pytest.mark.parametrize("name", ["dgl-uva", "dsp"])
def test_parts_of_other_weights_are_refused_where_weights_draw(graph, tmp_path, name):
    """Topology and features are the same, and so would be the numbers of vertices and edges: other samples come."""
    weight = graph.edge_weight[::-1].copy()
    for folder, given in (("old", graph), ("none", replace(graph, edge_weight=None))):
        lab.distributed.save_parts(
            given, lab.distributed.partition(given, 1, "range", use_cache=False), tmp_path / folder
        )
        with pytest.raises(ValueError, match="parts must have the edge weights of the graph"):
            lab.train(
                replace(graph, edge_weight=weight),
                system=name,
                weighted=True,
                parts=tmp_path / folder,
                **QUICK,
            )
    with pytest.raises(ValueError, match="needs a graph with edge_weight"):
        lab.train(
            replace(graph, edge_weight=None), system=name, weighted=True, parts=tmp_path / "old", **QUICK
        )
    options = {**QUICK, "system": name, "epochs": 1, "evaluate": False}
    assert lab.train(graph, weighted=True, parts=tmp_path / "old", **options).losses
    assert lab.train(graph, parts=tmp_path / "none", **options).losses, "no weight is read"


def test_ranks_train_on_the_graph_that_is_given(pair, tmp_path, monkeypatch):
    """A graph of mapped arrays with another split, and one that was written to, are not what the files hold."""
    monkeypatch.setenv("LAB_DATA_ROOT", str(tmp_path))
    stored = lab.load("arxiv-like", scale=0.005)
    train, valid = stored.splits["train"], stored.splits["valid"]
    short = replace(stored, splits={"train": train[:70], "valid": valid[:40]})
    options = {**QUICK, "system": "gnnlab", "epochs": 1}

    def same(given):
        alone, found = (lab.train(given, ranks=ranks, **options) for ranks in (1, pair))
        assert found.batch_ids == alone.batch_ids
        np.testing.assert_allclose(found.losses, alone.losses, atol=1e-5)
        assert found.accuracy == pytest.approx(alone.accuracy)
        return found.losses

    assert len(same(short)) == 2
    before = same(stored)
    stored.label[:] = 0
    stored.feat[:] *= 0.5
    after = same(stored)
    assert after[0] != before[0]
    stored.feat[:] = 0
    assert same(stored)[0] != after[0], "no table of before is kept"


class StopsAtTheThirdStep(torch.nn.Module):
    """The process of rank 1 is stopped: it neither dies nor raises anything."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.steps = torch.nn.Linear(1, 1), 0

    def forward(self, blocks: Any, x: Any) -> Any:
        self.steps += 1
        if self.steps == 3 and torch.distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        seeds = blocks[-1].num_dst
        return x[:seeds, :4] * self.model(x[:seeds, :1])


@pytest.mark.exhaustive
@pytest.mark.parametrize("executor", ["serial", "overlapped"])
def test_a_stopped_trainer_ends_the_run_with_its_name_and_stage(graph, executor):
    with lab.distributed.Ranks(2, device="cpu", timeout_s=240, heartbeat_s=3) as ranks:
        pids = ranks.pids
        with pytest.raises(RankError, match="rank 1 failed in stage 'train': no sign of life for 3 s"):
            lab.train(graph, StopsAtTheThirdStep(), "dsp", ranks=ranks, executor=executor, **QUICK)
        assert not left_after(pids)


def test_what_failed_gives_its_memory_back(graph, monkeypatch):
    from gnnsample_lab.distributed import peer_memory

    def stop(_):
        raise KeyboardInterrupt

    held = len(peer_memory._open)
    for system in ("quiver", "dsp"):
        with pytest.raises(KeyboardInterrupt):
            lab.train(graph, system=system, on_progress=stop, **QUICK)
        with pytest.raises(MemoryError):
            lab.train(graph, system=system, budget_gb=1e-7, **QUICK)
    assert len(peer_memory._open) == held


def test_torchs_generator_stays_as_it_was(graph, pair):
    torch.manual_seed(3)
    expected = torch.rand(1)
    for options in ({}, {"executor": "factored"}):
        torch.manual_seed(3)
        lab.train(graph, system="gnnlab", ranks=pair, evaluate=False, **{**QUICK, "epochs": 1}, **options)
        assert torch.equal(torch.rand(1), expected)


def test_the_loss_of_no_labels_is_no_number(graph, pair):
    """Not 0, which would be a perfect one."""
    label = np.full_like(graph.label, -1)
    label[graph.splits["train"][0]] = 1
    blank = replace(graph, label=label, num_classes=graph.num_classes)
    for ranks in (1, pair):
        found = lab.train(blank, system="gnnlab", ranks=ranks, evaluate=False, **{**QUICK, "epochs": 1})
        assert np.isfinite(found.losses).sum() == 1 < len(found.losses)


def test_batch_statistics_of_ranks_are_noted(graph, pair):
    class Normed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = lab.make_model("sage", graph.num_features, 16, graph.num_classes, num_layers=2)
            self.norm = torch.nn.BatchNorm1d(graph.num_classes)

        def forward(self, blocks, x):
            return self.norm(self.inner(blocks, x))

    options = {**QUICK, "epochs": 1, "evaluate": False}
    alone = lab.train(graph, Normed(), system="gnnlab", **options)
    assert not any("batch normalisation" in note for note in alone.notes)
    found = lab.train(graph, Normed(), system="gnnlab", ranks=pair, **options)
    assert sum("batch normalisation" in note for note in found.notes) == 1


def test_masks_of_dropout_of_ranks_are_noted(graph, pair):
    options = {**QUICK, "epochs": 1, "evaluate": False}

    def said(**given):
        return sum("masks of dropout" in note for note in lab.train(graph, **options, **given).notes)

    assert said(dropout=0.5) == 0
    assert said(dropout=0.5, ranks=pair, system="gnnlab") == 1
    assert said(dropout=0.5, ranks=pair, system="gnnlab", executor="factored", samplers=1) == 1
    assert said(dropout=0.0, ranks=pair, system="gnnlab") == 0

    class Masked(torch.nn.Module):
        """Neither a module of dropout nor an attribute tells of it."""

        def __init__(self):
            super().__init__()
            self.inner = lab.make_model("sage", graph.num_features, 16, graph.num_classes, num_layers=2)

        def forward(self, blocks, x):
            return torch.nn.functional.dropout(self.inner(blocks, x), 0.5, self.training)

    assert said(model=Masked(), ranks=pair, system="gnnlab") == 1


def after_a_model(graph: Any, layer: Any) -> Trainer:
    """A trainer of a model with ``layer`` at its end."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.layer = lab.make_model("sage", 10, 8, 4, num_layers=2), layer

        def forward(self, blocks: Any, x: Any) -> Any:
            return self.layer(self.inner(blocks, x))

    sampler = lab.NeighborSampler(graph, [3, 4], device="cpu")
    cache = lab.FeatureCache(graph.feat, ratio=1.0, device="cpu")
    trainer = Trainer(graph, sampler, CachedSource(cache), Model(), batch_size=16, device="cpu")
    trainer.model.train()
    return trainer


def step_of(trainer: Trainer) -> None:
    batch = trainer.plan(0).sample(range(1))[0]
    trainer.gradients(batch, trainer.features.extract(batch, None)[0])


def test_a_model_that_draws_is_found_by_what_it_does(graph):
    nn = torch.nn
    attention = {share: nn.MultiheadAttention(4, 2, dropout=share) for share in (0.0, 0.2)}
    for layer, draws in (
        (nn.Dropout(0.1), True),
        (nn.Dropout(0.0), False),
        (nn.Sequential(nn.Sequential(nn.AlphaDropout(0.5))), True),
        (lambda x: nn.functional.dropout(x, 0.3), True),
        (lambda x: nn.functional.dropout(x, 0.3, training=False), False),
        (lambda x: x * torch.bernoulli(torch.full_like(x, 0.5)), True),
        (lambda x: x + torch.randn_like(x), True),
        (lambda x: attention[0.2](x, x, x)[0], True),
        (lambda x: attention[0.0](x, x, x)[0], False),
        (lambda x: x * (torch.arange(len(x)) % 2)[:, None], False),  # a mask, and no generator
    ):
        trainer = after_a_model(graph, layer)
        assert trainer.draws is None
        step_of(trainer)
        assert trainer.draws is draws


def test_whether_a_model_draws_is_asked_at_the_first_step_alone(graph, monkeypatch):
    asked: list[Any] = []
    monkeypatch.setattr(trainers, "_generators", lambda device: asked.append(device) or [])
    trainer = after_a_model(graph, torch.nn.Identity())
    for _ in range(3):
        step_of(trainer)
    assert len(asked) == 2, "before and after the first one"


def test_a_rank_that_has_trained_nothing_does_not_hide_dropout():
    quiet, drawing = {"draws": None}, {"draws": True}
    assert len(dropout_note([quiet, drawing])) == 1
    assert dropout_note([quiet, {"draws": False}]) == dropout_note([drawing]) == []


def test_what_another_executor_would_use_is_noted(graph):
    options = {**QUICK, "epochs": 1, "evaluate": False, "system": "dgl", "executor": "serial"}
    found = lab.train(graph, samplers=1, staleness=2, workers=3, **options)
    assert "not used with executor='serial': samplers, staleness, workers" in found.notes
    assert not any("not used" in note for note in lab.train(graph, **options).notes)
    found = lab.train(
        graph, capacity=7, policy="random", parts="range", cache_gb=0.001, kernels=True, **options
    )
    for expected in (
        "not used with executor='serial': capacity", "'dgl' has no cache: its size was not used",
        "'dgl' has no cache: policy='random' was not used",
        "'dgl' samples and caches without parts: parts was not used",
        "kernels are recorded on GPUs: there are none on the CPU",
    ):  # fmt: skip
        assert expected in found.notes
    assert "GB" not in found.origin, "of a cache that is not there"
    found = lab.train(graph, samplers=1, staleness=2, **{**options, "executor": "factored"})
    assert "not used on one device: samplers, staleness" in found.notes
    with pytest.raises(ValueError, match="weighted and pick do not apply to random walks"):
        lab.train(graph, "pinsage", pick="reservoir", **options)
    notes = lab.train(graph, **{**options, "system": "dsp", "executor": None}).notes
    assert any("threads share the cores" in note for note in notes), "what it does, not what was asked for"


def test_what_a_run_has_no_use_for_is_noted(graph, pair):
    """Whatever the executor, on one device and on ranks."""
    options = {**QUICK, "epochs": 1, "evaluate": False}

    def notes(**given: Any) -> tuple[str, ...]:
        return lab.train(graph, **{**options, **given}).notes

    of_gpus = ("kernels are recorded on GPUs: there are none", "steps are captured on GPUs: there are none")
    module = lab.make_model("sage", graph.num_features, 8, graph.num_classes, num_layers=2)
    budget, alone = "on the CPU budget_gb sizes the cache", "budget_gb is held against the topology alone"
    for given, words in (
        ({"system": "dgl", "executor": "factored", "capacity": 2}, ("not used on one device: capacity",)),
        ({"system": "dgl", "kernels": True, "captured": True}, of_gpus),
        ({"system": "dgl", "kernels": True, "captured": True, "ranks": pair}, of_gpus),
        ({"system": "dgl", "window": 8}, ("window=8 was not used",)),
        ({"model": module, "system": "dgl"}, ("hidden=16 was not used",)),
        (
            {"system": "dgl", "executor": "overlapped", "coordinated": True, "ranks": pair},
            ("coordinated=True was not used",),
        ),
        ({"system": "dgl", "budget_gb": 1}, (alone,)),
        ({"system": "dsp-seq", "budget_gb": 1, "ranks": pair}, (budget,)),
        ({"system": "gnnlab", "budget_gb": 1, "ranks": pair, "executor": "factored"}, (budget,)),
        ({"system": "dgl", "budget_gb": 1, "ranks": pair, "executor": "factored"}, (alone,)),
    ):
        found = notes(**given)
        assert all(any(word in note for note in found) for word in words), (given, found)
    plain = notes(system="dgl", executor="overlapped", ranks=pair)
    assert not any("not used" in note or "budget" in note or "captured" in note for note in plain)
    with pytest.raises(RankError, match=r"budget_gb=1e-06 \(1 kB\) is less than the topology"):
        lab.train(graph, system="dgl", executor="factored", samplers=1, ranks=pair, budget_gb=1e-6, **options)


@pytest.mark.parametrize("options", [{"system": "dsp"}, {"executor": "factored"}])
def test_mini_batches_without_a_labelled_seed_are_counted_once(graph, pair, options):
    last = np.isin(np.arange(graph.num_nodes), graph.splits["train"][:-1])
    some = replace(graph, label=np.where(last, -1, graph.label))
    found = lab.train(some, ranks=pair, **options, **{**QUICK, "epochs": 1, "evaluate": False})
    steps = len(found.losses)
    assert [note for note in found.notes if "labelled" in note] == [
        f"{steps - 1} of {steps} mini-batches had no labelled seed, and no loss (nan)"
    ]


def test_evaluation_draws_other_trees_than_training(graph):
    """Its batch ids, 2**31 on, would come to sample ids of training, which have 40 bits."""
    sampler = TreeSampler(graph, (3, 2), 1024, "cpu", 5)
    seeds = graph.splits["train"][:64]
    drawn = {}
    for number in (0, 128, 2**30, 2**31, 2**31 + 2**30):
        [step] = sampler.sample_many([seeds], number)
        drawn[number] = np.sort(np.asarray(step.node_ids)).tobytes()
    assert len(set(drawn.values())) == len(drawn)
    one = lab.run_app(graph, lab.apps.KHop((3, 2)), seeds, device="cpu", seed=5, first_sample=128 * 1024)
    found = sampler.sample_many([seeds], 128)[0]
    met = np.unique(np.concatenate([seeds, *(step.ravel() for step in one.steps)]))
    assert np.array_equal(met[met >= 0], np.unique(np.asarray(found.node_ids)))


def test_what_systems_with_parts_do_not_do(graph):
    with pytest.raises(ValueError, match="random walks, which system='dsp' does not draw"):
        lab.train(graph, "pinsage", system="dsp", **QUICK)
    with pytest.raises(
        ValueError, match="executor='factored' needs a system whose samplers have the whole topology"
    ):
        lab.train(graph, system="quiver", executor="factored", **QUICK)
    sampler = lab.NeighborSampler(graph, [3, 4], device="cpu")
    with pytest.raises(ValueError, match="sampler cannot be given"):
        lab.train(graph, system="dsp", sampler=sampler, **QUICK)
    with pytest.raises(ValueError, match="policy='presample-shrunk' counts visits"):
        lab.train(graph, system="dsp", policy="presample-shrunk", **QUICK)
    with pytest.raises(ValueError, match="weighted and pick do not apply"):
        lab.train(graph, system="nextdoor", weighted=True, **QUICK)


@pytest.mark.parametrize("ratio", ["half", True])
def test_a_cache_ratio_that_is_no_number_is_named_before_ranks_start(graph, ratio):
    with pytest.raises(TypeError, match="cache_ratio must be a number"):
        lab.train(graph, system="dsp", ranks=2, cache_ratio=ratio, **QUICK)


def test_more_ranks_than_vertices_are_refused_before_they_start():
    small = lab.Graph.from_edges(
        [0, 1], [1, 1], 3, feat=np.ones((3, 2), np.float32), label=[0, 1, 0], splits={"train": [0, 1]}
    )
    with pytest.raises(ValueError, match=r"ranks must be at most the 3 vertices of the graph.*\(got 4\)"):
        lab.train(small, system="dsp", ranks=4, **QUICK)
    with pytest.raises(ValueError, match="ranks must be at most"), saved_parts(small, find("dsp"), 4):
        pass


# ---- NextDoor -----------------------------------------------------------------------------------------------------


def test_trees_are_those_of_the_engine(graph):
    sampler = TreeSampler(graph, [3, 4], 64, "cpu", 5)
    epoch = sampler.epoch(graph.splits["train"], 64)
    seeds = [epoch.batch_seeds(i) for i in range(3)]
    together = sampler.sample_many(seeds, 7)
    for number, (batch, some) in enumerate(zip(together, seeds, strict=True)):
        result = lab.run_app(
            graph, lab.apps.KHop([3, 4]), some, device="cpu", seed=5, first_sample=(7 + number) * 64
        )
        np.testing.assert_array_equal(batch.seeds, some)
        first, second = batch.blocks[1], batch.blocks[0]
        picked = result.steps[0].reshape(-1)
        given = np.where(picked >= 0, picked, np.repeat(some, 3))
        np.testing.assert_array_equal(first.src[first.indices], given)
        assert (first.num_dst, second.num_dst, batch.num_edges) == (len(some), 4 * len(some), len(some) * 15)


def test_trees_do_not_depend_on_who_draws_them(graph, pair):
    alone = lab.train(graph, system="nextdoor", **QUICK)
    found = lab.train(graph, system="nextdoor", ranks=pair, **QUICK)
    np.testing.assert_allclose(found.losses, alone.losses, atol=1e-5)
    assert found.accuracy == pytest.approx(alone.accuracy) and alone.accuracy[-1] > 0.5
    assert any("drawn with replacement" in note for note in alone.notes)
    sampler = TreeSampler(graph, [3], 2, "cpu", 0, 0, 2)
    [empty, some] = sampler.sample_slices([np.array([4]), np.array([5, 6])], 3)
    assert isinstance(empty, NoBatch) and empty.batch_id == 3 and some.seeds.tolist() == [5]


@pytest.mark.parametrize("index", [None, "auto"])
def test_nextdoors_trees_are_grouped_as_published_unless_another_index_is_asked_for(
    graph, index, monkeypatch
):
    asked = []

    def noted(*args, **options):
        asked.append(options["index"])
        return lab.run_app(*args, **options)

    monkeypatch.setattr("gnnsample_lab.systems.trees.run_app", noted)
    system = replace(find("nextdoor"), index=index) if index else "nextdoor"
    notes = lab.train(graph, system=system, **QUICK).notes
    assert set(asked) == {index or "published"}
    assert "on the CPU trees are drawn sample by sample: no index groups them by transit" in notes


def test_what_groups_trees_on_a_gpu_is_said():
    said = {
        index: _index_note(SimpleNamespace(device="cuda", grouped=index)) for index in ("published", "auto")
    }
    assert said == {
        "published": "pairs of sample and transit are grouped with index='published', NextDoor's as published",
        "auto": "pairs of sample and transit are grouped with index='auto', not NextDoor's as published",
    }


def test_trees_take_only_indexes_that_there_are(graph):
    with pytest.raises(ValueError, match="grouped must be one of .*'published'.*got 'papers'"):
        TreeSampler(graph, [3], 2, "cpu", 0, grouped="papers")


def test_windows_that_wait_nowhere_are_said(graph, pair):
    """FastGL's lie in host memory for one GPU with the serial executor alone."""
    options = {**QUICK, "system": "fastgl"}
    notes = lab.train(graph, ranks=pair, **options).notes
    assert any("none are sampled ahead to wait in host memory" in note for note in notes)
    notes = lab.train(graph, ranks=pair, executor="factored", **options).notes
    assert "mini-batches keep their order; none are sampled ahead to wait in host memory" in notes
    trainer = {"order": len, "executor": "thread", "parking": None, "features": None}
    for device, sampler, note in (("cuda", "cuda", True), ("cuda", "cpu", False), ("cpu", "cpu", False)):
        made = SimpleNamespace(**trainer, device=device, sampler=SimpleNamespace(device=sampler))
        assert bool(_order_notes(find("fastgl"), made, "greedy")) == note, (device, sampler)
        assert not _order_notes(find("lab"), made, "greedy")
    fused = FusedSource(lab.FusedSampler(graph, [3, 4], device="cpu"))
    own = {**trainer, "device": "cuda", "sampler": SimpleNamespace(device="cuda"), "executor": "serial"}
    made = SimpleNamespace(**{**own, "features": fused})
    assert _order_notes(find("fastgl"), made, "greedy") == [
        "windows of mini-batches wait where they were sampled, a FusedSampler's have no edges to copy"
    ]


def test_memory_that_other_ranks_read_is_counted_before_it_is_given_back(graph, pair, monkeypatch):
    monkeypatch.setattr("gnnsample_lab.systems.ranks.train_slices", ranked.train_slices_counting_blocks)
    monkeypatch.setattr("gnnsample_lab.systems.train.train_factored", ranked.train_factored_counting_blocks)
    found = lab.train(graph, system="quiver", ranks=pair, **QUICK)
    assert all(memory.peers > 0 for memory in found.memory)
    options = {"system": "gnnlab", "executor": "factored", "samplers": 1, "handover": "peer"}
    sampler, trainer = lab.train(graph, ranks=pair, **QUICK, **options).memory
    assert sampler.peers > 0 == trainer.peers
    monkeypatch.setattr(Trainer, "held", ranked.blocks_held)
    [memory] = lab.train(graph, system="quiver", **QUICK).memory
    assert memory.peers > 0


# ---- {time sharing, factored} x {degree, PreSC} at one budget ------------------------------------------------------


@pytest.mark.parametrize("policy", ["degree", "presample"])
def test_trainers_without_topology_cache_more(graph, pair, policy):
    topology = graph.indptr.nbytes + graph.indices.nbytes + graph.edge_weight.nbytes
    budget = topology + table_bytes(600) + 100 * 40
    options = {**QUICK, "budget_gb": budget / 1e9, "policy": policy, "ranks": pair, "system": "gnnlab"}
    sharing = lab.train(graph, executor="serial", **options)
    overlapped = lab.train(graph, executor="overlapped", **options)
    factored = lab.train(graph, executor="factored", samplers=1, **options)
    for found in (overlapped, factored):  # one trainer: the updates of one device
        np.testing.assert_allclose(found.losses, sharing.losses, atol=1e-4)
    assert sharing.cache_ratio == overlapped.cache_ratio == pytest.approx(100 / 600, abs=0.002)
    assert factored.cache_ratio == 1.0 > sharing.cache_ratio
    sampler, trainer = factored.memory
    assert (sampler.role, sampler.cache, trainer.role, trainer.topology) == ("sampler", 0, "trainer", 0)
    assert sampler.topology == topology and trainer.cache > max(m.cache for m in sharing.memory) > 0
    assert f"{factored.cache_ratio:.0%} of the vertices cached" in str(factored)


@pytest.mark.parametrize("executor", ["serial", "factored"])
def test_cache_gb_on_ranks_is_each_rank_s(graph, pair, executor):
    """As many rows as fit beside the table of places; of the factored design on the trainer, which has no topology."""
    row_bytes = graph.feat.shape[1] * graph.feat.itemsize
    wanted = table_bytes(graph.num_nodes) + 50 * row_bytes
    more = {"executor": executor, **({"samplers": 1, "switching": False} if executor == "factored" else {})}
    found = lab.train(graph, system="gnnlab", ranks=pair, cache_gb=wanted / 1e9, **more, **QUICK)
    trains = [m for m in found.memory if m.role != "sampler"]
    assert trains and all(m.cache == wanted for m in trains)
    assert found.cache_ratio == 50 / graph.num_nodes and "cache of " in found.origin
    with pytest.raises(ValueError, match="give one of"):
        lab.train(graph, system="gnnlab", ranks=pair, cache_gb=1.0, cache_ratio=0.5, **more, **QUICK)


class _Telling(torch.nn.Module):
    """Notes with which seed dropout draws in its process."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder, self.inner = folder, lab.make_model("sage", 12, 8, 5, num_layers=2)

    def forward(self, blocks: Any, x: Any) -> Any:
        (Path(self.folder) / str(os.getpid())).write_text(str(torch.initial_seed()))
        return self.inner(blocks, x)


def test_ranks_draw_masks_of_dropout_of_their_own(graph, pair, tmp_path):
    torch.manual_seed(0)
    model = _Telling(str(tmp_path))
    model.inner = lab.make_model("sage", graph.feat.shape[1], 8, graph.num_classes, num_layers=2)
    lab.train(graph, model, "gnnlab", ranks=pair, seed=7, **QUICK)
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["7", "8"]


class _Drawing(torch.nn.Module):
    """Writes down what its process draws for each mini-batch, as dropout would."""

    def __init__(self, folder: str, features: int, classes: int) -> None:
        super().__init__()
        self.folder, self.inner = folder, torch.nn.Linear(features, classes)

    def forward(self, blocks: Any, x: Any) -> Any:
        if self.training:
            with (Path(self.folder) / str(os.getpid())).open("a") as file:
                file.write(f"{torch.rand(4).tolist()}\n")
        return self.inner(x[: blocks[-1].num_dst])


def test_trainers_draw_masks_of_their_own_after_they_resume_too(graph, pair, tmp_path):
    options = {
        **QUICK, "system": "dgl", "ranks": pair, "executor": "factored", "samplers": 2, "evaluate": False,
        "seed": 2**64 - 1, "cache_ratio": 0.5, "reorder": "greedy",
    }  # fmt: skip
    for number, more in enumerate(({"epochs": 1, "checkpoint": tmp_path / "run.pt"}, {"epochs": 3})):
        folder = tmp_path / str(number)
        folder.mkdir()
        resume = {"resume": tmp_path / "run.pt"} if number else {}
        model = _Drawing(str(folder), graph.num_features, graph.num_classes)
        found = lab.train(graph, model, **{**options, **more, **resume})
        first, second = (set(path.read_text().splitlines()) for path in folder.iterdir())
        assert first and second and not first & second
    assert "'dgl' has no cache: its size was not used" in found.notes
    assert "mini-batches keep their order: trainers take them as they come" in found.notes
