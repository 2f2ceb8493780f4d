"""FusedSampler: the same picks, sums and gradients as sampling, extracting and aggregating one after the other."""

from __future__ import annotations

import gc
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import gnnsample_lab as lab
from gnnsample_lab.compute.fused.sampler import FusedSampler
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.minibatch.export import tensor

SEEDS = np.array([5, 900, 5, 17, 1999, 3, 40, 41, 42, 43])
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
RULES: dict[str, dict[str, Any]] = {
    "floyd": {}, "reservoir": {"pick": "reservoir"}, "replace": {"replace": True}, "weighted": {"weighted": True},
    "weighted-replace": {"weighted": True, "replace": True}, "new": {"expand": "new"},
    "new-weighted": {"expand": "new", "weighted": True},
}  # fmt: skip


def features(num_nodes: int, width: int) -> np.ndarray:
    return np.random.default_rng(width).standard_normal((num_nodes, width)).astype(np.float32)


@pytest.fixture(scope="module")
def graph() -> Any:
    made = lab.rmat(2048, 20_000, seed=3)
    rng = np.random.default_rng(1)
    weight = rng.integers(0, 4, made.num_edges).astype(np.float32)
    label = rng.integers(0, 5, made.num_nodes)
    return replace(made, edge_weight=weight, feat=features(made.num_nodes, 12), label=label, num_classes=-1)


def sampled_apart(graph: Any, fanouts: Any, x: Any, device: str, batch_id: int = 7, **rule: Any) -> Any:
    batch = lab.NeighborSampler(graph, fanouts, seed=11, device=device, **rule).sample(SEEDS, batch_id)
    rows = tensor(x).to(device)[tensor(batch.node_ids).long()]
    return batch, rows


def own_and_total(batch: Any, rows: Any, reduce: str) -> tuple[Any, Any]:
    block = batch.blocks[0]
    return rows[: block.num_dst], lab.aggregate(block, rows, reduce=reduce)


def by_vertex(ids: Any, *tables: Any) -> list[Any]:
    """Rows in the order of their vertices: within a hop a mini-batch's vertices come in any order."""
    order = torch.argsort(tensor(ids))
    return [table[order] for table in tables]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fanouts", [(4, 3), (6, 4, 5), (3, 33), (3, -1), (2, 20)], ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_sums_are_those_of_the_sampled_block(graph: Any, device: str, fanouts: Any, rule: str) -> None:
    x = features(graph.num_nodes, 20)
    cache = lab.FeatureCache(x, ratio=1.0, device=device)
    for reduce in ("mean", "sum"):
        sampler = FusedSampler(graph, fanouts, cache, reduce, seed=11, device=device, **RULES[rule])
        fused = sampler.sample(SEEDS, 7)
        batch, rows = sampled_apart(graph, fanouts, x, device, **RULES[rule])
        own, total = own_and_total(batch, rows, reduce)
        block = fused.blocks[0]
        assert sampler.fanouts == fanouts and block.num_dst == batch.blocks[0].num_dst
        want = by_vertex(batch.blocks[0].dst, own, total)
        found = by_vertex(fused.node_ids, fused.x, block.total)
        assert torch.equal(found[0], want[0])
        # Rows of more than 64 edges are added in another order on a GPU; all others are the same bit for bit.
        torch.testing.assert_close(found[1], want[1], rtol=2e-5, atol=2e-5)
        if fanouts[-1] in range(1, 33) and rule == "floyd":
            assert torch.equal(found[1], want[1]) or device == "cpu"
        lengths = tensor(batch.blocks[0].indptr).diff().float()
        assert torch.equal(
            by_vertex(fused.node_ids, block.lengths[:, 0])[0], by_vertex(batch.blocks[0].dst, lengths)[0]
        )
        torch.testing.assert_close(
            block.aggregated("sum"),
            block.aggregated("mean") * block.lengths.clamp(min=1),
            rtol=1e-5,
            atol=1e-5,
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [1, 2, 7, 32, 100, 128, 130, 602])
def test_every_width(graph: Any, device: str, width: int) -> None:
    x = features(graph.num_nodes, width)
    fused = FusedSampler(graph, (5, 4), lab.FeatureCache(x, ratio=1.0, device=device), seed=11, device=device)
    batch, rows = sampled_apart(graph, (5, 4), x, device)
    own, total = own_and_total(batch, rows, "mean")
    made = fused.sample(SEEDS, 7)
    found = by_vertex(made.node_ids, made.x, made.blocks[0].total)
    want = by_vertex(batch.blocks[0].dst, own, total)
    assert torch.equal(found[0], want[0])
    torch.testing.assert_close(found[1], want[1], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
@pytest.mark.parametrize("reduce", ["mean", "sum"])
@pytest.mark.parametrize("width", [12, 150])
def test_models_and_their_gradients_are_the_same(
    graph: Any, device: str, model: str, reduce: str, width: int
) -> None:
    x = features(graph.num_nodes, width)
    graph = replace(graph, feat=x)
    fused = FusedSampler(graph, (5, 4, 3), reduce=reduce, seed=11, device=device).sample(SEEDS, 7)
    batch, rows = sampled_apart(graph, (5, 4, 3), x, device)
    results = []
    for blocks, given in ((batch.blocks, rows), (fused.blocks, fused.x)):
        torch.manual_seed(0)
        made = lab.make_model(model, width, 16, 5).to(device)
        logits = made(blocks, given)
        logits.square().sum().backward()
        results.append((logits.detach(), [p.grad for p in made.parameters()]))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=2e-4, atol=2e-4)
    for found, want in zip(results[1][1], results[0][1], strict=True):
        torch.testing.assert_close(found, want, rtol=2e-3, atol=2e-3 * float(want.abs().max() + 1))


