// Collective sampling, at the owner: draw for all requests of all ranks in one launch, a grid row for each rank.
//
// Draws are keyed by original ids; `new_of` leads to the row of the part, whose lists keep the order of the whole graph.
// With PULLED=1 the same kernels draw from lists that were fetched whole: the baseline without collective sampling.
// With LISTS=1 lists of the part lie in this GPU's memory and in the host's, and a record of each row says where.
//
//   draw, draw_ragged    a lane per row up to KMAX picks, else a warp per row
//   count_tasks          ragged: picks of each row
//
// Shapes: grid (blocks, ranks). Bound: as sampling/neighbors/hops/expand.cuh, with one more dependent read per row; lists
// in host memory by PCIe, a request of 50 bytes for each sector.
// @variants ID_T=int,long RULE=0,1,2,3,4 PULLED=0,1 KMAX=0,8,16,32 LISTS=0,1
#if KMAX == 0
#undef KMAX
#endif
#include "csp.cuh"
#include "sampling/neighbors/hops/draw.cuh"

#define DRAW_WARPS (sizeof(ID_T) == 4 ? 8 : 4)

struct Tasks {
    const ID_T* ids;      // requests of other ranks; PULLED: to them, as `send` has them
    const ID_T* own_ids;  // those of this rank to itself
    char* replies;
    char* own_reply;
    const ID_T* new_of;
    i64 lower;            // new id of the part's first vertex
    const i64* offsets;   // PULLED: [row + 1] where each fetched list begins; own rows, among them, have none
    const ID_T* lists;    // PULLED: fetched lists
    const u64* sums;      // PULLED and weighted: prefix sums of their weights
    u64 apart;            // PULLED: from the ids for a rank to those for the next
    u64* seen;            // [rank] requests that came; null where the host knows
    u64* given;           // [rank] picks for each rank are added
    int self;
    int fanout;
    u64 stride;
    u64 begin[MAX_PEERS];     // a rank's first row among all rows, and where its requests begin in `ids`
    u64 rows[MAX_PEERS];      // requests of a rank; with fixed capacities the most, and ids below 0 fill the rest
    u64 reply_at[MAX_PEERS];  // bytes
};
static_assert(sizeof(Tasks) == 1648, "csp_kernels.py packs the same structure");

struct Task {
    Row row;
    Plan source;  // the arrays that the row refers to; only those that draw.cuh reads are set
};

#if PULLED && RULE >= 3
// How many weights of a fetched list are positive; counting stops when they are `enough`, which no draw asks beyond. So
// their owner need not tell: after a few entries of most lists it is known.
template <bool warp> __device__ __forceinline__ int positive(const u64* sums, int degree, int enough) {
    int found = 0;
    for (int first = 0; first < degree && found < enough; first += warp ? 32 : 1) {
        const int j = first + (warp ? (int)lab_lane() : 0);
        const bool is = j < degree && __ldg(sums + j + 1) > __ldg(sums + j);
        found += warp ? __popc(__ballot_sync(0xFFFFFFFFu, is)) : is;
    }
    return found;
}
#endif

// `warp`: all lanes ask for the same row and may share the work.
template <bool warp> __device__ __forceinline__ Task task_of(const Plan& p, const Tasks& t, int rank, u64 i, ID_T v) {
    Task task;
    task.source.seed = p.seed;
    task.source.guide = nullptr;  // lists of parts have none
#if PULLED
    if (rank != t.self) {
        const u64 packed = t.begin[rank] + i;
        Row& row = task.row;
        row.start = t.offsets[packed];
        row.degree = (int)(t.offsets[packed + 1] - row.start);
        row.vertex = (u64)v;
        task.source.indices = t.lists;
        task.source.prefix = t.sums;
#if LISTS && RULE >= 3
        row.prefix = t.sums;
#endif
        int choice = row.degree;
#if RULE >= 3
        const u64* sums = t.sums + row.start;
        if (t.fanout >= 0 && RULE == 4) choice = row.degree && __ldg(sums + row.degree) > __ldg(sums);
        else choice = positive<warp>(sums, row.degree, t.fanout < 0 ? row.degree : t.fanout);
#endif
#if RULE == 2 || RULE == 4
        row.count = t.fanout < 0 ? choice : (choice > 0 ? t.fanout : 0);
#else
        row.count = t.fanout < 0 ? choice : min(choice, t.fanout);
#endif
        return task;
    }
#endif
    task.source.indptr = p.indptr;
    task.source.indices = p.indices;
    task.source.prefix = p.prefix;
    task.source.available = p.available;
    task.row = lab_row(p, (u64)(__ldg(t.new_of + v) - t.lower), t.fanout);
    task.row.vertex = (u64)v;
    return task;
}

