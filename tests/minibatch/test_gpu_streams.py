"""On a GPU: many streams and threads, kept views and tensors, late kernels, memory that is overwritten when free."""

from __future__ import annotations

import gc
import random
import threading
from contextlib import ExitStack, suppress
from importlib.util import find_spec

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import FeatureCache, MatchedFeatures, NeighborSampler, PinSAGESampler
from gnnsample_lab.bench.configurations import test_graph as graph_named  # pytest collects test_*
from gnnsample_lab.device import streams
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.minibatch.id_map.ladder import IdMap
from gnnsample_lab.minibatch.walks.gpu import WalkEngine

pytestmark = [pytest.mark.gpu, pytest.mark.real_gpu]

SPIN = r"""
extern "C" __global__ void spin(unsigned long long ns) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < ns);
}
"""
LATE_MS = 5
STRATEGIES = ("captured", "bsp", "persistent", "block-bsp", "turbo-bsp")


@pytest.fixture(scope="module")
def cp():
    import cupy

    return cupy


@pytest.fixture
def spin(cp):
    """``spin(ms)`` keeps CuPy's current stream busy."""
    kernel = cp.RawKernel(SPIN, "spin")
    kernel((1,), (1,), (np.uint64(1),))  # compiled here
    cp.cuda.Device().synchronize()

    def run(ms: float) -> None:
        kernel((1,), (1,), (np.uint64(ms * 1e6),))

    return run


def sides(cp, count: int) -> list:
    return [cp.cuda.Stream(non_blocking=True) for _ in range(count)]


def late(sampler, spin, ms: float = LATE_MS) -> None:
    """The kernel that writes a sample starts ``ms`` late, long after the call has returned."""
    engine = sampler._engine
    if isinstance(engine, WalkEngine):
        engine.k = {**engine.k, "emit": after_spin(engine.k["emit"], spin, ms)}
        engine._scratch = None  # and with it captured launches
        return
    real = engine.finisher._kernels

    def kernels(table):
        found = dict(real(table))
        return {**found, **{n: after_spin(found[n], spin, ms) for n in ("emit", "emit_at")}}

    engine.finisher._kernels = kernels
    engine._forget()  # and with it captured launches


def after_spin(kernel, spin, ms):
    def launch(*args, **options):
        spin(ms)
        kernel(*args, **options)

    launch.kernel = kernel  # whose occupancy is asked for
    return launch


def poison(cp, *on, sizes=(1 << 12, 1 << 16, 1 << 20, 1 << 22)) -> None:
    """Overwrite what the pool believes to be free on these streams."""
    pool = cp.get_default_memory_pool()
    for stream in on:
        with stream:
            held = []
            for size in sizes:
                for _ in range(8):
                    if pool.free_bytes() < size:
                        break
                    held.append(cp.empty(size, cp.uint8))
                    held[-1].fill(0x5A)
            del held


def seeds_of(number: int, size: int = 600) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 6000, size)


@pytest.fixture(scope="module")
def expected():
    """Canonical samples of the CPU by (fanouts, options, number)."""
    made, samplers = {}, {}

    def find(number: int, fanouts=(5, 4, 3), kind=NeighborSampler, **options):
        key = (kind, fanouts, *sorted(options.items()))
        if key not in samplers:
            arguments = (list(fanouts),) if kind is NeighborSampler else ()
            samplers[key] = kind(graph_named("hubs"), *arguments, device="cpu", **options)
        if (key, number) not in made:
            made[key, number] = samplers[key].sample(seeds_of(number), number).canonical()
        return made[key, number]

    return find


def gpu_sampler(strategy="captured", fanouts=(5, 4, 3), **options):
    return NeighborSampler(graph_named("hubs"), list(fanouts), strategy=strategy, device="cuda", **options)


def make_late(strategy, spin, **options):
    sampler = gpu_sampler(strategy, **options)
    sampler.sample(seeds_of(0), 0)
    if sampler._engine.per_hop is None:
        late(sampler, spin)
    return sampler


