// Edge softmax and aggregation in one pass: out[r, h] = sum over e of a(e, h) * x[indices[e], h], where a(., h) is the
// softmax over the edges of row r of leaky(source[indices[e], h] + target[r, h]).
//
// x, out: SCALAR[*, heads * size]; source, target: SCALAR[*, heads] (rows of x, source, target may lie apart); log_sum: SCALAR[rows, heads], for the backward pass.
// A group of LANES threads owns a row, each lane VEC features of one head at a time; the softmax runs online, so every
// edge is read once. Rows without edges give zeros. Bound like register_tile by gathered bytes, plus an exponential per
// lane and edge.
// @variants SCALAR=float,double VEC=1,2,4 LANES=4,32 TEAM=1,2,32 STEPS=1,3 SCATTER=0,1
#include "compute/aggregation/vectors.cuh"
#ifndef LANES
#define LANES 16
#endif
#define UNROLL 4

__device__ __forceinline__ float lab_exp(float v) { return expf(v); }
__device__ __forceinline__ double lab_exp(double v) { return exp(v); }
__device__ __forceinline__ float lab_log(float v) { return logf(v); }
__device__ __forceinline__ double lab_log(double v) { return log(v); }
__device__ __forceinline__ SCALAR leaky(SCALAR v, SCALAR slope) { return v > 0 ? v : v * slope; }

extern "C" __global__ void attend(const i64* indptr, const int* indices, const SCALAR* x, const SCALAR* source,
                                  const SCALAR* target, SCALAR* out, SCALAR* log_sum, u64 rows, u32 heads, u32 size,
                                  SCALAR slope, u64 x_stride, u64 source_stride, u64 target_stride) {
    const u64 row = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / LANES;
    if (row >= rows) return;
    const i64 begin = __ldg(indptr + row), end = __ldg(indptr + row + 1);
    const u32 features = heads * size;
    for (u32 f = threadIdx.x % LANES * VEC; f < features; f += LANES * VEC) {
        const u32 head = f / size;
        const SCALAR mine = __ldg(target + row * target_stride + head);
        SCALAR highest = 0, total = 0;
        Vec sum = zero_vec();
        for (i64 e = begin; e < end; e += UNROLL) {
            Vec values[UNROLL];
            SCALAR scores[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                values[u] = zero_vec();
                scores[u] = 0;
                if (e + u < end) {
                    const u64 at = (u64)__ldg(indices + e + u);
                    scores[u] = __ldg(source + at * source_stride + head);
                    values[u] = load_vec(x + at * x_stride + f);
                }
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                if (e + u >= end) break;
                const SCALAR score = leaky(scores[u] + mine, slope);
                const bool first = e + u == begin, higher = first || score > highest;
                const SCALAR past = first ? (SCALAR)0 : higher ? lab_exp(highest - score) : (SCALAR)1;
                const SCALAR now = higher ? (SCALAR)1 : lab_exp(score - highest);
                if (higher) highest = score;
                total = lab_fma(total, past, now);
#pragma unroll
                for (int i = 0; i < VEC; ++i) sum.v[i] = lab_fma(sum.v[i], past, now * values[u].v[i]);
            }
        }
        const SCALAR inverse = end > begin ? (SCALAR)1 / total : (SCALAR)0;
#pragma unroll
        for (int i = 0; i < VEC; ++i) sum.v[i] *= inverse;
        store_vec(out + row * features + f, sum);
        if (f % size == 0) log_sum[row * heads + head] = end > begin ? highest + lab_log(total) : (SCALAR)0;
    }
}

// Backward: per edge and head the attention (for the gradient of x) and the gradient of the score, both at the edge's
// place in the transposed block; per row the gradient of its own score. A team of TEAM lanes per (row, head), with STEPS
// loads of VEC features a lane and UNROLL edges in flight; teams of neighbouring heads read neighbouring features:
//   d leaky = a * (<grad, x> - <grad, out>), since sum over e of a * <grad, x> = <grad, out>.
// SCATTER: both are added to the gradients of the sources at once, which are zeroed; nothing is transposed.
#ifndef TEAM
#define TEAM 4
#endif
#ifndef STEPS
#define STEPS 1
#endif
#ifndef SCATTER
#define SCATTER 0
#endif

