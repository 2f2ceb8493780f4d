"""What a graph lacks is said in one line, with graphs that have it."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.graph import catalogue, lacks, random_features

WHOLE = {"feat": np.ones((4, 3)), "label": [0, 1, 0, 1], "splits": {"train": [0, 1]}}


def path(**parts):
    return lab.Graph.from_edges([1, 2, 3], [0, 1, 2], 4, name="path", **parts)


@pytest.mark.parametrize(
    ("kept", "missing", "words"),
    [
        ((), [*lacks.PARTS], "path has no features, no labels and no training split. Graphs with them: "),
        (
            ("feat",),
            ["labels", "training split"],
            "path has no labels and no training split. Graphs with them: ",
        ),
        (("feat", "label"), ["training split"], "path has no training split. Graphs with them: "),
        (("label", "splits"), ["features"], "path has no features. Graphs with them: "),
    ],
)
def test_one_line_names_what_is_missing_and_who_has_it(kept, missing, words):
    graph = path(**{name: WHOLE[name] for name in kept})
    assert lacks.lacking(graph) == missing
    line = lacks.what_is_missing(graph)
    assert line.startswith(words) and "\n" not in line
    named = line.removeprefix(words).split(": ")[-1].split(" and ")[0].split(", ")
    assert named[0] == "arxiv-like" and len(named) == 3
    columns = {"features": "num_features", "labels": "num_classes", "training split": "num_train"}
    assert all(catalogue.entry(name)[columns[part]] for name in named for part in missing)


def test_a_whole_graph_gets_no_line():
    assert lacks.lacking(path(**WHOLE)) == [] and lacks.what_is_missing(path(**WHOLE)) == ""


def test_parts_can_be_chosen():
    graph = path(label=WHOLE["label"])
    assert lacks.what_is_missing(graph, ["labels"]) == ""
    assert lacks.lacking(graph, ["labels", "features"]) == ["features"]
    with pytest.raises(ValueError, match="parts"):
        lacks.lacking(graph, ["edges"])
    assert {"ogbn-arxiv", "musae-facebook"} <= set(lacks.graphs_with(lacks.PARTS))
    assert "ogbl-ddi" not in lacks.graphs_with(["features"])


def test_seeds_are_named_after_where_they_come_from():
    assert lacks.seed_source(path(**WHOLE)) == "training vertices"
    assert lacks.seed_source(path()) == lacks.seed_source(path(splits={"train": []})) == "vertices"


def test_random_features_say_so():
    graph = random_features(path(), 5, seed=1)
    assert graph.feat.shape == (4, 5) and graph.feat.dtype == np.float32
    assert graph.title == "path, random features"
    assert np.array_equal(graph.feat, random_features(path(), 5, seed=1).feat)
    assert not np.array_equal(graph.feat, random_features(path(), 5, seed=2).feat)
    with pytest.raises(ValueError, match="columns"):
        random_features(path(), 0)


def test_the_default_graph_says_what_it_lacks(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LAB_DATASET", "ddi-like")
    lab.load_default(root=tmp_path, scale=0.1)
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and said.endswith("Seeds are drawn from all vertices.\n")
    assert said.startswith("ddi-like (synthetic) has no features, no labels and no training split. ")
