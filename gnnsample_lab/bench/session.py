"""What the suites of one run share: graphs, batches, recorded samples, verification, and the sweeps of knobs."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.device import runtime
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.graph import load
from gnnsample_lab.minibatch.gpu.per_hop import PER_HOP_STRATEGIES
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.sampling.neighbors.launch import Knobs
from gnnsample_lab.sampling.neighbors.sizes import seed_capacity

from . import timing, verify
from .floors import floor
from .floors.candidates import Rotation
from .floors.candidates_per_hop import PerHopRotation
from .pieces import Pieces
from .record import graph_facts, plain, scaled
from .suite import PUBLISHED_QUEUE, Unavailable, VerificationError

GRAPHS = ("rmat", "products-like")
PASSES = {True: 5, False: 9}
"""Timed passes of a quick and of a full run; a row shows their median, p10 and p90."""
ROOM = 1 / 3
"""Share of the GPU's memory that is free when a suite begins, if dropping what earlier ones keep can do that."""
FUSED = 32
"""Mini-batches of a call where suites sample several at once."""
_MOST_CALLS = 100
"""Calls after which a sampler must know how many mini-batches share a launch."""
_LEAST_BATCHES, _MOST_BATCHES = 8, 192
_L2_MULTIPLE = 4

# Per strategy: how many points a quick run tries, and all points. Every strategy is reported at its best point.
KNOBS: dict[str, tuple[int, tuple[dict[str, int], ...]]] = {
    "block-bsp": (4, tuple({"block_threads": n} for n in (64, 128, 32, 256))),
    "edge-bsp": (2, tuple({"blocks_per_sm": n} for n in (8, 16, 4))),
    "turbo-bsp": (2, tuple({"blocks_per_sm": n} for n in (8, 16, 4))),
    "bsp": (2, tuple({"blocks_per_sm": n} for n in (4, 3, 2))),
    "captured": (2, tuple({"blocks_per_sm": n} for n in (4, 3, 2))),
    "grid-barrier": (2, tuple({"blocks_per_sm": n} for n in (2, 3, 4, 1))),
    "fused-static": (2, tuple({"queue_threads": n} for n in (64, 128, 32))),
    "persistent": (3, tuple({"queue_threads": t, "blocks_per_sm": n}
                            for t, n in ((128, 16), (64, 32), (256, 8), (128, 4), (64, 8)))),
    "persistent-tile": (2, tuple({"blocks_per_sm": n} for n in (3, 8, 5, 10, 2))),
}  # fmt: skip
# These strategies run the kernels of `hop` and take that kernel's knob.
_KNOB_NAMES = {"captured": "hop", "bsp": "hop"}


def executed_by(rung: str) -> str:
    """The strategy that a rung of a suite runs."""
    return "persistent" if rung == PUBLISHED_QUEUE else rung


def knob_points(strategy: str, quick: bool) -> dict[str, Knobs]:
    """Label -> launch knobs to try for a rung (:func:`executed_by`); one point where there is nothing to choose."""
    executed = executed_by(strategy)
    few, settings = KNOBS.get(executed, (1, ({},)))
    points = {}
    for setting in settings[:few] if quick else settings:
        knobs = Knobs(queue_teams=strategy != PUBLISHED_QUEUE)
        for name, value in setting.items():
            if name == "blocks_per_sm":
                knobs.blocks_per_sm[_KNOB_NAMES.get(executed, executed)] = value
            else:
                setattr(knobs, name, value)
        points[",".join(f"{name}={value}" for name, value in setting.items()) or "default"] = knobs
    return points


def best_of(points: Mapping[str, Callable[[], float | Sequence[float]]]) -> dict[str, Any]:
    """Run every point, which returns microseconds: a number, or one for each pass, whose median counts.

    Returns:
        ``us`` of the best, where it has passes ``p10_us``, ``p90_us`` and ``passes``, its label ``best``, and
        ``sweep``: label -> us, or what failed.

    Raises:
        VerificationError: a point did other work than recorded; that is never passed over.
        RuntimeError: every point failed.
    """
    sweep: dict[str, float | str] = {}
    spreads: dict[str, dict[str, float]] = {}
    for label, measure in points.items():
        try:
            found = measure()
            spreads[label] = {"us": float(found)} if np.ndim(found) == 0 else timing.spread(found)  # type: ignore[arg-type]
            sweep[label] = spreads[label]["us"]
        except VerificationError:
            raise
        except Exception as error:  # a knob that does not fit this GPU must not end the suite
            sweep[label] = f"{type(error).__name__}: {error}"
    if not spreads:
        raise RuntimeError(f"every point of the sweep failed: {sweep}")
    best = min(spreads, key=lambda label: spreads[label]["us"])
    return {**spreads[best], "best": best, "sweep": sweep}


