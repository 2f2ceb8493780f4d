"""GNNLab's alias tables beside the guide: tables, twins, and the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench import report, runner
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites import targets_of
from gnnsample_lab.bench.suites.gnnlab import weighted
from gnnsample_lab.sampling.weights import integer_weights


def lists(weights: list[list[float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds, neighbours 0, 1, 2 and so on, and prefix sums of integer weights."""
    indptr = np.cumsum([0, *map(len, weights)])
    flat = np.array([w for one in weights for w in one], np.float32)
    return indptr, np.arange(flat.size), integer_weights(indptr, flat).prefix


WEIGHTS: list[list[float]] = [[1, 2, 3, 4], [], [5], [0, 0, 7, 0], [0, 0], [1] * 40, [1000] + [1] * 9]


def test_alias_tables_hold_the_weights() -> None:
    """The share of a place: what it keeps, and what others give it."""
    indptr, _, prefix = lists(WEIGHTS)
    keep, alias = weighted.alias_tables(indptr, prefix)
    for v, given in enumerate(WEIGHTS):
        if not sum(given):
            continue
        kept = (keep[indptr[v] : indptr[v + 1]].astype(np.float64) + 1) / 2**32
        share = kept.copy()
        np.add.at(share, alias[indptr[v] : indptr[v + 1]], 1 - kept)
        np.testing.assert_allclose(share / len(given), np.array(given) / sum(given), atol=1e-8)


@pytest.mark.parametrize("way", ["alias", "guide"])
def test_both_ways_draw_by_weight(way: str) -> None:
    indptr, indices, prefix = lists(WEIGHTS)
    out = np.empty((len(WEIGHTS), 40_000), np.int64)
    frontier = np.arange(len(WEIGHTS))
    if way == "alias":
        keep, alias = weighted.alias_tables(indptr, prefix)
        weighted.drawn_alias(frontier, out.shape[1], 3, 9, indptr, indices, keep, alias, out)
    else:
        weighted.drawn_guided(frontier, out.shape[1], 3, 9, indptr, indices, prefix, out)
    for v, given in enumerate(WEIGHTS):
        if not given or (way == "guide" and not sum(given)):
            assert (out[v] == -1).all()
        elif sum(given):
            counts = np.bincount(out[v] - indptr[v], minlength=len(given))
            expected = np.array(given) * out.shape[1] / sum(given)
            assert (counts[expected == 0] == 0).all()
            some = expected > 0
            chi = ((counts - expected)[some] ** 2 / expected[some]).sum()
            assert chi < some.sum() + 6 * np.sqrt(2 * some.sum())


def made_up(**changes: Any) -> dict[str, Any]:
    draws = {"graph": "g", "part": "draws", "fanout": 5, "over_alias": 0.7}
    walks = {"graph": "g", "part": "PinSAGE", "seeds": 1024, "together": 1, "over_gpu": 1.3}
    return {
        "suite": "gnnlab-samplers",
        "rows": [draws | changes, walks, walks | {"together": 32, "over_gpu": 9.0}],
    }


def test_targets() -> None:
    assert [(t.measured, t.met) for t in targets_of(made_up())] == [(0.7, False), (9.0, False)]
    assert targets_of(made_up(over_alias=2.0))[0].met


# ---- GPU --------------------------------------------------------------------------------------------------------


@pytest.fixture
def draws() -> weighted.Draws:
    rng = np.random.default_rng(1)
    graph = lab.Graph.from_edges(
        rng.integers(0, 500, 6000), rng.integers(0, 400, 6000), 500, edge_weight=rng.random(6000, np.float32)
    )
    return weighted.Draws(graph.to("cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["alias", "guide"])
def test_kernels_draw_what_their_twins_draw(draws: weighted.Draws, way: str) -> None:
    import cupy

    for k in (1, 5, 16):
        draws.check(way, cupy.arange(500), k, 7)  # a fifth has no in-neighbours
    draws.keep[:] = 0
    draws.host[2][:] = np.arange(draws.host[2].size)  # a twin of other weights
    with pytest.raises(VerificationError, match="other picks"):
        draws.check(way, cupy.arange(500), 5, 7)


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_the_suite_runs() -> None:
    record = runner.run("gnnlab-samplers", session=Session(True, ["arxiv-like@0.1"]))
    assert {row["part"] for row in record["rows"]} == {"draws", "PinSAGE"}
    assert "over alias" in report.text(record)
