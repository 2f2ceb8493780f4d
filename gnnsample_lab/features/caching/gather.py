"""Extraction on the GPU: the kernels of ``gather.cu`` and ``match.cu``, and staging through pinned buffers."""

from __future__ import annotations

import functools
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import integers
from gnnsample_lab.device import jit, kernels, pinned, polling, runtime, streams

from .host import copy_to_device_async, gather_rows, vector_bytes, words

_REQUEST = struct.Struct("13Q4I")
"""``Request`` of ``gather.cu``; packed by one call, which takes a tenth of the time of as many NumPy fields."""
_REQUEST_TYPE = np.dtype(("V", _REQUEST.size))
MAX_PARTS = 16
"""Mini-batches of one launch; ``MAX_PARTS`` of ``gather.cu``."""
_PARTS = struct.Struct(f"{2 + 3 * MAX_PARTS}Q")
"""``Parts`` of ``gather.cu``."""
_PARTS_TYPE = np.dtype(("V", _PARTS.size))
HOST_BYTES = 256 << 10
"""Bytes of host memory for which loads are under way: twice what PCIe takes in at its latency of 1 to 2 us."""
SPARED = 4
"""Threads fewer than there are that gather beside other workers: each gets an equal share of the rows, and all wait for
the one whose core a worker has."""
_PAGES, _ROW_TILE = 2048, 4096
"""Page ranges, and rows of a block, of ``order.cu``."""


@dataclass
class ExtractKnobs:
    """Launch shapes and buffer sizes; results never depend on them.

    Attributes:
        rows_per_warp: rows of which a warp has loads under way at once (1, 2, 4 or 8).
        vector_bytes: widest access, None for the widest to which rows are aligned.
        load: 0 plain loads, 1 evict-first, 2 read-only path without a place in L1, 3 that and whole lines in L2.
        aligned: sweep lines of the source and not of the row.
        blocks_per_sm: blocks of ``block_threads`` threads per multiprocessor.
        host_blocks_per_sm: those of them that read rows in host memory, where these come first in the order. Few large
            blocks fill the link; more, or the same threads on more multiprocessors, would only keep kernels of other
            streams from running beside them. None for so many that :data:`HOST_BYTES` are under way: short rows and
            narrow loads need more.
        by_page: read rows in host memory first, in the order of page ranges, see ``order.cu``.
        pinning: how a host table is pinned, as :func:`~.host.pin` takes it.
        pad_bytes: rows of a pinned copy start at multiples of this (0: dense).
        tail_bytes: what rows have over whole lines of 128 bytes lies in device memory, for all rows of the table, if it
            is this much at most, and the host's copy has whole lines alone: a request for 16 bytes costs the link about
            what one for a line costs. 32 takes the last 16 of 400 bytes, 4 % of the table. Needs a copy of the table,
            which ``pinning="auto"`` then makes where half of the free memory holds it. 0: rows lie in one piece.
        chunk_bytes: staged transfers: rows gathered and copied at a time.
        buffers: staged transfers: number of pinned buffers, used in turn.
        gather_threads: staged transfers: threads of the host's gather; None for all, but :data:`SPARED` beside other
            workers.
    """

    rows_per_warp: int = 2
    vector_bytes: int | None = None
    load: int = 2
    aligned: bool = True
    blocks_per_sm: float = 1
    host_blocks_per_sm: float | None = None
    block_threads: int = 1024
    by_page: bool = True
    pinning: str = "auto"
    pad_bytes: int = 0
    tail_bytes: int = 0
    chunk_bytes: int = 16 << 20
    buffers: int = 3
    gather_threads: int | None = None


def library(device: str) -> Any:
    """NumPy for "cpu", CuPy for "cuda"."""
    if device == "cpu":
        return np
    import cupy

    return cupy


def device_ids(node_ids: Any, name: str = "node_ids") -> Any:
    """Vertex ids as a contiguous CuPy array, ``int32`` or ``int64``.

    Raises:
        TypeError: not integers.
        ValueError: not one-dimensional.
    """
    import cupy

    streams.order(node_ids)
    ready = type(node_ids) is cupy.ndarray and node_ids.ndim == 1 and node_ids.dtype.kind == "i"
    if ready and node_ids.itemsize >= 4 and node_ids.flags.c_contiguous:
        return node_ids
    ids = cupy.asarray(check_ids(node_ids, name))
    if ids.dtype not in (np.int32, np.int64):
        ids = ids.astype(np.int64)
    return cupy.ascontiguousarray(ids)


def check_ids(ids: Any, name: str = "node_ids") -> Any:
    """``ids`` as an array; raises TypeError or ValueError naming the argument unless they are a list of integers."""
    return integers(name, ids)


def id_type(ids: Any) -> str:
    """The kernels' name of an id array's type."""
    return "int" if ids.dtype.itemsize == 4 else "long"


