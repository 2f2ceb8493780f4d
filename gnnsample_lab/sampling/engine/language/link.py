"""Link an application's functions into our kernels: numba-cuda and NVRTC to LTO-IR, nvJitLink to a cubin.

The functions that :mod:`.compile` wrote are compiled with the accessors of ``context.cuh`` declared only; the linker
optimises both halves as one program, so that accessors are inlined and the context lives in registers. What was linked
once is kept in the process and, as a cubin, in the cache folder. Nothing here but :func:`load` needs a GPU.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.device import jit_cache, kernels
from gnnsample_lab.files import replace_file
from gnnsample_lab.graph import roots

from .accessors import ACCESSORS, cuda_declarations
from .compile import Operator

FOLDER = Path(__file__).resolve().parents[1]
"""The engine, where the kernel files are."""
_DISTRIBUTIONS = (
    "numba-cuda",
    "cuda-core",
    "cuda-bindings",
    "nvidia-nvjitlink",
    "nvidia-cuda-nvrtc",
    "nvidia-nvvm",
)
_LINK_OPTIONS = ("-lto", "-fma=0", "-O3")
_FUNCTIONS = {"lab_next": 1, "lab_step_transits": 2}
"""Compiled functions and the number of their arguments after the context."""
_MAX_KEPT = 64
_modules: OrderedDict[str, Any] = OrderedDict()
_compiled: OrderedDict[tuple[str, str], tuple[bytes, ...]] = OrderedDict()


def missing() -> str | None:
    """What linking lacks on this machine and how to get it, or None."""
    try:
        import cuda.bindings.nvjitlink
        import cuda.core
        import numba.cuda
    except ImportError as error:
        return (
            f"GPU sampling applications are linked with numba-cuda, cuda-core and nvJitLink, and one of them is not "
            f"installed ({error}): pip install 'gnnsample_lab[cuda13]'"
        )
    if not hasattr(cuda.core, "Program") or not hasattr(numba.cuda, "declare_device"):
        return (
            "GPU sampling applications need cuda-core >= 0.5 and numba-cuda >= 0.20, and an older one is installed: "
            "pip install -U 'gnnsample_lab[cuda13]'"
        )
    try:
        # What the compiler loads before it compiles anything: a user's function is not to blame for its errors.
        import numba.cuda.np.arrayobj
    except ModuleNotFoundError:
        pass  # an older numba-cuda has it elsewhere
    except AttributeError as error:
        return (
            f"numba-cuda {metadata.version('numba-cuda')} does not work with NumPy {np.__version__} ({error}): "
            "pip install 'numpy<2.5'"
        )
    return None


def build(
    operator: Operator, source_name: str, macros: dict[str, int | str] | None = None, arch: str = "sm_90"
) -> bytes:
    """The cubin of kernel file ``source_name`` of this folder with the operator's functions in it; needs no GPU.

    Args:
        macros: as ``// @variants`` of the file has them; the operator's own (:func:`operator_macros`) are added.
        arch: what it is for, such as ``"sm_90"``.

    Raises:
        RuntimeError: a compiler is not installed, or refuses our own source.
        SamplingAppError: the user's functions do not compile; the message names the line.
    """
    problem = missing()
    if problem:
        raise RuntimeError(problem)
    return _link(operator, _source(operator, source_name, macros), source_name, arch)


def load(operator: Operator, source_name: str, macros: dict[str, int | str] | None = None) -> Any:
    """The ``cupy.RawModule`` of :func:`build` for the first GPU, from the caches where they have it.

    Raises:
        RuntimeError, SamplingAppError: as :func:`build`.
    """
    import cupy

    problem = missing()
    if problem:
        raise RuntimeError(problem)
    arch = _arch()
    source = _source(operator, source_name, macros)
    key = cache_key(operator, source, arch)
    if key in _modules:
        _modules.move_to_end(key)
        return _modules[key]
    path = _cache() / f"{key}.cubin"
    if not path.exists():
        path = _keep(path, _link(operator, source, source_name, arch))
    module = _modules[key] = cupy.RawModule(path=str(path))
    while len(_modules) > _MAX_KEPT:
        _modules.popitem(last=False)
    return module


def operator_macros(operator: Operator) -> dict[str, int | str]:
    """Macros of ``context.cuh`` that follow from the operator."""
    return {
        "DEFERRED": int(operator.deferred), "COLLECTIVE": int(operator.collective), "NEXT_LINE": operator.def_line,
        "TRANSITS": int(operator.transits_source is not None),
    }  # fmt: skip


def cache_key(operator: Operator, source: str, arch: str) -> str:
    """Hash of all that a cubin depends on: the texts, how this package compiles them, and with which compilers."""
    parts = [source, operator.key, arch, *_LINK_OPTIONS, *_versions(), _own_key()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.lru_cache(maxsize=1)
def _own_key() -> str:
    """Hash of the code that compiles; where it may differ from its files, one that no other process has."""
    return jit_cache.content_key(__file__) or os.urandom(16).hex()


@functools.lru_cache(maxsize=1)
def _versions() -> tuple[str, ...]:
    found = []
    for name in _DISTRIBUTIONS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:  # nvJitLink may come with a toolkit
            found.append(name)
    return tuple(found)


@functools.lru_cache(maxsize=1)
def _arch() -> str:
    from gnnsample_lab.device import runtime

    properties = runtime.device_properties()
    return f"sm_{properties['major']}{properties['minor']}"


@functools.lru_cache(maxsize=32)
def _text(source_name: str) -> str:
    return kernels.inline_source(FOLDER / source_name)


def _source(operator: Operator, source_name: str, macros: dict[str, int | str] | None) -> str:
    """The kernel file with its headers inlined, after the macros as ``#define`` lines and the accessors' types."""
    chosen = {"ID_T": "int", **operator_macros(operator), **(macros or {})}
    return (
        "".join(f"#define {k} {v}\n" for k, v in sorted(chosen.items()))
        + cuda_declarations()
        + _text(source_name)
    )


