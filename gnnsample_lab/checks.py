"""What arguments may be: every public entry checks its arguments here, and nowhere else.

A check returns the value in its plain form (``int``, ``float``, ``bool``, an array). Where it cannot, it raises
TypeError for a wrong kind and ValueError for a wrong value. The message names the argument, what was got and what is
allowed. Objects of other libraries may raise anything when they are asked for a number; that becomes a TypeError too.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

MAX_SEED = 2**64 - 1
"""Largest key of the generator."""
MAX_BYTES = 2**62
"""Largest amount of memory that an argument may ask for."""
MAX_NODES = 2**48
"""Largest number of vertices that an argument may name."""
_SHOWN = 80


def shown(value: Any) -> str:
    """``value`` for a message: its ``repr``, cut where it is long, and its type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if type(value) is str and len(value) <= _SHOWN:
        return repr(value)
    if getattr(value, "shape", ()):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    try:
        text = repr(value)
    except Exception:
        text = "an object without a repr"
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return text if value is None else f"{text} of type {type(value).__name__}"


def is_cuda_array(array: Any) -> bool:
    """True for CuPy arrays and CUDA torch tensors, without importing either."""
    if type(array).__module__.split(".")[0] == "cupy":
        return True
    return getattr(array, "is_cuda", False) is True


# ---- single values ------------------------------------------------------------------------------------------


def whole(name: str, value: Any, low: int | None = 0, high: int | None = None) -> int:
    """``value`` as an int in ``[low, high]``; None leaves an end open. Booleans and floats are a TypeError."""
    if type(value) is not int:
        # A tensor of booleans has `__index__`, too.
        if isinstance(value, (bool, np.bool_)) or str(getattr(value, "dtype", None)).endswith("bool"):
            raise TypeError(f"{name} must be an integer (got {shown(value)})")
        try:
            value = operator.index(value)
        except Exception:
            raise TypeError(f"{name} must be an integer (got {shown(value)})") from None
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{name} must be {_range(low, high)} (got {_number(value)})")
    return value


def _range(low: Any, high: Any) -> str:
    if isinstance(low, float) or isinstance(high, float):
        low, high = (None if end is None else f"{end:g}" for end in (low, high))
    if high is None:
        return f"at least {low}"
    return f"at most {high}" if low is None else f"between {low} and {high}"


def _number(value: int) -> str:
    # Python refuses to print integers of thousands of digits.
    return str(value) if value.bit_length() <= 256 else f"an integer of {value.bit_length()} bits"


