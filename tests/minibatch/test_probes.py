"""Probe statistics and replayed insertions against a table in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.minibatch.id_map.probes import HASHES, home_slot, next_prime


def plain(ids, slots, hash):
    """Probes of each distinct id in order, and the keys of the full table."""
    table, probes = [None] * slots, []
    for v in map(int, ids):
        at, count = home_slot(v, slots, hash), 1
        while table[at] not in (None, v):
            at, count = (at + 1) % slots, count + 1
        if table[at] is None:
            table[at] = v
            probes.append(count)
    return probes, table


IDS = {
    "random": np.random.default_rng(0).integers(0, 10**6, 3000),
    "with duplicates": np.random.default_rng(1).integers(0, 500, 3000),
    "even": np.arange(0, 4096, 2),
    "one": np.array([7]),
    "wide": np.random.default_rng(2).integers(0, 2**62, 500),
}


@pytest.mark.parametrize("hash", HASHES)
@pytest.mark.parametrize("load_factor", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("name", IDS)
def test_statistics_are_those_of_a_plain_table(name, load_factor, hash):
    ids = IDS[name]
    found = lab.probe_statistics(ids, hash, load_factor, device="cpu")
    probes, _ = plain(ids, found.slots, hash)
    assert found.lengths.tolist() == np.bincount(probes).tolist() and found.lengths.dtype == np.int64
    assert found.longest == max(probes) and found.mean == pytest.approx(np.mean(probes))
    assert found.distinct == len(set(ids.tolist())) and found.duplicates == len(ids) - found.distinct
    assert found.load_factor == found.distinct / found.slots <= load_factor
    assert found.slots == (
        next_prime(found.slots) if hash == "modulo" else 1 << (found.slots - 1).bit_length()
    )
    if hash != "modulo":
        assert found.load_factor > load_factor / 2 or found.slots == 1


def test_the_sum_of_probes_does_not_depend_on_the_order():
    ids = IDS["random"]
    shuffled = np.random.default_rng(3).permutation(ids)
    for hash in HASHES:
        a, b = (lab.probe_statistics(x, hash, 0.9, device="cpu") for x in (ids, shuffled))
        assert a.mean == b.mean and a.slots == b.slots
    assert a.lengths.tolist() != b.lengths.tolist()


def test_low_bits_suffer_where_low_bits_are_alike_and_the_others_do_not():
    alike = np.arange(4096) * 1024
    mean = {h: lab.probe_statistics(alike, h, 0.5, device="cpu").mean for h in HASHES}
    assert mean["low-bits"] > 50 * mean["multiplicative"] and mean["low-bits"] > 50 * mean["modulo"]


def test_given_slots():
    assert lab.probe_statistics([1, 6, 11], "modulo", slots=5, device="cpu").lengths.tolist() == [0, 1, 1, 1]
    assert lab.probe_statistics([1, 9, 17], "low-bits", slots=8, device="cpu").longest == 3


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"hash": "sha"}, ValueError, "hash must be one of 'multiplicative'.*got 'sha'"),
        ({"load_factor": 0}, ValueError, "load_factor must be above 0 and at most 1 .got 0"),
        ({"load_factor": 1.5}, ValueError, "load_factor must be above 0"),
        ({"load_factor": float("nan")}, ValueError, "load_factor must be above 0"),
        ({"load_factor": "half"}, TypeError, "load_factor must be a number"),
        (
            {"load_factor": 1e-12},
            ValueError,
            "load_factor must leave at most .* slots, .*got 1e-12, .*3,000,000,000,000",
        ),
        ({"load_factor": 1e-12, "hash": "modulo"}, ValueError, "load_factor must leave at most"),
        ({"slots": 6}, ValueError, "slots must be a power of two with hash='multiplicative' .got 6"),
        ({"slots": 2}, ValueError, "slots must be at least the 3 distinct ids .got 2"),
        ({"slots": 4.0}, TypeError, "slots must be an integer"),
        ({"ids": []}, ValueError, "ids must be one-dimensional and not empty"),
        ({"ids": [[1]]}, ValueError, "ids must be one-dimensional"),
        ({"ids": [0.5]}, TypeError, "ids must be integers"),
        ({"ids": [-1]}, ValueError, "ids must be in 0"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        lab.probe_statistics(**{"ids": [1, 2, 3], "device": "cpu", **arguments})


@pytest.mark.gpu
@pytest.mark.parametrize("hash", HASHES)
@pytest.mark.parametrize("name", IDS)
def test_the_gpu_makes_as_many_probes(name, hash):
    for load_factor in (0.1, 0.5, 0.9):
        cpu = lab.probe_statistics(IDS[name], hash, load_factor, device="cpu")
        gpu = lab.probe_statistics(IDS[name], hash, load_factor, device="cuda")
        assert (gpu.mean, gpu.slots, gpu.duplicates, gpu.distinct) == (
            cpu.mean, cpu.slots, cpu.duplicates, cpu.distinct,
        )  # fmt: skip


# ---- step by step ----------------------------------------------------------------------------------------------------


def test_the_papers_example():
    """Figure 8: 5 slots, id modulo 5; 3 is put first, then found, and 8 collides with it."""
    steps = lab.fill_steps([3, 3, 8], 5)
    assert [s.probes for s in steps] == [(3,), (3,), (3, 4)]
    assert [s.is_new for s in steps] == [True, False, True]
    assert [s.local_id for s in steps] == [0, None, 1]
    assert [s.next_local_id for s in steps] == [1, 1, 2]
    assert steps[-1].keys == (-1, -1, -1, 3, 8) and steps[-1].values == (0, 0, 0, 0, 1)


def test_probing_wraps_around():
    steps = lab.fill_steps([4, 9, 14], 5)
    assert [s.probes for s in steps] == [(4,), (4, 0), (4, 0, 1)]


@pytest.mark.parametrize("hash", HASHES)
def test_steps_fill_the_plain_table(hash):
    ids = np.random.default_rng(4).integers(0, 100, 40)
    steps = lab.fill_steps(ids, 64, hash)
    probes, table = plain(ids, 64, hash)
    assert [len(s.probes) for s in steps if s.is_new] == probes
    assert [None if k == -1 else k for k in steps[-1].keys] == table
    first_seen = list(dict.fromkeys(ids.tolist()))
    assert {k: v for k, v in zip(steps[-1].keys, steps[-1].values) if k >= 0} == {
        v: i for i, v in enumerate(first_seen)
    }


def algorithm_2(ids, slots, hash, numbered):
    """FastGL's Algorithm 2, one id after the other: keys, values and LocalID at the end.

    Printed, the flag is True for a new key (line 16), and what has False is numbered (line 27).
    """
    keys, values, local_id = [-1] * slots, [0] * slots, 0
    for v in ids:
        at = home_slot(v, slots, hash)
        while keys[at] not in (-1, v):
            at = (at + 1) % slots  # line 20
        flag = keys[at] == -1  # lines 13 to 16
        keys[at] = v
        if flag == numbered:
            values[at] = local_id  # lines 28 and 29
            local_id += 1
    return tuple(keys), tuple(values), local_id


@pytest.mark.parametrize(("polarity", "numbered"), [("correct", True), ("printed", False)])
@pytest.mark.parametrize("hash", HASHES)
def test_steps_are_those_of_algorithm_2(hash, polarity, numbered):
    ids = np.random.default_rng(6).integers(0, 100, 70).tolist()
    slots = 67 if hash == "modulo" else 64
    steps = lab.fill_steps(ids, slots, hash, polarity=polarity)
    for i in (0, 1, 20, 69):
        assert (steps[i].keys, steps[i].values, steps[i].next_local_id) == algorithm_2(
            ids[: i + 1], slots, hash, numbered
        )


def test_the_printed_polarity_numbers_repetitions_instead_of_new_ids():
    steps = lab.fill_steps([3, 8, 3, 3, 8], 5, polarity="printed")
    assert [s.is_new for s in steps] == [True, True, False, False, False]
    assert [s.local_id for s in steps] == [None, None, 0, 1, 2]
    assert [s.next_local_id for s in steps] == [0, 0, 1, 2, 3]
    assert dict(zip(steps[-1].keys, steps[-1].values))[3] == 1  # changed by every repetition
    fresh = lab.fill_steps([3, 8], 5, polarity="printed")[-1]
    assert [fresh.values[at] for at in (3, 4)] == [0, 0]  # two vertices, one local id


def test_rounds_in_lock_step():
    rounds = lab.fill_rounds([3, 8, 13, 3], 5, 4)
    outcomes = [[(a.thread, a.slot, a.outcome, a.local_id) for a in r.attempts] for r in rounds]
    assert outcomes == [
        [(0, 3, "new", 0), (1, 3, "conflict", None), (2, 3, "conflict", None), (3, 3, "duplicate", None)],
        [(1, 4, "new", 1), (2, 4, "conflict", None)],
        [(2, 0, "new", 2)],
    ]
    assert [r.contention.tolist() for r in rounds] == [[0, 0, 0, 4, 0], [0, 0, 0, 0, 2], [1, 0, 0, 0, 0]]


@pytest.mark.parametrize("threads", [1, 3, 32, 1000])
def test_rounds_end_with_a_sound_table(threads):
    ids = np.random.default_rng(5).integers(0, 200, 90).tolist()
    rounds = lab.fill_rounds(ids, 128, threads, "multiplicative")
    attempts = [a for r in rounds for a in r.attempts]
    assert sorted(a.index for a in attempts if a.outcome != "conflict") == list(range(90))
    assert all(len({a.thread for a in r.attempts}) == len(r.attempts) <= threads for r in rounds)
    assert all(r.contention.sum() == len(r.attempts) for r in rounds)
    end = rounds[-1]
    values = {k: v for k, v in zip(end.keys, end.values) if k >= 0}
    assert set(values) == set(ids) and sorted(values.values()) == list(range(len(values)))
    assert end.next_local_id == len(values)
    if threads == 1:
        steps = lab.fill_steps(ids, 128, "multiplicative")
        assert (end.keys, end.values) == (steps[-1].keys, steps[-1].values)
        assert len(rounds) == sum(len(s.probes) for s in steps)


def test_bad_arguments_of_replays():
    with pytest.raises(ValueError, match="slots must be at least the 3 distinct ids .got 2"):
        lab.fill_steps([1, 2, 3], 2)
    with pytest.raises(ValueError, match="slots must be a power of two"):
        lab.fill_rounds([1], 5, 1, "low-bits")
    with pytest.raises(ValueError, match="threads must be between 1"):
        lab.fill_rounds([1], 5, 0)
    with pytest.raises(ValueError, match="polarity must be one of 'correct', 'printed'"):
        lab.fill_steps([1], 5, polarity="inverted")
    with pytest.raises(ValueError, match="hash must be one of"):
        lab.fill_steps([1], 5, "sha")
    with pytest.raises(ValueError, match="slots times ids must be at most"):
        lab.fill_steps(range(2000), 2048, "low-bits")


def test_more_slots_than_memory_holds_are_refused():
    with pytest.raises(ValueError, match="slots must be at most"):
        lab.probe_statistics([1], slots=2**40)
