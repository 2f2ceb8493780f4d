// Which rows of a batch are where: in the previous batch, in the cache, or in host memory only (Match of FastGL, and
// GNNLab's marking in the sampling stage). And how much batches overlap: one bit per vertex and batch, then popcounts.
//
// ids: ID_T[n]. What bounds it: one random read per vertex and table, of 4 or 8 bytes; for the overlaps, popcounts from
// shared memory (two batches' words are read once per 16 x 16 pairs).
// @variants ID_T=int,long
#include "features/caching/slots.cuh"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// locations[i]: cache slot (>= 0), -1 host, -2 - p for row p of the previous batch. where[v] holds base + row of the
// batch that last had v; rows of the previous batch lie in [base, base + rows). counts: misses, reused rows.
// misses / missing: positions in the batch, and ids, of the rows in host memory; their order is free.
extern "C" __global__ void __launch_bounds__(256) mark(const ID_T* ids, u64 n, const uint2* slots, int all_cached,
                                                       const u32* where, u32 base, u32 rows, int* locations, int* misses,
                                                       ID_T* missing, u64* counts) {
    __shared__ u32 warp_misses[8], warp_reused[8];
    __shared__ u64 begin;
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    ID_T v = 0;
    int at = 0;
    bool reused = false;
    // show: match with the last batch
    if (i < n) {
        v = ids[i];
        const u32 row = where ? where[v] - base : 0;
        reused = where && row < rows;
        at = reused ? -2 - (int)row : all_cached ? (int)v : slots ? slot_of(slots, (u64)v) : -1;
        locations[i] = at;
    }
    // end: match with the last batch
    const u32 missed = __ballot_sync(0xFFFFFFFFu, at == -1), again = __ballot_sync(0xFFFFFFFFu, reused);
    if (lane == 0) {
        warp_misses[warp] = __popc(missed);
        warp_reused[warp] = __popc(again);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 sum = 0, reuse = 0;
        for (u32 w = 0; w < 8; ++w) {
            sum += warp_misses[w];
            reuse += warp_reused[w];
        }
        begin = sum ? atomicAdd(counts, (u64)sum) : 0;
        if (reuse) atomicAdd(counts + 1, (u64)reuse);
    }
    __syncthreads();
    if (at != -1) return;
    u64 to = begin + __popc(missed & ((1u << lane) - 1));
    for (u32 w = 0; w < warp; ++w) to += warp_misses[w];
    misses[to] = (int)i;
    missing[to] = v;
}

// After `mark`: this batch is the previous one from now on. Of a repeated id any row will do, they are equal.
extern "C" __global__ void remember(const ID_T* ids, u64 n, u32* where, u32 base) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i < n) where[ids[i]] = base + (u32)i;
}

// Hash table of a batch: keys hold id + 1 (zeroed before), rows the lowest position (filled with ones before).
__device__ __forceinline__ u64 home(u64 v, u64 slots) { return (v * 0x9E3779B97F4A7C15ull >> 20) & (slots - 1); }

extern "C" __global__ void insert(const ID_T* ids, u64 n, u64* keys, u32* rows, u64 slots) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const u64 key = (u64)ids[i] + 1;
    u64 at = home(key, slots);
    for (u64 probe = 0; probe < slots; ++probe, at = (at + 1) & (slots - 1)) {
        const u64 old = atomicCAS(keys + at, 0ull, key);
        if (old == 0 || old == key) {
            atomicMin(rows + at, (u32)i);
            return;
        }
    }
    __trap();  // the host makes the table of twice as many slots as ids
}

extern "C" __global__ void find(const ID_T* ids, u64 n, const u64* keys, const u32* rows, u64 slots, i64* found) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const u64 key = (u64)ids[i] + 1;
    u64 at = home(key, slots);
    for (u64 probe = 0; probe < slots && keys[at] != 0 && keys[at] != key; ++probe) at = (at + 1) & (slots - 1);
    found[i] = keys[at] == key ? (i64)rows[at] : -1;
}

// before: inclusive scan of (found >= 0). reuse: i64[2, k], load: ID_T[n - k], load_positions: i64[n - k].
extern "C" __global__ void plan(const ID_T* ids, u64 n, const i64* found, const i64* before, i64 k, i64* reuse,
                                ID_T* load, i64* load_positions) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (found[i] >= 0) {
        reuse[before[i] - 1] = found[i];
        reuse[k + before[i] - 1] = i;
    } else {
        load[i - before[i]] = ids[i];
        load_positions[i - before[i]] = i;
    }
}

// Bit v - low of the batch's row, for its ids in [low, low + 32 * words).
extern "C" __global__ void set_bits(const ID_T* ids, u64 n, i64 low, u64 words, u32* bits) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const u64 v = (u64)((i64)ids[i] - low);
    if (v < words * 32) atomicOr(bits + v / 32, 1u << (v % 32));
}

// overlaps[i, j] += set bits that rows i and j share. Block (x, y, z): 16 x 16 pairs, every gridDim.z-th tile of words.
#define WORD_TILE 128
extern "C" __global__ void __launch_bounds__(256) count_shared(const u32* bits, u64 words, int batches, u64* overlaps) {
    __shared__ u32 a[16][WORD_TILE + 1], b[16][WORD_TILE + 1];  // the extra word keeps 16 rows in 16 banks
    if (blockIdx.x > blockIdx.y) return;              // symmetric: the host mirrors
    const int i = blockIdx.x * 16 + (threadIdx.x & 15), j = blockIdx.y * 16 + (threadIdx.x >> 4);
    u64 sum = 0;
    for (u64 first = blockIdx.z * (u64)WORD_TILE; first < words; first += gridDim.z * (u64)WORD_TILE) {
        for (int t = threadIdx.x; t < 16 * WORD_TILE; t += 256) {
            const int row = t / WORD_TILE, column = t % WORD_TILE;
            const bool inside = first + column < words;
            const int x = blockIdx.x * 16 + row, y = blockIdx.y * 16 + row;
            a[row][column] = inside && x < batches ? bits[x * words + first + column] : 0;
            b[row][column] = inside && y < batches ? bits[y * words + first + column] : 0;
        }
        __syncthreads();
        for (int t = 0; t < WORD_TILE; ++t) sum += __popc(a[threadIdx.x & 15][t] & b[threadIdx.x >> 4][t]);
        __syncthreads();
    }
    if (i < batches && j < batches && sum) atomicAdd(overlaps + (u64)i * batches + j, sum);
}
