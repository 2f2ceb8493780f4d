# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""Philox4x32-10 (Salmon et al., SC'11) and the draws built on it: the CPU twin of ``philox.cuh``.

Every random number of the package is a pure function of a 128-bit counter and the 64-bit seed, so a sample
depends neither on threads nor on time. The counter is an injective layout of four 32-bit words:

====  =====================================================================
word  contents
====  =====================================================================
0     vertex id, low 32 bits
1     vertex id, next 24 bits, and the attempt (redraws of one draw) << 24
2     batch id
3     purpose << 28, hop << 24, index of the group of four draws
====  =====================================================================
"""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device.jit import njit

FLOYD, RESERVOIR, WEIGHTED, REPLACE = 1, 2, 3, 4
WALK, RESTART, APP = 5, 6, 7
FISHER_YATES, FLOW = 13, 14
"""8 to 12 belong to the generator of graphs, whose key may be the same."""

MAX_HOPS = 15
"""Most hops: the counter has four bits for the hop."""
MAX_BATCH_ID = 2**32 - 1
MAX_DEGREE = 2**26
"""Most draws of one (vertex, hop): the counter has 24 bits for the index of a group of four."""

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


@njit(inline="always")
def _rounds(c0, c1, c2, c3, k0, k1):
    # Everything is uint64 with explicit masks, because Numba promotes mixed integer types to float64.
    for _ in range(10):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return c0, c1, c2, c3


@njit(cache=True)
def philox4x32(c0, c1, c2, c3, k0, k1):
    """Ten rounds of Philox4x32 on counter ``(c0, c1, c2, c3)`` with key ``(k0, k1)``.

    Returns four ``uint64`` values below 2**32: the four 32-bit words of the published generator.
    """
    return _rounds(
        np.uint64(c0) & _LOW, np.uint64(c1) & _LOW, np.uint64(c2) & _LOW, np.uint64(c3) & _LOW,
        np.uint64(k0) & _LOW, np.uint64(k1) & _LOW,
    )  # fmt: skip


@njit(inline="always")
def four(vertex, batch, hop, purpose, group, attempt, seed):
    """The four words of draws ``4*group .. 4*group+3`` of one (vertex, batch, hop, purpose) stream."""
    v = np.uint64(vertex)
    w3 = (np.uint64(purpose) << np.uint64(28)) | (np.uint64(hop) << np.uint64(24)) | np.uint64(group)
    s = np.uint64(seed)
    return _rounds(
        v & _LOW, ((v >> _32) | (np.uint64(attempt) << np.uint64(24))) & _LOW, np.uint64(batch) & _LOW, w3 & _LOW,
        s & _LOW, s >> _32,
    )  # fmt: skip


@njit(inline="always")
def word(r, i):
    """Word ``i & 3`` of a result of :func:`four`."""
    i = i & 3
    return r[0] if i == 0 else r[1] if i == 1 else r[2] if i == 2 else r[3]


@njit(cache=True)
def redraw(vertex, batch, hop, purpose, index, bound, m, seed):
    """The rare branch of :func:`bounded`: draw again while the product is in the remainder that would cause bias."""
    b = np.uint64(bound)
    remainder = (np.uint64(0x100000000) - b) % b
    attempt = 1
    while (m & _LOW) < remainder and attempt < 256:
        m = word(four(vertex, batch, hop, purpose, index >> 2, attempt, seed), index) * b
        attempt += 1
    return m


@njit(inline="always")
def bounded(vertex, batch, hop, purpose, index, w, bound, seed):
    """An exactly uniform integer in ``[0, bound)`` from the 32-bit word ``w`` of draw ``index``.

    The result is the high word of a product. In a share of ``bound / 2**32`` of all cases, which would favour some
    results, the draw is repeated with the next attempt number.
    """
    m = w * np.uint64(bound)
    if (m & _LOW) < np.uint64(bound):
        m = redraw(vertex, batch, hop, purpose, index, bound, m, seed)
    return np.int64(m >> _32)


@njit(inline="always")
def mulhi64(a, b):
    """High 64 bits of the 128-bit product of two ``uint64``."""
    a0, a1 = a & _LOW, a >> _32
    b0, b1 = b & _LOW, b >> _32
    mid = a1 * b0 + ((a0 * b0) >> _32)
    mid2 = a0 * b1 + (mid & _LOW)
    return a1 * b1 + (mid >> _32) + (mid2 >> _32)


@njit(inline="always")
def bounded64(vertex, batch, hop, purpose, index, bound, seed):
    """An integer in ``[0, bound)`` for bounds beyond 32 bits: 64 random bits and multiply-high."""
    r = four(vertex, batch, hop, purpose, index >> 1, 0, seed)
    bits = ((r[3] << _32) | r[2]) if index & 1 else ((r[1] << _32) | r[0])
    return mulhi64(bits, np.uint64(bound))


@njit(inline="always")
def app_words(sample, item, step, low, seed):
    """The four words of an application's draws (``sampling/engine``): its own layout under purpose ``APP``.

    ``sample``: below 2**40; ``item``: 32 bits; ``step``: below 2**24; ``low``: the last word's other 28 bits.
    """
    x, s = np.uint64(sample), np.uint64(seed)
    return _rounds(
        x & _LOW, np.uint64(item) & _LOW, np.uint64(step) | ((x >> _32) << np.uint64(24)),
        (np.uint64(APP) << np.uint64(28)) | np.uint64(low), s & _LOW, s >> _32,
    )  # fmt: skip


@njit(cache=True)
def app_integers(out, bound, step, seed, first):
    """Fill ``out`` (``int64[S, R]``) with integers in ``[0, bound)``, by sample and item; 64-bit multiply-high.

    ``first``: id of sample 0, ``int64``.
    """
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            r = app_words(first + i, j, step, 0, seed)
            out[i, j] = np.int64(mulhi64((r[1] << _32) | r[0], np.uint64(bound)))
