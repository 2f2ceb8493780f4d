# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""The CPU twins of ``links.cu``. A row looks up its list or the vertices, whichever takes fewer probes."""

from __future__ import annotations

import numpy as np
from numba import get_num_threads

from gnnsample_lab.device.jit import njit, prange


@njit(inline="always")
def _lower_bound(values, low, high, v):
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < v:
            low = middle + 1
        else:
            high = middle
    return low


@njit(inline="always")
def _probes(times, length):
    bits = 0
    while length >> bits:
        bits += 1
    return times * bits


@njit(parallel=True, cache=True)
def locate(indptr, indices, destination, source, positions):
    for i in prange(destination.size):
        end = indptr[destination[i] + 1]
        at = _lower_bound(indices, indptr[destination[i]], end, source[i])
        positions[i] = at if at < end and indices[at] == source[i] else -1


@njit(parallel=True, cache=True)
def link_layers(
    indptr,
    indices,
    transits,
    vertices,
    ordered,
    slots,
    counts,
    begins,
    sample_out,
    row_out,
    column_out,
    position_out,
):
    """Count every row's edges, or write them if ``begins`` is not empty."""
    samples, rows = transits.shape
    width = vertices.shape[1]
    for sample in prange(samples):
        found = np.empty(width, np.int64)
        for k in range(rows):
            transit = transits[sample, k]
            counts[sample, k] = 0
            if transit < 0:
                continue
            found[:] = -1
            first, end = indptr[transit], indptr[transit + 1]
            if _probes(end - first, width) < _probes(width, end - first):
                for e in range(end - 1, first - 1, -1):  # descending: the lowest of parallel edges remains
                    at = _lower_bound(ordered[sample], 0, width, indices[e])
                    while at < width and ordered[sample, at] == indices[e]:
                        found[slots[sample, at]] = e
                        at += 1
            else:
                for column in range(width):
                    v = vertices[sample, column]
                    if v >= 0:
                        at = _lower_bound(indices, first, end, v)
                        if at < end and indices[at] == v:
                            found[column] = at
            n = 0
            for column in range(width):
                if found[column] >= 0:
                    if begins.size:
                        to = begins[sample, k] + n
                        sample_out[to], row_out[to], column_out[to] = sample, k, column
                        position_out[to] = found[column]
                    n += 1
            counts[sample, k] = n


@njit(inline="always")
def _mark(members, vertices, low, high):
    for at in range(low, high):
        members[vertices[at] >> 6] |= np.uint64(1) << np.uint64(vertices[at] & 63)


@njit(parallel=True, cache=True)
def link_vertices(indptr, indices, vertices, owners, sample_begin, counts, begins, column_out, position_out):
    chunks = min(get_num_threads(), vertices.size)
    for chunk in prange(chunks):
        # A bit for each vertex of the graph says whether the sample at hand has it: most edges end there.
        members = np.zeros((indptr.size >> 6) + 1, np.uint64)
        marked = -1
        for row in range(chunk * vertices.size // chunks, (chunk + 1) * vertices.size // chunks):
            first, end = indptr[vertices[row]], indptr[vertices[row] + 1]
            low, high = sample_begin[owners[row]], sample_begin[owners[row] + 1]
            n = 0
            if end - first <= _probes(high - low, end - first):
                if marked != owners[row]:
                    if marked >= 0:
                        for at in range(sample_begin[marked], sample_begin[marked + 1]):
                            members[vertices[at] >> 6] = 0
                    _mark(members, vertices, low, high)
                    marked = owners[row]
                for e in range(first, end):
                    v = indices[e]
                    if members[v >> 6] >> np.uint64(v & 63) & np.uint64(1):
                        if begins.size:
                            at = _lower_bound(vertices, low, high, v)
                            column_out[begins[row] + n], position_out[begins[row] + n] = at - low, e
                        n += 1
            else:
                for at in range(low, high):
                    e = _lower_bound(indices, first, end, vertices[at])
                    while e < end and indices[e] == vertices[at]:
                        if begins.size:
                            column_out[begins[row] + n], position_out[begins[row] + n] = at - low, e
                        n += 1
                        e += 1
            counts[row] = n
