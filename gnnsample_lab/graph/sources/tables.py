"""Arrays from text, ``.npy`` and ``.npz`` files, checked: what is returned is what the file says, or an error names
the file and its line or array.

Text is read by pandas, which is fast and lenient: it would read ``1.5`` as 1 where integers are asked for, and fill
what is missing. So columns are read as what they are, and then must be what is wanted. NumPy files are read here,
because their header may claim any size: it must fit the bytes that are there before memory is taken.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import math
import re
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from gnnsample_lab.files import CorruptDataError, reading, reserve
from gnnsample_lab.graph import checks

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(rb"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.IGNORECASE)
_NAN = ["nan", "NaN", "NAN"]
_FIRST_ROWS = 1000
"""Of a list, which say whether it has weights: a list may be too long to be read for that."""
_CHUNK_BYTES = 1 << 26
_ON_DISK_BYTES = 1 << 31
INT64_MAX = 2**63 - 1


# ---- text ---------------------------------------------------------------------------------------------------------


def integers(
    path: Path, columns: int | None = None, *, rows: int | None = None, sep: str = ",", spare: bool = False,
    headers: Sequence[str] = (),
) -> np.ndarray:  # fmt: skip
    """int64[rows, columns] of a text file, gzip-compressed when its name ends in ``.gz``.

    Args:
        path: one row a line.
        columns: how many each line must have; None for any number, the same in every line.
        rows: how many there must be; None for any number.
        sep: ``","``, or ``r"\\s+"`` for lists whose lines may be comments (``#``).
        spare: further columns are not read; without, they are an error.
        headers: the first line must be one of these, and is no row; empty where there is no such line.

    Raises:
        FileNotFoundError, CorruptDataError: naming the file, and the line where one can be told.
    """
    with reading(path, "text with integers"):
        if headers:
            _, first = next(_lines(path), (0, ""))
            if first not in headers:
                raise CorruptDataError(
                    f"{path} line 1 must be {' or '.join(map(repr, headers))} (got {first[:60]!r})"
                )
        use = columns if spare else None
        frame = _frame(path, rows, sep, [], use, len(headers) > 0)
        kinds = {dtype.kind for dtype in frame.dtypes}
        if sep != "," and (frame.empty or not kinds <= {"i"}):
            plain = _without_indented_comments(path)
            if plain is not None:
                frame = _frame(path, rows, sep, [], use, plain=plain)
                kinds = {dtype.kind for dtype in frame.dtypes}
        if not kinds <= {"i"} or (columns is not None and frame.shape[1] != columns):
            raise CorruptDataError(
                _bad_line(path, sep, columns, spare, len(headers) > 0)
                or f"{path} must hold integers of 64 bits"
            )
        _check_rows(path, len(frame), rows)
        return frame.to_numpy(dtype=np.int64)


def has_weights(path: Path) -> bool:
    """Whether the third column of a list holds numbers, by the first of its first rows that has a third column.

    Raises:
        FileNotFoundError, CorruptDataError: as :func:`integers`.
    """
    with reading(path, "text with integers"):
        first_rows = itertools.islice(_rows_of_list(path), _FIRST_ROWS)
        third = next((cells[2] for _, cells in first_rows if len(cells) > 2), b"")
        return _NUMBER.fullmatch(third) is not None


def weights(path: Path, rows: int) -> np.ndarray:
    """float64[rows]: the third column of a list whose first two columns :func:`integers` has read.

    Raises:
        FileNotFoundError, CorruptDataError: naming the file and the line that has no number there, or one that is no
            weight: infinite, negative, or not to be held by 32 bits.
    """
    with reading(path, "text with weights"):
        found = _third_column(path, rows)
        with np.errstate(over="ignore"):
            narrow = found.astype(np.float32)
        wrong = ~(np.isfinite(narrow) & (found >= 0) & ((narrow > 0) == (found > 0)))
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            raise _no_weight(path, *next(itertools.islice(_rows_of_list(path), place, None)))
        return found


def _third_column(path: Path, rows: int) -> np.ndarray:
    # Where pandas sees no column of numbers, the lines tell which one is to blame, if any.
    with contextlib.suppress(CorruptDataError):
        column = _frame(path, None, r"\s+", [], 3)[2]
        if len(column) == rows and column.dtype.kind in "iuf":
            return column.to_numpy(dtype=np.float64)  # type: ignore[no-any-return]
    numbers_by_line = (_weight(path, number, cells) for number, cells in _rows_of_list(path))
    return np.fromiter(numbers_by_line, np.float64, count=rows)


def _weight(path: Path, number: int, cells: list[bytes]) -> float:
    if len(cells) < 3 or not _NUMBER.fullmatch(cells[2]):
        raise _no_weight(path, number, cells)
    return float(cells[2])


def _no_weight(path: Path, number: int, cells: list[bytes]) -> CorruptDataError:
    got = b" ".join(cells).decode("utf-8", "replace")[:60]
    return CorruptDataError(
        f"{path} line {number} must have a weight in its third column, finite, not negative and of 32 bits "
        f"(got {got!r}); weighted=False leaves that column unread"
    )


def numbers(path: Path, *, rows: int, empty_is_nan: bool = False) -> np.ndarray:
    """int64 or float64[rows, columns] of comma-separated text; ``nan`` is a number, an empty cell only on demand.

    Raises:
        FileNotFoundError, CorruptDataError: as :func:`integers`.
    """
    with reading(path, "text with numbers"):
        frame = _frame(path, rows, ",", [*_NAN, ""] if empty_is_nan else _NAN, None, blank_rows=True)
        wrong = next((i for i, dtype in enumerate(frame.dtypes) if dtype.kind not in "iuf"), None)
        if wrong is not None:
            import pandas

            bad = pandas.to_numeric(frame[wrong], errors="coerce").isna() & frame[wrong].notna()
            line = f" line {int(np.flatnonzero(bad.to_numpy())[0]) + 1}" if bad.any() else ""
            raise CorruptDataError(f"{path}{line} column {wrong + 1} must hold numbers")
        _check_rows(path, len(frame), rows)
        return frame.to_numpy()


def as_float32(values: np.ndarray, where: str) -> np.ndarray:
    """``values`` as features are kept, converted piece by piece; a warning says where whole numbers are rounded.

    Raises:
        CorruptDataError: a finite number that 32 bits do not hold; names ``where``.
    """
    return checks.as_float32(values, where, CorruptDataError)


def line_of(path: Path, row: int, *, skip: int = 0) -> int:
    """Line, from 1, of row ``row`` of text without comments, ``skip`` lines of a header not counted; for messages."""
    filled = (number for number, line in _lines(path) if number > skip and line)
    return next(itertools.islice(filled, row, None), 0)


def records(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """``(line, cells of these columns)`` of each row of comma-separated text whose first line names its columns.

    Raises:
        FileNotFoundError, CorruptDataError: naming the file and the line: no such column, rows of another length,
            text that is not in UTF-8.
    """
    with reading(path, "a table"):
        reader = csv.reader(_decoded(path), strict=True)
        try:
            names = next(reader, [])
            for column in columns:
                if names.count(column) != 1:
                    raise CorruptDataError(
                        f"{path} line 1 must name the column {column!r} once (got {','.join(names)[:60]!r})"
                    )
            places = [names.index(column) for column in columns]
            for cells in reader:
                if len(cells) != len(names) and cells:
                    raise CorruptDataError(
                        f"{path} line {reader.line_num} must have {len(names)} columns (got {len(cells)})"
                    )
                if cells:
                    yield reader.line_num, tuple(cells[place] for place in places)
        except csv.Error as error:
            raise CorruptDataError(
                f"{path} line {reader.line_num} cannot be read as a table ({error})"
            ) from error


def _decoded(path: Path) -> Iterator[str]:
    """The lines of a text in UTF-8, with their ends."""
    for number, line in _raw_lines(path):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptDataError(f"{path} line {number} is no text in UTF-8 ({error.reason})") from error


def _without_indented_comments(path: Path) -> bytes | None:
    """The list without comments behind white space, None where it has none: pandas makes an empty row of such a line,
    and of a list that begins with one no row at all."""
    kept, found = io.BytesIO(), False
    for _, lines in _raw_lines(path):
        # Where lines end on a carriage return alone, all are one.
        for line in lines.splitlines(keepends=True):
            text = line.removeprefix(codecs.BOM_UTF8)
            if text[:1].isspace() and text.lstrip().startswith(b"#"):
                found = True
            else:
                kept.write(line)
    return kept.getvalue() if found else None


def _frame(
    path: Path, rows: int | None, sep: str, nan: list[str], use: int | None, has_header: bool = False,
    plain: bytes | None = None, blank_rows: bool = False,
) -> Any:  # fmt: skip
    """``plain``: what the file holds, where that is not to be read from it; ``blank_rows``: a blank line is a row, or
    those behind it would move up to other vertices."""
    import pandas

    packed = path.suffix == ".gz" and plain is None
    if path.stat().st_size == 0:
        raise CorruptDataError(f"{path} is empty")

    def read(most: int | None) -> Any:
        return pandas.read_csv(
            path if plain is None else io.BytesIO(plain), sep=sep, header=None, engine="c", low_memory=False,
            comment=None if sep == "," else "#",
            # Further columns of a list may hold any text: a quotation mark there would swallow the lines behind it.
            quoting=csv.QUOTE_MINIMAL if sep == "," else csv.QUOTE_NONE,
            compression="gzip" if packed else None, keep_default_na=False, na_values=nan,
            nrows=most, usecols=None if use is None else list(range(use)), skiprows=int(has_header),
            skip_blank_lines=not blank_rows,
        )  # fmt: skip

    try:
        # One row more than expected tells a file that is too long, however long it is.
        frame = read(None if rows is None else rows + 1)
        kept, least = len(frame), rows or 0
        while blank_rows and kept > least and all(v in ("", None) or v != v for v in frame.iloc[kept - 1]):
            kept -= 1  # blank lines at the end are no rows
        return frame if kept == len(frame) else read(kept)
    except pandas.errors.EmptyDataError:
        if next(_lines(path), None) is None:
            raise CorruptDataError(f"{path} is empty") from None
        return pandas.DataFrame(np.empty((0, use or 0), dtype=np.int64))
    except ValueError as error:
        line = _bad_line(path, sep, use, True) if sep != "," else _ragged_line(path, has_header)
        raise CorruptDataError(
            line or f"{path} cannot be read as a table ({' '.join(str(error).split())})"
        ) from error


def _check_rows(path: Path, found: int, rows: int | None) -> None:
    if rows is not None and found != rows:
        more = "more" if found > rows else f"{found:,}"
        raise CorruptDataError(f"{path} must have {rows:,} lines (got {more})")


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as stored:
        handle: Any = gzip.GzipFile(fileobj=stored) if path.suffix == ".gz" else stored
        yield from enumerate(handle, 1)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in _raw_lines(path):
        yield number, line.decode("utf-8-sig", "replace").strip(" \t\r\n")


def _rows_of_list(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """``(line, cells)`` of each line of a list that is neither blank nor a comment, as pandas has them."""
    number = 0
    for _, lines in _raw_lines(path):
        for line in lines.splitlines():  # those that end on a carriage return alone
            number += 1
            text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            cells = [cell for cell in re.split(rb"[ \t]+", text.partition(b"#")[0]) if cell]
            if cells:
                yield number, cells


def _bad_line(path: Path, sep: str, columns: int | None, spare: bool, has_header: bool = False) -> str | None:
    """A message about the first line without the integers that are asked for; slow, hence only after a failure."""
    for number, line in _lines(path):
        # As pandas has it, white space between numbers is blanks and tabs; text from web pages may have other kinds.
        cells = line.split(",") if sep == "," else [c for c in re.split(r"[ \t]+", line.split("#")[0]) if c]
        if not line or not cells or (has_header and number == 1):
            continue
        columns = columns or len(cells)
        fits = len(cells) >= columns if spare else len(cells) == columns
        if not fits or not all(_is_integer(cell.strip(" \t")) for cell in cells[:columns]):
            return f"{path} line {number} must have {columns} integer(s) (got {line[:60]!r})"
    return None


def _is_integer(cell: str) -> bool:
    return _INTEGER.fullmatch(cell) is not None and abs(int(cell)) <= INT64_MAX


def _ragged_line(path: Path, has_header: bool = False) -> str | None:
    wanted = None
    for number, line in _lines(path):
        if has_header and number == 1:
            continue
        cells = line.count(",") + 1
        wanted = cells if wanted is None else wanted
        if line and cells != wanted:
            return f"{path} line {number} must have {wanted} columns (got {line[:60]!r})"
    return None


# ---- NumPy's files ------------------------------------------------------------------------------------------------


def npy(path: Path, *, dtype: Any = None) -> np.ndarray:
    """The array of a ``.npy`` file, converted to ``dtype`` piece by piece where one is given; to float32 as by
    :func:`as_float32`.

    Raises:
        FileNotFoundError, CorruptDataError: naming the file; the latter too for arrays of Python objects.
    """
    with reading(path, "a NumPy array"), path.open("rb") as stream:
        return _read_array(stream, path.stat().st_size, str(path), dtype=dtype)


class Archive:
    """The arrays of a ``.npz`` file, by name; made by :func:`npz`."""

    def __init__(self, path: Path, handle: zipfile.ZipFile) -> None:
        self.path, self._handle = path, handle
        self.names = {name.removesuffix(".npy") for name in handle.namelist()}

    def read(
        self, name: str, *, below: int | None = None, dtype: Any = None, scratch: Path | None = None,
        kinds: str = "iufb",
    ) -> np.ndarray:  # fmt: skip
        """One array.

        Args:
            name: without ``.npy``.
            below: the array must hold integers of at least 0 and below this.
            dtype: convert to it, piece by piece; integers only with ``below``, so that nothing wraps, and to float32 as
                by :func:`as_float32`.
            scratch: folder for arrays above 2 GiB, which are mapped from a file there that nobody else sees.
            kinds: NumPy's letters of the dtypes that are allowed.
        """
        where = f"array {name!r} of {self.path}"
        if name not in self.names:
            raise CorruptDataError(
                f"{self.path} has no array {name!r} (it has {', '.join(sorted(self.names))})"
            )
        with self._handle.open(f"{name}.npy") as stream:
            size = self._handle.getinfo(f"{name}.npy").file_size
            return _read_array(
                stream, size, where, below, dtype, scratch, "iu" if below is not None else kinds
            )

    def integers(self, name: str, *shape: int | None, below: int | None = None) -> np.ndarray:
        """One integer array as int64, of ``shape`` (None: any length along that axis)."""
        array = self.read(name, below=below, kinds="iu")
        where = f"array {name!r} of {self.path}"
        if array.dtype.kind == "u" and array.size and int(array.max()) > INT64_MAX:
            raise CorruptDataError(f"{where} must hold integers of 64 bits (got {int(array.max())})")
        check_shape(array, shape, where)
        return array.astype(np.int64, copy=False)

    def text(self, name: str) -> str:
        """One string, stored as bytes (SciPy) or as text."""
        array = self.read(name, kinds="SU")
        return (array.astype("S") if array.dtype.kind == "U" else array).reshape(-1)[0].decode()


@contextlib.contextmanager
def npz(path: Path) -> Iterator[Archive]:
    """Open a ``.npz`` file; errors of the block become errors about it.

    Raises:
        FileNotFoundError, CorruptDataError: naming the file, and the array where it is one's fault.
    """
    with reading(path, "NumPy arrays"), zipfile.ZipFile(path) as handle:
        yield Archive(path, handle)


def check_shape(array: np.ndarray, shape: tuple[int | None, ...], where: str) -> None:
    """Raise CorruptDataError unless ``array`` has ``shape``, in which None stands for any length."""
    if array.ndim != len(shape) or any(want not in (None, got) for want, got in zip(shape, array.shape)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise CorruptDataError(f"{where} must have shape ({wanted}) (got {array.shape})")


def _read_array(
    stream: IO[bytes], size: int, where: str, below: int | None = None, dtype: Any = None, scratch: Path | None = None,
    kinds: str = "iufb",
) -> np.ndarray:  # fmt: skip
    head = io.BytesIO(stream.read(8))
    version = np.lib.format.read_magic(head)
    width = 2 if version == (1, 0) else 4
    length = stream.read(width)
    header = stream.read(int.from_bytes(length, "little"))
    read_header = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    shape, fortran, stored = read_header(io.BytesIO(length + header))
    count = math.prod(shape)
    there = size - 8 - width - len(header)
    if stored.hasobject:
        raise CorruptDataError(f"{where} holds Python objects, which are not read")
    if any(n < 0 for n in shape) or count * stored.itemsize != there:
        raise CorruptDataError(
            f"{where} must have {count * stored.itemsize:,} bytes by its header (got {there:,})"
        )
    if stored.kind not in kinds:
        raise CorruptDataError(
            f"{where} must hold {'integers' if kinds == 'iu' else 'numbers'} (got dtype {stored})"
        )
    target = np.dtype(dtype or stored)
    if scratch is not None and count * target.itemsize > _ON_DISK_BYTES:
        # The cache copies it, and the file goes with the last reference to it.
        with tempfile.TemporaryFile(dir=scratch) as handle:
            reserve(handle, count * target.itemsize, f"a copy of {where} in {scratch}")
            flat: np.ndarray = np.memmap(handle, dtype=target, mode="w+", shape=(count,))
    else:
        flat = np.empty(count, dtype=target)
    parts = _parts(stream, count, stored, where, below)
    if target == np.float32:
        checks.fill_float32(flat, parts, where, CorruptDataError)
    else:
        done = 0
        for part in parts:
            flat[done : done + len(part)] = part
            done += len(part)
    if not count:
        stream.read(1)  # so that an archive's checksum is compared
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _parts(
    stream: IO[bytes], count: int, stored: np.dtype[Any], where: str, below: int | None
) -> Iterator[np.ndarray]:
    done, step = 0, max(1, _CHUNK_BYTES // max(1, stored.itemsize))
    while done < count:
        want = min(step, count - done) * stored.itemsize
        data = stream.read(want)
        if len(data) != want:
            raise CorruptDataError(f"{where} is cut off")
        part = np.frombuffer(data, dtype=stored)
        if below is not None:
            outside = (part < 0) | (part >= below)
            if outside.any():
                first = int(np.flatnonzero(outside)[0])
                raise CorruptDataError(
                    f"{where} must hold ids in [0, {below}) (got {int(part[first])} at position {done + first})"
                )
        yield part
        done += len(part)
