// Strategies `persistent`, and `persistent-tile` under the reservoir: resident teams of threads take up to 32 tasks of any
// hop at a time.
//
// TEAM is the number of warps of a team. `persistent` (PGSampler, section III-C): a team is a block. `persistent-tile`:
// a team is a warp. A team spreads the candidates of all its tasks, and then their picks, over all its threads, and
// updates the queue's counters once for all of them. It takes fewer tickets when few tasks wait, so that few tasks are
// spread over many teams.
//
// The reservoir's work is the degree. A hub, a vertex of more than SPLIT candidates, is no work for one team: the team
// that takes its task queues a task for every SPLIT candidates instead. These chunks raise the row's picks in global
// memory; the order does not matter, because the highest candidate of a slot stays. Whoever finishes the last chunk goes
// on with the row.
// Bound: as in expand.cuh, and the rate of atomics on the queue's counters.
// @variants ID_T=int,long RULE=0,1,2,3,4 TABLE_KIND=0,1,2 TRACE=0,1 KMAX=8,16,32 TEAM=1,2,4,8
#include "queue.cuh"

#define LAB_FULL 0xFFFFFFFFu
#define WARPS (TEAM == 1 ? 4 : TEAM)  // of a block
#define STAGE 128
#ifndef SPLIT
#define SPLIT 2048  // a multiple of 4; plan.py has it, too
#endif
// Resident blocks per multiprocessor that the compiler leaves registers for: 64 a thread, where that spills none.
#ifndef MIN_BLOCKS
#if defined(KMAX) && TRACE == 0
#define MIN_BLOCKS (32 / WARPS)
#else
#define MIN_BLOCKS 1
#endif
#endif
#define LAB_CHUNK (1ull << 47)  // flag of a chunk's word, whose vertex is LAB_CHUNK | row << 16 | number of the chunk

struct TeamShared {
    u64 vertices[32];
    i64 starts[32];
    u64 outs[32];
    int degrees[32];
    int takes[32];   // picks that a row draws
    int counts[32];  // picks that it hands on now: none before its last chunk
    unsigned char hops[32];
#ifdef KMAX
    int slots[KMAX * 33];  // [slot][row], padded: writes and reads hit different banks
#if RULE == 1
    Candidates candidates;
#endif
#else
    int firsts[32];
    u64 rows[32];
#endif
    u32 chunks;  // rows that are chunks
    u32 ready;
    u32 most;    // picks of a row, at most
    u32 fresh[WARPS];
};

__device__ __forceinline__ void lab_team_sync() {
    if (TEAM == 1) __syncwarp();
    else __syncthreads();
}

// Publish what a warp has staged at the places from `first` on.
__device__ __forceinline__ void lab_publish_staged(const Plan& p, u32 b, u32* counters, u32 tag, const u64* staged,
                                                   int count, u32 first) {
    for (int i = lab_lane(); i < count; i += 32) {
        const Task t = lab_task(staged[i]);
        lab_publish(p, b, counters, (u64)first + i, t.hop, tag, t.vertex);
    }
    __syncwarp();
}

// Add the vertices of lanes with `fresh` to the warp's staged tasks.
__device__ __forceinline__ void lab_stage_task(const Plan& p, u32 b, u32* counters, u32 tag, u64* staged, int& count,
                                               bool fresh, int hop, u64 v) {
    const u32 mask = __ballot_sync(LAB_FULL, fresh);
    if (count + __popc(mask) > STAGE) {
        __syncwarp();
        u32 first = 0;
        if (lab_lane() == 0) first = lab_enqueue(counters, (u32)count, 0);
        lab_publish_staged(p, b, counters, tag, staged, count, __shfl_sync(LAB_FULL, first, 0));
        count = 0;
    }
    if (fresh) staged[count + __popc(mask & ((1u << lab_lane()) - 1))] = LAB_TASK(hop, 0, v);
    count += __popc(mask);
}

// What the first warp of a team does: a lane looks at each task, reserves its row, and says what there is to draw.
struct Look {
    Row row;
    u64 index;
    int hop;
    bool fits, chunk, hub, last;
};

