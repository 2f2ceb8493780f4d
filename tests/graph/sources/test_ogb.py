"""OGB folders: the real ogbl-ddi, and node-property folders in OGB's format that the tests write."""

from __future__ import annotations

import gzip
import pickle
import subprocess
import sys

import numpy as np
import pytest

from gnnsample_lab.graph import CorruptDataError, DatasetNotFoundError, UnknownDatasetError, load
from gnnsample_lab.graph.sources import ogb as ogb_source
from gnnsample_lab.graph.sources import tables


def pairs(g):
    src, dst = g.edges()
    return sorted(zip(dst.tolist(), src.tolist()))


def test_ddi_has_its_known_size(data_root):
    g = load("ogbl-ddi", data_root, download=False)
    assert (g.num_nodes, g.num_edges, g.max_in_degree) == (4267, 2135822, 2234)
    assert g.in_degrees().tolist() == g.out_degrees().tolist()
    assert g.name == "ogbl-ddi" and not g.is_synthetic
    assert g.feat is None and g.label is None and g.splits == {} and g.num_classes == 0
    assert isinstance(g.indices, np.memmap)  # from our cache, which is not under the read-only root
    assert load("ogbl-ddi", data_root, undirected=False).num_edges == 1067911


def test_ddi_is_read_edge_by_edge_as_the_csv_says(data_root):
    import pandas

    table = pandas.read_csv(data_root / "ogb" / "ogbl_ddi" / "raw" / "edge.csv.gz", header=None).to_numpy()
    g = load("ogbl-ddi", data_root)
    for vertex in (0, 1, 2424, 4266):
        expected = np.sort(np.concatenate([table[table[:, 1] == vertex, 0], table[table[:, 0] == vertex, 1]]))
        assert np.array_equal(g.indices[g.indptr[vertex] : g.indptr[vertex + 1]], expected)


