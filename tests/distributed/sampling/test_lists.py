"""Rows that lie anywhere: records, tables of places, and the kernels' look-up, compiled for the host."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench.configurations import test_graph as drawn_graph
from gnnsample_lab.device.kernels import PACKAGE_ROOT
from gnnsample_lab.distributed.parts.hot import hottest_lists
from gnnsample_lab.distributed.parts.part import Part, part_of, vertex_records
from gnnsample_lab.distributed.parts.partition import Partition
from gnnsample_lab.distributed.ranks.run import Ranks
from gnnsample_lab.distributed.sampling.gpu.lists import (
    Copies,
    fill,
    graph_by_local_records,
    graph_by_owners_records,
    own_records,
    room_for,
)
from gnnsample_lab.sampling.neighbors.lists import (
    START_LIMIT,
    WIDE,
    ListsGraph,
    Place,
    pack_records,
    unpack_records,
    where_rows,
)
from tests.conftest import absent

_HOST = """
#define LAB_PLAN
#define __device__
#define __forceinline__ inline
typedef unsigned int u32; typedef unsigned long long u64; typedef long long i64;
template <class T> T __ldg(const T* at) { return *at; }
struct Plan { const i64* indptr; const u64* prefix; const int* available; };
#include "HEADER"
extern "C" void locate(const i64* indptr, const u64* prefix, const int* available, u64 v, u64* out) {
    Plan p = {indptr, prefix, available};
    i64 start; int degree, choice = 0; const u64* sums = 0;
    lab_locate(p, v, start, degree, sums, choice);
    out[0] = start; out[1] = degree; out[2] = (u64)(sums + start); out[3] = choice;
}
"""


@pytest.mark.parametrize(
    ("start", "degree"),
    [
        (0, 0), (5, WIDE - 1), (5, WIDE), (5, WIDE + 1), (7, 2**24), (7, 2**31 - 1), (2**36, 3), (2**40 + 5, 2**25),
        (START_LIMIT - 1, 10), (START_LIMIT, 10), (2**62, 2**31 - 1),
    ],
)  # fmt: skip
def test_a_record_gives_back_what_it_was_made_of(start: int, degree: int) -> None:
    starts, degrees = np.array([3, start, 4], dtype=np.int64), np.array([1, degree, 0], dtype=np.int64)
    packed = pack_records(starts, degrees)
    fits = degree < WIDE and start < START_LIMIT
    assert packed.dtype == np.uint64 and len(packed) == (3 if fits else 5)
    found = unpack_records(packed, 3)
    assert found[0].tolist() == starts.tolist()
    assert found[1].tolist() == degrees.tolist()


def test_many_records_that_do_not_fit() -> None:
    rng = np.random.default_rng(3)
    starts = rng.integers(0, 2**50, 10_000)
    degrees = rng.choice([0, 5, WIDE, 2**24 + 1, 2**30], 10_000)
    packed = pack_records(starts, degrees)
    wide = int(((degrees >= WIDE) | (starts >= START_LIMIT)).sum())
    assert 0 < wide < 10_000 and len(packed) == 10_000 + 2 * wide
    found = unpack_records(packed, 10_000)
    assert np.array_equal(found[0], starts) and np.array_equal(found[1], degrees)


def test_place_and_row_fit_32_bits_where_they_can() -> None:
    owner = np.array([0, 2, 1], dtype=np.int8)
    where, bits = where_rows(owner, np.array([7, 2**29, 0]), 3)
    assert (where.dtype, bits) == (np.uint32, 2)
    assert (where >> np.uint32(bits)).tolist() == [7, 2**29, 0]
    assert (where & np.uint32(3)).tolist() == [0, 2, 1]
    where, bits = where_rows(owner, np.array([7, 2**30, 0]), 3)
    assert where.dtype == np.uint64 and (where >> np.uint64(bits)).tolist() == [7, 2**30, 0]
    assert where_rows(owner[:1], np.array([2**31]), 1)[1] == 0


# ---- the kernels' look-up, on the host -------------------------------------------------------------------------


class Held:
    """A NumPy array in the place of a CuPy array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.nbytes, self.dtype = array, array.nbytes, array.dtype
        self.ptr = array.ctypes.data

    @property
    def data(self) -> Held:
        return self


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the look-up, compiled for the host: one library for each way to keep records and kind of rule."""
    compiler = shutil.which("g++")
    if compiler is None:
        absent("THE LOOK-UP OF LISTS WAS NOT COMPILED FOR THE HOST: install g++")
    folder = tmp_path_factory.mktemp("lists")
    header = (PACKAGE_ROOT / "sampling/neighbors/hops/lists.cuh").read_text()
    (folder / "lists.cuh").write_text(header.replace('#include "sampling/neighbors/plan.cuh"', ""))
    (folder / "lists.cpp").write_text(_HOST.replace("HEADER", "lists.cuh"))
    for lists in (1, 2):
        for rule in (0, 4):
            flags = [f"-DLISTS={lists}", f"-DRULE={rule}", "-O1", "-fwrapv", "-shared", "-fPIC"]
            target = str(folder / f"lists{lists}{rule}.so")
            subprocess.run([compiler, *flags, str(folder / "lists.cpp"), "-o", target], check=True)
    return folder


@pytest.fixture(scope="module")
def locate(host: Path) -> Callable[..., Any]:
    return calling(host)


def calling(folder: Path) -> Callable[..., Any]:
    """``locate(graph, v)`` -> start, degree, address of the prefix sums, in-edges of positive weight."""

    def call(graph: ListsGraph, v: int) -> tuple[int, int, int, int]:
        out = np.zeros(4, dtype=np.uint64)
        weights = graph.weights
        pointers = (
            [graph.indptr.ptr, weights.prefix.ptr, weights.available.ptr]
            if weights
            else [graph.indptr.ptr, 0, 0]
        )
        library = ctypes.CDLL(str(folder / f"lists{graph.lists}{4 if weights else 0}.so"))
        arguments = [ctypes.c_void_p(p) for p in pointers]
        library.locate(*arguments, ctypes.c_uint64(v), ctypes.c_void_p(out.ctypes.data))
        return tuple(int(word) for word in out)  # type: ignore[return-value]

    return call


def divided(graph: Any, parts: int) -> tuple[Partition, list[Part]]:
    partition = lab.distributed.partition(graph, parts, "random", tolerance=parts, use_cache=False)
    return partition, [part_of(graph, partition, p) for p in range(parts)]


def blocks_of(parts: list[Part], weighted: bool, with_records: bool) -> tuple[list[Place], list[np.ndarray]]:
    """Each part in a block of memory, at an address that entries divide."""
    places, keep = [], []
    for part in parts:
        records = own_records(part) if with_records else None
        room = room_for(
            part.num_edges, len(part.vertices), 0 if records is None else len(records),
            part.indices.dtype.itemsize, weighted,
        )  # fmt: skip
        block = np.zeros(room.nbytes + 64, dtype=np.uint8)
        begin = -block.ctypes.data % 64

        def view(dtype: Any, shape: Any, at: int, block: np.ndarray = block, begin: int = begin) -> Any:
            return np.frombuffer(block, dtype, int(shape[0]), begin + at)

        fill(part, room, records, weighted, view)
        places.append(room.place(block.ctypes.data + begin))
        keep.append(block)
    return places, keep


def read(address: int, count: int, dtype: Any) -> np.ndarray:
    nbytes = count * np.dtype(dtype).itemsize
    return np.frombuffer(ctypes.string_at(address, nbytes), dtype) if count else np.empty(0, dtype)


def check(locate: Callable[..., Any], graph: Any, lists: ListsGraph, dtype: Any, weights: Any) -> None:
    for v in range(graph.num_nodes):
        begin, end = int(graph.indptr[v]), int(graph.indptr[v + 1])
        start, degree, prefix, available = locate(lists, v)
        assert degree == end - begin
        found = read(start * np.dtype(dtype).itemsize, degree, dtype)
        assert np.array_equal(found, graph.indices[begin:end])
        if weights is not None:
            assert available == weights.available[v]
            if degree:
                sums = read(prefix, degree + 1, np.uint64)
                assert np.array_equal(np.diff(sums), np.diff(weights.prefix[begin : end + 1]))


@pytest.mark.parametrize("name", ["dead-ends", "hubs", "multi"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "parts", [pytest.param(1, marks=pytest.mark.exhaustive), 2, pytest.param(3, marks=pytest.mark.exhaustive)]
)
def test_the_look_up_finds_every_list(
    locate: Callable[..., Any], name: str, weighted: bool, parts: int
) -> None:
    graph = drawn_graph(name)
    partition, cut = divided(graph, parts)
    weights = lab.sampling.weights.integer_weights(graph.indptr, graph.edge_weight) if weighted else None
    dtype = graph.indices.dtype
    places, _keep = blocks_of(cut, weighted, with_records=True)
    by_owner = graph_by_owners_records(partition, places, dtype, graph.max_in_degree, weighted, put=Held)
    assert (by_owner.num_edges, by_owner.num_nodes) == (graph.num_edges, graph.num_nodes)
    check(locate, graph, by_owner, dtype, weights)
    records = vertex_records(graph, partition)
    available = None if weights is None else weights.available
    here = graph_by_local_records(partition, records, places, dtype, available, put=Held)
    assert here.max_in_degree == graph.max_in_degree
    check(locate, graph, here, dtype, weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_look_up_finds_copies_of_hot_lists(locate: Callable[..., Any], weighted: bool) -> None:
    graph = drawn_graph("hubs")
    partition, cut = divided(graph, 2)
    weights = lab.sampling.weights.integer_weights(graph.indptr, graph.edge_weight)
    degrees = np.diff(graph.indptr)
    hot = hottest_lists(degrees + 1, degrees, 10, 60_000, owner=partition.owner, rank=0, entry_bytes=4)
    assert 0 < len(hot.ids) < graph.num_nodes
    lists = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in hot.ids]
    sums = [weights.prefix[graph.indptr[v] : graph.indptr[v + 1] + 1] for v in hot.ids]
    copies = Copies(hot, Held(np.concatenate(lists)), Held(np.concatenate(sums)) if weighted else None)
    places, keep = blocks_of(cut, weighted, with_records=False)
    records = vertex_records(graph, partition)
    found = graph_by_local_records(
        partition, records, places, graph.indices.dtype, weights.available if weighted else None, copies, put=Held
    )  # fmt: skip
    # What the peer has of the copied lists is not read any more.
    begin = places[1].indices - keep[1].ctypes.data
    peer = keep[1][begin : begin + 4 * cut[1].num_edges].view(np.int32)
    for start, degree in records[hot.ids]:
        peer[start : start + degree] = -1
    check(locate, graph, found, graph.indices.dtype, weights if weighted else None)
    first = locate(found, int(hot.ids[0]))[0]
    assert first * 4 == copies.indices.ptr


def test_a_hub_beyond_the_degree_field(locate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    many = WIDE + 5
    src = np.arange(many) % 7
    graph = lab.Graph.from_edges(
        np.concatenate([src, [1, 2]]), np.concatenate([np.full(many, 3), [0, 6]]), 7, name="hub"
    )
    partition, cut = divided(graph, 2)
    places, _keep = blocks_of(cut, False, with_records=True)
    dtype = graph.indices.dtype
    check(
        locate, graph, graph_by_owners_records(partition, places, dtype, many, False, put=Held), dtype, None
    )
    records = vertex_records(graph, partition)
    check(locate, graph, graph_by_local_records(partition, records, places, dtype, put=Held), dtype, None)


def found_by_rank(
    rank: Any, folder: str, method: str, weighted: bool, host: str, topology_bytes: int | None
) -> tuple[list[Any], int, int]:
    """The engine of GPUs, set up on CPU ranks: what its addresses lead to in this process, by vertex."""
    from contextlib import nullcontext

    from gnnsample_lab.distributed.sampling.engines import Setup
    from gnnsample_lab.distributed.sampling.gpu import direct, lists
    from gnnsample_lab.distributed.sampling.layout import make_layout
    from gnnsample_lab.sampling.neighbors.spec import SampleSpec

    def copied(source: np.ndarray, begins: np.ndarray, dtype: np.dtype) -> Held:
        runs = [read(int(a), int(n), dtype) for a, n in zip(source, np.diff(begins), strict=True)]
        return Held(np.concatenate([*runs, np.zeros(1, dtype)]))

    patch = pytest.MonkeyPatch()
    patch.setattr(lists, "_on_this_gpu", Held)
    patch.setattr(lists, "copied_words", copied)
    patch.setattr(direct, "lists_engine", lambda *args: object())
    patch.setattr(direct.streams, "call", nullcontext)
    patch.setattr(direct.pinned, "locked", lambda array: array)
    patch.setattr(direct.pinned, "device_address", lambda array: array.ctypes.data)
    try:
        layout = make_layout(folder, rank, None, None, None, method, True)
        spec = SampleSpec((3, 2), weighted=weighted)
        visits = layout.out_degrees().astype(np.float64)  # nothing can be drawn here to find better ones
        budget = 20_000 * (1 + 2 * weighted)
        engine = direct.engine(
            Setup(
                method, spec, layout, cache_bytes=budget, topology_bytes=topology_bytes, visits=visits
            )
        )  # fmt: skip
    finally:
        patch.undo()
    graph, locate, found = engine.graph, calling(Path(host)), []
    for v in range(graph.num_nodes):
        start, degree, prefix, available = locate(graph, v)
        sums = read(prefix, degree + 1, np.uint64) if weighted and degree else None
        found.append((read(start * 4, degree, np.int32), sums, available))
    assert engine.memory is not None
    rank.barrier()
    engine.close()
    if engine.spill is not None:
        own = layout.part.vertices[~engine.spill.is_spilled[layout.part.vertices]]
        assert engine.spill.records[own, 1].sum() * (4 + 8 * weighted) <= topology_bytes
    copied_lists = 0 if engine.copies is None else len(engine.copies.hot.ids)
    return found, copied_lists, 0 if engine.spill is None else engine.spill.num_lists


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("method", "topology_bytes"),
    [("direct", None), ("direct-cached", None), ("direct-cached", 9000), ("direct-cached", 0)],
)
def test_ranks_find_every_list_in_each_others_memory(
    four_ranks: Ranks, locate: Callable[..., Any], tmp_path: Path, host: Path, method: str, topology_bytes: int | None,
    weighted: bool,
) -> None:  # fmt: skip
    pytest.importorskip("torch")
    graph = drawn_graph("hubs")
    partition, _ = divided(graph, 3)
    folder = str(lab.distributed.save_parts(graph, partition, tmp_path / "parts"))
    weights = lab.sampling.weights.integer_weights(graph.indptr, graph.edge_weight)
    given = (folder, method, weighted, str(host), topology_bytes)
    not_empty = int((np.diff(graph.indptr) > 0).sum())
    for found, copied, spilled in four_ranks.run(found_by_rank, *given, world=3):
        assert (copied > 0) == (method == "direct-cached")
        if topology_bytes:
            assert 0 < spilled < not_empty
        else:
            assert spilled == (0 if topology_bytes is None else not_empty)
        for v, (neighbors, sums, available) in enumerate(found):
            begin, end = int(graph.indptr[v]), int(graph.indptr[v + 1])
            assert np.array_equal(neighbors, graph.indices[begin:end])
            if weighted:
                assert available == weights.available[v]
                assert sums is None or np.array_equal(np.diff(sums), np.diff(weights.prefix[begin : end + 1]))


def test_header_and_python_agree() -> None:
    text = Path(PACKAGE_ROOT / "sampling/neighbors/hops/lists.cuh").read_text()
    assert f"#define LAB_DEGREE_BITS {WIDE.bit_length()}\n" in text
