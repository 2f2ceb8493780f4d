"""A host in place of a GPU: a module ``cupy`` whose arrays lie in host memory and whose kernels g++ compiles.

With :mod:`.plugin` the tests marked ``gpu`` run against it, so that a machine without a GPU checks the GPU's path: the
kernels' logic, the addresses that they are given, the bytes of their arguments, what is read unwritten and what is
written past an array. It says nothing of times, of streams that run beside each other, or of weak memory.

Not there: PyTorch's CUDA, peers, applications of the sampling engine (they are linked from a GPU's machine code).
"""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np

from . import cuda, kernels, memory
from .memory import ndarray, on_device

_SAME = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bool_",
    "dtype", "newaxis", "nan", "inf", "iinfo", "finfo", "issubdtype", "integer", "floating", "generic",
)  # fmt: skip


def _module() -> Any:
    cupy: Any = types.ModuleType("cupy")
    cupy.__dict__.update({name: getattr(np, name) for name in _SAME})
    cupy.__version__, cupy.__path__ = "14.2.0+host", []
    cupy.ndarray = ndarray
    ndarray.__module__ = "cupy"

    def asarray(value: Any, dtype: Any = None, order: Any = None, **_: Any) -> Any:
        if isinstance(value, ndarray):
            return value if dtype is None or value.dtype == dtype else value.astype(dtype)
        return on_device(np.asarray(memory.plain(value), dtype))

    def array(value: Any, dtype: Any = None, copy: bool = True, **_: Any) -> Any:
        return on_device(np.array(memory.plain(value), dtype))

    def empty(shape: Any, dtype: Any = float, order: str = "C") -> Any:
        return ndarray(tuple(shape) if isinstance(shape, (tuple, list)) else int(shape), dtype)

    def full(shape: Any, value: Any, dtype: Any = None) -> Any:
        made = empty(shape, np.asarray(value).dtype if dtype is None else dtype)
        made._a[...] = memory.plain(value)
        return made

    def zeros(shape: Any, dtype: Any = float) -> Any:
        made = empty(shape, dtype)
        made.data.memset_async(0, made.nbytes)
        return made

    def from_dlpack(value: Any) -> Any:
        found = np.from_dlpack(value)
        owner = memory.UnownedMemory(int(found.ctypes.data), found.nbytes, (value, found))
        return ndarray(found.shape, found.dtype, memory.MemoryPointer(owner, 0), found.strides)

    def asnumpy(value: Any, **_: Any) -> Any:
        return value.get() if isinstance(value, ndarray) else np.asarray(value)

    def ascontiguousarray(value: Any, dtype: Any = None) -> Any:
        value = asarray(value, dtype)
        return value if value.flags.c_contiguous else on_device(np.ascontiguousarray(value._a))

    def function(name: str) -> Any:
        plain = getattr(np, name)

        def call(*args: Any, out: Any = None, **options: Any) -> Any:
            if name in ("sort", "argsort"):
                options.setdefault("kind", "stable")  # as CuPy's is
            result = on_device(plain(*memory.unmixed(args), **memory.plain(options)))
            if out is None:
                return result
            out._a[...] = memory.plain(result)
            return out

        return call

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return function(name)

    cupy.__dict__.update(
        asarray=asarray, array=array, empty=empty, zeros=zeros, full=full, from_dlpack=from_dlpack, asnumpy=asnumpy,
        ones=lambda shape, dtype=float: full(shape, 1, dtype), ascontiguousarray=ascontiguousarray,
        empty_like=lambda a, dtype=None: empty(a.shape, dtype or a.dtype),
        zeros_like=lambda a, dtype=None: zeros(a.shape, dtype or a.dtype),
        full_like=lambda a, value, dtype=None: full(a.shape, value, dtype or a.dtype),
        RawModule=kernels.RawModule, get_default_memory_pool=lambda: memory.pool, __getattr__=__getattr__,
        get_array_module=lambda *given: cupy if any(isinstance(g, ndarray) for g in given) else np,
        RawKernel=kernels.kernel,
    )  # fmt: skip
    cupy.random = _random()
    return cupy


def _random() -> Any:
    random: Any = types.ModuleType("cupy.random")
    random_source = np.random.default_rng(0)

    class Source:
        """Draws of NumPy, on the device."""

        def __init__(self, source: Any) -> None:
            self._source = source

        def __getattr__(self, name: str) -> Any:
            draw = getattr(self._source, name)
            return lambda *args, **options: on_device(np.asarray(draw(*args, **options)))

    random.RandomState = lambda seed=None: Source(np.random.RandomState(seed))
    random.default_rng = lambda seed=None: Source(np.random.default_rng(seed))
    random.random = lambda size=None, dtype=float: on_device(np.asarray(random_source.random(size), dtype))
    return random


_LACKS = {
    "Torch not compiled with CUDA enabled": "CUDA in PyTorch", "PyTorch is here without CUDA": "CUDA in PyTorch",
    "machine code of a GPU": "applications linked for a GPU",
    "nvjitlink": "applications linked for a GPU", "numba.cuda": "Numba for GPUs", "cuda.core": "applications linked",
}  # fmt: skip


def lack(error: BaseException) -> str | None:
    """What is not there, where an error says so."""
    return next((what for sign, what in _LACKS.items() if sign in str(error)), None)


def install() -> None:
    """Put the modules in the place of CuPy's, for this process."""
    cupy = _module()
    modules: dict[str, Any] = {"cupy": cupy}

    def add(name: str, contents: dict[str, Any]) -> Any:
        made: Any = types.ModuleType(name)
        made.__dict__.update(contents)
        made.__path__ = []
        modules[name] = made
        return made

    names = (
        "Stream", "ExternalStream", "Event", "Device", "Graph", "get_current_stream", "get_elapsed_time",
        "alloc_pinned_memory", "PinnedMemory", "PinnedMemoryPointer", "runtime",
    )  # fmt: skip
    pieces: dict[str, Any] = {name: getattr(cuda, name) for name in names}
    pieces |= {
        name: getattr(memory, name)
        for name in (
            "alloc",
            "MemoryPointer",
            "UnownedMemory",
            "Memory",
            "MemoryPool",
            "get_allocator",
            "set_allocator",
            "using_allocator",
        )
    }
    cupy.cuda = add("cupy.cuda", pieces)
    modules["cupy.cuda.runtime"] = cuda.runtime
    cupy.cuda.memory = add("cupy.cuda.memory", {"OutOfMemoryError": memory.OutOfMemoryError})
    driver = {
        "occupancyMaxActiveBlocksPerMultiprocessor": lambda function, threads, shared: cuda.BLOCKS_PER_SM,
        "launchKernel": kernels.launch_at,
    }
    for name in ("cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.api"):
        add(name, {})
    modules["cupy_backends.cuda.api"].driver = add("cupy_backends.cuda.api.driver", driver)
    add(
        "cupyx",
        {
            f"{how}_pinned": lambda shape, dtype=float, fill=fill: np.full(shape, fill, dtype)
            for how, fill in (("empty", 0), ("zeros", 0))
        },
    )
    sys.modules.update(modules)