def test_reading_ogb_imports_neither_torch_nor_the_version_check(data_root):
    code = (
        "import sys, gnnsample_lab.graph as G\n"
        f"G.load('ogbl-ddi', {str(data_root)!r}, use_cache=False)\n"
        "print([m for m in ('torch', 'outdated', 'ogb.io', 'ogb.nodeproppred') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]" and result.stderr == ""


@pytest.mark.parametrize("place", ["ogb/ogbn_arxiv", "ogbn-arxiv", "ogbn_arxiv"])
def test_a_node_property_folder(tmp_path, ogb_folders, place, capsys):
    held = ogb_folders.node_property(tmp_path / place)
    g = load("ogbn-arxiv", tmp_path, download=False)
    assert g.num_nodes == 30 and pairs(g) == ogb_folders.in_edges(
        held["edges"]
    )  # arxiv adds no reverse edges
    assert np.array_equal(g.feat, held["feat"]) and np.array_equal(g.label, held["label"])
    for name in ("train", "valid", "test"):
        assert g.splits[name].tolist() == held[name].tolist()
    assert g.num_classes == 40  # from ogb's table, though this sample shows fewer
    assert capsys.readouterr().out == ""


def test_reverse_edges_follow_ogb_and_can_be_overridden(tmp_path, ogb_folders):
    held = ogb_folders.node_property(tmp_path / "ogb" / "ogbn_products", split="sales_ranking")
    both = np.concatenate([held["edges"], held["edges"][:, ::-1]])
    assert pairs(load("ogbn-products", tmp_path)) == ogb_folders.in_edges(both)
    listed = load("ogbn-products", tmp_path, undirected=False)
    assert pairs(listed) == ogb_folders.in_edges(held["edges"])
    assert listed.splits["train"].tolist() == held["train"].tolist()


def test_weights_and_labels_of_several_tasks(tmp_path, ogb_folders):
    folder = tmp_path / "ogb" / "ogbl_collab"
    held = ogb_folders.node_property(folder)
    ogb_folders.write_csv(folder / "raw" / "edge_weight.csv.gz", np.arange(80))
    g = load("ogbl-collab", tmp_path, undirected=False)
    order = np.lexsort((np.arange(80), held["edges"][:, 0], held["edges"][:, 1]))
    assert np.array_equal(g.edge_weight, order.astype(np.float32))
    tasks = np.random.default_rng(0).integers(0, 2, (30, 112))
    folder = tmp_path / "ogb" / "ogbn_proteins"
    ogb_folders.node_property(folder, split="species")
    ogb_folders.write_csv(folder / "raw" / "node-label.csv.gz", tasks)
    before = sorted(p.name for p in (folder / "raw").iterdir())
    g = load("ogbn-proteins", tmp_path)
    assert np.array_equal(g.label, tasks) and g.num_classes == 112
    assert sorted(p.name for p in (folder / "raw").iterdir()) == before  # ogb would rename a file here


@pytest.mark.parametrize("chunk", [1 << 26, 50])
def test_a_binary_folder(tmp_path, ogb_folders, chunk, monkeypatch):
    held = ogb_folders.binary(tmp_path / "ogb" / "ogbn_papers100M")
    monkeypatch.setattr(tables, "_CHUNK_BYTES", chunk)
    g = load("ogbn-papers100M", tmp_path)
    assert pairs(g) == ogb_folders.in_edges(held["edges"])
    assert np.array_equal(g.feat, held["feat"]) and g.feat.dtype == np.float32
    assert g.label.tolist() == [-1 if np.isnan(x) else int(x) for x in held["label"]]
    assert g.splits["valid"].tolist() == [5, 6, 7, 8] and g.num_classes == 172


def test_nothing_is_unpickled(tmp_path, ogb_folders):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was opened",))

    folder = tmp_path / "ogb" / "ogbn_arxiv"
    ogb_folders.node_property(folder)
    (folder / "processed").mkdir()
    for path in (folder / "processed" / "data_processed", folder / "split" / "time" / "split_dict.pt"):
        path.write_bytes(pickle.dumps(Trap()))
    assert load("ogbn-arxiv", tmp_path).num_nodes == 30


@pytest.mark.parametrize("file", ["raw/edge.csv.gz", "raw/node-feat.csv.gz", "split/time/valid.csv.gz"])
def test_a_cut_off_file_is_named(tmp_path, ogb_folders, file):
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    ogb_folders.node_property(folder)
    data = (folder / file).read_bytes()
    (folder / file).write_bytes(data[: len(data) // 2])
    with pytest.raises(
        CorruptDataError, match=f"{file} is cut off or damaged.*remove .* to download it again"
    ):
        load("ogbn-arxiv", tmp_path)


@pytest.mark.parametrize(
    ("file", "lines", "match"),
    [
        ("raw/num-node-list", ["5"], r"edge.csv.gz line \d+ must name two of the 5 vertices"),
        ("raw/num-node-list", ["31"], r"node-feat.csv.gz must have 31 lines .got 30"),
        ("raw/num-node-list", ["-30"], r"num-node-list.csv.gz states -30 vertices"),
        ("raw/num-node-list", [str(10**15)], r"num-node-list.csv.gz states 1,000,.* more than fit in memory"),
        ("raw/num-node-list", ["30", "30"], r"num-node-list.csv.gz must list one graph .got 2"),
        ("raw/num-edge-list", ["81"], r"edge.csv.gz must have 81 lines .got 80"),
        ("raw/num-edge-list", ["5"], r"edge.csv.gz must have 5 lines .got more"),
        ("raw/num-edge-list", ["eighty"], r"num-edge-list.csv.gz line 1 must have 1 integer.* .got 'eighty'"),
        ("raw/num-edge-list", ["80.0"], r"num-edge-list.csv.gz line 1 must have 1 integer"),
        ("raw/edge", ["1,2"] * 79 + ["1.5,2"], r"edge.csv.gz line 80 must have 2 integer.* .got '1.5,2'"),
        ("raw/edge", ["1,2"] * 79 + ["4294967297,2"], r"edge.csv.gz line 80 must name two of the 30 vertices"),
        ("raw/edge", ["1,2"] * 79 + ["18446744073709551617,2"], r"edge.csv.gz line 80 must have 2 integer"),
        ("raw/edge", ["1,2"] * 79 + ["-1,2"], r"edge.csv.gz line 80 must name two"),
        ("raw/edge", ["1,2"] * 79 + ["1"], r"edge.csv.gz line 80 must have 2 integer"),
        ("raw/edge", ["1,2"] * 79 + ["1,2,3"], r"edge.csv.gz line 80 must have 2 columns"),
        ("raw/edge", ["1,2,3"] * 80, r"edge.csv.gz line 1 must have 2 integer"),
        ("raw/edge", ["True,False"] * 80, r"edge.csv.gz line 1 must have 2 integer"),
        ("raw/node-label", ["1"] * 29, r"node-label.csv.gz must have 30 lines .got 29"),
        ("raw/node-label", ["1"] * 29 + ["1.5"], r"node-label.csv.gz must be whole numbers .got 1.5 for vertex 29"),
        ("raw/node-label", ["1"] * 29 + ["40"], r"node-label.csv.gz must lie in \[0, 40\) .got 40 for vertex 29"),
        ("raw/node-label", ["1"] * 29 + ["-7"], r"node-label.csv.gz must lie in .* .got -7 for vertex 29"),
        ("raw/node-label", ["1"] * 29 + ["cat"], r"node-label.csv.gz line 30 column 1 must hold numbers"),
        ("raw/node-label", ["0,2"] * 30, r"node-label.csv.gz must lie in \[0, 2\) .got 2 for vertex 0"),
        ("raw/node-feat", ["1,2"] * 29, r"node-feat.csv.gz must have 30 lines .got 29"),
        ("raw/node-feat", ["1,2"] * 29 + ["1,"], r"node-feat.csv.gz line 30 column 2 must hold numbers"),
        ("raw/node-feat", ["1,2"] * 29 + ["1,x"], r"node-feat.csv.gz line 30 column 2 must hold numbers"),
        ("split/time/valid", ["1.5"], r"valid.csv.gz line 1 must have 1 integer"),
        ("split/time/valid", ["30"], r"valid.csv.gz must hold ids in \[0, 30\) .got 30 at position 0"),
        ("split/time/valid", ["-1"], r"valid.csv.gz must hold ids in \[0, 30\) .got -1 at position 0"),
        ("split/time/test", ["TRAIN"], r"test.csv.gz: vertex \d+ of split 'test' is in split 'train' too"),
        ("split/time/train", ["3", "3"], r"train.csv.gz: vertex 3 is in split 'train' twice"),
    ],
)  # fmt: skip
def test_contents_that_disagree_are_an_error_that_names_file_and_place(
    tmp_path, ogb_folders, file, lines, match
):
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    held = ogb_folders.node_property(folder)
    lines = [str(held["train"][0]) if line == "TRAIN" else line for line in lines]
    with gzip.open(folder / f"{file}.csv.gz", "wt") as handle:
        handle.write("\n".join(lines) + "\n")
    with pytest.raises(CorruptDataError, match=match):
        load("ogbn-arxiv", tmp_path)


@pytest.mark.parametrize(
    "file", ["raw/num-node-list", "raw/node-feat", "raw/node-label", "split/time/train", "split/time/test"]
)
def test_files_that_ogb_promises_must_be_there(tmp_path, ogb_folders, file):
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    ogb_folders.node_property(folder)
    (folder / f"{file}.csv.gz").unlink()
    with pytest.raises(
        CorruptDataError, match=rf"{file}\.csv\.gz does not exist: .*ogbn_arxiv is incomplete"
    ):
        load("ogbn-arxiv", tmp_path)


@pytest.mark.parametrize(
    "text",
    ["\n".join(["3.0", "nan"] * 15) + "\n", "\n".join(["3", ""] * 15) + "\n\n\n"],
    ids=["nan", "blank"],
)
def test_vertices_without_a_label_are_nan_as_in_ogb_or_blank(tmp_path, ogb_folders, text):
    """A blank line left out would give every vertex behind it the next one's label; at the end of a file it is
    nothing."""
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    ogb_folders.node_property(folder)
    with gzip.open(folder / "raw" / "node-label.csv.gz", "wt") as handle:
        handle.write(text)
    assert load("ogbn-arxiv", tmp_path).label.tolist() == [3, -1] * 15


@pytest.mark.parametrize(
    ("file", "line", "match"),
    [
        ("node-label", "3", r"node-label.csv.gz must have 30 lines .got more"),
        ("node-feat", "1,2", r"node-feat.csv.gz line 6 column 1 must hold numbers"),
    ],
)
def test_a_blank_line_too_many_is_an_error(tmp_path, ogb_folders, file, line, match):
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    ogb_folders.node_property(folder)
    with gzip.open(folder / "raw" / f"{file}.csv.gz", "wt") as handle:
        handle.write("\n".join([line] * 5 + [""] + [line] * 25) + "\n")
    with pytest.raises(CorruptDataError, match=match):
        load("ogbn-arxiv", tmp_path)


def test_a_task_without_a_label_is_named(tmp_path, ogb_folders):
    folder = tmp_path / "ogb" / "ogbn_proteins"
    ogb_folders.node_property(folder, split="species")
    tasks = np.zeros((30, 112))
    tasks[7, 3] = np.nan
    ogb_folders.write_csv(folder / "raw" / "node-label.csv.gz", tasks)
    with pytest.raises(CorruptDataError, match="0 or 1 in every column, none missing .got nan for vertex 7"):
        load("ogbn-proteins", tmp_path)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"edge_index": np.full((2, 80), 2**32 + 1)}, r"'edge_index' .*must hold ids in \[0, 30\) .got 4294967297 at"),
        ({"edge_index": np.full((2, 80), -1)}, r"'edge_index' .*must hold ids in \[0, 30\) .got -1 at position 0"),
        ({"edge_index": np.full((2, 80), 1.5)}, r"'edge_index' .*must hold integers .got dtype float64"),
        ({"edge_index": np.zeros((80, 2), int)}, r"'edge_index' .*must have shape .2, 80. .got .80, 2"),
        ({"edge_index": np.zeros((2, 80), object)}, r"'edge_index' .*holds Python objects"),
        ({"num_edges_list": np.array([5])}, r"'edge_index' .*must have shape .2, 5. .got .2, 80"),
        ({"num_edges_list": None}, r"data.npz has no array 'num_edges_list'"),
        ({"num_nodes_list": np.array([30, 30])}, r"'num_nodes_list' .*must have shape .1. .got .2,"),
        ({"num_nodes_list": np.array([30.0])}, r"'num_nodes_list' .*must hold integers"),
        ({"num_nodes_list": np.array([2**62])}, r"data.npz states 4,611,.* more than fit in memory"),
        ({"node_feat": np.zeros((29, 3))}, r"'node_feat' .*must have shape .30, any. .got .29, 3"),
        ({"node_feat": np.full((30, 3), "x")}, r"'node_feat' .*must hold numbers"),
        ({"node_feat": None}, r"has no array 'node_feat'"),
        ({"node_label": np.full((30, 1), 0.5)}, r"node-label.npz must be whole numbers .got 0.5 for vertex 0"),
        ({"node_label": np.full((30, 1), 172)}, r"node-label.npz must lie in \[0, 172\)"),
        ({"node_label": np.zeros((29, 1))}, r"node-label.npz must have a label for each of 30"),
        ({"node_label": np.full((30, 1), np.inf)}, r"node-label.npz must lie in"),
    ],
)  # fmt: skip
def test_binary_contents_that_disagree_are_an_error(tmp_path, ogb_folders, changes, match):
    folder = tmp_path / "ogb" / "ogbn_papers100M"
    ogb_folders.binary(folder)
    path = folder / "raw" / ("node-label.npz" if "node_label" in changes else "data.npz")
    with np.load(path) as stored:
        arrays = {name: value for name, value in {**stored, **changes}.items() if value is not None}
    np.savez(path, **arrays)
    with pytest.raises(CorruptDataError, match=match):
        load("ogbn-papers100M", tmp_path)


