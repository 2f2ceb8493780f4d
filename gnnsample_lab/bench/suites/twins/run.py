"""The suite: graph by graph, beside the original where it can be loaded, beside publications otherwise."""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench import common, source
from gnnsample_lab.bench.record import environment, plain, scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import Unavailable
from gnnsample_lab.bench.suites.gnnlab.caching import verify
from gnnsample_lab.graph.catalogue import entries
from gnnsample_lab.graph.errors import DatasetNotFoundError, DownloadError

from . import beside_published, beside_real, judge, metrics


def graphs(session: Session) -> tuple[str, ...]:
    """What is compared: the chosen graphs, else the real ones and, on a GPU, the twins of published ones."""
    if session.quick and not session.chosen:
        return beside_real.QUICK
    published = beside_published.GPU if common.device() == "cuda" else ()
    return session.chosen or (*beside_real.REAL, *published)


def twins(session: Session) -> dict[str, Any]:
    """Compare every graph; one whose original is not here is passed over.

    Raises:
        Unavailable: (a RuntimeError) no original is here.
    """
    checked = verify(session)
    rows: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}
    compared: dict[str, Any] = {}
    missing: list[str] = []
    for name in graphs(session):
        if is_twin(name):
            cells, about = beside_published.compare(session, name)
            _put(session, name, cells, about, rows, compared)
            facts[name] = {"title": f"{scaled(name)[0]} (synthetic)"}
            continue
        for case in beside_real.cases(name):
            try:
                cells, about = beside_real.compare(session, case)
            except (DatasetNotFoundError, DownloadError) as error:
                session.say(f"{case.name} is left out: {error}")
                missing.append(case.name)
                continue
            _put(session, case.name, cells, about, rows, compared)
            facts[case.name] = {"title": case.name}
    if not rows:
        raise Unavailable(f"suite 'twins' needs a real graph: {', '.join(missing)} are not here")
    return {
        "settings": {
            "device": common.device(), "policies": metrics.POLICIES, "ratios": metrics.RATIOS,
            "epochs": metrics.EPOCHS, "training_share": metrics.SHARE, "corners": metrics.CORNERS,
            "batch_share": [metrics.LEAST, metrics.AIM, metrics.MOST],
            "tolerances": {name: {"kind": kind, "much": much} for name, (kind, much) in judge.TOLERANCES.items()},
            "enough": judge.ENOUGH, "worst": judge.WORST, "spreads": judge.SPREADS,
        },
        "verification": checked, "graphs": facts, "compared": compared, "rows": rows,
    }  # fmt: skip


def is_twin(name: str) -> bool:
    """Whether the graph is generated: it stands beside publications then."""
    return bool(entries().get(scaled(name)[0], {}).get("twin_of"))


def _put(
    session: Session, name: str, cells: list[Any], about: dict[str, Any], rows: list[dict[str, Any]],
    compared: dict[str, Any],
) -> None:  # fmt: skip
    found = judge.verdict(cells)
    at = environment()
    where = {key: at[key] for key in ("date", "commit", "modified", "cpu", "cpu_cores")}
    where["gpu"] = at["gpu"]["name"] if at["gpu"] else None
    where["source"] = source.of_function(f"{__name__.partition('.bench.')[2]}.twins")["hash"]
    compared[name] = {**about, "verdict": found.__dict__, "environment": where}
    rows += [plain(cell.row()) for cell in cells]
    session.say(
        f"{name}: {found.inside} of {found.cells} cells inside, farthest {found.worst} "
        f"({found.worst_off:.2f} tolerances): {'accepted' if found.accepted else 'NOT accepted'}"
    )
