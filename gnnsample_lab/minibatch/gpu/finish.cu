// From the rows that a sampling kernel wrote to a compact mini-batch with local ids.
//
//   reach, map_rows      queue strategies only: local ids by hop, and the row of each task
//   rank_words, rank_order   bitmap tables only: the last hop's vertices by id, and what a look-up needs of each word
//   scan_rows            the totals for the host, then where each row's picks go (one pass, decoupled look-back)
//   emit                 node ids, offsets, positions and local ids, compact, and what else is wanted
//
// The arrays of a mini-batch lie one after the other in one piece of memory. Each kernel and the host (finish.py) find
// their places from the totals. Where the host has guessed the size of the memory beforehand, and well, emit runs right
// behind the scan; otherwise the host allocates what the totals say and launches emit_at.
//
// Bound: emit streams 8 bytes in and 12 out per pick and looks up 4 in a table that fits the L2 cache.
// @variants ID_T=int,long TABLE_KIND=0,1,2
#include "sampling/neighbors/hops/begin.cuh"
#include "sampling/neighbors/hops/fresh.cuh"
#include "place.cuh"
#include "scan.cuh"

#define IN_FLIGHT 4  // look-ups of a thread that are under way at once

struct Finish {
    i64* row_offsets;  // [mini-batch][row_total + 1] exclusive scan over the rows of all hops
    u64 row_total;     // most rows of all hops together
    int* row_map[LAB_MAX_HOPS];  // [mini-batch][row_cap] task of each row, -1 for none; null when rows are in order
    i64* totals;       // pinned host memory, [mini-batch][64]: status, levels[16], edges[15], and last the bytes of all
                       // arrays and the flag
    u64 row_bytes;     // of a row of features; 0 where no mini-batch can hold any
};

struct Out {  // addresses of one mini-batch's arrays
    ID_T* nodes;
    i64* wide_nodes;             // the same as 64-bit integers; null unless wanted and not the same array
    i64* inverse;
    i64* offsets[LAB_MAX_HOPS];
    i64* positions[LAB_MAX_HOPS];
    int* locals[LAB_MAX_HOPS];
    i64* edges[LAB_MAX_HOPS];    // local source of each edge; null unless wanted
    u64 apart[LAB_MAX_HOPS];     // from an edge's source to its destination
};

// One argument for all kernels: those of sampling/neighbors declare and receive its first member only.
struct Job {
    Plan plan;
    Finish finish;
};

// Find level `hop + 1`: the picks of hop `hop` that no earlier level holds. A warp takes 32 tasks, one per lane.
extern "C" __global__ void __launch_bounds__(LAB_WARPS * 32) reach(const __grid_constant__ Plan p, int hop) {
    __shared__ ID_T staged[LAB_WARPS][LAB_STAGE];
    const u32 b = blockIdx.y, warp = threadIdx.x >> 5;
    u32* counters = lab_counters(p, b);
    const u32 base = p.batches[b].base;
    const Hop& h = p.hops[hop];
    // After an error there may be reserved rows that no block filled; their counts and offsets are undefined. The whole
    // warp decides together, because another block of this hop may raise an error meanwhile.
    const bool failed = __any_sync(LAB_FULL, lab_read(counters + CTR_STATUS));
    const u64 rows = failed ? 0 : min((u64)lab_read(counters + CTR_ROWS + hop), h.row_cap);
    u64 level_end = lab_read(counters + CTR_SEEDS);
    for (int i = 0; i < hop; ++i) level_end += lab_read(counters + CTR_FRESH + i);
    Stage stage{staged[warp], 0};
    bool overflow = false;
    u32 picked = 0;
    for (u64 row = (u64)blockIdx.x * LAB_WARPS + warp; row < rows; row += (u64)gridDim.x * LAB_WARPS) {
        const u64 at = (u64)b * h.row_cap + row;
        const int count = h.counts[at];
        if (lab_lane() == 0) picked += count;
        const u64 from = (u64)b * h.pick_cap + (h.stride ? row * h.stride : (u64)h.offsets[at]);
        for (int j0 = 0; j0 < count; j0 += 32) {
            const int j = j0 + lab_lane();
            const ID_T u = j < count ? h.neighbors[from + j] : 0;
            const bool fresh = j < count && lab_insert(p.table, b, base, u, overflow);
            if (stage.count > LAB_STAGE - 32) lab_flush(p, b, base, counters, hop, level_end, stage);
            lab_push(stage, fresh, u);
        }
    }
    lab_flush(p, b, base, counters, hop, level_end, stage);
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
    lab_count_edges(counters, hop, picked);
}

