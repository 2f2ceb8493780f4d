// The scheduling index of the published rung (NextDoor, section 6.1.2): pairs of sample and transit grouped by transit,
// and three classes of transits by the number of neighbours to sample. Three kernels, and the host reads nothing back:
//
//   count_pairs     one atomic per pair counts its transit's pairs. In a walk the sampling kernels do that themselves when
//                   they have drawn the next transit.
//   number_classes  places of all transits: a tile of vertices takes its places by one atomic per total, so that no
//                   block waits for another and transits ascend within a tile only. Lists the jobs of the block and
//                   the grid class.
//   place_pairs     writes every pair to its place: one atomic that tells it, one random write of an entry.
//
// The paper sorts with a radix sort and scans; radix.cu does. Every order of transits and of a transit's pairs gives
// the same samples, so that counting, O(P + N), may stand in for it.
// Bound: three random accesses per pair, and 16 bytes per vertex.
//
// @variants ID_T=int,long
#include "block_scan.cuh"
#include "classes.cuh"

#define THREADS 256
#define PER_THREAD 8
#define TILE (THREADS * PER_THREAD)  // vertices per block
#define AT_ONCE 4

extern "C" __global__ void __launch_bounds__(THREADS) count_pairs(const __grid_constant__ Classes c) {
    for (i64 base = (i64)blockIdx.x * THREADS * AT_ONCE; base < c.pairs; base += (i64)gridDim.x * THREADS * AT_ONCE) {
        ID_T v[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            const i64 at = base + u * THREADS + threadIdx.x;
            v[u] = at < c.pairs ? c.transits[at] : (ID_T)-1;
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u)
            if (v[u] >= 0) atomicAdd(c.counts + v[u], 1u);
    }
}

__device__ __forceinline__ int class_of(const Classes& c, u32 count) {
    const u64 draws = (u64)count * (u64)c.size;
    return draws < (u64)c.few ? 0 : draws <= (u64)c.many ? 1 : 2;
}

__device__ __forceinline__ u32 jobs_of(const Classes& c, u32 count) {
    return (u32)(((u64)count + c.pairs_per_job - 1) / (u64)c.pairs_per_job);
}

// `counts` and `offsets` have whole tiles; counters past the last vertex are 0.
extern "C" __global__ void __launch_bounds__(THREADS) number_classes(const __grid_constant__ Classes c) {
    __shared__ u64 first[TOTALS];
    const i64 base = (i64)blockIdx.x * TILE + threadIdx.x * PER_THREAD;
    u32 count[PER_THREAD];
#pragma unroll
    for (int i = 0; i < PER_THREAD; i += 4) {
        const uint4 four = *(const uint4*)(c.counts + base + i);
        count[i] = four.x, count[i + 1] = four.y, count[i + 2] = four.z, count[i + 3] = four.w;
        if (four.x | four.y | four.z | four.w) *(uint4*)(c.counts + base + i) = make_uint4(0, 0, 0, 0);
    }
    u64 pairs = 0, members = 0;  // sub-warp pairs | others << 32; jobs << 36 | transits of the classes, 12 bits each
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) {
        if (count[i] == 0) continue;
        const int k = class_of(c, count[i]);
        pairs += (u64)count[i] << (k ? 32 : 0);
        members += 1ull << 12 * k;
        if (k == 2) members += (u64)jobs_of(c, count[i]) << 36;
    }
    u64 all_pairs, all_members;
    const u64 pairs_before = block_exclusive(pairs, all_pairs), before = block_exclusive(members, all_members);
    if (threadIdx.x < 6) {
        const u32 mask = (1u << 12) - 1;
        const int at = threadIdx.x;
        const u64 mine = at == SUBWARP_PAIRS ? (u32)all_pairs
                         : at == OTHER_PAIRS ? all_pairs >> 32
                         : at == ITEMS       ? all_members >> 36
                                             : all_members >> 12 * (at - SUBWARP) & mask;
        first[at] = mine ? atomicAdd(c.totals + at, mine) : 0;
    }
    __syncthreads();
    u32 front = (u32)first[SUBWARP_PAIRS] + (u32)pairs_before;
    u32 back = (u32)c.pairs - (u32)first[OTHER_PAIRS] - (u32)(pairs_before >> 32);
    u64 block = first[BLOCK] + (before >> 12 & 0xFFF), item = first[ITEMS] + (before >> 36);
    u32 place[PER_THREAD];
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) {
        place[i] = front;
        const int k = count[i] ? class_of(c, count[i]) : 0;
        if (k == 0) front += count[i];
        else place[i] = back -= count[i];
        if (k == 1) c.blocks[block++] = Job{(ID_T)(base + i), place[i], count[i]};
        // The lanes of a warp list the jobs of a grid transit together: a hub has thousands.
        for (u32 left = __ballot_sync(FULL, k == 2); left; left &= left - 1) {
            const int owner = __ffs(left) - 1;
            const i64 v = __shfl_sync(FULL, (i64)(base + i), owner);
            const u32 begin = __shfl_sync(FULL, place[i], owner), n = __shfl_sync(FULL, count[i], owner);
            const u64 at = __shfl_sync(FULL, item, owner);
            for (u32 job = lane_of(); job < jobs_of(c, n); job += 32) {
                const u32 behind = job * (u32)c.pairs_per_job;
                c.items[at + job] = Job{(ID_T)v, begin + behind, min((u32)c.pairs_per_job, n - behind)};
            }
        }
        if (k == 2) item += jobs_of(c, count[i]);
    }
#pragma unroll
    for (int i = 0; i < PER_THREAD; i += 4)
        *(uint4*)(c.offsets + base + i) = make_uint4(place[i], place[i + 1], place[i + 2], place[i + 3]);
}

extern "C" __global__ void __launch_bounds__(THREADS) place_pairs(const __grid_constant__ Classes c) {
    // The pairs of the index before: those of its sub-warp class at the front, all others at the back.
    const i64 front = c.before ? (i64)c.before[SUBWARP_PAIRS] : c.pairs;
    const i64 total = c.before ? front + (i64)c.before[OTHER_PAIRS] : c.pairs;
    for (i64 base = (i64)blockIdx.x * THREADS * AT_ONCE; base < total; base += (i64)gridDim.x * THREADS * AT_ONCE) {
        Entry entry[AT_ONCE];
        u32 place[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) {
            const i64 i = base + u * THREADS + threadIdx.x, at = i < front ? i : i - total + c.pairs;
            entry[u] = Entry{(ID_T)-1, 0};
            if (i < total) entry[u] = c.transits ? Entry{c.transits[at], (u32)at} : c.entries[at];
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u) place[u] = entry[u].v >= 0 ? atomicAdd(c.offsets + entry[u].v, 1u) : 0;
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u)
            if (entry[u].v >= 0) c.sorted[place[u]] = entry[u];
    }
}
