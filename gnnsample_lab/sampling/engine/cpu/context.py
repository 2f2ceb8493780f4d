# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""The accessors of a call of ``next`` on the CPU: the twin of ``context.cuh``."""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device.jit import njit

from .memory import (
    BEGIN,
    COMBINED,
    COMBINED_PREFIX,
    COUNT,
    EDGE_COUNTS,
    EDGE_ROOM,
    EDGES,
    HISTORY,
    ID_BYTES,
    INDICES,
    INDPTR,
    MAX_WEIGHT,
    NUM_NODES,
    NUM_ROOTS,
    NUM_TRANSITS,
    PREFIX,
    ROOTS,
    ROW,
    SAMPLE,
    SIZE,
    STEP,
    TABLES,
    TRANSIT,
    TRANSITS,
    WIDTHS,
    J,
    K,
    get,
    read_f8,
    read_i4,
    read_i8,
    read_u4,
    write_i8,
)  # fmt: skip
from .stream import fail


@njit(inline="always")
def read_id(ctx, address, i):
    """Id ``i`` of an array of vertex ids."""
    if get(ctx, ID_BYTES) == 4:
        return read_i4(address, i)
    return read_i8(address, i)


@njit(inline="always")
def inside(ctx, v, line):
    """Whether ``v`` is a vertex. NULL is not one, but it is no failure; any other number is a failure."""
    if 0 <= v < get(ctx, NUM_NODES):
        return True
    if v != -1:
        fail(ctx, line, 2)
    return False


@njit(inline="always")
def begin_of(ctx, v):
    return read_i8(get(ctx, INDPTR), v)


@njit(inline="always")
def weight_at(ctx, position):
    prefix = get(ctx, PREFIX)
    if prefix == 0:
        return np.int64(1)
    return read_i8(prefix, position + 1) - read_i8(prefix, position)


@njit(inline="always")
def find(ctx, begin, count, v):
    """Whether ``v`` is among ``count`` ascending ids at edge position ``begin``."""
    indices = get(ctx, INDICES)
    low, high = begin, begin + count
    while low < high:
        mid = (low + high) >> 1
        if read_id(ctx, indices, mid) < v:
            low = mid + 1
        else:
            high = mid
    return low < begin + count and read_id(ctx, indices, low) == v


@njit(inline="always")
def last_at_most(address, count, x):
    """Last ``i`` below ``count`` with ``address[i] <= x`` (``int64``, ascending); -1 if none."""
    low, high = np.int64(-1), np.int64(count)
    while high - low > 1:
        mid = (low + high) >> 1
        if read_i8(address, mid) <= x:
            low = mid
        else:
            high = mid
    return low


@njit(inline="always")
def search_weights(prefix, begin, count, x):
    """Which of the ``count`` edges from position ``begin`` on has ``x`` in its interval of ``prefix``, -1 if none."""
    before = read_i8(prefix, begin)
    if x < 0 or x >= read_i8(prefix, begin + count) - before:
        return np.int64(-1)
    return last_at_most(prefix + begin * 8, count + 1, x + before)


@njit(cache=True)
def lab_edge_count(ctx):
    return get(ctx, COUNT)


@njit(inline="always")
def _edge(ctx, i):
    combined = get(ctx, COMBINED)
    if combined != 0:
        return read_i8(combined, i)
    return read_id(ctx, get(ctx, INDICES), get(ctx, BEGIN) + i)


@njit(cache=True)
def lab_edge(ctx, i, line):
    if not 0 <= i < get(ctx, COUNT):
        fail(ctx, line, 1)
        return np.int64(-1)
    return _edge(ctx, i)


@njit(cache=True)
def lab_edge_weight(ctx, i, line):
    if not 0 <= i < get(ctx, COUNT):
        fail(ctx, line, 1)
        return np.int64(0)
    prefix = get(ctx, COMBINED_PREFIX)
    if prefix != 0:
        return read_i8(prefix, i + 1) - read_i8(prefix, i)
    return weight_at(ctx, get(ctx, BEGIN) + i)


@njit(cache=True)
def lab_edge_prefix(ctx, i, line):
    if not 0 <= i <= get(ctx, COUNT):
        fail(ctx, line, 1)
        return np.int64(0)
    combined, prefix = get(ctx, COMBINED_PREFIX), get(ctx, PREFIX)
    if combined != 0:
        return read_i8(combined, i)
    if prefix == 0:
        return np.int64(i)
    begin = get(ctx, BEGIN)
    return read_i8(prefix, begin + i) - read_i8(prefix, begin)


