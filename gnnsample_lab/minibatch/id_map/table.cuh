// The vertex table of the ID maps that hand out local ids while they insert, and what a block does to it: enter a vertex,
// insert a tile of picks, look a tile of picks up. See fused.cu for MAP_KIND.
#ifndef LAB_ID_MAP_TABLE
#define LAB_ID_MAP_TABLE
#include "keys.cuh"

#ifndef ITEMS
#define ITEMS 4
#endif
#ifndef MAP_KIND
#define MAP_KIND 0
#endif
#define THREADS 256
#define PICK_TILE (THREADS * ITEMS)
#define MAX_HOPS 15
#define CTR_DONE 30
#define CTR_STATUS 31

struct Map {
    ID_T* nodes;    // [distinct ids] global ids in order of local ids
    u32* counters;  // [0] vertices entered, [1 + hop] new ones of that hop, [CTR_STATUS] 1: hash too full
    i64* report;    // pinned host memory, see keys.cuh
    void* table;    // MAP_KIND 0: u32[num_nodes]; else Entry[mask + 1]
    u64 mask;
    u32 limit;      // probes before an insertion gives up
    u32 base;       // MAP_KIND 0: words above belong to this mini-batch, as base + 1 + local id; MAP_KIND 1: the stamp
    u32 bits;       // MAP_KIND 1: bits of a vertex id within a key
    u32 unused;
};

struct Hops {  // what `look_up` reads and writes: hop h has tiles first_tile[h] .. first_tile[h + 1]
    const ID_T* picks[MAX_HOPS];
    int* out[MAX_HOPS];
    u64 count[MAX_HOPS];
    u32 first_tile[MAX_HOPS + 1];
    int num_hops;
    int num_levels;  // levels to report to the host
    i64 tag;
};
static_assert(sizeof(Map) == 56 && sizeof(Hops) == 440, "fused.py packs the same structures");

#if MAP_KIND == 0
typedef u32 Word;
#elif MAP_KIND == 1
typedef u64 Word;
#else
typedef Key Word;
#endif

struct __align__(2 * sizeof(Word)) Entry {
    Word key;
    u32 value;
};

__device__ __forceinline__ Word word_of(const Map& m, Key v) {
#if MAP_KIND == 1
    return (u64)m.base << m.bits | (u64)v;
#else
    return (Word)v;
#endif
}
__device__ __forceinline__ bool vacant(const Map& m, Word seen) {
#if MAP_KIND == 1
    return seen >> m.bits != m.base;
#else
    return seen == (Word)~(Word)0;
#endif
}
__device__ __forceinline__ Entry* entries(const Map& m) { return (Entry*)m.table; }
__device__ __forceinline__ u32* words(const Map& m) { return (u32*)m.table; }

__device__ __forceinline__ u32 level_end(const u32* counters, int hop) {
    u32 sum = 0;
    for (int h = 0; h <= hop; ++h) sum += __ldcg(counters + h);
    return sum;
}

// Assign local ids to the items whose bit is set in `won`. Within a warp they follow the order of the picks.
__device__ __forceinline__ void number(const Map& m, int hop, u32 won, u32 local[ITEMS]) {
    const u32 lane = threadIdx.x & 31;
    u32 total = 0;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
        const u32 mask = __ballot_sync(FULL, won >> j & 1);
        local[j] = total + __popc(mask & ((1u << lane) - 1));
        total += __popc(mask);
    }
    __shared__ u32 sums[THREADS / 32], of_block;
    const u32 warp = threadIdx.x >> 5;
    if (lane == 0) sums[warp] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 all = 0;
        for (u32 w = 0; w < THREADS / 32; ++w) {
            const u32 of_warp = sums[w];
            sums[w] = all;
            all += of_warp;
        }
        of_block = all ? level_end(m.counters, hop) + atomicAdd(m.counters + hop + 1, all) : 0;
    }
    __syncthreads();
    const u32 first = of_block + sums[warp];
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) local[j] += first;
}

