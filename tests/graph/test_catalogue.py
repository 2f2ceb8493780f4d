"""The catalogue: complete, consistent with the papers' tables, and what ``datasets`` says of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnsample_lab.graph import catalogue, datasets
from gnnsample_lab.graph.sources import formats

# Vertices, directed edges, features, classes of PGSampler's table II.
PAPERS = {
    "reddit-like": (232_965, 114_615_892, 602, 41),
    "flickr-like": (89_250, 899_756, 500, 7),
    "arxiv-like": (169_343, 1_166_243, 128, 40),
    "products-like": (2_449_029, 2 * 61_859_140, 100, 47),
    "physics-like": (34_493, 495_924, 8415, 5),
}
# The same as FastGL (table 6), GNNLab, NextDoor and DSP (table 3) round them.
ROUNDED = {
    "yelp-like": (716_847, 13_954_819, 300, 100),
    "papers100M-like": (111e6, 1.61e9, 128, 172),
    "mag-like": (10.1e6, 0.3e9, 100, 8),
    "igb-like": (100e6, 1.2e9, 1024, 19),
    "twitter-like": (41.7e6, 1.5e9, 256, None),
    "uk-like": (77.7e6, 3.0e9, 256, None),
    "ppi-like": (50e3, 1.4e6, None, None),
    "orkut-like": (3e6, 117e6, None, None),
    "patents-like": (3.77e6, 16.5e6, None, None),
    "livejournal-like": (4.8e6, 68.9e6, None, None),
    "friendster-like": (65.6e6, 3.6e9, 256, None),
}
TRAIN = {"products-like": 197e3, "papers100M-like": 1.2e6, "twitter-like": 417e3, "uk-like": 1.0e6}


@pytest.mark.parametrize("name", PAPERS)
def test_exact_sizes(name):
    entry = catalogue.entry(name)
    keys = ("num_nodes", "num_edges", "num_features", "num_classes")
    assert tuple(entry.get(k) for k in keys) == PAPERS[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_sizes(name):
    entry = catalogue.entry(name)
    for key, value in zip(("num_nodes", "num_edges", "num_features", "num_classes"), ROUNDED[name]):
        if value is not None:
            assert entry[key] == pytest.approx(value, rel=0.03), key


@pytest.mark.parametrize("name", TRAIN)
def test_training_sets_are_as_large_as_in_gnnlab(name):
    assert catalogue.entry(name)["num_train"] == pytest.approx(TRAIN[name], rel=0.02)


def test_entries_are_complete_and_consistent():
    table = catalogue.entries()
    for name, entry in table.items():
        assert entry["licence"] and entry["num_nodes"] > 0, name
        if entry["kind"] in (*formats.KINDS, "snap"):
            assert entry["url"].startswith("https://"), name
        if entry["kind"] in formats.KINDS:
            source = formats.FORMATS[entry["format"]]
            assert source.keys(entry)
            if not entry["url"].endswith(".zip"):  # what is downloaded is what is read
                addresses = formats.addresses(entry)
                assert all(url.startswith("https://") for url in addresses.values()), name
                last = Path(list(addresses)[-1])
                assert last.name in source.keys(entry), name
                assert {f.name for f in source.files(last, entry)} == set(addresses), name
        if entry.get("splits") == "ours":
            assert entry["num_train"] == entry["num_nodes"] * 60 // 100, name
        if "twin" in entry:
            twin = table[entry["twin"]]
            assert twin["kind"] == "synthetic" and twin["num_nodes"] == entry["num_nodes"], name
        if entry["kind"] == "synthetic":
            assert entry["name"].endswith("-like")
            total = sum(entry.get(f"num_{split}", 0) for split in ("train", "valid", "test"))
            assert total <= entry["num_nodes"], name
            assert set(entry["version_2"]) - {"split_classes"} == {
                "same",
                "dst_power",
                "src_power",
                "dst_flat",
                "src_flat",
                "oversample",
            }
            if not entry["directed"]:
                assert entry["num_edges"] % 2 == 0, name


def test_datasets_is_a_table_that_knows_what_is_here(data_root, tmp_path):
    frame = datasets(data_root)
    assert set(frame["name"]) == set(catalogue.entries()) and list(frame.index) == list(frame["name"])
    assert frame.loc["ogbl-ddi", "local"].endswith("ogbl_ddi")
    assert frame.loc["snap:soc-Epinions1", "local"].endswith("soc-Epinions1.txt.gz")
    assert frame.loc["arxiv-like", "local"] == "generated"
    assert frame.loc["musae-twitch-de", "local"].endswith("snap/musae/DE")
    assert frame.loc["ogbn-products", "num_edges"] == 123_718_280
    assert (datasets(tmp_path).query("kind == 'ogb'")["local"] == "").all()
    assert "GNNLab T3" in frame.loc["uk-like", "papers"]


def test_datasets_says_whose_the_splits_are(data_root):
    splits = datasets(data_root)["splits"]
    assert splits["ogbn-arxiv"] == splits["cora"] == splits["flickr"] == splits["amazon"] == "source"
    assert splits["physics"] == splits["cora-full"] == splits["musae-git"] == "ours"
    assert splits["arxiv-like"] == "generated"
    assert splits["ogbl-ddi"] == splits["snap:soc-Epinions1"] == splits["rmat"] == ""


# Vertices, directed edges, features, classes as PyTorch Geometric's documentation lists them for the same files.
LISTED = {
    "cora": (2_708, 10_556, 1_433, 7),
    "citeseer": (3_327, 9_104, 3_703, 6),
    "pubmed": (19_717, 88_648, 500, 3),
    "cora-full": (19_793, 126_842, 8_710, 70),
    "coauthor-cs": (18_333, 163_788, 6_805, 15),
    "physics": (34_493, 495_924, 8_415, 5),
    "amazon-computers": (13_752, 491_722, 767, 10),
    "amazon-photo": (7_650, 238_162, 745, 8),
    "flickr": (89_250, 899_756, 500, 7),
    "yelp": (716_847, 13_954_819, 300, 100),
    "amazon": (1_569_960, 264_339_468, 200, 107),
}


@pytest.mark.parametrize("name", LISTED)
def test_sizes_are_those_that_are_known_of_the_files(name):
    entry = catalogue.entry(name)
    assert tuple(entry[k] for k in ("num_nodes", "num_edges", "num_features", "num_classes")) == LISTED[name]


def test_datasets_writes_nothing(tmp_path):
    datasets(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
