// One rank's share of walks and layers by exchanges (DSP, section 4.2): entries go to the owners of lists, and what is
// drawn there comes from lists in this GPU's memory alone.
//
//   owners         which part has the list of each vertex
//   count_peers, place_peers   entries by where they go, those for peer 0 first, without a sort
//   move           where walkers come to
//   set_out        ended walks, and others, go back to their roots
//   draw_slots, total_weights, neighbors_at   a layer: numbers below the weight of all its lists, what lists weigh, and on
//                  which edge a number falls
//
// Shapes: a thread an entry in a grid of any number of blocks. CPU twins: ../own.py, ../words.py.
// Bound: dependent loads, as in apps.cu: for an entry a random sector of `new_of`, one of indptr and one of indices.
// @variants ID_T=int,long LISTS=0 RULE=2,4
#include "csp.cuh"
#include "apps.cuh"

#define FOR_EACH(i, n) \
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); i += gridDim.x * (i64)blockDim.x)

// Where this part's lists are: rows are new ids less `lower`.
struct Rows {
    const ID_T* new_of;     // [num_nodes] ids that are consecutive within a part
    const i64* boundaries;  // [parts + 1] new ids of part p begin at boundaries[p]
    const u64* most;        // [rows] the heaviest weight of each list, for RULE=4
    i64 lower;
    i64 parts;
};
static_assert(sizeof(Rows) == 40, "own.py packs the same structure");

__device__ __forceinline__ ID_T row_of(const Rows& r, ID_T v) { return (ID_T)(__ldg(r.new_of + v) - r.lower); }

// peers: `parts` for entries below 0, which go to nobody.
extern "C" __global__ void __launch_bounds__(CSP_THREADS) owners(const __grid_constant__ Rows r, const ID_T* vertices,
                                                                 i64 n, int* peers) {
    __shared__ i64 bounds[MAX_PEERS + 1];
    for (int o = threadIdx.x; o <= (int)r.parts; o += CSP_THREADS) bounds[o] = r.boundaries[o];
    __syncthreads();
    FOR_EACH(i, n) {
        const ID_T v = vertices[i];
        peers[i] = v >= 0 ? part_of(bounds, (int)r.parts, __ldg(r.new_of + v)) : (int)r.parts;
    }
}

// counts: zeros at first.
extern "C" __global__ void __launch_bounds__(CSP_THREADS) count_peers(const int* peers, i64 n, int kinds, i64* counts) {
    __shared__ u32 found[MAX_PEERS + 1];
    if ((int)threadIdx.x < kinds) found[threadIdx.x] = 0;
    __syncthreads();
    FOR_EACH(i, n) atomicAdd(found + peers[i], 1u);
    __syncthreads();
    if ((int)threadIdx.x < kinds && found[threadIdx.x]) atomicAdd((u64*)counts + threadIdx.x, (u64)found[threadIdx.x]);
}

// taken: zeros at first. order: which entry stands at each place once those for peer 0 are first.
extern "C" __global__ void __launch_bounds__(CSP_THREADS) place_peers(const int* peers, i64 n, int kinds,
                                                                      const i64* counts, i64* taken, i64* order) {
    __shared__ u32 found[MAX_PEERS + 1];
    __shared__ i64 begin[MAX_PEERS + 1], first[MAX_PEERS + 1];
    if (threadIdx.x == 0) {
        i64 before = 0;
        for (int p = 0; p < kinds; ++p) {
            begin[p] = before;
            before += counts[p];
        }
    }
    for (i64 base = blockIdx.x * (i64)CSP_THREADS; base < n; base += gridDim.x * (i64)CSP_THREADS) {
        if ((int)threadIdx.x < kinds) found[threadIdx.x] = 0;
        __syncthreads();
        const i64 i = base + threadIdx.x;
        const int peer = i < n ? peers[i] : 0;
        u32 place = 0;
        if (i < n) place = atomicAdd(found + peer, 1u);
        __syncthreads();
        if ((int)threadIdx.x < kinds && found[threadIdx.x])
            first[threadIdx.x] = (i64)atomicAdd((u64*)taken + threadIdx.x, (u64)found[threadIdx.x]);
        __syncthreads();
        if (i < n) order[begin[peer] + first[peer] + place] = i;
        __syncthreads();
    }
}

// Walk w is walk w % per_sample of the sample first + w / per_sample; it stands at vertex at[i], which is this part's.
extern "C" __global__ void __launch_bounds__(CSP_THREADS) move(const __grid_constant__ Plan p,
                                                               const __grid_constant__ Rows r, const int* walks,
                                                               const ID_T* at, i64 n, i64 first, i64 per_sample, i64 step,
                                                               i64 ends, ID_T* came) {
    FOR_EACH(i, n) {
        const i64 s = walks[i] / per_sample;
        came[i] = next_of(p, row_of(r, at[i]), r.most, (u64)(first + s), step, (u32)(walks[i] - s * per_sample), ends);
    }
}

extern "C" __global__ void __launch_bounds__(CSP_THREADS) set_out(const __grid_constant__ Plan p, const int* walks,
                                                                  ID_T* at, i64 n, i64 first, i64 per_sample, i64 step,
                                                                  i64 restarts, const ID_T* roots) {
    FOR_EACH(i, n) {
        const i64 s = walks[i] / per_sample;
        const u32 k = (u32)(walks[i] - s * per_sample);
        if ((i64)restart_word((u64)(first + s), step, k, p.seed) < restarts) at[i] = roots[s];
    }
}

extern "C" __global__ void __launch_bounds__(CSP_THREADS) draw_slots(const __grid_constant__ Plan p, const i64* slots,
                                                                     i64 n, i64 bound, i64 sample, i64 step, i64 size,
                                                                     i64 attempt, i64* out) {
    FOR_EACH(i, n) {
        Words words((u64)sample, step, 0, (u32)slots[i], (u32)size, (u32)attempt, p.seed);
        out[i] = (i64)words.below((u64)bound);
    }
}

extern "C" __global__ void __launch_bounds__(CSP_THREADS) total_weights(const __grid_constant__ Plan p,
                                                                        const __grid_constant__ Rows r,
                                                                        const ID_T* vertices, i64 n, i64* out) {
    FOR_EACH(i, n) out[i] = (i64)weight_of(list_of(p, row_of(r, vertices[i])));
}

#if RULE >= 3
typedef i64 Inner;
#else
typedef int Inner;  // below the length of a list
#endif

extern "C" __global__ void __launch_bounds__(CSP_THREADS) neighbors_at(const __grid_constant__ Plan p,
                                                                       const __grid_constant__ Rows r,
                                                                       const ID_T* vertices, const Inner* inner, i64 n,
                                                                       ID_T* out) {
    FOR_EACH(i, n) {
        const List list = list_of(p, row_of(r, vertices[i]));
        out[i] = __ldg(p.indices + list.start + edge_at(list, (u64)inner[i]));
    }
}
