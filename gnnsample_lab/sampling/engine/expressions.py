"""Expressions of a sampling function: what they are (:class:`Value`) and what they become."""

from __future__ import annotations

import ast
import builtins
import numbers
from typing import Any, NamedTuple

import numpy as np

from .methods import COUNTS, ITEMS, METHODS, ROLE_NAMES

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
    """The expressions of one function being rewritten; :class:`~.scope.Scope` adds its statements."""

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
