# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""Memory of a call of ``next`` on the CPU: the context, and how Numba reads and writes at addresses.

The context is an ``int64`` array. The compiled function gets its address, so that one signature fits every application
and the walker that calls it is compiled once. The slots of the array hold numbers and addresses of arrays.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

# The graph and the run.
INDPTR, INDICES, ID_BYTES, PREFIX, MAX_WEIGHT, NUM_NODES = 0, 1, 2, 3, 4, 5
HISTORY, WIDTHS, NUM_ROOTS, SEED = 6, 7, 8, 9
# The sample and the step.
ROOTS, ROW, SAMPLE, STEP, TRANSITS, NUM_TRANSITS, SIZE, M = 10, 11, 12, 13, 14, 15, 16, 17
# The call.
K, J, ATTEMPT, TRANSIT, BEGIN, COUNT, COMBINED, COMBINED_PREFIX = 18, 19, 20, 21, 22, 23, 24, 25
# The call's stream of random words: its purpose, the number of words drawn, and the present group of four words.
FOR_TRANSITS, DRAWN, WORDS = 26, 27, 28
FAIL_CODE, FAIL_LINE, ROUNDS = 32, 33, 34
# What s.add_edge records: int64[S, room, 3], int64[S], room.
EDGES, EDGE_COUNTS, EDGE_ROOM = 35, 36, 37
MAX_ROUNDS = 1 << 20
"""Most rounds of all while loops of a call together, so that an endless loop cannot block the device."""
TABLES = 40  # address and length of each
SLOTS = 64
"""Length of the context, ``int64``."""

_I8, _U4, _F8 = ir.IntType(64), ir.IntType(32), ir.DoubleType()


def _element(builder: Any, address: Any, index: Any, kind: Any) -> Any:
    base = builder.bitcast(address, kind.as_pointer()) if address.type.is_pointer else builder.inttoptr(
        address, kind.as_pointer()
    )  # fmt: skip
    return builder.gep(base, [index])


@intrinsic
def get(typingctx, ctx, slot):
    """``ctx[slot]`` of a context."""

    def codegen(context, builder, signature, args):
        return builder.load(_element(builder, args[0], args[1], _I8))

    return types.int64(types.voidptr, types.int64), codegen


@intrinsic
def put(typingctx, ctx, slot, value):
    """``ctx[slot] = value``."""

    def codegen(context, builder, signature, args):
        builder.store(args[2], _element(builder, args[0], args[1], _I8))
        return context.get_dummy_value()

    return types.void(types.voidptr, types.int64, types.int64), codegen


def _reader(kind: Any, result: Any, extend: str | None) -> Any:
    @intrinsic
    def read(typingctx, address, index):
        def codegen(context, builder, signature, args):
            value = builder.load(_element(builder, args[0], args[1], kind))
            return getattr(builder, extend)(value, _I8) if extend else value

        return result(types.int64, types.int64), codegen

    return read


read_i8 = _reader(_I8, types.int64, None)
read_i4 = _reader(_U4, types.int64, "sext")
read_u4 = _reader(_U4, types.int64, "zext")
read_f8 = _reader(_F8, types.float64, None)


def _writer(kind: Any) -> Any:
    @intrinsic
    def write(typingctx, address, index, value):
        def codegen(context, builder, signature, args):
            held = args[2] if kind is _I8 else builder.trunc(args[2], kind)
            builder.store(held, _element(builder, args[0], args[1], kind))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return write


write_i8 = _writer(_I8)
write_i4 = _writer(_U4)


@intrinsic
def as_pointer(typingctx, address):
    """An address as the pointer that compiled functions take."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@intrinsic
def call_next(typingctx, function, ctx, step):
    """Call the function at address ``function`` with (ctx, step)."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_I8, [ir.IntType(8).as_pointer(), _I8])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1], args[2]])

    return types.int64(types.int64, types.voidptr, types.int64), codegen


@intrinsic
def call_transits(typingctx, function, ctx, step, k):
    """Call the function at address ``function`` with (ctx, step, k)."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_I8, [ir.IntType(8).as_pointer(), _I8, _I8])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1], args[2], args[3]])

    return types.int64(types.int64, types.voidptr, types.int64, types.int64), codegen
