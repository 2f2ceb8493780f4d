// Where a vertex's feature row lies; shared by the extraction kernels.
#pragma once
#include "slots.cuh"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// With PEERS rows may lie in the memory of several GPUs; locations[i] is then a position (distributed/features/placement.py):
// the part above `shift` bits of the row in its cache, or -1 - c for row c of the host's table.
#ifndef PEERS
#define PEERS 0
#endif

// With TAILS the host's rows lack their last bytes, which lie in device memory for all vertices.
#if PEERS  // no table there is a copy of one GPU's own
#undef TAILS
#endif
#ifndef TAILS
#define TAILS 0
#endif

// Where the rows lie. A null `cache` means that nothing is cached; with a cache and neither `locations` nor `slots`,
// row v of the cache is vertex v. A null `host` leaves missing rows alone: someone else brings them.
struct Sources {
    const int* locations;  // int32[n] or null
    const uint2* slots;    // of all vertices (slots.cuh), or null
    const char* cache;
    const char* previous;
    const char* host;
    u64 host_stride;
#if PEERS
    const u64* bases;  // where each part's cache begins, in this process; null leaves its rows alone
    u32 shift;
#endif
#if TAILS
    const char* tails;
    u32 tail_bytes;
#endif
};

__device__ __forceinline__ const char* source_of(const Sources& s, const ID_T* ids, u64 i, u32 row_bytes, u32& missed) {
    i64 at;
#if PEERS
    at = s.locations[i];
    if (at < 0) return s.host ? s.host + (u64)(-1 - at) * s.host_stride : nullptr;
    const u64 base = s.bases ? __ldg(s.bases + (at >> s.shift)) : 0;
    return base ? (const char*)base + (u64)(at & ((1ll << s.shift) - 1)) * row_bytes : nullptr;
#endif
    // show: look up in the cache
    if (s.locations)
        at = s.locations[i];
    else if (s.slots)
        at = slot_of(s.slots, (u64)ids[i]);
    else
        at = s.cache ? (i64)ids[i] : -1;
    if (at >= 0) return s.cache + (u64)at * row_bytes;
    if (at < -1) return s.previous + (u64)(-2 - at) * row_bytes;
    ++missed;
    return s.host ? s.host + (u64)ids[i] * s.host_stride : nullptr;
    // end: look up in the cache
}
