"""Twins for a first reading: a row and a sentence each, and the numbers behind a fold."""

from __future__ import annotations

import pytest
from gnnsample_widgets import twins

from gnnsample_lab import bench
from gnnsample_lab.bench.suites.twins import claims


def test_every_twin_has_a_row_and_the_default_one_too() -> None:
    shown = twins.at_a_glance()
    names = [name for name, _, _ in shown.rows]
    assert names[0] == "arxiv-like" and len(set(names)) == len(names)
    verdicts = {name: verdict for name, verdict, _ in shown.rows}
    recorded = repr(bench.twins_table()).splitlines()
    assert len(recorded) == len(names) - 1
    for line in recorded:
        graph, accepted = line.rpartition(": ")[0], not line.endswith("not accepted")
        verdict = verdicts.get(graph, verdicts.get(f"twin of {graph}"))
        assert verdict == ("accepted" if accepted else "not accepted"), line
    assert all(sentence.endswith(".") and len(sentence) < 200 for _, _, sentence in shown.rows)
    assert repr(shown).count("\n") == len(names) - 1


def test_the_numbers_are_behind_a_fold() -> None:
    markdown = twins.at_a_glance()._repr_markdown_()
    before, _, inside = markdown.partition("<details>")
    assert bench.twins_table()._repr_markdown_() in inside and inside.endswith("</details>")
    assert "`arxiv-like` | not compared" in before and "Gini |" not in before


def test_without_a_record_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "recorded", lambda: None)
    shown = twins.at_a_glance()
    assert shown._repr_markdown_() == repr(shown) == claims.NOTHING
