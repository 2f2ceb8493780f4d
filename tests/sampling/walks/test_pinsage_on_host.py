"""The kernels that place and write PinSAGE's mini-batches, compiled for the host, against NumPy.

A thread of the operating system stands for each thread of a block, and a barrier for what a block or a warp does
together. Blocks run one after another. On a GPU the same kernels run in ``tests/minibatch/test_walk_sampler.py``.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from gnnsample_lab.device.kernels import PACKAGE_ROOT
from gnnsample_lab.minibatch.walks import gpu as walks
from tests.conftest import absent

_HOST = """
#include <atomic>
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(n)
#define ID_T int
typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;
struct Dim { unsigned x, y; };
static thread_local Dim threadIdx, blockIdx;
static Dim gridDim, blockDim;
static std::barrier<>* meeting;
static u64 lanes[256];
static void __syncthreads() { meeting->arrive_and_wait(); }
static void __trap() { std::abort(); }
template <class T> T exchanged(T value, unsigned from) {
    lanes[threadIdx.x] = (u64)value;
    __syncthreads();
    const T found = (T)lanes[from];
    __syncthreads();
    return found;
}
template <class T> T __shfl_xor_sync(unsigned, T value, int d) { return exchanged(value, threadIdx.x ^ d); }
template <class T> T __shfl_up_sync(unsigned, T value, int d) {
    return exchanged(value, (threadIdx.x & 31) < (unsigned)d ? threadIdx.x : threadIdx.x - d);
}
static void atomicAdd(u64* at, u64 more) { std::atomic_ref<u64>(*at) += more; }
#include "emit.cuh"
template <class Work> static void launch(unsigned x, unsigned y, Work work) {
    std::barrier<> all(256);
    meeting = &all;
    gridDim = {x, y}, blockDim = {256, 1};
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < 256; ++rank)
        threads.emplace_back([=] {
            threadIdx = {rank, 0};
            for (unsigned by = 0; by < y; ++by)
                for (unsigned bx = 0; bx < x; ++bx) {
                    blockIdx = {bx, by};
                    work();
                    __syncthreads();
                }
        });
    for (auto& thread : threads) thread.join();
}
extern "C" void place(const Walks* a, const Call* calls, unsigned batches) {
    for (unsigned b = 0; b < batches; ++b) lay_out(*a, b, calls[b], a->totals + b * TOTALS);
}
extern "C" void run(const Walks* a, const Place* places, unsigned x, unsigned y) {
    launch(x, y, [=] { sum_tiles(*a); });
    launch(x, y, [=] { emit(*a, places); });
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        absent("PINSAGE'S EMIT WAS NOT COMPILED FOR THE HOST: install g++")
    folder = tmp_path_factory.mktemp("pinsage")
    text = (PACKAGE_ROOT / "sampling/walks/pinsage.cu").read_text(encoding="utf-8")
    head = text[text.index("#define TOTALS") : text.index("// Insert `v`")]
    rows = text[text.index("// Rows of a hop; none") : text.index("// Dynamic shared memory")]
    sums = text[text.index("// The picks of TILE rows each") : text.index("// Tell the host")]  # and places
    (folder / "emit.cuh").write_text(head + rows + sums + text[text.index("// Write the arrays of all") :])
    (folder / "emit.cpp").write_text(_HOST)
    target = str(folder / "emit.so")
    flags = ["-std=c++20", "-O1", "-pthread", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(folder / "emit.cpp"), "-o", target], check=True)
    return ctypes.CDLL(target)


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("blocks", [1, 3])
def test_arrays_are_written_where_the_host_says(library: ctypes.CDLL, blocks: int, left_out: bool) -> None:
    draw = np.random.default_rng(1)
    batches, hops, keep, num_nodes = 2, 2, 3, 9000
    levels = np.array([[5, 2500, 4000], [1, 1, 1]])
    row_caps = [8, 2600]
    row_begins = np.array([0, 8], np.uint64)
    stride, node_cap, tiles = sum(row_caps), 4500, 3
    counts = draw.integers(0, keep + 1, (batches, stride)).astype(np.int32)
    counts[1, 8] = 0  # a hop without picks
    picks = np.full((batches, stride, keep), -7, np.int32)
    votes = draw.integers(1, 9, (batches, stride, keep)).astype(np.int32)
    nodes = np.stack([draw.permutation(num_nodes)[:node_cap] for _ in range(batches)]).astype(np.int32)
    keys = np.zeros((batches, num_nodes), np.uint64)
    local = np.full((batches, num_nodes), 2**31, np.uint32)
    totals = np.zeros((batches, walks.TOTALS), np.uint64)
    for b in range(batches):
        inside = nodes[b, : levels[b, -1]]
        keys[b, inside], local[b, inside] = inside.astype(np.uint64) + 1, np.arange(inside.size)
        picks[b] = draw.choice(inside, (stride, keep))
        totals[b, 1 : 2 + hops] = levels[b]
    plan = np.zeros(1, walks._WALKS)
    arrays = {
        "nodes": nodes, "keys": keys, "locals": local, "totals": totals, "counts": counts, "picks": picks,
        "votes": votes, "tiles": np.zeros((batches, hops, tiles), np.uint32), "row_begins": row_begins,
    }  # fmt: skip
    for name, array in arrays.items():
        plan[name] = array.ctypes.data
    plan["node_cap"], plan["slots"], plan["row_stride"], plan["tile_stride"] = (
        node_cap,
        num_nodes,
        stride,
        tiles,
    )
    plan["direct"], plan["keep"], plan["num_hops"] = 1, keep, hops
    views, memories, places = [], [], np.zeros(batches * hops, walks._PLACE)
    for b in range(batches):
        edges = []
        for hop in range(hops):
            begin = int(row_begins[hop])
            edges.append(int(counts[b, begin : begin + levels[b, hop]].sum()))
        view = walks._View(np.dtype(np.int32), levels[b].tolist(), edges, int(levels[b, 0]) if b == 0 else 0)
        memories.append(np.full(view.num_bytes, 0xEE, np.uint8))
        view.write_places(places.view(np.uint8), b, memories[b].ctypes.data)
        views.append((view, edges))
    if left_out:  # the second mini-batch has nowhere to go
        places[hops:] = 0
    at = [ctypes.c_void_p(array.ctypes.data) for array in (plan, places)]
    library.run(at[0], at[1], blocks, batches * hops)
    if left_out:
        assert (memories.pop() == 0xEE).all() and views.pop()
    for b, (view, edges) in enumerate(views):

        def array(number: int, size: int, dtype: type, b: int = b, view: walks._View = view) -> np.ndarray:
            return memories[b][view._at[number] :][: size * np.dtype(dtype).itemsize].view(dtype)

        assert np.array_equal(array(0, levels[b, -1], np.int32), nodes[b, : levels[b, -1]])
        if b == 0:
            assert np.array_equal(array(1, levels[b, 0], np.int64), np.arange(levels[b, 0]))
        for hop in range(hops):
            rows, begin, at_hop = levels[b, hop], int(row_begins[hop]), 2 + 5 * hop
            mine = counts[b, begin : begin + rows]
            taken = np.arange(keep) < mine[:, None]
            wanted = picks[b, begin : begin + rows][taken]
            assert np.array_equal(array(at_hop, rows, np.int32), mine)
            assert array(at_hop + 1, rows + 1, np.int64).tolist() == [0, *np.cumsum(mine)]
            assert np.array_equal(array(at_hop + 2, edges[hop], np.int32), wanted)
            assert np.array_equal(
                array(at_hop + 3, edges[hop], np.int32), votes[b, begin : begin + rows][taken]
            )
            assert np.array_equal(array(at_hop + 4, edges[hop], np.int32), local[b, wanted].astype(np.int32))