# ---- one sampler, many streams and threads


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_calls_on_other_streams_wait_for_the_workspace(cp, spin, expected, strategy):
    sampler = make_late(strategy, spin)
    on = sides(cp, 3)
    batches = []
    for number in range(12):
        with on[number % 3]:
            batches.append(sampler.sample(seeds_of(number), number))
    for number, batch in enumerate(batches):
        assert batch.canonical() == expected(number)


def test_fused_calls_on_other_streams(cp, spin, expected):
    sampler = make_late("captured", spin)
    on = sides(cp, 2)
    made = []
    for first in range(0, 24, 4):
        with on[first // 4 % 2]:
            made += sampler.sample_many([seeds_of(n) for n in range(first, first + 4)], first)
    for number, batch in enumerate(made):
        assert batch.canonical() == expected(number)


def test_walks_on_other_streams(cp, spin, expected):
    sampler = PinSAGESampler(graph_named("hubs"), device="cuda")
    sampler.sample(seeds_of(0), 0)
    late(sampler, spin)
    on = sides(cp, 3)
    batches = []
    for number in range(9):
        with on[number % 3]:
            batches.append(sampler.sample(seeds_of(number), number))
    for number, batch in enumerate(batches):
        assert batch.canonical() == expected(number, kind=PinSAGESampler, fanouts=())


@pytest.mark.parametrize("strategy", ["captured", "block-bsp"])
def test_threads_with_streams_of_their_own(cp, spin, expected, strategy):
    sampler = make_late(strategy, spin)
    batches, errors = {}, []

    def work(thread: int) -> None:
        try:
            stream = cp.cuda.Stream(non_blocking=True)
            for number in range(thread, 32, 4):
                with stream:
                    batch = sampler.sample(seeds_of(number), number)
                    batches[number] = batch
                    if number % 3 == 0:  # a view only
                        batches[number] = batch.node_ids[5:].copy()
                        del batch
                poison(cp, stream)
            stream.synchronize()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    cpu = NeighborSampler(graph_named("hubs"), [5, 4, 3], device="cpu")
    for number, found in batches.items():
        if number % 3:
            assert found.canonical() == expected(number)
        else:
            known = cpu.sample(seeds_of(number), number).node_ids
            assert found.size == known.size - 5
            assert set(found.get().tolist()) <= set(known.tolist())


@pytest.mark.parametrize("method", [m for m in lab.id_maps() if m != "in-sampler"])
def test_an_id_map_on_other_streams(cp, spin, method):
    rng = np.random.default_rng(3)
    table, on = IdMap(method, 5000, np.int32, "cuda"), sides(cp, 2)
    cpu = IdMap(method, 5000, np.int32, "cpu")
    found = []
    for number in range(8):
        seeds = rng.permutation(5000)[:100].astype(np.int32)
        hops = [rng.integers(0, 5000, 4000).astype(np.int32) for _ in range(2)]
        with on[number % 2]:
            given = cp.asarray(seeds), [cp.asarray(h) for h in hops]
            spin(1)
            made = table.map_hops(*given)
            spin(1)
        found.append((made, cpu.map_hops(seeds, hops)))
        del made, given
        poison(cp, *on)
    for made, known in found:
        assert made == known


# ---- readers


@pytest.mark.parametrize("expand", ["frontier", "new"])
@pytest.mark.parametrize("strategy", ["captured", "bsp"])
def test_other_streams_wait_for_ready(cp, spin, expected, strategy, expand):
    import torch

    sampler = make_late(strategy, spin, expand=expand)
    made_on, reader = sides(cp, 2)
    torch_reader = torch.cuda.Stream()
    known = NeighborSampler(graph_named("hubs"), [5, 4, 3], expand=expand, device="cpu")
    for number in range(6):
        batch_cpu = known.sample(seeds_of(number), number)
        with made_on:
            batch = sampler.sample(seeds_of(number), number)
        if number % 3 == 0:
            batch.ready.wait(reader)
            with reader:
                nodes = batch.node_ids.copy()
        elif number % 3 == 1:
            reader.wait_event(batch.ready)
            with reader:
                nodes = batch.node_ids.copy()
        else:
            torch_reader.wait_event(batch.ready)
            with torch.cuda.stream(torch_reader):
                nodes = cp.from_dlpack(batch.to_torch().node_ids.clone())
            torch_reader.synchronize()
        reader.synchronize()
        assert set(nodes.get().tolist()) == set(batch_cpu.node_ids.tolist())
        assert batch.canonical() == batch_cpu.canonical()


@pytest.mark.parametrize("expand", ["frontier", "new"])
def test_exports_order_the_current_stream(cp, spin, expand):
    import torch

    sampler = make_late("captured", spin, expand=expand)
    known = NeighborSampler(graph_named("hubs"), [5, 4, 3], expand=expand, device="cpu")
    made_on, side = cp.cuda.Stream(non_blocking=True), torch.cuda.Stream()
    for number in range(4):
        with made_on:
            batch = sampler.sample(seeds_of(number), number)
        with torch.cuda.stream(side):
            tensors = batch.to_torch()
            copies = [(b.src.clone(), b.edge_index.clone(), b.edge_positions.clone()) for b in tensors.blocks]
            if expand == "new" and find_spec("torch_geometric"):
                data = batch.to_pyg()
                copies.append((data.n_id.clone(), data.edge_index.clone(), copies[0][2]))
        side.synchronize()
        wanted = known.sample(seeds_of(number), number)
        for (src, edges, positions), block in zip(copies, [*wanted.blocks, wanted.blocks[0]], strict=False):
            assert set(src.tolist()) == set(block.src.tolist())
            assert edges.shape[1] == block.num_edges
            assert sorted(positions.tolist()) == sorted(block.edge_positions.tolist())
            sources = np.sort(src.cpu().numpy()[edges[0].cpu().numpy()])
            assert np.array_equal(sources, np.sort(block.src[block.indices]))


def test_seeds_that_torch_computes_on_a_side_stream(cp, spin, expected):
    import torch

    sampler, side = make_late("captured", spin), torch.cuda.Stream()
    for number in range(4):
        host = torch.as_tensor(seeds_of(number))
        with torch.cuda.stream(side):
            with streams.torch_stream():
                spin(LATE_MS)
            seeds = host.cuda(non_blocking=True) + 0
            batch = sampler.sample(seeds, number)  # CuPy is on its default stream
            nodes = torch.from_dlpack(batch.node_ids).clone()
            del seeds
            torch.empty(600, dtype=torch.int64, device="cuda").fill_(-7)
        side.synchronize()
        assert batch.canonical() == expected(number)
        assert torch.equal(nodes.cpu(), torch.as_tensor(batch.node_ids.get()))


def test_an_epoch_whose_consumer_changes_streams(cp, spin):
    sampler = make_late("captured", spin)
    known = NeighborSampler(graph_named("hubs"), [5, 4, 3], device="cpu")
    on, found = sides(cp, 3), []
    batches = iter(sampler.epoch(np.arange(4000), 500, prefetch=4))
    for number in range(8):
        with on[number % 3]:
            batch = next(batches)
            found.append((batch.batch_id, batch.node_ids.copy(), batch))
    for stream in on:
        stream.synchronize()
    for (batch_id, nodes, batch), wanted in zip(found, known.epoch(np.arange(4000), 500), strict=True):
        assert batch_id == wanted.batch_id
        assert set(nodes.get().tolist()) == set(wanted.node_ids.tolist())
        assert batch.canonical() == wanted.canonical()


# ---- memory


@pytest.mark.parametrize("strategy", ["captured", "block-bsp"])
@pytest.mark.parametrize("dropped", ["inside", "outside", "outside waited", "view"])
def test_memory_that_a_side_stream_reads_is_not_used_again(cp, spin, strategy, dropped):
    import torch

    sampler = gpu_sampler(strategy)
    made_on, side = cp.cuda.Stream(non_blocking=True), torch.cuda.Stream()
    known = NeighborSampler(graph_named("hubs"), [5, 4, 3], device="cpu")
    for number in range(5):
        wanted = sorted(known.sample(seeds_of(number), number).node_ids.tolist())
        with made_on:
            batch = sampler.sample(seeds_of(number), number)
        size = batch.node_ids.data.mem.size
        if dropped == "outside waited":
            batch.ready.wait(side)
            tensor = torch.from_dlpack(batch.node_ids)
        with torch.cuda.stream(side):
            if dropped == "view":
                view = batch.node_ids[:]
                batch.ready.wait()
                tensor = torch.from_dlpack(view)
                del batch, view
            elif dropped != "outside waited":
                tensor = batch.to_torch().blocks[0].src
            with streams.torch_stream():
                spin(20)
            copy = tensor.clone()
            if dropped in ("inside", "view"):
                tensor = batch = None
        tensor = batch = None
        gc.collect()
        poison(cp, made_on, sizes=(size, 4 * len(wanted), 8 * len(wanted), 1 << 16))
        made_on.synchronize()
        side.synchronize()
        assert sorted(copy.tolist()) == wanted


def test_rows_that_a_side_stream_reads_are_not_used_again(cp, spin):
    import torch

    from gnnsample_lab.minibatch.export import tensor

    table = np.arange(40_000, dtype=np.float32).reshape(5000, 8)
    cache = FeatureCache(table, ratio=1.0, device="cuda")
    made_on, side = cp.cuda.Stream(non_blocking=True), torch.cuda.Stream()
    for number in range(5):
        ids = np.random.default_rng(number).integers(0, 5000, 3000)
        with made_on:
            x, stats = cache.extract(ids)
        stats.ready.wait(side)
        with torch.cuda.stream(side):
            rows = tensor(x)
            del x
            with streams.torch_stream():
                spin(20)
            copy = rows.clone()
            del rows
        poison(cp, made_on, sizes=(ids.size * 32,))
        made_on.synchronize()
        side.synchronize()
        np.testing.assert_array_equal(copy.cpu().numpy(), table[ids])


def test_tensors_freed_by_the_backward_pass(cp, spin):
    import torch

    from gnnsample_lab.minibatch.export import tensor

    table = np.random.default_rng(0).standard_normal((5000, 16), dtype=np.float32)
    cache = FeatureCache(table, ratio=1.0, device="cuda")
    weight = torch.ones(16, 4, device="cuda", requires_grad=True)
    torch.cuda.synchronize()
    side, made_on = torch.cuda.Stream(), cp.cuda.Stream(non_blocking=True)
    for number in range(5):
        ids = np.random.default_rng(number).integers(0, 5000, 3000)
        with made_on:
            x, _ = cache.extract(ids)
        with torch.cuda.stream(side):
            loss = (tensor(x) @ weight).sum()
            del x
            with streams.torch_stream():
                spin(20)
            (grad,) = torch.autograd.grad(loss, weight)
            del loss
        poison(cp, made_on, sizes=(ids.size * 64,))
        made_on.synchronize()
        side.synchronize()
        wanted = np.repeat(table[ids].sum(axis=0, dtype=np.float64)[:, None], 4, axis=1)
        np.testing.assert_allclose(grad.cpu().numpy(), wanted, rtol=1e-3, atol=1e-2)


# ---- features


@pytest.mark.parametrize("transfer", ["uva", "staged"])
def test_marks_and_rows_on_different_streams(cp, spin, transfer):
    table = np.arange(80_000, dtype=np.float32).reshape(10_000, 8)
    cache = FeatureCache(table, np.arange(10_000), ratio=0.4, device="cuda", transfer=transfer)
    on, kept = sides(cp, 3), []
    for number in range(9):
        ids = np.random.default_rng(number).integers(0, 10_000, 2000)
        with on[number % 3]:
            spin(2)
            marks = cache.mark(ids)
        with on[(number + 1) % 3]:
            given = cp.asarray(ids)
            x, stats = cache.extract(given, marks)
            kept.append((ids, x, stats))
            del marks, given
        poison(cp, *on, sizes=(1 << 13, 1 << 14, 1 << 15))
    for ids, x, stats in kept:
        stats.ready.wait(cp.cuda.Stream.null)
        np.testing.assert_array_equal(x.get(), table[ids])
        assert stats.misses == int((ids < 6000).sum())


def test_ids_of_a_late_sample(cp, spin):
    table = np.arange(60_000, dtype=np.float32).reshape(6000, 10)
    cache = FeatureCache(table, np.arange(6000), ratio=0.5, device="cuda")
    sampler = make_late("captured", spin)
    made_on, reader = sides(cp, 2)
    for number in range(4):
        with made_on:
            batch = sampler.sample(seeds_of(number), number)
        with reader:
            x, _ = cache.extract(batch.node_ids)  # an array says when it may be read
            found = x.get()
        np.testing.assert_array_equal(found, table[batch.to_cpu().node_ids])


def test_match_on_different_streams(cp, spin):
    table = np.arange(60_000, dtype=np.float32).reshape(6000, 10)
    source = MatchedFeatures(FeatureCache(table, np.arange(6000), ratio=0.3, device="cuda"))
    quiet = MatchedFeatures(FeatureCache(table, np.arange(6000), ratio=0.3, device="cpu"))
    on, kept = sides(cp, 2), []
    for number in range(8):
        ids = np.unique(np.random.default_rng(number).integers(0, 6000, 4000))
        with on[number % 2]:
            spin(3)
            x, stats = source.extract(ids)
            kept.append((ids, x, stats, quiet.extract(ids)[1]))
            del x
        poison(cp, *on)
    for ids, x, stats, wanted in kept:
        stats.ready.wait()
        np.testing.assert_array_equal(x.get(), table[ids])
        assert (stats.reused, stats.misses) == (wanted.reused, wanted.misses)


# ---- applications


def test_applications_on_different_streams(cp, spin):
    g, roots = graph_named("hubs"), np.arange(0, 6000, 3)
    for app in (lab.apps.DeepWalk(10), lab.apps.KHop([3, 2]), lab.apps.PPR()):
        wanted = lab.run_app(g, app, roots, device="cpu", seed=4)
        on, made = sides(cp, 3), []
        for number in range(6):
            with on[number % 3]:
                spin(2)
                made.append(lab.run_app(g, app, roots, device="cuda", seed=4))
                spin(2)
            poison(cp, *on)
        reader = cp.cuda.Stream(non_blocking=True)
        for result in made:
            with reader:
                assert bool((result.samples == cp.asarray(wanted.samples)).all())
            assert result.digest() == wanted.digest()


def test_minibatches_of_applications_on_different_streams(cp, spin):
    g, roots = graph_named("hubs"), np.arange(0, 600)
    wanted = lab.minibatches(lab.run_app(g, lab.apps.KHop([3, 2]), roots, device="cpu"), per_batch=100)
    on = sides(cp, 2)
    with on[0]:
        spin(5)
        result = lab.run_app(g, lab.apps.KHop([3, 2]), roots, device="cuda")
    with on[1]:
        made = lab.minibatches(result, per_batch=100)
        del result
    poison(cp, *on)
    for batch, known in zip(made, wanted, strict=True):
        assert batch.canonical() == known.canonical()


# ---- cost


@pytest.mark.parametrize("side", [False, True])
def test_one_stream_has_no_events(cp, monkeypatch, side):
    import torch

    torch.zeros(1, device="cuda")
    sampler = gpu_sampler()
    cache = FeatureCache(np.ones((6000, 4), np.float32), np.arange(6000), ratio=0.5, device="cuda")
    with ExitStack() as stack:
        if side:
            stack.enter_context(torch.cuda.stream(torch.cuda.Stream()))
            stack.enter_context(streams.torch_stream())
        for _ in range(2):  # the graph, the weights and the tables may have been made elsewhere
            batch = sampler.sample(seeds_of(1), 1)
            x, _ = cache.extract(batch.node_ids, cache.mark(batch.node_ids))
        batch = x = None
        gc.collect()
        events = []
        for name in ("_record", "_wait"):
            monkeypatch.setattr(streams, name, lambda *args, name=name: events.append(name))
        batch = sampler.sample(seeds_of(1), 1)
        tensors = batch.to_torch()
        x, _ = cache.extract(batch.node_ids, cache.mark(batch.node_ids))
        assert batch.blocks
        del tensors, batch, x
        gc.collect()
        assert events == []


# ---- interrupts


def interrupted(monkeypatch, owner, name, before=False):
    """The next call of ``owner.name`` is hit by Ctrl-C, before or after its work; later ones are not."""
    real, calls = getattr(owner, name), iter(range(10**9))

    def hit(*args, **options):
        first = next(calls) == 0
        if first and before:
            raise KeyboardInterrupt
        result = real(*args, **options)
        if first:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, name, hit)


