// The guide of weighted draws (guide.cuh) for all lists of a graph: a thread per edge makes the record of one bucket.
//
// Bound: the search for its vertex and for its first edge, all in the L2 cache but the last reads, and 16 bytes written.
// @variants ID_T=int
#define RULE 4
#define TABLE_KIND 0
#define TRACE 0
#define LISTS 0
#include "draw.cuh"

extern "C" __global__ void __launch_bounds__(256)
    make_guide(const i64* indptr, const u64* prefix, u64 num_nodes, i64 num_edges, uint4* guide) {
    const i64 e = blockIdx.x * (i64)blockDim.x + threadIdx.x;
    if (e >= num_edges) return;
    u64 low = 0, high = num_nodes;
    while (high - low > 1) {
        const u64 mid = (low + high) >> 1;
        if (__ldg(indptr + mid) <= e) low = mid;
        else high = mid;
    }
    Row row{low, __ldg(indptr + low), 0, 0};
    row.degree = (int)(__ldg(indptr + low + 1) - row.start);
    const u64* list = prefix + row.start;
    const u64 base = __ldg(list), total = __ldg(list + row.degree) - base;
    if (total == 0) return;
    const int shift = lab_guide_shift(total, row.degree);
    const u64 first = (u64)(e - row.start) << shift;
    if (shift > LAB_MOST_SHIFT || first >= total) return;
    const int at = lab_search(prefix, row, base + first);
    u32 begins[3];
#pragma unroll
    for (int c = 0; c < 3; ++c) {
        const int next = at + 1 + c;
        const u64 apart = next < row.degree ? __ldg(list + next) - base - first : 1ull << shift;
        begins[c] = apart >> shift ? LAB_BEYOND : (u32)apart;
    }
    guide[e] = make_uint4(at, begins[0], begins[1], begins[2]);
}
