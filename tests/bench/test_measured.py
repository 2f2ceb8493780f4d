"""The README's table of results: verdicts by one rule, numbers from the records, marks in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnsample_lab.bench import measured, report, runner
from gnnsample_lab.bench.measured import MISSED, REPRODUCED, REVERSED, Claim, verdict
from gnnsample_lab.bench.noise import over_noise
from gnnsample_lab.bench.suites import SUITES
from gnnsample_lab.bench.suites.nextdoor.cases import WALKS
from gnnsample_lab.systems.table import find

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("values", "claim", "expected"),
    [
        ([1.3, 1.5], Claim("", least=1.2), REPRODUCED),
        ([1.15, 1.16], Claim("", least=1.2), REPRODUCED),  # as near as runs differ
        ([1.1, 1.12], Claim("", least=1.2), MISSED),
        ([1.3, 1.5, 0.9], Claim("", least=1.2), f"{MISSED} (1 of 3 reversed)"),
        ([1.3] * 9 + [0.9], Claim("", least=1.2), f"{MISSED} (1 of 10 reversed, the value reached)"),
        ([1.1] * 9 + [0.9], Claim("", least=1.2), f"{MISSED} (1 of 10 reversed)"),
        ([1.3] * 9 + [0.9], Claim(""), f"{MISSED} (1 of 10 reversed)"),
        ([0.9, 0.8, 1.1], Claim("", least=1.2), f"{REVERSED} (1 of 3 not)"),
        ([0.5], Claim("", least=1.2), REVERSED),
        ([1.1, 2.2], Claim("", best=2.2), REPRODUCED),
        ([1.1, 1.5], Claim("", best=2.2), MISSED),
        ([1.01, 9.0], Claim(""), REPRODUCED),
        ([0.99, 9.0], Claim(""), f"{MISSED} (1 of 2 reversed)"),
        ([-1.0], Claim("", least=5, neutral=0), REVERSED),
        ([0.3], Claim("", best=25, neutral=0), MISSED),
        ([0.1, 0.9], Claim("", most=1), REPRODUCED),
        ([0.1, 1.1], Claim("", most=1), f"{MISSED} (1 of 2 beyond)"),
    ],
)
def test_the_verdict_follows_from_the_numbers(values: list[float], claim: Claim, expected: str) -> None:
    assert verdict(values, claim) == expected


def record_of(suite: str, rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "suite": suite, "rows": rows, "paper": dict(SUITES[suite].paper), "settings": {"quick": True},
        "graphs": {row["graph"]: {"title": f"{row['graph']} (synthetic)", "is_synthetic": True} for row in rows},
        "environment": {"commit": "0123456789", "modified": False, "gpu": {"name": "a GPU"}}, **more,
    }  # fmt: skip


def fused_map(*speedups: float, **more: Any) -> dict[str, Any]:
    rows = [
        {"graph": "reddit-like", "id_map": "fused-map", "form": "published", "speedup": x} for x in speedups
    ]
    rows.append({"graph": "mag-like", "id_map": "sort", "speedup": 99.0})
    return record_of("fastgl-table8", rows, **more)


def test_a_line_has_its_values_graphs_claim_and_state() -> None:
    record = fused_map(1.5, 1.7, 2.0, source={"hash": "ab" * 8, "layers": {}})
    (line,) = measured.rows({"fastgl-table8": record})
    assert line == (
        "FastGL", "Fused-Map (table 8)", "`reddit-like`", "DGL's ID map", "1.50 to 2.00 x, median 1.70",
        "2.1 to 2.7 x", f"{MISSED}°", "a GPU", "0123456 (abababab), quick",
    )  # fmt: skip
    assert measured.rows({"fastgl-table8": fused_map(2.5)})[0][4:7:2] == ("2.50 x", f"{REPRODUCED}°")
    old = {**record, "rows": [{k: v for k, v in row.items() if k != "form"} for row in record["rows"]]}
    assert measured.rows({"fastgl-table8": old}) == [], "what was called by this name before is another rung"
    text = measured.markdown({"fastgl-table8": record})
    assert "| FastGL | 1 | 0 | 1 | 0 | 0 | 1 |" in text and "| all | 1 | 0 | 1 | 0 | 0 | 1 |" in text
    assert text.index("*Reproduced*") < text.index("Fused-Map"), "how to read a line stands before the first"


def test_a_modelled_row_is_no_measurement() -> None:
    rows = [
        {"graph": "papers100M-like@0.02", "system": "gnnlab", "gpus": n, "origin": origin, "speedup": x}
        for n, origin, x in ((2, "measured", 0.7), (4, "modelled", 9.0), (8, "measured", 9.0))
    ]
    (line,) = measured.rows({"gnnlab-table4": record_of("gnnlab-table4", rows)})
    assert line[4] == "0.70 x"


def test_accuracy_is_of_the_most_gpus_that_ran() -> None:
    """One device has the seeds of more GPUs, too: it stands beside modelled rows, which say nothing of losses."""
    rows = [
        {"graph": "toy", "system": s, "gpus": n, "seeds_of": of, "origin": origin, "accuracy": a}
        for s, n, of, origin, a in (
            ("tsota", 1, 2, "measured", 0.9), ("dsp", 2, 2, "measured", 0.9), ("tsota", 1, 8, "measured", 0.5),
            ("dsp", 8, 8, "modelled", 0.4),
        )
    ]  # fmt: skip
    assert measured._same_accuracy(record_of("dsp-accuracy", rows)) == [(1.0, "toy")]
    before = [{k: v for k, v in row.items() if k not in ("seeds_of", "origin")} for row in rows[:2]]
    assert measured._same_accuracy(record_of("dsp-accuracy", before)) == [(1.0, "toy")]


def test_a_line_says_on_which_card_and_how_many() -> None:
    rows = [
        {"graph": "toy", "app": "k-hop", "index": "published", "gpus": n, "over_one": x}
        for n, x in ((1, 1.0), (2, 1.9), (4, 3.5))
    ]
    record = record_of("nextdoor-fig10", rows)
    record["environment"]["gpu"]["name"] = "NVIDIA H100 80GB HBM3"
    (line,) = measured.rows({"nextdoor-fig10": record})
    assert line[4:8] == ("3.50 x", "nearly linear", f"{REPRODUCED}°", "4 x H100"), "of the most GPUs alone"
    record["rows"] = rows[:2]
    (line,) = measured.rows({"nextdoor-fig10": record})
    assert line[4:8] == ("1.90 x", "nearly linear", f"{REPRODUCED}°", "2 x H100")
    assert measured.card_of(fused_map(2.5)) == "a GPU"
    record["environment"]["gpu"] = None
    assert measured.card_of(record, "gpus") == "CPU"
    head = measured.markdown({"nextdoor-fig10": record, "fastgl-table8": fused_map(2.5)}).splitlines()[0]
    assert "1 on a GPU, 1 on a CPU" in head


def test_nextdoors_lines_show_its_own_form_and_ours_apart() -> None:
    """Records from before both were measured hold ours alone, of which nothing follows for the paper's claim."""

    def shown(suite: str, rows: list[dict[str, Any]]) -> dict[str, str]:
        return {line[0]: line[4] for line in measured.rows({suite: record_of(suite, rows)})}

    row = {"graph": "toy", "app": "k-hop", "gpus": 2, "over_one": 1.5}
    assert shown("nextdoor-fig10", [row]) == {"ours": "1.50 x"}
    both = [{**row, "index": "auto"}, {**row, "index": "published", "over_one": 1.8}]
    assert shown("nextdoor-fig10", both) == {"NextDoor": "1.80 x", "ours": "1.50 x"}
    row = {"graph": "ppi-like", "method": "FastGCN", "reference": "numpy", "speedup": 2.0}
    assert shown("nextdoor-table5", [row]) == {"ours": "2.00 x"}
    both = [{**row, "published_speedup": 1.2}]
    assert shown("nextdoor-table5", both) == {"NextDoor": "1.20 x", "ours": "2.00 x"}
    row = {"graph": "toy", "app": "node2vec", "fraction": 0.25, "over_cpu": 3.0}
    assert shown("nextdoor-section84", [row]) == {}, "what it holds is not NextDoor's"
    both = [{**row, "index": "auto"}, {**row, "index": "published", "over_cpu": 2.0}]
    assert shown("nextdoor-section84", both) == {"NextDoor": "2.00 x", "ours": "3.00 x"}


