"""Inference of all vertices, layer by layer: each layer beside its byte bound, streamed features, sampled inference.

"layer": one layer with its tables on the device. "streamed": the first layer with the features in host memory, read in
chunks, beside the copy of page-locked memory. "whole": the inference as a user calls it, beside sampled inference of
the same vertices, and both accuracies.
"""

from __future__ import annotations

import functools
import statistics
from dataclasses import replace
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.floors.bound import refuse_undercut
from gnnsample_lab.bench.quick_core import quick_pass
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites.fastgl import training
from gnnsample_lab.bench.suites.fastgl.aggregation_measures import bandwidths
from gnnsample_lab.compute.inference.infer import Inference, LayerRun, infer
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.features.caching.cache import FeatureCache
from gnnsample_lab.minibatch.export import tensor
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.pipeline.executors import shared_stream
from gnnsample_lab.systems.train import train

GRAPHS = ("arxiv-like", "products-like")
MODELS = ("sage", "gcn", "gin", "gat")
HIDDEN = 64
EPOCHS, QUICK_EPOCHS = 10, 2
"""Of training: the accuracies are those of a model that has learnt something."""
PASSES, SAMPLED_PASSES = 7, 5
TOLERANCE = 1e-4
"""Largest difference from the whole graph as one mini-batch, relative to the largest logit."""


