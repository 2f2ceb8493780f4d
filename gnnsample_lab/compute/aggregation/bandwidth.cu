// The peak rates of this GPU's memory levels and FP32 units: the ceilings of the bound and of the roofline.
//
// copy: DRAM, bytes read and written; read_l2: a buffer that stays in the L2, read past the L1 over and over;
// read_shared: conflict-free 16-byte reads of shared memory; multiply_add: independent chains of FP32 FMA.
// @variants BATCH=4,8
typedef unsigned int u32;
typedef unsigned long long u64;
#ifndef BATCH
#define BATCH 8
#endif

extern "C" __global__ void copy(const uint4* from, uint4* to, u64 n) {
    const u64 first = blockIdx.x * (u64)(blockDim.x * BATCH) + threadIdx.x;
    uint4 values[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
        if (first + i * blockDim.x < n) values[i] = __ldcs(from + first + i * blockDim.x);
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
        if (first + i * blockDim.x < n) __stcs(to + first + i * blockDim.x, values[i]);
}

// n: 16-byte words, a multiple of blockDim.x * BATCH. Blocks begin at different places and wrap around.
extern "C" __global__ void read_l2(const uint4* from, u64 n, u32 rounds, u32* out) {
    const u64 step = (u64)blockDim.x * BATCH, tiles = n / step;
    u64 tile = blockIdx.x % tiles;
    u32 sum = 0;
    for (u32 r = 0; r < rounds; ++r) {
        const uint4* at = from + tile * step + threadIdx.x;
        uint4 values[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) values[i] = __ldcg(at + i * blockDim.x);
#pragma unroll
        for (int i = 0; i < BATCH; ++i) sum += values[i].x ^ values[i].y ^ values[i].z ^ values[i].w;
        tile += gridDim.x;
        if (tile >= tiles) tile %= tiles;
    }
    if (sum == 0x12345678u) *out = sum;
}

extern "C" __global__ void read_shared(u32 rounds, u32* out) {
    __shared__ uint4 words[1024];
    for (u32 i = threadIdx.x; i < 1024; i += blockDim.x) words[i] = make_uint4(i, i, i, i);
    __syncthreads();
    u32 sum = 0, at = threadIdx.x;
    for (u32 r = 0; r < rounds; ++r) {
        uint4 values[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) values[i] = words[(at + i * 32) & 1023];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) sum += values[i].x ^ values[i].y ^ values[i].z ^ values[i].w;
        at += (sum & 1) * 32;  // the next addresses depend on what was read, so no read can be left out
    }
    if (sum == 0x12345678u) *out = sum;
}

extern "C" __global__ void multiply_add(u32 rounds, float* out) {
    float a[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) a[i] = threadIdx.x * 1e-3f + i;
    for (u32 r = 0; r < rounds; ++r)
#pragma unroll
        for (int k = 0; k < 16; ++k)
#pragma unroll
            for (int i = 0; i < 8; ++i) a[i] = fmaf(a[i], 0.999f, 1e-3f);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += a[i];
    if (sum == 12345.0f) *out = sum;
}
