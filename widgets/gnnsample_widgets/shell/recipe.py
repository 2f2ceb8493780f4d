"""Recipes: plain functions that an explorer runs, and whose source it hands over.

A recipe names the steps from a graph to figures, in order::

    recipe = {"batch": sample, "shown": draw}

A step's function takes what it needs by the names of its parameters: what was given (the graph, the device, the values
of the controls) and the results of earlier steps. The same functions are run by :func:`follow` and written out by
:func:`hand_over`, so that what is shown and what is handed over cannot differ.

A step runs when its result is asked for, and not before. Where the last one is :class:`Panels`, a figure that nobody
looks at costs nothing, nor do the steps that it alone needs::

    recipe = {"batch": sample, "shown": Panels(work=draw_work, times=draw_times)}

What takes long grows: whoever follows a recipe is told after each value of an :class:`Each`, and whenever a step calls
:func:`so_far`, and may draw what there is.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import sys
import textwrap
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

GRAPHS = {
    "host": 'host = to_device(g, "cpu")',
    "on_device": "on_device = to_device(g, device)",
}
"""The given graph as functions may ask for it, besides ``g`` itself: its topology on the CPU, and on ``device``."""
LAST = "shown"
"""The step that makes the figures: name of a panel -> figure."""


@dataclass(frozen=True)
class Each:
    """A step that is made once for every value of a list: ``{value: make(..., value) for value in of}``.

    Attributes:
        make: the function.
        name: its parameter that takes one value.
        of: what lists the values.
    """

    make: Callable[..., Any]
    name: str
    of: str


@dataclass(frozen=True)
class Where:
    """A panel that is there only where the result of step ``there`` is not None."""

    make: Callable[..., Any]
    there: str


class Panels:
    """The last step as one function for each panel, in their order: each draws its figure when it is looked at.

    Args:
        **panels: name of a panel -> what draws it, a function or :class:`Where`.
    """

    def __init__(self, **panels: Callable[..., Any] | Where) -> None:
        self.panels = panels


Step = Callable[..., Any] | Each | Panels
Recipe = Mapping[str, Step]
_running = threading.local()


def so_far(result: Any) -> None:
    """From within a step of :class:`Each`: what there is of its result. Outside an explorer it does nothing."""
    for told in getattr(_running, "told", ())[-1:]:
        told(result)


class Made(Mapping[str, Any]):
    """What a recipe was given and what its steps make, by name; a step runs when its result is asked for.

    Args:
        recipe, given, remember, told: as :func:`follow` takes them.
    """

    def __init__(
        self,
        recipe: Recipe,
        given: Mapping[str, Any],
        remember: Callable[[Hashable, Callable[[], Any]], Any],
        told: Callable[[SoFar], None] | None = None,
    ) -> None:
        self._recipe, self._remember, self._told = recipe, remember, told
        self._given, self._num_made = given, 0
        self._made = {name: value for name, value in given.items() if name not in recipe}
        self._keys: dict[str, Hashable] = {
            name: name if name == "g" or name in GRAPHS else (name, repr(value))
            for name, value in self._made.items()
        }

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._run(name, self._recipe[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._keys, *self._recipe]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def key(self, name: str) -> Hashable:
        """All that a given value or the result of a step depends on; nothing is run to know it."""
        if name not in self._keys:
            step = self._recipe[name]
            rest = [self.key(step.of)] if isinstance(step, Each) else []
            self._keys[name] = (*self.key_of(step), *rest)
        return self._keys[name]

    def _is_there(self, panel: Callable[..., Any] | Where) -> bool:
        return not isinstance(panel, Where) or self[panel.there] is not None

    def key_of(self, step: Step) -> tuple[Hashable, ...]:
        """All that what a step makes depends on, the step's function first."""
        return (_function(step), *(self.key(name) for name in _wanted(step)))

    def call(self, step: Step, **value: Any) -> Any:
        """Run one step with what it asks for."""
        return _function(step)(**{name: self[name] for name in _wanted(step)}, **value)

    def _run(self, name: str, step: Step) -> Any:
        if isinstance(step, Panels):
            return Figures(self, {n: _function(p) for n, p in step.panels.items() if self._is_there(p)})
        if name == LAST:
            return self.call(step)
        if isinstance(step, Each):
            return self._run_each(name, step)
        return self._remember(self.key(name), functools.partial(self.call, step))

    def _run_each(self, name: str, step: Each) -> dict[Any, Any]:
        shared, values = self.key_of(step), list(self[step.of])
        found = {}
        for value in values:
            before = self._num_made
            found[value] = self._remember((*shared, value), functools.partial(self._make, name, step, value))
            if self._num_made > before and len(found) < len(values):
                self._tell({})
        return found

    def _make(self, name: str, step: Each, value: Any) -> Any:
        for wanted in _wanted(step):
            _ = self[wanted]  # steps of their own, with reports of their own
        self._num_made += 1
        with self._listening(name, value):
            return self.call(step, **{step.name: value})

    @contextlib.contextmanager
    def _listening(self, name: str, value: Any) -> Iterator[None]:
        before = getattr(_running, "told", ())
        _running.told = (*before, lambda part: self._tell({(name, value): part}))
        try:
            yield
        finally:
            _running.told = before

    def _tell(self, parts: dict[tuple[str, Any], Any]) -> None:
        if self._told is not None:
            self._told(SoFar(self, parts))


