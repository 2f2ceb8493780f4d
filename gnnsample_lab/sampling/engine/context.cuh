// The context of a call of the user's functions on the GPU: the accessors that `next` calls, the call's stream of
// random words, and the record of a fault inside user code.
//
// A kernel fills a Context and calls `lab_next`; link-time optimisation inlines everything, so a Context lives in
// registers. The words of a call are numbered by sample, step, transit index and slot, so they do not depend on the
// calling thread.
//
//     Context c;
//     lab_begin_call(c, p, row, k, j, attempt, word);   // word: lab_word(lab_first_words(p, row, k, j >> 2), j & 3)
//     lab_set_transit(c, v);                            // src_edges = in-neighbours of v  (or lab_set_edges, lab_set_combined)
//     const i64 v = lab_call_next(c);                   // a vertex, or -1: src_edges is read, results are checked
//
// A kernel that holds the list in shared memory sets `c.edges` to the copy of its first entry after lab_set_transit,
// and nothing else. A kernel that serves `deferred` operators itself calls `lab_call_next_index` instead: it returns
// the position in src_edges, which `lab_next` has checked, and the kernel reads the entry.
//
// Kernels take the plan as `const __grid_constant__ AppPlan p`. Without that, the compiler would copy the plan, because
// a Context has a pointer to it.
//
// Macros: ID_T (int, long), and those of the operator, 0 where not given: DEFERRED (lab_next returns positions), COLLECTIVE
// (src_edges and transits of the whole sample), STAGED (part of the edges lies in `staged`), WALK (a thread holds one walk
// and its last two vertices), WEIGHTED (edges have weights; otherwise each has 1), NEXT_LINE (the line of `def next`).
#ifndef LAB_CONTEXT
#define LAB_CONTEXT
#include "device/philox.cuh"

#ifndef DEFERRED
#define DEFERRED 0
#endif
#ifndef COLLECTIVE
#define COLLECTIVE 0
#endif
#ifndef STAGED
#define STAGED 0
#endif
#ifndef WALK
#define WALK 0
#endif
#ifndef WEIGHTED
#define WEIGHTED 0
#endif
#ifndef NEXT_LINE
#define NEXT_LINE 0
#endif
#ifndef LAB_PURPOSE_APP
#define LAB_PURPOSE_APP 7u
#endif

typedef long long i64;

#define LAB_NULL (-1)
#define LAB_TABLES 8
#define LAB_APP_TAG (LAB_PURPOSE_APP << 28)

#define LAB_OUTSIDE_LIST 1
#define LAB_OUTSIDE_GRAPH 2
#define LAB_EMPTY_RANGE 3
#define LAB_ZERO_DIVISOR 4
#define LAB_RAISED 5
#define LAB_NO_VERTEX 6
#define LAB_NO_ROOT 7
#define LAB_OUTSIDE_STEP 8
#define LAB_OUTSIDE_TABLE 9
#define LAB_ENDLESS_LOOP 10
#define LAB_MAX_ROUNDS (1u << 20)

struct AppTable {
    const void* data;  // long long or double
    i64 length;
};

// Every field has 8 bytes; plan.py holds the same record as a NumPy dtype, and a test compares their sizes.
struct AppPlan {
    const i64* indptr;
    const ID_T* indices;
    const u32* weight;               // [E], 0 if no accessor reads single weights
    const u64* prefix;               // [E + 1] sums of the integer weights before each edge; weights: WEIGHTED only
    const u32* max_weight;           // [N]
    ID_T* roots;                     // [S, R], the samples' own copy
    ID_T* transits;                  // [S, t] of this step, -1 = NULL
    ID_T* out;                       // [S, t * m] of this step
    const ID_T* const* history;      // [0]: given roots, [i + 1]: output of step i
    const i64* widths;               // R, then the width of every step
    u32* sizes;                      // [S] vertices of a sample; only where lab_size is used
    u64* status;                     // all ones, or row << 24 | line << 4 | code of the first fault
    u64 seed, first_sample;
    i64 num_nodes, num_samples, num_roots, step, num_transits, size;
    const i64* combined_begin;       // collective: [S + 1]
    const ID_T* combined;
    const u64* combined_prefix;      // [total + S]; those of sample s begin with 0 at combined_begin[s] + s
    i64 staged_begin, staged_end;    // edge positions that lie at `staged`
    const ID_T* staged;
    i64* edges;                      // [S, edge_room, 3] step and ends of what lab_add_edge records
    u32* edge_counts;                // [S], of all edges, also of those beyond edge_room
    i64 edge_room;
    u64 keys[10];                    // round r of the generator: seed words + r times its constants, the first word low
    AppTable tables[LAB_TABLES];
};

