// Group pairs of sample and transit by range. A range is a run of vertices whose adjacency lists fit the shared memory
// of a block (transit_ranges.cu). Two passes over the pairs replace a sort; within a range pairs are in no defined
// order.
//
//   range_table   finds the first vertex of each range, so that ranges have about equal bytes, and the range in which
//                 each block of 2^shift vertices begins.
//   range_counts  counts the pairs per range, in shared memory. Bound: one read of the transits.
//   range_items   scans the counts (one block) and cuts ranges into work items of at most `per_item` pairs.
//   range_place   sorts a tile of pairs by range in shared memory and reserves places with one atomic per range. A tile
//                 writes a short run to each range; later tiles fill the same sectors while they are in the L2 cache.
//                 Bound: latency.
//
// THREADS: of a block. There are fewer than 2^32 pairs and vertices, and at most 8192 ranges.
// @variants ID_T=int,long PAIR_T=int,long THREADS=512,1024
#include "block_scan.cuh"

typedef long long i64;

#ifndef THREADS
#define THREADS 1024
#endif
#define ITEMS 16
#define PAIR_TILE (THREADS * ITEMS)

typedef decltype((ID_T)0 + (PAIR_T)0) Word;
struct Placed {
    Word v, pair;
};

// ranges.py holds the same record.
struct Ranges {
    i64 num_nodes, pairs, size, shift, blocks, ranges, per_item;
    i64 id_bytes;
    const i64* indptr;
    unsigned short* table;  // [blocks + 1] range of the first vertex of each block of 2^shift, and the last range
    i64* firsts;            // [ranges + 1] vertices
    u32* counts;            // [ranges], zero at first
    u32* cursors;           // [ranges] next place
    u32* begins;            // [ranges + 1] pairs
    u32* item_begins;       // [ranges + 1]
    u32* items;             // range of each work item
    u32* heads;             // [0]: work items; [1]: the next to take
    Placed* placed;         // [pairs]
    ID_T* out;              // [pairs, size]: the slots of NULL transits become NULL
};

__device__ __forceinline__ i64 bytes_before(const Ranges& x, i64 v) { return x.indptr[v] * x.id_bytes + v * 4; }

__device__ __forceinline__ i64 range_of(const Ranges& x, i64 v, double share) {
    return min((i64)((double)bytes_before(x, v) * share), x.ranges - 1);
}

extern "C" __global__ void __launch_bounds__(256) range_table(const __grid_constant__ Ranges x) {
    const i64 i = blockIdx.x * 256ll + threadIdx.x;
    const double share = (double)x.ranges / (double)max(bytes_before(x, x.num_nodes), 1ll);
    if (i < x.ranges) {
        i64 low = 0, high = x.num_nodes;  // the first vertex of range i or of a later one
        while (low < high) {
            const i64 middle = (low + high) >> 1;
            if (range_of(x, middle, share) < i) low = middle + 1;
            else high = middle;
        }
        x.firsts[i] = low;
        x.counts[i] = 0;
    }
    if (i == x.ranges) x.firsts[i] = x.num_nodes;
    if (i < x.blocks) x.table[i] = (unsigned short)range_of(x, i << x.shift, share);
    if (i == x.blocks) x.table[i] = (unsigned short)(x.ranges - 1);
}

