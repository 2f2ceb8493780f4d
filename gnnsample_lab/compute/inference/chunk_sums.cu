// Sums of source rows, chunk of sources by chunk of sources: what the edges from one chunk give is added to the sums.
//
// A row's edges are sorted by source, so those from a chunk are a run: it begins where the last chunk's ended, at
// cursor[row], and no edge has to be grouped beforehand. ahead[row] is the source of the edge at the cursor (INT_MAX
// behind the last edge), so that rows without an edge from the chunk cost four bytes.
// indices: int[edges of the graph]; indptr: i64[rows + 1], where the rows' edges lie in it; x: SCALAR[end - begin,
// features], the sources begin .. end - 1; out: SCALAR[rows, features], added to.
// A warp looks at 32 rows and takes those with edges one by one; LANES lanes add one edge, 32 / LANES edges at a time.
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

// Adds row `row` and returns where its next edge lies. All lanes of the warp take part.
__device__ __forceinline__ i64 add_row(const Chunk& p, u64 row, i64 first, i64 stop) {
    const u32 lane = threadIdx.x % 32, group = lane / LANES, heads = COEF == 2 ? p.features / p.size : 1;
    i64 at = first;
    for (u32 tile = 0; tile < p.features; tile += LANES * VEC) {
        const u32 f = tile + lane % LANES * VEC;
        const bool mine = f < p.features;
        const u32 head = COEF == 2 && mine ? f / p.size : 0;
        const SCALAR target = COEF == 2 ? __ldg(p.target + row * heads + head) : (SCALAR)0;
        const SCALAR log_sum = COEF == 2 ? __ldg(p.log_sum + row * heads + head) : (SCALAR)0;
        Vec sum = zero_vec();
        at = first;
        for (bool more = true; more;) {  // bounded: `at` grows by 32 until it reaches `stop` or the chunk's end
            const int id = at + lane < stop ? __ldg(p.indices + at + lane) : NO_SOURCE;
            const u32 count = __popc(__ballot_sync(ALL, id < p.end));
#pragma unroll 4
            for (u32 j = 0; j < count; j += 32 / LANES) {
                const u32 k = j + group;
                const int s = __shfl_sync(ALL, id, (int)(k % 32));
                if (k < count && mine) {
                    const Vec v = load_vec(p.x + (u64)(u32)(s - p.begin) * p.features + f);
                    SCALAR c = 1;
                    if (COEF == 1) c = __ldg(p.coef + at + k);
                    if (COEF == 2) {
                        const SCALAR score = __ldg(p.source + (u64)(u32)s * heads + head) + target;
                        c = chunk_exp((score > 0 ? score : score * p.slope) - log_sum);
                    }
#pragma unroll
                    for (int i = 0; i < VEC; ++i) sum.v[i] = COEF ? lab_fma(c, v.v[i], sum.v[i]) : sum.v[i] + v.v[i];
                }
            }
            at += count;
            more = count == 32;
        }
#pragma unroll
        for (int step = LANES; step < 32; step *= 2)
#pragma unroll
            for (int i = 0; i < VEC; ++i) sum.v[i] += __shfl_xor_sync(ALL, sum.v[i], step);
        if (group == 0 && mine) {
            Vec* to = (Vec*)(p.out + row * p.features + f);
            Vec before = *to;
#pragma unroll
            for (int i = 0; i < VEC; ++i) before.v[i] += sum.v[i];
            *to = before;
        }
    }
    return at;
}

extern "C" __global__ void add_chunk(const i64* indptr, const int* indices, i64* cursor, int* ahead, int begin, int end,
                                     const SCALAR* x, const SCALAR* coef, const SCALAR* source, const SCALAR* target,
                                     const SCALAR* log_sum, SCALAR* out, u64 rows, u32 features, u32 size,
                                     SCALAR slope) {
    const u32 lane = threadIdx.x % 32;
    const u64 first = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / 32 * 32;
    if (first >= rows) return;
    const Chunk chunk = {indices, x, coef, source, target, log_sum, out, begin, end, features, size, slope};
    const bool active = first + lane < rows && ahead[first + lane] < end;
    for (u32 left = __ballot_sync(ALL, active); left; left &= left - 1) {
        const u64 row = first + __ffs((int)left) - 1;
        const i64 stop = __ldg(indptr + row + 1), next = add_row(chunk, row, cursor[row], stop);
        __syncwarp();
        if (lane == 0) {
            cursor[row] = next;
            ahead[row] = next < stop ? __ldg(indices + next) : NO_SOURCE;
        }
    }
}
