// unique(step): if several slots of a step hold the same vertex of one sample, the lowest slot keeps it and the others
// draw again (NextDoor, section 6.3; unique.py defines the draws).
//
// A block per sample. The paper sorts the slots; here a hash set of the kept vertices finds duplicates in one pass. A
// slot claims its vertex with atomicMin of (round, slot), so that vertices kept in earlier rounds stay, and within a
// round the lowest slot wins. The kernel lists the slots without a vertex of their own and draws for all of them in
// parallel, until none is left or the rounds are over.
//
// The set lies in shared memory if a sample's width allows (GLOBAL_TABLE=0), else in global scratch, one set per block.
// Bound: the reads of `next` in a redraw; without duplicates the shared-memory atomics of one insertion per slot.
// @operator
// @variants ID_T=int,long GLOBAL_TABLE=0,1
#include "sampling/engine/steps/draw_again.cuh"

#if GLOBAL_TABLE
typedef u64 Claim;
#define ROUND_SHIFT 32
#else
typedef u32 Claim;
#define ROUND_SHIFT 26
#endif

__device__ __forceinline__ Claim claim_of(u32 round, u32 slot) { return (Claim)round << ROUND_SHIFT | slot; }

__device__ __forceinline__ u32 hash_of(i64 v, u32 mask) {
    return (u32)((u64)v * 0x9E3779B97F4A7C15ull >> 32) & mask;
}

__device__ __forceinline__ ID_T take_key(ID_T* key, ID_T v) {
    if constexpr (sizeof(ID_T) == 8) return (ID_T)atomicCAS((u64*)key, ~0ull, (u64)v);
    else return (ID_T)atomicCAS((int*)key, -1, (int)v);
}

// Put v into the set and claim it. Every vertex of the set belongs to a slot of its own, so the set, with at least
// twice as many entries as slots, is never full. The number of entries bounds the probes all the same.
__device__ __forceinline__ void claim(ID_T* keys, Claim* claims, u32 mask, i64 v, Claim mine) {
    u32 at = hash_of(v, mask);
    for (u32 probe = 0; probe <= mask; ++probe, at = (at + 1) & mask) {
        const ID_T seen = take_key(keys + at, (ID_T)v);
        if (seen == (ID_T)-1 || seen == (ID_T)v) {
            atomicMin(claims + at, mine);
            return;
        }
    }
    __trap();
}

// The claim of the slot that has v; v is in the set.
__device__ __forceinline__ Claim holder(const ID_T* keys, const Claim* claims, u32 mask, i64 v) {
    u32 at = hash_of(v, mask);
    for (u32 probe = 0; probe <= mask; ++probe, at = (at + 1) & mask)
        if (keys[at] == (ID_T)v) return claims[at];
    __trap();
    return 0;
}

// mask: number of entries of the set, a power of two >= 2 * width, minus one. A block needs memory for the set and for
// two lists of slots.
extern "C" __global__ void redraw(const __grid_constant__ AppPlan p, i64 first_row, i64 rows, u32 width, u32 rounds,
                                  u32 mask, unsigned char* scratch) {
    extern __shared__ __align__(16) unsigned char shared_set[];
    __shared__ u32 missing[2];
#if GLOBAL_TABLE
    const u64 set_bytes = (u64)(mask + 1ull) * (sizeof(Claim) + sizeof(ID_T)) + 8ull * width;
    unsigned char* memory = scratch + blockIdx.x * ((set_bytes + 15) & ~15ull);
#else
    unsigned char* memory = shared_set;
#endif
    Claim* claims = (Claim*)memory;
    ID_T* keys = (ID_T*)(claims + (mask + 1ull));
    u32* lists = (u32*)(keys + (mask + 1ull));
    for (i64 i = blockIdx.x; i < rows; i += gridDim.x) {
        const i64 row = first_row + i;
        ID_T* out = p.out + row * width;
        for (u64 at = threadIdx.x; at <= mask; at += blockDim.x) {
            keys[at] = (ID_T)-1;
            claims[at] = ~(Claim)0;
        }
        if (threadIdx.x < 2) missing[threadIdx.x] = 0;
        __syncthreads();
        for (u32 slot = threadIdx.x; slot < width; slot += blockDim.x)
            if (out[slot] >= 0) claim(keys, claims, mask, (i64)out[slot], claim_of(0, slot));
        __syncthreads();
        for (u32 slot = threadIdx.x; slot < width; slot += blockDim.x)
            if (out[slot] >= 0 && holder(keys, claims, mask, (i64)out[slot]) != claim_of(0, slot))
                lists[atomicAdd(missing, 1u)] = slot;
        __syncthreads();
        u32 round = 0;
        // Rounds alternate between two lists of the slots that lack a vertex: one is read while the other is written.
        // bounded: by `rounds`
        while (missing[round & 1] && round < rounds) {
            u32* const list = lists + (u64)(round & 1) * width;
            u32* const next_list = lists + (u64)(~round & 1) * width;
            const u32 count = missing[round & 1];
            ++round;
            for (u32 n = threadIdx.x; n < count; n += blockDim.x) {
                const i64 v = draw_again(p, row, list[n], round);
                out[list[n]] = (ID_T)v;
                if (v >= 0) claim(keys, claims, mask, v, claim_of(round, list[n]));
            }
            __syncthreads();
            if (threadIdx.x == 0) missing[~round & 1] = 0;  // the length of the list just read; the next round fills it
            for (u32 n = threadIdx.x; n < count; n += blockDim.x) {
                const u32 slot = list[n];
                if (out[slot] >= 0 && holder(keys, claims, mask, (i64)out[slot]) != claim_of(round, slot))
                    next_list[atomicAdd(missing + (round & 1), 1u)] = slot;
            }
            __syncthreads();
        }
        const u32 left = missing[round & 1];
        const u32* const list = lists + (u64)(round & 1) * width;
        for (u32 n = threadIdx.x; n < left; n += blockDim.x) out[list[n]] = (ID_T)LAB_NULL;
        __syncthreads();
    }
}
