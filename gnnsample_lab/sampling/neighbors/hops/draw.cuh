// The pick rules. A rule fills `slots` with positions within the adjacency of one vertex. The set of positions depends
// on (seed, batch, hop, vertex) alone, so every strategy may call a rule with any group of threads.
// CPU twin: sampling/neighbors/cpu.py.
#ifndef LAB_DRAW
#define LAB_DRAW
#include "sampling/neighbors/plan.cuh"
#if LISTS
#include "lists.cuh"
#endif

#define LAB_WEIGHTED (RULE == 3 || RULE == 4)
#if LAB_WEIGHTED
#include "guide.cuh"
#endif

struct Row {
    u64 vertex;
    i64 start;
    int degree;
    int count;
#if LISTS && LAB_WEIGHTED
    const u64* prefix;
#endif
};

// Where a row's prefix sums begin, less its start; and the position that its first edge has in a sample: lists that lie
// apart have no positions in the graph, so samples from them give the place within the list.
#if LISTS
#define LAB_PREFIX(p, row) row.prefix
#define LAB_FIRST_POSITION(row) 0
#else
#define LAB_PREFIX(p, row) p.prefix
#define LAB_FIRST_POSITION(row) row.start
#endif

__device__ __forceinline__ Row lab_row(const Plan& p, u64 v, int fanout) {
    Row row;
    row.vertex = v;
#if LISTS
    const u64* prefix = nullptr;
    int available = 0;
    lab_locate(p, v, row.start, row.degree, prefix, available);
#else
    row.start = __ldg(p.indptr + v);
    row.degree = (int)(__ldg(p.indptr + v + 1) - row.start);
#endif
#if LISTS && LAB_WEIGHTED
    row.prefix = prefix;
    const int choice = available;
#elif LAB_WEIGHTED
    const int choice = __ldg(p.available + v);
#else
    const int choice = row.degree;
#endif
#if RULE == 2 || RULE == 4
    row.count = fanout < 0 ? choice : (choice > 0 ? fanout : 0);
#else
    row.count = fanout < 0 ? choice : min(choice, fanout);
#endif
    return row;
}

// True when nothing is drawn because every (positive-weight) edge is taken.
__device__ __forceinline__ bool lab_takes_all(const Row& row, int fanout) {
#if RULE == 2 || RULE == 4
    return fanout < 0;
#elif RULE == 3
    return fanout < 0 || row.count < fanout || row.count == row.degree;
#else
    return fanout < 0 || row.degree <= fanout;
#endif
}

__device__ __forceinline__ Draws lab_draws(const Plan& p, u64 v, u32 batch_id, int hop) {
#if RULE == 0
    return Draws(v, batch_id, hop, LAB_PURPOSE_FLOYD, p.seed);
#elif RULE == 1
    return Draws(v, batch_id, hop, LAB_PURPOSE_RESERVOIR, p.seed);
#elif RULE == 2
    return Draws(v, batch_id, hop, LAB_PURPOSE_REPLACE, p.seed);
#elif RULE == 5
    return Draws(v, batch_id, hop, LAB_PURPOSE_FISHER_YATES, p.seed);
#else
    return Draws(v, batch_id, hop, LAB_PURPOSE_WEIGHTED, p.seed);
#endif
}

