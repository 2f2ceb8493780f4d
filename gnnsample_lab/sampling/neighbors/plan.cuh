// The argument of every sampling kernel: addresses of the graph, of the mini-batches, and of each hop's rows.
//
// A launch samples one or several mini-batches: blockIdx.y selects the mini-batch. Host code (plan.py) holds the
// same structures as NumPy dtypes; a test compares their sizes.
//
// Macros: ID_T (int or long long, vertex ids), TABLE_KIND (0 direct, 1 rank bitmap, 2 hash), RULE (0 floyd,
// 1 reservoir, 2 with replacement, 3 weighted, 4 weighted with replacement, 5 Fisher-Yates), TRACE (0, 1), LISTS (0, 1,
// 2: see hops/lists.cuh). A source that has no table, draws nothing or leaves no trace does without the macro.
#ifndef LAB_PLAN
#define LAB_PLAN
#include "device/philox.cuh"

typedef long long i64;

#define LAB_MAX_HOPS 15
#define LAB_COUNTERS 256

// Words of a mini-batch's counters. A counter that many threads add to has a 128-byte line of its own.
#define CTR_STATUS 0
#define CTR_SEEDS 1         // distinct seeds
#define CTR_FRESH 2         // [hop] vertices first reached by that hop's picks
#define CTR_BEGUN 30        // blocks of `begin_distinct`, or of `draw_hubs`, that are done; 0 between launches
#define CTR_MET 31          // 1: `begin_distinct` met a seed that it cannot number by its place; 0 between launches
#define CTR_HEAD 32         // queue: next ticket
#define CTR_TAIL 64         // queue: next free slot
#define CTR_OUTSTANDING 65  // queue: tasks that are published or about to be published, and not finished; the high half
                            // of a word with the tail, so that one atomic changes both
#define CTR_ROWS 128        // [hop] queue: rows handed out
#define CTR_ARRAYS 144      // bytes of the mini-batch's arrays before its rows of features, 64 bits
#define CTR_SCAN 160        // tiles handed out by the row scan
#define CTR_RANK 161        // tiles handed out by the bitmap scan
#define CTR_HUBS 162        // [hop] hubs that are listed, 64 bits each (hops/hubs.cuh)
#define CTR_CURSOR 192      // [hop] ragged hops: next free pick, 64 bits each
#define CTR_EDGES 224       // [hop] picks, 64 bits each

#define WANTED_EDGES 1u  // edge_index, and vertex ids as 64-bit integers
#define WANTED_ROWS 2u   // rows of features, behind all other arrays (minibatch/gpu/rows.cu)

#define STATUS_OVERFLOW 1u   // a buffer was too small: rerun with larger ones
#define STATUS_BAD_SEED 2u   // a seed is not a vertex
#define STATUS_STALLED 4u    // a wait saw no global progress
#define STATUS_BROKEN 8u     // a hash lacks a key that was inserted: device memory was overwritten
#define STATUS_MERGE 16u     // seeds are not distinct vertices, as was assumed: rerun with kernels that merge them

struct Batch {
    u64 seeds;      // device address of the given seeds
    u32 num_seeds;  // number of given seeds, duplicates included
    u32 wide_seeds; // 1 when the seeds are 64-bit integers
    u32 batch_id;
    u32 base;       // entries of direct tables below this belong to earlier batches
    u32 tag;        // 1..2047, marks queue slots written by this launch
    u32 wanted;     // WANTED_ bits: what the mini-batch holds besides its usual arrays
    u64 arena;      // device address of the memory for the mini-batch's arrays; 0 when they are written later
    u64 room;       // bytes there
};

struct Table {
    u32* words;   // direct: id or stamp per vertex; bitmap: bits; hash: values
    u64* keys;    // hash: vertex + 1, 0 for empty
    u32* early;   // bitmap: the words before the last hop
    uint4* ranks; // bitmap: all that a look-up needs of a word (lab_find)
    u32* order;   // bitmap: local id of the r-th bit of `early`
    u64 stride;   // words (hash: slots) per mini-batch; for hashes a power of two
    u64 order_stride;
};