def l2_state(touched_bytes: int, l2_bytes: int) -> str:
    """Where a rotation of batches finds the graph: ``"cold"``, ``"warm"`` or ``"partly warm"`` L2.

    Args:
        touched_bytes: distinct bytes that the whole rotation reads; what one batch shares with another counts once.
    """
    if touched_bytes > _L2_MULTIPLE * l2_bytes:
        return "cold"
    return "warm" if touched_bytes <= l2_bytes else "partly warm"


def call_together(sampler: Any, groups: list[list[Any]], i: int) -> Any:
    """One call of ``sample_many`` for the mini-batches of group ``i``."""
    return sampler.sample_many(groups[i], i * len(groups[i]))


def settle(sampler: Any, groups: list[list[Any]]) -> None:
    """Sample until the sampler has timed its launches and keeps how many mini-batches share one.

    Raises:
        RuntimeError: it goes on trying.
    """
    count = len(groups[0])
    for i in range(_MOST_CALLS):
        call_together(sampler, groups, i % len(groups))
        if count == 1 or all(waves.settled(count) for waves in sampler._engine.waves.values()):
            return
    raise RuntimeError(f"{sampler!r} has not settled after {_MOST_CALLS} calls of {count} mini-batches")


class Session:
    """Shared state of one ``bench`` run.

    Args:
        quick: fewer configurations and knobs.
        graphs: replaces a suite's own graphs.
        say: takes lines of progress.
    """

    def __init__(
        self, quick: bool = False, graphs: Sequence[str] | None = None, say: Callable[[str], None] | None = None
    ) -> None:  # fmt: skip
        self.quick = quick
        self.chosen = tuple(graphs) if graphs else None
        self.began = time.perf_counter()
        self._say = say or (lambda line: None)
        self._graphs: dict[tuple[str, str], Any] = {}
        self._pools: dict[str, tuple[Any, int, np.random.Generator]] = {}
        self._batches: dict[tuple[str, int], list[Any]] = {}
        self._recorded: dict[tuple[str, int, tuple[int, ...], str], floor.Recordings] = {}
        self._verified: dict[Any, int] = {}
        self._kept: dict[Any, Any] = {}
        self._unions: dict[Any, int] = {}
        self.constants: dict[str, float] = {}
        self.pieces: Pieces | None = None

    @property
    def passes(self) -> int:
        """Timed passes after the warm ones."""
        return PASSES[self.quick]

    def say(self, line: str) -> None:
        self._say(f"[{time.perf_counter() - self.began:6.1f} s] {line}")

    def graphs(self, *default: str) -> tuple[str, ...]:
        """Names of the graphs that a suite runs on."""
        return self.chosen or default or GRAPHS

    def require_gpu(self, suite: str) -> None:
        """Raises Unavailable, saying what is missing, without a usable GPU."""
        problem = runtime.cuda_problem()
        if problem:
            raise Unavailable(f"suite {suite!r} needs a GPU: {problem}")

    def graph(self, name: str, device: str = "cuda") -> Any:
        """The graph without features, loaded once per run."""
        if (name, device) not in self._graphs:
            began = time.perf_counter()
            base, scale = scaled(name)
            self._graphs[name, device] = load(base, scale=scale, device=device, features=False)
            self.say(f"{name} on {device}: {time.perf_counter() - began:.1f} s")
        return self._graphs[name, device]

    def host_graph(self, name: str) -> Any:
        """The same graph in host memory, for the CPU twin."""
        if (name, "cpu") not in self._graphs:
            self._graphs[name, "cpu"] = self.graph(name).to("cpu", features=False)
        return self._graphs[name, "cpu"]

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """``make()``, once per run and key: what several suites need is loaded and measured once."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def piece(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """``make()`` as JSON has it: all that a suite compares with one another. With ``bench --resume`` an earlier run
        of the suite, which was cut off, may have it already."""
        return plain(make()) if self.pieces is None else self.pieces.get(key, make)

    def forget(self) -> None:
        """Free graphs and recordings: what comes next needs the memory."""
        self._kept.clear()
        self._graphs.clear()
        self._batches.clear()
        self._pools.clear()
        self._recorded.clear()
        if runtime.cuda_available():
            import cupy

            cupy.get_default_memory_pool().free_all_blocks()

    def make_room(self) -> None:
        """:meth:`forget`, where less than :data:`ROOM` of the GPU's memory is free: what the suites before keep would
        be more than the next one leaves room for, which fits where it runs alone."""
        if runtime.cuda_available():
            free, total = runtime.gpu_memory()
            if free < ROOM * total:
                self.say(
                    f"graphs of earlier suites are dropped: {free / 1e9:.1f} GB of {total / 1e9:.1f} are free"
                )
                self.forget()

    def batches(self, name: str, batch_size: int, count: int) -> list[Any]:
        """``count`` batches of distinct seeds on the GPU, ``int64``: the training vertices in random order, all
        vertices where there are too few; the same ones whatever ran before."""
        import cupy

        kept = self._batches.setdefault((name, batch_size), [])
        if len(kept) < count:
            pool, at, rng = self._pools.get(f"{name}/{batch_size}") or (
                None,
                0,
                np.random.default_rng(batch_size),
            )
            graph = self.graph(name)
            while len(kept) < count:
                if pool is None or at + batch_size > pool.size:
                    train = graph.splits.get("train")
                    few = train is None or len(train) < batch_size
                    pool = rng.permutation(int(graph.num_nodes)) if few else rng.permutation(to_host(train))
                    at = 0
                kept.append(cupy.asarray(pool[at : at + batch_size].astype(np.int64)))
                at += batch_size
            self._pools[f"{name}/{batch_size}"] = (pool, at, rng)
        return kept[:count]

    def recorded(
        self, name: str, batch_size: int, fanouts: Sequence[int], pick: str, least: int = _LEAST_BATCHES
    ) -> floor.Recordings:
        """Samples of mini-batches that are run in turn; batch ``i`` has batch id ``i``.

        There are as many as read more than four times the L2 cache together, what several of them read counted once;
        ``least`` where the whole graph is not as large as that.
        """
        key = (name, batch_size, tuple(fanouts), pick)
        if key not in self._recorded:
            graph = self.graph(name)
            sampler = self.sampler(name, fanouts, "bsp", pick)
            need = _L2_MULTIPLE * self.l2_bytes()
            found, union = floor.Recordings(), floor.Sectors(graph)
            most = _MOST_BATCHES if union.all * floor.bound.SECTOR > need else least
            while len(found) < least or (found.touched_bytes <= need and len(found) < most):
                seeds = self.batches(name, batch_size, len(found) + 1)[-1]
                found.append(floor.record(graph, list(fanouts), seeds, len(found), sampler, union))
                found.union.append(union.count)
            self._recorded[key] = found
        return self._recorded[key]

    def l2_bytes(self) -> int:
        """Bytes of the GPU's L2 cache."""
        return int(runtime.device_properties()["l2CacheSize"])

    def l2_state(
        self, name: str, batch_size: int, fanouts: Sequence[int], pick: str, count: int | None = None
    ) -> str:
        """Whether mini-batches that are run in turn find the L2 cache cold; see :func:`l2_state`.

        Args:
            name, batch_size, fanouts, pick: the configuration.
            count: how many are run; None: those of :meth:`recorded`.
        """
        if count is None:
            return l2_state(self.recorded(name, batch_size, fanouts, pick).touched_bytes, self.l2_bytes())
        key = (name, batch_size, tuple(fanouts), pick, count)
        if key not in self._unions:
            graph = self.graph(name)
            sampler = self.sampler(name, fanouts, "bsp", pick)
            union = floor.Sectors(graph)
            for i, seeds in enumerate(self.batches(name, batch_size, count)):
                for picks in sampler.sample(seeds, i).picks:
                    union.add(picks.frontier, picks.positions)
            self._unions[key] = union.count * floor.bound.SECTOR
        return l2_state(self._unions[key], self.l2_bytes())

    def sampler(
        self, name: str, fanouts: Sequence[int], strategy: str, pick: str, knobs: Knobs | None = None
    ) -> Any:
        """A GPU sampler, with launch knobs of its own when given."""
        sampler = NeighborSampler(
            self.graph(name), list(fanouts), strategy=strategy, pick=pick, device="cuda"
        )
        if knobs is not None:
            sampler._engine = GpuEngine(
                sampler.graph, sampler.spec, None, strategy, "exact", 5, False, None, None, knobs
            )
        return sampler

    def verify(
        self, names: Sequence[str], strategies: Sequence[str], picks: Sequence[str] = ("floyd", "reservoir"),
        batch_size: int = 1024, fanouts: Sequence[int] = (10, 10, 10),
    ) -> dict[str, Any]:  # fmt: skip
        """Refuse to time strategies that do not return the CPU twin's sample; nothing is compared twice.

        Raises:
            VerificationError: a sample differs.
        """
        total = 0
        for pick in picks:
            for strategy in strategies:
                where: tuple[str | None, ...] = (None, *names)
                for name in where:
                    key = (strategy, pick, name, batch_size if name else 0, tuple(fanouts) if name else ())
                    if key not in self._verified:
                        if name is None:
                            self._verified[key] = verify.verify_small([strategy], pick)
                        else:
                            self._verified[key] = verify.verify_on_graph(
                                self, name, [strategy], pick, batch_size, fanouts
                            )
                    total += self._verified[key]
        self.say(f"verified {', '.join(strategies)}: {total} samples equal the CPU twin's")
        return {
            "samples_equal_to_cpu_twin": total, "strategies": list(strategies), "picks": list(picks),
            "graphs": list(names), "batch_size": batch_size, "fanouts": list(fanouts),
        }  # fmt: skip

    def kernel_us(
        self,
        name: str,
        batch_size: int,
        fanouts: Sequence[int],
        strategy: str,
        pick: str,
        chained: bool = False,
    ) -> dict[str, Any]:
        """Kernel time of one mini-batch, up to deduplicated picks in global ids (per-hop baselines: draws alone).

        Best of the sweep of ``strategy``, which may be ``PUBLISHED_QUEUE``, with its spread, see :func:`best_of`; CUDA
        graphs over the recorded batches, one for each or, ``chained``, one for all.
        """
        recorded, seeds, what = self._rotated(name, batch_size, fanouts, strategy, pick)
        graph = self.graph(name)

        def per_hop(knobs: Knobs) -> list[float]:
            rotation = PerHopRotation(graph, fanouts, recorded, strategy, pick, knobs, chained)
            different = rotation.check()
            if different:
                raise VerificationError(f"{what}: {different}")
            return self._replayed(rotation.graphs, None, len(recorded) if chained else 1, chained)

        def whole(knobs: Knobs) -> list[float]:
            rotation = Rotation(
                graph, list(fanouts), seeds, executed_by(strategy), pick, knobs, chained=chained
            )
            times = self._replayed(
                rotation.graphs, rotation.prepare, len(recorded) if chained else 1, chained
            )
            verify.check_rotation(rotation, recorded, what)
            return times

        measure = per_hop if strategy in PER_HOP_STRATEGIES else whole
        points = knob_points(strategy, self.quick)
        return best_of({label: functools.partial(measure, knobs) for label, knobs in points.items()})

    def together_us(
        self,
        name: str,
        batch_size: int,
        fanouts: Sequence[int],
        strategy: str,
        pick: str,
        sizes: Sequence[int],
    ) -> dict[str, Any]:
        """Kernel time of one mini-batch when several share a launch, as ``sample_many`` launches them.

        Up to deduplicated picks in global ids, all launches in one CUDA graph; best of the numbers ``sizes`` of
        mini-batches in a launch and of the strategy's knobs. Numbers for which ``scratch_bytes`` has no room are left
        out; if it has for none of them, as many share a launch as it allows.
        """
        recorded, seeds, what = self._rotated(name, batch_size, fanouts, strategy, pick)
        graph = self.graph(name)

        def measure(together: int, knobs: Knobs) -> list[float]:
            rotation = Rotation(graph, list(fanouts), seeds, strategy, pick, knobs, together, chained=True)
            times = self._replayed(rotation.graphs, rotation.prepare, rotation.covered, True)
            verify.check_rotation(rotation, recorded[: rotation.covered], f"{what}, {together} in a launch")
            return times

        engine = self.sampler(name, fanouts, strategy, pick)._engine
        _, room = engine.sizer.batches_at_once(seed_capacity(batch_size))
        most = min(room, len(recorded))
        points = {
            f"{size} in a launch, {label}": functools.partial(measure, size, knobs)
            for size in [size for size in sizes if size <= most] or [most]
            for label, knobs in knob_points(strategy, self.quick).items()
        }
        return best_of(points)

    def _rotated(
        self, name: str, batch_size: int, fanouts: Sequence[int], strategy: str, pick: str
    ) -> tuple[floor.Recordings, list[Any], str]:
        """Samples of the mini-batches that are run in turn, their seeds, and what an error calls the measurement."""
        recorded = self.recorded(name, batch_size, fanouts, pick)
        seeds = self.batches(name, batch_size, len(recorded))
        return recorded, seeds, f"{strategy} on {name}, {batch_size} x {list(fanouts)}"

    def _replayed(
        self, graphs: Sequence[Any], prepare: Callable[[], None] | None, each: int, chained: bool
    ) -> list[float]:
        """Microseconds of a mini-batch, one a pass; a graph holds ``each`` of them."""
        lead_in = self.kept("lead-in", floor.lead_in) if chained else None
        return [us / each for us in timing.replay_times(graphs, prepare, self.passes, lead_in)]

    def facts(self, names: Sequence[str]) -> dict[str, Any]:
        return {
            name: graph_facts(next(g for (n, _), g in self._graphs.items() if n == name)) for name in names
        }


def workload(recorded: floor.Recordings) -> dict[str, Any]:
    """What the batches of a configuration amount to, per mini-batch, and how much of the graph all of them read."""
    hops = len(recorded[0].fanouts)
    return {
        "workload": [
            round(float(np.mean([int(r.frontiers[h].size) for r in recorded]))) for h in range(hops)
        ],
        "picks": round(float(np.mean([r.num_picks for r in recorded]))),
        "num_batches": len(recorded),
        "touched_bytes": recorded.touched_bytes,
    }
