"""A player for one run: who ran which task when, how deep the queue was, and what a completion rule lost."""

from __future__ import annotations

from typing import Any, ClassVar

import plotly.graph_objects as go
import traitlets

from gnnsample_lab import MiniBatch, NeighborSampler, SampleTrace, figures, strategies
from gnnsample_lab.sampling.neighbors.strategies import QUEUE_STRATEGIES
from gnnsample_lab.traces import queue_stats

from .controls import Choice, Control, Slider
from .explorer import Explorer
from .graphs import batch_options, draw_seeds, seed_lines, seed_pool
from .recorded import measured_traces, modelled, modelled_as_measured

MAX_HOPS = 3
MODEL = "GPU model"
LIVE = "this GPU, measured now"
BLOCKS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
FETCHING = ("persistent", "persistent-tile")


class QueueExplorer(Explorer):
    """The run of one mini-batch, played back: SMs over time, queue depth, tasks at work, lost tasks.

    State: ``source`` (the GPU model, the GPU of this host, or a measured trace that was shipped),
    ``strategy``, ``completion`` ("exact", or "paper" for PGSampler's Algorithm 1 as printed), ``fetch_size``,
    ``num_blocks`` (of the model; at most what is resident), ``batch_size``, ``hops``, ``fanout`` (of every
    hop), ``pick``, ``seed``, ``time_percent`` (how much of the run has been played).

    With a measured source, the model's version of the same run is laid over it where ``graph`` is the graph
    that was measured. See :class:`~gnnsample_widgets.explorer.Explorer` for the arguments.
    """

    heading = "The queue at work: who runs which task when"
    panel_flex: ClassVar[dict[str, tuple[int, int]]] = {
        "gantt": (1, 900),
        "overlay": (1, 900),
        "queue": (1, 430),
        "running": (1, 430),
    }

    source = traitlets.Unicode("").tag(state=True)
    strategy = traitlets.Unicode("persistent").tag(state=True)
    completion = traitlets.Unicode("exact").tag(state=True)
    fetch_size = traitlets.Int(5).tag(state=True)
    num_blocks = traitlets.Int(32).tag(state=True)
    batch_size = traitlets.Int(64).tag(state=True)
    hops = traitlets.Int(3).tag(state=True)
    fanout = traitlets.Int(5).tag(state=True)
    pick = traitlets.Unicode("reservoir").tag(state=True)
    seed = traitlets.Int(0).tag(state=True)
    time_percent = traitlets.Int(100).tag(state=True)

    def prepare(self, state: dict[str, Any]) -> None:
        self._pool = seed_pool(self.graph)
        self._files = measured_traces()
        if "batch_size" not in state:
            self.batch_size = min(self.batch_size, max(batch_options(self.graph, 1024)))
        if "source" not in state:
            self.source = LIVE if self.device == "cuda" else MODEL

    def build_controls(self) -> dict[str, Control]:
        sources = [MODEL, *([LIVE] if self.device == "cuda" else []), *self._files]
        names = [name for name in strategies() if name != "auto"]
        controls: list[Control] = [
            Slider(
                "time_percent", "Time played", self.time_percent, unit=" %", playable=True, interval_ms=180
            ),
            Slider("fetch_size", "Fetch size", self.fetch_size, min=1, max=16, unit=" tasks"),
            Slider("num_blocks", "Thread blocks, at most", self.num_blocks, options=BLOCKS),
            Slider(
                "batch_size",
                "Batch size",
                self.batch_size,
                options=batch_options(self.graph, 1024),
                unit=" seeds",
            ),
            Slider("hops", "Hops", self.hops, min=1, max=MAX_HOPS),
            Slider("fanout", "Fanout of every hop", self.fanout, min=1, max=15),
            Slider("seed", "Random seed", self.seed, max=99),
            Choice("strategy", "Strategy", self.strategy, names),
            Choice("completion", "Completion rule", self.completion, ["exact", "paper"]),
            Choice("pick", "Rule of the draw", self.pick, ["reservoir", "floyd"]),
            Choice("source", "Where the times come from", self.source, sources),
        ]
        return {control.name: control for control in controls}

    def adapt(self) -> None:
        fixed = self.source not in (MODEL, LIVE)
        for name, control in self.controls.items():
            control.disabled = fixed and name not in ("source", "time_percent")
        if fixed:
            return
        self.controls["num_blocks"].disabled = self.source == LIVE or self.strategy not in FETCHING
        self.controls["fetch_size"].disabled = self.strategy not in FETCHING
        self.controls["completion"].disabled = self.strategy != "persistent"
        if self.strategy != "persistent":
            # Algorithm 1 is the persistent kernel's; no other strategy has its rule.
            self.completion = "exact"

    def compute(self, state: dict[str, Any]) -> tuple[dict[str, go.Figure], str]:
        run = tuple((name, value) for name, value in state.items() if name != "time_percent")
        trace, model, shown = self.remember(run, lambda: self._run_of(state))
        until_us = None if state["time_percent"] == 100 else trace.total_us * state["time_percent"] / 100
        for name in ("gantt", "queue", "running"):
            figures.set_cursor(shown[name], until_us)
        return dict(shown), self._summary_of(trace, model, until_us)

    def _run_of(self, state: dict[str, Any]) -> tuple[SampleTrace, SampleTrace | None, dict[str, go.Figure]]:
        """The trace, the model beside a measured one, and their figures without a time cursor."""
        trace, model = self._trace_of(state)
        shown = {
            "gantt": figures.gantt(trace),
            "queue": figures.queue_depth(trace),
            "running": figures.running_tasks(trace),
        }
        if model is not None:
            shown["overlay"] = figures.model_vs_measurement(model, trace)
        return trace, model, shown

    def _trace_of(self, state: dict[str, Any]) -> tuple[SampleTrace, SampleTrace | None]:
        if state["source"] == MODEL:
            # The sample itself is complete, whatever the completion rule will lose of it.
            batch = self._sample(state, "cpu", trace=False)
            knobs = {"num_blocks": state["num_blocks"]} if state["strategy"] in FETCHING else {}
            queue = {"fetch_size": state["fetch_size"], "completion": state["completion"]}
            return modelled(self.host_graph, batch, state["strategy"], **knobs, **queue), None
        if state["source"] == LIVE:
            trace = self._sample(state, "cuda", trace=True).trace
        else:
            trace = SampleTrace.load(self._files[state["source"]])
        return trace, modelled_as_measured(self.host_graph, trace)

    def _sample(self, state: dict[str, Any], device: str, *, trace: bool) -> MiniBatch:
        sampler = NeighborSampler(
            self.device_graph if device == "cuda" else self.host_graph,
            [state["fanout"]] * state["hops"],
            strategy=state["strategy"],
            pick=state["pick"],
            seed=state["seed"],
            device=device,
            trace=trace,
            fetch_size=state["fetch_size"],
            completion=state["completion"] if trace else "exact",
        )
        batch: MiniBatch = sampler.sample(draw_seeds(self._pool, state["batch_size"], state["seed"]))
        return batch

    def _summary_of(self, trace: SampleTrace, model: SampleTrace | None, until_us: float | None) -> str:
        total = len(trace.tasks) + len(trace.lost)
        when = trace.total_us if until_us is None else until_us
        done = int((trace.tasks.end_us <= when).sum())
        parts = [
            f"<b>{trace.strategy}</b>, {trace.label}: after {when:,.0f} of {trace.total_us:,.0f} µs, "
            f"<b>{done:,}</b> of {total:,} tasks are done."
        ]
        if len(trace.queue):
            stats = queue_stats(trace)
            parts.append(
                f"The queue is deepest at {stats.peak_time_us:,.0f} µs, with {stats.peak:,} tasks waiting."
            )
        elif trace.strategy not in QUEUE_STRATEGIES:
            parts.append("It has no queue: a barrier separates its hops.")
        if len(trace.lost):
            left = int(trace.lost.abandoned.sum())
            rest = len(trace.lost) - left
            parts.append(
                f'<span class="gs-lost"><b>{len(trace.lost):,} tasks ({len(trace.lost) / total:.0%}) are lost'
                f"</b>: the blocks that had claimed the slots of {left:,} left before they were filled"
                + (f", and the other {rest:,} would have followed from those.</span>" if rest else ".</span>")
            )
        if trace.origin == "measured" and model is None:
            parts.append(
                f"Load {trace.graph_name} as this explorer's graph to see the model beside the measurement."
            )
        return " ".join(parts)

    def code_lines(self, state: dict[str, Any]) -> list[str]:
        lines = ["from gnnsample_widgets import recorded", ""]
        if state["source"] in (MODEL, LIVE):
            live = state["source"] == LIVE
            fanouts, kind = [state["fanout"]] * state["hops"], f"strategy={state['strategy']!r}"
            queue = f"fetch_size={state['fetch_size']}, completion={state['completion']!r}"
            lines += [
                *seed_lines(self.graph, state["batch_size"], state["seed"]),
                f"sampler = lab.NeighborSampler(g, {fanouts}, {kind}, pick={state['pick']!r}, "
                f"seed={state['seed']}, "
                + (f'{queue}, device="cuda", trace=True)' if live else 'device="cpu")'),
            ]
            knobs = f"num_blocks={state['num_blocks']}, {queue}" if state["strategy"] in FETCHING else queue
            call = f'recorded.modelled(g.to("cpu"), sampler.sample(seeds), {state["strategy"]!r}, {knobs})'
            lines.append(f"trace = {'sampler.sample(seeds).trace' if live else call}")
        else:
            lines.append(f"trace = lab.SampleTrace.load(recorded.measured_traces()[{state['source']!r}])")
        percent = state["time_percent"]
        lines += [
            "until_us = None" if percent == 100 else f"until_us = trace.total_us * {percent} / 100",
            "shown = {",
            '    "gantt": figures.gantt(trace, until_us=until_us),',
            '    "queue": figures.queue_depth(trace, until_us=until_us),',
            '    "running": figures.running_tasks(trace, until_us=until_us),',
            "}",
        ]
        if "overlay" in self.figures:
            lines += [
                'model = recorded.modelled_as_measured(g.to("cpu"), trace)',
                'shown["overlay"] = figures.model_vs_measurement(model, trace)',
            ]
        return lines
