// Row-wise sums of gathered rows, out[r] = scale(r) * sum over e in row r of coef(e) * x[indices[e]], tiled in registers.
//
// indptr: i64[rows + 1]; indices: i32[edges]; x: SCALAR[*, features]; out: SCALAR[rows, features], rows `out_stride`
// apart, each element written once (rows without edges: zeros). A group of LANES threads takes `depth` neighbouring rows and one tile of LANES *
// VEC * CHUNKS features, and reads the rows' edges as one stream, so that UNROLL source rows are in flight whatever the
// rows' lengths are (a transposed block of a sampled batch has mostly one to three edges a row). It adds in the order of
// the edges, so the sum does not depend on any knob (but HEAVY and the number of groups, for long rows). The block's row bounds, indices and coefficients go to shared
// memory first (the latter two unless they are more than STAGED), so that a group waits for source rows and nothing else.
// Bound by bytes: few edges a row and little arithmetic, so what counts is 16-byte loads in flight and how often a source
// row comes from the L2 rather than from DRAM. With `tile_last` set, all rows of one feature tile are done before the next
// tile begins: the part of x in use at a time is one tile wide, and more of it fits the L2.
// Rows longer than HEAVY are shared by the block, so that a hub of a transposed block does not hold up one group.
// OWN: as in row_end.cuh, the own row times 1 + *more, if given.
//
// COEF: 0 none, 1 one coefficient per edge, 2 one per edge and head (features = heads x head_size).
// DIRECT: 1 when edge e itself is the row of x (sums over contiguous segments).
// @variants SCALAR=float,double VEC=1,2,4 LANES=4,32 CHUNKS=1,2 UNROLL=4,8,16 COEF=0,1,2 LOAD=0,1 DIRECT=0,1 OWN=0,1
#include "row_end.cuh"

#ifndef LANES
#define LANES 32
#endif
#ifndef CHUNKS
#define CHUNKS 1
#endif
#ifndef UNROLL
#define UNROLL 8
#endif
#ifndef COEF
#define COEF 0
#endif
#ifndef DIRECT
#define DIRECT 0
#endif
#ifndef THREADS
#define THREADS 256
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1
#endif
#ifndef HEAVY
#define HEAVY 192
#endif
#if THREADS % LANES
#error "a block holds whole groups: THREADS must be a multiple of LANES"
#endif
#define GROUPS (THREADS / LANES)
#define MAX_DEPTH 16
#define STAGED 2048

__shared__ int ends[GROUPS * MAX_DEPTH + 1];  // where the block's rows begin and end, counted from its first edge
__shared__ int staged_indices[STAGED];
__shared__ SCALAR staged_coef[COEF == 1 ? STAGED : 1];

struct Problem {
    const int* indices;  // of the block's first edge on
    const SCALAR* coef;  // likewise
    SCALAR* out;         // of the block's first row on
    i64 first_edge;
    u64 row_bytes, out_stride;
    u32 features, heads;
    RowEnd end;  // own: of the block's first row on
};

// The features of one lane: chunk c begins at first + c * LANES * VEC.
struct Lane {
    const char* x;
    u32 first;
    u32 chunks;  // bit c: chunk c lies within the features
    u32 head[CHUNKS];
};

struct Loaded {
    Vec rows[UNROLL][CHUNKS];
    SCALAR coef[UNROLL][COEF == 2 ? CHUNKS : 1];
};

__device__ __forceinline__ void clear(Vec sum[CHUNKS]) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) sum[c] = zero_vec();
}

template <bool STAGE>
__device__ __forceinline__ void fetch(const Problem& p, int at, int step, int end, int sources[UNROLL]) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const int e = at + u * step;
        sources[u] = -1;
        if (e < end) sources[u] = DIRECT ? 0 : STAGE ? staged_indices[e] : __ldg(p.indices + e);
    }
}

