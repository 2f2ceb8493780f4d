// The baselines of the aggregation ladder: out[r] = scale(r) * sum over e in row r of coef(e) * x[indices[e]].
//
// indptr: i64[rows + 1]; indices: i32[edges]; coef: SCALAR[edges] or null (ones); x: SCALAR[*, features];
// out: SCALAR[rows, features]; scale is 1, or 1 / row length where `mean` is set. Each thread moves one feature of one
// row; what differs is where partial sums and weights live while it does.
// Bound by traffic: `naive` reads and writes its partial sum in global memory for every edge (FastGL, eq. 3),
// `memory_aware` in shared memory (eq. 4), `grouped` in registers per group of neighbours, joined by atomics, `advised`
// in shared memory per group (GNNAdvisor's kernel).
// ROWS x COLS: rows and features per block and tile of memory_aware (X and Y of FastGL, section 4.2); COLS in multiples
// of 32. As published a warp has one row and a thread one feature; with EACH a warp has several rows, with CHUNKS a thread
// one feature of each of several tiles, for which edges are staged once.
// @variants SCALAR=float,double ROWS=8,4 COLS=32,64 EACH=1,4 CHUNKS=1,2
#define VEC 1
#include "vectors.cuh"

#ifndef ROWS
#define ROWS 8
#endif
#ifndef COLS
#define COLS 32
#endif
#ifndef EACH
#define EACH 1
#endif
#ifndef CHUNKS
#define CHUNKS 1
#endif
#define AHEAD 4  // edges under way

__device__ __forceinline__ SCALAR scale_of(i64 length, u32 mean) {
    return mean && length > 1 ? (SCALAR)1 / (SCALAR)length : (SCALAR)1;
}

// A thread per (row, feature). volatile keeps the compiler from holding sums and weights in registers, which is the
// access pattern that eq. 3 counts.
extern "C" __global__ void naive(const i64* indptr, const int* indices, const volatile SCALAR* coef, const SCALAR* x,
                                 volatile SCALAR* out, u64 rows, u32 features, u32 mean) {
    const u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (at >= rows * features) return;
    const u64 row = at / features, f = at % features;
    const i64 begin = indptr[row], end = indptr[row + 1];
    out[at] = 0;
    for (i64 e = begin; e < end; ++e) {
        const SCALAR value = x[(u64)indices[e] * features + f];
        out[at] = lab_fma(coef ? coef[e] : (SCALAR)1, value, out[at]);
    }
    if (mean) out[at] = out[at] * scale_of(end - begin, mean);
}

struct Columns {
    u32 first;   // the thread's feature of the first tile; of tile c: c * COLS further on
    u32 inside;  // bit c: that of tile c lies within the features
};

__device__ __forceinline__ void read_row(SCALAR values[CHUNKS], const Columns& columns, const SCALAR* row) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
        values[c] = columns.inside >> c & 1 ? __ldg(row + columns.first + c * COLS) : (SCALAR)0;
}

// Writes a row's sums and clears them.
__device__ __forceinline__ void end_row(volatile SCALAR sums[CHUNKS][ROWS * COLS], u32 me, const Columns& columns,
                                        SCALAR* out, SCALAR scale) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        if (columns.inside >> c & 1) out[columns.first + c * COLS] = sums[c][me] * scale;
        sums[c][me] = 0;
    }
}

