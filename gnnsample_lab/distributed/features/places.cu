// Feature rows over ranks, before any row moves: where each lies, how many lie where, and buckets of requests by peer.
//
//   find        positions of vertices, from the whole list or from their owners' lists in peers' memory
//   owners      owner of each vertex and its place in that owner's list, to ask for positions
//   homes       cold rows of several hosts: which are in this host's table, and who keeps the others
//   tally       rows, sectors and lines by holder
//   holders     holder of each row and its row there
//   count, begins, bucket   requests of equal peer one after another, without a sort
//   look_up, settle         positions of one's own vertices for peers, and those that peers sent, where they are wanted
//
// A position is `part << shift | row`, or -1 - c for cold row c (placement.py). Holder `parts` is this host's memory, and
// `parts + 1` another host's, whose rows `homes` gives a part that there is not.
// Shapes: n rows; parts <= MAX_PARTS. Bound: a random sector of 4 bytes a row, then streams of 4 to 12 bytes a row.
// @variants ID_T=int,long
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define MAX_PARTS 64
#define HOLDERS (MAX_PARTS + 2)
#define THREADS 256
#define ITEMS 4

#define EACH(i) for (u64 i = blockIdx.x * (u64)THREADS + threadIdx.x; i < n; i += (u64)gridDim.x * THREADS)

// Part whose new ids include `v`: boundaries i64[parts + 1].
__device__ __forceinline__ int part_of(const i64* boundaries, int parts, i64 v) {
    int low = 0, high = parts;
    while (high - low > 1) {
        const int mid = (low + high) >> 1;
        if (__ldg(boundaries + mid) <= v) low = mid;
        else high = mid;
    }
    return low;
}

// everywhere: int[N], or null: then lists[p] is the address of the list of part p, int[vertices of p].
// positions: u64[parts], grows by the positions read in each part's memory.
extern "C" __global__ void __launch_bounds__(THREADS) find(const ID_T* ids, u64 n, const int* everywhere,
                                                           const int* new_of, const i64* boundaries, const u64* lists,
                                                           int parts, int* places, u64* positions) {
    __shared__ u32 found[MAX_PARTS];
    if (threadIdx.x < MAX_PARTS) found[threadIdx.x] = 0;
    __syncthreads();
    EACH(i) {
        if (everywhere) {
            places[i] = __ldg(everywhere + ids[i]);
            continue;
        }
        const i64 v = __ldg(new_of + ids[i]);
        const int part = part_of(boundaries, parts, v);
        places[i] = __ldg((const int*)__ldg(lists + part) + (v - __ldg(boundaries + part)));
        atomicAdd(found + part, 1u);
    }
    __syncthreads();
    if (!everywhere && (int)threadIdx.x < parts && found[threadIdx.x])
        atomicAdd(positions + threadIdx.x, (u64)found[threadIdx.x]);
}

extern "C" __global__ void __launch_bounds__(THREADS) owners(const ID_T* ids, u64 n, const int* new_of,
                                                             const i64* boundaries, int parts, int* owner, int* row) {
    EACH(i) {
        const i64 v = __ldg(new_of + ids[i]);
        const int part = part_of(boundaries, parts, v);
        owner[i] = part;
        row[i] = (int)(v - __ldg(boundaries + part));
    }
}

// Positions as this host sees them, in place: cold rows from the first of its own on, `narrow` bits of a row, and rows of
// other hosts as `away << narrow`. Of these which[i] is the host (`hosts` for all other rows) and row[i] the cold row.
// bounds: i64[hosts + 1], where each host's cold rows begin.
extern "C" __global__ void __launch_bounds__(THREADS) homes(int* places, u64 n, u32 shift, u32 narrow, int away,
                                                            const i64* bounds, int hosts, int here, int* which,
                                                            int* row) {
    EACH(i) {
        const i64 place = places[i];
        int host = hosts;
        if (place >= 0) {
            places[i] = (int)((place >> shift << narrow) | (place & ((1ll << shift) - 1)));
        } else {
            const i64 cold = -1 - place;
            const int home = part_of(bounds, hosts, cold);
            if (home == here) {
                places[i] = (int)(__ldg(bounds + here) - 1 - cold);
            } else {
                host = home;
                row[i] = (int)cold;
                places[i] = away << narrow;
            }
        }
        which[i] = host;
    }
}

// One's own part where the cache is replicated (`only` >= 0): there part 1 stands for other hosts.
__device__ __forceinline__ int holder_of(i64 place, int parts, u32 shift, int only) {
    if (place < 0) return parts;
    const int part = (int)(place >> shift);
    return only < 0 ? (part == parts ? parts + 1 : part) : part ? parts + 1 : only;
}

__device__ __forceinline__ i64 row_of(i64 place, u32 shift) {
    return place < 0 ? -1 - place : place & ((1ll << shift) - 1);
}

