// Sums of source rows, chunk of sources by chunk of sources: what the edges from one chunk give is added to the sums.
//
// A row's edges are sorted by source, so those from a chunk are a run: it begins where the last chunk's ended, at
// cursor[row], and no edge has to be grouped beforehand. ahead[row] is the source of the edge at the cursor (INT_MAX
// behind the last edge), so that rows without an edge from the chunk cost four bytes.
// indices: int[edges of the graph]; indptr: i64[rows + 1], where the rows' edges lie in it; x: SCALAR[end - begin,
// features], the sources begin .. end - 1; out: SCALAR[rows, features], added to.
// A warp looks at 32 rows and takes those with edges one by one; LANES lanes add one edge, 32 / LANES edges at a time.
// Rows with more than HEAVY edges from the chunk are shared by the block's warps, or a hub would hold up the launch.
// Bound by bytes: gathered rows from the L2 that the copy has filled, one read and one write of a sum per row and chunk.
//
// COEF: 0 none, 1 coef[e] per edge of the graph, 2 the edge softmax: exp(leaky(source[s, h] + target[row, h]) -
// log_sum[row, h]), with source: SCALAR[vertices, heads], target, log_sum: SCALAR[rows, heads], features = heads * size.
// @variants SCALAR=float,double VEC=1,2,4 LANES=4,32 COEF=0,1,2
#include "compute/aggregation/vectors.cuh"

#ifndef LANES
#define LANES 32
#endif
#ifndef COEF
#define COEF 0
#endif
#ifndef HEAVY
#define HEAVY 128
#endif
#define WARPS 8
#define ALL 0xffffffffu
#define NO_SOURCE 0x7fffffff

__device__ __forceinline__ float chunk_exp(float v) { return expf(v); }
__device__ __forceinline__ double chunk_exp(double v) { return exp(v); }

struct Chunk {
    const int* indices;
    const SCALAR *x, *coef, *source, *target, *log_sum;
    SCALAR* out;
    int begin, end;
    u32 features, size;
    SCALAR slope;
};

// The features of one lane of a row.
struct Place {
    u32 f, head, heads;
    bool mine;
    SCALAR target, log_sum;
};

__device__ __forceinline__ Place place_of(const Chunk& p, u64 row, u32 tile) {
    Place l;
    l.f = tile + threadIdx.x % LANES * VEC;
    l.mine = l.f < p.features;
    l.heads = COEF == 2 ? p.features / p.size : 1;
    l.head = COEF == 2 && l.mine ? l.f / p.size : 0;
    l.target = COEF == 2 ? __ldg(p.target + row * l.heads + l.head) : (SCALAR)0;
    l.log_sum = COEF == 2 ? __ldg(p.log_sum + row * l.heads + l.head) : (SCALAR)0;
    return l;
}

// Adds up to 32 edges from `at` on, of which each lane has one's source, to the lane's sum; all lanes take part.
__device__ __forceinline__ void add_edges(const Chunk& p, const Place& l, i64 at, int id, u32 count, Vec& sum) {
    const u32 group = threadIdx.x % 32 / LANES;
#pragma unroll 4
    for (u32 j = 0; j < count; j += 32 / LANES) {
        const u32 k = j + group;
        const int s = __shfl_sync(ALL, id, (int)(k % 32));
        if (k < count && l.mine) {
            const Vec v = load_vec(p.x + (u64)(u32)(s - p.begin) * p.features + l.f);
            SCALAR c = 1;
            if (COEF == 1) c = __ldg(p.coef + at + k);
            if (COEF == 2) {
                const SCALAR score = __ldg(p.source + (u64)(u32)s * l.heads + l.head) + l.target;
                c = chunk_exp((score > 0 ? score : score * p.slope) - l.log_sum);
            }
#pragma unroll
            for (int i = 0; i < VEC; ++i) sum.v[i] = COEF ? lab_fma(c, v.v[i], sum.v[i]) : sum.v[i] + v.v[i];
        }
    }
}

// The sum over the warp's groups, in each of them.
__device__ __forceinline__ void over_groups(Vec& sum) {
#pragma unroll
    for (int step = LANES; step < 32; step *= 2)
#pragma unroll
        for (int i = 0; i < VEC; ++i) sum.v[i] += __shfl_xor_sync(ALL, sum.v[i], step);
}

__device__ __forceinline__ void add_to_row(const Chunk& p, u64 row, u32 f, const Vec& sum) {
    Vec* to = (Vec*)(p.out + row * p.features + f);
    Vec before = *to;
#pragma unroll
    for (int i = 0; i < VEC; ++i) before.v[i] += sum.v[i];
    *to = before;
}

// Adds row `row` and returns where its next edge lies. All lanes of the warp take part.
__device__ __forceinline__ i64 add_row(const Chunk& p, u64 row, i64 first, i64 stop) {
    const u32 lane = threadIdx.x % 32;
    i64 at = first;
    for (u32 tile = 0; tile < p.features; tile += LANES * VEC) {
        const Place l = place_of(p, row, tile);
        Vec sum = zero_vec();
        at = first;
        for (bool more = true; more;) {  // bounded: `at` grows by 32 until it reaches `stop` or the chunk's end
            const int id = at + lane < stop ? __ldg(p.indices + at + lane) : NO_SOURCE;
            const u32 count = __popc(__ballot_sync(ALL, id < p.end));
            add_edges(p, l, at, id, count, sum);
            at += count;
            more = count == 32;
        }
        over_groups(sum);
        if (lane < LANES && l.mine) add_to_row(p, row, l.f, sum);
    }
    return at;
}

