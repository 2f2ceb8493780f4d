"""Wall time of the whole process: from seeds on the GPU until the host holds a MiniBatch with local ids."""

from __future__ import annotations

import functools
import statistics
import time
from typing import Any

from gnnsample_lab.bench import timing
from gnnsample_lab.bench.session import (
    FUSED,
    Session,
    best_of,
    call_together,
    executed_by,
    knob_points,
    settle,
)
from gnnsample_lab.bench.suite import PUBLISHED_QUEUE
from gnnsample_lab.device import runtime
from gnnsample_lab.minibatch.waves import Waves
from gnnsample_lab.sampling.neighbors.launch import Knobs
from gnnsample_lab.sampling.neighbors.plan import TABLES
from gnnsample_lab.sampling.neighbors.sizes import seed_capacity

from .kernels import QUEUES, settings_of
from .papers import AVERAGES

OURS = ("captured", "grid-barrier", "persistent-tile")
BASELINE, BASELINE_PICK = "block-bsp", "reservoir"
"""DGL's execution with DGL's pick; its ID map is insert-count-compact."""
PICKS = ("floyd", BASELINE_PICK)
_COUNT = 8
EPOCH = 8
"""Mini-batches that ``epoch`` asks for at a time, unless it is told another number."""
_TIMING = "wall time per call, GPU idle before and after; in each pass the median of the calls, over passes the median"
_MIXED = "mixed: ours draws by Floyd, O(fanout), the baseline by its reservoir, O(degree)"


def _walls(
    session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], strategy: str, pick: str
) -> dict[str, Any]:
    """Best wall time of one mini-batch over the strategy's knobs, with its spread."""
    seeds = session.batches(name, batch_size, _COUNT)

    def measure(knobs: Any) -> list[float]:
        sampler = session.sampler(name, fanouts, executed_by(strategy), pick, knobs)
        return timing.wall_times(lambda i: sampler.sample(seeds[i], i), _COUNT, session.passes)

    # The baseline is swept: no default of ours may make it slow. The other strategies run with their defaults.
    defaults = {"default": Knobs(queue_teams=False) if strategy == PUBLISHED_QUEUE else None}
    points = knob_points(strategy, session.quick) if strategy == BASELINE else defaults
    return best_of({label: functools.partial(measure, knobs) for label, knobs in points.items()})


