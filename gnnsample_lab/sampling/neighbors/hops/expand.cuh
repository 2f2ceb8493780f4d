// One hop, for any number of mini-batches: draw for every row of the frontier, write the picks, append the vertices
// that are reached for the first time. hop.cu (a kernel per hop) and grid_barrier.cu (all hops in one kernel) use it.
//
// Bound: three dependent reads from memory per pick (vertex, its indptr pair, the neighbour) and one atomic on a table
// that fits the L2 cache. Therefore a warp draws for up to 32 rows at once, one row per lane, which keeps every lane
// busy in the generator. Afterwards the warp spreads the picks over its lanes, four picks per lane in flight.
#ifndef LAB_EXPAND
#define LAB_EXPAND
#include "draw.cuh"
#include "fresh.cuh"

// SHARES_HUBS: a source sets it to 1 that has a kernel for the hubs of a hop (hubs.cuh) behind that of the hop.
#ifndef SHARES_HUBS
#define SHARES_HUBS 0
#endif
#define LAB_LISTS_HUBS (SHARES_HUBS && RULE == 1)
#if LAB_LISTS_HUBS
#include "hubs.cuh"
#endif

// Resident blocks per multiprocessor that the compiler leaves registers for.
#if defined(KMAX) && KMAX > 16
#define MIN_BLOCKS 3
#else
#define MIN_BLOCKS 4
#endif
#define LAB_HUB 2048  // reservoir rows above this degree that are not listed (hubs.cuh) are drawn by the whole block

__device__ __forceinline__ void lab_stamp(const Hop& hop, u64 row, u64 enqueued, u64 started) {
#if TRACE
    u64* record = hop.trace + row * 4;
    record[0] = enqueued;
    record[1] = started;
    record[2] = lab_now();
    record[3] = (u64)lab_sm() << 32 | blockIdx.x;
#endif
}

// The end of a row whose stamp is there already.
__device__ __forceinline__ void lab_end_of_hub(const Hop& hop, u64 row) {
#if TRACE
    if (lab_lane() == 0) {
        hop.trace[row * 4 + 2] = lab_now();
        hop.trace[row * 4 + 3] = (u64)lab_sm() << 32 | blockIdx.x;
    }
#endif
}

// Whether the hop only marks its fresh vertices, which rank_words lists later.
__device__ __forceinline__ bool lab_marks_only(const Plan& p, int hop) {
    return TABLE_KIND == 1 && p.sorted_last && hop + 1 == p.num_hops;
}

// Add the fresh vertices of all lanes of a warp to the hop's counter.
__device__ __forceinline__ void lab_count_fresh(u32* counters, int hop, u32 found) {
#pragma unroll
    for (int apart = 16; apart; apart >>= 1) found += __shfl_xor_sync(LAB_FULL, found, apart);
    if (lab_lane() == 0 && found) atomicAdd(counters + CTR_FRESH + hop, found);
}

// A warp reads the neighbours at the positions of one row, which lie in global memory from `at` on, and finds those that
// are fresh.
__device__ __forceinline__ void lab_gather(const Plan& p, u32 b, u32 base, u32* counters, int hop, u64 level_end,
                                           const Row& row, u64 at, Stage& stage, u32& found, bool& overflow) {
    const Hop& h = p.hops[hop];
    const bool relabel = hop + 1 < p.num_hops || p.relabel_last, marks = lab_marks_only(p, hop);
    for (int j0 = 0; j0 < row.count; j0 += 32) {
        const int j = j0 + lab_lane();
        ID_T u = 0;
        if (j < row.count) {
            u = __ldg(p.indices + row.start + __ldcg(h.slots + at + j));
            h.neighbors[at + j] = u;
        }
        if (!relabel) continue;
        const bool fresh = j < row.count && lab_insert(p.table, b, base, u, overflow);
        if (marks) {
            found += fresh;
            continue;
        }
        if (stage.count > LAB_STAGE - 32) lab_flush(p, b, base, counters, hop, level_end, stage);
        lab_push(stage, fresh, u);
    }
}

