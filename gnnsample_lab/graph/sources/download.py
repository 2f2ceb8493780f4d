"""Downloads that show progress, warn about size, resume, and get their final name only when complete.

Processes that want the same file or folder take turns (:mod:`.locks`), so that one of them fetches and the
others find what it fetched.
"""

from __future__ import annotations

import contextlib
import glob
import http.client
import json
import shutil
import tempfile
import urllib.error
import urllib.request
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnnsample_lab.files import reading
from gnnsample_lab.graph import roots
from gnnsample_lab.graph.errors import CorruptDataError, DownloadError
from gnnsample_lab.graph.sources.locks import exclusive

WARN_BYTES = 2**30
TIMEOUT_S = 20
ATTEMPTS = 4
_CHUNK = 1 << 20


def progress_bar(total: int | None, text: str, enabled: bool) -> Any:
    """A tqdm bar in bytes that works in terminals and notebooks alike."""
    from tqdm.auto import tqdm

    return tqdm(total=total, desc=text, unit="B", unit_scale=True, unit_divisor=1024, disable=not enabled)


def download(url: str, target: Path, *, sha256: str | None = None, progress: bool = True) -> Path:
    """Fetch ``url`` to ``target`` unless it is there; a partial file from an earlier call is continued.

    The bytes go to ``<target>.part``, whose origin is noted in ``<target>.part.json``; the file is renamed
    when its length (and ``sha256``, where one is known) is right. A target that is there already, because another
    process was faster, is taken as it is.

    Raises:
        PermissionError: the target folder cannot be written to.
        DownloadError: no connection, or it broke off repeatedly; the message says how far it came.
        CorruptDataError: the checksum is wrong; a file that this call fetched is removed.
        OSError: not enough free disk space.
    """
    with roots.without_empty_folders(target.parent):
        roots.require_writable(target.parent, f"downloading {url}")
        with exclusive(target):
            _download(url, target, sha256, progress)
    return target


def _download(url: str, target: Path, sha256: str | None, progress: bool) -> None:
    """As :func:`download`; the caller holds the lock of ``target``."""
    part = target.with_name(target.name + ".part")
    note = target.with_name(target.name + ".part.json")
    if not target.exists():
        _fetch(url, part, note, target.name, progress)
        if sha256 is not None and _sha256(part) != sha256:
            part.unlink()
            note.unlink(missing_ok=True)
            raise CorruptDataError(f"{url} does not have the expected SHA-256 {sha256}; the file was removed")
        part.replace(target)
    elif sha256 is not None and _sha256(target) != sha256:
        raise CorruptDataError(f"{target} does not have the expected SHA-256 {sha256}")
    note.unlink(missing_ok=True)


def _fetch(url: str, part: Path, note: Path, name: str, progress: bool) -> None:
    """Complete ``part``, whose lock is held, in at most ``ATTEMPTS`` connections."""
    bar = None
    problem = "no attempt was made"
    try:
        for _ in range(ATTEMPTS):
            try:
                have, total, response = _connect(url, part, note)
                with response:
                    if bar is None:
                        _announce(url, total, have, part.parent)
                        bar = progress_bar(total, f"downloading {name}", progress)
                    bar.n = have
                    with part.open("ab") as handle:
                        while chunk := response.read(_CHUNK):
                            handle.write(chunk)
                            bar.update(len(chunk))
            except urllib.error.HTTPError as error:
                raise DownloadError(f"downloading {url} failed: HTTP {error.code} {error.reason}") from error
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
                problem = str(getattr(error, "reason", error)) or type(error).__name__
                if not part.exists():
                    raise DownloadError(f"downloading {url} failed: {problem}") from error
                continue
            size = part.stat().st_size
            if total is None or size == total:
                return
            problem = f"the connection closed after {size:,} of {total:,} bytes"
        raise DownloadError(f"downloading {url} failed: {problem}; call again to continue from there")
    finally:
        if bar is not None:
            bar.close()


def _connect(url: str, part: Path, note: Path) -> tuple[int, int | None, Any]:
    """Open ``url`` where ``part`` ends: ``(bytes already there, total bytes, response)``."""
    have = part.stat().st_size if part.exists() else 0
    before = _read_note(note)
    if have and (before.get("url") != url or not before.get("validator")):
        have = 0  # without the same validator the two halves could be of different files
    request = urllib.request.Request(
        url, headers={"User-Agent": "gnnsample-lab", "Accept-Encoding": "identity"}
    )
    if have:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", before["validator"])
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        error.close()
        part.unlink(missing_ok=True)  # longer than the file is now: start over
        return _connect(url, part, note)
    length = response.headers.get("Content-Length")
    total = None if length is None else int(length)
    if have and response.status == 206:
        total = None if total is None else total + have
    else:
        have = 0
        part.unlink(missing_ok=True)
    validator = response.headers.get("ETag") or response.headers.get("Last-Modified")
    if validator and validator.startswith("W/"):  # a weak tag must not be used in If-Range
        validator = response.headers.get("Last-Modified")
    note.write_text(json.dumps({"url": url, "validator": validator, "bytes": total}), encoding="utf-8")
    part.touch()
    return have, total, response


