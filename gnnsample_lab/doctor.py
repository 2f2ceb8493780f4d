"""What works on this machine, and what to install for the rest.

Nothing here raises because something is missing, and nothing but the standard library is imported before a check
needs it: ``make`` runs this file on a bare Python to find out which CuPy fits the driver.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata

OK, NOTE, PROBLEM = "ok", "note", "problem"

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_REQUIRED = ("numpy", "numba", "pandas", "networkx", "plotly", "ipywidgets", "anywidget", "jupyterlab")
# Newer majors run what was built for 13: the driver is backward compatible.
_OLDEST_CUDA, _NEWEST_CUDA = 12, 13


@dataclass(frozen=True)
class Finding:
    """One line of the report: ``status`` is "ok", "note" (something optional is off) or "problem"."""

    name: str
    status: str
    detail: str
    remedy: str = ""


def driver_cuda_version() -> tuple[int, int] | None:
    """Newest CUDA version that the NVIDIA driver supports, as (major, minor); None without a driver."""
    for library in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            driver = ctypes.CDLL(library)
            version = ctypes.c_int()
            # Answers without a context, and without a GPU that is free.
            if driver.cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value:
                return version.value // 1000, version.value % 1000 // 10
        except (OSError, AttributeError):
            continue
    match = re.search(r"CUDA Version:\s*(\d+)\.(\d+)", _nvidia_smi())
    return (int(match[1]), int(match[2])) if match else None


def cuda_extra() -> str:
    """The extra of this package that fits the driver, ``"cuda12"`` or ``"cuda13"``; empty without a usable one."""
    version = driver_cuda_version()
    if version is None or version[0] < _OLDEST_CUDA:
        return ""
    return f"cuda{min(version[0], _NEWEST_CUDA)}"


def find_chromium() -> str | None:
    """Path of the browser for tests and figure images: ``LAB_CHROMIUM``, else the first one on the path."""
    named = os.environ.get("LAB_CHROMIUM")
    return next(filter(None, map(shutil.which, (named,) if named else _BROWSERS)), None)


def _nvidia_smi(*arguments: str) -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        return subprocess.run(
            [tool, *arguments], capture_output=True, text=True, timeout=20, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _install(what: str) -> str:
    return f"pip install '{what}'"


def check_python() -> Finding:
    """The interpreter."""
    detail = (
        f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} CPU cores"
    )
    if sys.version_info < (3, 11):  # noqa: UP036  (this file alone also runs on what is found before a set-up)
        return Finding("Python", PROBLEM, detail, "install Python 3.11 or newer")
    return Finding("Python", OK, detail)


def check_packages() -> Finding:
    """What every explorer and notebook needs."""
    missing = [name for name in _REQUIRED if _version(name) is None]
    if missing:
        return Finding("packages", PROBLEM, f"missing: {', '.join(missing)}", _install(" ".join(missing)))
    return Finding("packages", OK, ", ".join(f"{name} {_version(name)}" for name in _REQUIRED))


def check_numba() -> Finding:
    """The CPU sampler's compiler, by compiling and running a parallel function; and whether its work is kept."""
    try:
        import numba
        import numpy

        from gnnsample_lab.device import jit, jit_cache

        @jit.njit(parallel=True)
        def probe(out):  # type: ignore[no-untyped-def]
            for i in jit.prange(out.size):
                out[i] = 3 * i

        out = numpy.zeros(64, numpy.int64)
        probe(out)
        if out.tolist() != list(range(0, 192, 3)):
            raise RuntimeError("a function ran and wrote wrong values")
        threads, layer = numba.get_num_threads(), numba.threading_layer()
    except Exception as error:  # a broken installation can raise anything
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return Finding("Numba", PROBLEM, f"does not work: {first_line}", _install("numba"))
    detail = f"numba {_version('numba')}, {threads} threads by {layer!r}"
    if problem := jit_cache.unwritable():
        return Finding(
            "Numba", NOTE, f"{detail}; compiled functions cannot be kept, every process compiles anew ({problem})",
            "set NUMBA_CACHE_DIR to a folder of yours",
        )  # fmt: skip
    return Finding("Numba", OK, f"{detail}; compiled functions are kept in {jit_cache.folder()}")


