"""The ID map at work: a small hash table filled step by step, its contention, and the probes of real ids."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import plotly.graph_objects as go
import traitlets

import gnnsample_lab as lab
from gnnsample_lab import checks, figures, readable
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.minibatch.id_map.ladder import IdMap
from gnnsample_lab.minibatch.id_map.probes import HASHES, FillStep
from gnnsample_lab.sampling.neighbors.sizes import power_of_two

from ...graphs import draw_seeds, sampled_on, seed_pool
from ...shell.controls import Choice, Control, Slider, Switch
from ...shell.explorer import Explorer
from ...shell.recipe import Panels, Recipe

SLOTS = [5, 7, 11, 13, 16, 17, 23, 32]
THREADS = [1, 2, 4, 8, 16, 32]
DISTINCT = 8
"""Most distinct ids of the small table, so that tables of different sizes get the same ids."""
AS_IS, RUN, STRIDED = "as in the graph", "consecutive", "multiples of 64"
LOADS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
SEEDS, FANOUTS = 256, [10, 10]


def example_ids(count: int, slots: int, seed: int = 0) -> np.ndarray:
    """``count`` made-up ids below 100, int64, of which three quarters of ``slots`` are distinct at most.

    Some come often and most seldom, as the picks of a sampler do: hubs are everybody's neighbours. All tables get the
    same ids; in one too small for them one of them takes the place of all more frequent ones.
    """
    rng = np.random.default_rng(seed)
    pool = rng.choice(100, DISTINCT, replace=False)
    likely = 1.0 / np.arange(1, DISTINCT + 1)
    which = rng.choice(DISTINCT, count, p=likely / likely.sum())
    return np.asarray(pool[np.maximum(which, DISTINCT - max(2, 3 * slots // 4))], dtype=np.int64)


def faulty_ids(steps: list[FillStep]) -> list[int]:
    """Ids in the table after these steps without a valid local id: none was written, it is shared, or too high."""
    if not steps:
        return []
    written = {step.id for step in steps if step.local_id is not None}
    entries = [(k, v) for k, v in zip(steps[-1].keys, steps[-1].values) if k >= 0]
    values = [v for _, v in entries]
    return [k for k, v in entries if k not in written or values.count(v) > 1 or v >= len(entries)]


def table_figure(ids: np.ndarray, steps: list[FillStep], done: int, slots: int, label: str) -> go.Figure:
    """The table after ``done`` of the steps."""
    past = steps[:done]
    last = past[-1] if past else None
    keys = last.keys if last else (-1,) * slots
    values = last.values if last else (0,) * slots
    entry = dict(zip(keys, values))
    return figures.hash_table(
        ids,
        keys,
        values,
        done=done,
        local=[entry.get(int(v), -1) for v in ids],
        probes=last.probes if last else (),
        is_new=bool(last and last.is_new),
        wrong=faulty_ids(past),
        label=label,
    )


def batch_ids(graph: Any, numbering: str = AS_IS, seed: int = 0, device: str = "auto") -> np.ndarray:
    """The distinct vertices of one mini-batch of ``graph``, int64, under a numbering of the vertices.

    Args:
        numbering: ``"as in the graph"``; ``"consecutive"``: as if this batch's vertices had neighbouring numbers, what
            renumbering by communities does in the extreme; ``"multiples of 64"``: as if numbers had structure.
        seed: of the choice of seeds and of the sampler.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    checks.choice("numbering", numbering, [AS_IS, RUN, STRIDED])
    checks.seed(seed)
    seeds = draw_seeds(graph, min(SEEDS, len(seed_pool(graph))), seed)
    ids = lab.NeighborSampler(graph, FANOUTS, device=device, seed=seed).sample(seeds).node_ids
    ids = to_host(ids).astype(np.int64)
    if numbering == RUN:
        # Neighbours in the numbering, but still in the order in which the sampler met them.
        return np.asarray(np.unique(ids, return_inverse=True)[1], dtype=np.int64)
    return ids * 64 if numbering == STRIDED else ids


def filled(ids: np.ndarray, hash: str, load: float) -> Any:
    """Probe statistics of a table of at most ``len(ids)`` slots, filled to ``load`` with the first of ``ids``.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    checks.share("load", load)
    slots = 1 << (len(ids).bit_length() - 1)
    if hash == "modulo":
        from gnnsample_lab.minibatch.id_map.probes import next_prime

        slots = next_prime(slots)
    count = min(len(ids), max(1, round(load * slots)))
    return lab.probe_statistics(ids[:count], hash, device="cpu", slots=slots)


def map_times(batch: Any, methods: Iterable[str], repeats: int = 20) -> dict[str, float]:
    """Wall time of relabelling the picks of ``batch`` by each of ``methods``, microseconds, on the batch's device."""
    hops = [hop.neighbors for hop in batch.picks]
    seeds = batch.node_ids[: batch.level_sizes[0]]
    device = "cpu" if isinstance(seeds, np.ndarray) else "cuda"
    times = {}
    for method in methods:
        id_map = IdMap(method, batch.graph.num_nodes, seeds.dtype, device)
        id_map.map_hops(seeds, hops)  # compiles, and makes its tables
        start = time.perf_counter()
        for _ in range(repeats):
            relabelled = id_map.map_hops(seeds, hops)
        _wait_for(relabelled.node_ids)
        times[method] = (time.perf_counter() - start) / repeats * 1e6
    return times


def _wait_for(array: Any) -> None:
    if not isinstance(array, np.ndarray):
        import cupy

        cupy.cuda.get_current_stream().synchronize()


def room(slots: int, hash: str) -> int:
    """Slots of the small table: a power of two, except for modulo."""
    return slots if hash == "modulo" else power_of_two(slots)


def fill(count: int, slots: int, size: int, hash: str, printed: bool, threads: int, seed: int) -> Any:
    """Made-up ids, the steps that insert them one by one, and the rounds of threads in lock-step."""
    ids = example_ids(count, slots, seed)
    steps = lab.fill_steps(ids, size, hash, polarity="printed" if printed else "correct")
    return ids, steps, lab.fill_rounds(ids, size, threads, hash)


def real_ids(on_device: Any, device: str, numbering: str, seed: int) -> np.ndarray:
    return batch_ids(on_device, numbering, seed, device)


def mean_probes(real: Any) -> dict[str, list[float]]:
    """Probes of an id on average, by hash function and load factor."""
    return {name: [filled(real, name, load).mean for load in LOADS] for name in HASHES}


def probe(real: Any, hash: str, load_percent: int) -> Any:
    """Probes of the real ids in a table filled so far."""
    return filled(real, hash, load_percent / 100)


def draw_table(filling: Any, size: int, step: int, hash: str, printed: bool) -> Any:
    ids, steps, _ = filling
    label = f"made-up ids · {size} slots, {hash}{' · flag as printed' if printed else ''}"
    return table_figure(ids, steps, step, size, label)


def draw_contention(filling: Any, threads: int) -> Any:
    label = f"the same ids, {threads} thread{'s' * (threads > 1)} replayed in lock-step"
    return figures.slot_contention(np.stack([r.contention for r in filling[2]]), label=label)


def describe(host: Any, device: str, numbering: str) -> str:
    """Whose ids were counted, for labels."""
    named = "ids as they are" if numbering == AS_IS else f"ids made {numbering}"
    return f"{host.title} · one mini-batch, {named} · {sampled_on(device)}, counted"


def draw_lengths(chosen: Any, hash: str, label: str) -> Any:
    return figures.probe_lengths(chosen.lengths, hash_name=hash, label=label)


def draw_loads(means: Any, load_percent: int, label: str) -> Any:
    return figures.probes_by_load(LOADS, means, marker=load_percent / 100, label=label)


