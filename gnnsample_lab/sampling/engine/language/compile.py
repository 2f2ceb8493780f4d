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
import hashlib
import inspect
import linecache
import numbers
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .accessors import ACCESSORS, COUNTS, FAILURES, ITEMS, METHODS, ROLE_NAMES
from .app import SamplingApp, SamplingAppError

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
    modules: tuple[tuple[str, ast.Module], ...] = ()
    helpers: tuple[str, ...] = ()

    def functions(
        self,
        namespace: dict[str, Any],
        helper: Callable[[Any], Any] = lambda function: function,
        rewrite: Callable[[ast.Module], ast.Module] = lambda module: module,
    ) -> dict[str, Any]:
        """Execute the rewritten functions in ``namespace``, which holds the accessors.

        ``helper`` compiles a function that others call, ``rewrite`` changes a copy of the code before. Returns
        ``lab_next`` and, if overridden, ``lab_step_transits``.
        """
        for filename, module in self.modules:
            exec(compile(rewrite(copy.deepcopy(module)), filename, "exec"), namespace)
            for definition in module.body:
                if isinstance(definition, ast.FunctionDef) and definition.name in self.helpers:
                    namespace[definition.name] = helper(namespace[definition.name])
        names = ["lab_next"] + (["lab_step_transits"] if self.transits_source else [])
        return {name: namespace[name] for name in names}

    def error(self, status: int, first_sample: int = 0) -> SamplingAppError:
        """What a status word (``sample_row << 24 | line << 4 | code``) means."""
        sample, line, code = (status >> 24) + first_sample, (status >> 4) & MAX_LINE, status & 15
        reason = self.messages.get(line, FAILURES[code]) if code == 5 else FAILURES.get(code, f"code {code}")
        return SamplingAppError(f"sample {sample}: {reason}\n{located(self.filename, line)}")

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


def compile_operator(app: SamplingApp, graph: Any = None) -> Operator:
    """Rewrite the compiled functions of ``app``; call ``app.prepare(graph)`` before.

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
    try:
        try:
            rewriter, following, transits = _rewrite(app, True)
        except NotDeferrable:
            rewriter, following, transits = _rewrite(app, False)
    except Failure as failure:
        raise SamplingAppError(f"{app.name}: {failure}\n{located(failure.filename, failure.line)}") from None
    modules = tuple(rewriter.modules)
    texts = [ast.unparse(module) for _, module in modules]
    uses = frozenset(name for name in ACCESSORS if any(f"{name}(" in text for text in texts))
    deferred = following.deferred
    shape = [str((t.dtype, t.size)) for t in rewriter.tables]
    key = "\n".join([*texts, *shape, str((deferred, app.is_collective))])
    return Operator(
        next_source=following.text,
        transits_source=transits.text if transits else None,
        deferred=deferred,
        uses=uses,
        tables=tuple(rewriter.tables),
        collective=app.is_collective,
        max_redraws=app.max_redraws,
        key=hashlib.sha256(key.encode()).hexdigest(),
        filename=following.filename,
        def_line=following.line,
        messages=rewriter.messages,
        modules=modules,
        helpers=tuple(rewriter.helper_names),
    )


def _rewrite(app: SamplingApp, defer: bool) -> tuple[Rewriter, Method, Method | None]:
    rewriter = Rewriter(app, MAX_TABLES, defer)
    following = rewriter.method("next", ("s", "transits", "src_edges", "step", "rng"))
    transits = None
    if type(app).step_transits is not SamplingApp.step_transits:
        transits = rewriter.method("step_transits", ("step", "s", "transit_idx", "rng"))
    return rewriter, following, transits


def source_of(function: Any) -> tuple[ast.FunctionDef, str, int]:
    """Syntax tree of ``function`` with the file's own line numbers, the file, and its first line."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        name = getattr(function, "__qualname__", repr(function))
        raise Failure(
            f"the source of {name} cannot be read: write it in a file or a notebook cell", "<unknown>", 0
        ) from None
    filename = inspect.getsourcefile(function) or inspect.getfile(function)
    try:
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except SyntaxError:
        raise Failure("only functions that def defines can be compiled", filename, first) from None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise Failure("only functions that def defines can be compiled", filename, first)
    ast.increment_lineno(tree, first - 1)
    return definition, filename, definition.lineno


