"""What a checkpoint has in common with the run that goes on from it, and ranks with one another: a graph's contents."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from gnnsample_lab.device.arrays import to_host
from gnnsample_lab.distributed.parts.partition import topology_hash
from gnnsample_lab.graph.graph import Graph

_ROWS = 1024
"""About so many rows of the features are compared."""


def settings_of_run(
    graph: Graph, trainer: Any, given: Mapping[str, Any], order: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """What decides which seeds and samples a run trains on, in which order, and what it trains; numbers, text and lists
    of them.

    How stages overlap, on how many devices, and which kernel adds up are not in it: a run may go on in another way.

    Args:
        graph: the whole graph.
        trainer: of the run; its sampler says what is drawn.
        given: arguments of ``prepare``.
        order: ``reorder`` and ``window`` of a run on one device; empty for several ranks, which keep the order of
            mini-batches and so go on from any.
    """
    from .train import _model_options, _name

    sampler = trainer.sampler
    return {
        **contents_of(graph), "model": _name(given["model"]),
        "model options": repr(sorted(_model_options(dict(given)).items())), "batch_size": int(trainer.batch_size),
        "fanouts": list(sampler.fanouts), "hidden": int(given["hidden"]), "lr": float(given["lr"]),
        "seed": int(given["seed"]), "draws": repr(getattr(sampler, "spec", None)), "train": len(trainer.seeds),
        "training vertices": checksum(trainer.seeds), "sampler's edges": _other_edges(graph, given.get("sampler")),
        **order,
    }  # fmt: skip


def _other_edges(graph: Graph, sampler: Any) -> list[Any] | None:
    """Checksums of what ``sampler``, of the user's, draws from: edges, and weights where it draws by them.

    None where these are the graph's own, or no sampler is given: so it is in checkpoints that do not have the entry.
    """
    if sampler is None or sampler.graph is graph:
        return None
    weighted = getattr(getattr(sampler, "spec", None), "weighted", False)
    found, own = (
        [topology_hash(one), checksum(one.edge_weight) if weighted else None]
        for one in (sampler.graph, graph)
    )
    return None if found == own else found


def contents_of(graph: Graph) -> dict[str, Any]:
    """Names, sizes and checksums of what a graph to train on holds; of its features some rows."""
    return {
        "graph": graph.name, "vertices": graph.num_nodes, "edges": graph.num_edges, "topology": topology_hash(graph),
        "labels": checksum(graph.label), "features": None if graph.feat is None else list(map(int, graph.feat.shape)),
        "rows of features": checksum(None if graph.feat is None else _some_rows(graph.feat)),
        "edge weights": checksum(graph.edge_weight),
    }  # fmt: skip


def _some_rows(feat: Any) -> Any:
    """Rows from all over the table; all of a large one would take longer to read than a restart."""
    return feat[:: max(1, len(feat) // _ROWS)]


def checksum(array: Any) -> int | None:
    """CRC-32 of an array's bytes, the same on every device; None of None."""
    return None if array is None else zlib.crc32(np.ascontiguousarray(to_host(array)).tobytes())


def statistics_note(model: Any, rank: Any) -> list[str]:
    """A note where layers of the model keep statistics of mini-batches, which ranks do not share."""
    import torch

    has_norms = any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in model.modules())
    if not has_norms or rank is None or rank.world_size == 1:
        return []
    return [
        "the model's batch normalisation is of what a rank trains on: a step is not quite that of one device, and the "
        "first rank's running statistics are kept"
    ]


def labels_note(trainer: Any) -> tuple[str, ...]:
    """A note where mini-batches of a run that is over had no labelled seed."""
    count, steps = trainer.without_labels(), len(trainer.losses) - trainer.resumed
    return (f"{count} of {steps} mini-batches had no labelled seed, and no loss (nan)",) if count else ()


def dropout_note(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """A note where the model draws, as dropout does: a rank draws for its own rows, of generators of its own.

    Masks by vertex would need the global ids of rows, which a captured step's blocks do not have. A model that makes
    masks without PyTorch's generators is taken for one whose masks are those of one device.

    Args:
        parts: what each rank handed back; ``"draws"`` is its ``Trainer.draws``.
    """
    if len(parts) == 1 or not any(part["draws"] for part in parts):
        return []
    return [
        "masks of dropout, or other numbers that the model draws, are each rank's own: losses are not those of one "
        "device, nor of other numbers of ranks"
    ]
