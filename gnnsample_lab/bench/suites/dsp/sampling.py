"""Tables 6 and 7: seconds to sample an epoch, by system and number of GPUs, vertex by vertex and layer by layer.

Rows "modelled" have what follows from measured times for as many GPUs as DSP had. And walks, which DSP's
section 4.2 has without times: walkers that go to the owners of lists, and such that read them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.record import is_modelled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.device.arrays import to_host

from . import crew, running

BATCHES = 8
LAYER_SIZE = 1000
OURS = ("csp-fixed", "direct")
SLOWER = 1.2
"""How many times the best time twice as many samplers may take before no more are tried."""
METHODS = {"dsp": "csp", "direct": "direct"}
"""Ways to draw layers and walks by all ranks: by DSP's exchanges with the owners of lists, or from lists where they
lie. ``by`` of a row is where the ranks' arrays were made."""
WALK_LENGTH = 100
"""Steps of DeepWalk in NextDoor's evaluation."""
FASTGCN_EDGES = 130_000_000
"""FastGCN's probabilities are summed over all edges on one core."""


def sampling(session: Session) -> dict[str, Any]:
    """The suite's function."""
    pool, names = crew.ranks(session), graphs(session)
    rows: list[dict[str, Any]] = []
    for name in names:
        found = common.graph(session, name)
        size = crew.batch_size(found)
        for world in crew.tried_worlds(session):
            here = session.piece(
                (name, world), functools.partial(_epoch_rows, session, pool, name, world, size)
            )
            rows += _with_epochs(name, found, here, world)
        more = on_more([row for row in rows if row["graph"] == name])
        layers = session.piece(
            (name, "layers"), functools.partial(_layer_rows, session, pool, name, found, size)
        )
        rows += _with_epochs(name, found, more, crew.MODELLED_GPUS)
        rows += _with_epochs(name, found, layers, 1) + _with_epochs(name, found, on_more(layers), 1)
        for world in crew.several(session):
            rows += session.piece(
                (name, "walks", world), functools.partial(_walk_rows, session, pool, name, found, world, size)
            )
    checked = sum("error" not in row for row in rows if not is_modelled(row))
    return {
        "settings": {
            "device": crew.device(), "fanouts": crew.FANOUTS, "systems": running.SYSTEMS,
            "partition": crew.divisions(session, names, crew.most_ranks()),
            "layers": f"two of {LAYER_SIZE} vertices, without replacement, drawn for the whole mini-batch by all ranks",
            "walks": f"DeepWalk, {WALK_LENGTH} steps, uniform, from as many roots as all ranks have seeds; rows: roots "
            "of a rank, edges: the steps from them",
            "us": "wall time of a mini-batch, one after another, all ranks at once; median of the slowest rank; "
            "samples stay where they were made",
            "work": f"{crew.WORK}; layer by layer: vertices drawn, and all of a whole mini-batch, its seeds among them",
            "pick": "of CPU systems: the draw; dgl-cpu is timed by both, each verified, and the quicker is kept",
            "mb": "bytes that came to all ranks for a mini-batch of each; layer by layer and of walks for a whole one. "
            "What is read counts in sectors of 32 bytes",
            "modelled": MODELLED_AS,
            "epoch_s": "us times the mini-batches of a rank in an epoch of the unscaled graph's training vertices",
        },
        "verification": {"samples_equal_to_whole_graph": checked},
        "graphs": common.facts(session, names), "rows": rows, "notes": crew.notes(),
    }  # fmt: skip


