"""Statistics of a graph: what its twin is made from, as a dict that fits in a JSON file and shows no edge.

========================  =======================================================================================
``num_nodes, num_edges``  vertices, and directed edges without self-loops and repeats: one or two for each link of the
                          skeleton, always two where ``directed`` is False
``directed``              False where every edge has its reverse
``degrees``               ``[[degree, vertices], ...]`` of the undirected skeleton, ascending
``clustering``            mean local clustering by bin of degree (:func:`.plan.bin_of`), 64 numbers
``cliques``               64 whole numbers: what cliques are asked for so that ``clustering`` comes out (fitted)
``clique_share``          share of its half-edges that a vertex gives to cliques, at least
``communities``           by small community: ``size``, ``large`` (the community it lies in), ``level`` (mean rank of
                          degree), ``inside`` (share of edge ends that stay), ``clustering`` (against that of the
                          same degrees elsewhere); by large community: ``inside_large``; for all: ``spread`` of degree
                          ranks about the level, ``clique_small`` and ``clique_large`` (share of triangles inside)
``mixing``                edge ends by the octaves of the degrees at both ends, a symmetric matrix
``direction``             of directed graphs: ``reciprocity`` (share of linked pairs linked both ways); ``in_share``, by
                          group 17 quantiles of in / (in + out) over all links; ``mutual``, by group (or one row for
                          all) 17 quantiles of the share of the rarer direction's links that have their reverse;
                          ``roles``, None where groups are octaves of degree alone, else six groups to an octave, by
                          the in-share (:func:`.plan.role_of`): ``vertices`` by octave and role, ``mixing`` as above
                          but by group, ``towards`` (links one way from a group to a group) and, where they are known,
                          ``both`` (ends of links both ways, by the groups at both ends). Without ``mutual`` all pairs
                          are linked both ways alike, and in-shares are of links that go one way
``labels``                ``sizes`` of the classes, ``homophily`` (share of links within one), ``told`` (optional: share
                          of the vertices whose label those around them tell), ``purity`` (fitted: share of the vertices
                          that have their community's class; by octave of degree where ``told`` is known, and then
                          features are the community's too)
``features``              ``count``, ``accuracy`` of the nearest class centroid, ``signal`` (fitted)
``weights``               65 quantiles of the edge weights
``training``              ``train``, ``valid``, ``test``: vertices; ``by_community``, ``by_degree``: how likely a vertex
                          of a small community, of an octave of degree, is in the training set; ``ranked`` (optional):
                          the validation set follows the training set in that order, else it is drawn from the rest
``sources``               where each parameter comes from, in words
========================  =======================================================================================

Shares are whole numbers in units of 1/65536. ``labels``, ``features``, ``weights``, ``training`` and ``direction`` are
None where the graph has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.checks import shown
from gnnsample_lab.graph.twins.plan import BINS, ONE, ROLES, Plan, scaled_counts, scaled_sizes

FORMAT = 3
QUANTILES = 17
WEIGHT_QUANTILES = 65
_MAX = 2**31 - 1
_OPTIONAL = ("direction", "labels", "features", "weights", "training")


def check_statistics(value: Any) -> dict[str, Any]:
    """``value`` as statistics of a graph, made sure of.

    Raises:
        TypeError: no mapping.
        ValueError: a key is missing, or a number is out of its range or does not fit the others; names the key.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"statistics must be as lab.twin_statistics returns them (got {shown(value)})")
    if value.get("format") != FORMAT:
        raise ValueError(f"statistics must have format {FORMAT} (got {shown(value.get('format'))})")
    if not isinstance(value.get("name", ""), str):
        raise _fail("name", "a string", value["name"])
    n = _whole(value, "num_nodes", 0, _MAX)
    edges = _whole(value, "num_edges", 0, 2**62)
    if not isinstance(value.get("directed"), bool):
        raise ValueError(f"statistics['directed'] must be True or False (got {shown(value.get('directed'))})")
    degrees = _integers(value, "degrees", (None, 2), 0, 2**40)
    if np.any(np.diff(degrees[:, 0]) <= 0) or np.any(degrees[:, 1] <= 0):
        raise ValueError("statistics['degrees'] must list ascending degrees with positive counts")
    if int(degrees[:, 1].sum()) != n or (len(degrees) and int(degrees[-1, 0]) >= max(n, 1)):
        raise ValueError(
            f"statistics['degrees'] must count num_nodes = {n} vertices of fewer than {n} neighbours"
        )
    ends = int(sum(d * c for d, c in degrees.tolist()))
    if ends % 2:
        raise ValueError("statistics['degrees'] must have an even sum: each link has two ends")
    if not (ends // 2 if value["directed"] else ends) <= edges <= ends:
        least = f"from {ends // 2} to " if value["directed"] else ""
        raise _fail("num_edges", f"{least}{ends}, by the degrees", edges)
    _reals(value, "clustering", BINS, 0, 1)
    _integers(value, "cliques", (BINS,), 0, ONE)
    _whole(value, "clique_share", 1, ONE)
    small, _large = _check_communities(value.get("communities"), n)
    groups = max(int(degrees[-1, 0]), 1).bit_length() if len(degrees) else 1
    mixing = _integers(value, "mixing", (None, None), 0, 2**50)
    if mixing.shape[0] != mixing.shape[1] or mixing.shape[0] < groups or mixing.shape[0] > 40:
        raise ValueError(
            f"statistics['mixing'] must be a square of at least {groups} octaves (got {mixing.shape})"
        )
    if np.any(mixing != mixing.T):
        raise ValueError("statistics['mixing'] must be symmetric")
    for key in _OPTIONAL:
        if value.get(key) is not None:
            _CHECKS[key](value[key], small, len(mixing))
    if value["directed"] != (value.get("direction") is not None):
        raise ValueError("statistics['direction'] must be given where, and only where, 'directed' is True")
    return dict(value)


def plan_of(statistics: Mapping[str, Any], scale: float = 1.0, seed: int = 0) -> tuple[Plan, np.ndarray]:
    """The plan of the graph that checked statistics describe, and which of its communities were kept.

    At a ``scale`` vertices shrink or grow by that factor and keep their degrees.
    """
    n = int(statistics["num_nodes"])
    num_nodes = n if scale == 1 else max(min(n, 16), round(n * scale))
    table = np.array(statistics["degrees"], dtype=np.int64).reshape(-1, 2)
    degrees, counts = scaled_counts(table[:, 0], table[:, 1], num_nodes)
    parts = {k: np.array(v, dtype=np.int64) for k, v in statistics["communities"].items()}
    size, kept = scaled_sizes(parts["size"], num_nodes)
    mixing, roles = statistics["mixing"], None
    if statistics.get("direction") and statistics["direction"].get("roles"):
        mixing = statistics["direction"]["roles"]["mixing"]
        roles = np.array(statistics["direction"]["roles"]["vertices"], dtype=np.int64)
    keeps_mixing = roles is not None and statistics["direction"].get("mutual") is not None
    plan = Plan(
        degrees=degrees, counts=counts, cliques=np.array(statistics["cliques"], dtype=np.int64),
        clique_share=int(statistics["clique_share"]), size=size, large=parts["large"][kept],
        level=parts["level"][kept], spread=int(parts["spread"]), factor=parts["clustering"][kept],
        inside=parts["inside"][kept], inside_large=parts["inside_large"],
        clique_small=int(parts["clique_small"]), clique_large=int(parts["clique_large"]),
        mixing=_scaled_mixing(mixing, num_nodes, n), roles=roles, keeps_mixing=keeps_mixing, seed=seed,
    )  # fmt: skip
    return plan, kept


def _scaled_mixing(mixing: Any, num_nodes: int, total: int) -> np.ndarray:
    table = np.array(mixing, dtype=np.int64)
    if num_nodes == total:
        return table
    return np.array([[int(x) * num_nodes // total for x in row] for row in table.tolist()], dtype=np.int64)


# ---- checks -----------------------------------------------------------------------------------------------


def _fail(key: str, what: str, got: Any) -> ValueError:
    return ValueError(f"statistics[{key!r}] must be {what} (got {shown(got)})")


def _whole(mapping: Mapping[str, Any], key: str, low: int, high: int) -> int:
    got = mapping.get(key)
    if isinstance(got, bool) or not isinstance(got, int) or not low <= got <= high:
        raise _fail(key, f"a whole number from {low} to {high}", got)
    return got


def _array(
    mapping: Mapping[str, Any], key: str, shape: tuple[int | None, ...], kinds: str, what: str
) -> np.ndarray:
    got = mapping.get(key)
    wanted = " x ".join("any" if s is None else str(s) for s in shape)
    try:
        array = np.array(got)
    except (ValueError, OverflowError):
        raise _fail(key, f"{wanted} {what}", got) from None
    if array.size == 0 and array.ndim < len(shape) and all(t is None or not t for t in shape[:1]):
        array = np.zeros([t or 0 for t in shape])
    fits = len(shape) == array.ndim and all(s is None or s == t for s, t in zip(shape, array.shape))
    if not fits or (array.size and array.dtype.kind not in kinds):
        raise _fail(key, f"{wanted} {what}", got)
    return array


def _integers(
    mapping: Mapping[str, Any], key: str, shape: tuple[int | None, ...], low: int, high: int
) -> np.ndarray:
    array = _array(mapping, key, shape, "iu", f"whole numbers from {low} to {high}")
    if array.size and (array.min() < low or array.max() > high):
        raise _fail(key, f"whole numbers from {low} to {high}", [array.min(), array.max()])
    return array.astype(np.int64)


def _reals(mapping: Mapping[str, Any], key: str, length: int, low: float, high: float) -> np.ndarray:
    array = _array(mapping, key, (length,), "iuf", f"numbers from {low} to {high}").astype(np.float64)
    if not np.all((array >= low) & (array <= high)):
        raise _fail(key, f"numbers from {low} to {high}", mapping[key])
    return array


def _check_communities(value: Any, n: int) -> tuple[int, int]:
    if not isinstance(value, Mapping):
        raise _fail("communities", "a mapping", value)
    large = len(_integers(value, "inside_large", (None,), 0, ONE))
    size = _integers(value, "size", (None,), 0, _MAX)
    small = len(size)
    if int(size.sum()) != n or (n and not large):
        raise _fail("communities", f"communities of {n} vertices in all", int(size.sum()))
    _integers(value, "large", (small,), 0, max(large - 1, 0))
    _integers(value, "level", (small,), 0, ONE)
    _integers(value, "inside", (small,), 0, ONE)
    _integers(value, "clustering", (small,), 0, 16 * ONE)
    _whole(value, "spread", 0, 4 * ONE)
    _whole(value, "clique_small", 0, ONE)
    _whole(value, "clique_large", 0, ONE)
    if small > 1 << 13 or large > 1 << 13:
        raise _fail("communities", f"at most {1 << 13} communities", max(small, large))
    return small, large


def _mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _fail(key, "a mapping or None", value)
    return value


def _check_direction(value: Any, small: int, groups: int) -> None:
    value = _mapping("direction", value)
    _whole(value, "reciprocity", 0, ONE)
    if value.get("roles") is not None:
        roles = _mapping("roles", value["roles"])
        _integers(roles, "vertices", (groups, ROLES), 0, _MAX)
        groups *= ROLES
        mixing = _integers(roles, "mixing", (groups, groups), 0, 2**50)
        if np.any(mixing != mixing.T):
            raise _fail("mixing", "symmetric", "one that is not")
        _integers(roles, "towards", (groups, groups), 0, 2**46)
        if roles.get("both") is not None:
            both = _integers(roles, "both", (groups, groups), 0, 2**46)
            if np.any(both != both.T):
                raise _fail("both", "symmetric", "one that is not")
    tables = {"in_share": _integers(value, "in_share", (groups, QUANTILES), 0, ONE)}
    if value.get("mutual") is not None:
        tables["mutual"] = _integers(value, "mutual", (None, QUANTILES), 0, ONE)
        if len(tables["mutual"]) not in (1, groups):
            raise _fail("mutual", f"1 or {groups} rows of quantiles", len(tables["mutual"]))
    for key, shares in tables.items():
        if np.any(np.diff(shares, axis=1) < 0):
            raise _fail(key, "ascending quantiles", "a falling row")


def _check_labels(value: Any, small: int, groups: int) -> None:
    value = _mapping("labels", value)
    sizes = _integers(value, "sizes", (None,), 0, _MAX)
    if not sizes.sum():
        raise _fail("sizes", "sizes of classes, not all 0", value.get("sizes"))
    told = value.get("told", 0.0)
    if isinstance(told, bool) or not isinstance(told, (int, float)) or not 0 <= told <= 1:
        raise _fail("told", "a number from 0 to 1", told)
    if isinstance(value.get("purity"), Sequence) and not isinstance(value["purity"], str):
        _integers(value, "purity", (groups,), 0, ONE)
    else:
        _whole(value, "purity", 0, ONE)


def _check_features(value: Any, small: int, groups: int) -> None:
    value = _mapping("features", value)
    _whole(value, "count", 1, 1 << 20)
    _whole(value, "signal", 0, 1 << 20)


def _check_weights(value: Any, small: int, groups: int) -> None:
    quantiles = _reals({"weights": value}, "weights", WEIGHT_QUANTILES, 0, float(np.finfo(np.float32).max))
    if np.any(np.diff(quantiles) < 0):
        raise _fail("weights", "ascending quantiles", value)


def _check_training(value: Any, small: int, groups: int) -> None:
    value = _mapping("training", value)
    for key in ("train", "valid", "test"):
        _whole(value, key, 0, _MAX)
    if not isinstance(value.get("ranked", False), bool):
        raise _fail("ranked", "True or False", value["ranked"])
    if value.get("by_community") is not None:
        _integers(value, "by_community", (small,), 0, ONE)
    if value.get("by_degree") is not None:
        _integers(value, "by_degree", (groups,), 0, 64 * ONE)


_CHECKS = {
    "direction": _check_direction,
    "labels": _check_labels,
    "features": _check_features,
    "weights": _check_weights,
    "training": _check_training,
}
