"""What rows of several papers need: values of records, numbers and graphs in words, what became of a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gnnsample_lab.bench.measured import LINES, MISSED, REACHED, REPRODUCED, Claim, scaled, verdict
from gnnsample_lab.bench.report import title_of
from tests.notebooks.recorded import Record, Row, Said, listed, rows, short
from tests.readme.rows import cards

GRAPHS = {
    "ppi-like": "PPI",
    "reddit-like": "Reddit",
    "products-like": "Products",
    "mag-like": "MAG",
    "igb-like": "IGB",
    "arxiv-like": "arXiv",
    "physics-like": "Physics",
    "flickr-like": "Flickr",
    "yelp-like": "Yelp",
    "musae-facebook": "MUSAE facebook",
    "orkut-like": "Orkut",
    "patents-like": "Patents",
    "livejournal-like": "LiveJournal",
    "snap:soc-Epinions1": "Epinions",
    "papers100M-like": "papers100M",
    "twitter-like": "Twitter",
    "uk-like": "UK",
    "friendster-like": "Friendster",
}
"""Graphs -> their names in prose, in the order in which rows name them."""


# ---- values ----------------------------------------------------------------------------------------------------------


def values(of: Record, field: str, **wanted: Any) -> list[Any]:
    """A field (``a.b``: ``b`` of ``a``) of the measured rows that have it and whose others are as wanted."""
    first, _, rest = field.partition(".")
    found = [each for each in rows(of, **wanted) if first in each]
    return [each[first][rest] if rest else each[first] for each in found]


def beside_dgl(systems: Record, system: str) -> list[tuple[Row, Row]]:
    """The rows of a system with those of DGL's configuration on the same graphs."""
    return [
        (each, rows(systems, system="dgl", graph=each["graph"])[0]) for each in rows(systems, system=system)
    ]


def slowed_apart(pairs: Iterable[tuple[Row, Row]], name: str) -> Said:
    """On which graphs the stages of DGL's configuration overlap and those of the other do not: by the fastest
    executor of each, but stages that run beside others take longer."""
    apart = [
        dgl["graph"] for each, dgl in pairs if dgl["executor"] != "serial" and each["executor"] == "serial"
    ]
    return Said(
        f"each by its fastest executor: on {labels(apart)} DGL's stages overlap, which slows each of them, {name}'s do "
        "not",
        bool(apart),
    )


# ---- numbers ---------------------------------------------------------------------------------------------------------


def series(numbers: Iterable[float], form: Callable[[float], str] = short) -> str:
    """ "1.00, 2.00 and 3.00"."""
    return listed(map(form, numbers))


def exact(value: float) -> str:
    """A paper's number, as it stands there."""
    return f"{value:.1f}" if value < 10 and round(value, 1) == value else f"{value:g}"


# ---- graphs and runs -------------------------------------------------------------------------------------------------


def labels(graphs: Iterable[str]) -> str:
    """The graphs by name, in the order given."""
    return listed(GRAPHS[scaled(graph)[0]] for graph in graphs)


def in_order(graphs: Iterable[str]) -> list[str]:
    """The graphs as rows name them one after another."""
    return sorted(graphs, key=lambda each: list(GRAPHS).index(scaled(each)[0]))


def sizes(graphs: Iterable[str]) -> str:
    """The graphs by scale, those in full size first: "Reddit and MAG in full size, UK x 0.1"."""
    at: dict[float, list[str]] = {1.0: []}
    for name, scale in map(scaled, in_order(graphs)):
        at.setdefault(scale, []).append(name)
    return ", ".join(
        f"{labels(names)} {'in full size' if scale == 1 else f'x {scale:g}'}"
        for scale, names in at.items()
        if names
    )


def in_full(*records: Record) -> bool:
    """Whether none is of a quick run."""
    return not any(each["settings"]["quick"] for each in records)


def full_size(of: Record, twins: int) -> bool:
    """Whether a run in full is of so many twins, none made smaller."""
    graphs = {each["graph"] for each in of["rows"]}
    return (
        in_full(of)
        and not any("@" in graph for graph in graphs)
        and sum(graph.endswith("-like") for graph in graphs) == twins
    )


def is_unlike(of: Record, graph: str) -> bool:
    """Whether the twin is not like its original in what the record rests on."""
    return title_of(of, graph).endswith("not comparable with the original")


def ran(*records: Record, gpus: int = 1) -> Said:
    """ "in full on one H200": on what the records were made, each card once, in the records' order."""
    used = dict.fromkeys(cards(each, gpus) for each in records)
    return Said(f"in full on {' and '.join(used)}", in_full(*records))


def undecided(caveat: str, became: str) -> list[Said]:
    """How a row begins: "partly" while a caveat leaves its one claim without a verdict, then "done" with a verdict."""
    return [
        Said(f"partly, no verdict: {caveat}", bool(caveat), may_go=True),
        Said("done:", not caveat, may_go=True),
        Said(f"x): {became}", not caveat, may_go=True),
    ]


# ---- verdicts --------------------------------------------------------------------------------------------------------


def line(of: Record, what: str = "", against: str = "") -> tuple[list[float], Claim]:
    """Values and the paper's claim of the record's one line in the table "Measured" that begins so."""
    (found,) = (
        each
        for each in LINES
        if each.suite == of["suite"] and each.claim and each.what.startswith(what) and against in each.against
    )
    assert found.claim, what
    return [value for value, _ in found.points(of)], found.claim(of)


def became(found: Iterable[float], claim: Claim | None = None, **says: float) -> str:
    """What became of a claim, by the rule of the table "Measured", in the words of the rows.

    Args:
        found: the values that we measured.
        claim: what the paper says of them, as :func:`line` gives it.
        says: the same by fields of :class:`Claim`, where that table has no line for it; none: a gain in every case.
    """
    word = verdict(list(found), claim or Claim("", **says))
    if word == REPRODUCED:
        return word
    if word.startswith(MISSED):
        return "reached, but not in every case" if REACHED in word else "smaller"
    return "reversed"