// Blocks of COLS x ROWS threads; blockIdx.y counts groups of CHUNKS tiles. A warp takes EACH rows by itself, so it needs no
// barrier of the block: it stages 32 weights and source ids at a time, both in one latency. Rows of one or two edges, as
// in backward passes, are one latency each otherwise.
extern "C" __global__ void __launch_bounds__(ROWS* COLS)
    memory_aware(const i64* indptr, const int* indices, const SCALAR* coef, const SCALAR* x, SCALAR* out, u64 rows,
                 u32 features, u32 mean) {
    __shared__ volatile SCALAR sums[CHUNKS][ROWS * COLS];
    __shared__ SCALAR weights[ROWS * COLS];
    __shared__ int sources[ROWS * COLS];
    const u32 me = threadIdx.y * COLS + threadIdx.x, lane = threadIdx.x % 32, warp_first = me - lane;
    const u64 row0 = (blockIdx.x * (u64)ROWS + threadIdx.y) * EACH;
    if (row0 >= rows) return;
    Columns columns = {blockIdx.y * CHUNKS * COLS + threadIdx.x, 0};
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) columns.inside |= (u32)(columns.first + c * COLS < features) << c;
    const int mine = (int)(rows - row0 < EACH ? rows - row0 : EACH);
    const i64 bound = indptr[row0 + (lane < (u32)mine ? lane : mine)];  // lane r: where row r begins
    const i64 end = __shfl_sync(0xFFFFFFFFu, bound, mine);
    i64 begin = __shfl_sync(0xFFFFFFFFu, bound, 0), row_end = __shfl_sync(0xFFFFFFFFu, bound, 1);
    int row = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) sums[c][me] = 0;
    for (i64 first = begin; first < end; first += 32) {
        const int count = (int)(end - first < 32 ? end - first : 32);
        __syncwarp();
        if (lane < count) {
            sources[me] = indices[first + lane];
            weights[me] = coef ? coef[first + lane] : (SCALAR)1;
        }
        __syncwarp();
        // show: aggregate in shared memory
        for (int j = 0; j < count; j += AHEAD) {
            SCALAR values[AHEAD][CHUNKS];
#pragma unroll
            for (int k = 0; k < AHEAD; ++k)
                if (j + k < count) read_row(values[k], columns, x + (u64)sources[warp_first + j + k] * features);
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                if (j + k >= count) break;
                while (first + j + k >= row_end) {  // bounded: first + j + k < end, where the last row ends
                    end_row(sums, me, columns, out + (row0 + row) * features, scale_of(row_end - begin, mean));
                    begin = row_end, row_end = __shfl_sync(0xFFFFFFFFu, bound, ++row + 1);
                }
                const SCALAR weight = weights[warp_first + j + k];
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) sums[c][me] = lab_fma(weight, values[k][c], sums[c][me]);
            }
        }
        // end: aggregate in shared memory
    }
    for (; row < mine; ++row) {
        end_row(sums, me, columns, out + (row0 + row) * features, scale_of(row_end - begin, mean));
        begin = row_end, row_end = __shfl_sync(0xFFFFFFFFu, bound, row + 2);
    }
}

// Preprocessing of `grouped`: how many groups of at most `size` edges each row has, then where each group begins.
extern "C" __global__ void group_count(const i64* indptr, u64 rows, int size, i64* counts) {
    const u64 row = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (row < rows) counts[row] = (indptr[row + 1] - indptr[row] + size - 1) / size;
}

// ends: inclusive scan of the counts.
extern "C" __global__ void group_fill(const i64* indptr, const i64* ends, u64 rows, int size, int* group_row,
                                      i64* group_begin) {
    const u64 row = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (row >= rows) return;
    i64 at = row ? ends[row - 1] : 0;
    for (i64 e = indptr[row]; e < indptr[row + 1]; e += size, ++at) {
        group_row[at] = (int)row;
        group_begin[at] = e;
    }
}

// A warp per group of neighbours, its lanes along the features; `out` must be zero. The order in which the groups of a
// row arrive is not fixed, so neither is the last bit of the sum.
extern "C" __global__ void grouped(const i64* indptr, const int* indices, const SCALAR* coef, const SCALAR* x,
                                   SCALAR* out, const int* group_row, const i64* group_begin, u64 groups, int size,
                                   u32 features, u32 mean) {
    const u64 group = blockIdx.x * (u64)(blockDim.x / 32) + threadIdx.x / 32;
    if (group >= groups) return;
    const u64 row = group_row[group];
    const i64 begin = group_begin[group], last = indptr[row + 1], length = last - indptr[row];
    const i64 end = begin + size < last ? begin + size : last;
    const SCALAR scale = scale_of(length, mean);
    for (u32 f = threadIdx.x % 32; f < features; f += 32) {
        SCALAR sum = 0;
        for (i64 e = begin; e < end; ++e) {
            const SCALAR value = __ldg(x + (u64)__ldg(indices + e) * features + f);
            sum = lab_fma(coef ? __ldg(coef + e) : (SCALAR)1, value, sum);
        }
        atomicAdd(out + row * features + f, sum * scale);
    }
}

