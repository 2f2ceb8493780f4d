"""Trace files: one compressed ``.npz`` whose columns are shrunk to the smallest integer type, and a JSON
header.

A trace of 50 000 tasks takes a few hundred kilobytes. Times are kept to the nanosecond, which is finer than
the clock of any GPU that they are measured with. Nothing is pickled, in either direction.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gnnsample_lab.checks import path as checked_path
from gnnsample_lab.checks import shown
from gnnsample_lab.files import reading, replace_file
from gnnsample_lab.traces.records import WHOLE, SampleTrace
from gnnsample_lab.traces.tables import (
    HOP_DTYPES,
    LOST_DTYPES,
    SLOT_DTYPES,
    TASK_DTYPES,
    HopTable,
    LostTable,
    QueueSeries,
    SlotTable,
    TaskTable,
    exactly,
    queue_depth_series,
)

FORMAT = "gnnsample-lab trace"
VERSION = 1

_TABLES = ("tasks", "hops", "queue", "lost", "slots")
_HEADER = tuple(f.name for f in fields(SampleTrace) if f.name not in _TABLES)
# A trace of a whole epoch would still be far below this; a file claiming more is not one of ours.
_MAX_MEMBER_BYTES = 1 << 31
_LONGEST_US = 1e15
"""Times below are whole nanoseconds in 64 bits, and so are their differences."""
# JSON's types of the header's values, by the annotation of the field.
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "str | None": (str, type(None)), "bool": (bool,), "int": (int,), "int | None": (int, type(None)),
    "float": (int, float), "tuple[int, ...]": (list,), "dict[str, str | int | float]": (dict,),
}  # fmt: skip


def _shrunk(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same integers in the smallest integer dtype that holds them."""
    if len(values) == 0:
        return values.astype(np.uint8)
    low, high = int(values.min()), int(values.max())
    for dtype in (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32):
        info = np.iinfo(dtype)
        if info.min <= low and high <= info.max:
            return values.astype(dtype)
    return values.astype(np.int64)


def _nanoseconds(time_us: npt.NDArray[np.float64], what: str) -> npt.NDArray[np.int64]:
    if not np.all(np.abs(time_us) < _LONGEST_US):  # NaN is not
        raise ValueError(f"{what} must be finite, and below {_LONGEST_US:g}, to be saved")
    return np.rint(time_us * 1e3).astype(np.int64)


