// Feature rows into one dense matrix, from up to three places: the cache table in device memory, the previous
// batch's rows (also there), and the table in host memory, read over PCIe through its mapped address.
//
// Shapes: rows of row_bytes (a multiple of VEC), n rows a launch, a warp per ROWS rows. locations[i]: slot in the
// cache (>= 0), -1 for a row in host memory, -2 - p for row p of the previous batch.
// What bounds it: PCIe. The link carries read requests of one 128-byte line each; a request for part of a line pays
// the same header. So lanes sweep *lines* of the source (the first and last may be partial), not lines of the row:
// without that, a row that starts inside a line has every line asked for twice, in two parts. Loads of ROWS rows are
// issued before the first store; 55 GB/s at 1 to 2 us are 55 to 110 kB in flight, less than 1 kB a multiprocessor.
// With PEERS rows come from peers' memory, too. NVLink is bound alike: 340 GB/s at 0.9 us are 300 kB in flight, 2.3 kB a
// multiprocessor, which two rows of 512 bytes in each of a few warps exceed.
// With TAILS a row in host memory is read in two parts: whole lines from there, and what is over from device memory.
// @variants ID_T=int,long VEC=2,4,8,16 ROWS=1,4 LOAD=0,2 PEERS=0,1 TAILS=0,1
#include "device/rows.cuh"
#include "gather.cuh"

#ifndef ALIGNED
#define ALIGNED 1
#endif
#define LINE 128
#define MAX_PARTS 16  // mini-batches of a launch

// Rows `begin` to `end`, taken up in `order`, by `blocks` blocks of which this is number `block`; returns how many of this
// warp's rows were not on the device.
__device__ __forceinline__ u32 sweep(const Sources& s, const ID_T* ids, const u32* order, u64 begin, u64 end, u32 block,
                                     u32 blocks, u32 row_bytes, char* out) {
    const u32 lane = threadIdx.x & 31, units = row_bytes / VEC;
    const u64 warps = (u64)blocks * (blockDim.x >> 5);
    u32 missed = 0;
    for (u64 first = begin + (block * (u64)(blockDim.x >> 5) + (threadIdx.x >> 5)) * ROWS; first < end;
         first += warps * ROWS) {
        const char* from[ROWS];
        char* to[ROWS];
        u32 skip[ROWS], most = 0;
#if TAILS
        const char* tail[ROWS];  // where the last bytes of a row in host memory lie
        u32 apart[ROWS];         // the unit with which they begin
#endif
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const u64 i = order && first + r < end ? order[first + r] : first + r;
#if TAILS
            const u32 before = missed;
#endif
            from[r] = first + r < end ? source_of(s, ids, i, row_bytes, missed) : nullptr;
#if TAILS
            const bool split = missed != before && from[r];
            apart[r] = split ? units - s.tail_bytes / VEC : units;
            tail[r] = split ? s.tails + (u64)ids[i] * s.tail_bytes : nullptr;
#endif
            to[r] = out + i * row_bytes;
            skip[r] = ALIGNED ? (u32)((u64)from[r] % LINE) / VEC : 0;
            if (from[r]) most = max(most, units + skip[r]);
        }
        // show: extract rows
        for (u32 at = lane; at < most; at += 32) {
            Unit v[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#if TAILS
                if (from[r] && at >= skip[r] && at - skip[r] < units) {
                    const u32 unit = at - skip[r];
                    v[r] = load(unit < apart[r] ? from[r] + (u64)unit * VEC : tail[r] + (u64)(unit - apart[r]) * VEC);
                }
#else
                if (from[r] && at >= skip[r] && at - skip[r] < units) v[r] = load(from[r] + (u64)(at - skip[r]) * VEC);
#endif
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                if (from[r] && at >= skip[r] && at - skip[r] < units)
                    *(Unit*)(to[r] + (u64)(at - skip[r]) * VEC) = v[r];
        }
        // end: extract rows
    }
    return missed;
}

