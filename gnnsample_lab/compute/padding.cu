// A mini-batch at fixed sizes, so that kernels that were captured for these sizes can run on it: one launch for all of it.
//
// Of each block: indptr: i64[rows + 1], beginning with 0; indices, weight: i32[edges] (weight may be null). Written:
// to_indptr: i64[room + 1], where rows beyond the block's are empty; the first `edges` of to_indices and to_weight. What
// lies behind them is never read, since no row holds it.
// Of the rest: features as they are (x may be null: they are in place already), labels of the seeds with `fill` in every
// byte of the rows behind them, which rows are seeds, and the real number of rows of each level.
// Bound by bytes: each array is read and written once.

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned char u8;

#define MAX_BLOCKS 15

struct PaddedBlock {
    const i64* indptr;
    const int *indices, *weight;
    u64 rows, edges, room;
    i64* to_indptr;
    int *to_indices, *to_weight;
};

struct Padding {
    const u8 *x, *labels, *seeds;  // seeds: i32 or i64, by seed_bytes
    u8 *to_x, *to_target, *to_is_seed;
    float* to_counts;
    u64 x_bytes, label_bytes, seed_bytes, num_seeds, seed_room, fill, num_blocks;
    u64 counts[MAX_BLOCKS + 1];
    PaddedBlock blocks[MAX_BLOCKS];
};

__device__ __forceinline__ void copy_bytes(const u8* __restrict__ from, u8* __restrict__ to, u64 bytes, u64 first,
                                           u64 threads) {
    const u64 units = bytes / 16;
    u64 i = first;
    for (; i + 3 * threads < units; i += 4 * threads) {
        uint4 v[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) v[c] = __ldg((const uint4*)from + i + c * threads);
#pragma unroll
        for (int c = 0; c < 4; ++c) ((uint4*)to)[i + c * threads] = v[c];
    }
    for (; i < units; i += threads) ((uint4*)to)[i] = __ldg((const uint4*)from + i);
    for (u64 b = units * 16 + first; b < bytes; b += threads) to[b] = from[b];
}

// Grid: (blocks of threads, blocks of the mini-batch + 1).
extern "C" __global__ void __launch_bounds__(256) pad_batch(const __grid_constant__ Padding p) {
    const u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x, threads = gridDim.x * (u64)blockDim.x;
    if (blockIdx.y < p.num_blocks) {
        const PaddedBlock& b = p.blocks[blockIdx.y];
        for (u64 r = first; r <= b.room; r += threads)
            b.to_indptr[r] = r <= b.rows ? __ldg(b.indptr + r) : (i64)b.edges;
        for (u64 e = first; e < b.edges; e += threads) {
            b.to_indices[e] = __ldg(b.indices + e);
            if (b.weight) b.to_weight[e] = __ldg(b.weight + e);
        }
        return;
    }
    if (p.x) copy_bytes(p.x, p.to_x, p.x_bytes, first, threads);
    const u64 unit = p.label_bytes % 8 == 0 ? 8 : 1, units = p.label_bytes / unit;
    for (u64 i = first; i < p.seed_room * units; i += threads) {
        const u64 row = i / units, at = i - row * units;
        const bool real = row < p.num_seeds;
        i64 seed = 0;
        if (real) seed = p.seed_bytes == 8 ? __ldg((const i64*)p.seeds + row) : __ldg((const int*)p.seeds + row);
        const u64 from = (u64)seed * units + at;
        if (unit == 8)
            ((u64*)p.to_target)[i] = real ? __ldg((const u64*)p.labels + from) : p.fill * 0x0101010101010101ull;
        else
            p.to_target[i] = real ? __ldg(p.labels + from) : (u8)p.fill;
        if (at == 0) p.to_is_seed[row] = real;
    }
    if (first <= p.num_blocks) p.to_counts[first] = (float)p.counts[first];
}
