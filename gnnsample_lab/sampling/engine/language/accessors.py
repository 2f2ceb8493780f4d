"""Accessors: the calls that a compiled sampling function makes. Each is declared here, once.

A sampling function is compiled to code that reads the graph, the sample and the random stream through accessors only.
:data:`DECLARATIONS` names each accessor, its arguments, its result, and which method of the language it serves. From
these lines come the methods that the front end knows (:data:`METHODS`), the signatures that numba-cuda and Numba
compile against (:data:`ACCESSORS`), and the declarations that NVRTC compares with the definitions in ``accessors.cuh``
(:func:`cuda_declarations`). The definitions are ``accessors.cuh`` for the GPU, ``cpu/context.py`` and ``cpu/stream.py``
for the CPU; a test compares both with this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NUMBERS = ("int", "float", "bool")
"""Kinds of numbers. Tables have one of these kinds each; their roles are ``int table`` and so on."""
_TYPES = {"int": "i8", "bool": "i8", "float": "f8", "line": "i4", "code": "i4"}
_CUDA = {"ctx": "void*", "i8": "long long", "i4": "int", "f8": "double"}


@dataclass(frozen=True)
class Accessor:
    """One accessor.

    Attributes:
        name: of the function on both devices. Its first argument, which is not listed, is the context.
        arguments: name and kind of each further argument. ``line``, always the last, is the place in the user's
            source that a failure is told with; accessors without it cannot fail.
        result: kind of the result; ``bool`` travels as the integer 0 or 1.
        serves: what of the language is compiled to it: ``role.method``, ``role[]`` (an item) or ``len(role)``.
            Where a role stands for a number at run time (the vertex of ``edges_of``, the number of a table), this
            number is the first argument.
        weights: whether it reads edge weights.
        edges: whether it reads entries of ``src_edges``.
    """

    name: str
    arguments: tuple[tuple[str, str], ...]
    result: str
    serves: tuple[str, ...]
    weights: bool = False
    edges: bool = False


def _accessor(signature: str, *serves: str, weights: bool = False, edges: bool = False) -> Accessor:
    """From ``name(argument: kind, ..) -> kind``; the kind of ``line`` and ``code`` is their name."""
    head, result = signature.split(" -> ")
    name, listed = head.rstrip(")").split("(")
    pairs = [part.split(": ") for part in listed.split(", ")] if listed else []
    arguments = tuple((pair[0], pair[-1]) for pair in pairs)
    return Accessor(name, arguments, result, serves, weights, edges)


DECLARATIONS: tuple[Accessor, ...] = (
    # src_edges: the list of the transit, or the combined lists of all transits.
    _accessor("lab_edge_count() -> int", "len(edges)"),
    _accessor("lab_edge(i: int, line) -> int", "edges[]", edges=True),
    _accessor("lab_edge_weight(i: int, line) -> int", "edges.weight", weights=True, edges=True),
    _accessor("lab_edge_prefix(i: int, line) -> int", "edges.prefix", weights=True, edges=True),
    _accessor("lab_edge_search(x: int, line) -> int", "edges.search", weights=True, edges=True),
    _accessor("lab_edge_has(v: int, line) -> bool", "edges.has", edges=True),
    # The list of vertex v.
    _accessor("lab_degree(v: int, line) -> int", "len(edges_of)", "int.degree"),
    _accessor("lab_neighbor(v: int, i: int, line) -> int", "edges_of[]"),
    _accessor("lab_neighbor_weight(v: int, i: int, line) -> int", "edges_of.weight", weights=True),
    _accessor("lab_neighbor_prefix(v: int, i: int, line) -> int", "edges_of.prefix", weights=True),
    _accessor("lab_neighbor_search(v: int, x: int, line) -> int", "edges_of.search", weights=True),
    _accessor("lab_has_edge(v: int, u: int, line) -> bool", "edges_of.has", "int.has_edge"),
    _accessor("lab_max_weight(v: int, line) -> int", "int.max_edge_weight", weights=True),
    # The sample.
    _accessor("lab_transit_count() -> int", "len(transits)"),
    _accessor("lab_transit(k: int, line) -> int", "transits[]"),
    _accessor("lab_prev_vertex(i: int, pos: int, line) -> int", "sample.prev_vertex", "sample.prev_edges"),
    _accessor("lab_prev_count(i: int, line) -> int", "sample.prev_count"),
    _accessor("lab_root_count() -> int", "len(roots)", "sample.num_roots"),
    _accessor("lab_root(i: int, line) -> int", "roots[]"),
    _accessor("lab_root_replace(old: int, new: int, line) -> int", "roots.replace"),
    _accessor("lab_add_edge(u: int, v: int, line) -> int", "sample.add_edge"),
    _accessor("lab_size() -> int", "sample.size"),
    _accessor("lab_sample_id() -> int", "sample.id"),
    _accessor("lab_slot() -> int", "sample.slot"),
    _accessor("lab_transit_index() -> int", "sample.transit_index"),
    _accessor("lab_num_nodes() -> int", "sample.num_nodes"),
    # The random stream.
    _accessor("lab_bits() -> int", "rng.bits"),
    _accessor("lab_below(n: int, line) -> int", "rng.below"),
    _accessor("lab_uniform() -> float", "rng.uniform"),
    _accessor("lab_chance(p: float) -> bool", "rng.chance"),
    # Table t. Truth values are kept as integers.
    _accessor("lab_table_int(t: int, i: int, line) -> int", "int table[]", "bool table[]"),
    _accessor("lab_table_float(t: int, i: int, line) -> float", "float table[]"),
    _accessor("lab_table_search(t: int, x: int, line) -> int", "int table.search", "bool table.search"),
    _accessor("lab_table_search_float(t: int, x: float, line) -> int", "float table.search"),
    # What the front end puts in by itself: the bound of while loops, and failures.
    _accessor("lab_go_on(line) -> bool"),
    _accessor("lab_fail(line, code) -> int"),
)


class Method(NamedTuple):
    """How a method is compiled.

    Attributes:
        accessor: what it becomes; None where it is the number that the receiver stands for.
        arguments: kinds of the arguments that the user writes.
        result: kind of what it gives, or ``edges_of``; ``none`` where Python's method returns nothing.
    """

    accessor: Accessor | None
    arguments: tuple[str, ...]
    result: str


CARRIERS = frozenset({"int", "edges_of", *(f"{kind} table" for kind in NUMBERS)})
"""Roles that stand for a number at run time, the accessor's first argument."""
_RESULTS = {"sample.prev_edges": "edges_of", "roots.replace": "none", "sample.add_edge": "none"}


