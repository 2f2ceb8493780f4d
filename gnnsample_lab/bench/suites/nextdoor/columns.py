"""Columns of NextDoor's tables, as :data:`gnnsample_lab.bench.report_data.COLUMNS`."""

from __future__ import annotations

COLUMNS: dict[str, dict[str, str]] = {
    "nextdoor-table1": {
        "method": "method", "sampler": "sampler", "sample ms": "sample_ms", "train ms": "train_ms",
        "sampling %": "sample_percent",
    },
    "nextdoor-table2": {
        "draws per transit": "draws_per_transit", "transits": "transits", "sub-warp ms": "kernel_ms.sub-warp",
        "block ms": "kernel_ms.block", "grid ms": "kernel_ms.grid",
        "index ms": "index_ms.block", "best": "best",
        "paper": "paper_kernel", "ours with index ms": "chosen_ms", "sample-parallel ms": "sample_ms",
    },
    "nextdoor-table3": {
        "nodes": "num_nodes", "edges": "num_edges", "average degree": "average_degree", "largest": "max_degree",
        "no in-edges %": "without_in_edges_percent",
    },
    "nextdoor-fig6": {
        "app": "app", "index": "index", "ms": "ms", "index ms": "index_ms", "builds": "builds",
        "index %": "index_percent",
    },
    "nextdoor-fig7": {
        "app": "app", "samples": "num_samples", "transit ms": "ms.transit", "over SP": "over_sample",
        "over TP": "over_vanilla", "always indexed ms": "always_ms", "always over SP": "always_over_sample",
        "over one core": "over_cpu_core", "over all cores": "over_cpu_all",
    },
    "nextdoor-fig8": {
        "app": "app", "index": "index", "SP M sectors": "sample_msectors", "transit M sectors": "transit_msectors",
        "transit of SP": "ratio", "index of it": "index_share", "origin": "origin",
    },
    "nextdoor-fig9": {
        "app": "app", "transit ms": "ms.transit", "frontier ms": "ms.frontier", "message ms": "ms.message",
        "over frontier": "over_frontier", "over message": "over_message",
    },
    "nextdoor-table4": {
        "app": "app", "store efficiency %": "store_percent", "SM activity %": "sm_percent", "origin": "origin",
    },
    "nextdoor-section84": {
        "app": "app", "of the graph": "fraction", "samples/s": "samples_per_s", "of in memory": "of_in_memory",
        "over CPU": "over_cpu", "MB streamed": "streamed_mb", "GB/s": "streamed_gbps",
    },
    "nextdoor-table5": {
        "method": "method", "CPU sampler": "reference", "sample ms": "reference_sample_ms",
        "epoch s": "reference_epoch_s", "ours: sample ms": "sample_ms", "train ms": "train_ms",
        "ours: epoch s": "epoch_s",
        "x": "speedup", "most possible": "most_possible",
    },
    "nextdoor-floor": {
        "app": "app", "walkers": "num_samples", "ms": "ms", "floor ms": "floor_ms", "over floor": "over_floor",
        "CUDA ms": "native_ms", "over CUDA": "over_native",
    },
}  # fmt: skip
