"""Claim a slot: three warps of `persistent-tile` share a queue of (hop, vertex) tasks (PGSampler's persistent kernel).

Left out of the kernel: row numbers and the sample's own arrays, which do not take part in the queue; errors; and the
watch that reads `outstanding` at every fourth poll only. The positions that `lab_draw_lane` draws are the library's.
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

_TILE = "sampling/neighbors/queue/tile.cu"
_QUEUE = "sampling/neighbors/queue/queue.cuh"
FANOUTS = (3, 2)
SEEDS, WARPS = 2, 3
_TAG, _OLD = 7, 6
_DONE = 1 << 63

RELEASE = "lab_release(p.queue + slot, LAB_TASK(hop, tag, v));"
COUNT = "atomicAdd(counters + CTR_OUTSTANDING, (u32)count);"
TAIL = "first = atomicAdd(counters + CTR_TAIL, (u32)count);"
NAP = "lab_nap(32);"

FLAG_FIRST = Mutation(
    "write the flag before the value",
    RELEASE,
    "((u32*)(p.queue + slot))[1] = hop << 27 | tag << 16;  // [0] = (u32)v comes later",
    RELEASE,
)
NO_FENCE = Mutation(
    "leave the fence out",
    RELEASE,
    "((u32*)(p.queue + slot))[0] = (u32)v;  // then [1] = hop << 27 | tag << 16, and nothing orders the two",
)
PLAIN_ADD = Mutation(
    "plain add instead of atomicAdd",
    TAIL,
    "first = counters[CTR_TAIL]; counters[CTR_TAIL] = first + count;",
    TAIL,
)
COUNT_LATE = Mutation(
    "count outstanding after publishing", COUNT, "// moved behind the loop that publishes", RELEASE
)
DROP_TICKET = Mutation(
    "give up a ticket whose slot is empty",
    NAP,
    "break;  // to the next ticket, as PGSampler's Algorithm 1 does",
)
MUTATIONS = (FLAG_FIRST, NO_FENCE, PLAIN_ADD, COUNT_LATE, DROP_TICKET)
ORDERS = True
"""Several warps: their order matters."""


def task_word(hop: int, vertex: int, tag: int = _TAG) -> int:
    """``LAB_TASK``: hop << 59 | tag << 48 | vertex."""
    return hop << 59 | tag << 48 | vertex


def _task(word: int) -> tuple[int, int]:
    return word >> 59 & 15, word & (1 << 48) - 1


def _published(word: int) -> bool:
    return word >> 48 & 0x7FF == _TAG


def _shown(word: int) -> str:
    """A task for readers: they count hops from 1, the kernel counts them from 0."""
    if not _published(word):
        return "old" if word else "none"
    hop, vertex = _task(word)
    return f"h{hop + 1} v{vertex}" + (" ✓" if word & _DONE else "")


@dataclass
class _Truth:
    """What really happened, whatever the memory says."""

    wanted: set[tuple[int, int]]
    published: dict[int, tuple[int, int]] = field(default_factory=dict)
    served: list[tuple[int, int]] = field(default_factory=list)
    finished: set[tuple[int, int]] = field(default_factory=set)
    held: dict[int, set[int]] = field(default_factory=dict)
    clash: str = ""


def _names(tasks: Any) -> str:
    return ", ".join(f"(hop {hop + 1}, vertex {vertex})" for hop, vertex in sorted(tasks))


def _check(machine: Machine) -> Violation | None:
    truth: _Truth = machine.truth
    if truth.clash:
        return Violation("a slot holds one task", truth.clash)
    strange = [task for task in truth.served if task not in truth.wanted]
    if strange:
        return Violation(
            "a warp serves only tasks that were pushed",
            f"a lane serves {_names(strange)}, which nobody pushed: the slot's flag is new, its value is old",
        )
    if len(set(truth.served)) < len(truth.served):
        twice = {task for task in truth.served if truth.served.count(task) > 1}
        return Violation("a task is served once", f"served twice: {_names(twice)}")
    unfinished = truth.wanted - truth.finished
    outstanding = machine.memory["outstanding"].cells[0]
    if outstanding == 0 and unfinished:
        return Violation(
            "outstanding is 0 only when every task is done",
            f"outstanding is 0, so a waiting warp may leave, but {len(unfinished)} are not done: {_names(unfinished)}",
        )
    head = machine.memory["head"].cells[0]
    held = set().union(*(truth.held.get(warp, set()) for warp in machine.live))
    lost = {
        task
        for slot, task in truth.published.items()
        if task not in truth.served and slot < head and slot not in held
    }
    if lost:
        return Violation(
            "each published slot has a warp that will read it",
            f"lost: {_names(lost)}; the slot is published, but its ticket was taken and given up",
            tuple(sorted(vertex for _, vertex in lost)),
        )
    if (machine.stalled or not machine.live) and unfinished:
        return Violation("every task is served", f"the warps have stopped; not done: {_names(unfinished)}")
    return None


class _Kernel:
    """The lines of tile.cu for one warp."""

    def __init__(self, warp: Warp, drawn: dict[tuple[int, int], list[int]], broken: str | None) -> None:
        self.w, self.broken = warp, broken
        self.drawn = drawn
        self.truth: _Truth = warp.machine.truth
        self.count = 0
        self.staged = f"staged, warp {warp.number}"

    def main(self) -> Lines:
        w, zero = self.w, [0] * LANES
        while True:
            yield w.line("u32 first = 0, tickets = 1;", first=0, tickets=1)
            head = w.load("head", zero, 1)[0]
            tail = w.load("tail", zero, 1)[0]
            yield w.line("const u32 head = lab_read", 1, f"head {head}, tail {tail}")
            tickets = min(max((tail - head) // WARPS, 1), 32) if tail > head else 1
            yield w.line("tickets = tail > head", 1, f"{tickets} of the waiting tasks for this warp")
            first = w.atomic_add("head", 0, tickets)[0]
            self.truth.held[w.number] = set(range(first, first + tickets))
            yield w.line(
                "first = atomicAdd(counters + CTR_HEAD, tickets);",
                1,
                f"tickets {first} to {first + tickets - 1}",
            )
            waiting = (1 << tickets) - 1
            w.forget("ticket", "word", "vertex", "u")
            w.set(ticket=[first + lane if waiting >> lane & 1 else None for lane in range(LANES)])
            yield w.line("first = __shfl_sync(LAB_FULL, first, 0);", nth=2)
            yield w.line("u32 waiting = tickets == 32", note="bit i: lane i has no task yet")
            while waiting:
                w.forget("word", "vertex", "u")
                word = self.peek(first, waiting)
                yield w.line("if (waiting >> lane & 1) word = lab_peek", waiting, word=word)
                ready = mask_of(lane for lane in lanes_of(waiting) if _published(word[lane]))
                yield w.line(
                    "const u32 ready = __ballot_sync",
                    FULL,
                    f"{ready.bit_count()} of {waiting.bit_count()} slots are written",
                )
                if ready:
                    yield from self.serve(ready, word, first)
                    waiting &= ~ready
                    self.truth.held[w.number] = {first + lane for lane in lanes_of(waiting)}
                    yield w.line("waiting &= ~ready;")
                    continue
                if self.broken == DROP_TICKET.name:
                    self.truth.held[w.number] = set()
                    over = w.load("outstanding", zero, 1)[0] == 0
                    yield w.line(NAP, FULL, "the slot is empty: on to another ticket")
                    w.machine.rest()
                    if over:
                        return
                    break
                over = w.load("outstanding", zero, 1)[0] == 0
                yield w.line(
                    "if (lane == 0) over = watch.over(counters);",
                    1,
                    "all is done" if over else "not all is done",
                )
                if over:
                    word = self.peek(first, waiting)
                    yield w.line("if (waiting >> lane & 1) late = lab_published", waiting)
                    late = any(_published(word[lane]) for lane in lanes_of(waiting))
                    yield w.line(
                        "if (!__any_sync(LAB_FULL, late)) return;", note="" if late else "this warp leaves"
                    )
                    if not late:
                        self.truth.held[w.number] = set()
                        return
                    continue
                yield w.line(NAP)
                w.machine.rest()

    def peek(self, first: int, waiting: int) -> Lanes:
        slots = len(self.w.machine.memory["queue"].cells)
        beyond = mask_of(lane for lane in lanes_of(waiting) if first + lane >= slots)
        waiting &= ~beyond
        found = self.w.load("queue", [first + lane for lane in range(LANES)], waiting)
        return [0 if each is None and beyond >> lane & 1 else each for lane, each in enumerate(found)]

    def serve(self, ready: int, word: Lanes, first: int) -> Lines:
        w = self.w
        tasks = {lane: _task(word[lane]) for lane in lanes_of(ready)}
        self.truth.served += tasks.values()
        yield w.line(
            "const Task task = lab_task(word);", ready, f"serve {len(tasks)} task{'' if len(tasks) == 1 else 's'}",
            vertex=[tasks[lane][1] if lane in tasks else None for lane in range(LANES)],
        )  # fmt: skip
        vertex: Lanes = [tasks[lane][1] if lane in tasks else None for lane in range(LANES)]
        start = w.load("indptr", vertex, ready)
        w.load("indptr", [None if v is None else v + 1 for v in vertex], ready)
        yield w.line("row = lab_row(p, task.vertex, h.fanout);", ready)
        expands = mask_of(lane for lane, (hop, _) in tasks.items() if hop + 1 < len(FANOUTS))
        if expands:
            again = self.insert(vertex, expands)
            yield w.line("const bool again = expands && lab_insert", expands)
            self.stage(again, vertex)
            yield w.line(
                "lab_stage_task(p, b, counters, batch.tag, staged, count, again",
                again,
                "the vertex again",
            )
        yield w.line("if (mine && fits) lab_draw_lane", ready, "positions in each list, one task per lane")
        picks = [(lane, start[lane] + at) for lane, task in tasks.items() for at in self.drawn.get(task, [])]
        for begin in range(0, len(picks), LANES):
            some = picks[begin : begin + LANES]
            mask = (1 << len(some)) - 1
            w.forget("u")
            u = w.load("indices", [at for _, at in some], mask)
            yield w.line("u[c] = __ldg(p.indices", mask, "the picks, spread over the lanes", u=u)
            fresh = mask_of(i for i, (lane, _) in enumerate(some) if expands >> lane & 1)
            if fresh:
                won = self.insert(u, fresh)
                yield w.line(
                    "lab_insert(p.reached[hops[c] + 1]", fresh, f"{won.bit_count()} are reached first"
                )
                self.stage(won, u)
                yield w.line("lab_stage_task(p, b, counters, batch.tag, staged, count, fresh[c]", won)
        yield from self.flush()
        slots = [first + lane for lane in range(LANES)]
        w.store("queue", slots, [None if each is None else each | _DONE for each in word], ready)
        self.truth.finished |= set(tasks.values())
        yield w.line("p.queue[(u64)b * p.queue_cap + ticket] = word | LAB_DONE;", ready)
        # A reader may trust the count only after the tasks that it stands for.
        w.atomic_add("outstanding", 0, -len(tasks))
        yield w.line("if (lane == 0) atomicSub(counters + CTR_OUTSTANDING", 1)

    def insert(self, vertex: Lanes, mask: int) -> int:
        seen = self.w.load("reached", vertex, mask)
        rest = mask_of(lane for lane in lanes_of(mask) if not seen[lane])
        old = self.w.atomic("reached", vertex, lambda was, _: max(was, 1), rest)
        won = mask_of(lane for lane in lanes_of(rest) if not old[lane])
        self.truth.wanted |= {(1, vertex[lane]) for lane in lanes_of(won)}
        return won

    def stage(self, mask: int, vertex: Lanes) -> None:
        places = [self.count + popcount_below(mask, lane) for lane in range(LANES)]
        self.w.store(self.staged, places, vertex, mask)
        self.count += mask.bit_count()

    def flush(self) -> Lines:
        w, count, broken = self.w, self.count, self.broken
        yield w.line("if (count == 0) return;", note=f"{count} new tasks are staged")
        if count == 0:
            return
        if broken != COUNT_LATE.name:
            w.atomic_add("outstanding", 0, count)
            yield w.line(COUNT, 1)
        if broken == PLAIN_ADD.name:
            first = w.load("tail", [0] * LANES, 1)[0]
            yield w.line(TAIL, 1, f"read the tail: {first}")
            w.store("tail", [0] * LANES, [first + count] * LANES, 1)
            yield w.line(TAIL, 1, f"write the tail: {first + count}")
        else:
            first = w.atomic_add("tail", 0, count)[0]
            yield w.line(TAIL, 1, f"slots {first} to {first + count - 1}")
        yield w.line("first = __shfl_sync(LAB_FULL, first, 0);")
        mask = (1 << count) - 1
        tasks = w.load(self.staged, list(range(LANES)), mask)
        yield w.line("const Task t = lab_task(staged[i]);", mask)
        yield from self.publish(first, mask, tasks)
        if broken == COUNT_LATE.name:
            w.atomic_add("outstanding", 0, count)
            yield w.line(COUNT, 1)
        self.count = 0

    def publish(self, first: int, mask: int, vertex: Lanes) -> Lines:
        w, slots = self.w, [first + lane for lane in range(LANES)]
        for lane in lanes_of(mask):
            task, slot = (1, vertex[lane]), first + lane
            other = self.truth.published.get(slot)
            if other is not None:
                writes = f"lane {lane} of warp {w.number} writes {_names([task])} over it"
                self.truth.clash = f"slot {slot} holds {_names([other])}; {writes}"
            self.truth.published[slot] = task
        words: Lanes = [None if v is None else task_word(1, v) for v in vertex]
        low, note = (1 << 32) - 1, "a task is one word: flag and value arrive together"
        queue = w.machine.memory["queue"].cells
        if self.broken == FLAG_FIRST.name:
            w.store(
                "queue", slots, [word and word & ~low | queue[s] & low for word, s in zip(words, slots)], mask
            )
            yield w.line(RELEASE, mask, "the half with the flag")
            w.store(
                "queue", slots, [word and queue[s] & ~low | word & low for word, s in zip(words, slots)], mask
            )
            note = "the half with the vertex"
        elif self.broken == NO_FENCE.name:
            w.store_late("queue", slots, lambda old, lane: old & ~low | words[lane] & low, mask)
            yield w.line(RELEASE, mask, "the half with the vertex; it is on its way")
            w.store(
                "queue", slots, [word and word & ~low | queue[s] & low for word, s in zip(words, slots)], mask
            )
            note = "the half with the flag"
        else:
            w.store("queue", slots, words, mask)
        yield w.line(RELEASE, mask, note)


def _source() -> tuple[Any, ...]:
    return (
        listing(
            _TILE,
            ("if (count == 0) return;", "const Task t = lab_task(staged[i]);"),
            ("lab_publish(p, b, counters", "count = 0;"),
            ("const Task task = lab_task(word);", "const Task task"),
            ("row = lab_row(p, task.vertex", "row = lab_row"),
            ("const bool again = expands", "lab_stage_task(p, b, counters, batch.tag, staged, count, again"),
            ("if (mine && fits) lab_draw_lane", "if (mine && fits)"),
            ("u[c] = __ldg(p.indices", "u[c]"),
            ("fresh[c] = fresh[c] &&", "lab_insert(p.reached[hops[c] + 1]"),
            ("lab_stage_task(p, b, counters, batch.tag, staged, count, fresh[c]", "lab_stage_task"),
            ("p.queue[(u64)b", "p.queue[(u64)b"),
            ("if (lane == 0) atomicSub", "if (lane == 0) atomicSub"),
            ("u32 first = 0, tickets = 1;", "lab_nap(32);"),
        ),
        listing(_QUEUE, (RELEASE, RELEASE)),
    )


Example = tuple[Any, Any, dict[tuple[int, int], list[int]]]


def example(graph: Any) -> Example:
    """The graph, the seeds, and the positions that the library draws for each (hop, vertex)."""
    from gnnsample_lab.minibatch.sampler import NeighborSampler

    seeds = seeds_of(graph, SEEDS, FANOUTS[0])
    batch = NeighborSampler(graph, FANOUTS, strategy="persistent-tile", device="cpu").sample(seeds)
    indptr = np.asarray(graph.indptr)
    drawn: dict[tuple[int, int], list[int]] = {}
    for hop, picks in enumerate(batch.picks):
        for i, v in enumerate(picks.frontier.tolist()):
            edges = picks.positions[picks.offsets[i] : picks.offsets[i + 1]]
            drawn[hop, v] = (edges - indptr[v]).tolist()
    return graph, seeds, drawn


def record(made: Example, broken: str | None, seed: int, slow: str = "") -> Recorded:
    """One run of the three warps in the order that ``seed`` decides; ``slow``: see :class:`~.base.Machine`."""
    graph, seeds, drawn = made
    most = len(seeds) * (2 + FANOUTS[0])
    watched: dict[str, Callable[[Any], str]] = {"ticket": str, "word": _shown, "vertex": str, "u": str}
    source = _source()
    machine = Machine(source, watched, _check, seed=seed, slow=slow)
    for name, value in (("head", 0), ("tail", len(seeds)), ("outstanding", len(seeds))):
        machine.array(name, [value], 4)
    old = [task_word(1, i * 5 % graph.num_nodes, _OLD) for i in range(most)]
    first = [task_word(0, int(v)) for v in seeds]
    machine.array("queue", first + old[len(first) :], 8, show=_shown)
    machine.array("reached", [0] * graph.num_nodes, 4)
    for warp in range(WARPS):
        machine.array(f"staged, warp {warp}", [0] * LANES, 8, shared=True)
    machine.array("indptr", np.asarray(graph.indptr), 8, fixed=True)
    machine.array("indices", np.asarray(graph.indices), 4, fixed=True)
    truth = machine.truth = _Truth({(0, int(v)) for v in seeds})
    truth.published = {slot: (0, int(v)) for slot, v in enumerate(seeds)}
    machine.run([lambda warp: _Kernel(warp, drawn, broken).main()] * WARPS)
    words = machine.memory["queue"].cells[: machine.memory["tail"].cells[0]]
    return Recorded(
        "claim a slot", broken, source, next((m for m in MUTATIONS if m.name == broken), None), tuple(machine.steps),
        machine.memory, machine.first, (1, int(any(step.violation for step in machine.steps))), machine.watched,
        {"tasks": sorted(_task(word & ~_DONE) for word in words), "done": all(word & _DONE for word in words),
         "expected": sorted(drawn)},
        f"{len(seeds)} seeds of {graph.title}, fanouts {FANOUTS}, {WARPS} warps; h1 is hop 1, which the code calls 0",
    )  # fmt: skip