@njit(cache=True)
def lab_edge_search(ctx, x, line):
    count, combined, prefix = get(ctx, COUNT), get(ctx, COMBINED_PREFIX), get(ctx, PREFIX)
    if combined != 0:
        i = last_at_most(combined, count + 1, x)
    elif prefix == 0:
        i = np.int64(x)
    else:
        i = search_weights(prefix, get(ctx, BEGIN), count, x)
    if not 0 <= i < count:
        fail(ctx, line, 1)
        return np.int64(0)
    return i


@njit(cache=True)
def lab_edge_has(ctx, v, line):
    if not inside(ctx, v, line):
        return np.int64(0)
    if get(ctx, COMBINED) == 0:
        return np.int64(find(ctx, get(ctx, BEGIN), get(ctx, COUNT), v))
    for k in range(get(ctx, NUM_TRANSITS)):
        t = read_i8(get(ctx, TRANSITS), k)
        if t >= 0 and find(ctx, begin_of(ctx, t), begin_of(ctx, t + 1) - begin_of(ctx, t), v):
            return np.int64(1)
    return np.int64(0)


@njit(cache=True)
def lab_transit_count(ctx):
    return get(ctx, NUM_TRANSITS) if get(ctx, TRANSIT) < -1 else np.int64(1)


@njit(cache=True)
def lab_transit(ctx, k, line):
    own = get(ctx, TRANSIT)
    if not 0 <= k < (get(ctx, NUM_TRANSITS) if own < -1 else 1):
        fail(ctx, line, 8)
        return np.int64(-1)
    return read_i8(get(ctx, TRANSITS), k) if own < -1 else own


@njit(cache=True)
def lab_prev_vertex(ctx, i, pos, line):
    at = get(ctx, STEP) + 1 - i
    if i < 1 or pos < 0:
        fail(ctx, line, 8)
        return np.int64(-1)
    if at < 0:
        return np.int64(-1)
    width = read_i8(get(ctx, WIDTHS), at)
    if pos >= width:
        fail(ctx, line, 8)
        return np.int64(-1)
    return read_id(ctx, read_i8(get(ctx, HISTORY), at), get(ctx, ROW) * width + pos)


@njit(cache=True)
def lab_prev_count(ctx, i, line):
    at = get(ctx, STEP) + 1 - i
    if i < 1:
        fail(ctx, line, 8)
        return np.int64(0)
    return read_i8(get(ctx, WIDTHS), at) if at >= 0 else np.int64(0)


@njit(cache=True)
def lab_root_count(ctx):
    return get(ctx, NUM_ROOTS)


@njit(cache=True)
def lab_root(ctx, i, line):
    if not 0 <= i < get(ctx, NUM_ROOTS):
        fail(ctx, line, 8)
        return np.int64(-1)
    return read_i8(get(ctx, ROOTS), i)


@njit(cache=True)
def lab_root_replace(ctx, old, new, line):
    if new != -1 and not inside(ctx, new, line):
        return np.int64(0)
    roots = get(ctx, ROOTS)
    for i in range(get(ctx, NUM_ROOTS)):
        if read_i8(roots, i) == old:
            write_i8(roots, i, np.int64(new))
            return np.int64(0)
    fail(ctx, line, 7)
    return np.int64(0)


@njit(cache=True)
def lab_add_edge(ctx, u, v, line):
    if not inside(ctx, u, line) or not inside(ctx, v, line):
        return np.int64(0)
    row, room = get(ctx, ROW), get(ctx, EDGE_ROOM)
    at = read_i8(get(ctx, EDGE_COUNTS), row)
    write_i8(get(ctx, EDGE_COUNTS), row, at + 1)
    if at < room:
        first = (row * room + at) * 3
        write_i8(get(ctx, EDGES), first, get(ctx, STEP))
        write_i8(get(ctx, EDGES), first + 1, np.int64(u))
        write_i8(get(ctx, EDGES), first + 2, np.int64(v))
    return np.int64(0)


@njit(cache=True)
def lab_size(ctx):
    return get(ctx, SIZE)


@njit(cache=True)
def lab_sample_id(ctx):
    return get(ctx, SAMPLE)


@njit(cache=True)
def lab_slot(ctx):
    return get(ctx, J)