class SoFar(Made):
    """What there is of a recipe's results while it is being followed: of an :class:`Each` the values made already.

    Args:
        whole: what is being followed.
        parts: (step, value) -> what there is of a value that is being made.
    """

    def __init__(self, whole: Made, parts: Mapping[tuple[str, Any], Any]) -> None:
        super().__init__(whole._recipe, whole._given, whole._remember)
        self._parts = parts
        self._open: dict[str, bool] = {}

    def is_open(self, name: str) -> bool:
        """Whether there will be more of this step's result, or of what it is made of."""
        if name not in self._recipe:
            return False
        if name not in self._open:
            step = self._recipe[name]
            self._open[name] = any(map(self.is_open, _wanted(step)))
            if isinstance(step, Each) and not self._open[name]:
                self._open[name] = len(self[name]) < len(self[step.of]) or any(
                    n == name for n, _ in self._parts
                )
        return self._open[name]

    def figure(self, panel: str) -> Any:
        """A panel's figure of what there is; None where there is no panel, or no more than will be seen anyway."""
        if not self.changes(panel) or not self._is_there(self._panels()[panel]):
            return None
        return self.call(_function(self._panels()[panel]))

    def changes(self, panel: str) -> bool:
        """Whether there will be more of what a panel shows."""
        return panel in self._panels() and any(map(self.is_open, _wanted(self._panels()[panel])))

    def _panels(self) -> Mapping[str, Callable[..., Any] | Where]:
        step = self._recipe[LAST]
        return step.panels if isinstance(step, Panels) else {}

    def _run(self, name: str, step: Step) -> Any:
        if not isinstance(step, Each) and self.is_open(name):
            return self.call(step)  # not kept: there will be more of it
        return super()._run(name, step)

    def _run_each(self, name: str, step: Each) -> dict[Any, Any]:
        shared, found = self.key_of(step), {}
        for value in self[step.of]:
            if (name, value) in self._parts:
                found[value] = self._parts[name, value]
                continue
            with contextlib.suppress(_Missing):
                found[value] = self._remember((*shared, value), _missing)
        return found


class _Missing(Exception):
    """A value that has not been made."""


def _missing() -> Any:
    raise _Missing


class Figures(Mapping[str, Any]):
    """Name of a panel -> its figure, drawn when it is asked for, once."""

    def __init__(self, made: Made, panels: Mapping[str, Callable[..., Any]]) -> None:
        self._made, self._panels, self._drawn = made, panels, dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._drawn:
            self._drawn[name] = self._made.call(self._panels[name])
        return self._drawn[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._panels)

    def __len__(self) -> int:
        return len(self._panels)

    def key(self, name: str) -> Hashable:
        """All that a figure depends on: with an equal key it is the same figure."""
        return self._made.key_of(self._panels[name])


def follow(
    recipe: Recipe,
    given: Mapping[str, Any],
    remember: Callable[[Hashable, Callable[[], Any]], Any],
    told: Callable[[SoFar], None] | None = None,
) -> Made:
    """What the steps of a recipe make, each when it is asked for.

    Args:
        recipe: the steps.
        given: what functions may ask for by name. The graph and its copies stay the same from one call to the next;
            everything else has a ``repr`` that tells two values apart.
        remember: ``remember(key, make)`` returns what it has kept under ``key``, else ``make()``. The key holds all
            that the result depends on. The result of the last step is not kept.
        told: called with what there is whenever there is more of it. What it raises ends the run.

    Returns:
        ``given`` and the result of every step, by name.
    """
    return Made(recipe, given, remember, told)


