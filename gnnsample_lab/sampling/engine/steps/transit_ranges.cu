// Transit-parallel sampling by ranges of vertices (not in the paper). A block takes a work item: up to x.per_item pairs
// whose transits lie in one range. It copies the lists of the whole range, which are contiguous in memory, to shared
// memory and serves the pairs from there in any order. There is no sort by vertex and no random read from global
// memory.
//
// A thread serves all SIZE slots of a pair, and finds list, sample and counter once for all of them. Results go through
// shared memory, so that a warp writes the results of 32 pairs in whole sectors: SIZE ids at out[pair].
// Of a range that does not fit shared memory, the first part is held; lists of a range with few draws for its bytes are
// read from global memory.
// Bound: random writes of SIZE ids (a part of a sector costs a read and a write), then instructions (the generator).
//
// SIZE: slots per pair. RANGE_THREADS: threads per block. RANGE_BLOCKS: blocks per multiprocessor.
// @operator
// @variants ID_T=int,long PAIR_T=int,long SIZE=1,10,16,25
#include "sampling/engine/context.cuh"

#ifndef PAIR_T
#define PAIR_T int
#endif
#ifndef SIZE
#define SIZE 10
#endif
#ifndef RANGE_THREADS
#define RANGE_THREADS 512
#endif
#ifndef RANGE_BLOCKS
#define RANGE_BLOCKS 2
#endif

// Slots go through shared memory in PARTS of up to STAGE, units of UNIT ids, and are drawn in groups of GROUP.
#ifndef STAGE
#define STAGE 16
#endif
#define PARTS ((SIZE + STAGE - 1) / STAGE)
#define PART (PARTS == 1 ? SIZE : ((SIZE + PARTS - 1) / PARTS + 3) / 4 * 4)
#define GROUP (PART <= 12 ? PART : 8)
#define UNIT (SIZE % 4 == 0 && sizeof(ID_T) == 4 ? 4 : SIZE % 2 == 0 ? 2 : 1)
#define UNITS ((PART + UNIT - 1) / UNIT)
#define SWIZZLED (UNITS == 2 || UNITS == 4 || UNITS == 8)
#define STRIDE (SWIZZLED ? UNITS : UNITS | 1)
#define TOGETHER (32 / UNITS)  // pairs whose units a warp writes at a time

struct Placed {
    decltype((ID_T)0 + (PAIR_T)0) v, pair;
};

// ranges.py holds the same record.
struct Work {
    const Placed* placed;
    const i64* firsts;
    const u32* begins;
    const u32* item_begins;
    const u32* items;
    u32* heads;
    i64 per_item;
    i64 room;     // bytes of shared memory for a range
    i64 factor;   // a range is copied where its bytes are at most this many times the draws of the item
};

struct __align__(UNIT * sizeof(ID_T) < 16 ? UNIT * sizeof(ID_T) : 16) Unit {
    ID_T x[UNIT];
};

// The place of a unit in the staging memory. An odd stride, or an order of units that differs from row to row, avoids
// bank conflicts both when a warp writes one unit of each row and when it reads whole rows.
__device__ __forceinline__ u32 place_of(u32 row, u32 unit) {
    return row * STRIDE + (SWIZZLED ? unit ^ (row * UNITS / 8 & (UNITS - 1)) : unit);
}

struct Range {
    i64 v, e;            // first vertex and edge position
    i64 held;            // number of edges, from e on, that lie at `lists` in shared memory
    const u32* offsets;  // begin of each vertex's list, relative to e; valid if all edges are held
    const ID_T* lists;
};

// Copy 16 bytes to shared memory, asynchronously where the GPU can; finish_copies waits for the thread's own copies.
__device__ __forceinline__ void copy_16(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
    *(uint4*)to = *(const uint4*)from;
#endif
}
__device__ __forceinline__ void finish_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Copy `count` ids. `to` and `from` must have the same offset from a multiple of 16 bytes.
__device__ __forceinline__ void copy_ids(ID_T* to, const ID_T* from, u32 count) {
    const u32 per = 16 / sizeof(ID_T), head = min(count, (u32)(16 - ((u64)from & 15) & 15) / (u32)sizeof(ID_T));
    const u32 whole = (count - head) / per, tail = head + whole * per;
    for (u32 i = threadIdx.x; i < whole; i += RANGE_THREADS) copy_16(to + head + i * per, from + head + i * per);
    if (threadIdx.x < head) to[threadIdx.x] = from[threadIdx.x];
    if (threadIdx.x < count - tail) to[tail + threadIdx.x] = from[tail + threadIdx.x];
}

