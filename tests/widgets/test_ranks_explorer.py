"""The ranks explorer: bytes that follow from the sample, controls that move figures, ranks that stay and that end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import RanksExplorer, many_gpus, recorded
from gnnsample_widgets.graphs import draw_seeds

import gnnsample_lab as lab
from tests.distributed.conftest import left_after
from tests.widgets.checks import check_code, check_controls
from tests.widgets.oracle import values
from tests.widgets.oracle_many_gpus import matrices
from tests.widgets.test_closing import check_freed

MOVES: dict[str, list[Any]] = {
    "num_ranks": [1, 2],
    "parts_by": ["random", "range"],
    "by": ["equal"],
    "batch_size": [128],
    "hops": [1, 3],
    "fanout": [2],
    "cache_percent": [35, 0],
    "seed": [3],
}


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    return lab.load("arxiv-like", scale=0.02, use_cache=False)


@pytest.fixture(scope="module", autouse=True)
def shared_ranks() -> Iterator[None]:
    yield
    many_gpus.close_ranks()


def shown(explorer: RanksExplorer) -> dict[str, np.ndarray]:
    """Bytes by method as the fields of the matrix show them, the host's column at the end."""
    found = {}
    titles = [note.text for note in explorer.figures["matrix"].layout.annotations]
    for title, field in zip(titles, explorer.figures["matrix"].data, strict=True):
        numbers = np.array(field.customdata) * 1e3
        column = (
            numbers[:, len(numbers) :] if numbers.shape[1] > len(numbers) else np.zeros((len(numbers), 1))
        )
        found[title] = np.column_stack([numbers[:, : len(numbers)], column])
    return found


def check(explorer: RanksExplorer, graph: lab.Graph) -> None:
    assert explorer.error == ""
    state = explorer.state
    found = shown(explorer)
    assert list(found) == list(lab.distributed.methods())
    seeds = draw_seeds(graph, state["batch_size"], state["seed"])
    expected = matrices(graph, state, seeds)
    for name, matrix in expected.items():
        assert np.array_equal(np.rint(found[name]), matrix), f"{name} at {state}"
    kinds = explorer.figures["kinds"]
    bars = {m: sum(b.customdata[i] for b in kinds.data if b.type == "bar") for i, m in enumerate(found)}
    for name, matrix in found.items():
        assert bars.get(name, 0) == pytest.approx(matrix.sum() / 1e3)
    curves = {t.name: t for t in explorer.figures["fanouts"].data}
    several = [matrices(graph, state, seeds, i) for i in range(many_gpus.SWEPT_BATCHES)]
    for name in many_gpus.SWEPT:
        at = list(curves[name].x).index(state["fanout"])
        assert curves[name].y[at] == pytest.approx(np.mean([one[name].sum() for one in several]) / 1e3)
    saved = next(t for t in explorer.figures["cache"].data if t.name.startswith("counted"))
    assert saved.y[0] == 0 and list(saved.y) == sorted(saved.y)
    # Without room for copies all picked entries of remote lists are read: what `direct` reads beside records.
    records = [b for b in kinds.data if b.name == "records"]
    at = list(found).index("direct")
    none = expected["direct"].sum() - (1e3 * records[0].x[at] if records else 0)
    share = saved.y[list(saved.x).index(state["cache_percent"])] / 100
    assert found["direct-cached"].sum() == pytest.approx((1 - share) * none)


@pytest.mark.slow
def test_every_control_redraws_what_the_samples_say(graph: lab.Graph) -> None:
    explorer = RanksExplorer(graph, device="cpu", batch_size=64, parts_by="metis")
    assert set(MOVES) == set(explorer.controls)
    check_controls(explorer, MOVES, lambda: check(explorer, graph))
    for figure in explorer.figures.values():
        for words in ("arxiv-like (synthetic)", "CPU: no NVLink", "128 seeds (equal slices)"):
            assert words in figure.layout.title.text
    check_code(explorer, graph)


