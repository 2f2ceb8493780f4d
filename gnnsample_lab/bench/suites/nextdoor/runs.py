"""What NextDoor's suites share: its applications at its settings, its graphs, verified runs and their times.

The times are those of NextDoor's section 8: the GPU's, the scheduling index included, the graph in its memory already.
Without a GPU there are only the CPU walker's, wall time, and rows say so.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.quick_core import quick_pass
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable, VerificationError
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.sampling.engine.cpu import walker as cpu
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from gnnsample_lab.sampling.engine.results.result import AppResult
from gnnsample_lab.sampling.engine.run import check_roots
from gnnsample_lab.sampling.engine.shape import Shape

from . import cases as settings

_BUDGET_S = 1.0
"""Time for the repetitions of one measurement; slow variants run less often."""
WARM_S = 0.1
"""Time for passes that do not count: clocks of the GPU have fallen while it waited."""
_PASSES, _LEAST = 15, 5
"""Timed repetitions: the most, and how many there are however long they take."""
_CHECKED = 256
"""Samples that are compared with the CPU walker's."""
CPU_LEAST_S, _CPU_PASSES = 0.2, 5
"""Seconds of a pass of the CPU walker at least, and how many are taken."""
L2 = f"{common.AS_LEFT}: never flushed, a call finds what the one before, of the same roots, left"
SECONDS = "seconds are medians; ms: GPU time of one call, scheduling index included, graph and roots on the GPU before"


