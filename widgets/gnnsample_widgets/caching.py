"""Which features to keep on the GPU: hit rates of every policy, what still moves, and why Degree fails."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import traitlets

import gnnsample_lab as lab
from gnnsample_lab import checks, figures
from gnnsample_lab.bench import titled
from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.graph.lacks import seed_source

from .controls import Choice, Control, Slider
from .explorer import Explorer
from .graphs import batch_options, sampled_on, seed_pool, to_device
from .recipe import Each, Recipe

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
SCORES = {
    "degree": "out-degree (count)",
    "reverse-pagerank": "reverse PageRank from the training vertices (probability)",
    "random": "random score",
    SHRUNK: "reads per epoch sampled ahead, shrunk (count)",
}
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


def rank(host: Any, seeds: Any, seed: int, name: str) -> Any:
    """The hotness of a policy that does not sample."""
    options: Any = {"random": {"seed": seed}, "reverse-pagerank": {"seeds": seeds}}
    return lab.hotness(host, name, **options.get(name, {}))


def sample_ahead(host: Any, sampling: Any, seeds: Any, batch_size: int, presampled: int, name: str) -> Any:
    """The hotness of a policy that looks at epochs sampled ahead of training."""
    return lab.hotness(host, name, sampler=sampling, seeds=seeds, batch_size=batch_size, epochs=presampled)


def rank_all(host: Any, read: Any, by_graph: dict[str, Any], by_sample: dict[str, Any]) -> dict[str, Any]:
    """The hotness of every policy, the optimal one last."""
    return {**by_graph, **by_sample, "optimal": lab.hotness(host, "optimal", batches=read)}


def describe(host: Any, device: str, sampler: str, num_train: int, where: str, batch_size: int) -> str:
    """What was sampled, for labels."""
    batches = -(-num_train // batch_size)
    return (
        f"{titled(host, 'hit rate')} · {sampler} · {num_train:,} {seed_source(host)} {where}, "
        f"{batches:,} {'batch' if batches == 1 else 'batches'} an epoch · {sampled_on(device)}"
    )


def draw(
    read: Any, hotness: dict[str, Any], label: str, ratio_percent: int, policy: str, num_features: int
) -> dict[str, Any]:
    ratio, ratios = ratio_percent / 100, np.linspace(0, 1, 101)
    whole = read.num_rows / read.num_batches * num_features * 4
    cached = {h.label: figures.cached_mask(h.order, ratio) for h in hotness.values()}
    hottest = cached[hotness["optimal"].label]

    def believed(name: str, score_name: str) -> Any:
        return figures.hotness_against_visits(
            hotness[name].score,
            read.visits,
            cached[hotness[name].label],
            hottest,
            policy=hotness[name].label,
            score_name=score_name,
            visits_name=f"mini-batches that read it, in {RECORDED} epochs (count)",
            label=label,
        )

    return {
        "rates": figures.hit_rates(
            ratios,
            {h.label: lab.hit_rate(h, read, ratios) for h in hotness.values()},
            marker=ratio,
            label=label,
        ),
        "bytes": figures.bytes_per_batch(
            {h.label: (1 - float(lab.hit_rate(h, read, ratio))) * whole for h in hotness.values()},
            uncached=whole,
            label=f"{label} · {num_features:,} float32 a row",
        ),
        "believed": believed(policy, SCORES[policy]),
        "presampled": believed("presample", "reads per epoch sampled ahead (count)"),
        "contents": figures.cache_contents(read.visits, hottest, cached, label=label),
    }


class CacheExplorer(Explorer):
    """Hit rate against cache ratio for all policies, bytes per mini-batch, and what each policy believes.

    State: ``ratio_percent`` (share of the vertices that is cached), ``num_train`` (training vertices) and ``where``
    they lie ("in a few classes" or "anywhere"), ``sampler``, ``batch_size``, ``presampled`` (K of PreSC#K: epochs
    sampled ahead), ``policy`` (set beside PreSC#K), ``num_features``, ``seed``.

    Reads are counted in two epochs of the real sampler; nothing is trained, and no feature is touched, so the graph
    needs none. A new ratio or feature size does not sample again. See
    :class:`~gnnsample_widgets.explorer.Explorer` for the arguments.
    """

    heading = "Which features to keep on the GPU"
    from_split = True
    recipe: ClassVar[Recipe] = {
        "seeds": choose,
        "sampled": weigh,
        "sampling": make_sampler,
        "read": count_reads,
        "by_graph": Each(rank, "name", of="fixed"),
        "by_sample": Each(sample_ahead, "name", of="ahead"),
        "hotness": rank_all,
        "label": describe,
        "shown": draw,
    }
    views: ClassVar[dict[str, tuple[str, ...]]] = {
        "Hit rate": ("rates", "bytes"),
        "What a policy believes": ("believed", "presampled"),
        "In the cache": ("contents",),
    }

    ratio_percent = traitlets.Int(10).tag(state=True)
    num_train = traitlets.Int(2048).tag(state=True)
    where = traitlets.Unicode(FEW).tag(state=True)
    sampler = traitlets.Unicode("3 hops: 15, 10, 5").tag(state=True)
    batch_size = traitlets.Int(64).tag(state=True)
    presampled = traitlets.Int(1).tag(state=True)
    policy = traitlets.Unicode("degree").tag(state=True)
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

    def build_controls(self) -> dict[str, Control]:
        controls: list[Control] = [
            Slider("ratio_percent", "Cache ratio", self.ratio_percent, options=RATIOS, unit=" %"),
            Slider("num_train", seed_source(self.graph).capitalize(), self.num_train, options=self._sizes),
            Choice("where", "Where they lie", self.where, self._where),
            Choice("sampler", "Sampler", self.sampler, list(SAMPLERS)),
            Slider("batch_size", "Batch size", self.batch_size, options=self._batches, unit=" seeds"),
            Slider("presampled", "Epochs sampled ahead (K)", self.presampled, min=1, max=3),
            Choice("policy", "Policy beside PreSC", self.policy, OTHERS),
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
        return {**state, "fixed": FIXED, "ahead": [*shrunk, "presample"]}

    def summary(self, made: dict[str, Any]) -> str:
        read, hotness, ratio = made["read"], made["hotness"], made["ratio_percent"] / 100
        rate = {name: float(lab.hit_rate(h, read, ratio)) for name, h in hotness.items()}
        reached = float((read.visits > 0).mean())
        rows = read.num_rows / read.num_batches
        best, beside = max(rate["optimal"], 1e-12), made["policy"]
        return (
            f"A mini-batch reads <b>{rows:,.0f}</b> rows, {rows / self.graph.num_nodes:.1%} of the graph; two epochs "
            f"read <b>{reached:.0%}</b> of its vertices. <b>{hotness['presample'].label}</b> hits "
            f"{rate['presample']:.0%}, {rate['presample'] / best:.0%} of what is possible; "
            f"<b>{hotness[beside].label}</b> hits {rate[beside]:.0%}."
        )
