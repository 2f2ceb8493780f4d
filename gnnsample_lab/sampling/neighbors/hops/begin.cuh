// From seeds to the nodes of hop 0: check their range, merge duplicates in first-seen order, reset the counters.
//
// Most callers give distinct vertices, whose local ids are their places. `begin_distinct` assumes that, in one kernel and
// without a hash of its own. Where it is not so, the status says STATUS_MERGE, and the host launches anew with the
// kernels that merge.
#ifndef LAB_BEGIN
#define LAB_BEGIN
#include "sampling/neighbors/plan.cuh"

#define LAB_EMPTY 0xFFFFFFFFFFFFFFFFull
#define LAB_TASK(hop, tag, v) ((u64)(hop) << 59 | (u64)(tag) << 48 | (u64)(v))

__device__ __forceinline__ u64 lab_seed(const Batch& batch, u32 i) {
    return batch.wide_seeds ? ((const u64*)batch.seeds)[i] : (u64)(i64)((const int*)batch.seeds)[i];
}

#define LAB_DUPLICATE 0x80000000u  // flag in `inverse`: the other bits are the lowest index of the same seed, not an id
#define LAB_INDEX_BITS 30          // bits of the index in an entry of the seeds' hash; the vertex has the other 34
#define LAB_NOWHERE 0xFFFFFFFFu    // no index: the hash lacks the vertex

// The record of mini-batch `b`, from pinned host memory if the host wrote it there.
__device__ __forceinline__ Batch lab_fetch_batch(const Plan& p, u32 b) {
    return p.host_batches ? p.host_batches[b] : p.batches[b];
}

// `hash` holds vertex << LAB_INDEX_BITS | lowest index; it has `slots` (a power of two) entries in shared or global
// memory. The host refuses batches and graphs whose indices or vertices do not fit these bits. This function leaves
// out seeds that are no vertices and seeds that find no free slot; the numbering of seeds reports both.
__device__ __forceinline__ void lab_insert_seed(const Plan& p, u64* hash, u32 slots, u64 v, u32 i) {
    if (v >= p.num_nodes) return;
    const u64 entry = v << LAB_INDEX_BITS | i;
    u64 at = lab_hash(v, slots);
    for (u32 probe = 0; probe < slots; ++probe, at = (at + 1) & (slots - 1)) {
        const u64 old = atomicCAS(hash + at, LAB_EMPTY, entry);
        if (old == LAB_EMPTY) return;
        if (old >> LAB_INDEX_BITS == v) {
            atomicMin(hash + at, entry);
            return;
        }
    }
}

__device__ __forceinline__ u32 lab_index_of(u64 entry) { return (u32)entry & ((1u << LAB_INDEX_BITS) - 1); }

// The lowest index of seed `v`, which was inserted. LAB_NOWHERE means that the hash was full or was overwritten.
__device__ __forceinline__ u32 lab_first_index(const u64* hash, u32 slots, u64 v) {
    u64 at = lab_hash(v, slots);
    for (u32 probe = 0; probe < slots; ++probe, at = (at + 1) & (slots - 1)) {
        const u64 entry = hash[at];
        if (entry >> LAB_INDEX_BITS == v) return lab_index_of(entry);
    }
    return LAB_NOWHERE;
}

// A seed gets its local id in the table, its place in the node list and, for queue strategies, in the queue.
__device__ __forceinline__ void lab_place(const Plan& p, u32 b, const Batch& batch, u64 v, u32 local) {
    p.nodes[(u64)b * p.node_cap + local] = (ID_T)v;
    lab_set(p.table, b, batch.base, v, local);
    if (p.queue) {
        p.queue[(u64)b * p.queue_cap + local] = LAB_TASK(0, batch.tag, v);
        if (p.enqueued) p.enqueued[(u64)b * p.queue_cap + local] = lab_now();
    }
}

