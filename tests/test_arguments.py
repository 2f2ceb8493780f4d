"""Every public entry refuses bad arguments by an error of ours that names the argument.

The table below has, for each public callable, working arguments and what kind each parameter is. A kind is a list of
values that are wrong for it. Each case replaces one working argument by one wrong value. Two more tests walk
``lab.__all__``: nothing public is missing in the table, and docstrings say what arguments are and what is raised.
"""

from __future__ import annotations

import inspect
import re
import tempfile
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import steps
from gnnsample_lab.device import runtime

torch = pytest.importorskip("torch")

PACKAGE = str(Path(lab.__file__).parent)
N = 40
"""Vertices of the graph that the table works on."""
TYPED = (TypeError, ValueError, LookupError, RuntimeError, OSError)


class Hostile:
    """Fails whatever it is asked for."""

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("as hostile as can be")

    __len__ = __iter__ = __getitem__ = __array__ = __index__ = __int__ = __float__ = __bool__ = __repr__ = (
        _fail
    )
    __fspath__ = _fail


@dataclass
class Made:
    """A wrong value that is made when its case runs."""

    make: Callable[[], Any]


HOSTILE, THING, HUGE = Hostile(), object(), 10**30
NAN, INF = float("nan"), float("inf")

# ---- kinds: what is wrong -------------------------------------------------------------------------------------


def integer(low: int | None = None, high: int | None = None, none: bool = False) -> list[Any]:
    wrong = ["3", b"3", 2.5, NAN, True, np.True_, [1], np.array([1, 2]), THING, HOSTILE, 1j]
    wrong += [torch.tensor(2.7), torch.tensor(True), HUGE, -HUGE]
    wrong += [] if none else [None]
    wrong += [] if low is None else [low - 1, np.int64(low - 1)]
    return wrong + ([] if high is None else [high + 1])


def number(*outside: Any, none: bool = False, infinite: bool = False) -> list[Any]:
    wrong = ["0.5", b"1", True, NAN, [0.5], np.array([0.5, 0.5]), 1j, THING, HOSTILE, torch.ones(2), 10**400]
    return [*wrong, *outside, *([] if none else [None]), *([] if infinite else [INF, -INF])]


def flag(none: bool = False) -> list[Any]:
    wrong = ["no", "False", "", b"", 0, 1, 1.0, [], [True], np.array([True, False]), THING, HOSTILE]
    return wrong + ([] if none else [None])


def choice(*further: Any, none: bool = False) -> list[Any]:
    wrong = ["nope", "", 3, 1.5, True, b"auto", ["auto"], {}, {"auto"}, np.array(["a", "b"]), THING, HOSTILE]
    return [*wrong, *further, *([] if none else [None])]


def device(none: bool = True) -> list[Any]:
    wrong = [
        "tpu",
        "cpu:1",
        "CPU",
        "",
        3,
        True,
        b"cpu",
        ["cpu"],
        {},
        np.array(["cpu", "cpu"]),
        THING,
        HOSTILE,
    ]
    # Where there is a GPU it is no wrong argument.
    return wrong + ([] if none else [None]) + ([] if runtime.cuda_available() else ["cuda"])


def text(none: bool = False) -> list[Any]:
    return [3, 1.5, True, b"x", ["x"], {}, THING, HOSTILE, *([] if none else [None])]


def whatever(*wrong: Any) -> list[Any]:
    return [*wrong, HOSTILE]


_MATRICES = [[[0, 1]], np.zeros((2, 2), int), torch.zeros(2, 2, dtype=torch.long)]
_NO_INTEGERS = [
    "abc", b"abc", 3, 2.5, {}, {1, 2}, [[0], [0, 1]], [0.5], [NAN], [None], ["a"], [True, False], [1j],
    [10**30], np.zeros(2), np.zeros(2, "M8[D]"), np.array(["a"]), np.array([None]),
    np.zeros(2, [("a", int)]), torch.ones(2), THING, HOSTILE,
]  # fmt: skip
_NO_IDS = [*_NO_INTEGERS, *_MATRICES]


def ids(*, none: bool = False, empty: bool = False, bound: int | None = N) -> list[Any]:
    """Vertices: not even integers, of another shape, out of range."""
    wrong = [*_NO_IDS, *([] if none else [None]), *([] if empty else [[], np.zeros(0, np.int64)])]
    if bound is not None:
        wrong += [[-1], [bound], [0, 2**40], np.array([2**64 - 1], np.uint64), torch.tensor([bound])]
    return wrong


def matrix(*further: Any) -> list[Any]:
    return [None, "ab", 3, [1.0], [["a", "b"]], [[1.0], [1.0, 2.0]], {}, THING, HOSTILE, *further]


def graph() -> list[Any]:
    like = types.SimpleNamespace(indptr=[0], indices=[], num_nodes=0)
    return [None, 3, "ogbn-arxiv", [0, 1], {}, like, lab.Graph, THING, HOSTILE]


def result() -> list[Any]:
    return [None, 3, "walks", [], {}, types.SimpleNamespace(roots=[0], steps=[]), THING, HOSTILE]


def path(none: bool = False) -> list[Any]:
    return [3, 1.5, True, b"x", ["x"], {}, THING, HOSTILE, "a\0b", *([] if none else [None])]


# ---- what the table works on ----------------------------------------------------------------------------------


@cache
def small() -> lab.Graph:
    """A ring with chords; features, three classes, a split, weights."""
    v = np.arange(N)
    src, dst = np.concatenate([v, v, v]), np.concatenate([(v + 1) % N, (v + 7) % N, (v * v) % N])
    rng = np.random.default_rng(0)
    return lab.Graph.from_edges(
        src, dst, N, edge_weight=np.ones(3 * N), feat=rng.random((N, 4), dtype=np.float32), label=v % 3,
        splits={"train": v[:20], "valid": v[20:30]},
    )  # fmt: skip


@cache
def sampler() -> lab.NeighborSampler:
    return lab.NeighborSampler(small(), [2, 2], device="cpu")


@cache
def summing() -> lab.FusedSampler:
    return lab.FusedSampler(small(), [2, 2], device="cpu")


@cache
def walks() -> lab.PinSAGESampler:
    return lab.PinSAGESampler(small(), num_layers=2, device="cpu")


@cache
def batch() -> Any:
    return sampler().sample([1, 2, 3])


@cache
def grown() -> Any:
    return lab.run_app(small(), lab.apps.KHop((2, 2)), [[1], [2]], device="cpu")


class Recording(lab.apps.KHop):
    def next(self, s: Any, transits: Any, src_edges: Any, step: Any, rng: Any) -> Any:
        s.add_edge(transits[0], src_edges[0])
        return src_edges[0]


@cache
def recorded() -> Any:
    return lab.run_app(small(), Recording((2, 2)), [[1], [2]], device="cpu")


@cache
def seen() -> Any:
    return lab.footprint([[1, 2], [2, 3]], num_nodes=N)


@cache
def cached() -> lab.FeatureCache:
    return lab.FeatureCache(small().feat, ratio=0.0, device="cpu")


@cache
def matched() -> lab.MatchedFeatures:
    return lab.MatchedFeatures(cached())


@cache
def trace() -> Any:
    return lab.NeighborSampler(small(), [2], device="cpu", trace=True).sample([1, 2]).trace


@cache
def data() -> Any:
    return small().to_pyg()


def block() -> Any:
    return batch().blocks[0]


def block_x() -> np.ndarray:
    return np.ones((block().num_src, 4), np.float32)


# ---- the table ------------------------------------------------------------------------------------------------


@dataclass
class Entry:
    """A public callable, working arguments, and kinds of its parameters; ``open`` says why others have no kind."""

    call: Callable[[], Callable[..., Any]]
    good: Callable[[], dict[str, Any]]
    kinds: dict[str, list[Any]]
    open: dict[str, str] = field(default_factory=dict)


def step_of(graph: Any) -> dict[str, Any]:
    """What a training step is made of."""
    model = lab.make_model("sage", graph.feat.shape[1], 8, 2, 2)
    sampler = lab.NeighborSampler(graph, [2, 2], device="cpu")
    return {"model": model, "optimizer": torch.optim.Adam(model.parameters()), "sampler": sampler}


