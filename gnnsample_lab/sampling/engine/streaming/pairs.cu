// Find the pairs of each sub-graph for streaming, with one binary search per sub-graph. Bound: latency.
// @variants ID_T=int,long PAIR_T=int,long
typedef long long i64;

// bounds[g] = number of pairs whose transit lies before sub-graph g, g = 0 .. num_parts; parts[g] is its first vertex.
// `pairs` (of the scheduling index) are begins[*count] indices into `transits`, sorted by the transit there.
extern "C" __global__ void boundaries(const ID_T* transits, const PAIR_T* pairs, const i64* begins, const i64* count,
                                      const i64* parts, int num_parts, i64* bounds) {
    const int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g > num_parts) return;
    i64 low = 0, high = begins[*count];
    while (low < high) {
        const i64 middle = (low + high) >> 1;
        if ((i64)transits[pairs[middle]] < parts[g]) low = middle + 1;
        else high = middle;
    }
    bounds[g] = low;
}
