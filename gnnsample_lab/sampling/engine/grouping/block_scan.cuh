// Prefix sums over the threads of a block, up to 1024 (minibatch/gpu/scan.cuh scans over many blocks).
#ifndef LAB_BLOCK_SCAN
#define LAB_BLOCK_SCAN
#include "device/philox.cuh"

#define FULL 0xFFFFFFFFu

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

#endif
