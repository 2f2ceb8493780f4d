"""The Graph type: what it accepts, what it refuses and how, degrees, identity, placement."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.device import runtime
from gnnsample_lab.device.runtime import cuda_available
from gnnsample_lab.graph import Graph, checks

INDPTR = np.array([0, 2, 2, 3, 5], dtype=np.int64)
INDICES = np.array([1, 3, 0, 0, 3], dtype=np.int32)


def small(**changes: object) -> Graph:
    given = {"indptr": INDPTR, "indices": INDICES, **changes}
    return Graph(**given)  # type: ignore[arg-type]


def naive_csc(src, dst, num_nodes, weight=None):
    order = sorted(range(len(src)), key=lambda i: (dst[i], src[i], i))
    counts = np.bincount(dst, minlength=num_nodes) if len(dst) else np.zeros(num_nodes, int)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return indptr, [src[i] for i in order], None if weight is None else [weight[i] for i in order]


@pytest.mark.parametrize("size", [0, 1, 50, 3000])
def test_from_edges_is_the_sorted_in_neighbour_csc(size):
    rng = np.random.default_rng(size)
    src, dst = rng.integers(0, 40, size), rng.integers(0, 40, size)
    weight = rng.random(size)
    g = Graph.from_edges(src, dst, 40, edge_weight=weight)
    indptr, indices, weights = naive_csc(src, dst, 40, weight)
    assert g.indptr.tolist() == indptr.tolist()
    assert g.indices.tolist() == indices
    assert g.edge_weight.tolist() == np.array(weights, np.float32).tolist()
    assert (g.indptr.dtype, g.indices.dtype, g.edge_weight.dtype) == (np.int64, np.int32, np.float32)
    plain = Graph.from_edges(src, dst, 40)
    assert plain.indices.tolist() == indices and plain.edge_weight is None


@pytest.mark.parametrize("word_bits", [63, 30, 25])
def test_weighted_edges_that_agree_keep_their_order_of_input(word_bits, monkeypatch):
    # Narrower words force the ranges of destinations to be halved, as graphs with more vertices do.
    import gnnsample_lab.graph.csc as csc

    original = csc.key_bits
    monkeypatch.setattr(csc, "key_bits", lambda n: original(n) + (63 - word_bits if n == 300 else 0))
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 30, 20_000), rng.integers(0, 300, 20_000)
    g = Graph.from_edges(src, dst, 300, edge_weight=np.arange(20_000))
    order = np.lexsort((np.arange(20_000), src, dst))
    assert np.array_equal(g.edge_weight, order.astype(np.float32))
    assert np.array_equal(g.indices, src[order])


def test_directions_self_loops_parallel_edges_and_isolated_vertices():
    g = Graph.from_edges([0, 0, 2, 2], [1, 1, 2, 0], num_nodes=5)
    assert g.num_nodes == 5 and g.num_edges == 4
    assert g.in_degrees().tolist() == [1, 2, 1, 0, 0]
    assert g.out_degrees().tolist() == [2, 0, 2, 0, 0]
    assert g.max_in_degree == 2
    src, dst = g.edges()
    assert list(zip(dst.tolist(), src.tolist())) == [(0, 2), (1, 0), (1, 0), (2, 2)]


def test_undirected_adds_reverse_edges_with_weights_but_doubles_no_self_loop():
    g = Graph.from_edges([0, 1, 2], [1, 2, 2], edge_weight=[1.0, 2.0, 3.0], undirected=True)
    src, dst = g.edges()
    got = sorted(zip(src.tolist(), dst.tolist(), g.edge_weight.tolist()))
    assert got == [(0, 1, 1.0), (1, 0, 1.0), (1, 2, 2.0), (2, 1, 2.0), (2, 2, 3.0)]


def test_from_edges_takes_lists_torch_and_any_integer_dtype():
    torch = pytest.importorskip("torch")
    expected = Graph.from_edges([0, 3], [3, 1]).digest()
    for make in (
        np.uint64, np.uint8, np.int32, lambda x: torch.tensor(x), lambda x: torch.tensor(x, dtype=torch.int32)
    ):  # fmt: skip
        assert Graph.from_edges(make([0, 3]), make([3, 1])).digest() == expected


def test_from_csc_sorts_each_list():
    g = Graph.from_csc([0, 3, 3, 4], [2, 0, 1, 2], edge_weight=[1, 2, 3, 4])
    assert g.indices.tolist() == [0, 1, 2, 2]
    assert g.edge_weight.tolist() == [2, 3, 1, 4]


def test_node_data_is_converted_and_masks_become_ids():
    g = Graph.from_edges(
        [0, 1], [1, 2], 3, feat=np.ones((3, 2)), label=np.array([[2], [0], [-1]]),
        splits={"train": np.array([True, False, True]), "test": [1]},
    )  # fmt: skip
    assert g.feat.dtype == np.float32 and g.num_features == 2
    assert g.label.tolist() == [2, 0, -1] and g.label.dtype == np.int64 and g.num_classes == 3
    assert g.splits["train"].tolist() == [0, 2] and g.splits["test"].dtype == np.int64
    many = Graph.from_edges([0], [1], 2, label=np.array([[0, 1, 1], [1, 0, 0]]))
    assert many.label.shape == (2, 3) and many.num_classes == 3


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"indptr": np.array([0, 2, 1, 3, 5])}, ValueError, "indptr must not decrease .*2 then 1 at vertex 1"),
        ({"indptr": np.array([1, 2, 2, 3, 5])}, ValueError, "indptr must start at 0"),
        ({"indptr": np.array([0, 2, 2, 3, 4])}, ValueError, "end at the number of indices, 5"),
        ({"indptr": np.array([], dtype=np.int64)}, ValueError, "indptr must have num_nodes"),
        ({"indptr": INDPTR.astype(float)}, TypeError, "indptr must be integers .got dtype float64"),
        ({"indptr": INDPTR.reshape(1, -1)}, ValueError, "indptr must be one-dimensional"),
        ({"indices": np.array([1, 4, 0, 0, 3])}, ValueError, r"indices must be vertex ids in 0\.\.3.*4 at position 1"),
        ({"indices": np.array([-1, 3, 0, 0, 3])}, ValueError, "indices must be vertex ids"),
        ({"indices": INDICES.astype(np.float32)}, TypeError, "indices must be integers"),
        ({"indices": np.array([3, 1, 0, 0, 3])}, ValueError, "indices must be sorted .*position 1"),
        ({"edge_weight": np.ones(4)}, ValueError, r"edge_weight must have shape \(5,\)"),
        ({"edge_weight": np.array([1, 1, np.nan, 1, 1])}, ValueError, "edge_weight must be finite.*nan at pos.* 2"),
        ({"edge_weight": np.array([1, 1, 1, np.inf, 1])}, ValueError, "edge_weight must be finite.*pos.* 3"),
        ({"edge_weight": np.array([1, -1.0, 1, 1, 1])}, ValueError, "edge_weight.*negative.*-1.0 at position 1"),
        ({"edge_weight": np.array([1, -1e-300, 1, 1, 1])}, ValueError, "edge_weight.*negative.*-1e-300 at position 1"),
        ({"edge_weight": np.array([1, 1, 1e39, 1, 1])}, ValueError, r"edge_weight must fit 32 bits .got 1e.39 at .* 2"),
        ({"edge_weight": np.array(["a"] * 5)}, TypeError, "edge_weight must hold numbers"),
        ({"feat": np.ones(4)}, ValueError, r"feat must have shape \(4, features\)"),
        ({"feat": np.ones((3, 2))}, ValueError, "feat must have shape"),
        ({"feat": np.array([["a"]] * 4)}, TypeError, "feat must hold numbers"),
        ({"label": np.zeros(3, int)}, ValueError, "label must have shape"),
        ({"label": np.zeros(4)}, TypeError, "label must be integers"),
        ({"label": np.array([0, 1, -2, 0])}, ValueError, "label must be at least -1"),
        ({"splits": {"train": [0, 4]}}, ValueError, r"splits\['train'\] must be vertex ids in 0\.\.3"),
        ({"splits": {"train": np.ones(3, bool)}}, ValueError, "splits.*mask must have shape"),
        ({"splits": {"train": np.array([0, 1, 1, 0], np.uint8)}}, TypeError, "splits.*mask must hold booleans"),
        ({"splits": {"train": [0.5]}}, TypeError, "splits.*must be integers"),
        ({"splits": [1, 2]}, TypeError, "splits must map names"),
        ({"splits": {1: [0]}}, TypeError, r"^names in splits must be strings .got 1 of type int"),
    ],
)  # fmt: skip
def test_a_bad_graph_is_an_error_that_names_the_argument(changes, error, match):
    small()  # the unchanged one is fine
    with pytest.raises(error, match=match):
        small(**changes)


@pytest.mark.parametrize(
    ("args", "error", "match"),
    [
        (([0, 1], [1]), ValueError, "src and dst must have one entry per edge each .got 2 and 1"),
        (([0, 5], [1, 0], 5), ValueError, r"src must be vertex ids in 0\.\.4.*got 5 at position 1"),
        (([0, 1], [1, -3], 5), ValueError, r"dst must be vertex ids in 0\.\.4.*got -3 at position 1"),
        (([0.0, 1.0], [1, 0], 5), TypeError, "src must be integers"),
        (([0, 1], [1, 0], 2.5), TypeError, "num_nodes must be an integer"),
        (([0, 1], [1, 0], True), TypeError, "num_nodes must be an integer"),
        (([], [], -1), ValueError, "num_nodes must be between 0 and"),
        (([0], [0], 0), ValueError, "src must be vertex ids"),
        (([[0, 1]], [[1, 0]]), ValueError, "src must be one-dimensional"),
    ],
)
def test_bad_edges_are_errors_that_name_the_argument(args, error, match):
    with pytest.raises(error, match=match):
        Graph.from_edges(*args)


@pytest.mark.parametrize(
    ("args", "got"),
    [
        (([2**40], [1]), "1,099,511,627,777, the largest id of src and dst plus one"),
        (([1], [2**40]), "1,099,511,627,777, the largest id of src and dst plus one"),
        (([0], [1], 2**40), "1,099,511,627,776"),
        (([], [], 2**40), "1,099,511,627,776"),
    ],
)
def test_more_vertices_than_memory_holds_are_an_error_that_says_what_to_do(args, got, monkeypatch):
    """NumPy's said how many TiB it could not allocate, and not for what."""
    monkeypatch.setattr("gnnsample_lab.graph.graph.free_host_bytes", lambda: 2**30)
    for options in ({}, {"keep_edge_ids": True}, {"undirected": True}):
        with pytest.raises(
            MemoryError,
            match=rf"^num_nodes must fit memory .got {got}, which needs 16384.*1.00 GiB are free.: compact",
        ):
            Graph.from_edges(*args, **options)
    assert Graph.from_edges([0], [1], 2**24).num_nodes == 2**24
    monkeypatch.undo()
    with pytest.raises(MemoryError, match="compact the ids of src and dst"):
        Graph.from_edges([2**47], [1])


