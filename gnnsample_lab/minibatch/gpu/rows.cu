// Rows of features of a mini-batch's vertices, behind its other arrays: x[i] = table[nodes[i]].
//
// A part of the launch that samples: how many rows there are and where they go is read from device memory, so that nothing
// waits for the host to know, and the host makes a mini-batch of the sizes while rows are copied.
// Shapes: rows of row_bytes, a multiple of VEC; a warp takes ROWS of them, blockIdx.y selects the mini-batch. What bounds it:
// bytes of device memory, each row read at random and written once.
// @variants ID_T=int,long VEC=2,4,8,16
#include "sampling/neighbors/plan.cuh"
#define LOAD 2
#include "device/rows.cuh"
#include "place.cuh"
#ifndef ROWS
#define ROWS 2
#endif

__device__ __forceinline__ void bring(const Plan& p, const char* table, u32 row_bytes, Place place) {
    const u32 b = blockIdx.y;
    const u32* counters = lab_counters(p, b);
    if (place.address == 0 || !(p.batches[b].wanted & WANTED_ROWS) || lab_read(counters + CTR_STATUS)) return;
    const u64 n = lab_levels(p, counters, p.num_hops).end, begin = *(const u64*)(counters + CTR_ARRAYS);
    if (begin + bytes_of_rows(n, row_bytes) > place.room) return;
    copy_rows<ROWS>(table, p.nodes + (u64)b * p.node_cap, n, row_bytes, (char*)(place.address + begin));
}

// Into the memory that the record of the mini-batch names, if that is enough.
extern "C" __global__ void __launch_bounds__(256)
    rows(const __grid_constant__ Plan p, const char* table, u32 row_bytes) {
    lab_follow();
    const Batch& batch = p.batches[blockIdx.y];
    bring(p, table, row_bytes, Place{batch.arena, batch.room});
}

// The same where the host knows the totals: into `only`, or for several mini-batches into `places`.
extern "C" __global__ void __launch_bounds__(256)
    rows_at(const __grid_constant__ Plan p, const char* table, u32 row_bytes, Place only, const Place* places) {
    bring(p, table, row_bytes, places ? places[blockIdx.y] : only);
}
