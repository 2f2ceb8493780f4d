// A slot's draw of a later attempt, for kernels that draw repeated vertices of a sample again.
#ifndef LAB_DRAW_AGAIN
#define LAB_DRAW_AGAIN
#include "sampling/engine/context.cuh"

__device__ __forceinline__ i64 draw_again(const AppPlan& p, i64 row, u32 slot, u32 attempt) {
    Context c;
#if COLLECTIVE
    const i64 k = 0, j = slot;
#else
    const i64 k = slot / (u32)p.size, j = slot - k * p.size;
#endif
    const uint4 words = lab_first_words(p, row, k, j >> 2, attempt);
    lab_begin_call(c, p, row, k, j, attempt, lab_word(words, (u32)j & 3));
#if COLLECTIVE
    lab_set_combined(c);
#else
    lab_set_transit(c, (i64)p.transits[row * p.num_transits + k]);
#endif
    return lab_call_next(c);
}
#endif