def match_kernel(name: str, ids: Any) -> Any:
    """A kernel of ``match.cu`` for the type of ``ids``."""
    return _match_kernel(name, id_type(ids))


@functools.cache
def _match_kernel(name: str, ids: str) -> Any:
    return kernels.load_module("features/reuse/match.cu", {"ID_T": ids}).get_function(name).kernel


@functools.cache
def _order_kernel(name: str, ids: str, peers: int = 0) -> Any:
    macros: dict[str, int | str] = {"ID_T": ids, "PEERS": peers}
    return kernels.load_module("features/caching/order.cu", macros).get_function(name).kernel


def blocks_for(n: int, threads: int = 256) -> tuple[int]:
    """Grid of one thread per item."""
    return (-(-n // threads),)


@dataclass(eq=False)
class GpuRows:
    """Where rows can come from; null addresses for what is not there (``gather.cuh``, ``Sources``).

    ``tails``: ``uint8[N, tail_bytes]`` on the GPU, the last bytes of all rows, which the host's rows lack; or None.
    """

    slots: Any = None
    cache: Any = None
    previous: Any = None
    host_address: int = 0
    host_stride: int = 0
    num_nodes: int = 0
    tails: Any = None


@dataclass(eq=False)
class PeerTable:
    """Caches of several GPUs, and the host's table (``gather.cuh``, PEERS).

    Attributes:
        bases: where each part's cache begins, ``uint64[parts]`` on this GPU; 0 for one that is out of reach.
        shift: bits of a row in a position.
        alignment: of all caches, in bytes.
        host_address, host_stride: of the host's table; address 0 if there is none.
    """

    bases: Any
    shift: int
    alignment: int = 256
    host_address: int = 0
    host_stride: int = 0


@dataclass(eq=False)
class Order:
    """The order of rows, with how many of them lie in host memory, ``uint32`` on the GPU."""

    work: Any

    @property
    def addresses(self) -> tuple[int, int]:
        """Of the order, and of the number."""
        begin = int(self.work.data.ptr)
        return begin + 4 * (_PAGES + 1), begin + 4 * (_PAGES - 1)


class GpuExtractor:
    """Launches the extraction kernels for rows of one size."""

    def __init__(self, row_bytes: int, knobs: ExtractKnobs) -> None:
        self.row_bytes, self.knobs = row_bytes, knobs
        self._kernels: dict[tuple[str, str, int, int, bool], Any] = {}

    def _kernel(self, name: str, ids: str, vector: int, peers: int = 0, tails: bool = False) -> Any:
        key = (name, ids, vector, peers, tails)
        if key not in self._kernels:
            knobs = self.knobs
            macros: dict[str, int | str] = {
                "ID_T": ids, "VEC": vector, "ROWS": knobs.rows_per_warp, "LOAD": knobs.load, "PEERS": peers,
            }  # fmt: skip
            if tails:
                macros["TAILS"] = 1
            if not knobs.aligned:
                macros["ALIGNED"] = 0
            function = kernels.load_module("features/caching/gather.cu", macros).get_function(name)
            self._kernels[key] = function.kernel
        return self._kernels[key]

    def _vector(self, *addresses: int) -> int:
        return min(vector_bytes(self.row_bytes, *addresses), self.knobs.vector_bytes or 16)

    def _grid(self, rows: int, rows_per_warp: int, most: int | None = None) -> tuple[int]:
        warps = self.knobs.block_threads // 32
        most = int(self.knobs.blocks_per_sm * runtime.num_sms()) if most is None else most
        return (max(1, min(most, -(-rows // (warps * rows_per_warp)))),)

    def host_blocks(self, vector: int) -> int:
        """Blocks that read the host by loads of ``vector`` bytes."""
        knobs = self.knobs
        if knobs.host_blocks_per_sm is not None:
            return max(1, int(knobs.host_blocks_per_sm * runtime.num_sms()))
        of_warp = knobs.rows_per_warp * min(self.row_bytes, 32 * vector)
        return -(-HOST_BYTES // (knobs.block_threads // 32 * max(1, of_warp)))

    def extract(self, ids: Any, locations: Any, rows: GpuRows, out: Any, counts: Any) -> None:
        """Hits, reused rows and (with a host address) misses into ``out``, in one launch.

        Args:
            counts: ``uint64[2]``, where misses are counted; None if every row is cached.
        """
        cache, previous, marked, slots, counter = (
            a.data.ptr if a is not None else 0
            for a in (rows.cache, rows.previous, locations, rows.slots, counts)
        )
        to, tails = out.data.ptr, rows.tails
        tail, tail_bytes = (0, 0) if tails is None else (tails.data.ptr, int(tails.shape[1]))
        vector = self._vector(cache, previous, rows.host_address, rows.host_stride, to, tail)
        order = None
        if self.knobs.by_page and rows.host_address:
            order = self._order(ids, np.uint64(marked), np.uint64(slots), rows.num_nodes)
        where, split = (0, 0) if order is None else order.addresses
        readers = self.host_blocks(vector) if rows.host_address else 0
        request = _REQUEST.pack(
            ids.data.ptr, ids.size, where, split, marked, slots, cache, previous, rows.host_address, rows.host_stride,
            to, counter, tail, self.row_bytes, readers, tail_bytes, 0,
        )  # fmt: skip
        grid = self._grid(ids.size, self.knobs.rows_per_warp)
        kernel = self._kernel("extract", id_type(ids), vector, tails=tails is not None)
        kernel(grid, (self.knobs.block_threads,), (np.frombuffer(request, _REQUEST_TYPE),))

    def extract_parts(self, parts: Sequence[tuple[Any, Any]], cache: Any) -> None:
        """Rows of several mini-batches, all from a cache with a row per vertex, in one launch.

        Args:
            parts: at most :data:`MAX_PARTS` pairs of ids, all of one type, and ``[n, F]`` to write to.
        """
        arrays = [
            value for ids, out in parts for value in (int(ids.data.ptr), int(ids.size), int(out.data.ptr))
        ]
        most, vector = max(arrays[1::3]), self._vector(cache.data.ptr, *arrays[2::3])
        arrays += [0] * (3 * (MAX_PARTS - len(parts)))
        request = _PARTS.pack(cache.data.ptr, self.row_bytes, *arrays)
        rows = self.knobs.rows_per_warp
        blocks = -(-self._grid(most * len(parts), rows)[0] // len(parts))
        kernel = self._kernel("extract_parts", id_type(parts[0][0]), vector)
        kernel((blocks, len(parts)), (self.knobs.block_threads,), (np.frombuffer(request, _PARTS_TYPE),))

    def extract_placed(
        self, places: Any, table: PeerTable, out: Any, order: Any = None, hot: bool = True
    ) -> None:
        """Rows by their positions in the memories of several GPUs and of the host, in one launch.

        Args:
            places: ``int32[n]``, positions as in ``gather.cuh``.
            table: where the caches begin. Rows of a memory whose address is 0 are left alone.
            out: ``[n, F]``.
            order: what :meth:`order_placed` gave: take the rows that lie on GPUs (``hot``), or those of the host.
        """
        n = int(places.size)
        if n == 0:
            return
        vector = self._vector(table.alignment, table.host_address, table.host_stride, out.data.ptr)
        where, split = (np.uint64(0), np.uint64(0)) if order is None else map(np.uint64, order.addresses)
        bases = np.uint64(table.bases.data.ptr if hot else 0)
        host = np.uint64(0 if order is not None and hot else table.host_address)
        args = (
            places, np.uint64(n), where, split, np.int32(hot), bases, np.uint32(table.shift), host,
            np.uint64(table.host_stride), np.uint32(self.row_bytes), out,
        )  # fmt: skip
        grid = self._grid(n, self.knobs.rows_per_warp, None if hot else self.host_blocks(vector))
        self._kernel("extract", "int", vector, 1)(grid, (self.knobs.block_threads,), args)

    def order_placed(self, places: Any, host_rows: int) -> Order:
        """Rows in host memory first, by page range, then the others; asynchronous."""
        import cupy

        n = int(places.size)
        work = cupy.empty(_PAGES + 1 + n, np.uint32)
        bins, order = work[: _PAGES + 1], work[_PAGES + 1 :]
        bins.data.memset_async(0, bins.nbytes)
        shift = np.uint32(max(0, (max(1, host_rows) - 1).bit_length() - _PAGES.bit_length() + 1))
        args, block = (np.uint64(0), np.uint64(n), places, np.uint64(0), shift, bins), (512,)
        grid = (max(1, -(-n // _ROW_TILE)),)
        _order_kernel("count_pages", "int", 1)(grid, block, args)
        _order_kernel("scan_pages", "int", 1)((1,), block, (bins,))
        _order_kernel("place_rows", "int", 1)(grid, block, (*args, order))
        return Order(work)

    def _order(self, ids: Any, locations: Any, slots: Any, num_nodes: int) -> Order:
        """Rows in host memory by page range, then the others (``order.cu``); asynchronous."""
        import cupy

        n, kind = int(ids.size), id_type(ids)
        work = cupy.empty(_PAGES + 1 + n, np.uint32)
        bins, order = work[: _PAGES + 1], work[_PAGES + 1 :]
        bins.data.memset_async(0, bins.nbytes)
        shift = np.uint32(max(0, (max(1, num_nodes) - 1).bit_length() - _PAGES.bit_length() + 1))
        args, grid, block = (ids, np.uint64(n), locations, slots, shift, bins), (-(-n // _ROW_TILE),), (512,)
        _order_kernel("count_pages", kind)(grid, block, args)
        _order_kernel("scan_pages", kind)((1,), block, (bins,))
        _order_kernel("place_rows", kind)(grid, block, (*args, order))
        return Order(work)

    def place(self, chunk: Any, to: Any, n: int, out: Any) -> None:
        """Rows of ``chunk`` to the rows ``to`` (int32) of ``out``, on the current stream."""
        vector = self._vector(chunk.data.ptr, out.data.ptr)
        args = (chunk, np.uint64(n), to, np.uint32(self.row_bytes), out)
        self._kernel("place", "int", vector)(self._grid(n, 1), (self.knobs.block_threads,), args)


class Stager:
    """Missing rows through pinned buffers: gather, copy and place of successive chunks overlap.

    While the link copies one chunk, the host's threads gather the next chunk into another buffer, and a kernel moves
    the rows of the previous chunk to their places.
    """

    def __init__(self, extractor: GpuExtractor) -> None:
        import cupy

        knobs = extractor.knobs
        self.extractor, self.row_bytes = extractor, extractor.row_bytes
        self.rows = max(1, knobs.chunk_bytes // self.row_bytes)
        size = self.rows * self.row_bytes
        self.pinned = [pinned.empty(size).reshape(self.rows, self.row_bytes) for _ in range(knobs.buffers)]
        self.copying, self.placing = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        users = streams.Turns()
        users.add(self.copying, self.placing)
        self.arrived = [streams.empty(size, cupy.uint8, users) for _ in range(knobs.buffers)]
        self.copied, self.placed = (
            [cupy.cuda.Event(disable_timing=True) for _ in range(knobs.buffers)] for _ in range(2)
        )
        self._ids = np.empty(0, np.uint8)

    def _gather_threads(self) -> int | None:
        """Threads of the host's gather; None for all."""
        asked = self.extractor.knobs.gather_threads
        if asked is not None or not polling.is_beside_others():
            return asked
        threads = jit.num_threads()
        return threads - SPARED if threads > 2 * SPARED else None

    def download(self, counts: Any, missing: Any) -> np.ndarray:
        """The ids of the missing rows, ``int64`` on the host, after one wait for the device."""
        import cupy

        stream = cupy.cuda.get_current_stream()
        need = counts.nbytes + missing.nbytes
        if self._ids.size < need:
            self._ids = pinned.empty(max(1 << 16, 2 * need))
        for at, array in ((0, counts), (counts.nbytes, missing)):
            cupy.cuda.runtime.memcpyAsync(
                self._ids.ctypes.data + at, array.data.ptr, array.nbytes,
                cupy.cuda.runtime.memcpyDeviceToHost, stream.ptr,
            )  # fmt: skip
        stream.synchronize()
        misses = int(self._ids[:8].view(np.uint64)[0])
        return self._ids[counts.nbytes : need].view(missing.dtype)[:misses].astype(np.int64, copy=False)

    def run(self, table: np.ndarray, ids: np.ndarray, positions: Any, out: Any) -> dict[str, float]:
        """``out[positions[i]] = table[ids[i]]``; the current stream waits for the end, the host for the copies' start.

        Events guard the buffers, so that calls may follow each other on different streams. After an interrupt the host
        waits for the copies under way.

        Returns:
            Host microseconds: "gather_us" in the gather, "wait_us" for a buffer to be free again.
        """
        import cupy

        main = cupy.cuda.get_current_stream()
        begun = main.record()
        self.copying.wait_event(begun)
        self.placing.wait_event(begun)
        gathered = waited = 0.0
        try:
            with jit.threads(self._gather_threads()):
                for chunk, first in enumerate(range(0, ids.size, self.rows)):
                    k, n = chunk % len(self.pinned), min(self.rows, ids.size - first)
                    started = time.perf_counter()
                    self.copied[k].synchronize()  # the buffer's last copy, of an earlier extraction maybe
                    filling = time.perf_counter()
                    source, target = words(table, self.pinned[k][:n])
                    gather_rows(source, ids[first : first + n], target)
                    waited, gathered = waited + filling - started, gathered + time.perf_counter() - filling
                    self.copying.wait_event(self.placed[k])
                    copy_to_device_async(self.arrived[k], self.pinned[k], n * self.row_bytes, self.copying)
                    self.copied[k].record(self.copying)
                    self.placing.wait_event(self.copied[k])
                    with self.placing:
                        self.extractor.place(self.arrived[k], positions[first : first + n], n, out)
                    self.placed[k].record(self.placing)
        except BaseException:
            # A copy may be under way that no event covers, from memory and to memory that others take next.
            self.copying.synchronize()
            self.placing.synchronize()
            raise
        main.wait_event(self.placing.record())
        return {"gather_us": gathered * 1e6, "wait_us": waited * 1e6}