// A seed that is known to be distinct enters the table and gets its places.
__device__ __forceinline__ void lab_enter(const Plan& p, u32 b, const Batch& batch, u32* counters, u64 v, u32 local) {
#if TABLE_KIND != 0
    bool overflow = false;
    lab_insert(p.table, b, batch.base, v, overflow);
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
#endif
    lab_place(p, b, batch, v, local);
}

__device__ __forceinline__ void lab_seeds_done(u32* counters, u32 distinct) {
    counters[CTR_SEEDS] = distinct;
    counters[CTR_TAIL] = distinct;
    counters[CTR_OUTSTANDING] = distinct;
}

// One block does all the work of a mini-batch. For up to ONE_BLOCK_SEEDS seeds (plan.py); the hash fits shared memory.
__device__ void lab_begin(const Plan& p, u32 b, u64* hash, u32 slots) {
    __shared__ u32 sums[32];
    __shared__ Batch fetched;
    u32* counters = lab_counters(p, b);
    const u32 tid = threadIdx.x, threads = blockDim.x, lane = tid & 31, warp = tid >> 5;
    if (tid == 0) {  // one thread reads over the bus while the others clear
        fetched = lab_fetch_batch(p, b);
        if (p.host_batches) p.batches[b] = fetched;
    }
    for (u32 i = tid; i < LAB_COUNTERS; i += threads) counters[i] = 0;
    for (u64 i = tid; i < p.scan_tiles; i += threads) p.scan_state[(u64)b * p.scan_tiles + i] = 0;
    for (u32 i = tid; i < slots; i += threads) hash[i] = LAB_EMPTY;
    __syncthreads();
    const Batch batch = fetched;
    for (u32 i = tid; i < batch.num_seeds; i += threads)
        lab_insert_seed(p, hash, slots, lab_seed(batch, i), i);
    __syncthreads();
    u32 so_far = 0;
    for (u32 i0 = 0; i0 < batch.num_seeds; i0 += threads) {
        const u32 i = i0 + tid;
        const u64 v = i < batch.num_seeds ? lab_seed(batch, i) : LAB_EMPTY;
        const bool valid = v < p.num_nodes;
        if (!valid && i < batch.num_seeds) atomicOr(counters + CTR_STATUS, STATUS_BAD_SEED);
        const u32 lowest = valid ? lab_first_index(hash, slots, v) : 0;
        if (lowest == LAB_NOWHERE) atomicOr(counters + CTR_STATUS, STATUS_BROKEN);
        const bool first = valid && lowest == i;
        const u32 mask = __ballot_sync(0xFFFFFFFFu, first);
        if (lane == 0) sums[warp] = __popc(mask);
        __syncthreads();
        const u32 part = lane < threads >> 5 ? sums[lane] : 0;
        u32 inclusive = part;
#pragma unroll
        for (int apart = 1; apart < 32; apart <<= 1) {
            const u32 left = __shfl_up_sync(0xFFFFFFFFu, inclusive, apart);
            if (lane >= apart) inclusive += left;
        }
        const u32 before = __shfl_sync(0xFFFFFFFFu, inclusive - part, warp);
        if (first) {
            const u32 local = so_far + before + __popc(mask & ((1u << lane) - 1));
            lab_enter(p, b, batch, counters, v, local);
            p.inverse[(u64)b * p.seed_cap + i] = local;
        } else if (valid) {
            p.inverse[(u64)b * p.seed_cap + i] = LAB_DUPLICATE | lowest;
        }
        so_far += __shfl_sync(0xFFFFFFFFu, inclusive, 31);
        __syncthreads();
    }
    if (tid == 0) lab_seeds_done(counters, so_far);
}

// For more seeds, many blocks do the same work in two or three kernels. There are two hashes in global memory; the
// parity of the launch's tag selects one. A launch fills the selected hash and clears the other for the next launch.
__device__ __forceinline__ u64* lab_seed_hash(const Plan& p, u32 b, u32 parity) {
    return p.seed_hash + ((u64)(parity & 1) * gridDim.y + b) * p.seed_slots;
}

