"""What every call of ``next`` in a step reads: the application run once more, with accessors that take notes.

The rewritten functions of an application (:mod:`.language.compile`) are plain Python over accessors. Here the
accessors are Python too, and keep the address of every read of a neighbour list. Draws are functions of sample, step
and slot, so the same vertices come out as of any engine, and the notes hold for each of them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnsample_lab.sampling.weights import integer_weights

from .language.accessors import USES_WEIGHTS
from .language.app import NULL
from .language.compile import compile_operator
from .notes import ACCESSORS, Call, prev_vertex, table_accessors
from .result import AppResult

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
    """
    if not 0 <= step < result.num_steps:
        raise ValueError(f"step must lie in 0..{result.num_steps - 1} (got {step})")
    if result.app.is_collective:
        raise ValueError(f"{result.app.name} is collective: calls read a combined neighbourhood")
    host = result.to_cpu()
    result = dataclasses.replace(host, graph=host.graph.to("cpu", features=False))
    operator = compile_operator(result.app, result.graph)
    weights = result.app.edge_weights(result.graph) if operator.uses & USES_WEIGHTS else None
    prefix = None if weights is None else integer_weights(result.graph.indptr, weights).prefix
    functions = operator.functions({**ACCESSORS, **table_accessors(operator.tables)})
    shape = result.shape[step]
    samples, t, m = result.num_samples, shape.transits, shape.size
    if samples * t * m > _MOST_CALLS:
        raise ValueError(
            f"step {step} has {samples * t * m:,} calls; at most {_MOST_CALLS:,} can be followed"
        )
    call = Call(result, step, prefix)
    choose: Callable[..., int] = functions.get("lab_step_transits", functools.partial(_default_transit, call))
    columns: list[tuple[int, int, int, int, int]] = []
    address: list[int] = []
    instruction: list[int] = []
    begins = [0]
    for row in range(samples):
        for k in range(t):
            call.start(row, k, 0, NULL, for_transits=True)
            transit = int(choose(call, step, k))
            for j in range(m):
                call.start(row, k, j, transit)
                vertex = NULL
                if transit >= 0:
                    vertex = int(functions["lab_next"](call, step))
                    if operator.deferred and vertex >= 0:
                        vertex = call.read_id(call.begin + vertex, 0)
                columns.append((row, transit, call.count, vertex, call.begin * call.id_bytes))
                address += call.address
                instruction += call.instruction
                begins.append(len(address))
    table = np.array(columns, dtype=np.int64).reshape(-1, 5).T
    return Calls(
        m, table[0], table[1], table[2], table[3], np.array(begins), np.array(address, dtype=np.int64),
        np.array(instruction, dtype=np.int64), table[4], call.id_bytes,
    )  # fmt: skip


def _default_transit(c: Call, _: Any, step: int, k: int) -> int:
    return prev_vertex(c, 1, k, 0)
