// DeepWalk written by hand for nothing else: a thread per walk, everything in registers, no engine.
//
// The stricter of the two native baselines: what an expert would write who knows the generator's layout and wants the
// same walks. The vertex and its list stay in registers from step to step; the first word of a step is computed before
// the list is known to be there. Bound: two dependent reads per step (indptr, then the neighbour; weighted: weight and
// neighbour of each trial) for the walks in flight, and the rate of random sectors once they fill the GPU.
//
// roots: [walks]; out: [steps, walks], -1 after a walk has ended. Degrees below 2**32.
// @variants ID_T=int,long WEIGHTED=0,1 THREADS=128,256
#include "device/philox.cuh"
typedef long long i64;
#define TRIALS 64
#define TAG (7u << 28)

struct Words {
    u32 x, z, drawn;
    uint2 key;
    uint4 four;
    __device__ __forceinline__ Words(u64 walk, u32 step, uint2 k)
        : x((u32)walk), z(step | (u32)(walk >> 32) << 24), drawn(0), key(k) {
        four = lab_philox(make_uint4(x, 0, z, TAG), key);
    }
    // Word 0 is the first of the group that four neighbouring slots share; all others are the slot's own.
    __device__ __forceinline__ u32 next() {
        const u32 n = drawn++;
        if (n == 0) return four.x;
        if ((n - 1 & 3) == 0) four = lab_philox(make_uint4(x, 0, z, TAG | 1 + (n - 1 >> 2)), key);
        return lab_word(four, n - 1 & 3);
    }
    __device__ __forceinline__ u32 below(u32 bound) {
        u64 m = (u64)next() * bound;
        if ((u32)m < bound) {
            const u32 remainder = (0u - bound) % bound;
            for (int word = 1; (u32)m < remainder && word < 64; ++word) m = (u64)next() * bound;
        }
        return (u32)(m >> 32);
    }
};

#if WEIGHTED
// All weights added up, where trials did not end; seldom, so it is kept out of the loop, and `words` out of memory.
__device__ __noinline__ i64 add_up(Words words, const u32* weight, u32 degree) {
    u64 total = 0, left;
    for (u32 i = 0; i < degree; ++i) total += weight[i];
    if (total >> 32) {
        const u64 low = words.next();
        left = __umul64hi((u64)words.next() << 32 | low, total);
    } else {
        left = words.below((u32)total);
    }
    for (u32 i = 0; i < degree; ++i) {
        if (left < weight[i]) return i;
        left -= weight[i];
    }
    return -1;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    deepwalk(const i64* __restrict__ indptr, const ID_T* __restrict__ indices, const u32* __restrict__ weight,
             const u32* __restrict__ max_weight, const ID_T* __restrict__ roots, ID_T* __restrict__ out, u64 walks,
             int steps, u64 seed, u64 first_walk) {
    const uint2 key = make_uint2((u32)seed, (u32)(seed >> 32));
    for (u64 w = blockIdx.x * (u64)THREADS + threadIdx.x; w < walks; w += gridDim.x * (u64)THREADS) {
        i64 at = (i64)roots[w];
        for (int step = 0; step < steps; ++step) {
            if (at >= 0) {
                const i64 begin = __ldg(indptr + at);
                const u32 degree = (u32)(__ldg(indptr + at + 1) - begin);
#if WEIGHTED
                const u32 heaviest = __ldg(max_weight + at);
#endif
                Words words(first_walk + w, step, key);
                i64 i = -1;
#if WEIGHTED
                if (heaviest) {
                    for (int trial = 0; trial < TRIALS && i < 0; ++trial) {
                        const u32 tried = words.below(degree);
                        if (words.below(heaviest) < __ldg(weight + begin + tried)) i = tried;
                    }
                    if (i < 0) i = add_up(words, weight + begin, degree);
                }
#else
                if (degree) i = words.below(degree);
#endif
                at = i < 0 ? -1 : (i64)__ldg(indices + begin + i);
            }
            out[(u64)step * walks + w] = (ID_T)at;
        }
    }
}