// Adds the edges first .. behind - 1 of row `row`. All threads of the block take part.
__device__ __forceinline__ void add_heavy_row(const Chunk& p, u64 row, i64 first, i64 behind) {
    __shared__ SCALAR parts[WARPS][LANES * VEC];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u32 tile = 0; tile < p.features; tile += LANES * VEC) {
        const Place l = place_of(p, row, tile);
        Vec sum = zero_vec();
        for (i64 at = first + warp * 32; at < behind; at += WARPS * 32) {
            const int id = at + lane < behind ? __ldg(p.indices + at + lane) : NO_SOURCE;
            add_edges(p, l, at, id, (u32)(behind - at < 32 ? behind - at : 32), sum);
        }
        over_groups(sum);
        if (lane < LANES)
#pragma unroll
            for (int i = 0; i < VEC; ++i) parts[warp][lane * VEC + i] = sum.v[i];
        __syncthreads();
        if (warp == 0 && lane < LANES && l.mine) {
            for (u32 w = 1; w < WARPS; ++w)
#pragma unroll
                for (int i = 0; i < VEC; ++i) sum.v[i] += parts[w][lane * VEC + i];
            add_to_row(p, row, l.f, sum);
        }
        __syncthreads();
    }
}

// The first of the positions at .. stop - 1 whose source is not below `end`, or `stop`.
__device__ __forceinline__ i64 first_behind(const int* indices, i64 at, i64 stop, int end) {
    while (at < stop) {  // bounded: each round halves what is left
        const i64 middle = at + (stop - at) / 2;
        if (__ldg(indices + middle) < end)
            at = middle + 1;
        else
            stop = middle;
    }
    return at;
}

extern "C" __global__ void add_chunk(const i64* indptr, const int* indices, i64* cursor, int* ahead, int begin, int end,
                                     const SCALAR* x, const SCALAR* coef, const SCALAR* source, const SCALAR* target,
                                     const SCALAR* log_sum, SCALAR* out, u64 rows, u32 features, u32 size,
                                     SCALAR slope) {
    __shared__ u32 heavy[WARPS];  // a bit for each row with many edges from the chunk
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 block_first = blockIdx.x * (u64)blockDim.x, first = block_first + warp * 32;
    const Chunk chunk = {indices, x, coef, source, target, log_sum, out, begin, end, features, size, slope};
    const bool active = first + lane < rows && ahead[first + lane] < end;
    u32 deferred = 0;
    for (u32 left = __ballot_sync(ALL, active); left; left &= left - 1) {
        const u64 row = first + __ffs((int)left) - 1;
        const i64 at = cursor[row], stop = __ldg(indptr + row + 1);
        if (stop - at > HEAVY && __ldg(indices + at + HEAVY) < end) {
            deferred |= left & (0u - left);
            continue;
        }
        const i64 next = add_row(chunk, row, at, stop);
        __syncwarp();
        if (lane == 0) {
            cursor[row] = next;
            ahead[row] = next < stop ? __ldg(indices + next) : NO_SOURCE;
        }
    }
    if (lane == 0) heavy[warp] = deferred;
    if (!__syncthreads_or(deferred != 0)) return;
    for (u32 w = 0; w < WARPS; ++w)
        for (u32 left = heavy[w]; left; left &= left - 1) {
            const u64 row = block_first + w * 32 + __ffs((int)left) - 1;
            const i64 at = cursor[row], stop = __ldg(indptr + row + 1);
            const i64 next = first_behind(indices, at, stop, end);
            add_heavy_row(chunk, row, at, next);
            if (threadIdx.x == 0) {  // everybody has read them: the last tile ends with a barrier
                cursor[row] = next;
                ahead[row] = next < stop ? __ldg(indices + next) : NO_SOURCE;
            }
        }
}

// What happens to sums when the last chunk has been added, as row_sums does it while it writes: mean == 1 divides
// by the edges, a row of `own` is added, mean == 2 divides by the edges and one more, then the bias and the ReLU. One
// pass over the sums; own and bias may be null.
extern "C" __global__ void fold_rows(const i64* indptr, SCALAR* out, const SCALAR* own, const SCALAR* bias, u64 rows,
                                     u32 features, u32 mean, u32 relu, u64 stride, u64 own_stride) {
    const u32 vectors = features / VEC;
    const u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x, row = at / vectors;
    if (row >= rows) return;
    const u32 f = (u32)(at % vectors) * VEC;
    const i64 length = __ldg(indptr + row + 1) - __ldg(indptr + row);
    const SCALAR first = mean == 1 && length > 1 ? (SCALAR)1 / (SCALAR)length : (SCALAR)1;
    const SCALAR second = mean == 2 ? (SCALAR)1 / (SCALAR)(length + 1) : (SCALAR)1;
    Vec* to = (Vec*)(out + row * stride + f);
    Vec sum = *to;
    const Vec mine = own ? load_vec(own + row * own_stride + f) : zero_vec(), shift = bias ? load_vec(bias + f) : zero_vec();
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
        const SCALAR v = (sum.v[i] * first + mine.v[i]) * second + shift.v[i];
        sum.v[i] = relu && v < 0 ? (SCALAR)0 : v;
    }
    *to = sum;
}
