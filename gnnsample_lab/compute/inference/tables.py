"""Tables with a row per vertex, on the device or in host memory, read in order and in chunks."""

from __future__ import annotations

import contextlib
import functools
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gnnsample_lab.device import pinned
from gnnsample_lab.device.host import usable_cores
from gnnsample_lab.device.streams import borrowed_torch_stream

BUFFERS = 3
"""Chunks in flight: one is worked on, one is copied, the next copy is on the stream already."""
SLOT_BYTES, SLOTS = 4 << 20, 16
"""Of pageable rows: parts small enough that the first is soon on its way, large enough for a thread to be worth it."""
STAGING_THREADS = 8
"""More do not copy faster: the memory is busy."""


class Rows:
    """A table of which the device reads rows.

    A table in host memory is copied chunk by chunk, the next chunk while the device works on the last one: directly
    where its memory is page-locked, and otherwise through page-locked slots that threads fill (:class:`Staged`).

    Args:
        table: ``[N, F]``: a tensor on the device, or a NumPy array in host memory, memory-mapped ones included.
        device: ``"cpu"`` or ``"cuda"``.

    Attributes:
        on_device: whether nothing has to be copied.
        copied_bytes: bytes of rows copied from host memory so far.
    """

    def __init__(self, table: Any, device: str) -> None:
        self.table, self.device = table, device
        self.on_device = not isinstance(table, np.ndarray)
        self.copied_bytes = 0

    @property
    def width(self) -> int:
        return int(self.table.shape[1])

    @property
    def itemsize(self) -> int:
        return int(self.table.itemsize if not self.on_device else self.table.element_size())

    def chunks(self, rows: int) -> Iterator[tuple[int, int, Any]]:
        """``(begin, end, tensor[end - begin, F])`` on the device, for all rows in order.

        A tensor holds its rows until the next is asked for; it is read on torch's current stream.
        """
        num = len(self.table)
        bounds = [(begin, min(begin + rows, num)) for begin in range(0, num, rows)]
        if self.on_device:
            yield from ((begin, end, self.table[begin:end]) for begin, end in bounds)
            return
        copy = self._copies_to_gpu if self.device == "cuda" else self._copies
        for begin, end, chunk in copy(bounds, rows):
            self.copied_bytes += (end - begin) * self.width * self.itemsize
            yield begin, end, chunk

    def _copies(self, bounds: list[tuple[int, int]], rows: int) -> Iterator[tuple[int, int, Any]]:
        import torch

        for begin, end in bounds:
            yield begin, end, torch.from_numpy(np.array(self.table[begin:end], order="C"))

    def _copies_to_gpu(self, bounds: list[tuple[int, int]], rows: int) -> Iterator[tuple[int, int, Any]]:
        if not bounds:
            return
        table = self.table if self.table.flags.c_contiguous else np.ascontiguousarray(self.table)
        rows = min(rows, len(table))
        with contextlib.ExitStack() as streams:
            send, count = (_from_locked, 1) if is_locked(table) else (Staged(SLOT_BYTES, SLOTS), BUFFERS)
            copying = [streams.enter_context(borrowed_torch_stream()) for _ in range(count)]
            yield from self._copies_on(copying, send, table, bounds, rows)

    def _copies_on(
        self, copying: list[Any], send: Any, table: np.ndarray, bounds: list[tuple[int, int]], rows: int
    ) -> Iterator[tuple[int, int, Any]]:
        """Chunks that are copied on the streams ``copying`` in turn.

        An event stands behind its own chunk and before the next one's copy: what works on a chunk would otherwise wait
        for the chunks behind it, and the link for that work. Where threads send the parts of several chunks at once,
        only a stream for each buffer keeps them apart.
        """
        import torch

        main = torch.cuda.current_stream()
        for stream in copying:
            stream.wait_stream(main)
        dtype = torch.from_numpy(np.empty(0, table.dtype)).dtype
        arrived = [torch.empty((rows, self.width), dtype=dtype, device="cuda") for _ in range(BUFFERS)]
        copied, used = ([torch.cuda.Event() for _ in range(BUFFERS)] for _ in range(2))
        sent: list[list[Any]] = []

        def begin_copy() -> None:
            """Of the next chunk. The link is never idle because the host is: chunks are sent as buffers get free."""
            if len(sent) < len(bounds):
                k, (begin, end) = len(sent) % BUFFERS, bounds[len(sent)]
                stream = copying[k % len(copying)]
                stream.wait_event(used[k])
                parts = send(table[begin:end], arrived[k].data_ptr(), stream)
                if not parts:
                    copied[k].record(stream)
                sent.append(parts)

        try:
            for _ in range(BUFFERS):
                begin_copy()
            for number, (begin, end) in enumerate(bounds):
                k = number % BUFFERS
                for part in sent[number]:
                    part.result()
                if sent[number]:
                    copied[k].record(copying[k % len(copying)])
                main.wait_event(copied[k])
                yield begin, end, arrived[k][: end - begin]
                used[k].record(main)
                begin_copy()
        finally:
            for part in (part for parts in sent for part in parts):
                part.exception()  # waits
            for stream in copying:
                main.wait_stream(stream)
                stream.synchronize()  # the buffers go now, or the caller's table may


