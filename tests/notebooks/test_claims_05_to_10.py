"""What the prompts of notebooks 05, 08, 09 and 10 say one will see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gnnsample_widgets import (
    AggregationExplorer,
    IdMapExplorer,
    PipelineExplorer,
    RanksExplorer,
    TrainingExplorer,
    many_gpus,
    pipelines,
)
from gnnsample_widgets.explorers.sampling.id_map import faulty_ids
from gnnsample_widgets.graphs import draw_seeds

import gnnsample_lab as lab
from gnnsample_lab import figures
from tests.notebooks.claims import Opened, claim, run_cells

pytestmark = pytest.mark.exhaustive  # minutes in all; that every sentence is there is tested each time

# ---- 05 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(graph: Any) -> Opened:
    return Opened(IdMapExplorer, graph)


@claim(
    "05",
    "Take **Slots of the table** down to 7 and up to 32, and press play again.",
    "When is a probe wasted?",
)
def test_fewer_slots_cost_more_probes_per_id(table: Opened) -> None:
    def probes(slots: int) -> float:
        _, steps, _ = table(slots=slots)["filling"]
        return sum(len(step.probes) for step in steps) / len(steps)

    assert probes(7) > probes(32) and probes(7) > 1


@claim(
    "05",
    "Take **Threads at once** from 1 to 32. The rounds become fewer, and the numbers in the cells larger",
)
def test_more_threads_meet_in_fewer_rounds(table: Opened) -> None:
    rounds = [table(threads=threads)["filling"][2] for threads in (1, 8, 32)]
    assert len(rounds[0]) > len(rounds[1]) > len(rounds[2])
    most = [max(int(r.contention.max()) for r in each) for each in rounds]
    assert most[0] < most[1] <= most[2] and most[0] < most[2]


@claim(
    "05",
    "Tick **The flag as printed** and go to the last step. Which ids have a number, and is it the right one?",
)
def test_the_printed_flag_leaves_ids_without_a_number(table: Opened) -> None:
    assert faulty_ids(table(printed=True)["filling"][1]) != []
    assert faulty_ids(table(printed=False)["filling"][1]) == []


@claim("05", "**Load factor** from 50 to 95 %: look at the mean and at the longest.")
def test_the_longest_grows_faster_than_the_mean(table: Opened) -> None:
    half, full = (table(hash="multiplicative", load_percent=load)["chosen"] for load in (50, 95))
    longest = [np.flatnonzero(each.lengths).max() if np.ndim(each.lengths) else 0 for each in (half, full)]
    assert full.mean > half.mean
    assert longest[1] - longest[0] > full.mean - half.mean


@claim(
    "05",
    "Set **Numbering of the real ids** to *consecutive* and compare the three hash functions below "
    "and above 70 %.",
)
@claim("05", "Then *multiples of 64*. Which one does not care?")
def test_one_hash_does_not_care_about_structure(table: Opened) -> None:
    def means(numbering: str, load: float) -> dict[str, float]:
        made = table(numbering=numbering)["means"]
        at = int(np.argmin(np.abs(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]) - load)))
        return {name: found[at] for name, found in made.items()}

    strided = means("multiples of 64", 0.9)
    assert strided["low-bits"] > 5 * strided["multiplicative"]
    below, above = means("consecutive", 0.5), means("consecutive", 0.95)
    assert max(below.values()) < 1.15 * min(below.values()), "all alike"
    assert min(above["modulo"], above["low-bits"]) > 5 * above["multiplicative"]
    free = [means(n, 0.9)["multiplicative"] for n in ("as in the graph", "consecutive", "multiples of 64")]
    assert max(free) < 3 * min(free)


# ---- 08 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sums(graph: Any) -> Opened:
    return Opened(AggregationExplorer, graph)


@claim("08", "Take **Features** from 16 to 1024. Which ratios change, and which do not?")
def test_some_ratios_change_with_the_features(sums: Opened) -> None:
    def ratio(features: int, kernel: str) -> float:
        times = sums(num_features=features)["times"]
        return float(times["naive"]["modelled"] / times[kernel]["modelled"])

    changes = {k: abs(ratio(1024, k) / ratio(16, k) - 1) for k in ("memory-aware", "register-tile")}
    assert min(changes.values()) < 0.15 and max(changes.values()) < 0.5


@claim("08", "Go through the **Layers**. Where is most of the work, and where are rows shared by most edges?")
def test_most_of_the_work_is_in_the_input_layer(sums: Opened) -> None:
    blocks = sums()["blocks"][1]
    assert blocks[0].num_edges == max(block.num_edges for block in blocks)


@claim(
    "08",
    "Look at the left ends of the bars: which kernel asks least of global memory? Where has the "
    "shared memory gone in `register-tile`?",
)
def test_who_asks_least_of_global_memory(sums: Opened) -> None:
    block = sums()["blocks"][1][0]
    cost = {
        name: lab.aggregation_cost(block, 128, name) for name in ("naive", "memory-aware", "register-tile")
    }
    assert cost["naive"].global_bytes > 2 * cost["memory-aware"].global_bytes
    assert cost["register-tile"].shared_bytes == 0 < cost["memory-aware"].shared_bytes


@claim(
    "08",
    "Read the roofline (tab *Features and roofline*): how many operations come with a byte, and how far to the "
    "right would a kernel have to be before arithmetic counts?",
)
def test_aggregation_lies_far_from_the_ridge(sums: Opened) -> None:
    made = sums()
    speeds = made["speeds"]
    ridge = speeds.fp32_gflops / speeds.dram_gbps
    intensity = lab.aggregation_cost(made["blocks"][1][0], 128, "register-tile").intensity
    assert intensity < 1 and ridge > 10 * intensity


@claim(
    "08",
    "The pale line is the reference, the thin one lies on it.",
    "a system that reorders: it takes the same batches in another order, so that steps differ and the course does not.",
)
def test_systems_learn_the_same() -> None:
    small = lab.load("arxiv-like", scale=0.02, use_cache=False)
    train = Opened(TrainingExplorer, small, steps=4, epochs=2, batch_size=32, system="gnnlab")
    one, two = train()["runs"].values()
    assert one.batch_ids == two.batch_ids and np.allclose(one.losses, two.losses, atol=1e-3)
    one, two = train(system="fastgl")["runs"].values()
    assert sorted(one.batch_ids) == sorted(two.batch_ids)
    assert abs(np.mean(one.losses[-4:]) - np.mean(two.losses[-4:])) < 0.05 * np.mean(one.losses[-4:])


def test_nothing_is_trained_without_labels(graph: Any) -> None:
    if graph.name == "ogbl-ddi":
        explorer = TrainingExplorer(graph, device="cpu", raise_errors=True)
        assert explorer.figures == {} and explorer.error == ""


# ---- 09: everything in the explorer is modelled, no graph is read ---------------------------------------------------


@pytest.fixture(scope="module")
def pipeline() -> Opened:
    return Opened(PipelineExplorer, None)


def splits(made: dict[str, Any]) -> tuple[int, int, dict[int, Any]]:
    """Samplers by the rule, samplers of the shortest epoch without switching, and the rows."""
    rows = {row["samplers"]: row for row in made["splits"].rows}
    rule = next(n for n, row in rows.items() if row["chosen"])
    return rule, min(rows, key=lambda n: rows[n]["without_s"]), rows


@claim(
    "09",
    "Set **K** to 2.7. Which split is best without switching, and which one does the rule take?",
    "Switch on **Samplers switch**: who trains at the end?",
)
def test_the_rule_takes_one_more(pipeline: Opened) -> None:
    made = pipeline(k_tenths=27)
    rule, best, rows = splits(made)
    assert (rule, best) == (3, 2)
    assert rows[3]["switched"] > 0 and rows[3]["with_s"] < rows[3]["without_s"]


@claim(
    "09",
    "Set **Samplers** to 2, then to 5, at K = 2: watch the queue, then **Capacity of a "
    "queue** at 1 and at 64. Who waits?",
)
def test_too_few_and_too_many_samplers(pipeline: Opened) -> None:
    remaining = {n: row["remaining"] for n, row in splits(pipeline())[2].items()}
    assert remaining[2] == 0 < remaining[5]
    roomy, tight = (pipeline(samplers=5, capacity=room)["runs"]["factored"].epoch_s for room in (64, 1))
    assert tight >= roomy


@claim(
    "09",
    "Raise **Skew of stage times**, then let **Updates wait for each other**. Which GPUs wait now, "
    "and for whom?",
)
def test_waiting_for_updates_costs_time_where_stages_differ(pipeline: Opened) -> None:
    free, tied = (
        pipeline(spread_percent=100, synchronous=wait)["runs"]["factored"].epoch_s for wait in (False, True)
    )
    assert tied > free


@claim(
    "09",
    "it to 1 ×, and *Host link per extraction* to 0 %. Which executor is the fastest then?",
)
def test_without_the_price_of_the_topology(pipeline: Opened) -> None:
    def epochs(**state: int) -> dict[str, float]:
        return {name: run.epoch_s for name, run in pipeline(**state)["runs"].items()}

    cheap = epochs(beside_tenths=10, host_percent=0)
    assert min(cheap, key=lambda name: cheap[name]) != "factored"
    assert cheap["overlapped"] < epochs()["overlapped"]


@claim(
    "09", "take **A GPU is busy with one stage** from 100 % to 50 %.", "why does nothing change below 50 %?"
)
def test_overlapping_gains_until_stages_fit_beside_each_other(pipeline: Opened) -> None:
    took = [
        pipeline(beside_tenths=10, host_percent=0, executor="overlapped", demand_percent=share)["runs"][
            "overlapped"
        ].epoch_s
        for share in (100, 80, 50, 20, 0)
    ]
    assert took[0] > took[1] > took[2] and took[2:] == pytest.approx([took[2]] * 3)


@claim(
    "09",
    "with one sampler, from how many GPUs on is one more of no use?",
    "From five on: four trainers nearly keep pace with one sampler, and a sixth GPU gains 1 %.",
    "A second sampler lets it shrink up to eight GPUs, where T_SOTA needs 1.6 times as",
    "Switching saves most with one trainer, and hardly anything with seven.",
)
def test_figures_of_the_paper_modelled_from_its_stage_times() -> None:
    scope: dict[str, Any] = {"lab": lab, "figures": figures, "show": lambda *given: scope.update(shown=given)}
    run_cells("09", scope, "figures-modelled")
    assert len(scope["shown"]) == 3
    epochs = {(row["series"], row["gpus"]): row["epoch_s"] for row in scope["by_gpus"].rows}
    alone, two = ([epochs[f"factored, {n}S", gpus] for gpus in range(3, 9)] for n in (1, 2))
    assert alone[1] > 1.25 * alone[2] and alone[2] == pytest.approx(1.01 * alone[3], rel=3e-3)
    assert min(alone[3:]) > 0.99 * alone[3] and two == sorted(two, reverse=True)
    assert epochs["T_SOTA", 8] == pytest.approx(1.6 * two[-1], rel=0.03)
    assert scope["by_split"].rows[0]["train_s"] > scope["by_split"].rows[0]["sample_s"]
    saved = [1 - row["with_s"] / row["without_s"] for row in scope["switched"].rows]
    assert max(saved) == saved[0] > 0.3 and saved[-1] < 0.02


@claim("09", "Set **GPUs** to 1. In which order does *factored* do its work there?")
def test_one_gpu_samples_before_it_trains(pipeline: Opened) -> None:
    assert pipeline(gpus=1)["splits"] is None
    assert "samples the whole epoch before it trains" in pipeline.explorer._summary.value


@pytest.mark.slow
@claim(
    "09",
    "In turns misses as little as the trainer alone, and brings topology and cache into each rank again, every epoch, "
    "while nothing else runs.",
    "But nobody trains before all is sampled.",
    "What is saved is the link to the host",
)
def test_ways_to_share_two_ranks() -> None:
    small = lab.load("arxiv-like", scale=0.02, use_cache=False)
    with lab.distributed.Ranks(2, device="cpu") as pair:
        scope = {"g": small, "ranks": pair, "pipelines": pipelines, "np": np}
        said = run_cells("09", scope, "turns", "handover", "handover-bytes")
    together, apart, peers, turns = scope["ways"].values()
    missed = [run.epochs[0].bytes_moved for run in (together, apart, peers, turns)]
    assert missed[0] > missed[1] == missed[2] == missed[3] > 0
    assert all(m.topology > 0 and m.cache > 0 for m in turns.memory)
    loads = [e for e in turns.epochs[0].events if e.stage in ("load topology", "load cache")]
    assert len(loads) == 4
    sampled = max(e.end_us for e in turns.epochs[0].events if e.stage == "sample")
    assert sampled <= min(e.start_us for e in turns.epochs[0].events if e.stage == "train")
    assert peers.losses == apart.losses and said.count("True") == 2
    assert re.search(r"'peer': samples of [\d.]+ MB, 0.0 MB to and from host memory", said)


# ---- 10 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks(graph: Any) -> Iterator[Opened]:
    yield Opened(RanksExplorer, graph)
    many_gpus.close_ranks()


def volume(made: dict[str, Any], method: str) -> int:
    return sum(t.volume for t in made["counted"][method])


def remote(made: dict[str, Any]) -> float:
    found = made["counted"]["pull"]
    return float(sum(t.ideal_remote for t in found) / sum(t.ideal for t in found))


@claim("10", "Set **Seeds of a rank** to *equal*. Which numbers rise, and does the cut still matter?")
@claim(
    "10",
    "Now set **Parts by** to *random*, with seeds of their *owner*. Is the owner's slice worth "
    "anything without a good cut?",
)
def test_owners_and_a_good_cut_need_each_other(ranks: Opened) -> None:
    good, equal, random = remote(ranks()), remote(ranks(by="equal")), remote(ranks(parts_by="random"))
    assert good < equal and good < random


@claim(
    "10",
    "Take **Fanout** from 5 to 30 (tab *Fanout and cache*). Why does the factor between `pull` and `csp` fall, and "
    "at which fanout would it be one?",
)
def test_the_factor_falls_with_the_fanout(ranks: Opened) -> None:
    swept = ranks()["swept"]
    factors = [pull / csp for pull, csp in zip(swept["pull"], swept["csp"])]
    falling = factors[many_gpus.FANOUTS.index(5) :]
    assert falling[0] > 1.2 * falling[-1] and falling == sorted(falling, reverse=True)


@claim("10", "Take **Room for copies** up. When does `direct-cached` move less than `csp`?")
def test_copies_bring_direct_below_csp(ranks: Opened) -> None:
    moved = [volume(ranks(cache_percent=room), "direct-cached") for room in (0, 5, 50)]
    assert moved[0] > moved[1] > moved[2] and moved[2] < volume(ranks(), "csp") < moved[0]


@claim("10", "Take **Batch size** up. What does that do to the padding of `csp-fixed`?")
def test_padding_by_batch_size(ranks: Opened) -> None:
    def padding(size: int) -> float:
        kinds = many_gpus.by_kind(ranks(batch_size=size)["counted"]["csp-fixed"])
        return kinds.get("padding", 0) / sum(kinds.values())

    sizes = ranks.options("batch_size")
    shares = [padding(size) for size in (sizes[0], sizes[-1])]
    assert all(0 < share < 1 for share in shares) and shares[0] != pytest.approx(shares[1], rel=0.01)


@pytest.mark.slow
@claim(
    "10",
    "Take **Ranks** to 3 and 4 (further processes start, which takes a while). How does the part of "
    "the picks that are remote grow?",
)
def test_more_ranks_more_remote_picks(ranks: Opened) -> None:
    shares = [remote(ranks(num_ranks=count, parts_by="random")) for count in (2, 4)]
    assert shares[0] < shares[1]


@pytest.fixture(scope="module")
def shared(graph: Any) -> Iterator[dict[str, Any]]:
    """What the notebook's cells have defined before those below, on two CPU ranks."""
    scope: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_DEVICE", "cpu")
        patch.setattr(lab, "load_default", lambda **_: graph)
        run_cells("10", scope, "setup", "cut")
    scope |= {"seeds": draw_seeds(graph, 512, 0), "label": ""}
    run_cells("10", scope, "cache")
    yield scope
    many_gpus.close_ranks()


