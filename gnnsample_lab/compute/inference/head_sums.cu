// Attention of all heads over the rows themselves: out[r, h] = sum over e of a(e, h) * x[indices[e]], with a(., h) the softmax
// over the edges of row r of leaky(source[indices[e], h] + target[r, h]). What a head maps its sums to comes later, by
// one product for all vertices, so that one row of x per edge serves all heads.
//
// indptr: i64[rows + 1]; x: SCALAR[*, x_stride]; source: SCALAR[vertices, HEADS]; target: SCALAR[rows, HEADS];
// out: SCALAR[rows, HEADS, columns]. A warp owns a row: it takes 32 edges at a time, first their scores, a lane per edge and
// head, then their rows, LANES lanes of VEC columns each, every lane for all heads; the shares pass through shared memory.
// Rows with more than `length` edges are cut into pieces, and have turns, as in row_sums.cu.
// Bound by bytes: a row of x and HEADS scores per edge; 2 * HEADS * columns operations per edge come close to it.
// EDGE: columns are written one by one, since rows of out are not aligned.
// @variants SCALAR=float,double VEC=1,2,4 LANES=4,16,32 HEADS=1,3,8,16 EDGE=0,1
#include "compute/aggregation/vectors.cuh"
#ifndef LANES
#define LANES 16
#endif
#ifndef HEADS
#define HEADS 8
#endif
#ifndef EDGE
#define EDGE 0
#endif
#ifndef UNROLL
#define UNROLL 4
#endif
#define THREADS 256
#define ALL 0xffffffffu
#define GROUPS (32 / LANES)
#define PLACES (HEADS > 8 ? 16 : HEADS > 4 ? 8 : HEADS > 2 ? 4 : HEADS > 1 ? 2 : 1)

__device__ __forceinline__ float lab_exp(float v) { return __expf(v); }
__device__ __forceinline__ double lab_exp(double v) { return exp(v); }

// highest, total: of head lane % PLACES; sum: multiples of exp(-highest).
struct State {
    Vec sum[HEADS];
    SCALAR highest, total;
};

struct Edges {
    const int* indices;
    const SCALAR *x, *source, *target;
    u64 x_stride;
    SCALAR slope;
};

__device__ __forceinline__ SCALAR lowest() { return -(SCALAR)__int_as_float(0x7f800000); }

__device__ __forceinline__ void scale(State& s, SCALAR by) {
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        const SCALAR one = __shfl_sync(ALL, by, h);
#pragma unroll
        for (int i = 0; i < VEC; ++i) s.sum[h].v[i] *= one;
    }
}

// The shares of up to 32 edges, a lane for each source, go to `shares`, [32, PLACES]; the sums so far follow.
__device__ __forceinline__ void share_edges(const Edges& p, int id, u32 count, SCALAR target, SCALAR* shares, State& s) {
    const u32 lane = threadIdx.x % 32, head = lane % PLACES, which = lane / PLACES;
    SCALAR score[PLACES], highest = s.highest;
#pragma unroll
    for (int i = 0; i < PLACES; ++i) {
        const u32 k = which + i * (32 / PLACES);
        const u64 from = (u64)(u32)__shfl_sync(ALL, id, (int)k);
        score[i] = k < count && head < HEADS ? __ldg(p.source + from * HEADS + head) : lowest();
    }
#pragma unroll
    for (int i = 0; i < PLACES; ++i) {
        score[i] += target;
        if (!(score[i] > 0)) score[i] *= p.slope;
        if (which + i * (32 / PLACES) >= count || head >= HEADS) score[i] = lowest();
        highest = score[i] > highest ? score[i] : highest;
    }
#pragma unroll
    for (int apart = PLACES; apart < 32; apart *= 2) {
        const SCALAR other = __shfl_xor_sync(ALL, highest, apart);
        highest = other > highest ? other : highest;
    }
    if (head >= HEADS) highest = 0;
    const SCALAR past = s.highest == highest ? (SCALAR)1 : lab_exp(s.highest - highest);
    s.highest = highest;
    s.total *= past;
#pragma unroll
    for (int i = 0; i < PLACES; ++i) {
        const SCALAR share = lab_exp(score[i] - highest);
        s.total += share;
        shares[lane + 32 * i] = share;
    }
    if (__any_sync(ALL, past != 1)) scale(s, past);
    __syncwarp();
}