def _deltas(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.diff(values, prepend=np.int64(0))


def _pack(trace: SampleTrace) -> dict[str, npt.NDArray[Any]]:
    tasks = trace.tasks
    start, end = _nanoseconds(tasks.start_us, "tasks.start_us"), _nanoseconds(tasks.end_us, "tasks.end_us")
    enqueue = _nanoseconds(tasks.enqueue_us, "tasks.enqueue_us")
    # Neighbouring rows start close together, so differences are small and compress well.
    arrays: dict[str, npt.NDArray[Any]] = {
        "tasks.hop": tasks.hop,
        "tasks.vertex": _shrunk(tasks.vertex),
        "tasks.degree": _shrunk(tasks.degree),
        "tasks.num_picks": _shrunk(tasks.num_picks),
        "tasks.sm": _shrunk(tasks.sm),
        "tasks.block": _shrunk(tasks.block),
        "tasks.start_delta_ns": _shrunk(_deltas(start)),
        "tasks.duration_ns": _shrunk(end - start),
        "tasks.wait_ns": _shrunk(start - enqueue),
    }
    arrays |= {f"hops.{name}": getattr(trace.hops, name) for name in HOP_DTYPES}
    arrays |= {f"lost.{name}": getattr(trace.lost, name) for name in LOST_DTYPES}
    if len(trace.slots):  # versions before them ignore these members
        arrays |= {f"slots.{name}": getattr(trace.slots, name) for name in SLOT_DTYPES}
    derived = queue_depth_series(tasks, trace.lost)
    if len(trace.queue) and trace.queue != derived:
        time = _nanoseconds(trace.queue.time_us, "queue.time_us")
        arrays |= {"queue.time_delta_ns": _shrunk(_deltas(time)), "queue.depth": _shrunk(trace.queue.depth)}
    return arrays


def _checked_header(header: dict[str, Any]) -> dict[str, Any]:
    """The values of the header; each has the type and the limits of its field, for no field checks what it is given."""
    kinds = {f.name: _JSON_TYPES[str(f.type)] for f in fields(SampleTrace) if f.name in _HEADER}
    missing, surplus = kinds.keys() - header.keys(), header.keys() - kinds.keys()
    if missing or surplus:
        raise ValueError(f"the header lacks {sorted(missing)} and has {sorted(surplus)} instead")
    for name in ("total_us", "copy_bandwidth_gbps"):
        header[name] = math.nan if header[name] is None else header[name]
    for name, value in header.items():
        if type(value) not in kinds[name]:
            raise ValueError(f"{name} of the header is {value!r}")
    if any(type(fanout) is not int or not fanout for fanout in header["fanouts"]):
        raise ValueError(f"fanouts of the header are {header['fanouts']!r}")
    for name, (low, high) in WHOLE.items():
        values = header[name] if name == "fanouts" else [header[name]]
        if not all(value is None or low <= value <= high for value in values):
            raise ValueError(f"{name} of the header must be from {low} to {high} (got {shown(header[name])})")
    for name in ("total_us", "copy_bandwidth_gbps"):
        try:
            header[name] = float(header[name])
        except OverflowError as error:
            raise ValueError(f"{name} of the header is too large (got {shown(header[name])})") from error
        if header[name] < 0 or math.isinf(header[name]):
            raise ValueError(
                f"{name} of the header must be finite and not negative (got {shown(header[name])})"
            )
    return header


def _column(arrays: dict[str, npt.NDArray[Any]], name: str, dtype: Any) -> npt.NDArray[Any]:
    """A column in its table's dtype; whole numbers are stored as such, and empty columns as numbers, too."""
    kinds = "iu" if np.dtype(dtype).kind in "iu" else "iuf"
    if arrays[name].dtype.kind not in kinds:
        raise ValueError(f"{name} does not hold values of {np.dtype(dtype)}")
    return exactly(name, arrays[name], dtype)


def _unpack(arrays: dict[str, npt.NDArray[Any]], has_queue: bool) -> dict[str, Any]:
    for name, array in arrays.items():
        if array.ndim != 1 or (name.endswith("_ns") and array.dtype.kind not in "iu"):
            raise ValueError(f"{name} has shape {array.shape} and dtype {array.dtype}")
    start = np.cumsum(arrays["tasks.start_delta_ns"].astype(np.int64))
    end = start + arrays["tasks.duration_ns"]
    enqueue = start - arrays["tasks.wait_ns"]
    tasks = TaskTable(
        **{
            name: _column(arrays, f"tasks.{name}", TASK_DTYPES[name])
            for name in ("hop", "vertex", "degree", "num_picks", "sm", "block")
        },
        enqueue_us=enqueue / 1e3,
        start_us=start / 1e3,
        end_us=end / 1e3,
    )
    lost = LostTable(**{name: _column(arrays, f"lost.{name}", dtype) for name, dtype in LOST_DTYPES.items()})
    if "queue.depth" in arrays:
        time = np.cumsum(arrays["queue.time_delta_ns"].astype(np.int64)) / 1e3
        queue = QueueSeries(time, _column(arrays, "queue.depth", np.int64))
    else:
        queue = queue_depth_series(tasks, lost) if has_queue else QueueSeries()
    hops = HopTable(**{name: _column(arrays, f"hops.{name}", dtype) for name, dtype in HOP_DTYPES.items()})
    slots = SlotTable()
    if "slots.hop" in arrays:
        slots = SlotTable(
            **{name: _column(arrays, f"slots.{name}", dtype) for name, dtype in SLOT_DTYPES.items()}
        )
    return {"tasks": tasks, "hops": hops, "queue": queue, "lost": lost, "slots": slots}


def _plain(name: str, value: Any) -> Any:
    """JSON has no NaN: null stands for it. Nor has it an infinity, for which nothing stands.

    Raises:
        TypeError: a scalar that JSON has no word for.
        ValueError: infinite.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (str, int, float, tuple, type(None))):
        raise TypeError(f"{name} must be text or a number to be saved (got {shown(value)})")
    if isinstance(value, float) and math.isinf(value):
        raise ValueError(f"{name} must not be infinite to be saved (got {value})")
    if isinstance(value, float) and math.isnan(value):
        return None
    return list(value) if isinstance(value, tuple) else value


def save_trace(trace: SampleTrace, path: str | Path) -> Path:
    """Write ``trace`` to ``path``; a reader sees the old file or the complete new one, never a part.

    Equal traces give equal bytes. ``.npz`` is appended when the name has no suffix.

    Args:
        trace: what to write.
        path: of the file.

    Returns:
        The path written.

    Raises:
        TypeError: ``path`` is no path, or an entry of ``meta`` neither text nor a number.
        ValueError: a time is not finite or longer than 1e15 us, or an entry of ``meta`` infinite.
        OSError: if the folder cannot be written.
    """
    path = checked_path("path", path)
    if not path.name or path.is_dir():
        raise ValueError(f"path must name a file (got the folder {str(path)!r})")
    if not path.suffix:
        path = path.with_suffix(".npz")
    header = {name: _plain(name, getattr(trace, name)) for name in _HEADER if name != "meta"}
    header |= {
        "format": FORMAT,
        "version": VERSION,
        "has_queue": len(trace.queue) > 0,
        "meta": {key: _plain(f"meta[{key!r}]", value) for key, value in trace.meta.items()},
    }
    text = json.dumps(header, sort_keys=True, allow_nan=False).encode()
    arrays = {"header": np.frombuffer(text, dtype=np.uint8), **_pack(trace)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            # A fixed date keeps the file the same from run to run, so that version control sees no false
            # change.
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w") as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)
    return replace_file(path, buffer.getvalue())


def load_trace(path: str | Path) -> SampleTrace:
    """Read a trace file.

    Args:
        path: of the file.

    Raises:
        TypeError: ``path`` is no path.
        FileNotFoundError: if there is no such file.
        CorruptDataError: (a ValueError) if it is not a trace, is cut off or damaged, or was written by a newer version;
            names the file.
    """
    path = checked_path("path", path)
    with reading(path, "a trace file"):
        with zipfile.ZipFile(path) as archive:
            oversized = [info.filename for info in archive.infolist() if info.file_size > _MAX_MEMBER_BYTES]
            if oversized:
                raise ValueError(f"{oversized[0]} is implausibly large")
            arrays = {
                info.filename.removesuffix(".npy"): _array(archive, info) for info in archive.infolist()
            }
        header = json.loads(arrays.pop("header").tobytes())
        if header.pop("format") != FORMAT:
            raise ValueError("the header names another format")
        version = header.pop("version")
        if type(version) is not int or version < 1:
            raise ValueError(f"it has format version {shown(version)}")
        if version > VERSION:
            raise ValueError(f"it has format version {version}, this library reads up to {VERSION}")
        has_queue = header.pop("has_queue")
        header = _checked_header(header)
        header["meta"] = {k: math.nan if v is None else v for k, v in header["meta"].items()}
        return SampleTrace(**header, **_unpack(arrays, has_queue))


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    with archive.open(info) as stream:
        try:
            array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        except MemoryError as error:  # its header claims more than the member holds
            raise ValueError(f"{info.filename} is implausibly large") from error
        if stream.read(1):
            raise ValueError(f"{info.filename} is longer than its header says")
        return array
