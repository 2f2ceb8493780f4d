// Walks and layers over lists that lie in several memories: the draws of sampling applications, without an application.
//
//   walk        a thread per walk takes several steps, wherever its lists lie
//   totals      the weight of each list: RULE=2 its length, RULE=4 the sum of its integer weights
//   draw_slots  of a layer: a number below the weight of all lists falls on one of them, and there on an edge
//
// The words are those that `next` draws on one GPU (sampling/engine/context.cuh). CPU twins: ../words.py, ../reading.py.
// Shapes: grid of any number of blocks. Bound: dependent loads, a record and an entry a step or a slot, weighted twice
// two prefix sums more; each may be 900 ns away. All lanes' are under way at once.
// @variants ID_T=int,long LISTS=1,2 RULE=2,4
#include "sampling/neighbors/hops/lists.cuh"

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
    int available = 0;
    lab_locate(p, (u64)v, list.start, list.degree, list.prefix, available);
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

// at: where each walk stands, -1 where it has ended. attempted: steps that it set out for. most: of each vertex' list, the
// heaviest weight. ends, restarts: a word below these ends a walk before its step, has it set out anew; -1: not asked.
extern "C" __global__ void __launch_bounds__(128) walk(const __grid_constant__ Plan p, const ID_T* roots,
                                                       const i64* samples, ID_T* at, int* attempted, ID_T* out,
                                                       const u64* most, i64 walks, i64 per_sample, i64 begin, int steps,
                                                       i64 ends, i64 restarts) {
    for (i64 w = blockIdx.x * (i64)blockDim.x + threadIdx.x; w < walks; w += gridDim.x * (i64)blockDim.x) {
        const i64 s = w / per_sample;
        const u32 k = (u32)(w - s * per_sample);
        const u64 sample = (u64)samples[s];
        ID_T v = at[w];
        int last = attempted[w];
        for (int i = 0; i < steps; ++i) {
            const i64 step = begin + i;
            if (step && restarts > 0 && (i64)restart_word(sample, step, k, p.seed) < restarts) v = roots[s];
            ID_T came = -1;
            if (v >= 0) {
                last = (int)step + 1;
                Words words(sample, step, k, 0, 1, 0, p.seed);
                if (ends < 0 || (i64)words.next() >= ends) {
                    const List list = list_of(p, v);
#if RULE >= 3
                    const i64 edge = drawn_edge(list, __ldg(most + v), words);
#else
                    const i64 edge = drawn_edge(list, 0, words);
#endif
                    if (edge >= 0) came = __ldg(p.indices + list.start + edge);
                }
            }
            out[i * walks + w] = came;
            v = came;
        }
        at[w] = v;
        attempted[w] = last;
    }
}

extern "C" __global__ void __launch_bounds__(128) totals(const __grid_constant__ Plan p, const ID_T* vertices, i64 n,
                                                         i64* out) {
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (i64)blockDim.x)
        out[i] = (i64)weight_of(list_of(p, vertices[i]));
}

// starts: where the lists of the n vertices begin when they are laid end to end, [n + 1]. size: slots of a whole layer.
extern "C" __global__ void __launch_bounds__(128) draw_slots(const __grid_constant__ Plan p, const i64* slots, i64 count,
                                                        const i64* starts, const ID_T* vertices, i64 n, u64 sample,
                                                        i64 step, u32 size, u32 attempt, ID_T* names, i64* transits) {
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (i64)blockDim.x) {
        Words words(sample, step, 0, (u32)slots[i], size, attempt, p.seed);
        const i64 number = (i64)words.below((u64)starts[n]);
        i64 low = 0, high = n;  // the last list that begins at or before the number; empty ones begin with the next
        while (high - low > 1) {
            const i64 mid = (low + high) >> 1;
            if (starts[mid] <= number) low = mid;
            else high = mid;
        }
        const List list = list_of(p, vertices[low]);
        names[i] = __ldg(p.indices + list.start + edge_at(list, (u64)(number - starts[low])));
        transits[i] = low;
    }
}
