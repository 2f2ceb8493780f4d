"""The papers' systems and their baselines, each a short composition of the parts below.

``lab.systems`` is this package, and it can be called: ``lab.systems()`` lists the systems. A function of that name
would be replaced by the package as soon as anything imports from it.
"""

from __future__ import annotations

import sys
import types

from gnnsample_lab.lazy import exports


class _CallablePackage(types.ModuleType):
    """The package as ``lab.systems()``."""

    def __call__(self) -> dict[str, str]:
        """Name -> one line, of every system that ``lab.train`` takes."""
        from .table import listing

        return listing()


sys.modules[__name__].__class__ = _CallablePackage

__getattr__, __dir__ = exports(__name__, {"System": "table", "SYSTEMS": "table"})
