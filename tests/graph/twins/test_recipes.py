"""Recipes: what is stored about the catalogue's twins fits the catalogue and says where it comes from."""

import json

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench.suites.twins import judge, published
from gnnsample_lab.graph import catalogue
from gnnsample_lab.graph.twins import families, recipes
from gnnsample_lab.graph.twins.plan import ONE
from gnnsample_lab.graph.twins.recipes import stored
from gnnsample_lab.resources import resource_path

NAMES = recipes.twins()
STARTS = ("published: ", "measured on the graph", "assumed: ", "fitted to ")
PARAMETERS = ("num_nodes", "num_edges", "degrees", "clustering", "cliques", "clique_share", "mixing")


def test_every_twin_of_the_catalogue_has_a_recipe_or_its_graph_is_here():
    assert set(NAMES) == set(recipes.RECIPES) | set(recipes.MEASURED)
    assert not set(recipes.RECIPES) & set(recipes.MEASURED)


@pytest.mark.parametrize("name", NAMES)
def test_stored_statistics_have_the_counts_of_the_catalogue(name):
    made, entry = stored(name), catalogue.entry(name)
    assert made["name"] == name and made["num_nodes"] == entry["num_nodes"]
    assert made["num_edges"] == entry["num_edges"] and made["directed"] == entry["directed"]
    pairs = sum(d * c for d, c in made["degrees"]) // 2
    share = made["direction"]["reciprocity"] / ONE if made["directed"] else 1.0
    # Links that go both ways are drawn: their number is that of the reciprocity to about one in a thousand.
    assert pairs * (1 + share) == pytest.approx(entry["num_edges"], rel=1e-3 if made["directed"] else 0)
    assert (made["features"] or {}).get("count", 0) == entry["num_features"]
    assert len((made["labels"] or {}).get("sizes", ())) == entry["num_classes"]
    for part in ("train", "valid", "test"):
        assert (made["training"] or {}).get(part, 0) == entry[f"num_{part}"]
    assert resource_path(f"data/twins/{name}.json").stat().st_size < (
        300_000 if made["directed"] else 150_000
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_a_source(name):
    made = stored(name)
    sources = made["sources"]
    assert all(text.startswith(STARTS) for text in sources.values())
    owners = {key.split(".")[0] for key in sources}
    for key in (*PARAMETERS, "communities"):
        assert key in owners, key
    for key in ("direction", "labels", "features", "training"):
        assert (key in owners) == (made[key] is not None)


@pytest.mark.parametrize("name", NAMES)
def test_at_most_two_published_numbers_are_fitted_and_they_exist(name):
    made = stored(name)
    labels = set(published.labels(name))
    fitted = [label for text in made["sources"].values() for label in judge.fitted_to(text)]
    fitted = [label for label in fitted if "by generating" not in label]
    assert len(set(fitted)) <= judge.FITTED_TO_PUBLISHED
    assert set(fitted) <= labels


# The larger one takes twice as long in the same way.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["flickr-like", pytest.param("arxiv-like", marks=pytest.mark.exhaustive)])
def test_the_command_makes_the_stored_file(name, tmp_path, monkeypatch):
    before = resource_path(f"data/twins/{name}.json").read_text(encoding="utf-8")
    written = []
    monkeypatch.setattr(
        recipes, "write", lambda n, made: written.append((n, made)) or resource_path("data/catalogue.json")
    )
    recipes.main([name])
    assert [n for n, _ in written] == [name]
    made, kept = json.loads(json.dumps(written[0][1])), json.loads(before)
    for key in made:
        if key not in ("cliques", "labels", "features"):
            assert made[key] == kept[key], key
    # Fits by generating end in averages of floats, which may round differently elsewhere.
    assert np.allclose(made["cliques"], kept["cliques"], atol=20)
    for part, key in (("labels", "purity"), ("features", "signal")):
        assert made[part][key] == pytest.approx(kept[part][key], rel=0.01, abs=1)


def test_a_small_twin_comes_out_as_its_file_says():
    made = stored("flickr-like")
    graph = lab.twin(made, device="cpu", features=False)
    entry = catalogue.entry("flickr-like")
    assert (graph.num_nodes, graph.num_edges) == (entry["num_nodes"], entry["num_edges"])
    assert len(graph.splits["train"]) == entry["num_train"] and graph.num_classes == entry["num_classes"]
    src, dst = graph.edges()
    same = float((graph.label[src] == graph.label[dst]).mean())
    assert same == pytest.approx(made["labels"]["homophily"], abs=0.05)


def test_directed_twins_have_the_in_degrees_of_their_law():
    recipe = recipes.RECIPES["arxiv-like"]
    graph = lab.twin(stored("arxiv-like"), scale=0.3, device="cpu", features=False)
    into = np.asarray(graph.in_degrees())
    # A lognormal rounded down has a share of zeros that its spread decides.
    law = recipes._Joint(recipe.into, recipe.out, recipe.together, graph.num_edges / graph.num_nodes, 0.007)
    assert (into == 0).mean() == pytest.approx(float(law.weight[law.into == 0].sum()), abs=0.15)
    assert graph.num_edges == pytest.approx(0.3 * 1_166_243, rel=0.02)


def test_readers_that_nobody_points_to_are_in_the_twin_of_a_graph_with_links_both_ways():
    recipe, made = recipes.RECIPES["patents-like"], stored("patents-like")
    edges = round(1.2 * recipe.pairs)
    joint = recipes._Joint(recipe.into, recipe.out, recipe.together, edges / made["num_nodes"], 0.2)
    made["direction"], made["num_edges"] = joint.direction(made["degrees"], made["mixing"], 0.2), edges
    graph = lab.twin(made, scale=0.01, device="cpu")
    assert graph.num_edges == pytest.approx(0.01 * edges, rel=0.01)
    unread = float(joint.weight[joint.into == 0].sum())
    assert unread > 0.2
    assert np.mean(graph.in_degrees() == 0) == pytest.approx(unread, abs=0.04)


def test_directions_lie_closer_where_more_links_go_both_ways_than_their_laws_leave_room_for():
    law = recipes.Law(1.5, 10_000)
    loose, close = (recipes._Joint(law, law, 0.2, 10.0, share) for share in (0.05, 0.6))
    assert loose.mutual < close.mutual == pytest.approx(0.9, abs=0.01)
    for joint, share in ((loose, 0.05), (close, 0.6)):
        links, both = ((joint.weight * x).sum() for x in (joint.degree, joint.both))
        assert both / links == pytest.approx(share, rel=0.03)


def test_mixing_adds_up_and_leans_as_asked():
    table = families.degree_table("lognormal", 100_000, 12, 900, gini=0.6)
    neutral, leaning = recipes.mixing(table), recipes.mixing(table, 0.1)
    ends = sum(d * c for d, c in table)
    assert np.sum(neutral) == pytest.approx(ends, rel=1e-3) and np.sum(leaning) == pytest.approx(
        ends, rel=1e-3
    )
    low = np.s_[:3], np.s_[:3]
    assert np.array(leaning)[low].sum() > np.array(neutral)[low].sum()


@pytest.mark.parametrize("n", [64, 1_000, 100_000, 111_059_956])
def test_communities_cover_the_graph_once(n):
    parts = recipes.communities(n, recipes.KNOBS)
    assert sum(parts["size"]) == n and min(parts["size"]) >= 2
    assert len(parts["size"]) <= recipes.SMALL_MOST
    assert max(parts["large"]) < len(parts["inside_large"])
    mean = sum(s * x for s, x in zip(parts["size"], parts["level"])) / n
    assert mean == pytest.approx(ONE / 2, rel=0.02)


def test_a_corner_holds_its_share_of_the_vertices():
    n = 1_000_000
    parts = recipes.communities(n, recipes.KNOBS)
    chance = recipes.region(parts, n, 0.05, 0.02)
    size, inside = np.array(parts["size"]), np.array(chance) == ONE
    assert size[inside].sum() == pytest.approx(0.05 * n, rel=0.12)
    held = (size * chance).sum()
    assert (size * chance)[~inside].sum() / held == pytest.approx(0.02, abs=0.01)


def test_training_vertices_have_the_mean_degree_asked_for():
    made = stored("products-like")
    graph = lab.twin(made, scale=0.01, device="cpu", features=False)
    degree = np.asarray(graph.in_degrees())
    ratio = degree[graph.splits["train"]].mean() / degree.mean()
    assert ratio == pytest.approx(recipes.RECIPES["products-like"].train_degree, rel=0.15)


def test_unknown_names_and_knobs_are_refused_by_name():
    with pytest.raises(ValueError, match="'arxiv'"):
        stored("arxiv")
    with pytest.raises(ValueError, match="'nose'"):
        recipes.build("nose")
    with pytest.raises(ValueError, match="knob 'nose' of flickr-like"):
        recipes.build("flickr-like", {"nose": {"value": 1.0, "source": "assumed: nothing"}})
