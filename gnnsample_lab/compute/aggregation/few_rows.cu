// The sums of register_tile where rows are few: out[r] = scale(r) * sum over e in row r of coef(e) * x[indices[e]].
//
// indptr: i64[rows + 1]; indices: i32[edges]; coef: SCALAR[edges]; x: SCALAR[*, features]; out: SCALAR[rows, features],
// rows `out_stride` apart, each element written once. A warp has one row and a tile of LANES * VEC features, blockIdx.y
// is the tile. Bound by latency: bounds, indices and source rows are read one after the other, and there are no other
// rows behind which a multiprocessor could hide that. So all rows are under way from the start, the lanes of a warp load
// its bounds and indices side by side and hand them on by shuffles, and no warp waits for another before it has written
// its row. Where a row has fewer vectors than a warp has lanes, SPLIT parts of the warp load different edges.
// Sums have the bits of register_tile: edges are added in their order, whichever part has loaded them, and the edges of
// a row of more than HEAVY go round by PARTS sums, which are added in their order; there the block's warps share them.
//
// COEF: 0 none, 1 one coefficient per edge. OWN: as in row_end.cuh.
// @variants SCALAR=float,double VEC=1,2,4 LANES=8,32 PARTS=2,8 COEF=0,1 OWN=0,1
#include "row_end.cuh"

#ifndef LANES
#define LANES 32
#endif
#ifndef COEF
#define COEF 0
#endif
#ifndef PARTS
#define PARTS 4
#endif
#ifndef HEAVY
#define HEAVY 64
#endif
#define WARPS 4
#define MIN_BLOCKS 4  // WARPS * MIN_BLOCKS rows are under way on a multiprocessor: ROWS_PER_SM of few_rows.py
#define SPLIT (32 / LANES)
#define ROUND 16  // edges under way
#define FULL 0xFFFFFFFFu

struct Edges {
    const int* indices;
    const SCALAR* coef;
    const SCALAR* column;  // of x: where the lane's features of row 0 are
    u32 features;
    bool inside;  // whether the lane has features
};

// Adds edges first, first + step, ... below end. All lanes of a warp have the same ones, and add all of them.
__device__ __forceinline__ void add_edges(const Edges& edges, i64 first, i64 step, i64 end, Vec& sum) {
    const int lane = threadIdx.x % 32, part = lane / LANES;
    for (; first < end; first += ROUND * step) {
        const i64 e = first + lane * step;
        int held = -1;
        SCALAR weight = 0;
        if (lane < ROUND && e < end) {
            held = __ldg(edges.indices + e);
            if (COEF) weight = __ldg(edges.coef + e);
        }
        const int count = __popc(__ballot_sync(FULL, held >= 0));
        Vec values[ROUND / SPLIT];
#pragma unroll
        for (int u = 0; u < ROUND / SPLIT; ++u) {
            const int source = __shfl_sync(FULL, held, u * SPLIT + part);
            values[u] = zero_vec();
            if (source >= 0 && edges.inside) values[u] = load_vec(edges.column + (u64)(u32)source * edges.features);
        }
#pragma unroll
        for (int k = 0; k < ROUND; ++k) {  // to the end, so that nothing branches between shuffles
            const SCALAR times = COEF ? __shfl_sync(FULL, weight, k) : (SCALAR)1;
#pragma unroll
            for (int i = 0; i < VEC; ++i) {
                SCALAR value = values[k / SPLIT].v[i];
                if (SPLIT > 1) value = __shfl_sync(FULL, value, k % SPLIT * LANES + lane % LANES);
                if (k < count) sum.v[i] = COEF ? lab_fma(times, value, sum.v[i]) : sum.v[i] + value;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, MIN_BLOCKS)
    few_rows(const i64* indptr, const int* indices, const SCALAR* coef, const SCALAR* x, SCALAR* out, u64 rows,
             u32 features, u32 mean, u64 out_stride
#if OWN
             ,
             const SCALAR* own, const SCALAR* bias, u32 relu, const SCALAR* more
#endif
    ) {
    __shared__ Vec parts[PARTS][LANES];
    const u32 warp = threadIdx.x / 32, slot = threadIdx.x % LANES, f = (blockIdx.y * LANES + slot) * VEC;
    const bool inside = f < features, writes = inside && threadIdx.x % 32 < LANES;
    const Edges edges = {indices, coef, x + (inside ? f : 0), features, inside};
    const RowEnd row_end = {mean
#if OWN
                            ,
                            own, bias, relu, more ? (SCALAR)1 + __ldg(more) : (SCALAR)1
#endif
    };
    const u64 first = blockIdx.x * (u64)WARPS;
    bool heavy = false;
    if (first + warp < rows) {
        const u64 row = first + warp;
        const i64 begin = __ldg(indptr + row), end = __ldg(indptr + row + 1);
        heavy = end - begin > HEAVY;
        if (!heavy) {
            Vec sum = zero_vec();
            add_edges(edges, begin, 1, end, sum);
            if (writes) {
                end_vec(row_end, end - begin, row * features + f, f, sum);
                store_vec(out + row * out_stride + f, sum);
            }
        }
    }
    if (!__syncthreads_or(heavy)) return;
    for (u64 row = first; row < first + WARPS && row < rows; ++row) {
        const i64 begin = __ldg(indptr + row), end = __ldg(indptr + row + 1);
        if (end - begin <= HEAVY) continue;
        for (u32 part = warp; part < PARTS; part += WARPS) {
            Vec sum = zero_vec();
            add_edges(edges, begin + part, PARTS, end, sum);
            if (threadIdx.x % 32 < LANES) parts[part][slot] = sum;
        }
        __syncthreads();
        if (threadIdx.x < LANES && inside) {
            Vec sum = parts[0][slot];
            for (u32 part = 1; part < PARTS; ++part)
#pragma unroll
                for (int i = 0; i < VEC; ++i) sum.v[i] += parts[part][slot].v[i];
            end_vec(row_end, end - begin, row * features + f, f, sum);
            store_vec(out + row * out_stride + f, sum);
        }
        __syncthreads();
    }
}