def _epoch_rows(session: Session, pool: Any, name: str, world: int, size: int) -> list[dict[str, Any]]:
    """Table 6's rows of a graph on so many ranks."""
    found = common.graph(session, name)
    folder, owner = crew.parts(session, name, world), crew.cut_of(session, name, world).owner
    usual: dict[str, Any] = {
        "seconds": crew.seconds(session), "folder": folder, "whole": crew.parts(session, name, 1),
        "fanouts": crew.FANOUTS, "weighted": False, "replace": False,
    }  # fmt: skip
    tasks = {world: _with_seeds(found, usual, crew.seeds_of(found, world, BATCHES, size, owner))}
    for samplers in crew.samplers():
        if samplers > world:
            given = crew.seeds_of(found, samplers, BATCHES, size)
            tasks[samplers] = _with_seeds(found, usual, given)
    rows = []
    for system in (*running.SYSTEMS, *OURS[-1 if session.quick else 0 :]):
        row = {
            "graph": name, "part": "table 6", "system": system, "gpus": world,
            "paper_gpus": world, "batch_size": size,
            "by": "host" if system in running.CPU_SYSTEMS else common.device(),
        }  # fmt: skip
        if system in running.CPU_SYSTEMS:
            times, problem = _on_host(functools.partial(crew.pool_of, session), system, tasks, world)
        else:
            times, problem = running.run(pool, tasks[world] | {"system": system}, world)
        rows.append(row | (times or {"error": problem}))
    session.say(f"{name}, {world} ranks: " + ", ".join(map(_time, rows)))
    return rows


MODELLED_AS = (
    f"for {crew.MODELLED_GPUS} GPUs, from the times measured on fewer. Systems on the CPU: the same cores make twice "
    "the mini-batches in twice the time. Those that read the topology in host memory over a link of each GPU: the "
    "time on the most GPUs that ran. Those with a graph in parts: the line through their times over the remote share "
    "of random parts, 1 - 1 / GPUs, where two numbers of GPUs or more ran. What else eight GPUs share it leaves out"
)
"""What the record says of its modelled rows."""


