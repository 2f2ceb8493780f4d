"""Replay: what a strategy would do on a GPU with the tasks of a sample that was drawn on the CPU.

The draw does not depend on the schedule, so the sample is the same under every strategy. The replay adds which block
runs which task and when, on the GPU model (``gpu_model/model.py``), and returns the same trace type as a measured run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gnnsample_lab.gpu_model.model import (
    PLANS,
    GpuModel,
    TaskFeatures,
    UnitCost,
    get_model,
    hands_on,
    task_features,
)
from gnnsample_lab.traces import (
    FUSED_STRATEGIES,
    LostTable,
    SampleTrace,
    SlotTable,
    TaskTable,
    hop_kernel_times,
)

if TYPE_CHECKING:
    from gnnsample_lab.gpu_model.run import Timeline, Workload
    from gnnsample_lab.sampling.neighbors.spec import HopPicks

#: In-degrees per hop, each aligned with that hop's frontier, or a function from global vertex ids to
# in-degrees.
Degrees = Sequence[npt.NDArray[np.int64]] | Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]

_SECTOR = 32
# Below this id a table from id to position is the fastest join, and it stays small.
_DENSE_IDS = 1 << 22


def replay(
    picks: Sequence[HopPicks],
    degrees: Degrees,
    *,
    strategy: str,
    pick: str,
    fanouts: Sequence[int],
    num_nodes: int,
    fetch_size: int = 5,
    completion: str = "exact",
    gpu: GpuModel | str = "h200",
    num_blocks: int | None = None,
    task_index_start: int | None = None,
    replace: bool = False,
    weighted: bool = False,
    expand: str = "frontier",
    seed: int = 0,
    batch_id: int = 0,
    graph_name: str = "graph",
    graph_is_synthetic: bool = False,
    meta: Mapping[str, str | int | float] | None = None,
) -> tuple[SampleTrace, list[npt.NDArray[np.bool_]]]:
    """Replay a strategy's schedule on a GPU model.

    The tasks follow from the picks: one task (hop h, vertex v) for each v of ``picks[h].frontier``. The task hands
    on its neighbours and v itself, as far as they are in the frontier of hop h + 1. The first task that hands on a
    vertex queues the task of that vertex.

    Args:
        picks: one entry per hop, arrays on the CPU, ids global.
        degrees: in-degrees of the frontier vertices per hop, or a function that returns them for given ids.
        strategy: any strategy name but "auto".
        pick, replace, weighted, expand, seed, batch_id: as the sampler was given them.
        fanouts: one per hop, -1 for all neighbours.
        num_nodes: vertices of the graph; bounds the grid of "fused-static".
        fetch_size, completion: queue strategies only. "paper" replays PGSampler's Algorithm 1 as printed,
            races included, and loses the tasks that it loses; "exact" loses none.
        gpu: a :class:`GpuModel` or the key of a preset.
        num_blocks: blocks of the grid, at most the resident blocks (the default).
        task_index_start: first value of ``taskIndex`` under "paper"; by default the number of blocks.
        graph_name, graph_is_synthetic: for the titles of figures.
        meta: further scalars for ``trace.meta``.

    Returns:
        (trace, processed): a modelled trace with times in us, and per hop a mask bool[n_h] over the frontier
        of the tasks that ran. All True unless ``completion="paper"``.

    Raises:
        ValueError: for an unknown strategy, preset or completion rule, for a queue strategy with
            ``expand="new"``, or for degrees and fanouts that do not match the picks.
    """
    from gnnsample_lab.gpu_model.run import simulate
    from gnnsample_lab.gpu_model.run_error import carried

    if strategy not in PLANS:
        raise ValueError(f"strategy must be one of {', '.join(PLANS)} (got {strategy!r})")
    fused = strategy in FUSED_STRATEGIES
    if fused and expand != "frontier":
        raise ValueError(f"expand must be 'frontier' for strategy {strategy!r} (got {expand!r})")
    if len(picks) != len(fanouts) or not picks:
        raise ValueError(f"fanouts must have one entry per hop (got {len(fanouts)} for {len(picks)} hops)")
    model = get_model(gpu)
    unit = model.unit(strategy)
    per_hop = _degrees_per_hop(picks, degrees)
    work = build_workload(
        picks,
        per_hop,
        unit,
        fanouts,
        pick=pick,
        replace=replace,
        weighted=weighted,
        queued=fused,
        hands_on=[hands_on(strategy, hop, len(picks)) for hop in range(len(picks))],
    )
    timeline = simulate(
        model,
        work,
        strategy,
        pick=pick,
        fetch_size=fetch_size,
        completion=completion,
        num_blocks=num_blocks,
        task_index_start=task_index_start,
        grid_tasks=_most_tasks(len(picks[0].frontier), fanouts, num_nodes),
    )
    has_queue = PLANS[strategy][0] == "queue"
    trace = _to_trace(
        timeline,
        work,
        picks,
        per_hop,
        origin="modelled",
        device_name=model.name,
        strategy=strategy,
        graph_name=graph_name,
        graph_is_synthetic=graph_is_synthetic,
        num_sms=model.num_sms,
        batch_size=len(picks[0].frontier),
        fanouts=tuple(int(k) for k in fanouts),
        pick=pick,
        replace=replace,
        weighted=weighted,
        expand=expand,
        seed=seed,
        batch_id=batch_id,
        fetch_size=fetch_size if has_queue else None,
        completion=completion if has_queue else None,
        copy_bandwidth_gbps=model.copy_bandwidth_gbps,
        meta={"gpu_model": model.key, **carried(model), **(meta or {})},
    )
    bounds = work.hop_ptr
    return trace, [timeline.processed[bounds[h] : bounds[h + 1]] for h in range(len(picks))]


def _degrees_per_hop(picks: Sequence[HopPicks], degrees: Degrees) -> list[npt.NDArray[np.int64]]:
    if callable(degrees):
        per_hop = [np.asarray(degrees(p.frontier), dtype=np.int64) for p in picks]
    else:
        per_hop = [np.asarray(d, dtype=np.int64) for d in degrees]
    if len(per_hop) != len(picks):
        raise ValueError(f"degrees must have one array per hop (got {len(per_hop)} for {len(picks)} hops)")
    for hop, (p, d) in enumerate(zip(picks, per_hop, strict=True)):
        if d.shape != (len(p.frontier),):
            raise ValueError(
                f"degrees[{hop}] must match the frontier (got shape {d.shape}, expected ({len(p.frontier)},))"
            )
    return per_hop


def _most_tasks(num_seeds: int, fanouts: Sequence[int], num_nodes: int) -> int:
    """Upper bound on the number of tasks, known before sampling: a grid without a queue has one block per task."""
    total, frontier = 0, num_seeds
    for fanout in fanouts:
        total += frontier
        frontier = num_nodes if fanout < 0 else min(num_nodes, frontier * (fanout + 1))
    return total


def build_workload(
    picks: Sequence[HopPicks],
    degrees: Sequence[npt.NDArray[np.int64]],
    unit: UnitCost,
    fanouts: Sequence[int],
    *,
    pick: str,
    replace: bool,
    weighted: bool,
    queued: bool,
    hands_on: Sequence[tuple[bool, bool]] | None = None,
) -> Workload:
    """Tasks, their costs and children for the GPU model; ``unit`` fixes how passes are counted.

    ``hands_on``: per hop, see :func:`gnnsample_lab.gpu_model.model.hands_on`; by default that of a queue if ``queued``.
    """
    from gnnsample_lab.gpu_model.run import Workload

    sizes = [len(p.frontier) for p in picks]
    hop_ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    features, candidates, moved = [], [], []
    for hop, p in enumerate(picks):
        counts = np.asarray(p.counts, dtype=np.int64)
        features.append(
            task_features(
                unit, degrees[hop], counts, int(fanouts[hop]), pick=pick, replace=replace, weighted=weighted,
                hands_on=hands_on[hop] if hands_on else (queued and hop + 1 < len(picks),) * 2,
            )
        )  # fmt: skip
        scans = weighted or (pick == "reservoir" and not replace)
        candidates.append(degrees[hop] if scans else counts)
        id_bytes = np.asarray(p.frontier).dtype.itemsize
        handed_on = hop + 1 < len(picks)
        moved.append(
            _task_bytes(counts, degrees[hop], id_bytes, handed_on=handed_on, queued=queued, weighted=weighted)
        )
    if queued:
        child_ptr, child = _children(picks, hop_ptr)
    else:
        # A barrier hands on whole hops, so it does not matter which task found which vertex.
        child_ptr, child = np.zeros(hop_ptr[-1] + 1, dtype=np.int64), np.empty(0, dtype=np.int64)
    return Workload(
        hop_ptr=hop_ptr,
        features=TaskFeatures(
            *(
                np.concatenate([getattr(f, name) for f in features])
                for name in TaskFeatures.__dataclass_fields__
            )
        ),
        candidates=np.concatenate(candidates).astype(np.int64),
        bytes_moved=np.concatenate(moved),
        child_ptr=child_ptr,
        child=child,
    )


def _task_bytes(
    counts: npt.NDArray[np.int64],
    degree: npt.NDArray[np.int64],
    id_bytes: int,
    *,
    handed_on: bool,
    queued: bool,
    weighted: bool,
) -> npt.NDArray[np.int64]:
    """Bytes of each task: a random access costs a 32-byte sector, a streamed one its own bytes."""
    vertex = id_bytes + _SECTOR + 4  # frontier id, the pair of offsets, the count
    each = _SECTOR + id_bytes + 8  # neighbour, its id and its edge position written
    total = vertex + counts * each
    if handed_on:
        # The stamp in the vertex table is read and written back for each neighbour and for the vertex itself.
        total = total + (counts + 1) * 2 * _SECTOR
    if queued:
        total = total + 16
    if weighted:
        total = total + degree * 4
    return np.asarray(total, dtype=np.int64)


def _children(
    picks: Sequence[HopPicks], hop_ptr: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """CSR from tasks to the tasks that they hand on; neighbours outside the next frontier are left out."""
    counts, parts = [], []
    for hop, p in enumerate(picks):
        frontier = np.asarray(p.frontier, dtype=np.int64)
        n = len(frontier)
        if hop + 1 == len(picks):
            counts.append(np.zeros(n, dtype=np.int64))
            continue
        following = np.asarray(picks[hop + 1].frontier, dtype=np.int64)
        owner = np.concatenate([np.repeat(np.arange(n), p.counts), np.arange(n)])
        wanted = np.concatenate([np.asarray(p.neighbors, dtype=np.int64), frontier])
        at = _positions(following, wanted)
        there = at >= 0
        owner, at = owner[there], at[there]
        # Neighbours first, the vertex itself last, as a task generates them.
        by_owner = np.argsort(owner, kind="stable")
        parts.append(at[by_owner] + hop_ptr[hop + 1])
        counts.append(np.bincount(owner, minlength=n))
    child_ptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    return child_ptr, np.concatenate(parts).astype(np.int64) if parts else np.empty(0, dtype=np.int64)


def _positions(ids: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The position of each wanted id in ``ids`` (distinct), -1 where ``ids`` lacks it."""
    if len(ids) == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    highest = int(max(ids.max(), wanted.max(initial=0)))
    if highest < _DENSE_IDS:
        table = np.full(highest + 1, -1, dtype=np.int64)
        table[ids] = np.arange(len(ids))
        return table[wanted]
    order = np.argsort(ids, kind="stable")
    at = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    return np.where(ids[at] == wanted, at, -1)