def gpu_ms(ready: Callable[[], Callable[[], Any]], passes: int = _PASSES) -> dict[str, float]:
    """The spread of GPU milliseconds of ``ready()()`` between two events, after a warm-up: :func:`.timing.spread`.

    ``ready()`` is not timed. Where its result has a method ``draw``, only that method is timed. Launches and waits of
    the host within the call count. Without a GPU: wall milliseconds.
    """

    on_cpu = common.device() == "cpu"

    def taken() -> float:
        work = ready()
        timing.synchronize()
        if on_cpu:
            start = time.perf_counter()
            kept = work()
            return (time.perf_counter() - start) * 1e3
        import cupy

        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        kept = getattr(work, "draw", work)()
        end.record()
        end.synchronize()
        del kept
        return float(cupy.cuda.get_elapsed_time(begin, end))

    times: list[float] = []
    warm, began = 0, time.perf_counter()
    while len(times) < passes and (len(times) < _LEAST or time.perf_counter() - began < _BUDGET_S):
        times.append(quick_pass(taken, taken))  # a quick core launches: small kernels wait for it
        warm += 1
        # The GPU's clocks fall while the CPU verifies.
        if warm == 1 or (not on_cpu and (warm == 2 or time.perf_counter() - began < WARM_S)):
            times.clear()
    return timing.spread(times, "ms")


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What ``work()`` gives, and its seconds."""
    began = time.perf_counter()
    found = work()
    return found, time.perf_counter() - began


@dataclass
class Study:
    """One application on one graph: its roots, results by parallelism, and times, each found once.

    ``num_samples`` is an epoch's, or what fits: halved while the GPU's memory does not suffice.
    """

    session: Session
    name: str
    case: str
    make: Callable[[], Any] | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        self.graph = settings.graph(self.session, self.name)
        self.host = settings.graph(self.session, self.name, "cpu")
        found = settings.CASES[self.case]
        self.app = (self.make or found.make)()
        wanted = self.samples or found.samples(self.graph.num_nodes)
        self.num_samples = max(1, wanted // (4 if self.session.quick and wanted > 4096 else 1))
        self._verified: dict[tuple[str, str], dict[str, Any]] = {}
        self._times: dict[Any, dict[str, Any]] = {}
        self._reference: Any = None
        self._digest: str | None = None
        self._equal: set[Any] = set()
        self.checked = 0

    @cached_property
    def _all_roots(self) -> np.ndarray:
        if settings.CASES[self.case].per_vertex:
            count = min(self.num_samples, self.graph.num_nodes)
            if count == self.graph.num_nodes:
                return np.arange(count)
            return np.sort(np.random.default_rng(0).choice(self.graph.num_nodes, count, replace=False))
        return to_host(self.app.initial_samples(self.host, self.num_samples, 0))

    @property
    def roots(self) -> np.ndarray:
        """Roots on the host, ``int64[S]`` or ``int64[S, R]``."""
        return self._all_roots[: self.num_samples]

    @cached_property
    def prepared(self) -> tuple[Any, Any]:
        """Application and operator, prepared once: ``prepare`` is no part of sampling."""
        self.app.prepare(self.host)
        return self.app, compile_operator(self.app, self.host)

    def ready(self, parallelism: str, index: str = "auto", **options: Any) -> Callable[[], AppResult]:
        """A call that samples, once, everything else done before; ``options`` as ``GpuEngine`` has them."""
        if common.device() == "cpu":
            return self.walker(self.roots)
        from gnnsample_lab.sampling.engine.gpu import GpuEngine

        app, operator = self.prepared
        roots = check_roots(self.roots, self.graph.num_nodes, "cuda")
        shape = Shape(app, int(roots.shape[1]))
        engine = GpuEngine(
            self.graph, app, operator, shape, roots, parallelism=parallelism, index=index, **options
        )

        def run() -> AppResult:
            steps = engine.run()
            shapes = [shape[i] for i in range(len(steps))]
            return AppResult(
                self.graph,
                app,
                engine.roots,
                list(steps),
                shapes,
                parallelism,
                "cuda",
                schedule=engine.schedule,
            )

        run.draw = engine.run  # type: ignore[attr-defined]
        return run

    def walker(self, roots: np.ndarray) -> Callable[[], AppResult]:
        """The same on the CPU."""
        app, operator = self.prepared
        rows = check_roots(roots, self.host.num_nodes, "cpu").astype(self.host.indices.dtype)

        def run() -> AppResult:
            shape = Shape(app, int(rows.shape[1]))
            steps = cpu.run(self.host, app, operator, shape, rows, 0, 0)
            return AppResult(
                self.host, app, rows, steps, [shape[i] for i in range(len(steps))], "sample", "cpu"
            )

        return run

    @cached_property
    def is_unique(self) -> bool:
        """Whether the slots of some step are to hold distinct vertices."""
        shape = Shape(self.prepared[0], self.roots.reshape(len(self.roots), -1).shape[1])
        return any(shape[step].unique for step in range(self.verified()["steps"]))

    def verify(self, found: AppResult, what: str) -> None:
        """Compare the first samples with the CPU walker's, and all with those of the first parallelism that ran.

        Raises:
            VerificationError: a sample differs.
        """
        if self._reference is None:
            few = min(_CHECKED, self.num_samples)
            twin = self.walker(self.roots[:few])()
            for step in range(max(twin.num_steps, found.num_steps)):
                # The compared samples may all end before the others: their later steps must then be empty.
                mine = to_host(found.steps[step][:few]) if step < found.num_steps else None
                theirs = twin.steps[step] if step < twin.num_steps else None
                empty = mine is not None and theirs is None and bool((mine < 0).all())
                if not empty and (mine is None or theirs is None or not np.array_equal(mine, theirs)):
                    raise VerificationError(
                        f"{what}: step {step} differs from the CPU walker's; nothing is timed"
                    )
            self._reference, self.checked = found, few
        elif self._reference != found:
            raise VerificationError(
                f"{what}: other samples than {self._reference.parallelism}'s; nothing is timed"
            )

    def verified(self, parallelism: str = "transit", index: str = "auto") -> dict[str, Any]:
        """Sample and verify: ``vertices`` (sampled), ``num_samples``, ``steps``, ``schedule``."""
        key = (parallelism, index)
        if key not in self._verified:
            found = self._first(parallelism, index)
            self.verify(found, f"{self.case} on {self.name}, {parallelism}")
            _settle(found)
            self._verified[key] = {
                "vertices": found.num_vertices, "num_samples": self.num_samples, "steps": found.num_steps,
                "schedule": list(found.schedule),
            }  # fmt: skip
        return self._verified[key]

    def measure(self, parallelism: str = "transit", index: str = "auto") -> dict[str, Any]:
        """Time what is :meth:`verified`: ``ms`` and its spread beside it, and what comes out a second."""
        key = (parallelism, index)
        if key not in self._times:
            found = self.verified(parallelism, index)
            times = gpu_ms(functools.partial(self.ready, parallelism, index))
            ms = times["ms"]
            self._times[key] = {
                **times, **found, "samples_per_s": self.num_samples / ms * 1e3,
                "vertices_per_s": found["vertices"] / ms * 1e3,
            }  # fmt: skip
            self.session.say(f"{self.case} on {self.name}, {parallelism}, index {index}: {ms:.3f} ms")
        return self._times[key]

    def _first(self, parallelism: str, index: str) -> AppResult:
        while True:
            try:
                return self.ready(parallelism, index)()
            except MemoryError:  # CuPy's OutOfMemoryError is one
                if self._verified or self.num_samples < 2048:
                    raise
                self.num_samples //= 2
                self._reference = None
                self.session.say(f"{self.case} on {self.name}: {self.num_samples} samples fit")

    def cpu_walker(self, threads: int) -> dict[str, Any]:
        """The CPU walker on so many random samples as take a while: ``vertices_per_s``, ``samples_per_s``.

        Medians of :data:`_CPU_PASSES`; of one thread each on a quick core.
        """
        key = ("cpu", threads)
        if key not in self._times:
            import numba

            order = np.random.default_rng(1).permutation(len(self.roots))
            before, count = numba.get_num_threads(), min(64, len(order))
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
            try:
                self.walker(self.roots[order[:1]])()  # compiles
                while True:
                    work = self.walker(self.roots[np.sort(order[:count])])
                    found, seconds = _timed(work)
                    if seconds >= CPU_LEAST_S or count == len(order):
                        break
                    count = min(
                        len(order), max(2 * count, int(1.5 * count * CPU_LEAST_S / max(seconds, 1e-4)))
                    )
                once = functools.partial(_timed, work)
                passes = [quick_pass(once) if threads == 1 else once() for _ in range(_CPU_PASSES)]
            finally:
                numba.set_num_threads(before)
            each = sorted(seconds for _, seconds in passes)
            seconds = statistics.median(each)
            self._times[key] = {
                "threads": threads, "cpu_samples": count, "vertices_per_s": found.num_vertices / seconds,
                "samples_per_s": count / seconds, "seconds": seconds,
                "each_s": each,
            }  # fmt: skip
        return self._times[key]

    def row(self) -> dict[str, Any]:
        return {
            "graph": self.name, "app": self.case, "kind": settings.CASES[self.case].kind,
            "num_samples": self.num_samples, "device": common.device(), "l2": common.AS_LEFT,
        }  # fmt: skip

    def free(self) -> None:
        """Let go of the samples; times stay."""
        self._reference = None
        if common.device() == "cuda":
            import cupy

            cupy.get_default_memory_pool().free_all_blocks()


def _settle(found: AppResult) -> None:
    """Bring the schedule's counts to the host, which waits for them: only where nothing is timed."""
    if found.device == "cuda":
        from gnnsample_lab.sampling.engine.steps import transit

        transit.settle(found.schedule)


