"""The models on the CPU: shapes, what each layer computes, learning, bad arguments."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.compute.models import models
from tests.compute.conftest import dense, random_block

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def batch():
    graph = lab.load("arxiv-like", scale=0.02)
    return graph, lab.NeighborSampler(graph, [5, 4, 3], device="cpu").sample(range(60))


@pytest.mark.parametrize("expand", ["frontier", "new"])
@pytest.mark.parametrize("name", sorted(models()))
def test_a_model_runs_and_every_parameter_gets_a_gradient(name, expand):
    graph = lab.load("arxiv-like", scale=0.02)
    sample = lab.NeighborSampler(graph, [5, 4, 3], device="cpu", expand=expand).sample(range(60))
    model = lab.make_model(name, graph.feat.shape[1], 64, 7)
    x = torch.from_numpy(np.asarray(graph.feat)[sample.node_ids]).float()
    logits = model(sample.blocks, x)
    assert logits.shape == (60, 7)
    torch.nn.functional.cross_entropy(logits, torch.arange(60) % 7).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, parameter_name
    again = model(sample.to_torch().blocks, x)
    assert torch.allclose(logits, again)


@pytest.mark.parametrize("name", sorted(models()))
def test_a_model_learns(name, batch):
    graph, sample = batch
    torch.manual_seed(0)
    model = lab.make_model(name, graph.feat.shape[1], 64, 40)
    x = torch.from_numpy(np.asarray(graph.feat)[sample.node_ids]).float()
    y = torch.from_numpy(np.asarray(graph.label)[sample.seeds]).long()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(sample.blocks, x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("widths", [(9, 4), (4, 9)])
@pytest.mark.parametrize("kind", ["gcn", "sage", "gin"])
def test_layers_compute_what_they_say(kind, widths):
    from gnnsample_lab.compute import layers

    block = random_block()
    x = torch.rand(block.num_src, widths[0])
    total = torch.from_numpy(dense(block)).float() @ x
    own, length = x[: block.num_dst], torch.from_numpy(np.diff(block.indptr)).float().unsqueeze(1)
    if kind == "gcn":
        layer = layers.GCNConv(*widths)
        torch.nn.init.uniform_(layer.bias)
        expected = layer.linear((total + own) / (length + 1)) + layer.bias
    elif kind == "sage":
        layer = layers.SAGEConv(*widths)
        expected = layer.own(own) + layer.linear(total / length.clamp(min=1))
    else:
        layer = layers.GINConv(*widths)
        torch.nn.init.constant_(layer.eps, 0.3)
        expected = layer.mlp(1.3 * own + total)
    assert torch.allclose(layer(block, x), expected, atol=1e-5)


def map_of(layer):
    """Whose module holds the linear map of a layer's rows, and under which name."""
    holder = getattr(layer, "mlp", layer)
    return holder, "0" if holder is not layer else "neighbour" if hasattr(layer, "neighbour") else "linear"


