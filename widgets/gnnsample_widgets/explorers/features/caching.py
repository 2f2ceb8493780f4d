"""Which features to keep on the GPU: hit rates of every policy, what still moves, and why vertices are hot."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import traitlets

import gnnsample_lab as lab
from gnnsample_lab import checks, figures
from gnnsample_lab.bench import titled
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.features.ranking.hotness import LEAST_EPOCHS
from gnnsample_lab.graph.lacks import seed_source
from gnnsample_lab.readable import percent

from ...graphs import batch_options, sampled_on, seed_pool, to_device
from ...shell.controls import Choice, Control, Slider
from ...shell.explorer import Explorer
from ...shell.recipe import Each, Panels, Recipe
from .distances import hops_from

SAMPLERS = {
    "3 hops: 15, 10, 5": [15, 10, 5],
    "2 hops: 25, 10": [25, 10],
    "3 hops, weighted": [15, 10, 5],
    "PinSAGE walks": [],
}
"""GNNLab's sampling algorithms (section 7.1), by what the explorer calls them, with their fanouts."""
FEW, ALL = "in a few classes", "anywhere"
SHRUNK = "presample-shrunk"
OTHERS = ["degree", "reverse-pagerank", "random", SHRUNK]
FIXED = ["random", "degree", "reverse-pagerank"]
"""Policies that do not sample."""
SEEDED = ["random", "reverse-pagerank"]
"""Those of them that depend on the seed or on the training set."""
SCORES = {
    "degree": "out-degree (count)",
    "reverse-pagerank": "reverse PageRank (probability)",
    "random": "random score",
    SHRUNK: "reads an epoch ahead, shrunk (mean count)",
    "presample": "reads an epoch ahead (mean count)",
    "optimal": "reads (count)",
}
"""What each policy goes by."""
AHEAD, TRAINED = "reads sampled ahead (PreSC)", "reads in training (Optimal)"
UPRIGHT = {AHEAD: "presample", TRAINED: "optimal"}
"""What the upright axis of the vertices shows, and whose hotness that is."""
FAR = 3
"""Hops from the training set up to which vertices are told apart."""
RATIOS = [1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 75, 100]
RECORDED = 2
"""Epochs in which the reads are counted."""


