"""What kernels of the engine are told (``context.cuh`` on this side), and what of it is kept between runs."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime, streams
from gnnsample_lab.sampling.weights import integer_weights

from .language.compile import MAX_TABLES

APP_PLAN = np.dtype([
    *((name, np.int64) for name in (
        "indptr", "indices", "weight", "prefix", "max_weight", "roots", "transits", "out", "history", "widths",
        "sizes", "status",
    )),
    ("seed", np.uint64), ("first_sample", np.uint64),
    *((name, np.int64) for name in (
        "num_nodes", "num_samples", "num_roots", "step", "num_transits", "size", "combined_begin", "combined",
        "combined_prefix", "staged_begin", "staged_end", "staged",
    )),
    ("keys", np.uint64, 10),
    ("tables", [("data", np.int64), ("length", np.int64)], MAX_TABLES),
])  # fmt: skip
"""``AppPlan`` of ``context.cuh``."""
CLEAR = 2**64 - 1
"""The status word while nothing has failed."""
_READS_WEIGHT = frozenset({"lab_edge_weight", "lab_neighbor_weight"})
_kept: dict[int, tuple[Any, Any, dict[str, Any]]] = {}


def round_keys(seed: int) -> np.ndarray:
    """Keys of the generator's ten rounds (``device/philox.cuh``), ``uint64[10]``, the first word low."""
    low, high = seed & 0xFFFFFFFF, seed >> 32
    keys = [
        (low + r * 0x9E3779B9 & 0xFFFFFFFF) | (high + r * 0xBB67AE85 & 0xFFFFFFFF) << 32 for r in range(10)
    ]
    return np.array(keys, np.uint64)


def weights(engine: Any, edge_weight: Any) -> tuple[Any, Any, Any]:
    """Integer weights on the GPU: their prefix sums, themselves and the largest of every vertex.

    ``uint64[E + 1]``, ``uint32[E]`` and ``uint32[N]``, the last two None where ``next`` does not read them. They are
    kept while the graph lives, for runs with the same ``edge_weight``.
    """
    import cupy

    graph, uses = engine.graph, engine.operator.uses
    held = _kept_with(graph, edge_weight)
    streams.order(edge_weight, *held.values())
    if "prefix" not in held:
        with streams.leasing():
            held["prefix"] = integer_weights(graph.indptr, cupy.asarray(edge_weight)).prefix
    if "weight" not in held and uses & _READS_WEIGHT:
        with streams.leasing():
            held["weight"] = cupy.diff(held["prefix"]).astype(np.uint32)
    if "max_weight" not in held and "lab_max_weight" in uses:
        most = streams.empty(graph.num_nodes, np.uint32, streams.Ready())
        kernel = kernels.load_module("sampling/engine/weights.cu").get_function("max_weights")
        args = (graph.indptr, held["prefix"], np.int64(graph.num_nodes), most)
        kernel(engine.grid(graph.num_nodes * 32), (256,), args)
        held["max_weight"] = most  # only now: an interrupt before would leave it unfilled
    return held["prefix"], held.get("weight"), held.get("max_weight")


def _kept_with(graph: Any, edge_weight: Any) -> dict[str, Any]:
    key = id(graph)
    held = _kept.get(key)
    if held is None or held[0]() is not graph or held[1] is not edge_weight:
        held = _kept[key] = (weakref.ref(graph, lambda _: _kept.pop(key, None)), edge_weight, {})
    return held[2]


def streamed(graph: Any, operator: Any, edge_weight: Any, graph_bytes: int) -> Any:
    """The graph as it is sampled from when only ``graph_bytes`` of its edges may lie on the GPU."""
    from .streaming.run import StreamedGraph

    whole = None
    if edge_weight is not None:
        whole = integer_weights(_on_host(graph.indptr), _on_host(edge_weight))
    return StreamedGraph(graph, graph_bytes, operator, whole)


def _on_host(array: Any) -> np.ndarray:
    return array.get() if runtime.is_cuda_array(array) else np.asarray(array)


class Timed:
    """Two events around launches, whose distance becomes an entry of a record; nothing where no list is given."""

    def __init__(self, events: list[Any] | None, record: dict[str, Any], name: str) -> None:
        self._events, self._record, self._name = events, record, name

    def __enter__(self) -> None:
        if self._events is not None:
            import cupy

            self._begin, self._end = cupy.cuda.Event(), cupy.cuda.Event()
            self._begin.record()

    def __exit__(self, *_: Any) -> None:
        if self._events is not None:
            self._end.record()
            self._events.append(self)

    def close(self) -> None:
        """Wait for the second event and add the microseconds to the record."""
        import cupy

        self._end.synchronize()
        us = 1e3 * float(cupy.cuda.get_elapsed_time(self._begin, self._end))
        self._record[self._name] = self._record.get(self._name, 0.0) + us
