"""Sampling from a graph in parts: every method of the ladder, on 1, 2 and 4 ranks, against one GPU with all of it.

A row is one method, graph, partition and number of ranks. All ranks sample at the same time, each from vertices that it
owns; a pass begins at a barrier. Throughput is compared with one rank that holds the whole graph and samples alone, by
the fastest strategy, and both by wall time and by GPU time. A method is timed only after its samples were compared with
those of the whole graph.

The first graph has all methods, and copies of lists in several budgets; others have what a line through its points is
compared with. Further rows have no times but bytes, over fanouts on both sides of the lists' lengths.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab.bench.record import graph_facts, scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.device import splitmix
from gnnsample_lab.device.arrays import array_module, to_host
from gnnsample_lab.distributed.sampling.capacities import WARM_UP
from gnnsample_lab.graph import load
from gnnsample_lab.minibatch.sampler import NeighborSampler

from . import crew
from .on_ranks import on_device

WHOLE, REPLICATED = "one, whole graph", "each, whole graph"
TORCH = "csp, torch collectives"
"""``csp`` as it is where every exchange is a call of torch."""
SETTINGS = ((1024, 10, 3), (8192, 15, 3))
"""Seeds of a rank, fanout, hops."""
BUDGETS = (2.5, 5.0, 10.0, 25.0, 100.0)
"""Percent of the topology's bytes that a rank copies beside its part; with 100 all remote lists that are visited."""
OTHER_BUDGETS = (10.0,)
"""The same on graphs but the first."""
SAVED = 80.0
"""Percent of the remote reads that the copies of one further row save, in batches that did not rank the lists."""
SLOW = ("pull", "uva", "csp-async", TORCH)
"""Methods that are measured at the first setting alone, with replacement."""
READS = ("direct", "direct-cached", "uva", WHOLE, REPLICATED)
"""Methods whose kernels read lists where they are: no collective."""
FEW = ("csp", "csp-fixed", "direct", "direct-cached")
"""Methods of graphs but the first, and of draws without replacement."""
BYTES = (256, 2, (5, 20, 80, 160))
"""Seeds of a rank, hops and fanouts of the rows with bytes alone."""
QUICK_FANOUTS = (5, 80)
GRAPHS = ("rmat", "products-like@0.25", "papers100M-like@0.1")
BATCHES, VISITED, HELD = 8, 48, 16
"""Batches in rotation; further batches whose visits rank lists; and others that say how many lists save a share."""
TOGETHER, TOGETHER_CSP = 32, 8
"""Batches of a call of ``sample_many``; of methods with collectives, which sample them one after another."""
GAINED = 0.8
"""Where a call of many takes more than this share of single calls, `sample_many` tries once more, on either side."""
POOL_BYTES = 6 << 30
"""Of results that a GPU holds at once."""
PASSES, QUICK_PASSES, GPU_PASSES = 15, 9, 9
MOST_S = 2.0
"""Seconds of all passes of a row."""
_FIELDS = (
    "graph", "partition", "partition_s", "balance", "world", "method", "budget_percent", "saved_percent",
    "batch_size", "fanout", "hops", "replace", "seeds_of",
)  # fmt: skip
_kept: dict[Any, Any] = {}
"""What a rank keeps between calls: graphs, baselines' checksums, visits."""


