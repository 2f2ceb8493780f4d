"""Floyd's rule by a warp and by a block, and Fisher and Yates's by a block, compiled for the host, against their
definitions in plain Python.

A thread of the operating system stands for each thread of the GPU, and a barrier for what warps do together. On a GPU
the same kernels run in ``test_gpu_parity.py``.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable

import numpy as np
import pytest

from gnnsample_lab.device.kernels import PACKAGE_ROOT
from tests.conftest import absent
from tests.sampling.neighbors import pick_oracle

Draw = Callable[[str, list[int], list[int], int, int], np.ndarray]
SEED, BATCH, HOP = 2**40 + 17, 5, 3

_HOST = """
#include <barrier>
#include <thread>
#include <vector>
#define __device__
#define __forceinline__ inline
struct uint4 { unsigned x, y, z, w; };
struct uint2 { unsigned x, y; };
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
typedef unsigned long long word;
inline unsigned __umulhi(unsigned a, unsigned b) { return (word)a * b >> 32; }
inline word __umul64hi(word a, word b) { return (unsigned __int128)a * b >> 64; }
thread_local struct { unsigned x; } threadIdx;
static int group_size;
static std::barrier<>* meeting;
static int lanes[32];
static void meet() { meeting->arrive_and_wait(); }
static unsigned matching(unsigned, int value) {
    lanes[threadIdx.x] = value;
    meet();
    unsigned found = 0;
    for (int lane = 0; lane < 32; ++lane) found |= (unsigned)(lanes[lane] == value) << lane;
    meet();
    return found;
}
static unsigned ballot(unsigned mask, bool vote) {
    const unsigned equal = matching(mask, vote);
    return vote ? equal : ~equal;
}
#define __match_any_sync matching
#define __ballot_sync ballot
#include "philox.cuh"
#include "rules.cuh"
struct Group {
    static unsigned rank() { return threadIdx.x; }
    static unsigned size() { return group_size; }
    static void sync() { meet(); }
};
extern "C" void draw(int fisher_yates, const u64* vertices, const int* degrees, int rows, int k, u32 batch, int hop,
                     u64 seed, int size, int step, int* slots) {
    std::barrier<> all(size);
    meeting = &all;
    group_size = size;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
        threads.emplace_back([=] {
            threadIdx.x = rank;
            for (int row = 0; row < rows; ++row) {
                const u32 purpose = fisher_yates ? LAB_PURPOSE_FISHER_YATES : LAB_PURPOSE_FLOYD;
                const Draws d(vertices[row], batch, hop, purpose, seed);
                int* mine = slots + (long)row * k * step;
                if (fisher_yates) lab_fisher_yates<Group>(d, k, degrees[row], mine, step);
                else if (k > 32) lab_floyd_wide<Group>(d, k, degrees[row] - k, mine, step);
                else lab_floyd_warp(d, k, degrees[row] - k, mine, step);
                meet();
            }
        });
    for (auto& thread : threads) thread.join();
}
"""


@pytest.fixture(scope="module")
def draw(tmp_path_factory: pytest.TempPathFactory) -> Draw:
    """``draw(rule, vertices, degrees, fanout, threads)`` -> positions ``[rows, fanout]`` in the order of the slots."""
    compiler = shutil.which("g++")
    if compiler is None:
        absent("THE RULES OF GROUPS WERE NOT COMPILED FOR THE HOST: install g++")
    folder = tmp_path_factory.mktemp("floyd")
    rules = (PACKAGE_ROOT / "sampling/neighbors/hops/draw.cuh").read_text(encoding="utf-8")
    text = ""
    for begins in ("// Floyd without a serial loop.", "// Fisher and Yates, as GNNLab draws"):
        _, found, rest = rules.partition(begins)
        assert found
        text += "template" + rest.partition("\n#endif")[0].partition("\ntemplate")[2] + "\n"
    (folder / "rules.cuh").write_text(text)
    shutil.copy(PACKAGE_ROOT / "device/philox.cuh", folder / "philox.cuh")
    (folder / "floyd.cpp").write_text(_HOST)
    flags = ["-std=c++20", "-O1", "-fwrapv", "-pthread", "-shared", "-fPIC"]
    target = str(folder / "floyd.so")
    subprocess.run([compiler, *flags, str(folder / "floyd.cpp"), "-o", target], check=True)
    library = ctypes.CDLL(target)

    def call(rule: str, vertices: list[int], degrees: list[int], fanout: int, threads: int) -> np.ndarray:
        step = 3  # slots of several rows may lie interleaved
        slots = np.full((len(vertices), fanout, step), -9, np.int32)
        arrays = np.array(vertices, np.uint64), np.array(degrees, np.int32), slots
        at = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        library.draw(
            int(rule == "fisher-yates"), at[0], at[1], len(vertices), fanout, BATCH, HOP, ctypes.c_uint64(SEED),
            threads, step, at[2],
        )  # fmt: skip
        assert (slots[:, :, 1:] == -9).all(), "nothing is written beside the slots"
        return slots[:, :, 0]

    return call


@pytest.mark.parametrize("rule", ["floyd", "fisher-yates"])
@pytest.mark.parametrize(
    ("fanout", "threads"),
    [
        (1, 32), (2, 32), (3, 32), (4, 32), (5, 32), (10, 32), (15, 32), (31, 32), (32, 32),
        (33, 32), (33, 64), (40, 32), (64, 64), (65, 32), (65, 64), (129, 64),
    ],
)  # fmt: skip
def test_a_group_draws_what_the_serial_rule_draws(draw: Draw, rule: str, fanout: int, threads: int) -> None:
    # Little above the fanout, nearly every draw repeats one before, and slots that move follow one another in chains.
    degrees = [fanout + extra for extra in (1, 1, 1, 2, 2, 3, 5, 9, fanout, 10 * fanout, 100_000)]
    vertices = [(7 * i) << (i % 40) for i in range(len(degrees))]
    found = draw(rule, vertices, degrees, fanout, threads)
    for v, degree, slots in zip(vertices, degrees, found.tolist(), strict=True):
        assert slots == pick_oracle.pick(rule, [1] * degree, fanout, v, BATCH, HOP, SEED), (v, degree)
        assert len(set(slots)) == fanout
