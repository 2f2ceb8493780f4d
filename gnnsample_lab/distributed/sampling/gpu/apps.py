"""Lists of all parts for walks and layers on a GPU, by the memory that ``direct`` shares between ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.sampling.engine.shape import UNBOUNDED_STEPS
from gnnsample_lab.sampling.neighbors.lists import LOCAL_RECORDS, ListsGraph
from gnnsample_lab.sampling.neighbors.plan import PLAN, as_argument
from gnnsample_lab.sampling.neighbors.spec import make_spec

from ..engines import Setup
from ..layout import Layout
from ..reading import DrawnLayer, WalkRule, largest_weights
from .direct import DirectEngine

_THREADS, _LAYER_THREADS = 128, 1024
_BLOCKS_PER_SM = 16
_LAYERS_AT_ONCE = 16
"""Layers between two looks whether the sample is full."""
_LAYERS = np.dtype([
    *((name, "i8") for name in ("sample", "final_size", "step_size", "total", "step", "n", "mine")),
    ("attempts", "i4"), ("most", "i4"), ("mask", "u4"), ("unused", "u4"), ("last", "u8", (2, 3)),
    *((name, "u8") for name in ("starts", "transits", "names", "pending", "keys", "best", "slots", "vertices", "from")),
    ("counts", "u8"),
])  # fmt: skip
"""``Layers`` of ``apps.cu``."""


def device_lists(layout: Layout, weighted: bool, key: Any) -> DeviceLists:
    """Lists of all parts for this rank's GPU; all ranks make them together.

    Args:
        layout: whose parts.
        weighted: whether weights count.
        key: of the draws, as ``int64``.
    """
    engine = DirectEngine(Setup("direct", make_spec([1], "floyd", True, weighted, "frontier", 0), layout))
    most = None
    if weighted:
        every = layout.exchange.all_gather("records", largest_weights(layout.part))
        most = np.empty(layout.num_nodes, np.uint64)
        most[layout.partition.old_of] = np.concatenate(every).astype(np.uint64)
    return DeviceLists(engine.graph, key, most, engine.close)


class DeviceLists:
    """As :class:`~..reading.Lists`, CuPy; kernels read lists where they lie.

    Args:
        graph: all lists.
        key: of the draws, as ``int64``.
        most: the largest integer weight of each vertex' list, ``uint64[N]``; None where edges count alike.
        close: gives back what others may read.
    """

    def __init__(
        self, graph: ListsGraph, key: Any, most: np.ndarray | None, close: Callable[[], None] = lambda: None
    ) -> None:
        import cupy

        self.xp: Any = cupy
        self._graph, self.close = graph, close
        plan = np.zeros(1, dtype=PLAN)
        plan["indptr"], plan["num_nodes"] = graph.indptr.data.ptr, graph.num_nodes
        plan["seed"] = np.asarray(key, dtype=np.int64).view(np.uint64)
        if most is not None and graph.lists == LOCAL_RECORDS and graph.weights is not None:
            weights = graph.weights
            plan["prefix"], plan["available"] = weights.prefix.data.ptr, weights.available.data.ptr
        self._plan = plan, as_argument(plan)
        self._most = cupy.zeros(1, np.uint64) if most is None else cupy.asarray(most)
        id_type, rule = "int" if graph.id_dtype.itemsize == 4 else "long", 2 if most is None else 4
        macros: dict[str, int | str] = {"ID_T": id_type, "LISTS": graph.lists, "RULE": rule}
        module = kernels.load_module("distributed/sampling/gpu/apps.cu", macros)
        self._walk, self._layers = (module.get_function(n) for n in ("walk", "draw_layers"))

    def _launch(self, kernel: Any, items: int, *args: Any) -> None:
        if items:
            blocks = max(1, min(_BLOCKS_PER_SM * runtime.num_sms(), -(-items // _THREADS)))
            kernel((blocks,), (_THREADS,), (self._plan[1], *args))

    def layers(
        self, seeds: np.ndarray, whose: np.ndarray, mine: int, app: Any, batch_id: int
    ) -> list[DrawnLayer]:
        xp, ids = self.xp, self._graph.id_dtype
        step, total, n = int(app.step_size), int(seeds.size), int(seeds.size)
        wide = max(n, min(step, app.final_size))
        capacity = 1 << (2 * min(step, app.final_size)).bit_length()
        record = np.zeros(1, _LAYERS)
        q = record[0]
        q["sample"], q["final_size"], q["step_size"], q["mine"] = batch_id, app.final_size, step, mine
        q["attempts"], q["mask"] = 0 if app.replace else app.max_redraws + 1, capacity - 1
        sides = [(xp.empty(wide, ids), xp.empty(wide, np.int64), xp.empty(wide, np.int64)) for _ in range(2)]
        for to, given in zip(sides[0], (seeds.astype(ids), np.arange(n), whose), strict=True):
            to[:n] = xp.asarray(given)
        starts, chosen = xp.empty(wide + 1, np.int64), xp.empty(step, np.int64)
        names, pending = xp.empty(step, ids), xp.empty(step, np.uint32)
        table = xp.empty((2, 1 if app.replace else capacity), np.uint64)
        for name, array in (
            ("starts", starts), ("transits", chosen), ("names", names), ("pending", pending), ("keys", table[0]),
            ("best", table[1]),
        ):  # fmt: skip
            q[name] = array.data.ptr
        found: list[DrawnLayer] = []
        while total < app.final_size and n:
            if len(found) >= UNBOUNDED_STEPS:
                raise RuntimeError(f"the sample did not end within {UNBOUNDED_STEPS} layers")
            most = min(_LAYERS_AT_ONCE, -(-(app.final_size - total) // step))
            slots, vertices = xp.empty((most, step), np.int64), xp.empty((most, step), ids)
            places, counts = xp.empty((most, step), np.int64), xp.full((most, 2), -1, np.int64)
            q["total"], q["step"], q["n"], q["most"] = total, len(found), n, most
            q["last"] = [tuple(array.data.ptr for array in side) for side in sides]
            q["slots"], q["vertices"], q["from"], q["counts"] = (
                array.data.ptr for array in (slots, vertices, places, counts)
            )
            self._layers((1,), (_LAYER_THREADS,), (self._plan[1], as_argument(record.copy())))
            drawn = counts.get()
            drawn = drawn[drawn[:, 0] >= 0]
            for i, (n, own) in enumerate(drawn.tolist()):
                found.append(DrawnLayer(slots[i, :own], vertices[i, :own], places[i, :own]))
                total += n
            if len(drawn) & 1:
                sides.reverse()
        return found

    def walk(
        self, roots: Any, samples: Any, at: Any, attempted: Any, begin: int, steps: int, rule: WalkRule
    ) -> Any:
        out = self.xp.empty((steps, at.size), at.dtype)
        self._launch(
            self._walk, at.size, roots, samples, at, attempted, out, self._most, np.int64(at.size),
            np.int64(rule.per_sample), np.int64(begin), np.int32(steps), words_below(rule.termination),
            words_below(rule.restart),
        )  # fmt: skip
        return out


def words_below(probability: float) -> Any:
    """The words below this number have the probability; -1 for a negative one."""
    return np.int64(-1 if probability < 0 else np.floor(probability * 4294967296.0))
