"""The program that runs under compute-sanitizer: every family of kernels on small graphs, each result compared.

``python -m gnnsample_lab.bench.sanitizer.program [CASE ...]`` prints one JSON object: for each case how many results
equalled the CPU twin's, and how often each kernel was launched. ``bench sanitize`` starts it once without and once
under each tool.

Cases of whole samplers, caches and models are here; :mod:`.pieces` has kernels that these do not reach at their sizes,
:mod:`.ranks` those of graphs in parts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.sampling.neighbors.plan import TABLES
from gnnsample_lab.sampling.neighbors.strategies import QUEUE_STRATEGIES, STRATEGIES

from . import pieces, ranks
from .inputs import Pair, seeds_of, small_graph, there
from .launches import count_launches

MARK = "sanitized:"
"""Begins the line of the result, which compute-sanitizer's own lines stand around."""

# ---- cases -----------------------------------------------------------------------------------------------------------


def neighbors(device: str) -> Iterator[Pair]:
    """Every strategy with its tables, both picks, with and without weights, one mini-batch and several in a launch."""
    for name, rules in (
        ("hubs", ({"pick": "floyd"}, {"pick": "reservoir"}, {"weighted": True}, {"pick": "fisher-yates"})),
        (
            "multi",
            ({"replace": True}, {"weighted": True, "replace": True}, {"pick": "floyd", "expand": "new"}),
        ),
    ):
        graph = small_graph(name)
        for rule in rules:
            seeds = seeds_of(graph)
            options: dict[str, Any] = {"fanouts": [6, 3], "seed": 5, **rule}
            offered = ("block-bsp",) if rule.get("pick") == "fisher-yates" else tuple(STRATEGIES)
            twin = lab.NeighborSampler(graph, strategy=offered[0], device="cpu", **options)
            expected = twin.sample(seeds).canonical().sha256()
            for strategy in offered:
                if rule.get("expand") == "new" and strategy in QUEUE_STRATEGIES:
                    continue
                for table in _tables(strategy, device) if rule == {"pick": "floyd"} else (None,):
                    sampler = lab.NeighborSampler(graph, strategy=strategy, device=device, **options)
                    if table is not None:
                        _force(sampler, strategy, table)
                    found = sampler.sample(seeds).canonical().sha256()
                    yield f"{strategy} {table or ''} {rule} {name}", expected, found
    graph = small_graph()
    # With one hop no task comes late, so the published rule of completion loses none.
    once = [lab.NeighborSampler(graph, [4], device="cpu"),
            lab.NeighborSampler(graph, [4], strategy="persistent", completion="paper", device=device)]  # fmt: skip
    wanted, found = (sampler.sample(seeds_of(graph)).canonical().sha256() for sampler in once)
    yield "persistent, published completion", wanted, found
    hub: dict[str, Any] = {"fanouts": [6, 3], "pick": "reservoir"}
    wanted = lab.NeighborSampler(graph, device="cpu", **hub).sample(seeds_of(graph)).canonical().sha256()
    sharing: Any = ({"hub_limit": 40}, "shared hubs")
    for strategy, (knobs, what) in (
        ("block-bsp", sharing), ("turbo-bsp", sharing), ("bsp", sharing),
        ("persistent", ({"queue_teams": False, "num_blocks": 4}, "a block a task")),
    ):  # fmt: skip
        sampler = lab.NeighborSampler(graph, strategy=strategy, device=device, **hub)
        if device == "cuda":
            _force(sampler, strategy, None, **knobs)
        yield f"{strategy}, {what}", wanted, sampler.sample(seeds_of(graph)).canonical().sha256()
    chosen = [seeds_of(graph, n) for n in (5, 40)]
    for strategy in ("captured", "persistent-tile", "block-bsp"):
        expected = [
            lab.NeighborSampler(graph, [4, 3], device="cpu").sample(s, i) for i, s in enumerate(chosen)
        ]
        found = lab.NeighborSampler(
            graph, [4, 3], strategy=strategy, device=device, trace=strategy != "captured"
        )
        for i, wanted in enumerate(expected):
            yield (
                f"{strategy}, traced",
                wanted.canonical().sha256(),
                found.sample(chosen[i], i).canonical().sha256(),
            )
        many = lab.NeighborSampler(graph, [4, 3], strategy=strategy, device=device).sample_many(chosen)
        for wanted, each in zip(expected, many, strict=True):
            yield f"{strategy}, several in a call", wanted.canonical().sha256(), each.canonical().sha256()


