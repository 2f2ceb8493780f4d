// Common parts of the ID maps: keys of both id widths, the hash, a warp scan, and the words that the host polls.
#ifndef LAB_ID_MAP
#define LAB_ID_MAP
#include "device/philox.cuh"

typedef long long i64;

#define FULL 0xFFFFFFFFu
#define REPORT_STATUS 31  // words in pinned host memory: [0] tag, written last; [1 + level] ids up to it; [31] status

template <int BYTES> struct KeyOf;
template <> struct KeyOf<4> { typedef u32 type; };
template <> struct KeyOf<8> { typedef u64 type; };
typedef KeyOf<sizeof(ID_T)>::type Key;
#define EMPTY ((Key)~(Key)0)  // no id: ids are not negative

// Fibonacci hashing: the product's middle bits depend on all bits of ids below 2^44.
__device__ __forceinline__ u64 hash_of(u64 v) { return v * 0x9E3779B97F4A7C15ull >> 20; }

// Inclusive scan over the lanes of a full warp.
__device__ __forceinline__ int warp_scan(int value, u32 lane) {
#pragma unroll
    for (int apart = 1; apart < 32; apart <<= 1) {
        const int left = __shfl_up_sync(FULL, value, apart);
        if (lane >= apart) value += left;
    }
    return value;
}
#endif
