"""Hit rates of caching policies from recorded footprints: GNNLab's table 2 and figures 5, 10 and 11.

Nothing here is timed: rows that hit or miss are counted, and bytes are counted rows times the bytes of a row. So all of
it runs without a GPU too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.features.ranking.footprint import epoch_similarity, footprint, hit_rate
from gnnsample_lab.features.ranking.hotness import hotness

EPOCHS = 10
POLICIES = ("random", "degree", "reverse-pagerank", "presample", "optimal")
RATIO = 0.1
DIMENSIONS = {"products-like": 100, "twitter-like": 256, "papers100M-like": 128, "uk-like": 256}
"""Features a vertex, as in GNNLab's table 3; 128 for other graphs."""


def graphs(session: Session) -> tuple[str, ...]:
    """The four graphs of GNNLab's table 3, the large ones scaled down: in a quick run to a tenth."""
    if session.quick:
        return common.names(
            session, "products-like", "twitter-like@0.1", "papers100M-like@0.1", "uk-like@0.1"
        )
    return common.names(session, "products-like", "twitter-like@0.25", "papers100M-like", "uk-like@0.25")


@dataclass
class Study:
    """One graph and sampler: the footprint of :data:`EPOCHS` epochs, and hotness by policy as asked for."""

    session: Session
    name: str
    kind: str
    fanouts: tuple[int, ...] = common.FANOUTS

    def __post_init__(self) -> None:
        self.graph = common.graph(self.session, self.name)
        self.seeds = common.train_seeds(self.graph)
        self.size = common.batch_size(self.name, self.graph)
        self.sampler = common.sampler(self.graph, self.kind, self.fanouts)

    @cached_property
    def recorded(self) -> Any:
        """What :data:`EPOCHS` epochs of training need."""
        found = self.footprint(0, EPOCHS)
        self.session.say(f"{self.name}, {self.kind}: {found.num_batches} mini-batches recorded")
        return found

    def footprint(self, first: int, epochs: int) -> Any:
        return footprint(self.sampler, self.seeds, self.size, epochs, first)

    def policy(self, policy: str, epochs: int = 1) -> Any:
        """Hotness by ``policy``; all samplers of a graph share the policies that do not depend on the sampler."""
        kind = (self.kind, self.fanouts) if policy in ("presample", "optimal") else ()
        return self.session.kept(
            ("hotness", self.name, kind, policy, epochs), lambda: self._make(policy, epochs)
        )

    def _make(self, policy: str, epochs: int) -> Any:
        more: dict[str, Any] = {}
        if policy == "optimal":
            more = {"batches": self.recorded}
        elif policy == "presample":
            more = {"sampler": self.sampler, "seeds": self.seeds, "batch_size": self.size, "epochs": epochs}
        elif policy == "reverse-pagerank":
            more = {"seeds": self.seeds}
        return hotness(self.graph, policy, **more)

    def rates(self, policy: str, ratios: Any, epochs: int = 1) -> np.ndarray:
        """Hit rates over the recorded epochs at ``ratios``."""
        return np.atleast_1d(
            hit_rate(self.policy(policy, epochs), self.recorded, np.asarray(ratios, np.float64))
        )

    @property
    def rows_per_batch(self) -> float:
        return float(self.recorded.num_rows) / self.recorded.num_batches

    @property
    def dimension(self) -> int:
        return DIMENSIONS.get(scaled(self.name)[0], 128)


def study(session: Session, name: str, kind: str, fanouts: tuple[int, ...] = common.FANOUTS) -> Study:
    """The study of a graph and sampler, made once per run."""
    found: Study = session.kept(("study", name, kind, fanouts), lambda: Study(session, name, kind, fanouts))
    return found


