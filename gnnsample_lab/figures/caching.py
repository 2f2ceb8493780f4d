"""Feature caching, drawn: hit rates by policy, bytes that still move, and why a policy fails or works.

All functions take plain arrays; hotness, footprints and hit rates come from :mod:`gnnsample_lab.features`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gnnsample_lab import readable
from gnnsample_lab.figures import palette
from gnnsample_lab.figures.matching import byte_unit
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import COMPACT, finish, finite
from gnnsample_lab.readable import percent

POLICIES = {
    "random": "#9AA1AB",
    "degree": palette.HOPS[1],
    "reverse": palette.HOPS[3],
    "presc": palette.HOPS[2],
    "presample": palette.HOPS[2],
    "optimal": palette.HOPS[0],
    "shrunk": palette.HOPS[5],
}
"""One colour per caching policy, by the beginning (or end) of its name in lower case."""

_DASHES = {"optimal": "dash", "random": "dot", "shrunk": "dashdot"}
_BINS = 34
_CELLS = 32


def policy_color(name: str) -> str:
    """Colour of a policy by name or label ("degree", "PreSC#1", ...); ink for one that is not known."""
    name = name.lower()
    found = [c for word, c in POLICIES.items() if name.startswith(word) or name.endswith(word)]
    return found[-1] if found else palette.INK


def _curve(name: str) -> dict[str, Any]:
    """The line of a policy."""
    return {
        "color": policy_color(name),
        "width": 2.5,
        "dash": _DASHES.get(name.lower().split()[-1], "solid"),
    }


@drawn
def hit_rates(
    ratios: Any, rates: Mapping[str, Any], *, marker: float | None = None, label: str = ""
) -> go.Figure:
    """Cache hit rate against cache ratio, one curve per policy (GNNLab, figures 4, 10 and 11b).

    Args:
        ratios: float[k], share of the vertices whose features are cached, 0 to 1, ascending.
        rates: policy -> float[k], share of the accessed rows that are found in the cache, 0 to 1; None for a policy
            that has not been rated yet: it has its place in the legend.
        marker: cache ratio to mark; the legend then says what each policy reaches there.
        label: graph, sampler and origin.

    Raises:
        ValueError: a curve of another length than ``ratios``; a marker beyond them, where no rate is known.
    """
    ratios = np.asarray(ratios, dtype=np.float64)
    if marker is not None and not (len(ratios) and ratios[0] <= marker <= ratios[-1]):
        raise ValueError(f"marker must lie within ratios (got {marker})")
    fig = Sketch()
    for name, rated in rates.items():
        values = np.full(len(ratios), np.nan) if rated is None else np.asarray(rated, dtype=np.float64)
        if len(values) != len(ratios):
            raise ValueError(
                f"rates[{name!r}] must have {len(ratios)} values, as ratios has (got {len(values)})"
            )
        fig.add_scatter(
            name=name,
            legendgroup=name,
            showlegend=marker is None,
            x=ratios * 100,
            y=values * 100,
            mode="lines",
            line=_curve(name),
            hovertemplate="cache %{x:.3g} %<br>hit rate %{y:.1f} %<extra>" + name + "</extra>",
        )
    if marker is not None:
        fig.add_vline(x=marker * 100, line={"color": palette.MUTED, "dash": "dash", "width": 1.5})
        for name, values in rates.items():
            rate = (
                np.nan
                if values is None
                else float(np.interp(marker * 100, ratios * 100, np.asarray(values, dtype=np.float64) * 100))
            )
            fig.add_scatter(
                name=f"{name}: …" if values is None else f"{name}: {rate:.0f} %",
                legendgroup=name,
                x=[marker * 100],
                y=[rate],
                mode="lines+markers",
                line=_curve(name),
                marker={
                    "size": 9,
                    "color": policy_color(name),
                    "line": {"width": 1, "color": palette.PAPER},
                },
                hoverinfo="skip",
            )
    finish(fig, "Cache hit rate", label, height=430, legend=COMPACT)
    fig.update_xaxes(title_text="cache ratio: share of the vertices (%)", rangemode="tozero")
    fig.update_yaxes(title_text="hit rate (%)", range=[0, 102])
    return fig


def cached_mask(order: Any, ratio: float) -> np.ndarray:
    """bool[N]: the vertices that a cache holds which is filled in this order.

    Args:
        order: int[N], vertices, hottest first. ratio: share of the vertices with room in the cache, 0 to 1.

    Raises:
        ValueError: a ratio outside 0..1.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio must lie in 0..1 (got {ratio})")
    order = np.asarray(order)
    mask = np.zeros(len(order), dtype=bool)
    mask[order[: round(ratio * len(order))]] = True
    return mask


