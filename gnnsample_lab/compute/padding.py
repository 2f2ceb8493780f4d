"""Blocks of mini-batches at fixed sizes: what a captured training step reads, whatever each mini-batch's size is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.device import runtime, streams
from gnnsample_lab.minibatch.types import Block

from .aggregation.csr import function, pointer
from .aggregation.transpose import deterministic

HEADROOM = 1.1
"""Room over the largest mini-batch so far: mini-batches of one epoch differ by a few percent."""


@dataclass(frozen=True)
class Sizes:
    """What a mini-batch's blocks have: ``nodes[l]`` sources of block ``l`` and, last, the seeds; ``edges[l]``."""

    nodes: tuple[int, ...]
    edges: tuple[int, ...]

    @classmethod
    def of(cls, blocks: Sequence[Any]) -> Sizes:
        """Of blocks, input-most first."""
        ends = [int(block.src.shape[0]) for block in blocks]
        return cls(
            (*ends, int(blocks[-1].indptr.shape[0]) - 1),
            tuple(int(block.indices.shape[0]) for block in blocks),
        )

    def fits(self, room: Sizes) -> bool:
        """Whether there is room for all of it."""
        return all(a <= b for a, b in zip((*self.nodes, *self.edges), (*room.nodes, *room.edges)))

    def with_room(self, before: Sizes | None = None) -> Sizes:
        """Rounded up, and no smaller than ``before``: a size that many mini-batches fit.

        No two entries of ``nodes`` are the same, so that a number of rows tells whose rows these are.
        """
        last = before or Sizes((0,) * len(self.nodes), (0,) * len(self.edges))
        nodes: list[int] = []
        for n, least in reversed([*zip(self.nodes[:-1], last.nodes[:-1])]):
            room = max(rounded(n), least)
            nodes.insert(0, max(room, nodes[0] + 64) if nodes else room)
        seeds = max(self.nodes[-1], last.nodes[-1])
        while seeds in nodes:
            seeds += 1
        return Sizes(
            (*nodes, seeds), tuple(max(rounded(e), least) for e, least in zip(self.edges, last.edges))
        )


def rounded(n: int) -> int:
    """``n`` with some headroom, rounded up by at most a sixteenth."""
    wanted = max(64, int(np.ceil(n * HEADROOM)))
    step = max(64, 1 << (wanted.bit_length() - 5))
    return -(-wanted // step) * step


class PaddedBlocks:
    """Device memory for the blocks of mini-batches of at most ``room``: rows beyond a mini-batch's are empty.

    Attributes:
        counts: real rows of each entry of ``room.nodes``, ``float32[layers + 1]`` on the GPU.
    """

    def __init__(self, room: Sizes, weighted: bool) -> None:
        import torch

        self.room, self.weighted = room, weighted
        self._indptr = [torch.zeros(rows + 1, dtype=torch.int64, device="cuda") for rows in room.nodes[1:]]
        # Zeros: an index that is never filled must still be a valid one.
        self._indices = [torch.zeros(edges, dtype=torch.int32, device="cuda") for edges in room.edges]
        self._weight = [torch.zeros_like(one) if weighted else None for one in self._indices]
        self._ids = [torch.empty(1, dtype=torch.int64, device="cuda").expand(n) for n in room.nodes]
        self.counts = torch.zeros(len(room.nodes), device="cuda")

    def fresh(self) -> list[Block]:
        """The blocks with nothing derived from them yet, so that whoever derives it does so again at each replay.

        ``src`` and ``dst`` have the fixed shapes and no contents: layers of this package ask for their lengths alone.
        """
        return [
            Block(self._ids[i], self._ids[i + 1], self._indptr[i], self._indices[i], None, self._weight[i])
            for i in range(len(self._indices))
        ]

    def fill(self, blocks: Sequence[Any], sizes: Sizes) -> None:
        """Copy a mini-batch's blocks here, on CuPy's current stream. Nothing waits on the host.

        Args:
            blocks: input-most first.
            sizes: theirs.

        Raises:
            ValueError: they do not fit.
        """
        if not sizes.fits(self.room):
            raise ValueError(f"blocks must fit {self.room} (got {sizes})")
        kernel = function("padding.cu", "pad_block")
        for i, block in enumerate(blocks):
            streams.order(block.indptr)
            rows, edges = int(block.indptr.shape[0]) - 1, int(block.indices.shape[0])
            room = self.room.nodes[i + 1]
            grid = (max(1, min(2 * runtime.num_sms(), -(-max(room + 1, edges) // 256))),)
            args = (
                pointer(block.indptr), pointer(block.indices), pointer(block.weight if self.weighted else None),
                np.uint64(rows), np.uint64(edges), np.uint64(room), pointer(self._indptr[i]),
                pointer(self._indices[i]), pointer(self._weight[i]),
            )  # fmt: skip
            kernel(grid, (256,), args)


def check_capturable() -> None:
    """Raises RuntimeError where the host has to take part in a step: under deterministic algorithms."""
    if deterministic():
        raise RuntimeError(
            "torch.use_deterministic_algorithms(True): the sort of a block's edges waits for the host, so the step "
            "cannot be captured; train without captured steps"
        )
