"""GNNLab's other two samplers: weighted draws against its alias tables, and PinSAGE's walks beside their kernels.

"draws": a kernel with a thread a pick, for the frontier of each hop of recorded mini-batches; the two ways draw other
picks of the same distribution. "PinSAGE": wall time of a mini-batch, and how long it occupies the GPU.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.device import kernels, philox
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.device.jit import njit, prange
from gnnsample_lab.sampling.neighbors.guide import RECORD_BYTES, with_guide
from gnnsample_lab.sampling.weights import IntegerWeights, integer_weights

GRAPHS = ("products-like", "reddit-like", "twitter-like@0.1")
SIZES = (1024, common.BATCH)
"""Seeds of PinSAGE's mini-batches."""
TOGETHER = 32
ALIAS_BYTES = 8
_BATCHES, _CALLS, _PROFILED = 4, 16, 5
_CHECKED = 4096
"""Rows of a frontier whose picks are compared with the twin's."""
_THREADS = 256
_DRAW = np.dtype({
    "names": ["frontier", "n", "k", "batch", "seed", "indptr", "indices", "out"],
    "formats": [np.uint64, np.uint64, np.uint32, np.uint32, np.uint64, np.uint64, np.uint64, np.uint64],
})  # fmt: skip
"""``Draw`` of ``weighted.cu``."""


@njit(parallel=True, cache=True)
def alias_tables(indptr, prefix):  # type: ignore[no-untyped-def]
    """Vose's tables of every list: ``keep`` (``uint32[E]``, shares of 2**32) and ``alias`` (``int32[E]``, places).

    A draw takes a place of the list, and keeps it with the place's share, else it takes the place's alias. The tables
    hold weights to 2**-32 of the list's mean.
    """
    num_edges = prefix.size - 1
    keep, alias = np.full(num_edges, 0xFFFFFFFF, np.uint32), np.zeros(num_edges, np.int32)
    for v in prange(indptr.size - 1):
        start, degree = indptr[v], indptr[v + 1] - indptr[v]
        total = float(prefix[start + degree] - prefix[start])
        share = np.empty(degree, np.float64)
        light, heavy = np.empty(degree, np.int32), np.empty(degree, np.int32)
        lights = heavies = 0
        for i in range(degree):
            alias[start + i] = i
            share[i] = float(prefix[start + i + 1] - prefix[start + i]) * degree / total if total > 0 else 1.0
            if share[i] < 1.0:
                light[lights] = i
                lights += 1
            else:
                heavy[heavies] = i
                heavies += 1
        while lights > 0 and heavies > 0:
            lights -= 1
            small, large = light[lights], heavy[heavies - 1]
            keep[start + small] = np.uint32(min(share[small] * 4294967296.0, 4294967295.0))
            alias[start + small] = large
            share[large] -= 1.0 - share[small]
            if share[large] < 1.0:
                heavies -= 1
                light[lights] = large
                lights += 1
    return keep, alias


@njit(parallel=True, cache=True)
def drawn_alias(frontier, k, batch, seed, indptr, indices, keep, alias, out):  # type: ignore[no-untyped-def]
    """Twin of ``draw_alias``: fills ``out`` (``[n, k]``)."""
    for row in prange(frontier.size):
        v = frontier[row]
        start, degree = indptr[v], indptr[v + 1] - indptr[v]
        for pick in range(k):
            out[row, pick] = -1
            if degree > 0:
                r = philox.four(v, batch, 0, philox.REPLACE, pick >> 1, 0, seed)
                w = philox.word(r, 2 * pick)
                slot = philox.bounded(v, batch, 0, philox.REPLACE, 2 * pick, w, degree, seed)
                coin = philox.word(r, 2 * pick + 1)
                place = slot if coin < keep[start + slot] else alias[start + slot]
                out[row, pick] = indices[start + place]


