// The per-hop baselines: strategies `block-bsp`, `edge-bsp` and `turbo-bsp`. In each hop a kernel counts the picks of
// every row, a scan follows, and one of the draws below fills arrays that have room for them; the host reads the total.
//
// rows: ID_T[n] vertices to expand; offsets: exclusive scan of counts, i64[n + 1]; slots: int[total] scratch;
// neighbors: ID_T[total]; positions: i64[total]. RULE 5 runs as `block-bsp` alone. Where p.hub_limit asks for it,
// `block-bsp` and `turbo-bsp` leave hubs to `draw_hubs`, which no publication does.
// @variants ID_T=int,long RULE=0,1,2,3,4,5 TRACE=0,1
#include "hubs.cuh"

__device__ __forceinline__ u64 row_of(const i64* offsets, u64 n, i64 e) {
    u64 low = 0, high = n;
    while (high - low > 1) {
        const u64 mid = (low + high) >> 1;
        if (offsets[mid] <= e) low = mid;
        else high = mid;
    }
    return low;
}

__device__ __forceinline__ void stamp(u64* trace, u64 row, u64 started) {
#if TRACE
    trace[row * 4] = trace[row * 4 + 1] = started;
    trace[row * 4 + 2] = lab_now();
    trace[row * 4 + 3] = (u64)lab_sm() << 32 | blockIdx.x;
#endif
}

// Where seeds are noted, so that seeds which are no vertices, or come twice, are found without a wait of its own.
struct Met {
    u64* slots;   // [mask + 1], at least twice as many as seeds: stamp and vertex
    u64 mask;
    u64 stamp;    // of this mini-batch, not 0: slots with another are vacant, so nothing is cleared
    i64* report;  // pinned host memory, which gets the stamp: [0] where a seed is no vertex, [1] where one came before
    u32 bits;     // of a vertex
    u32 unused;
};
static_assert(sizeof(Met) == 40, "per_hop.py packs the same structure");

// No fence: the host reads the words once it has waited for the stream.
__device__ __forceinline__ void tell(const Met& met, int what) { met.report[what] = (i64)met.stamp; }

// Copy seeds, as ids of the graph. What is no vertex becomes vertex 0, which kernels may read before the host has heard.
// inverse: [n] each seed's own number, which is its place if all are distinct.
extern "C" __global__ void take_seeds(const __grid_constant__ Plan p, const __grid_constant__ Met met, const void* given,
                                      int wide, u64 n, ID_T* seeds, i64* inverse) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const u64 v = wide ? (u64)((const i64*)given)[i] : (u64)(i64)((const int*)given)[i];
    const bool valid = v < p.num_nodes;
    seeds[i] = valid ? (ID_T)v : 0;
    inverse[i] = (i64)i;
    if (!valid) return tell(met, 0);
    const u64 mine = met.stamp << met.bits | v;
    u64 at = lab_hash(v, met.mask + 1), seen = __ldcg(met.slots + at);
    u64 probes = 0;
    // bounded: `probes` counts every step to another slot, and a slot that is vacant is claimed at the first or second try
    while (seen != mine) {
        if (seen >> met.bits != met.stamp) {
            const u64 old = atomicCAS(met.slots + at, seen, mine);
            if (old == seen) return;
            seen = old;
            continue;
        }
        if (++probes > met.mask) __trap();  // half of the slots are vacant, unless other work has overwritten them
        at = (at + 1) & met.mask;
        seen = __ldcg(met.slots + at);
    }
    tell(met, 1);
}

// Picks per row. `work`, if not null, gets the cost of each row: groups of four candidates (reservoir), else picks.
extern "C" __global__ void count_rows(const __grid_constant__ Plan p, const ID_T* rows, u64 n, int fanout, int* counts,
                                      i64* work) {
    const u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const Row row = lab_row(p, rows[i], fanout);
    counts[i] = row.count;
    if (!work) return;
#if RULE == 1
    // For edge-bsp and turbo-bsp: one generator call serves a group of four candidates. Hubs are drawn by others.
    work[i] = lab_takes_all(row, fanout) || lab_is_hub(p, row, fanout) ? 0 : lab_groups(row);
#else
    work[i] = row.count;
#endif
}

