"""What building the scheduling index costs, in bytes and in time."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from typing import Any, ClassVar

import plotly.graph_objects as go
import traitlets

from gnnsample_lab import figures, readable
from gnnsample_lab.device import runtime
from gnnsample_lab.resources import resource_path
from gnnsample_lab.sampling.explain import threads

from ...shell.controls import Choice, Control
from ...shell.recipe import Panels, Recipe
from .kernels import LENGTH, BatchExplorer, describe, loads, run
from .threads import DEEPWALK, KHOP, draw_roots, make_app

RECORDED = "data/measured/nextdoor-fig6.json"
NOTHING, HERE = "none yet", "this GPU"
METHODS = {"radix": "radix sort", "counting": "counting sort"}


def work_of(result: Any) -> dict[str, Mapping[str, float]]:
    """Bytes of sampling and of both kinds of index, step by step, as :func:`figures.index_work` takes them."""
    id_bytes = int(result.roots.dtype.itemsize)
    rows: dict[str, Mapping[str, float]] = {}
    for step, load in enumerate(loads(result)):
        rows[f"step {step + 1}, sampling"] = threads.sampling_bytes(load, id_bytes)
        for method, name in METHODS.items():
            rows[f"step {step + 1}, {name}"] = threads.index_bytes(
                load, result.graph.num_nodes, id_bytes, method
            )
    return rows


def recorded_shares() -> tuple[dict[tuple[str, str], dict[str, float]], str]:
    """(Graph, index) -> application -> percent of the time that its index took, and the GPU; empty where unrecorded."""
    try:
        found = json.loads(resource_path(RECORDED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, ""
    gpu = ((found.get("environment") or {}).get("gpu") or {}).get("name")
    if found.get("origin") != "measured" or not gpu:
        return {}, ""
    shares: dict[tuple[str, str], dict[str, float]] = {}
    for row in found["rows"]:
        if row.get("index_percent") is not None:
            # As run_app names them; "always" of older records counts.
            index = {"always": "counting"}.get(row["index"], row["index"])
            shares.setdefault((row["graph"], index), {})[row["app"]] = float(row["index_percent"])
    return shares, str(gpu)


def timed_shares(graph: Any, app: Any, roots: Any, seed: int, index: str) -> dict[str, float]:
    """Percent of a step's GPU time that its index takes, measured here: step -> median of five runs."""
    from gnnsample_lab.sampling.engine.gpu import GpuEngine
    from gnnsample_lab.sampling.engine.language.compile import compile_operator
    from gnnsample_lab.sampling.engine.run import check_roots
    from gnnsample_lab.sampling.engine.shape import Shape

    app.prepare(graph)
    operator, on_gpu = compile_operator(app, graph), check_roots(roots, graph.num_nodes, "cuda")
    runs = []
    for _ in range(6):
        engine = GpuEngine(graph, app, operator, Shape(app, 1), on_gpu, seed, index=index, timed=True)
        engine.run()
        runs.append([(r.get("index_us", 0.0), r.get("sample_us", 0.0)) for r in engine.schedule])
    shares = {}
    for step in range(len(runs[0])):
        percent = [100 * run[step][0] / max(1e-9, sum(run[step])) for run in runs[1:]]
        shares[f"step {step + 1}"] = statistics.median(percent)
    return shares


def recorded_figure(graph: str, method: str) -> go.Figure:
    """The recorded share of the index on ``graph``, and the paper's; a figure that says so where none was recorded."""
    from gnnsample_lab.bench.suites.nextdoor.papers import FIGURE6

    shares, gpu = recorded_shares()
    if (graph, method) not in shares:
        what = "no recorded times" if not shares else f"no recorded times of {graph} with this index"
        return figures.empty_figure(
            "Time share of the index",
            f"No GPU here, and {what}.<br><i>gnnsample-lab bench nextdoor-fig6</i> on a GPU host records them.",
        )
    title = f"{graph} (synthetic)" if "-like" in graph else graph
    label = f"{title} · NextDoor's settings, index {method} · measured on {gpu}, recorded"
    paper = {row["app"]: row["index_percent"] for row in FIGURE6 if row["graph"] == graph}
    return figures.index_share(shares[graph, method], paper=paper, label=label)


def count_bytes(result: Any) -> Any:
    return work_of(result)


def measure(
    host: Any, on_device: Any, device: str, app: str, fanouts: list[int], batch: int, seed: int, method: str
) -> dict[str, float]:
    """Percent of a step's time that its index takes on this GPU; empty without one."""
    if device == "cpu":
        return {}
    application = make_app(app, fanouts, LENGTH)
    return timed_shares(on_device, application, draw_roots(host, batch, seed), seed, method)


def draw_work(host: Any, device: str, app: str, fanouts: list[int], batch: int, work: Any) -> Any:
    return figures.index_work(
        work, label=describe(host, device, app, fanouts, f"{batch:,} {readable.noun(batch, 'root')}")
    )


def draw_share(host: Any, app: str, batch: int, timed: Any, method: str, recorded: str) -> Any:
    if not timed:
        return recorded_figure(recorded, method)
    what = f"{host.title} · {app}, {batch:,} {readable.noun(batch, 'root')}, index {method}"
    return figures.index_share(timed, label=f"{what} · measured on {runtime.device_name()}")


class IndexExplorer(BatchExplorer):
    """What the scheduling index costs: bytes it moves against those of sampling, and its share of the time.

    State: ``app`` ("k-hop", "DeepWalk"), ``batch``, ``fanout_1``, ``fanout_2``, ``seed``, ``method`` (the index whose
    time is shown: "radix", "counting", "published", "ranges", "auto"), ``recorded`` (without a GPU: the graph of
    recorded times).

    Bytes are counted from the sample. Times are measured: here where there is a GPU, else recorded ones are shown. See
    :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "What the scheduling index costs"
    recipe: ClassVar[Recipe] = {
        "result": run,
        "work": count_bytes,
        "timed": measure,
        "shown": Panels(work=draw_work, share=draw_share),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {"Bytes and time of the index": ("work", "share")}

    method = traitlets.Unicode("radix").tag(state=True)
    recorded = traitlets.Unicode("").tag(state=True)

    apps: ClassVar[list[str]] = [KHOP, DEEPWALK]

    def prepare(self, state: dict[str, Any]) -> None:
        super().prepare(state)
        graphs = list(dict.fromkeys(graph for graph, _ in recorded_shares()[0]))
        self._choices = [HERE] if self.device == "cuda" else graphs or [NOTHING]
        if "recorded" not in state:
            self.recorded = self.graph.name if self.graph.name in graphs else self._choices[0]

    def build_controls(self) -> dict[str, Control]:
        controls = [
            *self.batch_controls(),
            Choice("method", "Index that is timed", self.method, [*METHODS, "published", "ranges", "auto"]),
            Choice("recorded", "Times of", self.recorded, self._choices),
        ]
        return {control.name: control for control in controls}

    def summary(self, made: dict[str, Any]) -> str:
        work = made["work"]
        sampling = sum(sum(row.values()) for name, row in work.items() if name.endswith("sampling"))
        ratios = {
            name: sum(sum(row.values()) for key, row in work.items() if key.endswith(name)) / max(1, sampling)
            for name in METHODS.values()
        }
        told = " and ".join(
            f"<b>{readable.times(ratio)}</b> as much for a {name}" for name, ratio in ratios.items()
        )
        return f"Counted over all steps, sampling moves {readable.size(sampling)}, and the index {told}."
