// Collective sampling, before the exchange: which rank owns each vertex of the frontier, and where its request goes.
//
//   bucket      owner, count and place of every new vertex in one pass, without a sort; can tell the host the sizes
//   report      all sizes of a hop, to and from every peer, for the one read of the host
//   tell_flag, take_flag   fixed capacities: the overflow flag, before and after the ranks reduce it
//
// A frontier begins with the frontier before, so buckets grow: a hop appends the vertices that the hop before reached.
// Bound: bucket reads a vertex and a random sector of `new_of`, and writes 12 to 16 bytes, per new vertex.
// @variants ID_T=int,long
#include "csp.cuh"

struct Route {
    const ID_T* new_of;     // [num_nodes] ids that are consecutive within a part
    const i64* boundaries;  // [parts + 1] new ids of part p begin at boundaries[p]
    ID_T* send;             // requests, original ids
    u64* counts;            // [parts] rows of each bucket so far
    u64* places;            // [row] owner << 32 | place in its bucket
    int parts;
    int unused;
    u64 begin[MAX_PEERS];   // where each bucket begins in `send`
    u64 cap[MAX_PEERS];     // rows that it has room for
};
static_assert(sizeof(Route) == 1072, "csp_kernels.py packs the same structure");

// All threads of a block of at least `parts`. received: may be null.
__device__ __forceinline__ void write_report(const Plan& p, const u64* sent, const u64* received, i64* out, int parts,
                                             int hop, i64 tag) {
    const u32* counters = lab_counters(p, 0);
    if ((int)threadIdx.x < parts) {
        out[REPORT_SENT + threadIdx.x] = (i64)__ldcg(sent + threadIdx.x);
        if (received) out[REPORT_SENT + MAX_PEERS + threadIdx.x] = (i64)__ldcg(received + threadIdx.x);
    }
    if (threadIdx.x == 0) {
        out[REPORT_LEVEL] = (i64)lab_levels(p, counters, hop).end;
        out[REPORT_STATUS] = lab_read(counters + CTR_STATUS);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        *(volatile i64*)out = tag;
    }
}

#define BUCKET_ITEMS 4
#define NOBODY 0xFFFFFFFFu

// done: counts blocks, 0 at first. out: where the last block reports, or null; the tag of its report is positive, and
// no mini-batch before had it. So the arguments are the same for all mini-batches.
extern "C" __global__ void __launch_bounds__(CSP_THREADS) bucket(const __grid_constant__ Plan p,
                                                                 const __grid_constant__ Route r, int hop, u64* done,
                                                                 i64* out) {
    __shared__ bool is_last;
    __shared__ i64 bounds[MAX_PEERS + 1];
    __shared__ u32 found[MAX_PEERS];
    __shared__ u64 first[MAX_PEERS];
    u32* counters = lab_counters(p, 0);
    const u64 begin = hop ? lab_levels(p, counters, hop - 1).end : 0;
    const u64 end = min(lab_levels(p, counters, hop).end, p.node_cap);
    for (int o = threadIdx.x; o <= r.parts; o += CSP_THREADS) bounds[o] = r.boundaries[o];
    const u32 lane = lab_lane();
    bool overflow = false;
    const u64 tile = (u64)CSP_THREADS * BUCKET_ITEMS;
    for (u64 at = begin + blockIdx.x * tile; at < end; at += gridDim.x * tile) {
        if (threadIdx.x < MAX_PEERS) found[threadIdx.x] = 0;
        __syncthreads();
        ID_T v[BUCKET_ITEMS], renumbered[BUCKET_ITEMS];
        u32 owner[BUCKET_ITEMS], place[BUCKET_ITEMS];
        // All loads of a step are in flight together.
#pragma unroll
        for (int j = 0; j < BUCKET_ITEMS; ++j) {
            const u64 i = at + j * CSP_THREADS + threadIdx.x;
            v[j] = i < end ? p.nodes[i] : (ID_T)-1;
        }
#pragma unroll
        for (int j = 0; j < BUCKET_ITEMS; ++j) renumbered[j] = v[j] >= 0 ? __ldg(r.new_of + v[j]) : (ID_T)0;
#pragma unroll
        for (int j = 0; j < BUCKET_ITEMS; ++j) {
            owner[j] = v[j] >= 0 ? (u32)part_of(bounds, r.parts, renumbered[j]) : NOBODY;
            // The lanes with the same owner take their places by one addition.
            const u32 alike = __match_any_sync(0xFFFFFFFFu, owner[j]);
            const int leader = __ffs(alike) - 1;
            u32 base = 0;
            if ((int)lane == leader && owner[j] != NOBODY) base = atomicAdd(&found[owner[j]], (u32)__popc(alike));
            place[j] = __shfl_sync(0xFFFFFFFFu, base, leader) + __popc(alike & ((1u << lane) - 1));
        }
        __syncthreads();
        if ((int)threadIdx.x < r.parts && found[threadIdx.x])
            first[threadIdx.x] = atomicAdd(r.counts + threadIdx.x, (u64)found[threadIdx.x]);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < BUCKET_ITEMS; ++j) {
            if (owner[j] == NOBODY) continue;
            const u64 to = first[owner[j]] + place[j];
            if (to < r.cap[owner[j]]) r.send[r.begin[owner[j]] + to] = v[j];
            else overflow = true;
            r.places[at + j * CSP_THREADS + threadIdx.x] = (u64)owner[j] << 32 | to;
        }
        __syncthreads();
    }
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    if (!out) return;
    __threadfence();  // counts and status before the block counts as done
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(done, 1ull) == gridDim.x - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    write_report(p, r.counts, nullptr, out, r.parts, hop, (i64)p.batches[0].base << 8 | (hop + 1));
}

// out: pinned host memory, which the host polls; see write_report. tag: negative, and new. One block.
extern "C" __global__ void __launch_bounds__(MAX_PEERS) report(const __grid_constant__ Plan p, const u64* sent,
                                                               const u64* received, i64* out, int parts, int hop,
                                                               i64 tag) {
    write_report(p, sent, received, out, parts, hop, tag);
}

// Before the ranks reduce the flag: this rank's status, or an overflow that the host asks for. The sizes go to the host.
extern "C" __global__ void __launch_bounds__(CSP_THREADS) tell_flag(const __grid_constant__ Plan p, const int* forced,
                                                                    int* flag, const u64* sizes, i64* out, int words) {
    for (int i = threadIdx.x; i < words; i += CSP_THREADS) out[i] = (i64)__ldcg(sizes + i);
    if (threadIdx.x == 0)
        *flag = (int)lab_read(lab_counters(p, 0) + CTR_STATUS) | (*(volatile const int*)forced ? STATUS_OVERFLOW : 0);
}

// After it: an error of any rank is one of all.
extern "C" __global__ void take_flag(const __grid_constant__ Plan p, const int* flag) {
    if (threadIdx.x == 0 && *flag) atomicOr(lab_counters(p, 0) + CTR_STATUS, STATUS_OVERFLOW);
}
