"""Statements of a sampling function: one method or helper being rewritten."""

from __future__ import annotations

import ast
from typing import Any

from .expressions import (
    Expressions,
    Failure,
    NotDeferrable,
    Value,
    at,
    call,
    node_of,
    number,
    plain_call,
    plain_function,
    words,
)
from .methods import ITEMS, ROLE_NAMES


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
