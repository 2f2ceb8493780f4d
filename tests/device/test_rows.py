"""Rows of a table on the GPU by their numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.device import rows


@pytest.mark.gpu
@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize(("dtype", "width"), [
    (np.float32, 100), (np.float32, 32), (np.float32, 33), (np.float32, 602), (np.float16, 100), (np.float16, 77),
])  # fmt: skip
def test_they_are_those_of_the_table(dtype: Any, width: int, ids: Any) -> None:
    import cupy

    rng = np.random.default_rng(width)
    table = rng.integers(0, 2**16, (500, width * np.dtype(dtype).itemsize // 2), np.uint16).view(dtype)
    device = cupy.asarray(table)
    for count in (0, 1, 2, 63, 65, 3001):
        chosen = rng.integers(0, 500, count).astype(ids)
        for skip in (0, 1):  # ids that begin inside a vector
            given, out = (
                cupy.asarray(np.append([0] * skip, chosen).astype(ids)),
                cupy.empty((count, width), dtype),
            )
            rows.launch(
                device.data.ptr, given.data.ptr + skip * given.itemsize, given.itemsize, count, table.strides[0],
                out.data.ptr,
            )  # fmt: skip
            assert out.get().tobytes() == table[chosen].tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_tensors(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA here")
    table = torch.randn(300, 100, device="cuda").to(getattr(torch, dtype))
    ids = torch.randint(300, (1000,), device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    assert rows.takes(table) and torch.equal(rows.taken(table, ids), table[ids])
    with torch.cuda.stream(side):
        assert torch.equal(rows.taken(table, ids.int()), table[ids])


def test_others_are_left_to_torch() -> None:
    torch = pytest.importorskip("torch")

    def there(tensor: Any) -> Any:
        """As if it lay on a GPU."""
        return SimpleNamespace(
            is_cuda=True, ndim=tensor.ndim, dtype=tensor.dtype, is_contiguous=tensor.is_contiguous,
            shape=tensor.shape, element_size=tensor.element_size,
        )  # fmt: skip

    dense = torch.zeros(4, 64)
    assert rows.takes(there(dense)) and rows.takes(there(dense.half()))
    assert not rows.takes(dense)  # it lies in host memory
    for other in (
        dense.double(),
        dense[:, :40],
        torch.zeros(4, 31),
        torch.zeros(400),
        dense.long(),
        dense.t(),
    ):
        assert not rows.takes(there(other))
