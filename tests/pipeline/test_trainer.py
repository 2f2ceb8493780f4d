"""The training loop on the CPU against a loop written out by hand, and its records."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import FeatureCache, Graph, MatchedFeatures, NeighborSampler, make_model
from gnnsample_lab.device import runtime
from gnnsample_lab.pipeline import executors
from gnnsample_lab.pipeline.features import CachedSource, FusedSource, MatchedSource, totals
from gnnsample_lab.pipeline.records import EpochRecord, TrainResult
from gnnsample_lab.pipeline.trainer import EVALUATION_BATCHES, Trainer

torch = pytest.importorskip("torch")


def make_trainer(graph: Graph, ratio: float = 0.3, matched: bool = False, **options: Any) -> Trainer:
    sampler = NeighborSampler(graph, [3, 4], device="cpu", seed=2)
    cache = FeatureCache(graph.feat, graph.out_degrees(), ratio=ratio, device="cpu")
    torch.manual_seed(0)
    model = make_model("gcn", graph.num_features, 16, graph.num_classes, num_layers=2)
    plain = CachedSource(cache)
    source = MatchedSource(MatchedFeatures(cache)) if matched else plain
    return Trainer(
        graph, sampler, source, model, batch_size=64, lr=0.01, device="cpu", plain_features=plain, **options
    )


def test_losses_are_those_of_a_plain_loop(graph):
    trainer = make_trainer(graph)
    trainer.epoch(0)
    trainer.epoch(1)
    torch.manual_seed(0)
    model = make_model("gcn", graph.num_features, 16, graph.num_classes, num_layers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    expected = []
    for epoch in range(2):
        sampler = NeighborSampler(graph, [3, 4], device="cpu", seed=2)
        for batch in sampler.epoch(graph.splits["train"], 64, epoch=epoch):
            logits = model(batch.blocks, torch.from_numpy(graph.feat[batch.node_ids]))
            loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(graph.label[batch.seeds]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            expected.append(loss.item())
    assert trainer.losses == pytest.approx(expected, rel=1e-5)
    assert trainer.batch_ids == list(range(10))


@pytest.mark.parametrize("progress", [False, True])
def test_features_of_a_step_are_let_go_of_before_the_next_are_extracted(graph, progress):
    """A budget's trial step counts one set of rows for stages that run one after the other."""
    trainer = make_trainer(graph, progress=progress)
    extract, before, alive = trainer.features.extract, [], []

    def watched(batch, marks):
        alive.append([ref() is not None for ref in before])
        x, stats = extract(batch, marks)
        before.append(weakref.ref(x))
        return x, stats

    trainer.features.extract = watched
    trainer.epoch(0)
    assert len(alive) == 5 and not any(map(any, alive))


def test_records_count_what_was_moved(graph):
    record = make_trainer(graph).epoch(0)
    sampler = NeighborSampler(graph, [3, 4], device="cpu", seed=2)
    batches = list(sampler.epoch(graph.splits["train"], 64, epoch=0))
    cached = np.zeros(graph.num_nodes, dtype=bool)
    cached[np.argsort(-graph.out_degrees(), kind="stable")[: round(0.3 * graph.num_nodes)]] = True
    rows = sum(len(b.node_ids) for b in batches)
    hits = sum(int(cached[b.node_ids].sum()) for b in batches)
    assert (record.rows, record.num_batches) == (rows, 5)
    assert record.hit_rate == pytest.approx(hits / rows)
    assert record.bytes_moved == (rows - hits) * 40
    assert record.num_edges == sum(b.num_edges for b in batches)
    assert record.reused_rows == 0 and record.peak_bytes == 0
    times = record.sample_us, record.extract_us, record.train_us
    assert min(times) > 0 and record.reorder_us == 0
    assert sum(times) <= record.total_us


def test_match_reuses_the_batch_before(graph):
    record = make_trainer(graph, ratio=0.0, matched=True).epoch(0)
    sampler = NeighborSampler(graph, [3, 4], device="cpu", seed=2)
    ids = [set(b.node_ids.tolist()) for b in sampler.epoch(graph.splits["train"], 64, epoch=0)]
    shared = sum(len(a & b) for a, b in itertools.pairwise(ids))
    assert record.reused_rows == shared > 0
    assert record.bytes_moved == (record.rows - shared) * 40


