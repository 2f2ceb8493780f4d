"""Rows of features that the launch of a mini-batch brings with it (``rows.cu``).

Extraction by a call of its own costs the host about as long as the GPU needs for a small mini-batch's rows, and begins
when the host knows the sizes. As a part of the launch it costs no call, and runs while the host makes tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.device import kernels, pools, rows, runtime
from gnnsample_lab.device.dependent import launch
from gnnsample_lab.sampling.neighbors.workspace import Workspace

_THREADS, _ROWS = 256, 2
"""Of a block, and rows of a warp at a time."""
_SHARE = 16
"""Rows of a launch take one part in so many of the GPU's memory at most, or of a budget: beyond it calls of their own
bring them, each when its mini-batch's turn comes."""


class RowTable:
    """The features of a graph on the GPU.

    Args:
        table: ``[N, F]``, as :meth:`of` accepts it.
        id_type: the kernels' name of the type of vertex ids.

    Attributes:
        row_bytes: of a vertex of a mini-batch.
        sums: whether these are no rows of the table, but what a fused sampler makes of some.
    """

    sums = False

    def __init__(self, table: Any, id_type: str) -> None:
        self.table, self._id_type = table, id_type
        self.row_bytes = int(table.shape[1] * table.itemsize)
        self._kernels: dict[str, Any] = {}

    @classmethod
    def of(cls, graph: Any, id_type: str) -> RowTable | None:
        """That of a graph whose features are dense, wide and on the GPU; None for others."""
        table = getattr(graph, "feat", None)
        if table is None or not is_cuda_array(table) or table.ndim != 2 or not table.flags.c_contiguous:
            return None
        wide = table.shape[1] * table.itemsize >= rows.MIN_ROW_BYTES
        return cls(table, id_type) if wide and table.dtype in (np.float32, np.float16) else None

    def bytes_of(self, nodes: int) -> int:
        """Bytes of the rows of so many vertices in an arena, ``bytes_of_rows`` in ``place.cuh``."""
        return (nodes * self.row_bytes + 255) & -256

    @staticmethod
    def fits(num_bytes: int) -> bool:
        """Whether one launch should bring so many bytes."""
        most = int(runtime.device_properties()["totalGlobalMem"])
        limit = pools.get_limit()  # of a budget; 0 for none
        return num_bytes <= (min(most, limit) if limit else most) // _SHARE

    def _kernel(self, name: str) -> Any:
        if name not in self._kernels:
            vector = math.gcd(16, self.row_bytes, int(self.table.data.ptr))
            macros: dict[str, int | str] = {"ID_T": self._id_type, "VEC": vector}
            module = kernels.load_module("minibatch/gpu/rows.cu", macros)
            self._kernels[name] = module.get_function(name).kernel
        return self._kernels[name]

    def bring(self, ws: Workspace, blocks: int) -> None:
        """Into the arenas that the records of the mini-batches name, where they are large enough; asynchronous.

        Args:
            blocks: of the GPU, for all mini-batches together.
        """
        launch(self._kernel("rows"), self._grid(ws, blocks), (_THREADS,), (ws.args, *self._args()))

    def bring_at(self, ws: Workspace, blocks: int, places: Sequence[Any]) -> None:
        """The same, into ``places``: arguments of ``rows_at``."""
        self._kernel("rows_at")(self._grid(ws, blocks), (_THREADS,), (ws.args, *self._args(), *places))

    def _args(self) -> tuple[Any, Any]:
        return np.uint64(self.table.data.ptr), np.uint32(self.row_bytes)

    def _grid(self, ws: Workspace, blocks: int) -> tuple[int, int]:
        most = max(1, blocks // ws.shape.num_batches)
        return min(most, -(-ws.shape.node_cap // (_THREADS // 32 * _ROWS))), ws.shape.num_batches
