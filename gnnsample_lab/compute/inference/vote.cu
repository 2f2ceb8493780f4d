// One round of label propagation (Raghavan, Albert and Kumara, 2007) over a sample: each vertex takes the commonest label
// among itself and PICKS of its edges' sources, drawn anew in each round. Ties go to a label that the round's number picks.
//
// indptr: i64[rows + 1]; indices: int[edges]; label, next: int[rows].
// Bound by bytes: a sector for each index and label drawn.
// @variants PICKS=8,12
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;
#ifndef PICKS
#define PICKS 8
#endif

__device__ __forceinline__ u32 mixed(u32 v) {
    v = (v ^ v >> 16) * 0x7feb352du;
    v = (v ^ v >> 15) * 0x846ca68bu;
    return v ^ v >> 16;
}

extern "C" __global__ void vote(const i64* indptr, const int* indices, const int* label, int* next, u64 rows, u32 round) {
    const u64 row = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const i64 begin = __ldg(indptr + row), edges = __ldg(indptr + row + 1) - begin;
    int seen[PICKS + 1];
    seen[PICKS] = __ldg(label + row);
#pragma unroll
    for (int i = 0; i < PICKS; ++i) {
        const u32 draw = mixed((u32)row * 0x9e3779b9u + mixed(round * PICKS + i));
        const i64 at = edges <= PICKS ? i : (i64)((u64)draw * (u64)edges >> 32);
        seen[i] = at < edges ? __ldg(label + (u64)(u32)__ldg(indices + begin + at)) : -1;
    }
    int best = seen[PICKS];
    u32 votes = 0, tie = 0;
#pragma unroll
    for (int i = 0; i <= PICKS; ++i) {
        u32 count = 0;
#pragma unroll
        for (int j = 0; j <= PICKS; ++j) count += seen[j] == seen[i];
        const u32 rank = mixed((u32)seen[i] + round * 0x9e3779b9u);
        if (seen[i] < 0 || count < votes || (count == votes && rank <= tie)) continue;
        best = seen[i], votes = count, tie = rank;
    }
    next[row] = best;
}
