"""Compiled functions on disk, in the place of Numba's own cache.

Numba's cache checks only the file of a function, numbers its files in an index that processes share, and passes on the
errors of the file system. Here the key of a compiled function is the content of all source files that its code depends
on, and each function has one file of its own, with a checksum. If the cache cannot be read or written, functions are
compiled again, and one warning says so.

Layout: ``<folder>/<module>-<hash of the sources>/<function>-<line>-<hash of the signature>.nbc``.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import pickle
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gnnsample_lab.files import replace_file
from gnnsample_lab.resources import PACKAGE_ROOT, user_folder

KEPT = 256
"""Most folders in the cache. Each has the functions of one version of a module; the least recently used are deleted."""
_PACKAGE = PACKAGE_ROOT.name
_DIGEST_BYTES = 32
_IMPORTS = re.compile(
    r"^(?:from[ \t]+(?P<base>[.\w]+)[ \t]+import[ \t]+(?:\((?P<many>[^)]*)\)|(?P<few>[^\n#(]+))"
    r"|import[ \t]+(?P<whole>[^\n#]+))",
    re.MULTILINE,
)


def folders() -> list[Path]:
    """Folders that may have compiled functions; new ones are written to the first writable folder.

    ``NUMBA_CACHE_DIR`` where it is set; else the user's cache folder, and the package's own ``__pycache__``.
    """
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        return [Path(named) / _PACKAGE]
    found = [PACKAGE_ROOT / "__pycache__" / "numba"]
    try:
        return [user_folder("cache") / "numba", *found]
    except RuntimeError:  # no home at all
        return found


def folder() -> Path | None:
    """Where compiled functions are kept, or None where they cannot be."""
    return next((path for path in folders() if _trouble(path) is None), None)


def unwritable() -> str | None:
    """Why compiled functions cannot be kept, or None when they can."""
    troubles = {path: _trouble(path) for path in folders()}
    if not all(troubles.values()):
        return None
    return "; ".join(f"{path}: {trouble}" for path, trouble in troubles.items())


def _trouble(path: Path) -> str | None:
    """The system's error for a new file in ``path``; None if it can be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


class FunctionStore:
    """The cache of one function, with the methods that Numba's dispatcher calls."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function = function
        self._options = sorted(options.items())
        self._enabled = function.__closure__ is None  # a closure's values would belong to the key

    @property
    def cache_path(self) -> str | None:
        """The folder of the function's files; None where no cache is used."""
        key = self._folder_name()
        return str(folders()[0] / key) if key else None

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        """Delete the function's files."""
        for root in folders():
            for path in (root / (self._folder_name() or "-")).glob(f"{self._stem()}-*.nbc"):
                path.unlink(missing_ok=True)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled function for ``signature``, or None."""
        name = self._folder_name()
        if name is None:
            return None
        target_context.refresh()
        header = self._header(signature, target_context.codegen())
        for root in folders():
            path = root / name / self._file_name(header)
            try:
                data = path.read_bytes()
                _use(path.parent)
            except OSError:
                continue
            try:
                found = _unpack(data, header)
                return found and _rebuild(target_context, found)
            except Exception as error:  # whatever a damaged file makes of a pickle
                _say(f"a compiled function could not be read and is compiled anew ({path}: {error})")
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep the compiled function; a warning where that fails."""
        name = self._folder_name()
        if name is None or compiled.library.has_dynamic_globals or compiled.lifted:
            return
        header = self._header(signature, compiled.codegen)
        reasons = []
        try:
            data = _pack(header, compiled)
            for root in folders():
                try:
                    _write(root / name / self._file_name(header), data)
                    return
                except OSError as error:
                    reasons.append(f"{root}: {error.strerror or error}")
        except Exception as error:  # keeping is a convenience: no failure of it may end a computation
            reasons.append(f"{type(error).__name__}: {error}")
        _say(
            f"compiled functions cannot be kept, so that every process compiles anew ({'; '.join(reasons)}): set "
            "NUMBA_CACHE_DIR to a folder of yours"
        )

    def _folder_name(self) -> str | None:
        if not self._enabled:
            return None
        key = content_key(inspect.getfile(self._function))
        return f"{self._function.__module__}-{key[:24]}" if key else None

    def _stem(self) -> str:
        plain = re.sub(r"[^\w.]", "", self._function.__qualname__)
        return f"{plain}-{self._function.__code__.co_firstlineno}"

    def _header(self, signature: Any, codegen: Any) -> bytes:
        """All that the machine code depends on beside the sources."""
        import numba

        parts = (
            str(signature), codegen.magic_tuple(), self._options, numba.config.BOUNDSCHECK, numba.config.OPT,
            self._function.__code__.co_code,
        )  # fmt: skip
        return repr(parts).encode()

    def _file_name(self, header: bytes) -> str:
        return f"{self._stem()}-{hashlib.sha256(header).hexdigest()[:16]}.nbc"


