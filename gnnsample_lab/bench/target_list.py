"""The file ``data/measured/TARGETS.md``: every target of every record, what was measured for it, and whether it is met.

Each target is judged by :func:`targets_of`, as ``gnnsample-lab bench report`` judges it; the file shows nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from . import report
from .record import card_of, states
from .suite import Record, markdown_table
from .suites import SUITES, targets_of
from .targets import Target

PAPERS = {
    "pgsampler": "PGSampler", "fastgl": "FastGL", "gnnlab": "GNNLab", "nextdoor": "NextDoor", "dsp": "DSP",
}  # fmt: skip
"""Folder of a paper's suites -> the heading that they stand under."""
OURS = "Ours"
HEADER = ("suite", "target", "asked for", "measured", "met", "where", "recorded on", "at", "run")
BEGIN = "# Targets\n\n`gnnsample-lab bench report --targets "
"""How every such file begins."""
_INTRODUCTION = f"""\
{BEGIN}data/measured/TARGETS.md` writes this file from the records beside it. Nothing in
it is edited by hand.

A target is a limit that a measured number should keep: a claim of a paper, a share of what the hardware allows, or a
time. The suites of `gnnsample-lab bench` declare their targets, and their records say what was measured. The row that
is farthest from the limit decides, or the best row where the target says so; "where" names it. x: a ratio.

**NO**: the target is missed. What bounds it, as far as that is known, and what was tried stand in [NOTES.md](NOTES.md)
under the target's subject. *no: an H200's*: the limit is a time that was chosen for an H200, and the record is of
another card, so that this is no failure. In each table the missed targets come first.

Under the name of a paper stand all suites about its subject, with targets of ours among them. Whether the papers'
claims were reproduced is another question, which the [README](../../README.md#measured) answers. "At" is the commit
that was measured. *Quick*: a run of fewer settings and knobs."""


class _Group(NamedTuple):
    """A heading and its targets, each with the record that it is of, the missed ones first."""

    name: str
    found: list[tuple[Record, Target]]

    def table(self) -> str:
        return "\n".join(markdown_table(HEADER, (_line(record, target) for record, target in self.found)))


def _heading(suite: str) -> str:
    """The paper whose suites a suite stands among."""
    room = SUITES[suite].path.removeprefix("suites.").partition(".")[0]
    return PAPERS.get(room, OURS)


def _state(target: Target) -> int:
    """0 for a missed target, 1 for one that only the card of its limit would have to meet, 2 for one that is met."""
    return 2 if target.met else int(bool(target.card))


def _groups(records: Iterable[Record]) -> list[_Group]:
    """The targets of ``records`` under their headings, those of papers first, in the order of the suites."""
    order = {name: place for place, name in enumerate(SUITES)}
    chosen = sorted((r for r in records if r["suite"] in order), key=lambda r: order[r["suite"]])
    groups: dict[str, list[tuple[Record, Target]]] = {name: [] for name in (*PAPERS.values(), OURS)}
    for record in chosen:
        groups[_heading(record["suite"])] += [(record, target) for target in targets_of(record)]
    return [
        _Group(name, sorted(found, key=lambda each: _state(each[1])))
        for name, found in groups.items()
        if found
    ]


def _line(record: Record, target: Target) -> tuple[str, ...]:
    (what, limit, measured, met, where) = report.targets_table("", [target]).rows[0]
    commits = ", ".join(sorted({commit for commit, _ in states(record)}))
    quick = "quick" if record["settings"].get("quick") else "full"
    return (
        f"`{record['suite']}`", what, limit.strip(), measured.strip(), "**NO**" if met == "NO" else met, where,
        card_of(record), commits, quick,
    )  # fmt: skip


def _counts(groups: Iterable[_Group]) -> str:
    """How many targets of each group are met, and how many are not."""
    lines = []
    total = [0, 0, 0]
    for group in groups:
        states_ = [_state(target) for _, target in group.found]
        counts = [states_.count(state) for state in (2, 0, 1)]
        total = [a + b for a, b in zip(total, counts, strict=True)]
        lines.append((group.name, *map(str, (len(states_), *counts))))
    header = ("", "targets", "met", "missed", "not met, of another card")
    return "\n".join(markdown_table(header, [*lines, ("all", *map(str, (sum(total), *total)))]))


def markdown(records: Mapping[str, Record]) -> str:
    """The file's text.

    Args:
        records: by name, as :func:`report.load` has them.
    """
    groups = _groups(records.values())
    parts = [_INTRODUCTION, _counts(groups)]
    parts += [f"## {group.name}\n\n{group.table()}" for group in groups]
    return "\n\n".join(parts) + "\n"
