"""What the user's path aims at."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.targets import Target, at_least, at_most, points_of

STEP_MS = {("arxiv-like", 64): 0.7, ("products-like", 64): 1.2, ("products-like", 256): 2.2}
"""Graph and hidden width: milliseconds of a step of GraphSAGE, 1 024 seeds."""
OVER_DGL = {"gcn": 7.0, "gin": 5.0, "gat": 4.0}
OF_KERNELS = 1.4


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


def inference(record: dict[str, Any]) -> list[Target]:
    """Layer-wise inference on a GPU: each layer's bytes, rows from host memory, and sampled inference."""
    rows = record["rows"]
    if record["settings"]["device"] == "cpu":
        return []
    whole = [row for row in rows if row["part"] == "whole" and row["graph"] == "products-like"]
    locked = [row for row in rows if row["part"] == "streamed" and row["memory"] == "page-locked"]
    return [
        *at_least(
            "a layer's byte bound over its time", 0.5, "x",
            points_of([row for row in rows if row["part"] == "layer"], "share", "graph", "model", "layer"),
        ),
        *at_least(
            "over sampled inference at 15, 10, 5, products-like", 20.0, "x", points_of(whole, "x_sampled", "model")
        ),
        *at_least("streamed rows over the pinned copy", 0.8, "x", points_of(locked, "of_copy", "graph", "model")),
    ]  # fmt: skip
