"""Load CUDA source that ships inside the package, compile it through CuPy, and list what can be compiled.

A ``.cu`` file says which macros it takes in a line ``// @variants NAME=a,b OTHER=1,2``; the cross product is
what the compile test builds for every architecture. A line ``// @cooperative`` marks a source whose kernels
use a grid barrier: CuPy then launches *every* kernel of that module cooperatively, so such kernels live in a
file of their own. A line ``// @operator`` marks a source that calls functions of an application: it is linked with
them (``sampling/engine/language/link.py``) instead.
"""

from __future__ import annotations

import functools
import itertools
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE_ROOT = Path(__file__).resolve().parent.parent
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"[ \t]*$', re.MULTILINE)


def inline_source(path: Path, seen: set[Path] | None = None) -> str:
    """Source text of ``path`` with the package's own headers inlined, each once.

    CuPy's kernel cache is keyed by the source string and does not see headers reached through ``-I``; inlined,
    an edited header changes the key.
    """
    seen = set() if seen is None else seen
    seen.add(path)

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        for folder in (
            path.parent,
            PACKAGE_ROOT,
        ):  # a neighbour by its name, others by their path in the package
            header = (folder / name).resolve()
            if header.exists():
                return "" if header in seen else inline_source(header, seen)
        raise FileNotFoundError(f"header {name!r} included by {path.name} is not in the package")

    return _INCLUDE.sub(replace, path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Variant:
    """One compilable configuration of one CUDA source file."""

    path: Path
    macros: tuple[tuple[str, str], ...]
    needs_cooperative: bool

    @property
    def name(self) -> str:
        tag = " ".join(f"{k}={v}" for k, v in self.macros)
        return f"{self.path.relative_to(PACKAGE_ROOT).as_posix()}[{tag}]"

    def source_text(self) -> str:
        return inline_source(self.path)

    def options(self, arch: str | None = None) -> list[str]:
        """NVRTC options; ``arch`` like ``"sm_90"``, None to let CuPy choose."""
        options = ["-std=c++17", "--fmad=false", *(f"-D{k}={v}" for k, v in self.macros)]
        if arch:
            options.append(f"--gpu-architecture={arch}")
        return options


def variants_of(path: Path) -> list[Variant]:
    """Every variant that a ``.cu`` file declares."""
    text = path.read_text(encoding="utf-8")
    axes: list[list[tuple[str, str]]] = []
    for line in re.findall(r"^// @variants (.+)$", text, re.MULTILINE):
        for axis in line.split():
            key, values = axis.split("=", 1)
            axes.append([(key, value) for value in values.split(",")])
    cooperative = re.search(r"^// @cooperative\b", text, re.MULTILINE) is not None
    return [Variant(path, combination, cooperative) for combination in itertools.product(*axes)]


def needs_operator(path: Path) -> bool:
    """Whether a ``.cu`` file calls functions that an application brings, so that it does not stand alone."""
    return re.search(r"^// @operator\b", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def all_variants() -> list[Variant]:
    """Every variant of every ``.cu`` file of the package that stands alone (for compile tests)."""
    paths = [path for path in sorted(PACKAGE_ROOT.rglob("*.cu")) if not needs_operator(path)]
    return [v for path in paths for v in variants_of(path)]


@functools.cache
def _load(path: Path, macros: tuple[tuple[str, str], ...]) -> Any:
    import cupy

    cooperative = re.search(r"^// @cooperative\b", path.read_text(encoding="utf-8"), re.MULTILINE) is not None
    variant = Variant(path, macros, cooperative)
    return cupy.RawModule(
        code=variant.source_text(),
        options=tuple(variant.options()),
        backend="nvrtc",
        enable_cooperative_groups=cooperative,
    )


def load_module(source: str, macros: dict[str, int | str] | None = None) -> Any:
    """Compile ``source``, a path inside the package such as ``"graph/edgewise/synthetic.cu"``, with ``macros``.

    Returns a ``cupy.RawModule``; compiled once per process and cached on disk by CuPy.
    """
    return _load(PACKAGE_ROOT / source, tuple(sorted((k, str(v)) for k, v in (macros or {}).items())))


def launch_cooperative(kernel: Any, grid: tuple[int, ...], block: tuple[int, ...], args: tuple) -> None:
    """Launch a grid-barrier kernel; CuPy's warning that it cut the grid becomes an error.

    Raises:
        RuntimeError: the whole grid does not fit the GPU at once, so rows would silently be lost.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*grid size will be reduced.*")
        try:
            kernel(grid, block, args)
        except Warning as warning:
            raise RuntimeError(f"cooperative launch of grid {grid} was cut: {warning}") from None
