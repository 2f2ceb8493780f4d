"""Cases of kernels that the others do not reach at their sizes, on one GPU: each by the least that launches it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gnnsample_lab as lab
from gnnsample_lab.bench.configurations import test_graph
from gnnsample_lab.device.arrays import offsets_of, to_host
from gnnsample_lab.sampling.neighbors.plan import (
    MANY_SEEDS,
    NUMBER_BLOCK,
    ONE_BLOCK_SEEDS,
    WANTED_EDGES,
    WANTED_ROWS,
)
from gnnsample_lab.sampling.weights import integer_weights

from . import inputs
from .inputs import Pair, seeds_of, small_graph, there


def hops(device: str) -> Iterator[Pair]:
    """What a hop has beside the draws of :func:`.program.neighbors`: many seeds, and picks as COO."""
    yield from _many_seeds(device)
    yield from _coo(device)


def _many_seeds(device: str) -> Iterator[Pair]:
    """More seeds than a block takes, with and without a count of its own, some of them more than once."""
    graph = test_graph("hubs")
    for count, fanouts in ((ONE_BLOCK_SEEDS + 200, [3, 2]), (MANY_SEEDS + NUMBER_BLOCK + 5, [1])):
        given = seeds_of(graph, count)
        twin = lab.NeighborSampler(graph, fanouts, device="cpu").sample(given)
        for strategy in ("bsp", "grid-barrier"):
            found = lab.NeighborSampler(graph, fanouts, strategy=strategy, device=device).sample(given)
            yield f"{strategy}, {count} seeds", twin.canonical().sha256(), found.canonical().sha256()


def _coo(device: str) -> Iterator[Pair]:
    """The hops of DGL's execution with each pick's vertex beside it."""
    graph, fanouts = test_graph("hubs"), (6, 3)
    batch = lab.NeighborSampler(graph, fanouts, device="cpu").sample(seeds_of(graph))
    for hop, drawn in enumerate(batch.picks):
        wanted = drawn.frontier.repeat(drawn.counts), drawn.neighbors, drawn.positions
        found = wanted if device == "cpu" else _drawn_as_coo(graph, fanouts, hop, drawn.frontier)
        for what, there_is, got in zip(("rows", "neighbours", "positions"), wanted, found, strict=True):
            yield f"{what} of hop {hop} as COO", there_is, got


def _drawn_as_coo(graph: Any, fanouts: tuple[int, ...], hop: int, frontier: np.ndarray) -> tuple[Any, ...]:
    import cupy

    sampler = lab.NeighborSampler(graph, list(fanouts), strategy="block-bsp", device="cuda")
    engine: Any = sampler._engine.per_hop
    work = engine.prepare(cupy.asarray(frontier), hop)
    ids = graph.indices.dtype
    rows, slots, neighbors, positions = (
        cupy.empty(work.total, dtype) for dtype in (ids, np.int32, ids, np.int64)
    )
    engine.launch_draw(work, hop, 0, (slots, neighbors, positions), coo_rows=rows)
    return rows, neighbors, positions


def columns(device: str) -> Iterator[Pair]:
    """What a mini-batch brings of its vertices and edges: rows of features, and narrow columns."""
    yield from _feature_rows(device)
    yield from _narrow(device)


def _feature_rows(device: str) -> Iterator[Pair]:
    """Rows that a mini-batch's launch brings, where their room was known and where it was not; rows by numbers."""
    graph = copy.copy(test_graph("hubs"))
    feat = np.random.default_rng(5).standard_normal((graph.num_nodes, 33)).astype(np.float32)
    graph._set("feat", feat)
    given = [seeds_of(graph, count) for count in (3, 60, 2, 200)]
    twin = lab.NeighborSampler(graph, [5, 4], device="cpu", expand="new")
    sampler = lab.NeighborSampler(graph.to(device), [5, 4], device=device, expand="new", strategy="captured")
    if device != "cpu":
        sampler._engine.wishes.bits = WANTED_ROWS | WANTED_EDGES
    brought = 0
    for turn in range(2):
        batches = [(chosen, sampler.sample(chosen, i)) for i, chosen in enumerate(given)]
        batches += list(zip(given, sampler.sample_many(given), strict=True))
        for i, (chosen, batch) in enumerate(batches):
            wanted = twin.sample(chosen, i % len(given))
            yield f"mini-batch {i} of turn {turn}", wanted.canonical().sha256(), batch.canonical().sha256()
            if device != "cpu" and batch.arena.holds_rows:
                arena, brought = batch.arena, brought + 1
                found = arena.view(arena.place.end, arena.levels[-1] * feat.shape[1], feat.dtype)
                yield (
                    f"its rows {i} of turn {turn}",
                    feat[batch.node_ids.get()],
                    found.reshape(-1, feat.shape[1]),
                )
    yield "a launch has brought rows", device != "cpu", brought > 0
    ids = np.random.default_rng(6).integers(0, graph.num_nodes, 500)
    for width in (32, 33):
        table = np.ascontiguousarray(feat[:, :width])
        yield f"rows of {width} numbers", table[ids], _taken(table, ids, device)


