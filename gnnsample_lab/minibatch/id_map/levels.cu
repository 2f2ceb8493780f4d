// The ID map as bitmaps: a bit per vertex and hop says whether the hop's picks reach the vertex. All hops are marked in one
// launch, since no mark depends on another. What a hop reaches first is its bits without those of the hops before and of
// the seeds; the place of a bit among them is the local id. So ids within a hop ascend, and nothing waits between hops.
//
// LARGE 0: all bits of all hops fit shared memory. Each block marks its share of the picks in bits of its own and writes
//   them down (`mark`), `merge` joins them, and in `look_up` each block holds all bits and their ranks in shared memory.
// LARGE 1: 224 bits and the local id of the first of them share a sector of 32 bytes, so that a look-up costs one sector
//   of a table with 1.14 bits a vertex, which fits the L2 cache where a word per vertex does not. `mark` sets bits,
//   `unmark` takes the seeds' away, `count` counts what each hop reaches first, `place` writes that and its local ids.
//
// Bound: 0: the picks are streamed twice and their local ids once. 1: two random sectors of the L2 cache per pick.
// @variants ID_T=int,long LARGE=0,1
#include "keys.cuh"

#define MAX_HOPS 15
#define SECTOR_BITS 224  // 7 words of bits; the eighth is the local id of the first
#define ITEMS 4

