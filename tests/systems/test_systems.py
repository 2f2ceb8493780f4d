"""Every system trains a plain loop's model on its mini-batches; `lab.systems` is package and function at once.

On a CPU a system is its samples, cache, match, order and executor: strategy, ID map and kernel choose nothing there.
``test_gpu_training.py`` runs those.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.features.caching.slots import table_bytes
from gnnsample_lab.features.caching.stats import TRANSFERS
from gnnsample_lab.features.ranking.hotness import POLICIES
from gnnsample_lab.pipeline.executors import EXECUTORS
from gnnsample_lab.systems import generators
from gnnsample_lab.systems import train as train_module
from gnnsample_lab.systems.table import MATCHES, SYSTEMS, find
from tests.minibatch import reference

torch = pytest.importorskip("torch")

QUICK = {
    "fanouts": (3, 4), "hidden": 16, "batch_size": 64, "lr": 0.01, "device": "cpu", "progress": False, "window": 3,
}  # fmt: skip
NEEDED = {"dgl", "pyg-cpu", "gnnadvisor-style", "tsota", "gnnlab", "fastgl", "lab"}
ADDED = {"pgsampler", "nextdoor", "dgl-uva", "quiver", "dsp-seq", "dsp"}
MODELS = ["gcn", "sage", "gin", "gat", "pinsage"]


@pytest.mark.parametrize(
    "statements",
    [
        "import gnnsample_lab as lab; s = lab.systems",
        "import gnnsample_lab.systems, gnnsample_lab as lab; s = lab.systems",
        "import gnnsample_lab.systems.table as t, gnnsample_lab as lab; s = lab.systems; assert t.SYSTEMS",
        "from gnnsample_lab import systems as s; import gnnsample_lab as lab",
        "import gnnsample_lab as lab; lab.systems(); import gnnsample_lab.systems.train as t; s = lab.systems; t.train",
        "import gnnsample_lab as lab; lab.train; s = lab.systems; import gnnsample_lab.systems",
    ],
)
def test_systems_can_be_called_after_every_order_of_imports(statements):
    code = (
        statements
        + "; assert 'lab' in s() and s is lab.systems; from gnnsample_lab.systems import System, table; "
        "assert set(s()) == set(table.SYSTEMS) == set(lab.systems.SYSTEMS)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_table_names_parts_that_exist():
    assert set(lab.systems()) == NEEDED | ADDED
    for name, system in SYSTEMS.items():
        assert system.name == name and system.about and system.source
        assert system.strategy in lab.strategies()
        assert system.id_map in lab.id_maps()
        assert system.kernel in {*lab.aggregation_kernels(), "auto"}
        assert system.executor in EXECUTORS and system.match in MATCHES
        assert system.transfer in {"auto", *TRANSFERS} and system.sample_device in ("cpu", "cuda")
        assert system.cache is None or system.cache in {*POLICIES, "in-degree"}


def test_a_split_that_repeats_vertices_is_refused(graph):
    """A mini-batch has a seed once, so that losses would depend on how seeds fall together."""
    train = graph.splits["train"]
    repeated = dataclasses.replace(graph, splits={**graph.splits, "train": np.append(train, train[3])})
    with pytest.raises(
        ValueError, match=f"split 'train' must name each vertex once .got vertex {train[3]} 2 times"
    ):
        lab.train(repeated, epochs=1, **QUICK)


@pytest.mark.parametrize(("model", "told"), [("gcn", True), ("gat", False)])
def test_heads_of_a_model_without_any_are_noted(graph, model, told):
    notes = lab.train(graph, model, epochs=1, heads=2, **QUICK).notes
    assert any("heads=2 was not used" in note for note in notes) == told


@pytest.mark.parametrize(("system", "told"), [("gnnlab", True), ("dgl", True), ("lab", False)])
def test_walks_of_other_systems_are_said_to_be_drawn_by_ours(graph, system, told):
    notes = lab.train(graph, "pinsage", system, epochs=1, **QUICK).notes
    assert any("one sampler of this library" in note and repr(system) in note for note in notes) == told


@pytest.mark.parametrize("options", [{}, {"on_progress": lambda part: None}], ids=["alone", "told"])
def test_a_run_is_gone_without_the_collector(graph, monkeypatch, options):
    """In a cycle of references its cache and its graph would stay on a GPU until Python's collector comes."""
    prepare, made = train_module.prepare, []

    def noted(*args: Any, **given: Any) -> Any:
        ready = prepare(*args, **given)
        made[:] = [weakref.ref(ready.trainer), weakref.ref(ready.trainer.plain_features.cache)]
        return ready

    monkeypatch.setattr(train_module, "prepare", noted)
    lab.train(graph, system="fastgl", epochs=1, **QUICK)  # what is imported at first makes cycles of its own
    gc.collect()
    gc.disable()
    try:
        lab.train(graph, system="fastgl", epochs=1, **QUICK, **options)
        assert [one() for one in made] == [None, None]
    finally:
        gc.enable()