def test_an_epoch_begins_without_the_rows_of_the_last(graph):
    trainer = make_trainer(graph, ratio=0.0, matched=True)
    first, again = trainer.epoch(0), trainer.epoch(0)
    assert again.bytes_moved == first.bytes_moved


def test_an_epoch_ends_without_rows(graph):
    """They would lie beside those of evaluation."""
    trainer = make_trainer(graph, matched=True)
    trainer.epoch(0)
    source = trainer.features
    assert source._given is None and source.matched._previous is None


def test_reordering_changes_the_order_of_a_window_and_nothing_else(graph):
    plain, ordered = make_trainer(graph), make_trainer(graph, reorder="greedy", window=5)
    plain.epoch(0)
    record = ordered.epoch(0)
    assert sorted(ordered.batch_ids) == plain.batch_ids
    assert ordered.batch_ids != plain.batch_ids and ordered.batch_ids[0] == 0
    assert record.reorder_us > 0
    assert record.rows == make_trainer(graph).epoch(0).rows


def test_windows_are_ordered_by_themselves(graph):
    trainer = make_trainer(graph, reorder="greedy", window=3)
    trainer.epoch(0)
    assert sorted(trainer.batch_ids[:3]) == [0, 1, 2] and sorted(trainer.batch_ids[3:]) == [3, 4]


def test_accuracy_is_counted_over_the_split(graph):
    trainer = make_trainer(graph)
    ids = graph.splits["valid"]
    right = 0
    for number, begin in enumerate(range(0, 150, 64)):
        batch = trainer.sampler.sample(ids[begin : begin + 64], EVALUATION_BATCHES + number)
        with torch.no_grad():
            logits = trainer.model(batch.blocks, torch.from_numpy(graph.feat[batch.node_ids]))
        right += int((logits.argmax(1).numpy() == graph.label[batch.seeds]).sum())
    assert trainer.evaluate("valid") == pytest.approx(right / 150)
    assert trainer.evaluate(ids) == trainer.evaluate("valid")


def test_a_split_that_repeats_vertices_has_no_accuracy(graph):
    """Within a mini-batch they would count once, so that it would depend on the batch size."""
    repeated = Graph(
        graph.indptr,
        graph.indices,
        feat=graph.feat,
        label=graph.label,
        splits={"train": [1, 2], "valid": [5, 3, 5]},
    )
    trainer = make_trainer(repeated)
    with pytest.raises(ValueError, match="split 'valid' must name each vertex once .got vertex 5 2 times"):
        trainer.evaluate("valid")
    with pytest.raises(ValueError, match="split must name each vertex once .got vertex 9 3 times"):
        trainer.evaluate([9, 9, 9])
    assert 0 <= trainer.evaluate([5, 3]) <= 1
    for ids in ([3, -1], [2**40, 3]):  # their own error, and no table of so many vertices
        with pytest.raises(ValueError, match="must be vertex ids in 0"):
            trainer.evaluate(ids)


def test_evaluation_does_not_disturb_training(graph):
    with_it, without = make_trainer(graph), make_trainer(graph)
    with_it.epoch(0)
    with_it.evaluate("test")
    with_it.epoch(1)
    without.epoch(0)
    without.epoch(1)
    assert with_it.losses == without.losses


def test_a_model_learns(graph):
    trainer = make_trainer(graph)
    for epoch in range(12):
        trainer.epoch(epoch)
    assert np.mean(trainer.losses[-5:]) < 0.6 * trainer.losses[0]
    assert trainer.evaluate("test") > 0.6  # four classes of a quarter each


def test_vertices_without_a_label_count_for_nothing(graph):
    label = graph.label.copy()
    label[graph.splits["train"][:200]] = -1
    label[graph.splits["valid"][10:]] = -1
    partly = Graph(graph.indptr, graph.indices, feat=graph.feat, label=label, splits=graph.splits)
    trainer = make_trainer(partly)
    trainer.epoch(0)
    assert all(math.isfinite(loss) for loss in trainer.losses)
    assert trainer.evaluate("valid") * 10 == pytest.approx(round(trainer.evaluate("valid") * 10))


def test_micro_f1_of_multi_label_data(multi_label_graph):
    trainer = make_trainer(multi_label_graph)
    assert trainer.multi_label
    logits = torch.tensor([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]])
    truth = torch.tensor([[1, 0, 0], [1, 0, 1]])
    right, wrong, labelled = trainer._score(logits, truth).tolist()
    assert (right, wrong) == (2, 3) and labelled
    for epoch in range(6):
        trainer.epoch(epoch)
    assert trainer.losses[-1] < trainer.losses[0]
    assert 0.5 < trainer.evaluate("valid") <= 1


