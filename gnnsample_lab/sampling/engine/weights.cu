// The largest weight of every vertex's list, from the prefix sums of all weights.
//
// A warp per vertex reads the sums of its list, coalesced. Bound: the bytes of the sums, 8 per edge.
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void __launch_bounds__(256)
    max_weights(const i64* indptr, const u64* prefix, i64 num_nodes, u32* max_weight) {
    const u32 lane = threadIdx.x & 31;
    const i64 warps = gridDim.x * (i64)(blockDim.x >> 5);
    for (i64 v = blockIdx.x * (i64)(blockDim.x >> 5) + (threadIdx.x >> 5); v < num_nodes; v += warps) {
        u32 most = 0;
        for (i64 e = indptr[v] + lane; e < indptr[v + 1]; e += 32) most = max(most, (u32)(prefix[e + 1] - prefix[e]));
        for (u32 d = 16; d; d /= 2) most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, d));
        if (lane == 0) max_weight[v] = most;
    }
}
