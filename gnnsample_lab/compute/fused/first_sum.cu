// The last hop of a mini-batch, its rows of features and the first layer's sum or mean in one pass: for every vertex that
// the hop expands, draw its picks, read their rows where the features lie, add them up, and copy the vertex's own row.
// Picks are those of the sampler, bit for bit, since a draw depends on (seed, batch, hop, vertex) alone.
//
// nodes: ID_T[rows]; table: SCALAR[*, features]. Written: own and sums, SCALAR[rows, features] each, rows `out_stride`
// apart; counts: float[rows], how many picks a row has. A pick leaves no trace in memory: it needs no local id, and no row
// of its own.
// A warp takes `per_warp` rows: a lane draws for a row, then groups of LANES threads read the picked rows as one stream
// (own rows among them), so that UNROLL rows are in flight whatever the fanout is. It adds in the order of the picks, as
// the sum over a block does.
// Bound by bytes: a row of features for each pick, of which duplicates may come from the L2, and two rows written.
//
// CACHED: slots say which row of the table is v's; where it has none, row v of `host`, pinned memory, is read.
// ALONG: a part of the launch that samples the hops before (minibatch/gpu/rows.py). Vertices, their number and where to
// write are read from device memory; the results lie behind the mini-batch's other arrays, own rows beside sums, float
// [rows, 2 features], then the counts. blockIdx.y selects the mini-batch.
// @variants ID_T=int,long RULE=0,1,2,3,4 KMAX=8,16,32 VEC=1,2,4 LANES=8,32 CHUNKS=1,2 CACHED=0,1 ALONG=0,1
#include "compute/aggregation/vectors.cuh"
#include "features/caching/slots.cuh"
#include "minibatch/gpu/place.cuh"
#include "sampling/neighbors/hops/draw.cuh"

#ifndef LANES
#define LANES 32
#endif
#ifndef CHUNKS
#define CHUNKS 1
#endif
#ifndef UNROLL
#define UNROLL 4
#endif
#ifndef CACHED
#define CACHED 0
#endif
#ifndef ALONG
#define ALONG 0
#endif
#ifndef ROWS
#define ROWS 8  // most rows of a warp
#endif
#ifndef THREADS
#define THREADS 128
#endif
#define WARPS (THREADS / 32)
#define COUNTERS 16  // of a launch
#define FULL 0xFFFFFFFFu

#if CACHED
typedef i64 Source;  // a row of the table, or IN_HOST | a row of the host's; ~ of it for a vertex's own row
#define IN_HOST (1ll << 40)
#else
typedef ID_T Source;
#endif

struct First {
    const ID_T* nodes;
    const SCALAR* table;
    const uint2* slots;
    const SCALAR* host;
    SCALAR* own;
    SCALAR* sums;
    float* counts;
    u64* counted;  // [COUNTERS][2]: picks, and rows of picks and of vertices that were read from the host
    u64 rows, host_stride, out_stride;
    u32 features, batch_id, mean, per_warp, most;  // most: the largest fanout
    u32 warps_wanted;  // ALONG: below which a warp takes fewer rows; per_warp: the most
    u64 ends[LAB_MAX_HOPS];  // rows before ends[h], and not before ends[h - 1], are drawn at hop h
    int fanouts[LAB_MAX_HOPS + 1];
};

__device__ __forceinline__ Source place_of(const First& f, u64 v) {
#if CACHED
    const int row = f.slots ? slot_of(f.slots, v) : -1;
    return row >= 0 ? (i64)row : (i64)(IN_HOST | v);
#else
    return (Source)v;
#endif
}

__device__ __forceinline__ const SCALAR* row_at(const First& f, Source at) {
#if CACHED
    if (at & IN_HOST) return f.host + (u64)(at & ~IN_HOST) * f.host_stride;
#endif
    return f.table + (u64)at * f.features;
}

__device__ __forceinline__ u32 is_in_host(Source at) {
#if CACHED
    return (at & IN_HOST) != 0;
#else
    return 0;
#endif
}

// What a warp has read is added to one of several counters, which `sampler.py` adds up: one would keep warps waiting.
__device__ __forceinline__ void tell(const First& f, u32 picks, u32 missed) {
#if CACHED
#pragma unroll
    for (int apart = 16; apart; apart >>= 1) missed += __shfl_xor_sync(FULL, missed, apart);
#endif
    if (lab_lane() || !f.counted) return;
    u64* mine = f.counted + 2 * ((blockIdx.x * WARPS + threadIdx.x / 32) % COUNTERS);
    atomicAdd(mine, (u64)picks);
    if (missed) atomicAdd(mine + 1, (u64)missed);
}

