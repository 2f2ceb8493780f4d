// CUDA's threads on a host: a block is a thread of the operating system, whose fibers are the block's threads. They give
// way at every operation of a warp and at every barrier, and blocks run at the same time, with the host's own atomics. So
// a kernel's logic runs as it is: who waits for whom, what is lost, what is found. It says nothing of weak memory.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
// As CUDA has them: of two types that differ, too.
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b) {
    return (std::common_type_t<A, B>)a < (std::common_type_t<A, B>)b ? b : a;
}
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b) {
    return (std::common_type_t<A, B>)b < (std::common_type_t<A, B>)a ? b : a;
}
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __CUDA_ARCH__ 800

struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct Index3 { unsigned x, y, z; };
struct __align__(16) ulonglong2 { unsigned long long x, y; };
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned __int128)a * b >> 64;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffsll(unsigned long long x) { return __builtin_ffsll((long long)x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline float __int_as_float(int bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
inline float __expf(float x) { return expf(x); }
#define __builtin_assume(truth) ((void)0)

struct WarpOnHost {
    unsigned arrived = 0, leaving = 0, done = 0, masks[32];
    unsigned long long values[32];
};
// A stack, and where the work on it stands.
struct Fiber {
#if defined(__x86_64__)
    void* at;
#else
    ucontext_t at;
#endif
};
#if defined(__x86_64__)
extern "C" void switch_on_host(void** from, void* to) __attribute__((visibility("hidden")));
asm(R"(
.text
.hidden switch_on_host
.globl switch_on_host
switch_on_host:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
inline void go_on(Fiber& from, Fiber& to) { switch_on_host(&from.at, to.at); }
inline void begin_at(Fiber& fiber, char* stack, size_t size, void (*body)()) {
    void** top = (void**)((uintptr_t)(stack + size) & ~(uintptr_t)15);
    *--top = nullptr;       // where a function that is called finds the stack: 8 bytes off a multiple of 16
    *--top = (void*)body;   // what `ret` returns to
    top -= 6;
    memset(top, 0, 6 * sizeof(void*));
    fiber.at = top;
}
#else
inline void go_on(Fiber& from, Fiber& to) { swapcontext(&from.at, &to.at); }
inline void begin_at(Fiber& fiber, char* stack, size_t size, void (*body)()) {
    getcontext(&fiber.at);
    fiber.at.uc_stack.ss_sp = stack;
    fiber.at.uc_stack.ss_size = size;
    makecontext(&fiber.at, body, 0);
}
#endif
struct BlockOnHost {
    Index3 index, dims;
    int threads, current = 0, alive;
    unsigned waiting = 0, generation = 0, random;
    bool voted = false;
    int counted = 0;
    WarpOnHost warps[32];
    std::vector<Fiber> fibers;
    std::vector<char> lives;
    Fiber home;
    const std::function<void()>* body;
};
inline thread_local BlockOnHost* block_on_host;
alignas(16) inline thread_local unsigned dynamic_on_host[1 << 16];
inline Index3 grid_on_host;
inline std::atomic<int> trapped_on_host;
inline Index3 thread_on_host() {
    const Index3 d = block_on_host->dims;
    const unsigned i = block_on_host->current;
    return {i % d.x, i / d.x % d.y, i / (d.x * d.y)};
}
#define threadIdx (thread_on_host())
#define blockDim (block_on_host->dims)
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
            go_on(b->fibers[me], b->fibers[next]);
        }
        return;
    }
    go_on(b->fibers[me], b->home);
}
inline void fiber() {
    (*block_on_host->body)();
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
template <class T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
    return shuffled(mask, value, (LANE & -width) | (lane & (width - 1)));  // a lane of one's own group of `width`
}
template <class T> T __shfl_up_sync(unsigned mask, T value, int by) {
    return shuffled(mask, value, LANE - by, LANE < by);
}
// `width` is 32 wherever a kernel gives it.
template <class T> T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) { return shuffled(mask, value, LANE ^ by); }
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
inline int __syncthreads_count(int is) {
    BlockOnHost* b = block_on_host;
    if (is) ++b->counted;
    __syncthreads();
    const int found = b->counted;
    __syncthreads();
    b->counted = 0;
    __syncthreads();
    return found;
}
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
template <class T> T __ldcg(const T* at) {
    if constexpr (std::is_integral<T>::value) return __atomic_load_n(at, __ATOMIC_RELAXED);
    else return *at;
}
// Who polls leaves the core to others now and then: they may be what is waited for.
template <class T> T acquire_on_host(const T* at) {
    static thread_local unsigned polls = 0;
    if ((++polls & 63) == 0) std::this_thread::yield();
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
template <class T> T __ldg(const T* at) { return *at; }
template <class T> T __ldcs(const T* at) { return *at; }
template <class T> void __stcs(T* at, const T& value) { *at = value; }
template <class T, class U> std::enable_if_t<std::is_integral<T>::value, T> atomicAdd(T* at, U by) {
    return __atomic_fetch_add(at, (T)by, __ATOMIC_RELAXED);
}
template <class T, class U> std::enable_if_t<std::is_floating_point<T>::value, T> atomicAdd(T* at, U by) {
    T old = *at, sum;
    do sum = old + (T)by;
    while (!__atomic_compare_exchange(at, &old, &sum, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
// Which lanes have come here together is for the GPU to choose: here each comes alone.
inline unsigned __activemask() { return 1u << LANE; }
// The block ends; the launch fails.
[[noreturn]] inline void __trap() {
    trapped_on_host = 1;
    go_on(block_on_host->fibers[block_on_host->current], block_on_host->home);
    abort();
}
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

// The threads of one block, one after the other where nothing makes them wait for one another.
inline void block_on_this_thread(Index3 index, Index3 dims, unsigned seed, const std::function<void()>& body) {
    static constexpr size_t STACK = 1 << 17, NONSENSE = 1 << 13;  // what no thread has set is no number that it expects
    static thread_local std::unique_ptr<char[]> stacks;
    static thread_local int room = 0;
    const int threads = dims.x * dims.y * dims.z;
    if (room < threads) {
        stacks.reset(new char[STACK * threads]);
        room = threads;
        for (int t = 1; t <= threads; ++t) memset(stacks.get() + STACK * t - NONSENSE, 0xFE, NONSENSE);
    }
    auto b = std::make_unique<BlockOnHost>();
    block_on_host = b.get();
    b->index = index;
    b->dims = dims;
    b->threads = b->alive = threads;
    b->random = seed * 7919 + index.x + 31 * index.y;
    b->fibers.resize(threads);
    b->lives.assign(threads, 1);
    b->body = &body;
    for (int t = 0; t < threads; ++t) begin_at(b->fibers[t], stacks.get() + STACK * t, STACK, fiber);
    go_on(b->home, b->fibers[0]);
}

// Blocks are taken up in order. `at_once` of them run at the same time: 1 where none waits for a later one.
inline void grid_on_this_host(Index3 grid, Index3 dims, unsigned seed, unsigned at_once, const std::function<void()>& body) {
    grid_on_host = grid;
    const unsigned blocks = grid.x * grid.y * grid.z;
    std::atomic<unsigned> next{0};
    auto work = [&] {
        for (unsigned i; (i = next++) < blocks && !trapped_on_host;)
            block_on_this_thread({i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)}, dims, seed, body);
    };
    if (at_once == 1) return work();
    std::vector<std::thread> pool;
    for (unsigned i = 0; i < min(blocks, at_once); ++i) pool.emplace_back(work);
    for (auto& thread : pool) thread.join();
}
inline void launch_on_host(unsigned blocks, int threads, unsigned seed, std::function<void()> body) {
    grid_on_this_host({blocks, 1, 1}, {(unsigned)threads, 1, 1}, seed, blocks, body);
}

// A kernel as a driver launches it: arguments by address. Returns 0, or 1 when a thread has trapped.
template <class... A, size_t... I>
int launched_on_host(void (*kernel)(A...), void** args, const unsigned* shape, unsigned seed, unsigned at_once,
                     std::index_sequence<I...>) {
    trapped_on_host = 0;
    const std::tuple<std::remove_cv_t<A>...> given{*(const std::remove_cv_t<A>*)args[I]...};
    grid_on_this_host({shape[0], shape[1], shape[2]}, {shape[3], shape[4], shape[5]}, seed, at_once,
                      [&] { kernel(std::get<I>(given)...); });
    return trapped_on_host;
}
template <class... A> int sizes_on_host(void (*)(A...), unsigned long long* sizes) {
    const unsigned long long found[] = {sizeof(A)..., 0};
    for (size_t i = 0; i < sizeof...(A); ++i) sizes[i] = found[i];
    return sizeof...(A);
}
template <class... A>
int launched_on_host(void (*kernel)(A...), void** args, const unsigned* shape, unsigned seed, unsigned at_once) {
    return launched_on_host(kernel, args, shape, seed, at_once, std::index_sequence_for<A...>{});
}
#define EXPORTED extern "C" __attribute__((visibility("default")))
#define KERNEL_ON_HOST(name)                                                                                        \
    EXPORTED int launch_##name(void** args, const unsigned* shape, unsigned seed, unsigned at_once) {              \
        return launched_on_host(&name, args, shape, seed, at_once);                                                  \
    }                                                                                                                \
    EXPORTED int sizes_##name(unsigned long long* to_host) { return sizes_on_host(&name, to_host); }
