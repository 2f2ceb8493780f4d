"""Which edges of the graph join the vertices of samples (kernels in ``links.cu``, twins in ``links_cpu.py``).

Layer-wise samplers train on these: FastGCN and LADIES on the matrix between two layers, ClusterGCN on the sub-graph of
all vertices of a sample (NextDoor, section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, is_cuda_array, shown, whole
from gnnsample_lab.device import kernels, runtime
from gnnsample_lab.device.arrays import array_module

from . import links_cpu

NORMALISE = (None, "row", "importance", "importance-row")
_THREADS = 256


@dataclass(frozen=True, eq=False)
class LayerAdjacency:
    """Edges between two layers of all samples, in order of (sample, row, column). NumPy or CuPy.

    Attributes:
        shape: samples, rows (transit slots of the step) and columns (vertex slots of the step).
        sample: which sample, ``int64[n]``.
        row: transit slot, ``int32[n]``: the edge's destination.
        column: vertex slot, ``int32[n]``: the edge's source.
        position: index of the edge in ``graph.indices``, the lowest of parallel ones, ``int64[n]``.
        weight: of the entry, parallel edges together, ``float64[n]``; None where none was asked for.

    A vertex that is in several slots of a layer has its edges in each of them.
    """

    shape: tuple[int, int, int]
    sample: Any
    row: Any
    column: Any
    position: Any
    weight: Any = None

    @property
    def num_edges(self) -> int:
        return int(self.sample.size)

    def matrix(self, sample: int) -> Any:
        """The matrix of one sample, ``float64[rows, columns]``: weights, or 1 where none were asked for."""
        xp, own = array_module(self.sample), self.sample == whole("sample", sample, 0, self.shape[0] - 1)
        out = xp.zeros(self.shape[1:])
        out[self.row[own], self.column[own]] = 1.0 if self.weight is None else self.weight[own]
        return out

    def __repr__(self) -> str:
        samples, rows, columns = self.shape
        return f"LayerAdjacency({samples:,} samples of {rows} x {columns}, {self.num_edges:,} edges)"


@dataclass(frozen=True, eq=False)
class InducedGraphs:
    """The sub-graphs that samples induce, as one CSR over all of them. NumPy or CuPy.

    Attributes:
        vertices: distinct vertices of each sample, global ids in ascending order, samples one after the other, ``[n]``.
        begins: where each sample's vertices begin, ``int64[S + 1]``.
        indptr: where the in-edges of each of ``vertices`` begin, ``int64[n + 1]``.
        indices: source of each edge as a number among its sample's vertices, ``int32``, in ascending order.
        positions: index of each edge in ``graph.indices``, ``int64``; parallel edges are all there.
    """

    vertices: Any
    begins: Any
    indptr: Any
    indices: Any
    positions: Any

    @property
    def num_edges(self) -> int:
        return int(self.indices.size)

    def sample(self, number: int) -> tuple[Any, Any, Any]:
        """Vertices (global ids), ``indptr`` and ``indices`` (local ids) of one sample's sub-graph."""
        number = whole("number", number, 0, self.begins.size - 2)
        begin, end = (int(x) for x in self.begins[number : number + 2])
        indptr = self.indptr[begin : end + 1]
        return self.vertices[begin:end], indptr - indptr[0], self.indices[int(indptr[0]) : int(indptr[-1])]

    def __repr__(self) -> str:
        samples, vertices = self.begins.size - 1, self.vertices.size
        return f"InducedGraphs({samples:,} samples, {vertices:,} vertices, {self.num_edges:,} edges)"


def step_of(result: Any, step: int) -> int:
    """``step``, a step that the result has.

    Raises:
        TypeError, ValueError: not a whole number, or there is no such step.
    """
    if not result.num_steps:
        raise ValueError(f"step must be one of the result's, which has none (got {shown(step)})")
    return whole("step", step, 0, result.num_steps - 1)


