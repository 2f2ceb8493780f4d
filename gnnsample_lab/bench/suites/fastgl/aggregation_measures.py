"""Times of the aggregation ladder on sampled blocks, of cuSPARSE, and the bound: what the suites are made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.compute.aggregation import ladder
from gnnsample_lab.compute.aggregation.bandwidth import measured_bandwidths
from gnnsample_lab.compute.aggregation.bound import aggregation_bound_us, aggregation_cost
from gnnsample_lab.compute.aggregation.csr import Csr, csr_of
from gnnsample_lab.compute.aggregation.transpose import transposed
from gnnsample_lab.compute.inference.sums import by_community
from gnnsample_lab.device.arrays import array_module, to_host
from gnnsample_lab.minibatch.export import tensor

from . import cusparse

OURS = "auto"
KERNELS = ("naive", "memory-aware", "memory-aware-staged", "grouped", "gnnadvisor-style", "library", OURS)
DIRECTIONS = ("forward", "backward")
CHECKED_ROWS = 300
"""Rows of each result that are compared with sums in double precision, at most 64 columns of each."""
CHECKED_COLUMNS = 64
MATRIX_KEPT = "by PyTorch, the matrix made once for the same weights"
"""Of cuSPARSE, ``library``, in settings."""
_WIDE = 512
"""With this many features or more, two batches rotate; four would take too much memory."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Weighted row sums to compute: ``out[r] = sum of weight[e] * x[indices[e]]``. Forward over a block's destinations,
    backward over its sources (the transposed block, made beforehand and reused, as the library does in training)."""

    csr: Csr
    weight: Any
    distinct: int

    @property
    def flops_per_feature(self) -> int:
        return 2 * self.csr.num_edges


def layer_sums(
    session: Session, name: str, layer: int, direction: str, size: int = common.BATCH
) -> list[Sums]:
    """The sums of one layer's blocks over a few mini-batches; layer 0 is the input-most."""

    def make() -> list[Sums]:
        import cupy

        rng = cupy.random.RandomState(7)
        found = []
        for batch in common.batches(session, name, 4, size=size):
            block = batch.blocks[layer]
            csr = csr_of(block)
            weight = rng.uniform(0.1, 1.0, csr.num_edges).astype(np.float32)
            if direction == "backward":
                flipped = transposed(block, weight)
                csr, weight = flipped.csr, flipped.coefficients(weight, False, weight)
            found.append(Sums(csr, weight, int(cupy.unique(csr.indices).size)))
        return found

    return list(session.kept(("sums", name, layer, direction, size), make))


def in_order(sums: Sums, order: Any) -> Sums:
    """The same sums with their rows in another order; ``order``: row numbers, an array of the same library."""
    xp, csr = array_module(order), sums.csr
    lengths = csr.lengths()[order]
    indptr = xp.zeros(csr.num_rows + 1, csr.indptr.dtype)
    indptr[1:] = xp.cumsum(lengths)
    edges = xp.arange(csr.num_edges)
    row = xp.searchsorted(indptr[1:], edges, side="right")
    at = csr.indptr[:-1][order][row] + edges - indptr[row]
    moved = Csr(indptr, csr.indices[at], csr.num_rows, csr.num_sources, csr.num_edges)
    return Sums(moved, sums.weight[at], sums.distinct)


def community_sums(session: Session, name: str, size: int = common.BATCH) -> list[Sums]:
    """The forward sums of the input-most layer, their rows in the order of the graph's communities that
    :func:`gnnsample_lab.infer` makes once per graph: neighbouring rows then read the same rows of the table."""

    def rank() -> Any:
        import cupy

        graph = common.graph(session, name)
        order = cupy.asarray(by_community(tensor(graph.indptr), tensor(graph.indices)))
        found = cupy.empty(len(order), np.int32)
        found[order] = cupy.arange(len(order), dtype=np.int32)
        return found

    def make() -> list[Sums]:
        by_vertex = session.kept(("community rank", name), rank)
        return [
            in_order(sums, by_vertex[batch.node_ids[: sums.csr.num_rows]].argsort())
            for batch, sums in zip(
                common.batches(session, name, 4, size=size),
                layer_sums(session, name, 0, "forward", size),
                strict=True,
            )
        ]

    return list(session.kept(("sums by community", name, size), make))


