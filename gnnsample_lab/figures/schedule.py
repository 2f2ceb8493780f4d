"""Modelled training pipelines as figures: who does what when, and how an epoch changes with GPUs and executors.

Everything here is drawn from the schedule model, and every title says so. Where measured epochs are shown, they are
beside the modelled ones, under their own name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.activity import thinned
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import finish, set_cursor, whole_ticks, write_beside
from gnnsample_lab.figures.training import duration, time_unit
from gnnsample_lab.readable import noun, percent

_MAX_BARS = 6000
"""Beyond it, WebGL lines: a browser draws no more bars at once."""
_MOST_LABELS = 16
"""Rows that get a label each; beyond it a browser leaves out every second one."""
_MOST_OF_BEST = 3.0
"""Times of the best split up to which bars are drawn in full; beyond it their value is written."""
_STAGES = ("sample", "put", "get", "extract", "train", "update", "load topology", "load cache")


class ScheduleTimeline(Protocol):
    """What the figures read of a :class:`gnnsample_lab.pipeline.schedule.timeline.Timeline`."""

    @property
    def executor(self) -> str: ...
    @property
    def gpus(self) -> int: ...
    @property
    def roles(self) -> Sequence[str]: ...
    @property
    def events(self) -> Sequence[Any]: ...
    @property
    def waits(self) -> Sequence[Any]: ...
    @property
    def queues(self) -> Mapping[str, Any]: ...
    @property
    def epoch_s(self) -> float: ...
    @property
    def origin(self) -> str: ...
    @property
    def switched(self) -> int: ...


class ScheduleSweep(Protocol):
    """What the figures read of a :class:`gnnsample_lab.pipeline.schedule.sweeps.Sweep`."""

    @property
    def kind(self) -> str: ...
    @property
    def rows(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def origin(self) -> str: ...
    @property
    def notes(self) -> Sequence[str]: ...


@drawn
def schedule_gantt(
    timeline: ScheduleTimeline,
    *,
    start_s: float = 0.0,
    end_s: float | None = None,
    until_s: float | None = None,
    waits: bool = True,
    span_s: float | None = None,
    place: str = "GPU",
) -> go.Figure:
    """Stages of all mini-batches on the workers of each GPU over time, and below them the depth of the queues.

    Args:
        timeline: what ``lab.schedule.simulate`` returns.
        start_s, end_s: the part of the epoch to draw, in seconds; None: to its end.
        until_s: draws a time cursor there and veils what comes later.
        waits: also draw, as thin bars, when workers wait.
        span_s: length of the time axis in seconds, to put two epochs beside each other; None: that of the part.
        place: what runs the workers, for labels: "rank" where processes share CPUs.

    Raises:
        ValueError: a part that does not lie within the epoch, or an epoch of no time.
    """
    if not timeline.epoch_s > 0:
        raise ValueError("timeline must be of an epoch that takes time: one of 0 s cannot be drawn (got 0 s)")
    end = timeline.epoch_s if end_s is None else float(end_s)
    if not 0 <= start_s < end <= timeline.epoch_s * (1 + 1e-9):
        raise ValueError(
            f"start_s and end_s must be a part of the epoch of {timeline.epoch_s:.4g} s (got {start_s}, {end_s})"
        )
    unit, per_us = time_unit(1e6 * (end - start_s if span_s is None else span_s))
    scale = 1e6 / per_us
    events = [e for e in timeline.events if e.end_s > start_s and e.start_s < end]
    idle = [w for w in timeline.waits if w.end_s > start_s and w.start_s < end] if waits else []
    workers = sorted({(e.gpu, e.worker) for e in events}, key=lambda w: (w[0], _rank(w[1]), w[1]))
    row = {worker: i for i, worker in enumerate(workers)}
    fig = Sketch()
    draw = _bars if len(events) + len(idle) <= _MAX_BARS else _lines
    draw(fig, "waiting", palette.FAINT, [w for w in idle if (w.gpu, w.worker) in row], row, scale, unit, 0.22)
    for stage in _STAGES:
        mine = [e for e in events if e.stage == stage]
        if mine:
            draw(fig, stage, palette.STAGES[stage], mine, row, scale, unit, 0.82)
    depths = _queues(timeline, place)
    for number, (name, (time, depth)) in enumerate(depths.items()):
        x, y = thinned(np.append(time, timeline.epoch_s), np.append(depth, depth[-1]))
        fig.add_scatter(
            name=name,
            x=x * scale,
            y=y,
            yaxis="y2",
            mode="lines",
            line={"shape": "hv", "color": palette.HOPS[number % len(palette.HOPS)], "width": 1.8},
            hovertemplate="%{x:,.4~g} " + unit + "<br>%{y:,} mini-batches wait<extra>" + name + "</extra>",
        )
    labels: dict[float, str] = {i: f"{place} {gpu} {worker}" for i, (gpu, worker) in enumerate(workers)}
    kinds = sorted({worker for _, worker in workers}, key=lambda worker: (_rank(worker), worker))
    if len(workers) > _MOST_LABELS:
        rows = {gpu: [i for i, w in enumerate(workers) if w[0] == gpu] for gpu, _ in workers}
        labels = {float(np.mean(mine)): f"{place} {gpu}" for gpu, mine in rows.items()}
    samplers = sum(role == "sampler" for role in timeline.roles)
    parts = [
        f"{samplers} sample, {timeline.gpus - samplers} train" if samplers else "",
        f"epoch {duration(1e6 * timeline.epoch_s)}",
        f"{timeline.switched} {noun(timeline.switched, 'mini-batch', 'mini-batches')} on standby trainers"
        if timeline.switched
        else "",
        f"rows of a {place} from above: {', '.join(kinds)}" if len(workers) > _MOST_LABELS else "",
        timeline.origin,
    ]
    plural = "s" if timeline.gpus > 1 else ""
    finish(
        fig,
        f"Who does what when: {timeline.executor} on {timeline.gpus} {place}{plural}",
        " · ".join(part for part in parts if part),
        height=int(np.clip(330 + 24 * len(workers), 420, 900)),
        barmode="overlay",
        bargap=0.0,
        hovermode="closest",
        meta={"end_us": timeline.epoch_s * scale},  # in the unit of the axis, as the cursor is
    )
    below = 0.26 if depths else 0.0
    fig.update_layout(
        yaxis={
            "domain": [below + 0.05 if depths else 0.0, 1.0],
            "tickvals": list(labels),
            "ticktext": list(labels.values()),
            "range": [len(workers) - 0.4, -0.6],
            "showgrid": False,
            "ticks": "",
        },
        xaxis={
            "title": {"text": f"time since the epoch began ({unit})"},
            "range": [start_s * scale, (end if span_s is None else start_s + span_s) * scale],
            "anchor": "y2" if depths else "y",
        },
    )
    if depths:
        deepest = max(float(np.max(depth, initial=0)) for _, depth in depths.values())
        fig.update_layout(
            yaxis2={
                "domain": [0.0, below], "title": {"text": "queue (count)"}, "rangemode": "tozero",
                **whole_ticks(deepest, few=4),
            }
        )  # fmt: skip
    return fig if until_s is None else set_cursor(fig, until_s * scale)


def _rank(worker: str) -> int:
    """Workers of a GPU in the order in which a mini-batch passes them."""
    kinds = ("worker", "sampler", "standby's loader", "standby", "loader", "trainer")
    return next((i for i, kind in enumerate(kinds) if worker.startswith(kind)), len(kinds))


def _hover(thing: Any, scale: float, unit: str) -> str:
    length = f"{(thing.end_s - thing.start_s) * scale:,.4g} {unit} from {thing.start_s * scale:,.4g}"
    if hasattr(thing, "reason"):
        why = {"input": "nothing to take", "room": "queue full", "others": "waits for others"}
        return f"{why.get(thing.reason, thing.reason)}<br>{length}"
    which = f" of mini-batch {thing.batch}" if thing.batch >= 0 else ""
    waiting = f"<br>{thing.depth} in the queue" if thing.depth >= 0 else ""
    return f"<b>{thing.stage}</b>{which}<br>{length}{waiting}"


def _bars(
    fig: Sketch, name: str, color: str, things: Sequence[Any], row: Mapping[Any, int], scale: float, unit: str,
    width: float,
) -> None:  # fmt: skip
    fig.add_bar(
        name=name,
        orientation="h",
        y=[row[t.gpu, t.worker] for t in things],
        base=[t.start_s * scale for t in things],
        x=[(t.end_s - t.start_s) * scale for t in things],
        width=width,
        text=[_hover(t, scale, unit) for t in things],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
        marker={"color": color, "line": {"width": 0.4, "color": "white"}},
        showlegend=bool(things),
    )


def _lines(
    fig: Sketch, name: str, color: str, things: Sequence[Any], row: Mapping[Any, int], scale: float, unit: str,
    width: float,
) -> None:  # fmt: skip
    """One line a kind, broken between stages."""
    x = np.full((len(things), 3), np.nan)
    y = np.full((len(things), 3), np.nan)
    for i, t in enumerate(things):
        x[i, :2] = t.start_s * scale, t.end_s * scale
        y[i, :2] = row[t.gpu, t.worker]
    fig.add_scattergl(
        name=name,
        x=x.ravel(),
        y=y.ravel(),
        mode="lines",
        connectgaps=False,
        line={"color": color, "width": 14 * width},
        hovertemplate=name + " at %{x:,.4~g} " + unit + "<extra></extra>",
        showlegend=bool(things),
    )


def _queues(timeline: ScheduleTimeline, place: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name -> time in seconds and depth; queues of the same kind on several GPUs or ranks are added up."""
    kinds: dict[str, list[Any]] = {}
    is_factored = any(name == "global queue" for name in timeline.queues)
    for name, queue in timeline.queues.items():
        # The model and a measured run name the queue within a trainer differently; neither is drawn.
        if not name.startswith("extracted") and not (is_factored and name.startswith("trainer queue")):
            kinds.setdefault(re.sub(r" of (?:GPU|rank) \d+$", "", name), []).append(queue)
    found = {}
    for kind, queues in kinds.items():
        times = np.unique(np.concatenate([np.asarray(q.time_s, dtype=np.float64) for q in queues]))
        depth = np.zeros(len(times), dtype=np.int64)
        for q in queues:
            # A queue is empty before its first record.
            depth += np.append(0, q.depth)[np.searchsorted(q.time_s, times, side="right")]
        found[f"{kind}, all {place}s" if len(queues) > 1 else kind] = (times, depth)
    return found


