"""Arrays and memory of a GPU that is not there: they lie in host memory, where accesses that a GPU lets pass are found.

Every block begins with bytes that make no sense as numbers, has a fence on both sides, and is spoilt when it is freed:
what reads memory that nobody has written, what writes past an array, and what uses an array after its end, computes
something else or is reported by :func:`damage`.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

import numpy as np

ALIGNMENT, FENCE = 512, 512
NEW, FREED, FENCE_BYTE = 0xA5, 0xDB, 0xC7
_lock = threading.RLock()
_live: dict[int, int] = {}
_blocks: weakref.WeakSet[Memory] = weakref.WeakSet()
_damage: list[str] = []
_held = [0]
limit = [8 << 30]


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


def damage() -> list[str]:
    """What has been written past arrays since the last call."""
    with _lock:
        found = _damage[:]
        _damage.clear()
    return found


class Memory:
    """A block, given back when nobody refers to it any more."""

    device_id = 0

    def __init__(self, size: int) -> None:
        with _lock:
            used = sum(_live.values())
            if used + size > limit[0]:
                raise OutOfMemoryError(
                    f"Out of memory allocating {size:,} bytes (allocated so far: {used:,} bytes)."
                )
            self._raw = np.empty(size + 2 * FENCE + ALIGNMENT, np.uint8)
            begin = -(self._raw.ctypes.data + FENCE) % ALIGNMENT + FENCE
            self._whole = self._raw[begin - FENCE : begin + size + FENCE]
            self._whole[:] = FENCE_BYTE
            self._whole[FENCE : FENCE + size] = NEW
            self.ptr, self.size = int(self._raw.ctypes.data) + begin, size
            _live[self.ptr] = size
            _held[0] = max(_held[0], used + size)
            _blocks.add(self)

    def torn(self) -> str | None:
        """What has been written to the fences."""
        at = np.flatnonzero(
            np.concatenate([self._whole[:FENCE], self._whole[FENCE + self.size :]]) != FENCE_BYTE
        )
        if not at.size:
            return None
        first = int(at[0]) - FENCE if at[0] < FENCE else int(at[0]) - FENCE + self.size
        return f"{at.size} bytes were written from byte {first} of a block of {self.size} on"

    def __del__(self) -> None:
        if not hasattr(self, "ptr") or _live is None:  # never made, or the interpreter ends
            return
        torn = self.torn()
        if torn:
            _damage.append(torn)
        self._whole[:] = FREED
        _live.pop(self.ptr, None)


def torn() -> list[str]:
    """What has been written to the fences of all blocks that there are."""
    with _lock:
        return [found for block in list(_blocks) if (found := block.torn())]


class UnownedMemory:
    """Memory of somebody else, whom it keeps."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner, self.device_id = int(ptr), size, owner, max(device_id, 0)


class MemoryPointer:
    """An address in a block."""

    device_id = 0

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self._offset = mem, offset
        self.ptr = int(mem.ptr) + offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self._offset + int(offset))

    def __int__(self) -> int:
        return self.ptr

    def _submit(self, work: Any, stream: Any) -> None:
        from .cuda import submit

        submit(work, stream)

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        self._submit(lambda: ctypes.memset(self.ptr, value, size), stream)

    def memset(self, value: int, size: int) -> None:
        self.memset_async(value, size)

    def copy_from_device_async(self, src: Any, size: int, stream: Any = None) -> None:
        self._submit(lambda: ctypes.memmove(self.ptr, int(src), size), stream)

    def copy_from_device(self, src: Any, size: int) -> None:
        self.copy_from_device_async(src, size)

    def copy_from_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        self._submit(lambda: ctypes.memmove(self.ptr, _address(mem), size), stream)

    def copy_to_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        self._submit(lambda: ctypes.memmove(_address(mem), self.ptr, size), stream)

    copy_from_async, copy_from_host, copy_to_host = (
        copy_from_device_async,
        copy_from_host_async,
        copy_to_host_async,
    )
    copy_from = copy_from_device


def _address(memory: Any) -> int:
    return int(getattr(memory, "value", memory))


_thread = threading.local()


_of_all_threads: list[Any] = [None]


def get_allocator() -> Any:
    """The allocator of this thread, else that of all threads, else the pool's."""
    return getattr(_thread, "allocator", None) or _of_all_threads[0] or pool.malloc


def set_allocator(allocator: Any = None) -> None:
    """As CuPy's: all threads allocate by ``allocator``, but where :class:`using_allocator` says otherwise."""
    _of_all_threads[0] = allocator


class using_allocator:
    """As CuPy's: inside, this thread allocates by ``allocator``."""

    def __init__(self, allocator: Any = None) -> None:
        self._allocator = allocator

    def __enter__(self) -> None:
        self._before = getattr(_thread, "allocator", None)
        _thread.allocator = self._allocator

    def __exit__(self, *_: object) -> None:
        _thread.allocator = self._before


