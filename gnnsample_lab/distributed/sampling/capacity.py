"""How many rows each rank may ask each peer for, where messages have fixed sizes (method ``csp-fixed``).

A message of fixed size needs no exchange of sizes and no host that reads them, so a whole mini-batch fits one CUDA
graph. The price is a capacity for every hop and peer. Ranks measure it on their first mini-batches, and every rank must
know what its peers may send. All that is decided here follows from what all ranks have gathered, so that all of them
decide alike: the same capacities, or the same error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.sampling.neighbors.sizes import power_of_two

WARM_UP = 8
"""Mini-batches that are measured before the capacities are set."""
MARGIN = (5, 4)
"""Capacity over the largest measured number of rows, as a fraction: integers give all ranks the same result."""
LEAST = 64
"""Rows of the smallest capacity."""


def capacity_of(rows: int) -> int:
    """Rows that a message has room for, when the largest measured one had ``rows``: 1.25 times, a power of two."""
    return power_of_two(-(-rows * MARGIN[0] // MARGIN[1]), LEAST)


@dataclass(frozen=True, eq=False)
class Capacities:
    """Rows of the fixed messages of one rank.

    Attributes:
        sent: most rows that this rank asks each peer for, by hop, ``int64[hops, P]``; the own column is for the rows
            that the rank draws from its own part.
        received: most rows that each peer asks this rank for, ``int64[hops, P]``.
    """

    sent: np.ndarray
    received: np.ndarray

    @property
    def num_rows(self) -> int:
        """Rows of all messages of all hops, both ways."""
        return int(self.sent.sum() + self.received.sum())


class CapacityPlan:
    """Measures rows by hop and peer, and agrees with the other ranks on capacities.

    Args:
        hops: hops of a mini-batch.
        index, ranks: which rank this is, and how many there are.
        num_bytes: scratch bytes that a rank with given :class:`Capacities` needs.
        scratch_bytes: the most that this rank may take.
        gather: ``int64[k]`` of this rank to ``int64[ranks, k]`` of all ranks; a collective.
    """

    def __init__(
        self, hops: int, index: int, ranks: int, num_bytes: Callable[[Capacities], int], scratch_bytes: int,
        gather: Callable[[np.ndarray], np.ndarray],
    ) -> None:  # fmt: skip
        self.hops, self.index, self.ranks = hops, index, ranks
        self._num_bytes, self._scratch_bytes, self._gather = num_bytes, scratch_bytes, gather
        self.most = np.zeros((hops, ranks), dtype=np.int64)
        self.measured = 0
        self.current: Capacities | None = None

    @property
    def due(self) -> bool:
        """Whether enough is measured and nothing agreed yet; the same on all ranks, which sample in step."""
        return self.current is None and self.measured >= WARM_UP

    def measure(self, rows: Any) -> None:
        """Note what one mini-batch asked each peer for.

        Args:
            rows: integers ``[hops, ranks]``.
        """
        np.maximum(self.most, np.asarray(rows, dtype=np.int64), out=self.most)
        self.measured += 1

    def agree(self) -> Capacities:
        """Set the capacities from what was measured; never below those before. All ranks call it together.

        Raises:
            MemoryError: on all ranks, if the messages of one do not fit its ``scratch_bytes``; it names the rank.
        """
        wanted = np.array([[capacity_of(int(rows)) for rows in hop] for hop in self.most], dtype=np.int64)
        if self.current is not None:
            wanted = np.maximum(wanted, self.current.sent)
        told = self._gather(np.concatenate([[self._scratch_bytes], wanted.ravel()]).astype(np.int64))
        by_rank = told[:, 1:].reshape(self.ranks, self.hops, self.ranks)
        found = [Capacities(by_rank[r], by_rank[:, :, r].T.copy()) for r in range(self.ranks)]
        for rank, capacities in enumerate(found):
            need, limit = self._num_bytes(capacities), int(told[rank, 0])
            if need > limit:
                raise MemoryError(
                    f"messages of fixed size do not fit scratch_bytes={limit} of rank {rank} (needed: {need}): raise "
                    "it, lower fanouts or batch size, or take method='csp', whose messages have exact sizes"
                )
        self.current = found[self.index]
        return self.current


def gather_with(rank: Any) -> Callable[[np.ndarray], np.ndarray]:
    """``gather`` for :class:`CapacityPlan` over the process group of a rank.

    Args:
        rank: a :class:`~gnnsample_lab.distributed.ranks.rank.Rank`.
    """

    def gather(values: np.ndarray) -> np.ndarray:
        import torch
        import torch.distributed as dist

        mine = torch.from_numpy(np.ascontiguousarray(values)).to(rank.device)
        out = torch.empty(rank.world_size * mine.numel(), dtype=mine.dtype, device=mine.device)
        dist.all_gather_into_tensor(out, mine, group=rank.group)
        found: np.ndarray = out.cpu().numpy().reshape(rank.world_size, -1)
        return found

    return gather
