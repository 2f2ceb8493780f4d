"""Mini-batches that wait in host memory come back as they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.pipeline.parked import Parked, Parking
from gnnsample_lab.systems.table import find
from gnnsample_lab.systems.train import prepare


def graph_of(seed: int = 0, features: int = 12) -> lab.Graph:
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, 900, 9000), rng.integers(0, 900, 9000)
    return lab.Graph.from_edges(
        src, dst, 900, feat=rng.random((900, features), np.float32), label=rng.integers(0, 5, 900),
        splits={"train": np.arange(0, 900, 2)}, name="parked",
    )  # fmt: skip


def fields(batch: Any) -> list[Any]:
    found = [batch.node_ids, batch.seeds]
    for block in batch.blocks:
        found += [block.src, block.dst, block.indptr, block.indices]
        found += [] if block.weight is None else [block.weight]
    return found


@pytest.mark.parametrize("walks", [False, True])
def test_what_is_laid_out_in_bytes_is_read_again(walks: bool) -> None:
    graph = graph_of()
    if walks:
        sampler: Any = lab.PinSAGESampler(graph, num_layers=2, device="cpu")
    else:
        sampler = lab.NeighborSampler(graph, [4, 3], device="cpu")
    batch = sampler.sample([7, 3, 850, 3], 5)
    memory = np.full(Parked.bytes_of(batch) + 1000, 255, np.uint8)
    parked = Parked(batch, memory)
    again = parked.on(memory[:-1000].copy())
    assert (memory[-1000:] == 255).all()
    assert again.batch_id == 5 and again.num_edges == batch.num_edges and len(again.blocks) == 2
    for before, after in zip(fields(batch), fields(again), strict=True):
        assert before.dtype == after.dtype and np.array_equal(before, after)


def test_fastgls_windows_wait_in_host_memory_and_those_of_others_do_not() -> None:
    assert {name for name in lab.systems() if find(name).windows == "host"} == {"fastgl"}


# ---- on a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_pieces_are_used_again_and_grow() -> None:
    graph, parking = graph_of(), Parking()
    sampler = lab.NeighborSampler(graph, [4, 3], strategy="block-bsp", device="cuda")
    for size in (3, 50, 20):
        batch = sampler.sample(np.arange(size), size)
        wanted = [array.get() for array in fields(batch)]
        parked = parking.park(batch, 0)
        del batch
        for before, after in zip(wanted, fields(parked.load()), strict=True):
            assert before.dtype == after.dtype and np.array_equal(before, after.get())
    assert len(parking._pieces) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["gcn", "gat"])
@pytest.mark.parametrize("window", [1, 3, 32])
def test_training_on_parked_windows_is_training(model: str, window: int) -> None:
    """Same mini-batches in the same order, same losses, wherever a window waits."""
    graph, runs = graph_of(), {}
    for place in ("device", "host"):
        system = replace(find("fastgl"), windows=place)
        prepared = prepare(
            graph, model, system, batch_size=37, fanouts=(4, 3), window=window, cache_ratio=0.2, device="cuda"
        )
        for epoch in range(2):
            prepared.trainer.epoch(epoch)
        assert (prepared.trainer.parking is not None) == (place == "host")
        runs[place] = (prepared.trainer.batch_ids, prepared.trainer.losses)
    assert runs["host"][0] == runs["device"][0]
    assert np.allclose(runs["host"][1], runs["device"][1], rtol=2e-3, atol=1e-4)


@pytest.mark.gpu
def test_captured_steps_take_parked_mini_batches() -> None:
    losses = []
    for captured in (False, True):
        prepared = prepare(
            graph_of(), "gcn", "fastgl", batch_size=64, fanouts=(4, 3), window=4, cache_ratio=0.2, device="cuda",
            captured=captured,
        )  # fmt: skip
        for epoch in range(2):
            prepared.trainer.epoch(epoch)
        assert prepared.trainer.parking is not None and (prepared.trainer.captured is not None) == captured
        losses.append(prepared.trainer.losses)
    assert np.allclose(*losses, rtol=2e-3, atol=1e-3)


@pytest.mark.gpu
def test_other_executors_say_that_windows_stay() -> None:
    prepared = prepare(
        graph_of(),
        "gcn",
        "fastgl",
        batch_size=64,
        fanouts=(4, 3),
        cache_ratio=0.2,
        device="cuda",
        executor="streams",
    )
    assert prepared.trainer.parking is None
    assert any("wait where they were sampled" in note for note in prepared.notes)
