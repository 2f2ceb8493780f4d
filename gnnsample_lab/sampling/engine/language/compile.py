"""From an application's Python methods to plain functions over a context, for both compilers.

``next(self, s, transits, src_edges, step, rng)`` is read as source and written anew as ``lab_next(ctx, step)``: what it
does with its arguments becomes calls of *accessors* (:mod:`.accessors`), which exist once for Numba and once in CUDA;
numbers on ``self`` become constants, arrays on ``self`` numbered tables. Every statement keeps its line number, so
that compilers name the user's lines, and accessors that can fail are told theirs.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import hashlib
import inspect
import linecache
import numbers
import operator
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import arithmetic
from .accessors import ACCESSORS, CARRIERS, ENDLESS_LOOP, FAILURES, METHODS, NO_VERTEX, NUMBERS, ROLE_NAMES
from .accessors import Method as AccessorMethod
from .app import IMPORTED, SamplingApp, SamplingAppError

ARITHMETIC = "<arithmetic>"
"""File name of the functions of :mod:`.arithmetic` in :attr:`Operator.modules`."""
_EFFECTS = frozenset({"lab_add_edge", "lab_root_replace"})
"""Accessors that change something: a call of ``next`` that is repeated would change it again."""
MAX_TABLES = 8
MAX_LINE = 2**20 - 1


@dataclass(frozen=True)
class Operator:
    """An application's compiled parts before compilation.

    Attributes:
        next_source, transits_source: the rewritten functions as text; no transits where the default is kept.
        deferred: ``lab_next`` returns an index into ``src_edges`` (or -1), and the engine reads the vertex.
        uses: names of the accessors in use.
        tables: arrays on ``self`` that are read, ``int64`` or ``float64``, in the order of their numbers.
        collective: the sampling type.
        max_redraws: rounds of ``unique``.
        key: hash of everything that is compiled.
        filename: the file (or notebook cell) that ``next`` stands in.
        def_line: line of ``def next``.
        messages: line -> text of what is raised there.
        places: "line" -> file and line of places in other files than ``filename``.
        modules: file -> compiled functions, as syntax trees.
        helpers: names of the functions among them that others call.
        advice: what the application says where a loop does not end.
    """

    next_source: str
    transits_source: str | None
    deferred: bool
    uses: frozenset[str]
    tables: tuple[np.ndarray, ...]
    collective: bool
    max_redraws: int
    key: str
    filename: str
    def_line: int
    messages: dict[int, str] = field(default_factory=dict)
    places: dict[int, tuple[str, int]] = field(default_factory=dict)
    modules: tuple[tuple[str, ast.Module], ...] = ()
    helpers: tuple[str, ...] = ()
    advice: str = ""

    def functions(
        self,
        namespace: dict[str, Any],
        helper: Callable[[Any], Any] = lambda function: function,
        rewrite: Callable[[ast.Module], ast.Module] = lambda module: module,
    ) -> dict[str, Any]:
        """Execute the rewritten functions in ``namespace``, which holds the accessors.

        Functions of :mod:`.arithmetic` that ``namespace`` holds too are taken from there.

        ``helper`` compiles a function that others call, ``rewrite`` changes a copy of the code before. Returns
        ``lab_next`` and, if overridden, ``lab_step_transits``.
        """
        namespace.update(lab_word=np.uint64, lab_whole=np.int64)
        for filename, module in self.modules:
            if filename == ARITHMETIC and module.body[0].name in namespace:  # type: ignore[attr-defined]
                continue
            exec(compile(rewrite(copy.deepcopy(module)), filename, "exec"), namespace)
            for definition in module.body:
                if isinstance(definition, ast.FunctionDef) and definition.name in self.helpers:
                    namespace[definition.name] = helper(namespace[definition.name])
        names = ["lab_next"] + (["lab_step_transits"] if self.transits_source else [])
        return {name: namespace[name] for name in names}

    def place(self, filename: str, line: int) -> int:
        """The number that failures on a line of a file are told with: the line itself in the file of ``next``."""
        if filename == self.filename:
            return line
        return next((place for place, where in self.places.items() if where == (filename, line)), line)

    def error(self, status: int, num_nodes: int, first_sample: int = 0) -> SamplingAppError:
        """What a status word (``sample_row << 24 | line << 4 | code``) means on a graph of ``num_nodes`` vertices."""
        sample, line, code = (status >> 24) + first_sample, (status >> 4) & MAX_LINE, status & 15
        reason = self.messages.get(line, FAILURES[code]) if code == 5 else FAILURES.get(code, f"code {code}")
        if code == ENDLESS_LOOP and self.advice:
            reason += f"; {self.advice}"
        if code == NO_VERTEX:
            reason = reason.replace("a vertex", f"a vertex (0 to {num_nodes - 1})", 1)
            if self.transits_source is not None:  # the status says the line of next for both
                reason = reason.replace("next", "next or step_transits", 1)
        return SamplingAppError(
            f"sample {sample}: {reason}\n{located(*self.places.get(line, (self.filename, line)))}"
        )

    def compile_error(self, error: BaseException) -> SamplingAppError:
        """A compiler's error with the user's line in front."""
        told = re.search(rf"{re.escape(Path(self.filename).name)}\D{{1,9}}(\d+)", str(error))
        line = int(told.group(1)) if told else self.def_line
        at: BaseException | None = error
        while at is not None:
            line = getattr(getattr(at, "loc", None), "line", None) or line
            at = at.__cause__
        text = " ".join(str(error).split("\n\n")[0].split())
        return SamplingAppError(f"next does not compile: {text[:600]}\n{located(self.filename, line)}")


def located(filename: str, line: int) -> str:
    """``File "...", line n`` and the line itself, as tracebacks print them; a notebook's cell by its number."""
    text = linecache.getline(filename, line).strip()
    place = _cell(filename) or f'File "{Path(filename).name}"'
    return f"  {place}, line {line}\n    {text}" if text else f"  {place}, line {line}"