def verify(session: Session) -> dict[str, Any]:
    """Footprints against the CPU twin and counted by hand, and hit rates against sets, on a small graph."""

    def make() -> dict[str, Any]:
        name = "arxiv-like@0.02"
        small = common.graph(session, name)
        cpu = small.to("cpu")
        seeds, checked, rates = common.train_seeds(small), 0, 0
        for kind in common.KINDS:
            found = footprint(common.sampler(small, kind, (4, 3)), seeds, 256, 2, 0)
            twin = common.sampler(cpu, kind, (4, 3), "cpu")
            batches = [batch for epoch in range(2) for batch in twin.epoch(seeds, 256, epoch=epoch)]
            counted = np.zeros(cpu.num_nodes, np.int64)
            for batch in batches:
                counted[batch.node_ids] += 1
            if not np.array_equal(found.visits, counted) or found.num_batches != len(batches):
                raise VerificationError(f"{kind}: the footprint differs from the CPU twin's, counted by hand")
            checked += 1
            for policy in ("degree", "optimal"):
                hot = hotness(small, policy, batches=found if policy == "optimal" else None)
                cached = set(np.asarray(hot.order)[: round(RATIO * cpu.num_nodes)].tolist())
                rows = [v for batch in batches for v in batch.node_ids.tolist()]
                expected = sum(v in cached for v in rows) / len(rows)
                if abs(float(hit_rate(hot, found, RATIO)) - expected) > 1e-12:
                    raise VerificationError(f"{kind}, {policy}: the hit rate differs from the counted one")
                rates += 1
        return {"footprints_equal_to_cpu_twin": checked, "hit_rates_equal_to_counted": rates}

    return session.kept(("verified", "caching"), make)  # type: ignore[no-any-return]


