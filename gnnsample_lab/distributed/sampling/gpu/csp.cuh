// What the kernels of collective sampling share: peers, and where a message for each of them lies.
// Host code (csp_kernels.py) packs the same structures; a test compares their sizes.
#ifndef LAB_CSP
#define LAB_CSP
#include "sampling/neighbors/plan.cuh"

#define MAX_PEERS 64
#define CSP_THREADS 256

#define REPORT_LEVEL 1   // words of a report: [0] tag, written last; [1] vertices of the frontier; [2] status;
#define REPORT_STATUS 2  // from [8] on rows for each peer, from [8 + MAX_PEERS] on rows from each peer; or entries
#define REPORT_SENT 8

// A reply holds what the owner tells of the rows that one rank asked for, in three pieces that begin at multiples of 16
// bytes: a head for each row; `stride` neighbours for each row; for weighted rules their slots. A head is the length of
// the row's list, from which its picks and, because draws are keyed, their slots follow. For weighted rules it is the
// number of picks. Places beyond a row's picks are padding.
__device__ __forceinline__ int* reply_heads(char* reply) { return (int*)reply; }
__device__ __forceinline__ ID_T* reply_neighbors(char* reply, u64 rows) { return (ID_T*)(reply + (rows + 3) / 4 * 16); }
__device__ __forceinline__ int* reply_slots(char* reply, u64 rows, u64 stride) {
    return (int*)(reply_neighbors(reply, rows) + rows * stride);
}

// The part of a vertex by its new id: those of part p begin at bounds[p].
__device__ __forceinline__ int part_of(const i64* bounds, int parts, i64 renumbered) {
    int low = 0, high = parts;
    while (high - low > 1) {
        const int mid = (low + high) >> 1;
        if (bounds[mid] <= renumbered) low = mid;
        else high = mid;
    }
    return low;
}

// An even share of `rows` rows for each of `warps` warps, at most 32 at a time.
__device__ __forceinline__ u32 rows_per_warp(u64 rows, u64 warps) {
    const u64 slots = warps * max((rows + warps * 32 - 1) / (warps * 32), 1ull);
    return (u32)max((rows + slots - 1) / slots, 1ull);
}
#endif
