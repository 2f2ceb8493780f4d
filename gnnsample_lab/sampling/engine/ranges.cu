// Pairs of sample and transit by range: a range is a run of vertices whose lists fit the shared memory of a block
// (transit_ranges.cu). One pass over the pairs in place of a sort: within a range their order is that of chance.
//
//   range_table   vertices, by blocks of 2^shift, to ranges of about equal bytes; their first vertices.
//   range_counts  pairs per range, in shared memory. Bound: one read of the transits.
//   range_items   a scan over the ranges (one block): first pairs, work items of at most `per_item` pairs.
//   range_place   a tile of pairs is put in the order of ranges in shared memory and takes its places with one atomic per
//                 range: what a range gets is a short run, and the next tiles fill its sectors in the L2. Bound: latency.
//   put_in_order  results that were written in the order of ranges, to the order of samples. The runs that a tile reads go
//                 on in the next tile. Bound: a read and a write of all results.
//
// UNIT: what put_in_order moves at a time. There are fewer than 2^32 pairs and at most 8192 ranges.
// @variants ID_T=int,long PAIR_T=int,long UNIT=int,int2,int4 THREADS=512,1024
#include "philox.cuh"

typedef long long i64;

#ifndef UNIT
#define UNIT int2
#endif
#ifndef THREADS
#define THREADS 1024
#endif
#define ITEMS 16
#define TILE (THREADS * ITEMS)

struct Placed {
    ID_T v;
    PAIR_T pair;
};

// ranges.py holds the same record.
struct Ranges {
    i64 num_nodes, pairs, size, shift, blocks, ranges, per_item;
    i64 id_bytes;
    const i64* indptr;
    unsigned short* table;  // [blocks]
    i64* firsts;            // [ranges + 1] vertices
    u32* counts;            // [ranges], zero at first
    u32* cursors;           // [ranges] next place
    u32* begins;            // [ranges + 1] pairs
    u32* item_begins;       // [ranges + 1]
    u32* items;             // range of each work item
    u32* heads;             // [0]: work items; [1]: the next to take
    Placed* placed;         // [pairs]
    PAIR_T* places;         // [pairs] where each pair went, -1 for NULL; 0: not asked for
    ID_T* out;              // [pairs, size]: NULL for the slots of NULL transits; 0: not asked for
};

__device__ __forceinline__ i64 bytes_before(const Ranges& x, i64 v) { return x.indptr[v] * x.id_bytes + v * 4; }

__device__ __forceinline__ i64 range_of_block(const Ranges& x, i64 block, double share) {
    return min((i64)((double)bytes_before(x, block << x.shift) * share), x.ranges - 1);
}

extern "C" __global__ void __launch_bounds__(256) range_table(const __grid_constant__ Ranges x) {
    const i64 b = blockIdx.x * 256ll + threadIdx.x;
    if (b < x.ranges) x.counts[b] = 0;
    if (b >= x.blocks) return;
    const double share = (double)x.ranges / (double)max(bytes_before(x, x.num_nodes), 1ll);
    const i64 mine = range_of_block(x, b, share), before = b ? range_of_block(x, b - 1, share) : -1;
    x.table[b] = (unsigned short)mine;
    for (i64 r = before + 1; r <= mine; ++r) x.firsts[r] = b << x.shift;
    if (b == x.blocks - 1)
        for (i64 r = mine + 1; r <= x.ranges; ++r) x.firsts[r] = x.num_nodes;
}

