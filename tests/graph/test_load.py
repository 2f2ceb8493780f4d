"""``load`` and the notebooks' ``load_default``: arguments, names, and when a twin stands in."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest

from gnnsample_lab.device.runtime import cuda_available
from gnnsample_lab.graph import (
    DatasetNotFoundError,
    DownloadError,
    UnknownDatasetError,
    catalogue,
    load,
    load_default,
    load_or_twin,
)
from gnnsample_lab.graph import load as load_function
from gnnsample_lab.graph.load import fetch as real_fetch
from gnnsample_lab.graph.sources import ogb as ogb_source
from gnnsample_lab.graph.twins import recipes
from gnnsample_lab.graph.twins import twin as twins

SMALL = 0.01


@pytest.fixture
def no_network(monkeypatch):
    """Every download fails as it does without a network."""
    import sys

    module = sys.modules["gnnsample_lab.graph.load"]
    assert module.fetch is real_fetch

    def fail(url, *args, **kwargs):
        raise DownloadError(f"downloading {url} failed: no network")

    monkeypatch.setattr(module, "fetch", fail)


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"name": 3}, TypeError, "name must be a string"),
        ({"scale": 0}, ValueError, "scale must be finite and above 0"),
        ({"scale": float("nan")}, ValueError, "scale must be finite"),
        ({"scale": "big"}, TypeError, "scale must be a number"),
        ({"seed": -1}, ValueError, "seed must be between 0 and"),
        ({"seed": 1.5}, TypeError, "seed must be an integer"),
        ({"seed": 2**64}, ValueError, "seed must be between 0 and"),
        ({"features": "some"}, ValueError, "features must be True, False, 'auto' or 'raw'"),
        ({"device": "tpu"}, ValueError, "device must be"),
        ({"root": 7}, TypeError, "root must be a path"),
        ({"undirected": "no"}, TypeError, "undirected must be True or False"),
        ({"undirected": True}, ValueError, "undirected must be None for 'arxiv-like'"),
        ({"name": "ogbl-ddi", "scale": 2}, ValueError, "scale must be 1 for 'ogbl-ddi'"),
        ({"version": 1}, ValueError, "version must be between 2 and 3"),
        ({"version": 4}, ValueError, "version must be between 2 and 3"),
        ({"version": "2"}, TypeError, "version must be an integer"),
        (
            {"name": "ogbl-ddi", "version": 2},
            ValueError,
            "version must be 3, the default, for 'ogbl-ddi', which is no twin",
        ),
        ({"name": "rmat", "version": 2}, ValueError, "version must be 3, the default, for 'rmat'"),
        (
            {"name": "arxiv-liek"},
            UnknownDatasetError,
            "'arxiv-liek' is no known dataset .did you mean 'arxiv-like'",
        ),
        ({"name": "arxiv-liek"}, LookupError, "datasets.. lists them"),
    ],
)
def test_bad_arguments_are_errors_that_name_them(kwargs, error, match):
    with pytest.raises(error, match=match):
        load(**{"name": "arxiv-like", **kwargs})


@pytest.mark.skipif(cuda_available(), reason="checks machines without a GPU")
def test_cuda_without_a_gpu_is_an_error_even_from_the_variable(monkeypatch, tmp_path):
    with pytest.raises(RuntimeError, match="device='cuda' was asked for"):
        load("arxiv-like", tmp_path, scale=SMALL, device="cuda")
    monkeypatch.setenv("LAB_DEVICE", "cuda")
    with pytest.raises(RuntimeError, match="LAB_DEVICE='cuda' was asked for"):
        load("arxiv-like", tmp_path, scale=SMALL, device="auto")


def test_load_stays_a_function_beside_its_module():
    assert callable(load_function)


def test_an_explicit_dataset_is_never_replaced(no_network, tmp_path, monkeypatch):
    with pytest.raises(DownloadError, match="no network"):
        load("ogbn-arxiv", tmp_path)
    with pytest.raises(DatasetNotFoundError):
        load("ogbn-arxiv", tmp_path, download=False)
    with pytest.raises(DownloadError):
        load_default("ogbn-arxiv", tmp_path)
    monkeypatch.setenv("LAB_DATASET", "ogbn-arxiv")
    with pytest.raises(DownloadError):
        load_default(root=tmp_path)
    with pytest.raises(DownloadError):
        load_or_twin("ogbn-arxiv", tmp_path)


def test_the_default_falls_back_to_its_twin_and_says_so(no_network, tmp_path, recwarn, capsys):
    g = load_default(root=tmp_path, scale=SMALL)
    said = capsys.readouterr().out
    assert re.fullmatch(
        r"ogbn-arxiv is not here \(.*no network.*\); using its synthetic twin arxiv-like instead\n", said
    )
    assert not recwarn.list, "a notebook shows warnings in pink"
    assert g.is_synthetic and g.title == "arxiv-like (synthetic)"
    load_default(root=tmp_path, scale=SMALL, progress=False)
    assert capsys.readouterr().out == ""
    with pytest.warns(UserWarning, match="epinions-like"):
        g = load_or_twin("snap:soc-Epinions1", tmp_path, scale=SMALL)
    assert g.name == "epinions-like"


def test_the_version_is_the_twins(no_network, tmp_path, data_root, monkeypatch):
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    old = load("epinions-like", tmp_path, scale=SMALL, version=2)
    new = load("epinions-like", tmp_path, scale=SMALL)
    assert (old.version, new.version) == (2, 3) and old.digest() != new.digest()
    assert load("epinions-like", tmp_path, scale=SMALL, version=3).digest() == new.digest()
    with pytest.warns(UserWarning, match="epinions-like"):
        g = load_or_twin("snap:soc-Epinions1", tmp_path, scale=SMALL, version=2)
    assert g.version == 2 and g.digest() == old.digest()
    assert load_default("epinions-like", tmp_path, scale=SMALL, version=2).digest() == old.digest()
    assert load_default("epinions-like", tmp_path, scale=SMALL).version == 3
    assert load_default(root=tmp_path, scale=SMALL, version=2).version == 2
    # Like the scale, the version of a twin says nothing to a real graph.
    assert load_default("ogbl-ddi", data_root, version=2).version is None
    assert load_or_twin("ogbl-ddi", data_root, version=2).version is None
    for call in (load_or_twin, load_default):
        with pytest.raises(ValueError, match="version must be between 2 and 3"):
            call("ogbl-ddi", data_root, version=1)


def test_both_versions_of_a_twin_are_cached_side_by_side(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    for version in (2, 3, 2, 3):
        made = load("epinions-like", tmp_path, scale=SMALL, version=version)
        again = load("epinions-like", tmp_path, scale=SMALL, version=version)
        assert isinstance(again.indices, np.memmap) and again.digest() == made.digest()
        assert again.version == made.version == version


def test_a_cached_twin_is_made_again_when_its_statistics_change(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    before = load("flickr-like", tmp_path, scale=SMALL)
    changed = copy.deepcopy(recipes.stored("flickr-like"))
    changed["labels"]["purity"] = [65536 - p for p in changed["labels"]["purity"]]
    monkeypatch.setattr(recipes, "stored", lambda name: changed)
    after = load("flickr-like", tmp_path, scale=SMALL)
    assert not np.array_equal(after.label, before.label)
    assert np.array_equal(after.indices, before.indices)


@pytest.mark.parametrize(("name", "free"), [("yelp-like", 2**27), ("papers100M-like", 20 * 2**30)])
def test_a_twin_that_does_not_fit_names_a_scale_that_does(name, free, tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    monkeypatch.setattr(twins, "free_host_bytes", lambda: free)
    num_nodes = f"{catalogue.entry(name)['num_nodes']:,}"
    with pytest.raises(MemoryError, match=rf"generating {num_nodes} vertices .* or less") as refused:
        load(name, tmp_path)
    fits = float(re.search(r"pass scale=([0-9.e-]+) or less", str(refused.value)).group(1))
    assert 0 < fits < 1

    class Begun(Exception):
        pass

    def begin(*args):
        raise Begun

    monkeypatch.setattr(twins, "_generate", begin)
    with pytest.raises(Begun):
        load(name, tmp_path, scale=fits)
    with pytest.raises(MemoryError):
        load(name, tmp_path, scale=3 * fits)
    monkeypatch.setattr(twins, "free_host_bytes", lambda: 2**20)
    with pytest.raises(MemoryError, match="no scale fits"):
        load(name, tmp_path)


def test_an_unwritable_root_falls_back_too(unwritable, capsys):
    assert load_default(root=unwritable, scale=SMALL).is_synthetic
    assert re.search("cannot be written to.*arxiv-like", capsys.readouterr().out)


def test_the_real_graph_is_taken_when_it_is_there(no_network, tmp_path, ogb_folders, recwarn):
    ogb_folders.node_property(tmp_path / "ogb" / "ogbn_arxiv")
    g = load_default(root=tmp_path, scale=SMALL)
    assert g.name == "ogbn-arxiv" and not g.is_synthetic and not recwarn.list


def test_damaged_data_is_reported_and_not_replaced(no_network, tmp_path, ogb_folders):
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    ogb_folders.node_property(folder)
    (folder / "raw" / "edge.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(ValueError, match=r"edge.csv.gz"):
        load_default(root=tmp_path, scale=SMALL)


def test_a_dataset_without_a_twin_reports_its_own_error(no_network, tmp_path):
    with pytest.raises(DownloadError):
        load_or_twin("ogbl-ppa", tmp_path)


def test_the_variable_chooses_the_dataset(tmp_path, data_root, monkeypatch):
    monkeypatch.setenv("LAB_DATASET", "ogbl-ddi")
    monkeypatch.setenv("LAB_DATA_ROOT", str(data_root))
    assert load_default().num_nodes == 4267  # scale is for twins: a real graph is loaded whole
    assert load_default(scale=0.5).num_nodes == 4267
    assert load_default("epinions-like", scale=SMALL).name == "epinions-like"


def test_twins_are_cached_by_everything_that_decides_them(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    g = load("flickr-like", tmp_path, scale=SMALL)
    again = load("flickr-like", tmp_path, scale=SMALL)
    assert isinstance(again.indices, np.memmap) and again.digest() == g.digest()
    digests = {
        g.digest(), load("flickr-like", tmp_path, scale=2 * SMALL).digest(),
        load("flickr-like", tmp_path, scale=SMALL, seed=1).digest(),
        load("flickr-like", tmp_path, scale=SMALL, features=False).digest(),
        load("flickr-like", tmp_path, scale=SMALL, weighted=True).digest(),
    }  # fmt: skip
    assert len(digests) == 5
    fresh = load("flickr-like", tmp_path, scale=SMALL, use_cache=False)
    assert not isinstance(fresh.indices, np.memmap) and fresh.digest() == g.digest()


def test_raw_features_of_other_graphs_are_their_features(tmp_path, data_root, monkeypatch):
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    assert load("flickr-like", tmp_path, scale=SMALL, features="raw").digest() == (
        load("flickr-like", tmp_path, scale=SMALL, features=True).digest()
    )
    assert load("ogbl-ddi", data_root, features="raw").feat is None


def test_weights_and_features_of_real_graphs(data_root, tmp_path, ogb_folders):
    ogb_folders.node_property(tmp_path / "ogbn-arxiv")
    g = load("ogbn-arxiv", tmp_path, features=False, weighted=True, seed=3)
    assert g.feat is None and g.edge_weight.shape == (80,)
    assert bool(((g.edge_weight >= 1) & (g.edge_weight < 5)).all())
    assert load("ogbn-arxiv", tmp_path, weighted=True, seed=4).edge_weight.tolist() != g.edge_weight.tolist()
    assert ogb_source.master()["ogbn-arxiv"].num_classes == g.num_classes
