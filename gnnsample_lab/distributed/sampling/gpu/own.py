"""Lists of one's own part on a GPU, for walks and layers by exchanges (DSP, section 4.2): the kernels of ``own.cu``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels, runtime, streams
from gnnsample_lab.sampling.neighbors.plan import PLAN, as_argument

from ..layout import Layout
from ..reading import WalkRule, largest_weights
from .apps import words_below
from .csp import one_stream
from .csp_core import DevicePart

_THREADS, _BLOCKS_PER_SM = 256, 8
_KERNELS = (
    "owners", "count_peers", "place_peers", "move", "set_out", "draw_slots", "total_weights", "neighbors_at",
)  # fmt: skip
ROWS = np.dtype([("new_of", "u8"), ("boundaries", "u8"), ("most", "u8"), ("lower", "i8"), ("parts", "i8")])
"""``Rows`` of ``own.cu``."""


class DeviceOwnLists:
    """As :class:`~..own.OwnLists`, CuPy; the part lies in this GPU's memory. All ranks make them together.

    Args:
        layout: whose part.
        weighted: whether weights count.
        key: of the draws, as ``int64``.

    Raises:
        ValueError: more parts than :data:`~.csp_kernels.MAX_PEERS`.
    """

    def __init__(self, layout: Layout, weighted: bool, key: Any) -> None:
        import cupy

        self.xp: Any = cupy
        self.exchange = layout.exchange
        with self.working():
            for ranks in (layout.exchange, layout.world):
                ranks.connect()
            part = self._part = DevicePart(layout.part, layout.partition, 0, 0, weighted=weighted)
            most = largest_weights(layout.part).astype(np.uint64) if weighted else np.zeros(1, np.uint64)
            self._most = cupy.asarray(most)
        plan, rows = np.zeros(1, dtype=PLAN), np.zeros(1, dtype=ROWS)
        plan["indptr"], plan["indices"] = part.indptr.data.ptr, part.indices.data.ptr
        plan["seed"] = np.asarray(key, dtype=np.int64).view(np.uint64)
        if part.weights is not None:
            plan["prefix"] = part.weights.prefix.data.ptr
        rows["new_of"], rows["boundaries"], rows["most"] = (
            part.new_of_ptr,
            part.boundaries_ptr,
            self._most.data.ptr,
        )
        rows["lower"], rows["parts"] = part.lower, part.parts
        self._keep = plan, rows
        self._plan, self._rows = as_argument(plan), as_argument(rows)
        id_type = "int" if part.indices.dtype.itemsize == 4 else "long"
        macros: dict[str, int | str] = {"ID_T": id_type, "LISTS": 0, "RULE": 4 if weighted else 2}
        module = kernels.load_module("distributed/sampling/gpu/own.cu", macros)
        self._kernels = {name: module.get_function(name) for name in _KERNELS}

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Kernels and collectives in one order: on CuPy's current stream, which is torch's inside."""
        with runtime.lock, streams.call(), one_stream():
            yield

    def _launch(self, name: str, items: int, *args: Any) -> None:
        if items:
            blocks = max(1, min(_BLOCKS_PER_SM * runtime.num_sms(), -(-items // _THREADS)))
            self._kernels[name]((blocks,), (_THREADS,), args)

    def owners(self, vertices: Any) -> Any:
        peers = self.xp.empty(vertices.size, np.int32)
        self._launch("owners", peers.size, self._rows, vertices, np.int64(peers.size), peers)
        return peers

    def by_peer(self, peers: Any, size: int) -> tuple[Any, np.ndarray]:
        kinds, n = size + 1, np.int64(peers.size)
        peers = self.xp.ascontiguousarray(peers, dtype=np.int32)
        words, order = self.xp.zeros((2, kinds), np.int64), self.xp.empty(peers.size, np.int64)
        self._launch("count_peers", peers.size, peers, n, np.int32(kinds), words[0])
        self._launch("place_peers", peers.size, peers, n, np.int32(kinds), words[0], words[1], order)
        return order, words[0].get()

    def move(self, walks: Any, at: Any, first: int, step: int, rule: WalkRule) -> Any:
        came = self.xp.empty(at.size, at.dtype)
        self._launch(
            "move", at.size, self._plan, self._rows, walks, at, np.int64(at.size), np.int64(first),
            np.int64(rule.per_sample), np.int64(step), words_below(rule.termination), came,
        )  # fmt: skip
        return came

    def set_out(self, walks: Any, at: Any, roots: Any, first: int, step: int, rule: WalkRule) -> None:
        self._launch(
            "set_out", at.size, self._plan, walks, at, np.int64(at.size), np.int64(first), np.int64(rule.per_sample),
            np.int64(step), words_below(rule.restart), roots,
        )  # fmt: skip

    def draws(self, slots: Any, bound: int, sample: int, step: int, size: int, attempt: int) -> Any:
        out = self.xp.empty(slots.size, np.int64)
        given = map(np.int64, (slots.size, bound, sample, step, size, attempt))
        self._launch("draw_slots", slots.size, self._plan, slots, *given, out)
        return out

    def totals(self, vertices: Any) -> Any:
        out = self.xp.empty(vertices.size, np.int64)
        self._launch("total_weights", out.size, self._plan, self._rows, vertices, np.int64(out.size), out)
        return out

    def neighbors(self, vertices: Any, inner: Any) -> Any:
        out = self.xp.empty(vertices.size, vertices.dtype)
        self._launch(
            "neighbors_at", out.size, self._plan, self._rows, vertices, inner, np.int64(out.size), out
        )
        return out
