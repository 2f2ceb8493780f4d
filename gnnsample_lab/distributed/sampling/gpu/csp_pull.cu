// Collective sampling that pulls: what an owner does for whole lists. Draws from those that came: csp_draw.cu, PULLED=1.
//
//   list_lengths   how long each list is that other ranks ask for, and where the owner has it
//   add_up         prefix sums in one pass: of lengths, whose ends the host reads as sizes of messages, and of weights
//   copy_lists     the lists and their weights, end to end
//
// Lists that leave the rank lie before those that come, in one array, so one pass of `add_up` lays out both.
// Shapes: a grid of any number of blocks. A thread a list in list_lengths; in copy_lists a warp takes equal pieces of
// everything that leaves, whatever lists they are of: a hub's list is the work of many warps.
// Bound: list_lengths by three dependent loads a list; add_up streams 12 bytes a list and 12 an entry with weights;
// copy_lists streams entries twice, weights as 8 bytes in and 4 out.
// @variants ID_T=int,long RULE=0,3 LISTS=0,1
#include "csp.cuh"
#include "minibatch/gpu/scan.cuh"
#include "sampling/neighbors/hops/draw.cuh"

struct Asked {
    const ID_T* ids;       // [rows] what other ranks ask for, rank after rank
    const ID_T* new_of;
    i64 lower;             // new id of the part's first vertex
    i64 rows;
    i64 own, own_rows;     // where this rank's own rows are among those that it draws for; no list comes for them
    int* lengths;          // [rows, and all rows that it draws for]
    i64* starts;           // [rows] of each list in the part
    const u64** sums;      // [rows] LISTS and weighted: where to count a list's prefix sums from
    const i64* offsets;    // [rows + 1] where each list goes
    ID_T* lists;
    void* amounts;         // weighted: weights as integers
    i64 entries;           // of all lists
    int wide;              // amounts have 64 bits, else 32
    int unused;
};
static_assert(sizeof(Asked) == 112, "csp_kernels.py packs the same structure");

extern "C" __global__ void __launch_bounds__(CSP_THREADS) list_lengths(const __grid_constant__ Plan p,
                                                                       const __grid_constant__ Asked q) {
    const i64 threads = gridDim.x * (i64)CSP_THREADS;
    for (i64 i = blockIdx.x * (i64)CSP_THREADS + threadIdx.x; i < q.rows + q.own_rows; i += threads) {
        if (i >= q.rows) {
            q.lengths[i + q.own] = 0;
            continue;
        }
        const Row row = lab_row(p, (u64)(__ldg(q.new_of + q.ids[i]) - q.lower), -1);
        q.lengths[i] = row.degree;
        q.starts[i] = row.start;
#if LISTS && RULE >= 3
        q.sums[i] = row.prefix;
#endif
    }
}

struct Sums {
    const void* values;        // [n] integers, without sign
    i64* out;                  // [n + 1] sums of the values before each, and of all
    i64 n;                     // at least 1
    u64* state;                // tiles that are handed out, blocks that are done, and a word a tile; 0 between launches
    i64* report;               // pinned host memory that the host polls, or null; tag: negative, and new
    i64 tag;
    int wide;                  // values have 64 bits, else 32
    int ranks;
    u64 left[MAX_PEERS];       // where the values of each rank end, of lists that leave and of those that come: the sums
    u64 came[MAX_PEERS];       // there go to the host
};
static_assert(sizeof(Sums) == 1080, "csp_kernels.py packs the same structure");

