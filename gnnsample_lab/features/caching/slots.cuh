// The row of a vertex in a cache whose rows ascend by id (slots.py): of each 32 vertices their bits, and how many cached
// ones lie below them. One read of 8 bytes finds it; the table of a large graph fits in the L2.
#pragma once

// show: find a row by its bit
__device__ __forceinline__ int slot_of(const uint2* slots, unsigned long long v) {
    const uint2 word = __ldg(slots + (v >> 5));
    const unsigned bit = 1u << (v & 31);
    return word.x & bit ? (int)(word.y + __popc(word.x & (bit - 1))) : -1;
}
// end: find a row by its bit
