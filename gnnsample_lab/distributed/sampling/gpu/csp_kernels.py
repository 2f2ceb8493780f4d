"""The kernels of collective sampling: their modules, arguments as ``csp_*.cu`` declare them, and launches."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device import kernels
from gnnsample_lab.minibatch.id_map.gpu import raw_argument
from gnnsample_lab.sampling.neighbors.plan import NARROW
from gnnsample_lab.sampling.neighbors.sizes import power_of_two

MAX_PEERS = 64
"""Most ranks that share a graph on GPUs."""
REPORT_WORDS = 8 + 2 * MAX_PEERS
"""Words in pinned host memory of a report; the kernel ``report`` says what they hold."""
REPORT_SENT = 8
FOLDER = "distributed/sampling/gpu/"
_PEERS = struct.Struct(f"={MAX_PEERS}Q")
_TABLES = [struct.Struct(f"={n}Q").pack_into for n in range(MAX_PEERS + 1)]
"""Packs a table of so many entries."""


class Argument:
    """One kernel argument: fields, then one or more tables with an entry for each peer.

    Attributes:
        memory: its bytes, which a :class:`Launch` reads.
        bytes: the same as an argument of CuPy's launches.
    """

    def __init__(self, fields: str, tables: int) -> None:
        self._fields = struct.Struct("=" + fields)
        self.size = self._fields.size + tables * _PEERS.size
        self.memory, self.bytes = raw_argument(self.size)
        self._view: Any = memoryview(self.memory)  # type: ignore[arg-type]

    def pack(self, fields: Sequence[int], *tables: Sequence[int]) -> Any:
        """Fill the argument and return it; entries of peers that do not exist keep what they had."""
        view = self._view
        self._fields.pack_into(view, 0, *fields)
        at = self._fields.size
        for table in tables:
            _TABLES[len(table)](view, at, *table)
            at += _PEERS.size
        return self.bytes


class Launch:
    """A kernel with the memory of its arguments: one call of the driver. CuPy would examine each argument anew.

    Args:
        kernel: of :class:`Modules`.
        threads: of a block.
        args: the memory of each argument in order, NumPy arrays, whose bytes each launch reads.
    """

    def __init__(self, kernel: Any, threads: int, *args: np.ndarray) -> None:
        from cupy_backends.cuda.api import driver

        self._launch, self._kept = driver.launchKernel, (kernel, args)
        self._function, self._threads = int(kernel.ptr), threads
        self._addresses = (ctypes.c_void_p * len(args))(*(array.ctypes.data for array in args))
        self._where = ctypes.addressof(self._addresses)

    def __call__(self, stream: int, blocks: int, rows: int = 1) -> None:
        """Launch on the stream at an address; the arguments may change as soon as this returns."""
        self._launch(
            self._function, blocks, rows, 1, self._threads, 1, 1, 0, stream, self._where, 0,
        )  # fmt: skip


ROUTE, TASKS, RAGGED, REPLIES = ("5Q2i", 2), ("5Qq6Q2iQ", 3), ("8Q", 0), ("7Q4iQ", 2)
"""Fields and tables of the structures ``Route``, ``Tasks``, ``Ragged`` and ``Replies``."""
ASKED, SUMS = ("2Q4q6Qq2i", 0), ("2Qq2Qq2i", 2)
"""Likewise of ``Asked`` and ``Sums``."""


def reply_bytes(rows: Any, stride: Any, id_bytes: int, weighted: bool) -> Any:
    """Bytes of a reply for ``rows`` rows: heads, neighbours, and slots of weighted rules; see ``csp.cuh``.

    ``rows`` and ``stride`` may be arrays.
    """
    return (rows + 3) // 4 * 16 + (rows * stride * (id_bytes + 4 * weighted) + 15) // 16 * 16


def kmax_of(stride: int) -> int:
    """``KMAX`` for rows of ``stride`` places: 8, 16 or 32, and 0 for wider and for ragged rows."""
    return power_of_two(stride, 8) if 0 < stride <= NARROW else 0


class Modules:
    """The kernels for one graph and one rule, by name, compiled on first use.

    ``lists``: the macro ``LISTS`` of ``csp_draw.cu`` and ``csp_pull.cu``.
    """

    def __init__(self, id_type: str, rule: int, table: int, lists: int = 0) -> None:
        self._id_type, self._rule, self._table, self._lists = id_type, rule, table, lists
        self._found: dict[tuple[str, str, int, int], Any] = {}

    def route(self, name: str) -> Any:
        return self._kernel("csp_route.cu", name, 0, 0)

    def draw(self, name: str, kmax: int, pulled: bool = False) -> Any:
        return self._kernel("csp_draw.cu", name, kmax, int(pulled))

    def pull(self, name: str) -> Any:
        return self._kernel("csp_pull.cu", name, 0, 0)

    def merge(self, name: str, kmax: int) -> Any:
        return self._kernel("csp_merge.cu", name, kmax, 0)

    def _kernel(self, source: str, name: str, kmax: int, pulled: int) -> Any:
        key = (source, name, kmax, pulled)
        if key not in self._found:
            macros: dict[str, int | str] = {"ID_T": self._id_type}
            if source == "csp_draw.cu":
                macros |= {"RULE": self._rule, "PULLED": pulled, "KMAX": kmax, "LISTS": self._lists}
            elif source == "csp_pull.cu":  # copies weights, whatever is drawn by them
                macros |= {"RULE": 3 if self._rule >= 3 else 0, "LISTS": self._lists}
            elif source == "csp_merge.cu":
                macros |= {"RULE": self._rule, "TABLE_KIND": self._table, "KMAX": kmax}
            module = kernels.load_module(FOLDER + source, macros)
            # The driver's function launches with half the overhead of CuPy's wrapper.
            self._found[key] = module.get_function(name).kernel
        return self._found[key]


def pinned_words(count: int) -> tuple[Any, np.ndarray]:
    """``count`` integers of 64 bits in pinned host memory, zeros: the memory to keep, and the array."""
    import cupy

    memory = cupy.cuda.alloc_pinned_memory(8 * count)
    words = np.frombuffer(memory, np.int64, count)
    words[:] = 0
    return memory, words
