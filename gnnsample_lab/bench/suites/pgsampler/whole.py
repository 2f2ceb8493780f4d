"""Wall time of the whole process: from seeds on the GPU until the host holds a MiniBatch with local ids."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from gnnsample_lab.bench import timing
from gnnsample_lab.bench.session import Session, best_of, knob_points
from gnnsample_lab.device import runtime
from gnnsample_lab.minibatch.waves import Waves
from gnnsample_lab.sampling.neighbors.plan import TABLES
from gnnsample_lab.sampling.neighbors.sizes import seed_capacity

from .kernels import grid

OURS = ("captured", "grid-barrier", "persistent-tile")
BASELINE, BASELINE_PICK = "block-bsp", "reservoir"
"""DGL's execution with DGL's pick; its ID map is insert-count-compact."""
FUSED = 32
_COUNT, _PASSES = 8, 3
_MOST_CALLS = 100
"""Calls after which a sampler must know how many mini-batches share a launch."""
EPOCH = 8
"""Mini-batches that ``epoch`` asks for at a time, unless it is told another number."""


def _walls(
    session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], strategy: str, pick: str
) -> dict[str, Any]:
    """Best wall time of one mini-batch over the strategy's knobs."""
    seeds = session.batches(name, batch_size, _COUNT)

    def measure(knobs: Any) -> float:
        sampler = session.sampler(name, fanouts, strategy, pick, knobs)
        return timing.wall_us(lambda i: sampler.sample(seeds[i], i), _COUNT, _PASSES)

    # The baseline is swept: no default of ours may make it slow. The other strategies run with their defaults.
    points = knob_points(strategy, session.quick) if strategy == BASELINE else {"default": None}
    return best_of({label: functools.partial(measure, knobs) for label, knobs in points.items()})


def _wall_us(
    session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], strategy: str, pick: str
) -> float:
    return float(_walls(session, name, batch_size, fanouts, strategy, pick)["us"])


def _fastest(
    session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], pick: str
) -> dict[str, Any]:
    points: dict[str, Callable[[], float]] = {
        s: functools.partial(_wall_us, session, name, batch_size, fanouts, s, pick) for s in OURS
    }
    return best_of(points)


