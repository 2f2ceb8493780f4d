"""The user's path, beyond what any paper measured: a training step as a whole."""

from __future__ import annotations

from gnnsample_lab.bench.suite import Suite

from . import targets

SUITES: tuple[Suite, ...] = (
    Suite(
        "step", "suites.path.step.step",
        "ms of a training step, launched from Python and replayed as a CUDA graph; epochs over DGL's configuration",
        columns={
            "part": "part", "model": "model", "hidden": "hidden", "seeds": "batch_size", "system": "system",
            "step": "step", "executor": "executor", "ms": "ms", "p10": "p10", "p90": "p90", "kernels ms": "kernel_ms",
            "of kernels": "of_kernels", "x plain": "x_plain", "epoch s": "epoch_s", "x dgl": "x_dgl",
            "captures": "captures", "peak MB": "peak_mb",
        },
        targets=targets.step,
    ),
)  # fmt: skip