#if MAP_KIND != 0
// From the key `seen` at `at` to the entry of `mine`; true for the one caller that claims it. `at` becomes its index.
__device__ __forceinline__ bool claim(const Map& m, Word mine, Word seen, u64& at, bool& overflow) {
    const u64 most = min((u64)m.limit, m.mask);  // after mask + 1 slots, probing would repeat
    u64 probes = 0;
    // show: insert into Fused-Map
    // bounded: `probes` counts every step to another slot, and a slot that is vacant is claimed at the first or second try
    while (seen != mine) {
        if (vacant(m, seen)) {
            const Word old = atomicCAS(&entries(m)[at].key, seen, mine);
            if (old == seen) return true;
            seen = old;
            continue;
        }
        if (++probes > most) {
            overflow = true;
            return false;
        }
        at = (at + 1) & m.mask;
        seen = __ldcg(&entries(m)[at].key);
    }
    // end: insert into Fused-Map
    return false;
}
#endif

// Enter a vertex with local id `i`: for the seeds, or for all known vertices when a larger hash replaces the old one.
__device__ __forceinline__ void enter_vertex(const Map& m, Key v, u32 i) {
    m.nodes[i] = (ID_T)v;
#if MAP_KIND == 0
    words(m)[v] = m.base + 1 + i;
#else
    bool overflow = false;  // stays false: the table has room for more vertices than are entered
    u64 at = hash_of(v) & m.mask;
    const Map patient = {m.nodes, m.counters, m.report, m.table, m.mask, 0xFFFFFFFFu, m.base, m.bits, 0};
    claim(patient, word_of(m, v), __ldcg(&entries(m)[at].key), at, overflow);
    entries(m)[at].value = i;
#endif
}

// One block resets the counters for a mini-batch of n seeds.
__device__ __forceinline__ void reset_counters(const Map& m, u32 n) {
    if (threadIdx.x <= CTR_STATUS) m.counters[threadIdx.x] = threadIdx.x == 0 ? n : 0;
}

// Report the sizes of the levels to the host, which polls for them.
__device__ __forceinline__ void report(const Map& m, int num_levels, i64 tag) {
    u32 sum = 0;
    for (int level = 0; level < num_levels; ++level) {
        sum += __ldcg(m.counters + level);
        *(volatile i64*)(m.report + 1 + level) = sum;
    }
    *(volatile i64*)(m.report + REPORT_STATUS) = __ldcg(m.counters + CTR_STATUS);
    __threadfence_system();
    *(volatile i64*)m.report = tag;
}

// At the end of an insertion, after a barrier: the last block reports. Each block releases its counts before it counts
// itself as done; the last block acquires them before it reads.
__device__ __forceinline__ void report_by_the_last_block(const Map& m, int hop, i64 tag) {
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicAdd(m.counters + CTR_DONE, 1u) == gridDim.x - 1) {
            __threadfence();
            m.counters[CTR_DONE] = 0;
            report(m, hop + 2, tag);
        }
    }
}

// A tile of picks. out: MAP_KIND 0 only, their local ids, -1 where the look-up has to find them. All threads of the block.
__device__ __forceinline__ void insert_tile(const Map& m, const ID_T* picks, u64 n, int hop, int* out, u32 tile) {
    const u64 i0 = (u64)tile * PICK_TILE + (threadIdx.x >> 5) * 32 * ITEMS + (threadIdx.x & 31);
    Key v[ITEMS];
    u64 at[ITEMS];
    Word seen[ITEMS];
    u32 won = 0, local[ITEMS];
    // Three rounds of independent accesses: the picks, what the table holds, the claims.
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) v[j] = i0 + j * 32 < n ? (Key)picks[i0 + j * 32] : EMPTY;
#if MAP_KIND == 0
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
        at[j] = v[j];
        seen[j] = v[j] == EMPTY ? FULL : __ldcg(words(m) + v[j]);
    }
    // A claim writes `base`, and an id is larger than `base`: with atomicMax, a late claim never overwrites an id.
