// What a team of lanes adds over a run of edges (row_sums.cu tells of the macros).
#ifndef LAB_ROW_SUMS
#define LAB_ROW_SUMS
#include "compute/aggregation/vectors.cuh"
#ifndef LANES
#define LANES 16
#endif
#ifndef UNROLL
#define UNROLL 4
#endif
#ifndef COEF
#define COEF 0
#endif
#ifndef EDGE
#define EDGE 0
#endif
#define THREADS 256
#define TEAM 32
#define ALL 0xffffffffu
#define GROUPS (TEAM / LANES)

__device__ __forceinline__ float lab_exp(float v) { return __expf(v); }
__device__ __forceinline__ double lab_exp(double v) { return exp(v); }
__device__ __forceinline__ float lab_log(float v) { return logf(v); }
__device__ __forceinline__ double lab_log(double v) { return log(v); }

// A lane's place in its team: column f of the tile, in head `head`; group: which of the edges at once.
struct Team {
    u32 lane, group, f, head;
    bool mine;
};

struct Edges {
    const int* indices;
    const SCALAR *x, *coef, *source, *target;
    u64 x_stride;
    u32 heads;
    SCALAR slope;
};

// Of COEF 2: `sum` and `total` are multiples of exp(-highest); total is 0 without edges, and else 1 or more, or no number.
struct State {
    Vec sum;
    SCALAR highest, total;
};

__device__ __forceinline__ Team my_team(u32 heads, u32 padded) {
    Team t;
    t.lane = threadIdx.x % TEAM;
    t.group = t.lane / LANES;
    t.f = (blockIdx.y * LANES + t.lane % LANES) * VEC;
    t.mine = t.f < heads * padded;
    t.head = t.mine ? t.f / padded : 0;
    return t;
}

__device__ __forceinline__ void clear(State& s) {
    s.sum = zero_vec();
    s.highest = s.total = 0;
}

// Adds what `more` holds to `s`.
__device__ __forceinline__ void join(State& s, const State& more) {
    if (COEF != 2) {
#pragma unroll
        for (int i = 0; i < VEC; ++i) s.sum.v[i] += more.sum.v[i];
        return;
    }
    if (more.total == 0) return;
    if (s.total == 0) {
        s = more;
        return;
    }
    const SCALAR highest = s.highest > more.highest ? s.highest : more.highest;
    const SCALAR a = lab_exp(s.highest - highest), b = lab_exp(more.highest - highest);
#pragma unroll
    for (int i = 0; i < VEC; ++i) s.sum.v[i] = lab_fma(b, more.sum.v[i], a * s.sum.v[i]);
    s.total = a * s.total + b * more.total;
    s.highest = highest;
}

// The edges at .. end - 1, in every lane of the team that holds the column.
__device__ __forceinline__ void add_edges(const Edges& p, const Team& t, i64 at, i64 end, State& s) {
    clear(s);
    const SCALAR mine = COEF == 2 && t.mine ? __ldg(p.target + t.head) : (SCALAR)0;
    int next = at + t.lane < end ? __ldg(p.indices + at + t.lane) : 0;
    SCALAR next_coef = COEF == 1 && at + t.lane < end ? __ldg(p.coef + at + t.lane) : (SCALAR)0;
    for (; at < end; at += TEAM) {
        const int id = next;
        const SCALAR coef = next_coef;
        const u32 count = end - at < TEAM ? (u32)(end - at) : TEAM;
        if (at + TEAM + t.lane < end) {
            next = __ldg(p.indices + at + TEAM + t.lane);
            if (COEF == 1) next_coef = __ldg(p.coef + at + TEAM + t.lane);
        }
        for (u32 j = 0; j < count; j += UNROLL * GROUPS) {
            Vec values[UNROLL];
            SCALAR share[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const u32 k = j + u * GROUPS + t.group;
                const u64 from = (u64)(u32)__shfl_sync(ALL, id, (int)(k % TEAM), TEAM);
                share[u] = COEF == 1 ? __shfl_sync(ALL, coef, (int)(k % TEAM), TEAM) : (SCALAR)0;
                values[u] = zero_vec();
                if (k < count && t.mine) {
                    if (COEF == 2) share[u] = __ldg(p.source + from * p.heads + t.head);
                    values[u] = load_vec(p.x + from * p.x_stride + t.f);
                }
            }
            if (COEF == 2) {
                SCALAR highest = s.highest;
                bool any = s.total != 0;
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    if (j + u * GROUPS + t.group >= count) continue;
                    const SCALAR score = share[u] + mine;
                    share[u] = score > 0 ? score : score * p.slope;
                    if (!any || share[u] > highest) highest = share[u];
                    any = true;
                }
                if (any) {
                    if (s.total != 0 && highest > s.highest) {
                        const SCALAR past = lab_exp(s.highest - highest);
                        s.total *= past;
#pragma unroll
                        for (int i = 0; i < VEC; ++i) s.sum.v[i] *= past;
                    }
                    s.highest = highest;
                }
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    const bool valid = j + u * GROUPS + t.group < count;
                    share[u] = valid ? lab_exp(share[u] - highest) : (SCALAR)0;
                    s.total += share[u];
                }
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u)
#pragma unroll
                for (int i = 0; i < VEC; ++i)
                    s.sum.v[i] = COEF ? lab_fma(share[u], values[u].v[i], s.sum.v[i]) : s.sum.v[i] + values[u].v[i];
        }
    }
#pragma unroll
    for (int apart = LANES; apart < TEAM; apart *= 2) {
        State more;
#pragma unroll
        for (int i = 0; i < VEC; ++i) more.sum.v[i] = __shfl_xor_sync(ALL, s.sum.v[i], apart, TEAM);
        more.highest = COEF == 2 ? __shfl_xor_sync(ALL, s.highest, apart, TEAM) : (SCALAR)0;
        more.total = COEF == 2 ? __shfl_xor_sync(ALL, s.total, apart, TEAM) : (SCALAR)0;
        join(s, more);
    }
}
#endif
