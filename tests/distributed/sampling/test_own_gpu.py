"""Walks and layers by exchanges on a GPU: each kernel beside the host's, and ranks of one process, one at a time.

Ranks of one process exchange by copies; :class:`Exchange` counts and moves arrays as between processes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.distributed.parts.part import part_of
from gnnsample_lab.distributed.sampling import layer as layer_module
from gnnsample_lab.distributed.sampling import walker as walker_module
from gnnsample_lab.distributed.sampling.exchange import Exchange
from gnnsample_lab.distributed.sampling.gpu import own as gpu_own
from gnnsample_lab.distributed.sampling.layout import Layout
from gnnsample_lab.distributed.sampling.own import HostOwnLists, OwnLists
from gnnsample_lab.distributed.sampling.reading import WalkRule
from gnnsample_lab.distributed.sampling.words import key_of
from tests.distributed.sampling.test_ladder import (
    check_layers_and_walks,
    hubs_and_dead_ends,
    layers_and_walks,
)
from tests.minibatch.conftest import with_wide_ids

pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]
KEY = key_of(2**63 + 5)
SIZES = (0, 1, 33, 100_000)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of one process have one stream and take turns by themselves."""
    monkeypatch.setattr(gpu_own, "one_stream", contextlib.nullcontext)
    monkeypatch.setattr(runtime, "lock", contextlib.nullcontext())


