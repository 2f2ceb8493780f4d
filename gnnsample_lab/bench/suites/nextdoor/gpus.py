"""NextDoor's figure 10: sampling with the graph on every GPU and the samples divided among them, over one GPU.

As published (``index="published"``) and beside it ours (``"auto"``), each over itself on one GPU.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites.dsp import crew, running
from gnnsample_lab.device.arrays import to_host

from . import cases, runs

APPS = ("DeepWalk", "PPR", "node2vec", "k-hop", "Layer")
QUICK_APPS = ("DeepWalk", "k-hop")
INDEXES = ("published", "auto")
CHECKED = 4096
"""Samples of each GPU that are compared with those of one GPU."""
_kept: dict[str, Any] = {}
"""A rank's graph, by folder."""


def figure10(session: Session) -> dict[str, Any]:
    """The suite's function."""
    import gnnsample_lab as lab

    wanted = ("ppi-like",) if session.quick else ("ppi-like", "orkut-like")
    names = common.names(session, *wanted, cpu=("ppi-like@0.1",))
    pool, checked = crew.ranks(session), 0
    rows: list[dict[str, Any]] = []
    for name in names:
        folder = _folder(session, name)
        for case in QUICK_APPS if session.quick else APPS:
            study = runs.study(session, name, case)
            roots = study.roots
            alone: dict[str, float] = {}
            whole = lab.run_app(study.graph, cases.CASES[case].make(), roots, device=common.device()).steps
            worlds = sorted({1, *crew.worlds(), pool.ranks})
            for gpus, index in itertools.product(worlds, INDEXES):
                bounds = np.arange(gpus + 1) * len(roots) // gpus
                task = {"folder": folder, "app": case, "roots": roots, "bounds": bounds, "index": index}
                results = pool.run(sampled, task, world=gpus)
                for rank, result in enumerate(results):
                    first = slice(int(bounds[rank]), int(min(bounds[rank] + CHECKED, bounds[rank + 1])))
                    if result["digest"] != digest(step[first] for step in whole):
                        raise VerificationError(
                            f"{case} on {name}, {gpus} GPUs, index {index}: other samples than on one"
                        )
                    checked += first.stop - first.start
                slowest = crew.slowest(results)
                p10, ms, p90 = (slowest[name] / 1e3 for name in ("p10", "us", "p90"))
                over_one = alone.setdefault(index, ms) / ms
                rows.append({
                    "graph": name, "app": case, "index": index, "gpus": gpus, "num_samples": len(roots),
                    **crew.mean_over_ranks(results),
                    "steps": max(result["steps"] for result in results),
                    "vertices": sum(result["vertices"] for result in results), "ms": ms, "p10": p10, "p90": p90,
                    "over_one": over_one, "of_linear_percent": 100 * over_one / gpus,
                })  # fmt: skip
                session.say(f"{case} on {name}, {gpus} GPUs, index {index}: {ms:.3f} ms, x{over_one:.2f}")
            study.free()
            del whole
    notes = (
        []
        if crew.on_gpu()
        else ["On the CPU an index chooses nothing: the rows of both are the CPU walker's."]
    )
    return {
        "settings": {
            "device": crew.device(), "apps": cases.SETTING, "index": "published: NextDoor's; auto: ours",
            "ms": "time between two events around one call for a GPU's share of the samples, its index and the host's "
            "preparation included; the slowest GPU, all at once: median, p10 and p90 of its calls",
            "vertices": "drawn for the samples of all GPUs in a call: an edge of the sample each, roots not among them",
            "work": "rows, edges: root vertices of a GPU's samples in a call, and picks from their lists and onwards; "
            "means over the GPUs. Samples are no mini-batches: nobody loads a row for them",
            "graph": "all of it on every GPU; samples in equal shares, the same ones for any number of GPUs",
        },
        "verification": {"samples_equal_to_one_gpu": checked}, "graphs": cases.facts(session, names), "rows": rows,
        "notes": [*crew.notes(), *notes],
    }  # fmt: skip


def _folder(session: Session, name: str) -> str:
    """The graph with its weights as files: one part, which is the whole."""
    from gnnsample_lab.distributed import partition, save_parts

    def make() -> str:
        graph = cases.graph(session, name, "cpu")
        place = session.kept(("dsp", "folder"), partial(tempfile.TemporaryDirectory, prefix="lab-dsp-"))
        cut = partition(graph, 1, "random")
        return str(save_parts(graph, cut, Path(place.name) / f"nextdoor-{name}", features=False))

    return str(session.kept(("nextdoor files", name), make))


def digest(steps: Iterable[Any]) -> str:
    """A hash of samples, step by step, up to the last step that has a vertex."""
    arrays = [np.ascontiguousarray(to_host(step), dtype=np.int64) for step in steps]
    while arrays and not (arrays[-1] >= 0).any():
        arrays.pop()
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def sampled(rank: Any, task: dict[str, Any]) -> dict[str, Any]:
    """On a rank: its share of the samples.

    Returns:
        ``times`` of one call (10th percentile, median, 90th, us), ``steps`` and ``vertices`` that it draws (as
        ``edges``, too), ``rows``, its roots, and ``digest`` of the first samples.
    """
    import gnnsample_lab as lab

    device, folder = "cpu" if rank.device == "cpu" else "cuda", task["folder"]
    if folder not in _kept:
        _kept.clear()
        graph = running.whole_graph(folder)
        _kept[folder] = graph if device == "cpu" else graph.to(device)
    begin, end = (int(at) for at in task["bounds"][rank.index : rank.index + 2])
    roots = crew.on_device(rank, [task["roots"][begin:end]])[0]
    app = cases.CASES[task["app"]].make()

    def work() -> Any:
        return lab.run_app(_kept[folder], app, roots, first_sample=begin, device=device, index=task["index"])

    steps = work().steps
    found = digest(step[:CHECKED] for step in steps)
    drawn = [int((step >= 0).sum()) for step in steps]
    del steps
    rank.barrier()
    times = crew.event_times(rank, work)
    return {
        "times": times, "digest": found, "steps": sum(n > 0 for n in drawn), "vertices": sum(drawn),
        "rows": int(roots.size), "edges": sum(drawn),
    }  # fmt: skip
