"""Arrays, sparse matrices, lists and dictionaries out of pickles, without unpickling.

Unpickling calls whatever a file names. Here a file's opcodes are interpreted and nothing is called: the few names that
NumPy's arrays and SciPy's matrices need become inert :class:`Built` objects, of which arrays are made after their
sizes are checked, and any other name or opcode is refused. Protocols 0 to 4 as Python 2 and 3 write them; strings of
Python 2 are read as Latin-1, so that each is also the bytes that it may stand for.
"""

from __future__ import annotations

import codecs
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

_NUMPY = [f"numpy{middle}" for middle in ("", ".core.multiarray", "._core.multiarray")]
_ALLOWED = {
    **{(module, name): name for module in _NUMPY for name in ("ndarray", "dtype", "_reconstruct", "scalar")},
    ("scipy.sparse.csr", "csr_matrix"): "csr_matrix",
    ("scipy.sparse._csr", "csr_matrix"): "csr_matrix",
    ("collections", "defaultdict"): "defaultdict",
    ("copy_reg", "_reconstructor"): "_reconstructor",
    ("copyreg", "_reconstructor"): "_reconstructor",
    ("_codecs", "encode"): "encode",
    **{(module, name): name for module in ("__builtin__", "builtins") for name in ("object", "list", "bytes")},
}  # fmt: skip
_DTYPES = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"b1", "f2", "f4", "f8"}


class PickleError(ValueError):
    """Bytes that are no pickle of what is read here."""


@dataclass(frozen=True)
class Name:
    """A name that the file asks for; nothing is imported."""

    name: str


@dataclass(eq=False)
class Built:
    """What a call of ``name`` with ``args`` would have built, and the state that it would have been given."""

    name: str
    args: tuple[Any, ...]
    state: Any = None


_MARK = object()


def parse(data: bytes) -> Any:
    """The value of a pickle: numbers, texts, lists, tuples, dictionaries, and :class:`Built` for the rest.

    Raises:
        ValueError and what :func:`gnnsample_lab.files.reading` turns into an error about the file: cut off, damaged,
            or with a name or an opcode that is not allowed.
    """
    return _Machine(data).run()


