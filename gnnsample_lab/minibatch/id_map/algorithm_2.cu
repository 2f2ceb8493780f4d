// Fused-Map as FastGL publishes it (Algorithm 2): a thread per id. The thread inserts its id by compare-and-swap, and if
// its swap found the slot empty, it takes the local id by an atomic addition to the one counter, LocalID, and writes it
// beside the key. No barrier, no scan, no exchange between threads; a second kernel (`look_up` of fused.cu) reads the ids.
// fused.cu is the same idea with one addition a block.
//
// Where the published pseudocode is wrong, this file does what the paper's text says:
//   line 16  sets Flag for a new key and line 27 numbers a key whose Flag is not set: who found the slot empty numbers it
//   line 28  reads LocalID apart from the addition of line 29, so that two keys could get one id: the addition returns it
// Beside the pseudocode: the list of vertices is written too (mini-batches need it), and probing gives up where the table,
// sized by earlier mini-batches, is too full. The paper leaves the hash function open (its example takes id % size).
//
// LocalID is counters[0], which starts at the number of seeds, so the counters of hops stay zero.
// A compiler may join the additions of a warp's lanes to one address into one; the source has one per new id, as published.
// Bound: a swap per id in the L2 cache, and all additions to one address.
// @variants ID_T=int,long MAP_KIND=2
#include "table.cuh"

// `out` and `hop` are not used: the arguments are those of `insert` in fused.cu.
extern "C" __global__ void __launch_bounds__(THREADS) insert(const __grid_constant__ Map m, const ID_T* picks, u64 n,
                                                             int hop, int* out, i64 tag) {
    const u64 i = blockIdx.x * (u64)THREADS + threadIdx.x;
    if (i < n) {
        const Key v = (Key)picks[i];
        const u64 most = min((u64)m.limit, m.mask);
        u64 at = hash_of(v) & m.mask;                                   // line 11
        // bounded: by `most`
        for (u64 probes = 0;; ++probes) {
            const Word old = atomicCAS(&entries(m)[at].key, EMPTY, v);  // line 13
            if (old == EMPTY) {
                const u32 local = atomicAdd(m.counters, 1u);            // lines 28 and 29
                entries(m)[at].value = local;
                m.nodes[local] = (ID_T)v;
            }
            if (old == EMPTY || old == v) break;                        // line 14
            if (probes == most) {
                m.counters[CTR_STATUS] = 1;
                break;
            }
            at = (at + 1) & m.mask;                                     // line 20
        }
    }
    if (!tag) return;
    __syncthreads();
    report_by_the_last_block(m, hop, tag);
}