# ---- figures of the papers ------------------------------------------------------------------------------------


def _rows(sweep: ScheduleSweep, kind: str) -> list[Mapping[str, Any]]:
    if sweep.kind != kind:
        raise ValueError(f"sweep must be what lab.schedule.{kind} returns (got that of {sweep.kind})")
    return list(sweep.rows)


def _subtitle(sweep: ScheduleSweep, *extra: str) -> str:
    return " · ".join(part for part in (*extra, *sweep.notes, sweep.origin) if part)


def _epoch_axis(fig: Sketch, values: Sequence[float]) -> float:
    """The y axis of modelled epochs; what seconds are multiplied by."""
    unit, per_us = time_unit(1e6 * max(values, default=1.0))
    fig.update_yaxes(title_text=f"modelled time per epoch ({unit})", rangemode="tozero")
    return 1e6 / per_us


@drawn
def schedule_scaling(sweep: ScheduleSweep) -> go.Figure:
    """Epoch time against GPUs, by number of samplers, with systems that share GPUs in time (GNNLab, figure 14).

    Args:
        sweep: of ``lab.schedule.scaling``.

    Raises:
        ValueError: another sweep.
    """
    rows = _rows(sweep, "scaling")
    fig = Sketch()
    scale = _epoch_axis(fig, [row["epoch_s"] for row in rows])
    series = list(dict.fromkeys(row["series"] for row in rows))
    for number, name in enumerate(series):
        mine = [row for row in rows if row["series"] == name]
        shared = not name.startswith("factored")
        fig.add_scatter(
            name=name,
            x=[row["gpus"] for row in mine],
            y=[row["epoch_s"] * scale for row in mine],
            mode="lines+markers",
            line={
                "color": palette.MUTED if shared else palette.HOPS[number % len(palette.HOPS)],
                "dash": ("dash", "dot", "dashdot")[number % 3] if shared else "solid",
                "width": 2.2,
            },
            marker={"size": 8},
            hovertemplate="%{x} GPUs<br>%{y:,.4~g}<extra>" + name + "</extra>",
        )
    finish(fig, "Epoch time against GPUs", _subtitle(sweep), height=440)
    fig.update_xaxes(title_text="GPUs (count)", dtick=1)
    return fig