class Adapter(torch.nn.Module):
    """A frozen map, and a small one beside it that is trained."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = torch.nn.Parameter(torch.randn(2, base.in_features) / 4)
        self.up = torch.nn.Parameter(torch.randn(base.out_features, 2) / 4)

    weight = property(lambda self: self.base.weight)
    bias = property(lambda self: self.base.bias)

    def forward(self, x):
        return self.base(x) + x @ self.down.t() @ self.up.t()


@pytest.mark.parametrize("widths", [(12, 4), (4, 12)])
@pytest.mark.parametrize("kind", ["GCNConv", "SAGEConv", "GINConv", "GATConv", "PinSAGEConv"])
@pytest.mark.parametrize("change", ["pruned", "normed", "adapted", "hooked"])
def test_maps_with_hooks_or_adapters_are_called(kind, widths, change):
    """Against the layer whose map has the weight that they come to; and what stands behind it is trained."""
    from torch.nn.utils import prune, spectral_norm

    from gnnsample_lab.compute import layers

    torch.manual_seed(0)
    block, layer = random_block(), getattr(layers, kind)(*widths).double().eval()
    x, plain = torch.rand(block.num_src, widths[0]).double(), copy.deepcopy(layer)
    holder, name = map_of(layer)
    found = getattr(holder, name)
    if change == "pruned":
        trained, weight = prune.l1_unstructured(found, "weight", 0.5).weight_orig, found.weight
    elif change == "normed":
        trained = spectral_norm(found).weight_orig
        found(torch.zeros(1, widths[0]).double())
        weight = found.weight
    elif change == "adapted":
        adapter = Adapter(found).double()
        setattr(holder, name, adapter)
        trained, weight = adapter.up, found.weight + adapter.up @ adapter.down
    else:
        found.register_forward_hook(lambda module, given, made: 2 * made)
        trained, weight = found.weight, 2 * found.weight
        if found.bias is not None:
            getattr(*map_of(plain)).bias.data.mul_(2)
    getattr(*map_of(plain)).weight.data.copy_(weight.detach())
    with torch.no_grad():
        assert torch.allclose(layer(block, x), plain(block, x), atol=1e-9)
    for _ in range(2):  # each with a graph of its own
        trained.grad = None
        layer(block, x).square().sum().backward()
        assert trained.grad.abs().sum() > 0


@pytest.mark.parametrize("widths", [(12, 4), (4, 12)])
def test_other_steps_and_reductions_of_a_subclass_count(widths):
    from gnnsample_lab.compute import layers

    class Sums(layers.SAGEConv):
        reduce = "sum"

    class Means(layers.GINConv):
        reduce = "mean"

    class Twice(layers.SAGEConv):
        def root(self, x, message):
            return 2 * super().root(x, message)

    class Weighted(layers.GCNConv):
        weighted = True

    block = random_block()
    block = dataclasses.replace(
        block, weight=np.random.default_rng(1).random(len(block.indices)).astype(np.float32)
    )
    x = torch.rand(block.num_src, widths[0])
    own = x[: block.num_dst]
    total, mean, heavy = (
        torch.from_numpy(dense(block, weight, reduce)).float()
        for weight, reduce in ((None, "sum"), (None, "mean"), (block.weight, "sum"))
    )
    layer = Sums(*widths)
    assert torch.allclose(layer(block, x), layer.own(own) + layer.linear(total @ x), atol=1e-5)
    layer = Means(*widths)
    assert torch.allclose(layer(block, x), layer.mlp(own + mean @ x), atol=1e-5)
    layer.mlp[1] = torch.nn.Tanh()
    assert torch.allclose(layer(block, x), layer.mlp(own + mean @ x), atol=1e-5)
    layer.mlp.append(torch.nn.ReLU())
    assert torch.allclose(layer(block, x), layer.mlp(own + mean @ x), atol=1e-5)
    layer = Twice(*widths)
    assert torch.allclose(layer(block, x), 2 * layer.own(own) + layer.linear(mean @ x), atol=1e-5)
    layer = Weighted(*widths)
    expected = layer.linear((heavy @ x + own) / (heavy.sum(1, keepdim=True) + 1)) + layer.bias
    assert torch.allclose(layer(block, x), expected, atol=1e-5)


@pytest.mark.parametrize("hidden", [8, 200])
@pytest.mark.parametrize("name", sorted(models()))
def test_gradients_of_the_gpus_way_are_those_of_plain_layers(name, hidden, batch, monkeypatch):
    """Gradients that are added in place, and those of biases by a product: computed here, on the CPU."""
    from gnnsample_lab.compute import layers

    graph, sample = batch
    x = torch.from_numpy(np.asarray(graph.feat)[sample.node_ids]).double()
    found = []
    for on_gpu in (False, True):
        monkeypatch.setattr(layers, "_with_gradients_on_gpu", lambda x, on_gpu=on_gpu: on_gpu)
        torch.manual_seed(0)
        model = lab.make_model(name, graph.feat.shape[1], hidden, 40).double()
        given = x.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(model(sample.blocks, given), torch.arange(60) % 40)
        loss.backward()
        found.append([loss.detach(), given.grad, *(p.grad for p in model.parameters())])
    for mine, plain in zip(*found, strict=True):
        torch.testing.assert_close(mine, plain)


def test_pinsage_weighs_by_visits():
    from gnnsample_lab.compute.layers import PinSAGEConv

    block = random_block()
    layer = PinSAGEConv(6, 5, last=True)
    x = torch.rand(block.num_src, 6)
    plain = layer(block, x)
    counted = copy.copy(block)
    visits = np.random.default_rng(0).integers(1, 9, block.num_edges).astype(np.int32)
    object.__setattr__(counted, "weight", visits)
    matrix = torch.from_numpy(dense(block, visits)).float()
    pooled = matrix @ torch.relu(layer.neighbour(x)) / matrix.sum(1, keepdim=True).clamp(min=1)
    expected = layer.linear(torch.cat([x[: block.num_dst], pooled], 1))
    assert torch.allclose(layer(counted, x), expected, atol=1e-5)
    assert not torch.allclose(plain, expected, atol=1e-3)


@pytest.mark.parametrize("name", sorted(models()))
def test_a_mini_batch_that_was_evaluated_on_can_be_trained_on(name, batch):
    """What blocks keep is made by the first call, which may be one in inference mode."""
    graph, _ = batch
    sample = lab.NeighborSampler(graph, [5, 4, 3], device="cpu").sample(range(20), 1)
    model = lab.make_model(name, graph.feat.shape[1], 16, 7)
    for blocks in (sample.blocks, sample.to_torch().blocks):
        found = sample.to_torch()
        with torch.inference_mode():
            evaluated = model(blocks, found.x)
        logits = model(blocks, found.x)
        assert torch.equal(logits, evaluated)
        torch.nn.functional.cross_entropy(logits, torch.arange(20) % 7).backward()
        assert all(p.grad is not None for p in model.parameters())


def test_dropout_applies_in_training_only(batch):
    graph, sample = batch
    model = lab.make_model("sage", graph.feat.shape[1], 16, 5, dropout=0.5)
    x = torch.from_numpy(np.asarray(graph.feat)[sample.node_ids]).float()
    assert not torch.equal(model(sample.blocks, x), model(sample.blocks, x))
    model.eval()
    assert torch.equal(model(sample.blocks, x), model(sample.blocks, x))


def test_parameters_do_not_depend_on_the_kernel():
    a, b = (lab.make_model("gcn", 8, 16, 3, kernel=kernel) for kernel in ("naive", "register-tile"))
    a.load_state_dict(b.state_dict())
    assert sum(p.numel() for p in lab.make_model("gat", 8, 64, 3).parameters()) > 0


@pytest.mark.parametrize("name", sorted(models()))
def test_a_model_is_the_same_after_pickling(name, batch):
    """Whole models are saved, and sent to other processes."""
    graph, sample = batch
    model = lab.make_model(name, graph.feat.shape[1], 16, 7, dropout=0.5).eval()
    again = pickle.loads(pickle.dumps(model))
    x = torch.from_numpy(np.asarray(graph.feat)[sample.node_ids])
    assert torch.equal(again(sample.blocks, x), model(sample.blocks, x))
    assert (getattr(again.between, "is_relu", False) is True) == (name not in ("gat", "pinsage"))


def test_bad_arguments(batch):
    for arguments, message in (
        (("gnn", 8), "name must be one of"),
        (("gcn", 0), "num_features must be between 1"),
        (("gat", 8, 60), "hidden must be a multiple of heads"),
    ):
        with pytest.raises(ValueError, match=message):
            lab.make_model(*arguments)
    with pytest.raises(ValueError, match="kernel must be one of"):
        lab.make_model("gcn", 8, kernel="fast")
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1"):
        lab.make_model("gcn", 8, dropout=1.0)
    with pytest.raises(TypeError, match="hidden must be an integer"):
        lab.make_model("gcn", 8, 1.5)
    graph, sample = batch
    with pytest.raises(ValueError, match="blocks must be 2, one per layer .got 3"):
        lab.make_model("gcn", graph.feat.shape[1], num_layers=2)(sample.blocks, torch.zeros(1))
    model = lab.make_model("gcn", graph.feat.shape[1])
    with pytest.raises(TypeError, match="blocks must be a list, those of a mini-batch .got MiniBatch"):
        model(sample, torch.zeros(1))
    with pytest.raises(TypeError, match="x must be a tensor of PyTorch .got ndarray"):
        model(sample.blocks, graph.feat[sample.node_ids])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x: x.half(), TypeError, "x must be float32 or float64 .got float16"),
        (lambda x: x.bfloat16(), TypeError, "x must be float32 or float64 .got bfloat16"),
        (lambda x: x[:-1], ValueError, "x must have a row for each of 90 sources .got 89"),
    ],
)
def test_layers_with_launches_of_their_own_check_what_kernels_believe(change, error, message):
    """GIN and GAT on a GPU, which do not go through ``lab.aggregate``: a wrong type would be read beyond the rows."""
    from gnnsample_lab.compute.autograd_attention import FoldedAttention
    from gnnsample_lab.compute.autograd_gin import GinLayer

    block = random_block()
    x = change(torch.rand(block.num_src, 6))
    eps, weight, bias = torch.zeros((), dtype=x.dtype), torch.rand(6, 6).to(x), torch.rand(6).to(x)
    with pytest.raises(error, match=message):
        GinLayer.apply(x, eps, weight, bias, weight, bias, block)
    with pytest.raises(error, match=message):
        FoldedAttention.apply(x, torch.rand(block.num_dst, 2).to(x), block, 2, 0.2)


@pytest.mark.parametrize("frozen", [(), (0,), (0, 3), (1, 2)], ids=str)
def test_two_products_of_the_same_rows_are_parts_of_one(frozen, monkeypatch):
    from gnnsample_lab.compute import layers

    torch.manual_seed(4)
    layer = torch.nn.Linear(5, 7).double()
    given = [torch.randn(9, 5, dtype=torch.float64), layer.weight, layer.bias, torch.randn(2, 5).double()]
    given = [t.detach().requires_grad_(i not in frozen) for i, t in enumerate(given)]
    assert torch.autograd.gradcheck(layers._Beside.apply, given)
    found = []
    for on_gpu in (False, True):
        monkeypatch.setattr(layers, "_with_gradients_on_gpu", lambda x, on_gpu=on_gpu: on_gpu)
        root, beside = layers.linear_beside(layer, given[0], given[3])
        torch.testing.assert_close(root, layer(given[0]))
        torch.testing.assert_close(beside, given[0] @ given[3].t())
        wanted = [given[i] for i in (0, 3) if i not in frozen] + [layer.weight, layer.bias]
        found.append(torch.autograd.grad((root * root).sum() + beside.exp().sum(), wanted))
    torch.testing.assert_close(*found)


def check_autocast(name, sample, x, dtype):
    """Losses and gradients of a model that is surrounded by layers of 16 bits."""
    torch.manual_seed(0)
    inner = lab.make_model(name, 32, 16, 8).to(x.device)
    first, last = torch.nn.Linear(x.shape[1], 32).to(x.device), torch.nn.Linear(8, 5).to(x.device)
    results = []
    for enabled in (False, True):
        for module in (inner, first, last):
            module.zero_grad()
        with torch.autocast(x.device.type, dtype=dtype, enabled=enabled):
            mapped = first(x)
            assert mapped.dtype == (dtype if enabled else torch.float32)
            inside = inner(sample.blocks, mapped)
            assert inside.dtype == torch.float32
            logits = last(inside)
        logits.float().square().mean().backward()
        results.append([logits.detach().float(), *(p.grad.clone() for p in inner.parameters())])
    top = max(float(gradient.abs().max()) for gradient in results[0][1:])
    for plain, mixed in zip(*results, strict=True):
        # Gradients of GAT's scores are differences of much larger numbers.
        assert float((plain - mixed).abs().max()) < 0.05 * float(plain.abs().max()) + 1e-3 * top, name


@pytest.mark.parametrize("name", sorted(models()))
def test_models_run_under_autocast(name, batch):
    graph, sample = batch
    x = torch.from_numpy(np.asarray(graph.feat)[sample.node_ids]).float()
    check_autocast(name, sample, x, torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", sorted(models()))
def test_models_run_under_autocast_on_a_gpu(name, dtype, batch):
    graph, _ = batch
    sample = lab.NeighborSampler(graph, [5, 4, 3], device="cuda").sample(range(60)).to_torch()
    x = torch.from_numpy(np.asarray(graph.feat)).float().cuda()[sample.node_ids]
    check_autocast(name, sample, x, getattr(torch, dtype))


def test_sums_and_attention_take_16_bits_under_autocast_alone():
    block = random_block()
    x = torch.rand(90, 6).bfloat16()
    with pytest.raises(TypeError, match="x must be float32 or float64"):
        lab.aggregate(block, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = lab.aggregate(block, x, torch.rand(len(block.indices)).bfloat16())
        heads = lab.attention(block, x.view(90, 2, 3), x[:, :2], x[: len(block.dst), :2])
        mean = lab.aggregate(block, x)
    assert out.dtype == heads.dtype == torch.float32
    assert torch.equal(mean, lab.aggregate(block, x.float()))
