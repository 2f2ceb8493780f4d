// DGL's ID map, the baseline: insert every id into a hash table, count the first occurrences, scan, compact, look up.
// Local ids follow the order of first occurrence, so the `n` vertices known so far, which come first, keep theirs.
//
// Items are nodes[n] followed by picks[m], both ID_T; slots: a power of two > n + m, filled with ones before.
// Bound: five passes over all items, one kernel after another, each with random look-ups (n + m sectors of the table);
// the output of `compact` has room for all items, and the host waits for the number of distinct ids behind it.
// @variants ID_T=int,long
#include "keys.cuh"

#define PER_BLOCK 1024  // items of a block of `count` and `compact`: 256 threads, 4 each

struct __align__(2 * sizeof(Key)) Entry {
    Key key;    // all ones: empty
    u32 first;  // lowest index of an item with this key
};

struct Items {
    const ID_T* nodes;
    u64 n;
    const ID_T* picks;
    u64 m;
    Entry* slots;
    u64 mask;
    u32* locals;    // [slots] local id, valid where `compact` wrote it
    int* per_block; // [blocks of PER_BLOCK items] first occurrences; after `scan` those before the block
    i64* report;
    i64 tag;
};

static_assert(sizeof(Items) == 80, "gpu.py packs the same structure");

__device__ __forceinline__ Key item(const Items& a, u64 i) { return (Key)(i < a.n ? a.nodes[i] : a.picks[i - a.n]); }

// The slot of a key that was inserted. The table has twice as many slots as items, so every key is in it. A key that is
// not found means that other work has overwritten the table, so the kernel traps.
__device__ __forceinline__ u64 slot_of(const Items& a, Key v) {
    u64 at = hash_of(v) & a.mask;
    for (u64 probe = 0; probe <= a.mask; ++probe, at = (at + 1) & a.mask)
        if (a.slots[at].key == v) return at;
    __trap();
    return 0;
}

extern "C" __global__ void __launch_bounds__(256) insert(const __grid_constant__ Items a) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= a.n + a.m) return;
    const Key v = item(a, i);
    u64 at = hash_of(v) & a.mask;
    for (u64 probe = 0; probe <= a.mask; ++probe, at = (at + 1) & a.mask) {
        const Key old = atomicCAS(&a.slots[at].key, EMPTY, v);
        if (old == EMPTY || old == v) {
            atomicMin(&a.slots[at].first, (u32)i);
            return;
        }
    }
    __trap();
}

// First occurrences per block.
extern "C" __global__ void __launch_bounds__(256) count(const __grid_constant__ Items a) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    int mine = 0;
    const u64 end = min(a.n + a.m, (u64)(blockIdx.x + 1) * PER_BLOCK);
    for (u64 i = (u64)blockIdx.x * PER_BLOCK + threadIdx.x; i < end; i += 256)
        mine += a.slots[slot_of(a, item(a, i))].first == (u32)i;
    atomicAdd(&sum, mine);
    __syncthreads();
    if (threadIdx.x == 0) a.per_block[blockIdx.x] = sum;
}

// One block scans per_block (exclusive) and reports the total to the host, which polls for it.
extern "C" __global__ void __launch_bounds__(1024) scan(const __grid_constant__ Items a) {
    __shared__ int sums[32];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u64 blocks = (a.n + a.m + PER_BLOCK - 1) / PER_BLOCK;
    int before = 0;
    for (u64 b0 = 0; b0 < blocks; b0 += 1024) {
        const u64 b = b0 + threadIdx.x;
        const int mine = b < blocks ? a.per_block[b] : 0;
        const int inclusive = warp_scan(mine, lane);
        if (lane == 31) sums[warp] = inclusive;
        __syncthreads();
        const int of_warp = sums[lane];
        const int scanned = warp_scan(of_warp, lane);
        const int earlier = __shfl_sync(FULL, scanned - of_warp, warp);
        if (b < blocks) a.per_block[b] = before + earlier + inclusive - mine;
        before += __shfl_sync(FULL, scanned, 31);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        *(volatile i64*)(a.report + 1) = before;
        *(volatile i64*)(a.report + REPORT_STATUS) = 0;
        __threadfence_system();
        *(volatile i64*)a.report = a.tag;
    }
}

// Write the distinct ids and, per slot, the local id.
extern "C" __global__ void __launch_bounds__(256) compact(const __grid_constant__ Items a, ID_T* nodes) {
    __shared__ int warp_sums[8];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u64 end = min(a.n + a.m, (u64)(blockIdx.x + 1) * PER_BLOCK);
    int base = a.per_block[blockIdx.x];
    for (u64 i0 = (u64)blockIdx.x * PER_BLOCK; i0 < end; i0 += 256) {
        const u64 i = i0 + threadIdx.x;
        Key v = EMPTY;
        u64 at = 0;
        bool first = false;
        if (i < end) {
            v = item(a, i);
            at = slot_of(a, v);
            first = a.slots[at].first == (u32)i;
        }
        const u32 mask = __ballot_sync(FULL, first);
        if (lane == 0) warp_sums[warp] = __popc(mask);
        __syncthreads();
        int local = base + __popc(mask & ((1u << lane) - 1));
        for (u32 w = 0; w < 8; ++w) {
            if (w < warp) local += warp_sums[w];
            base += warp_sums[w];
        }
        if (first) {
            nodes[local] = (ID_T)v;
            a.locals[at] = local;
        }
        __syncthreads();
    }
}

// Local ids of the picks; those of the nodes are their indices.
extern "C" __global__ void __launch_bounds__(256) look_up(const __grid_constant__ Items a, int* out) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i < a.m) out[i] = a.locals[slot_of(a, (Key)a.picks[i])];
}
