// Transit-parallel sampling (NextDoor, sections 5.2, 6.1 and 7): `next` for pairs that the scheduling index (index.cu) has
// grouped by transit. All kernels loop over counts in device memory, and draw the same vertices.
//
//   transit_vanilla   NextDoor's TP: the grouped pairs in order; a block whose pairs all have one transit may copy its
//   list
//                     to shared memory.
//   transit_subwarp   class 0 (table 2): LANES lanes per transit. For a deferred operator the lanes keep the list in
//                     registers, HELD entries per lane, and read it by shuffles.
//   transit_block     class 1: a block per transit, with the list in shared memory.
//   transit_grid      class 2: blocks take work items of x.pairs_per_item pairs, and work as in transit_block.
//   transit_frontier  Gunrock's advance: a thread per edge of the frontier goes through all samples of its transit and keeps
//                     those that drew its edge. An operator that is not deferred does not say which edge it drew: for
//                     it, the thread of edge 0 makes all calls.
//   transit_message   Tigr: a thread per distinct transit goes through its samples one after another.
//
// A thread serves SLOTS (4, or m if that is less) neighbouring slots of a pair with one call of the generator; for
// deferred operators SLOTS reads are in flight. A list is copied to registers or shared memory only if it is at most
// x.factor times as long as the number of draws from it; otherwise cached reads of the list cost less than the copy.
// Bound: random writes of m ids, m * 4 bytes in sectors of 32, and one gather of the pairs and of the lists; for
// transit_frontier and transit_message, the samples of the transit that has most of them.
// @operator
// @variants ID_T=int,long PAIR_T=int,long SLOTS=1,4 LANES=8,32 HELD=1,2
#include "sampling/engine/steps/list.cuh"

#ifndef PAIR_T
#define PAIR_T int
#endif
#ifndef SLOTS
#define SLOTS 4
#endif
#ifndef LANES
#define LANES 8
#endif
#ifndef HELD
#define HELD 2
#endif

// transit.py holds the same record.
struct Index {
    const PAIR_T* pairs;      // indices into p.transits, grouped by transit
    const ID_T* transits;     // distinct, [D]
    const i64* begins;        // [D + 1]
    const i64* totals;        // D, members of the three classes, work items
    const ID_T* lists;        // [3][capacity] numbers of the distinct transits of each class
    i64 capacity;
    const u32* item_begins;   // [members of class 2 + 1]
    const u32* items;         // member that work item i belongs to
    i64 pairs_per_item;
    i64 factor;               // a list is copied where length <= factor * draws
    i64 cached;               // entries of dynamic shared memory
    const i64* edge_ends;     // frontier: inclusive sums of list lengths (at least 1 each) over distinct transits
};

__device__ __forceinline__ i64 quotient(i64 a, i64 b) {
    return b == 1 ? a : (u64)(a | b) >> 32 ? a / b : (i64)((u32)a / (u32)b);
}

__device__ __forceinline__ i64 groups_of(const AppPlan& p) { return SLOTS < 4 ? 1 : (p.size + 3) >> 2; }

__device__ __forceinline__ int slots_of(const AppPlan& p, i64 group) {
    return SLOTS < 4 ? SLOTS : (int)min((i64)4, p.size - 4 * group);
}

__device__ __forceinline__ void begin_slot(Context& c, const AppPlan& p, i64 row, i64 k, i64 j, u32 word, const List& l) {
    lab_begin_call(c, p, row, k, j, 0, word);
    lab_set_edges(c, l.v, l.begin, l.length);
    c.edges = l.edges;
}

#if DEFERRED
// Draw the positions in the list for a thread's slots; -1 for none.
__device__ __forceinline__ void positions(const AppPlan& p, i64 pair, i64 group, const List& l, i64 at[SLOTS]) {
    const i64 row = quotient(pair, p.num_transits), k = pair - row * p.num_transits;
    const uint4 words = lab_first_words(p, row, k, group);
    const int slots = slots_of(p, group);
#pragma unroll
    for (int u = 0; u < SLOTS; ++u) {
        at[u] = -1;
        if (u < slots) {
            Context c;
            begin_slot(c, p, row, k, 4 * group + u, lab_word(words, u), l);
            at[u] = lab_call_next_index(c);
        }
    }
}

struct __align__(2 * sizeof(ID_T)) Two {
    ID_T x[2];
};
struct __align__(16) Four {
    ID_T x[4];
};

