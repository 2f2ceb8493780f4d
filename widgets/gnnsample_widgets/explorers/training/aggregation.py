"""What aggregation asks of the memory, what that costs by the model, and what it takes."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import traitlets

import gnnsample_lab as lab
from gnnsample_lab import figures, readable
from gnnsample_lab.compute.aggregation import bound as model
from gnnsample_lab.device import runtime
from gnnsample_lab.readable import noun, percent

from ...graphs import batch_options, draw_seeds
from ...shell.controls import Choice, Control, Slider
from ...shell.recipe import Panels, Recipe
from ..fanouts import FanoutExplorer

WIDTHS = [16, 32, 64, 128, 256, 512, 1024]
BOUND = "least time possible"
THIS_GPU = "this GPU"
NO_EDGES = "The block of this layer has no edges: there is nothing to aggregate."


def presets() -> dict[str, model.MemorySpeeds]:
    """Memory speeds that the library knows: name -> speeds, papers' and recorded ones."""
    found = {name: value for name, value in vars(model).items() if isinstance(value, model.MemorySpeeds)}
    return {name.replace("_", " "): value for name, value in found.items()}


def kernels() -> list[str]:
    """The rungs of the ladder, without the one that only chooses among them."""
    return [name for name in lab.aggregation_kernels() if name != "auto"]


def costs(block: Any, num_features: int) -> dict[str, model.AccessCounts]:
    """Counted accesses of every kernel for a block with a weight per edge."""
    return {name: lab.aggregation_cost(block, num_features, name) for name in kernels()}


def bytes_by_level(counts: dict[str, model.AccessCounts]) -> dict[str, dict[str, float]]:
    """Counted accesses as :func:`gnnsample_lab.figures.access_counts` takes them."""
    return {
        name: {
            "global memory": count.global_bytes + count.written_bytes,
            "shared memory": count.shared_bytes,
            "registers": count.register_bytes,
        }
        for name, count in counts.items()
    }


def least_us(block: Any, widths: Sequence[int], speeds: model.MemorySpeeds) -> list[float]:
    """Lower bound on the time to aggregate a block with a weight per edge, in microseconds, for each width.

    The paper's equations leave out indices and row bounds, which the bound counts: of short rows that share nothing,
    such a kernel is modelled below it. Then that kernel's time is the bound.
    """
    shape = (len(np.unique(block.indices)), block.num_dst, block.num_edges)
    bounds = [model.aggregation_bound_us(*shape, w, speeds.dram_gbps, speeds.l2_gbps) for w in widths]
    return [min(times) for times in zip(bounds, *modelled_us(block, widths, speeds).values(), strict=True)]


def modelled_us(block: Any, widths: Sequence[int], speeds: model.MemorySpeeds) -> dict[str, list[float]]:
    """Time of every kernel by the cost model, in microseconds, for each width."""
    counted = [costs(block, width) for width in widths]
    return {name: [count[name].time_us(speeds) for count in counted] for name in kernels()}


def measured_us(block: Any, num_features: int) -> dict[str, float]:
    """Time of every kernel on the GPU that ``block`` lies on: the median of nine series of launches, each.

    Launches are part of it, preprocessing that is kept with the block (of ``grouped``) is not.
    """
    import cupy

    x = cupy.random.default_rng(0).standard_normal((block.num_src, num_features), dtype=np.float32)
    weight = cupy.ones(block.num_edges, np.float32)
    return {
        name: _launches_us(functools.partial(lab.aggregate, block, x, weight, "sum", name))
        for name in kernels()
    }


def _launches_us(work: Callable[[], Any], series: int = 9, each: int = 10) -> float:
    import cupy

    begin, end, times = cupy.cuda.Event(), cupy.cuda.Event(), []
    for number in range(series + 2):
        begin.record()
        for _ in range(each):
            work()
        end.record()
        end.synchronize()
        if number >= 2:
            times.append(cupy.cuda.get_elapsed_time(begin, end) * 1e3 / each)
    return statistics.median(times)


def sample(on_device: Any, device: str, seeds: Any, fanouts: list[int], seed: int) -> Any:
    """The blocks of one mini-batch where they were sampled, and on the CPU, where they are counted."""
    batch = lab.NeighborSampler(on_device, fanouts, seed=seed, device=device).sample(seeds)
    return batch.blocks, batch.to_cpu().blocks


def speeds_of(memory: str) -> Any:
    """The memory speeds that the model takes."""
    from gnnsample_lab.compute.aggregation.bandwidth import measured_bandwidths

    return measured_bandwidths() if memory == THIS_GPU else presets()[memory]


def measure(blocks: Any, layer: int, num_features: int, device: str) -> dict[str, float]:
    """Kernel -> microseconds by the clock; empty without a GPU."""
    return measured_us(blocks[0][layer - 1], num_features) if device == "cuda" else {}


def compare(
    blocks: Any, layer: int, num_features: int, speeds: Any, clock: Any
) -> dict[str, dict[str, float]]:
    """Kernel -> microseconds by the model and by the clock, and what a perfect cache would take."""
    counts = costs(blocks[1][layer - 1], num_features)
    times = {name: {"modelled": count.time_us(speeds)} for name, count in counts.items()}
    for name in clock:
        times[name]["measured"] = clock[name]
    (least,) = least_us(blocks[1][layer - 1], [num_features], speeds)
    return {**times, BOUND: {"modelled": least}}


def measured_on() -> str:
    """The label of times taken here."""
    return f"measured on {runtime.device_name()}"


def chosen_block(blocks: Any, layer: int) -> Any:
    """The block of the layer, on the CPU."""
    return blocks[1][layer - 1]


