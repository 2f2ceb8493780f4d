"""Generating twins: the same graph on both devices, seconds, and the least memory that the GPU can do it in."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.graph import catalogue, load
from gnnsample_lab.graph.graph import Graph

# Name, scale, seed. Both devices make those up to a hundred million edges; hosts without a GPU check the recorded
# digests of those up to ten.
CASES = (
    ("arxiv-like", 1.0, 0), ("arxiv-like", 0.1, 1), ("flickr-like", 1.0, 0), ("epinions-like", 1.0, 0),
    ("physics-like", 1.0, 3), ("products-like", 0.08, 0), ("twitter-like", 0.005, 0), ("papers100M-like", 0.006, 0),
    ("products-like", 0.8, 0), ("products-like", 1.0, 0), ("papers100M-like", 1.0, 0),
)  # fmt: skip
COMPARED_EDGES = 110_000_000
CHECKED_EDGES = 10_000_000
LIMIT_BYTES = 100 * 10**9


def generating(session: Session) -> dict[str, Any]:
    """Generate each case on the GPU, twice, with no more memory than ``LIMIT_BYTES``, and compare it with the CPU's.

    Raises:
        VerificationError: the devices made different graphs.
        MemoryError: the limit was too little for one.
    """
    rows = []
    for name, scale, seed in CASES:
        if session.chosen is not None and name not in session.chosen:
            continue
        if session.quick and scale * catalogue.entry(name)["num_edges"] > CHECKED_EDGES:
            continue
        row = session.piece((name, scale, seed), functools.partial(_case, name, scale, seed))
        session.say(
            f"{name} x {scale:g}: {row['edges']:,} edges, GPU {row['gpu_s']:.2f} s, CPU {row['cpu_s']}"
        )
        rows.append(row)
    return {
        "settings": {"limit_bytes": LIMIT_BYTES, "features": False, "checked_edges": CHECKED_EDGES},
        "verification": {"graphs_equal_on_both_devices": sum(row["digest"] is not None for row in rows)},
        "graphs": {}, "rows": rows,
    }  # fmt: skip


def _case(name: str, scale: float, seed: int) -> dict[str, Any]:
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=LIMIT_BYTES)
    try:
        graph, first = _timed(name, scale, seed, "cuda")
        del graph
        graph, again = _timed(name, scale, seed, "cuda")
    finally:
        pool.set_limit(size=0)
    row = {
        "graph": name, "scale": scale, "seed": seed, "nodes": graph.num_nodes, "edges": graph.num_edges,
        "first_s": first, "gpu_s": again, "cpu_s": None, "digest": None,
    }  # fmt: skip
    if graph.num_edges <= COMPARED_EDGES:
        row["digest"] = graph.to("cpu").digest()
        del graph
        with _on_cpu():
            other, row["cpu_s"] = _timed(name, scale, seed, "cpu")
        if other.digest() != row["digest"]:
            raise VerificationError(
                f"the CPU makes another {name} at scale {scale}, seed {seed}, than the GPU"
            )
    return row


def _timed(name: str, scale: float, seed: int, device: str) -> tuple[Graph, float]:
    start = time.perf_counter()
    graph = load(name, scale=scale, seed=seed, device=device, features=False, use_cache=False)
    graph.indptr[-1].item()  # waits for the GPU
    return graph, time.perf_counter() - start


@contextmanager
def _on_cpu() -> Iterator[None]:
    before = os.environ.get("LAB_DEVICE")
    os.environ["LAB_DEVICE"] = "cpu"
    try:
        yield
    finally:
        if before is None:
            del os.environ["LAB_DEVICE"]
        else:
            os.environ["LAB_DEVICE"] = before
