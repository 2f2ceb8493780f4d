"""Blocks at fixed sizes: what a captured step reads is the mini-batch, however its blocks came."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.compute.padding import PaddedBatch, Sizes
from gnnsample_lab.device.arrays import to_host

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def on_a_gpu_or_the_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where a host stands for the GPU, PyTorch's "cuda" is its memory."""
    if not torch.cuda.is_available():

        def at_home(make: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, device=None, **more: make(*args, **more)

        for name in ("zeros", "empty"):
            monkeypatch.setattr(torch, name, at_home(getattr(torch, name)))
    yield


@pytest.fixture(scope="module")
def graph() -> Any:
    rng = np.random.default_rng(0)
    return lab.Graph.from_edges(rng.integers(0, 600, 4000), rng.integers(0, 600, 4000), 600)


def labels(*shape: int) -> Any:
    made = torch.from_numpy(np.random.default_rng(1).integers(0, 7, shape))
    return made.cuda() if torch.cuda.is_available() else made


def with_arrays(block: Any) -> Any:
    """The block with arrays of its own, as those have that lie in no arena."""
    return lab.Block(block.src, block.dst, block.indptr.copy(), block.indices.copy(), None, block.weight)


def check(padded: PaddedBatch, blocks: Any, seeds: np.ndarray, label: Any) -> None:
    sizes = Sizes.of(blocks)
    counts = zip(sizes.nodes[1:], sizes.edges, strict=True)
    for block, made, (rows, edges) in zip(blocks, padded.blocks(), counts, strict=True):
        indptr, indices = to_host(made.indptr), to_host(made.indices)
        np.testing.assert_array_equal(indptr[: rows + 1], to_host(block.indptr))
        assert (indptr[rows:] == edges).all() and len(indptr) == len(made.dst) + 1 > rows
        np.testing.assert_array_equal(indices[:edges], to_host(block.indices))
        if block.weight is not None:
            np.testing.assert_array_equal(to_host(made.weight)[:edges], to_host(block.weight))
    target, n = to_host(padded.target), sizes.nodes[-1]
    np.testing.assert_array_equal(target[:n], to_host(label)[seeds])
    assert (target[n:] == -1).all() and (to_host(padded.is_seed) == (np.arange(len(target)) < n)).all()
    np.testing.assert_array_equal(to_host(padded.counts), sizes.nodes)


@pytest.mark.parametrize("expand", ["frontier", "new"])
@pytest.mark.parametrize("columns", [(), (3,)], ids=["one label", "three"])
def test_what_a_step_reads_is_the_mini_batch(graph: Any, expand: str, columns: tuple[int, ...]) -> None:
    sampler = lab.NeighborSampler(graph, (4, 3, 2), expand=expand, strategy="captured", device="cuda")
    label, x = labels(600, *columns), np.random.default_rng(2).random((600, 5), np.float32)
    few, many = np.arange(20, 29), np.arange(100, 140)
    sampler.sample(many)  # from now on arrays lie in arenas, which are sized by mini-batches before
    padded = None
    for i, seeds in enumerate((many, few, many)):
        batch = sampler.sample(seeds, i)
        blocks, sizes = batch.blocks, Sizes.of(batch.blocks)
        if padded is None:
            padded = PaddedBatch(sizes.with_room(), False, torch.zeros(1, 5, device="cuda"), label)
        assert sizes.fits(padded.room)
        for given in (blocks, [with_arrays(block) for block in blocks]):
            rows = torch.from_numpy(x[to_host(batch.node_ids)])
            padded.fill(given, sizes, batch.seeds, rows.cuda() if torch.cuda.is_available() else rows)
            check(padded, blocks, seeds, label)
            np.testing.assert_array_equal(to_host(padded.x)[: sizes.nodes[0]], x[to_host(batch.node_ids)])
    assert {block.addresses is None for block in blocks} == {False}
    copies = [dataclasses.replace(block, weight=None) for block in blocks]
    assert {block.addresses for block in copies} == {None} and Sizes.of(copies) == sizes
    assert repr(copies[0]) == repr(blocks[0])
    padded.fill(copies, sizes, batch.seeds)
    check(padded, blocks, seeds, label)


def test_weights_of_walks_come_along(graph: Any) -> None:
    sampler = lab.PinSAGESampler(graph, num_layers=2, device="cuda")
    batch = sampler.sample(np.arange(30))
    blocks, sizes = batch.blocks, Sizes.of(batch.blocks)
    label = labels(600)
    padded = PaddedBatch(sizes.with_room(), True, torch.zeros(1, 5, device="cuda"), label)
    padded.fill(blocks, sizes, batch.seeds)
    check(padded, blocks, np.arange(30), label)


def test_what_does_not_fit_is_refused(graph: Any) -> None:
    sampler = lab.NeighborSampler(graph, (4, 3), strategy="captured", device="cuda")
    few, many = (sampler.sample(np.arange(n)) for n in (4, 300))
    room = Sizes.of(few.blocks).with_room()
    padded = PaddedBatch(room, False, torch.zeros(1, 5, device="cuda"), labels(600))
    with pytest.raises(ValueError, match="blocks must fit"):
        padded.fill(many.blocks, Sizes.of(many.blocks), many.seeds)


def test_edges_with_weights_need_memory_for_them_and_others_none(graph: Any) -> None:
    """Else a step would read the weights of the mini-batch before."""
    walks = lab.PinSAGESampler(graph, num_layers=2, device="cuda").sample(np.arange(30))
    plain = lab.NeighborSampler(graph, (4, 3), device="cuda").sample(np.arange(30))
    for first, second in ((walks, plain), (plain, walks)):
        ready, other = Sizes.of(first.blocks), Sizes.of(second.blocks)
        room = other.with_room(ready.with_room())
        weighted = first.blocks[0].weight is not None
        padded = PaddedBatch(room, weighted, torch.zeros(1, 5, device="cuda"), labels(600))
        padded.fill(first.blocks, ready, first.seeds)
        assert padded.takes(first.blocks) and not padded.takes(second.blocks)
        with pytest.raises(ValueError, match="weights"):
            padded.fill(second.blocks, other, second.seeds)
