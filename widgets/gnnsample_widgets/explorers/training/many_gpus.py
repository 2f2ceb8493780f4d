"""A graph in parts on several ranks: what travels by method, and what copies of hot lists save."""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import traitlets

import gnnsample_lab as lab
from gnnsample_lab import checks, figures, readable
from gnnsample_lab.device.runtime import resolve_device
from gnnsample_lab.readable import percent

from ...graphs import batch_options, draw_seeds
from ...shell.controls import Choice, Control, Slider
from ...shell.explorer import Explorer
from ...shell.recipe import Each, Panels, Recipe

MOST_RANKS = 4
BY = {"equal": "equal slices", "owner": "with their owners"}
FANOUTS = [1, 2, 5, 10, 15, 20, 30]
SWEPT = ("pull", "csp", "direct")
"""Methods whose volume is shown over the fanout and the degree."""
BUDGETS = [0, 1, 2, 5, 10, 20, 35, 50]
"""Percent of the bytes of all lists."""
COPYING = "direct-cached"
"""The method that keeps copies of hot lists."""
SWEPT_BATCHES = 4
"""Batches whose mean is shown there: one list of a hub is a good part of what `pull` moves for one of them."""
VISITED = 32
"""Further batches whose visits rank the lists."""
_warm: dict[str, Any] = {}


def warm_ranks(count: int, device: str = "auto") -> Any:
    """Ranks that all cells and explorers of this process share; they stay until :func:`close_ranks` or its end.

    Args:
        count: at least this many; use ``run(..., world=count)``.
        device: ``"cuda"`` takes GPUs where there are ``count`` of them, else CPU ranks; ``"auto"`` as everywhere.

    Returns:
        A ``lab.distributed.Ranks``.

    Raises:
        TypeError, ValueError, RuntimeError, ImportError: as ``lab.distributed.Ranks``.
    """
    from gnnsample_lab.distributed.ranks.backends import nccl_problem

    checks.whole("count", count, 1, MOST_RANKS)
    on_gpus = resolve_device(device) == "cuda" and nccl_problem(count) is None
    kind = "cuda" if on_gpus else "cpu"
    found = _warm.get(kind)
    if found is None or found.ranks < count:
        if found is not None:
            found.rest()  # a cell that has them by name may run again
        found = _warm[kind] = lab.distributed.Ranks(count, device=kind, timeout_s=300)
    return found


def close_ranks() -> None:
    """End the shared ranks; the next call that needs some starts new ones."""
    while _warm:
        _warm.popitem()[1].close()


def cutters() -> list[str]:
    """Ways to divide a graph that work here, the best first."""
    known = ["metis", "streaming", "random", "range"]
    return known if importlib.util.find_spec("pymetis") else known[1:]


def divide(host: Any, num_ranks: int, parts_by: str) -> Any:
    """A partition; chance and ranges of ids promise no even parts."""
    tolerance = float(num_ranks) if parts_by in ("random", "range") else 1.1
    return lab.distributed.partition(host, num_ranks, parts_by, tolerance=tolerance)


def save(host: Any, cut: Any) -> str:
    """The parts as files that the ranks open: in the cache folder, else in a folder of this process."""
    return _saved(host, cut, False)


def save_with_rows(host: Any, cut: Any) -> str:
    """The same with the rows of each part's features."""
    return _saved(host, cut, True)


