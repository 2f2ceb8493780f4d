"""Fitting: knobs end where the published numbers are met, and say what they were fitted to."""

import json
import math

import pytest

from gnnsample_lab.bench.suites.twins import fitting, judge, published
from gnnsample_lab.graph.twins import recipes


@pytest.mark.parametrize("name", fitting.TARGETS)
def test_targets_are_published_and_no_more_than_two(name):
    targets = fitting.TARGETS[name]
    assert len(targets) <= judge.FITTED_TO_PUBLISHED
    assert {target.label for target in targets} <= set(published.labels(name))
    search = fitting.Search(name, 0.01, "cpu")
    for target in targets:
        assert target.low < search.first(target) < target.high
    values = {target.knob: (target.low + target.high) / 2 for target in targets}
    made = search.statistics(values)
    fitted = [label for text in made["sources"].values() for label in judge.fitted_to(text)]
    assert {label for label in fitted if "by generating" not in label} == {t.label for t in targets}
    assert {key: made["knobs"][key]["value"] for key in values} == pytest.approx(values, abs=1e-5)


def test_the_search_meets_numbers_that_depend_on_both_knobs(monkeypatch):
    def answer(_name, values, cells, _scale, _device):
        gini, inside = values["gini"], values["inside_small"]
        rows = 662_096 * math.exp(1.5 * (0.7 - inside) + 2 * (gini - 0.6))
        return [rows, 73.95 + 40 * (gini - 0.6) + 10 * (inside - 0.7)]

    search = fitting.Search("products-like", 1.0, "cpu", say=lambda text: None)
    monkeypatch.setattr(search, "statistics", lambda values: values)
    monkeypatch.setattr(fitting, "sampled", answer)
    found = search.run()
    off = [fitting._off(cell, number) for cell, number in zip(search.cells, answer("", found, None, 1, ""))]
    assert max(map(abs, off)) <= 0.5
    assert search.run() == found


def test_values_found_elsewhere_are_applied(tmp_path, monkeypatch):
    knobs = {"flickr-like": {"gini": {"value": 0.6, "source": "assumed: a test"}}}
    file = tmp_path / "knobs.json"
    file.write_text(json.dumps(knobs), encoding="utf-8")
    monkeypatch.setattr(recipes, "fit", lambda made: {**made, "cliques": [0] * 64})
    written = {}
    monkeypatch.setattr(recipes, "write", written.__setitem__)
    fitting.main(["--apply", str(file)])
    assert written["flickr-like"]["knobs"]["gini"] == knobs["flickr-like"]["gini"]
    assert written["flickr-like"]["sources"]["degrees"] == "assumed: a test"


def test_a_small_twin_is_sampled_as_its_publication_was():
    cells = [c for c in published.cells_of("mag-like") if c.label == "match degree, 8000 x (15, 10, 5)"]
    (found,) = fitting.sampled("mag-like", recipes.stored("mag-like"), cells, 0.001, "cpu")
    assert 0 < found < 100