def whole_process(seeds: int, fanout: int, alone_us: float, fused32_us: float = 1.0) -> dict[str, Any]:
    return {
        "graph": "rmat", "batch_size": seeds, "fanout": fanout, "hops": 3, "alone_us": alone_us,
        "alone_reservoir_us": 2 * alone_us, "fused32_us": fused32_us,
    }  # fmt: skip


def test_what_was_measured_elsewhere_is_compared_on_its_card_alone() -> None:
    record = record_of("whole-process", [whole_process(1024, 10, 100.0, 50.0)])
    for gpu in ({"name": "NVIDIA H100 80GB HBM3"}, None):
        record["environment"]["gpu"] = gpu
        for line in measured.rows({"whole-process": record}):
            assert line[1].endswith("; measured on an H200 only") and line[4] == "-", gpu
    record["environment"]["gpu"] = {"name": "NVIDIA H200"}
    lines = measured.rows({"whole-process": record})
    # The same draw as DGL's own sampler has comes first, and that by Floyd says that two draws meet.
    assert [line[4] for line in lines] == ["25.5 x", "51.1 x", "7.17 x", "14.3 x", "25.0 x"]
    assert [("reservoir" in line[1], "mixed" in line[1]) for line in lines[:4]] == 2 * [
        (True, False),
        (False, True),
    ]
    assert all("measured separately on an H200" in line[3] and "only" not in line[1] for line in lines)


