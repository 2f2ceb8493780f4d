"""A compiled look at memory that others write, which Numba's compiler must not keep in a register."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
# Numba infers the types of its functions.
from __future__ import annotations

import operator
import os

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .jit import njit

_YIELD_AFTER = 1024

if hasattr(os, "sched_yield"):
    _let_others_run = types.ExternalFunction("sched_yield", types.int32())
else:  # Windows

    @njit
    def _let_others_run():
        return 0


@intrinsic
def _look(_context, words, at):
    """``words[at]`` from memory, by an atomic load."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, array, [arguments[1]], wraparound=False)
        return builder.load_atomic(place, "acquire", 8)

    return types.int64(words, types.intp), generate


if numba.config.DISABLE_JIT:  # the function below is then Python
    _look, _let_others_run = operator.getitem, int


@njit(cache=True)
def look_often(words, at, word, shift, looks):
    """Whether one of ``looks`` looks at ``words[at] >> shift`` sees ``word``; lets other processes run meanwhile."""
    for i in range(looks):
        if _look(words, at) >> shift == word:
            return True
        if i % _YIELD_AFTER == _YIELD_AFTER - 1:
            _let_others_run()
    return False
