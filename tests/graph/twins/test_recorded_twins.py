"""This machine makes the twins that a GPU made when they were recorded, bit for bit."""

import json
from pathlib import Path

import pytest

import gnnsample_lab as lab

RECORD = Path(__file__).parents[3] / "data" / "measured" / "twin-graphs.json"


def recorded():
    record = json.loads(RECORD.read_text())
    limit = record["settings"]["checked_edges"]
    return [row for row in record["rows"] if row["digest"] is not None and row["edges"] <= limit]


def cases():
    """Those that take a CPU half a minute wait for ``make test-all``."""
    slow = {"twitter-like", "papers100M-like"}
    for row in recorded():
        marks = [pytest.mark.exhaustive] if row["graph"] in slow else []
        yield pytest.param(row, marks=marks, id=f"{row['graph']} x {row['scale']:g}")


@pytest.mark.slow
@pytest.mark.parametrize("row", list(cases()))
def test_the_recorded_graph_is_made_again(row):
    made = lab.load(
        row["graph"], scale=row["scale"], seed=row["seed"], device="cpu", features=False, use_cache=False
    )
    assert (made.num_nodes, made.num_edges, made.version) == (row["nodes"], row["edges"], 3)
    assert made.digest() == row["digest"]


def test_several_sizes_and_both_kinds_are_recorded():
    rows = recorded()
    assert len(rows) >= 6
    assert max(row["edges"] for row in rows) > 5_000_000
    every = json.loads(RECORD.read_text())["rows"]
    assert max(row["edges"] for row in every if row["digest"] is not None) > 90_000_000
