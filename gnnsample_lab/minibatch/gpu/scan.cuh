// One-pass exclusive scan over tiles of 1024 values: 256 threads, four values each.
//
// A tile publishes its sum, then looks back over its predecessors for the first complete prefix (Merrill and
// Garland, 2016). Tiles are taken in order, so a tile only waits for tiles that already run.

#ifndef LAB_SCAN
#define LAB_SCAN
#include "sampling/neighbors/plan.cuh"

#define SCAN_TILE 1024
#define SCAN_SUM (1ull << 62)
#define SCAN_PREFIX (2ull << 62)
#define SCAN_VALUE (SCAN_SUM - 1)

__device__ u64 scan_look_back(u64* state, u32 tile, u64 sum) {
    const u32 lane = lab_lane();
    if (tile == 0) {
        if (lane == 0) lab_release(state, SCAN_PREFIX | sum);
        return 0;
    }
    if (lane == 0) lab_release(state + tile, SCAN_SUM | sum);
    u64 before = 0;
    for (i64 back = (i64)tile - 1; back >= 0; back -= 32) {
        const i64 at = back - lane;
        u64 word = SCAN_PREFIX;  // lanes before the first tile read as an empty prefix
        if (at >= 0) {
            u32 polls = 0;
            // bounded: the tile before is running and waits only for earlier ones, so it publishes after a few
            // microseconds. If it does not, only a trap reaches the host, which has its totals by now.
            while ((word = lab_acquire(state + at)) < SCAN_SUM)
                if (++polls == 1u << 28) __trap();
        }
        const u32 done = __ballot_sync(0xFFFFFFFFu, word >= SCAN_PREFIX);
        const u32 stop = done ? __ffs(done) - 1 : 31;
        u64 part = lane <= stop ? word & SCAN_VALUE : 0;
#pragma unroll
        for (int apart = 16; apart; apart >>= 1) part += __shfl_xor_sync(0xFFFFFFFFu, part, apart);
        before += part;
        if (done) break;
    }
    if (lane == 0) lab_release(state + tile, SCAN_PREFIX | (before + sum));
    return before;
}

// Exclusive prefix of this thread's four values within everything so far; 256 threads.
__device__ u64 scan_tile(u64* state, u32 tile, const u64 values[4]) {
    __shared__ u64 warp_sums[8];
    __shared__ u64 tile_before;
    const u32 lane = lab_lane(), warp = threadIdx.x >> 5;
    const u64 mine = values[0] + values[1] + values[2] + values[3];
    u64 inclusive = mine;
#pragma unroll
    for (int apart = 1; apart < 32; apart <<= 1) {
        const u64 left = __shfl_up_sync(0xFFFFFFFFu, inclusive, apart);
        if (lane >= apart) inclusive += left;
    }
    if (lane == 31) warp_sums[warp] = inclusive;
    __syncthreads();
    u64 before = 0, sum = 0;
    for (u32 w = 0; w < 8; ++w) {
        if (w < warp) before += warp_sums[w];
        sum += warp_sums[w];
    }
    if (warp == 0) {
        const u64 earlier = scan_look_back(state, tile, sum);
        if (lane == 0) tile_before = earlier;
    }
    __syncthreads();
    const u64 result = tile_before + before + inclusive - mine;
    __syncthreads();
    return result;
}

#endif