def test_a_run_tells_how_it_goes(graph, monkeypatch):
    monkeypatch.setattr("gnnsample_lab.pipeline.trainer.TOLD_S", 0.0)
    told: list[Any] = []
    found = lab.train(graph, system="dgl", pick="floyd", epochs=3, **QUICK, on_progress=told.append)
    assert [len(part.losses) for part in told] == list(range(1, 16)) and len(found.losses) == 15
    for part in told:
        assert part.losses == found.losses[: len(part.losses)] and part.origin == found.origin
        assert part.batch_ids == found.batch_ids[: len(part.losses)]
        assert len(part.epochs) == (len(part.losses) - 1) // 5
        assert f"loss {part.losses[-1]:.3f}, " in str(part)  # on_progress=print
        assert part.accuracy == found.accuracy[: len(part.epochs)]
    alone = lab.train(graph, system="dgl", pick="floyd", epochs=3, **QUICK)
    assert alone.losses == found.losses
    monkeypatch.setattr("gnnsample_lab.pipeline.trainer.TOLD_S", 1e9)
    told.clear()
    lab.train(graph, system="dgl", pick="floyd", epochs=3, **QUICK, on_progress=told.append)
    assert [len(part.losses) for part in told] == [1], "the first step, and then not at every one"

    def stop(_: Any) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        lab.train(graph, system="dgl", epochs=3, **QUICK, on_progress=stop)
    with pytest.raises(TypeError, match="on_progress"):
        lab.train(graph, system="dgl", **QUICK, on_progress=3)
    with pytest.raises(ValueError, match="on_progress is for one device"):
        lab.train(graph, system="dgl", **QUICK, on_progress=stop, ranks=2)


@pytest.fixture(scope="module")
def plain_batches(graph) -> list[tuple[Any, list[Any]]]:
    """Two epochs in plain Python: of each mini-batch, its sample and a dense matrix of edges per layer."""
    train, found = graph.splits["train"], []
    for epoch in range(2):
        order = np.random.default_rng([0, epoch]).permutation(train.size)
        for i in range(5):
            seeds = train[order[64 * i : 64 * i + 64]].tolist()
            drawn = reference.sample(graph, seeds, QUICK["fanouts"], 5 * epoch + i)
            place = {v: at for at, v in enumerate(drawn.nodes)}
            edges = []
            for hop, size in zip(drawn.hops, drawn.levels[1:], strict=True):
                edges.append(torch.zeros(len(hop.frontier), size))
                for row, positions in enumerate(hop.positions):
                    for at in positions:
                        edges[-1][row, place[int(graph.indices[at])]] += 1
            found.append((drawn, edges[::-1]))
    return found