__device__ __forceinline__ int hop_of(const First& f, u64 row) {
    int hop = 0;
    while (row >= f.ends[hop]) ++hop;  // bounded: the last hop's end is the number of rows
    return hop;
}

__device__ __forceinline__ void finish_row(const First& f, u64 row, u32 at, u32 lanes, u32 length, Vec sum[CHUNKS],
                                           const Vec own[CHUNKS]) {
    const SCALAR scale = f.mean && length > 1 ? (SCALAR)1 / (SCALAR)length : (SCALAR)1;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        if (!(lanes >> c & 1)) continue;
        const u64 to = row * f.out_stride + at + c * LANES * VEC;
#pragma unroll
        for (int i = 0; i < VEC; ++i) sum[c].v[i] *= scale;
        store_vec(f.sums + to, sum[c]);
        store_vec(f.own + to, own[c]);
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) sum[c] = zero_vec();
}

// Rows row .. of the features that this lane has, from the stream begin .. end of their sources. A row ends with its own.
__device__ __forceinline__ void stream(const First& f, const Source* sources, int begin, int end, u64 first, u32 lane) {
    for (u32 f0 = 0; f0 < f.features; f0 += LANES * VEC * CHUNKS) {
        const u32 at = f0 + lane * VEC;
        u32 lanes = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) lanes |= (u32)(at + c * LANES * VEC < f.features) << c;
        u64 row = first;
        u32 length = 0;
        Vec sum[CHUNKS];
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) sum[c] = zero_vec();
        for (int e = begin; e < end; e += UNROLL) {
            Vec rows[UNROLL][CHUNKS];
            bool last[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                last[u] = false;
#pragma unroll
                for (int c = 0; c < CHUNKS; ++c) rows[u][c] = zero_vec();
                if (e + u < end) {
                    const Source given = sources[e + u];
                    last[u] = given < 0;
                    const SCALAR* from = row_at(f, last[u] ? ~given : given) + at;
#pragma unroll
                    for (int c = 0; c < CHUNKS; ++c)
                        if (lanes >> c & 1) rows[u][c] = load_vec(from + c * LANES * VEC);
                }
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                if (e + u >= end) break;
                if (last[u]) {
                    finish_row(f, row++, at, lanes, length, sum, rows[u]);
                    length = 0;
                } else {
                    ++length;
#pragma unroll
                    for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
                        for (int i = 0; i < VEC; ++i) sum[c].v[i] += rows[u][c].v[i];
                }
            }
        }
    }
}

#ifdef KMAX
struct Picked {
    int slots[KMAX * (ROWS + 1)];  // [slot][row]
    i64 starts[ROWS];
    int begins[ROWS + 1];
    Source sources[ROWS * (KMAX + 1)];
};

__device__ __forceinline__ Row row_of_lane(const Plan& p, const First& f, u64 row0, int mine, int& hop) {
    hop = 0;
    if ((int)lab_lane() >= mine) return Row{0, 0, 0, 0};
    const u64 row = row0 + lab_lane();
    hop = hop_of(f, row);
    return lab_row(p, (u64)f.nodes[row], f.fanouts[hop]);
}

