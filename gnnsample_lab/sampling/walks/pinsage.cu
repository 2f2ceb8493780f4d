// PinSAGE neighbourhoods: every vertex starts a few random walks; the vertices visited most become its neighbours.
//
// One launch serves several mini-batches (blockIdx.y). A row is one vertex of the frontier; LANES threads share it, and
// each takes one walk at a time. Visits lie in shared memory. Every thread counts and ranks its own share of the visits
// by comparing each with all others: V visits cost V * V / LANES reads per thread, which take little time beside the
// walks' dependent reads for V = 12.
// Bound: num_walks * walk_length * 2 random reads per row, walk_length * 2 of them one after the other.
// Picks enter the batch's vertex table at once, so that the next hop's frontier is complete when the kernel ends and
// the host waits for no hop. Local ids are read by `emit`, when all of them are written.
// All kernels are one CUDA graph: what changes from call to call is read from host memory (`calls`). There lies, too,
// where each batch has memory for its arrays. Where that is too small `emit` is launched again, into memory that fits.
//
// Arrays of a batch b: nodes[b * node_cap ..], keys and locals [b * slots ..], totals[b * 40 ..] (0: vertices so far,
// 1 + h: vertices before hop h, 17 + h: picks of hop h, last four: see below), counts[b * row_stride ..], picks and votes K times that.
// tiles[(b * num_hops + h) * tile_stride ..] sums of the counts of TILE rows each.
// `direct`: a slot for every vertex of the graph, no probing. 64-bit offsets throughout.
// @variants ID_T=int,long LANES=4,32
#include "device/philox.cuh"
typedef long long i64;
#define TOTALS 40
#define STRANGE (TOTALS - 4)   // not 0 when a seed is no vertex
#define REPEATED (TOTALS - 3)  // not 0 when a seed came twice: the host merges them, and launches again
#define STAMP (TOTALS - 2)   // in host memory: the tag of the call whose totals these are
#define BROKEN (TOTALS - 1)  // not 0 when a table was full: an error, because it has slots for twice the vertices

// Where the arrays of a batch and hop go. `nodes` of the first hop alone.
struct Place {
    ID_T* nodes;
    i64* inverse;   // 0: seeds were merged, the host has their places
    int* counts;
    i64* offsets;   // 0: nothing is to be written
    ID_T* neighbors;
    int* votes;
    int* local_ids;
    u64 num_nodes;  // 0 but for the first hop
};

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
    u32* tiles;
    u32* batch_ids;
    const u64* calls;
    u64* host_totals;
    const u64* row_begins;
    Place* places;
    u64 node_cap, slots, row_stride, seed, tile_stride;
    u32 direct, keep, num_walks, walk_length, restart, ends, num_hops, padding;  // ends: at a restart
    u64 num_nodes;
};
#define TILE 1024  // rows of which `tiles` holds one sum, and a block of `emit` writes the picks

// What a call asks of a batch; in host memory, as `seeds` are unless they were given on the device.
struct Call {
    const i64* seeds;
    u64 num_seeds, batch_id;
    i64 tag;  // of the call
    u64 memory, room;  // for the batch's arrays: where, 0 for nowhere, and how many bytes
    u64 num_inverse;   // seeds whose inverse lies there; 0: seeds were merged
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

// Enter the seeds of all batches.
extern "C" __global__ void begin(Walks a) {
    const u64 b = blockIdx.y;
    const Call call = ((const Call*)a.calls)[b];
    u64* totals = a.totals + b * TOTALS;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        totals[0] = totals[1] = call.num_seeds;
        a.batch_ids[b] = (u32)call.batch_id;
    }
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < call.num_seeds; i += gridDim.x * (u64)blockDim.x) {
        const u64 given = (u64)call.seeds[i], v = given < a.num_nodes ? given : 0;
        if (given != v) totals[STRANGE] = 1;
        a.nodes[b * a.node_cap + i] = (ID_T)v;
        const u64 slot = claim(a, a.keys + b * a.slots, totals, v);
        if (slot != ~0ull)
            a.locals[b * a.slots + slot] = (u32)i;
        else
            totals[REPEATED] = 1;
    }
}

