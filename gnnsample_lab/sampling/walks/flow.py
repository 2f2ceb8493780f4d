# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""``lab.flow_walks``: dynamic random walks by weighted reservoir sampling (FlowWalker, Mei et al., VLDB'24).

A dynamic walk weighs the edges of a list anew in every step, because the weight depends on where the walk comes from.
Rejection (``lab.apps.Node2Vec``) needs a bound of that weight, alias tables cannot hold it. A reservoir reads the
list once, keeps one edge, and needs no table: edge i replaces what is kept with probability w_i / (w_0 + .. + w_i).
This file has the CPU twin; the kernel is in ``flow.cu``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gnnsample_lab.checks import flag, real, whole
from gnnsample_lab.checks import seed as checked_seed
from gnnsample_lab.device import kernels, philox, runtime, streams
from gnnsample_lab.device.jit import njit, prange
from gnnsample_lab.graph.graph import check_graph
from gnnsample_lab.sampling.memory import check_fits
from gnnsample_lab.sampling.neighbors.plan import as_argument

MAX_LENGTH = 2**24
MAX_BIAS = 2.0**12
"""Largest p or q, and largest 1 / p or 1 / q."""
_FACTOR_BITS = 24
"""Most bits of a factor; fewer where a list's weights leave less room below 2**63."""
MAX_WALKER = 2**56 - 1
FLOW = np.dtype([(name, np.int64) for name in (
    "indptr", "indices", "prefix", "starts", "out", "queue", "walkers", "length", "first", "seed", "returns", "near",
    "away",
)])  # fmt: skip
"""``Flow`` of ``flow.cu``."""
_THREADS, _BLOCKS_PER_SM = 256, 8
_FEW = 64
"""The least factor where a list's weights leave less than ``_FACTOR_BITS``."""


def flow_walks(
    graph: Any, roots: Any, length: int = 80, p: float = 1.0, q: float = 1.0, weighted: bool = True,
    device: str = "auto", seed: int = 0, *, first_walker: int = 0,
) -> Any:  # fmt: skip
    """Walk along in-neighbours, each step drawn from the whole list by a weighted reservoir.

    From v, reached from t, an edge to u is followed in proportion to its weight times 1/p where u = t, 1 where u is an
    in-neighbour of t, 1/q elsewhere (node2vec; :class:`lab.apps.Node2Vec` draws from the same distribution by
    rejection). With p = q = 1 the weight is the edge's own. The walks are a function of the arguments alone, the same
    on both devices; a walk ends where no edge has any weight.

    Args:
        graph: a :class:`~gnnsample_lab.graph.Graph`; moved to ``device`` if it is elsewhere.
        roots: where the walks begin, global ids ``[S]``; -1 for none.
        length: steps of a walk.
        p, q: return and in-out parameter, 2**-12 to 2**12. Beside the largest of 1/p, 1 and 1/q, which stands for
            2**24, the others are rounded to whole numbers, and are at least 1; a list of heavy weights leaves fewer
            bits, down to 12.
        weighted: False takes every edge's weight as 1.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        seed: 64-bit key of the draws.
        first_walker: number of the first walk in the draws; a call cut in parts gives each part its own.

    Returns:
        Ids ``[S, length + 1]``, the root first, -1 after the end; NumPy on the CPU, CuPy on the GPU.

    Raises:
        TypeError, ValueError: an argument is of the wrong type or not allowed; the message names it.
        MemoryError: the walks do not fit into memory.
        RuntimeError: ``device="cuda"`` without a usable GPU.
    """
    from gnnsample_lab.sampling.engine.plan import kept_sums
    from gnnsample_lab.sampling.engine.run import check_roots, moved

    check_graph(graph)
    length = whole("length", length, 1, MAX_LENGTH)
    p, q = (real(name, value, 1 / MAX_BIAS, MAX_BIAS) for name, value in (("p", p), ("q", q)))
    weighted, seed = flag("weighted", weighted), checked_seed(seed)
    first_walker = whole("first_walker", first_walker, 0, MAX_WALKER)
    target = runtime.resolve_device(device)
    with runtime.lock, streams.call(target == "cuda"):
        graph = moved(graph, target)
        if graph.max_in_degree >= 2**29:
            raise ValueError(
                f"graph has a vertex of in-degree {graph.max_in_degree}; a walk's draws number below 2**29 edges"
            )
        starts = check_roots(roots, graph.num_nodes, target)
        if starts.shape[1] > 1:
            raise ValueError(f"roots must have shape [S] (got {tuple(starts.shape)})")
        starts = starts.reshape(-1).astype(np.int64)
        prefix, heaviest = None, graph.max_in_degree
        if weighted and graph.edge_weight is not None:
            held = kept_sums(graph, graph.edge_weight)
            prefix = held["prefix"]
            if "heaviest" not in held and not p == q == 1:
                held["heaviest"] = _heaviest(graph, prefix)
            heaviest = held.get("heaviest", 0)
        factors = _factors(heaviest, p, q)
        run = _run_cpu if target == "cpu" else _run_gpu
        return run(graph, prefix, starts, length, factors, seed, first_walker)


def _heaviest(graph: Any, prefix: Any) -> int:
    """The largest sum of a list's weights; the host waits for it."""
    sums = prefix[graph.indptr[1:]] - prefix[graph.indptr[:-1]]
    return int(sums.max()) if sums.size else 0