def test_the_ratio_to_cugraph_is_of_one_rule() -> None:
    """Recorded mini-batches expand a vertex again in each hop; cuGraph has 5 108 us by that rule, 5 371 by its own."""
    record = record_of("whole-process", [whole_process(1024, 10, 5108.0, 1250.0)])
    record["environment"]["gpu"] = {"name": "NVIDIA H200"}
    line, mixed, *_, together = measured.rows({"whole-process": record})
    assert mixed[4] == together[4] == "1.00 x" and "as by DGL" in line[1]


def test_graphbolt_is_compared_at_the_tasks_that_it_ran() -> None:
    tasks = ((1024, 10, 143.3), (8192, 10, 121.9), (8192, 15, 274.5), (1024, 15, 1.0), (2048, 10, 1.0))
    record = record_of("whole-process", [whole_process(*task) for task in tasks])
    record["rows"].append(whole_process(8192, 15, 1.0) | {"hops": 2})
    record["environment"]["gpu"] = {"name": "NVIDIA H200"}
    assert measured.rows({"whole-process": record})[3][4] == "10.0 to 20.0 x, median 10.0"


def test_twins_unlike_their_originals_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_is_foreign", lambda record, graph: graph == "reddit-like")
    (line,) = measured.rows({"fastgl-table8": fused_map(2.5)})
    assert line[2] == "`reddit-like`†" and line[6] == f"{REPRODUCED}†°"
    text = measured.markdown({"fastgl-table8": fused_map(2.5)})
    assert "| FastGL | 1 | 0 | 0 | 0 | 1 | 1 |" in text


def test_a_line_is_judged_on_its_comparable_graphs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_is_foreign", lambda record, graph: graph == "igb-like@0.02")
    record = fused_map(2.5)
    record["settings"]["quick"] = False
    record["rows"].append({**record["rows"][0], "graph": "igb-like@0.02", "speedup": 0.5})
    record["graphs"]["igb-like@0.02"] = {"title": "igb-like", "is_synthetic": True}
    (line,) = measured.rows({"fastgl-table8": record})
    assert line[4] == "0.50 to 2.50 x; judged without †: 2.50 x" and line[6] == REPRODUCED


def test_the_values_that_a_verdict_is_on_stand_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """GNNLab's table 4: the median of all is below 1, that of the graph which is like the paper's is not."""
    monkeypatch.setattr(measured, "_is_foreign", lambda record, graph: graph.startswith("papers100M-like"))
    rows = [
        {"graph": graph, "model": "gcn", "system": "gnnlab", "gpus": gpus, "origin": "measured", "speedup": x}
        for graph, times in (("papers100M-like@0.03", (0.6, 0.7, 0.8)), ("products-like", (1.7, 2.0)))
        for gpus, x in zip((2, 4, 4), times, strict=False)
    ]
    (line,) = measured.rows({"gnnlab-table4": record_of("gnnlab-table4", rows)})
    assert line[4] == "0.60 to 2.00 x, median 0.80; judged without †: 1.70 to 2.00 x"
    assert line[6] == f"{MISSED}°"


def test_what_is_below_one_is_not_shown_as_one() -> None:
    shown = [measured._short(value) for value in (0.9992, 0.99, 1.0, 1.004)]
    assert shown == ["0.999", "0.99", "1.00", "1.00"]
    record = record_of("gnnlab-fig16", [{"graph": "toy", "system": "gnnlab", "speedup": 0.9992}])
    assert measured.rows({"gnnlab-fig16": record})[0][4:7:2] == ("0.999 x", f"{REVERSED}°")


