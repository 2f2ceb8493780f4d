"""unique(step): which slot keeps a vertex, which draw again, and when they give up."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling.engine.language import link
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from gnnsample_lab.sampling.engine.shape import StepShape
from gnnsample_lab.sampling.engine.steps import unique
from tests.conftest import absent
from tests.sampling.engine import app_oracle


class Distinct(lab.SamplingApp):
    def __init__(self, size, rounds=32, steps=1):
        self.size, self.max_redraws, self.count = size, rounds, steps

    def next(self, s, transits, src_edges, step, rng):
        return src_edges[rng.below(len(src_edges))] if len(src_edges) else lab.NULL

    def steps(self):
        return self.count

    def sample_size(self, step):
        return self.size

    def unique(self, step):
        return True


class Repeating(Distinct):
    def unique(self, step):
        return False


class DistinctTogether(Distinct):
    def sampling_type(self):
        return lab.SamplingType.COLLECTIVE

    def next(self, s, transits, src_edges, step, rng):
        if len(src_edges) == 0 or rng.chance(0.1):
            return lab.NULL
        v = src_edges[rng.below(len(src_edges))]
        return v if v > 0 else lab.NULL


def some_graph(num_nodes=60, num_edges=900, seed=1):
    draw = np.random.default_rng(seed)
    dst = np.minimum(draw.integers(0, num_nodes, num_edges), draw.integers(0, num_nodes, num_edges))
    return lab.Graph.from_edges(draw.integers(0, num_nodes, num_edges), dst, num_nodes)


def run(graph, app, roots, device="cpu", **more):
    return lab.run_app(graph, app, roots, device=device, seed=11, **more)


@pytest.mark.parametrize("rounds", [0, 1, 2, 32, 63])
@pytest.mark.parametrize("kind", [Distinct, DistinctTogether])
def test_rounds(kind, rounds):
    graph, roots = some_graph(), np.random.default_rng(2).integers(-1, 60, (12, 3))
    app = kind(5, rounds, steps=2)
    result = run(graph, app, roots)
    assert [s.tolist() for s in result.steps] == app_oracle.run(graph, app, roots, 11)
    for step in result.steps:
        for row in step:
            kept = row[row >= 0]
            assert len(set(kept.tolist())) == kept.size > 0 or (row == -1).all()


def test_the_lowest_slot_keeps_a_vertex():
    graph, roots = some_graph(), np.arange(40).reshape(20, 2)
    before, after = (run(graph, kind(6, 4), roots).steps[0] for kind in (Repeating, Distinct))
    changed = 0
    for plain, distinct in zip(before.tolist(), after.tolist(), strict=True):
        for slot, v in enumerate(plain):
            if plain.index(v) == slot:
                assert distinct[slot] == v
            else:
                assert distinct[slot] != v
                changed += v >= 0
    assert changed > 20


def test_sorting_is_refused_where_ids_exceed_its_keys():
    """Another way of finding duplicates would be ours under NextDoor's name."""
    engine = SimpleNamespace(
        index="published", shape=[StepShape(1, 4, 4, True)], num_samples=3,
        operator=SimpleNamespace(max_redraws=32), graph=SimpleNamespace(num_nodes=2**32),
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"fewer than 2\^32 vertices \(got 4294967296\)"):
        unique.redraw(engine, 0)


def test_all_in_neighbours_and_no_more(drawn_graphs):
    found = run(drawn_graphs["star"], Distinct(16), np.zeros(50, int)).steps[0]
    assert all(sorted(row[row >= 0].tolist()) == list(range(1, 11)) for row in found)
    assert (found == -1).sum() == 50 * 6
    few = run(drawn_graphs["star"], Distinct(16, rounds=1), np.zeros(50, int)).steps[0]
    assert (few == -1).sum() > 50 * 6 and all(len(set(r[r >= 0].tolist())) == (r >= 0).sum() for r in few)


@pytest.mark.parametrize("width", [2, 25, 250, 1000, 5000, 70_000])
@pytest.mark.parametrize("id_bytes", [4, 8])
def test_memory_of_a_set(width, id_bytes):
    entries, needed = unique.set_bytes(width, id_bytes, 4)
    assert entries >= 2 * width and entries & (entries - 1) == 0
    assert needed >= entries * (id_bytes + 4) + 2 * 4 * width and needed % 16 == 0
    if width <= 1000 and id_bytes == 4:
        assert needed <= unique.SHARED_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("arch", [pytest.param("sm_75", marks=pytest.mark.exhaustive), "sm_90"])
@pytest.mark.parametrize("global_table", [0, 1])
def test_kernels_link(arch, global_table):
    if problem := link.missing():
        absent(f"KERNELS WERE NOT LINKED: {problem}")
    graph = some_graph()
    for app in (Distinct(4), DistinctTogether(4)):
        for id_type in ("int", "long"):
            macros = {"ID_T": id_type, "GLOBAL_TABLE": global_table}
            assert link.build(compile_operator(app, graph), "steps/unique.cu", macros, arch)[:4] == b"\x7fELF"


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 3, 40, 900, 3000])  # a warp, a block, scratch
@pytest.mark.parametrize("kind", [Distinct, DistinctTogether])
@pytest.mark.parametrize(
    ("parallelism", "index"),
    [
        ("sample", "auto"),
        ("transit", "auto"),
        *((p, "published") for p in ("transit", "sample", "transit-vanilla")),
    ],
)
def test_the_gpu_draws_the_same(kind, size, parallelism, index):
    graph, roots = some_graph(3000, 60_000), np.random.default_rng(2).integers(-1, 3000, (30, 2))
    app = kind(size, 5)
    expected = run(graph, app, roots, first_sample=2**33)
    found = run(graph, app, roots, "cuda", parallelism=parallelism, index=index, first_sample=2**33)
    assert found == expected


@pytest.mark.gpu
def test_wide_ids_on_the_gpu():
    graph, roots = some_graph(), np.arange(60).reshape(20, 3)
    wide = lab.Graph(graph.indptr, graph.indices)
    object.__setattr__(wide, "indices", graph.indices.astype(np.int64))
    for app in (Distinct(7), Distinct(2000)):
        for index in ("auto", "published"):
            assert run(wide, app, roots, "cuda", index=index) == run(graph, app, roots)
