// Dynamic random walks by weighted reservoir sampling, as FlowWalker has them (Mei et al., VLDB'24): the weight of an edge
// may depend on where the walk comes from, so every step weighs the whole list anew. No table is built, and the graph is
// all that lies in memory.
//
// A lane weighs two neighbouring edges. Prefix sums over the lanes give every edge the sum of the weights up to it; it
// replaces what was kept before with probability weight / sum, and the last edge that does is the step. So a warp returns
// what one thread returns that reads the list edge by edge.
//
// Warps take walkers from a queue. A warp serves lists of up to BLOCK_LIST edges alone; a longer one waits until the
// block's warps meet, after at most PATIENCE steps of each, and all of them serve it together.
// Bound: one read of the list (and of its weights) of every vertex that a walk leaves, and a search in another list for
// every edge of a second-order walk.
//
// Words of a draw: walker, step, and the number of the pair of edges in the list.
// WEIGHTED: edges have weights; SECOND: the weight depends on the vertex before.
// @variants ID_T=int,long WEIGHTED=0,1 SECOND=0,1
#include "device/philox.cuh"
typedef long long i64;

#define FULL 0xFFFFFFFFu
#define WARPS 8
#ifndef BLOCK_LIST
#define BLOCK_LIST 1024
#endif
#ifndef PATIENCE
#define PATIENCE 8
#endif

// Every field has 8 bytes; flow.py holds the same record.
struct Flow {
    const i64* indptr;
    const ID_T* indices;
    const u64* prefix;   // [E + 1] sums of the integer weights; WEIGHTED only
    const i64* starts;   // [walkers], -1 for none
    ID_T* out;           // [walkers, length + 1], -1 before
    u64* queue;          // the next walker, 0 at first
    i64 walkers, length;
    u64 first, seed;     // id of walker 0 in the draws
    u64 returns, near, away;  // factors of a weight, SECOND only
};

__device__ __forceinline__ bool holds(const ID_T* list, i64 length, i64 v) {
    i64 low = 0, high = length;
    while (low < high) {
        const i64 middle = (low + high) >> 1;
        if ((i64)list[middle] < v) low = middle + 1;
        else high = middle;
    }
    return low < length && (i64)list[low] == v;
}

struct Walker {
    i64 row, v, before;  // before: -1 in the first step
    i64 begin, degree;   // of v's list
    u32 step;
};

// Weight of the edge at position i of the walker's list.
__device__ __forceinline__ u64 weight_of(const Flow& f, const Walker& w, const ID_T* near, i64 near_length, i64 i) {
    if (i >= w.degree) return 0;
#if WEIGHTED
    u64 weight = f.prefix[w.begin + i + 1] - f.prefix[w.begin + i];
#else
    u64 weight = 1;
#endif
#if SECOND
    const i64 u = (i64)f.indices[w.begin + i];
    if (w.before < 0) weight *= f.near;
    else weight *= u == w.before ? f.returns : holds(near, near_length, u) ? f.near : f.away;
#else
    (void)near, (void)near_length;
#endif
    return weight;
}

__device__ __forceinline__ u64 shuffled(u64 value, int lane) { return __shfl_sync(FULL, value, lane); }

__device__ __forceinline__ u64 sum_up(u64 mine, u32 lane) {
#pragma unroll
    for (int apart = 1; apart < 32; apart <<= 1) {
        const u64 left = __shfl_up_sync(FULL, mine, apart);
        if (lane >= apart) mine += left;
    }
    return mine;
}

// The edge of the two from position i on that the reservoir keeps, -1 for none; `sum` is of all weights before.
__device__ __forceinline__ i64 kept(const Flow& f, const Walker& w, i64 i, u64 sum, u64 first, u64 second) {
    const u64 id = f.first + (u64)w.row;
    const uint4 r = lab_philox(make_uint4((u32)id, (u32)(id >> 32), w.step, LAB_PURPOSE_FLOW << 28 | (u32)(i >> 1)),
                               make_uint2((u32)f.seed, (u32)(f.seed >> 32)));
    i64 at = -1;
    sum += first;
    if (first && __umul64hi((u64)r.y << 32 | r.x, sum) < first) at = i;
    sum += second;
    if (second && __umul64hi((u64)r.w << 32 | r.z, sum) < second) at = i + 1;
    return at;
}

