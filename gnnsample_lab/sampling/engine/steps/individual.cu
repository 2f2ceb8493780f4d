// Individual sampling without an index: the transits of a step, walks as one kernel, and NextDoor's fine-grained sample
// parallelism (section 5.1: consecutive threads draw for one pair of sample and transit).
//
// `walk`: for applications that add one vertex per step and sample. A thread takes a sample through many steps and
// keeps its last two vertices in registers; the generator runs while reads are in flight. Bound: two dependent random
// reads per step (the pair indptr[v], indptr[v + 1], then one neighbour) and the other reads of `next`. `sample`: a
// thread serves four neighbouring slots, which share the generator call for their first words. If `next` only says
// which entry of src_edges it takes (a deferred operator), the four reads are in flight at once. Bound: those reads.
//
// TRANSITS: the application defines `step_transits`. ENDLESS: walks end by themselves; the kernel lists those that go
// on. SIZES: the kernel keeps sample sizes. SLOTS: slots per thread, 4, or 1 where a transit has one.
// @operator
// @variants ID_T=int,long WALK=0,1 ENDLESS=0,1 SIZES=0,1 SLOTS=1,4
#include "sampling/engine/context.cuh"

#ifndef TRANSITS
#define TRANSITS 0
#endif
#ifndef ENDLESS
#define ENDLESS 0
#endif
#ifndef SIZES
#define SIZES 0
#endif
#ifndef SLOTS
#define SLOTS 4
#endif
#define MIN_BLOCKS 4  // blocks of `walk` per multiprocessor that the compiler leaves registers for

// Write the transits of this step. Without TRANSITS they are the slots of the step before: `last`, last_width per
// sample. live: set to 1 if any sample has a transit; null: not wanted.
extern "C" __global__ void __launch_bounds__(256)
    transits(const __grid_constant__ AppPlan p, const ID_T* last, i64 last_width, u32* live) {
    const i64 total = p.num_samples * p.num_transits, threads = gridDim.x * (i64)blockDim.x;
    const Divider by_transits = lab_divider(p.num_transits);
    bool any = false;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < total; i += threads) {
        const i64 row = by_transits(i), k = i - row * p.num_transits;
#if TRANSITS
        (void)last, (void)last_width;
        Context c;
        lab_begin_transits(c, p, row, p.step, k);
        const i64 v = lab_checked_vertex(c, lab_step_transits(&c, p.step, k));
#else
        const i64 v = k < last_width ? (i64)last[row * last_width + k] : LAB_NULL;
#endif
        p.transits[i] = (ID_T)v;
        any |= v >= 0;
    }
    if (live && any) *live = 1;
}

// sizes[row] += vertices that this step has added; LANES threads of a warp share a row.
template <int LANES>
__device__ __forceinline__ void add_sizes(const AppPlan& p, i64 width) {
    const i64 rows = gridDim.x * (i64)blockDim.x / LANES;
    const u32 lane = threadIdx.x % LANES;
    for (i64 row = (blockIdx.x * (i64)blockDim.x + threadIdx.x) / LANES; row < p.num_samples; row += rows) {
        u32 added = 0;
        for (i64 slot = lane; slot < width; slot += LANES) added += p.out[row * width + slot] >= 0;
        for (u32 d = LANES / 2; d; d /= 2) added += __shfl_xor_sync(0xFFFFFFFFu, added, d);
        if (lane == 0) p.sizes[row] += added;
    }
}

extern "C" __global__ void __launch_bounds__(256) sizes(const __grid_constant__ AppPlan p, i64 width) {
    if (width >= 16) add_sizes<32>(p, width);
    else add_sizes<1>(p, width);
}

#if WALK
struct Walk {
    const ID_T* last;      // output of the step before this launch; slot 0 of row r: last[r * last_width]
    i64 last_width;
    const ID_T* before;    // output of the step before `last`; 0: none
    i64 before_width;
    i64 steps, out_stride; // row r of the i-th step here: p.out[i * out_stride + r]
    i64 count;             // samples to walk
    const u32* rows;       // ENDLESS: the samples to walk; 0: the first `count`
    u32* next_rows;        // ENDLESS: samples that go on, next[0] of them; next[1]: most steps that a sample took
    u64* next;
};

