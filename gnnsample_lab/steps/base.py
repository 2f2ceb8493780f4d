"""A small interpreter of warps: lines of a CUDA kernel on 32 lanes, on memory with addresses, one line at a time.

A mechanism's twin is a Python generator for each warp. Between two ``yield`` statements the generator does what one
line of the shipped kernel does, by the methods of :class:`Warp`; ``yield warp.line(...)`` names that line.
:class:`Machine` runs the warps in an order that a seed decides, writes a :class:`Step` for each line, and checks the
mechanism's invariants after each line. A run is a list of steps, so going back is looking at an earlier one.

The memory model: a lane's store and an atomic are seen by all warps at once, in lane order within a line. Only a store
by :meth:`Warp.store_late` may arrive later: nothing orders it before the stores that follow it. Lines of two warps
interleave at will; one line of one warp is not interrupted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gnnsample_lab.device.kernels import PACKAGE_ROOT

LANES = 32
FULL = (1 << LANES) - 1
SECTOR = 32
"""Bytes of a sector, the unit in which the L1 cache asks the L2 cache for memory."""
_IDLE = 20
"""Lines after which a warp that has changed nothing is taken to poll, where all others do so, too."""
_ALIGN = 256
"""Arrays begin at multiples of this many bytes, as those of ``cudaMalloc`` do."""

Lanes = list[Any]
"""A value per lane; None where the lane has none."""


class Fault(Exception):
    """A line did what the hardware or the compiler would not forgive, such as a store outside an array."""


def lanes_of(mask: int) -> list[int]:
    """The lanes whose bit is set, in order."""
    return [lane for lane in range(LANES) if mask >> lane & 1]


def mask_of(lanes: Iterable[int]) -> int:
    """The mask with the bits of ``lanes``."""
    return sum(1 << lane for lane in set(lanes))


def popcount_below(mask: int, lane: int) -> int:
    """``__popc(mask & ((1u << lane) - 1))``: how many lanes before ``lane`` are in ``mask``."""
    return (mask & ((1 << lane) - 1)).bit_count()


@dataclass
class Array:
    """An array in the memory of a run.

    Attributes:
        name: as in the kernel.
        cells: the values; a list, or an array of NumPy where ``fixed``.
        item_bytes: bytes of an item.
        stride: bytes from one item to the next; more than ``item_bytes`` for a field of a structure.
        base: address of the first item, in bytes.
        shared: lies in shared memory, which has no sectors.
        fixed: nothing may write to it, so that a large input is never copied.
        show: an item as the learner reads it.
    """

    name: str
    cells: Any
    item_bytes: int
    stride: int
    base: int
    shared: bool = False
    fixed: bool = False
    show: Callable[[int], str] = str

    def sector(self, cell: int) -> int:
        """The number of the sector that holds a cell: its address divided by 32."""
        return (self.base + cell * self.stride) // SECTOR


@dataclass(frozen=True)
class Access:
    """One memory instruction of a line.

    Attributes:
        kind: "load", "store" or "atomic".
        array: name of the array.
        lanes: lanes that take part, in order.
        cells: the cell of each of these lanes.
        sectors: distinct 32-byte sectors of the cells, in order; empty in shared memory.
    """

    kind: str
    array: str
    lanes: tuple[int, ...]
    cells: tuple[int, ...]
    sectors: tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """A cell that changed: its array, its index, the value before and after."""

    array: str
    cell: int
    before: int
    after: int


@dataclass(frozen=True)
class Violation:
    """The first invariant that does not hold, and what is wrong, from the state of the run.

    Attributes:
        invariant: what should hold.
        what: what is so instead.
        culprits: the vertices, samples or lanes that ``what`` names, as far as it names such.
    """

    invariant: str
    what: str
    culprits: tuple[int, ...] = ()


@dataclass(frozen=True)
class Step:
    """One line that one warp has run.

    Attributes:
        warp: number of the warp.
        line: index of the line among those of all listings; -1 where there is none.
        active: mask of the lanes that ran it.
        registers: the watched registers of this warp after the line, by name, a value or None per lane.
        accesses: its memory instructions, in order.
        changes: the cells that differ afterwards, in the order of the writes.
        note: what happened, in words; may be empty.
        violation: what this step broke; only the first of a run is kept.
    """

    warp: int
    line: int
    active: int
    registers: dict[str, tuple[Any, ...]]
    accesses: tuple[Access, ...]
    changes: tuple[Change, ...]
    note: str = ""
    violation: Violation | None = None

    @property
    def sectors(self) -> int:
        """Sectors of global memory that the line's instructions touch, summed over the instructions."""
        return sum(len(access.sectors) for access in self.accesses)