def _methods() -> dict[str, Method]:
    found = {"int.edges": Method(None, (), "edges_of")}
    for accessor in DECLARATIONS:
        for served in accessor.serves:
            role = served.removeprefix("len(").rstrip("[])").split(".")[0]
            kinds = [kind for name, kind in accessor.arguments if name != "line"]
            result = _RESULTS.get(served, "bool" if served == "bool table[]" else accessor.result)
            found[served] = Method(accessor, tuple(kinds[role in CARRIERS :]), result)
    return found


METHODS = _methods()
"""``role.method``, ``role[]`` or ``len(role)`` -> how it is compiled."""
ACCESSORS: dict[str, tuple[str, tuple[str, ...]]] = {
    accessor.name: (_TYPES[accessor.result], ("ctx", *(_TYPES[kind] for _, kind in accessor.arguments)))
    for accessor in DECLARATIONS
}
"""Name -> types of result and arguments: ``ctx`` is a pointer, ``i8`` and ``i4`` integers, ``f8`` a double."""
USES_WEIGHTS = frozenset(accessor.name for accessor in DECLARATIONS if accessor.weights)
"""Accessors that read edge weights."""
USES_EDGES = frozenset(accessor.name for accessor in DECLARATIONS if accessor.edges)
"""Accessors that read ``src_edges``; an application without them needs no combined neighbourhood."""

OUTSIDE_LIST, OUTSIDE_GRAPH, EMPTY_RANGE, ZERO_DIVISOR, RAISED = 1, 2, 3, 4, 5
NO_VERTEX, NO_ROOT, OUTSIDE_STEP, OUTSIDE_TABLE, ENDLESS_LOOP = 6, 7, 8, 9, 10
BAD_SHIFT, NO_WHOLE, NO_STRIDE, MANY_ROUNDS = 11, 12, 13, 14
FAILURES = {
    OUTSIDE_LIST: "index outside the list of edges",
    OUTSIDE_GRAPH: "vertex outside the graph",
    EMPTY_RANGE: "rng.below() of a number below 1",
    ZERO_DIVISOR: "division by zero",
    RAISED: "raised",
    NO_VERTEX: "next returned neither a vertex nor NULL",
    NO_ROOT: "roots.replace() of a vertex that is no root",
    OUTSIDE_STEP: "position outside the step",
    OUTSIDE_TABLE: "index outside the table",
    ENDLESS_LOOP: "a while loop of more than 1,048,576 rounds",
    BAD_SHIFT: "shift by a count outside 0..63",
    NO_WHOLE: "int() of a number that does not fit 64 bits",
    NO_STRIDE: "range() by steps of 0",
    MANY_ROUNDS: "range() of more than 2**63 - 1 rounds",
}
"""What the codes of failures mean. A status word has four bits for the code."""

ROLE_NAMES = {
    "sample": "the sample",
    "transits": "the list of transits",
    "edges": "src_edges",
    "edges_of": "a list of edges",
    "roots": "the list of roots",
    "rng": "the random stream",
    "self": "self",
    "object": "a Python object",
    "int": "a whole number",
    "float": "a float",
    "bool": "a truth value",
    "none": "None",
    **{f"{kind} table": "an array" for kind in NUMBERS},
}


def cuda_declarations() -> str:
    """All accessors as CUDA declarations. A definition of other types does not compile beside them."""
    lines = [
        f'extern "C" __device__ {_CUDA[result]} {name}({", ".join(_CUDA[a] for a in arguments)});'
        for name, (result, arguments) in ACCESSORS.items()
    ]
    return "\n".join(lines) + "\n"
