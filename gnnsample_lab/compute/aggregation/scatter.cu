// The gradient of a sum's sources without a transposed block: out[indices[e]] += scale(r) * coef(e) * grad[r] for each
// edge e of row r.
//
// indptr: i64[rows + 1]; indices: i32[edges]; coef: SCALAR[edges] or null; grad: SCALAR[rows, features]; out: zeroed. A
// group of LANES threads takes a row, reads it once, and adds it to its sources with as wide an addition as there is.
// Bound by additions in the L2, one of up to 16 bytes a lane and edge; on blocks that fit the L2 that is less than the
// launches and passes of a counting sort. The order of additions is not fixed, as the sort's is not.
// @variants SCALAR=float,double VEC=1,2,4 LANES=8,32
#include "vectors.cuh"
#ifndef LANES
#define LANES 32
#endif

extern "C" __global__ void __launch_bounds__(256)
    scatter_rows(const i64* indptr, const int* indices, const SCALAR* coef, const SCALAR* grad, SCALAR* out, u64 rows,
                 u32 features, u32 mean) {
    const u64 row = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / LANES;
    if (row >= rows) return;
    const i64 begin = __ldg(indptr + row), end = __ldg(indptr + row + 1);
    const SCALAR scale = mean && end - begin > 1 ? (SCALAR)1 / (SCALAR)(end - begin) : (SCALAR)1;
    for (u32 f = threadIdx.x % LANES * VEC; f < features; f += LANES * VEC) {
        Vec g = load_vec(grad + row * features + f);
#pragma unroll
        for (int i = 0; i < VEC; ++i) g.v[i] *= scale;
        for (i64 e = begin; e < end; ++e) {
            Vec v = g;
            if (coef) {
                const SCALAR c = __ldg(coef + e);
#pragma unroll
                for (int i = 0; i < VEC; ++i) v.v[i] *= c;
            }
            add_at(out + (u64)__ldg(indices + e) * features + f, v);
        }
    }
}
