"""NextDoor as published beside the kernels that its authors released, whose times are in :mod:`.bench.peers`.

Those ran on ``orkut-like`` as the generator made it before version 3, most likely on version 2, so that this suite runs
on that graph: the same twin on the same kind of card, in two runs. On any other card its ratios say nothing.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from gnnsample_lab.bench import common, peers, timing
from gnnsample_lab.bench.record import scaled
from gnnsample_lab.bench.session import Session
from gnnsample_lab.graph import load
from gnnsample_lab.sampling import apps

from . import runs

GRAPH, VERSION = "orkut-like", 2


class _PPR(apps.PPR):
    """Walks that stop by chance, and after 100 steps, as in the released program."""

    def steps(self) -> int:
        return 100


APPS: dict[str, tuple[str, Callable[[], Any]]] = {
    "DeepWalk": ("DeepWalk", apps.DeepWalk), "PPR, 100 steps": ("PPR", _PPR),
    "node2vec": ("node2vec", apps.Node2Vec), "k-hop": ("k-hop", apps.KHop),
}  # fmt: skip
"""Name in the table of released times -> application of NextDoor's evaluation, and how it is made."""


def released(session: Session) -> dict[str, Any]:
    """The suite's function."""
    name = (session.chosen or (f"{GRAPH}@0.01" if session.quick else GRAPH,))[0]
    with _earlier_twin(session, name):
        return _measured(session, name)


def _measured(session: Session, name: str) -> dict[str, Any]:
    rows, checked = [], Counter[str]()
    for told in peers.NEXTDOOR:
        case, make = APPS[told["app"]]
        study = session.kept(
            ("nextdoor study", name, told["app"]), functools.partial(runs.Study, session, name, case, make)
        )
        ours, published = (study.measure("transit", index) for index in ("auto", "published"))
        rows.append({
            **study.row(), "app": told["app"], "ms": ours["ms"], "published_ms": published["ms"],
            **{f"released_{form}_ms": told[f"{form}_ms"] for form in ("lb", "sp")},
            "spread": {"ms": timing.around(ours), "published_ms": timing.around(published)},
            **({"released_over_published": told["lb_ms"] / published["ms"]} if _is_theirs(name) else {}),
        })  # fmt: skip
        checked += Counter(runs.checked(study))
        study.free()
    return runs.record(
        session, [name], rows, dict(checked), twin=f"of version {VERSION} of the generator",
        released=f"{peers.NEXTDOOR_IS}; on an {peers.CARD}, measured separately",
    )  # fmt: skip


def _is_theirs(name: str) -> bool:
    """Whether times of the released kernels are of this graph."""
    return name == GRAPH and common.device() == "cuda"


@contextlib.contextmanager
def _earlier_twin(session: Session, name: str) -> Iterator[None]:
    """Inside, the session has the earlier twin by that name, and its studies; other suites have today's."""
    device = common.device()

    def make() -> Any:
        began = time.perf_counter()
        base, scale = scaled(name)
        found = load(
            base, scale=scale, device=device, features=False, weighted=True, progress=False, version=VERSION
        )
        session.say(f"{name}, version {VERSION}: {time.perf_counter() - began:.1f} s")
        return found

    _forget(session, name)
    session.kept(("nextdoor graph", name, device), make)
    try:
        yield
    finally:
        _forget(session, name)


def _forget(session: Session, name: str) -> None:
    """Let go of the graph by that name, and of what was measured on it."""
    mine = (("nextdoor graph", name), ("nextdoor study", name))
    for key in [key for key in session._kept if key[:2] in mine]:
        del session._kept[key]
