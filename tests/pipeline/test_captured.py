"""Captured steps: the losses and gradients of uncaptured ones, whatever sizes mini-batches have."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import itertools
import operator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.compute.padding import PaddedBatch, Sizes, has_weights, nobody, rounded
from gnnsample_lab.pipeline import captured
from gnnsample_lab.pipeline.captured import _Copies, _settings, forget_oldest, kept_in_place, masked_norm
from gnnsample_lab.pipeline.step import Step
from tests.capturing import capture_in_another_thread
from tests.pipeline.conftest import learnable_graph

torch = pytest.importorskip("torch")

MODELS = ("gcn", "sage", "gin", "gat", "pinsage")
ATOL, RTOL = 1e-5, 2e-5
"""How far losses of captured steps may be from those of plain ones."""


def batches(sampler: Any, graph: lab.Graph, size: int, count: int, epoch: int = 0) -> list[Any]:
    found = list(sampler.epoch(graph.splits["train"], size, epoch=epoch))
    return [found[i % len(found)] for i in range(count)]


def optimizer_of(name: str) -> Any:
    """Adam, with an ``eps`` for GAT that is above the rounding of its gradients.

    The softmax over a destination's edges stays the same if all its scores move together. So where the leaky ReLU is
    linear over the scores, as for most small batches, the gradient of the destinations' attention vector is zero but
    for rounding (below 1e-7; no other parameter has such gradients). Adam divides gradients by their own size: with its
    usual ``eps`` of 1e-8 this rounding becomes full steps, in which two runs of plain steps differ, too.
    """
    return functools.partial(torch.optim.Adam, lr=0.01, eps=1e-5 if name == "gat" else 1e-8)


def in_another_order(block: Any, rng: Any) -> Any:
    """The block with each row's edges shuffled: the same sums, added in another order."""
    indices = block.indices.copy()
    for begin, end in itertools.pairwise(block.indptr):
        rng.shuffle(indices[begin:end])
    return lab.Block(block.src, block.dst, block.indptr, indices, None, block.weight)


def plain_losses(model: Any, optimizer: Any, graph: lab.Graph, given: list[Any], device: str) -> list[float]:
    """What an uncaptured step computes, written down once more."""
    labels = torch.as_tensor(np.asarray(graph.label)).to(device)
    feat = torch.as_tensor(np.asarray(graph.feat)).to(device)
    losses = []
    for batch in given:
        made = batch.to_torch()
        optimizer.zero_grad()
        logits, target = model(made.blocks, feat[made.node_ids]), labels[made.seeds]
        if labels.ndim == 2:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target.float())
        else:
            loss = torch.nn.functional.cross_entropy(logits, target, ignore_index=-1)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def pair(graph: lab.Graph, name: str, device: str, make: Any = None, **options: Any) -> tuple[Any, Any]:
    """Two equal models with an optimizer each."""
    torch.manual_seed(0)
    classes = graph.label.shape[1] if graph.label.ndim == 2 else int(graph.label.max()) + 1
    model = lab.make_model(name, graph.feat.shape[1], 16, classes, num_layers=2, **options).to(device)
    make = make or (lambda p: torch.optim.Adam(p, lr=0.01))
    other = copy.deepcopy(model)
    return (model, make(model.parameters())), (other, make(other.parameters()))


def sampler_of(graph: lab.Graph, name: str, device: str) -> Any:
    if name == "pinsage":
        return lab.PinSAGESampler(graph, num_layers=2, device=device, seed=0)
    return lab.NeighborSampler(graph, [3, 4], device=device, seed=0)


@pytest.mark.parametrize("name", MODELS)
def test_on_a_cpu_it_is_the_plain_step(graph, name):
    (model, optimizer), (other, others) = pair(graph, name, "cpu")
    sampler = sampler_of(graph, name, "cpu")
    step = lab.captured_step(model, optimizer, sampler)
    given = batches(sampler, graph, 64, 6)
    found = [step(batch).item() for batch in given]
    np.testing.assert_allclose(found, plain_losses(other, others, graph, given, "cpu"), atol=1e-6)
    assert step.captures == 0 and len(set(found)) > 1


@pytest.mark.parametrize("name", [name for name in MODELS if name != "pinsage"])
def test_losses_that_are_compared_do_not_depend_on_the_order_of_additions(graph, name):
    """Plain steps differ from plain steps by much less than captured ones may."""
    rng, feat = np.random.default_rng(0), torch.from_numpy(graph.feat)
    labels, sampler = torch.from_numpy(graph.label), sampler_of(graph, name, "cpu")
    given = batches(sampler, graph, 1, 14) + batches(sampler, graph, 1, 4, epoch=1)
    for _ in range(3):
        found: list[list[float]] = [[], []]
        for losses, shuffled, (model, optimizer) in zip(
            found, (False, True), pair(graph, name, "cpu", optimizer_of(name))
        ):
            for batch in given:
                blocks = [in_another_order(block, rng) if shuffled else block for block in batch.blocks]
                optimizer.zero_grad()
                logits = model(blocks, feat[torch.from_numpy(batch.node_ids).long()])
                loss = torch.nn.functional.cross_entropy(logits, labels[torch.from_numpy(batch.seeds).long()])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        np.testing.assert_allclose(*found, atol=ATOL / 20, rtol=RTOL / 20)


