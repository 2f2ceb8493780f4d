// DGL's ID map, the baseline: insert every id into a hash table, count the first occurrences, scan, compact, look up.
// Local ids follow the order of first occurrence in `items`, so destinations given first come first.
//
// items: ID_T[n]; keys: u64[slots], zeroed; firsts: u32[slots], filled with ones; slots a power of two > n.
// @variants ID_T=int,long
#include "philox.cuh"
typedef long long i64;

#define ITEMS 1024  // per block: 256 threads, 4 each

__device__ __forceinline__ u64 slot_of(const u64* keys, u64 slots, u64 v) {
    u64 at = (v * 0x9E3779B97F4A7C15ull >> 20) & (slots - 1);
    while (keys[at] != v + 1) at = (at + 1) & (slots - 1);
    return at;
}

extern "C" __global__ void insert(const ID_T* items, u64 n, u64* keys, u32* firsts, u64 slots) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const u64 v = items[i];
    for (u64 at = (v * 0x9E3779B97F4A7C15ull >> 20) & (slots - 1);; at = (at + 1) & (slots - 1)) {
        const u64 old = atomicCAS(keys + at, 0ull, v + 1);
        if (old == 0 || old == v + 1) {
            atomicMin(firsts + at, (u32)i);
            return;
        }
    }
}

// First occurrences per block.
extern "C" __global__ void __launch_bounds__(256) count(const ID_T* items, u64 n, const u64* keys, const u32* firsts,
                                                        u64 slots, int* per_block) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    int mine = 0;
    for (u64 i = (u64)blockIdx.x * ITEMS + threadIdx.x; i < min(n, (u64)(blockIdx.x + 1) * ITEMS); i += 256)
        mine += firsts[slot_of(keys, slots, items[i])] == (u32)i;
    atomicAdd(&sum, mine);
    __syncthreads();
    if (threadIdx.x == 0) per_block[blockIdx.x] = sum;
}

// `before`: inclusive scan of per_block. Writes the distinct ids and, per hash slot, the local id.
extern "C" __global__ void __launch_bounds__(256) compact(const ID_T* items, u64 n, const u64* keys, const u32* firsts,
                                                          u64 slots, const int* per_block, const int* before,
                                                          ID_T* nodes, u32* locals) {
    __shared__ int warp_sums[8];
    __shared__ int base;
    if (threadIdx.x == 0) base = before[blockIdx.x] - per_block[blockIdx.x];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (u64 i0 = (u64)blockIdx.x * ITEMS; i0 < min(n, (u64)(blockIdx.x + 1) * ITEMS); i0 += 256) {
        const u64 i = i0 + threadIdx.x;
        u64 at = 0;
        bool first = false;
        if (i < n) {
            at = slot_of(keys, slots, items[i]);
            first = firsts[at] == (u32)i;
        }
        const u32 mask = __ballot_sync(0xFFFFFFFFu, first);
        if (lane == 0) warp_sums[warp] = __popc(mask);
        __syncthreads();
        int local = base + __popc(mask & ((1u << lane) - 1)), total = 0;
        for (u32 w = 0; w < 8; ++w) {
            if (w < warp) local += warp_sums[w];
            total += warp_sums[w];
        }
        if (first) {
            nodes[local] = items[i];
            locals[at] = local;
        }
        __syncthreads();
        if (threadIdx.x == 0) base += total;
        __syncthreads();
    }
}

extern "C" __global__ void look_up(const ID_T* items, u64 n, const u64* keys, u64 slots, const u32* locals, int* out) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i < n) out[i] = locals[slot_of(keys, slots, items[i])];
}
