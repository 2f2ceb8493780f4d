"""The feature cache: the hottest rows in device memory, the rest read from the host as batches ask for them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gnnsample_lab import checks
from gnnsample_lab.checks import choice, host_integers, ids_below, instance, is_cuda_array
from gnnsample_lab.device import runtime, streams
from gnnsample_lab.device.arrays import is_memory_mapped
from gnnsample_lab.device.locks import Lock, check_process

from . import gather, host, sizing, slots
from .marks import Marks, Previous
from .stats import TRANSFERS, Counted, ExtractStats

_BUILD_BYTES = 64 << 20
_LAUNCH_BYTES = 1 << 28
"""Most bytes of rows that several mini-batches get from one launch: larger ones keep the GPU busy alone."""


class FeatureCache:
    """Rows of a host feature table, the hottest kept in device memory (GNNLab, sections 5.3 and 6).

    Args:
        feat: float32 or float16 ``[N, F]``: NumPy (memory-mapped too), a torch tensor, or already on the GPU, where
            nothing is left to cache: everything hits and the sizing is ignored.
        hotness: :class:`~.hotness.Hotness`, or one score per vertex (higher is hotter, ties to the lower id); None
            will do where no or every row is cached.
        ratio: share of the rows to cache, ``round(ratio * N)`` of them.
        capacity_bytes: device memory to fill, the look-up table (a quarter of a byte a vertex) included.
        leave_free: ``"trial"``: run ``trial()``, one training step, and fill the memory that is free at the step's
        peak.
        device: "auto", "cpu" or "cuda". On the CPU the cache is a copy of its rows in host memory, so that hits,
            misses and bytes are those of a GPU with that much memory.
        transfer: how missing rows reach the GPU. ``"uva"``: the kernel reads them from pinned host memory over
            PCIe, in the same pass as the hits. ``"staged"``: the host's threads gather them into pinned buffers,
            which are copied while the next is filled. ``"disk"``: staged, from a memory-mapped file, whose rows must be
            contiguous. ``"auto"``: disk for such memory maps, else uva if the table can be pinned, else staged. On the
            CPU, where nothing is copied, a memory-mapped table is reported as "disk" and any other as "host".
        trial: see ``leave_free``.
        knobs: launch shapes (:class:`~.gather.ExtractKnobs`).

    Attributes:
        num_cached: rows in the cache. ratio: their share. cached_ids: their vertices, ``int64`` in NumPy, ascending:
            row i of the cache is that of ``cached_ids[i]``.
        nbytes: device memory of the cache, its look-up table and the tails of rows (:class:`~.gather.ExtractKnobs`).
        num_features, num_nodes, dtype: of the table. transfer: as resolved. device: "cpu" or "cuda".

    Raises:
        TypeError, ValueError: unsuitable arguments, each named.
        MemoryError: ``transfer="uva"`` and the table cannot be pinned.
        RuntimeError: ``device="cuda"`` without a GPU.
    """

    def __init__(
        self, feat: Any, hotness: Any = None, ratio: float | None = None, capacity_bytes: int | None = None,
        leave_free: str | None = None, device: str | None = "auto", transfer: str = "auto", *,
        trial: Callable[[], Any] | None = None, knobs: gather.ExtractKnobs | None = None,
    ) -> None:  # fmt: skip
        if knobs is not None:
            instance("knobs", knobs, gather.ExtractKnobs, "ExtractKnobs")
        self.table = host.feature_table(feat)
        self.on_device = is_cuda_array(self.table)
        if not self.on_device:
            sizing.check_sizing(ratio, capacity_bytes, leave_free, trial)
        choice("transfer", transfer, ("auto", *TRANSFERS))
        if transfer == "disk" and is_memory_mapped(feat) and not is_memory_mapped(self.table):
            raise ValueError(
                "transfer='disk' needs a memory-mapped table whose rows are contiguous, one right after another "
                f"(got feat {list(feat.shape)} with steps of {feat.strides} bytes)"
            )
        self.device = runtime.resolve_device(device)
        if self.on_device and self.device == "cpu":
            raise ValueError("device='cpu' cannot extract from a table on the GPU (got feat on the GPU)")
        self.num_nodes, self.num_features = map(int, self.table.shape)
        self.dtype, self.row_bytes = self.table.dtype, self.num_features * self.table.itemsize
        self.knobs = knobs or gather.ExtractKnobs()
        self._lock = Lock()  # staged extraction has one set of buffers
        self._tail_bytes = self._tails_of(transfer)
        if self.on_device:
            self.num_cached = self.num_nodes
        elif ratio is not None:
            self.num_cached = sizing.rows_of_ratio(float(ratio), self.num_nodes)
        else:
            left = capacity_bytes
            if trial is not None:
                left = sizing.memory_left_by(trial, self.device)
            left = int(left or 0)
            self._tail_bytes = self._tails_of(transfer, left)
            self.num_cached = sizing.rows_in(left, self.num_nodes, self.row_bytes, self._tail_bytes)
        if self.num_cached >= 2**31:
            raise ValueError(
                f"at most {2**31 - 1} rows can be cached: places of rows have 32 bits (got {self.num_cached})"
            )
        self.cached_ids = self._choose(hotness)
        with streams.results(self.device == "cuda"):
            self._fill()
        self.transfer = self._resolve_transfer(transfer)
        self._warm: set[Any] = set()  # id types whose kernels are compiled
        self._warm_parts: set[Any] = set()

    # -- construction

    @property
    def ratio(self) -> float:
        """Share of the rows that is cached; 1 for an empty table."""
        return self.num_cached / self.num_nodes if self.num_nodes else 1.0

    @property
    def all_cached(self) -> bool:
        return self.num_cached == self.num_nodes

    @property
    def nbytes(self) -> int:
        """Bytes of device memory in use: rows, look-up table, tails of rows (for a table on the GPU: that table)."""
        return sum(int(a.nbytes) for a in (self._cache, self._slots, self._tails) if a is not None)

    def _tails_of(self, transfer: str, capacity_bytes: int | None = None) -> int:
        """Bytes at the end of each row that device memory is to keep for all vertices, if that much of it is given."""
        longest = self.knobs.tail_bytes
        pinned = self.device == "cuda" and not self.on_device and transfer in ("auto", "uva")
        if not longest or not pinned or (transfer == "auto" and is_memory_mapped(self.table)):
            return 0
        found = host.tail_of(self.table, self.knobs.pinning, longest)
        beside = slots.table_bytes(self.num_nodes) + found * self.num_nodes
        if capacity_bytes is not None and beside > capacity_bytes:
            return 0
        return found

    def _choose(self, hotness: Any) -> np.ndarray:
        if self.num_cached in (0, self.num_nodes):
            if hotness is not None and not self.on_device:
                sizing.hottest_first(hotness, self.num_nodes)  # a wrong one is an error at every size
            return np.arange(self.num_cached)
        if hotness is None:
            raise ValueError(f"hotness must say which {self.num_cached} rows to cache (got None)")
        return np.sort(sizing.hottest_first(hotness, self.num_nodes)[: self.num_cached])

    def _fill(self) -> None:
        """The cache's rows, and the slot of every vertex unless all or none are cached."""
        self._cache: Any = None
        self._slots: Any = None
        self._tails: Any = None
        self._missing_id = 0  # id of a vertex that is not cached, if there is one
        if self.on_device:
            self._cache = self.table
            return
        if self.num_cached == 0:
            return
        xp = gather.library(self.device)
        shape = (self.num_cached, self.num_features)
        self._cache = xp.empty(shape, self.dtype)
        step = max(1, _BUILD_BYTES // self.row_bytes)
        for first in range(0, self.num_cached, step):
            ids = self.cached_ids[first : first + step]
            rows = self._cache[first : first + step]
            target = rows if xp is np else np.empty(rows.shape, self.dtype)
            source, filled = host.words(self.table, target)
            host.gather_rows(source, ids, filled)
            if xp is not np:
                rows.set(target)
        if not self.all_cached:
            self._slots = xp.asarray(slots.slot_table(self.cached_ids, self.num_nodes))
            self._missing_id = slots.first_missing(self.cached_ids)

    def _resolve_transfer(self, transfer: str) -> str:
        on_disk = not self.on_device and is_memory_mapped(self.table)
        if transfer == "disk" and not on_disk:
            raise ValueError("transfer='disk' needs a memory-mapped table (got one in memory)")
        if self.device == "cpu":
            return "disk" if on_disk else "host"
        self._gpu = gather.GpuExtractor(self.row_bytes, self.knobs)
        self._pinned: host.PinnedTable | None = None
        self._stager: gather.Stager | None = None
        self._rows = gather.GpuRows(self._slots, self._cache, num_nodes=self.num_nodes)
        if self.on_device:
            return "device"
        if transfer == "auto" and on_disk:
            return "disk"
        if transfer in ("auto", "uva"):
            if self.all_cached:  # nothing will ever miss
                return "uva"
            try:
                self._pinned = host.pin(
                    self.table, self.knobs.pinning, self.knobs.pad_bytes, self._tail_bytes
                )
            except MemoryError:
                if transfer == "uva":
                    raise
                return "staged"
            self._rows.host_address, self._rows.host_stride = self._pinned.address, self._pinned.stride
            if self._pinned.tails is not None:
                with streams.results(True):
                    self._tails = gather.library(self.device).asarray(self._pinned.tails)
                self._rows.tails, self._pinned.tails = self._tails, None
            return "uva"
        return "disk" if on_disk else "staged"

    # -- use

    @functools.cached_property
    def _token(self) -> int:
        """A hash of what slots mean here, below 2**56: vertices of the table, and which of them is in which slot."""
        digest = hashlib.blake2b(f"{self.num_nodes} {self.num_cached}".encode(), digest_size=7)
        if 0 < self.num_cached < self.num_nodes:
            digest.update(self.cached_ids.data)
        return int.from_bytes(digest.digest(), "little")

    def rows_on_gpu(self) -> gather.GpuRows:
        """Where kernels of this package find rows.

        Raises:
            ValueError: some rows are neither on the GPU nor in page-locked host memory, or lie there in two parts.
        """
        if self.device == "cuda" and self._tails is not None:
            raise ValueError(
                "features must have whole rows in page-locked host memory: make the cache with knobs.tail_bytes=0 "
                f"(got {self.knobs.tail_bytes})"
            )
        if self.device == "cpu" or not (self.all_cached or self._pinned is not None):
            raise ValueError(
                f"features must lie on the GPU or in page-locked host memory (got transfer={self.transfer!r})"
            )
        return self._rows

    def mark(self, node_ids: Any) -> Marks:
        """Find where the rows of a batch are; done while sampling, it leaves extraction nothing to look up.

        Streams are as in :meth:`extract`, which waits for the marks.

        Args:
            node_ids: global ids, duplicates allowed. Ids that lie on a GPU are not checked, here or in
                ``extract``: one outside the table reads memory that is not the table's.

        Raises:
            TypeError, ValueError: no integers, not one-dimensional, or host ids outside the table.
        """
        with streams.call(self.device == "cuda"):
            ids = self._ids(node_ids)
            # The caller may change the ids before extraction compares them.
            marks = self._mark(ids.copy() if self.device == "cpu" else ids, None)
            return dataclasses.replace(marks, token=self._token)

    def extract(self, node_ids: Any, marks: Marks | None = None, out: Any = None) -> tuple[Any, ExtractStats]:
        """Rows of a batch: ``x[i]`` is ``feat[node_ids[i]]``, bit for bit.

        On a GPU the work goes on CuPy's current stream. It waits, on the device, for ``node_ids`` and ``marks`` on
        whatever stream this package made them, and for torch's current stream, which then waits for the rows. Any other
        stream waits for ``stats.ready``. The memory of the rows is used again behind the streams named here and those
        that are current when the last array or tensor of it is dropped. The cache serves all streams and threads, and
        an interrupt leaves it usable.

        Args:
            node_ids: global ids ``[n]``, duplicates allowed; NumPy, CuPy, torch or a list.
            marks: from :meth:`mark` of the same ids, by this cache or one with the same ``cached_ids``. Of ids on a GPU
                only the number is checked.
            out: array ``[n, F]`` of the table's type to write to, row-major, on the cache's device.

        Returns:
            ``(x, stats)``: x is CuPy on the GPU, NumPy on the CPU.

        Raises:
            TypeError, ValueError: ids as in :meth:`mark`, marks of another batch or of a cache with other
                ``cached_ids``, or an ``out`` that does not fit.
        """
        with streams.call(self.device == "cuda"):
            ids = self._ids(node_ids)
            if marks is not None:
                instance("marks", marks, Marks, "what mark() returned")
            if marks is not None and marks.rows != ids.size:
                raise ValueError(f"marks must be of the same batch, {ids.size} rows (got {marks.rows})")
            if marks is not None and marks.ids is not None and not np.array_equal(marks.ids, ids):
                raise ValueError("marks must be of the same batch (got marks of other vertices)")
            if marks is not None and marks.token not in (None, self._token):
                raise ValueError(
                    "marks must be of a cache with the same cached_ids (got those of another cache)"
                )
            return self._extract(ids, marks, None, self._output(out, int(ids.size)))

    def extract_each(self, node_ids: Sequence[Any]) -> Iterator[tuple[Any, ExtractStats]]:
        """Rows of several batches, each as :meth:`extract` gives them.

        On a GPU where every row is cached, one launch serves up to 16 small batches, which the host takes longer to
        launch one by one than the GPU to do. Each batch has memory of its own, taken when its turn comes.

        Args:
            node_ids: ids of each batch, as :meth:`extract` takes them; all are checked in the call.

        Returns:
            An iterator of ``(x, stats)``. ``stats.time_us`` of a batch is its share, by rows, of the launch.

        Raises:
            TypeError, ValueError: as :meth:`extract`; no list of batches.
        """
        batches = checks.items("node_ids", node_ids, "a list with the ids of each batch")
        with streams.results(self.device == "cuda"):  # what reads them may be on another stream
            given = [self._ids(ids) for ids in batches]
        return self._each(given)

    def _each(self, given: Sequence[Any]) -> Iterator[tuple[Any, ExtractStats]]:
        for part in self._launches(given):
            with streams.call(self.device == "cuda"):
                streams.order(*part)  # the stream may be another one by now
                if len(part) == 1:
                    found = [self._extract(part[0], None, None, self._output(None, int(part[0].size)))]
                else:
                    found = self._extract_parts(part)
            found.reverse()  # who drops a result frees its memory
            while found:
                yield found.pop()

    def _launches(self, given: Sequence[Any]) -> Iterator[list[Any]]:
        """The batches that share a launch, launch by launch, in their order."""
        alike = self.device == "cuda" and self.all_cached and len({ids.dtype for ids in given}) == 1
        part: list[Any] = []
        held = 0
        for ids in given:
            size = int(ids.size) * self.row_bytes
            if part and (not alike or len(part) == gather.MAX_PARTS or held + size > _LAUNCH_BYTES):
                yield part
                part, held = [], 0
            part.append(ids)
            held += size
        if part:
            yield part

    def _extract_parts(self, given: Sequence[Any]) -> list[tuple[Any, ExtractStats]]:
        """Rows of a few batches, by one launch."""
        import cupy

        check_process(self.device)
        parts = [(ids, self._output(None, int(ids.size))) for ids in given]
        total = sum(int(ids.size) for ids in given)
        if total == 0:
            return [(out, self._stats(0, Counted(0))) for _, out in parts]
        streams.order(self._cache)
        if (kind := given[0].dtype) not in self._warm_parts:
            # Once more, so that the kernel is compiled before the timed work.
            self._gpu.extract_parts(parts, self._cache)
            self._warm_parts.add(kind)
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        self._gpu.extract_parts(parts, self._cache)
        end.record()

        def count(rows: int) -> Counted:
            end.synchronize()
            return Counted(0, 0, cupy.cuda.get_elapsed_time(begin, end) * 1e3 * rows / total)

        return [
            (
                out,
                self._stats(
                    len(out), functools.partial(count, len(out)), streams.ready_of(out) or streams.Ready()
                ),
            )
            for _, out in parts
        ]

    def _ids(self, node_ids: Any) -> Any:
        if self.device == "cuda" and is_cuda_array(node_ids):
            return gather.device_ids(node_ids)
        given = host_integers("node_ids", node_ids)
        ids_below("node_ids", given, self.num_nodes)
        ids = np.ascontiguousarray(given, dtype=np.int64)
        return gather.library(self.device).asarray(ids)

    def _output(self, out: Any, rows: int) -> Any:
        shape = (rows, self.num_features)
        xp = gather.library(self.device)
        if out is None:
            return (
                np.empty(shape, self.dtype) if xp is np else streams.empty(shape, self.dtype, streams.Ready())
            )
        if not isinstance(out, xp.ndarray):
            raise TypeError(f"out must be a {xp.__name__} array (got {type(out).__name__})")
        if tuple(out.shape) != shape or out.dtype != self.dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be row-major {self.dtype}{list(shape)} (got {out.dtype}{list(out.shape)})"
            )
        if xp is np and not out.flags.writeable:
            raise ValueError("out must be an array that can be written to (got a read-only one)")
        return out

    def _mark(self, ids: Any, previous: Previous | None) -> Marks:
        n = int(ids.size)
        if self.device == "cpu":
            locations = np.empty(n, np.int32)
            last = Previous(_NO_ROWS, 0, 0, None) if previous is None else previous
            table = slots.NONE if self._slots is None else self._slots
            cached = self.all_cached and self.num_cached > 0
            counts = host.locate_rows(ids, table, cached, last.where, last.base, last.rows, locations)
            misses = np.flatnonzero(locations == -1).astype(np.int32)
            return Marks(n, locations, misses, ids[misses], np.array(counts, np.uint64), ids=ids)
        import cupy

        streams.order(self._slots)
        ready, wide = streams.Ready(), n * ids.dtype.itemsize
        memory = streams.lease(cupy.cuda.alloc(max(1, wide + 8 * n)), ready)
        missing = cupy.ndarray((n,), ids.dtype, memory)
        locations, misses = (cupy.ndarray((n,), np.int32, memory + wide + at) for at in (0, 4 * n))
        counts = streams.empty(2, np.uint64, ready)  # apart: statistics keep it to the end of an epoch
        counts.data.memset_async(0, 16)
        if n:
            table = 0 if self._slots is None else self._slots.data.ptr
            where, base, rows = (
                (0, 0, 0) if previous is None else (previous.where.data.ptr, previous.base, previous.rows)
            )
            args = (
                ids, np.uint64(n), np.uint64(table), np.int32(self.all_cached), np.uint64(where), np.uint32(base),
                np.uint32(rows), locations, misses, missing, counts,
            )  # fmt: skip
            gather.match_kernel("mark", ids)(gather.blocks_for(n), (256,), args)
        return Marks(n, locations, misses, missing, counts, ready)

    def _extract(
        self, ids: Any, marks: Marks | None, previous: Previous | None, out: Any
    ) -> tuple[Any, ExtractStats]:
        run = self._extract_cpu if self.device == "cpu" else self._extract_gpu
        check_process(self.device)
        with self._lock:
            if ids.dtype not in self._warm and self.num_nodes:
                # An extra run per id type, so that kernels are compiled before the timed work.
                self._warm.add(ids.dtype)
                one = self._missing_id + gather.library(self.device).zeros(1, ids.dtype)
                run(one, self._mark(one, None), None, self._output(None, 1))
            return run(ids, marks, previous, out)

    def _stats(
        self, rows: int, count: Counted | Callable[[], Counted], ready: Any = streams.DONE
    ) -> ExtractStats:
        where = "the CPU" if self.device == "cpu" else runtime.device_name()
        tail = 0 if self._tails is None else int(self._tails.shape[1])
        return ExtractStats(
            rows, self.row_bytes, self.transfer, f"measured on {where}", count, ready, self.row_bytes - tail
        )

    def _extract_cpu(
        self, ids: np.ndarray, marks: Marks | None, previous: Previous | None, out: np.ndarray
    ) -> tuple[np.ndarray, ExtractStats]:
        began = time.perf_counter()
        if marks is None:
            marks = self._mark(ids, previous)
        marked = time.perf_counter()
        if ids.size:
            cache = out[:0] if self._cache is None else self._cache
            before = out[:0] if previous is None or previous.x is None else previous.x
            host.collect_rows(ids, marks.locations, *host.words(cache, before, self.table, out))
        ended = time.perf_counter()
        stages = {"mark_us": (marked - began) * 1e6, "rows_us": (ended - marked) * 1e6}
        counted = Counted(marks.num_misses, marks.num_reused, (ended - began) * 1e6, stages)
        return out, self._stats(int(ids.size), counted)

    def _extract_gpu(
        self, ids: Any, marks: Marks | None, previous: Previous | None, out: Any
    ) -> tuple[Any, ExtractStats]:
        import cupy

        n = int(ids.size)
        if n == 0:
            return out, self._stats(0, Counted(0))
        streams.order(self._cache, self._slots, self._tails)
        if marks is not None:
            marks.ready.order()
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        staged = self.transfer in ("staged", "disk") and not self.all_cached
        if marks is None and (staged or previous is not None):
            marks = self._mark(ids, previous)
        counts = None if marks is None else marks.counts
        if counts is None and not self.all_cached:
            counts = cupy.zeros(2, np.uint64)
        rows = self._rows
        if previous is not None:
            rows = dataclasses.replace(rows, previous=previous.x)
        stages: dict[str, float] = {}
        missing = None
        if staged and marks is not None:
            if self._stager is None:
                self._stager = gather.Stager(self._gpu)
            began = time.perf_counter()
            missing = self._stager.download(counts, marks.missing)
            stages["mark_us"] = (time.perf_counter() - began) * 1e6
        # Launch the hits before the host begins to gather, so that the device works on them meanwhile.
        self._gpu.extract(ids, None if marks is None else marks.locations, rows, out, counts)
        if missing is not None and marks is not None and self._stager is not None and missing.size:
            stages.update(self._stager.run(self.table, missing, marks.misses, out))
        end.record()

        def count() -> Counted:
            end.synchronize()
            misses, reused = (0, 0) if counts is None else (int(c) for c in counts.get())
            return Counted(misses, reused, cupy.cuda.get_elapsed_time(begin, end) * 1e3, stages)

        return out, self._stats(n, count, streams.ready_of(out) or streams.Ready())


_NO_ROWS = np.empty(0, np.uint32)
