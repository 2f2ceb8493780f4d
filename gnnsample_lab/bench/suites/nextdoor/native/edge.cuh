// What the hand-written operators share: the draw of an edge, as an expert would write it for the engine's kernels.
//
// No checks, no line numbers: lists shorter than 2**32 are the host's promise. The words are drawn from the context in
// the order in which the applications in Python draw them, so that the samples are the same.
//
// Macros: BY_WEIGHT (0: every edge alike; 1: in proportion to weight, by rejection), DEFERRED as in context.cuh.
#ifndef NATIVE_EDGE
#define NATIVE_EDGE
#include "sampling/engine/context.cuh"

#define TRIALS 64

__device__ __forceinline__ u32 below(Context& c, u32 bound) {
    u64 m = (u64)lab_draw(c) * bound;
    if ((u32)m < bound) {
        const u32 remainder = (0u - bound) % bound;
        for (int word = 1; (u32)m < remainder && word < 64; ++word) m = (u64)lab_draw(c) * bound;
    }
    return (u32)(m >> 32);
}

__device__ __forceinline__ u32 weight_of(const Context& c, u32 i) {
    return c.edge_weight ? c.edge_weight[i] : (u32)(c.edge_prefix[i + 1] - c.edge_prefix[i]);
}

// Position of an edge of the transit, -1 where there is none (of positive weight).
__device__ __forceinline__ i64 choose(Context& c, u32 heaviest) {
    const u32 degree = (u32)c.length;
#if BY_WEIGHT
    if (heaviest == 0) return -1;
    for (int trial = 0; trial < TRIALS; ++trial) {
        const u32 i = below(c, degree);
        if (below(c, heaviest) < weight_of(c, i)) return i;
    }
    u64 total = 0;
    for (u32 i = 0; i < degree; ++i) total += weight_of(c, i);
    u64 left;
    if (total >> 32) {
        const u64 low = lab_draw(c);
        left = __umul64hi((u64)lab_draw(c) << 32 | low, total);
    } else {
        left = below(c, (u32)total);
    }
    for (u32 i = 0; i < degree; ++i) {
        const u32 weight = weight_of(c, i);
        if (left < weight) return i;
        left -= weight;
    }
    return -1;
#else
    return degree ? (i64)below(c, degree) : -1;
#endif
}

__device__ __forceinline__ u32 heaviest_of(const Context& c) {
#if BY_WEIGHT
    return c.plan->max_weight[c.transit];
#else
    return 0;
#endif
}

__device__ __forceinline__ i64 taken(const Context& c, i64 i) {
#if DEFERRED
    return i;
#else
    return i < 0 ? LAB_NULL : (i64)c.edges[i];
#endif
}

#endif
