"""Stage times and epoch times that GNNLab printed, to feed the schedule model with and to hold it against.

Eight NVIDIA V100 of 16 GB, mini-batches of 8 000. Stage times are sums over an epoch on two GPUs (table 5; GNNLab: one
sampler, one trainer), so for eight GPUs they are what a machine without contention would need.
"""

from __future__ import annotations

from typing import Any

from gnnsample_lab import checks

from .allocation import num_samplers, trainer_time
from .simulate import simulate
from .times import StageTimes, stage_times

BATCH_SIZE = 8000
TRAINING_SET = {"PR": 197_000, "TW": 417_000, "PA": 1_200_000, "UK": 1_000_000}
"""Training vertices by graph (table 3): products, twitter, papers100M, uk-2006."""

GNNLAB_TABLE_1 = {
    "DGL": (4.91, 11.32, 4.00, 20.78),
    "DGL, GPU sampling": (1.21, 10.87, 3.97, 16.18),
    "T_SOTA": (2.93, 5.55, 4.00, 12.50),
    "T_SOTA, cache": (2.88, 1.73, 4.00, 8.62),
    "T_SOTA, GPU sampling": (0.70, 5.46, 4.01, 10.21),
    "T_SOTA, both": (0.70, 3.62, 4.00, 8.37),
}
"""System -> seconds an epoch of sampling, extraction, training, and in total: GCN, papers100M, one V100."""

GNNLAB_TABLE_4 = {
    ("GCN", "PR"): (11.91, 1.33, 0.22, 0.33, 2),
    ("GCN", "TW"): (12.15, 3.86, 1.80, 0.47, 2),
    ("GCN", "PA"): (14.82, 4.56, 2.46, 0.84, 2),
    ("GCN", "UK"): (15.04, None, None, 1.47, 2),
    ("GSG", "PR"): (8.17, 0.79, 0.07, 0.11, 4),
    ("GSG", "TW"): (8.18, 1.81, 0.35, 0.20, 2),
    ("GSG", "PA"): (9.68, 2.47, 0.85, 0.30, 2),
    ("GSG", "UK"): (9.86, None, 2.01, 0.61, 1),
    ("PSG", "PR"): (None, 0.94, 0.30, None, 1),
    ("PSG", "TW"): (None, 2.50, 0.98, 0.58, 1),
    ("PSG", "PA"): (None, 2.97, 1.65, 1.05, 1),
    ("PSG", "UK"): (None, None, None, 1.81, 1),
}
"""(model, graph) -> seconds of an epoch on eight GPUs: PyG, DGL, T_SOTA, GNNLab, and GNNLab's samplers.

None: not supported, out of memory, or (PinSAGE on products) not legible in the copy at hand. Decimal points that are
missing in that copy's column of PyG follow from the ratios in section 7.2.
"""

GNNLAB_TABLE_5 = {
    ("GCN", "PR"): {"DGL": (0.35, 2.81, 1.22), "T_SOTA": (0.30, 0.04, 1.18), "GNNLab": (0.39, 0.15, 1.18)},
    ("GCN", "TW"): {"DGL": (0.74, 9.44, 1.48), "T_SOTA": (0.29, 3.68, 1.53), "GNNLab": (0.37, 0.76, 1.51)},
    ("GCN", "PA"): {"DGL": (1.20, 10.70, 4.00), "T_SOTA": (0.79, 3.64, 4.00), "GNNLab": (0.96, 0.49, 3.82)},
    ("GCN", "UK"): {"GNNLab": (0.56, 3.06, 3.09)},
    ("GSG", "PR"): {"DGL": (0.13, 1.92, 0.23), "T_SOTA": (0.16, 0.03, 0.25), "GNNLab": (0.20, 0.08, 0.24)},
    ("GSG", "TW"): {"DGL": (0.38, 4.65, 0.44), "T_SOTA": (0.12, 0.62, 0.44), "GNNLab": (0.16, 0.41, 0.43)},
    ("GSG", "PA"): {"DGL": (0.56, 6.06, 1.25), "T_SOTA": (0.38, 1.42, 1.18), "GNNLab": (0.46, 0.28, 1.15)},
    ("GSG", "UK"): {"T_SOTA": (0.19, 4.49, 1.08), "GNNLab": (0.26, 1.39, 1.01)},
    ("PSG", "PR"): {"DGL": (0.40, 1.64, 1.75), "T_SOTA": (0.16, 0.03, 1.74), "GNNLab": (0.20, 0.08, 1.72)},
    ("PSG", "TW"): {"DGL": (0.72, 5.22, 2.59), "T_SOTA": (0.23, 1.12, 2.60), "GNNLab": (0.28, 0.51, 2.52)},
    ("PSG", "PA"): {"DGL": (1.86, 4.85, 5.78), "T_SOTA": (0.54, 1.68, 6.09), "GNNLab": (0.61, 0.33, 6.01)},
    ("PSG", "UK"): {"GNNLab": (0.65, 3.37, 7.00)},
}
"""(model, graph) -> system -> seconds an epoch of sampling (marking and the copy to the queue included), extraction
and training."""