struct Levels {
    const ID_T* picks[MAX_HOPS];
    int* out[MAX_HOPS];
    u64 count[MAX_HOPS];
    u32 first_tile[MAX_HOPS + 1];  // LARGE 1: tiles of hop h begin there
    const ID_T* seeds;
    ID_T* nodes;     // [distinct ids] global ids in order of local ids
    u32* marks;      // LARGE 0: [block][1 + hop][word], the seeds' first; LARGE 1: [hop][sector][8]
    u32* merged;     // LARGE 0: [hop][word] what the hop reaches first; LARGE 1: [hop][tile of sectors] how many
    u64* seeds_at;   // LARGE 0: u32[num_nodes], index of each seed; LARGE 1: hash of vertex + 1 << 32 | index
    i64* report;     // pinned host memory, see keys.cuh
    i64 tag;
    u64 seed_mask;   // LARGE 1: slots of the hash less one
    u32 num_seeds;
    u32 words;       // LARGE 0: words of a bitmap; LARGE 1: sectors
    u32 blocks;      // LARGE 0: those that mark; LARGE 1: tiles of sectors
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

#if LARGE == 0
#define THREADS 1024

extern "C" __global__ void __launch_bounds__(THREADS) mark(const __grid_constant__ Levels a) {
    extern __shared__ u32 bits[];  // [1 + num_hops][words]
    const u32 all = (1 + a.num_hops) * a.words, stride = gridDim.x * THREADS;
    for (u32 i = threadIdx.x; i < all; i += THREADS) bits[i] = 0;
    __syncthreads();
    for (u64 i = blockIdx.x * THREADS + threadIdx.x; i < a.num_seeds; i += stride) {
        const Key v = (Key)a.seeds[i];
        atomicOr(bits + (v >> 5), 1u << (v & 31));
        ((u32*)a.seeds_at)[v] = (u32)i;
    }
    for (int hop = 0; hop < a.num_hops; ++hop) {
        u32* mine = bits + (1 + hop) * a.words;
        const u64 n = a.count[hop];
        for (u64 i0 = blockIdx.x * THREADS + threadIdx.x; i0 < n; i0 += (u64)ITEMS * stride) {
            Key v[ITEMS];
#pragma unroll
            for (int j = 0; j < ITEMS; ++j) {
                const u64 i = i0 + (u64)j * stride;
                v[j] = i < n ? (Key)a.picks[hop][i] : EMPTY;
            }
#pragma unroll
            for (int j = 0; j < ITEMS; ++j) {
                if (v[j] == EMPTY) continue;
                const u32 bit = 1u << (v[j] & 31);
                if (!(((volatile u32*)mine)[v[j] >> 5] & bit)) atomicOr(mine + (v[j] >> 5), bit);
            }
        }
    }
    __syncthreads();
    u32* out = a.marks + (u64)blockIdx.x * all;
    for (u32 i = threadIdx.x; i < all; i += THREADS) out[i] = bits[i];
}

// A block joins 32 words of all hops: a lane for each word, a warp for every eighth of the blocks that have marked.
extern "C" __global__ void __launch_bounds__(256) merge(const __grid_constant__ Levels a) {
    __shared__ u32 parts[8][32];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, w = blockIdx.x * 32 + lane;
    const u64 all = (u64)(1 + a.num_hops) * a.words;
    u32 known = 0;
    for (int level = 0; level <= a.num_hops; ++level) {
        u32 found = 0;
        if (w < a.words) {
            const u32* from = a.marks + (u64)level * a.words + w;
#pragma unroll 8
            for (u32 block = warp; block < a.blocks; block += 8) found |= __ldg(from + block * all);
        }
        parts[warp][lane] = found;
        __syncthreads();
        if (warp == 0) {
            for (int part = 1; part < 8; ++part) found |= parts[part][lane];
            if (level && w < a.words) a.merged[(u64)(level - 1) * a.words + w] = found & ~known;
            known |= found;
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) look_up(const __grid_constant__ Levels a) {
    extern __shared__ u32 bits[];  // [num_hops][words], then the local id of each word's first bit
    const u32 all = a.num_hops * a.words, stride = gridDim.x * THREADS, rank = blockIdx.x * THREADS + threadIdx.x;
    u32* ids = bits + all;
    for (u32 i = threadIdx.x; i < all; i += THREADS) bits[i] = __ldg(a.merged + i);
    __syncthreads();
    // A thread takes words that follow one another, an odd number of them, so that a warp's threads hit different banks.
    const u32 each = ((a.words + THREADS - 1) / THREADS) | 1, w0 = min(threadIdx.x * each, a.words);
    const u32 w1 = min(w0 + each, a.words);
    u32 end = a.num_seeds;
    const bool reports = blockIdx.x == 0 && threadIdx.x == 0;
    if (reports) report_size(a, 0, end);
    for (int hop = 0; hop < a.num_hops; ++hop) {
        u32 mine = 0, total;
        for (u32 w = w0; w < w1; ++w) mine += __popc(bits[hop * a.words + w]);
        u32 at = end + block_scan<THREADS / 32>(mine, total);
        for (u32 w = w0; w < w1; ++w) {
            ids[hop * a.words + w] = at;
            at += __popc(bits[hop * a.words + w]);
        }
        end += total;
        if (reports) report_size(a, 1 + hop, end);
    }
    if (reports) report_done(a);
    __syncthreads();
    for (u32 i = rank; i < a.num_seeds; i += stride) a.nodes[i] = a.seeds[i];
    for (u32 i = rank; i < all; i += stride) {
        u32 at = ids[i];
        // bounded: each pass takes a bit
        for (u32 left = bits[i]; left; left &= left - 1) a.nodes[at++] = (ID_T)((i % a.words) * 32 + __ffs(left) - 1);
    }
    for (int hop = 0; hop < a.num_hops; ++hop) {
        const u64 n = a.count[hop];
        for (u64 i0 = rank; i0 < n; i0 += (u64)ITEMS * stride) {
            Key v[ITEMS];
#pragma unroll
            for (int j = 0; j < ITEMS; ++j) {
                const u64 i = i0 + (u64)j * stride;
                v[j] = i < n ? (Key)a.picks[hop][i] : EMPTY;
            }
#pragma unroll
            for (int j = 0; j < ITEMS; ++j) {
                if (v[j] == EMPTY) continue;
                const u32 bit = 1u << (v[j] & 31);
                int level = hop;
                // bounded: by `level`, which falls
                while (level >= 0 && !(bits[level * a.words + (v[j] >> 5)] & bit)) --level;
                const u32 at = level * a.words + (v[j] >> 5);
                a.out[hop][i0 + (u64)j * stride] = level < 0 ? (int)__ldg((const u32*)a.seeds_at + v[j])
                                                             : (int)(ids[at] + __popc(bits[at] & (bit - 1)));
            }
        }
    }
}

#else
#define THREADS 256
#define TILE (THREADS * ITEMS)  // picks, or sectors, of a block

__device__ __forceinline__ u32* word_of(const Levels& a, int hop, u32 v) {
    const u32 sector = v / SECTOR_BITS;
    return a.marks + ((u64)hop * a.words + sector) * 8 + (v - sector * SECTOR_BITS) / 32;
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
    for (int hop = 0; hop < a.num_hops; ++hop) {
        u32* word = word_of(a, hop, v);
        if (__ldcg(word) & bit_of(v)) atomicAnd(word, ~bit_of(v));
    }
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
    u32 known[ITEMS][7] = {}, fresh[7];
    const u32 s0 = blockIdx.x * TILE + threadIdx.x;
    for (int hop = 0; hop < a.num_hops; ++hop) {
        u32 mine = 0, total;
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const u32 s = s0 + j * THREADS;
            if (s < a.words) mine += first_reached(a.marks + ((u64)hop * a.words + s) * 8, known[j], fresh);
        }
        block_scan<THREADS / 32>(mine, total);
        if (threadIdx.x == 0) a.merged[(u64)hop * a.blocks + blockIdx.x] = total;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) place(const __grid_constant__ Levels a) {
    u32 known[ITEMS][7] = {}, end = a.num_seeds;
    const u32 s0 = blockIdx.x * TILE + threadIdx.x;
    const bool reports = blockIdx.x == 0 && threadIdx.x == 0;
    if (reports) report_size(a, 0, end);
    for (int hop = 0; hop < a.num_hops; ++hop) {
        u32 before = 0, every = 0, of_tiles_before, of_tiles;
        for (u32 t = threadIdx.x; t < a.blocks; t += THREADS) {
            const u32 of_tile = __ldg(a.merged + (u64)hop * a.blocks + t);
            every += of_tile;
            before += t < blockIdx.x ? of_tile : 0;
        }
        block_scan<THREADS / 32>(before, of_tiles_before);
        block_scan<THREADS / 32>(every, of_tiles);
        u32 fresh[ITEMS][7], counts[ITEMS], mine = 0, total;
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const u32 s = s0 + j * THREADS;
            counts[j] = s < a.words ? first_reached(a.marks + ((u64)hop * a.words + s) * 8, known[j], fresh[j]) : 0;
            mine += counts[j];
        }
        u32 at = end + of_tiles_before + block_scan<THREADS / 32>(mine, total);
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const u32 s = s0 + j * THREADS;
            if (s >= a.words) continue;
            uint4* sector = (uint4*)(a.marks + ((u64)hop * a.words + s) * 8);
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
        const uint4* from = (const uint4*)(a.marks + ((u64)hop * a.words + sector) * 8);
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
            const uint4* from = (const uint4*)(a.marks + ((u64)level * a.words + sector) * 8);
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
#endif
