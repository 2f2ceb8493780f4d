// A stable radix sort of pairs of sample and transit by transit, for the scheduling index (index.cu) as NextDoor builds
// it (section 6.1.2): least significant digit first, 8 bits per pass, as many passes as vertex ids need. A pass
// consists of digit_histogram, a scan (tile_sums, scan_rows of index.cu, scan_tiles) and partition. partition ranks the
// pairs of a tile in shared memory, so that it writes the pairs of a digit as one coalesced run.
// Bound: bytes, 3 reads and 2 writes of 4 to 8 bytes per pair and pass.
//
// PAIR_T is int below 2^31 pairs; there must be fewer than 2^32.
// @variants ID_T=int,long PAIR_T=int,long
#include "block_scan.cuh"

typedef long long i64;

#define THREADS 256
#define COUNT_TILE 4096  // values per block of a scan
#define SORT_ITEMS 16   // pairs per thread of a partition
#define SORT_TILE (THREADS * SORT_ITEMS)
#define DIGITS 256

// ---------------------------------------------------------------------------------------------- exclusive scan in place

// sums[b] = sum of values[b * COUNT_TILE ...]
extern "C" __global__ void __launch_bounds__(THREADS) tile_sums(const u32* values, i64 n, u32* sums) {
    u32 mine = 0, sum;
    const i64 base = (i64)blockIdx.x * COUNT_TILE;
#pragma unroll
    for (int i = 0; i < COUNT_TILE / THREADS; ++i) {
        const i64 at = base + i * THREADS + threadIdx.x;
        if (at < n) mine += values[at];
    }
    block_exclusive(mine, sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) scan_tiles(u32* values, i64 n, const u32* sums) {
    __shared__ u32 staged[COUNT_TILE];
    const i64 base = (i64)blockIdx.x * COUNT_TILE;
    const u32 per_thread = COUNT_TILE / THREADS;
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

// ------------------------------------------------------------------------------------------------------------------ passes

// The digit of a pass: 8 bits of the vertex id, from bit `shift` on. NULL counts as vertex num_nodes and comes last.
struct Digit {
    i64 num_nodes, pairs, tiles, shift;
};

__device__ __forceinline__ ID_T key_of(const Digit& d, ID_T v) { return v < 0 ? (ID_T)d.num_nodes : v; }

__device__ __forceinline__ u32 digit_of(const Digit& d, ID_T key) { return (u32)((u64)key >> d.shift) & (DIGITS - 1); }

// counts[digit * tiles + tile]
extern "C" __global__ void __launch_bounds__(THREADS) digit_histogram(const __grid_constant__ Digit d, const ID_T* keys,
                                                                      u32* counts) {
    __shared__ u32 mine[DIGITS];
    for (i64 tile = blockIdx.x; tile < d.tiles; tile += gridDim.x) {
        mine[threadIdx.x] = 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SORT_ITEMS; ++i) {
            const i64 at = tile * SORT_TILE + i * THREADS + threadIdx.x;
            if (at < d.pairs) atomicAdd(mine + digit_of(d, key_of(d, keys[at])), 1u);
        }
        __syncthreads();
        counts[threadIdx.x * d.tiles + tile] = mine[threadIdx.x];
        __syncthreads();
    }
}

// Move keys and pairs to the runs of their digits, keeping their order. `ids` null: pair i is number i (the first
// pass).
extern "C" __global__ void __launch_bounds__(THREADS)
partition(const __grid_constant__ Digit d, const ID_T* keys, const PAIR_T* ids, const u32* offsets, ID_T* keys_out,
          PAIR_T* ids_out) {
    __shared__ u32 warp_counts[THREADS / 32][DIGITS];
    __shared__ u32 local_begin[DIGITS];
    __shared__ u32 place[DIGITS];  // offset of the digit's run in the output, minus local_begin
    __shared__ u64 staged_words[SORT_TILE * (sizeof(ID_T) > sizeof(PAIR_T) ? sizeof(ID_T) : sizeof(PAIR_T)) / 8];
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
            const u32 digit = at < here ? digit_of(d, key[i]) : DIGITS;
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
            const u32 digit = digit_of(d, key[i]);
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
            to[i] = place[digit_of(d, moved)] + at;
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

// Count the runs of sorted keys: counts[v] = end - begin of the run of v. NULLs (key num_nodes) come last and do not
// count.
extern "C" __global__ void __launch_bounds__(THREADS) count_runs(const ID_T* keys, i64 n, i64 num_nodes, u32* counts) {
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < n; i += (i64)gridDim.x * THREADS) {
        const ID_T v = keys[i];
        if ((i64)v >= num_nodes) continue;
        if (i == 0 || keys[i - 1] != v) atomicSub(counts + v, (u32)i);
        if (i + 1 == n || keys[i + 1] != v) atomicAdd(counts + v, (u32)(i + 1));
    }
}