SEED = integer(0, 2**64 - 1)
BYTES = integer(1, 2**62, none=True)
SIZE = integer(1, 2**31 - 1)
LABELS = [
    "ab", 3, [0.5] * N, [-2] * N, [0] * (N + 1), [None] * N, np.zeros((N, 0), int), np.zeros((N, 2, 2), int),
    np.array([[5, -1]] * N), {}, HOSTILE,
]  # fmt: skip
WEIGHTS = [
    "ab", 3, [1.0] * 5, [NAN] * 3 * N, [INF] * 3 * N, [-1.0] * 3 * N, ["a"] * 3 * N, np.ones((3 * N, 1)), {}, HOSTILE,
    [1e300] * 3 * N,
]  # fmt: skip
FEATURES = [
    "ab",
    3,
    [1.0],
    np.ones(N),
    np.ones((N + 1, 2)),
    [["a"]] * N,
    np.ones((N, 2), complex),
    {},
    HOSTILE,
]
SPLITS = [
    3, "train", [1, 2], {"train": [N]}, {"train": [-1]}, {"train": [0.5]}, {"train": "abc"}, {"train": [[1]]},
    {"train": np.ones(3, bool)}, {3: [1]}, {"train": HOSTILE},
]  # fmt: skip
FANOUTS = [
    None, 5, "5", b"5", [], [0], [-2], [2.0], [True], ["3"], [None], [5000], [1] * 16, {1: 2}, torch.tensor([2.7]),
    torch.tensor([True]), np.array([2.7]), np.array([[1, 2]]), [[2]], [HUGE], [HOSTILE], HOSTILE,
]  # fmt: skip
OUTPUT = "an array of the right shape, dtype and device"

