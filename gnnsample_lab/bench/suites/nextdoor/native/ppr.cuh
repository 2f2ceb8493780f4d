// `next` of personalised PageRank: the walk ends where a word is below TERMINATE (of 2**32).
#include "edge.cuh"

extern "C" __device__ i64 lab_next(void* ctx, i64 step) {
    Context& c = *(Context*)ctx;
    if ((u64)lab_draw(c) < TERMINATE) return LAB_NULL;
    return taken(c, choose(c, heaviest_of(c)));
}
