"""Data sets that come as files of one kind each: where their files lie, and who reads them.

A module of this folder reads each kind. Its key file makes a folder usable, and so is fetched last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from gnnsample_lab.files import reading
from gnnsample_lab.graph.catalogue import Entry
from gnnsample_lab.graph.errors import CorruptDataError
from gnnsample_lab.graph.graph import Graph
from gnnsample_lab.graph.sources import gnn_benchmark, graphsaint, musae, planetoid, reddit

VERSION = 1
"""Of what the readers make of the files; caches of another version are built again."""
KINDS = ("npz", "planetoid", "musae")
"""The catalogue's kinds that are read here."""


class Format(Protocol):
    """What a module offers that reads one kind of files."""

    def keys(self, entry: Entry) -> tuple[str, ...]:
        """Names that the key file may have; patterns count in a folder of the data set's own."""

    def files(self, key: Path, entry: Entry) -> list[Path]:
        """All files that decide the graph, whether they are there or not."""

    def read(self, key: Path, entry: Entry, raw: bool = False) -> Graph:
        """The graph; ``raw`` asks for the source's own columns where features would be hashed."""


FORMATS: dict[str, Format] = {
    "reddit": reddit,
    "graphsaint": graphsaint,
    "gnn-benchmark": gnn_benchmark,
    "planetoid": planetoid,
    "musae": musae,
}
"""Reader by the catalogue's ``format``."""


def folders(entry: Entry, root: Path) -> list[Path]:
    """Folders that may hold the data set, in the order in which they are tried."""
    return [root / entry["name"], root / "npz" / entry["name"], *(root / f for f in entry.get("folders", ()))]


def archives(entry: Entry, root: Path) -> list[Path]:
    """Archives that the user may have put there, for sources that have one; the first is where a download goes."""
    name = entry["url"].rpartition("/")[2]
    if not name.endswith(".zip"):
        return []
    return [folder / name for folder in (root, root / "snap", root / entry["name"])]


def addresses(entry: Entry) -> dict[str, str]:
    """File name -> URL, for sources that are no archive; the key file comes last."""
    url, listed = entry["url"], entry.get("files")
    if listed is None:
        return {url.rpartition("/")[2]: url}
    table = dict(listed) if isinstance(listed, dict) else {name: url + name for name in listed}
    keys = FORMATS[entry["format"]].keys(entry)
    return dict(sorted(table.items(), key=lambda item: item[0] in keys))


def find(entry: Entry, root: Path) -> Path | None:
    """The key file of a data set: in a folder of its own, down to two levels below, else in one that is listed."""
    names = FORMATS[entry["format"]].keys(entry)
    for number, folder in enumerate(folders(entry, root)):
        own = number < 2
        for level in ("", "*/", "*/*/") if own else ("",):
            for name in names if own else (n for n in names if "*" not in n):
                hit = next((f for f in sorted(folder.glob(level + name)) if f.is_file()), None)
                if hit is not None:
                    return hit
    return None


def read(key: Path, entry: Entry, raw: bool = False) -> Graph:
    """Read the files around ``key``.

    Raises:
        CorruptDataError: a missing, cut-off or damaged file, or contents that disagree; names the file.
        MemoryError: ``raw``, and the columns do not fit.
    """
    folder = key.parent
    # Only a folder of the data set's own may go as a whole.
    remedy = f"remove {folder} to download it again" if entry["name"] in folder.parts else "replace the file"
    try:
        with reading(key, f"{entry['format']} data"):
            return FORMATS[entry["format"]].read(key, entry, raw)
    except FileNotFoundError as error:
        raise CorruptDataError(f"{error}: {folder} is incomplete; {remedy}") from error
    except CorruptDataError as error:
        raise CorruptDataError(f"{error}; {remedy}") from error