@pytest.mark.slow
def test_looking_keeps_what_does_not_depend_on_it(graph: lab.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = RanksExplorer(graph, device="cpu", batch_size=64)
    pids = many_gpus.warm_ranks(2, "cpu").pids
    before = {name: values(figure)["data"] for name, figure in explorer.figures.items()}
    calls: list[int] = []
    by_method = many_gpus.by_method
    monkeypatch.setattr(many_gpus, "by_method", lambda *a: calls.append(1) or by_method(*a))
    explorer.cache_percent = 50
    after = {name: values(figure)["data"] for name, figure in explorer.figures.items()}
    assert len(calls) == 1, "the room for copies changes the mini-batch alone"
    assert {name for name in after if after[name] != before[name]} == {"matrix", "kinds"}
    assert many_gpus.warm_ranks(2, "cpu").pids == pids, "a slider starts no ranks"
    assert "direct-cached" in explorer._summary.value


@pytest.mark.slow
def test_seeds_with_their_owners_make_a_good_cut_worth_it() -> None:
    """What the notebook teaches must be what is counted on its default graph."""
    graph = lab.load("arxiv-like", features=False)
    seeds = draw_seeds(graph, 512, 0)
    remote, volume = {}, {}
    for how in ("metis", "random"):
        folder = many_gpus.save(graph, many_gpus.divide(graph, 2, how))
        for by in many_gpus.BY:
            found = many_gpus.by_method(
                "cpu", 2, folder, seeds,
                [{"method": name, **many_gpus.settings(10, 2, by, 0)} for name in ("pull", "csp", "direct")],
            )  # fmt: skip
            csp = found[1]
            remote[how, by] = sum(t.ideal_remote for t in csp) / sum(t.ideal for t in csp)
            volume[how, by] = [sum(t.volume for t in ranks) for ranks in found]
    assert remote["metis", "owner"] < 0.1 < 0.25 < remote["random", "owner"] < 0.45
    assert all(0.4 < remote[how, "equal"] < 0.6 for how in ("metis", "random"))
    pull, csp, direct = volume["metis", "equal"]
    assert 1.5 * csp < pull < direct, (
        "the mean degree lies below the fanout, and picks are fewer all the same"
    )


@pytest.mark.slow
def test_pull_and_csp_part_where_lists_exceed_the_fanout() -> None:
    found = many_gpus.over_degrees([2, 5, 10, 40], 5, num_nodes=2000, batch_size=64, device="cpu")
    pull, csp, direct = (found[name] for name in ("pull", "csp", "direct"))
    assert pull[:2] == csp[:2] and all(p > c for p, c in zip(pull[2:], csp[2:], strict=True))
    assert all(i < c for i, c in zip(found["ideal"], csp, strict=True))
    assert direct[0] > pull[0] and direct[-1] < pull[-1]
    graph = many_gpus.random_graph(50, 7)
    assert graph.num_edges == 350 and set(np.diff(graph.indptr)) == {7}


@pytest.mark.slow
def test_a_closed_explorer_is_freed() -> None:
    check_freed("RanksExplorer")


@pytest.mark.slow
def test_ranks_are_shared_grow_and_end() -> None:
    two = many_gpus.warm_ranks(2, "cpu")  # those of the tests before
    assert many_gpus.warm_ranks(1, "cpu") is two and two.backend == "gloo"
    first = two.pids
    three = many_gpus.warm_ranks(3, "cpu")
    assert three.ranks == 3 and left_after(first) == []
    assert three.run(index_of, world=2) == [0, 1]
    assert two.run(index_of) == [0, 1], "a cell that has the smaller ones by name runs again"
    two.close()
    pids = three.pids
    many_gpus.close_ranks()
    assert left_after(pids) == []
    many_gpus.close_ranks()
    with pytest.raises(ValueError, match="count"):
        many_gpus.warm_ranks(0)


def index_of(rank: Any) -> int:
    index: int = rank.index
    return index


def test_parts_go_to_a_folder_of_the_process_where_no_cache_can_be_written(
    graph: lab.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = lab.distributed.save_parts

    def refuse(host: Any, cut: Any, folder: Any = None, **options: Any) -> Path:
        if folder is None:
            raise PermissionError("no cache folder")
        return Path(saved(host, cut, folder, **options))

    monkeypatch.setattr(lab.distributed, "save_parts", refuse)
    cut = many_gpus.divide(graph, 2, "random")
    folder = many_gpus.save(graph, cut)
    assert lab.distributed.open_partition(folder).digest() == cut.digest()


def record(device: str) -> dict[str, Any]:
    row = {"graph": "rmat", "partition": "random", "world": 2, "method": "direct", "budget_percent": None,
           "batch_size": 1024, "fanout": 10, "hops": 3, "replace": True, "x_one": 1.5}  # fmt: skip
    return {
        "origin": "measured", "settings": {"device": device, "ranks": 2}, "rows": [row],
        "environment": {"gpu": {"name": "NVIDIA H200"}}, "graphs": {"rmat": {"title": "R-MAT (synthetic)"}},
    }  # fmt: skip


def test_scaling_is_read_from_records_of_gpus_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "resource_path", lambda name: tmp_path)
    (tmp_path / "ladder-cpu.json").write_text(json.dumps(record("CPU: no NVLink")))
    (nothing,) = recorded.measured_scaling()
    assert not nothing.data and "nothing is shown" in nothing.layout.annotations[0].text
    (tmp_path / "ladder.json").write_text(json.dumps(record("cuda")))
    (figure,) = recorded.measured_scaling()
    assert list(figure.data[0].x) == [1.5] and list(figure.data[0].y) == ["direct"]
    for words in ("R-MAT (synthetic)", "parts by random", "measured on 2 NVIDIA H200", "ladder.json"):
        assert words in figure.layout.title.text


def test_what_is_shipped_can_be_shown() -> None:
    for figure in recorded.measured_scaling():
        assert "easured" in figure.layout.title.text


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("by", ["owner", "equal"])
def test_visits_are_the_frontiers_of_whole_samples(graph: lab.Graph, hops: int, by: str) -> None:
    cut = many_gpus.divide(graph, 2, "range")
    visits = many_gpus.count_visits(graph, cut, 2, 8, 3, hops, by, 5)
    expected = np.tile(np.minimum(np.bincount(graph.indices, minlength=graph.num_nodes) * 0.01, 1.0), (2, 1))
    sampler = lab.NeighborSampler(graph, [3] * hops, device="cpu", seed=5)
    for number in range(1, many_gpus.VISITED + 1):
        seeds = draw_seeds(graph, 8, 1000 * number + 5)
        for rank, equal in enumerate(np.array_split(seeds, 2)):
            mine = seeds[cut.owner[seeds] == rank] if by == "owner" else equal
            for picks in sampler.sample(mine, batch_id=number).picks if len(mine) else ():
                np.add.at(expected[rank], picks.frontier, 1)
    assert (visits == expected).all() and visits.max() > 1


@pytest.mark.parametrize("by", ["owner", "equal"])
def test_loads_are_the_rows_of_whole_samples(graph: lab.Graph, by: str) -> None:
    cut = many_gpus.divide(graph, 2, "range")
    expected = np.zeros(graph.num_nodes, int)
    sampler = lab.NeighborSampler(graph, [3, 3], device="cpu", seed=5)
    for number in range(1, many_gpus.VISITED + 1):
        seeds = draw_seeds(graph, 8, 1000 * number + 5)
        for rank, equal in enumerate(np.array_split(seeds, 2)):
            mine = seeds[cut.owner[seeds] == rank] if by == "owner" else equal
            if len(mine):
                np.add.at(expected, sampler.sample(mine, batch_id=number).node_ids, 1)
    loads = many_gpus.count_rows(graph, cut, 2, 8, 3, 2, by, 5)
    assert (loads == expected).all() and loads.max() > 1


def test_parts_are_saved_with_rows_where_they_are_wanted(graph: lab.Graph) -> None:
    cut = many_gpus.divide(graph, 2, "range")
    part, bare = (
        lab.distributed.open_part(save(graph, cut), 1) for save in (many_gpus.save_with_rows, many_gpus.save)
    )
    assert np.array_equal(part.feat, graph.feat[part.vertices]) and bare.feat is None


def test_copies_promise_nothing_where_no_rank_visits_a_list_of_another(graph: lab.Graph) -> None:
    cut = many_gpus.divide(graph, 2, "range")
    for by, hops in (("owner", 1), ("equal", 1), ("owner", 2)):
        visits = many_gpus.count_visits(graph, cut, 2, 8, 3, hops, by, 5)
        promised = many_gpus.expect_saved(graph, cut, visits, 2, 3)
        assert (max(promised["reads"]) == 0) == (by == "owner" and hops == 1), (by, hops)
        assert set(map(len, promised.values())) == {len(many_gpus.BUDGETS)}


def test_no_more_ranks_are_offered_than_the_graph_has_vertices() -> None:
    explorer = RanksExplorer(lab.Graph.from_edges([0], [0], 1, name="one"), device="cpu", raise_errors=True)
    assert explorer.num_ranks == explorer.controls["num_ranks"].max == 1
    assert "Nothing travels between ranks" in explorer._summary.value
    explorer = RanksExplorer(lab.Graph.from_edges([0, 1, 2], [1, 2, 0], name="three"), device="cpu")
    explorer.num_ranks = explorer.controls["num_ranks"].max
    assert explorer.error == "" and explorer.num_ranks == 3
