"""The aggregation kernels on a GPU: every rung, reduction, weight and type against the dense product; gradients."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest

import gnnsample_lab as lab
from tests.compute.conftest import dense, dense_attention, empty_block, random_block, to_gpu

pytestmark = pytest.mark.gpu
KERNELS = tuple(lab.aggregation_kernels())
FEATURES = (1, 2, 3, 6, 64, 100, 130, 1024)


def torch_cuda():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    return torch


def tolerance(dtype: str) -> dict[str, float]:
    return {"rtol": 2e-5, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-13}


@pytest.mark.parametrize("hub", [None, 700])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_values(kernel, dtype, hub):
    import cupy

    if kernel == "library":
        torch_cuda()
    rng = np.random.default_rng(1)
    block = random_block(4, hub=hub)
    device = to_gpu(block)
    for features, reduce, weighted in itertools.product(FEATURES, ("sum", "mean"), (False, True)):
        x = rng.random((block.num_src, features)).astype(dtype)
        weight = rng.random(block.num_edges).astype(dtype) if weighted else None
        expected = dense(block, weight, reduce) @ x
        given = None if weight is None else cupy.asarray(weight)
        found = lab.aggregate(device, cupy.asarray(x), given, reduce, kernel)
        assert isinstance(found, cupy.ndarray) and found.dtype == dtype
        assert np.allclose(found.get(), expected, **tolerance(dtype)), (features, reduce, weighted)
        assert not found.get()[::7].any(), "rows without edges are zero"


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_edges(kernel):
    import cupy

    if kernel == "library":
        torch_cuda()
    for features in (0, 1, 4):
        out = lab.aggregate(to_gpu(empty_block()), cupy.ones((3, features)), kernel=kernel)
        assert out.shape == (3, features) and not out.get().any()


def test_features_that_are_not_aligned():
    import cupy

    block = random_block()
    flat = cupy.random.random(block.num_src * 8 + 1)[1:].reshape(block.num_src, 8)
    assert flat.data.ptr % 16
    expected = dense(block, None, "mean") @ flat.get()
    assert np.allclose(lab.aggregate(to_gpu(block), flat).get(), expected)
    assert np.allclose(lab.aggregate(to_gpu(block), flat[:, 1:6]).get(), expected[:, 1:6])


@pytest.mark.slow
@pytest.mark.parametrize("hub", [None, 900])
def test_launch_shapes_give_the_same_sums(hub):
    import cupy

    from gnnsample_lab.compute.aggregation.csr import csr_of
    from gnnsample_lab.compute.aggregation.register_tile import Tile, launch

    block = random_block(5, num_dst=300, num_src=500, hub=hub)
    device = to_gpu(block)
    x = cupy.random.random((500, 100), dtype=cupy.float32)
    weight = cupy.random.random(block.num_edges, dtype=cupy.float32)
    expected = dense(block, weight.get(), "mean") @ x.get()
    results = []
    for lanes, chunks, unroll, load, depth, last in itertools.product(
        (2, 13, 25, 32), (1, 2), (4, 8), (0, 2), (1, 2, 16), (False, True)
    ):
        out = cupy.full((300, 100), -1, cupy.float32)
        threads = 128 // lanes * lanes
        tile = Tile(4, lanes, chunks, unroll, load, 1, depth, threads, heavy=96, tile_last=last)
        launch(csr_of(device), x, out, weight, True, tile)
        assert np.allclose(out.get(), expected, rtol=2e-5), tile
        results.append(out.get())
    if hub is None:
        assert all(np.array_equal(results[0], other) for other in results)


@pytest.mark.parametrize("num_src", [1, 90, 4096, 9000])
def test_transposed_blocks(num_src):
    import cupy

    from gnnsample_lab.compute.aggregation.csr import csr_of
    from gnnsample_lab.compute.aggregation.transpose import stable_sort, transposed

    block = random_block(2, num_dst=200, num_src=num_src)
    device = to_gpu(block)
    flipped = transposed(device)
    assert transposed(device) is flipped
    rows = np.repeat(np.arange(200), np.diff(block.indptr))
    slots = flipped.slots.get()
    assert np.array_equal(np.sort(slots), np.arange(block.num_edges))
    assert np.array_equal(flipped.csr.indices.get()[slots], rows)
    counts = np.bincount(block.indices, minlength=num_src)
    assert np.array_equal(flipped.csr.indptr.get(), np.concatenate([[0], np.cumsum(counts)]))
    sources = np.searchsorted(flipped.csr.indptr.get(), slots, side="right") - 1
    assert np.array_equal(sources, block.indices)
    weight = cupy.random.random(block.num_edges)
    coef = flipped.coefficients(weight, True, weight).get()
    assert np.allclose(coef[slots], weight.get() / np.diff(block.indptr)[rows])
    stable = stable_sort(csr_of(device), device.indices)
    assert np.array_equal(
        stable.slots.get()[np.argsort(block.indices, kind="stable")], np.arange(block.num_edges)
    )
    assert np.array_equal(stable.csr.indices.get()[stable.slots.get()], rows)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients(kernel, reduce, weighted):
    torch = torch_cuda()
    block = random_block(6, num_dst=20, num_src=30, longest=6)
    device = to_gpu(block)
    for features in (1, 3, 4):
        x = torch.rand(30, features, dtype=torch.float64, device="cuda", requires_grad=True)
        given = [x]
        if weighted:
            given.append(torch.rand(block.num_edges, dtype=torch.float64, device="cuda", requires_grad=True))
        # Atomics of `grouped` do not fix the order of addition.
        assert torch.autograd.gradcheck(
            lambda *a: lab.aggregate(device, *a, reduce=reduce, kernel=kernel), given, nondet_tol=1e-12
        )


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_of_hubs(kernel):
    torch = torch_cuda()
    block = random_block(
        7, num_dst=900, num_src=40, longest=9, hub=400
    )  # transposed rows of hundreds of edges
    device = to_gpu(block)
    x, upstream = np.random.default_rng(0).random((40, 130)), np.random.default_rng(1).random((900, 130))
    for reduce, dtype in itertools.product(("sum", "mean"), (torch.float32, torch.float64)):
        given = torch.tensor(x, dtype=dtype, device="cuda", requires_grad=True)
        out = lab.aggregate(device, given, reduce=reduce, kernel=kernel)
        (grad,) = torch.autograd.grad(out, given, torch.tensor(upstream, dtype=dtype, device="cuda"))
        expected = dense(block, None, reduce).T @ upstream
        close = {"rtol": 1e-4} if dtype is torch.float32 else {"rtol": 1e-11}
        assert np.allclose(grad.cpu().numpy(), expected, **close)


def test_deterministic_gradients_repeat():
    torch = torch_cuda()
    block = random_block(8, num_dst=900, num_src=40, longest=9)
    x = torch.rand(40, 64, device="cuda", requires_grad=True)
    upstream = torch.rand(900, 64, device="cuda")
    torch.use_deterministic_algorithms(True)
    try:
        grads = [torch.autograd.grad(lab.aggregate(to_gpu(block), x), x, upstream)[0] for _ in range(5)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(grads[0], other) for other in grads)


def test_a_side_stream_keeps_its_order():
    torch = torch_cuda()
    block = random_block(9, num_dst=300, num_src=500)
    device = to_gpu(block)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(500, 64, device="cuda")
        torch.cuda._sleep(20_000_000)
        x += 1  # late: a kernel on another stream would read zeros
        out = lab.aggregate(device, x, reduce="sum")
    stream.synchronize()
    assert np.allclose(out[:, 0].cpu(), np.diff(block.indptr))


@pytest.mark.parametrize(("heads", "size"), [(1, 1), (8, 8), (3, 5), (2, 64), (4, 6)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention(heads, size, dtype):
    import cupy

    rng = np.random.default_rng(3)
    for hub in (None, 700):
        block = random_block(3, hub=hub)
        shapes = (block.num_src, heads, size), (block.num_src, heads), (block.num_dst, heads)
        given = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
        found = lab.attention(to_gpu(block), *map(cupy.asarray, given))
        close = {"rtol": 1e-3, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-10, "atol": 1e-12}
        assert np.allclose(found.get(), dense_attention(block, *given, 0.2), **close)


@pytest.mark.parametrize(("heads", "size"), [(1, 3), (2, 4), (3, 2)])
def test_attention_gradients(heads, size):
    torch = torch_cuda()
    block = random_block(6, num_dst=20, num_src=30, longest=6)
    shapes = (30, heads, size), (30, heads), (20, heads)
    given = [torch.randn(s, dtype=torch.float64, device="cuda", requires_grad=True) for s in shapes]
    device = to_gpu(block)
    assert torch.autograd.gradcheck(lambda *a: lab.attention(device, *a), given)


@pytest.mark.parametrize(("heads", "size"), [(1, 3), (2, 4), (8, 5)])
def test_scores_of_destinations_may_be_columns_of_a_wider_table(heads, size):
    import cupy

    from gnnsample_lab.compute import attention
    from gnnsample_lab.compute.aggregation.csr import csr_of

    block = to_gpu(random_block(6, num_dst=20, num_src=30, longest=6))
    rng = np.random.default_rng(heads)
    x, source, table, grad = (
        cupy.asarray(rng.standard_normal(shape))
        for shape in ((30, heads, size), (30, heads), (20, 7 + heads), (20, heads, size))
    )
    found = []
    for target in (table[:, 7:], cupy.ascontiguousarray(table[:, 7:])):
        out, log_sum = attention.forward(csr_of(block), x, source, target, 0.2)
        grads = attention.backward(block, x, source, target, out, log_sum, grad, 0.2)
        found.append([a.get() for a in (out, log_sum, *grads)])
    for mine, plain in zip(*found, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat", "pinsage"])
def test_models_agree_with_the_cpu(name):
    torch = torch_cuda()
    graph = lab.load("arxiv-like", scale=0.02)
    here = lab.NeighborSampler(graph, [5, 4, 3], device="cpu").sample(range(60))
    there = lab.NeighborSampler(graph.to("cuda"), [5, 4, 3], device="cuda").sample(range(60))
    torch.manual_seed(0)
    model = lab.make_model(name, graph.feat.shape[1], 64, 7).double()
    feat = np.asarray(graph.feat, dtype=np.float64)
    logits, grads = [], []
    for batch, device in ((here, "cpu"), (there, "cuda")):
        model = model.to(device).requires_grad_()
        model.zero_grad()
        x = torch.from_numpy(feat[batch.to_cpu().node_ids]).to(device)
        out = model(batch.blocks, x)
        out.square().mean().backward()
        logits.append(out.detach().cpu())
        grads.append([p.grad.cpu().clone() for p in model.parameters()])
    assert torch.allclose(*logits)
    for a, b in zip(*grads, strict=True):
        assert torch.allclose(a, b)


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat", "pinsage"])
def test_a_mini_batch_that_was_evaluated_on_can_be_trained_on(name):
    torch = torch_cuda()
    graph = lab.load("arxiv-like", scale=0.02).to("cuda")
    model = lab.make_model(name, graph.feat.shape[1], 64, 7, num_layers=2).cuda()
    found = lab.NeighborSampler(graph, [5, 4], device="cuda").sample(range(60)).to_torch()
    with torch.inference_mode():
        evaluated = model(found.blocks, found.x)
    logits = model(found.blocks, found.x)
    assert torch.allclose(logits, evaluated, rtol=1e-4, atol=1e-4)
    logits.square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat", "pinsage"])
def test_models_refuse_what_kernels_cannot_read(name):
    torch = torch_cuda()
    block = random_block()
    model = lab.make_model(name, 6, 16, 3, num_layers=1).cuda()
    x = torch.rand(block.num_src, 6, device="cuda")
    for given in (x.half(), x.bfloat16()):
        with pytest.raises(TypeError, match="x must be float32 or float64"):
            copy.deepcopy(model).to(given.dtype)([to_gpu(block)], given)
    with pytest.raises(ValueError, match="x must have a row for each of 90 sources .got 89"):
        model([to_gpu(block)], x[:-1])
    with pytest.raises(ValueError, match="x must be on the CPU as block is"):
        model([block], x)


def test_arrays_on_the_wrong_device():
    import cupy

    block = random_block()
    x = np.ones((block.num_src, 3))
    with pytest.raises(ValueError, match="x must be on the GPU as block is"):
        lab.aggregate(to_gpu(block), x)
    with pytest.raises(ValueError, match="x must be on the CPU as block is"):
        lab.aggregate(block, cupy.asarray(x))


@pytest.mark.real_gpu
def test_measured_bandwidths_are_plausible():
    from gnnsample_lab.compute.aggregation.bandwidth import measured_bandwidths

    speeds = measured_bandwidths()
    assert speeds.origin.startswith("measured on ")
    assert 0 < speeds.dram_gbps < speeds.l2_gbps < speeds.shared_gbps
    assert speeds.fp32_gflops > speeds.dram_gbps


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_added_in_memory_are_those_of_the_transposed_block(reduce, weighted, dtype):
    torch = torch_cuda()
    from gnnsample_lab.compute.aggregation.csr import csr_of
    from gnnsample_lab.compute.aggregation.scatter import scatter, scatters

    block = random_block(6, num_dst=200, num_src=300, hub=500)
    for features in FEATURES:
        device = to_gpu(block)
        rng = np.random.default_rng(features)
        upstream = torch.from_numpy(rng.random((200, features))).to("cuda", getattr(torch, dtype))
        weight = rng.random(block.num_edges) if weighted else None
        given = None if weight is None else torch.from_numpy(weight).to(upstream)
        assert scatters(csr_of(device), upstream)
        found = scatter(csr_of(device), upstream, given, reduce == "mean")
        expected = dense(block, weight, reduce).T @ upstream.double().cpu().numpy()
        close = {"rtol": 1e-4, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-11, "atol": 1e-12}
        assert np.allclose(found.cpu().numpy(), expected, **close), features


def test_large_blocks_and_deterministic_algorithms_have_transposed_gradients():
    torch = torch_cuda()
    from gnnsample_lab.compute.aggregation.csr import Csr
    from gnnsample_lab.compute.aggregation.scatter import scatters

    grad = torch.zeros(4, 64, device="cuda")
    few, many = (Csr(None, None, 4, sources, 10) for sources in (1000, 10_000_000))
    assert scatters(few, grad) and not scatters(many, grad)
    torch.use_deterministic_algorithms(True)
    try:
        assert not scatters(few, grad)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("heads", "size"), [(8, 8), (3, 5), (2, 64)])
def test_attention_gradients_with_and_without_a_transposed_block(heads, size):
    torch = torch_cuda()
    block = random_block(6, num_dst=60, num_src=90, hub=300)
    shapes = (90, heads, size), (90, heads), (60, heads)
    torch.manual_seed(0)
    given = [torch.randn(s, device="cuda", requires_grad=True) for s in shapes]
    upstream, grads = torch.randn(60, heads, size, device="cuda"), []
    for deterministic in (False, True):
        torch.use_deterministic_algorithms(deterministic)
        try:
            grads.append(torch.autograd.grad(lab.attention(to_gpu(block), *given), given, upstream))
        finally:
            torch.use_deterministic_algorithms(False)
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("chunks", "cols"), [(1, 64), (2, 32), (4, 32)])
def test_tiles_that_a_warp_of_memory_aware_stages_edges_once_for(chunks, cols, dtype):
    import cupy

    from gnnsample_lab.compute.aggregation import ladder
    from gnnsample_lab.compute.aggregation.csr import csr_of

    block = random_block(5, num_dst=77, hub=200)
    csr, weight = csr_of(to_gpu(block)), np.random.default_rng(1).random(block.num_edges).astype(dtype)
    for features in (1, 50, 64, 100, 130, 256, 602):
        x = np.random.default_rng(0).random((block.num_src, features)).astype(dtype)
        sums = []
        for knobs in ({"chunks": 1}, {"chunks": chunks, "cols": cols}):
            out = cupy.full((77, features), -1, dtype)
            ladder.gather(
                "memory-aware", csr, cupy.asarray(x), out, cupy.asarray(weight), True, each=4, **knobs
            )
            sums.append(out.get())
        assert np.allclose(sums[0], dense(block, weight, "mean") @ x, **tolerance(dtype))
        assert np.array_equal(*sums), features


def test_as_published_a_thread_has_one_feature_and_ours_stages_edges_once_for_up_to_128(monkeypatch):
    """Tiles are shared out evenly: 160 features are 3 tiles and 2. As published a warp has one row, too."""
    import cupy

    from gnnsample_lab.compute.aggregation import ladder
    from gnnsample_lab.compute.aggregation.csr import csr_of

    csr = csr_of(to_gpu(random_block(5)))
    launched, kernel = [], ladder._kernel

    def recorded(name, scalar, **shape):
        return lambda grid, block, args: (
            launched.append((shape["chunks"], grid[1], shape["each"])),
            kernel(name, scalar, **shape)(grid, block, args),
        )

    monkeypatch.setattr(ladder, "_kernel", recorded)
    for features in (1, 32, 33, 100, 128, 130, 160, 256, 602):
        x, out = cupy.ones((90, features), np.float32), cupy.empty((37, features), np.float32)
        for rung in ("memory-aware", "memory-aware-staged"):
            ladder.gather(rung, csr, x, out)
    assert [(chunks, tiles) for chunks, tiles, _ in launched[1::2]] == [
        (1, 1), (1, 1), (2, 1), (4, 1), (4, 1), (3, 2), (3, 2), (4, 2), (4, 5),
    ]  # fmt: skip
    assert launched[::2] == [(1, tiles, 1) for tiles in (1, 1, 2, 4, 4, 5, 5, 8, 19)]


@pytest.mark.parametrize("each", [1, 2, 8])
def test_rows_of_a_warp_of_memory_aware(each):
    import cupy

    from gnnsample_lab.compute.aggregation import ladder
    from gnnsample_lab.compute.aggregation.csr import csr_of

    block = random_block(5, num_dst=77, hub=200)
    for features in (1, 33, 64):
        x = np.random.default_rng(0).random((block.num_src, features), np.float32)
        out = cupy.empty((77, features), np.float32)
        ladder.gather("memory-aware", csr_of(to_gpu(block)), cupy.asarray(x), out, None, True, each=each)
        assert np.allclose(out.get(), dense(block, None, "mean") @ x, **tolerance("float32"))


def test_sums_by_shares_keep_what_is_no_number():
    """A row with an edge whose score is NaN is NaN, as in PyTorch: no group of lanes and no piece may leave it out."""
    import cupy

    from gnnsample_lab.compute.aggregation.csr import function, pointer

    length, columns, sources = 16, 4, 40
    rows = [[0, 1, 2], [3, 4, 5, 6, 7, 8, 9], [*range(40)], [10, 11], [], [*range(20, 40)]]
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    counts = [-(-len(row) // length) if len(row) > length else 0 for row in rows]
    first, piece_row = (
        np.cumsum([0, *counts]).astype(np.int32),
        np.repeat(np.arange(6), counts).astype(np.int32),
    )
    rng = np.random.default_rng(0)
    x, target = (rng.standard_normal((n, columns)).astype(np.float32) for n in (sources, len(rows)))
    source = rng.standard_normal((sources, 1)).astype(np.float32)
    macros = (("SCALAR", "float"), ("VEC", 1), ("LANES", 4), ("UNROLL", 4), ("COEF", 2), ("EDGE", 0))
    for bad in (None, *range(sources)):
        scores = source.copy()
        scores[[] if bad is None else bad] = np.nan
        out, partial = (cupy.zeros((n, columns), np.float32) for n in (len(rows), len(piece_row)))
        scales, logs = cupy.zeros((len(piece_row), 2), np.float32), cupy.zeros(len(rows), np.float32)
        run, pieces, given, scored, goal = map(
            cupy.asarray, (indptr, first, x, scores, np.ascontiguousarray(target[:, :1]))
        )
        indices, of = cupy.asarray(np.concatenate(rows).astype(np.int32)), cupy.asarray(piece_row)
        edges = pointer(run), pointer(run[1:]), pointer(indices), pointer(pieces)
        parts = pointer(partial), pointer(scales)
        read = pointer(given), pointer(None), pointer(scored), pointer(goal)
        sizes = np.uint32(1), np.uint32(columns)
        function("inference/row_sums.cu", "piece_sums", macros)(
            (1, 1), (256,),
            (
                *edges, pointer(of), *read, *parts, np.uint64(len(of)), np.uint64(0), np.uint64(len(rows)),
                np.uint64(columns), *sizes, np.uint32(length), np.float32(0.2),
            ),
        )  # fmt: skip
        function("inference/row_sums.cu", "row_sums", macros)(
            (1, 1), (256,),
            (
                pointer(run), *edges, pointer(None), *read, pointer(logs), *parts, pointer(None), pointer(out),
                *(pointer(None),) * 2, np.uint64(len(rows)), *(np.uint64(columns),) * 2, np.uint64(0), *sizes,
                np.uint32(columns), np.uint32(length), np.uint32(0), np.uint32(0), np.float32(0.2),
            ),
        )  # fmt: skip
        for row, (found, log, its) in enumerate(zip(out.get(), logs.get(), rows, strict=True)):
            score = scores[its, 0] + target[row, 0]
            share = np.exp(np.where(score > 0, score, 0.2 * score))
            wanted = share @ x[its] / share.sum() if its else np.zeros(columns)
            assert np.allclose(found, wanted, atol=1e-5, equal_nan=True), (bad, row)
            assert np.allclose(log, np.log(share.sum()) if its else 0, atol=1e-5, equal_nan=True), (bad, row)


@pytest.mark.parametrize("widths", [(12, 4), (4, 12)])
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *itertools.product(["GCNConv", "SAGEConv", "GINConv", "GATConv", "PinSAGEConv"], ["hooked", "sums"]),
        ("GINConv", "tanh"),
    ],
)
def test_layers_that_go_through_their_steps_are_those_of_a_cpu(kind, change, widths):
    """Values and gradients, where kernels of whole layers do not know what has changed."""
    torch = torch_cuda()
    from gnnsample_lab.compute import layers

    torch.manual_seed(0)
    layer, block = getattr(layers, kind)(*widths), random_block()
    if change == "tanh":
        layer.mlp[1] = torch.nn.Tanh()
    elif change == "sums":
        layer.reduce = "mean" if layer.reduce == "sum" else "sum"
    else:
        changed = (
            layer.mlp[0] if kind == "GINConv" else layer.neighbour if kind == "PinSAGEConv" else layer.linear
        )
        changed.register_forward_hook(lambda module, given, made: 2 * made)
    x = torch.rand(block.num_src, widths[0])
    found = []
    for there, its in ((layer, block), (copy.deepcopy(layer).cuda(), to_gpu(block))):
        rows = x.to(next(there.parameters()).device, copy=True).requires_grad_()
        out = there(its, rows)
        out.square().sum().backward()
        gradients = [p.grad for p in there.parameters()]
        found.append([each.detach().cpu().numpy() for each in (out, rows.grad, *gradients)])
    for here, gpu in zip(*found, strict=True):
        assert np.allclose(here, gpu, rtol=1e-4, atol=1e-4 * max(1, np.abs(here).max()))