def _taken(table: np.ndarray, ids: np.ndarray, device: str) -> Any:
    if device == "cpu":
        return table[ids]
    import cupy

    from gnnsample_lab.device import rows

    source, chosen = cupy.asarray(table), cupy.asarray(ids)
    out = cupy.empty((len(ids), table.shape[1]), table.dtype)
    rows.launch(source.data.ptr, chosen.data.ptr, chosen.itemsize, len(ids), table.strides[0], out.data.ptr)
    return out


def _narrow(device: str) -> Iterator[Pair]:
    """Narrow columns of vertices and edges of several mini-batches at once, edges by position and by id."""
    graph, rng = test_graph("hubs"), np.random.default_rng(7)
    given = [seeds_of(graph, count) for count in (5, 60)]
    by_node = {"y": rng.integers(0, 9, graph.num_nodes), "mask": rng.random(graph.num_nodes) < 0.5}
    by_edge = {"weight": rng.random(graph.num_edges, np.float32)}
    for edge_ids in (None, rng.permutation(graph.num_edges)):
        options: dict[str, Any] = {"expand": "new", "strategy": "captured", "device": device}
        sampler = lab.NeighborSampler(graph, [4, 3], **options)
        if device != "cpu":
            sampler._engine.wishes.bits = WANTED_EDGES
        for turn in (0, 1):  # the sizes of the first tell how much room the next ones take
            batches = sampler.sample_many(given, 7 * turn)
        for i, (batch, found) in enumerate(
            zip(batches, _columns(batches, by_node, by_edge, edge_ids, device), strict=True)
        ):
            positions = to_host(batch.blocks[0].edge_positions)
            nodes = to_host(batch.node_ids)
            ids = positions if edge_ids is None else edge_ids[positions]
            wanted = {name: column[nodes] for name, column in by_node.items()}
            wanted |= {name: column[ids] for name, column in by_edge.items()}
            for name, column in wanted.items():
                yield f"column {name} of mini-batch {i}", column, column if found is None else found[name]


def _columns(batches: Any, by_node: Any, by_edge: Any, edge_ids: Any, device: str) -> list[Any]:
    if device == "cpu":
        return [None] * len(batches)
    from gnnsample_lab.minibatch.gpu.columns import Columns

    of_nodes, of_edges = (
        {name: inputs.tensor(column, device) for name, column in each.items()} for each in (by_node, by_edge)
    )
    taker = Columns(of_nodes, of_edges, None if edge_ids is None else there(edge_ids, device))
    found = []
    for batch, memory in zip(batches, taker.take(batches), strict=True):
        made = taker.tensors(batch, memory)
        found.append({name: column.cpu().numpy() for name, column in made.items()})
    return found


def reuse(device: str) -> Iterator[Pair]:
    """What a mini-batch takes over from the one before, vertices that come twice in both."""
    rng = np.random.default_rng(8)
    for dtype, size in ((np.int32, 700), (np.int64, 20)):
        before, ids = (rng.integers(0, 900, n).astype(dtype) for n in (size, 500))
        wanted, found = lab.match(before, ids), lab.match(*(there(a, device) for a in (before, ids)))
        for name in ("reuse", "load", "load_positions"):
            yield f"match, {name}, {size} before", getattr(wanted, name), getattr(found, name)