def adjacency(result: Any, step: int, normalise: str | None = None) -> LayerAdjacency:
    """Edges of the graph between the transits of ``step`` and the vertices that it added, sample by sample.

    Args:
        result: an :class:`~.result.AppResult` whose transits are those of the step before.
        step: which step; step 0 has the roots as transits.
        normalise: how to compute the weights from the graph's edge weights (1 if it has none; parallel edges are one
            entry, which weighs their sum). None: no weights. ``"row"``: divide by the sum of the row; a row of zeros
            stays one. ``"importance"``: divide by ``size * q``, where q is the probability with which one draw gives
            the column's vertex (FastGCN, equation 10; LADIES, section 3.2); the application gives q by a method
            ``layer_probability(result, step)``, ``float[S, width]``. Where vertices are drawn with replacement, the
            expected sum of a row is then the sum over all in-neighbours. Where a layer's vertices are distinct
            (``unique``), as LADIES draws them, it is not: q is that of a first draw, and likely vertices count too
            little. ``"importance-row"``: the same, then divide every row by its sum, as LADIES does, so that the
            scale of a row does not depend on how its vertices were drawn.

    Raises:
        ValueError: no such step, an unknown ``normalise``, an application without ``layer_probability``, or one
            whose transits are not kept.
    """
    step = step_of(result, step)
    choice("normalise", normalise, NORMALISE)
    q = None
    if normalise and normalise.startswith("importance"):
        if not callable(getattr(result.app, "layer_probability", None)):
            raise ValueError(
                f"normalise={normalise!r} needs an application with layer_probability(result, step) "
                f"(got {result.app!r})"
            )
        with (
            runtime.lock
        ):  # it prepares the application, of which a run on another thread may be in the midst
            q = result.app.layer_probability(result, step)
    transits, vertices = result.transits(step), result.steps[step]
    parts = _link_layers(result.graph, transits, vertices)
    samples, rows = transits.shape
    weight = _weights(normalise, q, result, step, transits, parts) if normalise else None
    return LayerAdjacency((samples, rows, vertices.shape[1]), *parts, weight)


def _weights(normalise: str, q: Any, result: Any, step: int, transits: Any, parts: Any) -> Any:
    sample, row, column, position = parts
    xp = array_module(sample)
    weight = _entries(result.graph, transits[sample, row], position)
    if q is not None:
        weight /= result.shape[step].size * xp.asarray(q, dtype=np.float64)[sample, column]
    if normalise.endswith("row") and sample.size:
        at = sample * result.shape[step].transits + row
        starts = xp.concatenate([xp.ones(1, bool), at[1:] != at[:-1]])
        number = xp.cumsum(starts) - 1  # edges of a row are contiguous
        sums = xp.bincount(number, weights=weight)
        weight /= xp.where(sums > 0, sums, 1)[number]  # edges of weight 0 may be all that a row has
    return weight


def _entries(graph: Any, transit: Any, position: Any) -> Any:
    """Sums of the weights of the parallel edges from ``position`` on, in the lists of ``transit``, ``float64[n]``."""
    xp, given = array_module(position), graph.edge_weight
    weight = xp.ones(position.size) if given is None else given[position].astype(np.float64)
    source, last = graph.indices[position], graph.indptr[transit + 1] - 1
    several = xp.flatnonzero((position < last) & (graph.indices[xp.minimum(position + 1, last)] == source))
    if not several.size:
        return weight
    source, first, last = source[several], position[several], last[several]
    low, high = first + 1, last  # the last of the parallel edges is one of these
    while bool((low < high).any()):  # bounded: halves what is between
        middle = (low + high + 1) >> 1
        same = graph.indices[middle] == source
        low, high = xp.where(same, middle, low), xp.where(same, high, middle - 1)
    counts = low - first + 1
    if given is None:
        weight[several] = counts
        return weight
    ends = xp.cumsum(counts)
    of = xp.searchsorted(ends, xp.arange(int(ends[-1])), side="right")
    edges = first[of] + xp.arange(of.size) - (ends - counts)[of]
    weight[several] = xp.bincount(of, weights=given[edges].astype(np.float64), minlength=several.size)
    return weight


