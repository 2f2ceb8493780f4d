// Strategy `grid-barrier`: seeds and all hops in one cooperative launch, with a barrier of the whole grid between hops.
//
// Every block must be resident at once; the cooperative launch fails if the grid is too large for that. The barrier is
// a counter per hop: each block adds one and waits until all blocks have. A wait ends with an error when no block
// arrives for a long time. Bound: see expand.cuh.
// @cooperative
// @variants ID_T=int,long RULE=0,1,2,3,4 TABLE_KIND=0,1,2 TRACE=0,1 KMAX=8,16,32
#include "begin.cuh"
#include "expand.cuh"

#define LAB_BARRIER_POLLS (1u << 28)  // polls without an arrival before a wait fails: minutes; a hop takes microseconds

// False when a block did not arrive. The results of that block are missing, so the caller must end.
__device__ __forceinline__ bool lab_grid_barrier(u32* arrived, u32 blocks, u32* status) {
    __shared__ bool complete;
    __syncthreads();
    if (threadIdx.x == 0) {
        // __syncthreads orders this thread after all writes of its block; the fence makes them visible to other blocks.
        __threadfence();
        atomicAdd(arrived, 1u);
        u32 seen = 0, now = 0;
        for (u32 polls = 0; polls < LAB_BARRIER_POLLS && (now = lab_acquire(arrived)) < blocks; ++polls)
            if (now != seen) polls = 0, seen = now;
        complete = now >= blocks;
        if (!complete) atomicOr(status, STATUS_STALLED);
        __threadfence();
    }
    __syncthreads();
    return complete;
}

// `arrived`: one zeroed word per hop. The first block of a mini-batch merges few seeds, in the shared memory that hops
// use later; for many seeds the kernels of `begin_insert` and `begin_number` run before this one (`begun` = 1).
extern "C" __global__ void __launch_bounds__(LAB_WARPS * 32, MIN_BLOCKS) grid_barrier(const __grid_constant__ Plan p, u32* arrived, int begun) {
    __shared__ __align__(16) HopShared shared;
    const u32 blocks = gridDim.x * gridDim.y;
    u32* status = lab_counters(p, blockIdx.y) + CTR_STATUS;
    if (blockIdx.x == 0 && !begun) {
        const bool fits = p.seed_slots * sizeof(u64) <= sizeof(HopShared);
        u64* hash = fits ? (u64*)&shared : lab_seed_hash(p, blockIdx.y, 0);
        lab_begin(p, blockIdx.y, hash, (u32)p.seed_slots);
    }
    for (int hop = 0; hop < p.num_hops; ++hop) {
        if ((hop || !begun) && !lab_grid_barrier(arrived + hop, blocks, status)) return;
        lab_expand(p, hop, shared);
    }
}
