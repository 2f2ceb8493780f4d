// Multi-dimensional random walks (lab.apps.MultiRW) as one kernel over all steps, a warp per sample. The vertices are
// those that the application's own functions return.
//
// Roots, where their lists begin and how long these are lie in shared memory, a lane's roots one behind another, and
// every lane keeps the sum of its roots' degrees. So the walker that moves is found by one scan over the warp, and not by
// a loop over all roots. Bound: two dependent random reads per step (the neighbour, the bounds of its list).
//
// BY_DEGREE: the walker that moves is chosen in proportion to its degree, else uniformly.
// @variants ID_T=int,long BY_DEGREE=0,1
#include "sampling/engine/context.cuh"

#define FULL 0xFFFFFFFFu

// The sum over this lane and those before it.
__device__ __forceinline__ u64 sum_up(u64 mine, u32 lane) {
#pragma unroll
    for (int apart = 1; apart < 32; apart <<= 1) {
        const u64 left = __shfl_up_sync(FULL, mine, apart);
        if (lane >= apart) mine += left;
    }
    return mine;
}

// per_lane: roots of a lane. Row r of step s goes to p.out[s * out_stride + r].
// Dynamic shared memory: per warp 32 * per_lane times a position, a length and an id.
extern "C" __global__ void __launch_bounds__(128)
    move_roots(const __grid_constant__ AppPlan p, i64 steps, i64 out_stride, u32 per_lane) {
    extern __shared__ __align__(16) unsigned char memory[];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, room = 32 * per_lane;
    const i64 row = (i64)blockIdx.x * warps + warp;
    i64* begins = (i64*)memory + warp * room;
    ID_T* roots = (ID_T*)((i64*)memory + warps * room) + warp * room;
    u32* degrees = (u32*)((ID_T*)((i64*)memory + warps * room) + warps * room) + warp * room;
    if (row >= p.num_samples) return;
    const u32 count = (u32)p.num_roots, first = lane * per_lane;
    for (u32 i = lane; i < room; i += 32) {
        const i64 v = i < count ? (i64)p.roots[row * count + i] : LAB_NULL;
        roots[i] = (ID_T)v;
        begins[i] = v < 0 ? 0 : p.indptr[v];
        degrees[i] = v < 0 ? 0 : (u32)(p.indptr[v + 1] - begins[i]);
    }
    __syncwarp();
    u64 mine = 0;
    for (u32 i = 0; i < per_lane; ++i) mine += degrees[first + i];
#pragma unroll 1
    for (int s = 0; s < (int)steps; ++s) {
        const i64 step = p.step + s;
        Context c;
        lab_begin_transits(c, p, row, step, 0);
        int chosen = -1;
#if BY_DEGREE
        const u64 upto = sum_up(mine, lane), total = __shfl_sync(FULL, upto, 31);
        if (total) {
            const u64 x = (u64)lab_below(&c, (i64)total, 0);
            const int owner = __ffs(__ballot_sync(FULL, upto > x)) - 1;
            if ((int)lane == owner) {
                u64 before = upto - mine;
                for (u32 i = first; chosen < 0; ++i) {
                    before += degrees[i];
                    if (before > x) chosen = (int)i;
                }
            }
            chosen = __shfl_sync(FULL, chosen, owner);
        }
#else
        chosen = (int)lab_below(&c, count, 0);
#endif
        i64 drawn = LAB_NULL;
        const i64 v = chosen < 0 ? LAB_NULL : (i64)roots[chosen];
        if (v >= 0 && degrees[chosen]) {
            lab_begin_call(c, p, row, step, 0, 0, 1, 0, lab_first_words(p, row, step, 0, 0, 1).x);
            drawn = (i64)p.indices[begins[chosen] + lab_below(&c, degrees[chosen], 0)];
            // The first root that is v, which an earlier walker may be, gets the place.
            u32 at = room;
            for (u32 i = per_lane; i-- > 0;)
                if ((i64)roots[first + i] == v) at = first + i;
            const int owner = __ffs(__ballot_sync(FULL, at < room)) - 1;
            if ((int)lane == owner) {
                const i64 begin = p.indptr[drawn];
                const u32 degree = (u32)(p.indptr[drawn + 1] - begin);
                mine += (u64)degree - degrees[at];
                roots[at] = (ID_T)drawn;
                begins[at] = begin;
                degrees[at] = degree;
            }
        }
        __syncwarp();
        if (lane == 0) __stcs(p.out + s * out_stride + row, (ID_T)drawn);
    }
}