__device__ __forceinline__ void lab_look_team(const Plan& p, u32 b, u32* counters, const Batch& batch, u32 ready,
                                              u64 word, u64 ticket, u64 started, TeamShared& s, u64* staged, int& count,
                                              bool& overflow, Look& my) {
    const u32 lane = lab_lane();
    const bool mine = ready >> lane & 1;
    const Task task = lab_task(word);
    my.hop = mine ? task.hop : 0;
    const Hop& h = p.hops[my.hop];
    my.row = Row{0, 0, 0, 0};
    my.index = 0;
    my.chunk = RULE == 1 && mine && (task.vertex & LAB_CHUNK);
    my.fits = my.hub = my.last = false;
    u64 offset = 0;
    const bool whole = mine && !my.chunk;
    const u32 wholes = __ballot_sync(LAB_FULL, whole);
    if (whole) {
        my.row = lab_row(p, task.vertex, h.fanout);
        // Lanes with tasks of the same hop share one atomic for their row numbers.
        const u32 peers = __match_any_sync(wholes, task.hop), leader = __ffs(peers) - 1;
        u32 first = 0;
        if (lane == leader) first = atomicAdd(counters + CTR_ROWS + task.hop, (u32)__popc(peers));
        my.index = __shfl_sync(peers, first, leader) + __popc(peers & ((1u << lane) - 1));
        my.fits = lab_reserve(p, counters, task.hop, my.row.count, my.index, offset);
        if (my.fits) {
            const u64 out = (u64)b * h.row_cap + my.index;
            h.counts[out] = my.row.count;
            h.starts[out] = my.row.start;
            h.vertices[out] = (ID_T)task.vertex;
            if (!h.stride) h.offsets[out] = offset;
        } else {
            my.row.count = my.row.degree = 0;
        }
    }
    [[maybe_unused]] int draws = 0, first = 0;
#if RULE == 1
    // A chunk's row is there already: the task of its hub wrote it.
    if (my.chunk) {
        my.index = task.vertex >> 16 & 0x7FFFFFFF;
        const u64 out = (u64)b * h.row_cap + my.index;
        my.row = lab_row(p, (u64)__ldcg(h.vertices + out), h.fanout);
        offset = h.stride ? my.index * h.stride : (u64)__ldcg(h.offsets + out);
        const int begin = (int)(task.vertex & 0xFFFF) * (SPLIT / 4);
        first = max(my.row.count >> 2, begin);
        draws = max(min((my.row.degree + 3) / 4, begin + SPLIT / 4) - first, 0);
    } else if (my.row.count && !lab_takes_all(my.row, h.fanout)) {
        my.hub = my.row.degree > SPLIT && (my.row.degree - 1) / SPLIT < 0x10000;
        first = my.row.count >> 2;
        draws = my.hub ? 0 : (my.row.degree + 3) / 4 - first;
    }
    const u32 hubs = __ballot_sync(LAB_FULL, my.hub);
    if (hubs) {
        const int chunks = (my.row.degree - 1) / SPLIT + 1;
        if (my.hub) h.counts[(u64)b * h.row_cap + my.index] = chunks;  // those not done: the last one writes the picks
        for (u32 rest = hubs; rest; rest &= rest - 1) {
            const int r = __ffs(rest) - 1, k = __shfl_sync(LAB_FULL, my.row.count, r);
            const Hop& to = p.hops[__shfl_sync(LAB_FULL, my.hop, r)];
            int* slots = to.slots + (u64)b * to.pick_cap + __shfl_sync(LAB_FULL, offset, r);
            for (int i = lane; i < k; i += 32) slots[i] = i;
        }
        __threadfence();
        __syncwarp();
        const u32 at = my.hub ? lab_enqueue(counters, (u32)chunks, 0) : 0;
        for (u32 rest = hubs; rest; rest &= rest - 1) {
            const int r = __ffs(rest) - 1, all = __shfl_sync(LAB_FULL, chunks, r);
            const u32 begin = __shfl_sync(LAB_FULL, at, r);
            const u64 row = __shfl_sync(LAB_FULL, my.index, r);
            const int hop = __shfl_sync(LAB_FULL, my.hop, r);
            for (int i = lane; i < all; i += 32)
                lab_publish(p, b, counters, (u64)begin + i, hop, batch.tag, LAB_CHUNK | row << 16 | i);
        }
    }
#endif
    s.vertices[lane] = my.row.vertex;
    s.starts[lane] = my.row.start;
    s.outs[lane] = (u64)b * h.pick_cap + offset;
    s.degrees[lane] = my.row.degree;
    s.takes[lane] = my.row.count;
    s.counts[lane] = my.chunk || my.hub ? 0 : my.row.count;
    s.hops[lane] = (unsigned char)my.hop;
    const u32 chunks = __ballot_sync(LAB_FULL, my.chunk);
    if (lane == 0) s.chunks = chunks;
#ifdef KMAX
#if RULE == 1
    lab_number_candidates(s.candidates, first, draws);
    for (int i = 0; i < my.row.count; ++i) s.slots[i * 33 + lane] = i;
#endif
#else
    s.firsts[lane] = first;
    s.rows[lane] = (u64)b * h.row_cap + my.index;
#endif
    // The vertex of the task is expanded again in the next hop (section IV-B).
    const bool expands = whole && my.fits && p.self_reuse && my.hop + 1 < p.num_hops;
    if (__any_sync(LAB_FULL, expands)) {
        const bool again = expands && lab_insert(p.reached[my.hop + 1], b, batch.base, task.vertex, overflow);
        lab_stage_task(p, b, counters, batch.tag, staged, count, again, my.hop + 1, task.vertex);
    }
#if TRACE
    if (whole && my.fits) lab_record(p, b, h, my.index, ticket, started);
#endif
}

