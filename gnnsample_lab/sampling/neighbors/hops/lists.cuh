// Rows of a graph whose lists lie in several memories that this GPU can read: its own, a peer's, the host's.
//
// Macro LISTS: 0 the whole graph's indptr and indices (draw.cuh), 1 a packed record of every vertex that this GPU keeps,
// 2 records that each vertex's owner keeps. Starts count entries from address 0 and p.indices is null, so that all code
// that reads p.indices + row.start reads the list where it lies. Host code: sampling/neighbors/lists.py.
//
// Bound: where records are local a row costs one load of 8 bytes, half of what a pair of indptr entries costs, which
// stays in the L2 cache up to some million vertices. With LISTS=2 a load of 4 bytes from this GPU comes before it, and
// the record may be 900 ns away; a warp has those of 32 rows under way at once.
#ifndef LAB_LISTS
#define LAB_LISTS
#include "sampling/neighbors/plan.cuh"

// A record: start << LAB_DEGREE_BITS | degree. Where the degree's bits are all set, `start` is the index, in the same
// array, of two words: start and degree of a row that does not fit.
#define LAB_DEGREE_BITS 18
#define LAB_DEGREE_MASK ((1ull << LAB_DEGREE_BITS) - 1)

struct ListsPlace {  // addresses of one part's arrays
    u64 records;
    u64 entries;     // of its lists, in entries
    u64 prefix;      // of its prefix sums, less 8 bytes for each of `entries`
    u64 available;
};

struct ListsTable {  // LISTS=2: what p.indptr points to
    u64 where;       // address: place and row of each vertex, row << place_bits | place
    u64 place_bits;
    u64 is_wide;     // 1 where entries of `where` have 64 bits, else 32
    u64 unused;
    ListsPlace places[1];
};

__device__ __forceinline__ void lab_unpack(const u64* records, u64 at, i64& start, int& degree) {
    const u64 record = __ldg(records + at);
    start = (i64)(record >> LAB_DEGREE_BITS);
    degree = (int)(record & LAB_DEGREE_MASK);
    if ((record & LAB_DEGREE_MASK) == LAB_DEGREE_MASK) {
        const u64* words = records + start;
        start = (i64)__ldg(words);
        degree = (int)__ldg(words + 1);
    }
}

// Start and degree of vertex `v`. Weighted rules also get its in-edges of positive weight, and `prefix`, such that
// prefix + start is the first of its prefix sums.
__device__ __forceinline__ void lab_locate(const Plan& p, u64 v, i64& start, int& degree, const u64*& prefix,
                                           int& available) {
#if LISTS == 1
    lab_unpack((const u64*)p.indptr, v, start, degree);
#if RULE >= 3
    available = __ldg(p.available + v);
    prefix = (const u64*)(__ldg(p.prefix + v) - 8 * (u64)start);  // p.prefix: address of each vertex's prefix sums
#endif
#else
    // show: read a peer's memory
    const ListsTable* table = (const ListsTable*)p.indptr;
    const u64 where = __ldg(&table->is_wide) ? __ldg((const u64*)__ldg(&table->where) + v)
                                             : (u64)__ldg((const u32*)__ldg(&table->where) + v);
    const u64 bits = __ldg(&table->place_bits), row = where >> bits;
    const ListsPlace* place = table->places + (where & ((1ull << bits) - 1));
#if RULE >= 3
    available = __ldg((const int*)__ldg(&place->available) + row);
    prefix = (const u64*)__ldg(&place->prefix);
#endif
    lab_unpack((const u64*)__ldg(&place->records), row, start, degree);
    start += (i64)__ldg(&place->entries);
    // end: read a peer's memory
#endif
}
#endif