def _tables(strategy: str, device: str) -> tuple[str | None, ...]:
    from gnnsample_lab.minibatch.gpu.per_hop import PER_HOP_STRATEGIES

    alone = device == "cpu" or strategy == "auto" or strategy in PER_HOP_STRATEGIES
    return (None,) if alone else tuple(TABLES)


def _force(sampler: Any, strategy: str, table: str | None, **knobs: Any) -> None:
    from gnnsample_lab.minibatch.gpu.run import GpuEngine
    from gnnsample_lab.sampling.neighbors.launch import Knobs

    chosen = Knobs(**knobs)
    sampler._engine = GpuEngine(
        sampler.graph, sampler.spec, sampler._weights, strategy, "exact", 5, False, None, table, chosen
    )


def id_maps(device: str) -> Iterator[Pair]:
    """Every ID map by itself and in a sampler, and the lengths of probes."""
    rng = np.random.default_rng(2)
    seeds, hops = (
        rng.choice(5000, 50, replace=False),
        [(rng.random(m) ** 2 * 5000).astype(np.int64) for m in (300, 2000)],
    )
    wanted = lab.relabel(seeds, hops, 5000, device="cpu")
    graph = small_graph()
    sample = lab.NeighborSampler(graph, [5, 4], device="cpu").sample(seeds_of(graph)).canonical().sha256()
    for method in lab.id_maps():
        if method != "in-sampler":
            found = lab.relabel(seeds, hops, 5000, method, device)
            yield f"relabel {method}", wanted.canonical(), found.canonical()
            sampler = lab.NeighborSampler(graph, [5, 4], strategy="block-bsp", device=device, id_map=method)
            yield f"block-bsp with {method}", sample, sampler.sample(seeds_of(graph)).canonical().sha256()
    # A word for each of so many vertices exceeds any L2 cache.
    found = lab.relabel(seeds, hops, 80_000_000, "level-bitmap", device)
    yield "relabel level-bitmap, many vertices", wanted.canonical(), found.canonical()
    for hashing in ("multiplicative", "modulo", "low-bits"):
        expected = lab.probe_statistics(hops[1], hashing, 0.7, "cpu")
        yield f"probes {hashing}", expected.mean, lab.probe_statistics(hops[1], hashing, 0.7, device).mean


def walks(device: str) -> Iterator[Pair]:
    """PinSAGE's walks, with and without restarts, and reservoir walks."""
    graph = small_graph("multi")
    for restart, ends in ((0.0, False), (0.5, False), (0.5, True)):
        made = {
            d: lab.PinSAGESampler(graph, 2, restart=restart, restart_ends=ends, device=d).sample(
                seeds_of(graph)
            )
            for d in ("cpu", device)
        }
        yield f"PinSAGE {restart} {ends}", made["cpu"].canonical().sha256(), made[device].canonical().sha256()
    graph = small_graph("hubs")
    for q in (1.0, 0.25):  # the edges' own weights, and weights that depend on the vertex before
        found = {d: lab.flow_walks(graph, np.arange(60), 6, q=q, device=d, seed=5) for d in ("cpu", device)}
        yield f"reservoir walks, q {q}", found["cpu"], found[device]