struct Hop {
    int fanout;      // picks per row; -1 for all in-neighbours
    int stride;      // pick places per row; 0 for a ragged hop, whose rows reserve places through an atomic cursor
    u64 row_cap;     // rows per mini-batch
    u64 pick_cap;    // picks per mini-batch
    int* counts;     // [row] picks
    i64* starts;     // [row] first edge position of the row's vertex
    i64* offsets;    // [row] where its picks begin (ragged hops only)
    ID_T* vertices;  // [row] expanded vertex (queue strategies only; otherwise rows follow nodes)
    ID_T* neighbors; // [pick]
    int* slots;      // [pick] position within the row's adjacency
    u64* trace;      // [row][4] enqueue, start, end (ns), SM << 32 | block
};

struct Hub {
    u64 begin;  // groups of candidates of the hubs before it in the list
    u32 row;    // of the hop
    u32 left;   // groups that nobody has drawn yet
};

struct Plan {
    const i64* indptr;
    const ID_T* indices;
    const u64* prefix;    // weighted: exclusive prefix sums of integer weights
    const int* available; // weighted: in-edges of positive weight
    const uint4* guide;   // weighted: what takes the place of searches (hops/guide.cuh), or null
    u64 num_nodes;
    u64 seed;
    const Batch* host_batches;  // pinned host memory, read once by the first kernel; null when batches is filled
    Batch* batches;
    u32* counters;        // [mini-batch][LAB_COUNTERS]
    ID_T* nodes;          // [mini-batch][node_cap]
    u64 node_cap;
    u32* inverse;         // [mini-batch][seed_cap] distinct seed of each given seed
    u64 seed_cap;
    u64* seed_hash;       // [2][mini-batch][seed_slots], used when one block cannot merge the seeds
    u64 seed_slots;       // power of two
    u32* seed_sums;       // [mini-batch][blocks] distinct seeds of each block of `begin_number`; null for at most
                          // MANY_SEEDS seeds
    u64* queue;           // [mini-batch][queue_cap]
    u64 queue_cap;
    u64* enqueued;        // [mini-batch][queue_cap] publish times, traced runs only
    u64* scan_state;      // [mini-batch][scan_tiles]
    u64 scan_tiles;
    Hub* hubs;            // [mini-batch][hub_cap] hubs of the hop under way
    u64 hub_cap;
    u64 hub_limit;        // reservoir: hubs have more candidates; 0: none is listed
    int num_hops;
    int expand_new;
    int relabel_last;     // 1 when the last hop's picks are deduplicated too
    int fetch_size;
    u32 delay;            // schedule fuzzing: highest random delay in ns, 0 for none
    u32 paper;            // 1: PGSampler's published completion rule
    u32 self_reuse;       // 1: queue strategies expand a finished task's vertex again (0 only to show lost tasks)
    u32 sorted_last;      // 1: the last hop only marks its fresh vertices in the bitmap, and rank_words lists them by id
    Table table;
    Table reached[LAB_MAX_HOPS]; // queue strategies: the vertices that have a task at that hop
    Hop hops[LAB_MAX_HOPS];
};

__device__ __forceinline__ u32* lab_counters(const Plan& p, u32 b) { return p.counters + (u64)b * LAB_COUNTERS; }
// A kernel that is launched dependently (device/dependent.py) begins while the one before it runs. Nothing that kernels
// before have written may be read, and nothing be written, before this call; it lets the next kernel begin, too.
__device__ __forceinline__ void lab_follow() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ u64 lab_now() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
__device__ __forceinline__ u32 lab_sm() {
    u32 sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}
__device__ __forceinline__ u32 lab_lane() { return threadIdx.x & 31; }
__device__ __forceinline__ u32 lab_read(const u32* address) { return __ldcg(address); }
__device__ __forceinline__ u64 lab_acquire(const u64* address) {
    u64 value;
    asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
}
__device__ __forceinline__ u32 lab_acquire(const u32* address) {
    u32 value;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}
__device__ __forceinline__ void lab_release(u64* address, u64 value) {
    asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}
__device__ __forceinline__ void lab_nap(u32 ns) {
#if __CUDA_ARCH__ >= 700
    __nanosleep(ns);
#endif
}
// Schedule fuzzing: a delay that depends on block, thread group and time, so that rare orders occur in tests.
__device__ __forceinline__ void lab_fuzz(const Plan& p, u32 salt) {
    if (p.delay) {
        const u32 x = (blockIdx.x * 0x9E3779B1u) ^ (salt * 0x85EBCA77u) ^ (u32)lab_now();
        lab_nap((x * 0xC2B2AE3Du >> 12) % p.delay);
    }
}