// Finds the range of a vertex, with a table in shared memory.
struct Finder {
    u32* firsts;  // [ranges]
    u32* table;   // [blocks]: range of the block's first vertex, and << 16 that of the next block's
    u32 shift;
    __device__ __forceinline__ Finder(const Ranges& x, u32* memory)
        : firsts(memory), table(memory + x.ranges), shift((u32)x.shift) {
        for (u32 i = threadIdx.x; i < x.ranges; i += THREADS) firsts[i] = (u32)x.firsts[i];
        for (u32 i = threadIdx.x; i < x.blocks; i += THREADS) table[i] = x.table[i] | (u32)x.table[i + 1] << 16;
    }
    __device__ __forceinline__ u32 operator()(u32 v) const {
        const u32 candidates = table[v >> shift];
        u32 low = candidates & 0xFFFF, high = candidates >> 16;
        while (low < high) {
            const u32 middle = (low + high + 1) >> 1;
            if (firsts[middle] <= v) low = middle;
            else high = middle - 1;
        }
        return low;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) range_counts(const __grid_constant__ Ranges x, const ID_T* keys) {
    extern __shared__ __align__(16) unsigned char memory[];
    u32* const counts = (u32*)memory;
    const Finder range_of_vertex(x, counts + x.ranges);
    for (u32 i = threadIdx.x; i < x.ranges; i += THREADS) counts[i] = 0;
    __syncthreads();
    for (i64 base = (i64)blockIdx.x * PAIR_TILE; base < x.pairs; base += (i64)gridDim.x * PAIR_TILE) {
        ID_T v[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const i64 at = base + i * THREADS + threadIdx.x;
            v[i] = at < x.pairs ? keys[at] : (ID_T)-1;
        }
#pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            if (v[i] >= 0) atomicAdd(counts + range_of_vertex((u32)v[i]), 1u);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < x.ranges; i += THREADS)
        if (counts[i]) atomicAdd(x.counts + i, counts[i]);
}

extern "C" __global__ void __launch_bounds__(THREADS) range_items(const __grid_constant__ Ranges x) {
    u32 pairs = 0, items = 0;
    for (i64 base = 0; base < x.ranges; base += THREADS) {
        const i64 r = base + threadIdx.x;
        const u32 count = r < x.ranges ? x.counts[r] : 0, mine = (u32)((count + x.per_item - 1) / x.per_item);
        u32 sum_pairs, sum_items;
        const u32 first = pairs + block_exclusive(count, sum_pairs), item = items + block_exclusive(mine, sum_items);
        if (r < x.ranges) {
            x.begins[r] = x.cursors[r] = first;
            x.item_begins[r] = item;
            for (u32 i = 0; i < mine; ++i) x.items[item + i] = (u32)r;
        }
        pairs += sum_pairs, items += sum_items;
    }
    if (threadIdx.x == 0) {
        x.begins[x.ranges] = pairs;
        x.item_begins[x.ranges] = items;
        x.heads[0] = items, x.heads[1] = 0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    range_place(const __grid_constant__ Ranges x, const ID_T* keys) {
    extern __shared__ __align__(16) unsigned char memory[];
    Placed* const staged = (Placed*)memory;
    u32* const counts = (u32*)(staged + PAIR_TILE);  // [ranges] pairs of the tile; later where the range's run begins in it
    u32* const moves = counts + x.ranges;       // [ranges] distance from there to the run's place in `placed`
    const Finder range_of_vertex(x, moves + x.ranges);
    const u32 ranges = (u32)x.ranges, per_thread = (ranges + THREADS - 1) / THREADS;
    for (i64 base = (i64)blockIdx.x * PAIR_TILE; base < x.pairs; base += (i64)gridDim.x * PAIR_TILE) {
        for (u32 i = threadIdx.x; i < ranges; i += THREADS) counts[i] = 0;
        ID_T v[ITEMS];
        u32 rank[ITEMS];  // range << 15 | rank
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const i64 at = base + i * THREADS + threadIdx.x;
            v[i] = at < x.pairs ? keys[at] : (ID_T)-1;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            rank[i] = 0;
            if (v[i] >= 0) {
                const u32 r = range_of_vertex((u32)v[i]);
                rank[i] = r << 15 | atomicAdd(counts + r, 1u);
            }
        }
        __syncthreads();
        u32 mine = 0, here;
        const u32 first = threadIdx.x * per_thread, last = min(first + per_thread, ranges);
        for (u32 r = first; r < last; ++r) mine += counts[r];
        u32 before = block_exclusive(mine, here);
        for (u32 r = first; r < last; ++r) {
            const u32 count = counts[r];
            if (count) moves[r] = atomicAdd(x.cursors + r, count) - before;
            counts[r] = before;
            before += count;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const i64 at = base + i * THREADS + threadIdx.x;
            const u32 r = rank[i] >> 15, within = counts[r] + (rank[i] & 0x7FFF);
            if (v[i] >= 0) staged[within] = Placed{v[i], (Word)at};
            if (at < x.pairs && v[i] < 0)
                for (i64 j = 0; j < x.size; ++j) x.out[at * x.size + j] = (ID_T)-1;
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < here; i += THREADS) {
            const Placed moved = staged[i];
            x.placed[moves[range_of_vertex((u32)moved.v)] + i] = moved;
        }
        __syncthreads();
    }
}
