// Loads of VEC bytes of rows that are read once; shared by the kernels that copy rows.
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
