"""Transit-parallel steps on the GPU: build the scheduling index, then call ``next`` from it (``transit.cu``).

``engine.parallelism`` selects the kernels: NextDoor's three kernels for three classes of transits (``"transit"``), its
baseline without load balancing (``"transit-vanilla"``), or the methods of Gunrock and Tigr (``"frontier"``,
``"message"``). With ``index="ranges"`` pairs are grouped by ranges of vertices only (``grouping/ranges.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnsample_lab.device import runtime
from gnnsample_lab.sampling.engine.grouping import classes, ranges
from gnnsample_lab.sampling.engine.grouping import index as indexing
from gnnsample_lab.sampling.engine.grouping.index import Index, IndexKnobs
from gnnsample_lab.sampling.engine.grouping.ranges import RangeKnobs
from gnnsample_lab.sampling.neighbors.plan import as_argument
from gnnsample_lab.sampling.neighbors.sizes import power_of_two

from . import published

if TYPE_CHECKING:
    from gnnsample_lab.sampling.engine.gpu import GpuEngine

_SHARED_BYTES = 48 * 1024

INDEX = np.dtype([(name, np.int64) for name in (
    "pairs", "transits", "begins", "totals", "lists", "capacity", "item_begins", "items",
    "pairs_per_item", "factor", "cached", "edge_ends",
)])  # fmt: skip
"""``Index`` of ``transit.cu``."""


@dataclass
class Knobs:
    """Launch shapes and thresholds; samples never depend on them.

    Attributes:
        factor: a list is copied to shared memory or registers where its length is at most this many times the number
            of draws from it; 0: never.
        held: entries of a list that each lane of the sub-warp kernel keeps in registers.
        block_threads: threads per block of the named kernels, at most 256.
        blocks_per_sm: most blocks per multiprocessor of the named kernels, which loop over their work.
        index: how the index is built.
        ranges: how pairs are grouped by ranges of vertices.
    """

    factor: int = 1
    held: int = 2
    block_threads: dict[str, int] = field(default_factory=lambda: {"transit_block": 64, "transit_grid": 256})
    blocks_per_sm: dict[str, int] = field(
        default_factory=lambda: {
            "transit_subwarp": 16,
            "transit_block": 32,
            "transit_grid": 8,
        }
    )
    index: IndexKnobs = indexing.KNOBS
    ranges: RangeKnobs = ranges.KNOBS


KNOBS = Knobs()


def launch(engine: GpuEngine, step: int, knobs: Knobs | None = None) -> dict[str, Any]:
    """Run step ``step`` of individual sampling from an index; ``engine.plan`` tells of the step. Nothing waits.

    Returns:
        What was done, for ``r.schedule``: ``kernel``, ``index`` (its kind), ``pairs``, and ``totals``, which
        :func:`settle` turns into counts once the run is over.
    """
    import cupy

    knobs = knobs or KNOBS
    way, shape = engine.parallelism, engine.shape[step]
    if way == "transit" and engine.index == "published":
        return published.step(engine, step)
    transits, size = engine.transits, shape.size
    record: dict[str, Any] = {"kernel": way, "index": engine.index, "pairs": int(transits.size)}
    if way == "transit" and engine.index in ("auto", "ranges") and ranges.serves(engine, size, knobs.ranges):
        return ranges.launch(engine, step, record, knobs.ranges)
    with engine.timing(record, "index_us"):
        built = indexing.build(
            transits, engine.graph.num_nodes, engine.index, engine.scratch, size=size, knobs=knobs.index
        )
        ends = (
            indexing.frontier_ends(built, engine.graph.indptr, engine.scratch) if way == "frontier" else None
        )
    record["index"] = built.kind
    record["totals"] = cupy.array(built.totals)  # a copy, because the next index overwrites them
    with engine.timing(record, "sample_us"):
        indexing.null_slots(transits, size, engine.out)
        for name, threads in _kernels(way, built, transits.size, size, knobs):
            _run(engine, name, threads, built, ends, size, knobs)
    return record


def settle(schedule: list[dict[str, Any]]) -> None:
    """Replace ``totals`` by counts: transits (``distinct``, and per class) and work ``items``; waits for the GPU."""
    host: dict[int, tuple[Any, np.ndarray]] = {}  # steps of a walk share an array
    for record in schedule:
        held, row = record.pop("classes", (None, 0))
        if held is not None:
            if id(held) not in host:
                host[id(held)] = held, held.get()
            counts = host[id(held)][1][row, classes.SUBWARP :]
            record.update(zip(("subwarp", "block", "grid", "items"), map(int, counts[:4]), strict=True))
            record["distinct"] = record["subwarp"] + record["block"] + record["grid"]
        totals = record.pop("totals", None)
        if totals is not None:
            record.update(
                zip(("distinct", "subwarp", "block", "grid", "items"), map(int, totals.get()), strict=True)
            )


def lanes_for(size: int, few: int) -> int:
    """Lanes that the largest transit of the sub-warp class keeps busy, as a power of two from 1 to 8."""
    threads = (few - 1) // size * -(-size // 4)
    return min(8, power_of_two(max(1, threads), 1))


def _kernels(way: str, built: Index, pairs: int, size: int, knobs: Knobs) -> list[tuple[str, int]]:
    """The kernels to run, each with an upper bound of the threads that it can use."""
    threads = pairs * -(-size // 4)
    if way != "transit":
        name = {
            "transit-vanilla": "transit_vanilla",
            "frontier": "transit_frontier",
            "message": "transit_message",
        }[way]
        return [(name, threads if way == "transit-vanilla" else 2**62)]
    names = []
    few, many = knobs.index.few, knobs.index.many
    if size < few:
        names.append(("transit_subwarp", threads * 8))
    if size <= many and pairs * size >= few:
        # Each transit of this class has at least `few` neighbours to sample, which bounds their number.
        names.append(("transit_block", pairs * size // few * knobs.block_threads["transit_block"]))
    if pairs * size > many:
        names.append(("transit_grid", built.items.size * knobs.block_threads["transit_grid"]))
    return names


def _run(
    engine: GpuEngine, name: str, threads: int, built: Index, ends: Any, size: int, knobs: Knobs
) -> None:
    block = knobs.block_threads.get(name, 256)
    id_bytes = engine.id_dtype.itemsize
    slots = min(size, 4)
    macros: dict[str, int | str] = {
        "PAIR_T": "int" if built.pairs.dtype.itemsize == 4 else "long", "SLOTS": slots,
    }  # fmt: skip
    if name == "transit_subwarp":
        macros |= {"LANES": lanes_for(size, knobs.index.few), "HELD": knobs.held}
    # Shared memory for the longest list that a block copies: `factor` times the number of its draws.
    item = built.pairs_per_item * size
    draws = {"transit_vanilla": block * slots, "transit_block": knobs.index.many, "transit_grid": item}
    cached = min(knobs.factor * draws.get(name, 0), _SHARED_BYTES // id_bytes)
    record = np.zeros(1, INDEX)
    arrays = {
        "pairs": built.pairs, "transits": built.transits, "begins": built.begins, "totals": built.totals,
        "lists": built.lists, "item_begins": built.item_begins, "items": built.items, "edge_ends": ends,
    }  # fmt: skip
    for key, array in arrays.items():
        record[key] = 0 if array is None else array.data.ptr
    record["capacity"] = built.lists.shape[1]
    record["pairs_per_item"], record["factor"], record["cached"] = built.pairs_per_item, knobs.factor, cached
    most = runtime.num_sms() * knobs.blocks_per_sm.get(name, 16)
    blocks = max(1, min(-(-threads // block), most))
    kernel = engine.kernel("steps/transit.cu", name, macros)
    kernel((blocks,), (block,), (engine.plan.argument(), as_argument(record)), shared_mem=cached * id_bytes)