def _read_note(note: Path) -> dict[str, Any]:
    try:
        value = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _announce(url: str, total: int | None, have: int, folder: Path) -> None:
    if total is None:
        return
    missing = total - have
    if missing > WARN_BYTES:
        warnings.warn(
            f"downloading {missing / 2**30:.1f} GiB from {url} to {folder}; interrupt to stop, the next call "
            "continues where it stopped",
            stacklevel=4,
        )
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise OSError(
            f"{folder} has {free / 2**30:.1f} GiB free, downloading {url} needs {missing / 2**30:.1f} GiB: "
            "pass root= or set LAB_DATA_ROOT"
        )


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def unzip(archive: Path, folder: Path, inner: str | None = None, *, progress: bool = True) -> Path:
    """Unpack ``archive`` as ``folder``, checking each member's CRC; ``folder`` appears when complete.

    A folder that has this name already is somebody's: it is kept under a name that is free, ``<folder>.incomplete`` or
    ``<folder>.incomplete-2`` and so on. What killed runs left half unpacked is removed.

    Args:
        inner: the archive's top folder, which becomes ``folder``; None when it has none.

    Raises:
        CorruptDataError: cut off, damaged, without ``inner``, or with members that would leave ``folder``.
        DownloadError, OSError: not enough free disk space, or it cannot be written to.
    """
    with exclusive(folder):
        for leftover in folder.parent.glob(f".{glob.escape(folder.name)}.*.unpacking"):
            shutil.rmtree(leftover, ignore_errors=True)  # whoever unpacked there held the lock, and is dead
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".unpacking", dir=folder.parent))
        try:
            _unpack(archive, temporary, progress)
            source = temporary / inner if inner and (temporary / inner).is_dir() else temporary
            if inner and source is temporary and not (temporary / "raw").is_dir():
                raise CorruptDataError(f"archive {archive} has no folder {inner!r}")
            if folder.exists():
                folder.rename(_free_name(folder))
            source.chmod(0o755)  # mkdtemp makes it private, but a shared data root is shared
            source.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _free_name(folder: Path) -> Path:
    """A name beside ``folder`` that nothing has."""
    aside, number = folder.with_name(f"{folder.name}.incomplete"), 1
    while aside.exists():
        number += 1
        aside = folder.with_name(f"{folder.name}.incomplete-{number}")
    return aside


def _unpack(archive: Path, folder: Path, progress: bool) -> None:
    with reading(archive, "an archive"), zipfile.ZipFile(archive) as handle:
        members = handle.infolist()
        total = sum(m.file_size for m in members)
        free = shutil.disk_usage(folder).free
        if total > free:
            raise OSError(
                f"{folder.parent} has {free / 2**30:.1f} GiB free, unpacking {archive} needs {total / 2**30:.1f} "
                "GiB: pass root= or set LAB_DATA_ROOT"
            )
        with progress_bar(total, f"unpacking {archive.name}", progress and total > 1 << 26) as bar:
            for member in members:
                _extract(handle, member, folder, bar)


def _extract(handle: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path, bar: Any) -> None:
    path = (folder / member.filename).resolve()
    where = f"member {member.filename!r} of archive {handle.filename}"
    if not path.is_relative_to(folder.resolve()):
        raise CorruptDataError(f"{where} would be written outside its folder")
    with _writing(where):
        (path if member.is_dir() else path.parent).mkdir(parents=True, exist_ok=True)
    if member.is_dir():
        return
    with handle.open(member) as source:
        with _writing(where):
            target = path.open("wb")
        with target:
            while chunk := source.read(_CHUNK):  # reading to the end verifies the CRC
                with _writing(where):
                    target.write(chunk)
                    target.flush()
                bar.update(len(chunk))


@contextlib.contextmanager
def _writing(where: str) -> Iterator[None]:
    """Tell a disk that cannot be written to from an archive that makes a file and a folder of one name."""
    try:
        yield
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise CorruptDataError(f"{where} has the name of another one ({error.strerror})") from error
    except OSError as error:
        raise DownloadError(f"{where} could not be written: {error.strerror}") from error
