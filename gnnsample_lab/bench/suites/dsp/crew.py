"""What DSP's suites share: warm ranks, parts as files, seeds of every rank, and times of all ranks at once."""

from __future__ import annotations

import importlib.util
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.device.host import usable_cores

from . import on_ranks

FANOUTS = (15, 10, 5)
"""DSP's, section 7.1; ``FANOUTS[0]`` next to the seeds."""
BATCH = 1024
"""Seeds of a rank's mini-batch."""
CPU = "CPU: no NVLink"
DIVIDED = {"products-like": "metis", "papers100M-like": "streaming"}
"""How graphs with communities are divided: METIS leaves 6 % of the edges of ``products-like`` between two parts, chance
a half. ``papers100M-like`` has more edges than METIS takes, at a tenth of its size, too."""
PASS_S, PASSES = 0.02, 15
"""Seconds of a pass, and the most passes of a row."""
FULL_S, QUICK_S = 0.6, 0.3
"""Seconds of all passes of a row."""


def on_gpu() -> bool:
    return on_ranks.device_of_ranks() == "cuda"


def gpus() -> int:
    """GPUs of this machine; 0 where suites run on the CPU."""
    return on_ranks.num_gpus() if on_gpu() else 0


def most_ranks() -> int:
    """The largest power of two of ranks that suites run: as many as GPUs, at most 4; 2 on a CPU."""
    return 2 if not gpus() else 2 ** min(2, int(math.log2(gpus())))


def worlds() -> list[int]:
    """Numbers of ranks: 1, 2, 4 as far as there are GPUs."""
    return [n for n in (1, 2, 4) if n <= most_ranks()]


def tried_worlds(session: Session) -> list[int]:
    """Numbers of ranks that a suite tries: a quick run the largest of :func:`worlds` alone."""
    return worlds()[-1 if session.quick else 0 :]


def several(session: Session) -> list[int]:
    """Of :func:`tried_worlds` those of more than one rank, for what says nothing of one; a single GPU where there is no
    other."""
    return [n for n in tried_worlds(session) if n > 1 or n == most_ranks()]


def ranks(session: Session) -> Any:
    """Warm ranks, one for each GPU, else two on the CPU; all suites of a run share them."""
    from gnnsample_lab.distributed import Ranks

    def make() -> Any:
        began = time.perf_counter()
        found = Ranks(
            most_ranks(), device="cuda" if on_gpu() else "cpu", timeout_s=300, collective_timeout_s=60
        )
        session.say(f"{found.ranks} ranks on {found.backend}: {time.perf_counter() - began:.1f} s")
        return found

    return session.kept(("dsp", "ranks"), make)


def ranks_of(session: Session, count: int) -> Any:
    """So many warm ranks, for what takes all ranks of those that it is given; kept, since a start takes as long as some
    runs."""
    from gnnsample_lab.distributed import Ranks

    def make() -> Any:
        if count == most_ranks():
            return ranks(session)
        session.say(f"starting {count} ranks")
        return Ranks(count, device=common.device(), timeout_s=300, collective_timeout_s=120)

    return session.kept(("ranks", count), make)


SAMPLERS = (8, 16, 32)
"""Processes that sample on the CPU, besides as many as there are GPUs: with few threads each they may be quicker."""


def samplers() -> list[int]:
    """How many processes systems that sample on the CPU are tried with, ascending; each has a core and more."""
    return [*worlds(), *(n for n in SAMPLERS if on_gpu() and most_ranks() < n <= usable_cores())]


def pool_of(session: Session, count: int) -> Any:
    """Warm ranks for so many samplers on the CPU: those of the GPUs where they are enough."""
    from gnnsample_lab.distributed import Ranks

    if count <= most_ranks():
        return ranks(session)

    def make() -> Any:
        return Ranks(count, device="cpu", timeout_s=300, collective_timeout_s=60)

    return session.kept(("dsp", "samplers", count), make)


def device() -> str:
    return "cuda" if on_gpu() else CPU


