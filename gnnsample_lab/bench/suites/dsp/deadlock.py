"""Figure 8: the deadlock of collectives that start in different orders, on two processes that end by themselves."""

from __future__ import annotations

import time
from typing import Any

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError

ROUNDS, TIMEOUT_S = 3, 2.0


def deadlock(session: Session) -> dict[str, Any]:
    """The suite's function: both orders on CPU ranks, whatever there is besides: a stuck kernel would hold a GPU."""
    from gnnsample_lab.distributed import Ranks, coordination

    def pair() -> Any:
        return Ranks(2, device="cpu", timeout_s=120)

    pool = session.kept(("dsp", "pair"), pair)
    rows = []
    for order in coordination.ORDERS:
        began = time.perf_counter()
        found = coordination.demo(order, ranks=pool, rounds=ROUNDS, timeout_s=TIMEOUT_S)
        row = {"order": order, "passed": found.passed, "seconds": time.perf_counter() - began}
        row |= described(found)
        rows.append(row)
        session.say(f"{order}: {row['outcome']}")
    outcomes = {row["order"]: row["passed"] for row in rows}
    if outcomes != {"central": True, "arrival": False}:
        raise VerificationError(f"the one order must end and the other must not (got {outcomes})")
    return {
        "settings": {
            "device": "CPU: two processes on Gloo", "workers": coordination.WORKERS, "rounds": ROUNDS,
            "timeout_s": TIMEOUT_S,
            "arrival": "as workers ask: the sampler first on rank 0, the loader first on rank 1",
            "central": "rank 0 decides and tells the others (DSP, section 5)",
        },
        "verification": {"orders": len(rows)}, "graphs": {}, "rows": rows,
    }  # fmt: skip


def described(report: Any) -> dict[str, str]:
    """What ranks started, and who waits for whom, as cells."""
    waits = [
        f"rank {wait.rank} in the {wait.worker}'s for rank {', '.join(map(str, wait.missing))}"
        for wait in report.waits
    ]
    ring = report.cycle()
    outcome = (
        "all collectives ended" if report.passed else "a deadlock: " + " -> ".join(map(str, [*ring, ring[0]]))
    )
    return {
        "outcome": outcome, "waits": "; ".join(waits) or "nobody waits",
        "started": "; ".join(f"rank {i}: {', '.join(names)}" for i, names in enumerate(report.launched)),
    }  # fmt: skip
