"""How busy a draw kernel keeps the multiprocessors and the memory, by Nsight Compute, which profiles its own process.

``python -m gnnsample_lab.bench.suites.pgsampler.utilisation FILE.npz`` is what ``ncu`` runs. It flushes the caches in
front of every kernel that it measures.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gnnsample_lab.bench.profiler import find_ncu

METRICS = {
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "compute_percent",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "memory_percent",
}
"""Nsight Compute's "Compute (SM) Throughput" and "Memory Throughput"."""
KERNEL = "draw_blocks_coo"
NO_NCU = "no ncu here"


def utilisation(
    graph: Any, frontiers: Sequence[Any], fanouts: Sequence[int], pick: str, threads: Sequence[int]
) -> tuple[list[dict[str, float | None]], str]:
    """``compute_percent`` and ``memory_percent`` of the peak for each hop's draw by ``block-bsp``, and their origin.

    Args:
        graph: on the GPU.
        frontiers: the vertices that each hop expands, global ids.
        fanouts: picks of each hop's vertices.
        pick: the pick rule.
        threads: threads of a block, one number a hop.

    Returns:
        One entry a hop, with None where ncu cannot tell; and ``"measured by ncu"`` or why not.
    """
    nothing: list[dict[str, float | None]] = [dict.fromkeys(METRICS.values()) for _ in frontiers]
    if find_ncu() is None:
        return nothing, NO_NCU
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hops.npz"
        rows = {f"rows{hop}": frontier.get() for hop, frontier in enumerate(frontiers)}
        np.savez(
            path, indptr=graph.indptr.get(), indices=graph.indices.get(), fanouts=list(fanouts), pick=pick,
            threads=list(threads), **rows,
        )  # fmt: skip
        text, why = profiled(__spec__.name if __spec__ else __name__, path, METRICS)
    found = parse(text)
    if len(found) != len(nothing):
        return nothing, why or "ncu gave no numbers"
    return [{**none, **of} for none, of in zip(nothing, found, strict=True)], "measured by ncu"


def profiled(
    module: str, path: Path, metrics: Iterable[str], kernels: Sequence[str] = ()
) -> tuple[str, str]:  # fmt: skip
    """ncu's CSV of what ``module``, given the file, launches between ``profilerStart`` and ``Stop``; or why none."""
    ncu = find_ncu()
    if ncu is None:
        return "", NO_NCU
    command = [
        ncu, "--csv", "--print-units", "base", "--profile-from-start", "off", "--clock-control", "none",
        "--metrics", ",".join(metrics), sys.executable, "-m", module, str(path),
    ]  # fmt: skip
    if kernels:  # each takes several passes: the others are left alone
        command[1:1] = ["--kernel-name-base", "function", "--kernel-name", f"regex:^({'|'.join(kernels)})$"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return "", f"ncu did not run ({type(error).__name__})"
    if '"Metric Name"' not in done.stdout:
        words = (done.stdout + done.stderr).strip().splitlines()
        return "", f"ncu gave no numbers ({words[-1][:120] if words else 'no output'})"
    return done.stdout, ""


def parse(text: str) -> list[dict[str, float]]:
    """ncu's CSV, a line per kernel and metric, as one entry for each draw kernel, in the order of their launches."""
    return [
        {key: value for key, value in launch.items() if key != "kernel"}
        for launch in launches(text, (KERNEL,), METRICS)
    ]


def launches(text: str, kernels: Sequence[str], metrics: Mapping[str, str]) -> list[dict[str, Any]]:
    """The launches of ``kernels`` in their order: ``kernel``, the name that it begins with, and what was measured.

    Args:
        metrics: ncu's names -> keys of an entry.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if '"Metric Name"' in line), None)
    if start is None:
        return []
    found: dict[str, dict[str, Any]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        name = (row.get("Kernel Name") or "").partition("(")[0]
        key = metrics.get(row.get("Metric Name") or "")
        try:
            value = float((row.get("Metric Value") or "").replace(",", ""))
        except ValueError:
            continue
        if key and name in kernels:
            found.setdefault(row.get("ID") or "", {"kernel": name})[key] = value
    return list(found.values())


def main(path: str) -> None:
    """Draw every hop once to warm up, then once under the profiler."""
    import cupy

    from gnnsample_lab.minibatch.gpu.per_hop import PerHopSampler
    from gnnsample_lab.sampling.neighbors.launch import Knobs, Launcher
    from gnnsample_lab.sampling.neighbors.spec import make_spec

    with np.load(path) as stored:
        indptr, indices = cupy.asarray(stored["indptr"]), cupy.asarray(stored["indices"])
        fanouts, threads, pick = stored["fanouts"].tolist(), stored["threads"].tolist(), str(stored["pick"])
        rows = [cupy.asarray(stored[f"rows{hop}"]) for hop in range(len(fanouts))]
    most = int((indptr[1:] - indptr[:-1]).max())
    graph = SimpleNamespace(
        indptr=indptr, indices=indices, num_nodes=int(indptr.size) - 1, max_in_degree=most
    )
    spec = make_spec(fanouts, pick, False, False, "frontier", 0)
    knobs = Knobs()
    sampler = PerHopSampler(graph, spec, None, Launcher(graph, spec, "block-bsp", False, knobs))
    hops = [sampler.prepare(of, hop) for hop, of in enumerate(rows)]
    most = max(1, max(hop.total for hop in hops))
    out = (cupy.empty(most, np.int32), cupy.empty(most, indices.dtype), cupy.empty(most, np.int64))
    coo_rows = cupy.empty(most, indices.dtype)
    for profiled in (False, True):
        cupy.cuda.runtime.deviceSynchronize()
        if profiled:
            cupy.cuda.runtime.profilerStart()
        for hop, work in enumerate(hops):
            knobs.block_threads = threads[hop]
            sampler.launch_draw(work, hop, 0, out, coo_rows=coo_rows)
    cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStop()


if __name__ == "__main__":
    main(sys.argv[1])
