"""Whole training runs, stage by stage: FastGL's figures 1, 3, 9, 11, 13, 14, 15 and tables 1 and 9.

One measurement serves them all: :func:`run` trains one model as one system and takes the median epoch after the first.
Each figure is a list of such runs and a ratio.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable, VerificationError, kept_to
from gnnsample_lab.device import jit
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.systems.table import System, find
from gnnsample_lab.systems.train import train

from .papers import CAPACITY_OF, columns, left_gb

STEPS, QUICK_STEPS, CPU_STEPS = 25, 8, 8
"""Mini-batches of a measured epoch at most: of a full run, a quick one, and a full one that samples on the CPU. An
epoch of ogbn-products has 25."""
EPOCHS, QUICK_EPOCHS = 6, 2
"""Epochs of a run; the first compiles kernels and captures graphs, and is not timed."""
MODELS = ("gcn", "gin", "gat")
SYSTEMS = ("pyg-cpu", "dgl", "gnnadvisor-style", "gnnlab", "fastgl", "lab")
LAB_ALIKE = "lab, reservoir, one by one"
CAPACITY = kept_to(
    CAPACITY_OF, "as large as what FastGL's table 1 leaves of the card's memory, scaled as the graph is"
)
"""Settings of the suites in which systems cache."""
FASTGL_GRAPHS = ("reddit-like", "products-like", "mag-like", "igb-like@0.02", "papers100M-like@0.25")
QUICK_GRAPHS = ("products-like", "mag-like@0.1")
"""All features of the one fit FastGL's left-over memory, an eighth of the other's do."""
SETTING = (
    f"epoch_s: the median epoch's wall time of {EPOCHS - 1} after the first ({QUICK_EPOCHS - 1} in a quick run), for "
    f"the mini-batches of a whole epoch: where it has more than {STEPS} "
    f"({CPU_STEPS} with a CPU's sampler, {QUICK_STEPS} in a quick run), so many are trained ('steps'), caches are "
    "ranked on their seeds, and the time is multiplied; stages in milliseconds a mini-batch, each on its own stream: "
    "stages that overlap add up to more; of several ways the fastest ('executor'): GNNLab's stage by stage, or an "
    "epoch sampled first and extracted while it trains; of systems that sample in a thread that, stage by stage, or a "
    f"worker a stage ({common.CPU_WORKERS} of a CPU's sampler)"
)


def graphs(session: Session, *quick: str) -> tuple[str, ...]:
    """FastGL's graphs; a quick run takes ``quick``."""
    return common.names(session, *(quick or ("products-like",)) if session.quick else FASTGL_GRAPHS)


def require_torch(session: Session) -> None:
    """Raises Unavailable where PyTorch is missing, or does not see the GPU that CuPy sees."""
    if importlib.util.find_spec("torch") is None:
        raise Unavailable("training needs PyTorch")
    import torch

    if common.device() == "cuda" and not torch.cuda.is_available():
        raise Unavailable("training on the GPU needs a PyTorch built for CUDA")


def featured(session: Session, name: str) -> Any:
    """The graph with features in host memory, as wide as FastGL's table 6 has them: cut, or repeated."""
    found, wide = common.graph(session, name, features=True), columns(name)
    if wide is None or found.feat is None or found.feat.shape[1] == wide:
        return found

    def make() -> Any:
        return replace(found, feat=_columns(np.asarray(found.feat), wide), validate=False)

    return session.kept(("featured", name, wide), make)


def _limited(session: Session, name: str, batch: int, dimension: int | None, steps: int) -> Any:
    """The graph with the seeds of ``steps`` mini-batches at most, features in host memory, topology on the device."""

    def make() -> Any:
        found = featured(session, name)
        if found.feat is None or found.label is None or "train" not in found.splits:
            raise Unavailable(f"{name} has no features, labels or training split to train on")
        if dimension is not None:
            found = replace(found, feat=_columns(np.asarray(found.feat), dimension), validate=False)
        if is_cut:
            seeds = np.random.default_rng(0).permutation(common.train_seeds(found))[: steps * batch]
            found = replace(found, splits={**found.splits, "train": np.sort(seeds)}, validate=False)
        return found.to(common.device(), features=False)

    is_cut = len(common.train_seeds(common.graph(session, name, features=True))) > steps * batch
    return session.kept(("training graph", name, steps * batch if is_cut else 0, dimension), make)


