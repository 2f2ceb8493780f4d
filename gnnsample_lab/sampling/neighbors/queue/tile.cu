// Strategy `persistent-tile` under all rules but the reservoir (see team.cu): resident warps take up to 32 tasks of any
// hop at a time; each lane draws for one task.
//
// Unlike a block per task, a warp draws for up to 32 tasks with one pass of the generator, spreads their picks over all
// lanes, and updates the queue's counters once for all of them. A warp takes fewer tickets when few tasks wait, so that
// few tasks are spread over many warps.
// Bound: as in expand.cuh, and the rate of atomics on three counters.
// @variants ID_T=int,long RULE=0,2,3,4 TABLE_KIND=0,1,2 TRACE=0,1 KMAX=8,16,32
#include "queue.cuh"

#define LAB_FULL 0xFFFFFFFFu
#define WARPS 4
#ifdef KMAX
#define STAGE (4 * 32)
#else
#define STAGE 64
#endif

struct TileShared {
    i64 starts[WARPS][32];
    u64 outs[WARPS][32];
    int counts[WARPS][32];
    unsigned char hops[WARPS][32];
#ifdef KMAX
    int slots[WARPS][KMAX * 33];
#endif
    u64 staged[WARPS][STAGE + 32];  // hop << 59 | vertex
};

__device__ __forceinline__ void lab_flush_tasks(const Plan& p, u32 b, u32* counters, u32 tag, u64* staged, int& count) {
    if (count == 0) return;
    __syncwarp();
    u32 first = 0;
    if (lab_lane() == 0) {
        atomicAdd(counters + CTR_OUTSTANDING, (u32)count);
        first = atomicAdd(counters + CTR_TAIL, (u32)count);
    }
    first = __shfl_sync(LAB_FULL, first, 0);
    for (int i = lab_lane(); i < count; i += 32) {
        const Task t = lab_task(staged[i]);
        lab_publish(p, b, counters, (u64)first + i, t.hop, tag, t.vertex);
    }
    __syncwarp();
    count = 0;
}

__device__ __forceinline__ void lab_stage_task(const Plan& p, u32 b, u32* counters, u32 tag, u64* staged, int& count,
                                               bool fresh, int hop, u64 v) {
    const u32 mask = __ballot_sync(LAB_FULL, fresh);
    if (count + __popc(mask) > STAGE) lab_flush_tasks(p, b, counters, tag, staged, count);
    if (fresh) staged[count + __popc(mask & ((1u << lab_lane()) - 1))] = LAB_TASK(hop, 0, v);
    count += __popc(mask);
}

// Serve the tasks of the lanes in `ready`.
__device__ void lab_serve_tile(const Plan& p, u32 b, u32* counters, u32 ready, u64 word, u64 ticket, TileShared& s) {
    const u32 lane = lab_lane(), warp = threadIdx.x >> 5;
    const Batch& batch = p.batches[b];
    const u64 started = TRACE ? lab_now() : 0;
    lab_fuzz(p, warp);
    const bool mine = ready >> lane & 1;
    const Task task = lab_task(word);
    const Hop& h = p.hops[mine ? task.hop : 0];
    Row row{0, 0, 0, 0};
    u64 index = 0, offset = 0;
    bool fits = false, overflow = false;
    if (mine) {
        row = lab_row(p, task.vertex, h.fanout);
        // Lanes with tasks of the same hop share one atomic for their row numbers.
        const u32 peers = __match_any_sync(ready, task.hop), leader = __ffs(peers) - 1;
        u32 first = 0;
        if (lane == leader) first = atomicAdd(counters + CTR_ROWS + task.hop, (u32)__popc(peers));
        index = __shfl_sync(peers, first, leader) + __popc(peers & ((1u << lane) - 1));
        fits = lab_reserve(p, counters, task.hop, row.count, index, offset);
        if (fits) {
            const u64 out = (u64)b * h.row_cap + index;
            h.counts[out] = row.count;
            h.starts[out] = row.start;
            h.vertices[out] = (ID_T)task.vertex;
            if (!h.stride) h.offsets[out] = offset;
        } else {
            row.count = 0;
        }
    }
    s.starts[warp][lane] = row.start;
    s.outs[warp][lane] = (u64)b * h.pick_cap + offset;
    s.counts[warp][lane] = row.count;
    s.hops[warp][lane] = (unsigned char)task.hop;
    __syncwarp();
    u64* staged = s.staged[warp];
    int count = 0;
    const bool expands = mine && fits && p.self_reuse && task.hop + 1 < p.num_hops;
    if (__any_sync(LAB_FULL, expands)) {
        const bool again = expands && lab_insert(p.reached[task.hop + 1], b, batch.base, task.vertex, overflow);
        lab_stage_task(p, b, counters, batch.tag, staged, count, again, task.hop + 1, task.vertex);
    }
#ifdef KMAX
    if (mine && fits) lab_draw_lane(p, row, h.fanout, batch.batch_id, task.hop, s.slots[warp] + lane, 33);
    __syncwarp();
    u32 k = row.count;
#pragma unroll
    for (int apart = 16; apart; apart >>= 1) k = max(k, __shfl_xor_sync(LAB_FULL, k, apart));
    const u32 rows = 32 - __clz(ready), picks = rows * k;
    for (u32 e0 = 0; e0 < picks; e0 += 128) {
        ID_T u[4];
        bool fresh[4];
        int hops[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const u32 e = e0 + c * 32 + lane, r = e / k, slot = e - r * k;
            fresh[c] = e < picks && (ready >> (r & 31) & 1) && (int)slot < s.counts[warp][r & 31];
            u[c] = 0;
            hops[c] = 0;
            if (fresh[c]) {
                const int at = s.slots[warp][slot * 33 + r];
                hops[c] = s.hops[warp][r];
                const Hop& to = p.hops[hops[c]];
                u[c] = __ldg(p.indices + s.starts[warp][r] + at);
                to.slots[s.outs[warp][r] + slot] = at;
                to.neighbors[s.outs[warp][r] + slot] = u[c];
            }
        }
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            fresh[c] = fresh[c] && hops[c] + 1 < p.num_hops &&
                       lab_insert(p.reached[hops[c] + 1], b, batch.base, u[c], overflow);
        }
#pragma unroll
        for (int c = 0; c < 4; ++c)
            lab_stage_task(p, b, counters, batch.tag, staged, count, fresh[c], hops[c] + 1, u[c]);
    }
