"""Parts of another partition, or of a graph with other weights or features, are refused wherever they meet."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.run import Ranks
from gnnsample_lab.distributed.sampling.layout import Layout

pytest.importorskip("torch")

N = 60


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two parts of a graph, and of graphs that are like it but for what the name says."""
    rng = np.random.default_rng(0)
    edges, weight = rng.integers(0, N, (2, 500)), rng.random(500)
    feat = rng.random((N, 3), dtype=np.float32)

    def saved(name: str, given: dict[str, Any], seed: int = 0) -> Path:
        graph = lab.Graph.from_edges(*edges, N, name="likes", **given)
        cut = lab.distributed.partition(graph, 2, "random", seed=seed, tolerance=2, use_cache=False)
        return lab.distributed.save_parts(graph, cut, tmp_path_factory.mktemp("likes") / name)

    every = {"edge_weight": weight, "feat": feat}
    return {
        "own": saved("own", every),
        "weights": saved("weights", {**every, "edge_weight": weight[::-1].copy()}),
        "features": saved("features", {**every, "feat": feat + 1}),
        "partition": saved("partition", every, seed=1),
        "bare": saved("bare", {"edge_weight": weight}),
    }


def refused(rank: Any, folders: dict[str, Path]) -> list[str]:
    """What is said of each source; every rank is told the same, so that none waits for the others."""
    own = folders["own"]
    part, partition = lab.distributed.open_part(own, rank.index), lab.distributed.open_partition(own)
    names = ["own", "weights", "features", "partition"]
    cases = [(part, {"folder": folders[name], "partition": partition}) for name in names]
    # Those with features and those without are of one graph, and nobody knows of what older versions saved.
    cases += [
        (part, {"folder": folders["bare"]}),
        (replace(part, digests={}), {"folder": folders["weights"]}),
    ]
    # Each rank has its own copy of what it takes for the same data.
    cases += [
        (folders[["own", name][rank.index]], {}) for name in ["weights", "features", "partition", "bare"]
    ]
    said = []
    for source, options in cases:
        try:
            lab.distributed.Sampler(source, [3], "direct", rank=rank, weighted=True, **options).close()
        except ValueError as error:
            said.append(str(error))
        else:
            said.append("")
    return said


def test_parts_of_other_data_are_refused(four_ranks: Ranks, folders: dict[str, Path]) -> None:
    for said in four_ranks.run(refused, folders, world=2):
        beginnings = [
            "", "folder must hold the parts of the graph", "folder must hold the parts of the graph",
            "partition must be the one that is stored with the parts", "", "", "edge_weight of source must be the same",
            "feat of source must be the same", "partition must be the same", "",
        ]  # fmt: skip
        assert [s[: len(b)] if b else s for s, b in zip(said, beginnings, strict=True)] == beginnings
        assert "another edge_weight in part" in said[1] and str(folders["weights"]) in said[1]
        assert "another feat in part" in said[2] and str(folders["partition"]) in said[3]


def test_one_part_of_others_in_a_folder_is_found(folders: dict[str, Path], tmp_path: Path) -> None:
    mixed = shutil.copytree(folders["own"], tmp_path / "mixed")
    for number, other in enumerate(["partition", "weights"]):
        shutil.rmtree(mixed / f"part-0000{number}")
        shutil.copytree(folders[other] / f"part-0000{number}", mixed / f"part-0000{number}")
    layout: Any = SimpleNamespace(part=lab.distributed.open_part(folders["own"], 0), folder=mixed)
    for number, wrong in enumerate(["partition", "edge_weight"]):
        with pytest.raises(ValueError, match=f"folder must .*another {wrong} in part {number} in '.*mixed'"):
            Layout.opened(layout, number)