extern "C" __global__ void __launch_bounds__(THREADS) range_counts(const __grid_constant__ Ranges x, const ID_T* keys) {
    extern __shared__ __align__(16) unsigned char memory[];
    u32* const counts = (u32*)memory;
    unsigned short* const table = (unsigned short*)(counts + x.ranges);
    for (u32 i = threadIdx.x; i < x.ranges; i += THREADS) counts[i] = 0;
    for (u32 i = threadIdx.x; i < x.blocks; i += THREADS) table[i] = x.table[i];
    __syncthreads();
    for (i64 base = (i64)blockIdx.x * TILE; base < x.pairs; base += (i64)gridDim.x * TILE) {
        ID_T v[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const i64 at = base + i * THREADS + threadIdx.x;
            v[i] = at < x.pairs ? keys[at] : (ID_T)-1;
        }
#pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            if (v[i] >= 0) atomicAdd(counts + table[v[i] >> x.shift], 1u);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < x.ranges; i += THREADS)
        if (counts[i]) atomicAdd(x.counts + i, counts[i]);
}

// Exclusive prefix of `value` within the block, and the block's sum.
__device__ __forceinline__ u32 block_exclusive(u32 value, u32& sum) {
    __shared__ u32 warps[THREADS / 32];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 inclusive = value;
#pragma unroll
    for (u32 apart = 1; apart < 32; apart <<= 1) {
        const u32 left = __shfl_up_sync(0xFFFFFFFFu, inclusive, apart);
        if (lane >= apart) inclusive += left;
    }
    __syncthreads();
    if (lane == 31) warps[warp] = inclusive;
    __syncthreads();
    u32 before = 0;
    sum = 0;
    for (u32 w = 0; w < THREADS / 32; ++w) {
        if (w < warp) before += warps[w];
        sum += warps[w];
    }
    return before + inclusive - value;
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
    u32* const counts = (u32*)(staged + TILE);  // of the tile, then where the range's run begins in it
    u32* const moves = counts + x.ranges;       // from there to its place
    unsigned short* const table = (unsigned short*)(moves + x.ranges);
    const u32 ranges = (u32)x.ranges, per_thread = (ranges + THREADS - 1) / THREADS;
    for (u32 i = threadIdx.x; i < x.blocks; i += THREADS) table[i] = x.table[i];
    for (i64 base = (i64)blockIdx.x * TILE; base < x.pairs; base += (i64)gridDim.x * TILE) {
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
                const u32 r = table[v[i] >> x.shift];
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
            if (v[i] >= 0) staged[within] = Placed{v[i], (PAIR_T)at};
            if (x.places && at < x.pairs) x.places[at] = v[i] >= 0 ? (PAIR_T)(moves[r] + within) : (PAIR_T)-1;
            if (x.out && at < x.pairs && v[i] < 0)
                for (i64 j = 0; j < x.size; ++j) x.out[at * x.size + j] = (ID_T)-1;
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < here; i += THREADS) {
            const Placed moved = staged[i];
            x.placed[moves[table[moved.v >> x.shift]] + i] = moved;
        }
        __syncthreads();
    }
}

__device__ __forceinline__ void set_null(int& x) { x = -1; }
__device__ __forceinline__ void set_null(int2& x) { x = make_int2(-1, -1); }
__device__ __forceinline__ void set_null(int4& x) { x = make_int4(-1, -1, -1, -1); }

// `units` per pair; multiplier and shift divide by it where the dividend is below 2^31.
extern "C" __global__ void __launch_bounds__(256) put_in_order(const PAIR_T* places, const UNIT* from, UNIT* to, i64 total,
                                                               i64 units, u32 multiplier, u32 shift) {
    const i64 threads = (i64)gridDim.x * 256;
    for (i64 base = blockIdx.x * 256ll + threadIdx.x; base < total; base += 4 * threads) {
        UNIT got[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const i64 i = base + c * threads;
            set_null(got[c]);
            if (i >= total) continue;
            const i64 pair = (u64)i >> 31 ? i / units : (i64)((u64)(u32)i * multiplier >> shift);
            const i64 place = sizeof(PAIR_T) == 4 && places[pair] != (PAIR_T)-1 ? (i64)(u32)places[pair] : (i64)places[pair];
            if (place >= 0) got[c] = from[place * units + (i - pair * units)];
        }
#pragma unroll
        for (int c = 0; c < 4; ++c)
            if (base + c * threads < total) to[base + c * threads] = got[c];
    }
}
