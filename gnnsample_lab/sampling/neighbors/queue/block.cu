// Strategy `fused-static`, and `persistent` as published, by the knob `queue_teams` or under the published rule of
// completion (else: team.cu): a block serves one task at a time, of any hop.
//
// `persistent` (PGSampler, section III-C): resident blocks loop; block b starts with ticket b, then takes
// `fetch_size` tickets at a time. `fused-static` (PGSampler's baseline DGL+Fusion, section V-D): there are as many
// blocks as there can be tasks; each block takes one ticket, serves it and ends.
// Bound: one dependent chain (ticket, task, indptr, draw, neighbour, stamp, publish) per task and block.
// @variants ID_T=int,long RULE=0,1,2,3,4 TABLE_KIND=0,1,2 TRACE=0,1
#include "queue.cuh"

#define SLOTS 256
#define BLOCKS_PER_SM 5  // resident blocks (of 256 threads) per multiprocessor that the compiler leaves registers for

// What a block knows about one ticket of a fetch. Lanes read all tickets of a fetch at once, so that task, row number
// and adjacency of all of them cost one latency each.
struct Fetched {
    u64 word;
    i64 start;
    int degree;
    int count;
    u32 number;
    u32 unused;
};

struct BlockShared {
    u64 word;
    u64 offset;
    u64 base;
    u32 row;
    u32 fresh;
    u32 stop;
    u32 limit;
    u32 done;  // tasks finished but not yet taken off the outstanding count
    int slots[SLOTS];
    ID_T staged[SLOTS + 1];
};

// Read what a block needs before it serves a published task. Each lane in `mask` does this for a task of its own. Lanes
// with tasks of the same hop share one atomic for their row numbers, because all tasks of a hop add to one address.
__device__ __forceinline__ void lab_look(const Plan& p, u32* counters, u32 mask, u64 word, Fetched& f) {
    const Task task = lab_task(word);
    const u32 lane = threadIdx.x & 31, peers = __match_any_sync(mask, task.hop), leader = __ffs(peers) - 1;
    u32 first = 0;
    if (lane == leader) first = atomicAdd(counters + CTR_ROWS + task.hop, (u32)__popc(peers));
    f.number = __shfl_sync(peers, first, leader) + __popc(peers & ((1u << lane) - 1));
    const Row row = lab_row(p, task.vertex, p.hops[task.hop].fanout);
    f.start = row.start;
    f.degree = row.degree;
    f.count = row.count;
    f.word = word;
}

// Serve one task with the whole block.
__device__ void lab_serve(const Plan& p, u32 b, u32* counters, const Fetched& f, u64 ticket, BlockShared& s) {
    const Batch& batch = p.batches[b];
    const u64 word = f.word;
    const Task task = lab_task(word);
    const Hop& h = p.hops[task.hop];
    const u64 started = TRACE ? lab_now() : 0;
    lab_fuzz(p, (u32)ticket);
    const Row row{task.vertex, f.start, f.degree, f.count};
    if (threadIdx.x == 0) {
        s.row = f.number;
        s.stop = !lab_reserve(p, counters, task.hop, row.count, s.row, s.offset);
        s.fresh = 0;
        if (!s.stop) {
            const u64 out = (u64)b * h.row_cap + s.row;
            h.counts[out] = row.count;
            h.starts[out] = row.start;
            h.vertices[out] = (ID_T)task.vertex;
            if (!h.stride) h.offsets[out] = s.offset;
        }
    }
    __syncthreads();
    if (s.stop) return;
    const u64 out = (u64)b * h.pick_cap + s.offset;
    const bool small = row.count <= SLOTS;
    if (small) lab_draw_group<BlockGroup>(p, row, h.fanout, batch.batch_id, task.hop, s.slots, 1);
    else lab_draw_group<BlockGroup>(p, row, h.fanout, batch.batch_id, task.hop, h.slots + out, 1);
    const bool expand = task.hop + 1 < p.num_hops;
    bool overflow = false;
    for (int j0 = 0; j0 < row.count || (j0 == 0 && expand); j0 += SLOTS) {
        for (int j = j0 + threadIdx.x; j < min(row.count, j0 + SLOTS); j += blockDim.x) {
            const int at = small ? s.slots[j] : __ldcg(h.slots + out + j);
            const ID_T u = __ldg(p.indices + row.start + at);
            h.neighbors[out + j] = u;
            if (small) h.slots[out + j] = at;
            if (expand && lab_insert(p.reached[task.hop + 1], b, batch.base, u, overflow))
                s.staged[atomicAdd(&s.fresh, 1u)] = u;
        }
        if (!expand) continue;
        // The vertex of the finished task is expanded again in the next hop (section IV-B).
        if (p.self_reuse && j0 == 0 && threadIdx.x == blockDim.x - 1 &&
            lab_insert(p.reached[task.hop + 1], b, batch.base, task.vertex, overflow))
            s.staged[atomicAdd(&s.fresh, 1u)] = (ID_T)task.vertex;
        __syncthreads();
        const u32 fresh = s.fresh;
        if (fresh) {
            // show: publish a task
            if (threadIdx.x == 0) {
                s.base = lab_enqueue(counters, fresh, s.done);
                s.done = 0;
            }
            __syncthreads();
            for (u32 i = threadIdx.x; i < fresh; i += blockDim.x)
                lab_publish(p, b, counters, s.base + i, task.hop + 1, batch.tag, s.staged[i]);
            // end: publish a task
            __syncthreads();
            if (threadIdx.x == 0) s.fresh = 0;
        }
        __syncthreads();
    }
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    if (threadIdx.x == 0) {
        lab_record(p, b, h, s.row, ticket, started);
        p.queue[(u64)b * p.queue_cap + ticket] = word | LAB_DONE;
        ++s.done;
    }
}

