# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""Random numbers of a call of ``next`` on the CPU, and how a call records its failure."""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device import philox
from gnnsample_lab.device.jit import njit

from .memory import (
    ATTEMPT,
    DRAWN,
    FAIL_CODE,
    FAIL_LINE,
    FOR_TRANSITS,
    MAX_ROUNDS,
    ROUNDS,
    SAMPLE,
    SEED,
    STEP,
    WORDS,
    J,
    K,
    M,
    get,
    put,
)  # fmt: skip


@njit(inline="always")
def fail(ctx, line, code):
    """Keep the first failure of a call."""
    if get(ctx, FAIL_CODE) == 0:
        put(ctx, FAIL_CODE, np.int64(code))
        put(ctx, FAIL_LINE, np.int64(line))


@njit(inline="always")
def start_stream(ctx, for_transits):
    put(ctx, FOR_TRANSITS, np.int64(for_transits))
    put(ctx, DRAWN, np.int64(0))
    put(ctx, ROUNDS, np.int64(0))


@njit(cache=True)
def refill(ctx, group):
    """Words of ``group`` of the call's stream; group 0 of ``next`` is shared by four neighbouring slots."""
    k, j, m = get(ctx, K), get(ctx, J), get(ctx, M)
    low = (get(ctx, ATTEMPT) << 22) | group
    if get(ctx, FOR_TRANSITS) != 0:
        item, low = (np.int64(1) << 31) | k, group
    elif group == 0:
        item = k * ((m + 3) >> 2) + (j >> 2)
    else:
        item = k * m + j
    r = philox.app_words(get(ctx, SAMPLE), item, get(ctx, STEP), low, np.uint64(get(ctx, SEED)))
    for i in range(4):
        put(ctx, WORDS + i, np.int64(philox.word(r, i)))


@njit(inline="always")
def next_word(ctx):
    n = get(ctx, DRAWN)
    put(ctx, DRAWN, n + 1)
    if get(ctx, FOR_TRANSITS) != 0:
        if n & 3 == 0:
            refill(ctx, n >> 2)
        return get(ctx, WORDS + (n & 3))
    if n == 0:
        refill(ctx, np.int64(0))
        return get(ctx, WORDS + (get(ctx, J) & 3))
    if (n - 1) & 3 == 0:
        refill(ctx, 1 + ((n - 1) >> 2))
    return get(ctx, WORDS + ((n - 1) & 3))


@njit(cache=True)
def lab_bits(ctx):
    return next_word(ctx)


@njit(cache=True)
def lab_below(ctx, n, line):
    if n <= 0:
        fail(ctx, line, 3)
        return np.int64(0)
    if n < 4294967296:
        product = np.uint64(next_word(ctx)) * np.uint64(n)
        low = product & np.uint64(0xFFFFFFFF)
        if low < np.uint64(n):
            remainder = (np.uint64(4294967296) - np.uint64(n)) % np.uint64(n)
            tries = 1
            while low < remainder and tries < 64:
                product = np.uint64(next_word(ctx)) * np.uint64(n)
                low = product & np.uint64(0xFFFFFFFF)
                tries += 1
        return np.int64(product >> np.uint64(32))
    first = np.uint64(next_word(ctx))
    second = np.uint64(next_word(ctx))
    return np.int64(philox.mulhi64((second << np.uint64(32)) | first, np.uint64(n)))


@njit(cache=True)
def lab_uniform(ctx):
    return np.float64(next_word(ctx)) * 2.0**-32


@njit(cache=True)
def lab_chance(ctx, p):
    return np.int64(np.float64(next_word(ctx)) < np.floor(p * 4294967296.0))


@njit(cache=True)
def lab_go_on(ctx, line):
    rounds = get(ctx, ROUNDS)
    put(ctx, ROUNDS, rounds + 1)
    if rounds < MAX_ROUNDS:
        return np.int64(1)
    fail(ctx, line, 10)
    return np.int64(0)


@njit(cache=True)
def lab_fail(ctx, line, code):
    fail(ctx, line, code)
    return np.int64(0)