def most_steps(session: Session, system: System) -> int:
    """Mini-batches of a measured epoch at most."""
    if session.quick:
        return QUICK_STEPS
    return CPU_STEPS if system.sample_device == "cpu" and common.device() == "cuda" else STEPS


def forget_features(session: Session, name: str) -> None:
    """Let go of the large tables of features with another number of columns."""
    for key in [k for k in session._kept if k[:2] == ("training graph", name) and k[3] is not None]:
        del session._kept[key]


def _columns(feat: np.ndarray, dimension: int) -> np.ndarray:
    """``feat`` cut or repeated to ``dimension`` columns."""
    times = -(-dimension // feat.shape[1])
    return np.ascontiguousarray(np.tile(feat, (1, times))[:, :dimension])


def run(
    session: Session,
    name: str,
    system: str | System,
    model: str = "gcn",
    *,
    size: int = common.BATCH,
    fanouts: Sequence[int] = common.FANOUTS,
    hidden: int = 64,
    dimension: int | None = None,
    cache_ratio: float | None = None,
    fastest: bool = True,
) -> dict[str, Any]:
    """One training run, measured once per session; see :data:`SETTING`.

    A cache is as large as what FastGL's table 1 leaves for it, unless ``cache_ratio`` says otherwise: with everything
    cached on a larger card all systems move nothing, and nothing is compared.

    Args:
        fastest: of several executors; else by the system's own.

    Returns:
        ``epoch_s``, ``step_ms``, ``sample_ms``, ``reorder_ms``, ``extract_ms``, ``train_ms``, shares of the stages in
        percent, ``mb_per_batch``, ``rows_per_batch``, ``picks_per_batch``, ``hit_percent``, ``reused_percent``,
        ``peak_mb``, ``cache_percent``, ``cache_gb``.
    """
    chosen = find(system)
    full = featured(session, name)
    batch = common.batch_size(name, full, size)
    key = ("run", name, chosen, model, batch, tuple(fanouts), hidden, dimension, cache_ratio, fastest)

    def trained(executor: str) -> dict[str, Any]:
        graph = _limited(session, name, batch, dimension, most_steps(session, chosen))
        sized: dict[str, Any] = {}
        if chosen.cache and cache_ratio is None:
            sized["cache_gb"] = left_gb(name, int(full.feat.nbytes))
        elif chosen.cache:
            sized["cache_ratio"] = cache_ratio
        result = train(
            graph, model, chosen, epochs=QUICK_EPOCHS if session.quick else EPOCHS, batch_size=batch,
            fanouts=fanouts, hidden=hidden, executor=executor, workers=common.workers(chosen, executor),
            evaluate=False, progress=False, **sized,
        )  # fmt: skip
        timed = sorted(result.epochs[1:], key=lambda epoch: epoch.total_us)
        epoch = timed[len(timed) // 2]
        steps, stages = epoch.num_batches, epoch.stage_us
        of_step = timing.spread([epoch.total_us / 1e3 / steps for epoch in timed], "ms")
        whole = math.ceil(len(common.train_seeds(full)) / batch)
        busy = sum(stages.values())
        found = {
            "graph": name, "system": chosen.name, "model": model, "batch_size": batch, "fanouts": list(fanouts),
            "hidden": hidden, "executor": result.settings["executor"],
            "workers": common.workers(chosen, result.settings["executor"]), "num_features": int(graph.feat.shape[1]),
            "steps": steps, "steps_of_an_epoch": whole,
            "epoch_s": epoch.total_us / 1e6 * whole / steps, "step_ms": epoch.total_us / 1e3 / steps,
            "spread": {"step_ms": timing.around(of_step)},
            **{f"{stage}_ms": us / 1e3 / steps for stage, us in stages.items()},
            **{f"{stage}_percent": 100 * us / busy for stage, us in stages.items()},
            "mb_per_batch": epoch.bytes_moved / 1e6 / steps, "hit_percent": 100 * epoch.hit_rate,
            "reused_percent": 100 * epoch.reused_rows / max(epoch.rows, 1), **common.work_per_batch(epoch, steps),
            "peak_mb": epoch.peak_bytes / 1e6, "cache_percent": 100 * result.cache_ratio,
            "cache_gb": sized.get("cache_gb"),
            "setup_s": result.setup_us / 1e6, "loss": float(np.mean(result.losses[-steps:])),
            "notes": list(result.notes),
        }  # fmt: skip
        session.say(f"{name}, {model}, {chosen.name}, {found['executor']}: {found['step_ms']:.1f} ms a step")
        del result
        return found

    def make() -> dict[str, Any]:
        ways = common.executors(chosen) if fastest else (chosen.executor,)
        each = (trained(executor) for executor in ways)
        return min(each, key=lambda found: float(found["step_ms"]))

    return dict(session.kept(key, make))


def run_each(
    session: Session, name: str, systems: Sequence[str | System], model: str = "gcn", **options: Any
) -> list[dict[str, Any]]:
    """:func:`run` of each system, whose times are compared: a piece of a suite."""
    found: list[dict[str, Any]] = session.piece(
        (name, model, options), lambda: [run(session, name, system, model, **options) for system in systems]
    )
    return found


def verify(session: Session, systems: Sequence[str | System]) -> dict[str, Any]:
    """Compare every system with plain parts: torch's operators, the plain gather, no overlap. On the same samples in
    the same order, both have the same losses.

    Raises:
        VerificationError: the losses differ.
    """
    require_torch(session)
    small = common.graph(session, "arxiv-like@0.1", features=True)
    options: dict[str, Any] = {"epochs": 1, "batch_size": 1024, "fanouts": (5, 5), "pick": "floyd", "evaluate": False,
               "reorder": "none", "progress": False, "dropout": 0.0}  # fmt: skip

    def losses(system: System) -> np.ndarray:
        ratio = 0.2 if system.cache else None
        return np.array(train(small, "gcn", system, cache_ratio=ratio, **options).losses, np.float64)

    plain = replace(
        find("dgl"), strategy="block-bsp", id_map="sort", cache=None, match="never", kernel="library", executor="serial"
    )  # fmt: skip
    wanted = session.kept(("verified losses",), lambda: losses(plain))
    compared = 0
    for system in map(find, systems):
        found = session.kept(("verified losses", system), functools.partial(losses, system))
        if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=2e-3, atol=1e-4):
            worst = float(np.abs(found - wanted).max()) if found.shape == wanted.shape else math.nan
            raise VerificationError(
                f"system {system.name!r} trains to other losses (by {worst:.2g}); nothing is timed"
            )
        compared += int(found.size)
    return {"losses_equal_to_plain_parts": compared}


def ladder() -> tuple[System, ...]:
    """DGL's configuration, FastGL's techniques one after the other, FastGL itself (with a cache), and ours.

    Mini-batches that are put in order were sampled ahead and wait in host memory, as published.
    """
    dgl, fastgl = find("dgl"), find("fastgl")
    matched = replace(
        dgl, name="+ match-reorder", match="always", reorder="greedy", windows=fastgl.windows,
        executor=fastgl.executor,
    )  # fmt: skip
    aware = replace(matched, name="+ memory-aware", kernel="memory-aware")
    fused = replace(aware, name="+ fused-map", id_map="fused-map")
    return dgl, matched, aware, fused, fastgl, find("lab")


def record(
    session: Session,
    names: Sequence[str],
    rows: list[dict[str, Any]],
    verification: dict[str, Any],
    cached: bool = True,
    **settings: Any,
) -> dict[str, Any]:
    """The body of a suite's record; ``cached``: some of its systems have caches, whose size :data:`CAPACITY` says."""
    if not rows:
        raise Unavailable("none of the graphs could be trained on")
    return {
        "settings": {"device": common.device(), "batch_size": common.BATCH, "fanouts": common.FANOUTS, "hidden": 64,
                     "what": SETTING, **(CAPACITY if cached else {}), **settings},
        "verification": verification, "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip


def against(rows: list[dict[str, Any]], base: str, field: str = "step_ms") -> list[dict[str, Any]]:
    """Adds ``speedup``: the time of ``base`` over each row's."""
    reference = next(row[field] for row in rows if row["system"] == base)
    for row in rows:
        row["speedup"] = reference / row[field] if row[field] else None
    return rows


def figure1(session: Session) -> dict[str, Any]:
    """Where an epoch's time goes in the PyG-like and the DGL-like configuration."""
    checked, names, systems = verify(session, ("pyg-cpu", "dgl")), graphs(session), ("pyg-cpu", "dgl")
    rows: list[dict[str, Any]] = []
    for name in names:
        rows += run_each(session, name, systems)
    return record(session, names, rows, checked, cached=False)


def figure3(session: Session) -> dict[str, Any]:
    """Where an epoch's time goes as FastGL's techniques are added, GCN and GIN."""
    checked = verify(session, ladder())
    names = common.names(session, "products-like")
    rows: list[dict[str, Any]] = []
    for name in names:
        for model in ("gcn", "gin"):
            rows += against(run_each(session, name, ladder()[:-1], model), "dgl")
    return record(session, names, rows, checked)


def figure15(session: Session) -> dict[str, Any]:
    """The gain of each technique over the DGL-like configuration, GCN."""
    checked, names, rows = verify(session, ladder()), graphs(session), []
    for name in names:
        found = against(run_each(session, name, ladder()), "dgl")
        for before, row in zip([found[0], *found], found, strict=False):
            row["step_gain"] = before["step_ms"] / row["step_ms"]
        rows += found
    return record(session, names, rows, checked)


def figure9(session: Session) -> dict[str, Any]:
    """Epoch time of three models by system, one GPU, each cache as large as on the paper's card."""
    checked, names, rows = verify(session, SYSTEMS), graphs(session, *QUICK_GRAPHS), []
    for name in names:
        for model in MODELS:
            systems = SYSTEMS if not session.quick or model == "gcn" else ("dgl", "fastgl", "lab")
            found = run_each(session, name, systems, model)
            times = {row["system"]: row["step_ms"] for row in found}
            for row in against(found, "dgl"):
                row["fastgl_over_it"] = row["step_ms"] / times["fastgl"]
                row["lab_over_it"] = row["step_ms"] / times["lab"]
            rows += found
    return record(session, names, rows, checked)


def figure11(session: Session) -> dict[str, Any]:
    """Compute time (forward, loss, backward, optimizer) by aggregation kernel, preprocessing included.

    Every system trains alone and launches its kernels: nothing else differs in that stage.
    """
    from .aggregation_measures import MATRIX_KEPT, kernel_stage_rows

    kernels = {
        "dgl": "library",
        "gnnadvisor-style": "gnnadvisor-style",
        "fastgl": "memory-aware",
        "lab": "auto",
    }
    systems = [replace(find(name), executor="serial", captured=False) for name in kernels]
    checked, names, rows = verify(session, systems), graphs(session, *QUICK_GRAPHS), []
    for name in names:
        found = run_each(session, name, systems)
        alone = session.piece((name, "sums"), functools.partial(kernel_stage_rows, session, name))
        sums = {row["kernel"]: row for row in alone}
        for row in found:
            of_kernel = sums[kernels[row["system"]]]
            row["kernel"] = of_kernel["kernel"]
            row |= {key: of_kernel[key] for key in ("aggregate_ms", "preprocess_ms", "preprocess_percent")}
            row["aggregate_speedup"] = of_kernel["speedup"]
        rows += against(found, "dgl", "train_ms")
    return record(
        session, names, rows, checked,
        speedup="of train_ms, the whole stage, of systems that do one stage after the other and launch each kernel",
        cusparse=MATRIX_KEPT,
        aggregate_ms="the weighted sums of a mini-batch alone, three layers of 128, 64 and 64 features, forward and "
        "backward, preprocessing included",
        l2="train_ms: never flushed, as training leaves it; sums: cold, flushed before each pass, of whose "
        "mini-batches each has arrays of its own; preprocessing: not flushed, mini-batches take turns",
    )  # fmt: skip


def figure13(session: Session) -> dict[str, Any]:
    """Sampling alone, an epoch of it: picks and local ids.

    Ours as it trains, by Floyd's rule and several in a launch, and as the others: by the reservoir, one by one.
    """
    lab = find("lab")
    alike = replace(lab, name=LAB_ALIKE, pick="reservoir", executor="serial")
    checked, names, rows = verify(session, ("pyg-cpu", "dgl", "fastgl", "lab")), graphs(session), []
    for name in names:
        found = []
        for chosen in (find("pyg-cpu"), find("dgl"), find("fastgl"), alike, lab):
            graph = common.graph(session, name)
            place = chosen.sample_device if common.device() == "cuda" else "cpu"
            if graph.device != place:
                graph = session.kept(("host graph", name), functools.partial(graph.to, place))
            size, seeds = common.batch_size(name, graph), common.train_seeds(graph)
            steps = math.ceil(len(seeds) / size)
            taken = min(steps, most_steps(session, chosen))
            ways = {}
            for count in (1, common.CPU_WORKERS) if place == "cpu" else (1,):
                samplers = [
                    NeighborSampler(
                        graph, common.FANOUTS, strategy=chosen.strategy, pick=chosen.pick, id_map=chosen.id_map,
                        device=place,
                    )
                    for _ in range(count)
                ]  # fmt: skip
                epoch = functools.partial(
                    _epoch, samplers, seeds[: taken * size], size, 4 if chosen.executor == "streams" else 1
                )
                ways[count] = timing.spread([us / 1e3 / taken for us in timing.pass_times(epoch)], "ms")
            count = min(ways, key=lambda count: ways[count]["ms"])
            times = ways[count]
            found.append({
                "graph": name, "system": chosen.name, "strategy": chosen.strategy, "pick": chosen.pick,
                "id_map": chosen.id_map, "samplers": count, "batch_size": size, "sample_ms": times["ms"],
                "epoch_s": times["ms"] * steps / 1e3,
                "spread": {"sample_ms": timing.around(times)},
            })  # fmt: skip
            session.say(f"{name}, {chosen.name}: {times['ms']:.2f} ms to sample")
        rows += against(found, "dgl", "sample_ms")
    return record(
        session,
        names,
        rows,
        checked,
        cached=False,
        sample_ms="median wall time of sampler.epoch a mini-batch, nothing else running; of 'lab', which draws by "
        f"another rule and samples several in a launch, a mixed comparison: {LAB_ALIKE!r} does neither; on the CPU one "
        f"sampler has all cores or {common.CPU_WORKERS} share them, whichever is faster ('samplers')",
    )


def _epoch(samplers: Sequence[Any], seeds: np.ndarray, size: int, ahead: int) -> None:
    """Sample all mini-batches, by turns if there are several samplers, each of which has its share of the cores."""
    cores, many = jit.num_threads(), len(samplers)

    def share(number: int) -> None:
        parts = [seeds[at : at + size] for at in range(0, len(seeds), size)][number::many]
        if parts:
            with jit.threads(max(1, cores // many)):
                deque(samplers[number].epoch(np.concatenate(parts), size, prefetch=ahead), maxlen=0)

    if many == 1:
        share(0)
        return
    with ThreadPoolExecutor(many) as threads:
        deque(threads.map(share, range(many)), maxlen=0)  # raises what a sampler raised