extern "C" __global__ void map_rows(const __grid_constant__ Job job) {
    const Plan& p = job.plan;
    const Finish& f = job.finish;
    const u32 b = blockIdx.y;
    u32* counters = lab_counters(p, b);
    if (lab_read(counters + CTR_STATUS)) return;
    const u32 base = p.batches[b].base;
    for (int hop = 0; hop < p.num_hops; ++hop) {
        const Hop& h = p.hops[hop];
        const u64 rows = min((u64)lab_read(counters + CTR_ROWS + hop), h.row_cap);
        for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < rows; i += (u64)gridDim.x * blockDim.x) {
            const u32 local = lab_find(p.table, b, base, h.vertices[(u64)b * h.row_cap + i]);
            if (local < h.row_cap) f.row_map[hop][(u64)b * h.row_cap + local] = (int)i;
        }
    }
}

struct HopRows {  // rows of all hops one after the other: hop h has rows first[h] .. first[h + 1]
    u64 first[LAB_MAX_HOPS + 1];
};

// The first warp computes where the rows of each hop begin: lane `hop` finds its level, then a scan.
__device__ __forceinline__ void load_rows(const Plan& p, const u32* counters, HopRows& rows) {
    const u32 lane = lab_lane();
    const int hop = min((int)lane, p.num_hops - 1);
    const Levels level = lab_levels(p, counters, hop);
    u64 inclusive = (int)lane < p.num_hops ? min(level.end - level.begin, p.hops[hop].row_cap) : 0;
#pragma unroll
    for (int apart = 1; apart < 16; apart <<= 1) {
        const u64 left = __shfl_up_sync(LAB_FULL, inclusive, apart);
        if (lane >= apart) inclusive += left;
    }
    if (lane == 0) rows.first[0] = 0;
    if (lane < LAB_MAX_HOPS) rows.first[lane + 1] = inclusive;
}

__device__ __forceinline__ i64 task_of(const Plan& p, const Finish& f, u32 b, int hop, u64 row) {
    const int* map = f.row_map[hop];
    return map ? map[(u64)b * p.hops[hop].row_cap + row] : (i64)row;
}

// Where the arrays of a mini-batch lie, in bytes from `address`, by one warp; returns the bytes of all. Under
// expand = "new" the arrays of one kind follow one another without a gap, so that those of the first hops together are
// an array, too, and offsets count over all hops.
__device__ __forceinline__ u64 lay_out(const Plan& p, const u32* counters, const Batch& batch, const HopRows& rows,
                                       u64 address, Out* o) {
    const int hop = lab_lane();
    const bool there = hop < p.num_hops;
    const u64 edges = there ? __ldcg((const u64*)(counters + CTR_EDGES) + hop) : 0;
    const u64 n = there ? rows.first[hop + 1] - rows.first[hop] : 0;
    const u64 nodes = lab_levels(p, counters, p.num_hops).end;
    u64 at = address;
    auto sum_before = [&](u64 mine, u64& total) {
        u64 inclusive = mine;
#pragma unroll
        for (int apart = 1; apart < 16; apart <<= 1) {
            const u64 left = __shfl_up_sync(LAB_FULL, inclusive, apart);
            if (hop >= apart) inclusive += left;
        }
        total = __shfl_sync(LAB_FULL, inclusive, 15);
        return inclusive - mine;
    };
    auto array = [&](u64 bytes) {
        const u64 begin = at;
        at += (bytes + 255) & ~255ull;
        return begin;
    };
    auto arrays = [&](u64 bytes) {
        u64 total;
        const u64 before = sum_before(p.expand_new ? bytes : (bytes + 255) & ~255ull, total);
        return array(total) + before;
    };
    const bool wanted = batch.wanted & WANTED_EDGES;
    const u64 nodes_at = array(nodes * sizeof(ID_T));
    const u64 wide_at = wanted && sizeof(ID_T) == 4 ? array(nodes * 8) : 0;
    const u64 inverse_at = array(batch.num_seeds * 8ull);
    const u64 offsets_at = arrays(!there ? 0 : (n + (!p.expand_new || hop + 1 == p.num_hops)) * 8);
    const u64 positions_at = arrays(edges * 8), locals_at = arrays(edges * 4);
    u64 edges_at = 0, apart = edges;
    if (wanted && p.expand_new) {
        const u64 before = sum_before(edges, apart);
        edges_at = array(apart * 16) + before * 8;
    } else if (wanted) {
        edges_at = arrays(edges * 16);
    }
    if (o) {
        o->nodes = (ID_T*)nodes_at, o->wide_nodes = (i64*)wide_at, o->inverse = (i64*)inverse_at;
        if (there) {
            o->offsets[hop] = (i64*)offsets_at, o->positions[hop] = (i64*)positions_at;
            o->locals[hop] = (int*)locals_at, o->edges[hop] = (i64*)edges_at, o->apart[hop] = apart;
        }
    }
    return at - address;
}

