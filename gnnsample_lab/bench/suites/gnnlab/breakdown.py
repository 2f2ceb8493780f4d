"""Where an epoch's time and a GPU's memory go, stage by stage: GNNLab's table 1 and figure 3, on one GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gnnsample_lab.bench import common, timing
from gnnsample_lab.bench.session import Session
from gnnsample_lab.features.ranking.footprint import Counter, epoch_similarity
from gnnsample_lab.pipeline import memory
from gnnsample_lab.systems.features import topology_bytes
from gnnsample_lab.systems.table import System, find
from gnnsample_lab.systems.train import make_sampler

from . import runs
from .extraction import MODELS

MODEL = "gcn"
SIMILAR = 0.1
"""Share of the vertices whose visits are compared, the most visited ones, as in GNNLab's table 2."""


def optimisations(shared: float, apart: float) -> dict[str, tuple[System, float]]:
    """Rows of table 1: system, and share of the vertices that its cache holds under one budget.

    Where the CPU samples, the topology leaves the GPU and the cache takes its place. All run one stage after the other.

    Args:
        shared: of a cache beside the topology. apart: of one without it.
    """
    dgl = replace(find("dgl"), executor="serial")
    tsota = replace(find("tsota"), executor="serial")

    def on_cpu(system: System) -> System:
        return replace(system, sample_device="cpu", strategy="block-bsp", id_map="sort", pick="floyd")

    return {
        "DGL": (on_cpu(dgl), 0.0),
        "DGL, GPU sampling": (dgl, 0.0),
        "T_SOTA": (replace(on_cpu(tsota), cache=None), 0.0),
        "T_SOTA, cache": (on_cpu(tsota), apart),
        "T_SOTA, GPU sampling": (replace(tsota, cache=None), 0.0),
        "T_SOTA, both": (tsota, shared),
    }


def table1(session: Session) -> dict[str, Any]:
    """An epoch by stage as GPU sampling and GPU caching are added, and contend for one budget of memory."""
    runs.verify(session)
    name = runs.graphs(session)[0]
    placed, size = runs.placed(session, name), runs.batch_size(session, name)
    rows: list[dict[str, Any]] = []
    for label, (system, ratio) in optimisations(*runs.ratios(session, name, MODEL)).items():
        run = runs.trained(
            placed, MODEL, system, epochs=runs.EPOCHS, batch_size=size, fanouts=MODELS[MODEL][1], hidden=runs.HIDDEN,
            cache_ratio=ratio if system.cache else None, evaluate=False, progress=False, device=common.device(),
        )  # fmt: skip
        result, seconds = common.median_epoch(run), common.epoch_seconds(run)
        epoch = result.steady
        rows.append({
            "graph": name, "model": MODEL, "system": label, "batch_size": size, "steps": epoch.num_batches,
            "sample_s": epoch.sample_us / 1e6, "extract_s": epoch.extract_us / 1e6, "train_s": epoch.train_us / 1e6,
            "total_s": seconds["epoch_s"], "p10_s": seconds["p10_s"], "p90_s": seconds["p90_s"],
            **common.work_per_batch(epoch, epoch.tasks or epoch.num_batches), "mb_moved": epoch.bytes_moved / 1e6,
            "cache_percent": 100 * result.cache_ratio, "hit_percent": 100 * epoch.hit_rate if system.cache else None,
            "speedup": rows[0]["total_s"] * 1e6 / epoch.total_us if rows else 1.0,
        })  # fmt: skip
        session.say(f"{name}, {label}: {rows[-1]['total_s']:.3f} s an epoch")
    neither, both = (
        next(r for r in rows if r["system"] == label) for label in ("T_SOTA", "T_SOTA, both")
    )  # fmt: skip
    note = f"Both optimisations: {neither['total_s'] / both['total_s']:.2f} x of neither (paper: 1.49 x)."
    budget = runs.budget_gb(session, name, MODEL)
    return runs.record(session, [name], rows, [note], budget_gb=budget)


