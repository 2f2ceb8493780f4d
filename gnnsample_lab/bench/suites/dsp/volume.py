"""Figure 1: bytes that a mini-batch moves, by method, against an ideal that fetches the picks alone.

Nothing here is timed. Slices of 1, 2, 4 and 8 ranks are sampled, and their messages and reads counted from the samples
(:mod:`.counting`), which needs no ranks; on ranks that are there, engines must have counted the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.device.arrays import offsets_of, to_host
from gnnsample_lab.minibatch.sampler import NeighborSampler

from . import counting, crew

RANKS = (1, 2, 4, 8)
BETTER_EDGES = 130_000_000
"""METIS cuts a graph of up to so many edges in a minute or two, within the memory of a usual host."""


def volume(session: Session) -> dict[str, Any]:
    """The suite's function."""
    checked, names = verify(session), graphs(session)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for name in names:
        edges = int(common.graph(session, name).num_edges)
        for how, ranks, weighted in _points(name, edges):
            try:
                cut = crew.cut_of(session, name, ranks, how)
            except (ImportError, ValueError) as error:  # no METIS here, or a graph too large for it
                notes.append(f"{name}, parts by {how}: {error}")
                continue
            row = {
                "graph": name,
                "ranks": ranks,
                "partition": how,
                "draws": "weighted" if weighted else "uniform",
                "balance": cut.balance["edges"],
            }
            notes += crew.loosened(name, cut)
            rows.append(row | counted(session, name, cut, crew.FANOUTS, weighted))
            session.say(_line(rows[-1]))
        for key in [k for k in session._kept if k[:3] == ("dsp", "cut", name) and k[3] > crew.most_ranks()]:
            del session._kept[key]  # a few arrays of all vertices each
    return {
        "settings": {
            "device": common.device(), "batch_size": crew.BATCH, "fanouts": crew.FANOUTS,
            "bytes": "of all ranks together, a mini-batch of each; counted from samples, not timed: exact messages; "
            "reads in sectors of 32 bytes, from host memory in requests of 50; ideal: ids of the picks alone",
            "seeds": "of each rank, training vertices that it owns", "balance": crew.BALANCE,
            "work": "rows, edges: vertices and picks of a rank's mini-batch, means of all ranks",
        },
        "verification": checked, "graphs": common.facts(session, names), "rows": rows,
        "notes": list(dict.fromkeys(notes)),
    }  # fmt: skip


def graphs(session: Session) -> tuple[str, ...]:
    if session.quick:
        return crew.names(session, "products-like@0.1")
    return crew.names(session, "products-like", "papers100M-like@0.1", "friendster-like@0.05", "rmat")


def is_cut_by_metis(name: str, edges: int) -> bool:
    """Whether METIS cuts the graph in time, and better than chance, as it hardly does R-MAT graphs."""
    return edges <= BETTER_EDGES and not name.startswith("rmat")


def _points(name: str, edges: int) -> list[tuple[str, int, bool]]:
    """Partition, ranks, whether draws are weighted: every number of ranks at random, and, where it cuts the graph in
    time, by METIS, as DSP has it; the most ranks by a stream, too."""
    found = [("random", ranks, False) for ranks in RANKS]
    if is_cut_by_metis(name, edges):
        found += [("metis", ranks, False) for ranks in RANKS[1:]] + [("streaming", RANKS[-1], False)]
    return [*found, ("random", RANKS[-1], True)]


