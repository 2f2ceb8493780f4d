// Fresh vertices, those that a pick reaches for the first time: a warp stages them and then reserves places for many in
// the node list at once. No pick rule is needed here, so that the kernels of minibatch/ can append vertices too.
#ifndef LAB_FRESH
#define LAB_FRESH
#include "sampling/neighbors/plan.cuh"

#define LAB_FULL 0xFFFFFFFFu
#define LAB_WARPS (sizeof(ID_T) == 4 ? 8 : 4)  // warps per block; fewer for 64-bit ids, which need more shared memory
#if RULE == 1
#define LAB_STAGE 160
#else
#define LAB_STAGE 320
#endif

// Fresh vertices of one warp, staged before they go to the node list, so that one atomic reserves places for many.
struct Stage {
    ID_T* ids;
    int count;
};

// Write the staged vertices to nodes[at ..] and their local ids to the table.
__device__ __forceinline__ void lab_drain(const Plan& p, u32 b, u32 base, u32* counters, u64 at, Stage& stage) {
    for (int i = lab_lane(); i < stage.count; i += 32) {
        const u64 local = at + i;
        if (local >= p.node_cap) {
            atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
        } else {
            p.nodes[(u64)b * p.node_cap + local] = stage.ids[i];
            lab_set(p.table, b, base, stage.ids[i], (u32)local);
        }
    }
    __syncwarp();
    stage.count = 0;
}

__device__ __forceinline__ void lab_flush(const Plan& p, u32 b, u32 base, u32* counters, int hop, u64 level_end,
                                          Stage& stage) {
    if (stage.count == 0) return;
    __syncwarp();
    u32 first = 0;
    if (lab_lane() == 0) first = atomicAdd(counters + CTR_FRESH + hop, (u32)stage.count);
    lab_drain(p, b, base, counters, level_end + __shfl_sync(LAB_FULL, first, 0), stage);
}

// lab_flush for all warps of a block with one atomic: all blocks add to one address, which serves one atomic at a time.
__device__ __forceinline__ void lab_flush_block(const Plan& p, u32 b, u32 base, u32* counters, int hop, u64 level_end,
                                                Stage& stage, u32* firsts) {
    const u32 lane = lab_lane(), warp = threadIdx.x >> 5;
    if (lane == 0) firsts[warp] = stage.count;
    __syncthreads();
    if (warp == 0) {
        const u32 mine = lane < LAB_WARPS ? firsts[lane] : 0;
        u32 inclusive = mine;
#pragma unroll
        for (int apart = 1; apart < LAB_WARPS; apart <<= 1) {
            const u32 left = __shfl_up_sync(LAB_FULL, inclusive, apart);
            if (lane >= apart) inclusive += left;
        }
        u32 first = 0;
        if (lane == LAB_WARPS - 1 && inclusive) first = atomicAdd(counters + CTR_FRESH + hop, inclusive);
        first = __shfl_sync(LAB_FULL, first, LAB_WARPS - 1);
        if (lane < LAB_WARPS) firsts[lane] = first + inclusive - mine;
    }
    __syncthreads();
    lab_drain(p, b, base, counters, level_end + firsts[warp], stage);
}

// Append the vertices of lanes with `fresh` to the stage; the caller keeps 32 places free.
__device__ __forceinline__ void lab_push(Stage& stage, bool fresh, ID_T u) {
    const u32 mask = __ballot_sync(LAB_FULL, fresh);
    if (fresh) stage.ids[stage.count + __popc(mask & ((1u << lab_lane()) - 1))] = u;
    stage.count += __popc(mask);
}

// Add the picks of all threads of the block to the hop's counter; the last thing that a block does for a hop.
__device__ __forceinline__ void lab_count_edges(u32* counters, int hop, u32 picks) {
    __shared__ u32 sums[32];
#pragma unroll
    for (int apart = 16; apart; apart >>= 1) picks += __shfl_xor_sync(LAB_FULL, picks, apart);
    __syncthreads();
    if (lab_lane() == 0) sums[threadIdx.x >> 5] = picks;
    __syncthreads();
    if (threadIdx.x == 0) {
        u64 total = 0;
        for (u32 w = 0; w < blockDim.x >> 5; ++w) total += sums[w];
        if (total) atomicAdd((u64*)(counters + CTR_EDGES) + hop, total);
    }
}

#endif
