"""Fixtures that every test may use, and what the marks mean.

What is missing on a developer's machine skips with a loud reason; under CI (the variable ``CI`` is set) it fails,
because there a skipped test would pass for a run one.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gnnsample_lab.device.runtime import cuda_problem
from gnnsample_lab.doctor import find_chromium
from gnnsample_lab.resources import user_folder

# Tests move the user's folders about; what is compiled stays in one place, here and in processes that tests start.
os.environ.setdefault("NUMBA_CACHE_DIR", str(user_folder("cache") / "numba"))

# All cores run tests already. What PyTorch computes here is small: shared among threads it only takes longer, and
# threads that wait for their share in a loop take the cores from other tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

REPOSITORY = Path(__file__).resolve().parents[1]


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def absent(what: str) -> NoReturn:
    """Skip loudly, or fail under CI."""
    if in_ci():
        pytest.fail(what, pytrace=False)
    pytest.skip(f"*** {what} ***")


def real_data() -> Path | None:
    """``LAB_DATA_ROOT``, else the data folder that lies beside some checkouts."""
    named = os.environ.get("LAB_DATA_ROOT")
    root = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    return root if root.is_dir() else None


def pytest_report_header() -> list[str]:
    return [
        f"GPU: {cuda_problem() or 'yes'}",
        f"real graphs: {'yes' if real_data() else 'NO, their tests do not run'}",
        f"Chromium: {'yes' if find_chromium() else 'NO, the browser test does not run'}",
    ]


def weight(item: pytest.Item) -> int:
    """How long a test takes, roughly: one marked ``slow``, or with ranks, as long as a hundred others."""
    if item.get_closest_marker("gpu") or item.get_closest_marker("exhaustive"):
        return 0
    has_ranks = not {"pair", "three_ranks", "four_ranks"}.isdisjoint(getattr(item, "fixturenames", ()))
    slow = item.get_closest_marker("slow") or has_ranks
    return 100 if slow else 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        # pytest-xdist hands out files in this order. The long ones come first: with one of them at the end, a worker
        # would be busy for a minute or two while the others have nothing left.
        weights = Counter[Path]()
        for item in items:
            weights[item.path] += weight(item)
        items.sort(key=lambda item: (-weights[item.path], item.path))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    # LAB_REQUIRE_GPU=1 on a GPU host: a test that cannot use the GPU fails there and does not vanish.
    if marked and not os.environ.get("LAB_REQUIRE_GPU"):
        problem = cuda_problem()
        for item in marked if problem else ():
            item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {problem}"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """One thread for PyTorch: when Numba starts its threads, it sets the number of PyTorch's as well."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder with real graphs: ``ogb/ogbl_ddi`` and ``snap/soc-Epinions1.txt.gz``."""
    root = real_data()
    if root is None:
        absent("REAL GRAPHS DID NOT RUN: set LAB_DATA_ROOT to a folder with ogb/ogbl_ddi and snap/")
    return root


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser to drive."""
    path = find_chromium()
    if path is None:
        absent("THE BROWSER TEST DID NOT RUN: no Chromium; install it or set LAB_CHROMIUM")
    return path


@pytest.fixture(scope="session")
def drawn_graphs() -> dict[str, Any]:
    """Small graphs that one can draw by hand; edges are written source -> destination.

    - ``path``: 3 -> 2 -> 1 -> 0, so that 0 reaches every vertex in three hops and ends at a dead end.
    - ``star``: 1..10 -> 0; nothing flows into the leaves.
    - ``cycle``: 0 <- 1 <- 2 <- 3 <- 0.
    - ``clumsy``: a self-loop on 0, three parallel edges 1 -> 0, one edge 2 -> 1, and 3, 4 isolated.
    - ``complete``: every ordered pair of six vertices.
    """
    from gnnsample_lab import Graph

    def draw(edges: list[tuple[int, int]], num_nodes: int, name: str) -> Any:
        return Graph.from_edges([u for u, _ in edges], [v for _, v in edges], num_nodes, name=name)

    return {
        "path": draw([(1, 0), (2, 1), (3, 2)], 4, "path"),
        "star": draw([(leaf, 0) for leaf in range(1, 11)], 11, "star"),
        "cycle": draw([(1, 0), (2, 1), (3, 2), (0, 3)], 4, "cycle"),
        "clumsy": draw([(0, 0), (1, 0), (1, 0), (1, 0), (2, 1)], 5, "clumsy"),
        "complete": draw([(u, v) for u in range(6) for v in range(6) if u != v], 6, "complete"),
    }


# ---- ranks ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def pair() -> Iterator[Any]:
    """Two warm Gloo ranks for all tests of a process; each failure ends them, and the next run starts new ones.

    A rank takes three seconds of a core to start, and as long to read what it calls from the compile cache.
    """
    from gnnsample_lab.distributed import Ranks

    with Ranks(2, device="cpu", timeout_s=240, collective_timeout_s=60) as ranks:
        yield ranks


# ---- ranks on GPUs ----------------------------------------------------------------------------------------------


def num_gpus() -> int:
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


@pytest.fixture
def two_gpus() -> None:
    """For tests that are marked ``gpu``: they are skipped where there is one alone."""
    if num_gpus() < 2:
        pytest.skip("needs two GPUs")


@pytest.fixture(scope="session")
def gpu_world() -> Iterator[Any]:
    """Warm ranks on GPUs for all tests of a process, two of them where there are as many GPUs.

    A call that does not end in 50 s ends the ranks and prints the stacks of both, before the test's own 60 s are over.
    Any failure ends the ranks; the next test starts new ones. Tests in which a rank dies start their own.
    """
    from gnnsample_lab.distributed import Ranks

    with Ranks(min(2, num_gpus()), device="cuda", timeout_s=50, collective_timeout_s=30) as ranks:
        yield ranks


@pytest.fixture
def gpu_ranks(two_gpus: None, gpu_world: Any) -> Any:
    """The two warm ranks on GPUs, each with one of its own."""
    return gpu_world