#ifdef KMAX
// Draw for all rows of the team.
__device__ __forceinline__ void lab_draw_team(const Plan& p, u32 batch_id, u32 ready, TeamShared& s) {
    const u32 rank = TEAM == 1 ? lab_lane() : threadIdx.x;
#if RULE == 1
    const u32 total = s.candidates.begins[32];
    for (u32 g = rank; g < total; g += TEAM * 32) {
        const u32 r = lab_row_of_candidates(s.candidates, g);
        const Draws d = lab_draws(p, s.vertices[r], batch_id, s.hops[r]);
        int* wide = s.chunks >> r & 1 ? p.hops[s.hops[r]].slots + s.outs[r] : nullptr;
        lab_reservoir_group(d, s.takes[r], s.degrees[r], (int)g + s.candidates.firsts[r], [&](u32 slot, int j) {
            if (wide) atomicMax(wide + slot, j);
            else atomicMax(&s.slots[slot * 33 + r], j);
        });
    }
#elif RULE == 0
    if (TEAM > 1) {  // a warp for a row: all warps have work when a team has few rows
        const u32 warp = threadIdx.x >> 5, rows = 32 - __clz(ready);
        for (u32 r = warp; r < rows; r += TEAM) {
            const Row row{s.vertices[r], s.starts[r], s.degrees[r], s.takes[r]};
            if (row.count)
                lab_draw_group<WarpGroup>(p, row, p.hops[s.hops[r]].fanout, batch_id, s.hops[r], s.slots + r, 33);
        }
        return;
    }
#endif
#if RULE != 1
    const u32 r = lab_lane();
    // A row for a lane; the warps of a team share the rows.
    if (ready >> r & 1 && (TEAM == 1 || r * TEAM / 32 == threadIdx.x >> 5)) {
        const Row row{s.vertices[r], s.starts[r], s.degrees[r], s.takes[r]};
        if (row.count) lab_draw_lane(p, row, p.hops[s.hops[r]].fanout, batch_id, s.hops[r], s.slots + r, 33);
    }
#endif
}
#endif