def _from_locked(source: np.ndarray, address: int, stream: Any) -> list[Any]:
    """Put a copy of page-locked rows to device memory on ``stream``; nothing is left to wait for on the host."""
    import cupy

    runtime = cupy.cuda.runtime
    runtime.memcpyAsync(
        address, source.ctypes.data, source.nbytes, runtime.memcpyHostToDevice, stream.cuda_stream
    )
    return []


class Staged:
    """Copies of pageable rows through page-locked slots, which several threads fill and send on.

    A thread copies about as fast as a tenth of the host's memory can; page faults of mapped files overlap, too. Slots
    are page-locked once, since locking costs more than copying, and serve all inferences.

    Args:
        slot_bytes: of a slot, and of a part that a thread copies at a time.
        count: slots.
    """

    def __init__(self, slot_bytes: int, count: int) -> None:
        import cupy

        self._slots, self._threads = _staging(slot_bytes, count)
        self._device = cupy.cuda.runtime.getDevice()

    def __call__(self, source: np.ndarray, address: int, stream: Any) -> list[Any]:
        """Begin to copy; when all of the returned futures are done, all copies are on the stream."""
        given, size = source.reshape(-1).view(np.uint8), self._slots.slot_bytes
        return [
            self._threads.submit(self._send, given[at : at + size], address + at, stream)
            for at in range(0, len(given), size)
        ]

    def _send(self, part: np.ndarray, address: int, stream: Any) -> None:
        import cupy

        runtime = cupy.cuda.runtime
        runtime.setDevice(self._device)
        slot, free = self._slots.get()
        try:
            free.synchronize()  # its last copy
            slot[: len(part)] = part  # without the interpreter's lock
            runtime.memcpyAsync(
                address, slot.ctypes.data, len(part), runtime.memcpyHostToDevice, stream.cuda_stream
            )
            free.record(stream)
        finally:
            self._slots.put((slot, free))


class _Slots(queue.SimpleQueue):  # type: ignore[type-arg]
    """Page-locked memory of ``slot_bytes`` each, and the event after its last copy."""

    def __init__(self, slot_bytes: int, count: int) -> None:
        import torch

        super().__init__()
        self.slot_bytes = slot_bytes
        for _ in range(count):
            self.put((pinned.empty(slot_bytes), torch.cuda.Event()))


@functools.cache
def _staging(slot_bytes: int, count: int) -> tuple[_Slots, ThreadPoolExecutor]:
    threads = min(STAGING_THREADS, usable_cores())
    return _Slots(slot_bytes, count), ThreadPoolExecutor(threads, "lab-staging")


def is_locked(table: np.ndarray) -> bool:
    """Whether a table's memory is page-locked, so that the GPU copies from it by itself."""
    import cupy

    if table.size == 0:
        return False
    runtime = cupy.cuda.runtime
    return all(
        int(runtime.pointerGetAttributes(address).type) == 1  # cudaMemoryTypeHost
        for address in (table.ctypes.data, table.ctypes.data + table.nbytes - 1)
    )


def host_table(shape: tuple[int, int], dtype: Any, device: str) -> np.ndarray:
    """An uninitialised table in host memory, page-locked for a GPU where the host allows that."""
    wanted = np.dtype(dtype)
    if device == "cuda":
        try:
            memory = pinned.empty(shape[0] * shape[1] * wanted.itemsize)
            return memory.view(wanted).reshape(shape)
        except MemoryError:
            pass
    return np.empty(shape, wanted)


def put(table: Any, begin: int, rows: Any) -> None:
    """Write ``rows``, on the device, to those from ``begin`` on of a tensor there or of a NumPy array in host memory.

    A copy to page-locked memory is put on torch's current stream, and nothing waits for it.
    """
    end = begin + len(rows)
    if not isinstance(table, np.ndarray):
        table[begin:end] = rows
        return
    target = table[begin:end]
    rows = rows.contiguous()
    same = target.flags.c_contiguous and str(target.dtype) == str(rows.dtype).removeprefix("torch.")
    if rows.is_cuda and same and is_locked(target):
        import cupy
        import torch

        runtime, stream = cupy.cuda.runtime, torch.cuda.current_stream()
        runtime.memcpyAsync(
            target.ctypes.data, rows.data_ptr(), target.nbytes, runtime.memcpyDeviceToHost, stream.cuda_stream
        )
        return
    target[:] = rows.cpu().numpy()