// The mini-batch's record, which each block reads once; the first block keeps it for the kernels behind this one.
__device__ __forceinline__ Batch lab_take_batch(const Plan& p, u32 b) {
    __shared__ Batch fetched;
    if (threadIdx.x == 0) {
        fetched = lab_fetch_batch(p, b);
        if (blockIdx.x == 0 && p.host_batches) p.batches[b] = fetched;
    }
    __syncthreads();
    return fetched;
}

__device__ __forceinline__ void lab_begin_insert(const Plan& p, u32 b) {
    const Batch batch = lab_take_batch(p, b);
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    u32* counters = lab_counters(p, b);
    for (u32 j = i; j < LAB_COUNTERS; j += threads) counters[j] = 0;
    for (u64 j = i; j < p.scan_tiles; j += threads) p.scan_state[(u64)b * p.scan_tiles + j] = 0;
    u64* other = lab_seed_hash(p, b, batch.tag + 1);
    for (u32 j = i; j < p.seed_slots; j += threads) other[j] = LAB_EMPTY;
    if (i < batch.num_seeds)
        lab_insert_seed(p, lab_seed_hash(p, b, batch.tag), (u32)p.seed_slots, lab_seed(batch, i), i);
}

// Count the first occurrences in each block of `begin_number`. Used above MANY_SEEDS seeds (plan.py), where a count by
// every block of `begin_number` would cost too much.
__device__ __forceinline__ void lab_begin_count(const Plan& p, u32 b) {
    const Batch batch = p.batches[b];
    const u64* hash = lab_seed_hash(p, b, batch.tag);
    const u32 i0 = blockIdx.x * blockDim.x, i = i0 + threadIdx.x;
    if (i0 >= batch.num_seeds) return;
    const u64 v = i < batch.num_seeds ? lab_seed(batch, i) : LAB_EMPTY;
    const u32 firsts = __syncthreads_count(v < p.num_nodes && lab_first_index(hash, (u32)p.seed_slots, v) == i);
    if (threadIdx.x == 0) p.seed_sums[(u64)b * gridDim.x + blockIdx.x] = firsts;
}