CTX = "ctx"
DIVISOR = "lab_divisor"
DIVISOR_SOURCE = """
def lab_divisor(ctx, x, line):
    return x if x != 0 else x + 1 + lab_fail(ctx, line, 4)
"""
_BUILTINS = (min, max, abs, int, float, bool, round)


class Failure(Exception):
    """A construct that the engine has no meaning for."""

    def __init__(self, message: str, filename: str, line: int) -> None:
        super().__init__(message)
        self.filename, self.line = filename, line


class NotDeferrable(Exception):
    """``next`` does more with an edge than return it."""


class Value(NamedTuple):
    """What an expression is: a number at run time (``node``), or something known while rewriting (``role``).

    Roles: an argument ("sample", "transits", "edges", "roots", "rng"), "edges_of" (of the vertex ``node``), "table"
    (number ``item``), "self", "object" (the Python object ``item``), "number".
    """

    role: str
    node: ast.expr | None = None
    item: Any = None


class Expressions:
    """The expressions of one function being rewritten; :class:`Scope` adds its statements."""

    owner: Any
    globals: dict[str, Any]
    locals: dict[str, Value]

    def fail(self, node: ast.AST, message: str) -> Failure:
        raise NotImplementedError

    def number(self, node: ast.expr) -> ast.expr:
        value = self.value(node)
        if value.role != "number":
            raise self.fail(node, f"{ROLE_NAMES.get(value.role, value.role)} is used as a number")
        return node_of(value)

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
            walked = self.value(node.value)
            if walked.role not in ITEMS or isinstance(node.slice, ast.Slice):
                raise self.fail(
                    node, f"{ROLE_NAMES.get(walked.role, walked.role)} cannot be indexed like this"
                )
            return Value("number", self.item(node, walked, self.number(node.slice)))
        new: ast.expr
        if isinstance(node, ast.BinOp):
            left, right = self.number(node.left), self.number(node.right)
            new = ast.BinOp(left, node.op, self.divisor(node, node.op, right))
        elif isinstance(node, ast.UnaryOp):
            operand = self.number(node.operand)
            if isinstance(node.op, ast.USub) and isinstance(operand, ast.Constant):
                return Value("number", number(-operand.value))  # type: ignore[operator]  # constants are numbers
            new = ast.UnaryOp(node.op, operand)
        elif isinstance(node, ast.Compare):
            new = ast.Compare(self.number(node.left), node.ops, [self.number(c) for c in node.comparators])
        elif isinstance(node, ast.BoolOp):
            new = ast.BoolOp(node.op, [self.number(v) for v in node.values])
        elif isinstance(node, ast.IfExp):
            new = ast.IfExp(self.number(node.test), self.number(node.body), self.number(node.orelse))
        else:
            raise self.fail(node, f"{words(node)} cannot be used in a sampling function")
        return Value("number", at(new, node))

    def name(self, node: ast.Name) -> Value:
        if node.id in self.locals:
            return self.locals[node.id]
        if node.id in self.globals:
            return self.known(node, self.globals[node.id])
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
        if isinstance(found, int) and not -(2**63) <= found < 2**63:
            raise self.fail(node, f"{found} does not fit 64 bits")
        return Value("number", at(number(found), node))

    def attribute(self, node: ast.Attribute) -> Value:
        base = self.value(node.value)
        if base.role == "sample" and node.attr == "roots":
            return Value("roots")
        if base.role not in ("self", "object"):
            raise self.fail(node, f"{ROLE_NAMES.get(base.role, base.role)} has no {node.attr!r}")
        try:
            found = getattr(base.item, node.attr)
        except AttributeError:
            raise self.fail(node, f"{ast.unparse(node)} is not set") from None
        if base.role == "self" and (hasattr(found, "__array__") or isinstance(found, (list, tuple))):
            return self.owner.table(node.attr, found, lambda text: self.fail(node, text))
        return self.known(node, found)

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
            return Value("number", self.length(node, self.value(node.args[0])))
        if any(function is known for known in _BUILTINS):
            new = plain_call(function.__name__, *[self.number(a) for a in node.args])
            return Value("number", at(new, node))
        bound = (
            Value("self", item=self.owner.app)
            if getattr(function, "__self__", None) is self.owner.app
            else None
        )
        if not hasattr(plain_function(function), "__code__"):
            raise self.fail(node, f"{ast.unparse(node.func)} cannot be compiled")
        arguments = [self.value(a) for a in node.args]
        name, passed = self.owner.helper(
            plain_function(function), bound, arguments, lambda text: self.fail(node, text)
        )
        return Value("number", at(plain_call(name, ast.Name(CTX, ast.Load()), *passed), node))

    def method(self, node: ast.Call, name: str, base: Value) -> Value:
        """A method of an argument, or of a vertex, which is a number."""
        entry = METHODS.get((base.role, name))
        if entry is None:
            raise self.fail(node, f"{ROLE_NAMES.get(base.role, base.role)} has no method {name!r}")
        accessor, count, takes_line, role = entry
        if len(node.args) != count:
            raise self.fail(
                node, f"{name} takes {count} argument{'s' if count != 1 else ''} (got {len(node.args)})"
            )
        arguments = [self.number(a) for a in node.args]
        if base.role == "table":
            arguments.insert(0, number(base.item))
        elif base.node is not None:
            arguments.insert(0, base.node)
        if takes_line:
            arguments.append(number(node.lineno))
        new = call(accessor, *arguments) if accessor else arguments[0]
        if role == "boolean":
            new, role = ast.Compare(new, [ast.NotEq()], [number(0)]), "number"
        return Value(role, at(new, node))

    def item(self, node: ast.expr, walked: Value, index: ast.expr) -> ast.expr:
        accessor = ITEMS[walked.role]
        arguments = [index, number(node.lineno)]
        if walked.role == "edges" and self.owner.defer:
            raise NotDeferrable
        if walked.role == "edges_of":
            arguments.insert(0, node_of(walked))
        if walked.role == "table":
            arguments.insert(0, number(walked.item))
            if self.owner.tables[walked.item].dtype == np.float64:
                accessor = "lab_table_float"
        return at(call(accessor, *arguments), node)

    def length(self, node: ast.expr, walked: Value) -> ast.expr:
        if walked.role == "table":
            return at(number(int(self.owner.tables[walked.item].size)), node)
        accessor = COUNTS.get(walked.role)
        if accessor is None:
            raise self.fail(node, f"{ROLE_NAMES.get(walked.role, walked.role)} has no len()")
        arguments = [node_of(walked), number(node.lineno)] if walked.role == "edges_of" else []
        return at(call(accessor, *arguments), node)

    def divisor(self, node: ast.AST, op: ast.operator, right: ast.expr) -> ast.expr:
        """A divisor that is 1, and a failure, where it would be 0."""
        if not isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)):
            return right
        if isinstance(right, ast.Constant):
            if right.value == 0:
                raise self.fail(node, "division by zero")
            return right
        self.owner.need_divisor()
        return call(DIVISOR, right, number(getattr(node, "lineno", 0)))


