"""What consecutive mini-batches share, in which order to train them, and what that saves."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import traitlets

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.bench import titled
from gnnsample_lab.readable import noun, percent

from ...batches import RUN, draw_batches, feature_sources, groupings
from ...graphs import batch_options, sampled_on, seed_pool
from ...shell.controls import Choice, Control, Slider
from ...shell.recipe import Panels, Recipe
from ..fanouts import FanoutExplorer

METHODS = ["greedy", "two-opt", "exact"]
EXACT_LIMIT = 16
MOST_BATCHES = 32
ASSUMED_FEATURES = 128
"""Features per vertex where the graph has none."""

ROWS_TITLE = "Where the features come from (rows counted)"
AS_SAMPLED = "as sampled"


def sample(
    g: Any,
    on_device: Any,
    device: str,
    fanouts: list[int],
    num_batches: int,
    batch_size: int,
    grouping: str,
    seed: int,
) -> Any:
    """Global ids of each batch of the window, the match degrees of the batches, and the vertices that they share."""
    sampler = lab.NeighborSampler(on_device, fanouts, seed=seed, device=device)
    batches = sampler.sample_many(draw_batches(g, num_batches, batch_size, grouping=grouping, seed=seed))
    ids = [batch.to_cpu().node_ids for batch in batches]
    return ids, lab.match_degrees(batches), lab.overlaps(batches)


def arrange(window: Any, method: str) -> np.ndarray:
    """The order in which the batches are trained."""
    return lab.reorder(window[1], method=method)


def rank(host: Any, with_cache: bool) -> Any:
    """The vertices by out-degree, the highest first; None where nothing is cached."""
    return lab.hotness(host, "degree").order if with_cache else None


def count_rows(host: Any, window: Any, order: Any, method: str, ranked: Any, cache_percent: int) -> Any:
    """Rows by where they come from, for each way to go through the window."""
    ids, straight = window[0], np.arange(len(window[0]))
    rows = feature_sources(ids, {"each by itself": None, "match": straight, f"match, {method}": order})
    if cache_percent:
        cached = np.zeros(host.num_nodes, dtype=bool)
        cached[ranked[: round(cache_percent / 100 * host.num_nodes)]] = True
        ways = {"cache alone": None, "match, cache": straight, f"match, {method}, cache": order}
        rows |= feature_sources(ids, ways, cached)
    return rows


def count_needed(host: Any, window: Any, ranked: Any, cache_percent: int) -> np.ndarray:
    """Rows that two batches have in common and no cache holds, int64[n, n]."""
    if not cache_percent:
        return window[2]
    cached = np.zeros(host.num_nodes, dtype=bool)
    cached[ranked[: round(cache_percent / 100 * host.num_nodes)]] = True
    return lab.overlaps([batch[~cached[batch]] for batch in window[0]])


def row_bytes(graph: Any) -> int:
    """Bytes of a feature row; of 128 float32 where the graph has no features."""
    if graph.feat is None:
        return 4 * ASSUMED_FEATURES
    return int(graph.feat.shape[1] * graph.feat.dtype.itemsize)


def describe(
    g: Any, device: str, fanouts: list[int], num_batches: int, batch_size: int, grouping: str
) -> str:
    """What was sampled, for labels."""
    return (
        f"{titled(g, 'match degree')} · {num_batches} × {batch_size:,} {noun(batch_size, 'seed')} {grouping} "
        f"· fanouts {', '.join(map(str, fanouts))} · {sampled_on(device)}"
    )


def priced(g: Any, where: str) -> str:
    """A label of a figure with bytes: what a row is taken for where the graph has none."""
    if g.feat is not None:
        return where
    return f"{where} · rows of {ASSUMED_FEATURES} float32 assumed, the graph has none"


def tours_of(order: Any, method: str) -> dict[str, Any]:
    """Name of a way through the window -> the order in which it takes the batches."""
    return {AS_SAMPLED: np.arange(len(order)), method: order}


def draw_degrees(window: Any, tours: dict[str, Any], batch_a: int, batch_b: int, where: str) -> Any:
    """Match degrees as sampled."""
    return figures.match_heatmap(window[1], tours, pair=(batch_a - 1, batch_b - 1), subtitle=where)


def draw_reordered(window: Any, order: Any, method: str, batch_a: int, batch_b: int, where: str) -> Any:
    """Match degrees in the order of training."""
    title, pair = f"In the order of {method}", (batch_a - 1, batch_b - 1)
    return figures.match_heatmap(
        window[1], {method: order}, order=order, title=title, pair=pair, subtitle=where
    )


def draw_pair(g: Any, window: Any, batch_a: int, batch_b: int, where: str) -> Any:
    """The vertices of two batches."""
    shared, a, b = window[2], batch_a - 1, batch_b - 1
    return figures.shared_vertices(
        int(shared[a, a]),
        int(shared[b, b]),
        int(shared[a, b]),
        names=(f"batch {batch_a}", f"batch {batch_b}"),
        row_bytes=row_bytes(g),
        subtitle=priced(g, where),
    )


def draw_strips(g: Any, tours: dict[str, Any], needed: Any, cache_percent: int, where: str) -> Any:
    """What the steps of both tours copy."""
    cache = f"{cache_percent} % of the rows in a cache · " if cache_percent else ""
    return figures.tour_strips(needed, tours, row_bytes(g), subtitle=cache + priced(g, where))


def draw_rows(g: Any, rows: Any, where: str) -> Any:
    return figures.feature_rows(rows, row_bytes(g), title=ROWS_TITLE, subtitle=priced(g, where))


def draw_tour(window: Any, tours: dict[str, Any], where: str) -> Any:
    """What the steps of both tours share."""
    return figures.match_tour(window[1], tours, subtitle=where)


class MatchExplorer(FanoutExplorer):
    """Match degrees of a window of mini-batches, two of them held against each other, and tours through the window.

    A click on a cell of a map sets the two batches, as their sliders do.

    State: ``batch_size``, ``num_batches`` (the window that is reordered; at most 16 where ``method`` is "exact"),
    ``hops``, ``fanout_1`` .. ``fanout_3``, ``grouping`` (which seeds share a batch), ``method`` (of the reordering),
    ``cache_percent`` (share of the vertices whose rows a cache holds, those of highest out-degree), ``seed``,
    ``batch_a`` and ``batch_b`` (the two batches whose vertices are drawn, counted from 1).

    The batches are sampled for real and the rows counted; nothing here is timed. Where there are fewer vertices to draw
    seeds from than the least window has batches, one line says so, and nothing is drawn. See
    :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "Match and reorder: what the next batch need not load"
    from_split = True
    recipe: ClassVar[Recipe] = {
        "window": sample,
        "order": arrange,
        "ranked": rank,
        "rows": count_rows,
        "needed": count_needed,
        "where": describe,
        "tours": tours_of,
        "shown": Panels(
            degrees=draw_degrees,
            pair=draw_pair,
            strips=draw_strips,
            reordered=draw_reordered,
            bytes=draw_rows,
            tour=draw_tour,
        ),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "Match degree": ("degrees", "pair"),
        "Reorder": ("strips", "reordered"),
        "Bytes": ("bytes", "tour"),
    }

    batch_size = traitlets.Int(256).tag(state=True)
    num_batches = traitlets.Int(16).tag(state=True)
    fanout_1 = traitlets.Int(5).tag(state=True)
    fanout_3 = traitlets.Int(15).tag(state=True)
    grouping = traitlets.Unicode("shuffled").tag(state=True)
    method = traitlets.Unicode("greedy").tag(state=True)
    cache_percent = traitlets.Int(0).tag(state=True)
    seed = traitlets.Int(0).tag(state=True)
    batch_a = traitlets.Int(1).tag(state=True)
    batch_b = traitlets.Int(2).tag(state=True)

    def prepare(self, state: dict[str, Any]) -> None:
        room = len(seed_pool(self.graph))
        # Sizes of which a whole window fits: no setting of one control may forbid one of another.
        self._most = min(MOST_BATCHES, max(RUN, room // RUN * RUN))
        self._sizes = batch_options(self.graph, max(1, min(4096, room // self._most)))
        if "batch_size" not in state:
            self.batch_size = min(self.batch_size, self._sizes[-1])
        if "num_batches" not in state:
            self.num_batches = min(self.num_batches, self._most)

    def build_controls(self) -> dict[str, Control]:
        controls: list[Control] = [
            Slider("batch_size", "Batch size", self.batch_size, options=self._sizes, unit=" seeds"),
            Slider("num_batches", "Window (batches)", self.num_batches, min=RUN, max=self._most, step=RUN),
            *self.hop_sliders("Hops"),
            Slider("cache_percent", "Rows in the cache", self.cache_percent, max=50, unit=" %"),
            Slider("seed", "Random seed", self.seed, max=99),
            Choice("grouping", "Seeds of a batch", self.grouping, groupings(self.graph)),
            Choice("method", "Reorder", self.method, METHODS),
            Slider("batch_a", "Batch A of the pair", self.batch_a, min=1, max=self.num_batches),
            Slider("batch_b", "Batch B of the pair", self.batch_b, min=1, max=self.num_batches),
        ]
        return {control.name: control for control in controls}

    def adapt(self) -> None:
        super().adapt()
        # The time and the memory of exact double with every batch.
        most = min(EXACT_LIMIT, self._most) if self.method == "exact" else self._most
        window = self.controls["num_batches"]
        if window.max != most:
            window.set_limits(RUN, most)
        for name in ("batch_a", "batch_b"):
            self.controls[name].set_limits(1, self.num_batches)

    def clicked(self, panel: str, mark: dict[str, Any]) -> None:
        if panel not in ("degrees", "reordered"):
            return
        batches = self.figures[panel].data[0].customdata
        row, column = int(mark["y"]), int(mark["x"])
        if 0 <= row < len(batches) and 0 <= column < len(batches):
            first, second = batches[row, column].tolist()
            self.set(batch_a=first, batch_b=second)

    def compute(self, state: dict[str, Any]) -> tuple[Mapping[str, Any], Callable[[], str]]:
        room = len(seed_pool(self.graph))
        if room >= RUN:
            return super().compute(state)
        few = f"{html.escape(self.graph.title, quote=False)} has {room} of them"
        return {}, lambda: f"A window of {RUN} mini-batches needs {RUN} vertices to draw seeds from: {few}."

    def parameters(self, state: dict[str, Any]) -> dict[str, Any]:
        return {**super().parameters(state), "with_cache": state["cache_percent"] > 0}

    def summary(self, made: dict[str, Any]) -> str:
        text = self._summary_of(made["window"][1], made["order"], made["rows"])
        if made["method"] == "exact" and self._most > EXACT_LIMIT:
            text += f" <b>exact</b>: at most {EXACT_LIMIT} batches."
        return text

    def _summary_of(
        self, degrees: np.ndarray, order: np.ndarray, rows: dict[str, tuple[int, int, int]]
    ) -> str:
        n = len(degrees)
        before = lab.path_score(degrees, np.arange(n)) / (n - 1)
        after = lab.path_score(degrees, order) / (n - 1)
        # With rows in the cache the last three are beside it.
        plain, matched, ordered = (max(1, counts[2]) for counts in list(rows.values())[-3:])
        beside = "Beside the cache Match" if len(rows) > 3 else "Match"
        text = (
            f"A batch finds <b>{percent(before, 1)}</b> of its rows (of the smaller batch's, on average) in the "
            f"batch before. "
            f"{beside} saves <b>{percent(1 - matched / plain, 1)}</b> of the copies. Reordering "
        )
        moves = "raises the mean to" if after > before else "lowers the mean to"
        if np.isclose(after, before):
            moves = "leaves the mean at"
        text += f"{moves} <b>{percent(after, 1)}</b> and "
        if ordered == matched:
            return text + "copies as much."
        if ordered < matched:
            return text + f"saves <b>{percent(1 - ordered / matched, 1)}</b> of what was left."
        text += f"copies <b>{percent(ordered / matched - 1, 1)} more</b>: "
        if after < before:
            return text + "the order as sampled was the better one."
        return (
            text
            + "match degree divides by the <i>smaller</i> batch, bytes do not, and these batches differ in size."
        )