@njit(parallel=True, cache=True)
def drawn_guided(frontier, k, batch, seed, indptr, indices, prefix, out):  # type: ignore[no-untyped-def]
    """Twin of ``draw_guided``, by bisection: fills ``out`` (``[n, k]``)."""
    for row in prange(frontier.size):
        v = frontier[row]
        start, end = indptr[v], indptr[v + 1]
        total = prefix[end] - prefix[start]
        for pick in range(k):
            out[row, pick] = -1
            if total > 0:
                target = prefix[start] + philox.bounded64(v, batch, 0, philox.WEIGHTED, pick, total, seed)
                at = np.searchsorted(prefix[start:end], target, side="right") - 1
                out[row, pick] = indices[start + at]


class Draws:
    """Both ways to draw from one graph's weights, on the GPU; ``alias_s``: how long the host made the tables."""

    def __init__(self, graph: Any) -> None:
        import cupy

        self.graph, self.seed = graph, 0
        self.weights: IntegerWeights = with_guide(
            graph, integer_weights(graph.indptr, graph.edge_weight), RECORD_BYTES * int(graph.num_edges) + 1
        )
        self.host = tuple(to_host(a) for a in (graph.indptr, graph.indices, self.weights.prefix))
        began = time.perf_counter()
        self.keep, self.alias = alias_tables(self.host[0], self.host[2])
        self.alias_s = time.perf_counter() - began
        self._tables = {
            "alias": (cupy.asarray(self.keep), cupy.asarray(self.alias)),
            "guide": (self.weights.prefix, self.weights.guide),
        }

    def work(self, way: str, frontier: Any, k: int, batch: int) -> tuple[Any, Callable[[], None]]:
        """The array ``[n, k]`` of picks, and what fills it: one launch."""
        import cupy

        graph, rows = self.graph, frontier.astype(self.graph.indices.dtype, copy=False)
        out = cupy.empty((rows.size, k), graph.indices.dtype)
        request = np.zeros((), _DRAW)
        request[()] = (
            rows.data.ptr, rows.size, k, batch, self.seed, graph.indptr.data.ptr, graph.indices.data.ptr, out.data.ptr,
        )  # fmt: skip
        packed = np.frombuffer(request.tobytes(), np.dtype(("V", _DRAW.itemsize)))
        macros: dict[str, int | str] = {"ID_T": "int" if graph.indices.dtype.itemsize == 4 else "long"}
        name = "draw_alias" if way == "alias" else "draw_guided"
        kernel = kernels.load_module("bench/suites/gnnlab/weighted.cu", macros).get_function(name).kernel
        grid, tables = (max(1, -(-rows.size * k // _THREADS)),), self._tables[way]

        def launch(rows: Any = rows) -> None:  # keeps the rows, whose address the request holds
            kernel(grid, (_THREADS,), (packed, *tables))

        return out, launch

    def check(self, way: str, frontier: Any, k: int, batch: int) -> None:
        """Compare the picks of the first rows with the twin's.

        Raises:
            VerificationError: one differs.
        """
        few = frontier[:_CHECKED]
        out, launch = self.work(way, few, k, batch)
        launch()
        wanted = np.empty((int(few.size), k), self.host[1].dtype)
        indptr, indices, prefix = self.host
        rows = to_host(few).astype(np.int64)
        if way == "alias":
            drawn_alias(rows, k, batch, self.seed, indptr, indices, self.keep, self.alias, wanted)
        else:
            drawn_guided(rows, k, batch, self.seed, indptr, indices, prefix, wanted)
        if not np.array_equal(to_host(out), wanted):
            raise VerificationError(
                f"{way} on {self.graph.name}: other picks than the twin's; nothing is timed"
            )


def samplers(session: Session) -> dict[str, Any]:
    """The suite's function."""
    session.require_gpu("gnnlab-samplers")
    names = common.names(session, *(GRAPHS[:1] if session.quick else GRAPHS))
    rows: list[dict[str, Any]] = []
    checked = 0
    for name in names:
        draws = Draws(common.graph(session, name))
        batches = common.batches(session, name, _BATCHES, "weighted")
        for hop, k in enumerate(common.FANOUTS):
            frontiers = [batch.picks[hop].frontier for batch in batches]
            found = {}
            for way in ("alias", "guide"):
                draws.check(way, frontiers[0], k, 0)
                checked += min(_CHECKED, int(frontiers[0].size))
                found[way] = timing.spread(_times(draws, way, frontiers, k))
            n = float(np.mean([frontier.size for frontier in frontiers]))
            rows.append({
                "graph": name, "part": "draws", "l2": "cold", "rows": round(n), "picks": round(n * k), "fanout": k,
                "alias_us": found["alias"]["us"], "guide_us": found["guide"]["us"],
                "over_alias": found["alias"]["us"] / found["guide"]["us"], "alias_table_s": draws.alias_s,
                "alias_mb": ALIAS_BYTES * draws.graph.num_edges / 1e6,
                "guide_mb": RECORD_BYTES * draws.graph.num_edges / 1e6,
                "spread": {f"{way}_us": timing.around(one) for way, one in found.items()},
            })  # fmt: skip
            session.say(f"{name}, {round(n)} rows x {k}: {rows[-1]['over_alias']:.2f} x alias tables")
        del draws
        rows += _pinsage(session, name)
    return {
        "settings": {
            "batch_size": common.BATCH, "fanouts": common.FANOUTS, "weights": "of recency, as GNNLab's",
            "draws": "GPU time of a kernel with a thread a pick, with replacement, the L2 flushed before; median of "
            "passes. Making tables and guides is in neither",
            "l2": f"draws: flushed before; PinSAGE: {common.AS_LEFT}, never flushed",
            "walks": "PinSAGESampler as GNNLab released it, 3 layers; wall time of a mini-batch, the GPU idle before "
            f"and finished after, and time in which its kernels and copies run, by the profiler, the median of "
            f"{_PROFILED} passes",
        },
        "verification": {"rows_with_the_twins_picks": checked},
        "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip


def _times(draws: Draws, way: str, frontiers: list[Any], k: int) -> list[float]:
    works = [draws.work(way, frontier, k, i)[1] for i, frontier in enumerate(frontiers)]
    return timing.gpu_times(lambda i: works[i](), len(works))


def _pinsage(session: Session, name: str) -> list[dict[str, Any]]:
    """PinSAGE's mini-batches alone and several in a call, whose samples are compared with those alone."""
    found = common.graph(session, name)
    sampler = common.sampler(found, "walks")
    rows = []
    for size in SIZES[:1] if session.quick else SIZES:
        rng = np.random.default_rng(0)
        train = common.train_seeds(found)
        seeds = [rng.choice(train, min(size, len(train)), replace=False) for _ in range(_CALLS)]
        together = sampler.sample_many(seeds[:2])
        for i, batch in enumerate(together):
            if batch.canonical() != sampler.sample(seeds[i], i).canonical():
                raise VerificationError(f"{name}: PinSAGE's mini-batches of a call differ from those alone")
        for count in (1, TOGETHER):
            groups = [(seeds * -(-count // _CALLS))[:count]] if count > 1 else [[one] for one in seeds]
            work = functools.partial(_sampled, sampler, groups)
            times = timing.spread([us / count for us in timing.wall_times(work, len(groups))])
            # A call that needs more memory is sampled twice; the median leaves it out.
            seen = [timing.busy_us(work, len(groups)) for _ in range(_PROFILED)]
            busy = None if seen[0] is None else statistics.median(us for us in seen if us is not None)
            batch = sampler.sample(seeds[0], 0)
            rows.append({
                "graph": name, "part": "PinSAGE", "l2": common.AS_LEFT, "seeds": size, "together": count,
                "rows": int(batch.num_nodes), "picks": int(sum(p.neighbors.size for p in batch.picks)),
                "us": times["us"], "gpu_us": None if busy is None else busy / count,
                "over_gpu": None if not busy else times["us"] * count / busy,
                "spread": {"us": timing.around(times)},
            })  # fmt: skip
            session.say(f"{name}, PinSAGE, {size} seeds, {count} in a call: {times['us']:.0f} us")
    return rows


def _sampled(sampler: Any, groups: list[list[Any]], i: int) -> Any:
    return sampler.sample_many(groups[i]) if len(groups[i]) > 1 else sampler.sample(groups[i][0], i)
