"""Which remote lists a rank should copy: those that save most reads per byte, or by degree; counted, not timed.

Ranks own random or METIS parts. Each ranks the lists of the others by its own visits of some mini-batches, copies as
many as a budget holds (``direct-cached``), and is judged by mini-batches that did not rank them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.distributed.sampling import visits as presampled
from gnnsample_lab.minibatch.sampler import NeighborSampler

from . import crew, volume

RANKS = 4
BUDGETS = (2.5, 5.0, 10.0, 25.0)
"""Percent of the topology's bytes that a rank copies beside its part."""
RANKINGS = ("reads", "in-degree", "out-degree")
"""Ours; the longest lists; those of the vertices that most lists name."""
COUNTED, HELD = 48, 8
"""Mini-batches of a rank that rank lists, and that say what the copies save."""
QUICK_COUNTED, QUICK_HELD = 8, 2


def copies(session: Session) -> dict[str, Any]:
    """The suite's function."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    names = volume.graphs(session)
    for name in names:
        by_metis = volume.is_cut_by_metis(name, int(common.graph(session, name).num_edges))
        for how in ("random", "metis") if by_metis else ("random",):
            try:
                cut = crew.cut_of(session, name, RANKS, how)
            except ImportError as error:
                notes.append(f"{name}, parts by {how}: {error}")
                continue
            notes += crew.loosened(name, cut)
            rows += session.piece((name, how), functools.partial(_of_parts, session, name, how, cut))
    return {
        "settings": {
            "device": common.device(), "batch_size": crew.BATCH, "fanouts": crew.FANOUTS, "balance": crew.BALANCE,
            "counted": QUICK_COUNTED if session.quick else COUNTED, "held": QUICK_HELD if session.quick else HELD,
            "ranking": "reads: visits x min(degree, fanout) over bytes of a list, by hop; in-degree: the longest lists "
            "first, of those that were visited or may be; out-degree: of the vertices that most lists name",
            "saved": "share of a rank's draws from lists of others that copies serve, of mini-batches that did not "
            "rank them",
            "over_degree": "over the better of both rankings by degree",
            "seeds": "of each rank, training vertices that it owns",
        },
        "verification": {"copies_within_their_budget": len(rows) * RANKS}, "graphs": common.facts(session, names),
        "rows": rows, "notes": list(dict.fromkeys(notes)),
    }  # fmt: skip


def _of_parts(session: Session, name: str, how: str, cut: Any) -> list[dict[str, Any]]:
    """Rows of a graph in parts: each ranking within each budget, over all ranks."""
    graph = common.graph(session, name)
    sampler = NeighborSampler(graph, list(crew.FANOUTS), device=common.device())
    degrees, owner = np.diff(to_host(graph.indptr)), np.asarray(cut.owner)
    out_degrees = to_host(graph.out_degrees())
    size = crew.batch_size(graph)
    counted, held = (QUICK_COUNTED, QUICK_HELD) if session.quick else (COUNTED, HELD)
    width = graph.indices.dtype.itemsize
    topology = graph.num_edges * width
    found: dict[tuple[float, str], np.ndarray] = {
        (budget, ranking): np.zeros(3) for budget in BUDGETS for ranking in RANKINGS
    }
    work = []
    for rank, seeds in enumerate(crew.seeds_of(graph, RANKS, counted + held, size, owner)):
        visits = np.zeros((len(crew.FANOUTS), graph.num_nodes))
        visits[-1] = presampled.unseen(out_degrees)
        reads = np.zeros(graph.num_nodes)
        for i, mine in enumerate(seeds):
            batch = sampler.sample(mine, i)
            for hop, picks in enumerate(batch.picks):
                frontier = to_host(picks.frontier)
                if i < counted:
                    visits[hop, frontier] += 1
                else:
                    reads[frontier] += to_host(picks.counts)
            if i >= counted:
                work.append((int(batch.num_nodes), int(batch.num_edges)))
        reads[owner == rank] = 0
        for budget, ranking in found:
            room = budget / 100 * topology
            ids = _hottest(visits, degrees, out_degrees, room, owner, rank, ranking, width)
            _verify(f"{name}, rank {rank}, by {ranking}", ids, degrees, width, room, owner, rank)
            found[budget, ranking] += reads[ids].sum(), reads.sum(), degrees[ids].sum() * width
    rows_, edges = np.rint(np.mean(work, 0)).astype(int).tolist()
    by_degree = {budget: max(found[budget, ranking][0] for ranking in RANKINGS[1:]) for budget in BUDGETS}
    rows = []
    for (budget, ranking), (saved, remote, copied) in found.items():
        rows.append({
            "graph": name, "ranks": RANKS, "partition": how, "balance": cut.balance["edges"], "batch_size": size,
            "rows": rows_, "edges": edges, "budget_percent": budget, "ranking": ranking,
            "saved_share": saved / max(1.0, remote), "copied_mb": copied / RANKS / 1e6,
            "over_degree": saved / by_degree[budget] if ranking == "reads" and by_degree[budget] else None,
        })  # fmt: skip
        session.say(
            f"{name}, {how}, {budget:g} % by {ranking}: {rows[-1]['saved_share']:.1%} of remote draws saved"
        )
    return rows


def _hottest(
    visits: np.ndarray, degrees: np.ndarray, out_degrees: np.ndarray, budget: float, owner: np.ndarray, rank: int,
    ranking: str, width: int,
) -> np.ndarray:  # fmt: skip
    """Vertices whose lists a rank copies."""
    from gnnsample_lab.distributed import hottest_lists

    by_edges = ranking == "out-degree"  # as if each edge out of a vertex had been a visit
    return hottest_lists(
        out_degrees if by_edges else visits, degrees, list(crew.FANOUTS)[-1:] if by_edges else list(crew.FANOUTS),
        int(budget), owner=owner, rank=rank, ranking="visits" if by_edges else ranking.removeprefix("in-"),
        entry_bytes=width,
    ).ids  # fmt: skip


def _verify(
    what: str, ids: np.ndarray, degrees: np.ndarray, width: int, budget: float, owner: np.ndarray, rank: int
) -> None:
    """Raises:
    VerificationError: copies exceed the budget, are of the rank's own lists, or one is there twice.
    """
    held = int(degrees[ids].sum()) * width
    if held > budget or (owner[ids] == rank).any() or len(np.unique(ids)) < len(ids):
        raise VerificationError(
            f"{what}: copies of {held} bytes in {budget:.0f}, or not of others' lists, each once"
        )