#if LAB_WEIGHTED
// The last position whose prefix is <= target. An edge of weight zero spans no interval, so it is never found.
//
// Where weights do not differ by orders of magnitude, prefix sums grow nearly evenly, and the position that they would
// have if they did misses by about the square root of the length. So a search asks there, then that far on the other
// side of the target, and is left with a few neighbouring entries; every second question of bisection bounds the rest.
__device__ __forceinline__ int lab_search(const u64* prefix, const Row& row, u64 target) {
    const u64* list = prefix + row.start;
    int low = 0, high = row.degree;
    if (high > 16) {
        u64 below = __ldg(list), above = __ldg(list + high);
        // bounded: each round but the last at least halves what is left
        while (high - low > 16) {
            const int length = high - low;
            const float share = (float)(target - below) / (float)(above - below);
            int guess = low + (int)(share * length);
            guess = min(max(guess, low + 1), high - 1);
            u64 there = __ldg(list + guess);
            bool left = there > target;
            if (left) high = guess, above = there;
            else low = guess, below = there;
            const int apart = 4 + (int)(0.5f * sqrtf((float)length));
            guess = left ? max(guess - apart, low) : min(guess + apart, high);
            if (guess > low && guess < high) {
                there = __ldg(list + guess);
                left = there > target;
                if (left) high = guess, above = there;
                else low = guess, below = there;
            }
            if (2 * (high - low) > length) {
                guess = (low + high) >> 1;
                there = __ldg(list + guess);
                if (there > target) high = guess, above = there;
                else low = guess, below = there;
            }
        }
    }
    while (high - low > 1) {
        const int mid = (low + high) >> 1;
        if (__ldg(list + mid) <= target) low = mid;
        else high = mid;
    }
    return low;
}
#endif

#if LAB_WEIGHTED
// What weighted draws from one row need: the list's sums, and how its guide counts buckets.
struct WeightedRow {
    const u64* prefix;
    const u64* list;
    const uint4* guide;  // null: search
    u64 base, total;
    int shift;
};

__device__ __forceinline__ WeightedRow lab_weighted_row(const Plan& p, const Row& row) {
    WeightedRow w;
    w.prefix = LAB_PREFIX(p, row);
    w.list = w.prefix + row.start;
    w.base = __ldg(w.list);
    w.total = __ldg(w.list + row.degree) - w.base;
    w.guide = nullptr;
    w.shift = 0;
#if !LISTS
    if (p.guide && w.total) {
        w.shift = lab_guide_shift(w.total, row.degree);
        if (w.shift <= LAB_MOST_SHIFT) w.guide = p.guide + row.start;
    }
#endif
    return w;
}

// The position of the edge that holds `target` of 0 .. total - 1.
__device__ __forceinline__ int lab_find(const WeightedRow& w, const Row& row, u64 target) {
    if (!w.guide) return lab_search(w.prefix, row, w.base + target);
    return lab_guided(__ldg(w.guide + (target >> w.shift)), w.guide, w.list, row.degree, w.base, w.total, w.shift, target);
}
#endif

#if RULE == 3
// Successive sampling by one thread: draw from the weight that is left, stepping over the intervals of edges already
// taken. `slots` holds these edges in ascending order.
template <class Slots>
__device__ __forceinline__ void lab_successive(const Plan& p, const Row& row, const Draws& d, Slots slots, int step) {
    const WeightedRow w = lab_weighted_row(p, row);
    const u64* prefix = w.list;
    const u64 base = w.base;
    u64 total = w.total;
    for (int i = 0; i < row.count; ++i) {
        u64 target = lab_bounded64(d, i, total);
        for (int taken = 0; taken < i; ++taken) {
            const int at = slots[taken * step];
            const u64 begin = __ldg(prefix + at) - base;
            if (target < begin) break;
            target += __ldg(prefix + at + 1) - base - begin;
        }
        const int position = lab_find(w, row, target);
        int slot = i;
        // bounded: by `slot`, which falls
        while (slot > 0 && slots[(slot - 1) * step] > position) {
            slots[slot * step] = slots[(slot - 1) * step];
            --slot;
        }
        slots[slot * step] = position;
        total -= __ldg(prefix + position + 1) - __ldg(prefix + position);
    }
}
#endif

// ---- groups of threads that share one row ---------------------------------------------------------------------

struct WarpGroup {
    static __device__ __forceinline__ u32 rank() { return threadIdx.x & 31; }
    static __device__ __forceinline__ u32 size() { return 32; }
    static __device__ __forceinline__ void sync() { __syncwarp(); }
    static __device__ __forceinline__ bool any(bool is) { return __any_sync(0xFFFFFFFFu, is); }
};
struct BlockGroup {
    static __device__ __forceinline__ u32 rank() { return threadIdx.x; }
    static __device__ __forceinline__ u32 size() { return blockDim.x; }
    static __device__ __forceinline__ void sync() { __syncthreads(); }
    static __device__ __forceinline__ bool any(bool is) { return __syncthreads_or(is); }
};

