"""Cache hit rates of an aggregation kernel by Nsight Compute, which profiles a process of its own.

``python -m gnnsample_lab.bench.suites.fastgl.aggregation_profile FILE.npz KERNEL FEATURES`` is what ``ncu`` runs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.bench import profiler

_METRICS = {
    "l1tex__t_sector_hit_rate.pct": "l1_percent", "lts__t_sector_hit_rate.pct": "l2_percent",
    "gpu__time_duration.sum": "duration",
}  # fmt: skip


def cache_hits(sums: Any, kernel: str, features: int) -> dict[str, Any]:
    """``l1_percent`` and ``l2_percent`` of the longest kernel, None where ncu cannot tell, and ``hits_origin``."""
    if profiler.find_ncu() is None:
        return _none(profiler.NO_NCU)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sums.npz"
        np.savez(
            path, indptr=sums.csr.indptr.get(), indices=sums.csr.indices.get(), weight=sums.weight.get(),
            sizes=np.array([sums.csr.num_rows, sums.csr.num_sources]),
        )  # fmt: skip
        module = __spec__.name if __spec__ else __name__
        printed, why = profiler.run(module, [path, kernel, features], _METRICS)
    found = parse(printed)
    if found is None:
        return _none(why or profiler.no_numbers(printed))
    return {**found, "hits_origin": "measured by ncu"}


def _none(why: str) -> dict[str, Any]:
    return {"l1_percent": None, "l2_percent": None, "hits_origin": f"counted only: {why}"}


def parse(text: str) -> dict[str, float] | None:
    """Hit rates of the kernel that ran longest, from ncu's CSV; None without any."""
    complete = [
        launch
        for launch in profiler.launches(text, _METRICS)
        if all(key in launch for key in _METRICS.values())
    ]
    if not complete:
        return None
    longest = max(complete, key=lambda launch: launch["duration"])
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
