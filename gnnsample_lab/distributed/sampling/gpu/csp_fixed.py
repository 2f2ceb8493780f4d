"""``csp-fixed`` on a GPU: messages of fixed size, no host that reads, one CUDA graph with its collectives.

The first mini-batches run as ``csp`` does, with exact sizes, and are measured; :mod:`..capacities` says how much room
each message then gets. What does not fit is left out and raises a flag, which the ranks reduce inside the graph, so
that all of them know of it at once. The host reads it together with the mini-batch's sizes, before which nobody can
have the mini-batch. If it is up, all ranks sample the mini-batch again with exact sizes, grow, and capture anew.

A message holds ids from its front, and ids below 0 behind them: it needs no counter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gnnsample_lab.device.capturing import without_collection
from gnnsample_lab.minibatch.types import MiniBatch
from gnnsample_lab.sampling.neighbors.plan import STATUS_OVERFLOW
from gnnsample_lab.sampling.neighbors.workspace import Workspace

from ..capacities import WARM_UP, Capacities, capacities_for
from .csp_core import Core, Reduce, Steps, Swap


def rows_of(capacities: Capacities, member: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that a member may ask each owner for, and that each asker may ask it for, ``int64[hops, P]`` each.

    Buckets grow from hop to hop, and so must their room.
    """
    grown = np.maximum.accumulate(capacities.ids, axis=0)
    return grown[:, member, :], grown[:, :, member]


