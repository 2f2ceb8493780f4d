"""``lab.infer`` on a GPU: equal to the whole graph as one mini-batch; streamed rows; where results and peaks lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.compute.inference import sums
from gnnsample_lab.compute.inference.infer import Inference
from gnnsample_lab.compute.inference.messages import columns_of
from gnnsample_lab.compute.inference.sums import Scale, Sums, Topology, begun, per_head, whole
from gnnsample_lab.compute.models import models
from tests.compute.test_infer import (
    BUDGETS,
    CLASSES,
    N,
    assert_close,
    awkward_graph,
    made,
    oracle,
    with_large_weights,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", sorted(models()))
def test_small_graphs_and_small_budgets(name, weighted):
    graph, model = awkward_graph(weighted), made(name)
    wanted, ranges = oracle(model, graph), set()
    for on_gpu in (False, True):
        given = graph.to("cuda", features=False) if on_gpu else graph
        for budget in BUDGETS if on_gpu else BUDGETS[:2]:  # the topology counts if it has to be copied
            run = Inference(model, given, device="cuda", budget_gb=budget)
            try:
                found = run.run()
            except MemoryError:
                assert name == "gat" and budget == BUDGETS[-1]
                continue
            assert isinstance(found, torch.Tensor)
            assert_close(found.cpu(), wanted)
            ranges |= {layer.ranges for layer in run.layers}
    assert max(ranges) > 2
    assert next(model.parameters()).device.type == "cpu", "the model was moved, not copied"


@pytest.mark.parametrize("on_gpu", [False, True])
def test_weights_whose_sums_are_no_floats(on_gpu):
    graph, model = awkward_graph(), made("pinsage")
    large = with_large_weights(graph)
    given = large.to("cuda", features=False) if on_gpu else large
    for budget in BUDGETS[:2]:
        found = lab.infer(model, given, device="cuda", budget_gb=budget)
        assert_close(found.cpu(), oracle(model, graph))


def middle_graph(features: int = 96) -> Any:
    """200 000 vertices, 3 million edges, hubs with tens of thousands of edges."""
    rng = np.random.default_rng(5)
    n, edges = 200_000, 3_000_000
    src = (rng.random(edges) ** 3 * n).astype(np.int64)
    dst = (rng.random(edges) ** 4 * (n - 1000)).astype(np.int64)
    feat = rng.standard_normal((n, features)).astype(np.float32)
    weight = rng.random(edges).astype(np.float32)
    return lab.Graph.from_edges(src, dst, n, feat=feat, edge_weight=weight)


@pytest.fixture(scope="module")
def middle() -> Any:
    return middle_graph()


@pytest.fixture(scope="module")
def middle_on_gpu(middle: Any) -> Any:
    return middle.to("cuda")


def whole_graph(model: Any, graph: Any) -> Any:
    """The model over the whole graph as one mini-batch, on the GPU."""
    model = model.cuda().eval()
    run = Inference(model, graph, device="cuda")
    run.run()
    with torch.no_grad():
        block = run.block()
        return model([block] * len(model.layers), torch.from_dlpack(graph.feat))


def built(name: str, columns: int = 96, hidden: int = 64) -> Any:
    torch.manual_seed(2)
    return lab.make_model(name, columns, hidden, 11, 3)


@pytest.mark.parametrize("name", sorted(models()))
def test_the_whole_graph_resident_and_streamed(name, middle, middle_on_gpu):
    model = built(name)
    wanted = whole_graph(model, middle_on_gpu)
    scale = wanted.abs().max()
    for what, given in {
        "on the GPU": {"features": middle_on_gpu.feat},
        "resident": {"features": middle.feat},
        "streamed": {"features": middle.feat, "stream": True},
        "chunks": {"features": middle.feat, "budget_gb": 0.19},
        "ranges": {"features": middle.feat, "budget_gb": 0.06},
    }.items():
        run = Inference(model, middle_on_gpu, device="cuda", **given)
        found = run.run()
        off = float((found.cuda() - wanted).abs().max() / scale)
        assert off <= 1e-4, (what, off)
        assert all(layer.written_bytes == 0 for layer in run.layers) or "budget_gb" in given
        if what == "ranges":
            assert any(layer.ranges > 1 for layer in run.layers)


@pytest.mark.parametrize("name", sorted(models()))
def test_rows_of_host_memory_are_read_once(name, middle, middle_on_gpu, monkeypatch):
    """The bytes of all copies to the GPU are counted where they are made."""
    import cupy

    moved, copy = [], cupy.cuda.runtime.memcpyAsync

    def counted(to: int, given: int, size: int, kind: int, stream: int) -> None:
        moved.append(size if kind == cupy.cuda.runtime.memcpyHostToDevice else 0)
        copy(to, given, size, kind, stream)

    model = built(name).cuda()
    Inference(model, middle_on_gpu, features=middle.feat, device="cuda", stream=True).run()
    monkeypatch.setattr(cupy.cuda.runtime, "memcpyAsync", counted)
    run = Inference(model, middle_on_gpu, features=middle.feat, device="cuda", stream=True)
    run.run()
    assert sum(moved) == middle.feat.nbytes == run.layers[0].read_bytes
    assert run.layers[0].score_bytes == 0 and run.layers[0].plan.passing
    assert run.layers[0].plan.early == (name != "gat"), "sums begin before all rows are there"
    assert run.layers[0].ranges == 1 and len([size for size in moved if size]) >= 2


@pytest.mark.parametrize("kind", ["memory-mapped", "page-locked", "float16", "registered"])
def test_features_of_every_kind(kind, middle, middle_on_gpu, tmp_path):
    from gnnsample_lab.compute.inference.tables import is_locked
    from gnnsample_lab.features.caching.host import pin

    model, feat, held = built("sage").cuda(), middle.feat, None
    wanted = Inference(model, middle_on_gpu, device="cuda").run()
    if kind == "memory-mapped":
        np.save(tmp_path / "x.npy", feat)
        feat = np.load(tmp_path / "x.npy", mmap_mode="r")
    elif kind == "float16":
        feat = feat.astype(np.float16)
        wanted = Inference(model, middle_on_gpu, features=feat.astype(np.float32), device="cuda").run()
    else:
        held = pin(feat.copy(), "copy" if kind == "page-locked" else "register")
        feat = held.rows
    assert is_locked(feat) == (held is not None)
    for stream in (False, True):
        found = Inference(model, middle_on_gpu, features=feat, device="cuda", stream=stream).run()
        assert float((found - wanted).abs().max() / wanted.abs().max()) <= 1e-5, stream


@pytest.mark.parametrize("name", ["sage", "gin", "gat"])
@pytest.mark.parametrize("budget_mb", [60, 120, 250])
def test_memory_stays_within_the_budget(name, budget_mb, middle, middle_on_gpu):
    """PyTorch's peak, above what was held before; its allocator rounds each block up to 2 MB or a little more."""
    model = built(name).cuda()
    Inference(
        model, middle_on_gpu, features=middle.feat, device="cuda", budget_gb=0.25
    ).run()  # libraries' memory
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = Inference(
        model, middle_on_gpu, features=middle.feat, device="cuda", budget_gb=budget_mb / 1e3
    ).run()
    peak = torch.cuda.max_memory_allocated() - before
    assert peak <= budget_mb * 1e6 * 1.05 + (8 << 20), peak
    del found


