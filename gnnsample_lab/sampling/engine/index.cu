// The scheduling index (NextDoor, section 6.1.2): pairs of sample and transit grouped by transit, the distinct transits, and
// three classes of them by the number of neighbours to sample. Nothing is read back by the host: what follows takes its
// counts from device memory. A pair is its place in `transits`, [S * t]; NULL (negative) transits are left out.
//
// Two ways to group, and a third that groups coarsely:
//   counting   count_transits (one atomic per pair, which returns the pair's rank within its transit), a scan over the
//              vertices, place_pairs (one random 4-byte write per pair). O(P + N), order within a transit not determined.
//              Bound: atomics on an L2-resident count per vertex, then 4-byte writes that touch 32-byte sectors; both come
//              close to reads of consecutive memory where the pairs went through `partition` first (vertices of one bucket
//              and places of their pairs lie together).
//   radix      LSD, 8 bits a pass, as many passes as vertex ids need; stable. A pass is digit_histogram, a scan,
//              partition: ranked within a tile in shared memory, so that a digit's pairs leave as one coalesced run.
//              Bound: bytes, (3 reads and 2 writes of 4 to 8 bytes) per pair and pass.
//   buckets    one such pass with a digit that is the vertex's share of the edges: buckets whose lists fit the L2 together.
//
// PAIR_T is int below 2^31 pairs; there must be fewer than 2^32. MATCH=1: lanes of a warp with one transit share an atomic.
// @variants ID_T=int,long PAIR_T=int,long MATCH=0,1
#include "philox.cuh"

typedef long long i64;

#define FULL 0xFFFFFFFFu
#define THREADS 256
#define SCAN_TILE 4096   // values per block of a scan
#define VERTEX_TILE 2048 // vertices per block
#define SORT_ITEMS 16    // pairs per thread of a partition
#define SORT_TILE (THREADS * SORT_ITEMS)
#define DIGITS 256
#define COARSE 4096      // entries of the table that maps vertices to buckets
#define ROWS 5           // sums over vertices: pairs, transits of the three classes, work items of the last class

__device__ __forceinline__ u32 lane_of() { return threadIdx.x & 31; }

template <class T>
__device__ __forceinline__ T warp_inclusive(T value) {
#pragma unroll
    for (int apart = 1; apart < 32; apart <<= 1) {
        const T left = __shfl_up_sync(FULL, value, apart);
        if (lane_of() >= apart) value += left;
    }
    return value;
}

// Exclusive prefix of `value` within the block, and the block's sum; up to 1024 threads.
template <class T>
__device__ __forceinline__ T block_exclusive(T value, T& sum) {
    __shared__ T warps[32];
    const u32 warp = threadIdx.x >> 5, count = blockDim.x >> 5;
    const T inclusive = warp_inclusive(value);
    __syncthreads();
    if (lane_of() == 31) warps[warp] = inclusive;
    __syncthreads();
    if (warp == 0) {
        const T mine = lane_of() < count ? warps[lane_of()] : 0;
        warps[lane_of()] = warp_inclusive(mine);
    }
    __syncthreads();
    sum = warps[count - 1];
    return inclusive - value + (warp ? warps[warp - 1] : 0);
}

// ---------------------------------------------------------------------------------------------- exclusive scan in place