// The edges at .. end - 1 of a row; all lanes of the warp take part. f: the lane's column.
__device__ __forceinline__ void add_edges(const Edges& p, u32 f, bool mine, i64 at, i64 end, SCALAR* shares, State& s) {
    const u32 lane = threadIdx.x % 32, group = lane / LANES;
    const SCALAR target = lane % PLACES < HEADS ? __ldg(p.target + lane % PLACES) : (SCALAR)0;
    int next = at + lane < end ? __ldg(p.indices + at + lane) : 0;
    for (; at < end; at += 32) {
        const int id = next;
        const u32 count = end - at < 32 ? (u32)(end - at) : 32;
        if (at + 32 + lane < end) next = __ldg(p.indices + at + 32 + lane);
        share_edges(p, id, count, target, shares, s);
        for (u32 j = 0; j < count; j += UNROLL * GROUPS) {
            Vec values[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const u32 k = j + u * GROUPS + group;
                const u64 from = (u64)(u32)__shfl_sync(ALL, id, (int)k);
                values[u] = zero_vec();
                if (k < count && mine) values[u] = load_vec(p.x + from * p.x_stride + f);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const SCALAR* share = shares + (j + u * GROUPS + group) * PLACES;
#pragma unroll
                for (int h = 0; h < HEADS; ++h)
#pragma unroll
                    for (int i = 0; i < VEC; ++i) s.sum[h].v[i] = lab_fma(share[h], values[u].v[i], s.sum[h].v[i]);
            }
        }
        __syncwarp();
    }
#pragma unroll
    for (int apart = PLACES; apart < 32; apart *= 2) s.total += __shfl_xor_sync(ALL, s.total, apart);
#pragma unroll
    for (int apart = LANES; apart < 32; apart *= 2)
#pragma unroll
        for (int h = 0; h < HEADS; ++h)
#pragma unroll
            for (int i = 0; i < VEC; ++i) s.sum[h].v[i] += __shfl_xor_sync(ALL, s.sum[h].v[i], apart);
}

__device__ __forceinline__ void clear(State& s) {
#pragma unroll
    for (int h = 0; h < HEADS; ++h) s.sum[h] = zero_vec();
    s.highest = lowest();
    s.total = 0;
}

