"""What the ranks explorer must show: bytes of four methods from samples of the whole graph, without any rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from gnnsample_widgets.explorers.training.many_gpus import COPYING, RanksExplorer
from gnnsample_widgets.shell.recipe import LAST, follow

import gnnsample_lab as lab


def sectors(starts: dict[int, int], picks: Any) -> int:
    """Sectors of 32 bytes that hold the picked entries, each counted once a row."""
    found = 0
    for v, begin, end in zip(picks.frontier, picks.offsets[:-1], picks.offsets[1:], strict=True):
        slots = picks.slots[begin:end]
        found += len({(starts[int(v)] + int(slot)) * 4 // 32 for slot in slots})
    return found


class Row:
    """A hop's lists of one owner."""

    def __init__(self, graph: Any, picks: Any, chosen: np.ndarray) -> None:
        self.frontier = picks.frontier[chosen]
        counts = picks.counts[chosen]
        self.offsets = np.concatenate([[0], np.cumsum(counts)])
        slots = picks.positions - np.repeat(graph.indptr[picks.frontier], picks.counts)
        self.slots = slots[np.repeat(chosen, picks.counts)]
        self.num, self.num_picks = len(self.frontier), int(counts.sum())
        self.num_listed = int(np.diff(graph.indptr)[self.frontier].sum())


def matrices(
    graph: Any, state: dict[str, Any], seeds: np.ndarray, batch_id: int = 0
) -> dict[str, np.ndarray]:
    """Bytes that came to rank i from rank j, and from host memory in a last column, by method."""
    world = state["num_ranks"]
    tolerance = world if state["parts_by"] in ("random", "range") else 1.1
    cut = lab.distributed.partition(graph, world, state["parts_by"], tolerance=tolerance)
    degrees = np.diff(graph.indptr)
    starts: dict[int, int] = {}
    for part in range(world):
        owned = np.flatnonzero(cut.owner == part)
        starts |= dict(
            zip(owned.tolist(), np.concatenate([[0], np.cumsum(degrees[owned])])[:-1].tolist(), strict=True)
        )
    sampler = lab.NeighborSampler(graph, [state["fanout"]] * state["hops"], seed=state["seed"], device="cpu")
    found = {name: np.zeros((world, world + 1), np.int64) for name in ("pull", "csp", "direct", "uva")}
    for rank in range(world):
        mine = (
            seeds[cut.owner[seeds] == rank] if state["by"] == "owner" else np.array_split(seeds, world)[rank]
        )
        for picks in sampler.sample(mine, batch_id=batch_id).picks if len(mine) else ():
            for peer in range(world):
                row = Row(graph, picks, cut.owner[picks.frontier] == peer)
                found["uva"][rank, world] += 50 * (row.num + sectors(starts, row))
                if peer == rank:
                    continue
                for name, answer in (("pull", row.num_listed), ("csp", row.num_picks)):
                    found[name][rank, peer] += 4 * row.num + 4 * answer  # lengths, and lists or picks
                    found[name][peer, rank] += 4 * row.num  # the ids that were asked for
                found["direct"][rank, peer] += 32 * (row.num + sectors(starts, row))
    for name in ("pull", "csp"):
        found[name][:, :world] += 8 * state["hops"] * (1 - np.eye(world, dtype=np.int64))  # sizes
    return found


def ranks_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    """The recipe, run here: what a page must show."""
    plain = [name for name in lab.distributed.methods() if name != COPYING]
    given = {
        "g": graph, "host": graph, "on_device": graph, "device": "cpu", "methods": plain, "copying": [COPYING],
        **state,
    }  # fmt: skip
    shown: dict[str, go.Figure] = follow(RanksExplorer.recipe, given, lambda key, make: make())[LAST]
    return shown


ORACLES = {"RanksExplorer": ranks_figures}
