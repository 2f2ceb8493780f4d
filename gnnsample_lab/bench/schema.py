"""What every record has: one definition for the run that writes it and for whoever reads it later."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any

from . import source
from .record import FORMAT
from .suites import SUITES

_Check = Callable[[Any], bool]
_HEX = re.compile(r"[0-9a-f]+")
_TARGET = {"what", "target", "unit", "measured", "met", "where"}
_CARD = {"card"}
"""Of targets of newer records."""


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _named(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(facts, dict) and _text(facts.get("title")) for facts in value.values()
    )


def _dict(value: Any) -> bool:
    return isinstance(value, dict)


def _date(value: Any) -> bool:
    try:
        return datetime.datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _commit(value: Any) -> bool:
    return value is None or (isinstance(value, str) and 6 <= len(value) <= 40 and bool(_HEX.fullmatch(value)))


def _versions(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_text, value.values()))


def _either(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _targets(value: Any) -> bool:
    return _rows(value) and all(
        set(row) | _CARD == _TARGET | _CARD and isinstance(row["met"], bool) for row in value
    )


_RECORD: dict[str, _Check] = {
    "format": lambda value: _count(value) and 1 <= value <= FORMAT,
    "suite": lambda value: value in SUITES,
    "about": _text,
    "origin": lambda value: value == "measured",
    "environment": _dict,
    "seconds": _number,
    "settings": lambda value: isinstance(value, dict) and isinstance(value.get("quick"), bool),
    "verification": _dict,
    "graphs": _named,
    "rows": _rows,
    "paper": _dict,
    "targets": _targets,
}
_ENVIRONMENT: dict[str, _Check] = {
    "date": _date, "gnnsample_lab": _text, "commit": _commit, "modified": _either, "python": _text,
    "packages": _versions, "cpu": _text, "cpu_cores": _count,
}  # fmt: skip
_GPU: dict[str, _Check] = {
    "name": _text, "driver": _text, "cuda_runtime": _text, "cupy": _text, "num_sms": _count, "l2_bytes": _count,
    "memory_bytes": _count,
}  # fmt: skip
_HOST: dict[str, _Check] = {"python_us": _number, "launch_us": lambda value: value is None or _number(value)}
_QUICK: dict[str, _Check] = {"cores": _count, "quick_python_us": _number}


_COMPARED = {name: _ENVIRONMENT[name] for name in ("date", "commit", "modified", "cpu", "cpu_cores")}
"""What each graph of a record says that several runs have joined, and each run that a record has resumed."""


def _wrong(value: Mapping[str, Any], wanted: Mapping[str, _Check], where: str) -> list[str]:
    missing = [f"{where}{name} is missing" for name in wanted if name not in value]
    return missing + [
        f"{where}{name} is {value[name]!r:.60}"
        for name, holds in wanted.items()
        if name in value and not holds(value[name])
    ]


def problems(record: Mapping[str, Any]) -> list[str]:
    """What a record lacks or has in another form than it should; empty where it is as it should be."""
    found = _wrong(record, _RECORD, "")
    if found:
        return found
    at = record["environment"]
    found = _wrong(at, _ENVIRONMENT, "environment.")
    gpu = at.get("gpu")
    if isinstance(gpu, dict):
        found += _wrong(gpu, _GPU, "environment.gpu.")
    elif gpu is not None or "gpu" not in at:
        found.append("environment.gpu is neither null nor a description")
    for when in ("host", "host_after"):
        if when in at:  # of newer records
            found += _wrong(at[when], _HOST, f"environment.{when}.")
            if "cores" in at[when]:  # likewise
                found += _wrong(at[when], _QUICK, f"environment.{when}.")
            if "taken_again" in at[when]:
                found += _wrong(at[when], {"taken_again": _count}, f"environment.{when}.")
    for run in record.get("resumed", []):
        found += _wrong(run.get("environment", {}), _COMPARED, "resumed.environment.")
        found += _wrong(run, {"pieces": _count}, "resumed.")
    for name, about in record.get("compared", {}).items():
        found += _wrong(about.get("environment", {}), _COMPARED, f"compared.{name}.environment.")
    if record["format"] >= 2:
        found += _source_problems(record.get("source"))
    return found


def _source_problems(value: Any) -> list[str]:
    """Records of format 2 have the hash of their source, which is made of those of its layers."""
    layers = value.get("layers") if isinstance(value, dict) else None
    if (
        not isinstance(layers, dict)
        or not layers
        or not all(isinstance(d, str) and _HEX.fullmatch(d) for d in layers.values())
    ):
        return ["source has no hashes of layers"]
    return [] if value.get("hash") == source.total(layers) else ["source.hash is not that of its layers"]