TABLE: dict[str, Entry] = {
    "Graph": Entry(
        lambda: lab.Graph,
        lambda: {"indptr": small().indptr, "indices": small().indices},
        {
            "indptr": [*ids(bound=None), [0, 1], [1, 3 * N], np.zeros(N + 1, int), [0, 5, 3, 3 * N]],
            "indices": [*ids(bound=None), [0] * 5, np.full(3 * N, N), np.full(3 * N, -1), np.arange(3 * N)[::-1] % N],
            "edge_weight": WEIGHTS,
            "feat": FEATURES,
            "label": LABELS,
            "splits": SPLITS,
            "num_classes": integer(-1, 2**31 - 1),
            "name": text(),
            "is_synthetic": flag(),
            "edge_ids": ["ab", 3, [1], [0.5] * 3 * N, np.zeros((3 * N, 2), int), HOSTILE],
            "version": integer(1, 2**31 - 1, none=True),
            "validate": flag(),
        },
    ),
    "Graph.from_edges": Entry(
        lambda: lab.Graph.from_edges,
        lambda: {"src": [0, 1, 2] * N, "dst": [1, 2, 3] * N, "num_nodes": N},
        {
            "src": ids(),
            "dst": ids(),
            "num_nodes": integer(0, 2**48, none=True),
            "edge_weight": WEIGHTS,
            "feat": FEATURES,
            "label": LABELS,
            "splits": SPLITS,
            "undirected": flag(),
            "keep_edge_ids": flag(),
            "name": text(),
            "is_synthetic": flag(),
        },
    ),
    "Graph.from_csc": Entry(
        lambda: lab.Graph.from_csc,
        lambda: {"indptr": [0, 1, 2], "indices": [1, 0]},
        {
            "indptr": [*ids(bound=None), [0, 1], [1, 2, 3], [0, 3, 2]],
            "indices": [*ids(bound=None), [1], [1, 2], [0, -1]],
        },
        {"node_data": "goes to from_edges by name"},
    ),
    "Graph.from_networkx": Entry(
        lambda: lab.Graph.from_networkx,
        lambda: {"graph": pytest.importorskip("networkx").path_graph(4)},
        {
            "graph": graph(),
            "weight": [*text(none=True), "absent"],
            "feat": [*text(none=True), "absent"],
            "label": [*text(none=True), "absent"],
            "name": text(none=True),
        },
    ),
    "Graph.from_pyg": Entry(
        lambda: lab.Graph.from_pyg,
        lambda: {"data": data()},
        {
            "data": [
                None, 3, "cora", {}, THING, types.SimpleNamespace(edge_index=[[0, 1]], num_nodes=3),
                types.SimpleNamespace(edge_index="ab", num_nodes=3),
            ],
            "name": text(),
        },
    ),
    "Graph.to": Entry(lambda: small().to, lambda: {"device": "cpu"}, {"device": device(), "features": flag()}),
    "load": Entry(
        lambda: lab.load,
        lambda: {"name": "arxiv-like", "scale": 0.001},
        {
            "name": [*text(), "", "no-such-graph", "ogbn-nothing"],
            "root": path(none=True),
            "download": flag(),
            "scale": number(0, -1, 1e9, 1e300),
            "seed": SEED,
            "device": device(),
            "undirected": [*flag(none=True), True],
            "features": [*(v for v in choice() if v is not True), "Raw", "hashed"],
            "weighted": flag(),
            "use_cache": flag(),
            "progress": flag(),
            "version": integer(2, 3),
        },
    ),
    "load_or_twin": Entry(
        lambda: lab.load_or_twin,
        lambda: {"name": "arxiv-like"},
        {
            "name": [*text(), "", "no-such-graph"],
            "root": path(none=True),
            "scale": number(0, -1),
            "seed": SEED,
            "device": device(),
            "weighted": flag(),
            "progress": flag(),
            "version": integer(2, 3),
        },
    ),
    "load_default": Entry(
        lambda: lab.load_default,
        lambda: {"name": "arxiv-like", "scale": 0.001},
        {
            "name": [*text(none=True), "no-such-graph"],
            "root": path(none=True),
            "default": text(),
            "scale": number(0, -1, 1e9),
            "seed": SEED,
            "device": device(),
            "weighted": flag(),
            "progress": flag(),
            "version": integer(2, 3),
        },
    ),
    "rmat": Entry(
        lambda: lab.rmat,
        lambda: {"num_nodes": 16, "num_draws": 20},
        {
            "num_nodes": integer(2, 2**31 - 1),
            "num_draws": integer(1, none=True),
            "num_edges": [*integer(1, none=True), 61],
            "undirected": flag(),
            "probabilities": [
                None, 0.5, "abc", [0.5, 0.5], [0.5, 0.5, 0.5], [0.5, -0.1, 0.1], [NAN, 0, 0], [True, 0, 0],
                ["a", "b", "c"], {}, HOSTILE,
            ],
            "weighted": flag(),
            "seed": SEED,
            "device": device(),
            "name": text(),
        },
    ),
    "twin": Entry(
        lambda: lab.twin,
        lambda: {"graph_or_statistics": small()},
        {
            "graph_or_statistics": [None, 3, "arxiv-like", [1], {}, {"format": 2}, {"format": 3}, THING, HOSTILE],
            "seed": SEED,
            "device": device(),
            "scale": number(0, -1, 1e9, 1e300),
            "features": [v for v in choice() if v is not True],
            "name": text(none=True),
        },
    ),
    "twin_statistics": Entry(lambda: lab.twin_statistics, lambda: {"graph": small()}, {"graph": graph()}),
    "recency_weights": Entry(
        lambda: lab.recency_weights,
        lambda: {"graph": small()},
        {"graph": graph(), "years": integer(1, 24), "seed": SEED},
    ),
    "datasets": Entry(lambda: lab.datasets, dict, {"root": path(none=True)}),
    "run_app": Entry(
        lambda: lab.run_app,
        lambda: {"graph": small(), "app": lab.apps.KHop((2,)), "roots": [1, 2], "device": "cpu"},
        {
            "graph": graph(),
            "app": [None, 3, "KHop", lab.apps.KHop, {}, THING, HOSTILE],
"roots": [*_NO_INTEGERS, [-2], [N], np.zeros((2, 2, 2), int)],
            "parallelism": choice(),
            "device": device(),
            "seed": SEED,
            "num_samples": [*integer(1, 2**40 - 1, none=True), 5],
            "first_sample": integer(0, 2**40 - 1),
            "index": choice(),
            "graph_bytes": BYTES,
            "max_steps": integer(0, 2**24 - 2, none=True),
        },
    ),
    "flow_walks": Entry(
        lambda: lab.flow_walks,
        lambda: {"graph": small(), "roots": [1, 2], "length": 2, "device": "cpu"},
        {
            "graph": graph(),
            "roots": [*_NO_INTEGERS, [-2], [N], np.zeros((2, 2), int), np.zeros((2, 2, 2), int)],
            "length": integer(1, 2**24),
            "p": number(2.0**-13, 2.0**13),
            "q": number(2.0**-13, 2.0**13),
            "weighted": flag(),
            "device": device(),
            "seed": SEED,
            "first_walker": integer(0, 2**56 - 1),
        },
    ),
    "AppResult.edges": Entry(lambda: recorded().edges, lambda: {"step": 0}, {"step": integer(0, 1)}),
    "AppResult.adjacency": Entry(
        lambda: grown().adjacency, lambda: {"step": 0}, {"step": integer(0, 1), "normalise": choice(none=True)}
    ),
    "AppResult.top": Entry(lambda: grown().top, lambda: {"k": 2}, {"k": integer(1, 4096)}),
    "AppResult.transits": Entry(lambda: grown().transits, lambda: {"step": 0}, {"step": integer(0, 1)}),
    "AppResult.visits": Entry(lambda: grown().visits, dict, {"roots": flag()}),
    "NeighborSampler": Entry(
        lambda: lab.NeighborSampler,
        lambda: {"graph": small(), "fanouts": [2], "device": "cpu"},
        {
            "graph": graph(),
            "fanouts": FANOUTS,
            "strategy": choice(),
            "pick": choice(),
            "weighted": flag(),
            "replace": flag(),
            "expand": choice(),
            "device": device(),
            "seed": SEED,
            "trace": flag(),
            "scratch_bytes": BYTES,
            "completion": choice("paper"),
            "fetch_size": integer(1, 1024),
            "id_map": choice("sort"),
            "queue": choice("blocks"),
        },
    ),
    "FusedSampler": Entry(
        lambda: lab.FusedSampler,
        lambda: {"graph": small(), "fanouts": [2, 2], "device": "cpu"},
        {
            "graph": graph(),
            "fanouts": [*FANOUTS, [2]],
            "features": [3, "abc", np.ones((N, 2), np.float32), {}, HOSTILE],
            "reduce": choice("max"),
            "pick": choice(),
            "weighted": flag(),
            "replace": flag(),
            "expand": choice(),
            "strategy": choice(),
            "device": device(),
            "seed": SEED,
        },
    ),
    "PinSAGESampler": Entry(
        lambda: lab.PinSAGESampler,
        lambda: {"graph": small(), "device": "cpu"},
        {
            "graph": graph(),
            "num_layers": integer(1, 15),
            "num_neighbors": integer(1, 4096),
            "num_walks": integer(1),
            "walk_length": integer(1),
            "restart": number(-0.1, 1),
            "restart_ends": flag(),
            "device": device(),
            "seed": SEED,
            "scratch_bytes": BYTES,
        },
    ),
    **{
        f"{kind}.{method}": entry
        for kind, made in (("NeighborSampler", sampler), ("FusedSampler", summing), ("PinSAGESampler", walks))
        for method, entry in {
            "sample": Entry(
                lambda made=made: made().sample,
                lambda: {"seeds": [1]},
                {"seeds": ids(), "batch_id": integer(0, 2**32 - 1)},
            ),
            **{
                name: Entry(
                    lambda made=made, name=name: getattr(made(), name),
                    lambda: {"seeds": [[1], [2]]},
                    {
                        "seeds": [None, 3, "abc", [], [1, 2], [[]], [[1], [N]], [[1], [-1]], [[0.5]], {}, [None],
                                  [HOSTILE], HOSTILE],
                        "first_batch_id": integer(0, 2**32 - 1),
                    },
                )
                for name in ("sample_many", "start_many")
            },
            "epoch": Entry(
                lambda made=made: made().epoch,
                lambda: {"seeds": [1, 2, 3], "batch_size": 2},
                {
                    "seeds": ids(),
                    "batch_size": SIZE,
                    "epoch": integer(0, 2**31),
                    "shuffle": flag(),
                    "drop_last": flag(),
                    "prefetch": integer(1, 1024, none=True),
                    "progress": flag(),
                },
            ),
        }.items()
    },
    "minibatches": Entry(
        lambda: lab.minibatches,
        lambda: {"result": grown()},
        {"result": result(), "per_batch": integer(1, none=True)},
    ),
    "induced_batches": Entry(
        lambda: lab.induced_batches,
        lambda: {"result": grown()},
        {"result": result(), "layers": integer(1, 15)},
    ),
    "voted_batch": Entry(
        lambda: lab.voted_batch, lambda: {"result": grown(), "k": 2}, {"result": result(), "k": integer(1, 4096)}
    ),
    "relabel": Entry(
        lambda: lab.relabel,
        lambda: {"seeds": [1], "neighbors": [[2, 3]], "num_nodes": N, "device": "cpu"},
        {
            "seeds": [*ids(), [1, 1]],
            "neighbors": [None, 3, "abc", {}, [3], [[N]], [[-1]], [[0.5]], [["a"]], [[[1]]], [[1]] * 16, [None],
                          [HOSTILE], HOSTILE],
            "num_nodes": integer(1, 2**48),
            "method": choice("in-sampler"),
            "device": device(),
        },
    ),
    "probe_statistics": Entry(
        lambda: lab.probe_statistics,
        lambda: {"ids": [1, 2, 3], "device": "cpu"},
        {
            "ids": [*ids(bound=None), [-1], [2**63]],
            "hash": choice(),
            "load_factor": number(0, -0.5, 1.5),
            "device": device(),
            "slots": [*integer(1, none=True), 2, 5],
        },
    ),
    "fill_steps": Entry(
        lambda: lab.fill_steps,
        lambda: {"ids": [1, 2, 3], "slots": 5},
        {"ids": [*ids(bound=None), [-1]], "slots": [*integer(1), 2, 2**30], "hash": choice(), "polarity": choice()},
    ),
    "fill_rounds": Entry(
        lambda: lab.fill_rounds,
        lambda: {"ids": [1, 2, 3], "slots": 5, "threads": 2},
        {
            "ids": [*ids(bound=None), [-1]],
            "slots": [*integer(1), 2, 2**30],
            "threads": integer(1, 2**20),
            "hash": choice(),
        },
    ),
    "hotness": Entry(
        lambda: lab.hotness,
        lambda: {"graph": small(), "policy": "presample", "sampler": sampler(), "seeds": [1, 2]},
        {
            "graph": graph(),
            "policy": choice(),
            "sampler": [None, 3, "bsp", {}, THING, HOSTILE, types.SimpleNamespace(epoch=print)],
            "seeds": ids(none=True),
            "batch_size": SIZE,
            "epochs": integer(1, 1000),
            "seed": SEED,
        },
        {"batches": "in the next entry", "walks": "in the entry after that"},
    ),
    "hotness, optimal": Entry(
        lambda: lab.hotness,
        lambda: {"graph": small(), "policy": "optimal", "batches": [[1, 2]]},
        {"batches": [None, 3, "abc", {}, [], [[N]], [[-1]], [[0.5]], [[[1]]], [None], HOSTILE, [HOSTILE]]},
    ),
    "hotness, visits": Entry(
        lambda: lab.hotness, lambda: {"graph": small(), "policy": "visits", "walks": grown()}, {"walks": result()}
    ),
    "footprint": Entry(
        lambda: lab.footprint,
        lambda: {"source": sampler(), "seeds": [1, 2]},
        {
            "source": [None, 3, "abc", {}, [], [1, 2], [["a"]], [[0.5]], THING, HOSTILE, [HOSTILE]],
            "seeds": ids(none=True),
            "batch_size": SIZE,
            "epochs": integer(1, 2**31),
            "first_epoch": integer(0, 2**31),
            "num_nodes": integer(0, 2**48, none=True),
        },
    ),
    "epoch_similarity": Entry(
        lambda: lab.epoch_similarity,
        lambda: {"f_i": seen(), "f_j": seen()},
        {
            "f_i": [None, 3, "abc", [1, 2], np.zeros(N), HOSTILE],
            "f_j": [None, 3, "abc", [1, 2], np.zeros(N), HOSTILE, Made(lambda: lab.footprint([[1]], num_nodes=3))],
            "top": number(0, -0.5, 1.5),
        },
    ),
    "hit_rate": Entry(
        lambda: lab.hit_rate,
        lambda: {"hotness": np.arange(N), "footprint": seen(), "ratio": 0.5},
        {
            "hotness": [None, 3, "abc", [1.0], [["a"]], ["a"] * N, [NAN] * N, [None] * N, HOSTILE],
            "footprint": [None, 3, "abc", [1, 2], np.zeros(N), HOSTILE],
            "ratio": [None, "half", -0.1, 1.1, NAN, [0.5, NAN], ["a"], [[0.1], [0.1, 0.2]], 1j, {}, HOSTILE],
        },
    ),
    "FeatureCache": Entry(
        lambda: lab.FeatureCache,
        lambda: {"feat": small().feat, "hotness": np.arange(N), "ratio": 0.5, "device": "cpu"},
        {
            "feat": matrix(np.ones((N, 2)), np.ones((N, 2), int), np.ones(N, np.float32), np.ones((N, 0), np.float32)),
            "hotness": [None, 3, "abc", [1.0], ["a"] * N, [NAN] * N, [None] * N, np.zeros((N, 1)), HOSTILE],
            "ratio": number(-0.1, 1.1, none=False),
            "capacity_bytes": integer(0, none=True),
            "leave_free": choice("trial", none=True),
            "device": device(),
            "transfer": choice("disk"),
            "trial": [3, "run", print, HOSTILE],
            "knobs": [3, "fast", {}, THING, HOSTILE],
        },
    ),
    "FeatureCache, bytes": Entry(
        lambda: lab.FeatureCache,
        lambda: {"feat": small().feat, "hotness": np.arange(N), "capacity_bytes": 400, "device": "cpu"},
        {"capacity_bytes": integer(0, 2**62)},
    ),
    "FeatureCache, trial": Entry(
        lambda: lab.FeatureCache,
        lambda: {"feat": small().feat, "leave_free": "trial", "trial": lambda: None, "device": "cpu"},
        {"leave_free": choice(), "trial": [None, 3, "run", {}]},
    ),
    "FeatureCache.mark": Entry(
        lambda: cached().mark, lambda: {"node_ids": [1]}, {"node_ids": ids(empty=True)}
    ),
    "FeatureCache.extract_each": Entry(
        lambda: cached().extract_each,
        lambda: {"node_ids": [[1], [2]]},
        {"node_ids": [None, 3, "ab", [3], [["a"]], [[0.5]], [[10**6]], {}, THING, HOSTILE]},
    ),
    "FeatureCache.extract": Entry(
        lambda: cached().extract,
        lambda: {"node_ids": [1, 2]},
        {
            "node_ids": ids(empty=True),
            "marks": [3, "abc", [1], THING, HOSTILE, Made(lambda: cached().mark([1]))],
            "out": [3, "abc", [1.0], np.zeros((2, 4)), np.zeros((3, 4), np.float32), THING, HOSTILE],
        },
    ),
    "MatchedFeatures": Entry(
        lambda: lab.MatchedFeatures,
        lambda: {"source": small().feat, "device": "cpu"},
        {
            "source": matrix(np.ones((N, 2)), np.ones((N, 2), int), np.ones(N, np.float32)),
            "device": device(),
            "transfer": choice("disk"),
        },
    ),
    "MatchedFeatures.extract": Entry(
        lambda: matched().extract, lambda: {"node_ids": [1]}, {"node_ids": ids(empty=True)}
    ),
    "match": Entry(
        lambda: lab.match,
        lambda: {"prev_ids": [1, 2], "ids": [2, 3]},
        {"prev_ids": ids(empty=True, bound=None), "ids": ids(empty=True, bound=None)},
    ),
    **{
        name: Entry(
            lambda name=name: getattr(lab, name),
            lambda: {"batches": [[1, 2], [2, 3]]},
            {"batches": [None, 3, "abc", {}, [], [1, 2], [[0.5]], [["a"]], [[-1]], [[[1]]], [None], [HOSTILE]]},
        )
        for name in ("match_degrees", "overlaps")
    },
    "reorder": Entry(
        lambda: lab.reorder,
        lambda: {"M": np.eye(3)},
        {
            "M": matrix(np.ones((2, 3)), np.zeros((0, 0)), [[1, 2], [3, 4]], [[NAN, 0], [0, 1]], np.eye(2) * 1j),
            "method": choice(),
        },
    ),
    "path_score": Entry(
        lambda: lab.path_score,
        lambda: {"M": np.eye(3), "order": [0, 1, 2]},
        {
            "M": matrix(np.ones((2, 3)), np.zeros((0, 0)), [[1, 2], [3, 4]], [[NAN, 0], [0, 1]]),
            "order": [*ids(empty=True, bound=3), [0, 0]],
        },
    ),
    "aggregate": Entry(
        lambda: lab.aggregate,
        lambda: {"block": block(), "x": block_x()},
        {
            "block": [None, 3, "abc", {}, lab.Block, THING, HOSTILE, types.SimpleNamespace(src=1, indptr=2, indices=3)],
            "x": matrix(np.ones((1, 4), np.float32), np.ones(99, np.float32), np.ones((99, 4), int), torch.ones(2, 2)),
            "weight": [3, "abc", [1.0], np.ones(3), np.ones(1, np.float32), torch.ones(3), THING, HOSTILE],
            "reduce": choice("max"),
            "kernel": choice(),
        },
    ),
    "attention": Entry(
        lambda: lab.attention,
        lambda: {
            "block": block(), "x": np.ones((block().num_src, 2, 2), np.float32),
            "score_src": np.ones((block().num_src, 2), np.float32),
            "score_dst": np.ones((block().num_dst, 2), np.float32),
        },
        {
            "block": [None, 3, "abc", {}, lab.Block, THING, HOSTILE],
            "x": matrix(np.ones((1, 2, 2), np.float32), np.ones((99, 2, 0), np.float32), np.ones((99, 2), np.float32)),
            "score_src": matrix(np.ones((1, 2), np.float32), np.ones((99, 2)), np.ones((99, 3), np.float32)),
            "score_dst": matrix(np.ones((1, 2), np.float32), np.ones((99, 2)), torch.ones(99, 2)),
            "negative_slope": number(),
        },
    ),
    "aggregation_cost": Entry(
        lambda: lab.aggregation_cost,
        lambda: {"block": block(), "num_features": 8},
        {
            "block": [None, 3, "abc", {}, lab.Block, THING, HOSTILE],
            "num_features": SIZE,
            "kernel": choice(),
            "weighted": flag(),
        },
    ),
    "make_model": Entry(
        lambda: lab.make_model,
        lambda: {"name": "gat", "num_features": 4, "hidden": 8, "heads": 2},
        {
            "name": choice(),
            "num_features": SIZE,
            "hidden": [*SIZE, 7],
            "num_classes": SIZE,
            "num_layers": SIZE,
            "heads": [*SIZE, 3],
            "kernel": choice(),
            "dropout": number(-0.1, 1),
        },
    ),
    "infer": Entry(
        lambda: lab.infer,
        lambda: {"model": lab.make_model("sage", 4, 8, 3), "graph": small(), "device": "cpu"},
        {
            "model": [None, 3, "sage", b"gcn", {}, THING, HOSTILE, print, torch.nn.Linear, torch.nn.Linear(4, 3)],
            "graph": graph(),
            "features": ["ab", 3, [1.0], [["a", "b"]], {}, THING, HOSTILE, np.ones((3, 4), np.float32)],
            "device": device(),
            "budget_gb": number(0, -1, none=True),
            "out": [3, "abc", [[0.0]], {}, THING, HOSTILE, np.zeros((N, 2)), np.zeros((N, 3), int), torch.zeros(3)],
            "progress": flag(),
        },
    ),
    "captured_step": Entry(
        lambda: lab.captured_step,
        lambda: step_of(small()),
        {
            "model": [None, 3, "sage", b"gcn", {}, THING, HOSTILE, print, torch.nn.Linear],
            "optimizer": [None, 3, "adam", {}, THING, HOSTILE, print, torch.optim.Adam],
            "sampler": [None, 3, "bsp", {}, THING, HOSTILE, types.SimpleNamespace(graph=3, sample=print)],
            "features": [3, "abc", {}, THING, HOSTILE, print],
            "loss": [3, "mean", {}, THING, HOSTILE],
        },
    ),
    "train": Entry(
        lambda: lab.train,
        lambda: {"graph": small(), "fanouts": [2, 2], "device": "cpu", "progress": False, "cache_ratio": 0.5},
        {
            "graph": graph(),
            "model": [None, 3, "mlp", "", b"gcn", ["gcn"], {}, THING, HOSTILE, print],
            "system": choice(),
            "epochs": integer(1, 2**20),
            "batch_size": SIZE,
            "fanouts": FANOUTS,
            "hidden": SIZE,
            "lr": number(-0.1),
            "seed": SEED,
            "device": device(),
            "cache_ratio": number(-0.1, 1.1, none=True),
            "capacity_bytes": integer(0, none=True),
            "reorder": choice(none=True),
            "window": integer(1, 1024),
            "evaluate": ["nope", "", 3, 0, 1.5, None, b"valid", ["valid"], THING, HOSTILE],
            "progress": flag(),
            "on_progress": [3, "print", [], {}, HOSTILE],
            "weighted": flag(),
            "sampler": [3, "bsp", {}, THING, HOSTILE, types.SimpleNamespace(epoch=print)],
            "executor": choice(none=True),
            "ranks": integer(1, 64),
            "workers": integer(1, 64),
            "capacity": integer(1, none=True),
            "merged": integer(1, 64),
            "samplers": [*integer(1, 64, none=True), 2],
            "switching": flag(none=True),
            "budget_gb": number(-1, 0, none=True),
            "cache_gb": [*number(-1, none=True), 1.0],
            "topology_bytes": [*integer(0, none=True), 100],
            "policy": choice(none=True),
            "kernels": flag(),
            "coordinated": flag(none=True),
            "captured": flag(none=True),
            "handover": [*choice(), "peer"],
            "swap": [*flag(), True],
            "parts": [3, 1.5, True, b"x", ["x"], {}, "nope", "", THING, HOSTILE, print],
            "staleness": integer(0, none=True),
            "pipelined": flag(),
            "checkpoint": path(none=True),
            "checkpoint_steps": [*integer(1, none=True), 3],
            "resume": [*path(none=True), "no/such/file.pt"],
        },
        {"options": "in the next entry"},
    ),
    "train, options": Entry(
        lambda: lab.train,
        lambda: {"graph": small(), "fanouts": [2, 2], "device": "cpu", "progress": False, "cache_ratio": 0.5},
        {
            "pick": choice(none=True),
            "kernel": choice(none=True),
            "dropout": number(-0.1, 1),
            "heads": SIZE,
            "nonsense": [1, "a"],
        },
    ),
    "compare": Entry(
        lambda: lab.compare,
        lambda: {"graph": small(), "systems": ["lab"], "device": "cpu", "progress": False},
        {
            "graph": graph(),
            "systems": [None, 3, {}, [], ["nope"], "nope", [3], [None], THING, HOSTILE, [HOSTILE]],
            "model": [None, 3, "mlp", "", THING, HOSTILE],
        },
        {"options": "go to train by name"},
    ),
    "SampleTrace.from_tasks": Entry(
        lambda: lab.SampleTrace.from_tasks,
        lambda: {
            "tasks": trace().tasks, "origin": "modelled", "device_name": "a device", "strategy": "bsp",
            "graph_name": "ring", "graph_is_synthetic": True, "num_sms": 132, "num_blocks": 132, "batch_size": 2,
            "fanouts": [2],
        },
        {
            "tasks": [None, 3, "abc", [], {}, THING, HOSTILE],
            "origin": choice(),
            "device_name": text(),
            "strategy": text(),
            "graph_name": text(),
            "graph_is_synthetic": flag(),
            "num_sms": integer(1),
            "num_blocks": integer(0),
            "batch_size": integer(0),
            "fanouts": [v for v in FANOUTS if not (type(v) is list and (len(v) == 16 or v == [5000]))],
            "pick": text(),
            "replace": flag(),
            "weighted": flag(),
            "expand": text(),
            "seed": SEED,
            "batch_id": integer(0),
            "fetch_size": integer(0, none=True),
            "completion": text(none=True),
            "preprocess_us": ["a", [1.0, 2.0], ["a"], {}, HOSTILE],
            "kernel_us": ["a", [1.0, 2.0], ["a"], {}, HOSTILE],
            "bytes_moved": ["a", [1, 2], ["a"], [0.5], {}, HOSTILE],
            "lost": [3, "abc", [], {}, THING, HOSTILE],
            "queue": [3, "abc", [], {}, THING, HOSTILE],
            "total_us": number(-1, none=True),
            "copy_bandwidth_gbps": [v for v in number(-1) if v is not NAN],
            "meta": [3, "abc", [1], THING, HOSTILE, {3: 1}, {"a": [1]}],
            "slots": [3, "abc", [], {}, THING, HOSTILE],
        },
    ),
    "SampleTrace.save": Entry(lambda: trace().save, dict, {"path": [*path(), "/"]}),
    "SampleTrace.to_perfetto": Entry(lambda: trace().to_perfetto, dict, {"path": [*path(), "/"]}),
    "SampleTrace.load": Entry(
        lambda: lab.SampleTrace.load, dict, {"path": [*path(), "no/such/file.npz", "/", __file__]}
    ),
    "apps.ClusterGCN": Entry(
        lambda: lab.apps.ClusterGCN,
        dict,
        {
            "clusters_per_sample": SIZE,
            "num_clusters": integer(1, 2**31 - 1, none=True),
            "partition": [*_NO_IDS, None, "kmeans"],
            "seed": SEED,
        },
    ),
    "apps.DeepWalk": Entry(lambda: lab.apps.DeepWalk, dict, {"length": SIZE, "weighted": flag()}),
    "apps.PPR": Entry(
        lambda: lab.apps.PPR, dict, {"termination": number(0, 1.5, -1), "weighted": flag()}
    ),
    "apps.Node2Vec": Entry(
        lambda: lab.apps.Node2Vec,
        dict,
        {"length": SIZE, "p": number(0, -1, 1e9), "q": number(0, -1, 1e9), "weighted": flag()},
    ),
    "apps.MultiRW": Entry(
        lambda: lab.apps.MultiRW, dict, {"length": SIZE, "num_roots": SIZE, "select": choice()}
    ),
    "apps.PinSAGEWalk": Entry(
        lambda: lab.apps.PinSAGEWalk,
        dict,
        {"num_walks": SIZE, "walk_length": SIZE, "restart": number(-0.1, 1.5)},
    ),
    "apps.KHop": Entry(
        lambda: lab.apps.KHop,
        dict,
        {"fanouts": [None, 5, "5", [], [0], [-1], [2.0], [True], ["3"], [None], {1: 2}, torch.tensor([2.7]), HOSTILE]},
    ),
    "apps.Layer": Entry(
        lambda: lab.apps.Layer, dict, {"final_size": SIZE, "step_size": SIZE, "weighted": flag(), "replace": flag()}
    ),
    **{
        f"apps.{name}": Entry(
            lambda name=name: getattr(lab.apps, name),
            dict,
            {"layers": SIZE, "batch_size": SIZE, "step_size": SIZE},
        )
        for name in ("FastGCN", "LADIES")
    },
    "apps.MVS": Entry(
        lambda: lab.apps.MVS,
        dict,
        {
            "importance": ["ab", 3, [NAN], [INF], [-1.0], [0.0], [["a"]], ["a"], [[1.0]], [], {}, HOSTILE],
            "batch_size": SIZE,
            "step_size": SIZE,
        },
    ),
    "apps.MVS.probability": Entry(lambda: lab.apps.MVS().probability, dict, {"graph": graph()}),
}  # fmt: skip


