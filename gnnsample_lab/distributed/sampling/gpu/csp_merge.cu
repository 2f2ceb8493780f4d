// Collective sampling, after the exchange: picks into the order of the frontier, and the next frontier's vertices.
//
//   merge           rows of fixed stride, read from replies
//   merge_ragged    rows of any length, whose picks stay where they are
//
// Bound: merge streams 8 to 12 bytes in and out per pick and does one atomic on a table that fits the L2 cache.
// @variants ID_T=int,long TABLE_KIND=0,1
#include "csp.cuh"
#include "sampling/neighbors/hops/fresh.cuh"

struct Replies {
    const u64* places;    // [row] owner << 32 | place in its bucket
    const char* data;
    const i64* offsets;   // ragged: [row + 1] where each row's picks begin, rows packed owner after owner
    const u64* counts;    // [parts] rows of each bucket so far
    u64* history;         // fixed capacities: [parts] copy of the counts, null otherwise
    int parts;
    int only;             // merge the rows of this owner alone; -1 for all
    u64 stride;
    u64 at[MAX_PEERS];    // bytes: where the reply of each owner begins; ragged: its rows among all rows
    u64 rows[MAX_PEERS];  // rows of the reply
};

struct MergeShared {
    const ID_T* neighbors[LAB_WARPS][32];
    const int* slots[LAB_WARPS][32];
    int counts[LAB_WARPS][32];
    ID_T staged[LAB_WARPS][LAB_STAGE];
    u32 firsts[LAB_WARPS];
};

extern "C" __global__ void __launch_bounds__(LAB_WARPS * 32) merge(const __grid_constant__ Plan p,
                                                                   const __grid_constant__ Replies r, int hop) {
    __shared__ MergeShared s;
    const u32 lane = lab_lane(), warp = threadIdx.x >> 5;
    u32* counters = lab_counters(p, 0);
    const u32 base = p.batches[0].base;
    const Hop& h = p.hops[hop];
    const Levels level = lab_levels(p, counters, hop);
    const u64 end = min(min(level.end, h.row_cap), p.node_cap);
    const u32 k = (u32)r.stride;
    const u64 warps = (u64)gridDim.x * LAB_WARPS;
    const u32 per_warp = rows_per_warp(end, warps);
    if (r.history && blockIdx.x == 0 && (int)threadIdx.x < r.parts)
        r.history[threadIdx.x] = __ldcg(r.counts + threadIdx.x);
    Stage stage{s.staged[warp], 0};
    bool overflow = end < level.end;
    u32 picked = 0;
    // The whole block goes round together: its warps reserve places for new vertices with one atomic.
    for (u64 first = (u64)blockIdx.x * LAB_WARPS * per_warp; first < end; first += warps * per_warp) {
        const u64 row0 = first + (u64)warp * per_warp;
        const u32 mine = row0 < end ? (u32)min((u64)per_warp, end - row0) : 0;
        bool here = false;
        const ID_T* neighbors = nullptr;
        const int* slots = nullptr;
        if (lane < mine) {
            const u64 place = r.places[row0 + lane];
            const u32 owner = (u32)(place >> 32), at = (u32)place;
            here = r.only < 0 || (int)owner == r.only;
            if (here && at < r.rows[owner]) {
                neighbors = reply_neighbors(r.data + r.at[owner], at, k);
                slots = reply_slots(r.data + r.at[owner], r.rows[owner], at, k);
            }
        }
        s.neighbors[warp][lane] = neighbors;
        s.slots[warp][lane] = slots;
        s.counts[warp][lane] = 0;
        __syncwarp();
        const u64 out0 = row0 * k;
        const u32 places = mine * k;
        for (u32 e0 = 0; e0 < places; e0 += 128) {
            ID_T u[4];
            bool fresh[4];
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const u32 e = e0 + c * 32 + lane, i = e / k, slot = e - i * k;
                const ID_T* from = e < places ? s.neighbors[warp][i & 31] : nullptr;
                u[c] = from ? __ldg(from + slot) : (ID_T)-1;
            }
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                if (u[c] < 0) continue;
                const u32 e = e0 + c * 32 + lane, i = e / k, slot = e - i * k;
                h.neighbors[out0 + e] = u[c];
                h.slots[out0 + e] = __ldg(s.slots[warp][i] + slot);
                // Picks fill the front of a row: the last of them says how many they are.
                if (slot + 1 == k || __ldg(s.neighbors[warp][i] + slot + 1) < 0) s.counts[warp][i] = slot + 1;
            }
#pragma unroll
            for (int c = 0; c < 4; ++c) fresh[c] = u[c] >= 0 && lab_insert(p.table, 0, base, u[c], overflow);
            if (stage.count > LAB_STAGE - 128) lab_flush(p, 0, base, counters, hop, level.end, stage);
#pragma unroll
            for (int c = 0; c < 4; ++c) lab_push(stage, fresh[c], u[c]);
        }
        __syncwarp();
        if (here) {
            h.counts[row0 + lane] = s.counts[warp][lane];
            h.starts[row0 + lane] = 0;  // positions of this sample are slots within lists
            picked += s.counts[warp][lane];
        }
        lab_flush_block(p, 0, base, counters, hop, level.end, stage, s.firsts);
        __syncwarp();
    }
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    lab_count_edges(counters, hop, picked);
}

// A warp per row. The host has let h.neighbors and h.slots point to the picks as they came.
extern "C" __global__ void __launch_bounds__(LAB_WARPS * 32) merge_ragged(const __grid_constant__ Plan p,
                                                                          const __grid_constant__ Replies r, int hop) {
    __shared__ ID_T staged[LAB_WARPS][LAB_STAGE];
    const u32 lane = lab_lane(), warp = threadIdx.x >> 5;
    u32* counters = lab_counters(p, 0);
    const u32 base = p.batches[0].base;
    const Hop& h = p.hops[hop];
    const Levels level = lab_levels(p, counters, hop);
    const u64 end = min(min(level.end, h.row_cap), p.node_cap);
    Stage stage{staged[warp], 0};
    bool overflow = end < level.end;
    u32 picked = 0;
    for (u64 i = (u64)blockIdx.x * LAB_WARPS + warp; i < end; i += (u64)gridDim.x * LAB_WARPS) {
        const u64 place = r.places[i], packed = r.at[place >> 32] + (u32)place;
        const i64 from = r.offsets[packed];
        const int count = (int)(r.offsets[packed + 1] - from);
        if (lane == 0) {
            h.counts[i] = count;
            h.starts[i] = 0;
            h.offsets[i] = from;
            picked += count;
        }
        for (int j0 = 0; j0 < count; j0 += 32) {
            const int j = j0 + (int)lane;
            const ID_T u = j < count ? h.neighbors[from + j] : (ID_T)0;
            const bool fresh = j < count && lab_insert(p.table, 0, base, u, overflow);
            if (stage.count > LAB_STAGE - 32) lab_flush(p, 0, base, counters, hop, level.end, stage);
            lab_push(stage, fresh, u);
        }
    }
    lab_flush(p, 0, base, counters, hop, level.end, stage);
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    lab_count_edges(counters, hop, picked);
}
