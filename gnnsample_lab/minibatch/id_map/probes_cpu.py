# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""The CPU twin of ``probes.cu``."""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device.jit import njit

_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)
_ZERO, _ONE, _SHIFT = np.uint64(0), np.uint64(1), np.uint64(20)


@njit(cache=True)
def probe_lengths(ids, slots, hash):
    """Histogram of probes per distinct id, ``int64[longest + 1]``; ``hash``: 0 multiplicative, 1 modulo, 2 low bits."""
    keys = np.zeros(slots, np.uint64)
    counts = np.zeros(64, np.int64)
    for i in range(ids.size):
        v = np.uint64(ids[i])
        if hash == 0:
            at = (v * _FIBONACCI >> _SHIFT) & (slots - _ONE)
        elif hash == 1:
            at = v % slots
        else:
            at = v & (slots - _ONE)
        probes = 1
        while keys[at] != _ZERO and keys[at] != v + _ONE:
            at += _ONE
            if at == slots:
                at = _ZERO
            probes += 1
        if keys[at] == _ZERO:
            keys[at] = v + _ONE
            if probes >= counts.size:
                grown = np.zeros(2 * probes, np.int64)
                grown[: counts.size] = counts
                counts = grown
            counts[probes] += 1
    return counts
