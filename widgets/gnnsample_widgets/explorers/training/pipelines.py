"""Pipelines of several GPUs: modelled epochs by executor, and real runs on two ranks beside what the model says."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any, ClassVar

import traitlets

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.pipeline.factored.slots import header_of, pack
from gnnsample_lab.readable import noun, percent
from gnnsample_lab.systems.features import topology_bytes

from ...graphs import seed_pool
from ...shell.controls import Choice, Control, Slider, Switch
from ...shell.explorer import Explorer
from ...shell.recipe import Panels, Recipe, Where
from .training import PICK, short_run, trainable, untrainable

EXECUTORS = ["serial", "overlapped", "timeshared", "factored"]
BATCHES = 64
"""Mini-batches of the modelled epoch."""
SAMPLE_S = 0.01
"""Modelled seconds to sample one of them."""
MOST_GPUS = 8
FANOUTS = [15, 10]
"""Of the real runs."""
RUNNING = "running: {} ..."
"""What is printed before each of the real runs: the ranks load what they need in the first one, for many seconds."""
TENTHS = [2, 3, 5, 7, 10, 13, 15, 20, 27, 30, 40, 50, 60, 80]


def stages(k_tenths: int, extract_percent: int, beside_tenths: int, spread_percent: int) -> dict[str, Any]:
    """Stage times: on GPUs that only train (``apart``), and on GPUs that keep the topology, too (``together``)."""
    train_s = SAMPLE_S * k_tenths / 10
    extract_s = train_s * extract_percent / 100
    beside_s = extract_s * beside_tenths / 10
    return {
        "apart": _skewed(spread_percent, SAMPLE_S, extract_s, train_s, beside_s),
        "together": _skewed(spread_percent, SAMPLE_S, beside_s, train_s, beside_s),
    }


def _skewed(spread_percent: int, sample_s: float, extract_s: float, train_s: float, standby_s: float) -> Any:
    """Stage times with these means, whatever the skew: the mean of few draws is another one, and so is the epoch."""
    means = {"sample_s": sample_s, "extract_s": extract_s, "train_s": train_s, "standby_extract_s": standby_s}
    drawn = lab.schedule.stage_times(
        **means, batches=BATCHES, spread=spread_percent / 100, source="set by the sliders"
    )
    if not spread_percent:
        return drawn
    columns = {name: getattr(drawn, name) for name in means}
    return dataclasses.replace(
        drawn, **{name: times * (means[name] / (times.mean() or 1.0)) for name, times in columns.items()}
    )


def surround(demand_percent: int, host_percent: int) -> Any:
    """What stages take of what they share: sampling and training of the GPU, extraction of the link to the host."""
    share = demand_percent / 100
    return lab.schedule.Costs(demand={"sample": share, "train": share}, host_share=host_percent / 100)


def run_model(
    times: dict[str, Any],
    costs: Any,
    gpus: int,
    samplers: int,
    capacity: int,
    switching: bool,
    synchronous: bool,
) -> dict[str, Any]:
    """The modelled epoch by executor; ``samplers`` 0: by the rule."""
    rest = {"gpus": gpus, "staleness": 0 if synchronous else None, "costs": costs}
    apart, together = times["apart"], times["together"]
    split = {}
    if gpus > 1:
        trainer_s = lab.schedule.trainer_time(apart.mean("extract"), apart.mean("train"))
        rule = lab.schedule.num_samplers(gpus, apart.mean("sample"), trainer_s, keep_trainer=True)
        split = {"samplers": samplers or rule, "switching": switching, "capacity": capacity}
    return {
        "serial": lab.schedule.simulate(together, "serial", **rest),
        "overlapped": lab.schedule.simulate(together, "overlapped", capacity=capacity, **rest),
        "timeshared": lab.schedule.simulate(together, "timeshared", **rest),
        "factored": lab.schedule.simulate(apart, "factored", **split, **rest),
    }


def sweep_splits(times: dict[str, Any], costs: Any, gpus: int, capacity: int, synchronous: bool) -> Any:
    """The factored epoch for every number of samplers; None on one GPU."""
    if gpus == 1:
        return None
    staleness = 0 if synchronous else None
    return lab.schedule.allocation_sweep(
        times["apart"], gpus=gpus, capacity=capacity, staleness=staleness, costs=costs
    )


def draw_epoch(runs: dict[str, Any], executor: str) -> Any:
    return figures.schedule_gantt(runs[executor])


def draw_executors(runs: dict[str, Any], executor: str) -> Any:
    return figures.schedule_epochs(runs, chosen=executor)


def draw_splits(splits: Any) -> Any:
    return figures.schedule_allocation(splits)


class PipelineExplorer(Explorer):
    """Modelled: who does what when on several GPUs, the queue, epochs by executor, and the split into samplers and
    trainers.

    State: ``executor`` ("serial", "overlapped", "timeshared", "factored"), ``gpus``, ``k_tenths`` (10 K: training over
    sampling), ``extract_percent`` (extraction over training, on a GPU that only trains), ``beside_tenths`` (10 times
    the factor by which extraction takes longer on a GPU that keeps the topology, too), ``samplers`` (0: by the rule),
    ``capacity`` (of queues), ``spread_percent`` (standard deviation over mean of stage times), ``demand_percent``
    (share of a GPU that sampling or training keeps busy), ``host_percent`` (share of the link to the host that one
    extraction keeps busy), ``switching``, ``synchronous``.

    Everything shown is modelled; no graph is read. See :class:`~gnnsample_widgets.Explorer` for the other
    arguments.
    """

    heading = "Pipelines: who does what when, modelled"
    on_graph = False
    recipe: ClassVar[Recipe] = {
        "times": stages,
        "costs": surround,
        "runs": run_model,
        "splits": sweep_splits,
        "shown": Panels(gantt=draw_epoch, executors=draw_executors, splits=Where(draw_splits, "splits")),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "The epoch, GPU by GPU": ("gantt",),
        "Executors and splits": ("executors", "splits"),
    }

    panel_height: ClassVar[int] = 460

    executor = traitlets.Unicode("factored").tag(state=True)
    gpus = traitlets.Int(8).tag(state=True)
    k_tenths = traitlets.Int(20).tag(state=True)
    extract_percent = traitlets.Int(20).tag(state=True)
    beside_tenths = traitlets.Int(40).tag(state=True)
    samplers = traitlets.Int(0).tag(state=True)
    capacity = traitlets.Int(BATCHES).tag(state=True)
    spread_percent = traitlets.Int(0).tag(state=True)
    demand_percent = traitlets.Int(80).tag(state=True)
    host_percent = traitlets.Int(30).tag(state=True)
    switching = traitlets.Bool(False).tag(state=True)
    synchronous = traitlets.Bool(False).tag(state=True)

    def build_controls(self) -> dict[str, Control]:
        controls: list[Control] = [
            Choice("executor", "Executor", self.executor, EXECUTORS),
            Slider("gpus", "GPUs", self.gpus, min=1, max=MOST_GPUS),
            Slider("k_tenths", "K: training / sampling", self.k_tenths, options=TENTHS, per=10),
            Slider(
                "extract_percent",
                "Extraction / training",
                self.extract_percent,
                min=0,
                max=100,
                step=5,
                unit=" %",
            ),
            Slider(
                "beside_tenths",
                "Extraction beside the topology",
                self.beside_tenths,
                min=10,
                max=100,
                step=5,
                per=10,
                unit=" ×",
            ),
            Slider("samplers", "Samplers (0: by rule)", self.samplers, max=MOST_GPUS - 1),
            Slider("capacity", "Capacity of a queue", self.capacity, options=[1, 2, 4, 8, 16, 32, BATCHES]),
            Slider("spread_percent", "Skew of stage times", self.spread_percent, max=150, step=10, unit=" %"),
            Slider(
                "demand_percent",
                "A GPU is busy with one stage",
                self.demand_percent,
                max=100,
                step=10,
                unit=" %",
            ),
            Slider(
                "host_percent",
                "Host link per extraction",
                self.host_percent,
                max=100,
                step=10,
                unit=" %",
            ),
            Switch("switching", "Samplers switch", self.switching),
            Switch("synchronous", "Updates wait for each other", self.synchronous),
        ]
        return {control.name: control for control in controls}

    def adapt(self) -> None:
        self.samplers = min(self.samplers, self.gpus - 1)
        factored = self.executor == "factored" and self.gpus > 1
        for name in ("samplers", "switching"):
            self.controls[name].disabled = not factored

    def summary(self, made: dict[str, Any]) -> str:
        runs, executor = made["runs"], made["executor"]
        run, best = runs[executor], min(runs, key=lambda name: runs[name].epoch_s)
        text = (
            f"<b>Modelled.</b> {executor.capitalize()} on {run.gpus} GPU{'s' * (run.gpus > 1)}: an epoch of "
            f"{BATCHES} mini-batches takes <b>{1e3 * run.epoch_s:,.0f} ms</b>, "
            f"GPUs are busy {percent(run.utilisation.mean())} of it. "
        )
        fastest = runs[best].epoch_s
        same = [name for name in runs if runs[name].epoch_s <= fastest * (1 + 1e-9)]
        text += f"Fastest with these times: <b>{', '.join(same)}</b>, {1e3 * fastest:,.0f} ms. "
        if made["splits"] is None:
            return text + "On one GPU, factored samples the whole epoch before it trains."
        rows = made["splits"].rows
        rule = next(row for row in rows if row["chosen"])
        k = made["times"]["apart"]
        ratio = lab.schedule.trainer_time(k.mean("extract"), k.mean("train")) / k.mean("sample")
        least = min(row["without_s"] for row in rows)
        bests = [str(row["samplers"]) for row in rows if row["without_s"] <= least * (1 + 1e-9)]
        text += (
            f"K = {ratio:.2g}: the rule takes <b>{rule['samplers']}</b> of {run.gpus} GPUs to sample; without "
            f"switching the model is fastest with <b>{' or '.join(bests)}</b>. "
        )
        wait = "mini-batch still waits" if rule["remaining"] == 1 else "mini-batches still wait"
        profit = f"{round(1e3 * rule['profit_s']):,}".replace("-", "\N{MINUS SIGN}")
        text += (
            f"With the rule's split {rule['remaining']} {wait} when sampling ends; switching has the profit "
        )
        text += f"P&nbsp;=&nbsp;{profit}&nbsp;ms: "
        if not rule["switched"]:
            return text + "it would change nothing."
        return text + (
            f"with switching on, standby trainers take {rule['switched']}, and the epoch takes "
            f"{1e3 * rule['with_s']:,.0f} instead of {1e3 * rule['without_s']:,.0f} ms."
        )


# ---- real runs ------------------------------------------------------------------------------------------------


def start_ranks(number: int = 2, device: str = "auto") -> Any:
    """Warm ranks, on CPUs where there is no GPU for each; None, with one line that says why, where none can start."""
    for module, name in (("torch", "PyTorch"), ("cloudpickle", "cloudpickle")):
        if importlib.util.find_spec(module) is None:
            print(f"{name} is not installed: nothing is run on ranks here; the rest goes on without.")
            return None
    try:
        return lab.distributed.Ranks(number, device=device)
    except RuntimeError as error:  # fewer GPUs than ranks
        print(f"{error}: they run on CPUs.")
        return lab.distributed.Ranks(number, device="cpu")


def real_runs(
    graph: Any, ranks: Any, executors: tuple[str, ...] = ("overlapped", "factored"), steps: int = 16
) -> list[Any]:
    """Training of a few steps on warm ranks, one run an executor; ``"factored"`` has one sampler.

    Args:
        graph: to train on. Where it lacks what training needs, one line says so.
        ranks: two or more warm ``lab.distributed.Ranks``, or None where there are none.
        executors: names that ``lab.train`` knows; a line is printed before each runs.
        steps: mini-batches of an epoch, as far as there are training vertices.

    Returns:
        Results of ``lab.train``; none where nothing can be trained.
    """
    if not trainable(graph) or ranks is None:
        return []
    small, options = _short(graph, ranks, steps)
    results = []
    for executor in executors:
        print(RUNNING.format(executor), flush=True)
        samplers = 1 if executor == "factored" else None
        results.append(lab.train(small, "sage", epochs=3, executor=executor, samplers=samplers, **options))
    return results


def _short(graph: Any, ranks: Any, steps: int) -> tuple[Any, dict[str, Any]]:
    """The graph with a short epoch, and what all real runs on it are given."""
    batch_size = min(256, max(1, len(graph.splits["train"]) // steps))
    return short_run(graph, steps, batch_size), {
        "batch_size": batch_size, "fanouts": FANOUTS, "hidden": 16, "lr": 0.01, "pick": PICK, "evaluate": False,
        "device": "cpu" if ranks.backend == "gloo" else "cuda", "progress": False, "ranks": ranks,
    }  # fmt: skip


TOGETHER, APART, BY_PEERS, IN_TURNS = (
    "both hold both",
    "a sampler, a trainer",
    "the same, by peers",
    "all in turns",
)
"""Ways for two ranks to share sampling and training, as :func:`factored_runs` names them."""


def factored_runs(graph: Any, ranks: Any, cached: float = 0.05, steps: int = 16) -> dict[str, Any]:
    """One epoch on two warm ranks by several ways to divide work and memory, all with the same memory a rank.

    Args:
        graph: as of :func:`real_runs`.
        ranks: two warm ``lab.distributed.Ranks``, or None.
        cached: share of the feature rows for which a rank has room beside the topology.
        steps: mini-batches of the epoch.

    Returns:
        Results of ``lab.train`` by way: each rank holds topology and cache and samples before it trains; one rank
        samples and one trains, whose cache has the topology's room, too; the same with samples that stay in their
        sampler's memory; all sample, then the cache takes the topology's room on all of them (AGL's batch mode). None
        where nothing can be trained.
    """
    if not trainable(graph) or ranks is None:
        return {}
    small, options = _short(graph, ranks, steps)
    alone = min(1.0, cached + topology_bytes(small) / max(1, small.feat.nbytes))
    ways: dict[str, dict[str, Any]] = {
        TOGETHER: {"samplers": 2, "cache_ratio": cached},
        APART: {"samplers": 1, "cache_ratio": alone},
        BY_PEERS: {"samplers": 1, "cache_ratio": alone, "handover": "peer"},
        IN_TURNS: {"swap": True, "cache_ratio": alone},
    }
    results = {}
    for name, way in ways.items():
        print(RUNNING.format(name), flush=True)
        results[name] = lab.train(small, "sage", epochs=1, executor="factored", **way, **options)
    return results


def handed_over(graph: Any, ranks: Any, steps: int = 16) -> int:
    """Bytes of the samples of an epoch of :func:`factored_runs`, as they lie in the slots of a queue; 0: no ranks."""
    if untrainable(graph) or ranks is None:
        return 0
    small, options = _short(graph, ranks, steps)
    sampler = lab.NeighborSampler(small, FANOUTS, pick=PICK, device="cpu")
    epoch = sampler.epoch(seed_pool(small), options["batch_size"])
    return sum(header_of(pack(batch, None))[1] for batch in epoch)


def stages_of(result: Any) -> str:
    """Mean times of the stages of a run's fastest epoch, and of what: slices where ranks share every mini-batch."""
    times, batches = lab.schedule.run_of(result).times, result.steady.num_batches
    pieces = f"{batches:,} {noun(batches, 'mini-batch', 'mini-batches')}"
    if times.batches != batches:
        pieces = f"{times.batches:,} slices of {pieces}"
    stages = ", ".join(f"{stage} {1e3 * times.mean(stage):.3g}" for stage in ("sample", "extract", "train"))
    return f"{pieces}, {stages} ms each"


def beside_model(result: Any) -> list[Any]:
    """The Gantt chart of a run's fastest epoch, and the model's of that epoch from its stage times."""
    run = lab.schedule.run_of(result)
    measured = result.timeline(result.epochs.index(result.steady))
    model = lab.schedule.simulate(run.times, run.executor, gpus=run.gpus, **run.options)
    axis: dict[str, Any] = {
        "span_s": 1.02 * max(measured.epoch_s, model.epoch_s),
        "place": "rank" if result.device == "cpu" else "GPU",
        "waits": False,
    }
    return [figures.schedule_gantt(one, **axis) for one in (measured, model)]


def without_a_leader(ranks: Any) -> list[Any]:
    """Two workers a rank start their collectives in opposite orders, as they come and with coordination.

    Args:
        ranks: warm ranks; on GPUs processes on CPUs take their place, since stuck kernels hold a GPU. None: nothing.

    Returns:
        What ``lab.distributed.coordination.demo`` reports for ``"arrival"`` and for ``"central"``.
    """
    if ranks is None:
        return []
    where = ranks if ranks.backend == "gloo" else ranks.ranks
    return [lab.distributed.coordination.demo(order, ranks=where) for order in ("arrival", "central")]
