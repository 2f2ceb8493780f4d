"""What CuPy's ``RawModule`` is, for the host: CUDA source compiled by g++ and run by ``on_host.h``.

A launch checks what a driver does not: that as many arguments of as many bytes are given as the kernel takes.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import re
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import memory
from .memory import ndarray
from .sources import HEADER, compiler, for_host

_FLAGS = ["-std=c++17", "-O1", "-w", "-fpermissive", "-fno-strict-aliasing", "-ffp-contract=off", "-pthread"]
# Else programs that are loaded side by side share what they name alike, shared memory of a block too.
_FLAGS += ["-fno-gnu-unique", "-fvisibility=hidden"]
_KERNEL = re.compile(r"__global__\s+void\s+(\w+)\s*\(")
_WAITING = {"persistent", "persistent_tile", "serve_teams", "fused_static", "grid_barrier"}
"""Kernels whose blocks wait for later ones: they run at once. Blocks of others run one after the other."""
CHECKS = bool(os.environ.get("LAB_HOST_GPU_CHECKS"))
"""Whether all fences are looked at behind each kernel, so that the one is named that wrote past an array."""
AT_ONCE = 64
"""Blocks that run at the same time at most, threads of the host all of them."""


def _folder() -> Path:
    """Keeps what was compiled, by the hash of what it was compiled from."""
    named = os.environ.get("LAB_HOST_GPU_CACHE")
    return Path(named) if named else Path(tempfile.gettempdir()) / f"lab-host-gpu-{os.getuid()}"


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"g++ could not compile a kernel for the host:\n{done.stderr[-4000:]}")
    return done.stdout


class RawModule:
    """Kernels of one source. Arguments as CuPy's."""

    def __init__(
        self, *, code: str | None = None, path: str | None = None, options: Sequence[str] = (),
        backend: str = "nvrtc", enable_cooperative_groups: bool = False, **_: Any,
    ) -> None:  # fmt: skip
        if code is None:
            raise RuntimeError(f"machine code of a GPU does not run on this host ({path})")
        macros = [option for option in options if option.startswith("-D")]
        self.waits = enable_cooperative_groups
        self._library = ctypes.CDLL(str(_built(code, macros)))

    def get_function(self, name: str) -> Function:
        return Function(
            self, getattr(self._library, f"launch_{name}"), getattr(self._library, f"sizes_{name}")
        )


def kernel(code: str, name: str, options: Sequence[str] = (), **_: Any) -> Function:
    """CuPy's ``RawKernel``."""
    return RawModule(code=code, options=options).get_function(name)


_building = threading.Lock()


def _built(code: str, macros: list[str]) -> Path:
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    text = for_host(code)
    key = hashlib.sha256("\0".join([text, *macros, *_FLAGS, HEADER.read_text()]).encode()).hexdigest()[:24]
    target = folder / f"{key}.so"
    with _building:
        if target.exists():
            return target
        work = Path(tempfile.mkdtemp(dir=folder))
        plain, source, made = work / "names.cpp", work / "kernels.cpp", work / "made.so"
        plain.write_text(text)
        here = ["-D__CUDA_ARCH__=800", "-D__launch_bounds__(...)=", *macros]
        seen = _run([compiler(), "-E", "-P", "-w", *here, str(plain)])
        names = dict.fromkeys(_KERNEL.findall(seen))
        calls = "".join(f"KERNEL_ON_HOST({name})\n" for name in names)
        source.write_text(f'#include "{HEADER}"\n{text}\n{calls}')
        _run([compiler(), *_FLAGS, *macros, "-shared", "-fPIC", str(source), "-o", str(made)])
        made.replace(target)
        for file in (plain, source):
            file.unlink()
        work.rmdir()
    return target


_addresses = itertools.count(0x7F0000)
_functions: weakref.WeakValueDictionary[int, Function] = weakref.WeakValueDictionary()


def launch_at(
    function: int,
    gx: int,
    gy: int,
    gz: int,
    bx: int,
    by: int,
    bz: int,
    shared: int,
    stream: int,
    args: int,
    _: int,
) -> None:
    """``driver.launchKernel``: arguments by the address of their addresses."""
    _functions[function].launch_at([gx, gy, gz, bx, by, bz], args, shared)


class Function:
    """A kernel."""

    def __init__(self, module: RawModule, launch: Any, sizes: Any) -> None:
        self._launch = launch
        found = (ctypes.c_ulonglong * 64)()
        self._sizes = list(found[: sizes(found)])
        self.name = launch.__name__.removeprefix("launch_")
        self.waits = module.waits or self.name in _WAITING
        self.kernel, self.ptr = self, next(_addresses)
        _functions[self.ptr] = self
        self.attributes = {"max_dynamic_shared_size_bytes": 48 << 10}
        self.max_dynamic_shared_size_bytes = 48 << 10

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any] = (),
        shared_mem: int = 0,
        **_: Any,
    ) -> None:
        values = [_bytes_of(value) for value in args]
        given = [len(value) for value in values]
        # A structure may be given with more behind it: a driver takes as many bytes as the kernel says.
        fits = [n == size or (n > size > 8) for n, size in zip(given, self._sizes, strict=False)]
        if len(given) != len(self._sizes) or not all(fits):
            raise TypeError(f"{self.name} takes arguments of {self._sizes} bytes (got {given})")
        shape = [int(n) for n in (*grid, 1, 1)[:3]] + [int(n) for n in (*block, 1, 1)[:3]]
        self._submit(values, shape, shared_mem)

    def launch_at(self, shape: list[int], args: int, shared_mem: int) -> None:
        """A launch with arguments at ``args``, read now."""
        places = (ctypes.c_void_p * len(self._sizes)).from_address(args)
        values = [ctypes.string_at(at, size) for at, size in zip(places, self._sizes, strict=True)]
        self._submit(values, shape, shared_mem)

    def _submit(self, values: list[bytes], shape: list[int], shared_mem: int) -> None:
        from .cuda import submit

        threads = shape[3] * shape[4] * shape[5]
        if min(shape) < 1 or threads > 1024 or shape[1] > 65535 or shape[2] > 65535 or shared_mem > 1 << 18:
            raise ValueError(f"{self.name}: no GPU launches {shape} with {shared_mem} bytes of shared memory")
        submit(lambda: self._run(values, shape))

    def _run(self, values: list[bytes], shape: list[int]) -> None:
        from .cuda import CUDARuntimeError

        held = [ctypes.create_string_buffer(value, len(value) + 16) for value in values]
        addresses = (ctypes.c_void_p * (len(held) + 1))(*(ctypes.addressof(h) for h in held))
        failed = self._launch(
            addresses, (ctypes.c_uint * 6)(*shape), _next_seed(), AT_ONCE if self.waits else 1
        )
        if CHECKS and (torn := memory.torn()):
            raise CUDARuntimeError(f"{self.name} {shape}: {torn}")
        if failed:
            raise CUDARuntimeError(f"{self.name}: a thread has trapped")


_seed = [0]


def _next_seed() -> int:
    _seed[0] += 1
    return _seed[0]


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, ndarray):
        return int(value.data.ptr).to_bytes(8, "little")
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise TypeError("an array of the host is no argument of a kernel")
        return value.tobytes()
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, bool):
        return np.bool_(value).tobytes()
    if isinstance(value, int):
        return np.int64(value).tobytes()
    if isinstance(value, float):
        return np.float64(value).tobytes()
    if hasattr(value, "ptr"):  # a pointer to memory
        return int(value.ptr).to_bytes(8, "little")
    raise TypeError(f"a kernel takes no {type(value).__name__}")
