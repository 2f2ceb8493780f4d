"""Where and with what a benchmark ran, and how its record reaches the disk."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from gnnsample_lab import __version__
from gnnsample_lab.device import runtime
from gnnsample_lab.device.host import usable_cores
from gnnsample_lab.files import replace_file
from gnnsample_lab.resources import checkout_root, resource_path

FORMAT = 2
"""1: without the hash of the source."""
TRACES = {False: "traces", True: "traces-quick"}
"""Folder of the traces of a full and of a quick run, beside the records."""
_PACKAGES = ("numpy", "numba", "torch", "plotly", "ipywidgets")


def output_of(*command: str, folder: Path | None = None) -> str:
    """What a command prints, without blanks around it; empty where it fails or is not there."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, cwd=folder)
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""


def commit() -> dict[str, Any]:
    """``commit`` and whether the files differ from it (``modified``); as ``LAB_COMMIT`` says, else from git.

    Raises:
        ValueError: ``LAB_COMMIT`` is no commit, which is 6 to 40 hexadecimal digits.
    """
    given = os.environ.get("LAB_COMMIT")
    if given:
        if not re.fullmatch(r"[0-9a-f]{6,40}", given):
            raise ValueError(f"LAB_COMMIT must be the 6 to 40 hexadecimal digits of a commit (got {given!r})")
        return {"commit": given, "modified": None}
    root = checkout_root()
    if root is not None and (root / ".git").exists():
        found = output_of("git", "rev-parse", "HEAD", folder=root)
        if found:
            changed = output_of("git", "status", "--porcelain", "--", "gnnsample_lab", folder=root)
            return {"commit": found, "modified": bool(changed)}
    return {"commit": None, "modified": None}


def commit_of(environment: Mapping[str, Any]) -> str:
    """The commit of a record in the usual length, ``"unknown"`` where it has none."""
    return (environment.get("commit") or "unknown")[:7] + (
        " with changes" if environment.get("modified") else ""
    )


def states(record: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Commit and hash of every state that rows of a record come from: one, but for records that graphs share, and such
    that several runs have made, whose source is the same."""
    if "compared" in record:
        each = [about.get("environment", {}) for about in record["compared"].values()]
        return {(commit_of(at), at.get("source") or "") for at in each}
    each = [record["environment"], *(run["environment"] for run in record.get("resumed", ()))]
    return {(commit_of(at), record.get("source", {}).get("hash", "")) for at in each}


def state(record: Mapping[str, Any]) -> str:
    """Where a record comes from, in words: commit, and hash of the source where it holds one."""
    return "; ".join(
        f"{commit}, source {digest}" if digest else commit for commit, digest in sorted(states(record))
    )


def is_modelled(row: Mapping[str, Any]) -> bool:
    """Whether a row was not measured, as its origin or its part says."""
    return row.get("origin") == "modelled" or str(row.get("part", "")).endswith(", modelled")


def most(record: Mapping[str, Any], key: str) -> int:
    """The largest number in that field of the measured rows; 1 where none has it."""
    return max((row[key] for row in record["rows"] if not is_modelled(row) and row.get(key)), default=1)


def card_of(record: Mapping[str, Any], gpus: str | None = None) -> str:
    """Name of the GPU without its vendor's, and how many of them; "CPU" where there was none.

    Args:
        record: of a suite.
        gpus: field of the rows that says how many; None: one.
    """
    gpu = record["environment"].get("gpu")
    if not gpu:
        return "CPU"
    count = most(record, gpus) if gpus else 1
    return f"{count} x " * (count > 1) + gpu["name"].removeprefix("NVIDIA ").removesuffix(" 80GB HBM3")


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def environment() -> dict[str, Any]:
    """GPU, driver, versions, commit and date; ``gpu`` is None without a usable GPU."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gnnsample_lab": __version__, **commit(), "python": platform.python_version(), "packages": versions,
        "cpu": _cpu_name(), "cpu_cores": usable_cores(), "gpu": None,
        # Wall times of a busy machine are no measurement of the sampler: the record shows how busy it was.
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }  # fmt: skip
    if runtime.cuda_available():
        import cupy

        properties = runtime.device_properties()
        driver = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").splitlines()
        found["gpu"] = {
            "name": runtime.device_name(), "driver": driver[0].strip() if driver else None,
            "driver_cuda": _cuda_version(cupy.cuda.runtime.driverGetVersion()),
            "cuda_runtime": _cuda_version(cupy.cuda.runtime.runtimeGetVersion()), "cupy": cupy.__version__,
            "num_sms": runtime.num_sms(), "l2_bytes": int(properties["l2CacheSize"]),
            "memory_bytes": int(properties["totalGlobalMem"]),
        }  # fmt: skip
    return found


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def scaled(name: str) -> tuple[str, float]:
    """``"twitter-like@0.25"`` as the name and scale for ``lab.load``; without ``@`` the scale is 1.

    Raises:
        ValueError: what follows ``@`` is no number.
    """
    base, at, scale = name.partition("@")
    try:
        return base, float(scale) if at else 1.0
    except ValueError:
        raise ValueError(f"graph must be NAME or NAME@SCALE (got {name!r})") from None


def graph_facts(graph: Any) -> dict[str, Any]:
    """Name and sizes of a graph, and of a twin the version of its generator and a hash of what it is generated from."""
    return {
        "name": graph.name, "title": graph.title, "is_synthetic": bool(graph.is_synthetic),
        "version": getattr(graph, "version", None), "statistics": statistics_hash(graph.name),
        "num_nodes": int(graph.num_nodes), "num_edges": int(graph.num_edges),
        "max_in_degree": int(graph.max_in_degree), "id_bytes": int(graph.indices.dtype.itemsize),
    }  # fmt: skip


def statistics_hash(name: str) -> str | None:
    """A hash of the stored statistics of a twin, whatever its scale; None for another graph."""
    try:
        found = resource_path(f"data/twins/{name.partition('@')[0]}.json").read_bytes()
    except FileNotFoundError:
        return None
    return hashlib.sha256(found).hexdigest()[:16]


def measured_folder() -> Path | None:
    """``data/measured`` of the checkout, or None for an installed package."""
    root = checkout_root()
    return None if root is None else root / "data" / "measured"


def trace_folder(folder: Path | str | None, quick: bool = False) -> Path:
    """Where traces go: never over those of a full run when the run is quick.

    Raises:
        ValueError: no folder was given and there is no checkout.
    """
    if folder is not None:
        return Path(folder)
    measured = measured_folder()
    if measured is None:
        raise ValueError("traces need a folder: this is no checkout, pass --out FOLDER")
    return measured / TRACES[quick]


def plain(value: Any) -> Any:
    """``value`` with NumPy scalars, tuples and paths turned into what JSON knows; NaN becomes null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return value


def write_json(record: dict[str, Any], path: Path) -> Path:
    """Write ``record``; a reader sees the old file or the whole new one."""
    text = json.dumps(plain(record), indent=1, allow_nan=False)
    return replace_file(path, f"{text}\n".encode())


def writing_problem(target: Path, quick: bool) -> str:
    """Why a record cannot be written to ``target``; empty when it can. Changes nothing on the disk."""
    if target.is_dir():
        return f"{target} is a folder"
    above = next(folder for folder in target.absolute().parents if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        return f"{target} cannot be written: {error.strerror or error}"
    if quick and target.exists():
        try:
            settings = json.loads(target.read_text(encoding="utf-8"))["settings"]
            full = not settings.get("quick", False)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return f"{target} exists and is no record of a quick run"
        if full:
            return f"{target} holds the record of a full run, which a quick one must not replace"
    return ""