// What the owner tells of a row, see csp.cuh.
__device__ __forceinline__ int head_of(const Row& row) {
#if RULE >= 3
    return row.count;
#else
    return row.degree;
#endif
}

// Add the picks of all lanes of the block to those of a rank; the last thing that a block does.
__device__ __forceinline__ void add_given(const Tasks& t, int rank, u32 picks) {
    __shared__ u32 sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
#pragma unroll
    for (int apart = 16; apart; apart >>= 1) picks += __shfl_xor_sync(0xFFFFFFFFu, picks, apart);
    if (lab_lane() == 0 && picks) atomicAdd(&sum, picks);
    __syncthreads();
    if (threadIdx.x == 0 && sum) atomicAdd(t.given + rank, (u64)sum);
}

__device__ __forceinline__ const ID_T* requests_of(const Tasks& t, int rank) {
    return rank == t.self ? t.own_ids : t.ids + (PULLED ? rank * t.apart : t.begin[rank]);
}

// Fixed capacities: requests fill the front of a message, and the last of them says how many they are.
__device__ __forceinline__ void note_last(const Tasks& t, const ID_T* ids, int rank, u64 i) {
    if (t.seen && (i + 1 == t.rows[rank] || ids[i + 1] < 0)) t.seen[rank] = i + 1;
}

extern "C" __global__ void __launch_bounds__(DRAW_WARPS * 32) draw(const __grid_constant__ Plan p,
                                                                   const __grid_constant__ Tasks t, int hop) {
    const int rank = blockIdx.y;
    const u64 n = t.rows[rank];
    const u32 lane = lab_lane(), warp = threadIdx.x >> 5;
    const ID_T* ids = requests_of(t, rank);
    char* reply = rank == t.self ? t.own_reply : t.replies + t.reply_at[rank];
    int* heads = reply_heads(reply);
    ID_T* neighbors = reply_neighbors(reply, n);
    const u32 batch_id = p.batches[0].batch_id, k = (u32)t.stride;
    u32 picked = 0;
#if RULE >= 3
    int* slots = reply_slots(reply, n, t.stride);
#endif
#ifdef KMAX
    // A warp draws for up to 32 rows at once, one per lane, and then spreads their picks over its lanes.
    __shared__ int drawn[DRAW_WARPS][KMAX * 33];
    __shared__ i64 starts[DRAW_WARPS][32];
    __shared__ int counts[DRAW_WARPS][32];
    __shared__ const ID_T* lists[DRAW_WARPS][32];
    const u64 warps = (u64)gridDim.x * DRAW_WARPS;
    const u32 per_warp = rows_per_warp(n, warps);
    for (u64 row0 = ((u64)blockIdx.x * DRAW_WARPS + warp) * per_warp; row0 < n; row0 += warps * per_warp) {
        const u32 mine = (u32)min((u64)per_warp, n - row0);
        Task task;
        task.row = Row{0, 0, 0, 0};
        task.source.indices = p.indices;
        const ID_T v = lane < mine ? ids[row0 + lane] : (ID_T)-1;
        if (v >= 0) {
            note_last(t, ids, rank, row0 + lane);
            task = task_of<false>(p, t, rank, row0 + lane, v);
#if RULE != 1
            lab_draw_lane(task.source, task.row, t.fanout, batch_id, hop, drawn[warp] + lane, 33);
#endif
        }
        if (lane < mine) heads[row0 + lane] = head_of(task.row);
        picked += task.row.count;
        starts[warp][lane] = task.row.start;
        counts[warp][lane] = task.row.count;
        lists[warp][lane] = task.source.indices;
        __syncwarp();
#if RULE == 1
        // The reservoir's work grows with the degree: the warp shares each row.
        for (u32 i = 0; i < mine; ++i) {
            const ID_T u = ids[row0 + i];
            if (u < 0) continue;
            const Task shared = task_of<true>(p, t, rank, row0 + i, u);
            lab_draw_group<WarpGroup>(shared.source, shared.row, t.fanout, batch_id, hop, drawn[warp] + i, 33);
        }
#endif
        for (u32 e = lane; e < mine * k; e += 32) {
            const u32 i = e / k, slot = e - i * k;
            const bool valid = (int)slot < counts[warp][i];
            const int at = valid ? drawn[warp][slot * 33 + i] : 0;
            if (!valid) continue;
            neighbors[row0 * k + e] = __ldg(lists[warp][i] + starts[warp][i] + at);
#if RULE >= 3
            slots[row0 * k + e] = at;
#endif
        }
        __syncwarp();
    }
#else
    // A warp per row. Slots are drawn where the neighbours will be: an id is at least as wide.
    for (u64 i = (u64)blockIdx.x * DRAW_WARPS + warp; i < n; i += (u64)gridDim.x * DRAW_WARPS) {
        const ID_T v = ids[i];
        if (v < 0) {  // no request: nothing, or one that an earlier hop had no room for
            if (lane == 0) heads[i] = 0;
            continue;
        }
        const Task task = task_of<true>(p, t, rank, i, v);
        if (lane == 0) {
            note_last(t, ids, rank, i);
            heads[i] = head_of(task.row);
            picked += task.row.count;
        }
        ID_T* mine = neighbors + i * t.stride;
#if RULE >= 3
        int* drawn = slots + i * t.stride;
#else
        int* drawn = (int*)mine + (sizeof(ID_T) / 4 - 1) * k;  // the last k words: those before are read already
#endif
        lab_draw_group<WarpGroup>(task.source, task.row, t.fanout, batch_id, hop, drawn, 1);
        for (int j0 = 0; j0 < task.row.count; j0 += 32) {
            const int j = j0 + (int)lane;
            const int at = j < task.row.count ? __ldcg(drawn + j) : 0;
            __syncwarp();
            if (j < task.row.count) mine[j] = __ldg(task.source.indices + task.row.start + at);
            __syncwarp();
        }
    }
#endif
    add_given(t, rank, picked);
}

