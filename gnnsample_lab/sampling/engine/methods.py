"""What can be done with the arguments of a sampling function: method -> accessor."""

from __future__ import annotations

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
