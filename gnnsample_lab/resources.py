"""Where the files beside the code lie: notebooks, the catalogue, recorded results.

In a checkout they stand at its root, where people read and edit them; in an installed wheel they are package
data under ``_resources``. Everything else asks here and does not care which.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parent


def checkout_root() -> Path | None:
    """The repository that this package is imported from, or None for an installed wheel."""
    root = PACKAGE_ROOT.parent
    return root if (root / "pyproject.toml").is_file() and (root / "notebooks").is_dir() else None


def resource_path(name: str) -> Path:
    """Path of a shipped file or folder, such as ``"notebooks"`` or ``"data/measured"``.

    Args:
        name: path relative to the repository root, with forward slashes.

    Raises:
        FileNotFoundError: neither the checkout nor the wheel has it.
    """
    for root in (checkout_root(), PACKAGE_ROOT / "_resources"):
        if root is not None and (root / name).exists():
            return root / name
    raise FileNotFoundError(f"{name!r} is neither in the checkout nor in the installed package")


def user_folder(kind: str) -> Path:
    """The user's ``"data"`` or ``"cache"`` folder for this package, by the platform's convention.

    Raises:
        RuntimeError: the user has no home folder.
    """
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
        return base / "gnnsample_lab" / kind.capitalize()
    variable, default = {
        "data": ("XDG_DATA_HOME", home / ".local" / "share"),
        "cache": ("XDG_CACHE_HOME", home / ".cache"),
    }[kind]
    return Path(os.environ.get(variable) or default) / "gnnsample_lab"
