"""Objects that the user's own ``next`` and ``step_transits`` run on by Python itself, and that keep what they read.

Python runs the functions as they stand: their names, branches, loops and calls. Numbers alone are not Python's, since
compiled functions know 64-bit integers that wrap and doubles: every literal, global and attribute is handed out as a
:class:`Vertex` or a :class:`~.arithmetic.Real`, and operators go through :class:`~.arithmetic.Arithmetic`. ``self`` and
everything that it leads to are proxies. Draws are functions of sample, step and slot: a call draws what every
engine drew for it.
"""

from __future__ import annotations

import ast
import builtins
import copy
import math
import numbers
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NoReturn

import numpy as np

from gnnsample_lab.device import philox
from gnnsample_lab.sampling.engine.language.accessors import (
    EMPTY_RANGE,
    ENDLESS_LOOP,
    NO_ROOT,
    NO_VERTEX,
    OUTSIDE_GRAPH,
    OUTSIDE_LIST,
    OUTSIDE_STEP,
    OUTSIDE_TABLE,
    RAISED,
)
from gnnsample_lab.sampling.engine.language.app import NULL, SamplingApp, SamplingAppError, weights_of
from gnnsample_lab.sampling.engine.language.compile import Operator, source_of
from gnnsample_lab.sampling.weights import integer_weights

from .arithmetic import Arithmetic, Literals, Real, Whole

MAX_ROUNDS = 1 << 20
"""Rounds of all ``while`` loops of a call, as in compiled functions."""
_OWNER = "recorder of this function"
"""Key of a function's globals that leads to its recorder: no name that a program can write."""


class Fault(Exception):
    """A call fails at ``line`` for the reason of number ``code``."""

    def __init__(self, line: int, code: int) -> None:
        super().__init__(line, code)
        self.line, self.code = line, code


# ---- what functions are handed ------------------------------------------------------------------------------


class Vertex(Whole):
    """A whole number, and the vertex of that id: every number may be used as one."""

    recorder: ClassVar[Recorder]

    def edges(self) -> Edges:
        return Edges(self.recorder, self)

    def degree(self) -> Vertex:
        return type(self)(self.recorder.list_of(self)[1])

    def max_edge_weight(self) -> Vertex:
        begin, count = self.recorder.list_of(self)
        prefix = self.recorder.prefix
        if prefix is None or count == 0:
            return type(self)(min(count, 1))
        return type(self)(int(np.diff(prefix[begin : begin + count + 1]).max()))

    def has_edge(self, vertex: int) -> bool:
        return self.edges().has(vertex)


class Edges:
    """``src_edges`` (``vertex`` is None), or the list of a vertex, which is looked up when it is used."""

    def __init__(self, recorder: Recorder, vertex: int | None = None) -> None:
        self._recorder, self._vertex = recorder, vertex

    def _positions(self) -> Sequence[int]:
        """Positions of the edges in the graph's arrays."""
        if self._vertex is None:
            return self._recorder.positions
        begin, count = self._recorder.list_of(self._vertex)
        return range(begin, begin + count)

    def __len__(self) -> int:
        return len(self._positions())

    def __iter__(self) -> Iterator[Vertex]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, i: int) -> Vertex:
        c, positions = self._recorder, self._positions()
        c.check(0 <= _index(i) < len(positions), OUTSIDE_LIST)
        last = c.operator.deferred and self._vertex is None
        return c.whole(c.read_id(positions[i], 0 if last else c.visit()))

    def weight(self, i: int) -> Vertex:
        c, positions = self._recorder, self._positions()
        c.check(0 <= _index(i) < len(positions), OUTSIDE_LIST)
        at = c.visit()
        return c.whole(c.read_prefix(positions[i] + 1, at) - c.read_prefix(positions[i], at | 1))

    def prefix(self, i: int) -> Vertex:
        c, positions = self._recorder, self._positions()
        c.check(0 <= _index(i) <= len(positions), OUTSIDE_LIST)
        return c.whole(self._sum(positions, int(i), c.visit()))

    def _sum(self, positions: Sequence[int], i: int, at: int, probe: int | None = None) -> int:
        """Weights of the first ``i`` edges."""
        c = self._recorder
        if c.prefix is None:
            return i
        if isinstance(positions, range):
            first = positions.start
            if probe is not None:
                return c.read_prefix(first + i, at | min(probe, 255)) - int(c.prefix[first])
            return c.read_prefix(first + i, at) - c.read_prefix(first, at | 1)
        return sum(int(c.prefix[p + 1]) - int(c.prefix[p]) for p in positions[:i])

    def search(self, x: int) -> Vertex:
        c, positions = self._recorder, self._positions()
        at, count = c.visit(), len(positions)
        if c.prefix is None:
            c.check(0 <= _index(x) < count, OUTSIDE_LIST)
            return c.whole(x)
        if isinstance(positions, range):
            c.read_prefix(positions.start, at)
        low, high, probe = -1, count + 1, 1
        while high - low > 1:
            middle = (low + high) >> 1
            if self._sum(positions, middle, at, probe) <= _index(x):
                low = middle
            else:
                high = middle
            probe += 1
        c.check(0 <= low < count, OUTSIDE_LIST)
        return c.whole(low)

    def has(self, vertex: int) -> bool:
        c = self._recorder
        if self._vertex is not None and not c.is_vertex(self._vertex):
            return False
        if not c.is_vertex(_index(vertex)):
            return False
        if self._vertex is None and c.collective:
            return any(v >= 0 and c.find(v, vertex) for v in c.transits)
        return c.find(c.transits[0] if self._vertex is None else self._vertex, vertex)