struct Context {
    const AppPlan* plan;
    i64 row, step, k, j;        // row: sample without first_sample; step: of this call (a fused walk runs through them)
    i64 transit;                // individual: the vertex whose list src_edges is
    i64 last, before;           // WALK: slot 0 of the last step and of the one before it, -1 where there is none
    const ID_T* edges;          // src_edges[0]
    i64 length;
    const u64* edge_prefix;     // sum of the weights before edge i: edge_prefix[i] - edge_prefix[0]
    const u32* edge_weight;     // 0: differences of edge_prefix
    u32 x, y, z, tag;           // counter of the words after the first, group 0
    u32 drawn;                  // words drawn, without word 0 if the kernel provided it
    u32 first;                  // word 0
    uint4 four;                 // words of group `held` of four, ~0 for none yet
    u32 held;
    u32 fault;                  // line << 4 | code of the first fault, 0 for none
    u32 size;                   // WALK: vertices so far
    u32 rounds;                 // of while loops
    bool guesses;               // draws take one word each; where that may not suffice, the call sets `unsure`
    bool unsure;
};

extern "C" __device__ i64 lab_next(void* ctx, i64 step);
extern "C" __device__ i64 lab_step_transits(void* ctx, i64 step, i64 transit_idx);

// ---------------------------------------------------------------------------------------------------------- for kernels

// Divides by a number by which a thread divides often; dividends below 2^31 need a multiplication only.
struct Divider {
    i64 by;
    u32 multiplier, shift;
    __device__ __forceinline__ i64 operator()(i64 a) const {
        return (u64)a >> 31 ? a / by : (i64)below_31((u32)a);
    }
    __device__ __forceinline__ u32 below_31(u32 a) const { return (u32)((u64)a * multiplier >> shift); }
};

// `by` is positive; for 2^31 and more the quotient of a dividend below 2^31 is 0.
__device__ __forceinline__ Divider lab_divider(i64 by) {
    if ((u64)by >> 31) return Divider{by, 0, 32};
    const u32 bits = by < 2 ? 0 : 32 - __clz((int)by - 1);
    return Divider{by, (u32)(((1ull << (31 + bits)) + (u64)by - 1) / (u64)by), 31 + bits};
}

// lab_philox with the seed of the run; the keys of the rounds are read from constant memory, where kernel arguments
// lie.
__device__ __forceinline__ uint4 lab_app_philox(const AppPlan& p, uint4 c) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u32 hi0 = __umulhi(0xD2511F53u, c.x), lo0 = 0xD2511F53u * c.x;
        const u32 hi1 = __umulhi(0xCD9E8D57u, c.z), lo1 = 0xCD9E8D57u * c.z;
        c = make_uint4(hi1 ^ c.y ^ (u32)p.keys[round], lo1, hi0 ^ c.w ^ (u32)(p.keys[round] >> 32), lo0);
    }
    return c;
}

__device__ __forceinline__ u32 lab_app_z(u64 sample, i64 step) { return (u32)step | (u32)(sample >> 32) << 24; }

// Word 0 of slots 4 * group .. 4 * group + 3 of transit k, for redraw `attempt`.
__device__ __forceinline__ uint4 lab_first_words(const AppPlan& p, i64 row, i64 step, i64 k, i64 group, i64 size,
                                                 u32 attempt = 0) {
    const u64 sample = p.first_sample + (u64)row;
    const u32 y = (u32)k * (u32)((size + 3) >> 2) + (u32)group;
    return lab_app_philox(p, make_uint4((u32)sample, y, lab_app_z(sample, step), LAB_APP_TAG | attempt << 22));
}

