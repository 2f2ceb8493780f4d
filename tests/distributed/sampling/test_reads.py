"""What walks and layers by ``direct`` read of their peers: every byte's sector, from draws by plain Python."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.distributed.ranks.run import Ranks
from gnnsample_lab.distributed.sampling import layer as layer_module
from gnnsample_lab.distributed.sampling import walker as walker_module
from gnnsample_lab.distributed.sampling.reading import lists_of
from gnnsample_lab.distributed.sampling.traffic import Traffic
from gnnsample_lab.sampling.apps.choices import TRIALS
from gnnsample_lab.sampling.weights import integer_weights
from tests.distributed.sampling.test_ladder import HUB, N, in_parts
from tests.minibatch.conftest import random_graph
from tests.sampling.engine.app_oracle import Stream

pytest.importorskip("torch")

SEED, FIRST, BATCH_ID = 5, 100, 11
ROOTS = np.concatenate([np.array([HUB, 5, HUB, 119, 60]), np.arange(0, N, 3)])
"""Among them a hub, repeated ones, and a vertex without neighbours."""
WALKS = {
    "uniform": lambda: lab.apps.DeepWalk(7, weighted=False),
    "weighted": lambda: lab.apps.DeepWalk(6),
    "stopped": lambda: lab.apps.PPR(0.2, weighted=False),
    "restarts": lambda: lab.apps.PinSAGEWalk(3, 5, 0.4),
}
LAYERS: dict[str, dict[str, Any]] = {
    "replace": {"final_size": 150, "step_size": 40},
    "distinct": {"final_size": 130, "step_size": 45, "replace": False},
    "weighted": {"final_size": 150, "step_size": 40, "weighted": True},
    "weighted distinct": {"final_size": 130, "step_size": 45, "weighted": True, "replace": False},
}


def heavy_hub() -> lab.Graph:
    """A list of 240 entries one of which outweighs all others, so that trials give up; lists whose edges have no
    weight, and empty ones."""
    base = random_graph(1, N, 500)
    dst = np.repeat(np.arange(N), np.diff(base.indptr))
    src = np.concatenate([base.indices, np.tile(np.arange(N), 2)])
    weight = np.concatenate([np.where(dst % 7 == 2, 0, base.edge_weight), np.ones(2 * N)])
    weight[-5] = 1e4
    dst = np.concatenate([dst, np.full(2 * N, HUB)])
    return lab.Graph.from_edges(src, dst, N, edge_weight=weight, name="heavy")


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return heavy_hub()


@pytest.fixture(scope="module")
def folder(graph: lab.Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = lab.distributed.partition(graph, 3, "random", tolerance=3, use_cache=False)
    return Path(lab.distributed.save_parts(graph, found, tmp_path_factory.mktemp("three")))


def drawn_by_rank(rank: Any, folder: Path, options: dict[str, Any]) -> dict[Any, Any]:
    """Of every walk and layer by ``direct`` what was drawn, and the traffic; of layers also the traffic by ``csp``."""
    found: dict[Any, Any] = {}
    for name, make in WALKS.items():
        walker = lab.distributed.Walker(folder, make(), rank=rank, seed=SEED, method="direct", **options)
        walker.walk(ROOTS[:3])  # what it read is not in the next call's
        walks = walker.walk(ROOTS, FIRST)
        found["walk", name] = walks.mine, to_host(walks.collect()), walker.traffic
        walker.close()
    for name, sizes in LAYERS.items():
        for method in ("direct", "csp"):
            given = options if method == "direct" else {}
            sampler = lab.distributed.LayerSampler(
                folder, rank=rank, seed=SEED, method=method, **sizes, **given
            )
            batch = sampler.sample(ROOTS, BATCH_ID, "owner")
            drawn = [(to_host(layer.slots), to_host(layer.vertices)) for layer in batch.layers]
            found["layer", method, name] = drawn, sampler.traffic
            sampler.close()
    return found


# ---- by plain Python --------------------------------------------------------------------------------------------


class Reader:
    """A graph in parts as one rank reads it: :meth:`row` begins what counts a sector once."""

    def __init__(self, graph: lab.Graph, partition: Any, me: int, weighted: bool) -> None:
        self.owner, self.me, self.weighted = partition.owner.tolist(), me, weighted
        self.begins = in_parts(graph, partition)
        self.lists = [graph.indices[a:b].tolist() for a, b in zip(graph.indptr, graph.indptr[1:])]
        sums = integer_weights(graph.indptr, graph.edge_weight).prefix.tolist()
        self.sums = [sums[a : b + 1] for a, b in zip(graph.indptr.tolist(), graph.indptr[1:].tolist())]
        self.bytes: dict[str, dict[int, int]] = {}
        self.row_of, self.seen, self.gave_up = -1, set[tuple[str, int]](), 0

    def row(self, v: int) -> None:
        """Look up a vertex' record: each lies in a sector by itself."""
        self.row_of, self.seen = v, set()
        self._read("records", 0, 8)

    def _read(self, kind: str, place: int, width: int) -> None:
        sector = kind, place * width // 32
        owner = self.owner[self.row_of]
        if owner != self.me and sector not in self.seen:
            self.seen.add(sector)
            by_peer = self.bytes.setdefault(kind, {})
            by_peer[owner] = by_peer.get(owner, 0) + 32

    def entry(self, i: int) -> int:
        self._read("lists", self.begins[self.row_of] + i, 4)
        return int(self.lists[self.row_of][i])

    def sum(self, i: int) -> int:
        self._read("weights", self.begins[self.row_of] + i, 8)
        return int(self.sums[self.row_of][i])

    def total(self) -> int:
        degree = len(self.lists[self.row_of])
        if not self.weighted or not degree:
            return degree
        return self.sum(degree) - self.sum(0)

    def search(self, target: int) -> int:
        base, low, high = self.sum(0), 0, len(self.lists[self.row_of])
        while high - low > 1:
            mid = (low + high) // 2
            low, high = (mid, high) if self.sum(mid) - base <= target else (low, mid)
        return low

    def edge(self, words: Stream) -> int:
        """Of a step of a walk, from the record on; -1: none."""
        degree, sums = len(self.lists[self.row_of]), self.sums[self.row_of]
        if not self.weighted or not degree:
            return words.below(degree) if degree else -1
        heaviest = max(b - a for a, b in itertools.pairwise(sums))
        if not heaviest:
            return -1
        for _ in range(TRIALS):
            e = words.below(degree)
            if words.below(heaviest) < self.sum(e + 1) - self.sum(e):
                return e
        self.gave_up += 1
        return self.search(words.below(self.total()))


