// A sampled block at a fixed size, so that kernels that were captured for that size can run on it.
//
// indptr: i64[rows + 1], beginning with 0; indices, weight: i32[edges] (weight may be null). Written: to_indptr:
// i64[room + 1], where rows beyond the block's are empty; the first `edges` of to_indices and to_weight. What lies behind
// them is never read, since no row holds it.
// Bound by bytes: each array is read and written once.

typedef long long i64;
typedef unsigned long long u64;

extern "C" __global__ void pad_block(const i64* indptr, const int* indices, const int* weight, u64 rows, u64 edges,
                                     u64 room, i64* to_indptr, int* to_indices, int* to_weight) {
    const u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x, threads = gridDim.x * (u64)blockDim.x;
    for (u64 r = first; r <= room; r += threads) to_indptr[r] = r <= rows ? __ldg(indptr + r) : (i64)edges;
    for (u64 e = first; e < edges; e += threads) {
        to_indices[e] = __ldg(indices + e);
        if (weight) to_weight[e] = __ldg(weight + e);
    }
}
