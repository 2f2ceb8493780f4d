"""How busy a draw kernel keeps the multiprocessors and the memory, by Nsight Compute, which profiles its own process.

``python -m gnnsample_lab.bench.suites.pgsampler.utilisation FILE.npz`` is what ``ncu`` runs. It flushes the caches in
front of every kernel that it measures.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gnnsample_lab.bench import profiler

METRICS = {
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "compute_percent",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "memory_percent",
}
"""Nsight Compute's "Compute (SM) Throughput" and "Memory Throughput"."""
KERNEL = "draw_blocks_coo"


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
    if profiler.find_ncu() is None:
        return nothing, profiler.NO_NCU
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hops.npz"
        rows = {f"rows{hop}": frontier.get() for hop, frontier in enumerate(frontiers)}
        np.savez(
            path, indptr=graph.indptr.get(), indices=graph.indices.get(), fanouts=list(fanouts), pick=pick,
            threads=list(threads), **rows,
        )  # fmt: skip
        text, why = profiler.run(__spec__.name if __spec__ else __name__, [path], METRICS)
    found = parse(text)
    if len(found) != len(nothing):
        return nothing, why or "ncu gave no numbers"
    return [{**none, **of} for none, of in zip(nothing, found, strict=True)], "measured by ncu"


def parse(text: str) -> list[dict[str, float]]:
    """ncu's CSV, as one entry for each draw kernel, in the order of their launches."""
    return [
        {key: value for key, value in launch.items() if key != "kernel"}
        for launch in profiler.launches(text, METRICS, [KERNEL])
    ]


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
