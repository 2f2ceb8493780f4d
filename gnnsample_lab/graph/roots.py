"""Where data lies and where our own files may go.

Data root: the argument, else ``LAB_DATA_ROOT``, else ``data/`` of the checkout that the package runs from,
else the user's data folder; never the working directory. Our cache lies inside the data root, and in the
user's cache folder when the root cannot be written to.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gnnsample_lab.checks import path as checked_path
from gnnsample_lab.resources import user_folder

CACHE_FOLDER = ".gnnsample_lab"
_PACKAGE_ROOT = Path(__file__).resolve().parents[1]
_TRIES = 4
"""How often a folder is made again that another process has removed at once, for being empty."""


def checkout() -> Path | None:
    """Root of the source checkout that the package runs from, or None for an installed wheel."""
    root = _PACKAGE_ROOT.parent
    return root if (root / "pyproject.toml").is_file() and (root / "data").is_dir() else None


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder to search for datasets, absolute; it need not exist.

    Raises:
        TypeError: ``root`` is no path.
    """
    if root is None:
        root = os.environ.get("LAB_DATA_ROOT") or None
    if root is not None:
        return checked_path("root", root).resolve()
    here = checkout()
    return here / "data" if here else user_folder("data")


def is_writable(folder: Path) -> bool:
    """True when a file can be created in ``folder``, which is made if missing.

    Trying is the only reliable test: permission bits say nothing to root, on read-only mounts or under
    quotas.
    """
    for _ in range(_TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return True
        except FileNotFoundError:
            continue
        except OSError:
            break
    return False


@contextlib.contextmanager
def without_empty_folders(folder: Path) -> Iterator[None]:
    """Where the block fails, ``folder`` and those above it go that were missing before, as far as they are empty.

    What another process has put there meanwhile, its lock file for one, keeps them.
    """
    missing = []
    with contextlib.suppress(OSError):  # where nothing may be looked up, nothing is made
        for each in (folder, *folder.parents):
            if each.exists():
                break
            missing.append(each)
    try:
        yield
    except BaseException:
        for each in missing:
            with contextlib.suppress(OSError):
                each.rmdir()
        raise


def require_writable(folder: Path, purpose: str) -> None:
    """Raise PermissionError naming ``folder``, what it was wanted for and how to choose another one."""
    if not is_writable(folder):
        raise PermissionError(
            f"root {str(folder)!r} cannot be written to, which {purpose} needs: pass root=, or set "
            "LAB_DATA_ROOT to a folder of yours"
        )


def cache_folder(root: Path) -> Path | None:
    """Folder for our cached graphs of ``root``; None when neither it nor the user's cache is writable."""
    inside = root / CACHE_FOLDER
    if is_writable(inside):
        return inside
    # Two read-only roots may hold different files under one name: keep their caches apart.
    tag = hashlib.sha256(str(root).encode()).hexdigest()[:12]
    outside = user_folder("cache") / tag
    return outside if is_writable(outside) else None


def cache_candidates(root: Path) -> list[Path]:
    """Cache folders that may already hold graphs of ``root``, readable or not, without writing anything."""
    tag = hashlib.sha256(str(root).encode()).hexdigest()[:12]
    return [root / CACHE_FOLDER, user_folder("cache") / tag]