extern "C" __global__ void __launch_bounds__(CSP_THREADS) add_up(const __grid_constant__ Sums s) {
    __shared__ u64 tile;
    __shared__ bool is_last;
    u64 *handed_out = s.state, *done = s.state + 1, *tiles = s.state + 2;
    // bounded: every pass takes a tile that no other pass takes, and the first tile beyond the values ends it
    while (true) {
        if (threadIdx.x == 0) tile = atomicAdd(handed_out, 1ull);
        __syncthreads();
        const u64 mine = tile;
        __syncthreads();
        if (mine * SCAN_TILE >= (u64)s.n) break;
        const i64 first = mine * SCAN_TILE + threadIdx.x * 4;
        u64 values[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const i64 i = first + c;
            values[c] = i >= s.n ? 0 : s.wide ? ((const u64*)s.values)[i] : ((const u32*)s.values)[i];
        }
        i64 before = scan_tile(tiles, (u32)mine, values);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const i64 i = first + c;
            if (i < s.n) s.out[i] = before;
            before += values[c];
            if (i + 1 == s.n) s.out[s.n] = before;
        }
    }
    __threadfence();  // sums before the block counts as done
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(done, 1ull) == gridDim.x - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (s.report) {
        if ((int)threadIdx.x < s.ranks) {
            s.report[REPORT_SENT + threadIdx.x] = __ldcg(s.out + s.left[threadIdx.x]);
            s.report[REPORT_SENT + MAX_PEERS + threadIdx.x] = __ldcg(s.out + s.came[threadIdx.x]);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence_system();
            *(volatile i64*)s.report = s.tag;
        }
    }
    const i64 words = 2 + (s.n + SCAN_TILE - 1) / SCAN_TILE;
    for (i64 i = threadIdx.x; i < words; i += CSP_THREADS) s.state[i] = 0;
}

#define IN_FLIGHT 4
#define STEP (32 * IN_FLIGHT)  // entries that a warp has under way
#define MOST_STEPS 8           // between two searches for the lists that it copies

// The list that an entry is of: the last that begins there or before, since empty ones begin where the next does.
__device__ __forceinline__ i64 list_at(const i64* offsets, i64 low, i64 high, i64 entry) {
    while (high - low > 1) {
        const i64 mid = (low + high) >> 1;
        if (__ldg(offsets + mid) <= entry) low = mid;
        else high = mid;
    }
    return low;
}

extern "C" __global__ void __launch_bounds__(CSP_THREADS) copy_lists(const __grid_constant__ Plan p,
                                                                     const __grid_constant__ Asked q) {
    const u32 lane = lab_lane();
    const i64 warp = (blockIdx.x * (i64)CSP_THREADS + threadIdx.x) >> 5, warps = gridDim.x * (i64)(CSP_THREADS / 32);
    const i64 piece = STEP * min((q.entries + warps * STEP - 1) / (warps * STEP), (i64)MOST_STEPS);
    for (i64 begin = warp * piece; begin < q.entries; begin += warps * piece) {
        const i64 end = min(begin + piece, q.entries);
        // The lists of the first and of the last entry, found side by side; those of the others lie between.
        const i64 found = list_at(q.offsets, 0, q.rows, lane ? end - 1 : begin);
        const i64 first = __shfl_sync(0xFFFFFFFFu, found, 0), last = __shfl_sync(0xFFFFFFFFu, found, 31);
        for (i64 at = begin + lane; at < end; at += STEP) {
            i64 from[IN_FLIGHT];
            ID_T entries[IN_FLIGHT];
#if RULE >= 3
            const u64* sums[IN_FLIGHT];
            u64 amounts[IN_FLIGHT];
#endif
#pragma unroll
            for (int c = 0; c < IN_FLIGHT; ++c) {
                const i64 to = min(at + 32 * c, end - 1), list = list_at(q.offsets, first, last + 1, to);
                from[c] = __ldg(q.starts + list) + to - __ldg(q.offsets + list);
#if LISTS && RULE >= 3
                sums[c] = q.sums[list];
#elif RULE >= 3
                sums[c] = p.prefix;
#endif
            }
#pragma unroll
            for (int c = 0; c < IN_FLIGHT; ++c) {
                entries[c] = __ldg(p.indices + from[c]);
#if RULE >= 3
                amounts[c] = __ldg(sums[c] + from[c] + 1) - __ldg(sums[c] + from[c]);
#endif
            }
#pragma unroll
            for (int c = 0; c < IN_FLIGHT; ++c) {
                const i64 to = at + 32 * c;
                if (to >= end) continue;
                q.lists[to] = entries[c];
#if RULE >= 3
                if (q.wide) ((u64*)q.amounts)[to] = amounts[c];
                else ((u32*)q.amounts)[to] = (u32)amounts[c];
#endif
            }
        }
    }
}