def plain_function(function: Any) -> Any:
    """The plain function of a method."""
    return getattr(function, "__func__", function)


def node_of(value: Value) -> ast.expr:
    assert value.node is not None
    return value.node


def number(value: Any) -> ast.expr:
    return ast.Constant(value)


def call(accessor: str, *arguments: ast.expr) -> ast.expr:
    return plain_call(accessor, ast.Name(CTX, ast.Load()), *arguments)


def plain_call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def at(new: Any, old: ast.AST) -> Any:
    if hasattr(old, "lineno"):
        new.lineno = old.lineno
    return new


def words(node: ast.AST) -> str:
    return {
        "Try": "try", "With": "with", "ListComp": "a list", "List": "a list", "Dict": "a dictionary",
        "Lambda": "lambda", "FunctionDef": "a function inside a function", "JoinedStr": "a string", "Delete": "del",
        "Import": "import",
        "Yield": "yield", "Tuple": "a tuple", "NamedExpr": ":=", "Set": "a set", "Global": "global",
        "For": "this kind of for",
    }.get(type(node).__name__, type(node).__name__)  # fmt: skip


class Scope(Expressions):
    """One function being rewritten."""

    def __init__(
        self, owner: Any, function: Any, filename: str, definition: ast.FunctionDef, defer: bool
    ) -> None:
        self.owner, self.filename, self.definition, self.defers = owner, filename, definition, defer
        function = plain_function(function)
        self.globals = dict(getattr(function, "__globals__", {}))
        closure = getattr(function, "__closure__", None) or ()
        for name, cell in zip(function.__code__.co_freevars, closure, strict=True):
            self.globals[name] = cell.cell_contents
        self.locals: dict[str, Value] = {}
        self.temporaries = 0

    def function(self, name: str, arguments: list[str]) -> ast.Module:
        body = self.body(self.definition.body)
        line = self.definition.lineno
        body.append(at(ast.Return(number(-1)), self.definition.body[-1]))
        new = ast.FunctionDef(
            name=name,
            args=ast.arguments(posonlyargs=[], args=[ast.arg(a) for a in arguments], kwonlyargs=[], kw_defaults=[],
                               defaults=[]),
            body=body, decorator_list=[],
        )  # fmt: skip
        new.lineno = line
        new.type_params = []  # type: ignore[attr-defined]  # from Python 3.12 on
        module = ast.Module(body=[new], type_ignores=[])
        for node in ast.walk(module):  # what rewriting has put in stands where its surroundings stand
            for child in ast.iter_child_nodes(node):
                if not hasattr(child, "lineno"):
                    child.lineno = getattr(node, "lineno", line)  # type: ignore[attr-defined]
                child.col_offset = child.end_col_offset = 0  # type: ignore[attr-defined]
                child.end_lineno = child.lineno  # type: ignore[attr-defined]
        return module

    def fail(self, node: ast.AST, message: str) -> Failure:
        return Failure(message, self.filename, getattr(node, "lineno", self.definition.lineno))

    def temporary(self) -> str:
        self.temporaries += 1
        return f"lab_temporary_{self.temporaries}"

    # ---- statements ---------------------------------------------------------------------------------------

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            for new in self.statement(statement):
                out.append(at(new, statement))
        return out or [ast.Pass()]

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, (ast.Pass, ast.Break, ast.Continue)):
            return [node]
        if isinstance(node, ast.Return):
            return self.returned(node.value)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            return self.assign(node.targets[0], node.value)
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return self.assign(node.target, node.value)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.number(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
            return [ast.AugAssign(node.target, node.op, self.divisor(node, node.op, self.number(node.value)))]
        if isinstance(node, ast.If):
            return [
                ast.If(
                    self.number(node.test),
                    self.body(node.body),
                    self.body(node.orelse) if node.orelse else [],
                )
            ]
        if isinstance(node, ast.While) and not node.orelse:
            bounded = ast.BoolOp(ast.And(), [self.number(node.test), call("lab_go_on", number(node.lineno))])
            return [ast.While(bounded, self.body(node.body), [])]
        if isinstance(node, ast.For) and not node.orelse and isinstance(node.target, ast.Name):
            return self.loop(node, node.target)
        if isinstance(node, ast.Raise):
            return self.raised(node, node.exc)
        if isinstance(node, ast.Assert):
            return [ast.If(ast.UnaryOp(ast.Not(), self.number(node.test)), self.raised(node, node.msg), [])]
        if isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant):
                return []  # a docstring
            return [ast.Expr(self.number(node.value))]
        raise self.fail(node, f"{words(node)} cannot be used in a sampling function")

    def returned(self, node: ast.expr | None) -> list[ast.stmt]:
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return [ast.Return(number(-1))]
        if not self.defers:
            return [ast.Return(self.number(node))]
        if isinstance(node, ast.IfExp):
            return [ast.If(self.number(node.test), self.returned(node.body), self.returned(node.orelse))]
        if isinstance(node, ast.Subscript) and self.value(node.value).role == "edges":
            held = self.temporary()
            kept = ast.Assign([ast.Name(held, ast.Store())], self.number(node.slice))
            index = ast.Name(held, ast.Load())
            inside = ast.Compare(number(0), [ast.LtE(), ast.Lt()], [index, call("lab_edge_count")])
            outside = ast.BinOp(call("lab_fail", number(node.lineno), number(1)), ast.Sub(), number(1))
            return [kept, ast.Return(ast.IfExp(inside, index, outside))]
        value = self.value(node)
        if value.role == "number" and isinstance(value.node, ast.Constant) and value.node.value == -1:
            return [ast.Return(number(-1))]
        raise NotDeferrable

    def assign(self, target: ast.expr, source: ast.expr) -> list[ast.stmt]:
        if isinstance(target, ast.Tuple) and isinstance(source, ast.Tuple):
            names = [t for t in target.elts if isinstance(t, ast.Name)]
            if len(names) == len(target.elts) == len(source.elts):
                values = [self.number(v) for v in source.elts]
                for name in names:
                    self.declare(name)
                return [ast.Assign([target], ast.Tuple(values, ast.Load()))]
        if not isinstance(target, ast.Name):
            raise self.fail(
                target, "only names can be assigned to; what a sample keeps is its roots and its vertices"
            )
        value = self.value(source)
        if value.role == "number":
            self.declare(target)
            return [ast.Assign([target], node_of(value))]
        if value.role == "edges_of":  # its vertex is read once
            held = self.temporary()
            self.locals[target.id] = Value("edges_of", ast.Name(held, ast.Load()))
            return [ast.Assign([ast.Name(held, ast.Store())], node_of(value))]
        self.locals[target.id] = value
        return []

    def declare(self, target: ast.expr) -> None:
        assert isinstance(target, ast.Name)
        known = self.locals.get(target.id)
        if known is not None and known.role != "number":
            raise self.fail(target, f"{target.id} is {ROLE_NAMES[known.role]} and cannot become a number")
        self.locals[target.id] = Value("number", ast.Name(target.id, ast.Load()))

    def loop(self, node: ast.For, target: ast.Name) -> list[ast.stmt]:
        source = node.iter
        if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.func.id == "range":
            bounds = [self.number(a) for a in source.args]
            self.declare(target)
            return [ast.For(target, plain_call("range", *bounds), self.body(node.body), [])]
        walked = self.value(source)
        if walked.role not in ITEMS:
            raise self.fail(node, "for goes over range(...), edges, transits, roots or a table")
        counter = self.temporary()
        self.declare(target)
        item = self.item(source, walked, ast.Name(counter, ast.Load()))
        first = at(ast.Assign([target], item), node)
        over = plain_call("range", self.length(source, walked))
        return [ast.For(ast.Name(counter, ast.Store()), over, [first, *self.body(node.body)], [])]

    def raised(self, node: ast.stmt, what: ast.expr | None) -> list[ast.stmt]:
        text = ast.unparse(what) if what is not None else "raised"
        if isinstance(what, ast.Call) and len(what.args) == 1 and isinstance(what.args[0], ast.Constant):
            text = f"{ast.unparse(what.func)}: {what.args[0].value!s}"
        elif isinstance(what, ast.Constant):
            text = f"AssertionError: {what.value!s}"
        self.owner.messages[node.lineno] = text
        return [ast.Expr(call("lab_fail", number(node.lineno), number(5))), ast.Return(number(-1))]