def _cell(filename: str) -> str | None:
    """``Cell In[n]`` where ``filename`` is what IPython calls a cell's source."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    named = name_of(filename) if name_of else None
    return " ".join(named) if named and named[0] == "Cell" else None


def compile_operator(app: SamplingApp, graph: Any = None, defer: bool = True) -> Operator:
    """Rewrite the compiled functions of ``app``; call ``app.prepare(graph)`` before.

    Args:
        app: the application.
        graph: what it was prepared for.
        defer: let ``next`` return positions of edges where it can.

    Raises:
        SamplingAppError: a function uses something that the engine has no meaning for; the message names its line.
        TypeError: ``app`` is no :class:`SamplingApp`.
    """
    if not isinstance(app, SamplingApp):
        kind = app.__name__ if isinstance(app, type) else type(app).__name__
        hint = (
            f"; give an instance, {kind}()" if isinstance(app, type) and issubclass(app, SamplingApp) else ""
        )
        raise TypeError(f"app must be a SamplingApp (got {kind}){hint}")
    if type(app).next is SamplingApp.next:
        raise NotImplementedError(f"{app.name} must define next")
    try:
        try:
            compiler, following, transits = _compile(app, defer)
        except NotDeferrable:
            compiler, following, transits = _compile(app, False)
    except Failure as failure:
        raise SamplingAppError(f"{app.name}: {failure}\n{located(failure.filename, failure.line)}") from None
    modules = tuple(compiler.modules)
    texts = [ast.unparse(module) for _, module in modules]
    names = {node.id for _, module in modules for node in ast.walk(module) if isinstance(node, ast.Name)}
    uses = frozenset(ACCESSORS) & names
    if following.deferred and uses & _EFFECTS:  # some kernels ask for a position more often than once
        return compile_operator(app, graph, defer=False)
    deferred = following.deferred
    shape = [str((t.dtype, t.size)) for t in compiler.tables]
    key = "\n".join([*texts, *shape, str((deferred, app.is_collective))])
    return Operator(
        next_source=following.text,
        transits_source=transits.text if transits else None,
        deferred=deferred,
        uses=uses,
        tables=tuple(compiler.tables),
        collective=app.is_collective,
        max_redraws=app.max_redraws,
        key=hashlib.sha256(key.encode()).hexdigest(),
        filename=following.filename,
        def_line=following.line,
        messages=compiler.messages,
        places=compiler.places,
        modules=modules,
        helpers=tuple(compiler.helper_names),
        advice=app._loop_advice,
    )


def _compile(app: SamplingApp, defer: bool) -> tuple[Compiler, Method, Method | None]:
    compiler = Compiler(app, MAX_TABLES, defer)
    following = compiler.method("next", ("s", "transits", "src_edges", "step", "rng"))
    transits = None
    if type(app).step_transits is not SamplingApp.step_transits:
        transits = compiler.method("step_transits", ("step", "s", "transit_idx", "rng"))
    return compiler, following, transits


CTX = "ctx"
_BUILTINS = (min, max, abs, int, float, bool, round)
_BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_PREFIXES = {"int": "i_", "float": "f_", "bool": "b_", "edges_of": "e_"}
"""A local variable is one variable per kind in the compiled code, so that each has one type."""
_FOREIGN = 2**19
"""Places outside the file of ``next`` are numbered from here; those inside are numbered by their lines."""


class Failure(Exception):
    """A construct that the engine has no meaning for."""

    def __init__(self, message: str, filename: str, line: int) -> None:
        super().__init__(message)
        self.filename, self.line = filename, line


class NotDeferrable(Exception):
    """``next`` does more with an edge than return it."""


class Value(NamedTuple):
    """What an expression is.

    Attributes:
        role: the kind of a number ("int", "float", "bool"); an argument ("sample", "transits", "edges", "roots",
            "rng", "self"); "edges_of", the list of a vertex; "int table" and so on; "object", a Python object; "none".
        node: the number at run time: a number's, the vertex of "edges_of", the number of a table.
        item: the Python object of "self" and "object"; the name of a table.
    """

    role: str
    node: ast.expr | None = None
    item: Any = None


class Held(NamedTuple):
    """What a name holds where control has come to.

    Attributes:
        role, item: as in :class:`Value`; the role is "unbound" where nothing is assigned yet and "conflict" where
            paths that meet have bound different things, which ``item`` then says in words.
        maybe: some path to here has not assigned the name.
    """

    role: str
    item: Any = None
    maybe: bool = False


Environment = dict[str, Held]
"""What each local name holds. None in its place: control does not come here."""
_UNBOUND = Held("unbound")


def _same(a: Any, b: Any) -> bool:
    """Whether two items of one role are one thing; ``self.method`` makes a new object every time."""
    return a is b or (isinstance(a, (int, str, types.MethodType)) and type(a) is type(b) and bool(a == b))


def _described(held: Held) -> str:
    if held.role == "object":
        return getattr(held.item, "__name__", repr(held.item))
    return f"self.{held.item}" if held.role.endswith("table") else ROLE_NAMES[held.role]


def _join_held(a: Held, b: Held) -> Held:
    if a.role == "unbound" or b.role == "unbound":
        bound = b if a.role == "unbound" else a
        return bound if bound.role == "unbound" else bound._replace(maybe=True)
    maybe = a.maybe or b.maybe
    if a.role == "conflict" or b.role == "conflict":
        return (a if a.role == "conflict" else b)._replace(maybe=maybe)
    if a.role == b.role and _same(a.item, b.item):
        return a._replace(maybe=maybe)
    kinds = {a.role, b.role}
    advice = "; write 1.0 for 1" if kinds == {"int", "float"} else ""
    return Held("conflict", f"{_described(a)} on one path and {_described(b)} on another{advice}", maybe)


def _join(*environments: Environment | None) -> Environment | None:
    """What names hold where paths meet."""
    reached = [environment for environment in environments if environment is not None]
    if not reached:
        return None
    joined = dict(reached[0])
    for other in reached[1:]:
        for name in {*joined, *other}:
            joined[name] = _join_held(joined.get(name, _UNBOUND), other.get(name, _UNBOUND))
    return joined


def _alike(a: Environment, b: Environment) -> bool:
    def equal(x: Held, y: Held) -> bool:
        same_item = x.role == "conflict" or _same(x.item, y.item)
        return x.role == y.role and x.maybe == y.maybe and same_item

    return all(equal(a.get(name, _UNBOUND), b.get(name, _UNBOUND)) for name in {*a, *b})


class _Loop:
    """Where the ``break`` and ``continue`` of a loop leave from."""

    def __init__(self) -> None:
        self.breaks: list[Environment | None] = []
        self.continues: list[Environment | None] = []


class Expressions:
    """The expressions of one function that is being compiled; :class:`Function` adds its statements."""

    owner: Compiler
    filename: str
    known_names: dict[str, Any]
    local_names: frozenset[str]
    env: Environment | None
    temporaries: int

    def fail(self, node: ast.AST, message: str) -> Failure:
        raise NotImplementedError

    def line(self, node: ast.AST) -> ast.expr:
        """The place of ``node``, which an accessor is told."""
        return number(self.owner.place(self.filename, getattr(node, "lineno", 0)))

    def temporary(self) -> str:
        self.temporaries += 1
        return f"lab_temporary_{self.temporaries}"

    # ---- numbers ------------------------------------------------------------------------------------------

    def number(self, node: ast.expr) -> Value:
        value = self.value(node)
        if value.role not in NUMBERS:
            raise self.fail(node, f"{ROLE_NAMES[value.role]} is used as a number")
        return value

    def whole(self, node: ast.expr, what: str = "this") -> ast.expr:
        value = self.number(node)
        if value.role == "float":
            raise self.fail(
                node, f"{what} must be a whole number, and {ast.unparse(node)} is a float; write int()"
            )
        return self.as_int(value)

    def as_int(self, value: Value) -> ast.expr:
        assert value.node is not None and value.role in ("int", "bool")
        if value.role == "int":
            return value.node
        if isinstance(value.node, ast.Constant):
            return number(int(value.node.value))  # type: ignore[arg-type]  # a truth value
        return ast.IfExp(value.node, number(1), number(0))

    def as_float(self, value: Value) -> ast.expr:
        if value.role == "float":
            return node_of(value)
        whole = self.as_int(value)
        if isinstance(whole, ast.Constant):
            return number(float(whole.value))  # type: ignore[arg-type]  # an integer
        return plain_call("float", whole)

    def test(self, node: ast.expr) -> ast.expr:
        """``node`` as the test of a branch; a constant where it is known now."""
        if isinstance(node, ast.BoolOp):
            return ast.BoolOp(node.op, [self.test(value) for value in node.values])
        return self.truth(self.number(node))

    def truth(self, value: Value) -> ast.expr:
        if isinstance(value.node, ast.Constant):
            return number(bool(value.node.value))
        if value.role == "bool":
            return node_of(value)
        return ast.Compare(node_of(value), [ast.NotEq()], [number(0 if value.role == "int" else 0.0)])

    def arithmetic(self, name: str, *arguments: ast.expr) -> ast.expr:
        """A call of a function of :mod:`.arithmetic`."""
        self.owner.need(name)
        return call(name, *arguments)

    # ---- expressions --------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.Constant):
            return self.constant(node, node.value)
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        if isinstance(node, ast.BinOp):
            return self.binary(node, node.op, self.number(node.left), self.number(node.right))
        if isinstance(node, ast.UnaryOp):
            return self.unary(node)
        if isinstance(node, ast.Compare):
            return Value("bool", at(self.compare(node), node))
        if isinstance(node, ast.BoolOp):
            return self.either(node)
        if isinstance(node, ast.IfExp):
            return self.choice(node)
        raise self.fail(node, f"{words(node)} cannot be used in a sampling function")

    def name(self, node: ast.Name) -> Value:
        if node.id in self.local_names:
            assert self.env is not None
            held = self.env.get(node.id, _UNBOUND)
            if held.role == "unbound" or held.maybe:
                raise self.fail(node, f"{node.id} may be read before it is assigned")
            if held.role == "conflict":
                raise self.fail(node, f"{node.id} is {held.item}")
            if held.role in _PREFIXES:
                return Value(held.role, at(ast.Name(_PREFIXES[held.role] + node.id, ast.Load()), node))
            if held.role.endswith("table"):
                return self.owner.table_value(held.item)
            return Value(held.role, item=held.item)
        if node.id in self.known_names:
            return self.known(node, self.known_names[node.id])
        if hasattr(builtins, node.id):
            return Value("object", item=getattr(builtins, node.id))
        raise self.fail(node, f"name {node.id!r} is not defined")

    def known(self, node: ast.expr, found: Any) -> Value:
        """Something that Python knows now: numbers become constants."""
        if isinstance(found, (bool, numbers.Real, np.generic)):
            return self.constant(node, found.item() if isinstance(found, np.generic) else found)
        return Value("object", item=found)

    def constant(self, node: ast.expr, found: Any) -> Value:
        if not isinstance(found, (bool, int, float)):
            raise self.fail(node, f"{found!r} is no number; sampling functions work on numbers")
        kind = type(found) if isinstance(found, bool) else int if isinstance(found, int) else float
        if kind is int and not -(2**63) <= found < 2**63:
            raise self.fail(node, f"{found} does not fit 64 bits")
        return Value(kind.__name__, at(number(kind(found)), node))

    def attribute(self, node: ast.Attribute) -> Value:
        base = self.value(node.value)
        if base.role == "sample" and node.attr == "roots":
            return Value("roots")
        if base.role == "int" and node.attr in self.owner.app.vertex_attributes:
            if not hasattr(self.owner.app, node.attr):
                raise self.fail(node, f"self.{node.attr} is not set, a number for each vertex")
            array = getattr(self.owner.app, node.attr)
            table = self.owner.table(node.attr, array, lambda text: self.fail(node, text))
            return self.item(node, table, self.as_int(base))
        if base.role not in ("self", "object"):
            raise self.fail(node, f"{ROLE_NAMES[base.role]} has no {node.attr!r}")
        try:
            found = getattr(base.item, node.attr)
        except AttributeError:
            raise self.fail(node, f"{ast.unparse(node)} is not set") from None
        is_array = hasattr(found, "__array__") and not isinstance(found, np.generic)
        if base.role == "self" and (is_array or isinstance(found, (list, tuple))):
            return self.owner.table(node.attr, found, lambda text: self.fail(node, text))
        return self.known(node, found)

    def subscript(self, node: ast.Subscript) -> Value:
        walked = self.value(node.value)
        if f"{walked.role}[]" not in METHODS or isinstance(node.slice, ast.Slice):
            raise self.fail(node, f"{ROLE_NAMES[walked.role]} cannot be indexed like this")
        return self.item(node, walked, self.whole(node.slice, "an index"))

    def item(self, node: ast.expr, walked: Value, index: ast.expr) -> Value:
        if walked.role == "edges" and self.owner.defer:
            raise NotDeferrable
        return self.accessed(node, METHODS[f"{walked.role}[]"], walked, [index])

    def length(self, node: ast.expr, walked: Value) -> Value:
        if walked.role.endswith("table"):
            return self.constant(node, self.owner.table_size(walked.item))
        method = METHODS.get(f"len({walked.role})")
        if method is None:
            raise self.fail(node, f"{ROLE_NAMES[walked.role]} has no len()")
        return self.accessed(node, method, walked, [])

    def accessed(
        self, node: ast.expr, method: AccessorMethod, base: Value, arguments: list[ast.expr]
    ) -> Value:
        if base.role in CARRIERS:
            arguments = [node_of(base), *arguments]
        if method.accessor is None:
            return Value(method.result, arguments[0])
        if ("line", "line") in method.accessor.arguments:
            arguments = [*arguments, self.line(node)]
        new: ast.expr = at(call(method.accessor.name, *arguments), node)
        if method.result == "bool":
            new = at(ast.Compare(new, [ast.NotEq()], [number(0)]), node)
        return Value(method.result, new)

    def unary(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            tested = self.test(node.operand)
            if isinstance(tested, ast.Constant):
                return Value("bool", at(number(not tested.value), node))
            return Value("bool", at(ast.UnaryOp(ast.Not(), tested), node))
        smallest = isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
        if smallest and node.operand.value == 2**63 and type(node.operand.value) is int:  # type: ignore[attr-defined]
            return Value("int", at(number(-(2**63)), node))
        operand = self.number(node.operand)
        if operand.role == "float" and isinstance(node.op, ast.Invert):
            raise self.fail(node, "~ takes whole numbers")
        kind = "float" if operand.role == "float" else "int"
        inner = node_of(operand) if kind == "float" else self.as_int(operand)
        if isinstance(node.op, ast.UAdd):
            return Value(kind, inner)
        if isinstance(inner, ast.Constant) and isinstance(node.op, ast.USub) and inner.value != -(2**63):
            return Value(kind, at(number(-inner.value), node))  # type: ignore[operator]  # a number
        if kind == "int" and isinstance(node.op, ast.USub):
            return Value(kind, at(wrapping(number(0), ast.Sub(), inner), node))
        return Value(kind, at(ast.UnaryOp(node.op, inner), node))

    def binary(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        """``left op right``; both are evaluated before what is checked."""
        if isinstance(op, ast.Div):
            x, y = self.as_float(left), self.as_float(right)
            if isinstance(y, ast.Constant):
                if y.value == 0:
                    raise self.fail(node, "division by zero")
                return Value("float", at(ast.BinOp(x, op, y), node))
            return Value("float", at(self.arithmetic("lab_divide", x, y, self.line(node)), node))
        symbol = _SYMBOLS.get(type(op))
        if symbol is None:
            raise self.fail(node, f"{words(op)} cannot be used in a sampling function")
        if "float" in (left.role, right.role):
            if not isinstance(op, (ast.Add, ast.Sub, ast.Mult)):
                raise self.fail(
                    node, f"{symbol} takes whole numbers; on floats it may differ between devices"
                )
            return Value("float", at(ast.BinOp(self.as_float(left), op, self.as_float(right)), node))
        x, y = self.as_int(left), self.as_int(right)
        if left.role == right.role == "bool" and isinstance(op, _BITWISE):
            return Value("bool", at(ast.Compare(ast.BinOp(x, op, y), [ast.NotEq()], [number(0)]), node))
        return Value("int", at(self.integers(node, op, symbol, x, y), node))

    def integers(self, node: ast.AST, op: ast.operator, symbol: str, x: ast.expr, y: ast.expr) -> ast.expr:
        """``x op y`` of whole numbers."""
        a, b = _constant(x), _constant(y)
        if isinstance(op, ast.Pow):
            if b is None or not 0 <= b <= 64:
                raise self.fail(node, "the exponent of ** must be a constant between 0 and 64")
        elif isinstance(op, (ast.LShift, ast.RShift)):
            if b is not None and not 0 <= b <= 63:
                raise self.fail(node, f"{FAILURES[11]} (got {b})")
        elif isinstance(op, (ast.FloorDiv, ast.Mod)) and b == 0:
            raise self.fail(node, "division by zero")
        exact = _EXACT.get(type(op))
        if exact is not None and a is not None and b is not None:
            folded = exact(a, b)
            if not -(2**63) <= folded < 2**63:
                raise self.fail(node, f"{a} {symbol} {b} does not fit 64 bits")
            return number(folded)
        if isinstance(op, ast.Pow):
            return self.arithmetic("lab_power", x, y)
        if isinstance(op, (ast.Add, ast.Sub, ast.Mult)):
            return wrapping(x, op, y)
        checked = _CHECKED.get(type(op))
        if checked is None or (b is not None and (b != -1 or isinstance(op, (ast.LShift, ast.RShift)))):
            return ast.BinOp(x, op, y)
        return self.arithmetic(checked, x, y, self.line(node))

    def compare(self, node: ast.Compare) -> ast.expr:
        """A comparison; of a chain, each number in the middle is evaluated once."""
        for op in node.ops:
            if not isinstance(op, _COMPARISONS):
                raise self.fail(node, f"{words(op)} cannot be used in a sampling function")
        values = [self.number(part) for part in (node.left, *node.comparators)]
        if len({value.role == "float" for value in values}) == 1:
            change = self.as_float if values[0].role == "float" else self.as_int
            left, *rest = [change(value) for value in values]
            return ast.Compare(left, node.ops, rest)
        if any(not isinstance(value.node, (ast.Name, ast.Constant)) for value in values[1:-1]):
            raise self.fail(
                node, "a chain of comparisons takes numbers of one kind; convert some with float()"
            )
        pairs: list[ast.expr] = []
        for left_value, op, right_value in zip(values, node.ops, values[1:], strict=False):
            change = self.as_float if "float" in (left_value.role, right_value.role) else self.as_int
            pairs.append(ast.Compare(change(left_value), [op], [change(right_value)]))
        return pairs[0] if len(pairs) == 1 else ast.BoolOp(ast.And(), pairs)

    def one_kind(self, node: ast.expr, values: list[Value]) -> str:
        kinds = {value.role for value in values}
        if len(kinds) > 1:
            found = " and ".join(sorted(ROLE_NAMES[kind] for kind in kinds))
            raise self.fail(node, f"{ast.unparse(node)} would be {found}; convert one with int() or float()")
        return kinds.pop()

    def either(self, node: ast.BoolOp) -> Value:
        """``and`` or ``or`` as a value: that of the side which decided."""
        values = [self.number(part) for part in node.values]
        kind = self.one_kind(node, values)
        is_and = isinstance(node.op, ast.And)
        while len(values) > 1 and isinstance(values[0].node, ast.Constant):  # known now
            if bool(values[0].node.value) != is_and:
                return values[0]
            del values[0]
        if len(values) == 1:
            return values[0]
        return Value(kind, at(ast.BoolOp(node.op, [node_of(value) for value in values]), node))

    def choice(self, node: ast.IfExp) -> Value:
        tested = self.test(node.test)
        if isinstance(tested, ast.Constant):
            return self.value(node.body if tested.value else node.orelse)
        values = [self.value(node.body), self.value(node.orelse)]
        if any(value.role not in _PREFIXES for value in values):
            raise self.fail(node, "only numbers and lists of edges can be chosen by a conditional expression")
        kind = self.one_kind(node, values)
        return Value(kind, at(ast.IfExp(tested, node_of(values[0]), node_of(values[1])), node))

    # ---- calls --------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Value:
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.fail(node, "arguments are given by position in sampling functions")
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value)
            if base.role not in ("self", "object"):
                return self.method(node, node.func.attr, base)
        target = self.value(node.func)
        if target.role != "object" or not callable(target.item):
            raise self.fail(node, f"{ast.unparse(node.func)} is no function")
        function = target.item
        if function is len and len(node.args) == 1:
            return self.length(node, self.value(node.args[0]))
        if any(function is known for known in _BUILTINS):
            return self.builtin(node, function.__name__, [self.number(a) for a in node.args])
        if not isinstance(plain_function(function), types.FunctionType):
            raise self.fail(node, f"{ast.unparse(node.func)} cannot be compiled")
        own = getattr(function, "__self__", None)
        bound = Value("self", item=own) if own is self.owner.app else None
        arguments = [self.value(a) for a in node.args]
        for argument, value in zip(node.args, arguments, strict=True):
            if value.role == "none":
                raise self.fail(argument, f"{ast.unparse(argument)} gives no value")
        helper = self.owner.helper(
            plain_function(function), bound, arguments, lambda text: self.fail(node, text)
        )
        passed = [
            value.node for value in arguments if value.node is not None and not value.role.endswith("table")
        ]
        return Value(helper.result, at(call(helper.name, *passed), node))

    def method(self, node: ast.Call, name: str, base: Value) -> Value:
        """A method of an argument, or of a vertex, which is a number."""
        method = METHODS.get(f"{base.role}.{name}")
        if method is None:
            raise self.fail(node, f"{ROLE_NAMES[base.role]} has no method {name!r}")
        count = len(method.arguments)
        if len(node.args) != count:
            raise self.fail(
                node, f"{name} takes {count} argument{'s' if count != 1 else ''} (got {len(node.args)})"
            )
        arguments = [
            self.as_float(self.number(a)) if kind == "float" else self.whole(a, f"what {name} takes")
            for a, kind in zip(node.args, method.arguments, strict=True)
        ]
        return self.accessed(node, method, base, arguments)

    def builtin(self, node: ast.Call, name: str, values: list[Value]) -> Value:
        if name in ("min", "max"):
            if len(values) < 2:
                raise self.fail(node, f"{name} takes two or more numbers")
            floats = {value.role == "float" for value in values}
            if len(floats) > 1:
                raise self.fail(node, f"{name} takes numbers of one kind; convert some with int() or float()")
            kind = "float" if floats == {True} else "int"
            all_bool = all(value.role == "bool" for value in values)
            best, *rest = [self.as_float(v) if kind == "float" else self.as_int(v) for v in values]
            for other in rest:
                best = self.arithmetic("lab_least" if name == "min" else "lab_most", best, other)
            return (
                self.converted(node, "bool", Value(kind, best)) if all_bool else Value(kind, at(best, node))
            )
        if len(values) != 1:
            raise self.fail(node, f"{name} takes one number")
        value = values[0]
        if name == "abs":
            if value.role == "float":
                return Value("float", at(self.arithmetic("lab_absolute_float", node_of(value)), node))
            return Value("int", at(self.arithmetic("lab_absolute_int", self.as_int(value)), node))
        if name == "round" and value.role == "float":
            return Value("int", at(self.arithmetic("lab_round", node_of(value), self.line(node)), node))
        return self.converted(node, "int" if name == "round" else name, value)

    def converted(self, node: ast.expr, kind: str, value: Value) -> Value:
        if kind == "bool":
            return Value("bool", at(self.truth(value), node))
        if kind == "float":
            return Value("float", at(self.as_float(value), node))
        if value.role == "float":
            return Value("int", at(self.arithmetic("lab_truncate", node_of(value), self.line(node)), node))
        return Value("int", at(self.as_int(value), node))


class Function(Expressions):
    """One function that is being compiled.

    Its statements are read in the order of control. Names hold what control has bound to them (:class:`Held`): where
    paths meet, what they hold is joined, and the body of a loop is read again until nothing changes.
    """

    def __init__(self, owner: Compiler, source: Source, is_method: bool, defers: bool) -> None:
        self.owner, self.filename, self.definition = owner, source.filename, source.definition
        self.is_method, self.defers = is_method, defers
        self.known_names = source.known_names
        self.local_names = source.local_names
        self.env = {}
        self.temporaries = 0
        self.loops: list[_Loop] = []
        self.result = "none"
        self.may_end_without = False
        self._defaults: list[ast.Return] = []

    def compiled(self, name: str, arguments: dict[str, Value]) -> ast.Module:
        """The function as ``name(ctx, ..)``, which takes the run-time numbers of ``arguments``."""
        taken = []
        for argument, value in arguments.items():
            if value.role in _PREFIXES:
                taken.append(_PREFIXES[value.role] + argument)
            self.env = {**(self.env or {}), argument: Held(value.role, value.item)}
        body = self.block(self.definition.body)
        if self.env is not None and not self.is_method:
            self.may_end_without = True
        body.append(at(self.default_return(), self.definition.body[-1]))
        for statement in self._defaults:
            statement.value = number({"float": 0.0, "bool": False}.get(self.result, -1))
        return _finished(name, [CTX, *taken], body, self.definition.lineno)

    def fail(self, node: ast.AST, message: str) -> Failure:
        return Failure(message, self.filename, getattr(node, "lineno", self.definition.lineno))

    def default_return(self) -> ast.Return:
        """A return of what no one reads, or of NULL."""
        statement = ast.Return(number(-1))
        self._defaults.append(statement)
        return statement

    # ---- statements ---------------------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            if self.env is None:  # control does not come here
                break
            out += [at(new, statement) for new in self.statement(statement)]
        return out or [ast.Pass()]

    def branch(
        self, before: Environment, statements: list[ast.stmt]
    ) -> tuple[list[ast.stmt], Environment | None]:
        self.env = dict(before)
        return self.block(statements), self.env

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        assert self.env is not None
        if isinstance(node, ast.Pass):
            return []
        if isinstance(node, (ast.Break, ast.Continue)):
            left = self.loops[-1].breaks if isinstance(node, ast.Break) else self.loops[-1].continues
            left.append(self.env)
            self.env = None
            return [ast.Break() if isinstance(node, ast.Break) else ast.Continue()]
        if isinstance(node, ast.Return):
            out = self.returned(node, node.value)
            self.env = None
            return out
        if isinstance(node, ast.Assign):
            return self.assign(node.targets, node.value)
        if isinstance(node, ast.AnnAssign):
            if node.value is not None:
                return self.assign([node.target], node.value)
            if isinstance(node.target, ast.Name):
                return []
        if isinstance(node, ast.AugAssign):
            if not isinstance(node.target, ast.Name):
                raise self.fail(node, _ONLY_NAMES)
            old = self.number(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
            return self.bind(node.target, self.binary(node, node.op, old, self.number(node.value)))
        if isinstance(node, ast.If):
            return self.conditional(node)
        if isinstance(node, ast.While) and not node.orelse:
            return self.while_loop(node)
        if isinstance(node, ast.For) and not node.orelse and isinstance(node.target, ast.Name):
            return self.for_loop(node, node.target)
        if isinstance(node, ast.Raise):
            out = self.raised(node, node.exc, node.cause)
            self.env = None
            return out
        if isinstance(node, ast.Assert):
            return self.asserted(node)
        if isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant):
                return []  # a docstring
            value = self.value(node.value)
            return [] if value.node is None else [ast.Expr(value.node)]
        raise self.fail(node, f"{words(node)} cannot be used in a sampling function")

    def conditional(self, node: ast.If) -> list[ast.stmt]:
        tested = self.test(node.test)
        if isinstance(tested, ast.Constant):
            taken = node.body if tested.value else node.orelse
            return self.block(taken)
        before = self.env
        assert before is not None
        then, after_then = self.branch(before, node.body)
        other, after_other = self.branch(before, node.orelse)
        self.env = _join(after_then, after_other)
        return [ast.If(tested, then, other if node.orelse else [])]

    def returned(self, node: ast.Return, value: ast.expr | None) -> list[ast.stmt]:
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            self.may_end_without = True
            return [self.default_return()]
        if self.is_method and isinstance(value, ast.IfExp):
            tested = self.test(value.test)
            if isinstance(tested, ast.Constant):
                return self.returned(node, value.body if tested.value else value.orelse)
            sides = [self.returned(node, side) for side in (value.body, value.orelse)]
            return [ast.If(tested, *[[at(new, node) for new in side] for side in sides])]
        if not self.is_method:
            return self.helper_returned(node, value)
        if self.defers:
            return self.deferred(node, value)
        found = self.number(value)
        if found.role != "int":
            raise self.fail(
                node, f"{self.definition.name} must return a vertex; this is {ROLE_NAMES[found.role]}"
            )
        return [ast.Return(found.node)]

    def helper_returned(self, node: ast.Return, value: ast.expr) -> list[ast.stmt]:
        found = self.value(value)
        if found.role not in _PREFIXES:
            raise self.fail(node, f"{ROLE_NAMES[found.role]} cannot be returned")
        if self.result not in ("none", found.role):
            raise self.fail(
                node,
                f"{self.definition.name} returns {ROLE_NAMES[self.result]} elsewhere and {ROLE_NAMES[found.role]} here",
            )
        self.result = found.role
        return [ast.Return(found.node)]

    def deferred(self, node: ast.Return, value: ast.expr) -> list[ast.stmt]:
        """``return src_edges[i]`` as the checked position, ``return NULL`` as -1."""
        if isinstance(value, ast.Subscript) and self.value(value.value).role == "edges":
            held = self.temporary()
            kept = ast.Assign([ast.Name(held, ast.Store())], self.whole(value.slice, "an index"))
            index = ast.Name(held, ast.Load())
            inside = ast.Compare(number(0), [ast.LtE(), ast.Lt()], [index, call("lab_edge_count")])
            outside = ast.BinOp(call("lab_fail", self.line(value), number(1)), ast.Sub(), number(1))
            return [kept, ast.Return(ast.IfExp(inside, index, outside))]
        found = self.value(value)
        if found.role == "int" and isinstance(found.node, ast.Constant) and found.node.value == -1:
            return [ast.Return(number(-1))]
        raise NotDeferrable

    # ---- assignments --------------------------------------------------------------------------------------

    def assign(self, targets: list[ast.expr], source: ast.expr) -> list[ast.stmt]:
        if len(targets) == 1 and isinstance(targets[0], ast.Name):
            return self.bind(targets[0], self.value(source))
        parts = source.elts if isinstance(source, ast.Tuple) else [source]
        out: list[ast.stmt] = []
        values = []
        for part in parts:
            value = self.value(part)
            if value.role in _PREFIXES:
                held = self.temporary()
                out.append(ast.Assign([ast.Name(held, ast.Store())], node_of(value)))
                value = Value(value.role, ast.Name(held, ast.Load()))
            values.append(value)
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            if isinstance(target, ast.Tuple) != isinstance(source, ast.Tuple) or len(names) != len(values):
                raise self.fail(target, "only a tuple of as many values can be assigned to several names")
            for name, value in zip(names, values, strict=True):
                out += self.bind(name, value)
        return out

    def bind(self, target: ast.expr, value: Value) -> list[ast.stmt]:
        if not isinstance(target, ast.Name):
            raise self.fail(target, _ONLY_NAMES)
        assert self.env is not None
        if value.role == "none":
            raise self.fail(target, "what is called gives no value")
        self.env = {**self.env, target.id: Held(value.role, value.item)}
        if value.role not in _PREFIXES:
            return []
        return [ast.Assign([ast.Name(_PREFIXES[value.role] + target.id, ast.Store())], node_of(value))]

    # ---- loops --------------------------------------------------------------------------------------------

    def settled(
        self, entry: Environment, body: Callable[[], list[ast.stmt]]
    ) -> tuple[list[ast.stmt], Environment, list[Environment | None]]:
        """Compile the body of a loop until what names hold at its head changes no more.

        Returns the body, what names hold at the head, and what they hold at each ``break``.
        """
        head = entry
        while True:
            self.env = dict(head)
            self.loops.append(_Loop())
            new = body()
            loop = self.loops.pop()
            joined = _join(head, self.env, *loop.continues)
            assert joined is not None
            if _alike(joined, head):
                return new, head, loop.breaks
            head = joined

    def while_loop(self, node: ast.While) -> list[ast.stmt]:
        entry = self.env
        assert entry is not None
        tests: list[ast.expr] = []

        def body() -> list[ast.stmt]:
            tests[:] = [self.test(node.test)]
            return self.block(node.body)

        tested = self.test(node.test)
        if isinstance(tested, ast.Constant) and not tested.value:
            return []
        inner, head, breaks = self.settled(entry, body)
        goes_on = ast.Compare(call("lab_go_on", self.line(node)), [ast.NotEq()], [number(0)])
        is_endless = isinstance(tests[0], ast.Constant)
        self.env = _join(None if is_endless else head, *breaks)
        return [ast.While(ast.BoolOp(ast.And(), [tests[0], goes_on]), inner, [])]

    def for_loop(self, node: ast.For, target: ast.Name) -> list[ast.stmt]:
        entry = self.env
        assert entry is not None
        before: list[ast.stmt] = []

        def kept(value: ast.expr) -> ast.expr:
            """``value``, evaluated before the loop."""
            if isinstance(value, ast.Constant):
                return value
            held = self.temporary()
            before.append(at(ast.Assign([ast.Name(held, ast.Store())], value), node))
            return ast.Name(held, ast.Load())

        source, counter = node.iter, ast.Name(self.temporary(), ast.Load())
        if self.is_range(source):
            assert isinstance(source, ast.Call)
            rounds, item = self.range_of(source, counter, kept)
        else:
            walked = self.value(source)
            if f"{walked.role}[]" not in METHODS:
                raise self.fail(node, "for goes over range(...), edges, transits, roots or a table")
            if walked.role == "edges_of":
                walked = Value("edges_of", kept(node_of(walked)))
            rounds = node_of(self.length(source, walked))
            item = self.item(source, walked, counter)

        def body() -> list[ast.stmt]:
            return [*(at(new, node) for new in self.bind(target, item)), *self.block(node.body)]

        inner, head, breaks = self.settled(entry, body)
        self.env = _join(head, *breaks)
        return [*before, ast.For(ast.Name(counter.id, ast.Store()), plain_call("range", rounds), inner, [])]

    def is_range(self, node: ast.expr) -> bool:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            return False
        function = node.func
        if function.id in self.local_names or function.id in self.known_names:
            return self.value(function).item is range
        return function.id == "range"

    def range_of(
        self, node: ast.Call, counter: ast.Name, kept: Callable[[ast.expr], ast.expr]
    ) -> tuple[ast.expr, Value]:
        """Rounds of ``range(..)``, and the item of round ``counter``."""
        if (
            not 1 <= len(node.args) <= 3
            or node.keywords
            or any(isinstance(a, ast.Starred) for a in node.args)
        ):
            raise self.fail(node, "range takes one to three whole numbers")
        bounds = [self.whole(a, "what range takes") for a in node.args]
        if len(bounds) == 1:
            return bounds[0], Value("int", counter)
        bounds = [kept(bound) for bound in bounds]
        first, end, by = bounds if len(bounds) == 3 else (*bounds, number(1))
        if isinstance(by, ast.Constant) and by.value == 0:
            raise self.fail(node, FAILURES[13])
        rounds = at(self.arithmetic("lab_rounds", first, end, by, self.line(node)), node)
        return rounds, Value("int", at(wrapping(first, ast.Add(), wrapping(counter, ast.Mult(), by)), node))

    # ---- errors of the user's -----------------------------------------------------------------------------

    def asserted(self, node: ast.Assert) -> list[ast.stmt]:
        tested = self.test(node.test)
        if isinstance(tested, ast.Constant) and tested.value:
            return []
        text = "AssertionError"
        before: list[ast.stmt] = []
        if node.msg is not None:
            before = self.evaluated(node.msg)
            text += (
                f": {node.msg.value!s}"
                if isinstance(node.msg, ast.Constant)
                else f": {ast.unparse(node.msg)}"
            )
        return [ast.If(ast.UnaryOp(ast.Not(), tested), [*before, *self.told(node, text)], [])]

    def raised(self, node: ast.Raise, what: ast.expr | None, cause: ast.expr | None) -> list[ast.stmt]:
        made = what.func if isinstance(what, ast.Call) else what
        if made is None or cause is not None or not isinstance(made, (ast.Name, ast.Attribute)):
            raise self.fail(node, "raise takes an exception, such as ValueError('why')")
        found = self.value(made)
        if found.role != "object" or not (
            isinstance(found.item, type) and issubclass(found.item, BaseException)
        ):
            raise self.fail(node, f"{ast.unparse(made)} is no exception")
        assert what is not None
        text = ast.unparse(what)
        before: list[ast.stmt] = []
        if isinstance(what, ast.Call):
            if what.keywords:
                raise self.fail(node, "arguments are given by position in sampling functions")
            before = [statement for argument in what.args for statement in self.evaluated(argument)]
            if len(what.args) == 1 and isinstance(what.args[0], ast.Constant):
                text = f"{ast.unparse(what.func)}: {what.args[0].value!s}"
        return [*before, *self.told(node, text)]

    def evaluated(self, told: ast.expr) -> list[ast.stmt]:
        """What an error is told, evaluated for nothing but its own errors, which come first."""
        if isinstance(told, ast.Constant):
            return []
        if isinstance(told, ast.JoinedStr):
            return [statement for part in told.values for statement in self.evaluated(part)]
        if isinstance(told, ast.FormattedValue):
            if told.format_spec is not None:
                raise self.fail(told, "a format cannot be used in what is raised")
            return self.evaluated(told.value)
        if isinstance(told, ast.Attribute):
            base = self.value(told.value)
            if base.role in ("self", "object") and hasattr(base.item, told.attr):
                return []
        value = self.value(told)
        return [] if value.node is None else [at(ast.Expr(value.node), told)]

    def told(self, node: ast.stmt, text: str) -> list[ast.stmt]:
        place = number(self.owner.place(self.filename, node.lineno, text))
        return [ast.Expr(call("lab_fail", place, number(5))), self.default_return()]


_ONLY_NAMES = "only names can be assigned to; what a sample keeps is its roots and its vertices"
_SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.LShift: "<<",
    ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
_EXACT: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}  # fmt: skip
"""Computed now where both sides are constants."""
_CHECKED: dict[type[ast.operator], str] = {
    ast.FloorDiv: "lab_floor_divide", ast.Mod: "lab_modulo", ast.LShift: "lab_shift_left",
    ast.RShift: "lab_shift_right",
}  # fmt: skip
"""Functions of :mod:`.arithmetic` for right sides that are not constants."""


@dataclass
class Source:
    """A function as its author wrote it.

    Attributes:
        definition: its syntax tree, with the file's line numbers.
        filename: the file, or notebook cell.
        local_names: parameters, and names that are assigned anywhere in it.
        known_names: what all other names stand for now.
    """

    definition: ast.FunctionDef
    filename: str
    local_names: frozenset[str]
    known_names: dict[str, Any]


@dataclass
class Method:
    """A compiled method: its text, where it stood, and whether it returns indices of edges."""

    text: str
    filename: str
    line: int
    deferred: bool


class Helper(NamedTuple):
    """A compiled function that others call, and the role of what it returns."""

    name: str
    result: str


class Compiler:
    """Compiles the methods of one application; collects tables, helpers and messages on the way."""

    def __init__(self, app: Any, max_tables: int, defer: bool = True) -> None:
        self.app, self.max_tables, self.defer = app, max_tables, defer
        self.tables: list[np.ndarray] = []
        self.modules: list[tuple[str, ast.Module]] = []
        self.helper_names: list[str] = []
        self.messages: dict[int, str] = {}
        self.places: dict[int, tuple[str, int]] = {}
        self.filename = source_of(type(app).next).filename
        self._table_numbers: dict[str, int] = {}
        self._table_kinds: list[str] = []
        self._place_numbers: dict[tuple[str, int, str | None], int] = {}
        self._helpers: dict[Any, Helper] = {}
        self._open: list[Any] = []
        self._kept: list[Value] = []

    def method(self, name: str, roles: tuple[str, ...]) -> Method:
        """Compile ``app.<name>``, whose parameters after ``self`` have ``roles``, as ``lab_<name>``."""
        source = source_of(getattr(type(self.app), name))
        given = [a.arg for a in source.definition.args.args]
        if len(given) - 1 not in (len(roles), len(roles) - 1 if roles[-1] == "rng" else -1):
            raise Failure(
                f"{name} takes (self, {', '.join(roles)})", source.filename, source.definition.lineno
            )
        arguments = {given[0]: Value("self", item=self.app)}
        for argument, role in zip(given[1:], roles, strict=False):
            arguments[argument] = Value(_ARGUMENT_ROLES.get(role, "int"))
        function = Function(self, source, True, name == "next" and self.defer)
        module = function.compiled(f"lab_{name}", arguments)
        self.modules.append((source.filename, module))
        return Method(ast.unparse(module), source.filename, source.definition.lineno, function.defers)

    def helper(
        self, function: Any, bound: Value | None, arguments: list[Value], at: Callable[[str], Failure]
    ) -> Helper:
        """The compiled ``function`` for arguments of these roles."""
        source = source_of(function)
        names = [a.arg for a in source.definition.args.args]
        values = ([bound] if bound else []) + arguments
        if len(values) != len(names):
            raise at(
                f"{source.definition.name} takes {len(names) - bool(bound)} arguments (got {len(arguments)})"
            )
        hashed = (str, types.FunctionType, types.MethodType)
        key = (
            function,
            tuple((v.role, v.item if isinstance(v.item, hashed) else id(v.item)) for v in values),
        )
        if key in self._open:
            raise at("a function calls itself; recursion is not possible")
        if key not in self._helpers:
            name = f"lab_helper_{len(self._helpers) + len(self._open)}_{source.definition.name}"
            compiled = Function(self, source, False, False)
            self._open.append(key)
            module = compiled.compiled(name, dict(zip(names, values, strict=True)))
            self._open.pop()
            self.modules.append((source.filename, module))
            self.helper_names.append(name)
            self._kept += values  # so that no other object gets the identity of one of them
            self._helpers[key] = Helper(name, "none" if compiled.may_end_without else compiled.result)
        return self._helpers[key]

    def need(self, name: str) -> None:
        """Put a function of :mod:`.arithmetic` beside those that call it."""
        if name not in self.helper_names:
            module = ast.Module([copy.deepcopy(_arithmetic()[name])], type_ignores=[])
            self.modules.insert(0, (ARITHMETIC, module))
            self.helper_names.append(name)

    def place(self, filename: str, line: int, text: str | None = None) -> int:
        """The number that stands for a line of a file, and for what is raised there."""
        key = (filename, line, text)
        if key not in self._place_numbers:
            is_own = filename == self.filename and line < _FOREIGN
            if is_own and (text is None or self.messages.get(line, text) == text):
                found = line
            else:
                found = _FOREIGN + len(self.places)
                self.places[found] = (filename, line)
            self._place_numbers[key] = found
            if text is not None:
                self.messages[found] = text
        return self._place_numbers[key]

    def table(self, name: str, value: Any, at: Callable[[str], Failure]) -> Value:
        """The array ``self.<name>``."""
        if name not in self._table_numbers:
            if len(self.tables) == self.max_tables:
                raise at(f"at most {self.max_tables} arrays on self can be read")
            try:
                array = np.asarray(value.get() if type(value).__module__.startswith("cupy") else value)
            except (TypeError, ValueError, RuntimeError) as error:
                raise at(f"self.{name} is no array of numbers ({error})") from None
            if array.ndim != 1 or array.dtype.kind not in "iufb" or array.dtype.itemsize > 8:
                raise at(
                    f"self.{name} must be a one-dimensional array of numbers of at most 64 bits "
                    f"(got {array.dtype}{array.shape})"
                )
            if array.dtype == np.uint64 and array.size and array.max() > np.uint64(2**63 - 1):
                raise at(f"self.{name} holds numbers that do not fit 64 bits with a sign")
            if not array.size and not hasattr(value, "dtype"):  # an empty list counts as one of whole numbers
                array = array.astype(np.int64)
            is_float = array.dtype.kind == "f"
            self._table_numbers[name] = len(self.tables)
            self._table_kinds.append("float" if is_float else "bool" if array.dtype.kind == "b" else "int")
            self.tables.append(np.array(array, dtype=np.float64 if is_float else np.int64, order="C"))
        return self.table_value(name)

    def table_value(self, name: str) -> Value:
        table = self._table_numbers[name]
        return Value(f"{self._table_kinds[table]} table", number(table), name)

    def table_size(self, name: str) -> int:
        return int(self.tables[self._table_numbers[name]].size)


_ARGUMENT_ROLES = {"s": "sample", "transits": "transits", "src_edges": "edges", "rng": "rng"}


def source_of(function: Any) -> Source:
    """Source of ``function`` as a syntax tree with the file's own line numbers.

    Raises:
        Failure: it cannot be read, its file has changed, or it is not a plain ``def`` with positional parameters.
    """
    name = getattr(function, "__qualname__", repr(function))
    code: Any = getattr(plain_function(function), "__code__", None)
    if _is_changed(plain_function(function)) and code.co_name != "<lambda>":
        raise Failure(
            f"the file of {name} has changed since it was imported; reload it",
            code.co_filename,
            code.co_firstlineno,
        )
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise Failure(
            f"the source of {name} cannot be read: write it in a file or a notebook cell", "<unknown>", 0
        ) from None
    filename = inspect.getsourcefile(function) or inspect.getfile(function)
    try:
        definition = _parsed("".join(lines), first)
    except SyntaxError:
        raise Failure("only functions that def defines can be compiled", filename, first) from None
    if not isinstance(definition, ast.FunctionDef):
        raise Failure("only functions that def defines can be compiled", filename, first)
    if owner := _class_around(plain_function(function)):
        definition = _Mangled(owner).visit(definition)
    given = definition.args
    if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs:
        raise Failure(f"{name} may have plain parameters only", filename, definition.lineno)
    decorators = [ast.unparse(decorator) for decorator in definition.decorator_list]
    if hasattr(function, "__wrapped__") or set(decorators) - {"staticmethod"}:
        raise Failure(f"{name} is decorated, and decorators are not compiled", filename, definition.lineno)
    function = plain_function(function)
    known = dict(function.__globals__)
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            known[free] = cell.cell_contents
        except ValueError:  # not assigned yet
            known.pop(free, None)
    code = function.__code__
    return Source(definition, filename, frozenset(code.co_varnames + code.co_cellvars), known)


def _class_around(function: Any) -> str | None:
    """Name of the class in whose body a function stands, however deep."""
    around = getattr(function, "__qualname__", "").split(".")[:-1]
    while around and around[-1] == "<locals>":
        around = around[:-2]  # and the function whose locals these are
    return around[-1] if around else None


class _Mangled(ast.NodeTransformer):
    """Private names, ``__name``, as Python has them in the body of a class: ``_Class__name``."""

    def __init__(self, owner: str) -> None:
        self._prefix = f"_{owner.lstrip('_')}" if owner.strip("_") else ""

    def _name(self, name: str) -> str:
        return self._prefix + name if name.startswith("__") and not name.endswith("__") else name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._name(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        node.attr = self._name(node.attr)
        node.value = self.visit(node.value)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self._name(node.arg)
        return node


def _parsed(source: str, first: int) -> ast.stmt:
    """The first statement of ``source``, whose lines count from ``first``.

    A method stands indented, but not every line of it has to: comments, and what is inside a string.
    """
    indented = source[:1].isspace()
    tree = ast.parse("if True:\n" + source if indented else source)
    statement = tree.body[0].body[0] if indented else tree.body[0]  # type: ignore[attr-defined]
    ast.increment_lineno(statement, first - (2 if indented else 1))
    return statement


def _is_changed(function: Any) -> bool:
    """Whether the file of ``function`` was written since this package was imported, and now makes another function.

    Only files that Python itself has loaded: a notebook's cells stay what they are, and other loaders, those of tests
    for example, may compile something else than what stands there.
    """
    code, loader = getattr(function, "__code__", None), getattr(function, "__globals__", {}).get("__loader__")
    if code is None or hasattr(function, "__wrapped__") or type(loader) is not SourceFileLoader:
        return False
    try:
        written = Path(code.co_filename).stat().st_mtime_ns
    except OSError:
        return False
    if written <= IMPORTED * 1e9:
        return False
    return not any(
        _same_code(now, code) for now in _codes(code.co_filename, written) if now.co_name == code.co_name
    )


@functools.lru_cache(maxsize=8)
def _codes(filename: str, written: int) -> list[types.CodeType]:
    """All functions of a file, as Python makes them of what stands there now; none where that is no program."""
    try:
        found = [compile(Path(filename).read_bytes(), filename, "exec", dont_inherit=True)]
    except (OSError, SyntaxError, ValueError):
        return []
    for code in found:  # grows
        found += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
    return found


def _same_code(a: Any, b: Any) -> bool:
    """Whether two functions begin on the same line and do the same."""
    if isinstance(a, types.CodeType) and isinstance(b, types.CodeType):
        named = ("co_name", "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount")
        return (
            all(getattr(a, name) == getattr(b, name) for name in named)
            and a.co_firstlineno == b.co_firstlineno
            and _same_code(a.co_consts, b.co_consts)
        )
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_code, a, b))
    return type(a) is type(b) and (a == b if isinstance(a, frozenset) else repr(a) == repr(b))


def _constant(node: ast.expr) -> Any:
    """The value of a constant, None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


