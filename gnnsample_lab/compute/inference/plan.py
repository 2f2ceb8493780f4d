"""How one layer of an inference uses the device's memory: decided from sizes alone, before anything is allocated."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from gnnsample_lab import readable

from .messages import Columns
from .sums import CUT_BYTES
from .tables import BUFFERS

_CHUNK_BYTES, _LEAST_CHUNK_BYTES, _CHUNKS = 64 << 20, 8 << 20, 8
"""Rows that are copied at a time: an eighth of the table, since nothing is copied while the last chunk is worked on. At
least so many bytes, for the full speed of the link and few launches, and at most so many: there are several buffers."""
_SLICE_BYTES = 512 << 20
"""Temporary rows at a time, at most."""
_LEAST_ROWS = 256
"""Rows at a time below which another way of working is better."""
_LEAST_CHUNKS = 4
"""Chunks from which sums may begin before the last."""
_ROW_STATE = 40
"""Bytes of a row's cursors while sums grow, temporary ones included."""


@dataclass(frozen=True)
class Widths:
    """Columns of a layer's tables: what it reads, sends along edges, keeps of a vertex itself, and returns.

    ``heads`` is the number of scores for an edge softmax, 0 for none. ``sent_apart``: messages are another table than
    the rows read. ``in_itemsize``: bytes of an element in host memory; ``itemsize``: on the device. ``columns``: of the
    messages, padding included, ``sent`` in all. ``summed``: columns of sums if these are others, 0 otherwise: heads may
    weigh the rows themselves.
    """

    read: int
    sent: int
    root: int
    result: int
    heads: int = 0
    sent_apart: bool = True
    itemsize: int = 4
    in_itemsize: int = 4
    columns: Columns | None = None
    summed: int = 0

    @property
    def slice_bytes(self) -> int:
        """Temporary bytes of a vertex while its result is made."""
        sums = max(self.sent, self.summed)
        floats = 2 * (self.read + self.sent + sums + self.root) + 5 * self.result + self.heads
        return self.itemsize * floats + 32


@dataclass(frozen=True)
class Plan:
    """What a layer does.

    Attributes:
        resident: all rows that it reads lie on the device, and all messages. Otherwise rows are read in chunks, and the
            sums of a range of vertices grow.
        keeps: the result stays on the device.
        rows: vertices of a range; rows are read once per range.
        slice_rows: vertices whose results are made at a time.
        chunk_rows: rows copied at a time.
        passing: the rows themselves are not kept: messages and what vertices keep of themselves are made of chunks as
            they come, and sums begin when the last has come.
        early: sums over the edges out of the first chunks begin before that.
    """

    resident: bool
    keeps: bool
    rows: int
    slice_rows: int
    chunk_rows: int
    passing: bool = False
    early: bool = False


def plan(
    num_nodes: int,
    widths: Widths,
    free: float,
    on_device: bool,
    what: str = "layer 0",
    stream: bool = False,
    where: str = "on the device",
    overlaps: bool = False,
) -> Plan:
    """The plan of one layer.

    Args:
        num_nodes: ``N``.
        widths: of its tables.
        free: bytes of the device that are free for it, infinity for all that it wants.
        on_device: whether the rows that it reads lie on the device already.
        what: the layer, for the message.
        stream: do not keep the rows that are read, even if all of them would fit.
        where: they are free, for the message.
        overlaps: whether the device can sum while it gets rows, which takes a table of sums.

    Raises:
        MemoryError: not even a single vertex' sums fit.
    """
    w, n = widths, max(1, num_nodes)
    size = w.itemsize
    chunk_row = BUFFERS * w.read * w.in_itemsize if not on_device else 0
    # While chunks are mapped, and copied into the resident table.
    chunk_temporary = size * (w.read + 2 * w.sent + w.root)
    result = n * w.result * size
    at_once = _SLICE_BYTES if math.isinf(free) else max(_SLICE_BYTES, int(free) // 4)
    scores = 2 * n * w.heads * size

    def rows_for(bytes_each: int, room: float, most: int) -> int:
        return int(max(0, min(n, most // max(1, bytes_each), room / max(1, bytes_each))))

    def chunk_for(room: float) -> int:
        most = max(-(-n // _CHUNKS), _LEAST_CHUNK_BYTES // (w.read * w.in_itemsize)) * (
            chunk_row + chunk_temporary
        )
        rows = max(
            1, rows_for(chunk_row + chunk_temporary, room / 4, min(most, _CHUNK_BYTES * (BUFFERS + 2)))
        )
        return -(-n // -(-n // rows))  # of equal size

    fixed = scores + size * n * ((0 if on_device else w.read) + (w.sent if w.sent_apart else 0))
    if not on_device:
        passed = scores + size * n * (w.sent + w.root)
        for keeps, early in itertools.product((True, False), (True, False)):
            room = free - passed - keeps * result - early * n * (w.sent * size + CUT_BYTES)
            chunk = chunk_for(room)
            slices = rows_for(w.slice_bytes, room, at_once)
            # While edges are cut, what slices will need is free.
            if early and (slices < n or chunk > n // _LEAST_CHUNKS or not overlaps or w.heads):
                continue
            if slices >= min(n, _LEAST_ROWS) and chunk * (chunk_row + chunk_temporary) <= room:
                return Plan(True, keeps, n, slices, chunk, passing=True, early=early)
    for keeps in () if stream else (True, False):
        room = free - fixed - keeps * result
        chunk = chunk_for(room)
        slices = rows_for(w.slice_bytes, room, at_once)
        # The copy's buffers are gone before slices are made.
        if slices >= min(n, _LEAST_ROWS) and chunk * (chunk_row + chunk_temporary) <= room:
            return Plan(True, keeps, n, slices, chunk)
    row_bytes = size * (w.sent + w.root) + _ROW_STATE + 3 * w.heads * size
    for keeps in (True, False):
        room = free - scores - keeps * result
        chunk = chunk_for(room)
        left = room - chunk * (chunk_row + chunk_temporary)
        slices = max(1, rows_for(w.slice_bytes, left / 4, at_once))
        rows = rows_for(row_bytes, left - slices * w.slice_bytes, 1 << 62)
        if rows >= (n if keeps else 1):
            # Ranges of about equal size.
            ranges = -(-n // rows)
            rows = -(-n // ranges)
            return Plan(False, keeps, rows, min(slices, rows), chunk)
    least = scores + 4 * (chunk_row + chunk_temporary + w.slice_bytes) + row_bytes
    raise MemoryError(
        f"the sums of {what} do not fit: {readable.size(max(0, free))} are free {where} for it, and it needs about "
        f"{readable.size(least)} ({readable.size(scores)} of it for attention scores of all vertices)"
    )