struct Pair {
    i64 row, k, v, begin, length;
    const ID_T* edges;
    const ID_T* held;  // the first num_held entries, in shared memory, when `edges` is in global memory
    i64 num_held;
};

// Begin the call of `next` for slot j of a pair.
__device__ __forceinline__ void begin_slot(Context& c, const AppPlan& p, const Pair& pair, i64 length, int j, u32 word) {
    lab_begin_call(c, p, pair.row, p.step, pair.k, j, SIZE, 0, word);
    lab_set_edges(c, pair.v, pair.begin, length);
    c.edges = pair.edges;
}

// Draw slots from .. to - 1 of a pair, one after another; the warp's `stage` begins with slot `part`.
__device__ __forceinline__ void draw_slots(const AppPlan& p, const Pair& pair, int part, int from, int to, Unit* stage) {
#pragma unroll 1
    for (int j = from; j < to; ++j) {
        Context c;
        const uint4 words = lab_first_words(p, pair.row, p.step, pair.k, j >> 2, SIZE);
        begin_slot(c, p, pair, pair.length, j, lab_word(words, j & 3));
        const int slot = j - part;
        stage[place_of(threadIdx.x & 31, slot / UNIT)].x[slot % UNIT] = (ID_T)lab_call_next(c);
    }
}

#if DEFERRED
// Draw up to GROUP slots from `first` on, below `end`, with interleaved instructions: first guess all positions without
// a branch between them, then read all entries. FULL: the list is in shared memory and not empty, so no call has to
// test it.
template <bool FULL>
__device__ __forceinline__ void draw_group(const AppPlan& p, const Pair& pair, int part, int first, int end, Unit* stage) {
    const bool whole = SIZE % GROUP == 0 && PART % GROUP == 0;  // then no slot of the group reaches `end`
    const i64 length = FULL ? (i64)(u32)pair.length : pair.length;
    if (FULL) __builtin_assume(length > 0);
    i64 at[(GROUP + 3) / 4 * 4];
    bool unsure = false;
#pragma unroll
    for (int g = 0; g < GROUP; g += 4) {
        if (!whole && first + g >= end) break;
        const uint4 words = lab_first_words(p, pair.row, p.step, pair.k, (first + g) >> 2, SIZE);
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            at[g + u] = -1;
            if (g + u >= GROUP || (!whole && first + g + u >= end)) continue;
            Context c;
            begin_slot(c, p, pair, length, first + g + u, lab_word(words, u));
            c.guesses = true;
            at[g + u] = lab_call_next_index(c);
            unsure |= c.unsure;
        }
    }
#pragma unroll
    for (int i = 0; i < GROUP; i += UNIT) {
        if (!whole && first + i >= end) break;
        Unit unit;
#pragma unroll
        for (int w = 0; w < UNIT; ++w) {
            const ID_T* const list = !FULL && at[i + w] < pair.num_held ? pair.held : pair.edges;
            unit.x[w] = at[i + w] < 0 ? (ID_T)LAB_NULL : list[at[i + w]];
        }
        stage[place_of(threadIdx.x & 31, (first - part + i) / UNIT)] = unit;
    }
    if (unsure) draw_slots(p, pair, part, first, min(first + GROUP, end), stage);
}
#endif

// Draw slots part .. part + PART - 1 of a pair.
template <bool SHARED>
__device__ __forceinline__ void draw_part(const AppPlan& p, const Pair& pair, int part, Unit* stage) {
    const int end = PARTS == 1 ? SIZE : min(part + PART, SIZE);
#if DEFERRED
    if (SHARED && pair.length > 0) {
#pragma unroll 1
        for (int j = part; j < end; j += GROUP) draw_group<true>(p, pair, part, j, end, stage);
    } else {
#pragma unroll 1
        for (int j = part; j < end; j += GROUP) draw_group<false>(p, pair, part, j, end, stage);
    }
#else
    draw_slots(p, pair, part, part, end, stage);
#endif
}