#if LAB_LISTS_HUBS
// Draw a warp's share of the hubs that lab_expand has listed, and write the picks of those that it finishes.
__device__ __forceinline__ void lab_expand_hubs(const Plan& p, int hop, ID_T* staged) {
    const u32 b = blockIdx.y;
    u32* counters = lab_counters(p, b);
    const Batch& batch = p.batches[b];
    const Hop& h = p.hops[hop];
    const Levels level = lab_levels(p, counters, hop);
    Stage stage{staged, 0};
    bool overflow = false;
    u32 found = 0;
    lab_share_hubs(
        p, b, counters, batch.batch_id, hop, (u64)blockIdx.x * LAB_WARPS + (threadIdx.x >> 5),
        (u64)gridDim.x * LAB_WARPS,
        [&](u32 index, int*& slots) {
            const u64 at = h.stride ? (u64)index * h.stride : (u64)__ldcg(h.offsets + (u64)b * h.row_cap + index);
            slots = h.slots + (u64)b * h.pick_cap + at;
            return lab_row(p, p.nodes[(u64)b * p.node_cap + level.begin + index], h.fanout);
        },
        [&](u32 index, const Row& row, int* slots) {
            lab_gather(p, b, batch.base, counters, hop, level.end, row, slots - h.slots, stage, found, overflow);
            lab_end_of_hub(h, (u64)b * h.row_cap + index);
        });
    lab_flush(p, b, batch.base, counters, hop, level.end, stage);
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    if (lab_marks_only(p, hop)) lab_count_fresh(counters, hop, found);
}
#endif

// Weighted draws with replacement do not depend on one another, so a lane makes a pick and not a row: where a warp has
// few rows, all lanes draw. All records of four picks are asked for before the first is used.
#define LAB_FLAT (RULE == 4)

#ifdef KMAX
struct HopShared {
    i64 starts[LAB_WARPS][32];
    int counts[LAB_WARPS][32];
#if LAB_FLAT
    Row rows[LAB_WARPS][32];
    WeightedRow weights[LAB_WARPS][32];
#else
    int slots[LAB_WARPS][KMAX * 33];  // [slot][row], padded: writes and reads hit different banks
#endif
    ID_T staged[LAB_WARPS][LAB_STAGE];
    u32 firsts[LAB_WARPS];
#if RULE == 1
    ID_T vertices[LAB_WARPS][32];
    int degrees[LAB_WARPS][32];
    Candidates candidates[LAB_WARPS];
    unsigned short hubs[LAB_WARPS * 32];
    int num_hubs;
#endif
};

