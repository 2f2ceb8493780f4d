"""Random sampling applications as source text, for the differential fuzzer.

Programs are drawn statement by statement. The generator knows what every name stands for where a statement begins, so
that most programs mean something; now and then it reads a name that may mean two things, or takes an operand of another
kind, which the front end is to refuse or to compile as Python has it.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import linecache
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import gnnsample_lab as lab

BYTES = 700
"""Choices of a program at most."""
NUM_NODES = 23  # prime: `x % s.num_nodes()` shows every bit of x
SAMPLES = 5

HEAD = """import numpy as np
import gnnsample_lab as lab

LIMIT, SCALE, FLAG, BIG = 3, 0.75, True, 3037000500


class App(lab.SamplingApp):
    def next(self, s, transits, src_edges, step, rng):
"""
REST = """
    {transits}
    largest, odd, four, half, none, flag, endless = 2**63 - 1, 2**53 + 1, 4, 0.5, float("nan"), False, float("inf")

    def __init__(self):
        self.whole = np.array([0, 2, 3, 3, 9], dtype=np.int32)
        self.wide = np.array([-(2**62), -1, 0, 7, 2**53, 2**62])
        self.single = np.array([-0.5, 0.1, 0.25, 2.0], dtype=np.float32)
        self.double = np.array([-1e308, -0.0, 0.3, 1.0, 4.5, 1e17])
        self.flags = np.array([True, False, True])
        self.plain = [4, 1, 3]
        self.empty = np.zeros(0)

    def steps(self):
        return {steps}

    def sample_size(self, step):
        return {size}

    def num_transits(self, step):
        return {num_transits}

    def unique(self, step):
        return {unique}

    def sampling_type(self):
        return lab.SamplingType.{kind}

    def scaled(self, x, y):
        return x * self.four + y

    def is_small(self, x):
        return x < self.half

    def drawn(self, edges, rng):
        if len(edges) == 0:
            return -1
        return edges[rng.below(len(edges))]

    def list_of(self, v):
        return v.edges()

    def total(self, table):
        found = 0
        for x in table:
            found += x > 1
        return found


def larger(a, b):
    if a > b:
        return a
    return b


def halved(x):
    y = x / 2
    if y > SCALE:
        y = SCALE
    return y


def last_of(edges):
    n = len(edges)
    return edges[n - 1]


def weigh(edges, i):
    total = edges.prefix(i)
    return total - LIMIT
