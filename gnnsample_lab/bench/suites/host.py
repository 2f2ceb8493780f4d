"""The suite that needs no GPU: the CPU sampler's rate."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from gnnsample_lab.bench import timing, verify
from gnnsample_lab.bench.session import Session
from gnnsample_lab.minibatch.sampler import NeighborSampler

THREADS = 2


def cpu(session: Session) -> dict[str, Any]:
    """Sampled edges per second of the CPU sampler on two cores."""
    import numba

    threads, before = min(THREADS, numba.config.NUMBA_NUM_THREADS), numba.get_num_threads()
    names, batch_size, fanouts = session.graphs("arxiv-like"), 1024, (10, 10, 10)
    rows, checked = [], 0
    numba.set_num_threads(threads)
    try:
        for name in names:
            graph = session.graph(name, "cpu")
            train = graph.splits.get("train")
            few = train is None or len(train) < batch_size
            pool = np.arange(graph.num_nodes) if few else np.asarray(train)
            size = min(batch_size, len(pool))
            for pick in ("floyd", "reservoir"):
                checked += verify.check_recorded_hashes(verify.chosen_configurations(pick))
                sampler = NeighborSampler(graph, list(fanouts), pick=pick, device="cpu")
                rng = np.random.default_rng(0)
                seeds = [rng.choice(pool, size, replace=False) for _ in range(8 if session.quick else 40)]
                for i in (0, 1):  # verified, and with that compiled and warm
                    verify.check_sample(sampler.sample(seeds[i], i))
                    checked += 1
                edges, times = [], []
                for i, batch in enumerate(seeds):
                    began = time.perf_counter()
                    edges.append(sampler.sample(batch, i).num_edges)
                    times.append((time.perf_counter() - began) * 1e6)
                wall = timing.spread(times)
                rate = timing.spread([e / t * 1e6 for e, t in zip(edges, times, strict=True)], "per_s")
                rows.append({
                    "graph": name, "batch_size": size, "fanout": 10, "hops": 3, "pick": pick, "threads": threads,
                    "edges": round(statistics.mean(edges)), "wall_us": wall["us"], "edges_per_s": rate["per_s"],
                    "spread": {"wall_us": timing.around(wall), "edges_per_s": timing.around(rate)},
                })  # fmt: skip
                session.say(f"{name} {pick}: {rows[-1]['edges_per_s'] / 1e6:.1f} million edges/s")
    finally:
        numba.set_num_threads(before)
    return {
        "settings": {
            "device": "cpu", "threads": threads, "batch_size": batch_size, "fanouts": fanouts,
            "timing": "wall time of NeighborSampler.sample, local ids included; medians over batches",
        },
        "verification": {"samples_checked": checked}, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip
