// A transit and where the list of its edges lies.
#ifndef LAB_TRANSIT_LIST
#define LAB_TRANSIT_LIST
#include "sampling/engine/context.cuh"

struct List {
    i64 v, begin, length;
    const ID_T* edges;
};

__device__ __forceinline__ List list_of(const AppPlan& p, i64 v) {
    const i64 begin = p.indptr[v];
    return List{v, begin, p.indptr[v + 1] - begin, lab_edges_at(p, begin)};
}

#endif