"""
TABLES = {
    "whole": "int",
    "wide": "int",
    "plain": "int",
    "single": "float",
    "double": "float",
    "flags": "bool",
}
WHOLES = (
    "0", "1", "2", "3", "5", "7", "-1", "-2", "64", "63", "1000003", "3037000500", "4294967296", "9007199254740993",
    "9223372036854775807", "-9223372036854775807", "LIMIT", "BIG", "self.four", "self.largest", "self.odd",
)  # fmt: skip
REALS = (
    "0.0", "-0.0", "0.5", "1.5", "2.5", "-3.25", "1e308", "5e-324", "9007199254740992.0", "9.3e18", "0.1", "SCALE",
    "self.half", "self.none", "self.endless",
)  # fmt: skip
NAMES = ("a", "b", "c", "d", "e", "f")
SHADOWS = ("LIMIT", "SCALE", "FLAG", "min", "abs", "larger", "step", "src_edges", "transits", "lab")
"""Names that mean something before a program assigns to them."""


@dataclasses.dataclass(frozen=True)
class Program:
    """An application as text, and how it is to be run.

    Attributes:
        source: a module with a class ``App``; ``def next`` stands on the same line in every program.
        roots: per sample. weighted: whether the graph has weights.
    """

    source: str
    roots: int = 1
    weighted: bool = False

    def __repr__(self) -> str:
        body, rest = self.source[len(HEAD) :].split("    largest, odd,")
        knobs = rest[rest.index("    def steps") : rest.index("    def scaled")]
        return f"roots={self.roots} weighted={self.weighted}\n{body}{' '.join(knobs.split())}"

    def load(self, folder: Path) -> Any:
        """The application, from a file of its own in ``folder``: ``inspect`` reads its source there."""
        path = folder / f"program_{os.getpid()}{next(_numbers):06}.py"
        path.write_text(self.source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        try:
            spec.loader.exec_module(module)
        finally:
            del sys.modules[path.stem]
        linecache.checkcache(str(path))
        return module.App()

    def graph(self) -> Any:
        return graph(self.weighted)

    def initial(self) -> np.ndarray:
        """Roots, ``int64[SAMPLES, roots]``: some vertices without edges, and some that are not there."""
        drawn = np.random.default_rng(self.roots).integers(0, NUM_NODES - 2, (SAMPLES, self.roots))
        drawn[1, 0] = NUM_NODES - 1
        drawn[2, -1] = -1
        return drawn


_numbers = itertools.count()
_graphs: dict[bool, Any] = {}


def graph(weighted: bool) -> Any:
    """Hubs, self-loops, parallel edges, vertices without in-neighbours, and weights of 0."""
    if weighted not in _graphs:
        draw = np.random.default_rng(8)
        src, dst = np.minimum(draw.integers(0, NUM_NODES, (2, 90)), draw.integers(0, NUM_NODES - 3, (2, 90)))
        src[:3], dst[:3] = 4, 4
        weight = draw.integers(0, 5, 90).astype(np.float32) if weighted else None
        _graphs[weighted] = lab.Graph.from_edges(src, dst, NUM_NODES, edge_weight=weight)
    return _graphs[weighted]


def of(body: str, **more: Any) -> Program:
    """The program whose ``next`` is ``body``."""
    knobs = {
        "steps": 2, "size": 2, "num_transits": None, "unique": False, "kind": "INDIVIDUAL", "transits": "",
        **{k: more.pop(k) for k in list(more) if k not in ("roots", "weighted")},
    }  # fmt: skip
    text = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return Program(HEAD + text + "\n" + REST.format(**knobs), **more)


Scope = dict[str, str]
"""Name -> what it stands for: "int", "float", "bool", "list" (of a vertex), "own" (src_edges), "transits", "roots",
or "table <name>"."""


class Choices:
    """Choices that bytes make, one each; the first of all where no byte is left. Small bytes choose simple things."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def below(self, n: int) -> int:
        return next(self._data, 0) % n

    def pick(self, items: Sequence[Any]) -> Any:
        return items[self.below(len(items))]

    def often(self, n: int) -> bool:
        """True n times of 16."""
        return self.below(16) >= 16 - n


