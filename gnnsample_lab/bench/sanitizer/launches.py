"""How often each kernel of this package is launched, by whatever way: CuPy's calls, or the driver's by address."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from gnnsample_lab.device import dependent, kernels

LINKED = "linked"
"""Stands for the source of kernels that were linked with an application: their cubins name none."""

_MEASURES, _WAITS = "measures", "waits"
LEFT_OUT = {
    "bench/floors/floor.cu:chase": _MEASURES, "bench/floors/floor.cu:gather": _MEASURES,
    "bench/floors/floor.cu:stream": _MEASURES, "bench/floors/walk_floor.cu:walk_floor": _MEASURES,
    "bench/step_sectors.cu:repeat": _MEASURES, "bench/suites/dsp/busy.cu:busy": _WAITS,
    "compute/aggregation/bandwidth.cu:copy": _MEASURES, "compute/aggregation/bandwidth.cu:read_l2": _MEASURES,
    "compute/aggregation/bandwidth.cu:read_shared": _MEASURES,
    "compute/aggregation/bandwidth.cu:multiply_add": _MEASURES,
}  # fmt: skip
"""Kernels that no case launches, and why: what they compute is of no use to anyone, only how long it takes."""


class Launches(Counter[str]):
    """Launches by kernel, ``source:name``.

    Attributes:
        at: the kernel at each address that somebody has asked for. A kernel that is launched by its address passes
            its object by; nobody has the address of one without asking the object for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[int, str] = {}

    def by_address(self, address: Any) -> None:
        """Count a launch of the kernel at ``address``; of none where the address is not one of ours."""
        name = self.at.get(int(address))
        if name is not None:
            self[name] += 1


class CountedKernel:
    """A kernel that counts its launches and is in all else the one that it stands for."""

    def __init__(self, kernel: Any, name: str, counts: Launches) -> None:
        object.__setattr__(self, "_own", (kernel, name, counts))

    def __call__(self, *args: Any, **options: Any) -> Any:
        kernel, name, counts = self._own
        counts[name] += 1
        return kernel(*args, **options)

    @property
    def kernel(self) -> CountedKernel:
        kernel, name, counts = self._own
        return CountedKernel(kernel.kernel, name, counts)

    @property
    def ptr(self) -> Any:
        kernel, name, counts = self._own
        counts.at[int(kernel.ptr)] = name
        return kernel.ptr

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own[0], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._own[0], name, value)


class CountedModule:
    """A module whose kernels count their launches under ``source:name``."""

    def __init__(self, module: Any, source: str, counts: Launches) -> None:
        self._module, self._source, self._counts = module, source, counts

    def get_function(self, name: str) -> CountedKernel:
        return CountedKernel(self._module.get_function(name), f"{self._source}:{name}", self._counts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class CountedDriver:
    """The interface by which kernels are launched dependently (:mod:`gnnsample_lab.device.dependent`); it counts."""

    def __init__(self, driver: Any, counts: Launches) -> None:
        self._driver, self._counts = driver, counts

    def cuLaunchKernelEx(self, config: Any, function: Any, *more: Any) -> Any:
        self._counts.by_address(function)
        return self._driver.cuLaunchKernelEx(config, function, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


def count_launches() -> Launches:
    """From now on every kernel of this package counts its launches; before any is loaded.

    A launch that is captured counts once, however often it is replayed.
    """
    import cupy
    from cupy_backends.cuda.api import driver

    counts = Launches()
    load, raw, launch, dependently = kernels._load, cupy.RawModule, driver.launchKernel, dependent._driver

    def loaded(path: Path, macros: Any) -> CountedModule:
        return CountedModule(load(path, macros), path.relative_to(kernels.PACKAGE_ROOT).as_posix(), counts)

    def linked(*args: Any, **options: Any) -> Any:
        module = raw(*args, **options)
        return CountedModule(module, LINKED, counts) if options.get("path") else module

    def launched(function: Any, *args: Any) -> Any:
        counts.by_address(function)
        return launch(function, *args)

    def interface() -> Any:
        found = dependently()
        return None if found is None else CountedDriver(found, counts)

    kernels._load = loaded  # type: ignore[assignment]
    cupy.RawModule = linked
    driver.launchKernel = launched
    dependent._driver = interface  # type: ignore[assignment]
    return counts
