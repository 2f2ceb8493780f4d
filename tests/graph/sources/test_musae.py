"""MUSAE's graphs: the real files, and small ones in every layout."""

from __future__ import annotations

import collections
import csv
import gzip
import json

import numpy as np
import pytest

from gnnsample_lab.device.splitmix import finalised
from gnnsample_lab.graph import CorruptDataError, DatasetNotFoundError, catalogue, load
from gnnsample_lab.graph.sources import formats, musae, node_data
from gnnsample_lab.graph.sources.hashing import hashed

NAMES = {"musae-facebook": "facebook", "musae-git": "git", "musae-twitch-de": "DE"}


def pairs(g):
    src, dst = g.edges()
    return sorted(zip(src.tolist(), dst.tolist()))


# ---- the real files -----------------------------------------------------------------------------------------------


def table(data_root, which, file):
    with gzip.open(data_root / "snap" / "musae" / which / file, "rt", encoding="utf-8", newline="") as handle:
        return list(csv.reader(handle))


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_those_of_the_catalogue_and_edges_go_both_ways(name, data_root):
    g = load(name, data_root, download=False)
    entry = catalogue.entry(name)
    assert (g.num_nodes, g.num_edges, g.num_classes) == tuple(
        entry[k] for k in ("num_nodes", "num_edges", "num_classes")
    )
    assert g.num_features == (0 if name == "musae-git" else entry["num_features"])
    assert len(g.splits["train"]) == entry["num_train"] and not g.is_synthetic and g.name == name
    # Every listed edge, both ways, each once; read again here with the csv module alone.
    listed = {(int(u), int(v)) for u, v in table(data_root, NAMES[name], "edges.csv.gz")[1:]}
    assert pairs(g) == sorted(listed | {(v, u) for u, v in listed})


def test_label_distributions(data_root):
    def counts(name):
        return np.bincount(load(name, data_root).label).tolist()

    # company, government, politician, tvshow; others, machine learning; not mature, mature.
    assert counts("musae-facebook") == [6495, 6880, 5768, 3327]
    assert counts("musae-git") == [27961, 9739]
    assert counts("musae-twitch-de") == [3756, 5742]


def test_labels_and_features_belong_to_new_id_where_rows_are_in_another_order(data_root):
    g = load("musae-twitch-de", data_root, features="raw")
    rows = table(data_root, "DE", "target.csv.gz")
    assert rows[0] == ["id", "days", "mature", "views", "partner", "new_id"]
    assert rows[1] == ["37905227", "2149", "True", "162078", "False", "5079"] and g.label[5079] == 1
    assert rows[7][5] == "5069" and rows[7][2] == "False" and g.label[5069] == 0
    assert [int(row[5]) for row in rows[1:]] != list(range(9498)), "else this test shows nothing"
    assert all(g.label[int(row[5])] == (row[2] == "True") for row in rows[1:])
    with gzip.open(data_root / "snap" / "musae" / "DE" / "features.json.gz", "rt") as handle:
        features = json.load(handle)
    for vertex in (0, 17, 3159, 5079, 9497):
        assert np.flatnonzero(g.feat[vertex]).tolist() == sorted(set(features[str(vertex)]))
    assert set(np.unique(g.feat).tolist()) == {0, 1}


def test_pages_have_their_types(data_root):
    g = load("musae-facebook", data_root)
    types = ["company", "government", "politician", "tvshow"]
    rows = table(data_root, "facebook", "target.csv.gz")[1:]
    assert [types[c] for c in g.label.tolist()] == [row[3] for row in rows]
    assert [int(row[0]) for row in rows] == list(range(22470))


