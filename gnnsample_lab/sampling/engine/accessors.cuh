// The accessors: the functions that a compiled application calls (language/accessors.py lists them, cpu/context.py has
// their twins). They are plain functions, so that the compiler of the user's code only needs their names; the linker
// inlines them. An accessor that cannot do what it is asked records a fault and returns a harmless value. Included by
// context.cuh.
#ifndef LAB_ACCESSORS
#define LAB_ACCESSORS
// -------------------------------------------------------------------------------------------------------------- src_edges

// Whether a sorted list holds `v`.
__device__ __forceinline__ bool lab_sorted_has(const ID_T* list, i64 length, i64 v) {
    i64 low = 0, high = length;
    while (low < high) {
        const i64 middle = (low + high) >> 1;
        if ((i64)list[middle] < v) low = middle + 1;
        else high = middle;
    }
    return low < length && (i64)list[low] == v;
}

// The edge i of `length` edges with prefix[i] <= x < prefix[i + 1].
__device__ __forceinline__ i64 lab_prefix_search(const u64* prefix, i64 length, u64 x) {
    i64 low = 0, high = length;
    while (low < high) {
        const i64 middle = (low + high) >> 1;
        if (prefix[middle + 1] <= x) low = middle + 1;
        else high = middle;
    }
    return low;
}

extern "C" __device__ i64 lab_edge_count(void* ctx) { return ((Context*)ctx)->length; }

extern "C" __device__ i64 lab_edge(void* ctx, i64 i, int line) {
    LAB_CONTEXT_OF(ctx);
    if ((u64)i < (u64)c.length) return (i64)c.edges[i];
    lab_set_fault(c, line, LAB_OUTSIDE_LIST);
    return LAB_NULL;
}

extern "C" __device__ i64 lab_edge_weight(void* ctx, i64 i, int line) {
    LAB_CONTEXT_OF(ctx);
    if ((u64)i < (u64)c.length) {
#if WEIGHTED
        return c.edge_weight ? (i64)c.edge_weight[i] : (i64)(c.edge_prefix[i + 1] - c.edge_prefix[i]);
#else
        return 1;
#endif
    }
    lab_set_fault(c, line, LAB_OUTSIDE_LIST);
    return 0;
}

extern "C" __device__ i64 lab_edge_prefix(void* ctx, i64 i, int line) {
    LAB_CONTEXT_OF(ctx);
    if ((u64)i <= (u64)c.length) {
#if WEIGHTED
        return i ? (i64)(c.edge_prefix[i] - c.edge_prefix[0]) : 0;
#else
        return i;
#endif
    }
    lab_set_fault(c, line, LAB_OUTSIDE_LIST);
    return 0;
}

extern "C" __device__ i64 lab_edge_search(void* ctx, i64 x, int line) {
    LAB_CONTEXT_OF(ctx);
#if WEIGHTED
    if (c.length > 0 && x >= 0) {
        const u64 base = c.edge_prefix[0], sought = base + (u64)x;
        if (sought < c.edge_prefix[c.length]) return lab_prefix_search(c.edge_prefix, c.length, sought);
    }
#else
    if ((u64)x < (u64)c.length) return x;
#endif
    lab_set_fault(c, line, LAB_OUTSIDE_LIST);
    return 0;
}

// ------------------------------------------------------------------------------------------------------------- the graph

// Whether v is a vertex. NULL (-1) is not one but no fault; any other number outside the graph is a fault.
__device__ __forceinline__ bool lab_is_vertex(Context& c, i64 v, int line) {
    if ((u64)v < (u64)c.plan->num_nodes) return true;
    if (v != LAB_NULL) lab_set_fault(c, line, LAB_OUTSIDE_GRAPH);
    return false;
}

// Edge position of entry i of v's list, or -1 after a fault. With `ends` = 1 the position after the last one is
// allowed.
__device__ __forceinline__ i64 lab_position(Context& c, i64 v, i64 i, int line, int ends = 0) {
    if (lab_is_vertex(c, v, line)) {
        const i64 begin = c.plan->indptr[v];
        if (i >= 0 && i < c.plan->indptr[v + 1] - begin + ends) return begin + i;
    }
    lab_set_fault(c, line, LAB_OUTSIDE_LIST);
    return -1;
}

extern "C" __device__ i64 lab_num_nodes(void* ctx) { return ((Context*)ctx)->plan->num_nodes; }

extern "C" __device__ i64 lab_degree(void* ctx, i64 v, int line) {
    LAB_CONTEXT_OF(ctx);
    return lab_is_vertex(c, v, line) ? c.plan->indptr[v + 1] - c.plan->indptr[v] : 0;
}

extern "C" __device__ i64 lab_max_weight(void* ctx, i64 v, int line) {
    LAB_CONTEXT_OF(ctx);
#if WEIGHTED
    return lab_is_vertex(c, v, line) ? (i64)c.plan->max_weight[v] : 0;
#else
    return lab_is_vertex(c, v, line) && c.plan->indptr[v + 1] > c.plan->indptr[v];
#endif
}