// Starts the loads of edges at, at + step, ... whose sources are at hand.
template <bool STAGE>
__device__ __forceinline__ void load(const Problem& p, const Lane& lane, int at, int step, const int sources[UNROLL],
                                     Loaded& l) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const bool valid = sources[u] >= 0;
        const int e = at + u * step;
        const u64 source = DIRECT ? (u64)(p.first_edge + e) : (u64)(u32)sources[u];
        const SCALAR* from = (const SCALAR*)(lane.x + source * p.row_bytes);
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            l.rows[u][c] = zero_vec();
            if (valid && (lane.chunks >> c & 1)) l.rows[u][c] = load_vec(from + c * LANES * VEC);
        }
#pragma unroll
        for (int c = 0; c < (COEF == 2 ? CHUNKS : COEF); ++c) {
            l.coef[u][c] = 0;
            if (COEF == 1 && STAGE) {
                if (valid) l.coef[u][c] = staged_coef[e];
            } else if (valid && (COEF == 1 || (lane.chunks >> c & 1)))
                l.coef[u][c] = __ldg(p.coef + (u64)e * p.heads + lane.head[c]);
        }
    }
}

__device__ __forceinline__ void add(const Loaded& l, int u, Vec sum[CHUNKS]) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
            sum[c].v[i] = COEF ? lab_fma(l.coef[u][COEF == 2 ? c : 0], l.rows[u][c].v[i], sum[c].v[i])
                               : sum[c].v[i] + l.rows[u][c].v[i];
}

__device__ __forceinline__ void write_row(const Problem& p, const Lane& lane, int row, int length, Vec sum[CHUNKS]) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        if (!(lane.chunks >> c & 1)) continue;
        const u32 f = lane.first + c * LANES * VEC;
        end_vec(p.end, length, (u64)row * p.features + f, f, sum[c]);
        store_vec(p.out + (u64)row * p.out_stride + f, sum[c]);
    }
    clear(sum);
}

// Rows first .. last - 1 of the block, none of them long, their edges as one stream.
template <bool STAGE>
__device__ __forceinline__ void stream(const Problem& p, const Lane& lane, int first, int last) {
    const int end = ends[last];
    int e = ends[first], row = first, row_begin = e, row_end = ends[first + 1];
    int sources[UNROLL];
    fetch<STAGE>(p, e, 1, end, sources);
    Vec sum[CHUNKS];
    clear(sum);
    for (; e < end; e += UNROLL) {
        Loaded l;
        load<STAGE>(p, lane, e, 1, sources, l);
        fetch<STAGE>(p, e + UNROLL, 1, end, sources);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (e + u >= end) break;
            while (e + u >= row_end) {  // bounded: e + u < end = ends[last]
                write_row(p, lane, row++, row_end - row_begin, sum);
                row_begin = row_end, row_end = ends[row + 1];
            }
            add(l, u, sum);
        }
    }
    for (; row < last; ++row) {
        write_row(p, lane, row, row_end - row_begin, sum);
        if (row + 1 < last) row_begin = row_end, row_end = ends[row + 2];
    }
}

