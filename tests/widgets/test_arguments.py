"""Bad arguments of the functions that notebooks call: a typed error that names the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import traitlets
from gnnsample_widgets import (
    Explorer,
    IdMapExplorer,
    SampleExplorer,
    SecondOrderExplorer,
    Stepper,
    WorkloadExplorer,
    caching,
    id_map,
    second_order,
    show,
    training,
    transit,
)
from gnnsample_widgets.batches import draw_batches

from tests.widgets.toy import Toy, tiny_graph

GRAPH = tiny_graph()
CASES: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (draw_batches, (GRAPH, 1, 1), {"grouping": "by colour"}, "grouping"),
    (draw_batches, (GRAPH, 1, 1), {"grouping": 3}, "grouping"),
    (draw_batches, (GRAPH, 0, 1), {}, "num_batches"),
    (draw_batches, (GRAPH, 1.5, 1), {}, "num_batches"),
    (draw_batches, (GRAPH, 1, "2"), {}, "batch_size"),
    (draw_batches, (GRAPH, 1, 1), {"seed": -1}, "seed"),
    (caching.training_set, (GRAPH, 2, "nowhere"), {}, "where"),
    (caching.training_set, (GRAPH, -2), {}, "count"),
    (caching.training_set, (GRAPH, 2), {"seed": "a"}, "seed"),
    (id_map.batch_ids, (GRAPH, "backwards"), {}, "numbering"),
    (id_map.batch_ids, (GRAPH,), {"seed": 0.5}, "seed"),
    (id_map.filled, (np.arange(8), "modulo", 2.0), {}, "load"),
    (id_map.filled, (np.arange(8), "modulo", float("nan")), {}, "load"),
    (training.short_run, (GRAPH, 0, 4), {}, "steps"),
    (training.short_run, (GRAPH, 2, True), {}, "batch_size"),
    (second_order.small_graph, ("karate", GRAPH), {}, "name"),
    (transit.make_app, ("walk", [2]), {}, "name"),
    (transit.draw_roots, (GRAPH, -1, 0), {}, "count"),
    (transit.draw_roots, (GRAPH, 3, None), {}, "seed"),
    (show, (3,), {}, "figures"),
    (show, (), {"least_width": 0}, "least_width"),
    (Toy, (GRAPH,), {"raise_errors": "no"}, "raise_errors"),
    (Toy, ("",), {}, "name"),
    (SecondOrderExplorer, (GRAPH,), {"app": 3}, "app"),
    (Stepper, ("claim",), {}, "mechanism"),
    (Stepper, (None,), {}, "mechanism"),
    (Stepper, ("claim a slot",), {"broken": "everything"}, "broken"),
    (Stepper, ("claim a slot",), {"broken": 3}, "broken"),
    (Stepper, ("claim a slot",), {"graph": 3}, "graph"),
]


@pytest.mark.parametrize(
    ("function", "arguments", "options", "name"),
    CASES,
    ids=[f"{c[0].__name__}-{c[3]}-{n}" for n, c in enumerate(CASES)],
)
def test_a_bad_argument_is_named(
    function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], name: str
) -> None:
    with pytest.raises((TypeError, ValueError, LookupError), match=rf"\b{name}\b"):
        function(*arguments, **options)


@pytest.mark.parametrize("hops", [float("nan"), None, "2"])
def test_what_is_no_number_of_hops_is_refused_by_that_name(hops: Any) -> None:
    with pytest.raises(traitlets.TraitError, match="'hops' trait"):
        SampleExplorer(GRAPH, hops=hops)


BEFORE = {"batch_size": 4, "hops": 2, "fanout_1": 2, "fanout_2": 2, "fanout_3": 2, "pick": "floyd", "seed": 0}


@pytest.mark.parametrize(
    ("kind", "state", "name"),
    [
        (IdMapExplorer, {"count": "x"}, "count"),
        (IdMapExplorer, {"count": None}, "count"),
        (IdMapExplorer, {"count": -3}, "count"),
        (SecondOrderExplorer, {"length": None}, "length"),
        (SecondOrderExplorer, {"length": "x"}, "length"),
        (SecondOrderExplorer, {"length": -3}, "length"),
        (WorkloadExplorer, {"before": {"x": 1}}, "before"),
        (WorkloadExplorer, {"before": {**BEFORE, "hops": 4}}, "before"),
        (WorkloadExplorer, {"before": {**BEFORE, "fanout_1": "2"}}, "before"),
        (WorkloadExplorer, {"before": {**BEFORE, "pick": "any"}}, "before"),
        (WorkloadExplorer, {"before": 3}, "before"),
    ],
)
def test_a_bad_starting_value_is_refused_by_its_name(
    kind: type[Explorer], state: dict[str, Any], name: str
) -> None:
    with pytest.raises(traitlets.TraitError, match=rf"\b{name}\b"):
        kind(GRAPH, device="cpu", **state)


def test_a_whole_setting_before_is_allowed() -> None:
    assert WorkloadExplorer(GRAPH, device="cpu", before=BEFORE).error == ""
