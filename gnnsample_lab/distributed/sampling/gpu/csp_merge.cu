// Collective sampling, after the exchange: picks into the order of the frontier, and the next frontier's vertices.
//
//   merge          rows of fixed stride, read from replies: a lane per row up to KMAX picks, else a warp per row
//   merge_ragged   KMAX=0: rows of any length, whose picks stay where they are
//
// Slots of rules without weights are drawn again, here: 4 bytes of a list's length travel and not 4 of each pick.
// Bound: streams 4 to 12 bytes in and 8 to 12 out per pick, and does one atomic on a table that fits the L2 cache.
// @variants ID_T=int,long TABLE_KIND=0,1 RULE=0,1,2,3,4 KMAX=0,8,16,32
#if KMAX == 0
#undef KMAX
#endif
#include "csp.cuh"
#include "sampling/neighbors/hops/draw.cuh"
#include "sampling/neighbors/hops/fresh.cuh"

struct Replies {
    const u64* places;    // [row] owner << 32 | place in its bucket
    char* data;
    const i64* offsets;   // ragged: [row + 1] where each row's picks begin, rows packed owner after owner
    const int* heads;     // ragged: [row] what the owners told
    const u64* counts;    // [parts] rows of each bucket so far
    u64* history;         // [parts] copy of the counts
    u64* taken;           // [parts] picks from each owner are added
    int parts;
    int only;             // merge the rows of this owner alone; -1 for all
    int fanout;
    int unused;
    u64 stride;
    u64 at[MAX_PEERS];    // bytes: where the reply of each owner begins; ragged: its rows among all rows
    u64 rows[MAX_PEERS];  // rows that the reply has room for
};
static_assert(sizeof(Replies) == 1104, "csp_kernels.py packs the same structure");

// A row of the frontier as its owner told of it.
__device__ __forceinline__ Row told_row(ID_T v, int head, int fanout) {
    Row row{(u64)v, 0, head, 0};
#if RULE >= 3
    row.count = head;
#elif RULE == 2
    row.count = fanout < 0 ? head : (head > 0 ? fanout : 0);
#else
    row.count = fanout < 0 ? head : min(head, fanout);
#endif
    return row;
}

__device__ __forceinline__ void note_counts(const Replies& r, u32* taken) {
    for (int o = threadIdx.x; o < MAX_PEERS; o += blockDim.x) {
        taken[o] = 0;
        if (blockIdx.x == 0 && o < r.parts) r.history[o] = __ldcg(r.counts + o);
    }
    __syncthreads();
}
__device__ __forceinline__ void add_taken(const Replies& r, const u32* taken) {
    __syncthreads();
    for (int o = threadIdx.x; o < r.parts; o += blockDim.x)
        if (taken[o]) atomicAdd(r.taken + o, (u64)taken[o]);
}

#ifdef KMAX
struct MergeShared {
    const ID_T* neighbors[LAB_WARPS][32];
    int counts[LAB_WARPS][32];
#if RULE == 1
    int heads[LAB_WARPS][32];
#endif
#if RULE < 3
    int drawn[LAB_WARPS][KMAX * 33];
#else
    const int* slots[LAB_WARPS][32];
#endif
    ID_T staged[LAB_WARPS][LAB_STAGE];
    u32 firsts[LAB_WARPS];
    u32 taken[MAX_PEERS];
};

