"""SNAP edge lists: the real one, small ones of every shape, and damaged ones."""

from __future__ import annotations

import gzip
import warnings

import numpy as np
import pytest

from gnnsample_lab.graph import CorruptDataError, DatasetNotFoundError, Graph, UnknownDatasetError, load
from gnnsample_lab.graph.sources import snap as snap_source


def edge_list(g):
    src, dst = g.edges()
    return sorted(zip(src.tolist(), dst.tolist()))


def write(tmp_path, text, name="toy.txt"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_epinions_has_its_known_size(data_root):
    g = load("snap:soc-Epinions1", data_root, download=False)
    assert (g.num_nodes, g.num_edges, g.indices.dtype) == (75877, 811478, np.int32)
    assert g.in_degrees().tolist() == g.out_degrees().tolist()
    assert g.name == "snap:soc-Epinions1" and not g.is_synthetic and g.feat is None and g.splits == {}
    listed = load("snap:soc-Epinions1", data_root, undirected=False)
    assert listed.num_edges == 405739
    src, dst = listed.edges()
    assert bool((src < dst).all())


def test_comments_blanks_tabs_and_gaps_in_ids(tmp_path):
    path = write(tmp_path, "# Nodes: 3\n10\t40\n\n# more\n40  7\n")
    g = snap_source.read(path, undirected=False)
    assert g.num_nodes == 3 and edge_list(g) == [(1, 2), (2, 0)]  # 7, 10, 40 became 0, 1, 2


@pytest.mark.parametrize(
    "text",
    [
        "  # Nodes: 3\n10 40\n40 7\n", "\t# a\n # b\n10 40\n40 7\n", "# a\n #\n10 40\n40 7\n",
        "10 40\n   # more\n40 7\n", "10 40\n40 7\n #", "\ufeff # a\n10 40\n40 7\n", " # a\r\n10 40\r\n40 7\r\n",
        " # a\r10 40\r # b\r40 7\r",
    ],
)  # fmt: skip
def test_a_comment_may_be_indented(text, tmp_path):
    """Such a line at the beginning of a list took all its edges away, and one further down was no integer."""
    for name, written in (("toy.txt", text.encode()), ("toy.txt.gz", gzip.compress(text.encode()))):
        path = tmp_path / name
        path.write_bytes(written)
        assert edge_list(snap_source.read(path, undirected=False)) == [(1, 2), (2, 0)]


def test_quotation_marks_in_further_columns_take_no_edges_away(tmp_path):
    path = write(tmp_path, '0 1 "pipe\n1 2\n2 3 x"\n3 4 "a b"\n')
    assert edge_list(snap_source.read(path, undirected=False)) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_very_sparse_ids_are_compacted_too(tmp_path):
    path = write(tmp_path, "9000000000 5\n5 123456789\n")
    assert edge_list(snap_source.read(path, undirected=False)) == [(0, 1), (2, 0)]


def test_undirected_is_the_default_and_merges_both_directions(tmp_path):
    path = write(tmp_path, "0 1\n1 0\n1 2\n2 2\n1 2\n")
    assert edge_list(snap_source.read(path)) == [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]
    assert edge_list(snap_source.read(path, undirected=False)) == [(0, 1), (1, 0), (1, 2), (1, 2), (2, 2)]


def test_found_by_name_below_the_root_and_by_path(tmp_path):
    (tmp_path / "snap").mkdir()
    with gzip.open(tmp_path / "snap" / "net.txt.gz", "wt") as handle:
        handle.write("0 1\n")
    write(tmp_path, "0 1\n1 2\n", "other.txt")
    assert load("snap:net", tmp_path).num_edges == 2
    assert load("snap:net.txt.gz", tmp_path).num_edges == 2
    for name in ("snap:net", "snap:net.txt.gz"):  # whichever was cached first
        assert load(name, tmp_path).name == name
    assert load("snap:other", tmp_path).num_edges == 4
    assert load(f"snap:{tmp_path / 'other.txt'}", tmp_path / "elsewhere").num_edges == 4


def test_a_changed_list_is_read_again(tmp_path):
    path = write(tmp_path, "0 1\n")
    assert load("snap:toy", tmp_path).num_edges == 2
    path.write_text("0 1\n1 2\n")
    assert load("snap:toy", tmp_path).num_edges == 4
    assert load("snap:toy", tmp_path, undirected=False).num_edges == 2


@pytest.mark.parametrize("text", ["", "\n", "\n \n\n", "# nothing\n", " # a\n\n# b\n"])
def test_a_list_without_edges_is_empty(tmp_path, text):
    """Blank lines and comments alone are no more of a list than no byte at all."""
    path = write(tmp_path, text)
    (tmp_path / "toy.txt.gz").write_bytes(gzip.compress(text.encode()))
    for path in (tmp_path / "toy.txt", tmp_path / "toy.txt.gz"):
        with pytest.raises(CorruptDataError, match=rf"{path.name} is empty"):
            snap_source.read(path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("0 a\n", "line 1 must have 2 integer"), ("# x\n0\n", "line 2 must have 2 integer"),
        ("0 1\n0 1.5\n", "line 2 must have 2 integer"), ("1.5,2\n", "line 1 must have 2 integer"),
        ("-1 2\n", r"must not be negative .got -1"), ("0 1\n2\n", "line 2 must have 2 integer"),
        ("0 1\n2 9223372036854775808\n", "line 2 must have 2 integer"), ("0 True\n", "line 1 must have"),
        ("1e3 2\n", "line 1 must have 2 integer"), ("0 nan\n", "line 1 must have"), ("", "is empty"),
        # White space that no list has, as pasted from a web page.
        ("0\u00a01\n", "line 1 must have 2 integer"), ("0 1\n1\u00a02\n", "line 2 must have 2 integer"),
        ("0 1\n1\v2\n", "line 2 must have 2 integer"), ("0 1\n1 2\u00a0\n", "line 2 must have 2 integer"),
    ],
)  # fmt: skip
def test_other_contents_are_an_error_that_names_the_file_and_the_line(tmp_path, text, match):
    path = write(tmp_path, text)
    with pytest.raises(CorruptDataError, match=rf"toy\.txt.*{match}"):
        snap_source.read(path)


