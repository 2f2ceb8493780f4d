"""Cases of kernels for graphs in parts, of a rank alone: what it would ask others it asks itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab.bench.configurations import test_graph
from gnnsample_lab.device.arrays import offsets_of
from gnnsample_lab.distributed.sampling.capacities import WARM_UP
from gnnsample_lab.sampling.weights import integer_weights

from .inputs import Pair, one_part, small_graph, there


def parts(device: str) -> Iterator[Pair]:
    """Lists of a graph in parts, read where they lie by a rank alone: every method, layers and walks."""
    yield from _drawn_by_one(device, ("uva", "direct", "direct-cached"))
    yield from _copied_lists(device)
    yield from _applications(device, "direct", [lab.apps.PPR(0.1, weighted) for weighted in (False, True)])


def _applications(device: str, method: str, walks: Sequence[Any]) -> Iterator[Pair]:
    """Walks, and layers of all three rules."""
    whole, seeds = test_graph("hubs"), np.arange(50)
    with one_part(device) as options:
        for app in walks:
            one = lab.run_app(whole, app, seeds, device="cpu", seed=5, first_sample=3)
            walker = lab.distributed.Walker(app=app, method=method, **options)
            yield f"walks by {method}, {app!r}", np.stack(one.steps, 1), walker.walk(seeds, 3).collect()
            walker.close()
        for weighted, replace in ((False, True), (False, False), (True, False)):
            layer = lab.apps.Layer(1500, 600, weighted, replace)
            one = lab.run_app(whole, layer, seeds[None], device="cpu", seed=5, first_sample=3)
            sampler = lab.distributed.LayerSampler(
                final_size=1500, step_size=600, weighted=weighted, replace=replace, method=method, **options
            )
            for step, found in zip(one.steps, sampler.sample(seeds, 3).layers, strict=True):
                what = f"layer by {method}, weighted {weighted}, replace {replace}"
                yield what, step[0][step[0] >= 0], found.vertices
            sampler.close()


def exchanges(device: str) -> Iterator[Pair]:
    """Collective sampling by a rank alone, who asks and answers itself."""
    yield from _drawn_by_one(device, ("pull", "csp", "csp-async"))
    yield from _drawn_by_one(device, ("pull", "csp"), (-1, 3))  # replies of any length
    yield from _lists_that_leave(device)


def _lists_that_leave(device: str) -> Iterator[Pair]:
    """What ``pull`` sends to another rank, whole lists and their weights: a rank alone asks for none."""
    whole = test_graph("hubs")
    asked = np.random.default_rng(7).permutation(whole.num_nodes)[:300]
    ends = np.cumsum(np.diff(whole.indptr)[asked])
    amounts = np.diff(integer_weights(whole.indptr, whole.edge_weight).prefix)
    places = np.concatenate([np.arange(*whole.indptr[v : v + 2]) for v in asked])
    wanted = {"ends": ends[-1:], "lists": whole.indices[places], "weights": amounts[places]}
    found: dict[str, Any] = wanted
    if device != "cpu":
        with one_part(device) as given:
            sampler = lab.distributed.Sampler(fanouts=[3], method="pull", weighted=True, **given)
            sampler.sample(asked[:9])
            found = _lent(sampler._engine._steps.__self__, asked)  # type: ignore[union-attr]
            sampler.close()
    for what, array in wanted.items():
        yield f"lists that leave, {what}", array, found[what]


def _lent(pull: Any, asked: np.ndarray) -> dict[str, Any]:
    """Steps of a hop between the exchanges, with requests of another rank and none of this one."""
    core, n = pull.core, asked.size
    ids = core.requests.room(n).array
    ids[:n] = there(asked.astype(ids.dtype), "cuda")
    pull._measure(core.ws, n, 0, [0])
    pull.offsets.room(n + 1)
    ends, _ = pull._add_up(pull.lengths.ptr, 4, n, pull.offsets.ptr, [n], [n])
    for held in (pull.lists, pull.amounts):
        held.room(ends[-1])
    pull._copy(core.ws, n, ends[-1])
    return {
        "ends": np.array(ends), "lists": pull.lists.array[: ends[-1]].copy(),
        "weights": pull.amounts.array[: ends[-1]].copy(),
    }  # fmt: skip


def captured_exchanges(device: str) -> Iterator[Pair]:
    """The same as one CUDA graph, once the capacities of messages are known."""
    yield from _drawn_by_one(device, ("csp-fixed",))


def _drawn_by_one(device: str, methods: Sequence[str], fanouts: Sequence[int] = (5, 4)) -> Iterator[Pair]:
    whole, seeds = test_graph("hubs"), np.arange(50)
    with one_part(device) as given:
        for weighted, replace in ((False, False), (True, False), (True, True)):
            options = {"weighted": weighted, "replace": replace, "seed": 5}
            sample = lab.NeighborSampler(whole, fanouts, device="cpu", **options).sample(seeds, 3)
            wanted = lab.distributed.edges_of(sample, whole.indptr)
            for method in methods:
                sampler = lab.distributed.Sampler(
                    fanouts=fanouts, method=method, scratch_bytes=1 << 24, cache_bytes=4096, **options | given
                )
                for i in range(WARM_UP if method == "csp-fixed" else 0):
                    sampler.sample(seeds, 100 + i)
                found = lab.distributed.edges_of(sampler.sample(seeds, 3))
                for hop, (there, here) in enumerate(zip(wanted, found, strict=True)):
                    yield f"{method}, weighted {weighted}, replace {replace}, hop {hop}", there, here
                sampler.close()


def walkers(device: str) -> Iterator[Pair]:
    """Walks and layers by exchanges: each vertex goes to its owner, who draws."""
    apps = (lab.apps.PPR(0.1, True), lab.apps.PPR(0.1, False), lab.apps.PinSAGEWalk(2, 4, 0.5))
    yield from _applications(device, "csp", apps)


def cached_rows(device: str) -> Iterator[Pair]:
    """Feature rows of a rank alone by every transport, and positions of rows that several hosts keep."""
    graph = small_graph(features=20)
    rng = np.random.default_rng(3)
    batches = [
        rng.integers(0, graph.num_nodes, n).astype(t)
        for n, t in ((300, np.int32), (1, np.int64), (900, np.int64))
    ]
    ways = (
        ("partitioned", "direct", "everywhere"), ("partitioned", "direct", "owner"),
        ("partitioned", "all-to-all", "owner"), ("partitioned", "all-to-all-unordered", "everywhere"),
        ("replicated", "auto", "everywhere"),
    )  # fmt: skip
    with one_part(device, graph) as given:
        for kind, transport, positions in ways:
            cache = lab.distributed.FeatureCache(
                given["source"], ratio=0.3, rank=given["rank"], kind=kind, transport=transport, positions=positions
            )  # fmt: skip
            for ids in batches:
                found, _ = cache.extract(there(ids, device))
                yield f"rows of a rank, {kind}, {transport}, {positions}", graph.feat[ids], found
            cache.close()
    for what, wanted, got in _homes(device):
        yield f"rows of several hosts, {what}", wanted, got
    places = np.random.default_rng(5).integers(-99, 99, 700).astype(np.int32)
    asked = np.random.default_rng(6).integers(0, 700, 500).astype(np.int32)
    yield "positions that peers ask for", places[asked], _looked_up(places, asked, device)
    many = np.arange(4 * 1111, dtype=np.uint32)
    yield "a copy of a peer's memory", many, _copied(many, device)


def _homes(device: str) -> Iterator[Pair]:
    """Positions as one of three hosts sees them, from positions that all hosts share."""
    rng, shift, away, here, bounds = np.random.default_rng(4), 10, 2, 1, np.array([0, 40, 90, 100])
    narrow, hosts = shift - 1, len(bounds) - 1
    hot = rng.integers(0, 2, 500) << shift | rng.integers(0, 1 << narrow, 500)
    cold = rng.integers(0, 100, 500)
    is_hot = rng.random(500) < 0.5
    given = np.where(is_hot, hot, -1 - cold).astype(np.int32)
    home = np.searchsorted(bounds, cold, side="right") - 1
    is_away = ~is_hot & (home != here)
    places = np.where(is_hot, hot >> shift << narrow | hot & ((1 << shift) - 1), bounds[here] - 1 - cold)
    wanted = {
        "places": np.where(is_away, away << narrow, places).astype(np.int32),
        "which": np.where(is_away, home, hosts).astype(np.int32),
        "row": np.where(is_away, cold, -7).astype(np.int32),
    }
    found: dict[str, Any] = wanted
    if device != "cpu":
        from gnnsample_lab.distributed.features import gpu

        arrays = (
            there(given, device),
            there(bounds, device),
            *(there(np.full(500, -7, np.int32), device) for _ in "ab"),
        )
        found = dict(zip(wanted, (arrays[0], *arrays[2:]), strict=True))
        gpu.launch(
            "homes", 500,
            (arrays[0], np.uint64(500), np.uint32(shift), np.uint32(narrow), np.int32(away), arrays[1], np.int32(hosts),
             np.int32(here), *arrays[2:]),
        )  # fmt: skip
    for name, array in wanted.items():
        yield name, array, found[name]


def _looked_up(places: np.ndarray, rows: np.ndarray, device: str) -> Any:
    if device == "cpu":
        return places[rows]
    import cupy

    from gnnsample_lab.distributed.features import gpu

    found = cupy.zeros(rows.size, np.int32)
    gpu.launch(
        "look_up", rows.size, (there(places, device), there(rows, device), np.uint64(rows.size), found)
    )
    return found


def _copied(array: np.ndarray, device: str) -> Any:
    if device == "cpu":
        return array.copy()
    import cupy

    from gnnsample_lab.distributed.features import gpu

    source, target = cupy.asarray(array), cupy.zeros(array.size, array.dtype)
    gpu.launch("copy", array.nbytes // 16, (source, np.uint64(array.nbytes // 16), target))
    return target


def _copied_lists(device: str) -> Iterator[Pair]:
    """Hot lists that are copied from where they lie, in either width of an entry, empty ones among them."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(0, 70, 40) * (rng.random(40) < 0.8)
    begins, starts = offsets_of(lengths), rng.integers(0, 900, 40)
    for dtype in (np.dtype(np.int32), np.dtype(np.uint64)):
        held = rng.integers(0, 1 << 30, 1000).astype(dtype)
        wanted = np.concatenate([held[s : s + n] for s, n in zip(starts, lengths, strict=True)])
        found: Any = wanted
        if device != "cpu":
            from gnnsample_lab.distributed.sampling.gpu.lists import copied_words

            source = there(held, device)
            addresses = (source.data.ptr + starts * dtype.itemsize).astype(np.uint64)
            found = copied_words(addresses, begins, dtype)
        yield f"lists copied as {dtype}", wanted, found


CASES: tuple[Callable[[str], Iterator[Pair]], ...] = (
    parts, exchanges, captured_exchanges, walkers, cached_rows,
)  # fmt: skip
