// GNNLab's ID map: one hash for all hops of a mini-batch. An entry keeps the hop (its version) and the index of the pick
// that put it in, so picks of later hops find earlier vertices with their local ids and count none of them again.
//
// A hop inserts its picks and counts, block by block, those that put a key in; a scan follows (of insert_count_compact.cu),
// the host reads the sum, and `compact` numbers the new vertices in the order of the picks that put them in. The hash is
// cleared before each mini-batch. Probing goes 1, 2, 3, ... slots further, as released: with a power of two of slots it
// meets all of them.
//
// Against DGL's (insert_count_compact.cu): no table per hop, known vertices are not inserted again, one kernel less.
// Bound: three passes over the picks, each with a random entry of 16 bytes (24 with 64-bit ids) of the hash.
// @variants ID_T=int,long
#include "keys.cuh"

#define PER_BLOCK 1024  // picks of a block of `insert_count` and `compact`: 256 threads, 4 each

struct Entry {
    Key key;      // all ones: empty
    u32 index;    // of the pick that put the key in, among the picks of its hop
    u32 version;  // that hop, from 1; 0 for seeds
    u32 local;    // valid once `compact` of that hop has written it
};

struct Job {
    Entry* slots;
    u64 mask;
    const ID_T* picks;
    u64 m;
    ID_T* nodes;    // [distinct ids] in order of local ids
    int* per_block; // [blocks of PER_BLOCK picks] new keys; after the scan those before the block
    u32 known;      // vertices before this hop
    u32 version;
};
static_assert(sizeof(Job) == 56, "versioned.py packs the same structure");

// The slot of `v`; `mine` is set for the one caller that puts it in. The hash has twice as many slots as keys can be
// distinct, so a slot is found. If none is, other work has overwritten the hash, so the kernel traps.
__device__ __forceinline__ Entry* put(const Job& a, Key v, bool& mine) {
    u64 at = hash_of(v) & a.mask;
    for (u64 probe = 0; probe <= a.mask; ++probe, at = (at + probe) & a.mask) {
        const Key old = atomicCAS(&a.slots[at].key, EMPTY, v);
        mine = old == EMPTY;
        if (mine || old == v) return a.slots + at;
    }
    __trap();
    return nullptr;
}

__device__ __forceinline__ Entry* found(const Job& a, Key v) {
    u64 at = hash_of(v) & a.mask;
    for (u64 probe = 0; probe <= a.mask; ++probe, at = (at + probe) & a.mask)
        if (a.slots[at].key == v) return a.slots + at;
    __trap();
    return nullptr;
}

// Distinct vertices whose local ids are their places: the seeds, or all vertices so far when a larger hash begins.
extern "C" __global__ void __launch_bounds__(256) enter(const __grid_constant__ Job a, const ID_T* vertices, u32 n) {
    const u32 i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    bool mine;
    Entry* entry = put(a, (Key)vertices[i], mine);
    entry->index = i;
    entry->version = 0;
    entry->local = i;
    a.nodes[i] = vertices[i];
}

extern "C" __global__ void __launch_bounds__(256) insert_count(const __grid_constant__ Job a) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    int count = 0;
    const u64 end = min(a.m, (u64)(blockIdx.x + 1) * PER_BLOCK);
    for (u64 i = (u64)blockIdx.x * PER_BLOCK + threadIdx.x; i < end; i += 256) {
        bool mine;
        Entry* entry = put(a, (Key)a.picks[i], mine);
        if (!mine) continue;
        entry->index = (u32)i;
        entry->version = a.version;
        ++count;
    }
    atomicAdd(&sum, count);
    __syncthreads();
    if (threadIdx.x == 0) a.per_block[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256) compact(const __grid_constant__ Job a) {
    __shared__ int warp_sums[8];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u64 end = min(a.m, (u64)(blockIdx.x + 1) * PER_BLOCK);
    u32 base = a.known + a.per_block[blockIdx.x];
    for (u64 i0 = (u64)blockIdx.x * PER_BLOCK; i0 < end; i0 += 256) {
        const u64 i = i0 + threadIdx.x;
        Entry* entry = i < end ? found(a, (Key)a.picks[i]) : nullptr;
        const bool mine = entry && entry->version == a.version && entry->index == (u32)i;
        const u32 mask = __ballot_sync(FULL, mine);
        if (lane == 0) warp_sums[warp] = __popc(mask);
        __syncthreads();
        u32 local = base + __popc(mask & ((1u << lane) - 1));
        for (u32 w = 0; w < 8; ++w) {
            if (w < warp) local += warp_sums[w];
            base += warp_sums[w];
        }
        if (mine) {
            entry->local = local;
            a.nodes[local] = a.picks[i];
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256) look_up(const __grid_constant__ Job a, int* out) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i < a.m) out[i] = (int)found(a, (Key)a.picks[i])->local;
}