def test_results_lie_where_there_is_room(middle, middle_on_gpu):
    model = built("gcn").cuda()
    here = lab.infer(model, middle_on_gpu, features=middle.feat, device="cuda")
    assert here.is_cuda and tuple(here.shape) == (middle.num_nodes, 11) and not here.requires_grad
    for out in (np.empty((middle.num_nodes, 11), np.float32), torch.empty_like(here), np.empty(here.shape)):
        assert lab.infer(model, middle_on_gpu, device="cuda", out=out) is out
        assert torch.allclose(torch.as_tensor(out).cuda().float(), here, atol=1e-5)
    graph = awkward_graph().to("cuda", features=False)
    there = lab.infer(made("gcn"), graph, device="cuda", budget_gb=2e-5)
    assert isinstance(there, torch.Tensor) and tuple(there.shape) == (N, CLASSES)
    with pytest.raises(MemoryError, match="the topology of graph"):
        lab.infer(made("gcn"), awkward_graph(), device="cuda", budget_gb=1e-6)


WIDTHS = {1: 1, 3: 3, 8: 2, 47: 1, 64: 8, 130: 5, 256: 8, 376: 8}
"""Columns of messages, and heads."""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sent", sorted(WIDTHS))
def test_sums_of_every_width(dtype, sent):
    """``row_sums.cu`` against its twin on the CPU, whole and by chunks: no factor, weights, and the softmax."""
    rng, kind, heads = np.random.default_rng(sent), getattr(torch, dtype), WIDTHS[sent]
    graph = awkward_graph()
    assert int(np.diff(graph.indptr).max()) > 512, "a hub of several pieces"
    x, a, b = (torch.from_numpy(rng.standard_normal((N, k))).to(kind) for k in (sent, heads, heads))
    for scaled in ("nothing", "weights", "softmax"):
        grown = {}
        for device in ("cpu", "cuda"):
            topology = Topology(
                *(torch.from_numpy(np.asarray(part)).to(device) for part in (graph.indptr, graph.indices)),
                torch.from_numpy(graph.edge_weight).to(kind).to(device),
            )
            scale = Scale(scaled == "weights")
            if scaled == "softmax":
                scale = Scale(False, a.to(device), b.to(device), 0.2)
            columns = columns_of(sent, heads if scaled == "softmax" else 0, device, x.element_size())
            message = columns.pad(x.to(device))
            for begin, end in ((0, N), (5, 77)):
                out = torch.zeros((end - begin, columns.width), dtype=kind, device=device)
                growing = Sums(topology, begin, end, out, columns, scale)
                for first in range(0, N, 33):
                    behind = min(N, first + 33)
                    growing.add(first, behind, message[first:behind].contiguous())
                grown[device, begin] = columns.cut(out).cpu()
                at_once = whole(topology, begin, end, message, columns, scale, False).cpu()
                assert torch.allclose(at_once, grown["cpu", begin], rtol=1e-4, atol=1e-4), (scaled, begin)
                for cut in (0, 33, N // 2, N) if device == "cuda" and scaled != "softmax" else ():
                    there = torch.full_like(message, torch.nan)
                    there[:cut] = message[:cut]
                    early = begun(topology, cut, there, columns, scale, torch.full_like(message, torch.nan))
                    for mean in (False, True):
                        one, two = (
                            whole(topology, begin, end, message, columns, scale, mean, None, given)
                            for given in (None, early)
                        )
                        assert torch.allclose(one, two, rtol=1e-4, atol=1e-4), (scaled, begin, cut, mean)
        for begin in (0, 5):
            assert torch.allclose(grown["cpu", begin], grown["cuda", begin], rtol=1e-4, atol=1e-4), (
                scaled,
                begin,
            )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("width", "heads"), [(1, 1), (7, 3), (47, 8), (64, 8), (150, 16)])
