// Weighted draws with replacement alone, a thread a pick: from alias tables, as GNNLab's kernels draw, and by the guide
// of the library's samplers. Neither merges picks, numbers vertices, or loads states of a generator.
//
// Shapes: n rows of the frontier, k picks of each, out[n * k]; -1 where a vertex has no in-neighbour to draw. prefix:
// u64[E + 1], guide: u32[E, 4] (hops/guide.cuh); keep: u32[E], alias: int[E], places within the list.
// Bound: dependent reads, the row's bounds first, then a record or two words of a table, then the neighbour's id.
// Twins: weighted.py.
// @variants ID_T=int,long
#include "device/philox.cuh"
#include "sampling/neighbors/hops/guide.cuh"
typedef long long i64;

struct Draw {
    const ID_T* frontier;
    u64 n;
    u32 k, batch;
    u64 seed;
    const i64* indptr;
    const ID_T* indices;
    ID_T* out;
};

extern "C" __global__ void __launch_bounds__(256) draw_alias(const __grid_constant__ Draw q, const u32* keep,
                                                             const int* alias) {
    const u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (at >= q.n * q.k) return;
    const u32 pick = (u32)(at % q.k);
    const u64 v = q.frontier[at / q.k];
    const i64 start = __ldg(q.indptr + v);
    const u32 degree = (u32)(__ldg(q.indptr + v + 1) - start);
    ID_T found = -1;
    if (degree) {
        const Draws d(v, q.batch, 0, LAB_PURPOSE_REPLACE, q.seed);
        const uint4 r = d.four(pick >> 1);
        const u32 slot = lab_bounded(d, 2 * pick, lab_word(r, 2 * pick & 3), degree);
        const u32 coin = lab_word(r, (2 * pick + 1) & 3);
        const u32 place = coin < __ldg(keep + start + slot) ? slot : (u32)__ldg(alias + start + slot);
        found = __ldg(q.indices + start + place);
    }
    q.out[at] = found;
}

extern "C" __global__ void __launch_bounds__(256) draw_guided(const __grid_constant__ Draw q, const u64* prefix,
                                                              const uint4* guide) {
    const u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (at >= q.n * q.k) return;
    const u32 pick = (u32)(at % q.k);
    const u64 v = q.frontier[at / q.k];
    const i64 start = __ldg(q.indptr + v);
    const int degree = (int)(__ldg(q.indptr + v + 1) - start);
    const u64* list = prefix + start;
    const u64 base = degree ? __ldg(list) : 0, total = degree ? __ldg(list + degree) - base : 0;
    ID_T found = -1;
    if (total) {
        const Draws d(v, q.batch, 0, LAB_PURPOSE_WEIGHTED, q.seed);
        const u64 target = lab_bounded64(d, pick, total);
        const int shift = lab_guide_shift(total, degree);
        const uint4* records = guide + start;
        const uint4 record = __ldg(records + (target >> shift));
        found = __ldg(q.indices + start + lab_guided(record, records, list, degree, base, total, shift, target));
    }
    q.out[at] = found;
}