def test_sums_and_weights_on_a_cpu(multi_label_graph, graph):
    for one in (graph, multi_label_graph):
        (model, optimizer), _ = pair(one, "sage", "cpu")
        sampler = sampler_of(one, "sage", "cpu")
        step = lab.captured_step(model, optimizer, sampler)
        batch = batches(sampler, one, 50, 1)[0]
        total, weight = step.gradients(batch)
        assert int(weight) == 50
        (fresh, others), _ = pair(one, "sage", "cpu")
        expected = plain_losses(fresh, others, one, [batch], "cpu")[0]
        assert total.item() / 50 == pytest.approx(expected, abs=1e-6)


def test_errors_name_what_is_missing(graph):
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    bare = lab.Graph.from_edges([0, 1], [1, 0], 2)
    with pytest.raises(ValueError, match="label"):
        lab.captured_step(model, optimizer, lab.NeighborSampler(bare, [2], device="cpu"))
    with pytest.raises(TypeError, match="sampler"):
        lab.captured_step(model, optimizer, graph)
    with pytest.raises(TypeError, match="model"):
        lab.captured_step(3, optimizer, sampler_of(graph, "sage", "cpu"))
    with pytest.raises(TypeError, match="features"):
        lab.captured_step(model, optimizer, sampler_of(graph, "sage", "cpu"), features=3)
    step = lab.captured_step(model, optimizer, sampler_of(graph, "sage", "cpu"), loss=lambda a, b: a.sum())
    with pytest.raises(ValueError, match="loss"):
        step.gradients(batches(sampler_of(graph, "sage", "cpu"), graph, 8, 1)[0])


def test_features_of_somebody_else_are_refused(graph):
    """A cache of another graph would train on its rows, and a fused sampler has summed those that it has."""
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    few = lab.FeatureCache(graph.feat[:-1], ratio=1.0, device="cpu")
    with pytest.raises(ValueError, match=f"features must have a row for each of {graph.num_nodes} vertices"):
        lab.captured_step(model, optimizer, sampler_of(graph, "sage", "cpu"), features=few)
    own, other = (lab.FeatureCache(graph.feat, ratio=1.0, device="cpu") for _ in range(2))
    fused = lab.FusedSampler(graph, [3, 4], own, device="cpu")
    with pytest.raises(ValueError, match="features must be None or the sampler's own with a FusedSampler"):
        lab.captured_step(model, optimizer, fused, features=other)
    lab.captured_step(model, optimizer, fused, features=own)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_step_has_gradients_wherever_it_is_called_from(graph, off):
    losses = []
    for context in (contextlib.nullcontext, off):
        (model, optimizer), _ = pair(graph, "sage", "cpu")
        sampler = sampler_of(graph, "sage", "cpu")
        step = lab.captured_step(model, optimizer, sampler)
        given = batches(sampler, graph, 16, 3)
        with context():
            losses.append([float(step(batch)) for batch in given])
    assert losses[0] == losses[1] and losses[0][0] != losses[0][-1]


def test_a_loss_that_is_no_scalar_is_named(graph):
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    sampler = sampler_of(graph, "sage", "cpu")
    step = lab.captured_step(model, optimizer, sampler, loss=lambda logits, _: logits.sum(1))
    (batch,) = batches(sampler, graph, 8, 1)
    with pytest.raises(ValueError, match="loss must return a tensor of one element"):
        step(batch)
    lab.captured_step(model, optimizer, sampler, loss=lambda logits, _: logits.sum().reshape(1))(batch)


def test_an_optimizer_of_another_model_is_refused(graph):
    (model, _), (_, others) = pair(graph, "sage", "cpu")
    with pytest.raises(
        ValueError, match=r"optimizer must hold parameters of model \(got Adam with none of its \d+\)"
    ):
        lab.captured_step(model, others, sampler_of(graph, "sage", "cpu"))
    few = torch.optim.SGD(model.layers[0].parameters(), lr=0.1)
    few.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})
    lab.captured_step(model, few, sampler_of(graph, "sage", "cpu"))


def test_an_optimizer_that_needs_a_closure_is_refused(graph):
    """It would compute losses several times a step; nobody passes it how."""
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    sampler = sampler_of(graph, "sage", "cpu")
    with pytest.raises(ValueError, match=r"optimizer must .*got LBFGS, whose step needs a closure"):
        lab.captured_step(model, torch.optim.LBFGS(model.parameters()), sampler)
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)  # wraps the optimizer's step
    lab.captured_step(model, optimizer, sampler)


def test_logits_of_another_shape_are_refused(graph):
    """By the default loss alone: what a loss of one's own takes is nobody else's business."""
    model = lab.make_model("sage", graph.num_features, 8, 3, num_layers=2)
    optimizer, sampler = torch.optim.Adam(model.parameters()), sampler_of(graph, "sage", "cpu")
    (batch,) = batches(sampler, graph, 8, 1)
    with pytest.raises(
        ValueError, match=r"logits of 8 rows, .* and at least 4 columns, .*got shape \(8, 3\)"
    ):
        lab.captured_step(model, optimizer, sampler)(batch)
    lab.captured_step(model, optimizer, sampler, loss=lambda logits, target: logits.mean())(batch)