def figure9(session: Session) -> dict[str, Any]:
    """Speed-up of the whole process: the best strategy and ``persistent`` over ``block-bsp``."""
    names = session.graphs()
    verification = session.verify(names, [BASELINE, "persistent", *OURS])
    rows = []
    for name in names:
        for batch_size, fanouts in grid(session.quick):
            base = _walls(session, name, batch_size, fanouts, BASELINE, BASELINE_PICK)
            persistent = _walls(session, name, batch_size, fanouts, "persistent", BASELINE_PICK)
            same, best = (
                _fastest(session, name, batch_size, fanouts, pick) for pick in (BASELINE_PICK, "floyd")
            )
            same["sweep"]["persistent"] = persistent["us"]
            if persistent["us"] < same["us"]:
                same.update(us=persistent["us"], best="persistent")
            rows.append({
                "graph": name, "batch_size": batch_size, "fanout": fanouts[0], "hops": len(fanouts),
                "wall_us": {
                    BASELINE: base["us"], "persistent": persistent["us"], "best": best["us"],
                    "best same pick": same["us"],
                },
                "best_strategy": best["best"], "best_same_pick_strategy": same["best"],
                "sweep": {BASELINE: base["sweep"], "best": best["sweep"], "best same pick": same["sweep"]},
                "speedup": {
                    "persistent": base["us"] / persistent["us"], "best": base["us"] / best["us"],
                    "best same pick": base["us"] / same["us"],
                },
            })  # fmt: skip
            session.say(
                f"{name} {batch_size} x {list(fanouts)}: {BASELINE} {base['us']:.0f}, persistent "
                f"{persistent['us']:.0f}, {best['best']} {best['us']:.0f} us"
            )
    return {
        "settings": {
            "baseline": f"{BASELINE}, pick={BASELINE_PICK}, insert-count-compact ID map", "persistent": "same pick",
            "best": f"fastest of {', '.join(OURS)} with pick=floyd; 'best same pick', persistent too: {BASELINE_PICK}",
            "timing": f"wall time per call, GPU idle before and after; median of {_COUNT} batches, best of {_PASSES}",
        },
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip


def whole_process(session: Session) -> dict[str, Any]:
    """Wall time of a mini-batch alone and as one of 32 sampled in one call."""
    names = session.graphs()
    verification = session.verify(names, [BASELINE, *OURS])
    settings = [(256, 10), (1024, 10), (2048, 10), (8192, 10), (8192, 15), (10240, 10)]
    if not session.quick:
        settings += [(512, 10), (4096, 10), (1024, 5), (1024, 15), (1024, 20), (10240, 20)]
    rows = []
    for name in names:
        for batch_size, fanout in settings:
            fanouts = (fanout,) * 3
            base = _walls(session, name, batch_size, fanouts, BASELINE, BASELINE_PICK)
            alone = _fastest(session, name, batch_size, fanouts, "floyd")
            fused = _fastest_fused(session, name, batch_size, fanouts)
            rows.append({
                "graph": name, "batch_size": batch_size, "fanout": fanout, "hops": 3, "baseline_us": base["us"],
                "alone_us": alone["us"], "alone_strategy": alone["best"], "fused32_us": fused["us"],
                "fused32_strategy": fused["best"],
                "sweep": {"baseline": base["sweep"], "alone": alone["sweep"], "fused32": fused["sweep"]},
            })  # fmt: skip
            session.say(
                f"{name} {batch_size} x {list(fanouts)}: {BASELINE} {base['us']:.0f}, alone {alone['us']:.0f} "
                f"({alone['best']}), {FUSED} fused {fused['us']:.1f} us each ({fused['best']})"
            )
    return {
        "settings": {
            "baseline": f"{BASELINE}, pick={BASELINE_PICK}, insert-count-compact ID map", "alone": "pick=floyd",
            "fused32": f"{FUSED} mini-batches in one call of sample_many, time divided by {FUSED}, pick=floyd",
            "timing": f"wall time per call, GPU idle before and after; median of {_COUNT} calls, best of {_PASSES}",
        },
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip


def _call(sampler: Any, groups: list[list[Any]], i: int) -> Any:
    return sampler.sample_many(groups[i], i * len(groups[i]))


def _fused(session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], strategy: str) -> float:
    """Wall time of ``sample_many`` with 32 mini-batches, per mini-batch."""
    seeds = session.batches(name, batch_size, 2 * FUSED)
    groups = [seeds[:FUSED], seeds[FUSED:]]
    sampler = session.sampler(name, fanouts, strategy, "floyd")
    settle(sampler, groups)
    return timing.wall_us(functools.partial(_call, sampler, groups), len(groups), _PASSES) / FUSED


def settle(sampler: Any, groups: list[list[Any]]) -> None:
    """Sample until the sampler has timed its launches and keeps how many mini-batches share one.

    Raises:
        RuntimeError: it goes on trying.
    """
    count = len(groups[0])
    for i in range(_MOST_CALLS):
        _call(sampler, groups, i % len(groups))
        if count == 1 or all(waves.settled(count) for waves in sampler._engine.waves.values()):
            return
    raise RuntimeError(f"{sampler!r} has not settled after {_MOST_CALLS} calls of {count} mini-batches")


def _one_by_one(sampler: Any, groups: list[list[Any]]) -> float:
    def work(i: int) -> list[Any]:
        return [sampler.sample(seeds, i * len(groups[i]) + n) for n, seeds in enumerate(groups[i])]

    return timing.wall_us(work, len(groups), _PASSES) / len(groups[0])


def _launches_of(sampler: Any, groups: list[list[Any]], size: int) -> float:
    """Wall time with ``size`` mini-batches in a launch, whatever the sampler would choose."""
    engine, count = sampler._engine, len(groups[0])
    engine.waves[seed_capacity(int(groups[0][0].size))] = Waves(size, size)

    def work(i: int) -> list[Any]:
        made: list[Any] = engine._sample_all(groups[i], i * count, timed=False)
        return made

    us = timing.wall_us(work, len(groups), _PASSES) / count
    engine.waves.clear()
    return us


def _as_chosen(sampler: Any, groups: list[list[Any]]) -> tuple[float, int]:
    """Wall time of ``sample_many`` once the sampler has settled, and how many mini-batches then share a launch."""
    settle(sampler, groups)
    us = timing.wall_us(functools.partial(_call, sampler, groups), len(groups), _PASSES) / len(groups[0])
    (waves,) = sampler._engine.waves.values()
    return us, waves.settled(len(groups[0]))


def _launch_sizes(sampler: Any, batch_size: int) -> tuple[int, dict[int, str]]:
    """The number of mini-batches that the sampler tries first, and the kind of table for every number it may try."""
    sizer, cap = sampler._engine.sizer, seed_capacity(batch_size)
    begin, most = sizer.batches_at_once(cap)
    sizes = [1 << bit for bit in range(min(most, FUSED).bit_length())]
    return begin, {size: TABLES[sizer.shape(size, cap).table] for size in sizes}


def fusing(session: Session) -> dict[str, Any]:
    """Wall time of a mini-batch: one by one, by how many share a launch, and as ``sample_many`` chooses."""
    names = session.graphs("rmat", "products-like", "rmat-papers100M")
    strategies = ("captured",) if session.quick else ("captured", "persistent-tile")
    facts: dict[str, Any] = {}
    rows = []
    for name in names:
        session.forget()
        session.verify([name], strategies, ["floyd"])
        session._graphs.pop((name, "cpu"), None)
        settings = [(1024, 10)] if "papers100M" in name else [(1024, 10), (8192, 15)]
        for batch_size, fanout in settings:
            for strategy in strategies:
                sampler = session.sampler(name, (fanout,) * 3, strategy, "floyd")
                rows += _fusing_rows(session, sampler, name, batch_size, fanout, strategy)
                del sampler
        facts |= session.facts([name])
    return {
        "settings": {
            "pick": "floyd", "scratch_bytes": "default: 5 % of the memory that is free beside the graph",
            "timing": f"wall time per call, GPU idle before and after; median of 2 calls, best of {_PASSES}, per batch",
        },
        "verification": session.verify(names, strategies, ["floyd"]), "graphs": facts, "rows": rows,
    }  # fmt: skip


def _fusing_rows(
    session: Session, sampler: Any, name: str, batch_size: int, fanout: int, strategy: str
) -> list[dict[str, Any]]:
    seeds = session.batches(name, batch_size, 2 * FUSED)
    begin, tables = _launch_sizes(sampler, batch_size)
    rows = []
    for count in (EPOCH, FUSED):
        groups = [seeds[:count], seeds[count : 2 * count]]
        alone = _one_by_one(sampler, groups)
        each = {size: _launches_of(sampler, groups, size) for size in tables if size <= count}
        chosen, size = _as_chosen(sampler, groups)
        rows.append({
            "graph": name, "batch_size": batch_size, "fanout": fanout, "hops": 3, "strategy": strategy,
            "in_a_call": count, "one_by_one_us": alone, "begin": begin, "chosen": size, "chosen_us": chosen,
            "launches_of_us": each, "tables": {n: tables[n] for n in each}, "ratio": chosen / alone,
        })  # fmt: skip
        listed = ", ".join(f"{n} ({tables[n]}) {us:.0f}" for n, us in each.items())
        session.say(
            f"{name} {batch_size} x {fanout}^3, {strategy}, {count} in a call: one by one {alone:.0f} us each; in "
            f"launches of {listed}; begins with {begin}, keeps {size}: {chosen:.0f} us, {chosen / alone:.2f} x"
        )
    return rows


def _fastest_fused(session: Session, name: str, batch_size: int, fanouts: tuple[int, ...]) -> dict[str, Any]:
    points: dict[str, Callable[[], float]] = {
        s: functools.partial(_fused, session, name, batch_size, fanouts, s)
        for s in ("captured", "persistent-tile")
    }
    return best_of(points)


def papers100m(session: Session) -> dict[str, Any]:
    """A graph of the size of ogbn-papers100M: scratch memory against its limit, and wall times."""
    import cupy

    session.forget()
    name = session.graphs("rmat-papers100M")[0]
    began = time.perf_counter()
    graph = session.graph(name)
    generated_s = time.perf_counter() - began
    cupy.get_default_memory_pool().free_all_blocks()
    verification = session.verify([name], ["captured", "persistent-tile"], ["floyd"])
    session._graphs.pop((name, "cpu"), None)
    rows = []
    for batch_size in (1024,) if session.quick else (1024, 8192):
        for strategy in ("captured", "persistent-tile"):
            for count in (1, FUSED):
                total = max(_COUNT, 2 * count)
                seeds = session.batches(name, batch_size, total)
                groups = [seeds[i : i + count] for i in range(0, total, count)]
                sampler = session.sampler(name, (10, 10, 10), strategy, "floyd")
                settle(sampler, groups)
                us = timing.wall_us(functools.partial(_call, sampler, groups), len(groups), _PASSES)
                rows.append({
                    "graph": name, "batch_size": batch_size, "fanout": 10, "hops": 3, "strategy": strategy,
                    "fused": count, "wall_us": us / count, "scratch_bytes": sampler.scratch_bytes,
                    "scratch_limit_bytes": sampler._engine.scratch_limit, "graph_bytes": int(graph.nbytes),
                })  # fmt: skip
                session.say(f"{strategy} {batch_size} seeds, {count} in a call: {us / count:.0f} us each, "
                            f"scratch {sampler.scratch_bytes / 2**20:.0f} MiB")  # fmt: skip
                del sampler
    return {
        "settings": {
            "pick": "floyd", "scratch_bytes": "default: 5 % of the memory that is free beside the graph",
            "generated_s": generated_s, "memory_bytes": int(runtime.device_properties()["totalGlobalMem"]),
        },
        "verification": verification, "graphs": session.facts([name]), "rows": rows,
    }  # fmt: skip
