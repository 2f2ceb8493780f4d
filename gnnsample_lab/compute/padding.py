"""Blocks of mini-batches at fixed sizes: what a captured training step reads, whatever each mini-batch's size is."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gnnsample_lab.device import runtime, streams
from gnnsample_lab.minibatch.types import Block

from .aggregation.csr import address, function
from .aggregation.transpose import deterministic

MAX_BLOCKS = 15
"""Of a mini-batch (``padding.cu`` has the same number)."""
_WORDS_BEFORE, _WORDS_OF_BLOCK = 14 + MAX_BLOCKS + 1, 9
_BYTES = 8 * (_WORDS_BEFORE + _WORDS_OF_BLOCK * MAX_BLOCKS)
_PADDING_TYPE = np.dtype(("V", _BYTES))
"""``Padding`` of ``padding.cu``; packed by one call, since NumPy's fields take ten times as long."""
_ZEROS = (0,) * (MAX_BLOCKS + 1)
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
        ends = [int(block.num_src) for block in blocks]
        return cls((*ends, int(blocks[-1].num_dst)), tuple(int(block.num_edges) for block in blocks))

    def fits(self, room: Sizes) -> bool:
        """Whether there is room for all of it: as many blocks, none larger."""
        return (
            len(self.nodes) == len(room.nodes)
            and all(map(operator.le, self.nodes, room.nodes))
            and all(map(operator.le, self.edges, room.edges))
        )

    def with_room(self, before: Sizes | None = None) -> Sizes:
        """Rounded up, and no smaller than ``before`` of as many blocks: a size that many mini-batches fit.

        No two entries of ``nodes`` are the same, so that a number of rows tells whose rows these are.
        """
        if before is None or len(before.nodes) != len(self.nodes):
            before = Sizes((0,) * len(self.nodes), (0,) * len(self.edges))
        nodes: list[int] = []
        for n, least in reversed([*zip(self.nodes[:-1], before.nodes[:-1])]):
            room = max(rounded(n), least)
            nodes.insert(0, max(room, nodes[0] + 64) if nodes else room)
        seeds = max(self.nodes[-1], before.nodes[-1])
        while seeds in nodes:
            seeds += 1
        return Sizes(
            (*nodes, seeds), tuple(max(rounded(e), least) for e, least in zip(self.edges, before.edges))
        )


