// A queue of (hop, vertex) tasks in global memory, and the rules by which it loses no task.
//
// A slot is one 64-bit word, done << 63 | hop << 59 | tag << 48 | vertex, so that one release store publishes a task
// as a whole; the tag says that this launch wrote the slot. A block keeps a ticket until it has served the slot or
// nothing is outstanding. `outstanding` is raised before tasks are published, so it is zero only when all tasks are
// done. All blocks are resident, and a wait ends with an error when no counter of the queue changes.
//
// PGSampler's Algorithm 1 has none of these guards; `p.paper` runs it as published, to show which tasks it loses.
#ifndef LAB_QUEUE
#define LAB_QUEUE
#include "sampling/neighbors/hops/begin.cuh"
#include "sampling/neighbors/hops/draw.cuh"

#define LAB_DONE (1ull << 63)
#define LAB_NO_PROGRESS (1u << 20)  // polls without any change before a wait gives up

struct Task {
    u64 vertex;
    int hop;
};
__device__ __forceinline__ Task lab_task(u64 word) { return {word & 0xFFFFFFFFFFFFull, (int)(word >> 59 & 15)}; }
__device__ __forceinline__ bool lab_published(u64 word, u32 tag) { return (u32)(word >> 48 & 0x7FF) == tag; }

// Read a slot once; slots beyond the queue are never published.
__device__ __forceinline__ u64 lab_peek(const Plan& p, u32 b, u64 ticket) {
    return ticket < p.queue_cap ? lab_acquire(p.queue + (u64)b * p.queue_cap + ticket) : 0;
}

// Notices when no counter of the whole queue changes any more.
struct Watch {
    u32 polls, last, calls;
    __device__ Watch() : polls(0), last(0), calls(0) {}
    // True when a wait must end: all tasks are done, there was an error, or there is no progress. Only every fourth
    // call reads the counters, because most slots are published within a few polls.
    __device__ bool over(u32* counters) {
        if (++calls & 3) return false;
        if (lab_acquire(counters + CTR_OUTSTANDING) == 0) return true;
        if (lab_read(counters + CTR_STATUS)) return true;
        const u32 now = lab_read(counters + CTR_TAIL) + lab_read(counters + CTR_OUTSTANDING) * 0x9E3779B1u;
        polls = now == last ? polls + 1 : 0;
        last = now;
        if (polls < LAB_NO_PROGRESS) return false;
        atomicOr(counters + CTR_STATUS, STATUS_STALLED);
        return true;
    }
};

// Reserve places for the picks of a task; false when a buffer is full: the caller then drops the task, and the host
// runs the batch again with larger buffers.
__device__ __forceinline__ bool lab_reserve(const Plan& p, u32* counters, int hop, int count, u64 row, u64& offset) {
    const Hop& h = p.hops[hop];
    bool fits = row < h.row_cap;
    if (h.stride) {
        offset = row * h.stride;
    } else {
        offset = atomicAdd((u64*)(counters + CTR_CURSOR) + hop, (u64)count);
        fits = fits && offset + count <= h.pick_cap;
    }
    if (!fits) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    return fits;
}

// Reserve queue slots for `fresh` tasks, and take `done` tasks off the outstanding ones: both counters are halves of a
// word, so one atomic does both. Returns the first of the slots.
__device__ __forceinline__ u32 lab_enqueue(u32* counters, u32 fresh, u32 done) {
    const u64 change = ((u64)fresh << 32) - ((u64)done << 32) + fresh;
    return (u32)atomicAdd((u64*)(counters + CTR_TAIL), change);
}

__device__ __forceinline__ void lab_publish(const Plan& p, u32 b, u32* counters, u64 at, int hop, u32 tag, u64 v) {
    if (at >= p.queue_cap) {
        atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
        return;
    }
    const u64 slot = (u64)b * p.queue_cap + at;
    if (p.enqueued) p.enqueued[slot] = lab_now();
    lab_release(p.queue + slot, LAB_TASK(hop, tag, v));
}

__device__ __forceinline__ void lab_record(const Plan& p, u32 b, const Hop& h, u64 row, u64 ticket, u64 started) {
#if TRACE
    u64* record = h.trace + ((u64)b * h.row_cap + row) * 4;
    record[0] = __ldcg(p.enqueued + (u64)b * p.queue_cap + ticket);  // written by another multiprocessor
    record[1] = started;
    record[2] = lab_now();
    record[3] = (u64)lab_sm() << 32 | blockIdx.x;
#endif
}

// The end of a task whose record is there already.
__device__ __forceinline__ void lab_ended(const Hop& h, u64 row) {
    u64* record = h.trace + row * 4;
    record[2] = lab_now();
    record[3] = (u64)lab_sm() << 32 | blockIdx.x;
}
#endif
