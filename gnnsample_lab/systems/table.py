"""The table of systems: what each is composed of."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from gnnsample_lab.checks import shown


@dataclass(frozen=True)
class System:
    """One system as a composition of the library's parts.

    All of them train the same model on mini-batches of the same seeds, and with one ``pick`` for all on the same
    samples; they differ in how samples, features and aggregates are computed, and in what overlaps.

    Attributes:
        name: as ``lab.train`` takes it.
        about: one line.
        strategy: name in ``lab.strategies()``.
        pick: the draw: ``"floyd"``, ``"reservoir"`` (O(degree), the rule of DGL) or ``"fisher-yates"`` (GNNLab's).
        id_map: name in ``lab.id_maps()``.
        sample_device: ``"cuda"`` or ``"cpu"``.
        cache: hotness policy that fills the feature cache, or None without a cache.
        transfer: how rows that are not cached come to the GPU, a transfer of ``FeatureCache``: ``"staged"``, CPU
            threads gather them into page-locked memory and the link copies it (DGL, GNNLab and FastGL extract so), or
            ``"uva"``, a kernel reads them in page-locked memory.
        match: reuse rows of the mini-batch before: ``"always"``, ``"never"``, or ``"where rows are missing"``:
            only when the cache does not hold every row, since otherwise nothing can be saved.
        reorder: method of ``lab.reorder`` for a window of mini-batches, or None. Applied where ``match`` is.
        kernel: name in ``lab.aggregation_kernels()``.
        executor: what overlaps: a name of :data:`gnnsample_lab.pipeline.executors.EXECUTORS`.
        source: paper and section that describe it.
        topology: where the in-neighbour lists lie that are sampled from: ``"device"``, all of them on each device;
            ``"uva"``, in page-locked host memory, which the kernels read; ``"parts"``, on each rank's device those of
            its part. With ``"uva"`` and ``"parts"`` a mini-batch's sample is the same as with ``"device"``.
        method: with ``"uva"`` and ``"parts"``, how lists elsewhere are reached: a name of
            ``lab.distributed.methods()``. It replaces ``strategy`` and ``id_map``.
        placement: of cached rows on several ranks: ``"replicated"``, each caches the same hottest rows;
            ``"partitioned"``, each caches the hottest rows of the vertices of its part, and together they are one
            cache.
        transport: how rows come from the caches of other ranks: a transport of ``lab.distributed.FeatureCache``.
        partition: how vertices are divided among ranks: a method of ``lab.distributed.partition``.
        seeds: which seeds of a mini-batch a rank samples for: ``"equal"`` shares, or those of its part, ``"owner"``.
        coordinated: whether rank 0 decides in which order the workers of all ranks start their collectives (DSP's
            centralised communication coordination), where several have some.
        trees: whether each seed's sample is a tree of its own, drawn with replacement and without merging vertices, by
            the transit-parallel engine (NextDoor); such a mini-batch has the seeds of the other systems' and another
            sample.
        index: of ``trees``, how a GPU groups pairs of sample and transit: ``index`` of :func:`lab.run_app`. NextDoor's
            is ``"published"``; ``dataclasses.replace(system, index="auto")`` is ours, with the same samples. On a CPU
            it chooses nothing.
        captured: whether training steps are replayed as CUDA graphs (:func:`gnnsample_lab.captured_step`).
        queue: of ``strategy="persistent"``, who serves it: ``queue`` of :class:`~gnnsample_lab.NeighborSampler`.
        windows: where mini-batches that are sampled ahead, to be put in order, wait: on the ``"device"``, or in
            ``"host"`` memory, each being copied back while the one before it trains. That is one GPU's with the serial
            executor; several ranks put nothing in order and so sample no window ahead, another executor leaves windows
            on the device, and on a CPU all is host memory. Notes of a result say so.
    """

    name: str
    about: str
    strategy: str
    pick: str
    id_map: str
    sample_device: str
    cache: str | None
    transfer: str
    match: str
    reorder: str | None
    kernel: str
    executor: str
    source: str
    topology: str = "device"
    method: str = ""
    placement: str = "replicated"
    transport: str = "auto"
    partition: str = "random"
    seeds: str = "equal"
    coordinated: bool = False
    trees: bool = False
    index: str = "published"
    captured: bool = False
    windows: str = "device"
    queue: str = "teams"

    @property
    def has_parts(self) -> bool:
        """Whether the graph is divided among the ranks."""
        return self.topology != "device" or self.placement == "partitioned"

    @property
    def prefetch(self) -> bool:
        """Whether the next mini-batch is prepared while one trains."""
        return self.executor != "serial"


WINDOWS = ("device", "host")
MATCHES = ("never", "always", "where rows are missing")
TOPOLOGIES = ("device", "uva", "parts")
PLACEMENTS = ("replicated", "partitioned")

_ALL = (
    System(
        name="dgl",
        about="GPU sampling hop by hop, host gather into pinned memory, prefetching thread, cuSPARSE",
        strategy="block-bsp", pick="reservoir", id_map="insert-count-compact", sample_device="cuda",
        cache=None, transfer="staged", match="never", reorder=None, kernel="library", executor="thread",
        source="FastGL, section 6.1 (DGL)",
    ),
    System(
        name="pyg-cpu",
        about="CPU sampling and host gather in a thread beside training, cuSPARSE",
        strategy="block-bsp", pick="floyd", id_map="sort", sample_device="cpu",
        cache=None, transfer="staged", match="never", reorder=None, kernel="library", executor="thread",
        source="FastGL, section 6.1 (PyG)",
    ),
    System(
        name="gnnadvisor-style",
        about="the DGL configuration with GNNAdvisor's kernel, its groups made for each mini-batch; not renumbered",
        strategy="block-bsp", pick="reservoir", id_map="insert-count-compact", sample_device="cuda",
        cache=None, transfer="staged", match="never", reorder=None, kernel="gnnadvisor-style", executor="thread",
        source="FastGL, section 6.1 (GNNAdvisor)",
    ),
    System(
        name="tsota",
        about="all that was known before GNNLab on one GPU: its GPU sampling, and a cache by out-degree",
        strategy="block-bsp", pick="fisher-yates", id_map="versioned-hash", sample_device="cuda",
        cache="degree", transfer="staged", match="never", reorder=None, kernel="library", executor="serial",
        source="GNNLab, sections 3 and 7.1 (T_SOTA)",
    ),
    System(
        name="gnnlab",
        about="GNNLab on one GPU: Fisher-Yates, one hash for all hops, cache by pre-sampling (PreSC#1), CPU gather",
        strategy="block-bsp", pick="fisher-yates", id_map="versioned-hash", sample_device="cuda",
        cache="presample", transfer="staged", match="never", reorder=None, kernel="library", executor="serial",
        source="GNNLab, section 6; on one GPU as in section 7.9",
    ),
    System(
        name="fastgl",
        about="Fused-Map, Match-Reorder of windows that wait in host memory, cache, Memory-Aware aggregation",
        strategy="block-bsp", pick="reservoir", id_map="fused-map", sample_device="cuda",
        cache="presample", transfer="staged", match="always", reorder="greedy", kernel="memory-aware",
        executor="serial", windows="host",
        source="FastGL, sections 4.1 to 4.3 and 6.5",
    ),
    System(
        name="lab",
        about="one launch for several samples, cache in the memory left over, register tiles, all on streams",
        strategy="captured", pick="floyd", id_map="in-sampler", sample_device="cuda",
        cache="presample-shrunk", transfer="auto", match="where rows are missing", reorder="two-opt", kernel="auto",
        executor="streams", captured=True,
        source="this library",
    ),
    System(
        name="pgsampler",
        about="the DGL configuration with PGSampler's queue as published: one launch for all hops, and for local ids "
        "our map, which fills while tasks are drawn",
        strategy="persistent", pick="reservoir", id_map="in-sampler", sample_device="cuda",
        cache=None, transfer="staged", match="never", reorder=None, kernel="library", executor="thread",
        queue="blocks", source="PGSampler, section III",
    ),
    System(
        name="nextdoor",
        about="transit-parallel sampling as published, many mini-batches at a time, then training; features on device",
        strategy="captured", pick="floyd", id_map="in-sampler", sample_device="cuda",
        cache="degree", transfer="uva", match="never", reorder=None, kernel="library", executor="serial",
        source="NextDoor, sections 6 and 8.6 (table 5)", trees=True,
    ),
    System(
        name="dgl-uva",
        about="the kernels read topology and features in page-locked host memory over PCIe (UVA); no cache",
        strategy="captured", pick="reservoir", id_map="in-sampler", sample_device="cuda",
        cache=None, transfer="uva", match="never", reorder=None, kernel="library", executor="serial",
        source="DSP, section 7.1 (DGL-UVA)", topology="uva", method="uva", partition="range",
    ),
    System(
        name="quiver",
        about="UVA sampling from host memory, the hottest features by degree shared among GPUs that reach each other",
        strategy="captured", pick="reservoir", id_map="in-sampler", sample_device="cuda",
        cache="degree", transfer="uva", match="never", reorder=None, kernel="library", executor="serial",
        source="DSP, sections 1 and 7.1 (Quiver)", topology="uva", method="uva", placement="partitioned",
        transport="direct",
    ),
    System(
        name="dsp-seq",
        about="DSP without its pipeline: topology in parts, collective sampling, one partitioned cache by in-degree",
        strategy="captured", pick="reservoir", id_map="in-sampler", sample_device="cuda",
        cache="in-degree", transfer="uva", match="never", reorder=None, kernel="library", executor="serial",
        source="DSP, sections 3 to 5 (DSP-Seq)", topology="parts", method="csp", placement="partitioned",
        transport="all-to-all", partition="metis", seeds="owner",
    ),
    System(
        name="dsp",
        about="DSP: as dsp-seq, with a worker for each stage and one order of collectives on all GPUs",
        strategy="captured", pick="reservoir", id_map="in-sampler", sample_device="cuda",
        cache="in-degree", transfer="uva", match="never", reorder=None, kernel="library", executor="overlapped",
        source="DSP, sections 3 to 6", topology="parts", method="csp", placement="partitioned",
        transport="all-to-all", partition="metis", seeds="owner", coordinated=True,
    ),
)  # fmt: skip

ALIASES = {"gnnadvisor": "gnnadvisor-style"}
"""Names that systems had before, which are taken as well. GNNAdvisor renumbers the whole graph before it trains, which
mini-batches have no use for: their blocks have no stable order. What lacks that is not called by its name."""
SYSTEMS: dict[str, System] = {system.name: system for system in _ALL}


def listing() -> dict[str, str]:
    """Name -> one line."""
    return {name: system.about for name, system in SYSTEMS.items()}


def find(system: str | System, name: str = "system") -> System:
    """The system of that name, or of a former one; a :class:`System` of one's own passes through.

    Raises:
        LookupError: no such system.
    """
    if isinstance(system, System):
        return system
    found = SYSTEMS.get(ALIASES.get(system, system)) if isinstance(system, str) else None
    if found is None:
        raise LookupError(f"{name} must be one of {', '.join(map(repr, SYSTEMS))} (got {shown(system)})")
    return found


systems: Any = sys.modules[__package__ or "gnnsample_lab.systems"]
"""What ``lab.systems`` is: the package itself, which can be called (see its docstring)."""