template <bool SHARED>
__device__ __forceinline__ void serve_item(const AppPlan& p, const Work& x, const Range& range, const Divider& by_transits,
                                           u32 first, u32 last, Unit* stage) {
    const u32 lane = threadIdx.x & 31, writes = lane / UNITS, unit = lane - writes * UNITS;
    Placed next = x.placed[min(first + threadIdx.x, last - 1)];
    for (u32 base = first + (threadIdx.x & ~31u); base < last; base += RANGE_THREADS) {
        const u32 here = min(32u, last - base), limit = lane < TOGETHER * UNITS ? here : 0;
        const Placed mine = next;
        next = x.placed[min(base + lane + RANGE_THREADS, last - 1)];  // this read overlaps with serving `mine`
        Pair pair;
        pair.row = sizeof(PAIR_T) == 4 ? (i64)by_transits.below_31((u32)mine.pair) : by_transits(mine.pair);
        pair.k = mine.pair - pair.row * p.num_transits, pair.v = mine.v;
        if (SHARED) {
            const u32 number = (u32)(pair.v - range.v), offset = range.offsets[number];
            pair.begin = range.e + offset, pair.length = range.offsets[number + 1] - offset;
            pair.edges = range.lists + offset;
        } else {
            pair.begin = p.indptr[pair.v], pair.length = p.indptr[pair.v + 1] - pair.begin;
            pair.edges = lab_edges_at(p, pair.begin);
            pair.held = range.lists + (pair.begin - range.e);
            pair.num_held = range.held - (pair.begin - range.e);
        }
#pragma unroll 1
        for (int part = 0; part < SIZE; part += PART) {
            if (lane < here) draw_part<SHARED>(p, pair, part, stage);
            __syncwarp();
#pragma unroll
            for (u32 t = 0; t < 32; t += TOGETHER) {
                const i64 to = (i64)__shfl_sync(0xFFFFFFFFu, mine.pair, t + writes & 31);
                if (t + writes < (part + unit * UNIT < SIZE ? limit : 0))
                    *(Unit*)(p.out + to * SIZE + part + unit * UNIT) = stage[place_of(t + writes, unit)];
            }
            __syncwarp();
        }
    }
}

extern "C" __global__ void __launch_bounds__(RANGE_THREADS, RANGE_BLOCKS)
    transit_ranges(const __grid_constant__ AppPlan p, const __grid_constant__ Work x) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ u32 taken;
    Unit* const stage = (Unit*)memory + (threadIdx.x >> 5) * 32 * STRIDE;
    u32* const offsets = (u32*)((Unit*)memory + RANGE_THREADS * STRIDE);
    const Divider by_transits = lab_divider(p.num_transits);
    const u32 items = x.heads[0];
    // bounded: every pass takes an item that no other pass takes
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) taken = atomicAdd(x.heads + 1, 1u);
        __syncthreads();
        const u32 item = taken;
        if (item >= items) break;
        const u32 r = x.items[item], first = x.begins[r] + (item - x.item_begins[r]) * (u32)x.per_item;
        const u32 last = min(first + (u32)x.per_item, x.begins[r + 1]);
        Range range{x.firsts[r], 0, 0, offsets, nullptr};
        range.e = p.indptr[range.v];
        const i64 vertices = x.firsts[r + 1] - range.v, edges = p.indptr[x.firsts[r + 1]] - range.e;
        const ID_T* const from = p.indices + range.e;
        const i64 begins = (vertices + 4) / 4 * 16, room = (x.room - begins - 16) / (i64)sizeof(ID_T);
        const i64 held = min(edges, room);
        bool all = false;
        if (held >= 0 && held * (i64)sizeof(ID_T) <= x.factor * (last - first) * SIZE) {
            ID_T* const lists = (ID_T*)((unsigned char*)offsets + begins + ((u64)from & 15));
            copy_ids(lists, from, (u32)held);
            range.held = held, range.lists = lists, all = held == edges;
            if (all)
                for (u32 i = threadIdx.x; i <= vertices; i += RANGE_THREADS)
                    offsets[i] = (u32)(p.indptr[range.v + i] - range.e);
            finish_copies();
            __syncthreads();
        }
        if (all) serve_item<true>(p, x, range, by_transits, first, last, stage);
        else serve_item<false>(p, x, range, by_transits, first, last, stage);
    }
}
