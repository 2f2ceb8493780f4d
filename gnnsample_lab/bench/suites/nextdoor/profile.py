"""NextDoor's figure 8 and table 4 by Nsight Compute, which profiles a process of its own; figure 8 else by counting.

``python -m gnnsample_lab.bench.suites.nextdoor.profile FOLDER`` is what ``ncu`` runs: FOLDER has a
graph and a list of runs.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites.fastgl.aggregation_profile import find_ncu
from gnnsample_lab.sampling.engine.language.app import SamplingApp

from . import cases as settings
from . import runs

READS = "lts__t_sectors_srcunit_tex_op_read.sum"
STORES = "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct"
STORED = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
ACTIVE = "sm__cycles_active.avg"
ELAPSED = "sm__cycles_elapsed.max"
METRICS = (READS, STORES, STORED, ACTIVE, ELAPSED)
CASES = ("DeepWalk", "PPR", "node2vec", "k-hop", "Layer")
QUICK = ("DeepWalk", "k-hop")
RUNS = (("sample", "auto"), ("transit", "auto"), ("transit", "published"))
_STEPS = 10
"""Steps of a walk under the profiler, which replays every kernel."""
_MOST = 1 << 20
_TIMEOUT_S = 240
_MARK = "lab_mark_"
_INDEX_KERNELS = (
    "tile_sums", "scan_rows", "scan_tiles", "count_transits", "place_pairs", "count_runs", "vertex_sums",
    "number_transits", "expand_items", "digit_histogram", "partition", "frontier_edges", "range_table", "range_counts",
    "range_items", "range_place", "count_pairs", "number_classes",
)  # fmt: skip
"""Kernels that build the scheduling index (``index.cu``, ``radix.cu``, ``classes.cu``) or group by ranges."""


def profile(
    study: runs.Study, wanted: Sequence[tuple[str, str]] = RUNS
) -> tuple[dict[str, dict[str, float]] | None, str]:
    """Sums over all kernels of each run, by ``parallelism/index``, and their origin; None where ncu cannot tell.

    Returns:
        ``reads`` and ``index_reads`` (sectors of 32 bytes that L1 asks of L2), ``store_percent`` (weighed by sectors),
        ``sm_percent`` (active cycles of a multiprocessor over elapsed ones, weighed by time), ``kernels``.
    """
    ncu = find_ncu()
    if ncu is None:
        return None, "no ncu here"
    with tempfile.TemporaryDirectory() as folder:
        _store(study, Path(folder), wanted)
        command = [
            ncu, "--csv", "--profile-from-start", "off", "--clock-control", "none", "--metrics", ",".join(METRICS),
            sys.executable, "-m", __spec__.name if __spec__ else __name__, folder,
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return None, f"ncu did not run ({type(error).__name__})"
    found = parse(done.stdout)
    if set(found) != {f"{parallelism}/{index}" for parallelism, index in wanted}:
        words = (done.stdout + done.stderr).strip().splitlines()
        return None, f"ncu gave no numbers ({words[-1][:120] if words else 'no output'})"
    return found, "measured by ncu"


def _store(study: runs.Study, folder: Path, wanted: Sequence[tuple[str, str]]) -> None:
    for name in ("indptr", "indices", "edge_weight"):
        np.save(folder / f"{name}.npy", getattr(study.host, name))
    np.save(folder / "roots.npy", study.roots)
    work = {"case": study.case, "runs": [list(pair) for pair in wanted], "steps": _STEPS}
    (folder / "work.json").write_text(json.dumps(work), encoding="utf-8")


def parse(text: str) -> dict[str, dict[str, float]]:
    """ncu's CSV, a line per kernel and metric, as sums by run.

    Runs begin with a kernel ``lab_mark_<parallelism>__<index>``.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if '"Metric Name"' in line), None)
    if start is None:
        return {}
    kernels: dict[int, dict[str, Any]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        try:
            number, value = int(row["ID"]), float((row.get("Metric Value") or "").replace(",", ""))
        except (KeyError, TypeError, ValueError):
            continue
        kernels.setdefault(number, {"name": row.get("Kernel Name") or ""})[row.get("Metric Name") or ""] = (
            value
        )
    found: dict[str, dict[str, float]] = {}
    sums: dict[str, float] | None = None
    for _, kernel in sorted(kernels.items()):
        if _MARK in kernel["name"]:
            parallelism, _, index = kernel["name"].split(_MARK)[1].split("(")[0].partition("__")
            sums = dict.fromkeys(
                ("reads", "index_reads", "stored", "stores", "active", "elapsed", "kernels"), 0.0
            )
            found[f"{parallelism.replace('_', '-')}/{index}"] = sums
            continue
        if sums is None or not all(metric in kernel for metric in METRICS):
            continue
        sums["reads"] += kernel[READS]
        if kernel["name"].partition("(")[0] in _INDEX_KERNELS:
            sums["index_reads"] += kernel[READS]
        sums["stored"] += kernel[STORED]
        sums["stores"] += kernel[STORED] * kernel[STORES]
        sums["active"] += kernel[ACTIVE]
        sums["elapsed"] += kernel[ELAPSED]
        sums["kernels"] += 1
    return {
        key: {
            "reads": s["reads"], "index_reads": s["index_reads"], "kernels": s["kernels"],
            "store_percent": s["stores"] / s["stored"] if s["stored"] else float("nan"),
            "sm_percent": 100 * s["active"] / s["elapsed"] if s["elapsed"] else float("nan"),
        }
        for key, s in found.items() if s["kernels"]
    }  # fmt: skip


# ---- counting ---------------------------------------------------------------------------------------------------


def counted(study: runs.Study) -> dict[str, dict[str, float]]:
    """Sectors that the draws of one run ask for, by parallelism, from the samples alone; for individual applications.

    A sector is 32 bytes. Sample-parallel: every warp of 32 neighbouring slots asks for the distinct sectors of its
    transits' list bounds and of the entries that it drew. Transit-parallel: every transit's bounds once and of its list
    the sectors drawn from, once per 1024 draws, and for the index 3 x 8 bytes for each pair of sample and transit (keys
    and pairs, read and written by two counting passes). Nothing else counts: no weights, no search of node2vec's.
    """
    result = study.ready("sample")().to_cpu()
    if study.app.is_collective or type(study.app).step_transits is not SamplingApp.step_transits:
        raise ValueError(
            f"{study.case} draws from no list, or chooses its transits by draws; nothing to count"
        )
    totals = {"sample": 0.0, "transit": 0.0, "index": 0.0}
    for step, drawn in enumerate(result.steps[: _STEPS if CASES.index(study.case) < 3 else None]):
        size = result.shape[step].size
        transits = np.repeat(result.transits(step), size, axis=1).reshape(-1).astype(np.int64)
        picked = drawn.reshape(-1).astype(np.int64)
        at = _positions(study.host, transits, picked)
        live = (picked >= 0) & (at >= 0)
        slots = np.flatnonzero(live)
        bounds, entries = transits[live] * 8 // 32, at[live] * study.host.indices.dtype.itemsize // 32
        totals["sample"] += _distinct(slots // 32, bounds) + _distinct(slots // 32, entries)
        order = np.argsort(transits[live], kind="stable")
        owner = transits[live][order]
        rank = np.arange(owner.size) - np.searchsorted(owner, owner)
        group = owner * (int(rank.max(initial=0)) // 1024 + 1) + rank // 1024
        totals["transit"] += np.unique(owner).size + _distinct(group, entries[order])
        totals["index"] += 3 * 8 * (transits.size // size) / 32
    return {
        "sample/auto": {"reads": totals["sample"], "index_reads": 0.0},
        "transit/published": {"reads": totals["transit"] + totals["index"], "index_reads": totals["index"]},
    }


def _distinct(group: np.ndarray, sector: np.ndarray) -> int:
    """Different (group, sector) pairs."""
    if not group.size:
        return 0
    order = np.lexsort((sector, group))
    a, b = group[order], sector[order]
    return 1 + int(((a[1:] != a[:-1]) | (b[1:] != b[:-1])).sum())


def _positions(graph: Any, transits: np.ndarray, picked: np.ndarray) -> np.ndarray:
    from gnnsample_lab.sampling.engine.results.links import locate

    found = np.full(picked.size, -1, np.int64)
    live = (picked >= 0) & (transits >= 0)
    kind = graph.indices.dtype
    found[live] = locate(graph, transits[live].astype(kind), picked[live].astype(kind))
    return found


# ---- suites -----------------------------------------------------------------------------------------------------


def _profiled(
    session: Session, name: str, case: str
) -> tuple[runs.Study, dict[str, dict[str, float]] | None, str]:
    """Profiled once for both suites, at most :data:`_MOST` samples, :data:`_STEPS` steps of walks."""

    def make() -> Any:
        limit = min(
            _MOST if not session.quick else _MOST // 8,
            settings.CASES[case].samples(settings.graph(session, name).num_nodes),
        )
        study = runs.Study(session, name, case, lambda: shortened(case), limit)
        found, origin = profile(study)
        if found is None and case in ("DeepWalk", "PPR", "k-hop"):
            found, origin = counted(study), f"counted: {origin}"
        session.say(f"{name}, {case}: {origin}")
        study.free()
        return study, found, origin

    return session.kept(("nextdoor profile", name, case), make)


def shortened(case: str) -> Any:
    """The application, its walks cut to :data:`_STEPS` steps."""
    app = settings.CASES[case].make()
    if case in ("DeepWalk", "node2vec", "PPR"):
        app.steps = lambda: _STEPS
    return app


def figure8(session: Session) -> dict[str, Any]:
    """L2 read transactions of transit-parallel relative to sample-parallel."""
    wanted, rows = settings.names(session), []
    for name in wanted:
        for case in CASES if not session.quick else QUICK:
            study, found, origin = _profiled(session, name, case)
            if found is None:
                session.say(f"{name}, {case} is left out: {origin}")
                continue
            base = found["sample/auto"]["reads"]
            for index in ("published", "auto"):
                ours = found.get(f"transit/{index}")
                if ours is not None:
                    rows.append({
                        **study.row(), "index": index, "origin": origin, "sample_msectors": base / 1e6,
                        "transit_msectors": ours["reads"] / 1e6, "ratio": ours["reads"] / base if base else None,
                        "index_share": ours["index_reads"] / ours["reads"] if ours["reads"] else None,
                    })  # fmt: skip
    return runs.record(
        session, wanted, rows, {"profiled_runs": len(rows)},
        sectors=f"32 bytes, L1 asking L2 for reads ({READS}), all kernels of a run; walks of {_STEPS} steps",
    )  # fmt: skip


def table4(session: Session) -> dict[str, Any]:
    """Store efficiency and SM activity of transit-parallel runs."""
    wanted, rows = settings.names(session), []
    for name in wanted:
        for case in CASES if not session.quick else QUICK:
            study, found, origin = _profiled(session, name, case)
            for index in ("published", "auto"):
                ours = (found or {}).get(f"transit/{index}", {})
                rows.append({
                    **study.row(), "index": index, "origin": origin, "store_percent": ours.get("store_percent"),
                    "sm_percent": ours.get("sm_percent"), "kernels": ours.get("kernels"),
                })  # fmt: skip
    return runs.record(
        session, wanted, rows, {"profiled_runs": sum(row["sm_percent"] is not None for row in rows)},
        store_percent=f"{STORES}, weighed by sectors stored", sm_percent=f"{ACTIVE} over {ELAPSED}, sums over kernels",
        walks=f"{_STEPS} steps",
    )  # fmt: skip


def main(folder: str) -> None:
    """Run what ``work.json`` says: each once to warm up, once under the profiler, a marking kernel before it."""
    import cupy

    from gnnsample_lab.graph import Graph
    from gnnsample_lab.sampling.engine.run import run_app

    where = Path(folder)
    work = json.loads((where / "work.json").read_text(encoding="utf-8"))
    arrays = {name: np.load(where / f"{name}.npy") for name in ("indptr", "indices", "edge_weight", "roots")}
    roots = arrays.pop("roots")
    graph = Graph(**arrays, validate=False).to("cuda")
    app = shortened(work["case"])
    for parallelism, index in work["runs"]:
        mark = f"{_MARK}{parallelism.replace('-', '_')}__{index}"
        marker = cupy.RawKernel(f'extern "C" __global__ void {mark}(int* out) {{ out[0] = 1; }}', mark)
        out = cupy.zeros(1, np.int32)
        marker((1,), (1,), (out,))
        run_app(graph, app, roots, parallelism, "cuda", index=index)
        cupy.cuda.runtime.deviceSynchronize()
        cupy.cuda.runtime.profilerStart()
        marker((1,), (1,), (out,))
        run_app(graph, app, roots, parallelism, "cuda", index=index)
        cupy.cuda.runtime.deviceSynchronize()
        cupy.cuda.runtime.profilerStop()


if __name__ == "__main__":
    main(sys.argv[1])
