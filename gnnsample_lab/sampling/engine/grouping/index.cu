// The scheduling index (NextDoor, section 6.1.2): pairs of sample and transit grouped by transit, the distinct transits, and
// three classes of transits by the number of neighbours to sample. The host reads nothing back: later kernels read the
// counts from device memory. A pair is identified by its index in `transits`, [S * t]; NULL (negative) transits are
// left out.
//
// There are two ways to group. A radix sort (radix.cu) sorts the pairs, and count_runs counts the runs. Counting
// consists of count_transits (one atomic per pair, which returns the pair's rank within its transit), a scan over the
// vertices, and place_pairs (one random 4-byte write per pair): O(P + N), in any order within a transit.
// Bound of counting: atomics on an L2-resident count per vertex, then 4-byte writes that touch 32-byte sectors.
//
// PAIR_T is int below 2^31 pairs; there must be fewer than 2^32.
// @variants ID_T=int,long PAIR_T=int,long
#include "block_scan.cuh"

typedef long long i64;

#define THREADS 256
#define VERTEX_TILE 2048 // vertices per block
#define ROWS 5           // sums over vertices: pairs, transits of the three classes, work items of the last class

// For each row (blockIdx.x) of n + 1 values: an exclusive scan of the first n values; the last becomes their sum.
extern "C" __global__ void scan_rows(u32* rows, i64 n) {
    u32* const row = rows + blockIdx.x * (n + 1);
    u32 before = 0, sum;
    for (i64 base = 0; base < n; base += blockDim.x) {
        const i64 at = base + threadIdx.x;
        const u32 mine = at < n ? row[at] : 0;
        const u32 exclusive = block_exclusive(mine, sum);
        if (at < n) row[at] = before + exclusive;
        before += sum;
    }
    if (threadIdx.x == 0) row[n] = before;
}

// -------------------------------------------------------------------------------------------------------------- counting

// Count one more pair of v and return its rank.
__device__ __forceinline__ u32 take_rank(u32* counts, ID_T v) {
    return v >= 0 ? atomicAdd(counts + v, 1u) : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS) count_transits(const ID_T* keys, i64 n, u32* counts, u32* ranks) {
    // show: group by transit
    for (i64 base = (i64)blockIdx.x * THREADS * 4; base < n; base += (i64)gridDim.x * THREADS * 4) {
        ID_T v[4];
        u32 rank[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const i64 at = base + c * THREADS + threadIdx.x;
            v[c] = at < n ? keys[at] : (ID_T)-1;
        }
#pragma unroll
        for (int c = 0; c < 4; ++c) rank[c] = take_rank(counts, v[c]);
#pragma unroll
        for (int c = 0; c < 4; ++c)
            if (v[c] >= 0) ranks[base + c * THREADS + threadIdx.x] = rank[c];
    }
    // end: group by transit
}

extern "C" __global__ void __launch_bounds__(THREADS) place_pairs(const ID_T* keys, i64 n, const u32* offsets,
                                                                  const u32* ranks, PAIR_T* pairs) {
    for (i64 base = (i64)blockIdx.x * THREADS * 4; base < n; base += (i64)gridDim.x * THREADS * 4) {
        ID_T v[4];
        u32 place[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const i64 at = base + c * THREADS + threadIdx.x;
            v[c] = at < n ? keys[at] : (ID_T)-1;
            place[c] = v[c] >= 0 ? ranks[at] : 0;
        }
#pragma unroll
        for (int c = 0; c < 4; ++c)
            if (v[c] >= 0) place[c] += offsets[v[c]];
#pragma unroll
        for (int c = 0; c < 4; ++c)
            if (v[c] >= 0) pairs[place[c]] = (PAIR_T)(base + c * THREADS + threadIdx.x);
    }
}

// ----------------------------------------------------------------------------------------- distinct transits and classes

struct Classes {
    i64 num_nodes, tiles;
    i64 size;            // neighbours to sample per pair
    i64 few, many;       // fewer than `few`: class 0; more than `many`: class 2
    i64 pairs_per_item;  // most pairs of a work item of class 2
};

__device__ __forceinline__ int class_of(const Classes& c, u32 count) {
    const u64 draws = (u64)count * (u64)c.size;
    return draws < (u64)c.few ? 0 : draws <= (u64)c.many ? 1 : 2;
}
__device__ __forceinline__ u32 items_of(const Classes& c, u32 count) {
    return (u32)(((u64)count + c.pairs_per_item - 1) / (u64)c.pairs_per_item);
}

// Sums over vertices: pairs | work items << 32, and the number of members of each class in 20 bits each.
struct Sums {
    u64 pairs, members;
};
__device__ __forceinline__ Sums sums_of(const Classes& c, u32 count) {
    Sums s{count, 0};
    if (count) {
        const int k = class_of(c, count);
        s.members = 1ull << 20 * k;
        if (k == 2) s.pairs |= (u64)items_of(c, count) << 32;
    }
    return s;
}