#if RULE == 1
// Reservoir, O(degree): candidate j draws one of j + 1 slots and replaces the pick there if the slot is below k.
// atomicMax keeps the highest candidate of a slot, whatever the order of the writes. One generator call serves four
// candidates.
template <class Slots>
__device__ __forceinline__ void lab_reservoir(const Draws& d, int k, int degree, Slots slots, int step, u32 rank,
                                              u32 size) {
    // show: draw with a reservoir
    for (u32 group = (k >> 2) + rank; group * 4 < (u32)degree; group += size) {
        const uint4 r = d.four(group);
#pragma unroll
        for (u32 c = 0; c < 4; ++c) {
            const int j = group * 4 + c;
            if (j >= k && j < degree) {
                const u32 slot = lab_bounded(d, j, lab_word(r, c), j + 1);
                if (slot < (u32)k) atomicMax(&slots[slot * step], j);
            }
        }
    }
    // end: draw with a reservoir
}

// What up to 32 rows draw from: groups of four candidates, those of all rows numbered in one sequence.
struct Candidates {
    u32 begins[33];  // groups of the rows before; the last is the total
    int firsts[32];  // the row's first group, less `begins`
};

// A warp numbers the groups of its lanes' rows: row `lane` has `groups` of them, and `first` is the first.
__device__ __forceinline__ void lab_number_candidates(Candidates& all, int first, int groups) {
    const u32 lane = threadIdx.x & 31;
    u32 inclusive = groups;
#pragma unroll
    for (u32 apart = 1; apart < 32; apart <<= 1) {
        const u32 left = __shfl_up_sync(0xFFFFFFFFu, inclusive, apart);
        if (lane >= apart) inclusive += left;
    }
    all.begins[lane] = inclusive - groups;
    all.firsts[lane] = first - (int)(inclusive - groups);
    if (lane == 31) all.begins[32] = inclusive;
}

// The row that group `g` of all rows belongs to: the last one that begins there or before.
__device__ __forceinline__ u32 lab_row_of_candidates(const Candidates& all, u32 g) {
    u32 r = 0;
#pragma unroll
    for (u32 half = 16; half; half >>= 1) r += all.begins[r + half] <= g ? half : 0;
    return r;
}

// Reservoir for one group of four candidates: `raise(slot, j)` for each candidate j that replaces the pick of a slot.
template <class Raise>
__device__ __forceinline__ void lab_reservoir_group(const Draws& d, int k, int degree, int group, Raise raise) {
    const uint4 r = d.four(group);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
        const int j = group * 4 + c;
        if (j >= k && j < degree) {
            const u32 slot = lab_bounded(d, j, lab_word(r, c), j + 1);
            if (slot < (u32)k) raise(slot, j);
        }
    }
}
#endif

#if RULE == 0
// Floyd without a serial loop. Slot i draws t_i from 0 .. free + i, where free = degree - k. It takes free + i instead,
// which no earlier slot can have drawn, exactly if t_i is taken: if an earlier slot drew the same number, or if
// t_i = free + j for an earlier slot j that took free + j instead of its draw. All of it follows from the draws.

// A warp, k <= 32: a lane per slot.
template <class Slots>
__device__ __forceinline__ void lab_floyd_warp(const Draws& d, int k, int free, Slots slots, int step) {
    const int lane = threadIdx.x & 31;
    // show: draw without replacement
    int t = -1 - lane;  // a lane without a slot has a number that no other lane has
    if (lane < k) t = lab_bounded(d, lane, lab_word(d.four(lane >> 2), lane & 3), free + lane + 1);
    const bool repeats = __match_any_sync(0xFFFFFFFFu, t) & ((1u << lane) - 1);
    const int j = t - free;
    u32 moved = 0, found = __ballot_sync(0xFFFFFFFFu, repeats);
    // bounded: every round but the last finds a further slot; two rounds on average
    while (found != moved) {
        moved = found;
        found = __ballot_sync(0xFFFFFFFFu, repeats || (j >= 0 && j < lane && (moved >> j & 1)));
    }
    if (lane < k) slots[lane * step] = (moved >> lane & 1) ? free + lane : t;
    // end: draw without replacement
}