__device__ __forceinline__ void put(const AppPlan& p, i64 pair, i64 group, const ID_T got[SLOTS]) {
    ID_T* out = p.out + pair * p.size + 4 * group;
    const int slots = slots_of(p, group);
#if SLOTS == 4
    if ((p.size & 3) == 0) {
        *(Four*)out = Four{got[0], got[1], got[2], got[3]};
        return;
    }
    if ((p.size & 1) == 0) {
        *(Two*)out = Two{got[0], got[1]};
        if (slots == 4) *(Two*)(out + 2) = Two{got[2], got[3]};
        return;
    }
#endif
#pragma unroll
    for (int u = 0; u < SLOTS; ++u)
        if (u < slots) out[u] = got[u];
}
#endif

// Serve the slots of group `group` (four neighbouring slots) of a pair.
__device__ __forceinline__ void serve(const AppPlan& p, i64 pair, i64 group, const List& l) {
#if DEFERRED
    i64 at[SLOTS];
    ID_T got[SLOTS];
    positions(p, pair, group, l, at);
#pragma unroll
    for (int u = 0; u < SLOTS; ++u) got[u] = at[u] >= 0 ? l.edges[at[u]] : (ID_T)LAB_NULL;
    put(p, pair, group, got);
#else
    const i64 row = quotient(pair, p.num_transits), k = pair - row * p.num_transits;
    const uint4 words = lab_first_words(p, row, k, group);
    ID_T* out = p.out + pair * p.size + 4 * group;
    const int slots = slots_of(p, group);
#pragma unroll 1
    for (int u = 0; u < slots; ++u) {
        Context c;
        begin_slot(c, p, row, k, 4 * group + u, lab_word(words, u), l);
        out[u] = (ID_T)lab_call_next(c);
    }
#endif
}

// Whether to copy a list from which the block draws this many times.
__device__ __forceinline__ bool copies(const Index& x, const List& l, i64 draws) {
    return l.length > 0 && l.length <= x.cached && l.length <= x.factor * draws;
}

// The block copies the list to shared memory, with barriers before and after.
// show: gather a transit's list
__device__ __forceinline__ void copy_list(List& l, ID_T* shared) {
    __syncthreads();
    for (i64 i = threadIdx.x; i < l.length; i += blockDim.x) shared[i] = l.edges[i];
    __syncthreads();
    l.edges = shared;
}

// A block serves the pairs first .. last - 1 of the index, which all have one transit.
__device__ __forceinline__ void serve_pairs(const AppPlan& p, const Index& x, i64 v, i64 first, i64 last, ID_T* shared) {
    const i64 groups = groups_of(p), work = (last - first) * groups;
    List l = list_of(p, v);
    if (copies(x, l, (last - first) * p.size)) copy_list(l, shared);
    for (i64 i = threadIdx.x; i < work; i += blockDim.x) {
        const i64 at = quotient(i, groups);
        serve(p, (i64)x.pairs[first + at], i - at * groups, l);
    }
}
// end: gather a transit's list