// sums[row * (tiles + 1) + tile] for the ROWS sums of a tile of vertices.
extern "C" __global__ void __launch_bounds__(THREADS) vertex_sums(const __grid_constant__ Classes c, const u32* counts,
                                                                  u32* sums) {
    const i64 base = (i64)blockIdx.x * VERTEX_TILE;
    Sums mine{0, 0}, sum;
#pragma unroll
    for (int i = 0; i < VERTEX_TILE / THREADS; ++i) {
        const i64 v = base + i * THREADS + threadIdx.x;
        const Sums s = sums_of(c, v < c.num_nodes ? counts[v] : 0);
        mine.pairs += s.pairs;
        mine.members += s.members;
    }
    block_exclusive(mine.pairs, sum.pairs);
    block_exclusive(mine.members, sum.members);
    if (threadIdx.x < ROWS) {
        const u32 mask = (1u << 20) - 1;
        const u32 row = threadIdx.x;
        sums[row * (c.tiles + 1) + blockIdx.x] = row == 0   ? (u32)sum.pairs
                                                 : row == 4 ? (u32)(sum.pairs >> 32)
                                                            : (u32)(sum.members >> 20 * (row - 1)) & mask;
    }
}

// Numbers distinct transits in ascending order. counts[v] becomes the place of v's first pair.
//   transits[d], begins[d] (and begins[D] = pairs), lists[class * capacity + i] = d, item_begins[i] (and their sum at the
//   end), totals: D, members of the classes, work items.
extern "C" __global__ void __launch_bounds__(THREADS)
number_transits(const __grid_constant__ Classes c, u32* counts, const u32* sums, ID_T* transits, i64* begins, ID_T* lists,
                i64 capacity, u32* item_begins, i64* totals) {
    const i64 row = c.tiles + 1, tile = blockIdx.x, base = tile * VERTEX_TILE;
    const u32 per_thread = VERTEX_TILE / THREADS, mask = (1u << 20) - 1;
    u32 count[per_thread];
    Sums mine{0, 0}, sum;
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
        const i64 v = base + threadIdx.x * per_thread + i;
        count[i] = v < c.num_nodes ? counts[v] : 0;
        const Sums s = sums_of(c, count[i]);
        mine.pairs += s.pairs;
        mine.members += s.members;
    }
    const Sums before{block_exclusive(mine.pairs, sum.pairs), block_exclusive(mine.members, sum.members)};
    u32 pairs = sums[tile] + (u32)before.pairs, items = sums[4 * row + tile] + (u32)(before.pairs >> 32);
    u32 members[3];
#pragma unroll
    for (int k = 0; k < 3; ++k) members[k] = sums[(k + 1) * row + tile] + ((u32)(before.members >> 20 * k) & mask);
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
        const i64 v = base + threadIdx.x * per_thread + i;
        if (v < c.num_nodes) counts[v] = pairs;
        if (count[i] == 0) continue;
        const u32 number = members[0] + members[1] + members[2];
        const int k = class_of(c, count[i]);
        transits[number] = (ID_T)v;
        begins[number] = pairs;
        lists[k * capacity + (k == 0 ? members[0] : k == 1 ? members[1] : members[2])] = (ID_T)number;
        if (k == 2) {
            item_begins[members[2]] = items;
            items += items_of(c, count[i]);
        }
        members[0] += k == 0;
        members[1] += k == 1;
        members[2] += k == 2;
        pairs += count[i];
    }
    if (tile == 0 && threadIdx.x == 0) {
        const u32 *total = sums + c.tiles;
        const i64 distinct = (i64)total[row] + total[2 * row] + total[3 * row];
        totals[0] = distinct;
        for (int k = 1; k < ROWS; ++k) totals[k] = total[k * row];
        begins[distinct] = total[0];
        item_begins[total[3 * row]] = total[4 * row];
    }
}

// items[i] = number of the member of class 2 that work item i belongs to; a warp per member.
extern "C" __global__ void __launch_bounds__(THREADS) expand_items(const i64* totals, const u32* item_begins, u32* items) {
    const i64 warps = (i64)gridDim.x * (THREADS / 32);
    for (i64 n = (i64)blockIdx.x * (THREADS / 32) + (threadIdx.x >> 5); n < totals[3]; n += warps)
        for (u32 i = item_begins[n] + lane_of(); i < item_begins[n + 1]; i += 32) items[i] = (u32)n;
}
// -------------------------------------------------------------------------------------------------------------------
// other

// Write NULL to the slots of NULL transits, which no index holds.
extern "C" __global__ void __launch_bounds__(THREADS) null_slots(const ID_T* transits, i64 pairs, i64 size, ID_T* out) {
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < pairs; i += (i64)gridDim.x * THREADS)
        if (transits[i] < 0)
            for (i64 j = 0; j < size; ++j) out[i * size + j] = (ID_T)-1;
}

// edges[d] = list length of distinct transit d, but 1 for an empty list; 0 for d >= *count.
extern "C" __global__ void __launch_bounds__(THREADS) frontier_edges(const i64* indptr, const ID_T* transits,
                                                                     const i64* count, i64 capacity, i64* edges) {
    for (i64 d = (i64)blockIdx.x * THREADS + threadIdx.x; d < capacity; d += (i64)gridDim.x * THREADS) {
        i64 length = 0;
        if (d < *count) length = max(indptr[(i64)transits[d] + 1] - indptr[transits[d]], 1ll);
        edges[d] = length;
    }
}