@pytest.mark.parametrize("device", DEVICES)
def test_a_mini_batch_that_was_evaluated_on_can_be_trained_on(graph: Any, device: str) -> None:
    batch = FusedSampler(graph, (4, 3), device=device).sample(SEEDS)
    model = lab.make_model("sage", 12, 8, 5, num_layers=2).to(device)
    with torch.inference_mode():
        evaluated = model(batch.blocks, batch.x)
    logits = model(batch.blocks, batch.x)
    torch.testing.assert_close(logits, evaluated)
    logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("device", DEVICES)
def test_tables_are_of_32_bits_whatever_torch_makes_by_default(graph: Any, device: str) -> None:
    def made() -> list[Any]:
        first = FusedSampler(graph, (4, 3), device=device).sample(SEEDS).blocks[0]
        return [first.own, first.total, first.lengths, first.empty_table(2)[:0]]

    expected = made()
    torch.set_default_dtype(torch.float64)
    try:
        found = made()
    finally:
        torch.set_default_dtype(torch.float32)
    for mine, usual in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.sort(0)[0], usual.sort(0)[0])


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_padded_mini_batches_count_in_32_bits_whatever_torch_makes_by_default() -> None:
    from gnnsample_lab.compute.padding import PaddedBatch, Sizes

    torch.set_default_dtype(torch.float64)
    try:
        room = Sizes((10, 4), (20,))
        padded = PaddedBatch(room, False, torch.ones(1, 3).float(), torch.zeros(9, dtype=torch.int64).cuda())
    finally:
        torch.set_default_dtype(torch.float32)
    assert padded.counts.dtype == torch.float32


def test_a_layer_that_needs_every_row_says_so(graph: Any) -> None:
    fused = FusedSampler(graph, (3, 2), device="cpu").sample(SEEDS)
    for model in ("gat", "pinsage"):
        with pytest.raises(TypeError, match="SummedBlock"):
            lab.make_model(model, 12, 16, 5, num_layers=2)(fused.blocks, fused.x)