@pytest.mark.parametrize("name", ["_await_totals", "stage", "_work", "workspace"])
@pytest.mark.parametrize("strategy", ["captured", "bsp", "persistent"])
def test_a_sampler_goes_on_after_an_interrupt(cp, monkeypatch, expected, strategy, name):
    sampler = gpu_sampler(strategy)
    for before in (True, False):
        for _ in range(2):
            with monkeypatch.context() as patch:
                interrupted(patch, GpuEngine, name, before)
                with suppress(KeyboardInterrupt):
                    sampler.sample(seeds_of(9), 9)
            stale = cp.cuda.alloc_pinned_memory(512)  # must not be written to by the launch that was left
            words = np.frombuffer(stale, np.int64, 64)
            words[:] = -1
            cp.cuda.Device().synchronize()
            assert (words == -1).all()
            with cp.cuda.Stream(non_blocking=True):
                for number in range(3):
                    assert sampler.sample(seeds_of(number), number).canonical() == expected(number)


@pytest.mark.parametrize("strategy", ["block-bsp", "edge-bsp", "turbo-bsp"])
@pytest.mark.parametrize("id_map", ["insert-count-compact", "fused-map", "direct-address"])
def test_a_per_hop_sampler_goes_on_after_an_interrupt(cp, monkeypatch, expected, strategy, id_map):
    from gnnsample_lab.minibatch.gpu.per_hop import PerHopSampler
    from gnnsample_lab.minibatch.id_map.gpu import Report

    sampler = gpu_sampler(strategy, id_map=id_map)
    for owner, name in ((Report, "wait"), (PerHopSampler, "launch_draw"), (PerHopSampler, "prepare")):
        for before in (True, False):
            with monkeypatch.context() as patch:
                interrupted(patch, owner, name, before)
                with pytest.raises(KeyboardInterrupt):
                    sampler.sample(seeds_of(9), 9)
            stale = cp.cuda.alloc_pinned_memory(8)  # must not be written to by the copy that was left
            words = np.frombuffer(stale, np.int64, 1)
            words[:] = -1
            cp.cuda.Device().synchronize()
            assert words[0] == -1
            for number in range(3):
                assert sampler.sample(seeds_of(number), number).canonical() == expected(number)


