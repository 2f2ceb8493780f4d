// The walk floor: what following chains of neighbours through memory costs, and nothing else.
//
// A walk's step is three reads, two of them one after the other: the pair indptr[v], indptr[v + 1], then one neighbour.
// All walkers are in flight, a thread has PER_THREAD of them. Which neighbour is a multiply and an add on a word in
// a register; no generator, no context, no checks. Without STORE only the end of each walk is written; with it every
// vertex, walkers side by side. Bound: latency of two dependent reads per step while walkers are few, the rate of
// random sectors (one or two of indptr, one of indices, per walker and step) once they fill the GPU.
// @variants ID_T=int,long STORE=0,1 PER_THREAD=1,2,4
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

// roots: [walkers]; out: [walkers], with STORE [steps, walkers]. Walkers that stand where nothing leads on have -1.
extern "C" __global__ void walk_floor(const i64* indptr, const ID_T* indices, const ID_T* roots, u64 walkers, int steps,
                                      u32 salt, ID_T* out) {
    const u64 threads = (u64)gridDim.x * blockDim.x, thread = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    i64 at[PER_THREAD];
    u32 word[PER_THREAD];
#pragma unroll
    for (int c = 0; c < PER_THREAD; ++c) {
        const u64 w = thread + c * threads;
        at[c] = w < walkers ? (i64)roots[w] : -1;
        word[c] = (u32)w * 0x9E3779B9u + salt;
    }
    for (int step = 0; step < steps; ++step) {
        i64 begin[PER_THREAD], degree[PER_THREAD];
#pragma unroll
        for (int c = 0; c < PER_THREAD; ++c)
            if (at[c] >= 0) {
                begin[c] = __ldg(indptr + at[c]);
                degree[c] = __ldg(indptr + at[c] + 1) - begin[c];
            }
#pragma unroll
        for (int c = 0; c < PER_THREAD; ++c)
            if (at[c] >= 0) {
                word[c] = word[c] * 747796405u + 2891336453u;
                const u32 pick = __umulhi(word[c], (u32)degree[c]);
                at[c] = degree[c] ? (i64)__ldg(indices + begin[c] + pick) : -1;
            }
#if STORE
#pragma unroll
        for (int c = 0; c < PER_THREAD; ++c) {
            const u64 w = thread + c * threads;
            if (w < walkers) out[step * walkers + w] = (ID_T)at[c];
        }
#endif
    }
#if !STORE
#pragma unroll
    for (int c = 0; c < PER_THREAD; ++c) {
        const u64 w = thread + c * threads;
        if (w < walkers) out[w] = (ID_T)at[c];
    }
#endif
}