def test_attention_on_sums_is_refused_by_name_and_says_what_to_use(graph: Any) -> None:
    graph = replace(graph, splits={"train": np.unique(SEEDS)})
    sampler = FusedSampler(graph, (3, 2), device="cpu")
    gat = lab.make_model("gat", 12, 16, 5, num_layers=2)
    step = lab.captured_step(gat, torch.optim.Adam(gat.parameters()), sampler)
    said = r"attention \('gat'\).* a FusedSampler has summed .*use a NeighborSampler.* \(got SummedBlock"
    with pytest.raises(TypeError, match=said):
        step(sampler.sample(SEEDS))
    for model in ("gat", gat):
        with pytest.raises(TypeError, match=said):
            lab.train(graph, model, sampler=sampler, device="cpu", progress=False)


@pytest.mark.gpu
@pytest.mark.parametrize("ratio", [0.0, 0.3])
def test_rows_that_are_not_cached_come_from_the_host(graph: Any, ratio: float) -> None:
    x = features(graph.num_nodes, 24)
    cache = lab.FeatureCache(x, np.arange(graph.num_nodes), ratio=ratio, device="cuda", transfer="uva")
    part = FusedSampler(graph, (5, 4), cache, seed=11, device="cuda").sample(SEEDS, 7)
    whole = FusedSampler(replace(graph, feat=x), (5, 4), seed=11, device="cuda").sample(SEEDS, 7)
    for one, other in zip(
        by_vertex(part.node_ids, part.x, part.blocks[0].total),
        by_vertex(whole.node_ids, whole.x, whole.blocks[0].total),
        strict=True,
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("fanouts", [(5, 4), (5, 40), (5, -1)], ids=str)
@pytest.mark.parametrize("expand", ["frontier", "new"])
def test_statistics_are_of_all_rows_that_were_read(
    graph: Any, device: str, ratio: float, fanouts: Any, expand: str
) -> None:
    x = features(graph.num_nodes, 24)
    cache = lab.FeatureCache(x, np.arange(graph.num_nodes), ratio=ratio, device=device)
    fused = FusedSampler(graph, fanouts, cache, seed=11, expand=expand, device=device).sample(SEEDS, 7)
    plain = lab.NeighborSampler(graph, fanouts, seed=11, expand=expand, device="cpu").sample(SEEDS, 7)
    missing = np.ones(graph.num_nodes, bool)
    missing[cache.cached_ids] = False
    hops = plain.picks if expand == "new" else plain.picks[-1:]
    read = np.concatenate([np.unique(to_host(fused.node_ids)), *(p.neighbors for p in hops)])
    stats = fused.stats
    assert fused.num_edges == plain.num_edges
    assert stats.rows + stats.picks == len(read) and stats.misses == missing[read].sum()
    assert stats.bytes_moved == stats.misses * 96 and stats.hit_rate == pytest.approx(
        1 - missing[read].mean()
    )


def test_it_makes_epochs_and_reads_like_a_sampler(graph: Any) -> None:
    sampler = FusedSampler(graph, (3, 2), device="cpu")
    batches = list(sampler.epoch(np.arange(64), 16))
    assert [b.batch_id for b in batches] == [0, 1, 2, 3]
    assert "FusedSampler" in repr(sampler) and "FusedBatch" in repr(batches[0])
    assert len(batches[0].seeds) == 16 and len(batches[0].node_ids) == len(batches[0].x)
    assert lab.FusedSampler is FusedSampler


def test_bad_arguments_are_named(graph: Any) -> None:
    with pytest.raises(ValueError, match="fanouts must name two hops"):
        FusedSampler(graph, (5,), device="cpu")
    with pytest.raises(ValueError, match="reduce"):
        FusedSampler(graph, (5, 4), reduce="max", device="cpu")
    with pytest.raises(ValueError, match="no features"):
        FusedSampler(replace(graph, feat=None), (5, 4), device="cpu")
    with pytest.raises(TypeError, match="features"):
        FusedSampler(graph, (5, 4), features=graph.feat, device="cpu")
    half = lab.FeatureCache(graph.feat.astype(np.float16), ratio=1.0, device="cpu")
    with pytest.raises(TypeError, match="float32"):
        FusedSampler(graph, (5, 4), half, device="cpu")
    few = lab.FeatureCache(graph.feat[:10], ratio=1.0, device="cpu")
    with pytest.raises(ValueError, match="features must have a row"):
        FusedSampler(graph, (5, 4), few, device="cpu")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_captured_steps_have_the_losses_of_plain_mini_batches(graph: Any, device: str, model: str) -> None:
    losses = []
    for fused in (False, True):
        made = FusedSampler if fused else lab.NeighborSampler
        sampler: Any = made(graph, (5, 4, 3), seed=11, device=device)
        torch.manual_seed(0)
        net = lab.make_model(model, 12, 16, graph.num_classes).to(device)
        step = lab.captured_step(net, torch.optim.Adam(net.parameters(), lr=0.01), sampler)
        losses.append([float(step(batch)) for batch in sampler.epoch(np.arange(600), 64)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert losses[0][-1] != losses[0][0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["gcn", "sage", "gin"])
def test_rows_that_a_model_changes_first_are_refused(graph: Any, device: str, name: str) -> None:
    """Sums of their neighbours are of the rows as they were."""
    batch = FusedSampler(graph, [3, 4], device=device).sample(np.arange(20))
    layer = lab.make_model(name, graph.num_features, 8, 3, num_layers=1).to(device).layers[0]
    block = batch.blocks[0]
    expected = layer(block, block.own)
    torch.testing.assert_close(layer(block, block.own.clone()), expected)
    for changed in (torch.nn.functional.layer_norm(block.own, (graph.num_features,)), block.own[:, :-1]):
        with pytest.raises(ValueError, match="x must be the rows that a FusedSampler gives"):
            layer(block, changed)
    block.own.mul_(2)
    with pytest.raises(ValueError, match="x must be the rows that a FusedSampler gives"):
        layer(block, block.own)


@pytest.mark.gpu
def test_a_captured_step_takes_rows_that_are_there_already(graph: Any) -> None:
    losses = []
    for early in (False, True):
        sampler = FusedSampler(graph, (5, 4, 3), seed=11, device="cuda")
        torch.manual_seed(0)
        net = lab.make_model("sage", 12, 16, graph.num_classes).cuda()
        step = lab.captured_step(net, torch.optim.Adam(net.parameters(), lr=0.01), sampler)
        found = []
        for batch in sampler.epoch(np.arange(600), 64):
            found.append(float(step(batch, batch.x if early else None)))
        losses.append(found)
        assert step.captures >= 1
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.real_gpu])]
)
def test_lab_train_takes_it_as_a_sampler(graph: Any, device: str) -> None:
    graph = replace(graph, edge_weight=None, splits={"train": np.arange(200), "valid": np.arange(200, 260)})
    results = []
    for made in (lab.NeighborSampler, FusedSampler):
        sampler = made(graph, (4, 3), seed=2, device=device)
        results.append(
            lab.train(
                graph, "sage", epochs=2, batch_size=50, sampler=sampler, device=device, cache_ratio=1.0,
                progress=False,
            )
        )  # fmt: skip
    np.testing.assert_allclose(results[1].losses, results[0].losses, rtol=1e-4)
    assert results[1].accuracy == pytest.approx(results[0].accuracy)
    assert [e.num_edges for e in results[1].epochs] == [e.num_edges for e in results[0].epochs]


