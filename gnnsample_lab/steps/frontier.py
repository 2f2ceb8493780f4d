"""Grow a frontier: two warps of a block draw for their rows, mark what they reach and append what is new (hop.cu).

The kernel with one word per vertex as its table (TABLE_KIND 0). Left out: other mini-batches, the edge counter and
overflow. The positions that `lab_draw_lane` draws are the library's.
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

_PLAN = "sampling/neighbors/plan.cuh"
_FRESH = "sampling/neighbors/hops/fresh.cuh"
_EXPAND = "sampling/neighbors/hops/expand.cuh"
SEEDS, FANOUT, WARPS = 12, 5, 2
_BASE = 1000

MARK = "return atomicMax(entry, base) < base;"
LOOK = "if (__ldcg(entry) >= base) return false;"
PLACE = "if (fresh) stage.ids[stage.count + __popc(mask & ((1u << lab_lane()) - 1))] = u;"
SCAN = "if (lane < LAB_WARPS) firsts[lane] = first + inclusive - mine;"
DRAIN = "lab_drain(p, b, base, counters, level_end + firsts[warp], stage);"

TEST_AND_SET = Mutation("mark without an atomic", MARK, "*entry = base; return true;")
NO_RANK = Mutation("leave the rank among the lanes out", PLACE, "if (fresh) stage.ids[stage.count] = u;")
NO_SCAN = Mutation("leave the scan over the warps out", SCAN, "if (lane < LAB_WARPS) firsts[lane] = first;")
NO_BARRIER = Mutation(
    "leave the barrier before the write out", DRAIN, "/* without the __syncthreads() before it */ " + DRAIN
)
NO_LOOK = Mutation("mark without looking first", LOOK, "// left out", costs=True)
MUTATIONS = (TEST_AND_SET, NO_RANK, NO_SCAN, NO_BARRIER, NO_LOOK)
ORDERS = True
"""Several warps: their order matters."""


@dataclass
class _Truth:
    level_end: int
    won: list[int] = field(default_factory=list)
    pushed: set[int] = field(default_factory=set)
    places: dict[int, int] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    clash: str = ""


def _vertices(ids: list[int]) -> str:
    return f"{'vertex' if len(ids) == 1 else 'vertices'} {', '.join(map(str, ids))}"


def _check(machine: Machine) -> Violation | None:
    truth: _Truth = machine.truth
    if truth.clash:
        return Violation("two vertices never share a place", truth.clash)
    again = sorted({v for v in truth.won if truth.won.count(v) > 1 or v in truth.known})
    if again:
        return Violation(
            "a vertex is new once",
            f"taken for new more than once: {_vertices(again)}",
            tuple(again),
        )
    stages = [array.cells for name, array in machine.memory.items() if name.startswith("stage.ids")]
    held = {v for cells in stages for v in cells} | set(machine.memory["nodes"].cells)
    lost = sorted(truth.pushed - held)
    if lost:
        return Violation(
            "every new vertex joins the frontier",
            f"marked as reached, but neither in the stage nor in the frontier: {_vertices(lost)}",
        )
    if not machine.live:
        count = machine.memory["fresh"].cells[0]
        nodes = machine.memory["nodes"].cells[truth.level_end : truth.level_end + count]
        if set(nodes) != set(truth.won):
            holes = sorted(set(truth.won) - set(nodes))
            return Violation(
                "every new vertex joins the frontier",
                f"not among the {count} vertices that the next hop reads: {_vertices(holes)}",
            )
    return None


class _Kernel:
    def __init__(self, warp: Warp, drawn: dict[int, list[int]], seeds: int, broken: str | None) -> None:
        self.w, self.drawn, self.seeds, self.broken = warp, drawn, seeds, broken
        self.truth: _Truth = warp.machine.truth
        self.stage, self.count = f"stage.ids, warp {warp.number}", 0

    def main(self) -> Lines:
        w = self.w
        per_warp = -(-self.seeds // WARPS)
        row0 = w.number * per_warp
        mine = max(min(per_warp, self.seeds - row0), 0)
        rows, k = (1 << mine) - 1, FANOUT
        vertex = w.load("nodes", [row0 + lane for lane in range(LANES)], rows)
        start = w.load("indptr", vertex, rows)
        w.load("indptr", [None if v is None else v + 1 for v in vertex], rows)
        yield w.line(
            "row = lab_row(p, p.nodes", rows, f"{mine} rows of the frontier, one per lane", row=vertex
        )
        yield w.line("if ((int)lane < mine) lab_draw_lane", rows, "each lane draws the positions of its row")
        positions = {lane: self.drawn[vertex[lane]] for lane in lanes_of(rows)}
        for e0 in range(0, mine * k, LANES):
            e = [e0 + lane for lane in range(LANES)]
            yield w.line(
                "const u32 e = e0 + c * 32 + lane", row=[(row0 + i // k) if i < mine * k else -1 for i in e]
            )
            valid = mask_of(n for n, i in enumerate(e) if i < mine * k and i % k < len(positions[i // k]))
            yield w.line("valid[c] = e < picks", note=f"{valid.bit_count()} lanes have a pick")
            at: Lanes = [
                start[e[n] // k] + positions[e[n] // k][e[n] % k] if valid >> n & 1 else None
                for n in range(LANES)
            ]
            w.forget("u")
            u = w.load("indices", at, valid)
            yield w.line("u[c] = __ldg(p.indices", valid, "the picks, spread over the lanes", u=u)
            w.store("neighbors", [row0 * k + i for i in e], u, valid)
            yield w.line("if (valid[c]) h.neighbors", valid)
            fresh: Lanes = [0] * LANES
            rest = valid
            if self.broken != NO_LOOK.name:
                seen = w.load("table", u, valid)
                rest = mask_of(lane for lane in lanes_of(valid) if seen[lane] < _BASE)
                yield w.line(
                    LOOK, valid, f"{valid.bit_count() - rest.bit_count()} are known already", fresh=fresh
                )
            if self.broken == TEST_AND_SET.name:
                w.store("table", u, [_BASE] * LANES, rest)
                won = rest
            else:
                old = w.atomic("table", u, lambda was, _: max(was, _BASE), rest)
                won = mask_of(lane for lane in lanes_of(rest) if old[lane] < _BASE)
            self.truth.won += [u[lane] for lane in lanes_of(won)]
            yield w.line(
                MARK,
                rest,
                f"{won.bit_count()} lanes are first",
                fresh=[int(won >> lane & 1) for lane in range(LANES)],
            )
            yield from self.push(won, u)
        yield from self.flush_block()

    def push(self, won: int, u: Lanes) -> Lines:
        w = self.w
        yield w.line("const u32 mask = __ballot_sync(LAB_FULL, fresh);", note="every lane knows who is first")
        if self.broken == NO_RANK.name:
            places = [self.count] * LANES
        else:
            places = [self.count + popcount_below(won, lane) for lane in range(LANES)]
        w.store(self.stage, places, u, won)
        self.truth.pushed |= {u[lane] for lane in lanes_of(won)}
        yield w.line(PLACE, won, "each takes the place after the lanes before it")
        self.count += won.bit_count()
        yield w.line("stage.count += __popc(mask);", note=f"{self.count} staged")

    def flush_block(self) -> Lines:
        w, number = self.w, self.w.number
        w.store("firsts", [number] * LANES, [self.count] * LANES, 1)
        yield w.line("if (lane == 0) firsts[warp] = stage.count;", 1)
        yield from w.barrier("first")
        if number == 0:
            warps = (1 << WARPS) - 1
            counts = w.load("firsts", list(range(LANES)), warps)
            mine = [each or 0 for each in counts]
            yield w.line("const u32 mine = lane < LAB_WARPS", note="how many each warp has staged")
            inclusive = [sum(mine[: lane + 1]) for lane in range(LANES)]
            yield w.line("if (lane >= apart) inclusive += left;", note="inclusive scan over the warps")
            first = w.atomic_add("fresh", 0, inclusive[-1], 1 << WARPS - 1)[WARPS - 1]
            yield w.line(
                "if (lane == LAB_WARPS - 1 && inclusive)", 1 << WARPS - 1, "one atomic for the whole block"
            )
            value = [
                first + (0 if self.broken == NO_SCAN.name else inclusive[i] - mine[i]) for i in range(LANES)
            ]
            w.store("firsts", list(range(LANES)), value, warps)
            yield w.line(SCAN, warps)
        if self.broken != NO_BARRIER.name:
            yield from w.barrier("second")
        first = w.load("firsts", [number] * LANES, FULL)[0]
        yield w.line(DRAIN, FULL, f"places {first} and on of the new level")
        for i in range(0, self.count, LANES):
            mask = (1 << min(self.count - i, LANES)) - 1
            staged = w.load(self.stage, [i + lane for lane in range(LANES)], mask)
            local = [self.truth.level_end + first + i + lane for lane in range(LANES)]
            for lane in lanes_of(mask):
                other = self.truth.places.get(local[lane])
                if other is not None and other != staged[lane]:
                    self.truth.clash = (
                        f"nodes[{local[lane]}] holds vertex {other}; lane {lane} of warp {number} writes vertex "
                        f"{staged[lane]} over it"
                    )
                self.truth.places[local[lane]] = staged[lane]
            w.store("nodes", local, staged, mask)
            yield w.line(
                "p.nodes[(u64)b * p.node_cap + local] = stage.ids[i];",
                mask,
                local=[each if mask >> lane & 1 else None for lane, each in enumerate(local)],
            )
            w.store("table", staged, [_BASE + 1 + each for each in local], mask)
            yield w.line(
                "t.words[(u64)b * t.stride + v] = base + 1 + local;", mask, "the mark becomes the local id"
            )


def _source() -> tuple[Any, ...]:
    return (
        listing(
            _EXPAND,
            ("row = lab_row(p, p.nodes", "row = lab_row"),
            ("if ((int)lane < mine) lab_draw_lane", "if ((int)lane"),
            ("const u32 e = e0", "valid[c] ="),
            ("u[c] = __ldg(p.indices", "u[c]"),
            ("if (valid[c]) h.neighbors", "if (valid[c])"),
            ("for (int c = 0; c < 4; ++c) fresh[c] = valid[c] && lab_insert", "for (int c"),
            ("for (int c = 0; c < 4; ++c) lab_push", "for (int c"),
            ("if (relabel && !marks) lab_flush_block", "if (relabel"),
        ),
        listing(_PLAN, (LOOK, MARK), ("t.words[(u64)b * t.stride + v] = base + 1 + local;", "t.words")),
        listing(
            _FRESH,
            ("p.nodes[(u64)b", "lab_set(p.table"),
            ("if (lane == 0) firsts[warp] = stage.count;", DRAIN),
            ("const u32 mask = __ballot_sync(LAB_FULL, fresh);", "stage.count += __popc(mask);"),
        ),
    )


Example = tuple[Any, Any, dict[int, list[int]], Any]


def example(graph: Any) -> Example:
    """The graph, the seeds, the positions that the library draws for each, and its mini-batch."""
    from gnnsample_lab.minibatch.sampler import NeighborSampler

    seeds = seeds_of(graph, SEEDS)
    batch = NeighborSampler(graph, (FANOUT,), strategy="bsp", device="cpu").sample(seeds)
    picks, indptr = batch.picks[0], np.asarray(graph.indptr)
    drawn = {
        v: (picks.positions[picks.offsets[i] : picks.offsets[i + 1]] - indptr[v]).tolist()
        for i, v in enumerate(picks.frontier.tolist())
    }
    return graph, seeds, drawn, batch


def _mark(word: int) -> str:
    return "–" if word < _BASE else "mark" if word == _BASE else f"id {word - _BASE - 1}"


def _vertex(v: int) -> str:
    return "–" if v < 0 else str(v)


def record(made: Example, broken: str | None, seed: int, slow: str = "") -> Recorded:
    """One run of the two warps in the order that ``seed`` decides; ``slow``: see :class:`~.base.Machine`."""
    graph, seeds, drawn, batch = made
    ids = seeds.tolist()
    source = _source()
    watched: dict[str, Callable[[Any], str]] = {"row": _vertex, "u": str, "fresh": str, "local": str}
    machine = Machine(source, watched, _check, seed=seed, slow=slow)
    room = min(graph.num_nodes, len(ids) * (1 + FANOUT)) + LANES
    machine.array("nodes", ids + [-1] * (room - len(ids)), 4, show=_vertex)
    table = [_BASE - 1 - v % 7 for v in range(graph.num_nodes)]
    for local, v in enumerate(ids):
        table[v] = _BASE + 1 + local
    machine.array("table", table, 4, show=_mark)
    machine.array("fresh", [0], 4)
    machine.array("neighbors", [-1] * (len(ids) * FANOUT), 4, show=_vertex)
    for warp in range(WARPS):
        machine.array(f"stage.ids, warp {warp}", [-1] * LANES, 4, shared=True, show=_vertex)
    machine.array("firsts", [0] * WARPS, 4, shared=True)
    machine.array("indptr", np.asarray(graph.indptr), 8, fixed=True)
    machine.array("indices", np.asarray(graph.indices), 4, fixed=True)
    machine.truth = _Truth(len(ids), known=set(ids))
    machine.run([lambda warp: _Kernel(warp, drawn, len(ids), broken).main()] * WARPS)
    count = machine.memory["fresh"].cells[0]
    neighbors = machine.memory["neighbors"].cells
    return Recorded(
        "grow a frontier", broken, source, next((m for m in MUTATIONS if m.name == broken), None), tuple(machine.steps),
        machine.memory, machine.first, (1, int(any(step.violation for step in machine.steps))), machine.watched,
        {"frontier": machine.memory["nodes"].cells[: len(ids) + count], "expected": batch.node_ids.tolist(),
         "neighbors": [v for v in neighbors if v >= 0], "expected neighbors": batch.picks[0].neighbors.tolist()},
        f"{len(ids)} seeds of {graph.title}, fanout {FANOUT}, {WARPS} warps",
    )  # fmt: skip
