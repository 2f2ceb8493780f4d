// Walks and layers over lists that lie in several memories: the draws of sampling applications, without an application.
//
//   walk         a thread per walk takes several steps, wherever its lists lie
//   draw_layers  a block draws the layers of a mini-batch one after the other: it lays the lists of the last layer end to
//                end (RULE=2 by their lengths, RULE=4 by their integer weights), and a number below the weight of all
//                falls on one of them, and there on an edge
//
// How a walk goes on and an edge is drawn: apps.cuh, which own.cu has, too. CPU twins: ../words.py, ../reading.py.
// Shapes: walks in a grid of any number of blocks, layers in one block of 1 024 threads: a round of draws waits for the one
// before, so that a barrier of the block is what it costs, and a layer of a thousand slots is a slot a thread.
// Bound: dependent loads, a record and an entry a step or a slot, weighted twice two prefix sums more; each may be 900 ns
// away. All lanes' are under way at once.
// @variants ID_T=int,long LISTS=1,2 RULE=2,4
#include "sampling/engine/grouping/block_scan.cuh"
#include "apps.cuh"

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
                came = next_of(p, v, most, sample, step, k, ends);
            }
            out[i * walks + w] = came;
            v = came;
        }
        at[w] = v;
        attempted[w] = last;
    }
}

// What a layer goes on from: n vertices, their places in their own layer, and the rank that each is of.
struct Last {
    ID_T* vertices;
    i64 *places, *whose;
};

struct Layers {
    u64 sample;
    i64 final_size, step_size, total, step;  // `total` vertices are there before the first layer, which is number `step`
    i64 n;                                   // vertices of last[0]
    i64 mine;                                // this rank
    int attempts, most;                      // rounds of draws, 0 with replacement; layers
    u32 mask;                                // entries of the table, less one
    u32 unused;
    Last last[2];                            // by turns; room for the seeds, and for a layer
    i64 *starts, *transits;                  // one more than vertices, and a layer
    ID_T* names;                             // a layer, as `pending`
    u32* pending;                            // entry of the table that a slot drew, none once it has what it drew
    u64 *keys, *best;                        // the table: vertices of a layer, and the round and the slot that have each
    i64* slots;                              // of this rank, `most` layers of step_size each, as the next two
    ID_T* vertices;
    i64* from;
    i64* counts;                             // of each layer: vertices on all ranks, and on this one; -1: not drawn
};

#define NONE 0xFFFFFFFFu
#define EMPTY 0xFFFFFFFFFFFFFFFFull

// Where the lists of n vertices begin when they are laid end to end, into starts[n + 1].
__device__ __forceinline__ void lay_out(const Plan& p, const ID_T* vertices, i64 n, i64* starts) {
    u64 before = 0;
    for (i64 base = 0; base < n; base += blockDim.x) {
        const i64 i = base + threadIdx.x;
        u64 sum;
        const u64 begin = block_exclusive<u64>(i < n ? weight_of(list_of(p, vertices[i])) : 0, sum);
        if (i < n) starts[i] = (i64)(before + begin);
        before += sum;
    }
    if (threadIdx.x == 0) starts[n] = (i64)before;
    __syncthreads();
}

// The list on which a number falls: the last that begins at or before it; empty ones begin with the next.
__device__ __forceinline__ i64 list_at(const i64* starts, i64 n, i64 number) {
    i64 low = 0, high = n;
    while (high - low > 1) {
        const i64 mid = (low + high) >> 1;
        if (starts[mid] <= number) low = mid;
        else high = mid;
    }
    return low;
}

// The entry of a vertex. Twice as many entries as slots, and only vertices that stay get one: the table never fills.
__device__ __forceinline__ u32 entry_of(const Layers& q, u64 vertex) {
    u32 at = (u32)((vertex * 0x9E3779B97F4A7C15ull) >> 32) & q.mask;
    for (u32 probe = 0; probe <= q.mask; ++probe, at = (at + 1) & q.mask) {
        const u64 there = atomicCAS(q.keys + at, EMPTY, vertex);
        if (there == EMPTY || there == vertex) break;
    }
    return at;
}

