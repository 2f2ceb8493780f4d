# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""The CPU walker: runs any application sample by sample, each step by step (KnightKing's order of work).

It is the reference for every parallelism on the GPU; all of them draw the same samples.
"""

from __future__ import annotations

import ast
import functools
import weakref
from collections import OrderedDict
from types import FunctionType
from typing import Any

import numpy as np
from numba import cfunc, get_num_threads, types

from gnnsample_lab.device.jit import njit, prange
from gnnsample_lab.sampling.engine.language import arithmetic
from gnnsample_lab.sampling.engine.language.accessors import ACCESSORS, USES_EDGES, USES_WEIGHTS
from gnnsample_lab.sampling.engine.language.app import SamplingAppError, weights_of
from gnnsample_lab.sampling.engine.language.compile import Operator
from gnnsample_lab.sampling.engine.results.edges import Recorded
from gnnsample_lab.sampling.engine.shape import Shape
from gnnsample_lab.sampling.memory import check_fits
from gnnsample_lab.sampling.weights import integer_weights

from . import context as c
from . import memory as mem
from . import stream as cpu_stream
from .memory import as_pointer, read_i8
from .step import take_step, write_id

_CHUNK = 16
"""Samples per parallel task: few, because one sample may hold thousands of vertices."""
_ENDLESS_STEPS = 32
"""Steps per chunk of an application whose number of steps is infinite."""
_SMALL = 2**24
"""Most slots of such a chunk that has more than one step."""
_CLEAR = np.uint64(2**64 - 1)
_INNER = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""How functions of the user's are compiled that others call: Python never calls them, so they need no wrappers."""
_KEPT: OrderedDict[str, tuple[Any, int, int]] = OrderedDict()
_MAX_KEPT = 64


