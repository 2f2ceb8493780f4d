// Rows of a dense table in device memory by their numbers: out[i] = table[ids[i]].
//
// Shapes: rows of row_bytes, a multiple of VEC; n rows a launch, a warp for every ROWS of them. The table and `out` begin at
// multiples of VEC. What bounds it: bytes of device memory, each row read at random and written once. Loads of ROWS rows are
// issued before the first store, so that few warps have enough of them under way.
// @variants ID_T=int,long VEC=2,4,8,16
#define LOAD 2
#include "device/rows.cuh"
#define ROWS 2

typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void __launch_bounds__(1024)
    take_rows(const char* table, const ID_T* ids, u64 n, u32 row_bytes, char* out) {
    const u32 lane = threadIdx.x & 31, units = row_bytes / VEC;
    const u64 warps = (u64)gridDim.x * (blockDim.x >> 5);
    for (u64 first = (blockIdx.x * (u64)(blockDim.x >> 5) + (threadIdx.x >> 5)) * ROWS; first < n; first += warps * ROWS) {
        const char* from[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            from[r] = first + r < n ? table + (u64)ids[first + r] * row_bytes : nullptr;
        for (u32 at = lane; at < units; at += 32) {
            Unit v[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                if (from[r]) v[r] = load(from[r] + (u64)at * VEC);
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                if (from[r]) *(Unit*)(out + (first + r) * row_bytes + (u64)at * VEC) = v[r];
        }
    }
}