def ranking(device: str) -> Iterator[Pair]:
    """Hotness by every policy, footprints."""
    graph = small_graph(features=8)
    on = {d: graph if d == "cpu" else graph.to(d) for d in ("cpu", device)}
    samplers = {d: lab.NeighborSampler(on[d], [4, 3], device=d) for d in on}
    for policy in ("random", "degree", "presample", "presample-shrunk", "reverse-pagerank"):
        given = {d: {"sampler": samplers[d]} if policy.startswith("presample") else {} for d in on}
        made = {d: lab.hotness(on[d], policy, batch_size=64, **given[d]).score for d in on}
        yield f"hotness {policy}", made["cpu"], made[device]
    counted = {d: lab.footprint(samplers[d], batch_size=64).visits for d in on}
    yield "footprint", counted["cpu"], counted[device]


def extraction(device: str) -> Iterator[Pair]:
    """The feature cache by every way of transfer, Match with and without a cache."""
    from gnnsample_lab.features.caching.gather import ExtractKnobs

    graph = small_graph(features=20)
    hot = lab.hotness(graph, "degree")
    batches = [np.unique(seeds_of(graph, n)) for n in (300, 200, 250)]
    for transfer in ("uva", "staged"):
        for ratio in (0.0, 0.3, 1.0):
            cache = lab.FeatureCache(
                graph.feat, hot, ratio, device=device, transfer=transfer, knobs=ExtractKnobs()
            )
            for ids in batches:
                yield f"extract {transfer} {ratio}", graph.feat[ids], cache.extract(there(ids, device))[0]
            many = cache.extract_each([there(ids, device) for ids in batches])
            for ids, (x, _) in zip(batches, many, strict=True):
                yield f"extract many {transfer} {ratio}", graph.feat[ids], x
            matched = lab.MatchedFeatures(cache)
            for ids in batches:
                yield f"match {transfer} {ratio}", graph.feat[ids], matched.extract(there(ids, device))[0]
    wide = np.random.default_rng(3).standard_normal((graph.num_nodes, 36)).astype(np.float32)
    split = ExtractKnobs(pinning="copy", tail_bytes=32)  # the last 16 bytes of 144 lie in device memory
    cache = lab.FeatureCache(wide, hot, 0.3, device=device, transfer="uva", knobs=split)
    for ids in batches:
        yield "extract rows in two parts", wide[ids], cache.extract(there(ids, device))[0]
    yield from pieces.reuse(device)
    shared = {d: lab.overlaps([there(ids, d) for ids in batches]) for d in ("cpu", device)}
    yield "overlaps", shared["cpu"], shared[device]


