"""Numbers as people read them aloud: as many digits as matter, and a unit that suits."""

from __future__ import annotations

import math


def number(value: float) -> str:
    """Three digits, or all digits of a whole number before the point: "0.912", "6.37", "80.8", "3,011".

    Noughts at the end say nothing and are left out, and so is the point: "2.5", "174".
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(places, 12)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def times(ratio: float) -> str:
    """A ratio for a sentence, in two digits: "0.91 times", "1.3 times", "3,011 times"."""
    if ratio == 0 or not math.isfinite(ratio):
        return f"{ratio:g} times"
    places = max(0, 1 - math.floor(math.log10(abs(ratio))))
    return f"{ratio:,.{min(places, 12)}f} times"


def size(num_bytes: float) -> str:
    """Bytes in the decimal unit that suits them: "1 byte", "936 bytes", "2.79 MB"."""
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(num_bytes) >= length:
            return f"{number(num_bytes / length)} {unit}"
    return f"{number(num_bytes)} {noun(num_bytes, 'byte')}"


def time(microseconds: float) -> str:
    """A time in the unit that suits it: "8.4 µs", "12.3 ms", "4.05 s"."""
    for unit, length in (("s", 1e6), ("ms", 1e3)):
        if abs(microseconds) >= length:
            return f"{number(microseconds / length)} {unit}"
    return f"{number(microseconds)} µs"


def noun(count: float, one: str, many: str = "") -> str:
    """The word that goes with a count, as it is written: "task" after "1", else "tasks", or ``many``."""
    return one if number(count) == "1" else many or f"{one}s"


def percent(share: float, digits: int = 0, *, signed: bool = False) -> str:
    """A share as it is read: "35 %", and "+3.5 %" where it is ``signed``; the space does not break."""
    return f"{100 * share:{'+' if signed else ''}.{digits}f}\u00a0%"