def test_auto_measures_again_after_an_interrupt(cp, monkeypatch, expected):
    sampler = gpu_sampler("auto")
    with monkeypatch.context() as patch:
        interrupted(patch, cp.cuda, "get_elapsed_time")
        with pytest.raises(KeyboardInterrupt):
            sampler.sample(seeds_of(1), 1)
    assert "not measured" in sampler.reason
    assert sampler.sample(seeds_of(1), 1).canonical() == expected(1)
    assert "fastest" in sampler.reason


def test_walks_go_on_after_an_interrupt(monkeypatch, expected):
    sampler = PinSAGESampler(graph_named("hubs"), device="cuda")
    for name in ("_write_again", "_take_scratch", "_launch", "_batches"):
        with monkeypatch.context() as patch:
            interrupted(patch, WalkEngine, name)
            with pytest.raises(KeyboardInterrupt):
                sampler.sample(seeds_of(9), 9)
        for number in range(3):
            found = sampler.sample(seeds_of(number), number)
            assert found.canonical() == expected(number, kind=PinSAGESampler, fanouts=())


@pytest.mark.parametrize("before", [True, False])
def test_staged_extraction_goes_on_after_an_interrupt(cp, monkeypatch, before):
    from gnnsample_lab.features.caching import gather

    table = np.arange(400_000, dtype=np.float32).reshape(50_000, 8)
    knobs = gather.ExtractKnobs(chunk_bytes=1 << 16, buffers=2)
    cache = FeatureCache(table, np.arange(50_000), ratio=0.1, device="cuda", transfer="staged", knobs=knobs)
    for name in ("gather_rows", "copy_to_device_async"):
        for number in range(3):
            ids = np.random.default_rng(number).integers(0, 50_000, 40_000)
            with monkeypatch.context() as patch:
                interrupted(patch, gather, name, before)
                with suppress(KeyboardInterrupt):
                    cache.extract(ids)
            with cp.cuda.Stream(non_blocking=True):
                np.testing.assert_array_equal(cache.extract(ids[::-1])[0].get(), table[ids[::-1]])


