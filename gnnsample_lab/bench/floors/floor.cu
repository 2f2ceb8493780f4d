// The replay floor, a launch for each hop or for many batches together, and the constants of the computed bound: the
// latency of a dependent access, the rate of random 32-byte sectors, and the rate of a sequential read.
// @variants ID_T=int,long UNROLL=1,2,4,8
#include "replay.cuh"

extern "C" __global__ void replay(const ID_T* frontier, u32 rows, u32 k, const i64* indptr, const ID_T* indices,
                                  const int* recorded, ID_T* neighbors, int* positions, int* counts) {
    lab_replay(frontier, rows, k, indptr, indices, recorded, neighbors, positions, counts);
}

// Follow a random cycle of `next`; one thread. Time over steps is the latency of a dependent access.
extern "C" __global__ void chase(const u32* next, u32 steps, u32* out) {
    u32 at = *out;  // goes on where the last run stopped: lines that it touched may be cached
    for (u32 i = 0; i < steps; ++i) at = __ldcg(next + at);
    *out = at;
}

// Random 4-byte reads, each of another sector: `where` holds indices into `data`.
extern "C" __global__ void gather(const u32* data, const u32* where, u64 n, u32* out) {
    u32 sum = 0;
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += step * UNROLL) {
#pragma unroll
        for (int c = 0; c < UNROLL; ++c)
            if (i + c * step < n) sum += __ldcg(data + where[i + c * step]);
    }
    if (sum == 0xFFFFFFFFu) *out = sum;
}

// A sequential read of n * 16 bytes.
extern "C" __global__ void stream(const uint4* data, u64 n, u32* out) {
    u32 sum = 0;
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += step * UNROLL) {
        uint4 word[UNROLL];
#pragma unroll
        for (int c = 0; c < UNROLL; ++c) word[c] = __ldcs(data + min(i + c * step, n - 1));
#pragma unroll
        for (int c = 0; c < UNROLL; ++c) sum += word[c].x ^ word[c].y ^ word[c].z ^ word[c].w;
    }
    if (sum == 0xFFFFFFFFu) *out = sum;
}
