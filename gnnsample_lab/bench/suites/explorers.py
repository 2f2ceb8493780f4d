"""How long an explorer takes to answer a change, on any machine; a file of its own, since it reaches the widgets."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable, VerificationError
from gnnsample_lab.device import runtime
from gnnsample_lab.graph import load

_EXPLORER_CHANGES: dict[str, dict[str, list[Any]]] = {
    "SampleExplorer": {
        "seed": [1, 2, 3, 4, 5, 6],
        "fanout_1": [5, 6, 5, 4],
        "seed_vertex": [7, 70, 700],
    },
    "WorkloadExplorer": {
        "seed": [1, 2, 3, 4, 5, 6],
        "fanout_3": [5, 6, 7, 8],
        "strategy": ["bsp", "edge-bsp", "fused-static", "grid-barrier"],
    },
    "QueueExplorer": {"seed": [1, 2, 3, 4, 5, 6], "fetch_size": [1, 2, 5, 8], "fanout": [4, 6, 8, 10]},
    "IdMapExplorer": {"seed": [1, 2, 3, 4], "step": [3, 5, 9, 11], "load_percent": [60, 70, 80, 90]},
    "CacheExplorer": {
        "seed": [1, 2, 3, 4], "ratio_percent": [5, 20, 40, 50], "policy": ["random", "reverse-pagerank"],
        "sampler": ["2 hops: 25, 10", "3 hops, weighted", "PinSAGE walks"],
    },
    "MatchExplorer": {
        "seed": [1, 2, 3, 4], "cache_percent": [10, 20, 30], "method": ["two-opt", "exact"],
        "grouping": ["by label", "shuffled"],
    },
    "AggregationExplorer": {"seed": [1, 2, 3, 4], "num_features": [64, 256, 512], "layer": [2, 3]},
    "ThreadsExplorer": {"seed": [1, 2, 3, 4], "roots": [16, 64, 128], "fanout": [2, 6, 10]},
    "KernelExplorer": {"seed": [1, 2, 3, 4], "batch": [512, 2048], "fanout_2": [5, 15]},
    "IndexExplorer": {"seed": [1, 2, 3, 4], "batch": [512, 2048], "fanout_2": [5, 15]},
    "SecondOrderExplorer": {"seed": [1, 2, 3, 4], "q_percent": [10, 50, 400], "shown": [4, 5, 6]},
    "PipelineExplorer": {"gpus": [2, 3, 4, 6], "capacity": [2, 8, 16], "k_tenths": [10, 40, 60]},
    "RanksExplorer": {"seed": [1, 2, 3, 4], "fanout": [5, 15], "cache_percent": [10, 20]},
    "TrainingExplorer": {"seed": [1, 2, 3], "system": ["gnnlab", "lab"], "model": ["sage", "gin"]},
}  # fmt: skip


def explorers(session: Session) -> dict[str, Any]:
    """Time from a trait change to the finished figures, in this process, without a browser.

    Two explorers of a kind go through the same changes. What the first one launches may be new to the process:
    compiled, or loaded from disk. The second one remembers nothing of it, so that it samples and draws again.

    Raises:
        Unavailable: the widgets or what they need are not installed.
    """
    name = session.graphs("arxiv-like")[0]
    try:
        # By name: the library does not depend on its widgets, this suite only measures them where they are.
        widgets = importlib.import_module("gnnsample_widgets")
    except ImportError as error:
        raise Unavailable(f"suite 'explorers' needs gnnsample_widgets and plotly: {error}") from error
    device = runtime.resolve_device("auto")
    base, scale = scaled(name)
    graph = session.graph(name, device)
    rows, checked = [], 0
    for kind, changes in _EXPLORER_CHANGES.items():
        shown = load(base, scale=scale) if kind == "TrainingExplorer" else graph
        if session.quick:
            changes = {trait: values[:2] for trait, values in changes.items()}
        first, later = (
            _times(getattr(widgets, kind)(shown, device=device, raise_errors=True), changes) for _ in range(2)
        )
        for trait, times in later.items():
            checked += len(first[trait]) + len(times)
            rows.append({
                "graph": name, "explorer": kind, "trait": trait, "device": device,
                "median_ms": statistics.median(times), "worst_ms": max(times), "new_ms": max(first[trait]),
            })  # fmt: skip
            session.say(f"{kind}.{trait}: {rows[-1]['median_ms']:.0f} ms, {rows[-1]['new_ms']:.0f} at first")
    return {
        "settings": {
            "device": device, "what": "trait change to finished figures, of a second explorer of the kind",
            "new": "the longest of the first explorer's changes: kernels that were new to the process are compiled or "
            "loaded in it",
        },
        "verification": {"redraws_checked": checked}, "graphs": session.facts([name]), "rows": rows,
    }  # fmt: skip


def _times(explorer: Any, changes: Mapping[str, Sequence[Any]]) -> dict[str, list[float]]:
    """Milliseconds of each change, by trait; closes the explorer.

    Raises:
        VerificationError: a change did not redraw.
    """
    found: dict[str, list[float]] = {}
    try:
        for trait, values in changes.items():
            for value in values:
                runs = explorer.run_count
                began = time.perf_counter()
                setattr(explorer, trait, value)
                found.setdefault(trait, []).append((time.perf_counter() - began) * 1e3)
                if explorer.error or explorer.run_count == runs:
                    raise VerificationError(
                        f"{type(explorer).__name__}.{trait}={value!r} did not redraw: {explorer.error or 'no run'}"
                    )
    finally:
        explorer.close()
    return found