def test_mini_batches_of_another_graph_are_refused(graph):
    """They would be trained on with edges of one graph and labels of the other."""
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    step = lab.captured_step(model, optimizer, sampler_of(graph, "sage", "cpu"))
    before = copy.deepcopy(model.state_dict())
    src, dst = graph.edges()
    for other in (
        lab.Graph.from_edges(src[1:], dst[1:], graph.num_nodes),
        lab.Graph.from_edges(src, dst, graph.num_nodes + 1),
    ):
        batch = sampler_of(other, "sage", "cpu").sample(np.arange(9))
        for call in (step, step.gradients, step.load):
            with pytest.raises(
                ValueError, match=rf"batch must be of the sampler's graph, {graph.num_nodes} vertices"
            ):
                call(batch)
    torch.testing.assert_close(model.state_dict(), before)
    same = lab.Graph.from_edges(src, dst, graph.num_nodes)
    step(sampler_of(same, "sage", "cpu").sample(np.arange(9)))


@pytest.mark.parametrize("given", [5, None, "ab", [1, 2]])
def test_what_is_no_mini_batch_is_named(graph, given):
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    step = lab.captured_step(model, optimizer, sampler_of(graph, "sage", "cpu"))
    for call in (step, step.gradients, step.load):
        with pytest.raises(TypeError, match="batch must be a mini-batch of a sampler .got"):
            call(given)


def test_nothing_is_replayed_on_a_cpu(graph):
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    sampler = sampler_of(graph, "sage", "cpu")
    step = lab.captured_step(model, optimizer, sampler)
    step(sampler.sample(np.arange(9)))
    with pytest.raises(RuntimeError, match="replay needs a step on a GPU"):
        step.replay()


def test_mini_batches_as_tensors_are_taken(graph):
    (model, optimizer), (other, others) = pair(graph, "sage", "cpu")
    sampler = sampler_of(graph, "sage", "cpu")
    batch = sampler.sample(np.arange(9))
    found = lab.captured_step(model, optimizer, sampler)(batch.to_torch())
    assert found.item() == pytest.approx(lab.captured_step(other, others, sampler)(batch).item())


def test_gradients_that_the_optimizer_does_not_hold_are_of_one_mini_batch(graph):
    (model, _), _ = pair(graph, "sage", "cpu")
    sampler = sampler_of(graph, "sage", "cpu")
    step = lab.captured_step(model, torch.optim.SGD(model.layers[0].parameters(), lr=0.0), sampler)
    batch = batches(sampler, graph, 50, 1)[0]
    found = []
    for _ in range(2):
        step(batch)
        found.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*found)


def test_on_a_cpu_the_step_itself_extracts(graph):
    (model, optimizer), (other, others) = pair(graph, "sage", "cpu")
    sampler = sampler_of(graph, "sage", "cpu")
    step = lab.captured_step(model, optimizer, sampler)
    given = batches(sampler, graph, 50, 2)
    found = []
    for batch in given:
        assert step.load(batch) is None
        found.append(step(batch).item())
    np.testing.assert_allclose(found, plain_losses(other, others, graph, given, "cpu"), atol=1e-6)


def rates_of(optimizer: Any) -> list[Any]:
    return [group["lr"] for group in optimizer.param_groups]


def test_a_learning_rate_that_is_another_tensor_is_written_to_the_one_that_is_read():
    rate = torch.tensor(0.5)
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter], lr=rate, capturable=True)
    kept: dict[Any, Any] = {}
    assert kept_in_place(optimizer, kept) and kept == {(0, "lr"): rate}
    key = _settings(optimizer)
    [group] = optimizer.param_groups
    for value, expected in (
        (group["lr"] * 0.5, 0.25), (torch.tensor(3.0, dtype=torch.float64), 3.0), (0.125, 0.125),
        (torch.nn.Parameter(torch.tensor(2.0)), 2.0),
    ):  # fmt: skip
        group["lr"] = value
        assert kept_in_place(optimizer, kept)
        assert group["lr"] is rate and rate.item() == expected and not rate.requires_grad
        assert _settings(optimizer) == key
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()) | {"state": {}})
    [group] = optimizer.param_groups
    group["lr"] = torch.tensor(0.75)
    assert kept_in_place(optimizer, kept) and group["lr"] is rate and rate.item() == 0.75
    group["lr"] = torch.tensor([1.0])  # another shape
    assert not kept_in_place(optimizer, kept) and kept[0, "lr"] is group["lr"]


def test_groups_that_share_a_learning_rate_may_part():
    rate = torch.tensor(0.5)
    groups = [{"params": [torch.nn.Parameter(torch.ones(2))]} for _ in range(2)]
    optimizer = torch.optim.Adam(groups, lr=rate, capturable=True)
    kept: dict[Any, Any] = {}
    for group in optimizer.param_groups:
        group["lr"] = rate
    assert kept_in_place(optimizer, kept)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.1)
    assert not kept_in_place(optimizer, kept), "steps that were captured read one for both"
    assert [round(one.item(), 3) for one in rates_of(optimizer)] == [0.1, 0.5]
    assert kept_in_place(optimizer, kept)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.2)
    assert kept_in_place(optimizer, kept)
    assert [round(one.item(), 3) for one in rates_of(optimizer)] == [0.2, 0.5]


def test_settings_keep_the_state_whose_place_they_name():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(2)
    optimizer.step()
    key = _settings(optimizer)
    assert key == _settings(optimizer) and hash(key) == hash(_settings(optimizer))
    assert key[0].of is optimizer.state[parameter]
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert key != _settings(optimizer)