def _arrays(sums: Sums, features: int) -> tuple[Any, Any]:
    import cupy

    x = cupy.random.RandomState(3).uniform(-1, 1, (sums.csr.num_sources, features), dtype=np.float32)
    return x, cupy.empty((sums.csr.num_rows, features), np.float32)


def check_rows(sums: Sums, x: Any, out: Any, what: str) -> None:
    """A sample of rows against sums in double precision on the host.

    Raises:
        VerificationError: they differ.
    """
    indptr = to_host(sums.csr.indptr)
    rows = np.random.default_rng(0).choice(
        sums.csr.num_rows, min(CHECKED_ROWS, sums.csr.num_rows), replace=False
    )
    edges = np.concatenate([np.arange(indptr[r], indptr[r + 1]) for r in rows])
    lengths = indptr[rows + 1] - indptr[rows]
    sources = to_host(sums.csr.indices[_like(sums.csr.indices, edges)])
    columns = np.unique(np.linspace(0, x.shape[1] - 1, CHECKED_COLUMNS).astype(np.int64))
    unique, at = np.unique(sources, return_inverse=True)
    values = to_host(x[_like(x, unique)][:, _like(x, columns)]).astype(np.float64)[at]
    values *= to_host(sums.weight[_like(sums.weight, edges)]).astype(np.float64)[:, None]
    wanted, scale = np.zeros((2, len(rows), len(columns)))
    filled = lengths > 0  # reduceat would give an empty row the value that follows it
    begins = (np.cumsum(lengths) - lengths)[filled]
    if begins.size:
        wanted[filled] = np.add.reduceat(values, begins, axis=0)
        scale[filled] = np.add.reduceat(np.abs(values), begins, axis=0)
    error = np.abs(to_host(out[_like(out, rows)][:, _like(out, columns)]) - wanted)
    if not (error <= 2e-5 * scale + 1e-6).all():
        raise VerificationError(
            f"{what}: off by {error.max():.2g} from sums in double precision; nothing is timed"
        )


def _like(array: Any, index: np.ndarray) -> Any:
    from gnnsample_lab.device.arrays import array_module

    return array_module(array).asarray(index)


def kernel_times(
    session: Session,
    name: str,
    layer: int,
    direction: str,
    features: int,
    kernel: str,
    size: int = common.BATCH,
) -> dict[str, float]:
    """The spread of the GPU time of one block's sums by ``kernel``, its rows checked first; ``grouped`` without its
    preprocessing."""
    what = f"{kernel}, {direction}, {features} features on {name}, layer {layer}"

    def make() -> dict[str, float]:
        return _times(layer_sums(session, name, layer, direction, size), features, kernel, what)

    return dict(session.kept(("kernel us", name, layer, direction, features, kernel, size), make))


def community_times(session: Session, name: str, features: int, size: int = common.BATCH) -> dict[str, float]:
    """:func:`kernel_times` of ours on :func:`community_sums`; the order is made before."""
    what = f"{OURS}, {features} features on {name}, rows by community"
    return _times(community_sums(session, name, size), features, OURS, what)


def _times(every: list[Sums], features: int, kernel: str, what: str) -> dict[str, float]:
    jobs = every[: 2 if features >= _WIDE else 4]
    arrays = [_arrays(sums, features) for sums in jobs]

    def work(i: int) -> None:
        ladder.gather(kernel, jobs[i].csr, arrays[i][0], arrays[i][1], jobs[i].weight, False)

    for i, sums in enumerate(jobs):
        arrays[i][1].fill(0)
        work(i)
        check_rows(sums, *arrays[i], what)
    return timing.spread(timing.gpu_times(work, len(jobs)))


def kernel_us(
    session: Session,
    name: str,
    layer: int,
    direction: str,
    features: int,
    kernel: str,
    size: int = common.BATCH,
) -> float:
    """The median of :func:`kernel_times`, in microseconds."""
    return kernel_times(session, name, layer, direction, features, kernel, size)["us"]


