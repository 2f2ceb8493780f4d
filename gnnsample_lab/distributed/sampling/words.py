# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""Random numbers of sampling applications outside an application: the words that ``next`` would draw (``run_app``)."""

from __future__ import annotations

import numpy as np

from gnnsample_lab.device.jit import njit
from gnnsample_lab.sampling.apps.choices import TRIALS
from gnnsample_lab.sampling.engine.cpu import memory as mem
from gnnsample_lab.sampling.engine.cpu.memory import as_pointer, put
from gnnsample_lab.sampling.engine.cpu.stream import lab_below, lab_chance, start_stream

from .sectors import bisected, sectors_of

UNIFORM, WEIGHTED = 0, 1
UNCOUNTED = np.zeros(0, np.int64)
"""For :func:`move`: nobody asks what it reads."""


def key_of(seed: int) -> np.int64:
    """A 64-bit seed as the draws take it: its bits, signed."""
    return np.uint64(seed).view(np.int64)


@njit(inline="always")
def _call(ctx, k, j, attempt, for_transits):
    put(ctx, mem.K, np.int64(k))
    put(ctx, mem.J, np.int64(j))
    put(ctx, mem.ATTEMPT, np.int64(attempt))
    start_stream(ctx, for_transits)


@njit(cache=True)
def layer_draws(slots, bound, sample, step, size, attempt, seed, out):
    """``rng.below(bound)`` of the given slots of a collective step of ``size`` slots, into ``out``, ``int64[n]``."""
    own = np.zeros(mem.SLOTS, np.int64)
    ctx = as_pointer(np.int64(own.ctypes.data))
    own[mem.SAMPLE], own[mem.STEP], own[mem.M], own[mem.SEED] = sample, step, size, seed
    for i in range(slots.size):
        _call(ctx, 0, slots[i], attempt, 0)
        out[i] = lab_below(ctx, bound, 0)
    own[0] += out.size * 0  # both live until here: ctx is the one's address


@njit(cache=True)
def restarts(samples, walks, step, probability, seed, out):
    """Whether walks set out from their roots at ``step``: ``rng.chance`` of ``step_transits``, into ``bool[n]``."""
    own = np.zeros(mem.SLOTS, np.int64)
    ctx = as_pointer(np.int64(own.ctypes.data))
    own[mem.STEP], own[mem.M], own[mem.SEED] = step, 1, seed
    for i in range(samples.size):
        put(ctx, mem.SAMPLE, np.int64(samples[i]))
        _call(ctx, walks[i], 0, 0, 1)
        out[i] = lab_chance(ctx, probability) != 0
    own[0] += out.size * 0


@njit(cache=True)
def move(samples, walks, rows, indptr, indices, prefix, most, step, rule, termination, seed, out, reads):
    """Where walks come to that stand at the lists ``rows``; -1 where they end. Into ``out``, ids ``[n]``.

    Args:
        samples, walks: keys of the draws, ``int64[n]``: the sample and the transit of each.
        rows: of the lists, ``int64[n]``.
        indptr, indices: lists.
        prefix, most: of their integer weights, ``uint64``, and each row's largest, ``int64``; read when ``rule`` is
            WEIGHTED.
        rule: UNIFORM or WEIGHTED, as ``choices.uniform_edge`` and ``choices.weighted_edge``.
        termination: probability with which a walk ends before its step; negative where it is not asked.
        reads: gets the sectors that a GPU reads of these lists, added: records, entries and prefix sums, ``int64[3]``;
            :data:`UNCOUNTED`: they are not counted.
    """
    counts = reads.size > 0
    probes = np.empty(2 * TRIALS + 67 if counts else 0, np.int64)  # of every trial two sums, then a bisection
    own = np.zeros(mem.SLOTS, np.int64)
    ctx = as_pointer(np.int64(own.ctypes.data))
    own[mem.STEP], own[mem.M], own[mem.SEED] = step, 1, seed
    for i in range(samples.size):
        put(ctx, mem.SAMPLE, np.int64(samples[i]))
        _call(ctx, walks[i], 0, 0, 0)
        out[i] = -1
        if termination >= 0 and lab_chance(ctx, termination) != 0:
            continue
        begin = indptr[rows[i]]
        count = indptr[rows[i] + 1] - begin
        if counts:
            reads[0] += 1
        if count == 0:
            continue
        if rule == UNIFORM:
            out[i] = indices[begin + lab_below(ctx, count, 0)]
            if counts:
                reads[1] += 1
            continue
        heaviest = most[rows[i]]
        if heaviest == 0:
            continue
        found, n = np.int64(-1), 0
        for _ in range(TRIALS):
            e = lab_below(ctx, count, 0)
            if counts:
                probes[n], probes[n + 1] = begin + e, begin + e + 1
                n += 2
            if lab_below(ctx, heaviest, 0) < np.int64(prefix[begin + e + 1] - prefix[begin + e]):
                found = e
                break
        if found < 0:
            left = np.uint64(lab_below(ctx, np.int64(prefix[begin + count] - prefix[begin]), 0))
            for other in range(count):
                if prefix[begin + other + 1] - prefix[begin] > left:
                    found = np.int64(other)
                    break
            if counts:  # a GPU finds it by bisection below the weight of the list
                probes[n], probes[n + 1] = begin, begin + count
                n = bisected(begin, count, found, probes, n + 2)
        out[i] = indices[begin + found]
        if counts:
            reads[1] += 1
            reads[2] += sectors_of(probes[:n], 8)
    own[0] += out.size * 0


@njit(cache=True)
def find_weights(prefix, begins, ends, targets, out):
    """The last position whose sum is at most ``targets`` above the list's begin, as an index into the list."""
    for i in range(begins.size):
        low, high = begins[i], ends[i]
        base = prefix[begins[i]]
        while high - low > 1:
            mid = (low + high) >> 1
            if prefix[mid] - base <= np.uint64(targets[i]):
                low = mid
            else:
                high = mid
        out[i] = low
