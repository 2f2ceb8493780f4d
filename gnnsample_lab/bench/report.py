"""Recorded suites as tables, the paper's value beside the measured one, and which targets are met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnsample_lab.files import read_json, reading
from gnnsample_lab.resources import resource_path

from . import report_data, targets
from .environment import FORMAT


@dataclass(frozen=True)
class Table:
    """A title, the columns' names, rows of cells (text already), and lines to print below."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Aligned columns for a terminal."""
        widths = [max(len(row[i]) for row in (self.header, *self.rows)) for i in range(len(self.header))]
        lines = [
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True))
            for row in (self.header, *self.rows)
        ]
        return "\n".join([self.title, lines[0], "-" * len(lines[0]), *lines[1:], *self.notes])

    def markdown(self) -> str:
        """A Markdown table under its title."""
        lines = [self.header, tuple("---:" if i else "---" for i in range(len(self.header))), *self.rows]
        table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
        return "\n".join([f"**{self.title}**", "", *table, *(f"\n{note}" for note in self.notes)])


def load(folder: Path | str | None = None) -> dict[str, dict[str, Any]]:
    """Records by file name without ending, from ``folder`` or the ``data/measured`` that was shipped.

    Raises:
        CorruptDataError: (a ValueError) a file is damaged, lacks what its tables show, or is from a newer version; the
            message names it.
    """
    if folder is None:
        try:
            folder = resource_path("data/measured")
        except FileNotFoundError:
            return {}
    found = {}
    for path in sorted(Path(folder).glob("*.json")):
        record = read_json(path, object)
        if not isinstance(record, dict) or "suite" not in record:
            continue
        with reading(path, "a benchmark record"):
            if record.get("format", 0) > FORMAT:
                raise ValueError(f"it has format {record['format']}, this library reads up to {FORMAT}")
            text(record)  # whoever shows it later would not know the file
        found[path.stem] = record
    return found


Cell = Callable[[dict[str, Any]], Any]


