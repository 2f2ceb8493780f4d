"""Which records were made by other source than that of this tree: what ``gnnsample-lab bench --stale`` lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import source
from .record import commit_of, states
from .suites import SUITES

UNKNOWN = "the record holds no hash of its source"
QUICK = "of this source, but a quick run: fewer settings than the full one"


@dataclass(frozen=True)
class Stale:
    """A suite to run again, or for the first time.

    Attributes:
        suite: its name.
        record: name of the file without ending; empty where there is none.
        commit: where it was recorded.
        why: what differs.
    """

    suite: str
    record: str
    commit: str
    why: str


def reason(record: Mapping[str, Any], today: Mapping[str, Any]) -> str:
    """Why a record is stale beside the source of today's tree, as ``source.of_function`` has it; empty if it is not."""
    known = states(record)
    if any(not digest for _, digest in known):
        return UNKNOWN
    if {digest for _, digest in known} == {today["hash"]}:
        return ""
    old, new = record.get("source", {}).get("layers", {}), today["layers"]
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return "changed since: " + (", ".join(changed) or "the source of some of its graphs")


def stale(records: Mapping[str, Mapping[str, Any]]) -> list[Stale]:
    """Suites to record: those whose records other source has made, quick ones, and those without a record.

    In the order of ``bench all``.
    """
    found = []
    for name, suite in SUITES.items():
        mine = {file: record for file, record in records.items() if record["suite"] == name}
        if not mine:
            found.append(Stale(name, "", "", "never recorded"))
            continue
        today = source.of_function(suite.path)
        for file, record in mine.items():
            why = reason(record, today) or (QUICK if record["settings"].get("quick") else "")
            if why:
                found.append(Stale(name, file, commit_of(record["environment"]), why))
    return found


def listed(found: Iterable[Stale]) -> str:
    """The list for a terminal, and the command that runs these suites."""
    rows = list(found)
    if not rows:
        return "Every record was made in full by the source of this tree."
    lines = [
        f"{each.suite:20} "
        + (f"{each.record}.json, recorded at {each.commit}: {each.why}" if each.record else each.why)
        for each in rows
    ]
    names = " ".join(dict.fromkeys(each.suite for each in rows))
    return "\n".join([*lines, "", f"{len(rows)} to record: gnnsample-lab bench {names}"])