extern "C" __device__ i64 lab_neighbor(void* ctx, i64 v, i64 i, int line) {
    LAB_CONTEXT_OF(ctx);
    const i64 at = lab_position(c, v, i, line);
#if STAGED
    return at < 0 ? LAB_NULL : (i64)lab_edges_at(*c.plan, at - i)[i];
#else
    return at < 0 ? LAB_NULL : (i64)c.plan->indices[at];
#endif
}

extern "C" __device__ i64 lab_neighbor_weight(void* ctx, i64 v, i64 i, int line) {
    LAB_CONTEXT_OF(ctx);
    const i64 at = lab_position(c, v, i, line);
    if (at < 0) return 0;
#if WEIGHTED
    return c.plan->weight ? (i64)c.plan->weight[at] : (i64)(c.plan->prefix[at + 1] - c.plan->prefix[at]);
#else
    return 1;
#endif
}

extern "C" __device__ i64 lab_neighbor_prefix(void* ctx, i64 v, i64 i, int line) {
    LAB_CONTEXT_OF(ctx);
    if (v == LAB_NULL && i == 0) return 0;
    const i64 at = lab_position(c, v, i, line, 1);
#if WEIGHTED
    return at < 0 ? 0 : (i64)(c.plan->prefix[at] - c.plan->prefix[at - i]);
#else
    return at < 0 ? 0 : i;
#endif
}

extern "C" __device__ i64 lab_neighbor_search(void* ctx, i64 v, i64 x, int line) {
    LAB_CONTEXT_OF(ctx);
    if (lab_is_vertex(c, v, line)) {
        const i64 begin = c.plan->indptr[v], length = c.plan->indptr[v + 1] - begin;
#if WEIGHTED
        const u64* prefix = c.plan->prefix + begin;
        if (x >= 0 && (u64)x < prefix[length] - prefix[0]) return lab_prefix_search(prefix, length, prefix[0] + (u64)x);
#else
        if ((u64)x < (u64)length) return x;
#endif
    }
    lab_set_fault(c, line, LAB_OUTSIDE_LIST);
    return 0;
}

extern "C" __device__ i64 lab_has_edge(void* ctx, i64 v, i64 u, int line) {
    LAB_CONTEXT_OF(ctx);
    if (!lab_is_vertex(c, v, line) || !lab_is_vertex(c, u, line)) return 0;
    const i64 begin = c.plan->indptr[v];
    return lab_sorted_has(lab_edges_at(*c.plan, begin), c.plan->indptr[v + 1] - begin, u);
}

// ------------------------------------------------------------------------------------------------------------ the sample

extern "C" __device__ i64 lab_transit_count(void* ctx) {
#if COLLECTIVE
    return ((Context*)ctx)->plan->num_transits;
#else
    (void)ctx;
    return 1;
#endif
}

extern "C" __device__ i64 lab_transit(void* ctx, i64 k, int line) {
    LAB_CONTEXT_OF(ctx);
#if COLLECTIVE
    const i64 count = c.plan->num_transits;
    if ((u64)k < (u64)count) return (i64)c.plan->transits[c.row * count + k];
#else
    if (k == 0) return c.transit;
#endif
    lab_set_fault(c, line, LAB_OUTSIDE_STEP);
    return LAB_NULL;
}

// A combined neighbourhood is sorted per transit only.
extern "C" __device__ i64 lab_edge_has(void* ctx, i64 v, int line) {
    LAB_CONTEXT_OF(ctx);
#if COLLECTIVE
    if (!lab_is_vertex(c, v, line)) return 0;
    for (i64 k = 0; k < c.plan->num_transits; ++k)
        if (lab_has_edge(ctx, (i64)c.plan->transits[c.row * c.plan->num_transits + k], v, line)) return 1;
    return 0;
#else
    return lab_is_vertex(c, v, line) && lab_sorted_has(c.edges, c.length, v);
#endif
}

extern "C" __device__ i64 lab_prev_count(void* ctx, i64 i, int line) {
    LAB_CONTEXT_OF(ctx);
    const i64 at = c.step + 1 - i;
    if (i < 1) lab_set_fault(c, line, LAB_OUTSIDE_STEP);
    return i < 1 || at < 0 ? 0 : c.plan->widths[at];
}

extern "C" __device__ i64 lab_prev_vertex(void* ctx, i64 i, i64 position, int line) {
    LAB_CONTEXT_OF(ctx);
#if WALK
    if (position == 0) {
        if (i == 1) return c.last;
        if (i == 2) return c.before;
    }
#endif
    const i64 at = c.step + 1 - i;
    if (i >= 1 && position >= 0) {
        if (at < 0) return LAB_NULL;
        const i64 width = c.plan->widths[at];
        if (position < width) return (i64)c.plan->history[at][c.row * width + position];
    }
    lab_set_fault(c, line, LAB_OUTSIDE_STEP);
    return LAB_NULL;
}

