"""Device selection: GPU detection, the ``device`` argument, the process-wide lock.

CuPy is imported on first need only; importing this module costs nothing.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from gnnsample_lab.checks import shown

from . import pools
from .locks import Lock, check_process, cuda_is_in_use

lock = Lock()
"""The library's lock, held around work on the GPU, applications and analyses, because JupyterLab runs widget callbacks
on another thread than the running cell. A CPU sampler has its own lock, so that its epochs can sample ahead while
another thread holds this one."""


def lock_is_held() -> bool:
    """Whether the calling thread holds :data:`lock`: it must then not wait for another thread that samples."""
    return lock.is_held()


@functools.lru_cache(maxsize=1)
def cuda_problem() -> str | None:
    """Why CUDA cannot be used here, or None when it can."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed (pip install 'gnnsample_lab[cuda13]' or [cuda12])"
    except Exception as error:  # a broken CUDA installation can raise anything while importing
        return f"CuPy does not import: {error}"
    try:
        if cupy.cuda.runtime.getDeviceCount() < 1:
            return "CuPy sees no NVIDIA GPU"
        cupy.zeros(1)
    except Exception as error:
        return f"CuPy cannot use a GPU: {error}"
    cuda_is_in_use()
    return None


def cuda_available() -> bool:
    """True when CuPy is installed and has a working GPU."""
    return cuda_problem() is None


def resolve_device(device: str | None = "auto") -> str:
    """``"cpu"`` or ``"cuda"`` for a ``device`` argument.

    ``"auto"`` (or None) follows the environment variable ``LAB_DEVICE`` when set, and otherwise takes the GPU
    when there is one.

    Raises:
        ValueError: an unknown device name.
        RuntimeError: ``"cuda"`` was asked for and there is none; the message says what is missing. The GPU was chosen
            in a process forked from one that used it.
    """
    origin = "device"
    if device is not None and not isinstance(device, str):
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda' (got {shown(device)})")
    if device in (None, "auto"):
        device = os.environ.get("LAB_DEVICE") or "auto"
        origin = "LAB_DEVICE"
    if device in ("gpu", "cuda:0"):
        device = "cuda"
    if device == "auto":
        device = "cuda" if cuda_available() else "cpu"
    if device == "cpu":
        return "cpu"
    if device == "cuda":
        problem = cuda_problem()
        if problem:
            raise RuntimeError(f"{origin}='cuda' was asked for, but {problem}")
        check_process("cuda")
        return "cuda"
    raise ValueError(f"{origin} must be 'auto', 'cpu' or 'cuda' (got {device!r})")


@functools.lru_cache(maxsize=1)
def device_name() -> str:
    """Name of the first GPU as the driver gives it; requires CUDA."""
    import cupy

    return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()


@functools.lru_cache(maxsize=1)
def device_properties() -> dict[str, Any]:
    """CUDA's property record of the first GPU (SM count, L2 size, memory); requires CUDA."""
    import cupy

    return cupy.cuda.runtime.getDeviceProperties(0)


def num_sms() -> int:
    """Streaming multiprocessors of the first GPU; requires CUDA."""
    return int(device_properties()["multiProcessorCount"])


@functools.cache
def has_virtual_memory() -> bool:
    """Whether the current GPU's driver can put memory behind addresses that were reserved before; False without one."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return False
    if not cuda_available():
        return False
    import cupy

    asked = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    status, found = driver.cuDeviceGetAttribute(asked, int(cupy.cuda.Device().id))
    return int(status) == 0 and bool(found)


def gpu_memory() -> tuple[int, int]:
    """``(free, total)`` bytes of the current GPU; blocks that CuPy's pool holds unused count as free."""
    import cupy

    free, total = cupy.cuda.Device().mem_info
    return int(free) + pools.free_bytes(), int(total)


def scratch_bytes(given: int | None = None) -> int:
    """Bytes of GPU memory that a sampler or an ID map may keep for its tables, queues and staging.

    ``given`` where the caller says it, else 5 % of what is free: a training process holds a handful of samplers, and
    all of them together must leave most of the memory to the graph, the feature cache and the model.
    """
    return gpu_memory()[0] // 20 if given is None else given
