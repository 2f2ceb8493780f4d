// Draws of synthetic graphs: edges as sortable 64-bit keys, features, edge weights.
//
// Integers only. draws_cpu.py is the twin of this file, bit for bit: a graph is a function of its plan and its
// seed, whichever device builds it. Bound by arithmetic (two to five Philox calls an edge) until the keys of a
// whole graph are sorted, which costs more than drawing them.
#include "device/philox.cuh"

typedef long long i64;

// Word 3 of the counter: purposes 8 to 12 in the top four bits, where sampling uses 1 to 7, 13 and 14.
#define TAG_EDGE 0x80000000u
#define TAG_FEATURE 0x90000000u
#define TAG_CENTROID 0xA0000000u
#define TAG_WEIGHT 0xB0000000u

#define MAX_ATTEMPTS 8u

// A bijection on [0, n): three rounds of xor-shift and odd multiplication on the smallest power of two, walked
// until it lands inside. `c` holds the six constants of the rounds, drawn on the host.
struct Bijection {
    u64 n, mask, shift;
    u64 c[6];
};

__device__ __forceinline__ u64 scatter_id(const Bijection& b, u64 x) {
    // bounded: the rounds permute 0 .. mask, so the walk from x < n comes back to x at the latest; it is two steps long
    // on average at most, since more than half of these numbers are below n
    do {
#pragma unroll
        for (int r = 0; r < 3; ++r) {
            x ^= x >> b.shift;
            x = (x * b.c[2 * r] + b.c[2 * r + 1]) & b.mask;
        }
        x ^= x >> b.shift;
    } while (x >= b.n);
    return x;
}

__device__ __forceinline__ Bijection load_bijection(const u64* p) {
    Bijection b;
    b.n = p[0];
    b.mask = p[1];
    b.shift = p[2];
    for (int i = 0; i < 6; ++i) b.c[i] = p[3 + i];
    return b;
}

// Community of a rank: the last c with starts[c] <= rank.
__device__ __forceinline__ u32 community(const i64* starts, u32 num_classes, i64 rank) {
    u32 low = 0, high = num_classes;
    while (high - low > 1) {
        const u32 middle = (low + high) >> 1;
        if (starts[middle] <= rank) low = middle; else high = middle;
    }
    return low;
}

// Member of a community of `size`: `power` 1 is uniform, higher powers favour its first members (hubs).
__device__ __forceinline__ i64 member(u32 word, u32 power, i64 size) {
    u64 x = word;
    for (u32 i = 1; i < power; ++i) x = (x * word) >> 32;
    return (i64)((x * (u64)size) >> 32);
}

__device__ __forceinline__ u64 pair_key(u64 src, u64 dst, u32 bits) { return dst << bits | src; }

// Append the key where its destination lies in [low, high), or both directions of it.
__device__ __forceinline__ void emit(u64 src, u64 dst, u32 bits, bool symmetric, i64 e, i64 num_draws, i64 low,
                                     i64 high, bool whole, u64* cursor, i64* keys) {
    if (whole) {
        keys[e] = (i64)pair_key(src, dst, bits);
        if (symmetric) keys[num_draws + e] = (i64)pair_key(dst, src, bits);
        return;
    }
    if ((i64)dst >= low && (i64)dst < high) keys[atomicAdd(cursor, 1ull)] = (i64)pair_key(src, dst, bits);
    if (symmetric && (i64)src >= low && (i64)src < high)
        keys[atomicAdd(cursor, 1ull)] = (i64)pair_key(dst, src, bits);
}

__device__ __forceinline__ void draw_community(i64 e, uint2 key, const Bijection& b, const i64* starts, u32 num_classes,
                                               u32 same, u32 dst_power, u32 src_power, u32 dst_flat, u32 src_flat,
                                               u64* src, u64* dst) {
    const u32 lo = (u32)(u64)e, hi = (u32)((u64)e >> 32);
    i64 to = 0, from = 0;
    for (u32 attempt = 0; attempt < MAX_ATTEMPTS; ++attempt) {
        const uint4 r = lab_philox(make_uint4(lo, hi, attempt, TAG_EDGE), key);
        const uint4 s = lab_philox(make_uint4(lo, hi, attempt, TAG_EDGE | 1u), key);
        const u32 c = community(starts, num_classes, (i64)((r.x * b.n) >> 32));
        const u32 d = r.z < same ? c : community(starts, num_classes, (i64)((r.w * b.n) >> 32));
        to = starts[c] + member(r.y, s.y < dst_flat ? 1u : dst_power, starts[c + 1] - starts[c]);
        from = starts[d] + member(s.x, s.z < src_flat ? 1u : src_power, starts[d + 1] - starts[d]);
        if (to != from) break;
    }
    if (to == from) from = to + 1 < (i64)b.n ? to + 1 : 0;
    *src = scatter_id(b, (u64)from);
    *dst = scatter_id(b, (u64)to);
}

__device__ __forceinline__ void draw_rmat(i64 e, uint2 key, const Bijection& b, u32 levels, u32 t0, u32 t1, u32 t2,
                                          u64* src, u64* dst) {
    const u32 lo = (u32)(u64)e, hi = (u32)((u64)e >> 32);
    u64 from = 0, to = 0;
    for (u32 level = 0; level < levels; level += 8) {
        const uint4 r = lab_philox(make_uint4(lo, hi, level >> 3, TAG_EDGE | 2u), key);
        const u32 words[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            if (level + i < levels) {
                const u32 u = (words[i >> 1] >> (16 * (i & 1))) & 0xffffu;
                from = from << 1 | (u >= t1 ? 1u : 0u);
                to = to << 1 | ((u >= t0 && u < t1) || u >= t2 ? 1u : 0u);
            }
        }
    }
    *src = scatter_id(b, (from * b.n) >> levels);
    *dst = scatter_id(b, (to * b.n) >> levels);
}