@functools.lru_cache(maxsize=1)
def _arithmetic() -> dict[str, ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(arithmetic))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


class _SmallestInteger(ast.NodeTransformer):
    """-2**63 as a difference: Numba takes the constant for an unsigned number."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if type(node.value) is int and node.value == -(2**63):
            return at(ast.BinOp(number(-(2**63) + 1), ast.Sub(), number(1)), node)
        return node


def _finished(name: str, arguments: list[str], body: list[ast.stmt], line: int) -> ast.Module:
    new = ast.FunctionDef(
        name=name,
        args=ast.arguments(posonlyargs=[], args=[ast.arg(a) for a in arguments], kwonlyargs=[], kw_defaults=[],
                           defaults=[]),
        body=body, decorator_list=[],
    )  # fmt: skip
    new.lineno = line
    new.type_params = []  # type: ignore[attr-defined]  # from Python 3.12 on
    module = ast.Module(body=[_SmallestInteger().visit(new)], type_ignores=[])
    for node in ast.walk(module):  # what compiling has put in stands where its surroundings stand
        for child in ast.iter_child_nodes(node):
            if not hasattr(child, "lineno"):
                child.lineno = getattr(node, "lineno", line)  # type: ignore[attr-defined]
            child.col_offset = child.end_col_offset = 0  # type: ignore[attr-defined]
            child.end_lineno = child.lineno  # type: ignore[attr-defined]
    return module


def plain_function(function: Any) -> Any:
    """The plain function of a method."""
    return getattr(function, "__func__", function)


def node_of(value: Value) -> ast.expr:
    assert value.node is not None
    return value.node


def number(value: Any) -> ast.expr:
    return ast.Constant(value)


def call(name: str, *arguments: ast.expr) -> ast.expr:
    return plain_call(name, ast.Name(CTX, ast.Load()), *arguments)


def plain_call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def wrapping(x: ast.expr, op: ast.operator, y: ast.expr) -> ast.expr:
    """``x op y`` of integers that wrap: to both compilers, overflow of signed numbers is undefined."""
    return plain_call("lab_whole", ast.BinOp(plain_call("lab_word", x), op, plain_call("lab_word", y)))


def at(new: Any, old: ast.AST) -> Any:
    if hasattr(old, "lineno"):
        new.lineno = old.lineno
    return new


def words(node: ast.AST) -> str:
    if isinstance(node, ast.For) and node.orelse:
        return "else after for"
    return {
        "Try": "try", "With": "with", "ListComp": "a list", "List": "a list", "Dict": "a dictionary",
        "Lambda": "lambda", "FunctionDef": "a function inside a function", "JoinedStr": "a string", "Delete": "del",
        "Import": "import", "Nonlocal": "nonlocal", "ClassDef": "a class", "In": "in", "NotIn": "not in", "Is": "is",
        "IsNot": "is not", "MatMult": "@", "Match": "match",
        "Yield": "yield", "Tuple": "a tuple", "NamedExpr": ":=", "Set": "a set", "Global": "global",
        "For": "this kind of for", "While": "else after while",
    }.get(type(node).__name__, type(node).__name__)  # fmt: skip