// The call of `next` for slot j of transit index k of the sample in `row`; src_edges is empty until it is set.
__device__ __forceinline__ void lab_begin_call(Context& c, const AppPlan& p, i64 row, i64 step, i64 k, i64 j, i64 size,
                                               u32 attempt, u32 word) {
    const u64 sample = p.first_sample + (u64)row;
    c.plan = &p;
    c.row = row, c.step = step, c.k = k, c.j = j;
    c.transit = c.last = c.before = LAB_NULL;
    c.edges = nullptr, c.length = 0, c.edge_prefix = nullptr, c.edge_weight = nullptr;
    c.x = (u32)sample, c.y = (u32)k * (u32)size + (u32)j, c.z = lab_app_z(sample, step);
    c.tag = (LAB_APP_TAG | attempt << 22) + 1;
    c.drawn = ~0u, c.first = word;
    c.four = make_uint4(0, 0, 0, 0), c.held = ~0u;
    c.fault = 0, c.size = 0, c.rounds = 0;
    c.guesses = c.unsure = false;
}

// As above, for the current step of the plan.
__device__ __forceinline__ void lab_begin_call(Context& c, const AppPlan& p, i64 row, i64 k, i64 j, u32 attempt,
                                               u32 word) {
    lab_begin_call(c, p, row, p.step, k, j, p.size, attempt, word);
}
__device__ __forceinline__ uint4 lab_first_words(const AppPlan& p, i64 row, i64 k, i64 group, u32 attempt = 0) {
    return lab_first_words(p, row, p.step, k, group, p.size, attempt);
}

// The call of `step_transits` for transit index k: a stream of its own.
__device__ __forceinline__ void lab_begin_transits(Context& c, const AppPlan& p, i64 row, i64 step, i64 k) {
    lab_begin_call(c, p, row, step, k, 0, 0, 0, 0);
    c.y = 1u << 31 | (u32)k;
    c.tag = LAB_APP_TAG;
    c.drawn = 0;
}

// The address of the list that begins at edge position `begin`.
__device__ __forceinline__ const ID_T* lab_edges_at(const AppPlan& p, i64 begin) {
#if STAGED
    if (begin >= p.staged_begin && begin < p.staged_end) return p.staged + (begin - p.staged_begin);
#endif
    return p.indices + begin;
}

// src_edges = in-neighbours of v, whose list begins at edge position `begin`.
__device__ __forceinline__ void lab_set_edges(Context& c, i64 v, i64 begin, i64 length) {
    const AppPlan& p = *c.plan;
    c.transit = v;
    c.edges = lab_edges_at(p, begin);
    c.length = length;
    c.edge_prefix = p.prefix + begin;
    c.edge_weight = p.weight ? p.weight + begin : nullptr;
}

__device__ __forceinline__ void lab_set_transit(Context& c, i64 v) {
    const i64 begin = c.plan->indptr[v];
    lab_set_edges(c, v, begin, c.plan->indptr[v + 1] - begin);
}

// src_edges = the sample's combined neighbourhood, empty where none was built.
__device__ __forceinline__ void lab_set_combined(Context& c) {
    const AppPlan& p = *c.plan;
    if (p.combined_begin == nullptr) return;
    const i64 begin = p.combined_begin[c.row];
    c.length = p.combined_begin[c.row + 1] - begin;
    c.edges = p.combined + begin;
    c.edge_prefix = p.combined_prefix + begin + c.row;
}

__device__ __forceinline__ void lab_record(const AppPlan& p, i64 row, u32 fault) {
    atomicMin(p.status, (u64)row << 24 | fault);
}

__device__ __forceinline__ void lab_set_fault(Context& c, int line, int code) {
    if (c.fault == 0) c.fault = (u32)(line & 0xFFFFF) << 4 | (u32)code;
}

