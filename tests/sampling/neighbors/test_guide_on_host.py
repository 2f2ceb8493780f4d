"""The guide of weighted draws, compiled for the host, against Python's bisection."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Callable

import numpy as np
import pytest

from gnnsample_lab.device.kernels import PACKAGE_ROOT
from tests.conftest import absent
from tests.sampling.neighbors.test_search_on_host import weights_of

_HOST = """
#include <algorithm>
#include <cmath>
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
struct uint4 { u32 x, y, z, w; };
static uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
using std::max;
using std::min;
#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(n)
static struct { i64 x; } blockIdx, blockDim, threadIdx;
static int __clzll(long long v) { return v ? __builtin_clzll(v) : 64; }
static int __clz(int v) { return v ? __builtin_clz(v) : 32; }
static int reads;
template <class T> static T __ldg(const T* at) { return ++reads, *at; }
struct Row { u64 vertex; i64 start; int degree; int count; };
#include "search.cuh"
#include "guide.cuh"
#include "guide.cu"
extern "C" void make(const i64* indptr, const u64* prefix, u64 nodes, i64 edges, uint4* guide) {
    blockDim.x = 1;
    for (blockIdx.x = 0; blockIdx.x < edges; ++blockIdx.x) make_guide(indptr, prefix, nodes, edges, guide);
}
extern "C" int shift_of(u64 total, int degree) { return lab_guide_shift(total, degree); }
extern "C" int guided(const u64* prefix, const uint4* guide, i64 start, int degree, u64 target, int* probes) {
    const u64 *list = prefix + start, base = *list, total = list[degree] - base;
    const int shift = lab_guide_shift(total, degree);
    reads = 0;
    const uint4 record = __ldg(guide + start + (target >> shift));
    const int found = lab_guided(record, guide + start, list, degree, base, total, shift, target);
    *probes = reads;
    return found;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        absent("THE GUIDE OF WEIGHTED DRAWS WAS NOT COMPILED FOR THE HOST: install g++")
    folder, hops = tmp_path_factory.mktemp("guide"), PACKAGE_ROOT / "sampling/neighbors/hops"
    rules = (hops / "draw.cuh").read_text(encoding="utf-8")
    _, found, rest = rules.partition("// The last position whose prefix is <= target.")
    assert found
    (folder / "search.cuh").write_text("//" + rest.partition("\n#endif")[0] + "\n")
    (folder / "guide.cuh").write_text((hops / "guide.cuh").read_text(encoding="utf-8"))
    kernel = (hops / "guide.cu").read_text(encoding="utf-8").replace('#include "draw.cuh"', "")
    (folder / "guide.cu").write_text(kernel)
    (folder / "host.cpp").write_text(_HOST)
    target = str(folder / "guide.so")
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(folder / "host.cpp"), "-o", target], check=True)
    return ctypes.CDLL(target)


Find = Callable[[int, int], tuple[int, int]]


def guide_of(library: ctypes.CDLL, prefix: np.ndarray, indptr: np.ndarray) -> Find:
    """``find(vertex, target)`` -> position of the edge in the vertex's list, and how many entries were read."""
    guide = np.full((prefix.size - 1, 4), 0xDEADBEEF, np.uint32)
    pointer = ctypes.c_void_p
    library.make(
        pointer(indptr.ctypes.data), pointer(prefix.ctypes.data), ctypes.c_ulonglong(indptr.size - 1),
        ctypes.c_longlong(prefix.size - 1), pointer(guide.ctypes.data),
    )  # fmt: skip

    def find(vertex: int, target: int) -> tuple[int, int]:
        start, degree, probes = int(indptr[vertex]), int(indptr[vertex + 1] - indptr[vertex]), ctypes.c_int()
        at = library.guided(
            pointer(prefix.ctypes.data), pointer(guide.ctypes.data), ctypes.c_longlong(start), degree,
            ctypes.c_ulonglong(target), ctypes.byref(probes),
        )  # fmt: skip
        return at, probes.value

    return find


@pytest.mark.parametrize("kind", ["alike", "heavy-tailed", "one-edge", "zeros"])
def test_the_position_is_that_of_bisection(library: ctypes.CDLL, kind: str) -> None:
    draw = np.random.default_rng(7)
    degrees = np.array([0, 1, 2, 0, 3, 15, 16, 17, 40, 333, 5000, 0])
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    lists = [np.minimum(weights_of(kind, int(d), draw), 2**31) for d in degrees if d]
    prefix = np.concatenate([[0], np.cumsum(np.concatenate(lists))]).astype(np.uint64)
    find, reads = guide_of(library, prefix, indptr), []
    for vertex, degree in enumerate(degrees):
        entries = prefix[indptr[vertex] : indptr[vertex + 1] + 1].tolist()
        total = entries[-1] - entries[0]
        if not total:
            continue
        if library.shift_of(ctypes.c_ulonglong(total), int(degree)) > 31:
            continue  # the kernels search there
        begins = [e - entries[0] for e in entries[:50]]
        for target in [
            0,
            total - 1,
            *begins,
            *(b - 1 for b in begins),
            *map(int, draw.integers(0, total, 200)),
        ]:
            if not 0 <= target < total:
                continue
            found, probes = find(vertex, target)
            assert found == bisect_right(entries, entries[0] + target) - 1
            reads.append(probes)
    assert len(reads) > 500
    if kind == "alike":
        assert np.mean(reads) < 1.2, "a search reads six to nine"


@pytest.mark.parametrize(
    ("total", "degree"), [(1, 1), (2, 1), (7, 7), (8, 7), (2**31, 1), (3 * 2**31, 3), (5, 900)]
)
def test_the_buckets_are_the_finest_that_are_no_more_than_edges(
    library: ctypes.CDLL, total: int, degree: int
) -> None:
    shift = library.shift_of(ctypes.c_ulonglong(total), degree)
    assert (total - 1) >> shift < degree
    assert shift == 0 or (total - 1) >> (shift - 1) >= degree
    if total <= degree * 2**31:
        assert shift <= 31