def _link(operator: Operator, source: str, source_name: str, arch: str) -> bytes:
    parts = [_compile_kernels(source, source_name, arch), *_compile_functions(operator, arch)]
    return join(parts, source_name, arch)


def join(parts: Sequence[bytes], name: str, arch: str) -> bytes:
    """The cubin that LTO-IR becomes.

    Args:
        parts: programs that between them define what any of them calls. name: what errors call them.

    Raises:
        RuntimeError: they cannot be linked.
    """
    from cuda.bindings import nvjitlink

    options = [f"-arch={arch}", *_LINK_OPTIONS]
    handle = nvjitlink.create(len(options), options)
    try:
        try:
            for number, code in enumerate(parts):
                nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, code, len(code), f"{name} {number}")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            log = bytearray(nvjitlink.get_error_log_size(handle))
            nvjitlink.get_error_log(handle, log)
            text = log.decode(errors="replace").strip("\0\n ")
            raise RuntimeError(f"nvJitLink could not link {name} for {arch}: {text or error}") from None
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        return bytes(cubin)
    finally:
        nvjitlink.destroy(handle)


def _compile_kernels(source: str, source_name: str, arch: str) -> bytes:
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(
        arch=arch,
        std="c++17",
        link_time_optimization=True,
        relocatable_device_code=True,
        fma=False,
        name=source_name,
    )
    try:
        return bytes(Program(source, "c++", options=options).compile("ltoir").code)
    except Exception as error:
        raise RuntimeError(f"NVRTC could not compile {source_name} for {arch}: {error}") from error


def _compile_functions(operator: Operator, arch: str) -> tuple[bytes, ...]:
    """LTO-IR of the user's functions, one program each."""
    if (operator.key, arch) in _compiled:
        return _compiled[operator.key, arch]
    from numba import cuda, types

    digits = arch.removeprefix("sm_").rstrip("af")
    target = (int(digits[:-1]), int(digits[-1]))
    namespace = declarations()
    codes = []
    try:
        functions = operator.functions(namespace, cuda.jit(device=True, inline="always"))
        for name, function in functions.items():
            signature = types.int64(types.voidptr, *[types.int64] * _FUNCTIONS[name])
            code, _ = cuda.compile(
                function, signature, device=True, abi="c", abi_info={"abi_name": name}, output="ltoir", cc=target,
                forceinline=True,
            )  # fmt: skip
            codes.append(bytes(code))
    except Exception as error:
        raise operator.compile_error(error) from error
    _compiled[operator.key, arch] = tuple(codes)
    while len(_compiled) > _MAX_KEPT:
        _compiled.popitem(last=False)
    return tuple(codes)


@functools.lru_cache(maxsize=1)
def _declarations() -> dict[str, Any]:
    from numba import cuda, types

    kinds = {"ctx": types.voidptr, "i8": types.int64, "i4": types.int32, "f8": types.float64}
    # abi="c": with the default, Numba's own, arguments would silently land in other places than context.cuh expects.
    return {
        name: cuda.declare_device(name, kinds[result](*[kinds[a] for a in arguments]), abi="c")
        for name, (result, arguments) in ACCESSORS.items()
    }


def declarations() -> dict[str, Any]:
    """A new namespace with every accessor declared for numba-cuda."""
    return dict(_declarations())


@functools.lru_cache(maxsize=1)
def _cache() -> Path:
    """Where cubins are kept: our cache folder, or one that ends with the process where nothing can be written."""
    folder = roots.cache_folder(roots.data_root())
    if folder is not None:
        folder = folder / "kernels"
        if roots.is_writable(folder):
            return folder
    return _own_folder()


@functools.lru_cache(maxsize=1)
def _own_folder() -> Path:
    """A folder that ends with the process."""
    _held_folders.append(tempfile.TemporaryDirectory(prefix="gnnsample_lab_"))
    return Path(_held_folders[-1].name)


_held_folders: list[Any] = []


def _keep(path: Path, data: bytes) -> Path:
    """Write ``data`` to ``path``, or where that fails (a full disk) to the process's own folder; returns where."""
    try:
        replace_file(path, data)
    except OSError:
        path = _own_folder() / path.name
        replace_file(path, data)
    return path