// Any group, any k: as many slots at a time as the group has threads. The highest bit marks slots that do not keep
// their draw; until the end the other bits hold the draws. Slots change between barriers only.
template <class Group, class Slots>
__device__ __forceinline__ void lab_floyd_wide(const Draws& d, int k, int free, Slots slots, int step) {
    const int rank = Group::rank(), size = Group::size(), moved = (int)0x80000000;
    for (int group = rank; group * 4 < k; group += size) {
        const uint4 r = d.four(group);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int i = group * 4 + c;
            if (i < k) slots[i * step] = lab_bounded(d, i, lab_word(r, c), free + i + 1);
        }
    }
    Group::sync();
    for (int first = 0; first < k; first += size) {
        const int i = first + rank, t = i < k ? slots[i * step] : 0;
        bool repeats = false;
        if (i < k)
            for (int earlier = 0; earlier < i; ++earlier) repeats |= (slots[earlier * step] & ~moved) == t;
        Group::sync();
        if (repeats) slots[i * step] = t | moved;
        Group::sync();
        bool follows = false;
        int at = i, j = i < k && !repeats ? t - free : -1;
        // bounded: by `at`, which falls
        while (j >= 0 && j < at && !follows) {
            at = j;
            follows = slots[at * step] < 0;
            j = slots[at * step] - free;
        }
        Group::sync();
        if (follows) slots[i * step] = t | moved;
        Group::sync();
    }
    for (int i = rank; i < k; i += size)
        if (slots[i * step] < 0) slots[i * step] = free + i;
}
#endif

#if RULE == 5
// Fisher and Yates, as GNNLab draws: slot i draws one of the degree - i places that are left, takes what is there, and
// the last of these places moves there. The permutation is virtual, so no thread ever writes the graph: a slot finds what
// its place holds by going back through the draws before it. Place t holds t, unless an earlier slot e drew t: then it
// holds what was in place degree - e - 1 before that slot.
// As many slots at a time as the group has threads, the last ones first: a slot reads only draws of slots below it, so
// slots that are decided can hold their positions already.
template <class Group, class Slots>
__device__ __forceinline__ void lab_fisher_yates(const Draws& d, int k, int degree, Slots slots, int step) {
    const int rank = Group::rank(), size = Group::size();
    for (int group = rank; group * 4 < k; group += size) {
        const uint4 r = d.four(group);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int i = group * 4 + c;
            if (i < k) slots[i * step] = lab_bounded(d, i, lab_word(r, c), degree - i);
        }
    }
    Group::sync();
    for (int first = (k - 1) / size * size; first >= 0; first -= size) {
        const int i = first + rank;
        int at = i < k ? slots[i * step] : 0;
        if (i < k)
            for (int earlier = i - 1; earlier >= 0; --earlier)
                if (slots[earlier * step] == at) at = degree - earlier - 1;
        Group::sync();
        if (i < k) slots[i * step] = at;
    }
}
#endif

