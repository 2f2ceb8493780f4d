"""What the explorers of notebook 03 must show for a state: layouts, loads and bytes counted by loops over threads."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import networkx as nx
import numpy as np
import plotly.graph_objects as go

import gnnsample_lab as lab
from gnnsample_lab import figures
from gnnsample_lab.sampling.explain import reads

KERNELS = ("sub-warp", "block", "grid")


def small() -> lab.Graph:
    edges = list(nx.barabasi_albert_graph(48, 4, seed=2).edges())
    return lab.Graph.from_edges(*zip(*edges), 48, undirected=True, is_synthetic=True)


def draw_roots(graph: Any, count: int, seed: int) -> np.ndarray:
    train = graph.splits.get("train")
    pool = np.arange(graph.num_nodes) if train is None or len(train) == 0 else np.asarray(train)
    parts, turn = [np.empty(0, dtype=np.int64)], 0
    while sum(map(len, parts)) < count:
        parts.append(np.random.default_rng((seed, turn)).permutation(pool))
        turn += 1
    return np.concatenate(parts)[:count].astype(np.int64)


def drawn(graph: Any, state: dict[str, Any], count: int, fanouts: list[int], length: int) -> Any:
    apps = {
        "k-hop": lambda: lab.apps.KHop(fanouts),
        "DeepWalk": lambda: lab.apps.DeepWalk(length),
        "node2vec": lambda: lab.apps.Node2Vec(length),
    }
    roots = draw_roots(graph, count, state["seed"])
    return lab.run_app(graph, apps[state["app"]](), roots, device="cpu", seed=state["seed"])


def warps_of(calls: Any, scheme: str, width: int) -> list[tuple[str, list[int]]]:
    """Kernel and calls of each warp; -1 for an idle lane."""
    groups: list[tuple[str, list[int]]] = []
    if scheme == "sample":
        groups = [("", [c if calls.transit[c] >= 0 else -1 for c in range(len(calls))])]
    else:
        of = defaultdict(list)
        for call, v in enumerate(calls.transit.tolist()):
            if v >= 0:
                of[v].append(call)
        groups = [("sub-warp", [c for v in sorted(of) if len(of[v]) < width for c in of[v]])]
        groups += [("block", of[v]) for v in sorted(of) if width <= len(of[v]) <= 1024]
        groups += [("grid", of[v]) for v in sorted(of) if len(of[v]) > 1024]
    return [
        (name, (group[at : at + width] + [-1] * width)[:width])
        for name, group in groups
        for at in range(0, len(group), width)
    ]


def count(calls: Any, warp: list[int], skip: Any = ()) -> tuple[int, int, int, int]:
    """Lists, sectors, reads and load instructions of one warp; reads at positions in ``skip`` left out."""
    mine = [c for c in warp if c >= 0]
    at = [i for c in mine for i in range(calls.begins[c], calls.begins[c + 1]) if i not in skip]
    return (
        len({int(calls.transit[c]) for c in mine}),
        len({(int(calls.instruction[i]), int(calls.address[i]) // 32) for i in at}),
        len(at),
        len({int(calls.instruction[i]) for i in at}),
    )


def staged(calls: Any, warps: list[tuple[str, list[int]]]) -> int:
    own = set()
    for c in range(len(calls)):
        for i in range(calls.begins[c], calls.begins[c + 1]):
            if calls.begin[c] <= calls.address[i] < calls.begin[c] + 4 * calls.degree[c]:
                own.add(i)
    total, draws = 0, Counter[int]()
    for name, warp in warps:
        total += count(calls, warp, own if name in ("block", "grid") else ())[1]
        if name in ("block", "grid"):
            draws.update(c for c in warp if c >= 0)
    for v in {int(calls.transit[c]) for c in draws}:
        here = [c for c in draws if calls.transit[c] == v]
        begin, length = int(calls.begin[here[0]]), int(calls.degree[here[0]])
        blocks = -(-len(here) // 1024)
        total += blocks * len({(begin + 4 * i) // 32 for i in range(length)})
    return total


def threads_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    chosen = graph if state["where"] == "the loaded one" else small()
    result = drawn(chosen, state, state["roots"], [state["fanout"]] * 2, 6)
    calls = reads.follow(result, state["step"] - 1)
    wanted = Counter(result.transits(state["step"] - 1).ravel().tolist())
    wanted.pop(-1, None)
    ranked = sorted((v for v in wanted if wanted[v] > 1), key=lambda v: (-wanted[v], v))[:10]
    found, lists, sectors, busy = {}, {}, {}, {}
    for scheme, name in (("sample", "sample-parallel"), ("transit", "transit-parallel")):
        warps = warps_of(calls, scheme, state["width"])
        counts = [count(calls, warp) for _, warp in warps]
        rows = sorted(set(np.linspace(0, len(warps) - 1, 16).round().astype(int).tolist())) if warps else []
        found[scheme] = figures.thread_map(
            np.array([[calls.transit[c] if c >= 0 else -1 for c in warps[i][1]] for i in rows]).reshape(
                -1, state["width"]
            ),
            {v: rank for rank, v in enumerate(ranked)},
            {
                "lists": [counts[i][0] for i in rows],
                "sectors": [counts[i][1] for i in rows],
                "at work": [
                    f"{100 * counts[i][2] / max(1, counts[i][3] * state['width']):.0f} %" for i in rows
                ],
            },
            scheme="",
            warps=rows,
            kernels=[warps[i][0] for i in rows] if scheme == "transit" else (),
        )
        lists[name] = sum(c[0] for c in counts) / len(counts) if counts else 0.0
        sectors[name] = sum(c[1] for c in counts)
        busy[name] = sum(c[2] for c in counts) / max(1, sum(c[3] for c in counts) * state["width"])
    sectors["lists in shared memory"] = staged(calls, warps_of(calls, "transit", state["width"]))
    sectors["unlimited cache"] = len({a // 32 for a in calls.address.tolist()})
    return {**found, "totals": figures.warp_totals(lists, sectors, busy)}


def grouped(transits: Any, size: int) -> dict[int, tuple[int, int, int, str]]:
    """Transit -> pairs, samples, draws, kernel."""
    pairs, samples = Counter[int](), defaultdict(set)
    for row, of_sample in enumerate(transits.tolist()):
        for v in of_sample:
            if v >= 0:
                pairs[v] += 1
                samples[v].add(row)
    kernel = {v: KERNELS[(n * size >= 32) + (n * size > 1024)] for v, n in pairs.items()}
    return {v: (pairs[v], len(samples[v]), pairs[v] * size, kernel[v]) for v in sorted(pairs)}


def by_kernel(load: dict[int, tuple[int, int, int, str]]) -> tuple[list[int], list[int]]:
    return (
        [sum(1 for row in load.values() if row[3] == name) for name in KERNELS],
        [sum(row[2] for row in load.values() if row[3] == name) for name in KERNELS],
    )


def shared(load: dict[int, tuple[int, int, int, str]], column: int) -> float:
    total = sum(row[2] for row in load.values())
    return sum(row[2] for row in load.values() if row[column] > 1) / total if total else 0.0


def sizes_for(graph: Any) -> list[int]:
    train = graph.splits.get("train")
    room = min(4096, graph.num_nodes if train is None or len(train) == 0 else len(train))
    return [2**k for k in range(13) if 2**k <= room]


def kernel_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    sizes, fanouts = sizes_for(graph), [state["fanout_1"], state["fanout_2"]]
    result = drawn(graph, state, state["batch"], fanouts, 4)
    steps = [grouped(result.transits(i), shape.size) for i, shape in enumerate(result.shape)]
    at = state["step"] - 1
    load = steps[at]
    many = drawn(graph, state, sizes[-1], fanouts, 4)
    swept = [grouped(many.transits(at)[:n], many.shape[at].size) for n in sizes]
    by = {"several pairs": 0, "several samples": 1}
    return {
        "histogram": figures.kernel_histogram(
            [row[2] for row in load.values()], [KERNELS.index(row[3]) for row in load.values()]
        ),
        "batches": figures.sharing_by_batch(
            sizes,
            [by_kernel(one)[1] for one in swept],
            {name: [shared(one, column) for one in swept] for name, column in by.items()},
            marked=state["batch"],
        ),
        "shares": figures.kernel_shares(
            [by_kernel(one) for one in steps],
            {name: [shared(one, column) for one in steps] for name, column in by.items()},
            marked=at,
        ),
    }


def index_figures(graph: Any, state: dict[str, Any]) -> dict[str, go.Figure]:
    """Without a GPU, and for what is recorded in the checkout."""
    from gnnsample_widgets.explorers.transit.index import recorded_figure

    result = drawn(graph, state, state["batch"], [state["fanout_1"], state["fanout_2"]], 4)
    n, passes = graph.num_nodes, 1
    while 256**passes <= n:
        passes += 1
    work: dict[str, dict[str, float]] = {}
    for step, shape in enumerate(result.shape):
        load = grouped(result.transits(step), shape.size)
        pairs, draws, distinct = sum(r[0] for r in load.values()), sum(r[2] for r in load.values()), len(load)
        work[f"step {step + 1}, sampling"] = {"lists read": 32 * draws, "vertices written": 4 * draws}
        work[f"step {step + 1}, radix sort"] = {
            # A pass: keys to count; then keys and pairs, in and out. The first pass need not read the pairs.
            "pairs sorted": max(0, passes * 20 * pairs - 4 * pairs),
            "counters": 16 * n + 4 * pairs + 4 * distinct,
            "transits found": 16 * distinct,
        }
        work[f"step {step + 1}, counting sort"] = {
            "pairs sorted": 20 * pairs,
            "counters": 16 * n + 12 * pairs,
            "transits found": 16 * distinct,
        }
    return {"work": figures.index_work(work), "share": recorded_figure(state["recorded"], state["method"])}


ORACLES = {
    "ThreadsExplorer": threads_figures,
    "KernelExplorer": kernel_figures,
    "IndexExplorer": index_figures,
}