def compute(device: str) -> Iterator[Pair]:
    """Every kernel of aggregation forward and backward, attention, a layer-wise inference, a captured step."""
    import torch

    from gnnsample_lab.compute.inference.infer import Inference

    graph = small_graph(features=24)
    samplers = {d: lab.NeighborSampler(graph, [5, 4], device=d) for d in ("cpu", device)}
    rng = np.random.default_rng(4)
    yield from _grown_sums(graph, device)
    # One block for both: local ids of two devices name the same vertices in another order.
    block = samplers["cpu"].sample(graph.splits["train"][:64]).blocks[0]
    arrays = (block.src, block.dst, block.indptr, block.indices, block.edge_positions)
    blocks = {d: lab.Block(*(there(array, d) for array in arrays)) for d in samplers}
    x, weight = rng.random((block.num_src, 24), np.float32), rng.random(block.num_edges, np.float32)

    def sums(d: str, kernel: str, reduce: str) -> list[Any]:
        made = torch.from_numpy(x).to(d).requires_grad_()
        given = torch.from_numpy(weight).to(d).requires_grad_()
        out = lab.aggregate(blocks[d], made, given, reduce, kernel)
        (out * out).sum().backward()
        return [out.detach().cpu(), made.grad.cpu(), given.grad.cpu()]

    for kernel in lab.aggregation_kernels():
        for reduce in ("sum", "mean"):
            for wanted, found in zip(sums("cpu", kernel, reduce), sums(device, kernel, reduce), strict=True):
                yield f"aggregate {kernel} {reduce}", wanted, found
    for reduce, fanouts in (("mean", [5, 4]), ("sum", [5, 40])):  # a narrow last hop and a wide one
        fused = {d: lab.FusedSampler(graph, fanouts, reduce=reduce, device=d) for d in samplers}
        # Sums of the third mini-batch come with the launch of the hops before, those of the last do not fit there.
        for number, size in enumerate((33, 33, 33, 64)):
            totals = {}
            for d, sampler in fused.items():
                batch = sampler.sample(graph.splits["train"][:size], number)
                totals[d] = to_host(batch.blocks[0].total)[np.argsort(to_host(batch.node_ids))]
            yield f"fused {reduce} {fanouts} {number}", totals["cpu"], totals[device]
    for name in ("gcn", "sage", "gin", "gat"):
        torch.manual_seed(0)
        model = lab.make_model(name, 24, 8, 5, num_layers=2)
        wanted = lab.infer(model, graph, device="cpu")
        yield f"infer {name}", wanted, lab.infer(model, graph, device=device)
        if device != "cpu":
            yield f"infer {name}, streamed", wanted, Inference(model, graph, device=device, stream=True).run()
        losses: dict[str, list[float]] = {}
        for d, sampler in samplers.items():
            torch.manual_seed(0)
            net = lab.make_model(name, 24, 8, 5, num_layers=2).to(d)
            step = lab.captured_step(net, torch.optim.SGD(net.parameters(), lr=0.05), sampler)
            losses[d] = [float(step(batch)) for batch in list(sampler.epoch(graph.splits["train"], 60))[:3]]
        yield f"captured step {name}", torch.tensor(losses["cpu"]), torch.tensor(losses[device])