@drawn
def schedule_splits(sweep: ScheduleSweep) -> go.Figure:
    """What a GPU of each stage is busy, and the epoch, for m samplers and n trainers (GNNLab, figure 15).

    Args:
        sweep: of ``lab.schedule.splits``.

    Raises:
        ValueError: another sweep.
    """
    rows = _rows(sweep, "splits")
    names = [f"{row['samplers']}S{row['trainers']}T" for row in rows]
    fig = Sketch()
    scale = _epoch_axis(fig, [row["epoch_s"] for row in rows])
    for stage in ("sample", "extract", "train"):
        fig.add_bar(
            name=stage,
            x=names,
            y=[row[f"{stage}_s"] * scale for row in rows],
            marker={"color": palette.STAGES[stage], "line": {"width": 0}},
            hovertemplate="%{x}<br>" + stage + " %{y:,.4~g}<extra></extra>",
        )
    for m in dict.fromkeys(row["samplers"] for row in rows):  # a line for each number of samplers
        mine = [i for i, row in enumerate(rows) if row["samplers"] == m]
        fig.add_scatter(
            name="epoch",
            legendgroup="epoch",
            showlegend=m == rows[0]["samplers"],
            x=[names[i] for i in mine],
            y=[rows[i]["epoch_s"] * scale for i in mine],
            mode="lines+markers",
            line={"color": palette.INK, "width": 2},
            marker={"size": [11 if rows[i]["chosen"] else 6 for i in mine], "symbol": "circle"},
            hovertemplate="%{x}<br>epoch %{y:,.4~g}<extra></extra>",
        )
    finish(
        fig,
        "Samplers and trainers",
        _subtitle(sweep, "large points: chosen by the formula"),
        height=440,
        barmode="group",
    )
    # One above the other: side by side the labels would touch in a narrow figure.
    two_lines = [f"{row['samplers']}S<br>{row['trainers']}T" for row in rows]
    fig.update_xaxes(
        title_text="samplers (S) and trainers (T) (count of GPUs)",
        tickvals=names,
        ticktext=two_lines,
        tickangle=0,
    )
    return fig


