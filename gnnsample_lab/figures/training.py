"""Training runs as figures: where an epoch's time goes, and what is learnt in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import plotly.graph_objects as go
from numpy.lib.stride_tricks import sliding_window_view

from gnnsample_lab import readable
from gnnsample_lab.figures import palette
from gnnsample_lab.figures.matching import byte_unit
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import finish, write_beside
from gnnsample_lab.readable import percent

STAGES = ("sample", "reorder", "extract", "train")
"""Stages of an epoch in the order in which a mini-batch passes them."""


class TrainRun(Protocol):
    """What the figures read of a :class:`gnnsample_lab.pipeline.records.TrainResult`."""

    @property
    def system(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def graph(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def origin(self) -> str: ...
    @property
    def losses(self) -> Sequence[float]: ...
    @property
    def batch_ids(self) -> Sequence[int]: ...
    @property
    def accuracy(self) -> Sequence[float]: ...
    @property
    def accuracy_split(self) -> str: ...
    @property
    def epochs(self) -> Sequence[Any]: ...
    @property
    def steady(self) -> Any: ...


@drawn
def stage_breakdown(results: TrainRun | Sequence[TrainRun]) -> go.Figure:
    """Time of an epoch by stage, one stacked bar per run, ratios against the first (FastGL, figures 1, 3
    and 9).

    A bar adds up what each stage was busy. Where stages overlap, the epoch ends before their sum: the line
    across the bar marks the wall clock, and totals and ratios are the wall clock's. Runs on a CPU get no ratios:
    there the same operators compute every system's stages, and what differs is what else the machine did.

    Args:
        results: training results; of each its fastest epoch is shown, since the first one compiles and fills
            pools.

    Raises:
        ValueError: there is no result, or one without an epoch.
    """
    found = _as_runs(results)
    names = run_names(found)
    epochs = [_epoch(run) for run in found]
    walls = np.array([epoch.total_us for epoch in epochs], dtype=np.float64)
    busy = {
        stage: np.array([getattr(epoch, f"{stage}_us") for epoch in epochs], dtype=np.float64)
        for stage in STAGES
    }
    ends = np.sum(list(busy.values()), axis=0)
    rest = np.maximum(walls - ends, 0.0)
    ends = np.maximum(walls, ends)
    unit, per_us = time_unit(float(ends.max()))
    columns = [(stage, values, palette.STAGES[stage]) for stage, values in busy.items() if values.any()]
    if (rest > 0.01 * walls).any():
        columns.append(("between the stages", rest, palette.FAINT))
    fig = Sketch()
    for name, values, color in columns:
        fig.add_bar(
            name=name,
            orientation="h",
            y=names,
            x=values / per_us,
            marker={"color": color, "line": {"width": 0}},
            hovertemplate="%{y}<br>" + name + " %{x:,.3~g} " + unit + "<extra></extra>",
        )
    fig.add_scatter(
        name="wall clock",
        x=walls / per_us,
        y=names,
        mode="markers",
        marker={"symbol": "line-ns", "size": 26, "line": {"color": palette.INK, "width": 3}},
        hovertemplate="%{y}<br>wall clock %{x:,.3~g} " + unit + "<extra></extra>",
    )
    comparable = all(run.device == "cuda" for run in found)
    labels = [f"  {duration(wall)}{_ratio(walls[0], wall) if comparable else ''}" for wall in walls]
    write_beside(fig, names, ends / per_us, labels)
    note = f"ratios against {names[0]}" if comparable else "CPU: times of systems do not compare"
    notes = ["fastest epoch", note if len(found) > 1 else ""]
    finish(
        fig,
        "Time of an epoch by stage",
        describe_runs(found, *notes),
        height=max(380, 206 + 46 * len(found)),
        barmode="stack",
        margin_t=132,  # the legend may take two rows
    )
    fig.update_xaxes(
        title_text=f"time per epoch ({unit})", range=[0, 1.45 * float(ends.max()) / per_us or 1.0]
    )
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


@drawn
def loss_curves(
    results: TrainRun | Sequence[TrainRun], *, smooth: int = 1, steps: int | None = None
) -> go.Figure:
    """Training loss per step of each run, over each other (FastGL, figure 16).

    The first run is the reference: a broad pale line that the others are drawn on top of. Curves that agree hide
    nothing.

    Args:
        results: training results. smooth: steps that a point averages over: the mean of the finite losses of the last
            so many, a gap where there is none; 1: the losses themselves.
        steps: of a whole run, where the curves are still growing: the axis goes as far.

    Raises:
        ValueError: there is no result, one without losses, or ``smooth`` is below 1.
    """
    found = _as_runs(results)
    if smooth < 1:
        raise ValueError(f"smooth must be at least 1 (got {smooth})")
    fig = Sketch()
    curves = [np.asarray(run.losses, dtype=np.float64) for run in found]
    for number, (run, name, losses) in enumerate(zip(found, run_names(found), curves, strict=True)):
        if losses.size == 0:
            raise ValueError(f"results must have losses (got none from {name})")
        fig.add_scatter(
            name=name,
            x=np.arange(1, len(losses) + 1),
            y=_trailing_mean(losses, smooth),
            mode="lines",
            line=_line(run, number, len(found)),
            hovertemplate="step %{x}<br>" + name + " %{y:.4f}<extra></extra>",
        )
    notes = [f"mean of {smooth} steps" if smooth > 1 else "", _apart(found)]
    finish(fig, "Training loss", describe_runs(found, *notes))
    fig.update_xaxes(title_text="step (mini-batches trained on)")
    if steps is not None:
        fig.update_xaxes(range=[1 - 0.02 * steps, 1.02 * steps])
    fig.update_yaxes(title_text="loss (cross entropy)")
    return fig


@drawn
def accuracy_curves(results: TrainRun | Sequence[TrainRun], *, epochs: int | None = None) -> go.Figure:
    """Accuracy after each epoch of each run, over each other; as :func:`loss_curves`.

    A run that was resumed begins at the epoch in which it went on.

    Args:
        results: training results. epochs: of a whole run, where the curves are still growing.

    Raises:
        ValueError: there is no result, or none that was evaluated.
    """
    found = _as_runs(results)
    curves = [np.asarray(run.accuracy, dtype=np.float64) for run in found]
    if not any(len(curve) for curve in curves):
        raise ValueError("results must hold at least one evaluated run (got accuracies from none)")
    # A run that was resumed has none of the epochs before.
    numbers = [
        np.array([epoch.number + 1 for epoch in run.epochs[: len(curve)]], dtype=np.int64)
        for run, curve in zip(found, curves, strict=True)
    ]
    fig = Sketch()
    for number, (run, name, curve) in enumerate(zip(found, run_names(found), curves, strict=True)):
        fig.add_scatter(
            name=name,
            x=numbers[number],
            y=100 * curve,
            mode="lines+markers",
            line=_line(run, number, len(found)),
            marker={"size": 13 if number == 0 and len(found) > 1 else 7},
            hovertemplate="epoch %{x}<br>" + name + " %{y:.2f} %<extra></extra>",
        )
    split = _distinct([run.accuracy_split for run in found])
    finish(fig, f"Accuracy on the {split} split", describe_runs(found))
    shown = int(np.ptp(np.concatenate(numbers))) + 1 if epochs is None else epochs
    fig.update_xaxes(title_text="epoch", dtick=max(1, shown // 10))
    if epochs is not None:
        fig.update_xaxes(range=[1 - 0.05 * epochs, 1.05 * epochs])
    fig.update_yaxes(title_text="accuracy after the epoch (%)")
    return fig


@drawn
def copied_bytes(results: TrainRun | Sequence[TrainRun]) -> go.Figure:
    """Feature bytes that an epoch copied from host to device, one bar per run, with what spared the rest.

    Means over all whole epochs: unlike their times, what they copy depends on no clock. The rest of an epoch in which a
    run was resumed counts where there is no whole one.

    Raises:
        ValueError: as :func:`stage_breakdown`.
    """
    found = _as_runs(results)
    names = run_names(found)
    moved = np.array([np.mean([epoch.bytes_moved for epoch in _whole_epochs(run)]) for run in found])
    unit, size = byte_unit(float(moved.max()))
    fig = Sketch()
    fig.add_bar(
        orientation="h",
        y=names,
        x=moved / size,
        marker={"color": [palette.system_color(run.system) for run in found], "line": {"width": 0}},
        hovertemplate="%{y}<br>%{x:,.2f} " + unit + "<extra></extra>",
        showlegend=False,
    )
    labels = [
        f"  {readable.number(amount / size)} {unit}{_spared(run)}"
        for run, amount in zip(found, moved, strict=True)
    ]
    write_beside(fig, names, moved / size, labels)
    finish(
        fig,
        "Features copied to the device in an epoch",
        describe_runs(found, "bytes counted"),
        height=max(360, 150 + 46 * len(found)),
        showlegend=False,
    )
    fig.update_xaxes(
        title_text=f"bytes per epoch ({unit})", range=[0, 1.9 * float(moved.max()) / size or 1.0]
    )
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


def _spared(run: TrainRun) -> str:
    parts = []
    reused, rows = (sum(getattr(epoch, name) for epoch in run.epochs) for name in ("reused_rows", "rows"))
    if reused and rows:
        parts.append(f"{percent(reused / rows)} reused")
    # A hit rate is not a number without a cache; rows that are reused are not looked up.
    looked_up = [(e.rows - e.reused_rows, e.hit_rate) for e in run.epochs if e.hit_rate == e.hit_rate]
    hits, asked = sum(rows * rate for rows, rate in looked_up), sum(rows for rows, _ in looked_up)
    if hits:
        parts.append(f"cache hits {percent(hits / asked)}")
    return f"  ({', '.join(parts)})" if parts else ""


def run_names(results: Sequence[TrainRun]) -> list[str]:
    """One name per run: its system, with the model and a number where that is needed to tell them apart."""
    names = [str(run.system) for run in results]
    if len({run.model for run in results}) > 1:
        names = [f"{name}, {run.model}" for name, run in zip(names, results, strict=True)]
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return unique


def describe_runs(results: Sequence[TrainRun], *extra: str) -> str:
    """The line under a title: graph, model and origin of the runs, each named once."""
    parts = (
        _distinct([run.graph for run in results]),
        _distinct([run.model.upper() for run in results]),
        *extra,
        _distinct([run.origin for run in results]),
    )
    return " · ".join(part for part in parts if part)


def duration(value_us: float) -> str:
    """A time for labels in the unit that suits it: "8.4 µs", "12.3 ms", "4.05 s"."""
    return readable.time(value_us)


def time_unit(longest_us: float) -> tuple[str, float]:
    """Name of the unit that suits a time, and its length in microseconds."""
    for unit, length in (("s", 1e6), ("ms", 1e3)):
        if longest_us >= length:
            return unit, length
    return "µs", 1.0


def _as_runs(results: TrainRun | Sequence[TrainRun]) -> list[Any]:
    found = list(results) if isinstance(results, Sequence) else [results]
    if not found:
        raise ValueError("results must hold at least one training result (got none)")
    return found


def _epoch(run: TrainRun) -> Any:
    if not run.epochs:
        raise ValueError(f"results must have at least one epoch (got none from {run.system})")
    return run.steady


def _whole_epochs(run: TrainRun) -> list[Any]:
    """The epochs with as many mini-batches as the run's fastest whole one."""
    most = _epoch(run).num_batches
    return [epoch for epoch in run.epochs if epoch.num_batches == most]


