"""``lab.infer`` on the CPU: equal to each model written out in NumPy, however little memory there is."""

from __future__ import annotations

import copy
import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.compute.aggregation.csr import scalar_type
from gnnsample_lab.compute.inference import messages
from gnnsample_lab.compute.inference.infer import Inference, _has_steps, overlaps, shares_memory
from gnnsample_lab.compute.inference.plan import Widths, plan
from gnnsample_lab.compute.inference.sums import Pieces
from gnnsample_lab.compute.inference.tables import Rows
from gnnsample_lab.compute.layers import SAGEConv
from gnnsample_lab.compute.models import models

torch = pytest.importorskip("torch")

N, FEATURES, HIDDEN, CLASSES = 230, 12, 16, 5
BUDGETS = (None, 1e-3, 1.2e-4, 8e-5, 4e-5, 2e-5)
"""From everything in place, over tables on the device, to sums of a few vertices at a time."""


def awkward_graph(weighted: bool = True, num_nodes: int = N, edges: int = 2600, seed: int = 0) -> Any:
    """A hub, self-loops, parallel edges, vertices without in-edges, out-edges or any edge; skewed sources."""
    rng = np.random.default_rng(seed)
    src = (rng.random(edges) ** 2 * (num_nodes - 10)).astype(np.int64)
    dst = rng.integers(0, num_nodes - 20, edges)
    dst[: edges // 5] = 7
    src[-5:] = dst[-5:] = 11
    weight = (rng.random(edges) * 4).astype(np.float32)
    feat = rng.standard_normal((num_nodes, FEATURES)).astype(np.float32)
    return lab.Graph.from_edges(src, dst, num_nodes, feat=feat, edge_weight=weight if weighted else None)


def made(name: str, num_layers: int = 3, features: int = FEATURES, hidden: int = HIDDEN, **knobs: Any) -> Any:
    torch.manual_seed(3)
    model = lab.make_model(name, features, hidden, CLASSES, num_layers, heads=4, **knobs)
    for parameter in model.parameters():
        if parameter.ndim < 2:  # biases and eps, which begin as zeros
            torch.nn.init.uniform_(parameter, -0.5, 0.5)
    return model


def oracle(model: Any, graph: Any, x: np.ndarray | None = None) -> np.ndarray:
    """The model over the whole graph in double precision, with a dense matrix of edges."""
    x = np.asarray(graph.feat if x is None else x, np.float64)
    n = graph.num_nodes
    src, dst = graph.edges()
    count = np.zeros((n, n))
    np.add.at(count, (dst, src), 1.0)
    weight = np.zeros((n, n))
    np.add.at(weight, (dst, src), 1.0 if graph.edge_weight is None else graph.edge_weight.astype(np.float64))
    for index, layer in enumerate(model.layers):
        p = {k: v.detach().numpy().astype(np.float64) for k, v in layer.named_parameters()}
        if index and model.name != "pinsage":
            x = np.where(x > 0, x, np.expm1(np.minimum(x, 0))) if model.name == "gat" else np.maximum(x, 0)
        degree = count.sum(1, keepdims=True)
        if model.name == "gcn":
            x = ((count @ x + x) / (degree + 1)) @ p["linear.weight"].T + p["bias"]
        elif model.name == "sage":
            mean = count @ x / np.maximum(degree, 1)
            x = x @ p["own.weight"].T + p["own.bias"] + mean @ p["linear.weight"].T
        elif model.name == "gin":
            total = (1 + p["eps"]) * x + count @ x
            hidden = np.maximum(total @ p["mlp.0.weight"].T + p["mlp.0.bias"], 0)
            x = hidden @ p["mlp.2.weight"].T + p["mlp.2.bias"]
        elif model.name == "gat":
            values = (x @ p["linear.weight"].T).reshape(n, layer.heads, layer.size)
            a, b = (values * p["score_src"]).sum(2), (values * p["score_dst"]).sum(2)
            score = a[None] + b[:, None]  # [destination, source, head]
            score = np.where(score > 0, score, 0.2 * score)
            share = count[:, :, None] * np.exp(score - score.max(1, keepdims=True))
            share /= np.maximum(share.sum(1, keepdims=True), 1e-300)
            out = np.einsum("rsh,shf->rhf", share, values)
            out = out.mean(1) if layer.average else out.reshape(n, -1)
            x = out + x @ p["own.weight"].T + p["own.bias"]
        else:
            values = np.maximum(x @ p["neighbour.weight"].T + p["neighbour.bias"], 0)
            total = weight.sum(1, keepdims=True)
            pooled = weight @ values / np.where(total > 0, total, 1)
            x = np.concatenate([x, pooled], 1) @ p["linear.weight"].T + p["linear.bias"]
            if not layer.last:
                x = np.maximum(x, 0)
                x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return x


def assert_close(found: Any, wanted: np.ndarray) -> None:
    found = np.asarray(found)
    assert found.shape == wanted.shape
    assert found.size == 0 or np.abs(found - wanted).max() <= 1e-4 * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", sorted(models()))
def test_every_vertex_gets_what_the_whole_graph_gives(name, weighted):
    graph, model = awkward_graph(weighted), made(name)
    wanted, ranges = oracle(model, graph), set()
    for budget in BUDGETS:
        run = Inference(model, graph, device="cpu", budget_gb=budget)
        try:
            found = run.run()
        except MemoryError:
            assert name == "gat" and budget == BUDGETS[-1], (
                "the scores of all vertices alone fill this budget"
            )
            continue
        assert isinstance(found, np.ndarray) and found.dtype == np.float32
        assert_close(found, wanted)
        ranges |= {layer.ranges for layer in run.layers}
    assert max(ranges) > 2, "no budget was small enough for several ranges"


@pytest.mark.parametrize("widths", [(40, 6), (6, 40)])
@pytest.mark.parametrize("name", sorted(models()))
def test_rows_that_are_mapped_first_and_rows_that_are_not(name, widths):
    graph = awkward_graph()
    x = np.random.default_rng(1).standard_normal((N, widths[0])).astype(np.float32)
    torch.manual_seed(0)
    model = lab.make_model(name, widths[0], widths[1] + widths[1] % 2, CLASSES, 2, heads=2)
    for budget in (None, 1e-4):
        assert_close(
            lab.infer(model, graph, features=x, device="cpu", budget_gb=budget), oracle(model, graph, x)
        )


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_scale_of_weights_does_not_count(budget):
    """Shares of neighbours are weights over their sum, also where that is below 1."""
    graph, model = awkward_graph(), made("pinsage")
    scaled = dataclasses.replace(graph, edge_weight=graph.edge_weight / 1024)
    found = lab.infer(model, scaled, device="cpu", budget_gb=budget)
    assert_close(found, lab.infer(model, graph, device="cpu", budget_gb=budget))


def with_large_weights(graph: Any) -> Any:
    """Every second vertex has weights near a float32's end, others such that would be nothing on the same scale."""
    _, dst = graph.edges()
    scale = np.where(dst % 2, np.float32(2.0**125), np.float32(2.0**-60))
    return dataclasses.replace(graph, edge_weight=graph.edge_weight * scale)


@pytest.mark.parametrize(("budget", "is_called"), [(None, False), (1e-4, False), (None, True)])
def test_weights_whose_sums_are_no_floats(budget, is_called):
    graph, model = awkward_graph(), made("pinsage")
    scaled = with_large_weights(graph)
    with np.errstate(over="ignore"):
        assert np.isinf(np.add.reduceat(scaled.edge_weight, [graph.indptr[7]])), "a sum is to be no float"
    if is_called:
        model.layers[0].register_forward_hook(lambda *_: None)
    found = lab.infer(model, scaled, device="cpu", budget_gb=budget)
    assert_close(found, oracle(model, graph))


@pytest.mark.parametrize(("hidden", "classes", "features"), [(15, 5, 7), (52, 47, 12), (4, 3, 30)])
@pytest.mark.parametrize("name", sorted(models()))
def test_padded_columns(name, hidden, classes, features, monkeypatch):
    """Rows of messages are multiples of 16 bytes, as on a GPU; results do not know."""
    heads = 3 if hidden == 15 else 4
    graph, rng = awkward_graph(name == "pinsage"), np.random.default_rng(1)
    x = rng.standard_normal((N, features)).astype(np.float32)
    torch.manual_seed(3)
    model = lab.make_model(name, features, hidden, classes, 3, heads=heads)
    wanted = oracle(model, graph, x)
    monkeypatch.setitem(messages.ALIGNED_BYTES, "cpu", 16)
    widths = set()
    for budget in (None, 1e-4):
        run = Inference(model, graph, features=x, device="cpu", budget_gb=budget)
        assert_close(run.run(), wanted)
        assert all(layer.widths.columns.padded % 4 == 0 for layer in run.layers)
        widths |= {(layer.widths.columns.size, layer.widths.columns.padded) for layer in run.layers}
    assert any(size != padded for size, padded in widths)


@pytest.mark.parametrize("last", [False, True])
def test_heads_weigh_rows_where_messages_are_much_wider(last):
    """Sums of rows per head, mapped afterwards, side by side or averaged; messages if rows come in chunks."""
    graph = awkward_graph(False)
    torch.manual_seed(3)
    model = lab.make_model("gat", 6, 8 if last else 40, 9 if last else 4, 2, heads=4)
    assert [layer.attends_rows for layer in model.layers] == [not last, last]
    x = np.random.default_rng(2).standard_normal((N, 6)).astype(np.float32)
    summed = set()
    for budget in (None, 1e-3, 6e-5):
        run = Inference(model, graph, features=x, device="cpu", budget_gb=budget)
        assert_close(run.run(), oracle(model, graph, x))
        layer = run.layers[last]
        assert layer.widths.summed in (0, 4 * layer.widths.read) and (
            layer.plan.resident or not layer.widths.summed
        )
        summed.add(layer.widths.summed)
    assert len(summed) == 2


def test_pieces_of_long_rows():
    indptr = torch.tensor([0, 0, 700, 956, 1213])
    edges = indptr.diff()
    pieces = Pieces.of(edges, 1213)
    assert pieces.length == 256
    assert pieces.first.tolist() == [0, 0, 3, 3, 5] and pieces.row.tolist() == [1, 1, 1, 3, 3]
    assert Pieces.of(edges, 1 << 30).length == 4096 and Pieces.of(edges, 1 << 30).count == 0


@pytest.mark.parametrize("name", ["sage", "gat"])
def test_ranges_and_chunks_of_every_size(name, monkeypatch):
    from gnnsample_lab.compute.inference import infer as module

    graph, model = awkward_graph(num_nodes=60, edges=400), made(name, 2)
    wanted = oracle(model, graph)
    for rows in (1, 2, 7, 31, 59, 60):
        for chunk in (1, 3, 29, 60):
            chosen = module.Plan(False, False, rows, min(rows, 5), chunk)
            monkeypatch.setattr(module, "plan", lambda *_, chosen=chosen: chosen)
            run = Inference(model, graph, device="cpu", budget_gb=1.0)
            assert_close(run.run(), wanted)
            assert run.layers[0].ranges == -(-60 // rows)


@pytest.mark.parametrize("name", sorted(models()))
def test_host_rows_are_read_once_a_layer(name, tmp_path):
    graph, model = awkward_graph(), made(name)
    path = tmp_path / "features.npy"
    np.save(path, graph.feat)
    mapped = np.load(path, mmap_mode="r")
    # Neither the features nor the results of layers stay, and all sums fit: one range.
    run = Inference(
        model, graph, features=mapped, device="cpu", budget_gb=8.6e-5 if name != "gat" else 1.3e-4
    )
    widths = [FEATURES, HIDDEN, HIDDEN]
    assert_close(run.run(), oracle(model, graph))
    streamed = [layer for layer in run.layers if not layer.plan.resident]
    assert streamed and all(layer.ranges == 1 and layer.plan.chunk_rows < N for layer in streamed)
    for index, (layer, width) in enumerate(zip(run.layers, widths)):
        if layer.read_bytes:
            assert layer.read_bytes - layer.score_bytes == N * width * 4
        assert layer.score_bytes == (N * width * 4 if name == "gat" and index == 0 else 0)


@pytest.mark.parametrize("kind", ["float16", "memory-mapped", "tensor", "columns first", "list of rows"])
def test_features_of_every_kind(kind, tmp_path):
    graph, model = awkward_graph(), made("sage")
    feat = graph.feat
    if kind == "float16":
        feat = feat.astype(np.float16)
    elif kind == "memory-mapped":
        np.save(tmp_path / "x.npy", feat)
        feat = np.load(tmp_path / "x.npy", mmap_mode="r")
    elif kind == "tensor":
        feat = torch.from_numpy(feat)
    elif kind == "columns first":
        feat = np.asfortranarray(feat)
    else:
        feat = [np.asarray(row) for row in feat]
    for budget in (None, 1e-4):
        found = lab.infer(model, graph, features=feat, device="cpu", budget_gb=budget)
        assert_close(found, oracle(model, graph, np.asarray(feat)))


def test_edges_of_every_awkward_graph():
    for n, src, dst in (
        (1, [], []),
        (1, [0, 0], [0, 0]),
        (3, [], []),
        (4, [3, 3, 3], [0, 0, 3]),
        (0, [], []),
    ):
        feat = np.random.default_rng(0).standard_normal((n, FEATURES)).astype(np.float32)
        graph = lab.Graph.from_edges(np.array(src, int), np.array(dst, int), n, feat=feat)
        for name in models():
            model = made(name, 2)
            found = lab.infer(model, graph, device="cpu")
            assert_close(found, oracle(model, graph) if n else np.zeros((0, CLASSES)))


@pytest.mark.parametrize("name", ["gin", "gat"])
def test_the_model_is_left_as_it_was(name):
    graph, model = awkward_graph(), made(name, dropout=0.5)
    model.train()
    model.layers[1].eval()
    before = copy.deepcopy(model.state_dict())
    first = lab.infer(model, graph, device="cpu")
    assert np.array_equal(first, lab.infer(model, graph, device="cpu")), "dropout was not switched off"
    assert model.training and not model.layers[1].training and model.layers[0].training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    with pytest.raises(MemoryError, match="the sums of layer 0 do not fit"):
        lab.infer(model, graph, device="cpu", budget_gb=1e-9)
    assert model.training and not model.layers[1].training


def test_double_precision():
    graph, model = awkward_graph(), made("gat").double()
    found = lab.infer(model, graph, device="cpu")
    assert found.dtype == np.float64
    assert np.abs(found - oracle(model, graph)).max() < 1e-10


def test_results_go_where_the_caller_says(tmp_path):
    graph, model = awkward_graph(), made("gcn")
    wanted = oracle(model, graph)
    mapped = np.lib.format.open_memmap(tmp_path / "y.npy", "w+", np.float32, (N, CLASSES))
    for out in (
        np.empty((N, CLASSES)),
        mapped,
        torch.empty(N, CLASSES),
        np.empty((CLASSES, N), np.float32).T,
    ):
        for budget in (None, 1e-4):
            assert lab.infer(model, graph, device="cpu", out=out, budget_gb=budget) is out
            assert_close(out, wanted)
            out[:] = 0


class Sums(torch.nn.Module):
    """A user's layer that knows blocks only, and leans on the order of destinations."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(inputs, outputs)

    def forward(self, block: Any, x: Any) -> Any:
        return self.linear(lab.aggregate(block, x, reduce="sum") + x[: len(block.dst)])


class Own(torch.nn.Module):
    def __init__(self, *layers: Any) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def between(self, x: Any) -> Any:
        return torch.tanh(x)


def test_models_of_a_users_own_layers():
    graph = awkward_graph()
    torch.manual_seed(0)
    model = Own(Sums(FEATURES, 9), SAGEConv(9, CLASSES))
    count = np.zeros((N, N))
    src, dst = graph.edges()
    np.add.at(count, (dst, src), 1.0)
    first, second = ({k: v.detach().numpy() for k, v in m.named_parameters()} for m in model.layers)
    x = np.tanh((count @ graph.feat + graph.feat) @ first["linear.weight"].T + first["linear.bias"])
    mean = count @ x / np.maximum(count.sum(1, keepdims=True), 1)
    wanted = x @ second["own.weight"].T + second["own.bias"] + mean @ second["linear.weight"].T
    for budget in (None, 1e-3):
        assert_close(lab.infer(model, graph, device="cpu", budget_gb=budget), wanted)
    with pytest.raises(MemoryError, match="layer 0 has no message, root, update"):
        lab.infer(model, graph, device="cpu", budget_gb=1e-5)


@pytest.mark.parametrize(("name", "free"), [("gcn", r"0\.001 bytes"), ("gat", "0 bytes")])
def test_a_budget_that_is_tiny_is_said_as_it_was_given(name, free):
    """Scores of the next layer take all of it."""
    said = rf"{free} are free within budget_gb=1e-12 \(0\.001 bytes\) for it, and it needs about [\d.]+ kB \("
    with pytest.raises(MemoryError, match=said):
        lab.infer(made(name), awkward_graph(), device="cpu", budget_gb=1e-12)


class Scaled(SAGEConv):
    """A layer that inherits the steps and does more."""

    def forward(self, block: Any, x: Any) -> Any:
        return 3 * super().forward(block, x)


class Doubled(SAGEConv):
    """A layer whose step and ``forward`` agree, since the latter takes the step."""

    def finish(self, rows: Any, root: Any, mapped: bool) -> Any:
        return 2 * super().finish(rows, root, mapped)


def test_layers_that_do_more_than_their_steps_are_called():
    graph = awkward_graph()
    hooked, patched = SAGEConv(FEATURES, 6), SAGEConv(FEATURES, 6)
    hooked.register_forward_hook(lambda layer, given, made: made + 1)
    patched.forward = lambda block, x: SAGEConv.forward(patched, block, x) - 1  # type: ignore[method-assign]
    for layer in (Scaled(FEATURES, 6), hooked, patched):
        model = Own(layer, SAGEConv(6, CLASSES))
        inference = Inference(model, graph, device="cpu")
        found = inference.run()
        x = torch.from_numpy(graph.feat)
        with torch.no_grad():
            wanted = model.layers[1](inference.block(), model.between(layer(inference.block(), x)))
        assert_close(found, wanted.numpy())
        assert inference.layers[0].plan is None
    assert not _has_steps(Scaled(2, 2)) and _has_steps(Doubled(2, 2))


def test_steps_that_are_not_what_a_call_gives_are_not_used():
    """Attributes that steps read and the call does not, rows of others in a step, columns that change."""

    class Careless(SAGEConv):
        def forward(self, block: Any, x: Any) -> Any:
            return SAGEConv.forward(self, block, x) if self.reduce == "mean" else x.new_ones(block.num_dst, 6)

        message, root, update = SAGEConv.message, SAGEConv.root, SAGEConv.update

    class Centred(SAGEConv):
        def finish(self, rows: Any, root: Any, mapped: bool) -> Any:
            made = super().finish(rows, root, mapped)
            return made - made.mean(0)

    graph = awkward_graph()
    sums = Careless(FEATURES, 6)
    sums.reduce = "sum"
    tanh = made("gin", 2, hidden=4).layers[0]
    tanh.mlp[1] = torch.nn.Tanh()
    for layer, in_parts in (
        (sums, False),
        (Centred(FEATURES, 6), False),
        (tanh, False),
        (Doubled(FEATURES, 6), True),
    ):
        model = Own(layer, SAGEConv(4 if layer is tanh else 6, CLASSES))
        inference = Inference(model, graph, device="cpu")
        found, x = inference.run(), torch.from_numpy(graph.feat)
        with torch.no_grad():
            wanted = model.layers[1](inference.block(), model.between(layer(inference.block(), x)))
        assert_close(found, wanted.numpy())
        assert (inference.layers[0].plan is not None) is in_parts, type(layer)


def test_columns_may_depend_on_an_attribute():
    class Wide(SAGEConv):
        times = 1

        def finish(self, rows: Any, root: Any, mapped: bool) -> Any:
            return super().finish(rows, root, mapped).repeat(1, self.times)

    graph, model = awkward_graph(), Own(SAGEConv(FEATURES, 6), Wide(6, CLASSES))
    once = lab.infer(model, graph, device="cpu")
    model.layers[1].times = 2
    twice = np.empty((N, 2 * CLASSES), np.float32)
    lab.infer(model, graph, device="cpu", out=twice)
    np.testing.assert_array_equal(twice, np.concatenate([once, once], 1))


@pytest.mark.parametrize("name", ["gcn", "gat", "pinsage"])
def test_models_of_ours_are_not_tried(monkeypatch, name):
    """What they do is known, and a trial waits for the GPU several times; of a class that inherits it is not."""
    tried = []
    monkeypatch.setattr("gnnsample_lab.compute.inference.infer._is_near", lambda *_: tried.append(1) or True)
    graph, model = awkward_graph(), made(name)
    lab.infer(model, graph, device="cpu")
    assert not tried

    class Other(type(model)):
        def between(self, x: Any) -> Any:
            return super().between(x) * 2

    model.__class__ = Other
    lab.infer(model, graph, device="cpu")
    assert tried


def test_rows_between_layers_depend_on_no_other_rows():
    model = Own(SAGEConv(FEATURES, 6), SAGEConv(6, CLASSES))
    model.between = lambda x: x - x.mean(0)
    with pytest.raises(ValueError, match="between of model must make each row of that row alone.*got Own"):
        lab.infer(model, awkward_graph(), device="cpu")


def test_hooks_of_all_modules_are_seen():
    graph, model = awkward_graph(), Own(SAGEConv(FEATURES, 6), SAGEConv(6, CLASSES))
    before = lab.infer(model, graph, device="cpu")
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, given, made: made + 1 if module is model.layers[1] else None
    )
    try:
        assert_close(lab.infer(model, graph, device="cpu"), before + 1)
    finally:
        hook.remove()


class Whole(Own):
    """A model with a ``forward``, which may do more than the layers."""

    def __init__(self, *layers: Any, extra: str = "") -> None:
        super().__init__(*layers)
        self.extra = extra

    def forward(self, blocks: Any, x: Any) -> Any:
        x = torch.nn.functional.layer_norm(x, x.shape[1:]) if self.extra == "norm" else x
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            before, x = x, layer(block, x)
            if self.extra == "residual" and number:
                x = x + before[: len(x), : x.shape[1]]
            x = self.between(x) if number + 1 < len(self.layers) else x
        return x.log_softmax(1) if self.extra == "softmax" else x


@pytest.mark.parametrize("extra", ["norm", "residual", "softmax"])
def test_a_model_whose_forward_does_more_is_refused(extra):
    graph = awkward_graph()
    layers = (SAGEConv(FEATURES, 9), SAGEConv(9, CLASSES))
    with pytest.raises(ValueError, match="forward of model does more than its layers .*got Whole"):
        lab.infer(Whole(*layers, extra=extra), graph, device="cpu")
    found = lab.infer(Whole(*layers), graph, device="cpu")
    assert_close(found, lab.infer(Own(*layers), graph, device="cpu"))


class Around(torch.nn.Module):
    """A model whose ``forward`` is that of another one, and what weights and attributes make of it."""

    def __init__(self, gnn: Any) -> None:
        super().__init__()
        self.gnn, self.norm, self.skip = gnn, torch.nn.BatchNorm1d(FEATURES), False
        self.alpha = torch.nn.Parameter(torch.zeros(()))
        self.layers, self.between = gnn.layers, gnn.between

    def forward(self, blocks: Any, x: Any) -> Any:
        x = self.norm(x) * 2 if self.skip else self.norm(x)
        found = self.gnn(blocks, x)
        return found + self.alpha * x[: len(found), :CLASSES]


def trained_norm(model: Any) -> None:
    model.norm.running_mean += 1


def trained_residual(model: Any) -> None:
    with torch.no_grad():
        model.alpha += 0.5


def switched(model: Any) -> None:
    model.skip = True


def patched_instance(model: Any) -> None:
    model.gnn.forward = lambda blocks, x: type(model.gnn).forward(model.gnn, blocks, x) + 1


@pytest.mark.parametrize("change", [trained_norm, trained_residual, switched, patched_instance])
def test_a_forward_that_does_more_once_the_model_has_changed_is_refused(change):
    graph, model = awkward_graph(), Around(made("sage"))
    found = lab.infer(model, graph, device="cpu")
    assert_close(found, oracle(model.gnn, graph))
    change(model)
    with pytest.raises(ValueError, match="forward of model does more than its layers .*got Around"):
        lab.infer(model, graph, device="cpu")


def test_hooks_and_forwards_put_on_models_of_the_package_are_seen():
    graph, hooked, patched = awkward_graph(), made("sage"), made("sage")
    hooked.register_forward_hook(lambda model, given, made: made + 1)
    patched.forward = lambda blocks, x: type(patched).forward(patched, blocks, x) + 1
    for model in (hooked, patched):
        with pytest.raises(ValueError, match="forward of model does more than its layers"):
            lab.infer(model, graph, device="cpu")


class Given(Own):
    """A model whose ``forward`` does ``first`` to its rows."""

    def __init__(self, first: Any) -> None:
        super().__init__(SAGEConv(FEATURES, 9), SAGEConv(9, CLASSES))
        self.first = first

    def forward(self, blocks: Any, x: Any) -> Any:
        x = self.first(x)
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, self.between(x) if number else x)
        return x


def test_a_forward_that_fails_is_refused():
    place = torch.randn(N, FEATURES)
    with pytest.raises(
        ValueError, match="model must have a forward.*got Given, which fails on six .*RuntimeError"
    ):
        lab.infer(Given(lambda x: x + place), awkward_graph(), device="cpu")


@pytest.mark.parametrize("bound", [1, 50])
def test_a_forward_that_bounds_its_rows_is_refused(bound):
    graph = awkward_graph()
    with pytest.raises(ValueError, match="forward of model does more than its layers"):
        lab.infer(Given(lambda x: x.clamp(-bound, bound)), graph, device="cpu")


def test_a_forward_that_adds_little_is_refused():
    """Little beside the largest rows of the check, much beside the others."""
    with pytest.raises(ValueError, match="forward of model does more than its layers"):
        lab.infer(Given(lambda x: x + 0.05), awkward_graph(), device="cpu")


def test_a_forward_of_other_arguments_is_not_tried():
    class Other(Own):
        def forward(self, graph: Any, x: Any, weight: Any) -> Any:
            raise AssertionError("called")

    layers = (SAGEConv(FEATURES, 9), SAGEConv(9, CLASSES))
    graph = awkward_graph()
    assert_close(lab.infer(Other(*layers), graph, device="cpu"), lab.infer(Own(*layers), graph, device="cpu"))


def test_a_layer_may_keep_something_for_each_vertex():
    """Of a graph smaller than the one that a ``forward`` is tried on, too."""

    class Embedded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = torch.nn.Embedding(2, CLASSES)

        def forward(self, block: Any, x: Any) -> Any:
            return self.rows(block.dst)

    graph = lab.Graph.from_edges([0, 1], [1, 0], 2, feat=np.ones((2, 3), np.float32))
    model = Whole(Embedded())
    found = lab.infer(model, graph, device="cpu")
    assert_close(found, model.layers[0].rows.weight.detach().numpy())


def test_models_that_cannot_be_run_are_refused():
    graph = awkward_graph()
    plain = torch.nn.Sequential(torch.nn.Linear(FEATURES, CLASSES))
    without = Own()
    for model in (plain, without, torch.nn.Linear(3, 3)):
        with pytest.raises(TypeError, match="model must have layers, .* and between"):
            lab.infer(model, graph, device="cpu")
    with pytest.raises(TypeError, match="model must be a torch module"):
        lab.infer("sage", graph, device="cpu")
    with pytest.raises(ValueError, match="features must suit the model: layer 0 fails on rows of 12 columns"):
        lab.infer(made("gcn", features=7), graph, device="cpu")
    with pytest.raises(TypeError, match="float32 or float64"):
        lab.infer(made("gcn").half(), graph, device="cpu")


def test_bad_arguments():
    graph, model = awkward_graph(), made("gcn")
    bare = lab.Graph.from_edges([0], [1], 2)
    for changes, error, message in (
        ({"graph": bare}, ValueError, "has no features: give features"),
        ({"features": np.zeros((3, FEATURES), np.float32)}, ValueError, "features must have one row per vertex, 230"),
        ({"features": np.zeros((N, FEATURES), int)}, TypeError, "features must be float32 or float16"),
        ({"budget_gb": 0}, ValueError, "budget_gb must be"),
        ({"out": np.zeros((N, 3), np.float32)}, ValueError, r"out must have shape \(230, 5\)"),
        ({"out": np.zeros((N, CLASSES), int)}, TypeError, "out must hold floating-point numbers"),
        ({"out": [[0.0]]}, TypeError, "out must be an array or a tensor"),
        ({"progress": 1}, TypeError, "progress must be True or False"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            lab.infer(**{"model": model, "graph": graph, "device": "cpu", **changes})
    locked = np.zeros((N, CLASSES), np.float32)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="out must be writeable"):
        lab.infer(model, graph, device="cpu", out=locked)


def test_a_plan_never_exceeds_the_budget():
    """Counted from the plan's own sizes: tables, sums, buffers and temporary rows together."""
    rng = np.random.default_rng(0)
    kinds, early = set(), 0
    for number in range(4000):
        n = int(rng.integers(1, 10**6))
        w = Widths(
            int(rng.integers(1, 2000)),
            *(int(v) for v in rng.integers(1, 200, 3)),
            heads=int(rng.integers(0, 9)),
        )
        free, on_device = float(10 ** rng.uniform(5, 10)), bool(rng.integers(0, 2))
        overlaps = bool(rng.integers(0, 2))
        if number % 2:  # as much as sums that begin early need, or a little less
            w, on_device, overlaps = dataclasses.replace(w, heads=0), False, True
            n = int(rng.integers(1, 1 + (400 << 20) // w.slice_bytes))  # all vertices' results at a time
            free = n * (4 * (2 * w.sent + w.root + w.result) + 16 + w.slice_bytes) * rng.uniform(0.99, 1.05)
        try:
            p = plan(n, w, free, on_device, overlaps=overlaps)
        except MemoryError:
            assert free < 4 * n * (w.read + w.sent + w.root + w.result + 2 * w.heads) + 1e7
            continue
        chunk = p.chunk_rows * 4 * ((0 if on_device else 3 * w.read) + w.read + 2 * w.sent + w.root)
        used = 8 * n * w.heads + p.keeps * 4 * n * w.result
        if p.passing:
            assert not on_device
            used += 4 * n * (w.sent + w.root) + max(p.slice_rows * w.slice_bytes, chunk)
            used += p.early * n * (4 * w.sent + 8 + 2 * 4)  # sums, where edges are cut, two first pieces
        elif p.resident:
            used += 4 * n * ((0 if on_device else w.read) + w.sent) + max(p.slice_rows * w.slice_bytes, chunk)
        else:
            used += chunk + p.rows * 4 * (w.sent + w.root) + p.slice_rows * w.slice_bytes
        assert used <= free
        assert 1 <= p.slice_rows <= n and 1 <= p.rows <= n and p.chunk_rows >= 1
        if p.early:  # the cut between the sums' halves is the end of a chunk that is not the last
            assert p.passing and overlaps and not w.heads and 4 * p.chunk_rows <= n
            early += 1
        kinds.add((p.resident, p.keeps, p.rows < n))
    # Sums grow chunk by chunk only where not even the messages of all vertices fit.
    assert kinds == {(True, True, False), (True, False, False), (False, False, True)}
    assert early > 500, "sums begin before the last rows"


def test_chunks_cover_a_table_in_order():
    table = np.arange(30, dtype=np.float32).reshape(10, 3)
    for rows in (1, 3, 10, 99):
        source = Rows(table, "cpu")
        chunks = list(source.chunks(rows))
        assert [c[0] for c in chunks] == list(range(0, 10, rows))
        assert np.array_equal(np.concatenate([c[2].numpy() for c in chunks]), table)
        assert source.copied_bytes == table.nbytes


def test_layers_of_training_and_of_inference_are_the_same():
    """A sampled mini-batch of all neighbours gives a seed what the inference gives it."""
    graph = lab.load("arxiv-like", scale=0.01)
    seeds = np.arange(0, graph.num_nodes, 17)
    batch = lab.NeighborSampler(graph, [-1, -1], device="cpu").sample(seeds)
    x = torch.from_numpy(np.asarray(graph.feat)[batch.node_ids])
    for name in models():
        torch.manual_seed(1)
        model = lab.make_model(name, graph.num_features, 16, 7, 2)
        with torch.no_grad():
            wanted = model(batch.blocks, x).numpy()
        assert_close(lab.infer(model, graph, device="cpu")[seeds], wanted)


def test_pageable_rows_pass_through_slots(monkeypatch):
    """Every byte arrives where it belongs, whatever threads do first, and slots serve the next table."""
    import ctypes
    import sys
    import types

    from gnnsample_lab.compute.inference import tables

    class Event:
        recorded = 0

        def synchronize(self) -> None:
            pass

        def record(self, stream: Any) -> None:
            Event.recorded += stream.cuda_stream == 5

    runtime = types.SimpleNamespace(
        memcpyAsync=lambda to, given, size, kind, stream: ctypes.memmove(to, given, size),
        memcpyHostToDevice=1, getDevice=lambda: 0, setDevice=lambda device: None,
    )  # fmt: skip
    cuda = types.SimpleNamespace(runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(tables.pinned, "empty", lambda size: np.empty(size, np.uint8))
    tables._staging.cache_clear()
    try:
        send, stream = tables.Staged(1000, 3), types.SimpleNamespace(cuda_stream=5)
        for shape, dtype in (((333, 7), np.float32), ((250, 1), np.float32), ((1, 3), np.float16)):
            table = np.random.default_rng(0).standard_normal(shape).astype(dtype)
            arrived = np.zeros(shape, dtype)
            parts = send(table, arrived.ctypes.data, stream)
            assert len(parts) == -(-table.nbytes // 1000)
            for part in parts:
                part.result()
            assert np.array_equal(arrived, table)
        assert Event.recorded == 10 + 1 + 1
    finally:
        tables._staging.cache_clear()


@pytest.mark.parametrize("locked", [True, False])
def test_work_on_a_chunk_waits_for_no_later_chunk(locked, monkeypatch):
    """An event is recorded on the stream of a chunk's copy before that stream gets the copy of another chunk."""
    from concurrent.futures import Future

    from gnnsample_lab.compute.inference import tables

    class Stream:
        def __init__(self) -> None:
            self.log: list[tuple[str, Any]] = []

        def wait_stream(self, other: Any) -> None:
            self.log.append(("wait stream", other))

        def wait_event(self, event: Any) -> None:
            self.log.append(("wait", event.stands))

        def synchronize(self) -> None:
            pass

    class Event:
        stands: Any = None

        def record(self, stream: Stream) -> None:
            self.stands = next((what for name, what in reversed(stream.log) if name == "copy"), None)
            stream.log.append(("record", self.stands))

    main, copying = Stream(), [Stream() for _ in range(1 if locked else tables.BUFFERS)]
    table, rows = np.arange(40, dtype=np.float32).reshape(20, 2), 3
    bounds = [(at, min(at + rows, 20)) for at in range(0, 20, rows)]

    def send(source: np.ndarray, address: int, stream: Stream) -> list[Any]:
        stream.log.append(("copy", int(source[0, 0]) // 2))
        if locked:
            return []
        part: Future[None] = Future()
        part.set_result(None)
        return [part]

    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda shape, dtype, device: empty(shape, dtype=dtype))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    chunks = tables.Rows(table, "cuda")._copies_on(copying, send, table, bounds, rows)
    for begin, _, _ in chunks:
        assert main.log[-1] == ("wait", begin), "work waits for its own chunk alone"
        main.log.append(("copy", f"work on {begin}"))
    for stream in copying:
        mine = [(name, what) for name, what in stream.log if name in ("copy", "record")]
        assert [name for name, _ in mine] == ["copy", "record"] * (len(mine) // 2)
    copies = [(begin, stream) for stream in copying for name, begin in stream.log if name == "copy"]
    assert sorted(begin for begin, _ in copies) == [begin for begin, _ in bounds]
    for begin, stream in copies:
        before = stream.log[stream.log.index(("copy", begin)) - 1]
        wanted = f"work on {begin - 3 * rows}" if begin >= 3 * rows else None
        assert before == ("wait", wanted), "a buffer is written when the work on what it held is done"


@pytest.mark.parametrize(("on_gpu", "rows_there"), [(True, False), (True, True), (False, False)])
def test_sums_begin_early_beside_a_copy_from_the_host_alone(on_gpu, rows_there, monkeypatch):
    from gnnsample_lab.compute.inference import infer as module

    run = object.__new__(Inference)
    run.graph, run.where, run.stream = SimpleNamespace(num_nodes=9), "there", False
    run.rows, run.topology = SimpleNamespace(on_device=rows_there), SimpleNamespace(on_gpu=on_gpu)
    monkeypatch.setattr(run, "_side_bytes", lambda widths: 0)
    monkeypatch.setattr(module, "plan", lambda *given: given)
    _, given = run._planned(SimpleNamespace(), None, 1e9, False, "layer 0")
    assert given[-1] == (on_gpu and not rows_there)


@pytest.mark.parametrize("fails", [None, "sums", "chunk"])
def test_sums_that_begin_early_wait_for_their_messages_and_are_waited_for(fails, monkeypatch):
    """On a stream of their own: it waits for the rows up to the cut, and whatever happens the first waits for it."""
    import contextlib

    from gnnsample_lab.compute.inference import infer as module

    log: list[Any] = []

    class Stream:
        def __init__(self, name: str) -> None:
            self.name = name

        def wait_stream(self, other: Any) -> None:
            log.append((self.name, "waits for", other.name))

    main, summing, here = Stream("main"), Stream("summing"), ["main"]

    @contextlib.contextmanager
    def on(stream: Stream) -> Any:
        here.append(stream.name)
        yield
        here.pop()

    def passes(*_: Any) -> Any:
        for begin in range(0, 100, 10):
            if fails == "chunk" and begin == 80:
                raise RuntimeError("chunk")
            log.append((here[-1], "messages of", begin))
            yield begin, begin + 10, None

    def begun(topology: Any, cut: int, *_: Any) -> Any:
        log.append((here[-1], "sums up to", cut))
        if fails == "sums":
            raise RuntimeError("sums")
        return "early"

    run = object.__new__(Inference)
    run.graph, run.dtype, run.device = SimpleNamespace(num_nodes=100), torch.float32, "cpu"
    run.topology = SimpleNamespace(
        halves=lambda cut: log.append((here[-1], "cut at", cut)),
        turns=lambda *_: log.append((here[-1], "turns")),
    )
    monkeypatch.setattr(run, "_passes", passes)
    monkeypatch.setattr(module, "begun", begun)
    monkeypatch.setattr(module.streams, "borrowed_torch_stream", lambda: contextlib.nullcontext(summing))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "stream", on)
    chosen, widths = SimpleNamespace(chunk_rows=10), SimpleNamespace(sent=4, root=3)
    layer = SimpleNamespace(weighted=False)
    with contextlib.nullcontext() if fails is None else pytest.raises(RuntimeError, match=fails):
        message, root, early = run._overlapped(layer, chosen, widths, None)
        assert (message.shape, root.shape, early) == ((100, 4), (100, 3), "early")
    assert log[:2] == [("main", "cut at", 60), ("main", "turns")]
    began = log.index(("summing", "sums up to", 60))
    assert log[began - 2 : began] == [("main", "messages of", 50), ("summing", "waits for", "main")]
    assert log[-1] == ("main", "waits for", "summing"), "before anything is freed"
    assert len(log) == {None: 15, "sums": 11, "chunk": 13}[fails]


@pytest.mark.parametrize("name", ["gcn", "sage", "gin"])
def test_folded_sums_are_the_update(name):
    """What kernels do to sums as they write them, and the rest of the update, against the layer as training runs it."""
    graph, model = awkward_graph(), made(name)
    x = torch.from_numpy(np.random.default_rng(2).standard_normal((N, 9)).astype(np.float32))
    total = torch.from_numpy(np.random.default_rng(3).standard_normal((N, 9)).astype(np.float32))
    lengths = torch.from_numpy(np.diff(graph.indptr).astype(np.float32)).unsqueeze(1)
    layer = type(model.layers[0])(9, 9)
    for mapped in (False, True):
        message = layer.message(x, mapped)
        root = layer.root(x, message)
        fold = layer.fold(root, mapped)
        if name == "gcn":
            wanted = (total + message) / (lengths + 1)
            wanted = (wanted if mapped else layer.linear(wanted)) + layer.bias
        elif name == "sage":
            wanted = layer.own(x) + (total if mapped else layer.linear(total))
        else:
            wanted = total + message
            wanted = layer.mlp[1:](wanted + layer.mlp[0].bias) if mapped else layer.mlp(wanted)
        rows = total if fold is None else fold.apply(total, lengths)
        found = layer.finish(rows, root, mapped)
        torch.testing.assert_close(found, wanted)
        root = layer.root(x, message)  # the last may have been added to
        torch.testing.assert_close(layer.update(root, total, lengths, mapped), wanted)
        if fold is not None and fold.whole:
            relu = dataclasses.replace(fold, relu=True).apply(total, lengths)
            torch.testing.assert_close(relu, torch.relu(wanted))


def test_a_later_inference_finds_what_was_made_of_the_graph(monkeypatch):
    graph, model = awkward_graph(), made("gcn")
    first = Inference(model, graph, device="cpu")
    found = first.run()
    monkeypatch.setattr(Inference, "_tried", lambda *_: pytest.fail("widths were worked out again"))
    second = Inference(model, graph, device="cpu")
    assert np.array_equal(second.run(), found)
    assert second.topology.indices is first.topology.indices and second.topology.kept is first.topology.kept
    with torch.no_grad():
        model.layers[-1].bias += 1
    assert np.allclose(Inference(model, graph, device="cpu").run(), found + 1, atol=1e-4)
    model.between = torch.tanh
    again = Inference(model, graph, device="cpu").run()
    assert not np.allclose(again, found, atol=1e-2), "the model's own activation was not used"


def test_results_are_no_views_of_the_features():
    """A layer that returns what it reads."""
    from gnnsample_lab.compute.layers import Layer

    class Itself(Layer):
        def finish(self, rows: Any, root: Any, mapped: bool) -> Any:
            return root

    graph = awkward_graph()
    found = lab.infer(Own(Itself()), graph, device="cpu")
    assert np.array_equal(found, graph.feat) and not np.shares_memory(found, graph.feat)


def test_layers_that_write_to_what_they_read_leave_the_features():
    class View(torch.nn.Module):
        def forward(self, block, x):
            return x[: block.num_dst]

    class InPlace(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([View(), View()])

        def between(self, x):
            return x.relu_()

    graph = lab.Graph.from_edges([0, 1], [1, 0], 2, feat=[[-1.0, 2.0], [3.0, -4.0]])
    found = lab.infer(InPlace(), graph, device="cpu")
    assert graph.feat.tolist() == [[-1, 2], [3, -4]] and np.asarray(found).tolist() == [[0, 2], [3, 0]]


@pytest.mark.parametrize("name", sorted(models()))
def test_autocast_changes_nothing(name):
    graph, model = awkward_graph(), made(name)
    expected = lab.infer(model, graph, device="cpu")
    for budget in (None, 8e-5):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = lab.infer(model, graph, device="cpu", budget_gb=budget)
            assert torch.is_autocast_enabled("cpu")
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_results_do_not_go_where_the_features_are():
    graph, model = awkward_graph(), made("gcn", num_layers=1)
    memory = np.zeros(N * FEATURES, np.float32)
    features = memory.reshape(N, FEATURES)
    features[:] = graph.feat
    for given, out in (
        (features, memory[8 : 8 + N * CLASSES].reshape(N, CLASSES)),
        (torch.from_numpy(features), features[:, :CLASSES]),
        (features, torch.from_numpy(features)[:, :CLASSES]),
    ):
        with pytest.raises(ValueError, match="out must not share memory with the features"):
            lab.infer(model, graph, features=given, device="cpu", out=out)
    assert np.array_equal(features, graph.feat)
    # Columns of one table, of which the features are copied before anything is written.
    table = np.concatenate([graph.feat, np.zeros((N, CLASSES), np.float32)], axis=1)
    lab.infer(model, graph, features=table[:, :FEATURES], device="cpu", out=table[:, FEATURES:])
    assert_close(table[:, FEATURES:], oracle(model, graph))
    one = torch.zeros(20, 6)
    assert (
        shares_memory(one[:10], one[9:])
        and shares_memory(one, one[3:4])
        and not shares_memory(one[:10], one[10:])
    )
    assert not shares_memory(one[:0], one) and not shares_memory(one, one.numpy())


def test_results_have_memory_for_every_element():
    graph, model = awkward_graph(), made("gcn", num_layers=1)
    memory = torch.zeros(4 * N * CLASSES)
    strided = np.lib.stride_tricks.as_strided
    for out in (
        torch.zeros(1, CLASSES).expand(N, CLASSES),
        torch.zeros(N, 1).expand(N, CLASSES),
        memory.as_strided((N, CLASSES), (CLASSES - 1, 1)),
        strided(memory.numpy(), (N, CLASSES), (4, 0)),
        strided(memory.numpy(), (N, CLASSES), (2, 4 * N)),
    ):
        with pytest.raises(
            ValueError, match=r"out must have memory of its own for every element \(got strides"
        ):
            lab.infer(model, graph, device="cpu", out=out)
    assert not memory.any()
    wanted = oracle(model, graph)
    for out in (
        memory.as_strided((N, CLASSES), (1, N)),
        memory.as_strided((N, CLASSES), (4 * CLASSES, 3)),
        np.zeros((N, CLASSES), np.float32)[::-1],
    ):
        assert_close(lab.infer(model, graph, device="cpu", out=out), wanted)
    assert not overlaps(torch.zeros(1).expand(0, 3)) and not overlaps(torch.zeros(1, 5).expand(1, 5))


def test_kernels_are_not_made_for_types_that_they_do_not_read():
    assert [scalar_type(torch.zeros(1, dtype=t)) for t in (torch.float32, torch.float64)] == [
        "float",
        "double",
    ]
    for wrong in (torch.bfloat16, torch.float16, torch.int64):
        with pytest.raises(TypeError, match="tables must be of float32 or float64"):
            scalar_type(torch.zeros(1, dtype=wrong))