__device__ __forceinline__ void lab_begin_number(const Plan& p, u32 b) {
    __shared__ u32 sums[32];
    const Batch batch = p.batches[b];
    u32* counters = lab_counters(p, b);
    const u64* hash = lab_seed_hash(p, b, batch.tag);
    const u32 tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, i0 = blockIdx.x * blockDim.x, i = i0 + tid;
    if (i0 >= batch.num_seeds) return;
    // `mine` counts first occurrences before this block. Up to MANY_SEEDS seeds every block counts them again, which
    // costs less than another kernel; above, the block adds up the counts that `begin_count` wrote.
    u32 mine = 0;
    if (p.seed_sums)
        for (u32 k = tid; k < blockIdx.x; k += blockDim.x) mine += p.seed_sums[(u64)b * gridDim.x + k];
    // Eight seeds at a time. Most are found at the first probe, so eight seeds cost two memory latencies.
    for (u32 j0 = p.seed_sums ? i0 : tid; j0 < i0; j0 += 8 * blockDim.x) {
        u64 seeds[8], entries[8];
#pragma unroll
        for (u32 c = 0; c < 8; ++c) {
            const u32 j = j0 + c * blockDim.x;
            seeds[c] = j < i0 ? lab_seed(batch, j) : LAB_EMPTY;
        }
#pragma unroll
        for (u32 c = 0; c < 8; ++c) entries[c] = hash[lab_hash(seeds[c], p.seed_slots)];
#pragma unroll
        for (u32 c = 0; c < 8; ++c) {
            if (seeds[c] >= p.num_nodes) continue;
            const u32 lowest = entries[c] >> LAB_INDEX_BITS == seeds[c]
                                   ? lab_index_of(entries[c])
                                   : lab_first_index(hash, (u32)p.seed_slots, seeds[c]);
            mine += lowest == j0 + c * blockDim.x;
        }
    }
    const u64 v = i < batch.num_seeds ? lab_seed(batch, i) : LAB_EMPTY;
    const bool valid = v < p.num_nodes;
    if (!valid && i < batch.num_seeds) atomicOr(counters + CTR_STATUS, STATUS_BAD_SEED);
    const u32 lowest = valid ? lab_first_index(hash, (u32)p.seed_slots, v) : 0;
    if (lowest == LAB_NOWHERE) atomicOr(counters + CTR_STATUS, STATUS_BROKEN);
    const bool first = valid && lowest == i;
    const u32 mask = __ballot_sync(0xFFFFFFFFu, first);
#pragma unroll
    for (int apart = 16; apart; apart >>= 1) mine += __shfl_xor_sync(0xFFFFFFFFu, mine, apart);
    // 26 bits hold the warp's share of the seeds before this block (at most 2^25 of 2^30), 6 bits its own 32 seeds.
    if (lane == 0) sums[warp] = mine << 6 | __popc(mask);
    __syncthreads();
    u32 before = 0, total = 0;
    for (u32 w = 0; w < blockDim.x >> 5; ++w) {
        before += (sums[w] >> 6) + (w < warp ? sums[w] & 63 : 0);
        total += (sums[w] >> 6) + (sums[w] & 63);
    }
    if (first) {
        const u32 local = before + __popc(mask & ((1u << lane) - 1));
        lab_enter(p, b, batch, counters, v, local);
        p.inverse[(u64)b * p.seed_cap + i] = local;
    } else if (valid) {
        p.inverse[(u64)b * p.seed_cap + i] = LAB_DUPLICATE | lowest;
    }
    if (tid == 0 && i0 + blockDim.x >= batch.num_seeds) lab_seeds_done(counters, total);
}

// Seeds in the order given, if they are distinct vertices; the sample of others is of no use, but safe to draw.
__device__ __forceinline__ void lab_begin_distinct(const Plan& p, u32 b) {
    const Batch batch = lab_take_batch(p, b);
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    u32* counters = lab_counters(p, b);
    // There is room for as many as can be distinct.
    const u32 count = (u32)min((u64)batch.num_seeds, p.queue ? min(p.node_cap, p.queue_cap) : p.node_cap);
    for (u32 j = i; j < LAB_COUNTERS; j += threads) {
        const bool counts = j == CTR_SEEDS || j == CTR_TAIL || j == CTR_OUTSTANDING;
        if (j != CTR_STATUS && j != CTR_BEGUN && j != CTR_MET) counters[j] = counts ? count : 0;
    }
    for (u64 j = i; j < p.scan_tiles; j += threads) p.scan_state[(u64)b * p.scan_tiles + j] = 0;
    bool met = i == 0 && count < batch.num_seeds;
    if (i < count) {
        u64 v = lab_seed(batch, i);
        const bool valid = v < p.num_nodes;
        if (!valid) v = 0;  // whatever draws for this place stays inside the graph
        bool overflow = false;
        const bool fresh = lab_insert(p.table, b, batch.base, v, overflow);
        met |= !valid || !fresh || overflow;
        lab_place(p, b, batch, v, i);
        p.inverse[(u64)b * p.seed_cap + i] = i;
    }
    // The last block to come writes the status: nothing of this kernel may set it before it is reset.
    if (__syncthreads_or(met) && threadIdx.x == 0) atomicExch(counters + CTR_MET, 1u);
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicInc(counters + CTR_BEGUN, gridDim.x - 1) == gridDim.x - 1)
            counters[CTR_STATUS] = atomicExch(counters + CTR_MET, 0u) ? STATUS_MERGE : 0;
    }
}
#endif
