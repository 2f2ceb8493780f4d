"""NextDoor's figure 8 and table 4 by Nsight Compute, which profiles a process of its own; figure 8 else by counting.

``python -m gnnsample_lab.bench.suites.nextdoor.profile FOLDER`` is what ``ncu`` runs, once a graph: FOLDER has the
graph, and for each application its roots and a list of runs.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
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
_TIMEOUT_S = 300
_MARK = "lab_mark_"
_INDEX_KERNELS = (
    "tile_sums", "scan_rows", "scan_tiles", "count_transits", "place_pairs", "count_runs", "vertex_sums",
    "number_transits", "expand_items", "digit_histogram", "partition", "frontier_edges", "range_table", "range_counts",
    "range_items", "range_place", "count_pairs", "number_classes",
)  # fmt: skip
"""Kernels that build the scheduling index (``index.cu``, ``radix.cu``, ``classes.cu``) or group by ranges."""


Profile = dict[str, dict[str, float]]
"""Of an application's runs, by ``parallelism/index``: ``reads`` and ``index_reads`` (sectors of 32 bytes that L1 asks
of L2), ``store_percent`` (weighed by sectors), ``sm_percent`` (active cycles of a multiprocessor over elapsed ones,
weighed by time), ``kernels``."""


def profile(
    studies: Sequence[runs.Study], wanted: Sequence[tuple[str, str]] = RUNS
) -> list[tuple[Profile | None, str]]:
    """Sums over all kernels of each application's runs on one graph, None where ncu cannot tell, with their origin."""

    def nothing(why: str) -> list[tuple[Profile | None, str]]:
        return [(None, why) for _ in studies]

    ncu = find_ncu()
    if ncu is None:
        return nothing("no ncu here")
    with tempfile.TemporaryDirectory() as folder:
        _store(studies, Path(folder), wanted)
        command = [
            ncu, "--csv", "--profile-from-start", "off", "--clock-control", "none", "--metrics", ",".join(METRICS),
            sys.executable, "-m", __spec__.name if __spec__ else __name__, folder,
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return nothing(f"ncu did not run ({type(error).__name__})")
    names = {f"{parallelism}/{index}" for parallelism, index in wanted}
    by_study = parse(done.stdout)
    words = (done.stdout + done.stderr).strip().splitlines()
    lost = f"ncu gave no numbers ({words[-1][:120] if words else 'no output'})"
    is_whole = [set(by_study.get(i, ())) == names for i in range(len(studies))]
    return [(by_study[i], "measured by ncu") if whole else (None, lost) for i, whole in enumerate(is_whole)]


def _store(studies: Sequence[runs.Study], folder: Path, wanted: Sequence[tuple[str, str]]) -> None:
    for name in ("indptr", "indices", "edge_weight"):
        np.save(folder / f"{name}.npy", getattr(studies[0].host, name))
    for i, study in enumerate(studies):
        np.save(folder / f"roots{i}.npy", study.roots)
    work = {"cases": [study.case for study in studies], "runs": [list(pair) for pair in wanted]}
    (folder / "work.json").write_text(json.dumps(work), encoding="utf-8")


def parse(text: str) -> dict[int, Profile]:
    """ncu's CSV, a line per kernel and metric, as sums by the application's number and by run.

    Runs begin with a kernel ``lab_mark_<number>__<parallelism>__<index>``.
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
    found: dict[int, dict[str, dict[str, float]]] = {}
    sums: dict[str, float] | None = None
    for _, kernel in sorted(kernels.items()):
        if _MARK in kernel["name"]:
            number_of, parallelism, index = kernel["name"].split(_MARK)[1].split("(")[0].split("__")
            sums = dict.fromkeys(
                ("reads", "index_reads", "stored", "stores", "active", "elapsed", "kernels"), 0.0
            )
            found.setdefault(int(number_of), {})[f"{parallelism.replace('_', '-')}/{index}"] = sums
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
    return {i: {key: _described(s) for key, s in runs.items() if s["kernels"]} for i, runs in found.items()}


def _described(sums: dict[str, float]) -> dict[str, float]:
    return {
        "reads": sums["reads"], "index_reads": sums["index_reads"], "kernels": sums["kernels"],
        "store_percent": sums["stores"] / sums["stored"] if sums["stored"] else float("nan"),
        "sm_percent": 100 * sums["active"] / sums["elapsed"] if sums["elapsed"] else float("nan"),
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


def _profiled(session: Session, name: str) -> list[tuple[runs.Study, Profile | None, str]]:
    """All applications on a graph, profiled once for both suites: at most :data:`_MOST` samples, :data:`_STEPS` steps
    of walks."""

    def make() -> Any:
        most = _MOST if not session.quick else _MOST // 8
        num_nodes = settings.graph(session, name).num_nodes
        studies = [
            runs.Study(
                session,
                name,
                case,
                partial(shortened, case),
                min(most, settings.CASES[case].samples(num_nodes)),
            )
            for case in (CASES if not session.quick else QUICK)
        ]
        found = []
        for study, (one, origin) in zip(studies, profile(studies), strict=True):
            if one is None and study.case in ("DeepWalk", "PPR", "k-hop"):
                one, origin = counted(study), f"counted: {origin}"
            session.say(f"{name}, {study.case}: {origin}")
            found.append((study, one, origin))
            study.free()
        return found

    return list(session.kept(("nextdoor profile", name), make))


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
        for study, found, origin in _profiled(session, name):
            if found is None:
                session.say(f"{name}, {study.case} is left out: {origin}")
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
        for study, found, origin in _profiled(session, name):
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
    """Run what ``work.json`` says: each run once to warm up, once under the profiler, a marking kernel before it."""
    import cupy

    from gnnsample_lab.graph import Graph
    from gnnsample_lab.sampling.engine.run import run_app

    where = Path(folder)
    work = json.loads((where / "work.json").read_text(encoding="utf-8"))
    arrays = {name: np.load(where / f"{name}.npy") for name in ("indptr", "indices", "edge_weight")}
    graph = Graph(**arrays, validate=False).to("cuda")
    out = cupy.zeros(1, np.int32)
    for i, case in enumerate(work["cases"]):
        app, roots = shortened(case), np.load(where / f"roots{i}.npy")
        for parallelism, index in work["runs"]:
            mark = f"{_MARK}{i}__{parallelism.replace('-', '_')}__{index}"
            marker = cupy.RawKernel(f'extern "C" __global__ void {mark}(int* out) {{ out[0] = 1; }}', mark)
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