def _fastest_of(points: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The fastest of strategies that were timed: its spread, its name as ``best``, and ``sweep``: name -> us."""
    best = min(points, key=lambda strategy: points[strategy]["us"])
    return {**points[best], "best": best, "sweep": {s: found["us"] for s, found in points.items()}}


def _fastest(
    session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], pick: str
) -> dict[str, Any]:
    return _fastest_of({s: _walls(session, name, batch_size, fanouts, s, pick) for s in OURS})


def figure9(session: Session) -> dict[str, Any]:
    """Speed-up of the whole process over ``block-bsp``: the best strategy and the queue, as published and ours."""
    names = session.graphs("rmat", *AVERAGES)
    verification = session.verify(names, [BASELINE, PUBLISHED_QUEUE, "persistent", *OURS])
    rows: list[dict[str, Any]] = []
    for name in names:
        for batch_size, fanouts in settings_of(name, session.quick):
            row = functools.partial(_row_of_setting, session, name, batch_size, fanouts)
            rows.append(session.piece((name, batch_size, *fanouts), row))
    return {
        "settings": {
            "baseline": f"{BASELINE}, insert-count-compact ID map, with either pick", **QUEUES,
            "pick of the queues": BASELINE_PICK,
            "best": f"fastest of {', '.join(OURS)}, with the reservoir persistent too; 'best' alone is {_MIXED}",
            "timing": _TIMING, "passes": session.passes,
        },
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip


def _row_of_setting(session: Session, name: str, batch_size: int, fanouts: tuple[int, ...]) -> dict[str, Any]:
    """Figure 9's row of a graph and a setting."""
    theirs = {pick: _walls(session, name, batch_size, fanouts, BASELINE, pick) for pick in PICKS}
    ours = {pick: _fastest(session, name, batch_size, fanouts, pick) for pick in PICKS}
    published, persistent = (
        _walls(session, name, batch_size, fanouts, queue, BASELINE_PICK)
        for queue in (PUBLISHED_QUEUE, "persistent")
    )
    same, floyd = ours[BASELINE_PICK], ours["floyd"]
    same["sweep"]["persistent"] = persistent["us"]
    if persistent["us"] < same["us"]:
        same.update({**timing.around(persistent), "us": persistent["us"], "best": "persistent"})
    base = theirs[BASELINE_PICK]
    timed = {
        BASELINE: base, f"{BASELINE}, floyd": theirs["floyd"], PUBLISHED_QUEUE: published,
        "persistent": persistent, "best same pick": same, "best": floyd,
    }  # fmt: skip
    row = {
        "graph": name, "batch_size": batch_size, "fanout": fanouts[0], "hops": len(fanouts),
        "l2": session.l2_state(name, batch_size, fanouts, BASELINE_PICK, _COUNT),
        "wall_us": {key: found["us"] for key, found in timed.items()},
        "spread": {key: timing.around(found) for key, found in timed.items()},
        "best_strategy": floyd["best"], "best_same_pick_strategy": same["best"],
        "sweep": {key: found["sweep"] for key, found in timed.items() if key not in QUEUES},
        "speedup": {
            "best same pick, floyd": theirs["floyd"]["us"] / floyd["us"],
            "best same pick": base["us"] / same["us"], PUBLISHED_QUEUE: base["us"] / published["us"],
            "persistent": base["us"] / persistent["us"],
            "best": base["us"] / floyd["us"],
        },
    }  # fmt: skip
    session.say(
        f"{name} {batch_size} x {list(fanouts)}: {BASELINE} {base['us']:.0f}, by Floyd "
        f"{theirs['floyd']['us']:.0f}; persistent {persistent['us']:.0f}, {floyd['best']} {floyd['us']:.0f} us"
    )
    return row


def whole_process(session: Session) -> dict[str, Any]:
    """Wall time of a mini-batch alone and as one of 32 sampled in one call, both picks on both sides."""
    names = session.graphs()
    verification = session.verify(names, [BASELINE, *OURS])
    settings = [(256, 10), (1024, 10), (2048, 10), (8192, 10), (8192, 15), (10240, 10)]
    if not session.quick:
        settings += [(512, 10), (4096, 10), (1024, 5), (1024, 15), (1024, 20), (10240, 20)]
    rows = []
    for name in names:
        for batch_size, fanout in settings:
            row = _whole_row(session, name, batch_size, (fanout,) * 3)
            rows.append(row)
            session.say(
                f"{name} {batch_size} x {fanout}^3: over {BASELINE} {row['speedup']['floyd']:.1f} x by Floyd, "
                f"{row['speedup']['reservoir']:.1f} x by the reservoir; alone {row['alone_us']:.0f} "
                f"({row['alone_strategy']}), {FUSED} fused {row['fused32_us']:.1f} us each ({row['fused32_strategy']})"
            )
    return {
        "settings": {
            "baseline": f"{BASELINE}, insert-count-compact ID map, with either pick",
            "same pick": "speedup.floyd, speedup.reservoir: the same pick on both sides", "mixed": _MIXED,
            "fused32": f"{FUSED} mini-batches in one call of sample_many, time divided by {FUSED}, pick=floyd",
            "timing": _TIMING, "passes": session.passes,
        },
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip


def _whole_row(session: Session, name: str, batch_size: int, fanouts: tuple[int, ...]) -> dict[str, Any]:
    theirs = {pick: _walls(session, name, batch_size, fanouts, BASELINE, pick) for pick in PICKS}
    ours = {pick: _fastest(session, name, batch_size, fanouts, pick) for pick in PICKS}
    fused = _fastest_fused(session, name, batch_size, fanouts)
    timed = {
        "baseline_floyd_us": theirs["floyd"], "alone_us": ours["floyd"],
        "baseline_us": theirs[BASELINE_PICK], "alone_reservoir_us": ours[BASELINE_PICK], "fused32_us": fused,
    }  # fmt: skip
    return {
        "graph": name, "batch_size": batch_size, "fanout": fanouts[0], "hops": len(fanouts),
        "l2": session.l2_state(name, batch_size, fanouts, "floyd", _COUNT),
        **{key: found["us"] for key, found in timed.items()}, "alone_strategy": ours["floyd"]["best"],
        "alone_reservoir_strategy": ours[BASELINE_PICK]["best"], "fused32_strategy": fused["best"],
        "spread": {key: timing.around(found) for key, found in timed.items()},
        "speedup": {
            **{pick: theirs[pick]["us"] / ours[pick]["us"] for pick in PICKS},
            "mixed": theirs[BASELINE_PICK]["us"] / ours["floyd"]["us"],
        },
        "sweep": {
            "baseline": theirs[BASELINE_PICK]["sweep"], "baseline, floyd": theirs["floyd"]["sweep"],
            "alone": ours["floyd"]["sweep"], "alone, reservoir": ours[BASELINE_PICK]["sweep"],
            "fused32": fused["sweep"],
        },
    }  # fmt: skip


def _fused(
    session: Session, name: str, batch_size: int, fanouts: tuple[int, ...], strategy: str
) -> dict[str, Any]:
    """Wall time of ``sample_many`` with 32 mini-batches, per mini-batch, with its spread."""
    seeds = session.batches(name, batch_size, 2 * FUSED)
    groups = [seeds[:FUSED], seeds[FUSED:]]
    sampler = session.sampler(name, fanouts, strategy, "floyd")
    settle(sampler, groups)
    call = functools.partial(call_together, sampler, groups)
    return timing.spread(_each(timing.wall_times(call, len(groups), session.passes), FUSED))


def _each(times: list[float], count: int) -> list[float]:
    """Times of calls of ``count`` mini-batches, per mini-batch."""
    return [us / count for us in times]


def _one_by_one(sampler: Any, groups: list[list[Any]], passes: int) -> list[float]:
    def work(i: int) -> list[Any]:
        return [sampler.sample(seeds, i * len(groups[i]) + n) for n, seeds in enumerate(groups[i])]

    return _each(timing.wall_times(work, len(groups), passes), len(groups[0]))


def _launches_of(sampler: Any, groups: list[list[Any]], size: int, passes: int) -> float:
    """Wall time with ``size`` mini-batches in a launch, whatever the sampler would choose."""
    engine, count = sampler._engine, len(groups[0])
    engine.waves[seed_capacity(int(groups[0][0].size))] = Waves(size, size)

    def work(i: int) -> list[Any]:
        made: list[Any] = engine._sample_all(groups[i], i * count, timed=False)
        return made

    us = statistics.median(_each(timing.wall_times(work, len(groups), passes), count))
    engine.waves.clear()
    return us


def _as_chosen(sampler: Any, groups: list[list[Any]], passes: int) -> tuple[list[float], int]:
    """Wall time of ``sample_many`` once the sampler has settled, and how many mini-batches then share a launch."""
    settle(sampler, groups)
    times = timing.wall_times(functools.partial(call_together, sampler, groups), len(groups), passes)
    (waves,) = sampler._engine.waves.values()
    return _each(times, len(groups[0])), waves.settled(len(groups[0]))


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
            "timing": f"{_TIMING}, per mini-batch", "passes": session.passes,
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
        singly = timing.spread(_one_by_one(sampler, groups, session.passes))
        each = {size: _launches_of(sampler, groups, size, session.passes) for size in tables if size <= count}
        times, size = _as_chosen(sampler, groups, session.passes)
        settled = timing.spread(times)
        alone, chosen = singly["us"], settled["us"]
        rows.append({
            "graph": name, "batch_size": batch_size, "fanout": fanout, "hops": 3, "strategy": strategy,
            "l2": session.l2_state(name, batch_size, (fanout,) * 3, "floyd", 2 * count),
            "in_a_call": count, "one_by_one_us": alone, "begin": begin, "chosen": size, "chosen_us": chosen,
            "spread": {"one_by_one_us": timing.around(singly), "chosen_us": timing.around(settled)},
            "launches_of_us": each, "tables": {n: tables[n] for n in each}, "ratio": chosen / alone,
        })  # fmt: skip
        listed = ", ".join(f"{n} ({tables[n]}) {us:.0f}" for n, us in each.items())
        session.say(
            f"{name} {batch_size} x {fanout}^3, {strategy}, {count} in a call: one by one {alone:.0f} us each; in "
            f"launches of {listed}; begins with {begin}, keeps {size}: {chosen:.0f} us, {chosen / alone:.2f} x"
        )
    return rows


def _fastest_fused(session: Session, name: str, batch_size: int, fanouts: tuple[int, ...]) -> dict[str, Any]:
    return _fastest_of(
        {s: _fused(session, name, batch_size, fanouts, s) for s in ("captured", "persistent-tile")}
    )


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
                call = functools.partial(call_together, sampler, groups)
                found = timing.spread(_each(timing.wall_times(call, len(groups), session.passes), count))
                rows.append({
                    "graph": name, "batch_size": batch_size, "fanout": 10, "hops": 3, "strategy": strategy,
                    "fused": count, "wall_us": found["us"], "spread": {"wall_us": timing.around(found)},
                    "l2": session.l2_state(name, batch_size, (10, 10, 10), "floyd", total),
                    "scratch_bytes": sampler.scratch_bytes, "scratch_limit_bytes": sampler._engine.scratch_limit,
                    "graph_bytes": int(graph.nbytes),
                })  # fmt: skip
                session.say(f"{strategy} {batch_size} seeds, {count} in a call: {found['us']:.0f} us each, "
                            f"scratch {sampler.scratch_bytes / 2**20:.0f} MiB")  # fmt: skip
                del sampler
    return {
        "settings": {
            "pick": "floyd", "scratch_bytes": "default: 5 % of the memory that is free beside the graph",
            "timing": f"{_TIMING}, per mini-batch", "passes": session.passes,
            "generated_s": generated_s, "memory_bytes": int(runtime.device_properties()["totalGlobalMem"]),
        },
        "verification": verification, "graphs": session.facts([name]), "rows": rows,
    }  # fmt: skip