__device__ void lab_expand(const Plan& p, int hop, HopShared& s) {
    const u32 b = blockIdx.y, lane = lab_lane(), warp = threadIdx.x >> 5;
    u32* counters = lab_counters(p, b);
    const Batch& batch = p.batches[b];
    const u32 base = batch.base, batch_id = batch.batch_id;
    const Hop& h = p.hops[hop];
    const Levels level = lab_levels(p, counters, hop);
    const u64 end = min(min(level.end, level.begin + h.row_cap), p.node_cap);
    const bool relabel = hop + 1 < p.num_hops || p.relabel_last;
    const u32 k = h.stride, magic = 65536 / k + 1;  // (e * magic) >> 16 is e / k for all e < 32 * k, as k <= 32
    // As few rounds as 32 rows per warp allow, with the rows spread evenly over the warps of all rounds.
    const u64 warps = (u64)gridDim.x * LAB_WARPS, rows = level.end - level.begin;
    const u64 slots = warps * max((rows + warps * 32 - 1) / (warps * 32), 1ull);
    const u32 per_warp = (u32)max((rows + slots - 1) / slots, 1ull);
    Stage stage{s.staged[warp], 0};
    bool overflow = end < level.end;
    const bool marks = lab_marks_only(p, hop);
    u32 picked = 0, found = 0;

    for (u64 first = level.begin + (u64)blockIdx.x * LAB_WARPS * per_warp; first < end;
         first += (u64)gridDim.x * LAB_WARPS * per_warp) {
        const u64 row0 = first + warp * per_warp;
        const int mine = row0 < end ? (int)min((u64)per_warp, end - row0) : 0;
        const u64 started = TRACE ? lab_now() : 0;
        lab_fuzz(p, warp);
        Row row{0, 0, 0, 0};
        if ((int)lane < mine) {
            row = lab_row(p, p.nodes[(u64)b * p.node_cap + row0 + lane], h.fanout);
            const u64 out = (u64)b * h.row_cap + (row0 - level.begin) + lane;
            h.counts[out] = row.count;
            h.starts[out] = LAB_FIRST_POSITION(row);
            picked += row.count;
        }
        s.starts[warp][lane] = row.start;
        s.counts[warp][lane] = row.count;
#if RULE == 1
        s.vertices[warp][lane] = (ID_T)row.vertex;
        s.degrees[warp][lane] = row.degree;
        if (threadIdx.x == 0) s.num_hubs = 0;
        __syncthreads();
        bool draws = row.count && !lab_takes_all(row, h.fanout);
#if LAB_LISTS_HUBS
        const u64 index = row0 - level.begin + lane;
        if (lab_is_hub(p, row, h.fanout) && lab_list_hub(p, b, counters, hop, index, row)) {
            int* places = h.slots + ((u64)b * h.row_cap + index) * k;
            for (int i = 0; i < row.count; ++i) places[i] = i;
            s.counts[warp][lane] = 0;  // this kernel has no picks of it
            draws = false;
        }
#endif
        const bool hub = draws && row.degree > LAB_HUB;
        const int begin = row.count >> 2;
        lab_number_candidates(s.candidates[warp], begin, draws && !hub ? (row.degree + 3) / 4 - begin : 0);
        for (int i = 0; i < row.count; ++i) s.slots[warp][i * 33 + lane] = i;
        if (hub) s.hubs[atomicAdd(&s.num_hubs, 1)] = warp << 5 | lane;
        __syncwarp();
        for (u32 g = lane; g < s.candidates[warp].begins[32]; g += 32) {
            const u32 r = lab_row_of_candidates(s.candidates[warp], g);
            const Draws d = lab_draws(p, s.vertices[warp][r], batch_id, hop);
            lab_reservoir_group(d, s.counts[warp][r], s.degrees[warp][r], (int)g + s.candidates[warp].firsts[r],
                                [&](u32 slot, int j) { atomicMax(&s.slots[warp][slot * 33 + r], j); });
        }
        __syncthreads();
        for (int i = 0; i < s.num_hubs; ++i) {
            const int w = s.hubs[i] >> 5, r = s.hubs[i] & 31;
            lab_reservoir(lab_draws(p, s.vertices[w][r], batch_id, hop), s.counts[w][r], s.degrees[w][r],
                          s.slots[w] + r, 33, threadIdx.x, blockDim.x);
        }
        __syncthreads();
#else
#if LAB_FLAT
        s.rows[warp][lane] = row;
        if ((int)lane < mine && row.count) s.weights[warp][lane] = lab_weighted_row(p, row);
#else
        if ((int)lane < mine) lab_draw_lane(p, row, h.fanout, batch_id, hop, s.slots[warp] + lane, 33);
#endif
        __syncwarp();
#endif
        const u64 out0 = (u64)b * h.row_cap * k + (row0 - level.begin) * k;
        const u32 picks = mine * k;
        for (u32 e0 = 0; e0 < picks; e0 += 128) {
            ID_T u[4];
            bool valid[4], fresh[4];
#if LAB_FLAT
            u64 target[4];
            uint4 record[4];
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const u32 e = e0 + c * 32 + lane, r = (e * magic) >> 16, slot = e - r * k;
                target[c] = 0;
                record[c] = make_uint4(0, 0, 0, 0);
                if (e >= picks || (int)slot >= s.counts[warp][r & 31]) continue;
                const WeightedRow& w = s.weights[warp][r];
                target[c] = lab_bounded64(lab_draws(p, s.rows[warp][r].vertex, batch_id, hop), slot, w.total);
                if (w.guide) record[c] = __ldg(w.guide + (target[c] >> w.shift));
            }
#endif
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const u32 e = e0 + c * 32 + lane, r = (e * magic) >> 16, slot = e - r * k;
                valid[c] = e < picks && (int)slot < s.counts[warp][r & 31];
                u[c] = 0;
                if (valid[c]) {
#if LAB_FLAT
                    const WeightedRow& w = s.weights[warp][r];
                    const Row& drawn = s.rows[warp][r];
                    const int at = w.guide ? lab_guided(record[c], w.guide, w.list, drawn.degree, w.base, w.total,
                                                          w.shift, target[c])
                                             : lab_search(w.prefix, drawn, w.base + target[c]);
#else
                    const int at = s.slots[warp][slot * 33 + r];
#endif
                    u[c] = __ldg(p.indices + s.starts[warp][r] + at);
                    h.slots[out0 + e] = at;
                }
            }
            // show: grow a frontier
#pragma unroll
            for (int c = 0; c < 4; ++c)
                if (valid[c]) h.neighbors[out0 + e0 + c * 32 + lane] = u[c];
            if (!relabel) continue;
#pragma unroll
            for (int c = 0; c < 4; ++c) fresh[c] = valid[c] && lab_insert(p.table, b, base, u[c], overflow);
            if (marks) {
#pragma unroll
                for (int c = 0; c < 4; ++c) found += fresh[c];
                continue;
            }
            if (stage.count > LAB_STAGE - 128) lab_flush(p, b, base, counters, hop, level.end, stage);
#pragma unroll
            for (int c = 0; c < 4; ++c) lab_push(stage, fresh[c], u[c]);
            // end: grow a frontier
        }
        if (relabel && !marks) lab_flush_block(p, b, base, counters, hop, level.end, stage, s.firsts);
        if (TRACE && (int)lane < mine) lab_stamp(h, (u64)b * h.row_cap + (row0 - level.begin) + lane, started, started);
        __syncwarp();
    }
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    if (marks) lab_count_fresh(counters, hop, found);
    lab_count_edges(counters, hop, picked);
}
#else
// Wide hops (fanout above 32, or all in-neighbours): a warp per row, which draws positions in global memory.
struct HopShared {
    ID_T staged[LAB_WARPS][LAB_STAGE];
};