@dataclass
class Warp:
    """A warp of a run: its registers, and the instructions that its generator uses.

    Masks are integers of 32 bits; an index is a value per lane, of which only lanes in the mask are read.
    """

    number: int
    machine: Machine
    registers: dict[str, Lanes] = field(default_factory=dict)
    accesses: list[Access] = field(default_factory=list)

    def set(self, **values: Any) -> None:
        """Set registers: a list is a value per lane (None leaves the lane's value), anything else is for all lanes."""
        for name, value in values.items():
            now = self.registers.setdefault(name, [None] * LANES)
            new = value if isinstance(value, list) else [value] * LANES
            self.registers[name] = [old if each is None else each for old, each in zip(now, new, strict=True)]

    def barrier(self, name: str) -> Generator[Wait, None, None]:
        """``__syncthreads()``: wait until every warp that runs has come here."""
        came = self.machine.came.setdefault(name, set())
        came.add(self.number)
        while not came >= self.machine.live:
            yield Wait()

    def forget(self, *names: str) -> None:
        """Registers that are not live any more."""
        for name in names:
            self.registers.pop(name, None)

    def _access(self, kind: str, name: str, index: Sequence[Any], mask: int) -> tuple[Array, list[int]]:
        array = self.machine.memory[name]
        lanes = lanes_of(mask)
        cells = [int(index[lane]) for lane in lanes]
        for lane, cell in zip(lanes, cells, strict=True):
            if not 0 <= cell < len(array.cells):
                raise Fault(f"lane {lane} reaches for {name}[{cell}], which has {len(array.cells)} items")
        sectors = () if array.shared else tuple(sorted({array.sector(cell) for cell in cells}))
        if lanes:
            self.accesses.append(Access(kind, name, tuple(lanes), tuple(cells), sectors))
        return array, lanes

    def load(self, name: str, index: Sequence[Any], mask: int = FULL) -> Lanes:
        """Each lane's value of ``name[index]``."""
        array, lanes = self._access("load", name, index, mask)
        out: Lanes = [None] * LANES
        for lane in lanes:
            out[lane] = int(array.cells[index[lane]])
        return out

    def store(self, name: str, index: Sequence[Any], value: Sequence[Any], mask: int = FULL) -> None:
        """``name[index] = value``; lanes that meet at a cell leave the value of the last one there."""
        _, lanes = self._access("store", name, index, mask)
        for lane in lanes:
            self.machine.write(name, index[lane], value[lane])

    def store_late(
        self, name: str, index: Sequence[Any], change: Callable[[int, int], int], mask: int = FULL
    ) -> None:
        """A store of a part of each cell that may reach the memory at any later time: ``change(old value, lane)``."""
        _, lanes = self._access("store", name, index, mask)
        for lane in lanes:
            self.machine.write_late(name, index[lane], _of_lane(change, lane))

    def atomic(
        self, name: str, index: Sequence[Any], change: Callable[[int, int], int], mask: int = FULL
    ) -> Lanes:
        """``change(old value, lane)`` becomes the value, lane after lane; each lane gets the old one."""
        array, lanes = self._access("atomic", name, index, mask)
        out: Lanes = [None] * LANES
        for lane in lanes:
            out[lane] = array.cells[index[lane]]
            self.machine.write(name, index[lane], change(out[lane], lane))
        return out

    def atomic_add(self, name: str, cell: int, value: int, mask: int = 1) -> Lanes:
        """``atomicAdd`` of the lanes in ``mask`` to one 32-bit word, which wraps."""
        return self.atomic(name, [cell] * LANES, lambda old, _: (old + value) & FULL, mask)

    def line(self, text: str, mask: int = FULL, note: str = "", nth: int = 1, **registers: Any) -> Done:
        """What ``yield`` hands to the machine after a line.

        Args:
            text: how the line of the source begins.
            mask: the lanes that ran it.
            note: what happened, in words.
            nth: which of the lines that begin so, from 1.
            **registers: registers that the line sets.

        Raises:
            LookupError: the source has no such line (any more).
        """
        self.set(**registers)
        found = [n for n, (_, line, _) in enumerate(self.machine.source) if line.startswith(text)]
        if len(found) < nth:
            raise LookupError(f"the source has no line number {nth} that begins with {text!r}")
        return found[nth - 1], mask, note