// Serve the tasks of the lanes in `ready`; `word` and `first` (the first lane's ticket) matter in the first warp only.
__device__ void lab_serve_team(const Plan& p, u32 b, u32* counters, u32 ready, u64 word, u64 first, TeamShared& s,
                               u64* staged) {
    const u32 lane = lab_lane(), warp = threadIdx.x >> 5;
    const bool lead = TEAM == 1 || warp == 0;
    const Batch& batch = p.batches[b];
    const u64 started = TRACE ? lab_now() : 0;
    lab_fuzz(p, warp);
    int count = 0;
    bool overflow = false;
    Look my;
    if (lead) {
        lab_look_team(p, b, counters, batch, ready, word, first + lane, started, s, staged, count, overflow, my);
        u32 most = my.row.count;
#pragma unroll
        for (int apart = 16; apart; apart >>= 1) most = max(most, __shfl_xor_sync(LAB_FULL, most, apart));
        if (lane == 0) s.most = most;
    }
    lab_team_sync();
#ifdef KMAX
    lab_draw_team(p, batch.batch_id, ready, s);
    lab_team_sync();
#if RULE == 1
    if (s.chunks) {
        __threadfence();
        lab_team_sync();
        if (lead && my.chunk) {
            const Hop& h = p.hops[my.hop];
            const u64 out = (u64)b * h.row_cap + my.index;
            if (atomicSub(h.counts + out, 1) == 1) {
                __threadfence();
                h.counts[out] = my.row.count;
                for (int i = 0; i < my.row.count; ++i) s.slots[i * 33 + lane] = __ldcg(h.slots + s.outs[lane] + i);
                s.counts[lane] = my.row.count;
                my.last = true;
            }
        }
        lab_team_sync();
    }
#endif
    // (e * magic) >> 16 is e / k for all e < 32 * k, as k <= 32
    const u32 k = s.most, magic = 65536 / max(k, 1u) + 1, picks = (32 - __clz(ready)) * k;
    for (u32 e0 = TEAM == 1 ? 0 : warp * 128; e0 < picks; e0 += TEAM * 128) {
        ID_T u[4];
        bool fresh[4];
        int hops[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const u32 e = e0 + c * 32 + lane, r = (e * magic) >> 16 & 31, slot = e - r * k;
            fresh[c] = e < picks && (int)slot < s.counts[r];
            u[c] = 0;
            hops[c] = 0;
            if (fresh[c]) {
                const int at = s.slots[slot * 33 + r];
                hops[c] = s.hops[r];
                const Hop& to = p.hops[hops[c]];
                u[c] = __ldg(p.indices + s.starts[r] + at);
                to.slots[s.outs[r] + slot] = at;
                to.neighbors[s.outs[r] + slot] = u[c];
            }
        }
#pragma unroll
        for (int c = 0; c < 4; ++c)
            fresh[c] = fresh[c] && hops[c] + 1 < p.num_hops &&
                       lab_insert(p.reached[hops[c] + 1], b, batch.base, u[c], overflow);
#pragma unroll
        for (int c = 0; c < 4; ++c)
            lab_stage_task(p, b, counters, batch.tag, staged, count, fresh[c], hops[c] + 1, u[c]);
    }
#else
    // Wide hops: a warp draws for one row after the other, and positions lie in global memory.
    u32 at = 0, lasts = 0;
    for (u32 rest = ready; rest; rest &= rest - 1, ++at) {
        if (TEAM > 1 && at % TEAM != warp) continue;
        const int r = __ffs(rest) - 1, hop = s.hops[r];
        const Hop& to = p.hops[hop];
        const u64 out = s.outs[r];
        const Row row{s.vertices[r], s.starts[r], s.degrees[r], s.takes[r]};
        int handed = s.counts[r];
#if RULE == 1
        if (s.chunks >> r & 1) {
            // The chunk ends with a multiple of SPLIT, or with the list.
            const int end = min(row.degree, (s.firsts[r] * 4 / SPLIT + 1) * SPLIT);
            lab_reservoir(lab_draws(p, row.vertex, batch.batch_id, hop), row.count, end, to.slots + out, 1,
                          s.firsts[r] - (row.count >> 2) + lane, 32);
            __threadfence();
            __syncwarp();
            int left = 0;
            if (lane == 0) left = atomicSub(to.counts + s.rows[r], 1);
            if (__shfl_sync(LAB_FULL, left, 0) != 1) continue;
            __threadfence();
            if (lane == 0) to.counts[s.rows[r]] = row.count;
            handed = row.count;
            lasts |= 1u << r;
        }
#endif
        if (!handed) continue;
        if (!(lasts >> r & 1)) lab_draw_group<WarpGroup>(p, row, to.fanout, batch.batch_id, hop, to.slots + out, 1);
        for (int j0 = 0; j0 < handed; j0 += 32) {
            const int j = j0 + lane;
            ID_T u = 0;
            if (j < handed) {
                u = __ldg(p.indices + row.start + __ldcg(to.slots + out + j));
                to.neighbors[out + j] = u;
            }
            const bool fresh = j < handed && hop + 1 < p.num_hops &&
                               lab_insert(p.reached[hop + 1], b, batch.base, u, overflow);
            lab_stage_task(p, b, counters, batch.tag, staged, count, fresh, hop + 1, u);
        }
#if TRACE
        if (lane == 0) lab_ended(to, s.rows[r]);
#endif
    }
#endif
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    if (lead && (ready >> lane & 1)) {
#if TRACE && defined(KMAX)
        const Hop& h = p.hops[my.hop];
        if (my.last || (my.fits && !my.hub)) lab_ended(h, (u64)b * h.row_cap + my.index);
#endif
        p.queue[(u64)b * p.queue_cap + first + lane] = word | LAB_DONE;
    }
    // All of the team's tasks with one atomic, which also takes those that are done off the outstanding ones.
    __syncwarp();
    u32 at0 = 0;
    if (TEAM == 1) {
        if (lane == 0) at0 = lab_enqueue(counters, (u32)count, (u32)__popc(ready));
        at0 = __shfl_sync(LAB_FULL, at0, 0);
    } else {
        if (lane == 0) s.fresh[warp] = count;
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 total = 0;
            for (int w = 0; w < WARPS; ++w) total += s.fresh[w];
            s.most = lab_enqueue(counters, total, (u32)__popc(ready));
        }
        __syncthreads();
        at0 = s.most;
        for (u32 w = 0; w < warp; ++w) at0 += s.fresh[w];
    }
    lab_publish_staged(p, b, counters, batch.tag, staged, count, at0);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) serve_teams(const __grid_constant__ Plan p) {
    __shared__ TeamShared shared[WARPS / TEAM];
    __shared__ u64 staged[WARPS][STAGE];
    lab_follow();
    const u32 b = blockIdx.y, lane = lab_lane(), warp = threadIdx.x >> 5, teams = gridDim.x * (WARPS / TEAM);
    u32* counters = lab_counters(p, b);
    const u32 tag = p.batches[b].tag;
    TeamShared& s = shared[TEAM == 1 ? warp : 0];
    u32 first = 0, waiting = 0;
    Watch watch;
    // bounded: every pass serves tickets that no other pass takes, and beyond the last task the wait for one ends the team
    while (true) {
        u32 ready = 0;
        u64 word = 0;
        if (TEAM == 1 || warp == 0) {
            if (!waiting) {
                u32 tickets = 1;
                if (lane == 0) {
                    const u32 head = lab_read(counters + CTR_HEAD), tail = lab_read(counters + CTR_TAIL);
                    tickets = tail > head ? min(max((tail - head) / teams, 1u), (u32)p.fetch_size) : 1;
                    first = atomicAdd(counters + CTR_HEAD, tickets);
                }
                first = __shfl_sync(LAB_FULL, first, 0);
                tickets = __shfl_sync(LAB_FULL, tickets, 0);
                waiting = tickets == 32 ? LAB_FULL : (1u << tickets) - 1;
                watch = Watch();
            }
            // bounded: some ticket is served, or the watch ends the wait (all done, an error, nothing in the queue moves)
            for (bool over = false;;) {
                word = waiting >> lane & 1 ? lab_peek(p, b, (u64)first + lane) : 0;
                ready = __ballot_sync(LAB_FULL, (waiting >> lane & 1) && lab_published(word, tag));
                // A task may have been published between the look at the slots and the look at the counters: look again.
                if (ready || over) break;
                if (lane == 0) over = watch.over(counters);
                over = __shfl_sync(LAB_FULL, (int)over, 0);
                if (!over) lab_nap(32);
            }
            waiting &= ~ready;
            if (TEAM > 1 && lane == 0) s.ready = ready;
        }
        if (TEAM > 1) {
            __syncthreads();
            ready = s.ready;
        }
        if (!ready) return;
        lab_serve_team(p, b, counters, ready, word, first, s, staged[warp]);
    }
}