@cache
def divided() -> Any:
    return lab.distributed.partition(small(), 2, "range", tolerance=2, use_cache=False)


@cache
def saved() -> Path:
    folder = Path(tempfile.mkdtemp()) / "parts"
    return lab.distributed.save_parts(small(), divided(), folder)


@cache
def one_rank() -> Any:
    return lab.distributed.Ranks(1, device="cpu")


def _index(rank: Any) -> int:
    return rank.index


@cache
def alone() -> Any:
    """A rank of a world of its own, in this process: nothing of it needs a process group."""
    from gnnsample_lab.distributed.ranks.rank import Rank

    return Rank(
        0, 1, device="cpu", backend="gloo", group=None, groups=None, timeout_s=1, tell=lambda *_, **__: None
    )  # type: ignore[arg-type]


@cache
def undivided() -> Path:
    one = lab.distributed.partition(small(), 1, "range", use_cache=False)
    return lab.distributed.save_parts(small(), one, Path(tempfile.mkdtemp()) / "parts")


@cache
def rank_cache() -> Any:
    return lab.distributed.FeatureCache(undivided(), ratio=0.5, rank=alone(), transport="all-to-all")


FUNCTIONS = [None, 3, "print", [], {}, THING, HOSTILE, Made(lambda: threading.Lock().acquire)]
RANK, NO_PARTITION = integer(0, 2**15 - 1), [None, 3, "metis", [0, 1], {}, THING, HOSTILE]
TABLE |= {
    "distributed.partition": Entry(
        lambda: lab.distributed.partition,
        lambda: {"graph": small(), "parts": 2, "method": "range", "tolerance": 2, "use_cache": False},
        {
            "graph": graph(), "parts": integer(1, N), "method": choice("METIS"),
            "seeds": [*ids(none=True, empty=True), [1, 1]], "seed": SEED, "tolerance": number(0.9, -1),
            "root": path(none=True), "use_cache": flag(),
        },
    ),
    "distributed.Partition.place": Entry(
        lambda: divided().place, lambda: {"vertices": [1, 2]}, {"vertices": ids(empty=True)}
    ),
    "distributed.part_of": Entry(
        lambda: lab.distributed.part_of,
        lambda: {"graph": small(), "partition": divided(), "rank": 1},
        {
            "graph": graph(), "partition": NO_PARTITION, "rank": integer(0, 1), "features": flag(),
            "weights": ["ab", 3, [1.0], {}, np.ones(3), THING, HOSTILE],
        },
    ),
    "distributed.vertex_records": Entry(
        lambda: lab.distributed.vertex_records,
        lambda: {"graph": small(), "partition": divided()},
        {"graph": graph(), "partition": NO_PARTITION},
    ),
    "distributed.save_parts": Entry(
        lambda: lab.distributed.save_parts,
        lambda: {"graph": small(), "partition": divided(), "folder": saved()},
        {
            "graph": graph(), "partition": NO_PARTITION, "folder": path(none=True), "root": path(none=True),
            "features": flag(),
        },
    ),
    "distributed.open_partition": Entry(
        lambda: lab.distributed.open_partition, lambda: {"folder": saved()}, {"folder": [*path(), "not there"]}
    ),
    "distributed.open_records": Entry(
        lambda: lab.distributed.open_records, lambda: {"folder": saved()}, {"folder": [*path(), "not there"]}
    ),
    "distributed.open_part": Entry(
        lambda: lab.distributed.open_part,
        lambda: {"folder": saved(), "rank": 0},
        {"folder": [*path(), "not there"], "rank": RANK},
    ),
    "distributed.run": Entry(
        lambda: lab.distributed.run,
        lambda: {"fn": _index, "ranks": 1, "device": "cpu"},
        {
            "fn": FUNCTIONS, "ranks": integer(1, 64), "device": choice(), "timeout_s": number(0, -1),
            "heartbeat_s": number(0, -1, none=True),
        },
        {"args": "go to fn"},
    ),
    "distributed.Ranks": Entry(
        lambda: lab.distributed.Ranks,
        lambda: {"ranks": 1, "device": "cpu"},
        {
            "ranks": integer(1, 64),
            "device": choice(),
            "timeout_s": number(0, -1),
            "collective_timeout_s": number(0, -1, none=True),
            "heartbeat_s": number(0, -1, none=True),
        },
    ),
    "distributed.Ranks.run": Entry(
        lambda: one_rank().run,
        lambda: {"fn": _index},
        {"fn": FUNCTIONS, "world": integer(1, 1, none=True), "timeout_s": number(0, -1, none=True)},
        {"args": "go to fn"},
    ),
    "distributed.torchrun_line": Entry(
        lambda: lab.distributed.torchrun_line,
        lambda: {"script": "train.py"},
        {
            "script": path(),
            "hosts": integer(1),
            "ranks_per_host": integer(1, 64),
            "host": [*text(), "", "two words"],
            "port": integer(1, 65535),
        },
        {"args": "go to the script as text"},
    ),
    "distributed.hottest_lists": Entry(
        lambda: lab.distributed.hottest_lists,
        lambda: {"visits": [1] * N, "degrees": [3] * N, "fanouts": 2, "budget_bytes": 100},
        {
            "visits": ["ab", 3, None, [1.0], ["a"] * N, [NAN] * N, [INF] * N, [-1] * N, [[1] * N] * 2, {}, HOSTILE],
            "degrees": [*ids(bound=None), [-1] * N, [3]],
            "fanouts": [None, "5", b"5", [], 0, [0], -2, 2.0, [2.0], True, ["3"], HUGE, {1: 2}, [[2]], THING, HOSTILE],
            "budget_bytes": integer(0, 2**62),
            "owner": [*ids(none=True, bound=None), [0]],
            "rank": RANK,
            "ranking": choice("hotness"),
            "entry_bytes": [*integer(), 0, 5, 32],
        },
    ),
    "distributed.FeatureCache": Entry(
        lambda: lab.distributed.FeatureCache,
        lambda: {"source": undivided(), "ratio": 0.5, "rank": alone(), "transport": "all-to-all"},
        {
            "source": [None, 3, [0, 1], {}, THING, HOSTILE],
            "hotness": [None, 3, "hot", b"degree", [1.0], ["a"] * N, [NAN] * N, {}, HOSTILE],
            "ratio": number(-0.1, 1.1), "rank": [None, 3, "0", THING, HOSTILE], "kind": choice("cached"),
            "transport": choice("nccl"), "positions": choice("here"), "partition": [3, "metis", [0, 1], THING, HOSTILE],
            "hosts": [3, "ab", [[1]], [[0, 0]], [[0], [0]], [3], [["0"]], [[0.0]], {0: [0]}, THING, HOSTILE],
            "knobs": [3, "ab", {}, THING, HOSTILE],
        },
        {"capacity_bytes": "goes with no ratio", "folder": "is the source"},
    ),
    "distributed.FeatureCache.mark": Entry(
        lambda: rank_cache().mark, lambda: {"node_ids": [1]}, {"node_ids": ids(empty=True)}
    ),
    "distributed.FeatureCache.extract": Entry(
        lambda: rank_cache().extract,
        lambda: {"node_ids": [1]},
        {
            "node_ids": ids(empty=True), "marks": [3, "ab", [1], THING, HOSTILE],
            "out": [3, "ab", [1.0], np.empty(3), np.empty((1, 3), np.int8), THING, HOSTILE],
        },
    ),
    "distributed.FeatureCache.extract_arrived": Entry(
        lambda: rank_cache().extract_arrived,
        lambda: {"node_ids": [1]},
        {"node_ids": ids(empty=True), "marks": [3, "ab", [1], THING, HOSTILE]},
    ),
    "distributed.FeatureCache.extract_many": Entry(
        lambda: rank_cache().extract_many,
        lambda: {"node_ids": [[1], [2]]},
        {"node_ids": [None, 3, "ab", [3], [["a"]], [[0.5]], [[N]], {}, THING, HOSTILE]},
    ),
    "distributed.split_memory": Entry(
        lambda: lab.distributed.split_memory,
        lambda: {
            "budget_bytes": 100, "partition": divided(), "degrees": [3] * N, "fanouts": 2, "list_visits": [1] * N,
            "row_visits": [1] * N, "row_bytes": 8,
        },
        {
            "budget_bytes": integer(0, 2**62), "partition": NO_PARTITION, "degrees": [*ids(bound=None), [-1] * N, [3]],
            "row_visits": ["ab", 3, None, [1.0], ["a"] * N, [NAN] * N, [INF] * N, [-1] * N, {}, HOSTILE],
            "row_bytes": integer(1, 2**62), "kind": choice("cached"),
            "shares": [None, 3, "ab", [2], ["a"], {}, HOSTILE], "remote_gbps": number(0, -1),
            "hotness": ["ab", 3, [1.0], ["a"] * N, [NAN] * N, HOSTILE], "host_gbps": number(0, -1),
        },
        {
            "fanouts": "as of hottest_lists, which checks them", "entry_bytes": "as of hottest_lists",
            "list_visits": "the visits of hottest_lists",
        },
    ),
}  # fmt: skip

