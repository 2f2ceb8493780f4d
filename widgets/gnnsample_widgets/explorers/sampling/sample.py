"""One k-hop sample, drawn: which neighbours were picked, hop by hop."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import traitlets

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.readable import noun

from ...graphs import sampled_on
from ...shell.controls import Control, Slider, Switch
from ...shell.recipe import Panels, Recipe
from ..fanouts import FanoutExplorer

FAINT = 30
"""Neighbours that were not sampled and are drawn all the same: a few, to show that there was a choice."""


def sample(
    on_device: Any, device: str, seed_vertex: int, fanouts: list[int], replace: bool, seed: int
) -> Any:
    """One k-hop sample and the trace of its run, on the CPU."""
    sampler = lab.NeighborSampler(on_device, fanouts, replace=replace, seed=seed, device=device, trace=True)
    return sampler.sample([seed_vertex]).to_cpu()


def place(batch: Any, host: Any) -> Any:
    """Where the vertices are drawn, at every number of hops shown."""
    return figures.sample_layout(batch.picks, host, max_unsampled=FAINT)


def draw(batch: Any, host: Any, positions: Any, device: str, hops_shown: int) -> Any:
    return figures.sample_drawing(
        batch,
        hops_shown - 1,
        graph=host,
        label=sampled_on(device),
        positions=positions,
        max_unsampled=FAINT,
    )


def draw_work(batch: Any) -> Any:
    return figures.work_per_hop(batch.trace)


class SampleExplorer(FanoutExplorer):
    """A k-hop sample of one seed vertex as a drawing that grows hop by hop, and its work per hop.

    State: ``seed_vertex`` (global id), ``hops``, ``fanout_1`` .. ``fanout_3`` (hop 1 next to the seed),
    ``hops_shown`` (0 shows the seed alone), ``seed`` (of the generator), ``replace``.

    Small fanouts only: a drawing of more than a few hundred vertices explains nothing. See
    :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "What is sampled: one seed, hop by hop"
    recipe: ClassVar[Recipe] = {
        "batch": sample,
        "positions": place,
        "shown": Panels(drawing=draw, work=draw_work),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {"Sample and its work": ("drawing", "work")}
    shares: ClassVar[dict[str, int]] = {"drawing": 5, "work": 4}

    max_fanout: ClassVar[int] = 6

    seed_vertex = traitlets.Int(0).tag(state=True)
    hops = traitlets.Int(2).tag(state=True)
    fanout_1 = traitlets.Int(4).tag(state=True)
    fanout_2 = traitlets.Int(3).tag(state=True)
    fanout_3 = traitlets.Int(2).tag(state=True)
    hops_shown = traitlets.Int(2).tag(state=True)
    seed = traitlets.Int(0).tag(state=True)
    replace = traitlets.Bool(False).tag(state=True)

    def prepare(self, state: dict[str, Any]) -> None:
        """Start from a vertex with more neighbours than the fanout, or there would be nothing to choose."""
        if "seed_vertex" not in state:
            degrees = np.diff(self.host_graph.indptr)
            enough = np.flatnonzero((degrees >= 8) & (degrees <= 16))
            self.seed_vertex = int(enough[len(enough) // 2] if len(enough) else degrees.argmax())
        if "hops_shown" not in state:
            hops = state.get("hops", self.hops)
            if isinstance(hops, int):  # what is none is refused under its own name
                self.hops_shown = hops

    def build_controls(self) -> dict[str, Control]:
        controls: list[Control] = [
            Slider(
                "seed_vertex",
                "Seed vertex",
                self.seed_vertex,
                max=max(0, self.graph.num_nodes - 1),
                typed=True,
            ),
            *self.hop_sliders("Hops sampled"),
            Slider(
                "hops_shown",
                "Hops shown",
                self.hops_shown,
                max=max(self.hops, self.hops_shown),
                playable=True,
                interval_ms=1200,
            ),
            Slider("seed", "Random seed", self.seed, max=99),
            Switch("replace", "With replacement", self.replace),
        ]
        return {control.name: control for control in controls}

    def adapt(self) -> None:
        super().adapt()
        shown = self.controls["hops_shown"]
        if shown.max != self.hops:
            # Whoever looked at the whole sample wants to go on doing so.
            was_all = self.hops_shown == shown.max
            shown.set_limits(0, self.hops)
            if was_all:
                self.hops_shown = self.hops

    def summary(self, made: dict[str, Any]) -> str:
        batch, vertex = made["batch"], made["seed_vertex"]
        degree = int(self.host_graph.indptr[vertex + 1] - self.host_graph.indptr[vertex])
        if degree == 0:
            return f"Vertex <b>{vertex}</b> has no in-neighbours: there is nothing to sample. Choose another one."
        upper = int(np.prod([fanout + 1 for fanout in made["fanouts"]]))
        return (
            f"Vertex <b>{vertex}</b> has in-degree <b>{degree:,}</b>. The sample reaches <b>{batch.num_nodes:,}</b> "
            f"distinct {noun(batch.num_nodes, 'vertex', 'vertices')} over <b>{batch.num_edges:,}</b> "
            f"{noun(batch.num_edges, 'pick')}; with these fanouts it could reach at most "
            f"{upper:,}."
        )
