"""Every row of the README's coverage tables says what its records say today, and no number besides."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from gnnsample_lab.bench.measured import Claim
from gnnsample_lab.bench.measured import rows as measured_rows
from gnnsample_lab.bench.record import is_modelled
from gnnsample_lab.bench.suites.fastgl.papers import columns
from tests.notebooks import passages  # noqa: F401 - it enters its passages
from tests.notebooks.recorded import NAMES, PASSAGES, Record, Row, record, rows
from tests.readme import dsp, fastgl, gnnlab, nextdoor, pgsampler  # noqa: F401 - each enters its rows
from tests.readme.rows import ENTRIES, README, coverage, wrong
from tests.readme.rows import Row as Told
from tests.readme.words import became, exact, full_size, in_full, line, ran, series, sizes, values

ROWS = coverage(README.read_text(encoding="utf-8"))


def rows_of(paper: str, begins: str) -> list[Told]:
    return [row for row in ROWS if row.paper == paper and row.what.startswith(begins)]


@pytest.mark.parametrize("where", ENTRIES, ids=lambda where: "-".join(where).replace(" ", "-"))
def test_a_row_says_what_its_records_say(where: tuple[str, str]) -> None:
    (row,) = rows_of(*where)
    found = wrong(row, ENTRIES[where])
    assert not found, "\n".join([f"{': '.join(where)} is not what data/measured says:", *found])


def test_every_row_that_tells_of_a_record_has_an_entry() -> None:
    entered = {id(row) for where in ENTRIES for row in rows_of(*where)}
    bare = [f"{row.paper}: {row.what}" for row in ROWS if row.tells and id(row) not in entered]
    assert not bare, f"{bare}: say in tests/readme what must stand there"


PRODUCTS = (*(f"fastgl-fig{n}" for n in (1, 3, 9, 14, 15)), "fastgl-table1", "fastgl-table9")
"""Records that say how many features the rows of Products have."""
SWEPT = "c"
"""The part of figure 14 that sweeps them."""


def test_fastgls_products_is_as_wide_as_the_papers() -> None:
    """Its table 6 has twice the features of the data set."""
    theirs = columns("products-like")
    narrow = {
        name
        for name in PRODUCTS
        for row in rows(record(name), graph="products-like")
        if row["num_features"] != theirs and row.get("part") != SWEPT
    }
    assert not narrow, f"of 100 features: {sorted(narrow)}"
    section = README.read_text(encoding="utf-8").partition("\n### FastGL\n")[2].partition("\n|")[0]
    assert f"gives Products {theirs} features" in section
    assert f"The suites take {theirs}" in section


def test_rows_of_memory_io_are_as_wide_as_the_papers() -> None:
    for of in map(record, ("fastgl-fig10", "fastgl-table7")):
        for graph in of["graphs"]:
            assert {*values(of, "num_features", graph=graph)} == {columns(graph)}, graph


def test_a_row_without_a_verdict_is_not_done() -> None:
    """A row is done that says whether the paper was reproduced."""
    early = [
        f"{row.paper}: {row.what}"
        for row in ROWS
        if row.state.startswith("done") and "no verdict" in row.state
    ]
    assert not early, f"{early}: these are partly done"


@pytest.mark.parametrize("where", ENTRIES, ids=lambda where: "-".join(where).replace(" ", "-"))
def test_a_phrase_is_more_than_a_number(where: tuple[str, str]) -> None:
    assert not ENTRIES[where].bare()


TABLE = """
### DSP