PYG = pytest.importorskip("gnnsample_lab.pyg")
TABLE |= {
    "pyg.GPUSampler": Entry(
        lambda: PYG.GPUSampler,
        lambda: {"graph": data(), "num_neighbors": [2, 2], "device": "cpu"},
        {
            "graph": [v for v in graph() if v is not lab.Graph],
            "num_neighbors": FANOUTS,
            "replace": flag(),
            "weight_attr": [*text(none=True), "absent"],
            "strategy": choice(),
            "device": device(),
            "seed": SEED,
        },
    ),
    "pyg.CachedFeatures": Entry(
        lambda: PYG.CachedFeatures,
        lambda: {"cache": cached()},
        {"cache": [None, 3, "cache", {}, THING, HOSTILE]},
    ),
    "pyg.NeighborLoader": Entry(
        lambda: PYG.NeighborLoader,
        lambda: {"data": data(), "num_neighbors": [2, 2], "device": "cpu"},
        {
            "data": [None, 3, "cora", {}, (1, 2), small(), THING, HOSTILE],
            "num_neighbors": FANOUTS,
            "input_nodes": [*ids(none=True, empty=True), np.ones(3, bool), (None, [1])],
            "input_time": [0, [1], torch.zeros(3), HOSTILE],
            "replace": flag(),
            "subgraph_type": choice("induced", "bidirectional"),
            "disjoint": [*flag(), True],
            "temporal_strategy": choice("last"),
            "time_attr": ["time", 3, HOSTILE],
            "weight_attr": [*text(none=True), "absent"],
            "transform": [3, "norm", {}, HOSTILE],
            "transform_sampler_output": [3, "norm", {}, HOSTILE],
            "is_sorted": flag(),
            "filter_per_worker": flag(none=True),
            "neighbor_sampler": [3, "ours", {}, sampler, THING, HOSTILE],
            "directed": [*flag(), False],
            "device": device(),
            "seed": SEED,
            "cache_ratio": number(-0.1, 1.1, none=True),
            "capacity_bytes": integer(0, 2**62, none=True),
            "num_workers": [1, 2, "0", 0.0, True, None],
        },
        {"kwargs": "go to NodeLoader and DataLoader by name"},
    ),
}