def real(
    name: str,
    value: Any,
    low: float | None = None,
    high: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """``value`` as a finite float in ``[low, high]`` and strictly between ``above`` and ``below``."""
    if type(value) is not float:
        dtype = getattr(value, "dtype", "")
        # NumPy's types have kinds, PyTorch's have names alone.
        is_other = getattr(dtype, "kind", "f") not in "iuf" or str(dtype).startswith(
            ("torch.bool", "torch.complex")
        )
        if is_other or isinstance(value, (bool, str, bytes, bytearray)) or getattr(value, "ndim", None):
            raise TypeError(f"{name} must be a number (got {shown(value)})")
        try:
            value = float(value)
        except OverflowError:
            raise ValueError(f"{name} must be finite (got a number beyond all floats)") from None
        except Exception:
            raise TypeError(f"{name} must be a number (got {shown(value)})") from None
    if not (
        math.isfinite(value)
        and (low is None or value >= low)
        and (high is None or value <= high)
        and (above is None or value > above)
        and (below is None or value < below)
    ):
        ends = [f"above {above:g}"] if above is not None else []
        ends += [_range(low, high)] if low is not None or high is not None else []
        ends += [f"below {below:g}"] if below is not None else []
        # Of a bounded number "finite" says nothing more, unless it is infinite where one end is open.
        both = (low is not None or above is not None) and (high is not None or below is not None)
        allowed = " and ".join(ends if both else ["finite", *ends])
        raise ValueError(f"{name} must be {allowed} (got {value:g})")
    return value


def share(name: str, value: Any) -> float:
    """``value`` as a float in ``[0, 1]``."""
    return real(name, value, 0, 1)


def flag(name: str, value: Any) -> bool:
    """``value`` as a bool. Only True and False are flags: ``"no"``, 0 and None are a TypeError."""
    if type(value) is bool:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    raise TypeError(f"{name} must be True or False (got {shown(value)})")


def flag_or(name: str, value: Any, *words: str) -> bool | str:
    """``value``: True, False or one of ``words``; anything else is a ValueError."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str) and value in words:
        return value
    *first, last = ["True", "False", *map(repr, words)]
    raise ValueError(f"{name} must be {', '.join(first)} or {last} (got {shown(value)})")


def choice(name: str, value: Any, allowed: Collection[Any]) -> Any:
    """``value``, which is one of ``allowed`` (strings, or None); anything else is a ValueError."""
    if (value is None or isinstance(value, str)) and value in allowed:
        return value
    names = ", ".join(map(repr, allowed))
    raise ValueError(f"{name} must be {'one of ' if len(allowed) > 1 else ''}{names} (got {shown(value)})")


def text(name: str, value: Any) -> str:
    """``value``, a string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string (got {shown(value)})")
    return value


def seed(value: Any, name: str = "seed") -> int:
    """``value`` as a 64-bit key of the generator."""
    return whole(name, value, 0, MAX_SEED)


def num_bytes(name: str, value: Any, low: int = 0) -> int:
    """``value`` as an amount of memory in bytes."""
    return whole(name, value, low, MAX_BYTES)


def path(name: str, value: Any) -> Path:
    """``value`` as a path; ``~`` is the user's home folder."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path (got {shown(value)})")
    try:
        found = Path(value).expanduser()
    except RuntimeError as error:  # no home folder is known
        raise ValueError(f"{name}: {error} (got {shown(value)})") from None
    except Exception:  # a path object may give bytes, or fail
        raise TypeError(f"{name} must be a path (got {shown(value)})") from None
    if "\0" in str(found):
        raise ValueError(f"{name} must be a path without null characters (got {shown(value)})")
    return found


def optional(check: Callable[..., Any], name: str, value: Any, *limits: Any, **options: Any) -> Any:
    """None, or what ``check(name, value, ...)`` makes of ``value``."""
    return None if value is None else check(name, value, *limits, **options)


def instance(name: str, value: Any, kinds: type | tuple[type, ...], what: str) -> Any:
    """``value``, an object of one of ``kinds``; ``what`` says it in words."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} must be {what} (got {shown(value)})")
    return value


