"""From an application's Python methods to plain functions over a context, for both compilers.

``next(self, s, transits, src_edges, step, rng)`` is read as source and written anew as ``lab_next(ctx, step)``: what it
does with its arguments becomes calls of *accessors* (:data:`ACCESSORS`), which exist once for Numba and once in CUDA;
numbers on ``self`` become constants, arrays on ``self`` numbered tables. Every statement keeps its line number, so
that compilers name the user's lines, and accessors that can fail are told theirs.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import inspect
import linecache
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .app import SamplingApp, SamplingAppError
from .expressions import Failure, NotDeferrable
from .rewriter import Method, Rewriter

ACCESSORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lab_edge_count": ("i8", ("ctx",)),
    "lab_edge": ("i8", ("ctx", "i8", "i4")),
    "lab_edge_weight": ("i8", ("ctx", "i8", "i4")),
    "lab_edge_prefix": ("i8", ("ctx", "i8", "i4")),
    "lab_edge_search": ("i8", ("ctx", "i8", "i4")),
    "lab_edge_has": ("i8", ("ctx", "i8", "i4")),
    "lab_transit_count": ("i8", ("ctx",)),
    "lab_transit": ("i8", ("ctx", "i8", "i4")),
    "lab_prev_vertex": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_prev_count": ("i8", ("ctx", "i8", "i4")),
    "lab_root_count": ("i8", ("ctx",)),
    "lab_root": ("i8", ("ctx", "i8", "i4")),
    "lab_root_replace": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_size": ("i8", ("ctx",)),
    "lab_sample_id": ("i8", ("ctx",)),
    "lab_slot": ("i8", ("ctx",)),
    "lab_transit_index": ("i8", ("ctx",)),
    "lab_num_nodes": ("i8", ("ctx",)),
    "lab_degree": ("i8", ("ctx", "i8", "i4")),
    "lab_max_weight": ("i8", ("ctx", "i8", "i4")),
    "lab_neighbor": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_neighbor_weight": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_neighbor_prefix": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_neighbor_search": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_has_edge": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_bits": ("i8", ("ctx",)),
    "lab_below": ("i8", ("ctx", "i8", "i4")),
    "lab_uniform": ("f8", ("ctx",)),
    "lab_chance": ("i8", ("ctx", "f8")),
    "lab_table_int": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_table_float": ("f8", ("ctx", "i8", "i8", "i4")),
    "lab_table_search": ("i8", ("ctx", "i8", "i8", "i4")),
    "lab_go_on": ("i8", ("ctx", "i4")),
    "lab_fail": ("i8", ("ctx", "i4", "i4")),
}
"""Name -> (result, arguments) of what rewritten functions call; ``ctx`` is a pointer, ``i4`` a line or a code."""

USES_WEIGHTS = frozenset({
    "lab_edge_weight", "lab_edge_prefix", "lab_edge_search", "lab_max_weight", "lab_neighbor_weight",
    "lab_neighbor_prefix", "lab_neighbor_search",
})  # fmt: skip
USES_EDGES = frozenset({"lab_edge", "lab_edge_weight", "lab_edge_prefix", "lab_edge_search", "lab_edge_has"})
"""Accessors that read ``src_edges``; an application without them needs no combined neighbourhood."""

FAILURES = {
    1: "index outside the list of edges",
    2: "vertex outside the graph",
    3: "rng.below() of a number below 1",
    4: "division by zero",
    5: "raised",
    6: "next returned neither a vertex nor NULL",
    7: "roots.replace() of a vertex that is no root",
    8: "position outside the step",
    9: "index outside the table",
    10: "a while loop of more than 1,048,576 rounds",
}
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
