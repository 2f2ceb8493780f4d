"""What a rank does with lists of its own part for walks and layers by exchanges, on the host or on its GPU.

:mod:`.walker` and :mod:`.layer` have the flow, once for NumPy and CuPy; here is what differs: who owns a vertex,
entries by where they go, and draws. On GPUs :mod:`.gpu.own` does the same by kernels.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import numpy as np

from .exchange import Exchange
from .layout import Layout
from .reading import WalkRule, largest_weights, neighbors_at, total_weights
from .words import UNCOUNTED, UNIFORM, WEIGHTED, layer_draws, move, restarts


def by_peer(peers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Entries by where they go.

    Args:
        peers: of each entry a member of an exchange, or ``size`` for nobody, integers ``[n]``.
        size: how many members there are.

    Returns:
        Where each stood, those for member 0 first, ``int64[n]``, and how many there are for each member and for
        nobody, ``int64[size + 1]``.
    """
    counts = np.bincount(peers, minlength=size + 1)
    return np.argsort(peers, kind="stable"), counts.astype(np.int64)


class OwnLists(Protocol):
    """Lists of this rank's part; arrays are of ``xp``, NumPy or CuPy.

    Attributes:
        xp: the arrays' library.
        exchange: the ranks that hold the parts between them.
    """

    xp: Any
    exchange: Exchange

    def working(self) -> contextlib.AbstractContextManager[Any]:
        """Around all work with these lists and the exchanges of what comes from them."""
        ...

    def owners(self, vertices: Any) -> Any:
        """The member of the exchange that owns each vertex, integers ``[n]``; for ids below 0 the number of members."""
        ...

    def by_peer(self, peers: Any, size: int) -> tuple[Any, np.ndarray]:
        """As the function :func:`by_peer`; the counts are on the host, the order of entries for one member is free."""
        ...

    def move(self, walks: Any, at: Any, first: int, step: int, rule: WalkRule) -> Any:
        """Where walks come to in a step from vertices of this part, ids ``[n]``; -1 where they end.

        ``walks``: their numbers, ``int32[n]``; ``at``: where they stand, ids ``[n]``; ``first``: id of sample 0.
        """
        ...

    def set_out(self, walks: Any, at: Any, roots: Any, first: int, step: int, rule: WalkRule) -> None:
        """Put walks that restart before ``step`` back to their roots, in ``at``, ids ``[n]``.

        ``walks``: their numbers, ``int32[n]``; ``roots``: of all samples, ids ``[S]``.
        """
        ...

    def draws(self, slots: Any, bound: int, sample: int, step: int, size: int, attempt: int) -> Any:
        """Numbers below ``bound`` for slots, ``int64[n]``, of a layer of ``size`` slots, ``int64[n]``."""
        ...

    def totals(self, vertices: Any) -> Any:
        """Total weight of the lists of vertices of this part, ``int64[n]``: their lengths where edges count alike."""
        ...

    def neighbors(self, vertices: Any, inner: Any) -> Any:
        """The neighbour of each list in whose interval of the list's weight ``inner`` lies, ids ``[n]``.

        ``inner``: ``int64[n]`` by weight, else ``int32[n]``.
        """
        ...


def own_lists(layout: Layout, weighted: bool, key: Any) -> OwnLists:
    """Lists of this rank's part for the device of its rank; all ranks make them together.

    Args:
        layout: whose part.
        weighted: whether weights count.
        key: of the draws, as ``int64``.

    Raises:
        ValueError: more parts than GPU ranks may be.
    """
    if layout.rank.device == "cpu":
        return HostOwnLists(layout, weighted, key)
    from .gpu.own import DeviceOwnLists

    return DeviceOwnLists(layout, weighted, key)


class HostOwnLists:
    """As :class:`OwnLists`, NumPy; arguments as of :func:`own_lists`."""

    xp: Any = np

    def __init__(self, layout: Layout, weighted: bool, key: Any) -> None:
        self.exchange = layout.exchange
        self._layout, self._part, self._weighted, self._key = layout, layout.part, weighted, key
        self._prefix = self._part.prefix if weighted else np.zeros(1, np.uint64)
        self._most = largest_weights(self._part) if weighted else np.zeros(1, np.int64)

    def working(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def owners(self, vertices: np.ndarray) -> np.ndarray:
        # NumPy sorts integers of 16 bits by their digits.
        found = np.asarray(self._layout.partition.owner)[vertices].astype(np.int16)
        found[vertices < 0] = self.exchange.size
        return found

    def by_peer(self, peers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        return by_peer(peers, size)

    def move(self, walks: np.ndarray, at: np.ndarray, first: int, step: int, rule: WalkRule) -> np.ndarray:
        came = np.empty(at.size, dtype=at.dtype)
        sample, k = _sample_and_walk(walks, rule)
        move(
            first + sample, k, self._rows(at), self._part.indptr, self._part.indices, self._prefix, self._most, step,
            WEIGHTED if self._weighted else UNIFORM, rule.termination, self._key, came, UNCOUNTED,
        )  # fmt: skip
        return came

    def set_out(
        self, walks: np.ndarray, at: np.ndarray, roots: np.ndarray, first: int, step: int, rule: WalkRule
    ) -> None:
        sample, k = _sample_and_walk(walks, rule)
        again = np.empty(walks.size, dtype=np.bool_)
        restarts(first + sample, k, step, rule.restart, self._key, again)
        at[again] = roots[sample[again]]

    def draws(
        self, slots: np.ndarray, bound: int, sample: int, step: int, size: int, attempt: int
    ) -> np.ndarray:
        at = np.empty(slots.size, dtype=np.int64)
        layer_draws(slots, bound, sample, step, size, attempt, self._key, at)
        return at

    def totals(self, vertices: np.ndarray) -> np.ndarray:
        return total_weights(self._part, self._rows(vertices), self._weighted)

    def neighbors(self, vertices: np.ndarray, inner: np.ndarray) -> np.ndarray:
        return neighbors_at(self._part, self._rows(vertices), inner, self._weighted)

    def _rows(self, vertices: np.ndarray) -> np.ndarray:
        return self._layout.rows(vertices, self._part.rank)


def _sample_and_walk(walks: np.ndarray, rule: WalkRule) -> tuple[np.ndarray, np.ndarray]:
    """Sample of each walk and its number there, ``int64[n]`` both."""
    sample, k = np.divmod(walks.astype(np.int64), rule.per_sample)
    return sample, k