def names(session: Session, *wanted: str) -> tuple[str, ...]:
    """The chosen graphs, else ``wanted``, or on a machine without a GPU a small one."""
    return common.names(session, *wanted, cpu=("arxiv-like@0.05",))


def notes() -> list[str]:
    """What has to stand below times of CPU ranks."""
    return (
        []
        if on_gpu()
        else [f"{CPU}: ranks are processes on this host's cores, and times say nothing about GPUs."]
    )


def seconds(session: Session) -> float:
    """For all passes of a row."""
    return QUICK_S if session.quick else FULL_S


def host_graph(session: Session, name: str, weighted: bool = False, features: bool = False) -> Any:
    """A graph in host memory, with edge weights or features where asked for."""

    def make() -> Any:
        if features:
            return common.graph(session, name, features=True).to("cpu")
        found = common.graph(session, name)  # with weights, which only weighted samplers read
        found = found.to("cpu", features=False)
        if not weighted:
            from dataclasses import replace

            found = replace(found, edge_weight=None, validate=False)
        return found

    return session.kept(("dsp", "graph", name, weighted, features), make)


def parts(
    session: Session,
    name: str,
    world: int,
    how: str | None = None,
    weighted: bool = False,
    features: bool = False,
) -> str:
    """Folder of the graph's parts, by :func:`division` unless ``how`` is given; written once a run."""
    from gnnsample_lab.distributed import save_parts

    how = how or division(session, name, world)

    def make() -> str:
        graph, cut = host_graph(session, name, weighted, features), cut_of(session, name, world, how)
        began = time.perf_counter()
        place = session.kept(("dsp", "folder"), lambda: tempfile.TemporaryDirectory(prefix="lab-dsp-"))
        marks = "-weighted" * weighted + "-features" * features
        folder = save_parts(graph, cut, Path(place.name) / f"{name}-{how}-{world}{marks}", features=features)
        session.say(f"{name}, {world} parts by {how} as files: {time.perf_counter() - began:.1f} s")
        return str(folder)

    return str(session.kept(("dsp", "parts", name, world, how, weighted, features), make))


def division(session: Session, name: str, world: int) -> str:
    """How a graph is divided: where it has communities by METIS, as DSP does, or in a stream where it is too large.

    At random where there is nothing to divide or nothing to find, in quick runs, and where METIS is due and pymetis is
    not there.
    """
    how = "random" if world == 1 or session.quick else DIVIDED.get(name.partition("@")[0], "random")
    return "random" if how == "metis" and not importlib.util.find_spec("pymetis") else how


def divisions(session: Session, names: Iterable[str], world: int) -> str:
    """For a record's settings: :func:`division` of each graph."""
    return ", ".join(f"{name}: {division(session, name, world)}" for name in names)


def cut_of(session: Session, name: str, world: int, how: str | None = None) -> Any:
    """Who owns which vertex, by :func:`division` or ``how``: by chance or by ranges as they come, else as even as the
    method gets."""
    from gnnsample_lab.distributed.parts.partition import evenest

    how = how or division(session, name, world)

    def make() -> Any:
        graph = host_graph(session, name)
        began = time.perf_counter()
        found = evenest(graph, world, how)
        took = time.perf_counter() - began
        session.say(
            f"{name}, {world} parts by {how}: {took:.1f} s, edges {found.balance['edges']:.3f} of the mean"
        )
        return found

    return session.kept(("dsp", "cut", name, world, how), make)


BALANCE = "balance: edges of the largest part over the mean"


def loosened(name: str, cut: Any) -> list[str]:
    """A note where a method that evens parts out left the largest one beyond the tolerance that is asked of it."""
    from gnnsample_lab.distributed.parts.partition import BASELINES, TOLERANCES

    largest = max(cut.balance.values())
    if cut.method in BASELINES or largest <= TOLERANCES[0]:
        return []
    uneven = f"the largest has {largest:.2f} of the mean, not {TOLERANCES[0]}"
    return [f"{name}, {cut.num_parts} parts by {cut.method}: {uneven}."]