def walk_by_hand(reader: Reader, app: Any, sample: int, root: int, k: int, steps: int) -> list[int]:
    path, at = list[int](), root
    for step in range(steps):
        restart = getattr(app, "restart", 0)
        if step and restart and Stream(sample, step, SEED, 1 << 31 | k).chance(restart):
            at = root
        came = -1
        if at >= 0:
            words = Stream(sample, step, SEED, k, k)
            if not (isinstance(app, lab.apps.PPR) and words.chance(app.termination)):
                reader.row(at)
                edge = reader.edge(words)
                came = reader.entry(edge) if edge >= 0 else -1
        path.append(came)
        at = came
    return path


def layers_by_hand(reader: Reader, app: Any, whose: list[int]) -> tuple[list[dict[int, int]], int, int]:
    """This rank's slots of each layer, and how many draws were from lists of its slice, and of them from others'."""
    vertices, total, found, ideal, remote = ROOTS.tolist(), ROOTS.size, list[dict[int, int]](), 0, 0
    while total < app.final_size and vertices:
        starts = [0]
        for v in vertices:
            reader.row(v)
            starts.append(starts[-1] + reader.total())
        wanted = min(app.step_size, app.final_size - total)
        drawn, transit = [-1] * wanted, [0] * wanted
        kept, missing = set[int](), list(range(wanted)) if starts[-1] else []
        for attempt in range(1 if app.replace else app.max_redraws + 1):
            again = []
            for slot in missing:
                number = Stream(BATCH_ID, len(found), SEED, slot, slot // 4, slot % 4, attempt).below(
                    starts[-1]
                )
                t = transit[slot] = next(i for i in range(len(vertices)) if number < starts[i + 1])
                reader.row(vertices[t])
                inner = number - starts[t]
                name = drawn[slot] = reader.entry(reader.search(inner) if reader.weighted else inner)
                ideal += whose[t] == reader.me
                remote += whose[t] == reader.me != reader.owner[vertices[t]]
                if name in kept and not app.replace:
                    again.append(slot)
                kept.add(name)
            missing = again
        for slot in missing if not app.replace else ():
            drawn[slot] = -1
        there = [slot for slot in range(wanted) if drawn[slot] >= 0]
        whose = [whose[transit[slot]] for slot in there]
        vertices = [drawn[slot] for slot in there]
        total += len(there)
        found.append({s: v for s, v, of in zip(there, vertices, whose) if of == reader.me})
    return found, ideal, remote


def counted(traffic: Traffic) -> dict[str, dict[int, int]]:
    """Bytes read by kind and peer; what ranks told each other apart."""
    return {
        kind: {p: int(n) for p, n in enumerate(of) if n}
        for kind, of in traffic.received.items() if of.any() and kind != "flags"
    }  # fmt: skip