class Transits:
    """The transits of a call."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __len__(self) -> int:
        return len(self._recorder.transits)

    def __iter__(self) -> Iterator[Vertex]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, k: int) -> Vertex:
        c = self._recorder
        c.check(0 <= _index(k) < len(c.transits), OUTSIDE_STEP)
        return c.whole(c.transits[k])


class Roots:
    """The sample's roots."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __len__(self) -> int:
        return int(self._recorder.history[0].shape[1])

    def __iter__(self) -> Iterator[Vertex]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, i: int) -> Vertex:
        c = self._recorder
        c.check(0 <= _index(i) < len(self), OUTSIDE_STEP)
        roots = c.history[0] if c.roots is None else c.roots
        return c.whole(roots[c.row, i])

    def replace(self, old: int, new: int) -> Vertex:
        c = self._recorder
        if c.roots is None:
            raise ValueError(
                "an application that replaces roots cannot be followed: the roots of a step are not kept"
            )
        c.is_vertex(_index(new))
        found = np.flatnonzero(c.roots[c.row] == _index(old))
        c.check(len(found) > 0, NO_ROOT)
        c.roots[c.row, found[0]] = _index(new)
        return c.whole(0)


class Sample:
    """The sample that a call belongs to."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self.roots = recorder, Roots(recorder)

    def prev_vertex(self, i: int, pos: int) -> Vertex:
        c = self._recorder
        at = c.step + 1 - int(c.whole(_index(i)))
        c.check(i >= 1 and _index(pos) >= 0, OUTSIDE_STEP)
        if at < 0:
            return c.whole(NULL)
        c.check(pos < c.history[at].shape[1], OUTSIDE_STEP)
        return c.whole(c.history[at][c.row, pos])

    def prev_edges(self, i: int, pos: int) -> Edges:
        return self.prev_vertex(i, pos).edges()

    def prev_count(self, i: int) -> Vertex:
        c = self._recorder
        c.check(_index(i) >= 1, OUTSIDE_STEP)
        at = c.step + 1 - i
        return c.whole(c.history[at].shape[1] if at >= 0 else 0)

    def num_roots(self) -> Vertex:
        return self._recorder.whole(len(self.roots))

    def add_edge(self, u: int, v: int) -> None:
        c = self._recorder
        c.is_vertex(_index(u))
        c.is_vertex(_index(v))

    def size(self) -> Vertex:
        c = self._recorder
        return c.whole(sum(int((part[c.row] >= 0).sum()) for part in c.history[: c.step + 1]))

    def id(self) -> Vertex:
        return self._recorder.whole(self._recorder.first_sample + self._recorder.row)

    def slot(self) -> Vertex:
        return self._recorder.whole(self._recorder.slot)

    def transit_index(self) -> Vertex:
        return self._recorder.whole(self._recorder.k)

    def num_nodes(self) -> Vertex:
        return self._recorder.whole(self._recorder.num_nodes)


class Stream:
    """The random numbers of a call."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def bits(self) -> Vertex:
        return self._recorder.whole(self._recorder.word())

    def below(self, n: int) -> Vertex:
        c = self._recorder
        c.check(_index(n) > 0, EMPTY_RANGE)
        n = int(n)
        if n >= 1 << 32:
            low = c.word()
            return c.whole(((c.word() << 32 | low) * n) >> 64)
        product = c.word() * n
        if product & 0xFFFFFFFF < n:
            remainder, tries = ((1 << 32) - n) % n, 1
            while product & 0xFFFFFFFF < remainder and tries < 64:
                product = c.word() * n
                tries += 1
        return c.whole(product >> 32)

    def uniform(self) -> Real:
        return Real(self._recorder.word() * 2.0**-32)

    def chance(self, p: float) -> bool:
        word, scaled = self._recorder.word(), float(p) * 2.0**32
        return bool(p >= 1.0 or (math.isfinite(scaled) and word < math.floor(scaled)))