// sums[b] = sum of values[b * SCAN_TILE ...]
extern "C" __global__ void __launch_bounds__(THREADS) tile_sums(const u32* values, i64 n, u32* sums) {
    u32 mine = 0, sum;
    const i64 base = (i64)blockIdx.x * SCAN_TILE;
#pragma unroll
    for (int i = 0; i < SCAN_TILE / THREADS; ++i) {
        const i64 at = base + i * THREADS + threadIdx.x;
        if (at < n) mine += values[at];
    }
    block_exclusive(mine, sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Rows (blockIdx.x) of n + 1 values: an exclusive scan of the first n, and their sum behind them.
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

extern "C" __global__ void __launch_bounds__(THREADS) scan_tiles(u32* values, i64 n, const u32* sums) {
    __shared__ u32 staged[SCAN_TILE];
    const i64 base = (i64)blockIdx.x * SCAN_TILE;
    const u32 per_thread = SCAN_TILE / THREADS;
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
        const u32 at = i * THREADS + threadIdx.x;
        staged[at] = base + at < n ? values[base + at] : 0;
    }
    __syncthreads();
    u32 mine = 0, sum;
    for (u32 i = 0; i < per_thread; ++i) mine += staged[threadIdx.x * per_thread + i];
    u32 before = sums[blockIdx.x] + block_exclusive(mine, sum);
    for (u32 i = 0; i < per_thread; ++i) {
        const u32 value = staged[threadIdx.x * per_thread + i];
        staged[threadIdx.x * per_thread + i] = before;
        before += value;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
        const u32 at = i * THREADS + threadIdx.x;
        if (base + at < n) values[base + at] = staged[at];
    }
}

// -------------------------------------------------------------------------------------------------------------- counting

// Rank of one more pair of v; the whole warp comes here.
__device__ __forceinline__ u32 take_rank(u32* counts, ID_T v) {
#if MATCH
    const u32 peers = sizeof(ID_T) == 8 ? __match_any_sync(FULL, (u64)v) : __match_any_sync(FULL, (u32)v);
    const int leader = __ffs(peers) - 1;
    u32 before = 0;
    if (v >= 0 && (int)lane_of() == leader) before = atomicAdd(counts + v, (u32)__popc(peers));
    return __shfl_sync(FULL, before, leader) + __popc(peers & ((1u << lane_of()) - 1));
#else
    return v >= 0 ? atomicAdd(counts + v, 1u) : 0;
#endif
}

// keys: a transit per pair, *given of them (`total` where there is no such count).
extern "C" __global__ void __launch_bounds__(THREADS) count_transits(const ID_T* keys, const u32* given, i64 total,
                                                                     u32* counts, u32* ranks) {
    const i64 n = given ? (i64)*given : total;
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
}

// ids: the pair of each key, where keys are not in the order of pairs.
extern "C" __global__ void __launch_bounds__(THREADS) place_pairs(const ID_T* keys, const PAIR_T* ids, const u32* given,
                                                                  i64 total, const u32* offsets, const u32* ranks,
                                                                  PAIR_T* pairs) {
    const i64 n = given ? (i64)*given : total;
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
        for (int c = 0; c < 4; ++c) {
            const i64 at = base + c * THREADS + threadIdx.x;
            if (v[c] >= 0) pairs[place[c]] = ids ? ids[at] : (PAIR_T)at;
        }
    }
}

// Sorted keys: counts[v] from where the run of v begins and ends (NULLs, num_nodes by now, come last).
extern "C" __global__ void __launch_bounds__(THREADS) count_runs(const ID_T* keys, i64 n, i64 num_nodes, u32* counts) {
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < n; i += (i64)gridDim.x * THREADS) {
        const ID_T v = keys[i];
        if ((i64)v >= num_nodes) continue;
        if (i == 0 || keys[i - 1] != v) atomicSub(counts + v, (u32)i);
        if (i + 1 == n || keys[i + 1] != v) atomicAdd(counts + v, (u32)(i + 1));
    }
}

// ----------------------------------------------------------------------------------------- distinct transits and classes

struct Classes {
    i64 num_nodes, tiles;
    i64 size;            // neighbours to sample per pair
    i64 few, many;       // fewer than `few`: class 0; more than `many`: class 2
    i64 pairs_per_item;  // pairs that a work item of class 2 has
};

__device__ __forceinline__ int class_of(const Classes& c, u32 count) {
    const u64 draws = (u64)count * (u64)c.size;
    return draws < (u64)c.few ? 0 : draws <= (u64)c.many ? 1 : 2;
}
__device__ __forceinline__ u32 items_of(const Classes& c, u32 count) {
    return (u32)(((u64)count + c.pairs_per_item - 1) / (u64)c.pairs_per_item);
}

// What VERTEX_TILE / THREADS neighbouring vertices add: pairs | items << 32, and the classes' members in 20 bits each.
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