def test_a_case_that_did_not_fit_in_gnnlabs_table4_is_not_judged() -> None:
    rows = [
        {"graph": graph, "model": "gcn", "system": "gnnlab", "gpus": 2, "origin": "measured", "speedup": 6.0}
        for graph in ("papers100M-like@0.03", "uk-like@0.03")
    ]
    (line,) = measured.rows({"gnnlab-table4": record_of("gnnlab-table4", rows)})
    assert "uk-like" not in line[2] and line[5] == "5.43 x, 8 GPUs"


def test_claims_are_counted_by_paper() -> None:
    verdicts = (
        ("A", REPRODUCED), ("A", f"{REVERSED} (1 of 3 not)°"), ("A", f"{MISSED}†°"), ("B", MISSED), ("ours", "-"),
    )  # fmt: skip
    body = [(paper, "", "", "", "", "", word, "") for paper, word in verdicts]
    assert measured.tally(body) == [
        ("A", "3", "1", "0", "1", "1", "2"), ("B", "1", "0", "1", "0", "0", "0"), ("all", "4", "1", "1", "1", "1", "2"),
    ]  # fmt: skip


def test_quick_runs_and_smaller_graphs_are_marked() -> None:
    full = fused_map(2.5)
    full["settings"]["quick"] = False
    assert measured.rows({"fastgl-table8": full})[0][6] == REPRODUCED
    full["rows"].append({**full["rows"][0], "graph": "igb-like@0.02"})
    full["graphs"]["igb-like@0.02"] = {"title": "igb-like", "is_synthetic": True}
    assert measured.rows({"fastgl-table8": full})[0][6] == f"{REPRODUCED}°", "one of its graphs is smaller"


def test_nextdoors_claims_are_of_the_published_rung() -> None:
    """What the library does in its place is ours: a verdict on it would say nothing of the paper."""
    row = {
        "graph": "toy-like", "app": "DeepWalk", "over_sample": 9.0, "published_over_sample": 0.5,
        "over_cpu_core": 900.0, "over_cpu_all": 90.0, "published_over_cpu_all": 3.0, "over_frontier": 70.0,
        "published_over_frontier": 0.7,
        "over_message": 80.0, "published_over_message": 0.8,
    }  # fmt: skip
    records = {name: record_of(name, [row]) for name in ("nextdoor-fig7", "nextdoor-fig9")}
    # No schedule changes these samples, and these are no graph and no application of the paper's.
    for other in ({"app": "FastGCN"}, {"graph": "snap:soc"}, {"app": "PinSAGE"}):
        records["nextdoor-fig7"]["rows"].append(
            {"graph": "toy-like", "app": "MVS", "published_over_sample": 1.02} | other
        )
    lines = measured.rows(records)
    assert [line[4] for line in lines if line[0] == "NextDoor"] == ["0.50 x", "3.00 x", "0.70 x", "0.80 x"]
    assert [line[4:7] for line in lines if line[0] == "ours"] == [
        (value, "-", "-") for value in ("9.00 x", "900 x", "90.0 x", "70.0 x", "80.0 x")
    ]
    stores = [
        {"graph": "toy", "app": "k-hop", "index": index, "store_percent": value}
        for index, value in (("auto", 45.0), ("published", 98.0), ("always", 19.0))
    ]
    lines = measured.rows({"nextdoor-table4": record_of("nextdoor-table4", stores)})
    assert [(line[0], line[4]) for line in lines] == [("NextDoor", "98.0 %"), ("ours", "45.0 %")]
    old = record_of("nextdoor-table4", [stores[0], stores[2]])
    assert [line[0] for line in measured.rows({"nextdoor-table4": old})] == ["ours"]


def test_no_walk_is_left_out_and_the_claim_is_of_those_that_ran_on_knightking() -> None:
    """NextDoor's claim over CPU cores is of three walks, one of which has no index for most of its steps; what that one
    and the others reach stands beside it, with no verdict."""
    row = {"graph": "toy", "published_over_cpu_all": 90.0, "over_cpu_all": 90.0, "over_cpu_core": 900.0}
    slow = {"published_over_cpu_all": 0.1, "over_cpu_all": 9.0, "over_cpu_core": 70.0}
    rows = [{**row, "app": app} | (slow if app == "MultiRW" else {}) for app in WALKS]
    lines = measured.rows({"nextdoor-fig7": record_of("nextdoor-fig7", rows)})
    papers, ours = ([line for line in lines if (line[0] == "ours") == mine] for mine in (False, True))
    assert [(line[4], line[6]) for line in papers] == [
        ("90.0 x", f"{REPRODUCED}°"), ("90.0 x", "-"), ("0.10 to 90.0 x", "-"),
    ]  # fmt: skip
    assert "one launch of ours" in papers[1][1], "PPR, most of whose steps have no index"
    assert [line[4] for line in ours] == ["70.0 to 900 x, median 900", "9.00 to 90.0 x, median 90.0"]
    for app in WALKS:
        assert [sum(app in line[1] for line in found) for found in (papers, ours)] == [1, 2], (
            "each line names its own"
        )


