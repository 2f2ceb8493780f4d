"""What the suites over ranks share."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.device import runtime


def num_gpus() -> int:
    """GPUs of this machine."""
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


def device_of_ranks() -> str:
    """``"cuda"`` where ranks are to run on GPUs, as ``LAB_DEVICE`` and the machine say, else ``"cpu"``."""
    return "cuda" if runtime.cuda_available() and runtime.resolve_device("auto") == "cuda" else "cpu"


def on_device(rank: Any, array: Any) -> Any:
    """A host array where a rank samples and gathers: itself on a CPU rank, a CuPy copy on a GPU."""
    if rank.device == "cpu":
        return array
    import cupy

    return cupy.asarray(array)