class IdMapExplorer(Explorer):
    """A hash table that fills slot by slot, threads that meet at a slot, and probes against the load factor.

    State: ``step`` (ids inserted so far), ``count`` (ids), ``slots`` (a power of two or the next one, except for
    "modulo"), ``hash``, ``threads`` (that insert at the same time in the contention panel), ``printed`` (the flag as
    the paper prints it), ``load_percent`` and ``numbering`` (of the ids of a real mini-batch), ``seed``.

    "A small table" replays made-up ids in lock-step; "Probes of real ids" counts with the ids of a
    mini-batch of the graph. See :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "From global to local ids: a hash table at work"
    from_split = True
    recipe: ClassVar[Recipe] = {
        "size": room,
        "filling": fill,
        "real": real_ids,
        "means": mean_probes,
        "chosen": probe,
        "label": describe,
        "shown": Panels(table=draw_table, contention=draw_contention, lengths=draw_lengths, loads=draw_loads),
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "A small table": ("table", "contention"),
        "Probes of real ids": ("lengths", "loads"),
    }
    shares: ClassVar[dict[str, int]] = {"table": 5, "contention": 4}

    step = traitlets.Int(7).tag(state=True)
    count = traitlets.Int(14).tag(state=True)
    slots = traitlets.Int(11).tag(state=True)
    hash = traitlets.Unicode("modulo").tag(state=True)
    threads = traitlets.Int(8).tag(state=True)
    printed = traitlets.Bool(False).tag(state=True)
    load_percent = traitlets.Int(50).tag(state=True)
    numbering = traitlets.Unicode(AS_IS).tag(state=True)
    seed = traitlets.Int(0).tag(state=True)

    def prepare(self, state: dict[str, Any]) -> None:
        if "step" not in state:
            count = state.get("count", self.count)
            if isinstance(count, int):  # what is none is refused under its own name
                self.step = max(0, min(self.step, count))

    def build_controls(self) -> dict[str, Control]:
        controls: list[Control] = [
            Slider(
                "step",
                "Ids inserted",
                self.step,
                max=max(self.count, self.step),
                playable=True,
                interval_ms=900,
            ),
            Slider("count", "Ids", self.count, min=4, max=20),
            Slider("slots", "Slots of the table", self.slots, options=SLOTS),
            Choice("hash", "Hash function", self.hash, list(HASHES)),
            Slider("threads", "Threads at once", self.threads, options=THREADS),
            Switch("printed", "The flag as printed", self.printed),
            Slider("load_percent", "Load factor", self.load_percent, min=5, max=95, step=5, unit=" %"),
            Choice("numbering", "Numbering of the real ids", self.numbering, [AS_IS, RUN, STRIDED]),
            Slider("seed", "Random seed", self.seed, max=99),
        ]
        return {control.name: control for control in controls}

    def adapt(self) -> None:
        step = self.controls["step"]
        if isinstance(step, Slider) and step.max != self.count:
            # Whoever looked at the full table wants to go on doing so.
            was_last = self.step == step.max
            step.set_limits(0, self.count)
            if was_last:
                self.step = self.count

    def summary(self, made: dict[str, Any]) -> str:
        (ids, steps, _), chosen = made["filling"], made["chosen"]
        past = steps[: made["step"]]
        if not past:
            text = f"An empty table, and {len(ids)} ids to come."
        else:
            last = past[-1]
            tried = len(last.probes)
            what = "is new" if last.is_new else "is there already"
            text = (
                f"Id <b>{last.id}</b> {what}, after {tried} probe{'s' * (tried > 1)}. "
                f"{len(past)} {readable.noun(len(past), 'id')} so far, "
                f"<b>{sum(s.is_new for s in past)}</b> of them distinct; "
                f"LocalID stands at <b>{last.next_local_id}</b>."
            )
            wrong = faulty_ids(past)
            if wrong:
                named = ", ".join(map(str, sorted(wrong)))
                text += f' <span class="gs-lost">Without a valid local id: {named}.</span>'
        return (
            text
            + f" In a real table {made['load_percent']} % full, an id costs <b>{readable.number(chosen.mean)}</b> "
            f"{readable.noun(chosen.mean, 'probe')} on average and {chosen.longest:,} at worst."
        )