@drawn
def bytes_per_batch(moved: Mapping[str, float], *, uncached: float, label: str = "") -> go.Figure:
    """Feature bytes that a mini-batch still moves from host to device, by policy, against no cache at all.

    Args:
        moved: policy -> bytes per mini-batch. uncached: bytes per mini-batch without a cache.
    """
    names = ["no cache", *moved]
    count = np.array([uncached, *moved.values()], dtype=np.float64)
    unit, size = byte_unit(float(count.max()))
    values, share = count / size, count / max(count[0], 1e-12)
    fig = Sketch(
        go.Bar(
            y=names,
            x=values,
            orientation="h",
            marker={"color": [palette.FAINT, *(policy_color(n) for n in moved)], "line": {"width": 0}},
            text=[
                f"{readable.number(v)} {unit}"
                + ("" if n == "no cache" or not uncached else f"  ({percent(s)})")
                for n, v, s in zip(names, values, share, strict=True)
            ],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}<br>%{x:,.4~g} " + unit + "<extra></extra>",
        )
    )
    finish(fig, "Bytes moved per mini-batch", label, height=430, showlegend=False)
    fig.update_xaxes(
        title_text=f"feature bytes from the host ({unit})", range=[0, float(values.max()) * 1.32 or 1.0]
    )
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