def change_features(folder, feat):
    with np.load(folder / "raw" / "data.npz") as stored:
        arrays = dict(stored)
    np.savez(folder / "raw" / "data.npz", **{**arrays, "node_feat": feat})


@pytest.mark.parametrize("is_binary", [False, True])
def test_features_that_32_bits_do_not_hold_are_named(tmp_path, ogb_folders, is_binary, monkeypatch):
    monkeypatch.setattr(tables, "_CHUNK_BYTES", 50)
    name, file = ("ogbn-papers100M", "data") if is_binary else ("ogbn-arxiv", "node-feat")
    folder = tmp_path / "ogb" / name.replace("-", "_")
    (ogb_folders.binary if is_binary else ogb_folders.node_property)(folder)

    def write(feat):
        if is_binary:
            change_features(folder, feat)
        else:
            ogb_folders.write_csv(folder / "raw" / "node-feat.csv.gz", feat)

    feat = np.ones((30, 3))
    feat[20] = np.nan, np.inf, 1e38
    write(feat)
    assert np.array_equal(load(name, tmp_path).feat, feat.astype(np.float32), equal_nan=True)
    feat[29, 1] = 1e39
    write(feat)
    with pytest.raises(
        CorruptDataError, match=rf"raw/{file}\.\S+ must fit 32 bits .got 1e\+39.; remove .* to download"
    ):
        load(name, tmp_path)
    whole = np.full((30, 3), 2**24 + 1)
    write(whole)
    with pytest.warns(
        UserWarning, match=rf"raw/{file}\..*: whole numbers .* rounded .*16777217 among"
    ) as told:
        assert load(name, tmp_path).feat[0, 0] == 2**24
    assert len(told) == 1