extern "C" __device__ i64 lab_root_count(void* ctx) { return ((Context*)ctx)->plan->num_roots; }

extern "C" __device__ i64 lab_root(void* ctx, i64 i, int line) {
    LAB_CONTEXT_OF(ctx);
    const i64 count = c.plan->num_roots;
    if ((u64)i < (u64)count) return (i64)c.plan->roots[c.row * count + i];
    lab_set_fault(c, line, LAB_OUTSIDE_STEP);
    return LAB_NULL;
}

extern "C" __device__ i64 lab_root_replace(void* ctx, i64 old, i64 with, int line) {
    LAB_CONTEXT_OF(ctx);
    if (with != LAB_NULL && !lab_is_vertex(c, with, line)) return 0;
    ID_T* roots = c.plan->roots + c.row * c.plan->num_roots;
    for (i64 i = 0; i < c.plan->num_roots; ++i)
        if ((i64)roots[i] == old) {
            roots[i] = (ID_T)with;
            return 0;
        }
    lab_set_fault(c, line, LAB_NO_ROOT);
    return 0;
}

// Counts on beyond the room, so that the host knows how much a second run needs.
extern "C" __device__ i64 lab_add_edge(void* ctx, i64 u, i64 v, int line) {
    LAB_CONTEXT_OF(ctx);
    if (!lab_is_vertex(c, u, line) || !lab_is_vertex(c, v, line)) return 0;
    const AppPlan& p = *c.plan;
    const i64 at = (i64)atomicAdd(p.edge_counts + c.row, 1u);
    if (at < p.edge_room) {
        i64* edge = p.edges + (c.row * p.edge_room + at) * 3;
        edge[0] = c.step, edge[1] = u, edge[2] = v;
    }
    return 0;
}

extern "C" __device__ i64 lab_size(void* ctx) {
    LAB_CONTEXT_OF(ctx);
#if WALK
    return (i64)c.size;
#else
    return (i64)c.plan->sizes[c.row];
#endif
}

extern "C" __device__ i64 lab_sample_id(void* ctx) {
    LAB_CONTEXT_OF(ctx);
    return (i64)c.plan->first_sample + c.row;
}

extern "C" __device__ i64 lab_slot(void* ctx) { return ((Context*)ctx)->j; }

extern "C" __device__ i64 lab_transit_index(void* ctx) { return ((Context*)ctx)->k; }

// ---------------------------------------------------------------------------------------------------- tables and faults

extern "C" __device__ i64 lab_table_int(void* ctx, i64 t, i64 i, int line) {
    LAB_CONTEXT_OF(ctx);
    const AppTable& table = c.plan->tables[t];
    if ((u64)i < (u64)table.length) return ((const i64*)table.data)[i];
    lab_set_fault(c, line, LAB_OUTSIDE_TABLE);
    return 0;
}

extern "C" __device__ double lab_table_float(void* ctx, i64 t, i64 i, int line) {
    LAB_CONTEXT_OF(ctx);
    const AppTable& table = c.plan->tables[t];
    if ((u64)i < (u64)table.length) return ((const double*)table.data)[i];
    lab_set_fault(c, line, LAB_OUTSIDE_TABLE);
    return 0.0;
}

// Last i with table[i] <= x; a fault if x is below all of them. The probes are the same as in cpu/context.py.
template <typename T>
__device__ __forceinline__ i64 lab_search_table(Context& c, i64 t, T x, int line) {
    const AppTable& table = c.plan->tables[t];
    i64 low = 0, high = table.length;
    while (low < high) {
        const i64 middle = (low + high) >> 1;
        if (((const T*)table.data)[middle] <= x) low = middle + 1;
        else high = middle;
    }
    if (low > 0) return low - 1;
    lab_set_fault(c, line, LAB_OUTSIDE_TABLE);
    return 0;
}

extern "C" __device__ i64 lab_table_search(void* ctx, i64 t, i64 x, int line) {
    return lab_search_table(*(Context*)ctx, t, x, line);
}

extern "C" __device__ i64 lab_table_search_float(void* ctx, i64 t, double x, int line) {
    return lab_search_table(*(Context*)ctx, t, x, line);
}

extern "C" __device__ i64 lab_fail(void* ctx, int line, int code) {
    LAB_CONTEXT_OF(ctx);
    lab_set_fault(c, line, code);
    return 0;
}

// Called by each round of a user's while loop: stops the loop after too many rounds, so that it cannot hang the GPU.
extern "C" __device__ i64 lab_go_on(void* ctx, int line) {
    LAB_CONTEXT_OF(ctx);
    if (c.rounds++ < LAB_MAX_ROUNDS) return 1;
    lab_set_fault(c, line, LAB_ENDLESS_LOOP);
    return 0;
}

#endif
