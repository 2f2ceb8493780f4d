"""Reddit, Flickr/Yelp and Coauthor archives, in small copies that the tests write."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

from gnnsample_lab.graph import CorruptDataError, DatasetNotFoundError, catalogue, load

SRC = np.array([0, 1, 1, 3, 2])
DST = np.array([1, 0, 2, 2, 1])


def pairs(g):
    src, dst = g.edges()
    return sorted(zip(src.tolist(), dst.tolist()))


def write_reddit(folder):
    folder.mkdir(parents=True)
    np.savez(
        folder / "reddit_graph.npz",
        row=SRC,
        col=DST,
        data=np.ones(5),
        shape=np.array([4, 4]),
        format=np.bytes_("coo"),
    )
    np.savez(
        folder / "reddit_data.npz", feature=np.arange(8.0).reshape(4, 2), label=np.array([1, 0, 2, 1]),
        node_types=np.array([1, 3, 1, 2]), node_ids=np.arange(4),
    )  # fmt: skip


def write_graphsaint(folder, classes):
    folder.mkdir(parents=True)
    order = np.lexsort((DST, SRC))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(SRC, minlength=4))])
    np.savez(
        folder / "adj_full.npz", indptr=indptr, indices=DST[order], data=np.ones(5), shape=np.array([4, 4]),
        format=np.bytes_("csr"),
    )  # fmt: skip
    np.save(folder / "feats.npy", np.ones((4, 3)))
    (folder / "class_map.json").write_text(json.dumps(classes))
    (folder / "role.json").write_text(json.dumps({"tr": [2, 0], "va": [1], "te": [3]}))


def write_coauthor(path):
    path.parent.mkdir(parents=True)
    order = np.lexsort((DST, SRC))
    np.savez(
        path, adj_indptr=np.concatenate([[0], np.cumsum(np.bincount(SRC, minlength=4))]),
        adj_indices=DST[order], adj_data=np.ones(5), adj_shape=np.array([4, 4]),
        labels=np.array([4, 0, 1, 1]), attr_shape=np.array([4, 6]),
        attr_indptr=np.array([0, 1, 1, 3, 3]), attr_indices=np.array([5, 0, 2]), attr_data=np.ones(3),
        node_names=np.array(["a", {"an": "object"}], dtype=object),
    )  # fmt: skip


def test_reddit(tmp_path):
    write_reddit(tmp_path / "reddit")
    g = load("reddit", tmp_path, download=False)
    assert pairs(g) == sorted(zip(SRC.tolist(), DST.tolist())) and g.feat[1].tolist() == [2, 3]
    assert g.label.tolist() == [1, 0, 2, 1] and g.num_classes == 3
    assert {k: v.tolist() for k, v in g.splits.items()} == {"train": [0, 2], "valid": [3], "test": [1]}


def test_flickr_and_yelp(tmp_path):
    write_graphsaint(tmp_path / "flickr" / "raw", {str(v): v % 2 for v in range(4)})
    write_graphsaint(tmp_path / "npz" / "yelp", {str(v): [1, v % 2, 0] for v in range(4)})
    g = load("flickr", tmp_path)
    assert pairs(g) == sorted(zip(SRC.tolist(), DST.tolist()))
    assert g.label.tolist() == [0, 1, 0, 1] and g.splits["train"].tolist() == [2, 0]
    many = load("yelp", tmp_path)
    assert many.label.tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 0]] and many.num_classes == 3


def test_coauthor_is_undirected_and_its_object_arrays_stay_unread(tmp_path):
    write_coauthor(tmp_path / "physics" / "ms_academic_phy.npz")
    g = load("physics", tmp_path)
    assert pairs(g) == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]
    assert g.feat.shape == (4, 6) and g.feat[2].tolist() == [1, 0, 1, 0, 0, 0] and g.feat[0, 5] == 1
    assert g.label.tolist() == [4, 0, 1, 1] and g.splits == {}


def test_a_zip_is_downloaded_and_unpacked(tmp_path, server, monkeypatch):
    write_reddit(tmp_path / "made")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in (tmp_path / "made").iterdir():
            archive.write(path, path.name)
    url = server.add("/reddit.zip", buffer.getvalue())
    table = {**catalogue.entries(), "reddit": {**catalogue.entries()["reddit"], "url": url}}
    monkeypatch.setattr(catalogue, "entries", lambda: table)
    with pytest.raises(DatasetNotFoundError, match="'reddit' was not found"):
        load("reddit", tmp_path / "root", download=False)
    assert load("reddit", tmp_path / "root", progress=False).num_edges == 5
    assert not (tmp_path / "root" / "reddit.zip").exists()


def test_damaged_and_pickled_files_are_errors(tmp_path):
    write_reddit(tmp_path / "reddit")
    path = tmp_path / "reddit" / "reddit_data.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    with pytest.raises(CorruptDataError, match=r"reddit_data\.npz is cut off or damaged.*remove .*reddit to"):
        load("reddit", tmp_path)
    path.write_bytes(pickle.dumps({"feature": 1}))
    with pytest.raises(CorruptDataError, match=r"reddit_data\.npz is cut off or damaged"):
        load("reddit", tmp_path)
    path.unlink()
    with pytest.raises(CorruptDataError, match=r"reddit_data\.npz does not exist: .* is incomplete"):
        load("reddit", tmp_path)