#else
    // Wide hops: the whole warp draws for one row after the other, and positions lie in global memory.
    for (u32 rest = ready; rest; rest &= rest - 1) {
        const int r = __ffs(rest) - 1, hop = s.hops[warp][r];
        Row shared{__shfl_sync(LAB_FULL, row.vertex, r), __shfl_sync(LAB_FULL, row.start, r),
                   __shfl_sync(LAB_FULL, row.degree, r), __shfl_sync(LAB_FULL, row.count, r)};
        if (!shared.count) continue;
        const Hop& to = p.hops[hop];
        const u64 out = s.outs[warp][r];
        lab_draw_group<WarpGroup>(p, shared, to.fanout, batch.batch_id, hop, to.slots + out, 1);
        for (int j0 = 0; j0 < shared.count; j0 += 32) {
            const int j = j0 + lane;
            ID_T u = 0;
            if (j < shared.count) {
                u = __ldg(p.indices + shared.start + __ldcg(to.slots + out + j));
                to.neighbors[out + j] = u;
            }
            const bool fresh = j < shared.count && hop + 1 < p.num_hops &&
                               lab_insert(p.reached[hop + 1], b, batch.base, u, overflow);
            lab_stage_task(p, b, counters, batch.tag, staged, count, fresh, hop + 1, u);
        }
    }
#endif
    lab_flush_tasks(p, b, counters, batch.tag, staged, count);
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    if (mine) {
        if (fits) lab_record(p, b, h, index, ticket, started);
        p.queue[(u64)b * p.queue_cap + ticket] = word | LAB_DONE;
    }
    __syncwarp();
    if (lane == 0) atomicSub(counters + CTR_OUTSTANDING, (u32)__popc(ready));
}

extern "C" __global__ void __launch_bounds__(WARPS * 32) persistent_tile(const __grid_constant__ Plan p) {
    __shared__ TileShared shared;
    const u32 b = blockIdx.y, lane = lab_lane(), warps = gridDim.x * WARPS;
    u32* counters = lab_counters(p, b);
    const u32 tag = p.batches[b].tag;
    // bounded: every pass takes tickets that no other pass takes, and beyond the last task the wait for one ends the warp
    while (true) {
        u32 first = 0, tickets = 1;
        if (lane == 0) {
            const u32 head = lab_read(counters + CTR_HEAD), tail = lab_read(counters + CTR_TAIL);
            tickets = tail > head ? min(max((tail - head) / warps, 1u), 32u) : 1;
            first = atomicAdd(counters + CTR_HEAD, tickets);
        }
        first = __shfl_sync(LAB_FULL, first, 0);
        tickets = __shfl_sync(LAB_FULL, tickets, 0);
        u32 waiting = tickets == 32 ? LAB_FULL : (1u << tickets) - 1;
        Watch watch;
        // bounded: a pass serves a ticket, or the watch ends the wait (all done, an error, nothing in the queue moves)
        while (waiting) {
            u64 word = 0;
            if (waiting >> lane & 1) word = lab_peek(p, b, (u64)first + lane);
            const u32 ready = __ballot_sync(LAB_FULL, (waiting >> lane & 1) && lab_published(word, tag));
            if (ready) {
                lab_serve_tile(p, b, counters, ready, word, (u64)first + lane, shared);
                waiting &= ~ready;
                continue;
            }
            bool over = false;
            if (lane == 0) over = watch.over(counters);
            if (__shfl_sync(LAB_FULL, (int)over, 0)) {
                // This warp must still serve tasks published after it read the slots and before it read the counters.
                bool late = false;
                if (waiting >> lane & 1) late = lab_published(lab_peek(p, b, (u64)first + lane), tag);
                if (!__any_sync(LAB_FULL, late)) return;
                continue;
            }
            lab_nap(32);
        }
    }
}
