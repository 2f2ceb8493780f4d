// Sums over the edges of each vertex, with what follows them folded in.
//
// indptr: i64[rows + 1]; indices: int[edges]; x: SCALAR[*, x_stride]; out: SCALAR[rows, out_stride].
// starts, stops: i64[rows], the edges of a row that are added; indptr and indptr + 1 where that is all of them.
// A team of TEAM lanes owns a row, LANES of them hold its columns, VEC each, and TEAM / LANES edges are added at once, UNROLL
// times as many in flight. Sources of TEAM edges come with one load, those of the next TEAM edges while rows are on their way.
// Rows with more than `length` edges to add are cut into pieces of that many, which are rows of their own at first
// (piece_sums), or a hub would hold up the launch: its row then adds the pieces' sums in their order, so results do not
// depend on scheduling. first_piece: int[rows + 1], piece_row: int[pieces].
// order: int[rows], the rows in the order of their turns, or null; neighbouring turns with common sources find these in the L2.
// Bound by bytes: a row of x per edge, from the L2 where it lies there, otherwise from DRAM.
//
// x has heads * padded columns, out heads * size: padded is a multiple of VEC, so that loads are as wide as they can be
// whatever `size` is. EDGE: columns are written one by one, since rows of out (or of own) are not aligned.
// COEF: 0 none, 1 coef[e], 2 the edge softmax: exp(leaky(source[s, h] + target[r, h])) over its sum, online, with
// source: SCALAR[vertices, heads], target: SCALAR[rows, heads], and log_sum: SCALAR[rows, heads] written if not null.
// Before a row is written: a row of early, SCALAR[rows, x_stride], is added, which holds the sums over the edges before
// starts; mean == 1 divides by its edges, those before among them, a row of own is added, mean == 2 divides by its edges
// and one more, then the bias and the ReLU. early, own and bias may be null.
// @variants SCALAR=float,double VEC=1,2,4 LANES=4,16,32 UNROLL=4,8 COEF=0,1,2 EDGE=0,1
#include "compute/inference/row_sums.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    row_sums(const i64* indptr, const i64* starts, const i64* stops, const int* indices, const int* first_piece, const int* order, const SCALAR* x, const SCALAR* coef, const SCALAR* source, const SCALAR* target, SCALAR* log_sum,
             const SCALAR* partial, const SCALAR* partial_scale, const SCALAR* early, SCALAR* out, const SCALAR* own, const SCALAR* bias,
             u64 rows, u64 x_stride, u64 out_stride, u64 own_stride, u32 heads, u32 size, u32 padded, u32 length,
             u32 mean, u32 relu, SCALAR slope) {
    const u64 turn = (blockIdx.x * (u64)THREADS + threadIdx.x) / TEAM;
    if (turn >= rows) return;  // a whole team leaves
    const u64 row = order ? (u64)(u32)__ldg(order + turn) : turn;
    const Team t = my_team(heads, padded);
    const i64 begin = __ldg(starts + row), stop = __ldg(stops + row);
    const Edges edges = {indices, x, coef, source, target + row * heads, x_stride, heads, slope};
    State s;
    if (length && stop - begin > length) {
        clear(s);
        const i64 base = __ldg(first_piece + row);
        for (i64 p = base; p < base + (stop - begin + length - 1) / length; ++p) {
            if (!t.mine) continue;
            State more;
            more.sum = load_vec(partial + p * (heads * padded) + t.f);
            more.highest = COEF == 2 ? __ldg(partial_scale + (p * heads + t.head) * 2) : (SCALAR)0;
            more.total = COEF == 2 ? __ldg(partial_scale + (p * heads + t.head) * 2 + 1) : (SCALAR)0;
            join(s, more);
        }
    } else {
        add_edges(edges, t, begin, stop, s);
    }
    if (t.group || !t.mine) return;
    if (early) {
        const Vec before = load_vec(early + row * x_stride + t.f);
#pragma unroll
        for (int i = 0; i < VEC; ++i) s.sum.v[i] += before.v[i];
    }
    if (COEF == 2) {
        const SCALAR inverse = s.total != 0 ? (SCALAR)1 / s.total : (SCALAR)0;
#pragma unroll
        for (int i = 0; i < VEC; ++i) s.sum.v[i] *= inverse;
        if (log_sum && t.f % padded == 0)
            log_sum[row * heads + t.head] = s.total != 0 ? s.highest + lab_log(s.total) : (SCALAR)0;
    }
    const u32 in_head = t.f - t.head * padded, column = t.head * size + in_head;
    SCALAR* to = out + row * out_stride + column;
    const i64 edge_count = stop - __ldg(indptr + row);
    const SCALAR once = mean == 1 && edge_count > 1 ? (SCALAR)1 / (SCALAR)edge_count : (SCALAR)1;
    const SCALAR after = mean == 2 ? (SCALAR)1 / (SCALAR)(edge_count + 1) : (SCALAR)1;
    Vec before = zero_vec(), shift = zero_vec();
    if (EDGE) {
#pragma unroll
        for (int i = 0; i < VEC; ++i) {
            if (in_head + i >= size) continue;
            if (own) before.v[i] = __ldg(own + row * own_stride + column + i);
            if (bias) shift.v[i] = __ldg(bias + column + i);
        }
    } else {
        if (own) before = load_vec(own + row * own_stride + column);
        if (bias) shift = load_vec(bias + column);
    }
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
        const SCALAR v = (s.sum.v[i] * once + before.v[i]) * after + shift.v[i];
        s.sum.v[i] = relu && v < 0 ? (SCALAR)0 : v;
    }
    if (!EDGE) {
        store_vec(to, s.sum);
        return;
    }