def check_driver() -> Finding:
    """GPU and driver."""
    version = driver_cuda_version()
    if version is None:
        return Finding(
            "GPU driver",
            NOTE,
            "no NVIDIA driver: samplers run on the CPU, timelines are modelled or recorded ones",
        )
    cards = [line.strip() for line in _nvidia_smi("--query-gpu=name", "--format=csv,noheader").splitlines()]
    detail = f"CUDA up to {version[0]}.{version[1]}; {', '.join(filter(None, cards)) or 'no GPU listed by nvidia-smi'}"
    if version[0] < _OLDEST_CUDA:
        return Finding(
            "GPU driver", PROBLEM, detail, f"update the driver to one for CUDA {_OLDEST_CUDA} or newer"
        )
    return Finding("GPU driver", OK, detail)


def check_cupy() -> Finding:
    """CuPy, by compiling and running a kernel with the headers that ours use."""
    extra = cuda_extra()
    remedy = _install(f"gnnsample-lab[{extra}]") if extra else ""
    found = [
        f"{name} {_version(name)}" for name in ("cupy-cuda12x", "cupy-cuda13x", "cupy") if _version(name)
    ]
    if not found:
        return Finding(
            "CuPy", PROBLEM if extra else NOTE, "not installed" if extra else "not needed here", remedy
        )
    if len(found) > 1:
        return Finding(
            "CuPy", PROBLEM, f"several at once: {', '.join(found)}", "uninstall all but one of them"
        )
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() < 1:
            return Finding("CuPy", PROBLEM if extra else NOTE, f"{found[0]}, but no GPU is visible to it", "")
        source = (
            '#include <cooperative_groups.h>\nextern "C" __global__ void probe(int* out) { out[0] = 42; }'
        )
        out = cupy.zeros(1, dtype=cupy.int32)
        cupy.RawKernel(source, "probe", options=("-std=c++17",))((1,), (1,), (out,))
        if int(out[0]) != 42:
            return Finding("CuPy", PROBLEM, f"{found[0]}: a kernel ran and wrote the wrong value", remedy)
        toolkit = cupy.cuda.runtime.runtimeGetVersion()
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    except Exception as error:  # a broken CUDA installation can raise anything
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return Finding("CuPy", PROBLEM if extra else NOTE, f"{found[0]} does not work: {first_line}", remedy)
    return Finding(
        "CuPy", OK, f"{found[0]}, CUDA {toolkit // 1000}.{toolkit % 1000 // 10}: kernels run on {name}"
    )


def check_linker() -> Finding:
    """What links a sampling application's Python functions into our kernels."""
    extra = cuda_extra()
    wanted = ("numba-cuda", "cuda-core", "cuda-bindings")
    found = [f"{name} {_version(name)}" for name in wanted if _version(name)]
    missing = [name for name in wanted if not _version(name)]
    numpy = tuple(int(x) for x in (_version("numpy") or "0.0").split(".")[:2])
    title = "GPU linker"
    if missing:
        detail = f"not installed: {', '.join(missing)}; applications of lab.run_app run on the CPU"
        return Finding(
            title, PROBLEM if extra else NOTE, detail, _install(f"gnnsample-lab[{extra}]") if extra else ""
        )
    if numpy >= (2, 5) and tuple(int(x) for x in (_version("numba-cuda") or "0.0").split(".")[:2]) <= (0, 30):
        return Finding(
            title, PROBLEM if extra else NOTE, f"{found[0]} does not work with NumPy {_version('numpy')}",
            "pip install 'numpy<2.5'",
        )  # fmt: skip
    return Finding(title, OK, ", ".join(found))


def check_torch() -> Finding:
    """PyTorch and the CUDA that it was built for."""
    if _version("torch") is None:
        return Finding("PyTorch", NOTE, "not installed: no training", _install("torch"))
    try:
        import torch

        built = torch.version.cuda
        detail = f"{torch.__version__}, {f'built for CUDA {built}' if built else 'CPU build'}"
        driver = driver_cuda_version()
        if driver is None or torch.cuda.is_available():
            return Finding("PyTorch", OK, detail)
        # Sampling is CuPy's: this costs training on the GPU and nothing else.
        remedy = f"install the PyTorch build for CUDA {driver[0]}, or update the driver"
        return Finding("PyTorch", NOTE, f"{detail}: cannot use the GPU, so training runs on the CPU", remedy)
    except Exception as error:
        return Finding("PyTorch", PROBLEM, f"does not import: {error}", _install("torch"))


def check_ogb() -> Finding:
    """The ogb package; not imported, since that takes seconds and may ask the network for its version."""
    version = _version("ogb")
    if version is None:
        return Finding("OGB", NOTE, "not installed: OGB graphs cannot be read", _install("ogb"))
    return Finding("OGB", OK, f"ogb {version}")