def test_a_difference_of_losses_is_one_of_losses() -> None:
    rows = [
        {"graph": "toy", "model": "gcn", "system": system, "final_accuracy": 0.5 + i, "final_loss": loss}
        for system, losses in (("dgl", (1.0, 1.2)), ("fastgl", (1.2, 1.4)), ("lab", (3.0, 3.2)))
        for i, loss in enumerate(losses)
    ]
    (line,) = measured.rows({"fastgl-fig16": record_of("fastgl-fig16", rows)})
    assert "final loss" in line[1] and line[4] == "1.50 of it", "of FastGL's configuration alone"
    assert line[6].startswith(REPRODUCED)


def test_a_run_that_went_wrong_does_not_excuse_itself() -> None:
    """Noise is what the baseline's seeds differ by, and a mean of three hides no run."""
    losses = {"dgl": (1.0, 1.2, 1.1), "fastgl": (1.0, 1.1, 1.5)}
    rows = [
        {"graph": "toy", "model": model, "system": system, "final_loss": loss}
        for model, last in (("gcn", 1.2), ("gin", None))
        for system, found in losses.items()
        for loss in (*found[:2], last or found[2])
    ]
    gcn, gin = over_noise(rows, "final_loss")
    assert gcn["noise"] == gin["noise"] == pytest.approx(0.2)
    assert gin["over_noise"] == pytest.approx(0.5) and gin["farthest"] == pytest.approx(2.0)
    rows[-1]["final_loss"] = 1.9
    (line,) = measured.rows({"fastgl-fig16": record_of("fastgl-fig16", rows)})
    assert line[6].startswith("missed (1 of 2 beyond)")


def test_what_is_equal_by_construction_is_no_result() -> None:
    """Two systems that draw the same mini-batches reach the same accuracy, whatever their samplers are worth."""
    row = {"graph": "toy", "model": "sage"}
    accuracies = {"dgl": (0.8, 0.8), "pgsampler": (0.8, 0.8001)}
    rows = [row | {"system": name, "final_accuracy": a} for name, of in accuracies.items() for a in of]
    record = record_of("pgsampler-fig11", rows)
    (line,) = measured.rows({"pgsampler-fig11": record})
    assert "both drew the same mini-batches" in line[1] and line[4:7] == (
        "0.01 of it",
        "approximately the same",
        "-",
    )
    assert measured.tally([line]) == [("all", *"000000")]
    record["settings"]["dgl_seed"] = "of DGL's draws: seed + 1000"
    (line,) = measured.rows({"pgsampler-fig11": record})
    assert "same mini-batches" not in line[1] and line[6].startswith(REPRODUCED)


def test_the_claim_of_gnnlabs_table4_is_of_the_graphs_and_models_that_were_measured() -> None:
    def claim(*cases: tuple[str, str]) -> str:
        rows = [
            {
                "graph": graph,
                "model": model,
                "system": "gnnlab",
                "gpus": 2,
                "origin": "measured",
                "speedup": 1.0,
            }
            for graph, model in cases
        ]
        return measured.rows({"gnnlab-table4": record_of("gnnlab-table4", rows)})[0][5]

    assert claim(("papers100M-like@0.03", "gcn")) == "5.43 x, 8 GPUs"
    assert claim(("papers100M-like@0.03", "gcn"), ("products-like", "gcn")) == "4.03 to 5.43 x, 8 GPUs"
    assert claim(("toy", "gcn")) == "2.83 to 9.05 x, 8 GPUs", "of a graph that the table lacks: all of it"


def test_the_line_of_gnnlabs_table4_says_without_switching_where_its_runs_were() -> None:
    def what(*switching: bool | None) -> str:
        rows = [
            {"graph": "toy", "model": "gcn", "system": "gnnlab", "gpus": gpus, "origin": origin,
             "speedup": 1.0, "switching": switches}
            for gpus, origin, switches in zip(
                (1, 2, 8), ("measured", "measured", "modelled"), switching, strict=True
            )
        ]  # fmt: skip
        return measured.rows({"gnnlab-table4": record_of("gnnlab-table4", rows)})[0][1]

    plain = "an epoch of the factored design, without switching (table 4)"
    assert what(False, False, False) == what(None, None, True) == plain
    assert what(False, True, False) == "an epoch of the factored design (table 4)"