def _of_lane(change: Callable[[int, int], int], lane: int) -> Callable[[int], int]:
    return lambda old: change(old, lane)


Done = tuple[int, int, str]
"""A line that has run: its index among the lines of all listings, the mask of its lanes, a note."""


class Wait:
    """Handed to the machine by a warp that stands at a barrier: others go on, and no step is written."""


Lines = Generator[Done | Wait, None, None]
"""What a program is: its lines, one after another."""
Program = Callable[[Warp], Lines]


class Machine:
    """Memory and warps, and the run that they make.

    Args:
        source: the lines that the programs run.
        watched: registers that are shown, in order, and how a value reads.
        check: called after each step; what is violated, or None.
        seed: of the order in which warps take turns; 0 lets them take turns of equal length.
        slow: a line; a warp that has run it is delayed for a while, as by the kernels' own ``lab_fuzz``.
        most: steps after which a run ends.
    """

    truth: Any = None
    """What the mechanism's invariants remember of the run."""

    def __init__(
        self,
        source: Sequence[Listing],
        watched: Mapping[str, Callable[[Any], str]],
        check: Callable[[Machine], Violation | None],
        *,
        seed: int = 0,
        slow: str = "",
        most: int = 600,
    ) -> None:
        self.memory: dict[str, Array] = {}
        self.watched = dict(watched)
        self.source = [line for listing in source for line in listing.lines]
        self.check = check
        self.seed, self.slow = seed, slow
        self.most = most
        self.steps: list[Step] = []
        self.first: dict[str, Any] = {}
        self.live: set[int] = set()
        self.ended: set[int] = set()
        self.came: dict[str, set[int]] = {}
        self.stalled = False
        self._changes: list[Change] = []
        self._late: list[tuple[str, int, Callable[[int], int]]] = []
        self._next = 1 << 16
        self._left = 0

    def array(
        self,
        name: str,
        cells: Any,
        item_bytes: int,
        *,
        shared: bool = False,
        fixed: bool = False,
        show: Callable[[int], str] = str,
    ) -> Array:
        """Allocate an array; see :class:`Array`."""
        kept = cells if fixed else list(cells)
        array = Array(name, kept, item_bytes, item_bytes, self._next, shared, fixed, show)
        self._next += -(-len(cells) * item_bytes // _ALIGN) * _ALIGN
        self.memory[name] = array
        return array

    def fields(self, names: Sequence[str], cells: Sequence[Sequence[int]], item_bytes: int) -> list[Array]:
        """Allocate an array of structures with one field of ``item_bytes`` for each name."""
        made = [self.array(name, values, item_bytes) for name, values in zip(names, cells, strict=True)]
        base = made[0].base
        for number, array in enumerate(made):
            array.base, array.stride = base + number * item_bytes, len(names) * item_bytes
        self._next = base + -(-len(cells[0]) * len(names) * item_bytes // _ALIGN) * _ALIGN
        return made

    def write_late(self, name: str, cell: int, change: Callable[[int], int]) -> None:
        """A store that no fence orders: ``change`` of the value that it meets reaches the memory at a later turn."""
        self._late.append((name, cell, change))

    def write(self, name: str, cell: int, value: int) -> None:
        """Write a cell."""
        if self.memory[name].fixed:
            raise Fault(f"{name} is only read")
        cells = self.memory[name].cells
        self._changes.append(Change(name, cell, cells[cell], value))
        cells[cell] = value

    def rest(self) -> None:
        """The warp whose turn it is sleeps: another one goes on."""
        self._left = 0

    def fence(self) -> None:
        """All stores that were on their way have arrived."""
        for name, cell, change in self._late:
            self.write(name, cell, change(self.memory[name].cells[cell]))
        self._late.clear()

    def run(self, programs: Sequence[Program]) -> None:
        """Run a warp for each program until all have ended, nothing moves any more, or the steps are used up."""
        self.first = {
            name: array.cells if array.fixed else list(array.cells) for name, array in self.memory.items()
        }
        order = random.Random(self.seed)
        warps = [Warp(number, self) for number in range(len(programs))]
        running = {warp.number: program(warp) for warp, program in zip(warps, programs, strict=True)}
        self.live = set(running)
        turn, waits, self._left = 0, 0, 0
        # Lines of each warp since anything changed: one that serves a task without new vertices is at work in silence.
        idle = dict.fromkeys(running, 0)
        awake = dict.fromkeys(running, 0)
        while running and len(self.steps) < self.most and not self.stalled:
            if self._left <= 0 or turn not in running:
                ready = [each for each in running if awake[each] <= len(self.steps)] or list(running)
                turn = order.choice([each for each in ready if each != turn] or ready)
                self._left = order.choice((1, 2, 4, 8, 16, 32)) if self.seed else 8
            self._left -= 1
            warp = warps[turn]
            if self._late and order.random() < 0.03:
                self.fence()
            try:
                done = next(running[turn], None)
            except Fault as fault:
                self._record(
                    warp, (-1, 0, str(fault)), Violation("every access stays inside its array", str(fault))
                )
                break
            if done is None:
                del running[turn]
                self.live.discard(turn)
                self.ended.add(turn)
                self._amend()
                continue
            if isinstance(done, Wait):
                awake[turn], self._left = len(self.steps) + 1, 0
                waits += 1
                if waits > self.most:
                    break
                continue
            waits = 0
            if self.slow and self.source[done[0]][1].startswith(self.slow):
                awake[turn], self._left = len(self.steps) + order.randint(0, 100), 0
            asleep = any(awake[each] > len(self.steps) for each in running)
            idle = dict.fromkeys(idle, 0) if self._changes or asleep else {**idle, turn: idle[turn] + 1}
            self._record(warp, done)
            self.stalled = all(idle[each] > _IDLE for each in running)
        self.fence()
        self.live = set()
        self._amend()

    def _record(self, warp: Warp, done: Done, violation: Violation | None = None) -> None:
        line, mask, note = done
        watched = {name: tuple(warp.registers.get(name, [None] * LANES)) for name in self.watched}
        self.steps.append(
            Step(warp.number, line, mask, watched, tuple(warp.accesses), tuple(self._changes), note)
        )
        warp.accesses, self._changes = [], []
        if not any(step.violation for step in self.steps):
            violation = violation or self.check(self)
            if violation:
                self.steps[-1] = replace(self.steps[-1], violation=violation)

    def _amend(self) -> None:
        """A warp has ended: that alone may break an invariant, and belongs to the last step."""
        if not self.steps:
            return
        last = replace(self.steps[-1], changes=self.steps[-1].changes + tuple(self._changes))
        self._changes = []
        if not any(step.violation for step in self.steps):
            last = replace(last, violation=self.check(self))
        self.steps[-1] = last


@dataclass(frozen=True)
class Mutation:
    """A line of the kernel, broken.

    Attributes:
        name: how the learner chooses it.
        line: the line as shipped.
        instead: the line that runs in its place; empty where it is left out.
        slow: a line after which warps are delayed, so that an order that breaks something is found soon.
        costs: True where the result stays right and only the sectors grow.
    """

    name: str
    line: str
    instead: str
    slow: str = ""
    costs: bool = False


@dataclass(frozen=True)
class Listing:
    """Lines of a shipped source: (line number, text without spaces around it, depth of its indentation)."""

    file: str
    lines: tuple[tuple[int, str, int], ...]


def listing(file: str, *spans: tuple[str, str]) -> Listing:
    """Lines of a kernel, read from the source that runs.

    Args:
        file: path within the package.
        spans: first and last line of each part, as they begin, without spaces before; the first match after the part
            before it counts.

    Raises:
        LookupError: a line is not in the file (any more).
    """
    source = (PACKAGE_ROOT / file).read_text(encoding="utf-8").splitlines()
    found: list[tuple[int, str, int]] = []
    at = 0
    for first, last in spans:
        begin = next((n for n in range(at, len(source)) if source[n].strip().startswith(first)), None)
        if begin is None:
            raise LookupError(f"{file} has no line that begins with {first!r}")
        end = next((n for n in range(begin, len(source)) if source[n].strip().startswith(last)), None)
        if end is None:
            raise LookupError(f"{file} has no line that begins with {last!r}")
        for number in range(begin, end + 1):
            text = source[number].strip()
            if text and not text.startswith(("//", "#")):
                found.append((number + 1, text, (len(source[number]) - len(source[number].lstrip())) // 4))
        at = end + 1
    return Listing(file, tuple(found))


@dataclass(frozen=True)
class Recorded:
    """A run of a mechanism, all steps of it.

    Attributes:
        mechanism: its name.
        broken: the name of the broken line, or None.
        listings: the source that it runs.
        mutation: the broken line.
        steps: in the order in which they ran.
        arrays: by name, as they are at the end.
        first: the cells of each array before the first step.
        schedules: orders of the warps that were tried, and in how many of them an invariant was violated.
        watched: how the values of each shown register read.
        result: what the mechanism made, by name, for comparison with the library.
        about: one sentence about the example.
    """

    mechanism: str
    broken: str | None
    listings: tuple[Listing, ...]
    mutation: Mutation | None
    steps: tuple[Step, ...]
    arrays: dict[str, Array]
    first: dict[str, Any]
    schedules: tuple[int, int]
    watched: dict[str, Callable[[Any], str]]
    result: dict[str, Any]
    about: str

    @property
    def source(self) -> list[tuple[int, str, int]]:
        """The lines of all listings: number, text, depth."""
        return [line for each in self.listings for line in each.lines]

    @property
    def violation(self) -> tuple[int, Violation] | None:
        """The step, from 0, at which an invariant is violated first, and what is violated."""
        for number, step in enumerate(self.steps):
            if step.violation:
                return number, step.violation
        return None

    @property
    def sectors(self) -> dict[str, int]:
        """Sectors by kind of access over the whole run: "load", "store" and "atomic"."""
        sums = {"load": 0, "store": 0, "atomic": 0}
        for step in self.steps:
            for access in step.accesses:
                sums[access.kind] += len(access.sectors)
        return sums

    def memory(self, number: int) -> dict[str, Any]:
        """All cells after step ``number``; -1 gives those before the first step.

        Raises:
            IndexError: there is no such step.
        """
        if not -1 <= number < len(self.steps):
            raise IndexError(f"steps are numbered from 0 to {len(self.steps) - 1} (got {number})")
        cells = {
            name: values if self.arrays[name].fixed else list(values) for name, values in self.first.items()
        }
        for step in self.steps[: number + 1]:
            for change in step.changes:
                cells[change.array][change.cell] = change.after
        return cells