def induced(result: Any) -> InducedGraphs:
    """The sub-graph of all edges between the vertices of each sample, roots included."""
    samples = result.samples
    xp = array_module(samples)
    ordered = xp.sort(samples, axis=1)
    keep = ordered >= 0
    keep[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    begins = xp.zeros(samples.shape[0] + 1, dtype=np.int64)
    xp.cumsum(keep.sum(axis=1), out=begins[1:])
    vertices = xp.ascontiguousarray(ordered[keep])
    owners = xp.searchsorted(begins, xp.arange(vertices.size), side="right") - 1
    indptr, indices, positions = _link_vertices(result.graph, vertices, owners, begins)
    return InducedGraphs(vertices, begins, indptr, indices, positions)


def locate(graph: Any, destination: Any, source: Any) -> Any:
    """Lowest position in ``graph.indices`` of every edge ``source[i] -> destination[i]``, -1 for none; ``int64[n]``.

    Ids are global, of the type of ``graph.indices``, and on the graph's device.
    """
    if not is_cuda_array(destination):
        positions = np.empty(destination.size, dtype=np.int64)
        links_cpu.locate(graph.indptr, graph.indices, destination, source, positions)
        return positions
    import cupy

    found = cupy.empty(destination.size, dtype=np.int64)
    _launch(
        graph,
        "locate",
        found.size,
        graph.indptr,
        graph.indices,
        destination,
        source,
        np.int64(found.size),
        found,
    )
    return found


def _begins(counts: Any) -> tuple[Any, int]:
    """Where each row's edges go, and how many there are (the host waits for that number)."""
    xp = array_module(counts)
    ends = xp.cumsum(counts.reshape(-1))
    return (ends.reshape(counts.shape) - counts), int(ends[-1]) if ends.size else 0


def _link_layers(graph: Any, transits: Any, vertices: Any) -> tuple[Any, Any, Any, Any]:
    xp = array_module(transits)
    transits, vertices = xp.ascontiguousarray(transits), xp.ascontiguousarray(vertices)
    slots = xp.argsort(vertices, axis=1)
    ordered = xp.ascontiguousarray(xp.take_along_axis(vertices, slots, axis=1))
    counts = xp.zeros(transits.shape, dtype=np.int64)
    order = None if xp is np else xp.argsort(transits.reshape(-1))

    def run(begins: Any, outs: tuple[Any, ...]) -> None:
        if xp is np:
            links_cpu.link_layers(
                graph.indptr, graph.indices, transits, vertices, ordered, slots, counts, begins, *outs
            )
        else:
            sizes = (np.int64(transits.size), np.int64(transits.shape[1]))
            nulls = outs if begins.size else (np.uintp(0),) * 4
            _launch(
                graph, "link_layers", transits.size * 32, graph.indptr, graph.indices, transits, order, *sizes,
                vertices, ordered, slots, np.int64(vertices.shape[1]), counts,
                begins if begins.size else np.uintp(0), *nulls,
            )  # fmt: skip

    def outs(n: int) -> tuple[Any, Any, Any, Any]:
        return xp.empty(n, np.int64), xp.empty(n, np.int32), xp.empty(n, np.int32), xp.empty(n, np.int64)

    if not transits.size or not vertices.size:
        return outs(0)
    run(xp.empty((0, 0), np.int64), outs(0))
    begins, total = _begins(counts)
    found = outs(total)
    if total:
        run(begins, found)
    return found


def _link_vertices(graph: Any, vertices: Any, owners: Any, sample_begin: Any) -> tuple[Any, Any, Any]:
    xp = array_module(vertices)
    counts = xp.zeros(vertices.size, dtype=np.int64)
    order = None if xp is np else xp.argsort(vertices)

    def run(begins: Any, columns: Any, positions: Any) -> None:
        if xp is np:
            links_cpu.link_vertices(
                graph.indptr,
                graph.indices,
                vertices,
                owners,
                sample_begin,
                counts,
                begins,
                columns,
                positions,
            )
        else:
            outs = (begins, columns, positions) if begins.size else (np.uintp(0),) * 3
            _launch(
                graph, "link_vertices", vertices.size * 32, graph.indptr, graph.indices, vertices, order,
                np.int64(vertices.size), owners, sample_begin, counts, *outs,
            )  # fmt: skip

    none = xp.empty(0, np.int64), xp.empty(0, np.int32), xp.empty(0, np.int64)
    if vertices.size:
        run(*none)
    begins, total = _begins(counts)
    columns, positions = xp.empty(total, np.int32), xp.empty(total, np.int64)
    if total:
        run(begins, columns, positions)
    return xp.concatenate([begins, xp.full(1, total, np.int64)]), columns, positions


def _launch(graph: Any, name: str, threads: int, *args: Any) -> None:
    macros: dict[str, int | str] = {"ID_T": "int" if graph.indices.dtype.itemsize == 4 else "long"}
    kernel = kernels.load_module("sampling/engine/results/links.cu", macros).get_function(name)
    grid = max(1, min(-(-threads // _THREADS), runtime.num_sms() * 16))
    kernel((grid,), (_THREADS,), args)
