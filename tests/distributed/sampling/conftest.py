"""Parts of a small graph, saved once for all tests of a process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import gnnsample_lab as lab
from gnnsample_lab.bench.configurations import test_graph as drawn_graph


@pytest.fixture(scope="session")
def hub_parts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    """Folder with the graph ``"hubs"`` in so many parts."""
    found: dict[int, str] = {}

    def folder(parts: int) -> str:
        if parts not in found:
            graph = drawn_graph("hubs")
            partition = lab.distributed.partition(graph, parts, "random", tolerance=2, use_cache=False)
            place = tmp_path_factory.mktemp(f"hubs-{parts}")
            found[parts] = str(lab.distributed.save_parts(graph, partition, place / "parts"))
        return found[parts]

    return folder
