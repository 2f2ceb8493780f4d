"""A player for one run: who ran which task when, how deep the queue was, and what a completion rule lost."""

from __future__ import annotations

import html
from typing import Any, ClassVar

import numpy as np
import traitlets

import gnnsample_lab as lab
from gnnsample_lab import figures, strategies
from gnnsample_lab.device import runtime
from gnnsample_lab.gpu_model.run_error import has_times, in_words
from gnnsample_lab.graph.catalogue import entries
from gnnsample_lab.readable import noun, percent
from gnnsample_lab.sampling.neighbors.strategies import QUEUE_STRATEGIES
from gnnsample_lab.traces import queue_stats

from ... import recorded
from ...graphs import batch_options, draw_seeds
from ...shell.controls import Choice, Control, Slider
from ...shell.explorer import Explorer
from ...shell.recipe import Panels, Recipe, Where, follow

MAX_HOPS = 3
MODEL = "GPU model"
LIVE = "this GPU, measured now"
BLOCKS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
FETCHING = ("persistent", "persistent-tile")
SLOTS = "Slots at this time"
NONE = "–"


def run(
    host: Any,
    on_device: Any,
    source: str,
    seeds: Any,
    strategy: str,
    completion: str,
    fetch_size: int,
    num_blocks: int,
    hops: int,
    fanout: int,
    pick: str,
    seed: int,
) -> Any:
    """The trace of one run: by the GPU model, measured now, or one that was measured and shipped."""
    if source not in (MODEL, LIVE):
        return lab.SampleTrace.load(recorded.measured_traces()[source])
    draws: Any = {"fanouts": [fanout] * hops, "strategy": strategy, "pick": pick, "seed": seed}
    queue: Any = {"fetch_size": fetch_size, "completion": completion}
    if source == LIVE:
        sampler = lab.NeighborSampler(on_device, **draws, **queue, device="cuda", trace=True)
        return sampler.sample(seeds).trace
    # The sample itself is complete, whatever the completion rule will lose of it.
    batch = lab.NeighborSampler(host, **draws, device="cpu").sample(seeds)
    if strategy in FETCHING:
        queue["num_blocks"] = num_blocks
    return recorded.modelled(host, batch, strategy, **queue)


def model_beside(trace: Any, host: Any) -> Any:
    """The model's version of a measured run; None without one, or where the graph is another."""
    return recorded.modelled_as_measured(host, trace) if trace.origin == "measured" else None


def instant(trace: Any, time_percent: int) -> float | None:
    """The time that is played, in microseconds; None for the whole run."""
    return None if time_percent == 100 else float(trace.total_us * time_percent / 100)


def draw_timeline(trace: Any) -> Any:
    """The timeline without a cursor."""
    return figures.run_timeline(trace)


def play(timeline: Any, until_us: float | None) -> Any:
    return figures.set_cursor(timeline, until_us)


def draw_slots(trace: Any, until_us: float | None) -> Any:
    return figures.queue_slots(trace, until_us=until_us)


def lay_over(trace: Any, model: Any) -> Any:
    return figures.model_vs_measurement(model, trace)