def test_heads_that_weigh_rows(dtype, width, heads):
    """``head_sums.cu`` against its twin on the CPU."""
    rng, kind = np.random.default_rng(width), getattr(torch, dtype)
    graph = awkward_graph(False)
    x, a, b = (torch.from_numpy(rng.standard_normal((N, k))).to(kind) for k in (width, heads, heads))
    for begin, end in ((0, N), (5, 77)):
        both = []
        for device in ("cpu", "cuda"):
            topology = Topology(
                *(torch.from_numpy(part).to(device) for part in (graph.indptr, graph.indices))
            )
            columns = columns_of(width, 0, device, x.element_size())
            scale = Scale(False, 9 * a.to(device), b.to(device), 0.2)
            both.append(per_head(topology, begin, end, columns.pad(x.to(device)), columns, scale).cpu())
        assert torch.allclose(*both, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sage", "gat"])
def test_turns_change_no_result(name, middle, middle_on_gpu, monkeypatch):
    """Vertices are summed in another order, each as before."""
    model, found = built(name, hidden=32).cuda(), []
    monkeypatch.setattr(sums, "_SHARED", 1)
    properties = sums.runtime.device_properties() | {"l2CacheSize": 1 << 20}
    monkeypatch.setattr(sums.runtime, "device_properties", lambda: properties)
    for rounds in (0, 4):
        monkeypatch.setattr(sums, "ROUNDS", rounds)
        graph = middle.to("cuda")  # nothing is known of it yet
        run = Inference(model, graph, device="cuda")
        found.append(run.run())
        turns = run.topology.kept.get("turns")
        assert (turns is not None) == (rounds > 0)
        if turns is not None:
            assert torch.equal(turns.sort()[0].cpu(), torch.arange(graph.num_nodes, dtype=torch.int32))
    assert torch.equal(*found)


@pytest.mark.parametrize("name", sorted(models()))
@pytest.mark.parametrize(("columns", "hidden", "classes"), [(47, 24, 47), (33, 56, 3), (9, 136, 50)])
def test_widths_that_loads_are_not(name, columns, hidden, classes):
    graph = middle_graph(columns).to("cuda")
    torch.manual_seed(2)
    model = lab.make_model(name, columns, hidden, classes, 3)
    wanted = whole_graph(model, graph)
    for stream in (False, True):
        features = graph.feat if not stream else graph.feat.get()
        found = Inference(model, graph, features=features, device="cuda", stream=stream).run()
        assert float((found - wanted).abs().max() / wanted.abs().max()) <= 1e-4, stream


def test_layers_of_a_users_own(middle_on_gpu):
    from tests.compute.test_infer import Own
    from tests.compute.test_infer import Sums as Theirs

    torch.manual_seed(0)
    model = Own(Theirs(96, 32), Theirs(32, 5)).cuda()
    found = lab.infer(model, middle_on_gpu, device="cuda")
    block = Inference(model, middle_on_gpu, device="cuda")
    block.run()
    with torch.no_grad():
        x = torch.tanh(model.layers[0](block.block(), torch.from_dlpack(middle_on_gpu.feat)))
        wanted = model.layers[1](block.block(), x)
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))
