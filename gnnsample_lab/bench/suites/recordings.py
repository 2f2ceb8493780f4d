"""What a GPU run leaves for hosts without one: hashes of samples, and measured traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnsample_lab.bench import compiling, verify
from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.graph import Graph
from gnnsample_lab.minibatch.gpu.run import GpuEngine
from gnnsample_lab.minibatch.sampler import NeighborSampler
from gnnsample_lab.sampling.neighbors.launch import Knobs

# Every strategy once, the queue strategies under both picks. `captured` is left out: traced runs are not captured,
# and its kernels are those of `bsp`.
TRACES: tuple[tuple[str, str, str], ...] = (
    ("arxiv-like", "block-bsp", "reservoir"), ("arxiv-like", "edge-bsp", "reservoir"),
    ("arxiv-like", "turbo-bsp", "reservoir"), ("arxiv-like", "grid-barrier", "floyd"),
    ("arxiv-like", "fused-static", "reservoir"), ("arxiv-like", "persistent", "reservoir"),
    ("arxiv-like", "persistent-tile", "floyd"), ("products-like", "bsp", "floyd"),
    ("products-like", "fused-static", "floyd"), ("products-like", "persistent", "floyd"),
    ("products-like", "persistent-tile", "reservoir"),
)  # fmt: skip
FANOUTS = (10, 10, 10)
BATCH_SIZES = {"arxiv-like": 256, "products-like": 128}
_LIMIT_BYTES = 4 << 20


def hashes(session: Session) -> dict[str, Any]:
    """SHA-256 of the canonical sample of every configuration, each strategy and table kind equal to the CPU twin.

    Raises:
        VerificationError: one differs.
    """
    limit = 24 if session.quick else None
    session.say(f"compiled {compiling.compile_variants()} kernels")
    found = verify.verify_all(limit)
    if found["failures"]:
        listed = "\n  ".join(found["failures"][:20])
        raise VerificationError(f"{len(found['failures'])} of {found['checked']} samples differ:\n  {listed}")
    session.say(f"{found['checked']} samples of {len(found['hashes'])} configurations equal the CPU twin's")
    return {
        "settings": {"configurations": len(found["hashes"]), "complete": limit is None},
        "verification": {"samples_equal_to_cpu_twin": found["checked"]}, "graphs": {}, "rows": [],
        "gpu": found["device"], "hashes": found["hashes"],
    }  # fmt: skip


def traces(session: Session, folder: Path) -> dict[str, Any]:
    """Measured traces of every strategy, written to ``folder`` as ``.npz``.

    Raises:
        ValueError: they take more room than a repository should hold.
    """
    rows = []
    cases = [case for case in TRACES if session.chosen is None or case[0] in session.chosen]
    names = list(dict.fromkeys(name for name, _, _ in cases))
    strategies = sorted({strategy for _, strategy, _ in cases})
    verification = session.verify(names, strategies, batch_size=BATCH_SIZES["products-like"])
    for name, strategy, pick in cases:
        (seeds,) = session.batches(name, BATCH_SIZES.get(name, 128), 1)
        sampler = NeighborSampler(
            session.graph(name), list(FANOUTS), strategy=strategy, pick=pick, device="cuda", trace=True
        )
        # The third run: compiled, buffers there, clocks up.
        runs = [sampler.sample(seeds, 0).trace for _ in range(3)]
        rows.append(_save(runs[-1], folder / f"{name}_{strategy}_{pick}.npz"))
    rows.append(_save(paper_counterexample(), folder / "counterexample_persistent_paper.npz"))
    total = sum(row["file_bytes"] for row in rows)
    for row in rows:
        session.say(
            f"{row['file']}: {row['tasks']} tasks, {row['file_bytes'] >> 10} KiB, {row['total_us']:.0f} us"
        )
    if total > _LIMIT_BYTES:
        raise ValueError(
            f"the traces take {total} bytes together; at most {_LIMIT_BYTES} belong into the repository"
        )
    return {
        "settings": {"fanouts": FANOUTS, "batch_sizes": BATCH_SIZES, "sampler_seed": 0, "batch_id": 0},
        "verification": verification, "graphs": session.facts(names), "rows": rows,
    }  # fmt: skip


def _save(trace: Any, path: Path) -> dict[str, Any]:
    trace.save(path)
    return {
        "file": path.name, "file_bytes": path.stat().st_size, "graph": trace.graph_name, "strategy": trace.strategy,
        "pick": trace.pick, "completion": trace.completion, "tasks": len(trace.tasks), "lost": len(trace.lost),
        "kernel_us": trace.kernel_us, "total_us": trace.total_us,
    }  # fmt: skip


def paper_counterexample(attempts: int = 20) -> Any:
    """A measured run of the published completion rule that loses five of ten tasks.

    Seed 0 has ten in-neighbours and seed 1 none, on two blocks: the block of seed 1 ends first, takes tickets 2 to
    6 and leaves. Which block ends first is up to the GPU, so the run is repeated until it shows.
    """
    graph = Graph.from_edges(list(range(2, 12)), [0] * 10, num_nodes=12, name="counterexample").to("cuda")
    sampler = NeighborSampler(
        graph,
        [10, 10],
        strategy="persistent",
        pick="reservoir",
        device="cuda",
        completion="paper",
        trace=True,
    )
    knobs = Knobs(num_blocks=2, self_reuse=False)
    sampler._engine = GpuEngine(
        sampler.graph, sampler.spec, None, "persistent", "paper", 5, True, None, None, knobs
    )
    trace = None
    for _ in range(attempts):
        trace = sampler.sample([0, 1]).trace
        if len(trace.lost) == 5:
            break
    return trace
