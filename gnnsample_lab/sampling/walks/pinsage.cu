// PinSAGE neighbourhoods: every vertex starts a few random walks; the vertices visited most become its neighbours.
//
// One launch serves several mini-batches (blockIdx.y). A row is one vertex of the frontier; LANES threads share it, and
// each takes one walk at a time. Visits lie in shared memory. Every thread counts and ranks its own share of the visits
// by comparing each with all others: V visits cost V * V / LANES reads per thread, which take little time beside the
// walks' dependent reads for V = 12.
// Bound: num_walks * walk_length * 2 random reads per row, walk_length * 2 of them one after the other.
// Picks enter the batch's vertex table at once, so that the next hop's frontier is complete when the kernel ends and
// the host waits for no hop. Local ids are read by `emit`, a later launch, when all of them are written.
//
// Arrays of a batch b: nodes[b * node_cap ..], keys and locals [b * slots ..], totals[b * 40 ..] (0: vertices so far,
// 1 + h: vertices before hop h, 17 + h: picks of hop h), counts[b * row_stride ..], picks and votes K times that.
// `direct`: a slot for every vertex of the graph, no probing. 64-bit offsets throughout.
// @variants ID_T=int,long LANES=4,32
#include "device/philox.cuh"
typedef long long i64;
#define TOTALS 40
#define BROKEN (TOTALS - 1)  // not 0 when a table was full: an error, because it has slots for twice the vertices

struct Walks {
    const i64* indptr;
    const ID_T* indices;
    ID_T* nodes;
    u64* keys;
    u32* locals;
    u64* totals;
    int* counts;
    ID_T* picks;
    int* votes;
    u64 node_cap, slots, row_stride, seed;
    u32 direct, keep, num_walks, walk_length, restart, ends;  // ends: a walk ends where it would restart
};

__device__ __forceinline__ u64 first_slot(const Walks& a, u64 v) {
    return a.direct ? v : (v * 0x9E3779B97F4A7C15ull >> 20) & (a.slots - 1);
}

// Insert `v` into the table of the batch: its slot if this call inserted it, else all ones.
__device__ __forceinline__ u64 claim(const Walks& a, u64* keys, u64* totals, u64 v) {
    u64 at = first_slot(a, v);
    for (u64 probe = 0; probe < a.slots; ++probe, at = (at + 1) & (a.slots - 1)) {
        u64 old = *(volatile u64*)(keys + at);
        if (old == 0) old = atomicCAS(keys + at, 0ull, v + 1);
        if (old == 0) return at;
        if (old == v + 1) return ~0ull;
    }
    totals[BROKEN] = 1;
    return ~0ull;
}

// Enter the distinct seeds of all batches, which `seeds` concatenates: batch b has seeds[begins[b] .. begins[b + 1]).
extern "C" __global__ void begin(Walks a, const i64* seeds, const i64* begins) {
    const u64 b = blockIdx.y, n = begins[b + 1] - begins[b];
    u64* totals = a.totals + b * TOTALS;
    if (blockIdx.x == 0 && threadIdx.x == 0) totals[0] = totals[1] = n;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (u64)blockDim.x) {
        const u64 v = seeds[begins[b] + i];
        a.nodes[b * a.node_cap + i] = (ID_T)v;
        const u64 slot = claim(a, a.keys + b * a.slots, totals, v);
        if (slot != ~0ull) a.locals[b * a.slots + slot] = (u32)i;
    }
}

// Record the number of vertices reached so far, which is the number of rows of the next hop.
extern "C" __global__ void close_level(Walks a, int hop) {
    u64* totals = a.totals + (u64)blockIdx.x * TOTALS;
    if (threadIdx.x == 0) totals[2 + hop] = totals[0];
}