def ladder(session: Session) -> dict[str, Any]:
    """The suite's function."""
    on_gpu = crew.on_gpu()
    worlds = crew.worlds()
    names = session.graphs(*(GRAPHS[:1] if session.quick else GRAPHS))
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    facts: dict[str, Any] = {}
    pool = crew.ranks(session)
    with tempfile.TemporaryDirectory(prefix="lab-ladder-") as place:
        for number, name in enumerate(names):
            graph = session.host_graph(name) if on_gpu else session.graph(name, "cpu")
            facts[name] = graph_facts(graph)
            for how in _partitions(session, name):
                try:
                    folders, loose = _saved(session, graph, how, worlds, Path(place) / f"{name}-{how}")
                except (ImportError, ValueError) as error:  # no METIS here, or a graph too large for it
                    notes.append(f"{name}, parts by {how}: {error}")
                    session.say(notes[-1])
                    continue
                notes += loose
                if not folders:
                    continue
                for task in _settings(session, name, how, graph, number == 0):
                    for some in _of_one_baseline(how, folders):
                        of = (
                            task[field] for field in ("batch_size", "fanout", "hops", "replace", "bytes_only")
                        )
                        rows += session.piece(
                            (name, how, *of, *some),
                            functools.partial(_measured_rows, session, pool, task, some),
                        )
    return {
        "settings": {
            "ranks": worlds[-1], "device": crew.device(), "batches": BATCHES,
            "us": "wall time of one mini-batch, batches one after another, all ranks at once; median of passes of the "
            "slowest rank, with its 10th and 90th percentile",
            "many_us": f"the same in calls of sample_many with {TOGETHER} batches ({TOGETHER_CSP} with collectives)",
            "gpu_us": "GPU time of one mini-batch with local ids, compact, all ranks at once; median of passes of the "
            "slowest rank, with its 10th and 90th percentile; gpu_what says what is timed",
            "x_one": "sum over ranks of (one rank with the whole graph, alone, by its fastest strategy, better of a "
            "measurement before all other rows and one behind them) / (rank), both one by one",
            "x_many": "the same, both by sample_many", "x_gpu": "the same, GPU time of both, taken alike",
            "x_best": "the same, wall time, each side by the faster of its two ways",
            "rows": "vertices of the first mini-batch of rank 0; edges: its picks",
            "passes": QUICK_PASSES if session.quick else PASSES, "seeds": SEEDS,
            "visits": f"of {VISITED} other batches of the same rank, with a little for each edge out of a vertex",
            "remote_degree": "mean in-degree of the vertices whose lists are remote, rank 0",
            "partition_s": "seconds that the partition took, on the machine that computed it", "balance": crew.BALANCE,
        },
        "verification": {"methods_equal_to_whole_graph": sum("error" not in row for row in rows)},
        "graphs": facts, "rows": rows, "notes": notes,
    }  # fmt: skip


SEEDS = (
    "vertices with in-neighbours that a rank owns. One GPU with the whole graph has the mini-batches of all ranks in "
    "turn, for each number of ranks (seeds_of); beside random parts, whose vertices are as any others, mini-batches of "
    "any vertices, once for all numbers of ranks"
)
"""What the record says of seeds."""


def _of_one_baseline(how: str, folders: dict[int, dict[str, Any]]) -> list[dict[int, dict[str, Any]]]:
    """Numbers of ranks whose rows are compared with one baseline: all of random parts, else each by itself."""
    return [folders] if how == "random" else [{world: about} for world, about in folders.items()]


def _measured_rows(
    session: Session, pool: Any, task: dict[str, Any], folders: dict[int, dict[str, Any]]
) -> list[dict[str, Any]]:
    """The rows of one setting with a baseline of their own, which is measured before and behind them."""
    rows = []
    for more in _tasks(task, folders):
        rows.append(_row(pool, task | more))
        session.say(_line(rows[-1]))
    if not task["bytes_only"]:
        again = _row(pool, task | _baseline(folders))
        session.say(f"again, {_line(again)}")
        _compare(rows, again)
    return rows