@pytest.mark.parametrize("card", ["overlapped", "serial"])
def test_the_claim_over_time_sharing_is_that_of_gnnlabs_table4(card: str) -> None:
    """Of the graphs of which T_SOTA cannot cache all rows: 1.65 / 1.05 s at least, 1.80 / 0.47 s at most."""
    steps = ("plain", "captured")
    rows = [{"graph": "toy", "card": card, "step": step, "x_sharing": 2.0} for step in steps]
    lines = measured.rows({"gnnlab-budget": record_of("gnnlab-budget", rows)})
    claim = "1.57 to 3.83 x over T_SOTA, 8 GPUs"
    assert [line[5:7] for line in lines] == [(claim, f"{REPRODUCED}°")] * 2


@pytest.mark.parametrize("card", ["overlapped", "serial"])
def test_a_claim_over_time_sharing_that_misses_rows_is_not_judged_by_one_that_misses_none(card: str) -> None:
    """The claim is of graphs of which T_SOTA cannot cache all rows. Of Products, of which it can, GNNLab's table 4 has
    it ahead: 0.07 / 0.11 s and 0.22 / 0.33 s. The quickest way of time sharing decides which of them a run is like."""
    usual = {"graph": "toy", "card": card}

    def lines(step: str, serial: float, streams: float) -> list[tuple[str, ...]]:
        rows = [
            {**usual, "step": step, "executor": "serial", "epoch_ms": 1.0, "cached_percent": serial},
            {**usual, "step": step, "executor": "streams", "epoch_ms": 2.0, "cached_percent": streams},
            {**usual, "step": step, "executor": "overlapped", "error": "MemoryError"},
            {
                **usual,
                "step": step,
                "executor": "factored",
                "epoch_ms": 1.5,
                "cached_percent": 100.0,
                "x_sharing": 0.7,
            },
        ]
        return measured.rows({"gnnlab-budget": record_of("gnnlab-budget", rows)})

    for step in ("plain", "captured"):
        ((_, what, *_, says, verdict_, _, _),) = lines(step, serial=100.0, streams=30.0)
        assert (says, verdict_) == ("1.57 to 3.83 x over T_SOTA, 8 GPUs", "-")
        assert (
            "time sharing caches all rows here, where the paper has it ahead as well: 0.636 to 0.667 x"
            in what
        )
        ((_, what, *_, verdict_, _, _),) = lines(step, serial=99.0, streams=100.0)
        assert verdict_ == f"{REVERSED}°" and "ahead" not in what


@pytest.mark.parametrize(
    ("suite", "setting", "row", "lacks"),
    [
        ("nextdoor-fig7", "cpu_walker", {"app": "MultiRW", "over_cpu_all": 2.0}, "walks that had ended"),
        ("fastgl-fig12", "cusparse", {"kernel": "memory-aware", "over_library": 2.0}, "matrix made anew"),
    ],
)
def test_a_line_says_what_an_older_record_lacked(suite, setting, row, lacks) -> None:
    record = record_of(suite, [{"graph": "toy", **row}])
    assert lacks in measured.rows({suite: record})[0][1]
    record["settings"][setting] = "as it should be"
    assert lacks not in measured.rows({suite: record})[0][1]


def test_the_claim_on_caching_is_of_the_models_that_gnnlab_says_it_of() -> None:
    """PinSAGE, which mostly trains, has a claim of its own: it decides nothing for GCN and GraphSAGE."""
    rows = [
        {"graph": "toy", "model": model, "policy": "presample", "gpus": 2, "less_than_degree": share}
        for model, share in (("gcn", -0.1), ("sage", -0.02), ("pinsage", 0.02), ("pinsage", 0.02))
    ]
    lines = measured.rows({"gnnlab-fig13": record_of("gnnlab-fig13", rows)})
    assert [line[4:7] for line in lines] == [
        ("-10.0 to -2.00 %", "5 to 45 %", f"{REVERSED}°"), ("2.00 %", "1 to 40 %", f"{REPRODUCED}°"),
    ]  # fmt: skip


