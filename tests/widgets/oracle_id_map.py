"""What the ID-map explorer must show for a state, computed another way than it does: with dictionaries and loops."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import plotly.graph_objects as go

import gnnsample_lab as lab
from gnnsample_lab import figures

GOLDEN = 0x9E3779B97F4A7C15
LOADS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]


def home(v: int, slots: int, hash: str) -> int:
    return v % slots if hash != "multiplicative" else (v * GOLDEN % 2**64 >> 20) % slots


def way(v: int, table: dict[int, int], slots: int, hash: str) -> list[int]:
    """Slots looked at, from home to where ``v`` lies or may lie."""
    at = [home(v, slots, hash)]
    while table.get(at[-1], v) != v:
        at.append((at[-1] + 1) % slots)
    return at


def made_up(state: dict[str, Any]) -> list[int]:
    rng = np.random.default_rng(state["seed"])
    pool = rng.choice(100, 8, replace=False).tolist()
    weight = np.array([1 / rank for rank in range(1, 9)])
    found: list[int] = rng.choice(pool, state["count"], p=weight / weight.sum()).tolist()
    room = max(2, state["slots"] * 3 // 4)
    return [pool[max(pool.index(v), 8 - room)] for v in found]


def slots_for(hash: str, at_least: int) -> int:
    if hash == "modulo":
        return at_least
    return 1 << (at_least - 1).bit_length()


def table_of(state: dict[str, Any]) -> go.Figure:
    ids, hash = made_up(state), state["hash"]
    slots = slots_for(hash, state["slots"])
    table: dict[int, int] = {}
    value, written = Counter[int](), set()
    counter, probes, new = 0, [], False
    for v in ids[: state["step"]]:
        probes = way(v, table, slots, hash)
        new = probes[-1] not in table
        table[probes[-1]] = v
        if new != state["printed"]:
            value[v] = counter
            written.add(v)
            counter += 1
    shared = Counter(value[v] for v in table.values())
    there = set(table.values())
    return figures.hash_table(
        ids,
        [table.get(slot, -1) for slot in range(slots)],
        [value[table[slot]] if slot in table else 0 for slot in range(slots)],
        done=state["step"],
        local=[value[v] if v in there else -1 for v in ids],
        probes=probes,
        is_new=new,
        wrong=[v for v in there if v not in written or shared[value[v]] > 1 or value[v] >= len(there)],
    )


def contention_of(state: dict[str, Any]) -> go.Figure:
    ids, hash = made_up(state), state["hash"]
    slots = slots_for(hash, state["slots"])
    waiting = [ids[thread :: state["threads"]] for thread in range(state["threads"])]
    offset = [0] * len(waiting)
    table: dict[int, int] = {}
    rounds = []
    while any(waiting):
        tried = [0] * slots
        for thread, mine in enumerate(waiting):
            if not mine:
                continue
            at = (home(mine[0], slots, hash) + offset[thread]) % slots
            tried[at] += 1
            if table.setdefault(at, mine[0]) == mine[0]:
                waiting[thread], offset[thread] = mine[1:], 0
            else:
                offset[thread] += 1
        rounds.append(tried)
    return figures.slot_contention(rounds)


def real_ids(graph: Any, state: dict[str, Any]) -> list[int]:
    train = graph.splits.get("train")
    pool = np.arange(graph.num_nodes) if train is None else train
    seeds = np.random.default_rng(state["seed"]).choice(pool, min(256, len(pool)), replace=False)
    sampler = lab.NeighborSampler(graph, [10, 10], seed=state["seed"], device="cpu")
    ids: list[int] = sampler.sample(seeds).node_ids.tolist()
    if state["numbering"] == "consecutive":
        rank = {v: i for i, v in enumerate(sorted(ids))}
        return [rank[v] for v in ids]
    return [64 * v for v in ids] if state["numbering"] == "multiples of 64" else ids


def lengths_of(ids: list[int], hash: str, load: float) -> list[int]:
    slots = 1 << (len(ids).bit_length() - 1)
    if hash == "modulo":
        slots = next(n for n in range(max(2, slots), 4 * slots + 4) if all(n % d for d in range(2, n)))
    count = min(len(ids), max(1, round(load * slots)))
    table: dict[int, int] = {}
    probes = Counter[int]()
    for v in ids[:count]:
        probes[len(path := way(v, table, slots, hash))] += 1
        table[path[-1]] = v
    return [probes[n] for n in range(max(probes) + 1)]


def mean_of(lengths: list[int]) -> float:
    return sum(n * c for n, c in enumerate(lengths)) / sum(lengths)


def id_map_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    ids, load = real_ids(graph, state), state["load_percent"] / 100
    means = {
        hash: [mean_of(lengths_of(ids, hash, at)) for at in LOADS]
        for hash in ("multiplicative", "modulo", "low-bits")
    }
    return {
        "table": table_of(state),
        "contention": contention_of(state),
        "lengths": figures.probe_lengths(lengths_of(ids, state["hash"], load), hash_name=state["hash"]),
        "loads": figures.probes_by_load(LOADS, means, marker=load),
    }


ORACLES = {"IdMapExplorer": id_map_figures}