class _LogAxis:
    """Bins on a logarithmic axis that also has room for zero: a strip of its own, set apart.

    Attributes:
        edges: float[k + 1], bin edges in powers of ten; the second bin is the gap between zero and the rest.
        zero: where zero is drawn.
        strip: half the width of the room for zero. whole: whether the values are whole numbers.
    """

    def __init__(self, values: np.ndarray) -> None:
        positive = values[values > 0]
        low, high = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 1.0)
        if len(positive) and bool((positive == np.rint(positive)).all()):
            # Whole numbers lie in the middle of their bins, and no bin falls between two of them.
            rough = np.floor(np.geomspace(low, high + 1, _BINS)) - 0.5
            edges = np.unique(np.append(rough[rough < high], high + 0.5))
        else:
            edges = np.geomspace(low / 1.01, high * 1.01, _BINS)
        log = np.log10(edges)
        strip = max(0.04 * (log[-1] - log[0]), 0.02)
        self.whole = bool((positive == np.rint(positive)).all())
        self.strip = strip
        self.zero = float(log[0] - 2 * strip)
        self.edges = np.concatenate([[self.zero - strip, self.zero + strip], log])

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Where values are drawn."""
        return np.where(values > 0, np.log10(np.where(values > 0, values, 1.0)), self.zero)

    def spread(self, values: np.ndarray, cached: np.ndarray, turn: int) -> tuple[np.ndarray, float | None]:
        """Where single vertices are drawn: zeros over their strip, whole numbers up to 0.4 to either side.

        Of equally hot vertices a cache may hold some only: those are drawn beyond the others.

        Returns:
            the places, and that of the line between what is cached and what is not; None where nothing is cached.
        """
        by = _chance(len(values))[turn]
        if not cached.any():
            return self._beside(values, by - 0.5), None
        last = values[cached].min()
        tied = values == last
        share = float((tied & ~cached).sum() / tied.sum())
        if not share:
            return self._beside(values, by - 0.5), self.cut(values, cached)
        by = np.where(tied, np.where(cached, share + by * (1 - share), by * share), by)
        line = self._beside(np.array([last]), np.array([share - 0.5]))
        return self._beside(values, by - 0.5), float(line[0])

    def _beside(self, values: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Places of values that are moved by -0.5 to 0.5 of the room that equal ones have."""
        shifted = values + (0.8 * by if self.whole else 0.0)
        log = np.log10(np.where(values > 0, shifted, 1.0))
        return np.where(values > 0, log, self.zero + 1.6 * self.strip * by)

    def cut(self, values: np.ndarray, cached: np.ndarray) -> float:
        """Where a line below the coldest of what is cached is drawn, and above what is colder: bins end there, too."""
        last = float(values[cached].min())
        if last <= 0:
            return float(self.edges[0])
        colder = values[(values > 0) & (values < last)]
        if not len(colder):
            return float(self.edges[2])
        place = float(np.log10(last - 0.5 if self.whole else np.sqrt(last) * np.sqrt(colder.max())))
        if not np.isclose(self.edges, place, rtol=0, atol=1e-12).any():
            self.edges = np.sort(np.append(self.edges, place))
        return place

    def ticks(self) -> dict[str, Any]:
        """Zero, and the powers of ten."""
        powers = range(int(np.ceil(self.edges[2])), int(np.floor(self.edges[-1])) + 1)
        if len(powers) > 6:
            powers = powers[:: len(powers) // 5]
        names = [f"{10**p:,}" if 0 <= p <= 5 else f"10<sup>{p}</sup>" for p in powers]
        return {"tickmode": "array", "tickvals": [self.zero, *powers], "ticktext": ["0", *names]}


@drawn
def hotness_against_visits(
    score: Any,
    visits: Any,
    cached: Any,
    hottest: Any,
    *,
    policy: str,
    score_name: str,
    visits_name: str = "times read (count)",
    label: str = "",
) -> go.Figure:
    """What a policy believes of every vertex against how often it is really read; the darker, the more vertices.

    A good policy puts the vertices on a rising line. What lies right of the dashed line is cached; what lies above
    the dotted one is what the optimal policy caches. Of vertices as hot as the coldest one cached, which lie there too,
    a cache may hold some only.

    Args:
        score: float[N], the policy's hotness. visits: float[N], reads over the recorded epochs.
        cached: bool[N], vertices that the policy caches. hottest: bool[N], those that the optimal policy caches.
        policy: name of the policy. score_name, visits_name: axis titles, with units.

    Raises:
        ValueError: arrays of different lengths, or a score or a number of reads that is not finite.
    """
    score, visits = finite("score", score), finite("visits", visits)
    cached, hottest = np.asarray(cached, dtype=bool), np.asarray(hottest, dtype=bool)
    if len({len(score), len(visits), len(cached), len(hottest)}) != 1:
        raise ValueError(
            "score, visits, cached and hottest must be of one length "
            f"(got {len(score)}, {len(visits)}, {len(cached)}, {len(hottest)})"
        )
    across, up = _LogAxis(score), _LogAxis(visits)
    upright = across.cut(score, cached) if cached.any() else None
    level = up.cut(visits, hottest) if hottest.any() else None
    counts, _, _ = np.histogram2d(across(score), up(visits), bins=(across.edges, up.edges))
    dark = np.log10(np.where(counts > 0, counts, np.nan)).T
    top = float(np.nanmax(dark)) if counts.any() else 1.0
    ticks = np.arange(0, int(np.floor(top)) + 1)
    fig = Sketch(
        go.Heatmap(
            x=across.edges,
            y=up.edges,
            z=dark,
            customdata=counts.T,
            # The lightest colour of the scale is nearly white: empty cells are not drawn at all.
            colorscale=[[i / 4, c] for i, c in enumerate(palette.ACTIVITY[1:])],
            zmin=0,
            zmax=max(top, 1.0),
            colorbar={
                "title": {"text": "vertices"},
                "tickvals": ticks,
                "ticktext": [f"{10 ** int(t):,}" for t in ticks],
                "thickness": 12,
                "outlinewidth": 0,
            },
            hovertemplate="%{customdata:,} vertices<extra></extra>",
        )
    )
    total, slots = max(float(visits.sum()), 1e-12), max(int(cached.sum()), 1)
    line = {"color": palette.INK, "width": 1.5}
    if upright is not None:
        fig.add_vline(x=upright, line={**line, "dash": "dash"})
    if level is not None:
        fig.add_hline(y=level, line={**line, "dash": "dot"})
    for what, share, x, y in (
        ("passed over", f"{percent(visits[hottest & ~cached].sum() / total)} of all reads", 0, 1),
        ("cached, seldom read", f"{percent((cached & ~hottest).sum() / slots)} of the cache", 1, 0),
        ("cached and hot", f"{percent(visits[hottest & cached].sum() / total)} of all reads", 1, 1),
    ):
        fig.add_annotation(
            text=f"<b>{what}</b><br>{share}",
            x=0.015 if x == 0 else 0.985,
            y=y,
            xref="paper",
            yref="paper",
            xanchor="left" if x == 0 else "right",
            yanchor="top" if y else "bottom",
            align="left" if x == 0 else "right",
            showarrow=False,
            borderpad=3,
            bgcolor=palette.PAPER,  # the lines run behind the words
            font={"size": 13, "color": palette.INK if x == y else palette.LOST},
        )
    finish(fig, f"{policy}: what it believes, and what is read", label, height=450, showlegend=False)
    fig.update_xaxes(title_text=score_name, showgrid=False, **across.ticks())
    # Room for the words above the hottest vertices and below those that are never read.
    room = 0.2 * (up.edges[-1] - up.edges[0])
    fig.update_yaxes(
        title_text=visits_name,
        showgrid=False,
        range=[up.edges[0] - room, up.edges[-1] + room],
        **up.ticks(),
    )
    return fig


@drawn
def hotness_scatter(
    across: Any,
    up: Any,
    cached: Any,
    *,
    names: tuple[str, str],
    axes: tuple[str, str],
    visits: Any,
    why: Mapping[str, Any] | None = None,
    most: int = 1200,
    label: str = "",
) -> go.Figure:
    """Vertices by what two policies believe of them; pointing at one tells why it is hot, and who caches it.

    All that is right of the upright line is cached by the first policy, all that is above the level one by the second.
    Where vertices lie close together, some stand for all: those drawn are spread over the picture, and the shares in
    the legend are of all vertices. Whole numbers are spread a little, so that equal vertices can be told apart.

    Args:
        across, up: float[N], hotness by the first and by the second policy.
        cached: (bool[N], bool[N]), what each of them caches.
        names: of the policies. axes: titles of the axes, with units.
        visits: int[N], reads over the recorded epochs, for the shares in the legend.
        why: name -> what pointing at a vertex tells: a number for each, written behind the name, or a line of text.
        most: about how many vertices are drawn.
        label: graph, sampler and origin.

    Raises:
        ValueError: arrays of different lengths, or a hotness that is not finite.
    """
    scores = [finite("across", across), finite("up", up)]
    masks = [np.asarray(mask, dtype=bool) for mask in cached]
    visits, facts = np.asarray(visits), {name: np.asarray(value) for name, value in (why or {}).items()}
    n = len(scores[0])
    if any(len(array) != n for array in (*scores, *masks, visits, *facts.values())):
        raise ValueError("across, up, cached, visits and why must be of one length")
    scales = [_LogAxis(score) for score in scores]
    spread = [
        scale.spread(score, mask, turn)
        for turn, (scale, score, mask) in enumerate(zip(scales, scores, masks, strict=True))
    ]
    places = [place for place, _ in spread]
    numbers = {name: values for name, values in facts.items() if values.dtype.kind in "iuf"}
    texts = [values for name, values in facts.items() if name not in numbers]
    kind = masks[0] + 2 * masks[1]
    drawn = _thinned(places, kind, most)
    fig = Sketch()
    total, looks = max(float(visits.sum()), 1e-12), _kinds(names)
    for code, (name, color, symbol) in enumerate(looks):
        these, inside = drawn[kind[drawn] == code], kind == code
        share = float(visits[inside].sum()) / total
        fig.add_scattergl(
            name=f"{name}: {percent(share)}",
            x=places[0][these].astype(np.float32),
            y=places[1][these].astype(np.float32),
            mode="markers",
            marker={"size": 4 if code == 0 else 6, "color": color, "symbol": symbol, "opacity": 0.7},
            customdata=np.column_stack([these, *(fact[these] for fact in numbers.values())]),
            text=[
                "<br>".join(words) for words in zip(*(fact[these].tolist() for fact in texts), strict=True)
            ],
            hovertemplate="<b>vertex %{customdata[0]}</b><br>"
            + "".join(f"{fact}: %{{customdata[{i}]:,}}<br>" for i, fact in enumerate(numbers, 1))
            + "%{text}"
            + f"<extra>cached by {name}</extra>",
        )
    line = {"color": palette.MUTED, "width": 1.5, "dash": "dash"}
    if spread[0][1] is not None:
        fig.add_vline(x=spread[0][1], line=line)
    if spread[1][1] is not None:
        fig.add_hline(y=spread[1][1], line=line)
    few = "every vertex" if len(drawn) == n else f"{len(drawn):,} of {n:,} vertices"
    finish(
        fig,
        "Share of the reads by who caches the vertex",
        " · ".join(filter(None, [few, label])),
        height=450,
    )
    fig.update_layout(hoverlabel_align="left", legend={**COMPACT, "itemsizing": "constant"})
    fig.update_xaxes(title_text=axes[0], showgrid=False, **scales[0].ticks())
    fig.update_yaxes(title={"text": axes[1], "font": {"size": 12}}, showgrid=False, **scales[1].ticks())
    return fig


def _kinds(names: tuple[str, str]) -> list[tuple[str, str, str]]:
    """Words, colour and symbol of the vertices that neither caches, the first, the second, both."""
    one, two = names
    return [
        ("neither", palette.MUTED, "circle-open"),
        (f"only {one}", policy_color(one), "square"),
        (f"only {two}", policy_color(two), "diamond"),
        ("both", palette.HOPS[4], "circle"),
    ]


@functools.lru_cache(maxsize=2)
def _chance(n: int) -> np.ndarray:
    """Fixed random numbers for the vertices, float64[3, n], from 0 to 1: a picture drawn again is the same picture."""
    return np.random.default_rng(0).random((3, n))


def _thinned(places: list[np.ndarray], kind: np.ndarray, most: int) -> np.ndarray:
    """About ``most`` vertices, ascending: all where they are sparse, as few as it takes where they are dense."""
    n = len(kind)
    if n <= most:
        return np.arange(n)
    cells = kind.astype(np.int64)
    for place in places:
        low, high = float(place.min()), float(place.max())
        cells = cells * _CELLS + ((place - low) * ((_CELLS - 1e-6) / max(high - low, 1e-12))).astype(np.int64)
    counts = np.bincount(cells)
    full = np.sort(counts[counts > 0])
    # At most so many of a cell that the cells hold `most` together.
    kept = np.cumsum(full) + full * np.arange(len(full) - 1, -1, -1)
    most_of_cell = int(full[max(0, int(np.searchsorted(kept, most, side="right")) - 1)])
    drawn = _chance(n)[2] * counts[cells] < most_of_cell
    one_of_each = np.full(len(counts), -1)
    one_of_each[cells] = np.arange(n)
    drawn[one_of_each[one_of_each >= 0]] = True
    return np.flatnonzero(drawn)


@drawn
def cache_contents(visits: Any, hottest: Any, cached: Mapping[str, Any], *, label: str = "") -> go.Figure:
    """What each policy's cache holds: vertices that optimal keeps too, lukewarm ones, and ones that nobody reads.

    Args:
        visits: float[N], reads over recorded epochs. hottest: bool[N], what the optimal policy caches.
        cached: policy -> bool[N], what that policy caches.
    """
    visits, hottest = np.asarray(visits), np.asarray(hottest, dtype=bool)
    names = list(cached)
    masks = [np.asarray(mask, dtype=bool) for mask in cached.values()]
    kinds = (
        ("among the hottest: optimal keeps it", (visits > 0) & hottest, palette.HOPS[2]),
        ("read, but not often enough", (visits > 0) & ~hottest, palette.HOPS[4]),
        ("never read in these epochs", visits == 0, palette.LOST),
    )
    fig = Sketch()
    for name, kind, color in kinds:
        share = [float((mask & kind).sum()) / max(int(mask.sum()), 1) * 100 for mask in masks]
        fig.add_bar(
            name=name,
            y=names,
            x=share,
            orientation="h",
            marker={"color": color, "line": {"width": 0}},
            text=[f"{s:.0f} %" if s >= 12 else "" for s in share],
            textposition="inside",
            insidetextanchor="middle",
            textfont={"color": palette.text_on(color)},
            hovertemplate="%{y}<br>%{x:.1f} % " + name + "<extra></extra>",
        )
    finish(fig, "What lies in the cache", label, height=170 + 40 * len(names), barmode="stack")
    fig.update_xaxes(title_text="share of the cache's slots (%)", range=[0, 100])
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


@drawn
def epoch_similarities(similarity: Any, *, top: float = 0.1, label: str = "") -> go.Figure:
    """How much of an epoch's hottest reads the next epochs repeat, for every pair (GNNLab, section 6.2, table 2).

    Args:
        similarity: float[n, n], of epoch i (row) to epoch j, 0 to 1.
        top: share of the vertices that counts as hottest.

    Raises:
        ValueError: not a square matrix.
    """
    matrix = np.asarray(similarity, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"similarity must be a square matrix (got shape {matrix.shape})")
    n = len(matrix)
    names = [f"epoch {i + 1}" for i in range(n)]
    shares = matrix * 100
    fig = Sketch(
        go.Heatmap(
            x=names,
            y=names,
            z=shares,
            zmin=0,
            zmax=100,
            colorscale=[[i / 5, c] for i, c in enumerate(palette.ACTIVITY)],
            text=[[f"{v:.0f}" for v in row] for row in shares],
            texttemplate="%{text}",
            xgap=2,
            ygap=2,
            colorbar={"title": {"text": "%"}, "thickness": 12, "outlinewidth": 0},
            hovertemplate="%{y} to %{x}: %{z:.1f} %<extra></extra>",
        )
    )
    others = shares[~np.eye(n, dtype=bool)]
    others = others[np.isfinite(others)]  # an epoch without reads is like none
    mean = f"mean of different epochs {others.mean():.1f} %" if len(others) else ""
    subtitle = " · ".join(filter(None, [label, f"hottest {percent(top)}", mean]))
    finish(fig, "Similarity of epochs (%)", subtitle, height=400, showlegend=False)
    fig.update_xaxes(title_text="to this epoch", showgrid=False)
    fig.update_yaxes(title_text="of this epoch", autorange="reversed", showgrid=False)
    return fig
