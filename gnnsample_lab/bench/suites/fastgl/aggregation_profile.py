"""Cache hit rates of an aggregation kernel by Nsight Compute, which profiles a process of its own.

``python -m gnnsample_lab.bench.suites.fastgl.aggregation_profile FILE.npz KERNEL FEATURES`` is what ``ncu`` runs.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.bench.profiler import find_ncu as find_ncu

_METRICS = {
    "l1tex__t_sector_hit_rate.pct": "l1_percent", "lts__t_sector_hit_rate.pct": "l2_percent",
    "gpu__time_duration.sum": "duration",
}  # fmt: skip
_NONE: dict[str, Any] = {"l1_percent": None, "l2_percent": None, "hits_origin": "counted only: no ncu here"}


def cache_hits(sums: Any, kernel: str, features: int) -> dict[str, Any]:
    """``l1_percent`` and ``l2_percent`` of the longest kernel, None where ncu cannot tell, and ``hits_origin``."""
    ncu = find_ncu()
    if ncu is None:
        return dict(_NONE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sums.npz"
        np.savez(
            path, indptr=sums.csr.indptr.get(), indices=sums.csr.indices.get(), weight=sums.weight.get(),
            sizes=np.array([sums.csr.num_rows, sums.csr.num_sources]),
        )  # fmt: skip
        command = [
            ncu, "--csv", "--profile-from-start", "off", "--clock-control", "none", "--metrics", ",".join(_METRICS),
            sys.executable, "-m", __spec__.name if __spec__ else __name__, str(path), kernel, str(features),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return {**_NONE, "hits_origin": f"counted only: ncu did not run ({type(error).__name__})"}
    found = parse(done.stdout)
    if found is None:
        words = (done.stdout + done.stderr).strip().splitlines()
        return {
            **_NONE,
            "hits_origin": f"counted only: ncu gave no numbers ({words[-1][:120] if words else 'no output'})",
        }
    return {**found, "hits_origin": "measured by ncu"}


def parse(text: str) -> dict[str, float] | None:
    """Hit rates of the kernel that ran longest, from ncu's CSV; None without any."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if '"Metric Name"' in line), None)
    if start is None:
        return None
    kernels: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        key = _METRICS.get(row.get("Metric Name") or "")
        try:
            value = float((row.get("Metric Value") or "").replace(",", ""))
        except ValueError:
            continue
        if key:
            kernels.setdefault(row.get("ID") or "", {})[key] = value
    complete = [k for k in kernels.values() if len(k) == len(_METRICS)]
    if not complete:
        return None
    longest = max(complete, key=lambda k: k["duration"])
    return {key: longest[key] for key in ("l1_percent", "l2_percent")}


def main(path: str, kernel: str, features: int) -> None:
    """Load the sums and run ``kernel`` on them: twice to warm up, once under the profiler."""
    import cupy

    from gnnsample_lab.compute.aggregation import ladder
    from gnnsample_lab.compute.aggregation.csr import Csr

    with np.load(path) as stored:
        rows, sources = map(int, stored["sizes"])
        indptr, indices, weight = (cupy.asarray(stored[key]) for key in ("indptr", "indices", "weight"))
    csr = Csr(indptr, indices, rows, sources, int(indices.size))
    x, out = cupy.ones((sources, features), np.float32), cupy.empty((rows, features), np.float32)
    for turn in range(3):
        if turn == 2:
            cupy.cuda.runtime.deviceSynchronize()
            cupy.cuda.runtime.profilerStart()
        ladder.gather(kernel, csr, x, out, weight, False)
    cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
