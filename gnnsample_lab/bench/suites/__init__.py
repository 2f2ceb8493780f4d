"""The suites: each paper's in a folder of its own, and what is measured beside the papers.

A suite is declared once, where its function stands: name, function, columns, published values, targets. Declarations
import nothing heavy; the module of a suite's function is imported when the suite runs.
"""

from __future__ import annotations

from gnnsample_lab.bench import floors, sanitizer
from gnnsample_lab.bench.suite import AS_LEFT, WORK, Record, Spread, Suite
from gnnsample_lab.bench.targets import Target, at_least, at_most

from . import dsp, fastgl, gnnlab, nextdoor, path, pgsampler, twins
from .cells import SEEDS_A_BATCH, WORK_A_BATCH


def _cpu(record: Record) -> list[Target]:
    rows = [row for row in record["rows"] if row["graph"] == "arxiv-like" and row["pick"] == "floyd"]
    points = [
        (row["edges_per_s"] / 1e6, f"{row['threads']} threads of {record['environment']['cpu']}")
        for row in rows
    ]
    return at_least("two CPU cores, 1 024 seeds, 3 hops", 10.0, "million edges/s", points)


def _explorers(record: Record) -> list[Target]:
    points = [(row["median_ms"], f"{row['explorer']}.{row['trait']}") for row in record["rows"]]
    if record["settings"]["device"] == "cpu":
        return at_most("trait change to finished figure, without a GPU", 1000.0, "ms", points)
    sampling = [p for p in points if p[1].startswith(("SampleExplorer", "WorkloadExplorer", "QueueExplorer"))]
    return at_most("trait change to finished figure, sampling explorers, with a GPU", 150.0, "ms", sampling)


def _sectors(record: Record) -> list[Target]:
    """Loads and stores touch the sectors that the twins count. Atomics may be split or merged on their way."""
    found: list[Target] = []
    for kind in ("load", "store"):
        points = [
            (100.0 * (row["counted"] == row["measured"]), f"{row['mechanism']}, {row['array']}")
            for row in record["rows"]
            if row["kind"] == kind
        ]
        found += at_least(f"{kind}s whose sectors are those of the twins", 100.0, "%", points)
    return found


_GENERAL = (
    Suite(
        "traces", "suites.recordings.traces", "records measured traces of every strategy (.npz)",
        columns={
            "strategy": "strategy", "pick": "pick", "tasks": "tasks", "lost": "lost", "total us": "total_us",
            "KiB": lambda row: row["file_bytes"] / 1024,
        },
    ),
    Suite(
        "cpu", "suites.host.cpu", "sampled edges per second on two CPU cores; needs no GPU", needs_gpu=False,
        columns={
            **WORK, "pick": "pick", "threads": "threads", "us": Spread("wall_us"),
            "million edges/s": lambda row: row["edges_per_s"] / 1e6,
        },
        targets=_cpu,
    ),
    Suite(
        "explorers", "suites.explorers.explorers", "trait change to finished figure; needs the widgets, no GPU",
        columns={
            "explorer": "explorer", "control": "trait", "device": "device", "median ms": "median_ms",
            "worst ms": "worst_ms", "first explorer's worst ms": "new_ms",
        },
        targets=_explorers, needs_gpu=False, l2=AS_LEFT, takes_one=True,
    ),
    Suite(
        "systems", "suites.side_by_side.side_by_side",
        "every system on the same graphs, model and capacity, one GPU; needs no GPU",
        columns={
            "system": "system", "by": "source", "cache": "cache", "sample": "sample", "overlap": "executor",
            **SEEDS_A_BATCH, **WORK_A_BATCH, "sample ms": "sample_ms", "reorder ms": "reorder_ms",
            "extract ms": "extract_ms", "train ms": "train_ms", "hit %": "hit_percent", "reused %": "reused_percent",
            "MB a batch": "mb_per_batch", "step ms": "step_ms", "epoch s": "epoch_s", "x dgl": "speedup",
            "peak MB": "peak_mb",
        },
        needs_gpu=False, l2=AS_LEFT,
    ),
    Suite(
        "step-sectors", "step_sectors.sectors", "sectors of the stepper's instructions, counted and by Nsight Compute",
        columns={
            "mechanism": "mechanism", "broken": "broken", "kind": "kind", "array": "array", "lanes": "lanes",
            "counted": "counted", "measured": "measured",
        },
        targets=_sectors, takes_graphs=False,
    ),
    Suite(
        "verify", "suites.recordings.hashes", "every configuration and strategy against the CPU twin; records hashes",
        takes_graphs=False, last=True, file="sample_hashes.json",
    ),
)  # fmt: skip

_ALL = (
    *floors.SUITES, *pgsampler.SUITES, *_GENERAL, *fastgl.SUITES, *gnnlab.SUITES, *nextdoor.SUITES, *twins.SUITES,
    *dsp.SUITES, *path.SUITES, *sanitizer.SUITES,
)  # fmt: skip
SUITES: dict[str, Suite] = {suite.name: suite for suite in sorted(_ALL, key=lambda suite: suite.last)}
"""Name -> suite, in the order of ``bench all``: what matters most first, what takes most memory or time last."""


def targets_of(record: Record) -> list[Target]:
    """The targets that ``record`` says something about: one definition for runs and reports."""
    suite = SUITES.get(record["suite"])
    return suite.targets(record) if suite else []