// Where results of ragged rows go: those for this rank itself, and those for the others.
struct Ragged {
    int* counts;            // of other ranks' rows, rank after rank
    int* own_counts;
    const i64* offsets;     // their exclusive scans
    const i64* own_offsets;
    ID_T* neighbors;        // offsets lead into these
    int* slots;
    ID_T* own_neighbors;
    int* own_slots;
};
static_assert(sizeof(Ragged) == 64, "csp_kernels.py packs the same structure");

// Picks of each row. Warp per row.
extern "C" __global__ void __launch_bounds__(DRAW_WARPS * 32) count_tasks(const __grid_constant__ Plan p,
                                                                          const __grid_constant__ Tasks t,
                                                                          const __grid_constant__ Ragged g) {
    const int rank = blockIdx.y;
    const ID_T* ids = requests_of(t, rank);
    int* counts = rank == t.self ? g.own_counts : g.counts + t.begin[rank];
    for (u64 i = (u64)blockIdx.x * DRAW_WARPS + (threadIdx.x >> 5); i < t.rows[rank]; i += (u64)gridDim.x * DRAW_WARPS) {
        const Task task = task_of<true>(p, t, rank, i, ids[i]);
        if (lab_lane() == 0) counts[i] = task.row.count;
    }
}

extern "C" __global__ void __launch_bounds__(DRAW_WARPS * 32) draw_ragged(const __grid_constant__ Plan p,
                                                                          const __grid_constant__ Tasks t,
                                                                          const __grid_constant__ Ragged g, int hop) {
    const int rank = blockIdx.y;
    const ID_T* ids = requests_of(t, rank);
    const bool own = rank == t.self;
    const i64* offsets = own ? g.own_offsets : g.offsets + t.begin[rank];
    const u32 batch_id = p.batches[0].batch_id;
    // show: answer a request
    for (u64 i = (u64)blockIdx.x * DRAW_WARPS + (threadIdx.x >> 5); i < t.rows[rank]; i += (u64)gridDim.x * DRAW_WARPS) {
        const Task task = task_of<true>(p, t, rank, i, ids[i]);
        const i64 at = offsets[i];
        int* slots = (own ? g.own_slots : g.slots) + at;
        ID_T* neighbors = (own ? g.own_neighbors : g.neighbors) + at;
        lab_draw_group<WarpGroup>(task.source, task.row, t.fanout, batch_id, hop, slots, 1);
        for (int j = lab_lane(); j < task.row.count; j += 32)
            neighbors[j] = __ldg(task.source.indices + task.row.start + __ldcg(slots + j));
    }
    // end: answer a request
}