def _baseline(folders: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """One rank with the whole graph; the parts, the fewest there are, say whose seeds it has."""
    fewest = min(folders)
    return {"method": WHOLE, "world": 1, "folder": folders[fewest]["folder"], "seeds_of": fewest}


def _saved(
    session: Session, graph: Any, how: str, worlds: Sequence[int], place: Path
) -> tuple[dict[int, dict[str, Any]], list[str]]:
    """For each number of ranks what rows say of the parts: folder, seconds of the partition, balance; and notes."""
    from gnnsample_lab.distributed import save_parts
    from gnnsample_lab.distributed.parts.partition import evenest

    folders, notes = {}, []
    for world in worlds:
        if world == 1 and how != "random":
            continue  # one part is one part
        began = time.perf_counter()
        cut = evenest(graph, world, how, np.zeros(0, np.int64))  # a part's seeds are any of its vertices
        took = time.perf_counter() - began
        folder = str(save_parts(graph, cut, Path(f"{place}-{world}"), features=False))
        folders[world] = {"folder": folder, "partition_s": cut.seconds, "balance": cut.balance["edges"]}
        notes += crew.loosened(graph.name, cut)
        saving = time.perf_counter() - began - took
        session.say(f"{graph.name}, {how}, {world} parts: {took:.1f} s, as files {saving:.1f} s")
    return folders, notes


def _partitions(session: Session, name: str) -> tuple[str, ...]:
    # On R-MAT graphs METIS cuts hardly less than chance; the largest graph would take it minutes.
    return ("random", "metis") if name.startswith("products") and not session.quick else ("random",)


def _settings(session: Session, name: str, how: str, graph: Any, is_main: bool) -> Iterator[dict[str, Any]]:
    """What rows have in common."""
    quick = session.quick
    shared = {
        "graph": name, "partition": how, "is_main": is_main, "quick": quick,
        "passes": QUICK_PASSES if quick else PASSES, "bytes_only": False,
    }  # fmt: skip
    most = max(1, graph.num_nodes // 8)
    for seeds, fanout, hops in SETTINGS:
        is_first = (seeds, fanout, hops) == SETTINGS[0]
        for replace in (True,) if quick or not (is_main and is_first) else (True, False):
            yield shared | {
                "batch_size": min(seeds, most), "fanout": fanout, "hops": hops, "replace": replace,
                "is_first": is_first,
            }  # fmt: skip
    seeds, hops, fanouts = BYTES
    for fanout in () if not is_main else QUICK_FANOUTS if quick else fanouts:
        yield shared | {
            "batch_size": min(seeds, most), "fanout": fanout, "hops": hops, "replace": True, "is_first": False,
            "bytes_only": True,
        }  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    what = f"{row['graph']}, {row['partition']}, {row['world']} ranks, {row['batch_size']} x {row['fanout']}"
    what += f"{' with' if row['replace'] else ' without'} replacement, {row['method']}"
    if row.get("budget_percent") is not None:
        what += f" + {row['budget_percent']:.3g} %"
    if "error" in row:
        return f"{what}: {row['error'][:200]}"
    if "us" not in row:
        return f"{what}: {row['volume']:,} bytes"
    gpu = "" if row["gpu_us"] is None else f", GPU {row['gpu_us']:.1f} us"
    return f"{what}: {row['us']:.1f} us, {row['many_us']:.1f} us in sample_many{gpu}"


def _tasks(task: dict[str, Any], folders: dict[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What the rows of one setting measure, the baseline first; without peers there is nothing to fetch."""
    from gnnsample_lab import distributed

    worlds = sorted(folders)
    known: list[str] = []
    for method in distributed.methods():
        known += (
            (method, TORCH) if method == "csp" and crew.on_gpu() else (method,)
        )  # on CPUs torch carries all

    def at(world: int) -> dict[str, Any]:
        return {"world": world, **folders[world]}

    if task["bytes_only"]:
        for method in ("pull", "csp", "direct"):
            yield at(worlds[-1]) | {"method": method}
        return
    yield _baseline(folders)
    full = task["is_main"] and task["replace"]
    for world in worlds:
        is_last = world == worlds[-1]
        if world == 1 and not is_last:
            # What a method costs by itself is seen.
            names: tuple[str, ...] = (
                () if not full else ("direct",) if task["quick"] else ("uva", "csp", "direct")
            )
        else:
            names = tuple(known) if full and (world > 1 or is_last) else FEW
        for method in known:
            if method not in names or (method in SLOW and not (task["is_first"] and task["replace"])):
                continue
            if method == "direct-cached":
                budgets = BUDGETS if full and world > 1 else OTHER_BUDGETS if not task["is_main"] else ()
                for budget in budgets:
                    yield at(world) | {"method": method, "budget_percent": budget}
                yield at(world) | {"method": method, "saved_percent": SAVED}
            elif method == TORCH:
                yield at(world) | {"method": method, "way": "csp", "collectives": "torch"}
            else:
                yield at(world) | {"method": method}
        if world > 1:
            yield at(world) | {"method": REPLICATED}  # the last point of the curve over budgets


def _row(pool: Any, task: dict[str, Any]) -> dict[str, Any]:
    """One row; a method that fails, or draws another sample, has ``error`` in place of its numbers."""
    row = {name: task.get(name) for name in _FIELDS}
    try:
        results = pool.run(measured, task, world=task["world"])
    except Exception as error:  # the ranks have ended; the next call starts new ones
        text = str(error).strip().splitlines() or [type(error).__name__]
        return row | {"error": text[0]}
    if (errors := [result["error"] for result in results if "error" in result]) != []:
        return row | {"error": errors[0]}
    row |= results[0]["facts"]
    if task["bytes_only"]:
        return row
    slowest = max(results, key=lambda result: result["one"][1])
    slowest_many = max(results, key=lambda result: result["many"][1])
    has_gpu = all(result["gpu"] is not None for result in results)
    slowest_gpu = (
        max((r["gpu"] for r in results), key=lambda times: float(times[1])) if has_gpu else (None,) * 3
    )
    row |= {
        "p10": slowest["one"][0], "us": slowest["one"][1], "p90": slowest["one"][2],
        "many_p10": slowest_many["many"][0], "many_us": slowest_many["many"][1],
        "many_p90": slowest_many["many"][2], "one_by_rank": [r["one"][1] for r in results],
        "many_by_rank": [r["many"][1] for r in results],
        "gpu_p10": slowest_gpu[0], "gpu_us": slowest_gpu[1], "gpu_p90": slowest_gpu[2],
        "gpu_what": results[0]["gpu_what"], "gpu_by_rank": [r["gpu"][1] for r in results] if has_gpu else None,
    }  # fmt: skip
    return row


def _compare(rows: list[dict[str, Any]], again: dict[str, Any]) -> None:
    """Ratios of a setting's rows to its baseline, the first of them, which was measured again behind them."""
    bases = [row for row in (rows[0], again) if "us" in row]
    if not bases:
        return
    one, many = min(b["us"] for b in bases), min(b["many_us"] for b in bases)
    gpu = min(b["gpu_us"] for b in bases) if bases[0]["gpu_us"] is not None else None
    rows[0]["again"] = {
        name: again.get(name)
        for name in (
            "p10", "us", "p90", "many_p10", "many_us", "many_p90", "gpu_p10", "gpu_us", "gpu_p90",
        )
    }  # fmt: skip
    for row in rows[1:]:
        if "us" not in row:
            continue
        ones, manys = row["one_by_rank"], row["many_by_rank"]
        row["x_one"], row["x_many"] = sum(one / us for us in ones), sum(many / us for us in manys)
        row["x_best"] = sum(min(one, many) / min(pair) for pair in zip(ones, manys, strict=True))
        if gpu is not None and row["gpu_by_rank"] is not None:
            row["x_gpu"] = sum(gpu / us for us in row["gpu_by_rank"])


# ---- on the ranks -----------------------------------------------------------------------------------------------


def measured(rank: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Check and time one method on one rank.

    Returns:
        ``one``, ``many`` and ``gpu`` (10th percentile, median and 90th, us of a batch; no ``gpu`` on a CPU),
        ``gpu_what`` and ``facts``; ``facts`` alone with ``bytes_only``; or ``error`` where the method is not there for
        this kind of rank, or draws another sample.
    """
    graph = _graph(rank, task["graph"])
    if task["method"] == REPLICATED or task["method"] == WHOLE:
        whole = _Whole(rank, task, graph)
        return _timed(rank, task, whole, whole.facts())
    expected = _expected(rank, task, graph)
    try:
        way = _Parts(rank, task, graph)
    except RuntimeError as error:
        if "does not run on ranks" in str(error):  # on all alike, before any of them waits for another
            return {"error": str(error)}
        raise
    found = checksum(way.one(0), None)
    if _all(rank, found == expected):
        facts = way.facts()
        result = {"facts": facts} if task["bytes_only"] else _timed(rank, task, way, facts)
    else:
        text = f"its sample differs from the whole graph's, nothing was timed: {found}, not {expected}"
        result = {"error": text}
    way.sampler.close()  # not after an error: the other ranks would not come
    return result


def _timed(rank: Any, task: dict[str, Any], way: Any, facts: dict[str, Any]) -> dict[str, Any]:
    most, together = task["passes"], TOGETHER if task["method"] in READS else TOGETHER_CSP
    _fill_pool(rank)
    one = _passes(rank, way.one, 1, most)
    # `sample_many` tries how many to launch at once, and keeps what was the fastest then.
    warm, waves = (12 if together == TOGETHER else 2), getattr(way.engine(), "waves", None)
    many = _passes(rank, lambda i: way.many(together), together, most, warm)
    if waves is not None and not _all(rank, many[1] < GAINED * one[1]):
        facts["launched"] = {str(cap): str(found) for cap, found in waves.items()}
        waves.clear()
        again = _passes(rank, lambda i: way.many(together), together, most, warm)
        many = min(many, again, key=lambda times: times[1])
    if waves is not None:
        facts["launched"] = {str(cap): str(found) for cap, found in waves.items()}
    gpu, what = _gpu_us(rank, way, together)
    return {"one": one, "many": many, "gpu": gpu, "gpu_what": what, "facts": facts}


def _fill_pool(rank: Any) -> None:
    """Have CuPy's pool hold what results need: its first allocations would count among the first launches."""
    if rank.device != "cpu" and "pool" not in _kept:
        import cupy

        _kept["pool"] = True
        cupy.empty(POOL_BYTES, np.uint8)  # which goes back to the pool


def _gpu_us(rank: Any, way: Any, together: int) -> tuple[list[float] | None, str]:
    """GPU microseconds of a mini-batch (10th percentile, median, 90th), and what was timed."""
    if rank.device == "cpu":
        return None, "a CPU"
    from .gpu_time import FixedSpans, Replays, between_events

    engine = way.captured()
    if engine is not None:
        replays = Replays(engine, way.device_seeds)

        def once() -> float:
            return replays.us(4)

        what = "replays of whole mini-batches, captured, without the host"
    elif getattr(way.sampler.engine, "fixed", None) is not None:
        spans = FixedSpans(way.sampler.engine)

        def once() -> float:
            return spans.us(lambda: way.many(together), together)

        what = "events around the CUDA graph with its collectives, and around the kernel that follows the host's read"
    else:

        def once() -> float:
            return between_events(lambda: way.many(together)) / together

        what = "events around calls: the host's reads and launches are in it"
    times = []
    for _ in range(GPU_PASSES + 1):  # the first compiles
        crew.wait(rank)
        rank.barrier()
        times.append(once())
    return [float(value) for value in np.percentile(times[1:], [10, 50, 90])], what


def _passes(rank: Any, work: Callable[[int], Any], batches: int, most: int, warm: int = 6) -> list[float]:
    """Microseconds of a batch: 10th percentile, median, 90th percentile over passes, after some that warm up."""
    return [us / batches for us in crew.timed(rank, work, MOST_S, warm, most)]


def _all(rank: Any, value: bool) -> bool:
    return not crew.together(rank, int(not value))


def _graph(rank: Any, name: str) -> Any:
    if not _all(rank, name in _kept):  # another world may have loaded it on some ranks
        base, scale = scaled(name)
        device = "cpu" if rank.device == "cpu" else "cuda"
        with rank.zero_first():
            if name not in _kept:
                _kept.clear()
                _kept[name] = load(base, scale=scale, device=device, features=False)
    return _kept[name]


def _parts_of(task: dict[str, Any]) -> tuple[Any, ...]:
    """What says which rank owns which vertex, for keys of what is kept: seeds, and all that follows from them."""
    from gnnsample_lab.distributed import open_partition

    return task["graph"], task["partition"], open_partition(task["folder"]).num_parts


def _seeds(owner: int, task: dict[str, Any], first: int, count: int) -> list[np.ndarray]:
    """Seeds of some batches of a rank: distinct vertices with in-neighbours that it owns, ``int64``."""
    from gnnsample_lab.distributed import open_partition

    key = (*_parts_of(task), "candidates", owner)
    if key not in _kept:
        degrees = np.diff(to_host(_kept[task["graph"]].indptr))
        is_mine = np.asarray(open_partition(task["folder"]).owner) == owner
        _kept[key] = np.flatnonzero((degrees > 0) & is_mine)
    found = []
    for i in range(first, first + count):
        rng = np.random.Generator(np.random.PCG64([task["batch_size"], owner, i]))
        found.append(
            rng.choice(_kept[key], min(task["batch_size"], len(_kept[key])), replace=False, shuffle=False)
        )
    return found


def _seeds_of_all(task: dict[str, Any]) -> list[np.ndarray]:
    """The batches in rotation of every rank that owns a part, the ranks in turn."""
    *_, parts = _parts_of(task)
    by_rank = [_seeds(owner, task, 0, BATCHES) for owner in range(parts)]
    return [given[i] for i in range(BATCHES) for given in by_rank]


def _fanouts(task: dict[str, Any]) -> list[int]:
    return [task["fanout"]] * task["hops"]


def _work(batch: Any) -> dict[str, int]:
    """What rows have to share before their times or bytes compare."""
    return {"rows": int(batch.num_nodes), "edges": int(batch.num_edges)}


def _whole_sampler(
    rank: Any, task: dict[str, Any], graph: Any, strategy: str = "captured"
) -> NeighborSampler:
    """A sampler of the whole graph with the task's settings."""
    device = "cpu" if rank.device == "cpu" else "cuda"
    return NeighborSampler(graph, _fanouts(task), strategy=strategy, replace=task["replace"], device=device)


class _Whole:
    """This rank holds the whole graph: the baseline, with the mini-batches of all ranks, or one of several, with its
    own."""

    def __init__(self, rank: Any, task: dict[str, Any], graph: Any) -> None:
        self.given = rank, task, graph
        self.sampler = _whole_sampler(rank, task, graph, "auto")
        is_alone = task["method"] == WHOLE
        given = _seeds_of_all(task) if is_alone else _seeds(rank.index, task, 0, BATCHES)
        self.device_seeds = [on_device(rank, seeds) for seeds in given]

    def one(self, i: int) -> Any:
        at = i % len(self.device_seeds)
        return self.sampler.sample(self.device_seeds[at], at)

    def many(self, together: int) -> Any:
        return self.sampler.sample_many(_repeated(self.device_seeds, together))

    def engine(self) -> Any:
        """That samples on a GPU, with :attr:`waves`."""
        return self.sampler._engine

    def captured(self) -> Any:
        """The engine whose mini-batches are CUDA graphs, on a GPU: the strategy that reads peers' lists, too."""
        return _whole_sampler(*self.given)._engine

    def facts(self) -> dict[str, Any]:
        return {**_work(self.one(0)), "remote_share": 0.0}


class _Parts:
    """One method of the ladder."""

    def __init__(self, rank: Any, task: dict[str, Any], graph: Any) -> None:
        from gnnsample_lab.distributed import Sampler, open_partition

        self.rank, self.task = rank, task
        self.partition = open_partition(task["folder"])
        options: dict[str, Any] = {}
        self.topology = graph.num_edges * graph.indices.dtype.itemsize
        method = task.get("way", task["method"])
        if method == "direct-cached":
            visits = _visits(rank, task, graph)
            if "saved_percent" in task:
                held = _visits(rank, task, graph, VISITED, HELD)
                budget = self._budget(graph, visits, held, task["saved_percent"] / 100)
            else:
                budget = int(self.topology * task["budget_percent"] / 100)
            options = {"cache_bytes": budget, "visits": visits}
        self.budget, self.degrees = options.get("cache_bytes"), np.diff(to_host(graph.indptr))
        self.sampler = Sampler(
            task["folder"], _fanouts(task), method, rank=rank, replace=task["replace"],
            collectives=task.get("collectives", "auto"), **options,
        )  # fmt: skip
        self.host_seeds = _seeds(rank.index, task, 0, BATCHES)
        # Methods with collectives take seeds from the host, where they are sorted by owner or sent on.
        self.device_seeds = [on_device(rank, seeds) for seeds in self.host_seeds] if method in READS else []
        self.seeds = self.device_seeds or self.host_seeds

    def one(self, i: int) -> Any:
        at = i % len(self.seeds)
        return self.sampler.engine.sample(self.seeds[at], at)

    def many(self, together: int) -> Any:
        return self.sampler.engine.sample_many(_repeated(self.seeds, together), 0)

    def engine(self) -> Any:
        """As of :class:`_Whole`; None where hosts take part."""
        return getattr(self.sampler.engine, "gpu", None)

    captured = engine

    def _budget(self, graph: Any, visits: np.ndarray, held: np.ndarray, share: float) -> int:
        """Bytes of the hottest lists by ``visits`` that save ``share`` of the remote reads of the visits ``held``."""
        from gnnsample_lab.distributed import hottest_lists

        degrees, width = np.diff(to_host(graph.indptr)), graph.indices.dtype.itemsize
        fanout, owner, me = self.task["fanout"], np.asarray(self.partition.owner), self.rank.index
        everything = hottest_lists(
            visits, degrees, fanout, self.topology, owner=owner, rank=me, entry_bytes=width
        )
        reads = held * np.minimum(degrees, fanout) * (owner != me)
        enough = int(np.searchsorted(np.cumsum(reads[everything.ids]), share * reads.sum())) + 1
        return int(everything.offsets[min(enough, len(everything.ids))]) * width

    def facts(self) -> dict[str, Any]:
        """Work and bytes, by kind, of a batch, what is kept on this rank, and what share of its reads is remote."""
        engine: Any = self.sampler.engine
        for i in range(WARM_UP if self.task["method"] == "csp-fixed" else 0):
            self.one(i)
        batch = self.sampler.sample(self.host_seeds[0], 0)
        if self.rank.device != "cpu" and hasattr(engine, "count"):
            engine.count(batch)
        traffic = self.sampler.traffic
        host = batch.to_cpu()
        copies = getattr(engine, "copies", None)
        hot = getattr(engine, "hot", None) if copies is None else copies.hot
        is_remote = np.asarray(self.partition.owner) != self.rank.index
        remote = sum(int(p.counts[is_remote[p.frontier]].sum()) for p in host.picks)
        asked = np.concatenate([self.degrees[p.frontier[is_remote[p.frontier]]] for p in host.picks])
        if hot is not None:
            is_remote[hot.ids] = False
        read = sum(int(p.counts[is_remote[p.frontier]].sum()) for p in host.picks)
        return {
            **_work(host), "volume": traffic.volume, "by_kind": traffic.by_kind, "ideal": traffic.ideal,
            "kept_bytes": dict(getattr(engine, "topology_bytes", {})),
            "budget_percent": None if self.budget is None else round(100 * self.budget / self.topology, 2),
            "remote_share": read / max(1, host.num_edges),
            "remote_degree": float(asked.mean()) if asked.size else None,
            "saved_share": None if hot is None else 1 - read / max(1, remote),
            "copied_bytes": None if hot is None else hot.nbytes,
        }  # fmt: skip


def _repeated(seeds: list[Any], count: int) -> list[Any]:
    return [seeds[i % len(seeds)] for i in range(count)]


def _visits(rank: Any, task: dict[str, Any], graph: Any, first: int = 0, count: int = VISITED) -> np.ndarray:
    """How often vertices were expanded in other batches of this rank, plus a hundredth of its out-degree, at most 1.

    The second part is left out of those from ``first`` on that only test a choice.
    """
    key = (
        *_parts_of(task), "visits", first, task["batch_size"], task["fanout"], task["hops"], task["replace"]
    )  # fmt: skip
    if key not in _kept:
        sampler = _whole_sampler(rank, task, graph)
        xp = array_module(graph.indptr)
        found = xp.minimum(xp.bincount(graph.indices, minlength=graph.num_nodes) * 0.01, 1.0) * (first == 0)
        begin = BATCHES + first
        for i, seeds in enumerate(_seeds(rank.index, task, begin, count)):
            for picks in sampler.sample(seeds, begin + i).picks:
                found[picks.frontier] += 1  # a frontier's vertices are distinct
        _kept[key] = to_host(found)
    visits: np.ndarray = _kept[key]
    return visits


def _expected(rank: Any, task: dict[str, Any], graph: Any) -> list[int]:
    """:func:`checksum` of the first batch, drawn from the whole graph."""
    key = (*_parts_of(task), "sum", task["batch_size"], task["fanout"], task["hops"], task["replace"])
    if key not in _kept:
        seeds = _seeds(rank.index, task, 0, 1)[0]
        _kept[key] = checksum(_whole_sampler(rank, task, graph).sample(seeds, 0), graph.indptr)
    found: list[int] = _kept[key]
    return found


def checksum(batch: Any, indptr: Any) -> list[int]:
    """Of each hop: vertices, edges, and the sum of a hash of (destination, slot, source), whatever their order.

    Args:
        batch: a mini-batch on either device.
        indptr: of the whole graph where positions are those of its edges; None where they are slots.
    """
    batch.ready.order()
    found = []
    for picks in batch.picks:
        xp = array_module(picks.frontier)
        edges = int(picks.neighbors.size)
        row = xp.searchsorted(picks.offsets[1:], xp.arange(edges), side="right")
        dst = picks.frontier[row]
        slots = picks.positions if indptr is None else picks.positions - indptr[dst]
        word = dst.astype(np.uint64) * np.uint64(splitmix.GOLDEN)
        word += picks.neighbors.astype(np.uint64) * np.uint64(0xD1342543DE82EF95)
        word += slots.astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
        found += [int(picks.frontier.size), edges, int(splitmix.finalise(word).sum()) if edges else 0]
    return found