// A group writes what its row drew. coo_rows: null, or each pick's row, which makes the hop's arrays COO.
template <class Group, class Slots>
__device__ __forceinline__ void write_picks(const Plan& p, const Row& row, i64 out, Slots slots, ID_T* coo_rows,
                                            ID_T* neighbors, i64* positions) {
    for (int j = Group::rank(); j < row.count; j += Group::size()) {
        const i64 at = row.start + __ldcg(slots + j);
        positions[out + j] = at;
        if (coo_rows) coo_rows[out + j] = (ID_T)row.vertex;
        neighbors[out + j] = __ldg(p.indices + at);
    }
}

// True where row `i` is a hub that is left to `draw_hubs`; `slots` then hold what a reservoir begins with.
template <class Group>
__device__ __forceinline__ bool leave_hub(const Plan& p, const Row& row, u64 i, int fanout, int hop, int* slots) {
#if RULE == 1
    if (!lab_is_hub(p, row, fanout)) return false;
    bool listed = Group::rank() == 0 && lab_list_hub(p, 0, lab_counters(p, 0), hop, i, row);
    listed = Group::any(listed);
    if (listed)
        for (int j = Group::rank(); j < row.count; j += Group::size()) slots[j] = j;
    return listed;
#else
    return false;
#endif
}

// block-bsp: one block per row.
__device__ __forceinline__ void draw_row(const Plan& p, const ID_T* rows, int fanout, int hop, u32 batch_id,
                                         const i64* offsets, int* slots, ID_T* coo_rows, ID_T* neighbors, i64* positions,
                                         u64* trace) {
    const u64 i = blockIdx.x;
    const u64 started = TRACE ? lab_now() : 0;
    const Row row = lab_row(p, rows[i], fanout);
    const i64 out = offsets[i];
    if (!leave_hub<BlockGroup>(p, row, i, fanout, hop, slots + out)) {
        lab_draw_group<BlockGroup>(p, row, fanout, batch_id, hop, slots + out, 1);
        write_picks<BlockGroup>(p, row, out, slots + out, coo_rows, neighbors, positions);
    }
    if (threadIdx.x == 0) stamp(trace, i, started);
}

extern "C" __global__ void draw_blocks(const __grid_constant__ Plan p, const ID_T* rows, int fanout, int hop,
                                       u32 batch_id, const i64* offsets, int* slots, ID_T* neighbors, i64* positions,
                                       u64* trace) {
    draw_row(p, rows, fanout, hop, batch_id, offsets, slots, nullptr, neighbors, positions, trace);
}

// As DGL's kernel and PGSampler's leave a hop: row, column and edge position of each pick. Nothing here needs the rows,
// which follow from the offsets; the benchmark of PGSampler's table I does.
extern "C" __global__ void draw_blocks_coo(const __grid_constant__ Plan p, const ID_T* rows, int fanout, int hop,
                                           u32 batch_id, const i64* offsets, int* slots, ID_T* coo_rows,
                                           ID_T* neighbors, i64* positions, u64* trace) {
    draw_row(p, rows, fanout, hop, batch_id, offsets, slots, coo_rows, neighbors, positions, trace);
}

