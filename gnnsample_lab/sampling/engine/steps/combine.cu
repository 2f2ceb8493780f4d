// Combined neighbourhoods: the concatenated lists of a sample's transits, for collective sampling (NextDoor, sections
// 5.1 and 6.2). All kernels move bytes: a list is read, and written once per sample that has the transit.
//
// measure            degree and summed weight of every pair of sample and transit; their scans say where lists go.
// combine_pairs      sample-parallel: a warp per pair, in the given order. Bound: the pair with the longest list. With
//                    pairs sorted by transit this is vanilla transit-parallelism: neighbouring warps share lists.
// combine_flat       each block writes an equal number of entries, whatever lists they come from, so that long and
// short
//                    lists cost the same per entry. Bound: coalesced writes; reads come from L1 and L2 where sorted
//                    pairs share a list.
// split_transits     finds the transits that get tiles: several samples take the list, 2048 entries or more in total.
// combine_tiles      a block per tile, which is a part of such a list times a group of its samples: the block reads the
//                    part into shared memory once and writes it for every sample of the group. Bound: writes.
// combine_frontier   a thread per edge of every distinct transit, which goes through the samples (Gunrock's form).
// combine_message    a thread per distinct transit, which sends all its edges to all its samples (Tigr's form).
// @variants ID_T=int,long PAIR_T=int,long
#include "device/philox.cuh"
typedef long long i64;

#define THREADS 256
#define SHARED 2048   // least entries that a shared list must add to the result to get tiles of its own
#define CHUNK 512     // pairs that a block holds at once
#define PART 1024     // most entries of a list per tile
#define ENTRY_TILE 8192     // most entries of the result per tile

// All fields have 8 bytes (combine.py). The pairs are those of samples first_row .. first_row + rows - 1: row * t + k.
struct Combine {
    const i64* indptr;
    const ID_T* indices;
    const u64* prefix;        // [E + 1] sums of the weights, 0 if no weights are wanted
    const ID_T* transits;     // [S * t]
    const i64* pair_begin;    // [S * t + 1] where each pair's entries begin, over all samples
    const u64* weight_begin;  // [S * t + 1] sums of weights before each pair
    ID_T* out;                // entries of these samples, or 0
    u64* sums;                // a sample's prefix sums, one more than it has entries, or 0
    i64 first_row, rows, num_transits;
};

// Where one pair's list is read and written: entry i of the list goes to out[place + i] and sums[place + behind + i].
struct Run {
    i64 begin;   // edge position of the list
    i64 place;   // first entry in `out`
    i64 behind;  // samples before the pair's sample in this launch, plus one: each has one entry more in `sums`
    u64 offset;  // is added to prefix[begin + i + 1]
};

__device__ __forceinline__ i64 row_of(const Combine& c, i64 pair) {
    return pair >> 32 ? pair / c.num_transits : (i64)((u32)pair / (u32)c.num_transits);
}

// `pair` is relative to the first sample of this launch.
__device__ __forceinline__ Run run_of(const Combine& c, i64 pair) {
    const i64 first = c.first_row * c.num_transits, at = first + pair;
    const i64 v = (i64)c.transits[at];
    Run run;
    run.begin = v < 0 ? 0 : c.indptr[v];
    run.place = c.pair_begin[at] - c.pair_begin[first];
    const i64 row = row_of(c, pair);
    run.behind = row + 1;
    run.offset = 0;
    if (c.sums)
        run.offset = c.weight_begin[at] - c.weight_begin[first + row * c.num_transits] - c.prefix[run.begin];
    return run;
}

__device__ __forceinline__ void put(const Combine& c, const Run& run, i64 i) {
    if (c.out) c.out[run.place + i] = c.indices[run.begin + i];
    if (c.sums) c.sums[run.place + run.behind + i] = run.offset + c.prefix[run.begin + i + 1];
}

__device__ __forceinline__ i64 length_of(const Combine& c, i64 pair) {
    const i64 at = c.first_row * c.num_transits + pair;
    return c.pair_begin[at + 1] - c.pair_begin[at];
}