def _number(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ")
    if value >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if value >= 20 else f"{value:.2f}"


def _work(row: dict[str, Any]) -> str:
    return f"{row['batch_size']} x {row['fanout']}, {row['hops']} hops"


def _by(group: str, key: str) -> Cell:
    return lambda row: row[group].get(key)


def _paper_hop(record: dict[str, Any], key: str) -> Cell:
    # The paper's numbers belong to its own graph and its twin; beside another graph they would mislead.
    hops = {row["hop"]: row for row in record.get("paper", {}).get("rows", [])}
    return lambda row: hops.get(row["hop"], {}).get(key) if "products" in row["graph"] else None


def _columns(record: dict[str, Any]) -> dict[str, Cell]:
    graph: dict[str, Cell] = {"graph": lambda row: title_of(record, row["graph"])}
    work: dict[str, Cell] = {**graph, "batch x fanout": _work}
    suite = record["suite"]
    if suite == "pgsampler-table1":
        return {
            **graph, "hop": lambda r: r["hop"], "workload": lambda r: r["workload"],
            "(paper)": _paper_hop(record, "workload"),
            "pre us": lambda r: r["pre_us"], "(paper) ": _paper_hop(record, "pre_us"),
            "kernel us": lambda r: r["kernel_us"],
            "(paper)  ": _paper_hop(record, "kernel_us"), "% of copy bandwidth": lambda r: r["copy_percent"],
            "(paper: % of peak)": _paper_hop(record, "mem_percent"),
        }  # fmt: skip
    if suite == "pgsampler-fig8":
        return {
            **work, "block-bsp us": _by("kernel_us", "block-bsp"), "persistent us": _by("kernel_us",
            "persistent"),
            "tile us": _by("kernel_us", "persistent-tile"), "persistent x": _by("speedup", "persistent"),
            "tile x": _by("speedup", "persistent-tile"),
        }  # fmt: skip
    if suite == "pgsampler-fig9":
        return {
            **work, "block-bsp us": _by("wall_us", "block-bsp"), "persistent us": _by("wall_us",
            "persistent"),
            "best us": _by("wall_us", "best"), "best": lambda r: r["best_strategy"],
            "persistent x": _by("speedup", "persistent"),
            "best, same pick x": _by("speedup", "best same pick"), "best x": _by("speedup", "best"),
        }  # fmt: skip
    if suite == "pgsampler-table3":
        return {
            **work, "system of the setting": lambda r: r["system"], "paper x": lambda r: r["paper_speedup"],
            "persistent x": _by("speedup", "persistent"), "tile x": _by("speedup", "persistent-tile"),
            "turbo-bsp x": _by("speedup", "turbo-bsp"), "block-bsp us": _by("kernel_us", "block-bsp"),
        }  # fmt: skip
    if suite == "pgsampler-fig10":
        return {
            **work, "fused-static us": _by("kernel_us", "fused-static"), "persistent us": _by("kernel_us",
            "persistent"),
            "persistent x": _by("speedup", "persistent"),
        }  # fmt: skip
    if suite == "sampling-floor":
        ladder = list(record["rows"][0]["ratio"]) if record["rows"] else []
        return {
            **work, "floor us": lambda r: r["floor_us"], "bound us": lambda r: r["bound_us"],
            **{f"{name} x": _by("ratio", name) for name in ladder}, "best x": lambda r: r["best_ratio"],
        }  # fmt: skip
    if suite == "whole-process":
        return {
            **work, "block-bsp us": lambda r: r["baseline_us"], "alone us": lambda r: r["alone_us"],
            "by": lambda r: r["alone_strategy"], "32 together, each us": lambda r: r["fused32_us"],
        }  # fmt: skip
    if suite == "fusing":
        return {
            **work, "strategy": lambda r: r["strategy"], "in a call": lambda r: r["in_a_call"],
            "one by one us": lambda r: r["one_by_one_us"],
            **{
                f"{n} a launch us": _by("launches_of_us", str(n))
                for n in sorted({int(n) for row in record["rows"] for n in row["launches_of_us"]})
            },
            "begins with": lambda r: r["begin"], "keeps": lambda r: r["chosen"], "us": lambda r: r["chosen_us"],
            "x": lambda r: r["ratio"],
        }  # fmt: skip
    if suite == "papers100m-rmat":
        return {
            **work, "strategy": lambda r: r["strategy"], "in a call": lambda r: r["fused"],
            "each us": lambda r: r["wall_us"],
            "scratch MiB": lambda r: r["scratch_bytes"] / 2**20,
            "limit MiB": lambda r: r["scratch_limit_bytes"] / 2**20,
        }  # fmt: skip
    if suite == "cpu":
        return {
            **work, "pick": lambda r: r["pick"], "threads": lambda r: r["threads"],
            "ms": lambda r: r["wall_us"] / 1e3,
            "million edges/s": lambda r: r["edges_per_s"] / 1e6,
        }  # fmt: skip
    if suite == "explorers":
        return {
            **graph, "explorer": lambda r: r["explorer"], "control": lambda r: r["trait"],
            "device": lambda r: r["device"],
            "median ms": lambda r: r["median_ms"], "worst ms": lambda r: r["worst_ms"],
        }  # fmt: skip
    if suite == "traces":
        return {
            **graph, "strategy": lambda r: r["strategy"], "pick": lambda r: r["pick"],
            "tasks": lambda r: r["tasks"],
            "lost": lambda r: r["lost"], "total us": lambda r: r["total_us"],
            "KiB": lambda r: r["file_bytes"] / 1024,
        }  # fmt: skip
    return report_data.columns(record, title_of)


def title_of(record: dict[str, Any], name: str) -> str:
    """The graph's title, which says when it is synthetic."""
    return record.get("graphs", {}).get(name, {}).get("title", name)


def origin(record: dict[str, Any]) -> str:
    """Where, with what and from which commit a record comes."""
    at = record["environment"]
    gpu = at["gpu"]
    where = (
        f"{gpu['name']}, driver {gpu['driver']}, CuPy {gpu['cupy']}"
        if gpu
        else f"{at['cpu']}, {at['cpu_cores']} cores"
    )
    commit = (at["commit"] or "unknown")[:12] + (" with changes" if at["modified"] else "")
    quick = ", quick run" if record["settings"].get("quick") else ""
    return f"measured on {where}, Python {at['python']}, commit {commit}, {at['date'][:10]}{quick}"


def _notes(record: dict[str, Any]) -> list[str]:
    paper, notes = record.get("paper", {}), list(record.get("notes", []))
    if record["suite"] == "pgsampler-fig8":
        notes.append(
            f"Paper: up to {paper['best']} x; on average 1.19 x to 1.47 x per graph ({paper['source']})."
        )
        for cross in record.get("crossovers", []):
            at = cross["slower_from_batch"]
            end = "faster at every batch" if at is None else f"slower from {at} seeds"
            notes.append(
                f"persistent, {cross['graph']}, fanout {cross['fanout']}, {cross['hops']} hops: {end}."
            )
    elif record["suite"] == "pgsampler-fig9":
        notes.append(f"Paper: up to {paper['best']} x ({paper['source']}).")
    elif record["suite"] == "pgsampler-fig10":
        notes.append(f"Paper: {paper['finding']}.")
    elif record["suite"] == "whole-process":
        times = f"{paper['alone_us']:.0f} us alone, {paper['fused32_us']:.0f} us each with 32 in a call"
        notes.append(f"cuGraph, 1 024 x (10, 10, 10): {times} ({paper['what']}).")
    elif found := report_data.notes(record):
        notes += found
    elif paper.get("source"):
        notes.append(f"Paper: {paper['source']}.")
    return notes


def tables(record: dict[str, Any]) -> list[Table]:
    """The results, and the targets where the suite has any."""
    columns = _columns(record)
    found = []
    if columns and record["rows"]:
        rows = tuple(tuple(_number(cell(row)) for cell in columns.values()) for row in record["rows"])
        found.append(
            Table(f"{record['suite']}: {record['about']}", tuple(columns), rows, tuple(_notes(record)))
        )
    wanted = targets.of(record)
    if wanted:
        found.append(targets_table(f"{record['suite']}: targets", wanted))
    return found


def targets_table(title: str, wanted: Iterable[targets.Target]) -> Table:
    """Targets, what was measured where, and whether they are met."""
    rows = tuple(
        (t.what, f"{t.target} {t.unit}", f"{_number(t.measured)} {t.unit}", "yes" if t.met else "NO", t.where)
        for t in wanted
    )
    return Table(title, ("", "target", "measured", "met", "where"), rows)


def text(record: dict[str, Any]) -> str:
    """One record for a terminal."""
    verified = ", ".join(
        f"{key} {value}" for key, value in record["verification"].items() if isinstance(value, int)
    )
    return "\n\n".join(
        [*(table.text() for table in tables(record)), f"{origin(record)}; verified: {verified}"]
    )


def markdown(records: dict[str, dict[str, Any]], suites: Sequence[str] | None = None) -> str:
    """Records as Markdown: first the targets of all, then a table per suite with its origin."""
    chosen = [record for record in records.values() if suites is None or record["suite"] in suites]
    if not chosen:
        return "Nothing is recorded yet."
    wanted = [target for record in chosen for target in targets.of(record)]
    parts = [targets_table("Targets", wanted).markdown()] if wanted else []
    for record in chosen:
        results = [table for table in tables(record) if not table.title.endswith(": targets")]
        parts += [f"{table.markdown()}\n\n*{origin(record)}*" for table in results]
    return "\n\n".join(parts)
