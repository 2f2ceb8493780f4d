// The replay floor with all hops of a batch in one cooperative launch, a barrier of the whole grid between hops: where
// hops are small, a barrier may cost less than the end of a kernel and the start of the next.
// @cooperative
// @variants ID_T=int,long UNROLL=1,2,4,8
#include "replay.cuh"

#define MAX_POLLS (1u << 26)  // polls before a wait is given up: far longer than a hop takes

struct HopSample {
    const ID_T* frontier;
    const int* recorded;
    ID_T* neighbors;
    int* positions;
    int* counts;
    u32 rows, k;
};

// hops: [num_hops]; arrived: a zeroed word per hop but the first. A hop that waits for a block in vain is not served,
// and its results are missing.
extern "C" __global__ void replay_hops(const HopSample* hops, int num_hops, const i64* indptr, const ID_T* indices,
                                       u32* arrived) {
    __shared__ bool complete;
    for (int hop = 0; hop < num_hops; ++hop) {
        if (hop) {
            __syncthreads();
            if (threadIdx.x == 0 && threadIdx.y == 0) {
                u32* word = arrived + hop - 1;
                __threadfence();
                atomicAdd(word, 1u);
                u32 polls = 0;
                // bounded: by MAX_POLLS
                while (*(volatile u32*)word < gridDim.x && polls < MAX_POLLS) ++polls;
                __threadfence();
                complete = polls < MAX_POLLS;
            }
            __syncthreads();
            if (!complete) return;
        }
        const HopSample h = hops[hop];
        lab_replay(h.frontier, h.rows, h.k, indptr, indices, h.recorded, h.neighbors, h.positions, h.counts);
    }
}
