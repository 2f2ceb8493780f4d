// The last part of collective sampling: sample-parallel calls of `next` (NextDoor, section 6.2, last sentence), for one
// wave of samples whose combined neighbourhoods lie in memory (combine.cu), or for all samples if `next` needs none.
//
// A thread serves four slots of a sample, which share the generator call for their first words. If `next` only says
// which entry of src_edges it takes (a deferred operator), the four reads are in flight at once. Bound: those reads, at
// random positions of the sample's combined neighbourhood (L2), and the other work of `next`.
// @operator
// @variants ID_T=int,long
#include "sampling/engine/context.cuh"

extern "C" __global__ void __launch_bounds__(256)
    collective_next(const __grid_constant__ AppPlan p, i64 first_row, i64 rows) {
    const i64 groups = (p.size + 3) >> 2, total = rows * groups, t = p.num_transits;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < total; i += gridDim.x * (i64)blockDim.x) {
        const i64 behind = (i | groups) >> 32 ? i / groups : (i64)((u32)i / (u32)groups);
        const i64 row = first_row + behind, group = i - behind * groups;
        const ID_T* transits = p.transits + row * t;
        bool live = false;
        for (i64 k = 0; k < t && !live; ++k) live = transits[k] >= 0;
        i64 v[4] = {LAB_NULL, LAB_NULL, LAB_NULL, LAB_NULL};
        const int slots = (int)min((i64)4, p.size - 4 * group);
        if (live) {
            const uint4 words = lab_first_words(p, row, 0, group);
            const ID_T* edges = nullptr;
#pragma unroll 1
            for (int u = 0; u < slots; ++u) {
                Context c;
                lab_begin_call(c, p, row, 0, 4 * group + u, 0, lab_word(words, u));
                lab_set_combined(c);
                edges = c.edges;
#if DEFERRED
                const i64 got = lab_call_next_index(c);
#else
                const i64 got = lab_call_next(c);
#endif
                // Only constant indices, so that v stays in registers.
                if (u == 0) v[0] = got;
                else if (u == 1) v[1] = got;
                else if (u == 2) v[2] = got;
                else v[3] = got;
            }
#if DEFERRED
#pragma unroll
            for (int u = 0; u < 4; ++u)
                if (v[u] >= 0) v[u] = (i64)edges[v[u]];
#else
            (void)edges;
#endif
        }
        ID_T* out = p.out + row * p.size + 4 * group;
        struct __align__(4 * sizeof(ID_T)) Four { ID_T x[4]; };
        if ((p.size & 3) == 0 && ((u64)p.out & (sizeof(Four) - 1)) == 0) {
            *(Four*)out = Four{(ID_T)v[0], (ID_T)v[1], (ID_T)v[2], (ID_T)v[3]};
        } else {
#pragma unroll
            for (int u = 0; u < 4; ++u)
                if (u < slots) out[u] = (ID_T)v[u];
        }
    }
}
