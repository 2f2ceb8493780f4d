// The replay floor: what reading and writing a known sample costs, and nothing else.
//
// Per pick: load the vertex, its indptr pair, the recorded position and the neighbour at it; store neighbour,
// position and (once per row) count. No generator, no deduplication. `chase` and `gather` measure the two
// constants of the computed bound: the latency of a dependent access, and the rate of random 32-byte sectors.
// @variants ID_T=int,long UNROLL=1,2,4,8
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

// recorded, neighbors, positions: [rows * k]; slots at or beyond a row's count hold -1.
extern "C" __global__ void replay(const ID_T* frontier, u64 rows, int k, const i64* indptr, const ID_T* indices,
                                  const int* recorded, ID_T* neighbors, int* positions, int* counts) {
    const u64 total = rows * k, step = (u64)gridDim.x * blockDim.x;
    for (u64 e0 = blockIdx.x * (u64)blockDim.x + threadIdx.x; e0 < total; e0 += step * UNROLL) {
        i64 start[UNROLL];
        int at[UNROLL], degree[UNROLL];
        ID_T u[UNROLL];
#pragma unroll
        for (int c = 0; c < UNROLL; ++c) {
            const u64 e = e0 + c * step;
            at[c] = -1;
            if (e < total) {
                const ID_T v = frontier[e / k];
                start[c] = __ldg(indptr + v);
                degree[c] = (int)(__ldg(indptr + v + 1) - start[c]);
                at[c] = recorded[e];
            }
        }
#pragma unroll
        for (int c = 0; c < UNROLL; ++c)
            if (at[c] >= 0) u[c] = __ldg(indices + start[c] + at[c]);
#pragma unroll
        for (int c = 0; c < UNROLL; ++c) {
            const u64 e = e0 + c * step;
            if (at[c] >= 0) {
                neighbors[e] = u[c];
                positions[e] = at[c];
            }
            if (e < total && e % k == 0) counts[e / k] = min(degree[c], k);
        }
    }
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