class Table:
    """An array on ``self``."""

    def __init__(self, recorder: Recorder, array: np.ndarray) -> None:
        self._recorder = recorder
        kind = {"f": np.float64, "b": np.bool_}.get(array.dtype.kind, np.int64)
        self._values = array.astype(kind).tolist()

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, i: int) -> Any:
        c = self._recorder
        c.check(0 <= _index(i) < len(self._values), OUTSIDE_TABLE)
        return c.arithmetic.number(self._values[i])

    def search(self, x: Any) -> Vertex:
        c = self._recorder
        low, high = 0, len(self._values)
        while low < high:  # the compiled functions' probes, which decide where the array is not in order
            middle = (low + high) >> 1
            if c.arithmetic.number(self._values[middle]) <= x:
                low = middle + 1
            else:
                high = middle
        c.check(low > 0, OUTSIDE_TABLE)
        return c.whole(low - 1)


class _Known:
    """An object that functions look attributes up on: ``self``, or a module."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        self.__find = find

    def __getattr__(self, name: str) -> Any:
        return self.__find(name)


def _index(value: Any) -> int:
    """``value``, a whole number: a number of another kind is no index, and compiled functions refuse it."""
    if not isinstance(value, int):
        raise TypeError(f"a whole number is needed (got {type(value).__name__})")
    return value


# ---- running ------------------------------------------------------------------------------------------------


class Recorder:
    """Runs the functions of one application call by call, and keeps the reads of neighbour lists of the last call.

    Args:
        graph: on the CPU. app: prepared for it. operator: of ``app``, which says what a failure means.
        history: ids ``[S, R]`` of the roots, then ids ``[S, width]`` of every step so far; steps may be appended.
        seed, first_sample: as :func:`~gnnsample_lab.run_app` has them.
        roots: ids ``[S, R]``, the samples' own copy that ``roots.replace`` writes to; None where nothing may.

    Attributes:
        address: of the last call, byte that each read starts at: ``indices`` lie at 0, sums of weights behind them.
        instruction: of the last call, a number for each read: equal where two calls execute one load together.
        begin, count: position and length of the list of the last call's transit, 0 where there is none.
    """

    def __init__(
        self, graph: Any, app: SamplingApp, operator: Operator, history: list[np.ndarray], seed: int = 0,
        first_sample: int = 0, roots: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.app, self.operator, self.history, self.roots = app, operator, history, roots
        self.indptr, self.indices = graph.indptr, graph.indices
        self.id_bytes = int(graph.indices.dtype.itemsize)
        self.num_nodes, self.collective = int(graph.num_nodes), app.is_collective
        weight = weights_of(app, graph)
        self.prefix = None if weight is None else integer_weights(graph.indptr, weight).prefix
        self._prefix_at = -(-self.indices.size * self.id_bytes // 256) * 256
        self.seed, self.first_sample = seed, first_sample
        self.whole: type[Vertex] = type("Vertex", (Vertex,), {"recorder": self})
        self.arithmetic = Arithmetic(self.whole, self.fail)
        self._arguments = (Sample(self), Transits(self), Edges(self))
        self._stream = Stream(self)
        self._self = _Known(self._attribute)
        self._attributes: dict[str, Any] = {}
        self._functions: dict[Any, Callable[..., Any]] = {}
        self.begin = self.count = 0
        self._merged: tuple[Any, Sequence[int]] = (None, ())

    def next(
        self, row: int, step: int, k: int, j: int, transits: Sequence[int], size: int, attempt: int = 0
    ) -> int:
        """The vertex that slot ``j`` of transit ``k`` draws, or NULL.

        Args:
            row: of the sample. k: 0 for a collective application. transits: all of a collective application's
                sample, else the one. size: calls per transit. attempt: which redraw of ``unique`` this is.

        Raises:
            Fault: the call fails.
        """
        self._start(row, step, k, j, transits, size, attempt, False)
        sample, given, edges = self._arguments
        found = self._run(type(self.app).next, sample, given, edges, self.whole(step), self._stream)
        if not NULL <= found < self.num_nodes:
            raise Fault(self.operator.def_line, NO_VERTEX)
        return found

    def step_transits(self, row: int, step: int, k: int) -> int:
        """Transit ``k`` of the sample in ``row``, or NULL.

        Raises:
            Fault: the call fails.
        """
        self._start(row, step, k, 0, (), 0, 0, True)
        if type(self.app).step_transits is SamplingApp.step_transits:
            before = self.history[step]
            return int(before[row, k]) if k < before.shape[1] else NULL
        found = self._run(
            type(self.app).step_transits, self.whole(step), self._arguments[0], self.whole(k), self._stream
        )
        if not NULL <= found < self.num_nodes:
            raise Fault(self.operator.def_line, NO_VERTEX)
        return found

    def error(self, row: int, fault: Fault) -> SamplingAppError:
        """What the engine raises for ``fault`` of the sample in ``row``."""
        status = row << 24 | fault.line << 4 | fault.code
        return self.operator.error(status, self.num_nodes, self.first_sample)

    def _start(
        self, row: int, step: int, k: int, j: int, transits: Sequence[int], size: int, attempt: int, choosing: bool
    ) -> None:  # fmt: skip
        self.row, self.step, self.k, self.slot = row, step, k, j
        self.transits, self._size, self._attempt, self._choosing = transits, size, attempt, choosing
        self._drawn, self._group, self._rounds = 0, -1, 0
        self._visits: dict[int, int] = {}
        self.address: list[int] = []
        self.instruction: list[int] = []
        if self.collective:
            place = (row, step)
            if not choosing and self._merged[0] != place:
                lists = [self.list_of(v) for v in transits if v >= 0]
                self._merged = place, [p for begin, count in lists for p in range(begin, begin + count)]
            self.positions = self._merged[1]
        else:
            self.begin, self.count = self.list_of(transits[0]) if transits else (0, 0)
            self.positions = range(self.begin, self.begin + self.count)

    def _run(self, function: Any, *arguments: Any) -> int:
        code = getattr(function, "__code__", None)
        taken = code.co_argcount - 1 if code is not None else len(arguments)
        try:
            found = self._function(function)(self._self, *arguments[:taken])
        except Fault:
            raise
        except Exception as error:
            line = self._raised_at(error)
            if line in self.operator.messages:
                raise Fault(line, RAISED) from None
            raise
        if found is None:
            return NULL
        if isinstance(found, bool) or not isinstance(found, int):
            raise TypeError(f"{function.__name__} returned {found!r}, which is no vertex")
        return int(found)

    # ---- the functions' world ---------------------------------------------------------------------------------

    def _function(self, function: Any) -> Callable[..., Any]:
        """``function`` as Python compiles it, over numbers of the language."""
        if function not in self._functions:
            source = source_of(function)
            names = source.known_names
            literals = Literals(self.app.vertex_attributes)
            new = literals.visit(copy.deepcopy(source.definition))
            # Under a name of its own, the function does not hide a global of the user's.
            new.name, new.decorator_list, new.returns = "the user's function", [], None
            for argument in new.args.args:
                argument.annotation = None
            module = ast.fix_missing_locations(ast.Module([new], []))
            world: dict[str, Any] = {
                _OWNER: self, "__builtins__": vars(builtins) | self._builtins(), "one more round": self._go_on,
                **{name: self.arithmetic.number(value) for name, value in literals.constants.items()},
                **{f"operator {name}": apply for name, apply in self.arithmetic.operators.items()},
                **{f"attribute {name}": partial(self._of, name) for name in self.app.vertex_attributes},
            }  # fmt: skip
            for node in ast.walk(module):
                if isinstance(node, ast.Name) and node.id in names:
                    world[node.id] = self._adapted(names[node.id])
            exec(compile(module, source.filename, "exec"), world)
            self._functions[function] = world[new.name]
        return self._functions[function]

    def _builtins(self) -> dict[str, Any]:
        return {known.__name__: function for known, function in self.arithmetic.builtins.items()}

    def _adapted(self, value: Any) -> Any:
        """What a function finds where its own world has ``value``."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, (bool, numbers.Real)):
            return self.arithmetic.number(value)
        if isinstance(value, type) and issubclass(value, BaseException):
            return value
        if callable(value) and getattr(value, "__hash__", None) and value in self.arithmetic.builtins:
            return self.arithmetic.builtins[value]
        plain = getattr(value, "__func__", value)
        if hasattr(plain, "__code__"):
            bound = (self._self,) if getattr(value, "__self__", None) is self.app else ()
            return lambda *arguments: self._function(plain)(*bound, *arguments)
        return _Known(lambda name: self._adapted(getattr(value, name)))

    def _attribute(self, name: str) -> Any:
        """``self.<name>``, which stays what it was when it was first read, as in compiled functions."""
        if name not in self._attributes:
            value = getattr(self.app, name)
            array = hasattr(value, "__array__") or isinstance(value, (list, tuple))
            if array and not isinstance(value, np.generic):
                found: Any = Table(self, np.asarray(value.get() if hasattr(value, "get") else value))
            else:
                found = self._adapted(value)
            self._attributes[name] = found
        return self._attributes[name]

    def _of(self, name: str, value: Any) -> Any:
        """``value.<name>``, where ``name`` is of the vertex attributes."""
        if not isinstance(value, Vertex):
            return getattr(value, name)
        return Table(self, np.asarray(getattr(self.app, name)))[value]

    # ---- failures ---------------------------------------------------------------------------------------------

    def fail(self, code: int) -> NoReturn:
        raise Fault(self.line(), code)

    def check(self, holds: bool, code: int) -> None:
        if not holds:
            self.fail(code)

    def line(self) -> int:
        """Line of the user's functions that runs now, as the engine numbers places."""
        frame = sys._getframe(1)
        while frame.f_globals.get(_OWNER) is not self:
            assert frame.f_back is not None
            frame = frame.f_back
        return self.operator.place(frame.f_code.co_filename, frame.f_lineno)

    def _raised_at(self, error: BaseException) -> int:
        trace, line = error.__traceback__, 0
        while trace is not None:
            own = trace.tb_frame.f_globals.get(_OWNER) is self
            line = self.operator.place(trace.tb_frame.f_code.co_filename, trace.tb_lineno) if own else 0
            trace = trace.tb_next
        return line

    def _go_on(self) -> bool:
        self._rounds += 1
        self.check(self._rounds <= MAX_ROUNDS, ENDLESS_LOOP)
        return True

    # ---- draws and reads --------------------------------------------------------------------------------------

    def word(self) -> int:
        """The call's next 32 random bits."""
        n, k, j, m = self._drawn, self.k, self.slot, self._size
        self._drawn += 1
        if self._choosing:
            group, at, item = n >> 2, n & 3, 1 << 31 | k
        elif n == 0:
            group, at, item = 0, j & 3, k * ((m + 3) >> 2) + (j >> 2)
        else:
            group, at, item = 1 + ((n - 1) >> 2), (n - 1) & 3, k * m + j
        if group != self._group:
            sample = self.first_sample + self.row
            self._words = philox.philox4x32(
                sample & 0xFFFFFFFF, item, self.step | (sample >> 32) << 24,
                philox.APP << 28 | self._attempt << 22 | group, self.seed & 0xFFFFFFFF, self.seed >> 32,
            )  # fmt: skip
            self._group = group
        return int(self._words[at])

    def visit(self) -> int:
        """First part of an instruction's number: the line, and how often the call has come by."""
        line = self.line()
        seen = self._visits.get(line, 0)
        self._visits[line] = seen + 1
        return (line << 20 | min(seen, 0xFFFFF)) << 8

    def read_id(self, position: int, instruction: int) -> int:
        self.address.append(position * self.id_bytes)
        self.instruction.append(instruction)
        return int(self.indices[position])

    def read_prefix(self, position: int, instruction: int) -> int:
        """Sum of the weights of all edges before ``position``."""
        if self.prefix is None:
            return position
        self.address.append(self._prefix_at + position * 8)
        self.instruction.append(instruction)
        return int(self.prefix[position])

    def is_vertex(self, v: int) -> bool:
        """Whether ``v`` is a vertex; NULL is none, and anything else is a failure."""
        if v == NULL:
            return False
        self.check(0 <= v < self.num_nodes, OUTSIDE_GRAPH)
        return True

    def list_of(self, v: int) -> tuple[int, int]:
        """Position of the list of ``v`` and its length; empty for NULL."""
        if not self.is_vertex(v):
            return 0, 0
        begin = int(self.indptr[v])
        return begin, int(self.indptr[v + 1]) - begin

    def find(self, v: int, u: int) -> bool:
        """Whether ``u`` stands in the list of ``v``: a binary search."""
        begin, count = self.list_of(v)
        at, probe = self.visit(), 0
        low, high = begin, begin + count
        while low < high:
            middle = (low + high) >> 1
            if self.read_id(middle, at | min(probe, 255)) < u:
                low = middle + 1
            else:
                high = middle
            probe += 1
        return low < begin + count and self.read_id(low, at | min(probe, 255)) == u
