// Copies of lists, wherever this GPU can read them: a warp per list, 4 bytes a lane.
//
// Shapes: grid of any number of blocks. Bound: the link to the memory that is read; it runs once, when hot lists are
// copied.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// List i begins at address from[i] and has (begins[i + 1] - begins[i]) words, which go to out + begins[i].
extern "C" __global__ void copy_lists(const u64* from, const i64* begins, u64 n, u32* out) {
    const u64 warps = ((u64)gridDim.x * blockDim.x) >> 5;
    for (u64 i = (blockIdx.x * (u64)blockDim.x + threadIdx.x) >> 5; i < n; i += warps) {
        const u32* source = (const u32*)from[i];
        const i64 begin = begins[i], words = begins[i + 1] - begin;
        for (i64 j = threadIdx.x & 31; j < words; j += 32) out[begin + j] = source[j];
    }
}
