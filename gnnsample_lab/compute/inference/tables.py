"""Tables with a row per vertex, on the device or in host memory, read in order and in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gnnsample_lab.device import pinned
from gnnsample_lab.features.caching.host import gather_rows, words

BUFFERS = 3
"""Chunks in flight: one is copied, one is worked on, one is filled by the host."""


class Rows:
    """A table of which the device reads rows.

    A table in host memory is copied chunk by chunk, the next chunk while the device works on the last one: directly
    where its memory is page-locked, and otherwise through page-locked buffers that all of the host's threads fill.

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
        import cupy
        import torch

        table = self.table if self.table.flags.c_contiguous else np.ascontiguousarray(self.table)
        rows = min(rows, max(1, len(table)))
        row_bytes, runtime = self.width * self.itemsize, cupy.cuda.runtime
        direct = is_locked(table)
        shape, dtype = (rows, self.width), torch.from_numpy(np.empty(0, table.dtype)).dtype
        arrived = [torch.empty(shape, dtype=dtype, device="cuda") for _ in range(BUFFERS)]
        if not direct:
            buffers = [
                pinned.empty(rows * row_bytes).view(table.dtype).reshape(shape) for _ in range(BUFFERS)
            ]
        main, copying = torch.cuda.current_stream(), torch.cuda.Stream()
        copying.wait_stream(main)
        copied, used = ([torch.cuda.Event() for _ in range(BUFFERS)] for _ in range(2))
        try:
            for number, (begin, end) in enumerate(bounds):
                k = number % BUFFERS
                source = table[begin:end]
                if not direct:
                    copied[k].synchronize()  # the buffer's last copy
                    given, filled = words(table, buffers[k][: end - begin])
                    gather_rows(given, np.arange(begin, end), filled)
                    source = buffers[k]
                copying.wait_event(used[k])
                runtime.memcpyAsync(
                    arrived[k].data_ptr(), source.ctypes.data, (end - begin) * row_bytes,
                    runtime.memcpyHostToDevice, copying.cuda_stream,
                )  # fmt: skip
                copied[k].record(copying)
                main.wait_event(copied[k])
                yield begin, end, arrived[k][: end - begin]
                used[k].record(main)
        finally:
            main.wait_stream(copying)
            copying.synchronize()  # the buffers go now, or the caller's table may


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