def test_the_claim_on_training_is_over_the_methods_own_samplers() -> None:
    """NextDoor's table 5 replaced these; how far our CPU walker is behind says nothing of its claim, nor does a method
    that this table lacks."""
    rows = [
        {"graph": "ppi-like", "method": method, "reference": name, "published_speedup": x, "speedup": 2 * x}
        for method, name, x in (
            ("FastGCN", "numpy", 5.0),
            ("GraphSAINT", "numpy", 0.5),
            ("FastGCN", "walker", 0.25),
        )
    ]
    lines = measured.rows({"nextdoor-table5": record_of("nextdoor-table5", rows)})
    assert [(line[0], line[4], line[6]) for line in lines] == [
        ("NextDoor", "5.00 x", f"{REPRODUCED}°"), ("NextDoor", "0.25 x", "-"), ("ours", "1.00 to 10.0 x", "-"),
        ("ours", "0.50 x", "-"),
    ]  # fmt: skip
    assert ["walker" in line[3] for line in lines] == [False, True, False, True]


def test_pulling_has_a_verdict_where_its_bytes_take_the_time() -> None:
    row = {"graph": "toy", "part": "biased", "system": "pull", "ranks": 2, "mb": 600.0, "less_percent": 70.0}
    slow, quick = (record_of("dsp-pull", [row | {"us": us}]) for us in (10_000.0, 1_500.0))
    assert measured.bytes_percent(slow) == pytest.approx(10.0)
    (line,) = measured.rows({"dsp-pull": slow})
    assert "its bytes take 10 % of its time" in line[1] and line[6] == "-"
    (line,) = measured.rows({"dsp-pull": quick})
    assert "bytes" not in line[1] and line[6].startswith(REPRODUCED)
    for x_time, has_verdict in ((1.4, True), (2.6, False)):
        hop = {
            "graph": "toy",
            "part": "fanout",
            "system": "pull",
            "x_bytes": 0.8,
            "x_time": x_time,
            "ranks": 2,
        }
        found = record_of("dsp-pull", [*slow["rows"], hop])
        assert (not measured.untuned(found)) is has_verdict, "fewer bytes should not take much longer"


def test_a_line_names_all_that_its_numbers_are_over() -> None:
    shipped = report.load()
    against = {(line[1].partition(" (")[0]): line[3] for line in measured.rows(shipped)}
    systems = {row["system"] for row in shipped["dsp-accuracy"]["rows"]} - {"dsp"}
    assert systems == {"tsota", "quiver", "dgl-uva"}
    assert against["accuracy after as many mini-batches"] == "one GPU, Quiver and DGL-UVA"
    assert "a mini-batch with the queue and our ID map, start to end" in against, "which its baseline lacks"
    held = {(row["graph"], row["system"]): row["cache_percent"] for row in shipped["fastgl-fig9"]["rows"]}
    assert (held["products-like", "lab"], held["products-like", "dgl"]) == (100, 0)
    (epoch,) = (line[1] for line in measured.rows(shipped) if "an epoch replayed as CUDA graphs" in line[1])
    assert "cached as FastGL, on `products-like` all rows" in epoch, "its baseline copies every row"


def test_a_line_says_where_a_baseline_draws_by_kernels_of_ours() -> None:
    """DGL-UVA and Quiver have the library's captured sampler, not their own; DSP is held against it."""
    assert {find(name).strategy for name in ("quiver", "dgl-uva")} == {"captured"}
    lines = [line for line in measured.LINES if line.paper == "DSP" and "DGL-UVA" in line.against]
    assert len(lines) == 4
    for line in lines:
        assert "by our captured kernels" in line.against or line.suite == "dsp-accuracy", line.against


def test_a_ratio_beyond_the_number_of_gpus_is_no_gain() -> None:
    held = {"part": 10, "copies": 8, "records": 2}
    rows = [
        {"graph": "toy", "method": "direct-cached", "world": 4, "saved_percent": 80.0, "x_one": x, "kept_bytes": held}
        for x in (3.8, 4.5)
    ]  # fmt: skip
    (line,) = measured.rows({"ladder": record_of("ladder", rows)})
    assert line[4] == "3.80 to 4.50 x" and "what exceeds 4 x is how far runs of one GPU differ" in line[1]
    assert "50 to 50 % of the topology on each GPU" in line[1]
    whole = {"graph": "toy", "method": "each, whole graph", "world": 4, "x_one": 3.9}
    (line,) = measured.rows({"ladder": record_of("ladder", [*rows[:1], whole])})
    assert line[4] == "3.80 x" and "exceeds" not in line[1]
    assert "4 GPUs with the whole graph each: 3.9 to 3.9 x" in line[1]