def counted(
    session: Session, name: str, cut: Any, fanouts: tuple[int, ...], weighted: bool = False, seeds: Any = None
) -> dict[str, Any]:
    """Bytes of one mini-batch of every rank, what that is of the ideal, and which share of lists is remote.

    Args:
        cut: the partition.
        fanouts, weighted: of the draw.
        seeds: an array for each rank; None takes as many of its own training vertices for each.
    """
    found, ranks = common.graph(session, name), cut.num_parts
    sampler = session.kept(
        ("dsp", "whole", name, fanouts, weighted),
        lambda: NeighborSampler(found, list(fanouts), weighted=weighted, device=common.device()),
    )
    indptr = session.kept(("dsp", "indptr", name), lambda: to_host(found.indptr))
    size = crew.batch_size(found)
    if seeds is None:
        seeds = [given[0] for given in crew.seeds_of(found, ranks, 1, size, cut.owner)]
    lists = counting.Lists(np.asarray(cut.owner), _records(indptr, cut), ranks, found.indices.dtype.itemsize)
    total = dict.fromkeys((*counting.METHODS, "ideal"), 0)
    picks = remote = vertices = reached = rows = 0
    for rank, mine in enumerate(seeds):
        batch = sampler.sample(mine, 0)
        rows += int(batch.num_nodes)
        hops = counting.with_slots([hop.to_cpu() for hop in batch.picks], indptr)
        for method, nbytes in counting.counted(lists, rank, hops, fanouts, weighted).items():
            total[method] += nbytes
        for hop in hops:
            picks += hop.num_picks
            vertices += hop.frontier.size
            remote += int((lists.owner[hop.frontier] != rank).sum())
            reached += int(lists.records[hop.frontier, 1].sum())
    return {
        "batch_size": size, "fanouts": list(fanouts), "bytes": total, "mb": {m: n / 1e6 for m, n in total.items()},
        "over_ideal": {m: n / max(1, total["ideal"]) for m, n in total.items()},
        "pull_over_csp": total["pull"] / total["csp"] if total["csp"] else None, "picks": picks,
        "rows": round(rows / ranks), "edges": round(picks / ranks),
        "remote_percent": 100 * remote / max(1, vertices), "mean_degree": reached / max(1, vertices),
    }  # fmt: skip


def _records(indptr: np.ndarray, cut: Any) -> np.ndarray:
    """Where each list begins among its owner's entries, and its degree, ``int64[N, 2]``; as ``vertex_records``."""
    degrees = np.diff(indptr)
    of_new = offsets_of(degrees[cut.old_of])
    found = np.empty((cut.num_nodes, 2), dtype=np.int64)
    found[cut.old_of, 0] = of_new[:-1]
    found[:, 0] -= of_new[np.asarray(cut.boundaries)[np.asarray(cut.owner)]]
    found[:, 1] = degrees
    return found


def _line(row: dict[str, Any]) -> str:
    over = ", ".join(f"{m} {row['over_ideal'][m]:.2f}" for m in counting.METHODS)
    return f"{row['graph']}, {row['ranks']} parts by {row['partition']}, {row['draws']}: x ideal: {over}"


# ---- what the counts are checked against --------------------------------------------------------------------------


def verify(session: Session) -> dict[str, int]:
    """On ranks that are there, engines count the bytes that the samples tell, method by method, to the byte.

    Raises:
        VerificationError: they do not.
    """
    from gnnsample_lab.distributed import traffic_of

    def make() -> dict[str, int]:
        name, fanouts, pool = "arxiv-like@0.05", (6, 4), crew.ranks(session)
        found, checked = common.graph(session, name), 0
        for weighted in (False,) if session.quick else (False, True):
            folder = crew.parts(session, name, pool.ranks, weighted=weighted)
            cut = crew.cut_of(session, name, pool.ranks)
            size = crew.batch_size(found)
            given = np.unique(
                np.concatenate([s[0] for s in crew.seeds_of(found, pool.ranks, 1, size, cut.owner)])
            )
            tasks = [
                {"fanouts": fanouts, "method": m, "weighted": weighted, "by": "owner"}
                for m in counting.METHODS
            ]
            by_rank = pool.run(traffic_of, folder, given, tasks)
            slices = [given[np.asarray(cut.owner)[given] == rank] for rank in range(pool.ranks)]
            wanted = counted(session, name, cut, fanouts, weighted, slices)["bytes"]
            for i, method in enumerate(counting.METHODS):
                if weighted and method == "uva":
                    continue  # engines differ in how they find where sums begin
                moved = sum(ranks[i].volume - ranks[i].by_kind.get("padding", 0) for ranks in by_rank)
                if moved != wanted[method]:
                    raise VerificationError(
                        f"{method}: ranks moved {moved} bytes, {wanted[method]} were counted"
                    )
                ideal = sum(ranks[i].ideal for ranks in by_rank)
                if ideal != wanted["ideal"]:
                    raise VerificationError(
                        f"{method}: its ideal is {ideal} bytes, {wanted['ideal']} were counted"
                    )
                checked += 1
        return {"methods_counted_as_on_ranks": checked, "ranks": pool.ranks}

    return dict(session.kept(("dsp", "verified volume"), make))
