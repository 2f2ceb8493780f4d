"""The kernel of Fused-Map as published, compiled for the host, against the plain definition of an ID map.

Threads of the operating system run the kernel's threads, in any order and at the same time, and give way at every
atomic operation. On a GPU the same kernel runs in ``test_id_maps.py``.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.device.kernels import PACKAGE_ROOT
from gnnsample_lab.minibatch.id_map.ladder import Relabelled
from tests.conftest import absent

from .test_id_maps import expected

SOURCE = PACKAGE_ROOT / "minibatch" / "id_map" / "algorithm_2.cu"
BLOCK = 256

_HOST = """
#include <algorithm>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(threads)
#define __align__(bytes) alignas(bytes)
using std::min;
struct uint4 { unsigned x, y, z, w; };
struct uint2 { unsigned x, y; };
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
typedef unsigned long long word;
inline word __umul64hi(word a, word b) { return (unsigned __int128)a * b >> 64; }
thread_local struct { unsigned x; } threadIdx, blockIdx, gridDim;
template <class T> T __ldcg(const T* at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned __ballot_sync(unsigned, bool) { return 0; }
inline int __shfl_up_sync(unsigned, int value, int) { return value; }
inline void __syncthreads() {}
inline void __threadfence() {}
inline void __threadfence_system() {}
template <class T> T atomicCAS(T* at, T was, T now) {
    std::this_thread::yield();
    __atomic_compare_exchange_n(at, &was, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return was;
}
template <class T> T atomicAdd(T* at, T more) {
    std::this_thread::yield();
    return __atomic_fetch_add(at, more, __ATOMIC_RELAXED);
}
template <class T> T atomicMax(T*, T) { __builtin_trap(); }
#include SOURCE
extern "C" void enter_all(Map m, const ID_T* vertices, u32 n) {
    for (u32 i = 0; i < n; ++i) enter_vertex(m, (Key)vertices[i], i);
    m.counters[0] = n;
}
extern "C" void insert_all(Map m, const ID_T* picks, u64 n, const u32* order, int workers) {
    const u64 all = (n + THREADS - 1) / THREADS * THREADS;
    std::vector<std::thread> threads;
    for (int worker = 0; worker < workers; ++worker)
        threads.emplace_back([=] {
            gridDim.x = all / THREADS;
            for (u64 i = worker; i < all; i += workers) {
                blockIdx.x = order[i] / THREADS;
                threadIdx.x = order[i] % THREADS;
                insert(m, picks, n, 0, nullptr, 0);
            }
        });
    for (auto& thread : threads) thread.join();
}
extern "C" u64 home(u64 v, u64 mask) { return hash_of(v) & mask; }
"""


class _Map(ctypes.Structure):
    _fields_ = [
        ("nodes", ctypes.c_void_p), ("counters", ctypes.c_void_p), ("report", ctypes.c_void_p),
        ("table", ctypes.c_void_p), ("mask", ctypes.c_uint64), ("limit", ctypes.c_uint32),
        ("base", ctypes.c_uint32), ("bits", ctypes.c_uint32), ("unused", ctypes.c_uint32),
    ]  # fmt: skip


@pytest.fixture(scope="module", params=["int", "long"])
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The compiled library, and the type of its ids."""
    compiler = shutil.which("g++")
    if compiler is None:
        absent("ALGORITHM 2 WAS NOT COMPILED FOR THE HOST: install g++")
    folder: Path = tmp_path_factory.mktemp("algorithm_2")
    (folder / "host.cpp").write_text(_HOST.replace("SOURCE", f'"{SOURCE}"'))
    macros = [f"-DID_T={request.param}", "-DMAP_KIND=2", "-DITEMS=1"]
    flags = [
        "-std=c++20",
        "-O1",
        "-w",
        "-pthread",
        "-shared",
        "-fPIC",
        f"-I{PACKAGE_ROOT}",
        f"-I{SOURCE.parent}",
    ]
    subprocess.run(
        [compiler, *flags, *macros, str(folder / "host.cpp"), "-o", str(folder / "host.so")], check=True
    )
    library = ctypes.CDLL(str(folder / "host.so"))
    library.home.restype = ctypes.c_uint64
    return library, np.dtype(np.int32 if request.param == "int" else np.int64)


def run(
    kernel: tuple[Any, Any], seeds: Any, hops: list[Any], slots: int, seed: int, limit: int = 2**32 - 1
) -> tuple[Relabelled, np.ndarray, np.ndarray]:
    """What the kernel makes of ``hops``, its table (key and value per slot), and its counters."""
    library, ids = kernel
    rng = np.random.default_rng(seed)
    entries = np.full((slots, 2), -1, ids)
    nodes = np.full(len(seeds) + sum(map(len, hops)), -1, ids)
    counters = np.zeros(32, np.uint32)
    own = _Map(nodes.ctypes.data, counters.ctypes.data, 0, entries.ctypes.data, slots - 1, limit, 0, 0, 0)
    given = np.ascontiguousarray(seeds, ids)
    library.enter_all(own, ctypes.c_void_p(given.ctypes.data), len(given))
    levels = [len(given)]
    for hop in hops:
        picks = np.ascontiguousarray(hop, ids)
        order = rng.permutation(-(-len(picks) // BLOCK) * BLOCK).astype(np.uint32)
        library.insert_all(
            own, ctypes.c_void_p(picks.ctypes.data), ctypes.c_uint64(len(picks)),
            ctypes.c_void_p(order.ctypes.data), 4,
        )  # fmt: skip
        levels.append(int(counters[0]))
    table = np.stack([entries[:, 0].astype(np.int64), entries.view(np.uint32)[:, ids.itemsize // 4]], axis=1)
    local = {int(key): int(value) for key, value in table if key >= 0}
    found = Relabelled(
        nodes[: levels[-1]], tuple(levels),
        [np.array([local.get(int(v), -1) for v in hop], np.int32) for hop in hops],
    )  # fmt: skip
    return found, table, counters


@pytest.mark.parametrize("seed", range(4))
def test_threads_in_any_order_make_the_id_map(kernel, seed):
    rng = np.random.default_rng(seed)
    seeds = rng.choice(3000, 40, replace=False)
    hops = [(rng.random(m) ** 2 * 3000).astype(np.int64) for m in (300, 1, 2500)]
    found, table, counters = run(kernel, seeds, hops, 4096, seed)
    assert found == expected(seeds, hops)
    used = table[table[:, 0] >= 0]
    assert len(np.unique(used[:, 0])) == len(used) == counters[0]  # a vertex has one entry
    assert sorted(used[:, 1].tolist()) == list(range(len(used)))  # and a local id of its own
    assert not counters[1:].any()


def test_every_entry_stands_where_probing_from_its_home_finds_it(kernel):
    library, _ = kernel
    rng = np.random.default_rng(9)
    seeds, hop = rng.choice(5000, 20, replace=False), rng.integers(0, 5000, 900)
    slots = 1024  # nearly full: long runs of taken slots
    _, table, _ = run(kernel, seeds, [hop], slots, 1)
    at = {int(key): slot for slot, (key, _) in enumerate(table) if key >= 0}
    assert set(at) == set(seeds.tolist()) | set(hop.tolist())
    for key, slot in at.items():
        way = library.home(ctypes.c_uint64(key), ctypes.c_uint64(slots - 1))
        while way != slot:
            assert table[way, 0] >= 0
            way = (way + 1) % slots


def test_a_table_too_full_for_the_limit_is_reported(kernel):
    hop = np.arange(1000)
    _, _, counters = run(kernel, [0], [hop], 1024, 0, limit=0)
    assert counters[31] == 1
    _, _, counters = run(kernel, [0], [hop], 1024, 0)
    assert counters[31] == 0
