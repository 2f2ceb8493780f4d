"""cuSPARSE's SpMM called directly: every CSR algorithm, ``int32`` indices, preprocessing done once and reused.

Frameworks call it with one algorithm and 64-bit indices, which is slower. The comparison is with what the library can
do, so it is called here by its C interface, through ctypes, and the best algorithm counts.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnnsample_lab.bench.suite import Unavailable

ALGORITHMS = {"default": 0, "csr-alg1": 4, "csr-alg2": 6, "csr-alg3": 12}
_NO_TRANSPOSE, _INDEX_32, _BASE_ZERO, _FLOAT_32, _ROW_MAJOR = 0, 2, 0, 0, 2


def _candidates() -> list[str]:
    folders = [
        Path(base) / "nvidia" / part / "lib" for base in sys.path if base for part in ("cusparse", "cu13", "cu12")
    ]  # fmt: skip
    folders += [
        Path("/usr/local/cuda/lib64"),
        Path("/usr/lib/x86_64-linux-gnu"),
        Path("/usr/lib/aarch64-linux-gnu"),
    ]
    found = [str(path) for folder in folders for path in sorted(folder.glob("libcusparse.so*"), reverse=True)]
    return [*found, "libcusparse.so.12", "libcusparse.so.13", "libcusparse.so"]


@functools.lru_cache(maxsize=1)
def library() -> Any:
    """The loaded library.

    Raises:
        Unavailable: no libcusparse on this machine.
    """
    problems = []
    for name in _candidates():
        try:
            return ctypes.CDLL(name)
        except (
            OSError
        ) as error:  # one that does not load (its own libraries are missing) is followed by others
            problems.append(str(error))
    raise Unavailable(f"libcusparse was not found: {problems[-1]}")


def _check(status: int, what: str) -> None:
    if status != 0:
        raise RuntimeError(f"{what} failed with cuSPARSE status {status}")


class SpMM:
    """``y = A @ x`` with fixed ``A`` in CSR, fixed ``x`` and ``y``, and one algorithm; calling it launches it.

    Args:
        indptr: ``int32[rows + 1]``, CuPy.
        indices: ``int32[nnz]``, columns of ``A``.
        values: ``float32[nnz]``.
        x: ``float32[columns, F]``, row-major.
        y: ``float32[rows, F]``, row-major, written.
        algorithm: a name of :data:`ALGORITHMS`.

    Raises:
        Unavailable: no libcusparse.
        RuntimeError: a call failed; the algorithm may not support the shape.
    """

    def __init__(self, indptr: Any, indices: Any, values: Any, x: Any, y: Any, algorithm: str) -> None:
        import cupy

        lib = library()
        rows, columns, features = int(y.shape[0]), int(x.shape[0]), int(x.shape[1])
        self._arrays = (indptr, indices, values, x, y)  # the descriptors hold addresses only
        self._handle, self._a, self._x, self._y = (ctypes.c_void_p() for _ in range(4))
        big, one = ctypes.c_int64, ctypes.c_float
        _check(lib.cusparseCreate(ctypes.byref(self._handle)), "cusparseCreate")
        _check(
            lib.cusparseSetStream(self._handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)),
            "cusparseSetStream",
        )
        _check(lib.cusparseCreateCsr(
            ctypes.byref(self._a), big(rows), big(columns), big(int(indices.size)),
            *map(_address, (indptr, indices, values)),
            _INDEX_32, _INDEX_32, _BASE_ZERO, _FLOAT_32,
        ), "cusparseCreateCsr")  # fmt: skip
        for holder, count, array in ((self._x, columns, x), (self._y, rows, y)):
            _check(lib.cusparseCreateDnMat(
                ctypes.byref(holder), big(count), big(features), big(features), _address(array), _FLOAT_32, _ROW_MAJOR
            ), "cusparseCreateDnMat")  # fmt: skip
        self._one, self._zero = one(1.0), one(0.0)
        self._arguments = (
            self._handle, _NO_TRANSPOSE, _NO_TRANSPOSE, ctypes.byref(self._one), self._a, self._x,
            ctypes.byref(self._zero), self._y, _FLOAT_32, ALGORITHMS[algorithm],
        )  # fmt: skip
        size = ctypes.c_size_t()
        _check(lib.cusparseSpMM_bufferSize(*self._arguments, ctypes.byref(size)), "cusparseSpMM_bufferSize")
        self._buffer = cupy.empty(max(int(size.value), 1), cupy.uint8)
        _check(
            lib.cusparseSpMM_preprocess(*self._arguments, _address(self._buffer)), "cusparseSpMM_preprocess"
        )
        self._call = functools.partial(lib.cusparseSpMM, *self._arguments, _address(self._buffer))

    def __call__(self) -> None:
        _check(self._call(), "cusparseSpMM")

    def close(self) -> None:
        """Free the descriptors."""
        lib = library()
        lib.cusparseDestroyDnMat(self._x)
        lib.cusparseDestroyDnMat(self._y)
        lib.cusparseDestroySpMat(self._a)
        lib.cusparseDestroy(self._handle)


def _address(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(int(array.data.ptr))


def best(
    matrices: list[tuple[Any, Any, Any, Any, Any]],
    measure: Callable[[Callable[[int], Any], int], list[float]],
    check: Callable[[int, Any], None],
) -> dict[str, Any]:
    """The fastest algorithm over ``matrices``, each ``(indptr, indices, values, x, y)``; all results are checked first.

    Args:
        measure: microseconds of ``work(i)``, a number a pass, given ``work`` and how many there are.
        check: raises when result ``i`` is wrong.

    Returns:
        ``us`` of the best with ``p10_us``, ``p90_us`` and ``passes``, its name ``best``, and ``sweep`` with all.
    """
    from gnnsample_lab.bench.session import best_of

    def run(algorithm: str) -> list[float]:
        calls = [SpMM(*matrix, algorithm) for matrix in matrices]
        try:
            for i, call in enumerate(calls):
                matrices[i][4].fill(0)
                call()
                check(i, matrices[i][4])
            return measure(lambda i: calls[i](), len(calls))
        finally:
            for call in calls:
                call.close()

    return best_of({name: functools.partial(run, name) for name in ALGORITHMS})
