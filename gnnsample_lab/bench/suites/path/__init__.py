"""The user's path, beyond what any paper measured: mini-batches ready to use, a training step, and inference."""

from __future__ import annotations

from gnnsample_lab.bench.suite import Spread, Suite

from . import targets

SUITES: tuple[Suite, ...] = (
    Suite(
        "path", "suites.path.ready.ready",
        "us from seeds to blocks, tensors and PyG's Data, alone and several in a call; batches of pyg.NeighborLoader",
        columns={
            "part": "part", "seeds": "batch_size", "fanouts": "fanouts", "made": "stage", "in a call": "together",
            "L2": "l2", "vertices": "nodes", "edges": "edges", "us": Spread("us"), "GPU busy us": "busy_us",
            "bytes us": "bound_us", "latency us": "latency_us", "host us": "host_us",
            "x over its bytes": "x_over_bound",
        },
        targets=targets.ready, takes_graphs=False,
    ),
    Suite(
        "step", "suites.path.step.step",
        "ms of a training step, launched from Python and replayed as a CUDA graph; epochs over DGL's configuration",
        columns={
            "part": "part", "model": "model", "hidden": "hidden", "seeds": "batch_size", "system": "system",
            "step": "step", "executor": "executor", "L2": "l2", "ms": "ms", "p10": "p10", "p90": "p90",
            "kernels ms": "kernel_ms",
            "of kernels": "of_kernels", "x plain": "x_plain", "epoch s": "epoch_s", "x dgl": "x_dgl",
            "captures": "captures", "peak MB": "peak_mb",
        },
        targets=targets.step,
    ),
    Suite(
        "fused-step", "suites.path.fused.fused_step",
        "the last hop, its rows and the first mean or sum in one pass, and steps on top, beside one after the other",
        columns={
            "part": "part", "model": "model", "seeds": "batch_size", "fanouts": "fanouts", "way": "way",
            "L2": "l2", "us": Spread("us"), "GPU busy us": "busy_us", "kept MB": "kept_mb", "ms": "ms",
            "p10": "p10_ms", "p90": "p90_ms", "x": "x_apart", "x GPU": "x_busy", "memory": "memory_share",
            "of allowed": "of_allowed",
        },
        targets=targets.fused_step, needs_gpu=False,
    ),
    Suite(
        "inference", "suites.path.inference.inference",
        "inference of all vertices: layers beside their bounds, streamed features, sampled inference; needs no GPU",
        columns={
            "part": "part", "model": "model", "layer": "layer", "columns read, sent, made": "columns",
            "features in": "memory", "L2": "l2", "us": "us", "p10": "p10", "p90": "p90", "bound us": "bound_us",
            "of bound": "share", "L2 bound us": "l2_bound_us", "GB/s": "gbps", "of the copy": "of_copy",
            "sampled us": Spread("sampled_us"), "x sampled": "x_sampled", "accuracy": "accuracy",
            "sampled accuracy": "sampled_accuracy",
        },
        targets=targets.inference, needs_gpu=False,
    ),
)  # fmt: skip
