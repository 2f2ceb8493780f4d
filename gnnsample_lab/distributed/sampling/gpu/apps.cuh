// What walks and layers draw from lists that lie anywhere, without an application: its words, and an edge of a list.
//
// The words are those that `next` draws on one GPU (sampling/engine/context.cuh). CPU twin: ../words.py.
// Macros: ID_T (vertex ids), RULE (2 edges alike, 4 by integer weights), LISTS (1, 2: of all parts, by vertex, see
// lists.cuh; 0: of one's own part, p.indptr and p.indices by row).
#ifndef LAB_APPS
#define LAB_APPS
#include "sampling/neighbors/plan.cuh"
#if LISTS
#include "sampling/neighbors/hops/lists.cuh"
#endif

#define TRIALS 64  // choices.py

// The words of a call for slot j of `size` slots of transit k: word 0 is shared by four slots, then come one's own.
struct Words {
    u32 x, y, shared, z, tag, slot, drawn;
    uint2 key;
    uint4 four;
    __device__ __forceinline__ Words(u64 sample, i64 step, u32 k, u32 j, u32 size, u32 attempt, u64 seed)
        : x((u32)sample), y(k * size + j), shared(k * ((size + 3) >> 2) + (j >> 2)),
          z((u32)step | (u32)(sample >> 32) << 24), tag(LAB_PURPOSE_APP << 28 | attempt << 22), slot(j & 3), drawn(0),
          key(make_uint2((u32)seed, (u32)(seed >> 32))) {}
    __device__ __forceinline__ u32 next() {
        const u32 n = drawn++;
        if (n == 0) {
            four = lab_philox(make_uint4(x, shared, z, tag), key);
            return lab_word(four, slot);
        }
        if (((n - 1) & 3) == 0) four = lab_philox(make_uint4(x, y, z, tag | (1 + ((n - 1) >> 2))), key);
        return lab_word(four, (n - 1) & 3);
    }
    // An integer in [0, n), n > 0.
    __device__ __forceinline__ u64 below(u64 n) {
        if (n >> 32) {
            const u64 low = next(), high = next();
            return __umul64hi(high << 32 | low, n);
        }
        u64 product = (u64)next() * n;
        if ((u32)product < (u32)n) {
            const u32 remainder = (0u - (u32)n) % (u32)n;
            for (int tries = 1; (u32)product < remainder && tries < 64; ++tries) product = (u64)next() * n;
        }
        return product >> 32;
    }
};

// The first word of a transit's own stream, in which it says whether it restarts.
__device__ __forceinline__ u32 restart_word(u64 sample, i64 step, u32 k, u64 seed) {
    const uint4 c = make_uint4((u32)sample, 1u << 31 | k, (u32)step | (u32)(sample >> 32) << 24, LAB_PURPOSE_APP << 28);
    return lab_philox(c, make_uint2((u32)seed, (u32)(seed >> 32))).x;
}

struct List {
    i64 start;
    int degree;
    const u64* prefix;  // prefix + start: its first prefix sum
};

__device__ __forceinline__ List list_of(const Plan& p, ID_T v) {
    List list{0, 0, nullptr};
#if LISTS
    int available = 0;
    lab_locate(p, (u64)v, list.start, list.degree, list.prefix, available);
#else
    list.start = __ldg(p.indptr + v);
    list.degree = (int)(__ldg(p.indptr + v + 1) - list.start);
    list.prefix = p.prefix;
#endif
    return list;
}

__device__ __forceinline__ u64 weight_of(const List& list) {
#if RULE >= 3
    if (!list.degree) return 0;
    return __ldg(list.prefix + list.start + list.degree) - __ldg(list.prefix + list.start);
#else
    return (u64)list.degree;
#endif
}

// The position of the edge in whose interval of the list's weight `inner` lies.
__device__ __forceinline__ i64 edge_at(const List& list, u64 inner) {
#if RULE >= 3
    const u64* sums = list.prefix + list.start;
    const u64 base = __ldg(sums);
    i64 low = 0, high = list.degree;
    while (high - low > 1) {
        const i64 mid = (low + high) >> 1;
        if (__ldg(sums + mid) - base <= inner) low = mid;
        else high = mid;
    }
    return low;
#else
    return (i64)inner;
#endif
}

// An edge of a list by rejection, as choices.weighted_edge; -1 where no edge has weight.
__device__ __forceinline__ i64 drawn_edge(const List& list, u64 heaviest, Words& words) {
    if (!list.degree) return -1;
#if RULE >= 3
    if (!heaviest) return -1;
    const u64* sums = list.prefix + list.start;
    for (int trial = 0; trial < TRIALS; ++trial) {
        const u64 edge = words.below((u64)list.degree);
        if (words.below(heaviest) < __ldg(sums + edge + 1) - __ldg(sums + edge)) return (i64)edge;
    }
    return edge_at(list, words.below(weight_of(list)));
#else
    return (i64)words.below((u64)list.degree);
#endif
}

// Where a walk comes to in a step from vertex (LISTS=0: row) `v`; -1 where it ends before, or no edge can be drawn.
// most: of each list, the heaviest weight. ends: a word below it ends the walk; -1: not asked.
__device__ __forceinline__ ID_T next_of(const Plan& p, ID_T v, const u64* most, u64 sample, i64 step, u32 k, i64 ends) {
    Words words(sample, step, k, 0, 1, 0, p.seed);
    if (ends >= 0 && (i64)words.next() < ends) return -1;
    const List list = list_of(p, v);
#if RULE >= 3
    const i64 edge = drawn_edge(list, __ldg(most + v), words);
#else
    const i64 edge = drawn_edge(list, 0, words);
#endif
    return edge < 0 ? (ID_T)-1 : __ldg(p.indices + list.start + edge);
}
#endif
