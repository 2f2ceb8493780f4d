// NextDoor's transit-parallel kernels as published (section 6.1 and table 2), over the index of grouping/classes.cu. All
// of them draw the vertices that every other schedule draws.
//
//   published_subwarp  transits with few neighbours to sample. A sub-warp of WIDTH lanes, the least power of two of m
//                      lanes or more, serves a pair of sample and transit: lane j draws slot j, and the lanes write
//                      their slots at once. The list lies in the registers of the sub-warp's lanes, HELD entries each,
//                      and is read by shuffles. WIDTH 0: lanes follow the slots of pair after pair, no lane idles, and
//                      nothing is cached.
//   published_block    a thread block per transit. Its threads follow the slots of the pairs, so that neighbouring
//                      threads write neighbouring slots; the list lies in shared memory.
//   published_grid     the same for the transits with most to sample: blocks take up to x.pairs_per_job pairs each.
//
// A list is cached wherever it fits (x.factor 0), or where it is at most x.factor times as long as what is drawn from
// it. A list that does not fit is read from global memory. Only a `deferred` operator, which tells the position that it
// takes, reads a list from registers. NEXT: the step is one of a walk, whose next transit is what was drawn: the kernel
// counts it for the next index.
// Bound: random writes of rows of m ids, one read of each list that is drawn from.
// @operator
// @variants ID_T=int,long WIDTH=0,1,8,32 HELD=1,2 NEXT=0,1
#include "sampling/engine/steps/list.cuh"
#include "sampling/engine/grouping/classes.cuh"

#ifndef WIDTH
#define WIDTH 0
#endif
#ifndef HELD
#define HELD 2
#endif
#ifndef NEXT
#define NEXT 0
#endif

// steps/published.py holds the same record.
struct Served {
    const Entry* sorted;
    const Job* jobs;      // of the kernel's class
    const u64* count;     // jobs, or pairs of the sub-warp class; device memory
    i64 factor, cached;   // entries that a block's shared memory holds
    Entry* entries;       // NEXT: what was drawn, at the place of the pair that drew it
    u32* counts;
};

__device__ __forceinline__ bool caches(const Served& x, i64 length, i64 room, i64 draws) {
    return length > 0 && length <= room && (x.factor == 0 || length <= x.factor * draws);
}

__device__ __forceinline__ void begin_slot(Context& c, const AppPlan& p, const Divider& by_transits, u32 pair, i64 j,
                                           const List& l) {
    const i64 row = by_transits(pair), k = pair - row * p.num_transits;
    lab_begin_call(c, p, row, k, j, 0, lab_word(lab_first_words(p, row, k, j >> 2), (u32)j & 3));
    lab_set_edges(c, l.v, l.begin, l.length);
    c.edges = l.edges;
}

// Slot j of the pair at place `at` gets the vertex v.
__device__ __forceinline__ void put(const AppPlan& p, const Served& x, i64 at, u32 pair, i64 j, ID_T v) {
    p.out[pair * p.size + j] = v;
#if NEXT
    if (v >= 0) atomicAdd(x.counts + v, 1u);
    x.entries[at] = Entry{v, pair};
#else
    (void)x, (void)at;
#endif
}

__device__ __forceinline__ ID_T draw(const AppPlan& p, const Divider& by_transits, u32 pair, i64 j, const List& l) {
    Context c;
    begin_slot(c, p, by_transits, pair, j, l);
    return (ID_T)lab_call_next(c);
}

extern "C" __global__ void __launch_bounds__(256)
    published_subwarp(const __grid_constant__ AppPlan p, const __grid_constant__ Served x) {
    const Divider by_transits = lab_divider(p.num_transits);
    const i64 pairs = (i64)x.count[0], threads = (i64)gridDim.x * blockDim.x;
#if WIDTH == 0
    const Divider by_size = lab_divider(p.size);
    const i64 work = pairs * p.size;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < work; i += threads) {
        const i64 at = by_size(i), j = i - at * p.size;
        const Entry e = x.sorted[at];
        put(p, x, at, e.pair, j, draw(p, by_transits, e.pair, j, list_of(p, e.v)));
    }
#else
    // All lanes of a sub-warp have the same pair, and leave the loop together.
    const u32 lane = threadIdx.x & (WIDTH - 1);
#if DEFERRED
    const u32 team = (u32)(((1ull << WIDTH) - 1) << (threadIdx.x & 31 & ~(WIDTH - 1)));
#endif
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < pairs * WIDTH; i += threads) {
        const i64 at = i / WIDTH;
        const Entry e = x.sorted[at];
        const List l = list_of(p, e.v);
#if DEFERRED
        if (caches(x, l.length, WIDTH * HELD, p.size)) {
            ID_T held[HELD];
#pragma unroll
            for (int h = 0; h < HELD; ++h) held[h] = h * WIDTH + lane < l.length ? l.edges[h * WIDTH + lane] : (ID_T)LAB_NULL;
            i64 position = -1;
            if (lane < p.size) {
                Context c;
                begin_slot(c, p, by_transits, e.pair, lane, l);
                position = lab_call_next_index(c);
            }
            __syncwarp(team);
            ID_T got = (ID_T)LAB_NULL;
#pragma unroll
            for (int h = 0; h < HELD; ++h) {
                const ID_T entry = __shfl_sync(team, held[h], (int)position & (WIDTH - 1), WIDTH);
                if (position >= h * WIDTH && position < (h + 1) * WIDTH) got = entry;
            }
            if (lane < p.size) put(p, x, at, e.pair, lane, got);
            continue;
        }
#endif
        if (lane < p.size) put(p, x, at, e.pair, lane, draw(p, by_transits, e.pair, lane, l));
    }
#endif
}

// The block's threads draw for the pairs of a job.
__device__ __forceinline__ void serve(const AppPlan& p, const Served& x, const Job& job, ID_T* shared) {
    const Divider by_transits = lab_divider(p.num_transits), by_size = lab_divider(p.size);
    const i64 work = job.count * p.size;
    List l = list_of(p, job.v);
    if (caches(x, l.length, x.cached, work)) {
        __syncthreads();  // nobody reads the list before
        for (i64 i = threadIdx.x; i < l.length; i += blockDim.x) shared[i] = l.edges[i];
        __syncthreads();
        l.edges = shared;
    }
    for (i64 i = threadIdx.x; i < work; i += blockDim.x) {
        const i64 nth = by_size(i), j = i - nth * p.size, at = job.first + nth;
        const u32 pair = x.sorted[at].pair;
        put(p, x, at, pair, j, draw(p, by_transits, pair, j, l));
    }
}

extern "C" __global__ void __launch_bounds__(256)
    published_block(const __grid_constant__ AppPlan p, const __grid_constant__ Served x) {
    extern __shared__ __align__(16) unsigned char memory[];
    for (i64 n = blockIdx.x; n < (i64)x.count[0]; n += gridDim.x) serve(p, x, x.jobs[n], (ID_T*)memory);
}

extern "C" __global__ void __launch_bounds__(256)
    published_grid(const __grid_constant__ AppPlan p, const __grid_constant__ Served x) {
    extern __shared__ __align__(16) unsigned char memory[];
    for (i64 n = blockIdx.x; n < (i64)x.count[0]; n += gridDim.x) serve(p, x, x.jobs[n], (ID_T*)memory);
}
