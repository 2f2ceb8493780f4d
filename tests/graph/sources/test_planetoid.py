"""Cora, Citeseer and Pubmed, in small copies of Planetoid's eight files that the tests write."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from gnnsample_lab.graph import CorruptDataError, DatasetNotFoundError, catalogue, load


def pairs(g):
    src, dst = g.edges()
    return sorted(zip(src.tolist(), dst.tolist()))


def test_the_eight_files_make_a_graph(tmp_path, planetoid_files):
    planetoid_files.write(tmp_path / "cora", "cora")
    g = load("cora", tmp_path, download=False)
    assert pairs(g) == [(0, 1), (0, 2), (1, 0), (1, 9), (2, 0), (7, 8), (8, 7), (9, 1)]
    assert g.num_nodes == 10 and g.num_classes == 3 and g.name == "cora" and not g.is_synthetic
    # test.index is 9, 7, 8: row i of tx and ty is of vertex test.index[i]; vertex 6 is in no file.
    assert g.label.tolist() == [0, 1, 2, 0, 1, 2, -1, 1, 2, 0]
    assert g.feat.dtype == np.float32
    wanted = np.zeros((10, 5), dtype=np.float32)
    for v in (0, 1, 2, 3, 4, 5, 7, 8, 9):
        wanted[v, v % 5] = v + 1
    assert np.array_equal(g.feat, wanted)
    assert {k: v.tolist() for k, v in g.splits.items()} == {
        "train": [0, 1], "valid": [2, 3, 4, 5], "test": [7, 8, 9]
    }  # fmt: skip


def test_public_splits_have_500_vertices_for_validation(tmp_path, planetoid_files):
    many = planetoid_files.parts(known=700, test=tuple(range(700, 710)), train=60)
    planetoid_files.write(tmp_path / "pubmed", "pubmed", **many)
    g = load("pubmed", tmp_path, seed=5)
    assert [len(g.splits[s]) for s in ("train", "valid", "test")] == [60, 500, 10]
    assert g.splits["valid"][0] == 60 and g.splits["valid"][-1] == 559
    assert g.splits["test"].tolist() == list(range(700, 710)), "the source's splits do not follow the seed"


def test_raw_features_are_the_same_here(tmp_path, planetoid_files):
    planetoid_files.write(tmp_path / "cora", "cora")
    assert load("cora", tmp_path, features="raw").digest() == load("cora", tmp_path).digest()
    assert load("cora", tmp_path, features=False).feat is None


@pytest.mark.parametrize(
    "folder", ["citeseer", "npz/citeseer", "citeseer/raw", "planetoid/data", "CiteSeer/raw"]
)
def test_folders_that_tools_make(tmp_path, planetoid_files, folder):
    planetoid_files.write(tmp_path / folder, "citeseer")
    planetoid_files.write(tmp_path / folder, "cora")  # others beside it do not matter
    assert load("citeseer", tmp_path, download=False).num_nodes == 10


def test_eight_files_are_downloaded_the_key_file_last(tmp_path, server, planetoid_files, monkeypatch):
    entry = catalogue.entries()["cora"]
    assert [name.removeprefix("ind.cora.") for name in sorted(entry["files"])] == sorted(
        planetoid_files.parts()
    )
    assert entry["url"] == "https://github.com/kimiyoung/planetoid/raw/master/data/"
    bodies = planetoid_files.parts()
    url = ""
    for part, body in bodies.items():
        if part != "y":
            url = server.add(f"/data/ind.cora.{part}", body).rpartition("/")[0] + "/"
    table = {**catalogue.entries(), "cora": {**entry, "url": url}}
    monkeypatch.setattr(catalogue, "entries", lambda: table)
    with pytest.raises(DatasetNotFoundError, match="'cora' was not found"):
        load("cora", tmp_path / "root", download=False)
    with pytest.raises(OSError, match="404"):
        load("cora", tmp_path / "root", progress=False)
    assert not (tmp_path / "root" / "cora" / "ind.cora.graph").exists()
    with pytest.raises(DatasetNotFoundError):  # what has arrived is not yet a data set
        load("cora", tmp_path / "root", download=False)
    server.add("/data/ind.cora.y", bodies["y"])
    assert load("cora", tmp_path / "root", progress=False).num_nodes == 10
    assert load("cora", tmp_path / "root", download=False).num_nodes == 10


def test_a_file_that_would_run_something_is_refused(tmp_path, planetoid_files, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph"):
        planetoid_files.write(tmp_path / "cora", "cora", **{part: b"cposix\nsystem\n(S'touch pwned'\ntR."})
        with pytest.raises(
            CorruptDataError, match=rf"ind\.cora\.{part} cannot be .*posix.system, which is never"
        ):
            load("cora", tmp_path, use_cache=False)
    assert not (tmp_path / "pwned").exists()


def rows(count, columns=5):
    return np.ones((count, columns))


def cases(files):
    def matrix(value):
        return files.pickled(files.matrix(value))

    def array(value):
        return files.pickled(files.array(value))

    eye = np.eye(3, dtype=np.int32)
    nan = rows(3)
    nan[0, 0] = np.nan
    return {
        "x rows": ("x", matrix(rows(3)), "must have a row for each of the 2 of ind.cora.y"),
        "tx columns": ("tx", matrix(rows(3, 4)), "the columns of ind.cora.allx"),
        "tx rows": ("tx", matrix(rows(4)), "must have a row for each of the 3 of ind.cora.ty"),
        "tx nan": ("tx", matrix(nan), "must be finite"),
        "tx an array": ("tx", array(rows(3)), "a matrix in compressed rows was expected"),
        "y columns": ("y", array(np.eye(2, dtype=np.int32)), "must have the columns of ind.cora.ally"),
        "y two ones": ("y", array(np.ones((2, 3), dtype=np.int32)), "one 1 and else 0"),
        "y twos": ("y", array(2 * eye[:2]), "one 1 and else 0"),
        "y a vector": ("y", array(np.array([0, 1], dtype=np.int32)), "one 1 and else 0"),
        "y a matrix": ("y", matrix(eye[:2]), "an array was expected"),
        "ids": ("test.index", b"9\n7\n5\n", "line 3 must be a test vertex, from 6 to 11, .* .got 5"),
        "far ids": ("test.index", b"9\n99\n7\n", "line 2 must be a test vertex, from 6 to 11, .* .got 99"),
        "twice": ("test.index", b"9\n\n7\n9\n", "line 4 must be a test vertex, .* .got 9"),
        "text": ("test.index", b"9\n7\nx\n", "line 3 must have 1 integer"),
        "few": ("test.index", b"9\n7\n", "must have 3 lines .got 2"),
        "many": ("test.index", b"9\n7\n8\n6\n", "must have 3 lines .got more"),
        "far neighbour": ("graph", files.pickled(files.graph({0: [10]})), r"vertices must lie in \[0, 10\)"),
        "negative": ("graph", files.pickled(files.graph({-1: [0]})), r"vertices must lie in \[0, 10\)"),
        "no lists": ("graph", pickle.dumps({0: 1}, 2), "must map each vertex to a list"),
        "no dict": ("graph", pickle.dumps([[1]], 2), "must map each vertex to a list"),
        "names": ("graph", pickle.dumps({0: ["a"]}, 2), "a whole number was expected"),
        "halves": ("graph", pickle.dumps({0: [0.5]}, 2), "a whole number was expected"),
        "booleans": ("graph", pickle.dumps({0: [True]}, 2), "a whole number was expected"),
        "cut": ("graph", pickle.dumps({0: [1]}, 2)[:-1], "is cut off or damaged .it ends within"),
    }


CASES = (
    "x rows", "tx columns", "tx rows", "tx nan", "tx an array", "y columns", "y two ones", "y twos", "y a vector",
    "y a matrix", "ids", "far ids", "twice", "text", "few", "many", "far neighbour", "negative", "no lists", "no dict",
    "names", "halves", "booleans", "cut",
)  # fmt: skip


def test_the_list_of_cases_is_whole(planetoid_files):
    assert tuple(cases(planetoid_files)) == CASES


@pytest.mark.parametrize("case", CASES)
def test_files_that_disagree_are_errors_that_name_them(tmp_path, planetoid_files, case):
    part, content, match = cases(planetoid_files)[case]
    planetoid_files.write(tmp_path / "cora", "cora", **{part: content})
    with pytest.raises(CorruptDataError, match=rf"ind\.cora\.{part} .*{match}.*remove .*cora to download"):
        load("cora", tmp_path)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_features_that_32_bits_do_not_hold_are_named(tmp_path, planetoid_files, dtype):
    import scipy.sparse

    stored = scipy.sparse.csr_matrix(rows(3).astype(dtype))
    stored.data[4] = 1e39 if dtype is np.float64 else 2**24 + 1
    planetoid_files.write(tmp_path / "cora", "cora", tx=pickle.dumps(stored, 2))
    if dtype is np.float64:
        with pytest.raises(
            CorruptDataError, match=r"numbers of .*ind\.cora\.tx must fit 32 bits .got 1e\+39"
        ):
            load("cora", tmp_path)
    else:
        with pytest.warns(UserWarning, match=r"ind\.cora\.tx: whole numbers .* rounded .*16777217 among"):
            assert load("cora", tmp_path).feat.max() == 2**24


@pytest.mark.parametrize("what, change", [
    ("indices", lambda s: {**s, "indices": s["indices"] + 5}),
    ("indptr", lambda s: {**s, "indptr": s["indptr"][::-1].copy()}),
    ("short", lambda s: {**s, "indptr": s["indptr"][:-1]}), ("data", lambda s: {**s, "data": s["data"][:-1]}),
    ("shape", lambda s: {**s, "_shape": (3, 2**40)}), ("float", lambda s: {**s, "indices": s["indices"] + 0.5}),
])  # fmt: skip
def test_matrices_that_disagree_with_themselves(tmp_path, planetoid_files, what, change):
    import scipy.sparse

    stored = scipy.sparse.csr_matrix(rows(3))
    stored.__dict__.update(change(dict(stored.__dict__)))
    planetoid_files.write(tmp_path / "cora", "cora", tx=pickle.dumps(stored, 2))
    with pytest.raises(CorruptDataError, match=r"ind\.cora\.tx"):
        load("cora", tmp_path)
