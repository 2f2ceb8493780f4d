"""The generator against the published vectors and against big integers; the draws against their definition."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gnnsample_lab.device import philox
from gnnsample_lab.graph.edgewise import draws_cpu, plan
from tests.sampling.neighbors.pick_oracle import MASK, Stream, unphilox
from tests.sampling.neighbors.pick_oracle import philox as oracle

HEADER = Path(philox.__file__).with_suffix(".cuh").read_text(encoding="utf-8")

# The known answers that Random123 publishes for philox4x32 with ten rounds: counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
words = st.integers(0, MASK)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS, ids=["zeros", "ones", "pi"])
def test_published_vectors(counter, key, result):
    assert philox.philox4x32(*numbers(counter), *numbers(key)) == numbers(result)
    assert oracle(numbers(counter), numbers(key)) == numbers(result)


@settings(max_examples=200, deadline=None)
@given(st.tuples(words, words, words, words), st.tuples(words, words))
def test_any_counter_and_key(counter, key):
    result = philox.philox4x32(*counter, *key)
    assert result == oracle(counter, key)
    assert unphilox(result, key) == counter


fields = st.tuples(
    st.integers(0, 2**56 - 1),  # vertex
    words,  # batch
    st.integers(0, philox.MAX_HOPS),
    st.integers(0, 15),  # purpose
    st.integers(0, philox.MAX_DEGREE // 4 - 1),  # group
    st.integers(0, 255),  # attempt
    st.integers(0, 2**64 - 1),  # seed
)


def unpack(result: tuple[int, ...], seed: int) -> tuple[int, ...]:
    """The fields of the draw that gave ``result``, by undoing the generator."""
    c0, c1, c2, c3 = unphilox(result, (seed & MASK, seed >> 32))
    vertex, attempt = (c1 & 0xFFFFFF) << 32 | c0, c1 >> 24
    return vertex, c2, c3 >> 24 & 15, c3 >> 28, c3 & 0xFFFFFF, attempt, seed


def draw(vertex, batch, hop, purpose, group, attempt, seed):
    # What a kernel passes: all of them as 64-bit words.
    return philox.four(*(np.uint64(x) for x in (vertex, batch, hop, purpose, group, attempt, seed)))


@settings(max_examples=500, deadline=None)
@given(fields)
def test_the_counter_holds_every_field(given_fields):
    """All seven fields can be read back from a draw's counter, so no two draws share one."""
    assert unpack(draw(*given_fields), given_fields[-1]) == given_fields


def test_the_counter_holds_every_single_bit():
    top = (2**56 - 1, MASK, 15, 15, 2**24 - 1, 255)
    seen = {draw(0, 0, 0, 0, 0, 0, 9)}
    for place, highest in enumerate(top):
        for bit in range(highest.bit_length()):
            values = [0] * 6
            values[place] = 1 << bit
            assert unpack(draw(*values, 9), 9) == (*values, 9)
            seen.add(draw(*values, 9))
    assert len(seen) == 1 + sum(h.bit_length() for h in top)
    assert unpack(draw(*top, 9), 9) == (*top, 9)


def test_every_bit_of_the_seed_matters():
    seen = {draw(1, 2, 3, 4, 5, 6, seed) for seed in (0, *(1 << bit for bit in range(64)))}
    assert len(seen) == 65


def test_limits_fit_their_fields():
    assert philox.MAX_HOPS < 2**4
    assert philox.MAX_BATCH_ID < 2**32
    assert philox.MAX_DEGREE // 4 <= 2**24
    # A vertex id of 64 bits loses no bit that a graph can use.
    from gnnsample_lab.graph.checks import id_dtype

    assert id_dtype(2**31) == np.int64


@pytest.mark.parametrize("i", range(8))
def test_word_takes_the_draws_in_order(i):
    assert philox.word((10, 11, 12, 13), i) == 10 + i % 4