S = lab.schedule
STAGE_S = [
    None, "abc", b"x", -1, NAN, INF, True, 1j, 10**400, {}, [], [-1.0], [NAN], ["a"], [True], [None], [1.0, HOSTILE],
    np.zeros((2, 2)), np.array([1 + 1j]), np.array([True]), np.array([NAN]), [0.1] * 3, THING, HOSTILE,
]  # fmt: skip
GPUS = [None, 3, "ab", {}, [], [0], [-1], [1.5], ["a"], [True], [None], [10**9], [HOSTILE], THING, HOSTILE]
TIMES = [None, 3, "times", [1.0], {}, types.SimpleNamespace(sample_s=[1.0]), THING, HOSTILE]
COSTS = [3, "costs", [], {}, {"put_s": 1}, THING, HOSTILE]
BASELINES = [3, "ab", [1], {"a": 1}, {"a": None}, {3: Made}, {"a": HOSTILE}, THING, HOSTILE]
STALENESS = integer(0, none=True)
RUNS = [
    None, 3, "ab", {}, [], [None], [3], [{}], [{"executor": "serial"}], [HOSTILE], THING, HOSTILE,
    Made(lambda: [{"executor": "nope", "times": stages(), "epoch_s": 1.0}]),
    Made(lambda: [{"executor": "serial", "times": 3, "epoch_s": 1.0}]),
    Made(lambda: [{"executor": "serial", "times": stages(), "epoch_s": 0.0}]),
    Made(lambda: [{"executor": "serial", "times": stages(), "epoch_s": 1.0, "nonsense": 1}]),
    Made(lambda: [{"executor": "serial", "times": stages(), "epoch_s": 1.0, "gpus": 0}]),
    Made(lambda: [{"executor": "serial", "times": stages(), "epoch_s": 1.0, "options": 3}]),
    Made(lambda: [{"executor": "serial", "times": stages(), "epoch_s": 1.0, "options": {"nonsense": 3}}]),
    Made(lambda: [{"executor": None, "times": stages(), "epoch_s": 1.0}]),
]  # fmt: skip


