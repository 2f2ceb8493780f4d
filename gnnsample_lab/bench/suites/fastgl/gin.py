"""A GIN layer on small blocks, where launches are nearly all the time that there is.

FastGL's released layer ran on such a block in :data:`.peers.FASTGL_GIN_US`, measured once, separately, on a block that
was not written down. So no ratio to it is made: its time stands beside ours on blocks of several sizes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from gnnsample_lab.bench import common, peers, timing
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError

KERNELS = ("auto", "memory-aware", "library")
"""Of the sums: ours, which adds own rows as it writes them, FastGL's as published, and cuSPARSE by PyTorch; the last
two are followed by PyTorch's modules."""
GRAPHS = ("products-like", "reddit-like")
HIDDEN = 64
SIZES = (256, 1024)
"""Seeds of a mini-batch."""
BATCHES, CALLS = 4, 200
"""Mini-batches in rotation, and calls of a pass, one behind another."""
DIRECTIONS = ("forward", "both")
TOLERANCE = 1e-3
"""Between results of two kernels, relative to the largest number."""


def gin_layer(session: Session) -> dict[str, Any]:
    """The suite's function."""
    names = session.graphs(*(GRAPHS[:1] if session.quick else GRAPHS))
    sizes = SIZES[-1:] if session.quick else SIZES
    rows = [
        row
        for name in names
        for size in sizes
        for layer in (1, 2)
        for row in _rows(session, name, size, layer)
    ]
    return {
        "settings": {
            "hidden": HIDDEN, "fanouts": common.FANOUTS, "dtype": "float32",
            "layer": "2 is next to the seeds, and so the smallest block",
            "us": f"wall time of a call, {CALLS} launched one behind another before a wait",
            "gpu_us": "for which a call's kernels occupy the GPU, by PyTorch's profiler",
            "direction": "both: forward and backward, gradients of rows and of all parameters",
            "released_us": "of FastGL's released layer, forward, on the smallest block that was tried, measured "
            f"separately on an {peers.CARD}",
        },
        "verification": {"results_equal_to_cusparse": sum(row["kernel"] != "library" for row in rows)},
        "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip


def _rows(session: Session, name: str, size: int, layer: int) -> list[dict[str, Any]]:
    import torch

    from gnnsample_lab.compute.aggregation.csr import csr_of
    from gnnsample_lab.compute.layers import GINConv

    blocks = [batch.blocks[layer] for batch in common.batches(session, name, BATCHES, size=size)]
    shapes = [csr_of(block) for block in blocks]
    torch.manual_seed(0)
    tables = [torch.rand(csr.num_sources, HIDDEN, device="cuda") - 0.5 for csr in shapes]
    reference = GINConv(HIDDEN, HIDDEN, "library").cuda()
    rows: list[dict[str, Any]] = []
    for direction in DIRECTIONS:
        found, wanted = {}, None
        for kernel in reversed(KERNELS):
            convolution = GINConv(HIDDEN, HIDDEN, kernel).cuda()
            convolution.load_state_dict(reference.state_dict())
            work = _work(convolution, blocks, tables, direction)
            made = work(0)
            wanted = wanted or made
            _check(f"{name}, {size} seeds, layer {layer}, {direction}, {kernel}", made, wanted)
            found[kernel] = timing.spread(_times(work)), timing.busy_us(work, BATCHES)
        for kernel in KERNELS:
            us, gpu_us = found[kernel]
            rows.append({
                "graph": name, "batch_size": common.batch_size(name, common.graph(session, name), size), "layer": layer,
                "direction": direction, "kernel": kernel,
                "rows": round(statistics.mean(csr.num_rows for csr in shapes)),
                "edges": round(statistics.mean(csr.num_edges for csr in shapes)),
                "us": us["us"], "gpu_us": gpu_us, "over_library": found["library"][0]["us"] / us["us"],
                **({"released_us": peers.FASTGL_GIN_US} if (direction, layer) == ("forward", 2) else {}),
                "spread": {"us": timing.around(us)},
            })  # fmt: skip
        session.say(
            f"{name}, {size} seeds, layer {layer}, {direction}: "
            + ", ".join(f"{kernel} {found[kernel][0]['us']:.0f} us" for kernel in KERNELS)
        )
    return rows


def _work(convolution: Any, blocks: Any, tables: Any, direction: str) -> Callable[[int], list[Any]]:
    """``work(i)`` on the mini-batches in rotation; its results, the gradients of rows and parameters behind them."""
    import torch

    parameters = list(convolution.parameters())

    def forward(i: int) -> list[Any]:
        with torch.no_grad():
            return [convolution(blocks[i % BATCHES], tables[i % BATCHES])]

    def both(i: int) -> list[Any]:
        x = tables[i % BATCHES].requires_grad_()
        out = convolution(blocks[i % BATCHES], x)
        return [out.detach(), *torch.autograd.grad(out, [x, *parameters], out.detach())]

    return forward if direction == "forward" else both


def _times(work: Callable[[int], Any]) -> list[float]:
    """Microseconds of a call, one a pass: what Python and launches take where they take longer than kernels."""

    def calls() -> None:
        for i in range(CALLS):
            work(i)

    return [us / CALLS for us in timing.pass_times(calls)]


def _check(what: str, made: list[Any], wanted: list[Any]) -> None:
    """Compare with what cuSPARSE and PyTorch's modules make of the same rows and parameters.

    Raises:
        VerificationError: they differ.
    """
    worst = max(
        float((one - other).abs().max() / other.abs().max().clamp(min=1e-6))
        for one, other in zip(made, wanted, strict=True)
    )
    if not worst < TOLERANCE:
        raise VerificationError(f"{what}: differs from cuSPARSE's by {worst:.2g} of the largest number")