@njit(cache=True)
def lab_transit_index(ctx):
    return get(ctx, K)


@njit(cache=True)
def lab_num_nodes(ctx):
    return get(ctx, NUM_NODES)


@njit(cache=True)
def lab_degree(ctx, v, line):
    if not inside(ctx, v, line):
        return np.int64(0)
    return begin_of(ctx, v + 1) - begin_of(ctx, v)


@njit(cache=True)
def lab_max_weight(ctx, v, line):
    if not inside(ctx, v, line):
        return np.int64(0)
    most = get(ctx, MAX_WEIGHT)
    if most == 0:
        return np.int64(begin_of(ctx, v + 1) > begin_of(ctx, v))
    return read_u4(most, v)


@njit(inline="always")
def _neighbor(ctx, v, i, over, line):
    """Edge position of neighbour ``i`` of ``v``; -1 and a failure if ``i`` is out of range (``over`` extends it)."""
    if inside(ctx, v, line):
        begin = begin_of(ctx, v)
        if 0 <= i < begin_of(ctx, v + 1) - begin + over:
            return begin + i
    fail(ctx, line, 1)
    return np.int64(-1)


@njit(cache=True)
def lab_neighbor(ctx, v, i, line):
    position = _neighbor(ctx, v, i, 0, line)
    return read_id(ctx, get(ctx, INDICES), position) if position >= 0 else np.int64(-1)


@njit(cache=True)
def lab_neighbor_weight(ctx, v, i, line):
    position = _neighbor(ctx, v, i, 0, line)
    return weight_at(ctx, position) if position >= 0 else np.int64(0)


@njit(cache=True)
def lab_neighbor_prefix(ctx, v, i, line):
    if v == -1 and i == 0:
        return np.int64(0)
    position = _neighbor(ctx, v, i, 1, line)
    prefix = get(ctx, PREFIX)
    if position < 0 or prefix == 0:
        return np.int64(i) if position >= 0 else np.int64(0)
    return read_i8(prefix, position) - read_i8(prefix, begin_of(ctx, v))


@njit(cache=True)
def lab_neighbor_search(ctx, v, x, line):
    if not inside(ctx, v, line):
        fail(ctx, line, 1)
        return np.int64(0)
    begin, prefix = begin_of(ctx, v), get(ctx, PREFIX)
    count = begin_of(ctx, v + 1) - begin
    i = np.int64(x) if prefix == 0 else search_weights(prefix, begin, count, x)
    if not 0 <= i < count:
        fail(ctx, line, 1)
        return np.int64(0)
    return i


@njit(cache=True)
def lab_has_edge(ctx, v, u, line):
    if not inside(ctx, v, line) or not inside(ctx, u, line):
        return np.int64(0)
    begin = begin_of(ctx, v)
    return np.int64(find(ctx, begin, begin_of(ctx, v + 1) - begin, u))


@njit(cache=True)
def lab_table_int(ctx, t, i, line):
    if not 0 <= i < get(ctx, TABLES + 2 * t + 1):
        fail(ctx, line, 9)
        return np.int64(0)
    return read_i8(get(ctx, TABLES + 2 * t), i)


@njit(cache=True)
def lab_table_float(ctx, t, i, line):
    if not 0 <= i < get(ctx, TABLES + 2 * t + 1):
        fail(ctx, line, 9)
        return 0.0
    return read_f8(get(ctx, TABLES + 2 * t), i)


@njit(cache=True)
def lab_table_search(ctx, t, x, line):
    table = get(ctx, TABLES + 2 * t)
    low, high = np.int64(0), get(ctx, TABLES + 2 * t + 1)
    while low < high:  # probes as in accessors.cuh: unsorted tables give the same result on both devices
        middle = (low + high) >> 1
        if read_i8(table, middle) <= x:
            low = middle + 1
        else:
            high = middle
    if low > 0:
        return low - 1
    fail(ctx, line, 9)
    return np.int64(0)


@njit(cache=True)
def lab_table_search_float(ctx, t, x, line):
    table = get(ctx, TABLES + 2 * t)
    low, high = np.int64(0), get(ctx, TABLES + 2 * t + 1)
    while low < high:
        middle = (low + high) >> 1
        if read_f8(table, middle) <= x:
            low = middle + 1
        else:
            high = middle
    if low > 0:
        return low - 1
    fail(ctx, line, 9)
    return np.int64(0)
