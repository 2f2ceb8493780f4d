"""What the user's path aims at."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.targets import Target, at_least, at_most, of_card, points_of

CARD = "H200"
"""In the name of the card whose times the limits in milliseconds and microseconds are."""
STEP_MS = {("arxiv-like", 64): 0.7, ("products-like", 64): 1.2, ("products-like", 256): 2.2}
"""Graph and hidden width: milliseconds of a step of GraphSAGE, 1 024 seeds."""
READY_US = {
    ("sampled", 1): 65.0, ("sampled", 32): 22.0, ("to_torch", 1): 130.0, ("to_torch, read", 1): 130.0,
    ("to_pyg", 1): 130.0,
}  # fmt: skip
"""What is made and mini-batches in a call: microseconds of a mini-batch of 1 024 seeds, fanouts 10, 10, 10."""
BLOCKS_OVER_SAMPLED = 1.15
X_OVER_BOUND = 1 / 0.8
"""What features add to a mini-batch ready to use, over reading and writing their rows at a copy's speed."""
LOADER_US = {
    ("products-like", "without x"): 160.0, ("products-like", "with x"): 300.0, ("arxiv-like", "without x"): 160.0,
    ("arxiv-like", "with x"): 200.0,
}  # fmt: skip
OVER_DGL = {"gcn": 7.0, "gin": 5.0, "gat": 4.0}
OF_KERNELS = 1.4
FUSED_STAGES, FUSED_STEP, OF_ALLOWED = 2.5, 1.3, 0.9
FUSED_MEMORY = {2: 0.15, 3: 0.45}
"""Hops: share of the memory that sampling, extraction and mean one after the other leave."""


def ready(record: dict[str, Any]) -> list[Target]:
    """Mini-batches ready to use: their time, blocks over samples, several in a call over one, and the loader."""
    rows = [row for row in record["rows"] if row["part"] == "mini-batch"]
    found: list[Target] = []
    for (stage, together), limit in READY_US.items():
        points = [r for r in rows if (r["stage"], r["together"], r["batch_size"]) == (stage, together, 1024)]
        found += at_most(
            f"{stage}, 1 024 seeds x 10, 10, 10, {together} in a call", limit, "us",
            points_of(points, "us", "graph"),
        )  # fmt: skip
    found = of_card(CARD, record, found)
    by = {(r["batch_size"], r["together"], r["stage"]): r["us"] for r in rows}
    for made, what in (("blocks", "with blocks"), ("arrays of blocks", "with blocks whose arrays are read")):
        found += at_most(
            f"{what}, over sampled alone", BLOCKS_OVER_SAMPLED, "x",
            [
                (us / by[size, together, "sampled"], f"{size} seeds, {together} in a call")
                for (size, together, stage), us in by.items() if stage == made
            ],
        )  # fmt: skip
    found += at_most(
        "several in a call over one by one", 1.0, "x",
        [
            (us / by[size, 1, stage], f"{size} seeds, {stage}")
            for (size, together, stage), us in by.items() if together > 1
        ],
    )  # fmt: skip
    found += at_most(
        "features beside to_torch and to_pyg, over their bytes", X_OVER_BOUND, "x",
        points_of(rows, "x_over_bound", "batch_size", "stage", "together"),
    )  # fmt: skip
    for (graph, stage), limit in LOADER_US.items():
        points = [
            r for r in record["rows"] if r["part"] == "loader" and (r["graph"], r["stage"]) == (graph, stage)
        ]
        what = f"batch of NeighborLoader, {graph}, {stage}"
        found += of_card(CARD, record, at_most(what, limit, "us", points_of(points, "us", "graph")))
    return found


def step(record: dict[str, Any]) -> list[Target]:
    """Replayed steps: their time, over the kernels' alone, and epochs over DGL's configuration."""
    rows = record["rows"]
    best = [row for row in rows if row["part"] == "step" and row["step"] == "captured"]
    found: list[Target] = []
    for (graph, hidden), limit in STEP_MS.items():
        found += at_most(
            f"SAGE, {graph}, hidden {hidden}, 1 024 seeds", limit, "ms",
            points_of(
                [r for r in best if (r["graph"], r["hidden"], r["model"]) == (graph, hidden, "sage")],
                "ms", "executor",
            ),
        )  # fmt: skip
    found = of_card(CARD, record, found)
    found += at_most(
        "step over the summed GPU time of its kernels", OF_KERNELS, "x",
        points_of(best, "of_kernels", "graph", "model", "hidden"),
    )  # fmt: skip
    for model, limit in OVER_DGL.items():
        found += at_least(
            f"epoch over DGL's configuration, {model}, products-like", limit, "x",
            points_of(
                [r for r in rows if r["part"] == "epoch" and r["model"] == model and r["graph"] == "products-like"],
                "x_dgl", "graph",
            ),
        )  # fmt: skip
    return found


def fused_step(record: dict[str, Any]) -> list[Target]:
    """Fused stages over those one after the other, the step on top, and device memory of what the stages leave."""
    if record["settings"]["device"] == "cpu":
        return []
    fused = [{"model": "sage", **row} for row in record["rows"] if row["way"] == "fused"]
    stages, steps = ([row for row in fused if row["part"] == part] for part in ("stages", "step"))
    found = at_least("from seeds to means or sums, over one after the other", FUSED_STAGES, "x",
                     points_of(stages, "x_apart", "graph", "model", "fanouts"))  # fmt: skip
    found += at_least(
        "captured step, over one after the other",
        FUSED_STEP,
        "x",
        points_of(steps, "x_apart", "graph", "model", "fanouts"),
    )
    found += at_least(
        "of what removing the stages allows",
        OF_ALLOWED,
        "x",
        points_of(steps, "of_allowed", "graph", "model", "fanouts"),
    )
    for hops, limit in FUSED_MEMORY.items():
        points = points_of(
            [r for r in stages if len(r["fanouts"]) == hops], "memory_share", "graph", "model", "fanouts"
        )
        found += at_most(f"memory of what the stages leave, {hops} hops", limit, "x", points)
    return found


def inference(record: dict[str, Any]) -> list[Target]:
    """Layer-wise inference on a GPU: each layer's bytes, rows from host memory, and sampled inference."""
    rows = record["rows"]
    if record["settings"]["device"] == "cpu":
        return []
    whole = [row for row in rows if row["part"] == "whole" and row["graph"] == "products-like"]
    streamed = [row for row in rows if row["part"] == "streamed"]
    return [
        *at_least(
            "a layer's byte bound over its time", 0.5, "x",
            points_of([row for row in rows if row["part"] == "layer"], "share", "graph", "model", "layer"),
        ),
        *at_least(
            "over sampled inference at 15, 10, 5, products-like", 20.0, "x", points_of(whole, "x_sampled", "model")
        ),
        *at_least(
            "streamed rows over the pinned copy", 0.8, "x", points_of(streamed, "of_copy", "graph", "model", "memory")
        ),
    ]  # fmt: skip
