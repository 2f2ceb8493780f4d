"""Reading files that may be damaged, and writing them whole.

One place turns what NumPy, pandas, gzip, JSON and the system raise into an error that names the file.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import socket
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


class CorruptDataError(ValueError, OSError):
    """Damaged or incomplete files: a cut-off archive, a gzip member that ends early, bad contents."""


BROKEN = (EOFError, zlib.error, zipfile.BadZipFile, zipfile.LargeZipFile, struct.error)
"""What decompressing bytes raises that are cut off or changed; gzip's own error is an OSError."""

# RuntimeError: an encrypted archive, JSON nested too deeply. SyntaxError: a NumPy header that is no Python literal.
_MISREAD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, SyntaxError)


@contextlib.contextmanager
def scratch_folder(kind: str, place: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A folder for the block, removed after it; so are those of processes that were killed before they could.

    Args:
        kind, place: as of :func:`new_scratch_folder`.
    """
    folder = new_scratch_folder(kind, place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_scratch_folder(kind: str, place: str | os.PathLike[str] | None = None) -> Path:
    """A folder that the caller removes; those of processes that were killed before they could are removed here.

    Args:
        kind: begins the folder's name; host, namespace of processes and process follow, by which a later run knows
            whose it is.
        place: where, None for the system's temporary folder.
    """
    base = Path(tempfile.gettempdir() if place is None else place)
    host = _host()
    for left in base.glob(f"{kind}-{host}-*"):
        number = left.name.removeprefix(f"{kind}-{host}-").partition("-")[0]
        if number.isdecimal() and not _is_running(int(number)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{kind}-{host}-{os.getpid()}-", dir=base))


def _host() -> str:
    """Name of the host and of the namespace that numbers its processes: containers may share the former."""
    namespace = ""
    with contextlib.suppress(OSError):  # none where the system has no such thing
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return re.sub(r"[^A-Za-z0-9.]+", "_", f"{socket.gethostname()} {namespace}").strip("_")


def _is_running(process: int) -> bool:
    if os.name == "nt":  # where the signal 0 is no question
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def reserve(file: IO[bytes], size: int, where: str | os.PathLike[str]) -> None:
    """Make a file at least ``size`` bytes long, 1 or more, that the disk has room for, before it is mapped.

    A file with holes would do, but the system ends a process by SIGBUS that writes to a hole of a full disk.

    Args:
        file: open for writing.
        size: bytes from its start.
        where: what the file is, or where, for the message.

    Raises:
        OSError: there is no room, naming ``where``.
    """
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    except OSError as error:
        raise OSError(f"{where} cannot have {size:,} bytes: {error.strerror or error}") from error


@contextlib.contextmanager
def reading(path: Path, what: str = "data") -> Iterator[None]:
    """Errors of the block become errors about ``path``.

    Args:
        path: the file that the block reads.
        what: what it should hold, for the message.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptDataError: a folder, not readable, cut off, damaged, or not ``what``.

    Errors of the system that the block has given a message of its own pass as they are.
    """
    try:
        yield
    except CorruptDataError:
        raise  # it names its file already
    except FileNotFoundError as error:
        if error.errno is None:  # raised here, about a file within
            raise
        raise FileNotFoundError(f"{path} does not exist") from error
    except OSError as error:
        # The system's errors have a number. Of those without, gzip's are about the bytes, and others are ours.
        if error.errno is None and not isinstance(error, gzip.BadGzipFile):
            raise
        problem = f"cannot be read: {error.strerror}" if error.errno else f"is cut off or damaged ({error})"
        raise CorruptDataError(f"{path} {problem}") from error
    except BROKEN as error:
        raise CorruptDataError(f"{path} is cut off or damaged ({_text(error)})") from error
    except _MISREAD as error:
        raise CorruptDataError(f"{path} cannot be read as {what} ({_text(error)})") from error


def _text(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"no entry {text}" if isinstance(error, KeyError) else text or type(error).__name__


def read_json(path: Path, kind: type = dict) -> Any:
    """The value of a JSON file in UTF-8, a byte order mark allowed, gzip-compressed when its name ends in ``.gz``.

    Raises:
        FileNotFoundError, CorruptDataError: as :func:`reading`; the latter too for a value that is no ``kind``.
    """
    with reading(path, "JSON"):
        stored = path.read_bytes()
        value = json.loads((gzip.decompress(stored) if path.suffix == ".gz" else stored).decode("utf-8-sig"))
        if not isinstance(value, kind):
            raise ValueError(f"it must hold a {kind.__name__}, got a {type(value).__name__}")
    return value


def _give_rights(temporary: Path, path: Path) -> None:
    """Give a temporary file, which its owner alone may read, the rights that ``path`` has, or would have as a new
    file."""
    try:
        mode = path.stat().st_mode & 0o777
    except OSError:
        # The process's mask can only be read by setting it, which other threads would notice: a file shows it.
        probe = temporary.with_name(f"{temporary.name}.mode")
        probe.touch()
        mode = probe.stat().st_mode & 0o777
        probe.unlink()
    temporary.chmod(mode)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose bytes are ``path`` when the block ends: a reader sees the old file or the whole new one, and an
    error leaves the old one. Makes the folder if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:32]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        _give_rights(Path(temporary), path)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes) -> Path:
    """Write ``content`` as :func:`replacing` has it."""
    with replacing(path) as stream:
        stream.write(content)
    return path
