"""NextDoor's figure 8 and table 4 by Nsight Compute, which profiles a process of its own; figure 8 else by counting.

``python -m gnnsample_lab.bench.suites.nextdoor.profile FOLDER`` is what ``ncu`` runs, once a graph: FOLDER has the
graph, and for each application its roots and a list of runs. A graph has :data:`GRAPH_S` seconds: what was profiled in
them counts, what was not is named.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.bench import profiler
from gnnsample_lab.bench.session import Session
from gnnsample_lab.sampling.engine.language.app import SamplingApp

from . import cases as settings
from . import runs
from .by_graph import MEASURED, profiled

READS = "lts__t_sectors_srcunit_tex_op_read.sum"
STORES = "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct"
STORED = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
ACTIVE = "sm__cycles_active.avg"
ELAPSED = "sm__cycles_elapsed.max"
METRICS = (READS, STORES, STORED, ACTIVE, ELAPSED)
CASES = ("DeepWalk", "PPR", "node2vec", "k-hop", "Layer")
QUICK = ("DeepWalk", "k-hop")
BASE = "sample/auto"
RUNS = (("sample", "auto"), ("transit", "published"), ("transit", "auto"))
"""Of every application, the paper's comparison first: time may be up before the last."""
_STEPS = 5
"""Steps of a walk under the profiler, which replays every kernel for every few counters: as published, a step has
about nine."""
_MOST = 1 << 20
"""Most samples; fewer would share fewer transits, and be another ratio."""
_SAMPLES = {"Layer": 1024}
"""Fewer of those whose combined neighbourhoods the profiler would copy away before every replay."""
GRAPH_S = 300.0
"""Seconds that the profiler has for a graph, its loading and compiling of functions included."""
_GRACE_S = 30.0
"""What a run that began in time may take longer, and what ncu may take to print."""
_MARK, _END = "lab_mark_", "lab_end_mark"
_LATE = "gnnsample_lab: the time of this graph is up"
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
    studies: Sequence[runs.Study], wanted: Sequence[tuple[str, str]] = RUNS, seconds: float = GRAPH_S
) -> list[tuple[Profile, str]]:
    """Sums over all kernels of each application's runs on one graph.

    Args:
        studies: of one graph.
        wanted: parallelism and index of each run.
        seconds: after so many no run begins.

    Returns:
        For each study the runs that ended in time, and why others are missing; empty where none is.
    """
    ncu = profiler.find_ncu()
    if ncu is None:
        return [({}, profiler.NO_NCU) for _ in studies]
    with tempfile.TemporaryDirectory() as folder, profiler.turn():
        _store(studies, Path(folder), wanted, time.time() + seconds)
        line = profiler.command(ncu, __spec__.name if __spec__ else __name__, [folder], METRICS)
        try:
            printed, said, late = _printed(line, Path(folder), seconds)
        except OSError as error:
            return [({}, profiler.did_not_run(error)) for _ in studies]
    by_study = parse(printed)
    lost = profiler.no_numbers(printed + said)
    if late or _LATE in printed + said:
        lost = f"not profiled within the {seconds:g} s of a graph"
    names = {f"{parallelism}/{index}" for parallelism, index in wanted}
    return [
        (by_study.get(i, {}), "" if set(by_study.get(i, ())) == names else lost) for i in range(len(studies))
    ]


def _printed(command: Sequence[str], folder: Path, seconds: float) -> tuple[str, str, bool]:
    """What a profiler wrote to stdout and stderr, and whether it had to be stopped.

    It prints when the profiled process has ended: where that takes too long it is ended, and the profiler, which goes
    on with what it has, only where it does not end by itself then.
    """
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **options) as running:
        try:
            return *running.communicate(timeout=seconds + _GRACE_S), False
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((folder / "pid").read_text(encoding="utf-8")), signal.SIGTERM)
        except BaseException:
            _kill(running)
            raise
        try:
            return *running.communicate(timeout=_GRACE_S), True
        except subprocess.TimeoutExpired:
            _kill(running)
            return *running.communicate(), True


def _kill(running: Any) -> None:
    """End a process and all that it has started."""
    with contextlib.suppress(OSError):
        os.killpg(running.pid, signal.SIGKILL)


