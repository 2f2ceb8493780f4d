// The transposed block by counting sort: for each source, the rows that it feeds.
//
// indptr: i64[rows + 1]; indices: i32[edges], values below `sources`. count_sources leaves each edge's rank among the
// edges of its source; after a scan of the counts, place_edges turns the rank into the edge's place in the transposed
// block. Ranks are handed out by atomics, so edges of one source come in no fixed order.
// Bound by one returning atomic and two scattered 4-byte writes per edge, in the L2 while the counters fit it.
// @variants SCALAR=float,double

typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;
#ifndef SCALAR
#define SCALAR float
#endif
#define COUNTER_TILE 4096  // counters per block of the scan: 256 threads, 16 each
#define IN_FLIGHT 4

// counts: u32[sources], zeroed; slots: i32[edges]. The rows say how many edges there are: arrays of a fixed size hold more.
extern "C" __global__ void count_sources(const i64* indptr, const int* indices, u64 rows, u32* counts, u32* slots) {
    const u64 edges = (u64)__ldg(indptr + rows);
    const u64 first = blockIdx.x * (u64)(blockDim.x * IN_FLIGHT) + threadIdx.x;
    u32 rank[IN_FLIGHT];
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; ++i) {
        const u64 e = first + i * (u64)blockDim.x;
        if (e < edges) rank[i] = atomicAdd(counts + __ldg(indices + e), 1u);
    }
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; ++i) {
        const u64 e = first + i * (u64)blockDim.x;
        if (e < edges) slots[e] = rank[i];
    }
}

__device__ __forceinline__ u64 block_sum(u64 value, u64 parts[8]) {
#pragma unroll
    for (int apart = 16; apart; apart >>= 1) value += __shfl_xor_sync(0xFFFFFFFFu, value, apart);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    u64 sum = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) sum += parts[w];
    __syncthreads();
    return sum;
}

// Sums of COUNTER_TILE counters; 256 threads per tile.
extern "C" __global__ void sum_tiles(const u32* counts, u64 sources, u64* sums) {
    __shared__ u64 parts[8];
    u64 mine = 0;
#pragma unroll
    for (int i = 0; i < COUNTER_TILE / 256; ++i) {
        const u64 at = blockIdx.x * (u64)COUNTER_TILE + i * 256 + threadIdx.x;
        if (at < sources) mine += counts[at];
    }
    const u64 sum = block_sum(mine, parts);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// begins: i64[sources + 1], the exclusive scan. Each block adds up the tiles before it by itself: they are few.
extern "C" __global__ void scan_tiles(const u32* counts, u64 sources, const u64* sums, i64* begins) {
    __shared__ u64 parts[8];
    __shared__ u32 staged[COUNTER_TILE];
    u64 before = 0;
    for (u32 t = threadIdx.x; t < blockIdx.x; t += 256) before += sums[t];
    before = block_sum(before, parts);
    const u64 first = blockIdx.x * (u64)COUNTER_TILE;
#pragma unroll
    for (int i = 0; i < COUNTER_TILE / 256; ++i) {
        const u64 at = first + i * 256 + threadIdx.x;
        staged[i * 256 + threadIdx.x] = at < sources ? counts[at] : 0;
    }
    __syncthreads();
    u64 mine = 0;
#pragma unroll
    for (int i = 0; i < COUNTER_TILE / 256; ++i) mine += staged[threadIdx.x * (COUNTER_TILE / 256) + i];
    u64 upto = mine;
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int apart = 1; apart < 32; apart <<= 1) {
        const u64 left = __shfl_up_sync(0xFFFFFFFFu, upto, apart);
        if (lane >= apart) upto += left;
    }
    if (lane == 31) parts[threadIdx.x / 32] = upto;
    __syncthreads();
    u64 at = before + upto - mine;
    for (u32 w = 0; w < threadIdx.x / 32; ++w) at += parts[w];
    for (int i = 0; i < COUNTER_TILE / 256; ++i) {
        const u64 source = first + threadIdx.x * (COUNTER_TILE / 256) + i;
        if (source < sources) begins[source] = (i64)at;
        at += staged[threadIdx.x * (COUNTER_TILE / 256) + i];
        if (source + 1 == sources) begins[sources] = (i64)at;
    }
}

// rows_of: i32[edges] of the transposed block. A group of 8 threads per row. slots: rank in, place out.
extern "C" __global__ void place_edges(const i64* indptr, const int* indices, u64 rows, const i64* begins, u32* slots,
                                       int* rows_of) {
    const u64 row = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / 8;
    if (row >= rows) return;
    const i64 end = __ldg(indptr + row + 1);
    for (i64 e = __ldg(indptr + row) + threadIdx.x % 8; e < end; e += 8) {
        const u32 place = (u32)__ldg(begins + __ldg(indices + e)) + slots[e];
        slots[e] = place;
        rows_of[place] = (int)row;
    }
}

// Coefficients of the edges in transposed order: weight(e) times 1 / row length where `mean` is set.
extern "C" __global__ void place_coefficients(const i64* indptr, const u32* slots, const SCALAR* weight, u64 rows,
                                              u32 mean, SCALAR* coef) {
    const u64 row = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / 8;
    if (row >= rows) return;
    const i64 begin = __ldg(indptr + row), end = __ldg(indptr + row + 1);
    const SCALAR scale = mean && end - begin > 1 ? (SCALAR)1 / (SCALAR)(end - begin) : (SCALAR)1;
    for (i64 e = begin + threadIdx.x % 8; e < end; e += 8) coef[slots[e]] = weight ? weight[e] * scale : scale;
}