def study(session: Session, name: str, case: str) -> Study:
    """The study of a graph and an application, kept for all suites of a run; all other studies free their samples."""
    found = session.kept(("nextdoor study", name, case), lambda: Study(session, name, case))
    for key, other in session._kept.items():
        if key[0] == "nextdoor study" and other is not found and other._reference is not None:
            other.free()
    return found


def all_threads() -> int:
    import numba

    return int(numba.config.NUMBA_NUM_THREADS)


def record(
    session: Session, wanted: Sequence[str], rows: list[dict[str, Any]], checked: dict[str, int], **more: Any
) -> dict[str, Any]:
    """The body of a suite's record; settings in ``more``, notes in ``more["notes"]``."""
    if not rows:
        raise Unavailable("none of the applications could be run")
    notes = list(more.pop("notes", []))
    if common.device() == "cpu":
        notes.append("Without a GPU: every parallelism is the CPU walker, wall time.")
    return {
        "settings": {
            "device": common.device(), "apps": settings.SETTING, "what": SECONDS, "cpu_threads": all_threads(),
            "l2": L2, **more,
        },
        "verification": checked, "graphs": settings.facts(session, wanted), "rows": rows, "notes": notes,
    }  # fmt: skip


def checked(study: Study) -> dict[str, int]:
    """Samples compared with the CPU walker's, and results compared with one another: none without a GPU, where the
    walker runs whatever is asked for."""
    compared = len(study._verified) if common.device() != "cpu" else 0
    return {
        "samples_equal_to_cpu_walker": study.checked, "results_equal_across_parallelisms": max(0, compared - 1),
    }  # fmt: skip