extern "C" __global__ void __launch_bounds__(256)
community_keys(i64 num_draws, u64 seed, const u64* bijection, const i64* starts, u32 num_classes, u32 same,
               u32 dst_power, u32 src_power, u32 dst_flat, u32 src_flat, u32 bits, int symmetric, i64 low, i64 high,
               int whole, u64* cursor, i64* keys) {
    const Bijection b = load_bijection(bijection);
    const uint2 key = make_uint2((u32)seed, (u32)(seed >> 32));
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x; e < num_draws; e += step) {
        u64 src, dst;
        draw_community(e, key, b, starts, num_classes, same, dst_power, src_power, dst_flat, src_flat, &src, &dst);
        emit(src, dst, bits, symmetric, e, num_draws, low, high, whole, cursor, keys);
    }
}

extern "C" __global__ void __launch_bounds__(256)
rmat_keys(i64 num_draws, u64 seed, const u64* bijection, u32 levels, u32 t0, u32 t1, u32 t2, u32 bits, int symmetric,
          i64 low, i64 high, int whole, u64* cursor, i64* keys) {
    const Bijection b = load_bijection(bijection);
    const uint2 key = make_uint2((u32)seed, (u32)(seed >> 32));
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x; e < num_draws; e += step) {
        u64 src, dst;
        draw_rmat(e, key, b, levels, t0, t1, t2, &src, &dst);
        emit(src, dst, bits, symmetric, e, num_draws, low, high, whole, cursor, keys);
    }
}

// How many keys have their destination in each block of 2^shift vertices: sizes the passes of a graph whose keys
// do not fit at once. Draws are those of the kernels above.
extern "C" __global__ void __launch_bounds__(256)
community_histogram(i64 num_draws, u64 seed, const u64* bijection, const i64* starts, u32 num_classes, u32 same,
                    u32 dst_power, u32 src_power, u32 dst_flat, u32 src_flat, int symmetric, u32 shift, u64* counts) {
    const Bijection b = load_bijection(bijection);
    const uint2 key = make_uint2((u32)seed, (u32)(seed >> 32));
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x; e < num_draws; e += step) {
        u64 src, dst;
        draw_community(e, key, b, starts, num_classes, same, dst_power, src_power, dst_flat, src_flat, &src, &dst);
        atomicAdd(&counts[dst >> shift], 1ull);
        if (symmetric) atomicAdd(&counts[src >> shift], 1ull);
    }
}

extern "C" __global__ void __launch_bounds__(256)
rmat_histogram(i64 num_draws, u64 seed, const u64* bijection, u32 levels, u32 t0, u32 t1, u32 t2, int symmetric,
               u32 shift, u64* counts) {
    const Bijection b = load_bijection(bijection);
    const uint2 key = make_uint2((u32)seed, (u32)(seed >> 32));
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x; e < num_draws; e += step) {
        u64 src, dst;
        draw_rmat(e, key, b, levels, t0, t1, t2, &src, &dst);
        atomicAdd(&counts[dst >> shift], 1ull);
        if (symmetric) atomicAdd(&counts[src >> shift], 1ull);
    }
}

// Four features a thread: a sign of the class times `signal`, plus noise of four summed bytes (nearly normal,
// standard deviation 148), over 128. All values are multiples of 1/128 below 2^24, so float32 holds them exactly.
extern "C" __global__ void __launch_bounds__(256)
class_features(i64 num_vertices, u32 num_features, u32 signal, u64 seed, const i64* labels,
               float* features) {
    const uint2 key = make_uint2((u32)seed, (u32)(seed >> 32));
    const u32 groups = (num_features + 3) / 4;
    const i64 total = num_vertices * groups, step = (i64)gridDim.x * blockDim.x;
    for (i64 t = (i64)blockIdx.x * blockDim.x + threadIdx.x; t < total; t += step) {
        const i64 row = t / groups, vertex = row;
        const u32 group = (u32)(t % groups);
        const uint4 r = lab_philox(make_uint4((u32)(u64)vertex, (u32)((u64)vertex >> 32), group, TAG_FEATURE), key);
        const uint4 s = lab_philox(make_uint4((u32)labels[row], 0u, group, TAG_CENTROID), key);
        const u32 noise[4] = {r.x, r.y, r.z, r.w}, sign[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u32 f = 4 * group + i, w = noise[i];
            if (f >= num_features) break;
            const int sum = (int)((w & 255u) + (w >> 8 & 255u) + (w >> 16 & 255u) + (w >> 24)) - 510;
            const int value = sum + (sign[i] & 1u ? (int)signal : -(int)signal);
            features[row * num_features + f] = (float)value * 0.0078125f;
        }
    }
}

// Weights in [low, low + span) by the pair (src, dst): the same for an edge wherever it is stored.
extern "C" __global__ void __launch_bounds__(256)
pair_weights(i64 num_edges, const i64* src, const i64* dst, u64 seed, float low, float step_size, float* weights) {
    const uint2 key = make_uint2((u32)seed, (u32)(seed >> 32));
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x; e < num_edges; e += step) {
        const u64 s = (u64)src[e], d = (u64)dst[e];
        const uint4 r = lab_philox(make_uint4((u32)s, (u32)d, (u32)(s >> 32) << 16 | (u32)(d >> 32), TAG_WEIGHT), key);
        weights[e] = low + (float)(r.x >> 12) * step_size;
    }
}