// The last i in [low, high) with starts[i] <= x; starts[low] <= x.
template <typename T>
__device__ __forceinline__ i64 last_at_most(const T* starts, i64 low, i64 high, T x) {
    while (high - low > 1) {
        const i64 middle = (low + high) >> 1;
        if (starts[middle] <= x) low = middle;
        else high = middle;
    }
    return low;
}

extern "C" __global__ void measure(const i64* indptr, const u64* prefix, const ID_T* transits, i64 pairs, i64* lengths,
                                   u64* weights) {
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < pairs; i += gridDim.x * (i64)blockDim.x) {
        const i64 v = (i64)transits[i];
        const i64 begin = v < 0 ? 0 : indptr[v], end = v < 0 ? 0 : indptr[v + 1];
        lengths[i + 1] = end - begin;
        if (weights) weights[i + 1] = prefix[end] - prefix[begin];
        if (i == 0) {
            lengths[0] = 0;
            if (weights) weights[0] = 0;
        }
    }
}

// Write the 0 with which the prefix sums of a sample begin.
extern "C" __global__ void begin_sums(const Combine c) {
    const i64 first = c.first_row * c.num_transits;
    for (i64 row = blockIdx.x * (i64)blockDim.x + threadIdx.x; row < c.rows; row += gridDim.x * (i64)blockDim.x)
        c.sums[c.pair_begin[first + row * c.num_transits] - c.pair_begin[first] + row] = 0;
}

// order: pairs sorted by transit, begins[*count] of them; 0: all pairs in their own order.
extern "C" __global__ void combine_pairs(const Combine c, const PAIR_T* order, const i64* begins, const i64* count) {
    const i64 pairs = order ? begins[*count] : c.rows * c.num_transits;
    const i64 warps = gridDim.x * (i64)(blockDim.x / 32);
    for (i64 i = (blockIdx.x * (i64)blockDim.x + threadIdx.x) / 32; i < pairs; i += warps) {
        const i64 pair = order ? order[i] : i;
        const i64 length = length_of(c, pair);
        if (length == 0) continue;
        const Run run = run_of(c, pair);
        for (i64 e = threadIdx.x & 31; e < length; e += 32) put(c, run, e);
    }
}

// starts: [pairs + 1] entries before each pair of `order`; order 0: the pairs' own order, with starts = pair_begin from
// the first pair on. A block takes an equal share of the entries, a contiguous one, so that it searches for its first
// pair once.
extern "C" __global__ void __launch_bounds__(THREADS)
    combine_flat(const Combine c, const PAIR_T* order, const i64* starts, i64 pairs) {
    __shared__ i64 first_pair;
    __shared__ i64 start[CHUNK + 1];
    __shared__ Run runs[CHUNK];
    const i64 before = starts[0], total = starts[pairs] - before;
    const i64 share = ((total + gridDim.x - 1) / gridDim.x + THREADS - 1) / THREADS * THREADS;
    i64 low = before + blockIdx.x * share, pair = 0;
    const i64 high = min(low + share, before + total);
    while (low < high) {
        // Usually the next pair; a search skips pairs without entries, which other kernels copy.
        if (threadIdx.x == 0) first_pair = starts[pair + 1] > low ? pair : last_at_most(starts, pair, pairs, low);
        __syncthreads();
        pair = first_pair;
        const int held = (int)min(pairs - pair, (i64)CHUNK);
        for (int i = threadIdx.x; i < held; i += THREADS) {
            const i64 begin = starts[pair + i];
            start[i] = begin;
            if (begin < high && starts[pair + i + 1] > begin)
                runs[i] = run_of(c, order ? (i64)order[pair + i] : pair + i);
        }
        if (threadIdx.x == 0) start[held] = starts[pair + held];
        __syncthreads();
        const i64 to = min(high, start[held]);
        i64 i = 0;  // pair of this thread's entry; it ascends, and stays the same within a long list
        for (i64 e = low + threadIdx.x; e < to; e += THREADS) {
            if (start[i + 1] <= e) i = last_at_most(start, i + 1, held, e);
            put(c, runs[i], e - start[i]);
        }
        __syncthreads();
        low = to;
        pair += held;
    }
}

__device__ __forceinline__ i64 pairs_per_tile(i64 degree) { return ENTRY_TILE / min(degree, (i64)PART); }

