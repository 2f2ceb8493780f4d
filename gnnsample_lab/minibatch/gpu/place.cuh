// Memory for the arrays of a mini-batch; shared by the kernels that fill it.
#pragma once

struct Place {
    u64 address, room;
};

// Bytes of the rows of features of `nodes` vertices: they end where the next array would begin.
__device__ __forceinline__ u64 bytes_of_rows(u64 nodes, u64 row_bytes) { return (nodes * row_bytes + 255) & ~255ull; }