class QueueExplorer(Explorer):
    """The run of one mini-batch, played back: multiprocessors, slots of the queue, its depth and tasks at work on one
    axis of time, and the queue as an array at the instant that is played.

    State: ``source`` (the GPU model, the GPU of this host, or a measured trace that was shipped),
    ``strategy``, ``completion`` ("exact", or "paper" for PGSampler's Algorithm 1 as printed), ``fetch_size``,
    ``num_blocks`` (of the model; at most what is resident), ``batch_size``, ``hops``, ``fanout`` (of every
    hop), ``pick``, ``seed``, ``time_percent`` (how much of the run has been played).

    With a measured source, the model's version of the same run is laid over it where ``graph`` is the graph
    that was measured. See :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "The queue at work: who runs which task when"
    from_split = True
    recipe: ClassVar[Recipe] = {
        "seeds": draw_seeds,
        "trace": run,
        "model": model_beside,
        "until_us": instant,
        "timeline": draw_timeline,
        "shown": Panels(gantt=play, slots=draw_slots, overlay=Where(lay_over, "model")),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "Timeline": ("gantt",),
        SLOTS: ("slots",),
        "Model beside measurement": ("overlay",),
    }
    panel_height: ClassVar[int] = 520

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
        self._files = recorded.measured_traces()
        self._slots_seen = False
        if "batch_size" not in state:
            self.batch_size = min(self.batch_size, max(batch_options(self.graph, 1024)))
        if "source" not in state:
            self.source = LIVE if self.device == "cuda" else MODEL

    def _tab_opened(self, change: Any) -> None:
        # At the end of a run all slots are alike. Once, the queue as an array opens where the queue is deepest; whoever
        # then plays to the end sees the end.
        if self.view == SLOTS and self.time_percent == 100 and not (self._slots_seen or self.error):
            self._slots_seen = True
            self.time_percent = self._deepest_percent()
        super()._tab_opened(change)

    def _deepest_percent(self) -> int:
        """How much of the run has been played when the queue is deepest; 100 where the end tells more."""
        with runtime.lock:
            trace = follow(self.recipe, self._given(self.state), self.remember)["trace"]
        if not len(trace.queue) or len(trace.lost) or trace.total_us <= 0:
            return 100
        return int(np.clip(np.ceil(100 * queue_stats(trace).peak_time_us / trace.total_us), 1, 100))

    def build_controls(self) -> dict[str, Control]:
        sources = [MODEL, *([LIVE] if self.device == "cuda" else []), *self._files]
        names = [name for name in strategies() if name != "auto"]
        controls: list[Control] = [
            Slider(
                "time_percent", "Time played", self.time_percent, unit=" %", playable=True, interval_ms=180
            ),
            Slider("fetch_size", "Fetch size", self.fetch_size, min=1, max=16, unit=" tasks"),
            Slider("num_blocks", "Thread blocks", self.num_blocks, options=BLOCKS),
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
            Choice("source", "Source of the times", self.source, sources),
        ]
        return {control.name: control for control in controls}

    def adapt(self) -> None:
        fixed = self.source not in (MODEL, LIVE)
        # The figures are of the record's settings. The reader's own stay in the state, for the way back.
        recorded_with = self._settings_of(self.source) if fixed else {}
        for name, control in self.controls.items():
            control.disabled = fixed and name not in ("source", "time_percent")
            control.instead = recorded_with.get(name)
        if fixed:
            return
        self.controls["num_blocks"].disabled = self.source == LIVE or self.strategy not in FETCHING
        self.controls["fetch_size"].disabled = self.strategy not in FETCHING
        self.controls["completion"].disabled = self.strategy != "persistent"
        if self.strategy != "persistent":
            # Algorithm 1 is the persistent kernel's; no other strategy has its rule.
            self.completion = "exact"

    def _settings_of(self, source: str) -> dict[str, Any]:
        """What a shipped trace was recorded with, by the name of the control; a dash for what its strategy has not."""
        try:
            trace = self.remember(("settings", source), lambda: lab.SampleTrace.load(self._files[source]))
        except Exception:
            return {}  # the run says what is wrong with the file
        return {
            "fetch_size": trace.fetch_size or NONE,
            "num_blocks": trace.num_blocks,
            "batch_size": trace.batch_size,
            "hops": len(trace.fanouts),
            "fanout": trace.fanouts[0]
            if len(set(trace.fanouts)) == 1
            else ", ".join(map(str, trace.fanouts)),
            "seed": trace.seed,
            "strategy": trace.strategy,
            "completion": trace.completion or NONE,
            "pick": trace.pick,
        }

    def summary(self, made: dict[str, Any]) -> str:
        trace = made["trace"]
        total = len(trace.tasks) + len(trace.lost)
        when, timed = trace.total_us * (made["time_percent"] / 100), has_times(trace)
        done = int((trace.tasks.end_us <= when).sum())
        strategy, label = html.escape(trace.strategy), html.escape(trace.label)
        parts = [
            ("Recorded counterexample: " if trace.origin == "measured" and len(trace.lost) else "")
            + f"<b>{strategy}</b>, {label}: after "
            + (
                f"{when:,.0f} of {trace.total_us:,.0f} µs"
                if timed
                else f"{made['time_percent']} % of the run"
            )
            + f", <b>{done:,}</b> of {total:,} {noun(total, 'task is', 'tasks are')} done."
        ]
        if len(trace.queue):
            stats = queue_stats(trace)
            deepest = min(stats.peak_time_us, trace.total_us)
            where = (
                f"at {deepest:,.0f} µs" if timed else f"after {percent(deepest / trace.total_us)} of the run"
            )
            kept = " besides the lost ones" if trace.lost.abandoned.any() else ""
            parts.append(
                f"The queue is deepest {where}, with {stats.peak:,} {noun(stats.peak, 'task')} waiting{kept}."
            )
        elif trace.strategy not in QUEUE_STRATEGIES:
            parts.append("It has no queue and no slots: a barrier separates its hops.")
        if len(trace.lost):
            lost, left = len(trace.lost), int(trace.lost.abandoned.sum())
            rest = lost - left
            parts.append(
                f'<span class="gs-lost"><b>{lost:,} {noun(lost, "task")} ({percent(lost / total)}) '
                f"{noun(lost, 'is', 'are')} lost</b>: the blocks that had claimed the slots of {left:,} left "
                "before they were filled"
                + (f", and the other {rest:,} would have followed from those.</span>" if rest else ".</span>")
            )
        parts.append(in_words(trace))
        if trace.origin == "measured" and recorded.model_of(trace) is None:
            parts.append(f"There is no model of {trace.device_name} to stand beside the measurement.")
        elif trace.origin == "measured" and made["model"] is None and trace.graph_name in entries():
            whole = ", in full size," if trace.graph_name == self.graph.name else ""
            parts.append(
                f"Load {trace.graph_name}{whole} as this explorer's graph to see the model beside the measurement."
            )
        return " ".join(filter(None, parts))
