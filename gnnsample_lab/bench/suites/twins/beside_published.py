"""Twins beside publications: each published number measured on the twin with the very configuration of its source."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.files import read_json
from gnnsample_lab.graph import load
from gnnsample_lab.graph.recency import recency_weights
from gnnsample_lab.resources import resource_path

from .judge import Cell, check_no_circle, label_of, status_of
from .metrics import LAST, OF_ALL, REPEATED, Key, Numbers, average_clustering, joined, random_set, sampled
from .published import LAST_COUNTS, Published, by_setting, cells_of

SEEDS = (0, 1, 2)
ONE_SEED_FROM = 300_000_000
"""Edges from which a twin is generated and sampled once: three times would take too long."""
LEVELS = 24
"""Mini-batches of which rows and frontiers are means, where nothing else of a setting is published."""
GPU = (
    "arxiv-like", "products-like", "reddit-like", "mag-like", "papers100M-like", "twitter-like@0.25", "uk-like@0.25",
    "friendster-like@0.1",
)  # fmt: skip
"""What is compared on a GPU unless graphs are named; a scaled twin has scaled batches, and its rows count as scaled."""


def sources_of(name: str) -> dict[str, Any]:
    """Where the parameters of a catalogue twin come from; empty for one without statistics."""
    try:
        path = resource_path(f"data/twins/{scaled(name)[0]}.json")
    except FileNotFoundError:
        return {}
    found: dict[str, Any] = read_json(path).get("sources", {})
    return found


def compare(session: Session, name: str) -> tuple[list[Cell], dict[str, Any]]:
    """The cells of one twin, and what a reader has to know of them."""
    began = time.perf_counter()
    base, scale = scaled(name)
    wanted = cells_of(base)
    looks: list[Numbers] = []
    graph: Any = None
    for seed in SEEDS[:1] if session.quick else SEEDS:
        if graph is not None and graph.num_edges >= ONE_SEED_FROM:
            break
        graph = None
        _free()  # two large twins do not fit beside each other
        graph = load(base, scale=scale, seed=seed, device=common.device(), features=False)
        session.say(f"{name}, seed {seed}: generated, {time.perf_counter() - began:.1f} s")
        looks.append(measure(session, graph, name, wanted))
    cells = judged(name, wanted, looks, sources_of(name), scale)
    about = {
        "kind": "published", "original": base, "num_nodes": graph.num_nodes, "num_edges": graph.num_edges,
        "seeds": len(looks), "scale": scale, "seconds": time.perf_counter() - began,
    }  # fmt: skip
    return cells, about


def _free() -> None:
    """Hand back what CuPy's pool holds of graphs that are gone."""
    if common.device() == "cuda":
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()


def measure(session: Session, graph: Any, name: str, wanted: Sequence[Published]) -> Numbers:
    """Every published number on one twin; the key's training set is followed by the setting."""
    found: Numbers = {}
    if any(cell.quantity == "clustering" for cell in wanted):
        found[Key("clustering")] = average_clustering(graph)
    weighted: Any = None
    for (setting, training), group in by_setting(c for c in wanted if c.setting).items():
        began = time.perf_counter()
        first = group[0]
        if first.sampler == "weighted" and weighted is None:
            weighted = recency_weights(graph)
        seeds = common.train_seeds(graph)
        if training != "train":
            seeds = random_set(graph.num_nodes, share=float(training.split()[1]) / 100)
        size = common.batch_size(name, _Trained(seeds), first.batch_size)
        made = common.sampler(
            weighted if first.sampler == "weighted" else graph, first.sampler, first.fanouts
        )
        if {cell.quantity for cell in group} <= {"rows", "frontier"}:
            numbers = levels(made, seeds, size, training)
        else:
            rates = [cell.detail.rsplit(" ", 2)[:2] for cell in group if cell.quantity == "hit rate"]
            numbers = sampled(
                made, seeds, size, training, policies=tuple(dict.fromkeys(policy for policy, _ in rates)),
                ratios=tuple(sorted({float(percent) / 100 for _, percent in rates})),
                repeated=any(cell.quantity.startswith("match") for cell in group),
            )  # fmt: skip
        found |= {key._replace(training=f"{training}|{setting}"): value for key, value in numbers.items()}
        session.say(f"{name}, {label_of(setting, '', training)}: {time.perf_counter() - began:.1f} s")
    return found


class _Trained:
    """Training seeds in the form in which :func:`~gnnsample_lab.bench.common.batch_size` takes a graph."""

    def __init__(self, seeds: np.ndarray) -> None:
        self.splits = {"train": seeds}
        self.num_nodes = len(seeds)


def levels(sampler: Any, seeds: np.ndarray, batch_size: int, training: str) -> Numbers:
    """Rows and frontiers alone, over the first whole mini-batches of an epoch."""
    few = islice(sampler.epoch(seeds, batch_size, drop_last=True), LEVELS)
    sizes = np.mean([batch.level_sizes for batch in few], axis=0)
    found = {Key("rows", "", training): float(sizes[-1])}
    for hop, size in enumerate(sizes[1:-1], 2):
        found[Key("frontier", f"hop {hop}", training)] = float(size)
    return found


def key_of(cell: Published) -> Key:
    """The measured number that a published one is compared with."""
    if not cell.setting:
        return Key(cell.quantity, cell.detail)
    detail = cell.detail
    if cell.quantity == "similarity":
        detail = OF_ALL
    elif cell.quantity.startswith("match"):
        detail = REPEATED
    if cell.quantity in LAST_COUNTS:
        detail = joined(detail, LAST)
    return Key(cell.quantity, detail, f"{cell.training}|{cell.setting}")


def others(cell: Published, looks: Sequence[Numbers]) -> Iterator[str]:
    """The same quantity under other rules, in words, for quantities whose source leaves the rule open."""
    if not cell.quantity.startswith("match"):
        return
    key = key_of(cell)
    for words, detail in (("our draws, with the last batch", LAST), ("our draws, without it", ""),
                          ("repeated draws, without it", REPEATED)):  # fmt: skip
        values = [look[key._replace(detail=detail)] for look in looks if key._replace(detail=detail) in look]
        if values:
            yield f"{words} {np.median(values):.1f}"


def judged(
    name: str,
    wanted: Sequence[Published],
    looks: Sequence[Numbers],
    sources: Mapping[str, Any],
    scale: float = 1.0,
) -> list[Cell]:
    """The published numbers beside the twin's.

    Raises:
        ValueError: the twin is fitted to more than two of them.
    """
    found = []
    for cell in wanted:
        key = key_of(cell)
        # Without an incomplete mini-batch, an epoch with the last one is the epoch.
        spare = key._replace(detail=key.detail.removesuffix(LAST).removesuffix(", "))
        seen = [look.get(key, look.get(spare, float("nan"))) for look in looks]
        size = scale if cell.quantity in ("rows", "frontier") else 1.0
        note = "; ".join(others(cell, looks))
        found.append(Cell(
            graph=name, beside="published", quantity=cell.quantity, detail=cell.detail, training=cell.training,
            twin=float(np.median(seen)), low=cell.low * size, high=cell.high * size, twins=tuple(seen),
            status=status_of(cell.quantity, cell.detail, cell.training, cell.setting, sources),
            source=f"{cell.source} ({note})" if note else cell.source, setting=cell.setting,
        ))  # fmt: skip
    check_no_circle(found)
    return found