GNNLAB_COPY_S = {
    ("GCN", "PR"): 0.09, ("GCN", "TW"): 0.08, ("GCN", "PA"): 0.18, ("GCN", "UK"): 0.14,
    ("GSG", "PR"): 0.04, ("GSG", "TW"): 0.03, ("GSG", "PA"): 0.08, ("GSG", "UK"): 0.06,
    ("PSG", "PR"): 0.04, ("PSG", "TW"): 0.05, ("PSG", "PA"): 0.09, ("PSG", "UK"): 0.13,
}  # fmt: skip
"""(model, graph) -> seconds an epoch of copying samples to the queue in host memory (table 5, column C)."""

GNNLAB_TABLE_6 = {
    "PR": (0.27, 0.85, 0.42),
    "TW": (2.65, 9.15, 0.70),
    "PA": (3.21, 10.73, 1.81),
    "UK": (5.32, 9.24, 1.14),
}
"""Graph -> seconds of loading the topology, filling the cache and pre-sampling, for GCN."""


def num_batches(graph: str) -> int:
    """Mini-batches of an epoch (tables 3 and section 7.1)."""
    return -(-TRAINING_SET[graph] // BATCH_SIZE)


def gnnlab_times(model: str = "GCN", graph: str = "PA", system: str = "GNNLab") -> StageTimes:
    """Stage times that GNNLab printed in table 5, the same for every mini-batch.

    A standby trainer of GNNLab extracts as T_SOTA does, whose GPUs keep topology and cache, too; where table 5 has no
    T_SOTA, as its own trainers.

    Args:
        model: ``"GCN"``, ``"GSG"`` (GraphSAGE) or ``"PSG"`` (PinSAGE).
        graph: ``"PR"`` (products), ``"TW"`` (twitter), ``"PA"`` (papers100M) or ``"UK"`` (uk-2006).
        system: ``"DGL"``, ``"T_SOTA"`` or ``"GNNLab"``.

    Raises:
        ValueError: another name, or a system that ran out of memory there.
    """
    checks.choice("model", model, ("GCN", "GSG", "PSG"))
    checks.choice("graph", graph, tuple(TRAINING_SET))
    systems = GNNLAB_TABLE_5[model, graph]
    checks.choice("system", system, tuple(systems))
    sample_s, extract_s, train_s = systems[system]
    standby = systems.get("T_SOTA") if system == "GNNLab" else None
    return stage_times(
        sample_s,
        extract_s,
        train_s,
        batches=num_batches(graph),
        standby_extract_s=standby[1] if standby else None,
        per="epoch",
        source=f"GNNLab, table 5 ({system}, {model}, {graph}; V100)",
    )


def against_gnnlab() -> list[dict[str, Any]]:
    """The rule and the model, fed with table 5, beside table 4: the factored design on eight GPUs.

    Returns:
        A row for each epoch of GNNLab that table 4 prints: ``model``, ``graph``, ``k`` (K of the rule), ``rule``
        and ``paper_samplers``, ``epoch_s`` (modelled, with switching and updates that do not wait) and ``paper_s``.
    """
    rows = []
    for (model, graph), (*_, paper_s, paper_samplers) in GNNLAB_TABLE_4.items():
        if paper_s is None:
            continue
        times = gnnlab_times(model, graph)
        sample_s, trainer_s = times.mean("sample"), trainer_time(times.mean("extract"), times.mean("train"))
        rule = num_samplers(8, sample_s, trainer_s, keep_trainer=True)
        run = simulate(times, "factored", gpus=8, samplers=rule, switching=True, staleness=None)
        rows.append(
            {
                "model": model,
                "graph": graph,
                "k": trainer_s / sample_s,
                "rule": rule,
                "paper_samplers": paper_samplers,
                "epoch_s": run.epoch_s,
                "paper_s": paper_s,
            }
        )
    return rows
