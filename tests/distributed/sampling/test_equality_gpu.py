"""On 1, 2 and 4 GPUs: every method, each kind of draw, layers and walks are what one draws from the whole graph.

The same graph, parts, seeds and checks as of CPU ranks in ``test_ladder.py``. Worlds of more ranks than there are GPUs
are skipped, so that one call on four GPUs runs everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.sampling.capacities import WARM_UP
from gnnsample_lab.distributed.sampling.exchange import Exchange
from tests.conftest import num_gpus
from tests.distributed.sampling.test_ladder import (
    BATCH,
    KINDS,
    METHODS,
    SEEDS,
    N,
    check_layers_and_walks,
    check_union,
    hubs_and_dead_ends,
    layers_and_walks,
    reference,
    saved_parts,
    shortened,
)
from tests.distributed.sampling.test_reads import drawn_by_rank

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

WORLDS = [
    (1, "random", "equal"), (2, "random", "equal"), (2, "metis", "owner"), (4, "random", "owner"),
    (4, "metis", "equal"),
]  # fmt: skip
"""Ranks, parts, and how seeds are sliced."""
UNBOUNDED = ("all", "all-weighted")
"""Lists of any length, for which messages of a fixed size do not exist."""


@pytest.fixture(scope="module")
def gpus() -> Iterator[Any]:
    """Warm ranks on as many GPUs as there are of 1, 2 and 4."""
    most = max(n for n in (1, 2, 4) if n <= max(1, num_gpus()))
    with lab.distributed.Ranks(most, device="cuda", timeout_s=100, collective_timeout_s=60) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return hubs_and_dead_ends()


@pytest.fixture(scope="module")
def folders(graph: lab.Graph, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Path]:
    return saved_parts(graph, tmp_path_factory)


def enough(world: int) -> None:
    if num_gpus() < world:
        pytest.skip(f"needs {world} GPUs, here are {num_gpus()}")


def sample_all(rank: Any, folder: Path, method: str, by: str) -> Any:
    """Every kind of draw with one method on one rank: its slices."""
    found: dict[Any, Any] = {}
    for name, options in KINDS.items():
        if method == "csp-fixed" and name in UNBOUNDED:
            continue
        given = dict(options)
        sampler = lab.distributed.Sampler(
            folder, given.pop("fanouts"), method, rank=rank, seed=5, cache_bytes=200, **given
        )
        if method == "csp-fixed":  # sizes of the messages are fixed then
            for i in range(WARM_UP):
                sampler.sample(sampler.slice(SEEDS["mixed"], by), 1000 + i)
        for seeds_name, seeds in SEEDS.items():
            mine = sampler.slice(seeds, by)
            found[name, seeds_name] = shortened(sampler.sample(mine, BATCH))
        together = sampler.sample_many([sampler.slice(seeds, by) for seeds in SEEDS.values()], BATCH)
        found[name, "many"] = [shortened(batch) for batch in together]
        sampler.close()
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("world", "how", "by"), WORLDS)
def test_all_methods_draw_the_sample_of_one(
    gpus: Any, graph: lab.Graph, folders: dict[Any, Path], world: int, how: str, by: str, method: str
) -> None:
    enough(world)
    every = gpus.run(sample_all, folders[world, how], method, by, world=world)
    checked = 0
    for name, options in KINDS.items():
        if (name, "many") not in every[0]:
            assert method == "csp-fixed" and name in UNBOUNDED
            continue
        for i, (seeds_name, seeds) in enumerate(SEEDS.items()):
            slices = [found[name, seeds_name] for found in every]
            check_union(slices, reference(graph, seeds, options))
            given = np.concatenate([s["given"] for s in slices])
            assert sorted(given.tolist()) == sorted(seeds.tolist())
            check_union(
                [found[name, "many"][i] for found in every], reference(graph, seeds, options, BATCH + i)
            )
            checked += 1
    assert checked == len(SEEDS) * (len(KINDS) - 2 * (method == "csp-fixed"))


@pytest.mark.parametrize("method", ["csp", "direct"])
@pytest.mark.parametrize(("world", "how", "by"), WORLDS)
def test_layers_and_walks_are_those_of_one(
    gpus: Any, graph: lab.Graph, folders: dict[Any, Path], world: int, how: str, by: str, method: str
) -> None:
    enough(world)
    check_layers_and_walks(gpus.run(layers_and_walks, folders[world, how], by, method, world=world), graph)


def by_torch(rank: Any, folder: Path, by: str) -> Any:
    """Layers and walks whose messages and sizes torch's collectives carry, as between hosts."""
    patch = pytest.MonkeyPatch()
    patch.setattr(Exchange, "connect", lambda exchange: None)
    try:
        return layers_and_walks(rank, folder, by)
    finally:
        patch.undo()