// Dynamic shared memory: per row in flight, ID_T[V] visits, then for all rows int[V] counts, V = walks * steps.
extern "C" __global__ void walk(Walks a, int hop, u32 first_batch_id, u64 first_row) {
    extern __shared__ __align__(8) unsigned char shared[];
    const u32 V = a.num_walks * a.walk_length, lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const u32 groups = blockDim.x / LANES, batch = blockIdx.y;
    const u32 mask = LANES == 32 ? 0xFFFFFFFFu : ((1u << (LANES & 31)) - 1) << ((threadIdx.x & 31) / LANES * LANES);
    ID_T* visited = (ID_T*)shared + group * V;
    int* tally = (int*)((ID_T*)shared + groups * V) + group * V;
    u64* totals = a.totals + (u64)batch * TOTALS;
    u64* keys = a.keys + (u64)batch * a.slots;
    u32* locals = a.locals + (u64)batch * a.slots;
    ID_T* nodes = a.nodes + (u64)batch * a.node_cap;
    const u64 rows = totals[1 + hop], out = (u64)batch * a.row_stride + first_row;
    u64 picked = 0;
    for (u64 row = blockIdx.x * (u64)groups + group; row < rows; row += gridDim.x * (u64)groups) {
        const u64 v = nodes[row];
        const Draws steps(v, first_batch_id + batch, hop, LAB_PURPOSE_WALK, a.seed);
        const Draws restarts(v, first_batch_id + batch, hop, LAB_PURPOSE_RESTART, a.seed);
        for (u32 w = lane; w < a.num_walks; w += LANES) {
            u64 at = v;
            u32 group_held = ~0u;
            uint4 r = make_uint4(0, 0, 0, 0);
            for (u32 step = 0; step < a.walk_length; ++step) {
                const u32 i = w * a.walk_length + step;
                const bool again = a.restart && lab_word(restarts.four(i >> 2), i & 3) < a.restart;
                if (again) at = v;
                const i64 start = a.indptr[at];
                const u32 degree = (u32)(a.indptr[at + 1] - start);
                if (degree == 0 || (again && a.ends && step)) {
                    for (u32 s = step; s < a.walk_length; ++s) visited[w * a.walk_length + s] = (ID_T)v;
                    break;
                }
                if (group_held != i >> 2) r = steps.four(group_held = i >> 2);
                at = a.indices[start + lab_bounded(steps, i, lab_word(r, i & 3), degree)];
                visited[i] = (ID_T)at;  // the start is never a neighbour, so in `visited` it stands for "no visit"
            }
        }
        __syncwarp(mask);
        for (u32 i = lane; i < V; i += LANES) {
            const ID_T x = visited[i];
            int count = 0;
            bool first = x != (ID_T)v;
            for (u32 j = 0; first && j < V; ++j) {
                const bool same = visited[j] == x;
                count += same;
                first = !(same && j < i);
            }
            tally[i] = first ? count : 0;
        }
        __syncwarp(mask);
        u32 mine = 0;
        for (u32 i = lane; i < V; i += LANES) {
            const int count = tally[i];
            if (count == 0) continue;
            const ID_T x = visited[i];
            u32 rank = 0;
            for (u32 j = 0; j < V; ++j) rank += tally[j] > count || (tally[j] == count && visited[j] < x);
            if (rank >= a.keep) continue;
            ++mine;
            a.picks[(out + row) * a.keep + rank] = x;
            a.votes[(out + row) * a.keep + rank] = count;
            const u64 slot = claim(a, keys, totals, (u64)x);
            if (slot == ~0ull) continue;
            // Active threads of the warp share one atomic addition for the local ids of their new vertices.
            const u32 here = __activemask(), self = threadIdx.x & 31, leader = __ffs(here) - 1;
            u64 id = 0;
            if (self == leader) id = atomicAdd(totals, (u64)__popc(here));
            id = __shfl_sync(here, id, leader) + __popc(here & ((1u << self) - 1));
            nodes[id] = x;
            locals[slot] = (u32)id;
        }
        __syncwarp(mask);
        for (u32 d = LANES / 2; d; d /= 2) mine += __shfl_xor_sync(mask, mine, d);
        if (lane == 0) a.counts[out + row] = (int)mine;
        picked += mine;
    }
    if (lane == 0 && picked) atomicAdd(totals + 17 + hop, picked);
}

// Concatenate the counts of all (batch, hop) pairs without the unused room between them. Per pair `segments` has five
// numbers: first row and first pick in the result, rows, batch, and first row in the scratch arrays.
extern "C" __global__ void gather_counts(Walks a, const i64* segments, int* counts) {
    const i64* s = segments + (u64)blockIdx.y * 5;
    const u64 from = (u64)s[3] * a.row_stride + s[4];
    for (i64 row = blockIdx.x * (i64)blockDim.x + threadIdx.x; row < s[2]; row += gridDim.x * (i64)blockDim.x)
        counts[s[0] + row] = a.counts[from + row];
}

// Write offsets, neighbours, votes and local ids of all (batch, hop) pairs. `ends` is the inclusive scan of the
// gathered counts. `offsets` has one entry more than rows for every pair.
extern "C" __global__ void emit(Walks a, const i64* segments, const int* counts, const i64* ends, i64* offsets,
                                ID_T* neighbors, int* votes, int* local_ids) {
    const i64* s = segments + (u64)blockIdx.y * 5;
    const u64 from = (u64)s[3] * a.row_stride + s[4];
    const u64* keys = a.keys + (u64)s[3] * a.slots;
    const u32* locals = a.locals + (u64)s[3] * a.slots;
    i64* shifted = offsets + s[0] + blockIdx.y;
    const u64 items = (u64)s[2] * a.keep;
    if (blockIdx.x == 0 && threadIdx.x == 0) shifted[0] = 0;
    for (u64 t = blockIdx.x * (u64)blockDim.x + threadIdx.x; t < items; t += gridDim.x * (u64)blockDim.x) {
        const u64 row = t / a.keep;
        const u32 k = (u32)(t - row * a.keep);
        const int count = counts[s[0] + row];
        const i64 end = ends[s[0] + row];
        if (k == 0) shifted[row + 1] = end - s[1];
        if (k >= (u32)count) continue;
        const u64 source = (from + row) * a.keep + k;
        const i64 target = end - count + k;
        const ID_T x = a.picks[source];
        u64 at = first_slot(a, (u64)x);
        for (u64 probe = 0; keys[at] != (u64)x + 1; ++probe, at = (at + 1) & (a.slots - 1))
            if (probe == a.slots) __trap();  // `claim` put the key there: other work has overwritten the table
        neighbors[target] = x;
        votes[target] = a.votes[source];
        local_ids[target] = (int)locals[at];
    }
}

// Concatenate the vertices of all batches; batch b has nodes[begins[b] .. begins[b + 1]).
extern "C" __global__ void copy_nodes(Walks a, const i64* begins, ID_T* nodes) {
    const u64 b = blockIdx.y, n = begins[b + 1] - begins[b];
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (u64)blockDim.x)
        nodes[begins[b] + i] = a.nodes[b * a.node_cap + i];
}