// Report the sizes to the host, which polls the flag (written last) while the scan still runs.
__device__ __forceinline__ void report(const Plan& p, const u32* counters, i64* totals, u32 flag, u64 bytes) {
    const int hop = lab_lane();
    if (hop == 0) {
        totals[0] = lab_read(counters + CTR_STATUS);
        totals[62] = bytes;
        totals[1] = lab_read(counters + CTR_SEEDS);
    }
    if (hop < p.num_hops) {
        u64 level = lab_read(counters + CTR_SEEDS);
        for (int h = 0; h <= hop; ++h) level += lab_read(counters + CTR_FRESH + h);
        totals[2 + hop] = level;
        totals[17 + hop] = __ldcg((const u64*)(counters + CTR_EDGES) + hop);
    }
    // The host must see the flag only after the totals that all lanes wrote. __syncwarp orders the lanes' writes before
    // lane 0, and the fence of lane 0 between these writes and the flag makes the flag a release of all of them. A
    // fence by each lane before __syncwarp would not order its writes before the flag, which another lane writes.
    __syncwarp();
    if (hop == 0) {
        __threadfence_system();
        *(volatile i64*)(totals + 63) = flag;
    }
}

// Bytes of the rows of features that a mini-batch holds behind its other arrays.
__device__ __forceinline__ u64 rows_wanted(const Plan& p, const Finish& f, const u32* counters, const Batch& batch) {
    return batch.wanted & WANTED_ROWS ? bytes_of_rows(lab_levels(p, counters, p.num_hops).end, f.row_bytes) : 0;
}

extern "C" __global__ void __launch_bounds__(256) scan_rows(const __grid_constant__ Job job) {
    const Plan& p = job.plan;
    const Finish& f = job.finish;
    __shared__ HopRows rows;
    __shared__ u32 tile;
    lab_follow();
    const u32 b = blockIdx.y;
    u32* counters = lab_counters(p, b);
    i64* totals = f.totals + (u64)b * 64;
    if (threadIdx.x < 32) load_rows(p, counters, rows);
    __syncthreads();
    const u64 total = rows.first[p.num_hops];
    i64* out = f.row_offsets + (u64)b * (f.row_total + 1);
    // bounded: every pass takes a tile that no other pass takes, and the first tile beyond the rows ends the block
    while (true) {
        if (threadIdx.x == 0) tile = atomicAdd(counters + CTR_SCAN, 1u);
        __syncthreads();
        const u32 mine = tile;
        __syncthreads();
        if (mine == 0 && threadIdx.x < 32) {
            const Batch batch = p.batches[b];
            const u64 arrays = lay_out(p, counters, batch, rows, 0, nullptr);
            if (lab_lane() == 0) *(u64*)(counters + CTR_ARRAYS) = arrays;
            report(p, counters, totals, batch.base, arrays + rows_wanted(p, f, counters, batch));
        }
        if ((u64)mine * SCAN_TILE >= total) return;
        const u64 r0 = (u64)mine * SCAN_TILE + threadIdx.x * 4;
        u64 values[4];
        int hop = 0;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const u64 r = r0 + c;
            values[c] = 0;
            if (r < total) {
                while (r >= rows.first[hop + 1]) ++hop;  // bounded: r < total = rows.first[p.num_hops]
                const i64 task = task_of(p, f, b, hop, r - rows.first[hop]);
                if (task >= 0) values[c] = p.hops[hop].counts[(u64)b * p.hops[hop].row_cap + task];
            }
        }
        u64 at = scan_tile(p.scan_state + (u64)b * p.scan_tiles, mine, values);
        hop = 0;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const u64 r = r0 + c;
            if (r < total) {
                while (r >= rows.first[hop + 1]) ++hop;  // bounded: r < total = rows.first[p.num_hops]
                out[r] = at;
                at += values[c];
                if (r + 1 == total) out[total] = at;
            }
        }
    }
}

