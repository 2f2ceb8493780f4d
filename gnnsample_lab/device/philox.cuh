// Philox4x32-10 (Salmon et al., SC'11) and the draws built on it.
//
// Every random number of the package is a pure function of a 128-bit counter and the 64-bit seed, so a
// sample does not depend on which thread drew it, or when. The counter is an injective layout:
//
//   x  vertex id, low 32 bits
//   y  vertex id, next 24 bits | attempt << 24        (attempt: redraws of one bounded draw)
//   z  batch id
//   w  purpose << 28 | hop << 24 | index              (index: which group of four draws)
//
// philox.py is the twin of this file, bit for bit; tests hold both to the published test vectors.
#ifndef LAB_PHILOX
#define LAB_PHILOX

typedef unsigned int u32;
typedef unsigned long long u64;

#define LAB_PURPOSE_FLOYD 1u
#define LAB_PURPOSE_RESERVOIR 2u
#define LAB_PURPOSE_WEIGHTED 3u
#define LAB_PURPOSE_REPLACE 4u
#define LAB_PURPOSE_WALK 5u
#define LAB_PURPOSE_RESTART 6u
#define LAB_PURPOSE_FISHER_YATES 13u  // 8 to 12 belong to the generator of graphs
#define LAB_PURPOSE_APP 7u  // sampling applications lay out the first three words themselves: sampling/engine
#define LAB_PURPOSE_FLOW 14u  // walker, step, and a number of 28 bits: sampling/walks/flow.cu

// show: number by address
__device__ __forceinline__ uint4 lab_philox(uint4 c, uint2 k) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u32 hi0 = __umulhi(0xD2511F53u, c.x), lo0 = 0xD2511F53u * c.x;
        const u32 hi1 = __umulhi(0xCD9E8D57u, c.z), lo1 = 0xCD9E8D57u * c.z;
        c = make_uint4(hi1 ^ c.y ^ k.x, lo1, hi0 ^ c.w ^ k.y, lo0);
        k.x += 0x9E3779B9u;
        k.y += 0xBB67AE85u;
    }
    return c;
}
// end: number by address

// One stream of random words: all fields of the counter but the index are fixed.
struct Draws {
    u32 v_lo, v_hi, batch, tag;
    uint2 key;
    __device__ __forceinline__ Draws(u64 vertex, u32 batch_id, u32 hop, u32 purpose, u64 seed)
        : v_lo((u32)vertex), v_hi((u32)(vertex >> 32)), batch(batch_id), tag(purpose << 28 | hop << 24),
          key(make_uint2((u32)seed, (u32)(seed >> 32))) {}
    // The four 32-bit words of draws 4*group .. 4*group+3.
    __device__ __forceinline__ uint4 four(u32 group, u32 attempt = 0) const {
        return lab_philox(make_uint4(v_lo, v_hi | attempt << 24, batch, tag | group), key);
    }
};

__device__ __forceinline__ u32 lab_word(uint4 r, u32 i) {
    return (i & 2) ? ((i & 1) ? r.w : r.z) : ((i & 1) ? r.y : r.x);
}

// An exactly uniform integer in [0, bound): the high word of a product with one 32-bit word. In a share of bound / 2^32
// of all cases, which would favour some results, the draw is repeated.
__device__ __forceinline__ u32 lab_bounded(const Draws& d, u32 index, u32 word, u32 bound) {
    u64 m = (u64)word * bound;
    if ((u32)m < bound) {
        const u32 remainder = (0u - bound) % bound;
        for (u32 attempt = 1; (u32)m < remainder && attempt < 256; ++attempt)
            m = (u64)lab_word(d.four(index >> 2, attempt), index & 3) * bound;
    }
    return (u32)(m >> 32);
}

// An integer in [0, bound) for bounds that may exceed 32 bits: 64 random bits and multiply-high.
__device__ __forceinline__ u64 lab_bounded64(const Draws& d, u32 index, u64 bound) {
    const uint4 r = d.four(index >> 1);
    const u64 bits = (index & 1) ? ((u64)r.w << 32 | r.z) : ((u64)r.y << 32 | r.x);
    return __umul64hi(bits, bound);
}

#endif
