"""The aggregation ladder measured on sampled blocks: against its bound, against cuSPARSE, and for the roofline."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.floors.bound import refuse_undercut
from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import FLUSHED, L2, VerificationError

from .aggregation_measures import (
    CHECKED_ROWS,
    DIRECTIONS,
    KERNELS,
    MATRIX_KEPT,
    OURS,
    asked_bytes,
    bandwidths,
    bound_us,
    community_times,
    cusparse_us,
    kernel_times,
    layer_sums,
    least_bytes,
    shape_row,
)


def aggregation(session: Session) -> dict[str, Any]:
    """Every rung forward and backward, the share of the bound that ours reaches, and its ratio to the best cuSPARSE."""
    names = (
        session.graphs("products-like")
        if session.quick
        else session.graphs("products-like", "reddit-like", "mag-like")
    )
    widths = (64, 256, 1024) if session.quick else (64, 100, 128, 256, 512, 1024)
    layers, sizes = ((0, 1), (common.BATCH,)) if session.quick else ((0, 1, 2), (1024, common.BATCH))
    rows: list[dict[str, Any]] = []
    for name, size, layer, direction in (
        (n, s, depth, d) for n in names for s in sizes for depth in layers for d in DIRECTIONS
    ):  # fmt: skip
        for features in widths:
            jobs = layer_sums(session, name, layer, direction, size)
            kernels = KERNELS if not session.quick or features == widths[0] else ("memory-aware", OURS)
            found = {k: kernel_times(session, name, layer, direction, features, k, size) for k in kernels}
            times = {k: one["us"] for k, one in found.items()}
            best = cusparse_us(session, name, layer, direction, features, size)
            bound = bound_us(session, jobs, features)
            ordered, by_order = None, {}
            if (layer, direction) == (0, "forward"):
                ordered = community_times(session, name, features, size)
                by_order = {"ordered_us": ordered["us"], "ordered_share": bound / ordered["us"]}
            ours = [found[OURS]["p10_us"], *([ordered["p10_us"]] if ordered else [])]
            refuse_undercut(f"{name} {size}, layer {layer} {direction}, {features} features", bound, ours)
            rows.append({
                "graph": name, "batch_size": round(size * scaled(name)[1]), "layer": layer,
                "direction": direction, "num_features": features,
                **shape_row(jobs), "us": times, "ours_us": times[OURS], "bound_us": bound, "share": bound / times[OURS],
                "cusparse_us": best["us"], "cusparse_best": best["best"], "cusparse_sweep": best["sweep"],
                "over_cusparse": best["us"] / times[OURS], **by_order,
                "aware_over_naive": times["naive"] / times["memory-aware"] if "naive" in times else None,
                "staged_over_naive": times["naive"] / times["memory-aware-staged"] if "naive" in times else None,
                "spread": {
                    **{k: timing.around(one) for k, one in found.items()},
                    "ours_us": timing.around(found[OURS]), "cusparse_us": timing.around(best),
                    **({"ordered_us": timing.around(ordered)} if ordered else {}),
                },
            })  # fmt: skip
            session.say(
                f"{name} {size}, layer {layer} {direction}, F {features}: {times[OURS]:.0f} us, "
                f"{rows[-1]['share']:.2f} of the bound, {rows[-1]['over_cusparse']:.2f} x cuSPARSE"
            )
            _release()
    gbps = bandwidths(session)
    note = f"DRAM {gbps['dram_gbps']:.0f} GB/s, L2 {gbps['l2_gbps']:.0f} GB/s ({gbps['origin']})."
    by_community = (
        "ordered_us, ordered_share: ours with the rows of the input layer in the order of communities that infer makes "
        "for graphs of 16 edges a vertex and more; the order, and sorting rows by it, are made before"
    )
    return {**_record(session, names, rows, bandwidths=gbps, by_community=by_community), "notes": [note]}


def _release() -> None:
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


def _record(session: Session, names: Any, rows: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    checked = sum(1 for key in session._kept if key[0] == "kernel us")
    return {
        "settings": {
            "batch_size": common.BATCH, "fanouts": common.FANOUTS, "weights": "float32 per edge", "dtype": "float32",
            "us": "GPU time of one block's sums between two events, over rotating mini-batches, L2 flushed before, "
            "median of passes; groups, transposed blocks and cuSPARSE's preprocessing made beforehand",
            "l2": f"{L2[FLUSHED]}, of whose mini-batches each has arrays of its own, read once",
            "cusparse": MATRIX_KEPT, **settings,
        },
        "verification": {"rows_equal_to_double_precision": CHECKED_ROWS * checked},
        "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip


def table3(session: Session) -> dict[str, Any]:
    """Bandwidth of each memory level of this GPU."""
    from gnnsample_lab.device import runtime

    gbps, properties = bandwidths(session), runtime.device_properties()
    shared = int(properties.get("sharedMemPerMultiprocessor", properties["sharedMemPerBlock"]))
    levels = (
        ("shared memory", "shared_gbps", f"{shared >> 10} KB per SM"),
        ("L2 cache", "l2_gbps", f"{int(properties['l2CacheSize']) >> 20} MB"),
        ("global memory", "dram_gbps", f"{int(properties['totalGlobalMem']) >> 30} GB"),
    )
    rows = [{"level": level, "gbps": gbps[key], "capacity": size} for level, key, size in levels]
    ordered = [row["gbps"] for row in rows]
    if ordered != sorted(ordered, reverse=True):
        raise VerificationError(f"bandwidths must grow towards the SM (got {ordered})")
    return {
        "settings": {"what": "read (shared memory, L2) and copy (global memory) kernels, bytes over time", **gbps},
        "verification": {"levels_in_order": len(rows)}, "graphs": {}, "rows": rows,
    }  # fmt: skip


def table2(session: Session) -> dict[str, Any]:
    """Cache hit rates and rate of the forward aggregation, the library's and ours: by ncu where it is, else counted."""
    names = session.graphs(*(
        ("products-like",) if session.quick else ("reddit-like", "products-like", "mag-like", "papers100M-like@0.25")
    ))  # fmt: skip
    rows: list[dict[str, Any]] = []
    for name in names:
        rows += session.piece((name,), functools.partial(_hits_and_rates, session, name))
    return _record(
        session, names, rows, repeated_percent="share of source-row reads of a row read before: what a cache without "
        "limits would hit; counted", peak_gflops=bandwidths(session)["fp32_gflops"],
    )  # fmt: skip