def plain_losses(graph: Any, batches: list[tuple[Any, list[Any]]], order: list[int]) -> list[float]:
    """Losses of a GCN on them, one after the other; the library gives its initial weights alone."""
    torch.manual_seed(0)
    model = lab.make_model("gcn", graph.num_features, QUICK["hidden"], graph.num_classes, num_layers=2)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=QUICK["lr"]), []
    for number in order:
        drawn, edges = batches[number]
        x = torch.from_numpy(graph.feat[drawn.nodes])
        for depth, (layer, matrix) in enumerate(zip(model.layers, edges, strict=True)):
            x = x.relu() if depth else x
            mean = (matrix @ x + x[: len(matrix)]) / (matrix.sum(1, keepdim=True) + 1)
            x = mean @ layer.linear.weight.T + layer.bias
        loss = torch.nn.functional.cross_entropy(x, torch.from_numpy(graph.label[drawn.nodes[: len(x)]]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_has_the_losses_of_a_plain_loop(graph, plain_batches, name):
    found = lab.train(graph, system=name, pick="floyd", epochs=2, **QUICK)
    assert found.system == name and len(found.epochs) == 2
    assert sorted(found.batch_ids) == list(range(10))
    assert SYSTEMS[name].reorder is not None or found.batch_ids == list(range(10))
    wanted = plain_losses(graph, plain_batches, found.batch_ids)
    if SYSTEMS[name].trees:  # its own samples of the same seeds
        assert found.losses != wanted
        assert np.mean(found.losses[5:]) == pytest.approx(np.mean(wanted[5:]), rel=0.05)
    else:
        assert found.losses == pytest.approx(wanted, rel=1e-4)
        assert found.epochs[0].rows == sum(len(drawn.nodes) for drawn, _ in plain_batches[:5])
    assert found.accuracy_split == "valid" and len(found.accuracy) == 2
    assert found.device == "cpu" and found.origin == "measured on the CPU"
    assert any("on the CPU" in note for note in found.notes)


def test_a_systems_former_name_is_taken(graph):
    assert find("gnnadvisor") is find("gnnadvisor-style") and "gnnadvisor" not in lab.systems()
    before = lab.train(graph, system="gnnadvisor", evaluate=False, **QUICK)
    assert before.system == "gnnadvisor-style"
    by_kernel = lab.train(graph, kernel="gnnadvisor", evaluate=False, **QUICK)
    assert by_kernel.settings["kernel"] == "gnnadvisor-style"


def test_what_sets_the_systems_apart(graph):
    runs = {name: lab.train(graph, system=name, evaluate=False, **QUICK) for name in NEEDED}
    first = {name: run.epochs[0] for name, run in runs.items()}
    for name in ("dgl", "pyg-cpu", "gnnadvisor-style"):
        assert math.isnan(first[name].hit_rate) and runs[name].cache_ratio == 0
        assert first[name].bytes_moved == first[name].rows * 40
    for name in ("tsota", "gnnlab"):
        assert first[name].hit_rate > 0.25 and first[name].reused_rows == 0
        assert runs[name].cache_ratio == pytest.approx(0.25)
    for name in ("fastgl", "lab"):
        assert first[name].reused_rows > 0 and first[name].reorder_us > 0
        assert first[name].bytes_moved < first["gnnlab"].bytes_moved
    assert not runs["lab"].accuracy and runs["lab"].accuracy_split == ""


@pytest.mark.parametrize("model", MODELS)
def test_every_model_learns(graph, model):
    options = {**QUICK, "lr": 0.03}
    result = lab.train(graph, model=model, epochs=5, **options)
    assert result.model == model
    assert np.mean(result.losses[-5:]) < 0.8 * np.mean(result.losses[:2])
    assert result.accuracy[-1] > 0.5
    again = lab.train(graph, model=model, epochs=1, **options)
    assert again.losses == result.losses[:5] and again.accuracy == result.accuracy[:1]
    other = lab.train(graph, model=model, epochs=1, seed=1, evaluate=False, **options)
    assert other.losses != result.losses[:5]


def test_sizes_of_the_cache(graph):
    by_ratio = lab.train(graph, cache_ratio=0.5, evaluate=False, **QUICK)
    assert by_ratio.cache_ratio == pytest.approx(0.5)
    whole = lab.train(graph, cache_ratio=1.0, evaluate=False, **QUICK)
    assert whole.epochs[0].bytes_moved == 0 and whole.epochs[0].hit_rate == 1
    # Nothing is missing, so there is nothing to match and no reason to leave the order.
    assert whole.batch_ids == sorted(whole.batch_ids) and not whole.settings["match"]
    some = lab.train(graph, capacity_bytes=40 * 100 + table_bytes(graph.num_nodes), evaluate=False, **QUICK)
    assert some.cache_ratio == pytest.approx(100 / graph.num_nodes)
    unused = lab.train(graph, system="dgl", cache_ratio=0.5, evaluate=False, **QUICK)
    assert unused.cache_ratio == 0 and any("no cache" in note for note in unused.notes)
    with pytest.raises(ValueError, match="not both"):
        lab.train(graph, cache_ratio=0.5, capacity_bytes=10, **QUICK)
    with pytest.raises(ValueError, match=r"cache_ratio must be between 0 and 1 \(got 1.5\)"):
        lab.train(graph, cache_ratio=1.5, **QUICK)


def test_the_order_can_be_chosen(graph):
    kept = lab.train(graph, system="fastgl", reorder="none", evaluate=False, **QUICK)
    assert kept.batch_ids == [0, 1, 2, 3, 4]
    changed = lab.train(graph, system="dgl", reorder="exact", evaluate=False, **{**QUICK, "window": 5})
    assert sorted(changed.batch_ids) == kept.batch_ids and changed.settings["reorder"] == "exact"
    with pytest.raises(ValueError, match="reorder must be one of"):
        lab.train(graph, reorder="best", **QUICK)


def test_weights_and_samplers_of_ones_own(graph):
    plain = lab.train(graph, evaluate=False, **QUICK)
    weighted = lab.train(graph, weighted=True, evaluate=False, **QUICK)
    assert weighted.losses != plain.losses
    own = lab.NeighborSampler(graph, [3, 4], device="cpu", seed=0)
    given = lab.train(graph, sampler=own, evaluate=False, **QUICK)
    assert given.losses == plain.losses
    with pytest.raises(ValueError, match="belong to the default sampler"):
        lab.train(graph, sampler=own, weighted=True, **QUICK)


def test_a_system_and_a_model_of_ones_own(graph):
    mine = replace(SYSTEMS["lab"], name="mine", cache="degree", reorder=None)
    net = lab.make_model("sage", graph.num_features, 16, graph.num_classes, num_layers=2)
    result = lab.train(graph, net, mine, evaluate="test", **QUICK)
    assert result.system == "mine" and result.network is net and result.accuracy_split == "test"
    assert find(mine) is mine


def test_multi_label_data(multi_label_graph):
    result = lab.train(multi_label_graph, epochs=6, **QUICK)
    assert result.losses[-1] < result.losses[0] < 1.5 and result.accuracy[-1] > 0.5


def test_the_callers_random_numbers_are_left_alone(graph):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    lab.train(graph, dropout=0.5, evaluate=False, **QUICK)
    assert torch.equal(torch.rand(2), expected)


def test_dropout_is_repeatable(graph):
    one, two = (lab.train(graph, dropout=0.5, evaluate=False, **QUICK) for _ in range(2))
    assert one.losses == two.losses
    assert one.losses != lab.train(graph, evaluate=False, **QUICK).losses


def test_rows_of_a_sampler_that_sums_them_are_its_own(graph):
    other = replace(graph, feat=graph.feat * 2)
    notes = [
        lab.train(graph, sampler=lab.FusedSampler(of, [3, 4], device="cpu"), evaluate=False, **QUICK).notes
        for of in (graph, other)
    ]
    said = [
        [note for note in each if "rows of features are those that the sampler sums" in note]
        for each in notes
    ]
    assert [len(each) for each in said] == [0, 1]


def test_what_a_graph_must_have(graph):
    def part(**kept):
        return lab.Graph(graph.indptr, graph.indices, name="part", **kept)

    with pytest.raises(ValueError, match="'part' has no feat"):
        lab.train(part(label=graph.label, splits=graph.splits), **QUICK)
    with pytest.raises(ValueError, match="'part' has no label"):
        lab.train(part(feat=graph.feat, splits=graph.splits), **QUICK)
    with pytest.raises(ValueError, match="no vertices in split 'train'"):
        lab.train(part(feat=graph.feat, label=graph.label), **QUICK)
    nobody = np.where(np.isin(np.arange(600), graph.splits["train"]), -1, graph.label)
    with pytest.raises(
        ValueError, match=r"split 'train' must have labelled vertices \(got 300 of graph 'part'"
    ):
        lab.train(part(feat=graph.feat, label=nobody, splits=graph.splits), **QUICK)
    nobody[graph.splits["train"][-1]] = 2
    one = part(feat=graph.feat, label=nobody, splits=graph.splits)
    assert sum(map(math.isfinite, lab.train(one, **QUICK).losses)) == 1, "one label is enough"
    with pytest.raises(ValueError, match=r"evaluate must name a split with vertices \(got 'dev'\)"):
        lab.train(graph, evaluate="dev", **QUICK)
    hidden = np.where(np.isin(np.arange(600), graph.splits["valid"]), -1, graph.label)
    secret = part(feat=graph.feat, label=hidden, splits={**graph.splits, "test": graph.splits["train"][:20]})
    with pytest.raises(ValueError, match=r"evaluate must name a split with labelled vertices \(got 'valid'"):
        lab.train(secret, evaluate="valid", **QUICK)
    found = lab.train(secret, **{**QUICK, "evaluate": True})
    assert found.accuracy_split == "test" and len(found.accuracy) == found.epochs[-1].number + 1
    with pytest.raises(LookupError, match=r"system must be one of 'dgl', .* \(got 'dgk'\)"):
        lab.train(graph, system="dgk", **QUICK)
    with pytest.raises(ValueError, match="dropot"):
        lab.train(graph, torch.nn.Linear(1, 1), dropot=1, **QUICK)


@pytest.mark.parametrize("ranks", [1, 2])
def test_options_that_are_none_are_named_before_anything_is_made(graph, monkeypatch, ranks):
    def nothing(*_: Any, **__: Any) -> None:
        pytest.fail("something was made")

    for name in ("prepare", "saved_parts", "_train_on_ranks"):
        monkeypatch.setattr(train_module, name, nothing)
    options = {**QUICK, "ranks": ranks}
    methods = ", ".join(map(repr, lab.distributed.methods()))
    for model in ("gcn", torch.nn.Linear(1, 1)):
        with pytest.raises(
            TypeError, match=rf"method is a field of a system.*one of {methods} \(got method='no'\)"
        ):
            lab.train(graph, model, "dsp", method="no", **options)
    with pytest.raises(ValueError, match=rf"method must be one of {methods} \(got 'no'\)"):
        lab.train(graph, system=replace(find("dsp"), method="no"), **options)
    with pytest.raises(TypeError, match=r"trees is a field of a system.*\(got trees=True"):
        lab.train(graph, trees=True, **options)
    for name in ("dropot", "name", "num_classes", "rank"):
        with pytest.raises(TypeError, match=rf"options must be among 'pick', 'heads', .*\(got {name}=3"):
            lab.train(graph, **{name: 3}, **options)


@pytest.mark.parametrize("options", [{}, {"system": "dsp"}, {"executor": "factored"}, {"system": "pyg-cpu"}])
def test_mini_batches_without_a_labelled_seed_are_counted(graph, tmp_path, options):
    def notes(given: Any, **more: Any) -> list[str]:
        found = lab.train(given, **options, **QUICK, **more)
        return [note for note in found.notes if "labelled" in note]

    train = graph.splits["train"]
    some = replace(graph, label=np.where(np.isin(np.arange(600), train[:-1]), -1, graph.label))
    saved = {"checkpoint": tmp_path / "run", "epochs": 2}
    assert notes(some, **saved) == ["8 of 10 mini-batches had no labelled seed, and no loss (nan)"]
    assert notes(some, resume=tmp_path / "run", epochs=3) == [
        "4 of 5 mini-batches had no labelled seed, and no loss (nan)"
    ]
    assert not notes(graph)


def test_a_loss_of_labelled_seeds_that_is_nan_is_not_counted(graph):
    broken = replace(graph, feat=np.full_like(graph.feat, np.finfo(np.float32).max))
    found = lab.train(broken, **QUICK)
    assert any(map(math.isnan, found.losses)) and not any("labelled" in note for note in found.notes)


def test_logits_of_another_shape_are_named(graph, multi_label_graph):
    class Wrong(torch.nn.Module):
        def __init__(self, columns: int, change: Any = lambda logits: logits) -> None:
            super().__init__()
            self.inner = lab.make_model("sage", graph.num_features, 8, columns, num_layers=2)
            self.change = change

        def forward(self, blocks: Any, x: Any) -> Any:
            return self.change(self.inner(blocks, x))

    rows = r"model must return logits of 64 rows, one a seed, and "
    for one, model, named in (
        (graph, Wrong(3), r"at least 4 columns, one a class \(got shape \(64, 3\) from a Wrong\)"),
        (graph, Wrong(4, lambda logits: logits[:-1]), r"at least 4 columns.* \(got shape \(63, 4\)"),
        (graph, Wrong(4, lambda logits: logits[0]), r"at least 4 columns.* \(got shape \(4,\)"),
        (multi_label_graph, Wrong(2), r"3 columns, one a task \(got shape \(64, 2\)"),
        (multi_label_graph, Wrong(4), r"3 columns, one a task \(got shape \(64, 4\)"),
    ):
        with pytest.raises(ValueError, match=rows + named):
            lab.train(one, model, "dgl", **QUICK)
    assert len(lab.train(graph, Wrong(5), "dgl", **QUICK).losses) == 5, (
        "more columns than classes are no harm"
    )


def test_a_sampler_of_other_vertices_is_refused(graph):
    """Its ids would be taken for vertices of this graph, whose rows are others."""
    few = lab.Graph.from_edges([0, 1], [1, 2], 300, name="few")
    given = replace(graph, splits={"train": np.arange(200)})
    with pytest.raises(ValueError, match="sampler must be of a graph with the 600 vertices .*got one of 300"):
        lab.train(given, system="dgl", sampler=lab.NeighborSampler(few, [3, 4], device="cpu"), **QUICK)


def test_a_sampler_of_other_edges_is_said(graph):
    pruned = lab.Graph.from_edges([0, 1], [1, 2], 600, name="pruned")
    sampler = lab.NeighborSampler(pruned, [3, 4], device="cpu")
    found = lab.train(graph, system="dgl", sampler=sampler, **QUICK)
    assert any("sampler draws from 2 edges" in note for note in found.notes)
    own = lab.train(graph, system="dgl", sampler=lab.NeighborSampler(graph, [3, 4], device="cpu"), **QUICK)
    assert not any("sampler draws from" in note for note in own.notes)


def test_systems_that_are_compared_begin_with_the_same_weights(graph):
    """One after the other they would go on with what the one before has trained."""
    torch.manual_seed(3)
    model = lab.make_model("sage", graph.num_features, 16, graph.num_classes, num_layers=2)
    before = [p.detach().clone() for p in model.parameters()]
    found = lab.compare(graph, ["dgl", "pyg-cpu"], model, pick="floyd", epochs=1, **QUICK)
    first, second = found
    assert found.notes == ()
    np.testing.assert_allclose(first.losses, second.losses, atol=1e-5)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def test_comparison(graph):
    found = lab.compare(graph, systems=["dgl", "gnnlab", "lab"], epochs=2, **QUICK)
    table = found.table
    assert list(table.index) == ["dgl", "gnnlab", "lab"]
    assert table.loc["dgl", "speedup"] == 1
    for result in found:
        row = table.loc[result.system]
        assert row["epoch_ms"] == pytest.approx(min(e.total_us for e in result.epochs) / 1e3)
        assert row["speedup"] == pytest.approx(table.loc["dgl", "epoch_ms"] / row["epoch_ms"])
        assert row["mb_moved"] == pytest.approx(result.epochs[0].bytes_moved / 1e6, rel=0.5)
    assert len(found) == 3 and found["lab"] is found.results[2]
    with pytest.raises(KeyError):
        found["fastgl"]
    figure = found.figure()
    assert any("dgl" in str(trace.y) for trace in figure.data)
    assert "speedup" in found._repr_html_()
    (note,) = found.notes  # reservoir, Fisher-Yates and Floyd
    assert (
        "dgl: reservoir; gnnlab: fisher-yates; lab: floyd" in note and "the same seeds, other samples" in note
    )
    assert note in str(found) and note in found._repr_html_()
    with pytest.raises(LookupError):
        lab.compare(graph, systems=["dgl", "nonsense"], **QUICK)
    with pytest.raises(ValueError, match="at least one system"):
        lab.compare(graph, systems=[], **QUICK)
    for name in ("checkpoint", "resume"):
        with pytest.raises(ValueError, match=f"{name} must be None for several systems"):
            lab.compare(graph, systems=["dgl", "lab"], **QUICK, **{name: "run.pt"})


def test_runs_in_threads_begin_with_the_weights_of_their_seed(graph):
    """And the caller's generator is as it was after the last of them."""
    options = {**QUICK, "evaluate": False, "seed": 3}
    expected = lab.train(graph, "sage", **options).losses
    torch.manual_seed(11)
    wanted = torch.rand(2)
    torch.manual_seed(11)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(lab.train, graph, "sage", **{**options, "seed": 3 + i % 2}) for i in range(8)]
    assert torch.equal(torch.rand(2), wanted)
    assert [run.result().losses == expected for run in runs] == [True, False] * 4


def test_generators_are_given_back_by_the_last_block():
    torch.manual_seed(5)
    wanted = torch.rand(2)
    torch.manual_seed(5)
    first, second = (generators.given_back("cpu") for _ in range(2))
    first.__enter__()
    torch.manual_seed(1)
    second.__enter__()
    first.__exit__(None, None, None)
    torch.rand(3)
    second.__exit__(None, None, None)
    assert torch.equal(torch.rand(2), wanted) and not generators._kept


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode], ids=lambda one: one.__name__)
def test_training_where_the_caller_wants_no_gradients(graph, around):
    options = {**QUICK, "evaluate": False}
    expected = lab.train(graph, "sage", **options).losses
    with around():
        assert lab.train(graph, "sage", **options).losses == expected
        assert not torch.is_grad_enabled()


