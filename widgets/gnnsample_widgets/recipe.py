"""Recipes: plain functions that an explorer runs, and whose source it hands over.

A recipe names the steps from a graph to figures, in order::

    recipe = {"batch": sample, "shown": draw}

A step's function takes what it needs by the names of its parameters: what was given (the graph, the device, the values
of the controls) and the results of earlier steps. The same functions are run by :func:`follow` and written out by
:func:`hand_over`, so that what is shown and what is handed over cannot differ.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Hashable, Mapping
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


Step = Callable[..., Any] | Each
Recipe = Mapping[str, Step]


def follow(
    recipe: Recipe, given: Mapping[str, Any], remember: Callable[[Hashable, Callable[[], Any]], Any]
) -> dict[str, Any]:
    """Run the steps of a recipe.

    Args:
        recipe: the steps.
        given: what functions may ask for by name. The graph and its copies stay the same from one call to the next;
            everything else has a ``repr`` that tells two values apart.
        remember: ``remember(key, make)`` returns what it has kept under ``key``, else ``make()``. The key holds all
            that the result depends on. The result of the last step is not kept.

    Returns:
        ``given`` and the result of every step.
    """
    made = dict(given)
    keys: dict[str, Hashable] = {
        name: name if name == "g" or name in GRAPHS else (name, repr(value)) for name, value in given.items()
    }
    for result, step in recipe.items():
        function, names = _function(step), _wanted(step)
        arguments = {name: made[name] for name in names}
        key: tuple[Hashable, ...] = (result, *(keys[name] for name in names))
        if result == LAST:
            made[result] = function(**arguments)
        elif isinstance(step, Each):
            made[result] = {
                value: remember((*key, value), functools.partial(function, **arguments, **{step.name: value}))
                for value in made[step.of]
            }
            key = (*key, keys[step.of])
        else:
            made[result] = remember(key, functools.partial(function, **arguments))
        keys[result] = key
    return made


def hand_over(recipe: Recipe, given: Mapping[str, Any], graph_lines: list[str]) -> str:
    """A program that makes the same figures, as ``shown``.

    Args:
        recipe: the steps.
        given: as :func:`follow` takes it.
        graph_lines: the lines that make ``g``.
    """
    import gnnsample_lab as lab

    from .graphs import to_device

    functions = list(dict.fromkeys(map(_function, recipe.values())))
    sources = [_source(function) for function in functions]
    lists = [step.of for step in recipe.values() if isinstance(step, Each)]
    wanted = dict.fromkeys([name for step in recipe.values() for name in _wanted(step)] + lists)
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


def _function(step: Step) -> Callable[..., Any]:
    return step.make if isinstance(step, Each) else step


@functools.cache
def _source(function: Callable[..., Any]) -> str:
    # Read once: a file that is edited while the process runs no longer says what the function does.
    return textwrap.dedent(inspect.getsource(function)).strip()


def _wanted(step: Step) -> list[str]:
    """What a step asks for, by name; the value of :class:`Each` comes from its list."""
    names = list(inspect.signature(_function(step)).parameters)
    return [name for name in names if name != step.name] if isinstance(step, Each) else names


def _call(step: Step) -> str:
    function = _function(step)
    call = f"{function.__name__}({', '.join(inspect.signature(function).parameters)})"
    return f"{{{step.name}: {call} for {step.name} in {step.of}}}" if isinstance(step, Each) else call


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