def _saved(host: Any, cut: Any, features: bool) -> str:
    try:
        return str(lab.distributed.save_parts(host, cut, features=features))
    except PermissionError:
        folder = tempfile.mkdtemp(prefix="lab-parts-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return str(lab.distributed.save_parts(host, cut, folder, features=features))


def settings(fanout: int, hops: int, by: str, seed: int) -> dict[str, Any]:
    """What all tasks of a mini-batch share, as ``lab.distributed.traffic_of`` takes it."""
    return {"fanouts": [fanout] * hops, "by": by, "seed": seed}


def _unvisited(host: Any) -> np.ndarray:
    """What stands for the visits of vertices that no batch has visited, by the edges out of them, ``float64[N]``."""
    return np.minimum(np.bincount(host.indices, minlength=host.num_nodes) * 0.01, 1.0)


def count_visits(
    host: Any, cut: Any, num_ranks: int, batch_size: int, fanout: int, hops: int, by: str, seed: int
) -> np.ndarray:
    """How often ranks expand vertices in other batches, plus a little for each edge out of them, ``float64[P, N]``."""
    # Whom the last hop picks, nobody expands any more: what the hops before have reached is its frontier.
    sampler = lab.NeighborSampler(host, [fanout] * (hops - 1), device="cpu", seed=seed) if hops > 1 else None
    visits = np.tile(_unvisited(host), (num_ranks, 1))
    for i, rank, mine in _other_slices(host, cut, num_ranks, batch_size, by, seed):
        frontiers = [mine]
        if sampler is not None and len(mine):
            batch = sampler.sample(mine, batch_id=i)
            frontiers = [*(picks.frontier for picks in batch.picks), batch.node_ids]
        for frontier in frontiers:
            visits[rank, frontier] += 1  # a frontier's vertices are distinct
    return visits


def count_rows(
    host: Any, cut: Any, num_ranks: int, batch_size: int, fanout: int, hops: int, by: str, seed: int
) -> np.ndarray:
    """How often ranks load the row of each vertex in the batches of :func:`count_visits`, together, ``int64[N]``."""
    sampler = lab.NeighborSampler(host, [fanout] * hops, device="cpu", seed=seed)
    loads = np.zeros(host.num_nodes, dtype=np.int64)
    for i, _, mine in _other_slices(host, cut, num_ranks, batch_size, by, seed):
        if len(mine):
            loads[sampler.sample(mine, batch_id=i).node_ids] += 1
    return loads


def _other_slices(
    host: Any, cut: Any, num_ranks: int, batch_size: int, by: str, seed: int
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Number of the batch, rank and its seeds, for batches beside the one that is looked at."""
    for i in range(1, VISITED + 1):
        seeds = draw_seeds(host, batch_size, 1000 * i + seed)
        for rank in range(num_ranks):
            mine = (
                seeds[cut.owner[seeds] == rank] if by == "owner" else np.array_split(seeds, num_ranks)[rank]
            )
            yield i, rank, mine


def list_bytes(host: Any, room: float) -> int:
    """That many percent of the bytes of all in-neighbour lists."""
    return int(host.indices.nbytes * room / 100)


def by_method(
    device: str, num_ranks: int, folder: str, seeds: Any, tasks: list[dict[str, Any]]
) -> list[tuple[Any, ...]]:
    """The traffic of each rank, for each task."""
    ranks = warm_ranks(num_ranks, device)
    return list(
        zip(*ranks.run(lab.distributed.traffic_of, folder, seeds, tasks, world=num_ranks), strict=True)
    )


def count(
    device: str,
    folder: str,
    seeds: Any,
    num_ranks: int,
    fanout: int,
    hops: int,
    by: str,
    seed: int,
    method: str,
) -> Any:
    """Traffic of one mini-batch by one method, by rank."""
    task = {"method": method, **settings(fanout, hops, by, seed)}
    return by_method(device, num_ranks, folder, seeds, [task])[0]


def count_with_copies(
    host: Any, device: str, folder: str, seeds: Any, visits: Any, num_ranks: int, fanout: int, hops: int, by: str,
    seed: int, cache_percent: int, method: str,
) -> Any:  # fmt: skip
    """The same by a method that keeps copies of hot lists."""
    copies = {"cache_bytes": list_bytes(host, cache_percent), "visits": visits}
    task = {"method": method, **copies, **settings(fanout, hops, by, seed)}
    return by_method(device, num_ranks, folder, seeds, [task])[0]


def join(plain: dict[str, Any], copied: dict[str, Any]) -> dict[str, Any]:
    """Traffic by method and rank."""
    return {**plain, **copied}


def sweep(
    device: str, folder: str, seeds: Any, num_ranks: int, hops: int, by: str, seed: int
) -> dict[str, Any]:
    """The same over the fanout, the mean of some batches: bytes by method, and of the remote picks alone."""
    tasks = [
        {"method": name, "batches": SWEPT_BATCHES, **settings(fanout, hops, by, seed)}
        for fanout in FANOUTS
        for name in SWEPT
    ]
    return curves(by_method(device, num_ranks, folder, seeds, tasks))


def curves(found: list[Any]) -> dict[str, Any]:
    """Traffic of the swept methods, one after another for each point -> bytes a batch by method, and ``"ideal"``."""
    volumes = np.array([sum(t.volume for t in ranks) / SWEPT_BATCHES for ranks in found]).reshape(
        -1, len(SWEPT)
    )
    ideal = [sum(t.ideal_remote for t in ranks) / SWEPT_BATCHES for ranks in found[:: len(SWEPT)]]
    return {**dict(zip(SWEPT, volumes.T.tolist(), strict=True)), "ideal": ideal}


def expect_saved(host: Any, cut: Any, visits: Any, num_ranks: int, fanout: int) -> dict[str, list[float]]:
    """Share of the remote reads that copies save, by ranking and budget, as the visits say; all ranks together. None
    where no rank visits a list of another: seeds with their owners, and one hop."""
    degrees, width, unvisited = np.diff(host.indptr), host.indices.itemsize, _unvisited(host)
    if not any((visits[r] > unvisited)[cut.owner != r].any() for r in range(num_ranks)):
        return {ranking: [0.0] * len(BUDGETS) for ranking in ("reads", "degree")}
    shares: dict[str, list[float]] = {}
    for ranking in ("reads", "degree"):
        for room in BUDGETS:
            hot = [
                lab.distributed.hottest_lists(
                    visits[rank], degrees, fanout, list_bytes(host, room), owner=cut.owner, rank=rank,
                    ranking=ranking, entry_bytes=width,
                )
                for rank in range(num_ranks)
            ]  # fmt: skip
            remote = sum(h.reads_remote for h in hot)
            shares.setdefault(ranking, []).append(sum(h.reads_saved for h in hot) / max(remote, 1e-9))
    return shares


def count_saved(
    host: Any, device: str, folder: str, seeds: Any, visits: Any, num_ranks: int, fanout: int, hops: int, by: str,
    seed: int,
) -> list[float]:  # fmt: skip
    """Share of the bytes read from peers that copies save in this batch, by budget; records are replicated in all."""
    shared = {"method": "direct-cached", "visits": visits, **settings(fanout, hops, by, seed)}
    tasks = [{"cache_bytes": list_bytes(host, room), **shared} for room in BUDGETS]
    read = [sum(t.volume for t in ranks) for ranks in by_method(device, num_ranks, folder, seeds, tasks)]
    return [(read[0] - each) / max(read[0], 1) for each in read]


def describe(
    host: Any, device: str, num_ranks: int, parts_by: str, by: str, batch_size: int, fanout: int, hops: int
) -> str:
    """What was sampled where, for labels."""
    on_cpu = warm_ranks(num_ranks, device).backend == "gloo"
    return (
        f"{host.title} · counted, {'CPU: no NVLink' if on_cpu else 'on GPUs'} · {num_ranks} "
        f"{'rank' if num_ranks == 1 else 'ranks'}, parts by {parts_by} · "
        f"{batch_size:,} seeds ({BY[by]}) × {', '.join([str(fanout)] * hops)}"
    )


def by_kind(ranks: Any) -> dict[str, int]:
    """Bytes that came to all ranks, by kind."""
    found: dict[str, int] = {}
    for traffic in ranks:
        for kind, n in traffic.by_kind.items():
            found[kind] = found.get(kind, 0) + n
    return found


def draw_matrix(counted: dict[str, Any], label: str) -> Any:
    return figures.traffic_matrix(
        {name: np.stack([t.by_peer for t in ranks]) for name, ranks in counted.items()},
        host={name: [sum(t.host.values()) for t in ranks] for name, ranks in counted.items()},
        label=label,
    )


def draw_kinds(counted: dict[str, Any], methods: list[str], copying: list[str], label: str) -> Any:
    return figures.traffic_kinds(
        {name: by_kind(counted[name]) if name in counted else None for name in [*methods, *copying]},
        ideal=sum(t.ideal_remote for t in counted["pull"]),
        label=label,
    )


def draw_fanouts(swept: dict[str, Any], fanout: int, label: str) -> Any:
    # The axis has the fanouts.
    return figures.traffic_curves(
        FANOUTS, {name: swept[name] for name in SWEPT}, swept["ideal"], axis="fanout of each hop",
        marker=fanout, title=f"Volume by method, mean of {SWEPT_BATCHES} mini-batches",
        label=label.rpartition(" × ")[0],
    )  # fmt: skip


def draw_saved(expected: dict[str, Any], saved: list[float], cache_percent: int, label: str) -> Any:
    return figures.saved_reads(BUDGETS, expected, (BUDGETS, saved), marker=cache_percent, label=label)


class RanksExplorer(Explorer):
    """One mini-batch from a graph in parts: bytes by rank, method and kind, over the fanout, and what a cache saves.

    State: ``num_ranks``, ``parts_by`` (how the graph is divided), ``by`` (``"equal"``: every rank takes as many seeds;
    ``"owner"``: a rank takes those that it owns), ``batch_size``, ``hops``, ``fanout`` (of each hop), ``cache_percent``
    (room for copies on each rank, in percent of the bytes of all lists), ``seed``.

    Ranks are processes of their own; they stay warm between runs and are shared by all explorers
    (:func:`close_ranks` ends them). See :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "One sample, several ranks"
    from_split = True
    recipe: ClassVar[Recipe] = {
        "cut": divide,
        "folder": save,
        "seeds": draw_seeds,
        "visits": count_visits,
        "plain": Each(count, "method", of="methods"),
        "copied": Each(count_with_copies, "method", of="copying"),
        "counted": join,
        "swept": sweep,
        "expected": expect_saved,
        "saved": count_saved,
        "label": describe,
        "shown": Panels(matrix=draw_matrix, kinds=draw_kinds, fanouts=draw_fanouts, cache=draw_saved),
    }
    grows = ("kinds",)
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "Bytes by kind": ("kinds",),
        "Bytes by rank": ("matrix",),
        "Fanout and cache": ("fanouts", "cache"),
    }

    num_ranks = traitlets.Int(2).tag(state=True)
    parts_by = traitlets.Unicode("metis").tag(state=True)
    by = traitlets.Unicode("owner").tag(state=True)
    batch_size = traitlets.Int(512).tag(state=True)
    hops = traitlets.Int(2).tag(state=True)
    fanout = traitlets.Int(10).tag(state=True)
    cache_percent = traitlets.Int(5).tag(state=True)
    seed = traitlets.Int(0).tag(state=True)

    def prepare(self, state: dict[str, Any]) -> None:
        # No rank is without a vertex.
        self._most = min(MOST_RANKS, self.graph.num_nodes)
        if "num_ranks" not in state:
            self.num_ranks = min(self.num_ranks, self._most)
        warm_ranks(2, self.device)  # they start while the page is built
        self._sizes = batch_options(self.graph, 2048, 16)
        if "batch_size" not in state:
            self.batch_size = min(self.batch_size, max(self._sizes))
        if "parts_by" not in state:
            self.parts_by = cutters()[0]

    def build_controls(self) -> dict[str, Control]:
        controls: list[Control] = [
            Slider("num_ranks", "Ranks", self.num_ranks, min=1, max=self._most),
            Choice("parts_by", "Parts by", self.parts_by, cutters()),
            Choice("by", "Seeds of a rank", self.by, list(BY)),
            Slider("batch_size", "Batch size", self.batch_size, options=self._sizes, unit=" seeds"),
            Slider("hops", "Hops", self.hops, min=1, max=3),
            Slider("fanout", "Fanout", self.fanout, options=FANOUTS),
            Slider("cache_percent", "Room for copies", self.cache_percent, options=BUDGETS, unit=" %"),
            Slider("seed", "Random seed", self.seed, max=99),
        ]
        return {control.name: control for control in controls}

    def parameters(self, state: dict[str, Any]) -> dict[str, Any]:
        plain = [name for name in lab.distributed.methods() if name != COPYING]
        return {**state, "methods": plain, "copying": [COPYING]}

    def summary(self, made: dict[str, Any]) -> str:
        volume = {name: sum(t.volume for t in ranks) for name, ranks in made["counted"].items()}
        picks, remote = (
            sum(getattr(t, name) for t in made["counted"]["pull"]) for name in ("ideal", "ideal_remote")
        )
        said = (
            f"{made['parts_by']} cuts <b>{percent(made['cut'].cut_share, 1)}</b> of the edges; "
            f"<b>{percent(remote / max(picks, 1))}</b> of the picks come from lists of another rank."
        )
        if volume["pull"] == 0:
            return said + " Nothing travels between ranks."
        times = volume["csp"] / volume["pull"], volume["direct"] / volume["pull"]
        cached = volume["direct-cached"] / volume["pull"]
        return (
            f"{said} <b>pull</b> moves {readable.size(volume['pull'])}; <b>csp</b> {percent(times[0])} of it, "
            f"<b>direct</b> "
            f"{percent(times[1])}, <b>direct-cached</b> {percent(cached)}."
        )


def random_graph(num_nodes: int, degree: int, seed: int = 0) -> Any:
    """A graph whose vertices have ``degree`` in-neighbours each, drawn evenly from all.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    checks.whole("num_nodes", num_nodes, 1)
    checks.whole("degree", degree, 0)
    sources = np.random.default_rng(checks.seed(seed)).integers(0, num_nodes, num_nodes * degree)
    return lab.Graph.from_edges(
        sources, np.repeat(np.arange(num_nodes), degree), num_nodes, name=f"{degree} in-edges"
    )


def over_degrees(
    degrees: list[int], fanout: int, *, num_nodes: int = 20_000, batch_size: int = 512, device: str = "auto"
) -> dict[str, Any]:
    """Bytes of one mini-batch of two hops on two ranks by method, on random graphs of several degrees.

    Args:
        degrees: in-neighbours of every vertex, one graph each.
        fanout: of both hops.
        num_nodes, batch_size: of each graph, and of its mini-batch. device: as of :func:`warm_ranks`.

    Returns:
        Method -> bytes for each degree, for the swept methods and ``"ideal"``: the remote picks alone.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    found: list[Any] = []
    for degree in degrees:
        graph = random_graph(num_nodes, degree)
        seeds = draw_seeds(graph, batch_size, 0)
        tasks = [
            {"method": name, "batches": SWEPT_BATCHES, **settings(fanout, 2, "equal", 0)} for name in SWEPT
        ]
        with tempfile.TemporaryDirectory(prefix="lab-degrees-") as folder:
            lab.distributed.save_parts(graph, divide(graph, 2, "random"), folder, features=False)
            found += by_method(device, 2, folder, seeds, tasks)
    return curves(found)
