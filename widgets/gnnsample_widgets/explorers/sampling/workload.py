"""Work per hop, what it costs, and the execution strategies side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import traitlets

import gnnsample_lab as lab
from gnnsample_lab import checks, figures, strategies
from gnnsample_lab.gpu_model.run_error import has_times, in_words, tell_apart
from gnnsample_lab.minibatch.growth import frontiers_of_first, frontiers_on_average
from gnnsample_lab.readable import percent

from ...graphs import batch_options, draw_seeds, sampled_on
from ...recorded import modelled
from ...shell.controls import Choice, Control, Slider, Switch
from ...shell.recipe import Each, Panels, Recipe
from ..fanouts import MAX_HOPS, FanoutExplorer


def sample(on_device: Any, device: str, seeds: Any, fanouts: list[int], pick: str, seed: int) -> Any:
    """One sample: every strategy returns an equal one, so that the GPU model can replay it under each."""
    sampler = lab.NeighborSampler(on_device, fanouts, pick=pick, seed=seed, device=device)
    return sampler.sample(seeds)


def trace(
    on_device: Any,
    host: Any,
    device: str,
    seeds: Any,
    fanouts: list[int],
    pick: str,
    seed: int,
    batch: Any,
    strategy: str,
) -> Any:
    """What a strategy does: measured on a GPU, modelled without one."""
    if device == "cpu":
        return modelled(host, batch, strategy)
    sampler = lab.NeighborSampler(
        on_device, fanouts, strategy=strategy, pick=pick, seed=seed, device=device, trace=True
    )
    return sampler.sample(seeds).trace


def count_frontiers(
    host: Any, on_device: Any, device: str, sizes: list[int], setting: tuple[tuple[int, ...], str, int]
) -> dict[int, Sequence[float]]:
    """Batch size -> vertices expanded by each hop, then vertices of the mini-batch: the first seeds of one sample, or,
    where these are few, the mean of several parts of it."""
    fanouts, pick, seed = setting
    sampler = lab.NeighborSampler(on_device, list(fanouts), pick=pick, seed=seed, device=device)
    batch = sampler.sample(draw_seeds(host, max(sizes), seed)).to_cpu()
    found: dict[int, Sequence[float]] = {**frontiers_of_first(batch, sizes)}
    return found | {size: frontiers_on_average(batch, size, AVERAGED) for size in sizes if size <= FEW}


def draw_work(
    host: Any,
    device: str,
    batch_size: int,
    batch: Any,
    growth: dict[Any, dict[int, Sequence[float]]],
    settings: list[Any],
    sizes: list[int],
    size_before: int,
) -> Any:
    here = [*(int(p.frontier.size) for p in batch.picks), int(batch.node_ids.size)]
    return figures.frontier_growth(
        growth[settings[0]],
        here=here,
        fanouts=settings[0][0],
        batch_size=batch_size,
        largest_batch=max(sizes),
        num_nodes=host.num_nodes,
        title=host.title,
        label=f"counted, {sampled_on(device)}, lines up to {FEW} seeds: means",
        before=(settings[-1][0], size_before, growth[settings[-1]]) if size_before else None,
    )


def draw_times(two: dict[str, Any]) -> Any:
    return figures.hop_times(list(two.values()))


def draw_utilisation(two: dict[str, Any]) -> Any:
    return figures.utilisation(list(two.values()))


def draw_strategies(traces: dict[str, Any]) -> Any:
    return figures.strategy_comparison(list(traces.values()))


FEW, AVERAGED = 32, 16
"""Up to so many seeds, the lines of frontiers are means of so many batches."""
SAMPLING = ("batch_size", "hops", "fanout_1", "fanout_2", "fanout_3", "pick", "seed")
"""The state that the sample depends on."""
PICKS = ["reservoir", "floyd"]


def setting_of(state: dict[str, Any]) -> tuple[tuple[int, ...], str, int]:
    """What frontiers depend on besides the batch size: (fanouts, pick, seed)."""
    fanouts = tuple(state[f"fanout_{hop}"] for hop in range(1, state["hops"] + 1))
    return fanouts, state["pick"], state["seed"]


def _modelled_order(one: Any, other: Any) -> str:
    """Which of two runs is the faster, if the model can tell."""
    times = [
        f"<b>{t.strategy}</b>" + (f" ({t.total_us:,.0f} µs)" if has_times(t) else "") for t in (one, other)
    ]
    if not tell_apart(one, other):
        return f"{times[0]} and {times[1]}, {one.label}, lie within the model's error: neither is called the faster."
    relation = "less" if one.total_us < other.total_us else "more"
    return f"{times[0]} takes {relation} time than {times[1]}, by more than the model's error ({one.label})."


class WorkloadExplorer(FanoutExplorer):
    """How many vertices each hop expands, how long that takes, how busy the GPU is, and who does it faster.

    The first view has the frontiers over all batch sizes, counted in samples that are really drawn, and faintly those
    of the setting before: how things stood when the control that was moved last was taken hold of.

    State: ``batch_size``, ``hops``, ``fanout_1`` .. ``fanout_3``, ``strategy`` (looked at closely),
    ``baseline`` (set against it), ``pick`` (rule of the draw), ``seed`` (of the generator and of the choice
    of seeds), ``every_strategy`` (compare all, not just these two), ``before`` (values of the state that the sample
    depends on, as they were before; empty for none).

    On a GPU the traces are measured, elsewhere they are modelled; every figure says which. See
    :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "Work per hop, and what each strategy makes of it"
    from_split = True
    recipe: ClassVar[Recipe] = {
        "seeds": draw_seeds,
        "batch": sample,
        "growth": Each(count_frontiers, "setting", of="settings"),
        "two": Each(trace, "strategy", of="pair"),
        "traces": Each(trace, "strategy", of="compared"),
        "shown": Panels(
            work=draw_work, times=draw_times, utilisation=draw_utilisation, strategies=draw_strategies
        ),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "Work per hop": ("work",),
        "Time per hop": ("times", "utilisation"),
        "All strategies": ("strategies",),
    }

    batch_size = traitlets.Int(256).tag(state=True)
    strategy = traitlets.Unicode("persistent").tag(state=True)
    baseline = traitlets.Unicode("block-bsp").tag(state=True)
    pick = traitlets.Unicode("reservoir").tag(state=True)
    seed = traitlets.Int(0).tag(state=True)
    every_strategy = traitlets.Bool(True).tag(state=True)
    before = traitlets.Dict().tag(state=True)
    _moved: frozenset[str] = frozenset()
    kept_by_adapt = ("_moved",)

    @traitlets.validate("before")
    def _whole_setting(self, proposal: dict[str, Any]) -> dict[str, Any]:
        before: dict[str, Any] = proposal["value"]
        if before and set(before) != set(SAMPLING):
            raise traitlets.TraitError(
                f"before must be empty or have a value for each of {', '.join(SAMPLING)} (got {checks.shown(before)})"
            )
        for name, value in before.items():
            try:
                if name == "pick":
                    checks.choice("before['pick']", value, PICKS)
                else:
                    most = MAX_HOPS if name == "hops" else None
                    checks.whole(f"before[{name!r}]", value, 0 if name == "seed" else 1, most)
            except (TypeError, ValueError) as error:
                raise traitlets.TraitError(str(error)) from error
        return before

    def prepare(self, state: dict[str, Any]) -> None:
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
            Choice("pick", "Rule of the draw", self.pick, PICKS),
            Switch("every_strategy", "Compare all strategies", self.every_strategy),
        ]
        return {control.name: control for control in controls}

    def adapt(self) -> None:
        super().adapt()
        shown = self._shown_state
        moved = frozenset(name for name in SAMPLING if shown and shown[name] != getattr(self, name))
        # While one control is dragged, what it is compared with stays where it was.
        if moved and moved != self._moved:
            self._moved, self.before = moved, {name: shown[name] for name in SAMPLING}

    def parameters(self, state: dict[str, Any]) -> dict[str, Any]:
        pair = list(dict.fromkeys([state["baseline"], state["strategy"]]))
        others = [name for name in strategies() if name != "auto"] if state["every_strategy"] else pair
        compared = list(dict.fromkeys([state["baseline"], *others]))
        before = state["before"]
        settings = [setting_of(state), *([setting_of(before)] if before else [])]
        options = self.controls["batch_size"].options
        return {
            **super().parameters(state),
            "pair": pair,
            "compared": compared,
            "settings": settings,
            "sizes": sorted({options[0], *options[::-2]}),
            "size_before": before["batch_size"] if before else 0,
        }

    def summary(self, made: dict[str, Any]) -> str:
        pair = list(made["two"].values())
        work = [*pair[-1].hops.workload, made["batch"].node_ids.size]
        growth = " → ".join(f"{int(n):,}" for n in work[:-1])
        text = (
            f"Vertices expanded, hop by hop: <b>{growth}</b>; the mini-batch has {int(work[-1]):,} of the graph's "
            f"{self.graph.num_nodes:,}. "
        )
        if len(pair) == 1:
            takes = f"takes {pair[0].total_us:,.0f} µs" if has_times(pair[0]) else "is shown without times"
            alone = f"<b>{pair[0].strategy}</b> {takes}, {pair[0].label}. "
            return text + alone + in_words(pair[0])
        slow, fast = pair
        share = 1 - slow.kernel_us / slow.total_us if slow.total_us else 0.0
        if "modelled" in (slow.origin, fast.origin):
            return text + _modelled_order(slow, fast) + f" {in_words(slow)} {in_words(fast)}".rstrip()
        ratio = slow.total_us / fast.total_us if fast.total_us else float("nan")
        relation = f"{ratio:.1f} times as long as" if ratio >= 1 else f"{ratio:.2f} of the time of"
        return (
            text
            + f"<b>{slow.strategy}</b> takes {relation} <b>{fast.strategy}</b>, and spends {percent(share)} of it "
            f"outside its sampling kernels ({slow.label})."
        )
