// unique(step) as NextDoor has it (section 6.3): the slots of a sample are sorted by vertex, a slot that has the vertex
// of the slot before it in that order draws again. unique.py defines the draws; unique.cu finds the same duplicates by a
// hash set.
//
// A block per sample. The sort is a radix sort of one bit a pass; it is stable, so that of equal vertices the one comes
// first that came first: vertices that were kept before, then new ones by slot. Slots without a vertex count as vertex
// num_nodes and come last. What is kept and what draws again is then compacted by a scan, the latter by slot.
//
// The two copies of the slots lie in shared memory if a sample's width allows (GLOBAL_TABLE=0), else in global scratch.
// Bound: as many passes over the slots as vertex ids have bits, with a scan each, and the reads of `next` in a redraw.
// @operator
// @variants ID_T=int,long GLOBAL_TABLE=0,1
#include "sampling/engine/steps/draw_again.cuh"
#include "sampling/engine/grouping/block_scan.cuh"

struct Slot {
    u32 v, slot;
};

// Sort `n` slots by vertex, stable; `from` and `to` change places with every pass. Returns where they are.
__device__ __forceinline__ Slot* sorted(Slot* from, Slot* to, u32 n, u32 bits) {
    const u32 each = (n + blockDim.x - 1) / blockDim.x, begin = min(n, threadIdx.x * each), end = min(n, begin + each);
    for (u32 bit = 0; bit < bits; ++bit) {
        u32 zeros = 0, all;
        for (u32 i = begin; i < end; ++i) zeros += ~(from[i].v >> bit) & 1;
        u32 zero = block_exclusive(zeros, all);
        u32 one = all + begin - zero;
        for (u32 i = begin; i < end; ++i) to[from[i].v >> bit & 1 ? one++ : zero++] = from[i];
        __syncthreads();
        Slot* const swapped = from;
        from = to, to = swapped;
    }
    return from;
}

// bits: of num_nodes, the largest key. A block needs memory for twice `width` slots and as many bytes.
extern "C" __global__ void redraw_sorted(const __grid_constant__ AppPlan p, i64 first_row, i64 rows, u32 width, u32 rounds,
                                         u32 bits, unsigned char* scratch) {
    extern __shared__ __align__(16) unsigned char shared_slots[];
#if GLOBAL_TABLE
    unsigned char* memory = scratch + blockIdx.x * ((17ull * width + 15) & ~15ull);
#else
    unsigned char* memory = shared_slots;
    (void)scratch;
#endif
    Slot* const first = (Slot*)memory;
    Slot* const second = first + width;
    unsigned char* const missing = (unsigned char*)(second + width);
    const u32 each = (width + blockDim.x - 1) / blockDim.x;
    const u32 begin = min(width, threadIdx.x * each), end = min(width, begin + each);
    for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
        const i64 row = first_row + r;
        ID_T* out = p.out + row * width;
        for (u32 slot = threadIdx.x; slot < width; slot += blockDim.x) {
            const i64 v = (i64)out[slot];
            first[slot] = Slot{(u32)(v < 0 ? p.num_nodes : v), slot};
            missing[slot] = 0;
        }
        __syncthreads();
        u32 n = width;
        // bounded: by `rounds`
        for (u32 round = 0;; ++round) {
            Slot* const held = sorted(first, second, n, bits);
            Slot* const other = held == first ? second : first;
            const u32 share = (n + blockDim.x - 1) / blockDim.x;
            const u32 low = min(n, threadIdx.x * share), high = min(n, low + share);
            u32 kept = 0, all_kept, lost = 0, all_lost;
            for (u32 i = low; i < high; ++i) {
                const bool none = (i64)held[i].v == p.num_nodes, again = !none && i && held[i - 1].v == held[i].v;
                kept += !none && !again;
                if (again) missing[held[i].slot] = 1;
            }
            u32 at = block_exclusive(kept, all_kept);
            for (u32 i = low; i < high; ++i)
                if ((i64)held[i].v != p.num_nodes && !(i && held[i - 1].v == held[i].v)) other[at++] = held[i];
            __syncthreads();
            for (u32 slot = begin; slot < end; ++slot) lost += missing[slot];
            at = all_kept + block_exclusive(lost, all_lost);
            if (all_lost == 0) break;
            for (u32 slot = begin; slot < end; ++slot) {
                if (!missing[slot]) continue;
                missing[slot] = 0;
                if (round == rounds) out[slot] = (ID_T)LAB_NULL;
                else other[at++] = Slot{0, slot};
            }
            if (round == rounds) break;
            __syncthreads();
            n = all_kept + all_lost;
            for (u32 i = all_kept + threadIdx.x; i < n; i += blockDim.x) {
                const i64 v = draw_again(p, row, other[i].slot, round + 1);
                out[other[i].slot] = (ID_T)v;
                other[i].v = (u32)(v < 0 ? p.num_nodes : v);
            }
            __syncthreads();
            if (other != first) {
                for (u32 i = threadIdx.x; i < n; i += blockDim.x) first[i] = second[i];
                __syncthreads();
            }
        }
        __syncthreads();
    }
}
