// Hubs of a hop: vertices of more than `hub_limit` candidates, whose reservoir is too much for one block.
//
// A kernel that draws the rows of a hop lists the hubs that it meets, and gives their picks the values that a reservoir
// begins with. A second kernel, of a fixed grid, shares the candidates of all listed hubs evenly among its warps, as if
// they were one sequence: a share may begin and end within a hub. Shares raise the picks in global memory, where the
// highest candidate of a slot stays, whatever the order; so a hub's picks are those that one block would have drawn.
// Whoever draws the last of a hub's candidates goes on with its picks. No block waits for another.
// Bound: the generator, and for few candidates the chain of hub, vertex, adjacency, draw and neighbour.
#ifndef LAB_HUBS
#define LAB_HUBS
#include "draw.cuh"

#if RULE == 1
// A mini-batch's list of a hop. How long it is and what it amounts to is one word, so that one atomic appends, and hubs
// lie in the list as their candidates do in the sequence.
#define LAB_GROUP_BITS 40  // bits for groups of candidates; the others count hubs (sizes.py keeps to both)

__device__ __forceinline__ u64* lab_listed(u32* counters, int hop) { return (u64*)(counters + CTR_HUBS) + hop; }

// A generator call serves four candidates: a group.
__device__ __forceinline__ u32 lab_first_group(const Row& row) { return (u32)row.count >> 2; }
__device__ __forceinline__ u32 lab_groups(const Row& row) {
    return (u32)(((i64)row.degree + 3) / 4) - lab_first_group(row);
}

__device__ __forceinline__ bool lab_is_hub(const Plan& p, const Row& row, int fanout) {
    return p.hub_limit && row.degree > (i64)p.hub_limit && row.count && !lab_takes_all(row, fanout);
}

// One thread lists a hub, the hop's row `index`. False where the list is full: then the caller draws the row.
__device__ __forceinline__ bool lab_list_hub(const Plan& p, u32 b, u32* counters, int hop, u64 index, const Row& row) {
    const u32 groups = lab_groups(row);
    const u64 before = atomicAdd(lab_listed(counters, hop), (1ull << LAB_GROUP_BITS) + groups);
    const u64 at = before >> LAB_GROUP_BITS;
    if (at >= p.hub_cap) return false;
    p.hubs[(u64)b * p.hub_cap + at] = Hub{before & ((1ull << LAB_GROUP_BITS) - 1), (u32)index, groups};
    return true;
}

// A warp finds the hub that group `g` of the sequence belongs to: the last one that begins there or before. A lane looks
// at each of 32 places, so that a thousand hubs cost two memory latencies.
__device__ __forceinline__ u32 lab_hub_of(const Hub* list, u32 hubs, u64 g) {
    u32 first = 0, left = hubs;
    // bounded: each round leaves at most a 32nd, rounded up, of what was left
    while (left > 1) {
        const u32 step = (left + 31) / 32, at = lab_lane() * step;
        const u32 mask = __ballot_sync(0xFFFFFFFFu, at < left && __ldcg(&list[first + at].begin) <= g);
        const u32 skip = (__popc(mask) - 1) * step;
        first += skip;
        left = min(step, left - skip);
    }
    return first;
}

// Draw warp `rank`'s share of the hubs of a hop, of `warps`. `open(index, slots)` returns the hop's row of that index
// and says where its picks lie; `close(index, row, slots)` is called by the warp that has finished them.
template <class Open, class Close>
__device__ __forceinline__ void lab_share_hubs(const Plan& p, u32 b, u32* counters, u32 batch_id, int hop, u64 rank,
                                               u64 warps, Open open, Close close) {
    const u64 listed = __ldcg(lab_listed(counters, hop)), groups = listed & ((1ull << LAB_GROUP_BITS) - 1);
    const u32 hubs = (u32)min(listed >> LAB_GROUP_BITS, p.hub_cap);
    // Shares of whole rounds: each lane draws as often.
    const u64 share = max((groups + warps * 32 - 1) / (warps * 32), 1ull) * 32, last = min((rank + 1) * share, groups);
    u64 g = rank * share;
    if (!hubs || g >= last) return;
    Hub* list = p.hubs + (u64)b * p.hub_cap;
    for (u32 h = lab_hub_of(list, hubs, g); h < hubs && g < last; ++h) {
        const u64 begin = __ldcg(&list[h].begin);
        const u32 index = __ldcg(&list[h].row);
        int* slots;
        lab_fuzz(p, (u32)rank);
        const Row row = open(index, slots);
        const u64 end = min(begin + lab_groups(row), last);
        if (end <= g) break;  // beyond a list that was full lie rows that were drawn elsewhere
        const Draws d = lab_draws(p, row.vertex, batch_id, hop);
        const u32 first = lab_first_group(row), drawn = (u32)(end - g);
        for (u32 i = (u32)(g - begin) + lab_lane(); i < (u32)(end - begin); i += 32)
            lab_reservoir_group(d, row.count, row.degree, (int)(first + i),
                                [&](u32 slot, int j) { atomicMax(slots + slot, j); });
        __threadfence();
        __syncwarp();
        u32 left = 0;
        if (lab_lane() == 0) left = atomicSub(&list[h].left, drawn);
        if (__shfl_sync(0xFFFFFFFFu, left, 0) == drawn) {
            __threadfence();
            close(index, row, slots);
        }
        g = end;
    }
}
#endif
#endif
