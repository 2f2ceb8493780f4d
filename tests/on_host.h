// CUDA's threads on a host: a block is a thread of the operating system, whose fibers are the block's threads. They give
// way at every operation of a warp and at every barrier, and blocks run at the same time, with the host's own atomics. So
// a kernel's logic runs as it is: who waits for whom, what is lost, what is found. It says nothing of weak memory.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>
using std::max;
using std::min;
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __align__(bytes) alignas(bytes)
#define __CUDA_ARCH__ 800

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct Index { unsigned x, y, z; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned __int128)a * b >> 64;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }

struct WarpOnHost {
    unsigned arrived = 0, leaving = 0, done = 0, masks[32];
    unsigned long long values[32];
};
struct BlockOnHost {
    Index index;
    int threads, current = 0, alive;
    unsigned waiting = 0, generation = 0, random;
    bool voted = false;
    WarpOnHost warps[32];
    std::vector<ucontext_t> fibers;
    std::vector<char> lives;
    ucontext_t home;
    std::function<void()> body;
};
inline thread_local BlockOnHost* block_on_host;
alignas(16) inline thread_local unsigned dynamic_on_host[1 << 16];
inline Index grid_on_host;
#define threadIdx (Index{(unsigned)block_on_host->current, 0, 0})
#define blockDim (Index{(unsigned)block_on_host->threads, 1, 1})
#define blockIdx (block_on_host->index)
#define gridDim grid_on_host

// Go on with another thread of the block: mostly the next one, at times any.
inline void give_way() {
    BlockOnHost* b = block_on_host;
    const int me = b->current;
    b->random = b->random * 1664525u + 1013904223u;
    const int from = (b->random >> 16) % 7 ? me : (b->random >> 8) % b->threads;
    for (int i = 1; i <= b->threads; ++i) {
        const int next = (from + i) % b->threads;
        if (!b->lives[next]) continue;
        if (next != me) {
            b->current = next;
            swapcontext(&b->fibers[me], &b->fibers[next]);
        }
        return;
    }
    swapcontext(&b->fibers[me], &b->home);
}
inline void fiber() {
    block_on_host->body();
    block_on_host->lives[block_on_host->current] = 0;
    --block_on_host->alive;
    give_way();
}

