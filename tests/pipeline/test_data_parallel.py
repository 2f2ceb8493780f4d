"""Several ranks train as one device does: gradients, losses, accuracy; checkpoints and their resumption."""

from __future__ import annotations

import copy
import os
import signal
import time
from collections import Counter, OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import FeatureCache, Graph, NeighborSampler, make_model
from gnnsample_lab.distributed.ranks.errors import RankError
from gnnsample_lab.graph.errors import CorruptDataError
from gnnsample_lab.pipeline import checkpoint
from gnnsample_lab.pipeline.exchange import Gradients
from gnnsample_lab.pipeline.features import CachedSource
from gnnsample_lab.pipeline.trainer import Trainer
from gnnsample_lab.systems import ranks as several
from tests.distributed.conftest import left_after
from tests.pipeline.conftest import learnable_graph

torch = pytest.importorskip("torch")

QUICK: dict[str, Any] = {
    "system": "gnnlab", "fanouts": (3, 4), "hidden": 16, "batch_size": 64, "lr": 0.01, "device": "cpu",
    "progress": False,
}  # fmt: skip


def few_seeds(count: int, unlabelled: int = 0) -> Graph:
    graph = learnable_graph()
    label = graph.label.copy()
    label[graph.splits["train"][:unlabelled]] = -1
    splits = {**graph.splits, "train": graph.splits["train"][:count]}
    return Graph(graph.indptr, graph.indices, feat=graph.feat, label=label, splits=splits, name="few")


def double_trainer(graph: Graph, model: str, rank: Any = None) -> Trainer:
    class Double(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = make_model(model, graph.num_features, 16, graph.num_classes, num_layers=2).double()

        def forward(self, blocks: Any, x: Any) -> Any:
            return self.inner(blocks, x.double())

    sampler = NeighborSampler(graph, [3, 4], device="cpu", seed=2)
    cache = FeatureCache(graph.feat, graph.out_degrees(), ratio=0.3, device="cpu")
    torch.manual_seed(0)
    # Plain descent: Adam divides by the gradient's size, so that it would blow up the noise of tiny ones.
    network = Double()
    return Trainer(
        graph, sampler, CachedSource(cache), network, batch_size=len(graph.splits["train"]), device="cpu",
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1), rank=rank,
    )  # fmt: skip


def one_step(graph: Graph, model: str, rank: Any = None) -> tuple[float, list[np.ndarray]]:
    trainer = double_trainer(graph, model, rank)
    trainer.epoch(0)
    return trainer.losses[0], [p.grad.numpy() for p in trainer.model.parameters()]


def step_on_rank(rank: Any, seeds: int, model: str) -> tuple[float, list[np.ndarray], int]:
    with rank.zero_first():
        graph = few_seeds(seeds, unlabelled=1)
    loss, gradients = one_step(graph, model, rank)
    return loss, gradients, rank.world_size


@pytest.mark.parametrize(("seeds", "world", "model"), [(60, 3, "sage"), (5, 2, "gat"), (2, 3, "gcn")])
def test_a_step_has_the_gradients_of_one_device(three_ranks, seeds, world, model):
    loss, expected = one_step(few_seeds(seeds, unlabelled=1), model)
    found = three_ranks.run(step_on_rank, seeds, model, world=world)
    assert [size for _, _, size in found] == [world] * world
    for at, gradients, _ in found:
        assert at == pytest.approx(loss, abs=1e-10)
        for mine, theirs in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10)
            assert np.abs(theirs).max() > 1e-6


@pytest.mark.parametrize("executor", ["serial", "overlapped"])
def test_losses_and_accuracy_of_an_epoch_are_those_of_one_device(graph, three_ranks, executor):
    expected = lab.train(graph, epochs=2, **QUICK)
    found = lab.train(graph, epochs=2, ranks=three_ranks, executor=executor, **QUICK)
    assert found.batch_ids == expected.batch_ids
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)
    assert found.accuracy == pytest.approx(expected.accuracy, abs=0.02)
    assert found.ranks == 3 and found.settings["ranks"] == 3 and "3 CPU processes" in found.origin
    record = found.epochs[0]
    assert (record.num_batches, record.tasks) == (5, 15)
    assert {(e.rank, e.batch) for e in record.events if e.stage == "train"} == {
        (r, b) for r in range(3) for b in range(5)
    }
    assert record.num_edges >= expected.epochs[0].num_edges  # what two slices reach is sampled twice
    for mine, theirs in zip(found.network.parameters(), expected.network.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=0)


