"""The search of weighted draws, compiled for the host, against Python's bisection, and how often it reads."""

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

Search = Callable[[np.ndarray, int, int], tuple[int, int]]

_HOST = """
#include <algorithm>
#include <cmath>
typedef unsigned long long u64;
typedef long long i64;
using std::max;
using std::min;
#define __device__
#define __forceinline__ inline
static int reads;
static u64 __ldg(const u64* at) { return ++reads, *at; }
struct Row { i64 start; int degree; };
#include "search.cuh"
extern "C" int search(const u64* prefix, i64 start, int degree, u64 target, int* probes) {
    reads = 0;
    const int found = lab_search(prefix, Row{start, degree}, target);
    *probes = reads;
    return found;
}
"""


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Search:
    """``search(prefix, start, target)`` -> position of the edge in the list, and how many entries were read."""
    compiler = shutil.which("g++")
    if compiler is None:
        absent("THE SEARCH OF WEIGHTED DRAWS WAS NOT COMPILED FOR THE HOST: install g++")
    folder = tmp_path_factory.mktemp("search")
    rules = (PACKAGE_ROOT / "sampling/neighbors/hops/draw.cuh").read_text(encoding="utf-8")
    _, found, rest = rules.partition("// The last position whose prefix is <= target.")
    assert found
    (folder / "search.cuh").write_text("//" + rest.partition("\n#endif")[0] + "\n")
    (folder / "search.cpp").write_text(_HOST)
    target = str(folder / "search.so")
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(folder / "search.cpp"), "-o", target], check=True)
    library = ctypes.CDLL(target)

    def call(prefix: np.ndarray, start: int, wanted: int) -> tuple[int, int]:
        probes = ctypes.c_int()
        at = library.search(
            ctypes.c_void_p(prefix.ctypes.data), ctypes.c_longlong(start), prefix.size - 1 - start,
            ctypes.c_ulonglong(wanted), ctypes.byref(probes),
        )  # fmt: skip
        return at, probes.value

    return call


def weights_of(kind: str, degree: int, draw: np.random.Generator) -> np.ndarray:
    if kind == "alike":
        return draw.integers(2**29, 5 * 2**29, degree)
    if kind == "heavy-tailed":
        return np.minimum(draw.pareto(1.1, degree) * 100, 2**50).astype(np.int64) + 1
    if kind == "one-edge":
        return np.where(np.arange(degree) == degree // 3, 2**45, draw.integers(0, 2, degree))
    return np.where(np.arange(degree) < degree // 2, 0, np.arange(degree) + 1)  # zeros


@pytest.mark.parametrize("kind", ["alike", "heavy-tailed", "one-edge", "zeros"])
@pytest.mark.parametrize("degree", [1, 2, 15, 16, 17, 40, 333, 5000, 70_000])
def test_the_position_is_that_of_bisection(search: Search, kind: str, degree: int) -> None:
    draw, start = np.random.default_rng(degree), 5
    lists = np.concatenate([draw.integers(1, 9, start), weights_of(kind, degree, draw)])
    prefix = np.concatenate([[0], np.cumsum(lists)]).astype(np.uint64)
    low, high = int(prefix[start]), int(prefix[-1])
    targets = [low, high - 1, *map(int, draw.integers(low, high, 200)), *map(int, prefix[start:-1][:50])]
    targets = [target for target in targets if target < high]  # a draw is below the sum of all weights
    entries = prefix[start:].tolist()
    reads = []
    for target in targets:
        found, probes = search(prefix, start, target)
        assert found == bisect_right(entries, target) - 1
        reads.append(probes)
    assert max(reads) <= 2 + 3 * degree.bit_length()
    if kind == "alike" and degree == 70_000:
        assert np.mean(reads) < 10, "bisection reads 17"
