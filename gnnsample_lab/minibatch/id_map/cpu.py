# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""The CPU twin of every ID map: one hash, filled in the order of the ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import merge_duplicates
from gnnsample_lab.device.jit import njit
from gnnsample_lab.sampling.neighbors.sizes import power_of_two

_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)
_ONE, _SHIFT = np.uint64(1), np.uint64(20)


@njit(cache=True)
def relabel_items(items, keys, values, nodes, count, out):
    """Write the local ids of ``items`` to ``out``; new items get the next ids and join ``nodes``; returns the count.

    ``keys``: ``uint64[slots]``, id + 1 or 0, never full; ``values``: ``int32[slots]``, local ids.
    """
    mask = np.uint64(keys.size) - _ONE
    for i in range(items.size):
        key = np.uint64(items[i]) + _ONE
        at = (np.uint64(items[i]) * _FIBONACCI >> _SHIFT) & mask
        while keys[at] != key:
            if keys[at] == 0:
                keys[at] = key
                values[at] = count
                nodes[count] = items[i]
                count += 1
                break
            at = (at + _ONE) & mask
        out[i] = values[at]
    return count


class HopMap:
    """One way to relabel, with its scratch memory; one mini-batch at a time. On the GPU and on the host.

    Seeds are distinct and every id is in ``0..num_nodes - 1``: nothing here checks it.
    """

    def __init__(self, num_nodes: int, id_dtype: Any) -> None:
        self.num_nodes, self.ids = num_nodes, np.dtype(id_dtype)

    @property
    def scratch_bytes(self) -> int:
        """Bytes kept between mini-batches."""
        raise NotImplementedError

    def begin(self, seeds: Any) -> Any:
        """Start a mini-batch with distinct ``seeds`` (ids ``[n0]``), whose local ids are their positions."""
        raise NotImplementedError

    def extend(self, picks: Any) -> tuple[Any, Any]:
        """Take in one hop's picks (ids ``[m]``): all vertices so far, and the picks' local ids (``int32[m]``).

        The host waits once, for the number of vertices.
        """
        raise NotImplementedError

    def map_hops(self, seeds: Any, hops: Sequence[Any]) -> tuple[Any, list[int], list[Any]]:
        """A whole mini-batch, as a per-hop sampler would: vertices, level sizes, local ids per hop."""
        nodes = self.begin(seeds)
        levels, local = [int(nodes.size)], []
        for picks in hops:
            nodes, ids = self.extend(picks)
            levels.append(int(nodes.size))
            local.append(ids)
        return nodes, levels, local


class CpuMap(HopMap):
    """The twin of the GPU's maps (``gpu.GpuMap``); local ids by first occurrence."""

    def __init__(self, num_nodes: int, id_dtype: Any) -> None:
        super().__init__(num_nodes, id_dtype)
        self._nodes = np.empty(0, self.ids)
        self._count = 0
        self._clear(64)

    @property
    def scratch_bytes(self) -> int:
        return int(self._keys.nbytes + self._values.nbytes)

    def _clear(self, slots: int) -> None:
        self._keys, self._values = np.zeros(slots, np.uint64), np.empty(slots, np.int32)

    def _take(self, items: np.ndarray) -> np.ndarray:
        need = min(self._count + items.size, self.num_nodes)
        if self._nodes.size < need:
            grown = np.empty(min(max(need, 2 * self._nodes.size), self.num_nodes), self.ids)
            grown[: self._count] = self._nodes[: self._count]
            self._nodes = grown
        if self._keys.size < 2 * need:
            self._clear(power_of_two(2 * need))
            known = self._nodes[: self._count].copy()
            relabel_items(known, self._keys, self._values, self._nodes, 0, np.empty(known.size, np.int32))
        out = np.empty(items.size, np.int32)
        self._count = relabel_items(items, self._keys, self._values, self._nodes, self._count, out)
        return out

    def merge(self, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distinct seeds in first-seen order, and where each given one is among them."""
        nodes, places, _ = merge_duplicates(seeds)
        return nodes, places.astype(np.int32)

    def begin(self, seeds: np.ndarray) -> np.ndarray:
        self._nodes, self._count = np.empty(seeds.size, self.ids), 0
        self._clear(power_of_two(2 * seeds.size, 64))
        self._take(seeds)
        if self._count != seeds.size:
            raise ValueError(f"seeds must be distinct (got {seeds.size - self._count} repeated)")
        return self._nodes[: self._count]

    def extend(self, picks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        local = self._take(picks)
        return self._nodes[: self._count], local