#pragma unroll
    for (int i = 0; i < VEC; ++i)
        if (in_head + i < size) to[i] = s.sum.v[i];
}

// Pieces of long rows: sums to partial, SCALAR[pieces, heads * padded], and with COEF 2 the highest score and the sum of
// exponentials to partial_scale, SCALAR[pieces, heads, 2]. begin_row: the vertex of the first row; pieces of others leave.
extern "C" __global__ void __launch_bounds__(THREADS)
    piece_sums(const i64* starts, const i64* stops, const int* indices, const int* first_piece, const int* piece_row, const SCALAR* x,
               const SCALAR* coef, const SCALAR* source, const SCALAR* target, SCALAR* partial, SCALAR* partial_scale, u64 pieces, u64 begin_row, u64 rows,
               u64 x_stride, u32 heads, u32 padded, u32 length, SCALAR slope) {
    const u64 piece = (blockIdx.x * (u64)THREADS + threadIdx.x) / TEAM;
    if (piece >= pieces) return;
    const u64 vertex = (u64)(u32)__ldg(piece_row + piece), row = vertex - begin_row;
    if (vertex < begin_row || row >= rows) return;
    const Team t = my_team(heads, padded);
    const i64 begin = __ldg(starts + row), stop = __ldg(stops + row);
    const i64 at = begin + (i64)(piece - (u64)(u32)__ldg(first_piece + row)) * length;
    const i64 end = stop < at + length ? stop : at + length;
    const Edges edges = {indices, x, coef, source, target + row * heads, x_stride, heads, slope};
    State s;
    add_edges(edges, t, at, end, s);
    if (t.group || !t.mine) return;
    *(Vec*)(partial + piece * (heads * padded) + t.f) = s.sum;
    if (COEF == 2 && t.f % padded == 0) {
        partial_scale[(piece * heads + t.head) * 2] = s.highest;
        partial_scale[(piece * heads + t.head) * 2 + 1] = s.total;
    }
}

// For each row the first of its edges, which are sorted by source, whose source is `cut` or more.
extern "C" __global__ void __launch_bounds__(THREADS)
    cut_rows(const i64* indptr, const int* indices, i64* at, u64 rows, int cut) {
    const u64 row = blockIdx.x * (u64)THREADS + threadIdx.x;
    if (row >= rows) return;
    i64 low = __ldg(indptr + row), high = __ldg(indptr + row + 1);
    while (low < high) {  // bounded: the interval halves
        const i64 middle = low + (high - low) / 2;
        if (__ldg(indices + middle) < cut)
            low = middle + 1;
        else
            high = middle;
    }
    at[row] = low;
}