@claim(
    "10",
    "With half of the room less than half of the reads go to the host",
    "Between the ranks nothing changes: by `csp` an owner draws, wherever its list lies.",
)
def test_half_of_the_room_keeps_more_than_half_of_the_reads(shared: dict[str, Any]) -> None:
    run_cells("10", shared, "spill")
    by_room = dict(zip(shared["rooms"], shared["from_host"]))
    assert by_room[100] == 0 < by_room[50] < by_room[0] / 2
    assert len({sum(int(t.by_peer.sum()) for t in both) for both in shared["spilled"]}) == 1


@claim("10", "so a good cut keeps it at home; its first step always is")
def test_a_good_cut_keeps_walks_at_home(shared: dict[str, Any]) -> None:
    said = run_cells("10", shared, "walks")
    good, chance = (float(share) / 100 for share in re.findall(r"([\d.]+)% of [\d,]+ steps", said))
    assert good < chance < 0.5, "all steps but the first go either way"
    for mine, paths, _ in shared["walked"]:
        owners = np.asarray(shared["cut"].owner)
        assert len(paths) == len(mine) and len(set(owners[shared["seeds"][mine]])) == 1


@claim(
    "10",
    "What a hop moves grows with what the hop before has reached, and what a layer moves with its bound.",
    "Most of it is **weights**, the sums that all ranks have to know.",
)
def test_layers_are_bounded_and_hops_grow(shared: dict[str, Any]) -> None:
    said = run_cells("10", shared, "walks", "layers", "layers-kinds")
    hops, layers = zip(*((float(a), float(b)) for a, b in re.findall(r"([\d.]+) kB; .* ([\d.]+) kB", said)))
    assert hops[2] - hops[1] > 2 * (layers[2] - layers[1])
    assert layers[2] - layers[1] == pytest.approx(layers[1] - layers[0], rel=0.1)
    kinds = shared["kinds_of_layers"]
    assert kinds["weights"] > sum(kinds.values()) / 2


