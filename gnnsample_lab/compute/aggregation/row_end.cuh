// What happens to the sum of a row before it is written: the mean, and what a layer folds into it.
//
// OWN: a row of `own` is added (`times` of it), mean == 2 divides by the edges and one more, a bias is added, and with
// `relu` negative numbers become zeros: a pass over all rows each, otherwise.
#ifndef LAB_ROW_END
#define LAB_ROW_END

#include "vectors.cuh"

#ifndef OWN
#define OWN 0
#endif

struct RowEnd {
    u32 mean;
#if OWN
    const SCALAR *own, *bias;  // bias: features, or null
    u32 relu;
    SCALAR times;
#endif
};

// The vector from feature f on of a row of `length` edges; its own row: from own + own_at on.
__device__ __forceinline__ void end_vec(const RowEnd& end, i64 length, u64 own_at, u32 f, Vec& sum) {
    const SCALAR scale = end.mean == 1 && length > 1 ? (SCALAR)1 / (SCALAR)length : (SCALAR)1;
#pragma unroll
    for (int i = 0; i < VEC; ++i) sum.v[i] *= scale;
#if OWN
    const Vec own = load_vec(end.own + own_at), bias = end.bias ? load_vec(end.bias + f) : zero_vec();
    const SCALAR share = end.mean == 2 ? (SCALAR)1 / (SCALAR)(length + 1) : (SCALAR)1;
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
        const SCALAR v = (sum.v[i] + end.times * own.v[i]) * share + bias.v[i];
        sum.v[i] = end.relu && v < 0 ? (SCALAR)0 : v;
    }
#endif
}

#endif
