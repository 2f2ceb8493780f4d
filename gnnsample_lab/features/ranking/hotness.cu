// Footprints and reverse PageRank: both add integers at random addresses, so any order of threads gives the same sums.
//
// count_visits: visits u32[N], one addition per vertex of a mini-batch. Bound: one sector read and written per id.
// push: a warp per destination reads its in-neighbours in order and adds the destination's share to each.
// Bound: E ids read in order, E additions at random (L2 where N * 8 bytes fit there, else DRAM sectors).
// settle: next = restart share + damping * received, per vertex; clears what was received.
// @variants ID_T=int,long
#include "device/philox.cuh"
typedef long long i64;

extern "C" __global__ void count_visits(const ID_T* ids, u64 n, u32* visits) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (u64)blockDim.x)
        atomicAdd(visits + ids[i], 1u);
}

extern "C" __global__ void push(const i64* indptr, const ID_T* indices, u64 num_nodes, const u64* mass, u64* received) {
    const u64 warps = gridDim.x * (u64)(blockDim.x / 32);
    for (u64 v = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / 32; v < num_nodes; v += warps) {
        const i64 begin = indptr[v], end = indptr[v + 1];
        if (begin == end) continue;
        const u64 share = mass[v] / (u64)(end - begin);
        if (share == 0) continue;
        for (i64 e = begin + (threadIdx.x & 31); e < end; e += 32) atomicAdd(received + indices[e], share);
    }
}

extern "C" __global__ void settle(u64 num_nodes, const u64* restart, u64* received, u64 damping, u64* mass) {
    for (u64 v = blockIdx.x * (u64)blockDim.x + threadIdx.x; v < num_nodes; v += gridDim.x * (u64)blockDim.x) {
        const u64 r = received[v];
        received[v] = 0;
        mass[v] = restart[v] + (r >> 16) * damping + ((r & 0xFFFFu) * damping >> 16);
    }
}
