// What streaming does beside sampling: find the pairs of each sub-graph, and collect lists of a staged one.
//
// `boundaries` is a binary search per sub-graph. `collect` copies adjacency lists, a warp for each piece of PIECE edges,
// for combined neighbourhoods of collective applications. Bound: the bytes copied, from GPU memory when the sub-graph is
// staged, across the bus otherwise.
// @variants ID_T=int,long PAIR_T=int,long
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;
#define PIECE 2048

// bounds[g] = pairs whose transit lies before sub-graph g, g = 0 .. num_parts; parts[g] is its first vertex.
// `pairs` are places in `transits`, sorted by the transit there, begins[*count] of them (the scheduling index).
extern "C" __global__ void boundaries(const ID_T* transits, const PAIR_T* pairs, const i64* begins, const i64* count,
                                      const i64* parts, int num_parts, i64* bounds) {
    const int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g > num_parts) return;
    i64 low = 0, high = begins[*count];
    while (low < high) {
        const i64 middle = (low + high) >> 1;
        if ((i64)transits[pairs[middle]] < parts[g]) low = middle + 1;
        else high = middle;
    }
    bounds[g] = low;
}

// As combine.cu's: where the lists of the samples first_row .. are written; pairs count from the first of them.
struct Collect {
    const i64* indptr;
    const ID_T* transits;     // [S * num_transits]
    const i64* pair_begin;    // [S * num_transits + 1] where each pair's entries begin, over all samples
    const u64* weight_begin;  // [S * num_transits + 1] sums of weights before each pair
    ID_T* out;                // 0: not asked for
    u64* sums;                // prefix sums, one more per sample than it has entries; 0: not asked for
    i64 first_row, num_transits;
    i64 edge_begin;           // the edge position that `indices` and `prefix` begin with
    const ID_T* indices;
    const u64* prefix;
};

// Lists of the transits of pairs [bounds[first], bounds[last]). Rows of the grid (y) take the pieces of a list in turn.
extern "C" __global__ void collect(const __grid_constant__ Collect c, const PAIR_T* pairs, const i64* bounds, int first,
                                   int last) {
    const u32 lane = threadIdx.x & 31;
    const i64 warps = gridDim.x * (i64)(blockDim.x >> 5), end = bounds[last], before = c.first_row * c.num_transits;
    for (i64 i = bounds[first] + blockIdx.x * (i64)(blockDim.x >> 5) + (threadIdx.x >> 5); i < end; i += warps) {
        const i64 pair = pairs[i], at = before + pair, v = c.transits[at];
        const i64 begin = c.indptr[v], length = c.indptr[v + 1] - begin, from = begin - c.edge_begin;
        const i64 row = pair / c.num_transits, to = c.pair_begin[at] - c.pair_begin[before];
        u64 offset = 0;
        if (c.sums && length)
            offset = c.weight_begin[at] - c.weight_begin[before + row * c.num_transits] - c.prefix[from];
        for (i64 piece = blockIdx.y * (i64)PIECE; piece < length; piece += gridDim.y * (i64)PIECE) {
            const i64 stop = min(length, piece + PIECE);
            if (c.out)
                for (i64 e = piece + lane; e < stop; e += 32) c.out[to + e] = c.indices[from + e];
            if (c.sums)
                for (i64 e = piece + lane; e < stop; e += 32)
                    c.sums[to + row + 1 + e] = offset + c.prefix[from + e + 1];
        }
    }
}