def test_the_argument_of_the_kernel_is_packed_as_it_is_declared() -> None:
    from gnnsample_lab.compute.fused import first_sum

    values = list(range(1, 1 + 8 + 3 + 6 + 15 + 16))
    packed = np.frombuffer(first_sum._PACK(*values), first_sum.FIRST)[0]
    found = [packed[name] for name in first_sum.FIRST.names]
    assert np.concatenate([np.atleast_1d(f) for f in found]).tolist() == values
    assert len(first_sum._PACK(*values)) == first_sum.FIRST.itemsize == 8 * 11 + 4 * 6 + 8 * 15 + 4 * 16


@pytest.mark.gpu
@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("fanouts", [(5, 4), (5, 40), (5, -1)], ids=str)
def test_the_kernel_counts_what_it_reads(graph: Any, ratio: float, fanouts: Any) -> None:
    """Without PyTorch: the kernel's sums and counters beside the twin's."""
    import cupy

    from gnnsample_lab.compute.fused import first_sum
    from gnnsample_lab.sampling.neighbors.spec import make_spec

    x, nodes = features(graph.num_nodes, 24), np.unique(SEEDS).astype(graph.indices.dtype)
    cache = lab.FeatureCache(x, np.arange(graph.num_nodes), ratio=ratio, device="cuda", transfer="uva")
    spec, ends = make_spec(fanouts, "floyd", False, False, "frontier", 3), [0, len(nodes)]
    lists = replace(graph, feat=None, edge_weight=None, label=None, splits={}).to("cuda")
    wanted, found = (np.zeros((len(nodes), 48), np.float32) for _ in range(2))
    lengths = np.zeros(len(nodes), np.float32)
    (picked,) = first_sum.first_sum_cpu(
        graph, spec, None, x, nodes, ends, 7, wanted[:, :24], wanted[:, 24:], lengths, True
    )
    on_gpu, counts = cupy.zeros((len(nodes), 48), np.float32), cupy.zeros(len(nodes), np.float32)
    launched = first_sum.FirstSum(lists, spec, None, cache.rows_on_gpu(), 24)
    counters = first_sum.Counters()
    for _ in range(2):  # counters of a launch are its own
        address, read = counters.take()
        given = cupy.asarray(nodes)
        launched.launch(given, ends, 7, on_gpu, counts, True, address)
        found = on_gpu.get()
        np.testing.assert_array_equal(found[:, :24], wanted[:, :24])
        np.testing.assert_allclose(found[:, 24:], wanted[:, 24:], rtol=1e-6)
        np.testing.assert_array_equal(counts.get(), lengths)
        missing = np.ones(graph.num_nodes, bool)
        missing[cache.cached_ids] = False
        assert read() == (len(picked), int(missing[nodes].sum() + missing[picked].sum()))