// rows, sectors: u64[parts + 2]; lines: u64[1], of the rows in this host's memory.
// A row takes the fewest sectors that hold its bytes, or one more, where it begins late in one. So all that is counted in
// shared memory grows by ones, which the hardware adds for a warp at once, though most rows have few holders.
extern "C" __global__ void __launch_bounds__(THREADS) tally(const int* places, u64 n, int parts, u32 shift, int only,
                                                            u32 row_bytes, u64* rows, u64* sectors, u64* lines) {
    __shared__ u32 found[2 * HOLDERS + 1];
    for (int k = threadIdx.x; k < 2 * HOLDERS + 1; k += THREADS) found[k] = 0;
    __syncthreads();
    const u32 least_sectors = (row_bytes + 31) / 32, least_lines = (row_bytes + 127) / 128;
    EACH(i) {
        const i64 place = places[i];
        const int holder = holder_of(place, parts, shift, only);
        const u64 first = (u64)row_of(place, shift) * row_bytes, last = first + row_bytes - 1;
        atomicAdd(found + holder, 1u);
        if (holder <= parts && last / 32 - first / 32 == least_sectors) atomicAdd(found + HOLDERS + holder, 1u);
        if (holder == parts && last / 128 - first / 128 == least_lines) atomicAdd(found + 2 * HOLDERS, 1u);
    }
    __syncthreads();
    for (int k = threadIdx.x; k < parts + 2; k += THREADS) {
        const u64 some = found[k];
        if (!some) continue;
        atomicAdd(rows + k, some);
        if (k <= parts) atomicAdd(sectors + k, some * least_sectors + found[HOLDERS + k]);
        if (k == parts) atomicAdd(lines, some * least_lines + found[2 * HOLDERS]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) holders(const int* places, u64 n, int parts, u32 shift,
                                                              int* holder, int* row) {
    EACH(i) {
        holder[i] = holder_of(places[i], parts, shift, -1);
        row[i] = (int)row_of(places[i], shift);
    }
}

// counts: u64[buckets], zeroed.
extern "C" __global__ void __launch_bounds__(THREADS) count(const int* bucket, u64 n, int buckets, u64* counts) {
    __shared__ u32 found[HOLDERS];
    if (threadIdx.x < HOLDERS) found[threadIdx.x] = 0;
    __syncthreads();
    EACH(i) atomicAdd(found + bucket[i], 1u);
    __syncthreads();
    if ((int)threadIdx.x < buckets && found[threadIdx.x]) atomicAdd(counts + threadIdx.x, (u64)found[threadIdx.x]);
}

// order: int[buckets], the buckets as they are to follow; next: u64[buckets], where each begins. One thread.
extern "C" __global__ void begins(const u64* counts, const int* order, int buckets, u64* next) {
    u64 at = 0;
    for (int k = 0; k < buckets; ++k) {
        next[order[k]] = at;
        at += counts[order[k]];
    }
}

// next: u64[buckets], where each bucket begins; grows. sent[pos] = value[i], back[pos] = i, index[i] = pos.
extern "C" __global__ void __launch_bounds__(THREADS) bucket(const int* which, const int* value, u64 n, int buckets,
                                                             u64* next, int* sent, int* back, int* index) {
    __shared__ u32 found[HOLDERS];
    __shared__ u64 first[HOLDERS];
    const u32 lane = threadIdx.x & 31;
    const u64 tile = (u64)THREADS * ITEMS;
    for (u64 at = blockIdx.x * tile; at < n; at += gridDim.x * tile) {
        if (threadIdx.x < HOLDERS) found[threadIdx.x] = 0;
        __syncthreads();
        int peer[ITEMS];
        u32 place[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const u64 i = at + j * THREADS + threadIdx.x;
            peer[j] = i < n ? which[i] : -1;
        }
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            // The lanes with the same peer take their places by one addition.
            const u32 alike = __match_any_sync(0xFFFFFFFFu, peer[j]);
            const int leader = __ffs(alike) - 1;
            u32 base = 0;
            if ((int)lane == leader && peer[j] >= 0) base = atomicAdd(found + peer[j], (u32)__popc(alike));
            place[j] = __shfl_sync(0xFFFFFFFFu, base, leader) + __popc(alike & ((1u << lane) - 1));
        }
        __syncthreads();
        if ((int)threadIdx.x < buckets && found[threadIdx.x])
            first[threadIdx.x] = atomicAdd(next + threadIdx.x, (u64)found[threadIdx.x]);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            if (peer[j] < 0) continue;
            const u64 i = at + j * THREADS + threadIdx.x, to = first[peer[j]] + place[j];
            sent[to] = value[i];
            back[to] = (int)i;
            index[i] = (int)to;
        }
        __syncthreads();
    }
}

// answers[i] = list[rows[i]]
extern "C" __global__ void __launch_bounds__(THREADS) look_up(const int* list, const int* rows, u64 n, int* answers) {
    EACH(i) answers[i] = __ldg(list + rows[i]);
}

// Of requests by owner, peers' first: the position that request i asked for goes to places[back[i]]. answers:
// int[peers]; list: int[this part's vertices], in which sent[i] is the row of a vertex of this part.
extern "C" __global__ void __launch_bounds__(THREADS) settle(const int* answers, u64 peers, const int* list,
                                                             const int* sent, const int* back, u64 n, int* places) {
    EACH(i) places[back[i]] = i < peers ? answers[i] : __ldg(list + sent[i]);
}

// What peers' memory can give at most: a copy of its bytes in order, many loads of 16 bytes in flight.
extern "C" __global__ void __launch_bounds__(THREADS) copy(const uint4* from, u64 n, uint4* to) {
    const u64 threads = (u64)gridDim.x * THREADS;
    for (u64 first = blockIdx.x * (u64)THREADS + threadIdx.x; first < n; first += threads * ITEMS) {
        uint4 v[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j)
            if (first + j * threads < n) v[j] = from[first + j * threads];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j)
            if (first + j * threads < n) to[first + j * threads] = v[j];
    }
}
