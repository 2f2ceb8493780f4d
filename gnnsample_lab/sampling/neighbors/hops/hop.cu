// Strategies `bsp` and `captured`: kernels for the seeds, then a kernel per hop; the host waits for none of them. Under
// the reservoir a second kernel per hop draws its hubs, where the graph has any.
//
// Shapes: grid (blocks, mini-batches). Bound: see expand.cuh.
// @variants ID_T=int,long RULE=0,1,2,3,4 TABLE_KIND=0,1,2 TRACE=0,1 KMAX=8,16,32 LISTS=0,1,2
#define SHARES_HUBS 1
#include "begin.cuh"
#include "expand.cuh"

extern "C" __global__ void __launch_bounds__(1024) begin(const __grid_constant__ Plan p) {
    extern __shared__ u64 hash[];
    lab_follow();
    lab_begin(p, blockIdx.y, hash, (u32)p.seed_slots);
}

extern "C" __global__ void begin_distinct(const __grid_constant__ Plan p) {
    lab_follow();
    lab_begin_distinct(p, blockIdx.y);
}

extern "C" __global__ void begin_insert(const __grid_constant__ Plan p) {
    lab_follow();
    lab_begin_insert(p, blockIdx.y);
}

extern "C" __global__ void __launch_bounds__(1024) begin_count(const __grid_constant__ Plan p) {
    lab_follow();
    lab_begin_count(p, blockIdx.y);
}

extern "C" __global__ void __launch_bounds__(1024) begin_number(const __grid_constant__ Plan p) {
    lab_follow();
    lab_begin_number(p, blockIdx.y);
}

extern "C" __global__ void __launch_bounds__(LAB_WARPS * 32, MIN_BLOCKS) hop(const __grid_constant__ Plan p, int hop) {
    __shared__ HopShared shared;
    lab_follow();
    lab_expand(p, hop, shared);
}

#if RULE == 1
// The hubs that `hop` has listed.
extern "C" __global__ void __launch_bounds__(LAB_WARPS * 32, 4) hop_hubs(const __grid_constant__ Plan p, int hop) {
    __shared__ ID_T staged[LAB_WARPS][LAB_STAGE];
    lab_follow();
    lab_expand_hubs(p, hop, staged[threadIdx.x >> 5]);
}
#endif