def test_a_cut_off_file_is_an_error_that_names_it(tmp_path, data_root):
    whole = (data_root / "snap" / "soc-Epinions1.txt.gz").read_bytes()
    (tmp_path / "cut.txt.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptDataError, match=r"cut\.txt\.gz is cut off or damaged"):
        load("snap:cut", tmp_path)


def test_missing_lists_say_where_was_searched(tmp_path):
    with pytest.raises(
        DatasetNotFoundError, match=f"'snap:nowhere' was not found in {tmp_path}/snap.*no address"
    ):
        load("snap:nowhere", tmp_path)
    with pytest.raises(DatasetNotFoundError, match="snap:soc-Epinions1"):
        load("snap:soc-Epinions1", tmp_path, download=False)
    with pytest.raises(UnknownDatasetError, match="path or name"):
        load("snap:", tmp_path)


def test_what_an_earlier_reader_made_of_a_list_is_not_taken_from_the_cache(tmp_path, monkeypatch):
    path = write(tmp_path, " # a\n10 40\n40 7\n")
    with monkeypatch.context() as earlier:
        earlier.setattr(snap_source, "VERSION", snap_source.VERSION - 1)
        earlier.setattr(snap_source, "read", lambda *_, **__: Graph.from_edges([], [], 0))
        assert load(f"snap:{path}", tmp_path).num_edges == 0
    assert load(f"snap:{path}", tmp_path).num_edges == 4


def weights_of(g):
    src, dst = g.edges()
    return dict(zip(zip(src.tolist(), dst.tolist()), g.edge_weight.tolist()))


@pytest.mark.parametrize("name", ["toy.txt", "toy.txt.gz"])
@pytest.mark.parametrize(
    "text",
    [
        "0 1 0.5\n2 0 1e1\n1 2 3\n", "0 1 .5\n2 0 10 # 7\n1 2 3 8 x\n", "# a\n0\t1\t0.5\r\n\n2 0 10 \n1 2 +3.\n",
        "0 1 0.5\r2 0 10\r1 2 3\r", " # a\n0 1 0.5\n # b\n2 0 10\n1 2 3\n", "\ufeff0 1 0.5\n2 0 10\n1 2 3\n",
        "\ufeff# a\n0 1 5e-1\n2 0 10\n1 2 3\n",
    ],
)  # fmt: skip
def test_a_third_column_of_numbers_is_the_weights_where_they_are_asked_for(tmp_path, text, name):
    """They were random, as if the list had none."""
    plain = text.encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(plain) if name.endswith(".gz") else plain)
    g = load(f"snap:{path}", tmp_path, weighted=True, undirected=False)
    assert weights_of(g) == {(0, 1): 0.5, (1, 2): 3.0, (2, 0): 10.0} and g.edge_weight.dtype == np.float32
    assert load(f"snap:{path}", tmp_path, undirected=False).edge_weight is None