def _store(
    studies: Sequence[runs.Study], folder: Path, wanted: Sequence[tuple[str, str]], until: float
) -> None:
    for name in ("indptr", "indices", "edge_weight"):
        np.save(folder / f"{name}.npy", getattr(studies[0].host, name))
    for i, study in enumerate(studies):
        np.save(folder / f"roots{i}.npy", study.roots)
    work = {
        "cases": [study.case for study in studies],
        "runs": [list(pair) for pair in wanted],
        "until": until,
    }
    (folder / "work.json").write_text(json.dumps(work), encoding="utf-8")


def parse(text: str) -> dict[int, Profile]:
    """ncu's CSV, a line per kernel and metric, as sums by the application's number and by run.

    Runs begin with a kernel ``lab_mark_<number>__<parallelism>__<index>`` and end with ``lab_end_mark``; one without
    the latter was cut off, and is left out.
    """
    found: dict[int, dict[str, dict[str, float]]] = {}
    sums: dict[str, float] | None = None
    run: tuple[int, str] = 0, ""
    for launch in profiler.launches(text, METRICS):
        if _MARK in launch["kernel"]:
            number_of, parallelism, index = launch["kernel"].split(_MARK)[1].split("__")
            sums = dict.fromkeys(
                ("reads", "index_reads", "stored", "stores", "active", "elapsed", "kernels"), 0.0
            )
            run = int(number_of), f"{parallelism.replace('_', '-')}/{index}"
            continue
        if _END in launch["kernel"]:
            if sums is not None:
                found.setdefault(run[0], {})[run[1]] = sums
            sums = None
            continue
        if sums is None or not all(metric in launch for metric in METRICS):
            continue
        sums["reads"] += launch[READS]
        if launch["kernel"] in _INDEX_KERNELS:
            sums["index_reads"] += launch[READS]
        sums["stored"] += launch[STORED]
        sums["stores"] += launch[STORED] * launch[STORES]
        sums["active"] += launch[ACTIVE]
        sums["elapsed"] += launch[ELAPSED]
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


@dataclass
class Profiled:
    """An application on a graph: its runs, where they are from, and why others are missing."""

    study: runs.Study
    found: Profile
    origin: str
    lost: str

    def row(self) -> dict[str, Any]:
        """As the study's: ncu empties the caches before each kernel, and what is counted knows none."""
        return self.study.row() | {"l2": "cold" if self.origin == MEASURED else None}


def _profiled(session: Session, name: str) -> list[Profiled]:
    """All applications on a graph, profiled once for both suites."""

    def make() -> Any:
        most = _MOST if not session.quick else _MOST // 8
        num_nodes = settings.graph(session, name).num_nodes
        studies = [
            runs.Study(
                session,
                name,
                case,
                partial(shortened, case),
                min(_SAMPLES.get(case, most), settings.CASES[case].samples(num_nodes)),
            )
            for case in (CASES if not session.quick else QUICK)
        ]
        done = []
        for study, (found, lost) in zip(studies, profile(studies), strict=True):
            origin = MEASURED
            # Without its base, or with nothing to compare with it, a run says nothing.
            if not (BASE in found and len(found) > 1):
                found = {}
                if study.case in ("DeepWalk", "PPR", "k-hop"):
                    found, origin = counted(study), f"counted: {lost}"
            session.say(f"{name}, {study.case}: {origin if found else lost}")
            done.append(Profiled(study, found, origin, lost))
            study.free()
        return done

    return list(session.kept(("nextdoor profile", name), make))


def graphs(session: Session) -> tuple[str, ...]:
    """The graphs, each profiled and saved by itself."""
    return session.chosen or (settings.QUICK_GRAPHS if session.quick else settings.GRAPHS)


