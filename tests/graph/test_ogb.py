"""OGB folders: the real ogbl-ddi, and node-property folders in OGB's format that the tests write."""

from __future__ import annotations

import gzip
import pickle
import subprocess
import sys

import numpy as np
import pytest

from gnnsample_lab.graph import CorruptDataError, DatasetNotFoundError, UnknownDatasetError, load, ogb_source


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
    original = ogb_source._member
    monkeypatch.setattr(ogb_source, "_member", lambda *a, **k: original(*a, **{**k, "chunk": chunk}))
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


def test_contents_that_are_no_graph_are_an_error(tmp_path, ogb_folders):
    folder = tmp_path / "ogb" / "ogbn_arxiv"
    ogb_folders.node_property(folder)
    ogb_folders.write_csv(folder / "raw" / "num-node-list.csv.gz", np.array([5]))
    with pytest.raises(CorruptDataError, match="holds no valid graph: src must be vertex ids in"):
        load("ogbn-arxiv", tmp_path)
    ogb_folders.write_csv(folder / "raw" / "num-node-list.csv.gz", np.array([30]))
    ogb_folders.write_csv(folder / "raw" / "num-edge-list.csv.gz", np.array([81]))
    with pytest.raises(CorruptDataError, match=r"must hold 81 edges .got 80"):
        load("ogbn-arxiv", tmp_path)
    with gzip.open(folder / "raw" / "num-edge-list.csv.gz", "wt") as handle:
        handle.write("eighty\n")
    with pytest.raises(CorruptDataError, match="cannot be read"):
        load("ogbn-arxiv", tmp_path)


def test_a_cut_off_binary_folder_is_an_error(tmp_path, ogb_folders):
    folder = tmp_path / "ogb" / "ogbn_papers100M"
    ogb_folders.binary(folder)
    data = (folder / "raw" / "data.npz").read_bytes()
    (folder / "raw" / "data.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptDataError, match="ogbn_papers100M cannot be read"):
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
