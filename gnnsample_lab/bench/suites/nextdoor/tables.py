"""NextDoor's tables 2 and 3 and its figures 6, 7 and 9."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.floors import floor
from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.sampling import apps

from . import cases as settings
from . import runs

BASELINES = ("sample", "transit-vanilla")
LADDER = (*BASELINES, "transit")
ALTERNATIVES = ("frontier", "message")
FIGURE9_CASES = ("DeepWalk", "PPR", "node2vec", "k-hop")


def condensed(schedule: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A run's schedule with neighbouring steps of one kind as one entry: how many, and numbers added up."""
    found: list[dict[str, Any]] = []
    kind: str | None = None
    for step in schedule:
        words = {k: v for k, v in step.items() if isinstance(v, (str, bool)) or v is None}
        numbers = {k: v for k, v in step.items() if k not in words and k != "step" and np.ndim(v) == 0}
        key = json.dumps([words, sorted(numbers)], sort_keys=True)
        if key != kind:
            found.append({"steps": 0, **words, **dict.fromkeys(numbers, 0)})
            kind = key
        found[-1]["steps"] += 1
        for name, value in numbers.items():
            found[-1][name] += value
    return found


def _over(slow: float, fast: float) -> float | None:
    return slow / fast if fast else None


def table3(session: Session) -> dict[str, Any]:
    """The graphs: sizes beside the paper's."""
    large = () if session.quick or common.device() == "cpu" else ("friendster-like@0.25",)
    wanted = settings.names(session, (*settings.GRAPHS, *large))
    rows = []
    for name in wanted:
        found = settings.graph(session, name)
        degrees = np.diff(to_host(found.indptr))
        if int(degrees.sum()) != found.num_edges:
            raise VerificationError(f"{name}: the lists do not have as many entries as the graph has edges")
        rows.append({
            "graph": name, "num_nodes": found.num_nodes, "num_edges": found.num_edges,
            "average_degree": found.num_edges / found.num_nodes, "max_degree": int(degrees.max()),
            "without_in_edges_percent": 100 * float((degrees == 0).mean()), "scale": scaled(name)[1],
        })  # fmt: skip
    return runs.record(session, wanted, rows, {"graphs_counted": len(rows)})


def _rows(
    session: Session,
    wanted: Sequence[str],
    cases: Sequence[str],
    make: Callable[[runs.Study], list[dict[str, Any]]],
) -> tuple[list[dict[str, Any]], dict[str, int], list[str]]:
    """Rows of every application on every graph, what was compared, and notes on those that exceed the memory."""
    rows, checked, notes = list[dict[str, Any]](), Counter[str](), list[str]()

    def of(name: str, case: str) -> dict[str, Any]:
        try:
            study = runs.study(session, name, case)
            return {"rows": make(study), "checked": runs.checked(study)}
        except MemoryError as error:
            note = f"{case} on {name} is left out: {error}"
            session.say(note)
            return {"rows": [], "checked": {}, "note": note}

    for name in wanted:
        for case in cases:
            found = session.piece((name, case), functools.partial(of, name, case))
            rows += found["rows"]
            checked += Counter(found["checked"])
            notes += [found["note"]] if "note" in found else []
    return rows, dict(checked), notes


def figure7(session: Session) -> dict[str, Any]:
    """All applications: transit-parallel over sample-parallel, vanilla transit-parallel, and the CPU walker."""
    wanted, threads = settings.names(session), runs.all_threads()

    def make(study: runs.Study) -> list[dict[str, Any]]:
        times = {parallelism: study.measure(parallelism) for parallelism in LADDER}
        published = study.measure("transit", "published")
        # NextDoor sorts to find vertices that repeat, and so do those that it is divided into.
        alike = {p: study.measure(p, "published") if study.is_unique else times[p] for p in BASELINES}
        one, every = study.cpu_walker(1), study.cpu_walker(threads)
        ours = times["transit"]
        row = {
            **study.row(), "vertices": ours["vertices"], "steps": ours["steps"],
            "ms": {p: t["ms"] for p, t in times.items()}, "published_ms": published["ms"],
            "passes": min(t["passes"] for t in times.values()),
            "spread": {**{p: timing.around(t) for p, t in times.items()}, "published_ms": timing.around(published)},
            "over_sample": _over(times["sample"]["ms"], ours["ms"]),
            "over_vanilla": _over(times["transit-vanilla"]["ms"], ours["ms"]),
            "sorted_ms": {p: found["ms"] for p, found in alike.items()} if study.is_unique else None,
            "published_over_sample": _over(alike["sample"]["ms"], published["ms"]),
            "published_over_vanilla": _over(alike["transit-vanilla"]["ms"], published["ms"]),
            "published_over_cpu_all": published["vertices_per_s"] / every["vertices_per_s"],
            "vertices_per_s": ours["vertices_per_s"],
            "cpu_core_vertices_per_s": one["vertices_per_s"], "cpu_all_vertices_per_s": every["vertices_per_s"],
            "cpu_samples": {"1": one["cpu_samples"], str(threads): every["cpu_samples"]},
            "cpu_seconds": {"1": one["each_s"], str(threads): every["each_s"]},
            "over_cpu_core": ours["vertices_per_s"] / one["vertices_per_s"],
            "over_cpu_all": ours["vertices_per_s"] / every["vertices_per_s"],
            "schedule": condensed(ours["schedule"]), "published_schedule": condensed(published["schedule"]),
        }  # fmt: skip
        session.say(
            f"{study.name}, {study.case}: {row['over_sample']:.2f} x sample, {row['over_vanilla']:.2f} x vanilla, "
            f"{row['over_cpu_core']:.0f} x one core; as published {row['published_over_sample']:.2f} x sample"
        )
        return [row]

    rows, checked, notes = _rows(session, wanted, settings.cases(session, *settings.CASES), make)
    return runs.record(
        session, wanted, rows, checked, notes=notes,
        ms='one call of every parallelism; "transit" is ours, which groups pairs where it pays; published_ms: index in '
        "every step, of walks without end until an eighth, 2^19 at most, are left, three kernels, lists of up to 8 KB "
        "cached",
        cpu=f"CPU walker (Numba, KnightKing's rejection), random samples for {runs.CPU_LEAST_S} s, scaled by vertices",
        cpu_walker="leaves walks that have ended",
        sorted_ms="sample-parallel and vanilla transit-parallel with unique by sorting, which the published kernels "
        "are divided into",
    )  # fmt: skip