class FixedCore:
    """Fixed messages for one rank's :class:`Core`.

    Args:
        core: whose buffers are used.
        scratch_bytes: bound of the messages' buffers, the same on all ranks.
        largest: largest entries over all ranks of an ``int64[n]``; a collective.

    Attributes:
        capacities: None during the warm-up; the same on all ranks.
        redone: mini-batches that were sampled again, so far.
    """

    def __init__(self, core: Core, scratch_bytes: int, largest: Callable[[np.ndarray], np.ndarray]) -> None:
        if not all(core.strides):
            raise ValueError(
                "fanouts must not take all neighbours (-1) of lists of more than 64 with method='csp-fixed', whose "
                "messages have a fixed size: take method='csp'"
            )
        self.core, self._largest, self._limit = core, largest, scratch_bytes
        self.capacities: Capacities | None = None
        self.redone = self.measured = 0
        self._most = np.zeros((core.spec.num_hops, core.parts, core.parts), dtype=np.int64)
        self._graph: Any = None
        self._layout: tuple[np.ndarray, np.ndarray] | None = None

    # ---- capacities -------------------------------------------------------------------------------------------

    def measure(self, asked: np.ndarray) -> None:
        """Note the rows that an exact mini-batch asked each rank for, ``int64[hops, P]``; all ranks note together."""
        self._most[:, self.core.me] = np.maximum(self._most[:, self.core.me], asked)
        self.measured += 1
        if self.capacities is not None or self.measured >= WARM_UP:  # again where they exceeded their bound
            self.fix()

    def fix(self) -> None:
        """Set or grow the capacities from all that was measured on any rank; a collective.

        Raises:
            RuntimeError: the messages of a rank do not fit ``scratch_bytes``; on all ranks alike.
        """
        core = self.core
        self._most = self._largest(self._most.ravel()).reshape(self._most.shape)
        if self.capacities is None:
            wanted = capacities_for(self._most, self._most)
        else:
            wanted = self.capacities.grown(self._most, self._most)
        ids = np.maximum.accumulate(wanted.ids, axis=0)
        wanted = Capacities(ids, ids * np.array(core.strides)[:, None, None])
        wanted.check(self._limit, core.id_bytes, core.id_bytes + 4 * core.spec.weighted)
        self._graph = self._layout = None  # before their buffers go
        self.capacities = wanted

    # ---- a mini-batch -----------------------------------------------------------------------------------------

    def prepare(self, seeds: np.ndarray, batch_id: int) -> Workspace:
        """Stage what the steps read. Seeds beyond the room of the buffers are left out, and the flag is raised."""
        core = self.core
        assert self.capacities is not None
        ws = core.workspace(0) if core.ws is None else core.ws
        if self._layout is None or self._graph is None:
            self._lay_out(ws)
        room = ws.shape.seed_cap
        core.forced[0] = int(seeds.size > room or bool(core.forced[0]))
        core.stage(ws, seeds[:room], batch_id)
        return ws

    def _lay_out(self, ws: Workspace) -> None:
        core = self.core
        assert self.capacities is not None
        asked, served = self._layout = rows_of(self.capacities, core.me)
        core.lay_out_send(asked[-1].tolist())
        core.places.room(ws.shape.row_caps[-1])
        for hop in range(core.spec.num_hops):
            core.request_ranges(asked[hop].tolist(), self._others(served[hop]))
            core.reply_ranges(hop, asked[hop].tolist(), self._others(served[hop]))

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the messages that are laid out: to each rank, and from each."""
        assert self._layout is not None
        return self._layout

    def _others(self, rows: np.ndarray) -> list[int]:
        found: list[int] = rows.tolist()
        found[self.core.me] = 0
        return found

    def steps(self, ws: Workspace) -> Steps:
        """All work of a mini-batch, from staged seeds to the totals; can be captured. The host reads nothing."""
        core = self.core
        assert self._layout is not None
        asked, served = self._layout
        core.begin(ws)
        core.send.array.data.memset_async(
            0xFF, core.send_at[-1] * core.id_bytes + core.send_caps[-1] * core.id_bytes
        )
        for hop in range(core.spec.num_hops):
            sent, got = asked[hop].tolist(), self._others(served[hop])
            core.bucket(ws, hop, sent)
            give, take, begins = core.request_ranges(sent, got)
            yield Swap(core.send, core.requests, give, take)
            give, take, given_at, taken_at = core.reply_ranges(hop, sent, got)
            rows = list(got)
            rows[core.me] = sent[core.me]
            core.note_asked(hop, rows, begins)
            core.draw(
                ws, hop, rows, begins, core.replies.ptr, given_at, core.back.ptr + taken_at[core.me],
                seen=core.state_at(hop, 3),
            )  # fmt: skip
            yield Swap(core.replies, core.back, give, take)
            core.merge(ws, hop, ws.shape.row_caps[hop], taken_at, sent)
        tell, take_flag = core.modules.route("tell_flag"), core.modules.route("take_flag")
        words = (np.uint64(core.state.ptr), np.uint64(core._notes_memory.ptr), np.int32(core.state_words))
        tell((1,), (256,), (ws.args, np.uint64(core._forced_memory.ptr), np.uint64(core.flag.ptr), *words))
        yield Reduce(core.flag, 1)
        take_flag((1,), (32,), (ws.args, np.uint64(core.flag.ptr)))
        core.finisher.scan(ws)

    def result(self, ws: Workspace, seeds: np.ndarray, batch_id: int, graph: Any) -> MiniBatch | None:
        """The mini-batch once the flag is read; None where the flag of any rank was up."""
        core = self.core
        status = core.await_totals(ws)
        core.forced[0] = 0
        if status & STATUS_OVERFLOW:
            self.redone += 1
            # It is sampled again with exact sizes, which may take other buffers, whether or not these can grow then.
            self._graph = None
            return None
        if status:
            raise RuntimeError(
                f"collective sampling failed with status {status}: other work on the GPU has overwritten its memory"
            )
        batch = core.emit(ws, seeds, batch_id, graph)
        core.moved.served[:] = core.noted()[:, 3]
        core.moved.served[:, core.me] = 0
        return batch

    def replay(
        self, drive: Callable[[Steps], Any], ws: Workspace, restage: Callable[[], Any],
        start: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        """Run :meth:`steps` as one CUDA graph; the first time all ranks capture it together.

        Args:
            drive: runs steps, with the ranks' collectives, on torch's and CuPy's current stream.
            ws: of :meth:`prepare`.
            restage: stages the mini-batch again, with new stamps.
            start: launches the graph, whose collectives are started together (:meth:`~..exchange.Exchange.start`).
        """
        if self._graph is None:
            import cupy
            import torch

            side = cupy.cuda.Stream(non_blocking=True)
            stream = torch.cuda.ExternalStream(side.ptr)
            stream.wait_stream(torch.cuda.current_stream())
            with without_collection(), torch.cuda.stream(stream), side:
                drive(self.steps(ws))  # compiles and connects what a capture cannot
                side.synchronize()
                # CuPy's capture, not torch's: a trainer's thread may capture at the same time. Torch would wait for the
                # whole device, which fails then, and has one generator for random numbers, which both would switch.
                side.begin_capture()
                try:
                    drive(self.steps(ws))
                finally:
                    graph = side.end_capture()
            self._graph = graph
            restage()
        start(self._graph.launch)

    def close(self) -> None:
        self._graph = None