@pytest.mark.gpu
@pytest.mark.parametrize("fanouts", [(5, 4), (5, 40), (4, 3, -1)], ids=str)
@pytest.mark.parametrize("rule", [{}, {"expand": "new", "pick": "reservoir"}, {"weighted": True}], ids=str)
def test_the_launch_of_the_hops_before_brings_the_sums(
    graph: Any, monkeypatch: pytest.MonkeyPatch, fanouts: Any, rule: Any
) -> None:
    """Without PyTorch: sums in the memory of a mini-batch beside the twin's, whatever is known of sizes before."""
    from gnnsample_lab.compute.fused import first_sum
    from gnnsample_lab.device.arrays import to_host
    from gnnsample_lab.sampling.neighbors.plan import WANTED_ROWS

    x = features(graph.num_nodes, 24)
    made = {
        device: FusedSampler(
            graph, fanouts, lab.FeatureCache(x, ratio=1.0, device=device), "mean", seed=3, device=device,
            strategy="captured", **rule,
        )
        for device in ("cpu", "cuda")
    }  # fmt: skip
    there = made["cuda"]
    at_once = first_sum.SumsAlong.bring_at
    later: list[Any] = []
    monkeypatch.setattr(
        first_sum.SumsAlong, "bring_at", lambda *given: (later.append(given), at_once(*given))[1]
    )
    few, kept = SEEDS[:1], []
    for seeds, holds, launches in (
        ([few], False, 0), ([few], False, 0),  # at first nobody wants them, then sizes are not known
        ([few], True, 0), ([few, SEEDS], True, 1), ([SEEDS], True, 1), ([SEEDS[:4], SEEDS], True, 1), ([few], True, 1),
    ):  # fmt: skip
        kept += zip(seeds, there.inner.sample_many(seeds, 7), (7, 8), strict=False)
        assert all(batch.arena.holds_sums == holds for _, batch, _ in kept[-len(seeds) :])
        assert len(later) == launches
        there._engine.wishes.bits |= WANTED_ROWS
    for seeds, batch, number in kept:
        arena, n = batch.arena, batch.num_nodes
        if not arena.holds_sums:
            continue
        twin = made["cpu"].sample(seeds, number)
        table, lengths, _ = made["cpu"]._gather(twin.sample)
        order, other = (np.argsort(to_host(ids)) for ids in (batch.node_ids, twin.node_ids))
        assert (to_host(batch.node_ids)[order] == twin.node_ids[other]).all()
        found = arena.view(arena.place.end, n * 49, np.float32).get()
        rows = found[: 48 * n].reshape(n, 48)
        np.testing.assert_array_equal(found[48 * n :][order], lengths[other])
        np.testing.assert_array_equal(rows[order, :24], table[other, :24])
        np.testing.assert_allclose(rows[order, 24:], table[other, 24:], rtol=1e-6, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_sums_that_come_with_the_launch_are_those_of_a_launch_of_their_own(graph: Any, reduce: str) -> None:
    """As tensors, written elsewhere, and in statistics; nobody keeps a mini-batch's memory who has its statistics."""
    import cupy
    import torch

    there, here = (FusedSampler(graph, (5, 4), None, reduce, seed=3, device=d) for d in ("cuda", "cpu"))
    pool, used, stats = cupy.get_default_memory_pool(), [], []
    gc.collect()
    gc.disable()
    try:
        for number in range(12):
            batch, twin = there.sample(SEEDS, number), here.sample(SEEDS, number)
            assert batch.sample.arena.holds_sums == (number > 1)
            order, other = (np.argsort(np.asarray(to_host(b.node_ids))) for b in (batch, twin))
            if number % 2:  # before anyone has asked for the tensors
                table = torch.zeros(batch.sample.num_nodes + 3, 24, device="cuda")
                lengths = torch.zeros(len(table), device="cuda")
                batch.blocks[0].write(table, lengths)
                own, total, picks = table[:-3, :12], table[:-3, 12:], lengths[:-3, None]
            else:
                own, total, picks = batch.x, batch.blocks[0].total, batch.blocks[0].lengths
            assert torch.equal(own.cpu()[order], twin.x[other])
            assert torch.equal(picks.cpu()[order], twin.blocks[0].lengths[other])
            torch.testing.assert_close(total.cpu()[order], twin.blocks[0].total[other])
            assert batch.num_edges == twin.num_edges
            stats.append(batch.stats)
            assert (stats[-1].picks, stats[-1].rows, stats[-1].misses) == (
                twin.stats.picks,
                twin.stats.rows,
                0,
            )
            del batch, own, total, picks
            torch.cuda.synchronize()
            used.append(pool.used_bytes())
    finally:
        gc.enable()
    assert used[-1] <= used[4]


class OnGpu:
    """What the launcher asks of an array in device memory, so that its arithmetic runs without a GPU."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.data = array, SimpleNamespace(ptr=4096 + array.ctypes.data % 16)
        self.dtype, self.shape, self.strides = array.dtype, array.shape, array.strides
        self.itemsize = array.itemsize


@pytest.mark.parametrize("fanouts", [(5, 4), (5, 20), (5, 40), (5, -1), (3, 4096)], ids=str)
@pytest.mark.parametrize("width", [1, 30, 100, 602])
def test_a_launch_covers_all_rows(
    graph: Any, monkeypatch: pytest.MonkeyPatch, fanouts: tuple[int, ...], width: int
) -> None:
    from gnnsample_lab.compute.fused import first_sum
    from gnnsample_lab.device.kernels import PACKAGE_ROOT
    from gnnsample_lab.sampling.neighbors.spec import make_spec

    launched: list[Any] = []

    def kernel(name: str, macros: Any) -> Any:
        assert {key for key, _ in macros} <= known
        return lambda *args, **options: launched.append((dict(macros), *args, options))

    sources = (
        "compute/fused/first_sum.cu",
        "compute/aggregation/vectors.cuh",
        "sampling/neighbors/hops/draw.cuh",
    )
    text = "".join((PACKAGE_ROOT / source).read_text() for source in sources)
    known = set(re.findall(r"[A-Z_]+", text))
    monkeypatch.setattr(first_sum, "_kernel", kernel)
    monkeypatch.setattr(first_sum.runtime, "num_sms", lambda: 132)
    lists = SimpleNamespace(
        indices=OnGpu(graph.indices), indptr=OnGpu(graph.indptr), num_nodes=graph.num_nodes
    )
    table = OnGpu(np.zeros((4, width), np.float32))
    rows = SimpleNamespace(slots=None, cache=table, host_address=0, host_stride=0)
    spec = make_spec(fanouts, "floyd", False, False, "frontier", 0)
    out = OnGpu(np.zeros((300, 2 * width), np.float32))
    nodes, counts = OnGpu(np.zeros(300, np.int32)), OnGpu(np.zeros(300, np.float32))
    first_sum.FirstSum(lists, spec, None, rows, width).launch(nodes, [0, 300], 3, out, counts, True)
    ((macros, (blocks,), (threads,), (_, packed), options),) = launched
    first = packed.view(first_sum.FIRST)[0]
    warps = threads // 32
    assert threads == macros["THREADS"] and blocks * warps * first["per_warp"] >= 300
    assert (first["rows"], first["out_stride"], first["features"]) == (300, 2 * width, width)
    assert first["ends"][1] == 300 and first["fanouts"][1] == fanouts[1] and first["mean"] == 1
    assert width % macros["VEC"] == 0 and ("KMAX" in macros) == (0 < fanouts[1] <= 32)
    assert options["shared_mem"] <= 48 << 10
    assert "KMAX" in macros or options["shared_mem"] == 4 * warps * max(1, fanouts[1])


@pytest.mark.parametrize("device", DEVICES)
def test_mini_batches_can_be_started(graph: Any, device: str, monkeypatch: Any) -> None:
    from gnnsample_lab.minibatch.waves import Waves

    monkeypatch.setattr(Waves, "settled", lambda self, count: min(2, self._highest(count)))
    sampler = FusedSampler(graph, (4, 3), seed=11, device=device)
    each = [SEEDS, SEEDS[::-1], SEEDS[:3]]
    expected = sampler.sample_many(each, 7)
    assert sampler._starts(3, 10) == (2 if device == "cuda" else 0)
    finish = sampler.start_many(each, 7)
    if device == "cuda":
        assert sampler._engine._started is not None
    assert finish() is finish()
    for found, want in zip(finish(), expected, strict=True):
        assert found.batch_id == want.batch_id and found.sample.canonical() == want.sample.canonical()
    assert [b.batch_id for b in sampler.epoch(np.arange(50), 10, epoch=1)] == list(range(5, 10))
    for found, want in zip(finish(), expected, strict=True):
        assert found.num_edges == want.num_edges
        (x, total), (own, sums) = (
            by_vertex(batch.node_ids, batch.x, batch.blocks[0].total) for batch in (found, want)
        )
        assert torch.equal(x, own)
        torch.testing.assert_close(total, sums, rtol=2e-5, atol=2e-5)