def describe(host: Any, block: Any) -> str:
    """What is aggregated, for labels."""
    edges, rows = block.num_edges, block.num_dst
    return f"{host.title} · {edges:,} {noun(edges, 'edge')} into {rows:,} {noun(rows, 'row')}"


def widen(rows: str, num_features: int) -> str:
    """The same with the width of the rows."""
    return f"{rows} of {num_features}"


def originate(memory: str, clock: Any) -> str:
    """Where times come from, for labels."""
    return f"modelled as {memory}, {measured_on()}" if clock else f"modelled as {memory}"


def draw_accesses(block: Any, num_features: int, where: str) -> Any:
    return figures.access_counts(bytes_by_level(costs(block, num_features)), subtitle=f"{where} · counted")


def draw_times(times: Any, where: str, origin: str) -> Any:
    return figures.aggregation_times(times, base="naive", subtitle=f"{where} · {origin}")


def draw_features(block: Any, num_features: int, memory: str, speeds: Any, rows: str) -> Any:
    return figures.times_over_features(
        WIDTHS,
        modelled_us(block, WIDTHS, speeds),
        bound_us=least_us(block, WIDTHS, speeds),
        marked=num_features,
        subtitle=f"{rows} · modelled as {memory}",
    )


def draw_roofline(
    block: Any, num_features: int, memory: str, speeds: Any, clock: Any, times: Any, where: str, origin: str
) -> Any:
    if not block.num_edges:
        return figures.empty_figure("Roofline", NO_EDGES)
    reached = clock or {name: times[name]["modelled"] for name in kernels()}
    known = measured_on() if clock else f"modelled as {memory}"
    return figures.roofline(
        model.roofline(speeds, reached, block, num_features, known).points,
        peak_gflops=speeds.fp32_gflops,
        bandwidth_gbps={"global memory": speeds.dram_gbps, "L2": speeds.l2_gbps},
        subtitle=f"{where} · {origin}",
    )


class AggregationExplorer(FanoutExplorer):
    """Bytes by memory level of every aggregation kernel, the times that the cost model makes of them, the
    roofline.

    State: ``num_features``, ``layer`` (1 for the input layer, whose block is the largest), ``batch_size``, ``hops``,
    ``fanout_1`` .. ``fanout_3``, ``memory`` (whose bandwidths the model takes), ``seed``.

    The block is a real one. On a GPU the kernels are run on it, too, and their times stand beside the model's;
    without one there is the model alone. See :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "Aggregation: where its bytes come from, and what they cost"
    from_split = True
    recipe: ClassVar[Recipe] = {
        "seeds": draw_seeds,
        "blocks": sample,
        "speeds": speeds_of,
        "clock": measure,
        "times": compare,
        "block": chosen_block,
        "rows": describe,
        "where": widen,
        "origin": originate,
        "shown": Panels(
            accesses=draw_accesses, times=draw_times, features=draw_features, roofline=draw_roofline
        ),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "Bytes and times": ("accesses", "times"),
        "Features and roofline": ("features", "roofline"),
    }

    num_features = traitlets.Int(128).tag(state=True)
    layer = traitlets.Int(1).tag(state=True)
    batch_size = traitlets.Int(1024).tag(state=True)
    fanout_1 = traitlets.Int(5).tag(state=True)
    fanout_3 = traitlets.Int(15).tag(state=True)
    memory = traitlets.Unicode("RTX 3090").tag(state=True)
    seed = traitlets.Int(0).tag(state=True)

    def prepare(self, state: dict[str, Any]) -> None:
        self._presets = presets()
        if self.device == "cuda":
            self._presets = {THIS_GPU: speeds_of(THIS_GPU), **self._presets}
            if "memory" not in state:
                self.memory = THIS_GPU
        if "batch_size" not in state:
            self.batch_size = min(self.batch_size, max(batch_options(self.graph, 8192)))

    def build_controls(self) -> dict[str, Control]:
        controls: list[Control] = [
            Slider("num_features", "Features", self.num_features, options=WIDTHS),
            Slider("layer", "Layer (1 is the input)", self.layer, min=1, max=self.hops),
            Slider(
                "batch_size",
                "Batch size",
                self.batch_size,
                options=batch_options(self.graph, 8192),
                unit=" seeds",
            ),
            *self.hop_sliders("Hops"),
            Slider("seed", "Random seed", self.seed, max=99),
            Choice("memory", "Memory of", self.memory, list(self._presets)),
        ]
        return {control.name: control for control in controls}

    def adapt(self) -> None:
        super().adapt()
        if self.controls["layer"].max != self.hops:
            self.controls["layer"].set_limits(1, self.hops)

    def summary(self, made: dict[str, Any]) -> str:
        block, times = made["blocks"][1][made["layer"] - 1], made["times"]
        if not block.num_edges:
            return NO_EDGES
        least = times[BOUND]["modelled"]
        naive, aware, ours = (times[name]["modelled"] for name in ("naive", "memory-aware", "register-tile"))
        shared = block.num_edges / max(1, len(np.unique(block.indices)))
        text = (
            f"By its cost model <b>memory-aware</b> is <b>{readable.times(naive / aware)}</b> as fast as naive, and "
            f"<b>register-tile</b> {readable.times(naive / ours)}. Each row that is needed is needed by "
            f"<b>{readable.number(shared)} {noun(shared, 'edge')}</b>: with a perfect cache, "
            f"<b>{readable.time(least)}</b> would do."
        )
        if "measured" in times["naive"]:
            fastest = min(kernels(), key=lambda name: times[name]["measured"])
            text += (
                f" Measured, <b>{fastest}</b> is the fastest and runs at "
                f"<b>{percent(least / times[fastest]['measured'])}</b> of that."
            )
        return text