def test_a_cut_off_binary_folder_is_an_error(tmp_path, ogb_folders):
    folder = tmp_path / "ogb" / "ogbn_papers100M"
    ogb_folders.binary(folder)
    data = (folder / "raw" / "data.npz").read_bytes()
    (folder / "raw" / "data.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptDataError, match=r"data\.npz is cut off or damaged"):
        load("ogbn-papers100M", tmp_path)


def test_names_that_cannot_be_loaded(tmp_path):
    with pytest.raises(ValueError, match="'ogbn-mag' is a heterogeneous OGB dataset"):
        load("ogbn-mag", tmp_path)
    with pytest.raises(
        UnknownDatasetError, match=r"'ogbn-nothing' is no OGB dataset .ogb knows .*ogbn-arxiv"
    ):
        load("ogbn-nothing", tmp_path)
    with pytest.raises(
        DatasetNotFoundError, match=r"'ogbn-arxiv' was not found in .*ogb/ogbn_arxiv.*LAB_DATA_ROOT"
    ):
        load("ogbn-arxiv", tmp_path, download=False)


def test_every_homogeneous_dataset_of_ogb_is_in_the_catalogue():
    from gnnsample_lab.graph import catalogue

    known = {n for n, meta in ogb_source.master().items() if not meta.is_hetero}
    listed = {n for n, e in catalogue.entries().items() if e["kind"] == "ogb"}
    assert listed == known
    for name in listed:
        entry, meta = catalogue.entries()[name], ogb_source.master()[name]
        assert entry["directed"] is not meta.add_inverse_edge
        if meta.num_classes > 2:
            assert entry["num_classes"] == meta.num_classes
