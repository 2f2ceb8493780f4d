// Vectors of VEC scalars that move with one access of up to 16 bytes, and the hints given to those accesses.
//
// SCALAR: float or double. VEC: scalars per vector. LOAD: 0 through L1; 1 not kept in L1, so that streams of rows do not
// evict row bounds and indices; 2 and 3 the same, and have the L2 fetch the surrounding 128 or 256 bytes.
#ifndef LAB_VECTORS
#define LAB_VECTORS

typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef SCALAR
#define SCALAR float
#endif
#ifndef VEC
#define VEC 4
#endif
#ifndef LOAD
#define LOAD 0
#endif
#ifndef STORE
#define STORE 1
#endif

struct alignas(VEC * sizeof(SCALAR) < 16 ? VEC * sizeof(SCALAR) : 16) Vec {
    SCALAR v[VEC];
};

// The hints exist from sm_70 (no_allocate), sm_75 (128B) and sm_80 (256B) on.
#if LOAD == 3 && __CUDA_ARCH__ >= 800
#define LAB_LOAD_HINT "ld.global.nc.L1::no_allocate.L2::256B"
#elif LOAD == 2 && __CUDA_ARCH__ >= 750
#define LAB_LOAD_HINT "ld.global.nc.L1::no_allocate.L2::128B"
#elif LOAD >= 1 && __CUDA_ARCH__ >= 700
#define LAB_LOAD_HINT "ld.global.nc.L1::no_allocate"
#endif

__device__ __forceinline__ uint4 lab_load(const uint4* p) {
#ifdef LAB_LOAD_HINT
    uint4 r;
    asm(LAB_LOAD_HINT ".v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
    return r;
#else
    return __ldg(p);
#endif
}
__device__ __forceinline__ uint2 lab_load(const uint2* p) {
#ifdef LAB_LOAD_HINT
    uint2 r;
    asm(LAB_LOAD_HINT ".v2.u32 {%0,%1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(p));
    return r;
#else
    return __ldg(p);
#endif
}
__device__ __forceinline__ u32 lab_load(const u32* p) {
#ifdef LAB_LOAD_HINT
    u32 r;
    asm(LAB_LOAD_HINT ".u32 %0, [%1];" : "=r"(r) : "l"(p));
    return r;
#else
    return __ldg(p);
#endif
}

template <int BYTES>
struct LabWord {
    typedef uint4 type;
};
template <>
struct LabWord<8> {
    typedef uint2 type;
};
template <>
struct LabWord<4> {
    typedef u32 type;
};
typedef LabWord<sizeof(Vec) < 16 ? sizeof(Vec) : 16>::type LabPart;
#define LAB_PARTS (sizeof(Vec) / sizeof(LabPart))

// The vector at p, which is aligned to min(16, sizeof(Vec)) bytes and is not written while the kernel runs.
__device__ __forceinline__ Vec load_vec(const SCALAR* p) {
    union Bits {
        LabPart part[LAB_PARTS];
        Vec vec;
        __device__ Bits() {}
    } bits;
#pragma unroll
    for (int i = 0; i < (int)LAB_PARTS; ++i) bits.part[i] = lab_load((const LabPart*)p + i);
    return bits.vec;
}

// Results are written once and not read again here: STORE 1 marks their lines as the first to leave the L2.
__device__ __forceinline__ void store_vec(SCALAR* p, const Vec& value) {
    union Bits {
        LabPart part[LAB_PARTS];
        Vec vec;
        __device__ Bits() {}
    } bits;
    bits.vec = value;
#pragma unroll
    for (int i = 0; i < (int)LAB_PARTS; ++i) {
#if STORE
        __stcs((LabPart*)p + i, bits.part[i]);
#else
        ((LabPart*)p)[i] = bits.part[i];
#endif
    }
}

// Adds to the vector at p in memory, with one access where the GPU has it (sm_90).
__device__ __forceinline__ void add_at(SCALAR* to, const Vec& v) {
#if __CUDA_ARCH__ >= 900
    if (sizeof(SCALAR) == 4 && VEC == 4) {
        asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"((float)v.v[0]), "f"((float)v.v[1 % VEC]),
                     "f"((float)v.v[2 % VEC]), "f"((float)v.v[3 % VEC]) : "memory");
        return;
    }
    if (sizeof(SCALAR) == 4 && VEC == 2) {
        asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"((float)v.v[0]), "f"((float)v.v[1 % VEC])
                     : "memory");
        return;
    }
#endif
#pragma unroll
    for (int i = 0; i < VEC; ++i) atomicAdd(to + i, v.v[i]);
}

__device__ __forceinline__ Vec zero_vec() {
    Vec z;
#pragma unroll
    for (int i = 0; i < VEC; ++i) z.v[i] = 0;
    return z;
}

__device__ __forceinline__ float lab_fma(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double lab_fma(double a, double b, double c) { return fma(a, b, c); }

#endif