@pytest.mark.parametrize("fault", [None, "STRANGE", "REPEATED", "BROKEN", "no memory", "a byte less"])
def test_the_gpu_places_arrays_as_the_host_does(library: ctypes.CDLL, fault: str | None) -> None:
    """And nowhere where they do not fit, or are of no use."""
    hops, memory = 3, 1 << 20
    levels, edges = [[5, 20, 31, 60], [7, 8, 9, 9]], [[15, 40, 77], [3, 0, 1]]
    seeds = [5, 0]  # those of the second mini-batch were merged
    totals = np.zeros((2, walks.TOTALS), np.uint64)
    totals[:, 1 : 2 + hops], totals[:, 17 : 17 + hops] = levels, edges
    views = [walks._View(np.dtype(np.int32), *of) for of in zip(levels, edges, seeds, strict=True)]
    wanted, places = np.zeros(2 * hops, walks._PLACE), np.full(2 * hops, -1, walks._PLACE)
    calls, plan = np.zeros(2, walks._CALL), np.zeros(1, walks._WALKS)
    for b, view in enumerate(views):
        view.write_places(wanted.view(np.uint8), b, memory * (b + 1))
        calls[b] = (0, 0, b, 0, memory * (b + 1), view.num_bytes, seeds[b])
    if fault == "no memory":
        calls["memory"][1] = 0
    elif fault == "a byte less":
        calls["room"][1] -= 1
    elif fault:
        at = {"STRANGE": walks._STRANGE, "REPEATED": walks._REPEATED, "BROKEN": walks.TOTALS - 1}[fault]
        totals[1, at] = 1
    plan["places"], plan["totals"], plan["num_hops"] = places.ctypes.data, totals.ctypes.data, hops
    library.place(*(ctypes.c_void_p(array.ctypes.data) for array in (plan, calls)), 2)
    assert (places[:hops] == wanted[:hops]).all()
    if fault is None:
        assert (places == wanted).all()
    else:
        assert (places["offsets"][hops:] == 0).all()
