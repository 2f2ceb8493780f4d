"""The CPU walker against plain Python, application by application."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.sampling import memory
from gnnsample_lab.sampling.engine import shape
from tests.sampling.engine import app_oracle
from tests.sampling.engine.toy_apps import APPS, Ending, Growing, Hops, Walk, toy_graph, toy_roots


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", APPS)
def test_samples_are_those_of_plain_python(name, weighted):
    graph, roots = toy_graph(weighted), toy_roots(name)
    result = lab.run_app(graph, APPS[name], roots, device="cpu", seed=2**40 + 7, first_sample=2**33 + 1)
    expected = app_oracle.run(graph, APPS[name], roots, 2**40 + 7, first_sample=2**33 + 1)
    assert [s.tolist() for s in result.steps] == expected
    assert any(v >= 0 for step in expected for row in step for v in row)


def test_wide_ids_draw_the_same():
    graph, roots = toy_graph(), toy_roots("walk")
    wide = lab.Graph(graph.indptr, graph.indices, graph.edge_weight)
    object.__setattr__(wide, "indices", graph.indices.astype(np.int64))
    for name in ("walk", "second-order", "together"):
        narrow = lab.run_app(graph, APPS[name], toy_roots(name), device="cpu")
        assert lab.run_app(wide, APPS[name], toy_roots(name), device="cpu") == narrow
    assert roots.shape == (25, 1)


def test_a_run_cut_in_parts_is_the_same_run():
    graph, roots = toy_graph(), toy_roots("hops", 40)
    whole = lab.run_app(graph, Hops(), roots, device="cpu", seed=4)
    parts = [
        lab.run_app(graph, Hops(), roots[i : i + 8], device="cpu", seed=4, first_sample=i)
        for i in range(0, 40, 8)
    ]
    for step in range(2):
        assert (np.concatenate([p.steps[step] for p in parts]) == whole.steps[step]).all()


@pytest.mark.parametrize(
    "app",
    [
        lab.apps.DeepWalk(3), lab.apps.MultiRW(4, 3), lab.apps.MVS(batch_size=2, step_size=2), lab.apps.LADIES(2, 3, 4),
        lab.apps.ClusterGCN(2, partition=np.arange(toy_graph().num_nodes) // 3),
    ],
    ids=lambda app: app.name,
)  # fmt: skip
def test_parts_whose_roots_the_application_chooses_are_the_same_run(app):
    """Each part had the roots of the first one."""
    graph = toy_graph()
    whole = lab.run_app(graph, app, num_samples=12, device="cpu", seed=4)
    parts = [lab.run_app(graph, app, num_samples=4, device="cpu", seed=4, first_sample=i) for i in (0, 4, 8)]
    assert (np.concatenate([p.samples for p in parts]) == whole.samples).all()
    far = lab.run_app(graph, app, num_samples=4, device="cpu", seed=4, first_sample=2**33)
    assert (far.roots != parts[0].roots).any()


class ByNumber(lab.SamplingApp):
    """Draws that say their slot, and transits that add what slot they see."""

    def steps(self):
        return 3

    def sample_size(self, step):
        return 3

    def num_transits(self, step):
        return 2

    def step_transits(self, step, s, transit_idx, rng):
        return s.roots[0] + 7 * s.slot() + transit_idx

    def next(self, s, transits, src_edges, step, rng):
        return (transits[0] + s.slot()) % s.num_nodes()


@pytest.mark.parametrize("unique", [False, True])
def test_transits_see_no_slot_of_the_sample_before(unique):
    app = ByNumber()
    app.unique = lambda step: unique
    app.max_redraws = 4
    graph, roots = toy_graph(), np.arange(6).reshape(6, 1)
    for step in lab.run_app(graph, app, roots, device="cpu").steps:
        drawn = (roots + np.array([0, 1, 2, 1, 2, 3])) % graph.num_nodes
        assert np.array_equal(np.sort(step, axis=1)[:, -1], drawn.max(axis=1))
        if not unique:
            assert np.array_equal(step, drawn)


def test_walkers_that_meet_stay_independent():
    graph = lab.Graph.from_edges(np.arange(1, 64), np.zeros(63, int), 64, undirected=True)
    result = lab.run_app(graph, Walk(9), np.zeros(200, int), device="cpu")
    first = result.steps[0][:, 0]
    assert len(set(first.tolist())) > 40  # all set out from vertex 0
    assert all((s == 0).all() for s in result.steps[1::2])  # and meet there at every second step
    assert (result.steps[2] != result.steps[0]).mean() > 0.9


def test_steps_without_end_stop_when_all_samples_have():
    graph = toy_graph(False)
    result = lab.run_app(graph, Ending(), np.arange(40), device="cpu", seed=1)
    expected = app_oracle.run(graph, Ending(), np.arange(40), 1, steps=result.num_steps + 3)
    assert [s.tolist() for s in result.steps] == expected[: result.num_steps]
    # The last step has a transit and adds nothing; the steps after it have none.
    assert all(v == -1 for step in expected[result.num_steps - 1 :] for row in step for v in row)
    assert any(v >= 0 for row in expected[result.num_steps - 2] for v in row)


class Fixed(Ending):
    """As many steps whatever happens: most samples have ended long before."""

    def steps(self):
        return 11


class Pairs(Fixed):
    """Two vertices a transit, of which only the first goes on."""

    def sample_size(self, step):
        return 2

    def num_transits(self, step):
        return 1


class Reviving(Fixed):
    """Transits of its own: a sample rests in some steps and begins anew in others."""

    def step_transits(self, step, s, transit_idx, rng):
        if step % 4 == 3:
            return s.roots[0]
        return s.prev_vertex(1, transit_idx) if step % 4 != 2 else lab.NULL


class RevivingWithoutEnd(Reviving):
    def steps(self):
        return lab.INF

    def step_transits(self, step, s, transit_idx, rng):
        if step < 10 and rng.chance(0.5):
            return s.roots[0]
        return s.prev_vertex(1, transit_idx)


@pytest.mark.parametrize("steps_at_once", [1, 3, 32])
@pytest.mark.parametrize(
    "app", [Ending(), Fixed(), Pairs(), Reviving(), RevivingWithoutEnd()], ids=lambda a: a.name
)
def test_samples_that_end_early_are_those_of_plain_python(app, steps_at_once, monkeypatch):
    from gnnsample_lab.sampling.engine.cpu import walker

    monkeypatch.setattr(walker, "_ENDLESS_STEPS", steps_at_once)
    graph, roots = toy_graph(False), np.append(np.arange(40), -1)
    result = lab.run_app(graph, app, roots, device="cpu", seed=3)
    expected = app_oracle.run(graph, app, roots, 3, steps=result.num_steps)
    assert [step.tolist() for step in result.steps] == expected
    lengths = {sum(step[row][0] >= 0 for step in expected) for row in range(41)}
    assert len(lengths) > 2


def test_an_application_that_does_not_end_is_an_error_unless_bounded(monkeypatch):
    monkeypatch.setattr(shape, "UNBOUNDED_STEPS", 1000)  # not 10,000, which take seconds

    class Circle(Walk):
        def steps(self):
            return lab.INF

    ring = lab.Graph.from_edges(np.arange(4), (np.arange(4) + 1) % 4, 4)
    with pytest.raises(RuntimeError, match=r"Circle did not end within 1000 steps; max_steps"):
        lab.run_app(ring, Circle(), [0], device="cpu")
    assert lab.run_app(ring, Circle(), [0], device="cpu", max_steps=7).samples.tolist() == [
        [0, 3, 2, 1, 0, 3, 2, 1]
    ]


@pytest.mark.parametrize("width", [2, 24])
def test_steps_that_never_come_need_no_room(width):
    """Thirty steps ahead a branching process has more slots than there can be; it has ended before."""
    graph, roots = toy_graph(False), np.arange(6)
    found = lab.run_app(graph, Growing(width, 2), roots, device="cpu", seed=4)
    expected = app_oracle.run(graph, Growing(width, 2), roots, 4, steps=found.num_steps)
    assert [step.tolist() for step in found.steps] == expected
    assert [step.shape[1] for step in found.steps] == [width, width**2, width**3][: found.num_steps]
    with pytest.raises(ValueError, match=r"step \d+ would add \d+ vertices to a sample; at most 2147483647"):
        ring = lab.Graph.from_edges([1, 0], [0, 1], 2)
        lab.run_app(ring, Growing(2**16, 9), [0], device="cpu", max_steps=4)


def test_chunks_hold_no_more_steps_than_are_small_together(monkeypatch):
    from gnnsample_lab.sampling.engine.cpu import walker

    sizes = shape.Shape(Growing(2, 9), 1)
    assert walker._chunk(sizes, 0, 32, 1) == 23, "2 + 4 + ... + 2**23 slots are below 2**24"
    assert (
        walker._chunk(sizes, 0, 32, 2**30) == walker._chunk(sizes, 29, 32, 1) == 1 and sizes.ahead(30) is None
    )
    assert walker._chunk(shape.Shape(Ending(), 1), 0, 32, 1000) == 32
    monkeypatch.setattr(walker, "_SMALL", 10)
    graph = toy_graph(False)
    one_by_one = lab.run_app(graph, Ending(), np.arange(40), device="cpu", seed=1)
    monkeypatch.undo()
    assert one_by_one == lab.run_app(graph, Ending(), np.arange(40), device="cpu", seed=1)


def test_result_says_what_it_holds():
    graph, roots = toy_graph(False), toy_roots("hops")
    result = lab.run_app(graph, Hops(), roots, device="cpu")
    assert [s.shape for s in result.steps] == [(25, 5), (25, 15)]
    assert result.samples.shape == (25, 21) and (result.samples[:, :1] == roots).all()
    assert (result.lengths == (result.samples >= 0).sum(axis=1)).all()
    assert result.num_vertices == result.lengths.sum() - 25
    assert (result.transits(1) == result.steps[0]).all()
    again = lab.run_app(graph, Hops(), roots, device="cpu")
    other = lab.run_app(graph, Hops(), roots, device="cpu", seed=1)
    assert result == again and result.digest() == again.digest()
    assert result != other and result.digest() != other.digest()
    assert "25 samples, 2 steps, sample by sample on cpu" in repr(result)


def test_every_sampled_edge_is_one_of_the_graph():
    graph = toy_graph(False)
    edges = set(zip(*[a.tolist() for a in reversed(graph.edges())], strict=True))
    result = lab.run_app(graph, Hops(), np.arange(40), device="cpu")
    seen = 0
    for step in range(2):
        transits = result.transits(step)
        for row, m in ((r, result.shape[step].size) for r in range(40)):
            for slot, v in enumerate(result.steps[step][row]):
                if v >= 0:
                    assert (int(transits[row, slot // m]), int(v)) in edges
                    seen += 1
    assert seen > 300


@pytest.mark.parametrize(
    ("roots", "error", "match"),
    [
        ([0.5], TypeError, r"roots must be integers \(got float64\)"),
        ([40], ValueError, r"roots must lie in 0..39, or be -1 for none \(got 40\)"),
        ([-2], ValueError, r"got -2"),
        (np.zeros((2, 2, 2), int), ValueError, r"shape \[S\] or \[S, R\] \(got \(2, 2, 2\)\)"),
    ],
)
def test_bad_roots(roots, error, match):
    with pytest.raises(error, match=match):
        lab.run_app(toy_graph(), Walk(), roots, device="cpu")


def test_bad_arguments():
    graph = toy_graph()
    with pytest.raises(ValueError, match=r"parallelism must be one of .*'message' \(got 'warp'\)"):
        lab.run_app(graph, Walk(), [0], parallelism="warp")
    with pytest.raises(ValueError, match="index must be one of"):
        lab.run_app(graph, Walk(), [0], index="never")
    with pytest.raises(
        TypeError, match=r"app must be a SamplingApp \(got Walk\); give an instance, Walk\(\)"
    ):
        lab.run_app(graph, Walk, [0])
    with pytest.raises(TypeError, match=r"graph must be a gnnsample_lab.Graph \(got \[\] of type list\)"):
        lab.run_app([], Walk(), [0])
    with pytest.raises(ValueError, match="roots, not both"):
        lab.run_app(graph, Walk(), [0], num_samples=3, device="cpu")
    with pytest.raises(ValueError, match=r"steps\(\) must be between 0"):
        lab.run_app(graph, Walk(-5), [0], device="cpu")
    with pytest.raises(NotImplementedError, match="SamplingApp must define next"):
        lab.run_app(graph, lab.SamplingApp(), [0], device="cpu")


MOST = 2**31 - 1


@pytest.mark.parametrize(
    ("app", "options", "what"),
    [
        (lab.apps.KHop((MOST,)), {}, "width of step 0 .* got 1,024 x 2,147,483,647, 8,"),
        (lab.apps.KHop((MOST,)), {"num_samples": 3000}, "width of step 0 .* got 3,000 x 2,147,483,647"),
        (lab.apps.Layer(MOST, MOST), {}, "width of step 0 .* got 1,024 x 2,147,483,647"),
        (lab.apps.KHop((1000, 1000, 1000)), {}, "width of steps 0 to 2 .* got 1,024 x 1,001,001,000"),
        (lab.apps.MultiRW(2, MOST), {}, "roots of a sample .* got 1,024 x 2,147,483,647, 16,384"),
        (lab.apps.MVS(batch_size=MOST), {}, "roots of a sample .* got 1,024 x 2,147,483,647"),
        (lab.apps.FastGCN(1, 2, MOST), {}, "width of step 0 .* got 1,024 x 2,147,483,647"),
        (Walk(), {"num_samples": 2**40 - 1}, "roots of a sample .* got 1,099,511,627,775 x 1, 8,192"),
    ],
)
def test_what_does_not_fit_into_memory_is_refused_by_name(app, options, what):
    with pytest.raises(MemoryError, match=f"^num_samples x {what.replace('got', '.got')}"):
        lab.run_app(toy_graph(), app, device="cpu", **options)


def test_memory_is_asked_for_all_that_steps_take(monkeypatch):
    """What they add, and what each thread holds besides."""
    samples, width = 16, 2**20  # one task: one thread
    need = samples * width * 4 + 8 * (1 + width)
    for free in (need, need - 1):
        monkeypatch.setattr(memory, "free_host_bytes", lambda free=free: free)
        with pytest.raises(MemoryError) if free < need else contextlib.nullcontext():
            lab.run_app(toy_graph(), lab.apps.KHop((width,)), np.zeros(samples, int), device="cpu")
    monkeypatch.setattr(memory, "free_host_bytes", lambda: 0)
    lab.run_app(toy_graph(), Walk(), [0], device="cpu")  # so little is not asked for


class Odd(Walk):
    """A walk whose functions return what the test sets."""

    def __init__(self, **returned):
        super().__init__(2)
        self._returned = returned

    def sampling_type(self):
        return self._returned.get("sampling_type", lab.SamplingType.INDIVIDUAL)

    def unique(self, step):
        return self._returned.get("unique", False)

    def edge_weights(self, graph):
        return self._returned.get("edge_weights")


class OddWeighted(Odd):
    def next(self, s, transits, src_edges, step, rng):
        total = src_edges.prefix(len(src_edges))
        return src_edges[src_edges.search(rng.below(total))] if total > 0 else lab.NULL


@pytest.mark.parametrize(
    ("returned", "error", "match"),
    [
        ({"sampling_type": "collective"}, TypeError, r"SamplingType.COLLECTIVE \(got 'collective'\)"),
        ({"sampling_type": None}, TypeError, r"sampling_type\(\) must be .* \(got None\)"),
        ({"unique": None}, TypeError, r"unique\(0\) must be True or False \(got None\)"),
        ({"unique": "no"}, TypeError, r"unique\(0\) must be True or False \(got 'no'\)"),
        ({"edge_weights": [1.0, 2.0]}, ValueError, r"OddWeighted.edge_weights\(\) must have shape .*got \(2,\)"),
        ({"edge_weights": np.ones(241)}, ValueError, r"must have shape \(240,\), one per edge \(got \(241,\)\)"),
        ({"edge_weights": np.ones((240, 1))}, ValueError, r"got \(240, 1\)"),
        ({"edge_weights": 3.0}, ValueError, r"got \(\)"),
        ({"edge_weights": np.ones(240, complex)}, TypeError, r"must be real numbers, or None \(got complex128\)"),
        ({"edge_weights": np.full(240, "a")}, TypeError, r"must be real numbers, or None \(got <U1\)"),
        ({"edge_weights": np.full(240, -1.0)}, ValueError, r"finite and not negative \(got -1 to -1\)"),
        ({"edge_weights": np.full(240, np.nan)}, ValueError, "finite and not negative"),
        ({"edge_weights": np.r_[np.ones(239), np.inf]}, ValueError, r"\(got 1 to inf\)"),
    ],
)  # fmt: skip
def test_what_an_applications_functions_must_not_return(returned, error, match):
    """A word for the type of sampling would be the other type, weights of another length those of other edges."""
    with pytest.raises(error, match=match):
        lab.run_app(toy_graph(False), OddWeighted(**returned), [0, 1], device="cpu")


def test_flags_of_numpy_are_flags_and_a_list_of_weights_is_one_of_the_graphs():
    graph = toy_graph()
    before = lab.run_app(graph, Odd(unique=True), [0, 1], device="cpu")
    assert lab.run_app(graph, Odd(unique=np.True_), [0, 1], device="cpu") == before
    weight = graph.edge_weight
    found = [
        lab.run_app(graph, OddWeighted(edge_weights=w), np.arange(30), device="cpu")
        for w in (weight, weight.tolist(), weight.astype(np.float64), weight.astype(np.int64))
    ]
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize(("years", "length"), [(np.arange(39), 39), (np.arange(41), 41), ([], 0), ([1.5], 1)])
def test_vertex_attributes_are_one_for_each_vertex(years, length):
    """Fewer would be an error at some vertex alone, and more those of another graph."""
    with pytest.raises(
        ValueError, match=rf"Dated.year must have a number for each of 40 vertices \(got {length}\)"
    ):
        lab.run_app(toy_graph(), Dated(years), [0], device="cpu")
    assert lab.run_app(toy_graph(), Dated(np.arange(40)), [0, 1], device="cpu").num_steps == 2


def test_vertex_attributes_are_named_by_a_tuple():
    """The letters of one name would be names, too."""
    app = Dated(np.arange(40))
    app.vertex_attributes = "year"
    with pytest.raises(TypeError, match=r"Dated.vertex_attributes must be a tuple of names \(got 'year'\)"):
        lab.run_app(toy_graph(), app, [0], device="cpu")


class Dated(Walk):
    vertex_attributes = ("year",)

    def __init__(self, year):
        super().__init__(2)
        self.year = year

    def next(self, s, transits, src_edges, step, rng):
        v = src_edges[rng.below(len(src_edges))] if len(src_edges) > 0 else lab.NULL
        return v if v.year >= 0 else lab.NULL


def test_ids_of_samples_have_40_bits():
    """One more would share its draws with other samples."""
    graph, most = toy_graph(), 2**40 - 1
    found = lab.run_app(graph, Walk(), [4, 5], device="cpu", first_sample=most - 1)
    assert found.steps[0].tolist() == [row for step in [
        lab.run_app(graph, Walk(), [root], device="cpu", first_sample=most - 1 + i).steps[0].tolist()
        for i, root in enumerate((4, 5))
    ] for row in step]  # fmt: skip
    with pytest.raises(
        ValueError, match=rf"first_sample must leave ids below 2\*\*40 for 2 samples \(got {most}\)"
    ):
        lab.run_app(graph, Walk(), [4, 5], device="cpu", first_sample=most)


def test_transits_outside_the_graph_are_an_error_that_names_both_functions():
    class Elsewhere(Walk):
        def step_transits(self, step, s, transit_idx, rng):
            return 40 + step

    with pytest.raises(
        lab.SamplingAppError, match=r"next or step_transits returned neither a vertex \(0 to 39\) nor NULL"
    ):
        lab.run_app(toy_graph(), Elsewhere(), [0], device="cpu")


def test_a_result_without_steps_has_no_step_to_ask_for():
    result = lab.run_app(toy_graph(), Walk(0), [3], device="cpu")
    for ask in (result.transits, result.adjacency):
        with pytest.raises(ValueError, match=r"step must be one of the result's, which has none \(got 0"):
            ask(0)


def test_no_samples_and_no_steps():
    graph = toy_graph()
    empty = lab.run_app(graph, Walk(), np.zeros((0, 1), int), device="cpu")
    assert empty.num_samples == 0 and empty.samples.shape == (0, 7)
    assert lab.run_app(graph, Walk(0), [3, 4], device="cpu").samples.tolist() == [[3], [4]]
    dead = lab.run_app(graph, Walk(), [-1, 39], device="cpu")
    assert (dead.samples[:, 1:] == -1).all() and dead.lengths.tolist() == [0, 1]


def test_default_roots_are_uniform_and_follow_the_seed():
    graph = toy_graph()
    one = lab.run_app(graph, Walk(1), num_samples=4000, device="cpu", seed=1)
    assert one == lab.run_app(graph, Walk(1), num_samples=4000, device="cpu", seed=1)
    counts = np.bincount(one.roots[:, 0], minlength=40)
    assert counts.min() > 55 and counts.max() < 150
    assert (one.roots != lab.run_app(graph, Walk(1), num_samples=4000, device="cpu", seed=2).roots).any()


def test_accessors_are_compiled_once_whatever_line_calls_them():
    """Numba would keep one version per literal argument, and processes that share its cache would mix them up."""
    from numba import types

    from gnnsample_lab.sampling.engine.cpu import stream as cpu_stream

    for name in ("walk", "hops", "weighted"):
        lab.run_app(toy_graph(True), APPS[name], toy_roots(name, 5), device="cpu")
    lines = [line for _, _, line in cpu_stream.lab_below.signatures]
    assert lines and not any(isinstance(line, types.Literal) for line in lines)


def test_a_vertex_attribute_that_is_not_set_is_named_as_such():
    app = Dated(np.arange(40))
    del app.year
    with pytest.raises(lab.SamplingAppError, match="self.year is not set, a number for each vertex"):
        lab.run_app(toy_graph(), app, [0], device="cpu")