def figure3(session: Session) -> dict[str, Any]:
    """Bytes on the GPU by stage, and which of them the next mini-batch and the next epoch need again."""
    runs.verify(session)
    names, rows = runs.graphs(session), list[dict[str, Any]]()
    for name in names:
        found = runs.loaded(session, name)
        shared, apart = runs.ratios(session, name, MODEL)
        expanded, needed, work = _footprints(session, name)
        scratch, training = _working(session, name)
        parts: list[dict[str, Any]] = [
            {"stage": "sample", "of": "topology", "bytes": topology_bytes(found), "shared": "yes", **expanded},
            {"stage": "sample, scratch", "of": "a mini-batch", "bytes": scratch, "shared": "no"},
            {"stage": "extract", "of": "cache, topology elsewhere", "bytes": apart * found.feat.nbytes,
             "shared": "yes", **needed},
            {"stage": "extract, beside the topology", "of": "cache, time sharing",
             "bytes": shared * found.feat.nbytes, "shared": "yes"},
            {"stage": "train", "of": "model, features and activations of a mini-batch", "bytes": training,
             "shared": "the model alone"},
        ]  # fmt: skip
        total = sum(p["bytes"] or 0 for p in parts if p["stage"] != "extract, beside the topology")
        for part in parts:
            size = part.pop("bytes")
            part |= {"gb": None if size is None else size / 1e9, "percent": size and 100 * size / total}
            rows.append(
                {"graph": name, "model": MODEL, "batch_size": runs.batch_size(session, name), **work, **part}
            )
        session.say(
            f"{name}: a mini-batch needs {work['rows_per_batch'] / found.num_nodes:.1%} of the vertices"
        )
    return runs.record(
        session, names, rows,
        similarity_percent=f"of two epochs, over the {SIMILAR:.0%} of the vertices that are visited most: vertices "
        "expanded (sample), rows needed (extract); as in table 2",
        percent="of topology, scratch, the larger cache and what training needs",
    )  # fmt: skip


def _footprints(session: Session, name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Similarity of two epochs for sampling and for extraction; rows and picks of a mini-batch, means of both."""
    graph = common.graph(session, name)
    sampler = common.sampler(graph, *MODELS[MODEL])
    seeds, size = common.train_seeds(graph), runs.batch_size(session, name)
    epochs, rows, picks, batches = [], 0, 0, 0
    for number in range(2):
        expanded, needed = Counter(graph.num_nodes), Counter(graph.num_nodes)
        for batch in sampler.epoch(seeds, size, epoch=number):
            expanded.add(batch.blocks[0].dst)
            needed.add(batch.node_ids)
            rows, picks = rows + int(batch.num_nodes), picks + int(batch.num_edges)
            batches += 1
        epochs.append((expanded.result(), needed.result()))
    alike = [
        {"similarity_percent": 100 * float(epoch_similarity(first, second, SIMILAR))}
        for first, second in zip(*epochs, strict=True)
    ]
    work = {"rows_per_batch": round(rows / batches), "picks_per_batch": round(picks / batches)}
    return alike[0], alike[1], work


def _steps(session: Session, name: str) -> Iterator[tuple[str, int]]:
    """What the pools of CuPy and PyTorch hold before sampling, after it, and at the most while a step trains."""
    import torch

    from gnnsample_lab.compute.models import make_model
    from gnnsample_lab.minibatch.export import tensor

    placed = runs.placed(session, name)
    sampler = make_sampler(placed, MODEL, find("gnnlab"), MODELS[MODEL][1], "cuda", 0, False)
    seeds = common.train_seeds(placed)[: runs.batch_size(session, name)]
    model = make_model(
        MODEL, placed.num_features, runs.HIDDEN, placed.num_classes, num_layers=len(MODELS[MODEL][1])
    ).to("cuda")
    memory.reset_pools()
    before, used_before = memory.held("cuda"), _used()
    for number in range(2):  # the first takes memory that it gives back, and tables that the sampler keeps
        memory.reset_pools()
        batch = sampler.sample(seeds, number)
        timing.synchronize()
        # The pools grow to the most that sampling holds: what it has given back by now is counted, too. They need not
        # grow where others' blocks have room; then what it holds now is known.
        sampled = max(memory.held("cuda").less(before).total, _used() - used_before)
        base = torch.cuda.memory_allocated()
        x = torch.zeros(int(batch.node_ids.size), placed.num_features, device="cuda")
        target = tensor(placed.label).to("cuda")[tensor(batch.seeds).long()]
        loss = torch.nn.functional.cross_entropy(model(batch.blocks, x), target.long(), ignore_index=-1)
        loss.backward()
        timing.synchronize()
        trained = torch.cuda.max_memory_allocated() - base
        del batch, x, target, loss
        if number:
            yield "sample", int(sampled)
            yield "train", int(trained)


def _used() -> int:
    """Bytes of device memory that arrays and tensors lie in now."""
    import cupy
    import torch

    return int(cupy.get_default_memory_pool().used_bytes()) + int(torch.cuda.memory_allocated())


def _working(session: Session, name: str) -> tuple[int | None, int | None]:
    """Bytes that sampling and training a mini-batch take beside topology and cache; None without a GPU."""
    if common.device() == "cpu":
        return None, None
    found = dict(_steps(session, name))
    return found["sample"], found["train"]