@pytest.mark.parametrize("model", MODELS)
def test_the_default_type_is_not_the_models(graph, model):
    expected = lab.train(graph, model, **QUICK)
    torch.set_default_dtype(torch.float64)
    try:
        found = lab.train(graph, model, **QUICK)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.losses == expected.losses and found.accuracy == expected.accuracy


def test_a_module_without_parameters_to_train_is_refused(graph):
    frozen = lab.make_model("sage", graph.num_features, 16, graph.num_classes, num_layers=2)
    for model in (torch.nn.Identity(), frozen.requires_grad_(False)):
        with pytest.raises(ValueError, match="model must have parameters that are trained"):
            lab.train(graph, model, **QUICK)


def test_kernels_are_counted_and_so_is_the_time_in_which_one_runs(monkeypatch):
    """Of what the profiler has seen in the last epoch: copies are none, and kernels beside each other count once."""
    torch = pytest.importorskip("torch")
    from gnnsample_lab.systems import ranks

    seen = [("kernel", "draw", 0, 400), ("kernel", "draw", 300, 300), ("kernel", "sum", 800, 100)]
    seen += [("gpu_memcpy", "copy", 600, 200)]
    events = [{"cat": cat, "name": name, "ts": ts, "dur": dur} for cat, name, ts, dur in seen]

    class Profile:
        def __init__(self, activities):
            assert activities == [torch.profiler.ProfilerActivity.CUDA]

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def export_chrome_trace(self, file):
            Path(file).write_text(json.dumps({"traceEvents": [*events, {"name": "no category"}]}))

    clock = iter([0.0, 1e-3])  # a millisecond
    monkeypatch.setattr(torch.profiler, "profile", Profile)
    monkeypatch.setattr(ranks, "wait_for_device", lambda: None)
    monkeypatch.setattr(ranks.time, "perf_counter", lambda: next(clock))
    job = {"kernels": True, "epochs": 3}
    for epoch in range(3):
        with ranks.kernels_into(job, "cuda", epoch):
            assert "ran" not in job
    assert job["ran"] == {"draw": 2, "sum": 1} and job["busy"] == pytest.approx(0.7)
    for device, asked in (("cpu", True), ("cuda", False)):
        job = {"kernels": asked, "epochs": 1}
        with ranks.kernels_into(job, device, 0):
            pass
        assert "ran" not in job