def stages() -> Any:
    return S.stage_times(0.1, 0.2, 0.3, batches=4)


def run_of() -> Any:
    return [{"executor": "serial", "times": stages(), "epoch_s": 2.0}]


TABLE |= {
    "schedule.stage_times": Entry(
        lambda: S.stage_times,
        lambda: {"sample_s": [0.1, 0.2], "extract_s": 0.2, "train_s": [0.3, 0.4]},
        {
            "sample_s": STAGE_S,
            "extract_s": STAGE_S,
            "train_s": STAGE_S,
            "standby_extract_s": STAGE_S[1:],
            "batches": integer(1, 2**20, none=True),
            "per": choice("epoch"),
            "spread": number(-0.1, 11),
            "seed": SEED,
            "source": text(),
        },
    ),
    "schedule.Costs": Entry(
        lambda: S.Costs,
        dict,
        {
            **dict.fromkeys(("put_s", "get_s", "update_s", "load_topology_s", "load_cache_s"), number(-0.1)),
            "demand": [None, 3, "train", [1], {"nope": 0.5}, {"train": 2}, {"train": NAN}, {3: 0.5}, THING, HOSTILE],
            "host_share": number(-0.1, 1.1),
        },
    ),
    "schedule.Costs.with_handover": Entry(
        lambda: S.Costs().with_handover,
        lambda: {"path": "peer", "num_bytes": 1e6, "gbps": 10},
        {"path": choice(), "num_bytes": number(-1), "gbps": number(0, -1)},
    ),
    "schedule.simulate": Entry(
        lambda: S.simulate,
        lambda: {"times": stages(), "executor": "factored", "gpus": 3},
        {
            "times": TIMES,
            "executor": choice(),
            "gpus": integer(1, 4096),
            "samplers": integer(1, 3, none=True),
            "capacity": integer(1, none=True),
            "workers": [*integer(1, 64), 2],
            "pipelined": flag(),
            "switching": flag(none=True),
            "staleness": STALENESS,
            "scheduler": choice(none=True),
            "collective": [*flag(), True],
            "costs": COSTS,
        },
    ),
    "schedule.allocation_sweep": Entry(
        lambda: S.allocation_sweep,
        lambda: {"times": stages(), "gpus": 2},
        {
            "times": TIMES, "gpus": integer(2, 4096), "capacity": integer(1, none=True), "staleness": STALENESS,
            "costs": COSTS,
        },
    ),
    "schedule.best_split": Entry(
        lambda: S.best_split,
        lambda: {"times": stages(), "gpus": 2},
        {
            "times": TIMES, "gpus": integer(2, 4096), "samplers": GPUS[1:], "switching": flag(),
            "staleness": STALENESS, "costs": COSTS,
        },
    ),
    "schedule.break_even": Entry(
        lambda: S.break_even,
        lambda: {"times": stages(), "gpus": 2},
        {
            "times": TIMES, "gpus": integer(2, 4096), "staleness": STALENESS, "costs": COSTS, "shared_costs": COSTS,
        },
    ),
    "schedule.designs": Entry(
        lambda: S.designs,
        lambda: {"times": stages(), "shared": stages(), "gpus": [2]},
        {
            "times": TIMES, "shared": TIMES, "gpus": [*GPUS, [1]], "executor": choice(), "staleness": STALENESS,
            "costs": COSTS, "shared_costs": COSTS,
        },
    ),
    "schedule.trainer_time": Entry(
        lambda: S.trainer_time,
        lambda: {"extract_s": 0.1, "train_s": 0.2},
        {"extract_s": number(-1), "train_s": number(-1), "pipelined": flag()},
    ),
    "schedule.num_samplers": Entry(
        lambda: S.num_samplers,
        lambda: {"gpus": 8, "sample_s": 0.1, "trainer_s": 0.2},
        {"gpus": integer(1), "sample_s": number(-1), "trainer_s": number(-1), "keep_trainer": flag()},
    ),
    **{
        f"schedule.{name}": Entry(
            lambda name=name: getattr(S, name),
            lambda: {"remaining": 3, "trainers": 2, "trainer_s": 0.1, "standby_s": 0.2},
            {
                "remaining": integer(0),
                "trainers": integer(0),
                "trainer_s": number(-1),
                "standby_s": number(-1),
            },
        )
        for name in ("profit", "should_switch")
    },
    "schedule.gnnlab_times": Entry(
        lambda: S.gnnlab_times, dict, {"model": choice(), "graph": choice(), "system": choice()}
    ),
    "schedule.times_of": Entry(
        lambda: S.times_of,
        lambda: {"result": lab.train(small(), fanouts=[2, 2], epochs=1, device="cpu", progress=False)},
        {
            "result": [None, 3, "run", {}, types.SimpleNamespace(epochs=[1], steady=None), THING, HOSTILE],
            "batches": integer(1, 2**20, none=True),
        },
    ),
    "schedule.recorded_runs": Entry(
        lambda: S.recorded_runs, dict, {"folder": [*path(none=True), "no/such/folder"]}
    ),
    "schedule.model_error": Entry(
        lambda: S.model_error, lambda: {"runs": run_of()}, {"runs": RUNS, "costs": COSTS}
    ),
    "schedule.fit_host_share": Entry(
        lambda: S.fit_host_share,
        lambda: {"runs": run_of(), "steps": 2},
        {"runs": RUNS, "steps": integer(1, 10_000)},
    ),
    "schedule.scaling": Entry(
        lambda: S.scaling,
        lambda: {"times": stages(), "gpus": [2, 3], "samplers": [1]},
        {
            "times": TIMES,
            "gpus": [*GPUS, [1]],
            "samplers": GPUS,
            "baselines": BASELINES,
            "staleness": STALENESS,
            "costs": COSTS,
        },
    ),
    "schedule.splits": Entry(
        lambda: S.splits,
        lambda: {"times": stages(), "gpus": 3, "samplers": [1]},
        {
            "times": TIMES,
            "gpus": [*integer(1, 4096), 1],
            "samplers": GPUS,
            "staleness": STALENESS,
            "costs": COSTS,
        },
    ),
    "schedule.switching": Entry(
        lambda: S.switching,
        lambda: {"times": stages(), "trainers": [1, 2]},
        {
            "times": TIMES,
            "trainers": GPUS,
            "samplers": integer(1, 4095),
            "staleness": STALENESS,
            "costs": COSTS,
        },
    ),
    "schedule.one_gpu": Entry(
        lambda: S.one_gpu,
        lambda: {"times": stages(), "baselines": {"other": stages()}},
        {"times": TIMES, "baselines": [*BASELINES, None], "costs": COSTS},
    ),
    "schedule.pipelining": Entry(
        lambda: S.pipelining,
        lambda: {"times": {1: stages(), 2: stages()}, "demand": {2: {"train": 0.5}}},
        {
            "times": [None, 3, "ab", [1], {}, {0: 1}, {1: 1}, {"a": None}, {True: 3}, THING, HOSTILE],
            "demand": [3, "ab", [1], {1: 3}, {1: {"nope": 1}}, {1: {"train": 2}}, THING, HOSTILE],
            "capacity": integer(1),
        },
    ),
}  # fmt: skip


