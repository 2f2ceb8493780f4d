"""FastGL's figure 14 (batch size, feature dimension, fanouts and depth) and its tables of device memory, 1 and 9."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.device import runtime
from gnnsample_lab.systems.table import find

from .training import SYSTEMS, against, featured, forget_features, graphs, record, run_each, verify

IN_TURN = "dgl, stage by stage"
"""DGL's configuration as FastGL's runs: a mini-batch is trained before the next is sampled."""


def figure14(session: Session) -> dict[str, Any]:
    """Over (b) batch size, (c) feature dimension, (d) fanouts and depth; GCN."""
    few = ("dgl", "fastgl", "lab")
    systems = few if session.quick else SYSTEMS
    checked = verify(session, systems)
    names = common.names(session, "products-like", "mag-like@0.1" if session.quick else "mag-like")
    rows: list[dict[str, Any]] = []
    for i, name in enumerate(names):
        is_papers = i == 0  # the paper has one graph; what a cache of a few rows changes is seen on the other
        for part, options in _points(is_papers and not session.quick):
            found = run_each(session, name, systems if is_papers else few, **options)
            rows += [{"part": part, **row} for row in against(found, "dgl")]
            if "dimension" in options:
                forget_features(session, name)
    return record(
        session, names, rows, checked, fanouts_of_part_d="next to the seeds first",
        graphs_beside_the_paper_s="the paper has Products alone, of which an RTX 3090 caches everything; "
        "what a cache of a few rows changes is seen on MAG, with fewer points and systems",
    )  # fmt: skip


def _points(is_full: bool) -> list[tuple[str, dict[str, Any]]]:
    """Parts of figure 14 and what each run has in place of the defaults: the paper's axes, or the ends of each."""
    b: tuple[int, ...] = (4000, 12000)
    c: tuple[int, ...] = (64, 256)
    d: tuple[tuple[int, ...], ...] = ((10, 5), (10, 10, 5, 5))
    if is_full:
        b, c = (2000, 4000, 6000, 8000, 10000, 12000), (64, 128, 256, 512)
        d = ((10, 5), (15, 10, 5), (10, 10, 5, 5))
    return [
        *(("b", {"size": size}) for size in b),
        *(("c", {"dimension": dimension}) for dimension in c),
        *(("d", {"fanouts": fanouts}) for fanouts in d),
    ]


MEMORY_BY = (
    "each system by its own executor, not by the fastest of several: how many mini-batches wait differs between them, "
    "and with it the memory"
)
"""Setting of the tables of memory."""


def table1(session: Session) -> dict[str, Any]:
    """Device memory left while the DGL-like configuration trains, hidden size 256."""
    checked, names = verify(session, ("dgl",)), graphs(session, "reddit-like", "products-like")
    total = runtime.gpu_memory()[1] if common.device() == "cuda" else 0
    rows: list[dict[str, Any]] = []
    for name in names:
        (row,) = run_each(session, name, ("dgl",), hidden=256, fastest=False)
        rows.append({
            **row, "total_gb": total / 1e9, "left_gb": max(0.0, total / 1e9 - row["peak_mb"] / 1e3),
            "left_of_24_gb": 24.0 - row["peak_mb"] / 1e3, "feature_gb": _feature_bytes(session, name) / 1e9,
        })  # fmt: skip
    return record(
        session, names, rows, checked, cached=False, hidden=256, executors=MEMORY_BY,
        peak_mb="most that the memory pools held, graph included",
    )  # fmt: skip


def _feature_bytes(session: Session, name: str) -> int:
    return int(featured(session, name).feat.nbytes)


def table9(session: Session) -> dict[str, Any]:
    """Device memory in use: the DGL-like configuration, FastGL's techniques without a cache, and ours without one.

    FastGL's configuration trains stage by stage, DGL's has a mini-batch waiting: DGL's stands there both ways.
    """
    dgl, fastgl, ours = find("dgl"), replace(find("fastgl"), cache=None), replace(find("lab"), cache=None)
    without = (dgl, replace(dgl, name=IN_TURN, executor=fastgl.executor), fastgl, ours)
    checked, names, rows = verify(session, without), graphs(session, "reddit-like", "products-like"), []
    for name in names:
        found = run_each(session, name, without, fastest=False)
        for row in found:
            row["mb"] = row["peak_mb"]
            for field, base in (("over_dgl", found[0]), ("over_dgl_in_turn", found[1])):
                row[field] = row["peak_mb"] / base["peak_mb"] if base["peak_mb"] else None
        rows += found
    return record(
        session, names, rows, checked, cached=False, executors=MEMORY_BY,
        mb="most that the memory pools held, graph included; caches, which take what is left over, are off",
    )  # fmt: skip