def test_a_model_for_other_rows_is_an_error_that_names_it(graph):
    options: dict[str, Any] = {"fanouts": (2, 2), "progress": False, "device": "cpu"}
    with pytest.raises(ValueError, match=f"model must take rows of {graph.num_features} features"):
        lab.train(graph, lab.make_model("gcn", graph.num_features + 1, 4, 9, 2), **options)
    with pytest.raises(ValueError, match=r"model must be of torch.float32.*torch.float64"):
        lab.train(graph, lab.make_model("sage", graph.num_features, 4, 9, 2).double(), **options)


def test_a_run_inside_a_callback_leaves_the_outer_ones_masks(graph):
    options: dict[str, Any] = {
        "fanouts": (2, 2), "batch_size": 64, "epochs": 2, "dropout": 0.5, "evaluate": False, "progress": False,
        "device": "cpu",
    }  # fmt: skip
    wanted, inner = lab.train(graph, "gcn", "dgl", **options).losses, []

    def once(_: Any) -> None:
        if not inner:
            inner.append(lab.train(graph, "gcn", "dgl", seed=3, **options).losses)

    assert lab.train(graph, "gcn", "dgl", on_progress=once, **options).losses == wanted
    assert inner[0] != wanted


def test_a_checkpoint_may_be_read_by_whom_the_user_lets(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    options: dict[str, Any] = {"fanouts": (2, 2), "progress": False, "device": "cpu", "evaluate": False}
    usual = os.umask(0o022)
    try:
        lab.train(graph, "gcn", "dgl", checkpoint="~/run.pt", **options)
    finally:
        os.umask(usual)
    (written,) = tmp_path.iterdir()
    assert written.name == "run.pt" and written.stat().st_mode & 0o777 == 0o644


def test_the_callers_default_device_is_not_where_weights_are_drawn(graph):
    import torch

    options: dict[str, Any] = {"fanouts": (2, 2), "progress": False, "device": "cpu", "evaluate": False}
    wanted = lab.train(graph, "gcn", "dgl", **options).losses
    torch.set_default_device("meta")
    try:
        found = lab.train(graph, "gcn", "dgl", **options).losses
    finally:
        torch.set_default_device(None)
    assert found == wanted
