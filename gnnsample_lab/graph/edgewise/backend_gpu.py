"""Synthetic graphs on the GPU: the kernels of ``synthetic.cu``, sorting by CuPy's radix sort."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.device.kernels import load_module
from gnnsample_lab.device.runtime import gpu_memory, num_sms
from gnnsample_lab.graph.csc import key_bits
from gnnsample_lab.graph.edgewise.plan import RANKS, Plan, RmatPlan, bijection, feature_signal

_THREADS = 256


def bytes_needed(num_nodes: int, num_edges: int, id_bytes: int = 4) -> int:
    """Least free GPU memory for building a graph: its topology, degrees, and room for a useful pass."""
    topology = num_edges * id_bytes + num_nodes * 24
    return int(1.15 * topology) + 2**28 + 2 * 8 * min(2 * num_edges, 1 << 26)


class GpuBackend:
    """See :class:`gnnsample_lab.graph.edgewise.assemble.Backend`."""

    chunk = 1 << 26

    def __init__(self, max_keys: int | None = None) -> None:
        import cupy

        self.xp: Any = cupy
        self.max_keys = max_keys
        self._module = load_module("graph/edgewise/synthetic.cu")

    def key_budget(self, plan: Plan) -> int:
        if self.max_keys is not None:
            return self.max_keys
        # The radix sort needs a second buffer; a chunk of temporaries is live after it.
        free, _ = gpu_memory()
        return int((free - 40 * self.chunk) * 0.9) // 16 if free > 60 * self.chunk else free // 64

    def release(self) -> None:
        # Sorting leaves several times the graph's size in CuPy's pool, where PyTorch cannot use it.
        self.xp.get_default_memory_pool().free_all_blocks()

    def _launch(self, kernel: str, count: int, *args: Any) -> None:
        grid = max(1, min((count + _THREADS - 1) // _THREADS, 16 * num_sms()))
        self._module.get_function(kernel)((grid,), (_THREADS,), args)

    def _draw_args(self, plan: Plan, num_draws: int) -> tuple[str, tuple[Any, ...]]:
        scatter = self.xp.asarray(bijection(plan.num_nodes, plan.seed, RANKS))
        head = (np.int64(num_draws), np.uint64(plan.seed), scatter)
        if isinstance(plan, RmatPlan):
            return "rmat", (*head, np.uint32(plan.levels), *(np.uint32(t) for t in plan.thresholds))
        starts = self.xp.asarray(np.array(plan.starts, dtype=np.int64))
        numbers = (plan.num_classes, plan.same, plan.dst_power, plan.src_power, plan.dst_flat, plan.src_flat)
        return "community", (*head, starts, *(np.uint32(x) for x in numbers))

    def keys(self, plan: Plan, num_draws: int, low: int, high: int, count: int) -> Any:
        kind, args = self._draw_args(plan, num_draws)
        whole = (low, high) == (0, plan.num_nodes)
        out = self.xp.empty(count, dtype=np.int64)
        cursor = self.xp.zeros(1, dtype=np.uint64)
        self._launch(
            f"{kind}_keys", num_draws, *args, np.uint32(key_bits(plan.num_nodes)), np.int32(plan.symmetric),
            np.int64(low), np.int64(high), np.int32(whole), cursor, out,
        )  # fmt: skip
        return out

    def histogram(self, plan: Plan, num_draws: int, shift: int, blocks: int) -> np.ndarray:
        kind, args = self._draw_args(plan, num_draws)
        counts = self.xp.zeros(blocks, dtype=np.uint64)
        self._launch(
            f"{kind}_histogram", num_draws, *args, np.int32(plan.symmetric), np.uint32(shift), counts
        )
        result: np.ndarray = counts.get().astype(np.int64)
        return result

    def features(
        self, labels: Any, num_classes: int, num_features: int, seed: int, signal: int | None = None
    ) -> Any:
        """float32[N, F]: class centroids, ``signal`` / 128 from 0 in every column, plus noise."""
        signal = feature_signal(num_features) if signal is None else signal
        out = self.xp.empty((len(labels), num_features), dtype=np.float32)
        self._launch(
            "class_features", len(labels) * ((num_features + 3) // 4), np.int64(len(labels)),
            np.uint32(num_features), np.uint32(signal), np.uint64(seed), labels, out,
        )  # fmt: skip
        return out

    def weights(self, src: Any, dst: Any, seed: int, low: float, high: float) -> Any:
        """float32[E] in ``[low, high)`` by the pair (src, dst)."""
        out = self.xp.empty(len(src), dtype=np.float32)
        for start in range(0, len(src), self.chunk):
            stop = min(start + self.chunk, len(src))
            self._launch(
                "pair_weights", stop - start, np.int64(stop - start), src[start:stop].astype(np.int64),
                dst[start:stop].astype(np.int64), np.uint64(seed), np.float32(low),
                np.float32((high - low) / 2**20), out[start:stop],
            )  # fmt: skip
        return out