#if RULE == 1
// The hubs that block-bsp and turbo-bsp have listed. Whichever block ends last empties the list for the next launch, so
// that a captured sequence needs nothing in front of it.
extern "C" __global__ void __launch_bounds__(256, 4)
    draw_hubs(const __grid_constant__ Plan p, const ID_T* rows, int fanout, int hop, u32 batch_id, const i64* offsets,
              int* slots, ID_T* coo_rows, ID_T* neighbors, i64* positions, u64* trace) {
    lab_follow();
    u32* counters = lab_counters(p, 0);
    const u32 warps = blockDim.x >> 5;
    lab_share_hubs(
        p, 0, counters, batch_id, hop, (u64)blockIdx.x * warps + (threadIdx.x >> 5), (u64)gridDim.x * warps,
        [&](u32 i, int*& mine) {
            mine = slots + offsets[i];
            return lab_row(p, rows[i], fanout);
        },
        [&](u32 i, const Row& row, int* mine) {
            write_picks<WarpGroup>(p, row, mine - slots, mine, coo_rows, neighbors, positions);
#if TRACE
            if (lab_lane() == 0) {
                trace[(u64)i * 4 + 2] = lab_now();
                trace[(u64)i * 4 + 3] = (u64)lab_sm() << 32 | blockIdx.x;
            }
#endif
        });
    __syncthreads();
    if (threadIdx.x == 0 && atomicInc(counters + CTR_BEGUN, gridDim.x - 1) == gridDim.x - 1)
        *lab_listed(counters, hop) = 0;
}
#endif

// edge-bsp, step 1: a thread per pick writes its slot: the draw itself where slots are independent, else a start value.
extern "C" __global__ void edge_begin(const __grid_constant__ Plan p, const ID_T* rows, u64 n, int fanout, int hop,
                                      u32 batch_id, const i64* offsets, int* slots) {
    const i64 total = offsets[n];
    for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < total; e += (i64)gridDim.x * blockDim.x) {
        const u64 i = row_of(offsets, n, e);
        const int slot = (int)(e - offsets[i]);
#if RULE == 0 || RULE == 2 || RULE == 4
        const Row row = lab_row(p, rows[i], fanout);
        if (!lab_takes_all(row, fanout)) {
            const Draws d = lab_draws(p, row.vertex, batch_id, hop);
#if RULE == 0
            slots[e] = lab_bounded(d, slot, lab_word(d.four(slot >> 2), slot & 3), row.degree - row.count + slot + 1);
#elif RULE == 2
            slots[e] = lab_bounded(d, slot, lab_word(d.four(slot >> 2), slot & 3), row.degree);
#else
            const WeightedRow w = lab_weighted_row(p, row);
            slots[e] = lab_find(w, row, lab_bounded64(d, slot, w.total));
#endif
            continue;
        }
#endif
        slots[e] = slot;
    }
}

// edge-bsp, step 2: for the reservoir a thread per group of four candidates, found by binary search in `work`, the
// exclusive scan of groups; for other rules a thread per row, which resolves slots that depend on one another.
extern "C" __global__ void edge_draw(const __grid_constant__ Plan p, const ID_T* rows, u64 n, int fanout, int hop,
                                     u32 batch_id, const i64* offsets, int* slots, const i64* work) {
#if RULE == 1
    const i64 total = work[n];
    for (i64 g = blockIdx.x * (i64)blockDim.x + threadIdx.x; g < total; g += (i64)gridDim.x * blockDim.x) {
        const u64 i = row_of(work, n, g);
        const Row row = lab_row(p, rows[i], fanout);
        const Draws d = lab_draws(p, row.vertex, batch_id, hop);
        const u32 group = (row.count >> 2) + (u32)(g - work[i]);
        const uint4 r = d.four(group);
#pragma unroll
        for (u32 c = 0; c < 4; ++c) {
            const int j = group * 4 + c;
            if (j >= row.count && j < row.degree) {
                const u32 slot = lab_bounded(d, j, lab_word(r, c), j + 1);
                if (slot < (u32)row.count) atomicMax(slots + offsets[i] + slot, j);
            }
        }
    }
#else
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
        const Row row = lab_row(p, rows[i], fanout);
        int* mine = slots + offsets[i];
#if RULE == 0
        if (lab_takes_all(row, fanout)) continue;
        for (int slot = 1; slot < row.count; ++slot)
            for (int earlier = 0; earlier < slot; ++earlier)
                if (mine[earlier] == mine[slot]) {
                    mine[slot] = row.degree - row.count + slot;
                    break;
                }
#elif LAB_WEIGHTED
        if (!lab_takes_all(row, fanout)) {
#if RULE == 3
            lab_successive(p, row, lab_draws(p, row.vertex, batch_id, hop), mine, 1);
#endif
        } else if (row.count != row.degree) {
            for (int j = 0, slot = 0; j < row.degree; ++j)
                if (p.prefix[row.start + j + 1] > p.prefix[row.start + j]) mine[slot++] = j;
        }
#endif
    }
