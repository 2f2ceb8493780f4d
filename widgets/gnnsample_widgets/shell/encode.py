"""A figure's traces and layout as JSON for the page, as plotly writes them, in a fraction of its time.

Plotly copies a figure, looks at every array through a layer for data frames, and encodes all of it twice where the
letters "NaN" stand anywhere: in half a megabyte of base64 they do by chance. A figure that follows a slider is encoded
at every move.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
from plotly.io.json import to_json_plotly

_SHORT = ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8")
"""Types that plotly.js has typed arrays for; it calls them as NumPy does."""
_NARROWER = {"i8": ("i1", "i2", "i4"), "u8": ("u1", "u2", "u4")}
_AS_LISTS = ("range", "geojson", "layer", "layers")
"""Properties whose arrays plotly.js wants as lists, as it wants those within lists."""


def to_json(part: Any) -> str:
    """A part of a figure as strict JSON: numeric arrays in base64, what is not finite as null.

    Args:
        part: dictionaries, lists, arrays, numbers and texts; it is not changed.
    """
    return json.dumps(_sendable(part), separators=(",", ":"), allow_nan=False)


def _sendable(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, dict):
        return {name: _listed(item) if name in _AS_LISTS else _sendable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_listed(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        return _sendable(value.item())
    return json.loads(to_json_plotly(value))  # dates, tables of other packages


def _listed(value: Any) -> Any:
    return _sendable(value.tolist() if isinstance(value, np.ndarray) else value)


def _array(values: np.ndarray) -> Any:
    """An array as plotly.js takes it: base64 in the narrowest type that holds whole numbers, else a list."""
    kind = values.dtype.str[1:]
    if values.size and kind in _NARROWER:
        low, high = int(values.min()), int(values.max())
        fits = (t for t in _NARROWER[kind] if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
        kind = next(fits, kind)
    if not values.size or kind not in _SHORT:
        return _listed(values)
    packed = np.ascontiguousarray(values, dtype=f"<{kind}")
    found = {"dtype": kind, "bdata": base64.b64encode(packed.data).decode("ascii")}
    return found if values.ndim == 1 else {**found, "shape": ", ".join(map(str, values.shape))}