// Thread 0: subtract finished tasks from the outstanding count. This happens once per fetch, and always before a wait,
// because other blocks may wait for the count to reach zero.
__device__ __forceinline__ void lab_settle(u32* counters, BlockShared& s) {
    if (s.done) atomicSub(counters + CTR_OUTSTANDING, s.done);
    s.done = 0;
}

// Wait until the ticket's slot is published; false when all work is done or the run has failed.
__device__ bool lab_await(const Plan& p, u32 b, u32* counters, u64 ticket, BlockShared& s) {
    if (threadIdx.x == 0) {
        const u32 tag = p.batches[b].tag;
        Watch watch;
        // show: detect the end
        lab_settle(counters, s);
        s.stop = 0;
        // bounded: the watch ends it when all is done, after an error, and when nothing in the whole queue moves
        while (!lab_published(s.word = lab_peek(p, b, ticket), tag)) {
            // The task may have been published after the first look at the slot and before `over` read the counters, so
            // look once more.
            if (watch.over(counters) && !lab_published(s.word = lab_peek(p, b, ticket), tag)) {
                s.stop = 1;
                break;
            }
            lab_nap(100);
        }
        // end: detect the end
    }
    __syncthreads();
    const bool go = !s.stop;
    __syncthreads();
    return go;
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS_PER_SM) fused_static(const __grid_constant__ Plan p) {
    __shared__ BlockShared s;
    __shared__ u32 ticket;
    u32* counters = lab_counters(p, blockIdx.y);
    // A ticket and not blockIdx selects the task, so that a block only waits for blocks that already run.
    if (threadIdx.x == 0) {
        ticket = atomicAdd(counters + CTR_HEAD, 1u);
        s.done = 0;
    }
    __syncthreads();
    if (!lab_await(p, blockIdx.y, counters, ticket, s)) return;
    __shared__ Fetched fetched;
    if (threadIdx.x == 0) lab_look(p, counters, 1u, s.word, fetched);
    __syncthreads();
    lab_serve(p, blockIdx.y, counters, fetched, ticket, s);
    if (threadIdx.x == 0) lab_settle(counters, s);
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS_PER_SM) persistent(const __grid_constant__ Plan p) {
    __shared__ BlockShared s;
    __shared__ u32 first;
    extern __shared__ __align__(8) unsigned char dynamic[];
    Fetched* fetched = (Fetched*)dynamic;  // [fetch_size]
    const u32 b = blockIdx.y;
    u32* counters = lab_counters(p, b);
    const u32 tag = p.batches[b].tag;
    u32 ticket = blockIdx.x, tickets = 1;
    if (threadIdx.x == 0) {
        s.done = 0;
        s.limit = lab_acquire(counters + CTR_TAIL);
    }
    __syncthreads();
    // bounded: every pass takes tickets that no other pass takes; beyond the last task the wait for one ends the block
    // (as published: the tail does)
    while (true) {
        // As in the publication: the block ends when its ticket reaches the tail that it read last.
        if (p.paper && ticket >= s.limit) return;
        // Read all slots of the fetch at once. The published rule never reads them again, even if they were empty; the
        // exact rule keeps the ticket and waits until its slot is published.
        for (u32 i0 = threadIdx.x & ~31u; i0 < tickets; i0 += blockDim.x) {
            const u32 i = i0 + (threadIdx.x & 31);
            const u64 word = i < tickets ? lab_peek(p, b, ticket + i) : 0;
            const bool ready = i < tickets && lab_published(word, tag);
            const u32 mask = __ballot_sync(0xFFFFFFFFu, ready);
            if (ready) lab_look(p, counters, mask, word, fetched[i]);
            else if (i < tickets) fetched[i].word = 0;
        }
        __syncthreads();
        for (u32 i = 0; i < tickets; ++i) {
            if (!fetched[i].word) {
                if (p.paper) continue;
                if (!lab_await(p, b, counters, ticket + i, s)) return;
                if (threadIdx.x == 0) lab_look(p, counters, 1u, s.word, fetched[i]);
                __syncthreads();
            }
            lab_serve(p, b, counters, fetched[i], ticket + i, s);
            __syncthreads();
        }
        // show: claim a slot
        if (threadIdx.x == 0) {
            lab_settle(counters, s);
            first = atomicAdd(counters + CTR_HEAD, (u32)p.fetch_size) + gridDim.x;
            s.limit = lab_acquire(counters + CTR_TAIL);
        }
        __syncthreads();
        ticket = first;
        tickets = p.fetch_size;
        // end: claim a slot
        __syncthreads();
    }
}
