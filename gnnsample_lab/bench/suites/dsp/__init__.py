"""DSP's evaluation of sampling from a graph in parts, and the methods that were put beside its own."""

from __future__ import annotations

from gnnsample_lab.bench.suite import WORK, Suite

from . import targets

SUITES = (
    Suite(
        "ladder", "suites.dsp.ladder.ladder",
        "us of a mini-batch from a graph in parts: every method, ranks at once, against one with the whole graph",
        columns={
            "parts": lambda row: f"{row['world']} {row['partition']}", **WORK,
            "draws": lambda row: "with replacement" if row["replace"] else "without", "method": "method",
            "cache %": "budget_percent", "saved %": lambda row: _percent(row, "saved_share"),
            "remote %": lambda row: _percent(row, "remote_share"), "rows": "rows", "us": "us", "p10": "p10",
            "p90": "p90", "x one": "x_one", "us, many": "many_us", "x one, many": "x_many",
            "MB read": lambda row: None if row.get("volume") is None else row["volume"] / 1e6,
            "failed": "error",
        },
        targets=targets.ladder, needs_gpu=False, last=True,
    ),
    Suite(
        "rank-features", "suites.dsp.features.features",
        "GB/s of feature rows between ranks by transport, all ranks at once, beside the copy of a peer's memory",
        columns={
            "rows of": "what", "transport": "transport", "bytes of a row": "row_bytes", "us": "us", "GB/s": "gbps",
            "of the copy": "of_copy",
        },
        targets=targets.features, needs_gpu=False, last=True,
    ),
)  # fmt: skip


def _percent(row: dict[str, object], name: str) -> float | None:
    value = row.get(name)
    return None if value is None else 100 * float(value)  # type: ignore[arg-type]