// A long row by the whole block: group g adds edges g, g + GROUPS, ...; the groups' sums are added in their order.
__device__ __forceinline__ void heavy_row(const Problem& p, const Lane& lane, int row) {
    __shared__ SCALAR parts[THREADS * VEC];
    const int group = threadIdx.x / LANES, begin = ends[row], end = ends[row + 1];
    Vec sum[CHUNKS];
    clear(sum);
    int sources[UNROLL];
    fetch<false>(p, begin + group, GROUPS, end, sources);
    for (int e = begin + group; e < end; e += UNROLL * GROUPS) {
        Loaded l;
        load<false>(p, lane, e, GROUPS, sources, l);
        fetch<false>(p, e + UNROLL * GROUPS, GROUPS, end, sources);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (e + u * GROUPS < end) add(l, u, sum);
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
        for (int i = 0; i < VEC; ++i) parts[threadIdx.x * VEC + i] = sum[c].v[i];
        __syncthreads();
        if (group == 0) {
            for (u32 g = 1; g < GROUPS; ++g)
#pragma unroll
                for (int i = 0; i < VEC; ++i) sum[c].v[i] += parts[(g * LANES + threadIdx.x) * VEC + i];
        }
        __syncthreads();
    }
    if (group == 0) write_row(p, lane, row, end - begin, sum);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    register_tile(const i64* indptr, const int* indices, const SCALAR* coef, const SCALAR* x, SCALAR* out, u64 rows,
                  u32 features, u32 head_size, u32 tiles, u32 row_blocks, u32 depth, u32 mean, u32 tile_last,
                  u64 out_stride
#if OWN
                  ,
                  const SCALAR* own, const SCALAR* bias, u32 relu, const SCALAR* more
#endif
    ) {
    __shared__ u32 heavy[(GROUPS * MAX_DEPTH + 31) / 32];  // a bit for each long row
    const u32 tile = tile_last ? blockIdx.x / row_blocks : blockIdx.x % tiles;
    const u32 row_block = tile_last ? blockIdx.x % row_blocks : blockIdx.x / tiles;
    const u64 first = (u64)row_block * depth * GROUPS;
    const int num_rows = (int)(rows - first < (u64)depth * GROUPS ? rows - first : (u64)depth * GROUPS);
    const i64 first_edge = __ldg(indptr + first), edges = __ldg(indptr + first + num_rows) - first_edge;
    const u32 heads = COEF == 2 ? features / head_size : 1;
    const Problem p = {indices + first_edge, coef + (COEF ? first_edge * heads : 0), out + first * out_stride, first_edge,
                       (u64)features * sizeof(SCALAR), out_stride, features, heads, {mean
#if OWN
                       ,
                       own + first * features, bias, relu, more ? (SCALAR)1 + __ldg(more) : (SCALAR)1
#endif
                       }};
    Lane lane;
    lane.first = tile * (LANES * VEC * CHUNKS) + threadIdx.x % LANES * VEC;
    lane.x = (const char*)(x + lane.first);
    lane.chunks = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const u32 at = lane.first + c * LANES * VEC;
        lane.chunks |= (u32)(at < features) << c;
        lane.head[c] = COEF == 2 && at < features ? at / head_size : 0;
    }
    const bool staged = edges <= STAGED;
    for (int i = threadIdx.x; i <= num_rows; i += THREADS) ends[i] = (int)(__ldg(indptr + first + i) - first_edge);
    for (int i = threadIdx.x; i < (GROUPS * MAX_DEPTH + 31) / 32; i += THREADS) heavy[i] = 0;
    if (staged) {
        for (int i = threadIdx.x; i < (int)edges; i += THREADS) {
            if (!DIRECT) staged_indices[i] = __ldg(p.indices + i);
            if (COEF == 1) staged_coef[i] = __ldg(p.coef + i);
        }
    }
    __syncthreads();
    bool any = false;
    int row = threadIdx.x / LANES * (int)depth;
    const int last = row + (int)depth < num_rows ? row + (int)depth : num_rows;
    for (int next; row < last; row = next) {
        next = row + 1;
        if (ends[next] - ends[row] > HEAVY) {
            any = true;
            if (threadIdx.x % LANES == 0) atomicOr(heavy + row / 32, 1u << row % 32);
            continue;
        }
        // bounded: by `last`
        while (next < last && ends[next + 1] - ends[next] <= HEAVY) ++next;
        if (staged)
            stream<true>(p, lane, row, next);
        else
            stream<false>(p, lane, row, next);
    }
    if (!__syncthreads_or(any)) return;
    for (int i = 0; i < (num_rows + 31) / 32; ++i)
        for (u32 bits = heavy[i]; bits; bits &= bits - 1) heavy_row(p, lane, i * 32 + __ffs((int)bits) - 1);
}