def _record(
    session: Session, names: tuple[str, ...], rows: list[dict[str, Any]], **settings: Any
) -> dict[str, Any]:
    return {
        "settings": {
            "device": common.device(), "batch_size": common.BATCH, "fanouts": common.FANOUTS, "samplers": {
                "k-hop": "3-hop uniform", "weighted": "3-hop, every year of a neighbour's registration counts double",
                "walks": "PinSAGE: 4 walks of 3 steps, 5 neighbours, 3 layers; half of the walks end after each step",
            }, "recorded_epochs": EPOCHS, **settings,
        },
        "verification": verify(session), "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip


def table2(session: Session) -> dict[str, Any]:
    """Similarity of the footprints of neighbouring epochs, for graphs and samplers."""
    verify(session)
    names, epochs = graphs(session), 3 if session.quick else 6
    rows: list[dict[str, Any]] = []
    for name in names:
        for kind in common.KINDS:
            rows.append(session.piece((name, kind), partial(_similarity, session, name, kind, epochs)))
    return _record(session, names, rows, top=0.1)


def _similarity(session: Session, name: str, kind: str, epochs: int) -> dict[str, Any]:
    found = study(session, name, kind)
    prints = [found.footprint(epoch, 1) for epoch in range(epochs)]
    similar = [100 * float(epoch_similarity(a, b)) for a, b in pairwise(prints)]
    session.say(f"{name}, {kind}: {np.mean(similar):.1f} % alike")
    return {
        "graph": name, "sampler": kind, "similarity_percent": float(np.mean(similar)),
        "least_percent": min(similar), "most_percent": max(similar), "epochs": epochs,
    }  # fmt: skip


def figure10(session: Session) -> dict[str, Any]:
    """Hit rate at a cache ratio of 10 %: every policy, graph and sampler."""
    verify(session)
    names: tuple[str, ...] = graphs(session)
    rows: list[dict[str, Any]] = []
    for name in names:
        for kind in common.KINDS:
            rows += session.piece((name, kind), partial(_policies, session, name, kind))
    return _record(session, names, rows, ratio=RATIO)


def _policies(session: Session, name: str, kind: str) -> list[dict[str, Any]]:
    found = study(session, name, kind)
    rates = {policy: 100 * float(found.rates(policy, RATIO)[0]) for policy in POLICIES}
    session.say(f"{name}, {kind}: " + ", ".join(f"{p} {r:.1f} %" for p, r in rates.items()))
    return [
        {
            "graph": name, "sampler": kind, "policy": policy, "cache_percent": 100 * RATIO,
            "hit_percent": percent, "of_optimal": percent / max(rates["optimal"], 1e-9),
            "over_degree": percent / max(rates["degree"], 1e-9),
            "directed": _directed(name), "batch_size": found.size,
        }
        for policy, percent in rates.items()
    ]  # fmt: skip


def _directed(name: str) -> bool:
    from gnnsample_lab.graph.catalogue import entries

    return bool(entries().get(scaled(name)[0], {}).get("directed", False))


def _bytes_row(found: Study, policy: str, percent: float, rate: float, dimension: int) -> dict[str, Any]:
    moved = found.rows_per_batch * (1 - rate) * dimension * 4
    return {
        "graph": found.name, "sampler": found.kind, "policy": policy, "cache_percent": percent,
        "hit_percent": 100 * rate, "num_features": dimension, "mb_per_batch": moved / 1e6,
        "rows_per_batch": round(found.rows_per_batch),
    }  # fmt: skip


def figure5(session: Session) -> dict[str, Any]:
    """Bytes of a mini-batch under the degree policy and the optimal one, over the cache ratio."""
    verify(session)
    percents = (1, 3, 5, 7, 10, 15, 20, 30)
    rows, names = [], []
    for name, kind in _pairs(session):
        found = study(session, name, kind)
        names.append(name)
        rates = {p: found.rates(p, np.asarray(percents) / 100) for p in ("degree", "presample", "optimal")}
        for i, percent in enumerate(percents):
            moved = {
                p: _bytes_row(found, p, float(percent), float(r[i]), found.dimension)["mb_per_batch"]
                for p, r in rates.items()
            }  # fmt: skip
            rows.append({
                "graph": name, "sampler": kind, "cache_percent": float(percent),
                **{f"{p}_mb": value for p, value in moved.items()},
                "degree_over_optimal": moved["degree"] / moved["optimal"] if moved["optimal"] else None,
                "presample_over_optimal": moved["presample"] / moved["optimal"] if moved["optimal"] else None,
            })  # fmt: skip
    return _record(
        session, tuple(names), rows, bytes="missed rows times the bytes of a row, counted, not measured"
    )


def _pairs(session: Session) -> list[tuple[str, str]]:
    """(a) papers100M, uniform; (b) Twitter, weighted."""
    if session.chosen or common.device() == "cpu":
        return [(name, kind) for name in common.names(session) for kind in ("k-hop", "weighted")]
    _, twitter, papers, _ = graphs(session)
    return [(papers, "k-hop"), (twitter, "weighted")]


def figure11(session: Session) -> dict[str, Any]:
    """(a) PreSC#K over the ratio, weighted; (b) policies over the ratio, uniform; (c) bytes over the dimension."""
    verify(session)
    percents, pairs = (1, 2, 5, 10, 20, 30), _pairs(session)
    rows: list[dict[str, Any]] = []
    for name, kind in pairs:
        found = study(session, name, kind)
        part = "a" if kind == "weighted" else "b"
        policies = [(p, 1) for p in ("random", "degree", "presample", "optimal")]
        if part == "a":
            policies[3:3] = [("presample", 2), ("presample", 3)]
        for policy, epochs in policies:
            label = f"presample#{epochs}" if policy == "presample" and part == "a" else policy
            for percent, rate in zip(
                percents, found.rates(policy, np.asarray(percents) / 100, epochs), strict=True
            ):
                rows.append(
                    {"part": part, **_bytes_row(found, label, float(percent), float(rate), found.dimension)}
                )
    found = study(session, *pairs[0])
    # GNNLab caches 5 GB of 57 GB of features; a scaled graph gets the same share.
    cache_bytes = 5e9 * found.graph.num_nodes / 111_059_956
    for dimension in (100, 300, 500, 700, 900):
        ratio = min(1.0, cache_bytes / (4 * dimension * found.graph.num_nodes))
        for policy in ("random", "degree", "presample", "optimal"):
            rate = float(found.rates(policy, ratio)[0])
            rows.append({"part": "c", **_bytes_row(found, policy, 100 * ratio, rate, dimension)})
    return _record(
        session, tuple(name for name, _ in pairs), rows, cache_bytes_of_part_c=cache_bytes,
        bytes="missed rows times the bytes of a row, counted, not measured",
    )  # fmt: skip