def _hits_and_rates(session: Session, name: str) -> list[dict[str, Any]]:
    """Rows of :func:`table2` of one graph."""
    from .aggregation_profile import cache_hits

    jobs = layer_sums(session, name, 0, "forward")
    rows: list[dict[str, Any]] = []
    for kernel in (
        ("library", OURS) if session.quick else ("library", "memory-aware", "memory-aware-staged", OURS)
    ):
        times = kernel_times(session, name, 0, "forward", 128, kernel)
        us = times["us"]
        hits = cache_hits(jobs[0], kernel, 128)
        rows.append({
            "graph": name, "kernel": kernel, "num_features": 128, **shape_row(jobs),
            "us": us, "gflops": float(np.mean([s.flops_per_feature for s in jobs])) * 128 / us / 1e3,
            "spread": {"us": timing.around(times)},
            "repeated_percent": 100 * float(np.mean([1 - s.distinct / s.csr.num_edges for s in jobs])), **hits,
        })  # fmt: skip
        session.say(f"{name}, {kernel}: {rows[-1]['gflops']:.0f} GFLOP/s, {hits['hits_origin']}")
    _release()
    return rows


def figure12(session: Session) -> dict[str, Any]:
    """Roofline: rate against operations per counted byte of global memory, forward and backward."""
    name = session.graphs("products-like")[0]
    gbps = bandwidths(session)
    rows: list[dict[str, Any]] = []
    for direction in DIRECTIONS:
        jobs = layer_sums(session, name, 0, direction)
        for features in (64, 256):
            for kernel in KERNELS:
                times = kernel_times(session, name, 0, direction, features, kernel)
                us = times["us"]
                flops = float(np.mean([s.flops_per_feature for s in jobs])) * features
                least = float(np.mean([least_bytes(s, features) for s in jobs]))
                asked = float(np.mean([asked_bytes(s, features, kernel) for s in jobs]))
                rows.append({
                    "graph": name, "direction": direction, "kernel": kernel, "num_features": features, "us": us,
                    "gflops": flops / us / 1e3, "flops_per_byte": flops / least, "least_bytes": least,
                    "asked_bytes": asked, "spread": {"us": timing.around(times)},
                    "asked_gbps": asked / us / 1e3,
                    "roof_gflops": min(gbps["fp32_gflops"], flops / least * gbps["dram_gbps"]),
                })  # fmt: skip
    library = {(r["direction"], r["num_features"]): r["us"] for r in rows if r["kernel"] == "library"}
    for row in rows:
        row["over_library"] = library[row["direction"], row["num_features"]] / row["us"]
    return _record(
        session, [name], rows, bandwidths=gbps,
        flops_per_byte="operations over the bytes that must cross global memory once",
        asked_bytes="bytes that the kernel asks global memory and caches for, counted by the cost model",
    )  # fmt: skip