// The warp draws for `mine` rows, `row` and `hop` in the lane of each, and leaves the sources of all of them in order.
__device__ __forceinline__ void draw(const Plan& p, const First& f, Row row, int hop, u64 row0, int mine, Picked& s) {
    const int lane = (int)lab_lane();
    const int fanout = f.fanouts[hop];
#if RULE == 1
    for (int r = 0; r < mine; ++r) {
        Row shared{__shfl_sync(FULL, row.vertex, r), __shfl_sync(FULL, row.start, r), __shfl_sync(FULL, row.degree, r),
                   __shfl_sync(FULL, row.count, r)};
        lab_draw_group<WarpGroup>(p, shared, __shfl_sync(FULL, fanout, r), f.batch_id, __shfl_sync(FULL, hop, r),
                                  s.slots + r, ROWS + 1);
    }
#else
    if (lane < mine) lab_draw_lane(p, row, fanout, f.batch_id, hop, s.slots + lane, ROWS + 1);
#endif
    u32 missed = 0;
    int upto = lane < mine ? row.count + 1 : 0;
#pragma unroll
    for (int apart = 1; apart < 32; apart <<= 1) {
        const int left = __shfl_up_sync(FULL, upto, apart);
        if (lane >= apart) upto += left;
    }
    if (lane < mine) {
        s.begins[lane] = upto - row.count - 1;
        s.starts[lane] = row.start;
        const Source own = place_of(f, row.vertex);
        missed += is_in_host(own);
        s.sources[upto - 1] = (Source)~own;
        if (f.counts) f.counts[row0 + lane] = (float)row.count;
    }
    if (lane == 31) s.begins[mine] = upto;
    __syncwarp();
    const u32 k = f.most, magic = 65536 / k + 1, picks = (u32)mine * k;  // (e * magic) >> 16 is e / k: see expand.cuh
    for (u32 e0 = lane; e0 < picks; e0 += 128) {
#pragma unroll
        for (u32 c = 0; c < 4; ++c) {
            const u32 e = e0 + c * 32, r = (e * magic) >> 16, slot = e - r * k;
            if (e < picks && (int)slot < s.begins[r + 1] - s.begins[r] - 1) {
                const u64 v = (u64)__ldg(p.indices + s.starts[r] + s.slots[slot * (ROWS + 1) + r]);
                const Source from = place_of(f, v);
                missed += is_in_host(from);
                s.sources[s.begins[r] + slot] = from;
            }
        }
    }
    __syncwarp();
    tell(f, (u32)(s.begins[mine] - mine), missed);
}

__device__ __forceinline__ void sum_picked(const First& f, const Picked& s, u64 row0, int mine) {
    const int groups = 32 / LANES, group = (int)lab_lane() / LANES;
    const int first = mine * group / groups, last = mine * (group + 1) / groups;
    stream(f, s.sources, s.begins[first], s.begins[last], row0 + first, lab_lane() % LANES);
    __syncwarp();
}

__device__ __forceinline__ void sum_rows(const Plan& p, const First& f) {
    __shared__ Picked picked[WARPS];
    Picked& s = picked[threadIdx.x / 32];
    const u64 step = gridDim.x * (u64)WARPS * f.per_warp;
    for (u64 row0 = (blockIdx.x * (u64)WARPS + threadIdx.x / 32) * f.per_warp; row0 < f.rows; row0 += step) {
        const int mine = (int)min((u64)f.per_warp, f.rows - row0);
        int hop;
        const Row row = row_of_lane(p, f, row0, mine, hop);
        draw(p, f, row, hop, row0, mine, s);
        sum_picked(f, s, row0, mine);
    }
}
#else
// Wide hops: a warp per row. Positions of drawn picks lie in shared memory; where all are taken, there is nothing to draw.
__device__ __forceinline__ void sum_rows(const Plan& p, const First& f) {
    extern __shared__ int positions[];  // [WARPS][most]
    int* slots = positions + threadIdx.x / 32 * f.most;
    const int lane = (int)lab_lane();
    for (u64 at = blockIdx.x * (u64)WARPS + threadIdx.x / 32; at < f.rows; at += (u64)gridDim.x * WARPS) {
        const int hop = hop_of(f, at), fanout = f.fanouts[hop];
        const u64 v = (u64)f.nodes[at];
        const Row row = lab_row(p, v, fanout);
        const bool all = lab_takes_all(row, fanout);
        if (!all) lab_draw_group<WarpGroup>(p, row, fanout, f.batch_id, hop, slots, 1);
        const int edges = all ? row.degree : row.count;
        const Source own_place = place_of(f, v);
        const SCALAR* own_row = row_at(f, own_place);
        u32 missed = lane == 0 ? is_in_host(own_place) : 0;
        if (lane == 0 && f.counts) f.counts[at] = (float)row.count;
        for (u32 f0 = 0; f0 < f.features; f0 += LANES * VEC * CHUNKS) {
            const u32 column = f0 + (u32)lane * VEC;
            u32 lanes = 0;
            Vec sum[CHUNKS], own[CHUNKS];
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) {
                lanes |= (u32)(lane < LANES && column + c * LANES * VEC < f.features) << c;
                sum[c] = zero_vec();
                own[c] = zero_vec();
                if (lanes >> c & 1) own[c] = load_vec(own_row + column + c * LANES * VEC);
            }
            for (int j0 = 0; j0 < edges; j0 += 32) {
                const int j = j0 + lane;
                Source mine = 0;
                bool there = j < edges;
                if (there) {
                    const i64 position = row.start + (all ? j : slots[j]);
#if RULE >= 3
                    if (all) there = __ldg(p.prefix + position + 1) > __ldg(p.prefix + position);
#endif
                    if (there) mine = place_of(f, (u64)__ldg(p.indices + position));
                    if (f0 == 0 && there) missed += is_in_host(mine);
                }
                const u32 taken = __ballot_sync(FULL, there);
                const int here = min(32, edges - j0);
                for (int u0 = 0; u0 < here; u0 += UNROLL) {
                    Vec rows[UNROLL][CHUNKS];
#pragma unroll
                    for (int u = 0; u < UNROLL; ++u) {
                        const Source from = __shfl_sync(FULL, mine, (u0 + u) & 31);
#pragma unroll
                        for (int c = 0; c < CHUNKS; ++c) {
                            rows[u][c] = zero_vec();
                            if (u0 + u < 32 && (taken >> (u0 + u) & 1) && (lanes >> c & 1))
                                rows[u][c] = load_vec(row_at(f, from) + column + c * LANES * VEC);
                        }
                    }
#pragma unroll
                    for (int u = 0; u < UNROLL; ++u)
#pragma unroll
                        for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
                            for (int i = 0; i < VEC; ++i) sum[c].v[i] += rows[u][c].v[i];
                }
            }
            finish_row(f, at, column, lanes, (u32)row.count, sum, own);
        }
        tell(f, (u32)row.count, missed);
        __syncwarp();
    }
}
#endif

