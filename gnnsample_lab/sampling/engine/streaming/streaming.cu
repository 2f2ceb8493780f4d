// Sampling from the part of a graph that lies on the GPU (graphs larger than its memory).
//
// Pairs of sample and transit are sorted by transit, so the pairs of one sub-graph are a range; a launch serves the
// range of the sub-graph that was copied last. A thread serves up to four slots of a pair, which share one generator
// call. Neighbouring threads have the same transit or the next, so they read lists from the cache. Lists of other
// vertices (node2vec's `has_edge`) are read across the bus, from the host memory that `plan.indices` points to. Works
// for every individual application. Bound: the copy of the sub-graph, or, with `indices` 0, one or more bus reads per
// slot.
// @operator
// @variants ID_T=int,long PAIR_T=int,long STAGED=1
#include "sampling/engine/context.cuh"

// The staged edges: edge position e lies at indices[e - edge_begin], likewise weight and prefix. 0: read the plan's
// arrays.
struct Staged {
    i64 edge_begin;
    const ID_T* indices;
    const u32* weight;
    const u64* prefix;
};

__device__ __forceinline__ i64 divided(i64 a, i64 b) { return (a | b) >> 32 ? a / b : (i64)((u32)a / (u32)b); }

// Serve the pairs [bounds[first], bounds[last]) of `pairs`; a pair is row * num_transits + k.
extern "C" __global__ void staged_pairs(const __grid_constant__ AppPlan p, const __grid_constant__ Staged staged,
                                        const PAIR_T* pairs, const i64* bounds, int first, int last) {
    const i64 begin = bounds[first], groups = (p.size + 3) >> 2, total = (bounds[last] - begin) * groups;
    const i64 threads = gridDim.x * (i64)blockDim.x;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < total; i += threads) {
        const i64 at_pair = groups == 1 ? i : divided(i, groups), group = i - at_pair * groups;
        const i64 pair = pairs[begin + at_pair];
        const i64 row = p.num_transits == 1 ? pair : divided(pair, p.num_transits), k = pair - row * p.num_transits;
        const i64 v = p.transits[pair], at = p.indptr[v], length = p.indptr[v + 1] - at;
        const uint4 words = lab_first_words(p, row, k, group);
        ID_T* out = p.out + pair * p.size;
        const int slots = (int)min((i64)4, p.size - 4 * group);
#pragma unroll 1
        for (int slot = 0; slot < slots; ++slot) {
            const i64 j = 4 * group + slot;
            Context c;
            lab_begin_call(c, p, row, k, j, 0, lab_word(words, slot));
            lab_set_edges(c, v, at, length);
            if (staged.indices) {
                c.edges = staged.indices + (at - staged.edge_begin);
                c.edge_prefix = staged.prefix ? staged.prefix + (at - staged.edge_begin) : nullptr;
                c.edge_weight = staged.weight ? staged.weight + (at - staged.edge_begin) : nullptr;
            }
            out[j] = (ID_T)lab_call_next(c);
        }
    }
}
