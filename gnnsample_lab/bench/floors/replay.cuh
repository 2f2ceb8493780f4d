// The replay floor: what reading and writing a known sample costs, and nothing else.
//
// Per pick: load the vertex, its indptr pair, the recorded position and the neighbour at it; store neighbour, position
// and (once a row) count. No generator, no deduplication. Blocks have a column of threads for each pick of a row
// (threadIdx.x) and rows side by side (threadIdx.y), so that no index is divided; indices are 32-bit. Each thread
// serves UNROLL rows, stage by stage: UNROLL independent loads are under way before the first of them is used.
// Bound: sectors of indptr and indices, at random; three dependent loads a row.
#ifndef LAB_REPLAY
#define LAB_REPLAY
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

// recorded, neighbors, positions: [rows * k], -1 where a row has fewer picks; counts: [rows]. rows * k < 2^32.
__device__ __forceinline__ void lab_replay(const ID_T* frontier, u32 rows, u32 k, const i64* indptr,
                                           const ID_T* indices, const int* recorded, ID_T* neighbors, int* positions,
                                           int* counts) {
    const u32 column = threadIdx.x, step = gridDim.x * blockDim.y;
    if (column >= k) return;
    for (u32 row0 = blockIdx.x * blockDim.y + threadIdx.y; row0 < rows; row0 += step * UNROLL) {
        ID_T v[UNROLL], u[UNROLL];
        int at[UNROLL], degree[UNROLL];
        i64 start[UNROLL];
#pragma unroll
        for (u32 c = 0; c < UNROLL; ++c) {
            const u32 row = min(row0 + c * step, rows - 1);  // beyond the end: loads of the last row, no stores
            v[c] = __ldg(frontier + row);
            at[c] = __ldcs(recorded + row * k + column);
        }
#pragma unroll
        for (u32 c = 0; c < UNROLL; ++c) {
            start[c] = __ldg(indptr + v[c]);
            degree[c] = (int)(__ldg(indptr + v[c] + 1) - start[c]);
        }
#pragma unroll
        for (u32 c = 0; c < UNROLL; ++c)
            if (at[c] >= 0) u[c] = __ldg(indices + start[c] + at[c]);
#pragma unroll
        for (u32 c = 0; c < UNROLL; ++c) {
            const u32 row = row0 + c * step;
            if (row >= rows) continue;
            if (at[c] >= 0) {
                neighbors[row * k + column] = u[c];
                positions[row * k + column] = at[c];
            }
            if (column == 0) counts[row] = min(degree[c], (int)k);
        }
    }
}
#endif
