"""What the schedule model is fed with: seconds of each stage for each mini-batch, and what surrounds the stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gnnsample_lab import checks

STAGES = ("sample", "extract", "train")
MAX_BATCHES = 2**20
Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StageTimes:
    """Seconds of each stage for each mini-batch of an epoch, each as if it ran alone.

    Attributes:
        sample_s: float64[batches], sampling, relabelling and marking.
        extract_s: float64[batches], features to the GPU that trains.
        train_s: float64[batches], forward, backward, update.
        standby_extract_s: float64[batches], extraction on a GPU that keeps the topology, too, and so has a smaller
            cache (a standby trainer of GNNLab, and its single GPU).
        source: where the times come from, for labels.
    """

    sample_s: Seconds
    extract_s: Seconds
    train_s: Seconds
    standby_extract_s: Seconds
    source: str

    @property
    def batches(self) -> int:
        return len(self.sample_s)

    def mean(self, stage: str) -> float:
        """Mean seconds of ``"sample"``, ``"extract"``, ``"train"`` or ``"standby_extract"``."""
        return float(getattr(self, f"{stage}_s").mean())

    def __str__(self) -> str:
        stages = ", ".join(f"{stage} {1e3 * self.mean(stage):.3g}" for stage in STAGES)
        return f"{self.batches:,} mini-batches, {stages} ms each ({self.source})"


def stage_times(
    sample_s: Any,
    extract_s: Any,
    train_s: Any,
    *,
    batches: int | None = None,
    standby_extract_s: Any = None,
    per: str = "batch",
    spread: float = 0.0,
    seed: int = 0,
    source: str = "made up",
) -> StageTimes:
    """Stage times for the schedule model, from single numbers, recorded lists or a distribution.

    Args:
        sample_s, extract_s, train_s: seconds of each stage: a number, the same for all mini-batches, or a list with
            one for each.
        batches: mini-batches of the epoch. None: as many as the lists have. More or fewer than a list has: drawn from
            it, the stages of one mini-batch together.
        standby_extract_s: as ``extract_s``, on a standby trainer, whose cache is smaller; None: the same.
        per: ``"batch"``, or ``"epoch"`` for numbers that are sums over an epoch, as papers print them.
        spread: standard deviation over mean of a log-normal factor on every time, drawn for each stage and mini-batch;
            the mean stays.
        seed: of the draws.
        source: where the times come from, for labels.

    Raises:
        TypeError, ValueError: no numbers, a time that is negative, lists of different lengths, no number of
            mini-batches, or ``per="epoch"`` with lists.
    """
    given = {"sample_s": sample_s, "extract_s": extract_s, "train_s": train_s}
    given["standby_extract_s"] = extract_s if standby_extract_s is None else standby_extract_s
    found = {name: _seconds(name, value) for name, value in given.items()}
    lengths = {name: len(value) for name, value in found.items() if value.ndim}
    count = checks.optional(checks.whole, "batches", batches, 1, MAX_BATCHES)
    checks.choice("per", per, ("batch", "epoch"))
    spread, seed = checks.real("spread", spread, 0, 10), checks.seed(seed)
    source = checks.text("source", source)
    if lengths and per == "epoch":
        raise ValueError(f"per must be 'batch' for lists (got 'epoch' with a list for {next(iter(lengths))})")
    for name, length in lengths.items():
        if length != next(iter(lengths.values())):
            raise ValueError(f"{name} must have as many entries as {next(iter(lengths))} (got {length})")
    listed = next(iter(lengths.values()), None)
    total = count if count is not None else listed
    if total is None:
        raise ValueError("batches must be given where all times are single numbers (got None)")
    rng = np.random.default_rng(seed)
    which = np.arange(total) if listed in (None, total) else rng.integers(0, listed or 1, total)
    divisor = total if per == "epoch" else 1
    columns = {}
    for name, value in found.items():
        column = value[which] if value.ndim else np.full(total, float(value) / divisor)
        columns[name] = column.astype(np.float64)
    if spread:
        sigma = float(np.sqrt(np.log1p(spread**2)))
        factors = {
            name: rng.lognormal(-(sigma**2) / 2, sigma, total)
            for name in ("sample_s", "extract_s", "train_s")
        }
        factors["standby_extract_s"] = factors["extract_s"]
        columns = {name: column * factors[name] for name, column in columns.items()}
    for column in columns.values():
        column.flags.writeable = False
    return StageTimes(**columns, source=source)


def _seconds(name: str, value: Any) -> Seconds:
    """A float64 array of no or one dimension."""
    if np.ndim(value) == 0 if isinstance(value, np.ndarray) else np.isscalar(value) or value is None:
        return np.asarray(checks.real(name, value, 0), dtype=np.float64)
    found = (
        checks.host_array(name, value)
        if hasattr(value, "dtype")
        else checks.items(name, value, "a number or a list")
    )
    if isinstance(found, list):
        found = np.array([checks.real(f"{name}[{i}]", entry, 0) for i, entry in enumerate(found)])
    found = checks.numbers(name, found).astype(np.float64)
    if found.ndim == 0:
        return np.asarray(checks.real(name, float(found), 0))
    if found.ndim != 1 or not 1 <= len(found) <= MAX_BATCHES:
        raise ValueError(
            f"{name} must be a number or hold 1 to {MAX_BATCHES} of them (got shape {found.shape})"
        )
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise ValueError(f"{name} must hold finite numbers of at least 0")
    return found


@dataclass(frozen=True)
class Costs:
    """What surrounds the stages. All zero by default: hand-overs are free and nothing slows anything else down.

    Args:
        put_s: seconds that a sampler spends on one mini-batch's samples after sampling, to hand them over: the copy to
            the queue in host memory (GNNLab, section 7.3, column C of table 5), or to the trainer's memory.
        get_s: seconds that a trainer spends to fetch them from host memory, before it extracts.
        update_s: seconds of exchanging gradients, for every step of every trainer, after its training.
        load_topology_s: seconds to load the topology into a GPU's memory (GNNLab, table 6): paid by AGL's batch mode in
            every epoch.
        load_cache_s: seconds to fill the feature cache, likewise.
        demand: stage -> share of a GPU that it takes, 0 to 1. Stages that run on a GPU at the same time slow down
            where their shares add up to more than 1. 0 for stages that are left out: overlap is free.
        host_share: share of the link to the host's memory that one extraction takes, 0 to 1; extractions of all GPUs
            share that link.

    Raises:
        TypeError, ValueError: a time that is negative, a share outside 0 to 1, an unknown stage.
    """

    put_s: float = 0.0
    get_s: float = 0.0
    update_s: float = 0.0
    load_topology_s: float = 0.0
    load_cache_s: float = 0.0
    demand: Mapping[str, float] = field(default_factory=dict)
    host_share: float = 0.0

    def __post_init__(self) -> None:
        for name in ("put_s", "get_s", "update_s", "load_topology_s", "load_cache_s"):
            object.__setattr__(self, name, checks.real(name, getattr(self, name), 0))
        object.__setattr__(self, "host_share", checks.share("host_share", self.host_share))
        if not isinstance(self.demand, Mapping):
            raise TypeError(f"demand must map stages to shares (got {checks.shown(self.demand)})")
        for stage in self.demand:
            checks.choice("a stage of demand", stage, STAGES)
        demand = {stage: checks.share(f"demand of {stage}", share) for stage, share in self.demand.items()}
        object.__setattr__(self, "demand", demand)

    def with_handover(self, path: str, num_bytes: float, gbps: float) -> Costs:
        """These costs with samples handed over through ``path``.

        Args:
            path: ``"host"``: copied to the queue in host memory and from there, as GNNLab does (section 5.2);
                ``"peer"``: written once, to the trainer's memory.
            num_bytes: bytes of one mini-batch's samples.
            gbps: 10^9 bytes a second of either copy.

        Raises:
            TypeError, ValueError: another path, or numbers out of range.
        """
        checks.choice("path", path, ("host", "peer"))
        copy_s = checks.real("num_bytes", num_bytes, 0) / (1e9 * checks.real("gbps", gbps, above=0))
        return dataclasses.replace(self, put_s=copy_s, get_s=copy_s if path == "host" else 0.0)
