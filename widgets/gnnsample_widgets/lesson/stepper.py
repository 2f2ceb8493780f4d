"""A stepper: the lanes of a warp go through a mechanism line by line, forwards and backwards, whole or broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import ipywidgets
import traitlets

from gnnsample_lab import checks
from gnnsample_lab.steps.base import LANES, Recorded, Step
from gnnsample_lab.steps.runs import MECHANISMS, mutations, run

from ..graphs import resolve_graph
from ..shell.controls import STATIC
from ..shell.store import Stored, close_all

SHIPPED = "nothing: as shipped"
"""What the choice of broken lines says for the kernel as it is."""


class StepStore(ipywidgets.Widget):
    """A run as JSON, the step that is shown, and the broken line."""

    data = traitlets.Unicode("{}").tag(sync=True)
    at = traitlets.Int(0).tag(sync=True)
    choice = traitlets.Unicode(SHIPPED).tag(sync=True)


class Stepper(Stored):
    """The lanes of a warp go through a mechanism: code, registers, memory, and the 32-byte sectors of each line.

    The lines are those of the shipped kernel; they run on the CPU, in :mod:`gnnsample_lab.steps`, on a small example,
    and every step is recorded, so that going back costs nothing. A line may be broken: then the run shows the first
    invariant that does not hold, at its step.

    Args:
        mechanism: ``"claim a slot"``, ``"insert into Fused-Map"``, ``"gather a transit's list"`` or ``"grow a
            frontier"``.
        broken: the name of a line to break, one of :attr:`options`; None for the kernel as shipped.
        graph: a graph or a dataset name that the example is taken from; Zachary's karate club when None.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, or no such mechanism or line, or the graph has no
            vertex that the example could use.
    """

    _esm = (STATIC / "stepper.js").read_text(encoding="utf-8")
    _css = (STATIC / "stepper.css").read_text(encoding="utf-8")
    store_type = StepStore

    data = traitlets.Unicode("{}", help="the run as JSON, for the page").tag(live=True)
    at = traitlets.Int(0, help="lines that have run; 0 is before the first one").tag(live=True)
    choice = traitlets.Unicode(SHIPPED, help="the broken line as the page shows it").tag(live=True)

    def __init__(self, mechanism: str, *, broken: str | None = None, graph: Any = None) -> None:
        self.mechanism = checks.choice("mechanism", mechanism, MECHANISMS)
        self.options = tuple(each.name for each in mutations(self.mechanism))
        if broken is not None:
            checks.choice("broken", broken, self.options)
        self._graph = None if graph is None else resolve_graph(graph)[0]
        self._runs: dict[str | None, Recorded] = {}
        super().__init__(data=self._page(self._of(broken)), choice=broken or SHIPPED)
        self.observe(self._chosen, names="choice")

    # -- state --

    @property
    def broken(self) -> str | None:
        """The line that is broken, one of :attr:`options`, or None; assigning begins another run."""
        return None if self.choice == SHIPPED else self.choice

    @broken.setter
    def broken(self, name: str | None) -> None:
        if name is not None:
            checks.choice("broken", name, self.options)
        self.choice = name or SHIPPED

    @property
    def run(self) -> Recorded:
        """The run that is shown."""
        return self._of(self.broken)

    @property
    def step(self) -> Step | None:
        """The line that ran last; None before the first one."""
        return self.run.steps[self.at - 1] if self.at else None

    @property
    def memory(self) -> dict[str, list[int]]:
        """The cells of every array as they are now."""
        return self.run.memory(self.at - 1)

    def forward(self, lines: int = 1) -> None:
        """Run more lines, up to the last one.

        Args:
            lines: how many, at least 0.

        Raises:
            TypeError, ValueError: not a whole number of at least 0.
        """
        self.at = min(self.at + checks.whole("lines", lines), len(self.run.steps))

    def back(self, lines: int = 1) -> None:
        """Undo lines, up to the first one.

        Args:
            lines: how many, at least 0.

        Raises:
            TypeError, ValueError: not a whole number of at least 0.
        """
        self.at = max(self.at - checks.whole("lines", lines), 0)

    def to_failure(self) -> bool:
        """Go to the step at which an invariant fails; False where none does."""
        found = self.run.violation
        if found:
            self.at = found[0] + 1
        return bool(found)

    @traitlets.validate("at")
    def _in_run(self, proposal: dict[str, Any]) -> int:
        value = proposal["value"]
        most = len(json.loads(self.data).get("steps", ()))
        if isinstance(value, bool) or not 0 <= value <= most:
            raise traitlets.TraitError(f"at must be from 0 to {most} (got {value})")
        return int(value)

    @traitlets.validate("choice")
    def _known(self, proposal: dict[str, Any]) -> str:
        if proposal["value"] not in (SHIPPED, *self.options):
            raise traitlets.TraitError(
                f"choice must be one of {[SHIPPED, *self.options]} (got {proposal['value']!r})"
            )
        return str(proposal["value"])

    def _chosen(self, _: dict[str, Any]) -> None:
        with self.store.hold_sync():
            self.at = 0
            self.data = self._page(self.run)

    def _of(self, broken: str | None) -> Recorded:
        if broken not in self._runs:
            self._runs[broken] = run(self.mechanism, broken, self._graph)
        return self._runs[broken]

    # -- showing --

    def verdict(self) -> str:
        """What the run shows up to the present step, in a sentence or two."""
        page = json.loads(self.data)
        if page["fail"] and self.at > page["fail"]["step"]:
            return (
                f"{page['fail']['invariant']} – no longer. {page['fail']['what']}. {page['fail']['orders']}"
            )
        return str(page["end"] if self.at == len(page["steps"]) and not page["fail"] else page["hint"])

    def _page(self, shown: Recorded) -> str:
        steps = [self._of_step(shown, step) for step in shown.steps]
        found = shown.violation
        tried, failed = shown.schedules
        orders = (
            f"Of {tried} orders of the warps that were tried, {failed} fail; this one fails earliest."
            if tried > 1
            else ""
        )
        # A broken run shows the same cells as the whole one, and more where it reaches for more.
        both = (shown, self._of(None))
        changed = {change.array for each in both for step in each.steps for change in step.changes}
        cells = _touched(*both)
        arrays = [
            {
                "name": array.name,
                "bytes": array.stride,
                "shared": array.shared,
                "fixed": array.name not in changed,
                "sectors": [list(group) for group in _by_sector(array, cells[array.name])],
                "first": {i: array.show(shown.first[array.name][i]) for i in cells[array.name]},
            }
            for array in shown.arrays.values()
            if cells[array.name]
        ]
        page = {
            "mechanism": self.mechanism,
            "about": shown.about,
            "options": [SHIPPED, *self.options],
            "broken": asdict(shown.mutation) if shown.mutation else None,
            "files": [{"file": listing.file, "lines": listing.lines} for listing in shown.listings],
            "registers": list(shown.steps[0].registers),
            "arrays": arrays,
            "steps": steps,
            "fail": found
            and {
                "step": found[0],
                "invariant": found[1].invariant[0].upper() + found[1].invariant[1:],
                "what": found[1].what[0].upper() + found[1].what[1:],
                "orders": orders,
            },
            "hint": self._hint(shown),
            "end": self._end(shown),
        }
        return json.dumps(page, separators=(",", ":"))

    @staticmethod
    def _of_step(shown: Recorded, step: Step) -> dict[str, Any]:
        return {
            "w": step.warp,
            "l": step.line,
            "a": step.active,
            "r": [
                [None if v is None else shown.watched[name](v) for v in values]
                for name, values in step.registers.items()
            ],
            "m": [
                [each.kind, each.array, len(each.lanes), sorted(set(each.cells)), len(each.sectors)]
                for each in step.accesses
            ],
            "c": [[each.array, each.cell, shown.arrays[each.array].show(each.after)] for each in step.changes],
            "n": step.note,
        }  # fmt: skip

    def _hint(self, shown: Recorded) -> str:
        tried, _ = shown.schedules
        if shown.violation:
            return "One line is broken. Step on until an invariant fails: which one, and why there?"
        if shown.mutation:
            return "One line is broken. Step on to the end: is the result wrong, or is it only dearer?"
        return "As shipped. " + (
            f"All invariants hold, in this order of the warps and in the {tried - 1} others that were tried."
            if tried > 1
            else "All invariants hold."
        )

    def _end(self, shown: Recorded) -> str:
        if not shown.mutation:
            return self._hint(shown)
        whole = self._of(None)
        parts = [
            f"{name} {mine} instead of {theirs} sectors"
            for name, mine, theirs in _compared(_sectors(shown), _sectors(whole))
        ] + [
            f"{mine} instead of {theirs} atomic operations"
            for mine, theirs in [(_atomics(shown), _atomics(whole))]
            if mine != theirs
        ]
        compared = f"Compared with the line as shipped: {', '.join(parts) or 'no difference in sectors'}."
        if shown.mutation.costs:
            return f"The result is right all the same. {compared}"
        return f"On this example no invariant fails; on another graph one may. {compared}"

    def describe(self) -> str:
        """The step that is shown as plain text: what a page without widgets displays."""
        lines = [f"Stepper({self.mechanism!r}, broken={self.broken!r}): {self.run.about}"]
        step = self.step
        if step is None:
            lines.append(f"  before the first of {len(self.run.steps)} lines")
        else:
            text = self.run.source[step.line][1] if step.line >= 0 else ""
            lines.append(
                f"  line {self.at} of {len(self.run.steps)}, warp {step.warp}, "
                f"{step.active.bit_count()} of {LANES} lanes: {text}"
            )
            lines += [f"  {_said(each)}" for each in step.accesses]
        return "\n".join([*lines, f"  {self.verdict()}"])

    def __repr__(self) -> str:
        return self.describe()

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(*args, **kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if isinstance(data, dict):
            data["text/plain"] = self.describe()
        return bundle

    def close(self) -> None:
        """Take the stepper off its pages for good."""
        self.unobserve_all()
        close_all(self)


def _said(access: Any) -> str:
    where = f"{access.kind} {access.array}: {len(access.lanes)} lanes"
    return (
        f"{where}, {len(access.sectors)} sectors of 32 bytes" if access.sectors else f"{where}, shared memory"
    )


def _touched(*runs: Recorded) -> dict[str, list[int]]:
    """The cells of each array that lie in a sector that some step touches."""
    met: dict[str, set[int]] = {name: set() for name in runs[0].arrays}
    for step in (step for each in runs for step in each.steps):
        for access in step.accesses:
            met[access.array].update(runs[0].arrays[access.array].sector(cell) for cell in access.cells)
    cells: dict[str, list[int]] = {}
    for name, array in runs[0].arrays.items():
        # From the first cell that may lie in a sector to the last one.
        near = {
            cell
            for sector in met[name]
            for cell in range(
                (sector * 32 - array.base) // array.stride,
                (sector * 32 + 32 - array.base) // array.stride + 1,
            )
            if 0 <= cell < len(array.cells) and array.sector(cell) == sector
        }
        cells[name] = sorted(near)
    return cells


def _by_sector(array: Any, cells: list[int]) -> Iterator[list[int]]:
    group: list[int] = []
    for cell in cells:
        if group and array.sector(group[-1]) != array.sector(cell):
            yield group
            group = []
        group.append(cell)
    if group:
        yield group


def _sectors(shown: Recorded) -> dict[str, int]:
    sums: dict[str, int] = {}
    for step in shown.steps:
        for access in step.accesses:
            sums[access.array] = sums.get(access.array, 0) + len(access.sectors)
    return sums


def _atomics(shown: Recorded) -> int:
    return sum(len(each.lanes) for step in shown.steps for each in step.accesses if each.kind == "atomic")


def _compared(mine: dict[str, int], theirs: dict[str, int]) -> Iterator[tuple[str, int, int]]:
    for name in theirs:
        if mine.get(name, 0) != theirs[name]:
            yield name, mine.get(name, 0), theirs[name]