def schedule_allocation(sweep: ScheduleSweep, guess: int | None = None) -> go.Figure:
    """Epoch time for every number of samplers, with and without switching: the rule's choice beside the best one.

    Args:
        sweep: of ``lab.schedule.allocation_sweep``.
        guess: a number of samplers to mark as somebody's guess.

    Raises:
        ValueError: another sweep, or a guess that is not in it.
    """
    rows = _rows(sweep, "allocation_sweep")
    if guess is not None and guess not in [row["samplers"] for row in rows]:
        raise ValueError(f"guess must be from 1 to {len(rows)}, a number of samplers (got {guess!r})")
    fig = go.Figure()
    scale = _epoch_axis(fig, [row["without_s"] for row in rows])
    unit = fig.layout.yaxis.title.text.rpartition("(")[2].rstrip(")")
    splits = [row["samplers"] for row in rows]
    # A single sampler or trainer may take many times as long as the best split, and would make that one tiny.
    top = (
        min(_MOST_OF_BEST * min(row["with_s"] for row in rows), max(row["without_s"] for row in rows)) * scale
    )
    for key, name, color in (
        ("without_s", "without switching", palette.MUTED),
        ("with_s", "with switching", palette.STAGES["train"]),
    ):
        values = [row[key] * scale for row in rows]
        best = min(values) * (1 + 1e-9)
        detail = "<br>epoch %{customdata[0]:,.4~g} " + unit
        if key == "with_s":
            detail += (
                "<br>%{customdata[3]} waited when sampling ended: P = %{customdata[4]:,.4~g} "
                + unit
                + "<br>%{customdata[2]} mini-batches on standby trainers"
            )
        fig.add_bar(
            name=name,
            x=splits,
            y=[min(value, top) for value in values],
            text=[f"{v:,.3g} ↑" if v > top else "✓" if v <= best else "" for v in values],
            textposition="outside",
            # Bars of eight splits are narrow: their writing keeps its size, and does not turn.
            constraintext="none",
            textangle=0,
            textfont={"size": 12},
            cliponaxis=False,
            customdata=[
                [value, row["trainers"], row["switched"], row["remaining"], row["profit_s"] * scale]
                for value, row in zip(values, rows, strict=True)
            ],
            marker={"color": color, "line": {"width": 0}},
            hovertemplate="%{x} samplers, %{customdata[1]} trainers" + detail + f"<extra>{name}</extra>",
        )
    rule = next(row for row in rows if row["chosen"])
    fig.add_scatter(
        name="rule: N<sub>s</sub> = ⌈N<sub>g</sub> / (K + 1)⌉",
        x=[rule["samplers"]],
        y=[-0.045 * top],
        mode="markers",
        cliponaxis=False,
        marker={"symbol": "triangle-up", "size": 15, "color": palette.INK},
        hovertemplate="the rule chooses %{x}<extra></extra>",
    )
    if guess is not None:
        fig.add_scatter(
            name="your guess",
            x=[guess],
            y=[1.13 * top],
            mode="markers",
            cliponaxis=False,
            marker={"symbol": "star", "size": 15, "color": palette.LOST},
            hovertemplate="your guess: %{x}<extra></extra>",
        )
    finish(fig, "How many GPUs sample?", _subtitle(sweep, "✓ fastest"), height=440, barmode="group")
    fig.update_xaxes(title_text="GPUs that sample (count)", dtick=1)
    fig.update_yaxes(range=[-0.09 * top, 1.2 * top])
    return fig