def test_misuse_is_named(graph):
    with pytest.raises(ValueError, match="executor must be one of"):
        make_trainer(graph, executor="parallel")
    with pytest.raises(
        ValueError, match=r"no vertices in split 'extra' \(it has: 'train', 'valid', 'test'\)"
    ):
        make_trainer(graph).evaluate("extra")
    bare = Graph(graph.indptr, graph.indices, feat=graph.feat)
    with pytest.raises(ValueError, match="has no label"):
        Trainer(bare, None, None, torch.nn.Linear(1, 1), device="cpu")


@pytest.mark.parametrize("held", [False, True])
def test_no_second_thread_while_the_lock_of_the_sampler_is_held(graph, monkeypatch, held):
    asked = []

    def run(name, stages):
        asked.append(name)
        return (nothing for nothing in ())

    monkeypatch.setattr(executors, "run", run)
    trainer = make_trainer(graph)
    trainer.executor = "thread"
    with runtime.lock if held else contextlib.nullcontext():
        trainer.epoch(0)
    assert asked == ["serial" if held else "thread"]


class _Stats:
    rows, hits, bytes_moved, reused, picks = 10, 3, 80, 2, 0


def test_totals_of_statistics():
    assert totals([_Stats, _Stats]) == {
        "rows": 20, "bytes_moved": 160, "reused_rows": 4, "hit_rate": pytest.approx(6 / 16)
    }  # fmt: skip
    assert math.isnan(totals([_Stats], cached=False)["hit_rate"])
    assert math.isnan(totals([])["hit_rate"])


def test_a_result_as_a_frame():
    epochs = [
        EpochRecord(1.0, 2.0, 3.0, 7.0, num_batches=2),
        EpochRecord(1.0, 1.0, 1.0, 4.0, num_batches=2),
    ]
    losses = [3.0, 1.0, 0.75, 0.25]
    result = TrainResult(
        "lab", "gcn", "g", "cpu", "measured on the CPU", losses, [0, 1, 2, 3], [0.5], "valid", epochs
    )
    frame = result.to_frame()
    assert frame["loss"].tolist() == [2.0, 0.5]
    gaps = replace(result, losses=[3.0, math.nan, math.inf, math.nan]).to_frame()["loss"]
    assert gaps[0] == 3.0 and math.isnan(gaps[1])
    assert frame["total_us"].tolist() == [7.0, 4.0]
    assert frame["accuracy"][0] == 0.5 and math.isnan(frame["accuracy"][1])
    assert result.steady is epochs[1]
    assert "lab: gcn on g" in str(result)


def test_a_model_may_change_its_input_where_rows_are_reused(graph):
    class Halving(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(graph.num_features, graph.num_classes)

        def forward(self, blocks: Any, x: Any) -> Any:
            return self.inner(x.mul_(0.5)[: blocks[-1].num_dst])

    torch.manual_seed(0)
    model = Halving()
    options: dict[str, Any] = {
        "batch_size": 32, "fanouts": [3], "device": "cpu", "progress": False, "pick": "floyd", "reorder": "none",
    }  # fmt: skip
    expected = lab.train(graph, copy.deepcopy(model), "dgl", executor="serial", **options)
    found = lab.train(graph, copy.deepcopy(model), "fastgl", executor="serial", **options)
    assert found.settings["match"] and found.losses == expected.losses
    assert found.to_frame()["reused_rows"].tolist() == [0]
    with pytest.raises(RuntimeError, match="changes x in place.*got executor='overlapped'"):
        lab.train(graph, copy.deepcopy(model), "fastgl", executor="overlapped", **options)


def test_mini_batches_without_edges_are_neither_stored_nor_copied(graph, monkeypatch):
    sampler = lab.FusedSampler(graph, [3, 4], device="cpu")
    with pytest.raises(ValueError, match="executor must not be 'factored' with a FusedSampler"):
        lab.train(graph, "sage", "dgl", sampler=sampler, executor="factored", device="cpu", progress=False)
    monkeypatch.setattr(runtime, "resolve_device", lambda device: device)
    model = make_model("sage", graph.num_features, 16, graph.num_classes, num_layers=2)
    with pytest.raises(ValueError, match="sampler must be on the GPU for a model there"):
        Trainer(graph, sampler, FusedSource(sampler), model, device="cuda")