def samples(device: str) -> Iterator[Pair]:
    """What NextDoor's applications leave out at their sizes: edges of samples, lists combined, crowded vertices."""
    yield from _edges_of_samples(device)
    yield from _combined_lists(device)
    yield from _crowds(device)


def _edges_of_samples(device: str) -> Iterator[Pair]:
    """The edges between the layers of samples and inside them, and where given edges are."""
    from gnnsample_lab.sampling.engine.results import links

    graph = small_graph("multi")
    host = lab.run_app(graph, lab.apps.KHop((7, 5)), num_samples=12, device="cpu", seed=3)
    moved = host
    if device != "cpu":
        arrays = {"roots": there(host.roots, device), "steps": [there(step, device) for step in host.steps]}
        moved = dataclasses.replace(host, graph=graph.to(device), device=device, **arrays)
    for step in (0, 1):
        found = [links.adjacency(result, step, "row") for result in (host, moved)]
        for name in ("sample", "row", "column", "position", "weight"):
            yield f"edges of layer {step}, {name}", *(getattr(each, name) for each in found)
    induced = [links.induced(result) for result in (host, moved)]
    for name in ("vertices", "begins", "indptr", "indices", "positions"):
        yield f"edges inside, {name}", *(getattr(each, name) for each in induced)
    rng, ids = np.random.default_rng(9), graph.indices.dtype
    ends = [rng.integers(0, graph.num_nodes, 400).astype(ids) for _ in range(2)]
    wanted = links.locate(graph, *ends)
    yield "edges by their ends", wanted, links.locate(moved.graph, *(there(end, device) for end in ends))


def _combined_lists(device: str) -> Iterator[Pair]:
    """The lists of each sample's transits one after another, with sums of their weights, in every way."""
    graph = small_graph("hubs")
    transits = np.random.default_rng(10).integers(-1, 40, (30, 5)).astype(graph.indices.dtype)
    transits[3] = -1
    transits[4, 1] = 7  # the longest list
    prefix = integer_weights(graph.indptr, graph.edge_weight).prefix
    entries, sums = [], []
    for row in transits:
        places = [np.arange(*graph.indptr[v : v + 2]) for v in row if v >= 0]
        positions = np.concatenate([*places, np.empty(0, np.int64)])
        entries.append(graph.indices[positions])
        sums.append(offsets_of(prefix[positions + 1] - prefix[positions]))
    wanted = np.concatenate(entries), np.concatenate(sums).astype(np.uint64)
    for method in ("alone", "pairs", "tiles", "frontier", "message"):
        found = wanted if device == "cpu" else _combined(graph, prefix, transits, method)
        for what, there_is, got in zip(("entries", "sums"), wanted, found, strict=True):
            yield f"combined lists, {method}, {what}", there_is, got


def _combined(graph: Any, prefix: np.ndarray, transits: np.ndarray, method: str) -> tuple[Any, Any]:
    import cupy

    from gnnsample_lab.sampling.engine.grouping import index
    from gnnsample_lab.sampling.engine.steps.combine import Combiner

    given = cupy.asarray(transits)
    combiner = Combiner(graph.to("cuda"), cupy.asarray(prefix), given, True)
    grouped = None if method == "alone" else index.build(given.reshape(-1), graph.num_nodes)
    (wave,) = combiner.waves(1 << 30)
    out, sums = combiner.build(wave, method, grouped)
    return out[: wave.entries], sums


def _crowds(device: str) -> Iterator[Pair]:
    """Transits with more than a block's neighbours to sample: the third of NextDoor's classes, walks among them."""
    graph = small_graph("hubs")
    for name, app, count in (("k-hop", lab.apps.KHop((6,)), 200), ("DeepWalk", lab.apps.DeepWalk(3), 1100)):
        chosen = np.concatenate([np.full(count, 7), np.arange(40)])
        wanted = lab.run_app(graph, app, chosen, device="cpu", seed=7)
        for index in ("published", "radix", "counting"):
            found = lab.run_app(graph, app, chosen, device=device, seed=7, index=index)
            yield f"{name}, many samples of one vertex, {index}", True, found == wanted


