"""Which remote in-neighbour lists a rank copies, so that a budget of bytes saves most remote reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, host_array, host_integers, items, num_bytes, shown, whole
from gnnsample_lab.device.jit import njit

from .partition import MAX_PARTS

RANKINGS = {
    "reads": "entries that samples read of a list, visits x min(degree, fanout), per byte of the list (ours)",
    "visits": "most visited first, however long their lists",
    "degree": "longest lists first, whoever visits them",
}
_ENTRY_BYTES = {4, 8, 12, 16}
"""An id of 4 or 8 bytes, alone or with a weight."""


@dataclass(frozen=True, eq=False)
class HotLists:
    """The lists that one rank copies from its peers.

    Attributes:
        ids: original ids of the vertices, hottest first, ``int64[n]``.
        offsets: where the copies lie one after another, in entries, ``int64[n+1]``.
        nbytes: bytes of all copies.
        reads_saved, reads_remote: entries read, of the copied lists and of all remote ones, in the units of ``visits``.
        ranking: a name of :data:`RANKINGS`.
    """

    ids: np.ndarray
    offsets: np.ndarray
    nbytes: int
    reads_saved: float
    reads_remote: float
    ranking: str

    @property
    def saved_share(self) -> float:
        """Share of the remote reads that the copies serve; 0 where nothing is remote."""
        return self.reads_saved / self.reads_remote if self.reads_remote else 0.0


def hottest_lists(
    visits: Any, degrees: Any, fanouts: Any, budget_bytes: int, *, owner: Any = None, rank: int = 0, ranking: str
        = "reads", entry_bytes: int = 4,
) -> HotLists:  # fmt: skip
    """Choose the lists that a rank copies within a budget. Lists that it owns are never copied.

    Lists are taken in the order of the ranking, ties by lower id. One that no longer fits is passed over, and shorter
    ones behind it may still be taken. Lists that are empty or never visited are left.

    Args:
        visits: how often each vertex is sampled from, numbers ``[N]``; ``[H, N]`` by hop, for H fanouts.
        degrees: in-degrees, integers ``[N]``.
        fanouts: draws of a visit, one integer; H of them with visits by hop. -1 takes all neighbours.
        budget_bytes: of the copies.
        owner: part of each vertex, integers ``[N]``; None: all lists are remote.
        rank: whose copies these are.
        ranking: ``"reads"`` (per byte), ``"visits"`` or ``"degree"``: a name of :data:`RANKINGS`.
        entry_bytes: of one neighbour: 4, 8 (with its weight, or a wide id), 12 or 16.

    Raises:
        TypeError, ValueError: arguments of the wrong kind, shape or range.
    """
    degree = host_integers("degrees", degrees).astype(np.int64, copy=False)
    if degree.size and degree.min() < 0:
        raise ValueError(f"degrees must not be negative (got {int(degree.min())})")
    draws = _fanouts(fanouts)
    by_hop = _visits(visits, len(draws), len(degree))
    budget_bytes = num_bytes("budget_bytes", budget_bytes)
    rank, ranking = whole("rank", rank, 0, MAX_PARTS - 1), choice("ranking", ranking, RANKINGS)
    entry_bytes = whole("entry_bytes", entry_bytes)
    if entry_bytes not in _ENTRY_BYTES:
        raise ValueError(f"entry_bytes must be one of {sorted(_ENTRY_BYTES)} (got {entry_bytes})")
    is_remote = np.ones(len(degree), dtype=bool)
    if owner is not None:
        owners = host_integers("owner", owner)
        if len(owners) != len(degree):
            raise ValueError(f"owner must have one entry per vertex, {len(degree)} (got {len(owners)})")
        if owners.size and not 0 <= owners.min() <= owners.max() < MAX_PARTS:
            raise ValueError(
                f"owner must be a part, 0 to {MAX_PARTS - 1} (got {owners.min()} to {owners.max()})"
            )
        is_remote = owners != rank
    reads = np.where(is_remote, _reads(by_hop, degree, draws), 0.0)
    wanted = np.flatnonzero(reads > 0)
    scores = {
        "reads": lambda: reads[wanted] / (degree[wanted] * entry_bytes),
        "visits": lambda: by_hop.sum(axis=0)[wanted],
        "degree": lambda: degree[wanted],
    }
    order = wanted[np.argsort(-scores[ranking](), kind="stable")]
    ids = order[_fitting(degree[order] * entry_bytes, budget_bytes)]
    offsets = np.zeros(len(ids) + 1, dtype=np.int64)
    np.cumsum(degree[ids], out=offsets[1:])
    return HotLists(
        ids, offsets, int(offsets[-1]) * entry_bytes, float(reads[ids].sum()), float(reads.sum()), ranking
    )


def list_reads(visits: Any, degrees: np.ndarray, fanouts: Any) -> np.ndarray:
    """Entries that samples read of each list, ``float64[N]``; arguments as of :func:`hottest_lists`."""
    draws = _fanouts(fanouts)
    return _reads(_visits(visits, len(draws), len(degrees)), degrees, draws)


def _reads(by_hop: np.ndarray, degree: np.ndarray, draws: list[int]) -> np.ndarray:
    each = (v * (degree if k < 0 else np.minimum(degree, k)) for v, k in zip(by_hop, draws))
    return np.asarray(sum(each))


@njit(cache=True)
def _fitting(sizes, budget):  # type: ignore[no-untyped-def]
    """Which of the lists are taken, one after another, as long as each fits into what is left; ``bool[n]``."""
    taken = np.zeros(sizes.size, dtype=np.bool_)
    for i in range(sizes.size):
        if sizes[i] <= budget:
            taken[i] = True
            budget -= sizes[i]
    return taken


def _fanouts(value: Any) -> list[int]:
    given = (
        items("fanouts", value, "an integer or a list of them") if isinstance(value, Iterable) else [value]
    )
    if not given:
        raise ValueError(f"fanouts must name at least one (got {shown(value)})")
    draws = [whole("fanouts", fanout, -1, 2**31 - 1) for fanout in given]
    if 0 in draws:
        raise ValueError(f"fanouts must not be 0 (got {shown(value)})")
    return draws


def _visits(value: Any, hops: int, num_nodes: int) -> np.ndarray:
    found = host_array("visits", value)
    if found.dtype.kind not in "fiu":
        raise TypeError(f"visits must be numbers (got dtype {found.dtype})")
    shapes = [(hops, num_nodes)] + ([(num_nodes,)] if hops == 1 else [])
    if found.shape not in shapes:
        raise ValueError(
            f"visits must have shape {' or '.join(map(str, shapes))}, as degrees and fanouts say (got {found.shape})"
        )
    found = found.astype(np.float64).reshape(hops, num_nodes)
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise ValueError("visits must be finite and not negative")
    return found
