# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""Arithmetic of sampling functions where a machine's own differs from Python's, or is undefined.

The front end takes these functions as source and puts those that an application needs beside it, so that Numba and
numba-cuda compile one text. Integers have 64 bits and wrap; where they may, they are computed without a sign, since to
both compilers overflow of signed numbers is undefined. What has no result tells ``lab_fail`` its place, ``line``,
and goes on with a harmless number; codes are those of :data:`.accessors.FAILURES`.
"""

from __future__ import annotations

import numpy as np

lab_word, lab_whole = np.uint64, np.int64


def lab_fail(ctx, line, code):
    """Stands for the accessor, which the compilers put in its place."""
    raise NotImplementedError


def lab_divide(ctx, x, y, line):
    if y == 0.0:
        lab_fail(ctx, line, 4)
        return 0.0
    return x / y


def lab_floor_divide(ctx, x, y, line):
    if y == 0:
        lab_fail(ctx, line, 4)
        return 0
    if y == -1:  # the one quotient that may not fit: a division instruction traps on it
        return lab_whole(lab_word(0) - lab_word(x))
    return x // y


def lab_modulo(ctx, x, y, line):
    if y == 0:
        lab_fail(ctx, line, 4)
        return 0
    if y == -1:
        return 0
    return x % y


def lab_shift_left(ctx, x, count, line):
    if count < 0 or count > 63:
        lab_fail(ctx, line, 11)
        return 0
    return x << count


def lab_shift_right(ctx, x, count, line):
    if count < 0 or count > 63:
        lab_fail(ctx, line, 11)
        return 0
    return x >> count


def lab_power(ctx, x, exponent):
    product = lab_word(1)
    for _ in range(exponent):
        product = product * lab_word(x)
    return lab_whole(product)


def lab_truncate(ctx, x, line):
    if x >= -9223372036854775808.0 and x < 9223372036854775808.0:
        return int(x)
    lab_fail(ctx, line, 12)
    return 0


def lab_round(ctx, x, line):
    if x >= -9223372036854775808.0 and x < 9223372036854775808.0:
        whole = int(x)
        part = x - float(whole)
        if part > 0.5 or (part == 0.5 and whole & 1 == 1):
            return whole + 1
        if part < -0.5 or (part == -0.5 and whole & 1 == 1):
            return whole - 1
        return whole
    lab_fail(ctx, line, 12)
    return 0


def lab_absolute_int(ctx, x):
    return x if x >= 0 else lab_whole(lab_word(0) - lab_word(x))


def lab_absolute_float(ctx, x):
    return x if x > 0.0 else 0.0 - x


def lab_least(ctx, a, b):
    return b if b < a else a


def lab_most(ctx, a, b):
    return b if b > a else a


def lab_rounds(ctx, first, end, by, line):
    """Rounds of ``range(first, end, by)``."""
    if by == 0:
        lab_fail(ctx, line, 13)
        return 0
    if (by > 0 and end <= first) or (by < 0 and end >= first):
        return 0
    high, low, stride = (end, first, lab_word(by)) if by > 0 else (first, end, lab_word(0) - lab_word(by))
    rounds = lab_whole((lab_word(high) - lab_word(low) - lab_word(1)) // stride + lab_word(1))
    if rounds <= 0:
        lab_fail(ctx, line, 14)
        return 0
    return rounds