// items[i] = which member of class 2 work item i belongs to; a warp per member.
extern "C" __global__ void __launch_bounds__(THREADS) expand_items(const i64* totals, const u32* item_begins, u32* items) {
    const i64 warps = (i64)gridDim.x * (THREADS / 32);
    for (i64 n = (i64)blockIdx.x * (THREADS / 32) + (threadIdx.x >> 5); n < totals[3]; n += warps)
        for (u32 i = item_begins[n] + lane_of(); i < item_begins[n + 1]; i += 32) items[i] = (u32)n;
}

// ------------------------------------------------------------------------------------------------------ radix and buckets

// The digit of a pass: 8 bits of the vertex from `shift` on (a NULL is vertex num_nodes and comes last), or its bucket.
struct Digit {
    i64 num_nodes, pairs, tiles;
    i64 shift, buckets;  // buckets > 0: of the edges; a NULL goes to bucket `buckets`
    const i64* indptr;
};

__device__ __forceinline__ ID_T key_of(const Digit& d, ID_T v) { return v < 0 ? (ID_T)d.num_nodes : v; }

// table[v >> shift]: the bucket of the edges at which the list of the first of these vertices begins.
__device__ __forceinline__ void fill_table(const Digit& d, unsigned char* table) {
    if (d.buckets == 0) return;
    const i64 edges = d.indptr[d.num_nodes];
    const double share = edges ? (double)d.buckets / (double)edges : 0.0;
    for (i64 i = threadIdx.x; i << d.shift < d.num_nodes; i += THREADS)
        table[i] = (unsigned char)min((i64)((double)d.indptr[i << d.shift] * share), d.buckets - 1);
    __syncthreads();
}
__device__ __forceinline__ u32 digit_of(const Digit& d, const unsigned char* table, ID_T key) {
    if (d.buckets == 0) return (u32)((u64)key >> d.shift) & (DIGITS - 1);
    return (i64)key >= d.num_nodes ? (u32)d.buckets : table[key >> d.shift];
}

// counts[digit * tiles + tile]
extern "C" __global__ void __launch_bounds__(THREADS) digit_histogram(const __grid_constant__ Digit d, const ID_T* keys,
                                                                      u32* counts) {
    __shared__ u32 mine[DIGITS];
    __shared__ unsigned char table[COARSE];
    fill_table(d, table);
    for (i64 tile = blockIdx.x; tile < d.tiles; tile += gridDim.x) {
        mine[threadIdx.x] = 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SORT_ITEMS; ++i) {
            const i64 at = tile * SORT_TILE + i * THREADS + threadIdx.x;
            if (at < d.pairs) atomicAdd(mine + digit_of(d, table, key_of(d, keys[at])), 1u);
        }
        __syncthreads();
        counts[threadIdx.x * d.tiles + tile] = mine[threadIdx.x];
        __syncthreads();
    }
}

