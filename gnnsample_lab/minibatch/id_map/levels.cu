// The ID map as bitmaps: a bit per vertex and hop says whether the hop's picks reach the vertex. All hops are marked in one
// launch, since no mark depends on another. What a hop reaches first is its bits without those of the hops before and of
// the seeds; the place of a bit among them is the local id. So ids within a hop ascend, and nothing waits between hops.
//
// 224 bits and the local id of the first of them share a sector of 32 bytes, so that a look-up costs one sector of a table
// of 1.14 bits a vertex, which fits the L2 cache where a word per vertex does not. `mark` sets bits, `unmark` takes the
// seeds' away, `count` counts what each hop reaches first, `place` writes that and its local ids, `look_up` reads them.
//
// Bound: an atomic and a look-up per pick, both on a random sector of the L2 cache.
// @variants ID_T=int,long
#include "keys.cuh"

#define MAX_HOPS 15
#define SECTOR_BITS 224  // 7 words of bits; the eighth is the local id of the first
#define ITEMS 4    // picks of a thread
#define SECTORS 2  // sectors of a thread in `count` and `place`

struct Levels {
    const ID_T* picks[MAX_HOPS];
    int* out[MAX_HOPS];
    u64 count[MAX_HOPS];
    u32 first_tile[MAX_HOPS + 1];  // tiles of hop h begin there
    const ID_T* seeds;
    ID_T* nodes;     // [distinct ids] global ids in order of local ids
    u32* marks;      // [hop][sector][8]
    u32* counts;     // [hop][tile of sectors] vertices that the hop reaches first
    u64* seeds_at;   // hash of the seeds: vertex + 1 << 32 | index
    i64* report;     // pinned host memory, see keys.cuh
    i64 tag;
    u64 seed_mask;   // slots of the hash less one
    u32 num_seeds;
    u32 sectors;     // of a hop
    u32 tiles;       // of sectors
    int num_hops;
};
static_assert(sizeof(Levels) == 504, "levels.py packs the same structure");

// Report the sizes of the levels to the host, which polls for them.
__device__ __forceinline__ void report_size(const Levels& a, int level, u32 size) {
    *(volatile i64*)(a.report + 1 + level) = size;
}
__device__ __forceinline__ void report_done(const Levels& a) {
    *(volatile i64*)(a.report + REPORT_STATUS) = 0;
    __threadfence_system();
    *(volatile i64*)a.report = a.tag;
}

// Exclusive scan over the block's threads; `total` becomes their sum. All threads.
template <int WARPS> __device__ __forceinline__ u32 block_scan(u32 value, u32& total) {
    __shared__ u32 sums[WARPS];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 inclusive = warp_scan((int)value, lane);
    if (lane == 31) sums[warp] = inclusive;
    __syncthreads();
    u32 before = 0;
    total = 0;
    for (u32 w = 0; w < WARPS; ++w) {
        if (w == warp) before = total;
        total += sums[w];
    }
    __syncthreads();
    return before + inclusive - value;
}

#define THREADS 256
#define TILE (THREADS * ITEMS)  // picks of a block

__device__ __forceinline__ u32* word_of(const Levels& a, int hop, u32 v) {
    const u32 sector = v / SECTOR_BITS;
    return a.marks + ((u64)hop * a.sectors + sector) * 8 + (v - sector * SECTOR_BITS) / 32;
}
__device__ __forceinline__ u32 bit_of(u32 v) { return 1u << (v & 31); }  // 224 is a multiple of 32

__device__ __forceinline__ int hop_of_tile(const Levels& a) {
    int hop = 0;
    // bounded: by the number of hops
    while (hop + 1 < a.num_hops && blockIdx.x >= a.first_tile[hop + 1]) ++hop;
    return hop;
}

extern "C" __global__ void __launch_bounds__(THREADS) mark(const __grid_constant__ Levels a) {
    const int hop = hop_of_tile(a);
    const u64 i0 = (u64)(blockIdx.x - a.first_tile[hop]) * TILE + threadIdx.x, n = a.count[hop];
    Key v[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) v[j] = i0 + j * THREADS < n ? (Key)a.picks[hop][i0 + j * THREADS] : EMPTY;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j)
        if (v[j] != EMPTY) atomicOr(word_of(a, hop, (u32)v[j]), bit_of((u32)v[j]));
}

// The seeds are no hop's: a thread for each takes its bit from all hops, and enters it into their hash.
extern "C" __global__ void __launch_bounds__(THREADS) unmark(const __grid_constant__ Levels a) {
    const u32 i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.num_seeds) return;
    const u32 v = (u32)a.seeds[i];
    a.nodes[i] = a.seeds[i];
    for (int hop = 0; hop < a.num_hops; ++hop) atomicAnd(word_of(a, hop, v), ~bit_of(v));
    const u64 entry = (u64)(v + 1) << 32 | i;
    u64 at = hash_of(v) & a.seed_mask;
    for (u64 probe = 0; probe <= a.seed_mask; ++probe, at = (at + 1) & a.seed_mask)
        if (atomicCAS((u64*)a.seeds_at + at, 0ull, entry) == 0) break;
}

// The bits of a sector that no hop before has, and how many they are; `known` gains them.
__device__ __forceinline__ u32 first_reached(const u32* sector, u32 known[7], u32 fresh[7]) {
    const uint4 low = *(const uint4*)sector, high = *(const uint4*)(sector + 4);
    const u32 bits[7] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z};
    u32 count = 0;
#pragma unroll
    for (int w = 0; w < 7; ++w) {
        fresh[w] = bits[w] & ~known[w];
        known[w] |= bits[w];
        count += __popc(fresh[w]);
    }
    return count;
}

