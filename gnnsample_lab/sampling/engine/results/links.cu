// Which edges of the graph join the vertices of samples: between two layers (link_layers), among all vertices of a
// sample (link_vertices), and of given pairs (locate). Plus a count of how often each vertex occurs.
//
// A warp serves a row: a transit or vertex of one sample. Rows are ordered by transit, so that warps that read the same
// list run at the same time and find it in L1. A warp looks up every entry of the list in the sample's sorted vertices,
// or every vertex of the sample in the list, whichever takes fewer probes. There are two passes: the first counts, and
// after a scan the second writes the edges, each row in order of columns.
// Bound: probes of binary searches, of which the first few levels stay in L1.
// @variants ID_T=int,long
#include "device/philox.cuh"
typedef long long i64;

#define THREADS 256
#define MARK_WORDS 256  // words of a row's bitmap of columns; wider layers look up their vertices in the list instead
#define FULL 0xFFFFFFFFu

__device__ __forceinline__ i64 lower_bound(const ID_T* list, i64 length, i64 v) {
    i64 low = 0, high = length;
    while (low < high) {
        const i64 middle = (low + high) >> 1;
        if ((i64)list[middle] < v) low = middle + 1;
        else high = middle;
    }
    return low;
}

__device__ __forceinline__ i64 probes(i64 times, i64 length) { return times * (64 - __clzll(length)); }

// order: rows (sample * t + k) by transit. sorted, slots: each sample's columns in order of their vertices.
// begins: [S * t] where a row's edges go, or 0 to count them into `counts`.
extern "C" __global__ void __launch_bounds__(THREADS)
    link_layers(const i64* indptr, const ID_T* indices, const ID_T* transits, const i64* order, i64 rows, i64 per_sample,
                const ID_T* vertices, const ID_T* sorted, const i64* slots, i64 width, i64* counts, const i64* begins,
                i64* sample_out, int* row_out, int* column_out, i64* position_out) {
    __shared__ u32 marks[THREADS / 32][MARK_WORDS];
    const u32 lane = threadIdx.x & 31;
    u32* const mark = marks[threadIdx.x >> 5];
    const i64 words = (width + 31) >> 5, warps = gridDim.x * (i64)(THREADS / 32);
    for (i64 i = (blockIdx.x * (i64)THREADS + threadIdx.x) >> 5; i < rows; i += warps) {
        const i64 row = order[i], transit = (i64)transits[row], sample = row / per_sample;
        const i64 first = transit < 0 ? 0 : indptr[transit], length = transit < 0 ? 0 : indptr[transit + 1] - first;
        const ID_T* const list = indices + first;
        const ID_T* const own = vertices + sample * width;
        const bool by_list = words <= MARK_WORDS && probes(length, width) < probes(width, length);
        if (by_list) {
            const ID_T* const in_order = sorted + sample * width;
            for (i64 w = lane; w < words; w += 32) mark[w] = 0;
            __syncwarp();
            for (i64 e = lane; e < length; e += 32) {
                const ID_T v = list[e];
                for (i64 at = lower_bound(in_order, width, (i64)v); at < width && in_order[at] == v; ++at) {
                    const i64 slot = slots[sample * width + at];
                    atomicOr(mark + (slot >> 5), 1u << (slot & 31));
                }
            }
            __syncwarp();
        }
        i64 found = 0;
        for (i64 w = 0; w < words && length > 0; ++w) {
            const i64 column = 32 * w + lane;
            const i64 v = column < width ? (i64)own[column] : -1;
            i64 at = 0;
            u32 here;
            if (by_list) {
                here = mark[w];
            } else {
                bool has = false;
                if (v >= 0) {
                    at = lower_bound(list, length, v);
                    has = at < length && (i64)list[at] == v;
                }
                here = __ballot_sync(FULL, has);
            }
            if (begins && (here >> lane & 1)) {
                if (by_list) at = lower_bound(list, length, v);
                const i64 to = begins[row] + found + __popc(here & ((1u << lane) - 1));
                sample_out[to] = sample;
                row_out[to] = (int)(row - sample * per_sample);
                column_out[to] = (int)column;
                position_out[to] = first + at;
            }
            found += __popc(here);
        }
        if (begins == nullptr && lane == 0) counts[row] = found;
        __syncwarp();
    }
}

// vertices: each sample's distinct vertices in ascending order, those of sample s from sample_begin[s] on; samples: the
// sample of each vertex. The edges of a row are in the order of the list, parallel edges one after the other.
extern "C" __global__ void __launch_bounds__(THREADS)
    link_vertices(const i64* indptr, const ID_T* indices, const ID_T* vertices, const i64* order, i64 rows,
                  const i64* samples, const i64* sample_begin, i64* counts, const i64* begins, int* column_out,
                  i64* position_out) {
    const u32 lane = threadIdx.x & 31;
    const i64 warps = gridDim.x * (i64)(THREADS / 32);
    for (i64 i = (blockIdx.x * (i64)THREADS + threadIdx.x) >> 5; i < rows; i += warps) {
        const i64 row = order[i], vertex = (i64)vertices[row], sample = samples[row];
        const ID_T* const own = vertices + sample_begin[sample];
        const i64 many = sample_begin[sample + 1] - sample_begin[sample];
        const i64 first = indptr[vertex], length = indptr[vertex + 1] - first;
        const ID_T* const list = indices + first;
        const bool by_list = probes(length, many) <= probes(many, length);
        const i64 looked_up = length == 0 ? 0 : by_list ? length : many;
        i64 found = 0;
        for (i64 from = 0; from < looked_up; from += 32) {
            const i64 n = from + lane;
            i64 column = 0, at = 0;
            u32 copies = 0;  // parallel edges; a lane that looks up a vertex finds all of them
            if (n < looked_up && by_list) {
                column = lower_bound(own, many, (i64)list[n]);
                copies = column < many && own[column] == list[n];
                at = n;
            } else if (n < looked_up) {
                at = lower_bound(list, length, (i64)own[n]);
                copies = (u32)(lower_bound(list, length, (i64)own[n] + 1) - at);
                column = n;
            }
            u32 before = copies;
#pragma unroll
            for (int apart = 1; apart < 32; apart <<= 1) {
                const u32 left = __shfl_up_sync(FULL, before, apart);
                if (lane >= apart) before += left;
            }
            const u32 all = __shfl_sync(FULL, before, 31);
            if (begins) {
                const i64 to = begins[row] + found + before - copies;
                for (u32 copy = 0; copy < copies; ++copy) {
                    column_out[to + copy] = (int)column;
                    position_out[to + copy] = first + at + copy;
                }
            }
            found += all;
        }
        if (begins == nullptr && lane == 0) counts[row] = found;
    }
}

// The lowest position of the edge source[i] -> destination[i], or -1.
extern "C" __global__ void locate(const i64* indptr, const ID_T* indices, const ID_T* destination, const ID_T* source,
                                  i64 pairs, i64* positions) {
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < pairs; i += gridDim.x * (i64)blockDim.x) {
        const i64 v = (i64)destination[i], first = indptr[v], length = indptr[v + 1] - first;
        const i64 at = lower_bound(indices + first, length, (i64)source[i]);
        positions[i] = at < length && indices[first + at] == source[i] ? first + at : -1;
    }
}

// visits: u64[N], one addition per id that is not NULL. Bound: one sector read and written per id.
extern "C" __global__ void count_vertices(const ID_T* ids, i64 n, u64* visits) {
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (i64)blockDim.x)
        if (ids[i] >= 0) atomicAdd(visits + ids[i], 1ull);
}
