// What the published scheduling index hands to the published kernels (classes.cu, steps/published.cu).
#ifndef LAB_CLASSES
#define LAB_CLASSES
#include "device/philox.cuh"

typedef long long i64;

// A pair of sample and transit under its transit; NULL (negative) where the sample has none.
struct __align__(sizeof(ID_T) == 4 ? 8 : 16) Entry {
    ID_T v;
    u32 pair;  // index into the transits of the step, [S * t]
};

// The pairs first .. first + count - 1 of `sorted`, which all have transit v: what a thread block serves.
struct __align__(16) Job {
    ID_T v;
    u32 first, count;
};

// Every field has 8 bytes; grouping/classes.py holds the same record.
struct Classes {
    i64 num_nodes, pairs;  // `sorted` has room for `pairs`
    i64 size, few, many;   // neighbours to sample per pair; bounds of the classes in neighbours to sample
    i64 pairs_per_job;     // most pairs of a job of the grid class
    u32* counts;           // [vertices in whole tiles] pairs of each vertex; zero again after `number_classes`
    u32* offsets;          // [the same] place of a vertex' first pair, later of the pair behind its last
    const ID_T* transits;  // [pairs] of the step; 0: `entries` has them
    Entry* entries;        // pairs in any order
    Entry* sorted;         // pairs of the sub-warp class from the front, all others from the back
    Job* blocks;           // a transit of the block class each
    Job* items;            // up to `pairs_per_job` pairs of a transit of the grid class each
    u64* totals;           // [8] SUBWARP_PAIRS ..
    const u64* before;     // totals of the index whose pairs `entries` are, 0: all pairs of `transits`
};

#define SUBWARP_PAIRS 0  // pairs of the sub-warp class
#define OTHER_PAIRS 1    // pairs of the block and the grid class
#define SUBWARP 2        // transits of each class
#define BLOCK 3
#define GRID 4
#define ITEMS 5          // jobs of the grid class
#define TOTALS 8

#endif