def rounded(n: int) -> int:
    """``n`` with some headroom, rounded up by at most a sixteenth."""
    wanted = max(64, int(np.ceil(n * HEADROOM)))
    step = max(64, 1 << (wanted.bit_length() - 5))
    return -(-wanted // step) * step


class PaddedBatch:
    """Device memory for mini-batches of at most ``room``: rows beyond a mini-batch's are empty.

    Args:
        room: most rows and edges.
        weighted: whether edges have weights.
        x: features of some mini-batch, for their type and width.
        labels: of all vertices, ``[N]`` (int64) or ``[N, tasks]``, row-major.

    Attributes:
        x: features, ``[room.nodes[0], F]``.
        target: labels of the seeds; -1 in rows without a seed, in all columns (0 in types that have no -1 of all ones).
        is_seed: rows that have one.
        counts: real rows of each entry of ``room.nodes``, ``float32[layers + 1]``.
        width: ``F``.
    """

    def __init__(self, room: Sizes, weighted: bool, x: Any, labels: Any) -> None:
        import torch

        if len(room.edges) > MAX_BLOCKS:
            raise ValueError(f"blocks must be at most {MAX_BLOCKS} (got {len(room.edges)})")
        self.room, self.weighted, self.width = room, weighted, int(x.shape[1])
        self._labels = labels.contiguous()
        self._indptr = [torch.zeros(rows + 1, dtype=torch.int64, device="cuda") for rows in room.nodes[1:]]
        # Zeros: an index that is never filled must still be a valid one.
        self._indices = [torch.zeros(edges, dtype=torch.int32, device="cuda") for edges in room.edges]
        self._weight = [torch.zeros_like(one) if weighted else None for one in self._indices]
        self._ids = [torch.empty(1, dtype=torch.int64, device="cuda").expand(n) for n in room.nodes]
        self.counts = torch.zeros(len(room.nodes), dtype=torch.float32, device="cuda")
        # Zeros, and later rows of other mini-batches: what nobody reads must be finite all the same.
        self.x = torch.zeros(room.nodes[0], *x.shape[1:], dtype=x.dtype, device="cuda")
        self._nobody = nobody(labels)
        self.target = torch.zeros(room.nodes[-1], *labels.shape[1:], dtype=labels.dtype, device="cuda")
        self.is_seed = torch.zeros(room.nodes[-1], dtype=torch.bool, device="cuda")
        # What is the same for all mini-batches is looked up once: a call of the tensor's for each would take as long as
        # the launch.
        self._pack = struct.Struct(f"{_WORDS_BEFORE + _WORDS_OF_BLOCK * len(room.edges)}Q").pack
        self._to = [
            (address(indptr), address(indices), address(weight))
            for indptr, indices, weight in zip(self._indptr, self._indices, self._weight, strict=True)
        ]
        self._to_rest = tuple(map(address, (self.x, self.target, self.is_seed, self.counts)))
        self._from_labels = address(self._labels), self._labels.element_size() * self._labels[:1].numel()
        self._most = max(room.nodes[1:])

    @cached_property
    def rows(self) -> Any:
        """:attr:`x` as CuPy's, for whoever writes the features in place."""
        import cupy

        return cupy.from_dlpack(self.x)

    def blocks(self) -> list[Block]:
        """The blocks with nothing derived from them yet, so that whoever derives it does so again at each replay.

        ``src`` and ``dst`` have the fixed shapes and no contents: layers of this package ask for their lengths alone.
        """
        return [
            Block(self._ids[i], self._ids[i + 1], self._indptr[i], self._indices[i], None, self._weight[i])
            for i in range(len(self._indices))
        ]

    def takes(self, blocks: Sequence[Any]) -> bool:
        """Whether blocks have weights as those that this memory is for."""
        return has_weights(blocks) == self.weighted

    def fill(self, blocks: Sequence[Any], sizes: Sizes, seeds: Any, x: Any = None) -> None:
        """Copy a mini-batch here by one launch on CuPy's current stream. Nothing waits on the host.

        Args:
            blocks: input-most first, of a mini-batch whose ``blocks`` were read on the streams that are current now.
            sizes: theirs.
            seeds: the seeds' global ids, int32 or int64, one for each row of the last block.
            x: features of the first block's sources; None: they are in :attr:`x` already.

        Raises:
            ValueError: they do not fit, or have weights that there is no room for, or none where others had.
        """
        if not sizes.fits(self.room):
            raise ValueError(f"blocks must fit {self.room} (got {sizes})")
        if not self.takes(blocks):
            raise ValueError(f"blocks must {'' if self.weighted else 'not '}have weights, as those before")
        fields: list[int] = []
        for block, to, rows, edges, room in zip(
            blocks, self._to, sizes.nodes[1:], sizes.edges, self.room.nodes[1:], strict=True
        ):
            weight = address(block.weight) if self.weighted else 0
            fields += (*_edges_of(block), weight, rows, edges, room, *to)
        bytes_of_x, from_x = 0, 0
        if x is not None:
            x = x[: sizes.nodes[0]]
            if x.is_contiguous() and x.dtype == self.x.dtype and x.data_ptr() % 16 == 0:
                from_x, bytes_of_x = x.data_ptr(), x.numel() * x.element_size()
            else:
                self.x[: sizes.nodes[0]].copy_(x)
        labels, bytes_of_labels = self._from_labels
        packed = self._pack(
            from_x, labels, address(seeds), *self._to_rest, bytes_of_x, bytes_of_labels, seeds.dtype.itemsize,
            sizes.nodes[-1], self.room.nodes[-1], self._nobody, len(blocks), *sizes.nodes,
            *_ZEROS[len(sizes.nodes) :], *fields,
        ).ljust(_BYTES, b"\0")  # fmt: skip
        most = max(bytes_of_x // 64, *sizes.edges, self._most)
        grid = (max(1, min(2 * runtime.num_sms(), -(-most // 256))), len(blocks) + 1)
        function("padding.cu", "pad_batch")(grid, (256,), (np.frombuffer(packed, _PADDING_TYPE),))


def nobody(labels: Any) -> int:
    """Byte of which the targets of rows without a seed are made: -1 where labels are signed integers, else 0."""
    import torch

    return 0xFF if labels.dtype in (torch.int8, torch.int16, torch.int32, torch.int64) else 0


def has_weights(blocks: Sequence[Any]) -> bool:
    """Whether the edges of a mini-batch have weights, which all its blocks have or none."""
    return blocks[0].weight is not None


def _edges_of(block: Any) -> tuple[int, int]:
    """Addresses of a block's ``indptr`` and ``indices``; the current streams wait for them, as ``blocks`` of an arena's
    mini-batch has made them do."""
    known: tuple[int, int] | None = getattr(block, "addresses", None)
    if known is not None:
        return known
    streams.order(block.indptr)
    return address(block.indptr), address(block.indices)


def check_capturable() -> None:
    """Raises RuntimeError where the host has to take part in a step: under deterministic algorithms."""
    if deterministic():
        raise RuntimeError(
            "torch.use_deterministic_algorithms(True): the sort of a block's edges waits for the host, so the step "
            "cannot be captured; train without captured steps"
        )