@pytest.mark.parametrize(("world", "how", "by"), WORLDS[1:3])
def test_torch_carries_layers_and_walks(
    gpus: Any, graph: lab.Graph, folders: dict[Any, Path], world: int, how: str, by: str
) -> None:
    enough(world)
    check_layers_and_walks(gpus.run(by_torch, folders[world, how], by, world=world), graph)


def large_steps(rank: Any, folder: Path) -> Any:
    """Walks and layers of more threads than a grid has at first, and walks that go on for several launches."""
    found: dict[str, Any] = {}
    for method in ("csp", "direct"):
        walker = lab.distributed.Walker(folder, lab.apps.PPR(0.001), rank=rank, seed=5, method=method)
        roots = np.arange(20_000) % N
        paths = walker.walk(roots, 2**33, "owner").collect()
        layer = lab.distributed.LayerSampler(
            folder, 9000, 4000, rank=rank, seed=5, weighted=True, method=method
        )
        drawn = layer.sample(roots[:700], 3).layers
        found[method] = (
            paths.get(), [[a.get() for a in (s.slots, s.vertices, s.transits)] for s in drawn]
        )  # fmt: skip
        walker.close()
        layer.close()
    return found


@pytest.mark.parametrize("world", [1, 2, 4])
def test_both_methods_walk_far(gpus: Any, folders: dict[Any, Path], world: int) -> None:
    enough(world)
    for found in gpus.run(large_steps, folders[world, "random"], world=world):
        (paths, drawn), (expected_paths, expected) = found["direct"], found["csp"]
        assert paths.shape[1] > 64 and (paths == expected_paths).all()
        assert len(drawn) == len(expected) > 1
        for mine, theirs in zip(drawn, expected, strict=True):
            assert all((a == b).all() and a.shape == b.shape for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("world", [2, 4])
def test_reads_of_gpus_are_those_that_ranks_of_the_host_count(
    gpus: Any, four_ranks: Any, folders: dict[Any, Path], world: int
) -> None:
    enough(world)
    asked = {"count_reads": True}
    expected, found = (
        ranks.run(drawn_by_rank, folders[world, "random"], asked, world=world) for ranks in (four_ranks, gpus)
    )
    for theirs, ours in zip(expected, found, strict=True):
        for key in theirs:
            one, other = theirs[key][-1], ours[key][-1]
            assert one.by_kind == other.by_kind and one.by_peer.tolist() == other.by_peer.tolist(), key
            assert (one.ideal, one.ideal_remote) == (other.ideal, other.ideal_remote) and other.label == ""


@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_closed_walker_says_so(gpus: Any, folders: dict[Any, Path], world: int) -> None:
    enough(world)
    assert gpus.run(closed, folders[world, "random"], world=world) == [True] * world


def closed(rank: Any, folder: Path) -> bool:
    walker = lab.distributed.Walker(folder, lab.apps.DeepWalk(3), rank=rank, method="direct")
    walker.close()
    walker.close()
    with pytest.raises(RuntimeError, match="closed"):
        walker.walk([1, 2])
    return True
