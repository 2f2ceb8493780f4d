"""How far walks are from what the GPU allows: the floor of their dependent reads, and ``next`` written in CUDA."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.floors import walk_floor
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.sampling import apps
from gnnsample_lab.sampling.walks.flow import flow_walks

from . import cases as settings
from . import runs

LENGTH = 100
CASES: dict[str, tuple[str, Any]] = {
    "DeepWalk, uniform": ("DeepWalk", lambda: apps.DeepWalk(LENGTH, weighted=False)),
    "DeepWalk": ("DeepWalk", lambda: apps.DeepWalk(LENGTH)),
    "PPR": ("PPR", apps.PPR),
    "node2vec": ("node2vec", apps.Node2Vec),
    "k-hop": ("k-hop", apps.KHop),
}
"""Name -> the case of :data:`.cases.CASES` and the application."""


FLOWS: dict[str, dict[str, Any]] = {
    "DeepWalk, uniform": {"weighted": False},
    "DeepWalk": {},
    "node2vec": {"p": 2.0, "q": 0.5},
}
"""Of :data:`CASES`, what ``lab.flow_walks`` draws from the same distributions: FlowWalker's rung."""
_CHECKED = 64


def flow_ms(study: runs.Study, options: dict[str, Any], what: str) -> dict[str, float]:
    """The spread of milliseconds of the same number of walks, each step a weighted reservoir over the whole list.

    Raises:
        VerificationError: the first walks are not the CPU's.
    """
    roots: Any = study.roots.reshape(-1)
    twin = flow_walks(study.host, roots[:_CHECKED], LENGTH, device="cpu", **options)
    if common.device() == "cuda":
        import cupy

        roots = cupy.asarray(roots)
    walk = functools.partial(flow_walks, study.graph, roots, LENGTH, device=common.device(), **options)
    if not np.array_equal(to_host(walk()[:_CHECKED]), twin):
        raise VerificationError(f"{what}: walks differ from the CPU's; nothing is timed")
    return runs.gpu_ms(lambda: walk)


def walks(session: Session) -> dict[str, Any]:
    """Times as in figure 7. The floor moves as many walkers as far and stores every vertex, but draws by a multiply."""
    wanted, rows = settings.names(session), []
    for name in wanted:
        rows += session.piece((name,), functools.partial(_of_graph, session, name))
    return runs.record(
        session, wanted, rows, {"results_equal_to_next_in_cuda": len(rows)},
        floor="walk_floor: two dependent reads a step by the same number of walkers, every vertex stored; of the "
        "weighted DeepWalk too, which also reads weights",
        flow="lab.flow_walks: a weighted reservoir over the whole list at each step, as FlowWalker draws; other walks "
        "of the same distribution",
    )  # fmt: skip


def _of_graph(session: Session, name: str) -> list[dict[str, Any]]:
    """Rows of a graph. Each is of a result that is the same as that of ``next`` in CUDA."""
    from . import native

    rows = []
    graph = settings.graph(session, name)
    floor: dict[str, Any] | None = None
    for label, (case, make) in CASES.items():
        study = runs.Study(session, name, case, make)
        ours = study.measure("transit")
        ready = functools.partial(study.ready, "transit", kernel_provider=native.provider(study.app, graph))
        study.verify(ready()(), f"{label} on {name}, next in CUDA")
        cuda = runs.gpu_ms(ready)
        row = {
            **study.row(), "app": label, "ms": ours["ms"], "native_ms": cuda["ms"],
            "spread": {"ms": timing.around(ours), "native_ms": timing.around(cuda)},
            "over_native": ours["ms"] / cuda["ms"], "steps": ours["steps"], "vertices": ours["vertices"],
        }  # fmt: skip
        if case == "DeepWalk":
            if floor is None:
                floor = walk_floor.walk_floor(
                    graph, [study.roots], LENGTH, store=True, sweep=not session.quick
                )
            row |= {
                "floor_ms": floor["us"] / 1e3, "over_floor": ours["ms"] * 1e3 / floor["us"],
                "floor_best": floor["best"], "floor_sweep_us": floor["sweep"],
            }  # fmt: skip
            least = timing.spread([us / 1e3 for us in floor["passes_us"]], "ms")
            row["spread"]["floor_ms"] = timing.around(least)
        if label in FLOWS:
            flow = flow_ms(study, FLOWS[label], f"{label} on {name}, FlowWalker's")
            row["flow_ms"], row["spread"]["flow_ms"] = flow["ms"], timing.around(flow)
            row["flow_over_ours"] = row["flow_ms"] / ours["ms"]
        rows.append(row)
        session.say(
            f"{name}, {label}: {ours['ms']:.2f} ms, {row['over_native']:.2f} x CUDA, floor {row.get('floor_ms')}"
        )
        study.free()
    timing.synchronize()
    return rows