// GNNAdvisor's kernel: a warp per group of neighbours stages the group's ids in shared memory and keeps its partial sums
// there; of the warp the first `workers` lanes share the features (its dimension workers), and add the sums to `out`, which
// must be zero. Its paper renumbers vertices beforehand where edges lead far; no kernel depends on that.
// Dynamic shared memory: per warp SCALAR[features], then for all warps int[size].
extern "C" __global__ void advised(const i64* indptr, const int* indices, const SCALAR* coef, const SCALAR* x,
                                   SCALAR* out, const int* group_row, const i64* group_begin, u64 groups, int size,
                                   u32 features, u32 mean, u32 workers) {
    extern __shared__ __align__(16) unsigned char memory[];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    SCALAR* sums = (SCALAR*)memory + (u64)warp * features;
    int* ids = (int*)((SCALAR*)memory + (u64)warps * features) + warp * size;
    const u64 group = blockIdx.x * (u64)warps + warp;
    if (group >= groups) return;
    const u64 row = group_row[group];
    const i64 begin = group_begin[group], last = indptr[row + 1], length = last - indptr[row];
    const int count = (int)(begin + size < last ? size : last - begin);
    for (int i = lane; i < count; i += 32) ids[i] = indices[begin + i];
    __syncwarp();
    if (lane >= workers) return;
    for (u32 f = lane; f < features; f += workers) sums[f] = 0;
    for (int i = 0; i < count; ++i) {
        const SCALAR* source = x + (u64)ids[i] * features;
        const SCALAR weight = coef ? coef[begin + i] : (SCALAR)1;
        for (u32 f = lane; f < features; f += workers) sums[f] = lab_fma(weight, source[f], sums[f]);
    }
    const SCALAR scale = scale_of(length, mean);
    for (u32 f = lane; f < features; f += workers) atomicAdd(out + row * features + f, sums[f] * scale);
}

// The gradient of the weights: out[e] = scale(row) * <grad[row], x[indices[e]]>; a warp per row.
extern "C" __global__ void edge_dots(const i64* indptr, const int* indices, const SCALAR* grad, const SCALAR* x,
                                     SCALAR* out, u64 rows, u32 features, u32 mean) {
    const u64 row = blockIdx.x * (u64)(blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const u32 lane = threadIdx.x % 32;
    const i64 begin = indptr[row], end = indptr[row + 1];
    const SCALAR scale = scale_of(end - begin, mean);
    for (i64 e = begin; e < end; e += 2) {
        const bool two = e + 1 < end;
        const SCALAR* a = x + (u64)__ldg(indices + e) * features;
        const SCALAR* b = x + (u64)__ldg(indices + e + two) * features;
        SCALAR first = 0, second = 0;
        for (u32 f = lane; f < features; f += 32) {
            const SCALAR g = __ldg(grad + row * features + f);
            first = lab_fma(g, __ldg(a + f), first);
            second = lab_fma(g, __ldg(b + f), second);
        }
#pragma unroll
        for (int apart = 16; apart; apart >>= 1) {
            first += __shfl_xor_sync(0xFFFFFFFFu, first, apart);
            second += __shfl_xor_sync(0xFFFFFFFFu, second, apart);
        }
        if (lane == 0) {
            out[e] = first * scale;
            if (two) out[e + 1] = second * scale;
        }
    }
}