class World:
    """Ranks as threads, of which one runs at a time: they change where they meet."""

    def __init__(self, size: int) -> None:
        self.size, self._table = size, [None] * size
        self._turn, self._barrier = threading.Lock(), threading.Barrier(size, timeout=60)

    def meet(self, index: int, given: Any) -> list[Any]:
        """What each rank gives."""
        self._table[index] = given
        self._wait()
        found = list(self._table)
        self._wait()
        return found

    def _wait(self) -> None:
        self._turn.release()
        try:
            self._barrier.wait()
        finally:
            self._turn.acquire()

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        found: list[Any] = [None] * self.size
        failed: list[BaseException] = []

        def one(index: int) -> None:
            with self._turn:
                try:
                    found[index] = work(index)
                except BaseException as error:
                    failed.append(error)
                    self._barrier.abort()

        threads = [threading.Thread(target=one, args=(index,)) for index in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return found


class Together(Exchange):
    """Collectives of a :class:`World`, by torch's tensors or by addresses and numbers between hosts' threads."""

    def __init__(self, world: World, index: int, quick: bool) -> None:
        rank: Any = SimpleNamespace(index=index, backend="gloo")
        super().__init__(rank, None, range(world.size), [0] * world.size)
        self._world, self._quick, self._told = world, quick, []  # type: ignore[var-annotated]

    def connect(self) -> None:
        if self._quick and self.size > 1:
            self.nccl = self.mailbox = self  # type: ignore[assignment]

    def all_to_all_tensors(self, kind: str | None, out: Any, given: Any, receive: Any, send: Any) -> None:
        every = self._world.meet(self.index, (given, np.cumsum([0, *send])))
        ends = np.cumsum(receive)
        for p, (theirs, begins) in enumerate(every):
            out[ends[p] - receive[p] : ends[p]] = theirs[begins[self.index] : begins[self.index + 1]]
        width = given.element_size()
        self._count(str(kind), np.asarray(send) * width, np.asarray(receive) * width)

    def _reduced(self, kind: str, values: np.ndarray, how: str) -> np.ndarray:
        every = np.stack(self._world.meet(self.index, np.array(values, dtype=np.int64)))
        nbytes = np.full(self.size, every[0].nbytes)
        if self.size > 1:
            self._count(kind, nbytes, nbytes)
        return np.asarray(every.max(0) if how == "MAX" else every.sum(0))

    def post_messages(self, sends: Any, receives: Any, stream: int) -> None:
        import cupy

        every = self._world.meet(self.index, sends)
        for p, address, nbytes in receives:
            (source,) = [(at, n) for to, at, n in every[p] if to == self.index]
            assert source[1] == nbytes > 0
            cupy.cuda.runtime.memcpyAsync(address, source[0], nbytes, 3, stream)
        self._world.meet(self.index, None)  # what is sent is there until all have it

    def tell(self, numbers: Any) -> None:
        self._told = self._world.meet(self.index, list(numbers))

    def hear(self, source: int) -> int:
        return int(self._told[source][self.index])


def layouts(graph: lab.Graph, parts: int, device: str, quick: bool = False) -> tuple[World, list[Layout]]:
    """Each rank's share of a graph in parts."""
    partition = lab.distributed.partition(graph, parts, "random", tolerance=parts, use_cache=False)
    world, made = World(parts), []
    for index in range(parts):
        layout: Any = Layout.__new__(Layout)
        layout.rank = SimpleNamespace(index=index, world_size=parts, device=device)
        layout.part, layout.partition = part_of(graph, partition, index), partition
        layout.folder, layout.hosts, layout.replicated = None, np.zeros(parts, int), False
        layout.exchange = layout.world = Together(world, index, quick)
        made.append(layout)
    return world, made


# ---- kernels ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[(False, False), (True, False), (False, True), (True, True)], ids=str)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[OwnLists, OwnLists, np.ndarray, Any]]:
    """The host's and the GPU's lists of the second of three parts, its vertices, and the layout."""
    weighted, wide = request.param
    graph = hubs_and_dead_ends()
    graph = with_wide_ids(graph) if wide else graph
    _, made = layouts(graph, 3, "cuda:0")
    patch = pytest.MonkeyPatch()
    patch.setattr(gpu_own, "one_stream", contextlib.nullcontext)
    device = gpu_own.DeviceOwnLists(made[1], weighted, KEY)
    patch.undo()
    ids = graph.indices.dtype
    assert ids.itemsize == (8 if wide else 4)
    own = np.asarray(made[1].part.vertices).astype(ids)
    degrees = np.diff(graph.indptr)[own]
    assert (degrees == 0).any() and degrees.max() > 5
    yield HostOwnLists(made[1], weighted, KEY), device, own, made[1]


def same(found: Any, expected: np.ndarray) -> None:
    assert type(found).__module__.startswith("cupy")
    assert found.dtype == expected.dtype and np.array_equal(found.get(), expected)


@pytest.mark.parametrize("n", SIZES)
def test_entries_go_to_owners(both: Any, n: int) -> None:
    host, device, own, layout = both
    rng = np.random.default_rng(n)
    vertices = rng.integers(-1, layout.num_nodes, n).astype(own.dtype)
    peers = device.owners(device.xp.asarray(vertices))
    expected = host.owners(vertices)
    same(peers, expected.astype(np.int32))
    order, counts = device.by_peer(peers, 3)
    _, expected_counts = host.by_peer(expected, 3)
    assert isinstance(counts, np.ndarray) and counts.tolist() == expected_counts.tolist()
    order = order.get()
    assert np.array_equal(np.sort(order), np.arange(n))
    assert np.array_equal(expected[order], np.repeat(np.arange(4), counts))
    for given in (peers.astype(np.int64), peers[::2]):  # other integers, and gaps
        assert device.by_peer(given, 3)[1].sum() == given.size


RULES = {
    "fixed": WalkRule(1, False, -1.0, 0.0, 9, KEY), "stopped": WalkRule(1, False, 0.3, 0.0, 9, KEY),
    "restarts": WalkRule(7, False, -1.0, 0.4, 9, KEY), "often": WalkRule(3, False, 0.0, 1.0, 9, KEY),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("n", SIZES)
def test_walkers_move_and_set_out(both: Any, n: int, name: str) -> None:
    host, device, own, layout = both
    rule, xp, rng = RULES[name], device.xp, np.random.default_rng(n)
    walks = rng.permutation(n).astype(np.int32)
    roots = rng.integers(0, layout.num_nodes, -(-n // rule.per_sample)).astype(own.dtype)
    at = rng.choice(own, n)
    for first, step in ((0, 0), (2**33 + 9, 3)):
        expected = host.move(walks, at, first, step, rule)
        came = device.move(xp.asarray(walks), xp.asarray(at), first, step, rule)
        same(came, expected)
        if n > 33:
            assert 0 < (expected < 0).sum() < n
        if rule.restart > 0:
            host.set_out(walks, expected, roots, first, step + 1, rule)
            device.set_out(xp.asarray(walks), came, xp.asarray(roots), first, step + 1, rule)
            same(came, expected)


@pytest.mark.parametrize("n", SIZES)
def test_numbers_of_a_layer_fall_on_edges(both: Any, n: int) -> None:
    host, device, own, _ = both
    xp, rng = device.xp, np.random.default_rng(n)
    slots = rng.permutation(2 * n)[:n]
    for bound in (1, 1000, 3 * 2**30, 2**40 + 1):
        expected = host.draws(slots, bound, 2**32 - 1, 6, 2 * n + 1, 2)
        same(device.draws(xp.asarray(slots), bound, 2**32 - 1, 6, 2 * n + 1, 2), expected)
    vertices = rng.choice(own, n)
    totals = host.totals(vertices)
    same(device.totals(xp.asarray(vertices)), totals)
    vertices, totals = vertices[totals > 0], totals[totals > 0]
    inner = rng.integers(0, totals)
    if totals.size:
        inner[0] = totals[0] - 1
    inner = inner if totals.max(initial=0) > 10_000 else inner.astype(np.int32)
    expected = host.neighbors(vertices, inner)
    same(device.neighbors(xp.asarray(vertices), xp.asarray(inner)), expected)


# ---- ranks ------------------------------------------------------------------------------------------------------


def on_ranks(
    monkeypatch: pytest.MonkeyPatch, made: tuple[World, list[Layout]], work: Callable[[Any], Any]
) -> list[Any]:
    """``work(rank)`` on each rank."""
    world, shares = made
    for module in (walker_module, layer_module):
        monkeypatch.setattr(module, "make_layout", lambda source, rank, *args: shares[rank.index])
    return world.run(lambda index: work(shares[index].rank))


@pytest.mark.parametrize(
    ("parts", "by", "wide", "quick"),
    [
        (1, "equal", False, False),
        (2, "owner", False, True),
        (3, "equal", True, True),
        (3, "owner", False, False),
    ],
)
def test_layers_and_walks_are_those_of_one(
    monkeypatch: pytest.MonkeyPatch, parts: int, by: str, wide: bool, quick: bool
) -> None:
    graph = hubs_and_dead_ends()
    graph = with_wide_ids(graph) if wide else graph
    made = layouts(graph, parts, "cuda:0", quick)
    every = on_ranks(monkeypatch, made, lambda rank: layers_and_walks(rank, Path("nowhere"), by))
    check_layers_and_walks(every, graph)


def moved(rank: Any) -> Any:
    """What walks and layers of one rank move, and what they are."""
    roots, found = np.arange(50) % 7, []
    apps = (lab.apps.DeepWalk(5), lab.apps.PPR(0.2), lab.apps.PinSAGEWalk(2, 4, 0.5))
    for app in apps:
        walker = lab.distributed.Walker("nowhere", app, rank=rank, seed=3)
        walks = walker.walk(roots, 2**32)
        found.append(
            (walker.traffic, *map(to_host, (walks.walks, walks.steps, walks.vertices, walks.collect())))
        )
        found.append((walker.traffic,))
    for distinct in (False, True):
        layers = lab.distributed.LayerSampler(
            "nowhere", 90, 30, rank=rank, weighted=True, replace=not distinct, seed=3
        )
        batch = layers.sample(roots, 8)
        arrays = [a for part in batch.layers for a in (part.slots, part.vertices, part.transits)]
        found.append((layers.traffic, *map(to_host, arrays)))
    return found


def test_ranks_on_gpus_send_what_ranks_on_cpus_send(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = hubs_and_dead_ends()
    expected = on_ranks(monkeypatch, layouts(graph, 3, "cpu"), moved)
    for quick in (False, True):
        every = on_ranks(monkeypatch, layouts(graph, 3, "cuda:0", quick), moved)
        for rank, found in enumerate(every):
            for (traffic, *arrays), (theirs, *others) in zip(found, expected[rank], strict=True):
                for a, b in zip(arrays, others, strict=True):
                    assert a.dtype == b.dtype and np.array_equal(a, b)
                assert traffic.by_kind == theirs.by_kind and traffic.volume == theirs.volume > 0
                assert traffic.by_peer.tolist() == theirs.by_peer.tolist()
                assert traffic.collectives == theirs.collectives > 0
                assert (traffic.ideal, traffic.ideal_remote) == (theirs.ideal, theirs.ideal_remote)


def host_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes where the host waits for an array of the GPU."""
    import cupy

    noted: list[str] = []

    def note(owner: Any, name: str) -> None:
        plain = getattr(owner, name)

        def noting(*args: Any, **options: Any) -> Any:
            if name != "__getitem__" or getattr(getattr(args[1], "dtype", None), "kind", "") == "b":
                noted.append(name)
            return plain(*args, **options)

        monkeypatch.setattr(owner, name, noting)

    for name in ("get", "item", "tolist", "__int__", "__bool__", "__float__", "__getitem__", "nonzero"):
        note(cupy.ndarray, name)
    for name in ("flatnonzero", "nonzero", "bincount", "unique"):
        note(cupy, name)
    return noted


@pytest.mark.parametrize("app", [lab.apps.DeepWalk, lambda steps: lab.apps.PinSAGEWalk(2, steps, 0.3)])
def test_the_host_waits_once_a_step(monkeypatch: pytest.MonkeyPatch, app: Any) -> None:
    made = layouts(hubs_and_dead_ends(), 2, "cuda:0", quick=True)
    noted, counts = host_reads(monkeypatch), []

    def walk(rank: Any) -> None:
        for steps in (4, 11):
            walker = lab.distributed.Walker("nowhere", app(steps), rank=rank)
            if rank.index == 0:
                made[0].meet(0, None)
                noted.clear()
                made[0].meet(0, None)
            else:
                made[0].meet(1, None)
                made[0].meet(1, None)
            walker.walk(np.arange(60))
            made[0].meet(rank.index, None)
            if rank.index == 0:
                counts.append(len(noted))

    on_ranks(monkeypatch, made, walk)
    few, many = counts
    assert many - few == 2 * 7, "seven steps more on two ranks"
