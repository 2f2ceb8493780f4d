"""Table 1: bandwidths of memories and links of this host, all GPUs at work at once; the paper's V100 server beside.

There are no modelled rows for more GPUs than ran. What a GPU gets alone, times their number, would be the answer only
if no link were shared; whether links are shared is what the table is about, and nothing but a measurement says it: of
the paper's server two GPUs got no more of PCIe than one, and four twice as much.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.device.host import usable_cores

from . import crew, features

SECTOR_FLOATS = 8
"""A row of 32 bytes."""
LINKS = {
    "gpu": "GPU memory, copy (bytes read and written)",
    "nvlink": "NVLink, a kernel copies its peer's memory",
    "pcie": "PCIe, copy from pinned host memory",
    "uva": "PCIe, a kernel reads random 32 bytes of pinned host memory",
    "gpu-random": "GPU memory, a kernel reads random 32 bytes",
    "host": "host memory, copy by all cores (bytes read and written)",
    "mapped": "CPU: no NVLink; copy of a peer's mapped file",
}


def bandwidth(session: Session) -> dict[str, Any]:
    """The suite's function."""
    nbytes = 1 << (28 if crew.on_gpu() else 22)
    rows: list[dict[str, Any]] = [{"link": "host", "gpus": 0, **host_gbps(nbytes)}]
    pool, checked = crew.ranks(session), 0
    for world in crew.worlds():
        by_rank = pool.run(links, world=world)
        for i, first in enumerate(by_rank[0]):
            rates = [found[i]["gbps"] for found in by_rank]
            checked += len(rates)
            rows.append({
                "link": first["link"], "gpus": world, "gbps": sum(rates), "least_of_a_gpu": min(rates),
                **{key: sum(found[i][key] for found in by_rank) for key in ("p10_gbps", "p90_gbps")},
                "mb": first["mb"],
                "megareads": sum(f[i]["megareads"] for f in by_rank) if first.get("megareads") else None,
            })  # fmt: skip
        session.say(
            f"{world} ranks: " + ", ".join(f"{r['link']} {r['gbps']:.0f}" for r in rows if r["gpus"] == world)
        )
    for row in rows:
        row["what"] = LINKS[row["link"]]
    return {
        "settings": {
            "device": crew.device(), "gbps": "10^9 bytes a second, sums over GPUs that work at once, medians; "
            "p10 and p90: sums of each GPU's own percentiles", "mb": "that a GPU moves in a call",
            "peers": "each GPU reads the next one's memory",
            "modelled": "nothing: what more GPUs get depends on which of them share a link, which is what is measured",
        },
        "verification": {"copies_equal_to_their_source": checked}, "graphs": {}, "rows": rows,
        "notes": crew.notes(),
    }  # fmt: skip


def rate(nbytes: int, times_us: Sequence[float]) -> dict[str, float]:
    """``gbps``, ``p10_gbps``, ``p90_gbps`` and ``mb`` of moving bytes in (10th percentile, median, 90th) of times."""
    low, middle, high = times_us
    return {
        "gbps": nbytes / middle / 1e3, "p10_gbps": nbytes / high / 1e3, "p90_gbps": nbytes / low / 1e3,
        "mb": nbytes / 1e6,
    }  # fmt: skip


def host_gbps(nbytes: int, repeats: int = 10) -> dict[str, float]:
    """Bandwidth of a copy by all cores, bytes read and written, as :func:`rate`."""
    cores = usable_cores()
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    bounds = np.linspace(0, nbytes, cores + 1).astype(np.int64).tolist()
    times = []
    with ThreadPoolExecutor(cores) as workers:
        for _ in range(repeats):
            began = time.perf_counter()
            for each in [workers.submit(np.copyto, target[a:b], source[a:b]) for a, b in pairwise(bounds)]:
                each.result()
            times.append(time.perf_counter() - began)
    return rate(2 * nbytes, [1e6 * float(s) for s in np.percentile(times[1:], [10, 50, 90])])


# ---- on the ranks -----------------------------------------------------------------------------------------------


def links(rank: Any) -> list[dict[str, Any]]:
    """What this rank reaches while all others do the same."""
    found = []
    if rank.world_size > 1:
        link = "mapped" if rank.device == "cpu" else "nvlink"
        copy = features._peer_copy(rank)
        found.append({"link": link, **rate(copy["nbytes"], [copy[key] for key in ("p10", "us", "p90")])})
    if rank.device == "cpu":
        return found
    import cupy

    from gnnsample_lab.device import pinned
    from gnnsample_lab.features.caching.cache import FeatureCache
    from gnnsample_lab.features.caching.host import copy_to_device_async

    nbytes = 1 << 28
    source = pinned.empty(nbytes)
    source[:] = rank.index + 1
    target, other = cupy.empty(nbytes, cupy.uint8), cupy.empty(nbytes, cupy.uint8)
    stream = cupy.cuda.get_current_stream()

    def at_once(link: str, work: Any, moved: int, **more: Any) -> None:
        rank.barrier()
        times = crew.event_times(rank, work)
        found.append({"link": link, **rate(moved, times), **{k: v / times[1] for k, v in more.items()}})

    at_once("pcie", lambda: copy_to_device_async(target, source, nbytes, stream), nbytes)
    if not bool((target == rank.index + 1).all()):
        raise VerificationError("the copy of pinned memory differs from its source")
    at_once("gpu", lambda: other.data.copy_from_device_async(target.data, nbytes, stream), 2 * nbytes)
    rows, reads = 1 << 23, 1 << 21
    table = np.full((rows, SECTOR_FLOATS), rank.index + 1, np.float32)
    ids = cupy.random.RandomState(rank.index).randint(0, rows, reads).astype(np.int64)
    for link, ratio in (("uva", 0.0), ("gpu-random", 1.0)):
        cache = FeatureCache(table, ratio=ratio, device="cuda", transfer="uva")
        marks, out = cache.mark(ids), cupy.empty((reads, SECTOR_FLOATS), np.float32)
        moved = reads * 4 * SECTOR_FLOATS
        at_once(link, partial(cache.extract, ids, marks, out), moved, megareads=reads)
        if not bool((out == rank.index + 1).all()):
            raise VerificationError(f"{link}: rows read differ from their source")
        del cache
    return found