class Writer:
    """Writes one program."""

    def __init__(self, choices: Choices, deferred: bool, replaces: bool, in_transits: bool = False) -> None:
        self.below, self.pick, self.often = choices.below, choices.pick, choices.often
        self.deferred, self.replaces, self.in_transits = deferred, replaces, in_transits
        self.counters = 0
        self.loops = 0
        self.room = 14
        """Statements that may still be written."""

    def named(self, scope: Scope, kind: str) -> list[str]:
        return [name for name, known in scope.items() if known == kind]

    def variables(self, scope: Scope) -> list[str]:
        """Integers that may change: the counters of ``while`` loops may not, or the loops would not end."""
        return [name for name in self.named(scope, "int") if not name[-1].isdigit()]

    # ---- expressions ------------------------------------------------------------------------------------------

    def whole(self, scope: Scope, depth: int = 2) -> str:
        """An integer."""
        if depth <= 0 or self.often(4):
            names = self.named(scope, "int")
            return self.pick(names) if names and self.often(11) else self.pick(WHOLES)
        if self.often(1):  # of another kind: refused, or converted
            return self.pick((self.real, self.flag))(scope, depth - 1)
        return self.pick(self.WHOLE)(self, scope, depth - 1)

    def real(self, scope: Scope, depth: int = 2) -> str:
        """A double."""
        if depth <= 0 or self.often(4):
            names = self.named(scope, "float")
            return self.pick(names) if names and self.often(11) else self.pick(REALS)
        return self.pick(self.REAL)(self, scope, depth - 1)

    def flag(self, scope: Scope, depth: int = 2) -> str:
        """A truth value."""
        if depth <= 0 or self.often(1):
            names = self.named(scope, "bool")
            return (
                self.pick(names)
                if names and self.often(11)
                else self.pick(("True", "False", "FLAG", "self.flag"))
            )
        return self.pick(self.FLAG)(self, scope, depth - 1)

    def edges(self, scope: Scope, depth: int = 1) -> str:
        """A list of edges."""
        known = self.named(scope, "list") + ([] if self.deferred else self.named(scope, "own"))
        if known and self.often(9):
            return self.pick(known)
        if self.often(2):
            return f"s.prev_edges({self.pick((1, 1, 2, 3))}, {self.pick((0, 0, 0, 1))})"
        if self.often(2):
            return f"self.list_of({self.vertex(scope, depth)})"
        return f"{self.vertex(scope, depth)}.edges()"

    def vertex(self, scope: Scope, depth: int = 1) -> str:
        """An integer that is most often a vertex, fit for a method."""
        way = self.below(10)
        names = self.named(scope, "transits")
        if way < 4 and names:
            return f"{self.pick(names)}[0]"
        if way < 6:
            return f"s.prev_vertex({self.pick((1, 1, 2, 9))}, 0)"
        if way < 7:
            return f"s.roots[{self.pick((0, 0, 0, 's.num_roots() - 1', 1))}]"
        return f"({self.whole(scope, depth)} % s.num_nodes())"

    def table(self, scope: Scope, *kinds: str) -> tuple[str, str]:
        """An array, and what its items are."""
        fitting = [name for name, kind in TABLES.items() if kind in kinds]
        known = [n for n, role in scope.items() if role.startswith("table ") and role.split()[1] in fitting]
        if known and self.often(8):
            name = self.pick(known)
            return name, scope[name].split()[1]
        name = self.pick(fitting)
        return f"self.{name}", name

    def at(self, scope: Scope, length: str, depth: int) -> str:
        """An index that is most often inside."""
        if self.often(1):
            return self.pick(("-1", length, self.whole(scope, depth)))
        if self.often(5):
            return self.pick(("0", f"{length} - 1", f"rng.below({length})"))
        return f"{self.whole(scope, depth)} % {length}"

    def item(self, scope: Scope, depth: int, kind: str) -> str:
        name, _ = self.table(scope, kind)
        return f"{name}[{self.at(scope, f'len({name})', depth)}]"

    def edge(self, scope: Scope, depth: int) -> str:
        e = self.edges(scope)
        if self.often(3):
            return f"{e}[{self.at(scope, f'len({e})', depth)}]"
        return f"({e}[{self.at(scope, f'len({e})', depth)}] if len({e}) > 0 else {self.pick(('-1', '0', 'step'))})"

    def any_edges(self, scope: Scope) -> str:
        """A list whose entries are not read: ``src_edges`` too in the deferred form."""
        own = self.named(scope, "own")
        return self.pick(own) if own and self.often(8) else self.edges(scope)

    def weights(self, scope: Scope, depth: int) -> str:
        e = self.any_edges(scope)
        inside = self.at(scope, f"len({e})", depth)
        what = self.pick((
            f"{e}.weight({inside})", f"{e}.prefix({inside})", f"{e}.prefix(len({e}))",
            f"{e}.search({self.at(scope, f'{e}.prefix(len({e}))', depth)})",
        ))  # fmt: skip
        return what if self.often(3) else f"({what} if {e}.prefix(len({e})) > 0 else -1)"

    def number_of(self, scope: Scope, depth: int) -> str:
        del depth
        e = self.any_edges(scope)
        transits = self.named(scope, "transits")
        return self.pick((
            "step", "s.size()", "s.id()", "s.slot()", "s.transit_index()", "s.num_nodes()", "s.num_roots()",
            f"s.prev_count({self.pick((1, 2, 5))})", f"len({e})", "len(s.roots)", f"{self.vertex(scope)}.degree()",
            f"{self.vertex(scope)}.max_edge_weight()", f"len({self.table(scope, 'int', 'float', 'bool')[0]})",
            *[f"len({t})" for t in transits], self.vertex(scope),
        ))  # fmt: skip

    def random(self, scope: Scope, depth: int) -> str:
        return self.pick((
            "rng.bits()", "rng.below(10)", f"rng.below({self.whole(scope, 0)})", "rng.below(6000000000)",
            f"rng.below(abs({self.whole(scope, depth)}) // 2 + 1)",
        ))  # fmt: skip

    def arithmetic(self, scope: Scope, depth: int) -> str:
        operator = self.pick(("+", "-", "*", "+", "-", "*", "&", "|", "^"))
        return f"({self.whole(scope, depth)} {operator} {self.whole(scope, depth)})"

    def division(self, scope: Scope, depth: int) -> str:
        right = self.whole(scope, depth) if self.often(3) else f"({self.whole(scope, depth)} | 1)"
        return f"({self.whole(scope, depth)} {self.pick(('//', '%'))} {right})"

    def shift(self, scope: Scope, depth: int) -> str:
        count = self.whole(scope, depth) if self.often(2) else f"({self.whole(scope, depth)} & 63)"
        return f"({self.whole(scope, depth)} {self.pick(('<<', '>>'))} {count})"

    def power(self, scope: Scope, depth: int) -> str:
        return f"{self.whole(scope, depth)} ** {self.pick((0, 1, 2, 3, 7))}" if self.often(3) else (
            f"({self.whole(scope, depth)}) ** {self.pick((0, 1, 2, 3, 7))}"
        )  # fmt: skip

    def rounded(self, scope: Scope, depth: int) -> str:
        function = self.pick(("int", "int", "round"))
        if self.often(3):
            return f"{function}({self.real(scope, depth)})"
        x = self.real(scope, depth)
        return f"(int({x}) if abs({x}) < 1e15 else 11)"

    def of_several(self, scope: Scope, depth: int) -> str:
        function = self.pick(("min", "max", "min", "max", "abs", "larger"))
        count = {"abs": 1, "larger": 2}.get(function, 2 + self.often(3))
        return f"{function}({', '.join(self.whole(scope, depth) for _ in range(count))})"

    def chosen(self, scope: Scope, depth: int, kind: str = "whole") -> str:
        value = getattr(self, kind)
        form = self.pick(("{1} if {0} else {2}", "{1} if {0} else {2}", "{1} and {2}", "{1} or {2}"))
        return "(" + form.format(self.flag(scope, depth), value(scope, depth), value(scope, depth)) + ")"

    def helped(self, scope: Scope, depth: int) -> str:
        e = self.edges(scope)
        return self.pick((
            f"self.scaled({self.whole(scope, depth)}, {self.whole(scope, depth)})", f"self.drawn({e}, rng)",
            f"(last_of({e}) if len({e}) > 0 else 1)", f"weigh({e}, len({e}))",
            f"self.total({self.table(scope, 'int', 'bool')[0]})", f"int(halved({self.real(scope, 0)}) * 0.0 == 0.0)",
        ))  # fmt: skip

    def searched(self, scope: Scope, depth: int) -> str:
        name, table = self.table(scope, "int", "float")
        if TABLES[table] == "float":
            return f"{name}.search({self.pick((self.real, self.whole))(scope, depth)})"
        return f"{name}.search({self.whole(scope, depth)})"

    def summed(self, scope: Scope, depth: int) -> str:
        return f"({self.flag(scope, depth)} + {self.pick((self.whole, self.flag))(scope, depth)})"

    def signed(self, scope: Scope, depth: int) -> str:
        return f"{self.pick(('-', '~', '+', '-'))}({self.whole(scope, depth)})"

    WHOLE = (
        arithmetic, arithmetic, division, shift, power, rounded, of_several, chosen, helped, searched, summed, signed,
        number_of, number_of, number_of, random, weights, edge, edge, lambda self, s, d: self.item(s, d, "int"),
    )  # fmt: skip

    def real_arithmetic(self, scope: Scope, depth: int) -> str:
        sides = [self.real(scope, depth), self.pick((self.real, self.real, self.whole))(scope, depth)]
        if self.often(4):
            sides.reverse()
        return f"({sides[0]} {self.pick(('+', '-', '*'))} {sides[1]})"

    def quotient(self, scope: Scope, depth: int) -> str:
        kinds = (self.real, self.whole)
        right = self.pick(kinds)(scope, depth)
        return f"({self.pick(kinds)(scope, depth)} / {right if self.often(4) else f'(abs({right}) + 1)'})"

    def real_call(self, scope: Scope, depth: int) -> str:
        a, b = self.real(scope, depth), self.real(scope, depth)
        return self.pick((
            f"float({self.whole(scope, depth)})", f"abs({a})", f"-{a}", f"min({a}, {b})", f"max({a}, {b})",
            f"larger({a}, {b})", f"halved({a})", "rng.uniform()", "rng.uniform()",
            f"self.scaled({a}, {b})",
        ))  # fmt: skip

    REAL = (
        real_arithmetic, real_arithmetic, quotient, real_call, real_call,
        lambda self, s, d: self.chosen(s, d, "real"), lambda self, s, d: self.item(s, d, "float"),
    )  # fmt: skip

    def compared(self, scope: Scope, depth: int) -> str:
        kinds = self.pick(((self.whole,), (self.whole,), (self.real,), (self.whole, self.real)))
        parts = [self.pick(kinds)(scope, depth)]
        for _ in range(1 + self.often(3)):
            parts += [self.pick(("<", "<=", ">", ">=", "==", "!=")), self.pick(kinds)(scope, depth)]
        return f"({' '.join(parts)})"

    def joined(self, scope: Scope, depth: int) -> str:
        a, b = self.flag(scope, depth), self.flag(scope, depth)
        return self.pick((f"({a} and {b})", f"({a} or {b})", f"(not {a})", f"({a} & {b})", f"({a} ^ {b})"))

    def asked(self, scope: Scope, depth: int) -> str:
        v = self.vertex(scope, depth)
        return self.pick((
            f"{self.edges(scope)}.has({v})", f"{self.vertex(scope)}.has_edge({v})",
            f"rng.chance({self.real(scope, depth)})", f"self.is_small({self.real(scope, depth)})",
            f"bool({self.whole(scope, depth)})", self.item(scope, depth, "bool"),
        ))  # fmt: skip

    FLAG = (compared, compared, compared, joined, asked, asked)

    # ---- statements -------------------------------------------------------------------------------------------

    def block(self, scope: Scope, depth: int) -> tuple[list[str], bool]:
        """Statements, at least one, over ``scope``, which they change; whether they end here for good."""
        lines: list[str] = []
        for _ in range(1 + self.below(4)):
            if self.room <= 0:
                break
            self.room -= 1
            more, ended = self.pick(self.STATEMENTS)(self, scope, depth)
            lines += more
            if ended:
                return lines, True
        return lines or ["pass"], False

    def target(self, scope: Scope) -> str:
        del scope
        return self.pick(SHADOWS) if self.often(1) else self.pick(NAMES)

    def assign(self, scope: Scope, depth: int) -> tuple[list[str], bool]:
        name = self.target(scope)
        kind = scope.get(name) if self.often(13) else None
        if kind not in ("int", "float", "bool", "list"):
            kind = self.pick(("int", "int", "int", "float", "float", "bool", "list", "list"))
        text = {"int": self.whole, "float": self.real, "bool": self.flag, "list": self.edges}[kind](scope)
        scope[name] = kind
        return [f"{name}{self.pick(('', '', '', ': object'))} = {text}"], False

    def rebind(self, scope: Scope, depth: int) -> tuple[list[str], bool]:
        """A name for an argument or an array, or for what another name stands for."""
        roles = [(f"self.{name}", f"table {name}") for name in TABLES]
        roles += [("s.roots", "roots")] if not self.replaces else []
        roles += [(name, kind) for name, kind in scope.items() if kind not in ("int", "float", "bool")]
        text, kind = self.pick(roles)
        name = self.pick(NAMES)
        scope[name] = kind
        return [f"{name} = {text}"], False

    def change(self, scope: Scope, depth: int) -> tuple[list[str], bool]:
        """An assignment that reads what it changes."""
        names = self.variables(scope) + self.named(scope, "float")
        if not names:
            return self.assign(scope, depth)
        name = self.pick(names)
        if scope[name] == "int":
            operator = self.pick(("+=", "-=", "*=", "^=", "|=", "&=", "<<=", "//=", "%="))
            text = f"({self.whole(scope, 1)} {'| 1' if operator in ('//=', '%=') else '& 31'})"
            return [f"{name} {operator} {text}"], False
        return [
            f"{name} {self.pick(('+=', '-=', '*='))} {self.pick((self.real, self.whole))(scope, 1)}"
        ], False

    def several(self, scope: Scope, depth: int) -> tuple[list[str], bool]:
        """Names that change at once."""
        names = self.variables(scope)
        if len(names) < 2 or self.often(4):
            a, b = self.pick((("a", "b"), ("c", "a"), ("d", "e")))
            lines = [f"{a} = {b} = {self.whole(scope, 1)}"]
            scope[a] = scope[b] = "int"
            return lines, False
        a, b = names[0], names[-1]
        return [f"{a}, {b} = {self.pick((b, self.whole(scope, 1)))}, {self.whole(scope, 1)}"], False

    def branch(self, scope: Scope, depth: int) -> tuple[list[str], bool]:
        if depth <= 0:
            return self.assign(scope, depth)
        lines, ends, scopes = [f"if {self.flag(scope)}:"], [], []
        arms = 1 + self.often(9) + self.often(3)
        for arm in range(arms):
            if arm:
                lines.append("else:" if arm == arms - 1 else f"elif {self.flag(scope)}:")
            inner = dict(scope)
            body, ended = self.block(inner, depth - 1)
            lines += ["    " + line for line in body]
            ends.append(ended)
            scopes += [] if ended else [inner]
        whole = arms > 1
        if not whole:
            scopes.append(dict(scope))
        self.join(scope, scopes)
        return lines, whole and all(ends)

    def join(self, scope: Scope, scopes: list[Scope]) -> None:
        """What names stand for where paths meet; now and then, one that differs is kept."""
        if not scopes:
            return
        names = set().union(*scopes)
        careless = self.often(1)
        scope.clear()
        for name in sorted(names):
            kinds = {s.get(name) for s in scopes}
            found = sorted(k for k in kinds if k)
            if len(kinds) == 1 or careless:
                scope[name] = self.pick(found)

    def loop(self, scope: Scope, depth: int) -> tuple[list[str], bool]:
        if depth <= 0 or self.loops == 2:
            return self.change(scope, depth)
        name = self.pick(NAMES)
        before, inner = dict(scope), dict(scope)
        way = self.below(8)
        self.counters += 1
        counter = f"n{self.counters}"
        head: list[str] = []
        first: list[str] = []
        if way < 2:
            bounds = self.pick((
                "4", "1, 6, 2", "5, 0, -2", f"{self.whole(scope, 1)} % 4", f"s.slot(), {self.pick((3, 5))}",
                f"0, 4, {self.pick((1, 2, 'LIMIT', 'step'))}", f"{self.whole(scope, 1)} & 3, 6",
            ))  # fmt: skip
            head, kind = [f"for {name} in range({bounds}):"], "int"
        elif way < 4:
            head, kind = [f"for {name} in {self.edges(scope)}:"], "int"
        elif way < 5:
            table, which = self.table(scope, "int", "float", "bool")
            head, kind = [f"for {name} in {table}:"], TABLES[which]
        elif way < 6:
            walked = [*self.named(scope, "transits"), "s.roots"]
            head, kind = [f"for {name} in {self.pick(walked)}:"], "int"
        else:
            head = [f"{counter} = 0", f"while {counter} < {self.pick((3, 5))} and {self.flag(scope)}:"]
            first, kind, name = [f"    {counter} += 1"], "int", counter
        inner[name] = kind
        self.loops += 1
        # A name that the body binds anew means two things where the body begins, but for one round.
        body, ended = self.block(inner, depth - 1)
        if not ended and self.often(4):
            body += [f"if {self.flag(inner, 1)}:", f"    {self.pick(('break', 'continue'))}"]
        self.loops -= 1
        self.join(scope, [before] if ended else [before, inner])
        if name == counter:
            scope[name] = "int"
        return [*head, *first, *["    " + line for line in body]], False

    def leave(self, scope: Scope, depth: int) -> tuple[list[str], bool]:
        if not self.often(4):
            return self.change(scope, depth)
        return [self.result(scope)], True

    def effect(self, scope: Scope, depth: int) -> tuple[list[str], bool]:
        way = self.below(10)
        if way == 0:
            return [f"assert {self.flag(scope)}, 'not so'"], False
        if way == 1:
            return [
                f"if {self.flag(scope)} and {self.flag(scope)}:",
                "    raise ValueError('no good')",
            ], False
        if way < 6 and self.replaces:
            new = self.pick((self.vertex(scope), self.whole(scope, 1)))
            return [
                f"s.roots.replace({self.pick(('s.roots[0]', 's.roots[0]', self.vertex(scope)))}, {new})"
            ], False
        return [self.pick((self.random(scope, 1), self.whole(scope, 1)))], False

    STATEMENTS = (
        assign, assign, assign, change, change, several, branch, branch, loop, loop, leave, effect, rebind,
    )  # fmt: skip

    def result(self, scope: Scope) -> str:
        """A return."""
        if self.deferred and not self.in_transits:
            own = self.pick(self.named(scope, "own") or ["src_edges"])
            inside = self.at(scope, f"len({own})", 1)
            return self.pick((
                f"return {own}[{inside}]", f"return {own}[{inside}] if len({own}) > 0 else -1", "return lab.NULL",
                f"return {own}[{inside}] if {self.flag(scope, 1)} else {own}[0]",
                f"return {own}[{inside}] if len({own}) > 1 else lab.NULL",
            ))  # fmt: skip
        if self.often(1):
            return self.pick((
                "return", "return None", "return -1", f"return {self.flag(scope, 1)}", f"return {self.real(scope, 1)}",
                f"return {self.whole(scope, 1)}", f"return {self.edge(scope, 1)}",
            ))  # fmt: skip
        numbers = [name for name, kind in scope.items() if kind in ("int", "bool")]
        text = " + ".join([self.whole(scope), *(f"{i + 2} * {name}" for i, name in enumerate(numbers[:4]))])
        for name in self.named(scope, "float")[:1]:
            text += f" + 5 * ({name} > {self.pick(REALS)})"
        return f"return ({text}) % s.num_nodes()"


