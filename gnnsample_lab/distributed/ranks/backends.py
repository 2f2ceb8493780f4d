"""NCCL or Gloo: which one a start gets, and the environment that its ranks need."""

from __future__ import annotations

import importlib.util
import os
import socket
from pathlib import Path

from gnnsample_lab.device.host import usable_cores
from gnnsample_lab.resources import PACKAGE_ROOT

NCCL = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
"""NVLink multicast stays off: peer memory is read by kernels of ours."""
_THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS",
)  # fmt: skip
_TORCHRUN = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "TORCHELASTIC_RUN_ID",
)  # fmt: skip


def choose(device: str, ranks: int) -> tuple[str, str]:
    """``(backend, reason)`` for a checked ``device``; ``"auto"`` follows ``LAB_DEVICE`` as everywhere.

    Raises:
        RuntimeError: ``"cuda"`` was asked for and there are fewer GPUs than ranks.
    """
    origin = "device"
    if device == "auto" and os.environ.get("LAB_DEVICE"):
        device, origin = os.environ["LAB_DEVICE"], "LAB_DEVICE"
        device = "cuda" if device in ("gpu", "cuda:0") else device
        if device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"LAB_DEVICE must be 'auto', 'cpu' or 'cuda' (got {device!r})")
    if device == "cpu":
        return "gloo", f"{origin}='cpu'"
    problem = nccl_problem(ranks)
    if problem is None:
        return "nccl", f"GPUs 0 to {ranks - 1}" if ranks > 1 else "GPU 0"
    if device == "cuda":
        raise RuntimeError(f"{origin}='cuda' was asked for with ranks={ranks}, but {problem}")
    return "gloo", problem


def nccl_problem(ranks: int) -> str | None:
    """Why ``ranks`` ranks cannot have a GPU each here, or None. Neither imports torch nor starts CUDA's context."""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        return "PyTorch is not installed"
    if not (Path(torch.origin).parent / "lib" / "libtorch_cuda.so").exists():
        return "PyTorch is here without CUDA and NCCL"
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    except ImportError:
        return "CuPy is not installed (pip install 'gnnsample_lab[cuda13]' or [cuda12])"
    except Exception as error:  # no driver, or a broken one
        return f"CuPy cannot use a GPU: {error}"
    if count < ranks:
        return f"this machine has {count} GPU{'' if count == 1 else 's'} for {ranks} ranks"
    return None


def environment(backend: str, ranks: int) -> dict[str, str]:
    """Environment of a rank on this host: the parent's, loopback alone, and as many threads as it may have."""
    found = {name: value for name, value in os.environ.items() if name not in _TORCHRUN}
    ours = str(PACKAGE_ROOT.parent)
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [ours, found.get("PYTHONPATH")]))
    threads = 1 if backend == "gloo" else max(1, usable_cores() // ranks)
    found |= dict.fromkeys(_THREADS, str(threads))
    # Ranks without a GPU of their own must not all take the first one.
    found["LAB_DEVICE"] = "cpu" if backend == "gloo" else "cuda"
    found |= NCCL
    if loopback := _loopback():
        found["GLOO_SOCKET_IFNAME"] = found["NCCL_SOCKET_IFNAME"] = loopback
    return found


def _loopback() -> str | None:
    """Name of the loopback interface; None where interfaces have no such names."""
    names = [name for _, name in socket.if_nameindex()] if hasattr(socket, "if_nameindex") else []
    return next((name for name in ("lo", "lo0") if name in names), None)