def training_set(graph: Any, count: int, where: str = ALL, seed: int = 0) -> np.ndarray:
    """``count`` of the graph's training vertices, int64 global ids.

    Args:
        count: at most this many.
        where: ``"anywhere"``: drawn evenly; ``"in a few classes"``: those of class 0 first, then of class 1, and so
            on. Training sets of real graphs often lie close together: papers100M trains on one archive.
        seed: of the draw.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    checks.choice("where", where, [FEW, ALL])
    checks.whole("count", count)
    checks.seed(seed)
    pool = np.random.default_rng(seed).permutation(seed_pool(graph))
    if where == FEW and has_classes(graph):
        pool = pool[np.argsort(to_host(graph.label)[pool], kind="stable")]
    return np.sort(pool[:count])


def has_classes(graph: Any) -> bool:
    """Whether each vertex has one class."""
    return graph.label is not None and graph.label.ndim == 1


def with_weights(graph: Any) -> Any:
    """The graph itself where its edges have weights; else with weights that prefer newer neighbours."""
    from gnnsample_lab.graph import recency_weights

    return graph if graph.edge_weight is not None else recency_weights(graph)


def choose(host: Any, num_train: int, where: str, seed: int) -> np.ndarray:
    """The training vertices."""
    return training_set(host, num_train, where, seed)


def weigh(host: Any, on_device: Any, device: str, sampler: str) -> Any:
    """The graph that is sampled, with weights where the sampler needs them."""
    return to_device(with_weights(host), device) if sampler.endswith("weighted") else on_device


def make_sampler(sampled: Any, device: str, sampler: str, seed: int) -> Any:
    if sampler == "PinSAGE walks":
        return lab.PinSAGESampler(sampled, device=device, seed=seed)
    weighted = sampler.endswith("weighted")
    return lab.NeighborSampler(sampled, SAMPLERS[sampler], weighted=weighted, device=device, seed=seed)


def count_reads(sampling: Any, seeds: Any, batch_size: int) -> Any:
    """How often training reads each vertex."""
    return lab.footprint(sampling, seeds, batch_size, epochs=RECORDED)


def rank_by_degree(host: Any) -> Any:
    """The hotness of the one policy that depends on nothing but the graph."""
    return lab.hotness(host, "degree")


def rank(on_device: Any, seeds: Any, seed: int, name: str) -> Any:
    """The hotness of a policy that does not sample."""
    options: Any = {"random": {"seed": seed}, "reverse-pagerank": {"seeds": seeds}}
    return lab.hotness(on_device, name, **options.get(name, {}))


def sample_ahead(host: Any, sampling: Any, seeds: Any, batch_size: int, presampled: int, name: str) -> Any:
    """The hotness of a policy that looks at epochs sampled ahead of training."""
    return lab.hotness(host, name, sampler=sampling, seeds=seeds, batch_size=batch_size, epochs=presampled)


def rank_all(
    host: Any,
    read: Any,
    by_degree: Any,
    by_graph: dict[str, Any],
    by_sample: dict[str, Any],
    ahead: list[str],
) -> dict[str, Any]:
    """The hotness of every policy, the optimal one last; None where it has not been found yet."""
    fixed = {"degree": by_degree, **by_graph}
    optimal = lab.hotness(host, "optimal", batches=read)
    return {
        **{name: fixed.get(name) for name in FIXED},
        **{name: by_sample.get(name) for name in ahead},
        "optimal": optimal,
    }


def describe(host: Any, device: str, sampler: str, num_train: int, where: str, batch_size: int) -> str:
    """What was sampled, for labels."""
    batches = -(-num_train // batch_size)
    return (
        f"{titled(host, 'hit rate')} · {sampler} · {num_train:,} {seed_source(host)} {where}, "
        f"{batches:,} {'batch' if batches == 1 else 'batches'} an epoch · {sampled_on(device)}"
    )


def rate_all(read: Any, hotness: dict[str, Any], presampled: int) -> dict[str, Any]:
    """The hit rate of every policy at cache ratios from 0 to 100 %, by its label; None where it is not known yet."""
    ahead = f"PreSC#{presampled}"
    waiting = {
        "random": "Random",
        "reverse-pagerank": "Reverse PageRank",
        "presample": ahead,
        SHRUNK: f"PreSC#{max(presampled, LEAST_EPOCHS)} shrunk",
    }
    ratios = np.linspace(0, 1, 101)
    return {
        waiting[name] if h is None else h.label: None if h is None else lab.hit_rate(h, read, ratios)
        for name, h in hotness.items()
    }


def measure_distance(host: Any, seeds: Any) -> np.ndarray:
    """How many hops each vertex is from the training set, in words."""
    words = ["in the training set", "1 hop from the training set"]
    words += [f"{hops} hops from the training set" for hops in range(2, FAR + 1)]
    return np.array([*words, f"more than {FAR} hops from the training set"], dtype=object)[
        hops_from(host, seeds, FAR)
    ]


def tell(read: Any, hotness: dict[str, Any], cached: dict[str, Any], distance: Any) -> dict[str, Any]:
    """Why vertices are hot: name of a fact -> its value for each vertex."""
    code = sum(mask.astype(np.int64) << bit for bit, mask in enumerate(cached.values()))
    sets = [
        [name for bit, name in enumerate(cached) if number >> bit & 1] for number in range(1 << len(cached))
    ]
    ahead = hotness["presample"]
    return {
        "where": distance,
        "out-degree": hotness["degree"].score.astype(np.int64),
        f"reads an epoch sampled ahead ({ahead.label})": ahead.score,
        f"reads in {RECORDED} epochs of training": read.visits,
        "cached by": np.array(["cached by " + (", ".join(names) or "none") for names in sets], dtype=object)[
            code
        ],
    }


def fill_caches(hotness: dict[str, Any], ratio_percent: int) -> dict[str, Any]:
    """Label of a policy -> bool per vertex, whether its cache of that ratio holds it."""
    return {h.label: figures.cached_mask(h.order, ratio_percent / 100) for h in hotness.values()}


def draw_rates(rates: dict[str, Any], ratio_percent: int, label: str) -> Any:
    return figures.hit_rates(np.linspace(0, 1, 101), rates, marker=ratio_percent / 100, label=label)


def draw_vertices(
    read: Any,
    hotness: dict[str, Any],
    cached: dict[str, Any],
    distance: Any,
    label: str,
    policy: str,
    upright: str,
) -> Any:
    across, up = hotness[policy], hotness[UPRIGHT[upright]]
    return figures.hotness_scatter(
        across.score,
        up.score,
        (cached[across.label], cached[up.label]),
        names=(across.label, up.label),
        axes=(SCORES[policy], SCORES[up.policy]),
        visits=read.visits,
        why=tell(read, hotness, cached, distance),
        label=label,
    )


def draw_bytes(read: Any, hotness: dict[str, Any], ratio_percent: int, num_features: int, label: str) -> Any:
    ratio, whole = ratio_percent / 100, read.num_rows / read.num_batches * num_features * 4
    return figures.bytes_per_batch(
        {h.label: (1 - float(lab.hit_rate(h, read, ratio))) * whole for h in hotness.values()},
        uncached=whole,
        label=f"{label} · {num_features:,} float32 a row",
    )


def draw_contents(read: Any, hotness: dict[str, Any], cached: dict[str, Any], label: str) -> Any:
    return figures.cache_contents(read.visits, cached[hotness["optimal"].label], cached, label=label)


class CacheExplorer(Explorer):
    """Hit rate against cache ratio for all policies, vertices by what two policies believe of them, and bytes.

    State: ``ratio_percent`` (share of the vertices that is cached), ``num_train`` (training vertices) and ``where``
    they lie ("in a few classes" or "anywhere"), ``sampler``, ``batch_size``, ``presampled`` (K of PreSC#K: epochs
    sampled ahead), ``policy`` (set beside PreSC#K), ``upright`` (what it is held against, vertex by vertex),
    ``num_features``, ``seed``. It opens where Degree and PreSC#1 differ on the graph.

    Reads are counted in two epochs of the real sampler; nothing is trained, and no feature is touched, so the graph
    needs none. A new ratio or feature size does not sample again. See
    :class:`~gnnsample_widgets.Explorer` for the arguments.
    """

    heading = "Which features to keep on the GPU"
    from_split = True
    recipe: ClassVar[Recipe] = {
        "seeds": choose,
        "sampled": weigh,
        "sampling": make_sampler,
        "read": count_reads,
        "by_degree": rank_by_degree,
        "by_graph": Each(rank, "name", of="seeded"),
        "by_sample": Each(sample_ahead, "name", of="ahead"),
        "hotness": rank_all,
        "rates": rate_all,
        "distance": measure_distance,
        "label": describe,
        "cached": fill_caches,
        "shown": Panels(rates=draw_rates, vertices=draw_vertices, bytes=draw_bytes, contents=draw_contents),
    }
    grows = ("rates",)
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "Hit rates and vertices": ("rates", "vertices"),
        "Bytes and contents": ("bytes", "contents"),
    }

    ratio_percent = traitlets.Int(10).tag(state=True)
    num_train = traitlets.Int(2048).tag(state=True)
    where = traitlets.Unicode(FEW).tag(state=True)
    sampler = traitlets.Unicode("3 hops: 15, 10, 5").tag(state=True)
    batch_size = traitlets.Int(64).tag(state=True)
    presampled = traitlets.Int(1).tag(state=True)
    policy = traitlets.Unicode("degree").tag(state=True)
    upright = traitlets.Unicode(AHEAD).tag(state=True)
    num_features = traitlets.Int(128).tag(state=True)
    seed = traitlets.Int(0).tag(state=True)

    def prepare(self, state: dict[str, Any]) -> None:
        # At most 128 mini-batches an epoch, so that no slider makes anybody wait.
        self._sizes = batch_options(self.graph, 8192, 512)
        self._batches = batch_options(self.graph, 1024, 64)
        self._where = [FEW, ALL] if has_classes(self.graph) else [ALL]
        if "num_train" not in state:
            self.num_train = min(self.num_train, max(self._sizes))
        if "batch_size" not in state:
            self.batch_size = min(self.batch_size, max(self._batches))
        if "where" not in state:
            self.where = self._where[0]
        if "sampler" not in state and FEW not in self._where:
            # No corner for the training set to lie in: a sampler then that degrees tell nothing about.
            self.sampler = "PinSAGE walks"
        if "ratio_percent" not in state:
            # A few mini-batches read a small graph whole, and the policies part at larger caches.
            n = self.graph.num_nodes
            self.ratio_percent = 40 if n < 10_000 else 25 if n < 100_000 else 10

    def build_controls(self) -> dict[str, Control]:
        controls: list[Control] = [
            Slider("ratio_percent", "Cache ratio", self.ratio_percent, options=RATIOS, unit=" %"),
            Slider("num_train", seed_source(self.graph).capitalize(), self.num_train, options=self._sizes),
            Choice("where", "Where they lie", self.where, self._where),
            Choice("sampler", "Sampler", self.sampler, list(SAMPLERS)),
            Slider("batch_size", "Batch size", self.batch_size, options=self._batches, unit=" seeds"),
            Slider("presampled", "Epochs ahead (K)", self.presampled, min=1, max=3),
            Choice("policy", "Policy beside PreSC", self.policy, OTHERS),
            Choice("upright", "Upright axis", self.upright, list(UPRIGHT)),
            Slider(
                "num_features",
                "Features per vertex",
                self.num_features,
                options=sorted({32, 64, 128, 256, 512, 1024, self.num_features}),
            ),
            Slider("seed", "Random seed", self.seed, max=99),
        ]
        return {control.name: control for control in controls}

    def parameters(self, state: dict[str, Any]) -> dict[str, Any]:
        shrunk = [SHRUNK] if state["policy"] == SHRUNK else []
        return {**state, "seeded": SEEDED, "ahead": [*shrunk, "presample"]}

    def summary(self, made: dict[str, Any]) -> str:
        read, hotness, ratio = made["read"], made["hotness"], made["ratio_percent"] / 100
        rate = {name: float(lab.hit_rate(h, read, ratio)) for name, h in hotness.items()}
        reached = float((read.visits > 0).mean())
        rows = read.num_rows / read.num_batches
        possible, beside = "", made["policy"]
        if rate["optimal"] > 0:
            share = rate["presample"] / rate["optimal"]
            possible = f", {percent(share, int(0.98 < share < 1))} of what is possible"
        return (
            f"A mini-batch reads <b>{rows:,.0f}</b> rows, {percent(rows / self.graph.num_nodes, 1)} of the "
            f"graph; two epochs "
            f"read <b>{percent(reached)}</b> of its vertices. <b>{hotness['presample'].label}</b> hits "
            f"{percent(rate['presample'])}{possible}; "
            f"<b>{hotness[beside].label}</b> hits {percent(rate[beside])}. Point at a vertex to read why it is hot."
        )