def mechanism(name: str) -> Callable[[], Any]:
    import gnnsample_lab.steps as stepped

    return getattr(stepped, name)


_STEPPED = {"mechanism": choice(), "broken": [v for v in choice(none=True) if v is not None]}
TABLE |= {
    "steps.run": Entry(
        lambda: mechanism("run"),
        lambda: {"mechanism": "insert into Fused-Map"},
        {**_STEPPED, "graph": [v for v in graph() if v is not None]},
    ),
    "steps.mutations": Entry(
        lambda: mechanism("mutations"), lambda: {"mechanism": "claim a slot"}, {"mechanism": choice()}
    ),
}

RECORD = "a record that the library makes; whoever reads it checks it"
NO_ARGUMENTS = "takes no arguments"
ERROR = "an error class"
OF_RANKS = "works among ranks; refused arguments are in tests/distributed/sampling/test_ladder.py"
NOT_IN_THE_TABLE = {
    "UnknownDatasetError": ERROR, "DatasetNotFoundError": ERROR, "CorruptDataError": ERROR, "DownloadError": ERROR,
    "SamplingAppError": ERROR, "NULL": "a constant", "INF": "a constant", "__version__": "a constant",
    "SamplingType": "an enumeration", "strategies": NO_ARGUMENTS, "id_maps": NO_ARGUMENTS,
    "aggregation_kernels": NO_ARGUMENTS, "systems": NO_ARGUMENTS, "apps": "a module; its classes are in the table",
    "distributed": "a module; its functions are in the table",
    "distributed.Partition": RECORD, "distributed.Part": RECORD, "distributed.HotLists": RECORD,
    "distributed.UnevenPartsError": ERROR, "distributed.RankError": ERROR,
    "distributed.join": "needs what torchrun sets; refused arguments are in tests/distributed/ranks/test_launch.py",
    "distributed.presample": "a function of ranks; its arguments are in tests/distributed/features/test_features.py",
    "distributed.MemorySplit": RECORD, "distributed.methods": NO_ARGUMENTS, "distributed.Sampler": OF_RANKS,
    "distributed.LayerSampler": OF_RANKS, "distributed.Walker": OF_RANKS, "distributed.Traffic": OF_RANKS,
    "distributed.traffic_of": OF_RANKS, "distributed.edges_of": OF_RANKS, "distributed.united": OF_RANKS,
    "schedule.against_gnnlab": NO_ARGUMENTS, "schedule.run_of": RECORD,
    "schedule": "a module; its functions are in the table",
    "HopPicks": RECORD, "AppResult": RECORD, "MiniBatch": RECORD, "Block": RECORD, "Hotness": RECORD,
    "Footprint": RECORD,
    "SampleTrace": "built by from_tasks and load, which are in the table",
    "SamplingApp": "a base class; its functions are called by the library, which checks what they return",
}  # fmt: skip


def _label(value: Any) -> str:
    if isinstance(value, (Hostile, Made)):
        return type(value).__name__.lower()
    try:
        name = re.sub(r"0x[0-9a-f]+", "", repr(value))
    except RuntimeError:
        return "hostile within"
    return re.sub(r"\s+", " ", name)[:40]


def problem(entry: Entry, parameter: str, value: Any) -> str | None:
    """What is wrong with how ``value`` is refused, or None."""
    call, arguments = entry.call(), {**entry.good(), parameter: value}
    try:
        returned = call(**arguments)
    except TYPED as error:
        raised = error
    except Exception as error:
        return f"is the untyped {error!r}"
    else:
        return f"was accepted and gave {type(returned).__name__}"
    is_file = parameter == "path" and isinstance(value, str)  # errors of files name the file
    if not re.search(rf"(?<!\w){parameter}(?!\w)", str(raised)) and not (is_file and value in str(raised)):
        return f"is not named by {type(raised).__name__}: {raised}"
    innermost = traceback.extract_tb(raised.__traceback__)[-1].filename
    if not (innermost.startswith(PACKAGE) or "unexpected keyword argument" in str(raised)):
        return f"is an error of {innermost}: {raised!r}"
    return None


PARAMETERS = [(name, parameter) for name, entry in TABLE.items() for parameter in entry.kinds]


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_bad_arguments_are_errors_that_name_them(name: str, parameter: str) -> None:
    entry, found = TABLE[name], []
    for wrong in entry.kinds[parameter]:
        value = wrong.make() if isinstance(wrong, Made) else wrong
        what = problem(entry, parameter, value)
        if what is not None:
            found.append(f"{parameter}={_label(value)} {what}")
    assert not found, "\n".join(found)


def test_the_table_is_large_enough() -> None:
    assert sum(len(wrong) for entry in TABLE.values() for wrong in entry.kinds.values()) >= 500


@pytest.mark.parametrize("name", TABLE)
def test_the_working_arguments_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every case of the entry could fail for another reason than its bad value."""
    entry = TABLE[name]
    arguments = entry.good()
    if name in ("SampleTrace.save", "SampleTrace.load", "SampleTrace.to_perfetto"):
        arguments["path"] = trace().save(tmp_path / "trace.npz")
    if name == "apps.MVS.probability":
        arguments["graph"] = small()
    if name.startswith("load"):
        arguments |= (
            {"root": tmp_path, "use_cache": False} if name == "load" else {"root": tmp_path, "scale": 0.001}
        )
    entry.call()(**arguments)


def _public_callables() -> Iterator[tuple[str, Any]]:
    for name in lab.__all__:
        value = getattr(lab, name)
        if callable(value) and not isinstance(value, types.ModuleType):
            yield name, value
    for name in lab.apps.__all__:
        yield f"apps.{name}", getattr(lab.apps, name)
    for name in lab.distributed.__all__:
        value = getattr(lab.distributed, name)
        if not isinstance(value, types.ModuleType):
            yield f"distributed.{name}", value
    for name in lab.schedule.__all__:
        yield f"schedule.{name}", getattr(lab.schedule, name)


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods of a class that take arguments."""
    for name, value in inspect.getmembers(kind, callable):
        if name.startswith("_") or isinstance(value, type) or issubclass(kind, Exception):
            continue
        parameters = [p for p in inspect.signature(value).parameters if p != "self"]
        if parameters and not name.startswith("__"):
            yield name, value


def test_nothing_public_is_missing_in_the_table() -> None:
    missing = [n for n, _ in _public_callables() if n not in TABLE and n not in NOT_IN_THE_TABLE]
    missing += [n for n in lab.__all__ if n not in TABLE and n not in NOT_IN_THE_TABLE]
    for name, kind in _public_callables():
        # Applications override functions of SamplingApp, which the library calls.
        known = {m for m, _ in _methods(lab.SamplingApp)} if name.startswith("apps.") else set()
        if isinstance(kind, type) and name not in ("SamplingApp", "SamplingType"):
            # Asked by AppResult.adjacency and AppResult.transits.
            known |= {"layer_probability", "kept_transits"} if name.startswith("apps.") else set()
            missing += [
                f"{name}.{m}"
                for m, _ in _methods(kind)
                if m not in known and f"{name}.{m}" not in TABLE and NOT_IN_THE_TABLE.get(name) != OF_RANKS
            ]
    assert not missing, missing
    assert not set(NOT_IN_THE_TABLE) - {*lab.__all__, *(name for name, _ in _public_callables())}


def test_every_parameter_is_in_the_table() -> None:
    missing = []
    for name, entry in TABLE.items():
        if ", " in name:
            continue
        parameters = set(inspect.signature(entry.call()).parameters)
        missing += [f"{name}({p})" for p in parameters - set(entry.kinds) - set(entry.open)]
        assert not set(entry.kinds) - parameters - {"num_workers"}, name
    assert not missing, missing


# ---- docstrings -----------------------------------------------------------------------------------------------


def _documented() -> Iterator[Any]:
    """Public functions and methods that take arguments, and so refuse some."""
    for name in TABLE:
        if ", " not in name:
            places = {
                "apps": lab.apps,
                "distributed": lab.distributed,
                "pyg": PYG,
                "schedule": lab.schedule,
                "steps": steps,
            }
            first, _, rest = name.partition(".")
            place, within = (places[first], rest) if first in places else (lab, name)
            head, _, method = within.partition(".")
            value = getattr(place, head)
            yield pytest.param(getattr(value, method) if method else value, id=name)


@pytest.mark.parametrize("function", list(_documented()))
def test_docstrings_say_what_arguments_are_and_what_is_raised(function: Any) -> None:
    doc = inspect.getdoc(function) or ""
    is_record = isinstance(function, type) and function is lab.Graph  # its arguments are its attributes
    assert "Attributes:" in doc if is_record else "Args:" in doc
    is_app = isinstance(function, type) and issubclass(function, lab.SamplingApp)
    if not is_app:  # every application raises the same, as lab.apps says
        assert "Raises:" in doc