def alloc(size: int) -> MemoryPointer:
    found: MemoryPointer = get_allocator()(size)
    return found


class Pool:
    """The default pool. It tells of what is freed as kept until :meth:`free_all_blocks`, and hands out new memory."""

    def malloc(self, size: int) -> MemoryPointer:
        return MemoryPointer(Memory(int(size)), 0)

    def used_bytes(self) -> int:
        with _lock:
            return sum(_live.values())

    def total_bytes(self) -> int:
        return _held[0]

    def free_bytes(self) -> int:
        return _held[0] - self.used_bytes()

    def free_all_blocks(self, stream: Any = None) -> None:
        _held[0] = self.used_bytes()

    def get_limit(self) -> int:
        return 0

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Without effect."""


class MemoryPool:
    """A pool of one's own: it keeps blocks that are free and hands the smallest that suffices out again, whole; in
    between they are spoilt. A new block comes from ``allocator``, when its bytes are counted already."""

    def __init__(self, allocator: Any = None) -> None:
        self._allocator = allocator or (lambda size: MemoryPointer(Memory(size), 0))
        self._free: list[Any] = []
        self._used = self._total = 0

    def malloc(self, size: int) -> MemoryPointer:
        with _lock:
            fits = [block for block in self._free if block.size >= size]
            if fits:
                block = min(fits, key=lambda each: int(each.size))
                self._free.remove(block)
            else:
                self._total += size
                made = False
                try:
                    block = self._allocator(size).mem
                    made = True
                finally:
                    if not made:
                        self._total -= size
            self._used += block.size
        return MemoryPointer(_Lent(block, self), 0)

    def back(self, block: Any) -> None:
        with _lock:
            self._used -= block.size
            self._free.append(block)

    def total_bytes(self) -> int:
        return int(self._total)

    def free_bytes(self) -> int:
        return int(self._total - self._used)

    def free_all_blocks(self, stream: Any = None) -> None:
        with _lock:
            self._total -= sum(block.size for block in self._free)
            self._free.clear()


class _Lent:
    """A block of a :class:`MemoryPool`, which has it again when nobody refers to this."""

    device_id = 0

    def __init__(self, block: Any, owner: MemoryPool) -> None:
        self._block, self._pool, self.ptr, self.size = block, owner, block.ptr, block.size

    def __del__(self) -> None:
        ctypes.memset(self.ptr, FREED, self.size)
        self._pool.back(self._block)


pool = Pool()


def _memory_at(
    pointer: MemoryPointer, shape: tuple[int, ...], dtype: Any, strides: Any, order: str
) -> np.ndarray:
    """NumPy's array over memory that it keeps."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if strides is not None and size:
        size = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + dtype.itemsize
    buffer: Any = (ctypes.c_char * max(1, size)).from_address(pointer.ptr)
    buffer.kept = pointer
    return np.ndarray(shape, dtype, buffer, 0, strides, order)