def test_unsorted_lists_are_found_at_a_chunk_border_too():
    from gnnsample_lab.graph import checks

    for chunk in (1, 2, 3, 4):
        with pytest.raises(ValueError, match="position 2 "):
            checks.adjacency(np.array([0, 4, 4, 4]), np.array([0, 1, 0, 2]), chunk)
    checks.adjacency(np.array([0, 2, 4]), np.array([0, 1, 0, 1]), 2)  # a drop where a vertex begins is fine


def test_a_graph_is_frozen_and_says_what_it_is():
    g = small(name="toy", is_synthetic=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        g.name = "other"
    assert g.title == "toy (synthetic)" and "4 nodes, 5 directed edges" in repr(g) and "synthetic" in repr(g)
    assert small(name="real").title == "real"
    assert g.device == "cpu" and g.to("cpu") is g
    assert g.nbytes == g.indptr.nbytes + g.indices.nbytes


def test_digest_sees_every_part():
    variants = [
        small(), small(edge_weight=np.ones(5)), small(label=np.zeros(4, int)), small(feat=np.ones((4, 1))),
        small(splits={"train": [0]}), small(splits={"train": [1]}), small(splits={"test": [0]}),
        small(indices=np.array([1, 3, 0, 1, 3])),
    ]  # fmt: skip
    assert len({g.digest() for g in variants}) == len(variants)
    assert small().digest() == small(name="other").digest()


def test_memory_mapped_arrays_stay_mapped(tmp_path):
    np.save(tmp_path / "indptr.npy", INDPTR)
    np.save(tmp_path / "indices.npy", INDICES)
    g = Graph(
        np.load(tmp_path / "indptr.npy", mmap_mode="r"), np.load(tmp_path / "indices.npy", mmap_mode="r")
    )
    assert isinstance(g.indices, np.memmap) and g.out_degrees().tolist() == [2, 1, 0, 2]


def test_arrays_with_gaps_are_copied_since_walks_and_kernels_read_plain_memory():
    """A column of a table and a reversed array: readers of addresses would take the table's other numbers."""
    table = np.stack([INDPTR, np.full(5, 7)], axis=1)
    packed = np.stack([INDICES, np.full(5, 2, np.int32)], axis=1)
    heavy = np.arange(10, 0, -1, dtype=np.float32)[::2]
    gaps = small(indptr=table[:, 0], indices=packed[:, 0], edge_weight=heavy, edge_ids=np.arange(5)[::-1])
    plain = small(edge_weight=heavy.copy(), edge_ids=np.arange(5)[::-1].copy())
    for name in ("indptr", "indices", "edge_weight", "edge_ids"):
        array = getattr(gaps, name)
        assert array.flags.c_contiguous and np.array_equal(array, getattr(plain, name))
    assert dataclasses.replace(plain, edge_weight=heavy, validate=False).edge_weight.flags.c_contiguous
    roots = np.arange(4)
    for app in (lab.apps.DeepWalk(6), lab.apps.Layer(20, 3)):
        assert lab.run_app(gaps, app, roots, device="cpu") == lab.run_app(plain, app, roots, device="cpu")


def test_a_graph_larger_than_the_gpu_is_an_error_with_both_sizes():
    g = small(feat=np.ones((4, 2**20), np.float32))
    with pytest.raises(
        MemoryError, match=r"'graph' needs 16.00 MiB .*8.00 MiB free of 1.00 GiB.*features=False"
    ):
        g._check_fits(True, 2**23, 2**30)
    g._check_fits(False, 2**23, 2**30)
    g._check_fits(True, 2**25, 2**30)
    with pytest.raises(MemoryError) as error:
        g._check_fits(True, 4, 2**30)
    assert "features=False" not in str(error.value)  # would not help


@pytest.mark.skipif(cuda_available(), reason="checks the message of machines without a GPU")
def test_cuda_without_a_gpu_says_what_is_missing():
    with pytest.raises(RuntimeError, match=r"'cuda' was asked for, but .*CuPy"):
        small().to("cuda")
    with pytest.raises(ValueError, match="device must be"):
        small().to("tpu")


@pytest.mark.gpu
def test_round_trip_over_the_gpu():
    import cupy

    g = small(edge_weight=np.arange(5), feat=np.ones((4, 2)), label=np.arange(4), splits={"train": [1, 2]})
    moved = g.to("cuda")
    assert moved.device == "cuda" and isinstance(moved.feat, cupy.ndarray) and moved.digest() == g.digest()
    assert moved.to("cpu").digest() == g.digest() and moved.to("cuda") is moved
    assert moved.out_degrees().get().tolist() == g.out_degrees().tolist() and moved.max_in_degree == 2
    assert all(np.array_equal(a.get(), b) for a, b in zip(moved.edges(), g.edges()))
    host_features = g.to("cuda", features=False)
    assert isinstance(host_features.feat, np.ndarray) and host_features.digest() == g.digest()


@pytest.mark.gpu
def test_edges_on_the_gpu_give_the_same_graph():
    import cupy

    rng = np.random.default_rng(0)
    src, dst, weight = rng.integers(0, 50, 4000), rng.integers(0, 50, 4000), rng.random(4000)
    for kwargs in ({}, {"undirected": True}):
        host = Graph.from_edges(src, dst, 50, edge_weight=weight, **kwargs)
        gpu = Graph.from_edges(
            cupy.asarray(src), cupy.asarray(dst), 50, edge_weight=cupy.asarray(weight), **kwargs
        )
        assert gpu.device == "cuda" and gpu.digest() == host.digest()
        Graph(gpu.indptr, gpu.indices, gpu.edge_weight)  # the checks run on the GPU too
    with pytest.raises(ValueError, match="indices must be vertex ids"):
        Graph(cupy.array([0, 1]), cupy.array([7]))


@pytest.mark.gpu
def test_mixed_devices_are_an_error_that_names_the_argument():
    import cupy

    with pytest.raises(ValueError, match=r"indptr and indices must be on one device .got cpu and cuda"):
        Graph(INDPTR, cupy.asarray(INDICES))
    with pytest.raises(ValueError, match=r"edge_weight must be on the device of indptr, cpu .got cuda"):
        Graph(INDPTR, INDICES, cupy.ones(5))
    with pytest.raises(ValueError, match="src and dst must be on one device"):
        Graph.from_edges(cupy.array([0]), np.array([0]))
    with pytest.raises(ValueError, match="edge_weight must be on the device of src"):
        Graph.from_edges(cupy.array([0]), cupy.array([0]), edge_weight=np.ones(1))


@pytest.mark.gpu
def test_a_graph_larger_than_free_gpu_memory_is_refused(monkeypatch):
    monkeypatch.setattr(runtime, "gpu_memory", lambda: (8, 2**30), raising=False)
    with pytest.raises(MemoryError, match=r"needs .* on the GPU, which has .* free of 1\.00 GiB"):
        small().to("cuda")


def test_values_that_64_or_32_bits_cannot_hold_are_named():
    large = np.array([2**64 - 1, 0], np.uint64)
    edges = ([0], [1], 2)
    with pytest.raises(ValueError, match="label must be below"):
        Graph.from_edges(*edges, label=large)
    with pytest.raises(ValueError, match="edge_ids must be below"):
        Graph([0, 1, 2], [0, 1], edge_ids=large)
    with pytest.raises(ValueError, match="edge_weight must be 0 or at least 1.4e-45"):
        Graph.from_edges(*edges, edge_weight=[1e-46])
    with pytest.raises(ValueError, match="feat must fit 32 bits"):
        Graph.from_edges(*edges, feat=[[1e300], [np.inf]])
    assert np.isnan(Graph.from_edges(*edges, feat=[[np.nan], [np.inf]]).feat[0, 0])


def test_whole_numbers_that_features_do_not_hold_are_told():
    """Ids among features, say: two of them may become one."""
    with pytest.warns(UserWarning, match="feat: whole numbers beyond .* are rounded .*16777217 among them"):
        Graph.from_edges([0], [1], 2, feat=[[3], [2**24 + 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Graph.from_edges([0], [1], 2, feat=[[-(2**24)], [2**40]]).feat[1, 0] == 2**40
        for held in ([[-(2**63)], [2**63 - 2**39]], np.array([[2**64 - 2**40], [0]], np.uint64)):
            assert (
                Graph.from_edges([0], [1], 2, feat=held).feat.astype(object).tolist()
                == np.array(held).tolist()
            )
    for beyond in ([[2**53 + 1]], [[2**63 - 1]], [[-(2**63) + 1]], np.array([[2**64 - 1]], np.uint64)):
        with pytest.warns(UserWarning, match="are rounded to float32"):
            Graph.from_edges([0], [0], 1, feat=beyond)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("piece", [1, 7, 1 << 24])
def test_features_become_float32_piece_by_piece(order, piece, monkeypatch):
    monkeypatch.setattr(checks, "_PIECE", piece)
    feat = np.asarray(np.random.default_rng(0).normal(size=(9, 3)), order=order)
    found = Graph.from_edges([0], [1], 9, feat=feat).feat
    assert found.dtype == np.float32 and np.array_equal(found, feat.astype(np.float32))
    feat[5, 2] = -1e39
    with pytest.raises(ValueError, match=r"feat must fit 32 bits .got -1e.39"):
        Graph.from_edges([0], [1], 9, feat=feat)
    with pytest.warns(UserWarning) as told:
        Graph.from_edges([0], [1], 9, feat=np.arange(2**24, 2**24 + 27).reshape(9, 3))
    (once,) = told
    assert "16777217 among them" in str(once.message) and once.filename == __file__
    assert Graph.from_edges([0], [1], 9, feat=np.ones((9, 0), int)).feat.shape == (9, 0)


def test_weights_that_lose_digits_are_told():
    """Three vertices, of which one is twice as heavy as another in 64 bits, and as heavy in 32."""
    with pytest.warns(
        UserWarning, match="edge_weight: numbers below 1.2e-38 lose digits in 32 bits .1e-45 becomes"
    ):
        Graph.from_edges([1, 2], [0, 0], 3, edge_weight=[1e-45, 2e-45])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Graph.from_edges([1, 2, 0], [0, 0, 0], 3, edge_weight=[2.0**-149, 3 * 2.0**-140, 0.1])
        Graph.from_edges([1], [0], 3, edge_weight=np.array([1e-45], np.float32))


def test_other_labels_have_classes_of_their_own():
    """A number that was given stays, and is held against the labels; one that was found grows with them."""
    found = Graph.from_edges([0, 1], [1, 0], label=[0, 2])
    of = [dataclasses.replace(found, label=label).num_classes for label in (None, [0, 1], [0, 5])]
    assert (found.num_classes, of) == (3, [3, 3, 6]) and repr(found.num_classes) == "3"
    assert dataclasses.replace(found, label=[0, 1], num_classes=-1).num_classes == 2
    assert dataclasses.replace(found, label=[[0, 1], [1, 1]]).num_classes == 2
    assert dataclasses.replace(found, feat=np.ones((2, 1))).num_classes == 3
    given = dataclasses.replace(found, num_classes=4)
    assert dataclasses.replace(given, label=[0, 1]).num_classes == 4
    with pytest.raises(
        ValueError, match="num_classes must be the number of classes that label has, 6 .got 4"
    ):
        dataclasses.replace(given, label=[0, 5])


def test_the_other_byte_order_is_turned_around():
    src, dst = np.array([0, 1, 1], ">u8"), np.array([1, 0, 1], ">i4")
    g = Graph.from_edges(src, dst, edge_weight=np.array([1, 2, 3], ">f8"), feat=np.array([[1], [2]], ">i2"))
    assert (
        g.indices.tolist() == [1, 0, 1]
        and g.edge_weight.tolist() == [2, 1, 3]
        and g.feat.tolist() == [[1], [2]]
    )
    assert all(array.dtype.isnative for array in (g.indptr, g.indices, g.edge_weight, g.feat))
    with pytest.raises(ValueError, match="label must be below 2..63"):
        Graph.from_edges([0], [1], label=np.array([2**64 - 1, 1], ">u8"))
    with pytest.raises(ValueError, match="edge_ids must be below 2..63"):
        Graph([0, 1], [0], edge_ids=np.array([2**63 + 5], ">u8"))


@pytest.mark.parametrize(
    ("one", "other"), [(np.uint64, np.int64), (np.int32, np.uint64), (np.uint64, np.int8)]
)
def test_ids_of_two_types_have_reverse_edges_too(one, other):
    found = Graph.from_edges(np.array([0, 1], one), np.array([1, 2], other), 3, undirected=True)
    assert found.indptr.tolist() == [0, 1, 3, 4] and found.indices.tolist() == [1, 0, 2, 1]


@pytest.mark.parametrize("count", [1, 7])
def test_weights_are_one_an_edge_also_where_they_are_not_read(count):
    with pytest.raises(ValueError, match=rf"edge_weight must have shape \(2,\), one per edge .*\({count},\)"):
        Graph([0, 1, 2], [1, 0], np.ones(count, np.float32), validate=False)
