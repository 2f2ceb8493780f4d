// `next` of node2vec by rejection, as KnightKing does it: propose by weight, accept with the second-order factor.
//
// RETURNS, NEAR, AWAY: the factors over the largest, ALWAYS the smallest of them, in units of 2**-32, rounded up, so that
// comparing a word with them is what comparing word * 2**-32 with the factor is. The list of the vertex before is
// located once per call, and only when a proposal has to be looked up in it.
#include "edge.cuh"

extern "C" __device__ i64 lab_next(void* ctx, i64 step) {
    Context& c = *(Context*)ctx;
    const u32 heaviest = heaviest_of(c);
#if WALK
    const i64 before = c.before;
#else
    const i64 before = c.step < 1 ? LAB_NULL : (i64)c.plan->history[c.step - 1][c.row];
#endif
    const ID_T* list = nullptr;
    i64 length = -1;
    // bounded by chance alone, as rejection is: a proposal is accepted with probability ALWAYS * 2^-32 or more
    while (true) {
        const i64 i = choose(c, heaviest);
        if (i < 0) return LAB_NULL;
        const i64 candidate = (i64)c.edges[i];
        if (before < 0) return candidate;
        const u64 word = lab_draw(c);
        if (word < ALWAYS) return candidate;
        u64 accepted = AWAY;
        if (candidate == before) {
            accepted = RETURNS;
        } else {
            if (length < 0) {
                const i64 begin = c.plan->indptr[before];
                list = c.plan->indices + begin;
                length = c.plan->indptr[before + 1] - begin;
            }
            if (lab_sorted_has(list, length, candidate)) accepted = NEAR;
        }
        if (word < accepted) return candidate;
    }
}