@drawn
def schedule_epochs(timelines: Mapping[str, Any], chosen: str | None = None) -> go.Figure:
    """Modelled epochs by executor, and how long GPUs are busy in them.

    Args:
        timelines: name -> what ``lab.schedule.simulate`` returns.
        chosen: the name to highlight.

    Raises:
        ValueError: there is no timeline.
    """
    if not timelines:
        raise ValueError("timelines must hold at least one (got none)")
    names, runs = list(timelines), list(timelines.values())
    values = np.array([run.epoch_s for run in runs], dtype=np.float64)
    labels = [
        f"  {duration(1e6 * run.epoch_s)} · GPUs busy {percent(float(np.mean(run.utilisation)))}"
        for run in runs
    ]
    colors = [palette.MODELLED if name == chosen else palette.MUTED for name in names]
    fig = _epochs_beside(names, values, colors, labels, 1.75)
    origins = list(dict.fromkeys(run.origin for run in runs))
    more = f" and {len(origins) - 1} more" if len(origins) > 1 else ""
    height = max(300, 180 + 42 * len(names))
    finish(fig, "The same epoch by executor", origins[0] + more, height=height, showlegend=False)
    return fig


def _epochs_beside(
    names: Sequence[str], values: Any, colors: Sequence[str], labels: Sequence[str], room: float
) -> Sketch:
    """Bars of epochs, one below another, with labels behind them; the axis is ``room`` times the longest.

    Args:
        values: seconds, ``float64[n]``.
    """
    unit, per_us = time_unit(1e6 * float(values.max()))
    scale = 1e6 / per_us
    fig = Sketch(
        go.Bar(
            y=names,
            x=values * scale,
            orientation="h",
            marker={"color": colors, "line": {"width": 0}},
            hovertemplate="%{y}<br>%{x:,.4~g} " + unit + "<extra></extra>",
            showlegend=False,
        )
    )
    write_beside(fig, names, values * scale, labels)
    fig.update_xaxes(
        title_text=f"modelled time per epoch ({unit})", range=[0, room * float(values.max()) * scale or 1.0]
    )
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


@drawn
def schedule_switching(sweep: ScheduleSweep) -> go.Figure:
    """Epoch time with and without dynamic switching, by number of trainers (GNNLab, figure 17a).

    Args:
        sweep: of ``lab.schedule.switching``.

    Raises:
        ValueError: another sweep, or an epoch of no time.
    """
    rows = _rows(sweep, "switching")
    for row in rows:
        if not row["with_s"] > 0:
            raise ValueError(
                "sweep must hold epochs that take time: one of 0 s cannot be drawn "
                f"(got 0 s with {row['trainers']} trainers)"
            )
    fig = Sketch()
    scale = _epoch_axis(fig, [row["without_s"] for row in rows])
    for key, name, color in (
        ("without_s", "without switching", palette.MUTED),
        ("with_s", "with switching", palette.STAGES["train"]),
    ):
        ratios = [f"{row['without_s'] / row['with_s']:.2f}×" if key == "with_s" else "" for row in rows]
        fig.add_bar(
            name=name,
            x=[row["trainers"] for row in rows],
            y=[row[key] * scale for row in rows],
            text=ratios,
            textposition="outside",
            cliponaxis=False,
            customdata=[row["switched"] for row in rows],
            marker={"color": color, "line": {"width": 0}},
            hovertemplate="%{x} trainers<br>%{y:,.4~g}<br>%{customdata} mini-batches on standby trainers<extra>"
            + name
            + "</extra>",
        )
    finish(fig, "Dynamic switching", _subtitle(sweep), height=420, barmode="group")
    fig.update_xaxes(title_text="trainers (count of GPUs)", dtick=1)
    return fig