#if ALONG
// What the launch so far says of mini-batch blockIdx.y: false where nothing is to be written, or not enough room.
__device__ __forceinline__ bool complete(const Plan& p, Place place, First& f) {
    const u32 b = blockIdx.y;
    const u32* counters = lab_counters(p, b);
    if (place.address == 0 || !(p.batches[b].wanted & WANTED_ROWS) || lab_read(counters + CTR_STATUS)) return false;
    const u64 n = lab_levels(p, counters, p.num_hops).end, begin = *(const u64*)(counters + CTR_ARRAYS);
    f.out_stride = 2 * f.features;
    if (begin + bytes_of_rows(n, (f.out_stride + 1) * sizeof(float)) > place.room) return false;
    f.nodes = p.nodes + (u64)b * p.node_cap;
    f.own = (SCALAR*)(place.address + begin);
    f.sums = f.own + f.features;
    f.counts = (float*)(f.own + n * f.out_stride);
    f.rows = n;
    f.batch_id = p.batches[b].batch_id;
    for (int h = 0; h < p.num_hops; ++h) f.ends[h] = p.expand_new ? lab_levels(p, counters, h).end : 0;
    f.ends[p.num_hops] = n;
    // bounded: each round halves what is left
    while (f.per_warp > 1 && n * gridDim.y < (u64)f.per_warp * f.warps_wanted) f.per_warp /= 2;
    return true;
}

__device__ __forceinline__ void sum_at(const Plan& p, const First& given, Place place) {
    __shared__ First f;
    __shared__ bool there;
    if (threadIdx.x == 0) {
        f = given;
        there = complete(p, place, f);
    }
    __syncthreads();
    if (there) sum_rows(p, f);
}

// Into the memory that the record of the mini-batch names, if that is enough.
extern "C" __global__ void __launch_bounds__(THREADS) first_sum_along(const __grid_constant__ Plan p,
                                                                       const __grid_constant__ First given) {
    lab_follow();
    const Batch& batch = p.batches[blockIdx.y];
    sum_at(p, given, Place{batch.arena, batch.room});
}

// The same where the host knows the totals: into `only`, or for several mini-batches into `places`.
extern "C" __global__ void __launch_bounds__(THREADS)
    first_sum_at(const __grid_constant__ Plan p, const __grid_constant__ First given, Place only, const Place* places) {
    sum_at(p, given, places ? places[blockIdx.y] : only);
}
#else
extern "C" __global__ void __launch_bounds__(THREADS) first_sum(const __grid_constant__ Plan p,
                                                                 const __grid_constant__ First f) {
    lab_follow();
    sum_rows(p, f);
}
#endif
