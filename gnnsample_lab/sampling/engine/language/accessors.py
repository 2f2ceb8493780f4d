"""What can be done with the arguments of a sampling function: accessors, and the methods that they serve."""

from __future__ import annotations

ACCESSORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lab_edge_count": ("i8", ("ctx",)),
    "lab_edge": ("i8", ("ctx", "i8", "i4")),
    "lab_edge_weight": ("i8", ("ctx", "i8", "i4")),
    "lab_edge_prefix": ("i8", ("ctx", "i8", "i4")),
    "lab_edge_search": ("i8", ("ctx", "i8", "i4")),
    "lab_edge_has": ("i8", ("ctx", "i8", "i4")),
    "lab_transit_count": ("i8", ("ctx",)),
    "lab_transit": ("i8", ("ctx", "i8", "i4")),
    "lab_prev_vertex": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_prev_count": ("i8", ("ctx", "i8", "i4")),
    "lab_root_count": ("i8", ("ctx",)),
    "lab_root": ("i8", ("ctx", "i8", "i4")),
    "lab_root_replace": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_size": ("i8", ("ctx",)),
    "lab_sample_id": ("i8", ("ctx",)),
    "lab_slot": ("i8", ("ctx",)),
    "lab_transit_index": ("i8", ("ctx",)),
    "lab_num_nodes": ("i8", ("ctx",)),
    "lab_degree": ("i8", ("ctx", "i8", "i4")),
    "lab_max_weight": ("i8", ("ctx", "i8", "i4")),
    "lab_neighbor": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_neighbor_weight": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_neighbor_prefix": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_neighbor_search": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_has_edge": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_bits": ("i8", ("ctx",)),
    "lab_below": ("i8", ("ctx", "i8", "i4")),
    "lab_uniform": ("f8", ("ctx",)),
    "lab_chance": ("i8", ("ctx", "f8")),
    "lab_table_int": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_table_float": ("f8", ("ctx", "i8", "i8", "i4")),
    "lab_table_search": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_go_on": ("i8", ("ctx", "i4")),
    "lab_fail": ("i8", ("ctx", "i4", "i4")),
}
"""Name -> (result, arguments) of what rewritten functions call; ``ctx`` is a pointer, ``i4`` a line or a code."""

USES_WEIGHTS = frozenset({
    "lab_edge_weight", "lab_edge_prefix", "lab_edge_search", "lab_max_weight", "lab_neighbor_weight",
    "lab_neighbor_prefix", "lab_neighbor_search",
})  # fmt: skip
USES_EDGES = frozenset({"lab_edge", "lab_edge_weight", "lab_edge_prefix", "lab_edge_search", "lab_edge_has"})
"""Accessors that read ``src_edges``; an application without them needs no combined neighbourhood."""

FAILURES = {
    1: "index outside the list of edges",
    2: "vertex outside the graph",
    3: "rng.below() of a number below 1",
    4: "division by zero",
    5: "raised",
    6: "next returned neither a vertex nor NULL",
    7: "roots.replace() of a vertex that is no root",
    8: "position outside the step",
    9: "index outside the table",
    10: "a while loop of more than 1,048,576 rounds",
}

# (role, method) -> accessor (None: the argument itself), arguments, whether it is told its line, what it gives.
METHODS: dict[tuple[str, str], tuple[str | None, int, bool, str]] = {
    ("sample", "prev_vertex"): ("lab_prev_vertex", 2, True, "number"),
    ("sample", "prev_edges"): ("lab_prev_vertex", 2, True, "edges_of"),
    ("sample", "prev_count"): ("lab_prev_count", 1, True, "number"),
    ("sample", "num_roots"): ("lab_root_count", 0, False, "number"),
    ("sample", "size"): ("lab_size", 0, False, "number"),
    ("sample", "id"): ("lab_sample_id", 0, False, "number"),
    ("sample", "slot"): ("lab_slot", 0, False, "number"),
    ("sample", "transit_index"): ("lab_transit_index", 0, False, "number"),
    ("sample", "num_nodes"): ("lab_num_nodes", 0, False, "number"),
    ("roots", "replace"): ("lab_root_replace", 2, True, "number"),
    ("edges", "weight"): ("lab_edge_weight", 1, True, "number"),
    ("edges", "prefix"): ("lab_edge_prefix", 1, True, "number"),
    ("edges", "search"): ("lab_edge_search", 1, True, "number"),
    ("edges", "has"): ("lab_edge_has", 1, True, "boolean"),
    ("edges_of", "weight"): ("lab_neighbor_weight", 1, True, "number"),
    ("edges_of", "prefix"): ("lab_neighbor_prefix", 1, True, "number"),
    ("edges_of", "search"): ("lab_neighbor_search", 1, True, "number"),
    ("edges_of", "has"): ("lab_has_edge", 1, True, "boolean"),
    ("number", "degree"): ("lab_degree", 0, True, "number"),
    ("number", "max_edge_weight"): ("lab_max_weight", 0, True, "number"),
    ("number", "has_edge"): ("lab_has_edge", 1, True, "boolean"),
    ("number", "edges"): (None, 0, False, "edges_of"),
    ("rng", "below"): ("lab_below", 1, True, "number"),
    ("rng", "bits"): ("lab_bits", 0, False, "number"),
    ("rng", "uniform"): ("lab_uniform", 0, False, "number"),
    ("rng", "chance"): ("lab_chance", 1, False, "boolean"),
    ("table", "search"): ("lab_table_search", 1, True, "number"),
}

ITEMS = {
    "edges": "lab_edge",
    "edges_of": "lab_neighbor",
    "transits": "lab_transit",
    "roots": "lab_root",
    "table": "lab_table_int",
}
COUNTS = {
    "edges": "lab_edge_count",
    "edges_of": "lab_degree",
    "transits": "lab_transit_count",
    "roots": "lab_root_count",
}
ROLE_NAMES = {
    "sample": "the sample",
    "transits": "the list of transits",
    "edges": "src_edges",
    "edges_of": "a list of edges",
    "roots": "the list of roots",
    "rng": "the random stream",
    "table": "an array",
    "self": "self",
    "object": "a Python object",
    "number": "a number",
}
