"""Rewrites a method of an application into a function of ``ctx``; see :mod:`.frontend` for what for."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .expressions import DIVISOR, DIVISOR_SOURCE, Failure, Value
from .scope import Scope


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
        from .frontend import source_of

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
        from .frontend import source_of

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