@drawn
def schedule_one_gpu(sweep: ScheduleSweep) -> go.Figure:
    """Epoch time on one GPU, by system (GNNLab, figure 17b).

    Args:
        sweep: of ``lab.schedule.one_gpu``.

    Raises:
        ValueError: another sweep.
    """
    rows = _rows(sweep, "one_gpu")
    names = [row["series"] for row in rows]
    values = np.array([row["epoch_s"] for row in rows], dtype=np.float64)
    last = float(values[-1])
    labels = [
        f"  {duration(1e6 * v)}"
        + (f"  ({v / last:.1f}× the factored)" if name != "factored" and last else "")
        for name, v in zip(names, values, strict=True)
    ]
    colors = [palette.SYSTEMS["gnnlab"] if n == "factored" else palette.MUTED for n in names]
    fig = _epochs_beside(names, values, colors, labels, 1.5)
    finish(fig, "One GPU", _subtitle(sweep), height=max(300, 180 + 46 * len(names)), showlegend=False)
    return fig


@drawn
def schedule_pipelining(sweep: ScheduleSweep) -> go.Figure:
    """Speed-up of overlapped stages over one after the other, by number of GPUs (DSP, figure 12).

    Args:
        sweep: of ``lab.schedule.pipelining``.

    Raises:
        ValueError: another sweep.
    """
    rows = _rows(sweep, "pipelining")
    names = [str(row["gpus"]) for row in rows]
    fig = Sketch(
        go.Bar(
            name="modelled",
            x=names,
            y=[row["speedup"] for row in rows],
            text=[f"{row['speedup']:.2f}×" for row in rows],
            textposition="inside",  # above the bar stands the ceiling
            insidetextanchor="middle",
            textfont={"color": palette.INK},
            marker={"color": palette.MODELLED, "line": {"width": 0}},
            hovertemplate="%{x} GPUs<br>%{y:.2f} times as fast<extra></extra>",
        )
    )
    fig.add_scatter(
        name="ceiling: sum of the stages over the longest",
        x=names,
        y=[row["ceiling"] for row in rows],
        mode="markers",
        marker={"symbol": "line-ew", "size": 34, "line": {"color": palette.INK, "width": 3}},
        hovertemplate="%{x} GPUs<br>at most %{y:.2f}<extra></extra>",
    )
    finish(fig, "Gain of the pipeline", _subtitle(sweep), height=420)
    fig.update_xaxes(title_text="GPUs (count)", type="category")
    fig.update_yaxes(title_text="modelled speed-up (×)", rangemode="tozero")
    return fig


@drawn
def schedule_error(error: Any) -> go.Figure:
    """Modelled beside measured epochs, a point a run: on the line where the model is right.

    Args:
        error: what ``lab.schedule.model_error`` returns.
    """
    fig = Sketch()
    values = [v for row in error.rows for v in (row.measured_s, row.modelled_s)]
    low, high = 0.8 * min(values), 1.25 * max(values)
    fig.add_scatter(
        name="model = measurement", x=[low, high], y=[low, high], mode="lines",
        line={"color": palette.FAINT, "width": 2}, hoverinfo="skip",
    )  # fmt: skip
    for number, executor in enumerate(dict.fromkeys(row.executor for row in error.rows)):
        mine = [row for row in error.rows if row.executor == executor]
        fig.add_scatter(
            name=executor,
            x=[row.measured_s for row in mine],
            y=[row.modelled_s for row in mine],
            mode="markers",
            text=[
                f"{row.name}, {row.gpus} GPU{'s' * (row.gpus > 1)}: {percent(row.error, 1, signed=True)}"
                for row in mine
            ],
            marker={"size": 8, "color": palette.HOPS[number % len(palette.HOPS)], "opacity": 0.8},
            hovertemplate="%{text}<br>measured %{x:,.4~g} s<br>modelled %{y:,.4~g} s<extra></extra>",
        )
    origins = list(dict.fromkeys(row.origin for row in error.rows))
    finish(
        fig,
        "The schedule model against measured epochs",
        f"{len(error.rows)} runs · off by {percent(error.mean, 1)} on average, worst "
        f"{percent(error.worst.error, 1, signed=True)} · "
        + "; ".join(origins[:3])
        + (" and others" if len(origins) > 3 else ""),
        height=520,
    )
    # In full, since a log axis writes 0.2 as a mere 2.
    ticks = [float(f"{m}e{e}") for e in range(-6, 7) for m in (1, 2, 5)]
    both = {"type": "log", "range": np.log10([low, high]).tolist(), "tickvals": ticks, "tickformat": ",~g"}
    fig.update_xaxes(title_text="measured time per epoch (s)", **both)
    fig.update_yaxes(title_text="modelled time per epoch (s)", **both)
    return fig
