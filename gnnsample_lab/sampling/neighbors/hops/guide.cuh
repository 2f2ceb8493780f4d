// A guide to the prefix sums of a vertex's list, so that a weighted draw reads one record in place of a search.
//
// The range of targets, 0 to the list's sum, is cut into buckets of 2^shift, at most as many as the list has edges. A
// bucket's record is the edge that holds its first target, and where, counted from there, the next three edges begin. So
// the edge of a target follows from one read of 16 bytes; only where more than three edges begin in the bucket, the rest
// is bisected. The edge found is the one that bisection finds: samples do not depend on the guide.
#ifndef LAB_GUIDE
#define LAB_GUIDE

#define LAB_BEYOND 0xFFFFFFFFu  // begins behind the bucket; above every place within one, as a shift is at most 31
#define LAB_MOST_SHIFT 31

// The least shift that leaves at most `degree` buckets for a sum of `total`, both positive.
__device__ __forceinline__ int lab_guide_shift(u64 total, int degree) {
    const u64 last = total - 1;
    int shift = (64 - __clzll((long long)last)) - (32 - __clz(degree));
    if (shift < 0) shift = 0;
    return shift + ((last >> shift) >= (u64)degree ? 1 : 0);
}

// The position of the edge that holds `target`, from the record of its bucket. `list`: the list's prefix sums, `guide`:
// its records.
__device__ __forceinline__ int lab_guided(uint4 record, const uint4* guide, const u64* list, int degree, u64 base,
                                          u64 total, int shift, u64 target) {
    const u64 bucket = target >> shift;
    const u32 within = (u32)(target - (bucket << shift));
    int low = (int)(record.x + (record.y <= within) + (record.z <= within) + (record.w <= within));
    if (record.w > within) return low;
    int high = bucket < (total - 1) >> shift ? (int)__ldg(guide + bucket + 1).x + 1 : degree;
    while (high - low > 1) {
        const int mid = (low + high) >> 1;
        if (__ldg(list + mid) <= base + target) low = mid;
        else high = mid;
    }
    return low;
}

#endif