__device__ void lab_expand(const Plan& p, int hop, HopShared& s) {
    const u32 b = blockIdx.y, lane = lab_lane(), warp = threadIdx.x >> 5;
    u32* counters = lab_counters(p, b);
    const Batch& batch = p.batches[b];
    const u32 base = batch.base, batch_id = batch.batch_id;
    const Hop& h = p.hops[hop];
    const Levels level = lab_levels(p, counters, hop);
    const u64 end = min(min(level.end, level.begin + h.row_cap), p.node_cap);
    Stage stage{s.staged[warp], 0};
    bool overflow = end < level.end;
    const bool marks = lab_marks_only(p, hop);
    u32 picked = 0, found = 0;
    for (u64 at = level.begin + (u64)blockIdx.x * LAB_WARPS + warp; at < end; at += (u64)gridDim.x * LAB_WARPS) {
        const u64 started = TRACE ? lab_now() : 0;
        lab_fuzz(p, warp);
        Row row = lab_row(p, p.nodes[(u64)b * p.node_cap + at], h.fanout);
        const u64 out = (u64)b * h.row_cap + (at - level.begin);
        u64 offset = (at - level.begin) * (u64)h.stride;
        if (h.stride == 0) {
            if (lane == 0) offset = atomicAdd((u64*)(counters + CTR_CURSOR) + hop, (u64)row.count);
            offset = __shfl_sync(LAB_FULL, offset, 0);
            if (offset + row.count > h.pick_cap) {
                overflow = true;
                row.count = 0;
                offset = 0;
            }
        }
        if (lane == 0) {
            picked += row.count;
            h.counts[out] = row.count;
            h.starts[out] = LAB_FIRST_POSITION(row);
            if (h.stride == 0) h.offsets[out] = offset;
        }
        offset += (u64)b * h.pick_cap;
        bool listed = false;
#if LAB_LISTS_HUBS
        if (lane == 0 && lab_is_hub(p, row, h.fanout))
            listed = lab_list_hub(p, b, counters, hop, at - level.begin, row);
        listed = __shfl_sync(LAB_FULL, listed, 0);
#endif
        if (listed) {
            for (int i = lane; i < row.count; i += 32) h.slots[offset + i] = i;
        } else {
            lab_draw_group<WarpGroup>(p, row, h.fanout, batch_id, hop, h.slots + offset, 1);
            lab_gather(p, b, base, counters, hop, level.end, row, offset, stage, found, overflow);
            lab_flush(p, b, base, counters, hop, level.end, stage);
        }
        if (lane == 0) lab_stamp(h, out, started, started);
    }
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    if (marks) lab_count_fresh(counters, hop, found);
    lab_count_edges(counters, hop, picked);
}
#endif
#endif