def test_hashed_features_are_these_numbers_for_ever(data_root):
    g = load("musae-facebook", data_root)
    assert g.feat.dtype == np.float32 and g.feat.shape == (22470, 128)
    lengths = np.linalg.norm(g.feat, axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-6) | (lengths == 0)) and (lengths > 0).mean() > 0.99
    raw = load("musae-facebook", data_root, features="raw")
    assert raw.feat.shape == (22470, 4714) and raw.digest() != g.digest()
    assert raw.feat.sum(axis=1, dtype=np.int64).sum() == 314583
    # The same numbers with nothing but Python's integers.
    for vertex in (0, 1, 22469):
        row = [0] * 128
        for feature in np.flatnonzero(raw.feat[vertex]).tolist():
            word = splitmix(feature)
            row[word % 128] += -1 if word >> 63 else 1
        length = sum(x * x for x in row) ** 0.5
        assert np.allclose(g.feat[vertex], np.array(row) / length, atol=1e-7)


def splitmix(value, seed=0):
    def mixed(x):
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    step = 0x9E3779B97F4A7C15
    return mixed((value * step + mixed((seed + step) % 2**64)) % 2**64)


def test_the_hash_is_this_function_for_ever():
    values = np.array([0, 1, 2, 4713, 2**40])
    for seed in (0, 1, 2**64 - 1):
        assert hashed(values, seed).tolist() == [splitmix(v, seed) for v in values.tolist()]
    # The first output that SplitMix64's authors give for the seed 0.
    assert finalised(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF


def test_hashing_keeps_angles_between_vertices(data_root):
    g, raw = load("musae-facebook", data_root), load("musae-facebook", data_root, features="raw")
    some = np.random.default_rng(0).integers(0, g.num_nodes, (4000, 2))
    rows = raw.feat[np.unique(some)] / np.linalg.norm(raw.feat[np.unique(some)], axis=1, keepdims=True)
    at = np.searchsorted(np.unique(some), some)
    exact = (rows[at[:, 0]] * rows[at[:, 1]]).sum(axis=1)
    found = (g.feat[some[:, 0]] * g.feat[some[:, 1]]).sum(axis=1)
    assert abs(float((found - exact).mean())) < 0.005, "signs leave no bias"
    assert float((found - exact).std()) < 0.12, "about 1 / sqrt(128)"


# ---- splits -------------------------------------------------------------------------------------------------------


def test_splits_are_ours_seeded_and_the_same_everywhere(data_root, tmp_path):
    g = load("musae-twitch-de", data_root)
    assert [len(g.splits[s]) for s in ("train", "valid", "test")] == [5698, 1900, 1900]
    assert np.array_equal(np.sort(np.concatenate(list(g.splits.values()))), np.arange(9498))
    assert all(bool((np.diff(ids) > 0).all()) and ids.dtype == np.int64 for ids in g.splits.values())
    assert g.splits["train"][:5].tolist() == sorted(
        sorted(range(9498), key=lambda v: splitmix(v))[:5698]
    )[:5]  # fmt: skip
    again = load("musae-twitch-de", data_root, seed=1)
    shared = np.intersect1d(g.splits["train"], again.splits["train"])
    assert abs(len(shared) / 5698 - 0.6) < 0.03, "another seed draws independently"
    assert np.array_equal(again.indices, g.indices) and np.array_equal(again.label, g.label)
    assert load("musae-twitch-de", data_root, use_cache=False).digest() == g.digest()
    for c in range(2):  # no class is left out of a split
        assert abs((g.label[g.splits["test"]] == c).mean() - (g.label == c).mean()) < 0.03


def test_only_labelled_vertices_are_split():
    label = np.array([0, -1, 2, 1, -1, 0, 0, 1, 1, 0, 2, -1])
    splits = node_data.our_splits(label)
    assert [len(ids) for ids in splits.values()] == [5, 2, 2]
    assert sorted(np.concatenate(list(splits.values())).tolist()) == np.flatnonzero(label >= 0).tolist()
    assert sum(map(len, node_data.our_splits(np.zeros((7, 3), dtype=int)).values())) == 7
    assert [len(ids) for ids in node_data.our_splits(np.empty(0, dtype=np.int64)).values()] == [0, 0, 0]


# ---- layouts ------------------------------------------------------------------------------------------------------

BOTH_WAYS = [(0, 1), (0, 4), (1, 0), (1, 2), (2, 1), (3, 3), (4, 0)]
LABELS = {"facebook": [3, 1, 0, 2, 0, 1], "git": [0, 1, 0, 1, 0, 1], "DE": [1, 0, 0, 0, 1, 0]}


def check(g, which):
    assert pairs(g) == BOTH_WAYS and g.num_nodes == 6 and g.label.tolist() == LABELS[which]
    assert g.num_classes == (4 if which == "facebook" else 2)
    assert [len(ids) for ids in g.splits.values()] == [3, 1, 2]
    if g.feat is not None:
        filled = {v: np.flatnonzero(g.feat[v]).tolist() for v in range(6)}
        assert filled == {0: [2, 5], 1: [2, 7], 2: [], 3: [0], 4: [3169], 5: []}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("folder", ["snap/musae/{which}", "{name}", "musae/{which}", "snap/{name}"])
def test_plain_folders(tmp_path, musae_files, name, packed, folder):
    which = NAMES[name]
    place = tmp_path / folder.format(name=name, which=which)
    musae_files.write_plain(place, which, packed=packed)
    g = load(name, tmp_path, download=False, features="raw")
    check(g, which)
    assert g.num_features == catalogue.entry(name)["raw_features"]
    assert load(name, tmp_path, features=False).feat is None
    assert formats.find(catalogue.entry(name), tmp_path).parent == place


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("folder", ["", "snap", "{name}"])
def test_unpacked_archives_of_snap(tmp_path, musae_files, name, folder):
    for member, text in musae_files.archive_members(NAMES[name]).items():
        path = tmp_path / folder.format(name=name) / member
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    check(load(name, tmp_path, download=False, features="raw"), NAMES[name])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("folder", ["", "snap", "{name}"])
def test_archives_of_snap_as_they_are_downloaded(tmp_path, musae_files, name, folder):
    which = NAMES[name]
    given = tmp_path / folder.format(name=name) / f"{musae_files.ARCHIVES[which]}.zip"
    given.parent.mkdir(parents=True, exist_ok=True)
    given.write_bytes(musae_files.archive(which))
    check(load(name, tmp_path, download=False, features="raw"), which)
    assert given.is_file(), "the user's archive stays where it is"
    check(load(name, tmp_path, download=False, use_cache=False, features="raw"), which)


@pytest.mark.parametrize("name", NAMES)
def test_archives_are_downloaded(tmp_path, musae_files, name, server, monkeypatch):
    entry = catalogue.entries()[name]
    assert entry["url"] == f"https://snap.stanford.edu/data/{musae_files.ARCHIVES[NAMES[name]]}.zip"
    url = server.add(entry["url"].removeprefix("https://snap.stanford.edu"), musae_files.archive(NAMES[name]))
    table = {**catalogue.entries(), name: {**entry, "url": url}}
    monkeypatch.setattr(catalogue, "entries", lambda: table)
    with pytest.raises(DatasetNotFoundError, match=f"'{name}' was not found in .*snap/musae"):
        load(name, tmp_path, download=False)
    check(load(name, tmp_path, progress=False, features="raw"), NAMES[name])
    assert not list(tmp_path.glob("*.zip*")) and load(name, tmp_path, download=False).num_edges == 7


def test_another_archive_under_that_name_is_an_error(tmp_path, musae_files):
    (tmp_path / "facebook_large.zip").write_bytes(musae_files.archive("git"))
    with pytest.raises(
        DatasetNotFoundError, match=r"facebook_large\.zip was brought to .*holds no musae_face"
    ):
        load("musae-facebook", tmp_path)
    (tmp_path / "git_web_ml.zip").write_bytes(musae_files.archive("git")[:-40])
    with pytest.raises(CorruptDataError, match=r"git_web_ml\.zip .*remove it"):
        load("musae-git", tmp_path)


def test_git_may_come_without_features_and_the_others_may_not(tmp_path, musae_files):
    musae_files.write_plain(tmp_path / "snap/musae/git", "git", features=False)
    for features in (True, "auto", "raw", False):
        check(load("musae-git", tmp_path, features=features), "git")
    musae_files.write_plain(tmp_path / "snap/musae/facebook", "facebook", features=False)
    with pytest.raises(
        CorruptDataError, match=r"features\.json\.gz does not exist: .* incomplete; replace the file"
    ):
        load("musae-facebook", tmp_path)


def test_repeated_features_count_once_and_order_does_not_matter(tmp_path, musae_files):
    musae_files.write_plain(tmp_path / "musae-git", "git", packed=False)
    g = load("musae-git", tmp_path)
    (tmp_path / "musae-git" / "features.json").write_text('{"4":[3169,3169],"1":[2,7,2],"0":[5,2],"3":[0]}')
    assert load("musae-git", tmp_path).digest() == g.digest()
    assert np.abs(g.feat[[0, 1, 3, 4]]).max(axis=1).tolist() == pytest.approx([2**-0.5, 2**-0.5, 1, 1])
    assert not g.feat[2].any() and not g.feat[5].any()


def test_raw_features_that_do_not_fit_say_so(tmp_path, musae_files, monkeypatch):
    musae_files.write_plain(tmp_path / "musae-facebook", "facebook")
    monkeypatch.setattr(musae, "free_host_bytes", lambda: 6 * 4714 * 4 - 1)
    with pytest.raises(
        MemoryError, match=r"features='raw' of 'musae-facebook' are 6 x 4,714 float32, 0.00 GiB"
    ):
        load("musae-facebook", tmp_path, features="raw")
    assert load("musae-facebook", tmp_path).num_features == 128


# ---- contents that cannot be ----------------------------------------------------------------------------------------

WRONG = {
    "no header": ("edges.csv", lambda t: t.partition("\n")[2], "line 1 must be 'id_1,id_2' or 'from,to' .got '0,1'"),
    "other header": ("edges.csv", lambda t: t.replace("id_2", "id_3"), "line 1 must be"),
    "only a line end": ("edges.csv", lambda t: "\n", "line 1 must be"),
    "far": ("edges.csv", lambda t: t.replace("3,3", "\n3,6"), "line 6 must name two .* of target.csv.* .got .3, 6"),
    "negative": ("edges.csv", lambda t: t.replace("4,0", "4,-1"), "line 6 must name two of the 6"),
    "text": ("edges.csv", lambda t: t.replace("3,3", "3,x"), "line 5 must have 2 integer"),
    "half": ("edges.csv", lambda t: t.replace("3,3", "3,1.5"), "line 5 must have 2 integer"),
    "one": ("edges.csv", lambda t: t.replace("3,3", "3"), "line 5 must have 2 "),
    "three": ("edges.csv", lambda t: t.replace("3,3", "3,3,3"), "line 5 must have 2 "),
    "large": ("edges.csv", lambda t: t.replace("3,3", f"3,{2**64}"), "line 5 must have 2 integer"),
    "no column": ("target.csv", lambda t: t.replace("page_type", "kind"), "line 1 must name the column 'page_type'"),
    "no such class": ("target.csv", lambda t: t.replace("politician", "poet"), "line 5: page_type must be .*'poet'"),
    "no class": ("target.csv", lambda t: t.replace("politician", ""), "line 5: page_type must be one of"),
    "twice": ("target.csv", lambda t: t.replace("\n4,", "\n3,"), "line 6: id must be a vertex that no line .*'3'"),
    "gap": ("target.csv", lambda t: t.replace("\n4,", "\n6,"), "line 6: the 6 vertices must be 0 to 5 .got 6"),
    "name": ("target.csv", lambda t: t.replace("\n4,", "\nfour,"), "line 6: id must be a vertex"),
    "sign": ("target.csv", lambda t: t.replace("\n4,", "\n-4,"), "line 6: id must be a vertex"),
    "huge": ("target.csv", lambda t: t.replace("\n4,", f"\n{10**30},"), "line 6: id must be a vertex"),
    "ragged": ("target.csv", lambda t: t.replace("Bailey", "Bai,ley"), "line 5 must have 4 columns .got 5"),
    "quote": ("target.csv", lambda t: t.replace("Bailey", '"Bailey'), "line 7 cannot be read as a table"),
    "nothing": ("target.csv", lambda t: t.partition("\n")[0], "lists no vertex"),
    "bytes": ("target.csv", lambda t: t.encode().replace(b"ESET", b"\xff\xfe"), "line 4 is no text in UTF-8"),
    "a list": ("features.json", lambda t: "[]", "it must hold a dict, got a list"),
    "far vertex": ("features.json", lambda t: t.replace('"5"', '"6"'), "it must name vertices from 0 to 5 .got '6'"),
    "signed vertex": ("features.json", lambda t: t.replace('"5"', '"-5"'), "it must name vertices"),
    "padded vertex": ("features.json", lambda t: t.replace('"5"', '"05"'), "it must name vertices"),
    "far feature": ("features.json", lambda t: t.replace("3169", "4714"), "vertex 4 must have a list of .* 0 to 4713"),
    "negative feature": ("features.json", lambda t: t.replace("3169", "-1"), "vertex 4 must have a list"),
    "half feature": ("features.json", lambda t: t.replace("3169", "1.5"), "vertex 4 must have a list"),
    "truth": ("features.json", lambda t: t.replace("3169", "true"), "vertex 4 must have a list"),
    "no list": ("features.json", lambda t: t.replace("[3169]", "3169"), "vertex 4 must have a list"),
    "nested": ("features.json", lambda t: t.replace("3169", "[1]"), "vertex 4 must have a list"),
}  # fmt: skip


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("case", WRONG)
def test_contents_that_cannot_be_are_errors_that_name_file_and_line(tmp_path, musae_files, case, packed):
    file, change, match = WRONG[case]
    folder = tmp_path / "musae-facebook"
    musae_files.write_plain(folder, "facebook", packed=packed)
    texts = {
        "edges.csv": musae_files.EDGES,
        "target.csv": musae_files.FACEBOOK,
        "features.json": musae_files.FEATURES,
    }
    changed = change(texts[file])
    data = changed if isinstance(changed, bytes) else changed.encode()
    path = folder / (f"{file}.gz" if packed else file)
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(
        CorruptDataError, match=rf"{path.name} .*{match}.*; remove .*musae-facebook to download"
    ):
        load("musae-facebook", tmp_path)


def test_line_ends_of_windows_and_a_byte_order_mark_are_read(tmp_path, musae_files):
    folder = tmp_path / "musae-facebook"
    musae_files.write_plain(folder, "facebook", packed=False)
    g = load("musae-facebook", tmp_path)
    for path in folder.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load("musae-facebook", tmp_path).digest() == g.digest()


def test_degrees_of_the_real_graphs_are_not_regular(data_root):
    """A reader that shuffled ids of one column would still have the right counts."""
    g = load("musae-facebook", data_root)
    assert np.array_equal(g.in_degrees(), g.out_degrees())
    src, dst = g.edges()
    same = float((g.label[src] == g.label[dst]).mean())
    assert same > 0.85, "links are within a type"
    assert collections.Counter(g.in_degrees().tolist()).most_common(1)[0][0] == 1


@pytest.mark.gpu
def test_the_graph_on_the_gpu_is_the_same(tmp_path, musae_files):
    import cupy

    musae_files.write_plain(tmp_path / "musae-facebook", "facebook")
    host = load("musae-facebook", tmp_path, seed=3)
    g = load("musae-facebook", tmp_path, seed=3, device="cuda")
    assert g.device == "cuda" and g.digest() == host.digest()
    assert all(isinstance(array, cupy.ndarray) for array in (g.feat, g.label, *g.splits.values()))
