// Transit-parallel sampling by ranges of vertices (not the paper's): a block takes a work item, up to x.per_item pairs whose
// transits lie in one range, copies the lists of the whole range, which are neighbours in memory, to shared memory, and
// serves the pairs from there in any order. No sort by vertex, no read at random from global memory.
//
// A thread takes a pair through all its SIZE slots; what they share (list, sample, counter) is found once. Results go
// through shared memory, so that the warp writes the segments of 32 pairs in whole sectors: SIZE ids at out[pair], or with
// ORDERED one after the other, for put_in_order (ranges.cu).
// A range that does not fit, or has few draws for its bytes, is read from global memory.
// Bound: instructions (the generator), then writes of SIZE ids at random: parts of sectors cost a read and a write.
//
// SIZE: slots of a pair. ORDERED: results stay in the order of the pairs here. RANGE_THREADS, RANGE_BLOCKS: of a block, and blocks per multiprocessor.
// @operator
// @variants ID_T=int,long PAIR_T=int,long SIZE=1,10,16,25 ORDERED=0,1
#include "context.cuh"

#ifndef PAIR_T
#define PAIR_T int
#endif
#ifndef SIZE
#define SIZE 10
#endif
#ifndef ORDERED
#define ORDERED 0
#endif
#ifndef RANGE_THREADS
#define RANGE_THREADS 512
#endif
#ifndef RANGE_BLOCKS
#define RANGE_BLOCKS 2
#endif

// Slots go through shared memory in PARTS of up to 16, units of UNIT ids.
#ifndef PART_MOST
#define PART_MOST 16
#endif
#define PARTS ((SIZE + PART_MOST - 1) / PART_MOST)
#define PART (PARTS == 1 ? SIZE : ((SIZE + PARTS - 1) / PARTS + 3) / 4 * 4)
#define UNIT (SIZE % 4 == 0 && sizeof(ID_T) == 4 ? 4 : SIZE % 2 == 0 ? 2 : 1)
#define UNITS ((PART + UNIT - 1) / UNIT)
#define STRIDE (UNITS | 1)     // odd: no bank conflicts between the lanes' units
#define TOGETHER (32 / UNITS)  // pairs whose units a warp writes at a time

struct Placed {
    ID_T v;
    PAIR_T pair;
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
    i64 factor;   // a range is copied where its bytes are at most so many times the draws of the item
    ID_T* ordered;  // [pairs, SIZE]; ORDERED only
};

struct __align__(UNIT * sizeof(ID_T)) Unit {
    ID_T x[UNIT];
};

struct Range {
    i64 v, e;            // first vertex and edge position
    const u32* offsets;  // where lists begin, from e
    const ID_T* lists;
};

// 16 bytes to shared memory, past the registers where the GPU can; finish_copies waits for a thread's own.
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

// Copies `count` ids; the same place within 16 bytes on both sides.
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
};

// Slots part .. part + PART - 1 of a pair. FULL: the list is not empty, which spares every call to ask.
template <bool SHARED, bool FULL>
__device__ __forceinline__ void draw_part(const AppPlan& p, const Pair& pair, int part, Unit* stage) {
    if (FULL) __builtin_assume(pair.length > 0);
#pragma unroll
    for (int g = 0; g < PART; g += 4) {
        if (part + g >= SIZE) break;
        const uint4 words = lab_first_words(p, pair.row, p.step, pair.k, (part + g) >> 2, SIZE);
        ID_T got[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            got[u] = (ID_T)LAB_NULL;
            if (g + u < PART && part + g + u < SIZE) {
                Context c;
                lab_begin_call(c, p, pair.row, p.step, pair.k, part + g + u, SIZE, 0, lab_word(words, u));
                lab_set_edges(c, pair.v, pair.begin, pair.length);
                c.edges = pair.edges;
#if DEFERRED
                const i64 at = lab_call_next_index(c);
                if (at >= 0) got[u] = pair.edges[SHARED ? (u32)at : at];
#else
                got[u] = (ID_T)lab_call_next(c);
#endif
            }
        }
#pragma unroll
        for (int u = 0; u < 4; u += UNIT) {
            if (g + u >= PART) break;
            Unit unit;
#pragma unroll
            for (int w = 0; w < UNIT; ++w) unit.x[w] = got[u + w];
            stage[(g + u) / UNIT] = unit;
        }
    }
}

template <bool SHARED>
__device__ __forceinline__ void serve_item(const AppPlan& p, const Work& x, const Range& range, const Divider& by_transits,
                                           u32 first, u32 last, Unit* stage) {
    const u32 lane = threadIdx.x & 31, writes = lane / UNITS, unit = lane - writes * UNITS;
    Placed next = x.placed[min(first + threadIdx.x, last - 1)];
    for (u32 base = first + (threadIdx.x & ~31u); base < last; base += RANGE_THREADS) {
        const u32 here = min(32u, last - base), limit = lane < TOGETHER * UNITS ? here : 0;
        const Placed mine = next;
        next = x.placed[min(base + lane + RANGE_THREADS, last - 1)];  // on its way while this one is served
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
        }
#pragma unroll 1
        for (int part = 0; part < SIZE; part += PART) {
            if (lane < here) {
                if (DEFERRED && SHARED && pair.length > 0) draw_part<SHARED, true>(p, pair, part, stage + lane * STRIDE);
                else draw_part<SHARED, false>(p, pair, part, stage + lane * STRIDE);
            }
            __syncwarp();
#pragma unroll
            for (u32 t = 0; t < 32; t += TOGETHER) {
                const i64 to = ORDERED ? (i64)base + t + writes : (i64)__shfl_sync(0xFFFFFFFFu, mine.pair, t + writes & 31);
                if (t + writes < (part + unit * UNIT < SIZE ? limit : 0))
                    *(Unit*)((ORDERED ? x.ordered : p.out) + to * SIZE + part + unit * UNIT) =
                        stage[(t + writes) * STRIDE + unit];
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
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) taken = atomicAdd(x.heads + 1, 1u);
        __syncthreads();
        const u32 item = taken;
        if (item >= items) break;
        const u32 r = x.items[item], first = x.begins[r] + (item - x.item_begins[r]) * (u32)x.per_item;
        const u32 last = min(first + (u32)x.per_item, x.begins[r + 1]);
        Range range{x.firsts[r], 0, offsets, nullptr};
        range.e = p.indptr[range.v];
        const i64 vertices = x.firsts[r + 1] - range.v, edges = p.indptr[x.firsts[r + 1]] - range.e;
        const ID_T* const from = p.indices + range.e;
        const i64 begins = (vertices + 4) / 4 * 16, bytes = begins + 16 + edges * (i64)sizeof(ID_T);
        if (bytes <= x.room && bytes <= x.factor * (last - first) * SIZE) {
            ID_T* const lists = (ID_T*)((unsigned char*)offsets + begins + ((u64)from & 15));
            copy_ids(lists, from, (u32)edges);
            for (u32 i = threadIdx.x; i <= vertices; i += RANGE_THREADS) offsets[i] = (u32)(p.indptr[range.v + i] - range.e);
            finish_copies();
            __syncthreads();
            range.lists = lists;
            serve_item<true>(p, x, range, by_transits, first, last, stage);
        } else {
            serve_item<false>(p, x, range, by_transits, first, last, stage);
        }
    }
}
