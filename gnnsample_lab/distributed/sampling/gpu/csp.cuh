// What the kernels of collective sampling share: peers, and where a message for each of them lies.
// Host code (csp_kernels.py) packs the same structures; a test compares their sizes.
#ifndef LAB_CSP
#define LAB_CSP
#include "sampling/neighbors/plan.cuh"

#define MAX_PEERS 64
#define CSP_THREADS 256

// A reply holds the picks of all rows that one rank asked another for: first all neighbours, then all slots. Each row
// has `stride` places of both; a neighbour below 0 fills a place without a pick.
__device__ __forceinline__ const ID_T* reply_neighbors(const char* reply, u64 row, u64 stride) {
    return (const ID_T*)reply + row * stride;
}
__device__ __forceinline__ const int* reply_slots(const char* reply, u64 rows, u64 row, u64 stride) {
    return (const int*)(reply + rows * stride * sizeof(ID_T)) + row * stride;
}

// An even share of `rows` rows for each of `warps` warps, at most 32 at a time.
__device__ __forceinline__ u32 rows_per_warp(u64 rows, u64 warps) {
    const u64 slots = warps * max((rows + warps * 32 - 1) / (warps * 32), 1ull);
    return (u32)max((rows + slots - 1) / slots, 1ull);
}
#endif