// Move keys and pairs to where their digit's pairs lie, in order. `ids` 0: pair i stands at i.
extern "C" __global__ void __launch_bounds__(THREADS)
partition(const __grid_constant__ Digit d, const ID_T* keys, const PAIR_T* ids, const u32* offsets, ID_T* keys_out,
          PAIR_T* ids_out) {
    __shared__ u32 warp_counts[THREADS / 32][DIGITS];
    __shared__ u32 local_begin[DIGITS];
    __shared__ u32 place[DIGITS];  // offset of the digit's run in the output, less local_begin
    __shared__ u64 staged_words[SORT_TILE * (sizeof(ID_T) > sizeof(PAIR_T) ? sizeof(ID_T) : sizeof(PAIR_T)) / 8];
    __shared__ unsigned char table[COARSE];
    fill_table(d, table);
    ID_T* const staged_keys = (ID_T*)staged_words;
    PAIR_T* const staged_ids = (PAIR_T*)staged_words;
    const u32 warp = threadIdx.x >> 5, lane = lane_of();
    for (i64 tile = blockIdx.x; tile < d.tiles; tile += gridDim.x) {
        const i64 base = tile * SORT_TILE;
        const u32 here = (u32)min((i64)SORT_TILE, d.pairs - base);
        for (u32 i = threadIdx.x; i < THREADS / 32 * DIGITS; i += THREADS) (&warp_counts[0][0])[i] = 0;
        __syncthreads();
        // Warp w ranks SORT_ITEMS * 32 neighbouring pairs, so that warps, rounds and lanes follow the order of pairs.
        ID_T key[SORT_ITEMS];
        u32 rank[SORT_ITEMS];
#pragma unroll
        for (int i = 0; i < SORT_ITEMS; ++i) {
            const u32 at = warp * SORT_ITEMS * 32 + i * 32 + lane;
            key[i] = at < here ? key_of(d, keys[base + at]) : (ID_T)0;
        }
#pragma unroll
        for (int i = 0; i < SORT_ITEMS; ++i) {
            const u32 at = warp * SORT_ITEMS * 32 + i * 32 + lane;
            const u32 digit = at < here ? digit_of(d, table, key[i]) : DIGITS;
            u32 peers = FULL;
#pragma unroll
            for (int bit = 0; bit < 9; ++bit) {
                const u32 ones = __ballot_sync(FULL, digit >> bit & 1);
                peers &= (digit >> bit & 1) ? ones : ~ones;
            }
            u32 before = 0;
            if (at < here) before = warp_counts[warp][digit];
            __syncwarp();
            rank[i] = before + __popc(peers & ((1u << lane) - 1));
            if (at < here && (int)lane == __ffs(peers) - 1) warp_counts[warp][digit] = before + __popc(peers);
            __syncwarp();
        }
        __syncthreads();
        u32 count = 0, sum;
#pragma unroll
        for (int w = 0; w < THREADS / 32; ++w) {
            const u32 one = warp_counts[w][threadIdx.x];
            warp_counts[w][threadIdx.x] = count;
            count += one;
        }
        const u32 begin = block_exclusive(count, sum);
        local_begin[threadIdx.x] = begin;
        place[threadIdx.x] = offsets[threadIdx.x * d.tiles + tile] - begin;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SORT_ITEMS; ++i) {
            const u32 at = warp * SORT_ITEMS * 32 + i * 32 + lane;
            if (at >= here) continue;
            const u32 digit = digit_of(d, table, key[i]);
            rank[i] += local_begin[digit] + warp_counts[warp][digit];
            staged_keys[rank[i]] = key[i];
        }
        __syncthreads();
        u32 to[SORT_ITEMS];
#pragma unroll
        for (int i = 0; i < SORT_ITEMS; ++i) {
            const u32 at = i * THREADS + threadIdx.x;
            if (at >= here) continue;
            const ID_T moved = staged_keys[at];
            to[i] = place[digit_of(d, table, moved)] + at;
            keys_out[to[i]] = moved;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SORT_ITEMS; ++i) {
            const u32 at = warp * SORT_ITEMS * 32 + i * 32 + lane;
            if (at < here) staged_ids[rank[i]] = ids ? ids[base + at] : (PAIR_T)(base + at);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SORT_ITEMS; ++i) {
            const u32 at = i * THREADS + threadIdx.x;
            if (at < here) ids_out[to[i]] = staged_ids[at];
        }
        __syncthreads();
    }
}

// ------------------------------------------------------------------------------------------------------------------ sundry

// The slots of NULL transits, which no index holds.
extern "C" __global__ void __launch_bounds__(THREADS) null_slots(const ID_T* transits, i64 pairs, i64 size, ID_T* out) {
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < pairs; i += (i64)gridDim.x * THREADS)
        if (transits[i] < 0)
            for (i64 j = 0; j < size; ++j) out[i * size + j] = (ID_T)-1;
}

// edges[d] = list length of distinct transit d, 1 where it is empty, 0 from *count on.
extern "C" __global__ void __launch_bounds__(THREADS) frontier_edges(const i64* indptr, const ID_T* transits,
                                                                     const i64* count, i64 capacity, i64* edges) {
    for (i64 d = (i64)blockIdx.x * THREADS + threadIdx.x; d < capacity; d += (i64)gridDim.x * THREADS) {
        i64 length = 0;
        if (d < *count) length = max(indptr[(i64)transits[d] + 1] - indptr[transits[d]], 1ll);
        edges[d] = length;
    }
}
