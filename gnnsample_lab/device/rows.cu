// Rows of a dense table in device memory by their numbers: out[i] = table[ids[i]].
//
// Shapes: rows of row_bytes, a multiple of VEC; n rows a launch, a warp for every ROWS of them. The table and `out` begin at
// multiples of VEC. What bounds it: bytes of device memory, each row read at random and written once.
// @variants ID_T=int,long VEC=2,4,8,16
#define LOAD 2
#include "device/rows.cuh"
#define ROWS 2

typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void __launch_bounds__(1024)
    take_rows(const char* table, const ID_T* ids, u64 n, u32 row_bytes, char* out) {
    copy_rows<ROWS>(table, ids, n, row_bytes, out);
}
