"""Where a dataset lies under a data root, found without reading or writing anything."""

from __future__ import annotations

from pathlib import Path

from gnnsample_lab.graph import catalogue
from gnnsample_lab.graph.sources import formats
from gnnsample_lab.graph.sources import ogb as ogb_source
from gnnsample_lab.graph.sources import snap as snap_source


def ogb_folders(name: str, root: Path) -> list[Path]:
    """Folders that may hold an OGB dataset, in the order in which they are tried."""
    meta = ogb_source.info(name)
    return [root / name, root / meta.folder, root / "ogb" / meta.folder, root / "ogb" / name]


def ogb_folder(name: str, root: Path) -> Path | None:
    """The first complete folder of an OGB dataset."""
    meta = ogb_source.info(name)
    return next((f for f in ogb_folders(name, root) if ogb_source.is_complete(f, meta)), None)


def ogb_archives(name: str, root: Path) -> list[Path]:
    """Archives that the user may have put there; the first is where a download goes."""
    meta = ogb_source.info(name)
    file_name = meta.url.rpartition("/")[2]
    return [root / "ogb" / file_name, root / file_name]


def snap_candidates(target: str, root: Path) -> list[Path]:
    """Files that ``snap:<target>`` may mean: names under the root first, then the path itself."""
    names = [target, *(target + suffix for suffix in snap_source.SUFFIXES)]
    inside = [folder / name for folder in (root / "snap", root) for name in names]
    return [*inside, Path(target).expanduser()]


def snap_file(target: str, root: Path) -> Path | None:
    """The first of :func:`snap_candidates` that is a file."""
    if not target:
        return None
    return next((path for path in snap_candidates(target, root) if path.is_file()), None)


def where(name: str, root: Path) -> Path | None:
    """The folder or file of a catalogue dataset under ``root``, or None."""
    item = catalogue.entry(name)
    if item["kind"] == "ogb":
        try:
            return ogb_folder(name, root)
        except ImportError:
            return None
    if item["kind"] == "snap":
        return snap_file(name.removeprefix("snap:"), root)
    if item["kind"] in formats.KINDS:
        key = formats.find(item, root)
        return None if key is None else key.parent
    return None