def test_settings_are_asked_for_again_once_something_is_another_object(graph):
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    step = lab.captured_step(model, optimizer, sampler_of(graph, "sage", "cpu"))
    key = step._settings()
    assert step._settings() is key and key == _settings(optimizer)
    [group] = optimizer.param_groups
    changes = (
        lambda: group.update(betas=(0.8, 0.99)), lambda: group.update(lr=0.125),
        lambda: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict())),
        lambda: optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]}),
    )  # fmt: skip
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for change in changes:
        key = step._settings()
        change()
        assert step._settings() is not key and step._settings() == _settings(optimizer) != key
        assert step._settings() is step._settings()


@pytest.mark.gpu
def test_copies_of_a_loss_are_its_values(monkeypatch):
    loss = torch.zeros((), device="cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(_Copies, "AT_ONCE", 4)
    copies, found = _Copies(loss), []
    with torch.inference_mode():
        found.append(copies.make())
    for i in range(1, 11):
        loss.fill_(i)
        found.append(copies.make())
    assert [one.item() for one in found] == [*range(11)]
    assert not any(one.is_inference() or one.requires_grad or one._is_view() for one in found)
    weight = torch.ones_like(loss, requires_grad=True)
    product = weight * found[1]
    found[2].add_(1)  # no concern of the product's
    product.backward()
    assert weight.grad == 1
    assert len({one.data_ptr() for one in found}) == 11


def test_graphs_used_last_are_kept():
    graphs, waits = dict.fromkeys(range(5)), []
    forget_oldest(graphs, 5, lambda: waits.append(len(graphs)))
    assert not waits and len(graphs) == 5
    forget_oldest(graphs, 2, lambda: waits.append(len(graphs)))
    assert [*graphs] == [3, 4] and waits == [5], "dropped after no step is under way"


def test_targets_of_rows_that_do_not_count(multi_label_graph):
    labels = torch.as_tensor(multi_label_graph.label)
    assert nobody(labels) == nobody(labels[:, 0]) == 0xFF
    assert nobody(labels.float()) == nobody(labels.bool()) == 0  # all ones are no -1 there
    # The default loss leaves these rows out.
    (model, optimizer), _ = pair(multi_label_graph, "sage", "cpu")
    step, logits = Step(model, optimizer, labels), torch.randn(6, 3, requires_grad=True)
    target = torch.cat([labels[:4], torch.full((2, 3), -1)])
    for reduction in ("mean", "sum"):
        expected = step._loss(logits[:4], labels[:4], reduction, None)
        found = step._loss(logits, target, reduction, torch.arange(6) < 4)
        torch.testing.assert_close(found, expected)
        (grad,) = torch.autograd.grad(found, logits)
        assert not grad[4:].any() and grad[:4].any()


@pytest.mark.gpu
def test_a_learning_rate_that_is_another_tensor_counts(graph):
    (model, optimizer), (other, others) = pair(graph, "gcn", "cuda")
    sampler = sampler_of(graph, "gcn", "cuda")
    step = lab.captured_step(model, optimizer, sampler)
    for epoch in range(4):
        given = batches(sampler, graph, 64, 5, epoch)
        found = [step(batch).item() for batch in given]
        np.testing.assert_allclose(found, plain_losses(other, others, graph, given, "cuda"), atol=1e-5)
        for group in (*optimizer.param_groups, *others.param_groups):
            group["lr"] = group["lr"] * 0.3


def test_room_grows_and_no_two_levels_are_alike():
    rng = np.random.default_rng(0)
    room = None
    for _ in range(50):
        nodes = np.sort(rng.integers(1, 10_000, 4))[::-1]
        sizes = Sizes(tuple(map(int, nodes)), tuple(map(int, rng.integers(0, 50_000, 3))))
        before, room = room, sizes.with_room(room)
        assert sizes.fits(room) and (before is None or before.fits(room))
        assert len(set(room.nodes)) == 4 and list(room.nodes) == sorted(room.nodes, reverse=True)
    assert Sizes((200, 100, 50), (10, 10)).with_room().nodes[-1] == 50, "the loss is over the seeds"
    for n in (1, 63, 64, 1000, 123_456):
        assert n * 1.1 <= rounded(n) <= max(128, n * 1.1 * (1 + 1 / 8) + 64)


def test_room_of_fewer_blocks_is_no_room():
    """Fused mini-batches have a block less than plain ones."""
    few, many = Sizes((400, 50), (900,)), Sizes((300, 100, 50), (200, 100))
    room = many.with_room(few.with_room())
    assert many.fits(room) and len(room.edges) == 2
    assert not many.fits(few.with_room()) and not few.fits(room)


def test_memory_is_for_one_kind_of_mini_batches(graph):
    """Widths, sums and weights alike: what a step would read otherwise is of another mini-batch."""
    model = lab.make_model("sage", graph.feat.shape[1], 16, 7, num_layers=2)
    step = lab.captured_step(model, torch.optim.Adam(model.parameters()), sampler_of(graph, "sage", "cpu"))
    blocks = sampler_of(graph, "sage", "cpu").sample(np.arange(9)).blocks
    visited = sampler_of(graph, "pinsage", "cpu").sample(np.arange(9)).blocks
    sizes, of_walks = Sizes.of(blocks), Sizes.of(visited)
    assert not step._fits(blocks, sizes)
    room = of_walks.with_room(sizes.with_room())
    step._inputs = SimpleNamespace(room=room, width=5, takes=lambda given: not has_weights(given))
    assert step._fits(blocks, sizes) and step._fits(blocks, sizes, width=5)
    assert not step._fits(visited, of_walks)
    assert not step._fits(blocks, sizes, width=6) and not step._fits(blocks, sizes, "mean", 5)
    step._reduce = "mean"
    assert step._fits(blocks, sizes, "mean", 5) and not step._fits(blocks, sizes)


def test_a_call_that_fails_leaves_no_mini_batch_and_a_mark(graph, monkeypatch):
    """What it launched may still write, and a part of its mini-batch may lie where the step reads."""
    model = lab.make_model("sage", graph.feat.shape[1], 16, 7, num_layers=2)
    step = lab.captured_step(model, torch.optim.Adam(model.parameters()), sampler_of(graph, "sage", "cpu"))
    waits: list[Any] = []
    stream, other = (SimpleNamespace(ptr=i, wait_event=waits.append) for i in (1, 2))
    marks: list[Any] = []
    step.graph = None  # mini-batches are made up here
    step.on_gpu, step._stream, step._under_way = True, None, SimpleNamespace(record=marks.append)
    now = [stream]
    monkeypatch.setattr("gnnsample_lab.device.streams.torch_stream", lambda: contextlib.nullcontext(now[0]))

    def filled(batch: Any) -> str:
        if batch == "too large":
            raise MemoryError
        return "statistics"

    monkeypatch.setattr(step, "_filled", filled)
    assert step.load("a") == "statistics" and step._loaded == "a" and marks == [stream]
    with pytest.raises(MemoryError):
        step.load("too large")
    assert step._loaded is None and marks == [stream] * 2 and len(waits) == 1
    now[0] = other
    with pytest.raises(ZeroDivisionError):
        monkeypatch.setattr(step, "_replayed", lambda inputs, update: 1 / 0)
        step._inputs, step._loaded = object(), "b"
        step._run("b", None, True)
    assert step._loaded is None and marks[-1] is other and waits == [step._under_way] * 2


@pytest.mark.parametrize("affine", [True, False])
def test_a_norm_counts_the_real_rows_alone(affine):
    torch.manual_seed(0)
    expected, found = (torch.nn.BatchNorm1d(5, affine=affine) for _ in range(2))
    for _ in range(3):
        x = torch.randn(7, 5, requires_grad=True)
        padded = torch.cat([x.detach(), torch.full((4, 5), 9.0)]).requires_grad_()
        want, got = expected(x), masked_norm(found, padded, torch.tensor(7.0))[:7]
        torch.testing.assert_close(got, want)
        weights = torch.randn(7, 5)
        (want * weights).sum().backward()
        (got * weights).sum().backward()
        torch.testing.assert_close(padded.grad[:7], x.grad, atol=1e-5, rtol=1e-4)
        assert not padded.grad[7:].any()
    torch.testing.assert_close(found.running_var, expected.running_var)
    torch.testing.assert_close(found.running_mean, expected.running_mean)
    assert int(found.num_batches_tracked) == 3
    found.eval(), expected.eval()
    x = torch.randn(6, 5)
    torch.testing.assert_close(masked_norm(found, x, torch.tensor(2.0)), expected(x))


# ---- on a GPU -----------------------------------------------------------------------------------------------------


def check_on_gpu(graph: lab.Graph, name: str, size: int, make: Any = None, **options: Any) -> Any:
    (model, optimizer), (other, others) = pair(graph, name, "cuda", make, **options)
    sampler = sampler_of(graph, name, "cuda")
    step = lab.captured_step(model, optimizer, sampler)
    given = batches(sampler, graph, size, 14) + batches(sampler, graph, size, 4, epoch=1)
    found = [step(batch) for batch in given]  # results of earlier steps stay what they were
    np.testing.assert_allclose(
        [loss.item() for loss in found],
        plain_losses(other, others, graph, given, "cuda"),
        atol=ATOL,
        rtol=RTOL,
    )
    assert step.captures >= 1
    return step


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 7, 64, 300])
@pytest.mark.parametrize("name", MODELS)
def test_losses_of_captured_steps(graph, name, size):
    check_on_gpu(graph, name, size, optimizer_of(name))


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["auto", "register-tile", "naive", "memory-aware", "memory-aware-staged"])
def test_every_kernel_that_a_graph_can_hold(graph, kernel):
    check_on_gpu(graph, "sage", 64, kernel=kernel)