extern "C" __global__ void __launch_bounds__(256)
    transit_vanilla(const __grid_constant__ AppPlan p, const __grid_constant__ Index x) {
    extern __shared__ __align__(16) unsigned char memory[];
    const i64 groups = groups_of(p), total = x.begins[x.totals[0]] * groups;
    for (i64 base = (i64)blockIdx.x * blockDim.x; base < total; base += (i64)gridDim.x * blockDim.x) {
        const i64 end = min(base + (i64)blockDim.x, total);
        const i64 first = quotient(base, groups), last = quotient(end - 1, groups);
        const i64 v = p.transits[x.pairs[first]];
        const bool one = v == (i64)p.transits[x.pairs[last]];
        List l = list_of(p, v);
        const bool copied = one && copies(x, l, (last + 1 - first) * p.size);
        if (copied) copy_list(l, (ID_T*)memory);
        const i64 i = base + threadIdx.x;
        if (i < end) {
            const i64 at = quotient(i, groups), pair = x.pairs[at];
            if (!one) l = list_of(p, p.transits[pair]);
            serve(p, pair, i - at * groups, l);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    transit_subwarp(const __grid_constant__ AppPlan p, const __grid_constant__ Index x) {
    const i64 groups = groups_of(p), members = x.totals[1], teams = (i64)gridDim.x * (blockDim.x / LANES);
    const u32 lane = threadIdx.x & (LANES - 1);
    for (i64 n = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / LANES; n < members; n += teams) {
        const i64 number = x.lists[n], first = x.begins[number], count = x.begins[number + 1] - first;
        const i64 work = count * groups;
        const List l = list_of(p, x.transits[number]);
#if DEFERRED
        if (l.length <= LANES * HELD && l.length <= x.factor * count * p.size) {
            const u32 team = (u32)(((1ull << LANES) - 1) << (threadIdx.x & 31 & ~(LANES - 1)));
            ID_T held[HELD];
#pragma unroll
            for (int h = 0; h < HELD; ++h) {
                const i64 i = h * LANES + lane;
                held[h] = i < l.length ? l.edges[i] : (ID_T)LAB_NULL;
            }
            for (i64 base = 0; base < work; base += LANES) {
                const i64 i = base + lane, at_pair = quotient(i, groups), group = i - at_pair * groups;
                i64 pair = 0, at[SLOTS];
                ID_T got[SLOTS];
#pragma unroll
                for (int u = 0; u < SLOTS; ++u) at[u] = -1;
                if (i < work) {
                    pair = x.pairs[first + at_pair];
                    positions(p, pair, group, l, at);
                }
                __syncwarp(team);
#pragma unroll
                for (int u = 0; u < SLOTS; ++u) {
                    got[u] = (ID_T)LAB_NULL;
#pragma unroll
                    for (int h = 0; h < HELD; ++h) {
                        const ID_T entry = __shfl_sync(team, held[h], (int)at[u] & (LANES - 1), LANES);
                        if (at[u] >= h * LANES && at[u] < (h + 1) * LANES) got[u] = entry;
                    }
                }
                if (i < work) put(p, pair, group, got);
            }
            continue;
        }
#endif
        for (i64 i = lane; i < work; i += LANES) {
            const i64 at = quotient(i, groups);
            serve(p, (i64)x.pairs[first + at], i - at * groups, l);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    transit_block(const __grid_constant__ AppPlan p, const __grid_constant__ Index x) {
    extern __shared__ __align__(16) unsigned char memory[];
    for (i64 n = blockIdx.x; n < x.totals[2]; n += gridDim.x) {
        const i64 number = x.lists[x.capacity + n];
        serve_pairs(p, x, x.transits[number], x.begins[number], x.begins[number + 1], (ID_T*)memory);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    transit_grid(const __grid_constant__ AppPlan p, const __grid_constant__ Index x) {
    extern __shared__ __align__(16) unsigned char memory[];
    for (i64 i = blockIdx.x; i < x.totals[4]; i += gridDim.x) {
        const i64 n = x.items[i], number = x.lists[2 * x.capacity + n];
        const i64 first = x.begins[number] + (i - x.item_begins[n]) * x.pairs_per_item;
        const i64 last = min(first + x.pairs_per_item, x.begins[number + 1]);
        serve_pairs(p, x, x.transits[number], first, last, (ID_T*)memory);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    transit_frontier(const __grid_constant__ AppPlan p, const __grid_constant__ Index x) {
    const i64 distinct = x.totals[0], total = distinct ? x.edge_ends[distinct - 1] : 0, groups = groups_of(p);
    for (i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x; e < total; e += (i64)gridDim.x * blockDim.x) {
        i64 low = 0, high = distinct - 1;
        while (low < high) {
            const i64 middle = (low + high) >> 1;
            if (x.edge_ends[middle] <= e) low = middle + 1;
            else high = middle;
        }
        const i64 mine = e - (low ? x.edge_ends[low - 1] : 0);
        const List l = list_of(p, x.transits[low]);
        for (i64 n = x.begins[low]; n < x.begins[low + 1]; ++n) {
            const i64 pair = x.pairs[n];
#if DEFERRED
            const ID_T entry = l.length ? l.edges[mine] : (ID_T)LAB_NULL;
            for (i64 group = 0; group < groups; ++group) {
                i64 at[SLOTS];
                positions(p, pair, group, l, at);
                const int slots = slots_of(p, group);
                ID_T* out = p.out + pair * p.size + 4 * group;
#pragma unroll
                for (int u = 0; u < SLOTS; ++u) {
                    if (u < slots && at[u] == mine) out[u] = entry;
                    if (u < slots && at[u] < 0 && mine == 0) out[u] = (ID_T)LAB_NULL;
                }
            }
#else
            if (mine == 0)
                for (i64 group = 0; group < groups; ++group) serve(p, pair, group, l);
#endif
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    transit_message(const __grid_constant__ AppPlan p, const __grid_constant__ Index x) {
    const i64 groups = groups_of(p);
    for (i64 d = (i64)blockIdx.x * blockDim.x + threadIdx.x; d < x.totals[0]; d += (i64)gridDim.x * blockDim.x) {
        const List l = list_of(p, x.transits[d]);
        for (i64 n = x.begins[d]; n < x.begins[d + 1]; ++n)
            for (i64 group = 0; group < groups; ++group) serve(p, (i64)x.pairs[n], group, l);
    }
}