def test_times_of_a_host_that_was_not_quiet_have_no_verdict() -> None:
    """No sampler takes longer for fewer seeds."""

    def lines(times: tuple[float, ...]) -> list[tuple[str, ...]]:
        rows = [
            {"graph": "reddit-like", "batch_size": size, "fanout": 10, "hops": 3, "wall_us": {"block-bsp": us},
             "speedup": {measured.PUBLISHED_QUEUE: 3.0}}
            for size, us in zip((256, 1024, 4096), times, strict=True)
        ]  # fmt: skip
        return measured.rows({"pgsampler-fig9": record_of("pgsampler-fig9", rows)})

    assert lines((100.0, 105.0, 120.0))[0][6].startswith(REPRODUCED)
    for line in lines((100.0, 150.0, 120.0)):
        assert line[6] == "-" and "not quiet: fewer seeds took longer in 1 of 3 pairs" in line[1]


def test_a_line_says_whose_capacity_its_caches_had() -> None:
    record = fused_map(2.5)
    record["settings"]["capacity_of"] = "an RTX 3090 24 GB"
    assert measured.rows({"fastgl-table8": record})[0][1] == (
        "Fused-Map (table 8); capacity of an RTX 3090 24 GB, speed of an a GPU"
    )


def test_a_stranger_reads_the_main_lines_first_and_finds_all_behind_them() -> None:
    main = [line for line in measured.LINES if line.is_main]
    papers = {line.paper for line in measured.LINES}
    assert all(2 < sum(line.paper == paper for line in main) < 10 for paper in papers)
    assert len(main) < len(measured.LINES) / 2
    alone = [line for line in main if "the same" in line.what.partition(",")[0]]
    assert not alone, "its line before is not in the short table"
    records = {"fastgl-table8": fused_map(2.5)}
    short, _, folded = measured.markdown(records).partition("<details>")
    body = measured.rows(records)
    assert f"All {len(body)} lines" in folded and all(line[1] in folded for line in body)
    wanted = measured.rows(records, main_alone=True)
    assert 0 < len(wanted) <= len(body) and all(line[1] in short for line in wanted)


def test_only_what_stands_between_the_marks_is_renewed() -> None:
    records = {"fastgl-table8": fused_map(2.5)}
    text = f"before\n{measured.BEGIN}\nwritten by hand\n{measured.END}\nafter\n"
    new = measured.readme(text, records)
    assert (
        "by hand" not in new and new.startswith("before\n") and new.endswith("\nafter\n") and "2.50 x" in new
    )
    assert measured.readme(new, records) == new
    assert measured.readme("no marks", records) == "no marks"
    for bad in (measured.BEGIN, f"{measured.END}{measured.BEGIN}"):
        with pytest.raises(ValueError, match="each once"):
            measured.readme(bad, records)


def test_the_readme_holds_the_table_of_the_records(tmp_path: Path) -> None:
    """Of the records that are shipped, whatever source has made them: it is renewed when a record is."""
    shipped = report.load()
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert measured.readme(text, shipped) == text, "renew it: gnnsample-lab bench report --readme README.md"
    copy = tmp_path / "README.md"
    copy.write_text(text.replace("| PGSampler | ", "| by hand | "))
    assert runner.main(["report", "--readme", str(copy)]) == 0
    assert copy.read_text() == text


def test_every_line_finds_its_numbers() -> None:
    """A suite whose rows get other fields takes its line along: it would be left out in silence.

    A line that makes sense on one card alone is not asked of a record of another.
    """
    shipped = report.load()
    without = [
        f"{line.suite}: {line.what}"
        for line in measured.LINES
        if (line.suite not in shipped or line.is_for(shipped[line.suite])) and not _points(line, shipped)
    ]
    unknown = {line for line in without if line.partition(": ")[2] in measured.UNRECORDED}
    assert set(without) == unknown, "no values in the shipped record"
    body = measured.rows(shipped)
    assert all(len(line) == len(measured.HEADER) and "|" not in "".join(line) for line in body)


def _points(line: measured.Line, shipped: dict[str, Any]) -> measured.Points:
    return next((line.points(record) for name, record in shipped.items() if name == line.suite), [])


def test_a_demand_of_ours_is_no_claim_of_a_paper() -> None:
    asked = (
        "NextDoor",
        "what",
        "graphs",
        "against",
        "0.87 x",
        "- (what carries their name should be as fast)",
        "missed",
    )
    told = ("NextDoor", "what", "graphs", "against", "2.00 x", "2 x", REPRODUCED)
    assert measured.tally([asked, told])[0][:4] == ("NextDoor", "1", "1", "0")
