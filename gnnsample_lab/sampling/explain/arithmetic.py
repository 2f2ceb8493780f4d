"""Numbers of sampling functions as Python objects: 64-bit integers that wrap, and doubles.

Compiled functions have no others, and check less than Python does. :class:`Literals` hands the literals and operators
of a function's syntax tree to :class:`Arithmetic`; everything else in it is left to Python.
"""

from __future__ import annotations

import ast
import math
import operator as op
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, Self

from gnnsample_lab.sampling.engine.language.accessors import (
    BAD_SHIFT,
    MANY_ROUNDS,
    NO_STRIDE,
    NO_WHOLE,
    ZERO_DIVISOR,
)

_HALF, _ALL = 1 << 63, (1 << 64) - 1


class Whole(int):
    """An integer of 64 bits, which wraps."""

    def __new__(cls, value: int) -> Self:
        return int.__new__(cls, (int(value) + _HALF & _ALL) - _HALF)


class Real(float):
    """A double; a whole number becomes one before it is compared with it."""

    def __lt__(self, other: Any) -> bool:
        return float(self) < float(other)

    def __le__(self, other: Any) -> bool:
        return float(self) <= float(other)

    def __gt__(self, other: Any) -> bool:
        return float(self) > float(other)

    def __ge__(self, other: Any) -> bool:
        return float(self) >= float(other)

    def __eq__(self, other: object) -> bool:
        return float(self) == float(other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> bool:
        return float(self) != float(other)  # type: ignore[arg-type]

    __hash__ = float.__hash__


class Arithmetic:
    """The operators and built-in functions that work on numbers.

    Args:
        whole: the class of the integers that they give. fail: called with the code of a failure, and raises.

    Attributes:
        operators: by the class of their node in a syntax tree, such as ``"Add"``.
        builtins: what stands for Python's own functions.
    """

    def __init__(self, whole: type[Whole], fail: Callable[[int], NoReturn]) -> None:
        self.whole, self.fail = whole, fail
        plain: dict[type[ast.AST], Callable[..., Any]] = {
            ast.Add: op.add, ast.Sub: op.sub, ast.Mult: op.mul, ast.BitAnd: op.and_, ast.BitOr: op.or_,
            ast.BitXor: op.xor, ast.USub: op.neg, ast.UAdd: op.pos, ast.Invert: op.invert,
        }  # fmt: skip
        self.operators = {kind.__name__: self._of(function) for kind, function in plain.items()} | {
            "Div": self.divide, "FloorDiv": self._dividing(op.floordiv), "Mod": self._dividing(op.mod),
            "Pow": self.power, "LShift": self._shifting(op.lshift), "RShift": self._shifting(op.rshift),
        }  # fmt: skip
        self.builtins: dict[Any, Callable[..., Any]] = {
            min: self._extreme(min), max: self._extreme(max), abs: self._of(abs), len: self._of(len),
            float: self._of(float), bool: bool, int: self._rounding(int), round: self._rounding(round),
            range: self.range,
        }  # fmt: skip

    def number(self, value: Any) -> Any:
        """``value`` as a number of the language."""
        if isinstance(value, (bool, Whole, Real)):
            return value
        return Real(value) if isinstance(value, float) else self.whole(value)

    def _of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def apply(*values: Any) -> Any:
            return self.number(function(*_alike(values)))

        return apply

    def _dividing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def apply(a: Any, b: Any) -> Any:
            if b == 0:
                self.fail(ZERO_DIVISOR)
            return self.number(function(*_alike((a, b))))

        return apply

    def divide(self, a: Any, b: Any) -> Real:
        if b == 0:
            self.fail(ZERO_DIVISOR)
        return Real(float(a) / float(b))

    def power(self, a: int, b: int) -> Whole:
        if isinstance(a, float) or b < 0:
            raise TypeError("only whole numbers have powers")
        return self.whole(pow(int(a), int(b), _ALL + 1))

    def _shifting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def apply(a: Any, b: Any) -> Any:
            if not 0 <= b < 64:
                self.fail(BAD_SHIFT)
            return self.whole(function(a, b))

        return apply

    def _extreme(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def apply(*values: Any) -> Any:
            found = function(*values)
            mixed = isinstance(found, bool) and not all(isinstance(v, bool) for v in values)
            return self.number(int(found) if mixed else found)

        return apply

    def _rounding(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def apply(x: Any) -> Whole:
            if isinstance(x, float) and not (math.isfinite(x) and -_HALF <= function(x) < _HALF):
                self.fail(NO_WHOLE)
            return self.whole(function(x))

        return apply

    def range(self, *bounds: int) -> Iterator[Whole]:
        if len(bounds) == 3 and bounds[2] == 0:
            self.fail(NO_STRIDE)
        rounds = range(*map(op.index, bounds))
        if rounds and 1 + (rounds[-1] - rounds[0]) // rounds.step >= _HALF:
            self.fail(MANY_ROUNDS)
        return map(self.whole, rounds)


def _alike(values: Sequence[Any]) -> Sequence[Any]:
    """Doubles all, where one is."""
    if len(values) > 1 and any(isinstance(v, float) for v in values):
        return [float(v) for v in values]
    return values


class Literals(ast.NodeTransformer):
    """Hands a function's literals and operators to :class:`Arithmetic`; collects the literals.

    What is put in is called by names with spaces, which no program has. Nodes end on the line on which they begin, so
    that Python names that line for them as the compilers do.

    Args:
        attributes: the application's ``vertex_attributes``. They are read by name: an integer of Python has attributes
            of its own, which would hide those of the same name.
    """

    def __init__(self, attributes: Iterable[str] = ()) -> None:
        self.constants: dict[str, Any] = {}
        self._attributes = frozenset(attributes)

    def visit(self, node: ast.AST) -> Any:
        if hasattr(node, "lineno"):
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
            node.end_lineno = node.lineno  # type: ignore[attr-defined]
        return super().visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) not in (int, float):
            return node
        name = f"literal {node.value!r}"
        self.constants[name] = node.value
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return _operation(node, node.op, node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return node if isinstance(node.op, ast.Not) else _operation(node, node.op, node.operand)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        assert isinstance(node.target, ast.Name)
        before = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        new = ast.Assign([node.target], _operation(node, node.op, before, node.value))
        return ast.copy_location(new, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return _call(node, f"attribute {node.attr}", node.value) if node.attr in self._attributes else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute):  # a method, whatever attributes there are
            node.func = ast.copy_location(
                ast.Attribute(self.visit(node.func.value), node.func.attr, ast.Load()), node
            )
            node.args = [self.visit(value) for value in node.args]
            return node
        self.generic_visit(node)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.test = ast.copy_location(ast.BoolOp(ast.And(), [node.test, _call(node, "one more round")]), node)
        return node


def _call(node: ast.AST, name: str, *values: ast.expr) -> ast.expr:
    new = ast.Call(ast.Name(name, ast.Load()), list(values), [])
    for inner in (new, new.func):
        ast.copy_location(inner, node)
        inner.lineno = inner.end_lineno = node.lineno  # type: ignore[attr-defined]
    return new


def _operation(node: ast.AST, operator: ast.AST, *values: ast.expr) -> ast.expr:
    return _call(node, f"operator {type(operator).__name__}", *values)
