"""Kernels compiled before they are timed: in parallel processes, into CuPy's disk cache."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Collection, Mapping
from concurrent.futures import ProcessPoolExecutor

from gnnsample_lab.device import kernels
from gnnsample_lab.device.host import usable_cores

_Job = tuple[str, tuple[tuple[str, str], ...]]
"""A source's path in the package, and its macros."""

_ANY_KERNEL = {
    "sampling/neighbors/hops/hop.cu": "hop",
    "sampling/neighbors/hops/grid_barrier.cu": "grid_barrier",
    "sampling/neighbors/hops/per_hop.cu": "draw_blocks",
    "sampling/neighbors/queue/block.cu": "persistent",
    "sampling/neighbors/queue/team.cu": "serve_teams",
    "sampling/neighbors/queue/tile.cu": "persistent_tile",
    "minibatch/gpu/finish.cu": "emit",
    "minibatch/id_map/insert_count_compact.cu": "insert",
    "bench/floors/floor.cu": "replay",
    "bench/floors/floor_hops.cu": "replay_hops",
}
"""Source -> one of its kernels: CuPy compiles a module when a kernel of it is asked for."""


def _compile(job: _Job) -> None:
    path, macros = job
    kernels.load_module(path, dict(macros)).get_function(_ANY_KERNEL[path]).kernel  # noqa: B018


def _job(path: str, macros: Mapping[str, str]) -> _Job:
    return path, tuple(sorted(macros.items()))


def _compile_all(jobs: Collection[_Job]) -> int:
    workers = max(1, min(16, usable_cores(), len(jobs)))
    # Spawned processes leave Ctrl-C to this one: each of them would print a traceback.
    with ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_IGN)
    ) as pool:
        list(pool.map(_compile, sorted(jobs), chunksize=4 if len(jobs) > 8 * workers else 1))
    return len(jobs)


def compile_ahead() -> int:
    """Compile the kernels that most suites use; returns how many modules there were."""
    jobs = set()
    for rule in ("0", "1"):
        for trace, buckets in (("0", ("8", "16", "32")), ("1", ("8", "16"))):
            drawn = {"ID_T": "int", "RULE": rule, "TRACE": trace}
            base = {**drawn, "TABLE_KIND": "0"}
            sources = ["hops/hop.cu", "hops/grid_barrier.cu"] + (["queue/tile.cu"] if rule == "0" else [])
            for source in sources:
                jobs |= {_job(f"sampling/neighbors/{source}", {**base, "KMAX": kmax}) for kmax in buckets}
            teams = ("2", "4", "8") if rule == "0" else ("1", "2", "4", "8")
            jobs |= {
                _job("sampling/neighbors/queue/team.cu", {**base, "KMAX": kmax, "TEAM": team})
                for kmax in buckets
                for team in teams
            }
            jobs.add(_job("sampling/neighbors/queue/block.cu", base))
            jobs.add(_job("sampling/neighbors/hops/per_hop.cu", drawn))
    jobs.add(_job("minibatch/gpu/finish.cu", {"ID_T": "int", "TABLE_KIND": "0"}))
    jobs.add(_job("minibatch/id_map/insert_count_compact.cu", {"ID_T": "int"}))
    jobs |= {
        _job(f"bench/floors/{source}", {"ID_T": "int", "UNROLL": unroll})
        for unroll in ("1", "2", "4", "8")
        for source in ("floor.cu", "floor_hops.cu")
    }
    return _compile_all(jobs)


def compile_variants() -> int:
    """Compile every variant of the sampling kernels without a trace, 32-bit ids; returns how many there were."""
    jobs = set()
    for variant in kernels.all_variants():
        macros = dict(variant.macros)
        path = variant.path.relative_to(kernels.PACKAGE_ROOT).as_posix()
        sampling = path in _ANY_KERNEL and not path.startswith("bench/")
        if not sampling or macros.get("ID_T") == "long" or macros.get("TRACE") == "1":
            continue
        jobs.add((path, variant.macros))
        if variant.path.name != "finish.cu":
            jobs.add((path, tuple(pair for pair in variant.macros if pair[0] != "KMAX")))
    return _compile_all(jobs)
