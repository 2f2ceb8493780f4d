"""The behaviour of hash tables: probes per insertion, and insertions replayed step by step or thread by thread.

All tables here use linear probing, as the ID maps do: a key that finds its slot taken by another key tries the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.checks import choice, host_array, real, whole
from gnnsample_lab.device import runtime
from gnnsample_lab.device.host import free_host_bytes
from gnnsample_lab.sampling.neighbors.sizes import power_of_two

HASHES: dict[str, str] = {
    "multiplicative": "Fibonacci hashing, as the ID maps use it: middle bits of id x 2^64 / golden ratio",
    "modulo": "id modulo the number of slots, a prime unless given (FastGL, figure 8)",
    "low-bits": "the id's lowest bits: what is left of modulo when slots are a power of two",
}
POLARITIES = ("correct", "printed")
_NUMBERS = {name: number for number, name in enumerate(HASHES)}
_GOLDEN, _WORD = 0x9E3779B97F4A7C15, 2**64 - 1
_MAX_SLOTS = 2**40
_MAX_CELLS = 1_000_000
"""Most slots times ids of a replay, which keeps a copy of the table for every step."""


@dataclass(frozen=True, eq=False)
class ProbeStatistics:
    """Probes of inserting distinct ids into a hash with linear probing.

    The set of slots that are taken in the end, and the sum of all probes, do not depend on the order of insertion; the
    probes of a single id do. So ``mean`` is the same for every order and device, while the histogram and ``longest``
    belong to one order: the order of ``ids`` on the CPU, the order in which threads inserted on a GPU.

    Attributes:
        lengths: ``int64[longest + 1]``, how many distinct ids took that many probes (1: the first slot was free).
        mean: probes per distinct id.
        longest: most probes of one id.
        slots: slots of the table.
        load_factor: distinct ids per slot, the actual value.
        duplicates: ids that the table already had; they are not counted in ``lengths``.
        hash: name of the hash function.
    """

    lengths: np.ndarray
    mean: float
    longest: int
    slots: int
    load_factor: float
    duplicates: int
    hash: str

    @property
    def distinct(self) -> int:
        return int(self.lengths.sum())

    def __repr__(self) -> str:
        return (
            f"ProbeStatistics({self.hash!r}, {self.distinct} ids in {self.slots} slots ({self.load_factor:.2f} full), "
            f"mean {self.mean:.2f} probes, longest {self.longest})"
        )


def probe_statistics(
    ids: Any,
    hash: str = "multiplicative",
    load_factor: float = 0.5,
    device: str = "auto",
    slots: int | None = None,
) -> ProbeStatistics:
    """Insert ``ids`` into an empty hash and count probes.

    Args:
        ids: global ids, duplicates allowed; any integer array, values in ``0..2**63 - 2``.
        hash: ``"multiplicative"``, ``"modulo"`` or ``"low-bits"``.
        load_factor: distinct ids per slot, above 0 and at most 1. The number of slots is rounded up, to a prime for
            ``"modulo"`` and to a power of two otherwise, so the actual factor (an attribute) may be as low as half.
        slots: the number of slots, instead of ``load_factor``; a power of two unless ``hash="modulo"``.

    Raises:
        TypeError, ValueError: ids are no integers, negative, not one-dimensional or none; an unknown hash; a bad load
            factor; slots too few for the distinct ids or no power of two.
    """
    choice("hash", hash, HASHES)
    given = _host_ids(ids)
    distinct = int(np.unique(given).size)
    load_factor = real("load_factor", load_factor, high=1, above=0)
    room = free_host_bytes() // 8
    if slots is None:
        least = max(1, int(np.ceil(distinct / load_factor)))
        if least > min(_MAX_SLOTS, room):
            raise ValueError(
                f"load_factor must leave at most {min(_MAX_SLOTS, room):,} slots, for which there is memory (got "
                f"{load_factor:g}, which makes {least:,})"
            )
        slots = next_prime(least) if hash == "modulo" else power_of_two(least)
    slots = _checked_slots(slots, hash, distinct)
    if slots > room:
        raise ValueError(f"slots must be at most {room:,}, for which there is memory (got {slots:,})")
    if runtime.resolve_device(device) == "cuda":
        with runtime.lock:
            lengths = _lengths_gpu(given, slots, hash)
    else:
        from .probes_cpu import probe_lengths

        lengths = probe_lengths(given, np.uint64(slots), _NUMBERS[hash])
    longest = int(np.flatnonzero(lengths)[-1])
    mean = float((lengths * np.arange(lengths.size)).sum() / distinct)
    return ProbeStatistics(
        lengths[: longest + 1], mean, longest, slots, distinct / slots, int(given.size) - distinct, hash
    )


def _lengths_gpu(ids: np.ndarray, slots: int, hash: str) -> np.ndarray:
    import cupy

    from gnnsample_lab.device import kernels

    module = kernels.load_module("minibatch/id_map/probes.cu", {"HASH": _NUMBERS[hash]})
    items, keys = cupy.asarray(ids), cupy.zeros(slots, np.uint64)
    n, width = np.uint64(items.size), np.uint64(slots)
    module.get_function("fill").kernel((-(-items.size // 256),), (256,), (items, n, keys, width))
    lengths = cupy.empty(slots, np.int64)
    module.get_function("lengths").kernel((-(-slots // 256),), (256,), (keys, width, lengths))
    counts = cupy.asnumpy(cupy.bincount(lengths)).astype(np.int64)
    counts[0] = 0  # free slots
    return counts


def next_prime(n: int) -> int:
    """The smallest prime that is at least ``n``."""
    n = max(2, n)
    while any(n % d == 0 for d in range(2, int(n**0.5) + 1)):
        n += 1
    return n


def home_slot(id: int, slots: int, hash: str = "modulo") -> int:
    """The slot at which probing for ``id`` begins."""
    if hash == "modulo":
        return id % slots
    return (id if hash == "low-bits" else (id * _GOLDEN & _WORD) >> 20) & (slots - 1)


# ---- replayed insertions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FillStep:
    """One call of Fused-Map (FastGL, algorithm 2), and the table after it.

    Attributes:
        index, id: which of the ids, and its value.
        probes: slots looked at, in order; in the last one the id was found or inserted.
        is_new: no earlier call had put the id there.
        local_id: the local id written by this call, None when it wrote none.
        keys: id in each slot after the step, -1 for empty.
        values: local id in each slot after the step (0 where none was written, as the table starts).
        next_local_id: the counter after the step.
    """

    index: int
    id: int
    probes: tuple[int, ...]
    is_new: bool
    local_id: int | None
    keys: tuple[int, ...]
    values: tuple[int, ...]
    next_local_id: int


def fill_steps(ids: Any, slots: int, hash: str = "modulo", polarity: str = "correct") -> list[FillStep]:
    """Insert ``ids`` one after the other.

    Args:
        ids: global ids, duplicates allowed.
        hash: as for :func:`probe_statistics`.
        slots: slots of the table, as many as distinct ids at least (figure 8 of the paper: 5).
        polarity: ``"correct"``: the call that inserts a key takes the next local id. ``"printed"``: as the paper's
            algorithm 2 prints it (line 16 sets the flag for a *new* key, line 27 assigns an id if it is *not* set): new
            ids get no local id, every repetition overwrites the local id, and the counter counts repetitions.

    Raises:
        TypeError, ValueError: ids as for :func:`probe_statistics`; too few slots; too many slots times ids; an
            unknown ``hash`` or ``polarity``.
    """
    choice("polarity", polarity, POLARITIES)
    given, table = _small(ids, slots, hash)
    steps, counter = [], 0
    for index, v in enumerate(given):
        at = home_slot(v, slots, hash)
        probes = [at]
        while table.keys[at] not in (-1, v):
            at = (at + 1) % slots
            probes.append(at)
        is_new = table.keys[at] == -1
        table.keys[at] = v
        written = None
        if is_new == (polarity == "correct"):
            written = table.values[at] = counter
            counter += 1
        steps.append(FillStep(index, v, tuple(probes), is_new, written, *table.snapshot(), counter))
    return steps


@dataclass(frozen=True)
class Attempt:
    """One atomicCAS: thread, id, slot and outcome: ``"new"``, ``"duplicate"`` (the slot has this id: done) or
    ``"conflict"`` (the slot has another id: the thread tries the next slot in the next round)."""

    thread: int
    index: int
    id: int
    slot: int
    outcome: str
    local_id: int | None


@dataclass(frozen=True, eq=False)
class FillRound:
    """One lock-step round: every thread that has an id left does one atomicCAS.

    Attributes:
        attempts: in the order in which this replay serves them, by thread.
        contention: atomics on each slot in this round, ``int64[slots]``; those on one slot run one after the other.
        keys, values, next_local_id: the table and the counter after the round, as in :class:`FillStep`.
    """

    attempts: tuple[Attempt, ...]
    contention: np.ndarray
    keys: tuple[int, ...]
    values: tuple[int, ...]
    next_local_id: int


def fill_rounds(ids: Any, slots: int, threads: int, hash: str = "modulo") -> list[FillRound]:
    """Insert ``ids`` by ``threads`` threads in lock-step; thread ``t`` takes ids ``t``, ``t + threads``, and so on.

    A thread takes its next id in the round after its last one was inserted or found. Polarity is ``"correct"``.

    Args:
        ids, slots, hash: as for :func:`fill_steps`.
        threads: how many threads, 1 to 2**20.

    Raises:
        TypeError, ValueError: as :func:`fill_steps`; ``threads`` below 1.
    """
    whole("threads", threads, 1, 2**20)
    given, table = _small(ids, slots, hash)
    work = [list(range(t, len(given), threads)) for t in range(min(threads, len(given)))]
    at = [home_slot(given[mine[0]], slots, hash) for mine in work]
    rounds, counter = [], 0
    while any(work):
        attempts = []
        contention = np.zeros(slots, dtype=np.int64)
        for thread, mine in enumerate(work):
            if not mine:
                continue
            index, slot = mine[0], at[thread]
            v, local = given[index], None
            contention[slot] += 1
            outcome = {-1: "new", v: "duplicate"}.get(table.keys[slot], "conflict")
            if outcome == "new":
                table.keys[slot] = v
                local = table.values[slot] = counter
                counter += 1
            if outcome == "conflict":
                at[thread] = (slot + 1) % slots
            else:
                mine.pop(0)
                if mine:
                    at[thread] = home_slot(given[mine[0]], slots, hash)
            attempts.append(Attempt(thread, index, v, slot, outcome, local))
        rounds.append(FillRound(tuple(attempts), contention, *table.snapshot(), counter))
    return rounds


class _Table:
    def __init__(self, slots: int) -> None:
        self.keys, self.values = [-1] * slots, [0] * slots

    def snapshot(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(self.keys), tuple(self.values)


def _small(ids: Any, slots: Any, hash: str) -> tuple[list[int], _Table]:
    choice("hash", hash, HASHES)
    given = _host_ids(ids).tolist()
    slots = _checked_slots(slots, hash, len(set(given)))
    if len(given) * slots > _MAX_CELLS:
        raise ValueError(
            f"slots times ids must be at most {_MAX_CELLS}, for every step keeps a copy of the table "
            f"(got {slots} slots, {len(given)} ids)"
        )
    return given, _Table(slots)


def _checked_slots(slots: Any, hash: str, distinct: int) -> int:
    checked = whole("slots", slots, 1, _MAX_SLOTS)
    if checked < distinct:
        raise ValueError(f"slots must be at least the {distinct} distinct ids (got {checked})")
    if hash != "modulo" and checked & (checked - 1):
        raise ValueError(f"slots must be a power of two with hash={hash!r} (got {checked})")
    return checked


def _host_ids(ids: Any) -> np.ndarray:
    array = host_array("ids", ids)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"ids must be one-dimensional and not empty (got shape {array.shape})")
    if array.dtype.kind not in "iu":
        raise TypeError(f"ids must be integers (got dtype {array.dtype})")
    if int(array.min()) < 0 or int(array.max()) > 2**63 - 2:
        raise ValueError(f"ids must be in 0..{2**63 - 2} (got {int(array.min())}..{int(array.max())})")
    return array.astype(np.int64)
