// Rows of several columns for several mini-batches in one launch: labels, masks, ids of edges, a few bytes each.
//
// Shapes: column c has rows of `width` bytes (1, 2, 4, 8 or 16), `stride` bytes apart, mini-batch b has num_nodes vertices and num_edges edges.
// What a mini-batch gets lies in one piece of memory, column after column, each from a multiple of 256 bytes on
// (columns.py has the same rule). Row i of an edge column is that of the edge's position, or of its id.
//
// Bound: sectors of 32 bytes, of which the L2 serves about 72 G/s: one per row of a column, or one per vertex where the
// host has packed the columns into records. The ids of a row are read once for all columns.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define MAX_COLUMNS 16
#define MAX_BATCHES 16
#define IN_FLIGHT 4  // rows of a thread that are under way at once

enum By { BY_NODE, BY_POSITION, BY_EDGE };

struct Column {
    const char* source;
    u64 stride;  // from a row to the next, at least `width`
    u32 width;
    int by;
};

struct Slice {
    const i64* nodes;      // i64[num_nodes] global ids
    const i64* positions;  // i64[num_edges]
    u64 num_nodes, num_edges;
    char* out;
};

struct Columns {
    const i64* edge_ids;  // id of the edge at each position; null where the two are the same, or no column asks
    u64 count;
    Column columns[MAX_COLUMNS];
    Slice slices[MAX_BATCHES];
};

template <class T>
__device__ __forceinline__ void copy(const char* source, u64 stride, const i64* rows, char* out, u64 first, u64 apart,
                                     u64 n) {
    T found[IN_FLIGHT];
#pragma unroll
    for (int c = 0; c < IN_FLIGHT; ++c)
        if (first + c * apart < n) found[c] = __ldg((const T*)(source + rows[c] * stride));
#pragma unroll
    for (int c = 0; c < IN_FLIGHT; ++c)
        if (first + c * apart < n) ((T*)out)[first + c * apart] = found[c];
}

// Grid: (blocks, mini-batches, 2): columns of vertices, then columns of edges.
extern "C" __global__ void __launch_bounds__(256) columns(const __grid_constant__ Columns t) {
    const Slice& s = t.slices[blockIdx.y];
    const bool of_edges = blockIdx.z;
    const u64 n = of_edges ? s.num_edges : s.num_nodes, threads = (u64)gridDim.x * blockDim.x;
    const i64* __restrict__ ids = of_edges ? s.positions : s.nodes;
    for (u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x; first < n; first += IN_FLIGHT * threads) {
        i64 at[IN_FLIGHT], edge[IN_FLIGHT];
#pragma unroll
        for (int c = 0; c < IN_FLIGHT; ++c) at[c] = first + c * threads < n ? ids[first + c * threads] : 0;
#pragma unroll
        for (int c = 0; c < IN_FLIGHT; ++c)
            edge[c] = of_edges && t.edge_ids && first + c * threads < n ? __ldg(t.edge_ids + at[c]) : at[c];
        char* out = s.out;
        for (u32 k = 0; k < t.count; ++k) {
            const Column column = t.columns[k];
            if ((column.by != BY_NODE) == of_edges) {
                const i64* rows = column.by == BY_POSITION ? at : edge;
                switch (column.width) {
                    case 1: copy<unsigned char>(column.source, column.stride, rows, out, first, threads, n); break;
                    case 2: copy<unsigned short>(column.source, column.stride, rows, out, first, threads, n); break;
                    case 4: copy<u32>(column.source, column.stride, rows, out, first, threads, n); break;
                    case 8: copy<u64>(column.source, column.stride, rows, out, first, threads, n); break;
                    default: copy<uint4>(column.source, column.stride, rows, out, first, threads, n);
                }
            }
            out += ((column.by == BY_NODE ? s.num_nodes : s.num_edges) * column.width + 255) & ~255ull;
        }
    }
}