#define EARLY_BITS 31  // of a scanned value; the other 31 count late vertices

extern "C" __global__ void __launch_bounds__(256) rank_words(const __grid_constant__ Plan p, u64* state, u64 tiles) {
    lab_follow();
#if TABLE_KIND == 1
    __shared__ u32 tile;
    const u32 b = blockIdx.y;
    const u32* words = p.table.words + (u64)b * p.table.stride;
    const u32* early = p.sorted_last ? p.table.early + (u64)b * p.table.stride : words;
    uint4* ranks = p.table.ranks + (u64)b * p.table.stride;
    ID_T* nodes = p.nodes + (u64)b * p.node_cap;
    u32* counters = lab_counters(p, b);
    const u64 late_begin = lab_levels(p, counters, p.num_hops - 1).end;
    bool overflow = false;
    // bounded: every pass takes a tile that no other pass takes, and the first tile beyond the words ends the block
    while (true) {
        if (threadIdx.x == 0) tile = atomicAdd(counters + CTR_RANK, 1u);
        __syncthreads();
        const u32 mine = tile;
        __syncthreads();
        if ((u64)mine * SCAN_TILE >= p.table.stride) break;
        const u64 w0 = (u64)mine * SCAN_TILE + threadIdx.x * 4;
        u64 values[4];
        u32 all[4], old[4];
        for (int c = 0; c < 4; ++c) {
            const bool there = w0 + c < p.table.stride;
            all[c] = there ? words[w0 + c] : 0;
            old[c] = there ? early[w0 + c] : 0;
            values[c] = (u64)__popc(all[c] & ~old[c]) << EARLY_BITS | __popc(old[c]);
        }
        u64 at = scan_tile(state + (u64)b * tiles, mine, values);
        for (int c = 0; c < 4; ++c) {
            u64 local = late_begin + (at >> EARLY_BITS);
            if (w0 + c < p.table.stride)
                ranks[w0 + c] = make_uint4(all[c], old[c], (u32)local, (u32)(at & ((1ull << EARLY_BITS) - 1)));
            // bounded: each pass takes a bit
            for (u32 left = all[c] & ~old[c]; left; left &= left - 1, ++local) {
                if (local < p.node_cap) nodes[local] = (ID_T)((w0 + c) * 32 + __ffs(left) - 1);
                else overflow = true;
            }
            at += values[c];
        }
    }
    if (overflow) atomicOr(counters + CTR_STATUS, STATUS_OVERFLOW);
#endif
}

// The order of the vertices that are listed as they were found: local ids by the ranks of their bits.
extern "C" __global__ void rank_order(const __grid_constant__ Plan p) {
    lab_follow();
#if TABLE_KIND == 1
    const u32 b = blockIdx.y;
    const u32* counters = lab_counters(p, b);
    // After an overflow some vertices have a bit but no place in the node list, so ranks would exceed `order`.
    if (lab_read(counters + CTR_STATUS)) return;
    const u64 count = min(lab_levels(p, counters, p.num_hops - (p.sorted_last ? 1 : 0)).end, p.node_cap);
    const u64 threads = (u64)gridDim.x * blockDim.x;
    const ID_T* __restrict__ nodes = p.nodes + (u64)b * p.node_cap;
    const uint4* __restrict__ ranks = p.table.ranks + (u64)b * p.table.stride;
    u32* __restrict__ order = p.table.order + (u64)b * p.table.order_stride;
    for (u64 i0 = blockIdx.x * (u64)blockDim.x + threadIdx.x; i0 < count; i0 += IN_FLIGHT * threads) {
        u64 v[IN_FLIGHT];
        u32 rank[IN_FLIGHT];
#pragma unroll
        for (int c = 0; c < IN_FLIGHT; ++c) v[c] = i0 + c * threads < count ? nodes[i0 + c * threads] : 0;
#pragma unroll
        for (int c = 0; c < IN_FLIGHT; ++c) {
            const uint4 word = ranks[v[c] >> 5];
            rank[c] = word.w + __popc(word.y & ((1u << (v[c] & 31)) - 1));
        }
#pragma unroll
        for (int c = 0; c < IN_FLIGHT; ++c)
            if (i0 + c * threads < count) order[rank[c]] = (u32)(i0 + c * threads);
    }
#endif
}

