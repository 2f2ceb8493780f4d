"""compute-sanitizer over every family of kernels: what the record of ``bench sanitize`` shows and aims at."""

from __future__ import annotations

from gnnsample_lab.bench.suite import Record, Row, Suite
from gnnsample_lab.bench.targets import Target, at_least, at_most

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def shown(record: Record) -> list[Row]:
    """By source: kernels launched of all, launches, errors; then what the tools found elsewhere, such as in CuPy."""
    groups: dict[str, list[Row]] = {}
    for row in record["rows"]:
        groups.setdefault(row["kernel"].partition(":")[0], []).append(row)
    found = [
        {
            "source": source, "launched": f"{sum(row['launches'] > 0 for row in group)} of {len(group)}",
            "launches": sum(row["launches"] for row in group),
            **{name: sum(row[name] for row in group) for name in TOOLS},
        }
        for source, group in groups.items()
    ]  # fmt: skip
    ours = {name for row in record["rows"] for name in (row["kernel"], row["kernel"].partition(":")[2])}
    others = sorted({name for tool in record["tools"].values() for name in tool["errors"]} - ours)
    return found + [
        {
            "source": other, "launched": "not ours", "launches": None,
            **{name: record["tools"][name]["errors"].get(other, 0) for name in TOOLS},
        }
        for other in others
    ]  # fmt: skip


def targets(record: Record) -> list[Target]:
    """No error in any kernel of ours, under any tool, and every tool saw the program end."""
    worst = [(float(row[name]), f"{name}, {row['kernel']}") for row in record["rows"] for name in TOOLS]
    ended = [(float(tool["ended"] and not tool["failed"]), name) for name, tool in record["tools"].items()]
    return [
        *at_most("errors in a kernel", 0.0, "", worst),
        *at_least("tools under which every case ran to its end", 1.0, "", ended),
    ]


def notes(record: Record) -> list[str]:
    """Each tool's own words, what failed, and the kernels that nothing launched."""
    said = [f"{name}: {tool['summary']}." for name, tool in record["tools"].items()]
    failed = [f"Not run to its end: {name} ({why})." for name, why in record["failed"].items()]
    idle = [row["kernel"] for row in record["rows"] if not row["launches"]]
    return [*said, *failed, *([f"Never launched here: {', '.join(idle)}."] if idle else [])]


SUITES = (
    Suite(
        "sanitize", "sanitizer.run.sanitize",
        "compute-sanitizer's four tools over every family of kernels; needs compute-sanitizer",
        columns={
            "source": "source", "kernels launched": "launched", "launches": "launches",
            **{tool: tool for tool in TOOLS},
        },
        targets=targets, notes=notes, shown=shown, takes_graphs=False, last=True, file="sanitizer.json",
    ),
)  # fmt: skip