def _pack(header: bytes, compiled: Any) -> bytes:
    from numba.core.serialize import dumps

    body = pickle.dumps((header, dumps(compiled._reduce())))
    return hashlib.sha256(body).digest() + body


def _unpack(data: bytes, header: bytes) -> tuple[Any, ...] | None:
    """The parts of a compiled function; None if the file is another function's.

    Raises:
        ValueError: the file is damaged.
    """
    body = data[_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != data[:_DIGEST_BYTES]:
        raise ValueError("its checksum is wrong")
    held, parts = pickle.loads(body)
    return pickle.loads(parts) if held == header else None


def _rebuild(target_context: Any, parts: tuple[Any, ...]) -> Any:
    from numba.core.compiler import CompileResult

    return CompileResult._rebuild(target_context, *parts)


def _write(path: Path, data: bytes) -> None:
    """Write the file under another name first, so that no process reads half a file."""
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        _prune(path.parent.parent)
    replace_file(path, data)


def _prune(folder: Path) -> None:
    """Delete the least recently used folders, all but :data:`KEPT`."""
    aged = []
    for path in folder.iterdir():
        try:
            aged.append((path.stat().st_mtime_ns, path))
        except OSError:  # another process has just deleted it
            continue
    for _, path in sorted(aged, reverse=True)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)


@functools.cache
def _use(folder: Path) -> None:
    """Note once per process that ``folder`` is in use."""
    try:
        os.utime(folder)
    except OSError:  # a read-only cache has no age
        return


_said = False


def _say(text: str) -> None:
    global _said
    if not _said:
        _said = True
        warnings.warn(f"gnnsample_lab: {text}", RuntimeWarning, stacklevel=2)


_keys: dict[str, str] = {}


def content_key(file: str) -> str | None:
    """Hash of a module of this package and of all modules of it that the module imports, directly or not.

    Compiled code contains the functions that it calls and the constants that it names, so a change in any of these
    files must change the key. Imports inside functions do not count, because they bind no globals.

    Returns:
        The key; None if it cannot be known: a source file is missing, or was edited after this process began to import
        the package, so that the code in memory may be older than the file.
    """
    if file not in _keys:
        import numba
        import numpy

        versions = f"{numba.__version__} {numpy.__version__} {sys.version} {sys.implementation.cache_tag}"
        digest = hashlib.sha256(versions.encode())
        try:
            for path in sorted(_closure(Path(file).resolve())):
                status = path.stat()
                if max(status.st_mtime_ns, status.st_ctime_ns) > sys.modules[_PACKAGE]._imported_at:
                    return None
                content = path.read_bytes()
                digest.update(f"\0{path.relative_to(PACKAGE_ROOT.parent)}\0{len(content)}\0".encode())
                digest.update(content)
        except (OSError, ValueError):  # no such file, or one outside of the package
            return None
        _keys[file] = digest.hexdigest()
    return _keys[file]


def _closure(file: Path) -> set[Path]:
    """``file`` and every module of the package that it depends on."""
    found, waiting = {file}, [file]
    while waiting:
        for path in _imported(waiting.pop()):
            if path not in found:
                found.add(path)
                waiting.append(path)
    return found


@functools.cache
def _imported(file: Path) -> tuple[Path, ...]:
    """Modules of the package that ``file`` imports outside of functions."""
    found: list[Path] = []
    for match in _IMPORTS.finditer(file.read_text(encoding="utf-8")):
        if match["whole"]:
            for name in _names(match["whole"]):
                found += _files(name, "")
            continue
        listed = re.sub(r"#[^\n]*", "", match["many"] or match["few"])
        for name in _names(listed):
            found += _files(_absolute(match["base"], file), name)
    return tuple(dict.fromkeys(found))


def _names(listed: str) -> list[str]:
    """``a`` and ``b`` of ``"a, b as c"``."""
    return [part.split()[0] for part in listed.split(",") if part.strip()]


def _absolute(name: str, file: Path) -> str:
    """The full name of the module that ``file`` calls ``name``."""
    dots = len(name) - len(name.lstrip("."))
    if dots == 0:
        return name
    parts = file.relative_to(PACKAGE_ROOT.parent).parts[:-dots]
    return ".".join([*parts, *filter(None, [name[dots:]])])


def _files(module: str, name: str) -> Iterator[Path]:
    """The files behind ``from module import name``, or ``import module`` where ``name`` is empty."""
    if module.split(".")[0] != _PACKAGE:
        return
    base = PACKAGE_ROOT.parent.joinpath(*module.split("."))
    if base.is_dir():
        below = base / name if name else base
        if name and below.with_suffix(".py").is_file():
            yield below.with_suffix(".py")
        elif name and below.is_dir():
            yield from _files(f"{module}.{name}", "")
        else:  # a package may fetch a name from any of its modules
            yield from sorted(base.rglob("*.py"))
    elif base.with_suffix(".py").is_file():
        yield base.with_suffix(".py")
