"""Synthetic graphs on the CPU: draws by Numba on all cores, sorting by NumPy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gnnsample_lab.device.host import free_host_bytes, usable_cores
from gnnsample_lab.graph.csc import key_bits
from gnnsample_lab.graph.edgewise.plan import (
    RANKS,
    Plan,
    RmatPlan,
    bijection,
    centroid_signs,
    feature_signal,
    seed_words,
)

_BLOCK = 1 << 18
_LEAST_KEYS = 1 << 22
"""Keys of a pass, 32 MB of them: each pass draws all edges anew, and in a full container there would be thousands."""


def spread(task: Callable[[int, int], Any], count: int, block: int = _BLOCK) -> list[Any]:
    """``task(first, last)`` over ``[0, count)`` in blocks, on all cores; results in order."""
    ranges: Iterable[tuple[int, int]] = [(i, min(i + block, count)) for i in range(0, count, block)]
    workers = usable_cores()
    if workers == 1 or count <= block:
        return [task(*r) for r in ranges]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda r: task(*r), ranges))


class CpuBackend:
    """See :class:`gnnsample_lab.graph.edgewise.assemble.Backend`."""

    xp: Any = np
    chunk = 1 << 20  # temporaries of this size stay in the cache

    def __init__(self, max_keys: int | None = None) -> None:
        self.max_keys = max_keys

    def key_budget(self, plan: Plan) -> int:
        if self.max_keys is not None:
            return self.max_keys
        return max(_LEAST_KEYS, free_host_bytes() // 2 // 8)

    def release(self) -> None:
        pass  # NumPy has returned it already

    def _writer(self, plan: Plan) -> Callable[[int, int, int, int, np.ndarray], int]:
        """``write(first, last, low, high, keys) -> used`` for the plan's kind."""
        from gnnsample_lab.graph.edgewise import draws_cpu

        scatter = bijection(plan.num_nodes, plan.seed, RANKS)
        k0, k1 = seed_words(plan.seed)
        bits = np.uint64(key_bits(plan.num_nodes))
        symmetric = plan.symmetric
        if isinstance(plan, RmatPlan):
            levels = plan.levels
            t0, t1, t2 = (np.uint64(t) for t in plan.thresholds)

            def write(first: int, last: int, low: int, high: int, keys: np.ndarray) -> int:
                return int(
                    draws_cpu.rmat_keys(
                        first, last, k0, k1, scatter, levels, t0, t1, t2, bits, symmetric, low, high, keys
                    )
                )

            return write
        starts = np.array(plan.starts, dtype=np.int64)
        same, dst_flat, src_flat = (np.uint64(x) for x in (plan.same, plan.dst_flat, plan.src_flat))
        dst_power, src_power = plan.dst_power, plan.src_power
        # Class of the first rank of each of 4096 equal intervals of the word that a rank is drawn from.
        first_ranks = (np.arange(4096, dtype=np.int64) << 20) * plan.num_nodes >> 32
        guide = np.searchsorted(starts, first_ranks, side="right") - 1

        def write_community(first: int, last: int, low: int, high: int, keys: np.ndarray) -> int:
            used = draws_cpu.community_keys(
                first, last, k0, k1, scatter, guide, starts, same, dst_power, src_power,
                dst_flat, src_flat, bits, symmetric, low, high, keys,
            )  # fmt: skip
            return int(used)

        return write_community

    def keys(self, plan: Plan, num_draws: int, low: int, high: int, count: int) -> np.ndarray:
        write = self._writer(plan)
        factor = 2 if plan.symmetric else 1
        out = np.empty(count, dtype=np.int64)
        if (low, high) == (0, plan.num_nodes):
            spread(lambda i, j: write(i, j, low, high, out[factor * i : factor * j]), num_draws)
            return out
        used = 0
        lock = threading.Lock()

        def keep(first: int, last: int) -> None:
            nonlocal used
            own = np.empty(factor * (last - first), dtype=np.int64)
            size = write(first, last, low, high, own)
            with lock:
                at, used = used, used + size
            out[at : at + size] = own[:size]

        spread(keep, num_draws)
        return out[:used]

    def histogram(self, plan: Plan, num_draws: int, shift: int, blocks: int) -> np.ndarray:
        from gnnsample_lab.graph.edgewise import draws_cpu

        write = self._writer(plan)
        factor = 2 if plan.symmetric else 1
        key_shift = key_bits(plan.num_nodes) + shift
        total = np.zeros(blocks, dtype=np.int64)
        lock = threading.Lock()

        def count(first: int, last: int) -> None:
            own = np.empty(factor * (last - first), dtype=np.int64)
            write(first, last, 0, plan.num_nodes, own)
            part = np.zeros(blocks, dtype=np.int64)
            draws_cpu.key_histogram(own, key_shift, part)
            with lock:
                np.add(total, part, out=total)

        spread(count, num_draws)
        return total

    def features(
        self, labels: np.ndarray, num_classes: int, num_features: int, seed: int, signal: int | None = None
    ) -> np.ndarray:
        """float32[N, F]: class centroids, ``signal`` / 128 from 0 in every column, plus noise."""
        from gnnsample_lab.graph.edgewise import draws_cpu

        k0, k1 = seed_words(seed)
        signs = centroid_signs(num_classes, num_features, seed)
        signal = feature_signal(num_features) if signal is None else signal
        out = np.empty((len(labels), num_features), dtype=np.float32)
        spread(
            lambda i, j: draws_cpu.class_features(i, signal, k0, k1, labels[i:j], signs, out[i:j]),
            len(labels),
            max(1, (1 << 22) // num_features),
        )
        return out

    def weights(self, src: np.ndarray, dst: np.ndarray, seed: int, low: float, high: float) -> np.ndarray:
        """float32[E] in ``[low, high)`` by the pair (src, dst)."""
        from gnnsample_lab.graph.edgewise import draws_cpu

        k0, k1 = seed_words(seed)
        base, step = np.float32(low), np.float32((high - low) / 2**20)
        out = np.empty(len(src), dtype=np.float32)
        spread(
            lambda i, j: draws_cpu.pair_weights(src[i:j], dst[i:j], k0, k1, base, step, out[i:j]),
            len(src),
            1 << 20,
        )
        return out
