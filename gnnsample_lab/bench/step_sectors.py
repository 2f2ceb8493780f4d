"""Sectors of the stepper's memory instructions, as counted by the twins and as measured by Nsight Compute.

``gnnsample-lab bench step-sectors`` measures on a GPU and records. It starts this module under ``ncu``, which sees one
launch for each different instruction: the same lanes at the same addresses within their arrays, as each line of the
stepper's runs has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.bench import profiler
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable
from gnnsample_lab.sampling.neighbors.plan import as_argument
from gnnsample_lab.steps.base import LANES
from gnnsample_lab.steps.runs import MECHANISMS, run

_OF = {
    "load": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "store": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
    "atomic": (
        "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
    ),
}
METRICS = tuple(name for names in _OF.values() for name in names)
KINDS = tuple(_OF)
RUNS: tuple[tuple[str, str | None], ...] = (
    *((name, None) for name in MECHANISMS),
    ("gather a transit's list", "read the list per lane"),
    ("grow a frontier", "mark without looking first"),
)
"""The runs whose instructions are measured: the kernels as shipped, and the broken lines that only cost."""
_TIMEOUT_S = 500


@dataclass(frozen=True)
class Instruction:
    """A memory instruction of a recorded step.

    Attributes:
        mechanism, broken: the run in which it is met first.
        kind: "load", "store" or "atomic".
        array: its array.
        item_bytes: bytes of a word, 4 or 8.
        reach: bytes from the beginning of the array that each lane reaches to, -1 for lanes that take no part.
        counted: sectors by the rule of the twins.
    """

    mechanism: str
    broken: str | None
    kind: str
    array: str
    item_bytes: int
    reach: tuple[int, ...]
    counted: int


def instructions() -> list[Instruction]:
    """The different instructions on global memory of all :data:`RUNS`, in the order in which they are met."""
    found: dict[tuple[Any, ...], Instruction] = {}
    for mechanism, broken in RUNS:
        shown = run(mechanism, broken)
        for step in shown.steps:
            for access in step.accesses:
                array = shown.arrays[access.array]
                if array.shared:
                    continue
                reach = [-1] * LANES
                # A field of a structure begins within the first sector of its array.
                inside = array.base % 32
                for lane, cell in zip(access.lanes, access.cells, strict=True):
                    reach[lane] = inside + cell * array.stride
                made = Instruction(
                    mechanism,
                    broken,
                    access.kind,
                    array.name,
                    array.item_bytes,
                    tuple(reach),
                    len(access.sectors),
                )
                found.setdefault((made.kind, made.item_bytes, made.reach), made)
    return list(found.values())


def measure() -> tuple[list[dict[str, Any]] | None, str]:
    """A row for each of :func:`instructions`, counted and measured; None and the reason where ncu cannot tell."""
    printed, why = profiler.run(__spec__.name if __spec__ else __name__, [], METRICS, seconds=_TIMEOUT_S)
    if why:
        return None, why
    wanted = instructions()
    found = parse(printed)
    if len(found) != len(wanted):
        return (
            None,
            f"ncu saw {len(found)} of {len(wanted)} launches ({profiler.last_words(printed)})",
        )
    return rows(wanted, found), "measured by ncu"


def rows(wanted: list[Instruction], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Instructions beside what ncu says of their launches, in the same order."""
    return [
        {
            "mechanism": each.mechanism, "broken": each.broken, "kind": each.kind, "array": each.array,
            "item_bytes": each.item_bytes, "lanes": sum(at >= 0 for at in each.reach), "counted": each.counted,
            "measured": int(sum(launch[name] for name in _OF[each.kind])),
        }
        for each, launch in zip(wanted, found, strict=True)
    ]  # fmt: skip


def agreement(measured: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """By kind: instructions whose count is what was measured, and all of them."""
    return {
        kind: (
            sum(row["counted"] == row["measured"] for row in measured if row["kind"] == kind),
            sum(row["kind"] == kind for row in measured),
        )
        for kind in KINDS
    }


def parse(text: str) -> list[dict[str, Any]]:
    """The launches in their order, from ncu's CSV; without those that lack a metric."""
    return [launch for launch in profiler.launches(text, METRICS) if all(name in launch for name in METRICS)]


def launch_all() -> None:
    """What runs under ncu: each instruction once, after a first launch of each kernel that is not profiled."""
    import cupy

    from gnnsample_lab.device import kernels

    wanted = instructions()
    most = max(max(each.reach) for each in wanted) + 8
    memory = cupy.zeros(-(-most // 256) * 256, np.uint8)
    ready = [
        (
            kernels.load_module(
                "bench/step_sectors.cu", {"KIND": KINDS.index(each.kind), "BYTES": each.item_bytes}
            ).get_function("repeat"),
            as_argument(np.array(each.reach, np.int32).view(np.dtype([("at", np.int32, (LANES,))]))),
        )
        for each in wanted
    ]
    for profiled in (False, True):
        if profiled:
            cupy.cuda.runtime.profilerStart()
        for kernel, reach in ready:
            kernel((1,), (LANES,), (reach, memory))
        cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.profilerStop()


def sectors(session: Session) -> dict[str, Any]:
    """The suite ``step-sectors``: every different instruction of the twins beside what ncu counts.

    Raises:
        Unavailable: there is no GPU, or ncu cannot tell.
    """
    session.require_gpu("step-sectors")
    measured, origin = measure()
    if measured is None:
        raise Unavailable(origin)
    agreed = agreement(measured)
    return {
        "settings": {"origin": origin, "metrics": list(METRICS)},
        "verification": {f"{kind}s_equal_to_the_twins": agreed[kind][0] for kind in ("load", "store")},
        "graphs": {}, "rows": measured,
    }  # fmt: skip


if __name__ == "__main__":
    launch_all()