def write(data: bytes) -> Program:
    """The application that ``data`` chooses."""
    choices = Choices(data)
    below, often = choices.below, choices.often
    collective, deferred, replaces = often(4), often(4), often(2)
    writer = Writer(choices, deferred, replaces)
    scope: Scope = {"step": "int", "transits": "transits", "src_edges": "own"}
    lines = ["if len(src_edges) == 0:", "    return lab.NULL"] if often(8) else []
    for _ in range(below(4)):
        lines += writer.assign(scope, 1)[0]
    ended = False
    for _ in range(2):
        if not ended:
            more, ended = writer.block(scope, 3)
            lines += more
    if not ended and not often(1):
        lines.append(writer.result(scope))
    transits = ""
    if replaces or often(2):
        chooser = Writer(choices, False, False, in_transits=True)
        chooser.room = 4
        inside: Scope = {"step": "int", "transit_idx": "int"}
        body, ended = chooser.block(inside, 2)
        if not ended:
            body.append(
                choices.pick((chooser.result(inside), "return s.prev_vertex(1, 0)", "return s.roots[0]"))
            )
        transits = "\n    def step_transits(self, step, s, transit_idx, rng):\n" + "".join(
            f"        {line}\n" for line in body
        )
    return of(
        "\n".join(lines), transits=transits, steps=1 + below(3), size=1 if replaces or often(4) else 1 + below(4),
        num_transits=1 if replaces else choices.pick((None, None, None, 2)), unique=not replaces and often(2),
        kind="COLLECTIVE" if collective else "INDIVIDUAL", roots=1 + below(3), weighted=often(8),
    )  # fmt: skip


def programs() -> st.SearchStrategy[Program]:
    """Random applications."""
    return st.binary(min_size=BYTES, max_size=BYTES).map(write)