def _to_trace(
    timeline: Timeline,
    work: Workload,
    picks: Sequence[HopPicks],
    degrees: Sequence[npt.NDArray[np.int64]],
    meta: Mapping[str, str | int | float],
    **identity: object,
) -> SampleTrace:
    num_hops = work.num_hops
    hop = np.repeat(np.arange(num_hops), np.diff(work.hop_ptr))
    vertex = np.concatenate([np.asarray(p.frontier, dtype=np.int64) for p in picks])
    done = timeline.processed
    tasks = TaskTable(
        hop=hop[done],
        vertex=vertex[done],
        degree=np.concatenate(degrees)[done],
        num_picks=np.concatenate([np.asarray(p.counts) for p in picks])[done],
        sm=timeline.sm[done],
        block=timeline.block[done],
        enqueue_us=timeline.enqueue_us[done],
        start_us=timeline.start_us[done],
        end_us=timeline.end_us[done],
    )
    missing = ~done
    lost = LostTable(
        hop=hop[missing],
        vertex=vertex[missing],
        slot=timeline.slot[missing],
        block=timeline.claimed_by[missing],
        enqueue_us=np.where(timeline.slot[missing] >= 0, timeline.enqueue_us[missing], np.nan),
    )
    in_slots = np.flatnonzero(timeline.slot >= 0)
    in_slots = in_slots[np.argsort(timeline.slot[in_slots], kind="stable")]
    slots = SlotTable(
        hop=hop[in_slots],
        vertex=vertex[in_slots],
        block=timeline.claimer[: len(in_slots)],
        claim_us=timeline.claim_us[: len(in_slots)],
        write_us=timeline.enqueue_us[in_slots],
        read_us=timeline.start_us[in_slots],
        end_us=timeline.end_us[in_slots],
    )
    # Slots that nobody comes to read may be written after the last task has ended.
    total_us = max(timeline.total_us, float(np.nanmax(lost.enqueue_us[lost.abandoned], initial=0.0)))
    kernel = timeline.kernel_us
    if kernel is None:
        kernel = hop_kernel_times(tasks, num_hops, fused=True)
        span = total_us - timeline.preprocess_us.sum()
        # Time that no task covers: the start of the blocks counts for the first hop, empty blocks and what is written
        # after the last task for the last.
        kernel[-1] += timeline.drain_us + total_us - timeline.total_us
        kernel[0] += span - kernel.sum()
    moved = np.bincount(hop[done], weights=work.bytes_moved[done], minlength=num_hops).astype(np.int64)
    scalars: dict[str, str | int | float] = {**meta, "resident_workers": timeline.resident_workers}
    if timeline.drain_us:
        scalars["drain_us"] = timeline.drain_us
    return SampleTrace.from_tasks(
        tasks,
        num_blocks=timeline.num_blocks,
        preprocess_us=timeline.preprocess_us,
        kernel_us=kernel,
        bytes_moved=moved,
        lost=lost,
        total_us=total_us,
        meta=scalars,
        slots=slots,
        **identity,  # type: ignore[arg-type]
    )
