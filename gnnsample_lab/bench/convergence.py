"""Accuracy and loss over epochs, steps and time: FastGL's figure 16, PGSampler's 11, GNNLab's 16 and DSP's 9.

Curves that rise at once and to 100 % tell systems apart in nothing. They are drawn on twins whose labels are as hard as
their originals' (:mod:`.hardness`) and on a real graph of a few megabytes (:data:`REAL`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnsample_lab.graph.errors import DatasetNotFoundError, DownloadError
from gnnsample_lab.pipeline.records import TrainResult

from . import common
from .hardness import original
from .session import Session

REAL = "musae-facebook"
"""Real pages, links, features and classes; the split is ours."""
POINTS = 200
"""Losses kept of a curve."""
SETTINGS = {
    "seconds": "of training since the first epoch began, without evaluation; the first epoch, which warms up, counts "
    "as the median of the others",
    "losses": f"at most {POINTS} of each run's",
    "original": "published accuracy of GraphSAGE on the graph that the twin stands for; the twin's labels are made as "
    "hard, by the statistics that data/twins holds",
}  # fmt: skip


def graphs(
    session: Session, *twins: str, cpu: Sequence[str] = ("arxiv-like@0.1",)
) -> tuple[list[str], list[str]]:
    """Graphs to train on, the twins and the real one, and a line on each that is not on this machine.

    Raises:
        DatasetNotFoundError, DownloadError: the user has chosen it, and it is not here.
    """
    found, notes = [], []
    for name in common.names(session, *twins, REAL, cpu=(*cpu, REAL)):
        try:
            common.graph(session, name, features=True)
        except (DatasetNotFoundError, DownloadError) as error:
            if session.chosen:
                raise
            notes.append(f"{name} is left out: {str(error).splitlines()[0]}")
            session.say(notes[-1])
            continue
        found.append(name)
    return found, notes


UNTIMED = {key: text for key, text in SETTINGS.items() if key != "seconds"}
"""Settings of a figure over steps and epochs alone: its runs may share a GPU with other work."""


def curve(
    name: str, result: TrainResult, *, seed: int = 0, trainers: int = 1, is_timed: bool = True, **more: Any
) -> dict[str, Any]:
    """A row of one run that was evaluated after every epoch.

    Args:
        trainers: that train on mini-batches of their own: so many make one update.
        is_timed: with ``seconds`` and ``epoch_s``.
        more: of the row.

    Returns:
        ``accuracy``, ``epoch_loss`` (its mean), ``seconds`` and ``steps_by_epoch`` (so far) by epoch, ``losses`` by
        step, thinned, ``updates`` of an epoch, ``epoch_s`` (its median), ``best_accuracy``, ``final_accuracy``,
        ``final_loss`` (mean of the last tenth), ``original``: the published accuracy on what a twin stands for.
    """
    times = [epoch.total_us / 1e6 for epoch in result.epochs]
    times[0] = float(np.median(times[1:] or times))
    counts = [epoch.num_batches for epoch in result.epochs]
    ends = np.cumsum(counts)
    losses = np.asarray(result.losses, np.float64)
    spent = {"seconds": np.cumsum(times).tolist(), "epoch_s": float(np.median(times))} if is_timed else {}
    return {
        "graph": name, "model": result.model, "system": result.system, "seed": seed, "gpus": result.ranks,
        "epochs": len(times), "split": result.accuracy_split, "updates": -(-counts[-1] // trainers),
        "accuracy": [float(a) for a in result.accuracy], "steps_by_epoch": ends.tolist(),
        "epoch_loss": [float(part.mean()) for part in np.split(losses, ends[:-1])],
        "losses": thin(result.losses),
        "best_accuracy": float(max(result.accuracy)), "final_accuracy": float(result.accuracy[-1]),
        "final_loss": float(losses[-max(1, len(losses) // 10) :].mean()),
        **original(name, result.accuracy_split),
        **spent,
        **more,
    }  # fmt: skip


def thin(values: Sequence[float], points: int = POINTS) -> list[float]:
    """At most ``points`` of ``values``, evenly spread, the first and the last among them."""
    if len(values) <= points:
        return [float(v) for v in values]
    return [float(values[i]) for i in np.linspace(0, len(values) - 1, points).round().astype(int)]


def at_pace(row: dict[str, Any], epoch_s: float) -> dict[str, Any]:
    """A curve whose epochs take ``epoch_s`` each, as ``seconds`` and ``epoch_s`` then are."""
    return row | {"epoch_s": epoch_s, "seconds": [epoch_s * (i + 1) for i in range(row["epochs"])]}


def by_epoch(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A curve as one row an epoch."""
    lists = ("accuracy", "seconds", "steps_by_epoch", "epoch_loss")
    same: dict[str, Any] = {
        key: row[key]
        for key in ("graph", "model", "system", "seed", "gpus", "original", "original_split")
        if key in row
    }
    return [
        {**same, "epoch": i, "accuracy": a, "seconds": s, "steps": n, "loss": loss}
        for i, (a, s, n, loss) in enumerate(zip(*(row[name] for name in lists), strict=True))
    ]


def reached(row: dict[str, Any], target: float) -> int | None:
    """The first epoch, from 0, after which a curve has the accuracy; None if it never has."""
    return next((i for i, accuracy in enumerate(row["accuracy"]) if accuracy >= target), None)


def judged(rows: list[dict[str, Any]], base: str = "dgl") -> list[dict[str, Any]]:
    """Adds when each curve of a graph reaches the accuracy that all reach, and how much earlier than ``base``."""
    target = min(row["best_accuracy"] for row in rows)
    for row in rows:
        at = reached(row, target)
        assert at is not None  # its own best is no less
        row |= {
            "target": target, "epochs_to_target": at + 1, "updates_to_target": (at + 1) * row["updates"],
            "s_to_target": row["seconds"][at],
        }  # fmt: skip
    before = next(row["s_to_target"] for row in rows if row["system"] == base)
    for row in rows:
        row["speedup"] = before / row["s_to_target"]
    return rows