def drawn_graphs(device: str) -> Iterator[Pair]:
    """What is drawn for a generated graph beside its edges, and its edges by ranges of destinations."""
    from gnnsample_lab.graph.catalogue import entry
    from gnnsample_lab.graph.edgewise import synthetic
    from gnnsample_lab.graph.edgewise.assemble import assemble
    from gnnsample_lab.graph.edgewise.plan import RmatPlan

    made = {d: synthetic._placed(d) for d in ("cpu", device)}
    plan = synthetic.twin_plan(entry("arxiv-like"), 0.02, 0)
    quadrants = RmatPlan(1 << 10, 8000, True, 3, (37000, 49000, 61000))
    for name, each in (("communities", plan), ("quadrants", quadrants)):
        counts = {
            d: backend.histogram(each, 5000, 2, (each.num_nodes >> 2) + 1) for d, backend in made.items()
        }
        yield f"edges by destination, {name}", counts["cpu"], counts[device]
        passes = {}
        for d, backend in made.items():
            backend.max_keys = 6000
            passes[d] = assemble(each, backend)
        for part, wanted, found in zip(("indptr", "indices"), passes["cpu"], passes[device], strict=True):
            yield f"a graph in passes, {name}, {part}", wanted, found
    rng = np.random.default_rng(11)
    labels, ends = rng.integers(0, 9, 600), [rng.integers(0, 1 << 20, 3000) for _ in range(2)]
    rows = {d: backend.features(there(labels, d), 9, 18, 5) for d, backend in made.items()}
    yield "features by class", rows["cpu"], rows[device]
    weights = {
        d: backend.weights(*(there(end, d) for end in ends), 5, 1.0, 5.0) for d, backend in made.items()
    }
    yield "weights by pair", weights["cpu"], weights[device]


def long_sums(device: str) -> Iterator[Pair]:
    """More rows than the kernel for few takes, in several shapes; a hub's edges in pieces, by an inference's sums."""
    yield from _many_rows(device)
    graph, heads = test_graph("hubs"), 3
    n, rng = graph.num_nodes, np.random.default_rng(12)
    x, scores = rng.random((n, 24), np.float32), [rng.random((n, heads), np.float32) for _ in range(2)]
    found = {d: list(_summed(graph, x, scores, d)) for d in ("cpu", device)}
    for (what, wanted), (_, got) in zip(found["cpu"], found[device], strict=True):
        yield what, wanted, got