// Check the vertex that a call returned; after a fault, record it and return -1.
__device__ __forceinline__ i64 lab_checked_vertex(Context& c, i64 v) {
    if ((u64)(v + 1) > (u64)c.plan->num_nodes) lab_set_fault(c, NEXT_LINE, LAB_NO_VERTEX);
    if (c.fault) lab_record(*c.plan, c.row, c.fault);
    return c.fault ? LAB_NULL : v;
}

#if DEFERRED
// Position in src_edges, or -1.
__device__ __forceinline__ i64 lab_call_next_index(Context& c) {
    const i64 i = lab_next(&c, c.step);
    if (c.fault && !c.unsure) lab_record(*c.plan, c.row, c.fault);
    return c.fault ? -1 : i;
}
__device__ __forceinline__ i64 lab_call_next(Context& c) {
    const i64 i = lab_call_next_index(c);
    return i < 0 ? LAB_NULL : (i64)c.edges[i];
}
#else
__device__ __forceinline__ i64 lab_call_next(Context& c) { return lab_checked_vertex(c, lab_next(&c, c.step)); }
#endif

// ------------------------------------------------------------------------------------------------------------ the stream

__device__ __forceinline__ u32 lab_draw(Context& c) {
    const u32 n = c.drawn++;
    if (n == ~0u) return c.first;
    if (n >> 2 != c.held) {
        c.held = n >> 2;
        c.four = lab_app_philox(*c.plan, make_uint4(c.x, c.y, c.z, c.tag + c.held));
    }
    return lab_word(c.four, n & 3);
}

// A draw below n for which one word may not do, apart from the code of the common case: the words from number `drawn` on
// (`first` is number ~0). Returns the draw and the number of the next word.
__device__ __noinline__ ulonglong2 lab_below_slowly(const AppPlan* p, uint4 counter, u32 first, u32 drawn, u64 n) {
    u64 before = 0, drew = 0;
    const u32 bound = (u32)n, remainder = n >> 32 ? 0 : (0u - bound) % bound;
#pragma unroll 1
    for (int words = 1; words <= 64; ++words) {  // the last round always ends below
        u32 word = first;
        if (drawn != ~0u)
            word = lab_word(lab_app_philox(*p, make_uint4(counter.x, counter.y, counter.z, counter.w + (drawn >> 2))),
                            drawn & 3);
        ++drawn;
        if (n >> 32) {
            drew = __umul64hi((u64)word << 32 | before, n);
            before = word;
            if (words == 2) break;
        } else {
            const u64 m = (u64)word * bound;
            drew = m >> 32;
            if ((u32)m >= remainder || words == 64) break;
        }
    }
    return make_ulonglong2(drew, drawn);
}

#define LAB_CONTEXT_OF(ctx) Context& c = *(Context*)(ctx)

extern "C" __device__ i64 lab_bits(void* ctx) {
    LAB_CONTEXT_OF(ctx);
    return (i64)lab_draw(c);
}

extern "C" __device__ i64 lab_below(void* ctx, i64 n, int line) {
    LAB_CONTEXT_OF(ctx);
    if (n <= 0) {
        lab_set_fault(c, line, LAB_EMPTY_RANGE);
        return 0;
    }
    const u32 bound = (u32)n;
    const u64 m = (u64)lab_draw(c) * bound;
    i64 drew = (i64)(m >> 32);
    const bool rare = n >> 32 || (u32)m < bound;
    if (c.guesses) {
        c.unsure |= rare;
    } else if (rare) {
        const ulonglong2 found = lab_below_slowly(c.plan, make_uint4(c.x, c.y, c.z, c.tag), c.first, c.drawn - 1, (u64)n);
        drew = (i64)found.x, c.drawn = (u32)found.y;
    }
    __builtin_assume(drew >= 0 && drew < n);
    return drew;
}

extern "C" __device__ double lab_uniform(void* ctx) {
    LAB_CONTEXT_OF(ctx);
    return (double)lab_draw(c) * (1.0 / 4294967296.0);
}

extern "C" __device__ i64 lab_chance(void* ctx, double p) {
    LAB_CONTEXT_OF(ctx);
    return (double)lab_draw(c) < floor(p * 4294967296.0);
}

#include "accessors.cuh"

#endif
