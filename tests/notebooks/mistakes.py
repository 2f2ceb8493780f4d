"""The table of all exercises: right answers beside the worked solutions, and wrong ones with a word of their hint.

An exercise that is missing here, or has no wrong answers or no solution, fails ``test_exercises.py``. Those of notebook
04 that compile a class for each answer stand in ``test_exercises_04.py``.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

import gnnsample_lab as lab
from tests.notebooks.answers import at

Pairs = list[tuple[int, int]]
Mistakes = list[tuple[Any, str]]
ASK_FOR_THE_FUNCTION = "function itself"


def raising(*_: Any) -> Any:
    return 1 / 0


def sources(graph: Any, v: int) -> Any:
    return graph.indices[graph.indptr[v] : graph.indptr[v + 1]]


def ends(graph: Any) -> Any:
    return np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))


def targets(graph: Any, v: int) -> Any:
    return ends(graph)[graph.indices == v]


def row(block: Any, v: int, shift: int = 0) -> Any:
    at_row = (int(np.flatnonzero(block.dst == v)[0]) + shift) % len(block.dst)
    return block.indices[block.indptr[at_row] : block.indptr[at_row + 1]]


def bounds(b: int, fanouts: list[int], n: float, grow: int = 1) -> list[float]:
    sizes = [b]
    for fanout in fanouts[:-1]:
        sizes.append(min(n, sizes[-1] * (fanout + grow)))
    return sizes


def by_transit(pairs: Pairs) -> Pairs:
    return sorted((p for p in pairs if p[1] >= 0), key=lambda p: p[1])


def first_come(ids: list[int]) -> list[int]:
    table: dict[int, int] = {}
    return [table.setdefault(v, len(table)) for v in ids]


def numbered_as_printed(ids: list[int]) -> list[int]:
    table: dict[int, int] = {}
    counter = 0
    for v in ids:
        if v not in table:
            table[v] = 0
            continue
        table[v] = counter
        counter += 1
    return [table[v] for v in ids]


def upstream(graph: Any, train: Any, hops: int) -> set[int]:
    found = {int(v) for v in train}
    for _ in range(hops):
        found |= {int(u) for v in found for u in sources(graph, v)}
    return found


def downstream(graph: Any, train: Any, hops: int) -> set[int]:
    found = {int(v) for v in train}
    for _ in range(hops):
        found |= {int(u) for v in found for u in targets(graph, v)}
    return found


def hit_rate(score: Any, visits: Any, rows: int) -> float:
    return float(visits[np.argsort(-np.asarray(score, float), kind="stable")[:rows]].sum() / visits.sum())


def top(f: np.ndarray, share: float) -> set[int]:
    accessed = [v for v in range(len(f)) if f[v]]
    return set(sorted(accessed, key=lambda v: -f[v])[: round(share * len(accessed))])


def of_all_vertices(f_i: np.ndarray, f_j: np.ndarray, share: float) -> float:
    count = round(share * len(f_i))
    first, second = (set(np.argsort(-f, kind="stable")[:count].tolist()) for f in (f_i, f_j))
    return float(sum(min(f_i[v], f_j[v]) for v in first & second) / sum(f_i[v] for v in first))


def similarity(f_i: np.ndarray, f_j: np.ndarray, share: float) -> float:
    both = top(f_i, share) & top(f_j, share)
    return float(sum(min(f_i[v], f_j[v]) for v in both) / sum(f_i[v] for v in top(f_i, share)))


def printed_tour(degrees: np.ndarray) -> list[int]:
    degrees, order = degrees * (1 - np.eye(len(degrees))), [0]
    for _ in range(1, len(degrees)):
        last = order[-1]
        order.append(int(degrees[last].argmax()))
        degrees[last, :] = degrees[:, last] = 0
    return order


def pairs_of(degrees: np.ndarray) -> np.ndarray:
    return np.asarray(degrees[~np.eye(len(degrees), dtype=bool)])


def asked(n: int, d: int) -> tuple[int, int, int]:
    """Bytes by equations 3 and 4: naive; shared memory and global memory."""
    return 4 * ((n - 1) + 2 * n) * d, 4 * (n - 1) * d + 4 * n * (d - 1), 4 * n * d + 4 * n


def speedup(n: int, d: int, dram: float, shared: float) -> float:
    naive, fast, rest = asked(n, d)
    return naive / dram / (fast / shared + rest / dram)


def least(block: Any, f: int, s: Any, read: int | None = None) -> tuple[float, float]:
    read = len(np.unique(block.indices)) if read is None else read
    once = 4 * f * (read + block.num_dst) + 8 * block.num_edges + 8 * (block.num_dst + 1)
    return once / s.dram_gbps / 1e3, 4 * block.num_edges * f / s.l2_gbps / 1e3


def amdahl(stages: dict[str, float], name: str, factor: float) -> float:
    whole = sum(stages.values())
    return whole / (whole - stages[name] + stages[name] / factor)


def rule(gpus: int, s: float, t: float) -> int:
    return lab.schedule.num_samplers(gpus, s, t)


def play(plans: Any, members: Any) -> bool:
    left = [list(plan) for plan in plans]
    while any(left):
        ready = [c for c in members if all(left[r][:1] == [c] for r in members[c])]
        if not ready:
            return False
        for r in members[ready[0]]:
            left[r].pop(0)
    return True


def taken(score: Any, degree: Any, budget: int) -> list[int]:
    chosen = []
    for v in np.argsort(-np.asarray(score, float), kind="stable").tolist():
        if 4 * degree[v] <= budget:
            chosen.append(v)
            budget -= 4 * degree[v]
    return chosen


def cut(graph: Any, owner: Any) -> float:
    return float((owner[graph.indices] != owner[ends(graph)]).mean())


BEST = [[1, 0.9, 0.1, 0.1], [0.9, 1, 0.8, 0.1], [0.1, 0.8, 1, 0.7], [0.1, 0.1, 0.7, 1]]
BAIT = [[1, 0.3, 0.2, 0.5], [0.3, 1, 0.2, 0.5], [0.2, 0.2, 1, 0.5], [0.5, 0.5, 0.5, 1]]

# checker -> further right answers, wrong answers with a word of the hint each
TABLE: dict[str, tuple[list[Any], Mistakes]] = {
    # ---- 00
    "in_neighbours": (
        [lambda g, v: set(sources(g, v).tolist())],
        [
            (lambda g, v: set(targets(g, v).tolist()), "lead to"),
            (lambda g, v: {*sources(g, v).tolist(), *targets(g, v).tolist()}, "share an edge"),
            (lambda g, v: {*sources(g, v).tolist(), v}, "own neighbour"),
            (lambda g, v: {99}, "is right"),
            ({0, 1, 3}, ASK_FOR_THE_FUNCTION),
            (raising, "could not be checked"),
        ],
    ),
    "same_sample": (
        [{"strategy", "trace"}, ("trace", "strategy")],
        [
            ({"strategy"}, "one more"),
            ("trace", "one more"),
            ({"strategy", "seed"}, "key"),
            ({"batch_id"}, "counter"),
            ({"pick"}, "reservoir"),
            ({"replace"}, "twice"),
            ({"fanouts"}, "how many"),
            ({"gpu"}, "gpu"),
        ],
    ),
    "block_sources": (
        [],
        [
            (row, "local ids"),
            (lambda block, v: block.src[row(block, v, 1)], "another vertex"),
            (lambda block, v: {v}, "is right"),
            ({9, 3}, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "every_neighbour": (
        [],
        [
            (at("SampleExplorer"), "hop 1 picks 4"),
            (at("SampleExplorer", seed_vertex="one neighbour"), "three at least"),
            (
                at("SampleExplorer", seed_vertex="six neighbours", fanout_1=6, replace=True, seed=1),
                "come twice",
            ),
            (at("QueueExplorer"), "give the SampleExplorer"),
        ],
    ),
    # ---- 01
    "second_frontier": (
        [lambda frontier, picks: sorted({*frontier.tolist(), *picks.tolist()})],
        [
            (lambda frontier, picks: set(picks.tolist()), "expanded again"),
            (np.setdiff1d, "is right"),
            (lambda frontier, picks: np.setdiff1d(picks, frontier), 'expand="new"'),
            (lambda frontier, picks: np.concatenate([frontier, picks]), "a frontier is a set"),
            ({0, 2, 3, 4}, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "pick_probability": (
        [],
        [
            (lambda d, f: 1 - (1 - 1 / d) ** f, "with replacement"),
            (lambda d, f: 1 / d, "one draw"),
            (lambda d, f: f / d, "at most 1"),
            (lambda d, f: 0.5, "is right"),
            (0.25, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "largest_frontiers": (
        [],
        [
            (lambda b, f, n: bounds(b, f, n, 0), "themselves"),
            (lambda b, f, n: [min(n, e * (x + 1)) for e, x in zip(bounds(b, f, n), f)], "seeds alone"),
            (lambda b, f, n: [*bounds(b, f, n), min(n, bounds(b, f, n)[-1] * (f[-1] + 1))], "each fanout"),
            (lambda b, f, n: bounds(b, f, math.inf), "has no more"),
            (lambda b, f, n: [7] * len(f), "is right"),
            ([256, 2816], ASK_FOR_THE_FUNCTION),
            (raising, "could not be checked"),
        ],
    ),
    "preprocessing_share": (
        [0.91, 129 / 142.2, "0.91"],
        [(0.33, "all hops"), (0.09, "kernel's share"), (91, "not percent"), (0.5, "Divide")],
    ),
    "taken_for_new": (
        [[32, 1, 31]],
        [({31}, "not these alone"), ({1, 31, 32, 5}, "one lane alone"), ({7}, "Break a line")],
    ),
    "far_below_the_bound": (
        [],
        [
            (at("WorkloadExplorer", hops=2), "Set Hops to 3"),
            (at("WorkloadExplorer", fanout_1=1, fanout_2=1, fanout_3=1), "raises the bound"),
            (at("SampleExplorer"), "give the WorkloadExplorer"),
        ],
    ),
    # ---- 02
    "fusion_speedup": (
        [],
        [
            (lambda p, k: (max(p) + sum(k)) / (sum(p) + sum(k)), "new over old"),
            (lambda p, k: sum(p) / max(p), "kernels take their time"),
            (lambda p, k: (sum(p) + sum(k)) / (max(p) + max(k)), "longest alone"),
            (lambda p, k: (sum(p) + sum(k)) / sum(k), "still paid"),
            (lambda p, k: 7, "is right"),
            (1.28, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "safe_fetch_size": (
        [1, 1.0, "1"],
        [(2, "loses 1"), (5, "nobody has written"), (0, "1 at least"), (2.5, "whole")],
    ),
    "leaves_that_lose_all": (
        [10, "10"],
        [
            (1, "1 of the ten"),
            (9, "9 of the ten"),
            (11, "fewer leaves"),
            (100, "40 at most"),
            (0, "whole number"),
        ],
    ),
    "may_leave": (
        [lambda task, tail, done: done >= tail],
        [
            (lambda task, tail, done: task >= tail, "published rule"),
            (lambda task, tail, done: False, "must leave"),
            (lambda task, tail, done: True, "has to stay"),
            (lambda task, tail, done: done == task, "tasks are waiting"),
            (lambda task, tail, done: done == tail and task == tail, "harmless"),
            (True, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "lost_with_the_ticket": (
        [[33, 23, 14]],
        [({14}, "more than these"), ({14, 19, 23, 33}, "is served"), ({2}, "Choose")],
    ),
    "lost_one_by_one": (
        [],
        [
            (at("QueueExplorer", fetch_size=1), "Nothing is ever lost"),
            (at("QueueExplorer", strategy="block-bsp"), "Nothing is ever lost"),
            (at("QueueExplorer", completion="paper"), "Take it down to 1"),
            (at("QueueExplorer", completion="paper", fetch_size=1, num_blocks=2), "2 blocks lose nothing"),
        ],
    ),
    # ---- 03
    "nothing_to_share": (
        [at("ThreadsExplorer", where="the loaded one", app="DeepWalk", step=1)],
        [
            (at("ThreadsExplorer", roots=4, fanout=1), "32 at least"),
            (at("ThreadsExplorer", fanout=10), "something is shared"),
            (at("KernelExplorer"), "give the ThreadsExplorer"),
        ],
    ),
    "scheduled": (
        [lambda pairs: np.array(by_transit(pairs)).reshape(-1, 2)],
        [
            (lambda pairs: sorted(pairs, key=lambda p: p[1]), "-1 is no transit"),
            (lambda pairs: [p for p in pairs if p[1] >= 0], "order of the samples"),
            (lambda pairs: sorted(p for p in pairs if p[1] >= 0), "Which half"),
            (lambda pairs: sorted(by_transit(pairs), key=lambda p: (p[1], -p[0])), "stable"),
            (lambda pairs: by_transit(pairs)[::-1], "is right"),
            (raising, "could not be checked"),
            ([(0, 1)], ASK_FOR_THE_FUNCTION),
        ],
    ),
    "needs_the_grid": (
        [],
        [
            (at("KernelExplorer", step=1), "step 1 has 25"),
            (at("KernelExplorer", fanout_2=1), "a block has 1,024"),
            (at("ThreadsExplorer"), "give the KernelExplorer"),
        ],
    ),
    "staging": (
        [],
        [
            (lambda n, d: d >= -(-n // 8), "Fewer is asked for"),
            (lambda n, d: d > n // 8, "as a whole"),
            (lambda n, d: d > n, "How many ids"),
            (lambda n, d: d >= 32, "limit of the block"),
            (lambda n, d: d <= -(-n // 8), "other way round"),
            (101, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "sorting_costs_more": (
        [],
        [
            (at("IndexExplorer", batch=16), "256 roots at least"),
            (at("IndexExplorer", fanout_1=25, fanout_2=25), "leaves the pairs"),
            (at("ThreadsExplorer"), "give the IndexExplorer"),
        ],
    ),
    "dearer_reads": (
        ["6", 6.0],
        [(17, "as shipped"), (11, "per lane"), (0, "the reads are not"), (4, "compares the sectors")],
    ),
    # ---- 04, the rest in test_exercises_04.py
    "same_walk": (
        [],
        [
            (lambda p, q: (p, q), "printed letters"),
            (lambda p, q: (1 / p, 1), "Divide all three"),
            (lambda p, q: (1 / p, 1 / q), "Divide all three"),
            (lambda p, q: (1 / (p * q), q), "which q'"),
            (lambda p, q: (p * q, q), "weights themselves"),
            (lambda p, q: (p * q, 1 / q), "turn it round"),
            (lambda p, q: (9, 9), "is right"),
            ((1, 2), ASK_FOR_THE_FUNCTION),
        ],
    ),
    "paces_to_and_fro": (
        [],
        [
            (at("SecondOrderExplorer"), "with p = 1, q = 0.25"),
            (at("SecondOrderExplorer", p_percent=1000), "with p = 10"),
            (at("ThreadsExplorer"), "give the SecondOrderExplorer"),
        ],
    ),
    # ---- 05
    "long_way": (
        [[6, 13, 20, 0], np.array([2, 9, 16, 3])],
        [
            ([3, 10, 17], "has home 3, too"),
            ([3, 4], "looks at the slots [4]"),
            ([1, 2, 3, 4, 5], "At most four"),
            ([3, 3], "all different"),
            (3, "could not be checked"),
        ],
    ),
    "right_by_luck": (
        [[1, 2, 3, 1, 2, 3]],
        [
            ([4, 6, 2, 4, 4], "comes once"),
            ([4, 4, 4, 6, 6, 2, 2], "numbered anew"),
            ([4, 4], "Three different"),
            ([3, 1, 2], "comes once"),
        ],
    ),
    "race": (
        [(1, 1, 0, 2, 2, 0)],
        [
            ([0, 0, 1, 1, 2, 2], "Three different ids"),
            ([0, 1, 2, 0, 1, 2], "Let one get through"),
            ([0, 1, 2], "twice"),
            ([0, 0, 1, 1, 3, 3], "twice"),
        ],
    ),
    "load_for_two_probes": (
        [],
        [
            (at("IdMapExplorer", hash="modulo"), "multiplicative hash"),
            (at("IdMapExplorer", hash="multiplicative", load_percent=10), "At 10 % full"),
            (at("IdMapExplorer", hash="multiplicative", load_percent=95), "At 95 % full"),
            (at("QueueExplorer"), "give the IdMapExplorer"),
        ],
    ),
    "relabelled": (
        [lambda ids: np.array(first_come(ids), dtype=np.int32)],
        [
            (lambda ids: [sorted(set(ids)).index(v) for v in ids], "ranks by size"),
            (numbered_as_printed, "printed rule"),
            (lambda ids: list(range(len(ids))), "keeps the number"),
            (lambda ids: [v + 1 for v in first_come(ids)], "start at 0"),
            (lambda ids: sorted(set(first_come(ids))), "one local id is wanted"),
            (lambda ids: [9 for _ in ids], "is right"),
            ([0, 0, 1], ASK_FOR_THE_FUNCTION),
            (raising, "could not be checked"),
        ],
    ),
    "claiming_lanes": (
        [[23, 15, 11, 9]],
        [({9}, "Some are missing"), ({9, 11, 15, 23, 2}, "compare their"), ({1}, "Choose")],
    ),
    # ---- 06
    "ever_read": (
        [upstream],
        [
            (lambda g, t, h: upstream(g, t, h) - {int(v) for v in t}, "own features"),
            (downstream, "goes along the edges"),
            (lambda g, t, h: range(g.num_nodes), "all vertices"),
            (lambda g, t, h: upstream(g, t, 1), "Go on from there"),
            ({1, 3}, ASK_FOR_THE_FUNCTION),
            (raising, "could not be checked"),
        ],
    ),
    "degree_hit_rate": (
        [hit_rate],
        [
            (lambda s, v, r: hit_rate(v, v, r), "optimal policy"),
            (lambda s, v, r: r / len(v), "cache ratio"),
            (lambda s, v, r: hit_rate(s, s, r), "share of the score"),
            (lambda s, v, r: hit_rate(s, v > 0, r), "counts six times"),
            (lambda s, v, r: hit_rate(-s, v, r), "not the lowest"),
            (lambda s, v, r: 1 - hit_rate(s, v, r), "misses"),
            (lambda s, v, r: hit_rate(s, v, r) * v.sum(), "Which share"),
            (0.1, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "half_of_the_reads": (
        [],
        [
            (at("CacheExplorer", ratio_percent=1), "too few"),
            (at("CacheExplorer", ratio_percent=100), "A smaller cache"),
            (at("QueueExplorer"), "give the CacheExplorer"),
        ],
    ),
    "similarity": (
        [similarity],
        [
            (
                lambda f, h, s: sum(f[v] for v in top(f, s) & top(h, s)) / sum(f[v] for v in top(f, s)),
                "in full",
            ),
            (
                lambda f, h, s: sum(min(f[v], h[v]) for v in top(f, s)) / sum(f[v] for v in top(f, s)),
                "in both epochs",
            ),
            (lambda f, h, s: sum(min(f[v], h[v]) for v in top(f, s) & top(h, s)) / f.sum(), "below the line"),
            (of_all_vertices, "not of all vertices"),
            (lambda *a: 2.0, "is right"),
            (0.5, ASK_FOR_THE_FUNCTION),
            (raising, "could not be checked"),
        ],
    ),
    # ---- 07
    "match_degree": (
        [],
        [
            (lambda a, b: len(a & b), "how many"),
            (lambda a, b: len(a & b) / max(len(a), len(b)), "larger batch"),
            (lambda a, b: len(a & b) / len(a | b), "Jaccard"),
            (lambda a, b: len(a & b) / len(b), "second batch"),
            (lambda a, b: 0.1, "is right"),
            (0.75, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "rows_loaded": (
        [lambda batches: sum(len(b - a) for a, b in zip([set(), *batches], batches))],
        [
            (lambda b: sum(map(len, b)), "Take off"),
            (lambda b: sum(len(y - x) for x, y in itertools.pairwise(b)), "Nobody comes before"),
            (lambda b: len(set().union(*b)), "would be a cache"),
            (lambda b: 2, "Each batch loads"),
            (3, ASK_FOR_THE_FUNCTION),
            (raising, "could not be checked"),
        ],
    ),
    "astray": (
        [np.array([[1, 0.4, 0.5, 0.1], [0.4, 1, 0.4, 0.2], [0.5, 0.4, 1, 0.5], [0.1, 0.2, 0.5, 1]])],
        [
            (BEST, "must look better"),
            (BAIT, "What does greedy's first"),
            ([[1, 2], [2, 1]], "Four rows"),
            (np.triu(np.ones((4, 4))), "symmetric"),
            (2 * np.ones((4, 4)), "between 0 and 1"),
        ],
    ),
    "mended": (
        [lambda degrees: lab.reorder(degrees)],
        [
            (printed_tour, "as printed"),
            (lambda d: list(range(len(d))), "as sampled"),
            (lambda d: np.argsort(-d[0], kind="stable"), "came last"),
            (lambda d: [0, 3, 2, 1], "is right"),
            ([0, 1, 2, 3], ASK_FOR_THE_FUNCTION),
        ],
    ),
    "reorder_bound": (
        [],
        [
            (lambda d: pairs_of(d).max() - pairs_of(d).mean(), "share of all rows"),
            (lambda d: (pairs_of(d).max() - pairs_of(d).mean()) / pairs_of(d).mean(), "what is reused"),
            (lambda d: (d.max() - d.mean()) / (1 - d.mean()), "diagonal"),
            (lambda d: np.ptp(pairs_of(d)) / (1 - pairs_of(d).mean()), "not from the worst"),
            (lambda d: 0.5, "is right"),
            (0.24, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "nearer_and_dearer": (
        [],
        [
            (at("MatchExplorer", grouping="shuffled", batch_size=64), "Batches have to differ"),
            (
                at("MatchExplorer", grouping="by degree", batch_size=1, num_batches=4),
                "go through some random seeds",
            ),
            (at("QueueExplorer"), "give the MatchExplorer"),
        ],
    ),
    # ---- 08
    "model_speedup": (
        [speedup],
        [
            (lambda *c: 1 / speedup(*c), "new over old"),
            (lambda n, d, g, s: asked(n, d)[0] / asked(n, d)[2], "leaves out"),
            (lambda n, d, g, s: asked(n, d)[0] / sum(asked(n, d)[1:]), "alike"),
            (lambda n, d, g, s: speedup(n, d, s, g), "changed places"),
            (lambda n, d, g, s: s / g, "What still is"),
            (2.5, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "close_to_three": (
        [],
        [
            (at("AggregationExplorer", num_features=16), "16 features"),
            (at("AggregationExplorer", fanout_1=1, fanout_2=1, fanout_3=1), "neighbours a row"),
            (at("QueueExplorer"), "give the AggregationExplorer"),
        ],
    ),
    "shared_bytes": (
        [],
        [
            (lambda x, n, y: x * (y + n), "four bytes"),
            (lambda x, n, y: 4 * x * y, "weights of the rows"),
            (lambda x, n, y: 4 * x * n, "partial sums lie"),
            (lambda x, n, y: 4 * (x * y + n), "of its own"),
            (lambda x, n, y: 4 * x * n * y, "a row and a neighbour"),
            (lambda x, n, y: 5, "is right"),
            (1504, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "roof": (
        [],
        [
            (lambda c, s: s.fp32_gflops, "flat part"),
            (lambda c, s: s.dram_gbps, "that is the bandwidth"),
            (lambda c, s: c.intensity, "intensity"),
            (lambda c, s: c.intensity * s.dram_gbps, "flat there"),
            (lambda c, s: c.intensity * s.shared_gbps, "global memory"),
            (lambda c, s: max(s.fp32_gflops, c.intensity * s.dram_gbps), "lower one"),
            (469, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "bound": (
        [lambda *c: max(least(*c))],
        [
            (lambda *c: 1e3 * max(least(*c)), "thousand"),
            (lambda *c: sum(least(*c)), "add"),
            (lambda *c: min(least(*c)), "Both have to finish"),
            (lambda b, f, s: max(least(b, f, s, b.num_src)), "own vertices"),
            (lambda *c: 1.0, "is right"),
            (3.0, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "stage_speedup": (
        [amdahl],
        [
            (lambda s, n, f: f, "stay as they are"),
            (lambda *c: 1 / amdahl(*c), "inverse"),
            (lambda s, n, f: sum(s.values()) / (sum(s.values()) - s[n]), "the limit"),
            (lambda s, n, f: sum(s.values()) - s[n] + s[n] / f, "new time"),
            (lambda s, n, f: 1 / (1 - s[n] + s[n] / f), "add up to 1"),
            (1.63, ASK_FOR_THE_FUNCTION),
        ],
    ),
    # ---- 09
    "samplers_of_uk": (
        [],
        [
            (lambda g, s, e, t: rule(g, s, e + t), "added extraction"),
            (lambda g, s, e, t: rule(g, s, t), "may be the longer"),
            (lambda g, s, e, t: g * s / (s + max(e, t)), "is whole"),
            (lambda g, s, e, t: g * s // (s + max(e, t)), "rounds up"),
            (lambda g, s, e, t: g - rule(g, s, max(e, t)), "the trainers"),
            (lambda g, s, e, t: rule(g, max(e, t), s), "other way round"),
            (2, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "rule_is_beaten": (
        [],
        [
            (at("PipelineExplorer", gpus=1), "nothing to split"),
            (at("PipelineExplorer", k_tenths=27), "in the text"),
            (at("PipelineExplorer", k_tenths=30), "nothing is better"),
            (at("QueueExplorer"), "give the PipelineExplorer"),
        ],
    ),
    "switching_profit": (
        [],
        [
            (lambda n, t, s: math.ceil(s * n / t), "profit is 0"),
            (lambda n, t, s: s * n / t, "is whole"),
            (lambda n, t, s: s // t + 1, "share what waits"),
            (lambda n, t, s: n + 1, "pipeline is empty"),
            (lambda n, t, s: t * n // s + 1, "changed places"),
            (3.0, ASK_FOR_THE_FUNCTION),
            (raising, "could not be checked"),
        ],
    ),
    "overlap_gains": (
        [],
        [
            (at("PipelineExplorer", gpus=1, k_tenths=80, extract_percent=0), "no overlap can halve it"),
            (
                at(
                    "PipelineExplorer",
                    gpus=1,
                    k_tenths=10,
                    extract_percent=100,
                    beside_tenths=10,
                    demand_percent=100,
                ),
                "What keeps it below",
            ),
            (at("QueueExplorer"), "give the PipelineExplorer"),
        ],
    ),
    "deadlocks": (
        [play],
        [
            (lambda plans, members: not play(plans, members), "other way round"),
            (lambda plans, members: len(set(plans)) == 1, "for how long"),
            (lambda plans, members: len(plans) > 2 or plans[0] == plans[1], "in a ring"),
            (lambda plans, members: len({p[0] for p in plans if p}) <= 1, "begin with the same"),
            ({"B", "D"}, ASK_FOR_THE_FUNCTION),
        ],
    ),
    # ---- 10
    "pulled_bytes": (
        [],
        [
            (lambda d, f: 4 * d.sum(), "how long they are"),
            (lambda d, f: 4 * (len(d) + d.sum()), "something is missing"),
            (lambda d, f: 4 * (2 * len(d) + np.minimum(d, f).sum()), "that is csp"),
            (lambda d, f: 2 * len(d) + d.sum(), "four bytes"),
            (lambda d, f: 4 * np.minimum(d, f).sum(), "Who draws"),
            (168, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "pushed_bytes": (
        [],
        [
            (lambda d, f: 4 * np.minimum(d, f).sum(), "picks alone"),
            (lambda d, f: 4 * (len(d) + np.minimum(d, f).sum()), "length of the list"),
            (lambda d, f: 4 * (2 * len(d) + d.sum()), "that is pull"),
            (lambda d, f: 8 * (len(d) + np.minimum(d, f).sum()), "places of the picks"),
            (lambda d, f: 4 * (2 * len(d) + f * len(d)), "shorter than the fanout"),
            (48, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "random_cut": (
        [cut],
        [
            (lambda g, o: 1 - cut(g, o), "inside a part"),
            (lambda g, o: cut(g, o) * g.num_edges, "number of edges"),
            (lambda g, o: 1 - np.square(np.bincount(o) / len(o)).sum(), "chance would cut"),
            (lambda g, o: 0.1, "is right"),
            (0.75, ASK_FOR_THE_FUNCTION),
        ],
    ),
    "list_score": (
        [lambda v, d, f, b: lab.distributed.hottest_lists(v, d, f, b).ids],
        [
            (lambda v, d, f, b: taken(v * np.minimum(d, f), d, b), "What does the copy cost"),
            (lambda v, d, f, b: taken(d, d, b), "longest lists"),
            (lambda v, d, f, b: taken(v, d, b), "visit to a long list"),
            (lambda v, d, f, b: [3], "What does a byte"),
            (lambda v, d, f, b: np.arange(len(v)), "there is room for"),
            (lambda v, d, f, b: [1, 1], "there twice"),
            (0.5, ASK_FOR_THE_FUNCTION),
            (raising, "could not be checked"),
        ],
    ),
}