// All lanes of `mask` come together, read one another's values, and part.
template <class Read> void together(unsigned mask, unsigned long long value, Read read) {
    const int lane = block_on_host->current & 31;
    const unsigned bit = 1u << lane;
    WarpOnHost& w = block_on_host->warps[block_on_host->current >> 5];
    if (!(mask & bit)) abort();
    w.values[lane] = value;
    w.masks[lane] = mask;
    w.arrived |= bit;
    while (!(w.leaving & bit)) {
        bool all = true;
        for (int l = 0; l < 32; ++l)
            if (mask >> l & 1) all = all && (w.arrived >> l & 1) && w.masks[l] == mask;
        if (all) w.leaving |= mask;
        else give_way();
    }
    read(w.values);
    w.done |= bit;
    if ((w.done & mask) == mask) {
        w.arrived &= ~mask;
        w.leaving &= ~mask;
        w.done &= ~mask;
    } else {
        while (w.leaving & bit) give_way();
    }
}
template <class T> unsigned long long bits_of(T value) {
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> T value_of(unsigned long long bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { together(mask, 0, [](unsigned long long*) {}); }
template <class T> T shuffled(unsigned mask, T value, int lane, bool keep = false) {
    T out;
    together(mask, bits_of(value), [&](unsigned long long* all) { out = keep ? value : value_of<T>(all[lane & 31]); });
    return out;
}
#define LANE (block_on_host->current & 31)
template <class T> T __shfl_sync(unsigned mask, T value, int lane) { return shuffled(mask, value, lane); }
template <class T> T __shfl_up_sync(unsigned mask, T value, int by) {
    return shuffled(mask, value, LANE - by, LANE < by);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int by) { return shuffled(mask, value, LANE ^ by); }
template <class Test> unsigned lanes_where(unsigned mask, unsigned long long value, Test test) {
    unsigned found = 0;
    together(mask, value, [&](unsigned long long* all) {
        for (int l = 0; l < 32; ++l)
            if (mask >> l & 1 && test(all[l])) found |= 1u << l;
    });
    return found;
}
inline unsigned __ballot_sync(unsigned mask, int is) {
    return lanes_where(mask, is != 0, [](unsigned long long other) { return other != 0; });
}
inline int __any_sync(unsigned mask, int is) { return __ballot_sync(mask, is) != 0; }
template <class T> unsigned __match_any_sync(unsigned mask, T value) {
    const unsigned long long own = bits_of(value);
    return lanes_where(mask, own, [=](unsigned long long other) { return other == own; });
}
inline void __syncthreads() {
    BlockOnHost* b = block_on_host;
    const unsigned generation = b->generation;
    ++b->waiting;
    while (b->generation == generation) {
        if ((int)b->waiting >= b->alive) {
            b->waiting = 0;
            ++b->generation;
        } else {
            give_way();
        }
    }
}
inline int __syncthreads_count(int) { abort(); }
inline int __syncthreads_or(int is) {
    BlockOnHost* b = block_on_host;
    if (is) b->voted = true;
    __syncthreads();
    const bool found = b->voted;
    __syncthreads();
    b->voted = false;
    __syncthreads();
    return found;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned) {
    give_way();
    std::this_thread::yield();
}
template <class T> T __ldcg(const T* at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
template <class T> T __ldg(const T* at) { return *at; }
template <class T, class U> T atomicAdd(T* at, U by) { return __atomic_fetch_add(at, (T)by, __ATOMIC_RELAXED); }
template <class T, class U> T atomicSub(T* at, U by) { return __atomic_fetch_sub(at, (T)by, __ATOMIC_RELAXED); }
template <class T, class U> T atomicOr(T* at, U bits) { return __atomic_fetch_or(at, (T)bits, __ATOMIC_RELAXED); }
template <class T, class U> T atomicAnd(T* at, U bits) { return __atomic_fetch_and(at, (T)bits, __ATOMIC_RELAXED); }
template <class T> T atomicCAS(T* at, T was, T now) {
    __atomic_compare_exchange_n(at, &was, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return was;
}
template <class T, class U> T atomicExch(T* at, U value) { return __atomic_exchange_n(at, (T)value, __ATOMIC_RELAXED); }
inline unsigned atomicInc(unsigned* at, unsigned most) {
    unsigned seen = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &seen, seen >= most ? 0 : seen + 1, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
    return seen;
}
template <class T, class U> T atomicMax(T* at, U value) {
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (old < (T)value &&
           !__atomic_compare_exchange_n(at, &old, (T)value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
template <class T, class U> T atomicMin(T* at, U value) {
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (old > (T)value &&
           !__atomic_compare_exchange_n(at, &old, (T)value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

inline void launch_on_host(unsigned blocks, int threads, unsigned seed, std::function<void()> body) {
    grid_on_host = {blocks, 1, 1};
    std::vector<std::thread> pool;
    for (unsigned x = 0; x < blocks; ++x)
        pool.emplace_back([=] {
            const size_t stack = 1 << 17;
            auto b = std::make_unique<BlockOnHost>();
            auto stacks = std::make_unique<char[]>(stack * threads);
            block_on_host = b.get();
            b->index = {x, 0, 0};
            b->threads = b->alive = threads;
            b->random = seed * 7919 + x;
            b->fibers.resize(threads);
            b->lives.assign(threads, 1);
            b->body = body;
            for (int t = 0; t < threads; ++t) {
                getcontext(&b->fibers[t]);
                b->fibers[t].uc_stack.ss_sp = stacks.get() + stack * t;
                b->fibers[t].uc_stack.ss_size = stack;
                makecontext(&b->fibers[t], fiber, 0);
            }
            swapcontext(&b->home, &b->fibers[0]);
        });
    for (auto& thread : pool) thread.join();
}
