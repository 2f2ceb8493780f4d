"""Compile CUDA source on a machine without a GPU: NVRTC of the CUDA 12 wheels, called through ctypes.

CUDA 12 because CUDA 13 no longer compiles for sm_70. Nothing here needs a driver.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

WHEELS = ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12", "nvidia-cuda-cccl-cu12")


class CompileError(Exception):
    """NVRTC refused a source; the text is its log."""


def missing_wheels() -> list[str]:
    """The wheels that must still be installed, by name."""
    missing = []
    for wheel in WHEELS:
        try:
            metadata.distribution(wheel)
        except metadata.PackageNotFoundError:
            missing.append(wheel)
    return missing


def _files_of(wheel: str, suffix: str) -> list[Path]:
    files = metadata.distribution(wheel).files or []
    return [Path(str(f.locate())) for f in files if str(f).endswith(suffix)]


@dataclass(frozen=True)
class Nvrtc:
    """The loaded compiler, where its headers are, and what it compiles for (``70`` stands for sm_70)."""

    library: ctypes.CDLL
    version: str
    include_dirs: tuple[str, ...]
    architectures: tuple[int, ...]

    def compile(self, source: str, options: list[str], name: str = "kernel.cu") -> bytes:
        """The cubin of ``source``.

        Raises:
            CompileError: with the compiler's log.
        """
        program = ctypes.c_void_p()
        self._check(
            self.library.nvrtcCreateProgram(
                ctypes.byref(program), source.encode(), name.encode(), 0, None, None
            )
        )
        try:
            flags = [*options, *(f"--include-path={folder}" for folder in self.include_dirs)]
            encoded = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
            status = self.library.nvrtcCompileProgram(program, len(flags), encoded)
            if status != 0:
                raise CompileError(self._text(program, "ProgramLog"))
            return self._bytes(program, "CUBIN")
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _check(self, status: int) -> None:
        if status != 0:
            self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise CompileError(self.library.nvrtcGetErrorString(status).decode())

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self.library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        return self._bytes(program, what).rstrip(b"\0").decode(errors="replace")


@functools.lru_cache(maxsize=1)
def load_nvrtc() -> Nvrtc:
    """The compiler of the installed wheels.

    Raises:
        importlib.metadata.PackageNotFoundError: a wheel of ``WHEELS`` is not installed.
    """
    (path,) = _files_of(WHEELS[0], "libnvrtc.so.12")
    library = ctypes.CDLL(str(path))
    count = ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(numbers)
    roots = [
        _files_of(WHEELS[1], "include/cooperative_groups.h")[0].parent,
        _files_of(WHEELS[2], "include/cuda/atomic")[0].parents[1],
    ]
    return Nvrtc(library, metadata.version(WHEELS[0]), tuple(map(str, roots)), tuple(numbers))