#pragma unroll
    for (int j = 0; j < ITEMS; ++j)
        if (seen[j] < m.base) {
            seen[j] = atomicMax(words(m) + at[j], m.base);
            won |= (seen[j] < m.base) << j;
        }
#else
    bool overflow = false;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
        at[j] = hash_of(v[j]) & m.mask;
        seen[j] = v[j] == EMPTY ? (Word)0 : __ldcg(&entries(m)[at[j]].key);
    }
    // All first claims are in flight together; only picks that found another key probe on, one after another.
    u32 open = 0;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
        if (v[j] == EMPTY || seen[j] == word_of(m, v[j])) continue;
        open |= 1u << j;
        if (vacant(m, seen[j])) {
            const Word old = atomicCAS(&entries(m)[at[j]].key, seen[j], word_of(m, v[j]));
            if (old == seen[j]) {
                won |= 1u << j;
                open &= ~(1u << j);
            }
            seen[j] = old;
        }
    }
#pragma unroll
    for (int j = 0; j < ITEMS; ++j)
        if (open >> j & 1) won |= (u32)claim(m, word_of(m, v[j]), seen[j], at[j], overflow) << j;
    if (overflow) m.counters[CTR_STATUS] = 1;
#endif
    number(m, hop, won, local);
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
        const bool mine = won >> j & 1;
#if MAP_KIND == 0
        if (i0 + j * 32 < n) out[i0 + j * 32] = mine ? (int)local[j] : (int)(seen[j] - m.base) - 1;
#endif
        if (!mine) continue;
#if MAP_KIND == 0
        words(m)[at[j]] = m.base + 1 + local[j];
#else
        entries(m)[at[j]].value = local[j];
#endif
        m.nodes[local[j]] = (ID_T)v[j];
    }
}

// Read an entry past the L1 cache, because another block may have written it in this launch.
__device__ __forceinline__ Entry entry_at(const Map& m, u64 at) {
    Entry e;
    e.key = __ldcg(&entries(m)[at].key);
    e.value = __ldcg(&entries(m)[at].value);
    return e;
}

// Local ids of a tile of picks.
__device__ __forceinline__ void look_up_tile(const Map& m, const ID_T* picks, u64 n, int* out, u32 tile) {
    const u64 i0 = (u64)tile * PICK_TILE + threadIdx.x;
    u32 local[ITEMS];
#if MAP_KIND == 0
    u32 open = 0;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) local[j] = i0 + j * THREADS < n ? (u32)__ldcg(out + i0 + j * THREADS) : 0;
#pragma unroll
    for (int j = 0; j < ITEMS; ++j)
        if (local[j] == FULL) {
            open |= 1u << j;
            local[j] = __ldcg(words(m) + (Key)picks[i0 + j * THREADS]) - m.base - 1;
        }
#pragma unroll
    for (int j = 0; j < ITEMS; ++j)
        if (open >> j & 1) out[i0 + j * THREADS] = (int)local[j];
#else
    Key v[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) v[j] = i0 + j * THREADS < n ? (Key)picks[i0 + j * THREADS] : EMPTY;
    Entry seen[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) seen[j] = entry_at(m, hash_of(v[j]) & m.mask);
#pragma unroll
    for (int j = 0; j < ITEMS; ++j) {
        local[j] = FULL;  // remains if an overflow left the pick out; the host then repeats the hop
        if (v[j] == EMPTY) continue;
        u64 at = hash_of(v[j]) & m.mask;
        const Word mine = word_of(m, v[j]);
        for (u64 probes = 0; probes <= min((u64)m.limit, m.mask); ++probes) {
            if (seen[j].key == mine) {
                local[j] = seen[j].value;
                break;
            }
            if (vacant(m, seen[j].key)) break;
            at = (at + 1) & m.mask;
            seen[j] = entry_at(m, at);
        }
    }
#pragma unroll
    for (int j = 0; j < ITEMS; ++j)
        if (i0 + j * THREADS < n) out[i0 + j * THREADS] = (int)local[j];
#endif
}
#endif