| | state |
|---|---|
| figure 12: the pipeline | done: 0.84 x: reversed: `bench dsp-utilisation`, `-pull` |
| queues | done |
"""


def test_rows_are_read_with_the_records_that_they_name() -> None:
    first, second = coverage(TABLE)
    assert (first.paper, first.what) == ("DSP", "figure 12: the pipeline")
    assert first.records == {"dsp-utilisation", "dsp-pull"} and second.records == set()
    assert first.tells and not second.tells
    assert "0.84 x: reversed" in first.found and "dsp" not in first.found


# ---- records of several numbers of GPUs ------------------------------------------------------------------------------

FEWER: dict[str, tuple[str, Callable[[Row], bool]]] = {
    "dsp-pull": ("ranks", lambda row: row["part"] != "fanout"),
    "dsp-memory": ("gpus", lambda row: True),
    "dsp-accuracy": ("seeds_of", lambda row: True),
    "dsp-sampling": ("gpus", lambda row: row["part"] == "walks"),
    "pipelines": ("gpus", lambda row: (row["part"], row.get("step"), row.get("model")) == ("systems", "plain", "sage")),
}  # fmt: skip
"""Records that may have rows of two GPUs beside those of four: the field that says so, and which rows."""


def with_fewer(name: str, of: Record) -> Record:
    """A record with half as many GPUs beside all, where every measured number is ten times as large."""
    field, has = FEWER[name]

    def less(row: Row) -> Row:
        large = {
            key: 10 * value for key, value in row.items() if isinstance(value, float) and key != "original"
        }
        is_alone = row.get("system") == "lab, whole graph"
        return row | large | {field: 1 if is_alone else max(1, row.get(field, 4) // 2)}

    # One device also has the seeds of more GPUs than ran, beside modelled rows.
    ran = max(row.get("gpus", 0) for row in of["rows"] if not is_modelled(row))

    found = dict(of)
    for key in {"rows", "converged"} & of.keys():
        every = [{"seeds_of": 4, **row} if field == "seeds_of" else row for row in of[key]]
        halved = [row for row in every if field != "seeds_of" or row[field] <= ran]
        found[key] = [*(less(row) for row in halved if has(row)), *every]
    return found


@pytest.mark.parametrize("name", FEWER)
def test_rows_of_fewer_gpus_change_nothing_that_is_said_of_the_most(name: str) -> None:
    shipped = {each: record(each) for each in NAMES}
    more = shipped | {name: with_fewer(name, record(name))}
    for entry in (*ENTRIES.values(), *PASSAGES.values()):
        if name in entry.records:
            says, then = (entry.says(*(of[each] for each in entry.records)) for of in (shipped, more))
            assert then == says
    assert measured_rows({name: more[name]}) == measured_rows({name: shipped[name]})


def test_the_size_of_gnnlabs_mini_batches_is_that_of_its_records() -> None:
    """The paper's is larger, and what training says depends on it."""
    (said,) = re.findall(r"\n### GNNLab\n\n(.+?)\n\n", README.read_text(encoding="utf-8"), re.DOTALL)
    names = [*(f"gnnlab-table{n}" for n in (1, 4, 5)), *(f"gnnlab-fig{n}" for n in (3, 13, 14, 17))]
    of = {
        (row["graph"], row["batch_size"])
        for name in names
        for row in record(name)["rows"]
        if "batch_size" in row
    }
    assert len(of) == len(dict(of)) == 4
    for graph, seeds in of:
        where = sizes([graph]).removesuffix(" in full size")
        assert f"{seeds:,}".replace(",", " ") in said and where in said
    assert said.startswith("GNNLab trains on mini-batches of 8 000 vertices.")


# ---- words -----------------------------------------------------------------------------------------------------------

RUN = {
    "settings": {"quick": False},
    "environment": {"gpu": {"name": "NVIDIA H200"}},
    "rows": [
        {"graph": "reddit-like", "speedup": {"queue": 2.0}, "gpus": 1},
        {"graph": "rmat", "speedup": {"queue": 3.0}, "gpus": 2},
        {"graph": "reddit-like", "speedup": {"queue": 4.0}, "gpus": 4, "origin": "modelled"},
    ],
}
QUICK = RUN | {"settings": {"quick": True}}


def test_a_field_is_read_from_the_measured_rows() -> None:
    assert values(RUN, "speedup.queue") == [2.0, 3.0]
    assert values(RUN, "gpus", graph="rmat") == [2]


def test_graphs_are_named_with_their_sizes() -> None:
    some = ["uk-like@0.03", "papers100M-like@0.03", "arxiv-like", "products-like"]
    assert sizes(some) == "Products and arXiv in full size, papers100M and UK x 0.03"
    assert sizes(["papers100M-like@0.25", "igb-like@0.02"]) == "IGB x 0.02, papers100M x 0.25"
    with pytest.raises(ValueError, match="karate"):
        sizes(["karate"])


def test_a_quick_run_and_a_smaller_twin_are_not_full() -> None:
    assert in_full(RUN) and not in_full(RUN, QUICK)
    assert full_size(RUN, 1) and not full_size(RUN, 2) and not full_size(QUICK, 1)
    assert not full_size(RUN | {"rows": [{"graph": "reddit-like"}, {"graph": "uk-like@0.1"}]}, 1)
    said = ran(RUN, QUICK, gpus=2)
    assert (said.text, said.holds, ran(RUN).holds) == ("in full on two H200", False, True)


def test_a_verdict_follows_the_rule_of_the_table_measured() -> None:
    assert [became(found, least=2) for found in ([2, 3], [1.1, 3, 1.2], [0.9, 0.8, 3])] == [
        "reproduced", "smaller", "reversed",
    ]  # fmt: skip
    assert became([1.1]) == "reproduced" and became([0.5, 0.6], neutral=0) == "reproduced"
    assert became([1.1], Claim("", best=3)) == "smaller"


def test_the_claim_of_a_record_is_the_one_that_is_named() -> None:
    _, claim = line(record("gnnlab-fig10"), "PreSC", "optimal")
    assert claim.text == "90 to 99 %"
    with pytest.raises(ValueError, match="too many values"):
        line(record("gnnlab-fig10"), "PreSC")


def test_a_papers_number_stands_as_in_the_paper() -> None:
    assert series([0.938, 2, 28, 4.75, 100], exact) == "0.938, 2.0, 28, 4.75 and 100"
