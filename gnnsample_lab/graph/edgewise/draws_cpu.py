"""The CPU twin of ``synthetic.cu``: the same draws, bit for bit, compiled by Numba and run on all cores.

Functions release the GIL and take a range of work, so plain threads spread them; Numba's own parallel loops
would take several times longer to compile.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# Numba infers the types of these functions; annotations would only repeat the docstrings.
from __future__ import annotations

import numpy as np

from gnnsample_lab.device.jit import njit
from gnnsample_lab.device.philox import philox4x32

TAG_EDGE = 0x80000000
TAG_FEATURE = 0x90000000
TAG_WEIGHT = 0xB0000000
MAX_ATTEMPTS = 8

_32 = np.uint64(32)
_1 = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_255 = np.uint64(255)
_8, _16, _24 = np.uint64(8), np.uint64(16), np.uint64(24)
_20 = np.uint64(20)


@njit(cache=True)
def scatter_id(bijection, x):
    """Image of ``x`` (uint64) under the bijection ``[n, mask, shift, six constants]``."""
    n, mask, shift = bijection[0], bijection[1], bijection[2]
    while True:
        for r in range(3):
            x ^= x >> shift
            x = (x * bijection[3 + 2 * r] + bijection[4 + 2 * r]) & mask
        x ^= x >> shift
        if x < n:
            return x


@njit(cache=True)
def community(guide, starts, n, word):
    """The last class whose first rank is at most ``word * n / 2**32``; the guide jumps next to it."""
    rank = np.int64((word * n) >> _32)
    c = guide[word >> _20]
    while starts[c + 1] <= rank:
        c += 1
    return c


@njit(cache=True)
def member(word, power, size):
    """Member of a community of ``size`` for one 32-bit ``word``; powers above 1 favour its first members."""
    x = word
    for _ in range(1, power):
        x = (x * word) >> _32
    return np.int64((x * np.uint64(size)) >> _32)


@njit(cache=True)
def draw_community(e, k0, k1, bijection, guide, starts, same, dst_power, src_power, dst_flat, src_flat):
    """``(src, dst)`` of draw ``e`` of a community graph, uint64 vertex ids."""
    lo, hi = e & _LOW, e >> _32
    n = bijection[0]
    to = np.int64(0)
    origin = np.int64(0)
    for attempt in range(MAX_ATTEMPTS):
        rx, ry, rz, rw = philox4x32(lo, hi, np.uint64(attempt), np.uint64(TAG_EDGE), k0, k1)
        sx, sy, sz, _ = philox4x32(lo, hi, np.uint64(attempt), np.uint64(TAG_EDGE | 1), k0, k1)
        c = community(guide, starts, n, rx)
        d = c
        if rz >= same:
            d = community(guide, starts, n, rw)
        to = starts[c] + member(ry, 1 if sy < dst_flat else dst_power, starts[c + 1] - starts[c])
        origin = starts[d] + member(sx, 1 if sz < src_flat else src_power, starts[d + 1] - starts[d])
        if to != origin:
            break
    if to == origin:
        origin = to + 1 if to + 1 < np.int64(n) else np.int64(0)
    return scatter_id(bijection, np.uint64(origin)), scatter_id(bijection, np.uint64(to))


@njit(cache=True)
def draw_rmat(e, k0, k1, bijection, levels, t0, t1, t2):
    """``(src, dst)`` of draw ``e`` of an R-MAT graph (Chakrabarti et al., SDM'04), uint64 vertex ids."""
    lo, hi = e & _LOW, e >> _32
    n = bijection[0]
    origin = np.uint64(0)
    to = np.uint64(0)
    for level in range(0, levels, 8):
        words = philox4x32(lo, hi, np.uint64(level >> 3), np.uint64(TAG_EDGE | 2), k0, k1)
        packed = (words[0] | (words[1] << _32), words[2] | (words[3] << _32))
        for i in range(min(8, levels - level)):
            u = (packed[i >> 2] >> np.uint64(16 * (i & 3))) & np.uint64(0xFFFF)
            origin <<= _1
            to <<= _1
            if u >= t1:
                origin |= _1
            if (u >= t0 and u < t1) or u >= t2:
                to |= _1
    shift = np.uint64(levels)
    return scatter_id(bijection, (origin * n) >> shift), scatter_id(bijection, (to * n) >> shift)


@njit(cache=True)
def _keep(src, dst, bits, symmetric, low, high, keys, used):
    """Append the key of an edge, and of its reverse, where the destination is in ``[low, high)``; returns the count."""
    if np.int64(dst) >= low and np.int64(dst) < high:
        keys[used] = np.int64((dst << bits) | src)
        used += 1
    if symmetric and np.int64(src) >= low and np.int64(src) < high:
        keys[used] = np.int64((src << bits) | dst)
        used += 1
    return used


@njit(cache=True)
def community_keys(
    first, last, k0, k1, bijection, guide, starts, same, dst_power, src_power, dst_flat, src_flat,
    bits, symmetric, low, high, keys,
):  # fmt: skip
    """Keys of draws ``[first, last)`` with destination in ``[low, high)``; returns how many."""
    used = 0
    for e in range(first, last):
        src, dst = draw_community(
            np.uint64(e), k0, k1, bijection, guide, starts, same, dst_power, src_power, dst_flat, src_flat
        )
        used = _keep(src, dst, bits, symmetric, low, high, keys, used)
    return used


@njit(cache=True)
def rmat_keys(first, last, k0, k1, bijection, levels, t0, t1, t2, bits, symmetric, low, high, keys):
    """Keys of draws ``[first, last)`` with destination in ``[low, high)``; returns how many."""
    used = 0
    for e in range(first, last):
        src, dst = draw_rmat(np.uint64(e), k0, k1, bijection, levels, t0, t1, t2)
        used = _keep(src, dst, bits, symmetric, low, high, keys, used)
    return used


@njit(cache=True)
def key_histogram(keys, shift, counts):
    """Add to ``counts`` how many ``keys`` have their destination in each block of vertices."""
    for i in range(len(keys)):
        counts[keys[i] >> shift] += 1


@njit(cache=True)
def class_features(first_vertex, signal, k0, k1, labels, signs, features):
    """Features of the vertices from ``first_vertex`` on; ``signs``: int8[C, F] of the plan's ``centroid_signs``."""
    num_features = features.shape[1]
    for row in range(len(features)):
        vertex = np.uint64(first_vertex + row)
        own = signs[labels[row]]
        for group in range((num_features + 3) // 4):
            words = philox4x32(vertex & _LOW, vertex >> _32, np.uint64(group), np.uint64(TAG_FEATURE), k0, k1)
            for i in range(min(4, num_features - 4 * group)):
                w = words[i]
                total = (
                    (w & _255)
                    + ((w >> np.uint64(8)) & _255)
                    + ((w >> np.uint64(16)) & _255)
                    + (w >> np.uint64(24))
                )
                value = np.int64(total) - 510 + np.int64(own[4 * group + i]) * signal
                features[row, 4 * group + i] = np.float32(value) * np.float32(0.0078125)


@njit(cache=True)
def pair_weights(src, dst, k0, k1, low, step_size, weights):
    """Weights by the pair (src, dst): ``low`` plus 20 random bits times ``step_size``."""
    for e in range(len(weights)):
        s, d = np.uint64(src[e]), np.uint64(dst[e])
        high_words = (((s >> _32) << np.uint64(16)) | (d >> _32)) & _LOW
        word = philox4x32(s & _LOW, d & _LOW, high_words, np.uint64(TAG_WEIGHT), k0, k1)[0]
        weights[e] = low + np.float32(np.int64(word >> np.uint64(12))) * step_size