def _grown_sums(graph: Any, device: str) -> Iterator[Pair]:
    """What an inference does where not even messages fit the device, and the order of vertices of large graphs."""
    import torch

    from gnnsample_lab.compute.inference.messages import Columns
    from gnnsample_lab.compute.inference.sums import Scale, Sums, Topology, by_community, folded

    n, found = graph.num_nodes, {}
    x = torch.from_numpy(np.random.default_rng(5).random((n, 24), np.float32))
    for d in ("cpu", device):
        topology = Topology(*(torch.from_numpy(np.asarray(a)).to(d) for a in (graph.indptr, graph.indices)))
        total = torch.zeros((n, 24), device=d)
        growing = Sums(topology, 0, n, total, Columns(1, 24, 24), Scale())
        for begin in range(0, n, n // 3 + 1):
            end = min(n, begin + n // 3 + 1)
            growing.add(begin, end, x[begin:end].to(d))
        found[d] = folded(topology, 0, n, total, True, None).cpu()
        if d != "cpu":
            turns = by_community(topology.indptr, topology.indices)
            yield "turns of vertices", torch.arange(n, dtype=torch.int32), turns.sort()[0].cpu()
    yield "sums by chunks", found["cpu"], found[device]


def applications(device: str) -> Iterator[Pair]:
    """NextDoor's applications in every way of sharing the GPU, and out of memory."""
    from gnnsample_lab.sampling.engine.run import PARALLELISMS

    graph = small_graph("hubs")
    apps = lab.apps
    chosen: dict[str, Any] = {
        "DeepWalk": apps.DeepWalk(6), "DeepWalk, uniform": apps.DeepWalk(6, weighted=False), "PPR": apps.PPR(),
        "node2vec": apps.Node2Vec(5), "k-hop": apps.KHop((6, 3)), "MultiRW": apps.MultiRW(8, 10),
        "Layer": apps.Layer(90, 40), "Layer, distinct": apps.Layer(90, 40, replace=False), "FastGCN": apps.FastGCN(2),
        "LADIES": apps.LADIES(2), "MVS": apps.MVS(), "ClusterGCN": apps.ClusterGCN(2, 10),
    }  # fmt: skip
    everywhere = ("DeepWalk", "k-hop", "Layer", "Layer, distinct")
    ways = [(way, "auto") for way in PARALLELISMS] + [
        ("transit", how) for how in ("published", "radix", "counting", "ranges")
    ]
    for name, app in chosen.items():
        count = 40 if name in ("k-hop", "PPR", "node2vec") or name.startswith("DeepWalk") else 3
        options: dict[str, Any] = {"num_samples": count, "seed": 7, "max_steps": 20}
        wanted = lab.run_app(graph, app, device="cpu", **options)
        for way, index in ways if name in everywhere else ways[:2]:
            if way in ("frontier", "message") and name != "k-hop":
                continue
            if index == "ranges" and name.startswith("Layer"):
                continue  # combined neighbourhoods are no lists of a vertex
            found = lab.run_app(graph, app, parallelism=way, device=device, index=index, **options)
            yield f"{name} {way} {index}", True, found == wanted
        if name in ("DeepWalk", "k-hop"):
            longest = graph.max_in_degree * 16 + 8  # with weights, the least that is allowed
            found = lab.run_app(graph, app, device=device, graph_bytes=longest, **options)
            yield f"{name}, streamed", True, found == wanted
            yield f"{name}, visits", wanted.visits(), found.visits()
    result = {
        d: lab.run_app(graph, chosen["k-hop"], num_samples=30, seed=7, device=d) for d in ("cpu", device)
    }
    made = {d: [each.canonical().sha256() for each in lab.minibatches(result[d], 10)] for d in result}
    yield "mini-batches of samples", made["cpu"], made[device]


def graphs(device: str) -> Iterator[Pair]:
    """Generated graphs, and a graph from an edge list, on both devices."""
    made = {
        d: lab.load("arxiv-like", scale=0.02, device=d, features=False, version=2) for d in ("cpu", device)
    }
    yield "arxiv-like version 2", made["cpu"].indices, made[device].indices
    made = {d: lab.rmat(10, 8, device=d) for d in ("cpu", device)}
    yield "rmat", made["cpu"].indices, made[device].indices
    yield from pieces.drawn_graphs(device)


CASES: dict[str, Callable[[str], Iterator[Pair]]] = {
    each.__name__: each
    for each in (
        neighbors,
        id_maps,
        walks,
        ranking,
        extraction,
        compute,
        applications,
        graphs,
        *pieces.CASES,
        *ranks.CASES,
    )
}

QUICK = ("neighbors", "id_maps")


# ---- the program -----------------------------------------------------------------------------------------------------


def equal(wanted: Any, found: Any) -> bool:
    """Whether two results are the same; floating point up to the order of additions."""
    if isinstance(wanted, (str, bool, list)) or not hasattr(wanted, "__len__"):
        return bool(wanted == found)
    a, b = (np.asarray(to_host(array)) for array in (wanted, found))
    if a.dtype.kind == "f" and a.size:
        return a.shape == b.shape and bool(np.abs(a - b).max() <= 1e-3 * max(1.0, float(np.abs(a).max())))
    return bool(np.array_equal(a, b))


def run(device: str, names: list[str] | None = None) -> dict[str, Any]:
    """Case -> ``equal``, ``different`` (what differed) and ``failed`` (the error that ended it, else None)."""
    found: dict[str, Any] = {}
    for name in names or list(CASES):
        result: dict[str, Any] = {"equal": 0, "different": [], "failed": None}
        try:
            for what, wanted, got in CASES[name](device):
                if equal(wanted, got):
                    result["equal"] += 1
                else:
                    result["different"].append(what)
        except Exception as error:  # what follows runs all the same, and the record says what did not
            result["failed"] = f"{type(error).__name__}: {error}"[:300]
        found[name] = result
    return found


def main() -> int:
    """Run all cases on the GPU, or those that are named."""
    counts = count_launches()
    cases = run("cuda", sys.argv[1:] or None)
    print(MARK + json.dumps({"cases": cases, "launches": dict(sorted(counts.items()))}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
