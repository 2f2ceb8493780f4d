"""GNNLab's premise, section 3: {time sharing, factored} x {degree, PreSC} on the same cards, under one ``budget_gb``.

A GPU that shares its time holds the topology beside the cache; a trainer of the factored design does not, and caches
more rows. Of either design the best way counts: of three executors, or of as many samplers as leave half of the GPUs to
trainers. A trainer extracts while it trains; where memory does not last for the rows of the mini-batches that are then
under way, or leaves rows uncached, one after the other, too: which is better, fewer misses or hidden ones, is measured.
Steps are launched kernel by kernel, as published, and replayed as CUDA graphs.

A card is to be so small that its capacity decides something, and what training needs is not known before. So budgets
are searched for by ways of time sharing, each of which caches some rows on a card of its own (:data:`CARDS`). On the
larger card, of stages that overlap, ways with fewer mini-batches under way cache more rows, perhaps all of them. On the
smaller one, of one stage after the other, ways that need more may not run. Both are results and no errors.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator
from typing import Any

from gnnsample_lab.bench.record import graph_facts
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable
from gnnsample_lab.bench.suites.dsp import crew
from gnnsample_lab.bench.suites.dsp.pipelines import (
    EPOCHS,
    HIDDEN,
    STEPS_AS,
    Runs,
    first_line,
    graphs,
    modelled_here,
    steps_as,
)
from gnnsample_lab.pipeline.records import TrainResult
from gnnsample_lab.systems.features import topology_bytes

POLICIES = ("degree", "presample")
SHARING = ("serial", "streams", "overlapped")
"""Executors of time sharing, whose losses are compared."""
CARDS = ("overlapped", "serial")
"""Executors by which cards are looked for: the one that needs most memory, and the one that needs least."""
SHARED = (0.1, 0.4)
"""Shares of the rows that a GPU which shares its time by that executor caches on the card: some, so that policies
differ, and not so many that a trainer without the topology holds all."""
TRIES = 8
"""Budgets that are tried before none is found."""


def budget(session: Session) -> dict[str, Any]:
    """The suite's function.

    Raises:
        Unavailable: there is one GPU, or one rank.
    """
    if crew.most_ranks() < 2:
        raise Unavailable("the factored design needs two GPUs")
    rows: list[dict[str, Any]] = []
    facts, notes = {}, list[str]()
    for name in graphs(session):
        with contextlib.ExitStack() as stack:
            runs = Runs(session, name, stack)
            facts[name] = graph_facts(runs.graph)
            if topology_bytes(runs.graph) >= runs.graph.feat.nbytes:
                notes.append(f"{name} has less features than topology: a trainer would hold all rows.")
                continue
            for step, card in itertools.product(steps_as(), cards(session)):
                for found in _by_policy(runs, step, card):
                    rows += [{"graph": name, "seeds_a_gpu": runs.size, **row} for row in found]
    notes += [
        f"{row['graph']}, {row['step']} steps, the card of {row['card']}: no times, for it failed: {row['error']}"
        for row in rows if "error" in row and "executor" not in row
    ]  # fmt: skip
    return {
        "settings": {
            "device": crew.device(), "ranks": crew.most_ranks(), "fanouts": list(crew.FANOUTS), "hidden": HIDDEN,
            "epochs": EPOCHS, "model": "sage", "pick": "floyd",
            "budget_gb": "of each GPU: graph, cache, CuPy's pool and PyTorch's allocator, the peak checked; found by "
            f"halving, so that a run of two epochs by 'card' and Degree caches {SHARED[0]:.0%} to {SHARED[1]:.0%} of "
            "the rows",
            "ms": "wall time of a step of all ranks: median, p10 and p90 of the epochs after the first; stages: mean "
            "of a rank's slice of a mini-batch, in the median epoch of the run itself",
            "step": "plain: launched kernel by kernel, aggregation by cuSPARSE; captured: replayed as a CUDA graph, "
            "aggregation by our kernels",
            "modelled_ms": "the schedule model fed with the stages of the same run, as they overlapped: how well the "
            "schedule explains the run, and no prediction",
            "x_sharing": "epoch of time sharing by its best executor over that of the factored design by its best "
            "split, on the same card",
        },
        "verification": {
            "runs_with_the_losses_of_another": sum(
                "error" not in row and row.get("executor") in SHARING for row in rows
            ),
        },
        "graphs": facts, "rows": rows, "notes": notes,
    }  # fmt: skip


def cards(session: Session) -> tuple[str, ...]:
    """Those of :data:`CARDS` that differ: on a CPU nothing but topology and cache counts, whatever the executor."""
    return CARDS[:1] if session.quick or crew.device() == "cpu" else CARDS


def _by_policy(runs: Runs, step: str, card: str) -> Iterator[list[dict[str, Any]]]:
    """Rows of one kind of steps on one card, policy by policy. Where something fails, minutes of the others must not be
    lost: then what went wrong is a row."""
    try:
        piece = runs.session.piece
        budget_gb = piece((runs.name, step, card), functools.partial(smaller_card, runs, step, card))
        for policy in POLICIES:
            both = functools.partial(_both_designs, runs, step, policy, budget_gb)
            yield [row | {"card": card} for row in piece((runs.name, step, card, policy), both)]
    except Exception as error:
        text = f"{type(error).__name__}: {first_line(error)}"
        runs.session.say(f"{runs.name}, {step} steps, the card of {card}: failed, {text}")
        yield [{"part": "budget", "step": step, "card": card, "error": text}]


def smaller_card(runs: Runs, step: str, executor: str) -> float:
    """``budget_gb`` of a card on which time sharing by ``executor`` runs, with a share of the rows cached that is
    within :data:`SHARED`: by halving between the topology alone and what a run without a limit held.

    Raises:
        MemoryError: none of :data:`TRIES` budgets is like that.
    """
    options: dict[str, Any] = {"executor": executor, "policy": POLICIES[0], "epochs": 2, **STEPS_AS[step]}
    free = runs.run("gnnlab", runs.world, cache_ratio=SHARED[1], **options)
    low = topology_bytes(runs.graph) / 1e9
    # On a CPU nothing but topology and cache counts.
    high = max(max(m.peak, m.topology + m.cache) for m in free.memory) / 1e9
    for _ in range(TRIES):
        budget_gb = (low + high) / 2
        try:
            cached = runs.run("gnnlab", runs.world, budget_gb=budget_gb, **options).cache_ratio
        except Exception as error:
            if "MemoryError" not in f"{type(error).__name__}: {error}":  # on ranks the error is theirs
                raise
            cached = 0.0
        runs.session.say(f"{step} steps, {budget_gb:.3g} GB: {executor} caches {cached:.0%} of the rows")
        if cached < SHARED[0]:
            low = budget_gb
        elif cached > SHARED[1]:
            high = budget_gb
        else:
            return budget_gb
    raise MemoryError(
        f"no card between {low:.3g} and {high:.3g} GB caches {SHARED[0]:.0%} to {SHARED[1]:.0%}"
    )


def _both_designs(runs: Runs, step: str, policy: str, budget_gb: float) -> list[dict[str, Any]]:
    """Rows of every way of both designs; the best of the factored ones has ``x_sharing``.

    Raises:
        VerificationError: ways of time sharing trained to other losses.
    """
    ways = [(executor, 0) for executor in (SHARING[-1:] if runs.quick else SHARING)]
    ways += [("factored", samplers) for samplers in range(1, runs.world // 2 + 1)]
    rows, reference = [], None
    for executor, samplers in ways:
        row, result = _run(runs, executor, samplers, step, policy, budget_gb)
        rows.append(row)
        if executor != "factored":
            reference = reference or result
            runs.verify(result, reference)
        elif "MemoryError" in row.get("error", "") or row.get("cached_percent", 100) < 100:
            rows.append(_run(runs, executor, samplers, step, policy, budget_gb, pipelined=False)[0])
    designs = [
        [row for row in rows if "ms" in row and (row["executor"] == "factored") is factored]
        for factored in (False, True)
    ]
    if all(designs):
        sharing, factored = (min(each, key=lambda r: float(r["epoch_ms"])) for each in designs)
        factored["x_sharing"] = sharing["epoch_ms"] / factored["epoch_ms"]
    return rows


def _run(
    runs: Runs, executor: str, samplers: int, step: str, policy: str, budget_gb: float, pipelined: bool = True
) -> tuple[dict[str, Any], TrainResult | None]:
    """A row and its run. Trainers of the factored design have mini-batches of their own; the ranks of time sharing have
    slices of one."""
    row = {
        "part": "budget", "system": "gnnlab", "gpus": runs.world, "executor": executor, "step": step,
        "policy": policy, "budget_gb": budget_gb,
    }  # fmt: skip
    more: dict[str, Any] = {}
    if executor == "factored":
        row["split"] = f"{samplers}S{runs.world - samplers}T" + ("" if pipelined else ", one after the other")
        more = {"samplers": samplers, "pipelined": pipelined}
    found, result = runs.try_row(
        row, functools.partial(
            runs.run, "gnnlab", runs.world, per_rank=executor != "factored", executor=executor, policy=policy,
            budget_gb=budget_gb, **more, **STEPS_AS[step],
        ),
    )  # fmt: skip
    if result is None:
        return found, None
    return found | {"epoch_ms": found["ms"] * found["steps"]} | modelled_here(result, found), result