def test_ranks_without_seeds_go_along(three_ranks):
    few = few_seeds(7)
    options = {**QUICK, "batch_size": 2, "evaluate": False}
    expected = lab.train(few, **options)
    found = lab.train(few, ranks=three_ranks, **options)
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)


class Mixed(torch.nn.Module):
    """Parameters of one type and logits of another, as mixed precision has them."""

    def __init__(self, features: int, classes: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(features, classes).to(dtype)

    def forward(self, blocks: Any, x: Any) -> Any:
        return self.layer(x[: blocks[-1].num_dst].to(self.layer.weight.dtype)).float()


@pytest.mark.parametrize(("dtype", "off"), [(torch.float64, 1e-6), (torch.bfloat16, 0.02)])
def test_a_rank_without_seeds_joins_whatever_the_type_of_the_losses(three_ranks, dtype, off):
    few = few_seeds(7)
    torch.manual_seed(0)
    model = Mixed(few.num_features, few.num_classes, dtype)
    options = {**QUICK, "batch_size": 2, "evaluate": False}
    expected = lab.train(few, copy.deepcopy(model), **options)
    found = lab.train(few, model, ranks=three_ranks, **options)
    np.testing.assert_allclose(found.losses, expected.losses, atol=off)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gradients_travel_in_one_type_whoever_has_a_loss(dtype):
    model = Mixed(4, 3, dtype)
    gradients = Gradients(model, None)
    zero = next(model.parameters()).new_zeros(())
    packed = [gradients.pack(torch.tensor(1.5, dtype=loss), 2) for loss in (torch.float32, torch.float64)]
    packed.append(gradients.pack(zero, zero))
    wanted = torch.float64 if dtype == torch.float64 else torch.float32
    assert {each.flat.dtype for each in packed} == {wanted} and len({len(each.flat) for each in packed}) == 1
    assert gradients.unpack(packed[0]).tolist() == [[1.5, 2.0]]


class Alternating(torch.nn.Module):
    """Has a layer that every third mini-batch uses."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.always, self.at_times = (torch.nn.Linear(features, classes).double() for _ in range(2))
        self.number = 0

    def forward(self, blocks: Any, x: Any) -> Any:
        x = x[: blocks[-1].num_dst].double()
        self.number += self.training
        return self.always(x) + (self.at_times(x) if self.number % 3 == 1 else 0)


def test_a_layer_that_a_step_does_not_use_stays_as_it_is(graph, three_ranks):
    """Adam would move it by the momentum of the steps before, were its gradient zeros instead of none."""
    torch.manual_seed(0)
    model, options = Alternating(graph.num_features, graph.num_classes), {**QUICK, "evaluate": False}
    expected = lab.train(graph, copy.deepcopy(model), **options).network
    found = lab.train(graph, copy.deepcopy(model), ranks=three_ranks, **options).network
    for ours, theirs in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


@pytest.mark.exhaustive
def test_a_system_that_reorders_keeps_the_order_on_ranks(graph, three_ranks):
    found = lab.train(graph, ranks=three_ranks, evaluate=False, **{**QUICK, "system": "fastgl"})
    assert found.batch_ids == list(range(5))
    assert any("keep their order" in note for note in found.notes)


def test_what_ranks_cannot_do_is_named(graph, three_ranks):
    union = NeighborSampler(graph, [3, 4], device="cpu", expand="new")
    with pytest.raises(ValueError, match=r"expand='frontier' \(got a sampler with expand='new'\)"):
        lab.train(graph, sampler=union, ranks=2, **QUICK)
    with pytest.raises(ValueError, match="kernel must be one of"):
        lab.train(graph, kernel="nope", ranks=2, **QUICK)
    with pytest.raises(ValueError, match="ranks must be"):
        lab.train(graph, ranks=0, **QUICK)


# ---- checkpoints -------------------------------------------------------------------------------------------------


class Interrupted(Exception):
    pass


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    step, done = Trainer.step, []

    def counted(self: Trainer, batch: Any, x: Any) -> Any:
        if len(done) == steps:
            raise Interrupted
        done.append(1)
        return step(self, batch, x)

    monkeypatch.setattr(Trainer, "step", counted)


@pytest.mark.parametrize("executor", ["serial", "overlapped"])
def test_a_resumed_run_ends_as_one_that_was_not_interrupted(graph, tmp_path, monkeypatch, executor):
    options = {**QUICK, "epochs": 3, "executor": executor, "dropout": 0.2}
    expected = lab.train(graph, **options)
    file = tmp_path / "run" / "checkpoint.pt"
    with monkeypatch.context() as patch:
        stop_after(patch, 9)
        with pytest.raises(Interrupted):
            lab.train(graph, checkpoint=file, checkpoint_steps=3, **options)
    found = lab.train(graph, resume=file, **options)
    assert found.resumed == 9
    assert found.batch_ids == expected.batch_ids  # each once
    assert found.losses == pytest.approx(expected.losses, abs=1e-12)
    assert found.accuracy == expected.accuracy[1:]
    assert found.to_frame()["loss"].iloc[-1] == pytest.approx(expected.to_frame()["loss"].iloc[-1])
    assert found.to_frame()["epoch"].tolist() == [1, 2]
    # The last step of an epoch is no epoch, however fast.
    assert [epoch.num_batches for epoch in found.epochs] == [1, 5] and found.steady.num_batches == 5
    assert "(5 steps)" in str(found) and found.row()["steps_of_an_epoch"] == 5
    more = lab.train(graph, resume=file, **{**options, "epochs": 4})
    assert more.resumed == 15 and more.batch_ids == list(range(20))
    with pytest.raises(ValueError, match="epochs must be more"):
        lab.train(graph, resume=file, **options)


class DiesOnce(torch.nn.Module):
    """Rank 1 is killed at its eighth step, if nobody was before."""

    def __init__(self, died: Path) -> None:
        super().__init__()
        self.model, self.died, self.steps = make_model("sage", 10, 16, 4, 2), str(died), 0

    def forward(self, blocks: Any, x: Any) -> Any:
        self.steps += 1
        among = torch.distributed.is_initialized() and torch.distributed.get_rank()
        if among == 1 and self.steps == 8 and not Path(self.died).exists():
            Path(self.died).write_text(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        return self.model(blocks, x)


@pytest.mark.exhaustive
@pytest.mark.parametrize("executor", ["serial", "overlapped"])
def test_ranks_of_which_one_was_lost_go_on_from_the_last_checkpoint(graph, pair, tmp_path, executor):
    """Ranks that share every mini-batch, in the middle of an epoch; those of the factored design: test_factored."""
    file, model = tmp_path / "checkpoint.pt", DiesOnce(tmp_path / "died")
    options = {**QUICK, "epochs": 3, "evaluate": False}
    expected = lab.train(graph, copy.deepcopy(model), **options)
    pair.run(ready)
    pids = list(pair.pids)
    given = {**options, "ranks": pair, "executor": executor}
    with pytest.raises(RankError, match="rank 1 failed in stage 'train'.*SIGKILL"):
        lab.train(graph, copy.deepcopy(model), checkpoint=file, checkpoint_steps=2, **given)
    assert not left_after(pids)
    assert time.monotonic() - float((tmp_path / "died").read_text()) < 30
    found = lab.train(graph, copy.deepcopy(model), resume=file, **given)
    assert found.resumed == 6
    assert found.batch_ids == expected.batch_ids == list(range(15)), "each once"
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)


def ready(rank: Any) -> None:
    rank.barrier()


@pytest.mark.exhaustive
def test_ranks_resume_too(graph, tmp_path, three_ranks):
    file = tmp_path / "checkpoint.pt"
    options = {**QUICK, "evaluate": False}
    lab.train(graph, epochs=1, ranks=three_ranks, checkpoint=file, **options)
    found = lab.train(graph, epochs=2, ranks=three_ranks, resume=file, **options)
    expected = lab.train(graph, epochs=2, **options)
    assert found.batch_ids == expected.batch_ids and found.resumed == 5
    np.testing.assert_allclose(found.losses, expected.losses, atol=1e-4)


def test_what_is_no_checkpoint_of_this_run_is_refused(graph, tmp_path: Path):
    file = tmp_path / "checkpoint.pt"
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        lab.train(graph, resume=tmp_path / "no" / "such.pt", **QUICK)
    assert not (tmp_path / "no").exists(), "what is only read makes no folder"
    # Whoever starts ranks looks first.
    for options in ({}, {"ranks": 2}, {"ranks": 2, "executor": "factored"}):
        with pytest.raises(FileNotFoundError, match="no checkpoint"):
            lab.train(graph, resume=file, **{**QUICK, **options})
    lab.train(graph, checkpoint=file, evaluate=False, **QUICK)
    with pytest.raises(ValueError, match="was written with lr=0.01, and this run has lr=0.02"):
        lab.train(graph, epochs=2, resume=file, **{**QUICK, "lr": 0.02})
    flipped = bytearray(file.read_bytes())
    weights = next(iter(torch.load(file, weights_only=True)["model"].values()))
    flipped[flipped.index(weights.numpy().tobytes()) + 5] ^= 4
    for content in (b"", b"no checkpoint", file.read_bytes()[:200], bytes(flipped)):
        file.write_bytes(content)
        with pytest.raises(CorruptDataError, match="no checkpoint of this library"):
            lab.train(graph, resume=file, **QUICK)
        with pytest.raises(CorruptDataError, match="no checkpoint of this library"):
            lab.train(graph, resume=file, ranks=2, **QUICK)
    file.unlink()
    lab.train(graph, checkpoint=file, evaluate=False, **QUICK)
    good = torch.load(file, weights_only=True)
    for wrong in (
        {"batch_ids": "0 1 2"}, {"losses": good["losses"][:-1]}, {"generator": good["generator"][:-1]},
        {"batch_ids": torch.zeros_like(good["batch_ids"])}, {"generator": None},
    ):  # fmt: skip
        torch.save({**good, **wrong}, file)
        with pytest.raises(
            CorruptDataError, match=r"no checkpoint of this library \(it has|is no checkpoint|no state of"
        ):
            lab.train(graph, resume=file, **QUICK)
    torch.save({"format": print}, file)  # nothing but data is unpickled
    with pytest.raises(CorruptDataError):
        lab.train(graph, resume=file, **QUICK)
    with pytest.raises(ValueError, match="checkpoint_steps needs checkpoint"):
        lab.train(graph, checkpoint_steps=2, **QUICK)


def test_a_run_that_draws_otherwise_does_not_go_on_from_it(graph, tmp_path: Path):
    """Same sizes, other samples, labels or seeds: the mean of two runs would be nobody's."""
    file = tmp_path / "checkpoint.pt"
    lab.train(graph, checkpoint=file, evaluate=False, **QUICK)
    weights = np.linspace(0, 1, graph.num_edges, dtype=np.float32)
    train = graph.splits["train"]
    other = graph.indices.copy()
    other[-1] = graph.num_nodes - 1
    turned = {**graph.splits, "train": train[::-1].copy()}
    for given, options, named in (
        (graph, {"pick": "reservoir"}, "draws"), (graph, {"system": "nextdoor"}, "draws"),
        (graph, {"weighted": True}, "draws"),
        (graph, {"sampler": NeighborSampler(graph, [3, 4], seed=99, device="cpu")}, "draws"),
        (replace(graph, edge_weight=weights), {}, "edge weights"),
        (graph, {"dropout": 0.5}, "model options"), (graph, {"model": "sage"}, "model"),
        (replace(graph, indices=other), {}, "topology"),
        (replace(graph, feat=np.ascontiguousarray(graph.feat[::-1])), {}, "rows of features"),
        (replace(graph, label=(graph.label + 1) % graph.num_classes), {}, "labels"),
        (replace(graph, splits=turned), {}, "training vertices"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"was written with {named}="):
            lab.train(given, epochs=2, resume=file, evaluate=False, **{**QUICK, **options})
    # How it is done, and where, is no matter.
    found = lab.train(graph, epochs=2, resume=file, evaluate=False, executor="factored", **QUICK)
    assert found.resumed == 5 and found.to_frame()["epoch"].tolist() == [1]


def test_a_sampler_of_other_edges_does_not_go_on_from_it(graph, tmp_path: Path):
    """As many edges, drawn by the same settings, of another graph: the samples are others."""
    file, indices = tmp_path / "checkpoint.pt", graph.indices.copy()
    indices[-1] = graph.num_nodes - 1
    other, weighted = (
        replace(graph, indices=indices),
        replace(graph, edge_weight=graph.edge_weight[::-1].copy()),
    )
    options = {**QUICK, "evaluate": False}

    def sampler_of(one: Graph, **how: Any) -> NeighborSampler:
        return NeighborSampler(one, [3, 4], device="cpu", **how)

    lab.train(graph, sampler=sampler_of(other), checkpoint=file, **options)
    for given in (
        {"pick": "floyd"}, {"sampler": sampler_of(graph)},
        {"sampler": sampler_of(replace(other, indices=graph.indices))},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="was written with sampler's edges="):
            lab.train(graph, epochs=2, resume=file, **options, **given)
    copied = sampler_of(replace(other))
    assert lab.train(graph, epochs=2, sampler=copied, resume=file, **options).resumed == 5
    lab.train(graph, sampler=sampler_of(graph, weighted=True), checkpoint=file, **options)
    with pytest.raises(ValueError, match="was written with sampler's edges=None, and this run has"):
        lab.train(graph, epochs=2, sampler=sampler_of(weighted, weighted=True), resume=file, **options)
    # Checkpoints of former versions have no such entry.
    state = torch.load(file, weights_only=True)
    del state["settings"]["sampler's edges"]
    torch.save(state, file)
    same = sampler_of(replace(graph), weighted=True)
    assert lab.train(graph, epochs=2, sampler=same, resume=file, **options).resumed == 5


def test_a_state_that_cannot_be_read_again_is_not_written(graph, tmp_path: Path):
    class Counting(torch.nn.Module):
        def __init__(self, extra: Any) -> None:
            super().__init__()
            self.inner = make_model("sage", graph.num_features, 8, graph.num_classes, num_layers=2)
            self.extra = extra

        def forward(self, blocks: Any, x: Any) -> Any:
            return self.inner(blocks, x)

        def get_extra_state(self) -> Any:
            return self.extra

        def set_extra_state(self, state: Any) -> None:
            self.extra = state

    file, options = tmp_path / "checkpoint.pt", {**QUICK, "evaluate": False}
    for extra, named in (
        (np.zeros(3), r"ndarray of shape \(3,\) at state_dict\(\)\['_extra_state'\]\)"),
        ({"seen": [1, np.float64(2)]}, r"float64 at state_dict\(\)\['_extra_state'\]\['seen'\]\[1\]\)"),
        ({frozenset([1]): 2}, r"frozenset at state_dict\(\)\['_extra_state'\], among its keys\)"),
    ):
        with pytest.raises(TypeError, match=f"model must have a state that checkpoints can hold: .*{named}"):
            lab.train(graph, Counting(extra), checkpoint=file, **options)
        assert not [*tmp_path.iterdir()]
    extra = {
        "tensors": [torch.ones(2), torch.nn.Parameter(torch.ones(1))], 3: (None, True, 2**70, 0.5, 1j, "a", b"b"),
        "kinds": (torch.float32, torch.device("cpu"), torch.Size([2]), {1, 2}, OrderedDict(a=Counter("aab"))),
    }  # fmt: skip
    lab.train(graph, Counting(extra), checkpoint=file, **options)
    found = lab.train(graph, Counting(None), epochs=2, resume=file, **options).network.extra
    assert found[3] == extra[3] and found["kinds"] == extra["kinds"] and found["tensors"][0].sum() == 2


def test_a_module_of_another_shape_does_not_go_on_from_it(graph, tmp_path: Path):
    file = tmp_path / "checkpoint.pt"

    def module(hidden: int) -> Any:
        return lab.make_model("sage", graph.num_features, hidden, graph.num_classes, num_layers=2)

    lab.train(graph, module(8), checkpoint=file, evaluate=False, **QUICK)
    with pytest.raises(ValueError, match="resume: .* has not the weights of this model"):
        lab.train(graph, module(9), epochs=2, resume=file, evaluate=False, **QUICK)


def test_where_no_checkpoint_can_be_written_is_said_at_once(graph, tmp_path: Path):
    for name in ("checkpoint", "resume"):
        with pytest.raises(ValueError, match=f"{name} must be a file"):
            lab.train(graph, **{name: tmp_path}, **QUICK)
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match="checkpoint .* cannot be written"):
        lab.train(graph, checkpoint=tmp_path / "file" / "checkpoint.pt", **QUICK)
    state = {"format": checkpoint.FORMAT, "version": checkpoint.VERSION, "settings": {}}
    torch.save(state, tmp_path / "short")
    with pytest.raises(CorruptDataError, match="it lacks batch_ids, device_generator, generator"):
        lab.train(graph, resume=tmp_path / "short", **QUICK)


@pytest.mark.exhaustive
def test_ranks_map_one_copy_of_the_graph(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_DATA_ROOT", str(tmp_path))
    with several.shared_graph(graph) as folder:
        assert folder.is_relative_to(tmp_path)
        mapped = several.open_shared(folder)
        assert isinstance(mapped.feat, np.memmap) and mapped.digest() == graph.digest()
        with several.shared_graph(mapped) as again:
            assert again == folder  # nothing is written anew
    assert not folder.exists()


def small_graph() -> Any:
    rng = np.random.default_rng(5)
    return lab.Graph.from_edges(
        rng.integers(0, 70, 400), rng.integers(0, 70, 400), num_nodes=80,
        feat=rng.standard_normal((80, 7)).astype(np.float32), label=rng.integers(0, 4, 80),
        splits={"train": np.arange(64)},
    )  # fmt: skip


@pytest.mark.parametrize("window", [3, 5, 32])
@pytest.mark.parametrize("executor", ["serial", "overlapped", "factored"])
def test_a_run_resumed_within_a_window_keeps_its_order(tmp_path, monkeypatch, executor, window):
    graph, file = small_graph(), tmp_path / "run.pt"
    options = {
        "fanouts": (4, 3), "hidden": 16, "batch_size": 8, "progress": False, "seed": 3, "device": "cpu", "epochs": 2,
        "reorder": "greedy", "window": window, "executor": executor, "evaluate": False,
    }  # fmt: skip
    expected = lab.train(graph, **options)
    assert expected.batch_ids[:8] != sorted(expected.batch_ids[:8])
    for steps in (3, 7, 10):
        with monkeypatch.context() as patch:
            stop_after(patch, steps)
            with pytest.raises(Interrupted):
                lab.train(graph, checkpoint=file, checkpoint_steps=1, **options)
        found = lab.train(graph, resume=file, **options)
        assert found.resumed == steps
        assert found.batch_ids == expected.batch_ids and found.losses == expected.losses


def test_another_order_does_not_go_on_from_a_checkpoint(tmp_path: Path):
    graph, file = small_graph(), tmp_path / "run.pt"
    options = {**QUICK, "batch_size": 8, "evaluate": False, "device": "cpu", "reorder": "greedy", "window": 4}
    lab.train(graph, checkpoint=file, **options)
    for changed, message in (
        ({"window": 5}, "was written with window=4, and this run has window=5"),
        ({"reorder": "none"}, "was written with reorder='greedy', and this run has reorder=None"),
    ):
        with pytest.raises(ValueError, match=message):
            lab.train(graph, epochs=2, resume=file, **{**options, **changed})
    plain = {**options, "reorder": "none"}
    lab.train(graph, checkpoint=file, **plain)
    # Without an order there are no windows.
    assert lab.train(graph, epochs=2, resume=file, **{**plain, "window": 7}).resumed == 8
