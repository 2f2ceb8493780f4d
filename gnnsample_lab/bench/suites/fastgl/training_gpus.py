"""FastGL's figure 14a: epoch time over the number of GPUs, each with the mini-batch of one."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suites.dsp import crew
from gnnsample_lab.systems.train import train

from .papers import left_gb
from .training import featured, record, verify

SYSTEMS = ("dgl", "fastgl", "lab")
EPOCHS, QUICK_EPOCHS = 6, 4
"""The first warms up; of an odd number of others the median is one that ran."""


def figure14a(session: Session) -> dict[str, Any]:
    """Over (a) the number of GPUs, as many as there are up to 4; GCN. What a GPU trains on in a step stays the same.

    Eight are modelled from the stages of the most that ran: a row of each system, a note and the settings.
    """
    checked = verify(session, SYSTEMS)
    name = crew.names(session, "products-like@0.1" if session.quick else "products-like")[0]
    graph = featured(session, name)
    size = common.batch_size(name, graph)
    left = left_gb(name, int(graph.feat.nbytes))
    rows: list[dict[str, Any]] = []
    modelled: dict[str, float] = {}
    for system in SYSTEMS:
        alone, fewer = 0.0, None
        for gpus in sorted({1, *crew.worlds()}):
            result = train(
                graph, "gcn", system, epochs=QUICK_EPOCHS if session.quick else EPOCHS, batch_size=size * gpus,
                fanouts=common.FANOUTS,
                cache_gb=left if system != "dgl" else None, evaluate=False, progress=False,
                device=common.device(), ranks=crew.ranks_of(session, gpus) if gpus > 1 else 1,
            )  # fmt: skip
            epoch = common.median_epoch(result).steady
            alone = alone or epoch.total_us
            tasks = max(epoch.tasks or epoch.num_batches, 1)
            rows.append({
                "graph": name, "system": system, "gpus": gpus, "origin": "measured", "batch_size": size,
                "num_features": int(graph.feat.shape[1]), "steps": epoch.num_batches,
                "error_percent": None if fewer is None else crew.off_percent(fewer, result),
                **common.epoch_seconds(result), "over_one": alone / epoch.total_us, "notes": list(result.notes),
                "cache_percent": 100 * result.cache_ratio, **common.work_per_batch(epoch, tasks),
                **{f"{stage}_ms": us / 1e3 / tasks for stage, us in epoch.stage_us.items()},
            })  # fmt: skip
            session.say(f"{name}, {system}, {gpus} GPUs: {epoch.total_us / 1e3:.1f} ms an epoch")
            fewer = result
        rows.append(_on_more(rows[-1], fewer, alone))
        modelled[system] = rows[-1]["over_one"]
    for row in rows:
        same = next(r for r in rows if r["system"] == "dgl" and r["gpus"] == row["gpus"])
        row["over_dgl"] = same["epoch_s"] / row["epoch_s"]
    found = record(
        session, [name], rows, checked, ranks=crew.device(), cache_gb=left,
        batch_size_of="a GPU; a step has as many times the seeds, and gradients are added up",
        reorder="on several GPUs mini-batches keep their order",
        modelled={
            "gpus": crew.MODELLED_GPUS, "over_one": modelled,
            "from": f"the run on {crew.most_ranks()} GPUs, {crew.MODELLED_FROM}",
        },
        what="epoch_s: the median epoch after the first, with the 10th and 90th percentile of all after the first; "
        "stages: milliseconds a mini-batch of that epoch, those that overlap add up to more",
    )  # fmt: skip
    said = ", ".join(f"{system} {gain:.2f} x" for system, gain in modelled.items())
    notes = [f"Modelled, {crew.MODELLED_GPUS} GPUs over one: {said}.", *crew.off_notes(rows)]
    return found | {"notes": [*notes, *crew.notes()]}


def _on_more(row: dict[str, Any], result: Any, alone_us: float) -> dict[str, Any]:
    """A system's row of the most GPUs that ran, as the schedule model has it on more (:func:`.crew.on_more_gpus`)."""
    run, timeline = crew.on_more_gpus(result)
    kept = (
        "graph", "system", "num_features", "batch_size", "cache_percent", "rows_per_batch", "picks_per_batch",
        "sample_ms", "reorder_ms", "extract_ms", "train_ms",
    )  # fmt: skip
    return {
        **{name: row[name] for name in kept if name in row}, "gpus": crew.MODELLED_GPUS, "origin": "modelled",
        "steps": -(-run.times.batches // crew.MODELLED_GPUS), "epoch_s": timeline.epoch_s,
        "over_one": alone_us / 1e6 / timeline.epoch_s,
    }  # fmt: skip
