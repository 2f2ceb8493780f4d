"""Packages whose names load on their first use, so that importing one costs nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any


def exports(
    package: str, homes: Mapping[str, str], modules: Collection[str] | Mapping[str, str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its full name.
        homes: public name -> the module below the package that has it.
        modules: modules right below the package that are public by their own names, or public name -> the module
            below the package that it stands for.
    """
    places = modules if isinstance(modules, Mapping) else {name: name for name in modules}

    def __getattr__(name: str) -> Any:
        if name in places:
            return importlib.import_module(f".{places[name]}", package)
        if name in homes:
            value = getattr(importlib.import_module(f".{homes[name]}", package), name)
            setattr(sys.modules[package], name, value)
            return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *places})

    return __getattr__, __dir__
