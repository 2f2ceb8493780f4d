// `next` of DeepWalk and, uniform, of k-hop sampling.
#include "edge.cuh"

extern "C" __device__ i64 lab_next(void* ctx, i64 step) {
    Context& c = *(Context*)ctx;
    return taken(c, choose(c, heaviest_of(c)));
}
