"""Lists of all parts for walks and layers on a GPU, by the memory that ``direct`` shares between ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.sampling.neighbors.plan import PLAN, as_argument
from gnnsample_lab.sampling.neighbors.spec import make_spec

from ..engines import Setup
from ..layout import Layout
from ..reading import WalkRule, largest_weights
from .direct import DirectEngine

_THREADS = 128
_BLOCKS_PER_SM = 16


class DeviceLists:
    """As :class:`~..reading.Lists`, CuPy; kernels read lists at their owners. All ranks make one together.

    Args:
        layout: whose parts.
        weighted: whether weights count.
        key: of the draws, as ``int64``.
    """

    def __init__(self, layout: Layout, weighted: bool, key: Any) -> None:
        import cupy

        self.xp: Any = cupy
        spec = make_spec([1], "floyd", True, weighted, "frontier", 0)
        self._engine = DirectEngine(Setup("direct", spec, layout))
        graph = self._engine.graph
        plan = np.zeros(1, dtype=PLAN)
        plan["indptr"], plan["num_nodes"] = graph.indptr.data.ptr, graph.num_nodes
        plan["seed"] = np.asarray(key, dtype=np.int64).view(np.uint64)
        self._plan = plan, as_argument(plan)
        self._most = cupy.zeros(1, np.uint64)
        if weighted:
            every = layout.exchange.all_gather("records", largest_weights(layout.part))
            most = np.empty(layout.num_nodes, np.uint64)
            most[layout.partition.old_of] = np.concatenate(every).astype(np.uint64)
            self._most = cupy.asarray(most)
        id_type, rule = "int" if graph.id_dtype.itemsize == 4 else "long", 4 if weighted else 2
        macros: dict[str, int | str] = {"ID_T": id_type, "LISTS": graph.lists, "RULE": rule}
        module = kernels.load_module("distributed/sampling/gpu/apps.cu", macros)
        self._walk, self._totals, self._slots = (
            module.get_function(n) for n in ("walk", "totals", "draw_slots")
        )

    def _launch(self, kernel: Any, items: int, *args: Any) -> None:
        if items:
            blocks = max(1, min(_BLOCKS_PER_SM * runtime.num_sms(), -(-items // _THREADS)))
            kernel((blocks,), (_THREADS,), (self._plan[1], *args))

    def totals(self, vertices: Any) -> Any:
        found = self.xp.empty(vertices.size, np.int64)
        self._launch(self._totals, vertices.size, vertices, np.int64(vertices.size), found)
        return found

    def draw(
        self,
        slots: Any,
        starts: Any,
        vertices: Any,
        batch_id: int,
        step: int,
        size: int,
        attempt: int,
        key: Any,
    ) -> tuple[Any, Any]:
        names, transits = self.xp.empty(slots.size, vertices.dtype), self.xp.empty(slots.size, np.int64)
        self._launch(
            self._slots, slots.size, slots, np.int64(slots.size), starts, vertices, np.int64(vertices.size),
            np.uint64(batch_id), np.int64(step), np.uint32(size), np.uint32(attempt), names, transits,
        )  # fmt: skip
        return names, transits

    def walk(
        self, roots: Any, samples: Any, at: Any, attempted: Any, begin: int, steps: int, rule: WalkRule
    ) -> Any:
        out = self.xp.empty((steps, at.size), at.dtype)
        self._launch(
            self._walk, at.size, roots, samples, at, attempted, out, self._most, np.int64(at.size),
            np.int64(rule.per_sample), np.int64(begin), np.int32(steps), _below(rule.termination), _below(rule.restart),
        )  # fmt: skip
        return out

    def close(self) -> None:
        self._engine.close()


def _below(probability: float) -> Any:
    """The words below this number have the probability; -1 for a negative one."""
    return np.int64(-1 if probability < 0 else np.floor(probability * 4294967296.0))