#endif
}

// edge-bsp, step 3: positions and neighbours, a thread per pick.
extern "C" __global__ void edge_gather(const __grid_constant__ Plan p, const ID_T* rows, u64 n, const i64* offsets,
                                       const int* slots, ID_T* neighbors, i64* positions, u64* trace) {
    const i64 total = offsets[n];
    for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < total; e += (i64)gridDim.x * blockDim.x) {
        const u64 started = TRACE ? lab_now() : 0;
        const u64 i = row_of(offsets, n, e);
        const i64 at = __ldg(p.indptr + rows[i]) + slots[e];
        positions[e] = at;
        neighbors[e] = __ldg(p.indices + at);
        if (e == offsets[i]) stamp(trace, i, started);
    }
}

// turbo-bsp: the work is cut into equal shares, one per block (`work`: exclusive scan of the rows' costs). Block b
// takes the rows that begin in share b. A warp draws a row in shared memory, whose atomics are cheap, and writes the
// result of the row with coalesced writes.
#define TURBO_WARPS 4
#define TURBO_SLOTS 256
extern "C" __global__ void __launch_bounds__(TURBO_WARPS * 32)
    draw_balanced(const __grid_constant__ Plan p, const ID_T* rows, u64 n, int fanout, int hop, u32 batch_id,
                  const i64* offsets, int* slots, ID_T* neighbors, i64* positions, const i64* work, u64* trace) {
    __shared__ int shared_slots[TURBO_WARPS][TURBO_SLOTS];
    __shared__ u64 bounds[2];
    __shared__ u32 next;
    if (threadIdx.x < 2) {
        // Rows whose work begins in [share, next share). Each row counts one more than its work, so no row is free.
        const u64 total = work[n] + n, share = blockIdx.x + threadIdx.x;
        const u64 target = total * share / gridDim.x;
        u64 low = 0, high = n;
        while (low < high) {
            const u64 mid = (low + high) >> 1;
            if ((u64)work[mid] + mid < target) low = mid + 1;
            else high = mid;
        }
        bounds[threadIdx.x] = low;
    }
    if (threadIdx.x == 0) next = 0;
    __syncthreads();
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    // bounded: every pass takes a row that no other pass takes
    while (true) {
        u32 taken = 0;
        if (lane == 0) taken = atomicAdd(&next, 1u);
        const u64 i = bounds[0] + __shfl_sync(0xFFFFFFFFu, taken, 0);
        if (i >= bounds[1]) break;
        const u64 started = TRACE ? lab_now() : 0;
        const Row row = lab_row(p, rows[i], fanout);
        const i64 out = offsets[i];
        if (leave_hub<WarpGroup>(p, row, i, fanout, hop, slots + out)) {
            if (lane == 0) stamp(trace, i, started);
            continue;
        }
        const bool small = row.count <= TURBO_SLOTS;
        if (small) lab_draw_group<WarpGroup>(p, row, fanout, batch_id, hop, shared_slots[warp], 1);
        else lab_draw_group<WarpGroup>(p, row, fanout, batch_id, hop, slots + out, 1);
        for (int j = lane; j < row.count; j += 32) {
            const i64 at = row.start + (small ? shared_slots[warp][j] : __ldcg(slots + out + j));
            positions[out + j] = at;
            neighbors[out + j] = __ldg(p.indices + at);
        }
        __syncwarp();
        if (lane == 0) stamp(trace, i, started);
    }
}