def hand_over(recipe: Recipe, given: Mapping[str, Any], graph_lines: list[str]) -> str:
    """A program that makes the same figures, as ``shown``.

    Args:
        recipe: the steps.
        given: as :func:`follow` takes it.
        graph_lines: the lines that make ``g``.
    """
    import gnnsample_lab as lab

    from ..graphs import to_device

    steps = [one for step in recipe.values() for one in _parts(step)]
    functions = list(dict.fromkeys(map(_function, steps)))
    sources = [_source(function) for function in functions]
    lists = [step.of for step in steps if isinstance(step, Each)]
    wanted = dict.fromkeys([name for step in steps for name in _wanted(step)] + lists)
    if "on_device" in wanted:
        wanted["device"] = None
    imports = {_import_of("lab", lab, "")}
    if any(name in GRAPHS for name in wanted):
        imports.add(_import_of("to_device", to_device, ""))
    for function, source in zip(functions, sources, strict=True):
        for name in _globals_of(function, source):
            value = function.__globals__[name]
            if not any(value is one for one in functions):
                imports.add(_import_of(name, value, function.__module__))
    values = [line for name in given if name in wanted for line in _assignment(name, given[name])]
    graphs = [line for name, line in GRAPHS.items() if name in wanted]
    calls = [f"{result} = {_call(step)}" for result, step in recipe.items()]
    head = "\n".join([*_import_lines(imports), "", *graph_lines, *values, *graphs])
    return "\n\n\n".join([head, *sources, "\n".join(calls)]) + "\n"


def _parts(step: Step) -> list[Any]:
    """The steps that have a function each: a step itself, or its panels."""
    return list(step.panels.values()) if isinstance(step, Panels) else [step]


def _function(step: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = step.make if isinstance(step, (Each, Where)) else step
    return function


@functools.cache
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


@functools.cache
def _source(function: Callable[..., Any]) -> str:
    # Read once: a file that is edited while the process runs no longer says what the function does.
    return textwrap.dedent(inspect.getsource(function)).strip()


def _wanted(step: Any) -> list[str]:
    """What a step asks for, by name; the value of :class:`Each` comes from its list."""
    names = _parameters(_function(step))
    return [name for name in names if not isinstance(step, Each) or name != step.name]


def _call(step: Any) -> str:
    if isinstance(step, Panels):
        return "{\n" + "".join(f"    {_entry(name, panel)},\n" for name, panel in step.panels.items()) + "}"
    function = _function(step)
    call = f"{function.__name__}({', '.join(_parameters(function))})"
    return f"{{{step.name}: {call} for {step.name} in {step.of}}}" if isinstance(step, Each) else call


def _entry(name: str, panel: Any) -> str:
    entry = f'"{name}": {_call(panel)}'
    return f"**({{{entry}}} if {panel.there} is not None else {{}})" if isinstance(panel, Where) else entry


@functools.cache
def _globals_of(function: Callable[..., Any], source: str) -> list[str]:
    """The names of its module that a function uses, annotations included."""
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    known = function.__globals__.keys() - set(function.__code__.co_varnames)
    return sorted(names & known)


def _import_of(name: str, value: Any, module: str) -> tuple[str, str]:
    """(module, what is imported from it), the latter empty for a module by itself; ``name`` is what it is called."""
    if isinstance(value, ModuleType):
        package, _, last = value.__name__.rpartition(".")
        if package and last == name:
            return package, name
        return value.__name__ + (f" as {name}" if value.__name__ != name else ""), ""
    home = getattr(value, "__module__", None) or module
    known = getattr(sys.modules.get(home), name, None)
    return (home if known is value else module), name


def _import_lines(imports: set[tuple[str, str]]) -> list[str]:
    whole = [f"import {module}" for module, name in sorted(imports) if not name]
    standard = sys.stdlib_module_names
    modules = sorted({module for module, name in imports if name}, key=lambda m: (m not in standard, m))
    parts = [
        f"from {m} import {', '.join(sorted(n for home, n in imports if n and home == m))}" for m in modules
    ]
    return sorted(whole + parts, key=lambda line: line.split()[1] not in standard)


def _assignment(name: str, value: Any) -> list[str]:
    """Lines that give ``name`` its value; all that is not ours is written as a literal, never as text."""
    if name == "g" or name in GRAPHS:
        return []
    if not callable(value):
        return [f"{name} = {value!r}"]
    own, module = value.__qualname__, value.__module__
    if not own.isidentifier():
        return [f"{name} = ...  # put your own class here"]
    if module.startswith("gnnsample_"):
        return [f"from {module} import {own} as {name}"]
    found = module != "__main__" and getattr(sys.modules.get(module), own, None) is value
    lines = [f"from {module} import {own}"] if found else []
    return [*lines, f"{name} = {own}  # your own class"]
