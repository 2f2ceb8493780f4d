"""Every system on the same graphs: one GPU, one model, the same capacity for all caches, the same seeds.

What no paper shows, since each compares with a few others on its own card: all of them in one run.
"""

from __future__ import annotations

from typing import Any

from gnnsample_lab.bench import common
from gnnsample_lab.bench.session import Session
from gnnsample_lab.systems.table import find, systems

from .fastgl import training

GRAPHS = ("products-like", "arxiv-like")
MODEL = "sage"
BATCH = 2048
"""Seeds of a mini-batch: NextDoor's trees of 8 000 seeds would have 7 million vertices."""
CACHED = 0.25
"""Share of the rows that each caching system holds: with everything cached they would move nothing."""


def side_by_side(session: Session) -> dict[str, Any]:
    """The suite's function."""
    training.require_torch(session)
    names = common.names(session, *(GRAPHS[:1] if session.quick else GRAPHS), cpu=("arxiv-like@0.1",))
    # The trees of NextDoor are another sample of the same seeds, so that its losses are compared with nobody's.
    checked = training.verify(session, [name for name in systems() if not find(name).trees])
    rows: list[dict[str, Any]] = []
    for name in names:
        found = [
            training.run(session, name, system, MODEL, size=BATCH, cache_ratio=CACHED) for system in systems()
        ]
        for row in training.against(found, "dgl"):
            chosen = find(row["system"])
            row |= {"cache": chosen.cache, "source": chosen.source}
            row["sample"] = "a tree for each seed" if chosen.trees else "vertices merged"
        rows += found
    return {
        "settings": {
            "device": common.device(), "batch_size": BATCH, "fanouts": common.FANOUTS, "hidden": 64,
            "model": MODEL, "cached": f"{CACHED:.0%} of the rows, where a system caches", "what": training.SETTING,
            "speedup": "of step_ms over the configuration 'dgl'",
            "pgsampler": f"queue={find('pgsampler').queue}",
        },
        "verification": checked, "graphs": common.facts(session, names), "rows": rows,
    }  # fmt: skip
