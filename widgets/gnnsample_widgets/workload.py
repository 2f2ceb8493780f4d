"""Work per hop, what it costs, and the execution strategies side by side."""

from __future__ import annotations

from typing import Any, ClassVar

import plotly.graph_objects as go
import traitlets

from gnnsample_lab import MiniBatch, NeighborSampler, SampleTrace, figures, strategies

from .controls import Choice, Control, Slider, Switch
from .fanouts import FanoutExplorer
from .graphs import batch_options, draw_seeds, seed_lines, seed_pool
from .recorded import modelled


class WorkloadExplorer(FanoutExplorer):
    """How many vertices each hop expands, how long that takes, how busy the GPU is, and who does it faster.

    State: ``batch_size``, ``hops``, ``fanout_1`` .. ``fanout_3``, ``strategy`` (looked at closely),
    ``baseline`` (set against it), ``pick`` (rule of the draw), ``seed`` (of the generator and of the choice
    of seeds), ``every_strategy`` (compare all, not just these two).

    On a GPU the traces are measured, elsewhere they are modelled; every figure says which. See
    :class:`~gnnsample_widgets.explorer.Explorer` for the arguments.
    """

    heading = "Work per hop, and what each strategy makes of it"
    panel_flex: ClassVar[dict[str, tuple[int, int]]] = dict.fromkeys(
        ("work", "times", "utilisation", "strategies"), (1, 500)
    )

    batch_size = traitlets.Int(256).tag(state=True)
    strategy = traitlets.Unicode("persistent").tag(state=True)
    baseline = traitlets.Unicode("block-bsp").tag(state=True)
    pick = traitlets.Unicode("reservoir").tag(state=True)
    seed = traitlets.Int(0).tag(state=True)
    every_strategy = traitlets.Bool(True).tag(state=True)

    def prepare(self, state: dict[str, Any]) -> None:
        self._pool = seed_pool(self.graph)
        if "batch_size" not in state:
            self.batch_size = min(self.batch_size, max(batch_options(self.graph, 8192)))

    def build_controls(self) -> dict[str, Control]:
        names = [name for name in strategies() if name != "auto"]
        controls: list[Control] = [
            Slider(
                "batch_size",
                "Batch size",
                self.batch_size,
                options=batch_options(self.graph, 8192),
                unit=" seeds",
            ),
            *self.hop_sliders("Hops"),
            Slider("seed", "Random seed", self.seed, max=99),
            Choice("strategy", "Strategy", self.strategy, names),
            Choice("baseline", "Set against", self.baseline, names),
            Choice("pick", "Rule of the draw", self.pick, ["reservoir", "floyd"]),
            Switch("every_strategy", "Compare all strategies", self.every_strategy),
        ]
        return {control.name: control for control in controls}

    def _sample(self, state: dict[str, Any], strategy: str) -> MiniBatch:
        sampler = NeighborSampler(
            self.device_graph,
            self.fanouts(state),
            strategy=strategy,
            pick=state["pick"],
            seed=state["seed"],
            device=self.device,
            trace=self.device == "cuda",
        )
        batch: MiniBatch = sampler.sample(draw_seeds(self._pool, state["batch_size"], state["seed"]))
        return batch

    def _traces(self, state: dict[str, Any], wanted: list[str]) -> dict[str, SampleTrace]:
        """Traces by strategy: each measured on a GPU; without one, one sample replayed under every
        strategy."""
        # Which strategies are looked at changes nothing in what the others did.
        sampled = tuple(
            (k, v) for k, v in state.items() if k not in ("strategy", "baseline", "every_strategy")
        )
        traces: dict[str, SampleTrace] = self.remember(sampled, dict)
        missing = [name for name in wanted if name not in traces]
        if self.device == "cuda":
            traces.update({name: self._sample(state, name).trace for name in missing})
        elif missing:
            batch = self._sample(state, missing[0])
            traces.update({name: modelled(self.host_graph, batch, name) for name in missing})
        return traces

    def _chosen(self, state: dict[str, Any]) -> list[str]:
        return list(dict.fromkeys([state["baseline"], state["strategy"]]))

    def _compared(self, state: dict[str, Any]) -> list[str]:
        others = [name for name in strategies() if name != "auto"] if state["every_strategy"] else []
        return list(dict.fromkeys([state["baseline"], *([] if others else [state["strategy"]]), *others]))

    def compute(self, state: dict[str, Any]) -> tuple[dict[str, go.Figure], str]:
        traces = self._traces(state, list(dict.fromkeys(self._compared(state) + self._chosen(state))))
        pair = [traces[name] for name in self._chosen(state)]
        shown = {
            "work": figures.work_per_hop(traces[state["strategy"]]),
            "times": figures.hop_times(pair),
            "utilisation": figures.utilisation(pair),
            "strategies": figures.strategy_comparison([traces[name] for name in self._compared(state)]),
        }
        return shown, self._summary_of(pair)

    def _summary_of(self, pair: list[SampleTrace]) -> str:
        work = pair[-1].hops.workload
        growth = " → ".join(f"{int(n):,}" for n in work)
        text = f"Vertices expanded: <b>{growth}</b>. "
        if len(pair) == 1:
            return text + f"<b>{pair[0].strategy}</b> takes {pair[0].total_us:,.0f} µs, {pair[0].label}."
        slow, fast = pair
        share = slow.preprocess_us / slow.total_us if slow.total_us else 0.0
        ratio = slow.total_us / fast.total_us if fast.total_us else float("nan")
        relation = f"{ratio:.1f} times as long as" if ratio >= 1 else f"{ratio:.2f} of the time of"
        return (
            text
            + f"<b>{slow.strategy}</b> takes {relation} <b>{fast.strategy}</b>, and spends {share:.0%} of it "
            f"outside its sampling kernels ({slow.label})."
        )

    def code_lines(self, state: dict[str, Any]) -> list[str]:
        return [
            *seed_lines(self.graph, state["batch_size"], state["seed"]),
            "",
            "def trace(strategy):",
            f"    sampler = lab.NeighborSampler(g, {self.fanouts(state)}, strategy=strategy, "
            f"pick={state['pick']!r}, "
            f"seed={state['seed']}, device={self.device!r}, trace=True)",
            "    return sampler.sample(seeds).trace",
            "",
            f"pair = [trace(name) for name in {self._chosen(state)}]",
            "shown = {",
            '    "work": figures.work_per_hop(pair[-1]),',
            '    "times": figures.hop_times(pair),',
            '    "utilisation": figures.utilisation(pair),',
            f'    "strategies": figures.strategy_comparison([trace(name) for name in '
            f"{self._compared(state)}]),",
            "}",
        ]