def function(name: str, value: Any, what: str = "callable") -> Any:
    """``value``, which can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be {what} (got {shown(value)})")
    return value


# ---- several values -----------------------------------------------------------------------------------------


def items(name: str, value: Any, what: str = "a list", most: int | None = None) -> list[Any]:
    """``value`` as a list: anything that can be iterated but strings, bytes and mappings.

    Args:
        what: of what things, for the message.
        most: largest length.
    """
    if type(value) is list:
        found = value
    elif isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be {what} (got {shown(value)})")
    else:
        try:
            found = list(value)
        except Exception as error:
            raise TypeError(f"{name} must be {what} (got {shown(value)}: {_reason(error)})") from None
    if most is not None and len(found) > most:
        raise ValueError(f"{name} must hold at most {most} (got {len(found)})")
    return found


def array(name: str, value: Any) -> Any:
    """``value`` as a NumPy or CuPy array on the device where it lies; torch tensors share their memory. Numbers of the
    other byte order are turned around: neither kernels nor a look at the dtype would know them."""
    found = _array(name, value)
    if isinstance(found, np.ndarray) and not found.dtype.isnative:
        return found.astype(found.dtype.newbyteorder("="))
    return found


def _array(name: str, value: Any) -> Any:
    if type(value) is np.ndarray:
        return value
    if isinstance(
        value, np.ma.MaskedArray
    ):  # NumPy's checks would leave out what is masked, and kernels would not
        raise TypeError(f"{name} must be an array without a mask (got a masked array: fill it first)")
    if isinstance(value, np.ndarray):
        return value
    library = type(value).__module__.split(".")[0]
    try:
        if library == "torch":
            tensor = value.detach()
            if not tensor.is_cuda:
                return tensor.numpy()
            import cupy

            return cupy.from_dlpack(tensor.contiguous())
        if library == "cupy":
            return value
        return np.asarray(value)
    except MemoryError:
        raise
    except ValueError as error:  # lists of unequal length
        raise ValueError(
            f"{name} must be an array of numbers (got {shown(value)}: {_reason(error)})"
        ) from None
    except Exception as error:  # objects that fail when NumPy asks them
        raise TypeError(
            f"{name} must be an array of numbers (got {shown(value)}: {_reason(error)})"
        ) from None


def _reason(error: Exception) -> str:
    return str(error).split("\n", 1)[0] or type(error).__name__


def host_array(name: str, value: Any) -> np.ndarray:
    """As :func:`array`, copied to the host where it lies on a GPU."""
    found = array(name, value)
    return found.get() if is_cuda_array(found) else found


def integers(name: str, value: Any) -> Any:
    """``value`` as a one-dimensional integer array; an empty list is fine."""
    found = array(name, value)
    if found.ndim == 0 and found.dtype.kind not in "iufb":  # None, a string, a set, a generator
        raise TypeError(f"{name} must be an array or a list of integers (got {shown(value)})")
    if found.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional (got shape {tuple(found.shape)})")
    if found.dtype.kind not in "iu":
        if found.size == 0:  # NumPy makes floats of an empty list
            return found.astype(np.int64)
        raise TypeError(f"{name} must be integers (got dtype {found.dtype})")
    return found


def host_integers(name: str, value: Any) -> np.ndarray:
    """As :func:`integers`, copied to the host where they lie on a GPU."""
    found = integers(name, value)
    return found.get() if is_cuda_array(found) else found


def ids(name: str, value: Any, num_nodes: int) -> Any:
    """``value`` as a one-dimensional integer array of vertices in ``[0, num_nodes)``; GPU arrays are read, too."""
    found = integers(name, value)
    ids_below(name, found, num_nodes)
    return found


def ids_below(name: str, found: Any, num_nodes: int) -> None:
    """ValueError that names the first id of an array outside ``[0, num_nodes)``."""
    if found.size == 0:
        return
    # min and max first: they allocate nothing, while the mask below is built only to name the culprit.
    if int(found.min()) >= 0 and int(found.max()) < num_nodes:
        return
    position = int(((found < 0) | (found >= num_nodes)).nonzero()[0][0])
    where = f"in 0..{num_nodes - 1}" if num_nodes else "of a graph that has none"
    raise ValueError(f"{name} must be vertex ids {where} (got {int(found[position])} at position {position})")


def no_mask_of_bytes(name: str, found: Any, num_nodes: int) -> None:
    """TypeError for a byte of 0 or 1 for each vertex: a mask, which as ids would name the vertices 0 and 1."""
    is_long = found.dtype.itemsize == 1 and found.shape == (num_nodes,) and num_nodes > 2
    if is_long and 0 <= int(found.min()) <= int(found.max()) <= 1:
        raise TypeError(f"{name} as a mask must hold booleans (got dtype {found.dtype})")


def numbers(name: str, value: Any, *, kinds: str = "fiu") -> Any:
    """``value`` as an array of numbers whose dtype is of one of ``kinds``."""
    found = array(name, value)
    if found.dtype.kind not in kinds:
        if found.size == 0:
            return found.astype(np.float64)
        raise TypeError(f"{name} must hold numbers (got dtype {found.dtype})")
    return found
