"""Rows on GPUs: one GPU with an address table of two allocations of its own, ranks on one GPU and on two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.features.placement import place_rows

from .conftest import featured, saved
from .test_features import CASES, SIZES, asked, cached_by, expected_traffic, told

torch = pytest.importorskip("torch")


WIDTHS = (1, 2, 4, 7, 100, 128, 200)
SHAPES: tuple[dict[str, Any], ...] = (
    {}, {"rows_per_warp": 4}, {"rows_per_warp": 1, "load": 0, "aligned": False},
)  # fmt: skip
# 2 to 800 bytes of a row; 400 bytes begin anywhere.
ROWS = [(width, shape, "float32") for width in WIDTHS for shape in SHAPES]
ROWS += [(width, {}, "float16") for width in WIDTHS]


@pytest.mark.gpu
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("width", "shape", "dtype"), ROWS, ids=str)
def test_the_kernel_reads_an_address_table(width: int, shape: dict[str, Any], dtype: str) -> None:
    import cupy

    from gnnsample_lab.device import pinned
    from gnnsample_lab.features.caching.gather import ExtractKnobs, GpuExtractor, PeerTable

    n = 1000
    rng = np.random.default_rng(width)
    size = np.dtype(dtype).itemsize
    feat = rng.integers(0, 256, (n, width * size), dtype=np.uint8).view(dtype)
    graph = lab.Graph.from_edges([0], [1], n)
    partition = lab.distributed.partition(graph, 2, "random", tolerance=2, use_cache=False)
    placed = place_rows("partitioned", rng.random(n), 300, partition)
    caches = [cupy.asarray(feat[ids]) for ids in placed.cached]
    cold = pinned.empty(len(placed.cold) * width * size).view(dtype).reshape(-1, width)
    cold[:] = feat[placed.cold]
    bases = cupy.asarray(np.array([c.data.ptr for c in caches], np.uint64))
    extractor = GpuExtractor(width * size, ExtractKnobs(**shape))
    table = PeerTable(bases, placed.shift, 256, pinned.device_address(cold), width * size)
    for ids in (rng.integers(0, n, 5000), np.arange(n), placed.cold, placed.cached[1], rng.integers(0, n, 1)):
        places = cupy.asarray(placed.place_of[ids])
        order = extractor.order_placed(places, len(cold))
        for parts in ("one launch", "two"):
            out = cupy.zeros((ids.size, width), dtype)
            if parts == "two":
                extractor.extract_placed(places, table, out, order, hot=False)
                is_cold = placed.place_of[ids] < 0
                assert not out.get()[~is_cold].view(np.uint8).any()
                assert (out.get()[is_cold].view(np.uint8) == feat[ids[is_cold]].view(np.uint8)).all()
                extractor.extract_placed(places, table, out, order)
            else:
                extractor.extract_placed(places, table, out)
            assert (out.get().view(np.uint8) == feat[ids].view(np.uint8)).all()
        taken = np.sort(order.work[-ids.size :].get())
        assert (taken == np.arange(ids.size)).all()


def extract_on_gpus(rank: Any, folder: Path) -> Any:
    """Every case: rows and traffic of every call, from host and device ids, with marks and without."""
    import cupy

    found = {}
    for kind, transport, positions in CASES:
        for name, ratio in SIZES.items():
            cache = lab.distributed.FeatureCache(
                folder, ratio=ratio, rank=rank, kind=kind, transport=transport, positions=positions
            )
            calls = []
            for number, ids in enumerate(asked(rank.index)):
                given = cupy.asarray(ids.astype([np.int32, np.int64][number % 2])) if number != 3 else ids
                marks = cache.mark(given) if number % 2 else None
                x, stats = cache.extract(given, marks)
                x = x.get()
                calls.append((x, told(stats.traffic), (stats.hits, stats.misses, stats.local)))
                assert stats.time_us >= 0
            rows, index, _ = cache.extract_arrived(asked(rank.index)[0])
            rows = rows if index is None else rows[index]
            merged, _ = cache.extract_many(asked(rank.index)[:4])
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                ids = torch.as_tensor(asked(rank.index)[4].copy(), device=rank.device)
                other = torch.from_dlpack(cache.extract(ids)[0]).clone()
            stream.synchronize()
            found[kind, transport, positions, name] = (
                cache.cached_ids, calls, rows.get(), [x.get() for x in merged], other.cpu().numpy(),
            )  # fmt: skip
            cache.close()
    return found


def check_on_gpus(warm: Any, graph: lab.Graph, folder: Path, world: int) -> None:
    ranks = warm.run(extract_on_gpus, folder, world=world)
    partition = lab.distributed.open_partition(folder)
    row_bytes, bits = graph.feat.strides[0], graph.feat.view(np.uint8)
    for case in CASES:
        for name, ratio in SIZES.items():
            caches = cached_by(graph, case[0], ratio, partition.owner, world)
            for rank, found in enumerate(ranks):
                cached, calls, rows, merged, other = found[(*case, name)]
                assert cached.tolist() == caches[rank]
                traffic = expected_traffic(
                    rank, case, caches, partition.owner.tolist(), partition.old_of.tolist(), row_bytes, world
                )
                for ids, (x, moved, counts), expected in zip(asked(rank), calls, traffic):
                    assert (x.view(np.uint8) == bits[ids]).all(), (case, name, rank)
                    assert moved == {**expected, "label": ""}, (case, name, rank)
                    assert sum(counts[:2]) == len(ids)
                assert (rows.view(np.uint8) == bits[asked(rank)[0]]).all()
                for ids, x in zip(asked(rank), merged):
                    assert (x.view(np.uint8) == bits[ids]).all()
                assert (other.view(np.uint8) == bits[asked(rank)[4]]).all()


@pytest.mark.gpu
@pytest.mark.timeout(60)
def test_ranks_on_one_gpu(tmp_path: Path, gpu_world: Any) -> None:
    check_on_gpus(gpu_world, featured(), saved(featured(), 1, tmp_path), 1)


@pytest.mark.gpu
@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_are_written_where_they_are_wanted(case: tuple[str, str, str], tmp_path: Path) -> None:
    import cupy

    from gnnsample_lab.distributed.ranks.alone import Alone

    graph, (kind, transport, positions) = featured(), case
    cache = lab.distributed.FeatureCache(
        saved(graph, 1, tmp_path),
        ratio=0.12,
        rank=Alone("cuda"),
        kind=kind,
        transport=transport,
        positions=positions,
    )
    for ids in asked(0):
        out = cupy.zeros((len(ids), graph.feat.shape[1]), np.float32)
        x, _ = cache.extract(ids, out=out)
        assert x is out
        assert (out.get().view(np.uint8) == graph.feat.view(np.uint8)[ids]).all()
    cache.close()


@pytest.mark.gpu
@pytest.mark.timeout(60)
@pytest.mark.parametrize("width", [5, 100, 128])
def test_ranks_on_two_gpus(width: int, tmp_path: Path, gpu_ranks: Any) -> None:
    check_on_gpus(gpu_ranks, featured(width), saved(featured(width), 2, tmp_path), 2)


@pytest.mark.gpu
@pytest.mark.timeout(60)
def test_rates_can_be_measured_on_two_gpus(two_gpus: None) -> None:
    from gnnsample_lab.bench.suites.dsp.features import measure

    check_records(measure(2, "cuda", widths=(128,), vertices=1 << 14, rows=10_000))


def check_records(records: list[dict[str, Any]]) -> None:
    whats = {(r["what"], r["transport"]) for r in records}
    assert {
        ("peer copy", "kernel"),
        ("remote", "direct"),
        ("any", "all-to-all"),
        ("hot and cold", "direct"),
    } <= whats
    assert all(r["us"] > 0 and r["gbps"] > 0 and r["of_copy"] > 0 for r in records)


def share_memory(rank: Any) -> Any:
    from gnnsample_lab.distributed.sampling.exchange import Exchange
    from gnnsample_lab.distributed.shared_memory import shared_memory

    everyone = list(range(rank.world_size))
    memory = shared_memory(Exchange(rank, rank.group, everyone, np.zeros(rank.world_size)), 1000)
    assert memory is not None, "this system gives processes no memory without a name"
    rank.barrier()
    assert not memory.any()
    rank.barrier()
    memory[rank.index] = rank.index + 1
    rank.barrier()
    found = memory[: rank.world_size + 1].tolist()
    rank.barrier()
    return found


def test_cold_rows_are_in_memory_of_all_ranks(four_ranks: Any) -> None:
    assert four_ranks.run(share_memory, world=3) == [[1, 2, 3, 0]] * 3