def inference(session: Session) -> dict[str, Any]:
    """The suite's function."""
    training.require_torch(session)
    names = session.chosen or (GRAPHS[:1] if session.quick or common.device() == "cpu" else GRAPHS)
    rows: list[dict[str, Any]] = []
    verified = 0
    on_gpu = common.device() == "cuda"
    speeds = session.piece(("bandwidths",), functools.partial(bandwidths, session)) if on_gpu else {}
    for name in names:
        for model in MODELS[:1] if session.quick else MODELS:
            found, checked = session.piece(
                (name, model), functools.partial(_of, session, name, model, speeds)
            )
            rows += found
            verified += checked
    return {
        "settings": {
            "device": common.device(), "hidden": HIDDEN, "fanouts": common.FANOUTS, "batch_size": common.BATCH,
            "dtype": "float32, TF32 off", "epochs": QUICK_EPOCHS if session.quick else EPOCHS,
            "us": "a layer between two events, launches included; the whole call by the wall, the device idle before "
            "and finished after; median of passes after a warm one, which finds the order of vertices, once per graph; "
            "on a core that is quick before and after, but where threads stage pageable rows",
            "l2": f"{common.AS_LEFT}: never flushed, a layer finds what the one before has written, as far as the "
            "L2 holds it, and a call what the one before left",
            "bound_us": "rows read once, edges, row bounds and results once, over the measured DRAM bandwidth",
            "l2_bound_us": "a message per edge, over the measured bandwidth of reads that hit the L2",
            "flops_us": "the linear maps' multiplications and additions, over the FP32 peak: with TF32 off no tensor "
            "core takes part",
            "kernels_us": "summed time of a whole inference's kernels and copies, and how many these are",
            "sampled": "every vertex a seed once, all features on the device, mini-batches prefetched", **speeds,
        },
        "verification": {"inferences_equal_to_the_whole_graph_as_one_mini_batch": verified},
        "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip


def _of(
    session: Session, name: str, model: str, speeds: dict[str, float]
) -> tuple[list[dict[str, Any]], int]:
    """Rows of a model on a graph, and how many inferences were verified."""
    host = replace(common.graph(session, name, features=True), edge_weight=None, validate=False)
    graph = session.kept(("inference", name), functools.partial(host.to, common.device()))
    network = _trained(session, name, graph, model)
    verified = _verify(name, graph, network)
    rows = _layers(name, graph, model, network, speeds)
    if common.device() == "cuda":
        rows += _streamed(session, name, host, graph, model, network)
    return [*rows, _whole(session, name, graph, model, network)], verified


def _trained(session: Session, name: str, graph: Any, model: str) -> Any:
    size = common.batch_size(name, graph, 1024)
    result = train(
        graph, model, "lab", epochs=QUICK_EPOCHS if session.quick else EPOCHS, batch_size=size, hidden=HIDDEN,
        fanouts=common.FANOUTS, cache_ratio=1.0, device=common.device(), evaluate=False, progress=False,
    )  # fmt: skip
    return result.network


def _verify(name: str, graph: Any, network: Any) -> int:
    """Is the inference what the model gives for the whole graph, tables on the device or streamed?

    Raises:
        VerificationError: it is not.
    """
    import torch

    run = Inference(network, graph, device=common.device())
    found = tensor(run.run())
    host = to_host(graph.feat)
    # A budget that everything fits on a CPU as well, where only a budget makes a table one of the host's.
    streamed = Inference(network, graph, features=host, device=common.device(), stream=True, budget_gb=1e3)
    again = tensor(streamed.run())
    network.eval()
    with torch.no_grad():
        block = run.block()
        wanted = network([block] * len(network.layers), tensor(graph.feat))
    for what, logits in (("resident", found), ("streamed", again)):
        off = float((logits - wanted).abs().max() / wanted.abs().max())
        if not off <= TOLERANCE:
            raise VerificationError(f"{name}: {what} inference differs by {off:.2g}; nothing is timed")
    return 2


def _passes(make: Any, by_threads: bool = False) -> list[list[LayerRun]]:
    """The layers of several runs, without the first, which compiles: each on a quick core, unless threads do a part."""

    def taken() -> list[LayerRun]:
        run = make()
        run.run()
        layers: list[LayerRun] = run.layers
        return layers

    taken()
    return [taken() if by_threads else quick_pass(taken, taken) for _ in range(PASSES)]


def _wall(work: Any, passes: int) -> list[float]:
    """Wall microseconds of a call, a pass each."""
    return [us for (us,) in timing.wall_passes(lambda _: work(), 1, passes)]


def _spread(times: list[float]) -> dict[str, float]:
    return {
        "us": statistics.median(times), "p10": float(np.quantile(times, 0.1)), "p90": float(np.quantile(times, 0.9)),
    }  # fmt: skip


def least_bytes(graph: Any, run: LayerRun) -> int:
    """What a layer must move: each row read once, edges and row bounds once, each result written once."""
    n, w = graph.num_nodes, run.widths
    return n * (w.read * w.in_itemsize + w.result * w.itemsize) + 4 * graph.num_edges + 8 * (n + 1)


def map_flops(graph: Any, layer: Any) -> int:
    """Multiplications and additions of a layer's linear maps, each applied to every vertex once."""
    import torch

    maps = [module for module in layer.modules() if isinstance(module, torch.nn.Linear)]
    return int(graph.num_nodes) * sum(2 * m.in_features * m.out_features for m in maps)


def _row(name: str, model: str, part: str, index: int, run: LayerRun) -> dict[str, Any]:
    w = run.widths
    return {
        "graph": name, "model": model, "part": part, "l2": common.AS_LEFT, "layer": index,
        "columns": f"{w.read}, {w.sent}, {w.result}", "ranges": run.ranges,
    }  # fmt: skip


def _layers(name: str, graph: Any, model: str, network: Any, speeds: dict[str, Any]) -> list[dict[str, Any]]:
    passes = _passes(lambda: Inference(network, graph, device=common.device(), timed=True))
    rows = []
    for index, runs in enumerate(zip(*passes)):
        row = _row(name, model, "layer", index, runs[0]) | _spread([float(run.us or 0) for run in runs])
        if speeds:
            row["bound_us"] = least_bytes(graph, runs[0]) / speeds["dram_gbps"] / 1e3
            row["share"] = row["bound_us"] / row["us"]
            refuse_undercut(f"{name}, {model}, layer {index}", row["bound_us"], [row["p10"]])
            row["l2_bound_us"] = 4 * graph.num_edges * runs[0].widths.sent / speeds["l2_gbps"] / 1e3
            row["flops_us"] = map_flops(graph, network.layers[index]) / speeds["fp32_gflops"] / 1e3
        rows.append(row)
    return rows


def _streamed(
    session: Session, name: str, host: Any, graph: Any, model: str, network: Any
) -> list[dict[str, Any]]:
    """The first layer with its rows in host memory: page-locked, and as NumPy allocates them."""
    from gnnsample_lab.features.caching.host import pin, pinned_copy_gbps

    copy_gbps = session.kept(("pinned copy",), pinned_copy_gbps)
    table, rows = np.asarray(host.feat), []
    for kind in ("page-locked", "pageable"):
        kept = pin(table, "copy") if kind == "page-locked" else None
        rows_of = table if kept is None else kept.rows

        def make(given: Any = rows_of) -> Inference:
            return Inference(network, graph, features=given, device="cuda", timed=True, stream=True)

        runs = [layers[0] for layers in _passes(make, by_threads=kept is None)]
        if runs[0].ranges != 1 or runs[0].read_bytes - runs[0].score_bytes != table.nbytes:
            raise VerificationError(f"{name}, {model}: streamed rows were not read once")
        row = _row(name, model, "streamed", 0, runs[0]) | _spread([float(run.us or 0) for run in runs])
        gbps = runs[0].read_bytes / float(row["us"]) / 1e3
        row |= {"memory": kind, "gbps": gbps, "copy_gbps": copy_gbps, "of_copy": gbps / copy_gbps}
        rows.append(row)
        session.say(f"{name}, {model}, {kind}: {row['gbps']:.1f} GB/s, {row['of_copy']:.2f} of the copy")
        del kept
    return rows


def sampled(graph: Any, network: Any, fanouts: tuple[int, ...], size: int) -> Any:
    """Logits of all vertices by mini-batches of sampled neighbourhoods, ``[N, classes]`` on the device."""
    import torch

    sampler = NeighborSampler(graph, list(fanouts), device=common.device())
    features = FeatureCache(graph.feat, ratio=1.0, device=common.device())
    network.eval()
    logits: Any = None
    with shared_stream(common.device()), torch.no_grad():
        for batch in sampler.epoch(np.arange(graph.num_nodes), batch_size=size, shuffle=False):
            x, _ = features.extract(batch.node_ids)
            found = network(batch.blocks, tensor(x))
            if logits is None:
                logits = found.new_empty((graph.num_nodes, found.shape[1]))
            logits[tensor(batch.seeds).long()] = found
    return logits


def accuracy(graph: Any, logits: Any) -> float:
    """Share of right classes over the test split, or all labelled vertices where there is none."""
    label, guess = to_host(graph.label), to_host(logits).argmax(1)
    ids = to_host(graph.splits["test"]) if "test" in graph.splits else np.arange(graph.num_nodes)
    ids = ids[label[ids] >= 0]
    return float((guess[ids] == label[ids]).mean())


def kernels(work: Any) -> dict[str, float]:
    """Summed time of the kernels and copies of a call, and how many these are."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        timing.synchronize()
    found = [event for event in seen.key_averages() if event.self_device_time_total > 0]
    return {
        "kernels_us": float(sum(event.self_device_time_total for event in found)),
        "launches": int(sum(event.count for event in found)),
    }


def _whole(session: Session, name: str, graph: Any, model: str, network: Any) -> dict[str, Any]:
    def layerwise() -> Any:
        return infer(network, graph, device=common.device())

    def by_batches() -> Any:
        return sampled(graph, network, common.FANOUTS, size)

    size = common.batch_size(name, graph)
    ours, theirs = layerwise(), by_batches()
    few = common.device() != "cuda"
    theirs_us = timing.spread(_wall(by_batches, 1 if few else SAMPLED_PASSES), "sampled_us")
    row: dict[str, Any] = {
        "graph": name, "model": model, "part": "whole", "l2": common.AS_LEFT,
        **_spread(_wall(layerwise, 1 if few else PASSES)),
        "sampled_us": theirs_us["sampled_us"], "spread": {"sampled_us": timing.around(theirs_us)}, "seeds": size,
        "accuracy": accuracy(graph, ours), "sampled_accuracy": accuracy(graph, theirs),
    }  # fmt: skip
    row["x_sampled"] = row["sampled_us"] / row["us"]
    if common.device() == "cuda":
        row |= kernels(layerwise)
    session.say(f"{name}, {model}: {row['us'] / 1e3:.2f} ms, {row['x_sampled']:.1f} x sampled inference")
    return row
