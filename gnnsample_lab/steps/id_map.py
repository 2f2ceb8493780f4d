"""Insert into Fused-Map: one warp enters its picks into FastGL's hash table and reads their local ids.

The kernels `insert` and `look_up` of fused.cu with MAP_KIND 2 and ITEMS 1, one after the other; the block has one warp
with picks. The claim is the paper's; that a block takes its local ids with one addition is ours (`fused-map-block`).
The picks are those that the library draws for a few seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .base import (
    FULL,
    LANES,
    Lanes,
    Lines,
    Machine,
    Mutation,
    Recorded,
    Violation,
    Warp,
    lanes_of,
    listing,
    mask_of,
    popcount_below,
)
from .example import seeds_of

_TABLE = "minibatch/id_map/table.cuh"
SEEDS, FANOUT = 8, 4
_EMPTY = FULL

CLAIM = "const Word old = atomicCAS(&entries(m)[at[j]].key, seen[j], word_of(m, v[j]));"
NUMBER = "local[j] = total + __popc(mask & ((1u << lane) - 1));"
PROBE = "at = (at + 1) & m.mask;"
VALUE = "entries(m)[at[j]].value = local[j];"

NO_SWAP = Mutation(
    "insert without compare-and-swap",
    CLAIM,
    "entries(m)[at[j]].key = word_of(m, v[j]); const Word old = seen[j];",
)
NO_RANK = Mutation("number all winners alike", NUMBER, "local[j] = total;")
NO_PROBE = Mutation("give up at a taken entry", PROBE, "return false;  // left out: the next entry")
ONE_KERNEL = Mutation(
    "look up before the ids are written", VALUE, "// moved behind the look-up, as if in one kernel"
)
MUTATIONS = (NO_SWAP, NO_RANK, NO_PROBE, ONE_KERNEL)
ORDERS = False
"""One warp: there is one order."""


def home_of(vertex: int, mask: int) -> int:
    """``hash_of(v) & mask``: where probing begins."""
    return ((vertex * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 20) & mask


@dataclass
class _Truth:
    winners: dict[int, list[int]] = field(default_factory=dict)
    locals: dict[int, list[int]] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    clash: str = ""


def _check(machine: Machine) -> Violation | None:
    truth: _Truth = machine.truth
    if truth.clash:
        return Violation("an entry is claimed once", truth.clash)
    for v, lanes in truth.winners.items():
        if len(lanes) > 1:
            return Violation(
                "a vertex is entered once",
                f"lanes {', '.join(map(str, lanes))} all claim an entry for vertex {v}: it gets {len(lanes)} local ids",
                tuple(lanes),
            )
    for local, vertices in truth.locals.items():
        if len(vertices) > 1:
            return Violation(
                "a local id stands for one vertex",
                f"vertices {', '.join(map(str, vertices))} all get local id {local}: their rows would be one",
            )
    names = machine.memory["nodes"].cells
    for lane, local in truth.asked.items():
        v = machine.memory["picks"].cells[lane]
        if not 0 <= local < len(names) or names[local] != v:
            found = "no local id" if local == _EMPTY else f"local id {local}"
            return Violation(
                "a pick finds the local id of its vertex",
                f"lane {lane} asks for vertex {v} and finds {found}",
            )
    return None


class _Kernel:
    def __init__(self, warp: Warp, count: int, known: int, mask: int, broken: str | None) -> None:
        self.w, self.n, self.known, self.mask, self.broken = warp, count, known, mask, broken
        self.truth: _Truth = warp.machine.truth

    def main(self) -> Lines:
        yield from self.insert()
        if self.broken == ONE_KERNEL.name:
            yield from self.look_up()
            yield from self.write_values()
        else:
            yield from self.look_up()

    def insert(self) -> Lines:
        w, lanes = self.w, (1 << self.n) - 1
        v = w.load("picks", list(range(LANES)), lanes)
        yield w.line(
            "for (int j = 0; j < ITEMS; ++j) v[j] = i0 + j * 32 < n", lanes, "one pick per lane", v=v
        )
        at: Lanes = [None if each is None else home_of(each, self.mask) for each in v]
        yield w.line("at[j] = hash_of(v[j]) & m.mask;", lanes, "where the vertex belongs", at=at)
        seen = w.load("key", at, lanes)
        yield w.line("seen[j] = v[j] == EMPTY", lanes, seen=seen)
        open_ = mask_of(lane for lane in lanes_of(lanes) if seen[lane] != v[lane])
        yield w.line(
            "if (v[j] == EMPTY || seen[j] == word_of(m, v[j])) continue;", lanes, f"{open_.bit_count()} go on"
        )
        vacant = mask_of(lane for lane in lanes_of(open_) if seen[lane] == _EMPTY)
        if self.broken == NO_SWAP.name:
            w.store("key", at, v, vacant)
            old: Lanes = [seen[lane] if vacant >> lane & 1 else None for lane in range(LANES)]
        else:
            old = self.swap(at, seen, v, vacant)
        won = mask_of(lane for lane in lanes_of(vacant) if old[lane] == seen[lane])
        self.win(won, v, at)
        yield w.line(
            CLAIM, vacant, f"{won.bit_count()} of {vacant.bit_count()} lanes claim an entry", seen=old
        )
        for lane in lanes_of(vacant):
            seen[lane] = old[lane]
        open_ &= ~won
        # claim(): what is left found another key, or its own.
        rest = mask_of(lane for lane in lanes_of(open_) if seen[lane] != v[lane])
        yield w.line(
            "if (open >> j & 1) won |=",
            open_,
            f"{rest.bit_count()} met another vertex and probe on",
        )
        while rest:
            empty = mask_of(lane for lane in lanes_of(rest) if seen[lane] == _EMPTY)
            if empty:
                old = self.swap(at, seen, v, empty)
                claimed = mask_of(lane for lane in lanes_of(empty) if old[lane] == _EMPTY)
                self.win(claimed, v, at)
                won |= claimed
                for lane in lanes_of(empty):
                    seen[lane] = old[lane]
                yield w.line(
                    "const Word old = atomicCAS(&entries(m)[at].key, seen, mine);", empty,
                    f"{claimed.bit_count()} of {empty.bit_count()} lanes claim an entry", seen=list(seen),
                )  # fmt: skip
                rest = mask_of(lane for lane in lanes_of(rest & ~claimed) if seen[lane] != v[lane])
                continue
            if self.broken == NO_PROBE.name:
                yield w.line(PROBE, rest, "the picks of these lanes are left out")
                break
            for lane in lanes_of(rest):
                at[lane] = at[lane] + 1 & self.mask
            yield w.line(PROBE, rest, "on to the next entry", at=list(at))
            found = w.load("key", at, rest)
            for lane in lanes_of(rest):
                seen[lane] = found[lane]
            yield w.line("seen = __ldcg(&entries(m)[at].key);", rest, seen=list(seen))
            rest = mask_of(lane for lane in lanes_of(rest) if seen[lane] != v[lane])
        yield from self.number(won, v, at)

    def swap(self, at: Lanes, seen: Lanes, v: Lanes, mask: int) -> Lanes:
        return self.w.atomic("key", at, lambda was, lane: v[lane] if was == seen[lane] else was, mask)

    def win(self, won: int, v: Lanes, at: Lanes) -> None:
        for lane in lanes_of(won):
            self.truth.winners.setdefault(v[lane], []).append(lane)
        entries: dict[int, int] = {}
        for lane in lanes_of(won):
            other = entries.setdefault(at[lane], v[lane])
            if other != v[lane]:
                self.truth.clash = (
                    f"vertices {other} and {v[lane]} both claim entry {at[lane]}; one key is overwritten"
                )

    def number(self, won: int, v: Lanes, at: Lanes) -> Lines:
        w = self.w
        yield w.line(
            "const u32 mask = __ballot_sync(FULL, won >> j & 1);", note=f"{won.bit_count()} new vertices"
        )
        rank = [0 if self.broken == NO_RANK.name else popcount_below(won, lane) for lane in range(LANES)]
        yield w.line(NUMBER, note="place among the lanes that won", local=rank)
        before = w.atomic_add("counters[hop + 1]", 0, won.bit_count())[0]
        first = self.known + before
        yield w.line("of_block = all ? level_end", 1, f"one atomic for the block: local ids {first} and on")
        local = [first + each for each in rank]
        self.won, self.at, self.local = won, list(at), local
        yield w.line("for (int j = 0; j < ITEMS; ++j) local[j] += first;", local=local)
        if self.broken != ONE_KERNEL.name:
            yield from self.write_values()
        for lane in lanes_of(won):
            self.truth.locals.setdefault(local[lane], []).append(v[lane])
        w.store("nodes", local, v, won)
        yield w.line("m.nodes[local[j]] = (ID_T)v[j];", won)

    def write_values(self) -> Lines:
        self.w.store("value", self.at, self.local, self.won)
        yield self.w.line(VALUE, self.won, "whoever claimed the entry writes the local id")

    def look_up(self) -> Lines:
        w, lanes = self.w, (1 << self.n) - 1
        w.forget("at", "seen", "local")
        v = w.load("picks", list(range(LANES)), lanes)
        yield w.line(
            "for (int j = 0; j < ITEMS; ++j) v[j] = i0 + j * THREADS < n", lanes, "the second kernel", v=v
        )
        at: Lanes = [None if each is None else home_of(each, self.mask) for each in v]
        keys, values = w.load("key", at, lanes), w.load("value", at, lanes)
        yield w.line(
            "for (int j = 0; j < ITEMS; ++j) seen[j] = entry_at", lanes, at=list(at), seen=list(keys)
        )
        local: Lanes = [_EMPTY if lanes >> lane & 1 else None for lane in range(LANES)]
        rest = lanes
        while rest:
            hit = mask_of(lane for lane in lanes_of(rest) if keys[lane] == v[lane])
            for lane in lanes_of(hit):
                local[lane] = values[lane]
            yield w.line(
                "local[j] = seen[j].value;",
                hit,
                f"{hit.bit_count()} lanes find their vertex",
                local=list(local),
            )
            rest &= ~hit & ~mask_of(lane for lane in lanes_of(rest) if keys[lane] == _EMPTY)
            if not rest:
                break
            for lane in lanes_of(rest):
                at[lane] = at[lane] + 1 & self.mask
            more, values_ = w.load("key", at, rest), w.load("value", at, rest)
            for lane in lanes_of(rest):
                keys[lane], values[lane] = more[lane], values_[lane]
            yield w.line(
                "seen[j] = entry_at(m, at);", rest, "on to the next entry", at=list(at), seen=list(keys)
            )
        w.store("out", list(range(LANES)), local, lanes)
        self.truth.asked = {lane: local[lane] for lane in lanes_of(lanes)}
        yield w.line("if (i0 + j * THREADS < n) out[i0 + j * THREADS] = (int)local[j];", lanes)


def _source() -> tuple[Any, ...]:
    return (
        listing(
            _TABLE,
            ("const u32 mask = __ballot_sync(FULL, won >> j & 1);", NUMBER),
            ("of_block = all ?", "of_block"),
            ("for (int j = 0; j < ITEMS; ++j) local[j] += first;", "for (int j"),
            ("while (seen != mine) {", "return false;"),
            (PROBE, "seen = __ldcg(&entries(m)[at].key);"),
            ("for (int j = 0; j < ITEMS; ++j) v[j] = i0 + j * 32 < n", "for (int j"),
            ("at[j] = hash_of(v[j]) & m.mask;", "seen[j] = v[j] == EMPTY ? (Word)0"),
            ("if (v[j] == EMPTY || seen[j]", "seen[j] = old;"),
            ("if (open >> j & 1) won", "if (open"),
            (VALUE, "m.nodes[local[j]]"),
            (
                "for (int j = 0; j < ITEMS; ++j) v[j] = i0 + j * THREADS < n",
                "for (int j = 0; j < ITEMS; ++j) seen[j]",
            ),
            ("if (seen[j].key == mine) {", "local[j] = seen[j].value;"),
            ("if (vacant(m, seen[j].key)) break;", "seen[j] = entry_at(m, at);"),
            ("if (i0 + j * THREADS < n) out", "if (i0"),
        ),
    )


Example = tuple[Any, list[int], list[int]]


def example(graph: Any) -> Example:
    """The graph, the seeds, and the picks of one hop, at most one per lane."""
    from gnnsample_lab.minibatch.sampler import NeighborSampler

    seeds = seeds_of(graph, SEEDS)
    batch = NeighborSampler(graph, (FANOUT,), strategy="block-bsp", device="cpu").sample(seeds)
    return graph, seeds.tolist(), batch.picks[0].neighbors.tolist()[:LANES]


def _key(word: int) -> str:
    return "–" if word in (_EMPTY, -1) else str(word)


def record(made: Example, broken: str | None, seed: int = 0, slow: str = "") -> Recorded:
    """One run of the warp; there is no other one whose order could matter."""
    from gnnsample_lab.minibatch.id_map.cpu import CpuMap

    graph, seeds, picks = made
    source = _source()
    watched: dict[str, Callable[[Any], str]] = {"v": str, "at": str, "seen": _key, "local": _key}
    machine = Machine(source, watched, _check, seed=seed, slow=slow)
    slots = 32
    while slots * 4 < 5 * (len(seeds) + len(set(picks) - set(seeds))):
        slots *= 2
    keys, values = [_EMPTY] * slots, [_EMPTY] * slots
    for local, v in enumerate(seeds):
        at = home_of(v, slots - 1)
        while keys[at] != _EMPTY:
            at = at + 1 & slots - 1
        keys[at], values[at] = v, local
    for array in machine.fields(("key", "value"), (keys, values), 4):
        array.show = _key
    machine.array("picks", picks, 4)
    machine.array("nodes", seeds + [-1] * len(picks), 4, show=_key)
    machine.array("out", [-1] * len(picks), 4, show=_key)
    machine.array("counters[hop + 1]", [0], 4)
    machine.truth = _Truth()
    machine.run([lambda warp: _Kernel(warp, len(picks), len(seeds), slots - 1, broken).main()])
    twin = CpuMap(graph.num_nodes, np.int64)
    twin.begin(np.array(seeds, np.int64))
    vertices, ids = twin.extend(np.array(picks, np.int64))
    return Recorded(
        "insert into Fused-Map", broken, source, next((m for m in MUTATIONS if m.name == broken), None),
        tuple(machine.steps), machine.memory, machine.first,
        (1, int(any(step.violation for step in machine.steps))), machine.watched,
        {"local": machine.memory["out"].cells, "expected local": ids.tolist(),
         "nodes": [v for v in machine.memory["nodes"].cells if v >= 0], "expected nodes": vertices.tolist()},
        f"{len(picks)} picks of {len(seeds)} seeds of {graph.title}, a table of {slots} entries, 1 warp",
    )  # fmt: skip