__device__ __forceinline__ SCALAR team_sum(SCALAR value, u32 team) {
#pragma unroll
    for (int apart = TEAM / 2; apart; apart >>= 1) value += __shfl_xor_sync(team, value, apart);
    return value;
}

extern "C" __global__ void attend_backward(const i64* indptr, const int* indices, const u32* slots, const SCALAR* x,
                                           const SCALAR* source, const SCALAR* target, const SCALAR* out,
                                           const SCALAR* log_sum, const SCALAR* grad, SCALAR* placed_attention,
                                           SCALAR* placed_score, SCALAR* target_grad, u64 rows, u32 heads, u32 size,
                                           SCALAR slope, u64 x_stride, u64 source_stride, u64 target_stride
#if SCATTER
                                           ,
                                           SCALAR* x_grad, SCALAR* source_grad, u64 x_grad_stride,
                                           u64 source_grad_stride
#endif
) {
    const u64 at = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / TEAM;
    if (at >= rows * heads) return;  // a whole team leaves
    const u32 lane = threadIdx.x % TEAM, first = threadIdx.x % 32 / TEAM * TEAM;
    const u32 team = TEAM == 32 ? 0xFFFFFFFFu : ((1u << TEAM % 32) - 1) << first;
    const u64 row = at / heads;
    const u32 head = (u32)(at % heads), features = heads * size;
    const SCALAR mine = __ldg(target + row * target_stride + head), lse = __ldg(log_sum + at);
    Vec g[STEPS];
    SCALAR along = 0, sum = 0;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        const u32 f = (s * TEAM + lane) * VEC;
        g[s] = zero_vec();
        if (f >= size) continue;
        g[s] = load_vec(grad + row * features + head * size + f);
        const Vec o = load_vec(out + row * features + head * size + f);
#pragma unroll
        for (int i = 0; i < VEC; ++i) along = lab_fma(g[s].v[i], o.v[i], along);
    }
    along = team_sum(along, team);
    const i64 end = __ldg(indptr + row + 1);
    for (i64 e = __ldg(indptr + row); e < end; e += UNROLL) {
        SCALAR raw[UNROLL], dot[UNROLL];
        u64 sources[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            raw[u] = dot[u] = 0;
            sources[u] = 0;
            if (e + u >= end) continue;
            const u64 from = sources[u] = (u64)__ldg(indices + e + u);
            raw[u] = __ldg(source + from * source_stride + head) + mine;
#pragma unroll
            for (int s = 0; s < STEPS; ++s) {
                const u32 f = (s * TEAM + lane) * VEC;
                if (f >= size) continue;
                const Vec b = load_vec(x + from * x_stride + head * size + f);
#pragma unroll
                for (int i = 0; i < VEC; ++i) dot[u] = lab_fma(g[s].v[i], b.v[i], dot[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            dot[u] = team_sum(dot[u], team);
            if (e + u >= end) continue;
            const SCALAR attention = lab_exp(leaky(raw[u], slope) - lse);
            const SCALAR d = attention * (dot[u] - along) * (raw[u] > 0 ? (SCALAR)1 : slope);
#if SCATTER
#pragma unroll
            for (int s = 0; s < STEPS; ++s) {
                const u32 f = (s * TEAM + lane) * VEC;
                if (f >= size) continue;
                Vec v;
#pragma unroll
                for (int i = 0; i < VEC; ++i) v.v[i] = attention * g[s].v[i];
                add_at(x_grad + sources[u] * x_grad_stride + head * size + f, v);
            }
            if (lane == 0) atomicAdd(source_grad + sources[u] * source_grad_stride + head, d);
#else
            if (lane == 0) {
                const u64 place = (u64)slots[e + u] * heads + head;
                placed_attention[place] = attention;
                placed_score[place] = d;
            }
#endif
            sum += d;
        }
    }
    if (lane == 0) target_grad[at] = sum;
}