class _Machine:
    """The stack machine of pickles; ``_DO`` names the opcodes that it knows."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        while True:
            code = self.take(1)
            if code == b".":
                return self.stack.pop()
            action = _DO.get(code)
            if action is None:
                raise PickleError(f"opcode {code!r} at byte {self.at - 1} is not read")
            action(self)

    # ---- bytes and stack --------------------------------------------------------------------------------------

    def take(self, size: int) -> bytes:
        part = self.data[self.at : self.at + size]
        if len(part) != size:
            raise EOFError("it ends within a value")
        self.at += size
        return part

    def line(self) -> str:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise EOFError("it ends within a line")
        text = self.data[self.at : end].decode("latin-1")
        self.at = end + 1
        return text

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def marked(self) -> list[Any]:
        """Everything above the last mark."""
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:  # an IndexError once it has gone round
            place -= 1
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise PickleError(f"a {kind.__name__} was expected before byte {self.at}")
        return self.stack[-1]

    # ---- opcodes ----------------------------------------------------------------------------------------------

    def name(self, module: str, name: str) -> None:
        if (module, name) not in _ALLOWED:
            raise PickleError(f"it asks for {module[:60]}.{name[:60]}, which is never called")
        self.push(Name(_ALLOWED[module, name]))

    def global_(self) -> None:
        self.name(self.line(), self.line())

    def stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise PickleError(f"a name was expected before byte {self.at}")
        self.name(module, name)

    def call(self) -> None:
        args = self.top(tuple)
        self.stack.pop()
        target = self.top(Name).name
        if target == "_reconstructor" and args and isinstance(args[0], Name):
            target, args = args[0].name, ()
        if target == "defaultdict":
            value: Any = {}
        elif target == "encode":
            value = args[0].encode("latin-1")
        elif target == "bytes" and not args:  # Python 3's empty bytes
            value = b""
        elif target in ("_reconstruct", "dtype", "scalar", "csr_matrix"):
            value = Built(target, args)
        else:
            raise PickleError(f"it calls {target}, which is never called")
        self.stack[-1] = value

    def build(self) -> None:
        state = self.stack.pop()
        self.top(Built).state = state

    def set_items(self, items: list[Any]) -> None:
        if len(items) % 2:
            raise PickleError(f"a key has no value before byte {self.at}")
        self.top(dict).update(zip(items[::2], items[1::2]))

    def set_item(self) -> None:
        items = [self.stack.pop(), self.stack.pop()]
        self.set_items(items[::-1])

    def dict_(self) -> None:
        items = self.marked()
        self.push({})
        self.set_items(items)

    def append(self) -> None:
        item = self.stack.pop()
        self.top(list).append(item)

    def appends(self) -> None:
        items = self.marked()
        self.top(list).extend(items)

    def tuple_(self, size: int) -> None:
        if size > len(self.stack):
            raise PickleError(f"a tuple has too few items before byte {self.at}")
        items = tuple(self.stack[len(self.stack) - size :])
        del self.stack[len(self.stack) - size :]
        self.push(items)

    def string(self) -> None:
        text = self.line().strip()
        if len(text) < 2 or text[0] != text[-1] or text[0] not in "'\"":
            raise PickleError(f"a string was expected before byte {self.at}")
        self.push(codecs.escape_decode(text[1:-1].encode("latin-1"))[0].decode("latin-1"))

    def integer(self) -> None:
        text = self.line()
        self.push(text == "01" if text in ("00", "01") else int(text.rstrip("L")))

    def text(self, size: int, encoding: str) -> None:
        self.push(self.take(size).decode(encoding, "surrogatepass" if encoding == "utf-8" else "strict"))

    def keep(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def fetch(self, place: int) -> None:
        self.push(self.memo[place])


_DO: dict[bytes, Any] = {
    b"\x80": lambda m: m.take(1),  # PROTO
    b"\x95": lambda m: m.take(8),  # FRAME
    b"(": lambda m: m.push(_MARK),
    b"0": lambda m: m.stack.pop(),
    b"c": _Machine.global_,
    b"\x93": _Machine.stack_global,
    b"R": _Machine.call,
    b"\x81": _Machine.call,  # NEWOBJ
    b"b": _Machine.build,
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"I": _Machine.integer,
    b"L": _Machine.integer,
    b"F": lambda m: m.push(float(m.line())),
    b"J": lambda m: m.push(m.number("<i")),
    b"K": lambda m: m.push(m.number("<B")),
    b"M": lambda m: m.push(m.number("<H")),
    b"G": lambda m: m.push(m.number(">d")),
    b"\x8a": lambda m: m.push(int.from_bytes(m.take(m.number("<B")), "little", signed=True)),
    b"S": _Machine.string,
    b"V": lambda m: m.push(m.line().encode("latin-1").decode("raw-unicode-escape")),
    b"U": lambda m: m.text(m.number("<B"), "latin-1"),
    b"T": lambda m: m.text(m.number("<I"), "latin-1"),
    b"X": lambda m: m.text(m.number("<I"), "utf-8"),
    b"\x8c": lambda m: m.text(m.number("<B"), "utf-8"),
    b"C": lambda m: m.push(m.take(m.number("<B"))),
    b"B": lambda m: m.push(m.take(m.number("<I"))),
    b")": lambda m: m.push(()),
    b"t": lambda m: m.push(tuple(m.marked())),
    b"\x85": lambda m: m.tuple_(1),
    b"\x86": lambda m: m.tuple_(2),
    b"\x87": lambda m: m.tuple_(3),
    b"]": lambda m: m.push([]),
    b"l": lambda m: m.push(m.marked()),
    b"a": _Machine.append,
    b"e": _Machine.appends,
    b"}": lambda m: m.push({}),
    b"d": _Machine.dict_,
    b"s": _Machine.set_item,
    b"u": lambda m: m.set_items(m.marked()),
    b"p": lambda m: m.keep(int(m.line())),
    b"q": lambda m: m.keep(m.number("<B")),
    b"r": lambda m: m.keep(m.number("<I")),
    b"\x94": lambda m: m.keep(len(m.memo)),  # MEMOIZE
    b"g": lambda m: m.fetch(int(m.line())),
    b"h": lambda m: m.fetch(m.number("<B")),
    b"j": lambda m: m.fetch(m.number("<I")),
}


def array(value: Any) -> np.ndarray:
    """The NumPy array of numbers that ``value`` describes.

    Raises:
        ValueError: it is none, holds Python objects, or its bytes do not fit its shape.
    """
    if not isinstance(value, Built) or value.name != "_reconstruct" or not isinstance(value.state, tuple):
        raise PickleError(f"an array was expected (got {_kind(value)})")
    shape, stored, fortran, content = value.state[-4:]  # before these, a version that old ones lack
    dtype, content = _dtype(stored), _bytes(content)
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if not all(type(n) is int and n >= 0 for n in sizes) or math.prod(sizes) * dtype.itemsize != len(content):
        raise PickleError(f"an array of shape {sizes} of {dtype} has {len(content):,} bytes")
    flat = np.frombuffer(content, dtype=dtype).astype(dtype.newbyteorder("="))
    return flat.reshape(sizes, order="F" if fortran else "C")


def matrix(value: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]:
    """``(data, indices, indptr, shape)`` of the SciPy matrix in compressed rows that ``value`` describes; unchecked.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, Built) or value.name != "csr_matrix" or not isinstance(value.state, dict):
        raise PickleError(f"a matrix in compressed rows was expected (got {_kind(value)})")
    state = value.state
    shape = state["_shape"] if "_shape" in state else state["shape"]
    if not isinstance(shape, tuple) or len(shape) != 2 or not all(type(n) is int and n >= 0 for n in shape):
        raise PickleError(f"a matrix has the shape {str(shape)[:60]}")
    data, indices, indptr = (array(state[name]) for name in ("data", "indices", "indptr"))
    return data, indices, indptr, shape


def integer(value: Any) -> int:
    """A whole number, stored as Python's or as one of NumPy's.

    Raises:
        ValueError: it is none.
    """
    if type(value) is int:
        return value
    if isinstance(value, Built) and value.name == "scalar" and len(value.args) == 2:
        dtype, content = _dtype(value.args[0]), _bytes(value.args[1])
        if dtype.kind in "iu" and len(content) == dtype.itemsize:
            return int(np.frombuffer(content, dtype=dtype)[0])
    raise PickleError(f"a whole number was expected (got {_kind(value)})")


def _dtype(value: Any) -> np.dtype[Any]:
    if isinstance(value, Built) and value.name == "dtype" and value.args and value.args[0] in _DTYPES:
        order = value.state[1] if isinstance(value.state, tuple) and len(value.state) > 1 else "="
        if order in ("<", ">", "=", "|"):
            return np.dtype(f"{order}{value.args[0]}")
    raise PickleError("an array holds something else than numbers")


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("latin-1")
    if not isinstance(value, bytes):
        raise PickleError(f"an array's bytes were expected (got {_kind(value)})")
    return value


def _kind(value: Any) -> str:
    return value.name if isinstance(value, Built) else f"a {type(value).__name__}"