@dataclass
class Method:
    """A rewritten method: its text, where it stood, and whether it returns indices of edges."""

    text: str
    filename: str
    line: int
    deferred: bool


class Rewriter:
    """Rewrites the methods of one application; collects tables, helpers and messages on the way."""

    def __init__(self, app: Any, max_tables: int, defer: bool = True) -> None:
        self.app, self.max_tables, self.defer = app, max_tables, defer
        self.tables: list[np.ndarray] = []
        self.table_numbers: dict[str, int] = {}
        self.modules: list[tuple[str, ast.Module]] = []
        self.helper_names: list[str] = []
        self.messages: dict[int, str] = {}
        self._helpers: dict[Any, str] = {}
        self._open: list[Any] = []

    def method(self, name: str, roles: tuple[str, ...]) -> Method:
        """Rewrite ``app.<name>``, whose parameters after ``self`` have ``roles``, as ``lab_<name>``."""
        function = getattr(type(self.app), name)
        definition, filename, line = source_of(function)
        given = [a.arg for a in definition.args.args]
        if len(given) - 1 not in (len(roles), len(roles) - 1 if roles[-1] == "rng" else -1):
            raise Failure(f"{name} takes (self, {', '.join(roles)})", filename, line)
        scope = Scope(self, function, filename, definition, name == "next" and self.defer)
        scope.locals[given[0]] = Value("self", item=self.app)
        plain = []
        for argument, role in zip(given[1:], roles, strict=False):
            if role in ("step", "transit_idx"):
                scope.locals[argument] = Value("number", ast.Name(argument, ast.Load()))
                plain.append(argument)
            else:
                scope.locals[argument] = Value(_ARGUMENT_ROLES[role])
        module = scope.function(f"lab_{name}", ["ctx", *plain])
        self.modules.append((filename, module))
        return Method(ast.unparse(module), filename, line, scope.defers)

    def helper(
        self, function: Any, bound: Value | None, arguments: list[Value], at: Callable[[str], Failure]
    ) -> Any:
        """Name of the rewritten ``function`` for these roles of arguments, and the run-time arguments to pass."""
        definition, filename, _ = source_of(function)
        names = [a.arg for a in definition.args.args]
        values = ([bound] if bound else []) + arguments
        if len(values) != len(names) or definition.args.vararg or definition.args.kwonlyargs:
            raise at(f"{definition.name} takes {len(names) - bool(bound)} arguments (got {len(arguments)})")
        passed = [v.node for v in values if v.node is not None]
        key = (function, tuple((v.role, v.item if v.role == "table" else id(v.item)) for v in values))
        if key in self._open:
            raise at("a function calls itself; recursion is not possible")
        if key not in self._helpers:
            name = f"lab_helper_{len(self._helpers)}_{definition.name}"
            self._helpers[key] = name
            scope = Scope(self, function, filename, definition, False)
            plain = []
            for argument, value in zip(names, values, strict=True):
                if value.node is None:
                    scope.locals[argument] = value
                else:
                    scope.locals[argument] = Value(value.role, ast.Name(argument, ast.Load()), value.item)
                    plain.append(argument)
            self._open.append(key)
            self.modules.append((filename, scope.function(name, ["ctx", *plain])))
            self._open.pop()
            self.helper_names.append(name)
        return self._helpers[key], passed

    def need_divisor(self) -> None:
        """The function that divisors go through, a helper so that it takes integers and floats."""
        if DIVISOR not in self.helper_names:
            self.modules.insert(0, ("<divisor>", ast.parse(DIVISOR_SOURCE)))
            self.helper_names.append(DIVISOR)

    def table(self, name: str, value: Any, at: Callable[[str], Failure]) -> Value:
        """Number of the array ``self.<name>``."""
        if name not in self.table_numbers:
            array = np.asarray(value.get() if hasattr(value, "get") else value)
            if array.ndim != 1 or array.dtype.kind not in "iufb":
                raise at(
                    f"self.{name} must be a one-dimensional array of numbers (got {array.dtype}{array.shape})"
                )
            if len(self.tables) == self.max_tables:
                raise at(f"at most {self.max_tables} arrays on self can be read")
            self.table_numbers[name] = len(self.tables)
            self.tables.append(array.astype(np.float64 if array.dtype.kind == "f" else np.int64))
        return Value("table", item=self.table_numbers[name])


_ARGUMENT_ROLES = {"s": "sample", "transits": "transits", "src_edges": "edges", "rng": "rng"}