extern "C" __global__ void __launch_bounds__(LAB_WARPS * 32) merge(const __grid_constant__ Plan p,
                                                                   const __grid_constant__ Replies r, int hop) {
    __shared__ MergeShared s;
    const u32 lane = lab_lane(), warp = threadIdx.x >> 5;
    u32* counters = lab_counters(p, 0);
    const u32 base = p.batches[0].base, batch_id = p.batches[0].batch_id;
    const Hop& h = p.hops[hop];
    const Levels level = lab_levels(p, counters, hop);
    const u64 end = min(min(level.end, h.row_cap), p.node_cap);
    const u32 k = (u32)r.stride;
    const u64 warps = (u64)gridDim.x * LAB_WARPS;
    const u32 per_warp = rows_per_warp(end, warps);
    note_counts(r, s.taken);
    Stage stage{s.staged[warp], 0};
    bool overflow = end < level.end;
    u32 picked = 0;
    // The whole block goes round together: its warps reserve places for new vertices with one atomic.
    for (u64 first = (u64)blockIdx.x * LAB_WARPS * per_warp; first < end; first += warps * per_warp) {
        const u64 row0 = first + (u64)warp * per_warp;
        const u32 mine = row0 < end ? (u32)min((u64)per_warp, end - row0) : 0;
        bool here = false;
        const ID_T* neighbors = nullptr;
        Row row{0, 0, 0, 0};
        if (lane < mine) {
            const u64 place = r.places[row0 + lane], at = (u32)place;
            const u32 owner = (u32)(place >> 32);
            here = r.only < 0 || (int)owner == r.only;
            if (here && at < r.rows[owner]) {
                char* reply = r.data + r.at[owner];
                row = told_row(p.nodes[row0 + lane], reply_heads(reply)[at], r.fanout);
                neighbors = reply_neighbors(reply, r.rows[owner]) + at * k;
#if RULE >= 3
                s.slots[warp][lane] = reply_slots(reply, r.rows[owner], k) + at * k;
#elif RULE != 1
                lab_draw_lane(p, row, r.fanout, batch_id, hop, s.drawn[warp] + lane, 33);
#endif
                picked += row.count;
                if (row.count) atomicAdd(&s.taken[owner], (u32)row.count);
            }
            if (here) {
                h.counts[row0 + lane] = row.count;
                h.starts[row0 + lane] = 0;  // positions of this sample are slots within lists
            }
        }
        s.neighbors[warp][lane] = neighbors;
        s.counts[warp][lane] = row.count;
#if RULE == 1
        s.heads[warp][lane] = row.degree;
        __syncwarp();
        for (u32 i = 0; i < mine; ++i) {  // the work of this rule grows with the degree: the warp shares each row
            const Row shared{(u64)p.nodes[row0 + i], 0, s.heads[warp][i], s.counts[warp][i]};
            lab_draw_group<WarpGroup>(p, shared, r.fanout, batch_id, hop, s.drawn[warp] + i, 33);
        }
#endif
        __syncwarp();
        const u64 out0 = row0 * k;
        const u32 places = mine * k;
        for (u32 e0 = 0; e0 < places; e0 += 128) {
            ID_T u[4];
            bool valid[4], fresh[4];
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const u32 e = e0 + c * 32 + lane, i = e / k, slot = e - i * k;
                valid[c] = e < places && (int)slot < s.counts[warp][i & 31];
                u[c] = valid[c] ? __ldg(s.neighbors[warp][i] + slot) : (ID_T)0;
            }
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                if (!valid[c]) continue;
                const u32 e = e0 + c * 32 + lane, i = e / k, slot = e - i * k;
                h.neighbors[out0 + e] = u[c];
#if RULE >= 3
                h.slots[out0 + e] = __ldg(s.slots[warp][i] + slot);
#else
                h.slots[out0 + e] = s.drawn[warp][slot * 33 + i];
#endif
            }
#pragma unroll
            for (int c = 0; c < 4; ++c) fresh[c] = valid[c] && lab_insert(p.table, 0, base, u[c], overflow);
            if (stage.count > LAB_STAGE - 128) lab_flush(p, 0, base, counters, hop, level.end, stage);
#pragma unroll
            for (int c = 0; c < 4; ++c) lab_push(stage, fresh[c], u[c]);
        }
        lab_flush_block(p, 0, base, counters, hop, level.end, stage, s.firsts);
        __syncwarp();
    }
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    add_taken(r, s.taken);
    lab_count_edges(counters, hop, picked);
}
#else
// A warp per row. Ragged rows have their picks in h.neighbors already, and for weighted rules their slots in h.slots.
template <bool ragged> __device__ __forceinline__ void merge_wide(const Plan& p, const Replies& r, int hop) {
    __shared__ ID_T staged[LAB_WARPS][LAB_STAGE];
    __shared__ u32 taken[MAX_PEERS];
    const u32 lane = lab_lane(), warp = threadIdx.x >> 5;
    u32* counters = lab_counters(p, 0);
    const u32 base = p.batches[0].base, batch_id = p.batches[0].batch_id;
    const Hop& h = p.hops[hop];
    const Levels level = lab_levels(p, counters, hop);
    const u64 end = min(min(level.end, h.row_cap), p.node_cap);
    note_counts(r, taken);
    Stage stage{staged[warp], 0};
    bool overflow = end < level.end;
    u32 picked = 0;
    for (u64 i = (u64)blockIdx.x * LAB_WARPS + warp; i < end; i += (u64)gridDim.x * LAB_WARPS) {
        const u64 place = r.places[i], at = (u32)place;
        const u32 owner = (u32)(place >> 32);
        if (r.only >= 0 && (int)owner != r.only) continue;
        const ID_T v = p.nodes[i];
        Row row{(u64)v, 0, 0, 0};
        u64 out = i * r.stride;
        const ID_T* neighbors = nullptr;
        const int* slots = nullptr;
        if (ragged) {
            const u64 packed = r.at[owner] + at;
            row = told_row(v, r.heads[packed], r.fanout);
            out = r.offsets[packed];
            neighbors = h.neighbors + out;
        } else if (at < r.rows[owner]) {
            char* reply = r.data + r.at[owner];
            row = told_row(v, reply_heads(reply)[at], r.fanout);
            neighbors = reply_neighbors(reply, r.rows[owner]) + at * r.stride;
            slots = reply_slots(reply, r.rows[owner], r.stride) + at * r.stride;
        }
        if (lane == 0) {
            h.counts[i] = row.count;
            h.starts[i] = 0;
            if (!h.stride) h.offsets[i] = out;
            picked += row.count;
            if (row.count) atomicAdd(&taken[owner], (u32)row.count);
        }
#if RULE < 3
        lab_draw_group<WarpGroup>(p, row, r.fanout, batch_id, hop, h.slots + out, 1);
#endif
        for (int j0 = 0; j0 < row.count; j0 += 32) {
            const int j = j0 + (int)lane;
            const bool valid = j < row.count;
            const ID_T u = valid ? neighbors[j] : (ID_T)0;
            if (valid && !ragged) {
                h.neighbors[out + j] = u;
#if RULE >= 3
                h.slots[out + j] = slots[j];
#endif
            }
            const bool fresh = valid && lab_insert(p.table, 0, base, u, overflow);
            if (stage.count > LAB_STAGE - 32) lab_flush(p, 0, base, counters, hop, level.end, stage);
            lab_push(stage, fresh, u);
        }
    }
    lab_flush(p, 0, base, counters, hop, level.end, stage);
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    add_taken(r, taken);
    lab_count_edges(counters, hop, picked);
}

extern "C" __global__ void __launch_bounds__(LAB_WARPS * 32) merge(const __grid_constant__ Plan p,
                                                                   const __grid_constant__ Replies r, int hop) {
    merge_wide<false>(p, r, hop);
}

extern "C" __global__ void __launch_bounds__(LAB_WARPS * 32) merge_ragged(const __grid_constant__ Plan p,
                                                                          const __grid_constant__ Replies r, int hop) {
    merge_wide<true>(p, r, hop);
}
#endif