// Record the number of vertices reached so far, which is the number of rows of the next hop.
extern "C" __global__ void close_level(Walks a, int hop) {
    u64* totals = a.totals + (u64)blockIdx.x * TOTALS;
    if (threadIdx.x == 0) totals[2 + hop] = totals[0];
}

// Rows of a hop; none where the seeds are of no use, since vertices that came twice would leave too little room.
__device__ __forceinline__ u64 rows_of(const u64* totals, u64 hop) {
    return totals[STRANGE] | totals[REPEATED] ? 0 : totals[1 + hop];
}

// Dynamic shared memory: per row in flight, ID_T[V] visits, then for all rows int[V] counts, V = walks * steps.
extern "C" __global__ void walk(Walks a, int hop) {
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
    const u64 rows = rows_of(totals, hop), out = (u64)batch * a.row_stride + a.row_begins[hop];
    const u32 batch_id = a.batch_ids[batch];
    u64 picked = 0;
    for (u64 row = blockIdx.x * (u64)groups + group; row < rows; row += gridDim.x * (u64)groups) {
        const u64 v = nodes[row];
        const Draws steps(v, batch_id, hop, LAB_PURPOSE_WALK, a.seed);
        const Draws restarts(v, batch_id, hop, LAB_PURPOSE_RESTART, a.seed);
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

// The picks of TILE rows each; blockIdx.y: batch and hop.
extern "C" __global__ void __launch_bounds__(256) sum_tiles(Walks a) {
    __shared__ u32 sums[8];
    const u64 b = blockIdx.y / a.num_hops, hop = blockIdx.y - b * a.num_hops;
    const u64 rows = rows_of(a.totals + b * TOTALS, hop);
    const int* counts = a.counts + b * a.row_stride + a.row_begins[hop];
    for (u64 tile = blockIdx.x; tile * TILE < rows; tile += gridDim.x) {
        u32 mine = 0;
        for (u64 row = tile * TILE + threadIdx.x; row < rows && row < (tile + 1) * TILE; row += 256) mine += (u32)counts[row];
#pragma unroll
        for (int d = 16; d; d /= 2) mine += __shfl_xor_sync(0xFFFFFFFFu, mine, d);
        if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = mine;
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 all = 0;
            for (int w = 0; w < 8; ++w) all += sums[w];
            a.tiles[blockIdx.y * a.tile_stride + tile] = all;
        }
        __syncthreads();
    }
}

// Where the arrays of batch `b` go in the memory of its call, one after another as in Python's `_View`; nowhere where
// they do not fit, or are of no use.
__device__ __forceinline__ void lay_out(const Walks& a, u64 b, const Call& call, const u64* totals) {
    Place* places = a.places + b * a.num_hops;
    u64 at = call.memory;
    const auto take = [&at](u64 bytes) {
        const u64 here = at;
        at += (bytes + 255) & ~255ull;
        return here;
    };
    const u64 num_nodes = totals[1 + a.num_hops], nodes = take(num_nodes * sizeof(ID_T)), inverse = take(call.num_inverse * 8);
    for (u32 hop = 0; hop < a.num_hops; ++hop) {
        const u64 rows = totals[1 + hop], picks = totals[17 + hop];
        Place to;
        to.nodes = (ID_T*)(hop ? 0 : nodes);
        to.inverse = (i64*)(hop || !call.num_inverse ? 0 : inverse);
        to.counts = (int*)take(rows * 4);
        to.offsets = (i64*)take(rows * 8 + 8);
        to.neighbors = (ID_T*)take(picks * sizeof(ID_T));
        to.votes = (int*)take(picks * 4);
        to.local_ids = (int*)take(picks * 4);
        to.num_nodes = hop ? 0 : num_nodes;
        places[hop] = to;
    }
    if (call.memory && at - call.memory <= call.room && !(totals[STRANGE] | totals[REPEATED] | totals[BROKEN])) return;
    for (u32 hop = 0; hop < a.num_hops; ++hop) places[hop].offsets = 0;
}

// Tell the host how large everything is, the stamp last, and `emit` where everything goes.
extern "C" __global__ void report(Walks a) {
    const u64* totals = a.totals + (u64)blockIdx.x * TOTALS;
    volatile u64* out = a.host_totals + (u64)blockIdx.x * TOTALS;
    for (u32 i = threadIdx.x; i < TOTALS; i += blockDim.x)
        if (i != STAMP) out[i] = totals[i];
    __syncthreads();
    if (threadIdx.x) return;
    const Call call = ((const Call*)a.calls)[blockIdx.x];
    __threadfence_system();
    *(volatile i64*)(out + STAMP) = call.tag;
    lay_out(a, blockIdx.x, call, totals);
}

// Write the arrays of all batches and hops (blockIdx.y) to where `places` says, which lie in host memory where the host
// has chosen them. A block writes the picks of TILE rows.
extern "C" __global__ void __launch_bounds__(256) emit(Walks a, const Place* places) {
    __shared__ u32 ends[TILE];
    __shared__ u32 warps[8];
    __shared__ u64 base;
    const u32 number = blockIdx.y;
    const u64 b = number / a.num_hops, hop = number - b * a.num_hops;
    const Place to = places[number];
    if (!to.offsets) return;
    const u64 rows = a.totals[b * TOTALS + 1 + hop], from = b * a.row_stride + a.row_begins[hop];
    const u64* keys = a.keys + b * a.slots;
    const u32* locals = a.locals + b * a.slots;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u64 threads = gridDim.x * 256ull, self = blockIdx.x * 256ull + threadIdx.x;
    for (u64 i = self; i < to.num_nodes; i += threads) to.nodes[i] = a.nodes[b * a.node_cap + i];
    if (to.num_nodes && to.inverse)
        for (u64 i = self; i < a.totals[b * TOTALS + 1]; i += threads) to.inverse[i] = (i64)i;
    if (self == 0) to.offsets[0] = 0;
    for (u64 tile = blockIdx.x; tile * TILE < rows; tile += gridDim.x) {
        if (threadIdx.x == 0) base = 0;
        __syncthreads();
        u64 before = 0;
        for (u64 other = threadIdx.x; other < tile; other += 256) before += a.tiles[number * a.tile_stride + other];
#pragma unroll
        for (int d = 16; d; d /= 2) before += __shfl_xor_sync(0xFFFFFFFFu, before, d);
        if (lane == 0 && before) atomicAdd(&base, before);
        // A thread has four neighbouring rows.
        const u64 first = tile * TILE + threadIdx.x * 4;
        u32 count[4], upto = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) upto += count[i] = first + i < rows ? (u32)a.counts[from + first + i] : 0;
        u32 sum = upto;
#pragma unroll
        for (int apart = 1; apart < 32; apart <<= 1) {
            const u32 left = __shfl_up_sync(0xFFFFFFFFu, sum, apart);
            if (lane >= apart) sum += left;
        }
        if (lane == 31) warps[warp] = sum;
        __syncthreads();
        u32 end = sum - upto;
        for (u32 w = 0; w < warp; ++w) end += warps[w];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            end += count[i];
            ends[threadIdx.x * 4 + i] = end;
            if (first + i < rows) {
                to.offsets[first + i + 1] = (i64)(base + end);
                to.counts[first + i] = (int)count[i];
            }
        }
        __syncthreads();
        for (u32 t = threadIdx.x; t < TILE * a.keep; t += 256) {
            const u32 r = t / a.keep, k = t - r * a.keep;
            const u32 begin = r ? ends[r - 1] : 0;
            if (k >= ends[r] - begin) continue;
            const u64 source = (from + tile * TILE + r) * a.keep + k, target = base + begin + k;
            const ID_T x = a.picks[source];
            u64 at = first_slot(a, (u64)x);
            for (u64 probe = 0; keys[at] != (u64)x + 1; ++probe, at = (at + 1) & (a.slots - 1))
                if (probe == a.slots) __trap();  // `claim` put the key there: other work has overwritten the table
            to.neighbors[target] = x;
            to.votes[target] = a.votes[source];
            to.local_ids[target] = (int)locals[at];
        }
        __syncthreads();  // the next tile writes `ends` and `base`
    }
}