def _many_rows(device: str) -> Iterator[Pair]:
    """Sums of the register-tile kernel, which has whatever :mod:`.few_rows` does not take."""
    from gnnsample_lab.compute.aggregation import few_rows, register_tile
    from gnnsample_lab.compute.aggregation.csr import csr_of
    from gnnsample_lab.device import runtime

    rng, features, heads = np.random.default_rng(13), 24, 3
    rows = 100 if device == "cpu" else few_rows.ROWS_PER_SM * runtime.num_sms() + 9
    lengths = rng.integers(0, 4, rows)
    lengths[[5, rows - 1]] = 70, 200  # edges that a block shares
    indptr = offsets_of(lengths)
    edges, sources = int(indptr[-1]), rows + 500
    indices = rng.integers(0, sources, edges).astype(np.int32)
    src = np.arange(sources, dtype=np.int32)
    arrays = src, src[:rows], indptr, indices, np.arange(edges)
    x, weight, shares = (
        rng.random(shape, np.float32) for shape in ((sources, features), edges, (edges, heads))
    )
    block = lab.Block(*(there(array, device) for array in arrays))
    of_row = np.repeat(np.arange(rows), lengths)

    def summed(values: np.ndarray) -> np.ndarray:
        out = np.zeros((rows, features))
        np.add.at(out, of_row, values)
        return out.astype(np.float32)

    for what, each in (("weighted", weight), ("plain", np.ones_like(weight))):
        put = [there(array, device) for array in (x, each)]
        found = lab.aggregate(block, put[0], put[1] if what == "weighted" else None, "sum")
        yield f"sums of many rows, {what}", summed(x[indices] * each[:, None]), found
    by_head = summed(x[indices] * shares.repeat(features // heads, 1))
    direct = rng.random((edges, features), np.float32)
    got = [by_head, summed(direct)]
    wanted = list(got)
    if device != "cpu":
        csr, got = csr_of(block), [there(np.full_like(by_head, -1), device) for _ in wanted]
        head_size = features // heads
        register_tile.launch(csr, there(x, device), got[0], there(shares, device), head_size=head_size)
        register_tile.launch(csr, there(direct, device), got[1], direct=True)
    yield "sums of many rows, a share per head", wanted[0], got[0]
    yield "sums of many rows, a row per edge", wanted[1], got[1]


def _summed(graph: Any, x: np.ndarray, scores: list[np.ndarray], device: str) -> Iterator[tuple[str, Any]]:
    """Means over all vertices and over a range of them, by nothing, by weights, and by shares of heads."""
    from gnnsample_lab.compute.inference import sums
    from gnnsample_lab.compute.inference.messages import Columns

    arrays = graph.indptr, graph.indices, graph.edge_weight
    topology = sums.Topology(*(inputs.tensor(array, device) for array in arrays))
    rows, source, target = (inputs.tensor(array, device) for array in (x, *scores))
    heads, n = scores[0].shape[1], graph.num_nodes
    by_weight, by_share = sums.Scale(weighted=True), sums.Scale(source=source, target=target)
    one, several = Columns(1, 24, 24), Columns(heads, 8, 8)
    for begin, end in ((0, n), (5, n // 2)):
        for what, columns, scale in (
            ("plain", one, sums.Scale()), ("by weight", one, by_weight), ("by share", several, by_share),
        ):  # fmt: skip
            # Means: beside a hub's sum a wrong row of few edges would not be seen.
            made = sums.whole(topology, begin, end, rows, columns, scale, scale is not by_share)
            yield f"an inference's means, {what}, from {begin}", made.cpu().numpy()
            if scale is by_share:
                continue
            # A host has no half to begin with: what it sums at once is what both halves must come to.
            early = None
            if device != "cpu":
                early = sums.begun(topology, n // 2, rows, columns, scale, rows.new_empty((n, columns.width)))
            made = sums.whole(topology, begin, end, rows, columns, scale, True, early=early)
            yield f"an inference's means in two halves, {what}, from {begin}", made.cpu().numpy()
        made = sums.per_head(topology, begin, end, rows, one, by_share)
        yield f"an inference's rows by heads, from {begin}", made.cpu().numpy()


def measures(device: str) -> Iterator[Pair]:
    """Kernels that are measured beside ours and compute something: replays of samples, draws by alias tables."""
    if device == "cpu":
        return
    import cupy

    from gnnsample_lab.bench.floors import floor
    from gnnsample_lab.bench.suites.gnnlab import weighted

    graph = test_graph("hubs").to(device)
    sampler = lab.NeighborSampler(graph, [5, 3], device=device, strategy="bsp")
    chosen = [np.unique(seeds_of(graph, count)) for count in (60, 200)]
    recorded = [floor.record(graph, (5, 3), given, i, sampler) for i, given in enumerate(chosen)]
    replay = floor.Replay(graph, recorded)
    ways: tuple[tuple[str, Callable[[int, int], None]], ...] = (
        ("in turn", replay.in_turn), ("by barrier", replay.by_barrier), ("together", replay.together),
    )  # fmt: skip
    for way, launch in ways:
        replay.forget()
        replay.prepare()
        launch(2, 2)
        yield f"a sample replayed {way}", None, replay.check(way)
    draws, k, batch = weighted.Draws(small_graph(features=8).to(device)), 5, 7
    frontier = np.arange(0, 700, 2)
    indptr, indices, prefix = draws.host
    for way in ("alias", "guide"):
        out, launched = draws.work(way, cupy.asarray(frontier), k, batch)
        launched()
        wanted = np.empty((frontier.size, k), indices.dtype)
        head = frontier, k, batch, draws.seed, indptr, indices
        if way == "alias":
            weighted.drawn_alias(*head, draws.keep, draws.alias, wanted)
        else:
            weighted.drawn_guided(*head, prefix, wanted)
        yield f"weighted draws by {way}", wanted, out


CASES: tuple[Callable[[str], Iterator[Pair]], ...] = (hops, columns, samples, long_sums, measures)