def test_weights_of_a_long_list_are_those_of_its_lines(tmp_path):
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 200, (2, 5000)) * 7
    weight = rng.random(5000).astype(np.float32)
    lines = [f"{u} {v} {w!r}\n" for u, v, w in zip(src.tolist(), dst.tolist(), weight.tolist())]
    path = write(tmp_path, "".join(lines))
    given = Graph.from_edges(src // 7, dst // 7, 200, edge_weight=weight)
    assert snap_source.read(path, undirected=False, weighted=True).digest() == given.digest()
    union = snap_source.read(path, weighted=True)
    assert edge_list(union) == edge_list(snap_source.read(path))
    first: dict[tuple[int, int], float] = {}
    for ends in ((src, dst), (dst, src)):
        for u, v, w in zip(*(each.tolist() for each in ends), weight.tolist()):
            first.setdefault((u // 7, v // 7), w)
    assert weights_of(union) == first


def test_weights_of_both_directions_and_of_edges_that_are_listed_again(tmp_path):
    path = write(tmp_path, "0 1 1\n1 2 2\n0 1 3\n2 1 4\n2 2 5\n3 0 6\n")
    union = {(0, 1): 1, (1, 0): 1, (1, 2): 2, (2, 1): 4, (2, 2): 5, (3, 0): 6, (0, 3): 6}
    assert weights_of(snap_source.read(path, weighted=True)) == union
    listed = snap_source.read(path, weighted=True, undirected=False)
    src, dst = listed.edges()
    edges = sorted(zip(src.tolist(), dst.tolist(), listed.edge_weight.tolist()))
    assert edges == [(0, 1, 1), (0, 1, 3), (1, 2, 2), (2, 1, 4), (2, 2, 5), (3, 0, 6)]


@pytest.mark.parametrize(
    "text", ["0 1\n1 2\n", "0 1 x\n1 2 3\n", "0 1 0,5\n1 2\n", "0 1 # 5\n1 2\n", "0 1 1_0\n1 2\n"]
)
def test_other_columns_stay_unread_and_the_weights_are_random(tmp_path, text):
    path = write(tmp_path, text)
    g = load(f"snap:{path}", tmp_path, weighted=True, seed=3)
    assert edge_list(g) == [(0, 1), (1, 0), (1, 2), (2, 1)] and (g.edge_weight >= 1).all()
    again = load(f"snap:{path}", tmp_path, weighted=True, seed=4)
    assert again.edge_weight.tolist() != g.edge_weight.tolist()
    assert load(f"snap:{path}", tmp_path).edge_weight is None
    assert len(list((tmp_path / ".gnnsample_lab").glob("toy-*"))) == 1, (
        "a list without weights is cached once"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0 1 0.5\n1 2\n", 2), ("0 1\n1 2 0.5\n", 1), ("# a\n\n0 1 0.5\n1 2 x\n", 4), ("0 1 1\n1 2 -0.5\n", 2),
        ("0 1 -1\n", 1), ("0 1 1\n1 2 nan\n", 2), ("0 1 nan\n", 1), ("0 1 1\n1 2 inf\n", 2), ("0 1 1e39\n", 1),
        ("0 1 1\n1 2 1e-46\n", 2), (" # a\n0 1 1\n # b\n1 2 -3\n", 4), ("0 1 1\r1 2 x\r", 2),
        ("0 1 1\n1 2 True\n", 2), ("0 1 1\n1 2 0,5\n", 2),
    ],
)  # fmt: skip
def test_what_is_no_weight_is_an_error_that_names_the_file_and_the_line(tmp_path, text, line):
    path = write(tmp_path, text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            CorruptDataError, match=rf"toy\.txt line {line} must have a weight in its third column"
        ):
            load(f"snap:{path}", tmp_path, weighted=True)
        assert load(f"snap:{path}", tmp_path).edge_weight is None


def test_a_graph_in_the_cache_does_not_hide_the_weights_of_its_list(tmp_path):
    path = write(tmp_path, "0 1 0.5\n")
    assert load(f"snap:{path}", tmp_path).edge_weight is None
    for _ in range(2):
        g = load(f"snap:{path}", tmp_path, weighted=True)
        assert weights_of(g) == {(0, 1): 0.5, (1, 0): 0.5} and isinstance(g.edge_weight, np.memmap)
    assert load(f"snap:{path}", tmp_path).edge_weight is None
    path.write_text("0 1 0.25\n")
    assert weights_of(load(f"snap:{path}", tmp_path, weighted=True)) == {(0, 1): 0.25, (1, 0): 0.25}


def test_a_damaged_list_with_weights_is_named(tmp_path):
    whole = gzip.compress("".join(f"{i} {i + 1} 0.{i}\n" for i in range(20_000)).encode())
    (tmp_path / "cut.txt.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptDataError, match=r"cut\.txt\.gz is cut off or damaged"):
        load("snap:cut", tmp_path, weighted=True)