// Draws all slots of a layer into names and transits; without replacement repeated vertices anew, in rounds. Of equal
// vertices the one of an earlier round stays, else that of the lowest slot; a slot that never got one of its own gets -1.
__device__ __forceinline__ void fill(const Plan& p, const Layers& q, const ID_T* vertices, i64 n, i64 step, i64 wanted) {
    const i64 all = q.starts[n];
    const bool distinct = q.attempts > 0;
    for (i64 i = threadIdx.x; i < wanted; i += blockDim.x) {
        q.pending[i] = 0;
        q.names[i] = -1;
    }
    if (all == 0) return;
    if (distinct)
        for (i64 i = threadIdx.x; i <= (i64)q.mask; i += blockDim.x) q.keys[i] = q.best[i] = EMPTY;
    __syncthreads();
    for (int attempt = 0; attempt < max(1, q.attempts); ++attempt) {
        for (i64 i = threadIdx.x; i < wanted; i += blockDim.x) {
            if (q.pending[i] == NONE) continue;
            Words words(q.sample, step, 0, (u32)i, (u32)q.step_size, (u32)attempt, p.seed);
            const i64 number = (i64)words.below((u64)all);
            const i64 at = list_at(q.starts, n, number);
            const List list = list_of(p, vertices[at]);
            const ID_T name = __ldg(p.indices + list.start + edge_at(list, (u64)(number - q.starts[at])));
            q.names[i] = name;
            q.transits[i] = at;
            if (distinct) {
                const u32 entry = q.pending[i] = entry_of(q, (u64)name);
                atomicMin(q.best + entry, (u64)attempt << 32 | (u32)i);
            }
        }
        if (!distinct) return;
        __syncthreads();
        int missing = 0;
        for (i64 i = threadIdx.x; i < wanted; i += blockDim.x) {
            if (q.pending[i] == NONE) continue;
            if (__ldcg(q.best + q.pending[i]) == ((u64)attempt << 32 | (u32)i)) q.pending[i] = NONE;
            else missing = 1;
        }
        if (!__syncthreads_or(missing)) return;
    }
    for (i64 i = threadIdx.x; i < wanted; i += blockDim.x)
        if (q.pending[i] != NONE) q.names[i] = -1;
}

extern "C" __global__ void __launch_bounds__(1024) draw_layers(const __grid_constant__ Plan p,
                                                               const __grid_constant__ Layers q) {
    i64 total = q.total, n = q.n;
    for (int layer = 0; layer < q.most && total < q.final_size && n; ++layer) {
        const i64 wanted = min(q.step_size, q.final_size - total);  // cut where the sample is full
        const Last &last = q.last[layer & 1], &next = q.last[(layer & 1) ^ 1];
        lay_out(p, last.vertices, n, q.starts);
        fill(p, q, last.vertices, n, q.step + layer, wanted);
        u64 there = 0;  // on all ranks, and on this one in the upper half
        for (i64 base = 0; base < wanted; base += blockDim.x) {
            const i64 i = base + threadIdx.x;
            const bool filled = i < wanted && q.names[i] >= 0;
            const i64 whose = filled ? last.whose[q.transits[i]] : -1;
            u64 sum;
            const u64 before = there + block_exclusive<u64>((u64)filled | (u64)(whose == q.mine) << 32, sum);
            if (filled) {
                const u32 at = (u32)before;
                next.vertices[at] = q.names[i];
                next.places[at] = i;
                next.whose[at] = whose;
                if (whose == q.mine) {
                    const i64 own = layer * q.step_size + (i64)(before >> 32);
                    q.slots[own] = i;
                    q.vertices[own] = q.names[i];
                    q.from[own] = last.places[q.transits[i]];
                }
            }
            there += sum;
        }
        n = (u32)there;
        total += n;
        if (threadIdx.x == 0) {
            q.counts[2 * layer] = n;
            q.counts[2 * layer + 1] = (i64)(there >> 32);
        }
        __syncthreads();
    }
}