def _factors(heaviest: int, p: float, q: float) -> tuple[int, int, int] | None:
    """Whole numbers in proportion to 1/p, 1 and 1/q, for lists whose weights add up to ``heaviest`` at most; None where
    all are alike.

    The largest is 2**24, or less where a list's weights leave less room below 2**63; the others are rounded.

    Raises:
        ValueError: a list's weights leave no room for factors, or so little that rounding would change one by 1 %.
    """
    if p == q == 1:
        return None
    bits = min(_FACTOR_BITS, 63 - heaviest.bit_length())
    if bits < 12:
        raise ValueError(
            "the weights of a list add up to more than a second-order walk can multiply; scale them down"
        )
    top = max(1 / p, 1.0, 1 / q)
    if bits < _FACTOR_BITS and min(1 / p, 1.0, 1 / q) / top * 2**bits < _FEW:
        raise ValueError(
            f"the weights of a list leave {bits} bits for 1/p, 1 and 1/q, too few for p={p:g} and q={q:g}; "
            "take p and q closer to 1, or scale the weights to smaller whole numbers"
        )
    returns, near, away = (max(1, round(x / top * 2**bits)) for x in (1 / p, 1.0, 1 / q))
    return returns, near, away


@njit(cache=True)
def _holds(indices, begin, end, v):
    high = end
    while begin < high:
        middle = (begin + high) >> 1
        if indices[middle] < v:
            begin = middle + 1
        else:
            high = middle
    return begin < end and indices[begin] == v


@njit(cache=True)
def _step(indptr, indices, prefix, v, before, walker, step, returns, near, away, seed):
    """Position of the edge that the reservoir keeps at the end of v's list, -1 for none."""
    begin, end = indptr[v], indptr[v + 1]
    total, kept = np.uint64(0), -1
    for at in range(begin, end):
        i = at - begin
        weight = np.uint64(1)
        if prefix.size:
            weight = prefix[at + 1] - prefix[at]
        if near:
            factor = near
            if before >= 0:
                if indices[at] == before:
                    factor = returns
                elif not _holds(indices, indptr[before], indptr[before + 1], indices[at]):
                    factor = away
            weight *= factor
        if weight == 0:
            continue
        total += weight
        group = i >> 1
        r = philox.four(walker, step, group >> 24, philox.FLOW, group & 0xFFFFFF, 0, seed)
        low, high = (r[2], r[3]) if i & 1 else (r[0], r[1])
        if philox.mulhi64((high << np.uint64(32)) | low, total) < weight:
            kept = at
    return kept


@njit(parallel=True, cache=True)
def _walks(indptr, indices, prefix, starts, length, returns, near, away, seed, first, out):
    for row in prange(starts.size):
        v, before = starts[row], np.int64(-1)
        out[row, 0] = v
        for step in range(length):
            if v < 0:
                break
            walker = np.uint64(first) + np.uint64(row)
            at = _step(indptr, indices, prefix, v, before, walker, step, returns, near, away, seed)
            before, v = v, np.int64(indices[at]) if at >= 0 else np.int64(-1)
            out[row, step + 1] = v


def _run_cpu(graph, prefix, starts, length, factors, seed, first):
    check_fits("roots x (length + 1)", starts.size, length + 1, graph.indices.itemsize)
    out = np.full((starts.size, length + 1), -1, graph.indices.dtype)
    sums = np.empty(0, np.uint64) if prefix is None else prefix
    returns, near, away = (np.uint64(x) for x in (factors or (0, 0, 0)))
    _walks(
        graph.indptr, graph.indices, sums, starts, length, returns, near, away, np.uint64(seed), np.uint64(first), out
    )  # fmt: skip
    return out


def _run_gpu(graph, prefix, starts, length, factors, seed, first):
    import cupy

    out = streams.empty((starts.size, length + 1), graph.indices.dtype, streams.Ready())
    out.data.memset_async(0xFF, out.nbytes)
    if not starts.size:
        return out
    queue = cupy.zeros(1, np.uint64)
    record = np.zeros(1, FLOW)
    arrays = {
        "indptr": graph.indptr, "indices": graph.indices, "prefix": prefix, "starts": starts, "out": out,
        "queue": queue,
    }  # fmt: skip
    for name, array in arrays.items():
        record[name] = 0 if array is None else array.data.ptr
    record["walkers"], record["length"] = starts.size, length
    record["first"], record["seed"] = first, np.array([seed], np.uint64).view(np.int64)
    record["returns"], record["near"], record["away"] = factors or (0, 0, 0)
    kernel = _kernel(
        "long" if graph.indices.dtype.itemsize == 8 else "int", int(prefix is not None), int(bool(factors))
    )
    blocks = min(-(-starts.size * 32 // _THREADS), runtime.num_sms() * _BLOCKS_PER_SM)
    kernel((blocks,), (_THREADS,), (as_argument(record),))
    return out


@functools.lru_cache(maxsize=8)
def _kernel(id_type: str, weighted: int, second: int) -> Any:
    macros: dict[str, int | str] = {"ID_T": id_type, "WEIGHTED": weighted, "SECOND": second}
    return kernels.load_module("sampling/walks/flow.cu", macros).get_function("flow").kernel
