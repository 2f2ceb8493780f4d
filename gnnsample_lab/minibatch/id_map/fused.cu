// ID maps that assign local ids while they insert: one kernel inserts a hop's picks, and one looks up all of them.
//
// The table lives longer than a hop: earlier vertices are in it with their ids, and a hop inserts only its picks. So no
// pick can take the id of a destination; a new table for each hop would need a separate launch to ensure this.
// The thread whose atomic claims an entry writes the local id there. With MAP_KIND 0, entry and id are one word: a pick
// that finds an id needs no look-up, and the look-up kernel reads the table only for picks that found a claim without
// an id. With the other tables the look-up kernel reads all ids.
//
//   MAP_KIND 0  one word per vertex; a word below `base` is from an earlier mini-batch, so nothing is ever cleared
//   MAP_KIND 1  a hash with linear probing, every key stamped with the mini-batch: never cleared either
//   MAP_KIND 2  the hash of FastGL's Fused-Map: (key, value), filled with ones before each mini-batch
//
// FastGL adds to the counter once a new id (algorithm_2.cu); here a block's threads count theirs first and add once.
//
// ITEMS: picks per thread, whose look-ups are in flight together. One tile of 256 * ITEMS picks a block.
// Bound: a random sector per pick and kernel, from the L2 cache where the table fits it, and 4 bytes out per pick.
// @variants ID_T=int,long MAP_KIND=0,1,2
#include "table.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) enter(const __grid_constant__ Map m, const ID_T* vertices, u32 n) {
    const u32 i = blockIdx.x * THREADS + threadIdx.x;
    if (blockIdx.x == 0) reset_counters(m, n);
    if (i < n) enter_vertex(m, (Key)vertices[i], i);
}

// tag: not 0 for a report by the last block.
extern "C" __global__ void __launch_bounds__(THREADS) insert(const __grid_constant__ Map m, const ID_T* picks, u64 n,
                                                             int hop, int* out, i64 tag) {
    insert_tile(m, picks, n, hop, out, blockIdx.x);
    if (!tag) return;
    __syncthreads();
    report_by_the_last_block(m, hop, tag);
}

// Local ids of the picks of one or of all hops.
extern "C" __global__ void __launch_bounds__(THREADS) look_up(const __grid_constant__ Map m,
                                                              const __grid_constant__ Hops h) {
    if (blockIdx.x == 0 && threadIdx.x == 0 && h.tag) report(m, h.num_levels, h.tag);
    int hop = 0;
    // bounded: by the number of hops
    while (hop + 1 < h.num_hops && blockIdx.x >= h.first_tile[hop + 1]) ++hop;
    look_up_tile(m, h.picks[hop], h.count[hop], h.out[hop], blockIdx.x - h.first_tile[hop]);
}