def test_walks_read_what_plain_python_reads(four_ranks: Ranks, graph: lab.Graph, folder: Path) -> None:
    partition = lab.distributed.open_partition(folder)
    every, gave_up = four_ranks.run(drawn_by_rank, folder, {}, world=3), 0
    for name, make in WALKS.items():
        app = make()
        for me, found in enumerate(every):
            mine, paths, traffic = found["walk", name]
            reader = Reader(graph, partition, me, weighted=name == "weighted")
            drawn = remote = 0
            for sample, walks in zip(mine.tolist(), paths.transpose(0, 2, 1).tolist()):
                for k, path in enumerate(walks):
                    root = int(ROOTS[sample])
                    assert walk_by_hand(reader, app, FIRST + sample, root, k, len(path)) == path
                    drawn += sum(v >= 0 for v in path)
            assert counted(traffic) == reader.bytes and set(reader.bytes) >= {"records", "lists"}
            assert ("weights" in reader.bytes) == (name == "weighted")
            remote = sum(reader.bytes["lists"].values()) // 32  # an entry a step, and a sector an entry
            assert (traffic.ideal, traffic.ideal_remote) == (4 * drawn, 4 * remote)
            assert traffic.label == "CPU: no NVLink"
            requests = np.zeros(3, np.int64)
            for of in reader.bytes.values():
                for peer, n in of.items():
                    requests[peer] += n // 32
            told = name == "stopped"  # where draws end walks, ranks tell each other how far they came
            assert told or traffic.requests.tolist() == requests.tolist()
            gave_up += reader.gave_up
    assert gave_up > 0, "no list was searched: make the hub's weights more unlike"


def test_layers_read_what_plain_python_reads(four_ranks: Ranks, graph: lab.Graph, folder: Path) -> None:
    partition = lab.distributed.open_partition(folder)
    every = four_ranks.run(drawn_by_rank, folder, {}, world=3)
    for name, sizes in LAYERS.items():
        app = lab.apps.Layer(**sizes)
        for me, found in enumerate(every):
            drawn, traffic = found["layer", "direct", name]
            reader = Reader(graph, partition, me, weighted=app.weighted)
            expected, ideal, remote = layers_by_hand(reader, app, partition.owner[ROOTS].tolist())
            assert [dict(zip(slots.tolist(), there.tolist())) for slots, there in drawn] == expected
            assert counted(traffic) == reader.bytes and ("weights" in reader.bytes) == app.weighted
            assert (traffic.ideal, traffic.ideal_remote) == (4 * ideal, 4 * remote)
            by_exchanges = found["layer", "csp", name][1]
            assert (by_exchanges.ideal, by_exchanges.ideal_remote) == (traffic.ideal, traffic.ideal_remote)
            assert traffic.label == "CPU: no NVLink"


# ---- where kernels drew -----------------------------------------------------------------------------------------


class LikeKernels:
    """Lists that draw as those of the host and keep no account, as kernels do."""

    xp = np

    def __init__(self, layout: Any, weighted: bool, key: Any) -> None:
        self._layout, self._lists = layout, lists_of(layout, weighted, key)

    def __getattr__(self, name: str) -> Any:
        def quietly(*args: Any) -> Any:
            exchange = self._layout.exchange
            counting, exchange.traffic = exchange.traffic, exchange.new_traffic()
            try:
                return getattr(self._lists, name)(*args)
            finally:
                exchange.traffic = counting

        return quietly


def by_kernels(rank: Any, folder: Path) -> Any:
    """As :func:`drawn_by_rank`, of lists that are like a GPU's: counted, uncounted."""
    patch = pytest.MonkeyPatch()
    for module in (walker_module, layer_module):
        patch.setattr(module, "lists_of", LikeKernels)
    try:
        return [drawn_by_rank(rank, folder, {"count_reads": asked}) for asked in (True, False)]
    finally:
        patch.undo()


def test_what_kernels_read_is_counted_where_somebody_asks(four_ranks: Ranks, folder: Path) -> None:
    expected = four_ranks.run(drawn_by_rank, folder, {}, world=3)
    for theirs, (asked, unasked) in zip(expected, four_ranks.run(by_kernels, folder, world=3), strict=True):
        for key in [key for key in theirs if "csp" not in key]:
            one, other, without = (found[key][-1] for found in (theirs, asked, unasked))
            assert one.volume == other.volume > 0 and one.by_kind == other.by_kind
            assert one.by_peer.tolist() == other.by_peer.tolist()
            assert one.requests.tolist() == other.requests.tolist()
            assert (one.ideal, one.ideal_remote) == (other.ideal, other.ideal_remote)
            assert other.label == ""
            assert counted(without) == {} and without.ideal == 0
            assert without.label == "reads were not counted: count_reads=False"


def test_lists_of_the_host_count_once(four_ranks: Ranks, folder: Path) -> None:
    """On CPU ranks asking changes nothing."""
    plain, asked = (
        four_ranks.run(drawn_by_rank, folder, options, world=3) for options in ({}, {"count_reads": True})
    )
    for one, other in zip(plain, asked, strict=True):
        assert all(a[-1].by_kind == b[-1].by_kind for a, b in zip(one.values(), other.values(), strict=True))