// The warp reads 64 edges from `base` on: the last that the reservoir keeps, or `before_at`. Adds their weights to `sum`.
__device__ __forceinline__ i64 serve(const Flow& f, const Walker& w, const ID_T* near, i64 near_length, i64 base,
                                     u64 offset, i64 before_at, u64& sum, u32 lane) {
    const i64 i = base + 2 * lane;
    const u64 first = weight_of(f, w, near, near_length, i), second = weight_of(f, w, near, near_length, i + 1);
    const u64 upto = sum_up(first + second, lane);
    const i64 mine = kept(f, w, i, offset + sum + upto - first - second, first, second);
    const u32 some = __ballot_sync(FULL, mine >= 0);
    sum += shuffled(upto, 31);
    return some ? __shfl_sync(FULL, mine, 31 - __clz(some)) : before_at;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) flow(const __grid_constant__ Flow f) {
    __shared__ Walker waiting[WARPS];
    __shared__ u64 sums[WARPS];
    __shared__ i64 found[WARPS];
    __shared__ int waits[WARPS];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    Walker w{0, -1, -1, 0, 0, 0};
    bool active = false, more = true;
    // bounded: every round ends a step of an active walker, or takes one from the queue until it is empty
    while (true) {
        i64 taken = -1;
        bool together = false;
        for (int round = 0; round < PATIENCE && !together; ++round) {
            if (!active && more) {
                u64 next = 0;
                if (lane == 0) next = atomicAdd(f.queue, 1ull);
                next = shuffled(next, 0);
                more = next < (u64)f.walkers;
                if (more) {
                    w = Walker{(i64)next, f.starts[next], -1, 0, 0, 0};
                    active = w.v >= 0;
                    if (lane == 0) f.out[w.row * (f.length + 1)] = (ID_T)w.v;
                }
            }
            if (!active) continue;
            w.begin = f.indptr[w.v];
            w.degree = f.indptr[w.v + 1] - w.begin;
            if (w.degree > BLOCK_LIST && (i64)w.step < f.length) {
                together = true;
                continue;
            }
            i64 at = -1;
            if ((i64)w.step < f.length) {
                const i64 near_begin = w.before < 0 ? 0 : f.indptr[w.before];
                const i64 near_length = w.before < 0 ? 0 : f.indptr[w.before + 1] - near_begin;
                u64 sum = 0;
                for (i64 base = 0; base < w.degree; base += 64)
                    at = serve(f, w, f.indices + near_begin, near_length, base, 0, at, sum, lane);
            }
            taken = at < 0 ? -1 : (i64)f.indices[w.begin + at];
            active = taken >= 0;
            if (active) {
                w.before = w.v, w.v = taken, ++w.step;
                if (lane == 0) f.out[w.row * (f.length + 1) + w.step] = (ID_T)taken;
            }
        }
        if (lane == 0) {
            waits[warp] = together;
            if (together) waiting[warp] = w;
        }
        if (!__syncthreads_or(active || more)) return;
        for (int turn = 0; turn < WARPS; ++turn) {
            if (!waits[turn]) continue;
            const Walker shared = waiting[turn];
            const i64 near_begin = shared.before < 0 ? 0 : f.indptr[shared.before];
            const i64 near_length = shared.before < 0 ? 0 : f.indptr[shared.before + 1] - near_begin;
            u64 before = 0;
            i64 at = -1;
            for (i64 base = 0; base < shared.degree; base += 64 * WARPS) {
                // The sums of all warps' edges first: an edge is weighed against all that come before it.
                const i64 mine = base + 64 * warp;
                const i64 i = mine + 2 * lane;
                const u64 both = weight_of(f, shared, f.indices + near_begin, near_length, i) +
                                 weight_of(f, shared, f.indices + near_begin, near_length, i + 1);
                const u64 here = shuffled(sum_up(both, lane), 31);
                if (lane == 0) sums[warp] = here;
                __syncthreads();
                u64 offset = before, none = 0;
                for (u32 other = 0; other < WARPS; ++other) {
                    if (other < warp) offset += sums[other];
                    before += sums[other];
                }
                const i64 kept_at =
                    serve(f, shared, f.indices + near_begin, near_length, mine, offset, -1, none, lane);
                if (lane == 0) found[warp] = kept_at;
                __syncthreads();
                for (u32 other = 0; other < WARPS; ++other)
                    if (found[other] >= 0) at = found[other];
            }
            if (warp == (u32)turn) {
                taken = at < 0 ? -1 : (i64)f.indices[w.begin + at];
                active = taken >= 0;
                if (active) {
                    w.before = w.v, w.v = taken, ++w.step;
                    if (lane == 0) f.out[w.row * (f.length + 1) + w.step] = (ID_T)taken;
                }
            }
            __syncthreads();  // `found` is read before the next walker writes it
        }
        __syncthreads();  // and `waits` before the next round
    }
}