// ---- vertex tables: which vertices are in the mini-batch, and their local ids ---------------------------------

__device__ __forceinline__ u64 lab_hash(u64 v, u64 slots) {
    return (v * 0x9E3779B97F4A7C15ull >> 20) & (slots - 1);
}

// True for exactly one caller per vertex and mini-batch. Sets `overflow` when a hash is full.
__device__ __forceinline__ bool lab_insert(const Table& t, u32 b, u32 base, u64 v, bool& overflow) {
#if TABLE_KIND == 0
    // A claim writes `base`, and an id is larger than `base`: with atomicMax, a late claim never overwrites an id.
    u32* entry = t.words + (u64)b * t.stride + v;
    if (__ldcg(entry) >= base) return false;
    return atomicMax(entry, base) < base;
#elif TABLE_KIND == 1
    u32* word = t.words + (u64)b * t.stride + (v >> 5);
    const u32 bit = 1u << (v & 31);
    if (__ldcg(word) & bit) return false;
    return !(atomicOr(word, bit) & bit);
#else
    u64* keys = t.keys + (u64)b * t.stride;
    u64 at = lab_hash(v, t.stride);
    for (u32 probe = 0; probe < 4096; ++probe, at = (at + 1) & (t.stride - 1)) {
        const u64 seen = __ldcg(keys + at);
        if (seen == v + 1) return false;
        if (seen == 0) {
            const u64 old = atomicCAS(keys + at, 0ull, v + 1);
            if (old == 0) return true;
            if (old == v + 1) return false;
        }
    }
    overflow = true;
    return false;
#endif
}

// Record the local id of an inserted vertex. A bitmap needs none: its ranks are built afterwards.
__device__ __forceinline__ void lab_set(const Table& t, u32 b, u32 base, u64 v, u32 local) {
#if TABLE_KIND == 0
    t.words[(u64)b * t.stride + v] = base + 1 + local;
#elif TABLE_KIND == 2
    const u64* keys = t.keys + (u64)b * t.stride;
    u64 at = lab_hash(v, t.stride);
    for (u32 probe = 0; probe < 4096; ++probe, at = (at + 1) & (t.stride - 1))
        if (__ldcg(keys + at) == v + 1) {
            t.words[(u64)b * t.stride + at] = local;
            return;
        }
#endif
}

__device__ __forceinline__ u32 lab_find(const Table& t, u32 b, u32 base, u64 v) {
#if TABLE_KIND == 0
    return t.words[(u64)b * t.stride + v] - base - 1;
#elif TABLE_KIND == 1
    // Vertices of the last hop are in order of their ids behind all others; those of earlier hops are in any order.
    const uint4 word = t.ranks[(u64)b * t.stride + (v >> 5)];  // all bits, early ones, local id of the next late one,
    const u32 bit = 1u << (v & 31);                            // early bits in words before
    if (!(word.y & bit)) return word.z + __popc(word.x & ~word.y & (bit - 1));
    return t.order[(u64)b * t.order_stride + word.w + __popc(word.y & (bit - 1))];
#else
    const u64* keys = t.keys + (u64)b * t.stride;
    u64 at = lab_hash(v, t.stride);
    for (u32 probe = 0; probe < 4096; ++probe, at = (at + 1) & (t.stride - 1))
        if (keys[at] == v + 1) return t.words[(u64)b * t.stride + at];
    return 0xFFFFFFFFu;
#endif
}

// ---- levels: which vertices a hop expands ---------------------------------------------------------------------

struct Levels {
    u64 begin, end;  // rows of the hop are nodes[begin .. end)
};

__device__ __forceinline__ Levels lab_levels(const Plan& p, const u32* counters, int hop) {
    // All loads come before the additions: they cost one memory latency together, not one per hop.
    u32 fresh[LAB_MAX_HOPS];
    u64 end = lab_read(counters + CTR_SEEDS), begin = 0;
#pragma unroll
    for (int h = 0; h < LAB_MAX_HOPS; ++h) fresh[h] = h < hop ? lab_read(counters + CTR_FRESH + h) : 0;
#pragma unroll
    for (int h = 0; h < LAB_MAX_HOPS; ++h) {
        if (h < hop) begin = end;
        end += fresh[h];
    }
    if (!p.expand_new) begin = 0;
    return {begin, end};
}

#endif