#define EMIT_WARPS 8
#define EMIT_BLOCKS 4  // resident blocks per multiprocessor that the compiler leaves registers for
__device__ __forceinline__ void emit_batch(const Plan& p, const Finish& f, Place place) {
    __shared__ HopRows rows;
    __shared__ Out o;
    __shared__ bool fits;
    __shared__ u32 begins[EMIT_WARPS][33];
    __shared__ u64 froms[EMIT_WARPS][32];
    __shared__ i64 starts[EMIT_WARPS][32];
    const u32 b = blockIdx.y, lane = lab_lane(), warp = threadIdx.x >> 5;
    const u32* counters = lab_counters(p, b);
    const Batch& batch = p.batches[b];
    const u32 base_stamp = batch.base;
    if (place.address == 0) return;
    if (threadIdx.x < 32) {
        load_rows(p, counters, rows);
        __syncwarp();
        const bool complete = lab_read(counters + CTR_STATUS) == 0;
        const u64 bytes = lay_out(p, counters, batch, rows, place.address, &o) + rows_wanted(p, f, counters, batch);
        if (lane == 0) fits = complete && bytes <= place.room;
    }
    __syncthreads();
    if (!fits) return;
    const u64 thread = blockIdx.x * (u64)blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
    const u64 num_nodes = lab_levels(p, counters, p.num_hops).end;
    ID_T* __restrict__ out_nodes = o.nodes;
    i64* __restrict__ out_wide = o.wide_nodes;
    for (u64 i = thread; i < num_nodes; i += threads) {
        const ID_T v = p.nodes[(u64)b * p.node_cap + i];
        out_nodes[i] = v;
        if (out_wide) out_wide[i] = v;
    }
    const u32* inverse = p.inverse + (u64)b * p.seed_cap;
    for (u64 i = thread; i < batch.num_seeds; i += threads) {
        const u32 found = inverse[i];
        o.inverse[i] = found & LAB_DUPLICATE ? inverse[found & ~LAB_DUPLICATE] : found;
    }
    const i64* scanned = f.row_offsets + (u64)b * (f.row_total + 1);
    // A warp takes a tile of rows of one hop. Few rows are cut into small tiles, so that every multiprocessor gets
    // some.
    const u64 warps = threads >> 5, all_rows = rows.first[p.num_hops];
    const u64 slots = warps * max((all_rows + warps * 32 - 1) / (warps * 32), 1ull);
    const u32 tile_rows = (u32)max((all_rows + slots - 1) / slots, 2ull);
    u64 tile = thread >> 5;
    for (int hop = 0; hop < p.num_hops; ++hop) {
        const Hop& h = p.hops[hop];
        const u64 first = rows.first[hop], n = rows.first[hop + 1] - first;
        const u64 tiles = (n + tile_rows - 1) / tile_rows;
        if (tile >= tiles && !(thread == 0)) {
            tile -= tiles;
            continue;
        }
        const i64 hop_begin = scanned[first], base = p.expand_new ? 0 : hop_begin;
        const u64 row_begin = p.expand_new ? first : 0;  // number of the hop's first row among the destinations
        // Load pointers once per hop: the compiler must assume that any store may change `o` and `p`.
        const ID_T* __restrict__ in_neighbors = h.neighbors;
        const int* __restrict__ in_slots = h.slots;
        i64* __restrict__ out_positions = o.positions[hop];
        int* __restrict__ out_locals = o.locals[hop];
        i64* __restrict__ out_offsets = o.offsets[hop];
        i64* __restrict__ out_edges = o.edges[hop];
        const u64 apart = o.apart[hop];
        // Under expand = "new" the next hop's first offset, or for the last hop the end of all.
        if (thread == 0) out_offsets[n] = scanned[first + n] - base;
        for (; tile < tiles; tile += warps) {
            const u64 row0 = tile * tile_rows;
            const u32 mine = (u32)min((u64)tile_rows, n - row0);
            const i64 g = scanned[first + row0 + min(lane, mine)];
            const i64 g0 = __shfl_sync(LAB_FULL, g, 0);
            begins[warp][lane] = (u32)(g - g0);
            if (lane == 0) begins[warp][32] = (u32)(scanned[first + row0 + mine] - g0);
            u64 from = 0;
            i64 start = 0;
            if (lane < mine) {
                const u64 row = row0 + lane;
                const i64 task = task_of(p, f, b, hop, row);
                if (task >= 0) {
                    const u64 at = (u64)b * h.row_cap + task;
                    start = h.starts[at];
                    from = (u64)b * h.pick_cap + (h.stride ? (u64)task * h.stride : (u64)h.offsets[at]);
                }
                out_offsets[row] = g - base;
            }
            froms[warp][lane] = from;
            starts[warp][lane] = start;
            __syncwarp();
            // Where the tile begins; places within it are 32-bit.
            const i64 out = g0 - hop_begin;
            i64* __restrict__ positions = out_positions + out;
            int* __restrict__ locals = out_locals + out;
            i64* __restrict__ edges = out_edges ? out_edges + out : nullptr;
            const u64 out_row = row_begin + row0;
            if (h.stride && !f.row_map[hop]) {
                // Rows are in order with a fixed number of places each: slot e of the tile is at `in + e`, without
                // search.
                const u32 k = h.stride, magic = (1u << 20) / k + 1, room = mine * k;  // exact while e * k < 2^20
                const ID_T* __restrict__ in = in_neighbors + (u64)b * h.pick_cap + row0 * k;
                const int* __restrict__ in_at = in_slots + (u64)b * h.pick_cap + row0 * k;
                for (u32 e0 = lane; e0 < room; e0 += 32 * IN_FLIGHT) {
                    ID_T u[IN_FLIGHT];
                    int at[IN_FLIGHT];
                    u32 local[IN_FLIGHT], valid = 0;
#pragma unroll
                    for (u32 c = 0; c < IN_FLIGHT; ++c) {
                        const u32 e = e0 + c * 32, r = (e * magic) >> 20;
                        if (e < room && e - r * k < begins[warp][r + 1] - begins[warp][r]) {
                            valid |= 1u << c;
                            u[c] = in[e];
                            at[c] = in_at[e];
                        }
                    }
#pragma unroll
                    for (u32 c = 0; c < IN_FLIGHT; ++c)
                        if (valid >> c & 1) local[c] = lab_find(p.table, b, base_stamp, u[c]);
#pragma unroll
                    for (u32 c = 0; c < IN_FLIGHT; ++c) {
                        if (!(valid >> c & 1)) continue;
                        const u32 e = e0 + c * 32, r = (e * magic) >> 20, to = begins[warp][r] + e - r * k;
                        locals[to] = local[c];
                        positions[to] = starts[warp][r] + at[c];
                        if (edges) {
                            edges[to] = local[c];
                            edges[apart + to] = out_row + r;
                        }
                    }
                }
                __syncwarp();
                continue;
            }
            const u32 total = begins[warp][32];
            for (u32 e0 = 0; e0 < total; e0 += 64) {
#pragma unroll
                for (u32 c = 0; c < 2; ++c) {
                    const u32 e = e0 + c * 32 + lane;
                    if (e >= total) break;
                    u32 r = 0;
#pragma unroll
                    for (u32 step = 16; step; step >>= 1)
                        if (begins[warp][r + step] <= e) r += step;
                    const u64 at = froms[warp][r] + (e - begins[warp][r]);
                    const u32 local = lab_find(p.table, b, base_stamp, in_neighbors[at]);
                    positions[e] = starts[warp][r] + in_slots[at];
                    locals[e] = local;
                    if (edges) {
                        edges[e] = local;
                        edges[apart + e] = out_row + r;
                    }
                }
            }
            __syncwarp();
        }
        tile -= tiles;
    }
}

// Into the memory that the record of the mini-batch names, if that is enough.
extern "C" __global__ void __launch_bounds__(EMIT_WARPS * 32, EMIT_BLOCKS) emit(const __grid_constant__ Job job) {
    lab_follow();
    const Batch& batch = job.plan.batches[blockIdx.y];
    emit_batch(job.plan, job.finish, Place{batch.arena, batch.room});
}

// The same where the host knows the totals: into `only`, or for several mini-batches into `places`.
extern "C" __global__ void __launch_bounds__(EMIT_WARPS * 32, EMIT_BLOCKS) emit_at(const __grid_constant__ Job job, Place only, const Place* places) {
    emit_batch(job.plan, job.finish, places ? places[blockIdx.y] : only);
}