extern "C" __global__ void __launch_bounds__(THREADS) count(const __grid_constant__ Levels a) {
    u32 known[SECTORS][7] = {}, fresh[7];
    const u32 s0 = blockIdx.x * THREADS * SECTORS + threadIdx.x;
    for (int hop = 0; hop < a.num_hops; ++hop) {
        u32 mine = 0, total;
#pragma unroll
        for (int j = 0; j < SECTORS; ++j) {
            const u32 s = s0 + j * THREADS;
            if (s < a.sectors) mine += first_reached(a.marks + ((u64)hop * a.sectors + s) * 8, known[j], fresh);
        }
        block_scan<THREADS / 32>(mine, total);
        if (threadIdx.x == 0) a.counts[(u64)hop * a.tiles + blockIdx.x] = total;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) place(const __grid_constant__ Levels a) {
    u32 known[SECTORS][7] = {}, end = a.num_seeds;
    const u32 s0 = blockIdx.x * THREADS * SECTORS + threadIdx.x;
    const bool reports = blockIdx.x == 0 && threadIdx.x == 0;
    if (reports) report_size(a, 0, end);
    for (int hop = 0; hop < a.num_hops; ++hop) {
        u32 before = 0, every = 0, of_tiles_before, of_tiles;
        for (u32 t = threadIdx.x; t < a.tiles; t += THREADS) {
            const u32 of_tile = __ldg(a.counts + (u64)hop * a.tiles + t);
            every += of_tile;
            before += t < blockIdx.x ? of_tile : 0;
        }
        block_scan<THREADS / 32>(before, of_tiles_before);
        block_scan<THREADS / 32>(every, of_tiles);
        u32 fresh[SECTORS][7], counts[SECTORS], mine = 0, total;
#pragma unroll
        for (int j = 0; j < SECTORS; ++j) {
            const u32 s = s0 + j * THREADS;
            counts[j] = s < a.sectors ? first_reached(a.marks + ((u64)hop * a.sectors + s) * 8, known[j], fresh[j]) : 0;
            mine += counts[j];
        }
        u32 at = end + of_tiles_before + block_scan<THREADS / 32>(mine, total);
#pragma unroll
        for (int j = 0; j < SECTORS; ++j) {
            const u32 s = s0 + j * THREADS;
            if (s >= a.sectors) continue;
            uint4* sector = (uint4*)(a.marks + ((u64)hop * a.sectors + s) * 8);
            sector[0] = make_uint4(fresh[j][0], fresh[j][1], fresh[j][2], fresh[j][3]);
            sector[1] = make_uint4(fresh[j][4], fresh[j][5], fresh[j][6], at);
#pragma unroll
            for (int w = 0; w < 7; ++w)
                // bounded: each pass takes a bit
                for (u32 left = fresh[j][w]; left; left &= left - 1)
                    a.nodes[at++] = (ID_T)((u64)s * SECTOR_BITS + w * 32 + __ffs(left) - 1);
        }
        end += of_tiles;
        if (reports) report_size(a, 1 + hop, end);
    }
    if (reports) report_done(a);
}

// The local id that a sector gives to bit `bit` of 0 .. 223; FULL where it lacks the bit.
__device__ __forceinline__ u32 id_in_sector(uint4 low, uint4 high, u32 bit) {
    const u32 words[7] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z};
    u32 at = high.w, mine = 0;
#pragma unroll
    for (u32 w = 0; w < 7; ++w) {
        if (w == bit >> 5) mine = words[w];
        at += w < bit >> 5 ? __popc(words[w]) : 0;
    }
    return mine >> (bit & 31) & 1 ? at + __popc(mine & ((1u << (bit & 31)) - 1)) : FULL;
}

extern "C" __global__ void __launch_bounds__(THREADS) look_up(const __grid_constant__ Levels a) {
    const int hop = hop_of_tile(a);
    const u64 i0 = (u64)(blockIdx.x - a.first_tile[hop]) * TILE + threadIdx.x, n = a.count[hop];
    Key v[ITEMS];
    uint4 low[ITEMS], high[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) v[j] = i0 + j * THREADS < n ? (Key)a.picks[hop][i0 + j * THREADS] : EMPTY;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
        const u32 sector = v[j] == EMPTY ? 0 : (u32)v[j] / SECTOR_BITS;
        const uint4* from = (const uint4*)(a.marks + ((u64)hop * a.sectors + sector) * 8);
        low[j] = __ldg(from);
        high[j] = __ldg(from + 1);
    }
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
        if (v[j] == EMPTY) continue;
        const u32 sector = (u32)v[j] / SECTOR_BITS, bit = (u32)v[j] - sector * SECTOR_BITS;
        u32 local = id_in_sector(low[j], high[j], bit);
        // A vertex that an earlier hop reached first has its bit there; a seed has none.
        for (int level = hop - 1; level >= 0 && local == FULL; --level) {
            const uint4* from = (const uint4*)(a.marks + ((u64)level * a.sectors + sector) * 8);
            local = id_in_sector(__ldg(from), __ldg(from + 1), bit);
        }
        u64 at = hash_of(v[j]) & a.seed_mask;
        for (u64 probe = 0; probe <= a.seed_mask && local == FULL; ++probe, at = (at + 1) & a.seed_mask) {
            const u64 entry = __ldg(a.seeds_at + at);
            if (entry >> 32 == (u64)v[j] + 1) local = (u32)entry;
            if (!entry) break;
        }
        a.out[hop][i0 + j * THREADS] = (int)local;
    }
}
