"""Gather a transit's list: one warp of `transit_subwarp` serves four transits, eight lanes each (NextDoor, table 2).

A step of a uniform walk (SLOTS 1, LANES 8, HELD 2): each sub-warp reads its transit's list once into registers, two
entries per lane, and its lanes serve the samples at that transit by shuffles. The positions are drawn here from the
counters of the kernel, so the result is that of the library's walk. Left out: samples without a transit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnsample_lab.device import philox

from .base import (
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
)

_TRANSIT = "sampling/engine/steps/transit.cu"
TEAM, HELD, TEAMS, SAMPLES = 8, 2, 4, 64
_NULL = -1

HOLD = "held[h] = i < l.length ? l.edges[i] : (ID_T)LAB_NULL;"
SHUFFLE = "const ID_T entry = __shfl_sync(team, held[h], (int)at[u] & (LANES - 1), LANES);"
PICK = "if (at[u] >= h * LANES && at[u] < (h + 1) * LANES) got[u] = entry;"
PUT = "if (i < work) put(p, pair, group, got);"

PER_LANE = Mutation("read the list per lane", SHUFFLE, "const ID_T entry = l.edges[at[u]];", costs=True)
WHOLE_WARP = Mutation(
    "shuffle over the whole warp", SHUFFLE, "const ID_T entry = __shfl_sync(FULL, held[h], (int)at[u] & 31);"
)
NO_RANGE = Mutation("take either register", PICK, "got[u] = entry;")
NOT_BY_PAIR = Mutation("write where the index says", PUT, "if (i < work) p.out[first + i] = got[0];")
MUTATIONS = (PER_LANE, WHOLE_WARP, NO_RANGE, NOT_BY_PAIR)
ORDERS = False
"""One warp: there is one order."""


@dataclass
class _Truth:
    expected: list[int]
    lists: dict[int, set[int]]
    transit_of: list[int] = field(default_factory=list)


def _check(machine: Machine) -> Violation | None:
    truth: _Truth = machine.truth
    for sample, u in enumerate(machine.memory["out"].cells):
        if u == -2:
            continue
        v = truth.transit_of[sample]
        if u not in truth.lists[v]:
            shown = "NULL" if u == _NULL else f"vertex {u}"
            return Violation(
                "a sample moves to an in-neighbour of its transit",
                f"sample {sample} stands at vertex {v} and gets {shown}, which is not in its list",
            )
        if u != truth.expected[sample]:
            return Violation(
                "a sample gets the entry that it drew",
                f"sample {sample} at vertex {v} drew vertex {truth.expected[sample]} and gets vertex {u}",
            )
    if not machine.live and -2 in machine.memory["out"].cells:
        left = [s for s, u in enumerate(machine.memory["out"].cells) if u == -2]
        return Violation(
            "every sample is served", f"nothing is written for samples {', '.join(map(str, left))}"
        )
    return None


def position(sample: int, length: int, seed: int = 0) -> int:
    """The entry that a sample draws from a list of ``length``: ``rng.below(length)`` of step 0, slot 0."""
    word = int(philox.app_words(sample, 0, 0, 0, seed)[0])
    return word * length >> 32


class _Kernel:
    def __init__(self, warp: Warp, teams: int, broken: str | None) -> None:
        self.w, self.teams, self.broken = warp, teams, broken

    def main(self) -> Lines:
        w = self.w
        n = [lane // TEAM for lane in range(LANES)]
        lane_of = [lane % TEAM for lane in range(LANES)]
        live = mask_of(lane for lane in range(LANES) if n[lane] < self.teams)
        number = w.load("lists", n, live)
        begin = w.load("begins", number, live)
        end = w.load("begins", [None if each is None else each + 1 for each in number], live)
        yield w.line("const i64 number = x.lists[n]", live, "eight lanes per transit read the same entry")
        work: Lanes = [None if e is None else e - b for b, e in zip(begin, end, strict=True)]
        yield w.line("const i64 work = count * groups;", live)
        v = w.load("transits", number, live)
        start = w.load("indptr", v, live)
        stop = w.load("indptr", [None if each is None else each + 1 for each in v], live)
        length: Lanes = [None if e is None else e - b for b, e in zip(start, stop, strict=True)]
        yield w.line("const List l = list_of", live, "list and length of the transit", transit=v)
        held: list[Lanes] = []
        for h in range(HELD):
            i = [h * TEAM + lane_of[lane] for lane in range(LANES)]
            if self.broken == PER_LANE.name:
                break
            reads = mask_of(lane for lane in lanes_of(live) if i[lane] < length[lane])
            found = w.load(
                "indices", [s + i[lane] if s is not None else None for lane, s in enumerate(start)], reads
            )
            held.append([found[lane] if reads >> lane & 1 else _NULL for lane in range(LANES)])
            w.set(**{f"held[{h}]": held[-1]})
            yield w.line(HOLD, live, f"entries {h * TEAM} to {h * TEAM + TEAM - 1} of each list")
        base = 0
        while any(base < work[lane] for lane in lanes_of(live)):
            i = [base + lane_of[lane] for lane in range(LANES)]
            team = mask_of(lane for lane in lanes_of(live) if base < work[lane])
            mask = mask_of(lane for lane in lanes_of(team) if i[lane] < work[lane])
            yield w.line(
                "const i64 i = base + lane", team, f"samples {base} to {base + TEAM - 1} of each transit"
            )
            w.forget("sample", "at", "got")
            sample = w.load(
                "pairs", [b + i[lane] if b is not None else None for lane, b in enumerate(begin)], mask
            )
            yield w.line(
                "pair = x.pairs[first + at_pair];", mask, "the samples at this transit", sample=sample
            )
            at: Lanes = [
                position(sample[lane], length[lane]) if mask >> lane & 1 else -1 for lane in range(LANES)
            ]
            yield w.line(
                "positions(p, pair, group, l, at);", mask, "each lane draws a position for its sample", at=at
            )
            got: Lanes = [_NULL] * LANES
            yield w.line("got[u] = (ID_T)LAB_NULL;", team, got=list(got))
            if self.broken == PER_LANE.name:
                found = w.load(
                    "indices", [None if s is None else s + at[x] for x, s in enumerate(start)], mask
                )
                got = [_NULL if each is None else each for each in found]
                yield w.line(SHUFFLE, mask, "every lane goes to memory for its entry", got=list(got))
            else:
                for h in range(HELD):
                    if self.broken == WHOLE_WARP.name:
                        entry = [held[h][at[lane] & 31] for lane in range(LANES)]
                    else:
                        entry = [held[h][lane - lane % TEAM + (at[lane] & TEAM - 1)] for lane in range(LANES)]
                    yield w.line(SHUFFLE, team, f"register {h} of the lane that holds the entry, no memory")
                    for lane in lanes_of(team):
                        if self.broken == NO_RANGE.name or h * TEAM <= at[lane] < (h + 1) * TEAM:
                            got[lane] = entry[lane]
                    yield w.line(PICK, team, got=list(got))
            place = sample
            if self.broken == NOT_BY_PAIR.name:
                place = [b + i[lane] if b is not None else None for lane, b in enumerate(begin)]
            w.store("out", place, got, mask)
            yield w.line(PUT, mask, "the result goes to the sample, wherever it lies")
            base += TEAM


def _source() -> tuple[Any, ...]:
    return (
        listing(
            _TRANSIT,
            ("const i64 number = x.lists[n], first", "const List l = list_of(p, x.transits[number]);"),
            ("for (int h = 0; h < HELD; ++h) {", HOLD),
            ("for (i64 base = 0; base < work; base += LANES) {", "for (i64 base"),
            ("const i64 i = base + lane", "const i64 i"),
            ("pair = x.pairs[first + at_pair];", "positions(p, pair, group, l, at);"),
            ("got[u] = (ID_T)LAB_NULL;", "got[u]"),
            (SHUFFLE, PUT),
        ),
    )


Example = tuple[Any, list[int], list[list[int]]]


def example(graph: Any) -> Example:
    """The graph, the vertex at which each sample stands, and the samples of each transit."""
    indptr = np.asarray(graph.indptr)
    degrees = np.diff(indptr)
    fit = np.flatnonzero((degrees >= 2) & (degrees <= TEAM * HELD))
    if fit.size == 0:
        raise ValueError(
            f"graph must have a vertex with 2 to {TEAM * HELD} in-neighbours, to be stepped through"
        )
    # The fullest lists that fit the registers, as hubs are where walks meet.
    transits = np.sort(fit[np.argsort(-degrees[fit], kind="stable")][:TEAMS])
    at = [
        int(transits[int(philox.app_words(s, 1, 0, 0, 1)[0]) * len(transits) >> 32]) for s in range(SAMPLES)
    ]
    groups = [[s for s in range(SAMPLES) if at[s] == v] for v in transits.tolist()]
    return graph, at, [group for group in groups if group]


def _entry(v: int) -> str:
    return " " if v == -2 else "–" if v == _NULL else str(v)


def record(made: Example, broken: str | None, seed: int = 0, slow: str = "") -> Recorded:
    """One run of the warp; there is no other one whose order could matter."""
    graph, at, groups = made
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    source = _source()
    machine = Machine(
        source,
        {"sample": str, "at": _entry, "held[0]": _entry, "held[1]": _entry, "got": _entry},
        _check,
        seed=seed,
        slow=slow,
    )
    machine.array("lists", list(range(len(groups))), 4)
    machine.array("begins", [sum(map(len, groups[:n])) for n in range(len(groups) + 1)], 8)
    machine.array("transits", [at[group[0]] for group in groups], 4)
    machine.array("indptr", indptr, 8, fixed=True)
    machine.array("indices", indices, 4, fixed=True)
    machine.array("pairs", [sample for group in groups for sample in group], 4)
    machine.array("out", [-2] * len(at), 4, show=_entry)
    expected = [
        int(indices[indptr[v] + position(s, int(indptr[v + 1] - indptr[v]))]) for s, v in enumerate(at)
    ]
    machine.truth = _Truth(
        expected, {v: set(indices[indptr[v] : indptr[v + 1]].tolist()) for v in set(at)}, at
    )
    machine.run([lambda warp: _Kernel(warp, len(groups), broken).main()])
    return Recorded(
        "gather a transit's list", broken, source, next((m for m in MUTATIONS if m.name == broken), None),
        tuple(machine.steps), machine.memory, machine.first,
        (1, int(any(step.violation for step in machine.steps))), machine.watched,
        {"out": machine.memory["out"].cells, "roots": at},
        f"{len(at)} walks that stand at {len(groups)} vertices of {graph.title}, {TEAM} lanes each, 1 warp",
    )  # fmt: skip
