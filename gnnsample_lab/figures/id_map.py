"""The ID map, drawn: a hash table that fills slot by slot, who collides with whom, and how long probing takes.

All functions take plain arrays; the algorithms live in :mod:`gnnsample_lab.minibatch.id_map.probes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.sketch import Sketch, drawn, grid
from gnnsample_lab.figures.style import empty_figure, finish
from gnnsample_lab.readable import noun, percent

EMPTY = -1
"""What an unused slot, and an id without a local id, hold."""

#: What a cell is at this step -> its colour. The order is that of the codes in the heat maps.
CELLS = {
    "empty, or still to come": "#F3F5F8",
    "done before": "#CFE1F2",
    "probed: taken by another id": palette.HOPS[1],
    "new: key written": palette.HOPS[2],
    "found: there already": palette.HOPS[0],
    "wrong local id": palette.LOST,
}
_EMPTY, _DONE, _PROBED, _NEW, _FOUND, _WRONG = range(len(CELLS))

HASHES = {"multiplicative": palette.HOPS[0], "modulo": palette.HOPS[1], "low-bits": palette.HOPS[3]}
"""One colour per hash function."""

_MOST_ABREAST = 16
"""Slots that stand side by side; a larger table has two rows of cells, or keys would not fit into theirs."""
_DASHES = {"modulo": "dash", "low-bits": "dot"}
_SYMBOLS = {"modulo": "square", "low-bits": "diamond"}


def _scale() -> list[list[Any]]:
    """A colour scale of flat steps, one per kind of cell."""
    n = len(CELLS)
    return [[edge / n, color] for code, color in enumerate(CELLS.values()) for edge in (code, code + 1)]


def _cells(
    fig: Sketch, codes: np.ndarray, text: np.ndarray, row: int, names: list[str], first: int = 0
) -> None:
    """Cells of one plot, of which the left ones stand at ``first``."""
    ink = [palette.text_on(color) for color in CELLS.values()]
    fig.add_heatmap(
        z=codes,
        x=first + np.arange(codes.shape[1]),
        y=names,
        zmin=-0.5,
        zmax=len(CELLS) - 0.5,
        colorscale=_scale(),
        showscale=False,
        xgap=3,
        ygap=3,
        hoverinfo="skip",
        row=row,
        col=1,
    )
    # Text as a scatter, since each cell wants the ink that reads well on its colour.
    y, x = np.divmod(np.arange(codes.size), codes.shape[1])
    fig.add_scatter(
        x=first + x,
        y=[names[i] for i in y],
        mode="text",
        # Never empty: plotly.js takes the element of an empty text away and does not bring it back on an update.
        text=[t or "\u00a0" for t in text.ravel().tolist()],
        textfont={"size": 13, "color": [ink[c] for c in codes.ravel()]},
        hoverinfo="skip",
        showlegend=False,
        row=row,
        col=1,
    )


@drawn
def hash_table(
    ids: Any,
    keys: Any,
    values: Any,
    *,
    done: int,
    local: Any,
    probes: Sequence[int] = (),
    is_new: bool = False,
    wrong: Any = (),
    label: str = "",
) -> go.Figure:
    """One moment of filling a hash table by linear probing (FastGL, figure 8).

    Args:
        ids: int[n], the global ids in order of arrival.
        keys, values: int[slots], the table after this step; -1 in ``keys`` where nothing lies yet.
        done: how many ids have been inserted; id ``done - 1`` is the present one.
        local: int[n], the local id that each id has now; -1 where it has none yet.
        probes: the slots that the present id looked at, in order.
        is_new: whether the present id was not in the table before.
        wrong: ids (global) whose entry in the table is not a valid local id; drawn in vermilion.
        label: what is shown and where it comes from, for the subtitle.

    Raises:
        ValueError: arrays of different lengths, or ``done`` outside ``0..n``.
    """
    ids, keys, values, local = (np.asarray(a) for a in (ids, keys, values, local))
    if len(ids) != len(local) or len(keys) != len(values):
        raise ValueError(
            f"ids and local, keys and values must be of one length (got {len(ids)}, {len(local)}, {len(keys)}, "
            f"{len(values)})"
        )
    if not 0 <= done <= len(ids):
        raise ValueError(f"done must lie in 0..{len(ids)} (got {done})")
    wrong = np.asarray(list(wrong), dtype=np.int64)
    now = _NEW if is_new else _FOUND

    arrived = np.arange(len(ids)) < done
    above = np.full((2, len(ids)), _EMPTY)
    above[:, arrived] = _DONE
    if done:
        above[:, done - 1] = now
    above[1, arrived & np.isin(ids, wrong)] = _WRONG
    given = np.where(arrived & (local >= 0), local.astype(str), "")

    used = keys != EMPTY
    below = np.full((2, len(keys)), _EMPTY)
    below[:, used] = _DONE
    for slot in probes[:-1]:
        below[:, slot] = _PROBED
    if len(probes):
        below[:, probes[-1]] = now
    below[1, used & np.isin(keys, wrong)] = _WRONG

    abreast = len(keys) if len(keys) <= _MOST_ABREAST else -(-len(keys) // 2)
    firsts = list(range(0, len(keys), abreast or 1)) or [0]
    if len(firsts) == 1:
        fig = grid(2, 1, vertical_spacing=0.24, row_heights=[0.4, 0.6])
    else:
        fig = grid(3, 1, vertical_spacing=0.235)
    # Listed from the bottom up.
    _cells(fig, above[::-1], np.stack([given, ids.astype(str)]), 1, ["local id", "global id"])
    held = np.where(used, np.stack([values, keys]).astype(str), "")
    for row, first in enumerate(firsts, start=2):
        part = slice(first, first + abreast)
        _cells(fig, below[::-1, part], held[:, part], row, ["value", "key"], first)
    _add_path(fig, list(probes), abreast)
    shown = set(above.ravel().tolist()) | set(below.ravel().tolist())
    for code, (name, color) in enumerate(CELLS.items()):
        fig.add_scatter(
            name=name,
            x=[None],
            y=[None],
            mode="markers",
            marker={
                "symbol": "square",
                "size": 13,
                "color": color,
                "line": {"color": palette.FAINT, "width": 1},
            },
            # The same entries at every step, or the table would jump; the rare one only where it occurs.
            showlegend=code not in (_EMPTY, _WRONG) or (code == _WRONG and _WRONG in shown),
        )
    step = "nothing inserted yet" if done == 0 else f"id {ids[done - 1]} is number {done} of {len(ids)}"
    finish(
        fig,
        "Filling the hash table",
        " · ".join(filter(None, [label, step])),
        height=470,
        hovermode=False,
        legend={"y": -0.2, "yanchor": "top"},
        margin={"l": 84, "r": 16, "t": 86, "b": 108},
    )
    fig.update_xaxes(showgrid=False, ticks="", showline=False)
    fig.update_yaxes(showgrid=False, ticks="", showline=False)
    ends = [-0.6, len(ids) - 0.4]
    fig.update_xaxes(tickvals=[], title_text="ids in order of arrival", range=ends, row=1, col=1)
    for row, first in enumerate(firsts, start=2):
        slots = list(range(first, min(first + abreast, len(keys))))
        fig.update_xaxes(
            tickvals=slots, tickangle=0, range=[first - 0.6, first + abreast - 0.4], row=row, col=1
        )
        # With room for the heads of arrows: left to itself the axis would make room for their words, too.
        fig.update_yaxes(range=[-0.5, 1.7], row=row, col=1)
    fig.update_xaxes(title_text="slot of the table", row=1 + len(firsts), col=1)
    return fig


def _add_path(fig: Sketch, probes: list[int], abreast: int) -> None:
    """The way of the present id: where it hashed to, and how it went on from there."""
    for number, slot in enumerate(probes):
        fig.add_annotation(
            x=slot,
            y=1.62,
            xref=f"x{2 + slot // abreast}",
            yref=f"y{2 + slot // abreast}",
            text="<b>home</b>" if number == 0 else f"<b>+{number}</b>",
            showarrow=True,
            arrowhead=2,
            arrowcolor=palette.INK,
            ax=0,
            ay=-20,
            font={"size": 12},
        )


@drawn
def slot_contention(counts: Any, *, label: str = "") -> go.Figure:
    """How many threads try to swap a key into each slot, round by round.

    Args:
        counts: int[rounds, slots], compare-and-swap attempts on a slot in a round.
        label: what is shown, for the subtitle.
    """
    counts = np.atleast_2d(np.asarray(counts))
    rounds, slots = counts.shape
    top = int(counts.max()) if counts.size else 0
    fig = Sketch()
    fig.add_heatmap(
        z=counts,
        x=np.arange(slots),
        y=np.arange(1, rounds + 1),
        colorscale=[[i / 5, c] for i, c in enumerate(palette.ACTIVITY)],
        zmin=0,
        zmax=max(4, top),
        xgap=2,
        ygap=2,
        text=np.where(counts > 0, counts.astype(str), "") if counts.size <= 2000 else None,
        texttemplate="%{text}" if counts.size <= 2000 else None,
        colorbar={
            "title": {"text": "threads"},
            "thickness": 12,
            "outlinewidth": 0,
            "dtick": max(1, -(-top // 6)),
        },
        hovertemplate="round %{y}, slot %{x}<br>%{z} threads<extra></extra>",
    )
    total, queued = int(counts.sum()), int(np.maximum(counts - 1, 0).sum())
    tried = f"{total:,} {noun(total, 'swap')} tried in {rounds:,} {noun(rounds, 'round')}"
    note = f"{tried}, {queued:,} had to wait for another at their slot"
    finish(fig, "Contention: threads per slot and round", " · ".join(filter(None, [label, note])), height=470)
    fig.update_layout(margin_t=86)
    fig.update_xaxes(title_text="slot of the table", showgrid=False)
    fig.update_yaxes(title_text="round (count)", autorange="reversed", showgrid=False, tickformat=",d")
    if rounds <= 14:
        fig.update_yaxes(dtick=1)
    return fig


@drawn
def probe_lengths(lengths: Any, *, label: str = "", hash_name: str = "") -> go.Figure:
    """Share of the distinct ids by the number of slots that inserting them looked at.

    Args:
        lengths: int[k + 1], how many ids needed 0, 1, ..., k probes (nobody needs 0).
        hash_name: the hash function, for colour and subtitle.
    """
    lengths = np.asarray(lengths, dtype=np.float64)
    total, needed = lengths.sum(), np.flatnonzero(lengths)
    if not len(needed):
        return empty_figure("Probes per id", "There is no id to insert.")
    last = int(needed[-1])
    shown = min(last, 40)
    share = lengths[1 : shown + 1] / total * 100
    x = np.arange(1, shown + 1)
    fig = Sketch(
        go.Bar(
            x=x,
            y=np.where(share > 0, share, None),
            marker={"color": HASHES.get(hash_name, palette.MUTED), "line": {"width": 0}},
            hovertemplate="%{x} probes<br>%{y:.3g} % of the ids<extra></extra>",
        )
    )
    mean = float((lengths * np.arange(len(lengths))).sum() / total)
    beyond = (
        f"{percent(lengths[shown + 1 :].sum() / total, 1)} need more than {shown}" if last > shown else ""
    )
    parts = [label, hash_name, f"mean {mean:.2f}, longest {last:,}", beyond]
    finish(fig, "Probes per id", " · ".join(filter(None, parts)), height=400, showlegend=False)
    fig.update_xaxes(title_text="slots looked at (count)", tickformat=",d")
    if shown <= 16:
        fig.update_xaxes(dtick=1)
    fig.update_yaxes(title_text="share of the distinct ids (%)", type="log", dtick=1)
    seen = share[share > 0]
    if len(seen) and seen.max() < 100 * seen.min():
        # Powers of ten alone may all lie outside: the axis ends at numbers that it names.
        marks = [float(f"{m}e{e}") for e in range(-9, 3) for m in (1, 2, 5)]
        ends = (
            max(m for m in marks if m < seen.min()),
            min([m for m in marks if m >= seen.max()], default=200),
        )
        fig.update_yaxes(tickvals=marks, tickformat=",~g", range=[float(np.log10(end)) for end in ends])
    return fig


@drawn
def probes_by_load(
    load: Any, means: Mapping[str, Any], *, marker: float | None = None, label: str = ""
) -> go.Figure:
    """Mean probes per distinct id against the load factor, one curve per hash function.

    Over them, a thin line, what linear probing costs under a perfectly random hash: (1 + 1 / (1 - load)) / 2 on average
    over all ids (Knuth, The Art of Computer Programming 3, 6.4).

    Args:
        load: float[k], load factors, 0 to 1. means: hash name -> float[k].
        marker: load factor to mark.
    """
    load = np.asarray(load, dtype=np.float64)
    fig = Sketch()
    for name, values in means.items():
        fig.add_scatter(
            name=name,
            x=load,
            y=np.asarray(values, dtype=np.float64),
            mode="lines+markers",
            # Curves often lie upon each other: whoever is below must show through.
            line={"color": HASHES.get(name, palette.MUTED), "width": 2.5, "dash": _DASHES.get(name, "solid")},
            marker={"size": 7, "symbol": _SYMBOLS.get(name, "circle")},
            hovertemplate="load %{x:.2f}<br>%{y:.2f} probes<extra>" + name + "</extra>",
        )
    fine = np.linspace(0.0, min(0.97, float(load.max()) if len(load) else 0.9), 120)
    fig.add_scatter(
        name="theory, random hash",
        x=fine,
        y=(1 + 1 / (1 - fine)) / 2,
        mode="lines",
        line={"color": palette.INK, "width": 1},
        hoverinfo="skip",
    )
    if marker is not None:
        fig.add_vline(x=marker, line={"color": palette.MUTED, "dash": "dash", "width": 1.5})
    finish(fig, "Probes against load factor", label, height=400)
    fig.update_xaxes(title_text="load factor (distinct ids / slots)", range=[0, 1])
    # A hash that piles ids up needs hundreds of probes; the others must stay readable.
    fig.update_yaxes(title_text="mean probes per distinct id (count)", type="log")
    # In full, since the axis would write 200 as a mere 2.
    fig.update_yaxes(tickvals=[m * 10**e for e in range(7) for m in (1, 2, 5)], tickformat=",d")
    return fig


@drawn
def id_map_rungs(times_us: Mapping[str, float], *, label: str, baseline: str | None = None) -> go.Figure:
    """Time per mini-batch of each rung of the ID-map ladder, with ratios against ``baseline``.

    Args:
        times_us: rung -> microseconds, in the order to draw.
        label: origin, as "measured on NVIDIA H200".
        baseline: rung that the ratios refer to; the first one when None.

    Raises:
        ValueError: no rung, or a baseline that is not there.
    """
    if not times_us:
        raise ValueError("times_us must hold at least one rung (got none)")
    base = next(iter(times_us)) if baseline is None else baseline
    if base not in times_us:
        raise ValueError(f"baseline must be one of {sorted(times_us)} (got {base!r})")
    names, values = list(times_us), np.array(list(times_us.values()), dtype=np.float64)
    ratios = times_us[base] / np.maximum(values, 1e-12)
    fig = Sketch(
        go.Bar(
            y=names,
            x=values,
            orientation="h",
            marker={"color": palette.STAGES["kernel"], "line": {"width": 0}},
            text=[
                f"{v:,.1f} µs" + ("" if n == base else f"  ({r:.1f}×)")
                for n, v, r in zip(names, values, ratios, strict=True)
            ],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}<br>%{x:,.1f} µs<extra></extra>",
        )
    )
    finish(
        fig,
        "ID map, per mini-batch",
        f"{label} · ratios against {base}",
        height=170 + 44 * len(names),
        showlegend=False,
    )
    fig.update_xaxes(title_text="time (µs)", range=[0, float(values.max()) * 1.3 or 1.0])
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig
