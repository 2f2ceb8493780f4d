"""The twins of the kernels' mechanisms: they make what the library makes, and break where a line is broken."""

from __future__ import annotations

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import steps
from gnnsample_lab.steps import example, queue, runs
from gnnsample_lab.steps.base import FULL, Fault, Listing, Machine, lanes_of, listing

BROKEN = [(name, each) for name in steps.MECHANISMS for each in steps.mutations(name)]
# The invariant that each broken line violates, however it comes out; None: the result stays right.
VIOLATED = {
    "write the flag before the value": "a warp serves only tasks that were pushed",
    "leave the fence out": "a warp serves only tasks that were pushed",
    "plain add instead of atomicAdd": "a slot holds one task",
    "count outstanding after publishing": "outstanding is 0 only when every task is done",
    "give up a ticket whose slot is empty": "each published slot has a warp that will read it",
    "insert without compare-and-swap": "a vertex is entered once",
    "number all winners alike": "a local id stands for one vertex",
    "give up at a taken entry": "a pick finds the local id of its vertex",
    "look up before the ids are written": "a pick finds the local id of its vertex",
    "read the list per lane": None,
    "shuffle over the whole warp": "a sample moves to an in-neighbour of its transit",
    "take either register": "a sample moves to an in-neighbour of its transit",
    "write where the index says": "a sample moves to an in-neighbour of its transit",
    "mark without an atomic": "a vertex is new once",
    "leave the rank among the lanes out": "every new vertex joins the frontier",
    "leave the scan over the warps out": "two vertices never share a place",
    "leave the barrier before the write out": "two vertices never share a place",
    "mark without looking first": None,
}


class Uniform(lab.SamplingApp):
    """A step of the walk that the transit mechanism takes."""

    def next(self, s, transits, src_edges, step, rng):
        if len(src_edges) == 0:
            return lab.NULL
        return src_edges[rng.below(len(src_edges))]

    def steps(self):
        return 1

    def sample_size(self, step):
        return 1


@pytest.fixture(scope="module", params=["karate club", "another graph"])
def graph(request):
    return example.karate_club() if request.param == "karate club" else lab.rmat(9, 8, seed=3)


def test_the_queue_counts_hops_from_one_for_readers(graph):
    made = steps.run("claim a slot", graph=graph)
    shown = [made.arrays["queue"].show(word) for word in made.memory(-1)["queue"]] + [
        made.arrays["queue"].show(word) for word in made.first["queue"]
    ]
    seeds = [text for text in shown if text.startswith("h1 ")]
    assert len(seeds) >= queue.SEEDS and not any(text.startswith("h0") for text in shown)
    assert queue._names([(0, 7), (1, 3)]) == "(hop 1, vertex 7), (hop 2, vertex 3)"
    assert "h1 is hop 1" in made.about


def test_the_queue_holds_the_library_s_tasks_and_all_are_done(graph):
    made = steps.run("claim a slot", graph=graph).result
    assert made["done"]
    assert made["tasks"] == made["expected"]
    assert len(set(made["tasks"])) == len(made["tasks"]) > 2


def test_fused_map_gives_the_local_ids_of_the_library(graph):
    made = steps.run("insert into Fused-Map", graph=graph).result
    assert made["local"] == made["expected local"]
    assert made["nodes"] == made["expected nodes"]


def test_the_frontier_is_the_library_s(graph):
    made = steps.run("grow a frontier", graph=graph).result
    assert made["neighbors"] == made["expected neighbors"]
    assert sorted(made["frontier"]) == sorted(made["expected"])
    assert made["frontier"][:12] == made["expected"][:12]


def test_a_gathered_step_is_the_library_s_walk(graph):
    made = steps.run("gather a transit's list", graph=graph).result
    walked = lab.run_app(graph, Uniform(), np.array(made["roots"]).reshape(-1, 1), device="cpu", seed=0)
    assert made["out"] == walked.steps[0].ravel().tolist()


@pytest.mark.parametrize("name", steps.MECHANISMS)
def test_as_shipped_every_order_of_the_warps_holds_all_invariants(name):
    module = steps.MECHANISMS[name]
    made = module.example(example.karate_club())
    # The delays that bring a broken line to light must not trouble the whole kernel.
    for slow in {"", *(each.slow for each in module.MUTATIONS)}:
        for seed in range(20 if module.ORDERS else 1):
            assert module.record(made, None, seed, slow).violation is None, (slow, seed)


def test_a_warp_that_works_in_silence_is_waited_for():
    """A task without new vertices changes no memory for a while, while the other warps poll."""
    tiny = lab.Graph.from_edges([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    made = steps.run("claim a slot", None, tiny)
    assert made.violation is None and made.result["done"]


@pytest.mark.parametrize(("name", "mutation"), BROKEN, ids=[each.name for _, each in BROKEN])
def test_a_broken_line_breaks_its_invariant(name, mutation):
    run = steps.run(name, mutation.name)
    expected = VIOLATED[mutation.name]
    assert mutation.costs == (expected is None)
    if expected is None:
        assert run.violation is None
        assert sorted(map(str, run.result.items())) == sorted(map(str, steps.run(name).result.items()))
        return
    number, violation = run.violation
    assert violation.invariant == expected
    assert violation.what
    assert number < len(run.steps) <= number + 9
    assert run.schedules[1] > 0


@pytest.mark.parametrize(("name", "mutation"), BROKEN, ids=[each.name for _, each in BROKEN])
def test_the_broken_line_is_a_line_of_the_source(name, mutation):
    assert mutation.line in [text for _, text, _ in steps.run(name, mutation.name).source]


def test_reading_per_lane_costs_more_sectors_of_the_lists():
    def of_lists(run):
        return sum(len(a.sectors) for step in run.steps for a in step.accesses if a.array == "indices")

    whole = steps.run("gather a transit's list")
    per_lane = steps.run("gather a transit's list", "read the list per lane")
    # Once: two registers of eight entries for each of four lists, that is at most two or three sectors each.
    assert of_lists(whole) <= 12 < of_lists(per_lane)


def test_marking_without_looking_costs_more_atomics():
    def atomics(run):
        return sum(len(a.lanes) for step in run.steps for a in step.accesses if a.kind == "atomic")

    name = "grow a frontier"
    assert atomics(steps.run(name)) < atomics(steps.run(name, "mark without looking first"))


def test_a_broken_line_that_does_no_harm_is_not_delayed():
    """Delays bring violations about; where none comes, they would only make the run longer than the shipped one."""
    ones = np.arange(1, 65)
    star = lab.Graph.from_edges(np.r_[0 * ones, ones], np.r_[ones, 0 * ones], 65)
    broken, whole = (steps.run("claim a slot", name, star) for name in (queue.PLAIN_ADD.name, None))
    assert broken.violation is None and broken.schedules[1] == 0
    assert len(broken.steps) == len(whole.steps) + 1


@pytest.mark.parametrize("name", steps.MECHANISMS)
def test_a_run_is_the_same_every_time(name):
    assert steps.run(name).steps == steps.run(name).steps


@pytest.mark.parametrize("name", steps.MECHANISMS)
def test_going_back_undoes_what_going_forward_did(name):
    run = steps.run(name)
    assert run.memory(-1) == run.first
    assert run.memory(len(run.steps) - 1) == {name: array.cells for name, array in run.arrays.items()}
    cells = run.memory(len(run.steps) - 1)
    for number in reversed(range(len(run.steps))):
        for change in reversed(run.steps[number].changes):
            assert cells[change.array][change.cell] == change.after
            cells[change.array][change.cell] = change.before
        assert cells == run.memory(number - 1)


@pytest.mark.parametrize("name", steps.MECHANISMS)
def test_each_step_names_a_line_and_active_lanes_have_made_its_accesses(name):
    run = steps.run(name)
    for step in run.steps:
        assert run.source[step.line][1]
        assert 0 <= step.active <= FULL
        assert all(len(each) == 32 for each in step.registers.values())
        for access in step.accesses:
            assert len(access.lanes) == len(access.cells)


def test_sectors_are_the_distinct_32_byte_segments_of_the_lanes():
    machine = Machine((), {}, lambda _: None)
    machine.array("words", range(64), 4)
    machine.array("longs", range(64), 8)
    for array, value in zip(machine.fields(("key", "value"), (range(64), range(64)), 4), "kv", strict=True):
        array.show = value.__add__
    machine.array("near", range(8), 4, shared=True)
    seen = []

    def program(warp):
        yield from ()
        row = list(range(32))
        for name, index, mask in [
            ("words", row, FULL),  # 128 bytes
            ("words", [i * 2 for i in row], FULL),
            ("words", [i * 8 % 64 for i in row], FULL),
            ("words", [5] * 32, FULL),
            ("words", row, 0xFF00),
            ("words", [i + 4 for i in row], FULL),
            ("longs", row, FULL),
            ("key", row, FULL),  # every other word
            ("near", [i % 8 for i in row], FULL),
        ]:
            warp.load(name, index, mask)
        seen.extend(len(each.sectors) for each in warp.accesses)

    machine.run([program])
    assert seen == [4, 8, 8, 1, 1, 5, 8, 8, 0]


def test_atomics_go_lane_after_lane_and_the_last_store_stays():
    machine = Machine((), {}, lambda _: None)
    machine.array("a", [0], 4)
    machine.array("b", [0], 4)
    got = []

    def program(warp):
        yield from ()
        got.append(warp.atomic("a", [0] * 32, lambda old, lane: old + lane, 0b1110))
        warp.store("b", [0] * 32, list(range(32)), 0b1110)

    machine.run([program])
    assert [got[0][lane] for lane in lanes_of(0b1110)] == [0, 1, 3]
    assert (machine.memory["a"].cells, machine.memory["b"].cells) == ([6], [3])


def test_an_access_outside_an_array_is_a_violation():
    machine = Machine((), {}, lambda _: None)
    machine.array("a", [0], 4)

    def program(warp):
        yield from ()
        warp.load("a", [1] * 32, 0b100)

    machine.run([program])
    assert machine.steps[-1].violation.what == "lane 2 reaches for a[1], which has 1 items"
    with pytest.raises(Fault):
        raise Fault("as above")


def test_a_source_that_has_changed_is_noticed():
    with pytest.raises(LookupError, match="no line that begins"):
        listing("sampling/neighbors/queue/queue.cuh", ("this line is not there", "nor this one"))
    assert isinstance(listing("sampling/neighbors/queue/queue.cuh", (queue.RELEASE, queue.RELEASE)), Listing)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("claim", None), "mechanism"), ((3, None), "mechanism"), (("claim a slot", "all"), "broken"),
     (("claim a slot", None, "karate"), "graph"), (("claim a slot", "mark without an atomic"), "broken")],
)  # fmt: skip
def test_bad_arguments_are_named(arguments, named):
    with pytest.raises((TypeError, ValueError), match=rf"\b{named}\b"):
        runs.run(*arguments)


def test_a_graph_without_a_fitting_vertex_is_refused():
    alone = lab.Graph.from_edges([0], [1], 2)
    for name in ("claim a slot", "gather a transit's list"):
        with pytest.raises(ValueError, match="graph must have a vertex"):
            steps.run(name, graph=alone)


def test_memory_before_and_after_the_run_only():
    run = steps.run("grow a frontier")
    for number in (-2, len(run.steps)):
        with pytest.raises(IndexError, match="steps are numbered"):
            run.memory(number)