class ndarray:
    """A CuPy array. As CuPy's, it is none of NumPy's, does not become one unasked and does not mix with them."""

    __hash__ = None

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        shape, dtype = (tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)), np.dtype(dtype)
        if memptr is None:
            memptr = alloc(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        self._pointer = memptr
        self._a = _memory_at(memptr, shape, dtype, strides, order)

    def _seen(self, found: Any) -> Any:
        """What NumPy made of this array: a view of its memory, else a new array."""
        if not isinstance(found, np.ndarray) or not (found.size and np.may_share_memory(found, self._a)):
            return on_device(found)
        made = ndarray.__new__(ndarray)
        made._a, made._pointer = found, self._pointer
        return made

    @property
    def data(self) -> MemoryPointer:
        mem = self._pointer.mem
        return MemoryPointer(mem, int(self._a.ctypes.data) - int(mem.ptr)) if self._a.size else self._pointer

    @property
    def base(self) -> Any:
        return None if self._a.base is None or not isinstance(self._a.base, np.ndarray) else self

    @property
    def flags(self) -> Any:
        return self._a.flags

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self._a.flags.c_contiguous else self._a.strides
        address = (int(self._a.ctypes.data) if self._a.size else 0, False)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": address,
            "version": 3,
            "strides": strides,
        }

    @property
    def device(self) -> Any:
        from .cuda import Device

        return Device(0)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        if out is not None:
            out[...] = self._a
            return out
        return np.array(self._a, order=order)

    def set(self, array: np.ndarray, stream: Any = None) -> None:
        self._a[...] = array

    def fill(self, value: Any) -> None:
        value = plain(value)
        from .cuda import submit

        submit(lambda: self._a.fill(value))

    def astype(self, dtype: Any, copy: bool = True, **_: Any) -> ndarray:
        if not copy and self.dtype == np.dtype(dtype):
            return self
        return on_device(self._a.astype(dtype))

    def item(self, *at: int) -> Any:
        return self._a.item(*at)

    def tolist(self) -> Any:
        return self._a.tolist()

    def sort(self, axis: int = -1) -> None:
        self._a.sort(axis, kind="stable")

    def argsort(self, axis: int = -1, kind: Any = None) -> ndarray:
        return on_device(self._a.argsort(axis, kind="stable"))

    def copy(self, order: str = "C") -> ndarray:
        return on_device(self._a.copy())

    def __dlpack__(self, **options: Any) -> Any:
        options = {"stream": None, "max_version": None, **options}
        return self._a.__dlpack__(**{name: value for name, value in options.items() if name == "max_version"})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._a.__dlpack_device__()

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", None)
        result = on_device(getattr(ufunc, method)(*unmixed(inputs), **options))
        if out is None:
            return result
        out[0][...] = result
        return out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return on_device(function(*unmixed(args), **plain(kwargs)))

    def __getitem__(self, key: Any) -> Any:
        key = plain(key)
        found = self._a[key]
        if not isinstance(found, np.ndarray):
            found = self._a[(*(key if isinstance(key, tuple) else (key,)), Ellipsis)]
        return self._seen(found)

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(value) is np.ndarray and value.ndim:
            raise TypeError(f"Unsupported type {type(value)}")
        key, value = plain(key), plain(value)
        from .cuda import submit

        submit(lambda: self._a.__setitem__(key, value))

    def __len__(self) -> int:
        return len(self._a)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self._a)

    def __int__(self) -> int:
        return int(self._a)

    def __index__(self) -> int:
        return self._a.__index__()

    def __float__(self) -> float:
        return float(self._a)

    def __format__(self, spec: str) -> str:
        return format(self._a, spec)

    def __repr__(self) -> str:
        return repr(self._a)

    def __reduce__(self) -> Any:
        return on_device, (self.get(),)


def unmixed(values: Any) -> Any:
    """Arguments for NumPy; arrays of the host are refused beside those of the device."""
    for value in values:
        if type(value) is np.ndarray and value.ndim:
            raise TypeError(f"Unsupported type {type(value)}")
    return plain(tuple(values))


def _attribute(name: str) -> property:
    def read(self: ndarray) -> Any:
        found = getattr(self._a, name)
        return self._seen(found) if isinstance(found, np.ndarray) else found

    return property(read)


def _method(name: str) -> Any:
    def call(self: ndarray, *args: Any, out: Any = None, **options: Any) -> Any:
        result = getattr(self._a, name)(*unmixed(args), **plain(options))
        if out is None:
            return result if result is NotImplemented else self._seen(result)
        out[...] = on_device(result)
        return out

    return call


def _in_place(name: str) -> Any:
    def call(self: ndarray, other: Any) -> ndarray:
        getattr(self._a, name)(*unmixed((other,)))
        return self

    return call


_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul",
)  # fmt: skip
_METHODS = (
    "sum", "max", "min", "any", "all", "mean", "argmax", "argmin", "prod", "cumsum", "nonzero", "dot", "view",
    "reshape", "ravel", "flatten", "transpose", "squeeze", "repeat", "take", "clip", "searchsorted", "std",
    "swapaxes", "round", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__neg__", "__pos__",
    "__abs__", "__invert__", "__divmod__",
)  # fmt: skip
for _name in ("shape", "dtype", "size", "ndim", "nbytes", "itemsize", "strides", "T", "real"):
    setattr(ndarray, _name, _attribute(_name))
for _name in (*_METHODS, *(f"__{right}{name}__" for name in _BINARY for right in ("", "r"))):
    setattr(ndarray, _name, _method(_name))
for _name in (f"__i{name}__" for name in _BINARY if hasattr(np.ndarray, f"__i{name}__")):
    setattr(ndarray, _name, _in_place(_name))


def plain(value: Any) -> Any:
    """The same for NumPy."""
    if isinstance(value, ndarray):
        return value._a
    if isinstance(value, (list, tuple)) and any(isinstance(v, (ndarray, list, tuple, slice)) for v in value):
        return type(value)(map(plain, value))
    if isinstance(value, slice):
        ends = (value.start, value.stop, value.step)
        return slice(*(int(e) if isinstance(e, ndarray) else e for e in ends))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def on_device(value: Any) -> Any:
    """A result of NumPy as an array of the GPU, in memory of its allocator."""
    if isinstance(value, tuple):
        return tuple(map(on_device, value))
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    value = np.asarray(value)
    made = ndarray(value.shape, value.dtype)
    made._a[...] = value
    return made