// tiles, lengths: [P + 1] each, zeroed; the count of entry i goes to i + 1. every_edge: `tiles` gets the degrees
// (combine_frontier).
extern "C" __global__ void split_transits(const i64* indptr, const ID_T* transits, const i64* begins, const i64* count,
                                          i64* tiles, i64* lengths, int every_edge) {
    const i64 distinct = *count, warps = gridDim.x * (i64)(blockDim.x / 32);
    const u32 lane = threadIdx.x & 31;
    for (i64 i = (blockIdx.x * (i64)blockDim.x + threadIdx.x) / 32; i < distinct; i += warps) {
        const i64 begin = begins[i], samples = begins[i + 1] - begin;
        const i64 v = (i64)transits[i], degree = indptr[v + 1] - indptr[v];
        if (every_edge) {
            if (lane == 0) tiles[i + 1] = degree;
        } else if (samples > 1 && samples * degree >= SHARED) {
            const i64 at_once = pairs_per_tile(degree);
            if (lane == 0) tiles[i + 1] = (degree + PART - 1) / PART * ((samples + at_once - 1) / at_once);
        } else if (degree) {
            for (i64 j = lane; j < samples; j += 32) lengths[begin + j + 1] = degree;
        }
    }
}

// tiles: [P + 1] tiles before each distinct transit.
extern "C" __global__ void __launch_bounds__(THREADS)
    combine_tiles(const Combine c, const PAIR_T* order, const ID_T* transits, const i64* begins, const i64* count,
                  const i64* tiles) {
    __shared__ ID_T list[PART];
    __shared__ u64 prefix[PART];
    __shared__ i64 which;
    const i64 distinct = *count, total = tiles[distinct];
    for (i64 tile = blockIdx.x; tile < total; tile += gridDim.x) {
        if (threadIdx.x == 0) which = last_at_most(tiles, 0, distinct, tile);
        __syncthreads();
        const i64 i = which, v = (i64)transits[i], first = c.indptr[v], degree = c.indptr[v + 1] - first;
        const i64 samples = begins[i + 1] - begins[i], at_once = pairs_per_tile(degree);
        const i64 groups = (samples + at_once - 1) / at_once, own = tile - tiles[i];
        const i64 from = own / groups * PART, pair_from = begins[i] + own % groups * at_once;
        const int length = (int)min(degree - from, (i64)PART);
        const i64 pair_to = min(pair_from + at_once, begins[i + 1]);
        for (int e = threadIdx.x; e < length; e += THREADS) {
            if (c.out) list[e] = c.indices[first + from + e];
            if (c.sums) prefix[e] = c.prefix[first + from + e + 1];
        }
        __syncthreads();
        int team = 1;  // threads per pair
        while (team < length && team < THREADS) team <<= 1;  // bounded: by THREADS
        for (i64 p = pair_from + threadIdx.x / team; p < pair_to; p += THREADS / team) {
            const Run run = run_of(c, order[p]);
            for (int e = threadIdx.x & (team - 1); e < length; e += team) {
                if (c.out) c.out[run.place + from + e] = list[e];
                if (c.sums) c.sums[run.place + run.behind + from + e] = run.offset + prefix[e];
            }
        }
        __syncthreads();
    }
}

// edges: [P + 1] edges before each distinct transit.
extern "C" __global__ void combine_frontier(const Combine c, const PAIR_T* order, const i64* begins, const i64* count,
                                            const i64* edges) {
    const i64 distinct = *count, total = edges[distinct];
    for (i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x; e < total; e += gridDim.x * (i64)blockDim.x) {
        const i64 i = last_at_most(edges, 0, distinct, e);
        for (i64 p = begins[i]; p < begins[i + 1]; ++p) put(c, run_of(c, order[p]), e - edges[i]);
    }
}

extern "C" __global__ void combine_message(const Combine c, const PAIR_T* order, const i64* begins, const i64* count) {
    const i64 distinct = *count;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < distinct; i += gridDim.x * (i64)blockDim.x)
        for (i64 p = begins[i]; p < begins[i + 1]; ++p) {
            const Run run = run_of(c, order[p]);
            const i64 length = length_of(c, order[p]);
            for (i64 e = 0; e < length; ++e) put(c, run, e);
        }
}
