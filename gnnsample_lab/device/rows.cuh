// Loads of VEC bytes of rows that are read once, and rows by their numbers; shared by the kernels that copy rows.
#pragma once

#if VEC == 16
typedef uint4 Unit;
#elif VEC == 8
typedef uint2 Unit;
#elif VEC == 4
typedef unsigned int Unit;
#else
typedef unsigned short Unit;
#endif

// LOAD 0 plain, 1 evict-first, 2 read-only path without a place in L1, 3 that and whole lines.
__device__ __forceinline__ Unit load(const char* p) {
    Unit v;
#if LOAD == 0
    v = *(const Unit*)p;
#elif LOAD == 1
    v = __ldcs((const Unit*)p);
#else
#if LOAD == 3 && __CUDA_ARCH__ >= 750
#define HOW "ld.global.nc.L1::no_allocate.L2::128B"
#else
#define HOW "ld.global.nc.L1::no_allocate"
#endif
#if VEC == 16
    asm volatile(HOW ".v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
#elif VEC == 8
    asm volatile(HOW ".v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
#elif VEC == 4
    asm volatile(HOW ".u32 %0, [%1];" : "=r"(v) : "l"(p));
#else
    asm volatile(HOW ".u16 %0, [%1];" : "=h"(v) : "l"(p));
#endif
#endif
    return v;
}

// out[i] = table[ids[i]] for all i < n, by the warps of all blocks of gridDim.x. A warp takes ROWS_AT_ONCE rows of row_bytes,
// a multiple of VEC, at a time: their loads are issued before the first store, so that few warps have enough under way.
template <int ROWS_AT_ONCE, class Id>
__device__ __forceinline__ void copy_rows(const char* table, const Id* __restrict__ ids, unsigned long long n,
                                          unsigned row_bytes, char* __restrict__ out) {
    const unsigned lane = threadIdx.x & 31, units = row_bytes / VEC;
    const unsigned long long warps = (unsigned long long)gridDim.x * (blockDim.x >> 5);
    unsigned long long first = (blockIdx.x * (unsigned long long)(blockDim.x >> 5) + (threadIdx.x >> 5)) * ROWS_AT_ONCE;
    for (; first < n; first += warps * ROWS_AT_ONCE) {
        const char* from[ROWS_AT_ONCE];
#pragma unroll
        for (int r = 0; r < ROWS_AT_ONCE; ++r)
            from[r] = first + r < n ? table + (unsigned long long)ids[first + r] * row_bytes : nullptr;
        for (unsigned at = lane; at < units; at += 32) {
            Unit v[ROWS_AT_ONCE];
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; ++r)
                if (from[r]) v[r] = load(from[r] + (unsigned long long)at * VEC);
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; ++r)
                if (from[r]) *(Unit*)(out + (first + r) * row_bytes + (unsigned long long)at * VEC) = v[r];
        }
    }
}
