"""GNNLab's evaluation of caching: similarity of epochs, hit rates, extraction."""

from __future__ import annotations

from gnnsample_lab.bench.suite import Suite

from . import papers, targets

_part = papers.PAPER.part

SUITES = (
    Suite(
        "extraction", "suites.gnnlab.extraction.extraction",
        "bandwidth of missed rows by transfer, against a pinned copy",
        columns={
            "features": "num_features", "cached %": "cache_percent", "transfer": "transfer", "by": "resolved",
            "missed rows": "misses", "us": "extract_us", "GB/s": "miss_gbps", "of pinned copy": "share",
        },
        targets=targets.extraction,
    ),
    Suite(
        "gnnlab-table2", "suites.gnnlab.caching.table2", "similarity of epochs' footprints; needs no GPU",
        rests_on=("similarity",), columns={
            "sampler": "sampler", "similarity %": "similarity_percent", "least %": "least_percent",
            "most %": "most_percent",
        },
        paper=_part("table 2", papers.TABLE2, ("graph", "sampler"), {"paper %": "similarity_percent"}),
        needs_gpu=False,
    ),
    Suite(
        "gnnlab-fig4", "suites.gnnlab.extraction.figure4",
        "extract time and hit rate over cache ratio and dimension",
        rests_on=("hit rate",), columns={
            "part": "part", "features": "num_features", "cached %": "cache_percent", "hit %": "hit_percent",
            "MB": "mb_per_batch", "extract ms": "extract_ms",
        },
        paper=_part(
            "figure 4", papers.FIGURE4, ("graph", "part", "cache_percent"),
            {"paper ms (V100)": "extract_ms", "paper hit %": "hit_percent"},
        ),
    ),
    Suite(
        "gnnlab-fig5", "suites.gnnlab.caching.figure5",
        "bytes moved: degree policy against the optimal; needs no GPU",
        rests_on=("hit rate",), columns={
            "sampler": "sampler", "cached %": "cache_percent", "degree MB": "degree_mb",
            "presample MB": "presample_mb", "optimal MB": "optimal_mb", "degree over optimal": "degree_over_optimal",
        },
        paper=_part(
            "figure 5", papers.FIGURE5, ("graph", "sampler", "cache_percent"),
            {"paper degree MB": "degree_mb", "paper optimal MB": "optimal_mb"},
        ),
        needs_gpu=False,
    ),
    Suite(
        "gnnlab-fig10", "suites.gnnlab.caching.figure10",
        "hit rates: policies x graphs x samplers; needs no GPU",
        rests_on=("hit rate",), columns={
            "sampler": "sampler", "policy": "policy", "hit %": "hit_percent", "of optimal": "of_optimal",
            "over degree": "over_degree",
        },
        paper=_part("figure 10"), targets=targets.hit_rates, needs_gpu=False,
    ),
    Suite(
        "gnnlab-fig11", "suites.gnnlab.caching.figure11",
        "hit rates over K and ratio, bytes over dimension; needs no GPU",
        rests_on=("hit rate",), columns={
            "part": "part", "sampler": "sampler", "policy": "policy", "features": "num_features",
            "cached %": "cache_percent", "hit %": "hit_percent", "MB": "mb_per_batch",
        },
        paper=_part(
            "figure 11", papers.FIGURE11, ("graph", "sampler", "policy", "cache_percent"),
            {"paper %": "hit_percent"},
        ),
        needs_gpu=False,
    ),
    Suite(
        "gnnlab-fig12", "suites.gnnlab.extraction.figure12", "extract time of an epoch by caching policy",
        rests_on=("hit rate",), columns={
            "model": "model", "policy": "policy", "cached %": "cache_percent", "hit %": "hit_percent",
            "ms a batch": "extract_ms", "epoch s": "extract_s", "less than random": "less_than_random",
        },
        paper=_part(
            "figure 12", papers.FIGURE12, ("graph", "model", "policy"),
            {
                "paper s (table 5)": "extract_s", "paper cache %": "cache_percent", "paper hit %": "hit_percent",
            },
        ),
    ),
)  # fmt: skip