def cusparse_us(
    session: Session, name: str, layer: int, direction: str, features: int, size: int = common.BATCH
) -> dict[str, Any]:
    """The best cuSPARSE algorithm on the same sums, ``int32``, preprocessing done before: :func:`.cusparse.best`."""

    def make() -> dict[str, Any]:
        jobs = layer_sums(session, name, layer, direction, size)[: 2 if features >= _WIDE else 4]
        matrices = []
        for sums in jobs:
            x, out = _arrays(sums, features)
            matrices.append(
                (sums.csr.indptr.astype(np.int32), sums.csr.indices.astype(np.int32), sums.weight, x, out)
            )

        def check(i: int, out: Any) -> None:
            check_rows(jobs[i], matrices[i][3], out, f"cuSPARSE, {direction}, {features} features")

        return cusparse.best(matrices, timing.gpu_times, check)

    return dict(session.kept(("cusparse us", name, layer, direction, features, size), make))


def grouping_us(session: Session, name: str, layer: int, direction: str) -> float:
    """Wall time of making the neighbour groups of one block: the host waits for their number."""
    jobs = layer_sums(session, name, layer, direction)

    def make() -> float:
        return timing.wall_us(lambda i: ladder.make_groups(jobs[i].csr), len(jobs))

    return float(session.kept(("grouping us", name, layer, direction), make))


def bandwidths(session: Session) -> dict[str, Any]:
    """Measured bandwidths and FP32 peak of this GPU: ``dram_gbps``, ``l2_gbps``, ``shared_gbps``, ``fp32_gflops``."""
    return dict(session.kept(("bandwidths",), lambda: asdict(measured_bandwidths())))


def shape_row(jobs: list[Sums]) -> dict[str, int]:
    """Sizes of the sums, averaged over the batches."""
    return {
        "rows": round(float(np.mean([s.csr.num_rows for s in jobs]))),
        "distinct_sources": round(float(np.mean([s.distinct for s in jobs]))),
        "edges": round(float(np.mean([s.csr.num_edges for s in jobs]))),
    }


def bound_us(session: Session, jobs: list[Sums], features: int) -> float:
    """T = max((U F s + D F s + E (4 + w) + 8 (D + 1)) / BW_dram, E F s / BW_L2), averaged over ``jobs``."""
    gbps = bandwidths(session)
    return float(np.mean([
        aggregation_bound_us(
            s.distinct, s.csr.num_rows, s.csr.num_edges, features, gbps["dram_gbps"], gbps["l2_gbps"]
        ) for s in jobs
    ]))  # fmt: skip


def least_bytes(sums: Sums, features: int) -> int:
    """Bytes that must cross global memory: distinct sources, results, edges with weights, row bounds."""
    rows, edges = sums.csr.num_rows, sums.csr.num_edges
    return 4 * features * (sums.distinct + rows) + 8 * edges + 8 * (rows + 1)


def asked_bytes(sums: Sums, features: int, kernel: str) -> int:
    """Bytes that ``kernel`` asks of global memory and caches for these sums, by the cost model."""
    counts = aggregation_cost(SimpleNamespace(kept={"csr": sums.csr}), features, kernel)
    return counts.global_bytes + counts.written_bytes


def kernel_stage_rows(session: Session, name: str) -> list[dict[str, Any]]:
    """All three layers' sums of a mini-batch, both directions, by kernel: 128 columns for any graph's
    input, and the 64 of FastGL's GCN twice."""
    widths = (128, 64, 64)
    rows: list[dict[str, Any]] = []
    for kernel in KERNELS:
        sums = sum(
            kernel_us(session, name, layer, direction, width, kernel)
            for layer, width in enumerate(widths) for direction in DIRECTIONS
        )  # fmt: skip
        groups = 0.0
        if kernel in ("grouped", "gnnadvisor-style"):
            groups = sum(
                grouping_us(session, name, layer, d) for layer in range(len(widths)) for d in DIRECTIONS
            )
        rows.append({
            "graph": name, "kernel": kernel, "sums_ms": sums / 1e3, "preprocess_ms": groups / 1e3,
            "aggregate_ms": (sums + groups) / 1e3, "preprocess_percent": 100 * groups / (sums + groups),
        })  # fmt: skip
    base = next(row["aggregate_ms"] for row in rows if row["kernel"] == "library")
    for row in rows:
        row["speedup"] = base / row["aggregate_ms"]
    return rows