// counts[0] grows by the rows that were not on the device, unless `locations` (whose maker has counted) is given; null
// where every row is there.
// order: u32[n], the order in which rows are taken up (null: as they come), see order.cu.
#if PEERS
// split: rows of the order that lie in host memory come first, *split of them; `hot` takes the others. Null: all rows.
extern "C" __global__ void __launch_bounds__(1024)
    extract(const int* locations, u64 n, const u32* order, const u32* split, int hot, const u64* bases, u32 shift,
            const char* host, u64 host_stride, u32 row_bytes, char* out) {
    const Sources s = {locations, nullptr, nullptr, nullptr, host, host_stride, bases, shift};
    const ID_T* ids = nullptr;
    const u32 block = blockIdx.x, blocks = gridDim.x;
    const u64 begin = split && hot ? *split : 0, end = split && !hot ? *split : n;
#else
// split: rows of the order that lie in host memory come first, *split of them, and at most host_blocks of the blocks read
// them. These fill the link and stay for as long as it takes; all others end soon, and leave the multiprocessors to kernels
// of other streams. Null, or a grid that is no larger: all blocks share all rows.
// One argument instead of fourteen: the host needs longer for each than the kernel needs for a hundred rows.
struct Request {
    const ID_T* ids;
    u64 n;
    const u32 *order, *split;
    const int* locations;
    const uint2* slots;
    const char *cache, *previous, *host;
    u64 host_stride;
    char* out;
    u64* counts;
    const char* tails;
    u32 row_bytes, host_blocks, tail_bytes, unused;
};

extern "C" __global__ void __launch_bounds__(1024) extract(const __grid_constant__ Request q) {
    const Sources s = {q.locations, q.slots, q.cache, q.previous, q.host, q.host_stride
#if TAILS
                       ,
                       q.tails, q.tail_bytes
#endif
    };
    const ID_T* ids = q.ids;
    const u32 *order = q.order, *split = q.split, host_blocks = q.host_blocks, row_bytes = q.row_bytes;
    const u64 n = q.n;
    char* out = q.out;
    u32 block = blockIdx.x, blocks = gridDim.x;
    u64 begin = 0, end = n;
    if (split && gridDim.x > host_blocks) {
        const u32 each = (blockDim.x >> 5) * ROWS;
        const u32 readers = (u32)min((u64)host_blocks, ((u64)*split + each - 1) / each);
        if (block < readers) {
            end = *split;
            blocks = readers;
        } else {
            begin = *split;
            block -= readers;
            blocks -= readers;
        }
    }
#endif
    const u32 missed = sweep(s, ids, order, begin, end, block, blocks, row_bytes, out);
#if !PEERS
    if ((threadIdx.x & 31) == 0 && missed && !q.locations) atomicAdd(q.counts, (u64)missed);
#endif
}

#if !PEERS
// Rows of several mini-batches from a cache that holds every vertex, a row of blocks for each: small ones need less time
// than the host for their launches.
struct Part {
    const ID_T* ids;
    u64 n;
    char* out;
};
struct Parts {
    const char* cache;
    u64 row_bytes;
    Part parts[MAX_PARTS];
};

extern "C" __global__ void __launch_bounds__(1024) extract_parts(const __grid_constant__ Parts q) {
    const Sources s = {nullptr, nullptr, q.cache};
    const Part& part = q.parts[blockIdx.y];
    sweep(s, part.ids, nullptr, 0, part.n, blockIdx.x, gridDim.x, (u32)q.row_bytes, part.out);
}
#endif

// Rows of a chunk that came from the host to their places: row i to row to[i] of `out`.
extern "C" __global__ void place(const char* chunk, u64 n, const int* to, u32 row_bytes, char* out) {
    const u32 lane = threadIdx.x & 31, units = row_bytes / VEC;
    const u64 warps = (u64)gridDim.x * (blockDim.x >> 5);
    for (u64 i = blockIdx.x * (u64)(blockDim.x >> 5) + (threadIdx.x >> 5); i < n; i += warps) {
        const u64 row = to[i];
        for (u32 at = lane; at < units; at += 32)
            *(Unit*)(out + row * row_bytes + (u64)at * VEC) = load(chunk + i * row_bytes + (u64)at * VEC);
    }
}
