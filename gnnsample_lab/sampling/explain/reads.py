"""What every call of ``next`` in a step reads: the application's own functions run once more, on recording objects.

Draws are functions of sample, step and slot, so the same vertices come out as of any engine, and what is recorded holds
for each of them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from gnnsample_lab.sampling.engine.language.app import NULL
from gnnsample_lab.sampling.engine.language.compile import compile_operator
from gnnsample_lab.sampling.engine.results.result import AppResult

from .record import Fault, Recorder

_MOST_CALLS = 1 << 17
"""Calls are followed one by one in Python, some ten microseconds each."""


@dataclass(frozen=True, eq=False)
class Calls:
    """All calls of ``next`` in one step, first draws (``unique`` may redraw), and what they read. Ids are global.

    Call ``(s * t + k) * m + j`` draws slot ``j`` of transit ``k`` of sample ``s``.

    Attributes:
        size: calls per transit, m.
        sample, transit, degree, vertex: ``int64[C]``: row of the sample, whose list is ``src_edges`` (-1: there is no
            such transit), its length, and what ``next`` returned (-1: NULL).
        begins: ``int64[C + 1]``, where a call's reads lie in the next two.
        address: ``int64[R]``, byte that a read starts at: ``indices`` lie at 0, weights behind them.
        instruction: ``int64[R]``, equal where two calls execute one load together: the same line of the program, the
            same time round its loop, the same probe of a search.
        begin: ``int64[C]``, byte at which the transit's list begins. id_bytes: size of an id.
    """

    size: int
    sample: np.ndarray
    transit: np.ndarray
    degree: np.ndarray
    vertex: np.ndarray
    begins: np.ndarray
    address: np.ndarray
    instruction: np.ndarray
    begin: np.ndarray
    id_bytes: int

    def __len__(self) -> int:
        return len(self.sample)


def follow(result: AppResult, step: int) -> Calls:
    """Run every call of ``next`` of one step again and note what it reads.

    Args:
        result: samples of an individual application, on any device. step: from 0.

    Raises:
        ValueError: a collective application, one that replaces roots, a step that was not run, or more calls than
            Python should follow (131,072).
        SamplingAppError: a function fails in a sample, which a run that has ended well cannot show.
    """
    if not 0 <= step < result.num_steps:
        raise ValueError(f"step must lie in 0..{result.num_steps - 1} (got {step})")
    if result.app.is_collective:
        raise ValueError(f"{result.app.name} is collective: calls read a combined neighbourhood")
    host = result.to_cpu()
    result = dataclasses.replace(host, graph=host.graph.to("cpu", features=False))
    shape = result.shape[step]
    samples, t, m = result.num_samples, shape.transits, shape.size
    if samples * t * m > _MOST_CALLS:
        raise ValueError(
            f"step {step} has {samples * t * m:,} calls; at most {_MOST_CALLS:,} can be followed"
        )
    operator = compile_operator(result.app, result.graph)
    recorder = Recorder(
        result.graph, result.app, operator, [result.roots, *result.steps], result.seed, result.first_sample
    )
    columns: list[tuple[int, int, int, int, int]] = []
    address: list[int] = []
    instruction: list[int] = []
    begins = [0]
    for row in range(samples):
        try:
            for k in range(t):
                transit = recorder.step_transits(row, step, k)
                for j in range(m):
                    vertex, begin, count = NULL, 0, 0
                    if transit >= 0:
                        vertex = recorder.next(row, step, k, j, (transit,), m)
                        begin, count = recorder.begin, recorder.count
                        address += recorder.address
                        instruction += recorder.instruction
                    columns.append((row, transit, count, vertex, begin * recorder.id_bytes))
                    begins.append(len(address))
        except Fault as fault:
            raise recorder.error(row, fault) from None
    table = np.array(columns, dtype=np.int64).reshape(-1, 5).T
    return Calls(
        m, table[0], table[1], table[2], table[3], np.array(begins), np.array(address, dtype=np.int64),
        np.array(instruction, dtype=np.int64), table[4], recorder.id_bytes,
    )  # fmt: skip