def on_more(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a table on :data:`.crew.MODELLED_GPUS`, see :data:`MODELLED_AS`, from the measured ones of a graph."""
    by_system: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if "us" in row and 1 < row["gpus"] < crew.MODELLED_GPUS:
            by_system.setdefault(row["system"], []).append(row)
    found = []
    for system, ran in by_system.items():
        last = max(ran, key=lambda row: int(row["gpus"]))
        if system in running.CPU_SYSTEMS:
            us = last["us"] * crew.MODELLED_GPUS / last["gpus"]
        elif system in running.BY_HOST_LINK:
            us = last["us"]
        elif len(ran) > 1:
            line = np.polyfit([1 - 1 / row["gpus"] for row in ran], [row["us"] for row in ran], 1)
            us = float(np.polyval(line, 1 - 1 / crew.MODELLED_GPUS))
        else:
            continue
        kept = ("graph", "system", "batch_size", "by", "rows", "edges")
        found.append({
            **{name: last[name] for name in kept if name in last}, "part": f"{last['part']}, modelled",
            "gpus": crew.MODELLED_GPUS, "us": us,
        })  # fmt: skip
    return found


def _with_seeds(found: Any, task: dict[str, Any], seeds: list[list[np.ndarray]]) -> dict[str, Any]:
    """The task with seeds ``[processes][batches]``, and checksums of what either draw gives for the first of them."""
    task = task | {"seeds": seeds}
    return task | {
        "expected": running.expected(found, task, common.device()),
        "expected_reservoir": running.expected(found, task, common.device(), "reservoir"),
    }


def _on_host(
    pool_of: Callable[[int], Any], system: str, tasks: dict[int, dict[str, Any]], world: int
) -> tuple[dict[str, Any], str]:
    """A row of a system that samples on the CPU: by as many samplers as make mini-batches the quickest.

    One mini-batch keeps few cores busy, and loaders of PyG and DGL have several workers. So ``us`` is what ``world``
    mini-batches take where ``samplers`` processes, which share the host's cores, draw one each at a time; ``tasks``
    are by that number. More are tried until twice as many are slower.
    """
    best: dict[str, Any] = {}
    for samplers, task in sorted(tasks.items()):
        times, problem = running.run(pool_of(samplers), task | {"system": system}, samplers)
        if problem:
            return {}, problem
        times |= {name: times[name] * world / samplers for name in ("p10", "us", "p90")}
        if best and times["us"] > SLOWER * best["us"]:
            break
        if not best or times["us"] < best["us"]:
            best = times | {"samplers": samplers}
    return best, ""


def graphs(session: Session) -> tuple[str, ...]:
    if session.quick:
        return crew.names(session, "products-like@0.1")
    return crew.names(session, "products-like", "papers100M-like@0.1")


def _time(row: dict[str, Any]) -> str:
    return f"{row['system']} {row['us']:.0f} us" if "us" in row else f"{row['system']}: {row['error'][:60]}"


def _with_epochs(name: str, found: Any, rows: list[dict[str, Any]], world: int) -> list[dict[str, Any]]:
    """The rows with seconds of an epoch, and each over DSP's on as many GPUs, else on the most."""
    bases = {row["gpus"]: row["us"] for row in rows if row["system"] == "dsp" and "us" in row}
    base = bases.get(max(bases, default=0))
    for row in rows:
        if "us" in row:
            row["epoch_s"] = row["us"] / 1e6 * crew.batches_of_epoch(name, found, row["batch_size"], world)
            row["over_dsp"] = row["us"] / bases.get(row["gpus"], base) if bases else None
    return rows


# ---- layer by layer ---------------------------------------------------------------------------------------------


def _layer_rows(session: Session, pool: Any, name: str, found: Any, size: int) -> list[dict[str, Any]]:
    """FastGCN on the CPU, one GPU with the whole graph, and ranks with parts."""
    every = [given[0] for given in crew.seeds_of(found, 6, 1, size)]
    step = min(LAYER_SIZE, int(found.num_nodes) // 4)
    usual = {"graph": name, "part": "table 7", "batch_size": size}
    rows = []
    if found.num_edges <= FASTGCN_EDGES:
        rows.append(
            {
                **usual,
                "system": "fastgcn-cpu",
                "gpus": 0,
                "paper_gpus": 0,
                "by": "host",
                **_fastgcn(session, name, every, step),
            }
        )
    one, work, wanted = _whole_layers(found, every, step)
    rows.append({**usual, "system": "lab, whole graph", "gpus": 1, "by": common.device(), **one, **work})
    for world in crew.several(session):
        for system, method in METHODS.items():
            task = {
                "folder": crew.parts(session, name, world), "batches": every, "step_size": step,
                "seconds": crew.seconds(session), "method": method,
            }  # fmt: skip
            row = {**usual, "system": system, "gpus": world}
            if world == pool.ranks:
                row["paper_gpus"] = 8
            # Their slices are together the whole graph's layers, which is checked: the same work.
            check = functools.partial(_check_layers, name, system, wanted=wanted)
            rows.append(_tried(pool, running.layered, task, row, work, check))
    session.say(f"{name}, layer by layer: " + ", ".join(map(_time, rows)))
    return rows


def _tried(
    pool: Any, run: Any, task: dict[str, Any], row: dict[str, Any], work: dict[str, int],
    check: Callable[[list[dict[str, Any]]], None],
) -> dict[str, Any]:  # fmt: skip
    """``row`` with the times of the slowest of its ranks and the work, once the results are checked, or with what went
    wrong."""
    results, problem = crew.attempt(functools.partial(pool.run, run, task, world=row["gpus"]))
    if problem:
        return {**row, "by": "", "error": problem}
    check(results)
    return {**row, **crew.slowest(results), **work, **running.moved(results), "by": results[0]["by"]}


def _walk_rows(
    session: Session, pool: Any, name: str, found: Any, world: int, size: int
) -> list[dict[str, Any]]:
    """DeepWalk on one device with the whole graph, and on so many ranks with parts, from the same roots."""
    import gnnsample_lab as lab

    by_rank = crew.seeds_of(found, world, BATCHES, size)
    every = [np.concatenate([given[i] for given in by_rank]) for i in range(BATCHES)]
    app = lab.apps.DeepWalk(WALK_LENGTH, weighted=False)

    def run(i: int) -> Any:
        return lab.run_app(found, app, every[i], first_sample=0, device=common.device())

    drawn = np.stack([np.asarray(to_host(step)) for step in run(0).steps], axis=1)
    usual = {"graph": name, "part": "walks", "batch_size": size}
    rows: list[dict[str, Any]] = [{
        **usual, "system": "lab, whole graph", "gpus": 1, "by": common.device(), **running.alone(run, BATCHES),
        **_walk_work(drawn, 1), "batch_size": len(every[0]),
    }]  # fmt: skip
    folder = crew.parts(session, name, world)
    for system, method in METHODS.items():
        task = {
            "folder": folder, "roots": every, "length": WALK_LENGTH, "seconds": crew.seconds(session), "method": method,
        }  # fmt: skip
        row = {**usual, "system": system, "gpus": world}
        check = functools.partial(_check_walks, name, system, drawn=drawn)
        rows.append(_tried(pool, running.walked, task, row, _walk_work(drawn, world), check))
    base = next((row["us"] for row in rows if row["system"] == "dsp" and "us" in row), None)
    for row in rows:
        if "us" in row:
            row["over_dsp"] = row["us"] / base if base else None
    session.say(f"{name}, {world} ranks, walks: " + ", ".join(map(_time, rows)))
    return rows


def _walk_work(drawn: np.ndarray, ranks: int) -> dict[str, int]:
    """``rows``, roots of each of so many ranks, and ``edges``, the steps from them; of paths ``[roots, steps, 1]``."""
    return {"rows": round(len(drawn) / ranks), "edges": round(int((drawn >= 0).sum()) / ranks)}


def _check_walks(name: str, system: str, results: list[dict[str, Any]], drawn: np.ndarray) -> None:
    """VerificationError unless the ranks' paths are together those of the whole graph."""
    united = np.full(drawn.shape, -2, np.int64)
    for result in results:
        united[result["mine"]] = result["paths"]
    if not np.array_equal(united, drawn):
        raise VerificationError(f"{name}, {system}: walks of ranks differ from the whole graph's")


def _check_layers(name: str, system: str, results: list[dict[str, Any]], wanted: list[np.ndarray]) -> None:
    """VerificationError unless the ranks' slices are together the layers of the whole graph."""
    for layer, vertices in enumerate(wanted):
        united = np.full(len(vertices), -1, np.int64)
        for result in results:
            slots, there = result["slots"][layer] if layer < len(result["slots"]) else ([], [])
            united[np.asarray(slots, np.int64)] = there
        if not np.array_equal(united, vertices):
            raise VerificationError(
                f"{name}, {system}: layer {layer} of ranks differs from the whole graph's"
            )


def _fastgcn(session: Session, name: str, every: list[np.ndarray], step: int) -> dict[str, float]:
    from gnnsample_lab.systems.reference_samplers import LayerSampler

    sampler = LayerSampler(crew.host_graph(session, name), 2, step, dependent=False)
    times = running.alone(lambda i: sampler.sample(every[i]), len(every))
    return times | layers_work(every, [[layer[0] for layer in sampler.sample(seeds)] for seeds in every])


def layers_work(every: list[np.ndarray], drawn: list[list[np.ndarray]]) -> dict[str, int]:
    """``edges``: vertices drawn for a mini-batch's layers, and ``rows``: the distinct ones, with the seeds; means.

    Args:
        every: seeds of each mini-batch. drawn: its layers, -1 where a place is empty.
    """
    filled = [[layer[layer >= 0] for layer in layers] for layers in drawn]
    rows = [
        np.unique(np.concatenate([seeds, *layers])).size for seeds, layers in zip(every, filled, strict=True)
    ]
    edges = [sum(layer.size for layer in layers) for layers in filled]
    return {"rows": round(float(np.mean(rows))), "edges": round(float(np.mean(edges)))}


def _whole_layers(
    found: Any, every: list[np.ndarray], step: int
) -> tuple[dict[str, float], dict[str, int], list[np.ndarray]]:
    """Times and work of one device with the whole graph, and the first mini-batch's layers, -1 where one is empty."""
    import gnnsample_lab as lab

    app = lab.apps.Layer(len(every[0]) + 2 * step, step, replace=False)

    def run(i: int) -> Any:
        return lab.run_app(found, app, [every[i]], first_sample=i, device=common.device())

    drawn = [
        [np.asarray(to_host(layer))[0].astype(np.int64) for layer in run(i).steps] for i in range(len(every))
    ]
    return running.alone(run, len(every)), layers_work(every, drawn), drawn[0]