@pytest.mark.gpu
def test_streams_that_torch_hands_out_may_be_waited_for_during_a_capture(graph):
    """Any of them may be another thread's: torch hands out the same 32 in turn."""

    class Waits(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *given: Any) -> Any:
            for _ in range(32):
                torch.cuda.Stream().synchronize()
            return self.inner(*given)

    sampler = lab.NeighborSampler(graph, (4, 3), device="cuda")
    model = Waits(lab.make_model("sage", 10, 16, 4, 2).to("cuda"))
    step = lab.captured_step(model, torch.optim.Adam(model.parameters(), lr=0.01), sampler)
    for batch in batches(sampler, graph, 64, 4):
        assert torch.isfinite(step(batch))
    assert step.captures >= 1


@pytest.mark.gpu
def test_labels_of_several_columns(multi_label_graph):
    check_on_gpu(multi_label_graph, "sage", 64)


@pytest.mark.gpu
@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    lambda p: torch.optim.AdamW(p, lr=0.01),
    lambda p: torch.optim.RMSprop(p, lr=0.01),
], ids=["sgd", "fused adam", "adamw", "rmsprop"])  # fmt: skip
def test_optimizers(graph, make):
    check_on_gpu(graph, "gcn", 64, make)


@pytest.mark.gpu
def test_an_optimizer_with_its_state_on_the_host_is_refused(graph):
    (model, _), _ = pair(graph, "gcn", "cuda")
    with pytest.raises(ValueError, match="optimizer must be able to keep its state on the GPU"):
        lab.captured_step(model, torch.optim.Adagrad(model.parameters()), sampler_of(graph, "gcn", "cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("beside", [contextlib.nullcontext, capture_in_another_thread])
def test_mini_batches_that_grow_and_shrink(graph, beside):
    """Also while another thread captures: CUDA then refuses whatever waits for the whole device."""
    (model, optimizer), (other, others) = pair(graph, "sage", "cuda")
    rng = np.random.default_rng(1)
    with beside():
        sampler = sampler_of(graph, "sage", "cuda")
        step = lab.captured_step(model, optimizer, sampler)
        given = [
            sampler.sample(rng.choice(graph.splits["train"], n, replace=False), batch_id=i)
            for i, n in enumerate([20, 20, 20, 150, 3, 150, 150, 299, 1, 299, 299, 20])
        ]
        found = [step(batch).item() for batch in given]
    assert step.captures >= 3
    np.testing.assert_allclose(found, plain_losses(other, others, graph, given, "cuda"), atol=1e-5)


@pytest.mark.gpu
def test_schedules_and_modes_are_followed(graph):
    (model, optimizer), (other, others) = pair(graph, "gcn", "cuda")
    sampler = sampler_of(graph, "gcn", "cuda")
    step = lab.captured_step(model, optimizer, sampler)
    one, two = (torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in (optimizer, others))
    captures = []
    for epoch in range(6):
        given = batches(sampler, graph, 64, 5, epoch)
        found = [step(batch).item() for batch in given]
        np.testing.assert_allclose(found, plain_losses(other, others, graph, given, "cuda"), atol=1e-5)
        one.step(), two.step()
        captures.append(step.captures)
    assert captures[2] == captures[-1], "a learning rate is no part of the graph"


@pytest.mark.gpu
def test_a_norm_inside_a_captured_step(graph):
    class Normed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = lab.make_model("sage", graph.feat.shape[1], 16, 4, num_layers=2)
            self.norm, self.last = torch.nn.BatchNorm1d(graph.feat.shape[1]), torch.nn.BatchNorm1d(4)

        def forward(self, blocks, x):
            return self.last(self.inner(blocks, self.norm(x)))

    torch.manual_seed(0)
    model = Normed().cuda()
    other = copy.deepcopy(model)
    optimizer, others = (torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, other))
    sampler = sampler_of(graph, "sage", "cuda")
    step = lab.captured_step(model, optimizer, sampler)
    given = batches(sampler, graph, 70, 12)
    found = [step(batch).item() for batch in given]
    np.testing.assert_allclose(found, plain_losses(other, others, graph, given, "cuda"), atol=2e-5)
    torch.testing.assert_close(model.norm.running_mean, other.norm.running_mean, atol=1e-5, rtol=1e-4)


@pytest.mark.gpu
def test_dropout_draws_anew_at_each_replay(graph):
    (model, optimizer), _ = pair(graph, "sage", "cuda", lambda p: torch.optim.SGD(p, lr=0.0), dropout=0.5)
    sampler = sampler_of(graph, "sage", "cuda")
    step = lab.captured_step(model, optimizer, sampler)
    batch = sampler.sample(graph.splits["train"][:100])
    losses = [step(batch).item() for _ in range(12)]
    assert step.captures == 1 and len(set(losses)) == 12
    model.eval()
    losses = [step(batch).item() for _ in range(6)]
    assert max(losses) - min(losses) < 1e-6


@pytest.mark.gpu
def test_gradients_of_captured_sums(graph, multi_label_graph):
    for one in (graph, multi_label_graph):
        (model, optimizer), (other, _) = pair(one, "gin", "cuda")
        sampler = sampler_of(one, "gin", "cuda")
        step = lab.captured_step(model, optimizer, sampler)
        for batch in batches(sampler, one, 64, 8):
            total, weight = step.gradients(batch)
            found = [p.grad.clone() for p in model.parameters()]
            expected = plain_losses(other, torch.optim.SGD(other.parameters(), lr=0.0), one, [batch], "cuda")[
                0
            ]
            assert int(weight) == len(batch.seeds)
            assert total.item() / int(weight) == pytest.approx(expected, abs=1e-5)
            for mine, theirs in zip(found, other.parameters()):
                torch.testing.assert_close(mine / weight, theirs.grad, atol=1e-5, rtol=1e-4)
        assert 1 <= step.captures <= 3


@pytest.mark.gpu
def test_steps_on_streams_in_turn(graph):
    """They write to the same memory, and nothing of the caller's orders them."""
    (model, optimizer), (other, others) = pair(graph, "sage", "cuda")
    sampler = sampler_of(graph, "sage", "cuda")
    step = lab.captured_step(model, optimizer, sampler)
    given, found = batches(sampler, graph, 64, 24), []
    both = [torch.cuda.Stream() for _ in range(2)]
    for i, batch in enumerate(given):
        with torch.cuda.stream(both[i % 2]):
            found.append(step(batch))
    torch.cuda.synchronize()
    expected = plain_losses(other, others, graph, given, "cuda")
    np.testing.assert_allclose([loss.item() for loss in found], expected, atol=ATOL, rtol=RTOL)


@pytest.mark.gpu
def test_fused_and_plain_mini_batches_in_one_step(graph):
    (model, optimizer), (other, others) = pair(graph, "sage", "cuda")
    plain = sampler_of(graph, "sage", "cuda")
    fused = lab.FusedSampler(graph, [3, 4], device="cuda", seed=0)
    step = lab.captured_step(model, optimizer, plain)
    each = [batches(sampler, graph, 64, 12) for sampler in (plain, fused)]
    found = [step(each[i // 2 % 2][i]).item() for i in range(12)]
    expected = plain_losses(other, others, graph, each[0], "cuda")
    np.testing.assert_allclose(found, expected, atol=ATOL, rtol=RTOL)


@pytest.mark.gpu
def test_blocks_that_do_not_fit(graph):
    batch = sampler_of(graph, "sage", "cuda").sample(graph.splits["train"][:50])
    with pytest.raises(ValueError, match="fit"):
        x, labels = torch.zeros(1, 4, device="cuda"), torch.zeros(9, dtype=torch.int64, device="cuda")
        padded = PaddedBatch(Sizes((10, 5, 2), (3, 3)), False, x, labels)
        padded.fill(batch.blocks, Sizes.of(batch.blocks), batch.seeds, x)


@pytest.mark.gpu
@pytest.mark.parametrize("executor", ["serial", "thread", "streams", "overlapped"])
@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gat"])
def test_training_with_and_without(model, executor):
    given: dict[str, Any] = {
        "model": model, "fanouts": (3, 4), "hidden": 16, "batch_size": 32, "lr": 0.01, "device": "cuda", "epochs": 3,
        "progress": False, "cache_ratio": 0.5, "executor": executor,
    }  # fmt: skip
    graph = learnable_graph()
    plain, captured = (lab.train(graph, captured=flag, **given) for flag in (False, None))
    assert captured.settings["captured"] and not plain.settings["captured"]
    assert captured.batch_ids == plain.batch_ids
    np.testing.assert_allclose(captured.losses, plain.losses, atol=1e-4)
    np.testing.assert_allclose(captured.accuracy, plain.accuracy, atol=0.02)


@pytest.mark.gpu
def test_a_kernel_that_waits_for_the_host_is_refused(graph):
    with pytest.raises(ValueError, match="captured"):
        lab.train(
            graph, captured=True, kernel="grouped", device="cuda", epochs=1, progress=False, fanouts=(3, 4)
        )


CHANGES: dict[str, Any] = {
    "freeze": lambda model: model.layers[0].requires_grad_(False),
    "evaluate": lambda model: model.layers[1].eval(),
    "dropout": lambda model: setattr(model, "dropout", 0.25),
    "elsewhere": lambda model: setattr(
        model.layers[0].linear.weight, "data", model.layers[0].linear.weight.data.clone()
    ),
    "string": lambda model: setattr(model.layers[1], "reduce", "sum"),
    "tuple": lambda model: setattr(model, "sizes", (3, ("b", 1.5))),
    "scalar of NumPy": lambda model: setattr(model, "scale", np.float64(0.5)),
    "number instead of a tensor": lambda model: setattr(model, "shift", 1.0),
    "function": lambda model: setattr(model, "act", torch.tanh),
    "new attribute": lambda model: setattr(model.layers[0], "bound", 3),
    "no attribute": lambda model: delattr(model, "sizes"),
    "new layer": lambda model: model.layers.append(torch.nn.Linear(2, 2)),
    "another layer": lambda model: operator.setitem(model.layers, 1, copy.deepcopy(model.layers[1])),
    "another parameter": lambda model: setattr(
        model.layers[0].linear, "weight", copy.deepcopy(model.layers[0].linear.weight)
    ),
    "new buffer": lambda model: model.register_buffer("shown", torch.zeros(2)),
    "forward": lambda model: setattr(model.layers[0], "forward", lambda block, x: x),
    "hook": lambda model: model.layers[0].register_forward_hook(lambda layer, given, made: made + 1),
    "hook before": lambda model: model.register_forward_pre_hook(lambda model, given: None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_step_is_captured_anew_where_the_model_is_another_one(monkeypatch, change):
    """Replayed, it would go on training what is frozen, or memory that is no parameter's; graphs are made up here."""
    graph = learnable_graph()
    model = lab.make_model("sage", graph.num_features, 8, graph.num_classes, num_layers=2)
    model.sizes, model.scale, model.shift, model.act = (
        (3, ("a", 1.5)),
        np.float64(0.25),
        torch.ones(2),
        torch.relu,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = captured.CapturedStep(model, optimizer, torch.as_tensor(graph.label), None, None)
    step._under_way, step._capturing = SimpleNamespace(synchronize=lambda: None), None

    class Graph:
        def __init__(self, work: Any, of: Any, stream: Any) -> None:
            self.found = [p.requires_grad for p in of.parameters()], [m.training for m in of.modules()]

        def replay(self) -> Any:
            return self.found, None

    monkeypatch.setattr(captured, "_Captured", Graph)
    monkeypatch.setattr(step, "_padded", lambda inputs, update: ("plain", None))

    def taken() -> Any:
        return step._replayed(None, True)[0]  # type: ignore[arg-type]

    assert taken() == "plain"
    before = taken()
    assert taken() == before and step.captures == 1
    CHANGES[change](model)
    assert taken() == "plain", "what is new is launched once before it is captured"
    assert taken() == ([p.requires_grad for p in model.parameters()], [m.training for m in model.modules()])
    assert step.captures == 2
    assert taken() and step.captures == 2, "what has not changed since is replayed"
    if change in ("freeze", "evaluate"):
        model.requires_grad_(True).train()
        assert taken() == before and step.captures == 2, "as before, from what was captured then"


def test_hooks_that_take_turns_are_told_apart(graph):
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    step = lab.captured_step(model, optimizer, sampler_of(graph, "sage", "cpu"))
    handle, keys = model.register_forward_hook(print), set()
    for other in (repr, str):
        keys.add(step._key(False))
        handle.remove()
        handle = model.register_forward_hook(other)
    assert len({*keys, step._key(False)}) == 3


def test_attributes_that_cannot_be_compared_are_left_out(graph):
    """Tensors, arrays and what holds them, which have no one truth, and lists."""
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    step = lab.captured_step(model, optimizer, sampler_of(graph, "sage", "cpu"))
    found = []
    for _ in range(2):
        model.kept = {"a": torch.ones(2)}
        model.held, model.many, model.array = (torch.ones(2), 1), [1], np.ones(2)
        found.append(step._key(False))
    assert found[0] == found[1] and hash(found[0]) == hash(found[1])


def test_modules_of_torchscript_are_seen_as_others_are(graph):
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    model.traced = torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2))
    model.scripted = torch.jit.script(torch.nn.Linear(2, 2))
    step = lab.captured_step(model, optimizer, sampler_of(graph, "sage", "cpu"))
    keys = {step._key(False)}
    for module in (model.traced, model.scripted):
        module.weight.requires_grad_(False)
        keys.add(step._key(False))
    assert len(keys) == 3


def test_a_step_is_captured_anew_where_pytorch_computes_otherwise(graph):
    """Replayed, it would go on with 16 bits, or TF32, or without."""
    (model, optimizer), _ = pair(graph, "sage", "cpu")
    step = lab.captured_step(model, optimizer, sampler_of(graph, "sage", "cpu"))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before  # what was left open is said from here on
    usual = step._key(True)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            assert step._key(True) != usual
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False):
        assert step._key(True) == usual
    try:
        torch.backends.cuda.matmul.allow_tf32 = not before
        assert step._key(True) != usual
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert step._key(True) == usual


def test_weights_are_cast_anew_after_an_update(graph):
    """Autocast keeps those that it has cast until its block ends, here that of a whole loop."""

    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(10, 4)

        def forward(self, blocks: Any, x: Any) -> Any:
            return self.linear(x[: len(blocks[-1].dst)])

    sampler = sampler_of(graph, "sage", "cpu")
    given, losses = batches(sampler, graph, 64, 6), []
    for at_once in (True, False):
        torch.manual_seed(0)
        model = Linear()
        step = lab.captured_step(model, torch.optim.SGD(model.parameters(), lr=0.5), sampler)
        with torch.autocast("cpu", torch.bfloat16) if at_once else contextlib.nullcontext():
            found = []
            for batch in given:
                with torch.autocast("cpu", torch.bfloat16):
                    found.append(step(batch).item())
        losses.append(found)
    assert losses[0] == losses[1] and len(set(losses[0])) > 1


def on_a_gpu(count: int) -> tuple[Any, Any, list[Any]]:
    """A captured step that has made none, its model, and mini-batches."""
    graph = learnable_graph().to("cuda")
    sampler = lab.NeighborSampler(graph, [3, 4], device="cuda")
    model = lab.make_model("sage", graph.num_features, 8, graph.num_classes, num_layers=2).cuda()
    step = lab.captured_step(model, torch.optim.Adam(model.parameters(), lr=0.01), sampler)
    return step, model, batches(sampler, graph, 40, count)


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_what_keeps_a_step_from_being_captured_is_named():
    """A clone with gradients has backward passes wait for the stream on which it was made."""
    step, model, (batch,) = on_a_gpu(1)
    kept = [p.clone() for p in model.parameters()]
    for _ in range(captured.STEPS_TO_CAPTURE - 1):  # Adam makes its state in the first one
        step(batch)
    with pytest.raises(RuntimeError) as caught:
        step(batch)
    chain: BaseException | None = caught.value
    notes: list[str] = []
    while chain is not None:
        notes += getattr(chain, "__notes__", [])
        chain = chain.__context__
    assert any("detach it" in note for note in notes) and kept


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_steps_that_are_there_at_once_share_no_workspace():
    """cuBLAS has one for each stream that something is captured on: threads that replay two steps would share it."""

    def captured_on() -> tuple[Any, int]:
        step, _, (batch,) = on_a_gpu(1)
        for _ in range(3):
            step(batch)
        assert step.captures == 1
        return step, step._capturing.cuda_stream

    (first, one), (second, another) = captured_on(), captured_on()
    assert one != another and first is not second
    gc.collect()  # steps of other tests give theirs back, too
    del first
    gc.collect()
    assert captured_on()[1] == one, "a stream goes on to the next step"


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_frozen_layers_stay_as_they_are():
    step, model, given = on_a_gpu(8)
    for batch in given[:4]:
        step(batch)
    model.layers[0].requires_grad_(False)
    frozen, trained = ([p.detach().clone() for p in layer.parameters()] for layer in model.layers)
    for batch in given[4:]:
        step(batch)
    assert all(map(torch.equal, frozen, model.layers[0].parameters()))
    assert not any(map(torch.equal, trained, model.layers[1].parameters()))