def figure9(session: Session) -> dict[str, Any]:
    """Over the frontier-centric (Gunrock) and the message-passing (Tigr) formulation."""
    wanted = settings.names(session)

    def make(study: runs.Study) -> list[dict[str, Any]]:
        found = {p: study.measure(p) for p in ("sample", "transit", *ALTERNATIVES)}
        times = {p: one["ms"] for p, one in found.items()}
        found["published_ms"] = study.measure("transit", "published")
        published = found["published_ms"]["ms"]
        return [{
            **study.row(), "ms": times, "over_frontier": _over(times["frontier"], times["transit"]),
            "over_message": _over(times["message"], times["transit"]), "published_ms": published,
            "published_over_frontier": _over(times["frontier"], published),
            "published_over_message": _over(times["message"], published),
            "spread": {p: timing.around(one) for p, one in found.items()},
        }]  # fmt: skip

    rows, checked, notes = _rows(session, wanted, settings.cases(session, *FIGURE9_CASES), make)
    return runs.record(session, wanted, rows, checked, notes=notes, ms="one call of every formulation")


@contextlib.contextmanager
def index_spans() -> Iterator[list[tuple[Any, Any]]]:
    """While it is open, an event before and one after every scheduling index that is built."""
    import cupy

    from gnnsample_lab.sampling.engine.grouping import classes, index, ranges

    builders = ((index, "build"), (ranges, "group"), (classes, "build"))
    real, spans = [getattr(*builder) for builder in builders], list[tuple[Any, Any]]()

    def timed(build: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            built = build(*args, **options)
            end.record()
            spans.append((begin, end))
            return built

        return call

    for (module, name), build in zip(builders, real, strict=True):
        setattr(module, name, timed(build))
    try:
        yield spans
    finally:
        for (module, name), build in zip(builders, real, strict=True):
            setattr(module, name, build)


_SHARES = 5
"""Passes of :func:`index_share`."""


def index_share(study: runs.Study, index: str) -> dict[str, Any]:
    """GPU time between the ends of a call and inside its index builds: ``ms``, ``index_ms``, ``spread``, ``builds``."""
    import cupy

    study.verified("transit", index)
    whole, inside, builds = list[float](), list[float](), 0
    began = time.perf_counter()
    while len(whole) < _SHARES:
        is_warm = time.perf_counter() - began > runs.WARM_S  # the GPU's clocks fall while the CPU verifies
        run = study.ready("transit", index)
        timing.synchronize()
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        with index_spans() as spans:
            begin.record()
            kept = run()
            end.record()
        end.synchronize()
        if is_warm:
            whole.append(cupy.cuda.get_elapsed_time(begin, end))
            inside.append(sum(cupy.cuda.get_elapsed_time(*span) for span in spans))
        builds = len(spans)
        del kept
    call, index_alone = timing.spread(whole, "ms"), timing.spread(inside, "ms")
    return {
        "ms": call["ms"], "index_ms": index_alone["ms"], "builds": builds,
        "spread": {"ms": timing.around(call), "index_ms": timing.around(index_alone)},
    }  # fmt: skip


def figure6(session: Session) -> dict[str, Any]:
    """The scheduling index's share of the time: as published, by a radix sort, and where the engine chooses (auto)."""
    wanted = settings.names(session)
    kinds = ("published", "radix", "ranges", "auto")

    def make(study: runs.Study) -> list[dict[str, Any]]:
        found = {index: index_share(study, index) for index in kinds}
        return [
            {
                **study.row(), "index": index, **share, "index_percent": 100 * share["index_ms"] / share["ms"],
                "steps": study.verified("transit", index)["steps"],
            }
            for index, share in found.items()
        ]  # fmt: skip

    rows, checked, notes = _rows(session, wanted, settings.cases(session), make)
    return runs.record(
        session, wanted, rows, checked, notes=notes,
        index_ms="between events before and after each build; small builds are as long as their launches take; the "
        "pairs of a published walk are counted by the kernels that draw them",
    )  # fmt: skip


DRAWS = (1, 2, 4, 8, 16, 31, 32, 64, 128, 256, 512, 1024, 2048, 8192, 32768)
"""Draws per transit of table 2's sweep; the number of all draws is about the same at every point."""


def table2_roots(num_nodes: int, draws: int, total: int, seed: int = 0) -> np.ndarray:
    """Roots of one-step samples such that each of the chosen vertices is the transit of ``draws`` of them, shuffled."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(num_nodes, max(1, min(num_nodes, total // draws)), replace=False)
    return rng.permutation(np.repeat(chosen, draws))


KERNELS = ("sub-warp", "block", "grid")
_ALONE, _LEAD_INS = 9, 4
"""Passes of a step alone, and reads before each: together about a millisecond, in which the host launches a step."""


@contextlib.contextmanager
def forced(which: str) -> Iterator[None]:
    """While it is open, every transit goes to one of table 2's kernels."""
    from gnnsample_lab.sampling.engine.steps import published

    real, most = published.KNOBS, 1 << 62
    few, many = {"sub-warp": (most, most), "block": (1, most), "grid": (1, 0)}[which]
    published.KNOBS = dataclasses.replace(real, classes=dataclasses.replace(real.classes, few=few, many=many))
    try:
        yield
    finally:
        published.KNOBS = real


def table2(session: Session) -> dict[str, Any]:
    """What each kernel costs at how many draws per transit: its draws alone, the index built before."""
    name = settings.names(session, ("orkut-like",), ("ppi-like",))[0]
    total = 1 << (18 if session.quick else 22)
    rows = []
    for draws in DRAWS if not session.quick else DRAWS[::3]:
        roots = table2_roots(settings.graph(session, name).num_nodes, draws, total)
        study = runs.Study(session, name, "k-hop", lambda: apps.KHop((1,)), len(roots))
        study.__dict__["_all_roots"] = roots
        study.num_samples = len(roots)
        sample, chosen = study.measure("sample"), study.measure("transit", "published")
        calls, kernels, indices = ({which: dict[str, float]() for which in KERNELS} for _ in range(3))
        for which in KERNELS:
            with forced(which):
                ready = functools.partial(study.ready, "transit", "published")
                study.verify(ready()(), f"{which} kernel at {draws} draws")
                calls[which] = runs.gpu_ms(ready)
                kernels[which], indices[which] = step_alone(study)
        times = {which: call["ms"] for which, call in calls.items()}
        best = min(KERNELS, key=lambda which: kernels[which]["ms"])
        rows.append({
            **study.row(), "app": "one draw a sample", "draws_per_transit": draws, "transits": len(roots) // draws,
            "kernel_ms": {k: kernel["ms"] for k, kernel in kernels.items()}, "ms": times,
            "index_ms": {k: index["ms"] for k, index in indices.items()}, "chosen_ms": chosen["ms"],
            "sample_ms": sample["ms"], "best": best, "chosen_over_best": chosen["ms"] / times[best],
            "paper_kernel": paper_kernel(draws),
            "spread": {
                "chosen_ms": timing.around(chosen), "sample_ms": timing.around(sample),
                **{f"ms.{k}": timing.around(call) for k, call in calls.items()},
                **{f"index_ms.{k}": timing.around(index) for k, index in indices.items()},
                **{f"kernel_ms.{k}": timing.around(kernel) for k, kernel in kernels.items()},
            },
        })  # fmt: skip
        study.free()
    return runs.record(
        session, (name,), rows, {"kernels_equal_to_sample_parallel": len(KERNELS) * len(rows)},
        kernel_ms="GPU time of the draws alone, one for each of the samples that share a transit, and of clearing "
        "their places; index_ms: of building the index. While the host launches both, the GPU reads gigabytes: no "
        "launch is waited for, and the L2 cache is cold",
    )  # fmt: skip


def step_alone(study: runs.Study) -> tuple[dict[str, float], dict[str, float]]:
    """The spreads of a step's GPU milliseconds, ``"published"``: of its draws, and of the index that they need.

    Reads before it keep the GPU busy until the host has launched all of it.
    """
    lead_in = study.session.kept("lead-in", floor.lead_in)
    draws, indices = list[float](), list[float]()
    for _ in range(_ALONE + 1):
        call = study.ready("transit", "published", timed=True)
        timing.synchronize()
        for _ in range(_LEAD_INS):
            lead_in()
        schedule = call().schedule
        draws.append(sum(step["sample_us"] for step in schedule) / 1e3)
        indices.append(sum(step["index_us"] for step in schedule) / 1e3)
    return timing.spread(draws[1:], "ms"), timing.spread(indices[1:], "ms")


def paper_kernel(draws: int) -> str:
    """The kernel of NextDoor's table 2."""
    return "sub-warp" if draws < 32 else "block" if draws <= 1024 else "grid"
