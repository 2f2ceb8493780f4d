// The order in which rows are read when some of them lie in host memory: these first, one page range after another.
//
// Reads over PCIe go through the address translation of the link. Random reads of a large table need another page each
// time; reads grouped into PAGES ranges of neighbouring ids do not. A full sort would be no faster to read and costs
// more than it saves. Rows on the device come last.
//
// ids: ID_T[n]; order: u32[n], a permutation of 0..n-1, free within a range; bins: u32[PAGES + 1], zeroed.
// With PEERS rows are grouped by their place in the host's table, which `locations` says. bins[PAGES - 1] is in the end how
// many rows lie in host memory.
// Bound: two passes of 4 to 8 bytes a row, and an atomic per row and pass in shared memory.
// @variants ID_T=int,long PEERS=0,1
#include "gather.cuh"

#define PAGES 2048  // ranges of ids; PAGES itself stands for rows on the device
#define THREADS 512
#define ROW_TILE 4096  // rows of a block

__device__ __forceinline__ u32 bin_of(const ID_T* ids, const int* locations, const uint2* slots, u64 i, u32 shift) {
#if PEERS
    const i64 place = locations[i];
    return place < 0 ? (u32)((u64)(-1 - place) >> shift) : PAGES;
#endif
    const int at = locations ? locations[i] : slots ? slot_of(slots, (u64)ids[i]) : -1;
    return at == -1 ? (u32)((u64)ids[i] >> shift) : PAGES;
}

__device__ __forceinline__ void count_tile(const ID_T* ids, u64 n, const int* locations, const uint2* slots, u32 shift,
                                           u32* counts) {
    for (u32 b = threadIdx.x; b <= PAGES; b += THREADS) counts[b] = 0;
    __syncthreads();
    const u64 end = min(n, (u64)(blockIdx.x + 1) * ROW_TILE);
    for (u64 i = (u64)blockIdx.x * ROW_TILE + threadIdx.x; i < end; i += THREADS)
        atomicAdd(counts + bin_of(ids, locations, slots, i, shift), 1u);
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS) count_pages(const ID_T* ids, u64 n, const int* locations,
                                                                  const uint2* slots, u32 shift, u32* bins) {
    __shared__ u32 counts[PAGES + 1];
    count_tile(ids, n, locations, slots, shift, counts);
    for (u32 b = threadIdx.x; b <= PAGES; b += THREADS)
        if (counts[b]) atomicAdd(bins + b, counts[b]);
}

// Exclusive scan in place, by one block.
extern "C" __global__ void __launch_bounds__(THREADS) scan_pages(u32* bins) {
    __shared__ u32 sums[THREADS / 32];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, each = PAGES / THREADS;
    u32 mine[each], sum = 0;
    for (u32 k = 0; k < each; ++k) sum += mine[k] = bins[threadIdx.x * each + k];
    u32 inclusive = sum;
    for (u32 apart = 1; apart < 32; apart <<= 1) {
        const u32 left = __shfl_up_sync(0xFFFFFFFFu, inclusive, apart);
        if (lane >= apart) inclusive += left;
    }
    if (lane == 31) sums[warp] = inclusive;
    __syncthreads();
    u32 before = inclusive - sum;
    for (u32 w = 0; w < warp; ++w) before += sums[w];
    for (u32 k = 0; k < each; ++k) {
        bins[threadIdx.x * each + k] = before;
        before += mine[k];
    }
    if (threadIdx.x == THREADS - 1) bins[PAGES] = before;
}

extern "C" __global__ void __launch_bounds__(THREADS) place_rows(const ID_T* ids, u64 n, const int* locations,
                                                                 const uint2* slots, u32 shift, u32* bins, u32* order) {
    __shared__ u32 next[PAGES + 1];
    count_tile(ids, n, locations, slots, shift, next);
    for (u32 b = threadIdx.x; b <= PAGES; b += THREADS)
        if (next[b]) next[b] = atomicAdd(bins + b, next[b]);
    __syncthreads();
    const u64 end = min(n, (u64)(blockIdx.x + 1) * ROW_TILE);
    for (u64 i = (u64)blockIdx.x * ROW_TILE + threadIdx.x; i < end; i += THREADS)
        order[atomicAdd(next + bin_of(ids, locations, slots, i, shift), 1u)] = (u32)i;
}
