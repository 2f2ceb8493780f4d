"""``lab.compare``: several systems on one graph, side by side."""

from __future__ import annotations

import copy
import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gnnsample_lab.checks import items
from gnnsample_lab.pipeline.records import TrainResult

from .table import System, find
from .train import train


@dataclass(frozen=True)
class Comparison:
    """Training runs of several systems; the first is what the others are compared with.

    Attributes:
        results: a run a system.
        notes: in what the runs differ besides their systems' ways.
    """

    results: tuple[TrainResult, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[TrainResult]:
        return iter(self.results)

    def __getitem__(self, system: str) -> TrainResult:
        """The run of the system of that name."""
        for result in self.results:
            if result.system == system:
                return result
        raise KeyError(system)

    @property
    def table(self) -> Any:
        """A pandas DataFrame, a row a system: its fastest epoch, and the speedup over the first system."""
        import pandas as pd

        base = self.results[0].steady.total_us
        rows = []
        for result in self.results:
            epoch = result.steady
            rows.append(
                {
                    "system": result.system,
                    "epoch_ms": epoch.total_us / 1e3,
                    "speedup": base / epoch.total_us,
                    **{f"{stage}_ms": us / 1e3 for stage, us in epoch.stage_us.items()},
                    "mb_moved": epoch.bytes_moved / 1e6,
                    "hit_rate": epoch.hit_rate,
                    "reused_rows": epoch.reused_rows,
                    "cache_ratio": result.cache_ratio,
                    "loss": result.losses[-1],
                    "accuracy": result.accuracy[-1] if result.accuracy else float("nan"),
                    "setup_ms": result.setup_us / 1e3,
                }
            )
        return pd.DataFrame(rows).set_index("system")

    def figure(self) -> Any:
        """Stage times of every system, a plotly figure (``figures.stage_breakdown``)."""
        from gnnsample_lab import figures

        return figures.stage_breakdown(list(self.results))

    def _repr_html_(self) -> str:
        told = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"{self.table.round(2).to_html()}{told}"

    def __str__(self) -> str:
        return "\n".join([str(self.table.round(2)), *self.notes])


def compare(
    graph: Any, systems: Sequence[str | System] = ("dgl", "gnnlab", "fastgl", "lab"), model: Any = "gcn", **options: Any
) -> Comparison:  # fmt: skip
    """Train the same model with several systems, one after the other.

    Args:
        graph: as for :func:`~gnnsample_lab.systems.train.train`.
        systems: names of ``lab.systems()``; the first is the baseline of the table.
        model: as of ``lab.train``; a module of one's own stays as it is, and each system trains a copy.
        options: arguments of ``lab.train``; of several systems none may go on from a checkpoint. Without ``pick`` each
            system draws by its own rule: mini-batches have the same seeds and other samples, of which a note tells.
            Give ``epochs`` above 1 to compare times: the table shows each system's fastest epoch, and the first one
            compiles kernels and fills memory pools.

    Raises:
        TypeError, ValueError, LookupError: no such system, or an argument that ``lab.train`` refuses.
        RuntimeError: as ``lab.train``.
    """
    if isinstance(systems, (str, System)):
        systems = [systems]
    chosen = [
        find(system, "systems") for system in items("systems", systems, "names of systems")
    ]  # before the first is trained
    if not chosen:
        raise ValueError("systems must name at least one system (got an empty list)")
    for name in ("checkpoint", "resume"):
        if len(chosen) > 1 and options.get(name) is not None:
            raise ValueError(
                f"{name} must be None for several systems: each would go on where the one before it ended "
                f"(got {options[name]!r}); give it to lab.train"
            )
    results = tuple(train(graph, copy.deepcopy(model), system, **options) for system in chosen)
    by_walks = model == "pinsage" or options.get("sampler") is not None
    return Comparison(results, () if by_walks or options.get("pick") else _drawn_apart(chosen))


def _drawn_apart(systems: Sequence[System]) -> tuple[str, ...]:
    """A note of systems that draw by different rules: seeds are the same, samples are others."""
    by_rule: dict[str, list[str]] = {}
    for system in systems:
        by_rule.setdefault("trees, with replacement" if system.trees else system.pick, []).append(system.name)
    if len(by_rule) < 2:
        return ()
    told = "; ".join(f"{', '.join(names)}: {rule}" for rule, names in by_rule.items())
    return (
        f"systems draw by rules of their own ({told}): the same seeds, other samples; give pick for one rule",
    )