// The whole group fills slots[i * step], i < row.count, and ends with a group barrier. `slots` may lie in shared or
// global memory.
template <class Group, class Slots>
__device__ __forceinline__ void lab_draw_group(const Plan& p, const Row& row, int fanout, u32 batch_id, int hop,
                                               Slots slots, int step) {
    const u32 rank = Group::rank(), size = Group::size();
    if (lab_takes_all(row, fanout)) {
#if LAB_WEIGHTED
        if (row.count != row.degree) {
            if (rank == 0)
                for (int j = 0, slot = 0; j < row.degree; ++j)
                    if (LAB_PREFIX(p, row)[row.start + j + 1] > LAB_PREFIX(p, row)[row.start + j])
                        slots[slot++ * step] = j;
            Group::sync();
            return;
        }
#endif
        for (int j = rank; j < row.count; j += size) slots[j * step] = j;
        Group::sync();
        return;
    }
    if (row.count == 0) return;
    const Draws d = lab_draws(p, row.vertex, batch_id, hop);
    const int k = row.count;
#if RULE == 0
    if (k > 32) lab_floyd_wide<Group>(d, k, row.degree - k, slots, step);
    else if (rank < 32) lab_floyd_warp(d, k, row.degree - k, slots, step);
#elif RULE == 1
    for (int i = rank; i < k; i += size) slots[i * step] = i;
    Group::sync();
    lab_reservoir(d, k, row.degree, slots, step, rank, size);
#elif RULE == 2
    for (int i = rank; i < k; i += size)
        slots[i * step] = lab_bounded(d, i, lab_word(d.four(i >> 2), i & 3), row.degree);
#elif RULE == 3
    (void)k;
    if (rank == 0) lab_successive(p, row, d, slots, step);
#elif RULE == 5
    lab_fisher_yates<Group>(d, k, row.degree, slots, step);
#else
    const WeightedRow w = lab_weighted_row(p, row);
    for (int i = rank; i < k; i += size)
        slots[i * step] = lab_find(w, row, lab_bounded64(d, i, w.total));
#endif
    Group::sync();
}

#ifdef KMAX
// One thread draws one row, at most KMAX picks. For every rule but the reservoir, whose work grows with the degree, and
// Fisher and Yates's, which is drawn by blocks alone.
#if RULE == 5
#error "a thread alone does not draw by Fisher and Yates's rule"
#endif
__device__ __forceinline__ void lab_draw_lane(const Plan& p, const Row& row, int fanout, u32 batch_id, int hop,
                                              int* slots, int step) {
    if (lab_takes_all(row, fanout)) {
        int slot = 0;
        for (int j = 0; j < row.degree && slot < row.count; ++j) {
#if LAB_WEIGHTED
            if (LAB_PREFIX(p, row)[row.start + j + 1] == LAB_PREFIX(p, row)[row.start + j]) continue;
#endif
            slots[slot++ * step] = j;
        }
        return;
    }
    if (row.count == 0) return;
#if RULE != 1
    const Draws d = lab_draws(p, row.vertex, batch_id, hop);
    const int k = row.count;
#endif
#if RULE == 0
    // All picks stay in registers and the loops are unrolled: k (k - 1) / 2 comparisons, no memory access.
    int picked[KMAX];
#pragma unroll
    for (int group = 0; group < KMAX / 4; ++group) {
        if (group * 4 < k) {
            const uint4 r = d.four(group);
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int i = group * 4 + c;
                if (i < k) {
                    const int top = row.degree - k + i;
                    int t = lab_bounded(d, i, lab_word(r, c), top + 1);
                    bool repeats = false;
#pragma unroll
                    for (int earlier = 0; earlier < i; ++earlier) repeats |= picked[earlier] == t;
                    t = repeats ? top : t;
                    picked[i] = t;
                    slots[i * step] = t;
                }
            }
        }
    }
#elif RULE == 2
    for (int group = 0; group * 4 < k; ++group) {
        const uint4 r = d.four(group);
#pragma unroll
        for (int c = 0; c < 4; ++c)
            if (group * 4 + c < k) slots[(group * 4 + c) * step] = lab_bounded(d, group * 4 + c, lab_word(r, c), row.degree);
    }
#elif RULE == 3
    (void)k;
    lab_successive(p, row, d, slots, step);
#elif RULE == 4
    const WeightedRow w = lab_weighted_row(p, row);
    for (int i = 0; i < k; ++i)
        slots[i * step] = lab_find(w, row, lab_bounded64(d, i, w.total));
#endif
}
#endif

#endif
