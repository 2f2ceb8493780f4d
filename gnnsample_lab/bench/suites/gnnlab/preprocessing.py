"""What happens before the first epoch: GNNLab's table 6, and how long METIS would take."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.session import Session
from gnnsample_lab.device.arrays import array_module
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.features.ranking.hotness import hotness
from gnnsample_lab.graph import roots
from gnnsample_lab.systems.features import host_features, topology_bytes
from gnnsample_lab.systems.table import find
from gnnsample_lab.systems.train import make_sampler

from . import runs
from .extraction import MODELS
from .runs import Task

DISK_BYTES = 512 << 20
"""Read from the disk at most; what is larger is counted at the same rate."""
QUICK_METIS_EDGES = 12_000_000
"""METIS partitions a few million edges a second: in a quick run larger graphs would take longer than all the rest."""
MODEL = "gcn"
COLD = 1.5
"""A first pass over a file that takes less than this times a second one has found its pages in memory."""
_CHUNK = 16 << 20


def table6(session: Session) -> dict[str, Any]:
    """Seconds from the disk to a filled cache, and of METIS in a column of its own."""
    runs.verify(session)
    names, rows = runs.graphs(session), list[dict[str, Any]]()
    small = () if session.chosen or common.device() == "cpu" else ("arxiv-like",)
    for name in (*names, *small):  # the small one is for METIS
        found, size = runs.loaded(session, name), runs.batch_size(session, name)
        _, ratio = runs.ratios(session, name, MODEL)
        gbps = disk_gbps(found)
        topology, num_bytes = topology_bytes(found), topology_bytes(found) + int(found.feat.nbytes)
        placed = runs.placed(session, name)
        sampler = make_sampler(placed, MODEL, find("gnnlab"), MODELS[MODEL][1], common.device(), 0, False)
        seeds, table = common.train_seeds(found), host_features(placed)

        def presample(sampler: Any = sampler, seeds: Any = seeds, size: int = size) -> Any:
            return hotness(sampler.graph, "presample", sampler=sampler, seeds=seeds, batch_size=size)

        order = presample()

        def fill(table: Any = table, order: Any = order, ratio: float = ratio) -> Any:
            return FeatureCache(table, order, ratio=ratio, device=common.device(), transfer="uva")

        trained = runs.measured(session, Task(name, MODEL, "gnnlab")).row
        taken = {"topology_s": _placing(found), "presample_s": _seconds(presample), "cache_s": _seconds(fill)}
        spreads = {key: timing.spread(seconds, key) for key, seconds in taken.items() if seconds}
        row = {
            "graph": name, "model": MODEL, "batch_size": size, "cache_percent": 100 * ratio,
            "disk_gbps": gbps, "disk_s": None if gbps is None else num_bytes / gbps / 1e9,
            "topology_gb": topology / 1e9, "features_gb": found.feat.nbytes / 1e9,
            "topology_s": None, **{key: spread[key] for key, spread in spreads.items()},
            "spread": {key: timing.around(spread) for key, spread in spreads.items()},
            "metis_s": metis_s(session, name), "epoch_s": trained["epoch_s"], **runs.work_of(trained),
        }  # fmt: skip
        row["presample_over_epoch"] = row["presample_s"] / row["epoch_s"]
        rows.append(row)
        session.say(f"{name}: pre-sampling {row['presample_s']:.3f} s, cache {row['cache_s']:.3f} s")
    return runs.record(
        session, [*names, *small], rows, [
            f"METIS: two parts, graphs of at most {most_edges(session) / 1e6:.0f} million edges, in the symmetric "
            "adjacency that it reads.",
            f"Disk: at the rate of a cold pass over {DISK_BYTES >> 20} MB at most, which a second pass has to beat by "
            f"{COLD:g} times; else nobody knows whether the disk was read, and no time is given.",
        ],
        topology_s="copy of the topology to the GPU", cache_s="a second cache: the table is page-locked already",
        presample_s="one epoch of sampling, PreSC#1, ranking included", epoch_s="the factored design on one GPU",
    )  # fmt: skip


def disk_gbps(graph: Any) -> float | None:
    """10^9 bytes a second of reading features from the disk that holds the package's graphs; None where none can be
    told from memory: the system keeps pages that it was asked to let go of, or the folder lies in memory."""
    place = roots.cache_folder(roots.data_root())
    if place is None or not hasattr(os, "posix_fadvise"):
        return None
    rows = np.asarray(graph.feat[: max(1, DISK_BYTES // max(1, graph.feat[:1].nbytes))])
    with tempfile.TemporaryDirectory(prefix="lab-disk-", dir=place) as folder:
        copy = Path(folder) / "rows"
        with copy.open("wb") as target:
            rows.tofile(target)
            target.flush()
            os.fsync(target.fileno())
            os.posix_fadvise(target.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        cold, warm = (_reading_s(copy) for _ in range(2))
    return rows.nbytes / cold / 1e9 if cold > COLD * warm else None


def _reading_s(file: Path) -> float:
    """Seconds to read a file from its beginning to its end."""
    into = memoryview(bytearray(_CHUNK))
    with file.open("rb", buffering=0) as source:
        began = time.perf_counter()
        while source.readinto(into):
            pass
        return time.perf_counter() - began


def _seconds(work: Callable[[], Any]) -> list[float]:
    return [us / 1e6 for us in timing.pass_times(work)]


def _placing(found: Any) -> list[float]:
    """Seconds to copy the topology to the GPU, from pages that were read; none without one."""
    if common.device() == "cpu":
        return []
    host = [np.array(array) for array in (found.indptr, found.indices)]
    import cupy

    assert array_module(host[0]) is np
    return _seconds(lambda: [cupy.asarray(array) for array in host])


def most_edges(session: Session) -> int:
    """Edges of the largest graph that METIS gets: in a full run as many as ``partition`` lets it have."""
    from gnnsample_lab.distributed.parts.methods import MAX_METIS_ENTRIES

    return QUICK_METIS_EDGES if session.quick else MAX_METIS_ENTRIES


def metis_s(session: Session, name: str) -> float | None:
    """Seconds of cutting the graph into two parts, computed anew; None for large graphs and without METIS."""
    from gnnsample_lab.distributed import partition

    found = runs.loaded(session, name)
    if found.num_edges > most_edges(session):
        return None
    try:
        return float(partition(found, 2, "metis", use_cache=False).seconds)
    except (ImportError, ValueError) as error:  # no METIS here, parts that are not even, or too many entries
        session.say(f"{name}, METIS: {error}")
        return None