def seeds_of(
    found: Any, world: int, batches: int, size: int = BATCH, owner: Any = None
) -> list[list[np.ndarray]]:
    """Training vertices for each rank and mini-batch, ``[world][batches]`` of distinct ones, ``int64``.

    Args:
        found: the graph.
        owner: rank of each vertex: each rank gets its own ones, as in DSP; None gives all ranks any.
        world, batches, size: how many ranks, mini-batches, and seeds of each.
    """
    pool, given = common.train_seeds(found), []
    for r in range(world):
        mine = pool if owner is None else pool[np.asarray(owner)[pool] == r]
        if not len(mine):
            mine = pool
        rng = np.random.Generator(np.random.PCG64([size, world, r]))
        given.append([
            rng.choice(mine, min(size, len(mine)), replace=False, shuffle=False).astype(np.int64)
            for _ in range(batches)
        ])  # fmt: skip
    return given


def batch_size(found: Any, wanted: int = BATCH) -> int:
    """``wanted``, less on a tiny graph."""
    return max(1, min(wanted, len(common.train_seeds(found)) // 8))


def batches_of_epoch(name: str, found: Any, size: int, world: int) -> float:
    """Mini-batches that each of ``world`` ranks samples in an epoch of the whole original of a scaled twin."""
    from gnnsample_lab.bench.record import scaled

    return max(1.0, len(common.train_seeds(found)) / scaled(name)[1] / size / world)


def slowest(results: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Of all ranks' times, those of the slowest: ``p10``, ``us``, ``p90``."""
    p10, us, p90 = max((r["times"] for r in results), key=lambda times: float(times[1]))
    return {"p10": p10, "us": us, "p90": p90}


def around(times: Sequence[float]) -> dict[str, float]:
    """Of the 10th percentile, median and 90th of some microseconds what a row keeps in its ``spread``."""
    return {"p10_us": times[0], "p90_us": times[2]}


def mean_work(batches: Iterable[Any]) -> dict[str, int]:
    """``rows`` (vertices) and ``edges`` (picks) of a mini-batch, means; batches are let go one by one."""
    sizes = np.array([(int(batch.num_nodes), int(batch.num_edges)) for batch in batches], np.int64)
    rows, edges = np.rint(sizes.mean(0)).astype(int).tolist()
    return {"rows": rows, "edges": edges}


def mean_over_ranks(results: Sequence[dict[str, Any]]) -> dict[str, int]:
    """``rows`` and ``edges`` of a rank's mini-batch, means over the ranks."""
    return {name: round(sum(r[name] for r in results) / len(results)) for name in ("rows", "edges")}


WORK = "rows, edges: vertices and picks of a rank's mini-batch, means of the mini-batches in rotation and of all ranks"
"""What suites that sample on ranks say of the work that their times are for."""


MODELLED_GPUS = 8
"""Of the machines of DSP and FastGL, where fewer are there."""
LEFT_OUT = "what more GPUs cost each other on links, in host memory and on the host's cores"
"""Of rows that are modelled so."""


def on_more_gpus(result: Any, gpus: int = MODELLED_GPUS) -> tuple[Any, Any]:
    """A training run's median epoch on more GPUs than it had by the schedule model: its slices, a GPU's each with the
    stage times that it had; without :data:`LEFT_OUT`.

    Returns:
        What the model is fed with (``RecordedRun``), and its ``Timeline``.
    """
    from gnnsample_lab.pipeline.schedule.records import run_of
    from gnnsample_lab.pipeline.schedule.simulate import simulate

    run = run_of(common.median_epoch(result))
    return run, simulate(run.times, run.executor or "serial", gpus=gpus, **run.options)


MODELLED_FROM = (
    "by the schedule model, fed with the stages of the run on the most GPUs as they were there; rows, picks and stages "
    f"are that run's. {LEFT_OUT[0].upper()}{LEFT_OUT[1:]} is left out. error_percent of a measured row: what the same "
    "model, fed with a run on fewer GPUs, the most of those that ran, says of its epoch, over it, less 1; modelled "
    "rows have to be expected to be as far off"
)
"""What records say of rows by :func:`on_more_gpus`."""


def off_percent(fewer: Any, result: Any) -> float:
    """How far :func:`on_more_gpus` of a run on fewer GPUs is off the median epoch of a run of as many slices."""
    _, timeline = on_more_gpus(fewer, result.ranks)
    return float(100 * (timeline.epoch_s * 1e6 / common.median_epoch(result).steady.total_us - 1))


def off_notes(rows: Iterable[dict[str, Any]], what: str = "epochs") -> list[str]:
    """How far the model was off the rows that say it; ``what``: of them."""
    errors = [row["error_percent"] for row in rows if row.get("error_percent") is not None]
    if not errors:
        return []
    return [
        f"Modelled {what} of runs that could be made, fed with runs on fewer GPUs, are off by {min(errors):+.0f} to "
        f"{max(errors):+.0f} %."
    ]


def attempt(run: Callable[[], Any]) -> tuple[Any, str]:
    """What ``run`` returns, or the first line of what went wrong: a method that fails must not end the suite."""
    try:
        found = run()
    except Exception as error:
        return None, (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    errors = [result["error"] for result in found if "error" in result]
    return (None, errors[0]) if errors else (found, "")


# ---- on the ranks -----------------------------------------------------------------------------------------------


def together(rank: Any, value: int, least: bool = False) -> int:
    """The largest (smallest) of all ranks' values: what is collective needs as many calls on all."""
    import torch
    import torch.distributed as dist

    found = torch.tensor([value], device=rank.device)
    dist.all_reduce(found, dist.ReduceOp.MIN if least else dist.ReduceOp.MAX, group=rank.group)
    return int(found)


def wait(rank: Any) -> None:
    if rank.device != "cpu":
        import cupy

        cupy.cuda.runtime.deviceSynchronize()


def timed(
    rank: Any, work: Callable[[int], Any], seconds: float, warm: int = 4, most: int = PASSES
) -> list[float]:
    """Wall microseconds of ``work(i)``, one after another on all ranks at once: 10th percentile, median, 90th.

    A pass begins at a barrier, takes some ten milliseconds and ends with the rank's GPU idle; at most ``most`` of them.
    """
    for i in range(warm):
        kept = work(i)
    wait(rank)
    rank.barrier()
    began = time.perf_counter()
    kept = work(0)
    wait(rank)
    took = max(time.perf_counter() - began, 1e-6)
    count = together(rank, max(1, min(math.ceil(PASS_S / took), 500)))
    passes = together(rank, max(3, min(most, int(seconds / (took * count)))), least=True)
    times = []
    for _ in range(passes):
        wait(rank)
        rank.barrier()
        began = time.perf_counter()
        for i in range(count):
            kept = work(i)
        wait(rank)
        times.append((time.perf_counter() - began) * 1e6 / count)
        del kept
    return [float(value) for value in np.percentile(times, [10, 50, 90])]


def event_times(rank: Any, work: Callable[[], Any], repeats: int = 9) -> list[float]:
    """GPU microseconds of ``work()`` between two events, after two warm ones: 10th percentile, median, 90th.

    On a CPU wall time.
    """
    times = []
    for index in range(repeats + 2):
        if rank.device == "cpu":
            began = time.perf_counter()
            kept = work()
            us = (time.perf_counter() - began) * 1e6
        else:
            import cupy

            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            kept = work()
            end.record()
            end.synchronize()
            us = cupy.cuda.get_elapsed_time(begin, end) * 1e3
        del kept
        if index >= 2:
            times.append(us)
    return [float(value) for value in np.percentile(times, [10, 50, 90])]


def on_device(rank: Any, arrays: Iterable[np.ndarray]) -> list[Any]:
    """Copies on the rank's GPU; the arrays themselves on a CPU."""
    return [on_ranks.on_device(rank, array) for array in arrays]
