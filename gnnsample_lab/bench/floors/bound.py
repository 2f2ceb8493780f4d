"""What no kernel can be faster than: bytes that memory must move, and dependent accesses one after another.

A byte is counted as often as it must be moved at least. Whatever is kept in a cache of ``cache`` bytes, a stretch of
work that reads ``n`` distinct bytes must fetch ``n - cache`` of them, since no more than ``cache`` were there when it
began; of ``n`` distinct bytes that it writes, ``n - cache`` have left the cache when it ends. Stretches that follow one
another add up. A run may be cut into stretches in any way; the largest sum is the best bound. So the rows of a hop,
which under ``expand="frontier"`` are in every later hop, too, count once for a mini-batch that the cache holds, and
again only as far as it cannot.

The rate is that of a sequential read: random sectors come at less than half of it, which a measured floor shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gnnsample_lab.bench.suite import VerificationError

SECTOR = 32
"""Bytes of a sector, the unit in which memory is read."""


@dataclass(frozen=True)
class Touched:
    """What one mini-batch reads of the graph and writes of its sample.

    Attributes:
        hop_sectors: distinct sectors of the graph that each hop reads.
        sectors: distinct sectors of all hops together.
        written_bytes: of the sample: neighbours, positions and counts.
    """

    hop_sectors: tuple[int, ...]
    sectors: int
    written_bytes: int


def refuse_undercut(what: str, bound_us: float, measured: Iterable[float]) -> None:
    """A bound that something undercuts is none, and neither is what it was compared with.

    Raises:
        VerificationError: a measured time is below ``bound_us``.
    """
    fastest = min(measured)
    if fastest < bound_us:
        raise VerificationError(f"{what}: measured {fastest:.2f} us, below the bound of {bound_us:.2f} us")


def beyond(amounts: Sequence[int], cache: int) -> int:
    """Of each stretch's distinct ``amounts`` of bytes, those that ``cache`` bytes cannot hold; their sum."""
    return sum(max(0, amount - cache) for amount in amounts)


def moved_in_order(batches: Sequence[Touched], sectors: int, cache: int) -> int:
    """Bytes that memory moves at least when mini-batches run one after another, hop by hop, through one set of buffers.

    Args:
        batches: what each of them touches.
        sectors: distinct sectors of the graph that all of them read.
        cache: bytes that a cache holds, whatever it held before.
    """
    read = max(
        beyond([sectors * SECTOR], cache),
        beyond([batch.sectors * SECTOR for batch in batches], cache),
        beyond([hop * SECTOR for batch in batches for hop in batch.hop_sectors], cache),
    )
    return read + beyond([batch.written_bytes for batch in batches], cache)


def moved_together(batches: Sequence[Touched], sectors: int, cache: int) -> int:
    """Bytes that memory moves at least when all mini-batches are sampled at once, each into arrays of its own."""
    return beyond([sectors * SECTOR], cache) + beyond([sum(b.written_bytes for b in batches)], cache)


def chain_us(hops: int, latency_ns: float) -> float:
    """Microseconds of the dependent accesses of one mini-batch: vertex, pair of bounds and neighbour in each hop.

    Args:
        hops: of a mini-batch; the next hop needs the neighbours of the one before.
        latency_ns: of an access that a cache serves, since which accesses miss it depends on what ran before.
    """
    return hops * 3 * latency_ns / 1e3
