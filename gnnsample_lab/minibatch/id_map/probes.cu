// Fills a hash with linear probing and measures how far every key lies from its home slot.
//
// ids: long[n], not negative; keys: u64[slots], id + 1 or 0. Nothing is ever removed, so the probes of an insertion
// are the distance from the key's home slot plus one. Bound: a random atomic per id; not on any timed path.
// HASH: 0 multiplicative, 1 modulo, 2 low bits.
// @variants HASH=0,1,2
#include "device/philox.cuh"

__device__ __forceinline__ u64 home(u64 v, u64 slots) {
#if HASH == 0
    return v * 0x9E3779B97F4A7C15ull >> 20 & (slots - 1);
#elif HASH == 1
    return v % slots;
#else
    return v & (slots - 1);
#endif
}

extern "C" __global__ void fill(const long long* ids, u64 n, u64* keys, u64 slots) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const u64 v = ids[i];
    u64 at = home(v, slots);
    for (u64 probe = 0; probe < slots; ++probe, at = at + 1 == slots ? 0 : at + 1) {
        const u64 old = atomicCAS(keys + at, 0ull, v + 1);
        if (old == 0 || old == v + 1) return;
    }
    __trap();  // cannot happen: the host makes a table of at least as many slots as distinct ids
}

extern "C" __global__ void lengths(const u64* keys, u64 slots, long long* lengths) {
    const u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (at >= slots) return;
    long long probes = 0;
    if (keys[at]) {
        const u64 from = home(keys[at] - 1, slots);
        probes = (at >= from ? at - from : at + slots - from) + 1;
    }
    lengths[at] = probes;
}