class _PlainIntegers(ast.NodeTransformer):
    """Turns constants in calls of our functions into plain integers: Numba would compile once per literal."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id.startswith("lab_"):
            for number, argument in enumerate(node.args):
                if isinstance(argument, ast.Constant) and type(argument.value) is int:
                    plain = ast.Call(ast.Name("int", ast.Load()), [argument], [])
                    node.args[number] = ast.fix_missing_locations(ast.copy_location(plain, argument))
        return node


@functools.lru_cache(maxsize=1)
def _shared() -> dict[str, Any]:
    """What the functions of all applications call: accessors, and arithmetic, which a process compiles once."""
    functions = {name: getattr(c if hasattr(c, name) else cpu_stream, name) for name in ACCESSORS}
    world = {**vars(arithmetic), "lab_fail": cpu_stream.lab_fail}
    for name, function in vars(arithmetic).items():
        if isinstance(function, FunctionType) and name not in functions:
            functions[name] = njit(error_model="numpy")(FunctionType(function.__code__, world, name))
    return functions


def compiled(operator: Operator) -> tuple[int, int]:
    """Addresses of the compiled ``next`` and ``step_transits`` (0 if the application keeps the default).

    Raises:
        SamplingAppError: Numba cannot compile one of them; the message names the user's line.
    """
    if operator.key not in _KEPT:
        try:
            jit = functools.partial(njit, **_INNER)
            functions = operator.functions(dict(_shared()), jit, _PlainIntegers().visit)
            pointer = types.voidptr
            following = cfunc(types.int64(pointer, types.int64))(functions["lab_next"])
            transits = None
            if "lab_step_transits" in functions:
                transits = cfunc(types.int64(pointer, types.int64, types.int64))(
                    functions["lab_step_transits"]
                )
        except SamplingAppError:
            raise
        except Exception as error:
            raise operator.compile_error(error) from error
        _KEPT[operator.key] = ((following, transits), following.address, transits.address if transits else 0)
        while len(_KEPT) > _MAX_KEPT:
            _KEPT.popitem(last=False)
    return _KEPT[operator.key][1:]


@njit(parallel=True, cache=True)
def _advance(
    base, following, choosing, collective, deferred, wants_edges, wants_prefix, rounds, line, first_step, transits_of,
    size_of, width_of, unique_of, roots, sizes, first_sample, status, live,
):  # fmt: skip
    """Steps ``first_step ..`` of all samples; ``live[chunk, step]`` counts samples that had a transit."""
    samples = sizes.size
    for chunk in prange((samples + _CHUNK - 1) // _CHUNK):
        own = base.copy()
        ctx = as_pointer(np.int64(own.ctypes.data))
        transits = np.empty(transits_of.max(), np.int64)
        values = np.empty(width_of.max(), np.int64)
        own[mem.TRANSITS] = transits.ctypes.data
        word = status[chunk]
        for row in range(chunk * _CHUNK, min(samples, (chunk + 1) * _CHUNK)):
            own[mem.ROW], own[mem.SAMPLE] = row, first_sample + row
            own[mem.ROOTS] = roots.ctypes.data + row * roots.shape[1] * 8
            ended = False
            for i in range(transits_of.size):
                step, m, width = first_step + i, size_of[i], width_of[i]
                out = read_i8(own[mem.HISTORY], step + 1)
                if ended:  # transits are what the step before added: there will be none
                    for slot in range(width):
                        write_id(ctx, out, row * width + slot, np.int64(-1))
                    continue
                own[mem.STEP], own[mem.NUM_TRANSITS], own[mem.M], own[mem.SIZE] = (
                    step,
                    transits_of[i],
                    m,
                    sizes[row],
                )
                begun, word = take_step(
                    ctx, following, choosing, collective, deferred, wants_edges, wants_prefix, rounds, line,
                    transits[: transits_of[i]], values[:width], m, unique_of[i], word,
                )  # fmt: skip
                live[chunk, i] += begun
                ended = not begun and choosing == 0
                for slot in range(width):
                    write_id(ctx, out, row * width + slot, values[slot])
                    sizes[row] += values[slot] >= 0
        status[chunk] = word
        own[0] += transits.size * 0  # both live until here: ctx is the one's address and holds the other's


def _chunk(shape: Shape, first: int, most: int, samples: int) -> int:
    """How many steps from ``first`` on to run before asking whether any sample goes on: at least one.

    Steps may get wider and wider: memory is taken for no more of them than are small together.
    """
    slots = samples * shape[first].width
    for count in range(1, most):
        following = shape.ahead(first + count) if slots <= _SMALL else None
        if following is None or slots + samples * following.width > _SMALL:
            return count
        slots += samples * following.width
    return most


class _Sums:
    """Prefix sums of one array of edge weights, and the largest weight of every vertex (``uint32[N]``)."""

    def __init__(self, graph: Any, edge_weight: Any, name: str) -> None:
        # An application may change its array between two runs; the graph's stays as it is.
        self._of = None if edge_weight is getattr(graph, "edge_weight", None) else np.array(edge_weight)
        self.weights = integer_weights(graph.indptr, edge_weight, name)
        each = np.diff(self.weights.prefix.view(np.int64))
        filled = np.diff(graph.indptr) > 0
        self.most = np.zeros(graph.num_nodes, dtype=np.uint32)
        if each.size:
            self.most[filled] = np.maximum.reduceat(each, graph.indptr[:-1][filled]).astype(np.uint32)

    def are_of(self, edge_weight: Any) -> bool:
        """Whether the array that was summed still holds what was summed."""
        return self._of is None or np.array_equal(self._of, edge_weight)


_sums: weakref.WeakKeyDictionary[Any, list[tuple[weakref.ref[Any], _Sums]]] = weakref.WeakKeyDictionary()
"""For each graph, arrays of weights and their sums. Sums are freed with the graph, or at the first run after their
array was freed."""
_MAX_SUMS = 8
"""Most arrays of weights per graph whose sums are kept."""


def _sums_of(graph: Any, edge_weight: Any, name: str) -> _Sums:
    """The sums of ``edge_weight``, ``name`` in errors; kept ones if the same array was summed for the same graph
    before."""
    try:
        live = [(source, sums) for source, sums in _sums.get(graph, ()) if source() is not None]
        for i, (source, sums) in enumerate(live):
            if source() is edge_weight:
                if sums.are_of(edge_weight):
                    return sums
                del live[i]
                break
        made = _Sums(graph, edge_weight, name)
        _sums[graph] = [*live, (weakref.ref(edge_weight), made)][-_MAX_SUMS:]
    except TypeError:  # weights in a list, or a test's substitute for a graph: no weak references
        return _Sums(graph, edge_weight, name)
    return made


def run(
    graph: Any, app: Any, operator: Operator, shape: Shape, roots: np.ndarray, seed: int, first_sample: int,
    recorded: Recorded | None = None,
) -> list[np.ndarray]:  # fmt: skip
    """All steps of all samples on the CPU.

    Args:
        graph: on the CPU.
        roots: ids ``[S, R]``.
        recorded: gets what ``s.add_edge`` records; without it nobody asks.

    Returns:
        One array per step, ids ``[S, width]``, -1 for NULL.

    Raises:
        SamplingAppError: a function does not compile, or failed in a sample.
        MemoryError: steps add more vertices than fit into memory.
        RuntimeError: an application of infinitely many steps does not end.
    """
    following, choosing = compiled(operator)
    samples, num_roots = roots.shape
    base = np.zeros(mem.SLOTS, dtype=np.int64)
    kept: list[Any] = [graph.indptr, graph.indices, *operator.tables]
    base[mem.INDPTR], base[mem.INDICES] = graph.indptr.ctypes.data, graph.indices.ctypes.data
    base[mem.ID_BYTES], base[mem.NUM_NODES] = graph.indices.dtype.itemsize, graph.num_nodes
    if "lab_add_edge" in operator.uses:
        recorded = recorded or Recorded()
        edges, counts = recorded.begin(np, samples, np.int64)
        base[mem.EDGES], base[mem.EDGE_COUNTS] = edges.ctypes.data, counts.ctypes.data
        base[mem.EDGE_ROOM] = recorded.room
        kept += [edges, counts]
    base[mem.NUM_ROOTS], base[mem.SEED] = num_roots, np.uint64(seed).astype(np.int64)
    edge_weight = weights_of(app, graph) if operator.uses & USES_WEIGHTS else None
    if edge_weight is not None:
        sums = _sums_of(graph, edge_weight, f"{app.name}.edge_weights()")
        kept.append(sums)
        base[mem.PREFIX], base[mem.MAX_WEIGHT] = sums.weights.prefix.ctypes.data, sums.most.ctypes.data
    for number, table in enumerate(operator.tables):
        base[mem.TABLES + 2 * number], base[mem.TABLES + 2 * number + 1] = table.ctypes.data, table.size
    roots = np.ascontiguousarray(roots, dtype=graph.indices.dtype)
    own_roots = roots.astype(np.int64)
    sizes = (roots >= 0).sum(axis=1).astype(np.int64)
    chunks = -(-samples // _CHUNK)
    status = np.full(max(chunks, 1), _CLEAR, dtype=np.uint64)
    steps: list[np.ndarray] = []
    widths = [num_roots]
    while len(steps) < shape.bound and samples:
        first, count = len(steps), shape.bound - len(steps)
        if shape.endless:
            count = _chunk(shape, first, min(count, _ENDLESS_STEPS), samples)
        shapes = [shape[first + i] for i in range(count)]
        which = f"step {first}" if count == 1 else f"steps {first} to {first + count - 1}"
        # Beside what steps add, every thread has a sample's transits and slots (of `_advance`) as int64.
        own = 8 * (max(s.transits for s in shapes) + max(s.width for s in shapes))
        check_fits(
            f"num_samples x width of {which}", samples, sum(s.width for s in shapes), graph.indices.itemsize,
            more=min(chunks, get_num_threads()) * own,
        )  # fmt: skip
        steps += [np.empty((samples, s.width), dtype=graph.indices.dtype) for s in shapes]
        widths += [s.width for s in shapes]
        history = np.array([a.ctypes.data for a in (roots, *steps)], dtype=np.int64)
        width_of = np.array(widths, dtype=np.int64)
        base[mem.HISTORY], base[mem.WIDTHS] = history.ctypes.data, width_of.ctypes.data
        live = np.zeros((chunks, count), dtype=np.int64)
        of = {
            n: np.array([getattr(s, n) for s in shapes], dtype=np.int64)
            for n in ("transits", "size", "width")
        }
        _advance(
            base, following, choosing, operator.collective, operator.deferred,
            operator.collective and (operator.deferred or bool(operator.uses & USES_EDGES)),
            operator.collective and edge_weight is not None, operator.max_redraws, operator.def_line, first,
            of["transits"], of["size"], of["width"], np.array([s.unique for s in shapes], dtype=np.bool_), own_roots,
            sizes, first_sample, status, live,
        )  # fmt: skip
        worst = int(status.min())
        if worst != int(_CLEAR):
            raise operator.error(worst, graph.num_nodes, first_sample)
        ended = np.flatnonzero(live.sum(axis=0) == 0)
        if shape.endless and ended.size:
            del steps[first + int(ended[0]) :]
            return steps
    if shape.bound_is_error and samples and shape.bound:
        raise RuntimeError(
            f"{app.name} did not end within {shape.bound} steps; max_steps sets how many an application of "
            "infinitely many may take"
        )
    if not samples and not shape.endless:
        steps = [np.empty((0, shape[i].width), dtype=graph.indices.dtype) for i in range(shape.bound)]
    return steps
