"""Reddit, GraphSAINT's folders and gnn-benchmark's archives, in small copies that the tests write."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

from gnnsample_lab.graph import CorruptDataError, DatasetNotFoundError, catalogue, load
from gnnsample_lab.graph.sources import formats

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


@pytest.mark.parametrize("name", ["flickr", "yelp", "amazon"])
@pytest.mark.parametrize("folder", ["{name}/raw", "GraphSAINT/data/{name}", "graphsaint/{name}"])
def test_graphsaint_folders_that_tools_make(tmp_path, name, folder):
    place = tmp_path / folder.format(name=name)
    write_graphsaint(place, {str(v): v % 2 if name == "flickr" else [0, 1, v % 2] for v in range(4)})
    (place / "adj_train.npz").write_bytes(b"follows from the rest and is not read")
    g = load(name, tmp_path, download=False)
    assert g.num_edges == 5 and g.num_classes == (2 if name == "flickr" else 3)


def test_coauthor_is_undirected_and_its_object_arrays_stay_unread(tmp_path):
    write_coauthor(tmp_path / "physics" / "ms_academic_phy.npz")
    g = load("physics", tmp_path)
    assert pairs(g) == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]
    assert g.feat.shape == (4, 6) and g.feat[2].tolist() == [1, 0, 1, 0, 0, 0] and g.feat[0, 5] == 1
    assert g.label.tolist() == [4, 0, 1, 1]
    # The source defines no splits: 60, 20 and 20 percent of four vertices, drawn by the seed.
    assert [len(g.splits[s]) for s in ("train", "valid", "test")] == [2, 1, 1]
    assert sorted(np.concatenate(list(g.splits.values())).tolist()) == [0, 1, 2, 3]
    drawn = {tuple(load("physics", tmp_path, seed=s).splits["train"].tolist()) for s in range(20)}
    assert len(drawn) > 3 and all(a < b for a, b in drawn)


@pytest.mark.parametrize(
    "name, file",
    [
        ("cora-full", "cora_full"), ("coauthor-cs", "ms_academic_cs"), ("physics", "ms_academic_phy"),
        ("amazon-computers", "amazon_electronics_computers"), ("amazon-photo", "amazon_electronics_photo"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("folder", ["{name}", "npz/{name}", "npz", "gnn-benchmark/data/npz", "{name}/raw"])
def test_gnn_benchmark_files_are_found_by_their_names(tmp_path, name, file, folder):
    path = tmp_path / folder.format(name=name) / f"{file}.npz"
    write_coauthor(path)
    (path.parent / "another.npz").write_bytes(b"not for this name")
    g = load(name, tmp_path, download=False)
    assert g.num_edges == 6 and g.name == name and g.feat.shape == (4, 6)


def test_a_single_archive_of_another_name_is_found_in_its_own_folder_only(tmp_path):
    write_coauthor(tmp_path / "npz" / "renamed.npz")
    with pytest.raises(DatasetNotFoundError, match="'amazon-photo' was not found"):
        load("amazon-photo", tmp_path, download=False)
    write_coauthor(tmp_path / "amazon-photo" / "renamed.npz")
    assert load("amazon-photo", tmp_path, download=False).num_edges == 6


def test_gnn_benchmark_archives_with_dense_features_no_features_and_several_labels(tmp_path):
    path = tmp_path / "amazon-photo" / "amazon_electronics_photo.npz"
    write_coauthor(path)
    none = dict.fromkeys(("attr_data", "attr_indices", "attr_indptr", "attr_shape"))
    change_npz(path, **none, attr_matrix=np.arange(12).reshape(4, 3))
    assert load("amazon-photo", tmp_path).feat.tolist() == np.arange(12).reshape(4, 3).tolist()
    change_npz(path, attr_matrix=None)
    assert load("amazon-photo", tmp_path).feat is None
    change_npz(
        path, labels=None, labels_data=np.ones(3), labels_indices=np.array([0, 1, 1]),
        labels_indptr=np.array([0, 2, 2, 3, 3]), labels_shape=np.array([4, 2]),
    )  # fmt: skip
    g = load("amazon-photo", tmp_path)
    assert g.label.tolist() == [[1, 1], [0, 0], [0, 1], [0, 0]]
    assert sorted(np.concatenate(list(g.splits.values())).tolist()) == [0, 1, 2, 3]
    change_npz(path, attr_matrix=np.ones((3, 2)))
    with pytest.raises(CorruptDataError, match="'attr_matrix' .*must have shape .4, any. .got .3, 2"):
        load("amazon-photo", tmp_path)


def test_amazon_is_four_files_the_key_file_last(tmp_path, server, monkeypatch):
    write_graphsaint(tmp_path / "made", {str(v): [0.0, float(v % 2), 0.0] for v in range(4)})
    entry = catalogue.entries()["amazon"]
    assert sorted(entry["files"]) == sorted(p.name for p in (tmp_path / "made").iterdir())
    urls = {p.name: server.add(f"/{p.name}", p.read_bytes()) for p in (tmp_path / "made").iterdir()}
    table = {**catalogue.entries(), "amazon": {**entry, "files": urls}}
    monkeypatch.setattr(catalogue, "entries", lambda: table)
    assert list(formats.addresses(table["amazon"]))[-1] == "adj_full.npz"
    g = load("amazon", tmp_path / "root", progress=False)
    assert g.label.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert pairs(g) == sorted(zip(SRC.tolist(), DST.tolist())) and g.splits["test"].tolist() == [3]
    assert load("amazon", tmp_path / "root", download=False).digest() == g.digest()


def test_features_of_graphsaint_are_rounded_as_a_whole_conversion_would(tmp_path):
    write_graphsaint(tmp_path / "flickr", CLASSES)
    feat = np.random.default_rng(0).normal(size=(4, 7))
    np.save(tmp_path / "flickr" / "feats.npy", feat)
    assert np.array_equal(load("flickr", tmp_path).feat, feat.astype(np.float32))


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


def change_npz(path, **changes):
    with np.load(path, allow_pickle=True) as stored:
        arrays = {name: value for name, value in {**stored, **changes}.items() if value is not None}
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("file", "changes", "match"),
    [
        ("graph", {"row": SRC - 1}, r"'row' .*must hold ids in \[0, 4\) .got -1 at position 0"),
        ("graph", {"col": DST + 2**32}, r"'col' .*must hold ids in \[0, 4\) .got 4294967297 at position 0"),
        ("graph", {"row": SRC + 0.5}, r"'row' .*must hold integers .got dtype float64"),
        ("graph", {"col": DST[:4]}, r"'col' .*must have shape .5. .got .4,"),
        ("graph", {"col": None}, "has no array 'col'"),
        ("graph", {"shape": np.array([4, 5])}, r"must hold a square matrix .got shape .4, 5"),
        ("graph", {"shape": np.array([2**60, 2**60])}, "states 1,152,.* more than fit in memory"),
        ("graph", {"shape": np.array([-4, -4])}, "states -4 vertices"),
        ("graph", {"format": np.bytes_("csc")}, "must be in format coo or csr .got 'csc'"),
        ("data", {"label": np.array([1, 0, 2, 1.5])}, r"must be whole numbers .got 1.5 for vertex 3"),
        ("data", {"label": np.array([1, 0, 2, 41])}, r"must lie in \[0, 41\) .got 41 for vertex 3"),
        ("data", {"label": np.array(["a"] * 4)}, "'label' .*must hold numbers"),
        ("data", {"label": np.array([1, 0, 2])}, "must have a label for each of 4 vertices"),
        ("data", {"node_types": np.array([1, 3, 1, 7])}, r"'node_types' .*must hold ids in \[0, 4\) .got 7"),
        ("data", {"node_types": np.array([1, 3, 1])}, r"'node_types' .*must have shape .4."),
        ("data", {"feature": np.ones((3, 2))}, r"'feature' .*must have shape .4, any. .got .3, 2"),
        (
            "data",
            {"feature": np.ones(4, dtype=complex)},
            "'feature' .*must hold numbers .got dtype complex128",
        ),
        ("data", {"feature": np.array([{}] * 4)}, "'feature' .*holds Python objects"),
    ],
)
def test_reddit_that_disagrees_with_itself(tmp_path, file, changes, match):
    write_reddit(tmp_path / "reddit")
    change_npz(tmp_path / "reddit" / f"reddit_{file}.npz", **changes)
    with pytest.raises(
        CorruptDataError, match=rf"reddit_{file}\.npz.*" if match is None else match
    ) as caught:
        load("reddit", tmp_path)
    assert f"reddit_{file}.npz" in str(caught.value)


CLASSES = {str(v): v % 2 for v in range(4)}


@pytest.mark.parametrize(
    ("file", "content", "match"),
    [
        ("class_map.json", {**CLASSES, "3": 1.5}, "must be whole numbers .got 1.5 for vertex 3"),
        ("class_map.json", {**CLASSES, "3": "1"}, "must hold class numbers"),
        ("class_map.json", {**CLASSES, "3": [1, 0]}, "inhomogeneous|sequence"),
        ("class_map.json", {**CLASSES, "3": 7}, r"must lie in \[0, 7\) .got 7 for vertex 3"),
        ("class_map.json", {**CLASSES, "3": None}, "must hold class numbers"),
        ("class_map.json", {**CLASSES, "4": 0}, "it has 5 entries, the graph 4 vertices"),
        ("class_map.json", {"a": 0, "b": 1, "c": 0, "d": 1}, "no entry '0'"),
        ("class_map.json", [0, 1, 0, 1], "it must hold a dict, got a list"),
        (
            "role.json",
            {"tr": [2, 0], "va": [1], "te": [1]},
            "vertex 1 of split 'test' is in split 'valid' too",
        ),
        ("role.json", {"tr": [2, 2], "va": [1], "te": [3]}, "vertex 2 is in split 'train' twice"),
        ("role.json", {"tr": [2, 0], "va": [1], "te": [4]}, r"must hold ids in \[0, 4\) .got 4"),
        ("role.json", {"tr": [2, 0], "va": [1], "te": [-1]}, r"must hold ids in \[0, 4\) .got -1"),
        ("role.json", {"tr": [2, 0.5], "va": [1], "te": [3]}, "must be a list of integers"),
        ("role.json", {"tr": [True, False], "va": [], "te": [3]}, "must be a list of integers"),
        ("role.json", {"tr": [[2], [0]], "va": [1], "te": [3]}, "must be a list of integers"),
        ("role.json", {"tr": 7, "va": [1], "te": [3]}, "must be a list of integers"),
        ("role.json", {"tr": [2, 0], "va": [1]}, "no entry 'te'"),
        ("role.json", {"tr": [2**70], "va": [1], "te": [3]}, "must be a list of integers"),
    ],
)
def test_graphsaint_that_disagrees_with_itself(tmp_path, file, content, match):
    write_graphsaint(tmp_path / "flickr", CLASSES)
    (tmp_path / "flickr" / file).write_text(json.dumps(content))
    with pytest.raises(CorruptDataError, match=match) as caught:
        load("flickr", tmp_path)
    assert file in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"adj_indptr": np.array([0, 1, 0, 4, 5])},
            "'adj_indptr' .*must rise from 0 to the number of entries, 5",
        ),
        ({"adj_indptr": np.array([0, 1, 3, 4, 4])}, "'adj_indptr' .*must rise from 0"),
        ({"adj_indptr": np.array([0, 1, 3, 5])}, r"'adj_indptr' .*must have shape .5."),
        ({"adj_indices": np.array([1, 0, 2, 1, -2])}, r"'adj_indices' .*must hold ids in \[0, 4\) .got -2"),
        ({"adj_indices": np.array([1, 0, 2, 1, 4])}, r"'adj_indices' .*must hold ids in \[0, 4\) .got 4"),
        ({"adj_shape": np.array([5, 5])}, r"'adj_indptr' .*must have shape .6."),
        ({"adj_shape": np.array([4, 5])}, "'adj_shape' .*must be of a square matrix"),
        ({"attr_shape": np.array([5, 6])}, "'attr_shape' .*must have 4 rows, as 'adj_shape' says .got 5"),
        ({"labels": None}, "has no array 'labels'"),
        ({"attr_shape": np.array([4, 2**50])}, "states .* features, more than fit in memory"),
        ({"attr_indices": np.array([5, 0, 6])}, r"'attr_indices' .*must hold ids in \[0, 6\) .got 6"),
        ({"attr_data": np.ones(2)}, r"'attr_data' .*must have shape .3."),
        ({"labels": np.array([4, 0, 1, 5])}, r"must lie in \[0, 5\) .got 5 for vertex 3"),
    ],
)
def test_coauthor_that_disagrees_with_itself(tmp_path, changes, match):
    path = tmp_path / "physics" / "ms_academic_phy.npz"
    write_coauthor(path)
    change_npz(path, **changes)
    with pytest.raises(CorruptDataError, match=match) as caught:
        load("physics", tmp_path)
    assert path.name in str(caught.value)


def write_features(folder, kind, feat):
    """A data set of that kind with these features of four vertices; its name."""
    if kind == "reddit":
        write_reddit(folder / kind)
        change_npz(folder / kind / "reddit_data.npz", feature=feat)
    elif kind == "flickr":
        write_graphsaint(folder / kind, CLASSES)
        np.save(folder / kind / "feats.npy", feat)
    else:
        path = folder / "physics" / "ms_academic_phy.npz"
        write_coauthor(path)
        if kind == "dense":
            change_npz(path, attr_matrix=feat, **dict.fromkeys(["attr_data", "attr_shape"]))
        else:
            change_npz(
                path, attr_data=feat.ravel(), attr_shape=np.array([4, 2]),
                attr_indptr=np.arange(0, 9, 2), attr_indices=np.array([0, 1] * 4),
            )  # fmt: skip
        return "physics"
    return kind


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("reddit", r"'feature' of .*reddit_data\.npz"), ("flickr", r"feats\.npy"),
        ("dense", r"'attr_matrix' of .*ms_academic_phy\.npz"), ("rows", r"'attr_data' of .*ms_academic_phy\.npz"),
    ],
)  # fmt: skip
def test_features_that_32_bits_do_not_hold_are_named(tmp_path, kind, where):
    """They became infinite, and whole numbers others, without a word."""
    feat = np.array([[1, 2], [3, np.inf], [5, 6], [7, 1e39]])
    with pytest.raises(CorruptDataError, match=rf"{where} must fit 32 bits .got 1e\+39.; remove"):
        load(write_features(tmp_path / "far", kind, feat), tmp_path / "far")
    whole = np.full((4, 2), 2**24 + 1)
    with pytest.warns(
        UserWarning, match=rf"{where}: whole numbers beyond 2..24 are rounded .*16777217 among"
    ):
        g = load(write_features(tmp_path / "whole", kind, whole), tmp_path / "whole")
    assert g.feat.tolist() == [[2**24] * 2] * 4


def test_arrays_in_column_order_are_read_as_they_are(tmp_path):
    write_reddit(tmp_path / "reddit")
    feat = np.arange(8.0).reshape(4, 2)
    change_npz(tmp_path / "reddit" / "reddit_data.npz", feature=np.asfortranarray(feat))
    assert np.array_equal(load("reddit", tmp_path).feat, feat)


def test_a_header_that_claims_more_than_there_is_takes_no_memory(tmp_path):
    write_graphsaint(tmp_path / "flickr", CLASSES)
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "<f8", "fortran_order": False, "shape": (4, 2**40)}
    )
    (tmp_path / "flickr" / "feats.npy").write_bytes(buffer.getvalue() + bytes(64))
    with pytest.raises(
        CorruptDataError, match=r"feats\.npy must have 35,184,372,088,832 bytes by its header .got 64"
    ):
        load("flickr", tmp_path)