def bounded(stream: Stream, seed: int, index: int, bound: int) -> int:
    purpose, hop = stream.tag >> 28, stream.tag >> 24 & 15
    word = philox.word(draw(stream.vertex, stream.batch, hop, purpose, index // 4, 0, seed), index)
    return int(philox.bounded(stream.vertex, stream.batch, hop, purpose, index, np.uint64(word), bound, seed))


SEED = 0x0123456789ABCDEF


BOUNDS = (1, 2, 3, 7, 10, 1000, 2**24 + 1, 2**26)
LARGE_BOUNDS = (2**31 - 1, 2**31, 2**31 + 1, 2**31 + 12345, 3 * 2**30, 2**32 - 1)


@pytest.mark.parametrize("bound", BOUNDS + LARGE_BOUNDS)
def test_bounded_is_its_definition(bound):
    stream = Stream(2**40 + 7, 5, 2, 1, SEED)
    for index in range(200):
        found = bounded(stream, SEED, index, bound)
        assert found == stream.bounded(index, bound)
        assert 0 <= found < bound
    if 2**31 < bound < 2**31 + 2**20:
        # The remainder is nearly half of all words: the redraw was taken about as often as not, several times over.
        assert stream.redraws > 100


def test_bounded_is_uniform_where_multiply_high_alone_is_not():
    """With bound 3 * 2**30 a third of the results would get half of the words, were nothing drawn again."""
    stream, bound, n = Stream(11, 12, 3, 2, SEED), 3 * 2**30, 3000
    kept = np.bincount([bounded(stream, SEED, i, bound) % 3 for i in range(n)], minlength=3)
    assert stats.chisquare(kept).pvalue > 1e-3
    first_words = [stream.words(i // 4)[i % 4] for i in range(n)]
    naive = np.bincount([(w * bound >> 32) % 3 for w in first_words], minlength=3)
    assert stats.chisquare(naive).pvalue < 1e-12


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_mulhi64_is_the_high_half_of_the_product(a, b):
    assert int(philox.mulhi64(np.uint64(a), np.uint64(b))) == a * b >> 64


@pytest.mark.parametrize("a", [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
@pytest.mark.parametrize("b", [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
def test_mulhi64_at_the_edges(a, b):
    assert int(philox.mulhi64(np.uint64(a), np.uint64(b))) == a * b >> 64


@settings(max_examples=200, deadline=None)
@given(fields, st.integers(1, 2**64 - 1), st.integers(0, 4095))
def test_bounded64_is_its_definition(given_fields, bound, index):
    vertex, batch, hop, purpose, _, _, seed = given_fields
    arguments = (np.uint64(x) for x in (vertex, batch, hop, purpose))
    found = int(philox.bounded64(*arguments, index, np.uint64(bound), np.uint64(seed)))
    assert found == Stream(vertex, batch, hop, purpose, seed).bounded64(index, bound)
    assert 0 <= found < bound


def test_the_cuda_header_has_the_same_purposes():
    found = {name: int(value) for name, value in re.findall(r"#define LAB_PURPOSE_(\w+) (\d+)u", HEADER)}
    names = ("FLOYD", "RESERVOIR", "WEIGHTED", "REPLACE", "WALK", "RESTART", "APP", "FISHER_YATES", "FLOW")
    assert found == {name: getattr(philox, name) for name in names}
    assert len(set(found.values())) == len(names)
    graphs = {
        draws_cpu.TAG_EDGE,
        draws_cpu.TAG_FEATURE,
        draws_cpu.TAG_WEIGHT,
        plan.TAG_CENTROID,
        plan.TAG_BIJECTION,
    }
    assert {tag >> 28 for tag in graphs} == set(range(8, 13))  # a graph and its samples may have the same key
    assert not set(found.values()) & set(range(8, 13)) and all(0 < value < 16 for value in found.values())


def test_the_cuda_header_has_the_same_constants():
    ours = {int(philox._M0), int(philox._M1), int(philox._W0), int(philox._W1)}
    in_cuda = {int(text, 16) for text in re.findall(r"0x([0-9A-F]{8})u", HEADER)}
    assert ours == in_cuda == {0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85}


@pytest.mark.gpu
def test_the_cuda_twin_agrees():
    import cupy

    from gnnsample_lab.device.kernels import inline_source

    kernel_source = r"""
    extern "C" __global__ void draw(const u64* f, u32* four, u32* small, u64* large, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        f += 9 * i;
        const Draws d(f[0], (u32)f[1], (u32)f[2], (u32)f[3], f[6]);
        const uint4 r = d.four((u32)f[4], (u32)f[5]);
        four[4 * i] = r.x; four[4 * i + 1] = r.y; four[4 * i + 2] = r.z; four[4 * i + 3] = r.w;
        const u32 index = (u32)f[4] & 4095;
        small[i] = lab_bounded(d, index, lab_word(d.four(index >> 2), index & 3), (u32)f[7]);
        large[i] = lab_bounded64(d, index, f[8]);
    }"""
    source = inline_source(Path(philox.__file__).with_suffix(".cuh")) + kernel_source
    n = 4096
    rng = np.random.default_rng(0)
    tops = (2**56 - 1, MASK, 15, 7, 2**24 - 1, 255, 2**64 - 1, MASK, 2**64 - 1)
    rows = np.stack([rng.integers(0, top, n, np.uint64, endpoint=True) for top in tops], axis=1)
    rows[: n // 2, 7] = 2**31 + rows[: n // 2, 7] % 2**20  # where redraws are common
    rows[:, 7:] |= np.uint64(1)  # bounds are at least 1
    four, small = cupy.zeros((n, 4), np.uint32), cupy.zeros(n, np.uint32)
    large = cupy.zeros(n, np.uint64)
    kernel = cupy.RawModule(code=source, options=("-std=c++17",), backend="nvrtc").get_function("draw")
    kernel((n // 128,), (128,), (cupy.asarray(rows), four, small, large, np.int32(n)))
    for row, f, s, w in zip(rows.tolist(), four.get().tolist(), small.get().tolist(), large.get().tolist()):
        vertex, batch, hop, purpose, group, attempt, seed, bound, wide = row
        stream = Stream(vertex, batch, hop, purpose, seed)
        assert tuple(f) == stream.words(group, attempt)
        assert s == stream.bounded(group & 4095, bound)
        assert w == stream.bounded64(group & 4095, wide)