def check_data() -> Finding:
    """The data root and the graphs in it."""
    from gnnsample_lab.graph.roots import data_root, is_writable

    root = data_root()
    source = "LAB_DATA_ROOT" if os.environ.get("LAB_DATA_ROOT") else "default"
    if root.exists() and not root.is_dir():
        return Finding("data root", PROBLEM, f"{root} ({source}) is a file", "set LAB_DATA_ROOT to a folder")
    if not root.is_dir():
        above = next(folder for folder in root.absolute().parents if folder.exists())
        if not (above.is_dir() and is_writable(above)):
            return Finding(
                "data root", PROBLEM, f"{root} ({source}) does not exist, and nothing can be written to {above}",
                "set LAB_DATA_ROOT to a folder that can be made",
            )  # fmt: skip
        return Finding(
            "data root", NOTE, f"{root} ({source}) does not exist yet; downloads would make it", ""
        )
    names = sorted(
        path.name
        for folder in (root, root / "ogb", root / "snap")
        if folder.is_dir()
        for path in folder.iterdir()
        if not path.name.startswith(".") and (path.is_dir() or path.suffix in (".gz", ".txt"))
        if path.name not in ("ogb", "snap", "measured")
    )
    detail = f"{root} ({source}): {', '.join(names) or 'no graphs yet'}"
    if not is_writable(root):
        return Finding("data root", NOTE, f"{detail}; read-only, so nothing can be downloaded there", "")
    return Finding("data root", OK, detail)


def check_chromium() -> Finding:
    """A browser for the browser test and for pictures of figures."""
    path = find_chromium()
    if path is None:
        remedy = "apt-get install chromium, or set LAB_CHROMIUM to a Chrome"
        return Finding("Chromium", NOTE, "none: the browser test and figure images are off", remedy)
    return Finding("Chromium", OK, path)


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    check_packages,
    check_numba,
    check_driver,
    check_cupy,
    check_linker,
    check_torch,
    check_ogb,
    check_data,
    check_chromium,
)


def examine(checks: Sequence[Callable[[], Finding]] = CHECKS) -> list[Finding]:
    """Run every check; one that fails in an unforeseen way becomes a finding of its own."""
    findings = []
    for check in checks:
        try:
            findings.append(check())
        except Exception as error:
            name = check.__name__.removeprefix("check_")
            findings.append(
                Finding(name, PROBLEM, f"the check itself failed: {type(error).__name__}: {error}")
            )
    return findings


def capabilities(findings: Sequence[Finding]) -> list[str]:
    """What can be done here, in one line each."""
    status = {finding.name: finding.status for finding in findings}
    on_gpu = status.get("CuPy") == OK
    torch_ok = status.get("PyTorch") == OK
    where = "on the GPU, and on the CPU as its twin" if on_gpu else "on the CPU (same samples as on a GPU)"
    if status.get("Numba") == PROBLEM:
        where = "no, since Numba does not work"
    return [
        f"sampling: {where}",
        f"traces: {'measured here, or ' if on_gpu else 'recorded on other GPUs, or '}modelled; each says which",
        f"OGB graphs: {'yes' if status.get('OGB') == OK else 'no'}",
        f"browser test, figure images: {'yes' if status.get('Chromium') == OK else 'no'}",
        f"PyTorch on the GPU: {'yes' if on_gpu and torch_ok else 'no'}",
    ]


def report(findings: Sequence[Finding]) -> str:
    """The findings as text, problems with what to do about them."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.status:>8}  {finding.name:<11} {finding.detail}")
        if finding.remedy:
            lines.append(f"{'':>8}  {'':<11} -> {finding.remedy}")
    return "\n".join([*lines, "", "Here you get:", *(f"  {line}" for line in capabilities(findings))])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report; 0 when nothing is broken, 1 otherwise. The two probes answer ``make``."""
    parser = argparse.ArgumentParser(
        prog="gnnsample-lab doctor", description="What works here, what to install."
    )
    parser.add_argument("--json", action="store_true", help="the findings as JSON, to attach to a bug report")
    parser.add_argument(
        "--cuda-extra", action="store_true", help="print the extra that fits the driver, if any"
    )
    parser.add_argument(
        "--chromium", action="store_true", help="print the browser's path; exit code 1 without one"
    )
    options = parser.parse_args(argv)
    if options.cuda_extra:
        print(cuda_extra())
        return 0
    if options.chromium:
        print(find_chromium() or "")
        return 0 if find_chromium() else 1
    findings = examine()
    print(
        json.dumps([asdict(finding) for finding in findings], indent=1) if options.json else report(findings)
    )
    return 1 if any(finding.status == PROBLEM for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