# ---- all together


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(cp, spin, expected, seed):
    """Samples, exports, reads and drops on random streams, all as the contract allows, against the CPU's samples."""
    import torch

    rng = random.Random(seed)
    cupys = [cp.cuda.Stream.null, *sides(cp, 3)]
    torches = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(3))]
    samplers = [make_late("captured", spin), gpu_sampler("bsp"), gpu_sampler("block-bsp")]
    cpu = NeighborSampler(graph_named("hubs"), [5, 4, 3], device="cpu")
    held, copies = [], []
    for step in range(150):
        here, there = rng.choice(cupys), rng.choice(torches)
        with ExitStack() as stack:
            stack.enter_context(torch.cuda.stream(there))
            if rng.random() < 0.5:
                stack.enter_context(streams.torch_stream())
            else:
                stack.enter_context(here)
            if rng.random() < 0.2:
                spin(rng.random() * 3)
            act, number = rng.random(), rng.randrange(12)
            if act < 0.4 or not held:
                held.append((number, rng.choice(samplers).sample(seeds_of(number), number)))
            elif act < 0.6:
                number, batch = held[rng.randrange(len(held))]
                tensors = batch.to_torch()
                copies.append((number, tensors.node_ids.clone(), there))
                del tensors, batch
            elif act < 0.75:
                number, batch = held[rng.randrange(len(held))]
                reader = rng.choice(cupys)
                batch.ready.wait(reader)
                with reader:
                    copies.append((number, batch.node_ids.astype(np.int64), reader))
                del batch
            elif act < 0.9:
                held.pop(rng.randrange(len(held)))
            else:
                number, batch = held.pop(rng.randrange(len(held)))
                assert batch.canonical() == expected(number), step
                del batch
        if rng.random() < 0.3:
            poison(cp, *cupys)
    for number, batch in held:
        assert batch.canonical() == expected(number)
    for number, copy, stream in copies:
        stream.synchronize()
        wanted = cpu.sample(seeds_of(number), number).node_ids
        assert sorted(copy.tolist()) == sorted(wanted.tolist())