// Pieces first .. behind - 1 of a long row. scales: SCALAR[pieces, HEADS, 2], the highest score and the sum of exponentials.
__device__ __forceinline__ void add_pieces(const SCALAR* partial, const SCALAR* scales, i64 first, i64 behind, u64 width,
                                           u32 f, bool mine, State& s) {
    const u32 head = threadIdx.x % PLACES < HEADS ? threadIdx.x % PLACES : 0;
    for (i64 p = first; p < behind; ++p) {
        const SCALAR one = __ldg(scales + (p * HEADS + head) * 2);
        s.highest = one > s.highest ? one : s.highest;
    }
    for (i64 p = first; p < behind; ++p) {
        const SCALAR share = lab_exp(__ldg(scales + (p * HEADS + head) * 2) - s.highest);
        s.total += share * __ldg(scales + (p * HEADS + head) * 2 + 1);
#pragma unroll
        for (int h = 0; h < HEADS; ++h) {
            const SCALAR by = __shfl_sync(ALL, share, h);
            if (!mine) continue;
            const Vec more = load_vec(partial + (p * HEADS + h) * width + f);
#pragma unroll
            for (int i = 0; i < VEC; ++i) s.sum[h].v[i] = lab_fma(by, more.v[i], s.sum[h].v[i]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, sizeof(SCALAR) == 4 ? 3 : 1)
    head_sums(const i64* indptr, const int* indices, const int* first_piece, const int* order, const SCALAR* x, const SCALAR* source,
              const SCALAR* target, const SCALAR* partial, const SCALAR* scales, SCALAR* out, u64 rows, u64 x_stride,
              u32 columns, u32 length, SCALAR slope) {
    __shared__ __align__(16) SCALAR shares[THREADS / 32][32 * PLACES];
    const u64 turn = (blockIdx.x * (u64)THREADS + threadIdx.x) / 32;
    if (turn >= rows) return;  // a whole warp leaves
    const u64 row = order ? (u64)(u32)__ldg(order + turn) : turn;
    const u32 f = (blockIdx.y * LANES + threadIdx.x % LANES) * VEC;
    const bool mine = f < columns;
    const i64 begin = __ldg(indptr + row), end = __ldg(indptr + row + 1);
    State s;
    clear(s);
    if (length && end - begin > length) {
        const i64 first = __ldg(first_piece + row);
        add_pieces(partial, scales, first, first + (end - begin + length - 1) / length, x_stride, f, mine, s);
    } else {
        const Edges edges = {indices, x, source, target + row * HEADS, x_stride, slope};
        add_edges(edges, f, mine, begin, end, shares[threadIdx.x / 32], s);
    }
    scale(s, s.total > 0 ? (SCALAR)1 / s.total : (SCALAR)0);
    if (threadIdx.x % 32 >= LANES || !mine) return;
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        SCALAR* to = out + (row * HEADS + h) * columns + f;
        if (!EDGE) {
            store_vec(to, s.sum[h]);
            continue;
        }
#pragma unroll
        for (int i = 0; i < VEC; ++i)
            if (f + i < columns) to[i] = s.sum[h].v[i];
    }
}

// Pieces of long rows: sums to partial, SCALAR[pieces, HEADS, x_stride], and to scales. begin_row: the vertex of the first row.
extern "C" __global__ void __launch_bounds__(THREADS, sizeof(SCALAR) == 4 ? 3 : 1)
    piece_head_sums(const i64* indptr, const int* indices, const int* first_piece, const int* piece_row, const SCALAR* x,
                    const SCALAR* source, const SCALAR* target, SCALAR* partial, SCALAR* scales, u64 pieces,
                    u64 begin_row, u64 rows, u64 x_stride, u32 columns, u32 length, SCALAR slope) {
    __shared__ __align__(16) SCALAR shares[THREADS / 32][32 * PLACES];
    const u64 piece = (blockIdx.x * (u64)THREADS + threadIdx.x) / 32;
    if (piece >= pieces) return;
    const u64 vertex = (u64)(u32)__ldg(piece_row + piece), row = vertex - begin_row;
    if (vertex < begin_row || row >= rows) return;
    const u32 f = (blockIdx.y * LANES + threadIdx.x % LANES) * VEC, lane = threadIdx.x % 32;
    const bool mine = f < columns;
    const i64 stop = __ldg(indptr + row + 1);
    const i64 at = __ldg(indptr + row) + (i64)(piece - (u64)(u32)__ldg(first_piece + row)) * length;
    const Edges edges = {indices, x, source, target + row * HEADS, x_stride, slope};
    State s;
    clear(s);
    add_edges(edges, f, mine, at, stop < at + length ? stop : at + length, shares[threadIdx.x / 32], s);
    if (blockIdx.y == 0 && lane < PLACES && lane < HEADS) {
        scales[(piece * HEADS + lane) * 2] = s.highest;
        scales[(piece * HEADS + lane) * 2 + 1] = s.total;
    }
    if (lane >= LANES || !mine) return;
#pragma unroll
    for (int h = 0; h < HEADS; ++h) *(Vec*)(partial + (piece * HEADS + h) * x_stride + f) = s.sum[h];
}
