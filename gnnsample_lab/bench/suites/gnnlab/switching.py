"""Dynamic switching, and the factored design on one GPU: GNNLab's figure 17."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench.session import Session

from . import runs
from .runs import GPUS, Task


def figure17(session: Session) -> dict[str, Any]:
    """(a) one sampler and more and more trainers, with and without switching; (b) one GPU, by system."""
    runs.verify(session)
    names, rows = runs.graphs(session), list[dict[str, Any]]()
    model = runs.models(session, names[0])[-1]  # PinSAGE, where there is time for it
    for gpus in range(2, GPUS + 1):
        # Updates that do not wait for each other, as in the paper's section 7.8.
        pair = [
            runs.row(
                session,
                Task(names[0], model, "gnnlab", gpus, samplers=1, switching=switching, staleness=None),
            )
            for switching in (False, True)
        ]
        gain = 1 - pair[1]["epoch_s"] / pair[0]["epoch_s"]
        rows += [{"part": "a", **pair[0]}, {"part": "a", **pair[1], "gain": gain}]
    for name in names:
        for one in runs.models(session, name):
            found = [runs.row(session, Task(name, one, system)) for system in ("dgl", "tsota", "gnnlab")]
            runs.against(found)
            times = {row["system"]: row["epoch_s"] for row in found}
            found[-1]["over_tsota"] = times["tsota"] / times["gnnlab"]
            rows += [{"part": "b", **row} for row in found]
    return runs.record(
        session, names, rows,
        part_b="gnnlab stores the samples of an epoch in host memory, then trains; its cache is as large as T_SOTA's",
    )  # fmt: skip