def _record(
    session: Session, wanted: Sequence[str], rows: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    """The body of a suite's record, and what was left away for the profiler."""
    most = _MOST if not session.quick else _MOST // 8
    few = "; ".join(f"{case} at most {count:,}" for case, count in _SAMPLES.items())
    return runs.record(
        session, wanted, rows, {"profiled_runs": profiled(rows)},
        reduced=f"at most {most:,} samples, {few}; walks of {_STEPS} steps", graph_seconds=GRAPH_S,
        l2="cold: ncu empties the caches before each kernel", **more,
    )  # fmt: skip


def shortened(case: str) -> Any:
    """The application, its walks cut to :data:`_STEPS` steps."""
    app = settings.CASES[case].make()
    if case in ("DeepWalk", "node2vec", "PPR"):
        app.steps = lambda: _STEPS
    return app


def figure8(session: Session) -> dict[str, Any]:
    """L2 read transactions of transit-parallel relative to sample-parallel."""
    wanted, rows = settings.names(session), []
    for one in (one for name in wanted for one in _profiled(session, name)):
        if not one.found:
            session.say(f"{one.study.name}, {one.study.case} is left out: {one.lost}")
            continue
        base = one.found[BASE]["reads"]
        for index in ("published", "auto"):
            ours = one.found.get(f"transit/{index}")
            if ours is not None:
                rows.append({
                    **one.row(), "index": index, "origin": one.origin, "sample_msectors": base / 1e6,
                    "transit_msectors": ours["reads"] / 1e6, "ratio": ours["reads"] / base if base else None,
                    "index_share": ours["index_reads"] / ours["reads"] if ours["reads"] else None,
                })  # fmt: skip
            else:
                session.say(
                    f"{one.study.name}, {one.study.case}, index {index} is left out: {one.lost or one.origin}"
                )
    return _record(
        session, wanted, rows, sectors=f"32 bytes, L1 asking L2 for reads ({READS}), all kernels of a run"
    )


def table4(session: Session) -> dict[str, Any]:
    """Store efficiency and SM activity of transit-parallel runs."""
    wanted, rows = settings.names(session), []
    for one in (one for name in wanted for one in _profiled(session, name)):
        for index in ("published", "auto"):
            ours = one.found.get(f"transit/{index}", {})
            # What was counted has no such numbers: why they are missing stands in their place.
            origin = one.origin if ours or one.origin != MEASURED else one.lost
            rows.append({
                **one.row(), "index": index, "origin": origin, "store_percent": ours.get("store_percent"),
                "sm_percent": ours.get("sm_percent"), "kernels": ours.get("kernels"),
            })  # fmt: skip
    return _record(
        session, wanted, rows, store_percent=f"{STORES}, weighed by sectors stored",
        sm_percent=f"{ACTIVE} over {ELAPSED}, sums over kernels",
    )  # fmt: skip


def in_time(work: dict[str, Any]) -> Iterator[tuple[int, str, str, str]]:
    """The runs of ``work.json``, number and name of the application, parallelism and index, until its time is up.

    Then a line says so, and what has run is printed by the profiler.
    """
    for i, case in enumerate(work["cases"]):
        for parallelism, index in work["runs"]:
            if time.time() >= work["until"]:
                print(_LATE, flush=True)
                return
            yield i, case, parallelism, index


def main(folder: str) -> None:
    """Run what ``work.json`` says: each run once to warm up, once under the profiler, between two marking kernels."""
    import cupy

    from gnnsample_lab.graph import Graph
    from gnnsample_lab.sampling.engine.run import run_app

    where = Path(folder)
    (where / "pid").write_text(str(os.getpid()), encoding="utf-8")
    work = json.loads((where / "work.json").read_text(encoding="utf-8"))
    arrays = {name: np.load(where / f"{name}.npy") for name in ("indptr", "indices", "edge_weight")}
    graph = Graph(**arrays, validate=False).to("cuda")
    out = cupy.zeros(1, np.int32)

    def marking(name: str) -> Any:
        return cupy.RawKernel(f'extern "C" __global__ void {name}(int* out) {{ out[0] = 1; }}', name)

    end = marking(_END)
    end((1,), (1,), (out,))
    for i, case, parallelism, index in in_time(work):
        app, roots = shortened(case), np.load(where / f"roots{i}.npy")
        marker = marking(f"{_MARK}{i}__{parallelism.replace('-', '_')}__{index}")
        marker((1,), (1,), (out,))
        run_app(graph, app, roots, parallelism, "cuda", index=index)
        cupy.cuda.runtime.deviceSynchronize()
        cupy.cuda.runtime.profilerStart()
        marker((1,), (1,), (out,))
        run_app(graph, app, roots, parallelism, "cuda", index=index)
        end((1,), (1,), (out,))
        cupy.cuda.runtime.deviceSynchronize()
        cupy.cuda.runtime.profilerStop()


if __name__ == "__main__":
    main(sys.argv[1])