extern "C" __global__ void __launch_bounds__(256, MIN_BLOCKS)
    walk(const __grid_constant__ AppPlan p, const __grid_constant__ Walk w) {
    const i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x;
    if (i >= w.count) return;
#if ENDLESS
    const i64 row = w.rows ? (i64)w.rows[i] : i;
#else
    const i64 row = i;
#endif
    ID_T last = w.last[row * w.last_width];
    ID_T before = w.before ? w.before[row * w.before_width] : (ID_T)LAB_NULL;
    ID_T* out = p.out + row;
#if SIZES
    u32 size = p.sizes[row];
#endif
    int taken = 0;
#pragma unroll 1
    for (int s = 0; s < (int)w.steps; ++s) {
        const i64 step = p.step + s;
        Context c;
#if TRANSITS
        lab_begin_transits(c, p, row, step, 0);
        c.last = last, c.before = before;
#if SIZES
        c.size = size;
#endif
        const i64 v = lab_checked_vertex(c, lab_step_transits(&c, step, 0));
#else
        const i64 v = last;
#endif
        ID_T next = (ID_T)LAB_NULL;
        if (v >= 0) {
            const i64 begin = p.indptr[v], end = p.indptr[v + 1];
            lab_begin_call(c, p, row, step, 0, 0, 1, 0, lab_first_words(p, row, step, 0, 0, 1).x);
            lab_set_edges(c, v, begin, end - begin);
            c.last = last, c.before = before;
#if SIZES
            c.size = size;
#endif
            next = (ID_T)lab_call_next(c);
            taken = s + 1;
        }
#if ENDLESS
        else break;  // the outputs of a chunk are initialised to -1
#endif
#if SIZES
        size += next >= 0;
#endif
        __stcs(out, next);
        out += w.out_stride;
        before = last, last = next;
    }
#if SIZES
    p.sizes[row] = size;
#endif
#if ENDLESS
    if ((u64)taken > *(volatile u64*)(w.next + 1)) atomicMax(w.next + 1, (u64)taken);
    const u32 here = __activemask(), lane = threadIdx.x & 31, leader = __ffs(here) - 1;
    const u32 alive = __ballot_sync(here, last >= 0);
    u32 at = 0;
    if (lane == leader && alive) at = (u32)atomicAdd(w.next, (u64)__popc(alive));
    at = __shfl_sync(here, at, leader) + __popc(alive & ((1u << lane) - 1));
    if (last >= 0) w.next_rows[at] = (u32)row;
#else
    (void)taken;
#endif
}
#elif !COLLECTIVE

struct __align__(2 * sizeof(ID_T)) Two {
    ID_T x[2];
};
struct __align__(sizeof(ID_T) == 4 ? 16 : 32) Four {
    ID_T x[4];
};

extern "C" __global__ void __launch_bounds__(256) sample(const __grid_constant__ AppPlan p) {
    const i64 groups = SLOTS == 1 ? 1 : (p.size + 3) >> 2, total = p.num_samples * p.num_transits * groups;
    const i64 threads = gridDim.x * (i64)blockDim.x;
    const Divider by_groups = lab_divider(groups), by_transits = lab_divider(p.num_transits);
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < total; i += threads) {
        const i64 pair = SLOTS == 1 ? i : by_groups(i), group = i - pair * groups;
        const i64 row = by_transits(pair), k = pair - row * p.num_transits;
        const i64 v = p.transits[pair];
        const int slots = SLOTS == 1 ? 1 : (int)min((i64)4, p.size - 4 * group);
        ID_T got[4] = {(ID_T)LAB_NULL, (ID_T)LAB_NULL, (ID_T)LAB_NULL, (ID_T)LAB_NULL};
        if (v >= 0) {
            const i64 begin = p.indptr[v], length = p.indptr[v + 1] - begin;
            const uint4 words = lab_first_words(p, row, k, group);
#if DEFERRED
            // All positions come first, so that the reads are in flight together.
            i64 at[SLOTS];
#pragma unroll
            for (int u = 0; u < SLOTS; ++u) {
                at[u] = -1;
                if (u < slots) {
                    Context c;
                    lab_begin_call(c, p, row, k, 4 * group + u, 0, lab_word(words, u));
                    lab_set_edges(c, v, begin, length);
                    at[u] = lab_call_next_index(c);
                }
            }
            const ID_T* edges = lab_edges_at(p, begin);
#pragma unroll
            for (int u = 0; u < SLOTS; ++u)
                if (at[u] >= 0) got[u] = edges[at[u]];
#else
#pragma unroll 1
            for (int u = 0; u < slots; ++u) {
                Context c;
                lab_begin_call(c, p, row, k, 4 * group + u, 0, lab_word(words, u));
                lab_set_edges(c, v, begin, length);
                const ID_T x = (ID_T)lab_call_next(c);
                // Only constant indices, so that `got` stays in registers.
                if (u == 0) got[0] = x;
                else if (u == 1) got[1] = x;
                else if (u == 2) got[2] = x;
                else got[3] = x;
            }
#endif
        }
        ID_T* out = p.out + pair * p.size + 4 * group;
        if (SLOTS == 4 && (p.size & 3) == 0) {
            *(Four*)out = Four{got[0], got[1], got[2], got[3]};
        } else if (SLOTS == 4 && (p.size & 1) == 0) {
            *(Two*)out = Two{got[0], got[1]};
            if (slots == 4) *(Two*)(out + 2) = Two{got[2], got[3]};
        } else {
#pragma unroll
            for (int u = 0; u < SLOTS; ++u)
                if (u < slots) out[u] = got[u];
        }
    }
}
#endif