def _ratio(base: float, value: float) -> str:
    if min(base, value) <= 0 or abs(value / base - 1) < 0.05:
        return ""
    factor, word = (base / value, "faster") if value < base else (value / base, "slower")
    return f"  ({factor:.1f}× {word})"


def _distinct(values: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(value for value in values if value))


def _trailing_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean of the finite ones among each value and the ``width - 1`` before it, nan without any; for a width of 1 the
    values themselves.

    Each window is added up by itself: in a running sum a spike would take digits from all values after it.
    """
    if width == 1:
        return values
    width = min(width, len(values))
    padded = np.concatenate([np.full(width - 1, np.nan), values])
    finite = sliding_window_view(np.isfinite(padded), width)
    total = sliding_window_view(padded, width).sum(axis=1, where=finite)
    count = finite.sum(axis=1)
    mean: np.ndarray = np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)
    return mean


def _apart(runs: list[Any]) -> str:
    """How far two curves lie from each other at most, where both took the same batches in the same order.

    Nothing is said of curves of which one alone has a number at some step: no distance would hold there.
    """
    if len(runs) != 2 or not len(runs[0].losses) or list(runs[0].batch_ids) != list(runs[1].batch_ids):
        return ""
    one, other = (np.asarray(run.losses, dtype=np.float64) for run in runs)
    if np.array_equal(one, other, equal_nan=True):
        return "the same to the bit"
    both = np.isfinite(one) & np.isfinite(other)
    if not np.array_equal(one[~both], other[~both], equal_nan=True):
        return ""
    return f"apart by {np.abs(one[both] - other[both]).max():.1e} at most"


def _line(run: TrainRun, number: int, count: int) -> dict[str, Any]:
    color = palette.system_color(run.system)
    if number == 0 and count > 1:
        return {"color": palette.translucent(color, 0.5), "width": 9}
    return {"color": color, "width": 2}