@claim(
    "10",
    "Partitioned caches of two ranks hold twice as many different rows. They leave fewer to the host, and pay for it "
    "with rows that come from the peer",
    "With owners the position lists take half of the memory, and positions have to be asked for.",
)
def test_partitioned_caches_leave_fewer_rows_to_the_host(shared: dict[str, Any]) -> None:
    said = run_cells("10", shared, "rows-of-ranks", "rows")
    found = re.findall(r"(\d+)% peer, +(\d+)% host; +([\d,.]+) kB.*lists of +([\d,.]+) kB", said)
    owners, everywhere, read, alone = ([float(n.replace(",", "")) for n in line] for line in found)
    assert owners[:2] == everywhere[:2] == read[:2] and owners[1] < alone[1] and alone[0] == 0 < owners[0]
    assert (
        owners[3] == pytest.approx(everywhere[3] / 2, rel=0.01) and owners[2] > everywhere[2] > alone[2] == 0
    )


@claim("10", "By the bytes from the host most of the memory belongs to the rows here")
def test_most_of_the_memory_belongs_to_the_rows(shared: dict[str, Any]) -> None:
    run_cells("10", shared, "rows-of-ranks", "split")
    least, splits = shared["least"], shared["splits"]
    assert least.feature_bytes > least.topology_bytes
    assert max(splits, key=lambda split: split.topology_host) is splits[-1]
    assert max(splits, key=lambda split: split.feature_host) is splits[0]
