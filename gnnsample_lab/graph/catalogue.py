"""The catalogue of datasets: sizes, licences, who used them, where they come from, how twins are made."""

from __future__ import annotations

import difflib
import functools
import os
from pathlib import Path
from typing import Any

from gnnsample_lab.files import read_json, reading
from gnnsample_lab.graph import roots
from gnnsample_lab.graph.errors import UnknownDatasetError

Entry = dict[str, Any]
GENERATED = ("synthetic", "rmat")
"""Kinds of graphs that are generated, at any scale."""


def _path() -> Path:
    package = Path(__file__).resolve().parents[1]
    for path in (
        package.parent / "data" / "catalogue.json",
        package / "_resources" / "data" / "catalogue.json",
    ):
        if path.is_file():
            return path
    raise FileNotFoundError("the package was installed without its data/catalogue.json")


@functools.lru_cache(maxsize=1)
def entries() -> dict[str, Entry]:
    """Every catalogue entry by name."""
    path = _path()
    with reading(path, "the catalogue"):
        return {entry["name"]: entry for entry in read_json(path)["datasets"]}


def entry(name: str) -> Entry:
    """The entry of ``name``.

    Raises:
        UnknownDatasetError: not in the catalogue; the message offers the closest names.
    """
    table = entries()
    if name in table:
        return table[name]
    close = difflib.get_close_matches(name, table, n=3, cutoff=0.5)
    hint = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
    raise UnknownDatasetError(
        f"name {name!r} is no known dataset{hint}; lab.datasets() lists them, "
        "and snap:<path or name> reads an edge list"
    )


def datasets(root: str | os.PathLike[str] | None = None) -> Any:
    """The catalogue as a pandas DataFrame, one row per dataset, indexed by name.

    Columns: ``name``, ``kind`` (ogb, npz, planetoid, musae, snap, synthetic, rmat), ``num_nodes``,
    ``num_edges`` (directed, as loaded by default; a twin may have a thousandth more or fewer),
    ``num_features``, ``num_classes``, ``num_train``, ``splits`` ("source" where the source defines them,
    "ours" where it does not and we draw them, "generated", or empty), ``directed``, ``licence``, ``papers``
    (where its sizes are listed), ``twin`` (the synthetic stand-in), ``local`` (where it lies under ``root``,
    "generated" for synthetic ones, empty when it would have to be downloaded), ``download_mb``, ``notes``.

    Args:
        root: data root to look in, as for :func:`gnnsample_lab.load`.

    Raises:
        TypeError: ``root`` is no path.
    """
    import pandas

    from gnnsample_lab.graph.locate import where

    base = roots.data_root(root)
    counts = ["num_nodes", "num_edges", "num_features", "num_classes", "num_train"]
    rows = []
    for name, item in entries().items():
        generated = item["kind"] in GENERATED
        row: Entry = {"name": name, "kind": item["kind"]}
        row.update({key: item.get(key, 0) for key in counts})
        drawn = "generated" if generated else item.get("splits", "source")
        row["splits"] = "" if item.get("num_train") == 0 else drawn
        row["directed"] = bool(item.get("directed", False))
        row["licence"] = item["licence"]
        row["papers"] = ", ".join(item.get("papers", []))
        row["twin"] = item.get("twin", item.get("twin_of", ""))
        row["local"] = "generated" if generated else str(where(name, base) or "")
        row["download_mb"] = item.get("download_mb")
        row["notes"] = item.get("notes", "")
        rows.append(row)
    frame = pandas.DataFrame(rows).set_index("name", drop=False)
    for column in (*counts, "download_mb"):
        frame[column] = frame[column].astype("Int64")  # nullable: some counts depend on the file
    return frame
