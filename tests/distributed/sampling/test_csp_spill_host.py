"""Collective sampling from lists in two memories by whole engines: ranks with the host in place of a GPU, over Gloo."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.run import Ranks
from tests.distributed.sampling.test_csp_gpu import drawn_with_spill
from tests.distributed.sampling.test_direct_gpu import PLAIN, WEIGHTED

torch = pytest.importorskip("torch")

CASES = [("csp", PLAIN, 30_000), ("csp", WEIGHTED, 90_000), ("csp", PLAIN, 0), ("csp", PLAIN, None)]
FEW = (4, 3), np.arange(0, 5980, 97), 2
"""Fanouts, seeds and mini-batches: a host takes its time."""


def on_both(rank: Any, folder: str) -> Any:
    """Every case on the CPU, and then on a host in place of a GPU, for good: such a rank is of no other use."""
    from gnnsample_lab.distributed.sampling import visits
    from gnnsample_lab.distributed.sampling.exchange import Exchange
    from gnnsample_lab.distributed.sampling.gpu import csp
    from tests import host_gpu

    visits.BATCHES, visits.BATCH_SIZE = 2, 40
    twins = [drawn_with_spill(rank, folder, *case, *FEW) for case in CASES]
    host_gpu.install()
    rank.device = "cuda:0"
    csp.one_stream = contextlib.nullcontext  # torch has no streams here

    def swap(self: Exchange, out: Any, given: Any) -> None:  # Gloo has the collective of one tensor alone
        sizes = [[len(t) for t in tensors] for tensors in (out, given)]
        arrived = torch.empty(sum(sizes[0]), dtype=given[0].dtype)
        self.all_to_all_tensors(None, arrived, torch.cat(list(given)), *sizes)
        for to, piece in zip(out, arrived.split(sizes[0]), strict=True):
            to.copy_(piece)

    Exchange.swap = swap  # type: ignore[method-assign]
    return twins, [drawn_with_spill(rank, folder, *case, *FEW) for case in CASES]


@pytest.fixture
def ranks_of_their_own() -> Iterator[Ranks]:
    with lab.distributed.Ranks(2, device="cpu", timeout_s=280, collective_timeout_s=120) as ranks:
        yield ranks


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ compiles the kernels for the host")
def test_engines_draw_and_count_as_cpu_ranks_do(
    ranks_of_their_own: Ranks, hub_parts: Callable[[int], str]
) -> None:
    for twins, found in ranks_of_their_own.run(on_both, hub_parts(2)):
        for case, (picks, host, spilled), (on_gpu, by_gpu, spilled_gpu) in zip(
            CASES, twins, found, strict=True
        ):
            assert spilled == spilled_gpu and (spilled is None) == (case[2] is None)
            assert host == by_gpu and all(bool(each) == (case[2] is not None) for each in host)
            for one, other in zip(picks, on_gpu, strict=True):
                for (f, c, u, at), (f2, c2, u2, at2) in zip(one, other, strict=True):
                    a, b = ({*zip(np.repeat(f, c).tolist(), at.tolist(), u.tolist())},
                            {*zip(np.repeat(f2, c2).tolist(), at2.tolist(), u2.tolist())})  # fmt: skip
                    assert a == b
